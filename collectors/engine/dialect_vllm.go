package engine

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// vllm reads vLLM's own metrics page, of V0 and V1, with one or several API servers and data-parallel ranks. It also
// reads the renamed copies of Ray and OpenTelemetry.
var vllm = Dialect{
	Runtime: metrics.VLLM,
	Source: "vllm/engine/metrics.py (V0), vllm/v1/metrics/loggers.py, v1/spec_decode/metrics.py, " +
		"distributed/kv_transfer/kv_connector/v1/nixl",
	Costs: map[string]string{
		"needs VLLM_COMPUTE_NANS_IN_LOGITS=1": "optional: each step then counts NaN in all its logits and waits for the GPU's answer, which " +
			"costs throughput; set it where a GPU or a kernel is suspected",
		"needs --kv-cache-metrics": "optional: it follows a hundredth of the blocks of KV cache (--kv-cache-metrics-sample)",
		needsMFU:                   "optional: it adds up operations and bytes in each step, on the CPU",
	},
	Remedies: map[string]string{reasonUnknown: "vLLM shows none of its metrics with `--disable-log-stats`."},
	API:      "completions",
	Recognise: func(p *scrape.Page) bool {
		return p.HasPrefix("vllm:") && !p.HasPrefix("nv_")
	},
	Restore: func(byName map[string]*scrape.Family) {
		colon("vllm", "vllm_router_")(byName) // vLLM's router itself writes the excepted names
		for _, f := range byName {            // Aphrodite copies each release of vLLM, with another prefix
			if rest, ok := strings.CutPrefix(f.Name, "aphrodite:"); ok {
				f.Name = "vllm:" + rest
			}
		}
	},
	EngineTypes: []string{"vllm"},
	Labels: []metrics.Carry{
		{From: "model_name", To: metrics.LabelModel},
		{From: "engine", To: metrics.LabelDPRank}, // the data-parallel rank, since v0.8.3
		{From: "ReplicaId", To: metrics.LabelReplica},
		{From: "WorkerId", To: metrics.LabelReplica}, // Ray's label, formerly ReplicaId; the label that changes with each start counts
	},
	// Several API servers publish the gauges of the same engine, from v0.9.2 to v0.11.0 (vllm#28792). A dead server leaves
	// its last value behind, which is usually zero.
	Replicas: []string{"pid"},
	// The engine updates its gauges after each step, so requests that arrive while the engine hangs are missing. The
	// metrics pages of several API servers, and of Ray's exporter, have no open files.
	Server: &Server{
		Files:    Source{Name: "process_open_fds", Is: scrape.Gauge},
		Answered: Source{Name: "http_requests_total", Is: scrape.Counter, Where: answersOK},
	},
	VersionHints: []VersionHint{
		{Name: "vllm:num_requests_running", Lacks: "engine", Until: "0.8.2"},
		{Name: "vllm:cache_config_info", Label: "engine", Since: "0.9.0"},
		{Name: "vllm:cache_config_info", Lacks: "engine", Until: "0.8.x"},
		{Name: "vllm:num_requests_swapped", Until: "0.9.0"},
		{Name: "vllm:avg_prompt_throughput_toks_per_s", Until: "0.6.6.post1"},
		{Name: "vllm:prompt_tokens_by_source_total", Since: "0.16"},
		{Name: "vllm:prompt_tokens_recomputed_total", Since: "0.16", Until: "0.19.x"},
		{Name: "vllm:engine_sleep_state", Since: "0.11.1"},
		{Name: "vllm:request_prefill_kv_computed_tokens", Since: "0.13"},
		{Name: "vllm:estimated_flops_per_gpu_total", Since: "0.17"},
		{Name: "vllm:num_requests_waiting_by_reason", Since: "0.20"},
		{Name: "vllm:tool_call_parser_invocations_total", Since: "0.24"},
	},
	Rows: []Row{
		{
			To: metrics.TimeToFirstToken, From: "vllm:time_to_first_token_seconds", Is: scrape.Histogram, Counted: metrics.CountedFirst,
			Since: "0.3.1",
		},

		{
			To: metrics.InterTokenLatency, From: "vllm:inter_token_latency_seconds", Is: scrape.Histogram, Counted: metrics.CountedStep,
			Since: "0.10.2",
		},
		// Despite "per output token", both the old and the new name have the time between engine steps.
		{
			To: metrics.InterTokenLatency, From: "vllm:time_per_output_token_seconds", Is: scrape.Histogram, Counted: metrics.CountedStep,
			Since: "0.3.1", Until: "0.14.x",
		},

		{
			To: metrics.TimePerOutputToken, From: "vllm:request_time_per_output_token_seconds", Is: scrape.Histogram,
			Counted: metrics.CountedEnd, Since: "0.11.0",
		},
		{
			To: metrics.RequestDuration, From: "vllm:e2e_request_latency_seconds", Is: scrape.Histogram, Counted: metrics.CountedEnd,
			Since: "0.3.1",
		},
		{To: metrics.QueueTime, From: "vllm:request_queue_time_seconds", Is: scrape.Histogram, Counted: metrics.CountedEnd, Since: "0.7.3"},
		{
			To: metrics.QueueTime, From: "vllm:time_in_queue_requests", Is: scrape.Histogram, Counted: metrics.CountedEnd, Since: "0.6.4",
			Until: "0.9.0", Absent: "V0 only",
		},
		{To: metrics.PrefillTime, From: "vllm:request_prefill_time_seconds", Is: scrape.Histogram, Counted: metrics.CountedEnd, Since: "0.7.3"},
		{To: metrics.DecodeTime, From: "vllm:request_decode_time_seconds", Is: scrape.Histogram, Counted: metrics.CountedEnd, Since: "0.7.3"},
		{To: metrics.RequestPromptTokens, From: "vllm:request_prompt_tokens", Is: scrape.Histogram, Counted: metrics.CountedEnd, Since: "0.4.2"},
		{
			To: metrics.RequestGenerationTokens, From: "vllm:request_generation_tokens", Is: scrape.Histogram, Counted: metrics.CountedEnd,
			Since: "0.4.2",
		},

		{To: metrics.RequestsRunning, From: "vllm:num_requests_running", Is: scrape.Gauge, Since: "0.2.3"},
		{To: metrics.RequestsWaiting, From: "vllm:num_requests_waiting", Is: scrape.Gauge, Since: "0.2.3"},
		{To: metrics.KVCacheUsage, From: "vllm:kv_cache_usage_perc", Is: scrape.Gauge, Since: "0.9.2"},
		{To: metrics.KVCacheUsage, From: "vllm:gpu_cache_usage_perc", Is: scrape.Gauge, Since: "0.2.3", Until: "0.11.x"},
		{
			To: metrics.KVCacheCapacity, From: "vllm:cache_config_info", Is: scrape.Gauge, Since: "0.3.3", Fold: kvCapacity,
			Quality: metrics.Derived, Why: "from labels: kv_cache_size_tokens, before 0.24 blocks times block size",
			Absent: "cache_config_info has no block count", NoValue: "cache_config_info has no block count",
		},
		{
			To: metrics.LorasRunning, From: loraInfo, Is: scrape.Gauge, Since: "0.6.4", Fold: lorasRunning,
			Quality: metrics.Derived, Why: "names listed in the newest lora_requests_info series", Absent: noLoras, NoValue: timesAddedUp,
		},
		{ // requests that wait for an adapter are deferred
			To: metrics.LorasContended, From: "vllm:num_requests_waiting_by_reason", With: []string{loraInfo}, Is: scrape.Gauge, Since: "0.20",
			Where: is("reason", "deferred"), Fold: lorasContended,
			Quality: metrics.Derived, Why: contended, Absent: noLoras, NoValue: timesAddedUp,
		},
		{
			To: metrics.LorasContended, From: "vllm:num_requests_waiting", With: []string{loraInfo}, Is: scrape.Gauge, Since: "0.6.4",
			Fold: lorasContended, Quality: metrics.Derived, Why: contended, Absent: noLoras, NoValue: timesAddedUp,
		},
		{
			To: metrics.LoraRequested, From: loraInfo, Is: scrape.Gauge, Since: "0.6.4", Loras: lorasOf, Fold: newest,
			Quality: metrics.Derived, Why: "newest lora_requests_info series that lists the adapter", Absent: "no adapter was asked for",
			NoValue: timesAddedUp,
		},
		{
			To: metrics.LoraSlots, From: loraInfo, Is: scrape.Gauge, Since: "0.6.4", Fold: loraSlots,
			Quality: metrics.Derived, Why: "from a label: --max-loras", Absent: noLoras, NoValue: "its series have no max_lora",
		},
		{
			To: metrics.Sleeping, From: "vllm:engine_sleep_state", Is: scrape.Gauge, Since: "0.11.1",
			Where: is("sleep_state", "weights_offloaded", "discard_all"),
		},

		{To: metrics.PromptTokens, From: "vllm:prompt_tokens_total", Is: scrape.Counter, Counted: metrics.CountedFirst, Since: "0.3.1"},
		{To: metrics.GenerationTokens, From: "vllm:generation_tokens_total", Is: scrape.Counter, Counted: metrics.CountedStep, Since: "0.3.1"},
		// V1 observes steps that gave at least one request an output (v1/engine/async_llm.py).
		{
			To: metrics.EngineSteps, From: "vllm:iteration_tokens_total", Is: scrape.Histogram, Since: "0.6.4", Part: partCount,
			Absent:  "V1 before 0.7.3 has none",
			Quality: metrics.Approximate, Why: "steps without an output, those in the middle of a long prompt, are not counted",
		},
		{
			To: metrics.Requests, From: "vllm:request_success_total", Is: scrape.Counter, Since: "0.4.2",
			Absent: noFinish,
			// Despite its name, this metric counts every end of a request, including errors. V1 has a series for aborts but
			// never counts an abort (vllm#31503, #55634).
			Uncounted: map[metrics.Outcome]string{metrics.OutcomeAbort: "vLLM counts no request that its client left, and its HTTP server has " +
				"counted no answer on this page"},
			Carry: []metrics.Carry{
				{From: "finished_reason", To: metrics.LabelOutcome, Outcomes: finishReasons},
				{From: "finish_reason", To: metrics.LabelOutcome, Outcomes: finishReasons}, // in imitations
			},
		},
		{
			To: metrics.Requests, From: "vllm:admission_rejections_total", Is: scrape.Counter, Since: "0.32.0",
			Set: outcome(metrics.OutcomeRejected), Plus: true,
		},
		answered("http_requests_total", "status", "4.*|503", "handler", "0.8.3", "failed HTTP answers by class, so a 429 counts as invalid"),
		failedBeyond("0.26", "", metrics.OutcomeError, largerOf),
		failedBeyond("0.8.3", "0.17.x", metrics.OutcomeError, largerOf),
		failedBeyond("0.18.0", "0.25.x", metrics.OutcomeUnknown, "these releases count answers with status 400 as 5xx"), // vllm#44303
		{
			To: metrics.Requests, From: "http_requests_total", Is: scrape.Counter, Since: "0.8.3", Where: answersOK,
			Set: outcome(metrics.OutcomeAbort), Plus: true,
			Tally:  &Tally{Of: []Count{completed, refused, failures, aborted}, Step: left},
			Absent: "no HTTP request has been answered", Quality: metrics.Approximate,
			Why: "answers 200 that the engine did not finish: too few if requests have several prompts, too many if the engine breaks off " +
				"streams or refuses them before 0.32",
		},
		{
			To: metrics.Preemptions, From: "vllm:num_preemptions_total", Is: scrape.Counter, Since: "0.4.3", Until: "0.7.x",
			Absent: "V1 of these releases has none",
		},
		{To: metrics.Preemptions, From: "vllm:num_preemptions_total", Is: scrape.Counter, Since: "0.8.0"},

		{To: metrics.PrefixCacheQueryTokens, From: "vllm:prefix_cache_queries_total", Is: scrape.Counter, Since: "0.9.2"},
		{To: metrics.PrefixCacheQueryTokens, From: "vllm:gpu_prefix_cache_queries_total", Is: scrape.Counter, Since: "0.9.0", Until: "0.11.x"},
		{
			To: metrics.PrefixCacheQueryTokens, From: "vllm:gpu_prefix_cache_queries_total", Is: scrape.Counter, Since: "0.7.3", Until: "0.8.x",
			Fold: blocksInTokens("vllm:gpu_prefix_cache_queries_total"), With: []string{"vllm:cache_config_info"},
			Quality: metrics.Derived, Why: "blocks times block_size", Absent: "V0 has no counters", NoValue: "cache_config_info has no block size",
		},
		{To: metrics.PrefixCacheHitTokens, From: "vllm:prefix_cache_hits_total", Is: scrape.Counter, Since: "0.9.2"},
		{To: metrics.PrefixCacheHitTokens, From: "vllm:gpu_prefix_cache_hits_total", Is: scrape.Counter, Since: "0.9.0", Until: "0.11.x"},
		{
			To: metrics.PrefixCacheHitTokens, From: "vllm:gpu_prefix_cache_hits_total", Is: scrape.Counter, Since: "0.7.3", Until: "0.8.x",
			Fold: blocksInTokens("vllm:gpu_prefix_cache_hits_total"), With: []string{"vllm:cache_config_info"},
			Quality: metrics.Derived, Why: "blocks times block_size", Absent: "V0 has no counters", NoValue: "cache_config_info has no block size",
		},
		{To: metrics.ExternalPrefixCacheQueryTokens, From: "vllm:external_prefix_cache_queries_total", Is: scrape.Counter, Since: "0.11.1"},
		{To: metrics.ExternalPrefixCacheHitTokens, From: "vllm:external_prefix_cache_hits_total", Is: scrape.Counter, Since: "0.11.1"},

		{
			To: metrics.SpecDecodeDraftTokens, From: "vllm:spec_decode_num_draft_tokens_total", Is: scrape.Counter, Since: "0.5.3",
			Absent: "speculative decoding is off",
		},
		{
			To: metrics.SpecDecodeAcceptedTokens, From: "vllm:spec_decode_num_accepted_tokens_total", Is: scrape.Counter, Since: "0.5.3",
			Absent: "speculative decoding is off",
		},

		{To: metrics.KVTransferTime, From: "vllm:nixl_xfer_time_seconds", Is: scrape.Histogram, Since: "0.11.1", Absent: "no NIXL connector"},
		{To: metrics.KVTransferSize, From: "vllm:nixl_bytes_transferred", Is: scrape.Histogram, Since: "0.11.1", Absent: "no NIXL connector"},
		{
			To: metrics.KVTransferFailures, From: "vllm:nixl_num_failed_transfers_total", Is: scrape.Counter, Since: "0.11.1",
			Absent: "no NIXL connector",
		},
		{
			To: metrics.KVTransferFailures, From: "vllm:nixl_num_failed_notifications_total", Is: scrape.Counter, Since: "0.11.1", Plus: true,
			Absent:  "no NIXL connector",
			Quality: metrics.Approximate, Why: "includes failed notifications, after which the prefill engine keeps its copy until it expires",
		},
		{To: metrics.KVTransferPostTime, From: "vllm:nixl_post_time_seconds", Is: scrape.Histogram, Since: "0.11.1", Absent: "no NIXL connector"},
		{
			To: metrics.KVTransfersExpired, From: "vllm:nixl_num_kv_expired_reqs_total", Is: scrape.Counter, Since: "0.15.0",
			Absent: "no NIXL connector",
		},

		// These rows are about offloading to host memory. If the counters of load and store are absent, kv_offload_total_* is
		// read. It counts both directions under the names before 0.24, which the CPU offload still uses.
		{
			To: metrics.KVTierTransferBytes, From: "vllm:kv_offload_load_bytes_total", Is: scrape.Counter, Since: "0.24",
			Set: tier(metrics.TierHost, metrics.Fetch), Absent: noOffload,
		},
		{
			To: metrics.KVTierTransferBytes, From: "vllm:kv_offload_store_bytes_total", Is: scrape.Counter, Since: "0.24",
			Set: tier(metrics.TierHost, metrics.Store), Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierTransferBytes, From: "vllm:kv_offload_total_bytes_total", Is: scrape.Counter, Since: "0.15",
			Set: tier(metrics.TierHost), Carry: transferType, Absent: noOffload,
		},
		{
			To: metrics.KVTierTransferBytes, From: "vllm:hisparse_host_to_device_bytes_total", Is: scrape.Counter, Since: "0.32.0",
			Set: tier(metrics.TierHost, metrics.Fetch), Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierTransferBytes, From: "vllm:kv_offload_tiering_read_bytes_total", Is: scrape.Counter, Since: "0.27",
			Set: tier("", metrics.Fetch), Carry: secondaryTier, Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierTransferBytes, From: "vllm:kv_offload_tiering_write_bytes_total", Is: scrape.Counter, Since: "0.27",
			Set: tier("", metrics.Store), Carry: secondaryTier, Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierTransferBytes, From: "vllm:mooncake_store_operation_bytes_total", Is: scrape.Counter, Since: "0.22",
			Where: mooncakeMoves,
			Set:   tier(metrics.TierRemote), Carry: mooncakeOperation, Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierTransferTime, From: "vllm:kv_offload_load_time_total", Is: scrape.Counter, Since: "0.24",
			Set: tier(metrics.TierHost, metrics.Fetch), Absent: noOffload,
		},
		{
			To: metrics.KVTierTransferTime, From: "vllm:kv_offload_store_time_total", Is: scrape.Counter, Since: "0.24",
			Set: tier(metrics.TierHost, metrics.Store), Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierTransferTime, From: "vllm:kv_offload_total_time_total", Is: scrape.Counter, Since: "0.15",
			Set: tier(metrics.TierHost), Carry: transferType, Absent: noOffload,
		},
		{
			To: metrics.KVTierTransferTime, From: "vllm:kv_offload_tiering_read_time_total", Is: scrape.Counter, Since: "0.27",
			Set: tier("", metrics.Fetch), Carry: secondaryTier, Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierTransferTime, From: "vllm:kv_offload_tiering_write_time_total", Is: scrape.Counter, Since: "0.27",
			Set: tier("", metrics.Store), Carry: secondaryTier, Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierTransferTime, From: "vllm:mooncake_store_operation_time_seconds", Is: scrape.Histogram, Since: "0.22",
			Where: mooncakeMoves,
			Set:   tier(metrics.TierRemote), Carry: mooncakeOperation, Part: partSum, Plus: true, Absent: noOffload,
			Quality: metrics.Derived, Why: "sum of the histogram",
		},
		{
			To: metrics.KVTierTransferTime, From: "vllm:hf3fs_load_duration_seconds", Is: scrape.Histogram, Since: "0.20",
			Set:  tier(metrics.TierRemote, metrics.Fetch),
			Part: partSum, Plus: true, Absent: noOffload, Quality: metrics.Derived, Why: "sum of the histogram",
		},
		{
			To: metrics.KVTierTransferTime, From: "vllm:hf3fs_save_duration_seconds", Is: scrape.Histogram, Since: "0.20",
			Set:  tier(metrics.TierRemote, metrics.Store),
			Part: partSum, Plus: true, Absent: noOffload, Quality: metrics.Derived, Why: "sum of the histogram",
		},
		{
			To: metrics.KVTierFailures, From: "vllm:kv_offload_tiering_promotion_job_failures_total", Is: scrape.Counter, Since: "0.27",
			Set: tier("", metrics.Fetch), Carry: secondaryTier, Absent: noOffload,
		},
		{
			To: metrics.KVTierFailures, From: "vllm:kv_offload_tiering_cascade_job_failures_total", Is: scrape.Counter, Since: "0.27",
			Set: tier("", metrics.Store), Carry: secondaryTier, Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierFailures, From: "vllm:mooncake_store_operation_failed_keys_total", Is: scrape.Counter, Since: "0.22",
			Where: is("operation", "save_put", "load_get"),
			Set:   tier(metrics.TierRemote), Carry: mooncakeOperation, Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierFailures, From: "vllm:hf3fs_num_failed_load_total", Is: scrape.Counter, Since: "0.20",
			Set: tier(metrics.TierRemote, metrics.Fetch), Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierFailures, From: "vllm:hf3fs_num_failed_save_total", Is: scrape.Counter, Since: "0.20",
			Set: tier(metrics.TierRemote, metrics.Store), Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierHitTokens, From: "vllm:prompt_tokens_cached_by_source_total", Is: scrape.Counter, Since: "0.32.0",
			Where: matching(labels.MatchNotEqual, "source", "device"),
			// The value is also 0 if the engine has no lower tier.
			Carry: hitSource, Fold: aboveZero("vllm:prompt_tokens_cached_by_source_total"), Absent: noOffload, NoValue: noOffload,
		},
		{
			To: metrics.KVTierLookups, From: "vllm:kv_offload_tiering_chunk_queries_total", Is: scrape.Counter, Since: "0.32.0",
			Carry: secondaryTier, Absent: noOffload,
		},
		{
			To: metrics.KVTierLookups, From: "vllm:kv_offload_tiering_block_queries_total", Is: scrape.Counter, Since: "0.27", Until: "0.31.x",
			Carry: secondaryTier, Absent: noOffload,
		},
		{
			To: metrics.KVTierHits, From: "vllm:kv_offload_tiering_chunk_hits_total", Is: scrape.Counter, Since: "0.32.0", Carry: secondaryTier,
			Absent: noOffload,
		},
		{
			To: metrics.KVTierHits, From: "vllm:kv_offload_tiering_block_hits_total", Is: scrape.Counter, Since: "0.27", Until: "0.31.x",
			Carry: secondaryTier, Absent: noOffload,
		},
		{
			To: metrics.KVTierRefused, From: "vllm:kv_offload_allocation_failure_total", Is: scrape.Counter, Since: "0.26",
			Set: tier(metrics.TierHost), Absent: noOffload,
		},
		{
			To: metrics.KVTierRefused, From: "vllm:kv_offload_stores_skipped_total", Is: scrape.Counter, Since: "0.24",
			Set: tier(metrics.TierHost), Absent: noOffload,
			Quality: metrics.Approximate, Why: "with a store_threshold of 2 or more, includes blocks seen for the first time",
		},
		{
			To: metrics.KVTierRefused, From: "vllm:kv_offload_tiering_backpressure_stores_dropped_total", Is: scrape.Counter, Since: "0.32.0",
			Carry: secondaryTier, Plus: true, Absent: noOffload,
		},
		{
			To: metrics.KVTierRefused, From: "vllm:simple_kv_offload_save_outcomes_total", Is: scrape.Counter, Since: "0.32.0",
			Where: is("outcome", "dropped_cpu_full"),
			Set:   tier(metrics.TierHost), Plus: true, Absent: noOffload,
		},
		// This gauge is not the fill level of the tier. vLLM has had no gauge of the fill level since V0.
		{
			To: metrics.KVTierPinned, From: "vllm:kv_offload_cpu_cache_usage_perc", Is: scrape.Gauge, Since: "0.24",
			Set: tier(metrics.TierHost), Absent: noOffload,
		},
		{
			To: metrics.KVTierPinned, From: "vllm:hisparse_host_cache_usage_perc", Is: scrape.Gauge, Since: "0.32.0",
			Set: tier(metrics.TierHost), Absent: noOffload,
		},
		{
			To: metrics.KVTierUsage, From: "vllm:cpu_cache_usage_perc", Is: scrape.Gauge, Since: "0.2.3", Until: "0.9.0",
			Set: tier(metrics.TierHost), Absent: "V0 only",
		},
		{
			To: metrics.KVTierCapacityTokens, From: "vllm:kv_offload_config_info", Is: scrape.Gauge, Since: "0.31", Set: tier(metrics.TierHost),
			Absent: noOffload,
			Fold:   labelProduct("cpu_capacity_tokens_at_max_len"), Quality: metrics.Approximate,
			Why: "from a label: the most that fit, with requests of the longest length",
		},
		{
			To: metrics.KVTierCapacityTokens, From: "vllm:cache_config_info", Is: scrape.Gauge, Since: "0.3.3", Until: "0.9.0",
			Set: tier(metrics.TierHost), Absent: "V0 only",
			Where: []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "num_cpu_blocks", "[1-9][0-9]*")},
			Fold:  labelProduct("num_cpu_blocks", "block_size"), Quality: metrics.Derived, Why: "from labels: CPU blocks times block size",
		},
		{
			To: metrics.KVTierCapacityBytes, From: "vllm:kv_offload_config_info", Is: scrape.Gauge, Since: "0.31", Set: tier(metrics.TierHost),
			Absent: noOffload,
			Fold:   labelProduct("cpu_num_chunks", "cpu_kv_bytes_per_chunk"), Quality: metrics.Derived,
			Why: "from labels: chunks times bytes per chunk",
		},

		{
			To: metrics.KVBlockLifetime, From: "vllm:kv_block_lifetime_seconds", Is: scrape.Histogram, Since: "0.13",
			Absent: "needs --kv-cache-metrics",
		},
		{
			To: metrics.KVBlockIdle, From: "vllm:kv_block_idle_before_evict_seconds", Is: scrape.Histogram, Since: "0.13",
			Absent: "needs --kv-cache-metrics",
		},
		{
			To: metrics.KVBlockReuseGap, From: "vllm:kv_block_reuse_gap_seconds", Is: scrape.Histogram, Since: "0.13",
			Absent: "needs --kv-cache-metrics",
		},

		{
			To: metrics.RequestsWaitingByReason, From: "vllm:num_requests_waiting_by_reason", Is: scrape.Gauge, Since: "0.20",
			Carry: []metrics.Carry{{
				From: "reason", To: metrics.LabelReason,
				Map: values(map[string]string{"capacity": "capacity", "deferred": "deferred"}, "other"),
			}},
		},
		{To: metrics.RequestsSwapped, From: "vllm:num_requests_swapped", Is: scrape.Gauge, Since: "0.2.3", Until: "0.9.0", Absent: "V0 only"},
		{
			To: metrics.BatchTokens, From: "vllm:iteration_tokens_total", Is: scrape.Histogram, Since: "0.6.4", Until: "0.7.2",
			Absent: "V1 of these releases has none",
		},
		{To: metrics.BatchTokens, From: "vllm:iteration_tokens_total", Is: scrape.Histogram, Since: "0.7.3"},
		{
			To: metrics.RequestPreemptions, From: "vllm:request_num_preemptions", Is: scrape.Histogram, Since: "0.30",
			Absent: "the Rust frontend has none",
		},
		{
			To: metrics.CorruptedRequests, From: "vllm:corrupted_requests_total", Is: scrape.Counter, Since: "0.11.1",
			Absent:  "needs VLLM_COMPUTE_NANS_IN_LOGITS=1",
			Quality: metrics.Approximate, Why: "0 means nothing without VLLM_COMPUTE_NANS_IN_LOGITS=1",
		},
		{
			To: metrics.MultimodalCacheQueries, From: "vllm:mm_cache_queries_total", Is: scrape.Counter, Since: "0.11.1",
			Absent: "the Rust frontend has none",
		},
		{
			To: metrics.MultimodalCacheHits, From: "vllm:mm_cache_hits_total", Is: scrape.Counter, Since: "0.11.1",
			Absent: "the Rust frontend has none",
		},
		// Without the flag, these counters are on the metrics page and stay 0.
		{
			To: metrics.EstimatedFlops, From: "vllm:estimated_flops_per_gpu_total", Is: scrape.Counter, Since: "0.17", Absent: needsMFU,
			NoValue: needsMFU,
			Fold:    aboveZero("vllm:estimated_flops_per_gpu_total"),
		},
		{
			To: metrics.EstimatedMemoryBytes, From: "vllm:estimated_read_bytes_per_gpu_total", Is: scrape.Counter, Since: "0.17",
			Absent: needsMFU, NoValue: needsMFU,
			With: []string{"vllm:estimated_write_bytes_per_gpu_total"}, Fold: aboveZero("vllm:estimated_read_bytes_per_gpu_total",
				"vllm:estimated_write_bytes_per_gpu_total"),
			Quality: metrics.Derived, Why: "bytes read and written",
		},
	},
	Settings:  vllmSettings,
	Flags:     vllmFlags,
	Endpoints: map[*metrics.Family]string{metrics.MaxModelLen: "/v1/models"},
	Missing: reasons(
		lacks("lookups are counted in blocks of unknown size", []*metrics.Family{metrics.KVTierQueryTokens}),
		lacks("transfers are counted in bytes", []*metrics.Family{metrics.KVTierTransferTokens, metrics.KVTierTransferBlocks})),
	Identify: openAI,
}

