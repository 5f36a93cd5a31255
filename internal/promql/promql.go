// Package promql builds PromQL from the identifiers of the vocabulary. Expressions are syntax trees of the Prometheus
// parser, which also prints them, so no string can misspell a metric, a label or a parenthesis. The package adds the
// parentheses that precedence needs, because the parser's printer adds none.
package promql

import (
	"cmp"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Expr is a PromQL expression.
type Expr = parser.Expr

// Matcher is a condition on a label.
type Matcher = labels.Matcher

// Eq matches a label with exactly this value.
func Eq(label, value string) *Matcher {
	return labels.MustNewMatcher(labels.MatchEqual, label, value)
}

// Ne matches a label with any other value.
func Ne(label, value string) *Matcher {
	return labels.MustNewMatcher(labels.MatchNotEqual, label, value)
}

// Re matches a label with an anchored regular expression.
func Re(label, expr string) *Matcher {
	return labels.MustNewMatcher(labels.MatchRegexp, label, expr)
}

// Vector selects series of a family that is not a histogram. Gateways count the same requests as engines. For families that engines report,
// Vector and the next three functions therefore leave out gateways, unless m has a matcher for the role.
func Vector(f *metrics.Family, m ...*Matcher) Expr { return vector(f.Name, ofEngines(f, m)) }

// CountOf selects the number of observations of a histogram. If the exporter also exports this number as a plain
// counter, CountOf selects the counter.
func CountOf(f *metrics.Family, m ...*Matcher) Expr {
	if stage, _ := f.Stage(); stage != "" {
		return Vector(metrics.Stages, append(slices.Clone(m), Eq(metrics.LabelStage, stage))...)
	}
	return vector(f.Name+"_count", ofEngines(f, m))
}

// BucketsOf selects the buckets of a histogram.
func BucketsOf(f *metrics.Family, m ...*Matcher) Expr {
	return vector(f.Name+"_bucket", ofEngines(f, m))
}

// SumOf selects the sum of the observations of a histogram. If the exporter also exports this sum as a plain counter,
// SumOf selects the counter.
func SumOf(f *metrics.Family, m ...*Matcher) Expr {
	if stage, sum := f.Stage(); stage != "" {
		return Vector(sum, append(slices.Clone(m), Eq(metrics.LabelStage, stage))...)
	}
	return vector(f.Name+"_sum", ofEngines(f, m))
}

func ofEngines(f *metrics.Family, m []*Matcher) []*Matcher {
	named := slices.ContainsFunc(m, func(m *Matcher) bool { return m.Name == metrics.LabelRole })
	if !f.OfEngines() || !f.HasLabel(metrics.LabelRole) || named {
		return m
	}
	return append(slices.Clone(m), Ne(metrics.LabelRole, metrics.GatewayRole))
}

// NotRe matches a label that an anchored regular expression does not match.
func NotRe(label, expr string) *Matcher {
	return labels.MustNewMatcher(labels.MatchNotRegexp, label, expr)
}

// Either matches a label with expr. If expr has no special characters, Either matches exactly this value, otherwise it
// uses expr as an anchored regular expression.
func Either(label, expr string) *Matcher {
	if regexp.QuoteMeta(expr) == expr {
		return Eq(label, expr)
	}
	return Re(label, expr)
}

func vector(name string, m []*Matcher) Expr {
	m = append(slices.Clip(m), labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, name))
	return &parser.VectorSelector{Name: name, LabelMatchers: m}
}

// Offset makes a selector read the values of an earlier time.
func Offset(e Expr, d time.Duration) Expr {
	v := *e.(*parser.VectorSelector)
	v.OriginalOffset = d
	return &v
}

// Call applies a function to expressions.
func Call(function string, args ...Expr) Expr {
	return &parser.Call{Func: parser.MustGetFunction(function), Args: args}
}

// Over applies a function over time, such as rate or max_over_time, to a selector.
func Over(function string, e Expr, window time.Duration) Expr {
	return Call(function, &parser.MatrixSelector{VectorSelector: e, Range: window})
}

// Sampled applies a function over time to the values of any expression in a window, step by step.
func Sampled(function string, e Expr, window, step time.Duration) Expr {
	return Call(function, &parser.SubqueryExpr{Expr: &parser.ParenExpr{Expr: e}, Range: window, Step: step})
}

// QuantileOver returns a quantile of the values of a selector in a window.
func QuantileOver(q float64, e Expr, window time.Duration) Expr {
	return Call("quantile_over_time", Num(q), &parser.MatrixSelector{VectorSelector: e, Range: window})
}

// Rate returns the per-second increase of a counter.
func Rate(e Expr, window time.Duration) Expr { return Over("rate", e, window) }

// Increase returns the increase of a counter in a window.
func Increase(e Expr, window time.Duration) Expr { return Over("increase", e, window) }

