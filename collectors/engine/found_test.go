package engine

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

var anyPort = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// TestEnginesComeAndGo checks that found engines change while the configured engine, and engines that stay, are
// read without a gap and without a new query for their identity.
func TestEnginesComeAndGo(t *testing.T) {
	engines := map[string]*fakeEngine{}
	target := map[string]TargetConfig{}
	for _, name := range []string{"configured", "stays", "comes", "goes"} {
		engines[name] = serve(t, readPage(t, "vllm/v0.19.0-dp2-spec.prom"))
		engines[name].documents["/version"] = `{"version": "0.19.0"}`
		target[name] = TargetConfig{URL: engines[name].URL, Labels: map[string]string{"pod": name}}
	}
	now := time.Unix(1764000000, 0)
	configured, err := New(Config{
		Targets: []TargetConfig{target["configured"]}, UserAgent: "test", Log: discard, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	read := func(c *Collector, want ...string) {
		t.Helper()
		page := parse(t, exposition(t, c))
		for name := range engines {
			n := 0
			for _, w := range want {
				if w == name {
					n = 1
				}
			}
			if got := page.get(t, `llm_engine_up{pod="`+name+`"}`); len(got) != n {
				t.Errorf("%s: up is %v, wanted %d of it", name, got, n)
			}
		}
	}
	left := func(c *Collector, names ...string) {
		t.Helper()
		page := parse(t, exposition(t, c))
		page.want(t, "llm_engine_left_timestamp_seconds", slices.Repeat([]float64{1764000000}, len(names))...)
		for _, name := range names {
			page.want(t, `llm_engine_left_timestamp_seconds{pod="`+name+`",model_name!="",version="0.19.0"}`, 1764000000)
		}
	}
	read(configured, "configured")
	first, err := configured.With([]TargetConfig{target["stays"], target["goes"]})
	if err != nil {
		t.Fatal(err)
	}
	read(first, "configured", "stays", "goes")
	second, err := first.With([]TargetConfig{target["comes"], target["stays"]})
	if err != nil {
		t.Fatal(err)
	}
	read(second, "configured", "stays", "comes")
	left(second, "goes")
	read(first, "configured", "stays", "goes") // a scrape that began before the change
	for _, name := range []string{"configured", "stays"} {
		if n := engines[name].asked("/version"); n != 1 {
			t.Errorf("%s was asked %d times who it is", name, n)
		}
	}
	third, err := second.With(nil)
	if err != nil {
		t.Fatal(err)
	}
	read(third, "configured")
	left(third, "goes", "stays", "comes")
	golden.Compare(t, "testdata/left.prom", anyPort.ReplaceAllString(keep(exposition(t, third), metrics.EngineLeft), "127.0.0.1:8000"))

	// The configuration wins, under any name of the loopback; an invalid target affects only itself.
	same := target["stays"]
	same.URL = strings.Replace(engines["configured"].URL, "127.0.0.1", "localhost", 1)
	fourth, err := third.With([]TargetConfig{same, {URL: "ftp://x"}, target["comes"]})
	if err == nil || !strings.Contains(err.Error(), "ftp://x") {
		t.Errorf("a place that is no URL: %v", err)
	}
	read(fourth, "configured", "comes")
	left(fourth, "goes", "stays")
	now = now.Add(leftFor + time.Second)
	left(fourth)
}

// TestChangeUnderScrape adds and removes targets while scrapes run; no scrape may lose the engine that stays.
func TestChangeUnderScrape(t *testing.T) {
	stays, other := serve(t, readPage(t, "vllm/v0.11.2.prom")), serve(t, readPage(t, "vllm/v0.11.2.prom"))
	c, err := New(Config{UserAgent: "test", Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	at := TargetConfig{URL: stays.URL, Labels: map[string]string{"pod": "stays"}}
	if c, err = c.With([]TargetConfig{at}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		now := c
		wg.Go(func() { parse(t, exposition(t, now)).want(t, `llm_engine_up{pod="stays"}`, 1) })
		next := []TargetConfig{at}
		if i%2 == 0 {
			next = append(next, TargetConfig{URL: other.URL})
		}
		if c, err = c.With(next); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
}

func TestProbe(t *testing.T) {
	vllm, disabled, other := serve(t, readPage(t, "vllm/v0.11.2.prom")), serve(t, ""), serve(t, "# TYPE up gauge\nup 1\n")
	disabled.path = "/nothing"
	disabled.documents["/v1/models"] = `{"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}`
	c := collectorFor(t, nil)
	for _, p := range []struct {
		url             string
		engine, answers bool
	}{
		{vllm.URL, true, true},
		{disabled.URL, true, true}, // trtllm-serve without its metrics: an engine that cannot be read
		{other.URL, false, true},
		{"http://127.0.0.1:1", false, false},
	} {
		e, err := c.Probe(t.Context(), TargetConfig{URL: p.url})
		if err != nil || e.IsEngine() != p.engine || e.Answers() != p.answers {
			t.Errorf("%s: %+v %v", p.url, e, err)
		}
	}
	for code, answers := range map[int]bool{
		http.StatusBadGateway: false, http.StatusServiceUnavailable: false,
		http.StatusGatewayTimeout: false, http.StatusNotFound: true, http.StatusInternalServerError: true,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		defer server.Close()
		if e, _ := c.Probe(t.Context(), TargetConfig{URL: server.URL}); e.IsEngine() || e.Answers() != answers {
			t.Errorf("%d: %+v", code, e) // a proxy answers for an engine that still loads
		}
	}
	for page, why := range map[string]string{
		readPage(t,
			"other/litellm.prom"): "this is litellm, a gateway: name it as a target to have it read",
		"kong_http_requests_total 1\n": "this is Kong, a gateway: make the engines behind it the targets",
		"teapot_spouts 1\n":            "unknown_engine",
	} {
		if e, _ := c.Probe(t.Context(), TargetConfig{URL: serve(t, page).URL}); e.Why() != why {
			t.Errorf("why it is no engine: %q, want %q", e.Why(), why)
		}
	}
	if len(c.Engines()) != 0 {
		t.Error("a probe made a target")
	}
	if _, err := c.Probe(t.Context(), TargetConfig{URL: vllm.URL, Engine: "nonsense"}); err == nil {
		t.Error("a probe with an unknown engine")
	}
}
