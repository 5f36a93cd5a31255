package drill

import (
	"github.com/prometheus/client_golang/prometheus"
)

// TGI simulates Text Generation Inference 3 (router/src/server.rs). Its metrics have no model label and no unit
// suffixes. The bounds of durations are 0.15 ms times powers of 1.5. The bounds of lengths are multiples of a hundredth
// of the limit.
type TGI struct {
	*page
	queueSize, batchSize                            prometheus.Gauge
	count, success                                  prometheus.Counter
	failure                                         *prometheus.CounterVec
	duration, queue, inference, mean, input, output prometheus.Histogram
	batch                                           *prometheus.HistogramVec
	batches                                         *prometheus.CounterVec
}

// NewTGI builds the engine's metrics and metadata.
func NewTGI(p Profile) *TGI {
	pg := newPage(nil, "/metrics")
	durations := prometheus.ExponentialBuckets(0.00015, 1.5, 35)
	lengths := prometheus.LinearBuckets(81.92, 81.92, 100) // max_total_tokens 8192
	t := &TGI{
		page: pg, queueSize: pg.gauge("tgi_queue_size"), batchSize: pg.gauge("tgi_batch_current_size"),
		count: pg.counter("tgi_request_count"), success: pg.counter("tgi_request_success"), failure: pg.counters("tgi_request_failure", "err"),
		duration: pg.histogram("tgi_request_duration", durations), queue: pg.histogram("tgi_request_queue_duration", durations),
		inference: pg.histogram("tgi_request_inference_duration", durations), mean: pg.histogram("tgi_request_mean_time_per_token_duration",
			durations),
		input: pg.histogram("tgi_request_input_length", lengths), output: pg.histogram("tgi_request_generated_tokens", lengths),
		batch: pg.histograms("tgi_batch_inference_duration", durations, "method"), batches: pg.counters("tgi_batch_inference_count", "method"),
	}
	pg.document("/info", map[string]any{
		"model_id": p.Model, "model_sha": "0e9e39f249a16976918f6564b8830bc894c89659", "version": p.release("3.3.7"),
		"docker_label":            "sha-24bb6c0",
		"max_concurrent_requests": p.MaxQueue, "max_input_tokens": 4096, "max_total_tokens": 8192,
	})
	return t
}

// FirstToken implements Observer.
func (t *TGI) FirstToken(r *Request) {
	t.count.Inc()
	t.input.Observe(r.Prompt)
}

// Computed implements Observer. TGI counts a step with new requests as a prefill, even if other requests decode in it
// (backends/v3/src/backend.rs).
func (t *TGI) Computed(s Step) {
	method := "decode"
	if s.Begun > 0 {
		method = "prefill"
	}
	t.batches.WithLabelValues(method).Inc()
	t.batch.WithLabelValues(method).Observe(s.Took.Seconds())
}

// Decoded implements Observer.
func (t *TGI) Decoded(Decoded) {}

// Preempted implements Observer. TGI reserves all blocks that a request may need, and never preempts.
func (t *TGI) Preempted() {}

// Finished implements Observer.
func (t *TGI) Finished(r *Request) {
	if r.Aborted { // the server drops the request of a client that has left
		return
	}
	if r.Full { // max_concurrent_requests
		t.failure.WithLabelValues("overloaded").Inc()
		return
	}
	if r.Failed || r.Rejected {
		t.failure.WithLabelValues("generation").Inc()
		return
	}
	t.success.Inc()
	t.duration.Observe((r.Done - r.Arrival).Seconds())
	t.queue.Observe((r.Scheduled - r.Arrival).Seconds())
	t.inference.Observe((r.Done - r.Scheduled).Seconds())
	t.mean.Observe((r.Done - r.Scheduled).Seconds() / r.Output)
	t.output.Observe(r.Output)
}

// State implements Observer.
func (t *TGI) State(running, waiting int, _ float64) {
	t.batchSize.Set(float64(running))
	t.queueSize.Set(float64(waiting))
}
