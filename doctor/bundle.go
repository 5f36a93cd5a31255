package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// These are the files of a bundle.
const (
	bundleSMI  = "nvidia-smi.xml"
	bundlePage = "metrics-%d.prom"
)

// These expressions match the secrets in a document and a metrics page, which identify a machine, its owner or its
// programs. In all files, the same text replaces a secret, so a bundle gives the same comparison as its node.
var (
	smiIdentity = regexp.MustCompile(`<(serial|uuid|pdi|board_id|chassis_serial_number|gpu_fabric_guid|clusterUuid)>([^<]*)</`)
	smiProcess  = regexp.MustCompile(`<process_name>[^<]*</process_name>`)
	smiPID      = regexp.MustCompile(`<pid>[^<]*</pid>`)
)

// identities maps values that identify a machine to the texts that replace them.
type identities map[string]string

// hide returns the text that replaces a value. A UUID is replaced by another UUID.
func (i identities) hide(value string) string {
	if smiSilent(value) || value == "None" {
		return value
	}
	if i[value] == "" {
		n := len(i) + 1
		stand := fmt.Sprintf("%d", n)
		switch {
		case strings.HasPrefix(value, "GPU-") || strings.HasPrefix(value, "MIG-"):
			stand = fmt.Sprintf("%s00000000-0000-4000-8000-%012d", value[:4], n)
		case strings.Count(value, "-") == 4:
			stand = fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
		}
		i[value] = stand
	}
	return i[value]
}

// hidden are labels whose values identify a machine. All families of engines, pods and allocations are left out.
var hidden = []string{
	metrics.LabelGPUUUID, metrics.LabelMIGUUID, metrics.LabelSerial, metrics.LabelChassisSerialNumber,
	metrics.LabelClusterUUID,
}

// Bundle packs nvidia-smi's output and the readings into a gzipped tar file, without anything that identifies the
// machine. Names of hosts, pods and processes are left out. Other serial numbers and UUIDs replace the machine's own.
func Bundle(document []byte, readings ...*Reading) ([]byte, error) {
	i := identities{}
	document = smiIdentity.ReplaceAllFunc(document, func(m []byte) []byte {
		parts := smiIdentity.FindSubmatch(m)
		return fmt.Appendf(nil, "<%s>%s</", parts[1], i.hide(strings.TrimSpace(string(parts[2]))))
	})
	document = smiProcess.ReplaceAll(document, []byte("<process_name>process</process_name>"))
	document = smiPID.ReplaceAll(document, []byte("<pid>1</pid>"))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	t := tar.NewWriter(z)
	put := func(name string, text []byte) error {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err := t.Write(text)
		return err
	}
	err := put(bundleSMI, document)
	for n, r := range readings {
		var page []byte
		if err == nil {
			page, err = i.page(r)
		}
		if err == nil {
			err = put(fmt.Sprintf(bundlePage, n), page)
		}
	}
	err = errors.Join(err, t.Close(), z.Close())
	return packed.Bytes(), err
}

// page returns the metrics page of a reading, with only the families of GPUs, and without secrets.
func (i identities) page(r *Reading) ([]byte, error) {
	var b bytes.Buffer
	for _, f := range metrics.All() {
		family := r.page[f.Name]
		if f.Owner != metrics.GPU || family == nil || f == metrics.GPUSourceUp { // GPUSourceUp contains an address
			continue
		}
		clean := &dto.MetricFamily{Name: family.Name, Type: family.Type, Help: family.Help}
		for _, m := range family.Metric {
			one := &dto.Metric{Gauge: m.Gauge, Counter: m.Counter}
			for _, l := range m.Label {
				value := l.GetValue()
				if slices.Contains(hidden, l.GetName()) {
					value = i.hide(value)
				}
				one.Label = append(one.Label, &dto.LabelPair{Name: l.Name, Value: &value})
			}
			clean.Metric = append(clean.Metric, one)
		}
		if _, err := expfmt.MetricFamilyToText(&b, clean); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// OpenBundle unpacks a bundle. It returns the document and the readings that Bundle packed. ok is false if the bytes
// are not a bundle.
func OpenBundle(packed []byte) (document []byte, readings []*Reading, ok bool, err error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, nil, false, nil //nolint:nilerr // not a bundle
	}
	t := tar.NewReader(io.LimitReader(z, bodyLimit))
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, true, fmt.Errorf("the bundle is broken: %w", err)
		}
		text, err := io.ReadAll(t)
		if err != nil {
			return nil, nil, true, fmt.Errorf("the bundle is broken: %w", err)
		}
		if h.Name == bundleSMI {
			document = text
			continue
		}
		r := &Reading{Exporter: "the bundle"}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		if r.page, err = parser.TextToMetricFamilies(bytes.NewReader(text)); err != nil {
			return nil, nil, true, fmt.Errorf("the bundle is broken: %s: %w", h.Name, err)
		}
		readings = append(readings, r)
	}
	if document == nil || len(readings) == 0 {
		return nil, nil, true, errors.New("the bundle lacks the output of nvidia-smi or a metrics page")
	}
	return document, readings, true, nil
}
