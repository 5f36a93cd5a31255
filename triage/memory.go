package triage

import (
	"context"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// memory stores at most two samples of each series, by name, for the query engine.
type memory map[string]map[uint64]*series

type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// remember stores the two readings in a memory. A series that is missing in the second reading ends there, as in
// Prometheus.
func remember(before, after Reading) memory {
	m := memory{}
	m.add(before.At, before.Series)
	m.add(after.At, after.Series)
	for _, named := range m {
		for _, s := range named {
			if s.samples[len(s.samples)-1].T() < after.At.UnixMilli() {
				s.samples = append(s.samples, sample{after.At.UnixMilli(), math.Float64frombits(value.StaleNaN)})
			}
		}
	}
	return m
}

// add stores a sample of each series. It replaces a stored sample with the same time.
func (m memory) add(at time.Time, all promql.Vector) {
	for _, one := range all {
		name, h := one.Metric.Get(model.MetricNameLabel), one.Metric.Hash()
		if m[name] == nil {
			m[name] = map[uint64]*series{}
		}
		if m[name][h] == nil {
			m[name][h] = &series{labels: one.Metric}
		}
		s := m[name][h]
		if n := len(s.samples); n > 0 && s.samples[n-1].T() == at.UnixMilli() {
			s.samples = s.samples[:n-1]
		}
		s.samples = append(s.samples, sample{at.UnixMilli(), one.F})
	}
}

// Querier implements storage.Queryable.
func (m memory) Querier(int64, int64) (storage.Querier, error) {
	return querier{storage.NoopQuerier(), m}, nil
}

// querier selects series of a memory.
type querier struct {
	storage.Querier
	memory memory
}

// Select implements storage.Querier.
func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &set{}
	for _, m := range matchers {
		if m.Name != model.MetricNameLabel || m.Type != labels.MatchEqual {
			continue
		}
		for _, s := range q.memory[m.Value] {
			if matches(s.labels, matchers) {
				found.rest = append(found.rest, storage.NewListSeries(s.labels, s.samples))
			}
		}
	}
	return found
}

func matches(l labels.Labels, all []*labels.Matcher) bool {
	for _, m := range all {
		if !m.Matches(l.Get(m.Name)) {
			return false
		}
	}
	return true
}

// set iterates over series.
type set struct {
	at   storage.Series
	rest []storage.Series
}

// Next implements storage.SeriesSet.
func (s *set) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}

// At implements storage.SeriesSet.
func (s *set) At() storage.Series { return s.at }

// Err implements storage.SeriesSet.
func (s *set) Err() error { return nil }

// Warnings implements storage.SeriesSet.
func (s *set) Warnings() annotations.Annotations { return nil }

// sample is a float at a time in milliseconds.
type sample struct {
	t int64
	v float64
}

// T implements chunks.Sample, as do the methods below.
func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
