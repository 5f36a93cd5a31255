// Package capacity learns from what an engine does all day how much more it can do: how many requests a second it would serve at the
// present mix of prompts and answers before an objective breaks, and which limit would be in the way.
//
// The model has three parts, each with few numbers that a page shows. An engine computes in steps. Steps per second fall with the
// tokens that a second brings: steps = alpha - beta*gaps - gamma*prompt - delta*prompt^2, where gaps are the times between tokens that
// pass in a second, and prompt the prompt tokens that it computes. The load comes from outside, whatever the state of the engine, so
// it is fitted by least squares over windows of half a minute. By Little's law as many requests run at once as gaps per
// second times the seconds of a step. A request that finds no place among them waits, as in a queue with so many servers (Erlang C);
// the places are the engine's batch limit or, if fewer, what its KV cache holds. First tokens and gaps keep the shape of their
// distribution, and are stretched as the step is.
package capacity

import (
	"math"
	"slices"
	"time"
)

// Reading is what an engine's page shows at a time. Counters count since the engine started. NaN stands for what it does not
// show, and counts as nothing.
type Reading struct {
	At time.Time
	// FirstTokens counts first tokens, FirstSeconds adds up the times to them.
	FirstTokens, FirstSeconds float64
	// Gaps counts the times between tokens, GapSeconds adds them up.
	Gaps, GapSeconds float64
	// GeneratedTokens counts the tokens of answers. It is told, not learnt from.
	GeneratedTokens float64
	// PromptTokens counts the prompt tokens that were computed: without those found in a cache.
	PromptTokens float64
	// Running and Waiting are the requests that run and wait, KVUsage the share of the KV cache in use.
	Running, Waiting, KVUsage float64
	// First and Gap are cumulative histograms of the times to first tokens and between tokens.
	First, Gap Histogram
}

// Histogram is a cumulative histogram: Counts[i] values are at most Bounds[i] seconds. Values above the last bound are in All only, or
// in the count of the Reading where All is zero: some engines observe not each time but a mean of each request.
type Histogram struct {
	Bounds, Counts []float64
	All            float64
}

// Bounds are those of an engine that its settings tell. Zero stands for unknown.
type Bounds struct {
	// Batch is how many requests it runs at once, StepTokens how many tokens a step computes at most.
	Batch, StepTokens float64
}

// window is how much time the fit takes as one: long enough for a rate, and short enough for loads to differ.
const window = 30 * time.Second

// How fast the past fades: what an engine can do changes with its release, what it is asked changes by the hour.
const (
	memory = 6 * time.Hour
	recent = 10 * time.Minute
)

// Learner learns the capacity of one engine. Its zero value has seen nothing.
type Learner struct {
	last  Reading
	sum   totals
	seen  time.Duration // time that was learnt from
	line  regression
	known float64       // gaps per second up to which the line is believed: a tenth closer to a higher load with each window of it
	sick  time.Duration // for how long steps have taken too long for their load
	// filled is the same of the prompt tokens computed per second.
	filled float64
	slow   float64 // how many times as long as the line says steps took in the last window; 0 if nobody knows
	peak   float64 // the most gaps per second of a window that was learnt from, as the line fades
	mix    mix
	held   held
	pace   pace
	first  shape
	gap    shape
}

// totals adds up what the readings of a window brought.
type totals struct {
	took                            time.Duration
	first, firstSeconds, gaps, gapS float64
	prompt, generated               float64
	running, waiting, kv            float64 // the gauges times seconds
	firstCounts, gapCounts          []float64
	gapMeans                        float64
}

// Learn takes in a reading. One that is not after the last, or has smaller counters, starts anew without forgetting.
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
	s.firstCounts = grown(s.firstCounts, r.First.Counts, before.First.Counts)
	s.gapCounts = grown(s.gapCounts, r.Gap.Counts, before.Gap.Counts)
	s.gapMeans += r.Gap.All - before.Gap.All
	if s.took >= window {
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
		return // what a sick engine does says nothing about what it can do
	}
	if !certain {
		return
	}
	l.line.add(fade(s.took, memory), s.gaps/dt, 1/step, 1, s.gaps/dt, s.prompt/dt, bend(s.prompt/dt))
	l.peak = math.Max(l.peak*fade(s.took, memory), s.gaps/dt)
	l.known = math.Max(l.known*fade(s.took, memory), l.known+0.1*(s.gaps/dt-l.known))
	l.filled = math.Max(l.filled*fade(s.took, memory), l.filled+0.1*(s.prompt/dt-l.filled))
	if s.kv > 0 && s.running > 0 {
		l.held.add(fade(s.took, memory), s.kv/dt, s.gapS/dt)
	}
	all := s.gaps
	if r.Gap.All > 0 {
		all = s.gapMeans
	}
	l.gap.add(fade(s.took, recent), r.Gap.Bounds, s.gapCounts, all, s.gapS, step)
	if s.first > 0 && !l.waited(s, step) {
		l.first.add(fade(s.took, recent), r.First.Bounds, s.firstCounts, s.first, s.firstSeconds, step)
	}
}

// Slowdown returns how many times as long as usual at the same load the steps of the last half minute took. ok is false while less than
// ten minutes are known, while the engine hardly works (fewer than five steps), and beyond the loads that were seen, of prompts as of answers.
func (l *Learner) Slowdown() (times float64, ok bool) { return l.slow, l.slow > 0 }

// slowdown compares the seconds of a step with what the line says of its load.
func (l *Learner) slowdown(gaps, prompt, step float64) float64 {
	fit, ok := l.line.solve()
	if !ok || l.line.n < leastLine || gaps > beyondKnown*l.known || prompt > beyondFilled*l.filled || !(step > shortest && step < longest) {
		return 0
	}
	return step * math.Max(fit.steps(gaps, prompt), fit.c[0]/20)
}

