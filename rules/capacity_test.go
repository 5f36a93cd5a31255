package rules_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// held is three replicas on three nodes, each of which can serve at least 5 requests per second.
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

// TestCapacityOfRoles checks two prefill engines and one decode engine: each request passes one engine of each role,
// and counts once.
func TestCapacityOfRoles(t *testing.T) {
	sim := newSim(t, rules.Groups(rules.Options{})...)
	err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(10*time.Minute), time.Minute, func(now time.Time, emit rulesim.Emit) {
		for pod, each := range map[string]struct {
			role                   string
			capacity, perSecond, n float64
		}{
			"a": {"prefill", 10, 4.5, 1}, "b": {"prefill", 10, 4.5, 1}, "c": {"decode", 15, 9, 101},
		} {
			of := func(f *metrics.Family, v float64, more ...string) {
				emit(labels.FromStrings(slices.Concat([]string{
					model.MetricNameLabel, f.Name, "job", rules.DefaultJob, metrics.LabelInstance, "n:9844",
					metrics.LabelServer, pod, metrics.LabelPod, pod, metrics.LabelModel, "m", metrics.LabelRole, each.role,
				}, more)...), v)
			}
			served := each.perSecond * now.Sub(rulesim.Epoch).Seconds()
			of(metrics.EngineInfo, 1)
			of(metrics.RequestsRunning, 1)
			of(metrics.RequestsArrived, served)
			of(metrics.Stages, served, metrics.LabelStage, metrics.StageFirstToken)
			of(metrics.GenerationTokens, served*each.n)
			of(metrics.EngineCapacity, each.capacity, metrics.LabelSLO, "ttft", metrics.LabelKind, "low")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]float64{
		metrics.RecordedCapacity.Name:                            15,
		metrics.RecordedUtilisation.Name:                         0.6,
		metrics.RecordedEvidence.Name + `{fact="arrivals"}`:      9,
		metrics.RecordedEvidence.Name + `{fact="output_tokens"}`: 101,
	} {
		if v, err := sim.Query(query, rulesim.Epoch.Add(10*time.Minute)); err != nil || len(v) != 1 || math.Abs(v[0].F-want) > 0.01 {
			t.Errorf("%s = %v, %v, want %g", query, v, err, want)
		}
	}
}

// TestDesiredReplicasNameTheLimit checks that the number of replicas names the objective that needs them and the limit of
// most engines, and that a missing limit changes no number.
func TestDesiredReplicasNameTheLimit(t *testing.T) {
	const ttft, itl = `{slo="ttft",limit="batch_limit"}`, `{slo="itl",limit="decode"}`
	for name, c := range map[string]struct {
		limits [3]string // of the engines, for first tokens
		itl    float64   // low capacity for times between tokens
		want   string
	}{
		"most":    {[3]string{"batch_limit", "kv_cache", "batch_limit"}, 8, ttft},
		"another": {[3]string{"batch_limit", "batch_limit", "batch_limit"}, 3.1, itl},
		"one":     {[3]string{"", "", "batch_limit"}, 8, ttft},
		"unknown": {[3]string{}, 8, `{slo="ttft",limit=""}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t, rules.Groups(rules.Options{})...)
			end := rulesim.Epoch.Add(10 * time.Minute)
			err := sim.Run(rulesim.Epoch, end, time.Minute, func(now time.Time, emit rulesim.Emit) {
				for i, limit := range c.limits {
					of := func(f *metrics.Family, v float64, more ...string) {
						pod := fmt.Sprint(i)
						emit(labels.FromStrings(slices.Concat([]string{
							model.MetricNameLabel, f.Name, "job", rules.DefaultJob, metrics.LabelInstance, "n:9844",
							metrics.LabelServer, pod, metrics.LabelPod, pod, metrics.LabelModel, "m",
						}, more)...), v)
					}
					of(metrics.EngineInfo, 1)
					of(metrics.RequestsRunning, 1)
					of(metrics.RequestsArrived, 4*now.Sub(rulesim.Epoch).Seconds())
					of(metrics.EngineCapacity, 5, metrics.LabelSLO, "ttft", metrics.LabelKind, "low")
					of(metrics.EngineCapacity, c.itl, metrics.LabelSLO, "itl", metrics.LabelKind, "low")
					of(metrics.EngineCapacityLimit, 1, metrics.LabelSLO, "itl", metrics.LabelLimit, "decode")
					if limit != "" {
						of(metrics.EngineCapacityLimit, 1, metrics.LabelSLO, "ttft", metrics.LabelLimit, limit)
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			want := math.Ceil(12 / min(5, c.itl))
			all, err := sim.Query(metrics.RecordedDesired.Name, end)
			one, errOne := sim.Query(metrics.RecordedDesired.Name+c.want, end)
			if err != nil || errOne != nil || len(all) != 1 || len(one) != 1 || one[0].F != want {
				t.Errorf("%v, %v, %v; want %g%s", all, err, errOne, want, c.want)
			}
		})
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
		"no requests": {held{replica: func(_ int, _ time.Duration) heldReplica {
			return heldReplica{serves: true, seen: true}
		}, load: during(-10*time.Minute, heldEnd-heldOnset, 0, 12)}, 1, 3},
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
