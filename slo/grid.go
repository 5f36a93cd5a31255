package slo

import "github.com/llm-node-exporter/llm-node-exporter/metrics"

// These bucket grids are common to several engines. They come from the engines' sources.
var (
	gridTTFT = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	gridITL  = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	gridE2E  = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}

	gridSGLangTTFT = []float64{.1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400}
	gridSGLangITL  = []float64{.002, .004, .006, .008, .01, .015, .02, .025, .03, .035, .04, .06, .08, .1, .2, .4, .6, .8, 1, 2, 4, 6, 8}
	gridTGI        = geometric(0.00015, 1.5, 35)

	gridVLLM = map[Signal][]float64{TTFT: gridTTFT, ITL: gridITL, TPOT: gridITL, RequestDuration: gridE2E, QueueTime: gridE2E}
)

// Probes stands for the exporter's own probes among the runtimes of Grids.
const Probes metrics.Runtime = "probe"

// Grids returns the default bucket bounds of engines with latency histograms, for advice when a configuration is
// checked. Events are always counted at the bounds in the engine's metrics, because some engines let users set them.
func Grids() map[metrics.Runtime]map[Signal][]float64 {
	return map[metrics.Runtime]map[Signal][]float64{
		metrics.VLLM:        gridVLLM,
		metrics.TensorRTLLM: gridVLLM,
		metrics.SGLang:      {TTFT: gridSGLangTTFT, ITL: gridSGLangITL},
		metrics.TGI:         {TPOT: gridTGI, RequestDuration: gridTGI, QueueTime: gridTGI},
		Probes:              {ProbeTTFT: gridTTFT, ProbeITL: gridITL},
	}
}

func geometric(first, factor float64, n int) []float64 {
	bounds := make([]float64, n)
	for i := range bounds {
		bounds[i] = first
		first *= factor
	}
	return bounds
}
