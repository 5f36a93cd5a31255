package engine

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Objectives are counted in the plan. The bucket bounds of the metrics page decide which bucket separates good from
// bad. A scrape then only adds and subtracts numbers that it reads anyway.

// countable lists the events that objectives can count on one metrics page.
type countable struct {
	histograms []histogram
	counters   []counter
	failures   bool // the engine reports requests that it failed or refused
}

// histogram is one histogram of the output, for one engine.
type histogram struct {
	family     *metrics.Family
	out        [outLabels]string
	bounds     []float64 // ascending, in base units, without +Inf
	cumulative [][]term
	count      []term
	madeUp     bool // a client may have made up the names of its models
	perStep    bool // see Row.PerStep
}

// counter is an output line that only adds up counters of the metrics page, for one engine. Objectives count no other
// counters.
type counter struct {
	family *metrics.Family
	out    [outLabels]string
	terms  []term
}

// effective holds the bucket bound at which an objective's threshold is applied on a metrics page.
type effective struct {
	slo     string
	runtime metrics.Runtime
	bound   float64
}

// offGrid is an objective whose threshold is more than twice the bound of the next lower bucket. Both are in seconds.
type offGrid struct {
	slo              string
	threshold, bound float64
}

// declared holds an objective of an engine, and the intervals of maintenance for this objective.
type declared struct {
	objective, engine string // series of llm_slo_maintenance and llm_engine_maintenance_end_timestamp_seconds
	in                []slo.Maintenance
}

// ends returns when the last current interval ends, in unix time. It returns 0 without a current interval.
func (d declared) ends(now time.Time) (end float64) {
	for _, m := range d.in {
		if m.On(now) {
			end = max(end, float64(m.To.Unix()))
		}
	}
	return end
}

// objectives adds the events of every objective that selects the engine.
func (c *compiler) objectives(d *Dialect, defaults map[string]string) {
	for _, o := range c.config.Objectives {
		if o.Signal.OfProbes() {
			continue // Collector.probed counts these objectives, even if the metrics endpoint does not answer
		}
		if d.Tokenless && o.Signal.Latency() && d.Missing[o.Signal.Family()] != "" {
			continue // without tokens, no token is late
		}
		var counted int
		if o.Signal.Latency() {
			if counted = c.countHistograms(d, o, o.Signal.Family(), slo.Counted); counted == 0 {
				from, as := d.substitute(o.Signal)
				counted = c.countHistograms(d, o, from, as)
			}
		} else {
			counted = c.countCounters(o)
		}
		if whole := c.whole(d, defaults); counted == 0 && selects(o, whole) && answersUsers(whole) {
			c.counted(o, whole, slo.SignalMissing)
		}
	}
}

// answersUsers reports whether users' requests go uncounted if a server lacks a signal. A cache or a prefill engine
// answers no user. A gateway that names no model is in front of engines that count the gateway's requests.
func answersUsers(whole [outLabels]string) bool {
	switch whole[outRole] {
	case metrics.KVCacheRole, metrics.PrefillRole:
		return false
	case metrics.GatewayRole:
		return whole[outModel] != ""
	default:
		return true
	}
}

// substitute returns the metric for a signal that the metrics page lacks, or nil without a substitute. The wait in the
// queue is a substitute for the time to the first token. It is used only for engines that generate tokens and never
// report the time to the first token.
func (d *Dialect) substitute(s slo.Signal) (*metrics.Family, slo.Reason) {
	if s == slo.TTFT && (d.Role != "" || d.Missing[metrics.TimeToFirstToken] == "" || d.Missing[metrics.RequestGenerationTokens] != "") {
		return nil, slo.Counted
	}
	return s.Substitute()
}

// countHistograms adds the events of a latency objective from one family. It returns the number of engines with events.
func (c *compiler) countHistograms(d *Dialect, o slo.Objective, from *metrics.Family, as slo.Reason) (counted int) {
	for _, h := range c.countable.histograms {
		if h.family != from || h.madeUp || !selects(o, h.out) {
			continue
		}
		counted++
		bound, reason := slo.Fits(h.bounds, o.Threshold.Std().Seconds())
		if reason != slo.Counted {
			c.counted(o, h.out, reason)
			if reason == slo.OffGrid {
				c.plan.offGrid = append(c.plan.offGrid, offGrid{o.Name, o.Threshold.Std().Seconds(), bound})
			}
			continue
		}
		unless := c.counted(o, h.out, as)
		c.plan.effective = append(c.plan.effective, effective{o.Name, d.Runtime, bound})
		all, good := h.count, h.cumulative[slices.Index(h.bounds, bound)]
		if h.perStep {
			all, good = c.weighed(h, "", all), c.weighed(h, slo.FormatBound(bound), good)
		}
		c.events(o, h.out, unless, slo.FormatBound(bound), all, all, good)
	}
	return counted
}

