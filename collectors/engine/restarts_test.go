package engine

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// written is a metrics page: its runtime, the start of its process, and generated tokens by rank. A start of 0 is
// not on the metrics page.
type written struct {
	runtime string
	start   float64
	tokens  []float64
}

func (c written) page() string {
	rank := map[string]string{"vllm": "engine", "sglang": "dp_rank"}[c.runtime]
	page := "# TYPE " + c.runtime + ":num_requests_running gauge\n" + c.runtime + ":num_requests_running{model_name=\"m\"} 0\n"
	if c.tokens != nil {
		page += "# TYPE " + c.runtime + ":generation_tokens_total counter\n"
	}
	for i, n := range c.tokens {
		page += fmt.Sprintf("%s:generation_tokens_total{model_name=\"m\",%s=\"%d\"} %v\n", c.runtime, rank, i, n)
	}
	if c.start > 0 {
		page += fmt.Sprintf("# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %v\n", c.start)
	}
	return page
}

// In TestRestarts, three scrapers read each metrics page at once. An empty metrics page is an error of the server.
func TestRestarts(t *testing.T) {
	type step struct {
		written
		want float64
	}
	vllm := func(start, want float64, tokens ...float64) step { return step{written{"vllm", start, tokens}, want} }
	fails := func(want float64) step { return step{want: want} }
	for name, steps := range map[string][]step{
		"the start time moves":                         {vllm(100, 0, 5), vllm(100, 0, 9), vllm(200, 1, 0), vllm(200, 1, 7), vllm(300, 2, 9)},
		"while the page cannot be read":                {vllm(100, 0, 5), fails(0), vllm(200, 1, 0), fails(1), vllm(200, 1, 3)},
		"counters fall, the start time stands":         {vllm(100, 0, 5), vllm(100, 0, 1)},
		"no start time, counters fall":                 {vllm(0, 0, 50), vllm(0, 0, 60), vllm(0, 1, 3), vllm(0, 1, 70), fails(1), vllm(0, 2, 9)},
		"no start time, and counters come back late":   {vllm(0, 0, 50), vllm(0, 0), vllm(0, 0), vllm(0, 1, 3), vllm(0, 1), vllm(0, 1, 8)},
		"a start time that comes late":                 {vllm(100, 0, 50), vllm(0, 1, 3), vllm(200, 1, 5), vllm(300, 2, 1)},
		"a page that lacks the start time once":        {vllm(100, 0, 50), vllm(0, 0, 60), vllm(100, 0, 70), vllm(0, 0, 80), vllm(200, 1, 1)},
		"one process of several, then both at once":    {vllm(0, 0, 50, 60), vllm(0, 1, 51, 3), vllm(0, 2, 2, 1)},
		"one process of several leaves and comes back": {vllm(0, 0, 50, 60), vllm(0, 0, 51), vllm(0, 0, 52, 61)},
		"another runtime":                              {vllm(100, 0, 5), {written{"sglang", 200, []float64{7}}, 1}, vllm(300, 2, 5)},
	} {
		t.Run(name, func(t *testing.T) {
			e := serve(t, "")
			c := collectorWith(t, Config{Targets: []TargetConfig{{URL: e.URL}}, Log: discard})
			e.status = http.StatusInternalServerError
			parse(t, exposition(t, c)).want(t, metrics.EngineRestarts.Name) // nothing is known before the first reading
			for i, s := range steps {
				e.mu.Lock()
				e.page, e.status = "", http.StatusInternalServerError
				if s.runtime != "" {
					e.page, e.status = s.page(), http.StatusOK
				}
				e.mu.Unlock()
				var scrapers sync.WaitGroup
				for range 3 {
					scrapers.Go(func() {
						got := parse(t, exposition(t, c))
						if all := got.get(t, metrics.EngineRestarts.Name); len(all) != 1 || all[0] != s.want {
							t.Errorf("step %d: %v restarts, want %v", i, all, s.want)
						}
					})
				}
				scrapers.Wait()
			}
		})
	}
}

// TestRestartsOutliveTheTarget checks a process that is gone for long, is no target meanwhile, and returns after a
// reload of the configuration.
func TestRestartsOutliveTheTarget(t *testing.T) {
	e := serve(t, written{"vllm", 100, nil}.page())
	now := time.Unix(1_700_000_000, 0)
	config := Config{Log: discard, Now: func() time.Time { return now }, Ledger: NewLedger(now)}
	read := func(want ...float64) {
		t.Helper()
		c, err := collectorWith(t, config).With([]TargetConfig{{URL: e.URL}})
		if err != nil {
			t.Fatal(err)
		}
		parse(t, exposition(t, c)).want(t, metrics.EngineRestarts.Name, want...)
	}
	read(0)
	now = now.Add(6 * time.Hour)
	e.show(written{"vllm", 200, nil}.page())
	read(1)
	now = now.Add(forgetAfter + time.Hour) // the event is also outside an increase over six hours
	e.show(written{"vllm", 300, nil}.page())
	config.Ledger.forget(now)
	read(0)
}

