package gpu

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// maxExtra is the largest number of labels that a family has besides those of the GPU (llm_gpu_info).
const maxExtra = 7

// sheet records the readings of one cycle of one GPU. The label pairs of a series are built once and shared by all
// its values, so that a cycle allocates one slice and a page almost nothing.
type sheet struct {
	identity  Identity
	fast      []series   // of this cycle
	slow      []series   // of the last cycle in which slow readings were due
	dueSlow   bool       // whether slow readings are due in this cycle
	processes []Process  // of the last slow cycle
	instances []Instance // of the last slow cycle in which they could be read
	xids      []xid      // of this cycle

	known map[seriesKey]*seriesIdentity
}

type seriesKey struct {
	family *metrics.Family
	extra  [maxExtra]string
}

// seriesIdentity holds what stays the same between two values of a series.
type seriesIdentity struct {
	family *metrics.Family
	labels []*dto.LabelPair
}

// series holds one value of one series. It is immutable once its sheet is published.
type series struct {
	*seriesIdentity
	value float64
}

func (s *series) Desc() *prometheus.Desc { return s.family.Desc() }

func (s *series) Write(out *dto.Metric) error {
	out.Label = s.labels
	if s.family.Kind == metrics.Counter {
		out.Counter = &dto.Counter{Value: &s.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}

// begin opens the sheet for a new cycle. Published data stays untouched.
func (s *sheet) begin(slowIsDue bool) {
	s.fast = make([]series, 0, cap(s.fast))
	s.xids = nil
	s.dueSlow = slowIsDue
	if slowIsDue {
		s.slow = make([]series, 0, cap(s.slow))
		s.processes = nil
	}
}

// setIdentity sets the GPU. Series of another GPU are dropped.
func (s *sheet) setIdentity(id Identity) {
	if s.identity != id || s.known == nil {
		s.identity = id
		s.known = make(map[seriesKey]*seriesIdentity)
		s.instances = nil
	}
}

// add puts a value that is read in every cycle on the sheet. extra holds the label values after those of the GPU.
func (s *sheet) add(f *metrics.Family, value float64, extra ...string) {
	s.fast = append(s.fast, series{s.series(f, extra), value})
}

// addSlow puts a value on the sheet that stays until the next slow cycle.
func (s *sheet) addSlow(f *metrics.Family, value float64, extra ...string) {
	s.slow = append(s.slow, series{s.series(f, extra), value})
}

func (s *sheet) series(f *metrics.Family, extra []string) *seriesIdentity {
	key := seriesKey{family: f}
	copy(key.extra[:], extra)
	id := s.known[key]
	if id == nil {
		id = newSeriesIdentity(f, append([]string{s.identity.UUID, s.identity.Index}, extra...)...)
		s.known[key] = id
	}
	return id
}

func newSeriesIdentity(f *metrics.Family, labels ...string) *seriesIdentity {
	for i, v := range labels {
		labels[i] = strings.ToValidUTF8(v, "\uFFFD") // names come from firmware
	}
	return &seriesIdentity{f, prometheus.MakeLabelPairs(f.Desc(), labels)}
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
	fast, slow []series
	processes  []Process
	instances  []Instance
	err        error // the GPU or the library is out of order: only lasting series are present
}
