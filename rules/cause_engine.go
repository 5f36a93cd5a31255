package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// The causes of these alerts are in the engine process: it is gone, makes no progress, or is starting.
var (
	ModelDown = &Alert{
		Name:     "LLMModelDown",
		Branch:   Engine,
		Expr:     promql.Or(noneAnswers(), promql.Vector(metrics.RecordedVanished)),
		Severity: slo.Page,
		For:      2 * minute,
		Scope:    []string{metrics.LabelModel},
		DependsOn: []Quiet{
			{ExporterFleetDown, []string{metrics.LabelCluster}},
			{ModelOnFailedGPU, wholeModel},
		},
		Explains: []*Alert{FastBurn, SlowBurn},
		Replaces: true,
		Summary: "{{ if lt $value 0.0 }}It is unknown whether requests are answered: the exporter" + atNode + " is gone" +
			"{{ else }}No request is answered: no engine {{ if gt $value 0.0 }}is left{{ else }}serves the model{{ end }}{{ end }}",
		Promised: true,
		Description: "{{ if lt $value 0.0 }}It is unknown whether its engines serve requests. Send the model a request: if it answers, restart the " +
			"exporter; if not, look at the node." +
			"{{ else }}Every engine that served it in the last hour fails to answer, or is gone. " + retire + "{{ end }}",
		ExplainedBy: "crash_loop",
		Dashboard:   IncidentDashboard,
	}
	EngineDown = &Alert{
		Name:   "LLMEngineDown",
		Branch: Engine,
		Expr: promql.Unless(promql.OrOn(knownEngines(notUp()), notUp(), promql.On(pageLabels...)),
			promql.Vector(metrics.RecordedGateway), promql.On(pageLabels...)),
		Severity: slo.Ticket,
		For:      5 * minute,
		Scope:    []string{metrics.LabelServer},
		DependsOn: []Quiet{
			{ModelDown, modelLabels},
			{ExporterFleetDown, []string{metrics.LabelCluster}},
		},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "Engine " + theEngine + " is down",
		Description: "The engine's metrics cannot be read, or show that it has no worker. The other replicas take its load, so expect queueing.",
		Split: []Evidence{{"Reason", promql.CountBy([]string{metrics.LabelReason},
			promql.Vector(metrics.EngineUp, same(pageLabels...)...)), LabelledBy("", metrics.LabelReason)}, xidsOfEngine},
		Dashboard: EngineDashboard,
	}
	ModelStalled = &Alert{
		Name:   "LLMModelStalled",
		Branch: Engine,
		Expr: promql.Or(promql.Ge(promql.Div(
			promql.Sum(modelLabels, promql.Unless(promql.Vector(metrics.RecordedStalled),
				firing(ModelOnFailedGPU.Name, promql.Ne(metrics.LabelInstance, "")), promql.On(replicaLabels...))),
			promql.CountBy(modelLabels, promql.Max(replicaLabels, shown(metrics.EngineInfo, 0)))), promql.Num(0.5)), swallowed()),
		Severity:    slo.Page,
		Scope:       []string{metrics.LabelModel},
		DependsOn:   []Quiet{{ModelOnFailedGPU, wholeModel}},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Replaces:    true,
		Summary:     "Requests hang at {{ $value | humanizePercentage }} of the replicas",
		Promised:    true,
		Description: "These replicas have requests but compute nothing. They may share a request that hangs them, a full KV cache, a release, storage or the network.",
		ExplainedBy: strandedCacheClue,
		Split: []Evidence{{"Stalled", promql.CountBy([]string{metrics.LabelInstance, metrics.LabelPod, metrics.LabelServer},
			promql.Vector(metrics.RecordedStalled, sameModel()...)), foundEngine}},
		Dashboard: IncidentDashboard,
	}
	EngineStalled = &Alert{
		Name:        "LLMEngineStalled",
		Branch:      Engine,
		Expr:        promql.Vector(metrics.RecordedStalled),
		Severity:    slo.Page,
		Scope:       []string{metrics.LabelModel, metrics.LabelServer},
		DependsOn:   []Quiet{{ModelStalled, modelLabels}, {ModelOnFailedGPU, replicaLabels}},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "Requests hang at {{ if lt $value 1.0 }}{{ $value | humanizePercentage }} of the ranks of {{ end }}engine " + theEngine,
		Promised:    true,
		Description: "The engine has requests and completes none, although its health endpoint may answer 200.",
		ExplainedBy: strandedCacheClue,
		OfEngine:    true,
		Split: []Evidence{
			{
				"Ranks without progress", promql.And(above(perRank(metrics.EngineStalled), 0),
					above(promql.CountBy(nil, perRank(metrics.RequestsRunning)), 1), promql.On()),
				"rank " + LabelledBy("", metrics.LabelDPRank),
			},
			{"No progress for", above(promql.Max(nil, promql.Vector(metrics.EngineStalled, same(replicaLabels...)...)), 0), Duration},
		},
		Dashboard: IncidentDashboard,
	}
	EngineCrashLoop = &Alert{
		Name:   "LLMEngineCrashLoop",
		Branch: Engine,
		Expr: promql.Or(promql.OrOn(ofGateways(promql.Vector(metrics.RecordedRestarts)), promql.Vector(metrics.RecordedRestarts),
			promql.On(pageLabels...)),
			reason("stalls", promql.Ge(stalls(6*hour), promql.Num(3)))),
		Severity: slo.Ticket,
		Scope:    []string{metrics.LabelServer},
		Explains: []*Alert{FastBurn, SlowBurn},
		Summary: `{{ if eq $labels.role "gateway" }}Gateway{{ else }}Engine{{ end }} ` + theEngine +
			` {{ if eq $labels.reason "stalls" }}stood still{{ else }}restarted{{ end }} {{ $value | humanize }} times within six hours`,
		Description: `{{ if eq $labels.reason "stalls" }}The engine resumed by itself each time. A standstill pages only if it lasts four minutes. ` +
			`Save its stacks during the next standstill.` +
			`{{ else }}Each restart drops all requests, and the engine must load its model again. First of all, find out why the previous process died.{{ end }}`,
		Split:     []Evidence{xidsOfEngine},
		Dashboard: EngineDashboard,
	}
)

