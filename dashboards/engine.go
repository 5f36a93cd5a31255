package dashboards

import (
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// engines shows what engines report about themselves, in one vocabulary.
func engines() Board {
	s := scope{byCluster, byNamespace, byModel, byRuntime, byNode}
	return Board{
		UID: rules.EngineDashboard, Since: "now-6h", Refresh: "1m", Variables: s,
		Description: "What the engines of a model do: latency, throughput, queue and batch, memory, speculation, and the shape of the work.",
		Rows: []Row{
			{Title: "Latency: what do clients wait for?", Panels: latencyRow(s)},
			{Title: "Throughput: how much, and how does it end?", Panels: throughputRow(s)},
			{Title: "Queue and batch: is it full?", Panels: batchRow(s)},
			{Title: "Memory: is there room for tokens?", Panels: memoryRow(s)},
			{Title: "Phases and lengths, from every replica's buckets: choose a model first", Collapsed: true, Panels: bucketRow(s)},
			{
				Title: "What only some have: KV cache elsewhere, speculation, models on demand, probes, gateways", Collapsed: true,
				Panels: slices.Concat(elsewhereRow(s), featureRow(s), probeRow(s), gatewayRow(s)),
			},
		},
	}
}

func latencyRow(s scope) []Panel {
	return []Panel{
		heat("TTFT distribution", wait, 12, About{
			"First tokens per second by how long they took, at the engine that gave most of them.",
			"Two bands are two populations, such as cached and other prompts, short and long ones, or a good and a bad replica.",
			"If there are two bands, compare replicas on the incident dashboard.",
		},
			s.distribution(metrics.RecordedTimeToFirstToken, metrics.TimeToFirstToken)).runbook("LLMErrorBudgetFastBurn").
			next(rules.IncidentDashboard).
			movesIn("traffic-burst", "prefix-collapse"),
		heat("ITL distribution", seconds, 12, About{
			"Gaps between tokens per second by length, at the engine with most of them.",
			"A second band far above the first is prefill that interrupts decode, or preemption.",
			"A widening band is a growing batch.",
		},
			s.distribution(metrics.RecordedInterTokenLatency, metrics.InterTokenLatency)).runbook("BranchLargeBatch").next(rules.IncidentDashboard).
			movesIn("bad-release", "thermal-throttle"),
		lines("Time to first token", wait, 8, About{
			"Quantiles of TTFT per model, and the limits of the objectives on it.",
			"It decides whether an application feels responsive.",
			"If p50 rises, everybody waits. If only p99 rises, look for some prompts or one replica.",
		},
			s.quantiles(metrics.RecordedTimeToFirstToken, metrics.TimeToFirstToken)...).limits(s.limitOf(string(slo.TTFT))).
			runbook("BranchQueueing").next(rules.IncidentDashboard).
			movesIn("traffic-burst"),
		lines("Inter-token latency", seconds, 8, About{
			"Quantiles of the gap between tokens per model, and the limits of the objectives on it. Engines that only report a mean per " +
				"request are under Phases and lengths.",
			"Users notice gaps once the text comes more slowly than they read.",
			"Compare with the batch and with GPU bandwidth.",
		},
			s.quantiles(metrics.RecordedInterTokenLatency, metrics.InterTokenLatency)...).limits(s.limitOf(string(slo.ITL))).
			runbook("BranchLargeBatch").next(rules.IncidentDashboard).
			movesIn("speculation-collapse", "bad-release", "thermal-throttle"),
		lines("Request duration", wait, 8, About{
			"Quantiles of the duration of whole requests per model.",
			"Clients' timeouts limit it.",
			"If it rises while TTFT and ITL stay flat, outputs got longer.",
		},
			s.quantiles(metrics.RecordedRequestDuration, metrics.RequestDuration)...).runbook("LLMRunawayGeneration").next(rules.IncidentDashboard).
			movesIn("kv-thrash"),
	}
}

func probeRow(s scope) []Panel {
	address := []string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelModel, metrics.LabelServer}
	const legend = "{{server}} {{instance}}"
	return []Panel{
		lines("First token, client and engine", wait, 8, About{
			"Mean TTFT that the exporter's probes see at each address, beside the engines' own, and the phases of the connection before it.",
			"The difference is the network, a gateway or a buffer, which no engine reports.",
			"If the client's is far higher, probe the engine without the gateway. If the client's is missing, answers are held back.",
		},
			Query{s.mean(address, metrics.ProbeTimeToFirstToken), "client " + legend}, Query{
				s.mean(models, metrics.TimeToFirstToken),
				"engine " + modelLegend,
			},
			Query{s.mean(by(address, metrics.LabelPhase), metrics.ProbeConnection), "{{phase}} " + legend}).
			runbook("LLMProbeDisagrees").next(rules.IncidentDashboard).
			notDrilled("the drill's clients need no connection"),
		lines("Synthetic requests by outcome", requests, 8, About{
			"Requests of the exporter's probes per second by outcome, and answers that were held back and came in one piece.",
			"ok and wrong_answer are answers. rate_limited, http_4xx and invalid mean that the probe is at fault, the others that the model is.",
			"If one address has timeouts, its engine hangs. If all fail at once, look at the exporter's network first.",
		},
			Query{s.rate(by(address, metrics.LabelOutcome), metrics.ProbeRequests), "{{outcome}} " + legend},
			Query{s.rate(address, metrics.ProbeBuffered), "held back " + legend}).
			empty(noProbe).runbook("LLMProbeBroken").next(rules.IncidentDashboard).
			movesIn("wedged-unseen", "buffering-proxy"),
		lines("Failures in a row", number, 8, About{
			"Synthetic requests that failed one after the other at each address, and whether the last answer was the first of its release (1). " +
				"0 for engines of a node that are not probed, with the reason.",
			"Two in a row page, unless the engine's metrics endpoint is down or all requests of the exporter fail.",
			"Send the engine itself a request with a deadline; save its stacks before a restart.",
		},
			Query{promql.Max(address, s.of(metrics.ProbeFailures)), "failed " + legend},
			Query{promql.Min(address, s.of(metrics.ProbeAnswerMatches)), "same answer " + legend},
			Query{
				promql.Equal(promql.Max(by(address, metrics.LabelReason), s.of(metrics.ProbeEngineAsked)), promql.Num(0)),
				"not asked, {{reason}} " + legend,
			}).
			empty(noProbe).runbook("LLMProbeFailing").next(rules.IncidentDashboard).
			movesIn("wedged-unseen", "dead-gateway").notDrilled("the drill asks every engine"),
	}
}

