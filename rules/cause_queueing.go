package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// QueueBuildUp fires for a model whose requests wait longer than they are processed. It gets its expression from
// queueingAlerts.
var QueueBuildUp = &Alert{
	Name:        "LLMQueueBuildUp",
	Branch:      Queueing,
	Severity:    slo.Ticket,
	For:         5 * minute,
	Scope:       []string{metrics.LabelModel},
	Explains:    []*Alert{FastBurn, SlowBurn},
	Summary:     "Requests to {{ $labels.model_name }} queue: {{ $value | humanize }} waiting",
	Description: "Requests spend more than half of the time to the first token waiting, or more requests wait than run. Ask whether demand rose or capacity fell before adding replicas.",
	Split: []Evidence{
		{"Requests per second, last 10m", promql.Sum(nil, promql.Rate(promql.CountOf(metrics.TimeToFirstToken, sameModel()...), causeWindow)), Number},
		{"An hour ago", promql.Sum(nil, promql.Rate(promql.Offset(promql.CountOf(metrics.TimeToFirstToken, sameModel()...), hour), causeWindow)), Number},
		{"Replicas", promql.CountBy(nil, promql.CountBy(replicaLabels, promql.Vector(metrics.RequestsRunning, sameModel()...))), Number},
	},
	Dashboard: IncidentDashboard,
}

// AdmissionStalled fires for a replica that keeps requests waiting although it has room for them. It gets its
// expression from queueingAlerts.
var AdmissionStalled = &Alert{
	Name:        "LLMAdmissionStalled",
	Branch:      Queueing,
	Severity:    slo.Ticket,
	For:         5 * minute,
	Scope:       []string{metrics.LabelModel, metrics.LabelServer},
	DependsOn:   []Quiet{{ModelStalled, modelLabels}, {EngineStalled, replicaLabels}, {QueueBuildUp, modelLabels}},
	Explains:    []*Alert{FastBurn, SlowBurn},
	Summary:     "Engine " + theEngine + " of {{ $labels.model_name }} lets {{ $value | humanize }} requests wait beside a KV cache with room",
	Description: "It runs less than half of what it ran within six hours. Demand and memory are not the cause: the queue waits for something else, such as KV cache that is loaded from a slow tier, a grammar, an adapter or a lower batch limit. A restart that empties the GPU's prefix cache can start it, and another makes it worse.",
	Split: []Evidence{
		{"KV cache in use", promql.Max(nil, promql.Vector(metrics.KVCacheUsage, same(replicaLabels...)...)), Percent},
		{"Running", promql.Sum(nil, promql.Vector(metrics.RequestsRunning, same(replicaLabels...)...)), Number},
		{"Waiting for", above(promql.Sum([]string{metrics.LabelReason}, promql.Vector(metrics.RequestsWaitingByReason, same(replicaLabels...)...)), 0), LabelledBy(Number, metrics.LabelReason)},
		{"Time in the queue", mean(metrics.QueueTime, nil, causeWindow, same(replicaLabels...)...), Duration},
	},
	Dashboard: EngineDashboard,
}

// AbortsRising fires when clients give up. Their leaving is a louder signal than any latency: an aborted request
// counts for no objective.
var AbortsRising = &Alert{
	Name:   "LLMAbortsRising",
	Branch: Queueing,
	Expr: both(
		promql.Or(
			promql.Gt(above(aborted(modelLabels, causeWindow, 0), 0.15), times(2, dayBefore("aborted_before"))),
			promql.Unless(above(aborted(modelLabels, causeWindow, 0), 0.3), dayBefore("aborted_before"))),
		promql.Ge(promql.Sum(modelLabels, promql.Increase(promql.Vector(metrics.Requests), causeWindow)), promql.Num(20))),
	Severity:    slo.Ticket,
	For:         5 * minute,
	Scope:       []string{metrics.LabelModel},
	Explains:    []*Alert{FastBurn, SlowBurn},
	Summary:     "Clients give up {{ $value | humanizePercentage }} of requests to {{ $labels.model_name }}",
	Description: "That is at least twice yesterday's share, or a third for a new model. Availability does not count these requests, and those given up in the queue are in no latency: users suffer more than the objectives say. They wait too long, or their timeout became shorter.",
	Split: []Evidence{
		{"The day before", aborted(nil, day, hour, sameModel()...), Percent},
		{"Given up per second, most", promql.TopK(3, nil, above(promql.Sum(replicaLabels, promql.Rate(promql.Vector(metrics.Requests,
			sameModel(promql.Eq(metrics.LabelOutcome, string(metrics.OutcomeAbort)))...), causeWindow)), 0)), LabelledBy(Number, metrics.LabelPod, metrics.LabelServer, metrics.LabelInstance)},
		{"Mean time to the first token of those who stayed", mean(metrics.TimeToFirstToken, nil, causeWindow, sameModel()...), Duration},
		{"Waiting", promql.Sum(nil, promql.Vector(metrics.RequestsWaiting, sameModel()...)), Number},
	},
	Dashboard: IncidentDashboard,
}

