package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/klauspost/compress/gzip"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	build "github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"
	webflag "github.com/prometheus/exporter-toolkit/web/kingpinflag"

	"github.com/llm-node-exporter/llm-node-exporter/cmd/exporter/page"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/genai"
	gpupage "github.com/llm-node-exporter/llm-node-exporter/collectors/gpu/page"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
)

// serverOptions holds the flags of the HTTP server.
type serverOptions struct {
	metricsPath string
	maxRequests int
	pprof       bool
	lifecycle   bool
	genAI       bool
	dcgm        bool
	queries     string
	listen      *web.FlagConfig
}

func (o *serverOptions) addFlags(app *kingpin.Application) {
	app.Flag("web.telemetry-path", "Path under which to serve metrics.").Default("/metrics").StringVar(&o.metricsPath)
	app.Flag("web.max-requests", "Maximum number of concurrent scrapes; further scrapes get status 503. 0 means no limit.").Default("40").
		IntVar(&o.maxRequests)
	app.Flag("web.enable-pprof", "Serve profiles under /debug/pprof/.").BoolVar(&o.pprof)
	app.Flag("web.enable-lifecycle",
		"Let anyone who can reach the port call POST /-/reload and POST /-/detach. The signals SIGHUP, SIGUSR1 and SIGUSR2 work without "+
			"this flag.").
		BoolVar(&o.lifecycle)
	app.Flag("compat.gen-ai",
		"Also serve time to first token, time per output token and request duration under OpenTelemetry's names, gen_ai_server_*.").
		BoolVar(&o.genAI)
	app.Flag("compat.dcgm", "Also serve metrics of NVIDIA's GPUs with the names, units and labels of dcgm-exporter's default counters, "+
		"DCGM_FI_*.").BoolVar(&o.dcgm)
	app.Flag("web.runbook-query-url", "Address that a click on a runbook's query opens. {query} stands for the query, as in "+
		"https://prometheus.example/graph?g0.tab=1&g0.expr={query}; {json} stands for the query escaped for a JSON string, as in the addresses of "+
		"Grafana's Explore.").StringVar(&o.queries)
	o.listen = webflag.AddFlags(app, ":9844")
}

// server serves a node over HTTP.
type server struct {
	serverOptions
	*node
	slots    chan struct{} // one per scrape in progress; nil means no limit
	judging  judging
	hostname string // name of the node, if series contain it
}

// serve answers requests until ctx ends, or until failed receives an error. It returns this error.
func serve(ctx context.Context, n *node, o serverOptions, failed <-chan error) error {
	s := &server{serverOptions: o, node: n}
	if o.dcgm {
		s.hostname = cmp.Or(os.Getenv("NODE_NAME"), hostname())
	}
	if o.maxRequests > 0 {
		s.slots = make(chan struct{}, o.maxRequests)
	}
	listening := httpServer(s.handler())
	var fatal error
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case fatal = <-failed:
		case <-ctx.Done():
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := listening.Shutdown(grace); err != nil {
			s.log.Warn("scrapes were cut off at shutdown", "err", err)
		}
	}()
	if err := web.ListenAndServe(listening, o.listen, s.log); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return fatal
}

// hostname returns the name of the machine, or an empty string if the name is unknown.
func hostname() string {
	name, _ := os.Hostname()
	return name
}

// ifLifecycle disables a handler that changes the exporter's behaviour unless the flags allow such requests, because
// any client of the port could send them.
func (s *server) ifLifecycle(h http.Handler) http.Handler {
	if s.lifecycle {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "switched off: start the exporter with --web.enable-lifecycle, or send it a signal", http.StatusForbidden)
	})
}

// handler returns the handler for all paths. It refuses requests that other sites make a browser send.
func (s *server) handler() http.Handler {
	return ownOrigin(s.listen, s.routes())
}

