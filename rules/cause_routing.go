package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// ReplicaSkew is one replica that does worse than its siblings: a bad node, or a router that sends it
// too much.
var ReplicaSkew = &Alert{
	Name:   "LLMReplicaSkew",
	Branch: Routing,
	Expr: promql.Or(
		slowest(metrics.TimeToFirstToken),
		slowest(metrics.InterTokenLatency),
		longestQueue()),
	Severity:    slo.Ticket,
	For:         10 * minute,
	Scope:       []string{metrics.LabelModel, metrics.LabelServer},
	DependsOn:   []Quiet{{EngineStalled, replicaLabels}},
	Explains:    []*Alert{FastBurn, SlowBurn},
	Summary:     theEngine + " does worse than the other replicas of {{ $labels.model_name }}",
	Description: "It is three times as slow as the best replica, or holds most of the queue while another has none. One bad replica burns a budget by itself: take it out of rotation and look at its GPU and its node.",
	Split: []Evidence{
		{"Mean TTFT by replica", mean(metrics.TimeToFirstToken, replicaLabels, now, sameModel()...), LabelledBy(Duration, metrics.LabelPod, metrics.LabelServer, metrics.LabelInstance)},
		{"Waiting by replica", promql.Sum(replicaLabels, promql.Vector(metrics.RequestsWaiting, sameModel()...)), LabelledBy(Number, metrics.LabelPod, metrics.LabelServer, metrics.LabelInstance)},
	},
	Dashboard: IncidentDashboard,
}

// slowest is a replica three times as slow as the best one, with enough requests to say so.
func slowest(h *metrics.Family, m ...*promql.Matcher) promql.Expr {
	perReplica := mean(h, replicaLabels, now, m...)
	enough := promql.Ge(promql.Sum(replicaLabels, promql.Increase(promql.CountOf(h, m...), now)), promql.Num(10), nil)
	best := promql.Min(modelLabels, promql.And(perReplica, enough, nil))
	return promql.And(promql.Gt(perReplica, times(3, best), promql.On(modelLabels...).ManyToOne()), enough, nil)
}

// longestQueue is a replica with a real queue, well above the mean, while another has none.
func longestQueue() promql.Expr {
	waiting := promql.Sum(replicaLabels, promql.Over("avg_over_time", promql.Vector(metrics.RequestsWaiting), now))
	perModel := promql.On(modelLabels...)
	return promql.And(
		promql.And(above(waiting, 4), promql.Gt(waiting, times(1.5, promql.Avg(modelLabels, waiting)), perModel.ManyToOne()), nil),
		below(promql.Min(modelLabels, waiting), 1), perModel)
}
