package engine

import (
	"math"
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Triton's page joins the server's own families, which count requests for any model, with those of the backend that
// runs the model. Each backend is a dialect of its own; all share the core's rows.

const (
	trtRequests = "nv_trt_llm_request_metrics"
	trtBlocks   = "nv_trt_llm_kv_cache_block_metrics"

	blocksDisagree  = "used and free blocks do not add up to max"
	durationsSummed = "only a sum of durations is reported, no histogram"
)

// tritonTRTLLM reads Triton with the TensorRT-LLM backend.
var tritonTRTLLM = Dialect{
	Runtime:     metrics.TritonTRTLLM,
	Source:      "tensorrtllm_backend custom_metrics_reporter, triton core metrics",
	Recognise:   func(p *Page) bool { return p.Has(trtRequests) || p.Has(trtBlocks) },
	EngineTypes: []string{"triton-tensorrt-llm"},
	Labels:      tritonLabels,
	Server:      tritonServer,
	Models:      modelsOf(trtRequests, trtBlocks),
	VersionHints: []VersionHint{
		{Name: "nv_trt_llm_disaggregated_serving_metrics", Since: "0.15.0"},
		{Name: "nv_llm_input_token_len", Since: "0.16.0"},
	},
	Rows: slices.Concat([]Row{
		{To: metrics.RequestPromptTokens, From: "nv_llm_input_token_len", Is: Histogram, Since: "0.16.0", Absent: noRequest},
		{To: metrics.RequestGenerationTokens, From: "nv_llm_output_token_len", Is: Histogram, Since: "0.16.0", Absent: noRequest},
		{To: metrics.RequestsRunning, From: trtRequests, Is: Gauge, Where: is("request_type", "scheduled"), Since: "0.7.0"},
		{To: metrics.RequestsWaiting, From: trtRequests, Is: Gauge, Where: is("request_type", "waiting"), Since: "0.18.0"},
		{To: metrics.RequestsWaiting, From: trtRequests, Is: Gauge, Where: is("request_type", "active", "scheduled"), Since: "0.7.0",
			Fold: activeNotScheduled, Quality: metrics.Derived, Why: "active minus scheduled requests"},
		// The backend writes its JSON keys into label slots by position, so a missing key shifts all values behind
		// it. Block counts that do not add up are ignored.
		{To: metrics.KVCacheUsage, From: trtBlocks, Is: Gauge, Since: "0.7.0", Fold: blocksUsed,
			Quality: metrics.Derived, Why: "used over max blocks, when used and free add up to max, or to one more or less", NoValue: blocksDisagree},
		{To: metrics.KVCacheCapacity, From: trtBlocks, Is: Gauge, Since: "0.7.0", Fold: blockTokens,
			Quality: metrics.Derived, Why: "max blocks times tokens per block, when used and free add up to max, or to one more or less", NoValue: blocksDisagree},
		{To: metrics.PromptTokens, From: "nv_llm_input_token_len", Is: Histogram, Since: "0.16.0", Part: partSum,
			Absent: noRequest, Quality: metrics.Derived, Why: "sum of the histogram"},
		{To: metrics.GenerationTokens, From: "nv_llm_output_token_len", Is: Histogram, Counted: metrics.CountedEnd, Since: "0.16.0", Part: partSum,
			Absent: noRequest, Quality: metrics.Derived, Why: "sum of the histogram"},
		{To: metrics.RequestsSwapped, From: "nv_trt_llm_inflight_batcher_metrics", Is: Gauge, Where: is("inflight_batcher_specific_metric", "paused_requests"),
			Since: "0.7.0", Absent: "no inflight batching, or a backend before 0.9.0"},
		{To: metrics.RequestsRunningLimit, From: trtRequests, Is: Gauge, Where: is("request_type", "max"), Since: "0.7.0"},
	}, tritonCore),
	Missing: reasons(tritonMissing, lacks(durationsSummed, []*metrics.Family{metrics.RequestDuration})),
}

// tritonVLLM reads Triton with the vLLM backend, which repeats a few of vLLM's metrics with Triton's labels, but no
// gauges. It needs REPORT_CUSTOM_METRICS in config.pbtxt.
var tritonVLLM = Dialect{
	Runtime:   metrics.TritonVLLM,
	Source:    "triton vllm_backend src/utils/metrics.py, triton core metrics",
	Recognise: func(p *Page) bool { return p.HasPrefix("vllm:") && p.HasPrefix("nv_") },
	Labels:    tritonLabels,
	Server:    tritonServer,
	Models:    modelsOf("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
	Rows: slices.Concat([]Row{
		{To: metrics.TimeToFirstToken, From: "vllm:time_to_first_token_seconds", Is: Histogram},
		// The time between engine steps, as in vLLM of that time.
		{To: metrics.InterTokenLatency, From: "vllm:time_per_output_token_seconds", Is: Histogram},
		{To: metrics.RequestDuration, From: "vllm:e2e_request_latency_seconds", Is: Histogram},
		{To: metrics.RequestPromptTokens, From: "vllm:request_prompt_tokens", Is: Histogram},
		{To: metrics.RequestGenerationTokens, From: "vllm:request_generation_tokens", Is: Histogram},
		{To: metrics.PromptTokens, From: "vllm:prompt_tokens_total", Is: Counter},
		{To: metrics.GenerationTokens, From: "vllm:generation_tokens_total", Is: Counter, Counted: metrics.CountedStep},
	}, tritonCore),
	Missing: tritonMissing,
}

// triton reads Triton with any other backend: only the server's own families.
var triton = Dialect{
	Runtime: metrics.Triton,
	Source:  "triton core metrics",
	Recognise: func(p *Page) bool {
		return p.Has("nv_inference_request_success") && !p.HasPrefix("vllm:") && !p.Has(trtRequests) && !p.Has(trtBlocks)
	},
	EngineTypes: []string{"triton"},
	Labels:      tritonLabels,
	Server:      tritonServer,
	Models:      ensembleOnly,
	Rows:        tritonCore,
	Missing:     reasons(tritonMissing, lacks(durationsSummed, []*metrics.Family{metrics.RequestDuration})),
}

// tritonServer: pending requests are a gauge of the core already, which counts them as they come.
var tritonServer = &Server{Lacks: "nothing of the process, and of requests only those before the backend"}

var tritonLabels = []Carry{{From: "model", To: metrics.LabelModel}}

// tritonCore holds the rows of the server itself. Its durations are sums in microseconds, which yield no
// distribution.
var tritonCore = []Row{
	{To: metrics.TimeToFirstToken, From: "nv_inference_first_response_histogram_ms", Is: Histogram, Scale: Millis,
		Absent: "needs --metrics-config histogram_latencies=true", Quality: metrics.Approximate, Why: "time to the first response; the first token for streaming (decoupled) models only"},
	{To: metrics.RequestsWaiting, From: "nv_inference_pending_request_count", Is: Gauge,
		Absent: "needs Triton 23.10", Quality: metrics.Approximate, Why: "requests before the backend; the backend's own queue is not included"},
	{To: metrics.Requests, From: "nv_inference_request_success", Is: Counter, Set: outcome(metrics.OutcomeSuccess)},
	{To: metrics.Requests, From: "nv_inference_request_failure", Is: Counter, Failures: SinceFailure, Plus: true,
		Carry: []Carry{{From: "reason", To: metrics.LabelOutcome, Outcomes: Outcomes{
			"REJECTED": metrics.OutcomeRejected,
			"CANCELED": metrics.OutcomeAbort,
			"BACKEND":  metrics.OutcomeError,
			"OTHER":    metrics.OutcomeError,
		}}}, Set: outcome(metrics.OutcomeError)}, // no reason before 24.07
	{To: metrics.EngineLoadTime, From: "nv_model_load_duration_secs", Is: Gauge, Absent: "needs Triton 24.11"},
}

// tritonMissing holds what neither the core nor a backend reports.
var tritonMissing = map[*metrics.Family]string{
	metrics.QueueTime:              durationsSummed,
	metrics.Preemptions:            "at most a gauge of paused requests is reported",
	metrics.PrefixCacheQueryTokens: "at most a gauge of reused blocks is reported",
	metrics.PrefixCacheHitTokens:   "at most a gauge of reused blocks is reported",
	metrics.KVTransferTime:         "at most a sum of milliseconds is reported, no histogram",
}

// modelsOf keeps the models that the backend's families name. The core counts one request through an ensemble under
// the ensemble, its pre- and postprocessing and the model itself.
func modelsOf(families ...string) func(*Page) func(string) bool {
	return func(p *Page) func(string) bool {
		models := map[string]bool{}
		for _, f := range families {
			for m := range p.LabelValues(f, "model") {
				models[m] = true
			}
		}
		return func(model string) bool { return models[model] }
	}
}

// ensembleOnly keeps only the ensemble if there is one, for the same reason.
func ensembleOnly(p *Page) func(string) bool {
	ensemble := p.LabelValues("nv_inference_request_success", "model")["ensemble"]
	return func(model string) bool { return !ensemble || model == "ensemble" }
}

// labelled returns the value of the member whose label has a given value.
func labelled(in []Member, label, value string) (float64, bool) {
	for _, m := range in {
		if m.Labels.Get(label) == value {
			return m.Value, true
		}
	}
	return 0, false
}

func activeNotScheduled(in []Member) (float64, bool) {
	active, ok1 := labelled(in, "request_type", "active")
	scheduled, ok2 := labelled(in, "request_type", "scheduled")
	return math.Max(0, active-scheduled), ok1 && ok2
}

// blocks returns the counts of KV cache blocks if they are consistent. TensorRT-LLM may count one block more as used or free
// than there are (the example of the backend's documentation: 1 used, 6239 free, at most 6239).
func blocks(in []Member) (used, most float64, ok bool) {
	const label = "kv_cache_block_type"
	most, ok1 := labelled(in, label, "max")
	free, ok2 := labelled(in, label, "free")
	used, ok3 := labelled(in, label, "used")
	fraction, ok4 := labelled(in, label, "fraction") // since 0.18
	ok = ok1 && ok2 && ok3 && most > 0 && used >= 0 && free >= 0 && math.Abs(used+free-most) <= 1
	return used, most, ok && (!ok4 || math.Abs(fraction-used/most) < 0.05)
}

func blocksUsed(in []Member) (float64, bool) {
	used, most, ok := blocks(in)
	return math.Min(1, used/most), ok
}

func blockTokens(in []Member) (float64, bool) {
	_, most, ok := blocks(in)
	size, found := labelled(in, "kv_cache_block_type", "tokens_per")
	return most * size, ok && found
}
