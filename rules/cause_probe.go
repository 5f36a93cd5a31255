package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Only clients notice the causes of these alerts: a model does not answer although its metrics endpoint does, or there
// is a fault between client and engine.
var (
	ProbeFailing = &Alert{
		Name:     "LLMProbeFailing",
		Branch:   Engine,
		Expr:     withNamespace(promql.Vector(metrics.RecordedUnanswered)),
		Severity: slo.Page,
		Scope:    []string{metrics.LabelModel, metrics.LabelServer},
		DependsOn: []Quiet{
			{ModelDown, modelLabels},
			{ModelStalled, modelLabels},
			{ModelOnFailedGPU, modelLabels},
			{EngineStalled, []string{metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelModel, metrics.LabelServer}},
		},
		Keep:     10 * minute,
		Explains: []*Alert{FastBurn, SlowBurn},
		Summary:  "Synthetic requests{{ with $labels.server }} to {{ . }}{{ end }} get no answer",
		Description: "The engine's metrics look fine, yet a synthetic request gets no answer. Send a request straight to " +
			"the engine. If the engine answers, look at the gateway.",
		ExplainedBy: "gateway_.+|left_gpu|unloaded|probes_wait",
		Split: []Evidence{
			{
				"Outcomes in 10 minutes", above(promql.Call("round", promql.Sum([]string{metrics.LabelOutcome},
					promql.Increase(promql.Vector(metrics.ProbeRequests, sameAddress()...), causeWindow))), 0),
				LabelledBy(Number, metrics.LabelOutcome),
			},
		},
		Dashboard: IncidentDashboard,
	}
	ProbeDisagrees = &Alert{
		Name:      "LLMProbeDisagrees",
		Branch:    Routing,
		Expr:      withNamespace(latePerProbe()),
		Severity:  slo.Ticket,
		For:       10 * minute,
		Scope:     []string{metrics.LabelModel, metrics.LabelServer},
		DependsOn: []Quiet{{ProbeFailing, probedLabels}},
		Explains:  []*Alert{FastBurn, SlowBurn},
		Summary: "First tokens{{ with $labels.server }} from {{ . }}{{ end }} reach a client much later than the engine " +
			"computes them",
		Description: "The network, a gateway or a buffer delays answers. Objectives on the engine's own latencies do not show this.",
		Split: []Evidence{
			{"First token, to the client", promql.Max(nil, promql.Vector(metrics.RecordedProbeTTFT, sameAddress()...)), Duration},
			{"First token, in the engine", mean(metrics.TimeToFirstToken, nil, probeWindow, sameModel()...), Duration},
		},
		Dashboard: OptionalDashboard,
	}
	ProbeBroken = &Alert{
		Name:   "LLMProbeBroken",
		Branch: Exporter,
		Expr: withNamespace(promql.Unless(promql.Unless(promql.Unless(unlessAsleep(promql.Max(probeLabels, promql.Unless(
			above(promql.Sum(probeLabels, promql.Increase(promql.Vector(metrics.ProbeRequests), 15*minute)), 0),
			above(promql.Sum(probeLabels, promql.Increase(promql.Vector(metrics.ProbeRequests, answered()), 15*minute)), 0)))),
			promql.Vector(metrics.RecordedUnanswered), promql.On(metrics.LabelCluster, metrics.LabelModel, metrics.LabelServer)),
			promql.Equal(promql.Max(atPage, promql.Vector(metrics.EngineUp)), promql.Num(0)), promql.On(atPage...)), // LLMEngineDown reports this
			promql.Equal(promql.Max(probeLabels, promql.Vector(metrics.ProbeEngineAsked)), promql.Num(0)), promql.On(probeLabels...))), // not probed
		Severity: slo.Ticket,
		For:      5 * minute,
		Scope:    []string{metrics.LabelModel, metrics.LabelServer},
		DependsOn: []Quiet{
			{ModelDown, modelLabels},
			{ExporterFleetDown, []string{metrics.LabelCluster}},
		},
		Summary: "{{ with $labels.probe }}Probe {{ . }}{{ else }}A probe{{ end }}" + atServer +
			" gets no answers, so it cannot detect a fault",
		Description: "The model may be fine: the probe is refused, or all probes{{ with $labels.instance }} of {{ . }}{{ end }} fail alike. " +
			"Look at its outcomes, its configuration and the exporter's network.",
		Split: []Evidence{{
			"Outcomes in 15 minutes", above(promql.Sum([]string{metrics.LabelOutcome},
				promql.Increase(promql.Vector(metrics.ProbeRequests, same(probeLabels...)...), 15*minute)), 0),
			LabelledBy(Number, metrics.LabelOutcome),
		}},
		Dashboard: OptionalDashboard,
	}
)

