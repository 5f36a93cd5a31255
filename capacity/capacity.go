// Package capacity learns from an engine's daily work how much more load the engine can take. It estimates how many
// requests per second the engine can serve before an objective breaks, if the mix of prompts and answers stays the
// same. It also estimates which limit the engine would reach.
//
// The model has three parts. Each part has few parameters, which are estimated from the engine's metrics. An engine
// computes in steps. Steps per second decrease with the tokens per second: steps = alpha - beta*gaps - gamma*prompt -
// delta*prompt^2. Here gaps is the number of times between tokens that end in a second, and prompt is the number of
// prompt tokens computed in a second. The load does not depend on the engine's state. Therefore, the coefficients are
// fitted by least squares over windows of half a minute. By Little's law, the number of running requests is gaps
// multiplied by the duration of a step. A request that finds no free place waits, as in a queue with as many servers as
// there are places (Erlang C). The number of places is the engine's batch limit or, if lower, the capacity of its KV
// cache. The times to first tokens and between tokens keep the shape of their distributions, and change in proportion
// to the time of a step.
package capacity

import (
	"math"
	"slices"
	"time"
)

// Reading has the values of an engine's metrics at one time. Counters count since the engine started. NaN is a missing
// value, which counts as zero.
type Reading struct {
	At time.Time
	// FirstTokens counts first tokens, and FirstSeconds is the sum of the times to first tokens.
	FirstTokens, FirstSeconds float64
	// Gaps counts the times between tokens, and GapSeconds is their sum.
	Gaps, GapSeconds float64
	// GeneratedTokens counts the tokens of answers. It is only for reports. Nothing is learnt from it.
	GeneratedTokens float64
	// PromptTokens counts the computed prompt tokens, without tokens found in a cache.
	PromptTokens float64
	// Running and Waiting are the requests that run and wait. KVUsage is the share of the KV cache in use.
	Running, Waiting, KVUsage float64
	// Computing is the share of time in which the engine's kernels ran on its busiest GPU. It is nil if the share is unknown.
	Computing *float64
	// First and Gap are cumulative histograms of the times to first tokens and between tokens.
	First, Gap Histogram
}

// Histogram is a cumulative histogram. Counts[i] values are at most Bounds[i] seconds. All is the number of all values.
// If All is zero, the Reading's own count is used. Some engines observe only a mean per request, so the two differ.
type Histogram struct {
	Bounds, Counts []float64
	All            float64
}

// Bounds are an engine's limits, from its settings. Zero means unknown.
type Bounds struct {
	// Batch is the largest number of requests that run at once. StepTokens is the largest number of tokens in a step.
	Batch, StepTokens float64
}

// window is the length of one observation of the fit. It is long enough for a rate, and short enough for different loads.
const window = 30 * time.Second

// These are the time constants with which past observations fade: memory for the engine's capability, which changes
// with its release, and recent for its requests, which change by the hour.
const (
	memory = 6 * time.Hour
	recent = 10 * time.Minute
)

// Learner learns the capacity of one engine. The zero value has learnt nothing.
type Learner struct {
	last  Reading
	sum   totals
	seen  time.Duration // total time of the learnt windows
	line  regression
	known float64       // gaps per second up to which the line is trusted; a window with a higher load moves it a tenth closer
	sick  time.Duration // how long steps have been too slow for their load
	// filled is the same limit for the prompt tokens computed per second.
	filled float64
	slow   float64 // duration of the steps in the last window, as a multiple of the line's value; 0 if unknown
	began  float64 // requests per second that began in the last window
	calm   int     // windows since a burst of requests
	peak   float64 // largest number of gaps per second in a learnt window; it fades like the line
	mix    mix
	held   held
	busy   busy
	pace   pace
	first  shape
	gap    shape
}

// totals adds up the increases within a window.
type totals struct {
	took                            time.Duration
	first, firstSeconds, gaps, gapS float64
	prompt, generated               float64
	running, waiting, kv            float64 // the gauges multiplied by seconds
	worked, computing               float64 // seconds in which requests ran throughout, and seconds in which kernels ran
	firstCounts, gapCounts          []float64
	gapMeans                        float64
}