// vllmConfig is the info metric whose labels are the fields of vLLM's CacheConfig, as CacheConfig.metrics_info prints them
// (vllm/config/cache.py).
const vllmConfig = "vllm:cache_config_info"

var (
	vllmSettings = []Told{
		{To: metrics.SettingModel, From: "/v1/models", At: "data.0.root"}, // adapters come after the model
		{To: metrics.SettingVersion, From: "/version", At: "version"},
		{To: metrics.SettingKVCacheDtype, From: vllmConfig, At: "cache_dtype"},
		{To: metrics.SettingKVBlockSize, From: vllmConfig, At: "block_size"},
		{To: metrics.SettingGPUMemoryFraction, From: vllmConfig, At: "gpu_memory_utilization"},
		{To: metrics.SettingPrefixCaching, From: vllmConfig, At: "enable_prefix_caching"},
	}
	// The flags are from vllm/engine/arg_utils.py. Flag names with a single dash are vLLM's own.
	vllmFlags = []Flag{
		{To: metrics.SettingRevision, Names: "revision"},
		{To: metrics.SettingDtype, Names: "dtype"},
		{To: metrics.SettingQuantization, Names: "quantization q"},
		{To: metrics.SettingMaxModelLen, Names: "max-model-len"},
		{To: metrics.SettingMaxBatchTokens, Names: "max-num-batched-tokens"},
		{To: metrics.SettingMaxSequences, Names: "max-num-seqs"},
		{To: metrics.SettingMaxQueue, Names: "max-num-queued-reqs"},
		{To: metrics.SettingTensorParallel, Names: "tensor-parallel-size tp"},
		{To: metrics.SettingPipelineParallel, Names: "pipeline-parallel-size pp"},
		{To: metrics.SettingDataParallel, Names: "data-parallel-size dp"},
		{To: metrics.SettingExpertParallel, Names: "enable-expert-parallel ep", Value: "true"},
		{To: metrics.SettingExpertParallel, Names: "no-enable-expert-parallel", Value: "false"},
		{To: metrics.SettingKVCacheDtype, Names: "kv-cache-dtype"},
		{To: metrics.SettingSpeculation, Names: "speculative-config", At: "method"},
		{To: metrics.SettingSpeculationTokens, Names: "speculative-config", At: "num_speculative_tokens"},
		{To: metrics.SettingPrefixCaching, Names: "enable-prefix-caching", Value: "true"},
		{To: metrics.SettingPrefixCaching, Names: "no-enable-prefix-caching", Value: "false"},
		{To: metrics.SettingChunkedPrefill, Names: "enable-chunked-prefill", Value: "true"},
		{To: metrics.SettingChunkedPrefill, Names: "no-enable-chunked-prefill", Value: "false"},
		{To: metrics.SettingCUDAGraphs, Names: "enforce-eager", Value: "false"},
		{To: metrics.SettingCUDAGraphs, Names: "no-enforce-eager", Value: "true"},
		{To: metrics.SettingAttention, Names: "attention-backend"},
		{To: metrics.SettingTemplate, Names: "chat-template"},
		{To: metrics.SettingTokenizer, Names: "tokenizer"},
		{To: metrics.SettingGeneration, Names: "override-generation-config generation-config"},
	}
)

