package engine

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// worker is the metrics page of a vLLM engine whose steps get longer with its load.
type worker struct {
	start, requests, gaps, gapSeconds, prompt float64
	noHistograms                              bool // before the first request, as in SGLang
}

// work serves requests at a rate.
func (w *worker) work(seconds, rate float64) {
	gaps, prompt := 100*rate, 400*rate
	w.requests, w.gaps, w.prompt = w.requests+seconds*rate, w.gaps+seconds*gaps, w.prompt+seconds*prompt
	w.gapSeconds += seconds * gaps / (100 - 0.05*gaps - 0.01*prompt)
}

func (w *worker) page() string {
	var b strings.Builder
	one := func(name, kind string, v float64) {
		fmt.Fprintf(&b, "# TYPE %s %s\n%s{model_name=\"m\",engine=\"0\"} %v\n", name, kind, name, v)
	}
	fmt.Fprintf(&b, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %v\n", w.start)
	one("vllm:num_requests_running", "gauge", 2)
	one("vllm:num_requests_waiting", "gauge", 0)
	one("vllm:prompt_tokens_total", "counter", w.prompt)
	one("vllm:generation_tokens_total", "counter", w.gaps+w.requests)
	histogram := func(name string, count, sum float64, bounds ...string) {
		fmt.Fprintf(&b, "# TYPE %s histogram\n", name)
		for _, bound := range append(bounds, "+Inf") {
			fmt.Fprintf(&b, "%s_bucket{model_name=\"m\",engine=\"0\",le=%q} %v\n", name, bound, count)
		}
		fmt.Fprintf(&b, "%s_sum{model_name=\"m\",engine=\"0\"} %v\n%[1]s_count{model_name=\"m\",engine=\"0\"} %[3]v\n", name, sum, count)
	}
	if !w.noHistograms {
		histogram("vllm:time_to_first_token_seconds", w.requests, 0.05*w.requests, "0.1", "0.5", "1.0")
		histogram("vllm:inter_token_latency_seconds", w.gaps, w.gapSeconds, "0.02", "0.05")
	}
	return b.String()
}

// TestRestartsKeepCapacity checks that an engine that restarts with the same settings keeps its capacity, although its
// first page lacks the settings from the command line, and that the exporter learns again if a setting has changed.
func TestRestartsKeepCapacity(t *testing.T) {
	command := func(batch string) [][]string { return [][]string{{"vllm", "serve", "m", "--max-num-seqs", batch}} }
	for name, c := range map[string]struct {
		batch        string
		noHistograms bool
		keeps        bool
	}{
		"the same command":                  {"10", false, true},
		"the same command, no requests yet": {"10", true, true},
		"another batch limit":               {"20", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(1_700_000_000, 0)
			w := &worker{start: 1_699_999_000}
			e := serve(t, w.page())
			engine := collectorWith(t, Config{
				Targets: []TargetConfig{{URL: e.URL}}, Now: func() time.Time { return now }, Log: discard,
				Objectives: []slo.Objective{objective(t, "ttft", slo.TTFT, "500ms", "99%")},
			})
			var last samples
			pass := func(minutes int, rate func(minute float64) float64) {
				for i := range 2 * minutes {
					now = now.Add(30 * time.Second)
					w.work(30, rate(float64(i)/2))
					e.show(w.page())
					last = parse(t, exposition(t, engine))
				}
			}
			swings := func(minute float64) float64 { return 2 + math.Sin(minute/5) }
			idle := func(float64) float64 { return 0 }
			expected := func() float64 {
				t.Helper()
				last.want(t, metrics.EngineCapacityKnown.Name+`{reason=""}`, 1)
				all := last.get(t, metrics.EngineCapacity.Name+`{kind="expected"}`)
				if len(all) != 1 {
					t.Fatalf("capacities %v", all)
				}
				return all[0]
			}

			pass(1, swings)
			engine.Commanded("engine-0:80", command("10"))
			pass(120, swings)
			before := expected()

			e.mu.Lock()
			e.status = http.StatusServiceUnavailable
			e.mu.Unlock()
			pass(2, idle)
			*w = worker{start: float64(now.Unix()), noHistograms: c.noHistograms}
			e.mu.Lock()
			e.status = http.StatusOK
			e.mu.Unlock()
			pass(2, idle)
			if c.noHistograms {
				last.want(t, metrics.EngineCapacityKnown.Name+`{reason="no_histograms"}`, 0)
			}
			engine.Commanded("engine-0:80", command(c.batch))
			w.noHistograms = false
			pass(2, swings)
			if !c.keeps {
				last.want(t, metrics.EngineCapacityKnown.Name+`{reason="few_readings"}`, 0)
				return
			}
			if after := expected(); math.Abs(after/before-1) > 0.05 {
				t.Errorf("%g requests per second after the restart, %g before", after, before)
			}
		})
	}
}

