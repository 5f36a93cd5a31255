// Package rules has the recording rules, the alerts and the Alertmanager configuration as values built from the
// vocabulary. The number of rules does not depend on the number of objectives, models or engines. Objectives are
// series, and rules read these series.
//
// Pages are about symptoms: an error budget burns. Every other alert is about a cause. A cause explains a symptom or
// opens a ticket. It pages by itself only if there would be no events to show the symptom, or if hardware must be taken
// out of service.
package rules

import (
	"regexp"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Group has the rules of one group. They are evaluated in order. Recording rules come first.
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

// Alert is an alerting rule, with the information for the person who gets the alert.
type Alert struct {
	// Name is the name of the alert and of its runbook.
	Name string
	// Branch is the branch of a diagnosis to which the alert points.
	Branch Branch
	// Expr is the condition. The alert fires for each series that it returns.
	Expr promql.Expr
	// Severity is how urgently the alert needs a person.
	Severity slo.Severity
	// For is how long Expr must have results. Burn-rate alerts have no For, because their windows already delay them.
	For time.Duration
	// Keep is how long the alert continues after Expr has no more results. It is for conditions that flap.
	Keep time.Duration
	// Scope lists the labels that every firing alert certainly has. Links and inhibition use only these labels.
	Scope []string
	// Explains lists the symptoms that this alert causes.
	Explains []*Alert
	// Replaces means that this alert's page replaces the pages of the symptoms in Explains, for the same model. It is
	// only for causes that page and that end with the incident. An alert that fires until a board is replaced would
	// hide every later burn.
	Replaces bool
	// DependsOn lists alerts that mute this alert, if the labels in Quiet.Equal agree.
	DependsOn []Quiet
	// Summary names the fault and its place in one line.
	Summary string
	// Reasons returns series. Their values of the label reason end the summary.
	Reasons promql.Expr
	// Promised ends the summary with the promised availability of the model.
	Promised bool
	// Description explains what the alert means and what to do first.
	Description string
	// Diagnosed means that the split begins with the recorded diagnosis of the model: where to look first, then the
	// facts.
	Diagnosed bool
	// Suspects returns the clues of the alert's model that may explain an alert without an objective. The first of them
	// begins the split.
	Suspects promql.Expr
	// ExplainedBy matches the names of the clues that explain the alert, if these clues are its suspects.
	ExplainedBy string
	// OfEngine means that only clues about the alert's own engine may explain the alert.
	OfEngine bool
	// Split lists evidence: queries whose results are shown with the alert.
	Split []Evidence
	// Dashboard names the dashboard that the alert links to.
	Dashboard Dashboard
}

// suspects returns the clues that may explain the alert, or nil.
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

// IsExplainedBy reports whether a clue found at one server (at) explains the alert at a server.
func (a *Alert) IsExplainedBy(clue, at, server string) bool {
	return a.ExplainedBy != "" && (at == server || !a.OfEngine) && regexp.MustCompile("^(?:"+a.ExplainedBy+")$").MatchString(clue)
}

// Asks returns the queries in the alert's texts. They may match the alert's own labels.
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

// Quiet mutes an alert while Under fires with the same values of the labels in Equal, because the alert then adds no
// information.
type Quiet struct {
	Under *Alert
	Equal []string
}

// Branch is an answer to the first question of a diagnosis: where is the time or the request lost?
type Branch string

// These are the branches.
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

// These are the dashboards to which alerts link.
const (
	IncidentDashboard Dashboard = "llm-incident"
	SLODashboard      Dashboard = "llm-slo"
	EngineDashboard   Dashboard = "llm-engine"
	GPUDashboard      Dashboard = "llm-gpu"
	OptionalDashboard Dashboard = "llm-optional"
	ExporterDashboard Dashboard = "llm-exporter"
)

// Interval is how often burn rates and causes are evaluated. It is also the time between the recorded five-minute rates
// that longer windows add up.
const Interval = time.Minute

// MaxRules limits the rules of a group to Mimir's default limit.
const MaxRules = 20

// Tier names the part of a fleet that the rules serve.
type Tier uint8

// These are the tiers.
const (
	Single Tier = iota // one Prometheus has all series
	Shard              // one Prometheus of many: records sums and evaluates causes
	Global             // reads the sums that shards forward, for burn rates, budgets and pages
)

// Options select variants of the rules.
type Options struct {
	// WindowPairs lists the windows of burn-rate alerts. Default: slo.DefaultWindowPairs.
	WindowPairs []slo.WindowPair
	// Tier names the part of a fleet.
	Tier Tier
	// Job is a regular expression that matches the job labels of the exporters' own scrapes. Each job is a fleet of its
	// own. Default: DefaultJobs.
	Job string
	// ObjectiveLabels lists the labels of objectives, from the configuration, that alerts also have. A rule must name
	// each label that it joins. Default: DefaultObjectiveLabels.
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
