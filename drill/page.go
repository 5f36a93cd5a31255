package drill

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// page is the HTTP server of a simulated engine. It serves the engine's metrics and metadata documents.
type page struct {
	registry *prometheus.Registry
	mux      *http.ServeMux
	labels   prometheus.Labels // on every series
	ranks    prometheus.Gatherers
	clients  connections
}

// connections counts the connections of clients to a server. Each open request uses a connection, and clients keep some
// connections for later requests.
type connections struct {
	pool float64
	at   time.Duration
}

// keepAlive is the time constant with which clients' pools of idle connections shrink. It is an assumption.
const keepAlive = 5 * time.Minute

// hold updates the number of connections. requests is the number of open requests.
func (c *connections) hold(requests int, now time.Duration) {
	c.pool = max(float64(requests), c.pool*math.Exp(-max(0, now-c.at).Seconds()/keepAlive.Seconds()))
	c.at = now
}

func (c *connections) count() int { return int(math.Round(c.pool)) }

func newPage(labels prometheus.Labels, path string) *page {
	p := &page{registry: prometheus.NewRegistry(), mux: http.NewServeMux(), labels: labels}
	p.mux.Handle("GET "+path, promhttp.HandlerFor(p, promhttp.HandlerOpts{DisableCompression: true}))
	return p
}

// Gather implements prometheus.Gatherer. It returns the metrics.
func (p *page) Gather() ([]*dto.MetricFamily, error) {
	return append(prometheus.Gatherers{p.registry}, p.ranks...).Gather()
}

// Join adds another rank to the metrics page of an engine's first data-parallel rank.
func (p *page) Join(rank prometheus.Gatherer) { p.ranks = append(p.ranks, rank) }

// with returns a view of the same metrics page. Metrics that are added through this view have an additional label.
func (p *page) with(name, value string) *page {
	more := maps.Clone(p.labels)
	more[name] = value
	return &page{registry: p.registry, mux: p.mux, labels: more}
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// Computed implements Observer for engines that report nothing about their steps.
func (p *page) Computed(Step) {}

// Open implements Observer for engines that do not report the open requests of their server. It updates the
// connections, which the kernel shows.
func (p *page) Open(requests int, now time.Duration) { p.clients.hold(requests, now) }

// Connections returns the number of connections at the server, including the exporter's own.
func (p *page) Connections() int { return 1 + p.clients.count() }

// Adapted implements Observer for engines that report nothing about adapters.
func (*page) Adapted([]int, time.Duration) {}

// Moved implements Observer for engines that store no KV cache outside the GPU.
func (p *page) Moved(Move) {}

func (p *page) document(path string, v any) {
	p.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // the client has left
	})
}

func register[C prometheus.Collector](p *page, c C) C {
	p.registry.MustRegister(c)
	return c
}

func (p *page) gauge(name string) prometheus.Gauge {
	return register(p, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, ConstLabels: p.labels}))
}

func (p *page) counter(name string) prometheus.Counter {
	return register(p, prometheus.NewCounter(prometheus.CounterOpts{Name: name, ConstLabels: p.labels}))
}

func (p *page) counters(name string, labels ...string) *prometheus.CounterVec {
	return register(p, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, ConstLabels: p.labels}, labels))
}

func (p *page) histogram(name string, buckets []float64) prometheus.Histogram {
	return register(p, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, ConstLabels: p.labels, Buckets: buckets}))
}

func (p *page) histograms(name string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(p, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, ConstLabels: p.labels, Buckets: buckets}, labels))
}