// vLLM's HTTP server and its engine count the same requests. The engine counts a request when it has finished. Shortly
// afterwards, the server counts the request by status class, when its answer ends. A request whose client leaves never
// finishes.
var (
	answersOK = slices.Concat(is("method", "POST"), is("status", "2xx", "200"), matching(labels.MatchRegexp, "handler",
		"/v1/chat/completions(/batch)?|/v1/completions|/v1/messages|/v1/responses|/v1/audio/(transcriptions|translations)|/inference/v1/generate|/generate|/cohere/v2/chat|/invocations"))
	answers5xx = slices.Concat(matching(labels.MatchRegexp, "method", "POST|"), matching(labels.MatchRegexp, "status", "5xx|5[0-9][0-24-9]"),
		matching(labels.MatchNotRegexp, "handler", administration))

	failures  = Count{From: "http_requests_total", Is: scrape.Counter, Where: answers5xx, Optional: true}
	refused   = Count{From: "vllm:admission_rejections_total", Is: scrape.Counter, Optional: true}
	inEngine  = Count{From: "vllm:request_success_total", Is: scrape.Counter, Where: is("finished_reason", "error"), Optional: true}
	aborted   = Count{From: "vllm:request_success_total", Is: scrape.Counter, Where: is("finished_reason", "abort"), Optional: true}
	completed = Count{From: "vllm:request_params_n", Is: scrape.Histogram} // once per request, however many answers it requested
)

