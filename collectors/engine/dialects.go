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
	&tei, // before tgi: both have /info, and this one knows its own
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
	&xinference,
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