func gatewayRow(s scope) []Panel {
	failed := promql.Re(metrics.LabelOutcome, "error|rejected")
	judged := promql.NotRe(metrics.LabelOutcome, slo.UncountedOutcomes)
	gateway := promql.Eq(metrics.LabelRole, metrics.GatewayRole)
	failing := func(by []string, of ...*promql.Matcher) promql.Expr {
		return shareOf(s.rate(by, metrics.Requests, append(of, failed)...), s.rate(by, metrics.Requests, append(of, judged)...))
	}
	return []Panel{
		lines("Failed requests, gateway and engines", share, 12, About{
			"Share of requests that end in an error or a refusal, at each gateway and in the engines of each model.",
			"Only the gateway's share is what users get. Engines do not count requests that never reach them.",
			"If the gateway's is far above the engines', the fault is in the gateway or on the way.",
		},
			Query{failing(replicas, gateway), "gateway " + replicaLegend}, Query{failing(models), "engines " + modelLegend}).max(1).
			empty(noGateway).runbook("BranchFailingGateway").next(rules.IncidentDashboard).
			movesIn("failing-gateway"),
		lines("Refused and repeated by gateways", requests, 12, About{
			"Requests that a gateway refused without sending them to an engine, by reason, and its repeated attempts.",
			"Refusals protect the engines; repeats are load that no client sent.",
			"If repeats rise with failures, limit them before they overload the engines.",
		},
			Query{s.rate(by(pages, metrics.LabelReason), metrics.GatewayRejections), "{{reason}} " + replicaLegend},
			Query{s.rate(pages, metrics.GatewayRetries), "retries " + replicaLegend}).
			empty(noGateway).runbook("BranchRetries").next(rules.IncidentDashboard).
			notDrilled("the drill's gateway refuses and repeats nothing"),
	}
}

