package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// sglang reads SGLang, which always runs Prometheus' multiprocess mode. Metrics of the scheduler have the ranks as
// labels. Latencies come from the tokenizer process and have no ranks.
var sglang = Dialect{
	Runtime: metrics.SGLang,
	Source: "sglang srt/metrics/collector.py (to 0.5.9), srt/observability/metrics_collector.py (from 0.5.10), " +
		"srt/managers/tokenizer_manager.py",
	API:         "completions",
	Recognise:   func(p *scrape.Page) bool { return p.HasPrefix("sglang:") },
	Restore:     colon("sglang"),
	Buckets:     "--bucket-time-to-first-token, --bucket-inter-token-latency or --bucket-e2e-request-latency",
	Costs:       map[string]string{"needs --collect-tokens-histogram before 0.5.17": "optional: two more histograms on the page"},
	Remedies:    map[string]string{scrape.HTTPAny: "SGLang answers 404 without `--enable-metrics`."},
	EngineTypes: []string{"sglang"},
	Labels: []metrics.Carry{
		{From: "model_name", To: metrics.LabelModel},
		{From: "name", To: metrics.LabelModel}, // in the first days of SGLang's metrics, at 0.3.5
		{From: "dp_rank", To: metrics.LabelDPRank},
		{From: "engine_type", To: metrics.LabelRole, Map: values(map[string]string{"prefill": "prefill", "decode": "decode"}, "")},
	},
	// Tensor, pipeline and expert ranks repeat the numbers of their data-parallel rank.
	Replicas: []string{"pid", "tp_rank", "pp_rank", "moe_ep_rank", "attn_cp_rank", "moe_dp_rank"},
	// With priority scheduling, each gauge has a series for each priority, and a total without a priority.
	Total:       "priority",
	TiersInHits: true,
	Server: &Server{
		Active: Source{Name: "sglang:http_requests_active", Is: scrape.Gauge, Where: slices.Concat(is("method", "POST"),
			matching(labels.MatchRegexp, "endpoint", generates))},
	},
	VersionHints: []VersionHint{
		{Name: "sglang:time_per_output_token_seconds", Until: "0.4.4.post3"},
		{Name: "sglang:cache_config_info", Since: "0.5.9", Until: "0.5.10.post1"},
		{Name: "sglang:kv_used_tokens", Since: "0.5.11"},
		{Name: "sglang:engine_startup_time", Since: "0.5.2", Until: "0.5.16"},
		{Name: "sglang:num_requests_total", Label: "is_streaming", Since: "0.5.17"},
		{Name: "sglang:num_requests_total", Lacks: "is_streaming", Until: "0.5.16"},
	},
	Rows: []Row{
		{
			To: metrics.TimeToFirstToken, From: "sglang:time_to_first_token_seconds", Is: scrape.Histogram, Where: is("is_streaming", "True",
				"true"), Since: "0.5.17",
			Absent: "no streaming request yet, or a prefill engine",
		},
		{
			To: metrics.TimeToFirstToken, From: "sglang:time_to_first_token_seconds", Is: scrape.Histogram, Where: is("is_streaming", ""),
			Absent: "no request yet, or a prefill engine", Quality: metrics.Approximate,
			Why: "before 0.5.17: answers that are not streamed count with their whole duration",
		},
		{To: metrics.InterTokenLatency, From: "sglang:inter_token_latency_seconds", Is: scrape.Histogram, Since: "0.4.3.post3", Absent: noDecode},
		{
			To: metrics.TimePerOutputToken, From: sglangWhole.From, Is: scrape.Histogram, Where: is("is_streaming", "True", "true"),
			Since: "0.5.22", Absent: "no streamed answer of two tokens or more yet",
		},
		{
			To: metrics.TimePerOutputToken, From: "sglang:time_per_output_token_seconds", Is: scrape.Histogram, Until: "0.4.4.post3",
			Absent:  noDecode,
			Quality: metrics.Approximate, Why: "the running mean of a request, observed with each chunk",
		},
		{To: metrics.RequestDuration, From: "sglang:e2e_request_latency_seconds", Is: scrape.Histogram, Absent: noFinish},
		{
			To: metrics.QueueTime, From: "sglang:queue_time_seconds", Is: scrape.Histogram, Since: "0.5.3", Absent: noRequest,
			Quality: metrics.Approximate, Why: sglangOwn,
		},
		{
			To: metrics.QueueTime, From: "sglang:queue_time_s", Is: scrape.Histogram, Since: "0.5.2", Until: "0.5.2", Absent: noRequest,
			Quality: metrics.Approximate, Why: sglangOwn,
		},
		{
			To: metrics.PrefillTime, From: "sglang:per_stage_req_latency_seconds", Is: scrape.Histogram, Where: is("stage", "prefill_forward"),
			Since:  "0.5.3",
			Absent: noRequest, Quality: metrics.Approximate, Why: "the last chunk of chunked prefills; " + sglangOwn,
		},
		{
			To: metrics.RequestPromptTokens, From: "sglang:prompt_tokens_histogram", Is: scrape.Histogram, Since: "0.4.6.post4",
			Absent: "needs --collect-tokens-histogram before 0.5.17",
		},
		{
			To: metrics.RequestGenerationTokens, From: "sglang:generation_tokens_histogram", Is: scrape.Histogram, Since: "0.4.6.post4",
			Absent: "needs --collect-tokens-histogram before 0.5.17",
		},

		{To: metrics.RequestsRunning, From: "sglang:num_running_reqs", Is: scrape.Gauge},
		{To: metrics.RequestsRunning, From: "sglang:num_requests_running", Is: scrape.Gauge, Until: "0.3.5"},
		{To: metrics.RequestsWaiting, From: "sglang:num_queue_reqs", Is: scrape.Gauge},
		{To: metrics.RequestsWaiting, From: "sglang:num_requests_waiting", Is: scrape.Gauge, Until: "0.3.5"},
		// From 0.5.11 on, token_usage is the use of the fullest pool. The pools are full attention, sliding windows and
		// Mamba's states. Older versions leave out Mamba's states.
		{
			To: metrics.KVCacheUsage, From: "sglang:token_usage", With: []string{"sglang:mamba_usage"}, Is: scrape.Gauge, Since: "0.5.4.post3",
			Until: "0.5.10.post1", Fold: most,
			Quality: metrics.Derived, Why: "the fuller of the KV cache and the pool of Mamba's states",
		},
		{To: metrics.KVCacheUsage, From: "sglang:token_usage", Is: scrape.Gauge},
		{To: metrics.KVCacheCapacity, From: "sglang:max_total_num_tokens", Is: scrape.Gauge, Since: "0.5.6"},
		{To: metrics.MaxModelLen, From: "sglang:context_len", Is: scrape.Gauge, Since: "0.5.11"},
		{
			To: metrics.LorasRunning, From: "sglang:lora_pool_slots_used", Is: scrape.Gauge, Since: "0.5.7", Absent: "no LoRA adapters are served",
			Quality: metrics.Approximate, Why: "loaded adapters, also those that no request uses",
		},
		{To: metrics.LoraSlots, From: "sglang:lora_pool_slots_total", Is: scrape.Gauge, Since: "0.5.7", Absent: "no LoRA adapters are served"},

		// realtime_tokens_total rises with each decode step, but is not used. It lacks each request's first token (923 tokens
		// when 33 requests had 956). With --enable-mixed-chunk, it also lacks tokens generated beside a prefill. The overlap
		// scheduler adds a step.
		{To: metrics.PromptTokens, From: "sglang:prompt_tokens_total", Is: scrape.Counter, Absent: noFinish},
		{To: metrics.GenerationTokens, From: "sglang:generation_tokens_total", Is: scrape.Counter, Counted: metrics.CountedEnd, Absent: noFinish},
		{
			To: metrics.EngineSteps, From: "sglang:cuda_graph_passes_total", Is: scrape.Counter, Since: "0.5.7", Absent: noDecode,
			Quality: metrics.Approximate, Why: "decode passes, with and without a CUDA graph; prefill passes only in newer releases",
		},
		sglangEnded(metrics.OutcomeSuccess,
			"finished requests minus those that were aborted, failed or broke off; includes one request of the server to itself at each start",
			sglangEnds.good),
		{
			To: metrics.Requests, From: sglangFinished.From, Is: scrape.Counter, Since: "0.4.1.post6", Set: outcome(metrics.OutcomeSuccess),
			Absent: noFinish,
			Tally: &Tally{Of: []Count{sglangAborted, sglangWrong}, Step: func(rose []float64) float64 {
				return max(0,
					rose[0]-max(0, rose[1]-rose[2]))
			}},
			Quality: metrics.Approximate,
			Why: "finished requests minus those aborted beyond the answers 400; includes requests that failed while they ran, and one of " +
				"the server to itself at each start",
		},
		sglangEnded(metrics.OutcomeUnknown, "streams that were neither completed nor aborted: they broke off, were wrong, or had one token",
			sglangEnds.broken),
		sglangRefusedStreams(),
		{
			To: metrics.Requests, From: sglangAborted.From, Is: scrape.Counter, Since: "0.4.7", Plus: true, Set: outcome(metrics.OutcomeAbort),
			Absent: "no request was aborted",
		},
		answered("sglang:http_responses_total", "status_code", "4(0[1-9]|[1-9][0-9])|5.*", "endpoint", "0.5.6.post2",
			"failed HTTP answers; before 0.5.22, and until the first complete answer, a request that failed while it ran also counts as finished"),
		sglangInvalid(),
		{
			To: metrics.Preemptions, From: "sglang:num_retracted_requests_total", Is: scrape.Counter, Since: "0.5.7",
			Absent: "no request was retracted yet",
		},
		{
			To: metrics.Preemptions, From: "sglang:num_retractions", Is: scrape.Histogram, Since: "0.5.4.post2", Until: "0.5.10.post1",
			Part:   partSum,
			Absent: noFinish, Quality: metrics.Approximate, Why: "counted when the request finishes",
		},

		// The cache_hit_rate gauge is not used, because each batch overwrites it, and decoding sets it to zero
		// (sglang#26608).
		{
			To: metrics.PrefixCacheQueryTokens, From: "sglang:prompt_tokens_total", Is: scrape.Counter, Absent: noFinish,
			Quality: metrics.Derived, Why: "all prompt tokens are looked up",
		},
		{To: metrics.PrefixCacheHitTokens, From: "sglang:cached_tokens_total", Is: scrape.Counter, Since: "0.4.3.post4", Absent: "no hit yet"},

		{
			To: metrics.KVTransferTime, From: "sglang:kv_transfer_latency_ms", Is: scrape.Histogram, Scale: metrics.Millis, Since: "0.5.10",
			Absent: "not a prefill or decode engine",
		},
		{
			To: metrics.KVTransferSize, From: "sglang:kv_transfer_total_mb", Is: scrape.Histogram, Scale: metrics.Megabytes, Since: "0.5.10",
			Absent: "not a prefill or decode engine",
		},
		{
			To: metrics.KVTransferFailures, From: "sglang:num_transfer_failed_reqs_total", Is: scrape.Counter, Since: "0.4.6.post4",
			Absent: "no transfer has failed yet",
		},
		{
			To: metrics.KVTransferFailures, From: "sglang:num_bootstrap_failed_reqs_total", Is: scrape.Counter, Since: "0.4.6.post4",
			Plus: true, Absent: "no handshake has failed yet",
		},

		// In each queue, requests wait for one reason. The queues of disaggregation exist on every engine, but are empty
		// without disaggregation.
		{To: metrics.RequestsWaitingByReason, From: "sglang:num_queue_reqs", Is: scrape.Gauge, Set: waitsFor("capacity")},
		{
			To: metrics.RequestsWaitingByReason, From: "sglang:num_grammar_queue_reqs", Is: scrape.Gauge, Since: "0.4.6.post4", Plus: true,
			Set: waitsFor("grammar"),
		},
		{
			To: metrics.RequestsWaitingByReason, From: "sglang:num_prefill_bootstrap_queue_reqs", Is: scrape.Gauge, Since: "0.5.12", Plus: true,
			Set: waitsFor("bootstrap"),
		},
		{
			To: metrics.RequestsWaitingByReason, From: "sglang:num_prefill_prealloc_queue_reqs", Is: scrape.Gauge, Since: "0.4.6.post4",
			Until: "0.5.11", Plus: true, Set: waitsFor("bootstrap"),
		},
		{
			To: metrics.RequestsWaitingByReason, From: "sglang:num_decode_prealloc_queue_reqs", Is: scrape.Gauge, Since: "0.4.6.post4",
			Plus: true, Set: waitsFor("kv_allocation"),
		},
		{
			To: metrics.RequestsWaitingByReason, From: "sglang:num_prefill_inflight_queue_reqs", Is: scrape.Gauge, Since: "0.5.1.post2",
			Plus: true, Set: waitsFor("kv_transfer"),
		},
		{
			To: metrics.RequestsWaitingByReason, From: "sglang:num_prefill_infight_queue_reqs", Is: scrape.Gauge, Since: "0.4.6.post4",
			Until: "0.5.1.post1", Plus: true, Set: waitsFor("kv_transfer"),
		},
		{
			To: metrics.RequestsWaitingByReason, From: "sglang:num_decode_transfer_queue_reqs", Is: scrape.Gauge, Since: "0.4.6.post4",
			Plus: true, Set: waitsFor("kv_transfer"),
		},

		{
			To: metrics.RequestPreemptions, From: "sglang:num_retractions", Is: scrape.Histogram, Since: "0.5.4.post2", Until: "0.5.10.post1",
			Absent: noFinish,
		},

		// These rows are about HiCache. In its names, backup means copies from GPU to host, and load means copies back.
		// Backuped (sic) means copies from host to storage, and prefetched means copies back. Evictions from the GPU belong
		// to none of these tiers.
		{
			To: metrics.ExternalPrefixCacheQueryTokens, From: "sglang:prefill_effective_tokens_total", Is: scrape.Counter, Since: "0.5.18",
			Absent:  noHiCache,
			Quality: metrics.Approximate, Why: "every prompt token, including those found on the GPU",
		},
		{
			To: metrics.ExternalPrefixCacheQueryTokens, From: "sglang:cached_tokens_total", With: []string{"sglang:prompt_tokens_total"},
			Is: scrape.Counter, Since: "0.5.9",
			Where: is("cache_source", "host", "storage"), Fold: sumOf("sglang:prompt_tokens_total"), Absent: noHiCache,
			Quality: metrics.Approximate, Why: "every prompt token, including those found on the GPU",
		},
		{
			To: metrics.ExternalPrefixCacheHitTokens, From: "sglang:prefill_effective_tokens_total", Is: scrape.Counter, Since: "0.5.18",
			Where:  is("mode", "host_hit", "storage_hit"),
			Absent: noHiCache, Quality: metrics.Derived, Why: "sum of tokens found in host memory and in storage",
		},
		{
			To: metrics.ExternalPrefixCacheHitTokens, From: "sglang:cached_tokens_total", Is: scrape.Counter, Since: "0.5.9",
			Where:  is("cache_source", "host", "storage"),
			Absent: noHiCache, Quality: metrics.Derived, Why: "sum of tokens found in host memory and in storage",
		},
		{
			To: metrics.KVTierQueryTokens, From: "sglang:prefill_effective_tokens_total", Is: scrape.Counter, Since: "0.5.18",
			Where: is("mode", "host_hit", "storage_hit", "input"),
			Set:   tier(metrics.TierHost), Absent: noHiCache, Quality: metrics.Derived, Why: "prompt tokens not found on the GPU",
		},
		{
			To: metrics.KVTierQueryTokens, From: "sglang:prefill_effective_tokens_total", Is: scrape.Counter, Since: "0.5.18",
			Where: is("mode", "storage_hit", "input"),
			Set:   tier(metrics.TierStorage), Plus: true, Absent: noHiCache, Quality: metrics.Approximate,
			Why: "prompt tokens found neither on the GPU nor in host memory; short ones are not looked up",
		},
		{
			To: metrics.KVTierHitTokens, From: "sglang:prefill_effective_tokens_total", Is: scrape.Counter, Since: "0.5.18",
			Where: is("mode", "host_hit", "storage_hit"), Absent: noHiCache,
			Carry: []metrics.Carry{{From: "mode", To: metrics.LabelTier, Map: values(map[string]string{"host_hit": string(metrics.TierHost)},
				string(metrics.TierStorage))}},
		},
		{
			To: metrics.KVTierHitTokens, From: "sglang:cached_tokens_total", Is: scrape.Counter, Since: "0.5.9",
			Where: is("cache_source", "host", "storage"), Absent: noHiCache,
			Carry: []metrics.Carry{{
				From: "cache_source", To: metrics.LabelTier,
				Map: values(map[string]string{"host": string(metrics.TierHost)}, string(metrics.TierStorage)),
			}},
		},
		{
			To: metrics.KVTierTransferTokens, From: "sglang:load_back_tokens_total", Is: scrape.Counter, Since: "0.5.5.post1",
			Where: is("pool", "kv", ""),
			Set:   tier(metrics.TierHost, metrics.Fetch), Absent: noHiCache, Quality: metrics.Approximate, Why: overRanks,
		},
		{
			To: metrics.KVTierTransferTokens, From: "sglang:hicache_backup_tokens_total", Is: scrape.Counter, Since: "0.5.18",
			Where: is("pool", "kv"),
			Set:   tier(metrics.TierHost, metrics.Store), Plus: true, Absent: noHiCache, Quality: metrics.Approximate, Why: overRanks,
		},
		{
			To: metrics.KVTierTransferTokens, From: "sglang:prefetched_tokens_total", Is: scrape.Counter, Since: "0.5.2",
			Set: tier("", metrics.Fetch), Carry: storageBackend, Plus: true, Absent: noHiCache,
		},
		{
			To: metrics.KVTierTransferTokens, From: "sglang:backuped_tokens_total", Is: scrape.Counter, Since: "0.5.2",
			Set: tier("", metrics.Store), Carry: storageBackend, Plus: true, Absent: noHiCache,
		},
		{
			To: metrics.KVTierTransferBytes, From: "sglang:load_back_bytes_total", Is: scrape.Counter, Since: "0.5.18",
			Set: tier(metrics.TierHost, metrics.Fetch), Absent: noHiCache,
		},
		{
			To: metrics.KVTierTransferBytes, From: "sglang:hicache_backup_bytes_total", Is: scrape.Counter, Since: "0.5.18",
			Set: tier(metrics.TierHost, metrics.Store), Plus: true, Absent: noHiCache,
		},
		{
			To: metrics.KVTierTransferTime, From: "sglang:load_back_duration_seconds", Is: scrape.Histogram, Since: "0.5.5.post1",
			Set:  tier(metrics.TierHost, metrics.Fetch),
			Part: partSum, Absent: noHiCache, Quality: metrics.Derived, Why: "sum of the histogram",
		},
		{
			To: metrics.KVTierTransferTime, From: "sglang:hicache_backup_duration_seconds", Is: scrape.Histogram, Since: "0.5.18",
			Set:  tier(metrics.TierHost, metrics.Store),
			Part: partSum, Plus: true, Absent: noHiCache, Quality: metrics.Derived, Why: "sum of the histogram",
		},
		{
			To: metrics.KVTierFailures, From: "sglang:storage_prefetch_unfulfilled_tokens_total", Is: scrape.Counter, Since: "0.5.19",
			Set: tier("", metrics.Fetch), Carry: storageBackend, Absent: noHiCache,
		},
		{
			To: metrics.KVTierRefused, From: "sglang:hicache_dropped_tokens_total", Is: scrape.Counter, Since: "0.5.18",
			Where: is("pool", "kv"), Set: tier(metrics.TierHost),
			Absent: noHiCache, Quality: metrics.Approximate, Why: overRanks,
		},
		{
			To: metrics.KVTierRefused, From: "sglang:hicache_backup_dropped_tokens_total", Is: scrape.Counter, Since: "0.5.19",
			Set: tier(metrics.TierStorage), Carry: storageBackend, Plus: true, Absent: noHiCache,
		},
		{
			To: metrics.KVTierUsage, From: "sglang:hicache_host_used_tokens", With: []string{"sglang:hicache_host_total_tokens"},
			Is: scrape.Gauge, Since: "0.5.10", Set: tier(metrics.TierHost),
			Fold: ratio("sglang:hicache_host_used_tokens", "sglang:hicache_host_total_tokens"), Absent: noHiCache, Quality: metrics.Derived,
			Why: "used over all tokens",
		},
		{
			To: metrics.KVTierCapacityTokens, From: "sglang:hicache_host_total_tokens", Is: scrape.Gauge, Since: "0.5.10",
			Set: tier(metrics.TierHost), Absent: noHiCache,
		},

		{
			To: metrics.SpecDecodeAcceptance, From: "sglang:spec_accept_rate", With: []string{"sglang:spec_accept_length"}, Is: scrape.Gauge,
			Since: "0.5.3.post2",
			Fold:  unlessZero("sglang:spec_accept_rate", "sglang:spec_accept_length"), Absent: noDrafts, NoValue: noDrafts,
		},
		{
			To: metrics.MultimodalCacheQueries, From: "sglang:encoder_cache_total_files_total", Is: scrape.Counter, Since: "0.5.15",
			Absent: "no encode server",
		},
		{
			To: metrics.MultimodalCacheHits, From: "sglang:encoder_cache_hit_files_total", Is: scrape.Counter, Since: "0.5.15",
			Absent: "no encode server",
		},
		{
			To: metrics.EstimatedFlops, From: "sglang:estimated_flops_per_gpu_total", Is: scrape.Counter, Since: "0.5.10",
			Absent: "not estimated by this engine",
		},
		{
			To: metrics.EstimatedMemoryBytes, From: "sglang:estimated_read_bytes_per_gpu_total", Is: scrape.Counter, Since: "0.5.10",
			Absent: "not estimated by this engine",
		},
		{
			To: metrics.EstimatedMemoryBytes, From: "sglang:estimated_write_bytes_per_gpu_total", Is: scrape.Counter, Since: "0.5.10",
			Plus: true, Absent: "not estimated by this engine",
		},

		{To: metrics.EngineLoadTime, From: "sglang:startup_time_seconds", Is: scrape.Gauge, Where: is("phase", "scheduler_e2e",
			"tokenizer_e2e"), Since: "0.5.17"},
		{To: metrics.EngineLoadTime, From: "sglang:engine_startup_time", Is: scrape.Gauge, Since: "0.5.2", Until: "0.5.16"},
	},
	Missing: reasons(map[*metrics.Family]string{
		metrics.SpecDecodeDraftTokens:    "only gauges of the acceptance rate and length are reported",
		metrics.SpecDecodeAcceptedTokens: "only gauges of the acceptance rate and length are reported",
		metrics.KVTierEvicted:            "only evictions from the GPU are reported",
		metrics.RequestsSwapped:          "retracted requests are recomputed, and others pause for new weights",
	}, lacks("counted in tokens", []*metrics.Family{metrics.KVTierLookups, metrics.KVTierHits, metrics.KVTierTransferBlocks})),
	// /server_info prints the server's arguments, including defaults (srt/server_args.py). An option without a value is null.
	Settings: []Told{
		{To: metrics.SettingModel, From: sglangInfo, At: "model_path"},
		{To: metrics.SettingVersion, From: sglangInfo, At: "version"},
		{To: metrics.SettingRevision, From: sglangInfo, At: "revision", Unset: unsetFlag},
		{To: metrics.SettingDtype, From: sglangInfo, At: "dtype"},
		{To: metrics.SettingQuantization, From: sglangInfo, At: "quantization", Unset: "none"},
		{To: metrics.SettingMaxModelLen, From: sglangInfo, At: "context_length"},
		{To: metrics.SettingMaxBatchTokens, From: sglangInfo, At: "max_prefill_tokens"},
		{To: metrics.SettingMaxSequences, From: sglangInfo, At: "max_running_requests"},
		{To: metrics.SettingMaxSequences, From: sglangInfo, At: "internal_states.0.max_running_requests"},
		{To: metrics.SettingMaxQueue, From: sglangInfo, At: "max_queued_requests", Unset: "none"},
		{To: metrics.SettingTensorParallel, From: sglangInfo, At: "tp_size"},
		{To: metrics.SettingPipelineParallel, From: sglangInfo, At: "pp_size"},
		{To: metrics.SettingDataParallel, From: sglangInfo, At: "dp_size"},
		{To: metrics.SettingExpertParallel, From: sglangInfo, At: "ep_size"},
		{To: metrics.SettingKVCacheDtype, From: sglangInfo, At: "kv_cache_dtype"},
		{To: metrics.SettingKVBlockSize, From: sglangInfo, At: "page_size"},
		{To: metrics.SettingKVBlockSize, From: "sglang:cache_config_info", At: "page_size"},
		{To: metrics.SettingGPUMemoryFraction, From: sglangInfo, At: "mem_fraction_static"},
		{To: metrics.SettingSpeculation, From: sglangInfo, At: "speculative_algorithm", Unset: "none"},
		{To: metrics.SettingSpeculationTokens, From: sglangInfo, At: "speculative_num_draft_tokens", Unset: "none"},
		{
			To: metrics.SettingPrefixCaching, From: sglangInfo, At: "disable_radix_cache",
			Map: values(map[string]string{"true": "false", "false": "true"}, ""),
		},
		{To: metrics.SettingChunkedPrefill, From: sglangInfo, At: "chunked_prefill_size", Map: func(v string) string {
			if v == "-1" {
				return "false"
			}
			return v
		}},
		{
			To: metrics.SettingCUDAGraphs, From: sglangInfo, At: "disable_cuda_graph",
			Map: values(map[string]string{"true": "false", "false": "true"}, ""),
		},
		{To: metrics.SettingAttention, From: sglangInfo, At: "attention_backend"},
		{To: metrics.SettingTemplate, From: sglangInfo, At: "chat_template", Unset: unsetFlag},
		{To: metrics.SettingTokenizer, From: sglangInfo, At: "tokenizer_path"},
		{To: metrics.SettingGeneration, From: sglangInfo, At: "preferred_sampling_params", Unset: unsetFlag},
	},
	Identify: func(ctx context.Context, get Getter) (id Identity, err error) {
		if err = id.askVersion(ctx, get, sglangInfo); err != nil {
			err = id.askVersion(ctx, get, "/get_server_info") // older name of the path
		}
		return id, errors.Join(err, id.askModels(ctx, get))
	},
}

