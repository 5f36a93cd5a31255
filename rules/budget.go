package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// budgetGroup keeps the budget of the period. It runs every base window and adds up the events of
// those windows, which tile the period: event-weighted, and nothing but the objectives of a period is
// read over that period. It reads nothing that another group records.
func budgetGroup(opt Options) Group {
	g := Group{Name: "llm-slo-budget", Interval: base.Std()}
	record := func(f *metrics.Family, e promql.Expr) { g.Records = append(g.Records, Record{f, e}) }

	// While a changed period rolls out, exporters disagree; one of the two is taken.
	period := promql.TopK(1, sloLabels, objective(opt.Tier, metrics.SLOInfo, sloPeriodLabel))
	withPeriod := func(e promql.Expr) promql.Expr {
		return promql.Mul(e, period, promql.On(sloLabels...).ManyToOne(metrics.LabelPeriod))
	}
	counted := func(e promql.Expr) promql.Expr {
		return withPeriod(promql.Mul(e, promql.Num(base.Std().Seconds()/tiled.Std().Seconds()), nil))
	}
	record(metrics.RecordedPeriodEvents5m, counted(events(opt.Tier, metrics.SLOEvents, tiled)))
	record(metrics.RecordedPeriodBadEvents5m, promql.Or(counted(events(opt.Tier, metrics.SLOBadEvents, tiled)),
		promql.Mul(promql.Num(0), promql.Vector(metrics.RecordedPeriodEvents5m), nil)))
	record(metrics.RecordedPeriodEvents, overPeriod(metrics.RecordedPeriodEvents5m))
	record(metrics.RecordedPeriodBadEvents, overPeriod(metrics.RecordedPeriodBadEvents5m))

	perObjective := promql.On(sloLabels...).ManyToOne()
	spent := promql.Div(
		promql.Div(promql.Vector(metrics.RecordedPeriodBadEvents), promql.Gt(promql.Vector(metrics.RecordedPeriodEvents), promql.Num(0), nil), nil),
		budget(opt.Tier), perObjective)
	record(metrics.RecordedBudgetRemaining, promql.Sub(promql.Num(1), spent, nil))
	return g
}

// exhaustion is how long the budget lasts at the burn rate of the last hour. The budget itself is
// recorded every base window and hardly moves in one; the burn rate does, and a page shows this number:
// it belongs to the burn group, which runs every minute.
func exhaustion(tier Tier) promql.Expr {
	remaining := promql.Over("last_over_time", promql.Vector(metrics.RecordedBudgetRemaining), 2*base.Std())
	left := promql.Mul(promql.Call("clamp_min", remaining, promql.Num(0)),
		objective(tier, metrics.SLOPeriod, sloLabels), promql.On(sloLabels...).ManyToOne())
	return promql.Div(left, promql.Gt(promql.Vector(burn(fresh)), promql.Num(0), nil), promql.On(modelSLO...).ManyToOne())
}

// tiled is read for each base window: one scrape more, because a rate sees only what lies between the
// first and the last sample in its window. Scraped every minute, windows of exactly base would leave
// every fifth minute out and guess it.
const tiled = base + slo.Duration(Interval)

// overPeriod sums five-minute increases over the period that their label names.
func overPeriod(f *metrics.Family) promql.Expr {
	var each []promql.Expr
	for _, p := range slo.Periods() {
		each = append(each, promql.Over("sum_over_time", promql.Vector(f, promql.Eq(metrics.LabelPeriod, p.String())), p.Std()))
	}
	return promql.Or(each[0], each[1:]...)
}
