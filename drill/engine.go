// Package drill simulates inference engines with their own metrics over HTTP, under simulated traffic. Only this
// package and its subpackages contain invented numbers. The metrics follow the engines' documentation, and never the
// exporter's tables.
//
// The model follows vLLM's V1 scheduler. The model has continuous batching with chunked prefill under a token budget
// per step, and KV blocks. If no block is free, the newest request is preempted and recomputed. The model also has a
// prefix cache and speculative decoding. Time is virtual. Package live connects it to the machine's clock.
package drill

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Serving describes an engine's configuration and its GPU.
type Serving struct {
	GPU        Hardware
	Weights    Weights
	MaxBatch   int     // --max-num-seqs
	Budget     int     // --max-num-batched-tokens: largest number of tokens in a step
	MaxQueue   int     // largest number of waiting requests, above which requests are rejected; 0 means no limit
	Blocks     int     // KV blocks; 0 means that the GPU's memory is the limit
	Leak       float64 // share of requests whose KV blocks stay in use when they end
	Draft      int     // tokens that are proposed per step and sequence; 0 means no speculation
	Acceptance float64 // probability that a proposed token is accepted if all earlier proposed tokens were accepted
	ShowsQueue bool    // the server counts waiting requests, even while the core hangs
	Alternates bool    // after a step that admits requests, the next step admits none
	Adapters   int     // --max-loras: adapters that fit into a batch; 0 means that none is served
	Graphs     int     // largest batch that has a CUDA graph; 0 means that there is no limit
	// Eager is how much longer the CPU's part of a step takes if the batch has no CUDA graph. The GPU idles meanwhile.
	Eager time.Duration
	// Reserve is the number of tokens of its answer for which a request must have room in the KV cache before it runs, as
	// with TensorRT-LLM's GUARANTEED_NO_EVICT. Reserved room does not count as used. 0 means none.
	Reserve int
	// NoPrefixCache is --no-enable-prefix-caching: every prompt is computed completely.
	NoPrefixCache bool
	// KVCacheDtype is --kv-cache-dtype: fp8 needs half the memory. Empty means auto, the type of the weights'
	// activations.
	KVCacheDtype string
	Elsewhere
}

// Profile describes a simulated engine and its load.
type Profile struct {
	Model string
	// Release is the version that the engine reports. Default: the release of its kind of engine.
	Release string
	Started time.Time
	// MaxModelLen is the longest sequence in tokens. Default: 32768. The simulation does not enforce it.
	MaxModelLen int
	// Image is the image of the engine's container.
	Image string
	// Options are further options of the engine's command line, which have no effect here.
	Options []string
	Rank    int // the data-parallel rank; ranks above 0 are on the metrics page of rank 0
	// Descriptors is the number of file descriptors that the engine's server has open without a connection.
	Descriptors int
	Load
	Serving
}

// vllmRelease is the release that NewProfile sets. It is a release of vLLM.
const vllmRelease = "0.16.0"

// release returns the release that an engine other than vLLM reports. It is own, unless the profile sets a release.
func (p Profile) release(own string) string {
	if p.Release == vllmRelease {
		return own
	}
	return p.Release
}

// NewProfile returns Llama-3.1-8B on an H100 under moderate load, with the step budget that an operator chooses for
// an objective of 50 ms between tokens.
func NewProfile(model string) Profile {
	return Profile{
		Model: model, Release: vllmRelease, Started: time.Now(),
		Load: Load{
			Arrivals: 6, Swing: 0.6, Period: 2 * time.Minute, PromptTokens: 900, OutputTokens: 180, OutputLimit: 1024,
			CacheHits: 0.35, Failures: 0.0002, Patience: time.Minute, Leaves: 0.01,
		},
		Serving: Serving{GPU: H100, Weights: Llama8B, MaxBatch: 256, Budget: 1024},
	}
}

