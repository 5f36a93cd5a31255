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

// TestRefusals checks when requests that a gateway refused as invalid show a fault of the server: when it refuses
// about as many as it used to answer, and answers none.
func TestRefusals(t *testing.T) {
	const answers, refuses = `litellm_proxy_total_requests_metric_total{api_key_alias="None",api_provider="openai"`, `litellm_proxy_total_requests_metric_total{api_key_alias="None",api_provider="another"`
	refusals := func(p *played) { // the first refusals, before which LiteLLM has no series of refusals
		for i, line := range p.order {
			if rest, is := strings.CutPrefix(line, answers); is {
				rest, _, _ = strings.Cut(rest, " ")
				p.order[i] += refuses + strings.Replace(rest, `status_code="200"`, `status_code="401"`, 1) + " 0\n"
			}
		}
		p.order = strings.SplitAfter(strings.Join(p.order, ""), "\n")
		p.set(refuses, 0)
	}
	begin := func(t *testing.T) (p *played, wants func(invalid, rejected float64)) {
		p = play(t, "litellm/v1.106.2-load.prom")
		return p, func(invalid, rejected float64) {
			t.Helper()
			for outcome, want := range map[metrics.Outcome]float64{metrics.OutcomeInvalid: invalid, metrics.OutcomeRejected: rejected} {
				p.last.want(t, metrics.Requests.Name+`{outcome="`+string(outcome)+`"}`, want)
			}
		}
	}
	traffic := func(p *played, good, refused float64) func() {
		return func() {
			if p.add(answers, good); refused > 0 {
				if !strings.Contains(p.page, refuses) {
					refusals(p)
				}
				p.add(refuses, refused)
			}
		}
	}
	t.Run("all", func(t *testing.T) {
		p, wants := begin(t)
		p.pass(10*time.Minute, tick, traffic(p, 6, 1))
		wants(40, 0) // some clients are always wrong
		p.pass(45*time.Second, tick, traffic(p, 0, 7))
		wants(40, 0) // undecided
		p.pass(tick, tick, traffic(p, 0, 7))
		wants(40, 28)
		p.pass(time.Minute, tick, traffic(p, 0, 7))
		wants(40, 56)
		p.last.want(t, metrics.EngineRefuses.Name, 1)
		p.pass(time.Minute, tick, traffic(p, 6, 1))
		wants(44, 56)
		p.last.want(t, metrics.EngineRefuses.Name, 0)
	})
	t.Run("for long", func(t *testing.T) {
		p, _ := begin(t)
		p.pass(10*time.Minute, tick, traffic(p, 6, 0))
		p.pass(20*time.Minute, tick, traffic(p, 0, 7))
		p.last.want(t, metrics.EngineRefuses.Name, 1)
		p.pass(time.Minute, tick, traffic(p, 6, 1))
		p.last.want(t, metrics.EngineRefuses.Name, 0)
	})
	t.Run("the first refusals ever", func(t *testing.T) {
		p, wants := begin(t)
		p.pass(10*time.Minute, tick, traffic(p, 6, 0))
		p.pass(time.Minute, tick, traffic(p, 0, 7))
		wants(0, 28)
	})
	t.Run("users leave, one client is wrong", func(t *testing.T) {
		p, wants := begin(t)
		p.pass(10*time.Minute, tick, traffic(p, 6, 0))
		p.pass(20*time.Minute, tick, traffic(p, 0, 1))
		wants(80, 0)
	})
	t.Run("a flood beside good requests", func(t *testing.T) {
		p, wants := begin(t)
		p.pass(10*time.Minute, tick, traffic(p, 6, 0))
		p.pass(5*time.Minute, tick, traffic(p, 4, 60))
		wants(1200, 0)
	})
	t.Run("nobody was ever served", func(t *testing.T) {
		p, wants := begin(t)
		p.pass(time.Hour, tick, traffic(p, 0, 5))
		wants(1200, 0)
	})
	t.Run("it has started again, and answered none since", func(t *testing.T) {
		p, wants := begin(t)
		p.pass(10*time.Minute, tick, traffic(p, 6, 1))
		p.order = slices.DeleteFunc(p.order, func(line string) bool { return strings.HasPrefix(line, answers) })
		p.pass(tick, tick, func() { p.set(refuses, 7); p.set("process_start_time_seconds", float64(p.now.Unix()-5)) })
		p.pass(75*time.Second, tick, func() { p.add(refuses, 7) })
		wants(40, 42)
		p.last.want(t, metrics.EngineRefuses.Name, 1)
	})
	t.Run("few requests", func(t *testing.T) {
		p, wants := begin(t)
		p.pass(40*time.Minute, 2*time.Minute, traffic(p, 2, 0))
		p.pass(8*time.Minute, 2*time.Minute, traffic(p, 0, 2))
		wants(0, 0)
		p.pass(4*time.Minute, 2*time.Minute, traffic(p, 0, 2))
		wants(0, 12)
	})
}

