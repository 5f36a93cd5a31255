package rules

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// budgetGroup records the error budget of the period. It runs once per RateWindow and adds up the events of those
// windows, which tile the period. The result is weighted by events, and each objective is read only over its own
// period.
//
// The budget is always that of a whole period: while less is recorded, it assumes the traffic so far for the rest, so
// ten bad minutes on the first day cost as much as ten minutes of a month.
func budgetGroup(opt Options) Group {
	from := opt.source()
	g := Group{Name: "llm-slo-budget", Interval: RateWindow.Std()}
	record := func(f *metrics.Family, e promql.Expr) { g.Records = append(g.Records, Record{Name: f, Expr: e}) }

	// While a change of period rolls out, exporters disagree; take one of the two.
	period := promql.TopK(1, modelSLO, promql.Max(modelPeriod, promql.Over("last_over_time", promql.Vector(metrics.RecordedInfo), infoLookback)))
	counted := func(e promql.Expr) promql.Expr {
		return promql.Mul(e, period, promql.On(modelSLO...).ManyToOne(metrics.LabelPeriod))
	}
	record(metrics.RecordedPeriodEvents5m, counted(from.tile(metrics.SLOEvents)))
	record(metrics.RecordedPeriodBadEvents5m, promql.Or(counted(from.tile(metrics.SLOBadEvents)),
		promql.Mul(promql.Num(0), promql.Vector(metrics.RecordedPeriodEvents5m))))
	record(metrics.RecordedPeriodEvents, overPeriod("sum_over_time", metrics.RecordedPeriodEvents5m))
	record(metrics.RecordedPeriodBadEvents, overPeriod("sum_over_time", metrics.RecordedPeriodBadEvents5m))

	since := promql.Vector(metrics.RecordedPeriodSince)
	record(metrics.RecordedPeriodSince, promql.Unless(
		promql.Add(promql.Mul(promql.Num(0), promql.Vector(metrics.RecordedPeriodEvents5m)), promql.Call("time")),
		promql.Over("last_over_time", since, hour)))
	record(metrics.RecordedHistory, promql.Add(promql.Sub(promql.Call("time"), overPeriod("min_over_time", metrics.RecordedPeriodSince)),
		promql.Num(RateWindow.Std().Seconds())))

	perObjective := promql.On(modelSLO...).ManyToOne()
	record(metrics.RecordedUsualRate, promql.Div(promql.Vector(metrics.RecordedPeriodEvents), promql.Vector(metrics.RecordedHistory)))
	perSecond := promql.Mul(above(promql.Vector(metrics.RecordedUsualRate), 0), promql.Vector(metrics.RecordedErrorBudget), perObjective)
	allowed := promql.Mul(perSecond, remembered(metrics.RecordedPeriod), perObjective)
	record(metrics.RecordedBudgetRemaining, promql.Sub(promql.Num(1),
		promql.Div(promql.Vector(metrics.RecordedPeriodBadEvents), allowed)))
	return g
}

// modelPeriod adds the objective's period to modelSLO.
var modelPeriod = slices.Concat(modelSLO, []string{metrics.LabelPeriod})

// exhaustion returns the seconds until the budget is spent at the burn rate of the last minutes. The recorded budget
// hardly moves within a RateWindow, but the burn rate does, and pages show the result: so it belongs to the burn
// group, which runs every minute.
func exhaustion() promql.Expr {
	remaining := promql.Over("last_over_time", promql.Vector(metrics.RecordedBudgetRemaining), budgetLookback)
	perObjective := promql.On(modelSLO...).ManyToOne()
	left := promql.Mul(promql.Call("clamp_min", remaining, promql.Num(0)), remembered(metrics.RecordedPeriod), perObjective)
	return promql.Div(left, promql.Gt(promql.Vector(burn(RateWindow)), promql.Num(0)), perObjective)
}

// tile returns the exact gain of an event counter since the previous tile: from the last value before that tile's end
// to the last value before this one's. increase() would extrapolate between two windows, and count a burst there
// twice or not at all. Only events between an engine's last scrape and its restart are lost.
func (s source) tile(f *metrics.Family) promql.Expr {
	if s.tier == Global {
		return promql.Sum(modelSLO, promql.Vector(shardTile(f)))
	}
	counter := promql.Vector(f)
	last := func(ago time.Duration) promql.Expr {
		return promql.Over("last_over_time", promql.Offset(counter, ago), 2*RateWindow.Std())
	}
	// A new series begins with its first value; what its engine counted before that is a correction.
	gained := promql.Sub(last(0), promql.Or(last(RateWindow.Std()), promql.Over("min_over_time", counter, RateWindow.Std())))
	return promql.Sum(modelSLO, promql.Or(
		once(f, promql.Or(promql.Ge(gained, promql.Num(0)), promql.Increase(counter, RateWindow.Std()))),
		promql.Over("sum_over_time", promql.Vector(correctionOf(f)), RateWindow.Std())))
}

func shardTile(f *metrics.Family) *metrics.Family {
	if f == metrics.SLOBadEvents {
		return metrics.ShardBadTile
	}
	return metrics.ShardTile
}

// overPeriod folds a series over the period in its label.
func overPeriod(fold string, f *metrics.Family) promql.Expr {
	var each []promql.Expr
	for _, p := range slo.Periods() {
		each = append(each, promql.Over(fold, promql.Vector(f, promql.Eq(metrics.LabelPeriod, p.String())), p.Std()))
	}
	return promql.Or(each[0], each[1:]...)
}
