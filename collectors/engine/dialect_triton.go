package engine

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Triton's metrics page joins the server's own families, which count requests for any model, with the families of the
// backend that runs the model. Each backend has its own dialect. All dialects share the core's rows.

const (
	trtRequests = "nv_trt_llm_request_metrics"
	trtBlocks   = "nv_trt_llm_kv_cache_block_metrics"

	tritonSuccess = "nv_inference_request_success"

	blocksDisagree  = "used and free blocks do not add up to max"
	durationsSummed = "only a sum of durations is reported, no histogram"
)

// tritonTRTLLM reads Triton with the TensorRT-LLM backend.
var tritonTRTLLM = Dialect{
	Runtime:     metrics.TritonTRTLLM,
	Costs:       tritonCosts,
	Source:      "tensorrtllm_backend custom_metrics_reporter, triton core metrics, model configuration extension",
	Recognise:   func(p *scrape.Page) bool { return p.Has(trtRequests) || p.Has(trtBlocks) },
	EngineTypes: []string{"triton-tensorrt-llm"},
	Labels:      tritonLabels,
	Server:      tritonServer,
	Models:      modelsOf(trtRequests, trtBlocks),
	Chained:     tritonSuccess,
	Chains:      tritonChains,
	APIPorts:    tritonPorts,
	VersionHints: []VersionHint{
		{Name: "nv_trt_llm_disaggregated_serving_metrics", Since: "0.15.0"},
		{Name: "nv_llm_input_token_len", Since: "0.16.0"},
	},
	Rows: slices.Concat([]Row{
		{To: metrics.RequestPromptTokens, From: "nv_llm_input_token_len", Is: scrape.Histogram, Since: "0.16.0", Absent: noRequest},
		{To: metrics.RequestGenerationTokens, From: "nv_llm_output_token_len", Is: scrape.Histogram, Since: "0.16.0", Absent: noRequest},
		{To: metrics.RequestsRunning, From: trtRequests, Is: scrape.Gauge, Where: is("request_type", "scheduled"), Since: "0.7.0"},
		{To: metrics.RequestsWaiting, From: trtRequests, Is: scrape.Gauge, Where: is("request_type", "waiting"), Since: "0.18.0"},
		{
			To: metrics.RequestsWaiting, From: trtRequests, Is: scrape.Gauge, Where: is("request_type", "active", "scheduled"), Since: "0.7.0",
			Fold: activeNotScheduled, Quality: metrics.Derived, Why: "active minus scheduled requests",
		},
		// The backend assigns its JSON keys to labels by position, so a missing key shifts all later values. Block counts
		// that do not add up are ignored.
		{
			To: metrics.KVCacheUsage, From: trtBlocks, Is: scrape.Gauge, Since: "0.7.0", Fold: blocksUsed,
			Quality: metrics.Derived, Why: "used over max blocks, when used and free add up to max, or to one more or less",
			NoValue: blocksDisagree,
		},
		{
			To: metrics.KVCacheCapacity, From: trtBlocks, Is: scrape.Gauge, Since: "0.7.0", Fold: blockTokens,
			Quality: metrics.Derived, Why: "max blocks times tokens per block, when used and free add up to max, or to one more or less",
			NoValue: blocksDisagree,
		},
		{
			To: metrics.PromptTokens, From: "nv_llm_input_token_len", Is: scrape.Histogram, Since: "0.16.0", Part: partSum,
			Absent: noRequest, Quality: metrics.Derived, Why: "sum of the histogram",
		},
		{
			To: metrics.GenerationTokens, From: "nv_llm_output_token_len", Is: scrape.Histogram, Counted: metrics.CountedEnd, Since: "0.16.0",
			Part:   partSum,
			Absent: noRequest, Quality: metrics.Derived, Why: "sum of the histogram",
		},
		{
			To: metrics.RequestsSwapped, From: "nv_trt_llm_inflight_batcher_metrics", Is: scrape.Gauge,
			Where: is("inflight_batcher_specific_metric", "paused_requests"),
			Since: "0.7.0", Absent: "no inflight batching, or a backend before 0.9.0",
		},
		{To: metrics.RequestsRunningLimit, From: trtRequests, Is: scrape.Gauge, Where: is("request_type", "max"), Since: "0.7.0"},
	}, tritonCore),
	Missing: reasons(tritonMissing, lacks(durationsSummed, []*metrics.Family{metrics.RequestDuration})),
}

