package gpu

import (
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// tier is how often a value is read.
type tier int

const (
	fast tier = iota // values that change from one second to the next
	slow             // values that change rarely, or that take the driver long
	rare             // values that hardly ever change and that take the driver long
	tiers
)

// tierNames holds the values of the label kind of llm_gpu_read_interval_seconds.
var tierNames = [tiers]string{"fast", "slow", "rare"}

// rarest is the longest time between two readings, even if the driver needs a long time for them. If the budget would
// require longer pauses, the readings exceed the budget, and the metrics show by how much.
var rarest = [tiers]time.Duration{30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// pace decides how often the tiers of a GPU are read, so that all readings together stay within the budget, a share of the time.
type pace struct {
	usual      [tiers]time.Duration
	budget     float64
	last, cost [tiers]time.Duration // time in the driver, and its mean
	n          [tiers]int           // number of readings since the tier of each reading is known
}

// newPace returns the pace before the first reading. A budget of 1 means no limit.
func (o Options) newPace() *pace {
	const rarely = 12 // slow intervals
	p := &pace{usual: [tiers]time.Duration{o.Interval, o.SlowInterval, rarely * o.SlowInterval}, budget: o.Budget}
	if o.Budget == 1 {
		p.budget = 1e6
	}
	return p
}

// took records the time that the readings of a tier spent in the driver. It takes the shorter of the last two times,
// because one slow call does not prove a slow driver, and first answers are slow.
func (p *pace) took(t tier, d time.Duration) {
	shorter := min(d, p.last[t])
	switch p.n[t]++; p.n[t] {
	case 1:
	case 2:
		p.cost[t] = shorter
	default:
		p.cost[t] += (shorter - p.cost[t]) / 4
	}
	p.last[t] = d
}

// forget restarts the measurement of the fast readings, because these readings have changed.
func (p *pace) forget() { p.last[fast], p.cost[fast], p.n[fast] = 0, 0, 0 }

// due reports whether a tier must be read again after some time. Until three slow readings have shown which readings
// are slow, every tier is due at once.
func (p *pace) due(t tier, since time.Duration) bool {
	const known = 3
	return t == slow && p.n[t] < known || since >= p.every(t)
}

// every returns the time from one reading of a tier to the next. Fast readings have half of the budget, rare
// readings a quarter, and slow readings the rest.
func (p *pace) every(t tier) time.Duration {
	share := p.budget / 4
	switch t {
	case fast:
		share *= 2
	case slow:
		rest := p.budget
		for _, other := range []tier{fast, rare} {
			rest -= p.cost[other].Seconds() / p.every(other).Seconds()
		}
		share = max(share, rest)
	default: // rare
	}
	return max(p.usual[t], min(time.Duration(float64(p.cost[t])/share), rarest[t]))
}

// longest returns the longest allowed time between two fast readings.
func (o Options) longest() time.Duration {
	p := o.newPace()
	p.took(fast, time.Hour)
	p.took(fast, time.Hour)
	return p.every(fast)
}

// row describes how often a reading is made, and what the reading costs.
type row struct {
	tier
	mayBeSlow  bool // a fast reading that needs no other reading of the same cycle
	last, cost time.Duration
}

// at returns a row of a tier.
func at(t tier) row { return row{tier: t} }

// took records the time that a reading spent in the driver. It takes the shorter of the last two times, because the
// first answers of some fields take a long time.
func (r *row) took(d time.Duration) { r.cost, r.last = min(d, r.last), d }

// settle makes a fast reading slow if this reading alone takes more than a tenth of the budget. It reports whether the
// reading has changed its tier. It is called when both tiers are due, so that no value is lost or served twice.
func (r *row) settle(o *Options) bool {
	const dear = 0.1
	before := r.tier
	switch share := r.cost.Seconds() / o.Interval.Seconds(); {
	case !r.mayBeSlow || o.Budget == 1:
	case share > dear*o.Budget:
		r.tier = slow
	case share < dear*o.Budget/2:
		r.tier = fast
	}
	return r.tier != before
}

// spent adds up the time in the driver, by NVML function.
type spent struct {
	mu    sync.Mutex
	calls map[string]*timesCalled
}

type timesCalled struct {
	n    float64
	took time.Duration
}

func (s *spent) add(call string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[string]*timesCalled{}
	}
	t := findOrMake(s.calls, call)
	t.n++
	t.took += took
}

func (s *spent) emit(emit func(*metrics.Family, float64, ...string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for call, t := range s.calls {
		emit(metrics.GPUDriverCalls, t.n, call)
		emit(metrics.GPUDriverSeconds, t.took.Seconds(), call)
	}
}