// Observer receives events. All calls come from one goroutine.
type Observer interface {
	FirstToken(r *Request)
	Decoded(d Decoded)
	Preempted()
	Finished(r *Request)
	// Computed reports a step. Moved reports a KV cache that arrived, left or was lost.
	Computed(s Step)
	Moved(m Move)
	// State reports the queue and the batch after each step.
	State(running, waiting int, kvUsed float64)
	// Open reports the number of open requests at a time. It is called even while the engine's core hangs.
	Open(requests int, now time.Duration)
	// Adapted reports the adapters of the requests that run after a step. It is called only if the engine serves adapters.
	Adapted(running []int, now time.Duration)
}

// Step describes a step by its tokens, the requests at its beginning, the requests that wait for KV cache or an
// adapter, and its duration.
type Step struct {
	Tokens, Begun, Deferred int
	Took                    time.Duration
}

// Decoded describes requests that got tokens in a step. Took is the time since the previous token, and is the same for
// all these requests.
type Decoded struct {
	Requests, Tokens, Drafted, Accepted int
	Took                                time.Duration
}

// Engine simulates one engine.
type Engine struct {
	Serving
	// Clock is the GPU's clock as a share of its maximum. Slow is a factor on the duration of steps. Starved is how long
	// each step waits for a free CPU while the GPU idles. Lag is how much longer each step takes because the CPU is slow:
	// the GPU idles, although no thread waits for a CPU. Masking is how long the CPU works on each running request in each
	// step while the GPU idles, for example on the token masks of structured outputs. It works on one request after the
	// other. Preparing is how long the server's only thread works on each request (its template, its images) before the
	// core gets the request. Wedged means that the engine's core hangs: its server accepts requests and shows old metrics,
	// and clients give up. ShowsIdle means that a wedged core reports no running request. Broken means that the server
	// answers each request with an error at once.
	Clock, Slow float64
	Starved     time.Duration
	Lag         time.Duration
	Masking     time.Duration
	Preparing   time.Duration
	// CPUWait is how long the engine's thread has waited for a CPU since the drill began.
	CPUWait                   time.Duration
	Wedged, ShowsIdle, Broken bool

	observer         Observer
	random           *rand.Rand
	now              time.Duration
	unreported       bool          // the next step reports requests that clients have cancelled
	resumed          time.Duration // when the core last resumed after a hang
	prepared         time.Duration // when the server last passed a request to the core
	hung             bool          // some clients may have left a core that hung
	admitted         bool          // the last step admitted requests
	arriving         []*Request
	waiting, running []*Request
	total, used      int   // KV blocks
	loaded           []int // adapters in slots, in order of loading
	busy             time.Duration
	moves
}

// NewEngine starts an engine at time zero.
func NewEngine(s Serving, seed uint64, o Observer) *Engine {
	return &Engine{
		Serving: s, Clock: 1, Slow: 1, observer: o, random: rand.New(rand.NewPCG(seed, 1)), total: s.KVBlocks(),
		moves: moves{kept: 1},
	}
}

// Offer sends a request. Callers must offer requests in order of arrival.
func (e *Engine) Offer(r *Request) { e.arriving = append(e.arriving, r) }

// Holds returns the number of requests in the engine. Like a router, it counts the requests that were sent and have not
// ended.
func (e *Engine) Holds() int {
	if e.Broken {
		return 0
	}
	return e.count(func(*Request) bool { return true })
}

// count returns the number of requests for which such is true, among requests whose clients still wait.
func (e *Engine) count(such func(r *Request) bool) (n int) {
	for _, rs := range [][]*Request{e.arriving, e.fetching, e.waiting, e.running} {
		for _, r := range rs {
			if !r.Aborted && such(r) {
				n++
			}
		}
	}
	return n
}

// Restart drops all requests, the cache, and tiers that do not survive a restart. The engine works again from the time
// ready on, with a new observer.
func (e *Engine) Restart(ready time.Duration, o Observer) {
	kept := 0.0
	if e.Lasting {
		kept = e.kept
	}
	e.Kill(e.now)
	e.Wedged, e.Broken, e.moves, e.total = false, false, moves{kept: kept}, e.KVBlocks()
	e.now, e.observer = max(e.now, ready), o
	e.stored = e.now
}

