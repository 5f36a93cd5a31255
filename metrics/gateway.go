package metrics

// These labels are on gateways' series. Clients and configurations choose the values, so only the first values on each
// metrics page are kept. All other values count as other.
const (
	LabelCode     = "code"     // HTTP status that the client got, or "other"
	LabelRoute    = "route"    // route, pool, service or path of the request
	LabelTenant   = "tenant"   // sender of the request, as the gateway names it: a team or a fairness ID
	LabelPriority = "priority" // priority of the request
)

// Only gateways, routers and proxies in front of engines report these quantities. A gateway sees the clients' view,
// such as requests that never reach an engine, and failed attempts before a successful attempt.
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

// These are reasons why a gateway sends no requests to a worker. They are values of the reason label.
const (
	CircuitOpen     = "circuit_open"
	Cooldown        = "cooldown"
	UnhealthyWorker = "unhealthy"
)

// Rejection is the reason why a gateway refused a request. It is a value of the reason label.
type Rejection string

// The reasons.
const (
	RateLimited      Rejection = "rate_limited" // the client, team or route sends more than allowed
	RejectedCapacity Rejection = "capacity"     // the queue is full, or a circuit breaker is open
	RejectedTimeout  Rejection = "timeout"      // the request waited in the gateway's queue for too long
	NoEndpoint       Rejection = "no_endpoint"  // there is no engine that could serve the request
	RejectedOther    Rejection = "other"
)
