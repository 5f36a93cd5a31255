package metrics

// Runtime names the kind of engine behind a metrics page, as in the runtime label.
type Runtime string

// The engines that this project supports.
const (
	VLLM         Runtime = "vllm"
	TGI          Runtime = "tgi"
	TensorRTLLM  Runtime = "trtllm"        // trtllm-serve
	TritonTRTLLM Runtime = "triton_trtllm" // Triton with the TensorRT-LLM backend
	TritonVLLM   Runtime = "triton_vllm"   // Triton with the vLLM backend
	Triton       Runtime = "triton"        // Triton with another backend
	SGLang       Runtime = "sglang"
	LlamaCpp     Runtime = "llamacpp"
	Dynamo       Runtime = "dynamo"
	NIM          Runtime = "nim"
	LMDeploy     Runtime = "lmdeploy"
	LightLLM     Runtime = "lightllm"
	TEI          Runtime = "tei" // text-embeddings-inference
	Xinference   Runtime = "xinference"
	Ollama       Runtime = "ollama"
	MAX          Runtime = "modular_max"
)

// These services keep or move KV cache for engines. They have their own metrics pages.
const (
	LMCache  Runtime = "lmcache"
	Mooncake Runtime = "mooncake"
	NIXL     Runtime = "nixl"
	KVBM     Runtime = "kvbm" // Dynamo's block manager
)

// These are gateways, routers and proxies in front of engines.
const (
	EPP             Runtime = "epp" // endpoint picker of the Gateway API Inference Extension
	LLMDRouter      Runtime = "llmd_router"
	LiteLLM         Runtime = "litellm"
	EnvoyAI         Runtime = "envoy_ai"         // Envoy AI Gateway
	ProductionStack Runtime = "production_stack" // router of vLLM's production stack
	SMG             Runtime = "smg"              // SGLang's model gateway
	SGLangRouter    Runtime = "sglang_router"    // predecessor of SGLang's model gateway
	VLLMRouter      Runtime = "vllm_router"      // the vLLM project's fork of that predecessor
	RayServe        Runtime = "ray_serve"
	Knative         Runtime = "knative" // queue-proxy, as under KServe
	Istio           Runtime = "istio"
	Envoy           Runtime = "envoy"
)

// GatewayRole is the role of the series of gateways. Rules and dashboards leave these series out of sums over engines,
// because a gateway counts the same requests again.
const GatewayRole = "gateway"

// FrontendRole is the role of a server that distributes requests to workers of the same engine. It also counts requests
// again, but it represents workers that the exporter does not read.
const FrontendRole = "frontend"

// PrefillRole is the role of an engine that computes prompts for decode engines. It answers a router, not users.
const PrefillRole = "prefill"

// KVCacheRole is the role of a service that keeps or moves KV cache for engines and serves no requests itself.
const KVCacheRole = "kv_cache"

// Outcome is how a request ended, in the outcome label.
type Outcome string

// The outcomes. Engines name outcomes differently, and no engine names every outcome.
const (
	OutcomeStop       Outcome = "stop"       // the model ended the answer itself
	OutcomeLength     Outcome = "length"     // cut at the token limit
	OutcomeRepetition Outcome = "repetition" // cut by repetition detection
	OutcomeSuccess    Outcome = "success"    // finished, but the engine does not report how
	OutcomeAbort      Outcome = "abort"      // cancelled, usually because the client left
	OutcomeInvalid    Outcome = "invalid"    // refused because the request itself was wrong
	OutcomeRejected   Outcome = "rejected"   // refused at admission because of overload or a rate limit
	OutcomeError      Outcome = "error"      // failed inside the server
	OutcomeUnknown    Outcome = "unknown"    // the server reports no outcome, or one that this exporter does not recognise
)

// Tier is a place below the GPU's memory where KV cache is kept, in the tier label. Engines number their tiers
// differently, and some change the numbers with their configuration.
type Tier string

// The tiers.
const (
	TierHost    Tier = "host"    // memory of the node
	TierDisk    Tier = "disk"    // local disk
	TierRemote  Tier = "remote"  // another machine, or a pool of machines
	TierStorage Tier = "storage" // below the node's memory; it is unknown whether this is a disk or remote
)

// Operation is the direction in which KV cache moves, seen from the GPU. It is in the operation label.
type Operation string

// The operations.
const (
	Store Operation = "store" // from the GPU down to a tier
	Fetch Operation = "fetch" // from a tier up to the GPU
)

// Counted describes when an engine counts a request, as in the counted label.
type Counted string

// These are the times at which engines count. When a request's client has left, no more tokens of the request are counted.
const (
	CountedStep  Counted = "step"        // when the token is generated; while the counter stands still, the engine generates no tokens
	CountedFirst Counted = "first_token" // when the first token of the request comes
	CountedEnd   Counted = "end"         // when the request ends; the counter may stand still for as long as the longest answer takes
)

// Quality describes how a normalised number relates to its source, as in the quality label.
type Quality string

// The qualities.
const (
	Native      Quality = "native"      // the engine's own number, only renamed or rescaled
	Derived     Quality = "derived"     // exact arithmetic on the engine's own numbers
	Approximate Quality = "approximate" // close to the definition, but not the same population or event
	Missing     Quality = "missing"     // not reported by the engine; nothing is exported
)
