package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// TestClientsThatLeaveVLLM checks V1, which counts no aborts. Between these metrics pages of a real engine, the
// server answered 14 requests with 200, and clients left four of these early; it answered six more with 400. Its
// first-token counter agrees: 15 first tokens minus 12 finished requests, with none running, are three; and one
// client left before its first token.
func TestClientsThatLeaveVLLM(t *testing.T) {
	objectives := []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%"), objective(t, "all", slo.Availability, "",
		"99.9%")}
	objectives[1].CountAborts = true
	before, after := interval(t, objectives, readPage(t, "vllm/v0.32.0-before-cancel.prom"), readPage(t, "vllm/v0.32.0-cancelled.prom"))
	// two of the invalid requests at a path that does not exist
	for outcome, want := range map[string]float64{"abort": 4, "invalid": 8, "error": 0, "rejected": 0} {
		after.want(t, `llm_engine_requests_total{outcome="`+outcome+`"}`, want)
	}
	before.want(t, `llm_engine_requests_total{outcome="abort"}`, 0)
	after.want(t, `llm_slo_bad_events_total{slo="availability"}`, 0)
	after.want(t, `llm_slo_bad_events_total{slo="all"}`, 4)
	after.want(t, `llm_engine_metric_source_info{metric="llm_engine_requests_total",source="http_requests_total",quality="approximate",reason=~"answers 200.*"}`, 1)
	// 4,815 were answered 200 and 4,130 finished when the engine stopped; 351 were still waiting at the metrics page before it.
	page(t, "vllm/v0.32.0-wedge.prom").want(t, `llm_engine_requests_total{outcome="abort"}`, 685)
	// Two API servers and two ranks share one count of answers.
	page(t, "vllm/v0.32.0-dp2-lora.prom").want(t, `llm_engine_requests_total{outcome="abort",dp_rank=""}`, 0)
	page(t, "vllm/v0.32.0-dp2-lora.prom").want(t, `llm_engine_requests_total{outcome="abort",dp_rank!=""}`) // no rank counts them
	page(t, "vllm/v0.32.0-dp2-lora.prom").want(t, missingAborts)
	// V0 counts aborts itself.
	page(t, "vllm/v0.6.6-v0-multiprocess.prom").want(t, `llm_engine_metric_source_info{reason=~"answers 200.*"}`)
}

// vllmCounts holds the counters of a vLLM metrics page about how requests ended.
type vllmCounts struct{ http2xx, http4xx, http5xx, completed, finished, failed, refused float64 }

func (c vllmCounts) page() string {
	var b strings.Builder
	add := func(family, kind string, series ...any) {
		fmt.Fprintf(&b, "# TYPE %s %s\n", family, kind)
		for i := 0; i < len(series); i += 2 {
			fmt.Fprintf(&b, "%s%s %v\n", family, series[i], series[i+1])
		}
	}
	add("vllm:request_success_total", "counter", `{model_name="m",engine="0",finished_reason="stop"}`, c.finished,
		`{model_name="m",engine="0",finished_reason="abort"}`, 0, `{model_name="m",engine="0",finished_reason="error"}`, c.failed)
	add("vllm:request_params_n", "histogram", `_bucket{model_name="m",engine="0",le="+Inf"}`, c.completed,
		`_sum{model_name="m",engine="0"}`, c.completed, `_count{model_name="m",engine="0"}`, c.completed)
	if c.refused > 0 {
		add("vllm:admission_rejections_total", "counter", `{model_name="m",reason="max_num_queued_reqs"}`, c.refused)
	}
	add("http_requests_total", "counter", `{handler="/v1/chat/completions",method="POST",status="2xx"}`, c.http2xx,
		`{handler="/v1/chat/completions",method="POST",status="4xx"}`, c.http4xx,
		`{handler="/v1/chat/completions",method="POST",status="5xx"}`, c.http5xx)
	return b.String()
}

