package engine

import (
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// trtllm reads trtllm-serve. Releases 1.1 and 1.2 have five families without prefix or model. From 1.3 on, the families
// have a prefix. There are then also gauges, which need enable_iter_perf_stats and have the pid of each process.
var trtllm = Dialect{
	Runtime: metrics.TensorRTLLM,
	Source:  "TensorRT-LLM tensorrt_llm/metrics/collector.py, tensorrt_llm/serve/openai_server.py",
	API:     "completions",
	Paths:   []string{trtllmPath},
	Recognise: func(p *scrape.Page) bool {
		return p.HasPrefix("trtllm_") || p.Has("time_to_first_token_seconds") && !p.LabelValues("time_to_first_token_seconds",
			"engine_type")[""] ||
			p.Has("e2e_request_latency_seconds") && !p.LabelValues("e2e_request_latency_seconds", "engine_type")[""]
	},
	Drains: &Drains{Owner: trtllmOwner, Instead: "trtllm-serve has no " + trtllmPath + ": start it with return_perf_metrics: true"},
	Restore: func(byName map[string]*scrape.Family) { // Dynamo wrote a colon in releases before TensorRT-LLM had a prefix
		for _, f := range byName {
			if rest, ok := strings.CutPrefix(f.Name, "trtllm:"); ok {
				f.Name = "trtllm_" + rest
			}
		}
	},
	Costs: map[string]string{
		"needs enable_iter_perf_stats: true": "it gathers statistics in each iteration, on the CPU",
		noHostCache:                          "statistics cost some CPU in each iteration, and the cache takes memory of the host",
	},
	Remedies: map[string]string{
		reasonDisabled:     "trtllm-serve: set `return_perf_metrics: true`.",
		scrape.JSONMetrics: "trtllm-serve: set `return_perf_metrics: true`, so that it serves " + trtllmPath + ".",
	},
	EngineTypes: []string{"trtllm-serve"},
	Labels: []metrics.Carry{{From: "model_name", To: metrics.LabelModel, Map: func(s string) string {
		if s == "undefined" { // on every metrics page of 1.1 and 1.2
			return ""
		}
		return s
	}}},
	// engine_type is the backend (pytorch, "undefined"), not a role.
	Replicas:    []string{"pid", "rank", "engine_type"},
	TiersInHits: true,
	Server:      &Server{Lacks: "its registry joins several processes, so it has no metrics of a single one"},
	VersionHints: []VersionHint{
		{Name: "trtllm_kv_cache_hit_rate", Since: "1.3.0rc5"},
		{Name: "time_to_first_token_seconds", Since: "1.1.0", Until: "1.2.x"},
	},
	Rows: []Row{
		{To: metrics.TimeToFirstToken, From: "trtllm_time_to_first_token_seconds", Is: scrape.Histogram, Since: "1.3.0rc1", Absent: noFinish},
		{
			To: metrics.TimeToFirstToken, From: "time_to_first_token_seconds", Is: scrape.Histogram, Since: "1.1.0", Until: "1.2.x",
			Absent: noFinish,
		},
		{To: metrics.TimePerOutputToken, From: "trtllm_time_per_output_token_seconds", Is: scrape.Histogram, Since: "1.3.0rc1", Absent: noFinish},
		{
			To: metrics.TimePerOutputToken, From: "time_per_output_token_seconds", Is: scrape.Histogram, Since: "1.1.0", Until: "1.2.x",
			Absent: noFinish,
		},
		{To: metrics.RequestDuration, From: "trtllm_e2e_request_latency_seconds", Is: scrape.Histogram, Since: "1.3.0rc1", Absent: noFinish},
		{
			To: metrics.RequestDuration, From: "e2e_request_latency_seconds", Is: scrape.Histogram, Since: "1.1.0", Until: "1.2.x",
			Absent: noFinish,
		},
		{To: metrics.QueueTime, From: "trtllm_request_queue_time_seconds", Is: scrape.Histogram, Since: "1.3.0rc1", Absent: noFinish},
		{To: metrics.QueueTime, From: "request_queue_time_seconds", Is: scrape.Histogram, Since: "1.1.0", Until: "1.2.x", Absent: noFinish},
		{To: metrics.PrefillTime, From: "trtllm_request_prefill_time_seconds", Is: scrape.Histogram, Since: "1.3.0rc10", Absent: noFinish},
		{To: metrics.DecodeTime, From: "trtllm_request_decode_time_seconds", Is: scrape.Histogram, Since: "1.3.0rc10", Absent: noFinish},

		{
			To: metrics.RequestsRunning, From: "trtllm_num_requests_running", Is: scrape.Gauge, Since: "1.3.0rc10",
			Absent: "needs enable_iter_perf_stats: true",
		},
		{
			To: metrics.RequestsRunning, From: "trtllm_scheduled_batch_size", Is: scrape.Gauge, Since: "1.3.0rc10",
			Absent:  "needs enable_iter_perf_stats: true",
			Quality: metrics.Approximate, Why: "requests scheduled in the last iteration",
		},
		{
			To: metrics.RequestsWaiting, From: "trtllm_num_requests_waiting", Is: scrape.Gauge, Since: "1.3.0rc10",
			Absent: "needs enable_iter_perf_stats: true",
		},
		{
			To: metrics.KVCacheUsage, From: "trtllm_kv_cache_utilization", Is: scrape.Gauge, Since: "1.3.0rc5",
			Absent: "needs enable_iter_perf_stats: true",
		},
		{
			To: metrics.KVCacheUsage, From: "trtllm_kv_cache_used_blocks", With: []string{"trtllm_kv_cache_max_blocks"}, Is: scrape.Gauge,
			Since:  "1.3.0rc10",
			Fold:   ratio("trtllm_kv_cache_used_blocks", "trtllm_kv_cache_max_blocks"),
			Absent: "needs enable_iter_perf_stats: true", Quality: metrics.Derived, Why: "used blocks over all blocks",
		},
		{
			To: metrics.KVCacheCapacity, From: "trtllm_kv_cache_max_blocks", With: []string{"trtllm_kv_cache_tokens_per_block"},
			Is: scrape.Gauge, Since: "1.3.0rc10",
			Fold:   product("trtllm_kv_cache_max_blocks", "trtllm_kv_cache_tokens_per_block"),
			Absent: "needs enable_iter_perf_stats: true", Quality: metrics.Derived, Why: "blocks times tokens per block",
		},
		{
			To: metrics.MaxModelLen, From: "trtllm_model_config_info", Is: scrape.Gauge, Since: "1.3.0rc10",
			Fold: labelProduct("max_model_len"), Absent: "not logged at the engine's start",
			NoValue: "the label max_model_len holds no number", Quality: metrics.Derived, Why: "from the label max_model_len",
		},

		{To: metrics.PromptTokens, From: "trtllm_prompt_tokens_total", Is: scrape.Counter, Since: "1.3.0rc10", Absent: noFinish},
		{
			To: metrics.GenerationTokens, From: "trtllm_generation_tokens_total", Is: scrape.Counter, Counted: metrics.CountedEnd,
			Since: "1.3.0rc10", Absent: noFinish,
		},
		{
			To: metrics.Requests, From: "trtllm_request_success_total", Is: scrape.Counter, Since: "1.3.0rc1", Absent: noFinish,
			Carry: trtllmReasons,
		},
		{
			To: metrics.Requests, From: "request_success_total", Is: scrape.Counter, Since: "1.1.0", Until: "1.2.x", Absent: noFinish,
			Carry: trtllmReasons,
		},
		{
			To: metrics.Requests, From: "trtllm_request_error_total", Is: scrape.Counter, Failures: SinceFailure, Since: "1.3.0rc10",
			Plus: true, Absent: "no request has failed",
			Carry: []metrics.Carry{{From: "http_code", To: metrics.LabelOutcome, Map: httpOutcome}},
		},

		// Hits and queries come from the same pair of sources, either tokens or blocks. A ratio of tokens to blocks would be
		// wrong.
		{
			To: metrics.PrefixCacheQueryTokens, From: "trtllm_prompt_cached_tokens_total", With: []string{"trtllm_prompt_tokens_total"},
			Is: scrape.Counter, Since: "1.3.0rc10",
			Fold:   func(in []Member) (float64, bool) { return largest(in, "trtllm_prompt_tokens_total") },
			Absent: noFinish, Quality: metrics.Derived, Why: "all prompt tokens are looked up",
		},
		{
			To: metrics.PrefixCacheQueryTokens, From: "trtllm_kv_cache_missed_blocks_total", Is: scrape.Counter, Since: "1.3.0rc5",
			With: []string{"trtllm_kv_cache_reused_blocks_total", "trtllm_kv_cache_tokens_per_block"}, Fold: trtllmBlockQueries,
			Absent: "needs enable_iter_perf_stats: true", Quality: metrics.Derived, Why: "reused and missed blocks times tokens per block",
		},
		{To: metrics.PrefixCacheHitTokens, From: "trtllm_prompt_cached_tokens_total", Is: scrape.Counter, Since: "1.3.0rc10", Absent: noFinish},
		{
			To: metrics.PrefixCacheHitTokens, From: "trtllm_kv_cache_reused_blocks_total", Is: scrape.Counter, Since: "1.3.0rc5",
			With:   []string{"trtllm_kv_cache_tokens_per_block"},
			Fold:   product("trtllm_kv_cache_reused_blocks_total", "trtllm_kv_cache_tokens_per_block"),
			Absent: "needs enable_iter_perf_stats: true", Quality: metrics.Derived, Why: "reused blocks times tokens per block",
		},
		{
			To: metrics.SpecDecodeDraftTokens, From: "trtllm_spec_decode_num_draft_tokens_total", Is: scrape.Counter, Since: "1.3.0rc10",
			Absent: "speculative decoding is off",
		},
		{
			To: metrics.SpecDecodeAcceptedTokens, From: "trtllm_spec_decode_num_accepted_tokens_total", Is: scrape.Counter, Since: "1.3.0rc10",
			Absent: "speculative decoding is off",
		},

		{
			To: metrics.ExternalPrefixCacheQueryTokens, From: "trtllm_prompt_cache_hit_tokens_total",
			With: []string{"trtllm_prompt_tokens_total"}, Is: scrape.Counter, Since: "1.3.0rc10",
			Fold: sumOf("trtllm_prompt_tokens_total"), Where: is("cache_tier", "host", "disk"), Absent: noHostCache,
			Quality: metrics.Approximate, Why: "every prompt token, including those found on the GPU",
		},
		{
			To: metrics.ExternalPrefixCacheHitTokens, From: "trtllm_prompt_cache_hit_tokens_total", Is: scrape.Counter, Since: "1.3.0rc10",
			Where: is("cache_tier", "host", "disk"), Absent: noHostCache, Quality: metrics.Derived,
			Why: "sum of tokens found in host memory and on disk",
		},
		{
			To: metrics.KVTierHitTokens, From: "trtllm_prompt_cache_hit_tokens_total", Is: scrape.Counter, Since: "1.3.0rc10",
			Where: is("cache_tier", "host", "disk"), Absent: noHostCache,
			Carry: []metrics.Carry{{From: "cache_tier", To: metrics.LabelTier, Map: values(map[string]string{"host": string(metrics.TierHost)},
				string(metrics.TierDisk))}},
		},
		{
			To: metrics.KVTierTransferBytes, From: "trtllm_kv_cache_onboard_bytes_total", Is: scrape.Counter, Since: "1.3.0rc10",
			Set: tier(metrics.TierHost, metrics.Fetch), Absent: noHostCache,
		},
		{
			To: metrics.KVTierTransferBytes, From: "trtllm_kv_cache_offload_bytes_total", Is: scrape.Counter, Since: "1.3.0rc10",
			Set: tier(metrics.TierHost, metrics.Store), Plus: true, Absent: noHostCache,
		},
		{
			To: metrics.KVTierTransferBlocks, From: "trtllm_kv_cache_disk_prefetch_blocks_total", Is: scrape.Counter, Since: "1.3.0rc10",
			Set: tier(metrics.TierDisk, metrics.Fetch), Absent: noHostCache,
		},
		{
			To: metrics.KVTierUsage, From: "trtllm_kv_cache_host_utilization", Is: scrape.Gauge, Since: "1.3.0rc10",
			Set: tier(metrics.TierHost), Absent: noHostCache,
		},
		{
			To: metrics.RequestsSwapped, From: "trtllm_num_paused_requests", Is: scrape.Gauge, Since: "1.3.0rc10",
			Absent: "needs enable_iter_perf_stats: true",
		},
		// This is a limit on active requests, which are the running requests.
		{
			To: metrics.RequestsRunningLimit, From: "trtllm_max_num_active_requests", Is: scrape.Gauge, Since: "1.3.0rc10",
			Absent: "needs enable_iter_perf_stats: true",
		},
	},
	Missing: map[*metrics.Family]string{
		metrics.InterTokenLatency:       "only a mean per request is reported (time per output token)",
		metrics.RequestPromptTokens:     "no histogram",
		metrics.RequestGenerationTokens: "no histogram",
		metrics.Preemptions:             "only a gauge of paused requests is reported",
		metrics.KVTierQueryTokens:       "only hits are reported",
		metrics.KVTierLookups:           "only hits are reported",
		metrics.KVTierHits:              "counted in tokens",
		metrics.KVTierTransferTokens:    "transfers are counted in bytes, and in blocks from disk",
		metrics.KVTierFailures:          "only in the log",
		metrics.BatchTokens:             "only of prefill",
		metrics.EngineSteps:             "only gauges of the last iteration are reported",
	},
	Settings: []Told{ // config families: tensorrt_llm/metrics/collector.py log_config_info
		{To: metrics.SettingModel, From: "trtllm_model_config_info", At: "model"},
		{To: metrics.SettingVersion, From: "/version", At: "version"},
		{To: metrics.SettingGPU, From: "trtllm_model_config_info", At: "gpu_type"},
		{To: metrics.SettingDtype, From: "trtllm_model_config_info", At: "dtype"},
		{To: metrics.SettingQuantization, From: "trtllm_model_config_info", At: "quantization"},
		{To: metrics.SettingTensorParallel, From: "trtllm_parallel_config_info", At: "tensor_parallel_size"},
		{To: metrics.SettingPipelineParallel, From: "trtllm_parallel_config_info", At: "pipeline_parallel_size"},
		{To: metrics.SettingGPUMemoryFraction, From: "trtllm_kv_cache_config_info", At: "free_gpu_memory_fraction"},
	},
	Flags: []Flag{ // tensorrt_llm/commands/serve.py
		{To: metrics.SettingMaxModelLen, Names: "max-seq-len"},
		{To: metrics.SettingMaxBatchTokens, Names: "max-num-tokens"},
		{To: metrics.SettingMaxSequences, Names: "max-batch-size"},
		{To: metrics.SettingTensorParallel, Names: "tp-size"},
		{To: metrics.SettingPipelineParallel, Names: "pp-size"},
		{To: metrics.SettingExpertParallel, Names: "ep-size"},
		{To: metrics.SettingKVCacheDtype, Names: "kv-cache-dtype"},
		{To: metrics.SettingGPUMemoryFraction, Names: "kv-cache-free-gpu-memory-fraction free-gpu-memory-fraction"},
		{To: metrics.SettingTokenizer, Names: "tokenizer"},
	},
	Identify: openAI,
	Silent:   func(id Identity) bool { return id.Owner == trtllmOwner },
}

const (
	trtllmPath = "/prometheus/metrics"
	// trtllmOwner is owned_by in the model list of trtllm-serve (serve/openai_server.py).
	trtllmOwner = "tensorrt_llm"
)

const noHostCache = "needs enable_iter_perf_stats: true and a cache in host memory"

var trtllmReasons = []metrics.Carry{
	{From: "finished_reason", To: metrics.LabelOutcome, Outcomes: finishReasons},
	{From: "finish_reason", To: metrics.LabelOutcome, Outcomes: finishReasons}, // in early builds of 1.1
}

func trtllmBlockQueries(in []Member) (float64, bool) {
	missed, ok1 := largest(in, "trtllm_kv_cache_missed_blocks_total")
	reused, ok2 := largest(in, "trtllm_kv_cache_reused_blocks_total")
	size, ok3 := largest(in, "trtllm_kv_cache_tokens_per_block")
	return (missed + reused) * size, ok1 && ok2 && ok3
}