// xidsOfEngine lists the XIDs of the last hour on the GPUs of the alert's engine. Any XID, also one that needs no service,
// may be why the engine's process died.
var xidsOfEngine = Evidence{"XIDs of its GPUs in the last hour", promql.CountBy([]string{metrics.LabelXID},
	promql.And(above(promql.Increase(promql.Vector(metrics.GPUXIDErrors), hour), 0),
		promql.Over("last_over_time", promql.Vector(metrics.EngineGPUInfo, same(pageLabels...)...), hour),
		promql.On(onGPULabels()...))), LabelledBy("", metrics.LabelXID)}

// retire explains how to remove a model permanently.
const retire = "To retire the model, remove its target, or set may_be_absent: true in one of its objectives."

var engineAlerts = []*Alert{ModelDown, EngineDown, EngineCrashLoop}

// engineUp returns 1 for a metrics endpoint that answers, and 0 for an endpoint that does not answer. An endpoint that
// two exporters read has one result. An engine that loads its model has no result until it has loaded for longer than
// patience. An engine that an overloaded exporter cannot scrape has no result, either.
func engineUp() promql.Expr {
	loading := promql.Vector(metrics.EngineUp, promql.Eq(metrics.LabelReason, "loading"))
	return promql.Max(pageLabels, promql.Or(
		promql.Vector(metrics.EngineUp, promql.NotRe(metrics.LabelReason, "loading|exporter_exhausted")),
		promql.And(loading, promql.Offset(loading, patience))))
}

// patience is how long a model may load before its engine counts as down.
const patience = 20 * minute

// down returns the metrics endpoints that do not answer. notUp returns the endpoints that did not answer at the last
// evaluation.
func down() promql.Expr  { return promql.Equal(engineUp(), promql.Num(0)) }
func notUp() promql.Expr { return promql.Equal(promql.Vector(metrics.RecordedUp), promql.Num(0)) }

// knownEngines adds model labels to a value per metrics endpoint. The model is the one that the engine serves or served
// last, because an engine that is down does not report its model.
func knownEngines(perPage promql.Expr, m ...*promql.Matcher) promql.Expr {
	return promql.Mul(promql.Vector(metrics.RecordedServed, m...), perPage, promql.On(pageLabels...).ManyToOne())
}

// crashLoops counts the restarts of the process at each metrics endpoint, if there were at least four within six hours
// or three within an hour. A memory leak may take hours to kill a process.
func crashLoops() promql.Expr {
	return promql.Or(promql.Ge(restartsWithin(6*hour), promql.Num(4)), promql.Ge(restartsWithin(hour), promql.Num(3)))
}

// restartsWithin counts the restarts of the process at each metrics endpoint in a window. Because Prometheus
// extrapolates the count, it may be too high, but never too low.
func restartsWithin(window time.Duration) promql.Expr {
	return promql.Call("floor", promql.Max(pageLabels, promql.Increase(promql.Vector(metrics.EngineRestarts), window)))
}

// answered2m returns the models behind the given metrics endpoints that answered a gateway or a probe within two
// minutes. Such a model still serves, even if its metrics endpoints answer too slowly.
func answered2m(pages promql.Expr) promql.Expr {
	passedOn := above(promql.Sum(modelLabels, promql.Rate(promql.Vector(metrics.Requests, gatewayRole(), good), 2*minute)), 0)
	probed := above(promql.Sum(namedModel, promql.Rate(promql.Vector(metrics.ProbeRequests, answered()), 2*minute)), 0)
	late := promql.CountBy(modelLabels, pages)
	return promql.Or(promql.And(late, passedOn), promql.And(late, probed, promql.On(namedModel...)))
}

// served returns 1 for the model that an engine serves. If the engine does not answer, or its model has lost its
// workers, served returns 0 for the last model. An engine that has unloaded its model counts as serving that model.
func served() promql.Expr {
	now := promql.Unless(promql.Max(inRole(replicaLabels), promql.Vector(metrics.EngineInfo)),
		promql.Equal(promql.Max(inRole(replicaLabels), promql.Vector(metrics.ModelsLoaded)), promql.Num(0)))
	return promql.Or(now, times(0, promql.CountBy(inRole(replicaLabels), promql.Vector(metrics.EngineLastServed))),
		carried(metrics.RecordedServed, now))
}

