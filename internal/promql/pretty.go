package promql

import (
	"regexp"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// columns is the preferred maximum length of a line of a printed expression. With the margin of a rule file, the length
// is 130.
const columns = 124

// Pretty prints an expression. It breaks lines only if an expression does not fit into a line. In a broken expression,
// a set operator begins a line, and other operators stay on the line of their left operand. The content of parentheses
// is between the line that opens them and the line that closes them.
func Pretty(e Expr) string { return layout(e, 0, 0, 0) }

// layout prints e, starting at a column, with room for the text after its last line. All further lines are indented by
// at least margin.
func layout(e Expr, margin, from, after int) string {
	flat := printed(e)
	if from+len(flat)+after <= columns {
		return flat
	}
	switch n := e.(type) {
	case *parser.ParenExpr:
		return enclosed("(", n.Expr, ")", margin, from, after)
	case *parser.SubqueryExpr:
		inner := printed(n.Expr)
		tail := flat[len(inner):]
		return layout(n.Expr, margin, from, after+len(tail)) + tail
	case *parser.AggregateExpr:
		head := tight(n.ShortString()) + "("
		if n.Param != nil {
			head += n.Param.String() + ", "
		}
		return enclosed(head, n.Expr, ")", margin, from, after)
	case *parser.Call:
		return call(n, margin, from, after)
	case *parser.BinaryExpr:
		return operation(n, margin, from, after)
	}
	return flat
}

// enclosed prints the content of parentheses on separate lines, unless the content can break between its own
// parentheses. If the tail begins with a comma, it stays on the line of the closing parenthesis.
func enclosed(head string, e Expr, tail string, margin, from, after int) string {
	if opens(e) && margin+1+len(printed(e)) >= columns {
		if inner := layout(e, margin, from+len(head), len(tail)+after); from+len(head)+len(firstLine(inner)) <= columns {
			return head + inner + tail
		}
	}
	var comma string
	if rest, ok := strings.CutPrefix(tail, ", "); ok {
		comma, tail = ",", rest
	}
	return strings.TrimSuffix(head, " ") + newline(margin+1) + layout(e, margin+1, margin+1, len(comma)) + comma + newline(margin) + tail
}

// opens reports whether an expression has its own parentheses, and can break lines between them.
func opens(e Expr) bool {
	switch n := e.(type) {
	case *parser.ParenExpr, *parser.AggregateExpr:
		return true
	case *parser.SubqueryExpr:
		return opens(n.Expr)
	case *parser.Call:
		long := 0
		for _, arg := range n.Args {
			if !short(arg) {
				long++
			}
		}
		return long == 1
	}
	return false
}

func short(e Expr) bool {
	switch e.(type) {
	case *parser.NumberLiteral, *parser.StringLiteral:
		return true
	}
	return false
}

// call prints a function call. Arguments that are numbers or strings stay on the line of the other argument.
func call(n *parser.Call, margin, from, after int) string {
	if !opens(n) {
		var b strings.Builder
		b.WriteString(n.Func.Name + "(")
		for i, arg := range n.Args {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(newline(margin+1) + layout(arg, margin+1, margin+1, 1))
		}
		return b.String() + newline(margin) + ")"
	}
	head, tail := n.Func.Name+"(", ""
	var long Expr
	for _, arg := range n.Args {
		switch {
		case !short(arg):
			long = arg
		case long == nil:
			head += arg.String() + ", "
		default:
			tail += ", " + arg.String()
		}
	}
	return enclosed(head, long, tail+")", margin, from, after)
}

// operation prints a binary operation. If the left operand ends with a line of closing parentheses, even a set operator
// stays on this line.
func operation(n *parser.BinaryExpr, margin, from, after int) string {
	left, op, flat := layout(n.LHS, margin, from, 0), tight(n.ShortString())+" ", len(printed(n.RHS))+after
	beside := func(at int) (string, bool) {
		right := layout(n.RHS, margin, at, after)
		first := firstLine(right)
		return right, at+flat <= columns || margin+1+flat > columns && at+len(first) <= columns && strings.ContainsAny(first[len(first)-1:], "(,")
	}
	last := left[strings.LastIndex(left, "\n")+1:]
	at := len(last) + 1 + len(op)
	if last == left {
		at += from
	}
	if !n.Op.IsSetOperator() || opens(n.LHS) && strings.Trim(last, ")") == strings.Repeat(" ", margin) {
		if right, ok := beside(at); ok {
			return left + " " + op + right
		}
	}
	if !n.Op.IsSetOperator() {
		margin++
	}
	left += newline(margin) + op
	if right, ok := beside(margin + len(op)); ok {
		return left + right
	}
	return strings.TrimSuffix(left, " ") + newline(margin+1) + layout(n.RHS, margin+1, margin+1, after)
}

// printed returns an expression on one line. tight removes the spaces from lists of labels, because these spaces would
// take a twentieth of a rule file.
func printed(e Expr) string { return tight(e.String()) }

func tight(s string) string {
	return labelList.ReplaceAllStringFunc(s, func(list string) string { return strings.ReplaceAll(list, ", ", ",") })
}

var labelList = regexp.MustCompile(`(?:by|on|ignoring|group_left|group_right) \([\w, ]+\)`)

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func newline(margin int) string { return "\n" + strings.Repeat(" ", margin) }
