package metrics

// These families are an engine's reports about the requests that it serves. A series exists only if the engine reports
// the number. An absent series means "not reported", and never zero.
var (
	TimeToFirstToken = Engine.histogram("llm_engine_time_to_first_token_seconds",
		"Time from arrival of a request at the engine to its first output token (TTFT).", EngineLabels)
	InterTokenLatency = Engine.histogram("llm_engine_inter_token_latency_seconds",
		"Time between consecutive output tokens of a request (ITL), one observation per token or decode step.", EngineLabels)
	TimePerOutputToken = Engine.histogram("llm_engine_time_per_output_token_seconds",
		"Mean time per output token after the first (TPOT), one observation per finished request. It is not interchangeable with ITL.",
		EngineLabels)
	RequestDuration = Engine.histogram("llm_engine_request_duration_seconds",
		"Time from arrival of a request at the engine to its last output token.", EngineLabels)
	QueueTime = Engine.histogram("llm_engine_queue_time_seconds",
		"Time that a request waits in the engine before it is first scheduled.", EngineLabels)
	PrefillTime = Engine.histogram("llm_engine_prefill_time_seconds",
		"Time from first scheduling of a request to its first output token.", EngineLabels)
	DecodeTime = Engine.histogram("llm_engine_decode_time_seconds",
		"Time from the first to the last output token of a request.", EngineLabels)
	RequestPromptTokens = Engine.histogram("llm_engine_request_prompt_tokens",
		"Prompt tokens per request.", EngineLabels)
	RequestGenerationTokens = Engine.histogram("llm_engine_request_generation_tokens",
		"Generated tokens per request.", EngineLabels)

	// These plain counters of sums and counts are for means. A database may store histograms in two ways, but stores counters in one way.
	StageTime = Target.counter("llm_engine_stage_seconds_total",
		"Time that requests spent in a stage: first_token, next_token (between two tokens), queue, prefill, decode or request. It is the sum "+
			"of the stage's histogram or, without histograms, the engine's own counter. next_token sums all gaps between tokens, or the mean gap "+
			"of each request if the engine does not observe gaps. Divided by llm_engine_stages_total, the sum gives the mean.",
		EngineLabels, with(LabelStage)).experimental()
	StageTokens = Target.counter("llm_engine_stage_tokens_total",
		"Prompt or output tokens of requests that have ended, by stage. Divided by llm_engine_stages_total, the sum gives the mean.",
		EngineLabels, with(LabelStage)).experimental()
	Stages = Target.counter("llm_engine_stages_total",
		"Observations of a stage's time (first_token, next_token, queue, prefill, decode or request) or of its tokens (prompt or output).",
		EngineLabels, with(LabelStage)).experimental()

	RequestsRunning = Engine.gauge(Sum, "llm_engine_requests_running",
		"Requests in the engine's running batch.", EngineLabels)
	RequestsWaiting = Engine.gauge(Sum, "llm_engine_requests_waiting",
		"Requests waiting in the engine to be scheduled.", EngineLabels)
	KVCacheUsage = Engine.gauge(Max, "llm_engine_kv_cache_usage_ratio",
		"Share of the KV cache in use by live requests, 0 to 1.", EngineLabels)
	KVCacheCapacity = Engine.gauge(Sum, "llm_engine_kv_cache_capacity_tokens",
		"Tokens that fit into the KV cache.", EngineLabels)
	MaxModelLen = Engine.gauge(Max, "llm_engine_max_model_len_tokens",
		"Longest sequence (prompt plus output) that the engine accepts.", EngineLabels)
	LorasRunning = Engine.gauge(Sum, "llm_engine_loras_running",
		"LoRA adapters in use by running requests.", EngineLabels)
	LorasContended = Engine.gauge(Sum, "llm_engine_loras_contended",
		"LoRA adapters that requests used or waited for within a minute, if not all of them fit and requests wait for one; otherwise 0.",
		EngineLabels).experimental()
	LoraRequested = Engine.gauge(Never, "llm_engine_lora_request_timestamp_seconds",
		"Last time at which a request for a LoRA adapter ran or waited, unix time of the engine. The first 20 adapters keep their names; "+
			"all others count as other.", EngineLabels, with(LabelLora)).experimental()
	LoraSlots = Engine.gauge(Sum, "llm_engine_lora_slots",
		"LoRA adapters that fit into a batch. While requests need more adapters than this, some requests wait.", EngineLabels).experimental()
	Sleeping = Engine.gauge(Max, "llm_engine_sleeping",
		"Whether the engine has been put to sleep (1) or serves (0).", EngineLabels)

	PromptTokens = Engine.counter("llm_engine_prompt_tokens_total",
		"Prompt tokens of requests, including those served from a cache.", EngineLabels)
	GenerationTokens = Engine.counter("llm_engine_generation_tokens_total",
		"Generated tokens.", EngineLabels)
	EngineSteps = Engine.counter("llm_engine_steps_total",
		"Steps of the engine, each a forward pass of the model over a batch. The count does not grow while the engine is idle or stuck.",
		EngineLabels)
	Requests = Engine.counter("llm_engine_requests_total",
		"Requests that ended, by outcome: stop, length, repetition, success (the engine names no reason), abort, invalid, rejected, error "+
			"or unknown. While a server refuses all requests, they count as rejected, not as invalid.",
		EngineLabels, with(LabelOutcome))
	Preemptions = Engine.counter("llm_engine_preemptions_total",
		"Running requests that lost their KV cache and have to be recomputed (vLLM: preempted, SGLang: retracted).", EngineLabels)
	PrefixCacheQueryTokens = Engine.counter("llm_engine_prefix_cache_query_tokens_total",
		"Prompt tokens looked up in the prefix cache.", EngineLabels)
	PrefixCacheHitTokens = Engine.counter("llm_engine_prefix_cache_hit_tokens_total",
		"Prompt tokens found in the prefix cache.", EngineLabels)
	ExternalPrefixCacheQueryTokens = Engine.counter("llm_engine_external_prefix_cache_query_tokens_total",
		"Prompt tokens looked up in a prefix cache outside the engine (KV connector).", EngineLabels)
	ExternalPrefixCacheHitTokens = Engine.counter("llm_engine_external_prefix_cache_hit_tokens_total",
		"Prompt tokens found in a prefix cache outside the engine (KV connector).", EngineLabels)
	SpecDecodeDraftTokens = Engine.counter("llm_engine_spec_decode_draft_tokens_total",
		"Tokens proposed by speculative decoding.", EngineLabels)
	SpecDecodeAcceptedTokens = Engine.counter("llm_engine_spec_decode_accepted_tokens_total",
		"Proposed tokens that speculative decoding accepted.", EngineLabels)
	SpecDecodeAcceptance = Engine.gauge(Never, "llm_engine_spec_decode_acceptance_ratio",
		"Share of proposed tokens that speculative decoding accepted in the latest batches, on engines that do not count them.",
		EngineLabels).experimental()
	KVTransferTime = Engine.histogram("llm_engine_kv_transfer_time_seconds",
		"Time of one KV cache transfer between prefill and decode engines.", EngineLabels).experimental()
	KVTransferSize = Engine.histogram("llm_engine_kv_transfer_size_bytes",
		"Bytes of one KV cache transfer between prefill and decode engines.", EngineLabels).experimental()
	KVTransferFailures = Engine.counter("llm_engine_kv_transfer_failures_total",
		"Failed KV cache transfers between prefill and decode engines, including failed handshakes and notifications.", EngineLabels).
		experimental()

	KVTransferPostTime = Engine.histogram("llm_engine_kv_transfer_post_time_seconds",
		"Time to submit one KV cache transfer between prefill and decode engines, before its bytes move.", EngineLabels).experimental()
	KVTransfersExpired = Engine.counter("llm_engine_kv_transfers_expired_total",
		"KV caches that a prefill engine kept for a decode engine that never fetched them.", EngineLabels).experimental()

	KVTierQueryTokens = Engine.counter("llm_engine_kv_tier_query_tokens_total",
		"Prompt tokens looked up in a tier of the KV cache below the GPU: host, disk, remote, or storage if the engine does not distinguish "+
			"disk from remote.", EngineLabels, with(LabelTier)).experimental()
	KVTierHitTokens = Engine.counter("llm_engine_kv_tier_hit_tokens_total",
		"Prompt tokens found in a tier of the KV cache below the GPU.", EngineLabels, with(LabelTier)).experimental()
	KVTierLookups = Engine.counter("llm_engine_kv_tier_lookups_total",
		"Lookups in a tier of the KV cache below the GPU, where the engine counts blocks, keys or objects and not tokens.", EngineLabels,
		with(LabelTier)).experimental()
	KVTierHits = Engine.counter("llm_engine_kv_tier_hits_total",
		"Lookups that found something in a tier of the KV cache below the GPU, in the unit of the lookups.", EngineLabels, with(LabelTier)).
		experimental()
	KVTierTransferTokens = Engine.counter("llm_engine_kv_tier_transfer_tokens_total",
		"Tokens whose KV cache was stored to a tier or fetched from it.", EngineLabels, with(LabelTier, LabelOperation)).experimental()
	KVTierTransferBytes = Engine.counter("llm_engine_kv_tier_transfer_bytes_total",
		"Bytes of KV cache stored to a tier or fetched from it.", EngineLabels, with(LabelTier, LabelOperation)).experimental()
	KVTierTransferBlocks = Engine.counter("llm_engine_kv_tier_transfer_blocks_total",
		"Blocks of KV cache stored to a tier or fetched from it, for engines that do not report the size of a block.", EngineLabels,
		with(LabelTier, LabelOperation)).experimental()
	KVTierTransferTime = Engine.counter("llm_engine_kv_tier_transfer_seconds_total",
		"Time spent storing to a tier or fetching from it. tier or operation is empty if the source adds up several of them. Parallel workers "+
			"can spend more than one second per second.", EngineLabels, with(LabelTier, LabelOperation)).experimental()
	KVTierFailures = Engine.counter("llm_engine_kv_tier_failures_total",
		"Stores to a tier and fetches from it that failed, in the unit in which the engine counts them.", EngineLabels,
		with(LabelTier, LabelOperation)).experimental()
	KVTierRefused = Engine.counter("llm_engine_kv_tier_refused_total",
		"Stores that a tier refused because it was full, pinned or slower than its writers, in the unit in which the engine counts them.",
		EngineLabels, with(LabelTier)).experimental()
	KVTierEvicted = Engine.counter("llm_engine_kv_tier_evicted_total",
		"Evictions from a tier to make room, in the unit in which the engine counts them.", EngineLabels, with(LabelTier)).experimental()
	KVTierUsage = Engine.gauge(Max, "llm_engine_kv_tier_usage_ratio",
		"Share of a tier in use, 0 to 1. A full tier is normal.", EngineLabels, with(LabelTier)).experimental()
	KVTierPinned = Engine.gauge(Max, "llm_engine_kv_tier_pinned_ratio",
		"Share of a tier pinned by transfers in flight, 0 to 1. Near 1, the link is too slow and stores are refused.", EngineLabels,
		with(LabelTier)).experimental()
	KVTierCapacityTokens = Engine.gauge(Sum, "llm_engine_kv_tier_capacity_tokens",
		"Tokens that fit into a tier.", EngineLabels, with(LabelTier)).experimental()
	KVTierCapacityBytes = Engine.gauge(Sum, "llm_engine_kv_tier_capacity_bytes",
		"Bytes that fit into a tier.", EngineLabels, with(LabelTier)).experimental()

	KVBlockLifetime = Engine.histogram("llm_engine_kv_block_lifetime_seconds",
		"Time from filling a block of the KV cache to evicting it; engines sample a few blocks.", EngineLabels).experimental()
	KVBlockIdle = Engine.histogram("llm_engine_kv_block_idle_before_evict_seconds",
		"Time from the last use of a block of the KV cache to evicting it; engines sample a few blocks.", EngineLabels).experimental()
	KVBlockReuseGap = Engine.histogram("llm_engine_kv_block_reuse_gap_seconds",
		"Time between two uses of a block of the KV cache; engines sample a few blocks.", EngineLabels).experimental()

	RequestsWaitingByReason = Engine.gauge(Sum, "llm_engine_requests_waiting_by_reason",
		"Requests held in a queue of the engine, by what they wait for: capacity, deferred (adapter, KV transfer or another block), "+
			"bootstrap, kv_allocation, kv_transfer, grammar or other.",
		EngineLabels, with(LabelReason)).experimental()
	RequestsSwapped = Engine.gauge(Sum, "llm_engine_requests_swapped",
		"Requests that are paused, or whose KV cache was moved to host memory, to make room.", EngineLabels).experimental()
	RequestsRunningLimit = Engine.gauge(Sum, "llm_engine_requests_running_limit",
		"Requests that fit into the running batch.", EngineLabels)
	BatchTokens = Engine.histogram("llm_engine_batch_tokens",
		"Tokens processed in one step of the engine, prefill and decode together.", EngineLabels).experimental()
	RequestPreemptions = Engine.histogram("llm_engine_request_preemptions",
		"Preemptions per finished request.", EngineLabels).experimental()
	CorruptedRequests = Engine.counter("llm_engine_corrupted_requests_total",
		"Requests with NaN in their logits. Engines check for this only if configured to.", EngineLabels).experimental()
	MultimodalCacheQueries = Engine.counter("llm_engine_multimodal_cache_queries_total",
		"Inputs (images, audio) looked up in the multimodal cache.", EngineLabels).experimental()
	MultimodalCacheHits = Engine.counter("llm_engine_multimodal_cache_hits_total",
		"Inputs found in the multimodal cache.", EngineLabels).experimental()
	PromptTime = Engine.counter("llm_engine_prompt_seconds_total",
		"Time spent processing prompts. Divided by the prompt tokens, it gives a mean, not a distribution.", EngineLabels)
	GenerationTime = Engine.counter("llm_engine_generation_seconds_total",
		"Time spent generating. Divided by the generated tokens, it gives a mean, not a distribution.", EngineLabels)
	EstimatedFlops = Engine.counter("llm_engine_estimated_flops_per_gpu_total",
		"Floating point operations per GPU as the engine estimates them. The rate divided by the peak of the data type is the model FLOPs "+
			"utilisation (MFU).", EngineLabels).experimental()
	EstimatedMemoryBytes = Engine.counter("llm_engine_estimated_memory_bytes_per_gpu_total",
		"Bytes read from and written to the memory of a GPU as the engine estimates them.", EngineLabels).experimental()

	ModelsLoaded = Engine.gauge(Sum, "llm_engine_models_loaded",
		"Models in the memory of an engine that loads models on demand, by model. A single series with the value 0 while no model is loaded.", EngineLabels).experimental()
	ModelMemory = Engine.gauge(Sum, "llm_engine_model_memory_bytes",
		"Memory that a loaded model takes, on GPUs and in the host: weights, KV cache and buffers.", EngineLabels).experimental()
	ModelGPUMemory = Engine.gauge(Sum, "llm_engine_model_gpu_memory_bytes",
		"Memory that a loaded model takes on GPUs. If it is less than llm_engine_model_memory_bytes, the CPU computes a part of the model.",
		EngineLabels).experimental()
	ModelUnloadTime = Engine.gauge(Max, "llm_engine_model_unload_time_seconds",
		"When the engine will unload the model unless a request arrives first, unix time. The time is in the past while a request outlasts "+
			"it. Absent for a model that stays loaded.", EngineLabels).experimental()

	EngineUp = Target.gauge(Never, "llm_engine_up",
		"Whether the exporter read and understood the engine's metrics page (1). When 0, reason names the cause. When 1, a reason means "+
			"that no model is loaded.",
		TargetLabels, with(LabelReason))
	EngineInfo = Target.info("llm_engine_info",
		"The engine at a metrics endpoint, always 1. version is the release, or the range of releases that have these metrics. role is "+
			"gateway for a server in front of engines.",
		TargetLabels, with(LabelModel, LabelVersion, LabelRole))
	EngineLastServed = Target.gauge(Never, "llm_engine_last_served_timestamp_seconds",
		"When the exporter last saw a model served, unix time, with the labels of llm_engine_info. Also present while the metrics page cannot "+
			"be read, because a dead engine names no model, and while a frontend has no worker for the model. Absent after a restart of the "+
			"exporter until it has read the metrics page.",
		TargetLabels, with(LabelModel, LabelVersion, LabelRole)).experimental()
	EngineLeft = Target.gauge(Never, "llm_engine_left_timestamp_seconds",
		"When an engine that discovery no longer finds was last read, unix time, with the labels of llm_engine_info. Present for an hour.",
		TargetLabels, with(LabelModel, LabelVersion, LabelRole)).experimental()
	EngineConfig = Target.info("llm_engine_config_info",
		"A setting with which the engine runs, always 1. If the engine does not report it, quality is missing, value is empty, and reason "+
			"names the cause. "+
			"source is a metric and its label, a metadata endpoint and its field, the command line, or the pod. Long values are hashed.",
		TargetLabels, with(LabelModel, LabelRole, LabelSetting, LabelValue, LabelSource, LabelQuality, LabelReason)).experimental()
	EngineConfigChanged = Target.gauge(Never, "llm_engine_config_changed_timestamp_seconds",
		"When the exporter last saw a setting of the engine change from old to new, unix time. For an engine that is new to the exporter, "+
			"old is the value of "+
			"another replica of the model. A KV cache that has grown, or was lost to a changed setting, has not changed. Absent if nothing has changed since the exporter "+
			"started.",
		TargetLabels, with(LabelModel, LabelRole, LabelSetting, LabelOld, LabelNew)).experimental()
	EngineStartTime = Target.gauge(Never, "llm_engine_start_time_seconds",
		"Start of the engine process, unix time.", TargetLabels)
	EngineRestarts = Target.counter("llm_engine_restarts_total",
		"Restarts that the exporter has seen at the metrics endpoint: the start time of the process moved or, where the metrics page reports "+
			"none, counters fell. Present from the first reading of the metrics page, even while the page cannot be read. The series has no "+
			"label runtime, because another engine may take over the endpoint.",
		TargetLabels[1:]).experimental()
	RequestsInFlight = Target.gauge(Sum, "llm_engine_requests_in_flight",
		"Requests in the engine's HTTP server, including those that a hanging scheduler does not report. A lower bound if only connections "+
			"are known. "+
			"Absent if neither the metrics page nor the kernel reports the server's requests.", EngineLabels).experimental()
	EngineLastProgress = Target.gauge(Never, "llm_engine_last_progress_timestamp_seconds",
		"When the exporter last saw steps, tokens, answers or the KV cache of the engine change, unix time. Until the first change, the value "+
			"is the time at which the exporter first read the metrics page. An engine without requests makes no progress, either.",
		EngineLabels).experimental()
	EngineStalled = Target.gauge(Max, "llm_engine_stalled_seconds",
		"How long the engine has certainly had work but made no progress, once this is longer than progress may take to become visible. "+
			"0 while it makes progress, has no work, or may have none. Absent until the exporter has read the metrics page twice.",
		EngineLabels).experimental()
	EngineWithoutProgress = Target.gauge(Max, "llm_engine_without_progress_seconds",
		"How long the engine has made no progress, once this is longer than progress may take to become visible. This does not prove a stall. "+
			"An engine without requests makes no progress, either, and after all clients have left, an engine may report their requests until "+
			"its next step. 0 in the engine's first five minutes. Absent until the exporter has read the metrics page twice.",
		EngineLabels).experimental()
	EngineStandstill = Target.gauge(Max, "llm_engine_standstill_seconds",
		"Duration of the longest standstill that ended by itself within the last five minutes: the engine made no progress, although requests "+
			"were certainly open. 0 without one. Absent until the exporter has read the metrics page twice.", EngineLabels).experimental()
	EngineRefuses = Target.gauge(Max, "llm_engine_refuses_all",
		"Whether an engine or a gateway answers no request, and refuses as invalid about as many as it used to answer (1), "+
			"for example after a change of its key, its name or its context length.", EngineLabels).experimental()
	RequestsArrived = Target.counter("llm_engine_requests_arrived_total",
		"Requests that arrived since the exporter first read the engine: those that ended, run or wait. Requests that the engine refuses as "+
			"invalid are left out. If an engine does not count ended requests, first tokens are counted instead. Absent if the engine counts "+
			"neither.",
		EngineLabels).experimental().sinceRead()
	RequestBurst = Target.gauge(Max, "llm_engine_request_burst",
		"How many requests arrive together: the variance of the requests per half minute, divided by their mean, over the last ten minutes. "+
			"1 if each request arrives independently of the others, if the number of requests varies by less than half of its mean, or if the "+
			"engine is as busy between bursts. Absent with fewer than 20 requests.", EngineLabels).experimental()
	PrefillComputedTokens = Target.counter("llm_engine_prefill_computed_tokens_total",
		"Prompt tokens that the engine computed since the exporter first read it: those found in no cache, as far as the engine counts hits. "+
			"Absent if the engine does not count prompt tokens.", EngineLabels).experimental().sinceRead()
	RequestsWithoutToken = Target.counter("llm_engine_requests_without_token_total",
		"Lower bound of the requests that succeeded or were given up, but had no first token, since the exporter first read the engine. "+
			"Absent unless the engine counts both ended requests and first tokens.", EngineLabels).experimental().sinceRead()
	RequestsLost = Target.counter("llm_engine_requests_lost_total",
		"Requests that ran at the last reading before the engine's process ended, since the exporter first read the engine. Counted when the "+
			"metrics page shows the next process. After a graceful end, fewer requests are lost. Absent if the engine reports no running requests.",
		EngineLabels).
		experimental().sinceRead()
	EngineUnscheduled = Target.gauge(Max, "llm_engine_unscheduled_seconds",
		"Mean time of the last two minutes by which first tokens came later than queue and prefill explain: time in the engine's server, "+
			"or while its core stood still. Absent with fewer than ten first tokens, and where an engine does not report its queue and "+
			"prefill.", EngineLabels).experimental()
	EngineCold = Target.gauge(Never, "llm_engine_cold",
		"Whether the engine's start, at most 15 minutes ago, is why requests wait now or waited within the last five minutes (1). 0 if no "+
			"request has waited since the engine became warm, when it had given ten answers and no request waited for a minute. Absent if the "+
			"metrics page does not report the engine's start, waiting requests and answers.", EngineLabels).experimental()
	EngineSlowdown = Target.gauge(Max, "llm_engine_slowdown_ratio",
		"Duration of the steps of the last 30 seconds, as a multiple of the usual duration at the same load, which the exporter has learnt. "+
			"Absent in the engine's first ten minutes, while it has little work, at loads that it has not run before, and for a minute after a "+
			"burst of requests.",
		EngineLabels).experimental()
	EngineStep = Target.gauge(Never, "llm_engine_step_seconds",
		"Duration of a step with this many requests (batch), from the curve that the exporter has learnt, scaled to the speed of the last "+
			"minutes; below one request on average, the mean of the last minutes. All engines have the same values of batch, so that replicas "+
			"can be compared at the same load. Absent for batches that the engine has not run, and in the engine's first ten minutes.",
		EngineLabels, with(LabelBatch)).
		experimental()
	EngineCapacity = Target.gauge(Sum, "llm_engine_capacity_requests_per_second",
		"Requests per second, at the present mix of prompts and answers, above which this engine misses a latency objective. kind is "+
			"expected, low or high. The capacity is between low and high nine times out of ten. "+
			"Absent while llm_engine_capacity_known is 0.", EngineLabels, with(LabelSLO, LabelKind)).experimental()
	EngineCapacityTokens = Target.gauge(Sum, "llm_engine_capacity_tokens_per_second",
		"Generated tokens per second, at the present mix of prompts and answers, above which this engine is expected to miss a latency "+
			"objective.", EngineLabels, with(LabelSLO)).experimental()
	EngineCapacityIf = Target.gauge(Sum, "llm_engine_capacity_if_requests_per_second",
		"Requests per second above which the engine would miss its first latency objective after a change (lever): batch_limit_doubled, "+
			"batch_limit_halved, kv_cache_doubled (or KV values quantised to half the size) or prompts_halved (or half of the prompt tokens "+
			"found in the prefix cache).",
		EngineLabels, with(LabelLever)).experimental()
	EngineCapacityUsed = Target.gauge(Max, "llm_engine_capacity_used_ratio",
		"Requests of the last ten minutes, as a share of those above which this engine misses a latency objective.", EngineLabels,
		with(LabelSLO)).experimental()
	EngineCapacityLimit = Target.info("llm_engine_capacity_limit_info",
		"What will limit the engine when it misses the objective, always 1: batch_limit, kv_cache, prefill (prompt tokens fill the steps), "+
			"decode (each running request makes the step longer) or host (steps are long, but the GPU waits for the CPU most of the time).",
		EngineLabels, with(LabelSLO, LabelLimit)).experimental()
	EngineCapacityKnown = Target.gauge(Never, "llm_engine_capacity_known",
		"Whether the capacity of this engine is known (1). When 0, reason is few_readings until it has worked for ten minutes of at least half "+
			"an hour, little_spread while the load hardly changes, no_fit if the steps do not follow the load, or no_histograms if it does "+
			"not report the times to first tokens and between tokens.",
		EngineLabels, with(LabelReason)).experimental()
	EngineLoadTime = Engine.gauge(Max, "llm_engine_load_time_seconds",
		"Time that the engine took from its start until it could serve (cold start).", EngineLabels).experimental()
	EngineScrapeDuration = Target.gauge(Max, "llm_engine_scrape_duration_seconds",
		"Time to fetch and map the engine's metrics page.", TargetLabels)
	EngineScrapeSize = Target.gauge(Sum, "llm_engine_scrape_size_bytes",
		"Size of the engine's metrics page after decompression.", TargetLabels)
	EngineScrapeSeries = Target.gauge(Sum, "llm_engine_scrape_series",
		"Series on the engine's metrics page, mapped or not.", TargetLabels)
	MetricSourceInfo = Target.info("llm_engine_metric_source_info",
		"Where a normalised metric comes from at this metrics endpoint, always 1. quality is native, derived, approximate or missing; reason "+
			"explains why it is not native. counted is when the engine counts a request: step (as it generates tokens), first_token or end (if "+
			"the client waits until the end); empty if unknown.",
		TargetLabels, with(LabelMetric, LabelSource, LabelQuality, LabelReason, LabelCounted))
	UnknownOutcome = Target.info("llm_engine_unknown_outcome_info",
		"An outcome of requests that the engine reports but the exporter does not recognise, always 1. source selects it on the engine's "+
			"metrics page. Such requests have the outcome unknown, and count as neither good nor bad.",
		TargetLabels, with(LabelSource)).experimental()
	SourceMissing = Target.counter("llm_engine_source_missing_total",
		"Scrapes without a source that this engine version should have: the source was not on the metrics page although the engine has served "+
			"requests, had another type, or had an impossible value. A growing count suggests a renamed metric.",
		TargetLabels, with(LabelMetric, LabelSource))
)

// These stages have a name in the rules, as values of the label stage.
const (
	StageFirstToken = "first_token"
	StageNextToken  = "next_token"
)

var stages = map[*Family]string{
	TimeToFirstToken: StageFirstToken, InterTokenLatency: StageNextToken, TimePerOutputToken: StageNextToken,
	QueueTime: "queue", PrefillTime: "prefill", DecodeTime: "decode", RequestDuration: "request", RequestPromptTokens: "prompt",
	RequestGenerationTokens: "output",
}

// Stage is for histograms whose sum and count are also plain counters. It returns the value of the counters' label
// stage, and the counter of the sum. It is empty for all other histograms.
func (f *Family) Stage() (stage string, sum *Family) {
	if f == RequestPromptTokens || f == RequestGenerationTokens {
		return stages[f], StageTokens
	}
	return stages[f], StageTime
}
