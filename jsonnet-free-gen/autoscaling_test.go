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
// simulated; the recording rules and the query engine are real. Half an hour after the exporters have restarted, the
// number of replicas is still known. An hour after, it is unknown, and KEDA must not take it for zero. Then there are
// no requests, and one replica is enough.
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
	const restart, idle, last = 20 * time.Minute, 85 * time.Minute, 115 * time.Minute
	served := 0.0
	err = sim.Run(rulesim.Epoch, rulesim.Epoch.Add(last), time.Minute, func(now time.Time, emit rulesim.Emit) {
		at := now.Sub(rulesim.Epoch)
		busy, known := 1.0, at < restart || at >= idle
		if at >= idle {
			busy = 0
		}
		served += 600 * busy
		for replica, load := range map[string]struct{ waiting, kv float64 }{"a": {5, 0.4}, "b": {7, 0.9}} {
			series := func(name string, value float64, more ...string) {
				emit(labels.FromStrings(append(more, "__name__", name, "namespace", exampleNamespace, "model_name", exampleModel, "pod", replica,
					"server", replica+":8000", "runtime", "vllm", "job", "llm-node-exporter", "instance", "n1")...), value)
			}
			series("llm_engine_requests_waiting", busy*load.waiting)
			series("llm_engine_kv_cache_usage_ratio", busy*load.kv)
			series("llm_engine_info", 1, "version", "1")
			series("llm_engine_requests_running", 3*busy)
			series("llm_engine_requests_arrived_total", served)
			series("llm_engine_stages_total", served, "stage", "first_token")
			if known {
				series("llm_engine_capacity_requests_per_second", 4, "slo", "ttft", "kind", "low") // of 20 arriving requests
			}
			series("llm_slo_events_total", served, "slo", "ttft", "threshold", "0.5", "period", "30d")
			series("llm_slo_bad_events_total", served/2, "slo", "ttft", "threshold", "0.5", "period", "30d")
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
	// Half of the events are bad: a burn rate of 50, capped at 12. A signal that is not listed has no value.
	want := map[time.Duration]map[string]float64{
		restart + 30*time.Minute: {"capacity": 5, "waiting": 12, "kv-usage": 0.9, "burn": 12},
		restart + time.Hour:      {"waiting": 12, "kv-usage": 0.9, "burn": 12},
		last - time.Minute:       {"capacity": 1, "waiting": 0, "kv-usage": 0},
	}
	const signals = 4
	ask := func(name, query string, absent bool) {
		t.Helper()
		for at, values := range want {
			v, err := sim.Query(query, rulesim.Epoch.Add(at))
			expected, ok := values[name]
			switch {
			case err != nil || ok != (len(v) == 1) || ok && v[0].F != expected:
				t.Errorf("%s after %s: %s is %v, %v", name, at, query, v, err)
			case !ok && at < idle && absent:
				t.Errorf("%s after %s: the load is high, and KEDA takes the absent value for zero", name, at)
			}
		}
	}

	var scaled struct {
		Spec struct {
			Triggers []struct {
				Name     string
				Metadata struct {
					Query            string
					IgnoreNullValues string `yaml:"ignoreNullValues"`
				}
			}
		}
	}
	decode(t, keda, &scaled)
	for _, trigger := range scaled.Spec.Triggers {
		ask(trigger.Name, trigger.Metadata.Query, trigger.Metadata.IgnoreNullValues == "true")
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
		ask(strings.TrimPrefix(rule.Name.As, "llm-"), filled, false)
		if v, err := sim.Query(rule.SeriesQuery, rulesim.Epoch.Add(restart-time.Minute)); err != nil || len(v) == 0 {
			t.Errorf("%s finds no series: %v", rule.SeriesQuery, err)
		}
	}
	if len(scaled.Spec.Triggers) != signals || len(adapter.Rules.External) != signals {
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
