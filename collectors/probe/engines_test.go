package probe

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/config"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// simulated is an engine with a metrics page and an endpoint that records which models are requested.
type simulated struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string // path and model
	down  bool     // the metrics page does not answer
}

// simulate serves a metrics page, and answers POST requests at any other path.
func simulate(t *testing.T, page, answer http.Handler) *simulated {
	t.Helper()
	s := &simulated{}
	s.Server = answering(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case r.Method == http.MethodPost:
			var body struct{ Model string }
			_ = json.NewDecoder(r.Body).Decode(&body)
			s.asked = append(s.asked, r.URL.Path+" "+body.Model)
			answer.ServeHTTP(w, r)
		case s.down:
			w.WriteHeader(http.StatusBadGateway)
		default:
			page.ServeHTTP(w, r)
		}
	}))
	return s
}

func (s *simulated) host() string { return strings.TrimPrefix(s.URL, "http://") }

func (s *simulated) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// pageOf serves a metrics page of the engines' tests.
func pageOf(t *testing.T, path, file string) http.Handler {
	t.Helper()
	body, err := os.ReadFile("../engine/testdata/pages/" + file)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	return mux
}

// engines reads and probes targets.
func engines(t *testing.T, change func(*Config), targets ...engine.TargetConfig) (*engine.Collector, *Collector) {
	t.Helper()
	all, err := engine.New(engine.Config{Targets: targets, UserAgent: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	all.Scrape(t.Context())
	c := New(all.Look, slog.New(slog.DiscardHandler))
	c.Use(everyEngine(t, change))
	c.Offer(all.Offers())
	return all, c
}

func everyEngine(t *testing.T, change func(*Config)) []*Probe {
	t.Helper()
	cfg := Config{Engines: true}
	if change != nil {
		change(&cfg)
	}
	probes, err := Compile([]Config{cfg}, time.Minute, "test")
	if err != nil {
		t.Fatal(err)
	}
	return probes
}

// put takes the probes in use without their goroutines.
func (c *Collector) put(t *testing.T, before ...running) (all []running) {
	t.Helper()
	all = c.replace(t.Context(), before, c.expand(before))
	for _, r := range all {
		r.stop()
	}
	return all
}

var whole = script(`data: {"choices":[{"text":"one","finish_reason":""}]}`+"\n\n",
	`data: {"choices":[{"text":" two","finish_reason":"stop"}]}`+"\n\n", usage("20", "8"), done)

// TestEngines checks that each model of each engine is probed by the engine's own API and name, and that its series
// identify it. An engine without a possible probe is left alone, and a series gives the reason.
func TestEngines(t *testing.T) {
	vllm := simulate(t, drill.NewVLLM(drill.NewProfile("llama")), whole)
	sglang := simulate(t, drill.NewSGLang(drill.NewProfile("qwen")), whole)
	embeddings := simulate(t, drill.NewVLLM(drill.NewProfile("bge")), status(http.StatusBadRequest))
	tei := simulate(t, pageOf(t, "/metrics", "tei/embed-loaded.prom"), whole)
	gateway := simulate(t, pageOf(t, "/metrics", "smg/v1.9.0-loaded.prom"), whole)
	ollama := simulate(t, pageOf(t, "/api/ps", "ollama/0.12.6-two-on-cpu.json"),
		typed("application/x-ndjson", `{"message":{"content":"one"},"done":true}`+"\n"))
	all := []*simulated{vllm, sglang, embeddings, tei, gateway, ollama}
	var targets []engine.TargetConfig
	for _, s := range all {
		targets = append(targets, engine.TargetConfig{URL: s.URL})
	}
	targets[0].Labels = map[string]string{"model_name": "chat", "namespace": "prod", "pod": "llama-0", "container": "vllm"}
	_, c := engines(t, nil, targets...)
	for _, r := range c.put(t) {
		if r.at.Declined == "" {
			c.once(t.Context(), r.Probe, time.Now())
		}
		if refused := r.at.Server == embeddings.host(); refused && r.pause(0, 0.5) != time.Hour {
			t.Errorf("%s is asked again after %s", r.labels(), r.pause(0, 0.5))
		}
	}
	for i, want := range [][]string{
		{"/v1/completions llama"},
		{"/v1/completions qwen"},
		{"/v1/completions bge"},
		nil, nil,
		{"/api/chat gemma3:27b", "/api/chat nomic-embed-text:latest"},
	} {
		// the exporter's request, which generates no token
		got := slices.DeleteFunc(slices.Clone(all[i].asked), func(s string) bool { return strings.HasPrefix(s, "/api/show ") })
		if !slices.Equal(got, want) {
			t.Errorf("engine %d was asked %q, want %q", i, got, want)
		}
	}
	page := golden.Page(t, c)
	for _, want := range []string{
		`llm_probe_requests_total{container="vllm",model_name="chat",namespace="prod",outcome="ok",pod="llama-0",probe="engines",server="` +
			vllm.host() + `"} 1`,
		`llm_probe_engine_asked{container="vllm",model_name="chat",namespace="prod",pod="llama-0",probe="engines",reason="",server="` +
			vllm.host() + `"} 1`,
		`llm_probe_engine_asked{container="",model_name="bge",namespace="",pod="",probe="engines",reason="http_4xx",server="` +
			embeddings.host() + `"} 0`,
		`llm_probe_engine_asked{container="",model_name="",namespace="",pod="",probe="engines",reason="no_endpoint",server="` + tei.host() +
			`"} 0`,
		`llm_probe_engine_asked{container="",model_name="",namespace="",pod="",probe="engines",reason="gateway",server="` + gateway.host() +
			`"} 0`,
		`llm_probe_requests_total{container="",model_name="gemma3:27b",namespace="",outcome="ok",pod="",probe="engines",server="` +
			ollama.host() + `"} 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
	if n := strings.Count(page, "\nllm_probe_engine_asked{"); n != 7 {
		t.Errorf("%d models and servers", n)
	}
	if n := len(c.Probed()); n != 5 {
		t.Errorf("objectives count %d probes", n)
	}
}

// TestEnginesAreAskedOnce checks that a configured probe of the same model at the same port is enough.
func TestEnginesAreAskedOnce(t *testing.T) {
	s := simulate(t, drill.NewVLLM(drill.NewProfile("llama")), whole)
	all, c := engines(t, nil, engine.TargetConfig{URL: s.URL})
	for model, want := range map[string]int{"llama": 1, "adapter": 2} {
		c.Use(append(everyEngine(t, nil), probing(t, strings.Replace(s.URL, "127.0.0.1", "localhost", 1), func(c *Config) { c.Model = model })))
		if got := c.put(t); len(got) != want {
			t.Errorf("%d probes beside one of %s, want %d", len(got), model, want)
		}
	}
	if offers := all.Offers(); len(offers) != 1 {
		t.Errorf("%+v", offers)
	}
}

// TestEnginesThatAreDown checks that an engine whose metrics page does not answer may be scaled to zero, or may be
// another engine by now.
func TestEnginesThatAreDown(t *testing.T) {
	s := simulate(t, drill.NewVLLM(drill.NewProfile("llama")), whole)
	_, c := engines(t, nil, engine.TargetConfig{URL: s.URL})
	p := c.put(t)[0].Probe
	for _, down := range []bool{false, true, false} {
		s.set(down)
		c.once(t.Context(), p, time.Now())
	}
	if len(s.asked) != 2 {
		t.Errorf("asked %d times", len(s.asked))
	}
	wants(t, c, `llm_probe_skipped_total{model_name="llama",probe="engines",reason="down"} 1`)
}

// TestRefusalAfterAnswers checks that an engine that has answered is not taken for one without an endpoint. The
// engine's later refusals raise an alert.
func TestRefusalAfterAnswers(t *testing.T) {
	refuse := false
	s := simulate(t, drill.NewVLLM(drill.NewProfile("llama")), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		whole(w, r)
	}))
	_, c := engines(t, nil, engine.TargetConfig{URL: s.URL})
	p := c.put(t)[0].Probe
	for _, step := range []struct {
		refuse bool
		reason string
		asked  string
		pause  time.Duration
	}{{true, "http_4xx", "0", time.Hour}, {false, "", "1", time.Minute}, {true, "", "1", time.Minute}} {
		refuse = step.refuse
		c.once(t.Context(), p, time.Now())
		wants(t, c, `llm_probe_engine_asked{model_name="llama",probe="engines",reason="`+step.reason+`"} `+step.asked)
		if got := p.pause(0, 0.5); got != step.pause {
			t.Errorf("%+v: asked again after %s", step, got)
		}
	}
}

// TestEnginesShareABudget checks that all requests together stay within the budget, and are spread over the hour.
func TestEnginesShareABudget(t *testing.T) {
	var all []*simulated
	var targets []engine.TargetConfig
	for range 4 {
		s := simulate(t, drill.NewVLLM(drill.NewProfile("llama")), whole)
		all, targets = append(all, s), append(targets, engine.TargetConfig{URL: s.URL})
	}
	_, c := engines(t, func(c *Config) { c.TokensPerHour = 220 }, targets...)
	probes := c.put(t)
	for _, r := range probes {
		c.once(t.Context(), r.Probe, time.Now())
	}
	var wg sync.WaitGroup
	for range 5 {
		for _, r := range probes {
			wg.Go(func() { c.once(t.Context(), r.Probe, time.Now()) })
		}
		wg.Wait()
	}
	asked := 0
	for _, s := range all {
		asked += len(s.asked)
	}
	if asked != 7 { // 28 tokens each
		t.Errorf("%d requests", asked)
	}
	wants(t, c, `llm_probe_budget_tokens{model_name="llama",probe="engines"} 55`)
	if got := probes[0].pace().Round(time.Minute); got != 34*time.Minute { // 4 of 28 tokens each, and a tenth to spare
		t.Errorf("an engine is asked every %s", got)
	}
	if _, one := engines(t, nil, targets[0]); one.put(t)[0].pace() != time.Minute {
		t.Error("one engine is not asked once a minute")
	}
}

// TestEnginesComeAndGo checks that probes follow engines, and go on if a reload has not read the metrics page yet.
func TestEnginesComeAndGo(t *testing.T) {
	first, second := simulate(t, drill.NewVLLM(drill.NewProfile("llama")), whole),
		simulate(t, drill.NewLlamaCpp(drill.NewProfile("gemma")), whole)
	both, c := engines(t, nil, engine.TargetConfig{URL: first.URL}, engine.TargetConfig{URL: second.URL})
	before := c.put(t)
	if len(before) != 2 {
		t.Fatalf("%d probes", len(before))
	}
	c.once(t.Context(), before[0].Probe, time.Now())

	again, err := engine.New(engine.Config{
		Targets: []engine.TargetConfig{{URL: first.URL}, {URL: second.URL}},
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Use(everyEngine(t, nil)) // a reload
	for _, offers := range [][]engine.Offer{again.Offers(), both.Offers()} {
		c.Offer(offers)
		after := c.put(t, before...)
		if len(after) != 2 || after[0].Probe != before[0].Probe || after[1].Probe != before[1].Probe ||
			after[0].budget != before[1].budget || len(after[0].spent) == 0 || after[0].shared() != 2 {
			t.Fatalf("probes begin anew: %v", after)
		}
	}
	c.Offer(both.Offers()[1:])
	if after := c.put(t, before...); len(after) != 1 || after[0].Probe != before[1].Probe || strings.Contains(golden.Page(t, c),
		first.host()) {
		t.Errorf("%d probes, and the page says\n%s", len(after), golden.Page(t, c))
	}
}

// TestEnginesAreFollowed checks that a running collector notices changes by itself.
func TestEnginesAreFollowed(t *testing.T) {
	s := simulate(t, drill.NewVLLM(drill.NewProfile("llama")), whole)
	all, c := engines(t, nil, engine.TargetConfig{URL: s.URL})
	go c.Run(t.Context())
	asked := metrics.ProbeEngineAsked.Name
	e2e.Until(t, "a probe", func() bool { return strings.Contains(golden.Page(t, c), asked) })
	c.Offer(nil)
	e2e.Until(t, "none", func() bool { return golden.Page(t, c) == "" })
	c.Offer(all.Offers())
	e2e.Until(t, "a probe again", func() bool { return strings.Contains(golden.Page(t, c), asked) })
}

// TestCredentialsGoWhereTheyWereMeant checks that a discovered engine gets the credential if it is selected and has
// TLS, or may be probed in clear.
func TestCredentialsGoWhereTheyWereMeant(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(to *Recipients) func(*Config) {
		return func(c *Config) {
			c.HTTP, c.CredentialsFor = config.HTTPClientConfig{Authorization: &config.Authorization{Type: "Bearer", CredentialsFile: token}}, to
		}
	}
	var got []string
	s := simulate(t, drill.NewVLLM(drill.NewProfile("llama")), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		whole.ServeHTTP(w, r)
	}))
	target := engine.TargetConfig{URL: s.URL, Labels: map[string]string{"namespace": "prod", "pod": "p"}}
	for _, c := range []struct {
		to   *Recipients
		want string // none: not asked
	}{
		{&Recipients{Namespaces: []string{"prod"}, InClear: true}, "Bearer s3cret"},
		{&Recipients{Labels: map[string]string{"pod": "p"}, InClear: true}, "Bearer s3cret"},
		{&Recipients{Namespaces: []string{"prod"}}, "clear"},
		{&Recipients{Namespaces: []string{"other"}, InClear: true}, ""},
		{&Recipients{Namespaces: []string{"prod"}, Labels: map[string]string{"pod": "q"}, InClear: true}, ""},
	} {
		got = nil
		_, collector := engines(t, with(c.to), target)
		p := collector.put(t)[0]
		if p.at.Declined != "" {
			got = []string{p.at.Declined}
		} else {
			collector.once(t.Context(), p.Probe, time.Now())
		}
		if !slices.Equal(got, []string{c.want}) {
			t.Errorf("%+v: %q, want %q", c.to, got, c.want)
		}
	}
	for _, to := range []*Recipients{nil, {InClear: true}} {
		cfg := Config{Engines: true}
		with(to)(&cfg)
		if _, err := Compile([]Config{cfg}, time.Minute, "test"); err == nil || !strings.Contains(err.Error(), "probes[0].credentials_for") {
			t.Errorf("%+v: %v", to, err)
		}
	}
}

// TestOwnExhaustionIsNoFailure checks that nothing is known about the engine if the exporter has no file left.
func TestOwnExhaustionIsNoFailure(t *testing.T) {
	s := simulate(t, drill.NewVLLM(drill.NewProfile("llama")), whole)
	_, c := engines(t, nil, engine.TargetConfig{URL: s.URL})
	p := c.put(t)[0].Probe
	p.client.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	}}
	c.once(t.Context(), p, time.Now())
	wants(t, c, `llm_probe_skipped_total{model_name="llama",probe="engines",reason="exporter_exhausted"} 1`)
	wants(t, c, `llm_probe_failures_in_a_row{model_name="llama",probe="engines"} 0`)
}