// These label sets identify a probe, its target, or the exporter that sends it.
var (
	probeLabels  = append([]string{metrics.LabelCluster, metrics.LabelInstance}, metrics.ProbeLabels...)
	placeLabels  = []string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelModel, metrics.LabelServer}
	probedLabels = []string{metrics.LabelCluster, metrics.LabelModel, metrics.LabelServer}
	asker        = []string{metrics.LabelCluster, metrics.LabelInstance}
	atPage       = append([]string{metrics.LabelServer}, asker...)
	namedModel   = []string{metrics.LabelCluster, metrics.LabelModel} // probes have no namespace
)

// broken matches the outcomes of requests to which a server replied with an incomplete answer.
func broken() *promql.Matcher {
	return promql.Either(metrics.LabelOutcome, string(metrics.ProbeServerError+"|"+metrics.ProbeEmpty+"|"+metrics.ProbeInStreamError+"|"+
		metrics.ProbeTruncated))
}

// probeWindow is long enough for about thirty probes.
const probeWindow = 30 * time.Minute

func sameAddress() []*promql.Matcher { return same(probedLabels...) }

// answered matches the outcomes of requests that the model answered.
func answered() *promql.Matcher {
	return promql.Either(metrics.LabelOutcome, string(metrics.ProbeOK)+"|"+string(metrics.ProbeWrongAnswer))
}

// probeGroup runs twice a minute, so that a hanging model pages within two and a half minutes. The last good request
// began just before the hang. The next request begins 66 s later (a minute and a tenth) and times out after 10 s. A
// second later, another request begins, which takes 10 s and confirms the failure. This makes 87 s. A scrape shows the
// failure within 30 s, and an evaluation reads it within another 30 s. This makes 147 s.
func probeGroup() Group {
	return Group{
		Name: "llm-cause-probe", Interval: Interval / 2,
		Records: []Record{
			{Name: metrics.RecordedProbeFailures, Expr: probeFailures()},
			{Name: metrics.RecordedServing, Expr: serving()},
			{Name: metrics.RecordedProbed, Expr: probedIn()},
			{Name: metrics.RecordedUnanswered, Expr: unanswered()},
		},
		Alerts: []*Alert{ProbeFailing},
	}
}

// unanswered returns each address at which a model answers nobody: two consecutive requests of one exporter failed, or
// one request of each of two exporters, and no other exporter gets an answer there. A single exporter must be credible.
// It is if a server replied, or if its probes of other addresses have been answered for two minutes, because these
// probes may still show an exporter's own fault for a minute after its end. An exporter that probes only one address
// must be able to read the metrics endpoints of the model's engines. If none of an exporter's requests to several
// addresses gets a reply, its own network is the first suspect. An engine whose metrics endpoint is also down is left
// out, because it has its own alert, and other engines take the load. A gateway that is down is not left out, because
// its model is unreachable.
func unanswered() promql.Expr {
	failed := promql.Vector(metrics.RecordedProbeFailures)
	addresses := func(e promql.Expr) promql.Expr {
		return promql.CountBy(asker, promql.Max(atPage, e))
	}
	twice := promql.Ge(failed, promql.Num(2))
	replied := above(promql.Sum(placeLabels, promql.Increase(promql.Vector(metrics.ProbeRequests, broken()), pageWindow)), 0)
	credible := promql.Or(
		promql.And(twice, replied, promql.On(placeLabels...)),
		promql.And(twice, addresses(promql.Equal(promql.Over("max_over_time", failed, recentWindow), promql.Num(0))), promql.On(asker...)),
		promql.And(promql.And(twice, promql.Equal(addresses(failed), promql.Num(1)), promql.On(asker...)),
			promql.Vector(metrics.RecordedServing), promql.On(namedModel...)))
	shared := promql.Vector(metrics.RecordedProbeFailures, promql.NotRe(metrics.LabelServer, metrics.Loopback))
	several := promql.And(above(shared, 0), promql.Ge(promql.CountBy(probedLabels, above(shared, 0)), promql.Num(2)),
		promql.On(probedLabels...))
	nobody := promql.Unless(promql.Or(credible, several), promql.Equal(shared, promql.Num(0)), promql.On(probedLabels...))

	answeredBefore := above(promql.Max(placeLabels, promql.Over("max_over_time", promql.Vector(metrics.ProbeRequests, answered()), day)), 0)
	down := promql.Unless(promql.Equal(promql.Min(atPage, recentlyUp()), promql.Num(0)), promql.Vector(metrics.RecordedGateway),
		promql.On(atPage...))
	return unlessAsleep(promql.Unless(
		promql.And(nobody, answeredBefore), down, promql.On(atPage...)))
}