func (c vllmCounts) plus(d vllmCounts) vllmCounts {
	return vllmCounts{
		c.http2xx + d.http2xx, c.http4xx + d.http4xx, c.http5xx + d.http5xx, c.completed + d.completed,
		c.finished + d.finished, c.failed + d.failed, c.refused + d.refused,
	}
}

// TestOneFailureIsOneBadEvent compares vLLM's counts, as its source defines them, with the clients' records when
// several shapes of failure meet in an interval. TestShapesOfFailure has each by itself.
func TestOneFailureIsOneBadEvent(t *testing.T) {
	objectives := []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")}
	for name, c := range map[string]struct {
		counts    vllmCounts
		good, bad float64 // the client's
		abort     float64
		bound     float64 // bad events, if they are only a lower bound
	}{
		"nothing fails": {counts: vllmCounts{http2xx: 90, completed: 90, finished: 90}, good: 90},
		"failed in the engine, half of them streams": {counts: vllmCounts{
			http2xx: 95, http5xx: 5, completed: 100, finished: 90,
			failed: 10,
		}, good: 90, bad: 10},
		"failed before the engine": {
			counts: vllmCounts{http2xx: 90, http5xx: 10, completed: 90, finished: 90},
			good:   90, bad: 10,
		},
		"clients leave while others are refused": {counts: vllmCounts{
			http2xx: 104, http5xx: 6, completed: 90, finished: 90,
			refused: 10,
		}, good: 90, bad: 10, abort: 10},
		"clients send nonsense":                            {counts: vllmCounts{http2xx: 90, http4xx: 10, completed: 90, finished: 90}, good: 90},
		"two answers for a request":                        {counts: vllmCounts{http2xx: 45, completed: 45, finished: 90}, good: 90},
		"several prompts in a request, some clients leave": {counts: vllmCounts{http2xx: 40, completed: 90, finished: 90}, good: 90},
		"failed streams in the engine, and before it": {counts: vllmCounts{
			http2xx: 100, http5xx: 10, completed: 100, finished: 90,
			failed: 10,
		}, good: 90, bad: 20, bound: 10},
	} {
		t.Run(name, func(t *testing.T) {
			past := vllmCounts{http2xx: 5000, http5xx: 40, completed: 5000, finished: 5000}
			before, after := interval(t, objectives, past.page(), past.plus(c.counts).page())
			rise := func(family string) (by float64) {
				for _, r := range difference(before, after, family) {
					by += r.by
				}
				return by
			}
			want := c.bad
			if c.bound > 0 {
				want = c.bound
			}
			if events, bad := rise("llm_slo_events_total"), rise("llm_slo_bad_events_total"); events != c.good+want || bad != want {
				t.Errorf("%v bad of %v, the clients saw %v bad and %v good", bad, events, c.bad, c.good)
			}
			after.want(t, `llm_engine_requests_total{outcome="abort"}`, c.abort)
		})
	}
}

// TestTallyNeverFalls checks requests that count as finished while their answers are still being sent, and a
// request with several prompts, which counts several times.
func TestTallyNeverFalls(t *testing.T) {
	e := serve(t, "")
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	aborts := func(http2xx, completed, want float64) {
		t.Helper()
		e.show(vllmCounts{http2xx: http2xx, completed: completed, finished: completed}.page())
		parse(t, exposition(t, c)).want(t, `llm_engine_requests_total{outcome="abort"}`, want)
	}
	aborts(104, 100, 4)
	aborts(104, 110, 4)  // ten answers are being sent
	aborts(114, 110, 4)  // they have been
	aborts(115, 110, 5)  // a client left
	aborts(116, 1110, 5) // 1,000 prompts in one request
	for range debtLasts {
		aborts(116, 1110, 5)
	}
	aborts(118, 1110, 7) // two clients left, and the debt is forgotten
	aborts(3, 1, 9)      // another process, where two clients left
	e.show("# TYPE vllm:request_success_total counter\n" +
		`vllm:request_success_total{model_name="m",engine="0",finished_reason="stop"} 0` + "\n")
	exposition(t, c) // a third process, which has not answered any request
	aborts(2, 0, 11)
	e.status = 503
	exposition(t, c)
	e.status = 200
	aborts(3, 0, 12) // an engine that did not answer for a while is still the same engine
}

