package engine

import (
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// lmdeploy reads LMDeploy's api_server, whose metrics page is modelled on vLLM's.
var lmdeploy = Dialect{
	Runtime:   metrics.LMDeploy,
	Source:    "lmdeploy/metrics/loggers.py",
	API:       "completions",
	Paths:     []string{"/metrics/"}, // a mounted application, which redirects if the slash is missing
	Recognise: func(p *scrape.Page) bool { return p.HasPrefix("lmdeploy:") },
	Restore:   colon("lmdeploy"),
	Labels: []metrics.Carry{
		{From: "model_name", To: metrics.LabelModel},
		{From: "engine", To: metrics.LabelDPRank},
	},
	Server: &Server{Files: Source{Name: "process_open_fds", Is: scrape.Gauge}},
	VersionHints: []VersionHint{
		{Name: "lmdeploy:num_requests_finished", Since: "0.9.2", Until: "0.12.0"},
		{Name: "lmdeploy:num_api_requests_routed", Since: "0.12.1"},
		{Name: "lmdeploy:num_requests_failed", Since: "0.13.0"},
	},
	Rows: []Row{
		{To: metrics.TimeToFirstToken, From: "lmdeploy:time_to_first_token_seconds", Is: scrape.Histogram, Since: "0.9.2"},
		{To: metrics.InterTokenLatency, From: "lmdeploy:iter_token_latency", Is: scrape.Histogram, Since: "0.10.0"},
		{To: metrics.TimePerOutputToken, From: "lmdeploy:time_per_output_token_seconds", Is: scrape.Histogram, Since: "0.9.2"},
		{To: metrics.RequestDuration, From: "lmdeploy:e2e_request_latency_seconds", Is: scrape.Histogram, Since: "0.9.2"},
		{To: metrics.QueueTime, From: "lmdeploy:request_queue_time_seconds", Is: scrape.Histogram, Since: "0.9.2"},
		{To: metrics.PrefillTime, From: "lmdeploy:request_prefill_time_seconds", Is: scrape.Histogram, Since: "0.9.2"},
		{To: metrics.DecodeTime, From: "lmdeploy:request_decode_time_seconds", Is: scrape.Histogram, Since: "0.9.2"},
		{To: metrics.RequestPromptTokens, From: "lmdeploy:request_prompt_tokens", Is: scrape.Histogram, Since: "0.9.2"},
		{To: metrics.RequestGenerationTokens, From: "lmdeploy:request_generation_tokens", Is: scrape.Histogram, Since: "0.9.2"},
		{To: metrics.RequestsRunning, From: "lmdeploy:num_requests_running", Is: scrape.Gauge, Since: "0.9.2"},
		{
			To: metrics.RequestsWaiting, From: "lmdeploy:num_requests_waiting", With: []string{apiWaiting}, Is: scrape.Gauge, Since: "0.12.1",
			Fold:    waitingAnywhere,
			Quality: metrics.Derived, Why: "in the engine's queue and, in the API server, for a free handle",
		},
		{To: metrics.RequestsWaiting, From: "lmdeploy:num_requests_waiting", Is: scrape.Gauge, Since: "0.9.2"},
		{To: metrics.KVCacheUsage, From: "lmdeploy:gpu_cache_usage_perc", Is: scrape.Gauge, Since: "0.9.2"},
		{To: metrics.PromptTokens, From: "lmdeploy:prompt_tokens_total", Is: scrape.Counter, Since: "0.9.2"},
		{
			To: metrics.GenerationTokens, From: "lmdeploy:generation_tokens_total", Is: scrape.Counter, Counted: metrics.CountedStep,
			Since: "0.9.2",
		},
		{
			To: metrics.EngineSteps, From: "lmdeploy:iteration_tokens_total", Is: scrape.Histogram, Since: "0.9.2", Part: partCount,
			Quality: metrics.Derived, Why: "count of the histogram",
		},
		// Despite its name, this metric counts every end of a request, including failures. So the gauge of failed requests is
		// not needed.
		{
			To: metrics.Requests, From: "lmdeploy:request_success_total", Is: scrape.Counter, Since: "0.9.2", Failures: SinceFailure,
			Absent: noFinish,
			Carry:  []metrics.Carry{{From: "finished_reason", To: metrics.LabelOutcome, Map: lmdeployMember, Outcomes: lmdeployOutcomes}},
		},
		{
			To: metrics.PrefixCacheQueryTokens, From: "lmdeploy:cached_tokens_total", With: []string{"lmdeploy:prompt_tokens_total"},
			Is: scrape.Counter, Since: "0.14.0",
			Fold:    func(in []Member) (float64, bool) { return largest(in, "lmdeploy:prompt_tokens_total") },
			Quality: metrics.Derived, Why: "all prompt tokens are looked up",
		},
		{To: metrics.PrefixCacheHitTokens, From: "lmdeploy:cached_tokens_total", Is: scrape.Counter, Since: "0.14.0"},
		{
			To: metrics.SpecDecodeDraftTokens, From: "lmdeploy:spec_decode_num_draft_tokens_total", Is: scrape.Counter, Since: "0.14.0",
			Absent: "speculative decoding is off",
		},
		{
			To: metrics.SpecDecodeAcceptedTokens, From: "lmdeploy:spec_decode_num_accepted_tokens_total", Is: scrape.Counter, Since: "0.14.0",
			Absent: "speculative decoding is off",
		},
		{To: metrics.BatchTokens, From: "lmdeploy:iteration_tokens_total", Is: scrape.Histogram, Since: "0.9.2"},
	},
	Settings: []Told{
		{To: metrics.SettingTensorParallel, From: "lmdeploy:backend_config_info", At: "tp"},
		{To: metrics.SettingKVBlockSize, From: "lmdeploy:backend_config_info", At: "cache_block_seq_len"},
		{To: metrics.SettingGPUMemoryFraction, From: "lmdeploy:backend_config_info", At: "cache_max_entry_count"},
		{To: metrics.SettingPrefixCaching, From: "lmdeploy:backend_config_info", At: "enable_prefix_caching"},
	},
	Flags: []Flag{ // lmdeploy/cli/utils.py
		{To: metrics.SettingRevision, Names: "revision"},
		{To: metrics.SettingDtype, Names: "dtype"},
		{To: metrics.SettingQuantization, Names: "model-format"},
		{To: metrics.SettingMaxModelLen, Names: "session-len"},
		{To: metrics.SettingMaxBatchTokens, Names: "max-prefill-token-num"},
		{To: metrics.SettingMaxSequences, Names: "max-batch-size"},
		{To: metrics.SettingDataParallel, Names: "dp"},
		{To: metrics.SettingExpertParallel, Names: "ep"},
		{To: metrics.SettingKVCacheDtype, Names: "quant-policy"},
		{To: metrics.SettingTemplate, Names: "chat-template"},
	},
	Identify: openAI,
}

// lmdeployMember removes the class name with which Python prints a member of ResponseType (lmdeploy/messages.py).
func lmdeployMember(reason string) string { return strings.TrimPrefix(reason, "ResponseType.") }

// lmdeployOutcomes lists the members. FINISH means a natural end or the token limit. SUCCESS is an intermediate step.
var lmdeployOutcomes = metrics.Outcomes{
	"FINISH":  metrics.OutcomeSuccess,
	"SUCCESS": metrics.OutcomeSuccess,
	"CANCEL":  metrics.OutcomeAbort,

	"INPUT_LENGTH_ERROR":                     metrics.OutcomeInvalid,
	"SESSION_REPEAT":                         metrics.OutcomeInvalid,
	"SESSION_NOT_EXIST":                      metrics.OutcomeInvalid,
	"NOT_SUPPORTED":                          metrics.OutcomeInvalid,
	"PREFIX_CACHE_CONFLICT":                  metrics.OutcomeInvalid,
	"PREFIX_CACHE_CONFLICT_INTERACTIVE_MODE": metrics.OutcomeInvalid, // in some releases

	"INTERNAL_ENGINE_ERROR": metrics.OutcomeError,
	"ENGINE_STOP_ERROR":     metrics.OutcomeError,
	"HANDLER_NOT_EXIST":     metrics.OutcomeError,
	"OUT_OF_MEMORY":         metrics.OutcomeError,
	"NO_QUEUE":              metrics.OutcomeError,
}

const apiWaiting = "lmdeploy:num_api_requests_waiting"

// waitingAnywhere adds up the requests that wait in the API server and in the engine. The number in the API server is a
// difference, which may be below zero for a moment.
func waitingAnywhere(in []Member) (float64, bool) {
	engine, ok := sumOf("lmdeploy:num_requests_waiting")(in)
	api, _ := sumOf(apiWaiting)(in)
	return engine + max(0, api), ok
}