// sglangOwn explains numbers that include the server's own requests. Before it serves, the server requests eight tokens
// from itself (http_server.py, --skip-server-warmup). Clients may send the same request, so no number distinguishes the
// two. The request is not streamed, so first tokens and times per token leave it out. A health check is a request for
// one token to an idle scheduler. Only the scheduler counts it.
const sglangOwn = "includes the server's warm-up and, while it is idle, health checks"

const (
	sglangInfo = "/server_info"

	noHiCache = "no HiCache, or no such event yet"
	noDrafts  = "speculative decoding is off, or has decoded nothing yet"
	// Families of the radix tree have no rank label, so multiprocess mode adds up the ranks.
	overRanks = "every rank adds the same tokens"
)

// storageBackend maps HiCache's storage backends to tiers, if their names show the tier.
var storageBackend = []metrics.Carry{{From: "storage_backend", To: metrics.LabelTier, Map: values(map[string]string{
	"file":     string(metrics.TierDisk),
	"mooncake": string(metrics.TierRemote),
	"aibrix":   string(metrics.TierRemote),
	"hf3fs":    string(metrics.TierRemote),
}, string(metrics.TierStorage))}}

// SGLang counts the ends of requests as follows (0.5.22 and later: srt/managers/tokenizer_manager.py, srt/observability):
//
//   - num_requests_total counts all requests that the scheduler ran and that ended, in any way.
//   - request_time_per_output_token_seconds observes requests that ended with stop or length after two tokens or more.
//   - num_aborted_requests_total counts requests whose client left, whether they had run or not.
//   - http_responses_total counts an answer when its header is sent. An unstreamed failure has its status, such as 503 for an
//     overload. A stream has status 200, and reports a failure in an event. If a client leaves before its request ran, it gets a 400.
//   - time_to_first_token_seconds observes the first token, unless it is an abort. A stream's header is sent with its first token.
//
// So two counters may count the same failure, and no counter counts a failed stream as a failure. Imitations of SGLang have these counters
// without the label is_streaming.
var (
	sglangFinished = Count{From: "sglang:num_requests_total", Is: scrape.Counter, Optional: true}
	sglangAborted  = Count{From: "sglang:num_aborted_requests_total", Is: scrape.Counter, Optional: true}
	sglangLabelled = Count{From: sglangFinished.From, Is: scrape.Counter, Where: matching(labels.MatchNotEqual, "is_streaming", "")}
	sglangWhole    = Count{From: "sglang:request_time_per_output_token_seconds", Is: scrape.Histogram}

	sglangStreams      = Count{From: sglangFinished.From, Is: scrape.Counter, Where: is("is_streaming", "true"), Optional: true}
	sglangWholeStreams = Count{From: sglangWhole.From, Is: scrape.Histogram, Where: is("is_streaming", "true"), Optional: true}
	sglangBegan        = Count{
		From: "sglang:time_to_first_token_seconds", Is: scrape.Histogram, Where: is("is_streaming", "true"),
		Optional: true,
	}
	sglangAnswered = Count{From: "sglang:http_responses_total", Is: scrape.Counter, Where: sglangAnswers("200"), Optional: true}
	sglangWrong    = Count{From: "sglang:http_responses_total", Is: scrape.Counter, Where: sglangAnswers("400"), Optional: true}
	sglangFailed   = Count{From: "sglang:http_responses_total", Is: scrape.Counter, Where: sglangAnswers("[45].."), Optional: true}
)

