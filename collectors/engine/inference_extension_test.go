package engine

import (
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestInferenceExtension checks the gauges that the Gateway API Inference Extension wants of a model server. These
// gauges have the same values under the names that its docs/proposals/003-model-server-protocol/README.md publishes
// for each engine. An endpoint picker may therefore read this exporter.
func TestInferenceExtension(t *testing.T) {
	type names struct{ queued, running, kv string }
	published := map[string]names{
		"vllm": {"vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"},
		"triton": {
			"nv_trt_llm_request_metrics request_type=waiting", "nv_trt_llm_request_metrics request_type=scheduled",
			"nv_trt_llm_kv_cache_block_metrics kv_cache_block_type=fraction",
		},
		"trtllm": {"trtllm_num_requests_waiting", "trtllm_num_requests_running", "trtllm_kv_cache_utilization"},
		"sglang": {"sglang:num_queue_reqs", "sglang:num_running_reqs", "sglang:token_usage"},
	}
	compared := map[string]int{}
	for _, page := range pages(t) {
		engine := path.Dir(page)
		want, ok := published[engine]
		// these servers repeat their engines' numbers
		if !ok || path.Ext(page) != ".prom" || strings.Contains(page, "router") || strings.Contains(page, "gateway") {
			continue
		}
		raw := gauges(t, readPage(t, page))
		ours := gauges(t, exposition(t, collectorFor(t, []TargetConfig{{URL: serve(t, readPage(t, page)).URL}})))
		for of, name := range map[*metrics.Family]string{
			metrics.RequestsWaiting: want.queued, metrics.RequestsRunning: want.running,
			metrics.KVCacheUsage: want.kv,
		} {
			values := raw[name]
			if name == "sglang:token_usage" { // the fullest pool from 0.5.11 on; before that, Mamba's pool is separate
				values = slices.Concat(values, raw["sglang:mamba_usage"])
			}
			if len(values) == 0 || of == metrics.KVCacheUsage && slices.Max(values) > 1 { // Triton 0.18 sometimes shifts its values by one label
				continue
			}
			// Workers that do not schedule report 0 beside the worker that does, and a metrics page of several ranks
			// has one value for each rank.
			if got := ours[of.Name]; len(got) == 0 || math.Abs(slices.Max(got)-slices.Max(values)) > 1e-9 {
				t.Errorf("%s: %s is %v, %s is %v", page, of.Name, got, name, values)
			}
			compared[engine+" "+of.Name]++
		}
	}
	if len(compared) != 3*len(published) {
		t.Errorf("compared only %v", compared)
	}
}

// gauges lists the values of each gauge of a metrics page, by its name, and by its name and each label.
func gauges(t *testing.T, page string) map[string][]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string][]float64{}
	for name, f := range families {
		if f.GetType() != dto.MetricType_GAUGE {
			continue
		}
		for _, m := range f.Metric {
			values[name] = append(values[name], m.Gauge.GetValue())
			for _, l := range m.Label {
				key := name + " " + l.GetName() + "=" + l.GetValue()
				values[key] = append(values[key], m.Gauge.GetValue())
			}
		}
	}
	return values
}