// TestRestartsAreBounded checks an engine whose counters have other names each time.
func TestRestartsAreBounded(t *testing.T) {
	l, now := NewLedger(time.Unix(1_700_000_000, 0)), time.Unix(1_700_000_000, 0)
	for i := range 3 * mostCounters {
		all := map[string]float64{fmt.Sprint(i): 1, "steady": float64(i)}
		if n := l.lived("x", math.NaN(), maps.All(all), nil, now); n != 0 {
			t.Fatalf("%v restarts", n)
		}
	}
	if n := len(l.lives["x"].counters); n > mostCounters+2 {
		t.Errorf("%d counters are remembered", n)
	}
	if n := l.lived("x", math.NaN(), maps.All(map[string]float64{"steady": 1}), nil, now); n != 1 {
		t.Errorf("%v restarts", n)
	}
}

// TestRequestsLost checks that requests that ran when a process ended count as lost, once, also while the next process loads
// and if it begins with fewer families. Requests whose clients may have left do not count, nor do those of a process that
// shares the address with another.
func TestRequestsLost(t *testing.T) {
	lost := metrics.RequestsLost.Name
	const running, idle, start = `sglang:num_running_reqs{engine_type`, "sglang/v0.5.23-idle.prom", "process_start_time_seconds"
	t.Run("while the engine loads", func(t *testing.T) {
		p := play(t, "vllm/v0.32.0-cancelled.prom")
		p.set("vllm:num_requests_running", 25)
		p.set("vllm:num_requests_waiting{", 5)
		p.pass(time.Minute, tick, func() { p.add("vllm:generation_tokens_total{", 100) })
		p.last.want(t, lost, 0)
		p.status = http.StatusServiceUnavailable
		p.pass(10*time.Minute, tick, nil)
		p.last.want(t, lost, 0)
		p.status = http.StatusOK
		p.set(start, float64(p.now.Unix()-5))
		p.set("vllm:num_requests_running", 2)
		p.pass(time.Minute, tick, nil)
		p.last.want(t, lost, 25)
		p.set(start, float64(p.now.Unix()-5))
		p.pass(time.Minute, tick, nil)
		p.last.want(t, lost, 27)
	})
	t.Run("objectives", func(t *testing.T) {
		for page, running := range map[string]string{
			"vllm/v0.32.0-cancelled.prom": "vllm:num_requests_running", "vllm/v0.28.0-dp8-lora.prom": `vllm:num_requests_running{engine="3"`,
		} {
			p := play(t, page)
			p.collector = collectorWith(t, Config{
				Targets: []TargetConfig{{URL: p.URL}}, Now: func() time.Time { return p.now }, Log: discard,
				Objectives: []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")},
			})
			total := func(f *metrics.Family) (sum float64) {
				for _, v := range p.last.get(t, f.Name) {
					sum += v
				}
				return sum
			}
			p.pass(tick, tick, nil)
			had := total(metrics.RequestsLost)
			p.pass(time.Minute, tick, func() { p.set(running, 40) })
			all, bad := total(metrics.SLOEvents), total(metrics.SLOBadEvents)
			p.pass(tick, tick, func() { p.set("process_start_time_seconds", float64(p.now.Unix()-5)) })
			lost := total(metrics.RequestsLost) - had
			p.pass(tick, tick, nil)
			if all, bad = total(metrics.SLOEvents)-all, total(metrics.SLOBadEvents)-bad; lost < 40 || all != lost || bad != lost {
				t.Errorf("%s: %g lost, %g events, %g of them bad", page, lost, all, bad)
			}
		}
	})
	t.Run("the next process has fewer families", func(t *testing.T) {
		p := play(t, "sglang/v0.5.23-loaded.prom")
		p.set(running, 12)
		p.pass(time.Minute, tick, func() { p.add("sglang:prompt_tokens_total", 100) })
		p.page = readPage(t, idle)
		p.pass(tick, tick, nil)
		p.last.want(t, lost, 12)
	})
	t.Run("without progress", func(t *testing.T) {
		p := play(t, "vllm/v0.32.0-cancelled.prom")
		p.set("vllm:num_requests_running", 106)
		p.pass(2*believed, tick, nil)
		p.set(start, float64(p.now.Unix()-5))
		p.pass(tick, tick, nil)
		p.last.want(t, lost, 0)
	})
	t.Run("names that change", func(t *testing.T) {
		e := serve(t, "")
		c := collectorFor(t, []TargetConfig{{URL: e.URL}})
		var last samples
		for i := range 3 * formerModels {
			e.show(strings.ReplaceAll(written{"vllm", 100, []float64{5}}.page(), `"m"`, fmt.Sprintf("%q", fmt.Sprint("m-", i))))
			last = parse(t, exposition(t, c))
		}
		if n := len(last.get(t, lost)); n > formerModels+2 {
			t.Errorf("%d series", n)
		}
	})
	t.Run("two processes", func(t *testing.T) {
		p := play(t, "vllm/v0.32.0-cancelled.prom")
		p.set("vllm:num_requests_running", 25)
		p.pass(2*startsTogether, tick, func() {
			p.set(start, float64(1795402000+100*(p.now.Unix()/15%2)))
			p.add("vllm:generation_tokens_total{", 100)
		})
		p.last.want(t, lost, 0)
	})
}
