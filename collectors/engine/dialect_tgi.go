package engine

import (
	"context"
	"math"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// tgi reads Hugging Face Text Generation Inference. Its metrics page has no label for the model. Counters and durations
// have no suffix. First tokens and the KV cache are missing.
var tgi = Dialect{
	Runtime: metrics.TGI,
	Source:  "text-generation-inference router/src/server.rs, router/src/infer, backends/{v2,v3}",
	API:     "tgi",
	// IBM's fork on vLLM repeats the engine's numbers under TGI's names.
	Recognise: func(p *scrape.Page) bool { return p.HasPrefix("tgi_") && !p.HasPrefix("vllm:") },
	Silent:    func(id Identity) bool { return id.Version != "" }, // metrics are registered on first use (TGI#2184)
	Server: &Server{Lacks: "no metrics of the process; the queue counts requests that arrive while batches hang, so waiting requests " +
		"show the work"},
	VersionHints: []VersionHint{
		{Name: "tgi_request_skipped_tokens", Since: "1.3.0"},
		{Name: "tgi_batch_forward_duration", Since: "1.3.3"},
	},
	Rows: []Row{
		{
			To: metrics.InterTokenLatency, From: "tgi_batch_inference_duration", Is: scrape.Histogram, Where: is("method", "decode"),
			Since: "0.3.0", PerStep: true,
			Absent: noDecode, Quality: metrics.Approximate,
			Why: "one observation per decode step of the batch, not per request; objectives count it for each request in the batch",
		},
		{
			To: metrics.TimePerOutputToken, From: "tgi_request_mean_time_per_token_duration", Is: scrape.Histogram, Since: "0.3.0",
			Absent: noFinish, Quality: metrics.Approximate, Why: "includes prefill",
		},
		{To: metrics.RequestDuration, From: "tgi_request_duration", Is: scrape.Histogram, Since: "0.3.0", Absent: noFinish},
		{To: metrics.QueueTime, From: "tgi_request_queue_duration", Is: scrape.Histogram, Since: "0.3.0", Absent: noFinish},
		{
			To: metrics.PrefillTime, From: "tgi_batch_inference_duration", Is: scrape.Histogram, Where: is("method", "prefill"), Since: "0.3.0",
			Absent: noPrefill, Quality: metrics.Approximate, Why: "one observation per prefill batch, not per request",
		},
		{To: metrics.RequestPromptTokens, From: "tgi_request_input_length", Is: scrape.Histogram, Since: "0.3.0", Absent: noRequest},
		{To: metrics.RequestGenerationTokens, From: "tgi_request_generated_tokens", Is: scrape.Histogram, Since: "0.3.0", Absent: noFinish},

		{
			To: metrics.RequestsRunning, From: "tgi_batch_current_size", Is: scrape.Gauge, Since: "0.3.0", Absent: noRequest,
			Quality: metrics.Approximate, Why: "set once per pass of the batching loop",
		},
		{To: metrics.RequestsWaiting, From: "tgi_queue_size", Is: scrape.Gauge, Since: "0.3.0", Absent: noRequest},
		{
			To: metrics.MaxModelLen, From: "tgi_request_max_new_tokens", Is: scrape.Histogram, Since: "0.3.0", Fold: lastBound,
			Absent: noRequest, Quality: metrics.Derived, Why: "the histogram's last bound is max_total_tokens",
		},

		{
			To: metrics.PromptTokens, From: "tgi_request_input_length", Is: scrape.Histogram, Since: "0.3.0", Part: partSum,
			Absent: noRequest, Quality: metrics.Approximate, Why: "sum at validation: requests rejected later are included",
		},
		{
			To: metrics.GenerationTokens, From: "tgi_request_generated_tokens", Is: scrape.Histogram, Counted: metrics.CountedEnd,
			Since: "0.3.0", Part: partSum,
			Absent: noFinish, Quality: metrics.Approximate, Why: "counted when a request ends well",
		},
		{
			To: metrics.EngineSteps, From: "tgi_batch_inference_count", Is: scrape.Counter, Since: "0.5.0", Absent: noRequest,
			Quality: metrics.Derived, Why: "sum of prefill and decode batches",
		},
		{
			To: metrics.Requests, From: "tgi_request_success", Is: scrape.Counter, Since: "0.3.0", Set: outcome(metrics.OutcomeSuccess),
			Absent: noFinish,
		},
		{
			To: metrics.Requests, From: "tgi_request_failure", Is: scrape.Counter, Failures: SinceFailure, Since: "0.3.0", Plus: true,
			Absent: "no request has failed",
			Carry: []metrics.Carry{{From: "err", To: metrics.LabelOutcome, Outcomes: metrics.Outcomes{
				"overloaded": metrics.OutcomeRejected,
				"validation": metrics.OutcomeInvalid,
				"template":   metrics.OutcomeInvalid,
				"incomplete": metrics.OutcomeError,
				"generation": metrics.OutcomeError,
				"dropped":    metrics.OutcomeAbort,
			}}},
		},
		{
			To: metrics.SpecDecodeAcceptedTokens, From: "tgi_request_skipped_tokens", Is: scrape.Summary, Since: "1.3.0", Part: partSum,
			Absent: noRequest, Quality: metrics.Approximate, Why: "tokens per step beyond the first",
		},
		{
			To: metrics.PromptTime, From: "tgi_batch_inference_duration", Is: scrape.Histogram, Where: is("method", "prefill"), Since: "0.3.0",
			Part:   partSum,
			Absent: noPrefill, Quality: metrics.Derived, Why: "sum of the histogram",
		},
		{
			To: metrics.GenerationTime, From: "tgi_batch_inference_duration", Is: scrape.Histogram, Where: is("method", "decode"),
			Since: "0.3.0", Part: partSum,
			Absent: noDecode, Quality: metrics.Derived, Why: "sum of the histogram",
		},
	},
	Missing: reasons(map[*metrics.Family]string{
		metrics.TimeToFirstToken:               "no histogram; queue time is per request and prefill time per batch, so they cannot be added",
		metrics.DecodeTime:                     "decode is reported per step only",
		metrics.KVCacheUsage:                   "only the reserved token budget of the batch is reported",
		metrics.Sleeping:                       "TGI does not sleep",
		metrics.Preemptions:                    "TGI does not preempt: it reserves the whole budget of a request",
		metrics.ExternalPrefixCacheQueryTokens: "TGI has none",
		metrics.ExternalPrefixCacheHitTokens:   "TGI has none",
		metrics.SpecDecodeDraftTokens:          "only accepted tokens are reported",
		metrics.BatchTokens:                    "batches are counted in requests",
		metrics.RequestsRunningLimit:           "a batch is limited in tokens",
		metrics.RequestPreemptions:             "TGI does not preempt: it reserves the whole budget of a request",
		metrics.RequestsSwapped:                "TGI does not preempt: it reserves the whole budget of a request",
	}, lacks("TGI has no separate prefill and decode engines", kvTransfers), lacks("TGI has no tiers", kvTiers)),
	Settings: []Told{
		{To: metrics.SettingModel, From: "/info", At: "model_id"},
		{To: metrics.SettingVersion, From: "/info", At: "version"},
		{To: metrics.SettingRevision, From: "/info", At: "model_sha"},
		{To: metrics.SettingDtype, From: "/info", At: "model_dtype"}, // before 3.0
		{To: metrics.SettingMaxBatchTokens, From: "/info", At: "max_batch_total_tokens"},
		{To: metrics.SettingMaxSequences, From: "/info", At: "max_batch_size"},
		{To: metrics.SettingMaxQueue, From: "/info", At: "max_concurrent_requests"},
		{To: metrics.SettingSpeculationTokens, From: "/info", At: "speculate"},
		{To: metrics.SettingImage, From: "/info", At: "docker_label"},
	},
	Flags: []Flag{ // options of text-generation-launcher, which starts the router, and of the router
		{To: metrics.SettingDtype, Names: "dtype"},
		{To: metrics.SettingQuantization, Names: "quantize"},
		{To: metrics.SettingMaxBatchTokens, Names: "max-batch-total-tokens"},
		{To: metrics.SettingTensorParallel, Names: "num-shard"},
		{To: metrics.SettingKVCacheDtype, Names: "kv-cache-dtype"},
		{To: metrics.SettingGPUMemoryFraction, Names: "cuda-memory-fraction"},
		{To: metrics.SettingSpeculationTokens, Names: "speculate"},
		{To: metrics.SettingCUDAGraphs, Names: "cuda-graphs"},
		{To: metrics.SettingTokenizer, Names: "tokenizer-config-path"},
	},
	Identify: func(ctx context.Context, get Getter) (id Identity, err error) {
		var info struct {
			Model    string  `json:"model_id"`
			Version  string  `json:"version"`
			MaxTotal float64 `json:"max_total_tokens"`
		}
		err = get(ctx, "/info", &info)
		id.Model, id.Version = info.Model, info.Version
		id.number(metrics.MaxModelLen, info.MaxTotal, "/info max_total_tokens")
		return id, err
	},
}

// lastBound returns the largest finite bound of a histogram whose grid ends at a configured maximum.
func lastBound(in []Member) (bound float64, ok bool) {
	for _, m := range in {
		le, err := strconv.ParseFloat(m.Labels.Get(labels.BucketLabel), 64)
		if err == nil && !math.IsInf(le, 1) && le > bound {
			bound, ok = math.Round(le), true
		}
	}
	return bound, ok
}
