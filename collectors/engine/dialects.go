package engine

import (
	"maps"
	"slices"
	"strings"
)

// builtin lists the known dialects. Where a page speaks several, the first one names the engine in
// the series about the page itself.
var builtin = []*Dialect{
	&vllm,
	&tgi,
	&trtllm,
	&tritonTRTLLM,
	&tritonVLLM,
	&triton,
	&sglang,
	&llamacpp,
	&lmdeploy,
	&nim,
	&dynamoFrontend,
	&dynamoWorker,
	&lmcache,
	&lmcacheServer,
	&kvbm,
	&mooncake,
	&nixl,
}

// Known returns the dialects that need no configuration. They must not be changed.
func Known() []*Dialect { return slices.Clone(builtin) }

// isRouter recognises pages of request routers that repeat engine metrics under the engines' own
// names. Scraping them beside the engines counts every request twice.
func isRouter(p *Page) bool {
	switch {
	case p.Has("vllm:current_qps"), p.Has("vllm:avg_itl"), p.Has("vllm:healthy_pods_total"): // vLLM production-stack
		return true
	case p.HasPrefix("smg_"), p.HasPrefix("sgl_"): // SGLang model gateway: smg_*, sgl_router_*
		return true
	case p.Has("inference_pool_ready_pods"), p.Has("inference_objective_request_total"), p.Has("llm_d_router_epp_request_total"): // endpoint pickers
		return true
	}
	// vLLM itself never labels its gauges with the server they came from.
	return len(p.LabelValues("vllm:num_requests_running", "server")) > 0 && !p.LabelValues("vllm:num_requests_running", "server")[""]
}

// someNames lists a few family names of the page, for messages.
func (p *Page) someNames(n int) []string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(p.families)) {
		if strings.HasPrefix(key, "python_") || strings.HasPrefix(key, "process_") || strings.HasPrefix(key, "go_") {
			continue
		}
		if len(names) == n {
			break
		}
		names = append(names, p.families[key][0].name)
	}
	return names
}
