package engine

import (
	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// xinference reads the metrics exporter of an Xinference worker. It counts the calls to its models of any kind. If the
// metrics page has an engine's own families, that engine is read instead. A supervisor's metrics page has no data about
// requests.
var xinference = Dialect{
	Runtime: metrics.Xinference,
	Source:  "xinference/core/metrics.py, core/model.py, Xinference's monitoring documentation",
	Recognise: func(p *scrape.Page) bool {
		return p.HasPrefix("xinference:") && !xinferenceSupervisor(p) && !p.HasPrefix("vllm:") && !p.HasPrefix("sglang:")
	},
	Bystanders: []bystander{
		{
			"the supervisor of Xinference", "a router", reasonRouter, xinferenceSupervisor, false,
			"make the metrics exporters of its workers the targets",
		},
	},
	Labels: []metrics.Carry{
		{From: "model", To: metrics.LabelModel}, // uid by which clients request the model
		{From: "model_uid", To: metrics.LabelModel},
		{From: "replica_index", To: metrics.LabelReplica},
	},
	// The actor around the model counts the calls in progress. Some releases count them only with a limit. Without a
	// limit, they show 0, which proves nothing.
	Server: &Server{Active: Source{Name: "xinference:model_serve_count", Is: scrape.Gauge}},
	Rows: []Row{
		{
			To: metrics.TimeToFirstToken, From: "xinference:time_to_first_token_seconds", Is: scrape.Histogram, Where: is("stream", "true"),
			Absent: xinferenceTokens,
		},
		{
			To: metrics.TimeToFirstToken, From: "xinference:time_to_first_token_seconds", Is: scrape.Histogram, Where: is("stream", ""),
			Absent:  xinferenceTokens,
			Quality: metrics.Approximate, Why: "some releases do not distinguish streams, and include answers that are not streamed",
		},
		{
			To: metrics.RequestDuration, From: "xinference:model_request_duration_seconds", Is: scrape.Histogram,
			Absent: "not in early releases, or no request yet", Quality: metrics.Approximate,
			Why: "of the call to the model; it is unknown how much of a stream this includes",
		},
		{
			To: metrics.RequestsRunning, From: "xinference:model_serve_count", Is: scrape.Gauge,
			Absent: "not in early releases, or no request yet", Quality: metrics.Approximate,
			Why: "requests in progress, including those that wait in the engine",
		},
		{
			To: metrics.PromptTokens, From: "xinference:input_tokens_total_counter", Is: scrape.Counter,
			Absent: noFinish, Quality: metrics.Approximate, Why: "only requests whose answer reports its usage",
		},
		{
			To: metrics.GenerationTokens, From: "xinference:output_tokens_total_counter", Is: scrape.Counter, Counted: metrics.CountedEnd,
			Absent: noFinish, Quality: metrics.Approximate, Why: "only requests whose answer reports its usage",
		},
		{
			To: metrics.EngineLoadTime, From: "xinference:model_last_load_duration_seconds", Is: scrape.Gauge,
			Absent: "not in early releases, or the model is not loaded yet", Quality: metrics.Approximate,
			Why: "of the model, its download included; not of the process",
		},
	},
	Missing: map[*metrics.Family]string{
		metrics.Requests: "only all calls and failed calls are counted, so running calls cannot be distinguished from successful ones",
	},
}

const xinferenceTokens = "only a gauge of the last request in this release, or no streamed request yet"

// xinferenceSupervisor recognises the metrics page of the API server, which describes the cluster.
func xinferenceSupervisor(p *scrape.Page) bool {
	return p.Has("xinference:supervisor_uptime_seconds") || p.Has("xinference:workers_total")
}
