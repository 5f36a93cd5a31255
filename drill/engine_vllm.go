package drill

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// VLLM simulates vLLM of about release 0.16. Names, labels and bucket bounds are from vllm/v1/metrics/loggers.py. Its
// behaviour when a client leaves, or when its core hangs, was measured on 0.14.1 to 0.32. The HTTP server counts such a
// request, but the histograms and counters of ended requests do not.
type VLLM struct {
	*page
	running, waiting, kv                          prometheus.Gauge
	prompt, generated, queries, hits, preemptions prometheus.Counter
	done                                          *prometheus.CounterVec
	ttft, tpot, e2e, queue, prefill, decode       prometheus.Histogram
	itl                                           *repeated
	drafted, accepted                             prometheus.Counter // nil without speculation
	rank                                          int
	started                                       time.Time
	caches                                        bool // without a prefix cache, the engine counts neither queries nor hits
	promptLength, outputLength, choices           prometheus.Histogram
	server                                        *vllmServer
	step                                          prometheus.Histogram
	stepTokens                                    float64            // of the current step: prompts that the step completed, and outputs
	external, found                               prometheus.Counter // tokens from other engines and tiers
	byReason                                      *prometheus.GaugeVec
	deferred                                      int
	nixl                                          *vllmNIXL      // nil without prefill engines
	offload                                       *vllmOffload   // nil without a tier in host memory
	admission                                     *vllmAdmission // nil without a limit of the queue
	adapters                                      *vllmAdapters  // nil without adapters
}

// vllmAdapters follows vllm:lora_requests_info. Each combination of adapters has a series, whose value is the time of
// the last update.
type vllmAdapters struct {
	info  *prometheus.GaugeVec
	slots string
	zero  float64 // time at which the drill began
}

// vllmAdmission follows release 0.32 with --max-num-queued-reqs. The engine counts each refusal once. It refuses some
// streams with 503. For other streams, the answer has already begun, so the refusal is an error event in the stream.
type vllmAdmission struct {
	rejections prometheus.Counter
	n          int
}

// status returns the HTTP status that the server counts for the next refused stream. A real engine answered 8 of 28
// streams with 503.
func (a *vllmAdmission) status() string {
	a.rejections.Inc()
	a.n++
	if a.n*8/28 > (a.n-1)*8/28 {
		return "5xx"
	}
	return "2xx"
}

// vllmServer is the HTTP server in front of an engine and its ranks. It shows the metrics of its process even if the
// core hangs.
type vllmServer struct {
	responses   *prometheus.CounterVec
	descriptors prometheus.Gauge
	base        int
	open        map[int]int // by rank
	clients     connections
}

// hold updates the number of open requests of a rank, and the number of the process' file descriptors. Each connection
// needs one descriptor.
func (s *vllmServer) hold(rank, requests int, now time.Duration) {
	s.open[rank] = requests
	all := 0
	for _, n := range s.open {
		all += n
	}
	s.clients.hold(all, now)
	s.descriptors.Set(float64(s.base + s.clients.count()))
}

// vllmNIXL follows kv_connector/v1/nixl/stats.py. Its metrics are about the transfers of KV caches to a decode engine.
type vllmNIXL struct {
	took, posted, size, descriptors prometheus.Histogram
	failed                          prometheus.Counter
}

// vllmOffload follows kv_connector/v1/offloading/metrics.py and v1/kv_offload/cpu of release 0.26, with the default
// store_threshold.
type vllmOffload struct {
	loadBytes, loadTime, storeBytes, storeTime, refused prometheus.Counter
	pinned                                              prometheus.Gauge
}

var (
	vllmTTFT   = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	vllmITL    = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	vllmLong   = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	vllmTokens = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000}
	vllmStep   = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	vllmXfer   = []float64{.005, .01, .025, .05, .075, .1, .2, .3, .5, .75, 1, 5}
	vllmPost   = []float64{.001, .005, .01, .025, .05, .075, .1, .2, .3, .5, .75, 1, 5}
	vllmDescs  = []float64{10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000}
)

