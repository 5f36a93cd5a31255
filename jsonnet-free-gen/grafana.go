package main

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// grafanaFile is a file that Grafana loads from provisioning/alerting.
type grafanaFile struct {
	APIVersion int            `yaml:"apiVersion"`
	Groups     []grafanaGroup `yaml:"groups"`
}

type grafanaGroup struct {
	Name     string        `yaml:"name"`
	Folder   string        `yaml:"folder"`
	Interval string        `yaml:"interval"`
	Rules    []grafanaRule `yaml:"rules"`
}

// grafanaRule is one alert, in the form for Grafana and for its operator.
type grafanaRule struct {
	UID          string            `yaml:"uid"`
	Title        string            `yaml:"title"`
	Condition    string            `yaml:"condition"`
	Data         []grafanaQuery    `yaml:"data"`
	NoDataState  string            `yaml:"noDataState"`
	ExecErrState string            `yaml:"execErrState"`
	For          string            `yaml:"for"`
	Keep         string            `yaml:"keepFiringFor,omitempty"`
	Missing      int               `yaml:"missing_series_evals_to_resolve,omitempty"`
	Labels       map[string]string `yaml:"labels"`
	Annotations  map[string]string `yaml:"annotations"`
}

type grafanaQuery struct {
	RefID      string         `yaml:"refId"`
	Range      timeRange      `yaml:"relativeTimeRange"`
	Datasource string         `yaml:"datasourceUid"`
	Model      map[string]any `yaml:"model"`
}

// timeRange is a range of time, in seconds before now.
type timeRange struct {
	From int `yaml:"from"`
	To   int `yaml:"to"`
}

// grafanaObject is a custom resource of Grafana's operator.
type grafanaObject struct {
	APIVersion string         `yaml:"apiVersion"`
	Kind       string         `yaml:"kind"`
	Metadata   metadata       `yaml:"metadata"`
	Spec       map[string]any `yaml:"spec"`
}

// ownGrafana is the address of the Grafana that expands the template. The variable may end in a slash, which is removed.
const ownGrafana = `{{ reReplaceAll "/$" "" externalURL }}/d/{uid}`

// byGrafana reports whether Grafana evaluates the alerts of a format.
func byGrafana(format string) bool { return format == "grafana" || format == "grafana-operator" }

// records returns the groups without their alerts. Prometheus must evaluate them, because a rule reads the results of
// earlier rules, and Grafana does not evaluate the rules of a group in order.
func records(groups []rules.Group) []rules.Group {
	var all []rules.Group
	for _, g := range groups {
		if g.Records != nil {
			g.Alerts = nil
			all = append(all, g)
		}
	}
	return all
}

// grafanaGroups returns the alerts as groups of Grafana-managed rules.
func (i installation) grafanaGroups() []grafanaGroup {
	if i.style.DashboardURL == "" {
		i.style.DashboardURL = ownGrafana
	}
	groups := i.groups(i.tiers()[0])
	for n := range groups {
		groups[n].Records = nil
	}
	var all []grafanaGroup
	for _, g := range rules.NewFile(groups, i.style).Groups {
		group := grafanaGroup{Name: g.Name, Folder: i.name, Interval: g.Interval}
		for _, r := range g.Rules {
			group.Rules = append(group.Rules, i.grafanaRule(r))
		}
		if group.Rules != nil {
			all = append(all, group)
		}
	}
	return all
}

// grafanaRule returns an alert that fires, as in Prometheus, while its query returns a series, whatever the value. A
// result without data is the normal state, and does not fire. If the data source does not answer, the alert is in the
// state Error.
func (i installation) grafanaRule(r rules.FileRule) grafanaRule {
	expression := func(id string, model map[string]any) grafanaQuery {
		model["refId"], model["datasource"] = id, map[string]string{"type": "__expr__", "uid": "__expr__"}
		return grafanaQuery{RefID: id, Datasource: "__expr__", Model: model}
	}
	return grafanaRule{
		UID: r.Alert, Title: r.Alert, Condition: "C", NoDataState: "OK", ExecErrState: "Error",
		For: cmp.Or(r.For, "0s"), Keep: r.Keep, Missing: 1, Labels: r.Annotations.Plain.Labels, Annotations: grafanaAnnotations(r.Alert,
			*r.Annotations),
		Data: []grafanaQuery{
			{RefID: "A", Range: timeRange{From: 600}, Datasource: i.datasource, Model: map[string]any{
				"refId": "A", "datasource": map[string]string{"type": "prometheus", "uid": i.datasource}, "expr": r.Expr,
				"instant": true, "range": false, "editorMode": "code",
			}},
			expression("B", map[string]any{"type": "math", "expression": "is_number($A) || is_nan($A) || is_inf($A)"}),
			expression("C", map[string]any{
				"type": "threshold", "expression": "B",
				"conditions": []any{map[string]any{"evaluator": map[string]any{"type": "gt", "params": []int{0}}}},
			}),
		},
	}
}

