package engine

import (
	"math"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// trace is what a page shows of the process that wrote it.
type trace struct {
	start    float64            // unix time in seconds; NaN where the page does not say it
	counters map[string]float64 // by what they are called in the vocabulary, without address and the page's first model
}

// cpuTime is the key of the CPU time of the process, which tells idle engines apart.
const cpuTime = "process_cpu_seconds_total"

// trace is that of the last page; nil when it could not be used, or is still being read.
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
		l := &t.plan.lines[i]
		switch {
		case l.family == metrics.EngineStartTime:
			tr.start = l.eval(t.values)
		case l.family.Kind != metrics.Gauge && l.terms != nil && l.minus == nil: // a difference may fall
			tr.counters[address.Replace(l.text)] = l.eval(t.values)
		}
	}
	if t.plan.cpu != nil {
		tr.counters[cpuTime] = t.plan.cpu.value(t.values)
	}
	return tr
}

// Sameness says whether two pages are those of one process.
type Sameness int

// Values of Sameness. Undecided are pages of engines that have not served anything and say nothing else
// of themselves, and pages that cannot be used.
const (
	Undecided Sameness = iota
	Different
	Same
)

// Compare says whether the page of another address, read between two of one, is of the same process.
// The model tells them apart, and the start of the process, where both say it. Otherwise each counter lies between
// what it was before and what it was after, which those of another engine do not for long. The page
// of a collector that repeats what it read a while ago (mayLag) may be behind, if it has the same start.
func Compare(before, other, after Engine, mayLag bool) Sameness {
	if before.trace == nil || other.trace == nil || after.trace == nil {
		return Undecided
	}
	if before.Runtime != other.Runtime || before.Model != other.Model && before.Model != "" && other.Model != "" {
		return Different
	}
	a, b, c := before.trace, other.trace, after.trace
	said := !math.IsNaN(a.start) && !math.IsNaN(b.start)
	switch {
	case a.start != c.start && !math.IsNaN(a.start):
		return Undecided // it has started anew in between
	case said && a.start != b.start:
		return Different
	}
	moved := false
	for name, v := range b.counters {
		most, there := c.counters[name]
		if there && v > most || !there && name != cpuTime {
			return Different
		}
		moved = moved || v > 0
	}
	if mayLag && said {
		return Same
	}
	for name, least := range a.counters {
		if v, there := b.counters[name]; there && v < least || !there && name != cpuTime {
			return Different
		}
	}
	if !moved {
		return Undecided
	}
	return Same
}
