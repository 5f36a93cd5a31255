package gpu

import (
	"math"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestSeriesSurvive checks that a reading that appears or disappears before others affects only its own series. All
// other series are reused.
func TestSeriesSurvive(t *testing.T) {
	of := Identity{UUID: "GPU-1", Index: "0"}
	families := []*metrics.Family{metrics.GPUCollectStuck, metrics.GPUPersistenceMode, metrics.GPUPerformanceState}
	var r readings
	cycle := func(families ...*metrics.Family) map[*metrics.Family]*metrics.Series {
		r.again()
		for _, f := range families {
			r.add(of, f, 1, nil)
		}
		all := map[*metrics.Family]*metrics.Series{}
		for _, s := range r.samples {
			all[s.Family] = s.Series
		}
		return all
	}
	last := cycle(families...)
	for _, now := range [][]*metrics.Family{families[1:], families, families} {
		next := cycle(now...)
		for _, f := range families[1:] {
			if next[f] != last[f] {
				t.Errorf("%s was made anew among %d readings", f.Name, len(now))
			}
		}
		last = next
	}
}

// TestImpossibleReadings checks that numbers that no GPU can have are dropped and counted, whoever reports them.
func TestImpossibleReadings(t *testing.T) {
	var s sheet
	s.begin(slow, 0)
	for _, v := range []float64{0.5, 4.29e7, -1, math.NaN(), math.Inf(1)} {
		s.add(metrics.GPUUtilization, v)
		s.row = slow
		s.add(metrics.GPUBAR1Total, v)
		s.row = fast
	}
	s.add(metrics.GPUTemperatureMargin, -3, "slowdown") // over the limit
	if len(s.readings[fast].samples) != 2 || len(s.readings[slow].samples) != 2 || s.dropped[metrics.GPUUtilization] != 4 ||
		s.dropped[metrics.GPUBAR1Total] != 3 {
		t.Errorf("%d and %d readings stay, dropped %v", len(s.readings[fast].samples), len(s.readings[slow].samples), s.dropped)
	}
}