// probeFailures counts the consecutive failed requests at each address. It leaves out engines at which users wait, too:
// engines that work but had a queue within two minutes, or whose first tokens take half as long as the default timeout
// of probes. Objectives already count such waits, so these failures prove nothing.
func probeFailures() promql.Expr {
	computes := func(f *metrics.Family) promql.Expr {
		return above(promql.Sum(atPage, promql.Rate(promql.Vector(f), recentWindow)), 0)
	}
	queues := promql.And(promql.Or(computes(metrics.GenerationTokens), computes(metrics.EngineSteps)),
		promql.Or(above(promql.Sum(atPage, promql.Over("max_over_time", promql.Vector(metrics.RequestsWaiting), recentWindow)), 0),
			above(mean(metrics.TimeToFirstToken, atPage, recentWindow), 5)))
	return promql.Unless(promql.Max(placeLabels, promql.Vector(metrics.ProbeFailures)), queues, promql.On(atPage...))
}

// recentlyUp returns 1 for each metrics endpoint that answered at every scrape of two minutes, and 0 for each other
// endpoint. It looks back two minutes because the last result of a probe may be a minute older than the engine's
// return.
func recentlyUp() promql.Expr {
	return promql.Over("min_over_time", promql.Vector(metrics.EngineUp), 2*minute)
}

// serving counts the engines of each model that were up and awake for two minutes.
func serving() promql.Expr {
	settled := promql.And(promql.Equal(promql.Min(pageLabels, recentlyUp()), promql.Num(1)),
		promql.Max(pageLabels, promql.Offset(promql.Vector(metrics.EngineUp), 2*minute)))
	awake := promql.Unless(promql.Max(replicaLabels, promql.Vector(metrics.EngineInfo)),
		promql.Equal(promql.Max(replicaLabels, promql.Over("max_over_time", promql.Vector(metrics.Sleeping), 2*minute)), promql.Num(1)))
	return promql.CountBy(namedModel, promql.And(awake, settled, promql.On(pageLabels...)))
}

// unlessAsleep leaves out models that had an engine within the day but have no serving engine now, because they are
// down, asleep or scaled to zero.
func unlessAsleep(e promql.Expr) promql.Expr {
	known := promql.CountBy(namedModel, promql.Over("last_over_time", promql.Vector(metrics.RecordedReplicas), day))
	return promql.Unless(e, promql.Unless(known, promql.Vector(metrics.RecordedServing)), promql.On(namedModel...))
}

// withNamespace adds the namespace of a probe's target, so that all alerts about a model are grouped in one
// notification.
func withNamespace(e promql.Expr) promql.Expr {
	return promql.Mul(e, promql.Vector(metrics.RecordedProbed), promql.On(placeLabels...).ManyToOne(metrics.LabelNamespace))
}