// unasked returns each model that an engine no longer serves although the engine answers, if no user requested the
// model within the hour.
func unasked() promql.Expr {
	lost := promql.And(promql.Equal(promql.Vector(metrics.RecordedServed), promql.Num(0)), promql.Equal(promql.Vector(metrics.RecordedUp),
		promql.Num(1)), promql.On(pageLabels...))
	return promql.Unless(lost, asked(), promql.On(modelLabels...))
}

// asked returns each model that users requested within the hour.
func asked() promql.Expr {
	mean := func(f *metrics.Family) promql.Expr { return promql.Over("avg_over_time", promql.Vector(f), hour) }
	// The factor subtracts a fifth more than the probes, because the two counters are not read at the same time.
	return above(promql.Sum(modelLabels, promql.Or(mean(metrics.RecordedRequests), times(-1.2, mean(metrics.RecordedProbes)))), 0)
}

// carried returns what engines report about themselves (says). For an engine that does not answer, it returns the last
// report, which the exporter remembers as long as the engine is a target. A restarted exporter has forgotten the
// report, so the recorded series replaces it.
func carried(record *metrics.Family, says promql.Expr, m ...*promql.Matcher) promql.Expr {
	onPage := promql.On(pageLabels...)
	return promql.Or(says, promql.CountBy(record.Labels, promql.Vector(metrics.EngineLastServed, m...)),
		promql.And(promql.Unless(promql.Vector(record), says, onPage), promql.Vector(metrics.EngineUp), onPage))
}

// seen returns each metrics endpoint that an exporter read within the hour, and its model, as recorded.
func seen() promql.Expr { return promql.Vector(metrics.RecordedSeen) }

// seenWithinHour is the expression that is recorded for seen. It leaves out gateways, because a gateway serves no model
// itself.
func seenWithinHour() promql.Expr {
	return promql.Max(inRole(replicaLabels), promql.Over("last_over_time", promql.Vector(metrics.EngineInfo), hour))
}

// answersUsers matches engines that answer users. Gateways, caches and prefill engines cannot answer a user by
// themselves.
var answersUsers = promql.NotRe(metrics.LabelRole, metrics.GatewayRole+"|"+metrics.KVCacheRole+"|"+metrics.PrefillRole)

// computes matches all servers that compute answers, and therefore no gateways or caches.
var computes = promql.NotRe(metrics.LabelRole, metrics.GatewayRole+"|"+metrics.KVCacheRole)

// deleted returns 1 for each pod that was deleted on purpose within the hour, and 0 for a pod that failed or was
// evicted.
func deleted() promql.Expr {
	return promql.Min(podLabels, promql.Over("last_over_time", promql.Vector(metrics.PodDeletedOnPurpose), hour))
}

// podLabels identify a pod.
var podLabels = []string{metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelPod}

// expected returns each model on a metrics endpoint that an exporter read within the hour, unless the model was removed
// on purpose. If a configured endpoint disappears while its exporter runs, it was removed from the configuration. A pod
// that was deleted while ready was also removed on purpose. If nothing is recorded about the pod, a model that is now
// served at the endpoint's address or on its GPU has replaced this model. If both models shared the GPU within the
// hour, this does not prove a replacement. A model that an engine loads on demand is left out, because the engine may
// load it again.
func expected() promql.Expr {
	onPage, onPod, onGPU := promql.On(pageLabels...), promql.On(podLabels...), promql.On(onGPULabels()...)
	takenOut := promql.And(promql.Over("last_over_time", promql.Vector(metrics.ConfiguredTarget), hour),
		promql.Vector(metrics.ConfigReloadSuccess), promql.On(asker...))
	answers := promql.Equal(promql.Vector(metrics.RecordedUp), promql.Num(1))
	serves := promql.And(promql.Equal(promql.Vector(metrics.RecordedServed), promql.Num(1)), answers, onPage)
	newcomer := promql.Unless(promql.And(promql.Vector(metrics.EngineGPUInfo), answers, onPage),
		below(promql.Over("min_over_time", promql.Vector(metrics.RecordedGPUShare), hour), 1), onGPU)
	replaced := promql.Unless(promql.Or(promql.And(seen(), serves, promql.On(atPage...)),
		promql.And(promql.Over("last_over_time", promql.Vector(metrics.EngineGPUInfo), hour), newcomer, onGPU)),
		promql.Vector(metrics.RecordedDeleted), onPod)
	onDemand := promql.Vector(metrics.EngineUp, promql.Eq(metrics.LabelReason, "not_loaded"))
	return promql.Unless(promql.Unless(promql.Unless(seen(), promql.Or(takenOut, onDemand), onPage),
		above(promql.Vector(metrics.RecordedDeleted), 0), onPod), replaced, onPage)
}

// settledFor is how long a model must be gone before it counts as vanished.
const settledFor = 3 * minute

// there returns each model that an engine served within a window.
func there(within time.Duration) promql.Expr {
	return promql.CountBy(modelLabels, promql.Over("last_over_time", promql.Vector(metrics.RecordedServed, answersUsers), within))
}

