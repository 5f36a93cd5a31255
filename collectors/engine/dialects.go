package engine

import "slices"

// builtin lists the known dialects. If a page speaks several, the first one names the engine in the series about the
// page itself. Of several gateways, which come last, only the first one is read.
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

// Known returns the dialects that need no configuration. Callers must not change them.
func Known() []*Dialect { return slices.Clone(builtin) }
