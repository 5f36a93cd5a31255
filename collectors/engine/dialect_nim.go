package engine

import (
	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// nim reads NVIDIA NIM for LLMs. It has the metrics of vLLM V0 without their prefix. trtllm-serve 1.1 has some of the
// same names, but with the label engine_type.
var nim = Dialect{
	Runtime:   metrics.NIM,
	Source:    "NVIDIA NIM for LLMs documentation, observability",
	API:       "chat",
	Paths:     []string{"/v1/metrics", scrape.PlainPath}, // PlainPath is for releases before 1.0
	Recognise: func(p *scrape.Page) bool { return p.Has("num_request_max") || p.Has("request_finish_total") },
	Labels:    []metrics.Carry{{From: "model_name", To: metrics.LabelModel}},
	// The process that serves the API writes the metrics page, so its open files include the connections.
	Server: &Server{Files: Source{Name: "process_open_fds", Is: scrape.Gauge}},
	Rows: []Row{
		{To: metrics.TimeToFirstToken, From: "time_to_first_token_seconds", Is: scrape.Histogram},
		{
			To: metrics.InterTokenLatency, From: "time_per_output_token_seconds", Is: scrape.Histogram,
			Quality: metrics.Approximate, Why: "vLLM's old name for the time between engine steps",
		},
		{To: metrics.RequestDuration, From: "e2e_request_latency_seconds", Is: scrape.Histogram},
		{To: metrics.RequestPromptTokens, From: "request_prompt_tokens", Is: scrape.Histogram},
		{To: metrics.RequestGenerationTokens, From: "request_generation_tokens", Is: scrape.Histogram},
		{To: metrics.RequestsRunning, From: "num_requests_running", Is: scrape.Gauge},
		{To: metrics.RequestsWaiting, From: "num_requests_waiting", Is: scrape.Gauge},
		{To: metrics.KVCacheUsage, From: "gpu_cache_usage_perc", Is: scrape.Gauge},
		{To: metrics.PromptTokens, From: "prompt_tokens_total", Is: scrape.Counter},
		{To: metrics.GenerationTokens, From: "generation_tokens_total", Is: scrape.Counter, Counted: metrics.CountedStep},
		{
			To: metrics.Requests, From: "request_finish_total", Is: scrape.Counter, Absent: noFinish,
			Carry: []metrics.Carry{{From: "finished_reason", To: metrics.LabelOutcome, Outcomes: finishReasons}},
		},
		{To: metrics.Requests, From: "request_success_total", Is: scrape.Counter, Set: outcome(metrics.OutcomeSuccess), Absent: noFinish},
		{
			To: metrics.Requests, From: "request_failure_total", Is: scrape.Counter, Failures: SinceFailure, Plus: true,
			Set: outcome(metrics.OutcomeError), Absent: "no request has failed",
		},
		{To: metrics.RequestsRunningLimit, From: "num_request_max", Is: scrape.Gauge},
	},
	Settings: []Told{
		{To: metrics.SettingModel, From: "/v1/metadata", At: "modelInfo.0.modelUrl"},
		{To: metrics.SettingVersion, From: "/v1/metadata", At: "version"},
	},
	Identify: openAI,
}
