package probe

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/config"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// series returns a collector's exports, without the address of the server.
func series(t *testing.T, c *Collector) string {
	t.Helper()
	page := regexp.MustCompile(`(server="127[^"]*"|(container|namespace|pod)=""),?`).ReplaceAllString(golden.Page(t, c), "")
	return strings.ReplaceAll(page, ",}", "}")
}

func wants(t *testing.T, c *Collector, lines ...string) {
	t.Helper()
	page := series(t, c)
	for _, line := range lines {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the page lacks %s:\n%s", line, page)
		}
	}
}

// counting counts the requests that reach a handler.
func counting(h http.Handler, n *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		h.ServeHTTP(w, r)
	})
}

func TestGolden(t *testing.T) {
	c, p := collecting(), probing(t, "http://engine:8000")
	c.announce(p)
	ms := func(n time.Duration) time.Duration { return n * time.Millisecond }
	good := result{
		outcome: metrics.ProbeOK, connected: ms(12), firstByte: ms(112), token: ms(212), visible: ms(512), end: ms(1012),
		prompt: 40, completion: 8,
		phases:   map[string]time.Duration{"resolve": ms(2), "connect": ms(4), "tls": ms(6)},
		arrivals: []arrival{{ms(212), 1, 0}, {ms(412), 1, 0}, {ms(712), 2, 0}},
	}
	held, other := good, good
	held.held, other.answer = true, sha256.Sum256([]byte("another"))
	for i, r := range []result{good, held, other, {outcome: metrics.ProbeTimeout, connected: ms(3)}} {
		c.charge(p, &r)
		c.compare(p, &r, "0.11.0")
		c.observe(p, &r, true, false, time.Unix(0, 0).Add(time.Duration(i)*4*time.Minute))
	}
	p.cfg.TokensPerHour = 1
	c.once(t.Context(), p, time.Now())
	found, err := everyEngine(t, nil)[0].of(engine.Offer{
		URL: "http://10.0.0.1:8000", API: "tgi", Name: "m", Model: "chat",
		Server: "10.0.0.1:8000", Namespace: "prod", Pod: "m-0", Container: "tgi",
	})
	if err != nil {
		t.Fatal(err)
	}
	c.announce(found)
	c.engine(found, string(metrics.ProbeClientError))
	c.health.WithLabelValues(found.labels()...).Set(1)
	golden.Compare(t, "testdata/probe.prom", series(t, c))
	golden.All(t, "testdata/*.prom", 1)
}

// TestRequest checks that a request can be distinguished from a user's, and asks for the measured values.
func TestRequest(t *testing.T) {
	var seen []http.Header
	var bodies []map[string]any
	var paths []string
	s := answering(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		seen, bodies, paths = append(seen, r.Header), append(bodies, body), append(paths, r.URL.Path)
		script(word("one"), finish, done)(w, r)
	}))
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("k3y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := probing(t, s.URL+"/team/", func(c *Config) {
		c.Nonce, c.MaxTokens, c.PromptWords = true, 5, 40
		c.Body = map[string]any{"chat_template_kwargs": map[string]any{"enable_thinking": false}, "stream_options": nil}
		c.HTTP = config.HTTPClientConfig{Authorization: &config.Authorization{Type: "Bearer", CredentialsFile: token}}
	})
	for range 2 {
		if r, err := p.ask(t.Context(), time.Now()); r.outcome != metrics.ProbeOK {
			t.Fatal(r.outcome, err)
		}
	}
	if paths[0] != "/team/v1/chat/completions" || seen[0].Get("User-Agent") != "test (synthetic probe)" ||
		seen[0].Get("Authorization") != "Bearer k3y" {
		t.Errorf("%s %v", paths[0], seen[0])
	}
	body := bodies[0]
	if body["user"] != "llm-node-exporter-probe" || body["stream"] != true || body["temperature"] != 0.0 || body["max_tokens"] != 5.0 ||
		body["model"] != "m" ||
		body["chat_template_kwargs"] == nil || body["stream_options"] != nil {
		t.Errorf("%v", body)
	}
	prompt := func(i int) string {
		return bodies[i]["messages"].([]any)[0].(map[string]any)["content"].(string)
	}
	if prompt(0)[:8] == prompt(1)[:8] || len(strings.Fields(prompt(0))) != 41 || prompt(0)[8:] != prompt(1)[8:] {
		t.Errorf("prompts with a nonce:\n%s\n%s", prompt(0), prompt(1))
	}
	p = probing(t, s.URL)
	for range 2 {
		_, _ = p.ask(t.Context(), time.Now())
	}
	if prompt(2) != prompt(3) || prompt(2) != question || bodies[2]["stream_options"].(map[string]any)["include_usage"] != true {
		t.Errorf("prompts without a nonce:\n%s\n%s", prompt(2), prompt(3))
	}
	for api, path := range map[string]string{
		"completions": "/v1/completions", "ollama": "/api/chat", "tgi": "/generate_stream",
		"triton": "/v2/models/m/generate_stream",
	} {
		_, _ = probing(t, s.URL, through(api)).ask(t.Context(), time.Now())
		if got := paths[len(paths)-1]; got != path {
			t.Errorf("%s asks at %s, want %s", api, got, path)
		}
	}
}

