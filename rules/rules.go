// Package rules holds the recording rules, the alerts and the Alertmanager configuration as values built from the
// vocabulary. The number of rules does not depend on the number of objectives, models or engines: objectives are
// series, and rules read them.
//
// A page is about a symptom: a budget burns. Every other alert is about a cause. A cause explains a symptom, opens a
// ticket, or pages by itself only if the symptom could not be visible (no events at all, or hardware that must be taken
// out of service).
package rules

import (
	"regexp"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Group holds the rules of one group, which are evaluated in order, recording rules first.
type Group struct {
	Name     string
	Interval time.Duration
	Records  []Record
	Alerts   []*Alert
}

// Rules counts the rules of the group.
func (g Group) Rules() int { return len(g.Records) + len(g.Alerts) }

// Record describes a recording rule.
type Record struct {
	Name *metrics.Family
	Expr promql.Expr
	// Labels are added to the recorded series.
	Labels map[string]string
}

// Alert describes an alerting rule, and the information for the person who gets it.
type Alert struct {
	// Name names the alert and its runbook.
	Name string
	// Branch answers the first question of a diagnosis.
	Branch Branch
	// Expr returns series while the alert fires.
	Expr promql.Expr
	// Severity sets how urgently the alert needs a person.
	Severity slo.Severity
	// For sets how long Expr must have results. Burn-rate alerts have no For, because their windows already delay them.
	For time.Duration
	// Keep sets how long the alert keeps firing after Expr has no more results, for conditions that flap.
	Keep time.Duration
	// Scope lists the labels that every firing alert carries. Links and inhibition use only these.
	Scope []string
	// Explains lists the symptoms that this alert causes.
	Explains []*Alert
	// Replaces means that this alert's page replaces those symptoms for the same model. Replaces is only for causes
	// that page and that end with the incident: an alert that fires until a board is replaced would hide every
	// later burn.
	Replaces bool
	// DependsOn lists alerts under which this alert stays quiet, if the labels in Quiet.Equal agree.
	DependsOn []Quiet
	// Summary names the fault, and where it is, in one line.
	Summary string
	// Reasons returns series. The summary ends with the values of their label reason.
	Reasons promql.Expr
	// Promised ends the summary with the promise of the model's availability.
	Promised bool
	// Description explains what the alert means and what to do first.
	Description string
	// Diagnosed means that the split begins with recorded values of the model: where to look first, then the facts.
	Diagnosed bool
	// Suspects returns the clues of the alert's model that may explain an alert without an objective. The split begins
	// with the first of them.
	Suspects promql.Expr
	// ExplainedBy matches the names of the clues that explain the alert, where these are its suspects.
	ExplainedBy string
	// OfEngine means that only clues about the alert's own engine explain it.
	OfEngine bool
	// Split lists evidence: queries whose results are shown with the alert.
	Split []Evidence
	// Dashboard names the dashboard that the alert links to.
	Dashboard Dashboard
}

// suspects returns the clues that may explain the alert; nil if it has none.
func (a *Alert) suspects() promql.Expr {
	if a.ExplainedBy == "" {
		return a.Suspects
	}
	subject := modelLabels
	if a.OfEngine {
		subject = replicaLabels
	}
	return promql.Vector(metrics.RecordedSentence, append(same(subject...), promql.Re(metrics.LabelClue, a.ExplainedBy))...)
}

// IsExplainedBy reports whether a clue of this name, at this server, explains the alert at a server.
func (a *Alert) IsExplainedBy(clue, at, server string) bool {
	return a.ExplainedBy != "" && (at == server || !a.OfEngine) && regexp.MustCompile("^(?:"+a.ExplainedBy+")$").MatchString(clue)
}

// Asks returns the queries in the alert's text, which may match the alert's own labels.
func (a *Alert) Asks() []promql.Expr {
	var queries []promql.Expr
	if a.Diagnosed {
		queries = append(append(queries, verdictQuery(), changesQuery()), objectiveQueries()...)
	}
	for _, e := range []promql.Expr{a.suspects(), a.Reasons} {
		if e != nil {
			queries = append(queries, e)
		}
	}
	for _, e := range a.Split {
		queries = append(queries, e.Query)
	}
	return queries
}

// Quiet means that an alert adds no information while Under fires with equal values of the labels in Equal.
type Quiet struct {
	Under *Alert
	Equal []string
}

// Branch names an answer to the first question of a diagnosis: where is the time or the request lost?
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

// Dashboard names a generated dashboard by its uid.
type Dashboard string

// The dashboards that alerts open.
const (
	IncidentDashboard Dashboard = "llm-incident"
	SLODashboard      Dashboard = "llm-slo"
	EngineDashboard   Dashboard = "llm-engine"
	GPUDashboard      Dashboard = "llm-gpu"
	OptionalDashboard Dashboard = "llm-optional"
	ExporterDashboard Dashboard = "llm-exporter"
)

// Interval sets how often burn rates and causes are evaluated. It is also the step at which recorded five-minute rates
// are summed over longer windows.
const Interval = time.Minute

// MaxRules limits a group to Mimir's default limit.
const MaxRules = 20

// Tier names the part of a fleet that the rules serve.
type Tier uint8

// The tiers.
const (
	Single Tier = iota // one Prometheus sees everything
	Shard              // one Prometheus of many: records sums and evaluates causes
	Global             // reads the sums that shards forward: burn rates, budgets, pages
)

// Options choose between renderings of the same rules.
type Options struct {
	// WindowPairs lists the windows of burn-rate alerts. Default slo.DefaultWindowPairs.
	WindowPairs []slo.WindowPair
	// Tier names the part of a fleet.
	Tier Tier
	// Job holds a regular expression that matches the job labels of the exporters' own scrapes. Fleets are distinguished
	// by job. Default DefaultJobs.
	Job string
	// ObjectiveLabels lists the labels that configurations give objectives and that their alerts carry. A rule can join
	// only labels whose names it contains. Default DefaultObjectiveLabels.
	ObjectiveLabels []string
}

func (o Options) withDefaults() Options {
	if o.WindowPairs == nil {
		o.WindowPairs = slo.DefaultWindowPairs()
	}
	if o.Job == "" {
		o.Job = DefaultJobs
	}
	if o.ObjectiveLabels == nil {
		o.ObjectiveLabels = DefaultObjectiveLabels()
	}
	return o
}

// DefaultJob is the chart's name for the scrape job of the nodes' exporters. DefaultJobs matches this job and the job
// of the cluster's exporter. The cluster's exporter has its own job, so that it does not count as a node's exporter.
const (
	DefaultJob  = "llm-node-exporter"
	DefaultJobs = DefaultJob + "(-cluster)?"
)

// DefaultObjectiveLabels returns the label that names the owner of an objective.
func DefaultObjectiveLabels() []string { return []string{"team"} }

// Groups builds all rule groups of a tier.
func Groups(opt Options) []Group {
	opt = opt.withDefaults()
	var groups []Group
	if opt.Tier != Global {
		groups = append(groups, correctionGroup(opt))
	}
	if opt.Tier == Shard {
		groups = append(groups, shardGroup(opt))
	} else {
		groups = append(groups, objectiveGroup(opt), budgetTextGroup(opt), burnGroup(opt), laterGroup(opt), budgetGroup(opt))
	}
	if opt.Tier != Global {
		groups = append(groups, modelGroup(), paceGroup())
		groups = append(groups, evidenceGroups()...)
		groups = append(groups, capacityGroup(), costGroup(opt))
		groups = append(groups, suspectGroups(opt)...)
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
