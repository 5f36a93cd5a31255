package rules

import (
	"slices"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// These windows are the same for all options.
const (
	// RateWindow is the window of the rates that are recorded every Interval.
	RateWindow = slo.Duration(5 * time.Minute)
	// RawWindow is the longest window that reads raw counters. Longer windows also read recorded rates.
	RawWindow = slo.Duration(time.Hour)
	// RequestWindow is the window over which tokens per request are averaged.
	RequestWindow = slo.Duration(6 * time.Hour)
)

// correctionGroup records the events that increase() wrongly omits or includes: see corrections.
func correctionGroup(opt Options) Group {
	return Group{Name: "llm-slo-correction", Interval: Interval, Records: opt.source().corrections()}
}

// objectiveGroup records each model's objectives, and the burn rate above which they alert.
func objectiveGroup(opt Options) Group {
	from := opt.source()
	g := Group{Name: "llm-slo-objective", Interval: Interval}
	g.Records = append(g.Records,
		Record{Name: metrics.RecordedInfo, Expr: from.configured(metrics.SLOInfo, infoLabels(opt)...)},
		Record{Name: metrics.RecordedObjective, Expr: from.configured(metrics.SLOObjective)},
		Record{Name: metrics.RecordedPeriod, Expr: from.configured(metrics.SLOPeriod)},
		Record{Name: metrics.RecordedErrorBudget, Expr: promql.Sub(promql.Num(1), remembered(metrics.RecordedObjective))},
		Record{Name: metrics.RecordedBehindGateway, Expr: behindGateway()},
		Record{Name: metrics.RecordedGoodTokens, Expr: goodTokens()})
	g.Records = append(g.Records, thresholds(opt)...)
	if len(opt.ObjectiveLabels) > 0 {
		g.Records = append(g.Records, Record{Name: metrics.RecordedOwner, Expr: owner(opt)})
	}
	return g
}

// goodTokens returns a lower bound of goodput: all tokens, minus the shares that missed the latency objectives. Of
// several objectives on one signal, only the share of the worst is subtracted, because it includes the others.
func goodTokens() promql.Expr {
	var latencies []string
	for _, s := range slo.Signals() {
		if s.Latency() && !s.OfProbes() {
			latencies = append(latencies, string(s))
		}
	}
	missed := promql.Div(promql.Vector(metrics.RecordedBadEventRate), promql.Gt(promql.Vector(metrics.RecordedEventRate), promql.Num(0)))
	of := promql.Max(append([]string{metrics.LabelSignal}, modelSLO...), promql.Vector(metrics.RecordedInfo,
		promql.Re(metrics.LabelSignal, strings.Join(latencies, "|"))))
	worst := promql.Max(append([]string{metrics.LabelSignal}, modelLabels...), promql.Mul(of, missed, promql.On(modelSLO...).ManyToOne()))
	return promql.Mul(promql.Sum(modelLabels, promql.Vector(metrics.RecordedGenerationTokens)),
		promql.Call("clamp_min", promql.Sub(promql.Num(1), promql.Sum(modelLabels, worst)), promql.Num(0)), promql.On(modelLabels...))
}

// burnGroup records burn rates and has the alerts on them. It also records the texts of the suspects, so that a page
// does not have to wait for another group to record its text.
//
// Windows up to an hour read the raw counters. A longer window consists of this exact hour and of the recorded
// five-minute rates before that hour. A five-minute rate lags by half of its window, so the rates are read with an
// offset that is shorter by that half. Each event thus counts once. An incident shows as early as in a raw query over
// the whole window, at a fraction of the samples.
func burnGroup(opt Options) Group {
	from := opt.source()
	g := Group{Name: "llm-slo-burn", Interval: Interval}
	record := func(f *metrics.Family, e promql.Expr) { g.Records = append(g.Records, Record{Name: f, Expr: e}) }

	perSecond := func(e promql.Expr) promql.Expr {
		return promql.Call("clamp_min", promql.Div(e, promql.Num(RateWindow.Std().Seconds())), promql.Num(0))
	}
	record(metrics.RecordedEventRate, perSecond(from.events(metrics.SLOEvents, RateWindow)))
	record(metrics.RecordedBadEventRate, promql.Or(perSecond(from.events(metrics.SLOBadEvents, RateWindow)),
		promql.Mul(promql.Num(0), promql.Vector(metrics.RecordedEventRate))))

	record(increase(metrics.RecordedEvents, RawWindow), from.events(metrics.SLOEvents, RawWindow))
	record(increase(metrics.RecordedBadEvents, RawWindow), from.badIn(RawWindow))

	record(metrics.RecordedRequestsPerEvent, from.requestsPerToken())
	g.Records = append(g.Records, burns(opt, slo.Page)...)
	record(metrics.RecordedExpectedRate, expectedRate())
	if opt.Tier == Single { // each shard forwards its own series
		record(metrics.RecordedSentence, sentences(promql.Vector(metrics.RecordedShown)))
	}
	record(metrics.RecordedExplained, explained())
	record(metrics.RecordedVerdict, firstSuspects())
	g.Records = append(g.Records, pairBurns(opt, slo.Page)...)
	g.Alerts = burnAlerts(opt, FastBurn)
	return g
}

// budgetTextGroup records the numbers for the text about the budget in a page. It runs before burnGroup, which has no
// room for more rules.
func budgetTextGroup(opt Options) Group {
	g := Group{Name: "llm-slo-text", Interval: Interval}
	for _, w := range slo.NowWindows {
		g.Records = append(g.Records, Record{
			Name: increase(metrics.RecordedBadEvents, w.Length), Expr: opt.source().events(metrics.SLOBadEvents, w.Length),
		})
	}
	g.Records = append(g.Records, Record{Name: metrics.RecordedBadNow, Expr: badNow()},
		Record{Name: metrics.RecordedBadShareNow, Expr: badShareNow(opt.source())},
		Record{Name: metrics.RecordedExhaustion, Expr: exhaustion()})
	return g
}

// behindGateway returns each availability objective of engines that a gateway in front of them also counts. Only the
// gateway's objective then alerts, but both have a budget. The gateway must have counted at least half of the engines'
// events within the hour, and a tenth within the last minutes, because it cannot represent the engines otherwise. If
// the gateway's metrics endpoint is gone, or clients avoid the gateway, the engines' objective alerts instead.
func behindGateway() promql.Expr {
	inFront := promql.On(ofModel...)
	gateway := promql.And(promql.Vector(increase(metrics.RecordedEvents, RawWindow), gatewayRole()),
		promql.Over("last_over_time", promql.Vector(metrics.RecordedInfo, gatewayRole(), promql.Eq(metrics.LabelSignal,
			string(slo.Availability))), RateWindow.Std()), inFront)
	engines := promql.Vector(increase(metrics.RecordedEvents, RawWindow), promql.Ne(metrics.LabelRole, metrics.GatewayRole))
	rate := func(m *promql.Matcher) promql.Expr { return promql.Vector(metrics.RecordedEventRate, m) }
	around := promql.Gt(rate(promql.Ne(metrics.LabelRole, metrics.GatewayRole)),
		promql.Add(times(10, rate(gatewayRole())), promql.Num(10/RateWindow.Std().Seconds())), inFront.ManyToOne())
	return promql.CountBy(modelSLO, promql.Unless(promql.Le(engines, times(2, gateway), inFront.ManyToOne()), around, promql.On(modelSLO...)))
}

// thresholds records one series per model, objective and window pair. Its value is the burn rate that spends the pair's
// share of the budget. The value is at least 1, and at most the rate at which half of all events are bad. This is
// slo.WindowPair.Factor, computed from the series of targets and periods. An objective behind a gateway has no
// threshold. The severity label is the lower one of the pair's and the objective's severities.
func thresholds(opt Options) (all []Record) {
	wants := func(severities ...slo.Severity) promql.Expr {
		names := make([]string, 0, len(severities))
		for _, s := range severities {
			names = append(names, s.String())
		}
		return promql.Over("last_over_time", promql.Vector(metrics.RecordedInfo, promql.Either(metrics.LabelSeverity,
			strings.Join(names, "|"))), infoLookback)
	}
	perObjective := promql.On(modelSLO...)
	limit := promql.Unless(promql.Div(promql.Num(slo.MaxBadShare.Float()), promql.Vector(metrics.RecordedErrorBudget)),
		promql.Vector(metrics.RecordedBehindGateway), perObjective)
	if opt.Tier == Single { // uncounted events do not alert, and shards leave them out of their sums
		limit = promql.Unless(limit, underMaintenance(), perObjective)
	}
	all = append(all, Record{Name: metrics.RecordedBurnLimit, Expr: limit})
	for _, p := range opt.WindowPairs {
		spend := promql.Div(remembered(metrics.RecordedPeriod), promql.Num(p.Unit()))
		factor := promql.Or(promql.Lt(promql.Call("clamp_min", spend, promql.Num(1)), promql.Vector(metrics.RecordedBurnLimit)),
			promql.Vector(metrics.RecordedBurnLimit))
		add := func(severity slo.Severity, e promql.Expr) {
			all = append(all, Record{metrics.RecordedBurnThreshold, e, map[string]string{
				metrics.LabelLong:     p.Long.String(),
				metrics.LabelSeverity: severity.String(),
			}})
		}
		if p.Severity == slo.Page {
			add(slo.Page, promql.Unless(factor, wants(slo.Ticket, slo.None), perObjective))
			add(slo.Ticket, promql.And(factor, wants(slo.Ticket), perObjective))
		} else {
			add(slo.Ticket, promql.Unless(factor, wants(slo.None), perObjective))
		}
	}
	return all
}

// badRatio returns the share of bad events in a window. Without events, there is no result, because the share would be
// NaN.
func badRatio(opt Options, w slo.Duration) promql.Expr {
	from := opt.source()
	bad, all := from.badIn(w), from.allIn(w)
	switch {
	case w == RateWindow:
		bad, all = promql.Vector(metrics.RecordedBadEventRate), promql.Vector(metrics.RecordedEventRate)
	case w < RawWindow:
		bad, all = promql.Vector(increase(metrics.RecordedBadEvents, w)), promql.Vector(increase(metrics.RecordedEvents, w))
	case w == RawWindow || isLong(opt.WindowPairs, w):
		bad = promql.Vector(increase(metrics.RecordedBadEvents, w))
	}
	return promql.Call("clamp_max", promql.Div(bad, promql.Gt(all, promql.Num(0))), promql.Num(1)) // the subtracted corrections lag behind
}

// allIn returns the number of events in a window.
func (s source) allIn(w slo.Duration) promql.Expr {
	switch {
	case w < RawWindow:
		return s.events(metrics.SLOEvents, w)
	case w == RawWindow:
		return promql.Vector(increase(metrics.RecordedEvents, w))
	}
	return extended(metrics.RecordedEvents, metrics.RecordedEventRate, w)
}

// badIn returns the number of bad events in a window.
func (s source) badIn(w slo.Duration) promql.Expr {
	if w <= RawWindow {
		return s.badEvents(w, s.allIn(w))
	}
	return extended(metrics.RecordedBadEvents, metrics.RecordedBadEventRate, w)
}

// extended returns the number of events in a window longer than RawWindow.
func extended(increased, rate *metrics.Family, w slo.Duration) promql.Expr {
	exact := promql.Vector(increase(increased, RawWindow))
	older := promql.Mul(promql.Num(Interval.Seconds()),
		promql.Over("sum_over_time", promql.Offset(promql.Vector(rate), (RawWindow-RateWindow/2).Std()), (w-RawWindow).Std()))
	return promql.Add(exact, promql.Or(older, promql.Mul(promql.Num(0), exact)))
}

// requestsPerToken returns how many requests one event stands for, for objectives whose events are tokens. The guard
// against low traffic thus counts one slow request of a thousand tokens as one bad request. An event never stands for
// more than one request: if the events are probes, the engine has many more requests than events.
func (s source) requestsPerToken() promql.Expr {
	tokens := s.allIn(RequestWindow)
	ofTokens := promql.Over("last_over_time", promql.Vector(metrics.RecordedInfo, promql.Eq(metrics.LabelSignal, string(slo.ITL))),
		infoLookback)
	return promql.Call("clamp_max", promql.Div(s.requests(RequestWindow),
		promql.And(promql.Gt(tokens, promql.Num(0)), ofTokens, promql.On(modelSLO...)),
		promql.On(modelRole...).OneToMany()), promql.Num(1))
}

// fires returns the condition of a window pair. Both windows must burn faster than the threshold, more requests must be
// bad than chance explains, and the loss must matter for the budget.
func fires(p slo.WindowPair, windows []slo.Duration) promql.Expr {
	own := promql.Eq(metrics.LabelLong, p.Long.String())
	threshold := promql.Max(modelSLO, promql.Vector(metrics.RecordedBurnThreshold, own))
	over := func(w slo.Duration) promql.Expr { return promql.Gt(promql.Vector(burn(w)), threshold) }
	short := over(p.Short)
	if p.Short > RateWindow {
		// Without new events, a firing alert continues until its last events are four short windows old. This does not
		// apply to the five-minute window, because five minutes without events may be the end of the incident.
		firing := promql.Over("last_over_time", promql.Vector(metrics.RecordedPairBurn, own), 3*minute)
		silent := promql.Unless(promql.Vector(burn(latest(p, windows))), promql.Vector(burn(p.Short)))
		short = promql.Or(short, promql.And(silent, firing, promql.On(modelSLO...)))
	}
	burning, bad := promql.And(over(p.Long), short), promql.Vector(increase(metrics.RecordedBadEvents, p.Long))
	if p.Sustains() {
		burning = promql.Or(burning, sustained(bad, threshold))
	}
	badRequests := promql.Or(promql.Mul(bad, promql.Vector(metrics.RecordedRequestsPerEvent)), bad)
	// Rates extrapolate, so five events may appear as 4.98. Four events never appear as 4.5.
	enough := promql.Ge(badRequests, promql.Num(slo.MinBadEvents-0.5))
	// If traffic is far below its usual rate or has just begun, a burn rate is high long before much of the budget is
	// lost. Therefore, the loss must matter at the usual traffic. Shortly after a start, a larger loss is required.
	awake := promql.And(promql.Offset(promql.Vector(burn(p.Long)), RateWindow.Std()), usualRate(RawWindow.Std()))
	spend := func(share float64, of promql.Expr) promql.Expr {
		return promql.Add(times(0, of), promql.Num(share*p.Long.Std().Seconds()))
	}
	least := promql.Mul(promql.Or(spend(slo.LeastSpend, awake), spend(slo.WakeSpend, threshold)), threshold)
	trifle := promql.Lt(bad, promql.Mul(least, promql.Mul(promql.Vector(metrics.RecordedExpectedRate),
		promql.Vector(metrics.RecordedErrorBudget))))
	return promql.Unless(promql.And(burning, enough), trifle)
}

// sustained returns the five-minute burn rates that page whatever the burn rate of the long window: see
// slo.SustainedFactor.
func sustained(bad, threshold promql.Expr) promql.Expr {
	strict := promql.Lt(promql.Vector(metrics.RecordedErrorBudget), promql.Num(slo.SustainedBudget.Float()))
	now := promql.Vector(metrics.RecordedBadEventRate)
	old := promql.Gt(promql.Offset(now, slo.SustainedFor), times(slo.SustainedPart, now))
	fresh := promql.Gt(promql.Sub(bad, promql.Offset(bad, slo.SustainedNow)), times(slo.SustainedPart*RateWindow.Std().Seconds(), now))
	return both(promql.Gt(promql.Vector(burn(RateWindow)), times(slo.SustainedFactor, threshold)), strict, old, fresh)
}

// burns records the burn rates in all windows of a severity's pairs. For the guard against low traffic, it also records
// the bad events in the long windows.
func burns(opt Options, of slo.Severity) (all []Record) {
	needs := func(severity slo.Severity) (w []slo.Duration) {
		if severity == slo.Page {
			w = append(w, RateWindow, RawWindow) // dashboards and annotations also read these windows
		}
		for _, p := range opt.WindowPairs {
			if p.Severity == severity {
				w = append(w, p.Long, p.Short, latest(p, BurnWindows(opt.WindowPairs)))
			}
		}
		return w
	}
	for _, w := range BurnWindows(opt.WindowPairs) {
		if !slices.Contains(needs(of), w) || of == slo.Ticket && slices.Contains(needs(slo.Page), w) {
			continue
		}
		switch {
		case w > RateWindow && w < RawWindow:
			all = append(all, Record{Name: increase(metrics.RecordedEvents, w), Expr: opt.source().allIn(w)},
				Record{Name: increase(metrics.RecordedBadEvents, w), Expr: opt.source().
					badEvents(w, promql.Vector(increase(metrics.RecordedEvents, w)))})
		case w != RawWindow && isLong(opt.WindowPairs, w):
			all = append(all, Record{Name: increase(metrics.RecordedBadEvents, w), Expr: opt.source().badIn(w)})
		}
		all = append(all, Record{Name: burn(w), Expr: promql.Div(badRatio(opt, w), promql.Vector(metrics.RecordedErrorBudget))})
	}
	return all
}

// latest returns the window in which events count as new for a pair: the shortest window that is at least four short
// windows long, or at least as long as the long window.
func latest(p slo.WindowPair, windows []slo.Duration) slo.Duration {
	return windows[slices.IndexFunc(windows, func(w slo.Duration) bool { return w >= min(4*p.Short, p.Long) })]
}

// expectedRate returns the rate of events with which a loss is compared. This is the usual rate or, for a model that
// started within the hour, the rate since its first event. While a model sleeps, its usual rate remains recorded for
// longer than its objective.
func expectedRate() promql.Expr {
	return promql.Or(promql.Unless(above(latelyRate(), 0), usualRate(RawWindow.Std())), usualRate(0))
}

// latelyRate returns the rate of events of the last hour, or of the part of that hour that has events.
func latelyRate() promql.Expr {
	events := promql.Vector(increase(metrics.RecordedEvents, RawWindow))
	return promql.Div(events, times(Interval.Seconds(), promql.Over("count_over_time", events, RawWindow.Std())))
}

// usualRate returns the rate of events over an objective's period, as recorded some time ago.
func usualRate(ago time.Duration) promql.Expr {
	return promql.Max(modelSLO, promql.Over("last_over_time", promql.Offset(promql.Vector(metrics.RecordedUsualRate), ago), budgetLookback))
}

// burnAlerts completes alerts on burn rates. If an objective's severity is lower than page, its fast pairs open
// tickets. A page is about the model's objective that burns fastest. The page continues for three minutes after the
// last evaluation that requires it, because with rare requests, an increase may be empty for a scrape or two.
func burnAlerts(opt Options, of ...*Alert) (alerts []*Alert) {
	for _, a := range of {
		if slices.ContainsFunc(opt.WindowPairs, func(p slo.WindowPair) bool { return p.Severity <= a.Severity }) {
			asks := promql.Vector(metrics.RecordedBurnThreshold, promql.Eq(metrics.LabelSeverity, a.Severity.String()))
			b := *a
			perPair := promql.On(append([]string{metrics.LabelLong}, modelSLO...)...)
			if a.Severity == slo.Page {
				burns := promql.And(promql.Over("last_over_time", promql.Vector(metrics.RecordedPairBurn), 3*minute), asks, perPair)
				b.Expr = worst(slices.Concat(modelLabels, opt.ObjectiveLabels), owned(opt, promql.Max(modelSLO, burns)))
			} else {
				b.Expr = owned(opt, Asks(a.Severity))
			}
			alerts = append(alerts, &b)
		}
	}
	return alerts
}

// pairBurns records the burn rates for which a pair of a severity requires an alert.
func pairBurns(opt Options, of slo.Severity) (all []Record) {
	for _, p := range opt.WindowPairs {
		if p.Severity == of {
			asks := fires(p, BurnWindows(opt.WindowPairs))
			if p == slo.Slowest(opt.WindowPairs, slo.Page) {
				asks = promql.Or(asks, stays(p, opt.WindowPairs))
			}
			all = append(all, Record{metrics.RecordedPairBurn, asks, map[string]string{metrics.LabelLong: p.Long.String()}})
		}
	}
	return all
}

// stays returns the burn rates of objectives for which some pair has just required a page, if the slowest pair's short
// window still burns faster than staying. This rate is below the threshold, so that a burn near the threshold does not
// end and begin again. If bad events are rare, a short window without bad events proves nothing, so a longer window
// decides.
func stays(p slo.WindowPair, pairs []slo.WindowPair) promql.Expr {
	var pages []string
	for _, p := range pairs {
		if p.Severity == slo.Page {
			pages = append(pages, p.Long.String())
		}
	}
	asked := promql.Over("last_over_time", promql.Vector(metrics.RecordedPairBurn, promql.Either(metrics.LabelLong,
		strings.Join(pages, "|"))), 3*minute)
	over := func(w slo.Duration) promql.Expr { return promql.Gt(promql.Vector(burn(w)), staying(p)) }
	few := promql.Lt(promql.Vector(increase(metrics.RecordedBadEvents, p.Long)), promql.Num(slo.FewBadEvents))
	return promql.And(promql.Or(over(p.Short), promql.And(over(latest(p, BurnWindows(pairs))), few)), asked, promql.On(modelSLO...))
}

// staying returns the burn rate above which a page continues.
func staying(slowest slo.WindowPair) promql.Expr {
	return times(slo.StayShare, promql.Max(modelSLO, promql.Vector(metrics.RecordedBurnThreshold,
		promql.Eq(metrics.LabelLong, slowest.Long.String()))))
}

// burnBegan returns when each objective began to burn. A burn does not end at a moment without bad events, because the
// short window of the slowest pair bridges such moments.
func burnBegan(slowest slo.WindowPair) promql.Expr {
	over := func(is promql.Expr, w slo.Duration) promql.Expr {
		return promql.And(is, promql.Gt(promql.Vector(burn(w)), staying(slowest)))
	}
	return promql.Or(over(promql.Over("last_over_time", promql.Vector(metrics.RecordedBurnBegan), RateWindow.Std()), slowest.Short),
		over(promql.Call("timestamp", promql.Vector(burn(RateWindow))), RateWindow))
}

// laterGroup has the alerts that can wait for burnGroup: tickets about burn rates, and pages for new faults in an
// incident.
func laterGroup(opt Options) Group {
	news := *SecondFault
	news.Expr = secondFault()
	records := append(slices.Concat(burns(opt, slo.Ticket), pairBurns(opt, slo.Ticket)),
		Record{Name: metrics.RecordedMoreOdds, Expr: moreOdds(10)})
	if p := slo.Slowest(opt.WindowPairs, slo.Page); p.Long > 0 {
		records = append(records, Record{Name: metrics.RecordedBurnBegan, Expr: burnBegan(p)})
	}
	return Group{Name: "llm-slo-later", Interval: Interval, Alerts: append(burnAlerts(opt, SlowBurn), &news), Records: records}
}

// worst returns the highest burn rate of each group of labels. Objectives on the time between tokens take precedence
// over those on the time to the first token, because late tokens also delay first tokens. The paged objective stays
// until another objective burns twice as fast, so that two nearly equal objectives do not alternate. An objective
// without a bad event in the last minutes never replaces it, because the incident is then over.
func worst(by []string, burns promql.Expr) promql.Expr {
	perObjective := promql.On(modelSLO...)
	weighs := func(factor float64, which promql.Expr) promql.Expr {
		return times(factor, promql.Call("clamp_max", promql.Max(modelSLO, which), promql.Num(1)))
	}
	paged := promql.Vector(metrics.Alerts, promql.Eq("alertname", FastBurn.Name), promql.Eq("alertstate", "firing"))
	further := promql.Over("last_over_time", promql.Vector(metrics.RecordedInfo, promql.Either(metrics.LabelSignal, string(slo.ITL)+"|"+
		string(slo.TPOT))), infoLookback)
	bad := above(promql.Vector(metrics.RecordedBadEventRate), 0)
	weight := promql.Or(weighs(20, paged), promql.And(promql.Or(weighs(10, further), weighs(1, promql.Vector(metrics.RecordedBurnThreshold))),
		bad, perObjective))
	return promql.And(burns, promql.TopK(1, by, promql.Mul(burns, weight, perObjective.ManyToOne())), perObjective)
}

// owned adds the labels that the configuration gives to objectives, such as team.
func owned(opt Options, e promql.Expr) promql.Expr {
	if len(opt.ObjectiveLabels) == 0 {
		return e
	}
	return promql.Mul(e, promql.Vector(metrics.RecordedOwner), promql.On(modelSLO...).ManyToOne(opt.ObjectiveLabels...))
}

// owner returns the value 1 for each objective, with the labels from its configuration.
func owner(opt Options) promql.Expr {
	known := promql.TopK(1, modelSLO, promql.Max(slices.Concat(modelSLO, opt.ObjectiveLabels), remembered(metrics.RecordedInfo)))
	nobody := promql.Call("clamp_max", promql.Max(modelSLO, promql.Vector(metrics.RecordedBurnThreshold)), promql.Num(1))
	return promql.OrOn(known, nobody, promql.On(modelSLO...))
}

func burn(w slo.Duration) *metrics.Family { return metrics.Window(metrics.RecordedBurn, w.String()) }

func increase(f *metrics.Family, w slo.Duration) *metrics.Family {
	return metrics.Window(f, w.String())
}

func isLong(pairs []slo.WindowPair, w slo.Duration) bool {
	return slices.ContainsFunc(pairs, func(p slo.WindowPair) bool { return p.Long == w })
}

// BurnWindows returns the windows with a recorded burn rate. RateWindow and RawWindow are always included, because
// dashboards and annotations read them.
func BurnWindows(pairs []slo.WindowPair) []slo.Duration {
	w := []slo.Duration{RateWindow, RawWindow}
	for _, p := range pairs {
		w = append(w, p.Long, p.Short)
	}
	slices.Sort(w)
	return slices.Compact(w)
}

// RawWindows returns the windows that are read from raw counters.
func RawWindows(pairs []slo.WindowPair) []slo.Duration {
	return slices.DeleteFunc(BurnWindows(pairs), func(w slo.Duration) bool { return w > RawWindow })
}
