package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// These are the symptoms. Their expressions depend on the window pairs in Options: see burnAlerts.
var (
	FastBurn = &Alert{
		Name:        "LLMErrorBudgetFastBurn",
		Branch:      Symptom,
		Severity:    slo.Page,
		Scope:       []string{metrics.LabelNamespace, metrics.LabelModel, metrics.LabelSLO},
		Summary:     `{{ or $labels.slo "An objective" }} of ` + theModel + " burns its error budget {{ $value | humanize }}x too fast",
		Description: "Users notice this now.",
		Diagnosed:   true,
		Split: []Evidence{
			{"Load", promql.Max(nil, overloaded()), LabelledBy(`{{ .Value | humanizePercentage }} of the load that meets the objectives`)},
			{"Replicas needed", promql.And(promql.Vector(metrics.RecordedDesired, sameModel()...), overloaded(), promql.On()), Number},
		},
		Dashboard: IncidentDashboard,
	}
	SlowBurn = &Alert{
		Name:      "LLMErrorBudgetSlowBurn",
		Branch:    Symptom,
		Severity:  slo.Ticket,
		Scope:     []string{metrics.LabelNamespace, metrics.LabelModel, metrics.LabelSLO},
		DependsOn: []Quiet{{FastBurn, []string{metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelModel}}},
		Summary: `{{ or $labels.slo "An objective" }} of ` + theModel +
			" will miss its target: its budget burns {{ $value | humanize }}x too fast",
		Description: "This is not an emergency. Find the cause in working hours, before it becomes one.",
		Diagnosed:   true,
		Dashboard:   SLODashboard,
	}
)
