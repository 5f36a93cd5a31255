package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Rules has the rules of a file, in the file's order.
type Rules []rule

type rule struct {
	group, name string
	alert       bool
	labels      map[string]string // labels that the rule gives to its results
	expr        parser.Expr
	hold        time.Duration // time for which an alert's condition must apply before the alert fires
}

// ReadRules parses a rule file, or PrometheusRules.
func ReadRules(file []byte) (Rules, error) {
	type groups []struct {
		Name  string
		Rules []struct {
			Record, Alert, Expr, For string
			Labels                   map[string]string
		}
	}
	var given groups
	for documents := yaml.NewDecoder(bytes.NewReader(file)); ; {
		var f struct {
			Groups groups
			Spec   struct{ Groups groups }
		}
		err := documents.Decode(&f)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("not a rule file: %s", yaml.FormatError(err, false, false))
		}
		given = append(append(given, f.Groups...), f.Spec.Groups...)
	}
	var all Rules
	for _, g := range given {
		for _, given := range g.Rules {
			r := rule{group: g.Name, name: given.Record + given.Alert, alert: given.Alert != "", labels: given.Labels}
			var err error
			if r.expr, err = promql.Parser.ParseExpr(given.Expr); err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			if given.For != "" {
				hold, err := model.ParseDuration(given.For)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", r.name, err)
				}
				r.hold = time.Duration(hold)
			}
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the file has no rules; give a rule file or a PrometheusRule")
	}
	return all, nil
}

// silenced returns the alerts and clues that cannot fire because they need absent families, directly or through
// recorded series.
func (r Rules) silenced(absent func(*metrics.Family) bool) []string {
	possible := make([]bool, len(r))
	selected := func(v *parser.VectorSelector) (known, some bool) {
		for i, rule := range r {
			if rule.gives(v) {
				known, some = true, some || possible[i]
			}
		}
		return known, some
	}
	for changed := true; changed; {
		changed = false
		for i, rule := range r {
			if !possible[i] && hasResults(rule.expr, selected, absent) {
				possible[i], changed = true, true
			}
		}
	}
	var names []string
	for i, rule := range r {
		if possible[i] {
			continue
		}
		if rule.alert {
			names = append(names, rule.name)
		} else if clue := rule.labels[metrics.LabelClue]; clue != "" {
			names = append(names, clue+" (clue)")
		}
	}
	return distinct(names)
}

// gives reports whether a selector can select results of the rule. It compares the name, and the labels that the rule
// sets.
func (r rule) gives(v *parser.VectorSelector) bool {
	if !r.alert && r.name != v.Name || r.alert && v.Name != metrics.Alerts.Name {
		return false
	}
	return !slices.ContainsFunc(v.LabelMatchers, func(m *labels.Matcher) bool {
		if r.alert && m.Name == "alertname" {
			return !m.Matches(r.name)
		}
		set, fixed := r.labels[m.Name]
		return fixed && !strings.Contains(set, "{{") && !m.Matches(set)
	})
}

// regained returns the alerts that can fire again if the families in back exist, even though the other absent families
// do not.
func (r Rules) regained(absent func(*metrics.Family) bool, back []string) []string {
	still := r.silenced(func(f *metrics.Family) bool { return absent(f) && !slices.Contains(back, f.Name) })
	return slices.DeleteFunc(r.silenced(absent), func(name string) bool { return slices.Contains(still, name) })
}

// hasResults reports whether an expression can have results. If its series are absent, it has none, unless there is an
// alternative.
func hasResults(e parser.Expr, selected func(*parser.VectorSelector) (known, some bool), absent func(*metrics.Family) bool) bool {
	has := func(e parser.Expr) bool { return hasResults(e, selected, absent) }
	switch e := e.(type) {
	case *parser.VectorSelector:
		if known, some := selected(e); known { // if an alert's expression reads the alert itself, this alone does not make it fire
			return some
		}
		f := promql.Lookup(e.Name)
		return f == nil || !absent(f)
	case *parser.MatrixSelector:
		return has(e.VectorSelector)
	case *parser.SubqueryExpr:
		return has(e.Expr)
	case *parser.ParenExpr:
		return has(e.Expr)
	case *parser.UnaryExpr:
		return has(e.Expr)
	case *parser.AggregateExpr:
		return has(e.Expr)
	case *parser.Call:
		return slices.Contains([]string{"absent", "absent_over_time", "scalar", "vector"}, e.Func.Name) ||
			!slices.ContainsFunc(e.Args, func(arg parser.Expr) bool { return !has(arg) })
	case *parser.BinaryExpr:
		switch e.Op {
		case parser.LOR:
			return has(e.LHS) || has(e.RHS)
		case parser.LUNLESS:
			return has(e.LHS)
		}
		return has(e.LHS) && has(e.RHS)
	}
	return true // a number or a string
}

// window returns the shortest window of all rates in the rules, and the alerts with a window shorter than least.
func (r Rules) window(least time.Duration) (shortest time.Duration, alerts []string) {
	for _, rule := range r {
		parser.Inspect(rule.expr, func(n parser.Node, _ []parser.Node) error {
			c, ok := n.(*parser.Call)
			if !ok || c.Func.Name != "rate" && c.Func.Name != "increase" {
				return nil
			}
			m, ok := c.Args[0].(*parser.MatrixSelector)
			if !ok {
				return nil
			}
			if shortest == 0 || m.Range < shortest {
				shortest = m.Range
			}
			if m.Range < least && rule.alert {
				alerts = append(alerts, rule.name)
			}
			return nil
		})
	}
	return shortest, distinct(alerts)
}

// selects reports whether any rule reads series with a name.
func (r Rules) selects(name string) bool {
	return slices.ContainsFunc(r, func(rule rule) bool {
		return slices.ContainsFunc(parser.ExtractSelectors(rule.expr), func(matchers []*labels.Matcher) bool {
			return slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel && m.Value == name })
		})
	})
}

// watches reports whether the alert about silent exporters covers a scrape job.
func (r Rules) watches(job string) bool {
	for _, rule := range r {
		if !rule.alert || rule.name != exporterDown {
			continue
		}
		for _, selector := range parser.ExtractSelectors(rule.expr) {
			for _, m := range selector {
				if m.Name == "job" && !m.Matches(job) {
					return false
				}
			}
		}
	}
	return true
}

// exporterDown is the name of the alert about an exporter that does not answer scrapes.
const exporterDown = "LLMExporterDown"

// groupsBy reports whether any rule groups by a label.
func (r Rules) groupsBy(label string) bool {
	found := false
	for _, rule := range r {
		parser.Inspect(rule.expr, func(n parser.Node, _ []parser.Node) error {
			a, ok := n.(*parser.AggregateExpr)
			found = found || ok && slices.Contains(a.Grouping, label)
			return nil
		})
	}
	return found
}