// Learn adds a reading. If a reading is not later than the last reading, or has smaller counters, a new window starts.
// Earlier observations are kept.
func (l *Learner) Learn(r Reading) {
	for _, v := range []*float64{&r.GeneratedTokens, &r.PromptTokens, &r.Running, &r.Waiting, &r.KVUsage} {
		if math.IsNaN(*v) {
			*v = 0
		}
	}
	before := l.last
	l.last = r
	took := r.At.Sub(before.At)
	switch {
	case before.At.IsZero():
		return
	case took <= 0, took > 4*window, r.Gaps < before.Gaps, r.FirstTokens < before.FirstTokens, r.PromptTokens < before.PromptTokens,
		len(r.Gap.Counts) != len(before.Gap.Counts), len(r.First.Counts) != len(before.First.Counts):
		l.sum = totals{}
		return
	}
	s := &l.sum
	s.took += took
	s.first += r.FirstTokens - before.FirstTokens
	s.firstSeconds += r.FirstSeconds - before.FirstSeconds
	s.gaps += r.Gaps - before.Gaps
	s.gapS += r.GapSeconds - before.GapSeconds
	s.prompt += r.PromptTokens - before.PromptTokens
	s.generated += r.GeneratedTokens - before.GeneratedTokens
	s.running += r.Running * took.Seconds()
	s.waiting += r.Waiting * took.Seconds()
	s.kv += r.KVUsage * took.Seconds()
	if c := r.Computing; c != nil && *c >= 0 && *c <= 1 && r.Running >= 1 && before.Running >= 1 {
		s.worked += took.Seconds()
		s.computing += *c * took.Seconds()
	}
	s.firstCounts = grown(s.firstCounts, r.First.Counts, before.First.Counts)
	s.gapCounts = grown(s.gapCounts, r.Gap.Counts, before.Gap.Counts)
	s.gapMeans += r.Gap.All - before.Gap.All
	if s.took+took/2 >= window { // the next reading would be further from the window's length; scrapes are not exactly regular
		l.take(*s, r)
		l.sum = totals{}
	}
}

// grown adds the increase of counters.
func grown(sum, now, before []float64) []float64 {
	if sum == nil {
		sum = make([]float64, len(now))
	}
	for i := range now {
		sum[i] += now[i] - before[i]
	}
	return sum
}

// take learns from a window.
func (l *Learner) take(s totals, r Reading) {
	dt := s.took.Seconds()
	if !s.plausible() {
		return
	}
	l.seen += s.took
	l.calm++
	if s.first/dt > burst*l.began {
		l.calm = 0
	}
	l.began = s.first / dt
	l.mix.add(s)
	step := s.gapS / s.gaps
	l.slow = 0
	if s.gaps >= fewSteps {
		l.slow = l.slowdown(s.gaps/dt, s.prompt/dt, step)
	}
	certain := s.gaps >= 10 && step > shortest && step < longest
	if certain {
		l.pace.add(s.took, s.gaps/dt, s.prompt/dt, step)
	}
	if l.slow <= tooSlow {
		l.sick = 0
	} else if l.sick += s.took; l.sick < newNormal {
		return // a sick engine does not show its capacity
	}
	if !certain {
		return
	}
	l.line.add(fade(s.took, memory), s.gaps/dt, 1/step, 1, s.gaps/dt, s.prompt/dt, bend(s.prompt/dt))
	l.peak = math.Max(l.peak*fade(s.took, memory), s.gaps/dt)
	l.known = math.Max(l.known*fade(s.took, memory), l.known+0.1*(s.gaps/dt-l.known))
	l.filled = math.Max(l.filled*fade(s.took, memory), l.filled+0.1*(s.prompt/dt-l.filled))
	if s.gaps/dt > highLoad*l.peak {
		l.busy.add(fade(s.took, memory), s)
	}
	if s.kv > 0 && s.running > 0 {
		l.held.add(fade(s.took, memory), s.kv/dt, s.gapS/dt)
	}
	all := s.gaps
	if r.Gap.All > 0 {
		all = s.gapMeans
	}
	l.gap.add(s, r.Gap.Bounds, s.gapCounts, all, s.gapS)
	if s.first > 0 && !l.waited(s, step) {
		l.first.add(s, r.First.Bounds, s.firstCounts, s.first, s.firstSeconds)
	}
}

