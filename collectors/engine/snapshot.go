package engine

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// snapshot holds one scrape's contribution to the exposition: blocks of lines, one block per family.
type snapshot struct {
	lines  []valued
	blocks []block
	failed bool

	effective  []effective // thresholds of objectives
	maintained float64     // end of the maintenance of all engines, in unix time; 0 if any engine is not in maintenance
}

// valued is a line of the exposition whose text is not rendered yet. The text of all engines would take megabytes per scrape.
type valued struct {
	series, le string // see line
	value      float64
}

type block struct {
	family     *metrics.Family
	start, end int // of lines
}

// append adds a line and opens a new block when the family changes.
func (s *snapshot) append(f *metrics.Family, series string, value float64) {
	if n := len(s.blocks); n == 0 || s.blocks[n-1].family != f {
		s.blocks = append(s.blocks, block{family: f, start: len(s.lines)})
	}
	s.lines = append(s.lines, valued{series: series, value: value})
	s.blocks[len(s.blocks)-1].end = len(s.lines)
}

// up returns the snapshot of a successful scrape.
func (t *target) up(size int, took time.Duration) *snapshot {
	s := &snapshot{lines: make([]valued, 0, t.plan.size), blocks: make([]block, 0, 64), effective: t.plan.effective}
	t.values = t.config.Ledger.tally(t.url, t.config.Now(), t.plan, t.values)
	for i := range t.plan.sources {
		t.plan.sources[i].yields, t.plan.sources[i].absurd = false, false
	}
	restarts := t.text(metrics.EngineRestarts.Name, "")
	lost := t.config.Ledger.lost(restarts) // before this reading, so that the loss appears as a step between two readings of the next process
	for i := range t.plan.lines {
		l := &t.plan.lines[i]
		v := t.pool(l, l.eval(t.values))
		for _, series := range l.lost {
			v += lost[series]
		}
		absurd := !math.IsNaN(v) && !l.family.Plausible(v)
		for _, place := range l.from {
			source := &t.plan.sources[place]
			source.absurd = source.absurd || absurd
			source.yields = source.yields || !absurd && !math.IsNaN(v)
		}
		switch {
		case absurd || math.IsNaN(v):
		case l.unless != nil && t.isProbed(*l.unless):
			if l.instead != "" {
				s.append(l.family, l.instead, 1)
			}
		default:
			s.append(l.family, l.text, v)
			s.lines[len(s.lines)-1].le = l.le
		}
	}
	t.answer(s)
	t.observe(s)
	s.append(metrics.EngineRestarts, restarts,
		t.config.Ledger.lived(restarts, t.plan.start.value(t.values), t.counters, t.inside(), t.config.Now()))
	t.losses(s, restarts)
	t.serving(s)
	t.configure(s)
	t.forecast(s)
	runtime := t.plan.runtime
	reason, up := t.plan.lacks(t.values)
	s.append(metrics.EngineUp, t.text(metrics.EngineUp.Name, runtime, metrics.Label{Name: metrics.LabelReason, Value: reason}),
		metrics.Bool(up))
	s.append(metrics.EngineScrapeDuration, t.text(metrics.EngineScrapeDuration.Name, runtime), took.Seconds())
	s.append(metrics.EngineScrapeSize, t.text(metrics.EngineScrapeSize.Name, runtime), float64(size))
	s.append(metrics.EngineScrapeSeries, t.text(metrics.EngineScrapeSeries.Name, runtime), float64(t.plan.series))
	for _, a := range slices.SortedFunc(maps.Keys(t.missed), func(a, b absent) int {
		return strings.Compare(a.metric+a.source,
			b.metric+b.source)
	}) {
		s.append(metrics.SourceMissing, t.text(metrics.SourceMissing.Name, a.runtime,
			metrics.Label{Name: metrics.LabelMetric, Value: a.metric}, metrics.Label{Name: metrics.LabelSource, Value: a.source}), t.missed[a])
	}
	t.maintenance(s)
	t.plan.size = max(t.plan.size, len(s.lines))
	return s
}

// counters yields the counters of the metrics page's units that fall only when a process restarts. The keys are series.
func (t *target) counters(yield func(string, float64) bool) {
	for i := range t.plan.units {
		for j := range t.plan.units[i].moves {
			l := &t.plan.units[i].moves[j]
			if v := l.eval(t.values); t.plan.accrues(l) && !math.IsNaN(v) && !yield(l.series(), v) {
				return
			}
		}
	}
}

// losses adds the requests that were lost with the processes of the metrics endpoint.
func (t *target) losses(s *snapshot, restarts string) {
	lost := t.config.Ledger.lost(restarts)
	for _, series := range slices.Sorted(maps.Keys(lost)) {
		s.append(metrics.RequestsLost, series, lost[series])
	}
}

