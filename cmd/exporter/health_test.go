package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/health"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// verdicts returns the verdict on each GPU with its conditions, such as "reset recovery_reset".
func (e *exporter) verdicts(t *testing.T) (health.Node, []string) {
	t.Helper()
	status, body, _ := e.request(t, http.MethodGet, "/verdict/gpus")
	if status == http.StatusServiceUnavailable {
		return health.Node{}, nil
	}
	var n health.Node
	if err := json.Unmarshal([]byte(body), &n); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	var all []string
	for _, g := range n.GPUs {
		text := g.Verdict.String()
		for _, f := range g.Findings {
			text += " " + f.Condition
		}
		all = append(all, text)
	}
	return n, all
}

// A GPU whose driver requests a reset has the verdict reset everywhere within half a minute, and is healthy within a
// minute after the reset. A lost GPU keeps its name and its workload.
func TestVerdictOnGPUs(t *testing.T) {
	t.Parallel()
	n := startOnGPUs(t, 2, nil)
	is := func(want string) func() bool {
		return func() bool { _, all := n.verdicts(t); return strings.Join(all, "; ") == want }
	}
	n.until(t, `llm_gpu_health{gpu="1"`)
	e2e.Until(t, "both GPUs are healthy", is("healthy; healthy"))
	if err := n.Set("1", "field.230", "u32 1"); err != nil {
		t.Fatal(err)
	}
	e2e.Until(t, "GPU 1 is to be reset", is("healthy; reset recovery_reset"))
	page := n.get(t, "/metrics")
	for _, want := range []string{
		"llm_gpu_node_health 3",
		`llm_gpu_health{gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000",pci_bus_id="0000:10:00.0"} 0`,
		`alert="LLMGPUNeedsService",condition="recovery_reset",gpu="1",`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	var said strings.Builder
	if status, err := doctorCommand(t.Context(), []string{"--exporter=" + n.url}, &said, io.Discard); err != nil || status != 1 ||
		!strings.Contains(said.String(), "GPU 1: its verdict is reset: recovery_reset") {
		t.Errorf("the doctor says %d, %v:\n%s", status, err, said.String())
	}
	b := openNode(t, n.url)
	b.Until("the verdict is on its card", text("reset, recovery reset since"))
	if err := n.Set("1", "field.230", "u32 0"); err != nil {
		t.Fatal(err)
	}
	e2e.Until(t, "GPU 1 is healthy", is("healthy; healthy"))
	if err := n.Lose(0); err != nil {
		t.Fatal(err)
	}
	e2e.Until(t, "GPU 0 is lost", is("reset lost; healthy"))
	if lost, _ := n.verdicts(t); lost.Verdict != metrics.Reset || lost.GPUs[0].UUID == "" || lost.GPUs[0].PCI != "0000:10:00.0" ||
		lost.Boot == "" {
		t.Errorf("%+v", lost)
	}
}

// An exporter that reads no GPUs has no verdict on them.
func TestNoVerdictWithoutGPUs(t *testing.T) {
	if status, body, _ := launch(t, "--role=cluster").request(t, http.MethodGet, "/verdict/gpus"); status != http.StatusNotFound ||
		!strings.Contains(body, "reads no GPUs") {
		t.Errorf("%d %s", status, body)
	}
}
