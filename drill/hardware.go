package drill

// Hardware describes the limits of serving on a GPU. Peak values come from the vendor. The constants bandwidthShare and
// computeShare are the shares of these peaks that an engine reaches in practice. They are the same for all GPUs.
type Hardware struct {
	Name      string
	Bandwidth float64 // of device memory, bytes per second
	FLOPS     float64 // dense, in the precision of the weights
	Memory    float64 // bytes
}

// These are the GPUs of the drill.
var (
	// H100 is the SXM5 board with BF16 weights (NVIDIA H100 datasheet: 3.35 TB/s, 80 GB, 989 TFLOPS
	// dense).
	H100 = Hardware{Name: "NVIDIA H100 80GB HBM3", Bandwidth: 3.35e12, FLOPS: 989e12, Memory: 80e9}
	// L40S is the PCIe board with FP8 weights (NVIDIA L40S datasheet: 864 GB/s, 48 GB, 733 TFLOPS
	// dense).
	L40S = Hardware{Name: "NVIDIA L40S", Bandwidth: 864e9, FLOPS: 733e12, Memory: 48e9}
)

// Weights describe the parts of a model that determine its cost on a GPU.
type Weights struct {
	Parameters    float64
	Bytes         float64 // per parameter
	KVBytesPerTok float64 // 2 × layers × KV heads × head size × 2 bytes
	Attention     float64 // FLOP per pair of attending tokens: 4 × layers × heads × head size
}

// These are the weights of Llama-3.1-8B (config.json: 32 layers, 32 heads and 8 KV heads of 128), with 128 KiB of KV
// cache per token.
var (
	Llama8B    = Weights{Parameters: 8.03e9, Bytes: 2, KVBytesPerTok: 2 * 32 * 8 * 128 * 2, Attention: 4 * 32 * 32 * 128}
	Llama8BFP8 = Weights{Parameters: 8.03e9, Bytes: 1, KVBytesPerTok: 2 * 32 * 8 * 128 * 2, Attention: 4 * 32 * 32 * 128}
)

const (
	// bandwidthShare is the share of the peak bandwidth that decoding reaches. It is an assumption. Reported values of
	// model bandwidth utilisation lie between 50% and 80%.
	bandwidthShare = 0.75
	// computeShare is the share of the peak that prefill reaches. It is an assumption, typical of large matrix products.
	computeShare = 0.5
	// memoryShare is vLLM's --gpu-memory-utilization default.
	memoryShare = 0.9
	// workspace is the memory of activations and CUDA graphs. It is an assumption for models of this size.
	workspace = 3e9
	// overhead is the CPU's part of a step (scheduling, sampling, detokenising). It is an assumption.
	overhead = 0.0015
	// blockTokens is the number of tokens in a KV block. It is vLLM's default.
	blockTokens = 16
	// draftShare is the cost of one draft token as a share of a plain step. An EAGLE head is one layer in addition to the
	// model's 32 layers and the embedding.
	draftShare = 0.04
)

// KVBlocks returns the number of KV blocks that fit in the GPU's memory beside the weights.
func (s Serving) KVBlocks() int {
	if s.Blocks > 0 {
		return s.Blocks
	}
	room := s.GPU.Memory*memoryShare - s.Weights.Parameters*s.Weights.Bytes - workspace
	return int(room / (s.kvBytesPerToken() * blockTokens))
}

func (s Serving) kvBytesPerToken() float64 {
	if s.KVCacheDtype == "fp8" {
		return s.Weights.KVBytesPerTok / 2
	}
	return s.Weights.KVBytesPerTok
}

// stepSeconds returns the seconds of one step. Each step reads the weights once, whatever the size of the batch. If the
// matrix products of the tokens take longer, their time counts instead. In addition, the step reads the KV cache of
// each sequence. attended is the number of pairs of a token and an earlier token that it attends to.
//
// clock is the GPU's SM clock as a share of its maximum. The speed of computation is proportional to it. The bandwidth
// is proportional to it only below half of the maximum clock. Above that, enough memory accesses are in flight to keep
// the memory busy, and the memory's clock is not lowered.
func (s Serving) stepSeconds(tokens, context int, attended, drafted, clock float64) float64 {
	bandwidth := s.GPU.Bandwidth * bandwidthShare * min(1, 2*clock)
	read := s.Weights.Parameters * s.Weights.Bytes / bandwidth
	compute := (float64(tokens)*2*s.Weights.Parameters + attended*s.Weights.Attention) / (s.GPU.FLOPS * computeShare * clock)
	return overhead + max(read, compute) + float64(context)*s.kvBytesPerToken()/bandwidth + drafted*draftShare*read
}
