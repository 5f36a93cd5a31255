package engine

import (
	"math"

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
	absent  []absent        // sources that should have been there

	effective []effective // thresholds of objectives as this page's grid allows them
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

func (l *line) eval(values []float64) (v float64, ok bool) {
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
	return l.scale.apply(v), !math.IsNaN(v)
}

// absent is a source that the engine's version should have and the page has not.
type absent struct {
	runtime        metrics.Runtime
	metric, source string
	// why is for the log.
	why string
}
