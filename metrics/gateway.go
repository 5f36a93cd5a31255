package metrics

// Labels of gateways' series. Clients and configurations choose the values, so only the first values of each are kept
// per metrics page; all others count as other.
const (
	LabelCode     = "code"     // HTTP status that the client got, or "other"
	LabelRoute    = "route"    // route, pool, service or path of the request
	LabelTenant   = "tenant"   // who sent the request, as the gateway names them: team, fairness ID
	LabelPriority = "priority" // priority of the request
)

// Quantities that only gateways, routers and proxies in front of engines report. A gateway sees the clients' view:
// requests that never reach an engine, and failed attempts before a successful one.
var (
	GatewayResponses = Gateway.counter("llm_gateway_responses_total",
		"Answers of the gateway, by HTTP status. A stream that fails after its start counts as 200.",
		EngineLabels, with(LabelCode, LabelRoute, LabelTenant, LabelPriority)).experimental()
	GatewayRetries = Gateway.counter("llm_gateway_retries_total",
		"Retries, on the same engine or another, of requests that failed on an engine or that the engine did not accept.",
		EngineLabels, with(LabelRoute, LabelTenant, LabelPriority)).experimental()
	GatewayRejections = Gateway.counter("llm_gateway_rejections_total",
		"Requests that the gateway refused without forwarding them to an engine, by reason: rate_limited, capacity, timeout (in its queue), "+
			"no_endpoint or other.",
		EngineLabels, with(LabelReason, LabelRoute, LabelTenant, LabelPriority)).experimental()
	GatewayEngineFailures = Gateway.counter("llm_gateway_engine_failures_total",
		"Answers with status 5xx from engines to the gateway. Engines that did not answer are not counted.",
		EngineLabels).experimental()
	GatewayWorkers = Gateway.gauge(Sum, "llm_gateway_workers",
		"Workers, endpoints or deployments behind the gateway. Workers without a reason may get requests. The others get no requests, because "+
			"of circuit_open (requests to the worker failed), cooldown (requests failed, and the worker is skipped for a limited time) or "+
			"unhealthy (the worker fails the gateway's health checks).",
		EngineLabels, with(LabelReason, LabelRoute)).experimental()
)

// Reasons why a gateway sends no requests to a worker, as in the reason label.
const (
	CircuitOpen     = "circuit_open"
	Cooldown        = "cooldown"
	UnhealthyWorker = "unhealthy"
)

// Rejection names why a gateway refused a request, as in the reason label.
type Rejection string

// The reasons.
const (
	RateLimited      Rejection = "rate_limited" // more than the client, team or route may send
	RejectedCapacity Rejection = "capacity"     // the queue is full, or a circuit breaker is open
	RejectedTimeout  Rejection = "timeout"      // waited in the gateway's queue for too long
	NoEndpoint       Rejection = "no_endpoint"  // no engine that could serve it
	RejectedOther    Rejection = "other"
)