// sglangAnswers matches answers to users that have one of the statuses.
func sglangAnswers(status string) []*labels.Matcher {
	return slices.Concat(is("method", "POST"), matching(labels.MatchRegexp, "status_code", status), matching(labels.MatchNotRegexp,
		"endpoint", administration))
}

// sglangEnds holds the increases of SGLang's counters in an interval.
type sglangEnds struct{ finished, streams, whole, wholeStreams, aborted, began, answered, failed float64 }

// sglangCounts lists the counts that sglangRose reads after the finished requests.
var sglangCounts = []Count{sglangStreams, sglangWhole, sglangWholeStreams, sglangAborted, sglangBegan, sglangAnswered, sglangFailed}

func sglangRose(r []float64) sglangEnds {
	return sglangEnds{r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]}
}

// beyond returns the number of unstreamed requests that finished without a 200 answer, because they failed or their
// clients left. If the result is negative, it counts streams that were answered 200 without a first token.
func (e sglangEnds) beyond() float64 { return e.finished - e.streams - (e.answered - e.began) }

// lost returns the number of finished unstreamed requests that failed or lost their client. The number is at most that
// of the failed answers, and at most that of the incomplete requests.
func (e sglangEnds) lost() float64 {
	return max(0, min(e.beyond(), e.failed, e.finished-e.streams-(e.whole-e.wholeStreams)))
}

