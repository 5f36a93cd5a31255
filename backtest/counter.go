package backtest

import (
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// point is a stored sample. total is the increase of the counter since the first sample, across restarts.
type point struct {
	t        int64 // milliseconds since the Unix epoch
	v, total float64
}

// counter is one series as the exporter served it, or would have served it. It has the samples of the current chunk,
// and earlier samples that windows still need.
type counter struct {
	series labels.Labels
	points []point
}

// lookback is how long Prometheus uses a sample as the present value.
const lookback = 5 * time.Minute

func (c *counter) add(t int64, v float64) {
	p := point{t, v, 0}
	if n := len(c.points); n > 0 {
		last := c.points[n-1]
		if t <= last.t {
			return // before version 3, Prometheus also sends the sample at the start of a range
		}
		p.total = last.total + v
		if v >= last.v {
			p.total -= last.v
		}
	}
	c.points = append(c.points, p)
}

// forget drops the samples before a time.
func (c *counter) forget(before int64) {
	n := 0
	for n < len(c.points) && c.points[n].t < before {
		n++
	}
	c.points = append(c.points[:0], c.points[n:]...)
}

// each calls f for each minute of a span, with the samples in the window that ends at this minute.
func (c *counter) each(s span, window time.Duration, f func(minute int, at int64, in []point)) {
	lo, hi := 0, 0
	for i := s.from; i < s.to; i++ {
		at := s.at(i)
		for hi < len(c.points) && c.points[hi].t <= at {
			hi++
		}
		for lo < hi && c.points[lo].t <= at-window.Milliseconds() {
			lo++
		}
		f(i, at, c.points[lo:hi])
	}
}

// increase computes the same value as Prometheus' increase(). With fewer than two samples, the result is NaN.
func increase(in []point, at int64, window time.Duration) float64 {
	n := len(in) - 1
	if n < 1 {
		return math.NaN()
	}
	first, last := in[0], in[n]
	gained := last.total - first.total
	sampled := float64(last.t-first.t) / 1000
	between := sampled / float64(n)
	start := float64(first.t-(at-window.Milliseconds())) / 1000
	end := float64(at-last.t) / 1000
	if start >= between*1.1 {
		start = between / 2
	}
	if gained > 0 && first.v >= 0 {
		start = min(start, sampled*(first.v/gained)) // the counter was never below zero
	}
	if end >= between*1.1 {
		end = between / 2
	}
	return gained * ((sampled + start + end) / sampled)
}

// present reports whether a series exists at a time. This is the case if its last sample is from the last scrape.
func present(in []point, at int64) bool {
	n := len(in)
	if n == 0 {
		return false
	}
	interval := lookback.Milliseconds()
	if n > 1 {
		interval = in[n-1].t - in[n-2].t
		if n > 2 {
			interval = min(interval, in[n-2].t-in[n-3].t)
		}
	}
	return at-in[n-1].t < interval
}

// span is a range of minutes of a backtest. It includes the minute from and excludes the minute to.
type span struct {
	begin    int64 // time of minute 0
	from, to int
}

// at returns the time of a minute.
func (s span) at(minute int) int64 { return s.begin + int64(minute)*time.Minute.Milliseconds() }

// nothing returns n absent values.
func nothing(n int) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = math.NaN()
	}
	return all
}

// plus adds two values. If one of them is absent, it returns the other.
func plus(a, b float64) float64 {
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return a + b
}
