package score_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// small returns an incident that plays in seconds, or a similar one.
func small(t *testing.T, name string) incident.Incident {
	t.Helper()
	in, err := incident.Find(incident.Incidents(), name)
	if err != nil {
		t.Fatal(err)
	}
	in.Fleet.Replicas, in.History, in.Lasts = 2, 20*time.Minute, 12*time.Minute
	return in
}

// alter changes an alert in a copy of the groups.
func alter(name string, change func(a *rules.Alert)) []rules.Group {
	groups := play.Rules()
	for g := range groups {
		groups[g].Alerts = slices.Clone(groups[g].Alerts)
		for i, a := range groups[g].Alerts {
			if a.Name == name {
				b := *a
				change(&b)
				groups[g].Alerts[i] = &b
			}
		}
	}
	return groups
}

// drop leaves out the series of metrics.
func drop(families ...*metrics.Family) func(labels.Labels) labels.Labels {
	return func(l labels.Labels) labels.Labels {
		name := l.Get(model.MetricNameLabel)
		if slices.ContainsFunc(families, func(f *metrics.Family) bool { return strings.HasPrefix(name, f.Name) }) {
			return labels.EmptyLabels()
		}
		return l
	}
}

// relabel gives a label of a metric another value.
func relabel(f *metrics.Family, name, value string) func(labels.Labels) labels.Labels {
	return func(l labels.Labels) labels.Labels {
		if l.Get(model.MetricNameLabel) != f.Name {
			return l
		}
		return labels.NewBuilder(l).Set(name, value).Labels()
	}
}

// TestMutations breaks one thing at a time, in the rules or in the exporter's series, and expects a bad score. The same
// incidents without a mutation have a good score.
func TestMutations(t *testing.T) {
	never := promql.And(promql.Vector(metrics.EngineUp), promql.Gt(promql.Vector(metrics.EngineUp), promql.Num(1)))
	for _, m := range []struct {
		name, incident string
		groups         []rules.Group
		relabel        func(labels.Labels) labels.Labels
		want           string // text in a problem; empty if nothing is broken
	}{
		{"nothing", "traffic-burst", play.Rules(), nil, ""},
		{"the page never fires", "traffic-burst", alter("LLMErrorBudgetFastBurn", func(a *rules.Alert) { a.Expr = never }), nil, "no page"},
		{
			"the page is a ticket", "traffic-burst", alter("LLMErrorBudgetFastBurn", func(a *rules.Alert) { a.Severity = slo.Ticket }), nil,
			"no page",
		},
		{
			"the page waits", "traffic-burst", alter("LLMErrorBudgetFastBurn", func(a *rules.Alert) { a.For = 5 * time.Minute }), nil,
			"the page came at",
		},
		{
			"the cause never fires", "prefix-collapse", alter("LLMPrefixHitCollapse", func(a *rules.Alert) { a.Expr = never }), nil,
			"the cause is not named",
		},
		{"the page does not say where to look", "traffic-burst", alter("LLMErrorBudgetFastBurn",
			func(a *rules.Alert) { a.Diagnosed = false }), nil, "look first at queueing"},
		{
			"a cause wakes people", "thermal-throttle", alter("LLMGPUSlowed", func(a *rules.Alert) { a.Severity, a.For = slo.Page, 0 }), nil,
			"not by LLMErrorBudgetFastBurn",
		},
		{"no bad events", "traffic-burst", play.Rules(), drop(metrics.SLOBadEvents), "no page"},
		{"no requests in any form", "traffic-burst", play.Rules(), drop(metrics.TimeToFirstToken, metrics.RequestsWaiting,
			metrics.Requests, metrics.Stages, metrics.RequestsRunning, metrics.RequestsArrived), "the page does not show"},
		{"a swapped slo label", "traffic-burst", play.Rules(), relabel(metrics.SLOObjective, metrics.LabelSLO, "other"), "no page"},
		{
			"a swapped model on the GPU", "thermal-throttle", play.Rules(), relabel(metrics.EngineGPUInfo, metrics.LabelModel, "other"),
			"the cause is not named",
		},
		{"nothing", "thermal-throttle", play.Rules(), nil, ""},
		{"the stall never fires", "wedged-engine", alter("LLMEngineStalled", func(a *rules.Alert) { a.Expr = never }), nil, "no page"},
		{"no memory of progress", "wedged-engine", play.Rules(), drop(metrics.EngineLastProgress, metrics.EngineStalled,
			metrics.EngineWithoutProgress), "no page"},
	} {
		t.Run(m.incident+" "+m.name, func(t *testing.T) {
			t.Parallel()
			in := small(t, m.incident)
			in.Lasts = max(in.Lasts, in.Within)
			switch m.incident {
			case "prefix-collapse":
				in.History = 70 * time.Minute // the comparison with the day before leaves out an hour
			case "thermal-throttle":
				in.Lasts = 20 * time.Minute
			case "wedged-engine":
				in.Fleet.Replicas = 3 // one replica of two would be half of the model
			}
			p, err := play.Run(in, play.Options{Seed: 1, Groups: m.groups, Relabel: m.relabel})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			problems := strings.Join(score.New(p).Problems, "\n")
			if m.want == "" && problems != "" || !strings.Contains(problems, m.want) {
				t.Errorf("problems %q, want %q among them", problems, m.want)
			}
		})
	}
}
