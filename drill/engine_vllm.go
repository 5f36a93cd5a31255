package drill

import (
	"github.com/prometheus/client_golang/prometheus"
)

// VLLM is a simulated vLLM of about release 0.16: names, labels and bucket bounds are those of
// vllm/v1/metrics/loggers.py.
type VLLM struct {
	*page
	running, waiting, kv                          prometheus.Gauge
	prompt, generated, queries, hits, preemptions prometheus.Counter
	done                                          *prometheus.CounterVec
	ttft, tpot, e2e, queue, prefill, decode       prometheus.Histogram
	itl                                           *repeated
	drafted, accepted                             prometheus.Counter // nil without speculation
	responses                                     *prometheus.CounterVec
	promptLength, outputLength                    prometheus.Histogram
	step                                          prometheus.Histogram // decoded tokens alone
}

var (
	vllmTTFT   = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	vllmITL    = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	vllmLong   = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	vllmTokens = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000}
)

// NewVLLM builds the engine's page and metadata.
func NewVLLM(p Profile) *VLLM {
	pg := newPage(prometheus.Labels{"model_name": p.Model, "engine": "0"}, "/metrics")
	v := &VLLM{
		page:    pg,
		running: pg.gauge("vllm:num_requests_running"), waiting: pg.gauge("vllm:num_requests_waiting"), kv: pg.gauge("vllm:kv_cache_usage_perc"),
		prompt: pg.counter("vllm:prompt_tokens_total"), generated: pg.counter("vllm:generation_tokens_total"),
		queries: pg.counter("vllm:prefix_cache_queries_total"), hits: pg.counter("vllm:prefix_cache_hits_total"),
		preemptions: pg.counter("vllm:num_preemptions_total"), done: pg.counters("vllm:request_success_total", "finished_reason"),
		ttft: pg.histogram("vllm:time_to_first_token_seconds", vllmTTFT), itl: pg.repeated("vllm:inter_token_latency_seconds", vllmITL),
		tpot: pg.histogram("vllm:request_time_per_output_token_seconds", vllmITL), e2e: pg.histogram("vllm:e2e_request_latency_seconds", vllmLong),
		queue: pg.histogram("vllm:request_queue_time_seconds", vllmLong), prefill: pg.histogram("vllm:request_prefill_time_seconds", vllmLong),
		decode: pg.histogram("vllm:request_decode_time_seconds", vllmLong), promptLength: pg.histogram("vllm:request_prompt_tokens", vllmTokens),
		outputLength: pg.histogram("vllm:request_generation_tokens", vllmTokens),
		step:         pg.histogram("vllm:iteration_tokens_total", []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}),
	}
	for _, reason := range []string{"stop", "length", "abort", "error"} {
		v.done.WithLabelValues(reason)
	}
	v.responses = (&page{registry: pg.registry}).counters("http_requests_total", "method", "status", "handler")
	pg.counter("vllm:external_prefix_cache_queries_total")
	pg.counter("vllm:external_prefix_cache_hits_total")
	pg.counter("vllm:mm_cache_queries_total")
	pg.counter("vllm:mm_cache_hits_total")
	sleepState := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "vllm:engine_sleep_state", ConstLabels: pg.labels}, []string{"sleep_state"})
	sleepState.WithLabelValues("awake").Set(1)
	sleepState.WithLabelValues("weights_offloaded").Set(0)
	sleepState.WithLabelValues("discard_all").Set(0)
	pg.registry.MustRegister(sleepState)
	if p.Draft > 0 {
		v.drafted, v.accepted = pg.counter("vllm:spec_decode_num_draft_tokens_total"), pg.counter("vllm:spec_decode_num_accepted_tokens_total")
	}
	started := register(pg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "process_start_time_seconds"}))
	started.Set(float64(p.Started.UnixMilli()) / 1000)
	pg.document("/version", map[string]any{"version": p.Release})
	pg.document("/v1/models", map[string]any{"data": []any{map[string]any{"id": p.Model, "owned_by": "vllm", "max_model_len": 32768}}})
	return v
}

// FirstToken implements Observer.
func (v *VLLM) FirstToken(r *Request) {
	v.ttft.Observe((r.FirstToken - r.Arrival).Seconds())
	v.prompt.Add(r.Prompt)
	v.queries.Add(r.Prompt)
	v.hits.Add(min(r.Cached, r.Prompt))
	v.generated.Inc()
}

// Decoded implements Observer.
func (v *VLLM) Decoded(d Decoded) {
	v.itl.Observe(d.Took.Seconds(), d.Requests)
	v.step.Observe(float64(d.Tokens))
	v.generated.Add(float64(d.Tokens))
	if v.drafted != nil {
		v.drafted.Add(float64(d.Drafted))
		v.accepted.Add(float64(d.Accepted))
	}
}

// Preempted implements Observer.
func (v *VLLM) Preempted() { v.preemptions.Inc() }

// Finished implements Observer.
func (v *VLLM) Finished(r *Request) {
	if r.Rejected { // by the server, before the engine knew of it
		v.responses.WithLabelValues("POST", "5xx", "/v1/chat/completions").Inc()
		return
	}
	v.responses.WithLabelValues("POST", "2xx", "/v1/chat/completions").Inc() // sent before the first token
	if r.Aborted {                                                           // before its first token: nothing else is observed
		v.done.WithLabelValues("abort").Inc()
		v.e2e.Observe((r.Done - r.Arrival).Seconds())
		return
	}
	reason := "stop"
	switch {
	case r.Failed:
		reason = "error"
	case r.Truncated:
		reason = "length"
	}
	v.done.WithLabelValues(reason).Inc()
	v.e2e.Observe((r.Done - r.Arrival).Seconds())
	v.queue.Observe((r.Scheduled - r.Arrival).Seconds())
	v.prefill.Observe((r.FirstToken - r.Scheduled).Seconds())
	v.decode.Observe((r.Done - r.FirstToken).Seconds())
	if r.Output > 1 {
		v.tpot.Observe((r.Done - r.FirstToken).Seconds() / (r.Output - 1))
	}
	v.promptLength.Observe(r.Prompt)
	v.outputLength.Observe(r.Output)
}

// State implements Observer.
func (v *VLLM) State(running, waiting int, kv float64) {
	v.running.Set(float64(running))
	v.waiting.Set(float64(waiting))
	v.kv.Set(kv)
}
