package capacity

import (
	"math"
	"slices"
	"time"
)

// Objective is a latency objective.
type Objective struct {
	Name      string
	Gaps      bool          // the objective is on the times between tokens instead of the time to the first token
	Threshold time.Duration // longest time of a good event
	Bad       float64       // share of events that may be bad
}

// Limit names the limit that the engine would reach first.
type Limit string

// These are the limits.
const (
	Batch   Limit = "batch_limit" // no free place in the running batch
	KVCache Limit = "kv_cache"    // no room in the KV cache
	Prefill Limit = "prefill"     // prompt tokens fill the steps
	Decode  Limit = "decode"      // each token of the batch makes the step longer
	Host    Limit = "host"        // steps are long, but the GPU waits for the host's CPU most of the time
)

// Limits returns all limits.
func Limits() []Limit { return []Limit{Batch, KVCache, Prefill, Decode, Host} }

// Forecast is the load that an engine serves before an objective breaks, as a multiple of Load.
type Forecast struct {
	Objective string
	// Factor is a multiple of the load. The true value is between Low and High with a probability of 90%.
	Factor, Low, High float64
	// Used is the present demand, as a share of the load at which the objective breaks.
	Used  float64
	Limit Limit
}

// Load is a demand on an engine per second.
type Load struct{ Requests, Gaps, PromptTokens, Tokens float64 }

// leastLoad is the lowest load that Load returns, as a share of the learnt peak.
const leastLoad = 0.01

// Load returns the load to which forecasts refer. This is the present demand. While the engine is idle, it is a
// hundredth of the engine's peak, with the mix of the last requests.
func (l *Learner) Load() Load {
	m := l.mix
	if m.requests <= 0 || m.gaps <= 0 {
		return Load{}
	}
	rate := math.Max(m.rate(), leastLoad*l.peak*m.requests/m.gaps)
	each := rate / m.requests
	return Load{rate, each * m.gaps, each * m.prompt, each * m.generated}
}

// Why explains why there is no forecast. It is empty if there is a forecast.
type Why string

// The reasons.
const (
	Known   Why = ""
	TooFew  Why = "few_readings"  // less than half an hour was seen, or too few requests
	Uniform Why = "little_spread" // the load hardly changed, and a line needs two points
	NoFit   Why = "no_fit"        // the steps do not follow the load
	// Unobserved engines do not report histograms of the times to first tokens and between tokens, so nothing can be learnt.
	Unobserved Why = "no_histograms"
)

// Reasons returns all reasons.
func Reasons() []Why { return []Why{Known, TooFew, Uniform, NoFit, Unobserved} }

// These are the minimum requirements of a forecast.
const (
	leastSeen   = 30 * time.Minute
	leastSpread = 0.02
)

// Forecast returns the forecasts for some objectives, or the reason why there are none.
func (l *Learner) Forecast(limits Bounds, objectives []Objective) ([]Forecast, Why) {
	fit, ok := l.line.solve()
	load := l.Load()
	switch {
	case l.seen < leastSeen || load.Requests <= 0 || l.line.n < leastLine:
		return nil, TooFew
	case math.Max(l.line.spread(1), l.line.spread(2)) < leastSpread:
		return nil, Uniform
	case !ok:
		return nil, NoFit
	}
	var all []Forecast
	for _, o := range objectives {
		f := Forecast{Objective: o.Name}
		f.Factor, f.Limit = l.breaks(fit, limits, o)
		f.Low, f.High = l.interval(fit, limits, o, f.Factor)
		f.Used = l.mix.rate() / (load.Requests * math.Max(f.Factor, 1e-3))
		all = append(all, f)
	}
	return all, Known
}

// Lever is a change that may help.
type Lever string

// These are the levers. More replicas are not among them, because their effect needs no forecast.
const (
	LargerBatch    Lever = "batch_limit_doubled"
	SmallerBatch   Lever = "batch_limit_halved"
	MoreCache      Lever = "kv_cache_doubled" // or elements of half the size, through quantisation
	ShorterPrompts Lever = "prompts_halved"   // or half of the prompt tokens come from the prefix cache
)