// TestReload checks vLLM, which counts a failed request first in its engine and later in its server.
func TestReload(t *testing.T) {
	p := play(t, "vllm/v0.32.0-admission-refused.prom")
	cfg := Config{
		Targets: []TargetConfig{{URL: p.URL}}, Log: discard,
		Objectives: []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")},
	}
	cfg.Ledger = NewLedger(time.Now())
	p.collector = collectorWith(t, cfg)
	p.pass(tick, tick, func() { p.add(`vllm:request_success_total{engine="0",finished_reason="error"`, 50) })
	p.pass(tick, tick, func() { p.add(`http_requests_total{handler="/v1/completions",method="POST",status="5xx"}`, 50) })
	p.last.outlives(t, cfg)
}

// TestEngineRestarts checks that Prometheus counts no event twice when an engine starts again. The first metrics page
// of an engine lacks series that it has not counted yet.
func TestEngineRestarts(t *testing.T) {
	p := play(t, "vllm/v0.32.0-admission-refused.prom")
	p.collector = collectorWith(t, Config{
		Targets: []TargetConfig{{URL: p.URL}}, Log: discard,
		Objectives: []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")},
	})
	var last map[string]float64
	read := func(most float64) {
		t.Helper()
		p.pass(tick, tick, nil)
		now := map[string]float64{}
		for _, of := range p.last {
			switch name := of.labels.Get("__name__"); name {
			case metrics.Requests.Name, metrics.SLOEvents.Name, metrics.SLOBadEvents.Name:
				series := of.labels.String()
				more := of.value - last[series]
				if more < 0 { // a counter that falls has restarted at 0
					more = of.value
				}
				if now[series] = of.value; last != nil && more > most {
					t.Errorf("%v, and %v before: %s", of.value, last[series], series)
				}
			}
		}
		last = now
	}
	read(0)
	p.add("vllm:request_success_total", 50)
	read(500)
	p.add("process_start_time_seconds", 3600)
	p.set("vllm:", 0)
	p.set("http_requests_total", 0)
	whole := p.order
	p.order = slices.DeleteFunc(slices.Clone(whole), func(line string) bool { return strings.HasPrefix(line, "http_") })
	p.set("vllm:", 0)
	read(0)
	p.order = whole
	p.set("vllm:", 0)
	p.add(`http_requests_total{handler="/v1/completions",method="POST",status="5xx"}`, 3)
	read(3)
}

// outlives checks that no counter of requests falls when the configuration changes.
func (s samples) outlives(t *testing.T, cfg Config) {
	t.Helper()
	next := collectorWith(t, cfg)
	now := map[string]float64{}
	for _, of := range parse(t, exposition(t, next)) {
		now[of.labels.String()] = of.value
	}
	for _, of := range s {
		switch of.labels.Get("__name__") {
		case metrics.Requests.Name, metrics.SLOEvents.Name, metrics.SLOBadEvents.Name:
			if v := now[of.labels.String()]; v != of.value {
				t.Errorf("%v, and %v when the configuration has changed: %s", of.value, v, of.labels)
			}
		}
	}
}

// TestOldReleasesCount400As5xx checks 0.18 to 0.25, for which it is unknown whether such a failure was the client's
// fault.
func TestOldReleasesCount400As5xx(t *testing.T) {
	for version, outcome := range map[string]string{
		"0.17.1": "error", "0.18.1": "unknown", "0.25.0": "unknown", "0.26.0": "error",
		"": "error",
	} {
		e := serve(t, vllmCounts{http2xx: 90, http5xx: 7, completed: 90, finished: 90}.page())
		if version != "" {
			e.documents["/version"] = `{"version":"` + version + `"}`
		}
		s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))
		s.want(t, `llm_engine_requests_total{outcome="`+outcome+`"}`, 7)
	}
}

