package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// QueueBuildUp is a model whose requests wait longer than they are worked on.
var QueueBuildUp = &Alert{
	Name:   "LLMQueueBuildUp",
	Branch: Queueing,
	Expr: both(
		above(promql.Sum(modelLabels, promql.Over("min_over_time", promql.Vector(metrics.RequestsWaiting), 5*minute)), 0),
		promql.Or(
			above(queueShare(modelLabels, 5*minute), 0.5),
			promql.Gt(promql.Sum(modelLabels, promql.Vector(metrics.RequestsWaiting)), promql.Sum(modelLabels, promql.Vector(metrics.RequestsRunning)), nil))),
	Severity:    slo.Ticket,
	For:         5 * minute,
	Scope:       []string{metrics.LabelModel},
	Explains:    []*Alert{FastBurn, SlowBurn},
	Summary:     "Requests to {{ $labels.model_name }} queue: {{ $value | humanize }} waiting",
	Description: "More than half of the time to the first token is waiting, or more requests wait than run. Ask whether demand rose or capacity fell before adding replicas.",
	Split: []Evidence{
		{"Requests per second, last 10m", promql.Sum(nil, promql.Rate(promql.CountOf(metrics.TimeToFirstToken, sameModel()...), now)), Number},
		{"An hour ago", promql.Sum(nil, promql.Rate(promql.Offset(promql.CountOf(metrics.TimeToFirstToken, sameModel()...), hour), now)), Number},
		{"Replicas", promql.CountBy(nil, promql.CountBy(replicaLabels, promql.Vector(metrics.RequestsRunning, sameModel()...))), Number},
	},
	Dashboard: IncidentDashboard,
}

// queueShare is the part of the mean time to the first token that requests wait for their turn.
func queueShare(by []string, window time.Duration, m ...*promql.Matcher) promql.Expr {
	return promql.Div(mean(metrics.QueueTime, by, window, m...), mean(metrics.TimeToFirstToken, by, window, m...), nil)
}
