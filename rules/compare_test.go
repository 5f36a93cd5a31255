package rules_test

import (
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// slothRules is the output of sloth v0.16.0 for testdata/sloth/spec.yaml: the same objective over the same series.
const slothRules = "testdata/sloth/rules.yaml"

// pyrraRatio is pyrra's error ratio over its 28 days, transcribed from its rules
// (sum of increases over sum of increases), not written by its generator.
const pyrraRatio = `sum by (namespace, model_name) (increase(llm_slo_bad_events_total{slo="ttft"}[28d]))
	/ sum by (namespace, model_name) (increase(llm_slo_events_total{slo="ttft"}[28d]))`

// On these three ordinary days, a mean of ratios differs from the ratio. Our result must agree with the truth. Sloth's
// result is shown beside it, and must still be wrong as the docs describe. If Sloth's result becomes right, the
// comparison in the docs must be removed.
func TestPeriodRatioIsTheTruth(t *testing.T) {
	night := func(at time.Duration) bool { return at%day >= 3*hour && at%day < 4*hour }
	tests := []struct {
		name    string
		service service
		// least multiple of the truth in sloth's answer; NaN if it has no answer.
		slothOff float64
	}{
		{"twenty minutes without traffic", service{
			perSecond: during(20*hour, 20*hour+20*time.Minute, 0, 10), badShare: constant(0.01),
		}, math.NaN()},
		{"the error series appears late", service{
			perSecond: constant(10), badShare: during(46*hour, 50*hour, 0.01, 0), lateBad: true,
		}, 5},
		{"errors only in a quiet night hour", service{
			perSecond: func(at time.Duration) float64 {
				if night(at) {
					return 0.1
				}
				return 100
			},
			badShare: func(at time.Duration) float64 {
				if night(at) {
					return 0.1
				}
				return 0
			},
		}, 50},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := objective(t, "99%", slo.DefaultPeriod)
			s := tt.service
			s.model, s.pod, s.slo, s.threshold = "m", "p", o.Name, "0.5"
			w := &world{objectives: []slo.Objective{o}, services: []*service{&s}}
			ours, err := rules.Encode(rules.NewFile([]rules.Group{
				group(t, rules.Options{}, "llm-slo-correction"),
				group(t, rules.Options{}, "llm-slo-objective"), group(t, rules.Options{}, "llm-slo-budget"),
			}, rules.Style{}))
			if err != nil {
				t.Fatal(err)
			}
			sli, ratio := slothSLI(t)
			sim, err := rulesim.New(ours, sli)
			if err != nil {
				t.Fatal(err)
			}
			defer sim.Close()
			end := rulesim.Epoch.Add(2*day + time.Minute)
			if err := sim.Run(rulesim.Epoch, end, scrapeEvery, w.scrape); err != nil {
				t.Fatal(err)
			}
			at := end.Add(-time.Minute)
			truth := s.bad / s.events
			got := one(t, sim, metrics.RecordedPeriodBadEvents.Name+" / "+metrics.RecordedPeriodEvents.Name, at)
			sloth := one(t, sim, ratio, at)
			pyrra := one(t, sim, pyrraRatio, at)
			t.Logf("true ratio %.5f%%, recorded %.5f%%, sloth %.5f%% (%.1f times the truth), pyrra %.5f%%",
				100*truth, 100*got, 100*sloth, sloth/truth, 100*pyrra)
			if math.Abs(got/truth-1) > 0.05 {
				t.Errorf("recorded %.5f, true %.5f", got, truth)
			}
			if math.IsNaN(tt.slothOff) != math.IsNaN(sloth) || sloth/truth < tt.slothOff {
				t.Errorf("sloth says %.5f, true %.5f: the published comparison no longer holds", sloth, truth)
			}
			remaining := one(t, sim, metrics.RecordedBudgetRemaining.Name, at)
			// Two of thirty days are recorded. Bad events are compared with a month of such days.
			if want := 1 - got/o.Budget().Float()*2/30; math.Abs(remaining-want) > 1e-3 {
				t.Errorf("budget remaining %.4f, want %.4f", remaining, want)
			}
		})
	}
}

// slothSLI returns the rule behind sloth's period ratio, and the expression of that ratio, which the test queries once.
func slothSLI(t *testing.T) (sli []byte, ratio string) {
	t.Helper()
	content, err := os.ReadFile(slothRules)
	if err != nil {
		t.Fatal(err)
	}
	var file rules.File
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	five := rules.File{Groups: file.Groups[:1]}
	five.Groups[0].Interval = "1m"
	five.Groups[0].Rules = slices.DeleteFunc(five.Groups[0].Rules, func(r rules.FileRule) bool {
		if r.Record == "slo:sli_error:ratio_rate30d" {
			ratio = r.Expr
		}
		return r.Record != "slo:sli_error:ratio_rate5m"
	})
	if sli, err = rules.Encode(five); err != nil {
		t.Fatal(err)
	}
	return sli, ratio
}

func one(t *testing.T, sim *rulesim.Sim, query string, at time.Time) float64 {
	t.Helper()
	v, err := sim.Query(query, at)
	if err != nil {
		t.Fatal(err)
	}
	if len(v) != 1 {
		t.Fatalf("%s: %d results, want one", query, len(v))
	}
	return v[0].F
}
