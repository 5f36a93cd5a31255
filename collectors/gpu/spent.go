package gpu

import (
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// The longest time between two readings, however long they take in the driver. A budget that asks for more is exceeded, and
// the page says by how much.
const (
	rarestFast = 30 * time.Second
	rarestSlow = 2 * time.Minute
)

// pace is how often one kind of readings of a GPU is made: fast ones, or slow ones with them. Each kind has half of the budget,
// which is a share of the time.
type pace struct {
	usual, rarest time.Duration
	half          float64
	cost          time.Duration // mean time in the driver
}

// took notes how long a cycle was in the driver. One slow call is not a slow driver, so it counts for no more than what makes
// readings as rare as they get; but the first cycle is all that is known.
func (p *pace) took(d time.Duration) {
	d = min(d, time.Duration(float64(p.rarest)*p.half))
	if p.cost == 0 {
		p.cost = d
	}
	p.cost += (d - p.cost) / 4
}

// every returns the time from one reading to the next.
func (p *pace) every() time.Duration {
	return max(p.usual, min(time.Duration(float64(p.cost)/p.half), p.rarest))
}

// newPace returns the pace of readings that have not been made yet. A budget of all the time is none.
func (o Options) newPace(usual, rarest time.Duration) pace {
	p := pace{usual, rarest, o.Budget / 2, 0}
	if o.Budget == 1 {
		p.half = 1e6
	}
	return p
}

// longest returns how far apart fast readings may be.
func (o Options) longest() time.Duration {
	p := o.newPace(o.Interval, rarestFast)
	p.took(time.Hour)
	return p.every()
}

// spent holds the time that was spent in the driver, by function of NVML.
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
