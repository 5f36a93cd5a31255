// Package incident is the drill's catalogue: what happens to a node, and which alerts must fire.
package incident

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Incident is a sequence of faults, with the alerts that must fire.
type Incident struct {
	Name  string
	Story string
	Fleet world.Fleet
	// Lived is how long the node was healthy before the exporter and its Prometheus started, by default zero. History
	// is how long the node was healthy after that, by default two hours.
	Lived, History time.Duration
	// Replays holds the replays per hour of the first GPU's first NVLink on each day before the history, as Prometheus
	// has recorded them.
	Replays []float64
	// Faults lists the events from the onset on.
	Faults []Fault
	// Lasts is how long the drill watches after the onset.
	Lasts time.Duration
	// Lever is the action that ends the incident in a transcript. Other plays do not use it.
	Lever Lever

	// Page names the alert that must page; nil if none must.
	Page *rules.Alert
	// Or names an alert that may page first instead, because both detect the same fault, and chance decides which is
	// earlier.
	Or *rules.Alert
	// Within limits how late a page may come if the theory gives no time, because no budget burns or no request could be
	// sent.
	Within time.Duration
	// Cause names the alert that must name the cause, in the page or in a ticket. Clue names the clue that must name
	// the cause, if no alert must.
	Cause *rules.Alert
	Clue  string
	// Shows is a regular expression for the evidence of the cause that the first page must have. Alerts on causes may
	// come after the page, but their evidence must be in the page.
	Shows string
	// Quiet means that there must be no ticket either.
	Quiet bool
	// Report names the publication of the incident; nil for an invented incident.
	Report *Report
}

// All returns the drill's incidents and the public incidents.
func All() []Incident { return append(Incidents(), Public()...) }

// Fault changes the world at a time after the onset.
type Fault struct {
	At time.Duration
	Do func(w *world.World)
}

// Lever is an action that improves the world.
type Lever struct {
	// Page names the runbook that advises the action. Parts names the headings in it.
	Page  string
	Parts []string
	// Says describes the action in words.
	Says string
	Fault
}

// defaultHistory gives the comparisons with the day before some data, because these leave out the last hour.
const defaultHistory = 2 * time.Hour

// Names returns the alert or the clue that must name the cause, and its branch. Both are empty if no cause has to be named.
func (in Incident) Names() (name string, branch rules.Branch) {
	if in.Cause != nil {
		return in.Cause.Name, in.Cause.Branch
	}
	for _, c := range rules.Clues() {
		if c.Name == in.Clue {
			return c.Name, c.Branch
		}
	}
	return in.Clue, ""
}

// Onset returns the time from the beginning of the history to the incident.
func (in Incident) Onset() time.Duration { return in.Lived + cmp.Or(in.History, defaultHistory) }

// Ordered returns the faults in the order in which they happen.
func (in Incident) Ordered() []Fault {
	return slices.SortedStableFunc(slices.Values(in.Faults), func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

// fault returns a Fault in one line.
func fault(at time.Duration, do func(w *world.World)) Fault { return Fault{at, do} }

// every applies a change to each replica.
func every(do func(r *world.Replica)) func(*world.World) {
	return func(w *world.World) {
		for _, r := range w.Replicas {
			do(r)
		}
	}
}

// one applies a change to one replica.
func one(i int, do func(r *world.Replica)) func(*world.World) {
	return func(w *world.World) { do(w.Replicas[i]) }
}

// chat returns the fleet of most incidents: four replicas of an 8B model on H100, each at about a fifth of its
// capacity.
func chat() world.Fleet {
	p := drill.NewProfile("llama-3.1-8b-chat")
	p.Arrivals, p.Swing = 10, 0
	return world.Fleet{Profile: p, Runtimes: []metrics.Runtime{metrics.VLLM}, Replicas: 4}
}

// with changes a fleet.
func with(f world.Fleet, change func(f *world.Fleet)) world.Fleet {
	change(&f)
	return f
}

// mayBeAbsent declares that the models of these objectives may have no engine.
func mayBeAbsent(objectives []slo.Objective) []slo.Objective {
	for i := range objectives {
		objectives[i].MayBeAbsent = true
	}
	return objectives
}

// minute abbreviates durations in the catalogue.
const minute = time.Minute

// Find returns the incident with this name. The error lists the known names.
func Find(incidents []Incident, name string) (Incident, error) {
	names := make([]string, len(incidents))
	for i, in := range incidents {
		names[i] = in.Name
	}
	if i := slices.Index(names, name); i >= 0 {
		return incidents[i], nil
	}
	return Incident{}, fmt.Errorf("no incident %q: choose from %s", name, strings.Join(names, ", "))
}