// ClientsGiveUp fires when most requests end without a first token because nobody waits for it any longer. Only
// objectives with count_aborts count them.
var ClientsGiveUp = &Alert{
	Name:        "LLMClientsGiveUp",
	Branch:      Queueing,
	Expr:        givenUp(),
	Severity:    slo.Page,
	For:         2 * minute, // a load test that is interrupted is seen for as long as the window
	Scope:       []string{metrics.LabelModel},
	DependsOn:   []Quiet{{ModelDown, modelLabels}, {ModelStalled, modelLabels}},
	Explains:    []*Alert{FastBurn, SlowBurn},
	Summary:     "Clients give up {{ $value | humanizePercentage }} of requests to {{ $labels.model_name }}, most before the first token",
	Description: "They are in no latency, and in no availability unless it counts aborts: those who are still served may be served well. The requests wait for something that never comes, such as KV cache from another engine, or a client's timeout became too short.",
	Split: []Evidence{
		{"Look at", promql.Vector(metrics.RecordedSuspect, sameModel(promql.Re(metrics.LabelClue, "admission|kv_.+|gateway_.+"))...), "{{ .Labels.branch }}. " + Format(SuspectText())},
		{"Waiting for", above(promql.Sum([]string{metrics.LabelReason}, promql.Vector(metrics.RequestsWaitingByReason, sameModel()...)), 0), LabelledBy(Number, metrics.LabelReason)},
		{"First tokens per second", promql.Sum(nil, promql.Rate(promql.CountOf(metrics.TimeToFirstToken, sameModel()...), pageWindow)), Number},
	},
	Dashboard: IncidentDashboard,
}

// givenUp returns the share of each model's requests that clients gave up within two minutes, where it exceeds two
// thirds, and did not the day before, and less than a third of those that ended had a first token. Of hedged requests
// half are given up; readers who press stop have a first token.
func givenUp() promql.Expr {
	const window = 2 * minute
	first := promql.Sum(modelLabels, promql.Rate(promql.CountOf(metrics.TimeToFirstToken), window))
	all := promql.Sum(modelLabels, promql.Rate(promql.Vector(metrics.Requests), window))
	return promql.Unless(both(
		above(aborted(modelLabels, window, 0), 2./3),
		promql.Lt(first, times(1./3, all)),
		promql.Ge(promql.Sum(modelLabels, promql.Increase(promql.Vector(metrics.Requests), window)), promql.Num(10))),
		above(dayBefore("aborted_before"), 1./3))
}

// aborted returns the share of requests that ended because the client gave up.
func aborted(by []string, window, ago time.Duration, m ...*promql.Matcher) promql.Expr {
	return endedBy(metrics.OutcomeAbort, by, window, ago, m...)
}

func queueingAlerts(opt Options) []*Alert {
	queue := *QueueBuildUp
	queue.Expr = harmful(opt, both(
		above(promql.Sum(modelLabels, promql.Over("min_over_time", promql.Vector(metrics.RequestsWaiting), 5*minute)), 0),
		promql.Or(
			above(partOfTTFT(metrics.QueueTime, modelLabels, 5*minute), 0.5),
			promql.Gt(promql.Sum(modelLabels, promql.Vector(metrics.RequestsWaiting)), promql.Sum(modelLabels, promql.Vector(metrics.RequestsRunning))))))
	admission := *AdmissionStalled
	admission.Expr = harmful(opt, heldBack(causeWindow))
	return []*Alert{&queue, &admission, AbortsRising, ClientsGiveUp}
}

// heldBack returns how many requests wait, three quarters of the time, at each replica that could run them: its KV cache
// had room all the time, it ran less than half of what a replica of the model ran within six hours, and the model's
// engines do not compute twice the usual tokens: a long prompt alone may fill a step. An engine that started cold is slow
// without holding anything back, unless it says that requests wait for KV cache from elsewhere.
func heldBack(window time.Duration) promql.Expr {
	mostly := func(f *metrics.Family, m ...*promql.Matcher) promql.Expr {
		return promql.Sum(replicaLabels, promql.QuantileOver(0.25, promql.Vector(f, m...), window))
	}
	room := below(promql.Max(replicaLabels, promql.Over("max_over_time", promql.Vector(metrics.KVCacheUsage), window)), 0.9)
	fewer := promql.Lt(promql.Sum(replicaLabels, promql.Over("avg_over_time", promql.Vector(metrics.RequestsRunning), window)),
		times(0.5, promql.Max(modelLabels, promql.Over("max_over_time", promql.Vector(metrics.RequestsRunning), 6*hour))), promql.On(modelLabels...).ManyToOne())
	cold := promql.Unless(promql.Vector(metrics.RecordedColdStart), above(mostly(metrics.RequestsWaitingByReason, promql.Re(metrics.LabelReason, "deferred|kv_transfer")), 0))
	return promql.Unless(both(promql.Call("ceil", above(mostly(metrics.RequestsWaiting), 0)), room, fewer),
		promql.Or(cold, promql.And(promql.Sum(replicaLabels, promql.Vector(metrics.RequestsWaiting)), above(against("computed"), 2), promql.On(modelLabels...))))
}

// harmful keeps the series of e, a problem with a queue, where users suffer: an objective of the model burns, by more
// than bad luck. Work that waits on purpose, in a batch, burns no budget. Where no objective is counted, the queue
// must be twice as long as at this hour yesterday.
func harmful(opt Options, e promql.Expr) promql.Expr {
	onModel := promql.On(modelLabels...)
	waiting := func(window, ago time.Duration) promql.Expr {
		return promql.Sum(modelLabels, promql.Over("avg_over_time", promql.Offset(promql.Vector(metrics.RequestsWaiting), ago), window))
	}
	usual := promql.Le(waiting(causeWindow, 0), times(2, waiting(hour, dayBack)))
	from := opt.source()
	suffers := both(from.burning(RawWindow), promql.Ge(from.recordedBad(), promql.Num(slo.MinBadEvents-0.5)))
	return promql.Unless(e, promql.Unless(promql.Or(from.burnRate(RawWindow), usual), suffers, onModel), onModel)
}
