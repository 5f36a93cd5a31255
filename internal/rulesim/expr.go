package rulesim

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// parsed caches the parsed expressions of rules by their text. The engine parses an expression at each evaluation, and
// changes the result. Therefore, the engine gets a copy of the expression.
var parsed sync.Map

// reader is a parser with a cache of the rules' expressions.
type reader struct{ parser.Parser }

// ParseExpr implements parser.Parser.
func (r reader) ParseExpr(text string) (parser.Expr, error) {
	if known, ok := parsed.Load(text); ok {
		return clone(known.(parser.Expr)), nil
	}
	return r.Parser.ParseExpr(text)
}

// loader passes files to the rule manager by number.
type loader struct {
	reader
	files [][]byte
}

// Load implements rules.GroupLoader.
func (l loader) Load(number string, ignoreUnknown bool, names model.ValidationScheme) (*rulefmt.RuleGroups, []error) {
	i, err := strconv.Atoi(number)
	if err != nil {
		return nil, []error{err}
	}
	return rulefmt.Parse(l.files[i], ignoreUnknown, names, l.reader, slog.New(slog.DiscardHandler))
}

// Parse implements rules.GroupLoader.
func (l loader) Parse(text string) (parser.Expr, error) {
	e, err := l.ParseExpr(text)
	if err == nil {
		parsed.Store(text, clone(e))
	}
	return written{e, text}, err
}

// needed is the part of a rule that has to be evaluated as long as the missing series have never been stored.
type needed struct {
	text    string   // "" if the rule has no result
	missing []string // names of those series
	series  uint64   // number of stored series at the last check
}

// needed returns the rule without useless parts. A part is useless if none of the series that it reads was ever stored,
// because it then has no result. Most worlds emit few of the series that rules read.
func (s *Sim) needed(text string) (string, error) {
	known, ok := parsed.Load(text)
	if !ok || s.Whole {
		return text, nil
	}
	n, ok := s.rules[text]
	if stored := s.db.Head().NumSeries(); !ok || n.series != stored {
		index, err := s.db.Head().Index()
		if err != nil {
			return "", err
		}
		defer func() { _ = index.Close() }()
		missing := func(name string) bool {
			if s.stored[name] {
				return false
			}
			p, err := index.Postings(s.ctx, model.MetricNameLabel, name)
			s.stored[name] = err != nil || p.Next()
			return !s.stored[name]
		}
		if n.series = stored; !ok || slices.ContainsFunc(n.missing, func(name string) bool { return !missing(name) }) {
			n.text, n.missing = text, nil
			left := without(known.(parser.Expr), func(name string) bool {
				if !missing(name) {
					return false
				}
				n.missing = append(n.missing, name)
				return true
			})
			if left == nil {
				n.text = ""
			} else if len(n.missing) > 0 {
				n.text = left.String()
				if _, ok := parsed.Load(n.text); !ok {
					parsed.Store(n.text, clone(left))
				}
			}
		}
		s.rules[text] = n
	}
	return n.text, nil
}

// without removes those parts of an expression that have no result because their series are missing. It returns nil if
// nothing is left. The result shares nodes with the original expression.
func without(e parser.Expr, missing func(name string) bool) parser.Expr {
	around := func(copied parser.Expr, part *parser.Expr) parser.Expr {
		if *part = without(*part, missing); *part == nil {
			return nil
		}
		return copied
	}
	switch e := e.(type) {
	case *parser.VectorSelector:
		if e.Name != "" && missing(e.Name) {
			return nil
		}
	case *parser.MatrixSelector:
		c := *e
		return around(&c, &c.VectorSelector)
	case *parser.SubqueryExpr:
		c := *e
		return around(&c, &c.Expr)
	case *parser.ParenExpr:
		c := *e
		return around(&c, &c.Expr)
	case *parser.UnaryExpr:
		c := *e
		return around(&c, &c.Expr)
	case *parser.AggregateExpr:
		c := *e
		return around(&c, &c.Expr)
	case *parser.Call:
		// These functions have a result even if the series that they read are missing.
		if slices.Contains([]string{"absent", "absent_over_time", "info", "scalar", "vector"}, e.Func.Name) {
			return e
		}
		c := *e
		c.Args = slices.Clone(e.Args)
		for i := range c.Args {
			if around(&c, &c.Args[i]) == nil {
				return nil
			}
		}
		return &c
	case *parser.BinaryExpr:
		c := *e
		c.LHS, c.RHS = without(e.LHS, missing), without(e.RHS, missing)
		return left(e, &c)
	}
	return e
}

// left returns what remains of the operation e. c is a copy of e that has only the operands with a result.
func left(e, c *parser.BinaryExpr) parser.Expr {
	switch {
	case e.Op == parser.LOR && c.LHS == nil:
		return c.RHS
	case (e.Op == parser.LOR || e.Op == parser.LUNLESS) && c.RHS == nil:
		return c.LHS
	case e.VectorMatching != nil && e.VectorMatching.FillValues != parser.VectorMatchFillValues{}:
		return e
	case c.LHS == nil || c.RHS == nil:
		return nil
	}
	return c
}

// written stores the text of an expression, because the rule manager requests the text at every evaluation.
type written struct {
	parser.Expr
	text string
}

func (w written) String() string { return w.text }

// clone copies the nodes that an evaluation changes: selectors, lists of labels (the evaluation sorts them), and the
// nodes that contain these.
func clone(e parser.Expr) parser.Expr {
	switch e := e.(type) {
	case nil, *parser.NumberLiteral, *parser.StringLiteral:
		return e
	case *parser.VectorSelector:
		c := *e
		return &c
	case *parser.MatrixSelector:
		c := *e
		c.VectorSelector = clone(e.VectorSelector)
		return &c
	case *parser.SubqueryExpr:
		c := *e
		c.Expr = clone(e.Expr)
		return &c
	case *parser.ParenExpr:
		c := *e
		c.Expr = clone(e.Expr)
		return &c
	case *parser.UnaryExpr:
		c := *e
		c.Expr = clone(e.Expr)
		return &c
	case *parser.AggregateExpr:
		c := *e
		c.Expr, c.Param, c.Grouping = clone(e.Expr), clone(e.Param), slices.Clone(e.Grouping)
		return &c
	case *parser.BinaryExpr:
		c := *e
		c.LHS, c.RHS = clone(e.LHS), clone(e.RHS)
		if e.VectorMatching != nil {
			m := *e.VectorMatching
			m.MatchingLabels = slices.Clone(m.MatchingLabels)
			c.VectorMatching = &m
		}
		return &c
	case *parser.Call:
		c := *e
		c.Args = slices.Clone(e.Args)
		for i, a := range e.Args {
			c.Args[i] = clone(a)
		}
		return &c
	}
	panic(fmt.Sprintf("%T: %s", e, e))
}
