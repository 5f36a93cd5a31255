package engine

import (
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// TestEndsOfSGLang: one end is one outcome. Clients saw one warm-up; then 28 answers, 4 cancelled, 3 answered 400; then 8
// that gave up in a hang. The page counts the 4 as finished, too, and answers 400 to the 8, who are gone.
func TestEndsOfSGLang(t *testing.T) {
	for name, want := range map[string][3]float64{"idle": {1, 0, 0}, "loaded": {29, 4, 3}, "hang": {29, 12, 3}} {
		s := page(t, "sglang/v0.5.23-"+name+".prom")
		for i, outcome := range []string{"success", "abort", "invalid"} {
			if got := s.get(t, metrics.Requests.Name+`{outcome="`+outcome+`"}`); len(got) > 1 || len(got) == 1 && got[0] != want[i] || len(got) == 0 && want[i] != 0 {
				t.Errorf("%s: %s is %v, want %v", name, outcome, got, want[i])
			}
		}
	}
	c := collectorWith(t, Config{Targets: []TargetConfig{{URL: serve(t, readPage(t, "sglang/v0.5.23-hang.prom")).URL}}, Log: discard,
		Objectives: []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")}})
	parse(t, exposition(t, c)).want(t, `llm_slo_events_total{slo="availability"}`, 29)
}

// TestEndsNeverFall: what a counter is computed from moves at different moments, and a counter that falls looks like a restart.
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
