package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// The causes of these alerts delay the first token although no request waits, because there are more prompt tokens to
// compute.
var (
	PrefixHitCollapse = &Alert{
		Name:   "LLMPrefixHitCollapse",
		Branch: Prefill,
		Expr: both(
			promql.Unless(promql.Unless(
				below(promql.Div(hitRatio(modelLabels, 30*minute, 0), above(dayBefore("prefix_hits_before"), 0.2)), 0.5),
				promql.Ge(hitRatio(modelLabels, 30*minute, 0), times(0.5, hitRatio(modelLabels, hour, dayBack)))),
				cold()),
			atLeast(20, 30*minute)),
		Severity: slo.Ticket,
		For:      10 * minute,
		Scope:    []string{metrics.LabelModel},
		Explains: []*Alert{FastBurn, SlowBurn},
		Summary:  "The prefix cache has {{ $value | humanizePercentage }} of yesterday's hit ratio",
		Description: "Prompts that were cached yesterday are computed again. Look for a changed chat template or tokenizer, a timestamp " +
			"early in the prompt, or a router without affinity.",
		Split: []Evidence{
			{"Hit ratio now", hitRatio(nil, 30*minute, 0, sameModel()...), Percent},
		},
		Dashboard: IncidentDashboard,
	}
)

var prefillAlerts = []*Alert{PrefixHitCollapse}

// fewerHits returns the hit ratio as a multiple of the usual ratio, if it is below a half. If requests hit at least 70%
// as many tokens as usual and only their prompts are longer, there is no result.
func fewerHits() promql.Expr {
	hits := against("prefix_hits")
	return promql.Unless(below(hits, 0.5), promql.Ge(promql.Mul(hits, against("prompt_tokens")), promql.Num(0.7)))
}