// partial returns the number of finished streams that were incomplete.
func (e sglangEnds) partial() float64 { return max(0, e.streams-e.wholeStreams) }

// good returns the number of finished requests that ended well.
func (e sglangEnds) good() float64 { return max(0, e.finished-e.lost()-e.partial()) }

// broken returns the number of streams that were neither complete nor aborted. A broken stream looks like a stream with
// a single token, so its end is unknown. These streams do not count as good, so the counted errors are a lower bound.
func (e sglangEnds) broken() float64 { return max(0, e.partial()-e.aborted) }

// refusedStreams returns the number of streams that were answered 200, but had no first token and never ran. It counts
// answers at paths where a stream's header waits for its first token. If requests end at other paths, the result is too
// low.
func (e sglangEnds) refusedStreams(answered float64) float64 {
	e.answered = answered
	return -e.beyond() - e.broken()
}

// sglangEnded returns a row for finished requests with one outcome.
func sglangEnded(o metrics.Outcome, why string, of func(sglangEnds) float64) Row {
	return Row{
		To: metrics.Requests, From: sglangFinished.From, Is: scrape.Counter, Since: "0.5.22", Set: outcome(o),
		Where: sglangLabelled.Where,
		Plus:  o != metrics.OutcomeSuccess, Absent: noFinish,
		Tally:   &Tally{Of: sglangCounts, Splits: true, Step: func(rose []float64) float64 { return of(sglangRose(rose)) }},
		Quality: metrics.Approximate, Why: why,
	}
}

