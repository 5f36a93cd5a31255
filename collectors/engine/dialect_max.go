package engine

import (
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// modularMAX reads Modular's MAX, which serves its metrics page at a separate port (8001). Only the family of loaded
// pipelines names a model.
var modularMAX = Dialect{
	Runtime:   metrics.MAX,
	Source:    "modular max/python/max/serve/telemetry/metrics.py, serve/router/openai_routes.py, exported by OpenTelemetry for Python",
	Recognise: prefix("maxserve_"),
	Restore:   nameMAX,
	Labels:    []metrics.Carry{{From: "model", To: metrics.LabelModel}},
	// The API server counts a request from its arrival to the end of its answer. The scheduler is another process, so the
	// count continues while the scheduler hangs.
	Server: &Server{Active: Source{Name: "maxserve_num_requests_running", Is: scrape.Gauge}},
	Rows: []Row{
		{
			To: metrics.TimeToFirstToken, From: "maxserve_time_to_first_token_milliseconds", Is: scrape.Histogram, Scale: metrics.Millis,
			Absent: noRequest,
		},
		{To: metrics.InterTokenLatency, From: "maxserve_itl_milliseconds", Is: scrape.Histogram, Scale: metrics.Millis, Absent: noDecode},
		{
			To: metrics.TimePerOutputToken, From: "maxserve_time_per_output_token_milliseconds", Is: scrape.Histogram, Scale: metrics.Millis,
			Absent: noDecode,
		},
		{
			To: metrics.RequestDuration, From: "maxserve_request_time_milliseconds", Is: scrape.Histogram, Where: asks("path"),
			Scale: metrics.Millis, Absent: noFinish,
		},
		{To: metrics.RequestPromptTokens, From: "maxserve_input_tokens_per_request_tokens", Is: scrape.Histogram, Absent: noFinish},
		{To: metrics.RequestGenerationTokens, From: "maxserve_output_tokens_per_request_tokens", Is: scrape.Histogram, Absent: noFinish},
		{
			To: metrics.RequestsRunning, From: "maxserve_num_requests_running", Is: scrape.Gauge, Absent: noRequest,
			Quality: metrics.Approximate, Why: "HTTP requests in progress, including those that wait",
		},
		{To: metrics.RequestsWaiting, From: "maxserve_num_requests_queued", Is: scrape.Gauge, Absent: noRequest},
		{
			To: metrics.RequestsWaiting, From: "maxserve_num_requests_awaiting_admission", Is: scrape.Gauge, Plus: true,
			Absent: "not in early releases, or no request yet",
		},
		{
			To: metrics.KVCacheUsage, From: "maxserve_cache_num_used_blocks", With: []string{"maxserve_cache_num_total_blocks"},
			Is: scrape.Gauge, Absent: noRequest,
			Fold: ratio("maxserve_cache_num_used_blocks", "maxserve_cache_num_total_blocks"), Quality: metrics.Derived, Why: "used over all blocks",
		},
		{To: metrics.PromptTokens, From: "maxserve_num_input_tokens_total", Is: scrape.Counter, Absent: noFinish},
		{
			To: metrics.GenerationTokens, From: "maxserve_num_output_tokens_total", Is: scrape.Counter, Counted: metrics.CountedEnd,
			Absent: noFinish,
		},
		{
			To: metrics.Requests, From: "maxserve_request_count_total", Is: scrape.Counter, Where: asks("path"), Failures: SinceAnswer,
			Absent: noFinish,
			Carry:  []metrics.Carry{{From: "code", To: metrics.LabelOutcome, Map: codeOutcome}}, Quality: metrics.Approximate,
			Why: "by the HTTP status",
		},
		{To: metrics.Preemptions, From: "maxserve_cache_preemption_count_total", Is: scrape.Counter, Absent: "no request was preempted"},
		{
			To: metrics.PrefixCacheQueryTokens, From: "maxserve_cache_hits_tokens_total", With: []string{"maxserve_cache_misses_tokens_total"},
			Is: scrape.Counter, Absent: noPrefill,
			Fold: sum("maxserve_cache_hits_tokens_total", "maxserve_cache_misses_tokens_total"), Quality: metrics.Derived, Why: "hits and misses",
		},
		{To: metrics.PrefixCacheHitTokens, From: "maxserve_cache_hits_tokens_total", Is: scrape.Counter, Absent: noPrefill},
		{
			To: metrics.EngineLoadTime, From: "maxserve_model_load_time_milliseconds", Is: scrape.Histogram, Part: partSum,
			Where: is("component", ""), Scale: metrics.Millis,
			Absent: notLoaded, Quality: metrics.Derived, Why: "sum of a histogram that is filled once per start",
		},
	},
}

// nameMAX gives every series the model of the only pipeline that was loaded.
func nameMAX(byName map[string]*scrape.Family) {
	const label = "model"
	model, several := "", false
	if loaded := byName["maxserve_pipeline_load_total"]; loaded != nil {
		for _, s := range loaded.Samples {
			several = several || model != "" && s.Labels.Get(label) != model
			model = s.Labels.Get(label)
		}
	}
	if model == "" || several {
		return
	}
	for name, f := range byName {
		if strings.HasPrefix(name, "maxserve_") {
			for i := range f.Samples {
				f.Samples[i].Labels = labels.NewBuilder(f.Samples[i].Labels).Set(label, model).Labels()
			}
		}
	}
}
