package engine

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// rises holds by how much series of a metrics page rose.
type rises map[string]float64

// times returns n requests, each of which raises each of the series.
func times(n float64, series ...string) rises {
	r := rises{}
	for _, s := range series {
		r[s] += n
	}
	return r
}

// and adds other requests.
func (r rises) and(others rises) rises {
	all := maps.Clone(r)
	for s, n := range others {
		all[s] += n
	}
	return all
}

// of returns n times as many requests.
func (r rises) of(n float64) rises {
	all := rises{}
	for s, by := range r {
		all[s] = n * by
	}
	return all
}

// page writes the series of an engine, each of which must be in testdata/facts.tsv, and so in the engine's source.
func (r rises) page(t *testing.T, runtime metrics.Runtime, known facts) string {
	byFamily := map[string]*strings.Builder{}
	for _, s := range slices.Sorted(maps.Keys(r)) {
		ls, err := parser.NewParser(parser.Options{}).ParseMetric(s)
		if err != nil {
			t.Fatal(err)
		}
		name, kind := ls.Get(model.MetricNameLabel), ""
		for _, f := range known {
			if f.engine == string(runtime) && f.name == name && hasLabels(f, ls) {
				kind = f.kind
			}
		}
		if kind == "" {
			t.Fatalf("testdata/facts.tsv: %s has no %s", runtime, s)
		}
		b := byFamily[name]
		if b == nil {
			b = &strings.Builder{}
			fmt.Fprintf(b, "# TYPE %s %s\n", name, kind)
			byFamily[name] = b
		}
		in := strings.TrimSuffix(s[len(name):], "}")
		switch kind {
		case "histogram":
			fmt.Fprintf(b, "%[1]s_bucket%[2]s,le=\"+Inf\"} %[3]v\n%[1]s_sum%[2]s} %[3]v\n%[1]s_count%[2]s} %[3]v\n", name, in, r[s])
		default:
			fmt.Fprintf(b, "%s %v\n", s, r[s])
		}
	}
	var page strings.Builder
	for _, name := range slices.Sorted(maps.Keys(byFamily)) {
		page.WriteString(byFamily[name].String())
	}
	return page.String()
}

func hasLabels(f fact, ls labels.Labels) bool {
	ok := true
	ls.Range(func(l labels.Label) {
		ok = ok && (l.Name == model.MetricNameLabel || slices.Contains(f.labels, l.Name) || slices.Contains(f.labels, l.Name+"?"))
	})
	return ok
}

// client holds the clients' own records: good answers, failures of the server, refusals for overload, and requests
// that clients left or got wrong.
type client struct{ good, failed, refused, left float64 }

// bound is the side of the truth on which a row's share of errors may lie.
type bound string

const (
	exact bound = ""
	lower bound = "lower" // no more errors than there were
	upper bound = "upper" // no fewer
)

// shape is a row: a shape of failure at a program.
type shape struct {
	shape         string
	runtime       metrics.Runtime
	how           string // how the program counts the failure, and the source that shows this
	before, after string // captures, or
	counts        rises  // what a written metrics page counts in the interval
	past          rises  // a good request of a written metrics page; nil: goodRequests
	gone          bool   // no process serves the metrics page any more
	client        client
	want          ends // of the interval
	is            bound
	why           string // of a bound
	shows         string // what shows the failures that a lower bound leaves out
}

