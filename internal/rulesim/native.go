package rulesim

import (
	"strconv"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/convertnhcb"
)

// native passes on the samples of a scrape. Like a Prometheus with this setting, it converts classic histograms to
// native histograms with custom buckets. It treats each family with buckets as a histogram.
func native(scrape func(Emit), float Emit, convert func(labels.Labels, *histogram.Histogram, *histogram.FloatHistogram)) {
	type sample struct {
		labels labels.Labels
		value  float64
		part   convertnhcb.SuffixType
		family string
	}
	var all []sample
	families := map[string]bool{}
	scrape(func(l labels.Labels, v float64) {
		part, family := convertnhcb.GetHistogramMetricBaseName(l.Get(model.MetricNameLabel))
		all = append(all, sample{l, v, part, family})
		if part == convertnhcb.SuffixBucket {
			families[family] = true
		}
	})
	type converted struct {
		labels labels.Labels
		temp   convertnhcb.TempHistogram
	}
	histograms := map[uint64]*converted{}
	for _, s := range all {
		if !families[s.family] || s.part == convertnhcb.SuffixNone {
			float(s.labels, s.value)
			continue
		}
		of := convertnhcb.GetHistogramMetricBase(s.labels, s.family)
		h := histograms[of.Hash()]
		if h == nil {
			h = &converted{of, convertnhcb.NewTempHistogram()}
			histograms[of.Hash()] = h
		}
		switch s.part { // errors show at the conversion
		case convertnhcb.SuffixBucket:
			le, _ := strconv.ParseFloat(s.labels.Get(labels.BucketLabel), 64)
			_ = h.temp.SetBucketCount(le, s.value)
		case convertnhcb.SuffixNone:
		case convertnhcb.SuffixCount:
			_ = h.temp.SetCount(s.value)
		case convertnhcb.SuffixSum:
			_ = h.temp.SetSum(s.value)
		}
	}
	for _, h := range histograms {
		if ints, floats, err := h.temp.Convert(); err == nil {
			convert(h.labels, ints, floats)
		}
	}
}
