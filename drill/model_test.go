package drill

import (
	"math"
	"reflect"
	"testing"
	"time"
)

// census is an observer that integrates the number of requests in the system and the time that they spend in it.
type census struct {
	e                  *Engine
	in                 float64 // requests × seconds
	last               time.Duration
	present            int
	spent, ttft        float64
	done, tokens       int
	preempted, aborted int
	highest            float64
	moves              []Move
}

func (c *census) FirstToken(r *Request)   { c.ttft += (r.FirstToken - r.Arrival).Seconds(); c.tokens++ }
func (c *census) Decoded(d Decoded)       { c.tokens += d.Tokens }
func (c *census) Preempted()              { c.preempted++ }
func (c *census) Computed(Step)           {}
func (c *census) Open(int, time.Duration) {}
func (c *census) Moved(m Move)            { c.moves = append(c.moves, m) }

func (c *census) Adapted(_ []int, _ time.Duration) {}

func (c *census) Finished(r *Request) {
	if r.Aborted {
		c.aborted++
		return
	}
	c.done++
	c.spent += (r.Done - r.Arrival).Seconds()
}

func (c *census) State(running, waiting int, kv float64) {
	c.in += float64(c.present) * (c.e.now - c.last).Seconds()
	c.last, c.present, c.highest = c.e.now, running+waiting, max(c.highest, kv)
}

// serve runs a load for a while, from a warm start.
func serve(p Profile, d time.Duration) *census {
	c := &census{}
	e := NewEngine(p.Serving, 1, c)
	c.e = e
	traffic := NewTraffic(p.Load, 1)
	for t := time.Second; t <= d; t += time.Second {
		for _, r := range traffic.Until(t) {
			e.Offer(r)
		}
		e.Advance(t)
	}
	return c
}

func steady(arrivals float64) Profile {
	p := NewProfile("m")
	p.Arrivals, p.Swing, p.Patience, p.Leaves = arrivals, 0, 0, 0
	return p
}

// Little's law: requests in the system are arrivals times the time that each request spends there. The law holds
// for every scheduler, so the test checks the simulation of time.
func TestLittlesLaw(t *testing.T) {
	const d = 20 * time.Minute
	for _, arrivals := range []float64{2, 10, 20} {
		c := serve(steady(arrivals), d)
		inSystem, spent := c.in/d.Seconds(), c.spent/d.Seconds()
		if math.Abs(inSystem-spent) > 0.02*inSystem {
			t.Errorf("at %v/s: %.2f requests in the system, arrivals times time spent are %.2f", arrivals, inSystem, spent)
		}
		if rate := float64(c.done) / d.Seconds(); math.Abs(rate-arrivals) > 0.1*arrivals {
			t.Errorf("%.2f requests a second came out, %v went in", rate, arrivals)
		}
	}
}

// A single request is prefilled in one step. After that, each step costs only the reading of the weights and of the
// request's cache.
func TestLoneRequest(t *testing.T) {
	p := steady(1)
	c := &census{}
	e := NewEngine(p.Serving, 1, c)
	c.e = e
	r := &Request{Arrival: time.Second, Prompt: 500, Output: 101}
	e.Offer(r)
	e.Advance(time.Minute)
	read := 8.03e9 * 2 / (3.35e12 * bandwidthShare)
	perToken := (r.Done - r.FirstToken).Seconds() / 100
	if floor := read + overhead; perToken < floor || perToken > floor*1.01 {
		t.Errorf("%.4f s a token, reading the weights alone takes %.4f", perToken, floor)
	}
	compute := prefill(500)
	if ttft := (r.FirstToken - r.Arrival).Seconds(); math.Abs(ttft-compute-overhead) > 1e-4 {
		t.Errorf("TTFT %.4f s, the products take %.4f", ttft, compute+overhead)
	}
	if e.used != 0 || c.tokens != 101 {
		t.Errorf("%d blocks stay in use, %d tokens came out", e.used, c.tokens)
	}
}

// prefill returns how long the matrix products of a prompt take: each token is multiplied with all weights, and attends
// on average to half of the other tokens.
func prefill(tokens float64) float64 {
	return (tokens*2*8.03e9 + tokens*tokens/2*4*32*4096) / (989e12 * computeShare)
}

