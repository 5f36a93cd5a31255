package rules_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// The runbook's query shows latencies and failures of a version that no replica runs any more beside those of the one
// that replaced it, whether the new engines took the addresses of the old ones or came under their own.
func TestReleasesAreCompared(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "runbooks", "LLMReleaseRegression.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, query, _ := strings.Cut(string(page), "Each version of the last 6h")
	_, query, _ = strings.Cut(query, "```promql\n")
	query, _, _ = strings.Cut(query, "```")
	query = strings.ReplaceAll(query, "$MODEL", "m")
	for _, keeps := range []bool{true, false} {
		sim := newSim(t, group(t, rules.Options{}, "llm-evidence-1"), group(t, rules.Options{}, "llm-evidence-2"))
		totals := map[string]float64{}
		err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(2*time.Hour), scrapeEvery, func(now time.Time, emit rulesim.Emit) {
			version, slow, failed, base := "1", 0.0, 0.01, "10.0.0.1"
			if now.Sub(rulesim.Epoch) >= time.Hour {
				version, slow, failed = "2", 0.2, 0.1
				if !keeps {
					base = "10.0.1.1"
				}
			}
			for _, n := range []string{"0", "1"} {
				engine := []string{metrics.LabelNamespace, "prod", metrics.LabelModel, "m", metrics.LabelPod, "p" + n, metrics.LabelServer, base + n + ":8000"}
				count := func(name string, by float64, more ...string) {
					l := series(name, append(more, engine...)...)
					totals[l.String()] += by
					emit(l, totals[l.String()])
				}
				emit(series(metrics.EngineInfo.Name, append(engine, metrics.LabelVersion, version)...), 1)
				for _, h := range []*metrics.Family{metrics.TimeToFirstToken, metrics.InterTokenLatency} {
					count(h.Name+"_bucket", 100*(1-slow), "le", "0.1") // none or a fifth of the observations come above
					count(h.Name+"_bucket", 100, "le", "1")
					count(h.Name+"_bucket", 100, "le", "+Inf")
				}
				count(metrics.Requests.Name, 100*(1-failed), metrics.LabelOutcome, string(metrics.OutcomeSuccess))
				count(metrics.Requests.Name, 100*failed, metrics.LabelOutcome, string(metrics.OutcomeError))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		v, err := sim.Query(query, rulesim.Epoch.Add(2*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		got := map[[2]string]float64{}
		for _, s := range v {
			got[[2]string{s.Metric.Get(metrics.LabelFact), s.Metric.Get(metrics.LabelVersion)}] = s.F
		}
		for want, value := range map[[2]string]float64{
			{"ttft_p95", "1"}: 0.095, {"ttft_p95", "2"}: 0.775, {"itl_p95", "1"}: 0.095, {"itl_p95", "2"}: 0.775,
			{"failed", "1"}: 0.01, {"failed", "2"}: 0.1,
		} {
			if f, ok := got[want]; !ok || math.Abs(f-value) > 0.1*value {
				t.Errorf("addresses kept: %t: %v is %v, want %v", keeps, want, f, value)
			}
		}
		if len(got) != 6 {
			t.Errorf("addresses kept: %t: %v", keeps, got)
		}
	}
}