// noGateway is the empty state of panels on gateways.
const noGateway = "No gateway here reports this."

// noProbe is the empty state of panels on synthetic requests.
const noProbe = "No synthetic request is recorded here. Probes are off by default."

func throughputRow(s scope) []Panel {
	good := s.of(metrics.RecordedGoodTokens)
	return []Panel{
		lines("Tokens", tokenRate, 12, About{
			"Prompt and generated tokens per second per model.",
			"Generated tokens measure the capacity of decode, and prompt tokens that of prefill.",
			"A fall with a queue means less capacity, and without a queue less demand.",
		},
			Query{s.perModel(s.of(metrics.RecordedGenerationTokens), s.rate(models, metrics.GenerationTokens)), "generated " + modelLegend},
			Query{s.perModel(s.of(metrics.RecordedPromptTokens), s.rate(models, metrics.PromptTokens)), "prompt " + modelLegend}).
			runbook("BranchQueueing").next(FleetDashboard).
			movesIn("traffic-burst", "long-prompts"),
		lines("Work without progress", wait, 12, About{
			"How long each replica has certainly had work but made no progress, or has made none while a GPU of its own is busy.",
			"Gauges of a hanging engine keep their last values, or show that nothing runs. This also counts open connections.",
			"Above a minute, take the replica out of rotation.",
		},
			Query{promql.Max(replicas, s.of(metrics.EngineStalled)), replicaLegend},
			Query{
				promql.And(promql.Max(replicas, s.of(metrics.EngineWithoutProgress)), promql.Max(replicas, s.of(metrics.RecordedStalled))),
				"no progress " + replicaLegend,
			}).runbook("LLMEngineStalled").next(rules.IncidentDashboard).
			movesIn("wedged-engine"),
		lines("Crash loops", number, 8, About{
			"Restarts within six hours of engines that restart again and again: from three within an hour, or four within six.",
			"Each restart drops all requests, and the engine must load its model again.",
			"Read why the previous process died.",
		},
			Query{
				promql.Mul(promql.Max(replicas, s.of(metrics.RecordedSeen)), s.of(metrics.RecordedRestarts), promql.On(pages...).ManyToOne()),
				replicaLegend,
			}).
			empty("No engine restarts again and again.").runbook("LLMEngineCrashLoop").next(rules.IncidentDashboard).
			movesIn("crash-loop"),
		lines("Requests by outcome", requests, 8, About{
			"Requests that ended, by outcome: stop and length are answers, rejected means overload, error the server, abort the client.",
			"Errors and rejections are what availability objectives count.",
			"Treat rejected as queueing. For error, read the server's log. With abort, clients gave up, so look at latency.",
		},
			Query{s.perModel(s.of(metrics.RecordedRequests), s.rate(by(models, metrics.LabelOutcome), metrics.Requests)), "{{outcome}} " +
				modelLegend}).stacked().runbook("LLMErrorBudgetFastBurn").next(rules.SLODashboard).
			movesIn("rejections"),
		lines("Goodput", tokenRate, 8, About{
			"Lower bound of the tokens per second of requests that met every latency objective, beside all generated tokens and the good ones " +
				"at this hour yesterday, for whole models on all nodes.",
			"Tokens that come too late are wasted work. No engine reports which requests missed several objectives, so each miss counts as " +
				"another request of mean length.",
			"If the gap widens, see which objective burns. For inter-token latency, lower the batch limit; for TTFT, add replicas.",
		},
			Query{good, "good, at least " + modelLegend}, Query{s.of(metrics.RecordedGenerationTokens), "generated " + modelLegend},
			Query{promql.Over("avg_over_time", promql.Offset(good, 24*hour-hour/2), hour), "yesterday " + modelLegend}).
			empty("No latency objective counts here.").runbook("BranchLargeBatch").next(rules.SLODashboard).
			movesIn("traffic-burst", "kv-thrash", "bad-release", "thermal-throttle").notDrilled(noYesterday),
	}
}

