package rules

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Style sets the form of the rules, such as label names and links. It does not change their meaning.
type Style struct {
	// Severities maps severities to values of the severity label. The defaults are critical, warning and info, because
	// common Alertmanager configurations route on these values.
	Severities map[slo.Severity]string
	// Labels maps labels to new names. It can rename labels that the exporter does not set itself: cluster, job,
	// instance and severity. It can also rename namespace, for a multi-tenant Prometheus that sets its own namespace
	// and moves the engine's namespace to exported_namespace.
	Labels map[string]string
	// RunbookURL is the address of a runbook. {alert} stands for the alert's name, and {labels} for a query with the
	// labels that the runbook fills in. Default: DefaultRunbookURL.
	RunbookURL string
	// DashboardURL is the address of a dashboard. {uid} stands for the dashboard's uid.
	DashboardURL string
	// MetricsQL writes queries for VictoriaMetrics.
	MetricsQL bool
}

// DefaultRunbookURL points to the runbook that the exporter serves. It is reachable on the exporter's node, or through a forwarded port.
const DefaultRunbookURL = "http://localhost:9844/runbooks/{alert}{labels}"

// SeverityLabel is the name of the label that shows how urgently an alert needs a person.
const SeverityLabel = "severity"

// Renamable returns the labels that Style.Labels may rename.
func Renamable() []string {
	return []string{metrics.LabelCluster, metrics.LabelInstance, "job", metrics.LabelNamespace, SeverityLabel}
}

// WithDefaults fills in the fields that are not set.
func (s Style) WithDefaults() Style {
	severities := map[slo.Severity]string{slo.Page: "critical", slo.Ticket: "warning", slo.Info: "info"}
	maps.Copy(severities, s.Severities)
	s.Severities = severities
	if s.RunbookURL == "" {
		s.RunbookURL = DefaultRunbookURL
	}
	return s
}

// Label returns a label's name in this style.
func (s Style) Label(name string) string {
	if to, ok := s.Labels[name]; ok {
		return to
	}
	return name
}

// File is a rule file in the format of Prometheus, its operator and Mimir.
type File struct {
	Groups []FileGroup `yaml:"groups"`
}

// FileGroup is one group of a rule file.
type FileGroup struct {
	Name     string `yaml:"name"`
	Interval string `yaml:"interval"`
	// EvalOffset is the time within the interval at which vmalert evaluates the group.
	EvalOffset string     `yaml:"eval_offset,omitempty"`
	Rules      []FileRule `yaml:"rules"`
}

// FileRule is one rule of a rule file.
type FileRule struct {
	Record      string       `yaml:"record,omitempty"`
	Alert       string       `yaml:"alert,omitempty"`
	Expr        string       `yaml:"expr"`
	For         string       `yaml:"for,omitempty"`
	Keep        string       `yaml:"keep_firing_for,omitempty"`
	Labels      LabelSet     `yaml:"labels,omitempty"`
	Annotations *Annotations `yaml:"annotations,omitempty"`
}

// LabelSet has the labels that a rule adds. In a file, short sets are written on one line.
type LabelSet map[string]string

// MarshalYAML implements yaml.Marshaler.
func (l LabelSet) MarshalYAML() (any, error) {
	var n yaml.Node
	err := n.Encode(map[string]string(l))
	length := 0
	for name, value := range l {
		length += len(name + value)
	}
	if length <= 80 {
		n.Style = yaml.FlowStyle
	}
	return &n, err
}

// Annotations has the texts of an alert for people.
type Annotations struct {
	Summary      string `yaml:"summary"`
	Description  string `yaml:"description"`
	Split        string `yaml:"split,omitempty"`
	Since        string `yaml:"since,omitempty"`
	RunbookURL   string `yaml:"runbook_url"`
	DashboardURL string `yaml:"dashboard_url,omitempty"`

	// Plain has the texts for places where templates cannot run queries, such as Grafana.
	Plain plain `yaml:"-"`
}

type plain struct {
	Summary, RunbookURL, DashboardURL string
	Labels                            map[string]string
}

// Subjects names the parts into which a rule file is split for operators. The file is split because kubectl apply keeps
// a copy of an object in an annotation of at most 256 KiB.
var Subjects = []string{"objectives", "models", "causes", "hardware"}

