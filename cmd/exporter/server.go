package main

import (
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/collectors/version"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	build "github.com/prometheus/common/version"

	"github.com/llm-node-exporter/llm-node-exporter/cmd/exporter/page"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/discovery"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/probe"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
)

type serverOptions struct {
	metricsPath string
	maxRequests int
	pprof       bool
	lifecycle   bool
}

// server handles the HTTP side of the exporter.
type server struct {
	serverOptions
	log      *slog.Logger
	registry *prometheus.Registry
	self     *self
	slots    chan struct{} // one per scrape in progress; nil means no limit
	engines  atomic.Pointer[engine.Collector]
	probes   *probe.Collector

	loading sync.Mutex
	load    func() (configuration, error)
	found   []engine.TargetConfig // found by discovery
	finder  *discovery.Finder     // nil without discovery

	detach http.Handler // served by the GPU collector; nil without one
}

func newServer(options serverOptions, log *slog.Logger) *server {
	s := &server{serverOptions: options, log: log, registry: prometheus.NewRegistry(), self: &self{}}
	if options.maxRequests > 0 {
		s.slots = make(chan struct{}, options.maxRequests)
	}
	s.probes = probe.New(func(ctx context.Context, address string) (engine.Engine, bool) {
		return s.engines.Load().Look(ctx, address)
	}, log.With("collector", "probe"))
	s.registry.MustRegister(
		s.self,
		s.probes,
		version.NewCollector("llm_exporter"),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return s
}

// reload loads the configuration. If it is invalid, the previous one stays active.
func (s *server) reload() error {
	s.loading.Lock()
	defer s.loading.Unlock()
	configured, err := s.load()
	s.self.loaded(err == nil)
	if err != nil {
		s.log.Error("configuration not loaded", "err", err)
		return err
	}
	s.read(configured.engines)
	s.probes.Use(configured.probes)
	s.log.Info("configuration loaded")
	return nil
}

// discovered replaces the engines found before with targets.
func (s *server) discovered(targets []engine.TargetConfig) {
	s.loading.Lock()
	defer s.loading.Unlock()
	s.found = targets
	s.read(s.engines.Load())
}

// read installs a collector built from the configuration and the discovered engines. A scrape in progress ends with
// the collector it started with.
func (s *server) read(configured *engine.Collector) {
	all, err := configured.With(s.found)
	if err != nil {
		s.log.Warn("some of what was found cannot be a target", "err", err)
	}
	s.engines.Store(all)
}

// ifLifecycle guards a handler that changes what the exporter does: without the flag, anyone who reaches the port
// could call it.
func (s *server) ifLifecycle(h http.Handler) http.Handler {
	switch {
	case !s.lifecycle:
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "switched off: start the exporter with --web.enable-lifecycle, or send it a signal", http.StatusForbidden)
		})
	case h == nil:
		return http.NotFoundHandler()
	}
	return h
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+s.metricsPath, s.metrics)
	ok := func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) }
	mux.HandleFunc("GET /-/healthy", ok)
	mux.HandleFunc("GET /-/ready", ok) // the server listens only after the configuration is loaded
	mux.Handle("POST /-/reload", s.ifLifecycle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := s.reload(); err != nil {
			http.Error(w, "the previous configuration stays in use: "+err.Error(), http.StatusInternalServerError)
		}
	})))
	mux.HandleFunc("GET /engines", s.listEngines)
	mux.Handle("GET /runbooks/", http.StripPrefix("/runbooks", runbooks.Handler()))
	mux.Handle("POST /-/detach", s.ifLifecycle(s.detach))
	if s.pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	mux.Handle("GET /{$}", page.Handler(page.Options{MetricsPath: s.metricsPath, Version: build.Version, Profiles: s.pprof}))
	return mux
}

// metrics serves the exposition: the pages of the engines, scraped now, and the registry.
func (s *server) metrics(w http.ResponseWriter, r *http.Request) {
	if s.slots != nil {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		default:
			http.Error(w, "too many scrapes at once: see --web.max-requests", http.StatusServiceUnavailable)
			return
		}
	}
	ctx, cancel := withScrapeDeadline(r)
	defer cancel()
	start := time.Now()
	engines := s.engines.Load().Scrape(ctx)
	s.self.ran("engine", time.Since(start), engines.Complete())
	families, err := s.registry.Gather()
	if err != nil { // serve what could be gathered
		s.log.Error("metrics left out", "err", err)
	}
	if err := writePage(w, r, families, engines); err != nil {
		s.log.Debug("scraper went away", "err", err)
	}
}

// compressors holds a few compressors for reuse, because each takes most of a megabyte. A sync.Pool would give them
// to the garbage collector between two scrapes.
var compressors = make(chan *gzip.Writer, 2)

func compressor() *gzip.Writer {
	select {
	case z := <-compressors:
		return z
	default:
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only for unknown levels
		return z
	}
}

func keep(z *gzip.Writer) {
	select {
	case compressors <- z:
	default:
	}
}

// writePage writes the families of the registry and the series of the engines, compressed if the client accepts it.
func writePage(w http.ResponseWriter, r *http.Request, families []*dto.MetricFamily, engines io.WriterTo) error {
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	w.Header().Set("Content-Type", string(format))
	w.Header().Set("Vary", "Accept-Encoding")
	var to io.Writer = w
	finish := func() error { return nil }
	if acceptsGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		z := compressor()
		defer keep(z)
		z.Reset(w)
		to, finish = z, z.Close
	}
	encoder := expfmt.NewEncoder(to, format)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return err
		}
	}
	if _, err := engines.WriteTo(to); err != nil {
		return err
	}
	return finish()
}

func acceptsGzip(h http.Header) bool {
	for _, coding := range strings.Split(h.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if (name == "gzip" || name == "*") && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

// withScrapeDeadline ends a scrape shortly before the scraper times out, so that a late engine costs its own series
// and not the whole page.
func withScrapeDeadline(r *http.Request) (context.Context, context.CancelFunc) {
	seconds, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || seconds <= 0 {
		return context.WithCancel(r.Context())
	}
	timeout := time.Duration(seconds * float64(time.Second))
	return context.WithTimeout(r.Context(), timeout-min(timeout/5, 500*time.Millisecond))
}

// self collects the exporter's own metrics.
type self struct {
	mu       sync.Mutex
	duration map[string]time.Duration
	success  map[string]bool
	loadOK   bool
	loadTime time.Time
}

func (s *self) ran(collector string, took time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.duration == nil {
		s.duration, s.success = map[string]time.Duration{}, map[string]bool{}
	}
	s.duration[collector], s.success[collector] = took, ok
}

func (s *self) loaded(ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loadOK = ok
	if ok {
		s.loadTime = time.Now()
	}
}

// Describe implements prometheus.Collector.
func (s *self) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range []*metrics.Family{metrics.CollectorDuration, metrics.CollectorSuccess, metrics.ConfigReloadSuccess, metrics.ConfigReloadTime} {
		ch <- f.Desc()
	}
}

// Collect implements prometheus.Collector.
func (s *self) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, d := range s.duration {
		ch <- metrics.CollectorDuration.Const(d.Seconds(), name)
		ch <- metrics.CollectorSuccess.Const(number(s.success[name]), name)
	}
	ch <- metrics.ConfigReloadSuccess.Const(number(s.loadOK))
	ch <- metrics.ConfigReloadTime.Const(float64(s.loadTime.UnixMilli()) / 1000)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
