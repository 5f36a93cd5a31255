package engine

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Engines and stores count the KV cache that is stored below the GPU, fetched, hit, refused and lost, and the times of
// transfers. Their directions, units and numbers of tiers differ.

func TestTiersOfVLLM(t *testing.T) {
	s := page(t, "vllm/v0.30.0-offload.prom")
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{tier="host",operation="fetch"}`, 3.5e9, 4.5e9)
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{tier="host",operation="store"}`, 2.1e10, 1.9e10) // its deprecated twin agrees
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total`, 3.5e9, 4.5e9, 2.1e10, 1.9e10)
	s.want(t, `llm_engine_kv_tier_transfer_seconds_total{operation="fetch"}`, 0.25, 0.375)
	s.want(t, `llm_engine_kv_tier_transfer_seconds_total{operation="store"}`, 1.75, 1.5)
	s.want(t, `llm_engine_kv_tier_refused_total{tier="host"}`, 3, 4) // failed allocations; skipped stores include first-seen blocks
	s.want(t, `llm_engine_kv_tier_pinned_ratio{tier="host"}`, 0.125, 0.1875)
	s.want(t, `llm_engine_kv_tier_usage_ratio`) // pinned is not full
	s.want(t, `llm_engine_kv_tier_capacity_tokens`)

	// Before 0.24 only the twin exists. 3FS is on other machines.
	s = page(t, "vllm/v0.20.0-hf3fs.prom")
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{operation="fetch"}`, 1.25e9)
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{operation="store"}`, 7.5e9)
	s.want(t, `llm_engine_kv_tier_transfer_seconds_total{tier="remote",operation="fetch"}`, 2.5)
	s.want(t, `llm_engine_kv_tier_transfer_seconds_total{tier="remote",operation="store"}`, 7.25)
	s.want(t, `llm_engine_kv_tier_failures_total{tier="remote",operation="fetch"}`, 3)
	s.want(t, `llm_engine_kv_tier_failures_total{tier="remote",operation="store"}`, 4)

	s = page(t, "vllm/v0.31-tiering.prom")
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{operation="fetch"}`, 6e9, 2.5e9, 1.5e9)
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{tier="disk",operation="store"}`, 1.6e10)
	s.want(t, `llm_engine_kv_tier_transfer_seconds_total{tier="storage",operation="store"}`, 21.75)
	s.want(t, `llm_engine_kv_tier_failures_total{tier="disk",operation="fetch"}`, 2)
	s.want(t, `llm_engine_kv_tier_failures_total{tier="storage",operation="store"}`, 7)
	s.want(t, `llm_engine_kv_tier_lookups_total{tier="disk"}`, 8100) // blocks, which cannot be converted to tokens without their size
	s.want(t, `llm_engine_kv_tier_hits_total{tier="disk"}`, 2900)
	s.want(t, `llm_engine_kv_tier_hit_tokens_total`)
	s.want(t, `llm_engine_kv_tier_capacity_tokens`, 1<<20)
	s.want(t, `llm_engine_kv_tier_capacity_bytes`, 16384*8388608)

	// A lookup of keys transfers nothing, and a failed operation transferred nothing of use.
	s = page(t, "vllm/v0.24.0-mooncake-prefill.prom")
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total`, 2.5e10, 2.2e10)
	s.want(t, `llm_engine_kv_tier_transfer_seconds_total{tier="remote",operation="store"}`, 28.5)
	s.want(t, `llm_engine_kv_tier_transfer_seconds_total{tier="remote",operation="fetch"}`, 20.25)
	s.want(t, `llm_engine_kv_tier_failures_total{tier="remote",operation="store"}`, 48)
	s.want(t, `llm_engine_kv_tier_failures_total{tier="remote",operation="fetch"}`, 9)
	s.want(t, `llm_engine_kv_transfers_expired_total`, 6)
	s.want(t, `llm_engine_kv_transfer_failures_total`, 0+1)

	s = page(t, "vllm/v0.14.1-nixl-decode.prom")
	s.want(t, `llm_engine_kv_transfer_failures_total`, 6+2)
	s.want(t, `llm_engine_kv_transfers_expired_total`)

	s = page(t, "vllm/v0.6.6-v0-multiprocess.prom")
	s.want(t, `llm_engine_kv_tier_capacity_tokens{tier="host"}`, 2340*16)
	s.want(t, `llm_engine_requests_swapped`, 2)
}

