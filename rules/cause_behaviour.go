package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// RunawayGeneration is a model that no longer stops by itself. Wrong output as such is not visible in
// metrics.
var RunawayGeneration = &Alert{
	Name:   "LLMRunawayGeneration",
	Branch: Behaviour,
	Expr: both(
		above(cut(30*minute, 0), 0.3),
		promql.Or(
			promql.Gt(cut(30*minute, 0), times(2, cut(day, hour)), nil),
			promql.Unless(cut(30*minute, 0), cut(day, hour), nil)),
		atLeast(20, 30*minute)),
	Severity:    slo.Ticket,
	For:         10 * minute,
	Scope:       []string{metrics.LabelModel},
	Explains:    []*Alert{FastBurn, SlowBurn},
	Summary:     "{{ $value | humanizePercentage }} of requests to {{ $labels.model_name }} run into the output limit",
	Description: "At least twice yesterday's share. A stop token, chat template or sampling setting changed: the model does not know when to stop, and every request holds its KV cache to the end.",
	Split: []Evidence{
		{"Mean output tokens now", mean(metrics.RequestGenerationTokens, nil, 30*minute, sameModel()...), Number},
		{"The day before", meanBefore(metrics.RequestGenerationTokens, nil, day, hour, sameModel()...), Number},
	},
	Dashboard: IncidentDashboard,
}

// cut is the share of finished requests that the token limit ended.
func cut(window, ago time.Duration) promql.Expr {
	return ratio(promql.Vector(metrics.Requests, promql.Eq(metrics.LabelOutcome, string(metrics.OutcomeLength))),
		promql.Vector(metrics.Requests), modelLabels, window, ago)
}
