package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// TestEndsOfSGLang checks that each ended request has one outcome. Clients saw one warm-up, then 28 answers, 4
// cancelled requests and 3 answers 400, then 8 requests that gave up in a hang. The metrics page also counts the 4
// cancelled requests as finished, and counts answers 400 to the 8 requests that gave up.
func TestEndsOfSGLang(t *testing.T) {
	for name, want := range map[string][3]float64{"idle": {1, 0, 0}, "loaded": {29, 4, 3}, "hang": {29, 12, 3}} {
		s := page(t, "sglang/v0.5.23-"+name+".prom")
		for i, outcome := range []string{"success", "abort", "invalid"} {
			if got := s.get(t, metrics.Requests.Name+`{outcome="`+outcome+`"}`); len(got) > 1 || len(got) == 1 && got[0] != want[i] ||
				len(got) == 0 && want[i] != 0 {
				t.Errorf("%s: %s is %v, want %v", name, outcome, got, want[i])
			}
		}
	}
	c := collectorWith(t, Config{
		Targets: []TargetConfig{{URL: serve(t, readPage(t, "sglang/v0.5.23-hang.prom")).URL}}, Log: discard,
		Objectives: []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")},
	})
	parse(t, exposition(t, c)).want(t, `llm_slo_events_total{slo="availability"}`, 29)
}

// TestUnstreamedAnswersHaveTokens checks that unstreamed answers do not count as requests without a token.
func TestUnstreamedAnswersHaveTokens(t *testing.T) {
	p := play(t, "sglang/v0.5.23-loaded.prom")
	p.pass(5*time.Minute, tick, func() {
		for _, of := range []string{"num_requests_total", "time_to_first_token_seconds_count", "request_time_per_output_token_seconds_count"} {
			p.add("sglang:"+of+`{engine_type="unified",is_streaming="false"`, 10)
			p.add("sglang:"+of+`{engine_type="unified",is_streaming="true"`, 10)
		}
	})
	p.last.want(t, metrics.RequestsWithoutToken.Name, 0)
}

// TestUnstreamedClientsThatLeave checks that an unstreamed request whose client leaves is aborted, and not also invalid.
func TestUnstreamedClientsThatLeave(t *testing.T) {
	p := play(t, "sglang/v0.5.23-loaded.prom")
	p.pass(time.Minute, tick, nil)
	p.pass(tick, tick, func() {
		p.add(`sglang:num_requests_total{engine_type="unified",is_streaming="false"`, 120)
		p.add(`sglang:request_time_per_output_token_seconds_count{engine_type="unified",is_streaming="false"`, 100)
		p.add("sglang:num_aborted_requests_total", 20)
		p.add(`sglang:http_responses_total{endpoint="/v1/completions",method="POST",status_code="400"`, 20)
	})
	p.last.want(t, metrics.Requests.Name+`{outcome="invalid"}`, 3)
}

// TestStreamsOfAnImitation checks metrics pages that do not show which requests are streamed. Their answers are counted
// when a stream begins, so streams that run are not refused, and an answer whose client left is not good.
func TestStreamsOfAnImitation(t *testing.T) {
	p := play(t, "sglang/v0.5.23-loaded.prom")
	p.order = slices.DeleteFunc(p.order, func(line string) bool { return strings.Contains(line, `is_streaming="false"`) })
	for i, line := range p.order {
		p.order[i] = strings.Replace(line, `is_streaming="true",`, "", 1)
	}
	p.page = strings.Join(p.order, "")
	const answers = `sglang:http_responses_total{endpoint="/v1/completions",method="POST",status_code="200"`
	p.pass(time.Minute, tick, nil)
	good := p.last.get(t, metrics.Requests.Name+`{outcome="success"}`)
	p.pass(tick, tick, func() { p.add(answers, 20) })
	if got := p.last.get(t, metrics.Requests.Name+`{outcome="rejected"}`); len(got) > 0 && got[0] > 0 {
		t.Errorf("%g streams that run were refused", got[0])
	}
	p.pass(tick, tick, func() {
		p.add("sglang:num_requests_total", 20)
		p.add("sglang:num_aborted_requests_total", 5)
	})
	p.last.want(t, metrics.Requests.Name+`{outcome="success"}`, good[0]+15)
}