// The series on the written metrics pages.
const (
	vllm200     = `http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"}`
	vllm500     = `http_requests_total{handler="/v1/chat/completions",method="POST",status="5xx"}`
	vllmEnded   = `vllm:request_params_n{model_name="m",engine="0"}`
	vllmStop    = `vllm:request_success_total{model_name="m",engine="0",finished_reason="stop"}`
	vllmError   = `vllm:request_success_total{model_name="m",engine="0",finished_reason="error"}`
	vllmRefused = `vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"}`

	sglang200         = `sglang:http_responses_total{endpoint="/v1/chat/completions",method="POST",status_code="200"}`
	sglang400         = `sglang:http_responses_total{endpoint="/v1/chat/completions",method="POST",status_code="400"}`
	sglang500         = `sglang:http_responses_total{endpoint="/v1/chat/completions",method="POST",status_code="500"}`
	sglang503         = `sglang:http_responses_total{endpoint="/v1/chat/completions",method="POST",status_code="503"}`
	sglangPlain       = `sglang:num_requests_total{model_name="m",engine_type="unified",is_streaming="false"}`
	sglangStream      = `sglang:num_requests_total{model_name="m",engine_type="unified",is_streaming="true"}`
	sglangWholePlain  = `sglang:request_time_per_output_token_seconds{model_name="m",engine_type="unified",is_streaming="false"}`
	sglangWholeStream = `sglang:request_time_per_output_token_seconds{model_name="m",engine_type="unified",is_streaming="true"}`
	sglangFirstPlain  = `sglang:time_to_first_token_seconds{model_name="m",engine_type="unified",is_streaming="false"}`
	sglangFirst       = `sglang:time_to_first_token_seconds{model_name="m",engine_type="unified",is_streaming="true"}`
	sglangLeft        = `sglang:num_aborted_requests_total{model_name="m",engine_type="unified"}`
	sglangOld         = `sglang:num_requests_total{model_name="m",engine_type="unified"}`

	tgiGood     = `tgi_request_success{}`
	tgiFull     = `tgi_request_failure{err="overloaded"}`
	tgiFailed   = `tgi_request_failure{err="generation"}`
	tgiLeft     = `tgi_request_failure{err="dropped"}`
	trtGood     = `trtllm_request_success_total{model_name="m",engine_type="pytorch",finished_reason="stop"}`
	trt500      = `trtllm_request_error_total{model_name="m",engine_type="pytorch",http_code="500"}`
	lmdGood     = `lmdeploy:request_success_total{model_name="m",engine="0",finished_reason="ResponseType.FINISH"}`
	lmdMemory   = `lmdeploy:request_success_total{model_name="m",engine="0",finished_reason="ResponseType.OUT_OF_MEMORY"}`
	rayGood     = `ray_serve_num_http_requests_total{application="m",method="POST",route="/v1",status_code="200"}`
	rayFull     = `ray_serve_num_http_requests_total{application="m",method="POST",route="/v1",status_code="503"}`
	rayLate     = `ray_serve_num_http_requests_total{application="m",method="POST",route="/v1",status_code="408"}`
	istioGood   = `istio_requests_total{reporter="source",destination_service_name="m",response_code="200",response_flags="-"}`
	istioNobody = `istio_requests_total{reporter="source",destination_service_name="m",response_code="503",response_flags="UF"}`
	dynamoGood  = `dynamo_frontend_requests_total{model="m",endpoint="chat_completions",request_type="stream",status="success",error_type=""}`
	dynamoLate  = `dynamo_frontend_requests_total{model="m",endpoint="chat_completions",request_type="stream",status="error",error_type="response_timeout"}`
	litellmGood = `litellm_proxy_total_requests_metric_total{requested_model="m",route="/v1/chat/completions",status_code="200"}`
	litellmCut  = `litellm_proxy_total_requests_metric_total{requested_model="m",route="/v1/chat/completions",status_code="500"}`
	routerGood  = `vllm_router_requests_total{route="/v1/chat/completions"}`
	routerAgain = `vllm_router_retries_total{route="/v1/chat/completions"}`
)

// goodRequests returns a good request in a program's own counters, so that each written metrics page has a past.
// Half of SGLang's good requests are streams.
func goodRequests(runtime metrics.Runtime) rises {
	return map[metrics.Runtime]rises{
		metrics.VLLM: times(1, vllm200, vllmEnded, vllmStop),
		metrics.SGLang: times(0.5, sglang200, sglangStream, sglangFirst, sglangWholeStream).and(
			times(0.5, sglang200, sglangPlain, sglangFirstPlain, sglangWholePlain)),
		metrics.TGI: times(1, tgiGood), metrics.TensorRTLLM: times(1, trtGood), metrics.LMDeploy: times(1, lmdGood),
		metrics.RayServe: times(1, rayGood),
		metrics.Istio:    times(1, istioGood), metrics.Dynamo: times(1, dynamoGood), metrics.LiteLLM: times(1, litellmGood),
		metrics.VLLMRouter: times(1, routerGood),
	}[runtime]
}

