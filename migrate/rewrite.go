// Package migrate rewrites dashboards and rules over the metrics of engines, dcgm-exporter and nvidia_gpu_exporter in the vocabulary. It reads the
// tables by which the collectors read those metrics, backwards.
//
//	expressions  one PromQL expression         rewrite.go
//	tables       what each name is called      equal.go, smi.go
//	files        dashboards and rules          dashboard.go, rules.go
//
// What has no equal stays as it was and is named, with the reason.
package migrate

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Options say what the tables cannot know.
type Options struct {
	// Labels maps labels that a scrape added to labels of the vocabulary. The empty string drops conditions on them.
	Labels map[string]string
	// Window is the range of a rate that replaces a number which was a rate already. Default: 5 minutes.
	Window time.Duration

	recorded map[string]shape // series that rules of the same file record
}

// An Expression is a rewritten one.
type Expression struct {
	// Text is the expression in the vocabulary.
	Text string
	// Changed reports whether it is another than it was.
	Changed bool
	// Notes say what means more or less than it did.
	Notes []string

	shape shape
}

// Rewrite writes an expression in the vocabulary. An error says why it has to stay as it is.
func Rewrite(text string, o Options) (Expression, error) { return o.rewrite(text, nil) }

// rewrite also knows the labels that a legend shows.
func (o Options) rewrite(text string, shown []string) (Expression, error) {
	plain, restore := withoutVariables(text)
	e, err := promql.Parser.ParseExpr(plain)
	if err != nil {
		return Expression{}, fmt.Errorf("it cannot be read as PromQL: %w", err)
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

// Legend writes a legend of the expression in the vocabulary.
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

// A shape is what is known of an expression's series.
type shape struct {
	of      []*equal        // whose series are in it
	foreign bool            // series of other software are in it, too
	defined map[string]bool // labels that functions have written
	extra   map[string]bool // labels with one value that the old series did not have
	le      engine.Scale    // the unit of its buckets
}

func (s shape) with(other shape) shape {
	out := shape{of: append(slices.Clone(s.of), other.of...), foreign: s.foreign || other.foreign, defined: maps.Clone(s.defined), extra: maps.Clone(s.extra), le: s.le}
	if out.le == (engine.Scale{}) {
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

// label returns what a label of the old series is called; empty if it is dropped.
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
			return "", fmt.Errorf("label %s has no equal on %s: --label=%s=NAME says what it is there, --label=%s= drops it", name, e.to.Name, name, name)
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

// conditions rewrites the matchers on a series that was recorded from old ones.
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

type rewriter struct {
	Options
	wanted map[string]bool // labels that clauses and the legend name
	hasOf  map[*metrics.Family]bool
	notes  []string
}

// survey collects the labels that clauses name, and the families that the expression itself joins.
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

// expr rewrites a node.
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

// operand puts a binary operator in parentheses.
func operand(e parser.Expr) parser.Expr {
	if _, ok := e.(*parser.BinaryExpr); ok {
		return &parser.ParenExpr{Expr: e}
	}
	return e
}

// selected is a selector in the vocabulary, and what has to be done with what it selects.
type selected struct {
	*parser.VectorSelector
	of    *equal
	infos map[*metrics.Family]*joined
}

// joined is an info metric to join: conditions on its labels, and labels to take from it.
type joined struct {
	where []*labels.Matcher
	take  []string
}

// selector rewrites a selector; nil means that it is of other software.
func (r *rewriter) selector(v *parser.VectorSelector) (*selected, error) {
	if v.Name == "" {
		for _, m := range v.LabelMatchers {
			if m.Name == model.MetricNameLabel && slices.ContainsFunc(prefixes(), func(p string) bool { return strings.HasPrefix(m.Value, p) }) {
				return nil, fmt.Errorf("%s selects by a pattern of names", v)
			}
		}
		return nil, nil
	}
	found, why := find(v.Name)
	if why != "" {
		return nil, fmt.Errorf("%s: %s", v.Name, why)
	}
	if len(found) == 0 {
		return nil, nil
	}
	e, err := choose(v, found)
	if err != nil {
		return nil, err
	}
	copied := *v
	out := &selected{VectorSelector: &copied, of: e, infos: map[*metrics.Family]*joined{}}
	copied.Name = e.to.Name + e.part
	copied.LabelMatchers = []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, copied.Name)}
	narrowed := map[string]bool{}
	for _, m := range v.LabelMatchers {
		if m.Name == model.MetricNameLabel || slices.ContainsFunc(e.where, func(w *labels.Matcher) bool { return w.Name == m.Name }) {
			continue
		}
		if err := r.condition(out, m, narrowed); err != nil {
			return nil, err
		}
	}
	for _, m := range e.only {
		if !narrowed[m.Name] {
			copied.LabelMatchers = append(copied.LabelMatchers, m)
		}
	}
	for _, more := range e.differs {
		r.notes = append(r.notes, v.Name+": "+more)
	}
	if e.newer {
		r.notes = append(r.notes, fmt.Sprintf("%s: %s counts those with %s", v.Name, e.to.Name, e.where[0]))
	}
	for _, name := range slices.Sorted(maps.Keys(r.wanted)) {
		to, ok := e.label(name)
		if !ok || !r.wanted[name] {
			continue
		}
		if info := e.info(to.name); info != nil && !r.hasOf[info] {
			out.info(info).take = append(out.info(info).take, to.name)
		}
	}
	return out, nil
}

// choose picks the equal whose part of the old series a selector selects. Those of several engines with the same name are one.
func choose(v *parser.VectorSelector, found []equal) (*equal, error) {
	fits := func(e *equal) bool {
		for _, w := range e.where {
			i := slices.IndexFunc(v.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == w.Name })
			if i < 0 && !e.newer || i >= 0 && (v.LabelMatchers[i].Type != labels.MatchEqual || !w.Matches(v.LabelMatchers[i].Value)) {
				return false
			}
		}
		return true
	}
	var best *equal
	for i := range found {
		e := found[i]
		if !fits(&e) {
			continue
		}
		if best == nil {
			best = &e
			continue
		}
		if (!e.old || migratable(v.Name)) && best.to == e.to && best.part == e.part && best.unit == e.unit && len(best.only) == 1 && len(e.only) == 1 &&
			best.only[0].Name == metrics.LabelRuntime && e.only[0].Name == metrics.LabelRuntime && best.only[0].Value != e.only[0].Value && len(best.where) == 0 {
			both := strings.Split(best.only[0].Value, "|")
			if !slices.Contains(both, e.only[0].Value) {
				best.only = []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, metrics.LabelRuntime, best.only[0].Value+"|"+e.only[0].Value)}
			}
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%s has an equal only where %s", v.Name, found[0].where[0])
	}
	return best, nil
}

