package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// The causes of these alerts delay every token after the first.
var (
	SpeculationCollapse = &Alert{
		Name:   "LLMSpeculationCollapse",
		Branch: Decode,
		Expr: both(
			below(promql.Div(accepted(modelLabels, 30*minute, 0), above(dayBefore("draft_tokens_before"), 0.2)), 0.5),
			atLeast(20, 30*minute)),
		Severity: slo.Ticket,
		For:      10 * minute,
		Scope:    []string{metrics.LabelModel},
		Explains: []*Alert{FastBurn, SlowBurn},
		Summary:  "Draft tokens are accepted {{ $value | humanizePercentage }} as often as yesterday",
		Description: "Draft tokens are computed and thrown away. Turn speculation off until you know whether the target, the draft or the " +
			"sampling changed.",
		Split: []Evidence{
			{"Accepted now", accepted(nil, 30*minute, 0, sameModel()...), Percent},
		},
		Dashboard: IncidentDashboard,
	}
)

var decodeAlerts = []*Alert{SpeculationCollapse}

// batch returns the mean number of running requests per replica.
func batch(by []string, window, ago time.Duration, m ...*promql.Matcher) promql.Expr {
	return promql.Avg(by, promql.Sum(replicaLabels,
		promql.Over("avg_over_time", promql.Offset(promql.Vector(metrics.RequestsRunning, m...), ago), window)))
}

// accepted returns the share of draft tokens that were accepted. For engines that do not count draft tokens, it is the
// mean of the gauge that they report instead.
func accepted(by []string, window, ago time.Duration, m ...*promql.Matcher) promql.Expr {
	return promql.Or(ratio(promql.Vector(metrics.SpecDecodeAcceptedTokens, m...), promql.Vector(metrics.SpecDecodeDraftTokens, m...), by,
		window, ago),
		promql.Avg(by, promql.Over("avg_over_time", promql.Offset(promql.Vector(metrics.SpecDecodeAcceptance, m...), ago), window)))
}
