// Command jsonnet-free-gen renders all generated files from the same Go packages as the exporter, without a template
// language. It is shipped as llm-rules.
//
// Without --format it writes the generated files of this repository. With --format it writes rules, an Alertmanager
// configuration and an index of runbooks for one installation. "report" queries a Prometheus that has evaluated the
// rules, and reports on the error budgets. "backtest" queries a Prometheus without these rules, and reports when the
// rules would have paged.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/version"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
	"github.com/llm-node-exporter/llm-node-exporter/slo/openslo"
)

// artifact describes one generated file.
type artifact struct {
	path   string // path below --out, with forward slashes
	render func() ([]byte, error)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "llm-rules:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 && args[0] == "report" {
		return reportBudgets(args[1:], os.Stdout)
	}
	if len(args) > 0 && args[0] == "backtest" {
		return backtestObjectives(args[1:], os.Stdout, os.Stderr)
	}
	var c command
	if _, err := c.app().Parse(args); err != nil {
		return err
	}
	if c.openSLO != "" {
		return importOpenSLO(c.openSLO, os.Stdout)
	}
	if c.format == "" {
		if c.schema != classic {
			return errors.New("--dashboards: the files of this repository are classic; add --format for those of an installation")
		}
		if _, err := os.Stat(filepath.Join(c.out, "jsonnet-free-gen")); err != nil {
			return fmt.Errorf("give --format and --out, such as --format prometheus --out observability; without --format, only this "+
				"project's own files are written, and %s is not a checkout of it", c.out)
		}
		return generate(c.out, c.check, repository())
	}
	if err := c.configure(c.windows, c.severities); err != nil {
		return err
	}
	if byGrafana(c.format) && c.fleet {
		return errors.New("--fleet: Grafana evaluates alerts on one data source, and a fleet has one per shard; use --format mimir")
	}
	if c.format == "grafana" && c.schema != classic && c.schema != "v2" {
		return fmt.Errorf("--dashboards %s: --format grafana has Grafana load the folder, which has classic or v2 files; "+
			"use another --format", c.schema)
	}
	return generate(c.out, c.check, c.artifacts(c.format))
}

// command has the values of the flags.
type command struct {
	installation
	out, format, openSLO string
	check                bool
	windows              []string
	severities           map[string]string
}

// app declares the flags.
func (c *command) app() *kingpin.Application {
	app := kingpin.New("llm-rules", "Renders the generated files of this repository or, with --format, the rules for one installation. "+
		"With report as the first argument, it reports on error budgets instead. With backtest, it reports when objectives would have "+
		"paged. See report --help and backtest --help.")
	app.HelpFlag.Short('h')
	app.Version(version.Print("llm-rules"))
	c.style.Labels, c.metaLabels, c.grafanaLabels, c.severities = map[string]string{}, map[string]string{}, map[string]string{},
		map[string]string{}
	app.Flag("out", "Folder to write to.").Default(".").StringVar(&c.out)
	app.Flag("check", "Write nothing; fail if a file differs from what would be written.").BoolVar(&c.check)
	app.Flag("format", "What to render rules for: prometheus, operator (PrometheusRule), victoriametrics (VMRule), mimir (a rule "+
		"namespace), grafana (alerts that Grafana evaluates, as provisioning files) or grafana-operator (the same as custom resources).").
		EnumVar(&c.format, "prometheus", "operator", "victoriametrics", "mimir", "grafana", "grafana-operator")
	app.Flag("fleet", "Render two tiers for a fleet too large for one Prometheus. The rules in shard/ record sums, and the rules in "+
		"global/ alert on them.").
		BoolVar(&c.fleet)
	app.Flag("window", "A pair of burn-rate windows, such as 1h/5m=2%:page or 1d/2h=10%:ticket. Repeatable; replaces the four pairs of "+
		"the SRE Workbook.").PlaceHolder("LONG/SHORT=SPEND:SEVERITY").StringsVar(&c.windows)
	app.Flag("severity", "Value of the severity label for page, ticket or info, such as page=critical. Repeatable.").
		PlaceHolder("WHAT=VALUE").StringMapVar(&c.severities)
	app.Flag("label", "New name for a label that Prometheus sets ("+strings.Join(rules.Renamable(), ", ")+
		"), such as cluster=k8s_cluster. Repeatable.").PlaceHolder("NAME=NAME").StringMapVar(&c.style.Labels)
	app.Flag("runbook-url", "Address of a runbook. {alert} stands for the alert's name, and {labels} for a query string with the labels "+
		"that the exporter fills into its runbooks.").PlaceHolder("URL").Default(rules.DefaultRunbookURL).StringVar(&c.style.RunbookURL)
	app.Flag("dashboard-url",
		"Address of a dashboard, such as https://grafana.example/d/{uid}. Without it, alerts have no link to a dashboard.").
		PlaceHolder("URL").StringVar(&c.style.DashboardURL)
	app.Flag("dashboards", "Schema of the dashboards: classic (Grafana 10 and newer), v2 (Grafana 13 and newer), grafana-operator "+
		"(GrafanaDashboard), perses or perses-operator (PersesDashboard).").Default(classic).
		EnumVar(&c.schema, slices.Sorted(maps.Keys(schemas))...)
	app.Flag("job", "Job label of the exporter's scrape; may be a regular expression.").Default(rules.DefaultJobs).StringVar(&c.options.Job)
	app.Flag("objective-label", "A label of objectives to copy to their alerts. Repeatable; replaces the default.").PlaceHolder("NAME").
		Default(rules.DefaultObjectiveLabels()...).StringsVar(&c.options.ObjectiveLabels)
	app.Flag("name", "Name of the PrometheusRule, the VMRule, the Mimir namespace, Grafana's folder or the Perses project.").
		Default("llm-node-exporter").StringVar(&c.name)
	app.Flag("meta-label", "Label of custom resources, such as release=prometheus. Repeatable.").PlaceHolder("NAME=VALUE").
		StringMapVar(&c.metaLabels)
	app.Flag("datasource", "The uid of the Prometheus data source that Grafana's alerts query.").PlaceHolder("UID").Default("prometheus").
		StringVar(&c.datasource)
	app.Flag("grafana-label", "Label of the Grafana for which its operator creates the resources. Repeatable; replaces the default.").
		PlaceHolder("NAME=VALUE").Default("dashboards=grafana").StringMapVar(&c.grafanaLabels)
	app.Flag("openslo", "Print the objectives of a file of OpenSLO v1 documents as configuration, and name those that cannot be "+
		"imported, each with the reason.").PlaceHolder("FILE").ExistingFileVar(&c.openSLO)
	return app
}

