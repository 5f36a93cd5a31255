package metrics

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Series holds the parts that two values of a counter or gauge share.
type Series struct {
	Family *Family
	Labels []string // values, in the order of Family.Labels
	Text   string   // name and labels, as on a metrics page
}

// NewSeries returns a series. It replaces invalid UTF-8 in labels, because some names come from firmware.
func (f *Family) NewSeries(labelValues ...string) (*Series, error) {
	if len(labelValues) != len(f.Labels) {
		return nil, fmt.Errorf("%s has %d labels, not %d", f.Name, len(f.Labels), len(labelValues))
	}
	s := &Series{Family: f, Labels: slices.Clone(labelValues)}
	labels := make([]Label, len(labelValues))
	for i, v := range labelValues {
		s.Labels[i] = strings.ToValidUTF8(v, "\uFFFD")
		labels[i] = Label{Name: f.Labels[i], Value: s.Labels[i]}
	}
	slices.SortFunc(labels, func(a, b Label) int { return cmp.Compare(a.Name, b.Name) }) // the order of client_golang
	s.Text = string(AppendSeries(nil, f.Name, labels...))
	return s, nil
}

// Sample holds one value of a series. It is a prometheus.Metric, and a line of a metrics page.
type Sample struct {
	*Series
	Value float64
}

// Desc implements prometheus.Metric.
func (s *Sample) Desc() *prometheus.Desc { return s.Family.desc }

// Write implements prometheus.Metric.
func (s *Sample) Write(out *dto.Metric) error {
	out.Label = prometheus.MakeLabelPairs(s.Family.desc, s.Labels)
	if s.Family.Kind == Counter {
		out.Counter = &dto.Counter{Value: &s.Value}
	} else {
		out.Gauge = &dto.Gauge{Value: &s.Value}
	}
	return nil
}

// Const returns a sample of a counter or gauge. Label values follow f.Labels. A wrong number of values is a mistake of
// the caller. It yields an invalid metric, which is reported when it is collected, and never a panic.
func (f *Family) Const(value float64, labelValues ...string) prometheus.Metric {
	s, err := f.NewSeries(labelValues...)
	if err != nil {
		return prometheus.NewInvalidMetric(f.desc, err)
	}
	return &Sample{s, value}
}
