package engine

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// productionStackRouter reads the router of vLLM's production stack. Its families have vLLM's prefix. Families
// without a model are copies of the engines' gauges, or averages over the router's own window.
var productionStackRouter = Dialect{
	Runtime:   metrics.ProductionStack,
	Source:    "production-stack src/vllm_router/services/metrics_service/__init__.py",
	Recognise: productionStack,
	Labels:    []metrics.Carry{{From: "model", To: metrics.LabelModel}},
	Role:      metrics.GatewayRole,
	Rows:      productionStackRows,
	Missing:   others(noSource, productionStackRows),
}

var productionStackRows = slices.Concat(
	[]Row{
		{To: metrics.RequestDuration, From: "vllm:request_latency_seconds", Is: scrape.Histogram, Absent: productionStackEarly},
		{To: metrics.GatewayWorkers, From: "vllm:healthy_pods_total", Is: scrape.Gauge, Absent: "no engine has been found yet"},
		{To: metrics.PromptTokens, From: "vllm:input_tokens_total", Is: scrape.Counter, Absent: productionStackEarly},
		{
			To: metrics.GenerationTokens, From: "vllm:output_tokens_total", Is: scrape.Counter, Counted: metrics.CountedEnd,
			Absent: productionStackEarly,
		},
	},
	byStatus(Row{
		From: "vllm:request_latency_seconds", Is: scrape.Histogram, Part: partCount, Quality: metrics.Derived,
		Why: "count of the histogram",
	}, "status", codeOutcome),
	[]Row{{
		To: metrics.Requests, From: "vllm:request_errors_total", Is: scrape.Counter, Where: matching(labels.MatchNotRegexp,
			"error_type", "http_.*"), Failures: SinceFailure, Plus: true,
		Set: outcome(metrics.OutcomeError), Absent: "no request has failed", Quality: metrics.Approximate,
		Why: "requests without an answer; the histogram has the others",
	}},
)

const productionStackEarly = "not in early releases, or no request yet"

// productionStack recognises the router of vLLM's production stack. Only this router labels vLLM's gauges with the
// server that they come from.
func productionStack(p *scrape.Page) bool {
	servers := p.LabelValues("vllm:num_requests_running", "server")
	return len(servers) > 0 && !servers[""] ||
		anyOf("vllm:current_qps", "vllm:avg_itl", "vllm:healthy_pods_total", "vllm:num_incoming_requests_total")(p)
}
