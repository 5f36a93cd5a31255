package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Label sets of recorded levels.
var (
	modelLabels    = []string{metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelModel}
	modelSLO       = metrics.ModelSLOLabels
	sloLabels      = []string{metrics.LabelCluster, metrics.LabelSLO}
	sloPeriodLabel = []string{metrics.LabelCluster, metrics.LabelSLO, metrics.LabelPeriod}
)

// memory is how long an objective is remembered when its exporter does not answer, so that an exporter
// restart in the middle of an incident does not end the page.
const memory = 15 * time.Minute

// events is the increase of an event counter per model and objective, read from the raw counters or,
// in the global tier, from the sums of the shards. An engine counts once, however many exporters read it.
func events(tier Tier, f *metrics.Family, window slo.Duration) promql.Expr {
	if tier == Global {
		return promql.Sum(modelSLO, promql.Vector(shardName(f, window)))
	}
	return promql.Sum(modelSLO, once(f, promql.Increase(promql.Vector(f), window.Std())))
}

// badEvents is like events for bad ones, and 0 where only events are known: an error series that does
// not exist yet means no errors.
func badEvents(tier Tier, window slo.Duration, all promql.Expr) promql.Expr {
	return promql.Or(events(tier, metrics.SLOBadEvents, window), promql.Mul(promql.Num(0), all, nil))
}

// requests is the number of requests per model that reached their first token.
func requests(tier Tier, window slo.Duration) promql.Expr {
	if tier == Global {
		return promql.Sum(modelLabels, promql.Vector(metrics.ShardRequests))
	}
	return promql.Sum(modelLabels, once(metrics.TimeToFirstToken, promql.Increase(promql.CountOf(metrics.TimeToFirstToken), window.Std())))
}

// objective is a gauge of the objective configuration. Exporters may disagree while a change rolls
// out; the largest value, the strictest target and the longest period, wins.
func objective(tier Tier, f *metrics.Family, by []string, m ...*promql.Matcher) promql.Expr {
	if tier == Global {
		return promql.Max(by, promql.Vector(shardObjective(f), m...))
	}
	return promql.Max(by, promql.Over("last_over_time", promql.Vector(f, m...), memory))
}

func budget(tier Tier) promql.Expr {
	return promql.Sub(promql.Num(1), objective(tier, metrics.SLOObjective, sloLabels), nil)
}

func shardName(f *metrics.Family, window slo.Duration) *metrics.Family {
	if f == metrics.SLOBadEvents {
		return metrics.Window(metrics.ShardBadEvents, window.String())
	}
	return metrics.Window(metrics.ShardEvents, window.String())
}

func shardObjective(f *metrics.Family) *metrics.Family {
	switch f {
	case metrics.SLOObjective:
		return metrics.ShardObjective
	case metrics.SLOPeriod:
		return metrics.ShardPeriod
	}
	return metrics.ShardInfo
}

// shardGroup records what the global tier reads: one series per model and objective for every raw
// window, whatever the number of engines behind them.
func shardGroup(opt Options) Group {
	g := Group{Name: "llm-slo-shard", Interval: Interval}
	for _, w := range rawWindows(opt.Pairs) {
		all := events(Shard, metrics.SLOEvents, w)
		g.Records = append(g.Records,
			Record{shardName(metrics.SLOEvents, w), all},
			Record{shardName(metrics.SLOBadEvents, w), badEvents(Shard, w, all)})
	}
	g.Records = append(g.Records,
		Record{metrics.ShardRequests, requests(Shard, requestWindow)},
		Record{metrics.ShardObjective, objective(Shard, metrics.SLOObjective, sloLabels)},
		Record{metrics.ShardPeriod, objective(Shard, metrics.SLOPeriod, sloLabels)},
		Record{metrics.ShardInfo, objective(Shard, metrics.SLOInfo, []string{metrics.LabelCluster, metrics.LabelSLO, metrics.LabelSignal, metrics.LabelPeriod})})
	return g
}
