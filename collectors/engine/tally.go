package engine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// A Tally is a counter that is computed from several counters of a metrics page. These counters count the same request
// at different moments, so their difference may fall, but a tally never falls. A tally adds up the increases of the
// counters between two readings. The first reading includes all earlier events of the engine. Many small steps may give
// another result than one large step, so a tally may fall when the exporter starts again.
type Tally struct {
	// Of lists the counts that are read in addition to the row's source.
	Of []Count
	// Step returns the increase of the tally from the increases of its counts. The row's source comes first. A negative
	// result is a debt, which is subtracted from the next steps, for at most debtLasts readings.
	Step func(rose []float64) float64
	// Splits means that several tallies split the same source, and each tally counts a part of it.
	Splits bool
}

// Count selects the number that a Tally reads. For a histogram, this is the number of observations.
type Count struct {
	From     string
	Is       scrape.Type
	Where    []*labels.Matcher
	Optional bool // counts as 0 if absent from the metrics page; if any other count is absent, there is no tally
}

// debtLasts is the number of readings after which a debt that has not grown is forgotten. By then, a debt from an
// answer in progress has been settled. A debt from a request that counts several times never is.
const debtLasts = 4

// tally is a Tally of one metrics page. Its value has its own place, after the values of the metrics page's series.
type tally struct {
	*Tally
	key        string // key of the tally, which does not depend on the shape of the metrics page
	counts     [][]summand
	refuses    bool // counts refusals as invalid; together with refused, it counts them as rejected: see refusals
	refused    bool
	refusesAll bool   // value 1 while refusals count as rejected
	weight     []line // gauges whose sum is the weight of a step; steps before the first reading then do not count
	place      int
}

// itself is the Tally that counts only the row's own source.
var itself = &Tally{Step: func(rose []float64) float64 { return rose[0] }}

// summand is a number that a count adds up. Its key names both the series and the count, because two counts may add up
// the same number.
type summand struct {
	term
	key string
}

// tallied is the state of a tally.
type tallied struct {
	by   *Tally             // tally of the last reading; another row may continue the total when the metrics page gets a new family
	last map[string]float64 // by summand.key
	owing
	begun   bool
	refusal refusal
}

// owing is a total that never falls. A step that would lower the total becomes a debt.
type owing struct {
	total, debt float64
	sinceItGrew int // readings
}

// add adds a step.
func (o *owing) add(step float64) {
	if o.sinceItGrew++; step < 0 {
		o.debt, o.sinceItGrew = o.debt-step, 0
	} else if o.sinceItGrew > debtLasts {
		o.debt = 0
	}
	paid := min(max(step, 0), o.debt)
	o.debt -= paid
	o.total += max(step, 0) - paid
}

// tally replaces the source series of a row by one entry for each engine, which is the engine's tally.
func (c *compiler) tally(d *Dialect, r *Row, own []entry, defaults map[string]string) (all []entry, err error) {
	others := make([][]entry, len(r.Tally.Of))
	for i, of := range r.Tally.Of {
		if others[i], err = c.counts(d, r, of, defaults); err != nil || others[i] == nil && !of.Optional {
			return nil, err
		}
	}
	byOut := map[[outLabels]string][]entry{}
	for _, e := range own {
		if byOut[e.out] == nil {
			all = append(all, e)
		}
		byOut[e.out] = append(byOut[e.out], e)
	}
	for i := range all {
		e := &all[i]
		t := tally{Tally: r.Tally, key: c.text(r.From+" "+r.To.Name, e.out), counts: [][]summand{summands("own", nil, byOut[e.out])}}
		for i, of := range others {
			t.counts = append(t.counts, summands(r.Tally.Of[i].From, r.Tally.Of[i].Where, slices.DeleteFunc(slices.Clone(of),
				func(o entry) bool { return !compatible(o.out, e.out) })))
		}
		for _, of := range slices.Concat(t.counts...) {
			c.use(of.term, metrics.Counter)
		}
		e.sample.Index, e.split, e.total = c.place(t), "", ""
	}
	return all, nil
}

// tallies reports whether a dialect may compute a quantity, or the requests with one outcome, from several counters. If
// so, the quantity is tallied on every metrics page. Otherwise, a sum of a tally and a counter would fall when the
// engine restarts.
func (d *Dialect) tallies(to *metrics.Family, outcome metrics.Outcome) bool {
	refused := outcome == metrics.OutcomeInvalid || outcome == metrics.OutcomeRejected
	return slices.ContainsFunc(d.Rows, func(r Row) bool {
		return r.To == to && (r.Tally != nil && (to != metrics.Requests || r.counts(outcome, "")) ||
			refused && r.refuses())
	})
}