const nine, ten = 90, 10 // good requests of a written metrics page, and those of the row's shape

// shapes are twelve shapes of failure at each program that can show them. On captures, clients kept their own
// record. A written metrics page names the source of its counting rules.
var shapes = []shape{
	{
		shape: "refused", runtime: metrics.VLLM,
		how:    "0.32.0: of 40 streams 12 were served, 8 answered 503, and 20 answered 200 and told in an event",
		before: "vllm/v0.32.0-admission-idle.prom", after: "vllm/v0.32.0-admission-refused.prom", client: client{good: 12, refused: 28},
		want: ends{metrics.OutcomeLength: 12, metrics.OutcomeRejected: 28},
	},
	{
		shape: "refused", runtime: metrics.Istio,
		how:    "nobody listens behind the proxy: 503 with the flag UF (Istio's standard metrics, Envoy's response flags)",
		counts: times(ten, istioNobody), client: client{good: nine, failed: ten}, want: ends{
			metrics.OutcomeSuccess: nine,
			metrics.OutcomeError:   ten,
		},
	},
	{
		shape: "refused", runtime: metrics.VLLM, how: "nobody listens: the process is gone", gone: true, client: client{failed: 100},
		want: ends{}, is: lower, why: "no metric counts it", shows: `llm_engine_up == 0`,
	},

	{
		shape: "429", runtime: metrics.TGI, how: "router/src/infer: Overloaded", counts: times(ten, tgiFull),
		client: client{good: nine, refused: ten}, want: ends{metrics.OutcomeSuccess: nine, metrics.OutcomeRejected: ten},
	},
	{
		shape: "429", runtime: metrics.LiteLLM, how: "1.106.2: three from upstream, three while it cooled down, without a status on the page",
		before: "litellm/v1.106.2-load.prom", after: "litellm/v1.106.2-solo-500.prom", client: client{refused: 6},
		want: ends{metrics.OutcomeRejected: 6},
	},
	{
		shape: "429", runtime: metrics.LiteLLM, how: "1.106.2: three 500, five 429",
		before: "litellm/v1.106.2-llama.prom", after: "litellm/v1.106.2-refused.prom", client: client{failed: 3, refused: 5},
		want: ends{metrics.OutcomeError: 3, metrics.OutcomeRejected: 5},
	},
	{
		shape: "429", runtime: metrics.VLLMRouter,
		how:    "0.1.17: 39 good, four wrong, three refused by workers at each of three attempts; four others failed at one worker first",
		before: "vllm_router/v0.1.17-load.prom", after: "vllm_router/v0.1.17-429.prom", client: client{good: 39, refused: 3},
		want: ends{metrics.OutcomeSuccess: 39, metrics.OutcomeRejected: 3, metrics.OutcomeInvalid: 4},
	},
	{
		shape: "429", runtime: metrics.SMG, how: "sglang-router 0.3.2: two 429, one 503 without a worker, after six attempts and more",
		before: "smg/sglang-router-v0.3.2-400.prom", after: "smg/sglang-router-v0.3.2-429.prom", client: client{failed: 1, refused: 2},
		want: ends{metrics.OutcomeRejected: 2, metrics.OutcomeError: 1},
	},

	{
		shape: "503", runtime: metrics.SGLang,
		how:    "the queue is full, half of them streams, which are answered 200: 0.5.23 srt/managers/scheduler.py _abort_on_queued_limit",
		counts: times(5, sglang503).and(times(5, sglang200)), client: client{good: nine, refused: ten},
		want: ends{metrics.OutcomeSuccess: nine, metrics.OutcomeRejected: ten},
	},
	{
		shape: "503", runtime: metrics.RayServe, how: "backpressure: python/ray/serve/_private/proxy.py",
		counts: times(ten, rayFull), client: client{good: nine, refused: ten}, want: ends{
			metrics.OutcomeSuccess:  nine,
			metrics.OutcomeRejected: ten,
		},
	},
	{
		shape: "503", runtime: metrics.VLLM,
		how:    "admission: 0.32.0 v1/engine/async_llm.py check_admission; half of them streams, which are answered 200",
		counts: times(5, vllm500, vllmRefused).and(times(5, vllm200, vllmRefused)), client: client{good: nine, refused: ten},
		want: ends{metrics.OutcomeStop: nine, metrics.OutcomeRejected: ten},
	},

	{
		shape: "529", runtime: metrics.Dynamo, how: "1.6.0: 31 of 40", after: "dynamo/frontend-v1.6.0-reject.prom",
		client: client{good: 9, refused: 31},
		want:   ends{metrics.OutcomeSuccess: 9, metrics.OutcomeRejected: 31},
	},

	{
		shape: "engine error, streamed", runtime: metrics.VLLM,
		how:    "200 and an error event: 0.32.0 entrypoints/openai/chat_completion/serving.py",
		counts: times(ten, vllm200, vllmEnded, vllmError), client: client{good: nine, failed: ten}, want: ends{
			metrics.OutcomeStop:  nine,
			metrics.OutcomeError: ten,
		},
	},
	{
		shape: "engine error, streamed", runtime: metrics.TGI, how: "router/src/infer: generation", counts: times(ten, tgiFailed),
		client: client{good: nine, failed: ten}, want: ends{metrics.OutcomeSuccess: nine, metrics.OutcomeError: ten},
	},
	{
		shape: "engine error, streamed", runtime: metrics.SGLang,
		how:    "200 and an error event; a finished request: 0.5.23 srt/managers/tokenizer_manager.py",
		counts: times(ten, sglang200, sglangStream, sglangFirst), client: client{good: nine, failed: ten},
		want: ends{metrics.OutcomeSuccess: nine, metrics.OutcomeUnknown: ten}, is: lower,
		why: "no counter distinguishes a broken stream from a stream of one token", shows: `llm_engine_requests_total{outcome="unknown"} >= 10`,
	},

	{
		shape: "engine error, not streamed", runtime: metrics.VLLM,
		how:    "both counters: 0.32.0 entrypoints/generate/base/serving.py _raise_if_error",
		counts: times(ten, vllm500, vllmEnded, vllmError), client: client{good: nine, failed: ten}, want: ends{
			metrics.OutcomeStop:  nine,
			metrics.OutcomeError: ten,
		},
	},
	{
		shape: "engine error, not streamed", runtime: metrics.SGLang, how: "500 and a finished request: 0.5.23 srt/managers/tokenizer_manager.py",
		counts: times(ten, sglang500, sglangPlain), client: client{good: nine, failed: ten}, want: ends{
			metrics.OutcomeSuccess: nine,
			metrics.OutcomeError:   ten,
		},
	},
	{
		shape: "engine error, not streamed", runtime: metrics.SGLang,
		how:    "before it ran, and every answer has one token: nothing is counted as finished",
		counts: times(50, sglang200, sglangPlain, sglangFirstPlain).and(times(50, sglang500)), client: client{good: 140, failed: 50},
		want: ends{metrics.OutcomeSuccess: 140, metrics.OutcomeError: 50},
	},
	{
		shape: "engine error, not streamed", runtime: metrics.SGLang,
		how: "500 and a finished request, as all others: 0.5.16 srt/metrics/collector.py", past: times(1, sglang200, sglangOld),
		counts: times(ten, sglang500, sglangOld), client: client{good: nine, failed: ten}, want: ends{
			metrics.OutcomeSuccess: 100,
			metrics.OutcomeError:   ten,
		}, is: lower,
		why: "before 0.5.22 each failed request also counts as a success", shows: `llm_engine_requests_total{outcome="error"} >= 10`,
	},
	{
		shape: "engine error, not streamed", runtime: metrics.TensorRTLLM, how: "tensorrt_llm/serve/openai_server.py", counts: times(ten, trt500),
		client: client{good: nine, failed: ten}, want: ends{metrics.OutcomeStop: nine, metrics.OutcomeError: ten},
	},
	{
		shape: "engine error, not streamed", runtime: metrics.VLLMRouter, how: "0.1.17: six requests, after all attempts",
		before: "vllm_router/v0.1.17-429.prom", after: "vllm_router/v0.1.17-all500.prom", client: client{failed: 6},
		want: ends{metrics.OutcomeError: 6},
	},

	{
		shape: "out of memory", runtime: metrics.LMDeploy, how: "lmdeploy/messages.py", counts: times(ten, lmdMemory),
		client: client{good: nine, failed: ten}, want: ends{metrics.OutcomeSuccess: nine, metrics.OutcomeError: ten},
	},
	{
		shape: "out of memory", runtime: metrics.SGLang,
		how:    "of the KV cache, half of them streams: 0.5.23 srt/managers/schedule_batch.py retract_decode",
		counts: times(5, sglang500, sglangPlain, sglangFirstPlain).and(times(5, sglang200, sglangStream, sglangFirst)),
		client: client{good: nine, failed: ten},
		want:   ends{metrics.OutcomeSuccess: nine, metrics.OutcomeError: 5, metrics.OutcomeUnknown: 5}, is: lower,
		why:   "no counter distinguishes a broken stream from a stream of one token",
		shows: `llm_engine_requests_total{outcome=~"error|unknown"} >= 5`,
	},
	{
		shape: "out of memory", runtime: metrics.VLLM,
		how: "of the GPU: the engine dies; half of them streams, which no counter tells from ones that clients left: 0.32.0 " +
			"v1/engine/async_llm.py",
		counts: times(5, vllm500).and(times(5, vllm200)), client: client{good: nine, failed: ten},
		want: ends{metrics.OutcomeStop: nine, metrics.OutcomeError: 5, metrics.OutcomeAbort: 5}, is: lower,
		why: "a dying engine counts its streams as aborted, then loses its metrics", shows: `llm_engine_requests_total{outcome="error"} >= 5`,
	},

	{
		shape: "no worker", runtime: metrics.Dynamo, how: "1.6.0: 13 answered 503; the 404 of a name that it has forgotten are counted nowhere",
		before: "dynamo/frontend-v1.6.0-migration.prom", after: "dynamo/frontend-v1.6.0-allkilled.prom", client: client{failed: 13, left: 4},
		want: ends{metrics.OutcomeError: 13, metrics.OutcomeInvalid: 4},
	},
	{
		shape: "no worker", runtime: metrics.SMG, how: "sglang-router 0.3.2: six answered 503",
		before: "smg/sglang-router-v0.3.2-429.prom", after: "smg/sglang-router-v0.3.2-all500.prom", client: client{failed: 6},
		want: ends{metrics.OutcomeError: 6},
	},

	{
		shape: "abort", runtime: metrics.VLLM, how: "0.32.0: of 14 answered 200 clients left four; two of the others asked for two answers",
		before: "vllm/v0.32.0-before-cancel.prom", after: "vllm/v0.32.0-cancelled.prom", client: client{good: 10, left: 10},
		want: ends{metrics.OutcomeStop: 1, metrics.OutcomeLength: 11, metrics.OutcomeAbort: 4, metrics.OutcomeInvalid: 8},
	},
	{
		shape: "abort", runtime: metrics.SGLang, how: "0.5.23: 28 answers, four left, three wrong",
		before: "sglang/v0.5.23-idle.prom", after: "sglang/v0.5.23-loaded.prom", client: client{good: 28, left: 7},
		want: ends{metrics.OutcomeSuccess: 28, metrics.OutcomeAbort: 4, metrics.OutcomeInvalid: 3},
	},
	{
		shape: "abort", runtime: metrics.SGLang,
		how:  "five streams that ran, five requests in the queue, answered 400 to nobody: 0.5.16 srt/managers/tokenizer_manager.py",
		past: times(1, sglang200, sglangOld), counts: times(5, sglang200, sglangOld, sglangLeft).and(times(5, sglang400, sglangLeft)),
		client: client{good: nine, left: ten}, want: ends{metrics.OutcomeSuccess: nine, metrics.OutcomeAbort: ten},
	},
	{
		shape: "abort", runtime: metrics.TGI, how: "router/src/infer: dropped", counts: times(ten, tgiLeft),
		client: client{good: nine, left: ten}, want: ends{metrics.OutcomeSuccess: nine, metrics.OutcomeAbort: ten},
	},

	{
		shape: "timeout", runtime: metrics.SGLang,
		how:    "of a request that runs, 503: 0.5.23 srt/managers/scheduler.py, Request running timeout reached",
		counts: times(ten, sglang503, sglangPlain, sglangFirstPlain), client: client{good: nine, refused: ten},
		want: ends{metrics.OutcomeSuccess: nine, metrics.OutcomeRejected: ten},
	},
	{
		shape: "timeout", runtime: metrics.Dynamo, how: "lib/runtime/src/metrics/prometheus_names.rs: response_timeout",
		counts: times(ten, dynamoLate),
		client: client{good: nine, failed: ten}, want: ends{metrics.OutcomeSuccess: nine, metrics.OutcomeError: ten},
	},
	{
		shape: "timeout", runtime: metrics.RayServe, how: "408: python/ray/serve/_private/proxy.py", counts: times(ten, rayLate),
		client: client{good: nine, failed: ten}, want: ends{metrics.OutcomeSuccess: nine, metrics.OutcomeError: ten},
	},
	{
		shape: "timeout", runtime: metrics.VLLM, how: "the client's own, on a stream: 0.32.0, as one that leaves", counts: times(ten, vllm200),
		client: client{good: nine, failed: ten}, want: ends{metrics.OutcomeStop: nine, metrics.OutcomeAbort: ten}, is: lower,
		why:   "a request that timed out at the client counts as aborted, which is bad only with count_aborts",
		shows: `llm_engine_requests_total{outcome="abort"} >= 10`,
	},

	{
		shape: "failure in mid-stream", runtime: metrics.Dynamo, how: "1.6.0: a worker was killed, 13 streams were cut",
		before: "dynamo/frontend-v1.6.0-badreq.prom", after: "dynamo/frontend-v1.6.0-killed.prom", client: client{good: 113, failed: 13},
		want: ends{metrics.OutcomeSuccess: 113, metrics.OutcomeError: 13},
	},
	{
		shape: "failure in mid-stream", runtime: metrics.LiteLLM, how: "1.106.2: the page says 500, the client got 200 and half an answer",
		counts: times(ten, litellmCut),
		client: client{good: nine, failed: ten}, want: ends{metrics.OutcomeSuccess: nine, metrics.OutcomeError: ten},
	},
	{
		shape: "failure in mid-stream", runtime: metrics.VLLM,
		how:    "0.32.0: the engine's process was killed, its streams end with 200 and an error event",
		counts: times(ten, vllm200), client: client{good: nine, failed: ten}, want: ends{
			metrics.OutcomeStop:  nine,
			metrics.OutcomeAbort: ten,
		}, is: lower,
		why:   "a dying engine counts its streams as aborted, then loses its metrics",
		shows: `llm_engine_requests_total{outcome="abort"} >= 10`,
	},

	{
		shape: "retry at a gateway", runtime: metrics.VLLMRouter, how: "sgl-router/src/metrics.rs: ten of 100 needed a second attempt",
		counts: times(ten, routerGood, routerAgain), client: client{good: 100}, want: ends{metrics.OutcomeSuccess: 100},
	},
	{
		shape: "retry at a gateway", runtime: metrics.VLLMRouter, how: "0.1.17: six requests failed, after twelve attempts more",
		before: "vllm_router/v0.1.17-429.prom", after: "vllm_router/v0.1.17-all500.prom", client: client{failed: 6},
		want: ends{metrics.OutcomeError: 6},
	},
	{
		shape: "retry at a gateway", runtime: metrics.VLLM, how: "ten attempts fail here, and a gateway repeats them elsewhere",
		counts: times(ten, vllm500, vllmEnded, vllmError),
		client: client{good: 100}, want: ends{metrics.OutcomeStop: nine, metrics.OutcomeError: ten}, is: upper,
		why: "the engine counts each attempt; if the gateway counts requests, only its availability alerts",
	},

	{
		runtime: metrics.VLLMRouter, how: "0.1.17", after: "vllm_router/v0.1.17-load.prom", client: client{good: 26},
		want: ends{metrics.OutcomeSuccess: 26},
	},
	{
		runtime: metrics.SMG, how: "sglang-router 0.3.2", after: "smg/sglang-router-v0.3.2-load.prom", client: client{good: 26},
		want: ends{metrics.OutcomeSuccess: 26},
	},
	{
		runtime: metrics.LiteLLM, how: "1.106.2, and two look-ups of its page without a key", after: "litellm/v1.106.2-load.prom",
		client: client{good: 12},
		want:   ends{metrics.OutcomeSuccess: 12},
	},
}