// tritonVLLM reads Triton with the vLLM backend, which repeats a few of vLLM's metrics with Triton's labels, but no
// gauges. These metrics need REPORT_CUSTOM_METRICS in config.pbtxt.
var tritonVLLM = Dialect{
	Runtime:   metrics.TritonVLLM,
	Costs:     tritonCosts,
	Source:    "triton vllm_backend src/utils/metrics.py, triton core metrics, model configuration extension",
	Recognise: func(p *scrape.Page) bool { return p.HasPrefix("vllm:") && p.HasPrefix("nv_") },
	Labels:    tritonLabels,
	Server:    tritonServer,
	Models:    modelsOf("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
	Chained:   tritonSuccess,
	Chains:    tritonChains,
	APIPorts:  tritonPorts,
	Rows: slices.Concat([]Row{
		{To: metrics.TimeToFirstToken, From: "vllm:time_to_first_token_seconds", Is: scrape.Histogram},
		// This is the time between engine steps, as in the vLLM releases of that time.
		{To: metrics.InterTokenLatency, From: "vllm:time_per_output_token_seconds", Is: scrape.Histogram},
		{To: metrics.RequestDuration, From: "vllm:e2e_request_latency_seconds", Is: scrape.Histogram},
		{To: metrics.RequestPromptTokens, From: "vllm:request_prompt_tokens", Is: scrape.Histogram},
		{To: metrics.RequestGenerationTokens, From: "vllm:request_generation_tokens", Is: scrape.Histogram},
		{To: metrics.PromptTokens, From: "vllm:prompt_tokens_total", Is: scrape.Counter},
		{To: metrics.GenerationTokens, From: "vllm:generation_tokens_total", Is: scrape.Counter, Counted: metrics.CountedStep},
	}, tritonCore),
	Missing: tritonMissing,
}

// triton reads Triton with any other backend. It reads only the server's own families.
var triton = Dialect{
	Runtime: metrics.Triton,
	Costs:   tritonCosts,
	Source:  "triton core metrics, model configuration extension",
	Recognise: func(p *scrape.Page) bool {
		return p.Has(tritonSuccess) && !p.HasPrefix("vllm:") && !p.Has(trtRequests) && !p.Has(trtBlocks)
	},
	EngineTypes: []string{"triton"},
	Labels:      tritonLabels,
	Server:      tritonServer,
	Models:      askedFor,
	Chained:     tritonSuccess,
	Chains:      tritonChains,
	APIPorts:    tritonPorts,
	Rows:        tritonCore,
	Missing:     reasons(tritonMissing, lacks(durationsSummed, []*metrics.Family{metrics.RequestDuration})),
}

// tritonServer has no metric. The core already has a gauge of pending requests, which counts requests when they arrive.
var tritonServer = &Server{Lacks: "no metrics of the process, and only requests before the backend"}

// tritonPorts maps the metrics port, 8002, to the port of the API that describes models, 8000.
var tritonPorts = map[string]string{"8002": "8000"}

var tritonLabels = []metrics.Carry{{From: "model", To: metrics.LabelModel}}

var tritonCosts = map[string]string{"needs --metrics-config histogram_latencies=true": "optional: one more histogram for each model " +
	"on the page"}

// tritonCore holds the rows of the server itself. Its durations are sums in microseconds, so they have no distribution.
var tritonCore = []Row{
	{
		To: metrics.TimeToFirstToken, From: "nv_inference_first_response_histogram_ms", Is: scrape.Histogram, Scale: metrics.Millis,
		Absent: "needs --metrics-config histogram_latencies=true", Quality: metrics.Approximate,
		Why: "time to the first response; the first token for streaming (decoupled) models only",
	},
	{
		To: metrics.RequestsWaiting, From: "nv_inference_pending_request_count", Is: scrape.Gauge, Parts: true,
		Absent: "needs Triton 23.10", Quality: metrics.Approximate, Why: "requests before the backend; the backend's own queue is not included",
	},
	{To: metrics.Requests, From: tritonSuccess, Is: scrape.Counter, Set: outcome(metrics.OutcomeSuccess)},
	{
		To: metrics.Requests, From: "nv_inference_request_failure", Is: scrape.Counter, Failures: SinceFailure, Plus: true,
		Carry: []metrics.Carry{{From: "reason", To: metrics.LabelOutcome, Outcomes: metrics.Outcomes{
			"REJECTED": metrics.OutcomeRejected,
			"CANCELED": metrics.OutcomeAbort,
			"BACKEND":  metrics.OutcomeError,
			"OTHER":    metrics.OutcomeError,
		}}}, Set: outcome(metrics.OutcomeError),
	}, // no reason before 24.07
	{To: metrics.EngineLoadTime, From: "nv_model_load_duration_secs", Is: scrape.Gauge, Absent: "needs Triton 24.11"},
}

// tritonMissing lists the quantities that neither the core nor a backend reports.
var tritonMissing = map[*metrics.Family]string{
	metrics.QueueTime:              durationsSummed,
	metrics.Preemptions:            "at most a gauge of paused requests is reported",
	metrics.PrefixCacheQueryTokens: "at most a gauge of reused blocks is reported",
	metrics.PrefixCacheHitTokens:   "at most a gauge of reused blocks is reported",
	metrics.KVTransferTime:         "at most a sum of milliseconds is reported, no histogram",
}

// tritonChains requests the configuration of each model. Python models may call other models. Models of TensorRT-LLM's
// backend name their steps among their parameters.
func tritonChains(ctx context.Context, get Getter, models []string) (map[string]Chain, error) {
	chains := map[string]Chain{}
	for _, model := range models {
		var config struct {
			Name       string `json:"name"`
			Backend    string `json:"backend"`
			Scheduling struct {
				Steps []struct {
					Model string `json:"model_name"`
				} `json:"step"`
			} `json:"ensemble_scheduling"`
			Parameters map[string]struct {
				Value string `json:"string_value"`
			} `json:"parameters"`
		}
		if url.PathEscape(model) != model || strings.Trim(model, ".") == "" { // the metrics page must not choose the path of the request
			return nil, fmt.Errorf("%q is not a model name", model)
		}
		path := "/v2/models/" + model + "/config"
		if err := get(ctx, path, &config); err != nil {
			return nil, err
		}
		if config.Name != model {
			return nil, fmt.Errorf("%s is not the configuration of a Triton model", path)
		}
		chain := Chain{Code: config.Backend == "python"}
		for _, step := range config.Scheduling.Steps {
			chain.add(&chain.Steps, step.Model, models)
		}
		for _, parameter := range config.Parameters {
			if chain.Code && parameter.Value != model {
				chain.add(&chain.Calls, parameter.Value, models)
			}
		}
		chains[model] = chain
	}
	return chains, nil
}

// add adds a model to a list once, if the server has the model.
func (Chain) add(to *[]string, model string, models []string) {
	if _, ok := slices.BinarySearch(models, model); ok && !slices.Contains(*to, model) {
		*to = append(*to, model)
	}
}

// modelsOf counts requests only for two kinds of models: models that the backend's families name, and unrelated models.
// The core counts one request through an ensemble several times, under the ensemble, under its pre- and postprocessing,
// and under the model itself. Only the model counts here.
func modelsOf(families ...string) func(*scrape.Page, Identity) func(string) string {
	return func(p *scrape.Page, id Identity) func(string) string {
		models := map[string]bool{}
		for _, f := range families {
			for m := range p.LabelValues(f, "model") {
				models[m] = true
			}
		}
		counts := tritonModels(id.Chains)
		hidden := slices.ContainsFunc(slices.Collect(maps.Values(id.Chains)), func(c Chain) bool { return len(c.Calls) > 0 })
		return func(model string) string {
			c, known := id.Chains[model]
			switch {
			case models[model]:
				return model
			case !known || leads(id.Chains, model, models, map[string]bool{}):
				return ""
			case hidden && c.Code: // the model may be a part of a model that calls more models than it names
				return ""
			}
			return counts(model)
		}
	}
}

// leads reports whether a model calls any model of the set to, directly or through other models.
func leads(chains map[string]Chain, model string, to, seen map[string]bool) bool {
	if seen[model] {
		return false
	}
	seen[model] = true
	return slices.ContainsFunc(slices.Concat(chains[model].Steps, chains[model].Calls), func(m string) bool {
		return to[m] || leads(chains, m, to, seen)
	})
}

// tritonModels counts all models except the steps of ensembles, because clients request the ensemble. A step of several
// ensembles counts for none of them.
func tritonModels(chains map[string]Chain) func(string) string {
	ensembles := map[string][]string{}
	for ensemble, c := range chains {
		for _, step := range c.Steps {
			ensembles[step] = append(ensembles[step], ensemble)
		}
	}
	return func(model string) string {
		for range len(chains) { // an ensemble may be a step, too
			switch of := ensembles[model]; len(of) {
			case 0:
				return model
			case 1:
				model = of[0]
			default:
				return ""
			}
		}
		return "" // the models call each other in a circle
	}
}

// askedFor counts requests only for the models that clients request. If these models are unknown, it counts only a
// model with the usual name of an ensemble.
func askedFor(p *scrape.Page, id Identity) func(string) string {
	if id.Chains != nil {
		return tritonModels(id.Chains)
	}
	ensemble := p.LabelValues(tritonSuccess, "model")["ensemble"]
	return func(model string) string {
		if ensemble && model != "ensemble" {
			return ""
		}
		return model
	}
}

// labelled returns the value of the member whose label has a given value.
func labelled(in []Member, label, value string) (float64, bool) {
	for _, m := range in {
		if m.Labels.Get(label) == value {
			return m.Value, true
		}
	}
	return 0, false
}

func activeNotScheduled(in []Member) (float64, bool) {
	active, ok1 := labelled(in, "request_type", "active")
	scheduled, ok2 := labelled(in, "request_type", "scheduled")
	return math.Max(0, active-scheduled), ok1 && ok2
}

// blocks returns the counts of KV cache blocks if they are consistent. TensorRT-LLM may count one more used or free
// block than exist (the example of the backend's documentation: 1 used, 6239 free, at most 6239).
func blocks(in []Member) (used, most float64, ok bool) {
	const label = "kv_cache_block_type"
	most, ok1 := labelled(in, label, "max")
	free, ok2 := labelled(in, label, "free")
	used, ok3 := labelled(in, label, "used")
	fraction, ok4 := labelled(in, label, "fraction") // since 0.18
	ok = ok1 && ok2 && ok3 && most > 0 && used >= 0 && free >= 0 && math.Abs(used+free-most) <= 1
	return used, most, ok && (!ok4 || math.Abs(fraction-used/most) < 0.05)
}

func blocksUsed(in []Member) (float64, bool) {
	used, most, ok := blocks(in)
	return math.Min(1, used/most), ok
}

func blockTokens(in []Member) (float64, bool) {
	_, most, ok := blocks(in)
	size, found := labelled(in, "kv_cache_block_type", "tokens_per")
	return most * size, ok && found
}
