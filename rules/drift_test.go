package rules_test

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestDrift checks that one of four replicas that runs with another setting is named, with the setting, after a day.
// While a replica has just started, or a setting has just changed, a rollout is in progress.
func TestDrift(t *testing.T) {
	common := map[string]string{
		"dtype": "bfloat16", "template": "sha256:aaaaaaaaaaaa", "max_model_len": "32768", "speculation": "ngram",
		"image": "vllm:0.32@sha256:0123456789ab", "revision": "892b3d7a", "quantization": "fp8",
	}
	for _, c := range []struct {
		name, setting, value string
		capacity             float64       // of this replica, as a percentage
		started              time.Duration // of this replica; 0: a day ago
		changed              bool          // ten minutes ago
		want                 []string
	}{
		{name: "dtype", setting: "dtype", value: "float16", want: []string{"p3 dtype float16"}},
		{name: "template", setting: "template", value: "sha256:bbbbbbbbbbbb", want: []string{"p3 template sha256:bbbbbbbbbbbb"}},
		{name: "max length", setting: "max_model_len", value: "8192", want: []string{"p3 max_model_len 8192"}},
		{name: "cache size", capacity: 50, want: []string{"p3 kv_cache_tokens "}},
		{name: "speculation off", setting: "speculation", value: "default", want: []string{"p3 speculation default"}},
		{name: "older image", setting: "image", value: "vllm:0.31@sha256:ba9876543210", want: []string{"p3 image vllm:0.31@sha256:ba9876543210"}},
		{name: "other revision", setting: "revision", value: "aaaaaaaa", want: []string{"p3 revision aaaaaaaa"}},
		{name: "other quantisation", setting: "quantization", value: "awq", want: []string{"p3 quantization awq"}},
		{name: "all the same"},
		{name: "a little less cache", capacity: 97},
		{name: "a rollout", setting: "quantization", value: "awq", started: -10 * time.Minute},
		{name: "a rollout of an engine that does not say when it started", setting: "quantization", value: "awq", changed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			sim := newSim(t, group(t, rules.Options{}, "llm-evidence-1"), group(t, rules.Options{}, "llm-replica-pace"))
			if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(5*time.Minute), scrapeEvery, func(_ time.Time, emit rulesim.Emit) {
				for _, pod := range []string{"p0", "p1", "p2", "p3"} {
					place := []string{
						"instance", "n", metrics.LabelNamespace, "prod", metrics.LabelPod, pod, metrics.LabelServer, pod,
						metrics.LabelRuntime, "vllm",
					}
					send := func(f *metrics.Family, v float64, more ...string) {
						emit(labels.FromStrings(append(append(slices.Clone(place), model.MetricNameLabel, f.Name), more...)...), v)
					}
					started, capacity := -24*time.Hour, 100.0
					for setting, value := range common {
						if pod == "p3" && setting == c.setting {
							value = c.value
						}
						send(metrics.EngineConfig, 1, metrics.LabelModel, "m", metrics.LabelSetting, setting, metrics.LabelValue, value,
							metrics.LabelQuality, "native")
					}
					send(metrics.EngineConfig, 1, metrics.LabelSetting, "tokenizer", metrics.LabelQuality, "missing", metrics.LabelReason, "why")
					if pod == "p3" && c.capacity > 0 {
						capacity = c.capacity
					}
					if pod == "p3" && c.started != 0 {
						started = c.started
					}
					if pod == "p3" && c.changed {
						send(metrics.EngineConfigChanged, float64(rulesim.Epoch.Add(-10*time.Minute).Unix()), metrics.LabelModel, "m",
							metrics.LabelSetting, c.setting, metrics.LabelOld, common[c.setting], metrics.LabelNew, c.value)
					}
					send(metrics.KVCacheCapacity, 1000*capacity, metrics.LabelModel, "m")
					send(metrics.EngineInfo, 1, metrics.LabelModel, "m")
					send(metrics.EngineStartTime, float64(rulesim.Epoch.Add(started).Unix()))
				}
			}); err != nil {
				t.Fatal(err)
			}
			found, err := sim.Query(metrics.RecordedSkew.Name+`{reason="setting"}`, rulesim.Epoch.Add(3*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range found {
				got = append(got, s.Metric.Get(metrics.LabelPod)+" "+s.Metric.Get(metrics.LabelSetting)+" "+s.Metric.Get(metrics.LabelNew))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q differ, want %q", got, c.want)
			}
		})
	}
}

// TestBoundsAreNoDeployment checks an engine that does not report its version but shows version bounds, which narrow as
// its metrics appear. Only another exact version is a deployment.
func TestBoundsAreNoDeployment(t *testing.T) {
	sim := newSim(t, group(t, rules.Options{}, "llm-evidence-1"))
	versions := []string{"", "<=0.13", ">=0.9.2", ">=0.11 <=0.12", "0.11.2", "0.12.0"} // each for an hour
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(6*time.Hour), time.Minute, func(at time.Time, emit rulesim.Emit) {
		if hour := int(at.Sub(rulesim.Epoch) / time.Hour); hour < len(versions) {
			emit(labels.FromStrings(model.MetricNameLabel, metrics.EngineInfo.Name, metrics.LabelModel, "m", metrics.LabelServer, "s",
				metrics.LabelVersion, versions[hour]), 1)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for hour, want := range map[int]int{1: 0, 2: 0, 3: 0, 4: 0, 5: 1} {
		found, err := sim.Query(metrics.RecordedChanged.Name+`{setting="version"}`, rulesim.Epoch.Add(time.Duration(hour)*time.Hour+
			10*time.Minute))
		if err != nil || len(found) != want {
			t.Errorf("%q after %q: %v, %v", versions[hour], versions[hour-1], found, err)
		}
	}
}