// weighed returns a tally of a histogram of steps that counts each step once for each request in the batch.
func (c *compiler) weighed(h histogram, bound string, of []term) []term {
	s := c.sizingOf(h.out)
	if s == nil || s.lines[metrics.RequestsRunning] == nil {
		return of
	}
	key := c.text(h.family.Name, h.out, metrics.Label{Name: metrics.LabelThreshold, Value: bound})
	i := slices.IndexFunc(c.plan.tallies, func(t tally) bool { return t.key == key })
	if i < 0 {
		count := make([]summand, len(of))
		for i, t := range of {
			count[i] = summand{t, strconv.Itoa(i)}
		}
		i = len(c.plan.tallies)
		c.place(tally{Tally: itself, key: key, counts: [][]summand{count}, weight: s.lines[metrics.RequestsRunning]})
	}
	return []term{{c.plan.tallies[i].place}}
}

// countCounters adds the events of an objective over counters. It returns the number of engines with events.
func (c *compiler) countCounters(o slo.Objective) (counted int) {
	groups := map[[outLabels]string][]counter{} // by engine, whatever the outcome
	for _, ctr := range c.countable.counters {
		engine := ctr.out
		clear(engine[len(metrics.EngineLabels):])
		if selects(o, engine) {
			groups[engine] = append(groups[engine], ctr)
		}
	}
	for _, engine := range slices.SortedFunc(maps.Keys(groups), func(a, b [outLabels]string) int { return slices.Compare(a[:], b[:]) }) {
		var events, bad, good []term
		for _, ctr := range groups[engine] {
			isEvent, isBad, isGood := classify(o, ctr)
			if isEvent {
				events = append(events, ctr.terms...)
			}
			if isBad {
				bad = append(bad, ctr.terms...)
			}
			if isGood {
				good = append(good, ctr.terms...)
			}
		}
		switch {
		case len(events) == 0:
			continue
		case o.Signal == slo.Availability && !c.countable.failures:
			c.counted(o, engine, slo.FailuresHidden)
		case o.Good != nil:
			c.counted(o, engine, slo.Counted)
			c.events(o, engine, nil, "", events, events, good)
		default: // even without bad counters, the series is exported, so that its first event is an increase
			c.counted(o, engine, slo.Counted)
			c.events(o, engine, nil, "", events, bad, nil)
		}
		counted++
	}
	return counted
}

// classify reports whether a counter counts events of an objective, and whether these events are bad or good. Package
// slo decides which outcomes count.
func classify(o slo.Objective, ctr counter) (isEvent, isBad, isGood bool) {
	if o.Signal == slo.Availability {
		if ctr.family == metrics.Requests {
			isEvent, isBad = o.Judge(metrics.Outcome(ctr.out[outOutcome]))
		}
		return isEvent, isBad, false
	}
	label := func(name string) string {
		if i := outIndex(name); i >= 0 {
			return ctr.out[i]
		}
		return ""
	}
	in := func(counters *slo.Counters) bool { return counters != nil && counters.Selects(ctr.family, label) }
	return in(o.Total), in(o.Bad), in(o.Good)
}

func selects(o slo.Objective, out [outLabels]string) bool { return o.Select.Matches(selected(out)) }

// selected returns the properties by which objectives select an engine.
func selected(out [outLabels]string) slo.Engine {
	value := func(label string) string { return out[outIndex(label)] }
	return slo.Engine{
		Runtime: metrics.Runtime(value(metrics.LabelRuntime)), Model: value(metrics.LabelModel),
		Namespace: value(metrics.LabelNamespace), Role: value(metrics.LabelRole),
	}
}

