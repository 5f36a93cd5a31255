package engine

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// This file counts events that engines do not count: arrivals, requests without a first token, and the time that
// requests spend outside the scheduler's view. It also records whether an engine has become warm since its start.

const (
	// An engine is warm after warmAfter answers, when no request has waited for warmFor.
	warmAfter = 10
	warmFor   = time.Minute
	// A recent start explains why requests wait. A start is recent for coldFor, and a wait that has ended still counts for
	// coldAfter.
	coldFor   = 15 * time.Minute
	coldAfter = 5 * time.Minute
	// waited is a mean wait in seconds. A longer mean wait shows that the queue was not empty between two readings.
	waited = 0.5
	// certain is how long a metrics page must show that a request has no first token yet.
	certain = time.Minute
	// compared is the time over which the exporter compares the times to first tokens with the times in the scheduler.
	// enough is the number of first tokens that this comparison needs.
	compared = 2 * time.Minute
	enough   = 10
	// Arrivals are counted per interval of arrivalsEvery. The intervals of the last arrivalsFor are compared, if there are
	// arrivalsLeast of them with at least arrivalsFew requests.
	arrivalsEvery = 30 * time.Second
	arrivalsFor   = 10 * time.Minute
	arrivalsLeast = 8
	arrivalsFew   = 20
)

// more holds the increases of counters between the last two readings.
type more struct {
	requests float64 // ended requests, except requests refused as invalid
	served   float64 // requests that ended well, or that clients gave up
	firsts   float64 // first tokens
	prompts  float64 // prompt tokens that no cache contained
}

// numbers holds counts that continue until the exporter ends.
type numbers struct {
	values    map[string]float64 // of counters at the last reading
	arrivals  arrivals
	bursts    bursts
	prefilled owing
	tokenless tokenless
}

// read returns the increases of a unit's counters since the last reading. If a counter has fallen, it restarted at 0.
func (n *numbers) read(u *unit, values []float64) (m more) {
	now := make(map[string]float64, len(u.requests)+len(u.firsts))
	grown := func(l *line) float64 {
		v := l.eval(values)
		now[l.text] = v
		before, known := n.values[l.text]
		if v < before {
			before = 0
		}
		if by := v - before; known && by > 0 && !math.IsInf(by, 0) {
			return by
		}
		return 0
	}
	for i := range u.requests {
		by := grown(&u.requests[i].line)
		if m.requests += by; u.requests[i].served {
			m.served += by
		}
	}
	sum := func(of []line) (by float64) {
		for i := range of {
			by += grown(&of[i])
		}
		return by
	}
	m.firsts, m.prompts = sum(u.firsts), sum(u.prompts.all)-u.prompts.held(sum)
	n.values = now
	return m
}

// count adds to the counts what has changed between the last reading and r.
func (n *numbers) count(u *unit, last, r sight, restarted bool) {
	ended, ran := r.more.requests, last.load
	if len(u.requests) == 0 {
		ended = r.more.firsts
	}
	if restarted {
		ran = 0
	}
	if !last.at.IsZero() {
		n.arrivals.count(ended + r.load - ran)
	}
	n.tokenless.count(r, restarted)
	n.prefilled.add(r.more.prompts)
}

// arrivals counts requests as they arrive.
type arrivals struct {
	total float64
	less  float64 // decrease of the number of requests in the last reading
}

// count adds the increase in the number of requests that a metrics page shows. The metrics page may count a request as
// ended before or after the number of running requests falls, so a decrease cancels the next increase.
func (a *arrivals) count(more float64) {
	a.total, a.less = a.total+max(0, more-a.less), max(0, -more)
}

// bursts measures how many requests arrive together.
type bursts struct {
	at        time.Time // end of the last interval
	total     float64   // arrivals until then
	intervals []arrived // of the last arrivalsFor
}

// arrived holds the requests that arrived in an interval.
type arrived struct {
	end               time.Time
	requests, seconds float64
	load              float64 // at its end
}

// add adds a reading. An interval ends at the reading that is nearest to its intended end.
func (b *bursts) add(at time.Time, total, load float64) {
	took := at.Sub(b.at)
	switch {
	case b.at.IsZero() || took > 4*arrivalsEvery:
		b.intervals = nil
	case took < arrivalsEvery*2/3:
		return
	default:
		b.intervals = append(b.intervals, arrived{at, total - b.total, took.Seconds(), load})
		for at.Sub(b.intervals[0].end) >= arrivalsFor {
			b.intervals = b.intervals[1:]
		}
	}
	b.at, b.total = at, total
}

