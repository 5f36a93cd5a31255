package rules

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// budgetGroup keeps the budget of the period. It runs every base window and adds up the events of
// those windows, which tile the period: event-weighted, and nothing but the objectives of a period is
// read over that period.
//
// The budget is the period's: where less than a period is recorded, it is that of a whole period with the
// traffic so far, so that ten bad minutes of a first day are ten minutes of a month.
func budgetGroup(opt Options) Group {
	g := Group{Name: "llm-slo-budget", Interval: base.Std()}
	record := func(f *metrics.Family, e promql.Expr) { g.Records = append(g.Records, Record{Name: f, Expr: e}) }

	// While a changed period rolls out, exporters disagree; one of the two is taken.
	period := promql.TopK(1, modelSLO, promql.Max(modelPeriod, promql.Over("last_over_time", promql.Vector(metrics.RecordedInfo), 15*minute)))
	counted := func(e promql.Expr) promql.Expr {
		return promql.Mul(e, period, promql.On(modelSLO...).ManyToOne(metrics.LabelPeriod))
	}
	record(metrics.RecordedPeriodEvents5m, counted(tile(opt.Tier, metrics.SLOEvents)))
	record(metrics.RecordedPeriodBadEvents5m, promql.Or(counted(tile(opt.Tier, metrics.SLOBadEvents)),
		promql.Mul(promql.Num(0), promql.Vector(metrics.RecordedPeriodEvents5m), nil)))
	record(metrics.RecordedPeriodEvents, overPeriod("sum_over_time", metrics.RecordedPeriodEvents5m))
	record(metrics.RecordedPeriodBadEvents, overPeriod("sum_over_time", metrics.RecordedPeriodBadEvents5m))

	since := promql.Vector(metrics.RecordedPeriodSince)
	record(metrics.RecordedPeriodSince, promql.Unless(
		promql.Add(promql.Mul(promql.Num(0), promql.Vector(metrics.RecordedPeriodEvents5m), nil), promql.Call("time"), nil),
		promql.Over("last_over_time", since, hour), nil))
	record(metrics.RecordedHistory, promql.Add(promql.Sub(promql.Call("time"), overPeriod("min_over_time", metrics.RecordedPeriodSince), nil),
		promql.Num(base.Std().Seconds()), nil))

	perObjective := promql.On(modelSLO...).ManyToOne()
	record(metrics.RecordedAllowedRate, promql.Div(
		promql.Mul(promql.Vector(metrics.RecordedPeriodEvents), promql.Vector(metrics.RecordedErrorBudget), perObjective),
		promql.Vector(metrics.RecordedHistory), nil))
	allowed := promql.Mul(above(promql.Vector(metrics.RecordedAllowedRate), 0), remembered(metrics.RecordedPeriod), perObjective)
	record(metrics.RecordedBudgetRemaining, promql.Sub(promql.Num(1),
		promql.Div(promql.Vector(metrics.RecordedPeriodBadEvents), allowed, nil), nil))
	return g
}

// modelPeriod is modelSLO with the period of the objective.
var modelPeriod = slices.Concat(modelSLO, []string{metrics.LabelPeriod})

// exhaustion is how long the budget lasts at the burn rate of the last hour. The budget itself is
// recorded every base window and hardly moves in one; the burn rate does, and a page shows this number:
// it belongs to the burn group, which runs every minute.
func exhaustion() promql.Expr {
	remaining := promql.Over("last_over_time", promql.Vector(metrics.RecordedBudgetRemaining), 2*base.Std())
	perObjective := promql.On(modelSLO...).ManyToOne()
	left := promql.Mul(promql.Call("clamp_min", remaining, promql.Num(0)), remembered(metrics.RecordedPeriod), perObjective)
	return promql.Div(left, promql.Gt(promql.Vector(burn(fresh)), promql.Num(0), nil), perObjective)
}

// tile is what an event counter gained since the tile before, exactly: from the last value before that one's end to the
// last before this one's. An increase would guess what lies between two windows; a burst there would count twice or not
// at all. Only what an engine had counted between its last scrape and a restart is lost.
func tile(tier Tier, f *metrics.Family) promql.Expr {
	if tier == Global {
		return promql.Sum(modelSLO, promql.Vector(shardTile(f)))
	}
	counter := promql.Vector(f)
	last := func(ago time.Duration) promql.Expr {
		return promql.Over("last_over_time", promql.Offset(counter, ago), 2*base.Std())
	}
	// A new series begins with its first value; what its engine had counted by then is a correction.
	gained := promql.Sub(last(0), promql.Or(last(base.Std()), promql.Over("min_over_time", counter, base.Std())), nil)
	return promql.Sum(modelSLO, promql.Or(
		once(f, promql.Or(promql.Ge(gained, promql.Num(0), nil), promql.Increase(counter, base.Std()))),
		promql.Over("sum_over_time", promql.Vector(correctionOf(f)), base.Std())))
}

func shardTile(f *metrics.Family) *metrics.Family {
	if f == metrics.SLOBadEvents {
		return metrics.ShardBadTile
	}
	return metrics.ShardTile
}

// overPeriod folds a series over the period that its label names.
func overPeriod(fold string, f *metrics.Family) promql.Expr {
	var each []promql.Expr
	for _, p := range slo.Periods() {
		each = append(each, promql.Over(fold, promql.Vector(f, promql.Eq(metrics.LabelPeriod, p.String())), p.Std()))
	}
	return promql.Or(each[0], each[1:]...)
}
