package drill

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// SGLang simulates SGLang 0.5.16 (python/sglang/srt/observability/metrics_collector.py). Metrics of its tokenizer
// process have the model's name as a label. Metrics of its scheduler also have the ranks. Token counters increase when
// a request ends, and realtime counters increase while it runs.
type SGLang struct {
	*page
	running, queued, usage, used, available, acceptRate, acceptLength prometheus.Gauge
	prompt, generated, cached, requests, aborted, retracted           prometheus.Counter
	realtime, responses, passes                                       *prometheus.CounterVec
	active                                                            *prometheus.GaugeVec
	ttft, e2e, tpot, queue, prefill, promptLength, outputLength       prometheus.Histogram
	itl                                                               *repeated
	capacity                                                          float64
}

var (
	sglangTTFT  = []float64{.1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400}
	sglangITL   = []float64{.002, .004, .006, .008, .01, .015, .02, .025, .03, .035, .04, .06, .08, .1, .2, .4, .6, .8, 1, 2, 4, 6, 8}
	sglangE2E   = []float64{.1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400}
	sglangQueue = []float64{
		0, .001, .005, .01, .05, .1, .2, .5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300,
		400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000,
	}
	sglangTokens = []float64{
		100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 12500, 15000, 17500,
		20000, 22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000, 100000, 200000, 300000, 400000, 600000, 800000, 1000000, 1100000,
	}
	sglangStage = prometheus.ExponentialBuckets(.001, 1.62, 30)
)