// The cost of a prompt grows faster than its length, for any chunks: ten prompts of 3000 tokens take less time than
// one of 30000.
func TestLongPrompt(t *testing.T) {
	ttft := func(tokens float64, budget int) float64 {
		p := steady(1)
		p.Budget = budget
		e := NewEngine(p.Serving, 1, &census{})
		e.observer.(*census).e = e
		r := &Request{Arrival: time.Second, Prompt: tokens, Output: 1}
		e.Offer(r)
		e.Advance(time.Minute)
		return (r.FirstToken - r.Arrival).Seconds()
	}
	for _, tokens := range []float64{3000, 30000} {
		whole, chunks := ttft(tokens, 1<<20), ttft(tokens, 1024)
		cache := tokens * 2 * 32 * 8 * 128 * 2 / (3.35e12 * bandwidthShare) // is read with each step
		if want := prefill(tokens) + overhead + cache; math.Abs(whole-want) > 0.01*want {
			t.Errorf("%v tokens take %.3f s, the products %.3f", tokens, whole, want)
		}
		steps := math.Ceil(tokens / 1024)
		if most := whole + steps*(overhead+cache); chunks < whole || chunks > most {
			t.Errorf("%v tokens take %.3f s in chunks, %.3f at once", tokens, chunks, whole)
		}
	}
	if short, long := ttft(3000, 1024), ttft(30000, 1024); long < 13*short {
		t.Errorf("30000 tokens take %.3f s, 3000 take %.3f", long, short)
	}
}

// Below capacity the time to the first token is flat; above it, it grows with the queue. At capacity, the arriving prompt
// tokens are as many as can be computed beside the decode tokens.
func TestKnee(t *testing.T) {
	flops := 989e12 * computeShare
	perRequest := (900*(1-0.35) + 180) * 2 * 8.03e9 / flops // seconds, if everything else took no time
	capacity := 1 / perRequest
	ttft := func(share float64) float64 {
		c := serve(steady(share*capacity), 10*time.Minute)
		return c.ttft / float64(c.done)
	}
	low, middle, over := ttft(0.2), ttft(0.5), ttft(1.1)
	if middle > 3*low || low > 0.1 {
		t.Errorf("mean TTFT %.3f s at a fifth of the capacity, %.3f s at a half", low, middle)
	}
	if over < 20*middle {
		t.Errorf("mean TTFT %.3f s above capacity, %.3f s at a half of it: no knee", over, middle)
	}
}

// A cache too small for the batch preempts, stays within its size, and gives every block back.
func TestPreemption(t *testing.T) {
	p := steady(8)
	p.Blocks, p.OutputTokens = 1500, 400
	c := serve(p, 5*time.Minute)
	if c.preempted == 0 || c.highest > 1 {
		t.Errorf("%d preemptions, cache at most %.2f full", c.preempted, c.highest)
	}
	e := c.e
	e.Advance(time.Hour)
	if e.used != 0 || len(e.running)+len(e.waiting) != 0 {
		t.Errorf("after the last request %d blocks are in use, %d run, %d wait", e.used, len(e.running), len(e.waiting))
	}
	if plain := serve(steady(8), time.Minute); plain.preempted != 0 {
		t.Errorf("%d preemptions with room for everything", plain.preempted)
	}
}

// Speculation helps only as far as its tokens are accepted.
func TestSpeculation(t *testing.T) {
	rate := func(draft int, acceptance float64) float64 {
		p := steady(2)
		p.Draft, p.Acceptance = draft, acceptance
		c := serve(p, 5*time.Minute)
		return c.spent / float64(c.done)
	}
	plain, good, bad := rate(0, 0), rate(3, 0.8), rate(3, 0.02)
	if good > 0.6*plain || bad < plain {
		t.Errorf("seconds a request: %.2f plain, %.2f with speculation, %.2f with a draft that nothing is taken of", plain, good, bad)
	}
}

// A slowed clock slows compute in proportion, and bandwidth only below half the clock.
func TestClock(t *testing.T) {
	s := steady(1).Serving
	if full, half := s.stepSeconds(1024, 0, 5e5, 0, 1), s.stepSeconds(1024, 0, 5e5, 0,
		0.5); math.Abs((half-overhead)/(full-overhead)-2) > 1e-9 {
		t.Errorf("prefill takes %.4f s at full clock, %.4f s at half", full, half)
	}
	if full, half := s.stepSeconds(8, 10_000, 0, 0, 1), s.stepSeconds(8, 10_000, 0, 0, 0.5); full != half {
		t.Errorf("decode takes %.4f s at full clock, %.4f s at half", full, half)
	}
	if full, low := s.stepSeconds(8, 10_000, 0, 0, 1), s.stepSeconds(8, 10_000, 0, 0, 0.2); low < 2*full {
		t.Errorf("decode takes %.4f s at full clock, %.4f s at a fifth", full, low)
	}
}