func TestTiersOfSGLang(t *testing.T) {
	s := page(t, "sglang/v0.5.20-hicache.prom") // two ranks with the same numbers in each of two data-parallel ranks
	s.want(t, `llm_engine_external_prefix_cache_query_tokens_total`, 400000, 400000)
	s.want(t, `llm_engine_external_prefix_cache_hit_tokens_total`, 48000, 36000)
	s.want(t, `llm_engine_kv_tier_query_tokens_total{tier="host"}`, 280000, 310000)
	s.want(t, `llm_engine_kv_tier_query_tokens_total{tier="storage"}`, 240000, 280000)
	s.want(t, `llm_engine_kv_tier_hit_tokens_total{tier="host"}`, 40000, 30000)
	s.want(t, `llm_engine_kv_tier_hit_tokens_total{tier="storage"}`, 8000, 6000)
	s.want(t, `llm_engine_kv_tier_transfer_tokens_total{tier="host",operation="fetch"}`, 140000) // of the KV pool only
	s.want(t, `llm_engine_kv_tier_transfer_tokens_total{tier="host",operation="store"}`, 1110000)
	s.want(t, `llm_engine_kv_tier_transfer_tokens_total{tier="remote",operation="fetch"}`, 9600, 7200)
	s.want(t, `llm_engine_kv_tier_transfer_tokens_total{tier="remote",operation="store"}`, 410000, 390000)
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{operation="fetch"}`, 9.5e9)
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{operation="store"}`, 7.2e10)
	s.want(t, `llm_engine_kv_tier_transfer_seconds_total{operation="fetch"}`, 0.75)
	s.want(t, `llm_engine_kv_tier_transfer_seconds_total{operation="store"}`, 2.25)
	s.want(t, `llm_engine_kv_tier_failures_total{tier="remote",operation="fetch"}`, 512+128, 256+64)
	s.want(t, `llm_engine_kv_tier_refused_total{tier="host"}`, 4096)
	s.want(t, `llm_engine_kv_tier_refused_total{tier="remote"}`, 2048, 1536)
	s.want(t, `llm_engine_kv_tier_usage_ratio{tier="host"}`, 0.75, 0.875)
	s.want(t, `llm_engine_kv_tier_capacity_tokens{tier="host"}`, 524288, 524288)
	s.want(t, `llm_engine_kv_tier_evicted_total`) // evicted_tokens is about the GPU

	// Older metrics pages have the hits of finished requests.
	s = page(t, "sglang/v0.5.9-priority.prom")
	s.want(t, `llm_engine_kv_tier_hit_tokens_total{tier="host"}`, 54360)
	s.want(t, `llm_engine_kv_tier_hit_tokens_total{tier="storage"}`, 18121)
	s.want(t, `llm_engine_external_prefix_cache_hit_tokens_total`, 54360+18121)
	s.want(t, `llm_engine_external_prefix_cache_query_tokens_total`, 1089677)

	s = page(t, "sglang/v0.5.12-prefill.prom")
	s.want(t, `llm_engine_kv_transfer_failures_total`, 3+2)
	s.want(t, `llm_engine_requests_waiting_by_reason{reason="bootstrap"}`, 4)
	s.want(t, `llm_engine_requests_waiting_by_reason{reason="kv_transfer"}`, 6)
	s = page(t, "sglang/v0.5.12-decode.prom")
	s.want(t, `llm_engine_requests_waiting_by_reason{reason="kv_allocation"}`, 5)
	s.want(t, `llm_engine_requests_waiting_by_reason{reason="kv_transfer"}`, 7)
	page(t, "sglang/v0.5.6-retractions.prom").want(t, `llm_engine_request_preemptions_bucket{le="0.0"}`, 391)
	s = page(t, "sglang/v0.5.18-encoder.prom")
	s.want(t, `llm_engine_multimodal_cache_queries_total`, 452, 424)
	s.want(t, `llm_engine_multimodal_cache_hits_total`, 140, 156)
}

