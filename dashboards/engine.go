package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// engines returns the dashboard of the engines' own metrics, under the same names for all engines.
func engines() Board {
	s := scope{byCluster, byNamespace, byModel, byRuntime, byNode}
	return Board{
		UID: rules.EngineDashboard, Since: "now-6h", Refresh: "1m", Variables: s,
		Description: "What the engines of a model do: latency, throughput, queue and batch, memory, and the shape of the work.",
		Rows: []Row{
			{Title: "Latency: what do clients wait for?", Panels: latencyRow(s)},
			{Title: "Throughput: how much, and how does it end?", Panels: throughputRow(s)},
			{Title: "Queue and batch: is it full?", Panels: batchRow(s)},
			{Title: "Memory: is there room for tokens?", Panels: memoryRow(s)},
			{Title: "Phases and lengths, from every replica's buckets: choose a model first", Collapsed: true, Panels: bucketRow(s)},
		},
	}
}

func latencyRow(s scope) []Panel {
	return []Panel{
		heat("TTFT distribution", wait, 12, About{
			"First tokens per second, by how long each took, at the engine with the most.",
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
			"TTFT decides whether an application feels responsive.",
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
			"Gauges of a hanging engine keep their last values, or show that nothing runs. This panel also takes open connections as a sign of " +
				"work.",
			"Above a minute, take the replica out of rotation.",
		},
			Query{promql.Max(replicas, s.of(metrics.EngineStalled)), replicaLegend},
			Query{
				promql.And(promql.Max(replicas, s.of(metrics.EngineWithoutProgress)), promql.Max(replicas, s.of(metrics.RecordedStalled))),
				"no progress " + replicaLegend,
			}).runbook("LLMEngineStalled").next(rules.IncidentDashboard).
			movesIn("wedged-engine"),
		lines("Crash loops", number, 8, About{
			"Restarts within six hours, for engines that restart again and again: at least three times within an hour, or four within six.",
			"Each restart drops all requests, and the engine must load its model again.",
			"Read in the log why the previous process died.",
		},
			Query{
				promql.Mul(promql.Max(replicas, s.of(metrics.RecordedSeen)), s.of(metrics.RecordedRestarts), promql.On(pages...).ManyToOne()),
				replicaLegend,
			}).
			empty("No engine restarts again and again, or none is read.").runbook("LLMEngineCrashLoop").next(rules.IncidentDashboard).
			movesIn("crash-loop"),
		lines("Requests by outcome", requests, 8, About{
			"Requests that ended, by outcome: stop and length are answers, rejected means overload, error means a fault of the " +
				"server, and abort means that the client left.",
			"Errors and rejections are what availability objectives count.",
			"Treat rejected as queueing. For error, read the server's log. With abort, clients gave up, so look at latency.",
		},
			Query{s.perModel(s.of(metrics.RecordedRequests), s.rate(by(models, metrics.LabelOutcome), metrics.Requests)), "{{outcome}} " +
				modelLegend}).stacked().runbook("LLMErrorBudgetFastBurn").next(rules.SLODashboard).
			movesIn("rejections"),
		lines("Goodput", tokenRate, 8, About{
			"For whole models on all nodes, tokens per second: of requests that met every latency objective (a lower bound); of all requests; " +
				"of good requests at this hour yesterday.",
			"Tokens that come too late are wasted work. No engine reports which requests missed several objectives, so each miss counts as " +
				"another request of mean length.",
			"If the gap widens, see which objective burns. For inter-token latency, lower the batch limit; for TTFT, add replicas.",
		},
			Query{good, "good, at least " + modelLegend}, Query{s.of(metrics.RecordedGenerationTokens), "generated " + modelLegend},
			Query{promql.Over("avg_over_time", promql.Offset(good, 24*hour-hour/2), hour), "yesterday " + modelLegend}).
			lowest().empty("No latency objective counts here.").runbook("BranchLargeBatch").next(rules.SLODashboard).
			movesIn("traffic-burst", "kv-thrash", "bad-release", "thermal-throttle").notDrilled(noYesterday),
	}
}

func batchRow(s scope) []Panel {
	return []Panel{
		lines("Running and waiting", number, 8, About{
			"Requests in the running batches and in the queues of all replicas of a model.",
			"If more requests wait than run, the queue does not empty.",
			"If requests wait while the batch could grow, look at KV cache, then at the batch limit.",
		},
			Query{s.perModel(s.of(metrics.RecordedRunning), promql.Sum(models, s.of(metrics.RequestsRunning))), "running " + modelLegend},
			Query{s.perModel(s.of(metrics.RecordedWaiting), promql.Sum(models, s.of(metrics.RequestsWaiting))), "waiting " + modelLegend}).
			runbook("BranchQueueing").next(FleetDashboard).
			movesIn("traffic-burst", "long-prompts", "kv-transfer-failures", "rejections"),
		lines("Waiting by reason", number, 8, About{
			"Requests in the engines' queues by what they wait for, if engines report it.",
			"Capacity means a full engine. Deferred, bootstrap and kv_transfer wait for an adapter or for KV cache from elsewhere, not for room.",
			"If requests are deferred while KV cache is free, look at transfers and tiers, not at replicas.",
		},
			Query{promql.Sum(by(models, metrics.LabelReason), s.of(metrics.RequestsWaitingByReason)), "{{reason}} " + modelLegend}).stacked().
			runbook("BranchQueueing").next(rules.OptionalDashboard).
			movesIn("kv-transfer-failures"),
		lines("Threads that wait for a CPU", number, 8, About{
			"Threads of the engines that are ready to run but wait for a CPU, on average.",
			"Each step needs the CPU before and after the GPU's work.",
			"On a healthy host this is near 0. If it is near 1 or above, look for a CPU limit, or for other processes on the node.",
		},
			Query{promql.Sum(replicas, promql.Rate(s.of(metrics.EngineCPUWait), rateInterval)), replicaLegend}).
			empty("The exporter sees no process of these engines on a GPU.").runbook("BranchHostBound").next(rules.GPUDashboard).
			notDrilled(noEngine),
	}
}

func memoryRow(s scope) []Panel {
	hit := func(hits, queries *metrics.Family) promql.Expr {
		return shareOf(s.rate(models, hits), s.rate(models, queries))
	}
	return []Panel{
		lines("KV cache in use", share, 12, About{
			"Share of the KV cache that unfinished requests use, per replica.",
			"It shows whether there is room. GPU memory does not, because engines reserve it at start.",
			"Above 90% with requests waiting, cap output and context.",
		},
			Query{promql.Max(replicas, s.of(metrics.KVCacheUsage)), replicaLegend}).bad(0.8, 0.9).max(1).runbook("BranchKVPressure").
			next(rules.IncidentDashboard).
			movesIn("traffic-burst", "kv-thrash"),
		lines("Preemptions", perSecond, 12, About{
			"Requests per second that lost their cache and are computed again.",
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
			"The 95th percentiles of four times: in the queue; from first scheduling to first token; from first to last token; of one KV cache " +
				"transfer between engines.",
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
			"Treat a rise like a rise of ITL, but look for pauses elsewhere.",
		},
			Query{s.quantile(0.95, models, metrics.TimePerOutputToken), modelLegend}).limits(s.limitOf(string(slo.TPOT))).
			runbook("BranchLargeBatch").next(rules.IncidentDashboard).
			movesIn("bad-release", "thermal-throttle").notDrilled(noneOfThem),
	}
}
