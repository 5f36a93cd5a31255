package engine

import (
	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// lmcache reads LMCache inside an engine's process. LMCache is on the engine's metrics page, as further candidates, or alone on its
// internal API server. Its L2 is the host's memory, and its L3 is the disk. Its hit rates cover the time since its last log line.
var lmcache = Dialect{
	Runtime:    metrics.LMCache,
	Source:     "LMCache lmcache/observability.py, docs/source/production/observability/metrics.rst",
	Recognise:  func(p *scrape.Page) bool { return p.Has("lmcache:num_retrieve_requests_total") },
	Restore:    colon("lmcache", "lmcache_mp_"), // other names come from LMCache's server itself
	Role:       metrics.KVCacheRole,
	Supplement: true,
	Labels: []metrics.Carry{
		{From: "model_name", To: metrics.LabelModel},
		{From: "engine", To: metrics.LabelDPRank}, // on vLLM's metrics page
	},
	Rows:    lmcacheRows,
	Missing: others("LMCache is a KV cache, no engine", lmcacheRows),
}

var lmcacheRows = []Row{
	// Both count tokens, despite the second name. An engine's own counts of these tokens take precedence.
	{To: metrics.ExternalPrefixCacheQueryTokens, From: "lmcache:num_lookup_tokens_total", Is: scrape.Counter, Absent: nothingYet},
	{To: metrics.ExternalPrefixCacheHitTokens, From: "lmcache:num_lookup_hits_total", Is: scrape.Counter, Absent: nothingYet},
	{
		To: metrics.KVTierHitTokens, From: "lmcache:num_l2_hit_tokens_total", Is: scrape.Counter, Fold: most, Set: tier(metrics.TierHost),
		Plus: true, Absent: nothingYet,
		Quality: metrics.Approximate, Why: ofOneWorker,
	},
	{
		To: metrics.KVTierHitTokens, From: "lmcache:num_l3_hit_tokens_total", Is: scrape.Counter, Fold: most, Set: tier(metrics.TierDisk),
		Plus: true, Absent: nothingYet,
		Quality: metrics.Approximate, Why: ofOneWorker,
	},
	{
		To: metrics.KVTierHitTokens, From: "lmcache:num_remote_hit_tokens_total", Is: scrape.Counter, Fold: most,
		Set: tier(metrics.TierRemote), Plus: true, Absent: nothingYet,
		Quality: metrics.Approximate, Why: ofOneWorker,
	},
	{
		To: metrics.KVTierTransferTokens, From: "lmcache:num_hit_tokens_total", Is: scrape.Counter, Fold: most, Set: tier("", metrics.Fetch),
		Plus: true, Absent: nothingYet,
		Quality: metrics.Approximate, Why: ofOneWorker,
	},
	{
		To: metrics.KVTierTransferTokens, From: "lmcache:num_stored_tokens_total", Is: scrape.Counter, Fold: most,
		Set: tier("", metrics.Store), Plus: true, Absent: nothingYet,
		Quality: metrics.Approximate, Why: ofOneWorker,
	},
	{
		To: metrics.KVTierTransferBytes, From: "lmcache:num_remote_read_bytes_total", Is: scrape.Counter,
		Set: tier(metrics.TierRemote, metrics.Fetch), Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBytes, From: "lmcache:num_remote_write_bytes_total", Is: scrape.Counter,
		Set: tier(metrics.TierRemote, metrics.Store), Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferTime, From: "lmcache:time_to_retrieve", Is: scrape.Histogram, Part: partSum, Set: tier("", metrics.Fetch),
		Plus: true, Absent: nothingYet,
		Quality: metrics.Derived, Why: "sum of the histogram",
	},
	{
		To: metrics.KVTierTransferTime, From: "lmcache:time_to_store", Is: scrape.Histogram, Part: partSum, Set: tier("", metrics.Store),
		Plus: true, Absent: nothingYet,
		Quality: metrics.Derived, Why: "sum of the histogram",
	},
	{
		To: metrics.KVTierRefused, From: "lmcache:local_cpu_evict_failed_count_total", Is: scrape.Counter, Set: tier(metrics.TierHost),
		Plus: true, Absent: nothingYet,
		Quality: metrics.Approximate, Why: "evictions that failed because everything was pinned",
	},
	{
		To: metrics.KVTierEvicted, From: "lmcache:local_cpu_evict_keys_count_total", Is: scrape.Counter, Set: tier(metrics.TierHost),
		Plus: true, Absent: nothingYet,
	},
}

const ofOneWorker = "of the worker that counted most: all workers of an engine move the same tokens"

// lmcacheServer reads LMCache's multiprocess server. Its families appear with their first count. For this server, L1 is
// the host's memory, and L2 is the storage behind the adapters. Newer releases count chunks, and older releases count
// keys, which are the same.
var lmcacheServer = Dialect{
	Runtime:   metrics.LMCache,
	Source:    "LMCache docs of the multiprocess server, METRICS.md",
	Recognise: func(p *scrape.Page) bool { return p.HasPrefix("lmcache_") },
	Role:      metrics.KVCacheRole,
	Shared:    true,
	Labels:    []metrics.Carry{{From: "model_name", To: metrics.LabelModel}},
	Rows:      lmcacheServerRows,
	Missing:   others("LMCache is a KV cache, no engine", lmcacheServerRows),
}

var lmcacheServerRows = []Row{
	{
		To: metrics.KVTierQueryTokens, From: "lmcache_mp_lookup_requested_tokens_total", Is: scrape.Counter, Set: tier(metrics.TierHost),
		Absent: nothingYet,
	},
	{
		To: metrics.KVTierHitTokens, From: "lmcache_mp_lookup_hit_tokens_total", Is: scrape.Counter, Set: tier(metrics.TierHost),
		Absent:  nothingYet,
		Quality: metrics.Approximate, Why: "includes those fetched into host memory for the lookup",
	},
	{
		To: metrics.KVTierLookups, From: "lmcache_mp_l2_prefetch_lookup_objects_chunks_total", Is: scrape.Counter,
		Set: tier(metrics.TierStorage), Absent: nothingYet,
	},
	{
		To: metrics.KVTierLookups, From: "lmcache_mp_l2_prefetch_lookup_keys_total", Is: scrape.Counter, Set: tier(metrics.TierStorage),
		Absent: nothingYet,
	},
	{
		To: metrics.KVTierHits, From: "lmcache_mp_l2_prefetch_hit_chunks_total", Is: scrape.Counter, Set: tier(metrics.TierStorage),
		Absent: nothingYet,
	},
	{
		To: metrics.KVTierHits, From: "lmcache_mp_l2_prefetch_hit_keys_total", Is: scrape.Counter, Set: tier(metrics.TierStorage),
		Absent: nothingYet,
	},

	{
		To: metrics.KVTierTransferBlocks, From: "lmcache_mp_l1_read_chunks_total", Is: scrape.Counter,
		Set: tier(metrics.TierHost, metrics.Fetch), Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "lmcache_mp_l1_read_keys_total", Is: scrape.Counter,
		Set: tier(metrics.TierHost, metrics.Fetch), Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "lmcache_mp_l1_write_chunks_total", Is: scrape.Counter,
		Set: tier(metrics.TierHost, metrics.Store), Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "lmcache_mp_l1_write_keys_total", Is: scrape.Counter,
		Set: tier(metrics.TierHost, metrics.Store), Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "lmcache_mp_l2_prefetch_load_completed_chunks_total", Is: scrape.Counter,
		Set: tier(metrics.TierStorage, metrics.Fetch), Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "lmcache_mp_l2_prefetch_loaded_keys_total", Is: scrape.Counter,
		Set: tier(metrics.TierStorage, metrics.Fetch), Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "lmcache_mp_l2_store_completed_objects_chunks_total", Is: scrape.Counter,
		Set: tier(metrics.TierStorage, metrics.Store), Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "lmcache_mp_l2_store_succeeded_keys_total", Is: scrape.Counter,
		Set: tier(metrics.TierStorage, metrics.Store), Plus: true, Absent: nothingYet,
	},

	{
		To: metrics.KVTierFailures, From: "lmcache_mp_l1_read_failure_chunks_total", Is: scrape.Counter,
		Set: tier(metrics.TierHost, metrics.Fetch), Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierFailures, From: "lmcache_mp_sm_read_failed_keys_total", Is: scrape.Counter,
		Set: tier(metrics.TierHost, metrics.Fetch), Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierFailures, From: "lmcache_mp_sm_write_failed_keys_total", Is: scrape.Counter,
		Set: tier(metrics.TierHost, metrics.Store), Plus: true, Absent: nothingYet,
	},
	{To: metrics.KVTierFailures, From: "lmcache_mp_l2_prefetch_failure_chunks_total", Is: scrape.Counter, Set: tier(metrics.TierStorage,
		metrics.Fetch), Plus: true, Absent: nothingYet},
	{To: metrics.KVTierFailures, From: "lmcache_mp_l2_prefetch_failed_keys_total", Is: scrape.Counter, Set: tier(metrics.TierStorage,
		metrics.Fetch), Plus: true, Absent: nothingYet},
	{To: metrics.KVTierFailures, From: "lmcache_mp_l2_store_failed_keys_total", Is: scrape.Counter, Set: tier(metrics.TierStorage,
		metrics.Store), Plus: true, Absent: nothingYet},
	{
		To: metrics.KVTierRefused, From: "lmcache_mp_l1_allocation_failure_chunks_total", Is: scrape.Counter,
		Where: is("during", "l1_store"), Set: tier(metrics.TierHost), Absent: nothingYet,
	},
	{
		To: metrics.KVTierEvicted, From: "lmcache_mp_l1_evicted_chunks_total", Is: scrape.Counter, Set: tier(metrics.TierHost), Plus: true,
		Absent: nothingYet,
	},
	{
		To: metrics.KVTierEvicted, From: "lmcache_mp_l1_evicted_keys_total", Is: scrape.Counter, Set: tier(metrics.TierHost), Plus: true,
		Absent: nothingYet,
	},
	{
		To: metrics.KVTierEvicted, From: "lmcache_mp_l2_evicted_chunks_total", Is: scrape.Counter, Set: tier(metrics.TierStorage),
		Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierUsage, From: "lmcache_mp_l1_usage_ratio", Is: scrape.Gauge, Set: tier(metrics.TierHost),
		Absent: "the first releases report only bytes",
	},
}
