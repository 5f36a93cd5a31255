package metrics

import "slices"

// Setting is a setting of an engine, in the setting label. Engines spell settings differently.
type Setting string

// The settings.
const (
	SettingModel             Setting = "model"    // weights: a path, or a name in a hub
	SettingRevision          Setting = "revision" // revision of the weights: a commit, or the digest of a file
	SettingVersion           Setting = "version"  // release of the engine
	SettingImage             Setting = "image"    // image of the container
	SettingGPU               Setting = "gpu"      // kind of GPU, as the engine names it
	SettingDtype             Setting = "dtype"    // data type of weights and activations
	SettingQuantization      Setting = "quantization"
	SettingMaxModelLen       Setting = "max_model_len"     // maximum tokens of a sequence
	SettingMaxBatchTokens    Setting = "max_batch_tokens"  // maximum tokens of a step
	SettingMaxSequences      Setting = "max_sequences"     // requests in the running batch
	SettingMaxQueue          Setting = "max_queue"         // largest number of requests in the queue or, for TGI, in the server
	SettingTensorParallel    Setting = "tensor_parallel"   // GPUs that share each layer
	SettingPipelineParallel  Setting = "pipeline_parallel" // groups of GPUs, each with some layers
	SettingDataParallel      Setting = "data_parallel"     // copies of the model
	SettingExpertParallel    Setting = "expert_parallel"
	SettingKVCacheDtype      Setting = "kv_cache_dtype"
	SettingKVCacheTokens     Setting = "kv_cache_tokens" // capacity that the engine measured at its start
	SettingKVBlockSize       Setting = "kv_block_size"   // tokens of a block
	SettingGPUMemoryFraction Setting = "gpu_memory_fraction"
	SettingSpeculation       Setting = "speculation"        // method of speculation
	SettingSpeculationTokens Setting = "speculation_tokens" // tokens that are drafted at once
	SettingPrefixCaching     Setting = "prefix_caching"
	SettingChunkedPrefill    Setting = "chunked_prefill" // tokens of a chunk, or whether prompts are split into chunks
	SettingCUDAGraphs        Setting = "cuda_graphs"     // whether decode steps replay recorded graphs; otherwise the CPU launches each kernel
	SettingAttention         Setting = "attention_backend"
	SettingTemplate          Setting = "template" // template of chats
	SettingTokenizer         Setting = "tokenizer"
	SettingGeneration        Setting = "generation" // defaults for sampling
)

// Settings lists all settings in the order in which people read them.
var Settings = []Setting{
	SettingModel, SettingRevision, SettingVersion, SettingImage, SettingGPU, SettingDtype, SettingQuantization,
	SettingMaxModelLen, SettingMaxBatchTokens, SettingMaxSequences, SettingMaxQueue, SettingTensorParallel,
	SettingPipelineParallel, SettingDataParallel, SettingExpertParallel, SettingKVCacheDtype, SettingKVCacheTokens,
	SettingKVBlockSize, SettingGPUMemoryFraction, SettingSpeculation, SettingSpeculationTokens, SettingPrefixCaching,
	SettingChunkedPrefill, SettingCUDAGraphs, SettingAttention, SettingTemplate, SettingTokenizer, SettingGeneration,
}

// Measured reports whether an engine measures the value at each start. Equal engines then have slightly different values.
func (s Setting) Measured() bool { return s == SettingKVCacheTokens }

// SizesKVCache reports whether a setting affects how much room remains for KV cache.
func (s Setting) SizesKVCache() bool {
	return slices.Contains([]Setting{
		SettingGPU, SettingDtype, SettingQuantization, SettingKVCacheDtype, SettingGPUMemoryFraction, SettingTensorParallel,
		SettingPipelineParallel, SettingMaxBatchTokens, SettingMaxSequences, SettingSpeculation,
	}, s)
}