// Sum adds up the values of each group of series. Like all aggregations, it keeps only the labels in by.
func Sum(by []string, e Expr) Expr { return aggregate(parser.SUM, by, e) }

// Max returns the largest value of each group.
func Max(by []string, e Expr) Expr { return aggregate(parser.MAX, by, e) }

// Min returns the smallest value of each group.
func Min(by []string, e Expr) Expr { return aggregate(parser.MIN, by, e) }

// Avg returns the mean of each group.
func Avg(by []string, e Expr) Expr { return aggregate(parser.AVG, by, e) }

// Stddev returns the standard deviation of each group.
func Stddev(by []string, e Expr) Expr { return aggregate(parser.STDDEV, by, e) }

// CountBy counts the series of each group.
func CountBy(by []string, e Expr) Expr { return aggregate(parser.COUNT, by, e) }

// TopK keeps the k series with the largest values of each group.
func TopK(k int, by []string, e Expr) Expr { return limited(parser.TOPK, k, by, e) }

// BottomK keeps the k series with the smallest values of each group.
func BottomK(k int, by []string, e Expr) Expr { return limited(parser.BOTTOMK, k, by, e) }

// CountValues counts the series that have the same value, and writes this value into a label.
func CountValues(label string, by []string, e Expr) Expr {
	a := aggregate(parser.COUNT_VALUES, by, e).(*parser.AggregateExpr)
	a.Param = Str(label)
	return a
}

// WithValue writes the value of each series into a label, and makes the value 1.
func WithValue(label string, e Expr) Expr {
	return &parser.AggregateExpr{Op: parser.COUNT_VALUES, Param: Str(label), Expr: e, Without: true}
}

// Drop removes labels. Series that differ only in these labels are not allowed.
func Drop(labels []string, e Expr) Expr {
	return &parser.AggregateExpr{Op: parser.MAX, Expr: e, Grouping: labels, Without: true}
}

// Quantile returns a quantile of the values of each group of series.
func Quantile(q float64, by []string, e Expr) Expr {
	a := aggregate(parser.QUANTILE, by, e).(*parser.AggregateExpr)
	a.Param = Num(q)
	return a
}

func limited(op parser.ItemType, k int, by []string, e Expr) Expr {
	a := aggregate(op, by, e).(*parser.AggregateExpr)
	a.Param = Num(float64(k))
	return a
}

func aggregate(op parser.ItemType, by []string, e Expr) Expr {
	return &parser.AggregateExpr{Op: op, Expr: e, Grouping: by}
}

// Num returns a number.
func Num(v float64) Expr { return &parser.NumberLiteral{Val: v} }

// Str returns a string argument.
func Str(s string) Expr { return &parser.StringLiteral{Val: s} }

// Matching sets how the series on both sides of a binary operator are matched.
type Matching struct {
	labels, include []string
	ignoring        bool
	card            parser.VectorMatchCardinality
}

// On matches pairs of series by these labels.
func On(labels ...string) *Matching { return &Matching{labels: labels, card: parser.CardOneToOne} }

// Ignoring matches pairs of series by all labels except these.
func Ignoring(labels ...string) *Matching {
	return &Matching{labels: labels, ignoring: true, card: parser.CardOneToOne}
}

// ManyToOne lets many series on the left match one series on the right, and copies the included labels from the right.
func (m Matching) ManyToOne(include ...string) *Matching {
	m.card, m.include = parser.CardManyToOne, include
	return &m
}

// OneToMany lets many series on the right match one series on the left.
func (m Matching) OneToMany(include ...string) *Matching {
	m.card, m.include = parser.CardOneToMany, include
	return &m
}

// Add adds two expressions. Like all binary operators, it matches on all labels if m is empty.
func Add(a, b Expr, m ...*Matching) Expr { return binary(parser.ADD, a, b, m) }

// Sub subtracts b from a.
func Sub(a, b Expr, m ...*Matching) Expr { return binary(parser.SUB, a, b, m) }

// Mul multiplies two expressions.
func Mul(a, b Expr, m ...*Matching) Expr { return binary(parser.MUL, a, b, m) }

// Div divides a by b.
func Div(a, b Expr, m ...*Matching) Expr { return binary(parser.DIV, a, b, m) }

// Gt keeps the series of a that are greater than b. All comparisons return series of the left side.
func Gt(a, b Expr, m ...*Matching) Expr { return binary(parser.GTR, a, b, m) }

// Ge keeps the series of a that are at least b.
func Ge(a, b Expr, m ...*Matching) Expr { return binary(parser.GTE, a, b, m) }

// Lt keeps the series of a that are less than b.
func Lt(a, b Expr, m ...*Matching) Expr { return binary(parser.LSS, a, b, m) }

// Le keeps the series of a that are at most b.
func Le(a, b Expr, m ...*Matching) Expr { return binary(parser.LTE, a, b, m) }

