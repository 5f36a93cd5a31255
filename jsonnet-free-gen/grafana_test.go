package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/alerting"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
	"go.yaml.in/yaml/v3"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// grafanaTest is a group as Grafana reads it.
type grafanaTest struct {
	Name, Folder, Interval string
	Rules                  []struct {
		UID, Title, Condition, For string
		NoDataState                string `yaml:"noDataState"`
		ExecErrState               string `yaml:"execErrState"`
		KeepFiringFor              string `yaml:"keepFiringFor"`
		Data                       []struct {
			RefID         string `yaml:"refId"`
			DatasourceUID string `yaml:"datasourceUid"`
			Model         struct {
				Expr, Type, Expression string
				Instant                bool
			}
		}
		Labels, Annotations map[string]string
	}
}

// documents decodes the documents of a file.
func documents[T any](t *testing.T, path string) []T {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(string(read(t, path))))
	var all []T
	for {
		var one T
		if decoder.Decode(&one) != nil {
			return all
		}
		all = append(all, one)
	}
}

// promRules returns the rules for Prometheus by name.
func promRules(t *testing.T, path string) (alerts map[string]rules.FileRule, intervals, records map[string]string) {
	t.Helper()
	alerts, intervals, records = map[string]rules.FileRule{}, map[string]string{}, map[string]string{}
	for _, g := range documents[rules.File](t, path)[0].Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				alerts[r.Alert], intervals[r.Alert] = r, g.Interval
				continue
			}
			records[g.Name+g.Interval+r.Record+r.Expr] = r.Record
		}
	}
	return alerts, intervals, records
}

// Grafana and its operator get every alert with the query, labels and times that Prometheus gets, and Prometheus keeps every
// recording rule and no alert.
func TestGrafanaHasEveryRule(t *testing.T) {
	want, intervals, records := promRules(t, filepath.Join(render(t, "--format", "prometheus"), "rules.yaml"))
	provisioned := render(t, "--format", "grafana", "--datasource", "mimir-1", "--name", "llm")
	files := documents[struct {
		APIVersion int `yaml:"apiVersion"`
		Groups     []grafanaTest
	}](t, filepath.Join(provisioned, "provisioning", "alerting", "llm.yaml"))
	if files[0].APIVersion != 1 {
		t.Errorf("apiVersion %d", files[0].APIVersion)
	}
	resources := render(t, "--format", "grafana-operator", "--datasource", "mimir-1", "--name", "llm", "--grafana-label", "team=infra")
	var ofOperator []grafanaTest
	for _, o := range documents[struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Spec       struct {
			FolderRef        string `yaml:"folderRef"`
			InstanceSelector struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			} `yaml:"instanceSelector"`
			grafanaTest `yaml:",inline"`
		}
	}](t, filepath.Join(resources, "grafanaalertrulegroups.yaml")) {
		if o.APIVersion != "grafana.integreatly.org/v1beta1" || o.Spec.InstanceSelector.MatchLabels["team"] != "infra" {
			t.Errorf("%s %s of %s selects %v", o.Kind, o.Metadata.Name, o.APIVersion, o.Spec.InstanceSelector)
		}
		if o.Kind == "GrafanaAlertRuleGroup" {
			o.Spec.Folder = o.Spec.FolderRef
			ofOperator = append(ofOperator, o.Spec.grafanaTest)
		}
	}
	for name, groups := range map[string][]grafanaTest{"grafana": files[0].Groups, "grafana-operator": ofOperator} {
		got := map[string]bool{}
		for _, g := range groups {
			for _, r := range g.Rules {
				a, ok := want[r.Title]
				if !ok || got[r.Title] || r.UID != r.Title || !grafanaUID.MatchString(r.UID) {
					t.Errorf("%s: %s with uid %s is no alert, or was there", name, r.Title, r.UID)
					continue
				}
				got[r.Title] = true
				if name == "grafana" && r.KeepFiringFor != a.Keep {
					t.Errorf("%s: %s keeps firing for %q, want %q", name, r.Title, r.KeepFiringFor, a.Keep)
				}
				fixed := maps.Clone(a.Labels)
				delete(fixed, metrics.LabelSuspect) // only a query finds this label, and Grafana's labels cannot query
				if g.Folder != "llm" || g.Interval != intervals[r.Title] || strings.TrimPrefix(r.For, "0s") != a.For || !maps.Equal(r.Labels, fixed) {
					t.Errorf("%s: %s in %s every %s for %s with %v", name, r.Title, g.Folder, g.Interval, r.For, r.Labels)
				}
				if len(r.Data) != 3 || r.Condition != r.Data[2].RefID || r.Data[2].Model.Expression != r.Data[1].RefID ||
					!strings.Contains(r.Data[1].Model.Expression, "$"+r.Data[0].RefID) {
					t.Errorf("%s: %s: condition %s does not lead to the query: %v", name, r.Title, r.Condition, r.Data)
				}
				if q := r.Data[0]; q.Model.Expr != a.Expr || !q.Model.Instant || q.DatasourceUID != "mimir-1" {
					t.Errorf("%s: %s asks %s for %.80s", name, r.Title, q.DatasourceUID, q.Model.Expr)
				}
				if r.NoDataState != "OK" || r.ExecErrState != "Error" {
					t.Errorf("%s: %s is %s without data and %s when the query fails", name, r.Title, r.NoDataState, r.ExecErrState)
				}
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d alerts, want %d", name, len(got), len(want))
		}
	}
	alerts, _, kept := promRules(t, filepath.Join(provisioned, "rules.yaml"))
	if len(alerts) > 0 || !maps.Equal(kept, records) {
		t.Errorf("Prometheus gets %d alerts and %d of %d recording rules", len(alerts), len(kept), len(records))
	}
	count := 0
	for _, part := range documents[struct{ Spec rules.File }](t, filepath.Join(resources, "prometheusrule.yaml")) {
		for _, g := range part.Spec.Groups {
			count += len(g.Rules)
		}
	}
	if count != len(records) {
		t.Errorf("the PrometheusRule has %d rules, want %d", count, len(records))
	}
}

