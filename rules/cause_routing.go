package rules

import (
	"math"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// ReplicaSkew fires for one replica that performs worse than its peers. Its node is bad, or a router sends it too many
// requests.
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

// timesPeers is how many times as long as its peers a replica of the alert's model computes a step.
var timesPeers = promql.Max(replicaLabels, promql.Vector(metrics.RecordedSkew, sameModel(promql.Eq(metrics.LabelReason, skewStep))...))

var routingAlerts = []*Alert{ReplicaSkew, GatewayDown, ModelUnreached, ProbeDisagrees}

// skewTold is how long a setting must differ, or steps must be slow, before a ticket is opened. All other skew must last
// ten minutes.
const skewTold = 2 * minute

// skewStep is the reason for slow steps, whose value is already a mean over minutes. skewAtOnce matches the reasons
// that count at once.
const skewStep, skewAtOnce = "step_time", skewSetting + "|" + skewStep

// Skews describes the reasons of metrics.RecordedSkew.
var Skews = map[string]string{
	metrics.StageFirstToken: "time to the first token", metrics.StageNextToken: "time between tokens",
	skewStep:        "time per step",
	"answer_length": "lengths of answers", "queue": "waiting requests", "rank_queue": "waiting requests of a rank", skewSetting: "a setting",
}

// lastingSkew returns the replicas whose measured skew exists now and existed four and eight minutes ago.
func lastingSkew() promql.Expr {
	skewed := promql.Vector(metrics.RecordedSkew, promql.NotRe(metrics.LabelReason, skewAtOnce))
	lasting := promql.And(promql.And(skewed, promql.Offset(skewed, 4*minute)), promql.Offset(skewed, 8*minute))
	return promql.Max(append([]string{metrics.LabelDPRank}, replicaLabels...), lasting)
}

// prefillPassedBy returns the share of each model's requests that its prefill engines get, if it is below a twentieth.
// If a router sends only some prompts to prefill engines, the share is low at other times, too.
func prefillPassedBy() promql.Expr {
	share := func(window time.Duration) promql.Expr {
		got := promql.Sum(modelLabels, promql.Increase(promql.Vector(metrics.RequestsArrived,
			promql.Eq(metrics.LabelRole, metrics.PrefillRole)), window))
		return promql.Div(got, promql.Ge(promql.Sum(modelLabels, promql.Increase(promql.Vector(metrics.RequestsArrived, answersUsers),
			window)), promql.Num(20)))
	}
	return promql.Unless(below(share(recentWindow), 0.05), above(below(share(hour), 0.2), 0.01))
}

// inRole adds the role to labels of replicas or models, because prefill and decode engines of a model differ by design.
func inRole(labels []string) []string { return append([]string{metrics.LabelRole}, labels...) }

// alike adds the role and the runtime, because different runtimes count different gaps between tokens.
func alike(labels []string) []string {
	return append([]string{metrics.LabelRuntime}, inRole(labels)...)
}

// slowest returns the time of each replica that takes three times as long in a stage as the best comparable replica.
// First tokens within a tenth of a second are not slow. If the work is known, the replica must also take three times as
// long per unit of work. A router may send more requests, or long or uncached prompts, to some replicas.
func slowest(over func(*metrics.Family, ...*promql.Matcher) promql.Expr) promql.Expr {
	took, peers := over(metrics.RecordedReplicaTime), perStage(alike(modelLabels))
	three := func(e promql.Expr, is func(a, b promql.Expr, m ...*promql.Matching) promql.Expr) promql.Expr {
		return is(e, times(3, promql.Min(peers, e)), promql.On(peers...).ManyToOne())
	}
	return promql.Max(perStage(replicaLabels), promql.Unless(three(took, promql.Gt), promql.Or(
		below(over(metrics.RecordedReplicaTime, ofStage(metrics.StageFirstToken)), 0.1),
		three(promql.Div(took, over(metrics.RecordedReplicaWork)), promql.Le))))
}

// overCauseWindow returns the values that slowest compares for a ticket.
func overCauseWindow(f *metrics.Family, m ...*promql.Matcher) promql.Expr {
	return promql.Over("avg_over_time", promql.Vector(f, m...), causeWindow)
}

// paceGroup records the time and the work of each replica per request, and the length of its answers. The standard
// deviation of answer lengths is about as large as their mean, so ten answers prove nothing.
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
		{Name: metrics.RecordedFailing, Expr: failsFive([]time.Duration{recentWindow, causeWindow})},
		{
			metrics.RecordedFailing, failsFive([]time.Duration{recentWindow, causeWindow, hour}, gatewayRole()),
			map[string]string{metrics.LabelRole: metrics.GatewayRole},
		},
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

// skew records which replicas or ranks perform worse than their peers. by names the quantity.
func skew(by string, e promql.Expr) Record {
	return Record{metrics.RecordedSkew, e, map[string]string{metrics.LabelReason: by}}
}

// otherLengths returns each replica whose answers differ in length from its peers' answers and from its own answers of
// the day before. They are a third or three times as long as the peers' answers, and half or twice as long as the day
// before. Some routers send a replica different work, and some replicas do only a part of the work.
func otherLengths() promql.Expr {
	own := promql.Vector(metrics.RecordedOutputTokens)
	change := promql.Div(own, promql.Over("avg_over_time", promql.Offset(own, dayBack), hour))
	by := func(factor float64, e promql.Expr) promql.Expr {
		return above(promql.Call("abs", promql.Call("ln", e)), math.Log(factor))
	}
	return promql.Max(replicaLabels, promql.And(by(3, againstPeers(own, alike(modelLabels))), by(2, change)))
}

// againstPeers returns a value of each replica as a multiple of the mean of the others in its group.
func againstPeers(own promql.Expr, group []string) promql.Expr {
	peers := promql.On(group...)
	others := promql.Sub(promql.Sum(group, own), own, peers.OneToMany())
	n := promql.Sub(above(promql.CountBy(group, own), 1), promql.Num(1))
	return promql.Mul(promql.Div(own, others), n, peers.ManyToOne())
}

// slowStep returns the duration of a replica's steps as a multiple of its peers' steps. The peers have the same number
// of running requests, and GPUs of the same name. Replicas whose GPU has an alert that explains the slowness are left
// out.
func slowStep() promql.Expr {
	batch := append([]string{metrics.LabelBatch, metrics.LabelGPUName}, alike(modelLabels)...)
	known := promql.And(servedOn(replicaLabels), firing("LLMGPU.+"), promql.On(onGPULabels()...))
	return promql.Unless(above(promql.Avg(replicaLabels, againstPeers(promql.Vector(metrics.RecordedStep), batch)), tooSlow), known,
		promql.On(replicaLabels...))
}

// tooSlow is the multiple of its peers' time above which a replica is slow.
const tooSlow = 1.2

// steps returns how long the steps of a replica take with each number of running requests. The name of its GPU is added if known.
func steps() promql.Expr {
	step := promql.Avg(append([]string{metrics.LabelBatch}, alike(replicaLabels)...), promql.Vector(metrics.EngineStep))
	names := promql.Max(append([]string{metrics.LabelGPUName}, onGPULabels()...), promql.Vector(metrics.GPUInfo))
	runsOn := promql.Max(append([]string{metrics.LabelGPUName}, replicaLabels...),
		promql.Mul(servedOn(replicaLabels), names, promql.On(onGPULabels()...).ManyToOne(metrics.LabelGPUName)))
	return promql.OrOn(promql.Mul(step, runsOn, promql.On(replicaLabels...).ManyToOne(metrics.LabelGPUName)), step,
		promql.On(replicaLabels...))
}

// longestQueue returns each replica or rank with a real queue, well above the mean of its peers, while one peer has no
// queue. Peers are members of the group with the same role.
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

// ended returns the requests per second that ended with an outcome that shows how the server performs.
func ended(by []string, window time.Duration, m ...*promql.Matcher) promql.Expr {
	return promql.Sum(by, promql.Rate(promql.Vector(metrics.Requests,
		append(m, promql.NotRe(metrics.LabelOutcome, slo.UncountedOutcomes))...), window))
}

// failing returns the share of the requests that end in a failure of the server.
func failing(by []string, window time.Duration, m ...*promql.Matcher) promql.Expr {
	failed := promql.Vector(metrics.Requests, append(m, promql.Re(metrics.LabelOutcome, slo.FailedOutcomes))...)
	return promql.Div(promql.Sum(by, promql.Rate(failed, window)), above(ended(by, window, m...), 0))
}

// failsFive returns the share of each replica's requests that fail, if five fail within one of the windows. The
// shortest such window counts. In the window of an hour, one of the five requests must fail within the last five
// minutes. Because a rate extrapolates, 4.5 counts as five.
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

// failsAlone returns the share of a replica's requests that fail, if it is more than a twentieth, and the other replicas of its model
// together fail less than a tenth of that, both within ten minutes and within the last two.
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

// hotReplica returns the share of a model's requests that arrive at a replica with a queue. Another replica of its role must have no queue,
// and get less than a third as many requests, or two thirds of its own usual share. A replica that has just started does not count.
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

// onTheWay returns how much later first tokens are at a model's gateway than at its engines. The difference must be
// larger than the time at the engines.
func onTheWay(window time.Duration) promql.Expr {
	engines := promql.Sum(modelLabels, promql.Vector(meanIn(window), ofStage(metrics.StageFirstToken)))
	late := promql.Sub(mean(metrics.TimeToFirstToken, modelLabels, window, gatewayRole()), engines)
	return both(promql.Gt(late, promql.Call("clamp_min", engines, promql.Num(0.1))), atLeast(10, window))
}

// probedLate returns how much later first tokens of synthetic requests are at a gateway than at the engines of its model, if the difference
// is more than half of their time at the gateway.
func probedLate() promql.Expr {
	took := promql.Max(placeLabels, promql.Vector(metrics.ProbeRecentFirstToken))
	engines := promql.Max(atPage, promql.Vector(metrics.EngineInfo))
	direct := promql.Avg(namedModel, promql.And(took, engines, promql.On(atPage...)))
	late := promql.Sub(promql.Unless(took, engines, promql.On(atPage...)), direct, promql.On(namedModel...).ManyToOne())
	return promql.Max(modelLabels, withNamespace(promql.Gt(above(late, 0.1), times(0.5, took))))
}

// slowAtSteps returns the time between tokens of each replica whose steps take at least a given multiple of its peers'
// time.
func slowAtSteps(times float64) promql.Expr {
	slow := above(promql.Vector(metrics.RecordedSkew, promql.Eq(metrics.LabelReason, skewStep)), times)
	return promql.And(promql.Max(replicaLabels, promql.Vector(metrics.RecordedReplicaTime, ofStage(metrics.StageNextToken))), slow,
		promql.On(replicaLabels...))
}

// lonelyReplica returns the slowest replica of a stage. It must take at least three times as long as the best replica,
// and at most half of the replicas may do so.
func lonelyReplica(stage string) promql.Expr {
	slow := promql.Max(replicaLabels, promql.Vector(metrics.RecordedReplicaSlow, ofStage(stage)))
	return promql.And(promql.TopK(1, modelLabels, slow),
		promql.Le(promql.CountBy(modelLabels, slow), times(0.5, promql.CountBy(modelLabels, promql.Vector(metrics.RecordedReplicaTime,
			ofStage(stage))))), promql.On(modelLabels...))
}