// tooSlow is the slowdown from which on an engine is not learnt from, and newNormal for how long.
const (
	tooSlow   = 1.5
	newNormal = time.Hour
)

// fewSteps is how many steps at least tell how long they take.
const fewSteps = 5

// leastLine is how many windows tell how long steps usually take, beyondKnown and beyondFilled up to which multiple of the gaps and prompt
// tokens that are known they do: a window has few prompts, and they differ in length.
const leastLine, beyondKnown, beyondFilled = 20, 1.3, 2

// The limits of what is believed of a page: seconds of a step, and tokens per second.
const (
	shortest, longest = 1e-6, 1e3
	fastest           = 1e9
)

// plausible reports whether an engine can have done that.
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

// waited reports whether requests of a window have waited: some did at a reading, or first tokens came three times as late as the
// steps explain.
func (l *Learner) waited(s totals, step float64) bool {
	if f := &l.first; f.count > 100 && s.firstSeconds/s.first > 3*f.sum/f.count*math.Pow(math.Max(1, step/f.step()), firstStretch) {
		return true
	}
	return s.waiting > 0
}

// fade returns the weight that what is known keeps after a time.
func fade(took, memory time.Duration) float64 { return math.Exp(-took.Seconds() / memory.Seconds()) }

// mix is what is asked at present, per second.
type mix struct{ seconds, first, gaps, prompt, generated float64 }

func (m *mix) add(s totals) {
	f := fade(s.took, recent)
	m.seconds = f*m.seconds + s.took.Seconds()
	m.first = f*m.first + s.first
	m.gaps = f*m.gaps + s.gaps
	m.prompt = f*m.prompt + s.prompt
	m.generated = f*m.generated + s.generated
}

// held learns how much of the KV cache a running request holds.
type held struct{ xy, xx float64 }

func (h *held) add(f, usage, running float64) {
	h.xy, h.xx = f*h.xy+usage*running, f*h.xx+running*running
}

// places returns how many requests the whole cache holds nineteen times out of twenty; 0 if nobody knows. Requests differ in length
// about as much as their mean, as if they were drawn from an exponential distribution.
func (h *held) places() float64 {
	if h.xy <= 0 {
		return 0
	}
	n := h.xx / h.xy
	return math.Max(1, n-1.64*math.Sqrt(n))
}

// shape is a distribution of times at a mean time of a step.
type shape struct {
	bounds, counts           []float64
	count, sum, steps, taken float64
}

func (s *shape) add(f float64, bounds, counts []float64, count, sum, step float64) {
	if !slices.Equal(s.bounds, bounds) {
		*s = shape{bounds: slices.Clone(bounds), counts: make([]float64, len(bounds))}
	}
	for i := range counts {
		s.counts[i] = f*s.counts[i] + counts[i]
	}
	s.count, s.sum = f*s.count+count, f*s.sum+sum
	s.steps, s.taken = f*s.steps+count, f*s.taken+count*step
}

// step returns the mean time of a step while the distribution was seen.
func (s *shape) step() float64 { return s.taken / s.steps }

// above returns the share of times above a limit, between two bounds as if they were spread evenly over their logarithm.
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

// pace learns how long a step takes that runs so many requests, and how long such steps take at present. Unlike the line it holds, too,
// where the engine has more to do than it can.
type pace struct {
	line   regression
	most   float64       // requests that ran, up to which it is believed
	filled float64       // and prompt tokens of a step
	lately float64       // how many times as long as usual the steps of the last minutes took, summed over
	steps  float64       // so many steps
	recent float64       // of so many windows
	odd    time.Duration // for how long they have taken another time than usual
}

// lasts is how fast what steps took lately fades, usualRange what is usual.
const lasts, usualRange = 5 * time.Minute, 1.15

// add learns from a window. What took another time than usual says nothing about the usual course, until it has for an hour: then all
// steps take so many times as long.
func (p *pace) add(took time.Duration, gaps, prompt, step float64) {
	running, tokens := gaps*step, prompt*step
	if usual, ok := p.usually(running, tokens); ok {
		f := fade(took, lasts)
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
	// More work makes no step faster: the columns are negative, as the fit has it. Errors count in relation to the step.
	p.line.add(fade(took, memory), gaps/(step*step), step, 1, -running, -tokens, 0)
	p.most = math.Max(p.most*fade(took, memory), p.most+0.1*(running-p.most))
	p.filled = math.Max(p.filled*fade(took, memory), p.filled+0.1*(tokens-p.filled))
}

func (p *pace) usually(running, tokens float64) (float64, bool) {
	fit, ok := p.line.solve()
	return fit.c[0] - fit.c[1]*running - fit.c[2]*tokens, ok && p.line.n >= leastLine
}

// Steps returns how long the steps of an engine have taken in the last minutes with each number of running requests near those that
// it has had, of a fixed scale, so that engines can be compared: a third of an octave apart, at the present share of prompt tokens. It
// returns nothing while less than ten minutes are known, and while far more requests run, or prompts fill more of a step, than was seen: it may
// cost more than in proportion.
func (l *Learner) Steps() (all []Step) {
	p := &l.pace
	if p.recent < 1 || l.mix.gaps <= 0 {
		return nil
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

// Step is how many seconds a step takes with so many running requests.
type Step struct{ Running, Seconds float64 }

// scale is how many numbers of the scale an octave has. The course of a step is a line of its batch, which is believed a little beyond
// what was seen.
const scale, beyondSeen = 3, 1.5
