// Package rules holds the recording rules, the alerts and the Alertmanager configuration as values
// built from the vocabulary. Their number does not depend on how many objectives, models or engines
// there are: objectives are series, and rules read them.
//
// A page is a symptom: a budget burns. Everything else is a cause: it explains a symptom, opens a
// ticket, or pages by itself only where the symptom could not show (no events at all, or hardware
// that must be taken out of service).
package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Group is a rule group: evaluated in order, recording rules first.
type Group struct {
	Name     string
	Interval time.Duration
	Records  []Record
	Alerts   []*Alert
}

// Rules counts the rules of the group.
func (g Group) Rules() int { return len(g.Records) + len(g.Alerts) }

// Record is a recording rule.
type Record struct {
	Name *metrics.Family
	Expr promql.Expr
	// Labels are set on what is recorded.
	Labels map[string]string
}

// Alert is an alerting rule with what a person needs beside it.
type Alert struct {
	// Name is the alert name and the name of its runbook.
	Name string
	// Branch is the answer to the first question of a diagnosis that this alert gives.
	Branch Branch
	// Expr fires while it returns series.
	Expr promql.Expr
	// Severity is what the alert asks of people.
	Severity slo.Severity
	// For is how long Expr must hold. Burn-rate alerts have none: their windows are the wait.
	For time.Duration
	// Keep keeps the alert firing after Expr stopped, for conditions that flap.
	Keep time.Duration
	// Scope are the labels that every firing alert carries. Links and inhibition use only these.
	Scope []string
	// Explains are the symptoms this alert is a cause of.
	Explains []*Alert
	// Replaces says that this alert's page takes the place of those symptoms for the same model. Only
	// for causes that page and that end with the incident: one that stays until a board is replaced
	// would hide every later burn.
	Replaces bool
	// DependsOn are alerts under which this one stays quiet, where both have the same Quiet labels.
	DependsOn []Quiet
	// Summary is one line: what is wrong with what.
	Summary string
	// Description says what it means and what to do first.
	Description string
	// Diagnosed says that the split begins with what is recorded about the model: where to look first, then the facts.
	Diagnosed bool
	// Split lines are evidence: each is a query whose result is shown with the alert.
	Split []Evidence
	// Dashboard is the dashboard that the alert opens.
	Dashboard Dashboard
}

// Asks are the queries that the alert's text is made of. They may match labels on the alert's own.
func (a *Alert) Asks() []promql.Expr {
	var queries []promql.Expr
	if a.Diagnosed {
		queries = append(queries, verdictQuery(), factsQuery())
	}
	for _, e := range a.Split {
		queries = append(queries, e.Query)
	}
	return queries
}

// Quiet says that an alert adds nothing while another fires with the same values of Equal.
type Quiet struct {
	Under *Alert
	Equal []string
}

// Branch is an answer to the first question of a diagnosis: where is the time or the request lost?
type Branch string

// The branches.
const (
	Symptom   Branch = "symptom"
	Engine    Branch = "engine"
	Queueing  Branch = "queueing"
	Prefill   Branch = "prefill"
	Decode    Branch = "decode"
	Memory    Branch = "memory"
	Behaviour Branch = "behaviour"
	Routing   Branch = "routing"
	Release   Branch = "release"
	Hardware  Branch = "hardware"
	Exporter  Branch = "exporter"
)

// Dashboard is the uid of a generated dashboard.
type Dashboard string

// The dashboards that alerts open.
const (
	IncidentDashboard Dashboard = "llm-incident"
	SLODashboard      Dashboard = "llm-slo"
	EngineDashboard   Dashboard = "llm-engine"
	GPUDashboard      Dashboard = "llm-gpu"
	ExporterDashboard Dashboard = "llm-exporter"
)

// Interval is how often burn rates and causes are evaluated. The recorded five-minute rates are
// summed over longer windows, so it is also the step of that sum.
const Interval = time.Minute

// MaxRules is the largest group that Mimir accepts by default.
const MaxRules = 20

// Tier says which part of a fleet the rules are for.
type Tier uint8

// The tiers.
const (
	Single Tier = iota // one Prometheus sees everything
	Shard              // one of many: records sums and evaluates causes
	Global             // over the sums that shards forward: burn rates, budgets, pages
)

// Options choose between renderings of the same rules.
type Options struct {
	// Pairs are the burn-rate windows. Default slo.DefaultPairs.
	Pairs []slo.Pair
	// Tier is the part of a fleet.
	Tier Tier
	// Job matches the job label of the exporter's own scrape, a regular expression.
	Job string
	// ObjectiveLabels are labels that configurations give objectives and that alerts on them carry: a rule
	// joins only labels whose names it knows. Default DefaultObjectiveLabels.
	ObjectiveLabels []string
}

func (o Options) withDefaults() Options {
	if o.Pairs == nil {
		o.Pairs = slo.DefaultPairs()
	}
	if o.Job == "" {
		o.Job = DefaultJob
	}
	if o.ObjectiveLabels == nil {
		o.ObjectiveLabels = DefaultObjectiveLabels()
	}
	return o
}

// DefaultJob matches the scrape job of the exporter as the chart names it.
const DefaultJob = "llm-node-exporter"

// DefaultObjectiveLabels name the label that says who owns an objective.
func DefaultObjectiveLabels() []string { return []string{"team"} }

// Groups builds all rule groups of a tier.
func Groups(opt Options) []Group {
	opt = opt.withDefaults()
	var groups []Group
	if opt.Tier == Shard {
		groups = append(groups, shardGroup(opt))
	} else {
		groups = append(groups, objectiveGroup(opt), burnGroup(opt), budgetGroup(opt))
	}
	if opt.Tier != Global {
		groups = append(groups, modelGroup())
		groups = append(groups, evidenceGroups()...)
		groups = append(groups, suspectGroups()...)
		groups = append(groups, causeGroups(opt)...)
	}
	return groups
}

// Alerts lists every alert of the groups.
func Alerts(groups []Group) []*Alert {
	var all []*Alert
	for _, g := range groups {
		all = append(all, g.Alerts...)
	}
	return all
}
