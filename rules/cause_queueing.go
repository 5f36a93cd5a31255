package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// QueueBuildUp is a model whose requests wait longer than they are worked on. It gets its expression from queueingAlerts.
var QueueBuildUp = &Alert{
	Name:        "LLMQueueBuildUp",
	Branch:      Queueing,
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

func queueingAlerts(opt Options) []*Alert {
	queue := *QueueBuildUp
	queue.Expr = harmful(opt, both(
		above(promql.Sum(modelLabels, promql.Over("min_over_time", promql.Vector(metrics.RequestsWaiting), 5*minute)), 0),
		promql.Or(
			above(queueShare(modelLabels, 5*minute), 0.5),
			promql.Gt(promql.Sum(modelLabels, promql.Vector(metrics.RequestsWaiting)), promql.Sum(modelLabels, promql.Vector(metrics.RequestsRunning)), nil))))
	return []*Alert{&queue}
}

// harmful is what is wrong with a queue, where users suffer: an objective of the model burns. Work that waits on purpose,
// in a batch, burns none. Where no objective is counted, the queue must be twice as long as at this hour of yesterday.
func harmful(opt Options, e promql.Expr) promql.Expr {
	onModel := promql.On(modelLabels...)
	waiting := func(window, ago time.Duration) promql.Expr {
		return promql.Sum(modelLabels, promql.Over("avg_over_time", promql.Offset(promql.Vector(metrics.RequestsWaiting), ago), window))
	}
	usual := promql.Le(waiting(now, 0), times(2, waiting(hour, sameHour)), nil)
	return promql.Or(
		promql.And(e, burning(opt, fresh), onModel),
		promql.Unless(e, promql.Or(burns(opt, fresh), usual), onModel))
}

// queueShare is the part of the mean time to the first token that requests wait for their turn.
func queueShare(by []string, window time.Duration, m ...*promql.Matcher) promql.Expr {
	return promql.Div(mean(metrics.QueueTime, by, window, m...), mean(metrics.TimeToFirstToken, by, window, m...), nil)
}
