package metrics

// These series are recorded per model, for dashboards over weeks. A panel reads one series per model instead of every
// bucket of every replica. For a node or a replica, dashboards read the exported series.
var (
	perModel = with(LabelCluster, LabelNamespace, LabelModel)

	RecordedTimeToFirstToken = recorded(Sum, "model:llm_engine_time_to_first_token_seconds_bucket:rate5m",
		"First tokens per second within le, by engine and version, because bucket bounds differ between them.",
		perModel, with("le", LabelRuntime, LabelVersion))
	RecordedInterTokenLatency = recorded(Sum, "model:llm_engine_inter_token_latency_seconds_bucket:rate5m",
		"Gaps between tokens per second within le, by engine and version, because bucket bounds differ between them.",
		perModel, with("le", LabelRuntime, LabelVersion))
	RecordedRequestDuration = recorded(Sum, "model:llm_engine_request_duration_seconds_bucket:rate5m",
		"Requests finished per second within le, by engine and version, because bucket bounds differ between them.",
		perModel, with("le", LabelRuntime, LabelVersion))
	RecordedPromptTokens = recorded(Sum, "model:llm_engine_prompt_tokens:rate5m",
		"Prompt tokens per second.", perModel)
	RecordedGenerationTokens = recorded(Sum, "model:llm_engine_generation_tokens:rate5m",
		"Generated tokens per second.", perModel)
	RecordedGoodTokens = recorded(Sum, "model:llm_engine_good_tokens:rate5m",
		"Lower bound of the generated tokens per second of requests that met every latency objective. No engine reports which requests missed "+
			"several objectives, so misses of different signals count as different requests of mean length. Absent without a latency objective.",
		perModel)
	RecordedRequests = recorded(Sum, "model:llm_engine_requests:rate5m",
		"Requests ended per second, by outcome.", perModel, with(LabelOutcome))
	RecordedProbes = recorded(Sum, "model:llm_probe_requests:rate5m",
		"Synthetic requests of all exporters that engines or gateways answered, per second. The engines count them with users' requests.",
		perModel)
	RecordedUsersServed = recorded(Sum, "model:llm_engine_first_tokens:increase",
		"Users' requests that got a first token in the window: all requests minus the answered synthetic requests.", perModel)
	RecordedVersion = recorded(Never, "replica:llm_engine_version:info",
		"The version that a replica reports; one series even while two exporters disagree. Always 1.", ReplicaLabels, with(LabelVersion))
	RecordedRunning = recorded(Sum, "model:llm_engine_requests_running:sum",
		"Requests in the running batches of all replicas.", perModel)
	RecordedWaiting = recorded(Sum, "model:llm_engine_requests_waiting:sum",
		"Requests waiting on all replicas, a signal for autoscaling.", perModel)
	RecordedReplicas = recorded(Sum, "model:llm_engine_replicas:count",
		"Replicas that report a batch.", perModel)
	RecordedReplicasByRole = recorded(Never, "model:llm_engine_replicas:by_role",
		"Replicas of a model that report a batch, by role.", perModel, with(LabelRole), suspects)
	RecordedKVCacheUsage = recorded(Max, "model:llm_engine_kv_cache_usage_ratio:max",
		"Share of the KV cache in use on the fullest replica.", perModel)
	RecordedModelGPUs = recorded(Sum, "model:llm_engine_gpus:count",
		"GPUs that a model runs on. A GPU that two models share counts for both.", perModel)
	RecordedGPUShare = recorded(Never, "model:llm_engine_gpu:share",
		"Part of a GPU that belongs to a model: one, divided by the number of models whose engines run on it now. The cost "+
			"and the power of the GPU are divided in this proportion.",
		perModel, with(LabelGPUUUID))
	RecordedServedGPU = recorded(Never, "model:llm_engine_gpu_info:last1h",
		"A model runs on a GPU, or ran there within the last hour, always 1. An engine that died with its GPU is therefore still mapped to it.",
		perModel, with(LabelRuntime, LabelGPUUUID))
	RecordedSlowedGPU = recorded(Never, "gpu:llm_gpu_slowed:ratio5m",
		"Share of five minutes in which a GPU was slowed down although no setting requests this, by reason: heat, a power brake, a hardware "+
			"slowdown, no licence for a virtual GPU, a low clock without a known reason. 0 without a slowdown.",
		with(LabelReason, LabelCluster, LabelInstance, LabelGPUUUID, LabelGPU))
	RecordedCPUWait = recorded(Never, "replica:llm_engine_cpu_wait:rate2m",
		"Threads of a replica that wait for a CPU, on average over two minutes.", ReplicaLabels)
	RecordedThrottledGPUs = recorded(Max, "model:llm_gpu_throttled:ratio",
		"Share of a model's GPUs that were slowed down for more than 5% of five minutes.", perModel)
	RecordedChanged = recorded(Never, "model:llm_engine_changed:timestamp_seconds",
		"When the version or a setting last changed from old to new on an engine of the model, unix time. Kept for a day. "+
			"If no exporter saw the old version, old has the value \"another\".",
		perModel, with(LabelSetting, LabelOld, LabelNew))
	RecordedStarted = recorded(Never, "model:llm_engine_started:last5m",
		"An engine that started, 1 for five minutes and absent otherwise, for annotations on dashboards.", perModel,
		with(LabelInstance, LabelPod, LabelServer))

	RecordedLinkErrors = recorded(Sum, "link:llm_gpu_nvlink_errors:increase1h",
		"Errors of an NVLink within an hour that indicate wear: replays, and wrong checksums, packets and flits. Recorded once an hour.",
		with(LabelCluster, LabelInstance), GPULabels, with(LabelLink))

	RecordedFreeGPU = recorded(Never, "gpu:llm_gpu_free:count",
		"Engines that used a GPU within the hour, if all of them have left their nodes. Absent for a GPU in use.",
		with(LabelCluster, LabelGPUUUID))
	RecordedLinkFault = recorded(Never, "gpu:llm_gpu_link_fault:value",
		"An NVLink that recovers too often or wears; reason is recovers or wears. A broken link has a condition in "+
			"llm_gpu_health_condition_timestamp_seconds.",
		with(LabelCluster, LabelInstance), GPULabels, with(LabelLink, LabelReason))

	RecordedUp = recorded(Max, "page:llm_engine_up:max",
		"Whether a metrics endpoint answers (1), one series even if several exporters of its node read it. Absent while its engine loads, "+
			"for at most twenty minutes.", PageLabels)
	RecordedModelUp = recorded(Max, "model:llm_engine_up:max",
		"Whether a metrics endpoint of the model answers (1), by the model that it reports now or reported last. Prefill engines do not "+
			"count. A model that the endpoint no longer serves counts for an hour after its last request.", perModel)
	RecordedDownTime = recorded(Sum, "model:llm_down:seconds",
		"Seconds of the last minute in which none of a model's engines or, with the role gateway, none of its gateways answered. Absent if "+
			"one always answered. An engine that is read too slowly, or that loads the model, does not count as down.", perModel,
		with(LabelRole))
	RecordedRestarts = recorded(Never, "page:llm_engine_restarts:last6h",
		"Restarts of the process at a metrics endpoint, if at least four within six hours or three within one. Absent otherwise.", PageLabels)
	RecordedOutputTokens = recorded(Never, "replica:llm_engine_request_generation_tokens:mean",
		"Mean output tokens of a replica's requests over the last two minutes, or over ten minutes if fewer than forty requests ended. Absent "+
			"if fewer than forty ended in ten minutes, or if most are synthetic.", ReplicaLabels, with(LabelRole, LabelRuntime))
	RecordedServed = recorded(Never, "replica:llm_engine_info:last",
		"A model that a metrics endpoint serves (1), or served last but does not now (0), because it does not answer or has lost the "+
			"model's workers. Absent once the endpoint is no longer a target.", ReplicaLabels, with(LabelRole))
	RecordedSeen = recorded(Never, "replica:llm_engine_seen:last1h",
		"An engine whose metrics page was read within the last hour, and its model, always 1.", ReplicaLabels, with(LabelRole))
	RecordedGateway = recorded(Never, "page:llm_gateway:last",
		"A metrics endpoint that is a gateway's, or was when it last answered, always 1. Absent once the endpoint is no longer a target.",
		PageLabels, with(LabelRole))
	RecordedArrived = recorded(Never, "page:llm_engine_arrived:last10m",
		"Age in seconds of an engine that started within the last ten minutes, after its exporter and the configuration that names it. The "+
			"engine's counts before the first reading are therefore recent. Absent otherwise.", PageLabels)
	RecordedNodeUp = recorded(Max, "node:up:max",
		"Whether any target on a node, other than the exporter, answers (1).", with(LabelCluster, "node"))
	RecordedUnread = recorded(Never, "node:llm_exporter_gone:last1h",
		"An exporter that answered within the last hour but does not now: 0 if another target on its node answers, 1 if it is unknown whether "+
			"the node still exists. Absent otherwise, and if the node is also gone.",
		with(LabelCluster, LabelInstance))
	RecordedGPUBusy = recorded(Never, "page:llm_engine_gpu_busy:last1m",
		"GPUs that one engine has to itself and that were busy at every scrape of a minute, while the engine had requests or the GPU drew "+
			"idle power. Absent if there are none.", PageLabels)
	RecordedStandsStill = recorded(Never, "replica:llm_engine_stands_still:ratio",
		"The same as replica:llm_engine_stalled:last1m, but only from present readings.", ReplicaLabels)
	RecordedStalled = recorded(Never, "replica:llm_engine_stalled:last1m",
		"Share of the ranks of a replica that have work and make no progress; 1 if no rank makes progress. Absent otherwise.",
		ReplicaLabels)
	RecordedProbed = recorded(Never, "address:llm_probe:namespace",
		"A model that probes request at an address, always 1, with the namespace of the model at that address.",
		with(LabelCluster, LabelInstance, LabelModel, LabelServer, LabelNamespace))
	RecordedProbeFailures = recorded(Max, "address:llm_probe_failures:max",
		"Largest number of failed requests in a row among an exporter's probes at an address.",
		with(LabelCluster, LabelInstance, LabelModel, LabelServer))
	RecordedProbeTTFT = recorded(Never, "address:llm_probe_time_to_first_token_seconds:median30m",
		"Median time to the first token of the probes of an exporter at an address. Absent with fewer than ten requests "+
			"within half an hour.", with(LabelCluster, LabelInstance, LabelModel, LabelServer))
	RecordedUnanswered = recorded(Never, "address:llm_probe_unanswered:last2m",
		"Synthetic requests in a row that a model did not answer at an address although its engines serve. This pages. Absent while the "+
			"probe itself may be at fault.",
		with(LabelCluster, LabelInstance, LabelModel, LabelServer))

	RecordedStageTime = recorded(Never, "model:llm_engine_stage_seconds:mean",
		"Mean time of a model's requests in each stage of llm_engine_stage_seconds_total, in the window.", perModel, with(LabelStage))
	RecordedReplicaTime = recorded(Never, "replica:llm_engine_stage_seconds:mean",
		"Mean time of a replica to the first token, and between tokens, over the last two minutes, or over ten minutes if there were fewer "+
			"than ten observations. Absent with fewer than ten observations in ten minutes.",
		ReplicaLabels, with(LabelRole, LabelRuntime, LabelStage))
	RecordedSkew = recorded(Never, "replica:llm_engine_skew:value",
		"A replica, or a rank of a replica, that does worse than its peers over ten minutes. reason names the measure: its time to the first "+
			"token (first_token) or between tokens (next_token), the duration of its steps at the same number of requests (step_time), the "+
			"lengths of its answers (answer_length), or requests that wait only there (queue, rank_queue). With the reason setting, the "+
			"replica has a value (new) that the other replicas do not have.",
		ReplicaLabels, with(LabelStage, LabelDPRank, LabelReason, LabelSetting, LabelNew))
	RecordedReplicaWork = recorded(Never, "replica:llm_engine_work:mean",
		"What lengthens the times of a replica even if it is not slow: the prompt tokens that it computed per first token (first_token), and "+
			"the fourth root of the number of running requests (next_token). With sixteen times as many, tokens take about twice as long.",
		ReplicaLabels, with(LabelRole, LabelRuntime, LabelStage))
	RecordedStep = recorded(Never, "replica:llm_engine_step_seconds:mean",
		"Duration of a replica's step with this many requests (batch), with the name of its GPU if known.", ReplicaLabels,
		with(LabelRole, LabelRuntime, LabelBatch, LabelGPUName))
	RecordedFailing = recorded(Max, "replica:llm_engine_failing:ratio",
		"Share of failed requests of a replica or, with the role gateway, of a gateway, if five failed within two or ten minutes.",
		ReplicaLabels, with(LabelRole))
	RecordedReplicaSlow = recorded(Never, "replica:llm_engine_slow:value",
		"A replica that now takes three times as long as the best one of its role and runtime, even relative to its work. "+
			"stage is first_token or "+
			"next_token.",
		ReplicaLabels, with(LabelStage))

	RecordedOnFailedGPU = recorded(Never, "replica:llm_engine_on_failed_gpu:last1h",
		"A replica that runs, or ran within the last hour, on a GPU that is lost or reported an XID that pages. Kept for longer while its "+
			"model suffers.", ReplicaLabels, with(LabelGPUUUID))
	RecordedLeftGPU = recorded(Never, "replica:llm_engine_left_gpu:ratio",
		"Share of a replica's model in GPU memory, if it is below 1 and was higher by at least a quarter within the last week.", ReplicaLabels)
	RecordedKVLeak = recorded(Never, "replica:llm_engine_kv_cache_leak:ratio",
		"Growth of an hour's least KV cache use within two hours, as a share of a replica's cache, if no more requests ran and at this rate "+
			"the cache is full within two hours.", ReplicaLabels)
	RecordedFullTier = recorded(Never, "replica:llm_engine_kv_tier_full:ratio",
		"A tier of a replica's KV cache that is full: the share that transfers pin or, if that is not reported, the share of tokens that "+
			"the tier refuses.", ReplicaLabels, with(LabelTier))
	RecordedYoung = recorded(Max, "model:llm_engine_young:ratio",
		"Share of a model's engines that started within the last fifteen minutes. Their caches are empty, and kernels compile. Absent if "+
			"there are none.",
		perModel)
	RecordedFullCache = recorded(Max, "model:llm_engine_kv_cache_full:ratio",
		"Use of a model's fullest KV cache, if it was above 0.9 for five minutes in which requests waited there. Absent otherwise.", perModel)
	RecordedAnswersMissing = recorded(Never, "model:llm_engine_answers:missing",
		"Answers that the engines of a model usually give in two minutes, if they gave none in the last two minutes. Absent otherwise.", perModel)
	RecordedNeverSilent = recorded(Never, "model:llm_never_silent:last1d",
		"Users' first tokens per two minutes that a model reached for 98% of the day that ended ten minutes ago. Absent if "+
			"fewer than four, "+
			"and for models that have been recorded for less than a day.", perModel)
	RecordedWithoutToken = recorded(Never, "model:llm_engine_without_token:ratio10m",
		"Share of a model's requests that clients gave up before the first token, if it is above 1% and above twice the "+
			"share of the day before (or the usual share, if that is unknown), while other requests were served and none waited. "+
			"Absent otherwise.", perModel)
	RecordedMissed = recorded(Never, "model:llm_missed:last1h",
		"A model that had users' requests, or events of an objective, within the last hour. Absent if its metrics endpoint now serves another "+
			"model, or if the configuration allows the model to be absent.", perModel)
	RecordedDeleted = recorded(Never, "pod:llm_exporter_pod_deleted_on_purpose:last1h",
		"Whether a pod that disappeared within the last hour was deleted on purpose (1), as the exporter of its node reports.",
		with(LabelCluster, LabelNamespace, LabelPod))
	RecordedExpected = recorded(Never, "replica:llm_engine_expected:last1h",
		"A model at a metrics endpoint that an exporter read within the last hour, always 1. Absent for endpoints that were removed on "+
			"purpose: from the configuration, with their pod, or because another model took their place.", ReplicaLabels, with(LabelRole))
	RecordedSuccessor = recorded(Never, "model:llm_successor_loads:last23m",
		"Metrics endpoints that a model lost on a node or in a namespace where an engine loads a model that is not yet "+
			"known. Absent after the longest time that loading may take.", perModel)
	RecordedVanished = recorded(Never, "model:llm_vanished:last1h",
		"A missed model whose metrics endpoints are gone, too. The value is the number of lost endpoints, or -1 with the exporter's instance "+
			"if the exporter is gone, too, and the number is unknown.", perModel, with(LabelInstance))
	RecordedServing = recorded(Never, "model:llm_engine_serving:count",
		"Engines of a model that were up and awake for two minutes. Absent if there are none.", with(LabelCluster, LabelModel))
	RecordedSlower = recorded(Never, "model:llm_engine_slower:ratio",
		"Mean time to the first or next token over half an hour, as a multiple of the mean of the day that ended six hours ago.", perModel,
		with(LabelStage))
	RecordedLoad = recorded(Max, "model:llm_engine_load:ratio",
		"Requests per replica over half an hour, as a multiple of those over the day that ended six hours ago.", perModel)
	RecordedOldestStart = recorded(Never, "model:llm_engine_start_time_seconds:min",
		"When the longest-running engine of a model started, unix time.", perModel)
	RecordedGPUSpins = recorded(Never, "page:llm_engine_gpu_busy:last10m",
		"GPUs that one engine has to itself and that were busy at every scrape of ten minutes. Absent if there are none.", PageLabels)

	RecordedCapacity = recorded(Never, "model:llm_capacity:requests_per_second",
		"Requests per second, at the present mix of prompts and answers, above which a model misses a latency objective. kind is expected, "+
			"low or high. The capacity is between low and high nine times out of ten. An engine of unknown capacity counts with the mean "+
			"capacity of the others.",
		perModel, with(LabelSLO, LabelKind))
	RecordedUtilisation = recorded(Max, "model:llm_capacity_used:ratio",
		"Requests that arrive at a model, as a share of its capacity, by the kinds of model:llm_capacity:requests_per_second.", perModel,
		with(LabelSLO, LabelKind))
	RecordedDesired = recorded(Never, "model:llm_desired_replicas:count",
		"Replicas that a model needs to meet all latency objectives with the requests that arrive, at the low estimate of its capacity; slo "+
			"is the objective that needs them, and limit what limits most of the engines. Absent while the capacity is unknown. For autoscalers.",
		perModel, with(LabelSLO, LabelLimit))
	RecordedEnergyPerToken = recorded(Never, "model:llm_energy_per_token:joules",
		"Energy of a model's GPUs per generated token, over five minutes. Absent while the model generates no tokens. Models that share a GPU "+
			"share its energy.", perModel)
	RecordedGPUHour = recorded(Never, "gpu:llm_gpu_hour:price",
		"Price of a GPU hour, from llm_gpu_hour_price.", with(LabelCluster, LabelGPUUUID))
	RecordedHourlyCost = recorded(Sum, "llm_total_hourly_cost",
		"Price per hour of a model's GPUs, under OpenCost's name. Models that share a GPU share its price. The model __idle__ stands for the "+
			"GPUs on which no engine runs, so the sum with cost_basis allocation is the bill for all GPUs.", perModel, with(LabelCostBasis))
	RecordedWastedCost = recorded(Sum, "model:llm_hourly_cost:late",
		"Part of a model's price per hour that went into tokens of requests that missed a latency objective.", perModel)
	RecordedPromptTime = recorded(Never, "model:llm_prompt_time:ratio",
		"Prefill's share of the time that a model's requests spend in prefill and decode, over five minutes. Absent for "+
			"engines that do not "+
			"observe both.", perModel)
	RecordedCostPerMillion = recorded(Never, "llm_cost_per_million_tokens",
		"Price of a million tokens of a model, under OpenCost's name: of all tokens or, with the label phase, of prompt tokens or of "+
			"generated tokens. Absent while there are none.", perModel, with(LabelCostBasis, LabelPhase, LabelAllocationMethod))
	RecordedCacheSavings = recorded(Never, "llm_cache_savings_fraction",
		"Share of a model's prompt tokens that were in its KV cache already, over five minutes, under OpenCost's name.", perModel)
	RecordedSuspect = recorded(Never, "model:llm_suspect:strength",
		"Evidence about a model that is strong enough to name where to look. clue is its kind, order its position in a verdict (smallest "+
			"first), and delays what it delays or makes fail (empty for everything). The value is its strength, in the clue's own unit. runbook "+
			"is the alert whose runbook has more detail.",
		perModel, with(LabelGPU, LabelRunbook, LabelBranch, LabelClue, LabelOrder, LabelDelays, LabelUnit, LabelSays, LabelLever), suspects)
	RecordedShown = recorded(Never, "model:llm_suspect:shown",
		"The strongest series of each suspect, in the unit in which a text prints its strength. more is the number of other engines or GPUs "+
			"of which the same is true. The other labels are those of model:llm_suspect:strength.",
		perModel, with(LabelGPU, LabelRunbook, LabelBranch, LabelClue, LabelOrder, LabelDelays, LabelUnit, LabelSays, LabelLever, LabelMore),
		suspects)
	RecordedSentence = recorded(Never, "model:llm_suspect:sentence",
		"A suspect in words, always 1. says is a sentence with names and numbers filled in. The other labels are those of "+
			"model:llm_suspect:strength.",
		perModel, with(LabelGPU, LabelRunbook, LabelBranch, LabelClue, LabelOrder, LabelDelays, LabelSays, LabelLever), suspects)
	RecordedVerdict = recorded(Never, "model:llm_verdict:order",
		"Where to look first while an objective burns: the first suspect that explains it, in words, with its branch, runbook, lever and "+
			"place. The value is its position in the order of a diagnosis. Absent if no suspect explains the burn.",
		ModelSLOLabels, with(LabelGPU, LabelRunbook, LabelBranch, LabelClue, LabelDelays, LabelSays, LabelLever, LabelPod, LabelServer,
			LabelInstance, LabelGPUUUID))
	RecordedPrinted = recorded(Max, "model:llm_printed:value",
		"Changes that the pages of a model report: the facts of model:llm_evidence:value that differ from the day before by half or more, "+
			"restarts, settings, and versions if several run. Same labels.",
		perModel, with(LabelFact, LabelOrder, LabelUnit, LabelSays), suspects)
	RecordedEvidence = recorded(Never, "model:llm_evidence:value",
		"A fact about a model, in its own unit. Facts whose names end in _before describe the day that ended an hour ago.",
		perModel, with(LabelFact, LabelOrder, LabelUnit, LabelSays), suspects)
	RecordedExplained = recorded(Never, "model:llm_slo_explained:info",
		"What a suspect must delay or make fail to explain why an objective burns, always 1. There is one series per value of delays in "+
			"model:llm_suspect:strength. If the engines meet an objective that their gateway misses, delays and refusals in the engines explain "+
			"nothing. Absent if an objective has not burned for five minutes.", ModelSLOLabels, with(LabelDelays))
	RecordedUsual = recorded(Never, "model:llm_usual:value",
		"Usual value of a fact of model:llm_evidence:value: its median over the three hours until twenty minutes ago. If the fact was not "+
			"recorded then, the median covers the day before, or the ten minutes until ten minutes ago.",
		perModel, with(LabelFact))
	RecordedAgainst = recorded(Never, "model:llm_against_usual:ratio",
		"A fact of model:llm_evidence:value as a multiple of its usual value.", perModel, with(LabelFact))
)

// suspects lists the labels that show where evidence was found, in addition to the model.
var suspects = with(LabelPod, LabelServer, LabelInstance, LabelGPUUUID, LabelReason, LabelXID, LabelVersion, LabelTier, LabelDPRank,
	LabelSetting, LabelOld, LabelNew)