// TestRefusalsOfOneServer checks a gateway whose metrics page shows which server answered: one of two refuses
// everything.
func TestRefusalsOfOneServer(t *testing.T) {
	page := func(a, b, refused, wrong float64) string {
		out := "# TYPE litellm_proxy_total_requests_metric_total counter\n"
		for _, s := range []struct {
			server, status string
			n              float64
		}{{"a", "200", a}, {"b", "200", b}, {"b", "400", refused}, {"None", "401", wrong}} {
			if s.n > 0 {
				out += fmt.Sprintf("litellm_proxy_total_requests_metric_total{requested_model=%q,model_id=%q,status_code=%q,route=%q} %v\n",
					"m", s.server, s.status, "/v1/completions", s.n)
			}
		}
		return out
	}
	now := time.Unix(1795403200, 0)
	e := serve(t, page(100, 100, 0, 0))
	c := collectorWith(t, Config{Targets: []TargetConfig{{URL: e.URL}}, Now: func() time.Time { return now }})
	for _, next := range [][4]float64{{160, 160, 0, 0}, {220, 220, 0, 9}, {280, 220, 60, 18}, {340, 220, 120, 27}} {
		exposition(t, c)
		now = now.Add(time.Minute)
		e.page = page(next[0], next[1], next[2], next[3])
	}
	got := parse(t, exposition(t, c))
	got.want(t, `llm_engine_requests_total{outcome="success"}`, 560)
	got.want(t, `llm_engine_requests_total{outcome="rejected"}`, 120)
	got.want(t, `llm_engine_requests_total{outcome="invalid"}`, 27) // their keys are wrong, and others are served
	got.want(t, metrics.EngineRefuses.Name, 0)                      // the gateway has another server
}

// TestRefusalsAreBadEvents checks that availability counts the requests of a gateway that refuses all requests.
func TestRefusalsAreBadEvents(t *testing.T) {
	page := func(good, refused string) string {
		return "# TYPE litellm_proxy_total_requests_metric_total counter\n" +
			"litellm_proxy_total_requests_metric_total{requested_model=\"m\",status_code=\"200\",route=\"/v1/completions\"} " + good +
			"\nlitellm_proxy_total_requests_metric_total{requested_model=\"m\",status_code=\"404\",route=\"/v1/completions\"} " + refused + "\n"
	}
	now := time.Unix(1795403200, 0)
	e := serve(t, page("100", "5"))
	c := collectorWith(t, Config{
		Targets: []TargetConfig{{URL: e.URL}}, Now: func() time.Time { return now },
		Objectives: []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")},
	})
	for _, next := range [][2]string{{"160", "5"}, {"220", "5"}, {"220", "65"}, {"220", "125"}} {
		exposition(t, c)
		now = now.Add(time.Minute)
		e.page = page(next[0], next[1])
	}
	got := parse(t, exposition(t, c))
	got.want(t, `llm_slo_events_total{slo="availability"}`, 340)
	got.want(t, `llm_slo_bad_events_total{slo="availability"}`, 120)
}
