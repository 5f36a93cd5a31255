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

// Colours of the Okabe-Ito palette, which people with any colour vision can distinguish.
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

// Palette lists the colours of lines that have no meaning of their own.
var Palette = []string{blue, orange, green, purple, sky, vermilion, grey}

// meanings maps the beginning of a legend to the colour of lines that mean the same on every board. Other lines keep
// the colour that Grafana assigns to their position.
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

// Colour returns the colour of the query's lines; empty if their names distinguish them.
func (q Query) Colour() string {
	for _, m := range meanings {
		if strings.HasPrefix(q.Legend, m.begins) {
			return m.colour
		}
	}
	return ""
}

// Units, by Grafana's names.
const (
	seconds   = "s"
	wait      = "suffix:s" // may last minutes, for which Grafana would write 1.67 mins, but promises are in seconds
	share     = "percentunit"
	number    = "short"
	multiple  = "suffix:x" // of what is allowed
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

// nothing is the default text of a panel without data, which nobody must read as zero. A mean over no requests has no
// value, either.
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

// crowded reports whether a panel has more than three lines per model: one for each of the model's parts, or several
// queries.
func (p Panel) crowded() bool {
	return len(p.Queries) > 3 || slices.ContainsFunc(p.Queries, func(q Query) bool {
		return slices.ContainsFunc(labelsOf(q.Expr), func(l string) bool { return !slices.Contains(whole, l) })
	})
}

// single returns a panel of values. Several queries get the colours of the panel's steps, starting with the highest
// step.
func single(title, unit string, about About, queries ...Query) Panel {
	return panel(Stat, title, unit, 4, about, queries...)
}

// listing returns a table. With several queries, it joins the rows that have the same labels; columns call their
// values "Value #A" and so on.
func listing(title string, width uint32, about About, queries ...Query) Panel {
	return panel(Table, title, none, width, about, queries...)
}

// status defines which value of a series of 0 and 1 means that something is wrong.
type status struct {
	fault int         // the value that means a fault
	word  string      // names the fault
	fine  string      // names its absence
	known promql.Expr // series whose presence means that the absence of all others is no fault; nil if there are none
}

// bad returns the status of series that are 1 where something is wrong.
func bad(word string) status { return status{1, word, "ok", nil} }

// fires is the status of alerts: where no alert has a series, none fires if the rules record replicas. For the time
// before the rules were installed, it is unknown which alerts would have fired.
func (s scope) fires() status {
	return status{1, "firing", "none fires", s.of(metrics.RecordedReplicas)}
}

// unsaid means that nothing is reported. Without a row, a timeline could not show this.
const unsaid = -1

// timeline shows the times of faults: one row for each faulty series within the range and, below them, a row for
// all series, which shows that nothing was wrong or that nothing is reported.
func timeline(title string, width uint32, about About, st status, queries ...Query) Panel {
	worst := promql.Max
	if st.fault == 0 {
		worst = promql.Min
	}
	p := panel(Timeline, title, none, width, about).empty("Nothing here reports this.")
	all := make([]promql.Expr, 0, len(queries))
	for i, q := range queries {
		p.Queries = append(p.Queries, Query{promql.Equal(q.Expr, promql.Num(float64(st.fault))), q.Legend})
		if a, ok := q.Expr.(*parser.AggregateExpr); ok { // which the worst value does not need
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

// bad colours values at or above warn and crit.
func (p Panel) bad(warn, crit float64) Panel {
	p.Steps = []Step{{0, blue}, {warn, orange}, {crit, vermilion}}
	return p
}

// low colours values below warn and crit.
func (p Panel) low(crit, warn float64) Panel {
	p.Steps = []Step{{0, vermilion}, {crit, orange}, {warn, blue}}
	return p
}

// ranked keeps the legend in the order of the queries: values of different kinds do not compare, so the kind that matters most is first.
func (p Panel) ranked() Panel { p.Ranked = true; return p }

// lowest puts the lowest lines first if no step marks bad values.
func (p Panel) lowest() Panel { p.LowestFirst = true; return p }

func (p Panel) runbook(alert string) Panel   { p.Runbook = alert; return p }
func (p Panel) next(d rules.Dashboard) Panel { p.Next = d; return p }

// limits draws lines at values where something happens. These lines stay out of the legend. A stat has these limits in
// grey, below its values.
func (p Panel) limits(queries ...Query) Panel { p.Limits = queries; return p }

func (p Panel) empty(text string) Panel { p.Empty = text; return p }

// says names a value that is not a quantity.
func (p Panel) says(s State) Panel { p.States = []State{s}; return p }

func (p Panel) columns(c ...Column) Panel      { p.Columns = c; return p }
func (p Panel) largest(field string) Panel     { p.SortBy, p.Descending = field, true; return p }
func (p Panel) smallest(field string) Panel    { p.SortBy = field; return p }
func (p Panel) tall() Panel                    { p.Tall = true; return p }
func (p Panel) names() Panel                   { p.Named = true; return p }
func (p Panel) wrapped(titles ...string) Panel { p.Wrapped = titles; return p }

// hide leaves columns out, although links read them.
func (p Panel) hide(titles ...string) Panel     { p.Hidden = titles; return p }
func (p Panel) max(v float64) Panel             { p.Max = v; return p }
func (p Panel) stacked() Panel                  { p.Stacked = true; return p }
func (p Panel) size(width, height uint32) Panel { p.Width, p.Height = width, height; return p }

// mostLines is the number of lines of a panel that a person can distinguish.
const mostLines = 20

// drawn returns the expression of query i, of the panel's queries and limits. If the expression has many lines, it
// selects at each moment the lines with the largest values, or the smallest where low values are bad. The choice
// does not depend on the range, so neither a young line nor a long range leaves a line out. Limits are few.
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

// describe returns what a person reads behind the panel's (i).
func (p Panel) describe() string {
	return p.About.What + p.omits() + "\n\n**Why:** " + p.About.Why + "\n\n**Next:** " + p.About.Next
}

// states returns the names of values. A timeline's row for all series shows why it has no other row.
func (p Panel) states() []State {
	if p.Kind != Timeline {
		return p.States
	}
	return append(slices.Clip(p.States), State{unsaid, p.Empty, dim})
}

// omits describes the lines that a panel leaves out.
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
