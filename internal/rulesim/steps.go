package rulesim

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
)

// rule is a rule of a group, with the series that it reads, and with the series of its last evaluation.
type rule struct {
	rules.Rule
	every  time.Duration
	text   string
	labels labels.Labels                       // labels of all series that the rule stores
	reads  map[string][]*parser.VectorSelector // by name; nil is a selector in a text
	// This rule reads the results of the rules in sooner and later. Rules in sooner are evaluated before it. Rules in
	// later are evaluated after it, or are the rule itself.
	sooner, later []*rule
	hidden        map[string]string // see asOf
	last          map[uint64]labels.Labels
	known         map[uint64]bool         // series that the query has returned so far
	ahead         map[int64]promql.Vector // known results of the query, by milliseconds; nil if there are none
}

func newRule(g *rules.Group, r rules.Rule) *rule {
	out := &rule{
		Rule: r, every: g.Interval(), text: r.Query().String(), reads: map[string][]*parser.VectorSelector{},
		known: map[uint64]bool{}, hidden: map[string]string{},
	}
	parser.Inspect(unwritten(r.Query()), func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			out.reads[v.Name] = append(out.reads[v.Name], v)
		}
		return nil
	})
	all := labels.NewBuilder(r.Labels())
	if a, ok := r.(*rules.AlertingRule); ok {
		all.Set(labels.AlertName, r.Name())
		for _, texts := range []labels.Labels{a.Annotations(), a.Labels()} { // annotations and labels contain queries
			texts.Range(func(l labels.Label) {
				for _, name := range identifier.FindAllString(l.Value, -1) {
					out.reads[name] = append(out.reads[name], nil)
				}
			})
		}
	}
	all.Range(func(l labels.Label) {
		if strings.Contains(l.Value, "{{") {
			all.Del(l.Name)
		}
	})
	out.labels = all.Labels()
	return out
}

var identifier = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)

func unwritten(e parser.Expr) parser.Expr {
	if w, ok := e.(written); ok {
		return w.Expr
	}
	return e
}

// writes lists the names of the series that the rule stores.
func (r *rule) writes() []string {
	if _, ok := r.Rule.(*rules.AlertingRule); ok {
		return []string{"ALERTS", "ALERTS_FOR_STATE"}
	}
	return []string{r.Name()}
}

// writesFor reports whether a selector may select series that the rule stores. A nil selector selects all series.
func (r *rule) writesFor(v *parser.VectorSelector) bool {
	return v == nil || !slices.ContainsFunc(v.LabelMatchers, func(m *labels.Matcher) bool {
		return m.Name != model.MetricNameLabel && r.labels.Has(m.Name) && !m.Matches(r.labels.Get(m.Name))
	})
}

// when returns the time for which the rule is evaluated at a tick of the clock, and whether it is due then. Prometheus
// evaluates each group at a different instant. If a group with a long interval were evaluated at the same instant at
// which another group records, its window would miss this record. The next window would also miss it, because a window
// excludes its start.
func (r *rule) when(tick time.Time) (time.Time, bool) {
	if r.every > time.Minute {
		return tick.Add(-time.Millisecond), tick.UnixNano()%int64(r.every) == 0
	}
	return tick, tick.UnixNano()%int64(r.every) == 0
}

// firing lists the alerts of the rule that fire.
func (r *rule) firing() []Alert {
	a, ok := r.Rule.(*rules.AlertingRule)
	if !ok {
		return nil
	}
	var firing []Alert
	for _, active := range a.ActiveAlerts() {
		if active.State == rules.StateFiring {
			firing = append(firing, Alert{Name: a.Name(), Labels: active.Labels, Annotations: active.Annotations, Value: active.Value})
		}
	}
	return firing
}

// inParts splits rules into parts that can be evaluated one after the other, each over many steps. The rules are in the
// order of their evaluation. A part comes after the parts whose records it reads.
func inParts(all []*rule) [][]*rule {
	writers := map[string][]int{}
	for i, r := range all {
		for _, name := range r.writes() {
			writers[name] = append(writers[name], i)
		}
	}
	after := make([][]int, len(all))
	for i, r := range all {
		for name, selectors := range r.reads {
			for _, v := range selectors {
				first := len(r.sooner)
				for _, j := range writers[name] {
					if all[j].writesFor(v) {
						after[i] = append(after[i], j)
						if j < i {
							r.sooner = append(r.sooner, all[j])
						} else {
							r.later = append(r.later, all[j])
							if len(r.sooner) > first { // see asOf
								after[j] = append(after[j], i)
							}
						}
					}
				}
			}
		}
	}
	// Tarjan's algorithm finds the parts in the order in which they depend on each other.
	var parts [][]*rule
	var stack []int
	number, low, onStack := make([]int, len(all)), make([]int, len(all)), make([]bool, len(all))
	found := 0
	var visit func(i int)
	visit = func(i int) {
		found++
		number[i], low[i], onStack[i] = found, found, true
		stack = append(stack, i)
		slices.Sort(after[i])
		for _, j := range after[i] {
			if number[j] == 0 {
				visit(j)
			}
			if onStack[j] {
				low[i] = min(low[i], low[j])
			}
		}
		if low[i] != number[i] {
			return
		}
		start := slices.Index(stack, i)
		members := slices.Clone(stack[start:])
		stack = stack[:start]
		slices.Sort(members)
		part := make([]*rule, len(members))
		for k, j := range members {
			part[k], onStack[j] = all[j], false
		}
		parts = append(parts, part)
	}
	for i := range all {
		if number[i] == 0 {
			visit(i)
		}
	}
	return parts
}

