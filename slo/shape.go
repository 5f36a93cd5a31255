package slo

import (
	"fmt"
	"slices"
)

// Shape says how much of a histogram is exported: what a fleet pays in series. A histogram of n
// bounds costs n+3 series for every engine and rank; see docs/scale.md.
type Shape struct {
	// Keep is whole, reduced or drop. Default whole.
	Keep Keep `yaml:"keep,omitempty"`
	// Bounds are kept by "reduced" beside those that objectives use.
	Bounds []float64 `yaml:"bounds,omitempty"`
}

// Keep is how much of a histogram is exported.
type Keep string

// The choices.
const (
	Whole   Keep = "whole"   // as the engine has it
	Reduced Keep = "reduced" // only chosen bounds; buckets are cumulative, so those stay exact
	Drop    Keep = "drop"    // nothing; objectives still count from the engine's page
)

// Check says what is wrong with a shape; metric names the place.
func (s Shape) Check(metric string) error {
	switch {
	case s.Keep != "" && s.Keep != Whole && s.Keep != Reduced && s.Keep != Drop:
		return fmt.Errorf("histograms: %s: keep: %q is none of whole, reduced, drop", metric, s.Keep)
	case len(s.Bounds) > 0 && s.Keep != Reduced:
		return fmt.Errorf("histograms: %s: bounds belong to keep: reduced", metric)
	}
	return nil
}

// Apply shapes a histogram. used are the bounds that objectives on this metric count at: a reduced
// histogram keeps them, so that a query over it and the counted events agree. ok is false when the
// histogram is not exported. h is not changed.
func (s Shape) Apply(h Histogram, used []float64) (shaped Histogram, ok bool) {
	switch s.Keep {
	case Drop:
		return Histogram{}, false
	case Reduced:
		shaped.Count = h.Count
		for i, b := range h.Bounds {
			if slices.Contains(s.Bounds, b) || slices.Contains(used, b) {
				shaped.Bounds = append(shaped.Bounds, b)
				shaped.Cumulative = append(shaped.Cumulative, h.Cumulative[i])
			}
		}
		return shaped, true
	}
	return h, true
}
