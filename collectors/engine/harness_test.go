package engine

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// fakeEngine serves one page and the metadata documents of an engine over real HTTP.
type fakeEngine struct {
	*httptest.Server
	// page and path of the metrics page; status and contentType of its answer.
	page, path, contentType string
	status                  int
	// documents by path, as JSON.
	documents map[string]string
	// requests counts requests by path.
	requests map[string]int
}

func serve(t testing.TB, page string) *fakeEngine {
	e := &fakeEngine{page: page, path: "/metrics", contentType: "text/plain; version=1.0.0; charset=utf-8", status: http.StatusOK,
		documents: map[string]string{}, requests: map[string]int{}}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	c, err := New(cfg, mappings, DefaultLimits, "test", slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	for i, target := range c.targets {
		target.server = "engine-" + string(rune('0'+i)) + ":80"
	}
	return c
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// exposition scrapes once and returns what the exporter would serve.
func exposition(t testing.TB, c *Collector) string {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	page, _ := c.Append(ctx, nil)
	return string(page)
}

// mapped is the exposition of one page served by a plain engine.
func mapped(t testing.TB, page string) string {
	return exposition(t, collectorFor(t, []TargetConfig{{URL: serve(t, page).URL}}))
}

func toJSON(t testing.TB, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