// successorLoads returns models that have lost a metrics endpoint whose successor may be loading. Such a model was
// still served when the loading may have begun. An engine whose model is still unknown is loading in the namespace or
// on the node of the lost endpoint. A pod that an exporter has seen fail has no successor.
func successorLoads() promql.Expr {
	loads := promql.Vector(metrics.EngineUp, promql.Eq(metrics.LabelReason, "loading"))
	unknown := promql.Unless(promql.Unless(loads, promql.Offset(loads, patience)), promql.Vector(metrics.RecordedServed),
		promql.On(pageLabels...))
	lost := promql.Unless(promql.Vector(metrics.RecordedExpected), promql.Vector(metrics.RecordedDeleted), promql.On(podLabels...))
	beside := promql.Or(promql.And(lost, unknown, promql.On(asker...)),
		promql.And(lost, promql.Where(unknown, promql.Ne(metrics.LabelNamespace, "")), promql.On(metrics.LabelCluster, metrics.LabelNamespace)))
	return promql.And(promql.CountBy(modelLabels, beside), there(settledFor+patience), promql.On(modelLabels...))
}

// vanished returns each missed model whose metrics endpoint a running exporter no longer finds, or whose node is gone.
// If the exporter is gone, it is unknown whether the node is gone. The value is then -1, with the exporter as a label,
// for each model that was not read for ten minutes and has not answered a gateway or a probe. If the node still exists,
// its engines most likely do, too.
func vanished() promql.Expr {
	lost := promql.CountBy(modelLabels, promql.Vector(metrics.RecordedExpected, answersUsers))
	unread := func(e promql.Expr) promql.Expr { return promql.And(seen(), e, promql.On(asker...)) }
	unknown := unread(above(promql.Vector(metrics.RecordedUnread), 0))
	nobodyReads := promql.Unless(promql.CountBy(append([]string{metrics.LabelInstance}, modelLabels...), unknown),
		promql.Or(there(10*minute), answered2m(unknown)), promql.On(modelLabels...))
	for _, but := range []promql.Expr{
		there(settledFor), unread(promql.Vector(metrics.RecordedUnread)),
		promql.Vector(metrics.RecordedSuccessor),
	} {
		lost = promql.Unless(lost, but, promql.On(modelLabels...))
	}
	return promql.And(promql.Or(lost, times(-1, nobodyReads)), promql.Vector(metrics.RecordedMissed), promql.On(modelLabels...))
}

// slow keeps the metrics endpoints that time out. A slow metrics endpoint proves nothing about the engine behind it.
func slow(pages promql.Expr) promql.Expr {
	return promql.And(pages, promql.Vector(metrics.EngineUp, promql.Eq(metrics.LabelReason, "timeout")), promql.On(pageLabels...))
}

// noneAnswers returns each model that has no answering metrics endpoint. It leaves out models whose engines answer a
// gateway or a probe although their endpoints are too slow.
func noneAnswers() promql.Expr {
	none := promql.Or(promql.Equal(promql.Vector(metrics.RecordedModelUp), promql.Num(0)), nothingPrefilled())
	return promql.Unless(none, answered2m(slow(promql.Vector(metrics.RecordedServed))))
}

// nothingPrefilled returns 0 for each model that users requested within the hour, whose prefill engines are all down,
// and whose users got no first token for five minutes. If the router lets decode engines compute prompts, users still
// get first tokens, and there is no result.
func nothingPrefilled() promql.Expr {
	down := promql.Equal(promql.Max(modelLabels, knownEngines(promql.Vector(metrics.RecordedUp),
		promql.Eq(metrics.LabelRole, metrics.PrefillRole))), promql.Num(0))
	served := func(window, within time.Duration) promql.Expr {
		return above(promql.Over("max_over_time", promql.Vector(usersServed(window)), within), 1)
	}
	return promql.And(promql.Unless(down, served(recentWindow, pageWindow)), served(30*minute, hour))
}

// sampled is the time between the samples of expressions such as downTime.
const sampled = 15 * time.Second

// downTime returns for how many seconds of the last minute no engine of a model could answer. silent selects the
// engines that do not answer. An engine whose metrics time out, or that loads its model, may be able to answer, so it
// does not count as down.
func downTime(silent promql.Expr, role ...*promql.Matcher) promql.Expr {
	may := promql.And(silent, promql.Vector(metrics.EngineUp, promql.Re(metrics.LabelReason, "timeout|loading|exporter_exhausted")),
		promql.On(pageLabels...))
	nobody := promql.Unless(promql.CountBy(modelLabels, silent), promql.Or(promql.Vector(metrics.EngineInfo, role...), may),
		promql.On(modelLabels...))
	return times(sampled.Seconds(), promql.Sampled("count_over_time", nobody, Interval, sampled))
}

// enginesDown returns the downTime of each missed model. If a model's last engine is gone with its metrics endpoint,
// the result is 60 s.
func enginesDown() promql.Expr {
	gone := above(promql.Vector(metrics.RecordedVanished), 0)
	// After a restart, the exporter does not remember what a silent engine served, so the recorded series replaces its
	// series. The recorded series is used only while the exporter answers, because otherwise the state of the other
	// engines is unknown.
	silent := promql.Or(promql.Vector(metrics.EngineLastServed, answersUsers),
		promql.And(promql.Equal(promql.Vector(metrics.RecordedServed, answersUsers), promql.Num(0)), promql.Vector(metrics.EngineUp),
			promql.On(pageLabels...)))
	return promql.Or(promql.And(downTime(silent, answersUsers), promql.Vector(metrics.RecordedModelUp)),
		promql.Max(modelLabels, promql.Call("clamp", gone, promql.Num(Interval.Seconds()), promql.Num(Interval.Seconds()))))
}

