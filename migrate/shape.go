package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// A shape describes the series of an expression.
type shape struct {
	of      []*equal        // names of the old series
	foreign bool            // the expression also contains series of other software
	defined map[string]bool // labels that functions have written
	extra   map[string]bool // labels with one value that the old series lacked
	le      metrics.Scale   // unit of the buckets
}

func (s shape) with(other shape) shape {
	out := shape{
		of: append(slices.Clone(s.of), other.of...), foreign: s.foreign || other.foreign, defined: maps.Clone(s.defined),
		extra: maps.Clone(s.extra), le: s.le,
	}
	if out.le == (metrics.Scale{}) {
		out.le = other.le
	}
	for _, both := range []struct{ to, from *map[string]bool }{{&out.defined, &other.defined}, {&out.extra, &other.extra}} {
		if *both.to == nil {
			*both.to = map[string]bool{}
		}
		maps.Copy(*both.to, *both.from)
	}
	return out
}

// label returns the new name of a label of the old series. The name is empty if the new series lack the label.
func (s shape) label(name string, o Options) (string, error) {
	if s.defined[name] || name == "le" || len(s.of) == 0 {
		return name, nil
	}
	var names []string
	for _, e := range s.of {
		to, ok := e.label(name)
		if mine, said := o.Labels[name]; !ok && said {
			to, ok = mapped{name: mine}, true
		}
		if !ok && slices.Contains([]string{"job"}, name) {
			to, ok = mapped{name: name}, true
		}
		if !ok {
			return "", fmt.Errorf("label %s has no equivalent on %s: rename it with --label=%s=NAME, or drop it with --label=%s=", name,
				e.to.Name, name, name)
		}
		names = append(names, to.name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > 1 || s.foreign && names[0] != name {
		return "", fmt.Errorf("label %s means several things (%s) in one expression", name, strings.Join(names, ", "))
	}
	return names[0], nil
}

// conditions rewrites the matchers on a series that was recorded from old series.
func (s shape) conditions(v *parser.VectorSelector, o Options) (*parser.VectorSelector, error) {
	copied := *v
	copied.LabelMatchers = nil
	for _, m := range v.LabelMatchers {
		name, err := s.label(m.Name, o)
		if m.Name == model.MetricNameLabel {
			name, err = m.Name, nil
		}
		if err != nil {
			return nil, err
		}
		if name != "" {
			copied.LabelMatchers = append(copied.LabelMatchers, labels.MustNewMatcher(m.Type, name, m.Value))
		}
	}
	return &copied, nil
}

func (s shape) labelsOf(names []string, o Options) (out []string, err error) {
	for _, n := range names {
		to, err := s.label(n, o)
		if err != nil {
			return nil, err
		}
		if to != "" && !slices.Contains(out, to) {
			out = append(out, to)
		}
	}
	return out, nil
}
