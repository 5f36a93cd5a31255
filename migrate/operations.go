package migrate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Functions over a range keep a factor, or do not depend on it.
var (
	linear = []string{
		"rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "avg_over_time", "sum_over_time",
		"min_over_time",
		"max_over_time", "quantile_over_time", "stddev_over_time", "last_over_time", "first_over_time", "mad_over_time",
	}
	blind = []string{"changes", "resets", "count_over_time", "present_over_time", "absent_over_time"}
)

func (r *rewriter) call(c *parser.Call) (parser.Expr, shape, error) {
	i := slices.IndexFunc(c.Args, func(e parser.Expr) bool { _, ok := e.(*parser.MatrixSelector); return ok })
	if i >= 0 {
		return r.over(c, i)
	}
	copied := *c
	copied.Args = slices.Clone(c.Args)
	var s shape
	for i, arg := range c.Args {
		if _, isText := arg.(*parser.StringLiteral); isText {
			continue
		}
		inner, of, err := r.expr(arg)
		if err != nil {
			return nil, shape{}, err
		}
		copied.Args[i], s = inner, s.with(of)
	}
	switch c.Func.Name {
	case "label_replace", "label_join":
		return r.relabel(&copied, s)
	case "histogram_quantile":
		unit := s.le
		s.le = metrics.Scale{}
		return back(&copied, unit), s, nil
	case "absent", "scalar":
		s.extra = map[string]bool{}
	}
	return &copied, s, nil
}

// relabel rewrites the labels that label_replace and label_join read.
func (r *rewriter) relabel(c *parser.Call, s shape) (parser.Expr, shape, error) {
	from := c.Args[3:]
	if c.Func.Name == "label_replace" {
		from = c.Args[3:4]
	}
	for i := range from {
		name := from[i].(*parser.StringLiteral).Val
		if len(s.of) > 0 && name == model.MetricNameLabel {
			return nil, shape{}, errors.New(c.Func.Name + " reads a label from the names of metrics")
		}
		to, err := s.label(name, r.Options)
		if err != nil {
			return nil, shape{}, err
		}
		from[i] = promql.Str(to)
	}
	s = s.with(shape{defined: map[string]bool{c.Args[1].(*parser.StringLiteral).Val: true}})
	return c, s, nil
}

// over rewrites a function of a range, such as rate.
func (r *rewriter) over(c *parser.Call, arg int) (parser.Expr, shape, error) {
	matrix := *c.Args[arg].(*parser.MatrixSelector)
	s, err := r.selector(matrix.VectorSelector.(*parser.VectorSelector))
	if err != nil {
		return nil, shape{}, err
	}
	if s == nil {
		return c, shape{foreign: true}, nil
	}
	copied := *c
	if s.of.rate {
		if c.Func.Name != "avg_over_time" {
			return nil, shape{}, fmt.Errorf("%s needs the rate at each moment, but %s is a counter, which gives only the mean over a range",
				c.Func.Name, s.of.to.Name)
		}
		copied.Func = parser.MustGetFunction("rate")
	}
	matrix.VectorSelector = s.VectorSelector
	copied.Args = slices.Clone(c.Args)
	copied.Args[arg] = &matrix
	scaled := s.of.unit != (metrics.Scale{}) && s.of.part != "_bucket" && s.of.part != "_count"
	switch {
	case slices.Contains(blind, c.Func.Name):
		unscaled := *s.of
		unscaled.unit = metrics.Scale{}
		s.of = &unscaled
	case scaled && !slices.Contains(linear, c.Func.Name):
		return nil, shape{}, fmt.Errorf("the unit inside %s cannot be converted", c.Func.Name)
	}
	out, of := s.finish(&copied)
	return out, of, nil
}