// size returns the index of dispersion of the arrivals, which is the variance of their number divided by its mean. If n
// requests arrive together at random times, it is n. The variance is computed from the changes between successive
// intervals. Without a trend, the squares of the rises, and also those of the falls, add up to one variance per change.
// The smaller sum counts, because a burst ends, whereas a lasting increase only rises. The size is 1 unless the bursts
// explain a queue: the number of requests has a standard deviation of half of its mean, and the load falls between bursts.
func (b *bursts) size() (size float64, known bool) {
	var requests, seconds float64
	for _, s := range b.intervals {
		requests, seconds = requests+s.requests, seconds+s.seconds
	}
	n := float64(len(b.intervals))
	if n < arrivalsLeast || requests < arrivalsFew {
		return 0, false
	}
	var rises, falls, before float64
	for i, s := range b.intervals {
		over := s.requests - s.seconds*requests/seconds
		if change := over - before; i > 0 && change > 0 {
			rises += change * change
		} else if i > 0 {
			falls += change * change
		}
		before = over
	}
	size = min(rises, falls) / (n - 1) / (requests / n)
	if size < requests/seconds*arrivalsEvery.Seconds()/4 || b.busy() {
		return 1, true
	}
	return max(1, size), true
}

// busy reports whether the load hardly fell within the last arrivalsLeast intervals.
func (b *bursts) busy() bool {
	recent := b.intervals[max(0, len(b.intervals)-arrivalsLeast):]
	least, sum := math.Inf(1), 0.0
	for _, s := range recent {
		least, sum = min(least, s.load), sum+s.load
	}
	return 2*least > sum/float64(len(recent))
}

// tokenless counts requests that ended without a first token. Some running requests have no first token yet. Therefore,
// only the lowest number in the readings of a minute is certain.
type tokenless struct {
	ended   float64
	without float64 // requests that ended since the first reading, minus the first tokens since then
	level   float64 // how many of the requests without a first token have been counted
	shown   []lacking
}

// lacking holds how many requests had no first token at a reading. They include ended and running requests.
type lacking struct {
	at time.Time
	n  float64
}

// count adds a reading.
func (t *tokenless) count(r sight, restarted bool) {
	t.without += r.more.served - r.more.firsts
	now := lacking{r.at, t.without + r.load - r.waits}
	switch {
	case restarted || t.shown == nil:
		t.shown, t.level = nil, now.n
	case t.ended == 0:
		t.level = min(t.level, now.n)
	}
	t.shown = append(t.shown, now)
	for len(t.shown) > 2 && r.at.Sub(t.shown[1].at) >= certain {
		t.shown = t.shown[1:]
	}
	if r.at.Sub(t.shown[0].at) < certain {
		return
	}
	least := slices.MinFunc(t.shown, func(a, b lacking) int { return cmp.Compare(a.n, b.n) }).n
	t.ended, t.level = t.ended+max(0, least-t.level), max(least, t.level)
}

// warmth records whether an engine has become warm since its start.
type warmth struct {
	earlier float64   // answers at its start
	calm    time.Time // since when no request has waited
	queue   time.Time // when a request last waited before the engine was warm
	warm    bool
}

// feel records the reading r that follows last. Counts from before the first reading belong to the engine's start.
func (w *warmth) feel(last, r sight) {
	queue := r.waits > 0 || r.queue.since(last.queue) > waited
	if queue && !w.warm {
		w.queue = r.at
	}
	switch {
	case queue || r.good-w.earlier < warmAfter:
		w.calm = time.Time{}
	case w.calm.IsZero():
		w.calm = r.at
	}
	w.warm = w.warm || !w.calm.IsZero() && r.at.Sub(w.calm) >= warmFor
}

// cold reports whether the engine's start explains why requests wait, or waited a short time ago.
func (w *warmth) cold(r sight) bool {
	return !w.queue.IsZero() && r.at.Sub(w.queue) <= coldAfter && r.at.Sub(time.UnixMilli(int64(1000*r.start))) <= coldFor
}

// unseen holds the readings of the last two minutes, and the reading before them.
type unseen []sight

// add adds a reading.
func (n *unseen) add(r sight) {
	*n = append(*n, r)
	for len(*n) > 2 && r.at.Sub((*n)[1].at) >= compared {
		*n = (*n)[1:]
	}
}

// seconds returns how much longer first tokens took than requests stayed in the scheduler. By Little's law, the time in
// the scheduler is at most the mean number of requests in it, divided by the requests that leave it per second. A queue
// may come and go between two readings, so the engine's own times count if they are longer. Alone, the engine's own
// times prove nothing, because an engine counts them when a request ends.
func (n unseen) seconds() (seconds float64, known bool) {
	if len(n) == 0 {
		return 0, false
	}
	from, to := n[0], n[len(n)-1]
	firsts := to.first.count - from.first.count
	if firsts < enough || to.at.Sub(from.at) < compared {
		return 0, false
	}
	inside := 0.0
	for i, r := range n[1:] {
		inside += (r.load + n[i].load) / 2 * r.at.Sub(n[i].at).Seconds()
	}
	explained := max(inside/firsts, to.queue.since(from.queue)+to.prefill.since(from.prefill))
	return max(0, to.first.since(from.first)-explained), true
}
