package metrics

// Runtime is a value of the runtime label: the kind of engine behind a page.
type Runtime string

// The engines this project knows.
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
)

// What keeps or moves KV cache for engines, on a page of its own.
const (
	LMCache  Runtime = "lmcache"
	Mooncake Runtime = "mooncake"
	NIXL     Runtime = "nixl"
	KVBM     Runtime = "kvbm" // Dynamo's block manager
)

// Outcome is a value of the outcome label: how a request ended.
type Outcome string

// The outcomes. Engines name them differently and none names all of them.
const (
	OutcomeStop       Outcome = "stop"       // the model finished by itself
	OutcomeLength     Outcome = "length"     // cut at the token limit
	OutcomeRepetition Outcome = "repetition" // cut by repetition detection
	OutcomeSuccess    Outcome = "success"    // finished; the engine does not say how
	OutcomeAbort      Outcome = "abort"      // cancelled, usually because the client went away
	OutcomeInvalid    Outcome = "invalid"    // refused because the request itself was wrong
	OutcomeRejected   Outcome = "rejected"   // refused at admission: overload or rate limit
	OutcomeError      Outcome = "error"      // failed inside the server
	OutcomeOther      Outcome = "other"      // a reason this exporter does not know
)

// Tier is a value of the tier label: a place below the GPU's memory where KV cache is kept. Engines
// number their tiers differently, and some change the numbers with their configuration.
type Tier string

// The tiers.
const (
	TierHost    Tier = "host"    // memory of the node
	TierDisk    Tier = "disk"    // local disk
	TierRemote  Tier = "remote"  // another machine, or a pool of them
	TierStorage Tier = "storage" // below the node's memory; the engine does not say whether on disk or remote
)

// Operation is a value of the operation label: which way KV cache goes, seen from the GPU.
type Operation string

// The operations.
const (
	Store Operation = "store" // down, to a tier
	Fetch Operation = "fetch" // up, from a tier
)

// Counted is a value of the counted label: when an engine counts a token that it generated.
type Counted string

// When tokens are counted.
const (
	CountedStep Counted = "step" // as it is made: a counter that stands still is an engine that makes none
	CountedEnd  Counted = "end"  // with its request: the counter stands still for as long as the longest answer takes
)

// Quality is a value of the quality label: how a normalised number relates to its source.
type Quality string

// The qualities.
const (
	Native      Quality = "native"      // the engine's own number, only renamed or rescaled
	Derived     Quality = "derived"     // exact arithmetic over the engine's own numbers
	Approximate Quality = "approximate" // close to the definition, but not the same population or event
	Missing     Quality = "missing"     // the engine does not say; nothing is exported
)
