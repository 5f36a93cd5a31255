package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestMeasuresOfTwoVersions checks that a release is measured within a bucket although two versions of its engine have
// different bounds and one of them is gone: each observation of both takes 22 ms.
func TestMeasuresOfTwoVersions(t *testing.T) {
	sim := newSim(t)
	bounds := map[string][]string{"1": {"0.01", "0.025", "0.05", "10", "+Inf"}, "2": {"0.018", "0.028", "0.04", "80", "+Inf"}}
	end := rulesim.Epoch.Add(20 * time.Minute)
	if err := sim.Run(rulesim.Epoch, end, scrapeEvery, func(at time.Time, emit rulesim.Emit) {
		for version, bounds := range bounds {
			if version == "1" && at.After(end.Add(-7*time.Minute)) {
				continue
			}
			engine := []string{metrics.LabelRuntime, "vllm", metrics.LabelModel, "m", metrics.LabelPod, version}
			emit(series(metrics.EngineInfo.Name, append(engine, metrics.LabelVersion, version)...), 1)
			for _, h := range []*metrics.Family{metrics.TimeToFirstToken, metrics.InterTokenLatency} {
				for i, le := range bounds {
					emit(series(h.Name+"_bucket", append(engine, "le", le)...), at.Sub(rulesim.Epoch).Seconds()*metrics.Bool(i > 0))
				}
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, m := range rules.Measures() {
		if !strings.HasSuffix(m.Name, "_p95") {
			continue
		}
		found, err := sim.Query(m.Query(15*time.Minute, promql.Eq(metrics.LabelModel, "m")).String(), end)
		if err != nil || len(found) != 1 || found[0].F < 0.02 || found[0].F > 0.03 {
			t.Errorf("%s: %v (%v)", m.Name, found, err)
		}
	}
}
