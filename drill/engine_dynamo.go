package drill

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Dynamo simulates the frontend of NVIDIA Dynamo 1.1 with one worker (lib/llm/src/http/service/metrics.rs), from the
// clients' side. Its bounds are rounded logarithms. For the time between tokens, it observes each token with the mean
// of the token's chunk. Its gauge of active requests counts all requests in the HTTP server, running or waiting. When
// its last worker has gone, it answers 503 for a while. Then it forgets the model and answers 404, as measured on
// 1.6.0.
type Dynamo struct {
	*page
	ready                                    prometheus.Gauge
	failures, mistyped                       *prometheus.CounterVec
	lost                                     bool
	lostAt                                   time.Duration // when the last worker went
	active, inflight                         prometheus.Gauge
	started, tokens                          prometheus.Counter
	done                                     *prometheus.CounterVec
	rejected                                 prometheus.Counter
	cancelled                                prometheus.Counter
	duration, ttft, prompt, generated, reuse prometheus.Histogram
	itl                                      *repeated
}

var (
	dynamoTTFT   = []float64{0, .0022, .0047, .01, .022, .047, .1, .22, .47, 1, 2.2, 4.7, 10, 22, 48, 100, 220, 480}
	dynamoITL    = []float64{0, .0019, .0035, .0067, .013, .024, .045, .084, .16, .3, .56, 1.1, 2}
	dynamoLong   = []float64{0, 2, 4, 8, 16, 32, 64, 130, 260, 510}
	dynamoInput  = []float64{0, 100, 210, 430, 870, 1800, 3600, 7400, 15000, 31000, 63000, 130000}
	dynamoOutput = []float64{0, 100, 210, 430, 880, 1800, 3700, 7600, 16000, 32000}
)

// NewDynamo builds the frontend's metrics and metadata.
func NewDynamo(p Profile) *Dynamo {
	pg := newPage(prometheus.Labels{"model": p.Model}, "/metrics")
	endpoint := pg.with("endpoint", "chat_completions")
	stream := endpoint.with("request_type", "stream")
	d := &Dynamo{
		ready:    pg.gauge("dynamo_frontend_model_ready"),
		failures: (&page{registry: pg.registry}).counters("dynamo_frontend_failures_total", "class", "reason"),
		page:     pg, active: pg.gauge("dynamo_frontend_active_requests"), inflight: pg.gauge("dynamo_frontend_inflight_requests"),
		tokens: pg.counter("dynamo_frontend_output_tokens_total"), started: stream.counter("dynamo_frontend_requests_started_total"),
		done:      stream.counters("dynamo_frontend_requests_total", "status", "error_type"),
		rejected:  endpoint.counter("dynamo_frontend_model_rejection_total"),
		cancelled: stream.counter("dynamo_frontend_model_cancellation_total"),
		duration:  pg.histogram("dynamo_frontend_request_duration_seconds", dynamoLong),
		ttft:      pg.histogram("dynamo_frontend_time_to_first_token_seconds", dynamoTTFT),
		itl:       pg.repeated("dynamo_frontend_inter_token_latency_seconds", dynamoITL),
		prompt:    pg.histogram("dynamo_frontend_input_sequence_tokens", dynamoInput),
		generated: pg.histogram("dynamo_frontend_output_sequence_tokens", dynamoOutput),
		reuse:     pg.histogram("dynamo_frontend_cached_tokens", dynamoInput),
	}
	pg.gauge("dynamo_frontend_model_context_length").Set(32768)
	pg.gauge("dynamo_frontend_model_total_kv_blocks").Set(float64(p.KVBlocks()))
	pg.gauge("dynamo_frontend_model_kv_cache_block_size").Set(blockTokens)
	pg.gauge("dynamo_frontend_model_max_num_seqs").Set(float64(p.MaxBatch))
	d.ready.Set(1)
	pg.document("/v1/models", map[string]any{"data": []any{map[string]any{"id": p.Model, "owned_by": "nvidia"}}})
	return d
}

// FirstToken implements Observer.
func (d *Dynamo) FirstToken(r *Request) {
	d.ttft.Observe((r.FirstToken - r.Arrival).Seconds())
	d.prompt.Observe(r.Prompt)
	d.reuse.Observe(r.Cached)
	d.tokens.Inc()
}

// Decoded implements Observer.
func (d *Dynamo) Decoded(s Decoded) {
	d.itl.Observe(s.Took.Seconds()*float64(s.Requests)/float64(s.Tokens), s.Tokens)
	d.tokens.Add(float64(s.Tokens))
}

// Preempted implements Observer. The frontend does not see preemptions.
func (d *Dynamo) Preempted() {}

// Finished implements Observer.
func (d *Dynamo) Finished(r *Request) {
	if d.lost && r.Rejected && !d.unavailable(r.Arrival-d.lostAt) {
		return
	}
	d.started.Inc()
	d.duration.Observe((r.Done - r.Arrival).Seconds())
	switch {
	case r.Cut || d.lost && r.Rejected:
		d.done.WithLabelValues("error", "unavailable").Inc()
		d.failures.WithLabelValues("Unavailable", "backend.unavailable").Inc()
	case r.Full: // with status 529
		d.rejected.Inc()
		d.failures.WithLabelValues("CapacityExhausted", "capacity.pool_exhausted").Inc()
		d.done.WithLabelValues("error", "overload").Inc()
	case r.Aborted:
		d.cancelled.Inc()
		d.done.WithLabelValues("error", "cancelled").Inc()
	case r.Failed || r.Rejected:
		d.failures.WithLabelValues("Internal", "runtime.unclassified").Inc()
		d.done.WithLabelValues("error", "internal").Inc()
	default:
		d.done.WithLabelValues("success", "").Inc()
		d.generated.Observe(r.Output)
	}
}

// dynamoRouted is how long a frontend routes requests for a model after the model's last worker has gone. It is an
// assumption. dynamoKnown is how long the frontend remembers the model. It was measured.
const dynamoRouted, dynamoKnown = time.Second, 5 * time.Second

// unavailable reports whether the frontend's request metrics count a request that arrives some time after the last
// worker has gone. At first, they count it. Later, only a counter of failures counts it. After that, the frontend
// answers 404 and counts nothing.
func (d *Dynamo) unavailable(after time.Duration) bool {
	if after > dynamoRouted && after <= dynamoKnown {
		d.failures.WithLabelValues("Unavailable", "backend.unavailable").Inc()
	}
	return after <= dynamoRouted
}

// LoseWorker removes the frontend's last worker. The model is no longer ready, but the frontend keeps its other series.
func (d *Dynamo) LoseWorker(now time.Duration) {
	d.lost, d.lostAt = true, now
	d.registry.Unregister(d.ready)
}

// Mistype counts requests for a model that does not exist.
func (d *Dynamo) Mistype(requests int) {
	unknown := &page{registry: d.registry, labels: prometheus.Labels{
		"model": "unknown_model", "endpoint": "chat_completions", "request_type": "stream",
	}}
	if d.mistyped == nil {
		d.mistyped = unknown.counters("dynamo_frontend_requests_total", "status", "error_type")
	}
	d.mistyped.WithLabelValues("error", "not_found").Add(float64(requests))
	d.failures.WithLabelValues("NotFound", "request.not_found").Add(float64(requests))
}

// State implements Observer. The frontend does not see the queues and batches of its workers.
func (d *Dynamo) State(int, int, float64) {}

// Open implements Observer.
func (d *Dynamo) Open(requests int, _ time.Duration) {
	d.active.Set(float64(requests))
	d.inflight.Set(float64(requests))
}
