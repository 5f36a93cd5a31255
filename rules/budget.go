package rules

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// budgetGroup records the error budget of the period. It runs once per RateWindow, and adds up the events of these
// windows, which cover the period without gaps or overlaps. The result is thus weighted by events. Each objective is
// read only over its own period.
//
// The budget always covers a whole period. If less is recorded, the same traffic is assumed for the rest. Therefore,
// ten bad minutes on the first day cost no more of the budget than ten bad minutes of a full month.
func budgetGroup(opt Options) Group {
	from := opt.source()
	g := Group{Name: "llm-slo-budget", Interval: RateWindow.Std()}
	record := func(f *metrics.Family, e promql.Expr) { g.Records = append(g.Records, Record{Name: f, Expr: e}) }

	// While a changed period is rolled out, the exporters disagree. One of the two periods is then used.
	period := promql.TopK(1, modelSLO, promql.Max(modelPeriod, promql.Over("last_over_time", promql.Vector(metrics.RecordedInfo),
		infoLookback)))
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

// modelPeriod adds the label period to modelSLO.
var modelPeriod = slices.Concat(modelSLO, []string{metrics.LabelPeriod})

// lost estimates the availability events that were lost in a minute in which no server could answer, from the rate of
// the hour before. No server can answer if the model has no engine that answers users. For events that gateways count,
// the model may also lack a gateway. If users sent no request for an hour, no event is lost.
func lost() promql.Expr {
	usually := promql.And(latelyRate(), remembered(metrics.RecordedInfo, promql.Eq(metrics.LabelSignal, string(slo.Availability))),
		promql.On(modelSLO...))
	inTime := func(of, down *promql.Matcher) promql.Expr {
		return promql.Mul(promql.Where(usually, of), promql.Vector(metrics.RecordedDownTime, down), promql.On(modelLabels...).ManyToOne())
	}
	return promql.Unless(promql.Or(inTime(promql.Ne(metrics.LabelRole, metrics.GatewayRole), promql.Eq(metrics.LabelRole, "")),
		inTime(gatewayRole(), gatewayRole())), underMaintenance(), promql.On(modelSLO...))
}

// exhaustion returns the seconds until the budget is spent if the present burn continues. The bad events that a period
// of usual traffic still allows are divided by the present bad events per second. The recorded budget hardly changes
// within a RateWindow, but the burn does. Therefore, and because pages show the result, the rule runs every minute.
func exhaustion() promql.Expr {
	recent := func(f *metrics.Family) promql.Expr {
		return promql.Over("last_over_time", promql.Vector(f), budgetLookback)
	}
	perObjective := promql.On(modelSLO...)
	left := promql.Mul(promql.Call("clamp_min", recent(metrics.RecordedBudgetRemaining), promql.Num(0)), recent(metrics.RecordedUsualRate))
	left = promql.Mul(promql.Mul(left, remembered(metrics.RecordedPeriod), perObjective.ManyToOne()),
		promql.Vector(metrics.RecordedErrorBudget), perObjective.ManyToOne())
	return promql.Div(left, above(promql.Vector(metrics.RecordedBadNow), 0), perObjective.ManyToOne())
}

// shortNow has the windows of slo.NowWindows that are shorter than RateWindow, and longestNow the remaining one. A
// window is used if it has enough bad requests at the rate of RateWindow.
var shortNow, longestNow = slo.NowWindows[:len(slo.NowWindows)-1], slo.NowWindows[len(slo.NowWindows)-1]

// badNow returns the present bad events per second, in the shortest window of shortNow with enough bad requests. With
// few bad requests, it returns the rate since the burn began. A page comes early in a burn, when most of RateWindow was
// healthy, so the rate over RateWindow would be too low. If a burn began n minutes ago, the recorded increases are
// proportional to 1, 2 ... n. Their sum is (n+1)/2 times the last increase.
func badNow() promql.Expr {
	of := func(w slo.Duration) promql.Expr { return promql.Vector(increase(metrics.RecordedBadEvents, w)) }
	bad, five, step := of(RateWindow), RateWindow.Std().Seconds(), Interval.Seconds()
	perSecond := func(w slo.Duration, least float64, seconds promql.Expr) promql.Expr {
		requests := promql.Or(promql.Mul(bad, promql.Vector(metrics.RecordedRequestsPerEvent)), bad)
		return promql.Div(promql.And(of(w), promql.Ge(requests, promql.Num(least))), seconds)
	}
	each := make([]promql.Expr, 0, len(shortNow)+2)
	for _, w := range shortNow {
		seconds := w.Length.Std().Seconds()
		each = append(each, perSecond(w.Length, w.MinBad*five/seconds, promql.Num(seconds)))
	}
	since := promql.Sub(times(2*step, promql.Div(promql.Over("sum_over_time", bad, RateWindow.Std()), bad)), promql.Num(step))
	each = append(each, perSecond(RateWindow, longestNow.MinBad, promql.Call("clamp", since, promql.Num(step), promql.Num(five))),
		promql.Div(bad, promql.Num(five)))
	return promql.Call("clamp_min", promql.Or(each[0], each[1:]...), promql.Num(0))
}

// badShareNow returns the share of bad events in the last minute, if enough requests were bad. A page comes early in a
// burn, when most of RateWindow was healthy, so the share in RateWindow would be too low.
func badShareNow(from source) promql.Expr {
	now := shortNow[0]
	bad := promql.Vector(increase(metrics.RecordedBadEvents, now.Length))
	requests := promql.Or(promql.Mul(bad, promql.Vector(metrics.RecordedRequestsPerEvent)), bad)
	share := promql.Div(bad, above(from.events(metrics.SLOEvents, now.Length), 0))
	return promql.And(promql.Call("clamp_max", share, promql.Num(1)), promql.Ge(requests, promql.Num(now.MinBad)))
}

// tile returns the exact increase of an event counter in a tile of five minutes. It is the difference between the last
// values before the ends of this tile and of the previous tile. With increase(), which extrapolates, a burst between
// two tiles would count twice or not at all. Only events between an engine's last scrape and its restart are lost.
func (s source) tile(f *metrics.Family) promql.Expr {
	if s.tier == Global {
		return promql.Sum(modelSLO, promql.Vector(shardTile(f)))
	}
	counter := promql.Vector(f)
	last := func(ago time.Duration) promql.Expr {
		return promql.Over("last_over_time", promql.Offset(counter, ago), 2*RateWindow.Std())
	}
	// A new series begins with its first value. Earlier events of its engine come from the corrections.
	gained := promql.Sub(last(0), promql.Or(last(RateWindow.Std()), promql.Over("min_over_time", counter, RateWindow.Std())))
	return promql.Sum(modelSLO, promql.Or(once(f, promql.Or(promql.Ge(gained, promql.Num(0)), promql.Increase(counter, RateWindow.Std()))),
		promql.Over("sum_over_time", promql.Vector(correctionOf(f)), RateWindow.Std())))
}

func shardTile(f *metrics.Family) *metrics.Family {
	if f == metrics.SLOBadEvents {
		return metrics.ShardBadTile
	}
	return metrics.ShardTile
}

// overPeriod applies a function over time to each series, over the period in its label.
func overPeriod(fold string, f *metrics.Family) promql.Expr {
	each := make([]promql.Expr, 0, len(slo.Periods()))
	for _, p := range slo.Periods() {
		each = append(each, promql.Over(fold, promql.Vector(f, promql.Eq(metrics.LabelPeriod, p.String())), p.Std()))
	}
	return promql.Or(each[0], each[1:]...)
}
