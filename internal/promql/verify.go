package promql

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// ScrapeLabels are labels that Prometheus may add to any series.
var ScrapeLabels = []string{metrics.LabelCluster, "job", "instance", "node"}

// Lookup finds the family that a series name belongs to: an exported one, a part of a histogram, a
// recorded series, one of its windows, or one that others produce. nil when the vocabulary has no such name.
func Lookup(name string) *metrics.Family {
	if f := metrics.Lookup(name); f != nil && f.Kind != metrics.Histogram {
		return f
	}
	for _, part := range []string{"_bucket", "_count", "_sum"} {
		if base, ok := strings.CutSuffix(name, part); ok {
			if f := metrics.Lookup(base); f != nil && f.Kind == metrics.Histogram {
				return f
			}
		}
	}
	for _, f := range metrics.Recorded() {
		if f.Name == name {
			return f
		}
		if window, ok := strings.CutPrefix(name, f.Name); ok {
			if _, err := model.ParseDuration(window); err == nil {
				return f
			}
		}
	}
	if i := slices.IndexFunc(metrics.Foreign(), func(f *metrics.Family) bool { return f.Name == name }); i >= 0 {
		return metrics.Foreign()[i]
	}
	return nil
}

// Verify parses a query and checks it against the vocabulary: every selector names a known series, and
// every matcher a label that the series has.
func Verify(query string) error {
	e, err := Parser.ParseExpr(query)
	if err != nil {
		return fmt.Errorf("%w in %s", err, query)
	}
	var errs []error
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		f := Lookup(v.Name)
		if f == nil {
			errs = append(errs, fmt.Errorf("%s: no such metric in the vocabulary", v))
			return nil
		}
		for _, m := range v.LabelMatchers {
			if m.Name != labels.MetricName && !f.HasLabel(m.Name) && !slices.Contains(ScrapeLabels, m.Name) {
				errs = append(errs, fmt.Errorf("%s: %s has no label %q", v, f.Name, m.Name))
			}
		}
		return nil
	})
	return errors.Join(errs...)
}
