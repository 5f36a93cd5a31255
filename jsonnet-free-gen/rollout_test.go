package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
)

// Every gate of both controllers stops a canary that is late and fails. A canary that serves well passes beside a
// stable version that does not; without traffic, a canary gives no decision.
func TestRolloutGates(t *testing.T) {
	ruleFile, err := installation{}.ruleFile("prometheus", installation{}.tiers()[0])
	if err != nil {
		t.Fatal(err)
	}
	sim, err := rulesim.New(ruleFile)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	start, minutes := rulesim.Epoch, 0.0
	err = sim.Run(start, start.Add(20*time.Minute), time.Minute, func(_ time.Time, emit rulesim.Emit) {
		minutes++
		for pod, load := range map[string]struct{ all, bad float64 }{
			"chat-bad11-7c-x1": {600, 120}, "chat-good1-7c-x1": {600, 0},
			"chat-idle1-7c-x1": {0, 0}, "chat-stable-7c-x1": {600, 600},
		} {
			series := func(name string, value float64, more ...string) {
				emit(labels.FromStrings(append(more, "__name__", name, "namespace", exampleNamespace, "model_name", exampleModel, "pod", pod,
					"server", pod+":8000",
					"runtime", "vllm", "job", "llm-node-exporter", "instance", "n1")...), value)
			}
			for _, objective := range []string{"ttft", "itl"} {
				series("llm_slo_events_total", load.all*minutes, "slo", objective, "threshold", "0.5")
				series("llm_slo_bad_events_total", load.bad*minutes, "slo", objective, "threshold", "0.5")
			}
			series("llm_engine_requests_total", (load.all-load.bad)*minutes, "outcome", "stop")
			if load.bad > 0 { // engines show an outcome once it has happened
				series("llm_engine_requests_total", load.bad*minutes, "outcome", "error")
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}

	argo, flagger := gateQueries(t)
	for i := range gates {
		for canary, want := range map[string]float64{"bad11": 0.2, "good1": 0, "idle1": math.NaN()} {
			for _, query := range []string{
				strings.NewReplacer("{{args.namespace}}", exampleNamespace, "{{args.rollout}}", "chat", "{{args.canary-hash}}", canary).
					Replace(argo[i]),
				strings.NewReplacer("{{ namespace }}", exampleNamespace, "{{ target }}", "chat-"+canary).Replace(flagger[i]),
			} {
				if err := promql.Verify(query); err != nil {
					t.Error(err)
				}
				v, err := sim.Query(query, start.Add(20*time.Minute))
				if err != nil || len(v) != 1 || math.Abs(v[0].F-want) > 1e-9 || math.IsNaN(v[0].F) != math.IsNaN(want) {
					t.Errorf("%s is %v, %v; want %v", query, v, err, want)
				}
			}
		}
	}
}

// gateQueries returns the queries of both controllers, in the order of the gates and then of the comparisons.
func gateQueries(t *testing.T) (argo, flagger []string) {
	t.Helper()
	var analysis struct {
		Spec struct {
			Metrics []struct {
				Name             string
				SuccessCondition string `yaml:"successCondition"`
				Provider         struct{ Prometheus struct{ Query string } }
			}
		}
	}
	decode(t, analysisTemplate, &analysis)
	for _, m := range analysis.Spec.Metrics {
		argo = append(argo, m.Provider.Prometheus.Query)
	}
	templates, err := metricTemplates()
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(templates), "\n---\n") {
		var template struct {
			Kind string
			Spec struct{ Query string }
		}
		if err := yaml.Unmarshal([]byte(document), &template); err != nil {
			t.Fatal(err)
		}
		if template.Kind == "MetricTemplate" {
			flagger = append(flagger, template.Spec.Query)
		}
	}
	if want := len(gates) + len(comparisons()); len(argo) != want || len(flagger) != want {
		t.Fatalf("%d and %d gates, want %d", len(argo), len(flagger), want)
	}
	return argo, flagger
}

// A canary that takes 1.5 times as long as the replicas beside it is above the limit of both controllers. An
// equally fast canary is below; a canary without traffic has no value, which decides nothing.
func TestComparingGates(t *testing.T) {
	argo, flagger := gateQueries(t)
	for _, controller := range []struct {
		stable  string
		queries []string
		names   *strings.Replacer
	}{
		{"chat-old99-x1", argo, strings.NewReplacer("{{args.namespace}}", exampleNamespace, "{{args.rollout}}", "chat",
			"{{args.canary-hash}}", "new11")},
		{"chat-primary-old99-x1", flagger, strings.NewReplacer("{{ namespace }}", exampleNamespace, "{{ target }}", "chat")},
	} {
		for name, c := range map[string]struct {
			perSecond, slower float64
			passes            bool
		}{"slow": {1, 1.5, false}, "as fast": {1, 1, true}, "a tenth slower": {1, 1.1, true}, "idle": {0, 1, false}} {
			sim, err := rulesim.New()
			if err != nil {
				t.Fatal(err)
			}
			defer sim.Close()
			minutes, end := 0.0, rulesim.Epoch.Add(20*time.Minute)
			if err := sim.Run(rulesim.Epoch, end, time.Minute, func(_ time.Time, emit rulesim.Emit) {
				minutes++
				for pod, load := range map[string]struct{ perSecond, each float64 }{
					"chat-new11-x1":   {c.perSecond, 0.2 * c.slower},
					controller.stable: {2, 0.2},
				} {
					for _, stage := range []string{"first_token", "next_token"} {
						for name, each := range map[string]float64{"llm_engine_stages_total": 1, "llm_engine_stage_seconds_total": load.each} {
							emit(labels.FromStrings("__name__", name, "stage", stage, "namespace", exampleNamespace, "model_name", exampleModel, "pod", pod,
								"server", pod+":8000",
								"runtime", "vllm", "job", "llm-node-exporter", "instance", "n1"), 60*minutes*load.perSecond*each)
						}
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			for i, gate := range comparisons() {
				query := controller.names.Replace(controller.queries[len(gates)+i])
				if err := promql.Verify(query); err != nil {
					t.Error(err)
				}
				v, err := sim.Query(query, end)
				switch {
				case err != nil:
					t.Error(err)
				case c.perSecond == 0:
					if len(v) != 0 {
						t.Errorf("%s: %s is %v", name, query, v)
					}
				case len(v) != 1 || math.Abs(v[0].F-c.slower) > 1e-9 || (v[0].F <= gate.most()) != c.passes:
					t.Errorf("%s: %s is %v, want %g; the limit is %g", name, query, v, c.slower, gate.most())
				}
			}
		}
	}
}