// left counts the requests that the server answered 200 and the engine never finished, because V1 counts no aborts. Refusals are matched
// with the 5xx answers of the same interval. Additional refusals count as streams that were answered 200.
func left(rose []float64) float64 { return rose[0] - rose[1] - max(0, rose[2]-rose[3]) - rose[4] }

// failedBeyond returns a row that adds the server's 5xx answers, minus the requests that the engine failed or refused
// in the same interval. If both may count the same requests, the larger number counts. The result is never more than
// the failed requests, and at least half of them.
func failedBeyond(since, until string, as metrics.Outcome, why string) Row {
	return Row{
		To: metrics.Requests, From: "http_requests_total", Is: scrape.Counter, Since: since, Until: until, Where: answers5xx,
		Failures: SinceAnswer,
		Set:      outcome(as), Plus: true, Absent: "no HTTP request has failed", Quality: metrics.Approximate, Why: why,
		Tally: &Tally{Of: []Count{inEngine, refused}, Step: func(rose []float64) float64 { return max(0, rose[0]-rose[1]-rose[2]) }},
	}
}

const largerOf = "per interval, the larger of the server's 5xx answers and the engine's failed or refused requests, because both may " +
	"count the same requests"

// These are the reasons why quantities that depend on a flag are absent.
const (
	noOffload = "no KV offloading, or no such event yet"
	needsMFU  = "needs --enable-mfu-metrics"
	noLoras   = "no LoRA adapters are served"
	contended = "names listed in the lora_requests_info series of a minute, if more than max_lora and requests wait"

	timesAddedUp = "several API servers add up their times, so it is unknown which series is the newest"
)