// Grafana reads the same texts from the annotations as Prometheus, with all labels and without any. Both programs
// expand the texts with Prometheus' templates, but Grafana's templates print something for a missing label and
// query nothing.
func TestGrafanaTexts(t *testing.T) {
	want, _, _ := promRules(t, filepath.Join(render(t, "--format", "prometheus"), "rules.yaml"))
	grafana := documents[struct{ Groups []grafanaTest }](t, filepath.Join(render(t, "--format", "grafana"), "provisioning", "alerting",
		"llm-node-exporter.yaml"))[0]
	at, err := url.Parse("https://grafana.example/sub/")
	if err != nil {
		t.Fatal(err)
	}
	expand := func(text string, data any, options ...string) string {
		out, err := template.NewTemplateExpander(context.Background(), text, "x", data, 0,
			func(context.Context, string, time.Time) (promql.Vector, error) { return nil, nil }, at, options).Expand()
		if err != nil {
			t.Errorf("%v in %s", err, text)
		}
		return strings.ReplaceAll(out, "<no value>", "[no value]")
	}
	type value struct{ Value float64 }
	used := regexp.MustCompile(`labels[. ]+"?(\w+)`)
	plain := map[string]rules.Annotations{} // Grafana's version of alerts whose texts query in other systems
	for _, g := range rules.NewFile(rules.Groups(rules.Options{}), rules.Style{}).Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				a := *r.Annotations
				a.Summary, a.RunbookURL, a.DashboardURL = a.Plain.Summary, a.Plain.RunbookURL, a.Plain.DashboardURL
				plain[r.Alert] = a
			}
		}
	}
	for _, g := range grafana.Groups {
		for _, r := range g.Rules {
			a := *want[r.Title].Annotations
			if strings.Contains(a.Summary, "query") {
				a.Summary, a.RunbookURL = plain[r.Title].Summary, plain[r.Title].RunbookURL
			}
			full := map[string]string{}
			for _, m := range used.FindAllStringSubmatch(strings.Join([]string{a.Summary, a.Description, a.RunbookURL}, " "), -1) {
				full[m[1]] = "a b"
			}
			for _, labels := range []map[string]string{full, {}} {
				ours := func(text string) string {
					return expand("{{- $labels := .Labels -}}{{- $values := .Values -}}{{- $value := .Value -}}"+text,
						map[string]any{"Labels": labels, "Values": map[string]value{"A": {0.5}}, "Value": "[ var='A' value=0.5 ]"}, "missingkey=invalid")
				}
				for name, text := range map[string]string{"summary": a.Summary, "description": a.Description, "runbook_url": a.RunbookURL} {
					prometheus := expand("{{- $labels := .Labels -}}{{- $value := .Value -}}"+text, map[string]any{"Labels": labels, "Value": 0.5})
					if got := ours(r.Annotations[name]); got != prometheus {
						t.Errorf("%s: %s with %v is %q, want %q", r.Title, name, labels, got, prometheus)
					}
				}
				link := ours(r.Annotations["dashboard_url"])
				if !strings.HasPrefix(link, "https://grafana.example/sub/d/llm-") || strings.ContainsAny(link, " <[") {
					t.Errorf("%s leads to %q", r.Title, link)
				}
				if split := ours(r.Annotations["split"]); (a.Split != "") != strings.Contains(split, link) {
					t.Errorf("%s: the split is %q", r.Title, split)
				}
			}
			for name, text := range r.Annotations {
				if strings.Contains(text, "${") || strings.Contains(text, "| query") {
					t.Errorf("%s: %s would be replaced or asked: %s", r.Title, name, text)
				}
			}
		}
	}
}

