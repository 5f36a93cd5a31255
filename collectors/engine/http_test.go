package engine

import (
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// TestFailedAnswersCount checks an engine whose HTTP server fails requests that the engine never counts.
func TestFailedAnswersCount(t *testing.T) {
	objectives := []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")}
	failed := strings.NewReplacer(`status="5xx"} 17.0`, `status="5xx"} 5000`).Replace(readPage(t, "vllm/v0.28.0-dp8-lora.prom"))
	before, after := interval(t, objectives, readPage(t, "vllm/v0.28.0-dp8-lora.prom"), failed)
	for _, family := range []string{"llm_engine_requests_total", "llm_slo_events_total", "llm_slo_bad_events_total"} {
		if got := difference(before, after, family); len(got) != 1 || got[0].by != 5000-17 {
			t.Errorf("%s: %v, want one series to rise by 4983", family, got)
		}
	}
	for _, c := range []struct {
		series, outcome string // none: not counted
		bad             float64
	}{
		{`http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 7`, "", 0}, // the engine has counted this request
		{`http_requests_total{handler="/v1/chat/completions",method="POST",status="4xx"} 7`, "invalid", 0},
		{`http_requests_total{handler="/v1/chat/completions",method="POST",status="429"} 7`, "rejected", 7}, // codes not grouped
		{`http_requests_total{handler="/v1/chat/completions",method="POST",status="5xx"} 7`, "error", 7},
		{`http_requests_total{status="5xx"} 7`, "error", 7},
		{`http_requests_total{handler="/v1/models",method="GET",status="5xx"} 7`, "", 0},
		{`http_requests_total{handler="/v1/load_lora_adapter",method="POST",status="5xx"} 7`, "", 0},
		{`sglang:http_responses_total{endpoint="/generate",method="POST",status_code="200"} 7`, "", 0},
		{`sglang:http_responses_total{endpoint="/generate",method="POST",status_code="400"} 7`, "invalid", 0},
		{`sglang:http_responses_total{endpoint="/generate",method="POST",status_code="429"} 7`, "rejected", 7},
		{`sglang:http_responses_total{endpoint="/generate",method="POST",status_code="500"} 7`, "error", 7},
		{`sglang:http_responses_total{endpoint="/flush_cache",method="POST",status_code="500"} 7`, "", 0},
	} {
		engine, finished := "vllm", `vllm:request_success_total{model_name="m",engine="0",finished_reason="stop"} 90`
		if strings.HasPrefix(c.series, "sglang") {
			engine, finished = "sglang", `sglang:num_requests_total{model_name="m"} 90`
		}
		name, _, _ := strings.Cut(c.series, "{")
		s := requestsOf(t, objectives, "# TYPE "+strings.SplitN(finished, "{", 2)[0]+" counter\n"+finished+"\n# TYPE "+name+" counter\n"+
			c.series+"\n")
		if c.outcome != "" {
			s.want(t, `llm_engine_requests_total{outcome="`+c.outcome+`"}`, 7)
		}
		s.want(t, `llm_engine_requests_total{outcome!="`+c.outcome+`",outcome!~"error|rejected"}`, 90)
		for _, failed := range []string{"error", "rejected"} { // from zero, because the increase of a series lacks its first value
			if c.outcome != failed {
				s.want(t, `llm_engine_requests_total{outcome="`+failed+`"}`, 0)
			}
		}
		s.want(t, `llm_slo_bad_events_total{runtime="`+engine+`"}`, c.bad)
		s.want(t, `llm_slo_counted`, 1)
	}
}
