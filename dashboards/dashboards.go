// Package dashboards holds the Grafana dashboards as values built from the vocabulary: rows that answer
// one question each, and panels whose queries are made of metric identifiers. The same labels, uids and
// variables are behind the links of the alerts, so that a page opens the incident dashboard already
// filtered. One file per dashboard says what is shown; render.go says how Grafana writes that down.
package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// FleetDashboard is the uid of the dashboard that no alert opens. The others are named beside the alerts.
const FleetDashboard rules.Dashboard = "llm-fleet"

// titles are what a person reads. Links need them where the dashboard itself is not at hand.
var titles = map[rules.Dashboard]string{
	rules.IncidentDashboard: "LLM / Incident",
	rules.SLODashboard:      "LLM / Objectives and error budget",
	rules.EngineDashboard:   "LLM / Engine",
	rules.GPUDashboard:      "LLM / GPU node",
	FleetDashboard:          "LLM / Fleet capacity",
	rules.ExporterDashboard: "LLM / Exporter health",
}

// Board is a dashboard.
type Board struct {
	// UID is its address, stable for ever: alerts and bookmarks link to it.
	UID rules.Dashboard
	// Description is the question it answers.
	Description string
	// Since is the time range it opens with, as "now-6h".
	Since string
	// Refresh is how often it reloads.
	Refresh string
	// Variables are its filters, in the order in which they narrow each other.
	Variables scope
	// Price says that panels read the price of a GPU hour.
	Price bool
	// Rows are its questions, from symptom to detail.
	Rows []Row
}

// Row is one question and the panels that answer it.
type Row struct {
	// Title is the question.
	Title string
	// Collapsed rows cost nothing until somebody opens them.
	Collapsed bool
	// Panels flow from left to right over 24 columns.
	Panels []Panel
}

// Panel is one picture, or a text.
type Panel struct {
	Title string
	// About is the description behind the panel's (i).
	About About
	// Kind is how the answer is drawn, Unit what it is measured in.
	Kind Kind
	Unit string
	// Width of 24 columns and Height of about 30 pixels each.
	Width, Height uint32
	// Queries are what it shows, Limits the lines that it is measured against.
	Queries, Limits []Query
	// Steps colour values, from the lowest up. The first has no bound.
	Steps []Step
	// States name values that are states and not quantities.
	States []State
	// Max bounds the axis where the quantity has a bound, 0 for none.
	Max float64
	// Columns are the columns of a table, in order. Nil means all that the query has.
	Columns []Column
	// Stacked adds the lines up.
	Stacked bool
	// Empty is shown instead of "No data".
	Empty string
	// Runbook is the alert whose page goes further.
	Runbook string
	// Next is the dashboard that goes further.
	Next rules.Dashboard
	// Text is the content of a text panel, in Markdown.
	Text string
}

// About is what a person has to know about a panel.
type About struct{ What, Why, Next string }

// Kind is a way to draw.
type Kind string

// The kinds, by Grafana's names for their plugins.
const (
	Lines    Kind = "timeseries"
	Stat     Kind = "stat"
	Timeline Kind = "state-timeline"
	Heatmap  Kind = "heatmap"
	Table    Kind = "table"
	Text     Kind = "text"
)

// Query is one PromQL expression of a panel.
type Query struct {
	Expr promql.Expr
	// Legend names each result, with {{label}} for a label.
	Legend string
}

// Step is a threshold: values from At on have the colour.
type Step struct {
	At     float64
	Colour string
}

// Column is one column of a table.
type Column struct {
	// Field is the label that it shows, or "Value"; Title is what stands above it.
	Field, Title string
	// Width is in pixels, 0 for what is left.
	Width int
	// Unit is that of a value, as Panel.Unit.
	Unit string
	// Texts are shown instead of values.
	Texts map[string]string
}

// State names a value.
type State struct {
	Value        int
	Name, Colour string
}

// All are the dashboards, in the order in which a person meets them, for the burn-rate windows that the rules
// were made with. nil stands for slo.DefaultPairs.
func All(pairs []slo.Pair) []Board {
	w := windowsOf(pairs)
	return []Board{incident(w), objectives(w), engines(), gpuNode(), fleet(), exporter()}
}

// Title is what a person reads.
func (b Board) Title() string { return titles[b.UID] }