// NewVLLM builds the engine's metrics and metadata.
func NewVLLM(p Profile) *VLLM {
	pg := newPage(prometheus.Labels{"model_name": p.Model, "engine": strconv.Itoa(p.Rank)}, "/metrics")
	v := &VLLM{
		page:    pg,
		running: pg.gauge("vllm:num_requests_running"), waiting: pg.gauge("vllm:num_requests_waiting"), kv: pg.gauge("vllm:kv_cache_usage_perc"),
		prompt: pg.counter("vllm:prompt_tokens_total"), generated: pg.counter("vllm:generation_tokens_total"),
		queries: pg.counter("vllm:prefix_cache_queries_total"), hits: pg.counter("vllm:prefix_cache_hits_total"),
		preemptions: pg.counter("vllm:num_preemptions_total"), done: pg.counters("vllm:request_success_total", "finished_reason"),
		ttft: pg.histogram("vllm:time_to_first_token_seconds", vllmTTFT), itl: pg.repeated("vllm:inter_token_latency_seconds", vllmITL),
		tpot: pg.histogram("vllm:request_time_per_output_token_seconds", vllmITL), e2e: pg.histogram("vllm:e2e_request_latency_seconds",
			vllmLong),
		queue: pg.histogram("vllm:request_queue_time_seconds", vllmLong), prefill: pg.histogram("vllm:request_prefill_time_seconds", vllmLong),
		decode: pg.histogram("vllm:request_decode_time_seconds", vllmLong), promptLength: pg.histogram("vllm:request_prompt_tokens", vllmTokens),
		outputLength: pg.histogram("vllm:request_generation_tokens", vllmTokens), choices: pg.histogram("vllm:request_params_n",
			[]float64{1, 2, 5, 10, 20}),
		rank: p.Rank, started: p.Started, caches: !p.NoPrefixCache,
	}
	for _, reason := range []string{"stop", "length", "abort", "error", "repetition"} {
		v.done.WithLabelValues(reason)
	}
	server := &page{registry: pg.registry}
	if p.Rank > 0 {
		server.registry = prometheus.NewRegistry() // rank 0 shows the series
	}
	v.server = &vllmServer{
		responses: server.counters("http_requests_total", "method", "status", "handler"), descriptors: server.gauge("process_open_fds"),
		base: cmp.Or(p.Descriptors, 34), open: map[int]int{},
	}
	v.server.descriptors.Set(float64(v.server.base))
	v.external, v.found = pg.counter("vllm:external_prefix_cache_queries_total"), pg.counter("vllm:external_prefix_cache_hits_total")
	pg.counter("vllm:mm_cache_queries_total")
	pg.counter("vllm:mm_cache_hits_total")
	v.step = pg.histogram("vllm:iteration_tokens_total", vllmStep)
	sleepState := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "vllm:engine_sleep_state", ConstLabels: pg.labels},
		[]string{"sleep_state"})
	sleepState.WithLabelValues("awake").Set(1)
	sleepState.WithLabelValues("weights_offloaded").Set(0)
	sleepState.WithLabelValues("discard_all").Set(0)
	pg.registry.MustRegister(sleepState)
	if p.Draft > 0 {
		v.drafted, v.accepted = pg.counter("vllm:spec_decode_num_draft_tokens_total"), pg.counter("vllm:spec_decode_num_accepted_tokens_total")
	}
	v.moves(p)
	if p.MaxQueue > 0 {
		rejections := register(pg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name:        "vllm:admission_rejections_total",
			ConstLabels: prometheus.Labels{"model_name": p.Model},
		}, []string{"reason"}))
		rejections.WithLabelValues("max_num_queued_tokens")
		v.admission = &vllmAdmission{rejections: rejections.WithLabelValues("max_num_queued_reqs")}
	}
	if p.Adapters > 0 {
		v.adapters = &vllmAdapters{slots: strconv.Itoa(p.Adapters), info: prometheus.NewGaugeVec(
			prometheus.GaugeOpts{Name: "vllm:lora_requests_info"}, []string{"max_lora", "running_lora_adapters", "waiting_lora_adapters"})}
		pg.registry.MustRegister(v.adapters.info)
	}
	pg.info("vllm:cache_config_info", p.cacheConfig())
	started := register(server, prometheus.NewGauge(prometheus.GaugeOpts{Name: "process_start_time_seconds"}))
	started.Set(float64(p.Started.UnixMilli()) / 1000)
	pg.document("/version", map[string]any{"version": p.Release})
	pg.document("/v1/models", map[string]any{"data": []any{map[string]any{
		"id": p.Model, "owned_by": "vllm", "root": p.path(),
		"parent": nil, "max_model_len": p.maxModelLen(),
	}}})
	return v
}

