package rules_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Two tiers page for the same incidents as one tier, one forwarding step later.
func TestTwoTiersPageAsOne(t *testing.T) {
	t.Parallel()
	const start = 7 * hour
	o := objective(t, "99%", slo.DefaultPeriod)
	for _, badShare := range []float64{1, 0.1} { // one for each pair
		want, fires := slo.Detection(slo.DefaultWindowPairs(), slo.Page, o, slo.Load{BadShare: badShare, RequestsPerSecond: 10})
		if !fires {
			t.Fatal("nothing to detect")
		}
		w := &world{}
		w.add(o, service{perSecond: constant(10), badShare: during(start, math.MaxInt64, badShare, 0)})
		fired, _ := w.run(t, start+want+10*time.Minute,
			append(burning(t, rules.Options{Tier: rules.Global}), group(t, rules.Options{Tier: rules.Shard}, "llm-slo-shard"))...)
		at := fired[subject{fastBurn, "m", "slo-0"}]
		if len(at) == 0 || at[0] < start || at[0]-start > want+2*rules.Interval+scrapeEvery {
			t.Errorf("%g bad: paged at %v, want %s after %s", badShare, at, want, start)
		}
	}
}

// One ruler over several clusters distinguishes them. Traffic in another cluster does not dilute an outage, and only
// the model with the outage pages.
func TestClustersDoNotMix(t *testing.T) {
	t.Parallel()
	o := objective(t, "99%", slo.DefaultPeriod)
	inCluster := func(bad func(time.Duration) float64, perSecond float64) *world {
		return &world{objectives: []slo.Objective{o}, services: []*service{{
			model: "m", pod: "p", slo: o.Name, threshold: "0.5", perSecond: constant(perSecond), badShare: bad,
		}}}
	}
	worlds := map[string]*world{
		"small": inCluster(during(2*hour, 9*hour, 1, 0), 1),
		"big":   inCluster(constant(0.001), 1000),
	}
	sim := newSim(t, burning(t, rules.Options{})...)
	var pages []string
	sim.OnAlert = func(_ time.Time, a rulesim.Alert) {
		if a.Name == fastBurn {
			pages = append(pages, a.Labels.Get(metrics.LabelCluster))
		}
	}
	err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(2*hour+20*time.Minute), scrapeEvery, func(at time.Time, emit rulesim.Emit) {
		for cluster, w := range worlds {
			w.scrape(at, func(l labels.Labels, v float64) {
				emit(labels.NewBuilder(l).Set(metrics.LabelCluster, cluster).Labels(), v)
			})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(pages)
	if pages = slices.Compact(pages); !slices.Equal(pages, []string{"small"}) {
		t.Errorf("pages for %v, want small only", pages)
	}
}

// While a changed objective rolls out node by node, exporters disagree. Rules keep working with the strictest value.
func TestExportersMayDisagree(t *testing.T) {
	t.Parallel()
	o := objective(t, "99%", slo.DefaultPeriod)
	w := &world{}
	w.add(o, service{perSecond: constant(10), badShare: during(2*hour, 9*hour, 1, 0)})
	w.extra = func(_ time.Duration, emit rulesim.Emit) {
		other := func(name string, value float64, pairs ...string) {
			emit(labels.FromStrings(append([]string{model.MetricNameLabel, name, "instance", "node-2", metrics.LabelSLO, "slo-0"},
				pairs...)...), value)
		}
		other(metrics.SLOObjective.Name, 0.95)
		other(metrics.SLOPeriod.Name, 7*24*3600)
		other(metrics.SLOInfo.Name, 1, metrics.LabelSignal, "ttft", metrics.LabelPeriod, "7d")
		other(metrics.SLOEvents.Name, 0, metrics.LabelModel, "m", metrics.LabelNamespace, "prod", metrics.LabelPod, "p2")
	}
	fired, sim := w.run(t, 2*hour+20*time.Minute, burning(t, rules.Options{}, "llm-slo-budget")...)
	if at := fired[subject{fastBurn, "m", "slo-0"}]; len(at) == 0 || at[0] > 2*hour+11*time.Minute {
		t.Errorf("paged at %v, want as with the stricter target", at)
	}
	if left := one(t, sim, metrics.RecordedBudgetRemaining.Name, rulesim.Epoch.Add(2*hour+15*time.Minute)); left < 0.8 || left > 0.99 {
		t.Errorf("budget left %.2f after a quarter of an hour of errors, in a period of days", left)
	}
}

// A fleet that cannot be scraped is one page. The page of the fleet comes before the pages of its models, and mutes
// them. The test covers exporters that do not answer, and exporters that are no longer targets.
func TestFleetPagesBeforeItsModels(t *testing.T) {
	const lost = 30 * time.Minute
	for _, targets := range []bool{true, false} {
		sim := newSim(t, group(t, rules.Options{}, "llm-model"), group(t, rules.Options{}, "llm-cause-engine"),
			group(t, rules.Options{}, "llm-cause-exporter"))
		first := map[string]time.Duration{}
		sim.OnAlert = func(at time.Time, a rulesim.Alert) {
			if _, known := first[a.Name]; !known {
				first[a.Name] = at.Sub(rulesim.Epoch)
			}
		}
		err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(lost+20*time.Minute), scrapeEvery, func(at time.Time, emit rulesim.Emit) {
			since := at.Sub(rulesim.Epoch)
			for _, node := range []string{"node-1", "node-2"} {
				on := func(value float64, name string, pairs ...string) {
					emit(labels.FromStrings(append([]string{model.MetricNameLabel, name, metrics.LabelInstance, node}, pairs...)...), value)
				}
				if since < lost || targets {
					on(map[bool]float64{true: 1}[since < lost], metrics.Up.Name, "job", rules.DefaultJob)
				}
				if since < lost {
					engine := []string{metrics.LabelRuntime, string(metrics.VLLM), metrics.LabelServer, "127.0.0.1:8000"}
					on(1, metrics.EngineUp.Name, engine...)
					on(1, metrics.EngineInfo.Name, append(engine, metrics.LabelModel, "of-"+node)...)
					on(since.Seconds(), metrics.Requests.Name, append(engine, metrics.LabelModel, "of-"+node, metrics.LabelOutcome,
						string(metrics.OutcomeStop))...)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		fleet, down := first[rules.ExporterFleetDown.Name], first[rules.ModelDown.Name]
		if fleet < lost || down <= fleet {
			t.Errorf("still targets: %t: the fleet paged at %s, its models at %s, lost at %s", targets, fleet, down, lost)
		}
	}
	for _, q := range rules.ModelDown.DependsOn {
		if q.Under == rules.ExporterFleetDown {
			return
		}
	}
	t.Error("the page of the fleet does not mute those of its models")
}
