package rules_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestStarted checks that an engine that has run for days does not count as started when it is first read. An engine that
// loaded for half an hour, and one that restarted, do count.
func TestStarted(t *testing.T) {
	sim := newSim(t, group(t, rules.Options{}, "llm-model"))
	starts := map[string]time.Duration{"old": -48 * time.Hour, "loaded": 10 * time.Minute, "again": -48 * time.Hour}
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(50*time.Minute), scrapeEvery, func(now time.Time, emit rulesim.Emit) {
		at := now.Sub(rulesim.Epoch)
		for pod, start := range starts {
			if pod == "again" && at >= 40*time.Minute {
				start = 39 * time.Minute
			}
			if pod != "again" && at < 40*time.Minute {
				continue
			}
			place := []string{"instance", "n", metrics.LabelNamespace, "prod", metrics.LabelPod, pod, metrics.LabelServer, pod}
			emit(labels.FromStrings(append(place, model.MetricNameLabel, metrics.EngineInfo.Name, metrics.LabelModel, "m")...), 1)
			emit(labels.FromStrings(append(place, model.MetricNameLabel, metrics.EngineStartTime.Name)...), float64(rulesim.Epoch.Add(start).Unix()))
		}
	}); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Duration][]string{2 * time.Minute: nil, 42 * time.Minute: {"again", "loaded"}} {
		found, err := sim.Query(metrics.RecordedStarted.Name, rulesim.Epoch.Add(at))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range found {
			got = append(got, s.Metric.Get(metrics.LabelPod))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("after %s %v started, want %v", at, got, want)
		}
	}
}

// GPU faults are recorded for the models on these GPUs: across nodes, on shared GPUs and on MIG instances.
func TestGPUsOfModels(t *testing.T) {
	sim := newSim(t, group(t, rules.Options{}, "llm-model"))
	err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(90*time.Minute), scrapeEvery, func(now time.Time, emit rulesim.Emit) {
		at := now.Sub(rulesim.Epoch)
		on := func(node string) func(f *metrics.Family, v float64, pairs ...string) {
			return func(f *metrics.Family, v float64, pairs ...string) {
				emit(labels.FromStrings(append([]string{model.MetricNameLabel, f.Name, "instance", node, metrics.LabelCluster, "c"}, pairs...)...), v)
			}
		}
		gpu := func(uuid string) []string { return []string{metrics.LabelGPUUUID, uuid} }
		runs := func(node, model, pod, uuid, instance string) {
			on(node)(metrics.EngineGPUInfo, 1, append(gpu(uuid), metrics.LabelModel, model, metrics.LabelNamespace, "prod", metrics.LabelPod, pod,
				metrics.LabelGPUInstance, instance, metrics.LabelSource, "pod_resources")...)
		}
		device := func(node, uuid string, heat, capped float64) {
			show := on(node)
			show(metrics.GPUClockEventSeconds, heat*at.Seconds(), append(gpu(uuid), metrics.LabelReason, "sw_thermal_slowdown")...)
			show(metrics.GPUClockEventSeconds, capped*at.Seconds(), append(gpu(uuid), metrics.LabelReason, "sw_power_cap")...)
		}
		// large runs on two nodes, and shares its last GPU with small.
		runs("node-1", "large", "large-0", "GPU-1", "")
		runs("node-1", "large", "large-0", "GPU-2", "")
		runs("node-2", "large", "large-1", "GPU-3", "")
		runs("node-2", "large", "large-1", "GPU-4", "")
		runs("node-2", "small", "small-0", "GPU-4", "")
		device("node-1", "GPU-1", 0.5, 0)
		device("node-1", "GPU-2", 0.01, 0.9)
		device("node-2", "GPU-3", 0, 0)
		device("node-2", "GPU-4", 0, 0)
		// split runs on two compute instances of one MIG instance.
		runs("node-3", "split", "split-0", "GPU-5", "1")
		runs("node-3", "split", "split-1", "GPU-5", "1")
		device("node-3", "GPU-5", 0.2, 0)
		// old runs on a GPU that reports nothing.
		runs("node-4", "old", "old-0", "GPU-6", "")
		// partly also runs on another such GPU.
		runs("node-4", "partly", "partly-0", "GPU-6", "")
		runs("node-6", "partly", "partly-1", "GPU-8", "")
		device("node-6", "GPU-8", 0.5, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		family *metrics.Family
		at     time.Duration
		values map[string]float64
	}{
		{metrics.RecordedThrottledGPUs, 40 * time.Minute, map[string]float64{"large": 0.25, "small": 0, "split": 1, "partly": 0.5}},
	} {
		v, err := sim.Query(want.family.Name, rulesim.Epoch.Add(want.at))
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]float64)
		for _, s := range v {
			got[s.Metric.Get(metrics.LabelModel)] = math.Round(s.F*100) / 100
		}
		if len(got) != len(want.values) || len(v) != len(got) {
			t.Errorf("%s after %s: got %v, want %v", want.family.Name, want.at, v, want.values)
		}
		for name, value := range want.values {
			// increase() extrapolates a little.
			if g, ok := got[name]; !ok || math.Abs(g-value) > 0.05 {
				t.Errorf("%s of %s after %s: got %v, want %g", want.family.Name, name, want.at, got, value)
			}
		}
	}
}