const missingAborts = `llm_engine_metric_source_info{metric="llm_engine_requests_total",quality="missing",source="vllm:request_success_total{finished_reason=\"abort\"}"}`

// TestZeroOfWhatIsNeverCounted checks V1, which shows aborts at 0 and counts none. A count of 0 would be wrong if
// no other number on the metrics page shows aborts, as behind Ray's exporter, or before the first answer.
func TestZeroOfWhatIsNeverCounted(t *testing.T) {
	for _, name := range []string{"vllm/v0.32.0-admission-idle.prom", "vllm/v0.32.0-healthy.prom", "vllm/v0.32.0-dp2-lora.prom"} {
		var without strings.Builder
		for line := range strings.Lines(readPage(t, name)) {
			if !strings.HasPrefix(line, "http_") {
				without.WriteString(line)
			}
		}
		e := serve(t, without.String())
		c := collectorFor(t, []TargetConfig{{URL: e.URL}})
		s := parse(t, exposition(t, c))
		s.want(t, `llm_engine_requests_total{outcome="abort"}`)
		s.want(t, missingAborts, 1)
		if len(s.get(t, `llm_engine_requests_total{outcome="error"}`)) == 0 {
			t.Errorf("%s: what is counted is gone, too", name)
		}
		e.page = strings.NewReplacer(`finished_reason="abort",model_name="tiny"} 0`, `finished_reason="abort",model_name="tiny"} 3`).
			Replace(e.page)
		s = parse(t, exposition(t, c)) // a release that counts them
		if total(t, s, `llm_engine_requests_total{outcome="abort"}`) < 3 {
			t.Errorf("%s: the aborts that are counted are not served", name)
		}
		s.want(t, missingAborts)
	}
	page(t, "vllm/v0.32.0-healthy.prom").want(t, `llm_engine_requests_total{outcome="abort"}`, 0) // from the answers
	page(t, "vllm/v0.32.0-healthy.prom").want(t, missingAborts)
}

// TestStepsCountForEachRequestOfTheBatch checks TGI, which observes each decode step once. A replica whose steps
// take ten times as long makes a tenth of the steps for as many requests, so its users would hardly count beside
// the other replicas' users.
func TestStepsCountForEachRequestOfTheBatch(t *testing.T) {
	e := serve(t, "")
	c := collectorWith(t, Config{Targets: []TargetConfig{{URL: e.URL}}, Objectives: []slo.Objective{objective(t, "itl", slo.ITL, "50ms",
		"99%"), objective(t, "itl_severe", slo.ITL, "500ms", "99.9%")}})
	want := func(steps, inTime, batch, events, bad float64) {
		t.Helper()
		e.show(fmt.Sprintf(`# TYPE tgi_batch_current_size gauge
tgi_batch_current_size %v
# TYPE tgi_batch_inference_duration histogram
tgi_batch_inference_duration_bucket{method="decode",le="0.043789389038085935"} %v
tgi_batch_inference_duration_bucket{method="decode",le="0.49878850951194753"} %v
tgi_batch_inference_duration_bucket{method="decode",le="+Inf"} %[3]v
tgi_batch_inference_duration_sum{method="decode"} 5
tgi_batch_inference_duration_count{method="decode"} %[3]v
`, batch, inTime, steps))
		s := parse(t, exposition(t, c))
		s.want(t, `llm_slo_events_total{slo="itl"}`, events)
		s.want(t, `llm_slo_bad_events_total{slo="itl"}`, bad)
		s.want(t, `llm_slo_events_total{slo="itl_severe"}`, events)
		s.want(t, `llm_slo_bad_events_total{slo="itl_severe"}`, 0)
		s.want(t, `llm_engine_inter_token_latency_seconds_count`, steps) // as the metrics page has it
	}
	want(1000, 900, 5, 0, 0) // the size of those batches is unknown
	want(1100, 1000, 1, 100, 0)
	want(1110, 1000, 12, 220, 120)
	want(1130, 1010, 0, 240, 130) // the batch has ended; it had at least one request
	want(8, 8, 3, 264, 130)       // another process
}
