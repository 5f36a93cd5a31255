package engine

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// epp reads the endpoint picker of the Gateway API Inference Extension, and of llm-d before its router 0.9. Its names
// begin with inference_model_ up to 1.0, and with inference_objective_ in later versions. Its numbers about its pool
// are averages of the engines' own gauges.
var epp = Dialect{
	Runtime: metrics.EPP,
	Source:  "gateway-api-inference-extension pkg/epp/metrics/metrics.go",
	Recognise: anyOf("inference_objective_request_total", "inference_model_request_total", "inference_pool_ready_pods",
		"inference_pool_average_kv_cache_utilization"),
	Labels:  eppLabels,
	Role:    metrics.GatewayRole,
	Ready:   "inference_pool_ready_pods",
	Members: eppMembers,
	Serves: []Shown{{Family: "inference_objective_output_tokens", Label: "model_name"}, {
		Family: "inference_model_output_tokens",
		Label:  "model_name",
	}},
	Rows:    eppRows,
	Missing: others(noSource, eppRows),
}

// llmdRouter reads llm-d's router since 0.9. The router also writes its numbers under epp's names, which are not read.
var llmdRouter = Dialect{
	Runtime:   metrics.LLMDRouter,
	Source:    "llm-d-router pkg/epp/metrics",
	Recognise: anyOf("llm_d_epp_request_total", "llm_d_epp_ready_endpoints", "llm_d_epp_average_kv_cache_utilization"),
	Labels:    eppLabels,
	Role:      metrics.GatewayRole,
	Ready:     "llm_d_epp_ready_endpoints",
	Members:   eppMembers,
	Serves:    []Shown{{Family: "llm_d_epp_request_output_tokens", Label: "model_name"}},
	Rows:      llmdRouterRows,
	Missing:   others(noSource, llmdRouterRows),
}

// eppMembers has a series for each endpoint of the pool. Endpoints with fresh numbers are ready. Requests also
// reach endpoints with stale numbers, so only a pool without endpoints is an outage.
const eppMembers = "inference_pool_per_pod_queue_size"

var eppLabels = []metrics.Carry{
	{From: "model_name", To: metrics.LabelModel}, // name that the client requested; if the name is rewritten, the next label counts
	{From: "target_model_name", To: metrics.LabelModel},
}

var eppRows = slices.Concat(
	eppRequests("inference_objective_", "running_requests", "input_tokens", "output_tokens"),
	eppCached("inference_objective_prompt_cached_tokens", "inference_objective_input_tokens"),
	eppRequests("inference_model_", "running_requests", "input_tokens", "output_tokens"),
	eppQueue("inference_extension_flow_control_"),
	[]Row{eppUnplaced("inference_extension_")},
	eppEndpoints("inference_pool_ready_pods"),
)

var llmdRouterRows = slices.Concat(
	[]Row{
		{
			To: metrics.TimeToFirstToken, From: "llm_d_epp_request_ttft_seconds", Is: scrape.Histogram, Where: is("streaming", "true"),
			Absent: noStream, Quality: metrics.Approximate, Why: "first chunk of the answer's body",
		},
		{To: metrics.TimePerOutputToken, From: "llm_d_epp_request_streaming_tpot_seconds", Is: scrape.Histogram, Absent: noStream},
		{
			To: metrics.InterTokenLatency, From: "llm_d_epp_request_streaming_itl_seconds", Is: scrape.Histogram,
			Absent: noStream, Quality: metrics.Approximate, Why: "between chunks of the answer's body",
		},
	},
	eppRequests("llm_d_epp_", "request_running", "request_input_tokens", "request_output_tokens"),
	eppCached("llm_d_epp_request_cached_tokens", "llm_d_epp_request_input_tokens"),
	eppQueue("llm_d_epp_flow_control_"),
	[]Row{
		{
			To: metrics.Requests, From: "llm_d_epp_flow_control_requests_total", Is: scrape.Counter, Where: eppRefused, Failures: SinceAnswer,
			Plus: true,
			Set:  outcome(metrics.OutcomeRejected), Absent: eppFlowControl,
		},
		{
			To: metrics.GatewayRejections, From: "llm_d_epp_flow_control_requests_total", Is: scrape.Counter, Where: eppRefused,
			Absent: eppFlowControl,
			Carry: []metrics.Carry{
				{From: "priority", To: metrics.LabelPriority},
				{From: "inference_pool", To: metrics.LabelRoute},
				{From: "outcome", To: metrics.LabelReason, Map: values(map[string]string{
					"RejectedCapacity":    string(metrics.RejectedCapacity),
					"RejectedNoEndpoints": string(metrics.NoEndpoint),
					"EvictedNoEndpoints":  string(metrics.NoEndpoint),
					"EvictedTTL":          string(metrics.RejectedTimeout),
				}, string(metrics.RejectedOther))},
			},
		},
		eppUnplaced("llm_d_epp_"),
	},
	eppEndpoints("llm_d_epp_ready_endpoints"),
)

const eppFlowControl = "the flow control feature is off"

// eppRefused leaves out forwarded requests, and requests whose client has left.
var eppRefused = matching(labels.MatchRegexp, "outcome", "Rejected.*|Evicted(TTL|NoEndpoints|Other)")

