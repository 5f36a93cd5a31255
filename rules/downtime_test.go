package rules_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// TestDowntimeSpendsBudget checks that an outage of the only engine, or of the only gateway, spends the availability
// budget. The engine or gateway counts nothing while it is down, but users lose their requests. An engine that was
// removed from the configuration does not count as missing.
func TestDowntimeSpendsBudget(t *testing.T) {
	t.Parallel()
	const rate, crashing, lasts, reads = 10., 12 * time.Hour, 2 * time.Hour, 15 * time.Second
	o := objective(t, "99.9%", slo.DefaultPeriod)
	o.Signal = slo.Availability
	type downtime struct {
		role        string
		removed     bool
		reason      string // why the engine does not answer
		every, dead time.Duration
		lost        bool
		forgotten   bool // its exporter restarts after the first failed reading, and has no record of the served model
		served      float64
	}
	cases := map[string]*downtime{
		"an engine crashes every five minutes": {reason: "connection_refused", every: 310 * time.Second, dead: 75 * time.Second, lost: true},
		"a gateway crashes every five minutes": {
			role: metrics.GatewayRole, reason: "connection_refused", every: 310 * time.Second,
			dead: 75 * time.Second, lost: true,
		},
		"a frontend crashes every five minutes": {
			role: metrics.FrontendRole, reason: "connection_refused", every: 310 * time.Second,
			dead: 75 * time.Second, lost: true,
		},
		"it is back before the rules look": {reason: "connection_refused", every: 300 * time.Second, dead: 45 * time.Second, lost: true},
		"its exporter starts anew": {
			reason: "connection_refused", every: 1200 * time.Second, dead: 300 * time.Second,
			lost: true, forgotten: true,
		},
		"an engine is too busy to tell":         {reason: "timeout", every: 310 * time.Second, dead: 75 * time.Second},
		"an engine loads anew":                  {reason: "loading", every: 310 * time.Second, dead: 75 * time.Second},
		"an engine is taken out of the targets": {removed: true},
	}
	var groups []rules.Group
	for _, g := range []string{
		"llm-slo-correction", "llm-slo-objective", "llm-slo-burn", "llm-slo-later", "llm-slo-budget", "llm-model",
		"llm-cause-engine",
	} {
		groups = append(groups, group(t, rules.Options{}, g))
	}
	sim, w := newSim(t, groups...), &world{objectives: []slo.Objective{o}}
	end := rulesim.Epoch.Add(crashing + lasts + time.Hour)
	// scrape emits what the exporter of a case serves. Each case is a cluster.
	scrape := func(c *downtime, now time.Time, emit rulesim.Emit) {
		at := now.Sub(rulesim.Epoch)
		down := at > crashing && at <= crashing+lasts && (at-crashing-time.Second)%max(c.every, 1) < c.dead
		show := func(f *metrics.Family, v float64, pairs ...string) {
			emit(series(f.Name, pairs...), v)
		}
		page := []string{
			metrics.LabelRuntime, "vllm", metrics.LabelNamespace, "prod", metrics.LabelPod, "p", metrics.LabelServer,
			"10.0.0.1:8000",
		}
		show(metrics.Up, 1)
		show(metrics.ConfigReloadTime, float64(rulesim.Epoch.Unix()))
		show(metrics.ConfigReloadSuccess, 1)
		w.scrape(now, emit)
		if c.removed && at >= crashing {
			return
		}
		show(metrics.ConfiguredTarget, 1, metrics.LabelNamespace, "prod", metrics.LabelPod, "p", metrics.LabelServer, "10.0.0.1:8000")
		show(metrics.EngineUp, map[bool]float64{false: 1}[down], slices.Concat(page,
			[]string{metrics.LabelReason, map[bool]string{true: c.reason}[down]})...)
		of := slices.Concat(page, []string{metrics.LabelModel, "m", metrics.LabelRole, c.role})
		if down && c.forgotten && (at-crashing-time.Second)%c.every > 60*time.Second {
			return
		}
		if down {
			show(metrics.EngineLastServed, float64(now.Unix()), of...)
			return
		}
		c.served += rate * reads.Seconds()
		show(metrics.EngineInfo, 1, append(of, metrics.LabelVersion, "1")...)
		show(metrics.SLOEvents, c.served, append(of, metrics.LabelSLO, o.Name)...)
		show(metrics.SLOBadEvents, 0, append(of, metrics.LabelSLO, o.Name)...)
	}
	if err := sim.Run(rulesim.Epoch, end.Add(time.Minute), reads, func(now time.Time, emit rulesim.Emit) {
		for name, c := range cases {
			scrape(c, now, func(l labels.Labels, v float64) {
				emit(labels.NewBuilder(l).Set(metrics.LabelCluster, name).Labels(), v)
			})
		}
	}); err != nil {
		t.Fatal(err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := 0.
			if c.lost {
				want = lasts.Seconds() * c.dead.Seconds() / c.every.Seconds() * rate
			}
			here := fmt.Sprintf("{%s=%q}", metrics.LabelCluster, name)
			pages, err := sim.Query(metrics.Window(metrics.RecordedBurn, "1h").Name+here+" > 14.4", rulesim.Epoch.Add(crashing+lasts))
			if err != nil || len(pages) != min(1, int(want)) {
				t.Errorf("the last hour burns at %v, %v", pages, err)
			}
			got, err := sim.Query(metrics.RecordedPeriodBadEvents.Name+here, end)
			if err != nil || len(got) != 1 || math.Abs(got[0].F-want) > 0.1*want {
				t.Errorf("%v bad events, want about %.0f (%v)", got, want, err)
			}
			burns, err := sim.Query(metrics.Window(metrics.RecordedBurn, "1d").Name+here+" > 3", end)
			if err != nil || len(burns) != min(1, int(want)) {
				t.Errorf("a day burns at %v, %v", burns, err)
			}
		})
	}
}