// Levers returns all levers.
func Levers() []Lever { return []Lever{LargerBatch, SmallerBatch, MoreCache, ShorterPrompts} }

// Levers returns the levers whose effect is known. The batch limit must be in the settings, the use of the KV cache
// must be known, and the tokens of prompts must be counted.
func (l *Learner) Levers(b Bounds) []Lever {
	known := map[Lever]bool{
		LargerBatch: b.Batch > 0, SmallerBatch: b.Batch > 0, MoreCache: l.held.places() > 0, ShorterPrompts: l.mix.prompt > 0,
	}
	return slices.DeleteFunc(Levers(), func(lever Lever) bool { return !known[lever] })
}

// With returns the load that an engine could serve before an objective breaks, after the change lever. The load is a
// multiple of Load. Call With only if there is a forecast. It assumes that a request's use of the cache, and the time
// to the first tokens of shorter prompts, stay unchanged.
func (l *Learner) With(lever Lever, bounds Bounds, o Objective) float64 {
	other := *l
	switch lever {
	case LargerBatch:
		bounds.Batch *= 2
	case SmallerBatch:
		bounds.Batch /= 2
	case MoreCache:
		other.held.xy /= 2
	case ShorterPrompts:
		other.mix.prompt /= 2
	}
	fit, _ := l.line.solve()
	factor, _ := other.breaks(fit, bounds, o)
	return factor
}

// interval returns factors around the forecast. The true value lies between them with a probability of 90%. The fit is
// uncertain, and the model's error grows with the distance from the learnt loads. Errors are shares of the forecast. If
// factor is positive, low is positive, however large the error is. If the forecast is above the learnt peak, the true
// value is also above the peak, except for the model's error at the peak.
func (l *Learner) interval(fit line, limits Bounds, o Objective, factor float64) (low, high float64) {
	if factor <= 0 { // the objective breaks even at rest
		return 0, 0
	}
	peak := l.peak / l.Load().Gaps
	beyond := math.Max(1, factor/peak)
	errs := modelError * beyond * factor
	own := errs * errs
	variance := own
	for i := range columns {
		sd := math.Sqrt(fit.cov[i][i])
		if sd == 0 {
			continue
		}
		other := fit
		for j := range columns { // uses the covariance, because the errors of the coefficients are correlated
			other.c[j] += fit.cov[i][j] / sd
		}
		moved, _ := l.breaks(other, limits, o)
		variance = math.Max(variance, own+(moved-factor)*(moved-factor))
	}
	within := func(share float64) float64 { return factor * math.Max(1-1.64*share, math.Exp(-2*1.64*share)) }
	share := math.Min(mostError, math.Sqrt(variance)/factor)
	if low = within(share); factor >= peak {
		low = math.Max(low, math.Min(peak, within(modelError)))
	}
	return low, factor * math.Exp(1.64*share)
}

// modelError is the model's error at the highest learnt load, as a share of the forecast. mostError is the largest
// error of an interval, because an interval with a larger error is useless.
const modelError, mostError = 0.05, 2

// firstStretch is the exponent with which the time to first tokens grows with the step time. It is above 1, because
// longer steps lengthen both the computation of a prompt and its wait for earlier prompts.
const firstStretch = 1.5

// steps returns the steps per second at a load.
func (f line) steps(gaps, prompt float64) float64 {
	return f.c[0] + f.c[1]*gaps + f.c[2]*prompt + f.c[3]*bend(prompt)
}

// step returns the seconds of a step that computes these prompt tokens in addition to the tokens of the running requests.
func (f line) step(running, tokens float64) float64 {
	return (1 - f.c[1]*running - f.c[2]*tokens) / f.c[0]
}

// state describes an engine at a multiple of its load.
type state struct {
	step, running, places, offered float64
	limit                          Limit
	full                           bool // the tokens do not fit into a step
}