// modelUp returns 1 for each model with a metrics endpoint that answers, and 0 for each other model. A silent pod that
// was deleted on purpose is left out, because it is terminating.
func modelUp() promql.Expr {
	pages := promql.Unless(knownEngines(promql.Vector(metrics.RecordedUp), answersUsers), unasked())
	goes := promql.And(notUp(), above(promql.Vector(metrics.RecordedDeleted), 0), promql.On(podLabels...))
	return promql.Max(modelLabels, promql.Unless(pages, goes, promql.On(pageLabels...)))
}

// missed returns each model that users would miss, because they requested it within the hour. Requests, or the events
// of an objective, show this. It leaves out models that another model has replaced at their metrics endpoint, and
// models that may be absent.
func missed() promql.Expr {
	within := func(window time.Duration, f *metrics.Family, m ...*promql.Matcher) promql.Expr {
		return promql.Over("max_over_time", promql.Vector(f, m...), window)
	}
	// Tokens are used only where requests are not counted.
	generated := promql.Unless(above(promql.Max(modelLabels, within(hour, metrics.RecordedGenerationTokens)), 0),
		promql.CountBy(modelLabels, within(hour, metrics.RecordedRequests)))
	// Only the events of engines are used, because probes and gateways also count events of models whose engines no
	// exporter reads.
	onEngine := []*promql.Matcher{promql.Ne(metrics.LabelRuntime, ""), promql.Ne(metrics.LabelRole, metrics.GatewayRole)}
	counted := func(window time.Duration) promql.Expr {
		return promql.Equal(promql.Max(modelSLO, within(window, metrics.SLOCounted, onEngine...)), promql.Num(1))
	}
	longer := hour + 2*RateWindow.Std() // after the engine is gone, rates still show the last request
	optional := promql.Equal(promql.Max(sloLabels, within(longer, metrics.SLOMayBeAbsent)), promql.Num(1))

	declared := promql.And(counted(hour), promql.Max(sloLabels, within(hour, metrics.SLOInfo, promql.Eq(metrics.LabelOrigin, ""))),
		promql.On(sloLabels...))

	givenAway := promql.CountBy(modelLabels, promql.And(promql.Where(seen(), answersUsers), promql.Vector(metrics.RecordedServed),
		promql.On(pageLabels...)))
	mayBeAbsent := promql.CountBy(modelLabels, promql.And(counted(longer), optional, promql.On(sloLabels...)))
	model := promql.CountBy(modelLabels, promql.Or(asked(), generated, promql.CountBy(modelLabels, declared)))
	for _, but := range []promql.Expr{givenAway, mayBeAbsent} {
		model = promql.Unless(model, but)
	}
	return model
}

// startedCold returns each engine whose start explains why requests wait.
func startedCold() promql.Expr {
	return promql.Equal(promql.Max(replicaLabels, promql.Vector(metrics.EngineCold)), promql.Num(1))
}

// coldFor is how long an engine that has started may compile kernels and fill caches.
const coldFor = 15 * minute

// younger returns the age in seconds of the process at each metrics endpoint, if the age is below a limit. If the start
// time is in the future, because the clock of its host is fast, the age is unknown, and there is no result.
func younger(than time.Duration) promql.Expr {
	age := promql.Sub(promql.Call("time"), promql.Max(pageLabels, promql.Vector(metrics.EngineStartTime)))
	return below(promql.Ge(age, promql.Num(0)), than.Seconds())
}

// stallGroup has the rules about stalls. It runs twice as often as the groups of other causes, because every request is
// lost until a stalled engine is found.
func stallGroup() Group {
	return Group{Name: "llm-cause-stall", Interval: Interval / 2, Records: []Record{
		{Name: metrics.RecordedGPUBusy, Expr: computing()},
		{Name: metrics.RecordedGPUSpins, Expr: usesAlone(busy(10 * minute))},
		{Name: metrics.RecordedStandsStill, Expr: standsStill()},
		{Name: metrics.RecordedStalled, Expr: stalled()},
		{Name: metrics.RecordedAnswersMissing, Expr: unansweredFor2m()},
	}, Alerts: []*Alert{ModelStalled, EngineStalled}}
}

// perRank returns the value of a family for each data-parallel rank of the alert's replica.
func perRank(f *metrics.Family) promql.Expr {
	return promql.Max([]string{metrics.LabelDPRank}, promql.Vector(f, append(same(replicaLabels...), promql.Ne(metrics.LabelDPRank, ""))...))
}

// whole matches series about a whole replica, and no series about one of its ranks.
var whole = []*promql.Matcher{promql.Eq(metrics.LabelDPRank, ""), promql.Eq(metrics.LabelReplica, "")}