// EvalAll evaluates the rules at many ticks of the clock, after all samples of these ticks were scraped. The results
// are the same as with Eval at each tick. A query over many steps costs little more than a query at one step, so
// EvalAll queries once for each rule. Rules that read their own results of the step before are the exception.
func (s *Sim) EvalAll(ticks []time.Time) error {
	firing := make([][]Alert, len(ticks))
	for _, part := range s.parts {
		if alone := len(part) == 1 && !slices.Contains(part[0].later, part[0]); alone && len(ticks) > 1 {
			if err := s.lookAhead(part[0], ticks); err != nil {
				return err
			}
		}
		for i, tick := range ticks {
			for _, r := range part {
				if when, due := r.when(tick); due {
					if err := s.evaluate(r, when, true); err != nil {
						return err
					}
				}
				if s.OnAlert != nil {
					firing[i] = append(firing[i], r.firing()...)
				}
			}
		}
		part[0].ahead = nil
	}
	for i, tick := range ticks {
		slices.SortFunc(firing[i], byLabels)
		for _, a := range firing[i] {
			s.OnAlert(tick, a)
		}
	}
	return nil
}

// asOf changes the query of a rule, so that it does not read what later rules recorded at the same step. If a selector
// selects series of both sooner and later rules, it stays unchanged, because these rules are in one part.
func (s *Sim) asOf(r *rule, text string) (string, error) {
	if !slices.ContainsFunc(r.later, func(other *rule) bool { return strings.Contains(text, other.writes()[0]) }) {
		return text, nil
	}
	if hidden, ok := r.hidden[text]; ok {
		return hidden, nil
	}
	e, err := s.reader.ParseExpr(text)
	if err != nil {
		return "", err
	}
	e = clone(e)
	const sooner = 2 * time.Millisecond // a rule with a long interval records one millisecond before the step
	hide := func(v *parser.VectorSelector) bool {
		writes := func(other *rule) bool { return slices.Contains(other.writes(), v.Name) && other.writesFor(v) }
		hidden := slices.ContainsFunc(r.later, writes) && !slices.ContainsFunc(r.sooner, writes)
		if hidden {
			v.OriginalOffset += sooner
		}
		return hidden
	}
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		switch n := n.(type) {
		case *parser.MatrixSelector:
			if hide(n.VectorSelector.(*parser.VectorSelector)) {
				n.Range -= sooner
			}
		case *parser.VectorSelector:
			if len(path) > 0 {
				if _, ranged := path[len(path)-1].(*parser.MatrixSelector); ranged {
					return nil
				}
			}
			hide(n)
		}
		return nil
	})
	hidden := e.String()
	if _, known := parsed.Load(text); known {
		parsed.Store(hidden, e)
		r.hidden[text] = hidden
	}
	return hidden, nil
}