// eppRequests returns the rows about requests. Three groups of versions use three prefixes for the same families, and
// differ in some names.
func eppRequests(prefix, running, input, output string) []Row {
	const ofUsage = "only answers that report their usage; streams report it only if the client requests it"
	sumOfUsage := Row{Is: scrape.Histogram, Part: partSum, Absent: noUsage, Quality: metrics.Approximate, Why: ofUsage}
	prompt, generated := sumOfUsage, sumOfUsage
	prompt.To, prompt.From = metrics.PromptTokens, prefix+input
	generated.To, generated.From, generated.Counted = metrics.GenerationTokens, prefix+output, metrics.CountedEnd
	return []Row{
		{To: metrics.RequestDuration, From: prefix + "request_duration_seconds", Is: scrape.Histogram, Absent: noFinish},
		{
			To: metrics.RequestPromptTokens, From: prefix + input, Is: scrape.Histogram, Absent: noUsage, Quality: metrics.Approximate,
			Why: ofUsage,
		},
		{
			To: metrics.RequestGenerationTokens, From: prefix + output, Is: scrape.Histogram, Absent: noUsage, Quality: metrics.Approximate,
			Why: ofUsage,
		},
		prompt, generated,
		{To: metrics.RequestsRunning, From: prefix + running, Is: scrape.Gauge, Absent: noRequest},
		{
			To: metrics.Requests, From: prefix + "request_duration_seconds", Is: scrape.Histogram, Part: partCount,
			Set: outcome(metrics.OutcomeSuccess), Absent: noFinish,
			Tally: &Tally{
				Of: []Count{{
					From: prefix + "request_error_total", Is: scrape.Counter, Where: is("error_code", "ModelServerError"),
					Optional: true,
				}},
				Step: func(rose []float64) float64 { return rose[0] - rose[1] },
			},
			Quality: metrics.Derived, Why: "complete answers, minus those with an error of the engine",
		},
		{
			To: metrics.Requests, From: prefix + "request_error_total", Is: scrape.Counter, Failures: SinceFailure, Plus: true,
			Absent: "no request has failed",
			Carry: []metrics.Carry{{From: "error_code", To: metrics.LabelOutcome, Outcomes: metrics.Outcomes{
				"BadRequest":         metrics.OutcomeInvalid,
				"Unauthorized":       metrics.OutcomeInvalid,
				"Forbidden":          metrics.OutcomeInvalid,
				"NotFound":           metrics.OutcomeInvalid,
				"PreconditionFailed": metrics.OutcomeInvalid,
				"ResourceExhausted":  metrics.OutcomeRejected,
				"Internal":           metrics.OutcomeError,
				"ServiceUnavailable": metrics.OutcomeError,
				"ModelServerError":   metrics.OutcomeError,
				"Unknown":            metrics.OutcomeError, // the client gets a 500
			}}},
			Quality: metrics.Approximate, Why: "an engine's answer other than 200 is an error, even if the request was wrong",
		},
	}
}

// eppEndpoints returns the rows of a pool's endpoints. All endpoints get requests, even if their numbers are stale.
func eppEndpoints(ready string) []Row {
	pool := []metrics.Carry{{From: "name", To: metrics.LabelRoute}}
	return []Row{
		{
			To: metrics.GatewayWorkers, From: eppMembers, Is: scrape.Gauge, Carry: pool, Absent: "no endpoint, or not in this release",
			Fold: func(in []Member) (float64, bool) { return float64(len(in)), true }, Quality: metrics.Derived,
			Why: "count of the endpoints that have a queue",
		},
		{To: metrics.GatewayWorkers, From: ready, Is: scrape.Gauge, Carry: pool, Absent: "no pool is configured"},
	}
}

// eppQueue returns the rows about the picker's own queue.
func eppQueue(prefix string) []Row {
	return []Row{
		{To: metrics.RequestsWaiting, From: prefix + "queue_size", Is: scrape.Gauge, Absent: eppFlowControl},
		{
			To: metrics.QueueTime, From: prefix + "request_queue_duration_seconds", Is: scrape.Histogram, Where: is("outcome", "Dispatched"),
			Absent: eppFlowControl,
		},
	}
}

// eppCached returns the rows about prompt tokens that engines found in their caches.
func eppCached(cached, input string) []Row {
	const ofUsage = "only answers that report their usage"
	return []Row{
		{
			To: metrics.PrefixCacheQueryTokens, From: cached, With: []string{input}, Is: scrape.Histogram, Fold: histogramSumOf(input),
			Absent: noUsage, Quality: metrics.Approximate, Why: ofUsage + ": all their prompt tokens",
		},
		{
			To: metrics.PrefixCacheHitTokens, From: cached, Is: scrape.Histogram, Part: partSum, Absent: noUsage, Quality: metrics.Approximate,
			Why: ofUsage,
		},
	}
}

// eppUnplaced returns the row of requests for which scheduling found no endpoint. Flow control refuses other requests
// before scheduling.
func eppUnplaced(prefix string) Row {
	return Row{
		To: metrics.GatewayRejections, From: prefix + "scheduler_attempts_total", Is: scrape.Counter,
		Where: is("status", "failure"), Plus: true,
		Carry: []metrics.Carry{{From: "target_model_name", To: metrics.LabelModel}}, Set: rejected(metrics.NoEndpoint),
		Absent: "no request was refused",
	}
}
