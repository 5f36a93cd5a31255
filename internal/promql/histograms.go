package promql

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// AnyHistograms returns a version of e that reads histograms of the vocabulary in both forms that Prometheus may store.
// A scraped histogram has one series for each bucket, the count and the sum. Prometheus may instead convert it to one
// native histogram with custom buckets (convert_classic_histograms_to_nhcb, Prometheus 3). If a histogram is stored in
// both forms, it is read once. The result needs at least Prometheus 2.40. VictoriaMetrics refuses it, because MetricsQL
// lacks some of its functions. e is not changed.
func AnyHistograms(e Expr) Expr { return histograms(clone(e)) }

// WithNative applies AnyHistograms to a query. It returns false if the query stays the same. It is for a server that
// may be VictoriaMetrics. VictoriaMetrics refuses the changed query, so use it only if the original query has no
// answer.
func WithNative(query string) (string, bool) {
	e, err := Parser.ParseExpr(query)
	if err != nil {
		return "", false
	}
	before := e.String()
	either := histograms(e).String()
	return either, either != before
}

func histograms(e Expr) Expr {
	switch n := e.(type) {
	case *parser.VectorSelector:
		return either(n, func(v *parser.VectorSelector) Expr { return v })
	case *parser.SubqueryExpr:
		n.Expr = histograms(n.Expr)
	case *parser.ParenExpr:
		n.Expr = histograms(n.Expr)
	case *parser.UnaryExpr:
		n.Expr = histograms(n.Expr)
	case *parser.AggregateExpr:
		n.Expr = histograms(n.Expr)
		if n.Param != nil {
			n.Param = histograms(n.Param)
		}
	case *parser.BinaryExpr:
		n.LHS, n.RHS = histograms(n.LHS), histograms(n.RHS)
	case *parser.Call:
		if m, ok := overTime(n); ok {
			return either(m.VectorSelector.(*parser.VectorSelector), func(v *parser.VectorSelector) Expr {
				return Over(n.Func.Name, v, m.Range)
			})
		}
		for i, arg := range n.Args {
			n.Args[i] = histograms(arg)
		}
	}
	return e
}

// overTime returns the range that a function reads, if the range is the function's only argument.
func overTime(c *parser.Call) (*parser.MatrixSelector, bool) {
	if len(c.Args) != 1 {
		return nil, false
	}
	m, ok := c.Args[0].(*parser.MatrixSelector)
	return m, ok
}

// either returns an expression that prefers native histograms. It applies a function to a selector of classic series,
// and to the equivalent for native histograms. The native result comes first, because after a change to native
// histograms, a long window still contains classic series.
func either(s *parser.VectorSelector, apply func(*parser.VectorSelector) Expr) Expr {
	classic := apply(s)
	base, part := histogramPart(s.Name)
	if all, ok := counted(s); ok {
		return choice(Call("histogram_count", apply(renamed(all, base))), classic)
	}
	native := apply(renamed(s, base))
	switch part {
	case "_bucket": // histogram_quantile reads both kinds, but not if one series mixes them
		return choice(native, Unless(classic, native, Ignoring("le")))
	case "_sum":
		return choice(Call("histogram_sum", native), classic)
	case "_count":
		return choice(Call("histogram_count", native), classic)
	}
	return classic
}

// choice prefers the native result to the classic result. It always adds parentheses, because the chart recognises a
// choice by them when it writes rules for VictoriaMetrics.
func choice(native, classic Expr) Expr { return &parser.ParenExpr{Expr: Or(native, classic)} }

// histogramPart splits the name of a histogram's series. For all other series, part is empty.
func histogramPart(name string) (base, part string) {
	for _, part := range []string{"_bucket", "_count", "_sum"} {
		if base, ok := strings.CutSuffix(name, part); ok {
			if f := metrics.Lookup(base); f != nil && f.Kind == metrics.Histogram {
				return base, part
			}
		}
	}
	return name, ""
}

// counted returns the selector of a histogram's count, if a selector reads this count from the bucket without an upper
// bound.
func counted(s *parser.VectorSelector) (*parser.VectorSelector, bool) {
	i := slices.IndexFunc(s.LabelMatchers, func(m *Matcher) bool { return m.String() == `le="+Inf"` })
	if i < 0 {
		return nil, false
	}
	copied := *s
	copied.LabelMatchers = slices.Delete(slices.Clone(s.LabelMatchers), i, i+1)
	return &copied, true
}

// renamed returns the same selector for another series.
func renamed(s *parser.VectorSelector, name string) *parser.VectorSelector {
	copied := *s
	copied.Name = name
	copied.LabelMatchers = slices.DeleteFunc(slices.Clone(s.LabelMatchers), func(m *Matcher) bool { return m.Name == model.MetricNameLabel })
	copied.LabelMatchers = append(copied.LabelMatchers, Eq(model.MetricNameLabel, name))
	return &copied
}
