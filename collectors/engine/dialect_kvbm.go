package engine

import (
	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// kvbm reads Dynamo's block manager (DYN_KVBM_METRICS=1), on its own metrics page or on its worker's. In its names, d
// is the device, h is the host, and o is object storage. But the second d of an offload and the first d of an onboard
// mean the disk. Its hit rates cover a sliding window. The newer manager has families for each pool, with names that
// the user gave to the pools.
var kvbm = Dialect{
	Runtime: metrics.KVBM,
	Source:  "dynamo lib/bindings/kvbm, lib/runtime/src/metrics/prometheus_names.rs",
	Recognise: func(p *scrape.Page) bool {
		return p.Has("kvbm_matched_tokens") || p.Has("kvbm_offload_blocks_d2h") || p.Has("kvbm_onboard_blocks_h2d")
	},
	Role:       metrics.KVCacheRole,
	Supplement: true,
	Rows:       kvbmRows,
	Missing:    others("KVBM is a KV cache, no engine", kvbmRows),
}

var kvbmRows = []Row{
	{To: metrics.ExternalPrefixCacheHitTokens, From: "kvbm_matched_tokens", Is: scrape.Counter, Absent: nothingYet},
	{
		To: metrics.KVTierTransferBlocks, From: "kvbm_offload_blocks_d2h", Is: scrape.Counter, Set: tier(metrics.TierHost, metrics.Store),
		Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "kvbm_offload_blocks_h2d", Is: scrape.Counter, Set: tier(metrics.TierDisk, metrics.Store),
		Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "kvbm_offload_blocks_d2d", Is: scrape.Counter, Set: tier(metrics.TierDisk, metrics.Store),
		Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "kvbm_offload_blocks_d2o", Is: scrape.Counter, Set: tier(metrics.TierRemote, metrics.Store),
		Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "kvbm_onboard_blocks_h2d", Is: scrape.Counter, Set: tier(metrics.TierHost, metrics.Fetch),
		Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "kvbm_onboard_blocks_d2d", Is: scrape.Counter, Set: tier(metrics.TierDisk, metrics.Fetch),
		Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierTransferBlocks, From: "kvbm_onboard_blocks_o2d", Is: scrape.Counter, Set: tier(metrics.TierRemote, metrics.Fetch),
		Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierFailures, From: "kvbm_object_read_failures", Is: scrape.Counter, Set: tier(metrics.TierRemote, metrics.Fetch),
		Plus: true, Absent: nothingYet,
	},
	{
		To: metrics.KVTierFailures, From: "kvbm_object_write_failures", Is: scrape.Counter, Set: tier(metrics.TierRemote, metrics.Store),
		Plus: true, Absent: nothingYet,
	},
}