// moves adds the metrics of engines that send KV cache to other engines, or keep it in the host's memory.
func (v *VLLM) moves(p Profile) {
	pg := v.page
	if p.Prefilled {
		v.nixl = &vllmNIXL{
			took: pg.histogram("vllm:nixl_xfer_time_seconds", vllmXfer), posted: pg.histogram("vllm:nixl_post_time_seconds", vllmPost),
			size:        pg.histogram("vllm:nixl_bytes_transferred", prometheus.ExponentialBuckets(2048, 4, 12)),
			descriptors: pg.histogram("vllm:nixl_num_descriptors", vllmDescs), failed: pg.counter("vllm:nixl_num_failed_transfers_total"),
		}
		pg.counter("vllm:nixl_num_failed_notifications_total")
		pg.counter("vllm:nixl_num_kv_expired_reqs_total") // only prefill engines count these
	}
	if p.Host > 0 {
		v.offload = &vllmOffload{
			loadBytes: pg.counter("vllm:kv_offload_load_bytes_total"), loadTime: pg.counter("vllm:kv_offload_load_time_total"),
			storeBytes: pg.counter("vllm:kv_offload_store_bytes_total"), storeTime: pg.counter("vllm:kv_offload_store_time_total"),
			refused: pg.counter("vllm:kv_offload_allocation_failure_total"), pinned: pg.gauge("vllm:kv_offload_cpu_cache_usage_perc"),
		}
	}
	if v.nixl != nil || v.offload != nil || p.Release >= "0.26" {
		v.byReason = register(pg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name:        "vllm:num_requests_waiting_by_reason",
			ConstLabels: pg.labels,
		}, []string{"reason"}))
	}
}

// Join adds another data-parallel rank with the same server to the metrics page.
func (v *VLLM) Join(rank *VLLM) {
	v.page.Join(rank)
	rank.server = v.server
}

// Open implements Observer.
func (v *VLLM) Open(requests int, now time.Duration) { v.server.hold(v.rank, requests, now) }

// FirstToken implements Observer.
func (v *VLLM) FirstToken(r *Request) {
	v.ttft.Observe((r.FirstToken - r.Arrival).Seconds())
	v.prompt.Add(r.Prompt)
	if v.caches {
		v.queries.Add(r.Prompt)
		v.hits.Add(min(r.Cached, r.Prompt))
	}
	if v.nixl != nil || v.offload != nil {
		v.external.Add(r.Prompt - r.Cached)
	}
	v.generated.Inc()
	v.stepTokens += r.Prompt + 1
}

// Decoded implements Observer.
func (v *VLLM) Decoded(d Decoded) {
	v.itl.Observe(d.Took.Seconds(), d.Requests)
	v.generated.Add(float64(d.Tokens))
	v.stepTokens += float64(d.Tokens)
	if v.drafted != nil {
		v.drafted.Add(float64(d.Drafted))
		v.accepted.Add(float64(d.Accepted))
	}
}

