package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestAdaptersOfVLLM checks how many adapters run, how many are needed although they do not fit, and how many fit.
// Several API servers add up the times that show which combination of adapters is the newest; the metrics page was
// taken while two servers ran. On the page of v0.32.0-adapters, four adapters take turns in one slot, and two requests
// wait for it.
func TestAdaptersOfVLLM(t *testing.T) {
	for name, want := range map[string]struct{ running, contended, slots []float64 }{
		"vllm/simulator-style.prom":   {[]float64{2}, []float64{3}, []float64{2}},
		"vllm/v0.28.0-dp8-lora.prom":  {[]float64{3}, []float64{0, 0, 0, 0, 0, 0, 0, 0}, []float64{4}},
		"vllm/v0.32.0-adapters.prom":  {[]float64{1}, []float64{4}, []float64{1}},
		"vllm/v0.32.0-dp2-lora.prom":  {nil, nil, []float64{1}},
		"vllm/v0.32.0-cancelled.prom": {nil, nil, nil},
	} {
		s := page(t, name)
		s.want(t, `llm_engine_loras_running`, want.running...)
		s.want(t, `llm_engine_loras_contended`, want.contended...)
		s.want(t, `llm_engine_lora_slots`, want.slots...)
	}
	page(t, "vllm/v0.32.0-dp2-lora.prom").
		want(t, `llm_engine_metric_source_info{metric="llm_engine_loras_running",quality="missing",reason=~"several API servers.*"}`, 1)
}

// TestAdaptersByName checks that each adapter has the time at which a request for it last ran or waited.
func TestAdaptersByName(t *testing.T) {
	s := page(t, "vllm/v0.28.0-dp8-lora.prom")
	for name, last := range map[string]float64{"lora-es": 1.7819999995e9, "lora-de": 1.7819999995e9, "lora-fr": 1.7819999995e9} {
		s.want(t, `llm_engine_lora_request_timestamp_seconds{lora="`+name+`"}`, last)
	}
	page(t, "vllm/v0.32.0-adapters.prom").want(t, `llm_engine_lora_request_timestamp_seconds{lora="adapter-1"}`, 1.7959185007950914e9)
}

// TestManyAdapters checks that adapters beyond the first 20 have no series of their own.
func TestManyAdapters(t *testing.T) {
	var page strings.Builder
	page.WriteString("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 1\n" +
		"# TYPE vllm:lora_requests_info gauge\n")
	for i := range 100 {
		fmt.Fprintf(&page, "vllm:lora_requests_info{max_lora=\"1\",running_lora_adapters=\"a%d\",waiting_lora_adapters=\"a%d\"} %d\n", i, i, 1e9+i)
	}
	s := parse(t, mapped(t, page.String()))
	s.want(t, `llm_engine_lora_request_timestamp_seconds{lora="other"}`, 1e9+99)
	s.want(t, `llm_engine_loras_contended`) // whether requests wait is unknown
	waits := strings.Replace(page.String(), "# TYPE vllm:lora", "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine=\"0\","+
		"model_name=\"m\"} 3\n# TYPE vllm:lora", 1)
	parse(t, mapped(t, waits)).want(t, `llm_engine_loras_contended`, 60)
	if n := len(s.get(t, `llm_engine_lora_request_timestamp_seconds`)); n != 21 {
		t.Errorf("%d series, want 21", n)
	}
}

// TestEstimatesOfVLLM checks vLLM without its flag: it shows its estimates and leaves them at 0.
func TestEstimatesOfVLLM(t *testing.T) {
	s := page(t, "vllm/v0.32.0-cancelled.prom") // 182 requests have finished
	for _, f := range []*metrics.Family{metrics.EstimatedFlops, metrics.EstimatedMemoryBytes} {
		s.want(t, f.Name)
		s.want(t, `llm_engine_metric_source_info{metric="`+f.Name+`",quality="missing",reason=~"needs --enable-mfu-metrics.*"}`, 1)
	}
	s = parse(t, mapped(t, "# TYPE vllm:estimated_flops_per_gpu_total "+
		"counter\nvllm:estimated_flops_per_gpu_total{engine=\"0\",model_name=\"m\"} 7\n"+
		"# TYPE vllm:estimated_read_bytes_per_gpu_total counter\nvllm:estimated_read_bytes_per_gpu_total{engine=\"0\",model_name=\"m\"} 5\n"+
		"# TYPE vllm:estimated_write_bytes_per_gpu_total counter\nvllm:estimated_write_bytes_per_gpu_total{engine=\"0\",model_name=\"m\"} 3\n"))
	s.want(t, metrics.EstimatedFlops.Name, 7)
	s.want(t, metrics.EstimatedMemoryBytes.Name, 8)
}

// TestWhenVLLMCounts compares the declared times of counting with a metrics page: 351 requests were in flight, of
// which eight had their first token.
func TestWhenVLLMCounts(t *testing.T) {
	s := page(t, "vllm/v0.32.0-overload.prom")
	for counted, families := range map[metrics.Counted][]*metrics.Family{
		metrics.CountedFirst: {metrics.TimeToFirstToken, metrics.PromptTokens},
		metrics.CountedStep:  {metrics.InterTokenLatency, metrics.GenerationTokens},
		metrics.CountedEnd: {
			metrics.QueueTime, metrics.PrefillTime, metrics.DecodeTime, metrics.RequestDuration, metrics.RequestPromptTokens,
			metrics.RequestGenerationTokens, metrics.TimePerOutputToken,
		},
	} {
		for _, f := range families {
			s.want(t, `llm_engine_metric_source_info{metric="`+f.Name+`",counted="`+string(counted)+`"}`, 1)
			if f.Kind == metrics.Histogram && counted != metrics.CountedStep {
				s.want(t, f.Name+"_count", map[metrics.Counted]float64{metrics.CountedFirst: 2740, metrics.CountedEnd: 2732}[counted])
			}
		}
	}
}
