// Package dashboards defines the Grafana dashboards as values built from the vocabulary. Each row answers one question,
// and panel queries consist of metric identifiers. The links of alerts use the same labels, uids and variables, so an
// alert's link opens the incident dashboard with its filters set. Each dashboard has a file with its panels. render.go
// writes the panels in Grafana's format.
package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// FleetDashboard is the uid of a dashboard that no alert opens. The other uids are declared beside the alerts.
const FleetDashboard rules.Dashboard = "llm-fleet"

// titles maps uids to titles. Links need titles even where the dashboard itself is not available.
var titles = map[rules.Dashboard]string{
	rules.IncidentDashboard: "LLM / Incident",
	rules.SLODashboard:      "LLM / Objectives and error budget",
	rules.EngineDashboard:   "LLM / Engine",
	rules.GPUDashboard:      "LLM / GPU node",
	FleetDashboard:          "LLM / Fleet capacity",
	rules.OptionalDashboard: "LLM / Optional parts",
	rules.ExporterDashboard: "LLM / Exporter health",
}

// Board describes a dashboard.
type Board struct {
	// UID never changes, because alerts and bookmarks link to it.
	UID rules.Dashboard
	// Description states the question that the dashboard answers.
	Description string
	// Since is the start of the initial time range, such as "now-6h".
	Since string
	// Refresh sets how often the dashboard reloads.
	Refresh string
	// Variables lists the filters. Each filter narrows the choices of the next.
	Variables scope
	// Rows has the questions, from symptom to detail.
	Rows []Row
}

// Row is one question, with the panels that answer it.
type Row struct {
	// Title states the question.
	Title string
	// Collapsed rows cost nothing until a reader opens them.
	Collapsed bool
	// Panels flow from left to right over 24 columns.
	Panels []Panel
}

// Panel describes one visualisation, or a text.
type Panel struct {
	Title string
	// About is the description behind the panel's (i).
	About About
	// Kind names the visualisation. Unit is the unit of the panel's values.
	Kind Kind
	Unit string
	// Width counts columns, of which there are 24. Height is in units of about 30 pixels.
	Width, Height uint32
	// Tall ends the line of panels. The following lines are placed beside the tall panel.
	Tall bool
	// Queries lists the queries that the panel shows. Limits lists the lines to compare with.
	Queries, Limits []Query
	// Steps colours values. The lowest step comes first, and has no lower bound.
	Steps []Step
	// LowestFirst orders lines by their lowest values.
	LowestFirst bool
	// Ranked orders the legend by the queries, not by values.
	Ranked bool
	// States names values that are states, not quantities.
	States []State
	// Named makes a stat show the names of its series instead of their values.
	Named bool
	// Max limits the axis if the quantity has a largest value. 0 means no limit.
	Max float64
	// Columns lists the columns of a table, in order. The table is sorted by the first column, unless SortBy names another
	// field, which may be invisible. Wrapped lists the columns whose text may take several lines. Hidden lists the columns
	// that only links read.
	Columns    []Column
	SortBy     string
	Descending bool
	Wrapped    []string
	Hidden     []string
	// Stacked stacks the lines.
	Stacked bool
	// Empty replaces "No data".
	Empty string
	// Runbook names the alert whose runbook has more detail.
	Runbook string
	// Next names the dashboard that has more detail.
	Next rules.Dashboard
	// Text is the content of a text panel, in Markdown.
	Text string
	// Drill names the incidents in which the panel moves.
	Drill Drill
}

// About explains a panel to people.
type About struct{ What, Why, Next string }

// Kind names a visualisation.
type Kind string

// These are the kinds, named after Grafana's plugins.
const (
	Lines    Kind = "timeseries"
	Stat     Kind = "stat"
	Timeline Kind = "state-timeline"
	Heatmap  Kind = "heatmap"
	Table    Kind = "table"
	Text     Kind = "text"
)

// Query holds one PromQL expression of a panel.
type Query struct {
	Expr promql.Expr
	// Legend names each result. {{label}} stands for a label.
	Legend string
}

// Step sets a threshold. Values from At upwards have its colour.
type Step struct {
	At     float64
	Colour string
}

// Column describes one column of a table.
type Column struct {
	// Field names the label to show, or "Value" (with several queries "Value #A" and so on). Title is the heading.
	Field, Title string
	// Width counts pixels. 0 takes the remaining space.
	Width int
	// Unit names the unit of a value, as in Panel.Unit.
	Unit string
	// Texts replaces values with texts.
	Texts map[string]string
}

// State names a value.
type State struct {
	Value        int
	Name, Colour string
}

// All returns the dashboards for the burn-rate windows of the rules, in the order in which people open them. nil stands
// for slo.DefaultWindowPairs.
func All(pairs []slo.WindowPair) []Board {
	w := windowsOf(pairs)
	return []Board{incident(w), objectives(w), engines(), gpuNode(), fleet(), optional(), exporter()}
}

// Title returns the dashboard's title.
func (b Board) Title() string { return titles[b.UID] }