// Subject returns the part to which the group belongs. The chart's template uses the same names.
func (g FileGroup) Subject() string {
	switch {
	case strings.HasPrefix(g.Name, "llm-slo-"):
		return "objectives"
	case g.Name == "llm-cause-hardware", g.Name == "llm-nvlink-hours":
		return "hardware"
	case strings.HasPrefix(g.Name, "llm-cause-"):
		return "causes"
	}
	return "models"
}

// About returns a file with only the groups of a subject.
func (f File) About(subject string) (part File) {
	for _, g := range f.Groups {
		if g.Subject() == subject {
			part.Groups = append(part.Groups, g)
		}
	}
	return part
}

// NewFile converts groups to a rule file.
func NewFile(groups []Group, style Style) File {
	style = style.WithDefaults()
	var f File
	stages := Stages(groups)
	for _, g := range groups {
		group := FileGroup{Name: g.Name, Interval: short(g.Interval)}
		for _, r := range g.Records {
			group.Rules = append(group.Rules, FileRule{Record: r.Name.Name, Expr: style.expr(r.Expr), Labels: r.Labels})
		}
		for _, a := range g.Alerts {
			group.Rules = append(group.Rules, style.alert(a))
		}
		if style.MetricsQL {
			f.Groups = append(f.Groups, group.staged(stages[g.Name])...)
		} else {
			f.Groups = append(f.Groups, group)
		}
	}
	return f
}

// expr prints an expression on several lines or, for VictoriaMetrics, on one line. VictoriaMetrics refuses queries
// above 16 KiB, and indentation would use up most of that.
func (s Style) expr(e promql.Expr) string {
	if s.MetricsQL {
		return s.query(e).String()
	}
	return promql.Pretty(s.query(e))
}

// query renames labels as Labels requires, and translates the query to the language of the database. It does not rename
// severity, because only the severity of alerts has a new name, and other series also have a label of that name.
func (s Style) query(e promql.Expr) promql.Expr {
	names := maps.Clone(s.Labels)
	delete(names, SeverityLabel)
	e = s.Histograms(promql.Rename(e, names))
	if s.MetricsQL {
		return promql.MetricsQL(e)
	}
	return e
}

// Histograms returns e in a form that reads histograms in every form in which the database may store them.
// VictoriaMetrics has only one form.
func (s Style) Histograms(e promql.Expr) promql.Expr {
	if s.MetricsQL {
		return e
	}
	return promql.AnyHistograms(e)
}

func (s Style) alert(a *Alert) FileRule {
	var split strings.Builder
	if a.Diagnosed {
		// A cause that has ended still explains the burn, but its text is no longer true. Of several causes, the one
		// that was the verdict for the longest time is shown.
		longest := promql.TopK(1, nil, promql.Sum([]string{metrics.LabelClue}, promql.Over("count_over_time", verdictQuery(), 30*minute)))
		was := promql.TopK(1, nil, promql.And(promql.Over("last_over_time", verdictQuery(), 30*minute), longest, promql.On(metrics.LabelClue)))
		was = promql.Call("label_replace", was, promql.Str(metrics.LabelSays), promql.Str("Earlier: $1"), promql.Str(metrics.LabelSays),
			promql.Str("(.*)"))
		split.WriteString(verdict(promql.OrOn(verdictQuery(), was, promql.On()), s, "{{ else }}Look first at: nothing stands out yet.\n"))
		split.WriteString(changes(queryTemplate(s.query(changesQuery()))) + s.objective())
	}
	if aid, suspects := a.firstAid(), a.suspects(); suspects == nil {
		split.WriteString(aid)
	} else {
		split.WriteString(verdict(suspects, s, "{{ else }}"+aid))
	}
	split.WriteString(s.lines(a.Split))
	return FileRule{
		Alert:  a.Name,
		Expr:   s.expr(a.Condition()),
		For:    short(a.For),
		Keep:   short(a.Keep),
		Labels: s.labels(a),
		Annotations: &Annotations{
			Summary:      s.text(shared(cmp.Or(s.title(a), s.serves(a)+a.Summary+s.reasons(a)+s.promise(a)))),
			Description:  s.text(a.Description),
			Split:        s.text(shared(split.String())),
			Since:        s.text(s.since(a)),
			RunbookURL:   s.text(s.runbook(a)),
			DashboardURL: s.text(s.dashboard(a, s.onset(a))),
			Plain: plain{
				s.text(a.Summary), s.text(s.Runbook(a.Name, runbookQuery(a)...)), s.text(s.dashboard(a, "now-1h")),
				s.fixedLabels(a),
			},
		},
	}
}

