package rulesim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Columns evaluates rules over series whose samples are known for every step beforehand. An expression is compiled once
// and then costs nanoseconds per step. A query would cost a tenth of a millisecond. Columns supports only the part of
// PromQL that backtests need, and refuses all other expressions. NaN means that a sample is absent. Rules see the
// records of earlier rules from the same step, and the records of later rules from the step before, as in groups that
// are evaluated in order.
type Columns struct {
	start  time.Time
	step   time.Duration
	steps  int
	series map[string][]*column   // by name
	bound  map[string][]*column   // by the text of the replaced expression
	at     map[parser.Expr]string // where rules contain this expression
	rules  []*columnRule
}

type column struct {
	labels labels.Labels
	values []float64
	place  int // position of its rule in the order; rules up to this position see the previous step
	every  int // number of steps between two evaluations
}

type columnRule struct {
	name   string
	labels labels.Labels
	expr   parser.Expr
	every  int
	reads  map[string]bool
	out    []output
	done   bool // the rule's column is up to date
}

// output is one series of a compiled expression. at is called with increasing steps, but some steps may be left out.
type output struct {
	labels labels.Labels
	at     func(step int) float64
}

// NewColumns returns columns for this number of steps.
func NewColumns(start time.Time, step time.Duration, steps int) *Columns {
	return &Columns{
		start: start, step: step, steps: steps, series: map[string][]*column{}, bound: map[string][]*column{},
		at: map[parser.Expr]string{},
	}
}

// Put adds or replaces a series. Rules that were recorded before the series was added read each sample one step later.
// Put keeps the slice, so the caller must not change it.
func (c *Columns) Put(name string, l labels.Labels, values []float64) {
	c.changed(name)
	put(c.series, name, &column{l, values, len(c.rules) - 1, 1})
}

// Bind sets the results of an aggregation in advance, so that later rules do not evaluate the aggregation.
func (c *Columns) Bind(expr parser.Expr, l labels.Labels, values []float64) {
	c.changed(expr.String())
	put(c.bound, expr.String(), &column{l, values, -1, 1})
}

func put(into map[string][]*column, name string, col *column) {
	if known := find(into[name], col.labels); known != nil {
		known.values = col.values
		return
	}
	into[name] = append(into[name], col)
}

// find returns the column with these labels, or nil.
func find(all []*column, l labels.Labels) *column {
	for _, col := range all {
		if labels.Equal(col.labels, l) {
			return col
		}
	}
	return nil
}

// Record adds a rule, and the number of steps between its evaluations.
func (c *Columns) Record(name string, more map[string]string, expr parser.Expr, every int) {
	c.rules = append(c.rules, &columnRule{name: name, labels: labels.FromMap(more), expr: expr, every: every, reads: c.reads(expr)})
}

// changed marks all rules that read a series, directly or indirectly. They are evaluated again.
func (c *Columns) changed(name string) {
	for _, r := range c.rules {
		if r.done && r.reads[name] {
			r.done = false
			c.changed(r.name)
		}
	}
}

// reads returns the names of the series, and the texts of the bound aggregations, that an expression reads.
func (c *Columns) reads(e parser.Expr) map[string]bool {
	names := map[string]bool{}
	var visit func(n parser.Node)
	visit = func(n parser.Node) {
		if e, ok := n.(*parser.AggregateExpr); ok {
			if text := e.String(); c.bound[text] != nil {
				names[text], c.at[e] = true, text
				return
			}
		}
		if v, ok := n.(*parser.VectorSelector); ok {
			names[v.Name] = true
		}
		for child := range parser.ChildrenIter(n) {
			visit(child)
		}
	}
	visit(e)
	return names
}

// Eval evaluates an expression at every step. Before that, it evaluates the rules that the expression reads and that
// may have changed. It returns the series of the expression.
func (c *Columns) Eval(expr parser.Expr) ([][]float64, error) {
	asked := &columnRule{expr: expr, every: 1, reads: c.reads(expr)}
	needed := c.needed(asked)
	for grown := true; grown; { // the records of a later rule must be known before an earlier rule is compiled
		grown = false
		for i, r := range c.rules {
			if !needed[i] {
				continue
			}
			out, err := c.compile(r.expr, i)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			for j := range out {
				out[j].labels = withLabels(out[j].labels, r.labels)
			}
			r.out = merged(out)
			for _, o := range r.out {
				if find(c.series[r.name], o.labels) == nil {
					c.series[r.name] = append(c.series[r.name], &column{o.labels, absent(c.steps), i, r.every})
					grown = true
				}
			}
		}
	}
	var err error
	if asked.out, err = c.compile(expr, len(c.rules)); err != nil {
		return nil, err
	}
	type written struct {
		output
		into  []float64
		every int
	}
	var all []written
	for i, r := range c.rules {
		r.done = r.done || needed[i]
		for _, o := range r.out {
			if needed[i] {
				all = append(all, written{o, find(c.series[r.name], o.labels).values, r.every})
			}
		}
	}
	result := make([][]float64, len(asked.out))
	for i, o := range asked.out {
		result[i] = absent(c.steps)
		all = append(all, written{o, result[i], 1})
	}
	for step := range c.steps {
		for _, w := range all {
			if step%w.every == 0 {
				w.into[step] = w.at(step)
			}
		}
	}
	return result, nil
}

