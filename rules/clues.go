package rules

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Clue describes evidence that is strong enough to name where to look first. The rules record clues per model, so that
// pages, dashboards and later readers see the same clue.
//
// A clue is a change or a fault. A level, such as a phase's share of the time, is not a clue, because a healthy engine
// may have the same level.
type Clue struct {
	// Branch names where to look.
	Branch Branch
	// Name is the value of the label clue. Runbook names the alert whose runbook describes what to do.
	Name, Runbook string
	// Delays names the requests or tokens that the cause behind the clue delays or makes fail.
	Delays Delays
	// Unit sets how the value is printed.
	Unit Unit
	// Says is the evidence in words. {value}, {engine} and {LABEL} stand for the value, the engine and a label of the
	// result.
	Says string
	// Query returns a value per model while the evidence is clear enough.
	Query promql.Expr
	// Needs lists records that the query reads. They are evaluated just before it, because a record of another group may
	// be one evaluation old.
	Needs []Record
}

// Delays names the requests or tokens that the cause behind a clue delays or makes fail.
type Delays string

// These are the values of Delays. A clue with the empty value explains all delays and failures, at engines and at
// gateways.
const (
	AnyRequest Delays = "any_request" // late or refused at the engines
	AnyToken   Delays = "any_token"
	FirstToken Delays = "first_token"
	NextToken  Delays = "next_token"
	AtGateway  Delays = "gateway_first_token" // the first token is late between the engines and the client
	Failures   Delays = "failures"            // a request that fails at once is not late
)

// QueueLong is the clue that more requests wait than run.
const QueueLong = "queue_long"

// Explain reports whether a clue explains why an objective on the signal burns. wait means that more requests wait than
// run. What makes tokens late may then also make requests fail.
func (d Delays) Explain(s slo.Signal, wait bool) bool {
	switch s {
	case slo.Availability, slo.ProbeAvailability:
		return d == "" || d == AnyRequest || d == Failures || wait && (d == AnyToken || d == FirstToken)
	case slo.TTFT, slo.QueueTime, slo.ProbeTTFT:
		return d != NextToken && d != Failures
	case slo.ITL, slo.TPOT, slo.ProbeITL:
		return d != FirstToken && d != AtGateway && d != Failures
	case slo.RequestDuration, slo.Events: // these objectives may count any delay or failure
	}
	return true
}

// recentWindow is the window of clues. It is long enough for two scrapes a minute apart, but otherwise short, because
// users already suffer when a clue is needed.
const recentWindow = 2 * minute

// Clues returns the clues in the order of a diagnosis. A cause comes before its consequences: requests queue because
// more requests arrive, because each request takes longer, or because steps are slow, and a step is slow because of the
// batch, the CPU or the GPU. Therefore, hardware comes first, then faults and changes, then changes in the requests.
// Waiting requests come last, because they are a symptom.
func Clues() []Clue {
	return slices.Concat(brokenClues(), goneClues(), wayClues(), memoryClues(), requestClues(), engineClues(), loadClues())
}