// firstAid returns where to look first and what to do, for a page that is itself the diagnosis.
func (a *Alert) firstAid() string {
	lever := runbooks.FirstLever(a.Name)
	if a.Severity != slo.Page || a.Branch == Symptom || lever == "" {
		return ""
	}
	return "Look first at: " + string(a.Branch) + ". " + a.Description + "\nDo first, " + lever + ".\n"
}

// lines renders evidence, one line each.
func (s Style) lines(all []Evidence) string {
	var b strings.Builder
	for _, e := range all {
		e.Query = s.query(e.Query)
		b.WriteString(e.line())
	}
	return b.String()
}

// labels returns the labels that an alert adds to the labels of its series. A page has a label for the branch where to
// look first. When this branch changes, the page becomes another alert of its group, and Alertmanager sends the
// correction. A clue that is absent for minutes, or present for only one minute, triggers no correction, because an
// exporter may be starting, or an engine may come and go. Clues that appear during a recovery trigger no correction,
// either. They did not cause the page, because fewer and fewer requests are bad.
func (s Style) labels(a *Alert) map[string]string {
	all := s.fixedLabels(a)
	if a.corrects() {
		seen := func(within time.Duration) promql.Expr { return promql.Over("last_over_time", verdictQuery(), within) }
		twice := promql.Ge(promql.Sum([]string{metrics.LabelBranch}, promql.Over("count_over_time", verdictQuery(), pageWindow)), promql.Num(2))
		branch := promql.On(metrics.LabelBranch)
		candidates := promql.OrOn(promql.Or(promql.And(seen(pageWindow), twice, branch), promql.And(seen(15*minute), toldBranch(a), branch)),
			seen(pageWindow), promql.On())
		ends := promql.And(recovers(), firesForModel(a, promql.Ne(metrics.LabelSuspect, "unknown")), promql.On())
		all[metrics.LabelSuspect] = s.text(shared(fmt.Sprintf(`{{ with %s }}{{ (first .).Labels.branch }}{{ else }}{{ with %s }}{{ (first .).Labels.suspect }}{{ else }}unknown{{ end }}{{ end }}`,
			queryTemplate(s.query(promql.BottomK(1, nil, promql.Unless(candidates, ends, promql.On())))),
			queryTemplate(s.query(firesForModel(a))))))
	}
	return all
}

// recovers returns the rate of bad events, if it is at least a tenth lower than two minutes ago.
func recovers() promql.Expr {
	bad := promql.Vector(metrics.RecordedBadEventRate, same(modelSLO...)...)
	return promql.Lt(bad, times(0.9, promql.Offset(bad, recentWindow)))
}

// fixedLabels returns the labels that an alert always has.
func (s Style) fixedLabels(a *Alert) map[string]string {
	return map[string]string{s.Label(SeverityLabel): s.Severities[a.Severity], metrics.LabelBranch: string(a.Branch)}
}

// corrects reports whether Alertmanager must send a correction when the alert's first line changes.
func (a *Alert) corrects() bool { return a.Diagnosed && a.Severity == slo.Page }

// since returns a template that prints when the alert's objective began to burn. This is before the page began.
func (s Style) since(a *Alert) string {
	if !a.corrects() {
		return ""
	}
	return `{{ range ` + queryTemplate(s.query(burning())) + ` }}{{ (toTime .Value).Format "15:04 MST" }}{{ end }}`
}

// burning returns when the alert's objective began to burn. It has a result even after the end of the burn, because a
// resolved message shows the annotations of the last evaluation.
func burning() promql.Expr {
	return promql.Min(nil, promql.Over("last_over_time", promql.Vector(metrics.RecordedBurnBegan, same(modelSLO...)...), hour))
}

