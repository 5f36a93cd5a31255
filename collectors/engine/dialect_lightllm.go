package engine

import (
	"context"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// lightllm reads LightLLM's api_server. Its metrics page has no label for the model. Names of durations lack a unit,
// which is seconds, and two histograms have _bucket in their family name. If prefill and decode are separate servers,
// these servers and their master all count a request under the same names. Configure only one of them as a target.
var lightllm = Dialect{
	Runtime:   metrics.LightLLM,
	Source:    "lightllm/server/metrics/metrics.py, server/httpserver/manager.py, server/router/manager.py",
	API:       "chat",
	Recognise: func(p *scrape.Page) bool { return p.HasPrefix("lightllm_") },
	Server:    &Server{Lacks: "the metrics come from a process beside the server, where requests that clients leave never end"},
	Rows: []Row{
		{To: metrics.TimeToFirstToken, From: "lightllm_request_first_token_duration", Is: scrape.Histogram},
		{
			To: metrics.InterTokenLatency, From: "lightllm_batch_inference_duration_bucket", Is: scrape.Histogram, Where: is("method", "decode"),
			PerStep: true, Absent: "not observed in newer releases, or no request yet", Quality: metrics.Approximate,
			Why: "one observation per decode step of the batch, not per request; objectives count it for each request in the batch",
		},
		{
			To: metrics.TimePerOutputToken, From: "lightllm_request_mean_time_per_token_duration", Is: scrape.Histogram,
			Quality: metrics.Approximate, Why: "divided by all output tokens, the first one included",
		},
		{To: metrics.RequestDuration, From: "lightllm_request_inference_duration", Is: scrape.Histogram}, // from arrival, despite the name
		{
			To: metrics.QueueTime, From: "lightllm_request_queue_duration_bucket", Is: scrape.Histogram,
			Quality: metrics.Approximate,
			Why:     "from arrival at the HTTP server, tokenisation included; in newer releases only the wait of a decode server for room",
		},
		{
			To: metrics.PrefillTime, From: "lightllm_batch_inference_duration_bucket", Is: scrape.Histogram, Where: is("method", "prefill"),
			Absent: "not observed in newer releases, or no request yet", Quality: metrics.Approximate,
			Why: "one observation per prefill batch, not per request",
		},
		{To: metrics.RequestPromptTokens, From: "lightllm_request_input_length", Is: scrape.Histogram},
		{To: metrics.RequestGenerationTokens, From: "lightllm_request_generated_tokens", Is: scrape.Histogram},

		{
			To: metrics.RequestsRunning, From: "lightllm_batch_current_size", Is: scrape.Gauge,
			Quality: metrics.Approximate, Why: "set by the scheduler's loop, and to zero some time after the last request",
		},
		{
			To: metrics.RequestsWaiting, From: "lightllm_queue_size", Is: scrape.Gauge,
			Quality: metrics.Approximate, Why: "set by the scheduler's loop while requests run",
		},

		{
			To: metrics.PromptTokens, From: "lightllm_prompt_tokens_total", Is: scrape.Counter,
			Quality: metrics.Approximate, Why: "counted when a request ends well",
		},
		{
			To: metrics.PromptTokens, From: "lightllm_request_input_length", Is: scrape.Histogram, Part: partSum,
			Quality: metrics.Approximate, Why: "sum at arrival: requests that fail later are included",
		},
		{
			To: metrics.GenerationTokens, From: "lightllm_generation_tokens_total", Is: scrape.Counter, Counted: metrics.CountedEnd,
			Quality: metrics.Approximate, Why: "counted when a request ends well",
		},
		{
			To: metrics.GenerationTokens, From: "lightllm_request_generated_tokens", Is: scrape.Histogram, Counted: metrics.CountedEnd,
			Part:    partSum,
			Quality: metrics.Approximate, Why: "counted when a request ends well",
		},
		{To: metrics.Requests, From: "lightllm_request_success_total", Is: scrape.Counter, Set: outcome(metrics.OutcomeSuccess)},
		// These are answers with an error, from an invalid request to a busy server. Exceptions during token generation are
		// missing, so the metrics page does not show availability.
		{
			To: metrics.Requests, From: "lightllm_request_failure_total", Is: scrape.Counter, Plus: true, Set: outcome(metrics.OutcomeUnknown),
			Quality: metrics.Approximate, Why: "refused requests, for an unknown cause; requests that break off during generation are not counted",
		},

		{
			To: metrics.PrefixCacheQueryTokens, From: "lightllm_cache_length", With: []string{"lightllm_request_input_length"}, Is: scrape.Histogram,
			Fold:   histogramSumOf("lightllm_request_input_length"),
			Absent: "not in early releases", Quality: metrics.Approximate, Why: "sum of prompt lengths at arrival",
		},
		{
			To: metrics.PrefixCacheHitTokens, From: "lightllm_cache_length", Is: scrape.Histogram, Part: partSum,
			Absent: "not in early releases", Quality: metrics.Approximate,
			Why: "of successful requests; includes the caches in host memory and on disk, if they are enabled",
		},
	},
	Missing: map[*metrics.Family]string{
		metrics.KVCacheUsage:             "only an estimate of the most tokens that the batch will need is reported",
		metrics.Preemptions:              "only a gauge of paused requests is reported",
		metrics.SpecDecodeDraftTokens:    "only mean tokens per step of each request are reported",
		metrics.SpecDecodeAcceptedTokens: "only mean tokens per step of each request are reported",
	},
	Identify: func(ctx context.Context, get Getter) (id Identity, err error) {
		var answer struct {
			Name string `json:"model_name"`
		}
		err = get(ctx, "/get_model_name", &answer)
		id.Model = answer.Name
		return id, err
	},
}
