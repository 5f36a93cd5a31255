package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestCapacityCommand checks that the objective that breaks first comes first, that engines of unknown capacity are
// listed separately, and that a load beyond the capacity has its own exit status.
func TestCapacityCommand(t *testing.T) {
	content, err := os.ReadFile("testdata/capacity.prom")
	if err != nil {
		t.Fatal(err)
	}
	known := string(content)
	const unknown = `llm_engine_capacity_known{model_name="m",namespace="prod",pod="m-2",reason="few_readings",server="10.0.0.12:8000"} 0` + "\n"
	beyond := strings.Replace(known, `slo="ttft"} 0.4`, `slo="ttft"} 1.4`, 1)
	for name, c := range map[string]struct {
		page   string
		status int
		says   []string
	}{
		"known": {known, 0, []string{
			"prod/m: the capacity of 2 of 2 engines on this node is known", "bottleneck\n  ttft ",
			"37.8 requests/s   34.4 and 41.2", "47%        batch_limit",
			"with prompts halved: up to 47.3 requests/s (+25%)", "with KV cache doubled: up to 37.8 requests/s (no change)",
		}},
		"one more": {known + unknown, 3, []string{
			"2 of 3 engines",
			"1 unknown: the exporter has watched this engine for less than half an hour",
		}},
		"no histograms": {strings.Replace(unknown, "few_readings", "no_histograms", 1), 3, []string{
			"0 of 1 engines", "1 unknown: the engine does not report histograms of first tokens",
		}},
		"roles": {strings.Replace(known+unknown, `pod="m-2"`, `role="prefill",pod="m-2"`, 1), 3, []string{
			"prod/m: the capacity of 2 of 2 engines", "prod/m (prefill): the capacity of 0 of 1 engines",
		}},
		"beyond":  {beyond, 1, []string{"bottleneck\n  ttft ", "14"}},
		"nothing": {"llm_engine_up 1\n", 3, []string{"No engine reports first tokens"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(c.page)) }))
			defer s.Close()
			var out strings.Builder
			status, err := capacityCommand(t.Context(), []string{"--exporter=" + s.URL}, &out, &out)
			if err != nil || status != c.status {
				t.Errorf("status %d, %v; want %d", status, err, c.status)
			}
			for _, want := range c.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not say %q:\n%s", want, out.String())
				}
			}
		})
	}
	if status, err := capacityCommand(t.Context(), []string{"--exporter=http://127.0.0.1:1"}, os.Stderr, os.Stderr); status != 3 ||
		err == nil {
		t.Errorf("without an exporter: %d, %v", status, err)
	}
}
