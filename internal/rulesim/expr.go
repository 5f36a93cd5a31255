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
// modifies the result. So it gets a copy.
var parsed sync.Map

// rule is the expression of a rule.
type rule struct {
	expr parser.Expr
	// reads lists the names of the series that the rule reads. While none of them exists it has no result. reads is nil
	// if that does not hold.
	reads []string
}

// reader is a parser with a cache of the rules' expressions.
type reader struct{ parser.Parser }

// ParseExpr implements parser.Parser.
func (r reader) ParseExpr(text string) (parser.Expr, error) {
	if known, ok := parsed.Load(text); ok {
		return clone(known.(rule).expr), nil
	}
	return r.Parser.ParseExpr(text)
}

// loader hands files to the rule manager by their number.
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
		parsed.Store(text, rule{clone(e), reads(e)})
	}
	return written{e, text}, err
}

// reads lists the names of the series without which an expression has no result: all series that it reads, unless a part
// of it has a result of its own.
func reads(e parser.Expr) (names []string) {
	whole := true
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			whole = whole && n.Name != ""
			names = append(names, n.Name)
		case *parser.Call:
			whole = whole && !slices.Contains([]string{"absent", "absent_over_time", "info", "scalar", "vector"}, n.Func.Name) && len(n.Args) > 0
		case *parser.BinaryExpr:
			whole = whole && (n.VectorMatching == nil || n.VectorMatching.FillValues == parser.VectorMatchFillValues{})
		}
		return nil
	})
	if !whole {
		return nil
	}
	return names
}

// silent reports that a rule reads only series that were never stored. It needs no evaluation.
func (s *Sim) silent(text string) (bool, error) {
	known, ok := parsed.Load(text)
	if !ok || known.(rule).reads == nil {
		return false, nil
	}
	index, err := s.db.Head().Index()
	if err != nil {
		return false, err
	}
	defer func() { _ = index.Close() }()
	for _, name := range known.(rule).reads {
		if s.stored[name] {
			return false, nil
		}
		p, err := index.Postings(s.ctx, model.MetricNameLabel, name)
		if err != nil {
			return false, err
		}
		if p.Next() {
			s.stored[name] = true
			return false, nil
		}
	}
	return true, nil
}

// written is an expression with its text, because the rule manager requests the text at every evaluation.
type written struct {
	parser.Expr
	text string
}

func (w written) String() string { return w.text }

// clone copies the parts that an evaluation modifies: selectors, lists of labels, which it sorts, and the nodes that
// contain them.
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