// TestUnobservedCapacity checks that engines without histograms report why their capacity is unknown. A server that
// generates no tokens, and a gateway, report nothing.
func TestUnobservedCapacity(t *testing.T) {
	const known = "llm_engine_capacity_known"
	objectives := []slo.Objective{objective(t, "ttft", slo.TTFT, "500ms", "99%"), objective(t, "itl", slo.ITL, "50ms", "99%")}
	for page, reason := range map[string]string{
		"llamacpp/b10450-loaded.prom":    "no_histograms",
		"tgi/v3.3.7-loaded.prom":         "no_histograms",
		"vllm/v0.32.0-healthy.prom":      "few_readings",
		"tei/embed-loaded.prom":          "",
		"llmd_router/v0.9.0-loaded.prom": "",
	} {
		s := counted(t, objectives, page)
		if reason == "" {
			s.want(t, known)
			continue
		}
		s.want(t, known, 0)
		s.want(t, known+`{reason="`+reason+`"}`, 0)
	}
}

// TestStepsWithoutHistograms checks that the steps of llama-servers can be compared. They are mostly idle, and have only
// sums of what ended.
func TestStepsWithoutHistograms(t *testing.T) {
	now, tokens := time.Unix(1_700_000_000, 0), 0.0
	var last samples
	steps := func(step func(minute float64) float64) map[string]float64 {
		var took float64
		page := func() string {
			return fmt.Sprintf("# TYPE llamacpp:tokens_predicted_total counter\nllamacpp:tokens_predicted_total %v\n"+
				"# TYPE llamacpp:tokens_predicted_seconds_total counter\nllamacpp:tokens_predicted_seconds_total %v\n"+
				"# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 0\n", tokens, took)
		}
		e := serve(t, page())
		engine := collectorWith(t, Config{
			Targets: []TargetConfig{{URL: e.URL}}, Now: func() time.Time { return now }, Log: discard,
			Objectives: []slo.Objective{objective(t, "itl", slo.ITL, "50ms", "99%")},
		})
		for i := range 120 {
			now = now.Add(30 * time.Second)
			rate := 12 + 4*math.Sin(float64(i)/10)
			tokens, took = tokens+30*rate, took+30*rate*step(float64(i)/2)
			e.show(page())
			last = parse(t, exposition(t, engine))
		}
		at := map[string]float64{}
		for _, s := range last {
			if s.labels.Get("__name__") == metrics.EngineStep.Name {
				at[s.labels.Get(metrics.LabelBatch)] = s.value
			}
		}
		return at
	}
	usual := steps(func(float64) float64 { return 0.010 })
	slow := steps(func(minute float64) float64 {
		if minute < 40 {
			return 0.010
		}
		return 0.020
	})
	compared := 0
	for batch, seconds := range slow {
		if usual[batch] == 0 {
			continue
		}
		compared++
		if ratio := seconds / usual[batch]; ratio < 1.95 || ratio > 2.05 {
			t.Errorf("%.3g times as long with %s requests, want 2", ratio, batch)
		}
	}
	if compared == 0 {
		t.Errorf("no number of requests that both ran: %v and %v", usual, slow)
	}
	if all := last.get(t, metrics.EngineSlowdown.Name); len(all) != 1 || math.Abs(all[0]-2) > 0.05 {
		t.Errorf("slowdown %v, want 2", all)
	}
}