// TestBudget checks that the budget of an hour is not exceeded, and that requests without a cost are not counted.
func TestBudget(t *testing.T) {
	var n atomic.Int32
	s := answering(t, counting(script(word("one"), finish, usage("50", "8"), done), &n))
	c, p := collecting(), probing(t, s.URL, func(c *Config) { c.TokensPerHour = 150 })
	for range 5 {
		c.once(t.Context(), p, time.Now())
	}
	if n.Load() != 2 { // 58 each
		t.Errorf("%d requests", n.Load())
	}
	wants(t, c, `llm_probe_skipped_total{model_name="m",probe="chat",reason="budget"} 3`,
		`llm_probe_tokens_total{kind="prompt",model_name="m",probe="chat"} 100`,
		`llm_probe_tokens_total{kind="completion",model_name="m",probe="chat"} 16`)
	for i := range p.spent { // an hour later
		p.spent[i].at = p.spent[i].at.Add(-time.Hour)
	}
	if c.once(t.Context(), p, time.Now()); n.Load() != 3 {
		t.Errorf("%d requests after an hour", n.Load())
	}

	for _, q := range []struct {
		name  string
		h     http.Handler
		spent int
	}{
		{"without usage", script(word("one"), finish, done), words(question)*tokensPerWord + templateTokens + defaultTokens},
		{"cut", script(word("one"), cut), words(question)*tokensPerWord + templateTokens + defaultTokens},
		{"overload", status(503), words(question)*tokensPerWord + templateTokens + defaultTokens},
		{"rate limit", status(429), 0},
		{"no such model", status(404), 0},
	} {
		p := probing(t, answering(t, q.h).URL)
		collecting().once(t.Context(), p, time.Now())
		sum := 0
		for _, s := range p.spent {
			sum += s.tokens
		}
		if sum != q.spent {
			t.Errorf("%s: %d tokens, want %d", q.name, sum, q.spent)
		}
	}

	// An absurd number blocks the probe for an hour, not permanently.
	p = probing(t, answering(t, script(word("one"), finish, usage("900000", "8"), done)).URL)
	collecting().once(t.Context(), p, time.Now())
	if p.take(p.cost(), p.cfg.TokensPerHour) != nil {
		t.Error("what was said to be spent is not")
	}
	p.spent[0].at = p.spent[0].at.Add(-time.Hour)
	if p.take(p.cost(), p.cfg.TokensPerHour) == nil {
		t.Error("the probe asks nevermore")
	}
}