// TestTheFirstWholeAnswer checks that answers are counted once when the first answer of two tokens adds a family to the
// metrics page, from which on their ends are computed in another way.
func TestTheFirstWholeAnswer(t *testing.T) {
	p := play(t, "sglang/v0.5.23-loaded.prom")
	whole := p.order
	p.order = slices.DeleteFunc(slices.Clone(whole), func(line string) bool { return strings.Contains(line, sglangWhole.From) })
	p.page = strings.Join(p.order, "")
	p.pass(time.Minute, tick, nil)
	success, unknown := metrics.Requests.Name+`{outcome="success"}`, metrics.Requests.Name+`{outcome="unknown"}`
	before := p.last.get(t, success)[0]
	p.order, p.page = whole, strings.Join(whole, "")
	p.pass(tick, tick, nil)
	p.last.want(t, success, before)
	p.pass(tick, tick, func() {
		p.add(`sglang:num_requests_total{engine_type="unified",is_streaming="true"`, 3)
		p.add(`sglang:request_time_per_output_token_seconds_count{engine_type="unified",is_streaming="true"`, 2)
	})
	p.last.want(t, success, before+2)
	p.last.want(t, unknown, 1)
}

// TestEndsNeverFall checks that computed counters never fall although their inputs move at different moments: a
// counter that falls looks like a restart.
func TestEndsNeverFall(t *testing.T) {
	p := play(t, "sglang/v0.5.23-loaded.prom")
	success := metrics.Requests.Name + `{outcome="success"}`
	p.pass(time.Minute, tick, nil)
	p.last.want(t, success, 29)
	p.pass(tick, tick, func() { p.add("sglang:num_aborted_requests_total", 8) }) // in a queue
	p.last.want(t, success, 29)
	p.pass(tick, tick, func() { p.add(`sglang:num_requests_total{engine_type="unified",is_streaming="false"`, 100) }) // of one token
	p.last.want(t, success, 129)
	p.pass(tick, tick, func() { p.add(`sglang:num_requests_total{engine_type="unified",is_streaming="true"`, 100) }) // or broken off
	p.last.want(t, success, 129)
	p.last.want(t, metrics.Requests.Name+`{outcome="unknown"}`, 100)
}