// standsStill returns 1 for each replica that makes no progress as a whole. If only some ranks make no progress, it
// returns their share. The exporter reports stalls of which it is certain. If the exporter is not certain that a
// replica without progress has work, a busy GPU that only this replica uses proves it. After a standstill that ended by
// itself, a further standstill within the hour counts only after four minutes.
func standsStill() promql.Expr {
	onPage := promql.On(pageLabels...)
	standing := func(f *metrics.Family, longer float64) promql.Expr {
		return promql.CountBy(replicaLabels, above(promql.Vector(f, whole...), longer))
	}
	ranks := func(f *metrics.Family) promql.Expr {
		return promql.Or(promql.Vector(f, promql.Ne(metrics.LabelDPRank, "")), promql.Vector(f, promql.Ne(metrics.LabelReplica, "")))
	}
	share := promql.Div(promql.CountBy(replicaLabels, promql.CountBy(rankLabels, above(ranks(metrics.EngineStalled), 0))),
		promql.CountBy(replicaLabels, promql.CountBy(rankLabels, ranks(metrics.RequestsRunning))))
	computes := promql.Or(promql.And(standing(metrics.EngineWithoutProgress, 0), promql.Vector(metrics.RecordedGPUBusy), onPage),
		promql.And(standing(metrics.EngineWithoutProgress, 300), promql.Vector(metrics.RecordedGPUSpins), onPage))
	again := promql.Unless(above(stalls(hour), 0), standing(metrics.EngineWithoutProgress, 240), onPage)
	return promql.Unless(promql.Max(replicaLabels, promql.Or(standing(metrics.EngineStalled, 0), computes, share)), again, onPage)
}

// stalls counts for each metrics endpoint the standstills in a window that ended by themselves.
func stalls(window time.Duration) promql.Expr {
	return promql.Max(pageLabels, promql.Over("resets", promql.Vector(metrics.EngineStalled, whole...), window))
}

// stalled returns the replicas that make no progress. A replica stays stalled while its metrics endpoint cannot be read
// in time. It also stays stalled while an exporter that has just started sees requests but no progress.
func stalled() promql.Expr {
	onPage := promql.On(pageLabels...)
	unread := promql.Vector(metrics.EngineUp, promql.Eq(metrics.LabelReason, "timeout"))
	unseen := promql.And(
		below(promql.Sub(promql.Vector(metrics.EngineLastProgress, whole...), promql.Vector(metrics.ConfigReloadTime), promql.On(asker...).
			ManyToOne()), 60),
		promql.Or(above(promql.Vector(metrics.RequestsRunning), 0), above(promql.Vector(metrics.RequestsWaiting), 0)), onPage)
	before := func(d time.Duration) promql.Expr {
		return promql.Over("last_over_time", promql.Vector(metrics.RecordedStalled), d)
	}
	return promql.Max(replicaLabels, promql.Or(promql.Vector(metrics.RecordedStandsStill), promql.And(before(2*minute), unread, onPage),
		promql.And(before(5*minute), unseen, onPage)))
}

// computing returns each metrics endpoint whose engine is the only user of a GPU that was busy at every scrape of a
// minute. In addition, requests must run or wait, or the GPU must draw idle power. Otherwise another process may use
// the GPU, so a stall is detected only after ten minutes.
func computing() promql.Expr {
	requests := promql.Or(above(promql.Vector(metrics.RequestsRunning), 0), above(promql.Vector(metrics.RequestsWaiting), 0))
	return promql.Or(promql.And(usesAlone(busy(minute)), requests, promql.On(pageLabels...)),
		usesAlone(promql.And(busy(minute), atIdlePower())))
}

// shown returns the value of a family some time ago. If the metrics endpoint could not be read then, shown returns the
// last value of the two minutes before.
func shown(f *metrics.Family, ago time.Duration, m ...*promql.Matcher) promql.Expr {
	return promql.Over("last_over_time", promql.Offset(promql.Vector(f, m...), ago), 2*minute)
}

// always returns the lowest value in a window of each replica or rank, if the value was above zero at every scrape of
// the window, including both ends.
func always(by []string, f *metrics.Family, d time.Duration) promql.Expr {
	return promql.And(
		above(promql.Sum(by, promql.Over("min_over_time", promql.Vector(f), d)), 0),
		above(promql.Sum(by, shown(f, d)), 0))
}

// hostBound returns for what share of the time each replica used the busiest of its GPUs, if the share is below a half.
// A GPU that is so often idle waits for the CPU between steps. Requests must have run at every scrape, and tokens must
// come later than usual. Engines that have just started are left out, because they compile kernels. Prefill engines are
// left out, because they wait for decode engines.
func hostBound(window time.Duration) promql.Expr {
	used := promql.Max(onGPULabels(), promql.Over("avg_over_time", promql.Vector(metrics.GPUUtilization), window))
	busiest := promql.Max(replicaLabels, promql.Mul(promql.Max(onGPU(replicaLabels), promql.Vector(metrics.EngineGPUInfo)), used,
		promql.On(onGPULabels()...).ManyToOne()))
	tokens := promql.Rate(promql.Vector(metrics.GenerationTokens, answersUsers), window)
	idle := both(below(busiest, 0.5), always(replicaLabels, metrics.RequestsRunning, window), above(promql.Sum(replicaLabels, tokens), 0))
	return promql.Unless(promql.Unless(idle, below(against("token_time"), 1.1), promql.On(modelLabels...)),
		younger(coldFor), promql.On(pageLabels...))
}

