package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Causes in the KV cache. GPU memory in use is none: engines reserve it at start.
var (
	KVPressure = &Alert{
		Name:        "LLMKVPressure",
		Branch:      Memory,
		Expr:        fullCache(),
		Severity:    slo.Ticket,
		For:         5 * minute,
		Scope:       []string{metrics.LabelModel, metrics.LabelServer},
		DependsOn:   []Quiet{{PreemptionThrash, replicaLabels}},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "KV cache of {{ $labels.pod }} {{ $labels.server }} ({{ $labels.model_name }}) is {{ $value | humanizePercentage }} full with requests waiting",
		Description: "Requests wait because their tokens have no room, not because the GPU is slow. Next comes preemption. Cap output and context, lower the batch limit, or add memory.",
		Dashboard:   IncidentDashboard,
	}
	PreemptionThrash = &Alert{
		Name:        "LLMPreemptionThrash",
		Branch:      Memory,
		Expr:        preempting(),
		Severity:    slo.Ticket,
		For:         2 * minute,
		Scope:       []string{metrics.LabelModel, metrics.LabelServer},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "{{ $labels.pod }} {{ $labels.server }} ({{ $labels.model_name }}) preempts {{ printf \"%.1f\" $value }} times per request",
		Description: "The engine evicts running requests and computes them again: both first tokens and later ones get slow, and the GPU works for nothing. Lower the batch limit first; it helps within a minute.",
		Split: []Evidence{
			{"KV cache", promql.Max(nil, promql.Vector(metrics.KVCacheUsage, same(replicaLabels...)...)), Percent},
			{"Waiting", promql.Sum(nil, promql.Vector(metrics.RequestsWaiting, same(replicaLabels...)...)), Number},
		},
		Dashboard: IncidentDashboard,
	}
)

// fullCache is the use of a KV cache that stays full while requests wait.
func fullCache(m ...*promql.Matcher) promql.Expr {
	return both(
		above(promql.Max(replicaLabels, promql.Over("min_over_time", promql.Vector(metrics.KVCacheUsage, m...), 5*minute)), 0.9),
		above(promql.Sum(replicaLabels, promql.Over("min_over_time", promql.Vector(metrics.RequestsWaiting, m...), 5*minute)), 0))
}

// preempting is how often a replica preempts a request.
func preempting(m ...*promql.Matcher) promql.Expr {
	return both(
		above(ratio(promql.Vector(metrics.Preemptions, m...), promql.CountOf(metrics.TimeToFirstToken, m...), replicaLabels, now, 0), 0.2),
		above(promql.Sum(replicaLabels, promql.Increase(promql.Vector(metrics.Preemptions, m...), now)), 5))
}