func TestTiersOfTensorRTLLM(t *testing.T) {
	s := page(t, "trtllm/v1.4-host-cache.prom")
	s.want(t, `llm_engine_kv_tier_hit_tokens_total{tier="host"}`, 40960)
	s.want(t, `llm_engine_kv_tier_hit_tokens_total{tier="disk"}`, 4096)
	s.want(t, `llm_engine_external_prefix_cache_hit_tokens_total`, 45056)
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{tier="host",operation="fetch"}`, 2.5e9)
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{tier="host",operation="store"}`, 4e10)
	s.want(t, `llm_engine_kv_tier_transfer_blocks_total{tier="disk",operation="fetch"}`, 640)
	s.want(t, `llm_engine_kv_tier_usage_ratio{tier="host"}`, 0.96875)
	s.want(t, `llm_engine_requests_swapped`, 2)
	s.want(t, `llm_engine_requests_running_limit`, 192) // of one process; the other processes report 0
	page(t, "trtllm/v1.3.0-full.prom").want(t, `llm_engine_max_model_len_tokens`, 32768)
}

// TestLMCacheInsideAnEngine reads LMCache's families on vLLM's metrics page: they supply the engine's missing
// quantities, and nothing twice.
func TestLMCacheInsideAnEngine(t *testing.T) {
	s := page(t, "lmcache/in-vllm-v0.10.2.prom")
	s.want(t, `llm_engine_external_prefix_cache_query_tokens_total{runtime="vllm",role=""}`, 410112)
	s.want(t, `llm_engine_external_prefix_cache_hit_tokens_total`, 61440)
	s.want(t, `llm_engine_kv_tier_hit_tokens_total{runtime="vllm"}`, 30720, 18432, 9216)
	s.want(t, `llm_engine_kv_tier_hit_tokens_total{tier="disk"}`, 18432)
	s.want(t, `llm_engine_kv_tier_transfer_tokens_total{operation="fetch"}`, 58368)
	s.want(t, `llm_engine_kv_tier_transfer_tokens_total{operation="store"}`, 204800)
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{tier="remote",operation="fetch"}`, 1207959552)
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{tier="remote",operation="store"}`, 26843545600)
	s.want(t, `llm_engine_kv_tier_transfer_seconds_total{operation="fetch"}`, 5.5)
	s.want(t, `llm_engine_kv_tier_refused_total{tier="host"}`, 5)
	s.want(t, `llm_engine_kv_tier_evicted_total{tier="host"}`, 568)
	s.want(t, `llm_engine_up`, 1)
	s.want(t, `{runtime="lmcache"}`)

	s = page(t, "lmcache/in-vllm-v0.24.0.prom")
	s.want(t, `llm_engine_external_prefix_cache_query_tokens_total`, 638911) // vLLM's own
	s.want(t, `llm_engine_external_prefix_cache_hit_tokens_total`, 122880)
	s.want(t, `llm_engine_metric_source_info{metric="llm_engine_external_prefix_cache_hit_tokens_total",source="vllm:external_prefix_cache_hits_total"}`, 1)

	// On its own metrics page, all workers count the same tokens and each its own bytes.
	s = page(t, "lmcache/internal-api.prom")
	s.want(t, `llm_engine_kv_tier_hit_tokens_total{runtime="lmcache",role="kv_cache",tier="host"}`, 30720)
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{operation="fetch"}`, 2*1207959552)
	s.want(t, `llm_engine_requests_total`)
}

func TestStoresAreKnownByName(t *testing.T) {
	for name, runtime := range map[string]metrics.Runtime{
		"lmcache/internal-api.prom": metrics.LMCache, "lmcache/server.prom": metrics.LMCache, "lmcache/server-first-names.prom": metrics.LMCache,
		"mooncake/master-v0.3.12.prom": metrics.Mooncake, "mooncake/client-v0.3.12.prom": metrics.Mooncake,
		"nixl/agent-main-mp.prom": metrics.NIXL, "other/nixl-agent.prom": metrics.NIXL, "dynamo/kvbm.prom": metrics.KVBM,
	} {
		s := page(t, name)
		s.want(t, `llm_engine_up{runtime="`+string(runtime)+`"}`, 1)
		s.want(t, `llm_engine_source_missing_total`)
		for _, sample := range s {
			name := sample.labels.Get("__name__")
			kv := strings.HasPrefix(name, "llm_engine_kv_t") || strings.HasPrefix(name, "llm_engine_external_prefix_cache_")
			if kv && sample.labels.Get("role") != metrics.KVCacheRole {
				t.Errorf("%s would be added to an engine's", sample.labels)
			}
			if f := metrics.Lookup(name); f != nil && IsQuantity(f) && !kv {
				t.Errorf("%s is an engine's to say", sample.labels)
			}
		}
	}

	s := page(t, "lmcache/server.prom")
	s.want(t, `llm_engine_kv_tier_query_tokens_total{tier="host"}`, 800000)
	s.want(t, `llm_engine_kv_tier_hit_tokens_total{tier="host"}`, 350000)
	s.want(t, `llm_engine_kv_tier_lookups_total{tier="storage"}`, 2900)
	s.want(t, `llm_engine_kv_tier_hits_total{tier="storage"}`, 520)
	s.want(t, `llm_engine_kv_tier_transfer_blocks_total{tier="host",operation="store"}`, 3200)
	s.want(t, `llm_engine_kv_tier_transfer_blocks_total{tier="storage",operation="fetch"}`, 505)
	s.want(t, `llm_engine_kv_tier_failures_total{tier="storage",operation="fetch"}`, 7)
	s.want(t, `llm_engine_kv_tier_refused_total{tier="host"}`, 14) // failed prefetches do not count as stores
	s = page(t, "lmcache/server-first-names.prom")
	s.want(t, `llm_engine_kv_tier_transfer_blocks_total{tier="host"}`, 160, 350)
	s.want(t, `llm_engine_kv_tier_failures_total{tier="storage"}`, 3, 9)

	s = page(t, "mooncake/master-v0.3.12.prom")
	s.want(t, `llm_engine_kv_tier_lookups_total`, 90000)
	s.want(t, `llm_engine_kv_tier_hits_total`, 68000)
	s.want(t, `llm_engine_kv_tier_failures_total`, 3) // 22000 failures of get_replica_list are misses
	s.want(t, `llm_engine_kv_tier_usage_ratio`, 0.75, 0.25)
	s.want(t, `llm_engine_kv_tier_capacity_bytes{tier="host"}`, 1<<37) // once, not the segments again
	s = page(t, "mooncake/client-v0.3.12.prom")
	s.want(t, `llm_engine_kv_tier_transfer_seconds_total{operation="fetch"}`, 1.98)
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{operation="store"}`, 80*(1<<30))

	s = page(t, "nixl/agent-main-mp.prom")
	s.want(t, `llm_engine_kv_transfer_time_seconds_count`, 350+330)
	s.want(t, `llm_engine_kv_transfer_time_seconds_sum`, 8.25)
	s.want(t, `llm_engine_kv_transfer_time_seconds_bucket{le="0.01"}`, 60+150+50+130)
	s.want(t, `llm_engine_kv_transfer_failures_total`, 3+1) // invalid_param and canceled are the caller's fault
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{operation="store"}`, 1.3e10)
	page(t, "other/nixl-agent.prom").want(t, `llm_engine_kv_tier_transfer_seconds_total`, 9.123456)
	// The names alone do not identify the exporter.
	parse(t, mapped(t, "# TYPE agent_tx_bytes_total counter\nagent_tx_bytes_total{instance=\"a\"} 7\n")).
		want(t, `llm_engine_up{reason="unknown_engine"}`, 0)

	s = page(t, "dynamo/kvbm.prom")
	s.want(t, `llm_engine_kv_tier_transfer_blocks_total{tier="disk",operation="store"}`, 3100+40)
	s.want(t, `llm_engine_kv_tier_transfer_blocks_total{tier="remote",operation="fetch"}`, 65)
	s.want(t, `llm_engine_external_prefix_cache_hit_tokens_total`, 88064)
}

// TestKVBMOnItsWorkersPage reads the block manager's families beside the engine's.
func TestKVBMOnItsWorkersPage(t *testing.T) {
	s := parse(t, mapped(t, readPage(t, "vllm/v0.30.0-offload.prom")+readPage(t, "dynamo/kvbm.prom")))
	s.want(t, `llm_engine_kv_tier_transfer_blocks_total{runtime="vllm",tier="host",operation="fetch"}`, 1700)
	s.want(t, `llm_engine_external_prefix_cache_hit_tokens_total`, 98304, 98311) // vLLM's own, per rank
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{tier="host",operation="fetch"}`, 3.5e9, 4.5e9)
}