// Equal keeps the series of a that are equal to b.
func Equal(a, b Expr, m ...*Matching) Expr { return binary(parser.EQLC, a, b, m) }

// And keeps series of a that have a partner in b. A nil m means that all labels must be equal.
func And(a, b Expr, m ...*Matching) Expr { return binary(parser.LAND, a, b, m) }

// Unless keeps series of a that have no partner in b.
func Unless(a, b Expr, m ...*Matching) Expr { return binary(parser.LUNLESS, a, b, m) }

// Or joins alternatives: a later alternative contributes only series whose labels do not occur in the earlier
// alternatives.
func Or(first Expr, more ...Expr) Expr {
	for _, e := range more {
		first = binary(parser.LOR, first, e, nil)
	}
	return first
}

// OrOn returns all series of a, and those series of b that match none of a's by the labels of m.
func OrOn(a, b Expr, m ...*Matching) Expr { return binary(parser.LOR, a, b, m) }

func binary(op parser.ItemType, a, b Expr, matching []*Matching) *parser.BinaryExpr {
	e := &parser.BinaryExpr{Op: op, LHS: operand(op, a, true), RHS: operand(op, b, false)}
	for _, m := range matching {
		card := m.card
		if op.IsSetOperator() {
			card = parser.CardManyToMany
		}
		e.VectorMatching = &parser.VectorMatching{Card: card, MatchingLabels: m.labels, On: !m.ignoring, Include: m.include}
	}
	return e
}

// operand puts parentheses around a binary operand if precedence needs them. They are not needed if the operand binds
// more tightly, or if operators of equal precedence follow each other from left to right. Within "or", the parentheses
// stay, because few readers know that "and" has precedence. In arithmetic, they stay around an operation that matches
// labels.
func operand(op parser.ItemType, e Expr, left bool) Expr {
	b, ok := e.(*parser.BinaryExpr)
	if !ok {
		return e
	}
	outer, inner := binding(op), binding(b.Op)
	switch {
	case outer == 1 && inner == 2, outer > comparing && b.VectorMatching != nil:
	case inner > outer, left && inner == outer && inner != comparing:
		return e
	}
	return &parser.ParenExpr{Expr: e}
}

// comparing is the precedence of comparison operators, as binding returns it.
const comparing = 3

// binding returns the precedence of an operator.
func binding(op parser.ItemType) int {
	switch op {
	case parser.LOR:
		return 1
	case parser.LAND, parser.LUNLESS:
		return 2
	case parser.ADD, parser.SUB:
		return 4
	case parser.MUL, parser.DIV:
		return 5
	}
	return comparing
}

// Parser parses PromQL without experimental features, because every supported server must understand the syntax.
var Parser = parser.NewParser(parser.Options{})

// Where returns e with additional matchers on each of its selectors. e is not changed.
func Where(e Expr, m ...*Matcher) Expr {
	copied := clone(e)
	parser.Inspect(copied, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			v.LabelMatchers = append(slices.Clone(m), v.LabelMatchers...)
		}
		return nil
	})
	return copied
}

func clone(e Expr) Expr {
	copied, err := Parser.ParseExpr(e.String())
	if err != nil {
		panic("promql: printed what it cannot parse: " + e.String())
	}
	return copied
}

// Rename returns e with other label names, for users whose Prometheus names labels differently. e is not changed.
func Rename(e Expr, names map[string]string) Expr {
	copied := clone(e)
	rename := func(labels []string) {
		for i, l := range labels {
			if to, ok := names[l]; ok {
				labels[i] = to
			}
		}
	}
	renameNames := func(literals ...Expr) {
		for _, e := range literals {
			literal := e.(*parser.StringLiteral)
			literal.Val = cmp.Or(names[literal.Val], literal.Val)
		}
	}
	parser.Inspect(copied, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.AggregateExpr:
			rename(n.Grouping)
			if n.Op == parser.COUNT_VALUES {
				renameNames(n.Param)
			}
		case *parser.Call:
			renameNames(labelNames(n)...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				rename(n.VectorMatching.MatchingLabels)
				rename(n.VectorMatching.Include)
			}
		case *parser.VectorSelector:
			for i, m := range n.LabelMatchers {
				if to, ok := names[m.Name]; ok {
					n.LabelMatchers[i] = labels.MustNewMatcher(m.Type, to, m.Value)
				}
			}
		}
		return nil
	})
	return copied
}

// labelNames returns those arguments of a function that are names of labels.
func labelNames(c *parser.Call) []Expr {
	switch c.Func.Name {
	case "label_replace":
		return []Expr{c.Args[1], c.Args[3]}
	case "label_join":
		return slices.Concat(c.Args[1:2], c.Args[3:])
	case "sort_by_label", "sort_by_label_desc":
		return c.Args[1:]
	}
	return nil
}
