package engine

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

func TestConcurrentScrapersShareOneFetch(t *testing.T) {
	var fetches sync.Map
	release := make(chan struct{})
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		n, _ := fetches.LoadOrStore("n", new(int))
		*n.(*int)++
		<-release
		io.WriteString(w, readPage(t, "vllm/v0.11.2.prom"))
	}))
	defer engine.Close()
	c := collectorFor(t, []TargetConfig{{URL: engine.URL}})
	pages := make(chan string, 8)
	for range cap(pages) {
		go func() { pages <- exposition(t, c) }()
	}
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	early := c.Scrape(impatient)
	parse(t, text(t, early)).want(t, `llm_engine_up{reason="timeout"}`, 0)
	if early.Complete() {
		t.Error("a scrape without its engine is called complete")
	}
	close(release)
	for range cap(pages) {
		parse(t, <-pages).want(t, `llm_engine_up`, 1) // a scraper that left early did not deprive the others of the metrics page
	}
	if n, _ := fetches.Load("n"); *n.(*int) != 1 {
		t.Errorf("%d fetches", *n.(*int))
	}
}

func TestScrapeAfterAnAbandonedOneStartsFresh(t *testing.T) {
	first := make(chan struct{})
	var once sync.Once
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hang := false
		once.Do(func() { hang = true })
		if hang {
			close(first)
			<-r.Context().Done()
			return
		}
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, readPage(t, "vllm/v0.11.2.prom"))
	}))
	defer engine.Close()
	c := collectorFor(t, []TargetConfig{{URL: engine.URL}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-first; cancel() }()
	c.Scrape(ctx)
	parse(t, exposition(t, c)).want(t, `llm_engine_up`, 1)
}

// TestWhoLeavesEarlySaysNothingOfTheEngine lets two scrapers share an engine that is too slow for one of them.
func TestWhoLeavesEarlySaysNothingOfTheEngine(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		time.Sleep(100 * time.Millisecond)
		io.WriteString(w, readPage(t, "vllm/v0.11.2.prom"))
	}))
	defer engine.Close()
	var logged bytes.Buffer
	c := collectorWith(t, Config{Targets: []TargetConfig{{URL: engine.URL}}, Log: slog.New(slog.NewTextHandler(&logged, nil))})
	for round := range 6 {
		patient := make(chan string)
		if round%2 == 0 { // together, and one after the other
			go func() { patient <- exposition(t, c) }()
		}
		impatient, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		parse(t, text(t, c.Scrape(impatient))).want(t, `llm_engine_up{reason="timeout"}`, 0)
		cancel()
		if round%2 == 1 {
			go func() { patient <- exposition(t, c) }()
		}
		parse(t, <-patient).want(t, `llm_engine_up`, 1)
		if e := c.Engines()[0]; e.Reason != "" {
			t.Errorf("the engine's state is %q after a scrape that worked", e.Reason)
		}
	}
	if strings.Contains(logged.String(), "cannot be used") || strings.Count(logged.String(), "metrics are used") != 1 {
		t.Errorf("the engine never changed, the log says:\n%s", logged.String())
	}
}

func TestPageWithoutItsLastLineFeed(t *testing.T) {
	whole := readPage(t, "vllm/v0.11.2.prom")
	s := parse(t, mapped(t, strings.TrimSuffix(whole, "\n")))
	s.want(t, `llm_engine_up`, 1)
	s.want(t, `llm_engine_requests_running`, parse(t, mapped(t, whole)).get(t, `llm_engine_requests_running`)...)
}

