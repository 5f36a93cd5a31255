package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// fakeEngine serves one metrics page and the metadata documents of an engine over real HTTP.
type fakeEngine struct {
	*httptest.Server
	// page is served at path; status and contentType of its answer.
	page, path, contentType string
	status                  int
	// documents by path, as JSON.
	documents map[string]string

	mu       sync.Mutex
	requests map[string]int // by path
}

// asked returns the number of requests for a path so far.
func (e *fakeEngine) asked(path string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests[path]
}

// show replaces the metrics page.
func (e *fakeEngine) show(page string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.page = page
}

func serve(t testing.TB, page string) *fakeEngine {
	e := &fakeEngine{
		page: page, path: "/metrics", contentType: "text/plain; version=1.0.0; charset=utf-8", status: http.StatusOK,
		documents: map[string]string{}, requests: map[string]int{},
	}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.requests[r.URL.Path]++
		if doc, ok := e.documents[r.URL.Path]; ok {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, doc)
			return
		}
		if r.URL.Path != e.path {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", e.contentType)
		w.WriteHeader(e.status)
		io.WriteString(w, e.page)
	}))
	t.Cleanup(e.Close)
	return e
}

// collectorFor builds a collector whose targets are called engine-0:80, engine-1:80 and so on in the
// output, so that goldens do not depend on ports.
func collectorFor(t testing.TB, cfg []TargetConfig, mappings ...Mapping) *Collector {
	return collectorWith(t, Config{Targets: cfg, Mappings: mappings})
}

// collectorWith fills in the settings that a test leaves open.
func collectorWith(t testing.TB, cfg Config) *Collector {
	cfg.Limits, cfg.UserAgent = scrape.DefaultLimits, "test"
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, target := range c.targets {
		target.server = "engine-" + string(rune('0'+i)) + ":80"
	}
	return c
}

var discard = slog.New(slog.DiscardHandler)

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// exposition scrapes once and returns the exporter's answer.
func exposition(t testing.TB, c *Collector) string {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return text(t, c.Scrape(ctx))
}

func text(t testing.TB, e *Exposition) string {
	var b strings.Builder
	if _, err := e.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// mapped is the exposition of one metrics page served by a plain engine.
func mapped(t testing.TB, page string) string {
	return exposition(t, collectorFor(t, []TargetConfig{{URL: serve(t, page).URL}}))
}

// samples is an exposition that a test can query.
type samples []struct {
	labels labels.Labels
	value  float64
}

func parse(t testing.TB, page string) (out samples) {
	parser := textparse.NewPromParser([]byte(page), labels.NewSymbolTable(), false)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("the exposition cannot be parsed: %v", err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var ls labels.Labels
		parser.Labels(&ls)
		_, _, v := parser.Series()
		out = append(out, struct {
			labels labels.Labels
			value  float64
		}{ls, v})
	}
}

// get returns the values of the series that match a PromQL selector.
func (s samples) get(t testing.TB, selector string) (values []float64) {
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range s {
		if matches(sample.labels, matchers) {
			values = append(values, sample.value)
		}
	}
	return values
}

// want checks the values of the series that match a selector, in any order; no values means that the series are absent.
func (s samples) want(t testing.TB, selector string, values ...float64) {
	t.Helper()
	got := s.get(t, selector)
	slices.Sort(got)
	slices.Sort(values)
	switch {
	case slices.Equal(got, values):
	case len(values) > 0:
		t.Errorf("%s = %v, want %v", selector, got, values)
	default:
		t.Errorf("%s is there %d times, and should not be", selector, len(got))
		matchers, _ := parser.NewParser(parser.Options{}).ParseMetricSelector(selector) // get has parsed the selector
		for _, sample := range s {
			if l := sample.labels; matches(l, matchers) && l.Get(model.MetricNameLabel) == metrics.SourceMissing.Name {
				t.Errorf("%s of %s is expected on the page as %s: if this version does not have it, give its row Since, Until or Absent in the "+
					"Dialect of collectors/engine whose Runtime is %[2]s",
					l.Get(metrics.LabelMetric), l.Get(metrics.LabelRuntime), l.Get(metrics.LabelSource))
			}
		}
	}
}

// page maps one of the metrics pages below testdata/pages.
func page(t testing.TB, name string) samples { return parse(t, mapped(t, readPage(t, name))) }
