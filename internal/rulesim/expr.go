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

// parsed are the expressions of rules by their text. The engine parses an expression each time it evaluates it, and writes into
// what it parsed: it gets a copy of what is here.
var parsed sync.Map

// reader is a parser that knows the expressions of rules.
type reader struct{ parser.Parser }

// ParseExpr implements parser.Parser.
func (r reader) ParseExpr(text string) (parser.Expr, error) {
	if known, ok := parsed.Load(text); ok {
		return clone(known.(parser.Expr)), nil
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
		parsed.Store(text, clone(e))
	}
	return written{e, text}, err
}

// written is an expression that knows its text: the rule manager asks for it at every evaluation.
type written struct {
	parser.Expr
	text string
}

func (w written) String() string { return w.text }

// clone copies what an evaluation writes into: selectors, and whatever holds them.
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
		c.Expr, c.Param = clone(e.Expr), clone(e.Param)
		return &c
	case *parser.BinaryExpr:
		c := *e
		c.LHS, c.RHS = clone(e.LHS), clone(e.RHS)
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
