package rules

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// These are the label sets of recorded series.
var (
	modelLabels    = []string{metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelModel}
	modelSLO       = metrics.ModelSLOLabels
	ofModel        = append([]string{metrics.LabelSLO}, modelLabels...) // of an objective on a model, from any source
	sloLabels      = []string{metrics.LabelCluster, metrics.LabelSLO}
	modelRole      = []string{metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelModel, metrics.LabelRole}
	exporterLabels = []string{metrics.LabelCluster, "job", metrics.LabelInstance}
	exporterSLO    = append([]string{metrics.LabelSLO}, exporterLabels...)
)

// These constants limit how long rules use the last recorded value of a series that has ended.
const (
	// objectiveLookback is for objectives whose events are no longer counted. A restart of an exporter, or the end of
	// an engine, thus does not end a page in the middle of an incident.
	objectiveLookback = 2 * time.Hour
	infoLookback      = 15 * time.Minute
	// budgetLookback is for budgets, which are recorded only once per RateWindow.
	budgetLookback = 2 * time.Duration(RateWindow)
)

// source builds the expressions that read events, objectives and burn rates in a tier of the fleet.
type source struct{ tier Tier }

func (o Options) source() source { return source{o.Tier} }

// events returns the increase of an event counter per model and objective. It reads the raw counters or, in the global
// tier, the sums of the shards. An engine counts once, even if several exporters read it.
func (s source) events(f *metrics.Family, window slo.Duration) promql.Expr {
	if s.tier == Global {
		return promql.Sum(modelSLO, promql.Vector(shardName(f, window)))
	}
	return promql.Sum(modelSLO, promql.Or(
		once(f, promql.Increase(promql.Vector(f), window.Std())),
		promql.Over("sum_over_time", promql.Vector(correctionOf(f)), window.Std())))
}

// badEvents returns the increase of bad events. If there are only events (all), it returns 0: a series of bad events
// that does not exist yet means that no event was bad.
func (s source) badEvents(window slo.Duration, all promql.Expr) promql.Expr {
	return promql.Or(s.events(metrics.SLOBadEvents, window), promql.Mul(promql.Num(0), all))
}

// arrived returns the metrics endpoints of engines younger than ten minutes. It leaves out engines that started before
// their exporter, or before the exporter's configuration was loaded, because it is unknown when their first events
// happened.
func arrived() promql.Expr {
	older := promql.Lt(promql.Vector(metrics.EngineStartTime), promql.Vector(metrics.ConfigReloadTime), promql.On(asker...).ManyToOne())
	return promql.Unless(younger(youth), older, promql.On(pageLabels...))
}

// youth limits the age of a new engine. The events before its first scrape count as recent, although increase() does
// not see them.
const youth = 10 * minute

// first returns the events that newly arrived engines had counted before Prometheus first saw these engines. increase()
// leaves these events out, because it cannot distinguish a new engine from an engine that was not scraped before.
func first(f *metrics.Family) promql.Expr {
	counter := promql.Vector(f)
	unseen := promql.Unless(promql.Over("min_over_time", counter, Interval),
		promql.Over("last_over_time", promql.Offset(counter, Interval), youth))
	return promql.Sum(modelSLO, once(f, promql.And(unseen, promql.Vector(metrics.RecordedArrived), promql.On(pageLabels...))))
}

// underMaintenance selects the objectives in a declared interval of maintenance, as recorded.
func underMaintenance() promql.Expr { return promql.Vector(metrics.RecordedMaintenance) }

// maintained returns the objectives in a declared interval of maintenance, until the rates no longer include the
// interval. If an engine of the model is gone with its exporter, the result lasts as long as that of silenced.
func maintained() promql.Expr {
	declared := promql.Max(modelSLO, promql.Over("max_over_time", promql.Vector(metrics.SLOMaintenance), RateWindow.Std()+Interval))
	before := promql.Over("last_over_time", promql.Vector(metrics.RecordedMaintenance), hour)
	return promql.Or(declared, promql.And(before, promql.Vector(metrics.RecordedSilenced), promql.On(modelLabels...)))
}

// silenced returns the declared end of maintenance while the maintenance explains alerts. This is the case until the
// rates no longer include the interval. If the exporter that reads the engines is gone, the last declared end decides.
func silenced(end, recorded *metrics.Family, by, reader []string) promql.Expr {
	lasts := RateWindow.Std() + Interval
	declared := promql.Max(by, promql.Over("max_over_time", promql.Vector(end), lasts))
	before := promql.Over("last_over_time", promql.Vector(recorded), hour)
	gone := promql.Unless(promql.Gt(before, promql.Sub(promql.Call("time"), promql.Num(lasts.Seconds()))),
		promql.Vector(metrics.EngineUp), promql.On(reader...))
	return promql.Or(declared, gone)
}