// sglangRefusedStreams returns a row for streams that the queue refused. Failed answers count only unstreamed refused
// requests.
func sglangRefusedStreams() Row {
	return Row{
		To: metrics.Requests, From: sglangAnswered.From, Is: scrape.Counter, Since: "0.5.22",
		Set: outcome(metrics.OutcomeRejected), Plus: true,
		Where:  slices.Concat(is("method", "POST"), is("status_code", "200"), is("endpoint", "/v1/completions", "/v1/chat/completions")),
		Absent: noFinish,
		Tally: &Tally{
			Of:   append([]Count{sglangLabelled}, sglangCounts...),
			Step: func(rose []float64) float64 { return sglangRose(rose[1:]).refusedStreams(rose[0]) },
		},
		Quality: metrics.Approximate,
		Why:     "a lower bound: streams answered 200 that neither began nor ran, because the queue refused them or they timed out in it",
	}
}

// sglangInvalid returns a row for 400 answers that a client received. A stream whose client leaves while it runs has no
// such answer.
func sglangInvalid() Row {
	r := answered("sglang:http_responses_total", "status_code", "400", "endpoint", "0.5.6.post2",
		"answers 400 minus those to clients that gave up before their request ran")
	r.Tally = &Tally{Of: []Count{sglangAborted, sglangStreams, sglangWholeStreams}, Step: func(rose []float64) float64 {
		return rose[0] - max(0, rose[1]-max(0, rose[2]-rose[3]))
	}}
	return r
}
