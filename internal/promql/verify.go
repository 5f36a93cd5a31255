package promql

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// ScrapeLabels lists labels that Prometheus may add to any series.
var ScrapeLabels = []string{metrics.LabelCluster, "job", "instance", "node"}

// Lookup returns the family to which a series name belongs. The name may be that of an exported family, a part of a
// histogram, a recorded series, one window of a recorded series, or a series of another program. It returns nil if the
// vocabulary lacks the name.
func Lookup(name string) *metrics.Family {
	base, _ := histogramPart(name)
	if f := metrics.Lookup(base); f != nil {
		return f
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

// Verify parses a query and checks it against the vocabulary. Every selector must name a known series, and every
// matcher a label of this series. Every label of a grouping or matching must exist on the series inside. A misspelt
// label would silently merge all series, or match none.
func Verify(query string) error {
	e, err := Parser.ParseExpr(query)
	if err != nil {
		return fmt.Errorf("%w in %s", err, query)
	}
	var c checker
	c.labels(e)
	c.parts(e)
	return errors.Join(c.errs...)
}

// parts checks that an expression reads each histogram in both forms, if it reads the native form.
func (c *checker) parts(e Expr) {
	named := map[string]bool{}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			named[v.Name] = true
		}
		return nil
	})
	for name := range named {
		if f := metrics.Lookup(name); f != nil && f.Kind == metrics.Histogram && !named[name+"_count"] && !named[name+"_sum"] &&
			!named[name+"_bucket"] {
			c.errorf("%s: no such metric in the vocabulary without _count, _sum or _bucket, as most servers store a histogram", name)
		}
	}
}

// Labels returns the labels that the results of an expression may have.
func Labels(e Expr) []string { return new(checker).labels(e) }

type checker struct{ errs []error }

func (c *checker) errorf(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// labels checks an expression, and returns the labels that its results may have. For scalars, it returns nil.
func (c *checker) labels(e Expr) []string {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return c.selector(e)
	case *parser.MatrixSelector:
		return c.labels(e.VectorSelector)
	case *parser.SubqueryExpr:
		return c.labels(e.Expr)
	case *parser.ParenExpr:
		return c.labels(e.Expr)
	case *parser.UnaryExpr:
		return c.labels(e.Expr)
	case *parser.AggregateExpr:
		return c.grouped(e)
	case *parser.Call:
		var all []string
		for _, arg := range e.Args {
			all = append(all, c.labels(arg)...)
		}
		if e.Func.Name == "label_replace" || e.Func.Name == "label_join" {
			all = append(all, e.Args[1].(*parser.StringLiteral).Val)
		}
		return all
	case *parser.BinaryExpr:
		left, right := c.labels(e.LHS), c.labels(e.RHS)
		if m := e.VectorMatching; m != nil && m.On {
			for _, l := range m.MatchingLabels {
				if !slices.Contains(left, l) || !slices.Contains(right, l) {
					c.errorf("%s matches on %q, which one side never has", e, l)
				}
			}
		}
		return joined(e, left, right)
	}
	return nil
}

// grouped checks an aggregation, and returns the labels that the aggregation keeps.
func (c *checker) grouped(e *parser.AggregateExpr) []string {
	below := c.labels(e.Expr)
	for _, l := range e.Grouping {
		if !slices.Contains(below, l) {
			c.errorf("%s groups by %q, which nothing below has", e, l)
		}
	}
	switch {
	case e.Op == parser.COUNT_VALUES && e.Without:
		return append(slices.Clone(below), e.Param.(*parser.StringLiteral).Val)
	case e.Without, e.Op == parser.TOPK, e.Op == parser.BOTTOMK:
		return below
	case e.Op == parser.COUNT_VALUES:
		return append(slices.Clone(e.Grouping), e.Param.(*parser.StringLiteral).Val)
	}
	return e.Grouping
}

// joined returns the labels of both sides that results of a binary operation keep.
func joined(e *parser.BinaryExpr, left, right []string) []string {
	switch m := e.VectorMatching; {
	case m == nil || e.Op == parser.LOR:
		return slices.Concat(left, right)
	case m.Card == parser.CardManyToOne:
		return slices.Concat(left, m.Include)
	case m.Card == parser.CardOneToMany:
		return slices.Concat(right, m.Include)
	case m.On && m.Card == parser.CardOneToOne:
		return m.MatchingLabels
	}
	return left
}

func (c *checker) selector(v *parser.VectorSelector) []string {
	f := Lookup(v.Name)
	if f == nil {
		c.errorf("%s: no such metric in the vocabulary", v)
		return nil
	}
	has := append(slices.Clone(f.Labels), metrics.LabelChosen)
	if !strings.Contains(v.Name, ":") { // recorded series have the labels that their rules keep
		has = append(has, ScrapeLabels...)
	}
	if strings.HasSuffix(v.Name, "_bucket") {
		has = append(has, "le")
	}
	for _, m := range v.LabelMatchers {
		if m.Name != model.MetricNameLabel && !slices.Contains(has, m.Name) {
			c.errorf("%s: %s has no label %q", v, f.Name, m.Name)
		}
	}
	return has
}
