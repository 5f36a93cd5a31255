package engine

import (
	"math"
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// A plan is a page's shape compiled: which series feed which line of output, with everything but
// the numbers rendered.
type plan struct {
	runtime metrics.Runtime // of the first dialect on the page
	model   string          // the first model on the page
	version string          // of its engine
	used    []bool          // by place of the series on the page: some line reads it
	counter []bool          // by place: falls only when the engine restarts
	lines   []line          // ordered by family
	sources []source        // what lines take their numbers from
	answers []answer        // where each quantity comes from, or why it does not
	served  []term          // what rises when the engine serves
	cpu     term            // CPU time of the process; nil where the page does not say it

	effective []effective // thresholds of objectives as this page's grid allows them
	declared  []declared  // maintenance of objectives on this page's engines
	size      int         // bytes of output so far at most

	identifiable bool // the engine has endpoints that say who it is
}

// line is one line of output.
type line struct {
	family *metrics.Family
	text   string // name and labels
	terms  []term
	minus  []term // taken off
	max    bool   // aggregate terms by max, not by sum
	scale  Scale
	fold   *fold
	value  float64 // for lines that no series feeds
	from   []int   // places in plan.sources
}

// source is a row, or an endpoint, that lines take their numbers from.
type source struct {
	text string // its series of llm_engine_metric_source_info

	// In the scrape at hand:
	yields bool // some line has a value
	absurd bool // some line has a value that cannot be
}

// answer says where one quantity comes from: the sources that yield, or else why there is none.
type answer struct {
	sources []int
	missing string  // series of llm_engine_metric_source_info that says why
	idle    string  // the same while the engine has served nothing yet; empty where that makes no difference
	absurd  string  // the same when a number is there and cannot be
	lacks   *absent // what is counted when a source should be there, or its number cannot be
	why     string  // the same, for the log
}

// term is series that repeat one number; their maximum counts.
type term []int

func (t term) value(values []float64) float64 {
	v := math.NaN() // what repeats a number may also not know it
	for _, i := range t {
		if math.IsNaN(v) || values[i] > v {
			v = values[i]
		}
	}
	return v
}

type fold struct {
	of      func([]Member) (float64, bool)
	members []Member
	terms   []term
}

// eval computes the line's value. NaN means that there is none.
func (l *line) eval(values []float64) float64 {
	v, ok := l.compute(values)
	if !ok {
		return math.NaN()
	}
	return v
}

func (l *line) compute(values []float64) (v float64, ok bool) {
	switch {
	case l.fold != nil:
		for i, t := range l.fold.terms {
			l.fold.members[i].Value = t.value(values)
		}
		if v, ok = l.fold.of(l.fold.members); !ok {
			return 0, false
		}
	case l.terms == nil:
		return l.value, true
	default:
		v = l.terms[0].value(values)
		for _, t := range l.terms[1:] {
			if l.max {
				v = math.Max(v, t.value(values))
			} else {
				v += t.value(values)
			}
		}
		for _, t := range l.minus {
			v = math.Max(0, v-t.value(values))
		}
	}
	return l.scale.Apply(v), true
}

// serving reports whether the engine has served anything since it started.
func (p *plan) serving(values []float64) bool {
	return slices.ContainsFunc(p.served, func(t term) bool { return t.value(values) > 0 })
}

// sleeping reports whether the engine, or a rank of it, has been put to sleep.
func (p *plan) sleeping(values []float64) bool {
	return slices.ContainsFunc(p.lines, func(l line) bool { return l.family == metrics.Sleeping && l.eval(values) > 0 })
}

// absent is a source that the engine's version should have and the page has not, or not as it should be.
type absent struct {
	runtime        metrics.Runtime
	metric, source string
}