// TestShapesOfFailure shows each shape of failure to the exporter, as its clients counted it. The exported requests
// and the objective's events give the clients' availability, or bound it, and hide no outage.
func TestShapesOfFailure(t *testing.T) {
	known, seen := readFacts(t), map[string]bool{}
	for _, c := range shapes {
		seen[c.shape] = true
		t.Run(fmt.Sprintf("%s at %s", c.shape, c.runtime), func(t *testing.T) {
			got, s := c.play(t, known, nine)
			if fmt.Sprint(got.ends) != fmt.Sprint(c.want) {
				t.Errorf("%s: the requests are %v, want %v", c.how, got.ends, c.want)
			}
			errors, truth := got.errors(t), share(c.client.failed+c.client.refused, c.client.good)
			switch {
			case c.is == exact && math.Abs(errors-truth) > 0.01:
				t.Errorf("%s: %.4f of the requests failed, the clients saw %.4f", c.how, errors, truth)
			case c.is == exact && got.ends[metrics.OutcomeRejected] != c.client.refused:
				t.Errorf("%s: %v were rejected, the clients saw %v", c.how, got.ends[metrics.OutcomeRejected], c.client.refused)
			case c.is == lower && errors > truth:
				t.Errorf("%s: %.4f failed: more than the clients' %.4f", c.how, errors, truth)
			case c.is == upper && errors < truth:
				t.Errorf("%s: %.4f failed: fewer than the clients' %.4f", c.how, errors, truth)
			case (c.is != exact) != (c.why != "") || (c.is == lower) != (c.shows != ""):
				t.Errorf("%s: a bound says why it is one, and a lower one what shows the rest", c.how)
			}
			if c.shows != "" && !shown(t, s, c.shows) {
				t.Errorf("%s: nothing shows the failures: %s", c.how, c.shows)
			}
			if c.counts == nil || c.client.failed+c.client.refused == 0 {
				return
			}
			outage, s := c.play(t, known, 0) // nothing else ends
			if errors := outage.errors(t); errors < 0.5 && (c.shows == "" || !shown(t, s, c.shows)) {
				t.Errorf("%s: an outage is hidden: %.4f failed", c.how, errors)
			}
		})
	}
	if delete(seen, ""); len(seen) != 12 {
		t.Errorf("%d shapes of failure", len(seen))
	}
}

