package rules_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// TestHangingEnginesAreExplainedAlone checks that the page of each hanging engine has the cause that its own metrics show, not the
// cause of another engine of its model.
func TestHangingEnginesAreExplainedAlone(t *testing.T) {
	const full, hangs, fuller = "llama-0", "llama-1", "llama-2"
	engines := []struct {
		pod                       string
		cache, running, standsFor float64
	}{
		{full, 0.9, 0, 1},
		{hangs, 0.2, 3, 1},
		{fuller, 0.95, 0, 1},
		{"llama-3", 0.2, 1, 0},
		{"llama-4", 0.2, 1, 0},
		{"llama-5", 0.2, 1, 0},
		{"llama-6", 0.2, 1, 0},
	}
	w := &world{objectives: slo.Defaults(), extra: func(at time.Duration, emit rulesim.Emit) {
		for _, e := range engines {
			of := func(f *metrics.Family, value float64, more ...string) {
				emit(series(f.Name, append(more, metrics.LabelModel, "llama", metrics.LabelNamespace, "prod", metrics.LabelPod, e.pod,
					metrics.LabelServer, e.pod+":8000", metrics.LabelRuntime, "vllm")...), value)
			}
			of(metrics.EngineUp, 1)
			of(metrics.EngineInfo, 1, metrics.LabelVersion, "0.32.0")
			of(metrics.KVCacheUsage, e.cache)
			of(metrics.RequestsRunning, e.running)
			of(metrics.RequestsWaiting, 4*e.standsFor)
			of(metrics.EngineStalled, e.standsFor*max(0, at-10*time.Minute).Seconds())
		}
	}}
	pages := w.splits(t, rules.EngineStalled, 20*time.Minute)
	for pod, want := range map[string]string{
		full: "Look first at: memory. The KV cache of " + full, hangs: "Look first at: engine. ",
		fuller: "Look first at: memory. The KV cache of " + fuller,
	} {
		if !strings.HasPrefix(pages[pod], want) {
			t.Errorf("%s: the page begins with %q, want %q", pod, pages[pod], want)
		}
	}
}

// TestAnOutageThatACrashLoopCausesSaysSo checks that the page of a model without an engine names the restarts that led to it.
func TestAnOutageThatACrashLoopCausesSaysSo(t *testing.T) {
	w := &world{objectives: slo.Defaults(), extra: func(at time.Duration, emit rulesim.Emit) {
		engine := func(f *metrics.Family, value float64, more ...string) {
			emit(series(f.Name, append(slices.Clone(more), metrics.LabelPod, "llama-0", metrics.LabelServer, "llama-0:8000")...), value)
		}
		ofModel := []string{
			metrics.LabelRuntime, "vllm", metrics.LabelModel, "llama", metrics.LabelNamespace, "prod", metrics.LabelVersion, "0.32.0",
		}
		minute := int(at.Minutes())
		engine(metrics.EngineRestarts, float64(min(4, minute/6)), metrics.LabelNamespace, "prod")
		if minute%6 == 5 || minute > 24 {
			engine(metrics.EngineUp, 0, metrics.LabelNamespace, "prod", metrics.LabelReason, "unreachable")
			engine(metrics.EngineLastServed, float64(rulesim.Epoch.Unix())+24*60, ofModel...)
			return
		}
		engine(metrics.EngineUp, 1, metrics.LabelNamespace, "prod")
		engine(metrics.EngineInfo, 1, ofModel...)
	}}
	const want = "Look first at: engine. llama-0 restarted 4 times within six hours."
	if page := w.splits(t, rules.ModelDown, 32*time.Minute)["llama"]; !strings.HasPrefix(page, want) {
		t.Errorf("the page begins with %q, want %q", page, want)
	}
}

