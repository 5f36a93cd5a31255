package triage_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// gone represents a metrics endpoint whose server refuses connections.
const gone = ""

// host is a node whose programs serve recorded metrics pages to the exporter's own collector.
type host struct {
	t         *testing.T
	pages     []*string // as served now
	clock     time.Time // start of the exporter; zero leaves the page unchanged
	collector *engine.Collector
}

// newHost returns a node with this many programs.
func newHost(t *testing.T, programs int) *host {
	h := &host{t: t}
	cfg := engine.Config{UserAgent: "test", Log: slog.New(slog.DiscardHandler), Now: func() time.Time {
		if h.clock.IsZero() {
			return time.Now()
		}
		return h.clock
	}}
	for _, o := range slo.Defaults() {
		cfg.Objectives = append(cfg.Objectives, o.WithDefaults())
	}
	for range programs {
		page := new(string)
		h.pages = append(h.pages, page)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case *page == gone:
				panic(http.ErrAbortHandler)
			case r.URL.Path != "/metrics":
				http.NotFound(w, r)
			default:
				w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
				io.WriteString(w, *page)
			}
		}))
		t.Cleanup(server.Close)
		cfg.Targets = append(cfg.Targets, engine.TargetConfig{URL: server.URL})
	}
	c, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.collector = c
	return h
}