func TestIdentityIsAskedOncePerStart(t *testing.T) {
	e := serve(t, readPage(t, "llamacpp/b10450-loaded.prom"))
	e.documents["/v1/models"] = identity(t, "llamacpp-models.json")
	e.documents["/props"] = identity(t, "llamacpp-props.json")
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	var s samples
	for range 5 {
		s = parse(t, exposition(t, c))
	}
	s.want(t, `llm_engine_info{model_name="gemma-3-4b-it-Q4_K_M.gguf",version=~"b10450-.+"}`, 1)
	s.want(t, `llm_engine_max_model_len_tokens{model_name="gemma-3-4b-it-Q4_K_M.gguf"}`, 8192)
	s.want(t, `llm_engine_kv_cache_capacity_tokens`, 65536)
	s.want(t, `llm_engine_metric_source_info{metric="llm_engine_kv_cache_capacity_tokens",quality="approximate"}`, 1)
	s.want(t, `llm_engine_requests_running{model_name="gemma-3-4b-it-Q4_K_M.gguf"}`, 8)
	const asleep = 1 // each scrape queries /props, whether the server sleeps
	if n := e.asked("/props"); n != 1+5*asleep {
		t.Errorf("/props was asked %d times in 5 scrapes", n)
	}
	// The process restarts, so counters fall, and it may be another release.
	e.page = strings.Replace(e.page, "llamacpp:tokens_predicted_total 987654", "llamacpp:tokens_predicted_total 12", 1)
	e.documents["/props"] = strings.Replace(e.documents["/props"], "b10450", "b10451", 1)
	parse(t, exposition(t, c)).want(t, `llm_engine_info{version=~"b10451-.+"}`, 1)
	if n := e.asked("/props"); n != 2+6*asleep {
		t.Errorf("/props was asked %d times after the restart", n)
	}
}

func TestEndpointsFillInWhatPagesLack(t *testing.T) {
	for _, c := range []struct {
		page      string
		documents map[string]string
		want      map[string]float64
	}{
		{"vllm/v0.11.2.prom", map[string]string{"/version": "vllm-version.json", "/v1/models": "vllm-models.json"}, map[string]float64{
			`llm_engine_info{version="0.11.2"}`:                                1,
			`llm_engine_max_model_len_tokens`:                                  131072,
			`llm_engine_metric_source_info{source="/v1/models max_model_len"}`: 1,
		}},
		{"tgi/v3.3.7-loaded.prom", map[string]string{"/info": "tgi-info.json"}, map[string]float64{
			`llm_engine_info{version="3.3.7",model_name="HuggingFaceH4/zephyr-7b-beta"}`: 1,
			`llm_engine_requests_waiting{model_name="HuggingFaceH4/zephyr-7b-beta"}`:     14,
		}},
		{
			"sglang/v0.5.9-priority.prom",
			map[string]string{"/get_server_info": "sglang-server-info.json", "/v1/models": "sglang-models.json"},
			map[string]float64{
				`llm_engine_max_model_len_tokens`: 40960,
			},
		},
		{
			"trtllm/v1.1.0-unprefixed.prom",
			map[string]string{"/version": "trtllm-version.json", "/v1/models": "trtllm-models.json"},
			map[string]float64{
				`llm_engine_request_duration_seconds_count{model_name="nemotron-3-nano"}`: 321, // the metrics page has "undefined"
			},
		},
	} {
		e := serve(t, readPage(t, c.page))
		for path, file := range c.documents {
			e.documents[path] = identity(t, file)
		}
		if strings.HasPrefix(c.page, "trtllm") {
			e.path = "/prometheus/metrics"
		}
		s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))
		for selector, value := range c.want {
			s.want(t, selector, value)
		}
	}
}

func identity(t testing.TB, name string) string {
	b, err := os.ReadFile(filepath.Join("testdata/identity", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBuildsFromSourceAreDatedByTheirPage(t *testing.T) {
	e := serve(t, readPage(t, "vllm/v0.9.1.prom"))
	e.documents["/version"] = `{"version": "0.1.dev10085+g3dc1a5b"}`
	e.documents["/v1/models"] = `{"data": []}`
	s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))
	s.want(t, `llm_engine_info{version="0.1.dev10085+g3dc1a5b"}`, 1) // the engine's own value is shown
	s.want(t, `llm_engine_prefix_cache_query_tokens_total`, 7751686) // the metrics page has precedence: tokens, not blocks
}

func TestTRTLLMStatisticsAreNeverDrained(t *testing.T) {
	for _, given := range []string{"", "/metrics", "/metrics/"} {
		e := serve(t, readPage(t, "trtllm/v1.3.0-full.prom"))
		e.path = "/prometheus/metrics"
		e.documents["/metrics"] = readPage(t, "trtllm/json-array.json")
		s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL + given}})))
		s.want(t, `llm_engine_up{runtime="trtllm"}`, 1)
		if n := e.asked("/metrics"); n != 0 {
			t.Errorf("configured path %q: /metrics was read %d times", given, n)
		}
	}
}

