package engine

import (
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// builtin lists the known dialects. If a metrics page speaks several dialects, the first one names the engine in
// the series about the metrics page itself. Of several gateways, which come last, only the first one is read.
var builtin = []*Dialect{
	&vllm,
	&tei, // before tgi: both have /info, and tei recognises its own
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

// Cost describes the engine's cost of a flag that the reason of an absent metric names; empty if this is not known.
func Cost(runtime metrics.Runtime, reason string) string {
	for _, d := range builtin {
		if d.Runtime == runtime && d.Costs[reason] != "" {
			return d.Costs[reason]
		}
	}
	return ""
}