// reading returns a collector that looks up engines in the exporter's own.
func reading(t *testing.T, urls ...string) *Collector {
	t.Helper()
	var targets []engine.TargetConfig
	for _, url := range urls {
		targets = append(targets, engine.TargetConfig{URL: url})
	}
	engines, err := engine.New(engine.Config{Targets: targets, UserAgent: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return New(engines.Look, slog.New(slog.DiscardHandler))
}

// TestSleepersAreLeftAlone checks that the exporter knows in time whether an engine sleeps, without a scrape in
// between.
func TestSleepersAreLeftAlone(t *testing.T) {
	var asleep atomic.Bool
	var n atomic.Int32
	state := func() string {
		if asleep.Load() {
			return "1"
		}
		return "0"
	}
	vllm := http.NewServeMux()
	vllm.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0\n"+
			"# TYPE vllm:engine_sleep_state gauge\nvllm:engine_sleep_state{engine=\"0\",model_name=\"m\",sleep_state=\"weights_offloaded\"} "+
			state()+"\n")
	})
	llamacpp := http.NewServeMux()
	llamacpp.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 0\n")
	})
	llamacpp.HandleFunc("/props", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]bool{"is_sleeping": asleep.Load()})
	})
	for name, mux := range map[string]*http.ServeMux{"vllm": vllm, "llamacpp": llamacpp} {
		n.Store(0)
		asleep.Store(false)
		mux.Handle("/v1/chat/completions", counting(script(word("one"), finish, done), &n))
		s := answering(t, mux)
		c, p := reading(t, s.URL), probing(t, s.URL)
		for i, sleeps := range []bool{false, true, false} {
			asleep.Store(sleeps)
			c.once(t.Context(), p, time.Now())
			if want := []int32{1, 1, 2}[i]; n.Load() != want {
				t.Errorf("%s: %d requests after look %d, want %d", name, n.Load(), i, want)
			}
		}
		wants(t, c, `llm_probe_skipped_total{model_name="m",probe="chat",reason="asleep"} 1`)
	}
}

// TestOneOfSeveralSleeps checks several engines behind one port, where the router decides which one a request reaches.
func TestOneOfSeveralSleeps(t *testing.T) {
	s := answering(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state := map[string]string{"a": "0", "b": "1"}[r.URL.Query().Get("model")]
		_, _ = io.WriteString(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0\n"+
			"# TYPE vllm:engine_sleep_state gauge\nvllm:engine_sleep_state{engine=\"0\",model_name=\"m\",sleep_state=\"discard_all\"} "+state+"\n")
	}))
	c, p := reading(t, s.URL+"/metrics?model=a", s.URL+"/metrics?model=b"), probing(t, s.URL)
	c.once(t.Context(), p, time.Now())
	wants(t, c, `llm_probe_skipped_total{model_name="m",probe="chat",reason="asleep"} 1`)
}

// TestOllamaIsNotKeptAwake checks that an unloaded model stays unloaded, and that a model that only the probe uses may
// be unloaded.
func TestOllamaIsNotKeptAwake(t *testing.T) {
	var n atomic.Int32
	var mu sync.Mutex
	ps := `{"models":[]}`
	keep := func(expires string) {
		mu.Lock()
		defer mu.Unlock()
		ps = `{"models":[{"name":"m:latest","expires_at":"` + expires + `"}]}`
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/ps", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(w, ps)
	})
	later := "2026-10-01T00:05:00Z"
	mux.Handle("/api/chat", counting(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keep(later)
		typed("application/x-ndjson", `{"message":{"content":"one"}}`+"\n", `{"done":true}`+"\n")(w, r)
	}), &n))
	c, p := collecting(), probing(t, answering(t, mux).URL, through("ollama"))
	ask := func(why string, want int32) {
		t.Helper()
		if c.once(t.Context(), p, time.Now()); n.Load() != want {
			t.Errorf("%s: %d requests, want %d", why, n.Load(), want)
		}
	}
	ask("not loaded", 0)
	mu.Lock()
	ps = "404 page not found"
	mu.Unlock()
	ask("nobody can tell", 0)
	keep("2026-10-01T00:01:00Z")
	ask("loaded by somebody", 1)
	ask("nobody has used it since", 1)
	keep("2026-10-01T00:06:00Z")
	ask("somebody has used it since", 2)
	later = "2318-10-01T00:06:00Z"
	keep(later)
	ask("kept for ever", 3)
	ask("kept for ever, and nobody else uses it", 4)
	wants(t, c, `llm_probe_skipped_total{model_name="m",probe="ollama",reason="not_loaded"} 2`,
		`llm_probe_skipped_total{model_name="m",probe="ollama",reason="unused"} 1`)
}

