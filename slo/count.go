package slo

import (
	"slices"
	"strconv"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Histogram is a cumulative histogram as an engine shows it: Cumulative[i] observations were at most
// Bounds[i]. Bounds ascend and leave out +Inf, whose count is Count.
type Histogram struct {
	Bounds     []float64
	Cumulative []float64
	Count      float64
}

// Outcomes are an engine's requests by how they ended.
type Outcomes struct {
	// Counts holds what the engine shows now.
	Counts map[metrics.Outcome]float64
	// Failures says whether this engine would show requests that it failed or refused. Without it a
	// page that counts only successes looks like perfect availability.
	Failures bool
}

// Reason says why an objective counts nothing on an engine that it selects. It is a label value.
type Reason string

// The reasons.
const (
	Counted        Reason = ""                 // events are counted
	SignalMissing  Reason = "signal_missing"   // the engine does not report the signal
	BelowGrid      Reason = "below_grid"       // the threshold is below the engine's first bucket bound
	FailuresHidden Reason = "failures_missing" // the engine does not report failed requests
)

// Count is what an engine contributes to an objective: counters since the engine started.
type Count struct {
	Events, Bad float64
	// Threshold is the value of the threshold label: the bucket bound used, empty where there is none.
	Threshold string
	// Reason is Counted, or why there is nothing to export.
	Reason Reason
}

// Snap finds the largest bound at or below a threshold in seconds: the strictest reading of the
// objective that the grid can answer exactly. ok is false when even the first bound is above.
func Snap(bounds []float64, threshold float64) (bound float64, ok bool) {
	// An engine may print 0.1+0.2 style bounds; a billionth of slack keeps 0.05 equal to 0.05.
	i, _ := slices.BinarySearch(bounds, threshold*(1+1e-9))
	if i < len(bounds) && bounds[i] <= threshold*(1+1e-9) {
		i++
	}
	if i == 0 {
		return 0, false
	}
	return bounds[i-1], true
}

// CountHistogram counts a latency objective. h is nil where the engine does not report the signal.
func (o Objective) CountHistogram(h *Histogram) Count {
	if h == nil {
		return Count{Reason: SignalMissing}
	}
	bound, ok := Snap(h.Bounds, o.Threshold.float())
	if !ok {
		return Count{Reason: BelowGrid}
	}
	i := slices.Index(h.Bounds, bound)
	return Count{Events: h.Count, Bad: max(h.Count-h.Cumulative[i], 0), Threshold: FormatBound(bound)}
}

// CountOutcomes counts an availability objective. Requests that the client gave up (abort) or got
// wrong (invalid) say nothing about the server and do not count; unknown outcomes count as good.
func (o Objective) CountOutcomes(out Outcomes) Count {
	switch {
	case len(out.Counts) == 0:
		return Count{Reason: SignalMissing}
	case !out.Failures:
		return Count{Reason: FailuresHidden}
	}
	var c Count
	for outcome, n := range out.Counts {
		switch outcome {
		case metrics.OutcomeAbort, metrics.OutcomeInvalid:
		case metrics.OutcomeRejected, metrics.OutcomeError:
			c.Bad += n
			c.Events += n
		default:
			c.Events += n
		}
	}
	return c
}

// CountEvents counts an objective over counters: the sums of the series that Total and Good (or Bad)
// select. total is nil where the engine shows no such series; a missing good or bad sum is zero.
func (o Objective) CountEvents(total *float64, goodOrBad float64) Count {
	if total == nil {
		return Count{Reason: SignalMissing}
	}
	bad := goodOrBad
	if o.Good != nil {
		bad = *total - goodOrBad
	}
	return Count{Events: *total, Bad: min(max(bad, 0), *total)}
}

// FormatBound prints a bucket bound as the threshold label shows it.
func FormatBound(bound float64) string { return strconv.FormatFloat(bound, 'f', -1, 64) }

func (d Duration) float() float64 {
	f, _ := d.rat().Float64()
	return f
}