// chart is the folder in which the Helm chart keeps its generated files.
const chart = "helm/llm-node-exporter/files/"

// chartGrafana is a placeholder that the chart replaces with the address of the user's Grafana.
const chartGrafana = "https://grafana.invalid"

// repository returns the generated files of this repository.
func repository() []artifact {
	beside := installation{style: rules.Style{RunbookURL: "../runbooks/{alert}.md"}}
	all := append(docs(), artifact{"docs/alerts.md", beside.alertsPage}, artifact{"docs/alerts.csv", beside.alertsTable})
	all = append(all, installation{}.dashboards(chart+"dashboards/")...)
	all = append(all, artifact{"examples/autoscaling/keda.yaml", keda}, artifact{
		"examples/autoscaling/prometheus-adapter.yaml",
		prometheusAdapter,
	},
		artifact{"examples/autoscaling/hpa.yaml", autoscaler},
		artifact{"examples/rollout/argo-rollouts.yaml", analysisTemplate}, artifact{"examples/rollout/flagger.yaml", metricTemplates})
	for _, a := range (installation{}).artifacts("prometheus") {
		switch a.path {
		case "rules.yaml", "receivers.yaml":
			all = append(all, artifact{"examples/prometheus/" + a.path, a.render})
		case "alertmanager.yaml", "alertmanager-route.yaml", rules.TemplateFile:
			all = append(all, artifact{"examples/prometheus/" + a.path, a.render}, artifact{chart + "alertmanager/" + a.path, a.render})
		}
	}
	all = append(all, artifact{chart + "alertmanagerconfig.yaml", installation{name: "llm-node-exporter"}.alertmanagerConfig})
	linked := installation{style: rules.Style{DashboardURL: chartGrafana + "/d/{uid}"}}
	for _, a := range linked.artifacts("prometheus") {
		if a.path == "rules.yaml" {
			all = append(all, artifact{chart + a.path, a.render}, artifact{chart + "stages.yaml", stages})
		}
	}
	return all
}

// configure parses and checks flags whose values are more than plain strings.
func (i *installation) configure(windows []string, severities map[string]string) error {
	if err := i.burnOver(windows); err != nil {
		return err
	}
	if err := i.call(severities); err != nil {
		return err
	}
	if err := checkLabels(i.style.Labels); err != nil {
		return err
	}
	if !strings.Contains(i.style.RunbookURL, "{alert}") {
		return fmt.Errorf("--runbook-url %s: write where {alert} stands for the alert, as https://wiki.example/{alert}", i.style.RunbookURL)
	}
	if i.style.DashboardURL != "" && !strings.Contains(i.style.DashboardURL, "{uid}") {
		return fmt.Errorf("--dashboard-url %s: write where {uid} stands for the dashboard, as https://grafana.example/d/{uid}",
			i.style.DashboardURL)
	}
	if _, err := regexp.Compile(i.options.Job); err != nil {
		return fmt.Errorf("--job: %w", err)
	}
	if problems := validation.IsDNS1123Subdomain(i.name); problems != nil {
		return fmt.Errorf("--name %q: %s", i.name, problems[0])
	}
	for flag, labels := range map[string]map[string]string{"--meta-label": i.metaLabels, "--grafana-label": i.grafanaLabels} {
		for name, value := range labels {
			if problems := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)...); problems != nil {
				return fmt.Errorf("%s %s=%s: %s", flag, name, value, problems[0])
			}
		}
	}
	if !grafanaUID.MatchString(i.datasource) {
		return fmt.Errorf("--datasource %q: a uid has up to 40 letters, digits, - and _; find it in the address of the data source's "+
			"settings in Grafana", i.datasource)
	}
	for _, name := range i.options.ObjectiveLabels {
		if err := slo.CheckLabel(name); err != nil {
			return fmt.Errorf("--objective-label: %w", err)
		}
	}
	for _, g := range rules.Groups(i.options) {
		if g.Rules() > rules.MaxRules {
			return fmt.Errorf("--window: %d rules in group %s, more than the %d that Mimir takes; use fewer pairs", g.Rules(), g.Name,
				rules.MaxRules)
		}
	}
	return nil
}

