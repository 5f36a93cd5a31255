package engine

import (
	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// nixl reads the telemetry of a NIXL agent. Its names are generic, so only its labels identify it. An agent does not
// report the purpose of its transfers. Its gauges describe the last transfer and are not read.
var nixl = Dialect{
	Runtime: metrics.NIXL,
	Source:  "NIXL src/plugins/telemetry/prometheus, docs/telemetry.md",
	Recognise: func(p *scrape.Page) bool {
		for _, name := range []string{"agent_tx_bytes_total", "agent_rx_bytes_total", "agent_xfer_time", "agent_xfer_time_us"} {
			if p.Has(name) && !p.LabelValues(name, "agent_name")[""] && !p.LabelValues(name, "hostname")[""] {
				return true
			}
		}
		return false
	},
	Role:    metrics.KVCacheRole,
	Rows:    nixlRows,
	Missing: others("NIXL moves KV cache, it is no engine", nixlRows),
}

var nixlRows = []Row{
	{
		To: metrics.KVTransferTime, From: "agent_xfer_time_us", Is: scrape.Histogram, Scale: metrics.Micros, Absent: "after 1.4.0 only",
		Quality: metrics.Approximate, Why: ofAllTransfers,
	},
	{
		To: metrics.KVTransferPostTime, From: "agent_xfer_post_time_us", Is: scrape.Histogram, Scale: metrics.Micros,
		Absent: "after 1.4.0 only", Quality: metrics.Approximate, Why: ofAllTransfers,
	},
	// The other states are mistakes of the caller, or transfers that the caller cancelled.
	{
		To: metrics.KVTransferFailures, From: "agent_errors_total", Is: scrape.Counter, Where: is("status", "backend", "remote_disconnect"),
		Absent: "no error yet, or NIXL before 1.3.1", Quality: metrics.Approximate, Why: ofAllTransfers,
	},
	{
		To: metrics.KVTierTransferBytes, From: "agent_rx_bytes_total", Is: scrape.Counter, Set: tier(metrics.TierRemote, metrics.Fetch),
		Absent: nothingYet, Quality: metrics.Approximate, Why: ofAllTransfers,
	},
	{
		To: metrics.KVTierTransferBytes, From: "agent_tx_bytes_total", Is: scrape.Counter, Set: tier(metrics.TierRemote, metrics.Store),
		Plus: true, Absent: nothingYet, Quality: metrics.Approximate, Why: ofAllTransfers,
	},
	{
		To: metrics.KVTierTransferTime, From: "agent_xfer_time_total", Is: scrape.Counter, Scale: metrics.Micros,
		Set: tier(metrics.TierRemote), Absent: "NIXL before 1.1.0", Quality: metrics.Approximate,
		Why: "both directions; " + ofAllTransfers,
	},
}

const ofAllTransfers = "transfers between prefill and decode engines and those to tiers"
