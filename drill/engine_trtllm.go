package drill

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// TRTLLM simulates trtllm-serve 1.3 (tensorrt_llm/metrics/collector.py). Its metrics are at /prometheus/metrics, and a
// list of statistics is at /metrics. Every gauge has a label with the pid. Token counters increase when a request ends.
type TRTLLM struct {
	*page
	running, waiting, kv                    prometheus.Gauge
	prompt, generated, cached               prometheus.Counter
	drafted, accepted                       prometheus.Counter // nil without speculation
	done, failed                            *prometheus.CounterVec
	ttft, tpot, e2e, queue, prefill, decode prometheus.Histogram
}

// NewTRTLLM builds the engine's metrics and metadata.
func NewTRTLLM(p Profile) *TRTLLM {
	pg := newPage(prometheus.Labels{"model_name": p.Model, "engine_type": "pytorch"}, "/prometheus/metrics")
	pid := pg.with("pid", "4711")
	t := &TRTLLM{
		page:    pg,
		running: pid.gauge("trtllm_num_requests_running"), waiting: pid.gauge("trtllm_num_requests_waiting"),
		kv:     pid.gauge("trtllm_kv_cache_utilization"),
		prompt: pg.counter("trtllm_prompt_tokens_total"), generated: pg.counter("trtllm_generation_tokens_total"),
		cached: pg.counter("trtllm_prompt_cached_tokens_total"),
		done:   pg.counters("trtllm_request_success_total", "finished_reason"), failed: pg.counters("trtllm_request_error_total", "http_code"),
		ttft: pg.histogram("trtllm_time_to_first_token_seconds", vllmTTFT), tpot: pg.histogram("trtllm_time_per_output_token_seconds", vllmITL),
		e2e: pg.histogram("trtllm_e2e_request_latency_seconds", vllmLong), queue: pg.histogram("trtllm_request_queue_time_seconds", vllmLong),
		prefill: pg.histogram("trtllm_request_prefill_time_seconds", vllmTTFT), decode: pg.histogram("trtllm_request_decode_time_seconds",
			vllmLong),
	}
	if p.Draft > 0 {
		t.drafted, t.accepted = pg.counter("trtllm_spec_decode_num_draft_tokens_total"),
			pg.counter("trtllm_spec_decode_num_accepted_tokens_total")
	}
	pid.gauge("trtllm_kv_cache_max_blocks").Set(float64(p.KVBlocks()*blockTokens) / 32)
	pid.gauge("trtllm_kv_cache_tokens_per_block").Set(32)
	p.configInfo(pid)
	pg.document("/version", map[string]any{"version": p.release("1.3.0")})
	pg.document("/v1/models", map[string]any{"data": []any{map[string]any{"id": p.Model, "owned_by": "tensorrt_llm"}}})
	pg.mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte("[]"))
	})
	return t
}

// FirstToken implements Observer.
func (t *TRTLLM) FirstToken(r *Request) { t.ttft.Observe((r.FirstToken - r.Arrival).Seconds()) }

// Decoded implements Observer. The engine does not report the time between tokens.
func (t *TRTLLM) Decoded(d Decoded) {
	if t.drafted != nil {
		t.drafted.Add(float64(d.Drafted))
		t.accepted.Add(float64(d.Accepted))
	}
}

// Preempted implements Observer. The engine does not report preemptions.
func (t *TRTLLM) Preempted() {}

// Finished implements Observer.
func (t *TRTLLM) Finished(r *Request) {
	if r.Rejected {
		status := "500"
		if r.Full {
			status = "503"
		}
		t.failed.WithLabelValues(status).Inc()
		return
	}
	if r.Hung { // only requests in the core count
		return
	}
	if r.Aborted {
		t.done.WithLabelValues("cancelled").Inc()
		return
	}
	reason := "stop"
	if r.Truncated {
		reason = "length"
	}
	t.done.WithLabelValues(reason).Inc()
	t.prompt.Add(r.Prompt)
	t.cached.Add(min(r.Cached, r.Prompt))
	t.generated.Add(r.Output)
	t.e2e.Observe((r.Done - r.Arrival).Seconds())
	t.queue.Observe((r.Scheduled - r.Arrival).Seconds())
	t.prefill.Observe((r.FirstToken - r.Scheduled).Seconds())
	t.decode.Observe((r.Done - r.FirstToken).Seconds())
	if r.Output > 1 {
		t.tpot.Observe((r.Done - r.FirstToken).Seconds() / (r.Output - 1))
	}
}

// State implements Observer.
func (t *TRTLLM) State(running, waiting int, kv float64) {
	t.running.Set(float64(running))
	t.waiting.Set(float64(waiting))
	t.kv.Set(kv)
}
