package engine

import (
	"cmp"
	"context"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// tei reads Hugging Face's text-embeddings-inference, which serves embeddings, rerankers and classifiers. One request
// may have many inputs. Only te_request_* count requests, so only they are read. te_embed_* and te_predict_* count
// every input of a request's batch.
var tei = Dialect{
	Runtime:   metrics.TEI,
	Source:    "text-embeddings-inference router/src/{http,grpc}/server.rs, router/src/lib.rs, core/src/{infer,queue,tokenization}.rs",
	Recognise: func(p *scrape.Page) bool { return p.HasPrefix("te_") },
	Silent:    func(id Identity) bool { return id.Owner == teiOwner }, // metrics are registered on first use
	Server:    &Server{Lacks: "no metrics of the process, and the queue is counted in inputs"},
	Rows: []Row{
		{
			To: metrics.RequestDuration, From: "te_request_duration", Is: scrape.Histogram, Absent: noFinish,
			Quality: metrics.Approximate, Why: "time to the answer of successful requests, because there are no output tokens",
		},
		{
			To: metrics.QueueTime, From: "te_request_queue_duration", Is: scrape.Histogram, Absent: noFinish,
			Quality: metrics.Approximate, Why: "mean over the inputs of a request",
		},
		{
			To: metrics.RequestPromptTokens, From: "te_request_input_length", Is: scrape.Histogram, Absent: noRequest,
			Quality: metrics.Approximate, Why: "one observation per input, of which a request may hold many",
		},

		{
			To: metrics.RequestsWaiting, From: "te_queue_size", Is: scrape.Gauge, Absent: noRequest,
			Quality: metrics.Approximate, Why: "inputs, of which a request may hold many",
		},

		{
			To: metrics.PromptTokens, From: "te_request_input_length", Is: scrape.Histogram, Part: partSum, Absent: noRequest,
			Quality: metrics.Approximate, Why: "sum at tokenisation: inputs that fail later are included",
		},
		{
			To: metrics.Requests, From: "te_request_success", Is: scrape.Counter, Set: outcome(metrics.OutcomeSuccess), Absent: noFinish,
			Quality: metrics.Approximate, Why: "some releases leave out predictions of a single input",
		},
		{
			To: metrics.Requests, From: "te_request_failure", Is: scrape.Counter, Failures: SinceFailure, Plus: true,
			Absent:  "no request has failed",
			Quality: metrics.Approximate, Why: "a request counts once for each of its inputs that fails",
			Carry: []metrics.Carry{{From: "err", To: metrics.LabelOutcome, Outcomes: metrics.Outcomes{
				"overloaded":     metrics.OutcomeRejected,
				"validation":     metrics.OutcomeInvalid,
				"tokenization":   metrics.OutcomeInvalid,
				"batch_size":     metrics.OutcomeInvalid,
				"model_type":     metrics.OutcomeInvalid,
				"missing_values": metrics.OutcomeInvalid,
				"inference":      metrics.OutcomeError,
				"dropped":        metrics.OutcomeAbort,
			}}},
		},
	},
	Settings: []Told{
		{To: metrics.SettingModel, From: "/info", At: "model_id"},
		{To: metrics.SettingVersion, From: "/info", At: "version"},
		{To: metrics.SettingRevision, From: "/info", At: "model_sha"},
		{To: metrics.SettingDtype, From: "/info", At: "model_dtype"},
		{To: metrics.SettingMaxBatchTokens, From: "/info", At: "max_batch_tokens"},
		{To: metrics.SettingMaxSequences, From: "/info", At: "max_batch_requests"},
		{To: metrics.SettingImage, From: "/info", At: "docker_label"},
	},
	Untold:    noDecoding,
	Endpoints: map[*metrics.Family]string{metrics.MaxModelLen: "/info"},
	Missing:   teiMissing(),
	Tokenless: true,
	Identify: func(ctx context.Context, get Getter) (id Identity, err error) {
		var info struct {
			Model    string  `json:"model_id"`
			Served   string  `json:"served_model_name"` // in newer releases
			Version  string  `json:"version"`
			MaxInput float64 `json:"max_input_length"`
			Workers  int     `json:"tokenization_workers"` // absent in TGI's /info
		}
		err = get(ctx, "/info", &info)
		if info.Workers == 0 {
			return Identity{}, err
		}
		id.Owner, id.Model, id.Version = teiOwner, cmp.Or(info.Served, info.Model), info.Version
		id.number(metrics.MaxModelLen, info.MaxInput, "/info max_input_length")
		return id, err
	},
}

const (
	teiOwner = "text-embeddings-inference"

	noOutputTokens = "embeddings have no output tokens"
	noKVCache      = "embeddings keep no KV cache"
)

// noDecoding explains the settings that an engine without output tokens does not have.
var noDecoding = map[metrics.Setting]string{
	metrics.SettingKVCacheDtype: noKVCache, metrics.SettingKVCacheTokens: noKVCache, metrics.SettingKVBlockSize: noKVCache,
	metrics.SettingPrefixCaching: noKVCache,
	metrics.SettingSpeculation:   noOutputTokens, metrics.SettingSpeculationTokens: noOutputTokens, metrics.SettingTemplate: noOutputTokens,
	metrics.SettingGeneration: noOutputTokens,
}

func teiMissing() map[*metrics.Family]string {
	m := map[*metrics.Family]string{}
	for why, families := range map[string][]*metrics.Family{
		noOutputTokens: {
			metrics.TimeToFirstToken, metrics.InterTokenLatency, metrics.TimePerOutputToken, metrics.PrefillTime, metrics.DecodeTime,
			metrics.RequestGenerationTokens, metrics.GenerationTokens, metrics.SpecDecodeDraftTokens, metrics.SpecDecodeAcceptedTokens,
		},
		noKVCache: {
			metrics.KVCacheUsage, metrics.KVCacheCapacity, metrics.Preemptions, metrics.PrefixCacheQueryTokens,
			metrics.PrefixCacheHitTokens,
			metrics.ExternalPrefixCacheQueryTokens, metrics.ExternalPrefixCacheHitTokens, metrics.KVTransferTime, metrics.KVTransferSize,
			metrics.KVTransferFailures,
		},
		"text-embeddings-inference does not sleep": {metrics.Sleeping},
	} {
		for _, f := range families {
			m[f] = why
		}
	}
	return m
}