func batchRow(s scope) []Panel {
	return []Panel{
		lines("Running and waiting", number, 12, About{
			"Requests in the running batches and in the queues of all replicas of a model.",
			"If more requests wait than run, the queue does not empty.",
			"If requests wait while the batch could grow, look at KV cache, then at the batch limit.",
		},
			Query{s.perModel(s.of(metrics.RecordedRunning), promql.Sum(models, s.of(metrics.RequestsRunning))), "running " + modelLegend},
			Query{s.perModel(s.of(metrics.RecordedWaiting), promql.Sum(models, s.of(metrics.RequestsWaiting))), "waiting " + modelLegend}).
			runbook("BranchQueueing").next(FleetDashboard).
			movesIn("traffic-burst", "long-prompts", "kv-transfer-failures", "rejections"),
		lines("Waiting by reason", number, 12, About{
			"Requests in the engines' queues by what they wait for, if engines report it.",
			"Capacity means a full engine. Deferred, bootstrap and kv_transfer wait for an adapter or for KV cache from elsewhere, not for room.",
			"If requests are deferred while KV cache is free, look at transfers and tiers below, not at replicas.",
		},
			Query{promql.Sum(by(models, metrics.LabelReason), s.of(metrics.RequestsWaitingByReason)), "{{reason}} " + modelLegend}).stacked().
			runbook("BranchQueueing").next(rules.IncidentDashboard).
			movesIn("kv-transfer-failures"),
	}
}

func memoryRow(s scope) []Panel {
	hit := func(hits, queries *metrics.Family) promql.Expr {
		return shareOf(s.rate(models, hits), s.rate(models, queries))
	}
	return []Panel{
		lines("KV cache in use", share, 12, About{
			"Share of the KV cache that live requests hold, per replica.",
			"It shows whether there is room. GPU memory does not, because engines reserve it at start.",
			"Above 90% with requests waiting, cap output and context.",
		},
			Query{promql.Max(replicas, s.of(metrics.KVCacheUsage)), replicaLegend}).bad(0.8, 0.9).max(1).runbook("BranchKVPressure").
			next(rules.IncidentDashboard).
			movesIn("traffic-burst", "kv-thrash"),
		lines("Preemptions", perSecond, 12, About{
			"Running requests per second that lost their cache and are computed again.",
			"The engine repeats work while everybody waits.",
			"If it is above zero for minutes, lower the batch limit.",
		},
			Query{s.rate(replicas, metrics.Preemptions), replicaLegend}).bad(0.1, 1).runbook("BranchKVPressure").next(rules.IncidentDashboard).
			movesIn("kv-thrash"),
		lines("Prefix cache hits", share, 24, About{
			"Share of looked-up prompt tokens that were in the engine's prefix cache, and in a cache outside the engine if there is one.",
			"Hits save prefill.",
			"A step down means a changed prompt head, a restart or a router without affinity.",
		},
			Query{hit(metrics.PrefixCacheHitTokens, metrics.PrefixCacheQueryTokens), "engine " + modelLegend},
			Query{hit(metrics.ExternalPrefixCacheHitTokens, metrics.ExternalPrefixCacheQueryTokens), "external " + modelLegend}).
			max(1).runbook("LLMPrefixHitCollapse").next(rules.IncidentDashboard).
			movesIn("prefix-collapse", "offload-saturated"),
	}
}