// Kill ends the process. Each request whose client still waits is cut off.
func (e *Engine) Kill(now time.Duration) {
	for _, r := range e.held() {
		if !r.Aborted {
			r.Cut, r.Failed, r.Done = true, true, now
			e.observer.Finished(r)
		}
	}
	e.arriving, e.fetching, e.waiting, e.running, e.used, e.loaded = nil, nil, nil, nil, 0, nil
}

// Cancel ends all requests, as when their clients disconnect. vLLM reports the end with its next step (vllm#22545).
func (e *Engine) Cancel() {
	for _, r := range slices.Concat(e.waiting, e.running) {
		r.Aborted, r.Done = true, e.now
		e.release(r)
		e.observer.Finished(r)
	}
	e.waiting, e.running, e.unreported = nil, nil, true
}

// held returns the requests in the engine and its server.
func (e *Engine) held() []*Request {
	return slices.Concat(e.arriving, e.fetching, e.waiting, e.running)
}

// Stuck reports whether the core hangs in a step. If a core hangs without work, its GPU is idle.
func (e *Engine) Stuck() bool { return e.Wedged && len(e.running) > 0 }

// Busy returns how long the engine has computed so far.
func (e *Engine) Busy() time.Duration { return e.busy }

// Advance simulates the engine until a time. The last step may end a little later, so its effects appear too early, by
// less than a step.
func (e *Engine) Advance(to time.Duration) {
	for e.now < to {
		if e.Wedged {
			e.now = to
			e.hang()
			e.open()
			return
		}
		e.forget()
		e.receive()
		switch {
		case len(e.running)+len(e.waiting) > 0:
			e.step()
		default:
			e.now = max(e.now, e.next(to))
		}
	}
	e.report()
	e.open()
}

// open reports the number of requests that have not ended for their clients.
func (e *Engine) open() {
	e.observer.Open(e.count(func(r *Request) bool { return r.Arrival <= e.now }), e.now)
}

// forget drops the requests whose clients gave up while the core hung. When the core works again, it notices that these
// clients have left.
func (e *Engine) forget() {
	if !e.hung {
		return
	}
	e.hung, e.resumed = false, e.now
	for _, rs := range []*[]*Request{&e.arriving, &e.fetching, &e.waiting, &e.running} {
		*rs = slices.DeleteFunc(*rs, func(r *Request) bool {
			if r.Aborted {
				e.end(r)
			}
			return r.Aborted
		})
	}
}

// hang ends the requests of clients that lose patience with a wedged core. The core keeps the requests. hang also
// updates the values that the engine's server still shows.
func (e *Engine) hang() {
	e.hung = true
	for _, r := range e.held() {
		if since := max(r.Arrival, r.last); !r.Aborted && r.patience > 0 && e.now-since > r.patience {
			r.Aborted, r.Hung, r.Done = true, true, since+r.patience
			e.observer.Finished(r)
		}
	}
	used := float64(e.used) / float64(e.total)
	switch {
	case e.ShowsIdle:
		e.observer.State(0, 0, used)
	case e.ShowsQueue:
		e.observer.State(len(e.running), len(e.waiting)+len(e.arriving), used)
	}
}

// next returns the time at which an idle engine gets work again, but at most the time to.
func (e *Engine) next(to time.Duration) time.Duration {
	if len(e.arriving) > 0 {
		to = min(to, e.ready())
	}
	if len(e.fetching) > 0 {
		to = min(to, e.fetching[0].there)
	}
	return to
}

// ready returns when the server passes the first arriving request to the core.
func (e *Engine) ready() time.Duration {
	first := e.arriving[0].Arrival
	if e.Preparing == 0 {
		return first
	}
	return max(first, e.prepared) + e.Preparing
}

