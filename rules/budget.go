package rules

import (
	"slices"

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
		tile := promql.Mul(e, promql.Num(base.Std().Seconds()/tiled.Std().Seconds()), nil)
		return promql.Mul(tile, period, promql.On(modelSLO...).ManyToOne(metrics.LabelPeriod))
	}
	record(metrics.RecordedPeriodEvents5m, counted(events(opt.Tier, metrics.SLOEvents, tiled)))
	record(metrics.RecordedPeriodBadEvents5m, promql.Or(counted(events(opt.Tier, metrics.SLOBadEvents, tiled)),
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

// tiled is read for each base window: one scrape more, because a rate sees only what lies between the
// first and the last sample in its window. Scraped every minute, windows of exactly base would leave
// every fifth minute out and guess it.
const tiled = base + slo.Duration(Interval)

// overPeriod folds a series over the period that its label names.
func overPeriod(fold string, f *metrics.Family) promql.Expr {
	var each []promql.Expr
	for _, p := range slo.Periods() {
		each = append(each, promql.Over(fold, promql.Vector(f, promql.Eq(metrics.LabelPeriod, p.String())), p.Std()))
	}
	return promql.Or(each[0], each[1:]...)
}