// TestAnswerIsTheSame checks that later answers are compared with the first answer of a release.
func TestAnswerIsTheSame(t *testing.T) {
	var answer atomic.Value
	s := answering(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		script(word(answer.Load().(string)), finish, usage("9", "1"), done)(w, r)
	}))
	release := "1"
	c := New(func(context.Context, engine.Offer) (engine.Engine, bool) {
		return engine.Engine{Version: release}, true
	}, slog.New(slog.DiscardHandler))
	p := probing(t, s.URL)
	for i, step := range []struct{ release, says, matches string }{
		{"1", "one", "1"}, {"1", "one", "1"}, {"1", "eins", "0"}, {"1", "one", "1"}, {"2", "eins", "1"}, {"2", "one", "0"}, {"1", "one", "1"},
	} {
		release = step.release
		answer.Store(step.says)
		c.once(t.Context(), p, time.Now())
		wants(t, c, `llm_probe_answer_matches{model_name="m",probe="chat",version="`+step.release+`"} `+step.matches)
		if n := strings.Count(series(t, c), "\nllm_probe_answer_matches{"); n != 1 {
			t.Errorf("step %d: %d releases at once", i, n)
		}
	}
	wants(t, c, `llm_probe_requests_total{model_name="m",outcome="ok",probe="chat"} 5`,
		`llm_probe_requests_total{model_name="m",outcome="wrong_answer",probe="chat"} 2`)
	for i := range 3 * maxReleases { // an engine that reports another release each time
		release = strings.Repeat("x", i)
		c.once(t.Context(), p, time.Now())
	}
	if len(p.first) > maxReleases {
		t.Errorf("%d answers are remembered", len(p.first))
	}
	c, p = collecting(), probing(t, s.URL, func(c *Config) { c.Nonce = true })
	if c.once(t.Context(), p, time.Now()); strings.Contains(series(t, c), "llm_probe_answer_matches") {
		t.Error("answers to different prompts are compared")
	}
}

// TestRun checks that a probe sends requests again and again and never two at once, survives a reload that leaves it
// unchanged, and takes its series with it when it is removed.
func TestRun(t *testing.T) {
	var n, at, most atomic.Int32
	s := answering(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		most.Store(max(most.Load(), at.Add(1)))
		script(word("one"), wait, word("two"), finish, usage("1", "2"))(w, r)
		at.Add(-1) // before the message that ends the request for its client
		script(done)(w, r)
	}))
	quick := func(change ...func(*Config)) *Probe {
		p := probing(t, s.URL, change...)
		p.interval = time.Millisecond
		return p
	}
	c := collecting()
	stopped := make(chan struct{})
	t.Cleanup(func() { <-stopped }) // after the context of the test has ended
	go func() { defer close(stopped); c.Run(t.Context()) }()
	c.Use([]*Probe{quick()})
	more := func() {
		t.Helper()
		seen := n.Load()
		e2e.Until(t, "more requests", func() bool { return n.Load() > seen+2 })
	}
	more()
	c.Use([]*Probe{quick()}) // as it was
	more()
	if most.Load() != 1 { // the server notices late that the client of a changed probe is gone
		t.Errorf("%d requests at once", most.Load())
	}
	c.Use([]*Probe{quick(func(c *Config) { c.MaxTokens = 9 })}) // changed
	more()
	ok := regexp.MustCompile(`llm_probe_requests_total\{[^}]*outcome="ok"[^}]*\} (\d+)`).FindStringSubmatch(series(t, c))
	if len(ok) != 2 || len(ok[1]) < 1 || ok[1] == "0" {
		t.Errorf("counted %v", ok)
	}
	c.Use(nil)
	e2e.Until(t, "no series", func() bool { return golden.Page(t, c) == "" })
}

