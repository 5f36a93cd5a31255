package drill

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// repeated is a histogram that can observe the same value many times at once. One step gives the whole batch a token,
// and simulations last for days, so single observations would be too slow.
type repeated struct {
	desc   *prometheus.Desc
	bounds []float64

	mu     sync.Mutex
	counts []uint64
	sum    float64
}

func (p *page) repeated(name string, bounds []float64) *repeated {
	return register(p, &repeated{desc: prometheus.NewDesc(name, "", nil, p.labels), bounds: bounds, counts: make([]uint64, len(bounds)+1)})
}

// Observe adds a value n times.
func (h *repeated) Observe(value float64, n int) {
	i, _ := slices.BinarySearch(h.bounds, value)
	h.mu.Lock()
	h.counts[i] += uint64(n)
	h.sum += value * float64(n)
	h.mu.Unlock()
}

// Describe implements prometheus.Collector.
func (h *repeated) Describe(ch chan<- *prometheus.Desc) { ch <- h.desc }

// Collect implements prometheus.Collector.
func (h *repeated) Collect(ch chan<- prometheus.Metric) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cumulative, count := make(map[float64]uint64, len(h.bounds)), uint64(0)
	for i, n := range h.counts {
		if count += n; i < len(h.bounds) {
			cumulative[h.bounds[i]] = count
		}
	}
	ch <- prometheus.MustNewConstHistogram(h.desc, count, h.sum, cumulative)
}
