package dashboards

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// These colours are the Okabe-Ito palette, which people with any colour vision can distinguish.
const (
	blue      = "#0072B2"
	sky       = "#56B4E9"
	green     = "#009E73"
	yellow    = "#F0E442"
	orange    = "#E69F00"
	vermilion = "#D55E00"
	purple    = "#CC79A7"
	grey      = "#8C8C8C"
	dim       = grey + "40" // a quarter of the colour, for unknown values
	faint     = grey + "1A" // a tenth of the colour, for normal values
)

// Orange marks values to look at.
const Orange = orange

// Vermilion marks bad values.
const Vermilion = vermilion

// Palette lists the colours of lines that do not have a colour in meanings.
var Palette = []string{blue, orange, green, purple, sky, vermilion, grey}

// meanings maps the beginning of a legend to a colour, for lines with the same meaning on every dashboard. All other
// lines have the colour of their position.
var meanings = []struct{ begins, colour string }{
	{"p50 ", sky},
	{"p95 ", orange},
	{"p99 ", vermilion},
	{"good", green},
	{"generated ", blue},
	{"limit", vermilion},
	{"pages", vermilion},
	{"ticket", orange},
	{"may be bad", vermilion},
}

// Colour returns the colour of the query's lines, or "" if their colour has no meaning.
func (q Query) Colour() string {
	for _, m := range meanings {
		if strings.HasPrefix(q.Legend, m.begins) {
			return m.colour
		}
	}
	return ""
}

// These are Grafana's names of units.
const (
	seconds   = "s"
	wait      = "suffix:s" // seconds even for minutes, because promises are in seconds and Grafana would write 1.67 mins
	share     = "percentunit"
	number    = "short"
	multiple  = "suffix:x" // multiple of the allowed value
	perSecond = "count:/s"
	tokenRate = "count:tok/s"
	requests  = "reqps"
	octets    = "bytes"
	bandwidth = "Bps"
	hertz     = "hertz"
	celsius   = "celsius"
	watts     = "watt"
	joules    = "joule"
	none      = "none"
	sinceThen = "dateTimeFromNow"
)

// nothing is the default text of a panel without data. It warns people not to take the absence of data for zero.
const nothing = "Nothing here reports this, or nothing happened. This does not mean zero."

func panel(kind Kind, title, unit string, width uint32, about About, queries ...Query) Panel {
	return Panel{
		Kind: kind, Title: title, Unit: unit, Width: width, Height: 8, About: about, Queries: queries,
		Steps: []Step{{0, blue}}, Empty: nothing,
	}
}

func lines(title, unit string, width uint32, about About, queries ...Query) Panel {
	p := panel(Lines, title, unit, width, about, queries...)
	if p.crowded() {
		p.Height = 10
	}
	return p
}

// crowded reports whether a panel may have more than three lines per model, because it has more than three queries, or
// a line for each part of a model, such as a replica.
func (p Panel) crowded() bool {
	return len(p.Queries) > 3 || slices.ContainsFunc(p.Queries, func(q Query) bool {
		return slices.ContainsFunc(labelsOf(q.Expr), func(l string) bool { return !slices.Contains(whole, l) })
	})
}

// single returns a panel of single values. With several queries, the first has the colour of the panel's highest step,
// and so on downwards.
func single(title, unit string, about About, queries ...Query) Panel {
	return panel(Stat, title, unit, 4, about, queries...)
}

// listing returns a table. With several queries, results with the same labels share a row, and the fields of the values
// are "Value #A", "Value #B" and so on.
func listing(title string, width uint32, about About, queries ...Query) Panel {
	return panel(Table, title, none, width, about, queries...)
}

// status defines the meaning of series whose values are only 0 and 1.
type status struct {
	fault int         // the value that means a fault
	word  string      // names the fault
	fine  string      // names the absence of the fault
	known promql.Expr // if these series exist, the absence of all others means no fault; may be nil
}

// bad returns the status of series that are 1 during a fault.
func bad(word string) status { return status{1, word, "ok", nil} }

// fires returns the status of alerts. A series of an alert exists only while the alert fires. Without such a series,
// the record of replicas shows that the rules were installed, so that no alert fired.
func (s scope) fires() status {
	return status{1, "firing", "none fires", s.of(metrics.RecordedReplicas)}
}

// unsaid is the value of a timeline's row for all series while none of them reports. Without a value, a timeline shows
// nothing.
const unsaid = -1

// timeline returns a panel with the times of faults. It has a row for each series that had a fault within the range.
// Below, a row for all series shows when there was no fault, and when nothing was reported.
func timeline(title string, width uint32, about About, st status, queries ...Query) Panel {
	worst := promql.Max
	if st.fault == 0 {
		worst = promql.Min
	}
	p := panel(Timeline, title, none, width, about).empty("Nothing here reports this.")
	all := make([]promql.Expr, 0, len(queries))
	for i, q := range queries {
		p.Queries = append(p.Queries, Query{promql.Equal(q.Expr, promql.Num(float64(st.fault))), q.Legend})
		if a, ok := q.Expr.(*parser.AggregateExpr); ok { // the worst value does not need this aggregation
			q.Expr = a.Expr
		}
		if len(queries) > 1 { // "or" drops series with equal labels
			q.Expr = labelled(q.Expr, "query", refID(i))
		}
		all = append(all, q.Expr)
	}
	whole := worst(nil, promql.Or(all[0], all[1:]...))
	if st.known != nil {
		whole = promql.Or(whole, promql.Mul(promql.Num(0), promql.Max(nil, st.known)))
	}
	p.Queries = append(p.Queries, Query{promql.Or(whole, promql.Call("vector", promql.Num(unsaid))), "all"})
	p.States = []State{{st.fault, st.word, vermilion}, {1 - st.fault, st.fine, faint}}
	return p
}

