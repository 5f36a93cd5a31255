package rules

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// The causes of these alerts are in GPU memory or the KV cache. A high use of GPU memory is not a cause, because
// engines reserve the memory when they start.
var (
	KVTransferFailures = &Alert{
		Name:     "LLMKVTransferFailures",
		Branch:   Memory,
		Expr:     promql.Max(modelLabels, promql.Vector(metrics.RecordedSuspect, promql.Eq(metrics.LabelClue, "kv_transfers_lost"))),
		Severity: slo.Ticket,
		For:      5 * minute,
		Scope:    []string{metrics.LabelModel},
		Explains: []*Alert{FastBurn, SlowBurn},
		Summary:  "Each request loses {{ printf \"%.2g\" $value }} KV transfers",
		Description: "Decode engines do not get the KV cache that prefill engines computed, so prompts are computed twice or requests " +
			"fail. Read the connector's log on both sides.",
		Split: []Evidence{
			{"Failed per minute", increasing(metrics.KVTransferFailures), foundEngine + " " + Number},
			{"Expired leases per minute (answers may be wrong)", increasing(metrics.KVTransfersExpired), foundEngine + " " + Number},
		},
		Dashboard: OptionalDashboard,
	}
	KVOffloadSaturated = &Alert{
		Name:     "LLMKVOffloadSaturated",
		Branch:   Memory,
		Expr:     promql.Vector(metrics.RecordedFullTier),
		Severity: slo.Ticket,
		For:      10 * minute,
		Scope:    []string{metrics.LabelModel, metrics.LabelServer, metrics.LabelTier},
		Explains: []*Alert{FastBurn, SlowBurn},
		Summary:  "{{ with $labels.tier }}The {{ . }} tier{{ else }}A tier{{ end }} of " + theEngine + " stores no more KV cache",
		Description: "The link to the tier is too slow: refused tokens are computed again, and stored tokens arrive late. Use a faster " +
			"link, or store less.",
		Split: []Evidence{
			{"Pinned by transfers", promql.Max(nil, promql.Vector(metrics.KVTierPinned, sameTier()...)), Percent},
		},
		Dashboard: OptionalDashboard,
	}
	// EngineMemoryLost is about memory that an engine has lost: to another program, or to requests that have ended.
	EngineMemoryLost = &Alert{
		Name:     "LLMEngineMemoryLost",
		Branch:   Memory,
		Expr:     promql.Or(reason("kv_leak", promql.Vector(metrics.RecordedKVLeak)), reason("left_gpu", promql.Vector(metrics.RecordedLeftGPU))),
		Severity: slo.Ticket,
		For:      5 * minute,
		Scope:    []string{metrics.LabelModel, metrics.LabelServer, metrics.LabelReason},
		Explains: []*Alert{FastBurn, SlowBurn},
		Summary: `{{ if eq $labels.reason "kv_leak" }}` + theEngine + ` uses {{ $value | humanizePercentage }} more KV cache than ` +
			`two hours ago, for no more requests{{ else }}{{ if $value }}Only {{ $value | humanizePercentage }}{{ else }}` +
			`Nothing{{ end }} of the model is in GPU memory at ` + theEngine + `{{ end }}`,
		Description: `{{ if eq $labels.reason "kv_leak" }}At this rate the cache is full within two hours, and requests will wait. If it stays ` +
			`in use while no request runs, the engine leaks: restart it.{{ else }}Earlier this week at ` +
			`least a quarter more of the model was in GPU memory. The CPU computes the rest many times more slowly, but no request ` +
			`fails. The engine's log shows how the model was loaded.{{ end }}`,
		Split: []Evidence{
			{"KV cache in use", promql.Max(nil, promql.Vector(metrics.KVCacheUsage, same(replicaLabels...)...)), Percent},
			{"In GPU memory now", promql.Max(nil, promql.Vector(metrics.ModelGPUMemory, same(replicaLabels...)...)), Bytes},
		},
		Dashboard: OptionalDashboard,
	}
)

var memoryAlerts = []*Alert{KVTransferFailures, KVOffloadSaturated, EngineMemoryLost}