// receive queues the requests that have arrived.
func (e *Engine) receive() {
	for len(e.arriving) > 0 && e.ready() <= e.now {
		r := e.arriving[0]
		turn := max(r.Arrival, e.prepared)
		e.prepared = e.ready()
		e.arriving = e.arriving[1:]
		if e.Preparing > 0 && r.gaveUp(turn) {
			e.prepared = turn
			e.abort(r)
			continue
		}
		r.Queued = max(e.prepared, e.resumed)
		if e.Broken || e.MaxQueue > 0 && len(e.waiting) >= e.MaxQueue {
			r.Rejected, r.Full, r.Done = true, !e.Broken, r.Arrival
			e.observer.Finished(r)
			continue
		}
		if e.NoPrefixCache {
			r.Cached = 0
		}
		r.todo = int(r.Prompt - r.Cached)
		if !e.fetch(r) {
			e.waiting = append(e.waiting, r)
		}
	}
	for len(e.fetching) > 0 && e.fetching[0].there <= e.now {
		r := e.fetching[0]
		e.fetching = e.fetching[1:]
		e.arrived(r)
	}
	for len(e.waiting) > 0 && e.waiting[0].gaveUp(e.now) {
		e.abort(e.waiting[0])
		e.waiting = e.waiting[1:]
	}
	e.fetching = slices.DeleteFunc(e.fetching, func(r *Request) bool {
		gone := r.gaveUp(e.now)
		if gone {
			e.abort(r)
		}
		return gone
	})
}

// abort ends a request whose client gave up.
func (e *Engine) abort(r *Request) {
	r.Aborted, r.Done = true, r.Arrival+r.patience
	e.observer.Finished(r)
}

func (r *Request) gaveUp(now time.Duration) bool {
	return r.patience > 0 && r.FirstToken == 0 && now-r.Arrival > r.patience
}

// step schedules and computes one step of the batch.
func (e *Engine) step() {
	start := e.now
	budget, context, attended := e.Budget, 0, 0.0
	schedule := func(r *Request) {
		r.now = min(r.todo, budget)
		budget -= r.now
		context += int(r.Cached) + r.held
		attended += float64(r.now) * (r.Cached + float64(r.held) - float64(r.now)/2)
	}
	thrash, begun := false, 0
	for i := 0; i < len(e.running); i++ {
		r := e.running[i]
		for !e.reserve(r, min(r.todo, budget)) {
			thrash = true
			e.preempt()
			if i >= len(e.running) {
				break
			}
		}
		if i < len(e.running) {
			schedule(r)
		}
	}
	admits := !thrash && !(e.Alternates && e.admitted && len(e.running) > 0)
	swapping, deferred := time.Duration(0), len(e.fetching)
	for i := 0; admits && i < len(e.waiting) && len(e.running) < e.MaxBatch && budget > 0; {
		r := e.waiting[i]
		if !e.admits(r) {
			i++
			deferred++
			continue
		}
		if !e.promises(r) || !e.reserve(r, r.fetched+min(r.todo, budget)) {
			break
		}
		swapping += e.load(r)
		r.fetched = 0
		if i == 0 {
			e.waiting = e.waiting[1:]
		} else {
			e.waiting = slices.Delete(e.waiting, i, i+1)
		}
		if r.Scheduled == 0 {
			r.Scheduled = start
		}
		e.running = append(e.running, r)
		begun++
		schedule(r)
	}
	e.admitted = begun > 0
	tokens, drafted := e.Budget-budget, 0.0
	if e.Draft > 0 {
		drafted = float64(e.Draft)
		tokens += e.Draft * len(e.running)
	}
	took := time.Duration(e.stepSeconds(tokens, context, attended, drafted, e.Clock) * e.Slow * float64(time.Second))
	e.now += took + e.Starved + e.Lag + e.launching() + swapping + time.Duration(len(e.running))*e.Masking
	e.CPUWait += e.Starved
	e.busy += took
	e.unreported = false
	e.observer.Computed(Step{tokens, begun, deferred, e.now - start})
	e.finish(start)
	e.report()
}