func TestTRTLLMWithoutPerfMetricsIsLeftAlone(t *testing.T) {
	e := serve(t, "")
	e.path = "/nowhere"
	e.documents["/metrics"] = readPage(t, "trtllm/json-array.json")
	e.documents["/v1/models"] = identity(t, "trtllm-models.json")
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	for range 3 {
		parse(t, exposition(t, c)).want(t, `llm_engine_up{reason="metrics_disabled"}`, 0)
	}
	if n := e.asked("/metrics"); n != 0 {
		t.Errorf("/metrics was read %d times", n)
	}
	// Even an engine that hides its name is not read twice.
	delete(e.documents, "/v1/models")
	c = collectorFor(t, []TargetConfig{{URL: e.URL}})
	parse(t, exposition(t, c)).want(t, `llm_engine_up{reason="json_metrics"}`, 0)
	parse(t, exposition(t, c)).want(t, `llm_engine_up{reason="metrics_disabled"}`, 0)
	if n := e.asked("/metrics"); n != 1 {
		t.Errorf("/metrics was read %d times", n)
	}
}

func TestTGIBeforeItsFirstRequest(t *testing.T) {
	e := serve(t, "")
	e.documents["/info"] = identity(t, "tgi-info.json")
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	s := parse(t, exposition(t, c))
	s.want(t, `llm_engine_up{runtime="tgi"}`, 1)
	s.want(t, `llm_engine_info{model_name="HuggingFaceH4/zephyr-7b-beta"}`, 1)
	s.want(t, `llm_engine_source_missing_total`)
	e.page = readPage(t, "tgi/v3.3.7-loaded.prom")
	parse(t, exposition(t, c)).want(t, `llm_engine_requests_running`, 30)
}

func TestEngineComesAndGoes(t *testing.T) {
	var logged bytes.Buffer
	e := serve(t, readPage(t, "vllm/v0.11.2.prom"))
	c, err := New(Config{Targets: []TargetConfig{{URL: e.URL}}, Log: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		parse(t, exposition(t, c)).want(t, `llm_engine_up{runtime="vllm"}`, 1)
	}
	e.status = http.StatusBadGateway
	for range 3 {
		s := parse(t, exposition(t, c))
		s.want(t, `llm_engine_up{runtime="vllm",reason="http_502"}`, 0) // still known as the same engine
		s.want(t, `llm_engine_requests_running`)                        // and no stale number
	}
	e.status = http.StatusOK
	e.page = readPage(t, "sglang/v0.5.5.prom") // another engine took the port
	for range 3 {
		parse(t, exposition(t, c)).want(t, `llm_engine_up{runtime="sglang"}`, 1)
	}
	if n := strings.Count(logged.String(), "level=WARN msg=\"engine's metrics cannot be used\""); n != 1 {
		t.Errorf("the outage was logged %d times:\n%s", n, logged.String())
	}
	if n := strings.Count(logged.String(), "engine's metrics are used"); n != 2 {
		t.Errorf("the recoveries were logged %d times:\n%s", n, logged.String())
	}
}

// TestNumbersFollowThePage checks the property behind the template: any sequence of metrics pages, with the same or
// other series, reads like each metrics page alone.
func TestNumbersFollowThePage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	e := serve(t, readPage(t, "vllm/v0.19.0-dp2-spec.prom"))
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	lines := strings.SplitAfter(e.page, "\n")
	number := func(line string) string {
		if strings.HasPrefix(line, "#") || !strings.Contains(line, " ") {
			return line
		}
		return line[:strings.LastIndexByte(line, ' ')+1] + []string{
			"0.0", "1e+06", "NaN", "+Inf", "17",
			"0.30000000000000004",
		}[random.IntN(6)] + "\n"
	}
	for round := range 40 {
		var page strings.Builder
		blocks := blocksOf(lines)
		if round%3 == 1 {
			random.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		}
		for _, block := range blocks {
			if round%4 == 2 && random.IntN(10) == 0 {
				continue
			}
			for _, line := range block {
				page.WriteString(number(line))
			}
		}
		e.page = page.String()
		got := parse(t, exposition(t, c))
		want := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))
		for _, f := range metrics.All() {
			switch f {
			case metrics.EngineScrapeDuration, metrics.SourceMissing, metrics.EngineRestarts, metrics.RequestsInFlight,
				metrics.EngineLastProgress, metrics.EngineStalled, metrics.EngineWithoutProgress, metrics.RequestsArrived,
				metrics.RequestsWithoutToken, metrics.EngineCold, metrics.PrefillComputedTokens, metrics.EngineStandstill,
				metrics.RequestsLost:
				continue // they remember
			}
			for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
				series := f.Name + suffix
				if f == metrics.Requests {
					series += `{outcome!~"abort|error|rejected|invalid"}` // their counts continue when an engine restarts
				}
				if a, b := got.get(t, series), want.get(t, series); !equal(a, b) {
					t.Fatalf("round %d: %s is %v, from this page alone %v", round, series, a, b)
				}
			}
		}
	}
}