// refuses reports whether a row counts requests that were refused as invalid. These requests may count as rejected instead.
func (r *Row) refuses() bool {
	return r.To == metrics.Requests && r.counts(metrics.OutcomeInvalid, "400")
}

// lasting returns a tally in place of a sum. It adds up the increases of the terms, so it does not fall when a term
// disappears.
func (c *compiler) lasting(series string, of []term) []term {
	t := tally{Tally: itself, key: series, counts: [][]summand{nil}}
	for _, one := range of {
		c.use(one, metrics.Counter)
		t.counts[0] = append(t.counts[0], summand{one, c.keys[one[0]]})
	}
	place := c.place(t)
	return []term{{place}}
}

// place appends a tally to the plan. Its value gets the next index after the series of the metrics page.
func (c *compiler) place(t tally) int {
	t.place = len(c.plan.used)
	c.keys[t.place] = t.key
	c.plan.used, c.plan.counter = append(c.plan.used, true), append(c.plan.counter, true)
	c.plan.tallies = append(c.plan.tallies, t)
	return t.place
}

// summands returns the numbers in the entries of a count.
func summands(from string, where []*labels.Matcher, entries []entry) (all []summand) {
	for _, t := range terms(entries) {
		i := slices.IndexFunc(entries, func(e entry) bool { return e.sample.Index == t[0] })
		all = append(all, summand{t, fmt.Sprint(from, where, entries[i].family, entries[i].sample.Labels)})
	}
	return all
}

// counts returns the series of a count.
func (c *compiler) counts(d *Dialect, r *Row, of Count, defaults map[string]string) (all []entry, err error) {
	f := c.page.Find(of.From, of.Is)
	if f == nil || f.Kind != "" && f.Kind != of.Is {
		return nil, nil
	}
	for _, s := range f.Samples {
		if of.Is == scrape.Histogram && s.Suffix != partCount || !matches(s.Labels, of.Where) {
			continue
		}
		e, err := c.entry(d, &Row{To: r.To, From: of.From, Set: r.Set}, s, defaults)
		if err != nil {
			return nil, err
		}
		e.family = of.From
		all = append(all, e)
	}
	return all, nil
}

// compatible reports whether two sets of labels agree. A count for the whole metrics page has no labels of a single
// engine.
func compatible(a, b [outLabels]string) bool {
	for i := range a {
		if a[i] != "" && b[i] != "" && a[i] != b[i] {
			return false
		}
	}
	return true
}

// tally returns a reading's values, followed by the values of the tallies. It must be called once for each reading.
func (p *plan) tally(now time.Time, values []float64, memory map[string]*tallied) []float64 {
	for i := range p.tallies {
		t := &p.tallies[i]
		if memory[t.key] == nil {
			memory[t.key] = &tallied{last: map[string]float64{}}
		}
		values = append(values[:t.place], memory[t.key].take(now, t, values))
	}
	return values
}

// weigh returns the weight of a step. It is 0 at the first reading, and later at least 1, because each step serves a request.
func (m *tallied) weigh(by []line, values []float64) float64 {
	if !m.begun {
		m.begun = true
		return 0
	}
	sum := 0.0
	for i := range by {
		if v := by[i].eval(values); v > 0 && by[i].family.Plausible(v) {
			sum += v
		}
	}
	return math.Max(1, sum)
}

// take takes a reading and returns the tally.
func (m *tallied) take(at time.Time, t *tally, values []float64) float64 {
	if t.refused {
		return m.refusal.rejected
	}
	rose, other := make([]float64, len(t.counts)), m.by != nil && m.by != t.Tally
	m.by = t.Tally
	for i, count := range t.counts {
		for _, of := range count {
			now := of.value(values)
			last, known := m.last[of.key]
			switch {
			case !known && other: // another row has already counted this number
				last = now
			case now < last: // a new process counts from zero
				last = 0
			}
			if !math.IsNaN(now) {
				rose[i] += now - last
				m.last[of.key] = now
			}
		}
	}
	if t.refuses {
		if m.total += m.refusal.decide(at, rose[0], rose[1]); t.refusesAll {
			return metrics.Bool(m.refusal.refuses)
		}
		return m.total
	}
	step := t.Step(rose)
	if t.weight != nil {
		step *= m.weigh(t.weight, values)
	}
	m.add(step)
	return m.total
}
