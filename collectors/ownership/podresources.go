package ownership

import (
	"iter"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

const longestName = 253 // bytes; the most that Kubernetes allows for any name

// answer holds the devices of the containers on the node.
type answer struct{ holdings []holding }

// holding records a device that a container has.
type holding struct {
	podName
	container string
	resource  string // the extended resource, or the driver of a resource claim
	id        string
	claimed   bool   // through a resource claim, which pods can share
	pool      string // pool of the driver of a resource claim
}

type podName struct{ namespace, name string }

// codec decodes an answer from the wire. The request has no fields. The types generated for the API would bring an
// unwanted client.
type codec struct{}

// Name implements connect.Codec.
func (codec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (codec) Marshal(any) ([]byte, error) { return nil, nil }

// Unmarshal implements connect.Codec.
func (codec) Unmarshal(b []byte, into any) (err error) {
	a := into.(*answer)
	for number, pod := range fields(b, &err) {
		if number == 1 { // ListPodResourcesResponse.pod_resources
			a.addPod(pod, &err)
		}
	}
	return err
}

// addPod reads a PodResources.
func (a *answer) addPod(b []byte, err *error) {
	var h holding
	var containers [][]byte
	for number, value := range fields(b, err) {
		switch number {
		case 1:
			h.name = label(value)
		case 2:
			h.namespace = label(value)
		case 3:
			containers = append(containers, value)
		}
	}
	for _, c := range containers {
		a.addContainer(c, h, err)
	}
}

// addContainer reads a ContainerResources.
func (a *answer) addContainer(b []byte, h holding, err *error) {
	var devices, claims [][]byte
	for number, value := range fields(b, err) {
		switch number {
		case 1:
			h.container = label(value)
		case 2:
			devices = append(devices, value)
		case 5:
			claims = append(claims, value)
		}
	}
	for _, d := range devices {
		a.addDevices(d, h, err)
	}
	h.claimed = true
	for _, c := range claims {
		for number, value := range fields(c, err) {
			if number == 4 { // DynamicResource.claim_resources
				a.addClaimed(value, h, err)
			}
		}
	}
}

// addDevices reads a ContainerDevices.
func (a *answer) addDevices(b []byte, h holding, err *error) {
	var ids [][]byte
	for number, value := range fields(b, err) {
		switch number {
		case 1:
			h.resource = label(value)
		case 2:
			ids = append(ids, value)
		}
	}
	for _, id := range ids {
		h.id = label(id)
		a.holdings = append(a.holdings, h)
	}
}

// addClaimed reads a ClaimResource.
func (a *answer) addClaimed(b []byte, h holding, err *error) {
	for number, value := range fields(b, err) {
		switch number {
		case 2:
			h.resource = label(value)
		case 3:
			h.pool = label(value)
		case 4:
			h.id = label(value)
		}
	}
	a.holdings = append(a.holdings, h)
}

// fields yields the strings and messages in a message, by number. It stops where the message is damaged and reports
// that in err.
func fields(b []byte, err *error) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(b) > 0 && *err == nil {
			number, kind, n := protowire.ConsumeTag(b)
			if n >= 0 {
				b = b[n:]
				n = protowire.ConsumeFieldValue(number, kind, b)
			}
			if n < 0 {
				*err = protowire.ParseError(n)
				return
			}
			value := b[:n]
			b = b[n:]
			if kind != protowire.BytesType {
				continue
			}
			if value, _ = protowire.ConsumeBytes(value); !yield(number, value) {
				return
			}
		}
	}
}

// label returns a name as a label value.
func label(b []byte) string {
	return strings.ToValidUTF8(string(b[:min(len(b), longestName)]), "\uFFFD")
}