// ownOrigin refuses requests that change state if another site made the browser send them. If the server listens only
// on loopback, ownOrigin also refuses requests to any other host name, because another site can make its own DNS name
// resolve to this machine.
func ownOrigin(listen *web.FlagConfig, h http.Handler) http.Handler {
	h = http.NewCrossOriginProtection().Handler(h)
	if listen == nil || listen.WebListenAddresses == nil || !slices.ContainsFunc(*listen.WebListenAddresses, loopback) ||
		slices.ContainsFunc(*listen.WebListenAddresses, func(a string) bool { return !loopback(a) }) {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "" && !loopback(r.Host) {
			http.Error(w, "this exporter listens on loopback and answers only requests for that host name: use http://localhost, or let the "+
				"proxy send Host: localhost", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// loopback reports whether a host, with or without a port, is this machine's loopback.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// routes returns the handlers of all paths.
func (s *server) routes() http.Handler {
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
	detach := http.NotFoundHandler()
	if s.gpus != nil {
		detach = s.gpus.DetachHandler()
	}
	mux.HandleFunc("GET /engines", s.listEngines)
	mux.HandleFunc("GET /verdict", s.verdict)
	mux.HandleFunc("GET /verdict/gpus", s.verdictOnGPUs)
	mux.Handle("GET /runbooks/", http.StripPrefix("/runbooks", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runbooks.Handler(runbooks.Opener(s.queries), *s.ask.Load()).ServeHTTP(w, r)
	})))
	mux.Handle("POST /-/detach", s.ifLifecycle(detach))
	if s.pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	mux.Handle("GET /{$}", page.Handler(page.Options{MetricsPath: s.metricsPath, Version: build.Version, Profiles: s.pprof}))
	return mux
}

// metrics scrapes the engines, and serves their metrics together with the metrics of the registry.
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
	families, engines := s.gather(ctx)
	var page io.WriterTo = engines
	if s.genAI {
		page = genai.Page{WriterTo: engines}
	}
	if s.dcgm {
		page = gpupage.DCGM{WriterTo: page, Hostname: s.hostname}
	}
	if err := writePage(w, r, families, page); err != nil {
		s.log.Debug("scraper went away", "err", err)
	}
}

// gather reads the metrics of the registry and of the engines.
func (s *server) gather(ctx context.Context) ([]*dto.MetricFamily, *engine.Exposition) {
	start := time.Now()
	engines := s.engines.Load().Scrape(ctx)
	s.probes.Offer(s.engines.Load().Offers())
	s.self.ran("engine", time.Since(start), engines.Complete())
	err := s.large.collect(engines)
	families, failed := s.registry.Gather()
	if err = errors.Join(err, failed); err != nil { // serve the part that was gathered
		s.log.Error("metrics left out", "err", err)
	}
	return families, engines
}

// writePage writes the families of the registry and the series of the engines. It compresses the page if the client
// accepts this.
func writePage(w http.ResponseWriter, r *http.Request, families []*dto.MetricFamily, engines io.WriterTo) error {
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	w.Header().Set("Content-Type", string(format))
	w.Header().Set("Vary", "Accept-Encoding")
	var to io.Writer = w
	finish := func() error { return nil }
	if acceptsGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		// A compressor without state does not keep 900 kB until the next scrape. It compresses one piece at a time.
		z, _ := gzip.NewWriterLevel(w, gzip.StatelessCompression) // fails only for unknown levels
		pieces := bufio.NewWriterSize(z, math.MaxInt16)           // the largest size that the compressor accepts
		to, finish = pieces, func() error { return errors.Join(pieces.Flush(), z.Close()) }
	}
	if err := encode(to, families, engines); err != nil {
		return err
	}
	return finish()
}

// encode writes metrics in the text format.
func encode(to io.Writer, families []*dto.MetricFamily, engines io.WriterTo) error {
	encoder := expfmt.NewEncoder(to, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		for _, m := range f.Metric {
			m.Label = slices.DeleteFunc(slices.Clone(m.Label), func(l *dto.LabelPair) bool { return l.GetValue() == "" }) // empty means absent
		}
		if err := encoder.Encode(f); err != nil {
			return err
		}
	}
	_, err := engines.WriteTo(to)
	return err
}

func acceptsGzip(h http.Header) bool {
	for coding := range strings.SplitSeq(h.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if (name == "gzip" || name == "*") && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

// withScrapeDeadline returns a context that ends shortly before the scraper times out. Then only the series of a late
// engine are missing, and all other series are served.
func withScrapeDeadline(r *http.Request) (context.Context, context.CancelFunc) {
	seconds, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || seconds <= 0 {
		return context.WithCancel(r.Context())
	}
	timeout := time.Duration(seconds * float64(time.Second))
	return context.WithTimeout(r.Context(), timeout-min(timeout/5, 500*time.Millisecond))
}
