package page

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
)

// fixed is a metrics page that does not change.
type fixed []byte

func (f fixed) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(f)
	return int64(n), err
}

// TestDCGMNames checks GPUs that NVML describes, under dcgm-exporter's names.
func TestDCGMNames(t *testing.T) {
	for _, name := range []string{"hopper", "mig", "volta", "gpu_lost"} {
		page, err := os.ReadFile("../testdata/" + name + ".prom")
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := (DCGM{fixed(page), "gpu-node-1"}).WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		added, ok := strings.CutPrefix(out.String(), string(page))
		if !ok {
			t.Errorf("%s: the page itself has changed", name)
		}
		golden.Compare(t, "testdata/compat/"+name+".prom", added)
	}
}

// TestDCGMNamesComeBack checks that dcgm-exporter's metrics are unchanged when they are read and written under its
// names again.
func TestDCGMNamesComeBack(t *testing.T) {
	body, err := os.ReadFile("testdata/pages/dcgm-4.8.4.prom")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile("testdata/golden/dcgm-4.8.4.prom")
	if err != nil {
		t.Fatal(err)
	}
	// which collectors/ownership adds
	for i, uuid := range []string{"GPU-6c0e1f7a-2f0b-4d1c-9a55-0d7c3f1b2a01", "GPU-6c0e1f7a-2f0b-4d1c-9a55-0d7c3f1b2a02"} {
		ours = fmt.Appendf(ours, "llm_gpu_allocation_info{container=\"vllm\",gpu=\"%d\",gpu_uuid=%q,namespace=\"prod\",pod=\"chat-%d\"} 1\n",
			i, uuid, i)
	}
	var out bytes.Buffer
	if _, err := (DCGM{fixed(ours), "gpu-node-1"}).WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	was, is := numbers(t, string(body)), numbers(t, out.String())
	compared := 0
	for key, v := range was {
		name, _, _ := strings.Cut(key, " ")
		expected := false
		for _, s := range served {
			expected = expected || s.name == name && name != dev+"XID_ERRORS" // the metrics page does not show the time
		}
		if !expected {
			continue
		}
		if compared++; is[key] != v {
			t.Errorf("%s = %v, was %v", key, is[key], v)
		}
	}
	if compared < 30 {
		t.Errorf("only %d numbers were compared", compared)
	}
}

// numbers reads a metrics page: values by name and the labels that identify the GPU.
func numbers(t *testing.T, page string) map[string]float64 {
	t.Helper()
	p := parsePageOf(t, page)
	out := map[string]float64{}
	for name, samples := range p {
		for _, s := range samples {
			key := name
			for _, l := range []string{
				"gpu", "UUID", "pci_bus_id", "device", "modelName", "hostname", "DCGM_FI_DRIVER_VERSION", "container",
				"namespace", "pod",
			} {
				key += " " + s.labels.Get(l)
			}
			out[key] = s.value
		}
	}
	return out
}

func parsePageOf(t *testing.T, page string) series {
	t.Helper()
	s := series{}
	parser := textparse.NewPromParser([]byte(page), labels.NewSymbolTable(), false)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		if entry == textparse.EntrySeries {
			var l labels.Labels
			parser.Labels(&l)
			_, _, v := parser.Series()
			name := l.Get(model.MetricNameLabel)
			s[name] = append(s[name], sample{l, v})
		}
	}
}