// serving reports when models that are not served now were last served.
func (t *target) serving(s *snapshot) {
	now, served := t.config.Now(), make(map[string]time.Time, len(t.plan.models))
	for i := range t.plan.models {
		m := &t.plan.models[i]
		if served[m.last] = now; m.now(t.values) {
			continue
		}
		if at, known := t.served[m.last]; known {
			served[m.last] = at
		}
		s.append(metrics.EngineLastServed, m.last, float64(served[m.last].UnixMilli())/1000)
	}
	t.mu.Lock()
	t.served = served
	t.mu.Unlock()
}

// pooled is the last value of a line about a pool of names. left is the sum of the values of names that have left the
// pool.
type pooled struct{ value, left float64 }

// pool prevents a line from falling when one of its names becomes a model. Prometheus would interpret the fall as a
// restart.
func (t *target) pool(l *line, v float64) float64 {
	if !l.isPool || math.IsNaN(v) {
		return v
	}
	p := t.pooled[l.series()]
	if v += p.left; v < p.value {
		p.left += p.value - v
		v = p.value
	}
	if p.value = v; t.pooled == nil {
		t.pooled = map[string]pooled{}
	}
	t.pooled[l.series()] = p
	return v
}

// answer adds the series that report, for this scrape, the source of each quantity or the reason for a missing source.
// It counts missing sources.
func (t *target) answer(s *snapshot) {
	serving := t.plan.serving(t.values)
	for i := range t.plan.answers {
		a := &t.plan.answers[i]
		yields, absurd := false, false
		for _, place := range a.sources {
			source := &t.plan.sources[place]
			absurd = absurd || source.absurd
			if source.yields {
				yields = true
				s.append(metrics.MetricSourceInfo, source.text, 1)
			}
		}
		for _, of := range a.silent {
			if !slices.ContainsFunc(of.terms, func(one term) bool { return one.value(t.values) != 0 }) {
				s.append(metrics.MetricSourceInfo, of.text, 1)
			}
		}
		switch {
		case absurd:
			t.lacks(a)
			if !yields {
				s.append(metrics.MetricSourceInfo, a.absurd, 1)
			}
		case yields:
		case a.idle != "" && !serving:
			s.append(metrics.MetricSourceInfo, a.idle, 1)
		default:
			s.append(metrics.MetricSourceInfo, a.missing, 1)
			if len(a.sources) == 0 && a.lacks != nil {
				t.lacks(a)
			}
		}
	}
}

// lacks counts a scrape without an expected source.
func (t *target) lacks(a *answer) {
	if t.missed == nil {
		t.missed = map[absent]float64{}
	}
	if t.missed[*a.lacks]++; t.missed[*a.lacks] == 1 {
		t.log.Warn("engine lacks a metric that its version should have", "metric", a.lacks.metric, "lacks", a.lacks.source, "why", a.why)
	}
}

// down renders a failed scrape. It reports nothing else about the engine, because old numbers would be wrong.
func (t *target) down(err error, took time.Duration) *snapshot {
	reason := scrape.ReasonOf(err)
	t.note(reason, err)
	return t.silence(reason, took)
}

// silence returns the snapshot of a scrape without a metrics page. The engine is gone, but its earlier models still
// have series.
func (t *target) silence(reason string, took time.Duration) *snapshot {
	t.mu.Lock()
	runtime, served := t.known.Runtime, t.served
	t.mu.Unlock()
	s := &snapshot{failed: true}
	s.append(metrics.EngineUp, t.text(metrics.EngineUp.Name, runtime, metrics.Label{Name: metrics.LabelReason, Value: reason}), 0)
	for _, last := range slices.Sorted(maps.Keys(served)) {
		s.append(metrics.EngineLastServed, last, float64(served[last].UnixMilli())/1000)
	}
	t.changesTo(s)
	restarts := t.text(metrics.EngineRestarts.Name, "")
	if n, known := t.config.Ledger.restarts(restarts, t.config.Now()); known {
		s.append(metrics.EngineRestarts, restarts, n)
	}
	t.losses(s, restarts)
	s.append(metrics.EngineScrapeDuration, t.text(metrics.EngineScrapeDuration.Name, runtime), took.Seconds())
	t.maintenance(s)
	return s
}

// note logs the state of the target when it changes.
func (t *target) note(reason string, err error) {
	t.mu.Lock()
	changed := t.reason != reason
	t.reason, t.detail = reason, ""
	if err != nil {
		t.detail = err.Error()
	} else {
		lacks, _ := t.plan.lacks(t.values)
		t.known = Engine{
			Runtime: t.plan.runtime, role: t.plan.role, Model: t.plan.model, Version: t.plan.version, Lacks: lacks,
			Sleeping: t.plan.sleeping(t.values),
		}
		t.declared, t.uncounted, t.whole, t.offers = t.plan.declared, t.plan.uncounted, t.plan.whole, t.plan.offers
	}
	t.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		t.log.Warn("engine's metrics cannot be used", "reason", reason, "err", err)
	default:
		t.log.Info("engine's metrics are used", "path", t.path, "runtime", t.plan.runtime, "lines", len(t.plan.lines))
	}
}