// brokenClues are about GPUs, releases and refusals.
func brokenClues() []Clue {
	return []Clue{
		{
			Branch: Hardware, Name: "gpus_throttled", Runbook: "LLMGPUSlowed", Unit: Count, // the model has no other GPU
			Says:  "All GPUs of the model are slowed down, {value} of them on {instance} ({reason})",
			Query: one(promql.And(slowedByNode(), allThrottled(), promql.On(modelLabels...))),
		},
		{
			Branch: Hardware, Name: "some_gpus_throttled", Runbook: "BranchThrottledGPU", Unit: Count,
			Says:  "{value} of {gpu} on {instance} are slowed down ({reason})",
			Query: one(severalOfNode()),
		},
		{
			Branch: Hardware, Name: "gpu_throttled", Runbook: "BranchThrottledGPU", Unit: Share,
			Says:  "GPU {gpu} on {instance} is slowed down {value} of the time ({reason})",
			Query: one(servedBy(newlySlowed(), metrics.LabelReason)),
		},
		{
			Branch: Hardware, Name: "gpu_crowded", Runbook: "BranchThrottledGPU", Delays: AnyToken, Unit: Share,
			Says:  "Other processes use {value} of GPU {gpu} on {instance}",
			Query: crowded(),
		},
		{
			Branch: Hardware, Name: "gpu_failed", Runbook: "LLMGPUFailed", Unit: Bare, Says: "GPU {gpu} on {instance} must leave service ({reason})",
			Query: one(servedBy(promql.Max(append([]string{metrics.LabelReason}, gpuLabels...), judged(metrics.AnswerFailed)),
				metrics.LabelReason)),
		},
		{
			Branch: Hardware, Name: "gpu_memory_errors", Runbook: "LLMGPUNeedsService", Unit: Count,
			Says:  "GPU {gpu} on {instance} had uncorrectable memory errors in the last hour",
			Query: servedBy(uncorrectable(gpuLabels)),
		},
		{
			Branch: Hardware, Name: "gpu_link", Runbook: "LLMGPULinkFault", Unit: Count,
			Says:  "NVLink of GPU {gpu} on {instance} recovered {value} times in the last hour",
			Query: servedBy(above(promql.Sum(gpuLabels, promql.Increase(promql.Vector(metrics.GPUNVLinkErrors, recoveries), hour)), 2.5)),
		},
		{ // an engine that is gone refuses nothing
			Branch: Release, Name: "refuses_all", Runbook: "BranchClientPath", Delays: Failures, Unit: Bare,
			Says: "{engine} refuses all requests as invalid; check key, model name and length",
			Query: one(above(promql.Or(promql.Max(replicaLabels, promql.Vector(metrics.EngineRefuses)),
				promql.Max(replicaLabels, promql.Vector(metrics.EngineRefuses, gatewayRole()))), 0)),
		},
		{ // before releases: if a release were slow, its replicas would have queues, too
			Branch: Routing, Name: "hot_replica", Runbook: "BranchIdleGPUs", Delays: AnyToken, Unit: Share,
			Says:  "{engine} gets {value} of the requests and has a queue, while another replica has none",
			Query: hotReplica(),
		},
		{
			Branch: Release, Name: "version_deployed", Runbook: "LLMReleaseRegression", Unit: Count,
			Says:  "Version {new} was deployed in the last hour",
			Query: newest(1, changedWithin(hour, promql.Eq(metrics.LabelSetting, string(metrics.SettingVersion)))),
		},
		{ // before the clue about settings, because a setting may be the reason
			Branch: Memory, Name: "kv_resized", Runbook: "LLMEngineMemoryLost", Delays: AnyRequest, Unit: Bare,
			Says:  "The KV cache of {engine} changed from {old} to {new} tokens in the last hour",
			Query: kvResized(),
		},
		{
			Branch: Release, Name: "setting_changed", Runbook: "LLMReleaseRegression", Unit: Count,
			Says:  "Setting {setting} changed from {old} to {new} in the last hour",
			Query: newest(1, changedWithin(hour, promql.Ne(metrics.LabelSetting, string(metrics.SettingVersion)))),
		},
		{
			Branch: Engine, Name: "crash_loop", Runbook: "LLMEngineCrashLoop", Unit: Count,
			Says: "{engine} restarted {value} times within six hours",
			Query: promql.Mul(servedWithin(hour),
				promql.And(promql.Vector(metrics.RecordedRestarts), above(restartsWithin(coldFor), 0)), promql.On(pageLabels...).ManyToOne()),
		},
		{
			Branch: Engine, Name: "was_down", Runbook: "LLMModelDown", Delays: Failures, Unit: Seconds,
			Says:  "In the last five minutes, no engine served the model for {value}",
			Query: promql.Over("sum_over_time", promql.Vector(metrics.RecordedDownTime, promql.Eq(metrics.LabelRole, "")), pageWindow),
		},
	}
}

