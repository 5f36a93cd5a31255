package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Causes in the engine process: it is gone, wedged, or starting.
var (
	ModelDown = &Alert{
		Name:     "LLMModelDown",
		Branch:   Engine,
		Expr:     promql.Equal(promql.Max(modelLabels, knownEngines(engineUp())), promql.Num(0), nil),
		Severity: slo.Page,
		For:      2 * minute,
		Scope:    []string{metrics.LabelModel},
		// Of a model that has replicas elsewhere, each alert has an instance: only the one without mutes this.
		DependsOn:   []Quiet{{ModelOnFailedGPU, append([]string{metrics.LabelInstance}, modelLabels...)}},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Replaces:    true,
		Summary:     "No engine serves {{ $labels.model_name }}",
		Description: "Every engine that served this model in the last day fails to answer. No request succeeds, and without requests no budget burns: this page stands for it.",
		Dashboard:   IncidentDashboard,
	}
	EngineDown = &Alert{
		Name:     "LLMEngineDown",
		Branch:   Engine,
		Expr:     promql.OrOn(knownEngines(down()), down(), promql.On(pageLabels...)),
		Severity: slo.Ticket,
		For:      5 * minute,
		Scope:    []string{metrics.LabelServer},
		DependsOn: []Quiet{
			{ModelDown, modelLabels},
			{ExporterFleetDown, []string{metrics.LabelCluster}},
		},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "Engine " + theEngine + " does not answer",
		Description: "The exporter cannot read this engine's page. The other replicas carry its load: expect queueing.",
		Split: []Evidence{{"Reason", promql.CountBy([]string{metrics.LabelReason},
			promql.Vector(metrics.EngineUp, same(pageLabels...)...)), LabelledBy("", metrics.LabelReason)}},
		Dashboard: EngineDashboard,
	}
	EngineStalled = &Alert{
		Name:        "LLMEngineStalled",
		Branch:      Engine,
		Expr:        stalled(),
		Severity:    slo.Page,
		For:         3 * minute,
		Scope:       []string{metrics.LabelModel, metrics.LabelServer},
		DependsOn:   []Quiet{{ModelOnFailedGPU, replicaLabels}},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Replaces:    true,
		Summary:     "Engine " + theEngine + " of {{ $labels.model_name }} makes no tokens",
		Description: "Requests wait or run, or its GPU is busy, yet not one token came out for minutes. Health endpoints of a wedged engine still answer 200: do not trust them. Take the replica out of rotation, save its stacks, restart it.",
		Split: []Evidence{
			{"Waiting", promql.Sum(nil, promql.Vector(metrics.RequestsWaiting, same(replicaLabels...)...)), Number},
			{"Running", promql.Sum(nil, promql.Vector(metrics.RequestsRunning, same(replicaLabels...)...)), Number},
			{"KV cache", promql.Max(nil, promql.Vector(metrics.KVCacheUsage, same(replicaLabels...)...)), Percent},
		},
		Dashboard: EngineDashboard,
	}
	EngineCrashLoop = &Alert{
		Name:   "LLMEngineCrashLoop",
		Branch: Engine,
		Expr: promql.Ge(promql.Or(
			promql.Max(pageLabels, promql.Over("changes", promql.Vector(metrics.EngineStartTime), hour)),
			promql.Max(pageLabels, promql.Over("resets", promql.Vector(metrics.GenerationTokens), hour))), promql.Num(3), nil),
		Severity:    slo.Ticket,
		Scope:       []string{metrics.LabelServer},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "Engine " + theEngine + " restarted {{ $value | humanize }} times in an hour",
		Description: "Each start costs a cold model load and drops what it was serving. Read why the previous process died before anything else.",
		Dashboard:   EngineDashboard,
	}
	ColdStart = &Alert{
		Name:        "LLMColdStart",
		Branch:      Engine,
		Expr:        startedCold(),
		Severity:    slo.Info,
		Keep:        5 * minute,
		Scope:       []string{metrics.LabelModel, metrics.LabelServer},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "Engine " + theEngine + " of {{ $labels.model_name }} started cold while requests waited",
		Description: "It is less than 15 minutes old: loading, compiling or capturing graphs while users wait. If this follows scaling from zero, keep a warm replica.",
		Dashboard:   EngineDashboard,
	}
)

// engineUp is whether a page answers, once per page even where two exporters read it. An engine that
// loads its model is neither up nor down until it has loaded for longer than patience.
func engineUp() promql.Expr {
	loading := promql.Vector(metrics.EngineUp, promql.Eq(metrics.LabelReason, "loading"))
	return promql.Max(pageLabels, promql.Or(
		promql.Vector(metrics.EngineUp, promql.Ne(metrics.LabelReason, "loading")),
		promql.And(loading, promql.Offset(loading, patience), nil)))
}

// patience is how long a model may load.
const patience = 20 * minute

func down() promql.Expr { return promql.Equal(engineUp(), promql.Num(0), nil) }

// knownEngines lends a per-page value the model that the page served within a day: an engine that is
// down does not say its model.
func knownEngines(perPage promql.Expr) promql.Expr {
	known := promql.Max(replicaLabels, promql.Over("last_over_time", promql.Vector(metrics.EngineInfo), day))
	return promql.Mul(known, perPage, promql.On(pageLabels...).ManyToOne())
}

// startedCold is a young engine that requests wait for. A queue that is gone before the next scrape shows in
// what they waited.
func startedCold(m ...*promql.Matcher) promql.Expr {
	return promql.And(
		promql.Or(above(promql.Sum(replicaLabels, promql.Vector(metrics.RequestsWaiting, m...)), 0), above(queueShare(replicaLabels, 5*minute, m...), 0.5)),
		below(promql.Sub(promql.Call("time"), promql.Max(pageLabels, promql.Vector(metrics.EngineStartTime)), nil), (15*minute).Seconds()),
		promql.On(pageLabels...))
}

// stalled is a replica that makes no token although it has work: requests, or a GPU of its own that is
// busy minutes after it last made tokens. A wedged engine may report that nothing runs.
func stalled() promql.Expr {
	tokens := func(e promql.Expr) promql.Expr { return promql.Sum(replicaLabels, e) }
	made := tokens(promql.Rate(promql.Vector(metrics.GenerationTokens), 5*minute))
	hasWork := promql.Or(
		above(promql.Sum(replicaLabels, promql.Over("min_over_time", promql.Vector(metrics.RequestsWaiting), 5*minute)), 0),
		above(promql.Sum(replicaLabels, promql.Over("min_over_time", promql.Vector(metrics.RequestsRunning), 5*minute)), 0))

	gpu := []string{metrics.LabelCluster, metrics.LabelGPUUUID}
	onGPU := promql.Max(append([]string{metrics.LabelGPUUUID}, pageLabels...), promql.Vector(metrics.EngineGPUInfo))
	pages := promql.CountBy(gpu, onGPU)
	busy := promql.And(
		above(promql.Max(gpu, promql.Over("min_over_time", promql.Vector(metrics.GPUUtilization), 10*minute)), 0.9),
		promql.Equal(pages, promql.Num(1), nil), nil)
	owner := promql.And(onGPU, busy, promql.On(gpu...))
	spins := promql.And(above(tokens(promql.Rate(promql.Vector(metrics.GenerationTokens), hour)), 0), owner, promql.On(pageLabels...))

	asleep := promql.Equal(promql.Max(replicaLabels, promql.Vector(metrics.Sleeping)), promql.Num(1), nil)
	return promql.Unless(promql.And(promql.Equal(made, promql.Num(0), nil), promql.Or(hasWork, spins), nil), asleep, nil)
}