func heat(title, unit string, width uint32, about About, e promql.Expr) Panel {
	return panel(Heatmap, title, unit, width, about, Query{e, "{{le}}"})
}

// bad colours the values from warn upwards, and those from crit upwards.
func (p Panel) bad(warn, crit float64) Panel {
	p.Steps = []Step{{0, blue}, {warn, orange}, {crit, vermilion}}
	return p
}

// low colours the values below warn, and those below crit.
func (p Panel) low(crit, warn float64) Panel {
	p.Steps = []Step{{0, vermilion}, {crit, orange}, {warn, blue}}
	return p
}

// ranked keeps the legend in the order of the queries, with the most important first. It is for values of different
// kinds, which cannot be compared.
func (p Panel) ranked() Panel { p.Ranked = true; return p }

// lowest lists the lines with the lowest values first. It is for panels without a step that marks low values as bad.
func (p Panel) lowest() Panel { p.LowestFirst = true; return p }

func (p Panel) runbook(alert string) Panel   { p.Runbook = alert; return p }
func (p Panel) next(d rules.Dashboard) Panel { p.Next = d; return p }

// limits draws lines at the results of queries. The legend does not list these lines. A stat shows the limits in grey,
// below its values.
func (p Panel) limits(queries ...Query) Panel { p.Limits = queries; return p }

func (p Panel) empty(text string) Panel { p.Empty = text; return p }

// withoutData returns the text of a panel without data. The points of a graph may be hours apart, so the text of a
// graph states that there is nothing at these points.
func (p Panel) withoutData() string {
	if p.Kind != Lines || p.Empty == nothing || strings.Contains(p.Empty, "this graph") {
		return p.Empty
	}
	says, more, _ := strings.Cut(p.Empty, ".")
	return says + " at any point of this graph." + more
}

// says names a value that stands for a state.
func (p Panel) says(s State) Panel { p.States = []State{s}; return p }

func (p Panel) columns(c ...Column) Panel      { p.Columns = c; return p }
func (p Panel) largest(field string) Panel     { p.SortBy, p.Descending = field, true; return p }
func (p Panel) smallest(field string) Panel    { p.SortBy = field; return p }
func (p Panel) tall() Panel                    { p.Tall = true; return p }
func (p Panel) names() Panel                   { p.Named = true; return p }
func (p Panel) wrapped(titles ...string) Panel { p.Wrapped = titles; return p }

// hide hides columns that only links use.
func (p Panel) hide(titles ...string) Panel     { p.Hidden = titles; return p }
func (p Panel) max(v float64) Panel             { p.Max = v; return p }
func (p Panel) stacked() Panel                  { p.Stacked = true; return p }
func (p Panel) size(width, height uint32) Panel { p.Width, p.Height = width, height; return p }

// mostLines is how many lines a person can distinguish in a panel.
const mostLines = 20

// drawn returns the i-th expression of the panel: first its queries, then its limits. If a query of a graph has many
// lines, drawn selects at each moment the lines with the largest values or, if low values are bad, the smallest values.
// The selection does not depend on the time range, so that new lines are not left out. All limits are drawn, because
// there are few.
func (p Panel) drawn(i int) promql.Expr {
	if i >= len(p.Queries) {
		return p.Limits[i-len(p.Queries)].Expr
	}
	e := p.Queries[i].Expr
	switch {
	case p.Kind != Lines:
		return e
	case p.lowIsBad():
		return promql.BottomK(mostLines/len(p.Queries), nil, e)
	}
	return promql.TopK(mostLines/len(p.Queries), nil, e)
}

// describe returns the text behind the panel's (i).
func (p Panel) describe() string {
	return p.About.What + p.omits() + "\n\n**Why:** " + p.About.Why + "\n\n**Next:** " + p.About.Next
}

// states returns the names of the panel's values. In a timeline, this includes unsaid.
func (p Panel) states() []State {
	if p.Kind != Timeline {
		return p.States
	}
	return append(slices.Clip(p.States), State{unsaid, p.Empty, dim})
}

// omits returns a sentence about the lines that a graph leaves out.
func (p Panel) omits() string {
	which := "highest"
	if p.lowIsBad() {
		which = "lowest"
	}
	switch {
	case p.Kind != Lines:
		return ""
	case len(p.Queries) == 1:
		return fmt.Sprintf(" At each moment only the %d %s are drawn. Filter to see the rest.", mostLines, which)
	}
	return fmt.Sprintf(" Of each kind, at each moment only the %d %s are drawn. Filter to see the rest.", mostLines/len(p.Queries), which)
}

// lowIsBad reports whether low values are bad.
func (p Panel) lowIsBad() bool {
	return p.LowestFirst || len(p.Steps) > 1 && p.Steps[0].Colour == vermilion
}
