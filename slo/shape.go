package slo

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Shape controls how much of a histogram is exported, and therefore how many series a fleet has. A histogram of n
// bounds costs n+3 series for every engine and rank: see docs/scale.md.
type Shape struct {
	// Keep is whole, reduced or drop. Default: whole.
	Keep Keep `yaml:"keep,omitempty"`
	// Bounds lists the bounds that "reduced" keeps in addition to the bounds that objectives use.
	Bounds []float64 `yaml:"bounds,omitempty"`
}

// Keep is how much of a histogram is exported.
type Keep string

// The choices.
const (
	Whole   Keep = "whole"   // every bucket of the engine
	Reduced Keep = "reduced" // only chosen bounds; buckets are cumulative, so these buckets stay exact
	Drop    Keep = "drop"    // only the mean, as plain counters; objectives still count from the engine's buckets
)

// Check returns an error if the shape is invalid.
func (s Shape) Check() error {
	switch {
	case s.Keep != "" && s.Keep != Whole && s.Keep != Reduced && s.Keep != Drop:
		return fmt.Errorf("keep: %q is not whole, reduced or drop", s.Keep)
	case len(s.Bounds) > 0 && s.Keep != Reduced:
		return errors.New("bounds need keep: reduced")
	}
	return nil
}

// Keeps reports whether the bucket with this bound is exported. used lists the bounds at which objectives on this
// metric count. A reduced histogram keeps these bounds, so that queries over it agree with the counted events.
func (s Shape) Keeps(bound float64, used []float64) bool {
	switch s.Keep {
	case Drop:
		return false
	case Reduced:
		near := func(b float64) bool { return math.Abs(b-bound) <= 1e-9*bound }
		return slices.ContainsFunc(s.Bounds, near) || slices.ContainsFunc(used, near)
	case Whole:
	}
	return true
}