// Condition returns the alert's expression, without the series that maintenance explains.
func (a *Alert) Condition() promql.Expr {
	has := promql.Labels(a.Expr)
	switch {
	case len(a.Explains) == 0 && a.Name != ExporterDown.Name:
		return a.Expr
	case slices.Contains(a.Scope, metrics.LabelServer) && slices.Contains(has, metrics.LabelPod):
		return promql.Unless(a.Expr, promql.Vector(metrics.RecordedSilenced), promql.On(pageLabels...))
	case slices.Contains(has, metrics.LabelModel):
		return promql.Unless(a.Expr, promql.Vector(metrics.RecordedSilenced), promql.On(modelLabels...))
	}
	return promql.Unless(a.Expr, promql.Vector(metrics.RecordedSilencedNode), promql.On(onNode...))
}

// leftOut returns the correction for the events of one minute of maintenance, as a negative number. This is a fifth of
// the five-minute increase, because each event is in the increases of five minutes.
func leftOut(f *metrics.Family) promql.Expr {
	counted := promql.Sum(modelSLO, once(f, promql.Increase(promql.Vector(f), RateWindow.Std())))
	return times(-Interval.Seconds()/RateWindow.Std().Seconds(), promql.And(counted, underMaintenance()))
}

func correctionOf(f *metrics.Family) *metrics.Family {
	if f == metrics.SLOBadEvents {
		return metrics.RecordedBadEventCorrection
	}
	return metrics.RecordedEventCorrection
}

// answeredProbes returns, as a negative number, the synthetic requests of one minute that were answered. This
// correction removes them from the events of the engines' availability, because no user sent them. Latency objectives
// still count them, because it is unknown which of them were late.
func (s source) answeredProbes() promql.Expr {
	info := metrics.RecordedInfo
	if s.tier == Shard {
		info = metrics.ShardInfo
	}
	counts := promql.Max(modelSLO, promql.Vector(info, promql.Eq(metrics.LabelSignal, string(slo.Availability)),
		promql.Ne(metrics.LabelRole, metrics.GatewayRole)))
	return times(-Interval.Seconds(), promql.Mul(promql.Unless(counts, underMaintenance()), promql.Vector(metrics.RecordedProbes),
		promql.On(modelLabels...).ManyToOne()))
}

// corrections returns the rules that record corrections to increases.
func (s source) corrections() []Record {
	records := []Record{
		{Name: metrics.RecordedDownTime, Expr: enginesDown()},
		{
			metrics.RecordedDownTime, downTime(promql.Vector(metrics.EngineLastServed, gatewayRole()), gatewayRole()),
			map[string]string{metrics.LabelRole: metrics.GatewayRole},
		},
		{Name: metrics.RecordedSilenced, Expr: silenced(metrics.EngineMaintenanceEnd, metrics.RecordedSilenced, replicaLabels, pageLabels)},
		{Name: metrics.RecordedSilencedNode, Expr: silenced(metrics.ExporterMaintenanceEnd, metrics.RecordedSilencedNode, onNode, onNode)},
		{Name: metrics.RecordedMaintenance, Expr: maintained()},
		{Name: metrics.RecordedArrived, Expr: arrived()},
		{metrics.RecordedEventCorrection, s.answeredProbes(), map[string]string{metrics.LabelReason: "probe"}},
	}
	for _, f := range []*metrics.Family{metrics.SLOEvents, metrics.SLOBadEvents} {
		records = append(records,
			Record{correctionOf(f), first(f), map[string]string{metrics.LabelReason: "first"}},
			Record{correctionOf(f), leftOut(f), map[string]string{metrics.LabelReason: "maintenance"}})
	}
	if s.tier == Single { // shards record whether an engine answers, but they do not record the usual rate
		reason := map[string]string{metrics.LabelReason: "lost"}
		records = append(records, Record{metrics.RecordedEventCorrection, lost(), reason},
			Record{
				metrics.RecordedBadEventCorrection, promql.Vector(metrics.RecordedEventCorrection, promql.Eq(metrics.LabelReason, "lost")),
				reason,
			})
	}
	return records
}

// requests returns the number of requests per model that reached their first token. For engines that do not report
// first tokens, it returns the number of ended requests.
func (s source) requests(window slo.Duration) promql.Expr {
	if s.tier == Global {
		return promql.Sum(modelRole, promql.Vector(metrics.ShardRequests))
	}
	ended := promql.Mul(promql.Num(window.Std().Seconds()),
		promql.Sum(modelLabels, promql.Over("avg_over_time", promql.Vector(metrics.RecordedRequests), window.Std())))
	return promql.Or(firstTokens(window), ended)
}