// Computed implements Observer.
func (v *VLLM) Computed(s Step) { v.deferred = s.Deferred }

// kvLayers is the number of layers of the model. Each layer has its own buffer. NIXL needs a descriptor for each block
// of each layer.
const kvLayers = 32

// vllmSubmit is how long NIXL takes to submit a transfer. It is an assumption.
const vllmSubmit = 2 * time.Millisecond

// Moved implements Observer. The connector counts tokens as found before they arrive, so it also counts lost tokens as
// found.
func (v *VLLM) Moved(m Move) {
	if !m.Store {
		v.found.Add(m.Tokens)
	}
	switch n, o := v.nixl, v.offload; {
	case n != nil && m.Failed:
		n.failed.Inc()
	case n != nil:
		n.took.Observe(m.Took.Seconds())
		n.posted.Observe(vllmSubmit.Seconds())
		n.size.Observe(m.Bytes)
		n.descriptors.Observe(kvLayers * m.Tokens / blockTokens)
	case o != nil:
		o.pinned.Set(m.Pinned)
		switch {
		case m.Failed:
			o.refused.Inc()
		case m.Store:
			o.storeBytes.Add(m.Bytes)
			o.storeTime.Add(m.Took.Seconds())
		default:
			o.loadBytes.Add(m.Bytes)
			o.loadTime.Add(m.Took.Seconds())
		}
	}
}

// Adapted implements Observer. The labels for running and for waiting adapters both list the adapters of running
// requests. vLLM's API server learns the adapters of a waiting request only when the request runs.
func (v *VLLM) Adapted(running []int, now time.Duration) {
	a := v.adapters
	if a.zero == 0 {
		a.zero = float64(v.started.Unix()) - now.Seconds()
	}
	names := make([]string, 0, len(running))
	for _, n := range running {
		names = append(names, "lora-"+strconv.Itoa(n))
	}
	listed := strings.Join(names, ",")
	a.info.WithLabelValues(a.slots, listed, listed).Set(a.zero + now.Seconds())
}

// Preempted implements Observer.
func (v *VLLM) Preempted() { v.preemptions.Inc() }

// Finished implements Observer. If a client leaves, only the counter of HTTP answers increases, whether or not the
// client got tokens. If the process dies, no counter increases.
func (v *VLLM) Finished(r *Request) {
	if r.Cut {
		return
	}
	if r.Rejected { // before the engine computed anything for the request
		status := "5xx"
		if r.Full && v.admission != nil {
			status = v.admission.status()
		}
		v.server.responses.WithLabelValues("POST", status, "/v1/chat/completions").Inc()
		return
	}
	v.server.responses.WithLabelValues("POST", "2xx", "/v1/chat/completions").Inc() // sent before the first token
	if r.Aborted {
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
	v.queue.Observe((r.Scheduled - r.Queued).Seconds())
	v.prefill.Observe((r.FirstToken - r.Scheduled).Seconds())
	v.decode.Observe((r.Done - r.FirstToken).Seconds())
	if r.Output > 1 {
		v.tpot.Observe((r.Done - r.FirstToken).Seconds() / (r.Output - 1))
	}
	v.choices.Observe(1)
	v.promptLength.Observe(r.Prompt)
	v.outputLength.Observe(r.Output)
}

// State implements Observer. A step without output is not observed (v1/engine/async_llm.py).
func (v *VLLM) State(running, waiting int, kv float64) {
	if v.stepTokens > 0 {
		v.step.Observe(v.stepTokens)
		v.stepTokens = 0
	}
	v.running.Set(float64(running))
	v.waiting.Set(float64(waiting))
	v.kv.Set(kv)
	if v.byReason != nil {
		deferred := min(v.deferred, waiting)
		v.byReason.WithLabelValues("deferred").Set(float64(deferred))
		v.byReason.WithLabelValues("capacity").Set(float64(waiting - deferred))
	}
}
