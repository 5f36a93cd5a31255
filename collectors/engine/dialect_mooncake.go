package engine

import (
	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// mooncake reads the master of a Mooncake store and its clients. To the engines the whole store is remote; in the
// master's own numbers, memory segments are the host tier, and files are the disk tier.
var mooncake = Dialect{
	Runtime:   metrics.Mooncake,
	Source:    "Mooncake mooncake-store/src/master_metric_manager.cpp, client_metric.h",
	Recognise: func(p *scrape.Page) bool { return p.Has("master_key_count") || p.Has("mooncake_transfer_read_bytes") },
	Role:      metrics.KVCacheRole,
	Rows:      mooncakeRows,
	Missing:   others("Mooncake is a KV cache, no engine", mooncakeRows),
}

var mooncakeRows = []Row{
	// All lookups, and lookups that found a readable replica. The names end with an underscore.
	{To: metrics.KVTierLookups, From: "total_get_nums_", Is: scrape.Counter, Set: tier(metrics.TierRemote), Absent: mooncakeMaster},
	{To: metrics.KVTierHits, From: "valid_get_nums_", Is: scrape.Counter, Set: tier(metrics.TierRemote), Absent: mooncakeMaster},
	// get_replica_list fails for every absent key: a miss, not a failure.
	{
		To: metrics.KVTierFailures, From: "master_put_end_failures_total", Is: scrape.Counter, Set: tier(metrics.TierRemote, metrics.Store),
		Absent: mooncakeMaster,
	},
	{
		To: metrics.KVTierRefused, From: "master_put_start_alloc_failures_total", Is: scrape.Counter, Set: tier(metrics.TierRemote),
		Absent: mooncakeMaster,
	},
	{To: metrics.KVTierEvicted, From: "master_evicted_key_count", Is: scrape.Counter, Set: tier(metrics.TierRemote), Absent: mooncakeMaster},
	{
		To: metrics.KVTierUsage, From: "master_allocated_bytes", With: []string{"master_total_capacity_bytes"}, Is: scrape.Gauge,
		Set:  tier(metrics.TierHost),
		Fold: ratio("master_allocated_bytes", "master_total_capacity_bytes"), Absent: mooncakeMaster, Quality: metrics.Derived,
		Why: "allocated over all bytes",
	},
	{
		To: metrics.KVTierUsage, From: "master_allocated_file_size_bytes", With: []string{"master_total_file_capacity_bytes"},
		Is: scrape.Gauge, Set: tier(metrics.TierDisk),
		Fold: ratio("master_allocated_file_size_bytes", "master_total_file_capacity_bytes"), Plus: true, Absent: mooncakeMaster,
		Quality: metrics.Derived, Why: "allocated over all bytes",
	},
	{
		To: metrics.KVTierCapacityBytes, From: "master_total_capacity_bytes", Is: scrape.Gauge, Set: tier(metrics.TierHost),
		Absent: mooncakeMaster,
	},
	{
		To: metrics.KVTierCapacityBytes, From: "master_total_file_capacity_bytes", Is: scrape.Gauge, Set: tier(metrics.TierDisk), Plus: true,
		Absent: mooncakeMaster,
	},

	{
		To: metrics.KVTierTransferBytes, From: "mooncake_transfer_read_bytes", Is: scrape.Counter,
		Set: tier(metrics.TierRemote, metrics.Fetch), Absent: mooncakeClient,
	},
	{
		To: metrics.KVTierTransferBytes, From: "mooncake_transfer_write_bytes", Is: scrape.Counter,
		Set: tier(metrics.TierRemote, metrics.Store), Plus: true, Absent: mooncakeClient,
	},
	{
		To: metrics.KVTierTransferTime, From: "mooncake_transfer_batch_get_latency", With: []string{"mooncake_transfer_get_latency"},
		Is: scrape.Histogram, Scale: metrics.Micros,
		Set: tier(metrics.TierRemote, metrics.Fetch), Part: partSum, Absent: mooncakeClient, Quality: metrics.Derived,
		Why: "sums of the histograms, single and batched",
	},
	{
		To: metrics.KVTierTransferTime, From: "mooncake_transfer_batch_put_latency", With: []string{"mooncake_transfer_put_latency"},
		Is: scrape.Histogram, Scale: metrics.Micros,
		Set: tier(metrics.TierRemote, metrics.Store), Part: partSum, Plus: true, Absent: mooncakeClient, Quality: metrics.Derived,
		Why: "sums of the histograms, single and batched",
	},
}

const (
	mooncakeMaster = "on the page of the store's master"
	mooncakeClient = "on the page of a client of the store"
)