// TestTiersHoldNoMoreThanAll requires hits below queries and shares between 0 and 1, on every metrics page.
func TestTiersHoldNoMoreThanAll(t *testing.T) {
	checked := 0
	for _, name := range pages(t) {
		s := page(t, name)
		for _, v := range s.get(t, `{__name__=~"llm_engine_kv_tier_(usage|pinned)_ratio"}`) {
			if checked++; v < 0 || v > 1 {
				t.Errorf("%s: %v is no share", name, v)
			}
		}
		for queries, hits := range map[*metrics.Family]*metrics.Family{
			metrics.KVTierQueryTokens: metrics.KVTierHitTokens, metrics.KVTierLookups: metrics.KVTierHits,
			metrics.MultimodalCacheQueries: metrics.MultimodalCacheHits,
		} {
			for _, tier := range []metrics.Tier{"", metrics.TierHost, metrics.TierDisk, metrics.TierRemote, metrics.TierStorage} {
				q, h := s.get(t, queries.Name+`{tier="`+string(tier)+`"}`), s.get(t, hits.Name+`{tier="`+string(tier)+`"}`)
				for i := range min(len(q), len(h)) {
					if checked++; h[i] > q[i] {
						t.Errorf("%s: %v found of %v looked up in %q", name, h[i], q[i], tier)
					}
				}
			}
		}
		for _, v := range s.get(t, `{__name__=~"llm_engine_(kv_tier|kv_transfer|batch|requests_waiting).*"}`) {
			if math.IsNaN(v) || v < 0 {
				t.Errorf("%s: %v", name, v)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d numbers were compared", checked)
	}
}

// TestIdleEnginesLackNothing reads metrics pages recorded from running engines, if RECORDINGS names them. A
// family that appears with its first use is not missing on an engine that never used it.
func TestIdleEnginesLackNothing(t *testing.T) {
	if golden.Recordings(t, "*") == nil {
		t.Skip("RECORDINGS names no folder")
	}
	var newer []string
	for _, f := range metrics.All()[metrics.KVTransferPostTime.Index : metrics.EstimatedMemoryBytes.Index+1] {
		newer = append(newer, f.Name)
	}
	for _, name := range []string{
		"vllm/2026-02-27-one-engine.prom", "vllm/2026-08-17-dp4.prom", "sglang/2026-07-20-one-rank.prom",
		"llamacpp/metrics-2-under-load-a.prom",
	} {
		body, err := os.ReadFile(filepath.Join(os.Getenv("RECORDINGS"), name))
		if err != nil {
			t.Skip("no captures: ", err)
		}
		for _, s := range parse(t, mapped(t, string(body))) {
			if s.labels.Get("__name__") == metrics.SourceMissing.Name && slices.Contains(newer, s.labels.Get("metric")) {
				t.Errorf("%s: %s", name, s.labels)
			}
		}
	}
}
