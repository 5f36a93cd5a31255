package rules

import (
	"bytes"
	"maps"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Style is how rules are written down, as opposed to what they say.
type Style struct {
	// Severities are the values of the severity label. Default critical, warning and info, which common
	// Alertmanager configurations route on.
	Severities map[slo.Severity]string
	// Labels renames labels that the exporter does not set itself: cluster, job, instance, severity; and namespace,
	// which a Prometheus of many tenants sets, so that the engine's is exported_namespace.
	Labels map[string]string
	// RunbookURL is the address of a runbook; {alert} stands for its name. Default DefaultRunbookURL.
	RunbookURL string
	// DashboardURL is the address of a dashboard; {uid} stands for its uid.
	DashboardURL string
	// MetricsQL writes queries for VictoriaMetrics.
	MetricsQL bool
}

// DefaultRunbookURL is the page that the exporter serves, as its node reaches it, and who forwards its port.
const DefaultRunbookURL = "http://localhost:9844/runbooks/{alert}"

// SeverityLabel is the label that says what an alert asks of people.
const SeverityLabel = "severity"

// Renamable are the labels that Style.Labels may rename.
func Renamable() []string {
	return []string{metrics.LabelCluster, metrics.LabelInstance, "job", metrics.LabelNamespace, SeverityLabel}
}

// WithDefaults fills in what is not said.
func (s Style) WithDefaults() Style {
	severities := map[slo.Severity]string{slo.Page: "critical", slo.Ticket: "warning", slo.Info: "info"}
	maps.Copy(severities, s.Severities)
	s.Severities = severities
	if s.RunbookURL == "" {
		s.RunbookURL = DefaultRunbookURL
	}
	return s
}

// Label is a label's name in this style.
func (s Style) Label(name string) string {
	if to, ok := s.Labels[name]; ok {
		return to
	}
	return name
}

// File is a rule file as Prometheus, its operator and Mimir read it.
type File struct {
	Groups []FileGroup `yaml:"groups"`
}

// FileGroup is a group of a rule file.
type FileGroup struct {
	Name     string     `yaml:"name"`
	Interval string     `yaml:"interval"`
	Rules    []FileRule `yaml:"rules"`
}

// FileRule is a rule of a rule file.
type FileRule struct {
	Record      string            `yaml:"record,omitempty"`
	Alert       string            `yaml:"alert,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Keep        string            `yaml:"keep_firing_for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations *Annotations      `yaml:"annotations,omitempty"`
}

// Annotations are what a person reads.
type Annotations struct {
	Summary      string `yaml:"summary"`
	Description  string `yaml:"description"`
	Split        string `yaml:"split,omitempty"`
	RunbookURL   string `yaml:"runbook_url"`
	DashboardURL string `yaml:"dashboard_url,omitempty"`
}

// NewFile writes groups down.
func NewFile(groups []Group, style Style) File {
	style = style.WithDefaults()
	var f File
	for _, g := range groups {
		group := FileGroup{Name: g.Name, Interval: short(g.Interval)}
		for _, r := range g.Records {
			group.Rules = append(group.Rules, FileRule{Record: r.Name.Name, Expr: style.expr(r.Expr), Labels: r.Labels})
		}
		for _, a := range g.Alerts {
			group.Rules = append(group.Rules, style.alert(a))
		}
		f.Groups = append(f.Groups, group)
	}
	return f
}

// expr prints an expression over lines, but for VictoriaMetrics on one: it refuses queries of more than 16 KiB, most of
// which would be indentation.
func (s Style) expr(e promql.Expr) string {
	if s.MetricsQL {
		return s.query(e).String()
	}
	return promql.Pretty(s.query(e))
}

// query renames labels of targets, and speaks the database's language. The severity of an alert is no label of
// series: some have one of that name.
func (s Style) query(e promql.Expr) promql.Expr {
	names := maps.Clone(s.Labels)
	delete(names, SeverityLabel)
	e = promql.Rename(e, names)
	if s.MetricsQL {
		e = promql.MetricsQL(e)
	}
	return e
}

func (s Style) alert(a *Alert) FileRule {
	var split strings.Builder
	if a.Diagnosed {
		split.WriteString(verdict(queryTemplate(s.query(verdictQuery()))))
		split.WriteString(factLines(queryTemplate(s.query(factsQuery()))))
	}
	for _, e := range a.Split {
		e.Query = s.query(e.Query)
		split.WriteString(e.line())
	}
	return FileRule{
		Alert:  a.Name,
		Expr:   s.expr(a.Expr),
		For:    short(a.For),
		Keep:   short(a.Keep),
		Labels: map[string]string{s.Label(SeverityLabel): s.Severities[a.Severity], metrics.LabelBranch: string(a.Branch)},
		Annotations: &Annotations{
			Summary:      s.text(a.Summary),
			Description:  s.text(a.Description),
			Split:        s.text(split.String()),
			RunbookURL:   strings.ReplaceAll(s.RunbookURL, "{alert}", a.Name),
			DashboardURL: s.text(s.dashboard(a.Dashboard)),
		},
	}
}

// labelRead is a label where a template reads it, of the alert or of what a query returns.
var labelRead = regexp.MustCompile(`(\$labels|\.Labels)\.\w+`)

// text renames the labels that a template reads.
func (s Style) text(template string) string {
	return labelRead.ReplaceAllStringFunc(template, func(read string) string {
		dot := strings.LastIndex(read, ".") + 1
		return read[:dot] + s.Label(read[dot:])
	})
}

// dashboardVariables are the template variables of the dashboards that an alert can fill.
var dashboardVariables = []string{metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelModel, metrics.LabelSLO, metrics.LabelGPUUUID}

// dashboard links to a dashboard at the time of the alert, with the alert's labels as variables.
func (s Style) dashboard(d Dashboard) string {
	if s.DashboardURL == "" {
		return ""
	}
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(s.DashboardURL, "{uid}", string(d)) + "?from=now-6h&to=now")
	for _, v := range dashboardVariables {
		b.WriteString("{{ with $labels." + v + " }}&var-" + v + "={{ . | urlquery }}{{ end }}")
	}
	return b.String()
}

// short prints a duration for a rule file, "" for none.
func short(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return slo.Duration(d).String()
}

// Encode writes a value as YAML. Expressions may start with spaces; this encoder marks that, with the
// indent at which it can also read its own output back.
func Encode(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}
