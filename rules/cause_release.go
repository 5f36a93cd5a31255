package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// ReleaseRegression is a model that got slower after its engines changed.
var ReleaseRegression = &Alert{
	Name:     "LLMReleaseRegression",
	Branch:   Release,
	Expr:     promql.And(slower(), changed(), promql.On(modelLabels...)),
	Severity: slo.Ticket,
	For:      10 * minute,
	Scope:    []string{metrics.LabelModel},
	Explains: []*Alert{FastBurn, SlowBurn},
	Summary:  "{{ $labels.model_name }} is {{ $value | humanize }} times as slow as yesterday, since a change in the last 6 hours",
	Description: "Its engines restarted or changed version within six hours, and the mean time to first token or between tokens is up by half or more. " +
		"Rolling back is cheaper than understanding: do it first.",
	Split: []Evidence{
		{"Versions in the last 6h", promql.CountBy([]string{metrics.LabelVersion},
			promql.Over("last_over_time", promql.Vector(metrics.EngineInfo, sameModel()...), 6*hour)), LabelledBy(`on {{ .Value | humanize }}`, metrics.LabelVersion)},
		{"TTFT now", mean(metrics.TimeToFirstToken, nil, 30*minute, sameModel()...), Duration},
		{"The day before", meanBefore(metrics.TimeToFirstToken, nil, day, hour, sameModel()...), Duration},
	},
	Dashboard: IncidentDashboard,
}

func slower() promql.Expr {
	grew := func(h *metrics.Family) promql.Expr {
		return above(promql.Div(mean(h, modelLabels, 30*minute), meanBefore(h, modelLabels, day, 6*hour), nil), 1.5)
	}
	return promql.And(promql.Or(grew(metrics.TimeToFirstToken), grew(metrics.InterTokenLatency)), atLeast(20, 30*minute), nil)
}

// changed is a model with an engine that started, or a version that appeared, within six hours.
func changed() promql.Expr {
	restarted := promql.And(
		promql.Max(replicaLabels, promql.Vector(metrics.EngineInfo)),
		below(promql.Sub(promql.Call("time"), promql.Max(pageLabels, promql.Vector(metrics.EngineStartTime)), nil), (6*hour).Seconds()),
		promql.On(pageLabels...))
	return promql.Or(promql.Max(modelLabels, restarted), promql.Max(modelLabels, promql.Over("last_over_time", promql.Vector(metrics.RecordedDeployed), 6*hour)))
}