// TestFailureIsConfirmed checks that the first failure is confirmed ten seconds after it began, and that a second
// failure is not confirmed. A result that proves nothing about the model ends the series of failures, as does an
// engine whose metrics page does not answer.
func TestFailureIsConfirmed(t *testing.T) {
	status := atomic.Int32{}
	s := answering(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := int(status.Load()); code != 0 {
			w.WriteHeader(code)
			return
		}
		script(word("one"), finish, done)(w, r)
	}))
	asleep, down := false, ""
	c := New(func(context.Context, engine.Offer) (engine.Engine, bool) {
		return engine.Engine{Sleeping: asleep, Reason: down}, true
	}, slog.New(slog.DiscardHandler))
	p := probing(t, s.URL)
	const regular, confirm = time.Minute, 7 * time.Second
	for i, step := range []struct {
		status int
		asleep bool
		row    string
		pause  time.Duration
	}{
		{0, false, "0", regular},
		{500, false, "1", confirm},
		{500, false, "2", regular},
		{503, false, "3", regular},
		{0, false, "0", regular},
		{500, false, "1", confirm},
		{429, false, "0", regular},
		{500, false, "1", confirm},
		{404, false, "0", regular},
		{500, false, "1", confirm},
		{500, true, "0", regular},
	} {
		status.Store(int32(step.status))
		asleep = step.asleep
		c.once(t.Context(), p, time.Now())
		wants(t, c, `llm_probe_failures_in_a_row{model_name="m",probe="chat"} `+step.row)
		if got := p.pause(3*time.Second, 0.5); got != step.pause {
			t.Errorf("step %d: the next request is sent after %s, want %s", i, got, step.pause)
		}
	}
	down = "unreachable" // the engine restarts, so it does not hang
	for range 2 {
		c.once(t.Context(), p, time.Now())
		wants(t, c, `llm_probe_failures_in_a_row{model_name="m",probe="chat"} 0`)
	}
	if late := probing(t, s.URL); true {
		late.confirm = true
		if got := late.pause(12*time.Second, 0); got != time.Second {
			t.Errorf("a timeout is confirmed after %s more", got)
		}
	}
}

// TestWitnesses checks that a first failure makes the other probes send a request at once, at most once a minute, to
// show whether they fail alike.
func TestWitnesses(t *testing.T) {
	var broken, asked atomic.Int32
	s := answering(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		script(word("one"), finish, done)(w, r)
	}))
	other := probing(t, answering(t, counting(script(word("one"), finish, done), &asked)).URL)
	c, p := collecting(), probing(t, s.URL)
	c.inUse = []*Probe{p, other}
	first := time.Now()
	for i, step := range []struct {
		broken int32
		after  time.Duration
		want   int
	}{
		{0, 0, 0},
		{1, 0, 1},
		{1, 10 * time.Second, 0},
		{0, 20 * time.Second, 0},
		{1, 30 * time.Second, 0},
		{0, 40 * time.Second, 0},
		{1, 2 * time.Minute, 1},
	} {
		broken.Store(step.broken)
		c.once(t.Context(), p, time.Now())
		if got := c.witnesses(p, first.Add(step.after)); len(got) != step.want || step.want == 1 && got[0] != other {
			t.Errorf("step %d: %d witnesses, want %d", i, len(got), step.want)
		}
	}
	other.interval = 100 * time.Hour
	stop := c.start(t.Context(), other)
	defer stop()
	other.hurry <- struct{}{}
	e2e.Until(t, "a probe in a hurry asks", func() bool { return asked.Load() == 1 })
}

