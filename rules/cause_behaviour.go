package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// RunawayGeneration fires for a model that no longer ends its answers by itself.
var RunawayGeneration = &Alert{
	Name:     "LLMRunawayGeneration",
	Branch:   Behaviour,
	Expr:     promql.Or(both(runsOn(limited(30*minute, 0)), atLeast(20, 30*minute)), promql.Max(modelLabels, runsOnAlone(30*minute))),
	Severity: slo.Ticket,
	For:      10 * minute,
	Scope:    []string{metrics.LabelModel},
	Explains: []*Alert{FastBurn, SlowBurn},
	Summary:  "{{ $value | humanizePercentage }} of requests reach the output limit",
	Description: "The model no longer stops by itself, so each request keeps its KV cache until the output limit. Look for a changed stop token, " +
		"chat template or sampling setting.",
	Split: []Evidence{
		{"By engine", ratio(atLimit(sameModel()...), promql.Vector(metrics.Requests, sameModel()...), replicaLabels, 30*minute, 0), foundEngine + " " + Percent},
	},
	Dashboard: IncidentDashboard,
}

// AnswersCorrupted fires for a replica that computed NaN. Engines check for NaN only if configured to.
var AnswersCorrupted = &Alert{
	Name:     "LLMAnswersCorrupted",
	Branch:   Behaviour,
	Expr:     above(promql.Sum(replicaLabels, promql.Increase(promql.Vector(metrics.CorruptedRequests), hour)), 0),
	Severity: slo.Ticket,
	Scope:    []string{metrics.LabelModel, metrics.LabelServer},
	Explains: []*Alert{FastBurn, SlowBurn},
	Summary:  "Engine " + theEngine + " computed NaN",
	Description: "About {{ $value | humanize }} answers in the last hour are garbage, while latencies look normal. If one replica is " +
		"affected, suspect its GPU; if all are, the weights, a kernel or the release.",
	Split: []Evidence{
		{"Uncorrectable memory errors in the last hour, by GPU", servedBy(uncorrectable(onGPULabels())), LabelledBy(Number, metrics.LabelGPUUUID)},
	},
	Dashboard: OptionalDashboard,
}

var behaviourAlerts = []*Alert{RunawayGeneration, AnswersCorrupted}

// manyTokens is a mean number of output tokens that is above the short limits that clients set on purpose, as for code
// completion.
const manyTokens = 500

// runsOn keeps the share of finished requests that the token limit ended, if the share is large and at least twice that
// of the day before. Without data of the day before, the model must also generate many tokens per request, because
// clients may set short limits on purpose. If answers are shorter than usual, there is no result, because clients have
// lowered the limit.
func runsOn(share promql.Expr) promql.Expr {
	const least = 0.3
	return promql.Unless(promql.Gt(share, promql.Or(promql.Call("clamp_min", times(2, dayBefore("limited_before")), promql.Num(least)),
		promql.Add(times(0, above(now("output_tokens"), manyTokens)), promql.Num(least)))), below(against("output_tokens"), 1))
}

// runsOnAlone returns the share of a replica's requests that the token limit ended. This share must be more than half
// for the replica, but less than 30% for the whole model. Both shares include probes, which request a few tokens from
// each replica.
func runsOnAlone(window time.Duration) promql.Expr {
	all := promql.Sum(replicaLabels, promql.Rate(promql.Vector(metrics.Requests), window))
	share := promql.Div(promql.Sum(replicaLabels, promql.Rate(atLimit(), window)), above(all, 20/window.Seconds()))
	ofModel := ratio(atLimit(), promql.Vector(metrics.Requests), modelLabels, window, 0)
	return promql.And(above(share, 0.5), below(ofModel, 0.3), promql.On(modelLabels...))
}

// atLimit selects the requests that the token limit ended.
func atLimit(m ...*promql.Matcher) promql.Expr {
	return promql.Vector(metrics.Requests, append(m, promql.Eq(metrics.LabelOutcome, string(metrics.OutcomeLength)))...)
}

// limited returns the share of users' requests that reached the output limit. Probes are left out, because they request
// only a few tokens.
func limited(window, ago time.Duration) promql.Expr {
	rate := func(m ...*promql.Matcher) promql.Expr {
		return ofUsers(promql.Rate(promql.Offset(promql.Vector(metrics.Requests, m...), ago), window), window, ago)
	}
	// The two counters may not count a probe in the same window, so the difference may be below zero.
	return promql.Div(promql.Call("clamp_min", rate(promql.Eq(metrics.LabelOutcome, string(metrics.OutcomeLength))), promql.Num(0)),
		above(rate(), 5/window.Seconds()))
}

// aborted returns the share of requests that ended because the client gave up.
func aborted(by []string, window, ago time.Duration, m ...*promql.Matcher) promql.Expr {
	gaveUp := append([]*promql.Matcher{promql.Eq(metrics.LabelOutcome, string(metrics.OutcomeAbort))}, m...)
	return ratio(promql.Vector(metrics.Requests, gaveUp...), promql.Vector(metrics.Requests, m...), by, window, ago)
}
