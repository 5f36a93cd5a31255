package engine

import "github.com/llm-node-exporter/llm-node-exporter/metrics"

// productionStackRouter reads the router of vLLM's production stack. Its families have vLLM's prefix; those without a
// model are copies of the engines' gauges, or averages over a window of its own.
var productionStackRouter = Dialect{
	Runtime:   metrics.ProductionStack,
	Source:    "production-stack src/vllm_router/services/metrics_service/__init__.py",
	Recognise: productionStack,
	Labels:    []Carry{{From: "model", To: metrics.LabelModel}},
	Role:      metrics.GatewayRole,
	Rows:      productionStackRows,
	Missing:   others(noSource, productionStackRows),
}

var productionStackRows = []Row{
	{To: metrics.RequestDuration, From: "vllm:request_latency_seconds", Is: Histogram, Absent: productionStackEarly},
	{To: metrics.PromptTokens, From: "vllm:input_tokens_total", Is: Counter, Absent: productionStackEarly},
	{To: metrics.GenerationTokens, From: "vllm:output_tokens_total", Is: Counter, Counted: metrics.CountedEnd, Absent: productionStackEarly},
	{To: metrics.Requests, From: "vllm:num_incoming_requests_total", Is: Counter, Set: outcome(metrics.OutcomeSuccess), Absent: productionStackEarly,
		Quality: metrics.Approximate, Why: "counted on arrival; one that fails later counts again, as an error"},
	{To: metrics.Requests, From: "vllm:request_errors_total", Is: Counter, Failures: SinceFailure, Plus: true, Set: outcome(metrics.OutcomeError), Absent: "no request has failed"},
}

const productionStackEarly = "not in early releases, or no request yet"

// productionStack recognises the router of vLLM's production stack. vLLM itself never labels its gauges
// with the server they came from.
func productionStack(p *Page) bool {
	servers := p.LabelValues("vllm:num_requests_running", "server")
	return len(servers) > 0 && !servers[""] ||
		anyOf("vllm:current_qps", "vllm:avg_itl", "vllm:healthy_pods_total", "vllm:num_incoming_requests_total")(p)
}
