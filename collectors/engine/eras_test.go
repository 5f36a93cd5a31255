package engine

import (
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// in returns the era of a version.
func in(t *testing.T, d *Dialect, version string) (found Era) {
	v, ok := ParseVersion(version)
	if !ok {
		t.Fatalf("%q is no version", version)
	}
	for _, e := range d.Eras() {
		if since, known := ParseVersion(e.Since); !known || since.Compare(v) <= 0 {
			found = e
		}
	}
	return found
}

// TestEras checks known facts about versions, and that neighbouring versions differ.
func TestEras(t *testing.T) {
	for _, c := range []struct {
		engine   *Dialect
		version  string
		quantity *metrics.Family
		want     string // "source quality", in the order in which they are tried
	}{
		{&vllm, "0.2.7", metrics.InterTokenLatency, ""},
		{&vllm, "0.10.1", metrics.InterTokenLatency, "vllm:time_per_output_token_seconds native"},
		{&vllm, "0.10.2", metrics.InterTokenLatency, "vllm:inter_token_latency_seconds native"},
		{&vllm, "0.8.5.post1", metrics.PrefixCacheHitTokens, "vllm:gpu_prefix_cache_hits_total derived"},
		{&vllm, "0.9.1", metrics.PrefixCacheHitTokens, "vllm:gpu_prefix_cache_hits_total native"},
		{&vllm, "0.12.0", metrics.PrefixCacheHitTokens, "vllm:prefix_cache_hits_total native"},
		{&llamacpp, "b5440", metrics.KVCacheUsage, "llamacpp:kv_cache_usage_ratio native"},
		{&llamacpp, "b5441", metrics.KVCacheUsage, ""},
		{&llamacpp, "b10405", metrics.PromptTokens, "llamacpp:prompt_tokens_total approximate"},
		{&llamacpp, "b10406", metrics.PromptTokens, "llamacpp:prompt_tokens_cached_total derived"},
		{&sglang, "0.4.0", metrics.TimeToFirstToken, "sglang:time_to_first_token_seconds approximate"},
		{&sglang, "0.5.16", metrics.TimeToFirstToken, "sglang:time_to_first_token_seconds approximate"},
		{
			&sglang, "0.5.17", metrics.TimeToFirstToken,
			"sglang:time_to_first_token_seconds native, sglang:time_to_first_token_seconds approximate",
		},
		{&sglang, "0.5.16", metrics.EngineLoadTime, "sglang:engine_startup_time native"},
		{&sglang, "0.5.17", metrics.EngineLoadTime, "sglang:startup_time_seconds native"},
		{&trtllm, "1.2.1", metrics.TimeToFirstToken, "time_to_first_token_seconds native"},
		{&trtllm, "1.3.0rc1", metrics.TimeToFirstToken, "trtllm_time_to_first_token_seconds native"},
	} {
		var got []string
		for _, r := range in(t, c.engine, c.version).Rows[c.quantity] {
			got = append(got, r.From+" "+string(r.quality()))
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s %s: %s is from %q, want %q", c.engine.Runtime, c.version, c.quantity.Name, s, c.want)
		}
	}
	if eras := nim.Eras(); len(eras) != 1 || eras[0].Since != "" {
		t.Errorf("an engine without versions has %d eras", len(eras))
	}
}

func TestErasAreInOrderAndDiffer(t *testing.T) {
	for _, d := range builtin {
		eras := d.Eras()
		for i, e := range eras {
			if i == 0 {
				continue
			}
			last, _ := ParseVersion(eras[i-1].Since)
			if v, ok := ParseVersion(e.Since); !ok || last.Compare(v) >= 0 {
				t.Errorf("%s: %q follows %q", d.Runtime, e.Since, eras[i-1].Since)
			}
			if equalRows(eras[i-1].Rows, e.Rows) {
				t.Errorf("%s: %s is no other era than %s", d.Runtime, e.Since, eras[i-1].Since)
			}
		}
	}
}

func TestNextVersion(t *testing.T) {
	for version, want := range map[string]string{
		"0.9.0": "0.9.1", "0.11.x": "0.12.0", "1.x": "2.0.0", "0.5.10.post1": "0.5.11",
		"1.3.0rc9": "1.3.0rc10", "b5440": "b5441", "0.16": "0.16.1",
	} {
		v, _ := ParseVersion(version)
		if next := v.next(); next.String() != want || next.Compare(v) <= 0 {
			t.Errorf("after %s comes %s, want %s", version, next, want)
		}
	}
}
