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

// Palette lists the colours of lines without a meaning.
var Palette = []string{blue, orange, green, purple, sky, vermilion, grey}

// meanings maps the beginning of a legend to the colour of lines that mean the same on every dashboard. Other lines
// keep the colour that Grafana assigns to their position.
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

// Colour returns the colour of the query's lines. It is empty if only their names distinguish the lines.
func (q Query) Colour() string {
	for _, m := range meanings {
		if strings.HasPrefix(q.Legend, m.begins) {
			return m.colour
		}
	}
	return ""
}

// These are units, with Grafana's names.
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

// nothing is the default text of a panel without data. People must not read the absence of data as zero. A mean without
// requests has no value, either.
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

// crowded reports whether a panel may have more than three lines per model: it has more than three queries, or a line
// for each part of the model.
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

// listing returns a table. With several queries, it joins the rows that have the same labels. Columns name the values
// "Value #A" and so on.
func listing(title string, width uint32, about About, queries ...Query) Panel {
	return panel(Table, title, none, width, about, queries...)
}

// status defines which value of a series of 0 and 1 means a fault.
type status struct {
	fault int         // the value that means a fault
	word  string      // names the fault
	fine  string      // names the absence of the fault
	known promql.Expr // if these series exist, the absence of all others means no fault; may be nil
}

// bad returns the status of series that are 1 during a fault.
func bad(word string) status { return status{1, word, "ok", nil} }

// fires is the status of alerts. If no alert has a series but the rules record replicas, no alert fires. Before the
// rules were installed, it is unknown which alerts would have fired.
func (s scope) fires() status {
	return status{1, "firing", "none fires", s.of(metrics.RecordedReplicas)}
}

// unsaid is the value of the row for all series while nothing reports. A timeline could not show this otherwise.
const unsaid = -1

// timeline shows the times of faults. It has one row for each faulty series within the range. Below them, a row for all
// series shows that there was no fault, or that there were no reports.
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

// ranked keeps the legend in the order of the queries. Values of different kinds cannot be compared, so the most important kind comes
// first.
func (p Panel) ranked() Panel { p.Ranked = true; return p }

// lowest puts the lowest lines first, if no step marks bad values.
func (p Panel) lowest() Panel { p.LowestFirst = true; return p }

func (p Panel) runbook(alert string) Panel   { p.Runbook = alert; return p }
func (p Panel) next(d rules.Dashboard) Panel { p.Next = d; return p }

// limits draws lines at important values. These lines stay out of the legend. A stat shows these limits in grey, below
// its values.
func (p Panel) limits(queries ...Query) Panel { p.Limits = queries; return p }

func (p Panel) empty(text string) Panel { p.Empty = text; return p }

// withoutData returns the text of a panel without data. The points of a graph may be hours apart, so its text is about these points only.
func (p Panel) withoutData() string {
	if p.Kind != Lines || p.Empty == nothing || strings.Contains(p.Empty, "this graph") {
		return p.Empty
	}
	says, more, _ := strings.Cut(p.Empty, ".")
	return says + " at any point of this graph." + more
}

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

// drawn returns the i-th expression of the panel: first its queries, then its limits. If the expression has many lines, drawn
// selects at each moment the lines with the largest values. If low values are bad, it selects the smallest values. The
// choice does not depend on the range, so a young line or a long range leaves out no line. There are few limits.
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

// states returns the names of values. The row for all series explains why a timeline has no other row.
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
