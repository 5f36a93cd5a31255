package metrics

// Series recorded per model, for dashboards over weeks: a panel reads one series per model instead of every bucket of
// every replica. For a node or a replica, dashboards read the exported series.
var (
	perModel = with(LabelCluster, LabelNamespace, LabelModel)

	RecordedTimeToFirstToken = recorded(Sum, "model:llm_engine_time_to_first_token_seconds_bucket:rate5m",
		"First tokens per second within le, by engine: the bounds of two engines differ.", perModel, with("le", LabelRuntime))
	RecordedInterTokenLatency = recorded(Sum, "model:llm_engine_inter_token_latency_seconds_bucket:rate5m",
		"Gaps between tokens per second within le, by engine: the bounds of two engines differ.", perModel, with("le", LabelRuntime))
	RecordedRequestDuration = recorded(Sum, "model:llm_engine_request_duration_seconds_bucket:rate5m",
		"Requests finished per second within le, by engine: the bounds of two engines differ.", perModel, with("le", LabelRuntime))
	RecordedPromptTokens = recorded(Sum, "model:llm_engine_prompt_tokens:rate5m",
		"Prompt tokens per second.", perModel)
	RecordedGenerationTokens = recorded(Sum, "model:llm_engine_generation_tokens:rate5m",
		"Generated tokens per second.", perModel)
	RecordedGoodTokens = recorded(Sum, "model:llm_engine_good_tokens:rate5m",
		"Generated tokens per second of requests that met every objective on a latency, at least: no engine says which requests missed several, so misses of different signals count as different requests, each as long as the mean. Absent without such an objective.", perModel)
	RecordedRequests = recorded(Sum, "model:llm_engine_requests:rate5m",
		"Requests ended per second, by outcome.", perModel, with(LabelOutcome))
	RecordedProbes = recorded(Sum, "model:llm_probe_requests:rate5m",
		"Synthetic requests per second that were answered, of all exporters, whether they asked an engine or a gateway: the engines count them with those of users.", perModel)
	RecordedUsersServed = recorded(Sum, "model:llm_engine_first_tokens:increase",
		"Requests of users that got a first token in the window: all, less the answered synthetic ones.", perModel)
	RecordedVersion = recorded(Never, "replica:llm_engine_version:info",
		"The version that a replica says, one while two exporters disagree. Always 1.", ReplicaLabels, with(LabelVersion))
	RecordedRunning = recorded(Sum, "model:llm_engine_requests_running:sum",
		"Requests in the running batches of all replicas.", perModel)
	RecordedWaiting = recorded(Sum, "model:llm_engine_requests_waiting:sum",
		"Requests waiting on all replicas: a signal to scale on.", perModel)
	RecordedReplicas = recorded(Sum, "model:llm_engine_replicas:count",
		"Replicas that report a batch.", perModel)
	RecordedKVCacheUsage = recorded(Max, "model:llm_engine_kv_cache_usage_ratio:max",
		"Share of the KV cache in use on the fullest replica.", perModel)
	RecordedModelGPUs = recorded(Sum, "model:llm_engine_gpus:count",
		"GPUs that a model runs on. A GPU that two models share counts for both.", perModel)
	RecordedServedGPU = recorded(Never, "model:llm_engine_gpu_info:last1h",
		"A model runs on a GPU, or did within the hour, always 1: an engine that died with its GPU still leads to it.",
		perModel, with(LabelRuntime, LabelGPUUUID))
	RecordedThrottledGPUs = recorded(Max, "model:llm_gpu_throttled:ratio",
		"Share of a model's GPUs whose clocks were lowered for more than 5% of five minutes because of heat, a power brake or a hardware slowdown.", perModel)
	RecordedGPUBandwidth = recorded(Max, "model:llm_gpu_memory_bandwidth_utilization_ratio:avg5m",
		"Share of the device memory bandwidth in use over five minutes, mean over the GPUs and MIG instances of a model.", perModel)
	RecordedGPUXIDs = recorded(Sum, "model:llm_gpu_xid_errors:increase1h",
		"Driver errors (XIDs) within the hour on the GPUs that a model runs on or ran on within the hour. Those of a shared GPU count for each of its models.", perModel)
	RecordedChanged = recorded(Never, "model:llm_engine_changed:timestamp_seconds",
		"When the version or a setting of a model's engines last changed from old to new on one of them, unix time, for a day. A version that no exporter saw before it changes from another.",
		perModel, with(LabelSetting, LabelOld, LabelNew))
	RecordedStarted = recorded(Never, "model:llm_engine_started:last5m",
		"An engine that started, 1 for five minutes and absent otherwise: a mark for dashboards.", perModel, with(LabelInstance, LabelPod, LabelServer))

	RecordedLinkErrors = recorded(Sum, "link:llm_gpu_nvlink_errors:increase1h",
		"Errors of an NVLink within an hour in which wear shows: replays, and wrong checksums, packets and flits. Recorded once an hour.",
		with(LabelCluster, LabelInstance), GPULabels, with(LabelLink))

	RecordedLinkFault = recorded(Never, "gpu:llm_gpu_link_fault:value",
		"An NVLink that recovers too often, or wears: reason says which, recovers or wears. What is broken has a condition of llm_gpu_health_condition_timestamp_seconds.",
		with(LabelCluster, LabelInstance), GPULabels, with(LabelLink, LabelReason))

	RecordedUp = recorded(Max, "page:llm_engine_up:max",
		"Whether a page answers (1), once however many exporters of its node read it. Absent while its engine loads, for twenty minutes at most.", PageLabels)
	RecordedModelUp = recorded(Max, "model:llm_engine_up:max",
		"Whether a page of an engine of the model answers (1), as they say now or said last. A model that a page no longer serves counts while users asked for it within the hour.", perModel)
	RecordedDownTime = recorded(Sum, "model:llm_down:seconds",
		"For how many seconds of the last minute none of a model's engines or, with the role gateway, none of its gateways answered. Absent where one did all the time. Who is only read too slowly, or loads the model, may answer.", perModel, with(LabelRole))
	RecordedRestarts = recorded(Never, "page:llm_engine_restarts:last6h",
		"Restarts of a page's process, from four within six hours or three within one, absent otherwise.", PageLabels)
	RecordedOutputTokens = recorded(Never, "replica:llm_engine_request_generation_tokens:mean",
		"Mean output tokens of a replica's requests over the last two minutes or, where fewer than forty ended, over ten. Absent with fewer than forty in those, too, or where probes ask most.", ReplicaLabels, with(LabelRole))
	RecordedServed = recorded(Never, "replica:llm_engine_info:last",
		"A model that a page serves (1), or served last and does not now (0): the page does not answer, or has lost the workers of that model. It ends when the page is no target any more.", ReplicaLabels)
	RecordedSeen = recorded(Never, "replica:llm_engine_seen:last1h",
		"An engine whose page was read within the hour, and the model on it, always 1.", ReplicaLabels)
	RecordedGateway = recorded(Never, "page:llm_gateway:last",
		"A page that is a gateway's, or was when it last answered, always 1. It ends when the page is no target any more.", PageLabels, with(LabelRole))
	RecordedArrived = recorded(Never, "page:llm_engine_arrived:last10m",
		"Age in seconds of an engine that started within ten minutes, after its exporter and the configuration that names it: what it had counted before it was first read is recent. Absent otherwise.", PageLabels)
	RecordedNodeUp = recorded(Max, "node:up:max",
		"Whether a target on a node answers, other than exporters of this kind (1).", with(LabelCluster, "node"))
	RecordedUnread = recorded(Never, "node:llm_exporter_gone:last1h",
		"An exporter that answered within the hour and does not now: 0 where another target on its node answers, 1 where nothing tells whether the node is there. "+
			"Absent otherwise, and where the node is gone, too.",
		with(LabelCluster, LabelInstance))
	RecordedGPUBusy = recorded(Never, "page:llm_engine_gpu_busy:last1m",
		"How many GPUs that a page's engine has to itself were busy at every scrape of a minute while it had requests or drew idle power; absent for none.", PageLabels)
	RecordedStandsStill = recorded(Never, "replica:llm_engine_stands_still:ratio",
		"What replica:llm_engine_stalled:last1m says, by what is read now.", ReplicaLabels)
	RecordedStalled = recorded(Never, "replica:llm_engine_stalled:last1m",
		"Share of the ranks of a replica that have work and make no progress; 1 for one that stands still as a whole, absent otherwise.", ReplicaLabels)
	RecordedProbed = recorded(Never, "address:llm_probe:namespace",
		"What probes ask, always 1, with the namespace of the model there.",
		with(LabelCluster, LabelInstance, LabelModel, LabelServer, LabelNamespace))
	RecordedProbeFailures = recorded(Max, "address:llm_probe_failures:max",
		"Requests in a row that failed, of the worst probe of an exporter at an address.", with(LabelCluster, LabelInstance, LabelModel, LabelServer))
	RecordedProbeTTFT = recorded(Never, "address:llm_probe_time_to_first_token_seconds:median30m",
		"Median time to the first token of the probes of an exporter at an address. Absent with fewer than ten within half an hour.", with(LabelCluster, LabelInstance, LabelModel, LabelServer))
	RecordedUnanswered = recorded(Never, "address:llm_probe_unanswered:last2m",
		"Requests in a row that a model left unanswered at an address although its engines serve: what pages. Absent while any doubt falls on the probe itself.",
		with(LabelCluster, LabelInstance, LabelModel, LabelServer))

	RecordedStageTime = recorded(Never, "model:llm_engine_stage_seconds:mean",
		"Mean time of a model's requests in each stage of llm_engine_stage_seconds_total, in the window.", perModel, with(LabelStage))
	RecordedReplicaTime = recorded(Never, "replica:llm_engine_stage_seconds:mean",
		"Mean time of a replica to the first token, and between tokens, over the last two minutes or, where it observed fewer than ten, over ten. Absent with fewer than ten in those, too.", ReplicaLabels, with(LabelRole, LabelStage))
	RecordedSkew = recorded(Never, "replica:llm_engine_skew:value",
		"A replica, or a rank of one, that does worse than its peers over ten minutes; reason says by what: its time to the first token (first_token) or between tokens (next_token), its steps with as many requests (step), the lengths of its answers, or requests that wait while they do not elsewhere (queue, rank_queue). Or it runs with a setting whose value (new) the other replicas do not have (setting).",
		ReplicaLabels, with(LabelStage, LabelDPRank, LabelReason, LabelSetting, LabelNew))
	RecordedReplicaPrompt = recorded(Never, "replica:llm_engine_prompt_tokens:mean",
		"Prompt tokens per first token of a replica, over the same time as its time to the first token.", ReplicaLabels, with(LabelRole))
	RecordedReplicaComputed = recorded(Never, "replica:llm_engine_uncached_prompt_tokens:mean",
		"The same without those that its prefix cache held.", ReplicaLabels, with(LabelRole))
	RecordedStep = recorded(Never, "replica:llm_engine_step_seconds:mean",
		"How long a step of a replica takes that runs so many requests, with the name of its GPU where it is known.", ReplicaLabels, with(LabelRole, LabelBatch, LabelGPUName))
	RecordedFailing = recorded(Max, "replica:llm_engine_failing:ratio",
		"Share of the requests of a replica, or with the role gateway of a gateway, that fail, where five did within two minutes or ten.", ReplicaLabels, with(LabelRole))
	RecordedReplicaSlow = recorded(Never, "replica:llm_engine_slow:value",
		"A replica that takes three times as long as the best one of its role now, also for the work that it does; stage says to the first token or between tokens.",
		ReplicaLabels, with(LabelStage))

	RecordedOnFailedGPU = recorded(Never, "replica:llm_engine_on_failed_gpu:last1h",
		"A replica that runs, or ran within the hour, on a GPU that is lost or reported an XID that pages; for longer while its model suffers.", ReplicaLabels, with(LabelGPUUUID))
	RecordedColdStart = recorded(Never, "replica:llm_engine_cold_start:value",
		"What shows that requests waited at an engine younger than 15 minutes: how many wait or, if none does, the share of the queue in the time to the first token.", ReplicaLabels)
	RecordedLeftGPU = recorded(Never, "replica:llm_engine_left_gpu:ratio",
		"Share of a replica's model that is in GPU memory, where it is not all of it and at least a quarter more was within the week.", ReplicaLabels)
	RecordedFullTier = recorded(Never, "replica:llm_engine_kv_tier_full:ratio",
		"A tier of a replica's KV cache that takes no more: the share that transfers pin or, where that is not told, of the tokens that it refuses.", ReplicaLabels, with(LabelTier))
	RecordedYoung = recorded(Sum, "model:llm_engine_young:count",
		"Engines of a model that started within fifteen minutes: caches are empty and kernels compile. Absent for none.", perModel)
	RecordedFullCache = recorded(Max, "model:llm_engine_kv_cache_full:ratio",
		"Use of a model's fullest KV cache, above nine tenths for five minutes in which requests waited there. Absent otherwise.", perModel)
	RecordedAnswersMissing = recorded(Never, "model:llm_engine_answers:missing",
		"Answers that the engines of a model usually give in two minutes, where they have given none for two minutes. Absent otherwise.", perModel)
	RecordedMissed = recorded(Never, "model:llm_missed:last1h",
		"A model that users, or events of an objective, asked for within the hour. Absent for one that its page has replaced with another, and for one that may be absent.", perModel)
	RecordedDeleted = recorded(Never, "pod:llm_exporter_pod_deleted_on_purpose:last1h",
		"Whether a pod that went within the hour was deleted on purpose (1), as the exporter of its node says.", with(LabelCluster, LabelNamespace, LabelPod))
	RecordedGPUModels = recorded(Never, "gpu:llm_engine_models:count",
		"How many models run on a GPU.", with(LabelCluster, LabelGPUUUID))
	RecordedExpected = recorded(Never, "replica:llm_engine_expected:last1h",
		"A model on a page that an exporter read within the hour, always 1, without pages that somebody took away on purpose: they were taken out of the configuration, their pod was deleted, or another model took their place.", ReplicaLabels)
	RecordedSuccessor = recorded(Never, "model:llm_successor_loads:last23m",
		"Pages that a model lost on a node or in a namespace where an engine of a model that nobody knows yet loads. Absent after the time that loading may take.", perModel)
	RecordedVanished = recorded(Never, "model:llm_vanished:last1h",
		"A missed model that is gone with its pages: how many of them, or -1 and the exporter if that is gone, too, so that nobody knows.", perModel, with(LabelInstance))
	RecordedServing = recorded(Never, "model:llm_engine_serving:count",
		"How many engines of a model were up and awake for two minutes; absent for none.", with(LabelCluster, LabelModel))
	RecordedSlower = recorded(Never, "model:llm_engine_slower:ratio",
		"How many times as long as on the day that ended six hours ago first tokens take, or next ones: means of half an hour.", perModel, with(LabelStage))
	RecordedLoad = recorded(Max, "model:llm_engine_load:ratio",
		"Requests per replica of half an hour as a multiple of those of the day that ended six hours ago.", perModel)
	RecordedOldestStart = recorded(Never, "model:llm_engine_start_time_seconds:min",
		"When the longest-running engine of a model started, unix time.", perModel)
	RecordedGPUSpins = recorded(Never, "page:llm_engine_gpu_busy:last10m", "How many GPUs that a page's engine has to itself were busy at every scrape of ten minutes; absent for none.", PageLabels)

	RecordedCapacity = recorded(Never, "model:llm_capacity:requests_per_second",
		"Requests per second, at the present mix, above which a latency objective of a model breaks: kind expected, or low and high, between which it lies nine times out of ten. An engine whose capacity is not known counts as the mean of the others.",
		perModel, with(LabelSLO, LabelKind))
	RecordedUtilisation = recorded(Max, "model:llm_capacity_used:ratio",
		"Requests that arrive at a model, as a share of those above which a latency objective breaks, by the kinds of model:llm_capacity:requests_per_second.", perModel, with(LabelSLO, LabelKind))
	RecordedDesired = recorded(Never, "model:llm_desired_replicas:count",
		"Replicas that hold all latency objectives of a model at the requests that arrive, with its capacity as low as it may be; slo is the objective that asks for them. For autoscalers.", perModel, with(LabelSLO))
	RecordedEnergyPerToken = recorded(Never, "model:llm_energy_per_token:joules",
		"Energy of a model's GPUs per token that it generates, over five minutes: while it generates none, absent. Models that share a GPU share its energy.", perModel)
	RecordedSuspect = recorded(Never, "model:llm_suspect:strength",
		"Evidence about a model that is clear enough to say where to look: clue is what it is, order its place in a verdict, the smallest first; delays is what it makes late or fails, empty for everything. The value is how strong it is, in the clue's own unit. runbook is the alert whose page goes further.",
		perModel, with(LabelRunbook, LabelBranch, LabelClue, LabelOrder, LabelDelays, LabelUnit, LabelSays, LabelLever), suspects)
	RecordedPrinted = recorded(Max, "model:llm_printed:value",
		"What the pages of a model say has changed: the facts of model:llm_evidence:value that differ from the day before by half or more, restarts, settings, and versions where several run. Same labels.",
		perModel, with(LabelFact, LabelOrder, LabelUnit, LabelSays), suspects)
	RecordedEvidence = recorded(Never, "model:llm_evidence:value",
		"A fact about a model, in its own unit. Facts that end in _before are of the day that ended an hour ago.",
		perModel, with(LabelFact, LabelOrder, LabelUnit, LabelSays), suspects)
	RecordedExplained = recorded(Never, "model:llm_slo_explained:info",
		"What a suspect must delay or fail to explain that an objective burns, always 1: one series per value of delays in model:llm_suspect:strength. "+
			"What is late or refused in the engines does not explain a gateway whose engines keep the same objective. Absent where an objective has not burned for five minutes.", ModelSLOLabels, with(LabelDelays))
	RecordedUsual = recorded(Never, "model:llm_usual:value",
		"What a fact of model:llm_evidence:value usually is: its median over the three hours until twenty minutes ago, or, where it was not recorded then, over the day before or the ten minutes until ten minutes ago.",
		perModel, with(LabelFact))
	RecordedAgainst = recorded(Never, "model:llm_against_usual:ratio", "A fact of model:llm_evidence:value as a multiple of what it usually is.", perModel, with(LabelFact))
)

// suspects lists the labels that say where evidence was found, besides the model.
var suspects = with(LabelPod, LabelServer, LabelInstance, LabelGPUUUID, LabelReason, LabelXID, LabelVersion, LabelTier, LabelDPRank, LabelSetting, LabelOld, LabelNew)