func (r *rewriter) aggregate(a *parser.AggregateExpr) (parser.Expr, shape, error) {
	inner, s, err := r.expr(a.Expr)
	if err != nil {
		return nil, shape{}, err
	}
	copied := *a
	copied.Expr = inner
	if len(s.of) == 0 {
		return &copied, s, nil
	}
	if a.Without {
		copied.Grouping = nil
		for _, l := range a.Grouping {
			if to, err := s.label(l, r.Options); err == nil && to != "" {
				copied.Grouping = append(copied.Grouping, to)
			}
		}
		return &copied, s, nil
	}
	if copied.Grouping, err = s.labelsOf(a.Grouping, r.Options); err != nil {
		return nil, shape{}, err
	}
	r.grouped(a, s)
	if s.le != (metrics.Scale{}) && a.Op != parser.SUM {
		return nil, shape{}, errors.New("the buckets have another unit")
	}
	if a.Op != parser.TOPK && a.Op != parser.BOTTOMK {
		s.extra = map[string]bool{}
	}
	if a.Op == parser.COUNT_VALUES {
		s = s.with(shape{defined: map[string]bool{a.Param.(*parser.StringLiteral).Val: true}})
	}
	return &copied, s, nil
}

// grouped adds a note for each change in an aggregation's groups, or in the series that a group contains.
func (r *rewriter) grouped(a *parser.AggregateExpr, s shape) {
	for _, e := range s.of {
		for _, l := range a.Grouping {
			if to, ok := e.label(l); ok {
				if several := to.several(l); several != "" {
					r.notes = append(r.notes, several)
				}
			}
		}
		if len(e.repeats) > 0 && slices.Contains([]parser.ItemType{parser.SUM, parser.COUNT, parser.AVG}, a.Op) {
			r.notes = append(r.notes, fmt.Sprintf("series that differ only in %s repeat one number, which counts once here",
				strings.Join(e.repeats, ", ")))
		}
	}
}

func (r *rewriter) binary(b *parser.BinaryExpr) (parser.Expr, shape, error) {
	lhs, left, err := r.expr(b.LHS)
	if err != nil {
		return nil, shape{}, err
	}
	rhs, right, err := r.expr(b.RHS)
	if err != nil {
		return nil, shape{}, err
	}
	s := left.with(right)
	if number, ok := rhs.(*parser.NumberLiteral); ok {
		if same, ok := undone(lhs, b.Op, number.Val); ok {
			return same, s, nil
		}
	}
	copied := *b
	copied.LHS, copied.RHS = lhs, rhs
	if _, was := b.LHS.(*parser.BinaryExpr); !was {
		copied.LHS = operand(lhs)
	}
	if _, was := b.RHS.(*parser.BinaryExpr); !was {
		copied.RHS = operand(rhs)
	}
	if len(s.of) == 0 || b.VectorMatching == nil {
		return &copied, s, nil
	}
	m := *b.VectorMatching
	if m.MatchingLabels, err = s.labelsOf(m.MatchingLabels, r.Options); err != nil {
		return nil, shape{}, err
	}
	if m.Include, err = s.labelsOf(m.Include, r.Options); err != nil {
		return nil, shape{}, err
	}
	if !m.On { // labels that the old series lacked must not prevent a match
		for _, l := range slices.Sorted(maps.Keys(s.extra)) {
			if !slices.Contains(m.MatchingLabels, l) && (b.Op != parser.LOR || !sameExtra(left, right, l)) {
				m.MatchingLabels = append(m.MatchingLabels, l)
			}
		}
	}
	copied.VectorMatching = &m
	if !b.Op.IsSetOperator() && m.Card == parser.CardOneToOne {
		s.extra = map[string]bool{} // the result has only the matched labels
	}
	return &copied, s, nil
}

// sameExtra reports whether both sides have the same single value of a label.
func sameExtra(left, right shape, label string) bool {
	values := map[string]bool{}
	for _, e := range slices.Concat(left.of, right.of) {
		value := ""
		for _, m := range e.only {
			if m.Name == label {
				value = m.Value
			}
		}
		values[value] = true
	}
	return len(values) == 1
}

// undone removes a conversion of units from an expression, if the operator op with the number by cancels the
// conversion.
func undone(e parser.Expr, op parser.ItemType, by float64) (parser.Expr, bool) {
	if p, ok := e.(*parser.ParenExpr); ok {
		e = p.Expr
	}
	b, ok := e.(*parser.BinaryExpr)
	if !ok || !(op == parser.MUL && b.Op == parser.DIV || op == parser.DIV && b.Op == parser.MUL) {
		return nil, false
	}
	n, ok := b.RHS.(*parser.NumberLiteral)
	return b.LHS, ok && n.Val == by
}