// lookAhead evaluates the query of a rule at all ticks, and stores the results until each tick is evaluated.
func (s *Sim) lookAhead(r *rule, ticks []time.Time) error {
	var times []time.Time
	for _, tick := range ticks {
		if when, due := r.when(tick); due {
			times = append(times, when)
		}
	}
	text, err := s.needed(r.text)
	if err == nil && text != "" {
		text, err = s.asOf(r, text)
	}
	r.ahead = map[int64]promql.Vector{}
	if text == "" || err != nil || len(times) == 0 {
		return err
	}
	step := r.every
	if len(times) > 1 {
		step = times[1].Sub(times[0])
	}
	last := times[len(times)-1]
	if last.Sub(times[0]) != time.Duration(len(times)-1)*step {
		r.ahead = nil // the results are not at regular intervals
		return nil
	}
	var again map[int64]bool
	m, err := s.overSteps(text, times[0], last, step)
	if err == nil {
		again, err = s.tied(text, times[0], last, step)
	}
	if err != nil {
		return fmt.Errorf("rule %s: %w", r.Name(), err)
	}
	r.knows(m, again)
	for _, at := range times {
		if again[at.UnixMilli()] {
			if r.ahead[at.UnixMilli()], err = s.Query(text, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// knows stores the results of a query over many steps for later. In again, it marks the steps at which a series first
// appears: the query must run again at these steps, because it determines the order in which new series are stored.
func (r *rule) knows(m promql.Matrix, again map[int64]bool) {
	for _, series := range m {
		first := !r.known[series.Metric.Hash()]
		r.known[series.Metric.Hash()] = true
		for i, p := range series.Floats {
			again[p.T] = again[p.T] || first && i == 0
			r.ahead[p.T] = append(r.ahead[p.T], promql.Sample{Metric: series.Metric, T: p.T, F: p.F})
		}
		for i, p := range series.Histograms {
			again[p.T] = again[p.T] || first && i == 0
			r.ahead[p.T] = append(r.ahead[p.T], promql.Sample{Metric: series.Metric, T: p.T, H: p.H})
		}
	}
}

// overSteps evaluates an expression over many steps.
func (s *Sim) overSteps(text string, from, to time.Time, step time.Duration) (promql.Matrix, error) {
	q, err := s.engine.NewRangeQuery(s.ctx, s.db, nil, text, from, to, step)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	m, err := q.Exec(s.ctx).Matrix()
	if err != nil {
		return nil, err
	}
	s.Samples += q.Stats().Samples.TotalSamples
	copied := make(promql.Matrix, len(m)) // the engine reuses its points
	for i, series := range m {
		copied[i] = promql.Series{Metric: series.Metric, Floats: slices.Clone(series.Floats), Histograms: slices.Clone(series.Histograms)}
		for j, p := range series.Histograms {
			copied[i].Histograms[j].H = p.H.Copy()
		}
	}
	return copied, nil
}

// tied returns the times of the steps, in milliseconds, at which topk must choose among series with equal values. It
// then chooses by the order of the series, which is random in a query over many steps.
func (s *Sim) tied(text string, from, to time.Time, step time.Duration) (map[int64]bool, error) {
	tied := map[int64]bool{}
	e, err := s.reader.ParseExpr(text)
	if err != nil {
		return nil, err
	}
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		a, ok := n.(*parser.AggregateExpr)
		if !ok || err != nil || !slices.Contains([]parser.ItemType{parser.TOPK, parser.BOTTOMK, parser.LIMITK}, a.Op) {
			return nil
		}
		if slices.ContainsFunc(path, func(n parser.Node) bool { _, sub := n.(*parser.SubqueryExpr); return sub }) {
			for at := from; !at.After(to); at = at.Add(step) {
				tied[at.UnixMilli()] = true
			}
			return nil
		}
		var m promql.Matrix
		if m, err = s.overSteps(a.Expr.String(), from, to, step); err != nil {
			return nil
		}
		type group struct {
			at     int64
			labels uint64
		}
		values := map[group][]float64{}
		slices.Sort(a.Grouping)
		for _, series := range m {
			of, _ := series.Metric.HashForLabels(nil, a.Grouping...)
			if a.Without {
				of, _ = series.Metric.HashWithoutLabels(nil, a.Grouping...)
			}
			for _, p := range series.Floats {
				values[group{p.T, of}] = append(values[group{p.T, of}], p.F)
			}
		}
		for g, all := range values {
			slices.Sort(all)
			tied[g.at] = tied[g.at] || len(slices.Compact(slices.Clone(all))) < len(all) || a.Op == parser.LIMITK && len(all) > 1
		}
		return nil
	})
	return tied, err
}

// evaluate evaluates a rule and stores the result, as Prometheus does. A series without a new result becomes stale.
// With hide, the rule does not read what later rules recorded at the same step.
func (s *Sim) evaluate(r *rule, at time.Time, hide bool) error {
	query := func(ctx context.Context, text string, at time.Time) (promql.Vector, error) {
		if r.ahead != nil && text == r.text {
			return r.ahead[at.UnixMilli()], nil
		}
		needed, err := s.needed(text)
		if needed == "" || err != nil {
			return nil, err
		}
		if hide {
			if needed, err = s.asOf(r, needed); err != nil {
				return nil, err
			}
		}
		v, samples, err := s.query(ctx, needed, at)
		s.Samples += samples
		return v, err
	}
	v, err := r.Eval(s.ctx, 0, at, query, nil, 0)
	if err == nil && len(v)+len(r.last) > 0 {
		now := make(map[uint64]labels.Labels, len(v))
		err = s.append(at, func(a appender) {
			for _, sample := range v {
				now[sample.Metric.Hash()] = sample.Metric
				if sample.H != nil {
					a.histogram(sample.Metric, nil, sample.H)
				} else {
					a.float(sample.Metric, sample.F)
				}
			}
			for h, l := range r.last {
				if _, ok := now[h]; !ok {
					a.float(l, staleNaN)
				}
			}
		})
		r.last = now
	}
	if err != nil {
		return fmt.Errorf("%s: rule %s: %w", at.Format(time.RFC3339), r.Name(), err)
	}
	return nil
}