// blocksOf splits a metrics page before each HELP line.
func blocksOf(lines []string) (blocks [][]string) {
	for _, l := range lines {
		if len(blocks) == 0 || strings.HasPrefix(l, "# HELP") {
			blocks = append(blocks, nil)
		}
		blocks[len(blocks)-1] = append(blocks[len(blocks)-1], l)
	}
	return blocks
}

func equal(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestRequestToTheEngine(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "token")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var headers http.Header
	engine := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			http.Redirect(w, r, "/metrics/", http.StatusTemporaryRedirect) // as Starlette does for mounted applications
		case "/metrics/":
			headers = r.Header.Clone()
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			io.WriteString(z, readPage(t, "vllm/v0.11.2.prom"))
			z.Close()
		default:
			http.NotFound(w, r)
		}
	}))
	defer engine.Close()
	ca := filepath.Join(dir, "ca.pem")
	writeCertificate(t, ca, engine)
	c := collectorFor(t, []TargetConfig{{URL: engine.URL, HTTP: config.HTTPClientConfig{
		Authorization: &config.Authorization{Type: "Bearer", CredentialsFile: secret},
		TLSConfig:     config.TLSConfig{CAFile: ca},
	}}})
	parse(t, exposition(t, c)).want(t, `llm_engine_up`, 1)
	for header, want := range map[string]string{
		"Authorization": "Bearer s3cret", "Accept": "text/plain;version=0.0.4;q=1,*/*;q=0.1",
		"Accept-Encoding": "gzip", "User-Agent": "test",
	} {
		if got := headers.Get(header); got != want {
			t.Errorf("%s is %q, want %q", header, got, want)
		}
	}
	if headers.Get("X-Prometheus-Scrape-Timeout-Seconds") == "" {
		t.Error("the engine is not told how long it has")
	}

	c = collectorFor(t, []TargetConfig{{URL: engine.URL}})
	parse(t, exposition(t, c)).want(t, `llm_engine_up{reason="tls"}`, 0)
}

// plainly counts the connections on which a client did not speak TLS.
type plainly struct {
	net.Listener
	count atomic.Int32
}

func (p *plainly) Accept() (net.Conn, error) {
	for {
		conn, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := bufio.NewReader(conn)
		if first, err := from.Peek(1); err == nil && first[0] == 22 { // a handshake
			return peeked{conn, from}, nil
		}
		p.count.Add(1)
		conn.Close()
	}
}

type peeked struct {
	net.Conn
	from *bufio.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.from.Read(b) }

// A redirect from https to http would send the credentials in clear.
func TestCredentialsAreNotSentInClear(t *testing.T) {
	dir := t.TempDir()
	secret, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(secret, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	engine := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+r.Host+"/metrics/", http.StatusTemporaryRedirect)
	}))
	plain := &plainly{Listener: engine.Listener}
	engine.Listener = plain
	engine.StartTLS()
	defer engine.Close()
	writeCertificate(t, ca, engine)
	c := collectorFor(t, []TargetConfig{{URL: engine.URL, HTTP: config.HTTPClientConfig{
		Authorization: &config.Authorization{Type: "Bearer", CredentialsFile: secret},
		TLSConfig:     config.TLSConfig{CAFile: ca},
	}}})
	parse(t, exposition(t, c)).want(t, `llm_engine_up{reason="http_307"}`, 0)
	if n := plain.count.Load(); n > 0 {
		t.Errorf("%d requests were sent in clear", n)
	}
}