func bucketRow(s scope) []Panel {
	lengths := func(h *metrics.Family) []Query {
		return []Query{
			{s.quantile(0.5, models, h), "p50 " + modelLegend},
			{s.quantile(0.95, models, h), "p95 " + modelLegend},
			{s.mean(models, h), "mean " + modelLegend},
		}
	}
	return []Panel{
		lines("Time by phase, p95", wait, 12, About{
			"The 95th percentile of the time in the queue, from first scheduling to first token, from the first to the last token, and of one " +
				"KV cache transfer between engines.",
			"More capacity removes the queue; prefill grows with prompts and lost prefix hits, decode with outputs.",
			"The phase that grew names the branch; see its runbook.",
		},
			Query{s.quantile(0.95, models, metrics.QueueTime), "queue " + modelLegend}, Query{
				s.quantile(0.95, models, metrics.PrefillTime),
				"prefill " + modelLegend,
			},
			Query{s.quantile(0.95, models, metrics.DecodeTime), "decode " + modelLegend},
			Query{s.quantile(0.95, models, metrics.KVTransferTime), "KV transfer " + modelLegend}).
			runbook("BranchQueueing").next(rules.IncidentDashboard).
			movesIn("traffic-burst", "long-prompts", "prefix-collapse", "kv-thrash", "thermal-throttle"),
		lines("Prompt length", number, 12, About{
			"Prompt tokens per request: median, 95th percentile and mean.",
			"Longer prompts need more prefill, and delay the decode of all requests in the batch.",
			"After a step up, find the client that changed.",
		},
			lengths(metrics.RequestPromptTokens)...).runbook("BranchLongPrompts").next(rules.IncidentDashboard).
			movesIn("long-prompts").stillElsewhere("kv-thrash", "dead-gateway"),
		lines("Output length", number, 12, About{
			"Generated tokens per request: median, 95th percentile and mean.",
			"Longer outputs hold batch slots and KV cache.",
			"If it stays at a round number, requests reach the output cap.",
		},
			lengths(metrics.RequestGenerationTokens)...).runbook("LLMRunawayGeneration").next(rules.IncidentDashboard).
			movesIn("kv-thrash"),
		lines("Time per output token, p95", seconds, 12, About{
			"The 95th percentile of the mean time per token of a request. Unlike inter-token latency, it averages pauses away.",
			"It is the only decode latency that some engines have.",
			"Read a rise as one of ITL, but look for pauses elsewhere.",
		},
			Query{s.quantile(0.95, models, metrics.TimePerOutputToken), modelLegend}).limits(s.limitOf(string(slo.TPOT))).
			runbook("BranchLargeBatch").next(rules.IncidentDashboard).
			movesIn("bad-release", "thermal-throttle").notDrilled(noneOfThem),
	}
}

func featureRow(s scope) []Panel {
	return []Panel{
		lines("Speculation accepted", share, 8, About{
			"Share of drafted tokens that the model accepted, of the worst replica on engines that report a gauge.",
			"Below about a third, speculation costs more than it saves.",
			"A step down means other traffic, other sampling, or a draft model that does not match.",
		},
			Query{promql.Or(shareOf(s.rate(models, metrics.SpecDecodeAcceptedTokens), s.rate(models, metrics.SpecDecodeDraftTokens)),
				promql.Min(models, s.of(metrics.SpecDecodeAcceptance))), modelLegend}).
			low(0.3, 0.5).max(1).runbook("LLMSpeculationCollapse").next(rules.IncidentDashboard).
			movesIn("speculation-collapse"),
		lines("Adapters, models, sleep, NaN", number, 8, About{
			"Adapters that running requests use, models in memory on engines that load them on demand, engines asleep, and requests of the " +
				"last hour whose logits had NaN (vLLM checks only with VLLM_COMPUTE_NANS_IN_LOGITS=1).",
			"More adapters than slots, and models that are loaded and unloaded, look like queueing. An engine asleep serves nobody. Answers " +
				"with NaN are garbage.",
			"For NaN on one replica, look at its GPU; on all, at weights, a kernel or the release.",
		},
			Query{promql.Sum(replicas, s.of(metrics.LorasRunning)), "adapters " + replicaLegend},
			Query{promql.Sum(models, s.of(metrics.ModelsLoaded)), "models " + modelLegend},
			Query{promql.Max(replicas, s.of(metrics.Sleeping)), "asleep " + replicaLegend},
			Query{s.lastHour(replicas, metrics.CorruptedRequests), "NaN " + replicaLegend}).
			runbook("LLMAnswersCorrupted").next(rules.IncidentDashboard).
			notDrilled(noEngine),
		lines("In GPU memory", share, 8, About{
			"Share of each loaded model that is in GPU memory on the worst replica, for engines that load models on demand.",
			"The CPU computes the rest many times more slowly, and no request fails.",
			"After a step down, the engine lost the GPU, or another model took the room.",
		},
			Query{promql.Min(models, promql.Div(s.of(metrics.ModelGPUMemory), s.of(metrics.ModelMemory))), modelLegend}).
			low(0.5, 0.95).max(1).runbook("LLMModelLeftGPU").next(rules.IncidentDashboard).
			movesIn("model-left-gpu"),
	}
}