// good matches the outcomes of requests that got a complete answer.
var good = promql.Re(metrics.LabelOutcome, "stop|length|repetition|success")

// answersWindow is the window in which answers are counted. The mean answer takes at most a third of it (see
// answersDue), so even a batch of answers that begin and end together ends within the window.
const answersWindow = 2 * minute

// answersDue returns how many answers each model should give in answersWindow, judging by the last hour. It has a
// result if this is at least twenty answers, and an answer takes less than a third of the window on average.
func answersDue() promql.Expr {
	answers := ofUsers(promql.Rate(promql.Vector(metrics.Requests, good), hour), hour, 0)
	return promql.And(promql.Ge(times(answersWindow.Seconds(), answers), promql.Num(20)),
		below(mean(metrics.RequestDuration, modelLabels, hour), answersWindow.Seconds()/3))
}

// unansweredFor2m returns answersDue for each model that gave users no answer. One answer more than the probes got is
// allowed, because the two counters may not count a probe in the same window.
func unansweredFor2m() promql.Expr {
	ofUsers := promql.Or(promql.Rate(promql.Vector(metrics.Requests, good), answersWindow), times(-1, probes(answersWindow)))
	return promql.And(answersDue(), below(promql.Sum(modelLabels, ofUsers), 2/answersWindow.Seconds()))
}

// swallowed returns 1 for each model whose engines are up but give no answers, while its gateways count at least half
// of the usual number of good answers. If a gateway counts first tokens, the answers come from other engines, and there
// is no result.
func swallowed() promql.Expr {
	perSecond := func(v promql.Expr) promql.Expr { return promql.Sum(modelLabels, promql.Rate(v, answersWindow)) }
	asked := promql.Ge(times(2*answersWindow.Seconds(), perSecond(promql.Vector(metrics.Requests, gatewayRole(), good))),
		promql.Vector(metrics.RecordedAnswersMissing))
	elsewhere := above(perSecond(promql.CountOf(metrics.TimeToFirstToken, gatewayRole())), 0)
	return promql.And(promql.Equal(promql.Vector(metrics.RecordedModelUp), promql.Num(1)), promql.Unless(asked, elsewhere))
}

// usesAlone returns how many of the given GPUs the engine at each metrics endpoint uses alone.
func usesAlone(gpus promql.Expr) promql.Expr {
	gpu := onGPULabels()
	onGPU := promql.Max(append([]string{metrics.LabelGPUUUID}, pageLabels...), promql.Vector(metrics.EngineGPUInfo))
	alone := promql.And(gpus, promql.Equal(promql.CountBy(gpu, onGPU), promql.Num(1)))
	return promql.CountBy(pageLabels, promql.And(onGPU, alone, promql.On(gpu...)))
}

// busy returns each GPU that was busy at every scrape of a window, including both ends.
func busy(window time.Duration) promql.Expr {
	now := promql.Vector(metrics.GPUUtilization)
	return promql.And(above(promql.Max(onGPULabels(), promql.Over("min_over_time", now, window)), 0.9),
		above(promql.Max(onGPULabels(), promql.Offset(now, window)), 0.9))
}

// atIdlePower returns each GPU whose highest power in the last minute is less than half of its highest power in the
// last hour.
func atIdlePower() promql.Expr {
	drawn := func(window time.Duration) promql.Expr {
		return promql.Max(onGPULabels(), promql.Over("max_over_time", promql.Vector(metrics.GPUPower, promql.Eq(metrics.LabelScope, "gpu")),
			window))
	}
	return promql.Lt(drawn(minute), times(0.5, drawn(hour)))
}

// cameBack returns the engines that were gone or restarted within the last five minutes.
func cameBack() promql.Expr {
	return promql.Or(promql.And(servedWithin(hour), interrupted(), promql.On(pageLabels...)),
		promql.And(promql.Unless(servedWithin(pageWindow), promql.Vector(metrics.EngineUp), promql.On(pageLabels...)),
			shows(), promql.On(asker...)))
}

// interrupted returns the metrics endpoints that were unreachable, or whose process restarted, within five minutes.
func interrupted() promql.Expr {
	gone := promql.Vector(metrics.EngineUp, promql.Re(metrics.LabelReason, "unreachable|connection_closed"))
	return promql.Or(promql.Over("last_over_time", gone, pageWindow), above(restartsWithin(pageWindow), 0))
}

// shows returns some series from each exporter that answers.
func shows() promql.Expr {
	return promql.Or(promql.Vector(metrics.EngineUp), promql.Vector(metrics.GPUUp))
}

// replicasByRole counts the replicas of each model in each role.
func replicasByRole() promql.Expr {
	return promql.CountBy(inRole(modelLabels), promql.Max(inRole(replicaLabels), promql.Vector(metrics.RequestsRunning, computes)))
}