func TestLabelsOfATarget(t *testing.T) {
	e := serve(t, readPage(t, "vllm/v0.11.2.prom"))
	c := collectorFor(t, []TargetConfig{{URL: e.URL, Labels: map[string]string{
		"model_name": "chat", "namespace": "prod", "pod": "chat-0", "container": "vllm", "role": "decode", "team": `a "quoted" \ name`,
	}}})
	s := parse(t, exposition(t, c))
	s.want(t, `llm_engine_requests_running{model_name="chat",namespace="prod",pod="chat-0",container="vllm",role="decode",team="a \"quoted\" \\ name"}`, 0)
	s.want(t, `llm_engine_up{namespace="prod",pod="chat-0",team=~".+"}`, 1)
}

// TestAnotherEngineAtTheSameAddress checks that version and length limit are those of the engine that writes the
// metrics page, even if nobody saw its port closed. The metrics page has another shape, or the same shape and
// another start of the process.
func TestAnotherEngineAtTheSameAddress(t *testing.T) {
	e := serve(t, readPage(t, "vllm/v0.19.0-dp2-spec.prom"))
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	is := func(version string, length float64) {
		t.Helper()
		e.documents["/version"] = `{"version": "` + version + `"}`
		e.documents["/v1/models"] = fmt.Sprintf(`{"data": [{"id": "tiny", "owned_by": "vllm", "max_model_len": %v}]}`, length)
		for range 2 {
			s := parse(t, exposition(t, c))
			s.want(t, `llm_engine_info{version="`+version+`"}`, 1)
			s.want(t, `llm_engine_max_model_len_tokens`, length)
		}
	}
	is("0.19.0", 32768)
	e.show(readPage(t, "vllm/v0.32.0-healthy.prom"))
	is("0.32.0", 4096)
	e.show(strings.Replace(e.page, "process_start_time_seconds 1", "process_start_time_seconds 2", 1))
	is("0.32.1", 8192)
	asked := e.asked("/version")
	for i := range 5 { // a metrics page that gains and loses series does not cause a query each time
		e.show(readPage(t, "vllm/v0.32.0-healthy.prom") + strings.Repeat(fmt.Sprintf("# TYPE other_%d gauge\nother_%d 1\n", i, i), i%2))
		exposition(t, c)
	}
	if n := e.asked("/version") - asked; n > 2 {
		t.Errorf("asked %d times within a minute", n)
	}
}

func TestModelOfSeriesThatNameNone(t *testing.T) {
	const config = "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"4096\"} 1\n# TYPE " +
		"vllm:num_requests_running gauge\n"
	const running = "vllm:num_requests_running{engine=\"0\",model_name=\"%\"} 1\n"
	one, two := strings.ReplaceAll(running, "%", "a"), strings.ReplaceAll(running, "%", "b")
	// If the metrics page has one model, the capacity belongs to it. If there are two models, the owner is unknown.
	parse(t, mapped(t, config+one)).want(t, `llm_engine_kv_cache_capacity_tokens{model_name="a"}`, 4096)
	e := serve(t, config+one+two)
	e.documents["/v1/models"] = identity(t, "vllm-models.json")
	s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))
	s.want(t, `llm_engine_kv_cache_capacity_tokens{model_name=""}`, 4096)
	s.want(t, `llm_engine_requests_running{model_name=~"a|b"}`, 1, 1)
}

func TestOpenMetricsIsReadToo(t *testing.T) {
	e := serve(t, "# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total{model_name=\"m\"} 12.0 # {trace_id=\"x\"} 1.0\n"+
		"vllm:prompt_tokens_created{model_name=\"m\"} 1.7e+09\n# TYPE vllm:num_requests_running "+
		"gauge\nvllm:num_requests_running{model_name=\"m\"} 3.0\n# EOF\n")
	e.contentType = "application/openmetrics-text; version=1.0.0; charset=utf-8"
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	for range 2 {
		s := parse(t, exposition(t, c))
		s.want(t, `llm_engine_prompt_tokens_total{model_name="m"}`, 12)
		s.want(t, `llm_engine_requests_running{model_name="m"}`, 3)
	}
}

func TestPagesWithoutTypes(t *testing.T) {
	var bare strings.Builder
	for line := range strings.Lines(readPage(t, "vllm/v0.11.2.prom")) {
		if !strings.HasPrefix(line, "#") {
			bare.WriteString(line)
		}
	}
	s := parse(t, mapped(t, bare.String()))
	s.want(t, `llm_engine_time_to_first_token_seconds_count`, 8727)
	s.want(t, `llm_engine_time_to_first_token_seconds_sum`, 2250.629841011367)
	s.want(t, `llm_engine_preemptions_total`, 3)
	s.want(t, `llm_engine_source_missing_total`)
}