func elsewhereRow(s scope) []Panel {
	tiers := by(models, metrics.LabelTier)
	ways := by(tiers, metrics.LabelOperation)
	tierLegend := "{{tier}} " + modelLegend
	tokens := shareOf(s.rate(tiers, metrics.KVTierHitTokens), s.rate(tiers, metrics.KVTierQueryTokens))
	return []Panel{
		lines("KV moves failed", perSecond, 8, About{
			"Per second: failed transfers between engines, caches that a prefill engine held for a decode engine that never fetched them, " +
				"refused and failed stores to a tier in the engine's own unit, and tokens that tiers stored.",
			"Each request is computed again or lost. A cache that expires has taken room from prefill.",
			"If it is above zero, look at the connector's log on both sides.",
		},
			Query{s.rate(replicas, metrics.KVTransferFailures), "failed " + replicaLegend}, Query{
				s.rate(replicas, metrics.KVTransfersExpired),
				"expired " + replicaLegend,
			},
			Query{s.rate(tiers, metrics.KVTierRefused), "refused " + tierLegend}, Query{
				s.rate(ways, metrics.KVTierFailures),
				"{{operation}} failed " + tierLegend,
			},
			Query{s.rate(tiers, metrics.KVTierTransferTokens, promql.Eq(metrics.LabelOperation, string(metrics.Store))), "stored tokens " +
				tierLegend}).runbook("LLMKVTransferFailures").next(rules.IncidentDashboard).
			movesIn("kv-transfer-failures").notDrilled(noEngine),
		lines("KV cache moved", bandwidth, 8, About{
			"Bytes per second of KV cache moved between engines, stored to each tier below the GPU and fetched from it.",
			"Stores cost time; fetches save time.",
			"If much is stored and little fetched, store less. If both stay at a round number, the link is full.",
		},
			Query{s.spent(models, metrics.KVTransferSize), "between engines " + modelLegend}, Query{
				s.rate(ways, metrics.KVTierTransferBytes),
				"{{operation}} " + tierLegend,
			}).runbook("LLMKVOffloadSaturated").next(rules.GPUDashboard).
			movesIn("kv-transfer-failures", "offload-saturated"),
		lines("KV tiers", share, 8, About{
			"Share of lookups of tokens or blocks that hit in a tier below the GPU, share of each tier that transfers pin, and share in use, " +
				"of the fullest replica.",
			"A tier full of cache is normal. A pinned tier accepts no more; a tier without hits only costs.",
			"Above 90% pinned, the link is slower than its writers. After days without hits, turn the tier off.",
		},
			Query{promql.Or(tokens, shareOf(s.rate(tiers, metrics.KVTierHits), s.rate(tiers, metrics.KVTierLookups))), "hits " + tierLegend},
			Query{promql.Max(tiers, s.of(metrics.KVTierPinned)), "pinned " + tierLegend}, Query{
				promql.Max(tiers, s.of(metrics.KVTierUsage)),
				"holds " + tierLegend,
			}).
			max(1).runbook("LLMKVOffloadSaturated").next(rules.IncidentDashboard).
			movesIn("offload-saturated").notDrilled(noEngine),
	}
}