// needed returns the rules that an expression reads, directly or indirectly, and that must be evaluated.
func (c *Columns) needed(asked *columnRule) map[int]bool {
	reached, needed := maps.Clone(asked.reads), map[int]bool{}
	for grown := true; grown; {
		grown = false
		for i, r := range c.rules {
			if reached[r.name] && !r.done && !needed[i] {
				needed[i], grown = true, true
				maps.Copy(reached, r.reads)
			}
		}
	}
	return needed
}

func absent(n int) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = math.NaN()
	}
	return all
}

func withLabels(l, more labels.Labels) labels.Labels {
	b := labels.NewBuilder(l)
	more.Range(func(m labels.Label) { b.Set(m.Name, m.Value) })
	return b.Labels()
}

// compile returns the series of an expression. place is the position of the rule that contains the expression.
func (c *Columns) compile(e parser.Expr, place int) ([]output, error) {
	if text, ok := c.at[e]; ok {
		return c.instant(c.bound[text], place, 0), nil
	}
	switch e := e.(type) {
	case *parser.ParenExpr:
		return c.compile(e.Expr, place)
	case *parser.NumberLiteral:
		return []output{{at: func(int) float64 { return e.Val }}}, nil
	case *parser.VectorSelector:
		return c.instant(c.selected(e), place, e.OriginalOffset), nil
	case *parser.Call:
		return c.call(e, place)
	case *parser.AggregateExpr:
		return c.aggregate(e, place)
	case *parser.BinaryExpr:
		return c.binary(e, place)
	}
	return nil, fmt.Errorf("columns cannot evaluate %s", e)
}

func (c *Columns) selected(v *parser.VectorSelector) (cols []*column) {
	for _, col := range c.series[v.Name] {
		if !slices.ContainsFunc(v.LabelMatchers, func(m *labels.Matcher) bool {
			return m.Name != model.MetricNameLabel && !m.Matches(col.labels.Get(m.Name))
		}) {
			cols = append(cols, col)
		}
	}
	return cols
}

// ago returns how many steps back a rule must look in a column. place is the rule's position, and offset is from its
// selector.
func (c *Columns) ago(col *column, place int, offset time.Duration) int {
	steps := int((offset + c.step - 1) / c.step)
	if col.place >= place {
		steps = max(steps, 1)
	}
	return steps
}

// instant returns the most recent sample of each series at each step.
func (c *Columns) instant(cols []*column, place int, offset time.Duration) (out []output) {
	for _, col := range cols {
		values, ago, every := col.values, c.ago(col, place, offset), col.every
		out = append(out, output{col.labels, func(step int) float64 {
			if last := step - ago; last >= 0 {
				return values[last-last%every]
			}
			return math.NaN()
		}})
	}
	return out
}

func (c *Columns) call(e *parser.Call, place int) ([]output, error) {
	switch name := e.Func.Name; {
	case name == "time":
		return []output{{at: func(step int) float64 { return float64(c.start.Add(time.Duration(step)*c.step).UnixMilli()) / 1000 }}}, nil
	case name == "clamp_min" || name == "clamp_max":
		bound, ok := e.Args[1].(*parser.NumberLiteral)
		of, err := c.compile(e.Args[0], place)
		if err != nil || !ok {
			return nil, fmt.Errorf("columns cannot evaluate %s: %w", e, err)
		}
		limit := map[string]func(x, y float64) float64{"clamp_min": math.Max, "clamp_max": math.Min}[name]
		return each(of, func(v float64) float64 { return limit(v, bound.Val) }), nil
	case strings.HasSuffix(name, "_over_time") && len(e.Args) == 1:
		m, ok := e.Args[0].(*parser.MatrixSelector)
		if !ok || folds[name] == nil {
			break
		}
		v := m.VectorSelector.(*parser.VectorSelector)
		var out []output
		for _, col := range c.selected(v) {
			w, fold := &window{values: col.values}, folds[name]
			from, to := c.ago(col, math.MaxInt, v.OriginalOffset+m.Range), c.ago(col, place, v.OriginalOffset)
			out = append(out, output{col.labels, func(step int) float64 {
				if w.move(step-from, step-to); w.n == 0 {
					return math.NaN()
				}
				return fold(w)
			}})
		}
		return out, nil
	}
	return nil, fmt.Errorf("columns cannot evaluate %s", e)
}