// NewSGLang builds the engine's metrics and metadata.
func NewSGLang(p Profile) *SGLang {
	pg := newPage(prometheus.Labels{"model_name": p.Model}, "/metrics")
	scheduler := pg.with("engine_type", "unified").with("moe_ep_rank", "0").with("pp_rank", "0").with("tp_rank", "0")
	s := &SGLang{
		page:    pg,
		running: scheduler.gauge("sglang:num_running_reqs"), queued: scheduler.gauge("sglang:num_queue_reqs"),
		usage: scheduler.gauge("sglang:token_usage"), used: scheduler.gauge("sglang:kv_used_tokens"),
		available:  scheduler.gauge("sglang:kv_available_tokens"),
		acceptRate: scheduler.gauge("sglang:spec_accept_rate"), acceptLength: scheduler.gauge("sglang:spec_accept_length"),
		prompt: pg.counter("sglang:prompt_tokens_total"), generated: pg.counter("sglang:generation_tokens_total"),
		cached: pg.with("cache_source", "device").counter("sglang:cached_tokens_total"), requests: pg.counter("sglang:num_requests_total"),
		aborted: pg.counter("sglang:num_aborted_requests_total"), retracted: scheduler.counter("sglang:num_retracted_requests_total"),
		realtime: scheduler.counters("sglang:realtime_tokens_total", "mode"), passes: scheduler.counters("sglang:cuda_graph_passes_total",
			"mode"),
		responses: (&page{registry: pg.registry}).counters("sglang:http_responses_total", "endpoint", "status_code", "method"),
		ttft:      pg.histogram("sglang:time_to_first_token_seconds", sglangTTFT), e2e: pg.histogram("sglang:e2e_request_latency_seconds",
			sglangE2E),
		queue: scheduler.histogram("sglang:queue_time_seconds", sglangQueue), prefill: scheduler.with("stage", "prefill_forward").
			histogram("sglang:per_stage_req_latency_seconds", sglangStage),
		promptLength: pg.histogram("sglang:prompt_tokens_histogram", sglangTokens),
		outputLength: pg.histogram("sglang:generation_tokens_histogram", sglangTokens),
		itl:          pg.repeated("sglang:inter_token_latency_seconds", sglangITL), capacity: float64(p.KVBlocks() * blockTokens),
	}
	s.tpot = pg.histogram("sglang:request_time_per_output_token_seconds", sglangITL)
	s.active = register(pg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sglang:http_requests_active"}, []string{"endpoint", "method"}))
	scheduler.with("pid", "4711").gauge("sglang:num_retracted_reqs")
	scheduler.gauge("sglang:kv_evictable_tokens")
	scheduler.gauge("sglang:cache_hit_rate").Set(0) // covers only the last batch, so it is useless
	scheduler.gauge("sglang:max_total_num_tokens").Set(s.capacity)
	scheduler.gauge("sglang:num_pages").Set(s.capacity)
	scheduler.gauge("sglang:page_size").Set(1)
	scheduler.gauge("sglang:context_len").Set(float64(p.maxModelLen()))
	scheduler.gauge("sglang:engine_startup_time").Set(41)
	pg.document("/get_server_info", p.serverInfo())
	pg.document("/server_info", p.serverInfo())
	pg.document("/v1/models", map[string]any{"data": []any{map[string]any{
		"id": p.Model, "owned_by": "sglang",
		"max_model_len": p.maxModelLen(),
	}}})
	return s
}

// FirstToken implements Observer.
func (s *SGLang) FirstToken(r *Request) {
	s.ttft.Observe((r.FirstToken - r.Arrival).Seconds())
	s.queue.Observe((r.Scheduled - r.Arrival).Seconds())
	s.prefill.Observe((r.FirstToken - r.Scheduled).Seconds())
	s.realtime.WithLabelValues("prefill_compute").Add(r.Prompt - r.Cached)
	s.realtime.WithLabelValues("prefill_cache").Add(r.Cached)
}

// Decoded implements Observer. If a step has several tokens per request, the time between tokens is a part of the
// step's time.
func (s *SGLang) Decoded(d Decoded) {
	s.itl.Observe(d.Took.Seconds()*float64(d.Requests)/float64(d.Tokens), d.Tokens)
	s.realtime.WithLabelValues("decode").Add(float64(d.Tokens))
	s.passes.WithLabelValues("decode_cuda_graph").Inc()
	if d.Drafted > 0 {
		s.acceptRate.Set(float64(d.Accepted) / float64(d.Drafted))
		s.acceptLength.Set(float64(d.Tokens) / float64(d.Requests))
	}
}

// Preempted implements Observer.
func (s *SGLang) Preempted() { s.retracted.Inc() }

// Finished implements Observer.
func (s *SGLang) Finished(r *Request) {
	if r.Rejected { // the request never reached the engine
		status := http.StatusInternalServerError
		if r.Full { // --max-queued-requests
			status = http.StatusServiceUnavailable
		}
		s.respond(status)
		return
	}
	if r.Aborted {
		s.aborted.Inc()
		if r.FirstToken == 0 { // the request never ran; the server answers although the client has left
			s.respond(http.StatusBadRequest)
			return
		}
	}
	s.requests.Inc()
	if r.Failed {
		s.respond(http.StatusInternalServerError)
	} else {
		s.respond(http.StatusOK)
	}
	output := r.Output
	if r.Aborted {
		output = r.Emitted
	}
	if !r.Aborted && r.Output > 1 {
		s.tpot.Observe((r.Done - r.FirstToken).Seconds() / (r.Output - 1))
	}
	s.prompt.Add(r.Prompt)
	s.cached.Add(r.Cached)
	s.generated.Add(output)
	s.promptLength.Observe(r.Prompt)
	s.outputLength.Observe(output)
	s.e2e.Observe((r.Done - r.Arrival).Seconds())
}

// Open implements Observer. The HTTP server also counts requests that the scheduler does not know yet.
func (s *SGLang) Open(requests int, _ time.Duration) {
	s.active.WithLabelValues("/v1/chat/completions", http.MethodPost).Set(float64(requests))
}

func (s *SGLang) respond(status int) {
	s.responses.WithLabelValues("/v1/chat/completions", strconv.Itoa(status), http.MethodPost).Inc()
}

// State implements Observer.
func (s *SGLang) State(running, waiting int, kv float64) {
	s.running.Set(float64(running))
	s.queued.Set(float64(waiting))
	s.usage.Set(kv)
	s.used.Set(kv * s.capacity)
	s.available.Set((1 - kv) * s.capacity)
}
