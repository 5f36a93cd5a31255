// Package migrate rewrites dashboards and rules over the metrics of engines, dcgm-exporter and nvidia_gpu_exporter in
// the vocabulary. The collectors read those metrics with tables, and this package applies the tables in reverse.
//
//	expressions  one PromQL expression, and its series    rewrite.go, selector.go, operations.go, shape.go
//	tables       the name of each number                  equal.go, smi.go
//	files        dashboards and rules                     dashboard.go, rules.go
//
// An expression without an equivalent stays unchanged and is listed, with the reason.
package migrate

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Options has information that the tables do not contain.
type Options struct {
	// Labels maps labels that a scrape added to labels of the vocabulary. If a label maps to the empty string, conditions
	// on it are removed.
	Labels map[string]string
	// Window is the range of the rate with which a counter replaces an old number that was already a rate. Default: 5
	// minutes.
	Window time.Duration

	recorded map[string]shape // series that rules of the same file record
}

// An Expression is a rewritten expression.
type Expression struct {
	// Text is the expression in the vocabulary.
	Text string
	// Changed reports whether the text differs from the old expression.
	Changed bool
	// Notes name the values whose meaning has changed.
	Notes []string

	shape shape
}

// Rewrite writes an expression in the vocabulary. An error explains why the expression cannot be rewritten.
func Rewrite(text string, o Options) (Expression, error) { return o.rewrite(text, nil) }

// rewrite is like Rewrite, but its result also has the labels that a legend shows.
func (o Options) rewrite(text string, shown []string) (Expression, error) {
	plain, restore := withoutVariables(text)
	e, err := promql.Parser.ParseExpr(plain)
	if err != nil {
		return Expression{}, fmt.Errorf("not valid PromQL: %w", err)
	}
	r := rewriter{Options: o, wanted: map[string]bool{}}
	for _, l := range shown {
		r.wanted[l] = true
	}
	r.survey(e)
	out, s, err := r.expr(e)
	if err != nil {
		return Expression{}, err
	}
	if len(s.of) == 0 {
		return Expression{Text: text}, nil
	}
	slices.Sort(r.notes)
	return Expression{Text: restore(out.String()), Changed: true, Notes: slices.Compact(r.notes), shape: s}, nil
}

// legend renames the labels in the legend of an expression.
func (e Expression) legend(text string, o Options) string {
	return shownLabel.ReplaceAllStringFunc(text, func(placeholder string) string {
		name := shownLabel.FindStringSubmatch(placeholder)[1]
		to, err := e.shape.label(name, o)
		if err != nil || to == "" {
			return placeholder
		}
		return "{{" + to + "}}"
	})
}

var shownLabel = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// labelsOf lists the labels that a legend shows.
func labelsOf(legend string) (names []string) {
	for _, m := range shownLabel.FindAllStringSubmatch(legend, -1) {
		names = append(names, m[1])
	}
	return names
}

type rewriter struct {
	Options
	wanted map[string]bool // labels that clauses and the legend name
	hasOf  map[*metrics.Family]bool
	notes  []string
}

// survey collects the labels that an expression's clauses name, and the info metrics that the expression already reads.
func (r *rewriter) survey(e parser.Expr) {
	r.hasOf = map[*metrics.Family]bool{}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.AggregateExpr:
			for _, l := range n.Grouping {
				r.wanted[l] = !n.Without
			}
		case *parser.BinaryExpr:
			if m := n.VectorMatching; m != nil && m.On {
				for _, l := range append(slices.Clone(m.MatchingLabels), m.Include...) {
					r.wanted[l] = true
				}
			}
		case *parser.VectorSelector:
			for _, q := range table()[n.Name] {
				r.hasOf[q.to] = r.hasOf[q.to] || q.to.Kind == metrics.Info
			}
		}
		return nil
	})
}

// expr rewrites a node of the syntax tree, with all nodes below it.
func (r *rewriter) expr(e parser.Expr) (parser.Expr, shape, error) {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return r.vector(e)
	case *parser.ParenExpr:
		inner, s, err := r.expr(e.Expr)
		return paren(inner), s, err
	case *parser.UnaryExpr:
		inner, s, err := r.expr(e.Expr)
		return &parser.UnaryExpr{Op: e.Op, Expr: operand(inner)}, s, err
	case *parser.SubqueryExpr:
		inner, s, err := r.expr(e.Expr)
		copied := *e
		copied.Expr = operand(inner)
		return &copied, s, err
	case *parser.AggregateExpr:
		return r.aggregate(e)
	case *parser.BinaryExpr:
		return r.binary(e)
	case *parser.Call:
		return r.call(e)
	case *parser.MatrixSelector:
		return nil, shape{}, errors.New("a range without a function over it")
	}
	return e, shape{}, nil // numbers and strings
}

func paren(e parser.Expr) parser.Expr {
	switch e.(type) {
	case *parser.ParenExpr, *parser.VectorSelector, *parser.Call, *parser.AggregateExpr:
		return e
	}
	return &parser.ParenExpr{Expr: e}
}

// operand puts an expression in parentheses if it is a binary operation.
func operand(e parser.Expr) parser.Expr {
	if _, ok := e.(*parser.BinaryExpr); ok {
		return &parser.ParenExpr{Expr: e}
	}
	return e
}
