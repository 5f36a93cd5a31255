package engine

import (
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// dynamoFrontend reads the frontend of NVIDIA Dynamo. The frontend sees requests from the client's side, so its series
// have the role frontend. Rules read these series if no worker reports the same quantity, and never add both.
var dynamoFrontend = Dialect{
	Runtime:   metrics.Dynamo,
	Source:    "dynamo lib/llm/src/http/service/metrics.rs, lib/runtime/src/metrics/prometheus_names.rs",
	Recognise: starts("dynamo_frontend_"),
	Restore: func(byName map[string]*scrape.Family) {
		renameDynamo(byName)
		spellDynamo(byName)
	},
	Labels: []metrics.Carry{{From: "model", To: metrics.LabelModel}},
	Role:   metrics.FrontendRole,
	// The frontend is down when no model is ready. If only some models are not ready, the frontend is up. Only failures
	// under the names of these models then show the fault, until the frontend forgets the names.
	Ready: "dynamo_frontend_model_ready",
	// 1.6.0 added both families. If a metrics page counts failures but reports no model as ready, there is no worker.
	ReadyBeside: []string{"dynamo_frontend_failures_total"},
	// The gauge rises when a request's handler begins, and falls when its answer ends in any way. Therefore, the gauge
	// includes requests at stalled workers. Requests for misspelt models are answered at once.
	Server: &Server{Active: Source{Name: "dynamo_frontend_inflight_requests", Is: scrape.Gauge, Where: matching(labels.MatchNotEqual,
		"model", "unknown_model")}},
	Serves: []Shown{{Family: "dynamo_frontend_model_ready", Label: "model", All: true}, {
		Family: "dynamo_frontend_model_context_length",
		Label:  "model", All: true,
	}, {Family: "dynamo_frontend_model_total_kv_blocks", Label: "model"}},
	VersionHints: []VersionHint{
		{Name: "dynamo_frontend_active_requests", Since: "1.1.0"},
		{Name: "dynamo_frontend_model_context_length", Since: "0.5.0"},
	},
	Rows: []Row{
		{
			To: metrics.TimeToFirstToken, From: "dynamo_frontend_time_to_first_token_seconds", Is: scrape.Histogram, Since: "0.4.0",
			Absent: noRequest,
		},
		{
			To: metrics.InterTokenLatency, From: "dynamo_frontend_inter_token_latency_seconds", Is: scrape.Histogram, Since: "0.4.0",
			Absent: noRequest, Quality: metrics.Approximate, Why: "mean over the tokens of each chunk",
		},
		{To: metrics.RequestDuration, From: "dynamo_frontend_request_duration_seconds", Is: scrape.Histogram, Since: "0.4.0", Absent: noFinish},
		{To: metrics.RequestPromptTokens, From: "dynamo_frontend_input_sequence_tokens", Is: scrape.Histogram, Since: "0.4.0", Absent: noRequest},
		{
			To: metrics.RequestGenerationTokens, From: "dynamo_frontend_output_sequence_tokens", Is: scrape.Histogram, Since: "0.4.0",
			Absent: noFinish,
		},
		{
			To: metrics.RequestsRunning, From: "dynamo_frontend_active_requests", Is: scrape.Gauge, Since: "1.1.0",
			Absent: noRequest, Quality: metrics.Approximate, Why: "HTTP requests in progress, including those that wait",
		},
		{
			To: metrics.RequestsRunning, From: "dynamo_frontend_inflight_requests", Is: scrape.Gauge, Since: "0.5.1",
			Absent: noRequest, Quality: metrics.Approximate, Why: "HTTP requests in progress, including those that wait",
		},
		{
			To: metrics.RequestsWaiting, From: "dynamo_frontend_router_queue_pending_requests", Is: scrape.Gauge,
			Absent: "the router does not queue", Quality: metrics.Approximate, Why: "the router's queue only",
		},
		{
			To: metrics.KVCacheCapacity, From: "dynamo_frontend_model_total_kv_blocks",
			With: []string{"dynamo_frontend_model_kv_cache_block_size"}, Is: scrape.Gauge, Since: "0.5.0",
			Fold:   product("dynamo_frontend_model_total_kv_blocks", "dynamo_frontend_model_kv_cache_block_size"),
			Absent: noWorker, Quality: metrics.Approximate, Why: "of the worker that registered first",
		},
		{To: metrics.MaxModelLen, From: "dynamo_frontend_model_context_length", Is: scrape.Gauge, Since: "0.5.0", Absent: noWorker},
		{
			To: metrics.PromptTokens, From: "dynamo_frontend_input_sequence_tokens", Is: scrape.Histogram, Since: "0.4.0", Part: partSum,
			Absent: noRequest, Quality: metrics.Derived, Why: "sum of the histogram",
		},
		{
			To: metrics.GenerationTokens, From: "dynamo_frontend_output_tokens_total", Is: scrape.Counter, Counted: metrics.CountedStep,
			Since: "0.7.0", Absent: noRequest,
		},
		{
			To: metrics.GenerationTokens, From: "dynamo_frontend_output_sequence_tokens", Is: scrape.Histogram, Counted: metrics.CountedEnd,
			Since: "0.4.0", Part: partSum,
			Absent: noFinish, Quality: metrics.Derived, Why: "sum of the histogram, counted when a request ends",
		},
		{
			To: metrics.Requests, From: "dynamo_frontend_requests_total", Is: scrape.Counter, Where: is("status", "success"), Since: "0.4.0",
			Set: outcome(metrics.OutcomeSuccess), Absent: noFinish,
		},
		{
			To: metrics.Requests, From: "dynamo_frontend_requests_total", Is: scrape.Counter, Where: is("status", "error"),
			Failures: SinceFailure, Since: "0.4.0",
			Plus: true, Set: outcome(metrics.OutcomeError), Absent: "no request has failed",
			Carry: []metrics.Carry{{From: "error_type", To: metrics.LabelOutcome, Outcomes: metrics.Outcomes{
				"validation":          metrics.OutcomeInvalid,
				"not_found":           metrics.OutcomeInvalid,
				"not_implemented":     metrics.OutcomeInvalid,
				"overload":            metrics.OutcomeRejected,
				"cancelled":           metrics.OutcomeAbort,
				"unavailable":         metrics.OutcomeError, // no worker; Dynamo has another name for an overload
				"response_timeout":    metrics.OutcomeError,
				"first_token_timeout": metrics.OutcomeError,
				"intra_token_timeout": metrics.OutcomeError,
				"internal":            metrics.OutcomeError,
				"backend_error":       metrics.OutcomeError,
				"truncated_stream":    metrics.OutcomeError,
			}}},
		},
		// These requests are refused before the frontend counts them. Requests for an unknown name are left out, because
		// either the client or the server may be at fault. Examples are look-ups at wrong paths, and requests for a model
		// whose last worker left some time ago. The failures of such a model, and its readiness, cover the latter.
		dynamoRefused(metrics.OutcomeError, is("class", "Unavailable"), is("error_type", "unavailable")),
		dynamoRefused(metrics.OutcomeRejected, is("class", "CapacityExhausted", "RateLimited"), is("error_type", "overload")),
		dynamoRefused(metrics.OutcomeInvalid, is("class", "InvalidRequest", "Unauthenticated", "PermissionDenied", "Conflict",
			"PayloadTooLarge", "UnsupportedMedia", "NotImplemented"),
			is("error_type", "validation", "not_implemented")),
		{
			To: metrics.PrefixCacheQueryTokens, From: "dynamo_frontend_cached_tokens", With: []string{"dynamo_frontend_input_sequence_tokens"},
			Is: scrape.Histogram, Since: "0.8.0",
			Fold:   histogramSumOf("dynamo_frontend_input_sequence_tokens"),
			Absent: noRequest, Quality: metrics.Approximate, Why: "sum of prompt lengths",
		},
		{
			To: metrics.PrefixCacheHitTokens, From: "dynamo_frontend_cached_tokens", Is: scrape.Histogram, Since: "0.8.0", Part: partSum,
			Absent: noRequest, Quality: metrics.Approximate, Why: "sum of cached tokens that workers report per request",
		},
		{
			To: metrics.GatewayRetries, From: "dynamo_frontend_model_migration_total", Is: scrape.Counter,
			Absent: "no request was moved to another worker",
		},
		{
			To: metrics.RequestsRunningLimit, From: "dynamo_frontend_model_max_num_seqs", Is: scrape.Gauge, Since: "0.5.0", Absent: noWorker,
			Quality: metrics.Approximate, Why: "of the worker that registered first",
		},
	},
}

// dynamoRefused returns a row for failures that clients saw before the frontend began to count the request. The
// frontend counts each failure once, by class and without a model. If it accepted the request, it also counts the
// failure by model.
func dynamoRefused(as metrics.Outcome, failures, counted []*labels.Matcher) Row {
	return Row{
		To: metrics.Requests, From: "dynamo_frontend_failures_total", Is: scrape.Counter, Where: failures, Failures: SinceFailure,
		Since: "1.6.0", Plus: true, Set: outcome(as),
		Tally: &Tally{
			Of:   []Count{{From: "dynamo_frontend_requests_total", Is: scrape.Counter, Where: counted, Optional: true}},
			Step: func(rose []float64) float64 { return rose[0] - rose[1] },
		},
		Absent: "no request has failed", Quality: metrics.Approximate, Why: "failures of all models, less those counted with their model",
	}
}

// dynamoWorker reads the metrics that Dynamo adds to the metrics page of a worker's engine. Its rows name no versions,
// because the version on the metrics page is the engine's.
var dynamoWorker = Dialect{
	Runtime:    metrics.Dynamo,
	Source:     "dynamo lib/runtime/src/metrics/prometheus_names.rs",
	Supplement: true,
	Behind:     true,
	Recognise: func(p *scrape.Page) bool {
		return p.Has("dynamo_component_requests_total") || p.Has("dynamo_component_inflight_requests") || p.Has("dynamo_component_uptime_seconds")
	},
	Labels: []metrics.Carry{
		{From: "model", To: metrics.LabelModel},
		{From: "model_name", To: metrics.LabelModel},
		{From: "dp_rank", To: metrics.LabelDPRank},
	},
	// The endpoint counts a request when it arrives, independently of the engine. Requests that the worker's pool has not
	// taken yet are not counted.
	Server: &Server{Active: Source{Name: "dynamo_component_inflight_requests", Is: scrape.Gauge, Where: is("dynamo_endpoint", "generate")}},
	Costs: map[string]string{
		"needs --engine-request-limit":       "requests beyond the limit are refused",
		"needs --dynamo-request-queue-limit": "requests beyond the limit are refused",
	},
	Rows:    dynamoWorkerRows,
	Missing: others("left to the worker's engine", dynamoWorkerRows),
}

var dynamoWorkerRows = []Row{
	{To: metrics.RequestsRunning, From: "dynamo_engine_request", Is: scrape.Gauge, Absent: "needs --engine-request-limit"},
	{
		To: metrics.RequestsRunning, From: "dynamo_component_inflight_requests", Is: scrape.Gauge, Where: is("dynamo_endpoint", "generate"),
		Absent: noRequest, Quality: metrics.Approximate, Why: "requests at the worker's endpoint, including those that wait",
	},
	{To: metrics.RequestsWaiting, From: "dynamo_request_queue", Is: scrape.Gauge, Absent: "needs --dynamo-request-queue-limit"},
	{
		To: metrics.RequestsWaiting, From: "dynamo_work_handler_queue_depth", Is: scrape.Gauge, Plus: true, Absent: "not in early releases",
		Quality: metrics.Approximate, Why: "until the worker's pool takes them, without those that wait in the engine",
	},
	{
		To: metrics.KVCacheUsage, From: "dynamo_component_gpu_cache_usage_percent", With: []string{"dynamo_component_total_blocks"},
		Is:     scrape.Gauge,
		Fold:   unlessZero("dynamo_component_gpu_cache_usage_percent", "dynamo_component_total_blocks"),
		Absent: unpublished, NoValue: unpublished, Quality: metrics.Approximate, Why: "published by events, not at scrape time",
	},
	{
		To: metrics.KVCacheUsage, From: "dynamo_component_kvstats_gpu_cache_usage_percent",
		With: []string{"dynamo_component_kvstats_total_blocks"}, Is: scrape.Gauge,
		Fold:   unlessZero("dynamo_component_kvstats_gpu_cache_usage_percent", "dynamo_component_kvstats_total_blocks"),
		Absent: unpublished, NoValue: unpublished, Quality: metrics.Approximate, Why: "published by events, not at scrape time",
	},
	{To: metrics.EngineLoadTime, From: "dynamo_component_model_load_time_seconds", Is: scrape.Gauge, Absent: notLoaded},
	{
		To: metrics.KVTransferTime, From: "trtllm_kv_transfer_latency_seconds", Is: scrape.Histogram,
		Absent: "no TensorRT-LLM worker, or no transfer yet",
	},
	{To: metrics.KVTransferSize, From: "trtllm_kv_transfer_bytes", Is: scrape.Histogram, Absent: "no TensorRT-LLM worker, or no transfer yet"},
	{
		To: metrics.RequestDuration, From: "dynamo_component_request_duration_seconds", Is: scrape.Histogram,
		Where: is("dynamo_endpoint", "generate"), Absent: noFinish,
		Quality: metrics.Approximate, Why: "at the worker's endpoint: a prefill worker ends with the first token",
	},
	// These requests are refused before they reach the engine, so the engine does not count them. The engine counts later
	// failures, and dynamo_component_errors_total repeats most of these failures.
	{
		To: metrics.Requests, From: "dynamo_rejection_request_total", Is: scrape.Counter, Failures: SinceAnswer, Plus: true,
		Set:    outcome(metrics.OutcomeRejected),
		Absent: "needs --engine-request-limit",
	},
}

const unpublished = "the engine does not publish it"

// renameDynamo restores the default prefix of the frontend's families. Users can change the prefix
// (DYN_METRICS_PREFIX), and early releases used nv_llm_http_service_.
func renameDynamo(byName map[string]*scrape.Family) {
	prefix := ""
	for name := range byName {
		p, isLength := strings.CutSuffix(name, "model_context_length")
		if isLength && byName[p+"queued_requests"] != nil {
			prefix = p
		}
		if strings.HasPrefix(name, "nv_llm_http_service_") {
			prefix = "nv_llm_http_service_"
		}
	}
	if prefix != "" {
		for name, f := range byName {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				f.Name = "dynamo_frontend_" + rest
			}
		}
	}
}

// spellDynamo gives a model a single spelling. In counts of requests, the frontend writes the name in lower case. In
// series of registered workers, it writes the name as its owner did (metrics.rs of the HTTP service).
func spellDynamo(byName map[string]*scrape.Family) {
	const label = "model"
	spelling := map[string]string{}
	each := func(do func(s *scrape.Sample, model string)) {
		for _, f := range byName {
			if !strings.HasPrefix(f.Name, "dynamo_frontend_") {
				continue
			}
			for i := range f.Samples {
				do(&f.Samples[i], f.Samples[i].Labels.Get(label))
			}
		}
	}
	each(func(_ *scrape.Sample, model string) {
		if lower := strings.ToLower(model); model != lower {
			spelling[lower] = max(spelling[lower], model)
		}
	})
	if len(spelling) == 0 {
		return
	}
	each(func(s *scrape.Sample, model string) {
		if as := spelling[model]; as != "" {
			s.Labels = labels.NewBuilder(s.Labels).Set(label, as).Labels()
		}
	})
}
