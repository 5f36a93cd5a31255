// Package dashboards defines the Grafana dashboards as values built from the vocabulary. Each row answers one question.
// Alerts link to dashboards with the same labels, uids and variables, so an alert's link opens the incident dashboard
// with its filters set. The panels of each dashboard are in a file of their own. render.go writes them in Grafana's
// format.
package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// FleetDashboard is the uid of a dashboard that no alert opens. The other uids are declared beside the alerts.
const FleetDashboard rules.Dashboard = "llm-fleet"

// titles maps uids to titles. Links need the title of a dashboard without having the Board.
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
	// Variables lists the filters. Each filter narrows the choices of the filters after it.
	Variables scope
	// Rows are in the order of a diagnosis, from symptom to detail.
	Rows []Row
}

// Row is one question, with the panels that answer it.
type Row struct {
	// Title states the question.
	Title string
	// Collapsed rows are closed at first. They cost no queries until a reader opens them.
	Collapsed bool
	// Panels are arranged from left to right, in lines of 24 columns.
	Panels []Panel
}

// Panel describes one visualisation, or a text.
type Panel struct {
	Title string
	// About is the description behind the panel's (i).
	About About
	// Kind is the visualisation, and Unit the unit of the values.
	Kind Kind
	Unit string
	// Width is in columns, of which there are 24. Height is in units of about 30 pixels.
	Width, Height uint32
	// Tall ends the line of panels. The following lines are placed beside the tall panel.
	Tall bool
	// Queries lists the queries that the panel shows. Limits lists queries for the limits with which people compare
	// them.
	Queries, Limits []Query
	// Steps colours values. The lowest step comes first, and has no lower bound.
	Steps []Step
	// LowestFirst lists the lines with the lowest values first.
	LowestFirst bool
	// Ranked keeps the legend in the order of the queries, instead of sorting it by value.
	Ranked bool
	// States names values that stand for states and are not quantities.
	States []State
	// Named makes a stat show the names of its series instead of their values.
	Named bool
	// Max limits the axis if the quantity has a largest value. 0 means no limit.
	Max float64
	// Columns lists the columns of a table, in order. The table is sorted by the first column, unless SortBy names
	// another field, which may be invisible. Wrapped lists the columns whose text may take several lines. Hidden lists
	// the titles of columns that only links use.
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
	// Next is the dashboard that has more detail.
	Next rules.Dashboard
	// Text is the content of a text panel, in Markdown.
	Text string
	// Drill describes how the panel must react to the incidents of the drill.
	Drill Drill
}

// About explains a panel to people: what it shows, why it is here, and what to do next.
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

// Query is a PromQL expression of a panel, with its legend.
type Query struct {
	Expr promql.Expr
	// Legend names each result. {{label}} stands for a label.
	Legend string
}

// Step is a threshold. Values from At upwards have its colour.
type Step struct {
	At     float64
	Colour string
}

// Column describes one column of a table.
type Column struct {
	// Field names the label to show, or "Value" (with several queries "Value #A" and so on). Title is the heading.
	Field, Title string
	// Width is in pixels. A column with width 0 takes the remaining space.
	Width int
	// Unit names the unit of a value, as in Panel.Unit.
	Unit string
	// Texts maps values to the texts that are shown instead.
	Texts map[string]string
}

// State gives a value a name and a colour.
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
