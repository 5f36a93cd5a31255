package kube

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// answer is an answer of the kubelet. It lists the devices of all containers on the node.
type answer struct{ holdings []Holding }

// Holding is a device that is assigned to a container.
type Holding struct {
	PodName
	Container string
	Resource  string // extended resource, or driver of a resource claim
	ID        string
	Claimed   bool   // the device comes from a resource claim, which pods can share
	Pool      string // pool of the driver of a resource claim
}

// codec decodes an answer. The request has no fields. The API's generated types would add a gRPC client to the binary.
type codec struct{}

// Name implements connect.Codec.
func (codec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (codec) Marshal(any) ([]byte, error) { return nil, nil }

// Unmarshal implements connect.Codec.
func (codec) Unmarshal(b []byte, into any) (err error) {
	a := into.(*answer)
	for number, pod := range messageFields(b, &err) {
		if number == 1 { // ListPodResourcesResponse.pod_resources
			a.addPod(pod, &err)
		}
	}
	return err
}

// addPod reads a PodResources.
func (a *answer) addPod(b []byte, err *error) {
	var h Holding
	var containers [][]byte
	for number, value := range messageFields(b, err) {
		switch number {
		case 1:
			h.Name = label(value)
		case 2:
			h.Namespace = label(value)
		case 3:
			containers = append(containers, value)
		}
	}
	for _, c := range containers {
		a.addContainer(c, h, err)
	}
}

// addContainer reads a ContainerResources.
func (a *answer) addContainer(b []byte, h Holding, err *error) {
	var devices, claims [][]byte
	for number, value := range messageFields(b, err) {
		switch number {
		case 1:
			h.Container = label(value)
		case 2:
			devices = append(devices, value)
		case 5:
			claims = append(claims, value)
		}
	}
	for _, d := range devices {
		a.addDevices(d, h, err)
	}
	h.Claimed = true
	for _, c := range claims {
		for number, value := range messageFields(c, err) {
			if number == 4 { // DynamicResource.claim_resources
				a.addClaimed(value, h, err)
			}
		}
	}
}

// addDevices reads a ContainerDevices.
func (a *answer) addDevices(b []byte, h Holding, err *error) {
	var ids [][]byte
	for number, value := range messageFields(b, err) {
		switch number {
		case 1:
			h.Resource = label(value)
		case 2:
			ids = append(ids, value)
		}
	}
	for _, id := range ids {
		h.ID = label(id)
		a.holdings = append(a.holdings, h)
	}
}

// addClaimed reads a ClaimResource.
func (a *answer) addClaimed(b []byte, h Holding, err *error) {
	for number, value := range messageFields(b, err) {
		switch number {
		case 2:
			h.Resource = label(value)
		case 3:
			h.Pool = label(value)
		case 4:
			h.ID = label(value)
		}
	}
	a.holdings = append(a.holdings, h)
}

// messageFields yields the fields of a protobuf message that are strings or messages, with their numbers. If the
// message is damaged, messageFields stops there and sets err.
func messageFields(b []byte, err *error) iter.Seq2[protowire.Number, []byte] {
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
