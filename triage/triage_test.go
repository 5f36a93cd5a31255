package triage_test

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

var t0 = time.Date(2026, 1, 5, 3, 0, 0, 0, time.UTC)

// node is an exporter's metrics page: an engine with these values, whose objective on the first token counts bad
// events.
type node struct {
	model             string
	requests, bad     float64 // counted so far
	waiting, running  float64
	ttft, queue, hits float64 // sums
	prompts, tokens   float64
	unread            float64 // prompt tokens that were computed before the exporter first read the engine
	more              string
}

func (n node) page() string {
	l := fmt.Sprintf(`runtime="vllm",namespace="prod",pod="p-0",server="10.0.0.1:8000",model_name="%s"`, n.model)
	return strings.ReplaceAll(fmt.Sprintf(`llm_engine_up{runtime="vllm",namespace="prod",pod="p-0",server="10.0.0.1:8000"} 1
llm_engine_info{L,version="0.16.0"} 1
llm_engine_start_time_seconds{runtime="vllm",namespace="prod",pod="p-0",server="10.0.0.1:8000"} %g
llm_engine_refuses_all{runtime="vllm",namespace="prod",pod="p-0",server="10.0.0.1:8000",model_name="m"} 0
llm_engine_restarts_total{namespace="prod",pod="p-0",server="10.0.0.1:8000"} 0
llm_engine_requests_waiting{L} %g
llm_engine_requests_running{L} %g
llm_engine_generation_tokens_total{L} %g
llm_engine_stage_seconds_total{L,stage="first_token"} %g
llm_engine_stages_total{L,stage="first_token"} %g
llm_engine_stage_seconds_total{L,stage="queue"} %g
llm_engine_stages_total{L,stage="queue"} %[6]g
llm_engine_prompt_tokens_total{L} %[8]g
llm_engine_prefix_cache_query_tokens_total{L} %[8]g
llm_engine_prefix_cache_hit_tokens_total{L} %g
llm_engine_prefill_computed_tokens_total{L} %[12]g
llm_slo_events_total{L,slo="ttft",threshold="0.5"} %[6]g
llm_slo_bad_events_total{L,slo="ttft",threshold="0.5"} %[10]g
llm_slo_objective_ratio{slo="ttft"} 0.99
llm_slo_period_seconds{slo="ttft"} 2592000
llm_slo_info{slo="ttft",signal="ttft",bad="first tokens take longer than 2s",period="30d",severity="page"} 1
%[11]s`, float64(t0.Add(-48*time.Hour).Unix()), n.waiting, n.running, 100*n.requests+n.tokens, n.ttft, n.requests, n.queue, n.prompts,
		n.hits, n.bad, n.more, n.prompts-n.hits-n.unread), "{L", "{"+l)
}

