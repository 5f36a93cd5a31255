package page

import (
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// A Source is what one exporter's page says about GPUs and how to read it: a table a person can hold beside that
// exporter's documentation.
type Source struct {
	// Name is the value of the source label.
	Name string
	// Reference cites where the facts of the table come from.
	Reference string
	// Recognise reports whether a page is of this exporter, and what stands before all of its names.
	Recognise func(s series) (prefix string, ok bool)
	// Redefines reports whether the page is of a release in which names with a new unit mean that unit. Nil: they do.
	Redefines func(s series) bool
	// UUID identifies the GPU of a row; empty for rows of something else.
	UUID func(l labels.Labels) string
	// Labels are the page's labels for one of the vocabulary, the first one with a value.
	Labels map[string][]string
	// Rows is the table.
	Rows []Row
	// Says are families that the labels of the page say, and how.
	Says map[*metrics.Family]string
	// Missing says why the page cannot say a family, in any version.
	Missing map[*metrics.Family]string
	// Otherwise is the reason for all further families; empty where there are none.
	Otherwise string
}

// A Row maps one source of a page to one family of the vocabulary, whose kind is that of the device: the # TYPE of the
// page is not looked at. Series of one GPU, or of one MIG instance where the family has that label, that differ in other
// labels repeat a number: the largest stands.
//
// Rows that give the same series are alternatives: the first that is on the page for a GPU is used. XIDs of a GPU come from
// one row.
type Row struct {
	// To is the family.
	To *metrics.Family
	// Set are labels that all series of the row get.
	Set []metrics.Label
	// From is the source. With are further ones that Fold reads; each has to be there.
	From field
	With []field
	Fold func(v []float64) (float64, bool)
	// Carry makes a label of the page one of the series. A row without it says that there is nothing yet.
	Carry engine.Carry
	// Split makes one number several, by the values of the label By.
	Split func(v float64) map[string]float64
	By    string
	// Is says what kind of number the page has.
	Is meaning
	// Whole is a row of the GPU that is repeated for each of its MIG instances, though the family has their label.
	Whole bool
	// Absent says why the source may lack. Empty: the exporter's configuration does not ask for it.
	Absent string
	// Quality is Native when empty, and Why explains another.
	Quality metrics.Quality
	Why     string
}

// meaning is what the number of a source means, whatever its name and # TYPE say.
type meaning uint8

const (
	value  meaning = iota // the family's own value
	rate                  // a rate, which is integrated from one reading to the next
	latest                // the code of the latest event, of which changes are counted
)

// field is a source, and its name in newer releases.
type field struct {
	name    string
	unit    engine.Scale
	renamed string
	// redefined is a field whose newer name has the vocabulary's unit, and which older releases know as an alias with
	// the older unit.
	redefined bool
}

// named is a field with one name.
func named(name string, unit engine.Scale) field { return field{name: name, unit: unit} }

// renamed is a field whose newer name has the same unit.
func renamed(name, newer string, unit engine.Scale) field {
	return field{name: name, unit: unit, renamed: newer}
}

// redefined is a field whose newer name has the vocabulary's unit.
func redefined(name string, unit engine.Scale, newer string) field {
	return field{name: name, unit: unit, renamed: newer, redefined: true}
}

// The units of pages.
var (
	plain   = engine.Scale{}
	mega    = engine.Scale{Mul: 1e6}
	mebi    = engine.Scale{Mul: 1 << 20}
	giga    = engine.Scale{Mul: 1e9}
	milli   = engine.Millis
	micro   = engine.Micros
	nano    = engine.Scale{Div: 1e9}
	percent = engine.Scale{Div: 100}
)

// set is a Set of one label.
func set(name, value string) []metrics.Label { return []metrics.Label{{Name: name, Value: value}} }

// ofGPU is where a row belongs, of the labels of its family: uuid, and the MIG instance where it has one.
type ofGPU struct{ uuid, instance string }

// reading is one number of a row, and the value of the label that was carried or split.
type reading struct {
	ofGPU
	label string
	value float64
}

// series are those of a page, by name.
type series map[string][]sample

type sample struct {
	labels labels.Labels
	value  float64
}

// first is the first of several labels that has a value.
func first(l labels.Labels, names ...string) string {
	for _, n := range names {
		if v := l.Get(n); v != "" {
			return v
		}
	}
	return ""
}

// total adds its sources.
func total(v []float64) (sum float64, ok bool) {
	for _, x := range v {
		sum += x
	}
	return sum, true
}

// less is the first source less the second.
func less(v []float64) (float64, bool) { return v[0] - v[1], true }

// positive drops zero, by which a page says that there is no such sensor.
func positive(v []float64) (float64, bool) { return v[0], v[0] > 0 }

// some is 1 for any number above zero.
func some(v []float64) (float64, bool) { return truth(v[0] > 0), true }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
