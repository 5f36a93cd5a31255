package engine

import (
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// envoyAIGateway reads Envoy AI Gateway's external processor. Other servers also use OpenTelemetry's GenAI names, but
// with another scope. Statuses, retries and limits are on Envoy's own metrics page.
var envoyAIGateway = Dialect{
	Runtime:   metrics.EnvoyAI,
	Source:    "envoyproxy/ai-gateway internal/metrics/{genai,metrics_impl}.go",
	Recognise: envoyAI,
	Restore:   nameFailures,
	Labels: []metrics.Carry{ // the last label with a known name counts
		{From: "gen_ai_original_model", To: metrics.LabelModel, Map: without("unknown")}, // name that the client requested
		{From: "gen_ai_request_model", To: metrics.LabelModel, Map: without("unknown")},  // name after an override
		{From: "gen_ai_response_model", To: metrics.LabelModel, Map: without("unknown")}, // name that the engine reports
	},
	Role:    metrics.GatewayRole,
	Rows:    envoyAIRows,
	Missing: others(noSource, envoyAIRows),
}

var envoyAIRows = []Row{
	{
		To: metrics.TimeToFirstToken, From: "gen_ai_server_time_to_first_token_seconds", Is: scrape.Histogram,
		Absent: noStream, Quality: metrics.Approximate, Why: "first chunk of the answer's body",
	},
	{To: metrics.TimePerOutputToken, From: "gen_ai_server_time_per_output_token_seconds", Is: scrape.Histogram, Absent: noStream},
	{To: metrics.RequestDuration, From: "gen_ai_server_request_duration_seconds", Is: scrape.Histogram, Absent: noFinish},
	{
		To: metrics.PromptTokens, From: "gen_ai_client_token_usage", Is: scrape.Histogram, Where: is("gen_ai_token_type", "input"), Part: partSum,
		Absent: noUsage, Quality: metrics.Derived, Why: "sum of the histogram",
	},
	{
		To: metrics.PromptTokens, From: "gen_ai_client_token_usage_token", Is: scrape.Histogram, Until: "0.4", Where: is("gen_ai_token_type",
			"input"), Part: partSum,
		Absent: noUsage, Quality: metrics.Derived, Why: "sum of the histogram",
	},
	{
		To: metrics.GenerationTokens, From: "gen_ai_client_token_usage", Is: scrape.Histogram, Where: is("gen_ai_token_type", "output"),
		Part: partSum, Counted: metrics.CountedEnd,
		Absent: noUsage, Quality: metrics.Derived, Why: "sum of the histogram",
	},
	{
		To: metrics.GenerationTokens, From: "gen_ai_client_token_usage_token", Is: scrape.Histogram, Until: "0.4",
		Where: is("gen_ai_token_type", "output"), Part: partSum, Counted: metrics.CountedEnd,
		Absent: noUsage, Quality: metrics.Derived, Why: "sum of the histogram",
	},
	{
		To: metrics.Requests, From: "gen_ai_server_request_duration_seconds", Is: scrape.Histogram, Where: is("error_type", ""), Part: partCount,
		Set: outcome(metrics.OutcomeSuccess), Absent: noFinish, Quality: metrics.Derived, Why: "count of the histogram",
	},
	{
		To: metrics.Requests, From: "gen_ai_server_request_duration_seconds", Is: scrape.Histogram, Where: matching(labels.MatchNotEqual,
			"error_type", ""), Part: partCount, Plus: true,
		Failures: SinceAnswer, Set: outcome(metrics.OutcomeError), Absent: "no request has failed", Quality: metrics.Approximate,
		Why: "failed requests of any kind: the metrics do not distinguish them",
	},
}

// nameFailures gives unanswered requests the model name that engines use for answered requests. Otherwise a model's
// successes and failures would have different names.
func nameFailures(byName map[string]*scrape.Family) {
	const asked, answers, unknown = "gen_ai_request_model", "gen_ai_response_model", "unknown"
	const unanswered = "unanswered" // distinguishes this series from the series of answered requests
	each := func(do func(s *scrape.Sample, asked, answer string)) {
		for _, f := range byName {
			if strings.HasPrefix(f.Name, "gen_ai_server_") {
				for i := range f.Samples {
					do(&f.Samples[i], f.Samples[i].Labels.Get(asked), f.Samples[i].Labels.Get(answers))
				}
			}
		}
	}
	name := map[string]string{}
	each(func(_ *scrape.Sample, asked, answer string) {
		if answer != unknown {
			name[asked] = max(name[asked], answer)
		}
	})
	each(func(s *scrape.Sample, asked, answer string) {
		if answer == unknown && name[asked] != "" {
			s.Labels = labels.NewBuilder(s.Labels).Set(answers, name[asked]).Set(unanswered, "true").Labels()
		}
	})
}