// transferType maps the direction of a copy between host and GPU.
var transferType = []metrics.Carry{{From: "transfer_type", To: metrics.LabelOperation, Map: values(map[string]string{
	"CPU_to_GPU": string(metrics.Fetch),
	"GPU_to_CPU": string(metrics.Store),
}, "")}}

// secondaryTier maps the name of a tier below the host's memory. vLLM names such a tier by its position and kind, as in
// 1:fs.
var secondaryTier = []metrics.Carry{{From: "tier", To: metrics.LabelTier, Map: func(s string) string {
	if _, kind, _ := strings.Cut(s, ":"); kind == "fs" {
		return string(metrics.TierDisk)
	}
	return string(metrics.TierStorage)
}}}

// hitSource maps the source of cached prompt tokens. A source without a name in vLLM is some kind of storage.
var hitSource = []metrics.Carry{{From: "source", To: metrics.LabelTier, Map: values(map[string]string{
	"host": string(metrics.TierHost),
	"disk": string(metrics.TierDisk),
	"p2p":  string(metrics.TierRemote),
}, string(metrics.TierStorage))}}

// These operations of the Mooncake store move KV cache. All other operations look up keys.
var (
	mooncakeMoves     = slices.Concat(is("operation", "save_put", "load_get"), is("status", "ok"))
	mooncakeOperation = []metrics.Carry{{From: "operation", To: metrics.LabelOperation, Map: values(map[string]string{
		"save_put": string(metrics.Store),
		"load_get": string(metrics.Fetch),
	}, "")}}
)