// goneClues are about engines that fail, are gone, or make no progress.
func goneClues() []Clue {
	return []Clue{
		{
			Branch: Engine, Name: "failing_replica", Runbook: "BranchFailingReplica", Delays: Failures, Unit: Share,
			Says:  "{engine} fails {value} of its requests, and the other replicas do not",
			Query: failsAlone(),
			Needs: []Record{{Name: metrics.RecordedFailing, Expr: failsFive([]time.Duration{recentWindow, causeWindow})}},
		},
		{
			Branch: Engine, Name: "engine_down", Runbook: "LLMEngineDown", Unit: Count, Says: "{engine} stopped answering in the last hour",
			// A rollout is left out, because it restarts one engine after another.
			Query: promql.Unless(stopped(), promql.Ge(restartedShare(coldFor), promql.Num(0.5)), promql.On(modelLabels...)),
		},
		{
			Branch: Engine, Name: "came_back", Runbook: "LLMEngineDown", Delays: Failures, Unit: Count,
			Says:  "{engine} was gone or restarted in the last five minutes",
			Query: cameBack(),
		},
		{ // this fault stops the engine
			Branch: Memory, Name: strandedCacheClue, Runbook: "LLMEngineMemoryLost", Delays: AnyRequest, Unit: Share,
			Says:  "The KV cache of {engine} is {value} full while nothing runs, and requests wait",
			Query: strandedCache(),
		},
		{
			Branch: Engine, Name: "no_tokens", Runbook: "LLMEngineStalled", Unit: Seconds,
			Says: "{engine} has made no progress for {value}, and clients give up",
			Query: promql.And(above(promql.Max(replicaLabels, promql.Vector(metrics.EngineWithoutProgress)), 60),
				promql.Or(above(aborted(modelLabels, recentWindow, 0), 2./3), promql.Vector(metrics.RecordedWithoutToken)),
				promql.On(modelLabels...)),
			Needs: []Record{{Name: metrics.RecordedWithoutToken, Expr: withoutToken()}},
		},
		{
			Branch: Engine, Name: "stood_still", Runbook: "LLMEngineStalled", Delays: AnyRequest, Unit: Seconds,
			Says:  "{engine} stood still for {value} within the last five minutes, and resumed",
			Query: above(promql.Max(replicaLabels, promql.Vector(metrics.EngineStandstill)), 0),
		},
	}
}

// wayClues are about the way of a request to the engine: gateways that fail, and delays before requests run.
func wayClues() []Clue {
	return []Clue{
		{
			Branch: Routing, Name: "gateway_down", Runbook: "LLMGatewayDown", Delays: Failures, Unit: Count,
			Says:  "Gateway {engine} stopped answering in the last hour",
			Query: stoppedGateway(),
		},
		{
			Branch: Routing, Name: "gateway_fails", Runbook: "BranchFailingGateway", Delays: Failures, Unit: Share,
			Says:  "Gateway {engine} fails far more requests than the engines",
			Query: one(gatewayFailsAlone(pageWindow)),
			Needs: []Record{{
				metrics.RecordedFailing, failsFive([]time.Duration{recentWindow, causeWindow, hour}, gatewayRole()),
				map[string]string{metrics.LabelRole: metrics.GatewayRole},
			}},
		},
		{
			Branch: Routing, Name: "gateway_late", Runbook: "BranchClientPath", Delays: AtGateway, Unit: Seconds,
			Says:  "First tokens are {value} later at the gateway than at the engines",
			Query: promql.Or(onTheWay(recentWindow), probedLate()),
		},
		{
			Branch: Routing, Name: "prefill_passed", Runbook: "BranchIdleGPUs", Delays: AnyToken, Unit: Share,
			Says:  "Prefill engines get {value} of requests, so decode engines compute prompts",
			Query: prefillPassedBy(),
		},
		{
			Branch: Memory, Name: "adapters", Runbook: "BranchAdapterLatency", Delays: FirstToken, Unit: Count,
			Says:  "Requests at {engine} need {value} adapters, and not all fit; most ask for {reason}",
			Query: one(awaited()),
		},
	}
}