// exported is the exporter's count of how requests ended.
type exported struct {
	ends        ends
	events, bad float64
}

// errors returns the share of failed requests among the requests that count; the objective's events must have the
// same share.
func (e exported) errors(t *testing.T) float64 {
	t.Helper()
	var good, bad float64
	for o, n := range e.ends {
		if event, isBad := slo.Judge(o); isBad {
			bad += n
		} else if event {
			good += n
		}
	}
	if e.events != good+bad || e.bad != bad {
		t.Errorf("the objective has %v bad of %v, the requests %v of %v", e.bad, e.events, bad, good+bad)
	}
	return share(bad, good)
}

// play shows the row's metrics pages to a collector, over HTTP, and returns its exports for the interval between
// them. On a written metrics page, this many good requests also end in the interval.
func (c *shape) play(t *testing.T, known facts, good float64) (exported, samples) {
	one := c.past
	if one == nil {
		one = goodRequests(c.runtime)
	}
	past := one.of(1000).and(c.counts.of(0))
	first, second := past.page(t, c.runtime, known), past.and(one.of(good)).and(c.counts).page(t, c.runtime, known)
	if c.after != "" {
		first, second = "", readPage(t, c.after)
	}
	if c.before != "" {
		first = readPage(t, c.before)
	}
	e := serve(t, first)
	col := collectorWith(t, Config{
		Targets: []TargetConfig{{URL: e.URL}}, Log: discard,
		Objectives: []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")},
	})
	read := func() (exported, samples) {
		s := parse(t, exposition(t, col))
		return exported{endsOf(s), total(t, s, metrics.SLOEvents.Name), total(t, s, metrics.SLOBadEvents.Name)}, s
	}
	var before exported
	if first != "" {
		for range debtLasts + 2 { // until no debt is left
			before, _ = read()
		}
	}
	if c.gone {
		e.Close()
		_, s := read() // of the metrics page, nothing is left
		return exported{ends: ends{}}, s
	}
	e.show(second)
	after, s := read()
	for o, n := range before.ends {
		if after.ends[o] -= n; after.ends[o] == 0 {
			delete(after.ends, o)
		}
	}
	after.events, after.bad = after.events-before.events, after.bad-before.bad
	return after, s
}

