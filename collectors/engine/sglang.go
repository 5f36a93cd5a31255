package engine

import (
	"context"
	"errors"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// sglang reads SGLang, which always runs Prometheus' multiprocess mode. Scheduler metrics carry
// ranks; latencies come from the tokenizer process and do not.
var sglang = Dialect{
	Runtime:   metrics.SGLang,
	Source:    "sglang srt/metrics/collector.py (to 0.5.9), srt/observability/metrics_collector.py (from 0.5.10), srt/managers/tokenizer_manager.py",
	Recognise: func(p *Page) bool { return p.HasPrefix("sglang:") },
	Labels: []Carry{
		{From: "model_name", To: metrics.LabelModel},
		{From: "dp_rank", To: metrics.LabelDPRank},
		{From: "engine_type", To: metrics.LabelRole, Map: values(map[string]string{"prefill": "prefill", "decode": "decode"}, "")},
	},
	// Tensor, pipeline and expert ranks report the scheduler of their data-parallel rank again.
	Replicas: []string{"pid", "tp_rank", "pp_rank", "moe_ep_rank", "attn_cp_rank", "moe_dp_rank"},
	// With priority scheduling, each gauge has a row per priority beside the total without one.
	Total: "priority",
	Marks: []Mark{
		{Name: "sglang:time_per_output_token_seconds", Until: "0.4.4.post3"},
		{Name: "sglang:cache_config_info", Since: "0.5.9", Until: "0.5.10.post1"},
		{Name: "sglang:kv_used_tokens", Since: "0.5.11"},
		{Name: "sglang:engine_startup_time", Since: "0.5.2", Until: "0.5.16"},
		{Name: "sglang:num_requests_total", Label: "is_streaming", Since: "0.5.17"},
		{Name: "sglang:num_requests_total", Lacks: "is_streaming", Until: "0.5.16"},
	},
	Rows: []Row{
		{To: metrics.TimeToFirstToken, From: "sglang:time_to_first_token_seconds", Is: Histogram, Where: is("is_streaming", "True", "true"), Since: "0.5.17",
			Absent: "no streaming request yet, or a prefill engine"},
		{To: metrics.TimeToFirstToken, From: "sglang:time_to_first_token_seconds", Is: Histogram, Where: is("is_streaming", ""),
			Absent: "no request yet, or a prefill engine", Quality: metrics.Approximate, Why: "before 0.5.17: answers that are not streamed count with their whole duration"},
		{To: metrics.InterTokenLatency, From: "sglang:inter_token_latency_seconds", Is: Histogram, Since: "0.4.3.post3", Absent: "no request has been decoded yet"},
		{To: metrics.TimePerOutputToken, From: "sglang:time_per_output_token_seconds", Is: Histogram, Until: "0.4.4.post3", Absent: "no request has been decoded yet",
			Quality: metrics.Approximate, Why: "the running mean of a request, observed with each chunk"},
		{To: metrics.RequestDuration, From: "sglang:e2e_request_latency_seconds", Is: Histogram, Absent: noFinish},
		{To: metrics.QueueTime, From: "sglang:queue_time_seconds", Is: Histogram, Since: "0.5.3", Absent: noRequest},
		{To: metrics.QueueTime, From: "sglang:queue_time_s", Is: Histogram, Since: "0.5.2", Until: "0.5.2", Absent: noRequest},
		{To: metrics.PrefillTime, From: "sglang:per_stage_req_latency_seconds", Is: Histogram, Where: is("stage", "prefill_forward"), Since: "0.5.3",
			Absent: noRequest, Quality: metrics.Approximate, Why: "the last chunk of chunked prefills"},
		{To: metrics.RequestPromptTokens, From: "sglang:prompt_tokens_histogram", Is: Histogram, Since: "0.4.6.post4", Absent: "needs --collect-tokens-histogram before 0.5.17"},
		{To: metrics.RequestGenerationTokens, From: "sglang:generation_tokens_histogram", Is: Histogram, Since: "0.4.6.post4", Absent: "needs --collect-tokens-histogram before 0.5.17"},

		{To: metrics.RequestsRunning, From: "sglang:num_running_reqs", Is: Gauge},
		{To: metrics.RequestsWaiting, From: "sglang:num_queue_reqs", Is: Gauge},
		{To: metrics.KVCacheUsage, From: "sglang:token_usage", Is: Gauge},
		{To: metrics.KVCacheCapacity, From: "sglang:max_total_num_tokens", Is: Gauge, Since: "0.5.6"},
		{To: metrics.MaxModelLen, From: "sglang:context_len", Is: Gauge, Since: "0.5.11"},
		{To: metrics.LorasRunning, From: "sglang:lora_pool_slots_used", Is: Gauge, Since: "0.5.7", Absent: "no LoRA adapters are served"},

		{To: metrics.PromptTokens, From: "sglang:prompt_tokens_total", Is: Counter, Absent: noFinish},
		{To: metrics.GenerationTokens, From: "sglang:generation_tokens_total", Is: Counter, Absent: noFinish},
		{To: metrics.Requests, From: "sglang:num_requests_total", Is: Counter, Since: "0.4.1.post6", Set: outcome(metrics.OutcomeSuccess), Absent: noFinish,
			Quality: metrics.Approximate, Why: "every finished request; those aborted while they ran are among them"},
		{To: metrics.Requests, From: "sglang:num_aborted_requests_total", Is: Counter, Since: "0.4.7", Plus: true, Set: outcome(metrics.OutcomeAbort), Absent: "no request was aborted"},
		answered("sglang:http_responses_total", "status_code", "endpoint", "0.5.6.post2", "failed HTTP answers: requests that were refused or never reached the scheduler"),
		{To: metrics.Preemptions, From: "sglang:num_retracted_requests_total", Is: Counter, Since: "0.5.7", Absent: "no request was retracted yet"},
		{To: metrics.Preemptions, From: "sglang:num_retractions", Is: Histogram, Since: "0.5.4.post2", Until: "0.5.10.post1", Fold: histogramSum,
			Absent: noFinish, Quality: metrics.Approximate, Why: "counted when the request finishes"},

		// Not the cache_hit_rate gauge: each batch overwrites it, and decoding sets it to zero (sglang#26608).
		{To: metrics.PrefixCacheQueryTokens, From: "sglang:prompt_tokens_total", Is: Counter, Absent: noFinish,
			Quality: metrics.Derived, Why: "all prompt tokens are looked up"},
		{To: metrics.PrefixCacheHitTokens, From: "sglang:cached_tokens_total", Is: Counter, Since: "0.4.3.post4", Absent: "no hit yet"},

		{To: metrics.KVTransferTime, From: "sglang:kv_transfer_latency_ms", Is: Histogram, Scale: Millis, Since: "0.5.10", Absent: "not a prefill or decode engine"},
		{To: metrics.KVTransferSize, From: "sglang:kv_transfer_total_mb", Is: Histogram, Scale: Megabytes, Since: "0.5.10", Absent: "not a prefill or decode engine"},
		{To: metrics.KVTransferFailures, From: "sglang:num_transfer_failed_reqs_total", Is: Counter, Since: "0.4.6.post4", Absent: "no transfer has failed yet"},

		{To: metrics.EngineLoadTime, From: "sglang:startup_time_seconds", Is: Gauge, Where: is("phase", "scheduler_e2e", "tokenizer_e2e"), Since: "0.5.17"},
		{To: metrics.EngineLoadTime, From: "sglang:engine_startup_time", Is: Gauge, Since: "0.5.2", Until: "0.5.16"},
	},
	Missing: map[*metrics.Family]string{
		metrics.DecodeTime:                     "not on the page",
		metrics.Sleeping:                       "not on the page",
		metrics.ExternalPrefixCacheQueryTokens: "cached tokens are not split from those looked up outside the engine",
		metrics.ExternalPrefixCacheHitTokens:   "cached tokens are not split from those looked up outside the engine",
		metrics.SpecDecodeDraftTokens:          "only gauges of the acceptance rate and length are reported",
		metrics.SpecDecodeAcceptedTokens:       "only gauges of the acceptance rate and length are reported",
	},
	Identify: func(ctx context.Context, get Getter) (id Identity, err error) {
		if err = id.askVersion(ctx, get, "/server_info"); err != nil {
			err = id.askVersion(ctx, get, "/get_server_info") // the older name
		}
		return id, errors.Join(err, id.askModels(ctx, get))
	},
}