// memoryClues are about too little room for KV cache, and about lost KV cache.
func memoryClues() []Clue {
	return []Clue{
		{
			Branch: Memory, Name: "left_gpu", Runbook: "LLMEngineMemoryLost", Delays: AnyToken, Unit: Share,
			Says:  "Only {value} of the model is in GPU memory at {engine}",
			Query: promql.Vector(metrics.RecordedLeftGPU),
			Needs: []Record{{Name: metrics.RecordedLeftGPU, Expr: leftGPU()}},
		},
		{
			Branch: Memory, Name: "unloaded", Runbook: "BranchModelsTakeTurns", Delays: FirstToken, Unit: Share,
			Says:  "{engine} had the model in memory only {value} of the time, and requests wait for it to load",
			Query: unloaded(),
		},
		{
			Branch: Memory, Name: "kv_leak", Runbook: "LLMEngineMemoryLost", Delays: AnyToken, Unit: Share,
			Says:  "{engine} uses {value} more KV cache than two hours ago, for no more requests",
			Query: promql.Vector(metrics.RecordedKVLeak),
			Needs: []Record{{Name: metrics.RecordedKVLeak, Expr: kvLeak()}},
		},
		{
			Branch: Memory, Name: "kv_transfers_lost", Runbook: "LLMKVTransferFailures", Unit: Decimal,
			Says:  "{value} KV transfers per request fail, so prompts are computed twice or requests fail",
			Query: lostTransfers(modelLabels),
		},
		{
			Branch: Memory, Name: "kv_transfers_slow", Runbook: "LLMKVTransferFailures", Delays: AnyToken, Unit: Seconds,
			Says:  "A transfer of KV cache takes {value}",
			Query: above(mean(metrics.KVTransferTime, modelLabels, recentWindow), 1),
		},
		{
			Branch: Memory, Name: "kv_tier_slow", Runbook: "BranchHeldBackQueue", Delays: FirstToken, Unit: Seconds,
			Says:  "{engine} spends {value} per request on loading KV cache from a tier",
			Query: one(slowTier(pageWindow)),
		},
		{
			Branch: Memory, Name: "kv_awaited", Runbook: "BranchHeldBackQueue", Delays: FirstToken, Unit: Seconds,
			Says:  "Requests at {engine} wait {value} for KV cache from elsewhere ({reason})",
			Query: one(heldBack(kvAwaited, recentWindow)),
		},
		{
			Branch: Queueing, Name: "admission", Runbook: "BranchHeldBackQueue", Delays: FirstToken, Unit: Seconds,
			Says:  "Requests at {engine} wait {value} until their {reason} is compiled",
			Query: one(heldBack("grammar", recentWindow)),
		},
		{
			Branch: Behaviour, Name: "output_limit", Runbook: "LLMRunawayGeneration", Delays: AnyToken, Unit: Share,
			Says:  "{value} of requests reach the output limit",
			Query: runsOn(now("limited")),
		},
	}
}

