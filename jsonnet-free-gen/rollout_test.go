package main

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
)

// A canary that is late and fails is stopped by every gate of both controllers; one that serves well passes beside a
// stable version that does not; one without traffic decides nothing.
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
		for pod, load := range map[string]struct{ all, bad float64 }{"chat-bad11-7c-x1": {600, 120}, "chat-good1-7c-x1": {600, 0}, "chat-idle1-7c-x1": {0, 0}, "chat-stable-7c-x1": {600, 600}} {
			series := func(name string, value float64, more ...string) {
				emit(labels.FromStrings(append(more, "__name__", name, "namespace", exampleNamespace, "model_name", exampleModel, "pod", pod, "server", pod+":8000",
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

	var analysis struct {
		Spec struct {
			Metrics []struct {
				SuccessCondition string `yaml:"successCondition"`
				Provider         struct{ Prometheus struct{ Query string } }
			}
		}
	}
	decode(t, analysisTemplate, &analysis)
	templates, err := metricTemplates()
	if err != nil {
		t.Fatal(err)
	}
	flagger := regexp.MustCompile("(?m)^  query: (.+)$").FindAllStringSubmatch(string(templates), -1)
	if len(analysis.Spec.Metrics) != len(gates) || len(flagger) != len(gates) {
		t.Fatalf("%d and %d gates, want %d", len(analysis.Spec.Metrics), len(flagger), len(gates))
	}
	for i, m := range analysis.Spec.Metrics {
		for canary, want := range map[string]float64{"bad11": 0.2, "good1": 0, "idle1": math.NaN()} {
			for _, query := range []string{
				strings.NewReplacer("{{args.namespace}}", exampleNamespace, "{{args.rollout}}", "chat", "{{args.canary-hash}}", canary).Replace(m.Provider.Prometheus.Query),
				strings.NewReplacer("{{ namespace }}", exampleNamespace, "{{ target }}", "chat-"+canary).Replace(flagger[i][1]),
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
