package backtest

import (
	"math"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// In minutes. The tests hold what is computed here against what Prometheus' rule manager does with the generated rules.
const (
	objectiveMinutes = 120 // for which an objective outlives its engines
	tileMinutes      = 5   // between two records of a budget
)

// subject holds what is counted for one objective on one model, minute by minute; NaN is absent.
type subject struct {
	key
	threshold               string                     // bucket bound, of the engine that was read last
	events, bad             map[slo.Duration][]float64 // increase in the windows that are read raw
	first, badFirst         []float64                  // what new engines had counted before their first scrape
	tiles, badTiles         []float64                  // exact gain of five minutes, every five minutes
	counted, underWay       []bool                     // some engine is counted; maintenance is under way
	requests, requestsEnded []float64                  // of the model in six hours; per second
}

// key identifies a subject.
type key struct {
	Cluster, Namespace, Model, Role, SLO string
}

func newSubject(k key, minutes int, raw []slo.Duration) *subject {
	s := &subject{key: k, events: map[slo.Duration][]float64{}, bad: map[slo.Duration][]float64{},
		first: nothing(minutes), badFirst: nothing(minutes), tiles: nothing(minutes), badTiles: nothing(minutes),
		counted: make([]bool, minutes), underWay: make([]bool, minutes)}
	for _, w := range raw {
		s.events[w], s.bad[w] = nothing(minutes), nothing(minutes)
	}
	return s
}

// corrected adds to the increases what package rules records as corrections.
func (s *subject) corrected() {
	for _, part := range []struct {
		increases map[slo.Duration][]float64
		first     []float64
		tiles     []float64
	}{{s.events, s.first, s.tiles}, {s.bad, s.badFirst, s.badTiles}} {
		correction := slices.Clone(part.first)
		counted := part.increases[rules.RateWindow]
		for i := range correction {
			if s.maintained(i) && !math.IsNaN(counted[i]) {
				correction[i] = plus(correction[i], -counted[i]/tileMinutes)
			}
		}
		for w, all := range part.increases {
			sums := over(correction, int(w.Std()/time.Minute), 0)
			for i := range all {
				all[i] = plus(all[i], sums[i])
			}
		}
		sums := over(correction, tileMinutes, 0)
		for i := 0; i < len(sums); i += tileMinutes {
			part.tiles[i] = plus(part.tiles[i], sums[i])
		}
	}
}

// maintained reports whether rates of a minute see maintenance.
func (s *subject) maintained(i int) bool {
	return slices.Contains(s.underWay[max(0, i-tileMinutes):i+1], true)
}

// over returns the sum of each n values that end ago minutes before; absent where all are.
func over(values []float64, n, ago int) []float64 {
	sums := nothing(len(values))
	var total float64
	found := 0
	add := func(i int, sign int) {
		if i >= 0 && !math.IsNaN(values[i]) {
			total += float64(sign) * values[i]
			found += sign
		}
		if found == 0 {
			total = 0 // rounding errors do not pile up
		}
	}
	for i := range values {
		add(i-ago, 1)
		add(i-ago-n, -1)
		if found > 0 {
			sums[i] = total
		}
	}
	return sums
}

// counts holds the events of a subject in every window.
type counts struct {
	*subject
	all, badIn map[slo.Duration][]float64
	ratio      map[slo.Duration][]float64 // share of bad events; absent without events
	known      []bool                     // the objective is recorded
	perEvent   []float64                  // requests behind an event; absent where events are requests
	usual      []float64                  // events per second, by the tiles so far
	soFar      []float64                  // the same, by the last hour as far as it is known
}

// young reports whether the objective was not known an hour ago.
func (c *counts) young(i int) bool {
	before := i - int(rules.RawWindow.Std()/rules.Interval)
	return before < 0 || math.IsNaN(c.usual[before])
}

// expected returns the rate of events against which a loss counts.
func (c *counts) expected(i int) float64 {
	if c.young(i) && !math.IsNaN(c.soFar[i]) {
		return c.soFar[i]
	}
	return c.usual[i]
}

// count folds a subject's increases into all windows, as the generated rules record them.
func (s *subject) count(o slo.Objective, pairs []slo.WindowPair) *counts {
	c := &counts{subject: s, all: map[slo.Duration][]float64{}, badIn: map[slo.Duration][]float64{}, ratio: map[slo.Duration][]float64{}}
	n := len(s.counted)
	rate := func(of []float64) []float64 {
		r := make([]float64, n)
		for i, v := range of {
			r[i] = max(v, 0) / rules.RateWindow.Std().Seconds()
		}
		return r
	}
	orNone := func(bad, all []float64) []float64 {
		b := slices.Clone(bad)
		for i := range b {
			if math.IsNaN(b[i]) {
				b[i] = 0 * all[i]
			}
		}
		return b
	}
	eventRate := rate(s.events[rules.RateWindow])
	badRate := orNone(rate(s.bad[rules.RateWindow]), eventRate)
	exact, exactBad := s.events[rules.RawWindow], orNone(s.bad[rules.RawWindow], s.events[rules.RawWindow])
	extended := func(exact, rate []float64, w slo.Duration) []float64 {
		const lag = 58 // the first minute at or before an hour less half of the rates' window
		sums := over(rate, int((w-rules.RawWindow).Std()/rules.Interval), lag)
		all := make([]float64, n)
		for i := range all {
			all[i] = exact[i]
			if !math.IsNaN(exact[i]) && !math.IsNaN(sums[i]) {
				all[i] += sums[i] * rules.Interval.Seconds()
			}
		}
		return all
	}
	for _, w := range append(rules.BurnWindows(pairs), rules.RequestWindow) {
		switch {
		case w == rules.RateWindow:
			c.all[w], c.badIn[w] = eventRate, badRate
		case w <= rules.RawWindow:
			c.all[w], c.badIn[w] = s.events[w], orNone(s.bad[w], s.events[w])
		default:
			c.all[w], c.badIn[w] = extended(exact, eventRate, w), extended(exactBad, badRate, w)
		}
		c.ratio[w] = nothing(n)
		for i, all := range c.all[w] {
			if all > 0 {
				c.ratio[w][i] = c.badIn[w][i] / all
			}
		}
	}
	c.known = make([]bool, n)
	c.usual = nothing(n)
	latest, began := -objectiveMinutes, -1
	tiles := nothing(n)
	for i := range n {
		if i%tileMinutes == 0 && i-latest < 15 { // budgets are recorded before the objectives of the same minute
			tiles[i] = s.tiles[i]
		}
		if began < 0 && !math.IsNaN(tiles[i]) {
			began = i
		}
		if s.counted[i] {
			latest = i
		}
		c.known[i] = i-latest < objectiveMinutes
	}
	period := int(o.Period.Std() / time.Minute)
	for i, sum := range over(tiles, period, 0) {
		switch {
		case i%tileMinutes != 0 && i > 0:
			c.usual[i] = c.usual[i-1]
		case began >= 0:
			c.usual[i] = sum / (time.Duration(min(i-began, period))*time.Minute + rules.RateWindow.Std()).Seconds()
		}
	}
	c.soFar = nothing(n)
	hour := int(rules.RawWindow.Std() / rules.Interval)
	for i, minutes := range over(one(exact), hour, 0) {
		if exact[i] > 0 {
			c.soFar[i] = exact[i] / (minutes * rules.Interval.Seconds())
		}
	}
	c.perEvent = nothing(n)
	if o.Signal == slo.ITL {
		tokens := c.all[rules.RequestWindow]
		ended := over(s.requestsEnded, int(rules.RequestWindow.Std()/time.Minute), 0)
		have := over(one(s.requestsEnded), int(rules.RequestWindow.Std()/time.Minute), 0)
		for i := range n {
			requests := s.requests[i]
			if math.IsNaN(requests) && s.Role == "" {
				requests = rules.RequestWindow.Std().Seconds() * ended[i] / have[i]
			}
			if tokens[i] > 0 && !math.IsNaN(requests) {
				c.perEvent[i] = min(requests/tokens[i], 1)
			}
		}
	}
	return c
}

// one returns 1 for each value that is there.
func one(values []float64) []float64 {
	all := slices.Clone(values)
	for i := range all {
		all[i] = all[i]*0 + 1
	}
	return all
}

// fires evaluates the alert of a severity, minute by minute.
func (c *counts) fires(o slo.Objective, pairs []slo.WindowPair, a *rules.Alert) []bool {
	n := len(c.known)
	firing := make([]bool, n)
	budget := 1 - o.Target.Float()
	type pair struct {
		slo.WindowPair
		threshold float64
		latest    slo.Duration
	}
	var asks []pair
	limit := slo.MaxBadShare.Float() / budget
	for _, p := range pairs {
		severity := p.Severity
		if o.Severity == slo.Ticket {
			severity = slo.Ticket
		}
		if p.Severity > a.Severity || severity != a.Severity || o.Severity == slo.None {
			continue
		}
		threshold := max(o.Period.Std().Seconds()/p.Unit(), 1)
		all := rules.BurnWindows(pairs)
		latest := all[slices.IndexFunc(all, func(w slo.Duration) bool { return w >= min(4*p.Short, p.Long) })]
		asks = append(asks, pair{p, min(threshold, limit), latest})
	}
	keep, held := int(a.Keep/rules.Interval), -1
	paged := make([]bool, n) // some pair that pages asked
	stays := func(p pair, i int) bool {
		if p.WindowPair != slo.Slowest(pairs, slo.Page) || !c.known[i] || c.maintained(i) || !slices.Contains(paged[max(0, i-2):i+1], true) {
			return false
		}
		over := func(w slo.Duration) bool { return c.ratio[w][i]/budget > slo.StayShare*p.threshold }
		return over(p.Short) || over(p.latest) && c.badIn[p.Long][i] < slo.FewBadEvents
	}
	for i := range n {
		was := i > 0 && firing[i-1]
		asked := func(p pair) bool {
			if !c.known[i] || c.maintained(i) {
				return false
			}
			over := func(w slo.Duration) bool { return c.ratio[w][i]/budget > p.threshold }
			absent := func(w slo.Duration) bool { return math.IsNaN(c.ratio[w][i]) }
			burning := over(p.Long) && (over(p.Short) || p.Short > rules.RateWindow && was && absent(p.Short) && !absent(p.latest))
			if !burning {
				return false
			}
			bad := c.badIn[p.Long][i]
			requests := bad
			if !math.IsNaN(c.perEvent[i]) {
				requests *= c.perEvent[i]
			}
			spend, before := slo.LeastSpend, i-int(rules.RateWindow.Std()/rules.Interval)
			if before < 0 || math.IsNaN(c.ratio[p.Long][before]) || c.young(i) {
				spend = slo.WakeSpend
			}
			trifle := bad < spend*p.Long.Std().Seconds()*(c.expected(i)*budget)*p.threshold
			return requests >= slo.MinBadEvents-0.5 && !trifle
		}
		holds := false
		for _, p := range asks {
			if asked(p) || stays(p, i) {
				holds = true
				paged[i] = paged[i] || p.Severity == slo.Page
			}
		}
		switch {
		case holds:
			firing[i], held = true, i
		default:
			firing[i] = was && i-held <= keep
		}
	}
	return firing
}
