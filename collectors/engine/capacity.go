package engine

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/capacity"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// From all readings, the exporter learns how much more load an engine can take: see package capacity. This file finds
// the numbers on the engine's metrics page.

// sizing holds the load that one unit of an engine reports, and the series about the unit's capacity.
type sizing struct {
	key        [outLabels]string
	lines      map[*metrics.Family][]line
	progress   string // series that identifies the unit
	observed   bool   // histograms of the times to first tokens and between tokens exist
	timed      bool   // without histograms, sums show how long a token takes, so only the duration of steps can be learnt
	latencies  map[*metrics.Family]latency
	objectives []capacity.Objective
	forecasts  []forecastSeries // by objective
	levers     map[capacity.Lever]string
	known      map[capacity.Why]string // series, by reason
	slowdown   string                  // series
	at         map[float64]string      // series of the steps, by number of running requests
}

// latency is a histogram, the number of its values, and their sum.
type latency struct {
	histogram
	sum line
}

// forecastSeries are the series about one objective.
type forecastSeries struct {
	expected, low, high, tokens, used string
	limits                            map[capacity.Limit]string
}

// ofLoad lists the families, besides the two latencies, from which the capacity is learnt.
var ofLoad = []*metrics.Family{
	metrics.GenerationTokens, metrics.Stages, metrics.StageTime, metrics.RequestsRunning, metrics.RequestsWaiting, metrics.KVCacheUsage,
}

// sizingOf returns the unit of a series, or nil for a series of another server.
func (c *compiler) sizingOf(out [outLabels]string) *sizing {
	if role := out[outRole]; role == metrics.GatewayRole || role == metrics.KVCacheRole || role == metrics.FrontendRole {
		return nil
	}
	key := unitOf(out)
	i := slices.IndexFunc(c.sizings, func(s sizing) bool { return s.key == key })
	if i < 0 {
		i, c.sizings = len(c.sizings), append(c.sizings, sizing{
			key: key, lines: map[*metrics.Family][]line{},
			latencies: map[*metrics.Family]latency{},
		})
	}
	return &c.sizings[i]
}

// loads adds an output line to the lines from which the capacity of the line's unit is learnt.
func (c *compiler) loads(to *metrics.Family, out [outLabels]string, l line) {
	if slices.Contains(ofLoad, to) {
		if s := c.sizingOf(out); s != nil {
			s.lines[to] = append(s.lines[to], l)
		}
	}
}

// lags adds a latency that users see, or a histogram that replaces this latency.
func (c *compiler) lags(to *metrics.Family, out [outLabels]string, h histogram, sum line) {
	if slices.Contains([]*metrics.Family{
		metrics.TimeToFirstToken, metrics.InterTokenLatency, metrics.TimePerOutputToken,
		metrics.DecodeTime,
	}, to) {
		if s := c.sizingOf(out); s != nil {
			s.latencies[to] = latency{h, sum}
		}
	}
}

// capacities completes the units of engines that generate tokens. Units that report too little about their load are not
// observed.
func (c *compiler) capacities(d *Dialect) (all []sizing) {
	if d.Tokenless {
		return nil
	}
	for _, s := range c.sizings {
		s.observed = s.latencies[metrics.TimeToFirstToken].count != nil && (s.latencies[metrics.InterTokenLatency].count != nil || s.counted())
		s.timed = !s.observed && s.lines[metrics.Stages] != nil && s.lines[metrics.StageTime] != nil
		text := func(f *metrics.Family, name, value string, more ...metrics.Label) string {
			return c.text(f.Name, s.key, append(more, metrics.Label{Name: name, Value: value})...)
		}
		for _, o := range c.config.Objectives {
			if o.Signal != slo.TTFT && o.Signal != slo.ITL || !selects(o, s.key) {
				continue
			}
			of := metrics.Label{Name: metrics.LabelSLO, Value: o.Name}
			s.objectives = append(s.objectives, capacity.Objective{
				Name: o.Name, Gaps: o.Signal == slo.ITL, Threshold: o.Threshold.Std(),
				Bad: o.Budget().Float(),
			})
			f := forecastSeries{tokens: c.text(metrics.EngineCapacityTokens.Name, s.key, of), used: c.text(metrics.EngineCapacityUsed.Name,
				s.key, of), limits: map[capacity.Limit]string{}}
			for kind, series := range map[string]*string{"expected": &f.expected, "low": &f.low, "high": &f.high} {
				*series = text(metrics.EngineCapacity, metrics.LabelKind, kind, of)
			}
			for _, l := range capacity.Limits() {
				f.limits[l] = text(metrics.EngineCapacityLimit, metrics.LabelLimit, string(l), of)
			}
			s.forecasts = append(s.forecasts, f)
		}
		s.progress = c.text(metrics.EngineLastProgress.Name, s.key)
		if s.known = map[capacity.Why]string{}; len(s.objectives) > 0 {
			s.slowdown, s.at, s.levers = c.text(metrics.EngineSlowdown.Name, s.key), map[float64]string{}, map[capacity.Lever]string{}
			for _, lever := range capacity.Levers() {
				s.levers[lever] = text(metrics.EngineCapacityIf, metrics.LabelLever, string(lever))
			}
			for _, why := range capacity.Reasons() {
				s.known[why] = text(metrics.EngineCapacityKnown, metrics.LabelReason, string(why))
			}
			all = append(all, s)
		}
	}
	return all
}

