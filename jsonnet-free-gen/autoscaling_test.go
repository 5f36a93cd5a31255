package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
)

// TestAutoscalingSignals runs the queries of KEDA and the adapter for two replicas under load. The exporters are
// simulated; the recording rules and the query engine are real. Half an hour after the exporters have restarted,
// the number of replicas is still known.
func TestAutoscalingSignals(t *testing.T) {
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
	end := start.Add(50 * time.Minute)
	err = sim.Run(start, end, time.Minute, func(now time.Time, emit rulesim.Emit) {
		minutes++
		for replica, load := range map[string]struct{ waiting, kv float64 }{"a": {5, 0.4}, "b": {7, 0.9}} {
			series := func(name string, value float64, more ...string) {
				emit(labels.FromStrings(append(more, "__name__", name, "namespace", exampleNamespace, "model_name", exampleModel, "pod", replica,
					"server", replica+":8000", "runtime", "vllm", "job", "llm-node-exporter", "instance", "n1")...), value)
			}
			series("llm_engine_requests_waiting", load.waiting)
			series("llm_engine_kv_cache_usage_ratio", load.kv)
			series("llm_engine_info", 1, "version", "1")
			series("llm_engine_requests_running", 3)
			series("llm_engine_requests_arrived_total", 600*minutes)
			series("llm_engine_stages_total", 600*minutes, "stage", "first_token")
			if now.Before(end.Add(-30 * time.Minute)) { // then exporters restart
				series("llm_engine_capacity_requests_per_second", 4, "slo", "ttft", "kind", "low") // of 20 arriving requests
			}
			series("llm_slo_events_total", 600*minutes, "slo", "ttft", "threshold", "0.5", "period", "30d")
			series("llm_slo_bad_events_total", 300*minutes, "slo", "ttft", "threshold", "0.5", "period", "30d")
		}
		for name, value := range map[string]float64{"llm_slo_objective_ratio": 0.99, "llm_slo_period_seconds": 30 * 86400} {
			emit(labels.FromStrings("__name__", name, "slo", "ttft", "job", "llm-node-exporter", "instance", "n1"), value)
		}
		emit(labels.FromStrings("__name__", "llm_slo_info", "slo", "ttft", "signal", "ttft", "period", "30d", "job", "llm-node-exporter",
			"instance", "n1"), 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	// half of the events are bad: a burn of 50, held at 12
	want := map[string]float64{"capacity": 5, "waiting": 12, "kv-usage": 0.9, "burn": 12}
	ask := func(name, query string) {
		t.Helper()
		v, err := sim.Query(query, end.Add(-time.Minute))
		if err != nil || len(v) != 1 || v[0].F != want[name] {
			t.Errorf("%s: %s is %v, %v", name, query, v, err)
		}
	}

	var scaled struct {
		Spec struct {
			Triggers []struct {
				Name     string
				Metadata struct{ Query string }
			}
		}
	}
	decode(t, keda, &scaled)
	for _, trigger := range scaled.Spec.Triggers {
		ask(trigger.Name, trigger.Metadata.Query)
	}
	var adapter struct {
		Rules struct {
			External []struct {
				Name         struct{ As string }
				SeriesQuery  string `yaml:"seriesQuery"`
				MetricsQuery string `yaml:"metricsQuery"`
			}
		}
	}
	decode(t, prometheusAdapter, &adapter)
	for _, rule := range adapter.Rules.External {
		filled := strings.NewReplacer("<<.LabelMatchers>>", fmt.Sprintf("namespace=%q,model_name=%q", exampleNamespace, exampleModel),
			"<<.GroupBy>>", "namespace").Replace(rule.MetricsQuery)
		ask(strings.TrimPrefix(rule.Name.As, "llm-"), filled)
		if v, err := sim.Query(rule.SeriesQuery, start.Add(19*time.Minute)); err != nil || len(v) == 0 {
			t.Errorf("%s finds no series: %v", rule.SeriesQuery, err)
		}
	}
	if len(scaled.Spec.Triggers) != len(want) || len(adapter.Rules.External) != len(want) {
		t.Errorf("%d triggers and %d rules", len(scaled.Spec.Triggers), len(adapter.Rules.External))
	}
}

func decode(t *testing.T, render func() ([]byte, error), into any) {
	t.Helper()
	content, err := render()
	if err == nil {
		err = yaml.Unmarshal(content, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