// requestClues are about idle GPUs, about starts, and about requests that changed. Longer prompts come before their
// consequences: preemptions of other requests, and evicted prefixes.
func requestClues() []Clue {
	return []Clue{
		{
			Branch: Engine, Name: "cpu_wait", Runbook: "BranchHostBound", Delays: AnyToken, Unit: Decimal,
			Says:  "On average, {value} threads of {engine} wait for a CPU",
			Query: doubled(1./3, promql.Vector(metrics.RecordedCPUWait)), // a third of a thread waits for a CPU
		},
		{
			Branch: Engine, Name: "host_bound", Runbook: "BranchHostBound", Delays: AnyToken, Unit: Share,
			Says:  "{engine} uses its GPU {value} of the time while requests run",
			Query: hostBound(recentWindow),
		}, // more work makes a GPU busier
		{
			Branch: Prefill, Name: "prompts_grew", Runbook: "BranchLongPrompts", Delays: AnyToken, Unit: Count,
			Says:  "Prompts are {value} times as long as usual",
			Query: above(against("prompt_tokens"), 2),
		},
		{
			Branch: Memory, Name: "preemptions", Runbook: "BranchKVPressure", Delays: AnyToken, Unit: Decimal,
			Says:  "The KV cache is too full: each request is preempted {value} times",
			Query: promql.Max(modelLabels, preempting(recentWindow)),
		},
		{
			Branch: Prefill, Name: "prefix_hits_fell", Runbook: "LLMPrefixHitCollapse", Delays: AnyToken, Unit: Share,
			Says: "The prefix cache hit ratio is {value} of its usual value",
			// Young engines are left out, because their caches are empty.
			Query: promql.Unless(promql.And(fewerHits(), above(usual("prefix_hits"), 0.2)),
				promql.Ge(promql.Add(times(2, against("prefix_hits")), promql.Vector(metrics.RecordedYoung)), promql.Num(1))),
			Needs: []Record{{Name: metrics.RecordedYoung, Expr: freshlyStarted()}},
		},
		{
			// The clue is left out if more requests arrive, because they also fill the tier.
			Branch: Memory, Name: "kv_tier_full", Runbook: "LLMKVOffloadSaturated", Delays: AnyToken, Unit: Share,
			Says:  "The {tier} tier of {engine} stores no more KV cache",
			Query: one(promql.Unless(promql.Vector(metrics.RecordedFullTier), above(against("arrivals"), 1.3), promql.On(modelLabels...))),
			Needs: []Record{{Name: metrics.RecordedFullTier, Expr: saturatedTier()}},
		},
		{
			Branch: Prefill, Name: "prefill_grew", Runbook: "BranchLongPrompts", Delays: AnyToken, Unit: Decimal,
			Says: "The engines compute {value} times as many tokens per request as usual",
			// The clue is left out if longer prompts, fewer cache hits, longer answers or a start explain the work.
			Query: promql.Unless(promql.And(above(against("work"), 2), atLeast(20, recentWindow)), promql.Or(above(against("prompt_tokens"), 2),
				fewerHits(), above(against("output_tokens"), 1.3), above(promql.Vector(metrics.RecordedYoung), 0))),
		},
		{
			Branch: Decode, Name: "drafts_refused", Runbook: "LLMSpeculationCollapse", Delays: AnyToken, Unit: Share,
			Says:  "The acceptance ratio of draft tokens is {value} of its usual value",
			Query: promql.And(below(against("draft_tokens"), 0.5), above(usual("draft_tokens"), 0.2)),
		},
		{
			Branch: Release, Name: "restarted", Runbook: "LLMReleaseRegression", Delays: AnyToken, Unit: Share,
			Says:  "{value} of the engines restarted in the last hour, without more requests than before",
			Query: restartedWorse(),
			Needs: []Record{{Name: metrics.RecordedFullCache, Expr: promql.Max(modelLabels, fullCache())}},
		},
		{
			Branch: Engine, Name: "cold_start", Runbook: "BranchColdStart", Delays: AnyToken, Unit: Count,
			Says: "{engine} started minutes ago, and requests waited",
			// The clue is left out if a start does not explain the delay: more requests arrive and wait, the cache is
			// full, or adapters are missing.
			Query: promql.Unless(startedCold(),
				promql.Or(promql.Or(both(above(waiting(), 0), above(against("arrivals"), 1.3)), promql.Vector(metrics.RecordedFullCache)),
					promql.CountBy(modelLabels, swapping())),
				promql.On(modelLabels...)),
		},
		{
			Branch: Queueing, Name: "bursts", Runbook: "BranchQueueing", Delays: AnyRequest, Unit: Count,
			Says:  "Requests arrive in bursts of about {value} and wait",
			Query: inQueue(inBursts()),
		},
	}
}

// engineClues are about missing engines, and about engines that are slow at the usual work.
func engineClues() []Clue {
	return []Clue{
		{
			Branch: Queueing, Name: "replicas_left", Runbook: "BranchQueueing", Delays: AnyRequest, Unit: Share,
			Says:  "{value} of the usual replicas are left",
			Query: fewerReplicas(),
			Needs: []Record{{Name: metrics.RecordedReplicasByRole, Expr: replicasByRole()}},
		},
		// This clue compares replicas at the same work, so the router is not the cause.
		{
			Branch: Engine, Name: "slow_decoder", Runbook: "LLMReplicaSkew", Delays: AnyToken, Unit: Seconds,
			Says:  "{engine} alone is slow: {value} between tokens",
			Query: promql.Or(lonelyReplica(metrics.StageNextToken), one(slowAtSteps(1.5))),
		},
		{
			Branch: Routing, Name: "rank_queue", Runbook: "LLMReplicaSkew", Delays: FirstToken, Unit: Count,
			Says:  "{value} requests wait for rank {dp_rank} of {engine} while another rank has none",
			Query: one(rankQueue(pageWindow)),
		},
		{
			Branch: Engine, Name: "steps_slow", Runbook: "BranchHostBound", Delays: AnyToken, Unit: Decimal,
			Says:  "Each token takes {value} times as long as the load explains",
			Query: promql.Or(above(learntSlowdown(), 1.5), promql.Unless(slowSteps(), learntSlowdown())),
		},
		{
			Branch: Engine, Name: "unscheduled", Runbook: "BranchHostBound", Delays: FirstToken, Unit: Seconds,
			Says:  "Requests spend {value} in the API server of {engine}, outside queue and prefill",
			Query: unscheduled(),
		},
	}
}

