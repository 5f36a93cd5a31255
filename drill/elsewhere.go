package drill

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Elsewhere describes KV caches outside the engine's GPU: where they are, and how they are transferred.
type Elsewhere struct {
	Prefilled bool    // prefill engines compute prompts, and decode engines fetch the KV cache
	Lost      float64 // share of fetches that fail, after which the engine computes the tokens
	Unsent    float64 // share of fetches without an answer, which fail after giveUp
	Host      float64 // bytes of host memory for KV cache; 0 means none
	HostHits  float64 // share of the tokens missing on the GPU that host memory has, if it stores all tokens
	Lasting   bool    // the tier is on disk and outlives a restart
	Fetching  float64 // bytes per second from the tier or prefill engine
	Storing   float64 // bytes per second to host memory
}

// Move is the transfer of a KV cache to the lower tier, from the lower tier, or from a prefill engine.
type Move struct {
	Store         bool
	Tokens, Bytes float64
	Took          time.Duration
	Failed        bool    // the cache did not arrive in time, or there was no room
	Pinned        float64 // share of the tier that transfers pin
}

// memory is how long a tier keeps stored tokens before it replaces them. Tokens that the tier refused within this time
// are missing from it.
const memory = 10 * time.Minute

// giveUp is how long an engine waits for a KV cache before it gives up. It is the default of vLLM's Mooncake connector.
const giveUp = 480 * time.Second

// moves is the state of the transfers.
type moves struct {
	fetching []*Request    // in order of arrival
	free     time.Duration // when the link for fetches is free
	kept     float64       // share of recent tokens that were stored
	pinned   float64       // bytes that still wait for the link to the tier
	at       time.Duration // time of pinned
	stored   time.Duration // when tokens were last offered to the tier
}

// fetch starts to fetch the part of a prompt's KV cache that is outside the GPU. It reports whether there is such a
// part.
func (e *Engine) fetch(r *Request) bool {
	missing := r.Prompt - r.Cached - 1 // the last token is always computed
	switch {
	case e.Prefilled && !r.Local:
		r.fetched = int(missing)
	case e.Host > 0:
		r.fetched = int(missing * e.HostHits * e.kept)
	}
	if r.fetched <= 0 {
		return false
	}
	if r.unsent = e.Unsent > 0 && e.random.Float64() < e.Unsent; r.unsent {
		r.there = r.Arrival + giveUp
	} else {
		took := time.Duration(float64(r.fetched) * e.kvBytesPerToken() / e.Fetching * float64(time.Second))
		e.free = max(e.free, r.Arrival) + took
		r.there = e.free
	}
	e.fetching = append(e.fetching, r)
	slices.SortStableFunc(e.fetching, func(a, b *Request) int { return cmp.Compare(a.there, b.there) })
	return true
}

// arrived adds a request to the queue after its KV cache has arrived, or was lost.
func (e *Engine) arrived(r *Request) {
	m := Move{Tokens: float64(r.fetched), Bytes: float64(r.fetched) * e.kvBytesPerToken(), Took: r.there - r.Arrival}
	if r.unsent || e.Lost > 0 && e.random.Float64() < e.Lost {
		m.Failed, r.fetched = true, 0
	}
	m.Pinned = e.hold(0)
	r.todo -= r.fetched
	r.came = float64(r.fetched)
	e.observer.Moved(m)
	e.waiting = append(e.waiting, r)
}

// store sends the computed part of a prompt to the lower tier. The tokens stay pinned until the transfer has ended. A
// full tier refuses them.
func (e *Engine) store(tokens float64) {
	if e.Host == 0 || tokens <= 0 {
		return
	}
	m := Move{Store: true, Tokens: tokens, Bytes: tokens * e.kvBytesPerToken()}
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

// hold pins additional bytes of the tier, and releases the bytes whose transfer has ended since the last call.
func (e *Engine) hold(bytes float64) float64 {
	if e.Host == 0 {
		return 0
	}
	e.pinned = max(0, e.pinned-(e.now-e.at).Seconds()*e.Storing) + bytes
	e.at = e.now
	return e.pinned / e.Host
}
