package rules_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

const (
	benchReplicas = 4
	rawHistory    = 3 * day // the longest window of the alerts
)

// fleet counts objectives and models.
type fleet struct{ objectives, models int }

// fleetSeries is a series in steady state.
type fleetSeries struct {
	labels    labels.Labels
	perMinute float64 // counters
	constant  float64 // recorded series
	since     time.Duration
	every     time.Duration
}

// raw returns the series that both rule sets read from exporters.
func (f fleet) raw() []fleetSeries {
	var all []fleetSeries
	add := func(perMinute, constant float64, l labels.Labels) {
		all = append(all, fleetSeries{l, perMinute, constant, rawHistory, time.Minute})
	}
	for o := range f.objectives {
		slo := fmt.Sprintf("slo-%d", o)
		add(0, 0.99, series(metrics.SLOObjective.Name, metrics.LabelSLO, slo))
		add(0, 30*24*3600, series(metrics.SLOPeriod.Name, metrics.LabelSLO, slo))
		add(0, 1, series(metrics.SLOInfo.Name, metrics.LabelSLO, slo, metrics.LabelSignal, "ttft", metrics.LabelPeriod, "30d"))
		for m := range f.models {
			for r := range benchReplicas {
				who := []string{
					metrics.LabelModel, fmt.Sprintf("m%d", m), metrics.LabelNamespace, "prod", metrics.LabelPod,
					fmt.Sprintf("p%d-%d", m, r),
				}
				if o == 0 {
					add(60, 0, series(metrics.TimeToFirstToken.Name+"_bucket", append([]string{"le", "+Inf"}, who...)...))
				}
				who = append(who, metrics.LabelSLO, slo, metrics.LabelThreshold, "0.5")
				add(60, 0, series(metrics.SLOEvents.Name, who...))
				add(0.3, 0, series(metrics.SLOBadEvents.Name, who...))
			}
		}
	}
	return all
}

// recorded returns series that a rule set recorded before: constant values under the given names, since a time.
func (f fleet) recorded(since, every time.Duration, value map[string]float64, more func(slo string) []string) []fleetSeries {
	var all []fleetSeries
	for o := range f.objectives {
		slo := fmt.Sprintf("slo-%d", o)
		for m := range f.models {
			for name, v := range value {
				pairs := append([]string{model.MetricNameLabel, name, metrics.LabelModel, fmt.Sprintf("m%d", m), metrics.LabelNamespace, "prod"},
					more(slo)...)
				all = append(all, fleetSeries{labels.FromStrings(pairs...), 0, v, since, every})
			}
		}
	}
	return all
}

// load writes the series up to the time at which costs are measured.
func load(t testing.TB, sim *rulesim.Sim, all []fleetSeries) {
	t.Helper()
	end := costAt.Add(-time.Minute)
	var since time.Duration
	for _, s := range all {
		since = max(since, s.since)
	}
	for at := end.Add(-since); !at.After(end); at = at.Add(time.Minute) {
		err := sim.Append(at, func(emit rulesim.Emit) {
			for _, s := range all {
				if age := end.Sub(at); age <= s.since && age%s.every == 0 {
					emit(s.labels, s.constant+s.perMinute*(rawHistory-age).Minutes())
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkEvaluation measures the cost of one evaluation of all rules in steady state, ours beside sloth's for the same
// objectives: 50 models of 4 replicas, scraped every minute. -long adds 100 objectives, which takes minutes and
// gigabytes.
//
// Sloth reads every window of every objective from the raw series and 30 days of its own ratios. Our rules are
// evaluated as in their groups: the burn group every minute, the budget group every fifth minute. So the samples of
// the budget group count a fifth.
func BenchmarkEvaluation(b *testing.B) {
	sizes := []int{1, 10}
	if *long {
		sizes = append(sizes, 100)
	}
	for _, n := range sizes {
		f := fleet{n, 50}
		b.Run(fmt.Sprintf("objectives=%d/ours", n), func(b *testing.B) { f.report(b, f.ours(b)) })
		b.Run(fmt.Sprintf("objectives=%d/sloth", n), func(b *testing.B) { f.report(b, f.sloth(b)) })
	}
}

// The docs promise at least five times fewer samples than sloth for the same objectives.
func TestCostsLessThanSloth(t *testing.T) {
	f := fleet{objectives: 2, models: 2}
	ours, sloth := f.ours(t), f.sloth(t)
	t.Logf("samples per evaluation of %+v: ours %.0f, sloth %.0f", f, ours.samples, sloth.samples)
	if ours.samples == 0 || sloth.samples < 5*ours.samples {
		t.Error("less than five times fewer")
	}
}

var costAt = rulesim.Epoch.Add(31 * day)

func (f fleet) ours(t testing.TB) cost {
	sim := newSim(t, burning(t, rules.Options{}, "llm-slo-budget")...)
	load(t, sim, append(append(f.raw(),
		f.recorded(rawHistory, time.Minute, map[string]float64{
			metrics.RecordedEventRate.Name: 4, metrics.RecordedBadEventRate.Name: 0.02,
		},
			func(slo string) []string { return []string{metrics.LabelSLO, slo} })...),
		f.recorded(30*day, 5*time.Minute, map[string]float64{
			metrics.RecordedPeriodEvents5m.Name: 1200, metrics.RecordedPeriodBadEvents5m.Name: 6,
		},
			func(slo string) []string { return []string{metrics.LabelSLO, slo, metrics.LabelPeriod, "30d"} })...))
	minute := measure(t, sim, costAt.Add(time.Minute)) // the burn group alone
	fifth := measure(t, sim, costAt.Add(5*time.Minute))
	return cost{minute.samples + (fifth.samples-minute.samples)/5, minute.elapsed + (fifth.elapsed-minute.elapsed)/5}
}

func (f fleet) sloth(t testing.TB) cost {
	template, err := os.ReadFile(slothRules)
	if err != nil {
		t.Fatal(err)
	}
	var files [][]byte
	for o := range f.objectives {
		files = append(files, bytes.ReplaceAll(template, []byte("ttft"), fmt.Appendf(nil, "slo-%d", o)))
	}
	sim, err := rulesim.New(files...)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	load(t, sim, append(f.raw(), f.recorded(30*day, time.Minute,
		map[string]float64{"slo:sli_error:ratio_rate5m": 0.005}, func(slo string) []string {
			return []string{"sloth_id", "llm-" + slo, "sloth_service", "llm", "sloth_slo", slo, "sloth_window", "5m"}
		})...))
	return measure(t, sim, costAt.Add(time.Minute))
}

type cost struct {
	samples float64
	elapsed time.Duration
}

func measure(t testing.TB, sim *rulesim.Sim, at time.Time) cost {
	t.Helper()
	sim.Whole = true
	before, start := sim.Samples, time.Now()
	if err := sim.Eval(at); err != nil {
		t.Fatal(err)
	}
	return cost{float64(sim.Samples - before), time.Since(start)}
}

func (f fleet) report(b *testing.B, c cost) {
	b.ReportMetric(0, "ns/op") // one evaluation is the unit
	b.ReportMetric(c.samples, "samples/eval")
	b.ReportMetric(c.samples/float64(f.objectives*f.models), "samples/objective-model")
	b.ReportMetric(float64(c.elapsed.Milliseconds()), "ms/eval")
}
