package engine

import (
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// litellm reads LiteLLM's proxy. Its configuration chooses labels, so that any may be missing, and what it does not know
// is the string None. Names without a unit are in seconds. Its litellm_deployment_* count attempts, not requests.
var litellm = Dialect{
	Runtime:   metrics.LiteLLM,
	Source:    "litellm types/integrations/prometheus.py, LiteLLM's monitoring documentation",
	Recognise: prefix("litellm_"),
	Labels: []Carry{
		{From: "model", To: metrics.LabelModel, Map: without("None")}, // at the provider; where the client's name is known, that stands
		{From: "requested_model", To: metrics.LabelModel, Map: without("None")},
	},
	Role:    metrics.GatewayRole,
	Rows:    litellmRows,
	Missing: others(noSource, litellmRows),
}

var (
	litellmTeam  = Carry{From: "team", To: metrics.LabelTenant, Map: without("None")}
	litellmRoute = Carry{From: "route", To: metrics.LabelRoute, Map: without("None")}
)

var litellmRows = slices.Concat(
	[]Row{
		{To: metrics.TimeToFirstToken, From: "litellm_llm_api_time_to_first_token_metric", Is: Histogram,
			Absent: noStream, Quality: metrics.Approximate, Why: "from the call to the provider, without the proxy's own time"},
		{To: metrics.RequestDuration, From: "litellm_request_total_latency_metric", Is: Histogram, Absent: noFinish},
		{To: metrics.QueueTime, From: "litellm_request_queue_time_seconds", Is: Histogram, Absent: "not in early releases, or no request has finished yet"},
		{To: metrics.RequestsRunning, From: "litellm_in_flight_requests", Is: Gauge,
			Absent: "not in early releases", Quality: metrics.Approximate, Why: "HTTP requests of all models, those for the proxy itself included"},
		{To: metrics.RequestsWaiting, From: "litellm_admission_queued_requests", Is: Gauge, Absent: litellmAdmission},
		{To: metrics.PromptTokens, From: "litellm_input_tokens_metric_total", Is: Counter, Absent: noFinish},
		{To: metrics.GenerationTokens, From: "litellm_output_tokens_metric_total", Is: Counter, Counted: metrics.CountedEnd, Absent: noFinish},
	},
	byStatus(Row{From: "litellm_proxy_total_requests_metric_total"}, "status_code", litellmOutcome, litellmRoute, litellmTeam),
	[]Row{
		{To: metrics.GatewayRetries, From: "litellm_deployment_successful_fallbacks_total", Is: Counter, Carry: []Carry{litellmTeam},
			Absent: "no request has fallen back", Quality: metrics.Approximate, Why: "fallbacks to another model, not retries of the same one"},
		{To: metrics.GatewayRetries, From: "litellm_deployment_failed_fallbacks_total", Is: Counter, Carry: []Carry{litellmTeam}, Plus: true,
			Absent: "no fallback has failed", Quality: metrics.Approximate, Why: "fallbacks to another model, not retries of the same one"},
		{To: metrics.GatewayRejections, From: "litellm_admission_rejected_requests_total", Is: Counter, Absent: litellmAdmission,
			Carry: []Carry{{From: "reason", To: metrics.LabelReason, Map: values(map[string]string{
				"queue_full":    string(metrics.RejectedCapacity),
				"queue_timeout": string(metrics.RejectedTimeout),
			}, string(metrics.RejectedOther))}}},
		{To: metrics.GatewayRejections, From: "litellm_proxy_total_requests_metric_total", Is: Counter, Where: is("status_code", "429"), Plus: true,
			Set: rejected(metrics.RateLimited), Carry: []Carry{litellmRoute, litellmTeam},
			Absent: noFinish, Quality: metrics.Approximate, Why: "answers 429, those of a provider included"},
	},
)

// litellmOutcome is codeOutcome for LiteLLM, which answers 408 when a provider does not answer in time
// (litellm.exceptions.Timeout).
func litellmOutcome(code string) string {
	if code == "408" {
		return string(metrics.OutcomeError)
	}
	return codeOutcome(code)
}

const litellmAdmission = "admission control is off"
