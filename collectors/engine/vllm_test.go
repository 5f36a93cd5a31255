package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestAdaptersOfVLLM checks several API servers. They add up the times that show which combination of adapters runs
// now; the metrics page was taken while two servers ran.
func TestAdaptersOfVLLM(t *testing.T) {
	for name, want := range map[string]struct{ running, waiting, slots []float64 }{
		"vllm/simulator-style.prom":   {[]float64{2}, []float64{1}, []float64{2}},
		"vllm/v0.32.0-dp2-lora.prom":  {nil, nil, []float64{1}},
		"vllm/v0.32.0-cancelled.prom": {nil, nil, nil},
	} {
		s := page(t, name)
		s.want(t, `llm_engine_loras_running`, want.running...)
		s.want(t, `llm_engine_loras_waiting`, want.waiting...)
		s.want(t, `llm_engine_lora_slots`, want.slots...)
	}
	page(t, "vllm/v0.32.0-dp2-lora.prom").
		want(t, `llm_engine_metric_source_info{metric="llm_engine_loras_running",quality="missing",reason=~"several API servers.*"}`, 1)
}

// TestAdapterThatRunsAndIsAwaited checks a moment of a real engine in which other requests wait for the adapter that runs:
// one adapter is asked for.
func TestAdapterThatRunsAndIsAwaited(t *testing.T) {
	p := play(t, "vllm/v0.32.0-dp2-lora.prom")
	for _, other := range []string{"", "ad2"} {
		p.set(`vllm:lora_requests_info{max_lora="1",running_lora_adapters="`+other+`"`, 0)
	}
	p.pass(tick, tick, nil)
	p.last.want(t, "llm_engine_loras_running", 1)
	p.last.want(t, "llm_engine_loras_waiting", 0)
}

// TestAdaptersByName checks that each adapter that waited has the time at which it did so last, and no adapter that ran.
func TestAdaptersByName(t *testing.T) {
	s := page(t, "vllm/simulator-style.prom")
	s.want(t, `llm_engine_lora_waiting_timestamp_seconds{lora="sim-lora-c"}`, 1.782000365e9)
	s.want(t, `llm_engine_lora_waiting_timestamp_seconds{lora!="sim-lora-c"}`)
	s = page(t, "vllm/v0.28.0-dp8-lora.prom")
	s.want(t, `llm_engine_lora_waiting_timestamp_seconds{lora="lora-es"}`, 1.7819999575e9)
	s.want(t, `llm_engine_lora_waiting_timestamp_seconds{lora="lora-fr"}`, 1.7819999575e9)
	s.want(t, `llm_engine_lora_waiting_timestamp_seconds{lora="lora-de"}`)
}

// TestManyAdaptersWait checks that adapters beyond the first 20 have no series of their own.
func TestManyAdaptersWait(t *testing.T) {
	var page strings.Builder
	page.WriteString("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 1\n" +
		"# TYPE vllm:lora_requests_info gauge\n")
	for i := range 100 {
		fmt.Fprintf(&page, "vllm:lora_requests_info{max_lora=\"1\",running_lora_adapters=\"\",waiting_lora_adapters=\"a%d,b%d\"} %d\n", i, i, 1e9+i)
	}
	s := parse(t, mapped(t, page.String()))
	s.want(t, `llm_engine_lora_waiting_timestamp_seconds{lora="other"}`, 1e9+99)
	if n := len(s.get(t, `llm_engine_lora_waiting_timestamp_seconds`)); n != 21 {
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