// Slowdown returns the duration of the steps in the last half minute, as a multiple of the usual duration at the same
// load. ok is false if less than ten minutes have been learnt, or if the engine made fewer than five steps. ok is also
// false if the load of prompts or answers is far above the learnt loads, or if a burst of requests came within the last
// minute. A burst makes steps longer than the mean load of half a minute explains.
func (l *Learner) Slowdown() (times float64, ok bool) { return l.slow, l.slow > 0 && l.calm > 1 }

// slowdown compares the seconds of a step with the line's value at the same load.
func (l *Learner) slowdown(gaps, prompt, step float64) float64 {
	fit, ok := l.line.solve()
	if !ok || l.line.n < leastLine || gaps > beyondKnown*l.known || prompt > beyondFilled*l.filled || !(step > shortest && step < longest) {
		return 0
	}
	return step * math.Max(fit.steps(gaps, prompt), fit.c[0]/20)
}

// tooSlow is the slowdown above which the engine's steps are not learnt, unless the slowdown has lasted for newNormal.
const (
	tooSlow   = 1.5
	newNormal = time.Hour
)

// burst is a factor. A window with more than burst times the requests of the previous window has a burst.
const burst = 2

// fewSteps is the minimum number of steps from which a step time is computed.
const fewSteps = 5

// leastLine is the minimum number of windows from which the usual step time is learnt. The line is trusted up to
// beyondKnown times the learnt gaps per second, and up to beyondFilled times the learnt prompt tokens. The second
// factor is larger, because a window has few prompts, and they differ in length.
const leastLine, beyondKnown, beyondFilled = 20, 1.3, 2

// These are limits of plausible values: seconds of a step, and tokens per second.
const (
	shortest, longest = 1e-6, 1e3
	fastest           = 1e9
)

// plausible reports whether an engine can have reached these totals.
func (s *totals) plausible() bool {
	dt := s.took.Seconds()
	for _, v := range []float64{s.first, s.firstSeconds, s.gaps, s.gapS, s.prompt, s.generated, s.running, s.waiting, s.kv} {
		if math.IsNaN(v) || math.Abs(v)/dt > fastest {
			return false
		}
	}
	for i, counts := range [][]float64{s.firstCounts, s.gapCounts} {
		for _, v := range counts {
			if all := []float64{s.first, s.gaps}[i]; !(v >= 0 && v <= 1.01*all+1) {
				return false
			}
		}
	}
	return true
}

// waited reports whether requests waited in a window. The evidence is a reading with waiting requests, or first tokens
// that took three times as long as the duration of the steps explains.
func (l *Learner) waited(s totals, step float64) bool {
	if f := &l.first; f.count > 100 && s.firstSeconds/s.first > 3*f.sum/f.count*math.Pow(math.Max(1, step/f.step()), firstStretch) {
		return true
	}
	return s.waiting > 0
}

// fade returns the weight that past observations keep after a time.
func fade(took, memory time.Duration) float64 { return math.Exp(-took.Seconds() / memory.Seconds()) }

// mix is the present demand: how often requests arrive, and how large they are. Arrivals fade with time. The mean size
// is that of the last requests, even if they came long ago.
type mix struct {
	seconds, arrived                  float64 // rate of arrivals
	requests, gaps, prompt, generated float64 // sums over the remembered requests
}

// remembered is the number of requests below which old requests do not fade with time. Only new requests then replace
// them.
const remembered = 30

