package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Colours of the Okabe-Ito palette, which people with any colour vision tell apart.
const (
	blue      = "#0072B2"
	sky       = "#56B4E9"
	green     = "#009E73"
	yellow    = "#F0E442"
	orange    = "#E69F00"
	vermilion = "#D55E00"
	purple    = "#CC79A7"
	grey      = "#8C8C8C"
)

// hues are the colours of a panel's queries, in order.
var hues = []string{blue, orange, purple, sky, vermilion, yellow, green}

// Units, by Grafana's names.
const (
	seconds   = "s"
	duration  = "dtdurations"
	share     = "percentunit"
	number    = "short"
	perSecond = "cps"
	requests  = "reqps"
	octets    = "bytes"
	bandwidth = "Bps"
	hertz     = "hertz"
	celsius   = "celsius"
	watts     = "watt"
	dollars   = "currencyUSD"
	none      = "none"
)

// nothing is the empty state where a panel has no better one: it must never be read as zero.
const nothing = "Nothing reports this here. That is not zero."

func panel(kind Kind, title, unit string, width uint32, about About, queries ...Query) Panel {
	return Panel{Kind: kind, Title: title, Unit: unit, Width: width, Height: 8, About: about, Queries: queries,
		Steps: []Step{{0, blue}}, Empty: nothing}
}

func lines(title, unit string, width uint32, about About, queries ...Query) Panel {
	return panel(Lines, title, unit, width, about, queries...)
}

func single(title, unit string, about About, q Query) Panel {
	return panel(Stat, title, unit, 4, about, q)
}

func listing(title string, width uint32, about About, q Query) Panel {
	return panel(Table, title, none, width, about, q)
}

// timeline draws states over time; the names go from 0 up.
func timeline(title string, width uint32, about About, states []State, queries ...Query) Panel {
	p := panel(Timeline, title, none, width, about, queries...)
	p.States = states
	return p
}

func heat(title, unit string, width uint32, about About, e promql.Expr) Panel {
	return panel(Heatmap, title, unit, width, about, Query{e, "{{le}}"})
}

// States of 0/1 series.
var (
	badWhenSet = []State{{0, "no", grey}, {1, "yes", vermilion}}
	goodWhenUp = []State{{0, "down", vermilion}, {1, "up", blue}}
	fires      = []State{{1, "firing", vermilion}}
)

// bad colours values from warn and crit on.
func (p Panel) bad(warn, crit float64) Panel {
	p.Steps = []Step{{0, blue}, {warn, orange}, {crit, vermilion}}
	return p
}

// low colours values below warn and crit.
func (p Panel) low(crit, warn float64) Panel {
	p.Steps = []Step{{0, vermilion}, {crit, orange}, {warn, blue}}
	return p
}

func (p Panel) runbook(alert string) Panel      { p.Runbook = alert; return p }
func (p Panel) next(d rules.Dashboard) Panel    { p.Next = d; return p }
func (p Panel) empty(text string) Panel         { p.Empty = text; return p }
func (p Panel) max(v float64) Panel             { p.Max = v; return p }
func (p Panel) stacked() Panel                  { p.Stacked = true; return p }
func (p Panel) size(width, height uint32) Panel { p.Width, p.Height = width, height; return p }