// Clients without patience leave, an engine with a full queue refuses, and a hanging engine does not answer.
func TestLimits(t *testing.T) {
	p := steady(80)
	p.Patience = 10 * time.Second
	if c := serve(p, 2*time.Minute); c.aborted == 0 {
		t.Error("nobody gave up on an engine at twice its capacity")
	}
	if c := serve(steady(80), time.Minute); c.aborted != 0 {
		t.Error("a client gave up that has all the patience")
	}
	c := &refusals{}
	e := NewEngine(steady(1).Serving, 1, c)
	e.MaxQueue, e.Wedged = 10, false
	for range 300 {
		e.Offer(&Request{Arrival: time.Second, Prompt: 100, Output: 10})
	}
	e.Advance(2 * time.Second)
	if c.rejected != 290 {
		t.Errorf("%d of 300 at once were refused by a queue of 10", c.rejected)
	}
	e.Wedged, c.states = true, 0
	e.Offer(&Request{Arrival: 3 * time.Second, Prompt: 100, Output: 10})
	e.Advance(time.Minute)
	if c.states != 0 {
		t.Error("a wedged engine shows new numbers")
	}
}

type refusals struct {
	Observer
	rejected, states int
}

func (c *refusals) FirstToken(*Request)     {}
func (c *refusals) Decoded(Decoded)         {}
func (c *refusals) Computed(Step)           {}
func (c *refusals) Open(int, time.Duration) {}
func (c *refusals) State(int, int, float64) { c.states++ }
func (c *refusals) Finished(r *Request) {
	if r.Rejected {
		c.rejected++
	}
}

// A broken engine answers each request at once with an error, so it looks idle to a router. A broken
// replica works again after a restart.
func TestBroken(t *testing.T) {
	c := &refusals{}
	e := NewEngine(NewProfile("m").Serving, 1, c)
	e.Broken = true
	for _, r := range NewTraffic(steady(10).Load, 1).Until(time.Minute) {
		e.Offer(r)
	}
	e.Advance(time.Minute)
	if c.rejected < 100 || e.Holds() != 0 || e.Busy() != 0 {
		t.Errorf("%d refused, %d held, %s busy", c.rejected, e.Holds(), e.Busy())
	}
	e.Restart(time.Minute, &refusals{})
	e.Offer(&Request{Arrival: time.Minute, Prompt: 10, Output: 10})
	if e.Holds() != 1 {
		t.Errorf("after a restart it holds %d requests, want 1", e.Holds())
	}
}

// The same seed gives the same numbers, and another seed gives others.
func TestSeeds(t *testing.T) {
	a, b := serve(steady(10), time.Minute), serve(steady(10), time.Minute)
	a.e, b.e = nil, nil
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
	if x, y := NewTraffic(steady(10).Load, 1).Until(time.Minute), NewTraffic(steady(10).Load, 2).Until(time.Minute); reflect.DeepEqual(x, y) {
		t.Error("two seeds gave the same requests")
	}
}

// Requests of two lengths, and requests that arrive together, have the means that the load states.
func TestMixedTraffic(t *testing.T) {
	l := steady(10).Load
	l.Brief, l.Together, l.OutputLimit = 0.7, 5, 1e9
	const lasts = 20 * time.Hour
	rs := NewTraffic(l, 1).Until(lasts)
	var prompt, output, brief, beside float64
	for i, r := range rs {
		prompt, output = prompt+r.Prompt, output+r.Output
		if r.Prompt < 0.3*l.PromptTokens {
			brief++
		}
		if i > 0 && r.Arrival == rs[i-1].Arrival {
			beside++
		}
	}
	n := float64(len(rs))
	for what, got := range map[string][2]float64{
		"requests": {n, l.Arrivals * lasts.Seconds()}, "prompt": {prompt / n, l.PromptTokens}, "output": {output / n, l.OutputTokens},
		"brief": {brief / n, 0.7}, "together": {n / (n - beside), 5},
	} {
		if math.Abs(got[0]/got[1]-1) > 0.05 {
			t.Errorf("%s: %g, want %g", what, got[0], got[1])
		}
	}
}

// rhythm records whether each step admitted requests.
type rhythm struct {
	*census
	admitted []bool
}

func (r *rhythm) Computed(s Step) { r.admitted = append(r.admitted, s.Begun > 0) }

// TestTGIDecodesAfterEachPrefill checks that, however many requests arrive, Text Generation Inference decodes once
// before it admits more (backends/v3/src/backend.rs), so a slow engine still observes its decode steps.
func TestTGIDecodesAfterEachPrefill(t *testing.T) {
	p := steady(20)
	p.Alternates = true
	r := &rhythm{census: &census{}}
	e := NewEngine(p.Serving, 1, r)
	e.Starved, r.e = 300*time.Millisecond, e
	for _, request := range NewTraffic(p.Load, 1).Until(time.Minute) {
		e.Offer(request)
	}
	e.Advance(time.Minute)
	prefills := 0
	for i, admitted := range r.admitted {
		if prefills += map[bool]int{true: 1}[admitted]; i > 0 && admitted && r.admitted[i-1] {
			t.Fatalf("steps %d and %d admit requests", i-1, i)
		}
	}
	if n := len(r.admitted); prefills < n/3 || n < 100 {
		t.Errorf("%d of %d steps admit requests", prefills, n)
	}
}
