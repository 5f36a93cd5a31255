package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestStatusLineTellsTheWorseEngine uses two engines with different bounds, so that a sum over both is meaningless. All
// first tokens take 0.2 s on one engine and 3 s on the other; the line shows about 3 s.
func TestStatusLineTellsTheWorseEngine(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	bounds := map[string]map[string]float64{"vllm": {"0.1": 0, "0.25": 1, "2560": 1, "+Inf": 1}, "tgi": {
		"2.9": 0, "3.1": 1, "60": 1,
		"+Inf": 1,
	}}
	for n := range 6 {
		if err := sim.Append(rulesim.Epoch.Add(time.Duration(n)*10*time.Second), func(emit rulesim.Emit) {
			for runtime, share := range bounds {
				for le, s := range share {
					emit(labels.FromStrings("__name__", metrics.TimeToFirstToken.Name+"_bucket", metrics.LabelRuntime, runtime, "le", le),
						float64(100*n)*s)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range figures {
		if !strings.HasPrefix(f.format, "TTFT") {
			continue
		}
		v, err := sim.Query(f.query, rulesim.Epoch.Add(50*time.Second))
		if err != nil || len(v) != 1 || v[0].F < 2.9 || v[0].F > 3.1 {
			t.Errorf("%s: %v, %v", f.query, v, err)
		}
		return
	}
	t.Error("no figure is the time to the first token")
}
