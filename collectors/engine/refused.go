package engine

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// A request that is refused as invalid (400, 401, 404) is usually its client's fault, so no objective counts it. But a server may suddenly
// refuse about as many requests as it used to answer, and answer none. This is not the clients' fault. An engine has then started with
// another key or name, or with a shorter context. Such requests count as rejected.

const (
	// refusesAfter is how long a server must answer no request. In that time, it must refuse at least refusesMany
	// requests, and at least half as many requests as it used to answer.
	refusesAfter = time.Minute
	refusesMany  = 10
	// undecided is the longest time for which refusals wait for a decision. Then they count as invalid.
	undecided = 15 * time.Minute
	// hardly is a share of the usual rate of answers. A server below this share counts as answering nothing, because a few
	// answers may come from health checks.
	hardly = 0.05
)

// answerer is an engine or a gateway. If the metrics page distinguishes the servers behind it, answerer is one of those servers.
type answerer struct {
	engine   [outLabels]string
	upstream string
}

// refusals lets tallies decide how to count requests that an answerer refused as invalid. A tally begins with the good
// answers, because many metrics pages have no series of refusals before the first refusal. After a restart, a metrics
// page has no series of good answers before the first good answer, so the tally remembers the old series.
func (c *compiler) refusals(entries []entry) (all []entry) {
	good, invalid, refused := map[answerer][]entry{}, map[answerer][]entry{}, map[answerer][]entry{}
	var order []answerer
	for _, e := range entries {
		whole, one := e.answerers()
		event, bad := slo.Judge(metrics.Outcome(e.out[outOutcome]))
		switch {
		case e.madeUp || e.companion():
		case event && !bad:
			for _, a := range slices.Compact([]answerer{whole, one}) {
				if good[a] == nil {
					order = append(order, a)
				}
				good[a] = append(good[a], e)
			}
		case e.out[outOutcome] == string(metrics.OutcomeInvalid):
			refused[whole] = append(refused[whole], e)
			continue
		}
		all = append(all, e)
	}
	for _, e := range entries {
		switch whole, one := e.answerers(); {
		case !slices.ContainsFunc(refused[whole], func(r entry) bool { return r.sample.Index == e.sample.Index && r.out == e.out }):
		case good[one] != nil:
			invalid[one] = append(invalid[one], e)
		default:
			if invalid[whole] = append(invalid[whole], e); !slices.Contains(order, whole) {
				order = append(order, whole)
			}
		}
	}
	for _, a := range order {
		if a.upstream == "" {
			t := c.refusing(a, "all by", refused[a], good[a])
			t.refusesAll = true
			c.add(line{
				family: metrics.EngineRefuses, text: c.text(metrics.EngineRefuses.Name, a.engine), terms: []term{{c.place(t)}}, recipe: plain,
			})
		}
		t := c.refusing(a, "by "+a.upstream, invalid[a], good[a])
		kept := c.place(t)
		t.refused = true
		if rejected := c.place(t); len(invalid[a]) > 0 {
			e := invalid[a][0]
			e.sample.Index, e.split, e.total = kept, t.key, ""
			all = append(all, e)
			e.sample.Index, e.out[outOutcome] = rejected, string(metrics.OutcomeRejected)
			all = append(all, e)
		}
	}
	return all
}

// refusing returns the tally of the refusals of an answerer.
func (c *compiler) refusing(a answerer, name string, refused, good []entry) tally {
	t := tally{
		Tally: itself, key: c.text("refused "+name+" "+metrics.Requests.Name, a.engine), refuses: true,
		counts: [][]summand{summands("", nil, refused), summands("", nil, good)},
	}
	for _, of := range slices.Concat(t.counts...) {
		c.use(of.term, metrics.Counter)
	}
	return t
}

// answerers returns the servers that answered the requests of an entry: the engine or gateway, and the server behind it
// if a label names that server.
func (e *entry) answerers() (whole, one answerer) {
	whole = answerer{engine: e.out}
	whole.engine[outOutcome], whole.engine[outDPRank] = "", ""
	if one = whole; e.row.Upstream != "" {
		if one.upstream = e.sample.Labels.Get(e.row.Upstream); one.upstream == "None" {
			one.upstream = ""
		}
	}
	return whole, one
}

// refusal holds the state of a tally of refusals.
type refusal struct {
	hour     [parts]part
	usual    float64   // good answers per second before the last good answer
	since    time.Time // time of the last good answer
	read     time.Time // time of the last reading
	pending  float64   // undecided refusals since the last good answer
	refuses  bool
	rejected float64
}

// decide returns the increase of invalid requests at a reading, from the increases of refusals and good answers.
func (r *refusal) decide(now time.Time, refused, good float64) (invalid float64) {
	last := r.read
	r.read = now
	if now.IsZero() || r.since.IsZero() { // a history has no times, and the time before the first reading is unknown
		r.since = now
		return refused
	}
	waited := now.Sub(r.since)
	if r.usual == 0 || good > hardly*r.usual*now.Sub(last).Seconds() {
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

// answer records good answers, and updates the usual rate.
func (r *refusal) answer(now time.Time, good float64) {
	partOf(&r.hour, now).good += good
	if good, r.usual = answersIn(&r.hour, now, time.Time{}); good < refusesMany {
		r.usual = 0
	}
}