// share is the bad share of events; 0 if there were none.
func share(bad, good float64) float64 { return bad / max(1, bad+good) }

// shown reports whether the exposition satisfies an expression: a selector, a comparison and a number.
func shown(t *testing.T, s samples, expression string) bool {
	var selector, comparison string
	var n float64
	if _, err := fmt.Sscanf(expression, "%s %s %g", &selector, &comparison, &n); err != nil {
		t.Fatal(err)
	}
	sum := total(t, s, selector)
	return comparison == "==" && len(s.get(t, selector)) > 0 && sum == n || comparison == ">=" && sum >= n
}

// TestShapesAreDocumented checks that docs/objectives.md has the table of this file.
func TestShapesAreDocumented(t *testing.T) {
	var order []string
	at := map[string]map[bound][]string{}
	for _, c := range shapes {
		if c.shape == "" {
			continue
		}
		if at[c.shape] == nil {
			order = append(order, c.shape)
			at[c.shape] = map[bound][]string{}
		}
		where := string(c.runtime)
		if c.is != exact {
			where += ": " + c.why
		}
		if !slices.Contains(at[c.shape][c.is], where) {
			at[c.shape][c.is] = append(at[c.shape][c.is], where)
		}
	}
	table := "| what happens | within 1% of the clients' count | counts too few errors | counts too many |\n|---|---|---|---|\n"
	for _, s := range order {
		table += fmt.Sprintf("| %s | %s | %s | %s |\n", s, strings.Join(at[s][exact], ", "), strings.Join(at[s][lower], "; "),
			strings.Join(at[s][upper], "; "))
	}
	docs, err := os.ReadFile("../../docs/objectives.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(docs), table) {
		t.Errorf("docs/objectives.md has not\n%s", table)
	}
}
