package world

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// truth counts the events of the users, independently of the engines and their metrics. These are the events that an
// ideal alert with the same objectives and windows would see, all of them and without delay.
type truth struct {
	objectives []slo.Objective
	now        []count   // the current slice, by objective
	slices     [][]count // by objective
}

// count has the numbers of events, of bad events, and of lost requests, which never got an answer.
type count struct{ events, bad, lost float64 }

// newTruth starts to count events for objectives.
func newTruth(objectives []slo.Objective) *truth {
	return &truth{objectives: objectives, now: make([]count, len(objectives)), slices: make([][]count, len(objectives))}
}

// watch returns an observer that counts events and passes them on.
func (t *truth) watch(o drill.Observer, e slo.Engine) drill.Observer { return &watched{o, t, e} }

// watched implements drill.Observer for one engine.
type watched struct {
	drill.Observer
	truth  *truth
	engine slo.Engine
}

// count adds n events of a signal to the objectives that select the engine.
func (w *watched) count(signal slo.Signal, n float64, bad func(slo.Objective) bool) {
	for i, o := range w.truth.objectives {
		if o.Signal == signal && o.Select.Matches(w.engine) {
			w.truth.now[i].events += n
			if bad(o) {
				w.truth.now[i].bad += n
			}
		}
	}
}

// unreached counts a request that failed before it reached an engine.
func (t *truth) unreached(at slo.Engine) {
	w := watched{truth: t, engine: at}
	w.count(slo.Availability, 1, func(slo.Objective) bool { return true })
}

// lose counts a user's request that never got an answer. No metric counts such a request, so it makes no page due.
func (t *truth) lose(at slo.Engine) {
	for i, o := range t.objectives {
		if o.Signal == slo.Availability && o.Select.Matches(at) {
			t.now[i].lost++
		}
	}
}

// slower returns a function that reports whether an event with the duration d misses an objective.
func slower(d time.Duration) func(slo.Objective) bool {
	return func(o slo.Objective) bool { return d > o.Threshold.Std() }
}

// FirstToken implements drill.Observer.
func (w *watched) FirstToken(r *drill.Request) {
	w.count(slo.TTFT, 1, slower(r.Held+r.FirstToken-r.Arrival))
	w.Observer.FirstToken(r)
}

// Decoded implements drill.Observer.
func (w *watched) Decoded(d drill.Decoded) {
	w.count(slo.ITL, float64(d.Requests), slower(d.Took))
	w.Observer.Decoded(d)
}

// Finished implements drill.Observer.
func (w *watched) Finished(r *drill.Request) {
	switch {
	case r.Hung:
		w.truth.lose(w.engine)
	case !r.Aborted:
		w.count(slo.Availability, 1, func(slo.Objective) bool { return r.Failed || r.Rejected })
	}
	w.Observer.Finished(r)
}

// tick ends a slice.
func (t *truth) tick() {
	for i := range t.now {
		t.slices[i] = append(t.slices[i], t.now[i])
		t.now[i] = count{}
	}
}

// burn returns when the first page was due, as the time since from. A page is due when both windows of a paging pair
// exceed their threshold for some objective. For an incident with a constant share of bad events, the result equals
// slo.Detection. Events before seen were not measured. In the hour after seen, half of the pair's share of the budget
// must be spent (slo.WakeSpend).
func (t *truth) burn(from, seen time.Duration) (after time.Duration, objective string, due bool) {
	after = 1 << 62
	for i, o := range t.objectives {
		sums := cumulative(t.slices[i])
		for _, p := range slo.DefaultWindowPairs() {
			if p.Severity != slo.Page {
				continue
			}
			limit, _ := p.Threshold(o).Float64()
			for end := int(from / slice); end < len(sums); end++ {
				known := time.Duration(end)*slice - seen
				counts := func(ago, d time.Duration) (float64, float64) {
					c := window(sums, max(0, end-int(ago/slice)), min(d, max(0, known-ago)))
					return c.bad, c.events
				}
				least := 0.0
				if seen > 0 && known < time.Hour {
					least = slo.WakeSpend * limit * window(sums, end, known).events * p.Long.Std().Seconds() / known.Seconds()
				}
				if bad, _ := counts(0, p.Long.Std()); bad >= least && p.Holds(o, counts) {
					if d := time.Duration(end)*slice - from; d < after {
						after, objective, due = d, o.Name, true
					}
					break
				}
			}
		}
	}
	return after, objective, due
}

// between adds up the events from one time to another. Lost requests count as bad events.
func (t *truth) between(objective string, from, to time.Duration) (sum count) {
	for i, o := range t.objectives {
		if o.Name != objective {
			continue
		}
		for _, c := range t.slices[i][max(0, int(from/slice)):min(len(t.slices[i]), int(to/slice))] {
			sum.events, sum.bad = sum.events+c.events+c.lost, sum.bad+c.bad+c.lost
		}
	}
	return sum
}

// cumulative returns running totals. Element i is the total of the first i slices.
func cumulative(slices []count) []count {
	sums := make([]count, len(slices)+1)
	for i, c := range slices {
		sums[i+1] = count{events: sums[i].events + c.events, bad: sums[i].bad + c.bad}
	}
	return sums
}

// window adds up the events in the time d before the slice with the index end.
func window(sums []count, end int, d time.Duration) count {
	start := max(0, end-int(d/slice))
	return count{events: sums[end].events - sums[start].events, bad: sums[end].bad - sums[start].bad}
}