// judge judges two metrics pages that were read half a minute apart.
func judge(t *testing.T, before, after string, past triage.Past) []triage.Verdict {
	t.Helper()
	var readings []triage.Reading
	for i, page := range []string{before, after} {
		r, err := triage.Parse([]byte(page), t0.Add(time.Duration(i)*30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		readings = append(readings, r)
	}
	verdicts, err := triage.Judge(context.Background(), readings[0], readings[1], past)
	if err != nil {
		t.Fatal(err)
	}
	return verdicts
}

// calm is a node after a day of 0.2 s to the first token, with half of the requests not queued, and a cache that holds
// four of five tokens.
func calm() node {
	return node{model: "m", requests: 100_000, bad: 100, running: 3, ttft: 20_000, queue: 2_000, prompts: 1e8, hits: 8e7, unread: 1.9e7}
}

func TestJudge(t *testing.T) {
	serve := func(change func(n *node)) (before, after node) {
		before = calm()
		after = before
		after.requests, after.ttft, after.queue, after.prompts, after.hits = after.requests+100, after.ttft+20, after.queue+2,
			after.prompts+1e5, after.hits+8e4
		change(&after)
		return before, after
	}
	for _, c := range []struct {
		name   string
		change func(n *node)
		health triage.Health
		branch rules.Branch
		says   string
	}{
		{"all is well", func(*node) {}, triage.Healthy, "", ""},
		{"no request came", func(n *node) { *n = calm(); n.running = 0 }, triage.Unknown, "", ""},
		{
			"no request moves", func(n *node) { *n = calm() }, triage.Degraded, rules.Engine,
			"p-0 10.0.0.1:8000 has made no progress for 30s while 3 requests run or wait",
		},
		{
			"a queue", func(n *node) { n.bad, n.ttft, n.waiting = n.bad+90, n.ttft+400, 9 }, triage.Failing, rules.Queueing,
			"9 requests wait or are refused, more than run",
		},
		{"only the share of the queue", func(n *node) { n.bad, n.ttft, n.queue = n.bad+90, n.ttft+400, n.queue+390 }, triage.Failing, "", ""},
		{
			"some are late", func(n *node) { n.bad, n.ttft, n.waiting = n.bad+5, n.ttft+400, 9 }, triage.Degraded, rules.Queueing,
			"9 requests wait or are refused",
		},
		{"few are late", func(n *node) { n.bad += 4 }, triage.Healthy, "", ""},
		{
			"a cold cache", func(n *node) { n.bad, n.hits, n.queue = n.bad+90, n.hits-8e4, n.queue+400 }, triage.Failing, rules.Prefill,
			"The prefix cache hit ratio is 0% of its usual value",
		},
	} {
		before, after := serve(c.change)
		v := judge(t, before.page(), after.page(), nil)
		if len(v) != 1 || v[0].Health != c.health || v[0].Branch != c.branch || !strings.Contains(v[0].Says, c.says) ||
			slices.ContainsFunc(v[0].RuledOut, func(r triage.RuledOut) bool { return r.Branch == rules.Hardware }) {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

// TestChangedAndHurtsNobody checks a change while no objective burns: the change is reported, is not named to look at
// first, and is not ruled out.
func TestChangedAndHurtsNobody(t *testing.T) {
	before := calm()
	for served, health := range map[float64]triage.Health{100: triage.Healthy, 3: triage.Unknown} {
		after := before
		after.requests, after.ttft, after.prompts = after.requests+served, after.ttft+20, after.prompts+1e5 // no hits
		v := judge(t, before.page(), after.page(), nil)[0]
		told := slices.Concat(v.Also, []triage.Suspect{{Clue: v.Clue}})
		if v.Health != health || (v.Branch == "") != (health == triage.Healthy) ||
			!slices.ContainsFunc(told, func(s triage.Suspect) bool { return s.Clue == "prefix_hits_fell" }) {
			t.Errorf("%.0f requests: %s, %q, also %+v", served, v.Health, v.Says, v.Also)
		}
		if out, not := why(v, rules.Prefill); out+not != "" {
			t.Errorf("%.0f requests: ruled out %q, not seen %q", served, out, not)
		}
		var text strings.Builder
		if err := (triage.Text{}).Write(&text, []triage.Verdict{v}); err != nil || strings.Contains(text.String(),
			"Changed, although no objective burns: prefill. The prefix") != (health == triage.Healthy) {
			t.Errorf("%v:\n%s", err, text.String())
		}
	}
}

// TestBurnedForMinutes checks that half a minute may have no late request of an objective that burned for five minutes,
// according to a Prometheus.
func TestBurnedForMinutes(t *testing.T) {
	before := calm()
	after := before
	after.requests, after.ttft, after.prompts = after.requests+100, after.ttft+20, after.prompts+1e5 // no hits
	for burned, health := range map[bool]triage.Health{true: triage.Degraded, false: triage.Healthy} {
		past := func(_ context.Context, query string, _ time.Time) (promql.Vector, error) {
			if !burned || !strings.Contains(query, "model:llm_slo_burn:rate5m{") {
				return nil, nil
			}
			recorded, err := triage.Parse([]byte(`model:llm_slo_burn:rate5m{namespace="prod",model_name="m",slo="ttft"} 14`), t0)
			return recorded.Series, err
		}
		v := judge(t, before.page(), after.page(), past)[0]
		says := slices.Contains(v.Symptoms,
			"Objective ttft burned 14 times too fast over the last five minutes: 0 of 100 first tokens take longer than 2s between the readings.")
		if v.Health != health || says != burned || (v.Branch == rules.Prefill) != burned {
			t.Errorf("burned %t: %s, %s, %q", burned, v.Health, v.Branch, v.Symptoms)
		}
		// 14 of 100 would be late if it still burned, so the cause may be gone
		if v.Confidence == "high" || slices.ContainsFunc(v.Symptoms, func(s string) bool { return strings.Contains(s, "tokens are late") }) {
			t.Errorf("burned %t: %s confidence, %q", burned, v.Confidence, v.Symptoms)
		}
	}
}

// TestReleaseOfYoungEngines checks that after an engine's start the release is not ruled out, because a release may
// change only settings of the same version.
func TestReleaseOfYoungEngines(t *testing.T) {
	before := calm()
	after := before
	after.requests, after.bad, after.ttft, after.waiting = after.requests+100, after.bad+90, after.ttft+400, 9
	old := fmt.Sprintf("%g", float64(t0.Add(-48*time.Hour).Unix()))
	recall := func(context.Context, string, time.Time) (promql.Vector, error) { return nil, nil }
	for age, out := range map[time.Duration]bool{48 * time.Hour: true, 40 * time.Minute: false} {
		start := fmt.Sprintf("%g", float64(t0.Add(-age).Unix()))
		v := judge(t, strings.ReplaceAll(before.page(), old, start), strings.ReplaceAll(after.page(), old, start), recall)[0]
		ruledOut, notSeen := why(v, rules.Release)
		if (ruledOut != "") != out || strings.Contains(notSeen, "started in the last hour") == out {
			t.Errorf("%s old: ruled out %q, not seen %q", age, ruledOut, notSeen)
		}
	}
}

// TestModelWithoutWorkers checks a frontend that is up but has no worker for one of its models.
func TestModelWithoutWorkers(t *testing.T) {
	const page = `llm_engine_up{runtime="dynamo",server="10.0.0.1:8000"} 1
llm_engine_info{runtime="dynamo",server="10.0.0.1:8000",model_name="b"} 1
`
	lost := page + fmt.Sprintf("llm_engine_last_served_timestamp_seconds{runtime=\"dynamo\",server=\"10.0.0.1:8000\",model_name=\"a\"} %d\n", t0.Unix())
	for _, v := range judge(t, page+`llm_engine_info{runtime="dynamo",server="10.0.0.1:8000",model_name="a"} 1`+"\n", lost, nil) {
		if says := slices.Contains(v.Symptoms,
			"10.0.0.1:8000 has no worker of this model, so requests for the model are refused."); says != (v.Model == "a") {
			t.Errorf("%s: %q", v.Model, v.Symptoms)
		}
	}
}

// TestWhatIsLate checks that the symptoms name the bad value, and whether it comes from the load.
func TestWhatIsLate(t *testing.T) {
	const itl = `llm_slo_events_total{L,slo="itl",threshold="0.05"} %g
llm_slo_bad_events_total{L,slo="itl",threshold="0.05"} %g
llm_slo_objective_ratio{slo="itl"} 0.99
llm_slo_period_seconds{slo="itl"} 2592000
llm_slo_info{slo="itl",signal="itl",bad="gaps between tokens exceed 100ms",period="30d",severity="page"} 1
`
	const load, noLoad = "First and later tokens are late, and requests wait.",
		"First and later tokens are late, although no request waits."
	for _, c := range []struct {
		want                        string
		first, next, waiting, queue float64
	}{
		{"No objective burns its budget.", 0, 0, 0, 0},
		{"First tokens are late and later tokens are on time, so the delay is before decode.", 90, 0, 9, 0},
		{"First tokens are on time and later tokens are late, so the delay is in decode.", 0, 900, 9, 0},
		{load, 90, 900, 9, 0},
		{load, 90, 900, 0, 18}, // the queue comes and goes between readings
		{noLoad, 90, 900, 0, 2},
		{noLoad, 90, 900, 0, 0},
	} {
		before := calm()
		after := before
		after.requests, after.ttft, after.bad, after.waiting = after.requests+100, after.ttft+20, after.bad+c.first, c.waiting
		after.queue += c.queue
		before.more, after.more = fmt.Sprintf(itl, 1e6, 10.), fmt.Sprintf(itl, 1e6+1000, 10+c.next)
		if v := judge(t, before.page(), after.page(), nil); !slices.Contains(v[0].Symptoms, c.want) {
			t.Errorf("%q is not among %q", c.want, v[0].Symptoms)
		}
		if c.want != noLoad {
			continue
		}
		silent := regexp.MustCompile("(?m)^llm_engine_requests_waiting.*\n") // as frontends are
		v := judge(t, silent.ReplaceAllString(before.page(), ""), silent.ReplaceAllString(after.page(), ""), nil)
		if want := "First and later tokens are late."; c.queue < 1 && !slices.Contains(v[0].Symptoms, want) {
			t.Errorf("%q is not among %q", want, v[0].Symptoms)
		}
	}
}

// TestWorstBurnFirst checks two burning objectives: the first suspect explains the faster burn, as on its page.
func TestWorstBurnFirst(t *testing.T) {
	const more = `llm_slo_events_total{L,slo="itl",threshold="0.05"} %g
llm_slo_bad_events_total{L,slo="itl",threshold="0.05"} %g
llm_slo_objective_ratio{slo="itl"} 0.99
llm_slo_period_seconds{slo="itl"} 2592000
llm_slo_info{slo="itl",signal="itl",bad="gaps between tokens exceed 100ms",period="30d",severity="page"} 1
llm_engine_loras_running{L} 1
llm_engine_loras_contended{L} 3
llm_engine_lora_request_timestamp_seconds{L,lora="sql"} 1.7e9
llm_engine_lora_slots{L} 1
`
	for _, c := range []struct {
		first, next float64 // bad
		want        string
	}{{90, 100, "adapters"}, {50, 900, "queue_long"}} {
		before := calm()
		after := before
		after.requests, after.ttft, after.prompts, after.hits = after.requests+100, after.ttft+400, after.prompts+1e5, after.hits+8e4
		after.bad, after.waiting = after.bad+c.first, 9
		before.more, after.more = fmt.Sprintf(more, 1e6, 10.), fmt.Sprintf(more, 1e6+1000, 10+c.next)
		if v := judge(t, before.page(), after.page(), nil)[0]; v.Clue != c.want {
			t.Errorf("%+v: %s, also %+v", c, v.Clue, v.Also)
		}
	}
}

// TestLateAtTheGatewayOnly checks that a delay at a gateway has no cause in the engines while their objective is met.
func TestLateAtTheGatewayOnly(t *testing.T) {
	const gateway = `llm_engine_info{G,version="1.80.0"} 1
llm_slo_events_total{G,slo="ttft",threshold="0.5"} %g
llm_slo_bad_events_total{G,slo="ttft",threshold="0.5"} %g
`
	of := func(events, bad float64) string {
		return strings.ReplaceAll(fmt.Sprintf(gateway, events, bad), "{G",
			`{runtime="litellm",role="gateway",namespace="prod",pod="g-0",server="10.0.0.9:4000",model_name="m"`)
	}
	for bad, want := range map[float64]string{0: "", 90: "prefix_hits_fell"} { // at the engine
		before := calm()
		after := before
		after.requests, after.ttft, after.prompts, after.bad = after.requests+100, after.ttft+20, after.prompts+1e5, after.bad+bad // no hits
		before.more, after.more = of(1000, 10), of(1100, 100)
		if v := judge(t, before.page(), after.page(), nil)[0]; v.Health != triage.Failing || v.Clue != want {
			t.Errorf("%g late at the engine: %s, %q, also %+v", bad, v.Health, v.Clue, v.Also)
		}
	}
}

// TestReadLate checks that an engine whose metrics are read too late only once is not down.
func TestReadLate(t *testing.T) {
	const page = `llm_engine_up{runtime="vllm",namespace="prod",pod="p-0",server="10.0.0.1:8000",reason=%q} 0
llm_engine_last_served_timestamp_seconds{runtime="vllm",namespace="prod",pod="p-0",server="10.0.0.1:8000",model_name="m"} %d
`
	for reason, want := range map[string]triage.Health{"timeout": triage.Unknown, "unreachable": triage.Failing} {
		v := judge(t, calm().page(), fmt.Sprintf(page, reason, t0.Unix()), nil)
		if len(v) != 1 || v[0].Model != "m" || v[0].Health != want {
			t.Errorf("%s: %+v", reason, v)
		}
	}
}

// TestWhatRequestsWaitFor checks that requests are held back only if the engine reports a reason other than its capacity.
func TestWhatRequestsWaitFor(t *testing.T) {
	for reason, want := range map[string]bool{"capacity": false, "grammar": true} {
		before := calm()
		arrived := func(n int) string {
			return fmt.Sprintf("llm_engine_requests_waiting_by_reason{L,reason=%q} 200\nllm_engine_requests_arrived_total{L} %d\n", reason, n)
		}
		before.more, before.waiting = arrived(1000), 200
		after := before
		after.more, after.requests, after.ttft, after.bad = arrived(1100), after.requests+100, after.ttft+400, after.bad+90
		v := judge(t, before.page(), after.page(), nil)[0]
		held := v.Clue == "admission" || slices.ContainsFunc(v.Also, func(s triage.Suspect) bool { return s.Clue == "admission" })
		if held != want {
			t.Errorf("%s: %s %s, also %+v", reason, v.Branch, v.Clue, v.Also)
		}
	}
}

// TestRatesAreExact checks that two readings are not extrapolated.
func TestRatesAreExact(t *testing.T) {
	before, after := calm(), calm()
	after.requests, after.ttft, after.prompts, after.hits = after.requests+7, after.ttft+3.5, after.prompts+700, after.hits+140
	v := judge(t, before.page(), after.page(), nil)
	if v[0].Record.FirstTokens != 7 {
		t.Errorf("%g first tokens, want 7", v[0].Record.FirstTokens)
	}
	for _, e := range v[0].Evidence {
		if e.Fact == "prefix_hits" && math.Abs(e.Value-0.2) > 1e-9 {
			t.Errorf("the cache hits %g, want 0.2", e.Value)
		}
	}
	if len(v[0].Evidence) < 4 {
		t.Errorf("too little evidence: %+v", v[0].Evidence)
	}
}

// TestPlaceOfAGPU checks that the commands about a GPU name the replica on it, among several.
func TestPlaceOfAGPU(t *testing.T) {
	const more = `llm_engine_info{runtime="vllm",namespace="prod",pod="p-1",server="10.0.0.2:8000",model_name="m",version="0.16.0"} 1
llm_engine_gpu_info{L,gpu_uuid="GPU-0"} 1
llm_engine_gpu_info{runtime="vllm",namespace="prod",pod="p-1",server="10.0.0.2:8000",model_name="m",gpu_uuid="GPU-1"} 1
llm_gpu_clock_event_seconds_total{gpu_uuid="GPU-1",gpu="1",reason="hw_thermal_slowdown"} %d
`
	before, after := calm(), calm()
	before.more, after.more = fmt.Sprintf(more, 0), fmt.Sprintf(more, 30)
	after.requests, after.bad, after.ttft = after.requests+100, after.bad+90, after.ttft+400
	v := judge(t, before.page(), after.page(), nil)[0]
	if v.Clue != "gpu_throttled" || !strings.Contains(v.Runbook, "pod=p-1") || !slices.ContainsFunc(v.Levers,
		func(l string) bool { return strings.Contains(l, "delete pod p-1") }) {
		t.Errorf("%s, %s, %q", v.Clue, v.Runbook, v.Levers)
	}
}

// TestClientsGiveUp checks that, when clients give up, the clue for the reason comes before the alert about giving up.
func TestClientsGiveUp(t *testing.T) {
	const ended = `llm_engine_requests_total{L,outcome="abort"} %d
llm_engine_requests_total{L,outcome="stop"} %d
`
	before, after := calm(), calm()
	before.more, after.more = fmt.Sprintf(ended, 0, 1000), fmt.Sprintf(ended, 900, 1010)
	after.requests, after.bad, after.ttft, after.waiting = after.requests+10, after.bad+9, after.ttft+400, 9
	v := judge(t, before.page(), after.page(), nil)[0]
	if v.Clue != "queue_long" || v.Health != triage.Failing || !slices.ContainsFunc(v.Also, func(s triage.Suspect) bool {
		return s.Clue == rules.ClientsGiveUp.Name && strings.HasPrefix(s.Says, "Clients give up on 99% of requests")
	}) {
		t.Errorf("%s: %s, also %+v", v.Health, v.Clue, v.Also)
	}
}

// TestOnlyPrompts checks that a working engine without output tokens counts as computing prompts.
func TestOnlyPrompts(t *testing.T) {
	const counts = `llm_engine_requests_total{L,outcome="abort"} %d
llm_engine_requests_total{L,outcome="stop"} 1000
llm_engine_steps_total{L} %d
`
	for steps, want := range map[int]rules.Branch{1000: rules.Engine, 1008: rules.Prefill} {
		before, after := calm(), calm()
		before.more, after.more = fmt.Sprintf(counts, 0, 1000), fmt.Sprintf(counts, 24, steps)
		before.running, after.running, before.waiting, after.waiting = 0, 1, 5, 9
		if steps == 1000 {
			after.running = 0
			before.waiting, after.waiting = 0, 0
		}
		v := judge(t, before.page(), after.page(), nil)[0]
		if v.Branch != want || !strings.HasPrefix(v.Says, "No request got a token for 30s, and clients gave up 24 requests") {
			t.Errorf("%d steps: %s, %s", steps, v.Branch, v.Says)
		}
	}
}

// TestNoProgressIsSaidOnce checks that the evidence of two readings and the exporter's own fact give a single suspect.
func TestNoProgressIsSaidOnce(t *testing.T) {
	const counts = `llm_engine_requests_total{L,outcome="abort"} %d
llm_engine_requests_total{L,outcome="stop"} 1000
llm_engine_steps_total{L} 1000
llm_engine_without_progress_seconds{L} 240
`
	before, after := calm(), calm()
	before.running, after.running = 0, 0
	before.more, after.more = fmt.Sprintf(counts, 0), fmt.Sprintf(counts, 24)
	v := judge(t, before.page(), after.page(), nil)[0]
	if again := slices.ContainsFunc(v.Also,
		func(s triage.Suspect) bool { return s.Runbook == rules.EngineStalled.Name }); v.Branch != rules.Engine || again {
		t.Errorf("%s %q, also %+v", v.Branch, v.Says, v.Also)
	}
}

// TestSlowerSinceItStarted checks that two readings of an engine that has run for long show longer steps or longer
// answers, although no more tokens are computed. In that case, the queue does not mean more requests.
func TestSlowerSinceItStarted(t *testing.T) {
	const gaps = `llm_engine_stage_seconds_total{L,stage="next_token"} %g
llm_engine_stages_total{L,stage="next_token"} %d
`
	for clue, change := range map[string]func(n *node){
		"steps_slow":   func(n *node) { n.more = fmt.Sprintf(gaps, 100_000+2000*0.08, 10_002_000) },
		"outputs_grew": func(n *node) { n.tokens, n.more = 10_000, fmt.Sprintf(gaps, 100_000+12_000*0.01, 10_012_000) },
	} {
		before, after := calm(), calm()
		before.more = fmt.Sprintf(gaps, 100_000., 10_000_000)
		after.requests, after.bad, after.waiting, before.waiting, after.ttft = after.requests+15, after.bad+14, 20, 10, after.ttft+60
		change(&after)
		v := judge(t, before.page(), after.page(), nil)[0]
		if v.Clue != clue || v.Confidence != "low" || !slices.ContainsFunc(v.Also,
			func(s triage.Suspect) bool { return s.Clue == "queue_long" }) {
			t.Errorf("%s, %s confidence, also %+v, want %s", v.Clue, v.Confidence, v.Also, clue)
		}
	}
}

// TestFewRequestsShowNoChange checks that three longer answers to uncached prompts count as chance, but are reported if
// there is nothing else. Slow steps come before any number of longer answers.
func TestFewRequestsShowNoChange(t *testing.T) {
	const gaps = `llm_engine_stage_seconds_total{L,stage="next_token"} %g
llm_engine_stages_total{L,stage="next_token"} %d
`
	for n, queued := range map[float64]string{3: "queue_long", 15: "outputs_grew"} {
		for _, c := range []struct {
			step, waiting float64
			want          string
		}{{0.08, 0, "steps_slow"}, {0.01, 0, "outputs_grew"}, {0.01, 20, queued}} {
			before, after := calm(), calm()
			before.waiting, after.waiting = c.waiting/2, c.waiting
			before.more, after.more = fmt.Sprintf(gaps, 100_000., 10_000_000), fmt.Sprintf(gaps, 100_000+600*n*c.step, 10_000_000+int(600*n))
			after.requests, after.bad, after.ttft, after.tokens = after.requests+n, after.bad+n, after.ttft+4*n, after.tokens+600*n
			v := judge(t, before.page(), after.page(), nil)[0]
			if v.Clue != c.want {
				t.Errorf("%g requests, %g s a step, %g wait: %s, also %+v, want %s", n, c.step, c.waiting, v.Clue, v.Also, c.want)
			}
		}
	}
}

// TestTimesBetweenMilliseconds checks clocks with fractions of milliseconds, which the query engine ignores. Rates
// between the readings exist for any fraction of a millisecond in their times.
func TestTimesBetweenMilliseconds(t *testing.T) {
	before, after := calm(), calm()
	after.requests += 7
	for _, early := range []time.Duration{0, 1, 400_000, 999_999} {
		for _, late := range []time.Duration{0, 1, 400_000, 999_999} {
			first, err := triage.Parse([]byte(before.page()), t0.Add(early))
			if err != nil {
				t.Fatal(err)
			}
			second, err := triage.Parse([]byte(after.page()), t0.Add(30*time.Second+late))
			if err != nil {
				t.Fatal(err)
			}
			v, err := triage.Judge(t.Context(), first, second, nil)
			if err != nil || v[0].Record.FirstTokens != 7 {
				t.Errorf("%s and %s into a millisecond: %g first tokens, want 7 (%v)", early, late, v[0].Record.FirstTokens, err)
			}
		}
	}
}

// TestPast checks that a Prometheus' records of the day before take precedence over an engine's totals.
func TestPast(t *testing.T) {
	before, after := calm(), calm()
	after.requests, after.bad, after.prompts, after.hits = after.requests+100, after.bad+90, after.prompts+1e5, after.hits+4.5e4
	asked := 0
	past := func(_ context.Context, query string, _ time.Time) (promql.Vector, error) {
		asked++
		if !strings.Contains(query, "prefix_hits_before") {
			return nil, nil
		}
		recorded, err := triage.Parse([]byte(`model:llm_evidence:value{namespace="prod",model_name="m",fact="prefix_hits_before",unit="ratio",order="21"} 0.95`), t0)
		return recorded.Series, err
	}
	if v := judge(t, before.page(), after.page(), nil); v[0].Clue != "prefill_grew" {
		t.Errorf("more than half of what it always was is no collapse, but twice the work: %+v", v[0])
	}
	v := judge(t, before.page(), after.page(), past)
	if v[0].Branch != rules.Prefill || v[0].Says != "The prefix cache hit ratio is 47% of its usual value" {
		t.Errorf("asked %d times: %+v", asked, v[0])
	}
}

// TestSilence distinguishes a silence that chance explains from one that it does not explain: 60 requests are due in
// ten minutes, and 3 in half a minute.
func TestSilence(t *testing.T) {
	past := func(_ context.Context, query string, _ time.Time) (promql.Vector, error) {
		if !strings.Contains(query, "arrivals_before") {
			return nil, nil
		}
		recorded, err := triage.Parse([]byte(`model:llm_evidence:value{namespace="prod",model_name="m",fact="arrivals_before",order="21"} 0.1`), t0)
		return recorded.Series, err
	}
	for silence, want := range map[time.Duration]string{
		10 * time.Minute: "No request came for 10m30s, in which about 63 usually come.", 30 * time.Second: "Idle:",
	} {
		n := calm()
		n.running, n.more = 0, fmt.Sprintf("llm_engine_last_progress_timestamp_seconds{L} %d\n", t0.Add(-silence).Unix())
		if v := judge(t, n.page(), n.page(), past)[0]; v.Health != triage.Unknown ||
			!slices.ContainsFunc(v.Symptoms, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("after %s: %s, %q", silence, v.Health, v.Symptoms)
		}
	}
}

// TestEngineGone checks that an engine that ended between the readings is down, with its name from the first reading.
func TestEngineGone(t *testing.T) {
	v := judge(t, calm().page(), `llm_engine_up{namespace="prod",pod="p-0",server="10.0.0.1:8000",reason="unreachable"} 0`, nil)
	if len(v) != 1 || v[0].Model != "m" || v[0].Health != triage.Failing || v[0].Branch != rules.Engine {
		t.Errorf("%+v", v)
	}
}

// TestNothingWasRead checks that readings without any metrics, from an exporter that does not answer, lead to its node.
func TestNothingWasRead(t *testing.T) {
	v := judge(t, "", "", nil)
	if len(v) != 1 || v[0].Branch != rules.Hardware || v[0].Confidence != "low" || v[0].Health != triage.Unknown {
		t.Errorf("%+v", v)
	}
}

// TestPodsGone checks that a model whose engines are gone with their pods before the first reading is judged by a
// Prometheus' records, as soon as its objective pages there.
func TestPodsGone(t *testing.T) {
	const page = `llm_gpu_up{gpu_uuid="G",gpu="0"} 1
`
	past := func(_ context.Context, query string, _ time.Time) (promql.Vector, error) {
		series := ""
		switch {
		case strings.Contains(query, `alertname="LLMErrorBudgetFastBurn"`):
			series = `ALERTS{alertname="LLMErrorBudgetFastBurn",alertstate="firing",namespace="prod",model_name="m",slo="availability"} 1`
		case strings.Contains(query, `clue="came_back"`):
			series = `model:llm_suspect:strength{namespace="prod",model_name="m",pod="p-0",branch="engine",clue="came_back",delays="failures",` +
				`order="08",runbook="LLMEngineDown",says="{engine} was gone or restarted in the last five minutes",unit="count"} 1`
		}
		recorded, err := triage.Parse([]byte(series), t0)
		return recorded.Series, err
	}
	v := judge(t, page, page, past)
	if len(v) != 1 || v[0].Model != "m" || v[0].Branch != rules.Engine || v[0].Says != "p-0 was gone or restarted in the last five minutes" {
		t.Errorf("%+v", v)
	}
}

// TestClientsOfAHangingRank checks that clients who give up at a rank that hangs make the model fail. Too few clients
// leave between the readings, so only a Prometheus has their share.
func TestClientsOfAHangingRank(t *testing.T) {
	past := func(_ context.Context, query string, _ time.Time) (promql.Vector, error) {
		if !strings.Contains(query, "model:llm_engine_without_token:ratio10m") {
			return nil, nil
		}
		recorded, err := triage.Parse([]byte(`model:llm_engine_without_token:ratio10m{namespace="prod",model_name="m"} 0.04`), t0)
		return recorded.Series, err
	}
	before := calm()
	before.more = `llm_engine_without_progress_seconds{L,dp_rank="1"} 450
`
	after := before
	after.requests, after.more = after.requests+100, strings.Replace(before.more, "450", "480", 1)
	if v := judge(t, before.page(), after.page(), past)[0]; v.Health != triage.Failing || v.Clue != "no_tokens" {
		t.Errorf("%s: %s, also %+v", v.Health, v.Clue, v.Also)
	}
	if v := judge(t, before.page(), after.page(), nil)[0]; v.Health != triage.Healthy {
		t.Errorf("an idle rank: %s: %s", v.Health, v.Says)
	}
}

// TestXIDOfTheLastHour checks that an XID before the first reading counts if its date is recent.
func TestXIDOfTheLastHour(t *testing.T) {
	for ago, want := range map[time.Duration]rules.Branch{50 * time.Minute: rules.Hardware, 70 * time.Minute: ""} {
		n := calm()
		n.more = fmt.Sprintf(`llm_engine_gpu_info{runtime="vllm",namespace="prod",pod="p-0",server="10.0.0.1:8000",model_name="m",gpu_uuid="G",gpu="0"} 1
llm_gpu_xid_errors_total{gpu_uuid="G",gpu="0",xid="79",severity="page"} 0
llm_gpu_xid_last_timestamp_seconds{gpu_uuid="G",gpu="0",xid="79"} %d
llm_gpu_xid_info{xid="79",severity="page"} 1
`, t0.Add(-ago).Unix())
		if ago < time.Hour { // the verdict has lifted the older XID
			n.more += fmt.Sprintf(`llm_gpu_health_condition_timestamp_seconds{gpu_uuid="G",gpu="0",condition="xid_79",verdict="reset",alert="LLMGPUFailed"} %d
`, t0.Add(-ago).Unix())
		}
		after := n
		after.requests += 100
		if v := judge(t, n.page(), after.page(), nil); v[0].Branch != want {
			t.Errorf("%s ago: %+v", ago, v[0])
		}
	}
}

// TestPartsOfTheWhole checks that no part of the time to first token is longer than the whole, although other requests
// are counted.
func TestPartsOfTheWhole(t *testing.T) {
	before := calm()
	after := before
	after.requests, after.bad, after.ttft, after.queue = after.requests+100, after.bad+90, after.ttft+400, after.queue+520
	v := judge(t, before.page(), after.page(), nil)[0]
	if !slices.ContainsFunc(v.Evidence, func(e triage.Evidence) bool { return e.Fact == "queue_share" && e.Shown == "100%" }) {
		t.Errorf("evidence: %+v", v.Evidence)
	}
}

// TestText checks that only text to be copied is wider than a terminal, and that an engine's name never controls the
// terminal.
func TestText(t *testing.T) {
	before := calm()
	before.model = "evil\x1b]0;x\x07\u202e"
	after := before
	after.requests, after.bad, after.ttft, after.waiting = after.requests+100, after.bad+90, after.ttft+400, 9
	var b strings.Builder
	if err := (triage.Text{Root: "http://127.0.0.1:9844/"}).Write(&b, judge(t, before.page(), after.page(), nil)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimSuffix(line, "\n"); len([]rune(line)) > 80 && strings.Contains(strings.TrimSpace(line), " ") &&
			!strings.HasPrefix(line, "Runbook: ") {
			t.Errorf("too wide: %q", line)
		}
	}
	if strings.ContainsAny(b.String(), "\x1b\x07\u202e") {
		t.Errorf("%q", b.String())
	}
	var rootless strings.Builder
	if err := (triage.Text{}).Write(&rootless, judge(t, before.page(), after.page(), nil)); err != nil ||
		!strings.Contains(rootless.String(), "Runbook: any exporter's /runbooks/BranchQueueing?") {
		t.Errorf("no exporter is known, so the address has no beginning: %v in\n%s", err, rootless.String())
	}
	// The first action is directly below where to look first, before the evidence and the ruled-out branches.
	if _, rest, _ := strings.Cut(b.String(),
		"Look first at: queueing."); !regexp.MustCompile(`^[^\n]*(\n  [^\n]*)*\nDo first, at once: shed load at the gateway`).MatchString(rest) {
		t.Errorf("the first lever is not the next line:\n%s", b.String())
	}
	for _, want := range []string{
		": FAILING\nLook first at: queueing. 9 requests", "Objective ttft burns 90 times too fast: 90 of 100 first",
		"Runbook: http://127.0.0.1:9844/runbooks/BranchQueueing?", "* At once: ", "version: 0.16.0",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, b.String())
		}
	}
}

// TestConfidence checks that confidence is high if a Prometheus has data of the day before. The confidence is low if an
// engine's lifetime replaces that day, or if an equally clear clue names another branch. The verdict then names the
// values to compare.
func TestConfidence(t *testing.T) {
	const drafts = `llm_engine_spec_decode_draft_tokens_total{L} %g
llm_engine_spec_decode_accepted_tokens_total{L} %g
`
	past := func(_ context.Context, query string, _ time.Time) (promql.Vector, error) {
		if !strings.Contains(query, "prefix_hits_before") && !strings.Contains(query, "draft_tokens_before") {
			return nil, nil
		}
		fact := map[bool]string{true: "prefix_hits_before", false: "draft_tokens_before"}[strings.Contains(query, "prefix_hits_before")]
		recorded, err := triage.Parse([]byte(fmt.Sprintf(`model:llm_evidence:value{namespace="prod",model_name="m",fact=%q,unit="ratio",order="21"} 0.8`, fact)), t0)
		return recorded.Series, err
	}
	for name, c := range map[string]struct {
		accepted       float64 // of a thousand
		past           triage.Past
		confidence, or string
	}{
		"a lifetime":       {800, nil, "low", ""},
		"the day before":   {800, past, "high", ""},
		"one of two":       {100, past, "low", "The cause may be decode instead: compare the time between tokens with that of the day before"},
		"two of lifetimes": {100, nil, "low", "The cause may be decode instead: compare the time between tokens with that of the day before"},
	} {
		before := calm()
		before.more = fmt.Sprintf(drafts, 1e6, 8e5)
		after := before
		after.requests, after.bad, after.ttft, after.prompts = after.requests+100, after.bad+90, after.ttft+400, after.prompts+1e5
		after.more = fmt.Sprintf(drafts, 1e6+1000, 8e5+c.accepted)
		v := judge(t, before.page(), after.page(), c.past)[0]
		if v.Clue != "prefix_hits_fell" || v.Confidence != c.confidence || v.Or != c.or {
			t.Errorf("%s: %s, %s confidence, %q, also %+v", name, v.Clue, v.Confidence, v.Or, v.Also)
		}
	}
}

// TestNoStartTime checks SGLang, TensorRT-LLM and TGI, which do not report when they started. Values per request still
// have a usual value if many requests came before. Requests per second have no usual value.
func TestNoStartTime(t *testing.T) {
	hide := func(page string) string {
		return regexp.MustCompile(`(?m)^llm_engine_start_time_seconds.*\n`).ReplaceAllString(page, "")
	}
	for served, clue := range map[float64]string{100_000: "prompts_grew", 500: "queue_long"} {
		before := calm()
		before.requests, before.prompts, before.hits, before.ttft, before.queue, before.bad = served, served*1000, served*800, served/5,
			served/50, 0
		before.unread = before.prompts - before.hits
		after := before
		after.requests, after.bad, after.ttft, after.queue, after.prompts, after.hits, after.waiting = served+100, 90, before.ttft+400,
			before.queue+300, before.prompts+1e6, before.hits+8e5, 9
		if v := judge(t, hide(before.page()), hide(after.page()), nil)[0]; v.Clue != clue || v.Confidence != "low" {
			t.Errorf("after %g requests: %s, %s confidence, also %+v", served, v.Clue, v.Confidence, v.Also)
		}
	}
}
