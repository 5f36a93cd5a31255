package engine

import (
	"math"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// trace holds what a metrics page shows about the process that wrote it.
type trace struct {
	start    float64            // Unix time in seconds; NaN if the metrics page does not report it
	counters map[string]float64 // by series of the vocabulary, without the address and the metrics page's first model
}

// cpuTime is the key of the CPU time of the process, which distinguishes idle engines.
const cpuTime = "process_cpu_seconds_total"

// trace returns the trace of the last metrics page. It returns nil if the page was unusable or is still being read.
func (t *target) trace() *trace {
	select {
	case t.run <- struct{}{}:
		defer func() { <-t.run }()
	default:
		return nil
	}
	if t.plan == nil {
		return nil
	}
	address := strings.NewReplacer(metrics.LabelServer+`="`+t.server+`"`, "", metrics.LabelModel+`="`+t.plan.model+`",`, "")
	tr := &trace{math.NaN(), map[string]float64{}}
	for i := range t.plan.lines {
		l := t.plan.lines[i]
		if l.lasts != nil {
			l.terms = l.lasts
		}
		switch {
		case l.family == metrics.EngineStartTime:
			tr.start = l.eval(t.values)
		case t.plan.accrues(&l):
			tr.counters[address.Replace(l.series())] = l.eval(t.values)
		}
	}
	if t.plan.cpu != nil {
		tr.counters[cpuTime] = t.plan.cpu.value(t.values)
	}
	return tr
}

// accrues reports whether a line falls only when a process restarts. Differences do not accrue, because they may fall.
// Tallies do not accrue, because each exporter has a different value.
func (p *plan) accrues(l *line) bool {
	return l.family.Kind != metrics.Gauge && l.terms != nil && l.minus == nil && !p.readsTallies(l)
}

// Sameness reports whether two metrics pages come from the same process.
type Sameness int

// These are the values of Sameness. Undecided covers unusable metrics pages, and idle engines that report no other trace.
const (
	Undecided Sameness = iota
	Different
	Same
)

// Compare reports whether the metrics page of a second address comes from the same process as that of a first address. The second address
// is read between two readings of the first. The pages must have the same model and, if both report it, the same start of the process.
// Otherwise each counter of other must lie between its values in before and after. For counters of another engine, this is true only
// briefly. If mayLag is set, other repeats an earlier reading, so its values may be older.
func Compare(before, other, after Engine, mayLag bool) Sameness {
	if before.trace == nil || other.trace == nil || after.trace == nil {
		return Undecided
	}
	a, b, c := before.trace, other.trace, after.trace
	switch {
	case before.Runtime != other.Runtime || before.Model != other.Model && before.Model != "" && other.Model != "":
		return Different
	case a.start != c.start && !math.IsNaN(a.start) || !a.within(c):
		return Undecided // restarted in between
	case a.start != b.start && !math.IsNaN(a.start) && !math.IsNaN(b.start):
		return Different
	case !b.within(c) || !mayLag && !a.within(b):
		return Different
	case !b.counted():
		return Undecided
	}
	return Same
}

// within reports whether the later metrics page has all counters of the earlier page, and none of them is lower. Only
// the CPU time may be missing from the later page, because a server that joins metrics pages may drop it.
func (t *trace) within(later *trace) bool {
	for name, v := range t.counters {
		if most, there := later.counters[name]; there && v > most || !there && name != cpuTime {
			return false
		}
	}
	return true
}

// counted reports whether any counter is above zero.
func (t *trace) counted() bool {
	for _, v := range t.counters {
		if v > 0 {
			return true
		}
	}
	return false
}