// These match the parts of Prometheus' templates that Grafana's templates need in another form. In Grafana, $value is a
// text and not a number. If a label is absent, {{ $labels.name }} prints a placeholder, but {{ index $labels "name" }}
// prints nothing.
var (
	promValue = regexp.MustCompile(`\$value\b`)
	promLabel = regexp.MustCompile(`\$labels\.(\w+)`)
)

// grafanaAnnotations returns the annotations for Grafana. Its templates cannot run queries, so a link replaces the
// split. If the query of the alert fails or finds nothing, Grafana expands the templates without a value or with NaN,
// so the templates check the value.
func grafanaAnnotations(alert string, a rules.Annotations) map[string]string {
	text := func(template string) string {
		if promValue.MatchString(template) {
			template = "{{ if and $values.A (eq $values.A.Value $values.A.Value) }}" + promValue.ReplaceAllString(template,
				"$$values.A.Value") + "{{ else }}" + alert + " has no value: its query failed or found nothing.{{ end }}"
		}
		return promLabel.ReplaceAllString(template, `(index $$labels "$1")`)
	}
	all := map[string]string{
		"summary": text(a.Plain.Summary), "description": text(a.Description),
		"runbook_url": text(a.Plain.RunbookURL), "dashboard_url": text(a.Plain.DashboardURL),
	}
	if a.Split != "" {
		all["split"] = "Grafana cannot query in an alert's text. The dashboard has the evidence: " + text(a.Plain.DashboardURL)
	}
	return all
}

func (i installation) grafanaAlerts() ([]byte, error) {
	content, err := rules.Encode(grafanaFile{APIVersion: 1, Groups: i.grafanaGroups()})
	return append([]byte(generatedYAML+"# Needs Grafana 12 or newer, and rules.yaml in the Prometheus behind the data source.\n"),
		content...), err
}

// grafanaDashboards returns the provisioning file from which Grafana learns where the dashboards are.
func (i installation) grafanaDashboards() ([]byte, error) {
	type options struct {
		Path string `yaml:"path"`
	}
	type provider struct {
		Name    string  `yaml:"name"`
		Folder  string  `yaml:"folder"`
		Type    string  `yaml:"type"`
		Options options `yaml:"options"`
	}
	content, err := rules.Encode(struct {
		APIVersion int        `yaml:"apiVersion"`
		Providers  []provider `yaml:"providers"`
	}{1, []provider{{i.name, i.name, "file", options{"/var/lib/grafana/dashboards/llm"}}}})
	return append([]byte(generatedYAML), content...), err
}

// grafanaResource returns a custom resource of Grafana's operator, for the Grafana that its labels select.
func (i installation) grafanaResource(kind, name string, spec map[string]any) grafanaObject {
	spec["instanceSelector"] = map[string]any{"matchLabels": i.grafanaLabels}
	return grafanaObject{"grafana.integreatly.org/v1beta1", kind, metadata{Name: name, Labels: i.metaLabels}, spec}
}

// grafanaResources returns the folder and the alerts for Grafana's operator.
func (i installation) grafanaResources() ([]byte, error) {
	objects := []grafanaObject{i.grafanaResource("GrafanaFolder", i.name, map[string]any{"title": i.name})}
	for _, g := range i.grafanaGroups() {
		for n := range g.Rules { // operators up to 5.18 refuse these fields
			g.Rules[n].Keep, g.Rules[n].Missing = "", 0
		}
		objects = append(objects, i.grafanaResource("GrafanaAlertRuleGroup", g.Name, map[string]any{
			"folderRef": i.name,
			"interval":  g.Interval, "rules": g.Rules,
		}))
	}
	var documents [][]byte
	for _, o := range objects {
		content, err := rules.Encode(o)
		if err != nil {
			return nil, err
		}
		documents = append(documents, content)
	}
	return slices.Concat([]byte(generatedYAML), bytes.Join(documents, []byte("---\n"))), nil
}
