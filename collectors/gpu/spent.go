package gpu

import (
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// slowCall is what a driver call may take before its GPU is asked less often: others wait for the driver, too.
const slowCall = 5 * time.Millisecond

// restFactor is how many times as long as its slowest call a GPU is then left alone, up to the slow interval: the exporter has
// the driver for a hundredth of the time.
const restFactor = 100

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

// rest returns how long to wait after a cycle whose slowest call took so long.
func rest(usual, slowest, most time.Duration) time.Duration {
	if slowest < slowCall {
		return usual
	}
	return max(usual, min(restFactor*slowest, most))
}
