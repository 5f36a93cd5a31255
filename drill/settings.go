package drill

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// chatTemplate is the beginning of Llama 3.1's chat template.
const chatTemplate = "{{- bos_token }}\n{%- if custom_tools is defined %}\n    {%- set tools = custom_tools %}\n{%- endif %}\n"

// path returns the path of the folder with the model's files.
func (p Profile) path() string { return "/models/" + p.Model }

func (p Profile) maxModelLen() int { return cmp.Or(p.MaxModelLen, 32768) }

// quantization returns how the weights are quantised. If they are not quantised, it returns none.
func (w Weights) quantization(none string) string {
	if w.Bytes < 2 {
		return "fp8"
	}
	return none
}

// Command returns the command line of a replica's process, with the options that the profile sets. The result is nil
// for runtimes whose command line does not configure a model.
func (p Profile) Command(r metrics.Runtime) []string {
	number := strconv.Itoa
	var line []string
	switch r {
	case metrics.VLLM:
		line = []string{
			"/usr/bin/python3", "/usr/local/bin/vllm", "serve", p.path(), "--served-model-name", p.Model,
			"--max-num-seqs", number(p.MaxBatch), "--max-num-batched-tokens", number(p.Budget),
		}
		if p.KVCacheDtype != "" {
			line = append(line, "--kv-cache-dtype", p.KVCacheDtype)
		}
		if p.MaxModelLen > 0 {
			line = append(line, "--max-model-len", number(p.MaxModelLen))
		}
		if p.NoPrefixCache {
			line = append(line, "--no-enable-prefix-caching")
		}
		if p.Draft > 0 {
			line = append(line, "--speculative-config",
				fmt.Sprintf(`{"method": "eagle3", "model": "/models/eagle3", "num_speculative_tokens": %d}`, p.Draft))
		}
	case metrics.TGI:
		line = []string{"text-generation-launcher", "--model-id", p.Model, "--max-concurrent-requests", number(p.MaxQueue)}
	case metrics.TensorRTLLM:
		line = []string{
			"/usr/bin/python3", "/usr/local/bin/trtllm-serve", p.path(), "--backend", "pytorch", "--max_batch_size",
			number(p.MaxBatch), "--max_num_tokens", number(p.Budget),
		}
	case metrics.LlamaCpp:
		line = []string{"llama-server", "-m", p.path() + ".gguf", "--metrics", "-np", number(p.MaxBatch)}
	default:
		return nil
	}
	return slices.Concat(line, p.Options)
}

// info adds a family of one series whose labels describe the engine.
func (p *page) info(name string, labels prometheus.Labels) {
	register(p, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, ConstLabels: labels})).Set(1)
}

// cacheConfig returns the labels of vllm:cache_config_info (vllm/config/cache.py, metrics_info) of about release 0.16.
func (p Profile) cacheConfig() prometheus.Labels {
	caching := "True"
	if p.NoPrefixCache {
		caching = "False"
	}
	return prometheus.Labels{
		"engine": strconv.Itoa(p.Rank), "block_size": strconv.Itoa(blockTokens), "cache_dtype": cmp.Or(p.KVCacheDtype, "auto"),
		"enable_prefix_caching":  caching,
		"gpu_memory_utilization": strconv.FormatFloat(memoryShare, 'g', -1, 64), "num_gpu_blocks": strconv.Itoa(p.KVBlocks()),
		"is_attention_free": "False", "num_cpu_blocks": "None", "num_gpu_blocks_override": "None", "sliding_window": "None",
		"prefix_caching_hash_algo": "sha256",
	}
}

// serverInfo returns the document that SGLang serves at /server_info (srt/entrypoints/http_server.py: ServerArgs and
// the scheduler's state).
func (p Profile) serverInfo() map[string]any {
	args := map[string]any{
		"model_path": p.path(), "served_model_name": p.Model, "tokenizer_path": p.path(), "revision": nil, "dtype": "auto",
		"quantization": nil, "kv_cache_dtype": cmp.Or(p.KVCacheDtype, "auto"),
		"context_length": p.maxModelLen(), "chat_template": nil, "mem_fraction_static": memoryShare, "max_running_requests": p.MaxBatch,
		"max_queued_requests":  nil,
		"chunked_prefill_size": p.Budget, "max_prefill_tokens": 16384, "page_size": 1, "tp_size": 1, "pp_size": 1, "dp_size": 1,
		"ep_size": 1, "preferred_sampling_params": nil,
		"speculative_algorithm": nil, "speculative_num_draft_tokens": nil, "disable_radix_cache": p.NoPrefixCache,
		"max_total_num_tokens": p.KVBlocks() * blockTokens, "version": p.release("0.5.16"),
	}
	if q := p.Weights.quantization(""); q != "" {
		args["quantization"] = q
	}
	if p.MaxQueue > 0 { // --max-queued-requests (srt/server_args.py)
		args["max_queued_requests"] = p.MaxQueue
	}
	if p.Graphs > 0 {
		args["cuda_graph_max_bs"] = p.Graphs
	}
	if p.Draft > 0 {
		args["speculative_algorithm"], args["speculative_num_draft_tokens"] = "EAGLE3", p.Draft
	}
	return args
}

// configInfo adds the families of log_config_info (tensorrt_llm/metrics/collector.py).
func (p Profile) configInfo(of *page) {
	add := func(name string, more prometheus.Labels) {
		maps.Copy(more, of.labels)
		of.info(name, more)
	}
	add("trtllm_model_config_info", prometheus.Labels{
		"model": p.path(), "served_model_name": p.Model, "dtype": "bfloat16",
		"gpu_type":      p.GPU.Name,
		"max_model_len": strconv.Itoa(p.maxModelLen()), "quantization": p.Weights.quantization("none"),
	})
	add("trtllm_parallel_config_info", prometheus.Labels{"tensor_parallel_size": "1", "pipeline_parallel_size": "1"})
	add("trtllm_kv_cache_config_info", prometheus.Labels{"free_gpu_memory_fraction": strconv.FormatFloat(memoryShare, 'g', -1, 64)})
}
