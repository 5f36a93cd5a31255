package gpu

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// sheet records the readings of one cycle of one GPU. A cycle mostly reads what the last one did, in the same order:
// its series are taken over from there, so that it allocates one slice.
type sheet struct {
	identity  Identity
	fast      readings   // of this cycle
	slow      readings   // of the last cycle in which slow readings were due
	dueSlow   bool       // whether slow readings are due in this cycle
	processes []Process  // of the last slow cycle
	instances []Instance // of the last slow cycle in which they could be read
	xids      []xid      // of this cycle
}

// readings lists samples in the order in which they were read. They are immutable once their sheet is published.
type readings struct {
	samples []metrics.Sample
	last    []metrics.Sample // of the last cycle
}

// again opens the readings for a new cycle.
func (r *readings) again() {
	r.last, r.samples = r.samples, make([]metrics.Sample, 0, cap(r.samples))
}

func (r *readings) add(of Identity, f *metrics.Family, value float64, extra []string) {
	var series *metrics.Series
	if i := len(r.samples); i < len(r.last) && r.last[i].Family == f && slices.Equal(r.last[i].Labels[2:], extra) &&
		slices.Equal(r.last[i].Labels[:2], []string{of.UUID, of.Index}) {
		series = r.last[i].Series
	} else {
		series = newSeries(f, append([]string{of.UUID, of.Index}, extra...)...)
	}
	r.samples = append(r.samples, metrics.Sample{Series: series, Value: value})
}

// newSeries returns a series; the number of labels is known to be right.
func newSeries(f *metrics.Family, labels ...string) *metrics.Series {
	s, err := f.NewSeries(labels...)
	if err != nil {
		panic(err)
	}
	return s
}

// begin opens the sheet for a new cycle. Published data stays untouched.
func (s *sheet) begin(slowIsDue bool) {
	s.fast.again()
	s.xids = nil
	s.dueSlow = slowIsDue
	if slowIsDue {
		s.slow.again()
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

// add puts a value that is read in every cycle on the sheet. extra holds the label values after those of the GPU.
func (s *sheet) add(f *metrics.Family, value float64, extra ...string) {
	s.fast.add(s.identity, f, value, extra)
}

// addSlow puts a value on the sheet that stays until the next slow cycle.
func (s *sheet) addSlow(f *metrics.Family, value float64, extra ...string) {
	s.slow.add(s.identity, f, value, extra)
}

// known returns a value that was asked for; empty if there is none.
func known(v string, err error) string {
	if err != nil {
		return ""
	}
	return v
}

// snapshot holds the immutable outcome of a cycle.
type snapshot struct {
	identity   Identity
	began      time.Time
	took       time.Duration
	fast, slow []metrics.Sample
	processes  []Process
	instances  []Instance
	err        error // the GPU or the library is out of order: only lasting series are present
}