// counted reports whether the times between tokens are only known from ended requests, as their decode time divided by
// the number of tokens after the first token.
func (s *sizing) counted() bool {
	return s.latencies[metrics.DecodeTime].count != nil && s.latencies[metrics.TimePerOutputToken].count != nil &&
		s.lines[metrics.GenerationTokens] != nil
}

// learner holds what was learnt about a unit. A learner ends when the settings of its engine change.
type learner struct {
	capacity.Learner
	from *recorded
	with map[metrics.Setting]string // the known settings
	said outlook
	at   time.Time // when the forecast was computed
}

// outlook holds the forecast for a unit.
type outlook struct {
	all   []capacity.Forecast
	why   capacity.Why
	load  capacity.Load
	could map[capacity.Lever]float64 // by lever: the load at which the first objective breaks, as a multiple of the field load
	steps []capacity.Step
}

// lasting is how long a forecast is repeated, because computing a new forecast costs as much as a scrape.
const lasting = time.Minute

// says returns the forecast for a unit. It computes a new forecast once a minute.
func (l *learner) says(now time.Time, bounds capacity.Bounds, objectives []capacity.Objective) *outlook {
	if now.Sub(l.at) < lasting {
		return &l.said
	}
	l.at, l.said = now, outlook{load: l.Load(), could: map[capacity.Lever]float64{}, steps: l.Steps()}
	l.said.all, l.said.why = l.Forecast(bounds, objectives)
	for i := range l.said.all {
		for _, lever := range l.Levers(bounds) {
			if factor := l.With(lever, bounds, objectives[i]); i == 0 || factor < l.said.could[lever] {
				l.said.could[lever] = factor
			}
		}
	}
	return &l.said
}

// forecast learns from a reading, and adds the capacity of each unit to the snapshot. The series are ordered by family,
// as on a metrics page.
func (t *target) forecast(s *snapshot) {
	type unit struct {
		*sizing
		*outlook
	}
	units := make([]unit, 0, len(t.plan.sizings))
	learners := make(map[string]*learner, len(t.plan.sizings))
	for i := range t.plan.sizings {
		u, l := &t.plan.sizings[i], t.learner(&t.plan.sizings[i])
		learners[u.known[capacity.Known]] = l
		if u.observed || u.timed {
			l.Learn(t.reading(u))
		}
		if u.observed {
			units = append(units, unit{u, l.says(t.config.Now(), l.limits(), u.objectives)})
		} else {
			units = append(units, unit{u, &outlook{why: capacity.Unobserved, steps: l.Steps()}})
		}
	}
	t.learners = learners
	for _, u := range units {
		if times, ok := learners[u.known[capacity.Known]].Slowdown(); ok {
			s.append(metrics.EngineSlowdown, u.slowdown, times)
		}
	}
	for _, u := range units {
		for _, step := range u.steps {
			if u.at[step.Running] == "" {
				u.at[step.Running] = t.series(metrics.EngineStep.Name, u.key, metrics.Label{
					Name:  metrics.LabelBatch,
					Value: strconv.FormatFloat(step.Running, 'g', 3, 64),
				})
			}
			s.append(metrics.EngineStep, u.at[step.Running], step.Seconds)
		}
	}
	each := func(do func(u *unit, f *capacity.Forecast, series *forecastSeries)) {
		for i := range units {
			for j := range units[i].all {
				do(&units[i], &units[i].all[j], &units[i].forecasts[j])
			}
		}
	}
	each(func(u *unit, f *capacity.Forecast, series *forecastSeries) {
		s.append(metrics.EngineCapacity, series.expected, f.Factor*u.load.Requests)
		s.append(metrics.EngineCapacity, series.low, f.Low*u.load.Requests)
		s.append(metrics.EngineCapacity, series.high, f.High*u.load.Requests)
	})
	each(func(u *unit, f *capacity.Forecast, series *forecastSeries) {
		s.append(metrics.EngineCapacityTokens, series.tokens, f.Factor*u.load.Tokens)
	})
	for _, u := range units {
		for _, lever := range slices.Sorted(maps.Keys(u.could)) {
			s.append(metrics.EngineCapacityIf, u.levers[lever], u.could[lever]*u.load.Requests)
		}
	}
	each(func(_ *unit, f *capacity.Forecast, series *forecastSeries) {
		s.append(metrics.EngineCapacityUsed, series.used, f.Used)
	})
	each(func(_ *unit, f *capacity.Forecast, series *forecastSeries) {
		s.append(metrics.EngineCapacityLimit, series.limits[f.Limit], 1)
	})
	for _, u := range units {
		s.append(metrics.EngineCapacityKnown, u.known[u.why], metrics.Bool(u.why == capacity.Known))
	}
}