// probedIn returns 1 for each probed address, with the namespace of the engine at that address. If the probe does not
// have this namespace, the result has the namespace of the model's engines, if all of them are in the same one.
func probedIn() promql.Expr {
	one := func(by []string, e promql.Expr) promql.Expr {
		return promql.Add(times(0, promql.CountBy(by, e)), promql.Num(1))
	}
	known := one(append([]string{metrics.LabelNamespace}, placeLabels...), promql.Vector(metrics.ProbeFailures,
		promql.Ne(metrics.LabelNamespace, "")))
	spaces := promql.Max(modelLabels, promql.Over("last_over_time", promql.Vector(metrics.EngineInfo), causeWindow))
	only := promql.Unless(spaces, above(promql.CountBy(namedModel, spaces), 1), promql.On(namedModel...))
	none := one(namedModel, promql.Vector(metrics.ProbeFailures))
	ofModel := promql.Mul(one(placeLabels, promql.Vector(metrics.ProbeFailures)), promql.OrOn(only, none, promql.On(namedModel...)),
		promql.On(namedModel...).ManyToOne(metrics.LabelNamespace))
	return promql.OrOn(known, ofModel, promql.On(placeLabels...))
}

// probes returns the answered probes of each model per second.
func probes(window time.Duration) promql.Expr {
	return promql.Sum(modelLabels, withNamespace(promql.Rate(promql.Vector(metrics.ProbeRequests, answered()), window)))
}

func inProbeWindow(e promql.Expr) promql.Expr {
	return promql.Sum(placeLabels, promql.Increase(e, probeWindow))
}

// toClients returns the median time to first token of the probes of each address. It needs at least ten probes, because
// a few that waited for a restart do not prove that the path to clients is slow.
func toClients() promql.Expr {
	buckets := promql.Sum(append([]string{"le"}, placeLabels...), promql.Increase(promql.BucketsOf(metrics.ProbeTimeToFirstToken),
		probeWindow))
	return promql.And(promql.Call("histogram_quantile", promql.Num(0.5), buckets),
		promql.Ge(inProbeWindow(promql.CountOf(metrics.ProbeTimeToFirstToken)), promql.Num(10)))
}

// probesWait returns how many seconds synthetic requests to each engine wait for their turn, if this is more than a
// second and the model's GPU is busy. Models that report their queue are left out.
func probesWait() promql.Expr {
	wait := above(promql.Max(placeLabels, promql.Vector(metrics.ProbeQueueing)), 1)
	works := above(promql.Max(modelLabels, promql.Mul(servedOn(modelLabels), promql.Max(onGPULabels(), promql.Over("avg_over_time",
		promql.Vector(metrics.GPUUtilization), pageWindow)), promql.On(onGPULabels()...).ManyToOne())), 0.8)
	atEngine := promql.Mul(wait, promql.Max(append([]string{metrics.LabelNamespace}, atPage...),
		promql.Vector(metrics.EngineUp)), promql.On(atPage...).ManyToOne(metrics.LabelNamespace))
	return promql.Unless(promql.And(atEngine, works, promql.On(modelLabels...)),
		promql.Max(modelLabels, promql.Vector(metrics.RequestsWaiting)), promql.On(modelLabels...))
}

// latePerProbe returns each address at which clients get first tokens late. A client waits for longer than three times
// the time that the engine reports plus a tenth of a second, or gets most answers in one piece. The comparison uses the
// engine at the address or, behind a gateway, all engines of the model.
func latePerProbe() promql.Expr {
	client := promql.Vector(metrics.RecordedProbeTTFT)
	late := func(client promql.Expr, engine []string) promql.Expr {
		took := promql.Avg(engine, promql.Over("avg_over_time", promql.Vector(metrics.RecordedReplicaTime, ofStage(metrics.StageFirstToken)),
			probeWindow))
		limit := promql.Add(times(3, took), promql.Num(0.1))
		return promql.Gt(client, limit, promql.On(engine...).ManyToOne())
	}
	held := above(promql.Div(promql.Ge(inProbeWindow(promql.Vector(metrics.ProbeBuffered)), promql.Num(10)),
		inProbeWindow(promql.Vector(metrics.ProbeRequests, answered()))), 0.5)
	return promql.Or(
		late(client, atPage),
		late(promql.Unless(client, promql.Max(atPage, promql.Vector(metrics.EngineUp)), promql.On(atPage...)), namedModel),
		held)
}