// Runbook returns the address of a runbook, with a query if the address has a place for one.
func (s Style) Runbook(page string, query ...string) string {
	var labels string
	if len(query) > 0 {
		labels = "?" + strings.Join(query, "&")
	}
	return strings.NewReplacer("{alert}", page, "{labels}", labels).Replace(s.RunbookURL)
}

// runbookQuery returns the URL parameters with which an alert's runbook fills in its commands. Labels that the alert
// lacks have no parameter. For a pod, the instance has none. No parameter contains a space, because the chart replaces
// the address.
func runbookQuery(a *Alert) []string {
	var query []string
	var optional strings.Builder
	var orNode string
	has := promql.Labels(a.Expr)
	for _, l := range slices.Compact(slices.Sorted(maps.Values(runbooks.Labels))) {
		value := "{{$labels." + l + "|urlquery}}"
		switch {
		case !slices.Contains(has, l):
		case l == metrics.LabelInstance && slices.Contains(has, metrics.LabelPod) && !slices.Contains(has, metrics.LabelGPUUUID):
			orNode = "{{else}}&" + l + "=" + value
		case slices.Contains([]string{metrics.LabelLink, metrics.LabelPCIBusID}, l):
			optional.WriteString("{{with($labels." + l + ")}}&" + l + "={{.|urlquery}}{{end}}")
		case l == metrics.LabelPod:
			optional.WriteString("{{with($labels.pod)}}&pod={{.|urlquery}}" + orNode + "{{end}}")
		default:
			query = append(query, l+"="+value)
		}
	}
	if optional.Len() > 0 {
		query[len(query)-1] += optional.String()
	}
	return query
}

// labelRead matches a label that a template reads, from the alert or from a query result.
var labelRead = regexp.MustCompile(`(\$labels|\.Labels)\.\w+`)

// text returns a template as it is written into a rule, with renamed labels and brief numbers.
func (s Style) text(template string) string {
	return s.renamed(strings.NewReplacer("{{ ", "{{", " }}", "}}").Replace(Brief(template)))
}

// renamed renames the labels that a template reads.
func (s Style) renamed(template string) string {
	return labelRead.ReplaceAllStringFunc(template, func(read string) string {
		dot := strings.LastIndex(read, ".") + 1
		return read[:dot] + s.Label(read[dot:])
	})
}

// dashboardVariables lists the variables of dashboards to which an alert's link can give values.
var dashboardVariables = []string{metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelModel, metrics.LabelGPUUUID}

// onset returns the start of a dashboard's time range, in milliseconds. For a page, it is half an hour before the burn.
// For a ticket, it is six hours before the evaluation. The time range thus shows the incident whenever a person opens
// the dashboard.
func (s Style) onset(a *Alert) string {
	back := 30 * minute
	if a.Severity != slo.Page {
		back = 6 * hour
	}
	began := promql.Call("vector", promql.Call("time"))
	if a.corrects() {
		began = promql.OrOn(burning(), began, promql.On())
	}
	return "{{ with " + queryTemplate(s.query(times(1000, promql.Sub(began, promql.Num(back.Seconds()))))) +
		` }}{{ printf "%.0f" (first .).Value }}{{ end }}`
}

// dashboard returns a link to the alert's dashboard. The time range begins at from, and the alert's labels are the
// values of the variables.
func (s Style) dashboard(a *Alert, from string) string {
	if s.DashboardURL == "" {
		return ""
	}
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(s.DashboardURL, "{uid}", string(a.Dashboard)) + "?from=" + from)
	has := append(promql.Labels(a.Expr), metrics.LabelCluster) // every alert may have the label cluster
	for _, v := range dashboardVariables {
		if !slices.Contains(has, v) {
			continue
		}
		b.WriteString("{{ with $labels." + v + " }}&var-" + v + "={{ urlquery . }}{{ end }}")
	}
	return b.String()
}

// short formats a duration for a rule file. It returns "" for 0.
func short(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return slo.Duration(d).String()
}

// Encode writes values as YAML documents. An expression may start with spaces. The encoder writes the indentation of
// such an expression explicitly, so that it can be read back.
func Encode(documents ...any) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	for _, value := range documents {
		if err := enc.Encode(value); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), enc.Close()
}