// learner returns the learner of a unit. If a setting has changed since the learner began, it returns a new learner. While an engine
// restarts, some settings are unknown, such as settings on the command line. Unknown settings do not count as changed.
func (t *target) learner(u *sizing) *learner {
	l := t.learners[u.known[capacity.Known]]
	if l != nil && l.from == t.recorded {
		return l
	}
	now := map[metrics.Setting]string{}
	for i := range t.recorded.of {
		if r := &t.recorded.of[i]; len(t.recorded.of) == 1 || r.key.model == u.key[outModel] {
			maps.Copy(now, r.values)
		}
	}
	if l == nil || l.differs(now) {
		l = &learner{with: map[metrics.Setting]string{}}
	}
	for setting, value := range now {
		// The first measured value stays, so that small steps cannot add up to a large drift. An image may get its digest later.
		if old, known := l.with[setting]; !known || setting == metrics.SettingImage && len(value) > len(old) {
			l.with[setting] = value
		}
	}
	l.from = t.recorded
	return l
}

// differs reports whether a setting has changed since the learner began.
func (l *learner) differs(settings map[metrics.Setting]string) bool {
	for setting, value := range settings {
		if old, known := l.with[setting]; known && !same(setting, old, value) {
			return true
		}
	}
	return false
}

// limits returns the engine's largest batch and largest step, if these settings are known.
func (l *learner) limits() (b capacity.Bounds) {
	b.Batch, _ = strconv.ParseFloat(l.with[metrics.SettingMaxSequences], 64)
	b.StepTokens, _ = strconv.ParseFloat(l.with[metrics.SettingMaxBatchTokens], 64)
	return b
}

// reading reads the load of a unit from the metrics page.
func (t *target) reading(u *sizing) capacity.Reading {
	total := func(f *metrics.Family) float64 {
		v := math.NaN()
		for i := range u.lines[f] {
			switch one := u.lines[f][i].eval(t.values); {
			case math.IsNaN(one) || math.IsInf(one, 0):
			case math.IsNaN(v):
				v = one
			default:
				v += one
			}
		}
		return v
	}
	r := capacity.Reading{
		At: t.config.Now(), GeneratedTokens: total(metrics.GenerationTokens), Running: total(metrics.RequestsRunning),
		Waiting: total(metrics.RequestsWaiting), KVUsage: total(metrics.KVCacheUsage),
	}
	if p := t.pasts[u.progress]; p != nil {
		r.PromptTokens = p.prefilled.total
	}
	if t.config.Computing != nil {
		if share, known := t.config.Computing(t.server); known {
			r.Computing = &share
		}
	}
	if u.timed {
		r.Gaps, r.GapSeconds = total(metrics.Stages), total(metrics.StageTime)
		return r
	}
	r.FirstTokens, r.FirstSeconds, r.First = t.latency(u.latencies[metrics.TimeToFirstToken])
	if u.latencies[metrics.InterTokenLatency].count != nil {
		r.Gaps, r.GapSeconds, r.Gap = t.latency(u.latencies[metrics.InterTokenLatency])
		return r
	}
	ended, seconds, _ := t.latency(u.latencies[metrics.DecodeTime])
	means, _, shape := t.latency(u.latencies[metrics.TimePerOutputToken])
	r.Gaps, r.GapSeconds, r.Gap = math.Max(0, r.GeneratedTokens-ended), seconds, shape
	r.Gap.All = means
	return r
}

// latency reads a histogram.
func (t *target) latency(of latency) (count, sum float64, h capacity.Histogram) {
	add := func(terms []term) (v float64) {
		for _, one := range terms {
			v += one.value(t.values)
		}
		return v
	}
	h = capacity.Histogram{Bounds: of.bounds, Counts: make([]float64, len(of.bounds))}
	for i := range of.cumulative {
		h.Counts[i] = add(of.cumulative[i])
	}
	return add(of.count), of.sum.eval(t.values), h
}