// each applies a function to all values that are not absent.
func each(of []output, f func(float64) float64) (out []output) {
	for _, o := range of {
		out = append(out, output{o.labels, func(step int) float64 {
			if v := o.at(step); !math.IsNaN(v) {
				return f(v)
			}
			return math.NaN()
		}})
	}
	return out
}

// window has the samples of a range. Both ends of the range move forward with the steps.
type window struct {
	values   []float64
	from, to int // first step in the window, and first step after the window
	n        int // number of present samples
	sum      float64
	falling  []int // steps whose values may still become the smallest
}

// move moves the window. It then covers the steps after the step after, up to the step last.
func (w *window) move(after, last int) {
	for ; w.to <= last; w.to++ {
		v := w.values[w.to]
		if math.IsNaN(v) {
			continue
		}
		w.n, w.sum = w.n+1, w.sum+v
		for n := len(w.falling); n > 0 && w.values[w.falling[n-1]] >= v; n = len(w.falling) {
			w.falling = w.falling[:n-1]
		}
		w.falling = append(w.falling, w.to)
	}
	for ; w.from <= min(after, w.to-1); w.from++ {
		if v := w.values[w.from]; !math.IsNaN(v) {
			w.n, w.sum = w.n-1, w.sum-v
		}
		if len(w.falling) > 0 && w.falling[0] == w.from {
			w.falling = w.falling[1:]
		}
	}
	if w.n == 0 {
		w.sum = 0 // prevents rounding errors from adding up
	}
}

// folds has PromQL's functions over time, such as max_over_time. A fold's window is never empty.
var folds = map[string]func(*window) float64{
	"sum_over_time":   func(w *window) float64 { return w.sum },
	"count_over_time": func(w *window) float64 { return float64(w.n) },
	"avg_over_time":   func(w *window) float64 { return w.sum / float64(w.n) },
	"min_over_time":   func(w *window) float64 { return w.values[w.falling[0]] },
	"last_over_time":  func(w *window) float64 { return w.values[w.falling[len(w.falling)-1]] }, // the latest value is never dropped
}

func (c *Columns) aggregate(e *parser.AggregateExpr, place int) ([]output, error) {
	of, err := c.compile(e.Expr, place)
	if err != nil || e.Without {
		return nil, fmt.Errorf("columns cannot evaluate %s: %w", e, err)
	}
	groups, order := grouped(of, func(l labels.Labels) labels.Labels { return labels.NewBuilder(l).Keep(e.Grouping...).Labels() })
	var out []output
	for _, key := range order {
		group := groups[key]
		switch {
		case e.Op == parser.TOPK && e.Param.String() == "1":
			for i, o := range group {
				out = append(out, output{o.labels, func(step int) float64 {
					v := o.at(step)
					for j, other := range group {
						if w := other.at(step); w > v || w == v && j < i {
							return math.NaN()
						}
					}
					return v
				}})
			}
		case e.Op == parser.MAX || e.Op == parser.MIN || e.Op == parser.SUM || e.Op == parser.COUNT:
			out = append(out, output{labels.NewBuilder(group[0].labels).Keep(e.Grouping...).Labels(), aggregated(e.Op, group)})
		default:
			return nil, fmt.Errorf("columns cannot evaluate %s", e)
		}
	}
	return out, nil
}

func aggregated(op parser.ItemType, group []output) func(int) float64 {
	return func(step int) float64 {
		all := math.NaN()
		for _, o := range group {
			v := o.at(step)
			if op == parser.COUNT && !math.IsNaN(v) {
				v = 1
			}
			switch {
			case math.IsNaN(v):
			case math.IsNaN(all), op == parser.MAX && v > all, op == parser.MIN && v < all:
				all = v
			case op == parser.SUM || op == parser.COUNT:
				all += v
			}
		}
		return all
	}
}

// grouped groups series by some of their labels.
func grouped(all []output, by func(labels.Labels) labels.Labels) (groups map[string][]output, order []string) {
	groups = map[string][]output{}
	for _, o := range all {
		key := by(o.labels).String()
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], o)
	}
	return groups, order
}

// operators are the operators between numbers. A comparison keeps the left number, or has no result.
var operators = map[parser.ItemType]func(a, b float64) float64{
	parser.ADD: func(a, b float64) float64 { return a + b }, parser.SUB: func(a, b float64) float64 { return a - b },
	parser.MUL: func(a, b float64) float64 { return a * b }, parser.DIV: func(a, b float64) float64 { return a / b },
	parser.GTR: func(a, b float64) float64 { return keep(a, a > b) }, parser.GTE: func(a, b float64) float64 { return keep(a, a >= b) },
	parser.LSS: func(a, b float64) float64 { return keep(a, a < b) }, parser.LTE: func(a, b float64) float64 { return keep(a, a <= b) },
}

