package engine

import (
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// builtin lists the known dialects. If several dialects match a metrics page, the first names the engine in the series
// about the metrics page itself. Gateways come last. If several gateways match, only the first is read.
var builtin = []*Dialect{
	&vllm,
	&tei, // before tgi, because both have /info, and tei recognises its own answer
	&tgi,
	&trtllm,
	&tritonTRTLLM,
	&tritonVLLM,
	&triton,
	&sglang,
	&llamacpp,
	&lmdeploy,
	&nim,
	&lightllm,
	&modularMAX,
	&xinference,
	&ollama,
	&dynamoFrontend,
	&dynamoWorker,
	&lmcache,
	&lmcacheServer,
	&kvbm,
	&mooncake,
	&nixl,

	&productionStackRouter,
	&smg,
	&sglangRouter,
	&vllmRouter,
	&llmdRouter,
	&epp,
	&litellm,
	&envoyAIGateway,
	&rayServe,
	&knative,
	&istio,
	&envoy,
}

// Known returns the dialects that need no configuration. Callers must not change the dialects.
func Known() []*Dialect { return slices.Clone(builtin) }

// Cost describes what a flag costs the engine, if the reason for an absent metric names this flag. It is empty if the
// cost is unknown.
func Cost(runtime metrics.Runtime, reason string) string {
	for _, d := range builtin {
		if d.Runtime == runtime && d.Costs[reason] != "" {
			return d.Costs[reason]
		}
	}
	return ""
}