// kvCapacity reads the size of the KV cache from the labels of cache_config_info. It reads tokens if vLLM reports
// tokens (v0.24), and otherwise multiplies blocks by tokens per block. Early V1 printed num_gpu_blocks="None".
func kvCapacity(in []Member) (float64, bool) {
	var total float64
	for _, m := range in {
		if tokens := labelNumber(m, "kv_cache_size_tokens"); tokens > 0 {
			total += tokens
		} else {
			total += labelNumber(m, "num_gpu_blocks") * labelNumber(m, "block_size")
		}
	}
	return total, total > 0
}

// blocksInTokens converts the block counts of vLLM before v0.9.0 (vllm#18003). Later releases count tokens under the
// same name.
func blocksInTokens(counter string) func([]Member) (float64, bool) {
	return func(in []Member) (tokens float64, ok bool) {
		blocks, ok := largest(in, counter)
		for _, m := range in {
			if size := labelNumber(m, "block_size"); size > 0 {
				return blocks * size, ok
			}
		}
		return 0, false
	}
}

// lorasOf returns the adapters in a series of lora_requests_info. In the V1 engine, both labels list the adapters of
// all requests that have run and have not ended. So an adapter that only waiting requests need is not listed
// (v1/metrics/stats.py, LoRARequestStates).
func lorasOf(ls labels.Labels) (all []string) {
	for _, label := range []string{loraRunning, "waiting_lora_adapters"} {
		for _, name := range namesIn(ls, label) {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// loraInfo lists adapters in its labels. Its value is the time of its last update.
const (
	loraInfo    = "vllm:lora_requests_info"
	loraRunning = "running_lora_adapters"
)

func namesIn(ls labels.Labels, label string) []string {
	return strings.FieldsFunc(ls.Get(label), func(r rune) bool { return r == ',' })
}

// lorasRunning counts the running adapters in the newest series of lora_requests_info. Each combination of adapters
// that ever ran leaves a series behind, and its value is the time of its last update. If several series are equally
// new, the largest combination counts.
func lorasRunning(in []Member) (float64, bool) {
	last, known := newest(in)
	most := 0
	for _, m := range in {
		if m.Value == last {
			most = max(most, len(namesIn(m.Labels, loraRunning)))
		}
	}
	return float64(most), known
}

// lorasContended counts the adapters in lora_requests_info within a minute, while not all of them fit into a batch and
// requests wait. Otherwise it returns 0.
func lorasContended(in []Member) (float64, bool) {
	var infos []Member
	waiting := 0.0
	for _, m := range in {
		if m.Family == loraInfo {
			infos = append(infos, m)
		} else {
			waiting += m.Value
		}
	}
	all, known := lorasRequested(infos)
	if slots, _ := loraSlots(infos); waiting == 0 || all <= slots {
		all = 0
	}
	return all, known
}

// lorasRequested counts the adapters that were listed within the last minute.
func lorasRequested(in []Member) (float64, bool) {
	last, known := newest(in)
	all := map[string]bool{}
	for _, m := range in {
		for _, name := range lorasOf(m.Labels) {
			if m.Value > last-60 {
				all[name] = true
			}
		}
	}
	return float64(len(all)), known
}

// newest returns the time of the newest series. With several API servers, the value of a series is the sum of several
// times, so the time is unknown.
func newest(in []Member) (last float64, known bool) {
	for _, m := range in {
		last = max(last, m.Value)
	}
	return last, last < sumOfTimes
}

// sumOfTimes is greater than any unix time before 2050, and less than the sum of two present times.
const sumOfTimes = 2.6e9

// loraSlots reads the number of adapters that fit into a batch.
func loraSlots(in []Member) (slots float64, ok bool) {
	for _, m := range in {
		slots = max(slots, labelNumber(m, "max_lora"))
	}
	return slots, slots > 0
}

// aboveZero adds up the members of the given families. It has no result while the sum is zero.
func aboveZero(families ...string) func([]Member) (float64, bool) {
	return func(in []Member) (float64, bool) {
		total, ok := sum(families...)(in)
		return total, ok && total > 0
	}
}