// TestEndsOfSGLangAtAnyMoment reads at any moment, because counters of one request move one after the other. Over
// hundreds of readings of mixed traffic, good requests are within 1% of the truth, and errors never exceed it:
// streams that are refused while others fail cannot be distinguished from good answers.
func TestEndsOfSGLangAtAnyMoment(t *testing.T) {
	// The steps of a request, in the order of SGLang's source. Time passes between steps, and the counters of a step
	// change one after the other.
	kinds := []struct {
		steps      [][]string
		of         metrics.Outcome
		perMillion int
	}{
		{[][]string{{sglangFirst, sglang200}, {sglangStream, sglangWholeStream}}, metrics.OutcomeSuccess, 500_000},
		{[][]string{{sglangFirstPlain}, {sglangPlain, sglangWholePlain, sglang200}}, metrics.OutcomeSuccess, 200_000},
		{[][]string{{sglangFirstPlain, sglangPlain, sglang200}}, metrics.OutcomeSuccess, 100_000}, // one token
		{[][]string{{sglangPlain, sglang500}}, metrics.OutcomeError, 40_000},
		{[][]string{{sglang500}}, metrics.OutcomeError, 40_000}, // before it ran
		{[][]string{{sglang503}}, metrics.OutcomeRejected, 20_000},
		{[][]string{{sglang200}}, metrics.OutcomeRejected, 20_000}, // a stream
		{[][]string{{sglangFirst, sglang200}, {sglangLeft, sglangStream}}, metrics.OutcomeAbort, 40_000},
		{[][]string{{sglangLeft, sglang400}}, metrics.OutcomeAbort, 40_000}, // in the queue
	}
	const every = 3
	random := rand.New(rand.NewPCG(1, 2))
	counts, truth := goodRequests(metrics.SGLang).of(10).and(times(0, sglang400, sglang500, sglang503, sglangLeft)),
		ends{metrics.OutcomeSuccess: 10}
	known := readFacts(t)
	e := serve(t, counts.page(t, metrics.SGLang, known))
	cfg := Config{
		Targets: []TargetConfig{{URL: e.URL}}, Log: discard, Ledger: NewLedger(time.Now()),
		Objectives: []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")},
	}
	c := collectorWith(t, cfg)
	var underWay [][][]string
	var moves []string
	var got ends
	for reading := range 500 {
		for range 50 {
			if arrives := reading < 360 && random.IntN(every) == 0; arrives {
				n := random.IntN(1_000_000)
				for _, k := range kinds {
					if n -= k.perMillion; n < 0 {
						underWay, truth[k.of] = append(underWay, k.steps), truth[k.of]+1
						break
					}
				}
			}
			if len(moves) == 0 && len(underWay) > 0 {
				i := random.IntN(len(underWay))
				moves = underWay[i][0]
				if underWay[i] = underWay[i][1:]; len(underWay[i]) == 0 {
					underWay = slices.Delete(underWay, i, i+1)
				}
			}
			if len(moves) > 0 {
				counts[moves[0]]++
				moves = moves[1:]
			}
		}
		e.show(counts.page(t, metrics.SGLang, known))
		page := parse(t, exposition(t, c))
		if got = endsOf(page); reading%50 == 49 {
			page.outlives(t, cfg)
		}
	}
	if len(underWay) > 0 {
		t.Fatalf("%d requests are under way", len(underWay))
	}
	if good, truly := got[metrics.OutcomeSuccess], truth[metrics.OutcomeSuccess]; math.Abs(good-truly) > 0.01*truly {
		t.Errorf("%v are good, %v were", good, truly)
	}
	bad := func(e ends) float64 { return e[metrics.OutcomeError] + e[metrics.OutcomeRejected] }
	errors, truly := share(bad(got), got[metrics.OutcomeSuccess]), share(bad(truth), truth[metrics.OutcomeSuccess])
	if errors > truly || errors < 0.75*truly {
		t.Errorf("%.4f failed, %.4f did", errors, truly)
	}
	if got[metrics.OutcomeAbort] != truth[metrics.OutcomeAbort] || got[metrics.OutcomeUnknown] > 0.01*truth[metrics.OutcomeSuccess] {
		t.Errorf("%v, want %v", got, truth)
	}
}

// TestRequestsOfSGLangItself reads a metrics page from before any client came: it has a warm-up of 25 tokens in and
// 8 out, and a health check of one token. Of all objectives, only availability counts the warm-up, as good.
func TestRequestsOfSGLangItself(t *testing.T) {
	s := requestsOf(t, []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%"), objective(t, "ttft", slo.TTFT,
		"500ms", "99%"), objective(t, "itl", slo.ITL, "50ms", "99%")},
		readPage(t, "sglang/v0.5.23-idle.prom"))
	for query, want := range map[string]float64{
		`llm_engine_requests_total`: 1, `llm_engine_prompt_tokens_total`: 25, `llm_engine_generation_tokens_total`: 8,
		`llm_engine_request_duration_seconds_count`: 1,
		`llm_engine_queue_time_seconds_count`:       2, `llm_engine_prefill_time_seconds_count`: 2,
		`llm_engine_time_to_first_token_seconds_count`: 0, `llm_engine_time_per_output_token_seconds_count`: 0,
		`llm_engine_inter_token_latency_seconds_count`: 0,
		`llm_slo_events_total{slo="availability"}`:     1, `llm_slo_bad_events_total`: 0, `llm_slo_events_total{slo=~"ttft|itl"}`: 0,
	} {
		if got := total(t, s, query); got != want {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	for _, of := range []string{"llm_engine_queue_time_seconds", "llm_engine_prefill_time_seconds"} {
		s.want(t, metrics.MetricSourceInfo.Name+`{metric="`+of+`",quality="approximate",reason=~".*health checks.*"}`, 1)
	}
}
