package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// ClientsGiveUp fires if clients give up most requests before the first token, or if far more answers than usual break
// off. It pages by itself, because only objectives with count_aborts count such requests.
var ClientsGiveUp = &Alert{
	Name:   "LLMClientsGiveUp",
	Branch: Queueing,
	Expr: promql.Or(givenUp(), above(promql.Vector(metrics.RecordedWithoutToken), 0.05), behindStandstill(),
		promql.Max(modelLabels, promql.Vector(metrics.RecordedSuspect, promql.Eq(metrics.LabelClue, "cut_short")))),
	Severity:    slo.Page,
	For:         2 * minute, // an interrupted load test stays visible for the whole window
	Keep:        5 * minute,
	Scope:       []string{metrics.LabelModel},
	DependsOn:   []Quiet{{ModelDown, modelLabels}, {ModelStalled, modelLabels}, {EngineStalled, modelLabels}, {ModelOnFailedGPU, modelLabels}},
	Explains:    []*Alert{FastBurn, SlowBurn},
	Summary:     "Clients give up on {{ $value | humanizePercentage }} of requests",
	Description: "No objective counts such requests. Either they get no answer within the clients' timeout, or a proxy cuts answers.",
	Suspects:    promql.Vector(metrics.RecordedSentence, sameModel(promql.NotRe(metrics.LabelDelays, string(Failures+"|"+NextToken)))...),
	Split: []Evidence{
		{
			"Waiting for", above(promql.Sum([]string{metrics.LabelReason}, promql.Vector(metrics.RequestsWaitingByReason, sameModel()...)), 0),
			LabelledBy(Number, metrics.LabelReason),
		},
	},
	Dashboard: IncidentDashboard,
}

var queueingAlerts = []*Alert{ClientsGiveUp}

// givenUp returns the share of each model's requests that clients gave up within two minutes. The share must exceed two
// thirds now but not the day before. Fewer first tokens than a third of the ended requests must have come. The limits
// are that high because clients that send each request twice give up half of them, and readers who press stop already
// have a first token.
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

// cutShort returns the share of requests that clients gave up, if first tokens come promptly. The share must be above a
// third in both halves of ten minutes, and more than five times that of the day before.
func cutShort() promql.Expr {
	given := now("aborted")
	return promql.Unless(both(promql.Gt(above(given, 1./3), times(5, dayBefore("aborted_before"))),
		above(promql.Sum(modelLabels, promql.Offset(evidenceOf("aborted"), pageWindow)), 1./3), atLeast(20, 30*minute)),
		promql.Or(queued(), tokenless(modelLabels)))
}

// tokenless returns, of the requests that ended in ten minutes, the share that ended well or were given up without a
// first token.
func tokenless(by []string) promql.Expr {
	ended := promql.Vector(metrics.Requests, promql.NotRe(metrics.LabelOutcome,
		slo.FailedOutcomes+"|"+string(metrics.OutcomeInvalid+"|"+metrics.OutcomeUnknown)))
	without := promql.Sum(by, promql.Rate(promql.Vector(metrics.RequestsWithoutToken), causeWindow))
	return promql.Div(promql.Ge(without, promql.Num((slo.MinBadEvents-0.5)/causeWindow.Seconds())),
		promql.Sum(by, promql.Rate(ended, causeWindow)))
}

// withoutToken returns the share of each model's requests that clients gave up before the first token, while other
// requests were served and none waited in a queue, except for KV cache or an adapter. In this case, a rank or an engine
// hangs, or KV cache does not arrive. The share must exceed 1%, and twice the share of aborted requests on the day
// before or, without it, the usual one. If the share has fallen by a quarter within five minutes, there is no result,
// because clients no longer give up.
func withoutToken() promql.Expr {
	share := now("without_token")
	served := promql.Sum(modelLabels, promql.Rate(promql.CountOf(metrics.TimeToFirstToken), pageWindow))
	waited := above(promql.Sum(modelLabels, promql.Over("max_over_time", promql.Vector(metrics.RequestsWaiting), causeWindow)), 0)
	awaited := promql.Vector(metrics.RequestsWaitingByReason, promql.Either(metrics.LabelReason, kvAwaited))
	held := promql.Gt(promql.Sum(replicaLabels, awaited), promql.Sum(replicaLabels, promql.Vector(metrics.RequestsRunning)))
	usually := promql.Or(dayBefore("aborted_before"), usual("aborted"))
	fell := promql.Lt(share, times(0.75, promql.Sum(modelLabels, promql.Offset(evidenceOf("without_token"), pageWindow))))
	return promql.Unless(both(promql.Gt(above(share, 0.01), times(2, usually)), above(served, 0)),
		promql.Or(promql.Unless(waited, held, promql.On(modelLabels...)), fell))
}