// TestObjectivesCountRequests checks that a request is one event, however many tokens it has, and that an answer
// that was held back has no times.
func TestObjectivesCountRequests(t *testing.T) {
	objectives := []slo.Objective{
		{Name: "ttft", Signal: slo.ProbeTTFT, Threshold: slo.Duration(time.Second), Target: slo.One / 2},
		{Name: "itl", Signal: slo.ProbeITL, Threshold: slo.Duration(10 * time.Millisecond), Target: slo.One / 2},
		{Name: "answers", Signal: slo.ProbeAvailability, Target: slo.One / 2},
	}
	c, p := collecting(), probing(t, "http://engine:1")
	engines, err := engine.New(engine.Config{Objectives: objectives, Probed: c.Probed, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range c.replace(t.Context(), nil, []*Probe{p}) {
		r.stop()
	}
	for _, h := range []http.Handler{
		script(word("one"), wait, word("two"), wait, word("three"), finish, usage("1", "3"), done),
		script(join(word("one"), word("two"), finish, usage("1", "2"), done)), // held back
		http.NotFoundHandler(),
	} {
		r := asked(t, h)
		c.observe(p, &r, true, false, time.Now())
	}
	var page strings.Builder
	if _, err := engines.Scrape(t.Context()).WriteTo(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`events_total{model_name="m",server="engine:1",slo="ttft",threshold="1"} 1`,
		`events_total{model_name="m",server="engine:1",slo="itl",threshold="0.01"} 1`,
		`bad_events_total{model_name="m",server="engine:1",slo="itl",threshold="0.01"} 1`,
		`events_total{model_name="m",server="engine:1",slo="answers"} 2`,
	} {
		if !strings.Contains(page.String(), want+"\n") {
			t.Errorf("no %s:\n%s", want, page.String())
		}
	}
}

// TestSpendingOutlivesReload checks that a changed probe begins no new hour.
func TestSpendingOutlivesReload(t *testing.T) {
	c := collecting()
	before, after := probing(t, "http://engine:1"), probing(t, "http://engine:1", func(c *Config) { c.MaxTokens = 9 })
	before.take(100, 1000)
	seen := before.seen
	all := c.replace(t.Context(), []running{{before, func() {}}}, []*Probe{after})
	for _, r := range all {
		r.stop()
	}
	if len(all) != 1 || all[0].Probe != after || len(after.spent) != 1 || after.seen != seen {
		t.Errorf("%d probes, %v spent, events go on %t", len(all), after.spent, after.seen == seen)
	}
	if again := c.replace(t.Context(), []running{{before, func() {}}}, []*Probe{probing(t, "http://engine:1")}); again[0].Probe != before {
		t.Error("a probe that is as it was begins anew")
	}
}

// TestStopEndsTheRequest checks that a probe that was stopped has ended, and that its cost is counted.
func TestStopEndsTheRequest(t *testing.T) {
	arrived := make(chan struct{})
	s := answering(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		script(word("one"), hold)(w, r)
	}))
	var ended atomic.Bool
	c, p := collecting(), probing(t, s.URL)
	p.interval = time.Millisecond
	stop := c.start(t.Context(), p)
	<-arrived
	stop()
	if len(p.spent) != 1 {
		t.Errorf("%v spent", p.spent)
	}
	c = New(func(ctx context.Context, _ engine.Offer) (engine.Engine, bool) {
		arrived <- struct{}{}
		<-ctx.Done()
		time.Sleep(pause)
		ended.Store(true)
		return engine.Engine{Sleeping: true}, true
	}, slog.New(slog.DiscardHandler))
	stop = c.start(t.Context(), p)
	<-arrived
	if stop(); !ended.Load() {
		t.Error("it goes on")
	}
}

