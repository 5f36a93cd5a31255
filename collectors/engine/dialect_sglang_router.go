package engine

import "github.com/llm-node-exporter/llm-node-exporter/metrics"

// smg reads SGLang's model gateway. Its smg_engine_* are copies, and where its page is joined with those of its workers
// so are their families.
var smg = Dialect{
	Runtime:   metrics.SMG,
	Source:    "lightseekorg/smg model_gateway/src/observability/metrics.rs",
	Recognise: prefix("smg_"),
	Labels:    []Carry{{From: "model", To: metrics.LabelModel}},
	Role:      metrics.GatewayRole,
	Rows:      smgRows,
	Missing:   others(noSource, smgRows),
}

var smgRows = []Row{
	{To: metrics.TimeToFirstToken, From: "smg_router_ttft_seconds", Is: Histogram, Since: "1.6.0", Absent: smgSummaries,
		Quality: metrics.Approximate, Why: "of workers behind gRPC; behind HTTP the first chunk of the answer's body"},
	{To: metrics.TimePerOutputToken, From: "smg_router_tpot_seconds", Is: Histogram, Since: "1.6.0", Absent: smgSummaries},
	{To: metrics.RequestDuration, From: "smg_router_request_duration_seconds", Is: Histogram, Absent: noFinish},
	{To: metrics.RequestsRunning, From: "smg_worker_requests_active", Is: Gauge, Absent: noRequest,
		Quality: metrics.Approximate, Why: "requests at all workers, those waiting there included"},
	{To: metrics.PromptTokens, From: "smg_router_tokens_total", Is: Counter, Where: is("token_type", "input"), Absent: smgGRPC,
		Quality: metrics.Approximate, Why: smgGRPC},
	{To: metrics.GenerationTokens, From: "smg_router_tokens_total", Is: Counter, Where: is("token_type", "output"), Counted: metrics.CountedEnd, Absent: smgGRPC,
		Quality: metrics.Approximate, Why: smgGRPC},
	{To: metrics.Requests, From: "smg_router_requests_total", Is: Counter, Set: outcome(metrics.OutcomeSuccess), Absent: noRequest,
		Quality: metrics.Approximate, Why: "counted before the answer; one that fails later counts again, as an error"},
	{To: metrics.Requests, From: "smg_router_request_errors_total", Is: Counter, Failures: SinceFailure, Plus: true, Absent: "no request has failed",
		Carry: []Carry{{From: "error_type", To: metrics.LabelOutcome, Map: values(map[string]string{
			"validation_error": string(metrics.OutcomeInvalid),
		}, string(metrics.OutcomeError))}}},
	{To: metrics.GatewayResponses, From: "smg_http_responses_total", Is: Counter, Absent: noFinish,
		Carry: []Carry{{From: "status_code", To: metrics.LabelCode, Map: statusCode}, {From: "path", To: metrics.LabelRoute}}},
	{To: metrics.GatewayRetries, From: "smg_worker_retries_total", Is: Counter, Absent: "no request was retried", Carry: []Carry{{From: "endpoint", To: metrics.LabelRoute}}},
	{To: metrics.GatewayRejections, From: "smg_http_rate_limit_total", Is: Counter, Where: is("result", "rejected"), Set: rejected(metrics.RateLimited), Absent: "no request was refused"},
	{To: metrics.GatewayRejections, From: "smg_router_request_errors_total", Is: Counter, Where: is("error_type", "no_workers"), Plus: true, Set: rejected(metrics.NoEndpoint),
		Absent: "no request was refused", Carry: []Carry{{From: "endpoint", To: metrics.LabelRoute}}},
}

const (
	smgSummaries = "a summary before 1.6, or no request has finished yet"
	smgGRPC      = "of streams whose workers speak gRPC"
)

// sglangRouter reads the router that SGLang's model gateway replaced.
var sglangRouter = Dialect{
	Runtime:   metrics.SGLangRouter,
	Source:    "sglang sgl-router/src/metrics.rs",
	Recognise: prefix("sgl_"),
	Labels:    []Carry{{From: "model_id", To: metrics.LabelModel}},
	Role:      metrics.GatewayRole,
	Rows:      sglangRouterRows,
	Missing:   others(noSource, sglangRouterRows),
}

var sglangRouterRows = []Row{
	{To: metrics.RequestDuration, From: "sgl_router_request_duration_seconds", Is: Histogram, Absent: noFinish},
	{To: metrics.RequestsRunning, From: "sgl_router_running_requests", Is: Gauge, Absent: noRequest,
		Quality: metrics.Approximate, Why: "requests at all workers, those waiting there included"},
	{To: metrics.Requests, From: "sgl_router_requests_total", Is: Counter, Set: outcome(metrics.OutcomeSuccess), Absent: noRequest,
		Quality: metrics.Approximate, Why: "counted before the answer; one that fails later counts again, as an error"},
	{To: metrics.Requests, From: "sgl_router_request_errors_total", Is: Counter, Failures: SinceFailure, Plus: true, Set: outcome(metrics.OutcomeError), Absent: "no request has failed"},
	{To: metrics.GatewayRetries, From: "sgl_router_retries_total", Is: Counter, Absent: "no request was retried", Carry: []Carry{{From: "route", To: metrics.LabelRoute}}},
}
