package engine

import (
	"math"
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// A plan is the compiled form of a metrics page. It has the series behind each output line, and all text except the
// numbers is already rendered.
type plan struct {
	runtime metrics.Runtime // of the first dialect on the metrics page
	role    string          // role of the servers, if they are not engines
	model   string          // first model on the metrics page
	offers  []Offer         // models, as clients request them
	version string          // version of its engine
	used    []bool          // by index of the series on the metrics page: whether some line reads the series
	counter []bool          // by index: whether the series falls only at a restart of the engine
	series  int             // number of series on the metrics page; later indices belong to tallies
	tallies []tally         // in the order of their indices
	lines   []line          // ordered by family
	sources []source        // sources of the lines' numbers
	answers []answer        // where each quantity comes from, or why it has no source
	served  []term          // terms that rise while the engine serves
	models  []servedModel   // models that the server serves
	runs    []runs          // settings of its engines
	sized   []sized         // settings that are the values of lines
	start   term            // start of the process, unix time; nil if the metrics page does not report it
	cpu     term            // CPU time of the process; nil if the metrics page does not report it

	unlisted []string // selectors of outcomes on the metrics page that are not listed

	units    []unit   // parts of the engine that work on their own
	sizings  []sizing // the same units, with the load that they report
	inFlight string   // series with the source of the number of requests in flight

	effective []effective       // thresholds of objectives, at the bucket bounds of this metrics page
	offGrid   []offGrid         // objectives for which this metrics page has no bucket bound
	declared  []declared        // maintenance of objectives on this metrics page's engines
	uncounted []uncounted       // default objectives without a source here, or with a substitute
	whole     [outLabels]string // labels of the first engine as a whole
	size      int               // upper bound of the output lines so far

	identifiable bool // the engine has endpoints that report its identity
	workers      term // series that are above 0 while there are workers
	needsWorkers bool // without workers, nothing is served
	unproven     bool // the metrics page has names that may turn out to be models
}

// line describes one output line. A large node has hundreds of thousands of lines, so the lines share most of their data.
type line struct {
	family *metrics.Family
	text   string // name and labels; for a bucket, the part that all buckets of its histogram share
	le     string // the rest of a bucket's name and labels
	terms  []term
	*recipe
}

// recipe describes how lines are computed from their terms.
type recipe struct {
	minus   []term // subtracted
	isPool  bool   // adds up names, some of which may later count as models; the sum must not fall when a name leaves
	silent  bool   // zero has no meaning: see Row.Uncounted
	lasts   []term // counts that a tally of the whole line adds up
	scale   metrics.Scale
	fold    *fold
	value   float64    // for lines without source series
	from    []int      // indices in plan.sources
	lost    []string   // series of RequestsLost to add
	unless  *uncounted // for events of objectives: the probe that may count instead
	instead string     // series of llm_slo_counted in that case
}

// plain is the recipe of lines that add up their terms.
var plain = &recipe{}

// series returns name and labels.
func (l *line) series() string { return l.text + l.le }

// source describes a row or an endpoint from which lines take their numbers.
type source struct {
	text string // its series of llm_engine_metric_source_info

	// These fields describe the current scrape:
	yields bool // some line has a value
	absurd bool // some line has an impossible value
}

// answer holds the sources of one quantity, or why there are none.
type answer struct {
	sources []int
	missing string   // series of llm_engine_metric_source_info with the cause
	idle    string   // the same while the engine has served nothing; empty if the cause does not change
	absurd  string   // the same for a number that is impossible
	silent  []silent // outcomes that have no meaning at zero
	lacks   *absent  // counted if a source is missing or its number is impossible
	why     string   // the same, for the log
}

// silent is an outcome for which zero has no meaning: see Row.Uncounted.
type silent struct {
	text  string // series of llm_engine_metric_source_info with the cause
	terms []term
}

// term lists series that repeat one number. The largest value counts.
type term []int

func (t term) value(values []float64) float64 {
	v := math.NaN() // some of the series may have no value
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

// readsTallies reports whether a line adds up a tally.
func (p *plan) readsTallies(l *line) bool {
	return slices.ContainsFunc(l.terms, func(t term) bool { return slices.Max(t) >= p.series })
}

// eval computes the line's value. NaN means that there is no value.
func (l *line) eval(values []float64) float64 {
	v, ok := l.compute(values)
	if !ok || l.silent && v == 0 {
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
			if l.family.Aggregate == metrics.Max {
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

// workerless reports whether a frontend shows that it has no worker.
func (p *plan) workerless(values []float64) bool {
	return p.needsWorkers && !(p.workers.value(values) > 0)
}

// servedModel is a model that the server has. If it needs workers, the server serves it only while it has a worker.
type servedModel struct {
	last    string // series of llm_engine_last_served_timestamp_seconds
	workers term   // series that are above 0 while the model has workers
	needs   bool   // whether the model needs workers
}

// now reports whether the model is served at the current reading.
func (m *servedModel) now(values []float64) bool { return !m.needs || m.workers.value(values) > 0 }

// unloaded reports whether an engine that loads models on demand has no model loaded.
func (p *plan) unloaded(values []float64) bool {
	none := false
	for i := range p.lines {
		if p.lines[i].family == metrics.ModelsLoaded {
			if p.lines[i].eval(values) > 0 {
				return false
			}
			none = true
		}
	}
	return none
}

// lacks returns the reason if the metrics page is usable but no model can be served. up reports whether the server is
// up nevertheless.
func (p *plan) lacks(values []float64) (reason string, up bool) {
	switch {
	case p.workerless(values):
		return NoWorker, false
	case p.unloaded(values):
		return NotLoaded, true
	}
	return "", true
}

// sleeping reports whether the engine, or one of its ranks, sleeps.
func (p *plan) sleeping(values []float64) bool {
	return slices.ContainsFunc(p.lines, func(l line) bool { return l.family == metrics.Sleeping && l.eval(values) > 0 })
}

// absent describes a source that the engine's version should have, but that is missing on the metrics page or unusable.
type absent struct {
	runtime        metrics.Runtime
	metric, source string
}