// at returns the state at a multiple of the load.
func (l *Learner) at(k float64, fit line, limits Bounds) state {
	load := l.Load()
	steps := fit.steps(k*load.Gaps, k*load.PromptTokens)
	s := state{limit: Decode, places: math.Inf(1)}
	if fit.steps(0, k*load.PromptTokens)-fit.c[0] < fit.c[1]*k*load.Gaps {
		s.limit = Prefill
	}
	if steps <= 0 {
		s.step, s.full = math.Inf(1), true
		return s
	}
	s.step = 1 / steps
	s.running = k * load.Gaps * s.step
	if limits.StepTokens > 0 && k*load.PromptTokens*s.step+s.running > limits.StepTokens {
		s.limit, s.full = Prefill, true
	}
	if limits.Batch > 0 {
		s.places = limits.Batch
	}
	kv := l.held.places()
	if kv > 0 && kv < s.places {
		s.places = kv
	}
	// A request takes its place at the first step of its prompt.
	prefill := 0.0
	if l.first.count > 0 {
		prefill = l.first.sum / l.first.count * math.Pow(s.step/l.first.step(), firstStretch)
	}
	s.offered = s.running + k*load.Requests*prefill
	return s
}

// late returns the share of an objective's events that would be bad at a multiple of the load. It also returns the
// limit that causes this.
func (l *Learner) late(k float64, fit line, limits Bounds, o Objective) (float64, Limit) {
	s := l.at(k, fit, limits)
	if s.full {
		return 1, s.limit
	}
	threshold := o.Threshold.Seconds()
	if o.Gaps {
		if limits.StepTokens > 0 && l.gap.above(threshold) < o.Bad/100 && fit.step(s.running, limits.StepTokens) < threshold/1.1 {
			return 0, s.limit // even a full step is faster
		}
		// Either every step takes longer, or more steps contain the prompt tokens that make a step long. At a higher load,
		// the worse case counts, and at a lower load the better case.
		stretched, times := s.step/l.gap.step(), k*l.Load().Gaps*l.gap.seconds/l.gap.gaps
		all, more := l.gap.above(threshold/stretched), times*stretched*l.gap.above(threshold)
		if times < 1 {
			return math.Min(all, more), s.limit
		}
		return math.Min(1, math.Max(all, more)), s.limit
	}
	late, mean := 0.0, 0.0
	if l.first.count > 0 {
		stretched := math.Pow(s.step/l.first.step(), firstStretch)
		late, mean = l.first.above(threshold/stretched), l.first.sum/l.first.count*stretched
	}
	waits := 0.0
	if !math.IsInf(s.places, 1) {
		service := s.offered / (k * l.Load().Requests)
		waits = wait(s.places, s.offered, service, math.Max(0, threshold-mean))
	}
	if waits > late {
		s.limit = Batch
		if kv := l.held.places(); kv > 0 && (limits.Batch == 0 || kv < limits.Batch) {
			s.limit = KVCache
		}
	}
	return 1 - (1-late)*(1-waits), s.limit
}

// wait returns the share of requests that wait for more than the given seconds for one of several places (Erlang C).
// taken is the mean number of places in use, and service is for how many seconds a request uses its place.
func wait(places, taken, service, longer float64) float64 {
	n := math.Floor(places)
	if n < 1 || taken >= n {
		return 1
	}
	b := 1.0 // Erlang B, by its recursion
	for i := 1.0; i <= n; i++ {
		b = taken * b / (i + taken*b)
	}
	c := b / (1 - taken/n*(1-b))
	return c * math.Exp(-(n-taken)*longer/service)
}

// breaks returns the multiple of the load at which an objective breaks. The search starts at the learnt peak, so that
// the result does not depend on the present demand.
func (l *Learner) breaks(fit line, limits Bounds, o Objective) (float64, Limit) {
	low, high := 0.0, l.peak/l.Load().Gaps
	most := 1e4 * high
	for bad, _ := l.late(high, fit, limits, o); bad <= o.Bad && high < most; bad, _ = l.late(high, fit, limits, o) {
		low, high = high, 2*high
	}
	for range 40 {
		mid := (low + high) / 2
		if bad, _ := l.late(mid, fit, limits, o); bad > o.Bad {
			high = mid
		} else {
			low = mid
		}
	}
	_, limit := l.late(high, fit, limits, o)
	if (limit == Prefill || limit == Decode) && l.busy.waits() {
		limit = Host
	}
	return low, limit
}
