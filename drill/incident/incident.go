// Package incident is the drill's catalogue. It has the incidents of a node, and the alerts that must fire.
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
	// Lived is how long the node was healthy before the exporter and its Prometheus started. Default: zero. History is how
	// long the node was healthy after that. Default: two hours.
	Lived, History time.Duration
	// Replays has the replays per hour of the first GPU's first NVLink, for each day before the history. Prometheus has
	// recorded them.
	Replays []float64
	// Faults lists the events from the onset on.
	Faults []Fault
	// Lasts is how long the drill watches after the onset.
	Lasts time.Duration
	// Lever is the action that ends the incident in a transcript. Plays that only score the incident do not use it.
	Lever Lever

	// Page names the alert that must page. It is nil if no alert must page.
	Page *rules.Alert
	// Or names another alert that may page first, because both detect the same fault. Chance decides which of the two is
	// earlier.
	Or *rules.Alert
	// Within limits how late a page may come. It is needed if the theory predicts no time for the page, because no budget
	// burns or no request can be sent.
	Within time.Duration
	// Cause names the alert that must name the cause, as a page or a ticket. If no alert must name the cause, Clue names
	// the clue that must.
	Cause *rules.Alert
	Clue  string
	// Shows is a regular expression. The first page must contain a match, as evidence of the cause. Alerts on causes may
	// come later than the page.
	Shows string
	// Quiet means that the incident must not even open a ticket.
	Quiet bool
	// Report names the publication of the incident. It is nil for an invented incident.
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
	// Page names the runbook that advises the action. Parts lists the headings under which it does so.
	Page  string
	Parts []string
	// Says is the action in words.
	Says string
	Fault
}

// defaultHistory is long enough for rules that compare the present with the day before, because their "day before" ends
// an hour ago.
const defaultHistory = 2 * time.Hour

// Names returns the name of the alert or clue that must name the cause, and the branch of this alert or clue. Both are
// empty if no cause must be named.
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

// fault builds a Fault, so that the catalogue needs one line for each.
func fault(at time.Duration, do func(w *world.World)) Fault { return Fault{at, do} }

// every returns a change of the world that applies a change to each replica.
func every(do func(r *world.Replica)) func(*world.World) {
	return func(w *world.World) {
		for _, r := range w.Replicas {
			do(r)
		}
	}
}

// one returns a change of the world that applies a change to one replica.
func one(i int, do func(r *world.Replica)) func(*world.World) {
	return func(w *world.World) { do(w.Replicas[i]) }
}

// chat returns the fleet of most incidents. It has four replicas of an 8B model on H100, each at about a fifth of its
// capacity.
func chat() world.Fleet {
	p := drill.NewProfile("llama-3.1-8b-chat")
	p.Arrivals, p.Swing = 10, 0
	return world.Fleet{Profile: p, Runtimes: []metrics.Runtime{metrics.VLLM}, Replicas: 4}
}

// with returns a fleet after a change.
func with(f world.Fleet, change func(f *world.Fleet)) world.Fleet {
	change(&f)
	return f
}

// mayBeAbsent changes objectives, so that their models may have no engine, and returns them.
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