func isNumber(e parser.Expr) bool {
	_, ok := e.(*parser.NumberLiteral)
	return ok
}

func keep(v float64, ok bool) float64 {
	if ok {
		return v
	}
	return math.NaN()
}

func (c *Columns) binary(e *parser.BinaryExpr, place int) ([]output, error) {
	a, err := c.compile(e.LHS, place)
	if err != nil {
		return nil, err
	}
	b, err := c.compile(e.RHS, place)
	if err != nil {
		return nil, err
	}
	scalarA, scalarB := e.LHS.Type() == parser.ValueTypeScalar, e.RHS.Type() == parser.ValueTypeScalar
	f := operators[e.Op]
	switch {
	case e.ReturnBool || f == nil && !e.Op.IsSetOperator() || scalarA && e.Op.IsComparisonOperator():
		return nil, fmt.Errorf("columns cannot evaluate %s", e)
	case isNumber(e.RHS):
		limit := b[0].at(0)
		return each(a, func(v float64) float64 { return f(v, limit) }), nil
	case isNumber(e.LHS):
		limit := a[0].at(0)
		return each(b, func(v float64) float64 { return f(limit, v) }), nil
	case scalarB:
		return joined(a, func(output) []output { return b }, f, func(l, _ labels.Labels) labels.Labels { return l }), nil
	case scalarA:
		return joined(b, func(output) []output { return a }, func(x, y float64) float64 { return f(y, x) },
			func(l, _ labels.Labels) labels.Labels { return l }), nil
	}
	m := e.VectorMatching
	if m == nil { // the parser writes this default
		m = &parser.VectorMatching{}
	}
	by := func(l labels.Labels) labels.Labels {
		if m.On {
			return labels.NewBuilder(l).Keep(m.MatchingLabels...).Labels()
		}
		return labels.NewBuilder(l).Del(m.MatchingLabels...).Labels()
	}
	one, many, apply := b, a, f
	if m.Card == parser.CardOneToMany {
		one, many, apply = a, b, func(x, y float64) float64 { return f(y, x) }
	}
	partners, _ := grouped(one, by)
	match := func(o output) []output { return partners[by(o.labels).String()] }
	switch {
	case e.Op == parser.LOR:
		left, _ := grouped(a, by)
		rest := lacking(b, func(o output) []output { return left[by(o.labels).String()] })
		return merged(append(slices.Clone(a), rest...)), nil
	case e.Op == parser.LUNLESS:
		return lacking(a, match), nil
	case e.Op == parser.LAND:
		return joined(a, match, func(x, _ float64) float64 { return x }, func(l, _ labels.Labels) labels.Labels { return l }), nil
	case m.Card == parser.CardOneToOne:
		return joined(many, match, apply, func(l, _ labels.Labels) labels.Labels { return by(l) }), nil
	}
	return joined(many, match, apply, func(l, from labels.Labels) labels.Labels {
		b := labels.NewBuilder(l)
		for _, name := range m.Include {
			b.Set(name, from.Get(name))
		}
		return b.Labels()
	}), nil
}

// joined combines each series, at each step, with its first partner that has a value.
func joined(all []output, match func(output) []output, f func(a, b float64) float64,
	name func(l, partner labels.Labels) labels.Labels,
) (out []output) {
	for _, o := range all {
		for _, p := range match(o) {
			out = append(out, output{name(o.labels, p.labels), func(step int) float64 {
				a := o.at(step)
				if math.IsNaN(a) {
					return a
				}
				b := p.at(step)
				if math.IsNaN(b) {
					return b
				}
				return f(a, b)
			}})
		}
	}
	return merged(out)
}

// lacking keeps the value of a series at each step at which none of its partners has a value.
func lacking(all []output, match func(output) []output) (out []output) {
	for _, o := range all {
		partners := match(o)
		out = append(out, output{o.labels, func(step int) float64 {
			v := o.at(step)
			if !math.IsNaN(v) && slices.ContainsFunc(partners, func(p output) bool { return !math.IsNaN(p.at(step)) }) {
				return math.NaN()
			}
			return v
		}})
	}
	return out
}

// merged merges series with the same labels into one. At each step, the first value that is not absent counts.
func merged(all []output) (out []output) {
	groups, order := grouped(all, func(l labels.Labels) labels.Labels { return l })
	for _, key := range order {
		group := groups[key]
		first := group[0]
		if len(group) > 1 {
			first.at = func(step int) float64 {
				for _, o := range group {
					if v := o.at(step); !math.IsNaN(v) {
						return v
					}
				}
				return math.NaN()
			}
		}
		out = append(out, first)
	}
	return out
}