// fewerReplicas returns the present number of each model's replicas as a share of the usual number, if it is below
// three quarters. The usual number is the upper quartile of the last hour, so extra replicas during a rollout do not
// raise it. If an exporter is gone, its models are left out, because their engines may still serve.
func fewerReplicas() promql.Expr {
	now := promql.Vector(metrics.RecordedReplicasByRole)
	usual := promql.QuantileOver(0.75, now, hour)
	unknown := promql.Unless(servedWithin(causeWindow), shows(), promql.On(asker...))
	left := promql.Min(modelLabels, promql.Div(promql.Or(now, times(0, usual)), usual))
	return promql.Unless(below(left, 0.75), promql.CountBy(modelLabels, unknown))
}

// unscheduled returns for how many seconds of the time to first token the scheduler of each replica does not account.
// This must be more than half of the time to first token.
func unscheduled() promql.Expr {
	return promql.Gt(above(promql.Max(replicaLabels, promql.Vector(metrics.EngineUnscheduled)), 0.1),
		times(0.5, mean(metrics.TimeToFirstToken, replicaLabels, recentWindow)))
}

// learntSlowdown returns the duration of each model's steps as a multiple of the usual duration at the same load.
// Exporters learn the usual duration. The highest value of two minutes is used, because steps may be slow for only part
// of each minute.
func learntSlowdown() promql.Expr {
	return promql.Avg(modelLabels, promql.Over("max_over_time", promql.Vector(metrics.EngineSlowdown), recentWindow))
}

// slowSteps returns the time between tokens of each model as a multiple of the usual time, if more work does not
// explain the difference. Either the engines compute hardly more than usual, or steps take more than 1.5 times as long
// as the additional work explains. A request never adds more to a step than the step would take for this request alone.
// Therefore, a batch of n requests makes a step at most n times as long. If n is the usual batch, k times as many
// requests make the step at most 1/(1-(k-1)n) times as long. An n below 0.1 counts as 0.1. A step that computes a
// prompt is longer by the prompt's uncached tokens. Models with bursts that queue are left out, because bursts make
// steps longer than any mean explains.
func slowSteps() promql.Expr {
	longer := against("token_time")
	bursts := promql.And(queued(), promql.Lt(longer, times(1.5, against("arrivals"))))
	missed := func(hits promql.Expr) promql.Expr { return promql.Sub(promql.Num(1.01), hits) } // prevents a division by zero
	heavier := promql.Div(promql.Mul(against("prompt_tokens"), missed(now("prefix_hits"))), missed(usual("prefix_hits")))
	heavier = promql.Or(heavier, against("computed")) // too few requests have no mean
	batch := promql.Or(promql.Mul(now("running"), promql.Call("clamp_min", heavier, promql.Num(1))), now("running"))
	more := promql.Mul(promql.Sub(against("computed|arrivals"), promql.Num(1)), promql.Call("clamp_min", usual("running"), promql.Num(0.1)))
	slow := promql.Or(below(against("computed|arrivals"), 1.3), above(promql.Mul(longer, promql.Sub(promql.Num(1), more)), 1.5),
		above(promql.Div(longer, promql.Call("clamp_min", batch, promql.Num(1))), 1.5))
	return both(above(longer, 1.5), promql.Unless(slow, bursts))
}

// failInside returns the share of requests that fail in a model's engines, if the share is more than 0.5%. If the
// engines do not count these failures, a gateway's count is used.
func failInside() promql.Expr {
	errors := promql.Vector(metrics.Requests, promql.Eq(metrics.LabelOutcome, string(metrics.OutcomeError)))
	share := promql.Div(promql.Sum(modelLabels, promql.Rate(errors, pageWindow)), above(ended(modelLabels, pageWindow), 0))
	return above(promql.Or(share, failedAtEngines()), 0.005)
}

// servedWithin returns each replica that reported itself within a window.
func servedWithin(window time.Duration, m ...*promql.Matcher) promql.Expr {
	return promql.Max(replicaLabels, promql.Over("last_over_time", promql.Vector(metrics.EngineInfo, m...), window))
}

// stopped returns each engine that served a model within the hour and is down now.
func stopped() promql.Expr {
	return promql.Mul(servedWithin(hour), silentNow(), promql.On(pageLabels...).ManyToOne())
}

// stoppedGateway returns each gateway that served a model within the hour and that was down within the last five minutes.
func stoppedGateway() promql.Expr {
	return promql.And(servedWithin(hour, gatewayRole()), promql.Or(silentNow(), interrupted()), promql.On(pageLabels...))
}

// silentNow returns the metrics endpoints that are down. An endpoint that has timed out only once is left out, because
// its engine may be up.
func silentNow() promql.Expr {
	late := promql.And(promql.Vector(metrics.EngineUp, promql.Eq(metrics.LabelReason, "timeout")),
		above(promql.Over("max_over_time", promql.Vector(metrics.EngineUp), recentWindow), 0), promql.On(pageLabels...))
	return promql.Unless(down(), late, promql.On(pageLabels...))
}

// doubled returns the mean of an expression over the last two minutes, if it is above a limit and at least twice the
// mean of the day before.
func doubled(limit float64, of promql.Expr) promql.Expr {
	now := promql.Over("avg_over_time", of, recentWindow)
	return promql.Unless(above(now, limit), promql.Gt(times(2, promql.Over("avg_over_time", promql.Offset(of, hour), day)), now))
}
