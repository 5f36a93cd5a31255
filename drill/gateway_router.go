package drill

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// SGLangRouter simulates the metrics of sglang-router 0.3.2, as measured. It counts each request when it arrives,
// whatever its outcome. Only its counter of answers by status shows how a request ended. Its durations end when the
// header of the answer arrives.
type SGLangRouter struct {
	*page
	arrived, received, exhausted prometheus.Counter
	responses, upstream          *prometheus.CounterVec
	routed, took                 prometheus.Histogram
	circuit                      *prometheus.GaugeVec
	out                          map[string]time.Duration // when each circuit closes
}

var smgSeconds = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 45, 60, 90, 120, 180, 240}

const (
	// smgHeader is the time until the header of a stream arrives. It is short, because vLLM sends the header before it
	// computes. It is an assumption.
	smgHeader = 5 * time.Millisecond
	// smgOpen is how long a circuit stays open. It is the default of --cb-timeout-duration-secs.
	smgOpen = time.Minute
)

// NewSGLangRouter builds the metrics of a router in front of one model.
func NewSGLangRouter(model string, hosts []string) *SGLangRouter {
	p := newPage(prometheus.Labels{}, "/metrics")
	router := p.with("router_type", "http")
	routed := router.with("backend_type", "regular").with("connection_mode", "http").with("model", model).with("endpoint", "chat")
	server := p.with("method", http.MethodPost).with("path", chatRoute)
	worker := func(name string) *prometheus.GaugeVec {
		return register(p, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name}, []string{"worker"}))
	}
	s := &SGLangRouter{
		page:      p,
		arrived:   routed.with("streaming", "true").counter("smg_router_requests_total"),
		received:  server.counter("smg_http_requests_total"),
		exhausted: p.with("worker_type", "regular").with("endpoint", "chat").counter("smg_worker_retries_exhausted_total"),
		responses: p.counters("smg_http_responses_total", "status_code", "error_code"),
		upstream:  router.counters("smg_router_upstream_responses_total", "status_code", "error_code"),
		routed:    routed.histogram("smg_router_request_duration_seconds", smgSeconds),
		took:      server.histogram("smg_http_request_duration_seconds", smgSeconds),
		circuit:   worker("smg_worker_cb_state"),
		out:       map[string]time.Duration{},
	}
	health := worker("smg_worker_health")
	for _, host := range hosts {
		health.WithLabelValues("http://" + host).Set(1)
		s.circuit.WithLabelValues("http://" + host).Set(0)
	}
	pool := p.with("worker_type", "regular").with("connection_mode", "http").with("model", model)
	pool.gauge("smg_worker_pool_size").Set(float64(len(hosts)))
	return s
}

// Arrived implements Gateway.
func (s *SGLangRouter) Arrived() {
	s.arrived.Inc()
	s.received.Inc()
}

// Answered implements Gateway. It is called after all retries, if the router has no worker left, or has reached none.
func (s *SGLangRouter) Answered(status int) {
	code := "call_upstream_request_error"
	if status == http.StatusServiceUnavailable {
		code = "no_available_workers"
	}
	s.fail(status, code)
}

// Limited implements Gateway, with --max-concurrent-requests. The HTTP server refuses the request before it reaches the
// router, so the router's own metrics do not count it.
func (s *SGLangRouter) Limited() {
	s.received.Inc()
	s.responses.WithLabelValues(strconv.Itoa(http.StatusTooManyRequests), "").Inc()
	s.took.Observe(smgHeader.Seconds())
}

// fail counts a failure after all retries. If the worker itself failed the request, code is empty.
func (s *SGLangRouter) fail(status int, code string) {
	s.exhausted.Inc()
	s.respond(status, code)
	s.took.Observe(smgHeader.Seconds())
}

func (s *SGLangRouter) respond(status int, code string) {
	for _, to := range []*prometheus.CounterVec{s.upstream, s.responses} {
		to.WithLabelValues(strconv.Itoa(status), code).Inc()
	}
}

// Tries implements Gateway.
func (s *SGLangRouter) Tries(host string, now time.Duration) bool { return now >= s.out[host] }

// NoneLeft implements Gateway.
func (s *SGLangRouter) NoneLeft() int {
	s.Answered(http.StatusServiceUnavailable)
	return http.StatusServiceUnavailable
}

// Refused implements Gateway. The router tries another worker.
func (s *SGLangRouter) Refused(host string, now time.Duration) int {
	s.out[host] = now + smgOpen
	s.circuit.WithLabelValues("http://" + host).Set(1)
	return 0
}

// Unanswered implements Gateway. It is an assumption that the request is not retried.
func (s *SGLangRouter) Unanswered(string, time.Duration) {
	s.fail(http.StatusGatewayTimeout, "call_upstream_request_error")
}

// Before implements Gateway.
func (s *SGLangRouter) Before(o Observer, host string) Observer { return behindRouter{o, s, host} }

// behindRouter implements Observer for one worker.
type behindRouter struct {
	Observer
	router *SGLangRouter
	host   string
}

// FirstToken implements Observer.
func (b behindRouter) FirstToken(r *Request) {
	b.header()
	b.Observer.FirstToken(r)
}

// header counts an answer when its header arrives with status 200. The router does not count how the answer ends.
func (b behindRouter) header() {
	b.router.respond(http.StatusOK, "")
	b.router.routed.Observe(smgHeader.Seconds())
	b.router.took.Observe(smgHeader.Seconds())
	b.router.circuit.WithLabelValues("http://" + b.host).Set(0)
}

// Finished implements Observer.
func (b behindRouter) Finished(r *Request) {
	switch {
	case r.Rejected, r.Failed && r.FirstToken == 0:
		b.router.fail(http.StatusInternalServerError, "")
	case r.FirstToken == 0:
		b.header()
	}
	b.Observer.Finished(r)
}