func (m *mix) add(s totals) {
	f := fade(s.took, recent)
	m.seconds, m.arrived = f*m.seconds+s.took.Seconds(), f*m.arrived+s.first
	if m.requests > 0 {
		f = math.Max(f, math.Min(1, (remembered-s.first)/m.requests))
	}
	m.requests = f*m.requests + s.first
	m.gaps = f*m.gaps + s.gaps
	m.prompt = f*m.prompt + s.prompt
	m.generated = f*m.generated + s.generated
}

// rate returns the present requests per second.
func (m *mix) rate() float64 {
	if m.seconds == 0 {
		return 0
	}
	return m.arrived / m.seconds
}

// held learns how much of the KV cache a running request uses.
type held struct{ xy, xx float64 }

func (h *held) add(f, usage, running float64) {
	h.xy, h.xx = f*h.xy+usage*running, f*h.xx+running*running
}

// places returns how many requests fit into the whole cache with a probability of 95%, or 0 if this is unknown. The
// lengths of requests vary by about as much as their mean, as in an exponential distribution.
func (h *held) places() float64 {
	if h.xy <= 0 {
		return 0
	}
	n := h.xx / h.xy
	return math.Max(1, n-1.64*math.Sqrt(n))
}

// highLoad is a share of the peak load. Above this share, kernels should run nearly all the time, so an idle GPU shows
// that another bottleneck limits the engine.
const highLoad = 0.7

// busy learns for how much of the time kernels run while the engine has work.
type busy struct{ worked, computing float64 }

func (b *busy) add(f float64, s totals) {
	b.worked, b.computing = f*b.worked+s.worked, f*b.computing+s.computing
}

// waits reports whether, over at least ten minutes, the GPU waits for the host for more than half of the time.
func (b *busy) waits() bool { return b.worked >= 600 && b.computing < 0.5*b.worked }

// shape is a distribution of times. It also has the mean step time and the gaps per second during its observation.
type shape struct {
	bounds, counts           []float64
	count, sum, steps, taken float64
	gaps, seconds            float64
}

// add adds the distribution of a window, with the number of its values and their sum.
func (s *shape) add(t totals, bounds, counts []float64, count, sum float64) {
	f, step := fade(t.took, recent), t.gapS/t.gaps
	if !slices.Equal(s.bounds, bounds) {
		*s = shape{bounds: slices.Clone(bounds), counts: make([]float64, len(bounds))}
	}
	for i := range counts {
		s.counts[i] = f*s.counts[i] + counts[i]
	}
	s.count, s.sum = f*s.count+count, f*s.sum+sum
	s.steps, s.taken = f*s.steps+count, f*s.taken+count*step
	s.gaps, s.seconds = f*s.gaps+t.gaps, f*s.seconds+t.took.Seconds()
}

// step returns the mean time of a step during the observation of the distribution.
func (s *shape) step() float64 { return s.taken / s.steps }

// above returns the share of times above a limit. Between two bounds, the logarithms of the times are assumed to be
// spread evenly.
func (s *shape) above(limit float64) float64 {
	if s.count == 0 {
		return 0
	}
	low, below := 0.0, 0.0
	for i, b := range s.bounds {
		if b >= limit {
			part := 1.0
			switch {
			case low > 0:
				part = math.Log(limit/low) / math.Log(b/low)
			case b > 0:
				part = limit / b
			}
			return 1 - (below+part*(s.counts[i]-below))/s.count
		}
		low, below = b, s.counts[i]
	}
	return 1 - below/s.count
}

// pace learns the step time for each number of running requests, and the present step time. Unlike the line, it is
// valid even while the engine is overloaded.
type pace struct {
	line   regression
	most   float64                                     // largest number of running requests for which the pace is trusted
	filled float64                                     // largest number of prompt tokens per step for which the pace is trusted
	lately float64                                     // sum of the last minutes' step times, each as a multiple of the usual step time
	steps  float64                                     // number of these steps
	recent float64                                     // number of windows with these steps
	odd    time.Duration                               // how long step times have been unusual
	now    struct{ gaps, gapSeconds, seconds float64 } // sums of the last minutes, which fade
}

// lasts is how long recent step times count before they fade. usualRange is the factor within which step times are usual.
const lasts, usualRange = 5 * time.Minute, 1.15