// loadClues are about more work, and about its consequences.
func loadClues() []Clue {
	running := promql.Sum(modelLabels, promql.Vector(metrics.RequestsRunning))
	return []Clue{
		{
			Branch: Behaviour, Name: "outputs_grew", Runbook: "BranchLongerOutputs", Delays: AnyToken, Unit: Decimal,
			Says: "Answers are {value} times as long as usual",
			Query: promql.Unless(promql.Or(above(against("output_tokens"), 2), promql.And(above(against("output_tokens"), 1.5),
				atLeast(20, recentWindow))), below(against("running"), 1)),
		},
		{
			Branch: Queueing, Name: "arrivals_grew", Runbook: "BranchQueueing", Delays: AnyRequest, Unit: Decimal,
			Says:  "{value} times as many requests arrive as usual",
			Query: moreArrive(),
		},
		{
			Branch: Memory, Name: "kv_full", Runbook: "BranchKVPressure", Delays: AnyRequest, Unit: Share,
			Says:  "The KV cache is {value} full and requests wait for room",
			Query: promql.Vector(metrics.RecordedFullCache),
		},
		{
			Branch: Engine, Name: "slow_replica", Runbook: "LLMReplicaSkew", Delays: AnyToken, Unit: Seconds,
			Says:  "{engine} alone is slow: first tokens after {value}",
			Query: lonelyReplica(metrics.StageFirstToken),
		},
		{
			Branch: Decode, Name: "batch_grew", Runbook: "BranchLargeBatch", Delays: NextToken, Unit: Decimal,
			Says: "{value} times as many requests as usual run at once",
			// The clue needs a batch that has not reached its limit, and tokens that take longer.
			Query: promql.Unless(above(against("running"), 1.5), promql.Or(below(now("running"), 2), promql.Gt(waiting(), running),
				below(against("token_time"), 1.1))),
		},
		{
			Branch: Queueing, Name: QueueLong, Runbook: "BranchQueueing", Delays: AnyRequest, Unit: Count,
			Says:  "{value} requests wait or are refused, more than run",
			Query: promql.Gt(promql.Or(promql.Add(waiting(), times(recentWindow.Seconds(), refused())), waiting()), running),
		},
		{
			Branch: Queueing, Name: "probes_wait", Runbook: "BranchQueueing", Delays: FirstToken, Unit: Seconds,
			Says:  "Synthetic requests to {engine} wait {value} for their first token, and later tokens are on time",
			Query: probesWait(),
		},
		{
			// This clue follows the queue, because requests under overload wait before they fail.
			Branch: Engine, Name: "engines_fail", Runbook: "BranchFailingReplica", Delays: Failures, Unit: Share,
			Says:  "The engines themselves fail {value} of requests",
			Query: failInside(),
		},
		{
			Branch: Engine, Name: "no_token", Runbook: "LLMEngineStalled", Delays: AnyRequest, Unit: Share,
			Says: "{value} of requests at {engine} get no token",
			Query: promql.OrOn(one(promql.And(tokenless(replicaLabels), promql.Vector(metrics.RecordedWithoutToken), promql.On(modelLabels...))),
				promql.Vector(metrics.RecordedWithoutToken), promql.On(modelLabels...)),
		},
		{
			Branch: Routing, Name: "cut_short", Runbook: "BranchClientPath", Delays: AnyRequest, Unit: Share,
			Says:  "Clients, or a proxy in between, cut off {value} of answers",
			Query: cutShort(),
		},
		{
			Branch: Engine, Name: "probe_unanswered", Runbook: "LLMProbeFailing", Unit: Count, Says: "No synthetic request to {engine} is answered",
			Query: withNamespace(promql.Vector(metrics.RecordedUnanswered)),
		},
	}
}

