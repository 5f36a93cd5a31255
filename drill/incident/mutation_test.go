package incident

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// small is an incident that plays in seconds, or one like it.
func small(t *testing.T, name string) Incident {
	in, err := Find(Incidents(), name)
	if err != nil {
		t.Fatal(err)
	}
	in.Fleet.Replicas, in.History, in.Lasts = 2, 70*time.Minute, 12*time.Minute
	return in
}

// alter changes an alert in a copy of the groups.
func alter(name string, change func(a *rules.Alert)) []rules.Group {
	groups := Rules()
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

type tamper = func(labels.Labels) (labels.Labels, bool)

func drop(f *metrics.Family) tamper {
	return func(l labels.Labels) (labels.Labels, bool) {
		return l, !strings.HasPrefix(l.Get(model.MetricNameLabel), f.Name)
	}
}

// relabel gives a label of a metric another value.
func relabel(f *metrics.Family, name, value string) tamper {
	return func(l labels.Labels) (labels.Labels, bool) {
		if l.Get(model.MetricNameLabel) != f.Name {
			return l, true
		}
		b := labels.NewBuilder(l)
		return b.Set(name, value).Labels(), true
	}
}

// TestMutations breaks one thing at a time, in the rules or in what the exporter serves: the score turns
// red. The same incidents with nothing broken are fine.
func TestMutations(t *testing.T) {
	never := promql.And(promql.Vector(metrics.EngineUp), promql.Gt(promql.Vector(metrics.EngineUp), promql.Num(1)))
	for _, m := range []struct {
		name, incident string
		groups         []rules.Group
		tamper         tamper
		want           string // in a problem; empty when nothing is broken
	}{
		{"nothing", "traffic-burst", Rules(), nil, ""},
		{"the page never fires", "traffic-burst", alter("LLMErrorBudgetFastBurn", func(a *rules.Alert) { a.Expr = never }), nil, "no page"},
		{"the page is a ticket", "traffic-burst", alter("LLMErrorBudgetFastBurn", func(a *rules.Alert) { a.Severity = slo.Ticket }), nil, "no page"},
		{"the page waits", "traffic-burst", alter("LLMErrorBudgetFastBurn", func(a *rules.Alert) { a.For = 5 * time.Minute }), nil, "the page came at"},
		{"the cause never fires", "traffic-burst", alter("LLMQueueBuildUp", func(a *rules.Alert) { a.Expr = never }), nil, "the cause is not named"},
		{"the page does not say where to look", "traffic-burst", alter("LLMErrorBudgetFastBurn", func(a *rules.Alert) { a.Diagnosed = false }), nil, "look first at queueing"},
		{"a cause wakes people", "prefix-collapse", alter("LLMQueueBuildUp", func(a *rules.Alert) { a.Severity, a.For = slo.Page, 0 }), nil, "not by LLMErrorBudgetFastBurn"},
		{"no bad events", "traffic-burst", Rules(), drop(metrics.SLOBadEvents), "no page"},
		{"no queue time", "traffic-burst", Rules(), drop(metrics.QueueTime), "the page does not show"},
		{"a swapped slo label", "traffic-burst", Rules(), relabel(metrics.SLOObjective, metrics.LabelSLO, "other"), "no page"},
		{"a swapped model on the GPU", "thermal-throttle", Rules(), relabel(metrics.EngineGPUInfo, metrics.LabelModel, "other"), "the cause is not named"},
		{"nothing", "thermal-throttle", Rules(), nil, ""},
		{"the stall never fires", "wedged-engine", alter("LLMEngineStalled", func(a *rules.Alert) { a.Expr = never }), nil, "no page"},
		{"no steps", "wedged-engine", Rules(), drop(metrics.EngineSteps), "the page came at"},
	} {
		t.Run(m.incident+" "+m.name, func(t *testing.T) {
			t.Parallel()
			in := small(t, m.incident)
			in.Lasts = max(in.Lasts, in.Within)
			switch m.incident {
			case "thermal-throttle":
				in.Lasts = 20 * time.Minute
			case "wedged-engine":
				in.Fleet.Replicas = 3 // one of two would be half of the model
			}
			p, err := newPlay(in, m.groups, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer p.sim.Close()
			p.exporter.tamper = m.tamper
			if err := p.play(); err != nil {
				t.Fatal(err)
			}
			problems := strings.Join(p.score(1).Problems, "\n")
			if m.want == "" && problems != "" || !strings.Contains(problems, m.want) {
				t.Errorf("problems %q, want %q among them", problems, m.want)
			}
		})
	}
}
