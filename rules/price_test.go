package rules_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestCostsAreOpenCosts compares the records with OpenCost's worked example (docs/inference-cost-tracking.md) and
// with the bill: $3.20 an hour for the GPUs of a model with 12,000,000 prompt tokens, 3,000,000 generated tokens
// (2,000,000 in time), and as many seconds of prefill as of decode. Beside it, two models of an engine that
// observes no phases share a GPU of another product, and two GPUs are idle. Each GPU draws 300 W.
func TestCostsAreOpenCosts(t *testing.T) {
	t.Parallel()
	sim := newSim(t, group(t, rules.Options{}, "llm-model"), group(t, rules.Options{}, "llm-cost"), group(t, rules.Options{}, "llm-capacity"))
	const minutes = 20
	at := func(total float64, since time.Duration) float64 { return total * since.Hours() }
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(minutes*time.Minute), time.Minute, func(now time.Time, emit rulesim.Emit) {
		since := now.Sub(rulesim.Epoch)
		emit(series(metrics.GPUHourPrice.Name, metrics.LabelGPUName, "NVIDIA H100"), 1.60)
		emit(series(metrics.GPUHourPrice.Name, metrics.LabelGPUName, "*"), 0.80)
		for i, product := range []string{"NVIDIA H100", "NVIDIA H100", "NVIDIA L40S", "NVIDIA H100", "NVIDIA L40S"} {
			gpu := []string{metrics.LabelGPUUUID, fmt.Sprint("GPU-", i)}
			emit(series(metrics.GPUInfo.Name, append(gpu, metrics.LabelGPUName, product)...), 1)
			emit(series(metrics.GPUUtilization.Name, gpu...), 0.25)
			emit(series(metrics.GPUEnergy.Name, gpu...), 300*since.Seconds())
		}
		for _, e := range []struct {
			model           string
			gpus            []int
			prompts, tokens float64
		}{{"qwen", []int{0, 1}, 12e6, 3e6}, {"bge", []int{2}, 1e6, 1e6}, {"gte", []int{2}, 4e6, 0}} {
			page := []string{metrics.LabelModel, e.model, metrics.LabelPod, e.model + "-0", metrics.LabelServer, e.model + ":8000"}
			for _, g := range e.gpus {
				emit(series(metrics.EngineGPUInfo.Name, append(page, metrics.LabelGPUUUID, fmt.Sprint("GPU-", g))...), 1)
			}
			emit(series(metrics.PromptTokens.Name, page...), at(e.prompts, since))
			emit(series(metrics.GenerationTokens.Name, page...), at(e.tokens, since))
			if e.model == "qwen" {
				emit(series(metrics.RecordedGoodTokens.Name, metrics.LabelModel, e.model, metrics.LabelNamespace, ""), 2e6/3600)
				emit(series(metrics.PrefixCacheHitTokens.Name, page...), at(800_000, since))
				for _, stage := range []string{"prefill", "decode"} {
					emit(series(metrics.StageTime.Name, append(page, metrics.LabelStage, stage)...), at(600, since))
				}
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]float64{
		`llm_total_hourly_cost{model_name="qwen",cost_basis="allocation"}`:                                                           3.20,
		`llm_total_hourly_cost{model_name="qwen",cost_basis="usage"}`:                                                                0.80,
		`llm_total_hourly_cost{model_name="bge",cost_basis="allocation"}`:                                                            0.40,
		`llm_total_hourly_cost{model_name="__idle__",cost_basis="allocation"}`:                                                       2.40,
		`sum(llm_total_hourly_cost{cost_basis="allocation"})`:                                                                        3*1.60 + 2*0.80,
		`llm_cost_per_million_tokens{model_name="qwen",cost_basis="allocation",phase=""}`:                                            3.20 / 15,
		`llm_cost_per_million_tokens{model_name="qwen",cost_basis="allocation",phase="prompt",allocation_method="compute_time"}`:     1.60 / 12,
		`llm_cost_per_million_tokens{model_name="qwen",cost_basis="allocation",phase="generation",allocation_method="compute_time"}`: 1.60 / 3,
		`llm_cost_per_million_tokens{model_name="qwen",cost_basis="usage",phase="generation"}`:                                       0.40 / 3,
		`llm_cost_per_million_tokens{model_name="bge",cost_basis="allocation",phase="prompt",allocation_method="multiplier"}`:        0.40 / 3.5,
		`llm_cost_per_million_tokens{model_name="bge",cost_basis="allocation",phase="generation",allocation_method="multiplier"}`:    1.00 / 3.5,
		`count(llm_cost_per_million_tokens{model_name="bge",allocation_method="compute_time"}) or vector(0)`:                         0,
		`llm_cost_per_million_tokens{model_name="gte",cost_basis="allocation",phase=""}`:                                             0.40 / 4,
		`model:llm_hourly_cost:late{model_name="qwen"}`:                                                                              3.20 / 3,
		metrics.RecordedEnergyPerToken.Name + `{model_name="qwen"}`:                                                                  600 * 3600 / 3e6,
		metrics.RecordedEnergyPerToken.Name + `{model_name="bge"}`:                                                                   150 * 3600 / 1e6,
		`llm_cache_savings_fraction{model_name="qwen"}`:                                                                              0.8 / 12,
	} {
		v, err := sim.Query(query, rulesim.Epoch.Add((minutes-1)*time.Minute))
		if err != nil || len(v) != 1 || math.Abs(v[0].F-want) > 0.01*want {
			t.Errorf("%s is %v (%v), want %.4f", query, v, err, want)
		}
	}
}