// leftGPU returns the share of each replica's model that is in GPU memory. The rest is in host memory. There is a
// result only if at least a quarter more was in GPU memory at some time within the week, because a model that never
// fitted is not an incident.
func leftGPU() promql.Expr {
	now := promql.Vector(metrics.ModelGPUMemory)
	onGPU := promql.Max(replicaLabels, now)
	share := promql.Div(onGPU, above(promql.Max(replicaLabels, promql.Vector(metrics.ModelMemory)), 0))
	return promql.And(below(share, 0.95), promql.Lt(onGPU, times(0.8, promql.Max(replicaLabels, promql.Over("max_over_time", now, 7*day)))))
}

// unloaded returns the share of the last ten minutes in which an engine that loads models on demand had a model in
// memory. It has no result if the model was always in memory.
func unloaded() promql.Expr {
	readings := func(by []string, f *metrics.Family) promql.Expr {
		return promql.Max(by, promql.Over("count_over_time", promql.Vector(f), causeWindow))
	}
	return below(promql.Div(readings(replicaLabels, metrics.ModelMemory), readings(pageLabels, metrics.EngineUp),
		promql.On(pageLabels...).ManyToOne()), 0.95)
}

// strandedCacheClue names the clue of a KV cache that requests still fill although they no longer run. The engine waits
// for room and makes no progress.
const strandedCacheClue = "kv_stranded"

// strandedCache returns how full the KV cache of an engine is. In the last two minutes, more than half of the cache
// must always have been in use and requests must always have waited, while at some scrape no request ran.
func strandedCache() promql.Expr {
	least := func(f *metrics.Family) promql.Expr {
		return promql.Max(replicaLabels, promql.Over("min_over_time", promql.Vector(f), recentWindow))
	}
	return both(above(least(metrics.KVCacheUsage), 0.5), above(least(metrics.RequestsWaiting), 0),
		promql.Equal(least(metrics.RequestsRunning), promql.Num(0)))
}

// kvLeak returns how much more of a replica's KV cache is in use than two hours ago, if the cache would be full within
// two hours at this rate. Peaks are ignored: the lowest use within an hour must have grown in each of the two hours,
// although no more requests ran.
func kvLeak() promql.Expr {
	least := func(f *metrics.Family, ago time.Duration) promql.Expr {
		return promql.Max(replicaLabels, promql.Over("min_over_time", promql.Offset(promql.Vector(f), ago), hour))
	}
	used := func(ago time.Duration) promql.Expr { return least(metrics.KVCacheUsage, ago) }
	free := promql.Sub(promql.Num(1), promql.Max(replicaLabels, promql.Over("avg_over_time", promql.Vector(metrics.KVCacheUsage), hour)))
	grew := promql.Gt(above(promql.Sub(used(0), used(2*hour)), 0.05), free)
	now := above(promql.Max(replicaLabels, promql.Vector(metrics.KVCacheUsage)), 0.25)
	return promql.Unless(both(grew, now, above(promql.Sub(used(0), used(hour)), 0.01), above(promql.Sub(used(hour), used(2*hour)), 0.01)),
		promql.Gt(least(metrics.RequestsRunning, 0), promql.Add(times(1.1, least(metrics.RequestsRunning, 2*hour)), promql.Num(1))))
}

// kvResized returns each replica whose KV cache became a tenth or more smaller within the hour, according to the
// exporter. An engine takes the free GPU memory when it starts, so another process may have taken the rest. A changed
// setting must not explain the size.
func kvResized() promql.Expr {
	at := promql.Max(append([]string{metrics.LabelOld, metrics.LabelNew}, replicaLabels...),
		promql.Vector(metrics.EngineConfigChanged, promql.Eq(metrics.LabelSetting, string(metrics.SettingKVCacheTokens))))
	return promql.Gt(at, promql.Sub(promql.Call("time"), promql.Num(hour.Seconds())))
}

// tierLabels identify a KV cache tier of a replica.
var tierLabels = append([]string{metrics.LabelTier}, replicaLabels...)

func sameTier() []*promql.Matcher { return same(tierLabels...) }

// perMinute returns the recent increase of a counter per minute. It has no result if there was no increase.
func perMinute(by []string, counter promql.Expr) promql.Expr {
	return above(promql.Mul(promql.Sum(by, promql.Rate(counter, causeWindow)), promql.Num(60)), 0)
}