// condition adds what a matcher of the old selector means.
func (r *rewriter) condition(out *selected, m *labels.Matcher, narrowed map[string]bool) error {
	to, ok := out.of.label(m.Name)
	name, said := r.Labels[m.Name]
	switch {
	case ok:
	case said && name == "":
		return nil
	case said:
		to = mapped{name: name}
	case slices.Contains(workload, m.Name):
		out.info(metrics.GPUAllocationInfo).where = append(out.info(metrics.GPUAllocationInfo).where, labels.MustNewMatcher(m.Type, strings.TrimPrefix(m.Name, "exported_"), m.Value))
		return nil
	case m.Name == "job" && variable.MatchString(m.Value):
		to = mapped{name: m.Name}
	case slices.Contains(ofScrape[:4], m.Name) && !variable.MatchString(m.Value) && m.Type == labels.MatchEqual:
		r.notes = append(r.notes, fmt.Sprintf("%s is about the old scrape, and was left out", m))
		return nil
	default:
		return fmt.Errorf("label %s has no equal on %s: --label=%s=NAME says what it is there, --label=%s= drops it", m.Name, out.of.to.Name, m.Name, m.Name)
	}
	if to.name == "" {
		return nil // its values repeat one number
	}
	converted, note, err := to.matcher(m)
	if err != nil {
		return err
	}
	if note != "" {
		r.notes = append(r.notes, note)
	}
	if info := out.of.info(to.name); info != nil {
		out.info(info).where = append(out.info(info).where, converted)
		return nil
	}
	if ok && !out.of.to.HasLabel(to.name) && out.of.to.Owner == metrics.GPU && !slices.Contains(promql.ScrapeLabels, to.name) {
		return fmt.Errorf("label %s has no equal on %s", m.Name, out.of.to.Name)
	}
	narrowed[to.name] = to.carry != nil
	out.LabelMatchers = append(out.LabelMatchers, converted)
	return nil
}

// workload lists the labels of the pod that has a GPU, where Prometheus has renamed those of the exporter's page.
var workload = []string{"exported_namespace", "exported_pod", "exported_container"}

func (s *selected) info(f *metrics.Family) *joined {
	if s.infos[f] == nil {
		s.infos[f] = &joined{}
	}
	return s.infos[f]
}