// A query that fails or finds nothing leaves no value, or a value that is not a number. Grafana still expands the
// texts, and no text claims a number then. A link opens the last hour, like the dashboard that it opens.
func TestGrafanaTextsWithoutAValue(t *testing.T) {
	grafana := documents[struct{ Groups []grafanaTest }](t, filepath.Join(render(t, "--format", "grafana"), "provisioning", "alerting",
		"llm-node-exporter.yaml"))[0]
	type value struct{ Value float64 }
	guarded := 0
	for _, g := range grafana.Groups {
		for _, r := range g.Rules {
			for name, text := range r.Annotations {
				for i, labels := range []map[string]string{
					{},
					{"model_name": "llama", "slo": "ttft", "reason": "held_back"},
					{},
					{"model_name": "llama"},
				} {
					values := map[string]value{}
					if i > 1 {
						values["A"] = value{math.NaN()}
					}
					out, err := template.NewTemplateExpander(context.Background(),
						"{{- $labels := .Labels -}}{{- $values := .Values -}}{{- $value := .Value -}}"+text, "x",
						map[string]any{"Labels": labels, "Values": values, "Value": ""}, 0, nil, &url.URL{}, []string{"missingkey=invalid"}).Expand()
					if err != nil || strings.Contains(out, "no value>") || out == "" {
						t.Errorf("%s: %s is %q: %v", r.Title, name, out, err)
					}
					if strings.Contains(text, "$value") {
						guarded++
						if want := r.Title + " has no value: its query failed or found nothing."; out != want {
							t.Errorf("%s: %s is %q, want %q", r.Title, name, out, want)
						}
					}
					if name == "dashboard_url" && !strings.Contains(out, "from=now-1h") {
						t.Errorf("%s opens %s", r.Title, out)
					}
				}
			}
		}
	}
	if guarded < 20 {
		t.Errorf("%d texts have a value", guarded)
	}
}

// Each dashboard reaches Grafana's operator as the file that Grafana would load, and Perses with every panel and query.
func TestDashboardsOfOtherFormats(t *testing.T) {
	classic := render(t, "--format", "grafana")
	operator := render(t, "--format", "operator", "--dashboards", "grafana-operator", "--grafana-label", "team=infra")
	perses := render(t, "--format", "prometheus", "--dashboards", "perses", "--name", "llm")
	resources := render(t, "--format", "operator", "--dashboards", "perses-operator", "--meta-label", "team=infra")
	for _, b := range dashboards.All(nil) {
		uid := string(b.UID)
		file := read(t, classic, "dashboards", uid+".json")
		var object struct {
			Kind string
			Spec struct {
				JSON             string
				InstanceSelector struct{ MatchLabels map[string]string }
			}
		}
		if err := json.Unmarshal(read(t, operator, "dashboards", uid+".json"), &object); err != nil {
			t.Fatal(err)
		}
		if object.Kind != "GrafanaDashboard" || object.Spec.JSON != string(file) || object.Spec.InstanceSelector.MatchLabels["team"] != "infra" {
			t.Errorf("%s: the %s for %v does not hold the file", uid, object.Kind, object.Spec.InstanceSelector)
		}
		if text := string(read(t, perses, "dashboards", uid+".json")); !strings.Contains(text, `"kind": "Dashboard"`) ||
			!strings.Contains(text, `"project": "llm"`) {
			t.Errorf("%s is no dashboard of project llm: %.200s", uid, text)
		}
		if text := string(read(t, resources, "dashboards", uid+".json")); !strings.Contains(text, `"kind": "PersesDashboard"`) ||
			!strings.Contains(text, `"team": "infra"`) {
			t.Errorf("%s is no PersesDashboard of team infra: %.200s", uid, text)
		}
	}
}

// Options that exclude each other are refused.
func TestFormatsThatExclude(t *testing.T) {
	for want, args := range map[string][]string{
		"--fleet: Grafana evaluates":    {"--format", "grafana", "--fleet"},
		"--dashboards perses: ":         {"--format", "grafana", "--dashboards", "perses"},
		"--dashboards grafana-operator": {"--format", "grafana", "--dashboards", "grafana-operator"},
	} {
		if err := run(append(args, "--out", t.TempDir())); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// The SDK reads each rule, strictly: every field that Grafana's schema requires is there, and no other except the
// two that the SDK lacks.
func TestGrafanaRulesAreOfTheSchema(t *testing.T) {
	plugins.RegisterDefaultPlugins() // the types of queries
	path := filepath.Join(render(t, "--format", "grafana"), "provisioning", "alerting", "llm-node-exporter.yaml")
	for _, g := range documents[struct {
		Groups []struct{ Rules []map[string]any }
	}](t, path)[0].Groups {
		for _, r := range g.Rules {
			delete(r, "keepFiringFor") // a number in the API's schema, a duration in the file
			delete(r, "missing_series_evals_to_resolve")
			r["orgID"], r["folderUID"], r["ruleGroup"] = 1, "f", "g" // of the group in the file
			content, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var rule alerting.Rule
			var found cog.BuildErrors // an empty slice, not nil, if there is no error
			if err := rule.UnmarshalJSONStrict(content); err != nil && (!errors.As(err, &found) || len(found) > 0) {
				t.Errorf("%s: %v", r["title"], err)
			}
			if err := rule.Validate(); err != nil {
				t.Errorf("%s: %v", r["title"], err)
			}
		}
	}
}