// behindStandstill returns withoutToken for models with a rank or an engine that makes no progress. Any share counts
// here, because a load balancer that considers the number of requests sends a hung engine only few.
func behindStandstill() promql.Expr {
	return promql.And(promql.Vector(metrics.RecordedWithoutToken), above(promql.Vector(metrics.EngineWithoutProgress), pageWindow.Seconds()),
		promql.On(modelLabels...))
}

// kvAwaited matches the engines' reasons for requests that wait for KV cache from another engine or tier, or for an
// adapter.
const kvAwaited = "deferred|kv_transfer|bootstrap"

// heldBack returns how many seconds requests wait at each replica before its scheduler considers them, by the reason
// that the engine reports. By Little's law, this is the number of waiting requests divided by arrivals per second.
func heldBack(reasons string, window time.Duration) promql.Expr {
	of := append([]string{metrics.LabelReason}, replicaLabels...)
	wait := promql.Sum(of, promql.Over("avg_over_time",
		promql.Vector(metrics.RequestsWaitingByReason, promql.Either(metrics.LabelReason, reasons)), window))
	arrive := promql.Sum(replicaLabels, promql.Increase(promql.Vector(metrics.RequestsArrived), window))
	return above(promql.Div(times(window.Seconds(), wait), promql.Call("clamp_min", arrive, promql.Num(1)),
		promql.On(replicaLabels...).ManyToOne()), 0.5)
}

// slowTier returns for how many seconds each replica loads KV cache from tiers per request. This must take more than a
// quarter of a second, and more than a third of the time to the first token.
func slowTier(window time.Duration) promql.Expr {
	loads := promql.Sum(replicaLabels, promql.Rate(promql.Vector(metrics.KVTierTransferTime,
		promql.Ne(metrics.LabelOperation, string(metrics.Store))), window))
	perRequest := promql.Div(loads, above(promql.Sum(replicaLabels, promql.Rate(promql.CountOf(metrics.TimeToFirstToken), window)), 0))
	return promql.Gt(above(perRequest, 0.25), times(1./3, mean(metrics.TimeToFirstToken, replicaLabels, window)))
}

// waiting returns how many requests of each model wait.
func waiting() promql.Expr { return promql.Sum(modelLabels, promql.Vector(metrics.RequestsWaiting)) }

// queued returns each model whose requests wait for more than a third of the time to their first token, if that time is
// more than a quarter of a second. Unlike the number of waiting requests at a scrape, these times also show queues that
// last only seconds.
func queued() promql.Expr {
	first := promql.Sum(modelLabels, promql.Vector(meanIn(recentWindow), ofStage(metrics.StageFirstToken)))
	return both(above(now(QueueShare), 1./3), above(first, 0.25))
}

// moreArrive returns the arriving requests as a multiple of the usual number, if requests wait or are refused. The
// increase must be more than chance explains: more than three standard deviations of the number that usually arrives in
// the window.
func moreArrive() promql.Expr {
	more := promql.Sub(against("arrivals"), promql.Num(1))
	arrived := promql.Sum(modelLabels, promql.Increase(promql.Vector(metrics.RequestsArrived, answersUsers), recentWindow))
	arrived = promql.Or(promql.Div(arrived, now("burst")), arrived)                            // independent arrivals
	deviations := promql.Div(promql.Mul(promql.Mul(more, more), arrived), against("arrivals")) // squared
	return inQueue(promql.And(above(against("arrivals"), 1.3), above(deviations, 9)))
}

// inQueue keeps the models whose requests waited or were refused within the last two minutes.
func inQueue(e promql.Expr) promql.Expr {
	waited := promql.Sum(modelLabels, promql.Over("max_over_time", promql.Vector(metrics.RequestsWaiting), recentWindow))
	return promql.Unless(e, promql.Unless(promql.Equal(waited, promql.Num(0)), promql.Or(above(refused(), 0), queued())))
}

// inBursts returns how many requests arrive together at each replica of a model, if this is more than usual.
func inBursts() promql.Expr { return promql.Unless(above(now("burst"), 5), below(against("burst"), 2)) }

// bursts returns how many requests arrive together at every replica of a model. An engine that pauses shows arrivals late,
// which looks the same, but seldom at every replica.
func bursts() promql.Expr { return promql.Min(modelLabels, promql.Vector(metrics.RequestBurst)) }

// refused returns how many requests of each model the engines refuse per second.
func refused() promql.Expr {
	return promql.Sum(modelLabels, promql.Rate(promql.Vector(metrics.Requests, promql.Eq(metrics.LabelOutcome,
		string(metrics.OutcomeRejected))), recentWindow))
}