// firstTokens returns how many requests got their first token in a window. It reads a histogram, because older
// exporters lack the plain counter, and a count that is too low after an upgrade would delay pages.
func firstTokens(window slo.Duration) promql.Expr {
	requests := promql.BucketsOf(metrics.TimeToFirstToken, promql.Re(metrics.LabelRole, ".*"), promql.Eq("le", "+Inf"))
	return promql.Sum(modelRole, once(metrics.TimeToFirstToken, promql.Increase(requests, window.Std())))
}

// configured returns a value of the configured objectives, such as the target, for every model whose events are
// counted. The value from an exporter applies to the events that this exporter counts, so teams may use the same name
// for different objectives. If the exporters of one model disagree during a rollout, the largest value is used: the
// strictest target and the longest period. A series without the labels of its exporter applies to its whole cluster.
// The result keeps the labels in more.
func (s source) configured(f *metrics.Family, more ...string) promql.Expr {
	by := slices.Concat(modelSLO, more)
	if s.tier == Global {
		return promql.Max(by, promql.Vector(shardObjective(f)))
	}
	said := func(exporter ...string) promql.Expr {
		return promql.Max(by, saidBy(exporter, promql.Vector(f), more...))
	}
	return promql.OrOn(said(exporterSLO...), said(sloLabels...), promql.On(modelSLO...))
}

// saidBy joins e, a value about objectives, with each model and exporter that counts the objectives' events. exporter
// lists the labels that identify the exporter on both sides. more lists labels of e to keep.
func saidBy(exporter []string, e promql.Expr, more ...string) promql.Expr {
	counts := promql.Mul(promql.Num(0), promql.Max(append([]string{"job", metrics.LabelInstance}, modelSLO...),
		promql.Vector(metrics.SLOEvents)))
	said := promql.Max(slices.Concat(exporter, more), e)
	if len(more) > 0 {
		said = promql.TopK(1, exporter, said)
	}
	return promql.Add(counts, said, promql.On(exporter...).ManyToOne(more...))
}

// remembered returns the last recorded value of an objective, until objectiveLookback after its last engine has gone.
func remembered(f *metrics.Family, m ...*promql.Matcher) promql.Expr {
	return promql.Over("last_over_time", promql.Vector(f, m...), objectiveLookback)
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

// burning returns the objectives that burn faster than their budget allows, in a window of at most RawWindow.
func (s source) burning(w slo.Duration) promql.Expr { return above(s.burnRate(w), 1) }

// burnRate returns the burn rates of the objectives. Shards do not record burn rates, so a shard computes them from its
// own events.
func (s source) burnRate(w slo.Duration) promql.Expr {
	if s.tier != Shard {
		return promql.Vector(burn(w))
	}
	ratio := promql.Div(promql.Vector(shardName(metrics.SLOBadEvents, w)), above(promql.Vector(shardName(metrics.SLOEvents, w)), 0))
	return promql.Div(ratio, promql.Sub(promql.Num(1), promql.Vector(metrics.ShardObjective)))
}

// infoLabels returns the labels of an objective that rules read.
func infoLabels(opt Options) []string {
	return append([]string{
		metrics.LabelSignal, metrics.LabelBad, metrics.LabelPeriod, metrics.LabelSeverity, metrics.LabelRunbook,
		metrics.LabelDashboard,
	}, opt.ObjectiveLabels...)
}

// shardGroup records the series that the global tier reads. There is one series per model and objective for every raw
// window, for any number of engines.
func shardGroup(opt Options) Group {
	from := opt.source()
	g := Group{Name: "llm-slo-shard", Interval: Interval}
	for _, w := range RawWindows(opt.WindowPairs) {
		all := from.events(metrics.SLOEvents, w)
		g.Records = append(g.Records,
			Record{Name: shardName(metrics.SLOEvents, w), Expr: all},
			Record{Name: shardName(metrics.SLOBadEvents, w), Expr: from.badEvents(w, all)})
	}
	now := shortNow[0].Length
	g.Records = append(g.Records, Record{Name: shardName(metrics.SLOEvents, now), Expr: from.events(metrics.SLOEvents, now)})
	for _, w := range shortNow {
		g.Records = append(g.Records, Record{
			Name: shardName(metrics.SLOBadEvents, w.Length), Expr: from.events(metrics.SLOBadEvents, w.Length),
		})
	}
	g.Records = append(g.Records,
		Record{Name: metrics.ShardTile, Expr: from.tile(metrics.SLOEvents)},
		Record{Name: metrics.ShardBadTile, Expr: from.tile(metrics.SLOBadEvents)},
		Record{Name: metrics.ShardRequests, Expr: from.requests(RequestWindow)},
		Record{Name: metrics.ShardObjective, Expr: from.configured(metrics.SLOObjective)},
		Record{Name: metrics.ShardPeriod, Expr: from.configured(metrics.SLOPeriod)},
		Record{Name: metrics.ShardInfo, Expr: from.configured(metrics.SLOInfo, infoLabels(opt)...)})
	return g
}