func TestConfigurationErrors(t *testing.T) {
	for _, c := range []struct {
		path, says string
		target     TargetConfig
		mapping    *Mapping
	}{
		{"targets[0].url", "http://host:port", TargetConfig{URL: "localhost:8000"}, nil},
		{"targets[0].url", "password_file", TargetConfig{URL: "http://u:p@h:1"}, nil},
		{"targets[0].engine", "unknown engine \"vlm\": use one of", TargetConfig{URL: "http://h:1", Engine: "vlm"}, nil},
		{"targets[0].labels.dp_rank", "cannot be set here", TargetConfig{URL: "http://h:1", Labels: map[string]string{"dp_rank": "1"}}, nil},
		{"targets[0].labels.a-b", "not a label name", TargetConfig{URL: "http://h:1", Labels: map[string]string{"a-b": "1"}}, nil},
		{"targets[0].http_config.authorization.credentials", "credentials_file", TargetConfig{
			URL:  "http://h:1",
			HTTP: config.HTTPClientConfig{Authorization: &config.Authorization{Credentials: "s3cret"}},
		}, nil},
		{"mappings[0].engine", "needs a name", TargetConfig{}, &Mapping{}},
		{"mappings[0].recognise", "only mine has", TargetConfig{}, &Mapping{Engine: "mine"}},
		{"mappings[0].labels.pod", "only model_name", TargetConfig{}, &Mapping{
			Engine: "mine", Recognise: "x",
			Labels: map[string]string{"pod": "p"},
		}},
		{"mappings[0].metrics[0].to", "docs/metrics.md", TargetConfig{}, mapping(MetricMapping{To: "llm_engine_requests"})},
		{"mappings[0].metrics[0].from", "PromQL", TargetConfig{}, mapping(MetricMapping{To: "llm_engine_requests_running", From: `x{a=}`})},
		{"mappings[0].metrics[0].from", "one metric", TargetConfig{}, mapping(MetricMapping{To: "llm_engine_requests_running", From: `{a="b"}`})},
		{
			"mappings[0].metrics[0].type", "counter, gauge, histogram",
			TargetConfig{},
			mapping(MetricMapping{To: "llm_engine_requests_running", From: `x`}),
		},
		{"mappings[0].metrics[0].type", "is a gauge", TargetConfig{}, mapping(MetricMapping{
			To: "llm_engine_requests_running", From: `x`,
			Type: scrape.Counter,
		})},
		{
			"mappings[0].metrics[0].outcome", "takes an outcome",
			TargetConfig{},
			mapping(MetricMapping{To: "llm_engine_requests_total", From: `x`, Type: scrape.Counter}),
		},
	} {
		var targets []TargetConfig
		var mappings []Mapping
		if c.target.URL != "" {
			targets = append(targets, c.target)
		}
		if c.mapping != nil {
			mappings = append(mappings, *c.mapping)
		}
		_, err := New(Config{Targets: targets, Mappings: mappings, Log: discard})
		var at *ConfigError
		if !errors.As(err, &at) || at.Path != c.path || !strings.Contains(err.Error(), c.says) {
			t.Errorf("got %v, want an error at %s that says %q", err, c.path, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
	if _, err := New(Config{Targets: []TargetConfig{{URL: "http://h:1"}, {URL: "http://h:1/metrics"}}, Log: discard}); err == nil ||
		!strings.Contains(err.Error(), "targets[0]") {
		t.Errorf("one server twice: %v", err)
	}
}

func mapping(m MetricMapping) *Mapping {
	return &Mapping{Engine: "mine", Recognise: "x", Metrics: []MetricMapping{m}}
}

func TestUserMapping(t *testing.T) {
	page := "# TYPE mine_requests gauge\nmine_requests{state=\"running\",llm=\"a\"} 4\nmine_requests{state=\"queued\",llm=\"a\"} 2\n" +
		"# TYPE mine_first_token_ms histogram\nmine_first_token_ms_bucket{llm=\"a\",le=\"300\"} " +
		"1\nmine_first_token_ms_bucket{llm=\"a\",le=\"+Inf\"} 2\n" +
		"mine_first_token_ms_sum{llm=\"a\"} 900\nmine_first_token_ms_count{llm=\"a\"} 2\n" +
		"# TYPE mine_done counter\nmine_done{llm=\"a\",ok=\"yes\"} 9\nmine_done{llm=\"a\",ok=\"no\"} 1\n"
	c := collectorFor(t, []TargetConfig{{URL: serve(t, page).URL, Timeout: model.Duration(time.Second)}}, Mapping{
		Engine: "mine", Recognise: "mine_requests", Labels: map[string]string{"model_name": "llm"},
		Metrics: []MetricMapping{
			{To: "llm_engine_requests_running", From: `mine_requests{state="running"}`, Type: scrape.Gauge},
			{To: "llm_engine_requests_waiting", From: `mine_requests{state=~"queued|held"}`, Type: scrape.Gauge},
			{To: "llm_engine_time_to_first_token_seconds", From: `mine_first_token_ms`, Type: scrape.Histogram, Scale: 0.001},
			{To: "llm_engine_requests_total", From: `mine_done{ok="yes"}`, Type: scrape.Counter, Outcome: metrics.OutcomeSuccess},
			{To: "llm_engine_requests_total", From: `mine_done{ok="no"}`, Type: scrape.Counter, Outcome: metrics.OutcomeError},
		},
	})
	s := parse(t, exposition(t, c))
	s.want(t, `llm_engine_up{runtime="mine"}`, 1)
	s.want(t, `llm_engine_requests_running{runtime="mine",model_name="a"}`, 4)
	s.want(t, `llm_engine_requests_waiting`, 2)
	s.want(t, `llm_engine_time_to_first_token_seconds_bucket{le="0.3"}`, 1)
	s.want(t, `llm_engine_time_to_first_token_seconds_sum`, 0.9)
	s.want(t, `llm_engine_requests_total{outcome="success"}`, 9)
	s.want(t, `llm_engine_requests_total{outcome="error"}`, 1)

	// A mapping may add quantities to a known engine. What the engine itself reports stays.
	fork := "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\",engine=\"0\"} 1\n" +
		"# TYPE fork_waiting gauge\nfork_waiting{model_name=\"m\",engine=\"0\"} 5\n"
	c = collectorFor(t, []TargetConfig{{URL: serve(t, fork).URL}}, Mapping{
		Engine:  "vllm",
		Metrics: []MetricMapping{{To: "llm_engine_requests_waiting", From: `fork_waiting`, Type: scrape.Gauge}},
	})
	s = parse(t, exposition(t, c))
	s.want(t, `llm_engine_requests_running{runtime="vllm",model_name="m",dp_rank="0"}`, 1)
	s.want(t, `llm_engine_requests_waiting{runtime="vllm",model_name="m",dp_rank="0"}`, 5)
}

func writeCertificate(t testing.TB, path string, server *httptest.Server) {
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, block, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLastServed checks that the exporter reports which models a missing metrics page had, and since when it is
// missing.
func TestLastServed(t *testing.T) {
	vllm, gateway := serve(t, readPage(t, "vllm/v0.28.0-dp8-lora.prom")), serve(t, readPage(t, "litellm/main-loaded.prom"))
	read := time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC)
	now := read
	c := collectorWith(t, Config{Targets: []TargetConfig{{URL: vllm.URL}, {URL: gateway.URL}}, Now: func() time.Time { return now }})
	s := parse(t, exposition(t, c))
	s.want(t, metrics.EngineLastServed.Name)
	models := len(s.get(t, metrics.EngineInfo.Name))

	vllm.status, gateway.status, now = http.StatusServiceUnavailable, http.StatusBadGateway, read.Add(time.Minute)
	silent := exposition(t, c)
	s = parse(t, silent)
	s.want(t, metrics.EngineInfo.Name)
	if got := s.get(t, metrics.EngineLastServed.Name); len(got) != models || models < 3 || slices.Max(got) != float64(read.Unix()) ||
		slices.Min(got) != float64(read.Unix()) {
		t.Errorf("%d models were there at %d: %v", models, read.Unix(), got)
	}
	golden.Compare(t, "testdata/silent.prom", golden.Still(silent, metrics.EngineScrapeDuration.Name))

	vllm.status = http.StatusOK
	parse(t, exposition(t, c)).want(t, metrics.EngineLastServed.Name+`{role!="gateway"}`)
}