// read returns the exporter's reading while its node's programs serve these metrics pages.
func (h *host) read(at time.Time, pages ...string) triage.Reading {
	h.t.Helper()
	for i := range h.pages {
		*h.pages[i] = pages[i]
	}
	var out strings.Builder
	if _, err := h.collector.Scrape(h.t.Context()).WriteTo(&out); err != nil {
		h.t.Fatal(err)
	}
	r, err := triage.Parse([]byte(out.String()), at)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// captured returns the metrics page of a real program from testdata/pages.
func captured(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("testdata", "pages", name+".prom"))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// verdicts judges two readings half a minute apart, or at their own times.
func verdicts(t *testing.T, before, after triage.Reading) []triage.Verdict {
	t.Helper()
	all, err := triage.Judge(t.Context(), before, after, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// one judges a pair of metrics pages of one program, read at this distance.
func one(t *testing.T, at time.Time, apart time.Duration, before, after string) triage.Verdict {
	t.Helper()
	h := newHost(t, 1)
	first := h.read(at, before)
	all := verdicts(t, first, h.read(at.Add(apart), after))
	if len(all) != 1 {
		t.Fatalf("%d verdicts: %+v", len(all), all)
	}
	return all[0]
}

// why returns a verdict's reason for a branch: ruled out, or not seen.
func why(v triage.Verdict, b rules.Branch) (ruledOut, notSeen string) {
	for _, r := range v.RuledOut {
		if r.Branch == b {
			ruledOut = r.Why
		}
	}
	for _, r := range v.NotSeen {
		if r.Branch == b {
			notSeen = r.Why
		}
	}
	return ruledOut, notSeen
}

// started is when the engine of the vLLM metrics pages started.
var started = time.Unix(1795402812, 0)

// TestIdleIsNotWedged checks that an engine without progress but with requests is distinguished from an idle engine,
// and that neither is healthy.
func TestIdleIsNotWedged(t *testing.T) {
	idle, wedge, hour := captured(t, "vllm-0.32-idle"), captured(t, "vllm-0.32-wedge"), started.Add(time.Hour)
	v := one(t, hour, 30*time.Second, idle, idle)
	if v.Health != triage.Unknown || v.Branch != "" || !slices.Contains(v.Symptoms, "Idle: no request came between the readings.") {
		t.Errorf("idle: %s %s %q", v.Health, v.Says, v.Symptoms)
	}
	v = one(t, hour, 30*time.Second, wedge, wedge)
	if v.Health != triage.Degraded || v.Branch != rules.Engine || v.Confidence != "low" ||
		slices.Contains(v.Symptoms, "Idle: no request came between the readings.") ||
		!strings.HasSuffix(v.Says, "has made no progress for 30s while 1 request runs or waits") {
		t.Errorf("wedged: %s %q (%s) %q", v.Health, v.Says, v.Confidence, v.Symptoms)
	}

	n := calm()
	n.running, n.more = 0, `llm_engine_requests_in_flight{L} 8
llm_engine_stalled_seconds{L} 300
llm_engine_last_progress_timestamp_seconds{L} `+fmt.Sprint(t0.Add(-372*time.Second).Unix())+"\n"
	v = judge(t, n.page(), n.page(), nil)[0]
	if v.Health != triage.Failing || v.Confidence != "high" || v.Clue != rules.ModelStalled.Name || v.Branch != rules.Engine {
		t.Errorf("no gauge shows it, and the exporter remembers: %s %q (%s), also %+v", v.Health, v.Says, v.Confidence, v.Also)
	}
	n.running, n.more = 3, "llm_engine_requests_in_flight{L} 0\n"
	if v = judge(t, n.page(), n.page(), nil)[0]; v.Health != triage.Unknown || v.Branch != "" {
		t.Errorf("gauges that clients left behind: %s %q", v.Health, v.Says)
	}
}

// TestCacheThatNobodyUses checks that a KV cache that is full while nothing runs is named, and that the first action is a
// restart: shorter answers would not empty it.
func TestCacheThatNobodyUses(t *testing.T) {
	n := calm()
	n.running, n.waiting, n.more = 0, 4, `llm_engine_kv_cache_usage_ratio{L} 0.95
llm_engine_stalled_seconds{L} 300
llm_engine_last_progress_timestamp_seconds{L} `+fmt.Sprint(t0.Add(-5*time.Minute).Unix())+"\n"
	v := judge(t, n.page(), n.page(), nil)[0]
	if v.Branch != rules.Memory || v.Says != "The KV cache of p-0 is 95% full while nothing runs, and requests wait" ||
		!strings.Contains(v.Lever, "restart") {
		t.Errorf("%s %q: %q", v.Branch, v.Says, v.Lever)
	}
}

// TestHangThatNoGaugeShows checks that clients that give up prove that there was work, although nothing runs or waits.
func TestHangThatNoGaugeShows(t *testing.T) {
	v := one(t, t0, 30*time.Second, captured(t, "sglang-0.5.23-loaded"), captured(t, "sglang-0.5.23-hang"))
	if v.Health != triage.Degraded || v.Branch != rules.Engine || v.Says != "No request got a token for 30s, and clients gave up 8 requests" {
		t.Errorf("%s %s %q", v.Health, v.Branch, v.Says)
	}
	v = one(t, t0, 30*time.Second, captured(t, "sglang-0.5.23-hang"), captured(t, "sglang-0.5.23-hang"))
	if v.Health != triage.Degraded || !strings.HasSuffix(v.Says, "has made no progress for 30s while 8 requests run or wait") {
		t.Errorf("%s %s %q %q", v.Health, v.Branch, v.Says, v.Symptoms)
	}
}

// TestGoneAndBack checks that an engine is not healthy just because it answers again.
func TestGoneAndBack(t *testing.T) {
	v := one(t, started.Add(time.Hour), 30*time.Second, gone, captured(t, "vllm-0.32-healthy"))
	if v.Health != triage.Degraded || v.Model != "tiny" || v.Branch != rules.Engine ||
		!strings.HasSuffix(v.Says, "was gone or restarted in the last five minutes") {
		t.Errorf("%s %s: %s %q", v.Model, v.Health, v.Branch, v.Says)
	}
}

// restarts matches the restarts of the engine on a node's metrics page.
var restarts = regexp.MustCompile(`(?m)^(llm_engine_restarts_total.*) .*$`)

// TestCrashLoop checks that a reading during a crash loop sees an engine that has just started, and how often it did.
func TestCrashLoop(t *testing.T) {
	n := calm()
	n.more = "" // up in both readings
	young := func(n node) string {
		old, now := fmt.Sprintf("%g", float64(t0.Add(-48*time.Hour).Unix())), fmt.Sprint(t0.Add(-5*time.Second).Unix())
		return strings.Replace(n.page(), old, now, 1)
	}
	after := n
	after.requests += 100
	for _, c := range []struct{ restarts, says string }{
		{"0", "Two readings cannot show whether it restarts again and again"}, {"3", "That was restart 3 since its exporter started"},
	} {
		counted := func(n node) string { return restarts.ReplaceAllString(young(n), "$1 "+c.restarts) }
		v := judge(t, counted(n), counted(after), nil)[0]
		if v.Health != triage.Unknown || !slices.Contains(v.Symptoms, "p-0 10.0.0.1:8000 started 35s ago. "+c.says+".") {
			t.Errorf("%s %q", v.Health, v.Symptoms)
		}
	}
}

// TestOutage checks that an engine that is gone keeps the model of the exporter's last reading. Without such a reading,
// it has its address.
func TestOutage(t *testing.T) {
	h := newHost(t, 1)
	h.read(t0.Add(-time.Minute), captured(t, "vllm-0.32-healthy"))
	first := h.read(t0, gone)
	v := verdicts(t, first, h.read(t0.Add(30*time.Second), gone))[0]
	if v.Model != "tiny" || v.Health != triage.Failing || v.Confidence != "high" ||
		v.Says != "No request is answered: no engine serves the model, among those that are read here" {
		t.Errorf("%q: %s, %q (%s)", v.Model, v.Health, v.Says, v.Confidence)
	}
	if v.Record.Model != "tiny" || len(v.Record.Engines) != 1 || !slices.Equal(v.Record.Runtimes, []string{"vllm"}) {
		t.Errorf("%+v", v.Record)
	}
	v = one(t, t0, 30*time.Second, gone, gone)
	if !strings.HasPrefix(v.Record.Model, "127.0.0.1:") || v.Health != triage.Failing ||
		!strings.HasSuffix(v.Says, "does not answer, and never reported its model") {
		t.Errorf("%q: %s, %q", v.Record.Model, v.Health, v.Says)
	}
	var text strings.Builder
	if err := (triage.Text{}).Write(&text, []triage.Verdict{v}); err != nil || strings.HasPrefix(text.String(), ":") {
		t.Errorf("%v: %s", err, &text)
	}
}

// TestDeadGateway checks that triage reports a gateway that is gone as a gateway, not as an engine, whether or not
// engines are read beside it.
func TestDeadGateway(t *testing.T) {
	engine, gateway := captured(t, "vllm-0.32-idle"), captured(t, "litellm-1.106.2-load")
	h := newHost(t, 2)
	h.read(t0.Add(-time.Minute), engine, gateway)
	first := h.read(t0, engine, gone)
	all := verdicts(t, first, h.read(t0.Add(30*time.Second), engine, gone))
	if len(all) != 2 || !strings.HasPrefix(all[0].Record.Model, "gateway 127.0.0.1:") || all[0].Health != triage.Failing ||
		all[0].Branch != rules.Routing ||
		!strings.HasPrefix(all[0].Says, "Gateway 127.0.0.1:") || all[1].Model != "tiny" || all[1].Health != triage.Unknown {
		t.Errorf("%+v", all)
	}
	for _, s := range append(all[0].Also, triage.Suspect{Says: all[0].Says}) {
		if strings.Contains(s.Says, "ngine") {
			t.Errorf("an engine: %q", s.Says)
		}
	}
}

// TestDeadGatewayBesideABurn checks that a gateway that is down is named although only its engines burn a budget.
func TestDeadGatewayBesideABurn(t *testing.T) {
	gateway := strings.ReplaceAll(captured(t, "litellm-1.106.2-load"), `"solo"`, `"tiny"`)
	h := newHost(t, 2)
	h.read(started.Add(59*time.Minute), captured(t, "vllm-0.32-healthy"), gateway)
	first := h.read(started.Add(time.Hour), captured(t, "vllm-0.32-healthy"), gone)
	all := verdicts(t, first, h.read(started.Add(time.Hour+30*time.Second), captured(t, "vllm-0.32-overload"), gone))
	i := slices.IndexFunc(all, func(v triage.Verdict) bool { return v.Model == "tiny" })
	if i < 0 || !strings.Contains(strings.Join(all[i].Symptoms, " "), "Objective ttft burns") || !slices.ContainsFunc(all[i].Also,
		func(s triage.Suspect) bool { return s.Branch == rules.Routing && strings.HasPrefix(s.Says, "Gateway ") }) {
		t.Errorf("%+v", all)
	}
}

// TestEnginesThatLeft checks that triage names the last engine of a model that discovery no longer finds, unless
// somebody deleted its pod.
func TestEnginesThatLeft(t *testing.T) {
	const engine = `namespace="prod",pod="p1",server="10.0.0.1:8000",model_name="m",version="0.19.0",runtime="vllm"`
	for _, c := range []struct {
		more string
		want []string
	}{
		{"", []string{"engine. No engine of the model is left here: p1 10.0.0.1:8000 was last read at "}},
		{"llm_exporter_pod_deleted_on_purpose{namespace=\"prod\",pod=\"p1\"} 0\n", []string{"engine. No engine of the model is left here"}},
		{"llm_exporter_pod_deleted_on_purpose{namespace=\"prod\",pod=\"p1\"} 1\n", nil},
		{
			`llm_engine_info{namespace="prod",pod="p2",server="10.0.0.2:8000",model_name="m",version="0.19.0",runtime="vllm"} 1` + "\n",
			[]string{". "},
		}, // another one serves
	} {
		var readings [2]triage.Reading
		for i := range readings {
			at := t0.Add(time.Duration(i) * 30 * time.Second)
			page := fmt.Sprintf("llm_engine_left_timestamp_seconds{%s} %d\n%s", engine, t0.Add(-time.Minute).Unix(), c.more)
			var err error
			if readings[i], err = triage.Parse([]byte(page), at); err != nil {
				t.Fatal(err)
			}
		}
		all := verdicts(t, readings[0], readings[1])
		var got []string
		for _, v := range all {
			got = append(got, string(v.Branch)+". "+v.Says)
		}
		if len(got) != len(c.want) || len(got) > 0 && !strings.HasPrefix(got[0], c.want[0]) {
			t.Errorf("%q: %q, want %q", c.more, got, c.want)
		}
		if len(all) > 0 && c.want[0] != ". " && (all[0].Health != triage.Unknown || all[0].Confidence != "low" || !strings.Contains(all[0].Or, "--prometheus") ||
			!slices.Equal(all[0].Record.Versions, []string{"0.19.0"})) {
			t.Errorf("%s confidence, %q, record %+v", all[0].Confidence, all[0].Or, all[0].Record)
		}
	}
}

// TestModelOfAGateway checks that a model that only a gateway reports is judged by the outcomes of the gateway's
// requests.
func TestModelOfAGateway(t *testing.T) {
	v := one(t, t0, 30*time.Second, captured(t, "litellm-1.106.2-load"), captured(t, "litellm-1.106.2-refused"))
	if v.Model != "solo" || v.Health != triage.Failing || !strings.HasPrefix(v.Symptoms[0], "Objective availability at the gateway burns") {
		t.Errorf("%q: %s, %q", v.Model, v.Health, v.Symptoms)
	}
}

// TestStarvedOnAnH200 checks two readings of a real exporter, while other processes had the core of the engine.
func TestStarvedOnAnH200(t *testing.T) {
	var readings []triage.Reading
	for i, name := range []string{"exporter-h200-starved", "exporter-h200-starved-20s"} {
		r, err := triage.Parse([]byte(captured(t, name)), time.Unix(1795893472+20*int64(i), 0))
		if err != nil {
			t.Fatal(err)
		}
		readings = append(readings, r)
	}
	v := verdicts(t, readings[0], readings[1])
	if len(v) != 1 || v[0].Branch != rules.Engine || v[0].Clue != "cpu_wait" || v[0].Health != triage.Failing {
		t.Errorf("%+v", v)
	}
}

// TestNotSeen checks that values rule out a branch if they would have shown it, and that missing values are named.
func TestNotSeen(t *testing.T) {
	v := one(t, started.Add(time.Hour), 30*time.Second, captured(t, "vllm-0.32-healthy"), captured(t, "vllm-0.32-overload"))
	for branch, want := range map[rules.Branch]string{
		rules.Hardware: "no GPU was read",
		rules.Routing:  "no other replica was read; no gateway was read; no synthetic requests are sent",
		rules.Release:  "two readings cannot show it",
		rules.Engine:   "two readings cannot show it; no GPU was read; no synthetic requests are sent; nothing reports llm_engine_slowdown_ratio, llm_engine_unscheduled_seconds",
	} {
		if out, not := why(v, branch); out != "" || not != want {
			t.Errorf("%s: ruled out %q, not seen %q, want %q", branch, out, not, want)
		}
	}
	if out, not := why(v, rules.Memory); out == "" || not != "" {
		t.Errorf("no preemption, an empty cache: ruled out %q, not seen %q", out, not)
	}

	const gpu = `llm_engine_gpu_info{L,gpu_uuid="G",gpu="0"} 1
%sllm_engine_gpu_others_sm_utilization_ratio{L,gpu_uuid="G",gpu="0"} 0
llm_gpu_up{gpu_uuid="G",gpu="0"} 1
llm_gpu_health{gpu_uuid="G",gpu="0"} 0
llm_gpu_clock_event_seconds_total{gpu_uuid="G",gpu="0",reason="hw_thermal_slowdown"} 0
llm_gpu_ecc_errors_total{gpu_uuid="G",gpu="0",severity="uncorrected",lifetime="volatile"} %d
`
	for _, test := range []struct {
		hidden  string // comments out what other processes do
		errors  int
		notSeen string
	}{
		{"", 0, ""}, {"", 7, "two readings cannot show it"}, // when the errors came
		{"# ", 0, "what other processes do on the GPU is unknown"},
	} {
		before := calm()
		before.more = fmt.Sprintf(gpu, test.hidden, test.errors)
		after := before
		after.requests += 100
		v := judge(t, before.page(), after.page(), nil)[0]
		if out, not := why(v, rules.Hardware); (out == "") != (not != "") || not != test.notSeen {
			t.Errorf("%+v: ruled out %q, not seen %q", test, out, not)
		}
	}
}

// TestPrefixHitsNotSeen checks that prompts of the usual length do not rule out prefill if no engine reports their
// cached share, and that equivalent values of another engine suffice.
func TestPrefixHitsNotSeen(t *testing.T) {
	before := calm()
	after := before
	after.requests, after.ttft, after.queue, after.prompts, after.hits = after.requests+100, after.ttft+20, after.queue+2,
		after.prompts+1e5, after.hits+8e4
	without := func(page, family string) string {
		return regexp.MustCompile("(?m)^"+family+".*\n").ReplaceAllString(page, "")
	}
	v := judge(t, before.page(), after.page(), nil)[0]
	if out, not := why(v, rules.Prefill); out == "" {
		t.Errorf("with all numbers: ruled out %q, not seen %q", out, not)
	}
	v = judge(t, without(before.page(), "llm_engine_prefix_cache"), without(after.page(), "llm_engine_prefix_cache"), nil)[0]
	if out, not := why(v, rules.Prefill); out != "" || !strings.Contains(not, "nothing reports llm_engine_prefix_cache_hit_tokens_total") {
		t.Errorf("without hits: ruled out %q, not seen %q", out, not)
	}
}

// TestFewFailures checks that a cause of late tokens is not a suspect if two requests failed and none was late.
func TestFewFailures(t *testing.T) {
	const objective = `llm_slo_objective_ratio{slo="availability"} 0.999
llm_slo_period_seconds{slo="availability"} 2592000
llm_slo_info{slo="availability",signal="availability",bad="requests fail",period="30d",severity="page"} 1
llm_slo_events_total{L,slo="availability"} %d
llm_slo_bad_events_total{L,slo="availability"} %d
`
	before := calm()
	after := before
	after.requests, after.ttft, after.queue, after.prompts = after.requests+100, after.ttft+20, after.queue+2, after.prompts+1e5
	v := judge(t, before.page(), after.page(), nil)[0]
	if v.Clue == "prefix_hits_fell" || len(v.Also) != 1 || v.Also[0].Clue != "prefix_hits_fell" {
		t.Errorf("none failed: %s %q, also %+v", v.Health, v.Says, v.Also)
	}
	before.more, after.more = fmt.Sprintf(objective, 1000, 0), fmt.Sprintf(objective, 1011, 2)
	v = judge(t, before.page(), after.page(), nil)[0]
	if v.Health != triage.Unknown || v.Branch != "" || len(v.Also) > 0 ||
		!slices.Contains(v.Symptoms, "Objective availability: 2 of 11 requests fail, too few to judge.") {
		t.Errorf("two failed: %s %q %q, also %+v", v.Health, v.Says, v.Symptoms, v.Also)
	}
}

// TestGatewayOfAnEngineThatCameBack checks that failures at a gateway follow from an engine that was gone.
func TestGatewayOfAnEngineThatCameBack(t *testing.T) {
	n := calm()
	gateway := func(failed int) string {
		return fmt.Sprintf(`llm_engine_up{runtime="litellm",namespace="prod",pod="g-0",server="10.0.0.9:4000"} 1
llm_engine_info{runtime="litellm",namespace="prod",pod="g-0",server="10.0.0.9:4000",role="gateway",model_name="m",version="1"} 1
llm_engine_requests_total{runtime="litellm",namespace="prod",pod="g-0",server="10.0.0.9:4000",role="gateway",model_name="m",outcome="success"} 1000
llm_engine_requests_total{runtime="litellm",namespace="prod",pod="g-0",server="10.0.0.9:4000",role="gateway",model_name="m",outcome="error"} %d
`, failed)
	}
	up := strings.SplitAfter(n.page(), "\n")[0]
	// The restart is between the readings, so that neither finds the engine gone.
	restarted := restarts.ReplaceAllString(node{model: "m", requests: 10, ttft: 2}.page(), "$1 1")
	for _, r := range []struct{ before, after string }{
		{strings.Replace(up, "} 1", `,reason="unreachable"} 0`, 1), n.page()},
		{n.page(), restarted},
	} {
		v := judge(t, r.before+gateway(0), r.after+gateway(50), nil)[0]
		if v.Branch != rules.Engine || !strings.HasSuffix(v.Says, "was gone or restarted in the last five minutes") || len(v.Also) == 0 ||
			v.Also[0].Clue != "gateway_fails" {
			t.Errorf("%s %q, also %+v", v.Branch, v.Says, v.Also)
		}
	}
}

// TestLearntSlowdown checks that steps that an exporter reports as slow for their load are a clue. capacity's
// TestSlowdown checks heavier loads.
func TestLearntSlowdown(t *testing.T) {
	before := calm()
	before.more = "llm_engine_slowdown_ratio{L} 3\n"
	after := before
	after.requests, after.bad, after.ttft, after.queue, after.prompts, after.hits = after.requests+17, after.bad+15, after.ttft+60,
		after.queue+0.3, after.prompts+17e3, after.hits+13.6e3
	if v := judge(t, before.page(), after.page(), nil)[0]; v.Clue != "steps_slow" {
		t.Errorf("%q, also %+v", v.Says, v.Also)
	}
}

// TestEngineDiedWithItsGPU checks that a lost GPU comes before the engine that died with it, although the engine
// has paged.
func TestEngineDiedWithItsGPU(t *testing.T) {
	before := calm()
	before.more = `llm_engine_gpu_info{L,gpu_uuid="G",gpu="0"} 1
llm_gpu_up{gpu_uuid="G",gpu="0"} 1
`
	const after = `llm_engine_up{runtime="vllm",namespace="prod",pod="p-0",server="10.0.0.1:8000",reason="refused"} 0
llm_engine_last_served_timestamp_seconds{runtime="vllm",namespace="prod",pod="p-0",server="10.0.0.1:8000",model_name="m",version="0.16.0"} 1
llm_gpu_up{gpu_uuid="G",gpu="0",reason="not_on_page"} 0
llm_gpu_health_condition_timestamp_seconds{gpu_uuid="G",gpu="0",condition="vanished",alert="LLMGPUFailed"} 1
`
	v := judge(t, before.page(), after, nil)[0]
	if v.Branch != rules.Hardware || v.Says != "GPU 0 must leave service (vanished)" ||
		!slices.ContainsFunc(v.Also, func(s triage.Suspect) bool { return s.Clue == rules.ModelDown.Name }) {
		t.Errorf("%s %q, also %+v", v.Branch, v.Says, v.Also)
	}
}

// TestBaselineOfALifetime checks that an engine's counters since its start do not serve as the past if the start was
// minutes ago.
func TestBaselineOfALifetime(t *testing.T) {
	overload, wedge := captured(t, "vllm-0.32-overload"), captured(t, "vllm-0.32-wedge")
	for age, want := range map[time.Duration]bool{20 * time.Minute: false, 4 * time.Hour: true} {
		h := newHost(t, 1)
		before, after := h.read(started.Add(age), overload), h.read(started.Add(age+30*time.Second), wedge)
		v := verdicts(t, before, after)[0]
		grew := v.Clue == "prompts_grew" || slices.ContainsFunc(v.Also, func(s triage.Suspect) bool { return s.Clue == "prompts_grew" })
		if _, not := why(v, rules.Prefill); grew != want || !want && !strings.Contains(not, "two readings cannot show it") {
			t.Errorf("%s old: prompts grew: %t; not seen: %q", age, grew, not)
		}
	}
}

// TestLoadAfterAStart checks that a start minutes ago does not explain waiting requests if the engine was warm before.
func TestLoadAfterAStart(t *testing.T) {
	start := time.Unix(1795847396, 0)
	for _, warm := range []bool{true, false} {
		h := newHost(t, 1)
		read := func(seconds int, page string) triage.Reading {
			h.clock = start.Add(time.Duration(seconds) * time.Second)
			return h.read(h.clock, captured(t, page))
		}
		if warm {
			for _, seconds := range []int{125, 155, 185} {
				read(seconds, "vllm-0.26-h200-steady")
			}
		}
		v := verdicts(t, read(335, "vllm-0.26-h200-overload"), read(350, "vllm-0.26-h200-overload-15s"))[0]
		if v.Branch == rules.Queueing != warm {
			t.Errorf("warm %t: %s %q, also %+v", warm, v.Branch, v.Says, v.Also)
		}
	}
}

// TestPausesOfTheCore checks metrics pages of a vLLM whose core stands still for 18 s every two minutes. No request
// waits at a reading, and steps are as fast as ever.
func TestPausesOfTheCore(t *testing.T) {
	h := newHost(t, 1)
	h.clock = time.Unix(1795858163, 0)
	before := h.read(h.clock, captured(t, "vllm-0.32-pauses"))
	h.clock = h.clock.Add(151 * time.Second)
	v := verdicts(t, before, h.read(h.clock, captured(t, "vllm-0.32-pauses-151s")))[0]
	if v.Branch != rules.Engine || !strings.Contains(v.Says, "outside queue and prefill") {
		t.Errorf("%s %q, want that first tokens take longer at the engine than its queue and prefill", v.Branch, v.Says)
	}
}

// TestHealthNeedsProof checks that a model is healthy only if enough requests of users were served, and nothing
// contradicts it.
func TestHealthNeedsProof(t *testing.T) {
	ended := func(outcomes ...any) string {
		var b strings.Builder
		for i := 0; i < len(outcomes); i += 2 {
			fmt.Fprintf(&b, "llm_engine_requests_total{L,outcome=%q} %d\n", outcomes[i], outcomes[i+1])
		}
		return b.String()
	}
	const probes = `llm_probe_requests_total{probe="openai",model_name="m",server="10.0.0.1:8000",outcome="ok"} %d` + "\n"
	for name, c := range map[string]struct {
		served        float64
		before, after string
		health        triage.Health
		says          string
	}{
		"users": {100, ended("stop", 50, "invalid", 0), ended("stop", 150, "invalid", 10), triage.Healthy, "No objective burns its budget."},
		"few":   {3, "", "", triage.Unknown, "Only 3 requests were served between the readings, too few to prove health."},
		"probes": {
			12, fmt.Sprintf(probes, 4), fmt.Sprintf(probes, 16), triage.Unknown,
			"12 of 12 requests were synthetic, so too few came from users to prove health.",
		},
		"both": {112, fmt.Sprintf(probes, 4), fmt.Sprintf(probes, 16), triage.Healthy, "No objective burns its budget."},
		"invalid": {
			63, ended("stop", 50, "invalid", 0), ended("stop", 113, "invalid", 37), triage.Unknown,
			"37% of the requests were refused as invalid (37 of 100).",
		},
		"cancelled": {
			100, ended("stop", 50, "abort", 4), ended("stop", 75, "abort", 79), triage.Unknown,
			"75% of the requests were given up by their clients (75 of 100).",
		},
		"unknown": {
			100, ended("stop", 50, "unknown", 0), ended("stop", 100, "unknown", 50), triage.Unknown,
			"50% of the requests ended with an unknown outcome (50 of 100).",
		},
	} {
		before := calm()
		before.more = c.before
		after := before
		after.requests, after.more = after.requests+c.served, c.after
		v := judge(t, before.page(), after.page(), nil)[0]
		if v.Health != c.health || !slices.Contains(v.Symptoms, c.says) {
			t.Errorf("%s: %s, %q", name, v.Health, v.Symptoms)
		}
	}
}

// enginePage returns a metrics page from the tests of the engines.
func enginePage(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("../collectors/engine/testdata/pages", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// wrongWords matches the rest of a sentence whose noun is missing.
var wrongWords = regexp.MustCompile(`\s[,.:;]|\w  \w|: :`)

// TestNoWorkerInWords checks a frontend or an endpoint picker without a worker. Such a server answers, its metrics
// are read, and it has no model.
func TestNoWorkerInWords(t *testing.T) {
	for _, name := range []string{
		"dynamo/frontend-v1.6.0-noworker.prom", "dynamo/frontend-v1.6.0-allkilled.prom",
		"epp/v1.5.0-no-pods.prom", "llmd_router/v0.10.0-no-endpoints.prom",
	} {
		page := enginePage(t, name)
		v := one(t, time.Now(), 30*time.Second, page, page)
		says := append(slices.Clone(v.Symptoms), v.Says)
		for _, s := range v.Also {
			says = append(says, s.Says)
		}
		all := strings.Join(says, "\n")
		if !strings.Contains(all, "has no worker") || strings.Contains(all, "cannot be read") || strings.Contains(all, "does not answer") ||
			strings.Contains(all, "stopped answering") {
			t.Errorf("%s:\n%s", name, all)
		}
		if wrong := wrongWords.FindString(all); wrong != "" {
			t.Errorf("%s: %q in\n%s", name, wrong, all)
		}
	}
}

// TestGatewayThatIsRead checks that a judged gateway is never reported as unread.
func TestGatewayThatIsRead(t *testing.T) {
	v := one(t, time.Now(), 30*time.Second, enginePage(t, "vllm_router/v0.1.17-load.prom"), enginePage(t, "vllm_router/v0.1.17-all500.prom"))
	if v.Health != triage.Failing || !strings.HasPrefix(v.Record.Model, "gateway ") {
		t.Errorf("%s is %s", v.Record.Model, v.Health)
	}
	if all := strings.Join(v.Symptoms, "\n"); !strings.Contains(all, "may send requests to none of its workers: circuit_open 2.") {
		t.Errorf("nothing says that both circuits are open:\n%s", all)
	}
	for _, r := range slices.Concat(v.NotSeen, v.RuledOut) {
		if strings.Contains(r.Why, "no gateway was read") {
			t.Errorf("%s: %s", r.Branch, r.Why)
		}
	}
}
