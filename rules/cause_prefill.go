package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Causes that delay the first token although nothing queues: more prompt to compute.
var (
	LongPromptShift = &Alert{
		Name:   "LLMLongPromptShift",
		Branch: Prefill,
		Expr: promql.And(above(promql.Div(
			mean(metrics.RequestPromptTokens, modelLabels, 30*minute),
			dayBefore("prompt_tokens_before")), 2),
			atLeast(20, 30*minute)),
		Severity:    slo.Info,
		For:         5 * minute,
		Scope:       []string{metrics.LabelModel},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "Prompts to {{ $labels.model_name }} are {{ $value | humanize }} times as long as yesterday's",
		Description: "Prefill grows at least in proportion, and delays the decode of everyone in the batch. Find the client that changed; route long prompts apart.",
		Split: []Evidence{
			{"Mean prompt tokens now", mean(metrics.RequestPromptTokens, nil, 30*minute, sameModel()...), Number},
			{"The day before", meanBefore(metrics.RequestPromptTokens, nil, day, hour, sameModel()...), Number},
		},
		Dashboard: IncidentDashboard,
	}
	PrefixHitCollapse = &Alert{
		Name:   "LLMPrefixHitCollapse",
		Branch: Prefill,
		Expr: both(
			promql.Unless(promql.Unless(
				below(promql.Div(hitRatio(modelLabels, 30*minute, 0), above(dayBefore("prefix_hits_before"), 0.2)), 0.5),
				promql.Ge(hitRatio(modelLabels, 30*minute, 0), times(0.5, hitRatio(modelLabels, hour, dayBack)))),
				cold()),
			atLeast(20, 30*minute)),
		Severity:    slo.Ticket,
		For:         10 * minute,
		Scope:       []string{metrics.LabelModel},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "Prefix cache of {{ $labels.model_name }} hits {{ $value | humanizePercentage }} of what it did yesterday",
		Description: "Prompts that were cached at this hour yesterday are now computed again. Usual reasons: a changed chat template or tokenizer, a timestamp at the head of the system prompt, a router that lost affinity.",
		Split: []Evidence{
			{"Hit ratio now", hitRatio(nil, 30*minute, 0, sameModel()...), Percent},
			{"The day before", hitRatio(nil, day, hour, sameModel()...), Percent},
		},
		Dashboard: IncidentDashboard,
	}
	PrefixCacheNoGain = &Alert{
		Name:        "LLMPrefixCacheNoGain",
		Branch:      Prefill,
		Expr:        both(below(knownForADay("prefix_hits_before"), 0.1), atLeast(20, 30*minute)),
		Severity:    slo.Info,
		Scope:       []string{metrics.LabelModel},
		DependsOn:   []Quiet{{PrefixHitCollapse, modelLabels}},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "Prefix cache of {{ $labels.model_name }} held {{ $value | humanizePercentage }} of the prompt tokens of a day",
		Description: "The cache hardly saves prefill. Either prompts share no beginning, or something keeps them from meeting in a cache: a router without affinity, something that varies at the head of each prompt, a cache that is too small.",
		Dashboard:   EngineDashboard,
	}
)

var prefillAlerts = []*Alert{LongPromptShift, PrefixHitCollapse, PrefixCacheNoGain}
