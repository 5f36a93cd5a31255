package slo

import (
	"slices"
	"strconv"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Reason explains why an objective counts nothing, or a substitute, on an engine that it selects. A Reason is a label
// value.
type Reason string

// The reasons.
const (
	Counted        Reason = ""                 // events are counted
	MeanCounted    Reason = "mean_per_request" // events are counted from the signal's substitute: see Signal.Substitute
	QueueCounted   Reason = "queue_time"       // events are counted from the wait before the first token: see Signal.Substitute
	ProbeCounted   Reason = "probe"            // events are the exporter's own probes: see Signal.ByProbe
	SignalMissing  Reason = "signal_missing"   // the engine does not report the signal
	BelowGrid      Reason = "below_grid"       // the threshold is below the engine's first bucket bound
	OffGrid        Reason = "off_grid"         // the largest bound at or below the threshold is less than half of the threshold
	FailuresHidden Reason = "failures_missing" // the engine does not report failed requests
)

// Counts reports whether events are counted.
func (r Reason) Counts() bool {
	return r == Counted || r == MeanCounted || r == QueueCounted || r == ProbeCounted
}

// Snap returns the largest bound at or below a threshold in seconds. At a bucket bound, events can be counted exactly,
// and the objective becomes only slightly stricter. ok is false if even the first bound is above the threshold.
func Snap(bounds []float64, threshold float64) (bound float64, ok bool) {
	// An engine may print bounds with rounding errors, as in 0.1+0.2, so bounds are compared with a tolerance of one
	// billionth.
	i, _ := slices.BinarySearch(bounds, threshold*(1+1e-9))
	if i < len(bounds) && bounds[i] <= threshold*(1+1e-9) {
		i++
	}
	if i == 0 {
		return 0, false
	}
	return bounds[i-1], true
}

// These are regular expressions of outcomes, for queries that must agree with Judge.
const (
	// FailedOutcomes matches the outcomes that are bad.
	FailedOutcomes = string(metrics.OutcomeError + "|" + metrics.OutcomeRejected)
	// UncountedOutcomes matches the outcomes that do not count.
	UncountedOutcomes = string(metrics.OutcomeAbort + "|" + metrics.OutcomeInvalid + "|" + metrics.OutcomeUnknown)
)

// Judge reports whether a request with this outcome counts for availability, and whether it is bad. Three outcomes do
// not count, because they show no fault of the server: abort (the client left), invalid (the request was wrong) and an
// unknown end. Only a known good outcome counts as good. Objective.Judge also applies the exceptions of an objective.
func Judge(outcome metrics.Outcome) (event, bad bool) {
	switch outcome {
	case metrics.OutcomeStop, metrics.OutcomeLength, metrics.OutcomeRepetition, metrics.OutcomeSuccess:
		return true, false
	case metrics.OutcomeRejected, metrics.OutcomeError:
		return true, true
	case metrics.OutcomeAbort, metrics.OutcomeInvalid, metrics.OutcomeUnknown:
	}
	return false, false
}

// JudgeProbe reports whether a synthetic request with this outcome counts for availability, and whether it is bad. A
// refusal that is due to the probe's own configuration or rate limit does not count, because it does not affect users.
func JudgeProbe(outcome metrics.ProbeOutcome) (event, bad bool) {
	switch outcome {
	case metrics.ProbeOK, metrics.ProbeWrongAnswer:
		return true, false
	case metrics.ProbeRateLimited, metrics.ProbeClientError, metrics.ProbeInvalid:
		return false, false
	case metrics.ProbeEmpty, metrics.ProbeRefused, metrics.ProbeTimeout, metrics.ProbeServerError, metrics.ProbeInStreamError,
		metrics.ProbeTruncated:
	}
	return true, true
}

// Fits returns the bound of Snap, and whether it can replace a threshold in seconds. If so, the reason is Counted. If
// the bound is below half of the threshold, or there is none, the objective is not counted, because good answers would
// count as bad.
func Fits(bounds []float64, threshold float64) (bound float64, reason Reason) {
	bound, ok := Snap(bounds, threshold)
	switch {
	case !ok:
		return 0, BelowGrid
	case bound < threshold/2:
		return bound, OffGrid
	}
	return bound, Counted
}

// FormatBound formats a bucket bound for the threshold label.
func FormatBound(bound float64) string { return strconv.FormatFloat(bound, 'f', -1, 64) }