// increasing returns how much a counter increases per minute on each replica of the model.
func increasing(f *metrics.Family) promql.Expr {
	return perMinute(replicaLabels, promql.Vector(f, sameModel()...))
}

// lostTransfers returns how many KV transfers per finished request failed or were never fetched. The decode engine
// counts failed transfers. The prefill engine counts transfers that were never fetched. An engine may report only one
// of the two.
func lostTransfers(by []string, m ...*promql.Matcher) promql.Expr {
	lost := func(over func(promql.Expr, time.Duration) promql.Expr) promql.Expr {
		failed := promql.Sum(by, over(promql.Vector(metrics.KVTransferFailures, m...), causeWindow))
		expired := promql.Sum(by, over(promql.Vector(metrics.KVTransfersExpired, m...), causeWindow))
		return promql.Or(promql.Add(failed, expired), failed, expired)
	}
	ended := promql.Sum(by, promql.Rate(promql.Vector(metrics.Requests, m...), causeWindow))
	return both(
		above(promql.Div(lost(promql.Rate), above(ended, 0)), 0.05),
		above(lost(promql.Increase), 10))
}

// saturatedTier returns each KV cache tier of which transfers pin more than 90%. If the engine does not report pinning,
// it returns each tier that refuses more tokens than it stores. If pinning is reported, refusals are ignored, because
// some engines refuse every block when it first occurs.
func saturatedTier(m ...*promql.Matcher) promql.Expr {
	pinned := promql.Max(tierLabels, promql.Over("min_over_time", promql.Vector(metrics.KVTierPinned, m...), 5*minute))
	refused := promql.Sum(tierLabels, promql.Rate(promql.Vector(metrics.KVTierRefused, m...), causeWindow))
	stored := promql.Sum(tierLabels, promql.Rate(promql.Vector(metrics.KVTierTransferTokens,
		slices.Concat(m, []*promql.Matcher{promql.Eq(metrics.LabelOperation, string(metrics.Store))})...), causeWindow))
	return promql.Or(
		above(pinned, 0.9),
		promql.Unless(above(promql.Div(refused, above(promql.Add(refused, stored), 0)), 0.5), pinned))
}

// fullCache returns the usage of each KV cache that stays above 90% for five minutes while requests wait.
func fullCache(m ...*promql.Matcher) promql.Expr {
	return both(
		above(promql.Max(replicaLabels, promql.Over("min_over_time", promql.Vector(metrics.KVCacheUsage, m...), 5*minute)), 0.9),
		above(promql.Sum(replicaLabels, promql.Over("min_over_time", promql.Vector(metrics.RequestsWaiting, m...), 5*minute)), 0))
}

// preempting returns a replica's preemptions per request.
func preempting(window time.Duration, m ...*promql.Matcher) promql.Expr {
	return both(
		above(ratio(promql.Vector(metrics.Preemptions, m...), promql.CountOf(metrics.TimeToFirstToken, m...), replicaLabels, window, 0), 0.2),
		above(promql.Sum(replicaLabels, promql.Increase(promql.Vector(metrics.Preemptions, m...), window)), 5))
}

// awaited returns the number of adapters that requests need at each replica that swaps adapters. The label reason is
// the adapter that was requested most often.
func awaited() promql.Expr {
	used := promql.Max(append([]string{metrics.LabelLora}, replicaLabels...),
		promql.Over("changes", promql.Vector(metrics.LoraRequested), pageWindow))
	most := promql.Call("label_replace", promql.TopK(1, replicaLabels, promql.Add(used, promql.Num(1))), promql.Str(metrics.LabelReason),
		promql.Str("$1"), promql.Str(metrics.LabelLora), promql.Str("(.*)"))
	return promql.Mul(promql.Call("clamp_max", most, promql.Num(1)), promql.Max(replicaLabels, swapping()),
		promql.On(replicaLabels...).ManyToOne())
}

// swapping selects the engines at which requests wait because they need more adapters than fit into memory.
func swapping() promql.Expr { return above(promql.Vector(metrics.LorasContended), 0) }
