package rules

import (
	"math"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// ReplicaSkew fires for a replica that performs worse than its peers, because its node is bad or a router sends it too
// many requests.
var ReplicaSkew = &Alert{
	Name:   "LLMReplicaSkew",
	Branch: Routing,
	Expr: promql.Or(lastingSkew(), promql.Max(append([]string{metrics.LabelSetting, metrics.LabelNew}, replicaLabels...),
		promql.Vector(metrics.RecordedSkew, promql.Re(metrics.LabelReason, skewAtOnce)))),
	Severity:  slo.Ticket,
	For:       skewTold,
	Scope:     []string{metrics.LabelModel, metrics.LabelServer},
	DependsOn: []Quiet{{EngineStalled, replicaLabels}},
	Explains:  []*Alert{FastBurn, SlowBurn},
	Summary: "{{ if $labels.setting }}" + theEngine +
		" runs with a different {{ $labels.setting }} from the other replicas{{ with $labels.new }}: {{ . }}{{ end }}" +
		"{{ else if $labels.dp_rank }}Rank {{ $labels.dp_rank }} of " + theEngine + " is the only rank with a queue{{ else }}" + theEngine +
		" differs from the other replicas{{ end }}",
	Reasons: promql.CountBy([]string{metrics.LabelReason}, promql.Vector(metrics.RecordedSkew, append(same(replicaLabels...),
		promql.NotRe(metrics.LabelReason, skewSetting+"|rank_queue"))...)),
	Description: "{{ if $labels.setting }}No rollout is under way: in the last half hour no replica started and nothing " +
		"changed. Answers of this replica may differ or be slower. Finish the rollout, or roll it back." +
		"{{ else if $labels.dp_rank }}Other ranks " +
		"have no queue. The engine's own balancer is at fault, so more replicas do not help.{{ else }}If it gets more requests than " +
		"the others, correct the router. Otherwise take it out of rotation, and look at its GPU and node.{{ end }}",
	Split: []Evidence{
		{
			"Settings that differ", promql.CountBy([]string{metrics.LabelSetting, metrics.LabelNew}, promql.Vector(metrics.RecordedSkew,
				sameModel(promql.Eq(metrics.LabelReason, skewSetting))...)),
			LabelledBy(`on {{ .Value | humanize }}`, metrics.LabelSetting, metrics.LabelNew),
		},
		{
			"Step against peers", promql.OrOn(promql.Mul(promql.Max(append([]string{metrics.LabelGPU}, replicaLabels...),
				promql.Over("last_over_time", promql.Vector(metrics.EngineGPUInfo, sameModel()...), hour)), timesPeers,
				promql.On(replicaLabels...).ManyToOne()), timesPeers, promql.On(replicaLabels...)),
			foundEngine + "{{ with .Labels.gpu }} GPU {{ . }}{{ end }} " + Number + "x",
		},
		{"Mean TTFT by replica", mean(metrics.TimeToFirstToken, replicaLabels, causeWindow, sameModel()...), foundEngine + " " + Duration},
	},
	Dashboard: IncidentDashboard,
}

// timesPeers returns the step time of slow replicas of the alert's model, as a multiple of the step time of their
// peers.
var timesPeers = promql.Max(replicaLabels, promql.Vector(metrics.RecordedSkew, sameModel(promql.Eq(metrics.LabelReason, skewStep))...))

var routingAlerts = []*Alert{ReplicaSkew, GatewayDown, ModelUnreached, ProbeDisagrees}

// skewTold is how long the condition must last before a ticket is opened. Apart from skewAtOnce, all skew must last ten
// minutes.
const skewTold = 2 * minute

// skewStep is the reason of replicas with slow steps. Its value is already a mean over minutes. skewAtOnce matches the
// reasons that need not last, as in lastingSkew.
const skewStep, skewAtOnce = "step_time", skewSetting + "|" + skewStep

// Skews describes the reasons of metrics.RecordedSkew.
var Skews = map[string]string{
	metrics.StageFirstToken: "time to the first token", metrics.StageNextToken: "time between tokens",
	skewStep:        "time per step",
	"answer_length": "lengths of answers", "queue": "waiting requests", "rank_queue": "waiting requests of a rank", skewSetting: "a setting",
}

// lastingSkew returns the replicas whose measured skew is present now and was present four and eight minutes ago.
func lastingSkew() promql.Expr {
	skewed := promql.Vector(metrics.RecordedSkew, promql.NotRe(metrics.LabelReason, skewAtOnce))
	lasting := promql.And(promql.And(skewed, promql.Offset(skewed, 4*minute)), promql.Offset(skewed, 8*minute))
	return promql.Max(append([]string{metrics.LabelDPRank}, replicaLabels...), lasting)
}

// prefillPassedBy returns the share of each model's requests that its prefill engines get, if it is below a twentieth.
// If the share was also low in the last hour, there is no result, because the router may send only some prompts to
// prefill engines on purpose.
func prefillPassedBy() promql.Expr {
	share := func(window time.Duration) promql.Expr {
		got := promql.Sum(modelLabels, promql.Increase(promql.Vector(metrics.RequestsArrived,
			promql.Eq(metrics.LabelRole, metrics.PrefillRole)), window))
		return promql.Div(got, promql.Ge(promql.Sum(modelLabels, promql.Increase(promql.Vector(metrics.RequestsArrived, answersUsers),
			window)), promql.Num(20)))
	}
	return promql.Unless(below(share(recentWindow), 0.05), above(below(share(hour), 0.2), 0.01))
}

// inRole adds the label role to labels of replicas or models, because prefill and decode engines of a model differ by
// design.
func inRole(labels []string) []string { return append([]string{metrics.LabelRole}, labels...) }

// alike adds the labels by which replicas are comparable: the role, and the runtime, because runtimes measure the gaps
// between tokens differently.
func alike(labels []string) []string {
	return append([]string{metrics.LabelRuntime}, inRole(labels)...)
}

// slowest returns the time of each replica that takes three times as long in a stage as the best comparable replica.
// First tokens within a tenth of a second are not slow. If the work is known, the replica must also take three times as
// long per unit of work, because a router may send more requests, or long or uncached prompts, to some replicas.
func slowest(over func(*metrics.Family, ...*promql.Matcher) promql.Expr) promql.Expr {
	took, peers := over(metrics.RecordedReplicaTime), perStage(alike(modelLabels))
	three := func(e promql.Expr, is func(a, b promql.Expr, m ...*promql.Matching) promql.Expr) promql.Expr {
		return is(e, times(3, promql.Min(peers, e)), promql.On(peers...).ManyToOne())
	}
	return promql.Max(perStage(replicaLabels), promql.Unless(three(took, promql.Gt), promql.Or(
		below(over(metrics.RecordedReplicaTime, ofStage(metrics.StageFirstToken)), 0.1),
		three(promql.Div(took, over(metrics.RecordedReplicaWork)), promql.Le))))
}

// overCauseWindow returns the means over causeWindow, which slowest compares for a ticket.
func overCauseWindow(f *metrics.Family, m ...*promql.Matcher) promql.Expr {
	return promql.Over("avg_over_time", promql.Vector(f, m...), causeWindow)
}

// paceGroup records the time and the work of each replica per request, and the mean length of its answers. Lengths need
// forty answers, because their standard deviation is about as large as their mean, so ten answers prove nothing.
func paceGroup() Group {
	by := alike(replicaLabels)
	perRequest := func(what, requests promql.Expr, least float64, by []string) promql.Expr {
		within := func(window time.Duration) promql.Expr {
			in := func(counter promql.Expr) promql.Expr { return promql.Sum(by, promql.Increase(counter, window)) }
			return promql.Div(in(what), promql.Ge(in(requests), promql.Num(least)))
		}
		return promql.Or(within(recentWindow), within(causeWindow))
	}
	outputs := perRequest(promql.SumOf(metrics.RequestGenerationTokens), promql.CountOf(metrics.RequestGenerationTokens), 40, by)
	asked := promql.Sum(atPage, promql.Increase(promql.Vector(metrics.ProbeRequests, answered()), causeWindow))
	mostlyProbes := promql.Gt(times(3, asked), promql.Sum(atPage, promql.Increase(promql.CountOf(metrics.RequestGenerationTokens),
		causeWindow)))
	return Group{Name: "llm-replica-pace", Interval: Interval / 2, Records: []Record{
		{Name: metrics.RecordedReplicaTime, Expr: promql.Unless(perRequest(promql.Vector(metrics.StageTime, paced()),
			promql.Vector(metrics.Stages, paced()), 10, perStage(by)), down(), promql.On(pageLabels...))},
		{Name: metrics.RecordedOutputTokens, Expr: promql.Unless(outputs, mostlyProbes, promql.On(atPage...))},
		{
			metrics.RecordedReplicaWork, perRequest(promql.Vector(metrics.PrefillComputedTokens), promql.CountOf(metrics.TimeToFirstToken), 10, by),
			map[string]string{metrics.LabelStage: metrics.StageFirstToken},
		},
		{
			metrics.RecordedReplicaWork, promql.Call("sqrt", promql.Call("sqrt", promql.Call("clamp_min", promql.Sum(by, promql.Over("avg_over_time",
				promql.Vector(metrics.RequestsRunning), recentWindow)), promql.Num(1)))),
			map[string]string{metrics.LabelStage: metrics.StageNextToken},
		},
		{Name: metrics.RecordedStep, Expr: steps()},
		{Name: metrics.RecordedReplicaSlow, Expr: slowest(promql.Vector)},
		{Name: metrics.RecordedSkew, Expr: promql.Call("label_replace", slowest(overCauseWindow), promql.Str(metrics.LabelReason),
			promql.Str("$1"), promql.Str(metrics.LabelStage), promql.Str("(.+)"))},
		skew(skewStep, slowStep()),
		skew("answer_length", otherLengths()),
		skew("queue", longestQueue(causeWindow, replicaLabels, modelLabels)),
		skew("rank_queue", rankQueue(causeWindow)),
		skew(skewSetting, differs()),
	}}
}

// skew records which replicas or ranks perform worse than their peers. by is the reason: the quantity in which they are
// worse.
func skew(by string, e promql.Expr) Record {
	return Record{metrics.RecordedSkew, e, map[string]string{metrics.LabelReason: by}}
}

// otherLengths returns each replica whose answers are at least three times, or at most a third, as long as those of its
// peers. They must also be at least twice, or at most half, as long as the replica's own answers on the day before,
// because some routers always send a replica different work, and some replicas do only a part of the work.
func otherLengths() promql.Expr {
	own := promql.Vector(metrics.RecordedOutputTokens)
	change := promql.Div(own, promql.Over("avg_over_time", promql.Offset(own, dayBack), hour))
	by := func(factor float64, e promql.Expr) promql.Expr {
		return above(promql.Call("abs", promql.Call("ln", e)), math.Log(factor))
	}
	return promql.Max(replicaLabels, promql.And(by(3, againstPeers(own, alike(modelLabels))), by(2, change)))
}

// againstPeers returns each replica's value as a multiple of the mean of the other replicas in its group.
func againstPeers(own promql.Expr, group []string) promql.Expr {
	peers := promql.On(group...)
	others := promql.Sub(promql.Sum(group, own), own, peers.OneToMany())
	n := promql.Sub(above(promql.CountBy(group, own), 1), promql.Num(1))
	return promql.Mul(promql.Div(own, others), n, peers.ManyToOne())
}

// slowStep returns the duration of a replica's steps as a multiple of that of its peers, if it is above tooSlow. Steps
// are compared at the same number of running requests, on GPUs of the same name. Replicas are left out if an alert on
// their GPU explains the slowness.
func slowStep() promql.Expr {
	batch := append([]string{metrics.LabelBatch, metrics.LabelGPUName}, alike(modelLabels)...)
	known := promql.And(servedOn(replicaLabels), firing("LLMGPU.+"), promql.On(onGPULabels()...))
	return promql.Unless(above(promql.Avg(replicaLabels, againstPeers(promql.Vector(metrics.RecordedStep), batch)), tooSlow), known,
		promql.On(replicaLabels...))
}

// tooSlow is the multiple of its peers' step time above which a replica is slow.
const tooSlow = 1.2

// steps returns how long the steps of each replica take, by the number of running requests. If the GPU of the replica
// is known, its name is added.
func steps() promql.Expr {
	step := promql.Avg(append([]string{metrics.LabelBatch}, alike(replicaLabels)...), promql.Vector(metrics.EngineStep))
	names := promql.Max(append([]string{metrics.LabelGPUName}, onGPULabels()...), promql.Vector(metrics.GPUInfo))
	runsOn := promql.Max(append([]string{metrics.LabelGPUName}, replicaLabels...),
		promql.Mul(servedOn(replicaLabels), names, promql.On(onGPULabels()...).ManyToOne(metrics.LabelGPUName)))
	return promql.OrOn(promql.Mul(step, runsOn, promql.On(replicaLabels...).ManyToOne(metrics.LabelGPUName)), step,
		promql.On(replicaLabels...))
}

// longestQueue returns each replica or rank with a queue of more than four requests that is well above the mean of its
// peers, while one peer has no queue. Peers are members of the group with the same role.
func longestQueue(window time.Duration, of, group []string, m ...*promql.Matcher) promql.Expr {
	waiting := promql.Sum(inRole(of), promql.Over("avg_over_time", promql.Vector(metrics.RequestsWaiting, m...), window))
	peers := promql.On(inRole(group)...)
	return promql.Max(of, promql.And(
		promql.Gt(waiting, promql.Call("clamp_min", times(1.5, promql.Avg(inRole(group), waiting)), promql.Num(4)), peers.ManyToOne()),
		below(promql.Min(inRole(group), waiting), 1), peers))
}

// rankQueue returns the longestQueue of the data-parallel ranks of a replica.
func rankQueue(window time.Duration) promql.Expr {
	return longestQueue(window, append([]string{metrics.LabelDPRank}, replicaLabels...), replicaLabels, promql.Ne(metrics.LabelDPRank, ""))
}

// ended returns the requests per second that ended with an outcome that counts for availability.
func ended(by []string, window time.Duration, m ...*promql.Matcher) promql.Expr {
	return promql.Sum(by, promql.Rate(promql.Vector(metrics.Requests,
		append(m, promql.NotRe(metrics.LabelOutcome, slo.UncountedOutcomes))...), window))
}

// failing returns the share of requests that the server failed or refused, of those in ended.
func failing(by []string, window time.Duration, m ...*promql.Matcher) promql.Expr {
	failed := promql.Vector(metrics.Requests, append(m, promql.Re(metrics.LabelOutcome, slo.FailedOutcomes))...)
	return promql.Div(promql.Sum(by, promql.Rate(failed, window)), above(ended(by, window, m...), 0))
}

// failsFive returns the share of each replica's requests that fail, in the first of the windows in which at least five
// requests fail. In the window of an hour, some request must also fail within the last five minutes. Because rates
// extrapolate, 4.5 counts as five.
func failsFive(windows []time.Duration, m ...*promql.Matcher) promql.Expr {
	in := func(outcomes *promql.Matcher, window time.Duration) promql.Expr {
		return promql.Sum(replicaLabels, promql.Rate(promql.Vector(metrics.Requests, append(m, outcomes)...), window))
	}
	failed := promql.Re(metrics.LabelOutcome, slo.FailedOutcomes)
	shares := make([]promql.Expr, 0, len(windows))
	for _, w := range windows {
		share := promql.Div(promql.Ge(in(failed, w), promql.Num((slo.MinBadEvents-0.5)/w.Seconds())),
			in(promql.NotRe(metrics.LabelOutcome, slo.UncountedOutcomes), w))
		if w >= hour {
			share = promql.And(share, above(in(failed, pageWindow), 0))
		}
		shares = append(shares, share)
	}
	return promql.Or(shares[0], shares[1:]...)
}

// failsAlone returns the share of a replica's requests that fail, if it is more than a twentieth, and more than ten
// times the share that fails on the other replicas of its model, both in the last ten minutes and in the last two.
func failsAlone() promql.Expr {
	others := func(outcomes *promql.Matcher, window time.Duration) promql.Expr {
		in := promql.Rate(promql.Vector(metrics.Requests, outcomes), window)
		return promql.Sub(promql.Sum(modelLabels, in), promql.Sum(replicaLabels, in), promql.On(modelLabels...).OneToMany())
	}
	few := func(window time.Duration) promql.Expr {
		all := above(others(promql.NotRe(metrics.LabelOutcome, slo.UncountedOutcomes), window), 0.01)
		return times(10, promql.Div(others(promql.Re(metrics.LabelOutcome, slo.FailedOutcomes), window), all))
	}
	fails := promql.Max(replicaLabels, promql.Vector(metrics.RecordedFailing, promql.Eq(metrics.LabelRole, "")))
	return promql.Gt(promql.Gt(above(fails, 0.05), few(causeWindow)), few(recentWindow))
}

// hotReplica returns the share of a model's requests that arrive at a replica with a queue. Another replica of the same
// role must have no queue, and get less than a third as many requests, or less than two thirds of its own usual share.
// A replica that has just started does not count.
func hotReplica() promql.Expr {
	peers := inRole(modelLabels)
	arrive := func(by []string, within time.Duration, is ...*promql.Matcher) promql.Expr {
		return promql.Sum(by, promql.Increase(promql.Vector(metrics.RequestsArrived, is...), within))
	}
	own, all := arrive(inRole(replicaLabels), recentWindow, computes), arrive(peers, recentWindow)
	wait := promql.Sum(inRole(replicaLabels), promql.Over("avg_over_time", promql.Vector(metrics.RequestsWaiting), recentWindow))
	due := promql.Mul(arrive(inRole(replicaLabels), hour), promql.Div(all, arrive(peers, hour)), promql.On(peers...).ManyToOne())
	idle := promql.And(own, below(wait, 0.1))
	least := promql.Or(times(0, promql.Lt(times(1.5, idle), promql.Ge(due, promql.Num(50)))), times(3, idle))
	hot := promql.Gt(promql.And(promql.Ge(own, promql.Num(20)), above(wait, 1)),
		promql.Min(peers, promql.Unless(least, promql.Vector(metrics.RecordedStarted), promql.On(replicaLabels...))),
		promql.On(peers...).ManyToOne())
	return promql.Max(replicaLabels, promql.Div(hot, all, promql.On(peers...).ManyToOne()))
}

// onTheWay returns by how many seconds first tokens are later at a model's gateway than at its engines. The difference
// must be larger than the time to first token at the engines.
func onTheWay(window time.Duration) promql.Expr {
	engines := promql.Sum(modelLabels, promql.Vector(meanIn(window), ofStage(metrics.StageFirstToken)))
	late := promql.Sub(mean(metrics.TimeToFirstToken, modelLabels, window, gatewayRole()), engines)
	return both(promql.Gt(late, promql.Call("clamp_min", engines, promql.Num(0.1))), atLeast(10, window))
}

// probedLate returns by how many seconds first tokens of synthetic requests are later through a gateway than directly
// from the engines of its model, if this is more than half of the time through the gateway.
func probedLate() promql.Expr {
	took := promql.Max(placeLabels, promql.Vector(metrics.ProbeRecentFirstToken))
	engines := promql.Max(atPage, promql.Vector(metrics.EngineInfo))
	direct := promql.Avg(namedModel, promql.And(took, engines, promql.On(atPage...)))
	late := promql.Sub(promql.Unless(took, engines, promql.On(atPage...)), direct, promql.On(namedModel...).ManyToOne())
	return promql.Max(modelLabels, withNamespace(promql.Gt(above(late, 0.1), times(0.5, took))))
}

// slowAtSteps returns the time between tokens of each replica whose steps take more than a given multiple of its peers'
// time.
func slowAtSteps(times float64) promql.Expr {
	slow := above(promql.Vector(metrics.RecordedSkew, promql.Eq(metrics.LabelReason, skewStep)), times)
	return promql.And(promql.Max(replicaLabels, promql.Vector(metrics.RecordedReplicaTime, ofStage(metrics.StageNextToken))), slow,
		promql.On(replicaLabels...))
}

// lonelyReplica returns the slowest replica of each model in a stage, if it is slow (see slowest), and at most half of
// the model's replicas are.
func lonelyReplica(stage string) promql.Expr {
	slow := promql.Max(replicaLabels, promql.Vector(metrics.RecordedReplicaSlow, ofStage(stage)))
	return promql.And(promql.TopK(1, modelLabels, slow),
		promql.Le(promql.CountBy(modelLabels, slow), times(0.5, promql.CountBy(modelLabels, promql.Vector(metrics.RecordedReplicaTime,
			ofStage(stage))))), promql.On(modelLabels...))
}