// one keeps the series of each model with the highest value. It is for clues whose other series are about the same
// fault.
func one(e promql.Expr) promql.Expr { return promql.TopK(1, modelLabels, e) }

// recently returns a rate of each model over the last two minutes or, for models with few requests, over the last five
// minutes.
func recently(of func(window time.Duration) promql.Expr) promql.Expr {
	return promql.Or(promql.And(of(recentWindow), atLeast(10, recentWindow)), of(pageWindow))
}

// meanOf returns a mean over the requests of each model, over the same windows as recently. It has no result for fewer
// than five requests in five minutes, because a single long prompt does not prove that prompts are longer.
func meanOf(of func(window time.Duration) promql.Expr) promql.Expr {
	few := promql.Lt(promql.Over("avg_over_time", promql.Vector(usersServed(recentWindow)), pageWindow),
		promql.Num(5*recentWindow.Seconds()/pageWindow.Seconds()))
	return recently(func(window time.Duration) promql.Expr {
		if window == recentWindow {
			return of(window)
		}
		return promql.Unless(of(window), few)
	})
}

// now selects a recorded fact of each model.
func now(fact string) promql.Expr {
	return promql.Sum(modelLabels, promql.Vector(metrics.RecordedEvidence, promql.Eq(metrics.LabelFact, fact)))
}

// usual returns the usual value of a fact. against returns the present value as a multiple of the usual value.
func usual(fact string) promql.Expr   { return ofFact(metrics.RecordedUsual, fact) }
func against(fact string) promql.Expr { return ofFact(metrics.RecordedAgainst, fact) }

// ofFact selects a recorded value of a fact. If fact names several facts ("a|b"), it selects the largest value.
func ofFact(record *metrics.Family, fact string) promql.Expr {
	return promql.Max(modelLabels, promql.Vector(record, promql.Either(metrics.LabelFact, fact)))
}

// arrivals returns how many requests arrive at each model per second.
func arrivals(window time.Duration) promql.Expr {
	return promql.Sum(modelLabels, promql.Rate(promql.Vector(metrics.RequestsArrived, answersUsers), window))
}

// computed returns how many tokens the engines of each model compute per second. These are generated tokens and
// uncached prompt tokens. Compared with the usual rate, it shows whether the engines do more work.
func computed(window, ago time.Duration) promql.Expr {
	rate := func(counter *metrics.Family) promql.Expr {
		return promql.Sum(modelLabels, promql.Rate(promql.Offset(promql.Vector(counter), ago), window))
	}
	return promql.Add(rate(metrics.PrefillComputedTokens), rate(metrics.GenerationTokens))
}

// perFirstToken returns a rate of a model divided by the model's rate of first tokens. First tokens follow the work
// more closely than ended requests, which are used only for engines that do not count first tokens. A prefill engine
// and a decode engine count the same request, so only the role with the most requests is used.
func perFirstToken(tokens promql.Expr, ended *metrics.Family, window, ago time.Duration) promql.Expr {
	rate := func(e promql.Expr) promql.Expr { return promql.Rate(promql.Offset(e, ago), window) }
	requests := promql.OrOn(rate(promql.CountOf(metrics.TimeToFirstToken, computes)), rate(promql.CountOf(ended, computes)),
		promql.Ignoring(metrics.LabelStage))
	return promql.Div(tokens, above(promql.Max(modelLabels, promql.Sum(inRole(modelLabels), requests)), 0))
}

// tokenTime returns the mean time between the tokens of each model in the shortest window that has a result, so that a
// slow step shows at once. If Prometheus scrapes only once a minute, the window of a minute has no result.
func tokenTime() promql.Expr {
	in := func(window time.Duration) promql.Expr {
		return promql.Vector(meanIn(window), ofStage(metrics.StageNextToken))
	}
	return promql.Or(in(minute), in(recentWindow), in(pageWindow))
}