// add learns from a window. Unusual step times do not change the usual curve until they have lasted for an hour. Then
// their factor scales the whole curve.
func (p *pace) add(took time.Duration, gaps, prompt, step float64) {
	running, tokens := gaps*step, prompt*step
	f, dt := fade(took, lasts), took.Seconds()
	p.now.gaps, p.now.gapSeconds, p.now.seconds = f*p.now.gaps+gaps*dt, f*p.now.gapSeconds+running*dt, f*p.now.seconds+dt
	if usual, ok := p.usually(running, tokens); ok {
		p.lately, p.steps, p.recent = f*p.lately, f*p.steps, f*p.recent
		if running <= beyondSeen*p.most && tokens <= beyondSeen*p.filled {
			p.lately, p.steps, p.recent = p.lately+gaps*step/usual, p.steps+gaps, p.recent+1
		}
		if math.Abs(math.Log(step/usual)) < math.Log(usualRange) {
			p.odd = 0
		} else if p.odd += took; p.odd < newNormal {
			return
		} else {
			p.line.scale(p.lately / p.steps)
			p.lately, p.odd = p.steps, 0
		}
	}
	// More work makes no step faster. The fit allows no positive coefficients of work, so the columns are negative. Errors
	// are relative to the step.
	p.line.add(fade(took, memory), gaps/(step*step), step, 1, -running, -tokens, 0)
	p.most = math.Max(p.most*fade(took, memory), p.most+0.1*(running-p.most))
	p.filled = math.Max(p.filled*fade(took, memory), p.filled+0.1*(tokens-p.filled))
}

func (p *pace) usually(running, tokens float64) (float64, bool) {
	fit, ok := p.line.solve()
	return fit.c[0] - fit.c[1]*running - fit.c[2]*tokens, ok && p.line.n >= leastLine
}

// Steps returns how long the engine's steps have taken in the last minutes, by the number of running requests. It
// covers numbers near the learnt numbers. The numbers are on a fixed scale, a third of an octave apart, so that engines
// can be compared at the present share of prompt tokens. While less than ten minutes have been learnt, or the load is
// far above the learnt load, Steps returns nothing. With far more running requests, or more prompt tokens per step, the
// cost may grow more than proportionally. If an engine runs less than one request on average, all numbers have the mean
// step time of the last minutes. A curve would then be misleading, because it depends on the few requests that
// overlapped, and slow requests overlap more often.
func (l *Learner) Steps() (all []Step) {
	p := &l.pace
	if p.recent < 1 || l.mix.gaps <= 0 {
		return nil
	}
	if mean := p.now.gapSeconds / p.now.seconds; mean < 1 {
		for k := math.Ceil(scale * math.Log2(mean/near)); k <= scale*math.Log2(mean*near) && p.now.gaps >= enough; k++ {
			all = append(all, Step{math.Exp2(k / scale), p.now.gapSeconds / p.now.gaps})
		}
		return all
	}
	mean := -p.line.x[1] / p.line.w
	low := mean * math.Min(1, math.Max(0.1, 1-1.5*p.line.spread(1))) / beyondSeen
	for k := math.Ceil(scale * math.Log2(math.Max(1, low))); k <= math.Floor(scale*math.Log2(beyondSeen*p.most)); k++ {
		running := math.Exp2(k / scale)
		if usual, ok := p.usually(running, running*l.mix.prompt/l.mix.gaps); ok {
			all = append(all, Step{running, usual * p.lately / p.steps})
		}
	}
	return all
}

// Step has the seconds of a step with this number of running requests.
type Step struct{ Running, Seconds float64 }

// scale is how many numbers of the scale are in an octave. beyondSeen is the multiple of the learnt batches up to which
// the line of step times is trusted. An engine that runs less than one request on average has points from 1/near to
// near times its mean number. It can thus be compared with an engine that runs near squared times as many requests
// because it is three times as slow. Its mean step time must come from enough times between tokens.
const scale, beyondSeen, near, enough = 3, 1.5, 1.75, 1000