// counted adds the series that report whether an objective is counted on an engine. If probes may count the objective
// in place of the engine, counted returns it, and otherwise nil.
func (c *compiler) counted(o slo.Objective, out [outLabels]string, reason slo.Reason) (unless *uncounted) {
	says := func(r slo.Reason) string {
		return c.text(metrics.SLOCounted.Name, out, metrics.Label{Name: metrics.LabelSLO, Value: o.Name},
			metrics.Label{Name: metrics.LabelReason, Value: string(r)})
	}
	l := line{family: metrics.SLOCounted, text: says(reason), recipe: &recipe{value: metrics.Bool(reason.Counts())}}
	if c.config.Probed != nil && o.Default && (!reason.Counts() || reason == slo.QueueCounted) && o.Signal.ByProbe() != "" &&
		!c.written[l.text] {
		unless = &uncounted{o, out, says(slo.ProbeCounted)}
		l.recipe.unless, l.recipe.instead = unless, unless.probed
		c.plan.uncounted = append(c.plan.uncounted, *unless)
	}
	c.add(l)
	d := declared{
		objective: c.text(metrics.SLOMaintenance.Name, out, metrics.Label{Name: metrics.LabelSLO, Value: o.Name}),
		engine:    c.text(metrics.EngineMaintenanceEnd.Name, out),
	}
	for _, m := range c.config.Maintenance {
		if m.Covers(o) && m.Select.Matches(selected(out)) {
			d.in = append(d.in, m)
		}
	}
	if !c.written[d.objective] {
		c.written[d.objective] = true
		c.plan.declared = append(c.plan.declared, d)
	}
	return unless
}

// maintenance adds the current intervals. The intervals come from the configuration, and matter most while the engine
// is down for maintenance. Therefore, the intervals of the engine's last metrics page remain in use.
func (t *target) maintenance(s *snapshot) {
	t.mu.Lock()
	all := t.declared
	t.mu.Unlock()
	ends := map[string]float64{} // by engine; 0 if an interval does not cover some objective
	for _, d := range all {
		end := d.ends(t.config.Now())
		if end > 0 {
			s.append(metrics.SLOMaintenance, d.objective, 1)
		}
		if before, known := ends[d.engine]; known {
			end = min(end, before)
		}
		ends[d.engine] = end
	}
	for _, engine := range slices.Sorted(maps.Keys(ends)) {
		if ends[engine] > 0 {
			s.append(metrics.EngineMaintenanceEnd, engine, ends[engine])
		}
	}
	if len(ends) > 0 {
		s.maintained = slices.Min(slices.Collect(maps.Values(ends)))
	}
}

// nodeMaintenance renders the end of the maintenance of all engines, if all engines are in maintenance.
func nodeMaintenance(engines []*snapshot) *snapshot {
	s := &snapshot{}
	end := math.Inf(1)
	for _, e := range engines {
		end = min(end, e.maintained)
	}
	if len(engines) > 0 && end > 0 {
		s.append(metrics.ExporterMaintenanceEnd, metrics.ExporterMaintenanceEnd.Name, end)
	}
	return s
}

// events adds the two counters of an objective, unless probes count it. The number of bad events is the counter bad,
// minus the good events that this counter includes.
func (c *compiler) events(o slo.Objective, out [outLabels]string, unless *uncounted, threshold string, events, bad, butGood []term) {
	more := []metrics.Label{{Name: metrics.LabelSLO, Value: o.Name}, {Name: metrics.LabelThreshold, Value: threshold}}
	all, text := c.text(metrics.SLOEvents.Name, out, more...), c.text(metrics.SLOBadEvents.Name, out, more...)
	var lost []string
	if o.Signal == slo.Availability {
		lost = c.losses(out)
	}
	if threshold == "" && (c.tallied || lost != nil) {
		events, bad, butGood = c.lasting(all, events), c.lasting(text, bad), c.lasting(text+" but good", butGood)
	}
	c.add(line{family: metrics.SLOEvents, text: all, terms: events, recipe: &recipe{unless: unless, lost: lost}})
	c.add(line{
		family: metrics.SLOBadEvents, text: text, terms: bad,
		recipe: &recipe{minus: butGood, unless: unless, lost: lost},
	})
}