// Tokens are good if their requests met all latency objectives. The missed share of a model is the worst of each signal,
// summed over the signals.
func TestGoodTokens(t *testing.T) {
	sim := newSim(t, group(t, rules.Options{}, "llm-model"), group(t, rules.Options{}, "llm-slo-objective"))
	type share map[string]float64 // bad, by objective
	models := map[string]share{
		"good": {"ttft": 0, "itl": 0}, "late": {"ttft": 1, "itl": 0}, "slow": {"ttft": 0, "itl": 0.25}, "both": {"ttft": 0.5, "itl": 0.25},
		"lost":   {"ttft": 0.75, "itl": 0.5},
		"nested": {"ttft": 0.5, "ttft_severe": 0.25}, "failing": {"ttft": 0.25, "availability": 0.5},
		"probed": {"ttft": 0.25, "probe_ttft": 0.5}, "untold": {"availability": 0}, "idle": {},
	}
	err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(10*time.Minute), scrapeEvery, func(now time.Time, emit rulesim.Emit) {
		for name, missed := range models {
			series := func(f *metrics.Family, v float64, more ...string) {
				emit(labels.FromStrings(append(more, model.MetricNameLabel, f.Name, metrics.LabelModel, name)...), v)
			}
			series(metrics.GenerationTokens, 100*now.Sub(rulesim.Epoch).Seconds(), "instance", "node-1", "job", rules.DefaultJob)
			for objective, bad := range missed {
				signal, _, _ := strings.Cut(objective, "_severe")
				series(metrics.RecordedInfo, 1, metrics.LabelSLO, objective, metrics.LabelSignal, signal, metrics.LabelPeriod, "30d")
				series(metrics.RecordedEventRate, 4, metrics.LabelSLO, objective)
				series(metrics.RecordedBadEventRate, 4*bad, metrics.LabelSLO, objective)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	v, err := sim.Query(metrics.RecordedGoodTokens.Name, rulesim.Epoch.Add(9*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, s := range v {
		got[s.Metric.Get(metrics.LabelModel)] = math.Round(s.F)
	}
	want := map[string]float64{"good": 100, "late": 0, "slow": 75, "both": 25, "lost": 0, "nested": 50, "failing": 75, "probed": 75}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// An engine counts once, however many exporters read it. Engines with the same loopback address on two nodes are two
// engines.
func TestEnginesCountOnce(t *testing.T) {
	sim := newSim(t, group(t, rules.Options{}, "llm-model"))
	err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(15*time.Minute), scrapeEvery, func(now time.Time, emit rulesim.Emit) {
		at := now.Sub(rulesim.Epoch)
		for _, e := range []struct{ model, pod, server, node string }{
			{"pods", "p-0", "10.0.0.1:8000", "node-1"},
			{"pods", "p-0", "10.0.0.1:8000", "node-2"},
			{"pods", "p-1", "10.0.0.2:8000", "node-1"},
			{"hosts", "", "127.0.0.1:8000", "node-1"},
			{"hosts", "", "127.0.0.1:8000", "node-2"},
		} {
			for f, v := range map[*metrics.Family]float64{
				metrics.RequestsRunning: 7, metrics.RequestsWaiting: 3,
				metrics.GenerationTokens: 10 * at.Seconds(),
			} {
				emit(labels.FromStrings(model.MetricNameLabel, f.Name, "instance", e.node, "job", rules.DefaultJob, metrics.LabelModel, e.model,
					metrics.LabelPod, e.pod, metrics.LabelServer, e.server), v)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for f, each := range map[*metrics.Family]float64{
		metrics.RecordedReplicas: 1, metrics.RecordedRunning: 7, metrics.RecordedWaiting: 3,
		metrics.RecordedGenerationTokens: 10,
	} {
		v, err := sim.Query(f.Name, rulesim.Epoch.Add(14*time.Minute))
		if err != nil || len(v) != 2 {
			t.Fatal(v, err)
		}
		for _, s := range v {
			if math.Abs(s.F-2*each) > 0.01 {
				t.Errorf("%s of %s is %v, want %v", f.Name, s.Metric.Get(metrics.LabelModel), s.F, 2*each)
			}
		}
	}
}