// finish turns what a selector, or a function over it, returns into what the old one did. Buckets keep their unit.
func (s *selected) finish(e parser.Expr) (parser.Expr, shape) {
	out := shape{of: []*equal{s.of}, defined: map[string]bool{}, extra: map[string]bool{}}
	for _, m := range s.of.only {
		if m.Name != metrics.LabelRuntime && m.Name != metrics.LabelGPUInstance {
			out.extra[m.Name] = true
		}
	}
	if len(s.of.over) > 0 {
		e = &parser.AggregateExpr{Op: parser.SUM, Expr: e, Grouping: s.of.over, Without: true}
	}
	for _, f := range []*metrics.Family{metrics.GPUInfo, metrics.GPUMIGInfo, metrics.GPUAllocationInfo} {
		j := s.infos[f]
		if j == nil {
			continue
		}
		on := []string{metrics.LabelGPUUUID}
		if f.HasLabel(metrics.LabelGPUInstance) && s.of.to.HasLabel(metrics.LabelGPUInstance) {
			on = append(on, metrics.LabelGPUInstance)
		}
		info := promql.Vector(f, j.where...)
		if len(j.take) > 0 {
			e = promql.Mul(e, info, promql.On(on...).ManyToOne(j.take...))
		} else {
			e = promql.And(e, info, promql.On(on...))
		}
	}
	if s.of.part == "_bucket" {
		out.le = s.of.unit
		return e, out
	}
	if s.of.part == "_count" {
		return e, out
	}
	return back(e, s.of.unit), out
}

// back undoes a conversion of units.
func back(e parser.Expr, unit engine.Scale) parser.Expr {
	if unit.Mul != 0 && unit.Mul != 1 {
		e = promql.Div(e, promql.Num(unit.Mul))
	}
	if unit.Div != 0 && unit.Div != 1 {
		e = promql.Mul(e, promql.Num(unit.Div))
	}
	return e
}

func (r *rewriter) vector(v *parser.VectorSelector) (parser.Expr, shape, error) {
	if s, ok := r.recorded[v.Name]; ok {
		copied, err := s.conditions(v, r.Options)
		return copied, s, err
	}
	s, err := r.selector(v)
	if err != nil {
		return nil, shape{}, err
	}
	if s == nil {
		return v, shape{foreign: true}, nil
	}
	var e parser.Expr = s.VectorSelector
	if s.of.rate {
		window := r.Window
		if window == 0 {
			window = 5 * time.Minute
		}
		e = promql.Rate(s.VectorSelector, window)
		r.notes = append(r.notes, v.Name+" was the rate of a moment: this is the mean over a range")
	}
	out, of := s.finish(e)
	return out, of, nil
}

// How functions over a range treat a factor: they keep it, or do not see it.
var (
	linear = []string{"rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "avg_over_time", "sum_over_time", "min_over_time",
		"max_over_time", "quantile_over_time", "stddev_over_time", "last_over_time", "first_over_time", "mad_over_time"}
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
		s.le = engine.Scale{}
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
			return nil, shape{}, errors.New("it reads a label from the names of metrics")
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

// over rewrites a function over the range of a selector.
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
			return nil, shape{}, fmt.Errorf("%s of a rate: %s counts, and only its mean over a range is known", c.Func.Name, s.of.to.Name)
		}
		copied.Func = parser.MustGetFunction("rate")
	}
	matrix.VectorSelector = s.VectorSelector
	copied.Args = slices.Clone(c.Args)
	copied.Args[arg] = &matrix
	scaled := s.of.unit != (engine.Scale{}) && s.of.part != "_bucket" && s.of.part != "_count"
	switch {
	case slices.Contains(blind, c.Func.Name):
		unscaled := *s.of
		unscaled.unit = engine.Scale{}
		s.of = &unscaled
	case scaled && !slices.Contains(linear, c.Func.Name):
		return nil, shape{}, fmt.Errorf("%s of a number in another unit", c.Func.Name)
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
	if s.le != (engine.Scale{}) && a.Op != parser.SUM {
		return nil, shape{}, errors.New("buckets in another unit")
	}
	if a.Op != parser.TOPK && a.Op != parser.BOTTOMK {
		s.extra = map[string]bool{}
	}
	if a.Op == parser.COUNT_VALUES {
		s = s.with(shape{defined: map[string]bool{a.Param.(*parser.StringLiteral).Val: true}})
	}
	return &copied, s, nil
}

// grouped notes where groups, or what is in them, are no longer the same.
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
			r.notes = append(r.notes, fmt.Sprintf("series that differ only in %s repeat a number: it counts once here", strings.Join(e.repeats, ", ")))
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
	if !m.On { // labels that the old series did not have must not keep them apart
		for _, l := range slices.Sorted(maps.Keys(s.extra)) {
			if !slices.Contains(m.MatchingLabels, l) && (b.Op != parser.LOR || !sameExtra(left, right, l)) {
				m.MatchingLabels = append(m.MatchingLabels, l)
			}
		}
	}
	copied.VectorMatching = &m
	if !b.Op.IsSetOperator() && m.Card == parser.CardOneToOne {
		s.extra = map[string]bool{} // the result has only what was matched
	}
	return &copied, s, nil
}

// sameExtra reports whether both sides have one and the same value of a label.
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

// undone returns an expression without a conversion that the operator undoes.
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