// TestSlowReplicaIsNamedWithItsPeersTime checks that the ticket about a slow replica shows how slow it is, with its GPU if
// one is read.
func TestSlowReplicaIsNamedWithItsPeersTime(t *testing.T) {
	for gpu, want := range map[string]string{
		"": "Step against peers: llama-0 1.5x", "GPU-7": "Step against peers: llama-0 GPU GPU-7 1.5x",
	} {
		w := &world{objectives: slo.Defaults(), extra: func(_ time.Duration, emit rulesim.Emit) {
			for i := range 4 {
				pod := fmt.Sprintf("llama-%d", i)
				of := func(f *metrics.Family, value float64, more ...string) {
					emit(series(f.Name, append(more, metrics.LabelModel, "llama", metrics.LabelNamespace, "prod", metrics.LabelPod, pod,
						metrics.LabelServer, pod+":8000", metrics.LabelRuntime, "vllm")...), value)
				}
				of(metrics.EngineUp, 1)
				of(metrics.EngineInfo, 1, metrics.LabelVersion, "0.32.0")
				of(metrics.RequestsRunning, 4)
				of(metrics.EngineStep, 0.02+0.01*metrics.Bool(i == 0), metrics.LabelBatch, "4")
				if gpu != "" {
					of(metrics.EngineGPUInfo, 1, metrics.LabelGPU, gpu)
				}
			}
		}}
		if split := w.splits(t, rules.ReplicaSkew, 25*time.Minute)["llama-0"]; !strings.Contains(split, want) {
			t.Errorf("with the GPU %q the ticket says %q, want %q", gpu, split, want)
		}
	}
}

// TestXIDsBeforeRestartsAreNamed checks that the ticket about an engine that restarts lists the XIDs of its own GPUs, also
// one that needs no service.
func TestXIDsBeforeRestartsAreNamed(t *testing.T) {
	w := &world{objectives: slo.Defaults(), extra: func(at time.Duration, emit rulesim.Emit) {
		restarts := min(3, math.Floor(at.Minutes()/9))
		for i, xid := range []string{"43", "79"} {
			pod, gpu := fmt.Sprintf("llama-%d", i), fmt.Sprintf("GPU-%d", i)
			of := func(f *metrics.Family, value float64, more ...string) {
				emit(series(f.Name, append(more, metrics.LabelNamespace, "prod", metrics.LabelPod, pod, metrics.LabelServer, pod+":8000")...), value)
			}
			of(metrics.EngineUp, 1)
			of(metrics.EngineInfo, 1, metrics.LabelModel, "llama", metrics.LabelRuntime, "vllm", metrics.LabelVersion, "0.32.0")
			of(metrics.EngineGPUInfo, 1, metrics.LabelModel, "llama", metrics.LabelRuntime, "vllm", metrics.LabelGPUUUID, gpu, metrics.LabelGPU, "0")
			of(metrics.EngineRestarts, restarts*metrics.Bool(i == 0))
			emit(series(metrics.GPUXIDErrors.Name, metrics.LabelGPUUUID, gpu, metrics.LabelGPU, "0", metrics.LabelXID, xid), restarts)
		}
	}}
	const want = "XIDs of its GPUs in the last hour: 43.\n"
	if split := w.splits(t, rules.EngineCrashLoop, 35*time.Minute)["llama-0"]; !strings.Contains(split+"\n", want) {
		t.Errorf("the ticket says %q, want %q", split, want)
	}
}

// splits simulates the world under all rules, and returns what the last firing of an alert says of each pod or, without a pod, of
// each model.
func (w *world) splits(t *testing.T, of *rules.Alert, d time.Duration) map[string]string {
	t.Helper()
	content, err := rules.Encode(rules.NewFile(rules.Groups(rules.Options{}), rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := rulesim.New(content)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	said := map[string]string{}
	sim.OnAlert = func(_ time.Time, a rulesim.Alert) {
		if a.Name == of.Name {
			said[cmp.Or(a.Labels.Get(metrics.LabelPod), a.Labels.Get(metrics.LabelModel))] = a.Annotations.Get("split")
		}
	}
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(d), scrapeEvery, w.scrape); err != nil {
		t.Fatal(err)
	}
	return said
}
