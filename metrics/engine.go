package metrics

// What an engine reports about the requests it serves. A series exists only where the engine reports the number:
// absent means "not reported", never zero.
var (
	TimeToFirstToken = Engine.histogram("llm_engine_time_to_first_token_seconds",
		"Time from arrival of a request at the engine to its first output token (TTFT).", EngineLabels)
	InterTokenLatency = Engine.histogram("llm_engine_inter_token_latency_seconds",
		"Time between consecutive output tokens of a request (ITL), one observation per token or decode step.", EngineLabels)
	TimePerOutputToken = Engine.histogram("llm_engine_time_per_output_token_seconds",
		"Mean time per output token after the first (TPOT), one observation per finished request. Not interchangeable with ITL.", EngineLabels)
	RequestDuration = Engine.histogram("llm_engine_request_duration_seconds",
		"Time from arrival of a request at the engine to its last output token.", EngineLabels)
	QueueTime = Engine.histogram("llm_engine_queue_time_seconds",
		"Time a request waits in the engine before it is first scheduled.", EngineLabels)
	PrefillTime = Engine.histogram("llm_engine_prefill_time_seconds",
		"Time from first scheduling of a request to its first output token.", EngineLabels)
	DecodeTime = Engine.histogram("llm_engine_decode_time_seconds",
		"Time from the first to the last output token of a request.", EngineLabels)
	RequestPromptTokens = Engine.histogram("llm_engine_request_prompt_tokens",
		"Prompt tokens per request.", EngineLabels)
	RequestGenerationTokens = Engine.histogram("llm_engine_request_generation_tokens",
		"Generated tokens per request.", EngineLabels)

	// What means are made of, as plain counters: a database may store histograms in two ways.
	StageTime = Target.counter("llm_engine_stage_seconds_total",
		"Time that requests spent in a stage: first_token, next_token (between two tokens), queue, prefill, decode or request, the sum of the histogram of that time. "+
			"next_token has all gaps between tokens or, where the engine does not observe those, the mean gap of each request. Over llm_engine_stages_total it gives the mean.",
		EngineLabels, with(LabelStage)).experimental()
	StageTokens = Target.counter("llm_engine_stage_tokens_total",
		"Tokens of requests that have ended, those of the prompt or of the output. Over llm_engine_stages_total it gives the mean.",
		EngineLabels, with(LabelStage)).experimental()
	Stages = Target.counter("llm_engine_stages_total",
		"How often a stage was observed: the time to the first token, that between two, in the queue, in prefill, in decode or of the request, and its tokens of prompt and output.",
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
		"Longest sequence (prompt plus output) the engine accepts.", EngineLabels)
	LorasRunning = Engine.gauge(Sum, "llm_engine_loras_running",
		"LoRA adapters in use by running requests.", EngineLabels)
	LorasWaiting = Engine.gauge(Sum, "llm_engine_loras_waiting",
		"LoRA adapters that waiting requests ask for.", EngineLabels).experimental()
	LoraSlots = Engine.gauge(Sum, "llm_engine_lora_slots",
		"LoRA adapters that fit into a batch. Where more are running and waiting, they are swapped.", EngineLabels).experimental()
	Sleeping = Engine.gauge(Max, "llm_engine_sleeping",
		"Whether the engine has been put to sleep (1) or serves (0).", EngineLabels)

	PromptTokens = Engine.counter("llm_engine_prompt_tokens_total",
		"Prompt tokens of requests, those served from a cache included.", EngineLabels)
	GenerationTokens = Engine.counter("llm_engine_generation_tokens_total",
		"Generated tokens.", EngineLabels)
	EngineSteps = Engine.counter("llm_engine_steps_total",
		"Steps of the engine: forward passes of the model over a batch. Stands still while the engine is idle or stuck.", EngineLabels)
	Requests = Engine.counter("llm_engine_requests_total",
		"Requests that ended, by outcome: stop, length, repetition, success (reason not said), abort, invalid, rejected, error or unknown.",
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
		"Share of proposed tokens that speculative decoding accepted in the latest batches, on engines that do not count them.", EngineLabels).experimental()
	KVTransferTime = Engine.histogram("llm_engine_kv_transfer_time_seconds",
		"Time of one KV cache transfer between prefill and decode engines.", EngineLabels).experimental()
	KVTransferSize = Engine.histogram("llm_engine_kv_transfer_size_bytes",
		"Bytes of one KV cache transfer between prefill and decode engines.", EngineLabels).experimental()
	KVTransferFailures = Engine.counter("llm_engine_kv_transfer_failures_total",
		"Failed KV cache transfers between prefill and decode engines, including failed handshakes and notifications.", EngineLabels).experimental()

	KVTransferPostTime = Engine.histogram("llm_engine_kv_transfer_post_time_seconds",
		"Time to submit one KV cache transfer between prefill and decode engines, before its bytes move.", EngineLabels).experimental()
	KVTransfersExpired = Engine.counter("llm_engine_kv_transfers_expired_total",
		"KV caches that a prefill engine held for a decode engine which never fetched them.", EngineLabels).experimental()

	KVTierQueryTokens = Engine.counter("llm_engine_kv_tier_query_tokens_total",
		"Prompt tokens looked up in a tier of the KV cache below the GPU: host, disk, remote, or storage where the engine does not tell disk from remote.", EngineLabels, with(LabelTier)).experimental()
	KVTierHitTokens = Engine.counter("llm_engine_kv_tier_hit_tokens_total",
		"Prompt tokens found in a tier of the KV cache below the GPU.", EngineLabels, with(LabelTier)).experimental()
	KVTierLookups = Engine.counter("llm_engine_kv_tier_lookups_total",
		"Lookups in a tier of the KV cache below the GPU, where the engine counts blocks, keys or objects and not tokens.", EngineLabels, with(LabelTier)).experimental()
	KVTierHits = Engine.counter("llm_engine_kv_tier_hits_total",
		"Lookups that found something in a tier of the KV cache below the GPU, in the unit of the lookups.", EngineLabels, with(LabelTier)).experimental()
	KVTierTransferTokens = Engine.counter("llm_engine_kv_tier_transfer_tokens_total",
		"Tokens whose KV cache was stored to a tier or fetched from it.", EngineLabels, with(LabelTier, LabelOperation)).experimental()
	KVTierTransferBytes = Engine.counter("llm_engine_kv_tier_transfer_bytes_total",
		"Bytes of KV cache stored to a tier or fetched from it.", EngineLabels, with(LabelTier, LabelOperation)).experimental()
	KVTierTransferBlocks = Engine.counter("llm_engine_kv_tier_transfer_blocks_total",
		"Blocks of KV cache stored to a tier or fetched from it, where the engine does not say how large they are.", EngineLabels, with(LabelTier, LabelOperation)).experimental()
	KVTierTransferTime = Engine.counter("llm_engine_kv_tier_transfer_seconds_total",
		"Time spent storing to a tier or fetching from it; without a tier or an operation where the source adds them up. Workers in parallel can spend more than one second per second.", EngineLabels, with(LabelTier, LabelOperation)).experimental()
	KVTierFailures = Engine.counter("llm_engine_kv_tier_failures_total",
		"Stores to a tier and fetches from it that failed, in the unit in which the engine counts them.", EngineLabels, with(LabelTier, LabelOperation)).experimental()
	KVTierRefused = Engine.counter("llm_engine_kv_tier_refused_total",
		"Stores that a tier refused because it was full, pinned or slower than its writers, in the unit in which the engine counts them.", EngineLabels, with(LabelTier)).experimental()
	KVTierEvicted = Engine.counter("llm_engine_kv_tier_evicted_total",
		"Evictions from a tier to make room, in the unit in which the engine counts them.", EngineLabels, with(LabelTier)).experimental()
	KVTierUsage = Engine.gauge(Max, "llm_engine_kv_tier_usage_ratio",
		"Share of a tier in use, 0 to 1. Full is normal for a cache.", EngineLabels, with(LabelTier)).experimental()
	KVTierPinned = Engine.gauge(Max, "llm_engine_kv_tier_pinned_ratio",
		"Share of a tier pinned by transfers in flight, 0 to 1. Near 1, the link is too slow and stores are refused.", EngineLabels, with(LabelTier)).experimental()
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
		"Requests held in a queue of the engine, by what they wait for: capacity, deferred (adapter, KV transfer or another block), bootstrap, kv_allocation, kv_transfer, grammar or other.",
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
		"Requests with NaN in their logits. Engines look for them only when told to.", EngineLabels).experimental()
	MultimodalCacheQueries = Engine.counter("llm_engine_multimodal_cache_queries_total",
		"Inputs (images, audio) looked up in the multimodal cache.", EngineLabels).experimental()
	MultimodalCacheHits = Engine.counter("llm_engine_multimodal_cache_hits_total",
		"Inputs found in the multimodal cache.", EngineLabels).experimental()
	PromptTime = Engine.counter("llm_engine_prompt_seconds_total",
		"Time spent processing prompts. Over prompt tokens it gives a mean, never a distribution.", EngineLabels)
	GenerationTime = Engine.counter("llm_engine_generation_seconds_total",
		"Time spent generating. Over generated tokens it gives a mean, never a distribution.", EngineLabels)
	EstimatedFlops = Engine.counter("llm_engine_estimated_flops_per_gpu_total",
		"Floating point operations per GPU as the engine estimates them. The rate over the peak of the data type is the model FLOPs utilisation (MFU).", EngineLabels).experimental()
	EstimatedMemoryBytes = Engine.counter("llm_engine_estimated_memory_bytes_per_gpu_total",
		"Bytes read from and written to the memory of a GPU as the engine estimates them.", EngineLabels).experimental()

	ModelsLoaded = Engine.gauge(Sum, "llm_engine_models_loaded",
		"Models that an engine which loads them on demand holds in memory, by model; a single 0 while it holds none.", EngineLabels).experimental()
	ModelMemory = Engine.gauge(Sum, "llm_engine_model_memory_bytes",
		"Memory that a loaded model takes, on GPUs and in the host: weights, KV cache and buffers.", EngineLabels).experimental()
	ModelGPUMemory = Engine.gauge(Sum, "llm_engine_model_gpu_memory_bytes",
		"Memory that a loaded model takes on GPUs. Where it is less than all of its memory, the CPU computes a part of the model.", EngineLabels).experimental()
	ModelUnloadTime = Engine.gauge(Max, "llm_engine_model_unload_time_seconds",
		"When the engine unloads the model unless a request comes first, unix time. It lies in the past while a request outlasts it, and is absent for a model that stays loaded.", EngineLabels).experimental()

	EngineUp = Target.gauge(Never, "llm_engine_up",
		"Whether the engine's page was read and understood (1). When 0, reason says why not; when 1, that no model is loaded.",
		TargetLabels, with(LabelReason))
	EngineInfo = Target.info("llm_engine_info",
		"The engine behind a page, always 1. version is the release, or the bracket of releases whose metrics look like this page. role is gateway for a server in front of engines.",
		TargetLabels, with(LabelModel, LabelVersion, LabelRole))
	EngineLastServed = Target.gauge(Never, "llm_engine_last_served_timestamp_seconds",
		"When a model was last seen to be served, unix time, labelled as llm_engine_info was: by a page that cannot be read now, since a "+
			"dead engine says no name, or by a frontend that has no worker of it now. Absent after a restart of the exporter until the page has been read.",
		TargetLabels, with(LabelModel, LabelVersion, LabelRole)).experimental()
	EngineConfig = Target.info("llm_engine_config_info",
		"A setting with which the engine runs, always 1, or none that it tells: then quality is missing, there is no value, and reason says why. "+
			"source is a metric of its page with a label, a metadata endpoint with a field, its command line, or its pod. What is long is a hash.",
		TargetLabels, with(LabelModel, LabelRole, LabelSetting, LabelValue, LabelSource, LabelQuality, LabelReason)).experimental()
	EngineConfigChanged = Target.gauge(Never, "llm_engine_config_changed_timestamp_seconds",
		"When a setting of the engine was seen to change from old to new, unix time: the last time, since the exporter runs. Of an engine that is new here, old is what "+
			"another replica of its model ran with. Absent where nothing changed.",
		TargetLabels, with(LabelModel, LabelRole, LabelSetting, LabelOld, LabelNew)).experimental()
	EngineStartTime = Target.gauge(Never, "llm_engine_start_time_seconds",
		"Start of the engine process, unix time.", TargetLabels)
	RequestsInFlight = Target.gauge(Sum, "llm_engine_requests_in_flight",
		"Requests that the engine's HTTP server holds, those included that a scheduler that hangs does not show. Where only connections tell it, at least so many. "+
			"Absent where the page shows nothing of its server.", EngineLabels).experimental()
	EngineLastProgress = Target.gauge(Never, "llm_engine_last_progress_timestamp_seconds",
		"When the exporter last saw steps, tokens, answers or the KV cache of the engine change, unix time. Until it sees a change, when it first read the page. "+
			"An engine without requests makes no progress, either.", EngineLabels).experimental()
	EngineStalled = Target.gauge(Max, "llm_engine_stalled_seconds",
		"For how long the engine has certainly had work and made no progress, longer than progress of this engine may take to show. "+
			"0 while it makes progress, has no work, or its work is not certain. Absent until the page has been read twice.", EngineLabels).experimental()
	EngineWithoutProgress = Target.gauge(Max, "llm_engine_without_progress_seconds",
		"For how long the engine has made no progress, longer than its progress may take to show. This is no proof of a stall: an engine without requests makes none, "+
			"either, and one whose clients have all left may show their requests until its next step. 0 in its first five minutes. Absent until the page has been read twice.", EngineLabels).experimental()
	EngineSlowdown = Target.gauge(Max, "llm_engine_slowdown_ratio",
		"How many times as long as usual at the same load the steps of the last half minute took, as this exporter has learnt. Absent in its first ten minutes, while the engine hardly works, and beyond the loads that it has seen.", EngineLabels).experimental()
	EngineStep = Target.gauge(Never, "llm_engine_step_seconds",
		"How long a step takes that runs so many requests (batch): the usual course, as this exporter has learnt it, at the level of the last minutes. The scale of batch is the same everywhere, so that replicas can be compared "+
			"which have run as many. Absent for batches that the engine has not run, and in its first ten minutes.", EngineLabels, with(LabelBatch)).experimental()
	EngineCapacity = Target.gauge(Sum, "llm_engine_capacity_requests_per_second",
		"Requests per second, at the present mix of prompts and answers, above which a latency objective breaks on this engine. kind is expected, or low and high, between which it lies nine times out of ten. "+
			"Absent while llm_engine_capacity_known is 0.", EngineLabels, with(LabelSLO, LabelKind)).experimental()
	EngineCapacityTokens = Target.gauge(Sum, "llm_engine_capacity_tokens_per_second",
		"Generated tokens per second, at the present mix, above which a latency objective breaks on this engine, as expected.", EngineLabels, with(LabelSLO)).experimental()
	EngineCapacityIf = Target.gauge(Sum, "llm_engine_capacity_if_requests_per_second",
		"Requests per second above which the first latency objective would break if a lever were pulled: batch_limit_doubled, batch_limit_halved, kv_cache_doubled (or quantised to half) or prompts_halved (or half of them found in the prefix cache).",
		EngineLabels, with(LabelLever)).experimental()
	EngineCapacityUsed = Target.gauge(Max, "llm_engine_capacity_used_ratio",
		"The load of the last ten minutes as a share of that above which a latency objective breaks on this engine.", EngineLabels, with(LabelSLO)).experimental()
	EngineCapacityLimit = Target.info("llm_engine_capacity_limit_info",
		"What will be in the way when the objective breaks, always 1: batch_limit, kv_cache, prefill (prompt tokens fill the steps) or decode (each running request makes the step longer).",
		EngineLabels, with(LabelSLO, LabelLimit)).experimental()
	EngineCapacityKnown = Target.gauge(Never, "llm_engine_capacity_known",
		"Whether the capacity of this engine is known (1). When 0, reason says why not: few_readings in the first half hour of the exporter, little_spread while the load hardly changes, idle, or no_fit where the steps do not follow the load.",
		EngineLabels, with(LabelReason)).experimental()
	EngineLoadTime = Engine.gauge(Max, "llm_engine_load_time_seconds",
		"Time the engine took from start until it could serve (cold start).", EngineLabels).experimental()
	EngineScrapeDuration = Target.gauge(Max, "llm_engine_scrape_duration_seconds",
		"Time to fetch and map the engine's page.", TargetLabels)
	EngineScrapeSize = Target.gauge(Sum, "llm_engine_scrape_size_bytes",
		"Size of the engine's page after decompression.", TargetLabels)
	EngineScrapeSeries = Target.gauge(Sum, "llm_engine_scrape_series",
		"Series on the engine's page, mapped or not.", TargetLabels)
	MetricSourceInfo = Target.info("llm_engine_metric_source_info",
		"Where a normalised metric comes from on this page, always 1. quality is native, derived, approximate or missing; reason says why it is not native. "+
			"counted says when a request is counted: step (as its tokens are made), first_token or end (if its client waits so long); empty if nobody has declared it.",
		TargetLabels, with(LabelMetric, LabelSource, LabelQuality, LabelReason, LabelCounted))
	UnknownOutcome = Target.info("llm_engine_unknown_outcome_info",
		"A value by which the engine says how requests ended, and which this exporter does not know, always 1. source selects it on the engine's page. "+
			"Those requests count with the outcome unknown, neither good nor bad.",
		TargetLabels, with(LabelSource)).experimental()
	SourceMissing = Target.counter("llm_engine_source_missing_total",
		"Scrapes without a source that this engine version should have: it was not on the page although the engine has served requests, had another type, or held an impossible number. The sign of a renamed metric.",
		TargetLabels, with(LabelMetric, LabelSource))
)

// The stages that rules tell apart by name, as values of the label stage.
const (
	StageFirstToken = "first_token"
	StageNextToken  = "next_token"
)

var stages = map[*Family]string{TimeToFirstToken: StageFirstToken, InterTokenLatency: StageNextToken, TimePerOutputToken: StageNextToken,
	QueueTime: "queue", PrefillTime: "prefill", DecodeTime: "decode", RequestDuration: "request", RequestPromptTokens: "prompt", RequestGenerationTokens: "output"}

// Stage returns the value of the label stage under which plain counters have what a histogram adds up and how often it observed,
// and the counter that has the former. It is empty for all others.
func (f *Family) Stage() (stage string, sum *Family) {
	if f == RequestPromptTokens || f == RequestGenerationTokens {
		return stages[f], StageTokens
	}
	return stages[f], StageTime
}
