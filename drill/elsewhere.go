package drill

import (
	"math"
	"time"
)

// Elsewhere is where KV caches are besides the GPU, and the way there.
type Elsewhere struct {
	Prefilled bool    // prompts are computed by prefill engines, and their KV cache is fetched
	Lost      float64 // share of fetches that fail: the engine computes what it did not get
	Host      float64 // bytes of host memory for KV cache; 0 is without
	HostHits  float64 // share of the tokens that the GPU lacks and host memory has, if all were stored
	Fetching  float64 // bytes per second from there
	Storing   float64 // bytes per second to host memory
}

// Move is a KV cache on its way: to the tier below, or from there or a prefill engine.
type Move struct {
	Store         bool
	Tokens, Bytes float64
	Took          time.Duration
	Failed        bool    // to come, or to find room
	Pinned        float64 // share of the tier that moves hold
}

// memory is how long a tier keeps what it stores until it is replaced: what was refused in that time is
// missing.
const memory = 10 * time.Minute

// moves is what is on the way.
type moves struct {
	fetching []*Request    // in the order in which they will be there
	free     time.Duration // when the way from elsewhere is
	kept     float64       // share of recent tokens that were stored
	pinned   float64       // bytes that the way to the tier has not taken yet
	at       time.Duration // of pinned
	stored   time.Duration // when something was to be, last
}

// fetch sends for the part of a prompt's KV cache that is elsewhere. It says whether there is one.
func (e *Engine) fetch(r *Request) bool {
	missing := r.Prompt - r.Cached - 1 // the last token is always computed
	switch {
	case e.Prefilled:
		r.fetched = int(missing)
	case e.Host > 0:
		r.fetched = int(missing * e.HostHits * e.kept)
	}
	if r.fetched <= 0 {
		return false
	}
	took := time.Duration(float64(r.fetched) * e.Weights.KVBytesPerTok / e.Fetching * float64(time.Second))
	e.free = max(e.free, r.Arrival) + took
	r.there = e.free
	e.fetching = append(e.fetching, r)
	return true
}

// arrived takes a request whose KV cache is there, or lost, into the queue.
func (e *Engine) arrived(r *Request) {
	m := Move{Tokens: float64(r.fetched), Bytes: float64(r.fetched) * e.Weights.KVBytesPerTok, Took: r.there - r.Arrival}
	if e.Lost > 0 && e.random.Float64() < e.Lost {
		m.Failed, r.fetched = true, 0
	}
	m.Pinned = e.hold(0)
	r.todo -= r.fetched
	r.came = float64(r.fetched)
	e.observer.Moved(m)
	e.waiting = append(e.waiting, r)
}

// store sends what was computed of a prompt to the tier below, where it is pinned until it is there. A tier
// without room refuses.
func (e *Engine) store(tokens float64) {
	if e.Host == 0 || tokens <= 0 {
		return
	}
	m := Move{Store: true, Tokens: tokens, Bytes: tokens * e.Weights.KVBytesPerTok}
	m.Took = time.Duration(m.Bytes / e.Storing * float64(time.Second))
	replaced := 1 - math.Exp(-(e.now-e.stored).Seconds()/memory.Seconds())
	e.kept -= e.kept * replaced
	e.stored = e.now
	if m.Pinned = e.hold(0); m.Pinned+m.Bytes/e.Host > 1 {
		m.Failed, m.Took = true, 0
	} else {
		m.Pinned = e.hold(m.Bytes)
		e.kept += replaced
	}
	e.observer.Moved(m)
}

// hold pins more bytes of the tier, after the way has taken what it can.
func (e *Engine) hold(bytes float64) float64 {
	if e.Host == 0 {
		return 0
	}
	e.pinned = max(0, e.pinned-(e.now-e.at).Seconds()*e.Storing) + bytes
	e.at = e.now
	return e.pinned / e.Host
}
