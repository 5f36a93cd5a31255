package gpu

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// sheet records the readings of one cycle of one GPU. Most cycles read the same values in the same order as the last
// cycle. Therefore, a cycle reuses the last cycle's series, and allocates little more than one slice.
type sheet struct {
	identity  Identity
	readings  [tiers]readings             // of the last cycle in which the tier was due
	due       tier                        // the rarest tier that is due in this cycle
	row       tier                        // tier of the current reading
	settled   bool                        // whether a reading changed its tier in this cycle
	processes []Process                   // of the last slow cycle
	instances []Instance                  // of the last slow cycle in which instances were readable
	xids      []xid                       // of this cycle
	every     time.Duration               // from one cycle to the next
	driver    [tiers]time.Duration        // time that this cycle spent in the driver
	dropped   map[*metrics.Family]float64 // number of implausible readings since the start
}

// readings lists samples in the order of reading. They do not change after their sheet is published.
type readings struct {
	samples []metrics.Sample
	last    []metrics.Sample // of the last cycle, without the series that this cycle has passed
}

// again opens the readings for a new cycle.
func (r *readings) again() {
	r.last, r.samples = r.samples, make([]metrics.Sample, 0, cap(r.samples))
}

func (r *readings) add(of Identity, f *metrics.Family, value float64, extra []string) {
	series := r.take(of, f, extra)
	if series == nil {
		series = newSeries(f, append([]string{of.UUID, of.Index}, extra...)...)
	}
	r.samples = append(r.samples, metrics.Sample{Series: series, Value: value})
}

// take returns the next series of the last cycle that has this identity, family and labels, or nil. It may skip a few
// series that this cycle did not read.
func (r *readings) take(of Identity, f *metrics.Family, extra []string) *metrics.Series {
	const ahead = 40 // a GPU has up to 18 NVLinks
	for i, s := range r.last[:min(ahead, len(r.last))] {
		if s.Family == f && slices.Equal(s.Labels[2:], extra) && s.Labels[0] == of.UUID && s.Labels[1] == of.Index {
			r.last = r.last[i+1:]
			return s.Series
		}
	}
	return nil
}

// newSeries returns a series. The caller guarantees the number of labels.
func newSeries(f *metrics.Family, labels ...string) *metrics.Series {
	s, err := f.NewSeries(labels...)
	if err != nil {
		panic(err)
	}
	return s
}

// begin opens the sheet for a new cycle. Published data stays untouched.
func (s *sheet) begin(due tier, every time.Duration) {
	for t := range due + 1 {
		s.readings[t].again()
	}
	s.xids, s.driver, s.every, s.due, s.row, s.settled = nil, [tiers]time.Duration{}, every, due, fast, false
	if due >= slow {
		s.processes = nil
	}
}

// setIdentity sets the GPU. Instances of another GPU are dropped.
func (s *sheet) setIdentity(id Identity) {
	if s.identity != id {
		s.identity = id
		s.instances = nil
	}
}

// add adds a value to the sheet. The value stays until its tier is due again. extra has the label values after those of
// the GPU.
func (s *sheet) add(f *metrics.Family, value float64, extra ...string) {
	if s.plausible(f, value) {
		s.readings[s.row].add(s.identity, f, value, extra)
	}
}

// plausible reports whether a value is possible, and counts impossible values.
func (s *sheet) plausible(f *metrics.Family, value float64) bool {
	if f.Plausible(value) {
		return true
	}
	if s.dropped == nil {
		s.dropped = map[*metrics.Family]float64{}
	}
	s.dropped[f]++
	return false
}

// known returns a requested value, or an empty string after an error.
func known(v string, err error) string {
	if err != nil {
		return ""
	}
	return v
}

// snapshot holds the immutable outcome of a cycle.
type snapshot struct {
	identity  Identity
	began     time.Time
	took      time.Duration
	every     [tiers]time.Duration // time from one reading to the next
	samples   [tiers][]metrics.Sample
	processes []Process
	instances []Instance
	err       error // error that broke the GPU or the library; then only lasting series are present
}
