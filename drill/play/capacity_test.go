package play

import (
	"fmt"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestCapacity checks that the exporter knows after two hours at which load an objective breaks. With a quarter less
// load all objectives are met; with a third more load one breaks.
func TestCapacity(t *testing.T) {
	if testing.Short() {
		t.Skip("three plays of two hours")
	}
	profile := drill.NewProfile("m")
	profile.Arrivals, profile.Swing, profile.Period, profile.MaxBatch, profile.Patience = 6, 0.5, time.Hour, 64, 0
	loaded := func(t *testing.T, arrivals float64) *Play {
		p, err := Run(incident.Incident{
			Name: "capacity", Lasts: 25 * time.Minute,
			Fleet:  world.Fleet{Replicas: 1, Runtimes: []metrics.Runtime{metrics.VLLM}, Profile: profile, SeesProcesses: true},
			Faults: []incident.Fault{{Do: func(w *world.World) { w.Traffic.Arrivals, w.Traffic.Swing = arrivals, 0 }}},
		}, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	one := func(t *testing.T, p *Play, query string, after time.Duration) float64 {
		found, err := p.Prometheus.Query(query, p.World.At(p.Onset+after))
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %v: %v", query, found, err)
		}
		return found[0].F
	}
	p := loaded(t, 6)
	capacity := one(t, p, fmt.Sprintf(`min(%s{kind="expected"})`, metrics.RecordedCapacity.Name), 0)
	t.Logf("it should hold up to %.1f requests per second", capacity)
	for _, c := range []struct {
		factor float64
		breaks bool
	}{{0.75, false}, {1.33, true}} {
		t.Run(fmt.Sprint(c.factor), func(t *testing.T) {
			t.Parallel()
			p := loaded(t, c.factor*capacity)
			burn := one(t, p, "max(increase("+metrics.SLOBadEvents.Name+"[15m]) / on (slo) (increase("+metrics.SLOEvents.Name+
				"[15m]) * on (slo) (1 - "+metrics.SLOObjective.Name+")))", 25*time.Minute)
			if used := one(t, p, "max("+metrics.RecordedUtilisation.Name+`{kind="expected"})`, 25*time.Minute); (burn > 1) != c.breaks ||
				(used > 1) != c.breaks {
				t.Errorf("at %.2f of its capacity the worst objective burns %.1f times too fast, and the load is said to be %.0f%% of it",
					c.factor, burn, 100*used)
			}
			if needed := one(t, p, metrics.RecordedDesired.Name, 25*time.Minute); (needed > 1) != c.breaks {
				t.Errorf("at %.2f of its capacity %g replicas are said to be needed", c.factor, needed)
			}
		})
	}
}

// TestSlowSteps checks an engine that reports decode times and tokens of ended requests, but no times between
// tokens: without a Prometheus, it shows that it is slow for its load.
func TestSlowSteps(t *testing.T) {
	t.Parallel()
	profile := drill.NewProfile("m")
	profile.Arrivals, profile.Swing = 4, 0.3
	p, err := Run(incident.Incident{
		Name: "slow", History: time.Hour, Lasts: 6 * time.Minute,
		Fleet:  world.Fleet{Replicas: 1, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}, Profile: profile},
		Faults: []incident.Fault{{Do: func(w *world.World) { w.Replicas[0].Engine.Slow = 3 }}},
	}, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	for after, between := range map[time.Duration][2]float64{-time.Minute: {0.8, 1.2}, 5 * time.Minute: {2.5, 8}} {
		found, err := p.Prometheus.Query(metrics.EngineSlowdown.Name, p.World.At(p.Onset+after))
		if err != nil || len(found) != 1 || found[0].F < between[0] || found[0].F > between[1] {
			t.Errorf("after %s: %v, %v; want %v", after, found, err, between)
		}
	}
}

// TestHostLimits checks that the exporter names the host as the limit of an engine whose steps wait for a CPU, and only then.
func TestHostLimits(t *testing.T) {
	t.Parallel()
	for starved, host := range map[time.Duration]bool{0: false, 60 * time.Millisecond: true} {
		profile := drill.NewProfile("m")
		profile.Arrivals, profile.Swing, profile.Period, profile.MaxBatch, profile.Patience = 6, 0.5, time.Hour, 512, 0
		p, err := Run(incident.Incident{
			Name: "host", History: 2 * time.Hour, Lasts: time.Minute,
			Fleet:  world.Fleet{Replicas: 1, Runtimes: []metrics.Runtime{metrics.VLLM}, Profile: profile, SeesProcesses: true},
			Faults: []incident.Fault{{At: -119 * time.Minute, Do: func(w *world.World) { w.Replicas[0].Engine.Starved = starved }}},
		}, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		found, err := p.Prometheus.Query(metrics.EngineCapacityLimit.Name+`{slo="itl"}`, p.World.At(p.Onset))
		if err != nil || len(found) != 1 || (found[0].Metric.Get(metrics.LabelLimit) == "host") != host {
			t.Errorf("steps wait for %s: %v, %v", starved, found, err)
		}
	}
}
