// Package dashboards holds the Grafana dashboards as values built from the vocabulary: each row answers one
// question, and panel queries are made of metric identifiers. The links of alerts use the same labels, uids and
// variables, so a page opens the incident dashboard already filtered. Each dashboard has a file with its panels;
// render.go writes the panels in Grafana's format.
package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// FleetDashboard names the dashboard that no alert opens. The other uids are declared beside the alerts.
const FleetDashboard rules.Dashboard = "llm-fleet"

// titles maps uids to the titles that a person reads. Links need titles even where the dashboard itself is not
// available.
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
	// UID never changes: alerts and bookmarks link to it.
	UID rules.Dashboard
	// Description states the question that the dashboard answers.
	Description string
	// Since sets the start of the initial time range, such as "now-6h".
	Since string
	// Refresh sets how often the dashboard reloads.
	Refresh string
	// Variables lists the filters, in the order in which they narrow each other.
	Variables scope
	// Rows holds the questions, from symptom to detail.
	Rows []Row
}

// Row holds one question and the panels that answer it.
type Row struct {
	// Title states the question.
	Title string
	// Collapsed rows cost nothing until somebody opens them.
	Collapsed bool
	// Panels flow from left to right over 24 columns.
	Panels []Panel
}

// Panel describes one visualisation, or a text.
type Panel struct {
	Title string
	// About fills the description behind the panel's (i).
	About About
	// Kind names the visualisation, Unit the unit of its values.
	Kind Kind
	Unit string
	// Width counts columns, of 24; Height in units of about 30 pixels.
	Width, Height uint32
	// Tall ends the line of panels. The following lines are placed beside the tall panel.
	Tall bool
	// Queries lists the queries that the panel shows, Limits the lines to compare with.
	Queries, Limits []Query
	// Steps colours values, from the lowest up. The first step has no lower bound.
	Steps []Step
	// LowestFirst orders lines by their lowest values.
	LowestFirst bool
	// Ranked orders the legend by the queries, not by values.
	Ranked bool
	// States names values that are states, not quantities.
	States []State
	// Named makes a stat show the names of its series instead of their values.
	Named bool
	// Max bounds the axis where the quantity is bounded; 0 means no bound.
	Max float64
	// Columns lists the columns of a table, in order. The table is sorted by the first column, unless SortBy names
	// another field, shown or not. Wrapped lists the columns whose text may take several lines,
	// and Hidden those that only links read.
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
	// Text holds the content of a text panel, in Markdown.
	Text string
	// Drill names the incidents in which the panel moves.
	Drill Drill
}

// About holds the information that a person needs about a panel.
type About struct{ What, Why, Next string }

// Kind names a visualisation.
type Kind string

// The kinds, by the names of Grafana's plugins.
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
	// Legend names each result; {{label}} stands for a label.
	Legend string
}

// Step sets a threshold: values from At upwards have its colour.
type Step struct {
	At     float64
	Colour string
}

// Column describes one column of a table.
type Column struct {
	// Field names the label to show, or "Value" (with several queries "Value #A" and so on). Title is the heading.
	Field, Title string
	// Width counts pixels; 0 takes the remaining space.
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

// All returns the dashboards, in the order in which a person opens them, for the burn-rate windows of the rules. nil
// stands for slo.DefaultWindowPairs.
func All(pairs []slo.WindowPair) []Board {
	w := windowsOf(pairs)
	return []Board{incident(w), objectives(w), engines(), gpuNode(), fleet(), optional(), exporter()}
}

// Title returns the name that a person reads.
func (b Board) Title() string { return titles[b.UID] }
