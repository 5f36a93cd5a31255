package page

import (
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// A Source maps one exporter's metrics page to GPU metrics, as a table that people can compare with that exporter's documentation.
type Source struct {
	// Name is the value of the source label.
	Name string
	// Reference cites the sources of the table's facts.
	Reference string
	// Recognise reports whether a metrics page comes from this exporter. It also returns the prefix of all names.
	Recognise func(s series) (prefix string, ok bool)
	// Redefines reports whether the metrics page comes from a release in which some names have a new unit. Nil means that
	// these names have the new unit in all releases.
	Redefines func(s series) bool
	// UUID returns the UUID of the GPU that a series is about. It returns an empty string if the series is not about a
	// GPU.
	UUID func(l labels.Labels) string
	// Health names the family that is 0 for a GPU that the other exporter reports as unhealthy. It is empty if there is no
	// such family.
	Health string
	// Labels maps each label of the vocabulary to labels of the metrics page. The first label with a value counts.
	Labels map[string][]string
	// Rows is the table.
	Rows []Row
	// Says lists the families that come from labels of the metrics page, and explains how they are read.
	Says map[*metrics.Family]string
	// Missing explains why the metrics page lacks a family in all versions. Only useful reasons are listed.
	Missing map[*metrics.Family]string
	// Otherwise is the reason for the absence of all other families.
	Otherwise string
}

// A Row maps one source of a metrics page to one family of the vocabulary. Is states the kind of the number, because
// the # TYPE of the metrics page is ignored. If series of one GPU differ only in labels that the family lacks, they
// repeat one number, and the largest value counts. If the family has a label for MIG instances, this applies to each
// MIG instance.
//
// Rows for the same series are alternatives. For each GPU, the first row on the metrics page is used. All XIDs of a GPU come from one row.
type Row struct {
	// To is the family.
	To *metrics.Family
	// Set holds labels that all series of the row get.
	Set []metrics.Label
	// From is the source. With has the other sources that Fold reads. All of them must be present.
	From field
	With []field
	Fold func(v []float64) (float64, bool)
	// Only, if set, reports whether a series with these labels counts.
	Only func(l labels.Labels) bool
	// Carry maps a label of the metrics page to a label of the row's series. A source without this label means that no
	// event has occurred yet.
	Carry metrics.Carry
	// Split turns one number into several, by the values of the label By.
	Split func(v float64) map[string]float64
	By    string
	// Is states what kind of value the other exporter reports.
	Is meaning
	// Whole marks a value of the whole GPU that the metrics page repeats for each MIG instance, although the family has a
	// label for instances.
	Whole bool
	// Absent explains why the source may be missing. If Absent is empty, the reason is that the exporter's configuration
	// does not request the source.
	Absent string
	// Quality defaults to Native. Why explains any other quality.
	Quality metrics.Quality
	Why     string
}

// meaning is the true meaning of a source's number. The source's name and # TYPE may suggest another meaning.
type meaning uint8

const (
	value  meaning = iota // the family's own value
	rate                  // a rate, which is integrated over time
	latest                // the code of the latest event; changes are counted
	share                 // the ticks in which a reason applied, and all ticks; the result is the time in which the reason applied
)

// field names a source, and its name in newer releases.
type field struct {
	name    string
	unit    metrics.Scale
	renamed string
	// redefined marks a field whose newer name has the vocabulary's unit. At first, this name was an alias with the older unit.
	redefined bool
}

// named returns a field with one name.
func named(name string, unit metrics.Scale) field { return field{name: name, unit: unit} }

// renamed returns a field whose newer name has the same unit.
func renamed(name, newer string, unit metrics.Scale) field {
	return field{name: name, unit: unit, renamed: newer}
}

// redefined returns a field whose newer name has the vocabulary's unit.
func redefined(name string, unit metrics.Scale, newer string) field {
	return field{name: name, unit: unit, renamed: newer, redefined: true}
}

// These are the units of metrics pages.
var (
	plain   = metrics.Scale{}
	mega    = metrics.Scale{Mul: 1e6}
	mebi    = metrics.Scale{Mul: 1 << 20}
	giga    = metrics.Scale{Mul: 1e9}
	milli   = metrics.Millis
	micro   = metrics.Micros
	nano    = metrics.Scale{Div: 1e9}
	percent = metrics.Scale{Div: 100}
)

// set returns a Set of one label.
func set(name, value string) []metrics.Label { return []metrics.Label{{Name: name, Value: value}} }

// ofGPU identifies what a number is about: the GPU with this UUID or, if the family has a label for it, the MIG
// instance.
type ofGPU struct{ uuid, instance string }

// reading is one number of a row, with the value of the label that Carry or Split sets.
type reading struct {
	ofGPU
	label string
	value float64
	all   float64 // ticks, for a share
}

// series holds the series of a metrics page by name.
type series map[string][]sample

type sample struct {
	labels labels.Labels
	value  float64
}

// first returns the first of several labels that has a value.
func first(l labels.Labels, names ...string) string {
	for _, n := range names {
		if v := l.Get(n); v != "" {
			return v
		}
	}
	return ""
}

// total adds up its sources.
func total(v []float64) (sum float64, ok bool) {
	for _, x := range v {
		sum += x
	}
	return sum, true
}

// less subtracts the second source from the first.
func less(v []float64) (float64, bool) { return v[0] - v[1], true }

// positive drops zero, because a metrics page reports zero if there is no such sensor.
func positive(v []float64) (float64, bool) { return v[0], v[0] > 0 }

// some returns 1 for any number above zero.
func some(v []float64) (float64, bool) { return metrics.Bool(v[0] > 0), true }
