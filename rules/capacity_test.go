package rules_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// held is three replicas on three nodes, each of which serves at least 5 requests per second.
type held struct {
	replica func(i int, since time.Duration) heldReplica // since the onset
	load    func(since time.Duration) float64
	ended   [3]float64
}

// heldReplica holds whether a replica answers, whether its exporter can be scraped, and whether its capacity is
// still unknown.
type heldReplica struct{ serves, seen, unknown bool }

const heldOnset, heldEnd = 30 * time.Minute, 50 * time.Minute

func (h *held) scrape(now time.Time, emit rulesim.Emit) {
	since := now.Sub(rulesim.Epoch) - heldOnset
	var replicas [3]heldReplica
	serving := 0.
	for i := range replicas {
		if replicas[i] = h.replica(i, since); replicas[i].serves {
			serving++
		}
	}
	for i, r := range replicas {
		node := []string{metrics.LabelInstance, fmt.Sprintf("n%d:9844", i)}
		page := []string{metrics.LabelServer, fmt.Sprintf("p%d:8000", i), metrics.LabelNamespace, "prod", metrics.LabelPod, fmt.Sprintf("p%d", i)}
		say := func(f *metrics.Family, v float64, more ...string) {
			emit(labels.FromStrings(slices.Concat([]string{model.MetricNameLabel, f.Name, "job", rules.DefaultJob}, node, more)...), v)
		}
		say(metrics.Up, metrics.Bool(r.seen || !r.serves))
		if !r.serves {
			h.ended[i] = 0
			say(metrics.EngineUp, 0, page...)
			continue
		}
		each := h.load(since) / serving
		if h.ended[i] += 60 * each; !r.seen {
			continue
		}
		say(metrics.EngineUp, 1, page...)
		of := func(f *metrics.Family, v float64, more ...string) {
			say(f, v, slices.Concat(page, []string{metrics.LabelModel, "m"}, more)...)
		}
		of(metrics.EngineInfo, 1)
		of(metrics.RequestsRunning, 2*each)
		of(metrics.RequestsWaiting, 0)
		of(metrics.Requests, h.ended[i], metrics.LabelOutcome, string(metrics.OutcomeStop))
		of(metrics.RequestsArrived, h.ended[i])
		of(metrics.Stages, h.ended[i], metrics.LabelStage, metrics.StageFirstToken)
		if !r.unknown {
			of(metrics.EngineCapacity, 5, metrics.LabelSLO, "ttft", metrics.LabelKind, "low")
			of(metrics.EngineCapacity, 6, metrics.LabelSLO, "ttft", metrics.LabelKind, "expected")
		}
	}
}

// TestDesiredReplicasHold checks that autoscalers get no wrong number of replicas while something is not measured.
// 12 requests per second need three replicas. An autoscaler removes a replica after a quarter of an hour in which
// fewer were needed.
func TestDesiredReplicasHold(t *testing.T) {
	const absent = -1
	for name, c := range map[string]struct {
		held
		want, after float64 // while it lasts, and twenty minutes later
	}{
		"an engine restarts": {held{replica: func(i int, since time.Duration) heldReplica {
			back := i != 2 || since < 0 || since >= 3*time.Minute
			return heldReplica{serves: back, seen: back, unknown: i == 2 && since >= 0}
		}}, 3, 3},
		"exporters restart": {held{replica: func(_ int, since time.Duration) heldReplica {
			return heldReplica{serves: true, seen: true, unknown: since >= 0 && since < 30*time.Minute}
		}}, absent, 3},
		"one exporter restarts": {held{replica: func(i int, since time.Duration) heldReplica {
			return heldReplica{serves: true, seen: true, unknown: i == 2 && since >= 0}
		}}, 3, 3},
		"one exporter is gone": {held{replica: func(i int, since time.Duration) heldReplica {
			return heldReplica{serves: true, seen: i != 2 || since < 0 || since >= heldEnd-heldOnset}
		}}, 3, 3},
		"all exporters are gone": {held{replica: func(_ int, since time.Duration) heldReplica {
			return heldReplica{serves: true, seen: since < 0 || since >= heldEnd-heldOnset}
		}}, absent, 3},
		"zero and back": {held{replica: func(i int, since time.Duration) heldReplica {
			serves := since < 0 || since >= 5*time.Minute && i == 0
			return heldReplica{serves: serves, seen: serves, unknown: since >= 0 && since < 35*time.Minute}
		}, load: during(-5*time.Minute, 5*time.Minute, 0, 4)}, absent, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.load == nil {
				c.load = constant(12)
			}
			sim := newSim(t, rules.Groups(rules.Options{})...)
			last := heldEnd + 20*time.Minute
			if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(last+time.Minute), time.Minute, c.scrape); err != nil {
				t.Fatal(err)
			}
			var asked []float64
			for at := heldOnset; at <= last; at += time.Minute {
				v, err := sim.Query("max("+metrics.RecordedDesired.Name+")", rulesim.Epoch.Add(at))
				if err != nil {
					t.Fatal(err)
				}
				asked = append(asked, absent)
				if len(v) > 0 {
					asked[len(asked)-1] = v[0].F
				}
			}
			for i := 15; i < int((heldEnd - heldOnset).Minutes()); i++ {
				if most := slices.Max(asked[i-14 : i+1]); most != c.want {
					t.Errorf("after %d minutes autoscalers follow %g, want %g: %v", i, most, c.want, asked)
				}
			}
			if most, end := slices.Max(asked), asked[len(asked)-1]; most > max(c.want, c.after, 3) || end != c.after {
				t.Errorf("%g at most, %g at last, want %g: %v", most, end, c.after, asked)
			}
		})
	}
}
