package engine

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// A request that is refused as invalid (400, 401, 404) is usually its client's fault, and no objective counts it. If a server suddenly
// refuses about as many requests as it used to answer, and answers none, the fault is not the clients': an engine has started with another
// key or name, or with a shorter context. Those requests are rejected.

const (
	// refusesAfter is how long a server must answer none. It must refuse so many meanwhile, and at least half of what it used to answer.
	refusesAfter = time.Minute
	refusesMany  = 10
	// undecided is how long refusals are kept back before they count as invalid, while the server answers none.
	undecided = 15 * time.Minute
	// hardly is the share of the usual answers that is none. A health check may still be answered.
	hardly = 0.05
)

// refusals lets tallies decide how requests count that an engine or a gateway refused as invalid. A tally begins with the good answers: many
// pages have no series of refusals before the first one.
func (c *compiler) refusals(entries []entry) (all []entry) {
	type answered struct{ good, invalid []entry }
	byEngine := map[[outLabels]string]*answered{}
	var order [][outLabels]string
	of := func(e entry) *answered {
		key := e.out
		if key[outOutcome], key[outDPRank] = "", ""; byEngine[key] == nil {
			byEngine[key], order = &answered{}, append(order, key)
		}
		return byEngine[key]
	}
	for _, e := range entries {
		event, bad := slo.Judge(metrics.Outcome(e.out[outOutcome]))
		switch {
		case e.madeUp || e.companion():
		case event && !bad:
			a := of(e)
			a.good = append(a.good, e)
		case e.out[outOutcome] == string(metrics.OutcomeInvalid):
			a := of(e)
			a.invalid = append(a.invalid, e)
			continue
		}
		all = append(all, e)
	}
	for _, key := range order {
		a := byEngine[key]
		if len(a.good) == 0 {
			all = append(all, a.invalid...)
			continue
		}
		t := tally{
			Tally: itself, key: c.text("refused by "+metrics.Requests.Name, key),
			counts: [][]summand{summands("", nil, a.invalid), summands("", nil, a.good)}, refuses: true,
		}
		for _, of := range slices.Concat(t.counts...) {
			c.use(of.term, metrics.Counter)
		}
		invalid := c.place(t)
		t.refused = true
		if rejected := c.place(t); len(a.invalid) > 0 {
			e := a.invalid[0]
			e.sample.Index, e.split, e.total = invalid, "", ""
			all = append(all, e)
			e.sample.Index, e.out[outOutcome] = rejected, string(metrics.OutcomeRejected)
			all = append(all, e)
		}
	}
	return all
}

// refusal is what a tally remembers of refusals.
type refusal struct {
	answers  [parts]answers // of the last hour
	usual    float64        // good answers per second before the last one
	since    time.Time      // of the last good answer
	pending  float64        // refusals since then that are undecided
	refuses  bool
	rejected float64
}

// answers is the number of good answers in a part of an hour.
type answers struct {
	number int64
	good   float64
}

// decide returns how many more requests are invalid, at a reading that shows so many more refusals and good answers.
func (r *refusal) decide(now time.Time, refused, good float64) (invalid float64) {
	if now.IsZero() || r.since.IsZero() { // a history has no times; before the first reading anything may have happened
		r.since = now
		return refused
	}
	waited := now.Sub(r.since)
	if r.usual == 0 || good > hardly*r.usual*waited.Seconds() {
		r.answer(now, good)
		invalid, r.pending, r.since, r.refuses = r.pending+refused, 0, now, false
		return invalid
	}
	r.pending += refused
	due := r.usual * waited.Seconds()
	switch {
	case r.refuses || waited >= refusesAfter && due >= refusesMany && r.pending >= max(refusesMany, due/2):
		r.rejected, r.pending, r.refuses = r.rejected+r.pending, 0, true
	case waited >= undecided:
		invalid, r.pending = r.pending, 0
	}
	return invalid
}

// answer records good answers, and how many usually come.
func (r *refusal) answer(now time.Time, good float64) {
	number := now.UnixNano() / int64(traffic/parts)
	if p := &r.answers[number%parts]; p.number == number {
		p.good += good
	} else {
		*p = answers{number, good}
	}
	sum, oldest := 0.0, now
	for _, p := range r.answers {
		if from := time.Unix(0, p.number*int64(traffic/parts)); p.number > 0 && now.Sub(from) < traffic {
			sum += p.good
			if from.Before(oldest) {
				oldest = from
			}
		}
	}
	if r.usual = sum / max(now.Sub(oldest), time.Minute).Seconds(); sum < refusesMany {
		r.usual = 0
	}
}