// finish delivers the tokens of a step that began at start.
func (e *Engine) finish(start time.Duration) {
	all := Decoded{Took: e.now - start}
	kept := e.running[:0]
	for _, r := range e.running {
		r.todo -= r.now
		if r.todo > 0 || r.now == 0 {
			kept = append(kept, r)
			continue
		}
		r.todo = 1
		if r.FirstToken == 0 {
			r.FirstToken, r.Emitted = e.now, 1
			e.observer.FirstToken(r)
			e.store(r.Prompt - r.Cached - r.came)
		} else {
			accepted := e.accepted(r)
			if r.last == start {
				all.add(1, 1+accepted, e.Draft, accepted)
			} else { // the request was preempted, or had no room in a step
				one := Decoded{Took: e.now - r.last}
				one.add(1, 1+accepted, e.Draft, accepted)
				e.observer.Decoded(one)
			}
			r.Emitted += float64(1 + accepted)
		}
		r.last = e.now
		if r.leaves > 0 && r.Emitted >= r.leaves && r.Emitted < r.Output {
			r.Aborted, r.Failed = true, false // the request would have failed later
		}
		if r.Emitted < r.Output && !r.Aborted {
			kept = append(kept, r)
			continue
		}
		r.Done = e.now
		e.end(r)
		e.observer.Finished(r)
	}
	clear(e.running[len(kept):])
	e.running = kept
	if all.Requests > 0 {
		e.observer.Decoded(all)
	}
}

func (d *Decoded) add(requests, tokens, drafted, accepted int) {
	d.Requests += requests
	d.Tokens += tokens
	d.Drafted += drafted
	d.Accepted += accepted
}

// accepted draws how many proposed tokens the model accepts.
func (e *Engine) accepted(r *Request) (n int) {
	for n < e.Draft && r.Emitted+float64(n)+1 < r.Output && e.random.Float64() < e.Acceptance {
		n++
	}
	return n
}

// reserve takes the blocks for more tokens of a request, if there are enough free blocks.
func (e *Engine) reserve(r *Request, tokens int) bool {
	need := blocks(r.held+tokens) - blocks(r.held)
	if e.used+need > e.total {
		return false
	}
	e.used += need
	r.held += tokens
	return true
}

// promises reports whether the KV cache has room for a request and all running requests, if each answer has Reserve
// tokens.
func (e *Engine) promises(r *Request) bool {
	if e.Reserve == 0 {
		return true
	}
	need := blocks(int(r.Prompt) + e.Reserve)
	for _, q := range e.running {
		need += blocks(int(q.Prompt) + e.Reserve)
	}
	return need <= e.total
}

// launching returns how much longer the CPU takes to launch the kernels of a step if the batch has no CUDA graph.
func (e *Engine) launching() time.Duration {
	if e.Graphs == 0 || len(e.running) <= e.Graphs {
		return 0
	}
	return e.Eager
}

// preempt frees the blocks of the request that was scheduled last, and moves this request to the head of the queue.
func (e *Engine) preempt() {
	last := len(e.running) - 1
	r := e.running[last]
	e.running = e.running[:last]
	e.release(r)
	r.todo, r.now = int(r.Prompt-r.Cached+r.Emitted), 0
	e.waiting = slices.Insert(e.waiting, 0, r)
	e.observer.Preempted()
}

// end frees the blocks of a request that ended, unless the engine leaks them.
func (e *Engine) end(r *Request) {
	if e.Leak > 0 && e.random.Float64() < e.Leak {
		r.held = 0
	}
	e.release(r)
}

func (e *Engine) release(r *Request) {
	e.used -= blocks(r.held)
	r.held = 0
}

func blocks(tokens int) int { return (tokens + blockTokens - 1) / blockTokens }

func (e *Engine) report() {
	if e.unreported {
		return
	}
	e.observer.State(len(e.running), len(e.waiting)+len(e.fetching), float64(e.used)/float64(e.total))
	if e.Adapters > 0 {
		e.observer.Adapted(adaptersOf(e.running), e.now)
	}
}