func TestConfigurationErrors(t *testing.T) {
	good := Config{URL: "http://engine:1", Model: "m"}
	for _, c := range []struct {
		name   string
		change func(*Config)
		says   []string
	}{
		{"no URL", func(c *Config) { c.URL = "" }, []string{"probes[1].url", "http://host:port"}},
		{"credentials in the URL", func(c *Config) { c.URL = "http://u:p@engine:1" }, []string{"probes[1].url", "password_file"}},
		{"path of the API", func(c *Config) { c.URL = "http://engine:1/v1" }, []string{"probes[1].url", "because the exporter adds it"}},
		{
			"whole path of the API", func(c *Config) { c.URL = "http://engine:1/v1/chat/completions" },
			[]string{"probes[1].url", "because the exporter adds it"},
		},
		{"query", func(c *Config) { c.URL = "http://engine:1?x=1" }, []string{"probes[1].url", "no query"}},
		{"no model", func(c *Config) { c.Model = "" }, []string{"probes[1].model", "/v1/models"}},
		{"unknown API", func(c *Config) { c.API = "grpc" }, []string{"probes[1].api", "chat, completions, ollama, tgi, triton"}},
		{"too often", func(c *Config) { _ = c.Interval.Set("1s") }, []string{"probes[1].interval", "at least 10s"}},
		{"too long an answer", func(c *Config) { c.MaxTokens = 1000 }, []string{"probes[1].max_tokens", "from 1 to 128"}},
		{"negative answer", func(c *Config) { c.MaxTokens = -1 }, []string{"probes[1].max_tokens"}},
		{"too short a prompt", func(c *Config) { c.PromptWords = 3 }, []string{"probes[1].prompt_words", "the question alone"}},
		{"more than the budget", func(c *Config) { c.PromptWords = 9000 }, []string{"probes[1].tokens_per_hour", "18072 tokens", "10000"}},
		{"own field", func(c *Config) { c.Body = map[string]any{"n": 4} }, []string{"probes[1].body.n", "sets n itself"}},
		{"secret", func(c *Config) { c.HTTP.BearerToken = "s3cret" }, []string{"probes[1].http_config.bearer_token", "bearer_token_file"}},
		{"an address for all engines", func(c *Config) { c.Engines = true }, []string{"probes[1].engines", "leave out url, model and api"}},
		{"too often for all engines", func(c *Config) { *c = Config{Engines: true, Interval: 1} }, []string{
			"probes[1].interval",
			"at least 10s",
		}},
		{"twice", func(*Config) {}, []string{"probes[1].name", "probes[0]", "another name"}},
	} {
		bad := good
		c.change(&bad)
		_, err := Compile([]Config{good, bad}, time.Minute, "test")
		if err == nil {
			t.Errorf("%s is accepted", c.name)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: the error does not say %q: %v", c.name, s, err)
			}
		}
	}
	other := good
	other.Name = "long"
	if all, err := Compile([]Config{good, other}, time.Minute, "test"); err != nil || !slices.Equal(all[1].labels(),
		[]string{"long", "m", "engine:1", "", "", ""}) {
		t.Errorf("%v", err)
	}
}

// TestHealth checks that the health endpoint's answer is exported beside the result of a request, and is requested only
// if it is configured.
func TestHealth(t *testing.T) {
	var code, n atomic.Int32
	mux := http.NewServeMux()
	mux.Handle("POST /", script(word("one"), hold))
	mux.Handle("GET /ready", counting(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(code.Load())) }), &n))
	url := answering(t, mux).URL
	c, p := collecting(), probing(t, url, within(100*time.Millisecond), func(c *Config) { c.Health = "/ready" })
	for status, want := range map[int32]string{200: "1", 503: "0"} {
		code.Store(status)
		c.once(t.Context(), p, time.Now())
		wants(t, c, `llm_probe_health{model_name="m",probe="chat"} `+want)
	}
	wants(t, c, `llm_probe_requests_total{model_name="m",outcome="timeout",probe="chat"} 2`)
	c, p = collecting(), probing(t, url, within(100*time.Millisecond))
	if c.once(t.Context(), p, time.Now()); n.Load() != 2 || strings.Contains(series(t, c), "llm_probe_health") {
		t.Errorf("asked %d times", n.Load())
	}
}