// burnOver sets the pairs of windows. Without --window, the default pairs of the SRE Workbook remain.
func (i *installation) burnOver(windows []string) error {
	if windows == nil {
		return nil
	}
	pairs, err := windowPairs(windows)
	i.options.WindowPairs = pairs
	return err
}

// call sets the label values of severities.
func (i *installation) call(severities map[string]string) error {
	i.style.Severities = map[slo.Severity]string{}
	for what, value := range severities {
		s, ok := severityNames[what]
		if !ok {
			return fmt.Errorf("--severity %s=%s: severities are page, ticket and info", what, value)
		}
		if value == "" {
			return fmt.Errorf("--severity %s needs a value: without a value, no alert is routed", what)
		}
		i.style.Severities[s] = value
	}
	return nil
}

// checkLabels returns an error for labels that cannot be renamed as requested.
func checkLabels(labels map[string]string) error {
	for from, to := range labels {
		if !slices.Contains(rules.Renamable(), from) {
			return fmt.Errorf("--label %s: only %s can be renamed; the exporter sets the others itself", from, strings.Join(rules.Renamable(), ", "))
		}
		if err := slo.CheckLabel(to); err != nil {
			return fmt.Errorf("--label %s=%s: %w", from, to, err)
		}
	}
	return nil
}

// importOpenSLO prints the objectives that can be imported, and returns an error about those that cannot.
func importOpenSLO(path string, to io.Writer) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	objectives, refused := openslo.Import(content)
	if len(objectives) > 0 {
		out, err := yaml.Marshal(map[string][]slo.Objective{"objectives": objectives})
		if err != nil {
			return err
		}
		if _, err := to.Write(out); err != nil {
			return err
		}
	}
	return refused
}

// grafanaUID matches the uids that Grafana accepts.
var grafanaUID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,40}$`)

var severityNames = map[string]slo.Severity{"page": slo.Page, "ticket": slo.Ticket, "info": slo.Info}

// windowPairs reads the values of --window.
func windowPairs(texts []string) (pairs []slo.WindowPair, err error) {
	for _, text := range texts {
		p, err := parseWindowPair(text)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, p)
	}
	return pairs, slo.CheckWindowPairs(pairs)
}

func parseWindowPair(text string) (slo.WindowPair, error) {
	bad := func(err error) (slo.WindowPair, error) {
		return slo.WindowPair{}, fmt.Errorf("--window %s: write it as 1h/5m=2%%:page: %w", text, err)
	}
	windows, rest, ok1 := strings.Cut(text, "=")
	long, short, ok2 := strings.Cut(windows, "/")
	spend, severity, ok3 := strings.Cut(rest, ":")
	if !ok1 || !ok2 || !ok3 || severityNames[severity] == 0 {
		return bad(errors.New("a part is missing"))
	}
	var p slo.WindowPair
	var err error
	if p.Long, err = slo.ParseDuration(long); err != nil {
		return bad(err)
	}
	if p.Short, err = slo.ParseDuration(short); err != nil {
		return bad(err)
	}
	if p.Spend, err = slo.ParseRatio(spend); err != nil {
		return bad(err)
	}
	p.Severity = severityNames[severity]
	return p, nil
}

// generate writes the artifacts below out or, with check, only compares them with the files there.
func generate(out string, check bool, artifacts []artifact) error {
	var drifted []error
	for _, a := range artifacts {
		content, err := a.render()
		if err != nil {
			return fmt.Errorf("%s: %w", a.path, err)
		}
		path := filepath.Join(out, filepath.FromSlash(a.path))
		old, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		switch {
		case bytes.Equal(old, content) && err == nil:
		case check:
			drifted = append(drifted, fmt.Errorf("%s differs from the code: run make generate and commit the result", a.path))
		default:
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, content, 0o644); err != nil {
				return err
			}
		}
	}
	return errors.Join(drifted...)
}