// losses returns the series of requests lost with an engine or a rank, because no counter of the engine has these
// requests. An engine has the losses of all its ranks, unless its ranks have their own events.
func (c *compiler) losses(out [outLabels]string) (all []string) {
	of := unitOf(out)
	if of[outDPRank] == "" && slices.ContainsFunc(c.countable.counters, func(ctr counter) bool {
		return ctr.family == metrics.Requests && ctr.out[outDPRank] != "" && compatible(unitOf(ctr.out), of)
	}) {
		return nil
	}
	for i := range c.plan.units {
		if u := &c.plan.units[i]; u.series[metrics.RequestsLost] != "" && compatible(u.key, of) {
			all = append(all, u.series[metrics.RequestsLost])
		}
	}
	return all
}

// objectiveLines renders the series about the objectives, once for all engines.
func objectiveLines(objectives []slo.Objective, snapshots []*snapshot) *snapshot {
	s := &snapshot{}
	series := func(f *metrics.Family, labels ...metrics.Label) string {
		return string(metrics.AppendSeries(nil, f.Name, labels...))
	}
	label := func(name, value string) metrics.Label { return metrics.Label{Name: name, Value: value} }
	for _, o := range objectives {
		s.append(metrics.SLOObjective, series(metrics.SLOObjective, label(metrics.LabelSLO, o.Name)), o.Target.Float())
	}
	for _, o := range objectives {
		if !o.Signal.Latency() {
			continue
		}
		bounds := map[metrics.Runtime]float64{}
		for _, snap := range snapshots {
			for _, e := range snap.effective {
				if strictest, known := bounds[e.runtime]; e.slo == o.Name && (!known || e.bound < strictest) {
					bounds[e.runtime] = e.bound
				}
			}
		}
		for _, runtime := range slices.Sorted(maps.Keys(bounds)) {
			threshold := func(kind string, value float64) {
				s.append(metrics.SLOThreshold, series(metrics.SLOThreshold, label(metrics.LabelSLO, o.Name),
					label(metrics.LabelRuntime, string(runtime)), label(metrics.LabelKind, kind)), value)
			}
			threshold("requested", o.Threshold.Std().Seconds())
			threshold("effective", bounds[runtime])
		}
	}
	for _, o := range objectives {
		s.append(metrics.SLOMayBeAbsent, series(metrics.SLOMayBeAbsent, label(metrics.LabelSLO, o.Name)), metrics.Bool(o.MayBeAbsent))
	}
	for _, o := range objectives {
		s.append(metrics.SLOPeriod, series(metrics.SLOPeriod, label(metrics.LabelSLO, o.Name)), o.Period.Std().Seconds())
	}
	for _, o := range objectives {
		o = o.WithDefaults()
		origin := ""
		if o.Default {
			origin = metrics.OriginDefault
		}
		info := []metrics.Label{
			label(metrics.LabelSLO, o.Name), label(metrics.LabelSignal, string(o.Signal)),
			label(metrics.LabelBad, asCounted(o, snapshots).Miss()), label(metrics.LabelPeriod, o.Period.String()),
			label(metrics.LabelSeverity, o.Severity.String()), label(metrics.LabelRunbook, o.Runbook),
			label(metrics.LabelDashboard, o.Dashboard), label(metrics.LabelOrigin, origin),
		}
		for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
			info = append(info, label(name, o.Labels[name]))
		}
		s.append(metrics.SLOInfo, series(metrics.SLOInfo, info...), 1)
	}
	return s
}

// asCounted returns an objective with the threshold at which its events are counted, if all engines use the same threshold.
func asCounted(o slo.Objective, snapshots []*snapshot) slo.Objective {
	var bounds []float64
	for _, s := range snapshots {
		for _, e := range s.effective {
			if e.slo == o.Name && !slices.Contains(bounds, e.bound) {
				bounds = append(bounds, e.bound)
			}
		}
	}
	if len(bounds) == 1 {
		o.Threshold = slo.Duration(time.Duration(math.Round(1000*bounds[0])) * time.Millisecond)
	}
	return o
}

// used returns the bounds at which objectives count on a histogram.
func (c *compiler) used(d *Dialect, h histogram) (bounds []float64) {
	for _, o := range c.config.Objectives {
		from, _ := d.substitute(o.Signal)
		if bound, ok := slo.Snap(h.bounds, o.Threshold.Std().Seconds()); ok && (o.Signal.Family() == h.family || from == h.family) &&
			selects(o, h.out) {
			bounds = append(bounds, bound)
		}
	}
	return bounds
}
