package rules

import (
	"fmt"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Clue is evidence clear enough to say where to look first.
type Clue struct {
	// Branch is where.
	Branch Branch
	// Query answers while the evidence is clear. It may match labels on the alert's own with same.
	Query promql.Expr
	// Says is the evidence: a template of the first result, the dot.
	Says string
}

// verdict renders the first line of a split: the first clue that answers, or nothing.
func verdict(clues []Clue) string {
	if len(clues) == 0 {
		return ""
	}
	first := clues[0]
	return fmt.Sprintf("{{ with %s }}Look first at: %s. {{ with first . }}%s{{ end }}.\n{{ else }}%s{{ end }}",
		queryTemplate(first.Query), first.Branch, strings.TrimSpace(first.Says), verdict(clues[1:]))
}

// burnVerdict looks for the cause of a burn as the cause alerts do, with their thresholds. It does not wait
// as they must: users suffer already, so it judges the last minutes. Causes that show as another come
// before it: a throttled GPU looks like a queue. Hardware is first, then what changed in the engines,
// then what changed in the requests, which makes one replica worse than another by chance; where only room
// or time is lost is last.
func burnVerdict() []Clue {
	own := sameModel()
	total := func(e promql.Expr) promql.Expr { return promql.Sum(nil, e) }
	grown := func(now, before promql.Expr) promql.Expr { return promql.Div(now, before, nil) }
	ofTokens := promql.Vector(metrics.SLOInfo, append(same(metrics.LabelSLO), promql.Eq(metrics.LabelSignal, string(slo.ITL)))...)
	firstTokens := func(e promql.Expr) promql.Expr { return promql.Unless(e, ofTokens, promql.On()) }
	laterTokens := func(e promql.Expr) promql.Expr { return promql.And(e, ofTokens, promql.On()) }
	waiting, running := total(promql.Vector(metrics.RequestsWaiting, own...)), total(promql.Vector(metrics.RequestsRunning, own...))
	return []Clue{
		{Hardware, ownGPUs(promql.Max(append(onGPULabels(), metrics.LabelReason), throttled(HarmfulReasons, 0.05))),
			`GPU {{ .Labels.gpu_uuid }} is slowed down {{ .Value | humanizePercentage }} of the time ({{ .Labels.reason }})`},
		{Hardware, ownGPUs(promql.Max(append(onGPULabels(), metrics.LabelXID), criticalXIDs(hour))),
			`GPU {{ .Labels.gpu_uuid }} reported XID {{ .Labels.xid }}`},
		{Release, promql.Over("last_over_time", promql.Vector(metrics.RecordedDeployed, own...), hour),
			`Version {{ .Labels.version }} was deployed within the hour`},
		{Engine, promql.And(down(), promql.Max(pageLabels, promql.Over("last_over_time", promql.Vector(metrics.EngineInfo, own...), hour)), promql.On(pageLabels...)),
			foundEngine + ` stopped answering within the hour`},
		{Engine, startedCold(own...), foundEngine + ` started less than 15 minutes ago, and requests waited`},
		{Memory, lostTransfers(nil, own...), `{{ printf "%.2f" .Value }} KV transfers per request are lost`},
		{Prefill, below(grown(hitRatio(nil, recent, 0, own...), above(hitRatio(nil, day, hour, own...), 0.2)), 0.5),
			`The prefix cache hits {{ .Value | humanizePercentage }} of what it did the day before`},
		{Prefill, above(grown(mean(metrics.RequestPromptTokens, nil, recent, own...), meanBefore(metrics.RequestPromptTokens, nil, day, hour, own...)), 2),
			`Prompts are {{ .Value | humanize }} times as long as the day before`},
		{Decode, below(grown(accepted(nil, recent, 0, own...), above(accepted(nil, day, hour, own...), 0.2)), 0.5),
			`Draft tokens are accepted {{ .Value | humanizePercentage }} as often as the day before`},
		{Behaviour, runsOn(nil, recent, own...), `{{ .Value | humanizePercentage }} of requests run into the output limit`},
		{Routing, lonelyReplica(metrics.TimeToFirstToken, own...), foundEngine + ` alone is slow: first tokens after {{ .Value | humanizeDuration }}`},
		{Routing, lonelyReplica(metrics.InterTokenLatency, own...), foundEngine + ` alone is slow: {{ .Value | humanizeDuration }} between tokens`},
		{Memory, promql.Max(nil, preempting(own...)), `Each request is preempted {{ printf "%.1f" .Value }} times`},
		{Memory, promql.Max(nil, fullCache(own...)), `The KV cache is {{ .Value | humanizePercentage }} full and requests wait for room`},
		{Memory, saturatedTier(own...), `The {{ .Labels.tier }} tier of ` + foundEngine + ` takes no more KV cache`},
		{Queueing, firstTokens(above(queueShare(nil, recent, own...), 0.5)), `{{ .Value | humanizePercentage }} of the time to the first token is waiting`},
		{Queueing, firstTokens(promql.Gt(waiting, running, nil)), `{{ .Value | humanize }} requests wait, more than run`},
		{Prefill, firstTokens(above(grown(mean(metrics.PrefillTime, nil, recent, own...), mean(metrics.TimeToFirstToken, nil, recent, own...)), 0.5)),
			`{{ .Value | humanizePercentage }} of the time to the first token is prefill`},
		{Decode, laterTokens(above(grown(batch(nil, recent, 0, own...), batch(nil, day, hour, own...)), 1.5)),
			`{{ .Value | humanize }} times as many requests run at once as the day before`},
	}
}

// ownGPUs are the results about GPUs that serve the alert's model, or did within the hour.
func ownGPUs(e promql.Expr) promql.Expr {
	serving := promql.Max(onGPULabels(), promql.Over("last_over_time", promql.Vector(metrics.EngineGPUInfo, sameModel()...), hour))
	return promql.And(e, serving, promql.On(onGPULabels()...))
}

// lonelyReplica is a replica three times as slow as the best while most are not.
func lonelyReplica(h *metrics.Family, m ...*promql.Matcher) promql.Expr {
	slow := slowest(h, m...)
	return promql.And(promql.TopK(1, nil, slow),
		promql.Lt(promql.CountBy(nil, slow), times(0.5, promql.CountBy(nil, mean(h, replicaLabels, now, m...))), nil), promql.On())
}
