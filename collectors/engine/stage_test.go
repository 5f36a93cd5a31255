package engine

import (
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// TestStages requires the means of stages from plain counters: of the gaps between tokens as the engine observes
// them, of the means of requests on engines that observe only those, or of sums on engines without histograms.
func TestStages(t *testing.T) {
	for _, c := range []struct {
		page, selector string
		values         []float64
	}{
		{"lmdeploy/v0.14.0.prom", `llm_engine_stage_seconds_total{stage="next_token"}`, []float64{2892.121886204, 3113.865416241}}, // has both
		{"lmdeploy/v0.14.0.prom", `llm_engine_stages_total{stage="next_token"}`, []float64{105895, 108836}},
		{"lmdeploy/v0.14.0.prom", `llm_engine_stage_seconds_total{stage="queue",dp_rank="1"}`, []float64{110.1464483688}},
		{"lmdeploy/v0.14.0.prom", `llm_engine_stage_tokens_total{stage="output",dp_rank="1"}`, []float64{138744.3589380703}},
		{"lmdeploy/v0.14.0.prom", `llm_engine_stages_total{stage="output",dp_rank="1"}`, []float64{632}},
		{"lmdeploy/v0.14.0.prom", `llm_engine_stage_tokens_total{stage="prompt",dp_rank="0"}`, []float64{470290.8617124592}},
		{"trtllm/v1.3.0-full.prom", `llm_engine_stage_seconds_total{stage="next_token"}`, []float64{8.40014309965}}, // has the means of requests
		{"trtllm/v1.3.0-full.prom", `llm_engine_stages_total{stage="next_token"}`, []float64{364}},
		{"trtllm/v1.3.0-full.prom", `llm_engine_stage_seconds_total{stage="decode"}`, []float64{2536.217901855393}},
		{"trtllm/v1.3.0-full.prom", `llm_engine_stages_total{stage="prefill"}`, []float64{377}},
		{"trtllm/v1.3.0-full.prom", `llm_engine_stages_total{stage="output"}`, nil},
		{"litellm/main-loaded.prom", `llm_engine_stage_seconds_total{stage="next_token"}`, nil}, // has none
		{"litellm/main-loaded.prom", `llm_engine_stages_total{stage="next_token"}`, nil},
		{
			"litellm/main-loaded.prom", `llm_engine_stage_seconds_total{stage="first_token",role="gateway",model_name="gpt-oss-120b"}`,
			[]float64{2408.31875},
		},
		{"litellm/main-loaded.prom", `llm_engine_stages_total{stage="request",role="gateway",model_name="gpt-oss-120b"}`, []float64{5013}},
		{"llamacpp/b5500.prom", `llm_engine_stage_seconds_total{stage="next_token"}`, []float64{1903.44}}, // has no histogram
		{"llamacpp/b5500.prom", `llm_engine_stages_total{stage="next_token"}`, []float64{45122}},
		{"ray_serve/2.50-loaded.prom", `llm_engine_stage_seconds_total`, nil}, // has an unreliable sum
	} {
		page(t, c.page).want(t, c.selector, c.values...)
	}
}

// TestStagesOfDroppedHistograms requires these counters even if the configuration leaves out a histogram: they cost
// two series.
func TestStagesOfDroppedHistograms(t *testing.T) {
	engine := serve(t, readPage(t, "lmdeploy/v0.14.0.prom"))
	page := parse(t, exposition(t, collectorWith(t, Config{
		Targets:    []TargetConfig{{URL: engine.URL}},
		Histograms: map[string]slo.Shape{metrics.TimeToFirstToken.Name: {Keep: slo.Drop}},
	})))
	page.want(t, `llm_engine_time_to_first_token_seconds_count`)
	page.want(t, `llm_engine_stages_total{stage="first_token",dp_rank="0"}`, 628)
}
