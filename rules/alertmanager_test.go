package rules_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

func alertmanager(t *testing.T) (rules.Alertmanager, []*rules.Alert) {
	t.Helper()
	alerts := rules.Alerts(rules.Groups(rules.Options{}))
	return rules.NewAlertmanager(alerts, rules.Style{}), alerts
}

// writeAlertmanager writes the configuration and its template as the generator does.
func writeAlertmanager(t *testing.T) (config, template string) {
	t.Helper()
	am, _ := alertmanager(t)
	dir := t.TempDir()
	content, err := rules.Encode(am)
	if err != nil {
		t.Fatal(err)
	}
	config, template = filepath.Join(dir, "alertmanager.yaml"), filepath.Join(dir, rules.TemplateFile)
	writeFile(t, config, content)
	writeFile(t, template, []byte(rules.Style{}.NotificationTemplate()))
	return config, template
}

func amtool(t *testing.T, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("amtool")
	if err != nil {
		t.Skip("amtool is not installed")
	}
	var stderr strings.Builder
	cmd := exec.Command(path, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("amtool %s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

func TestAmtoolAcceptsTheConfiguration(t *testing.T) {
	config, _ := writeAlertmanager(t)
	if out := amtool(t, "check-config", config); !strings.Contains(out, "SUCCESS") || !strings.Contains(out, "1 templates") {
		t.Error(out)
	}
}

func TestRoutes(t *testing.T) {
	config, _ := writeAlertmanager(t)
	routes(t, config, map[string]string{
		"alertname=LLMErrorBudgetFastBurn severity=critical":       "llm-critical",
		"alertname=LLMErrorBudgetSlowBurn severity=warning":        "llm-warning",
		"alertname=LLMGPUFailed severity=critical branch=hardware": "llm-critical",
		"alertname=LLMGPUSlowed severity=warning branch=hardware":  "llm-warning",
		"alertname=LLMModelOnFailedGPU severity=info":              "llm-null",
		"alertname=SomethingElse severity=critical":                "default", // other teams' alerts are not ours
	})
}

// routes checks the receivers to which labels lead.
func routes(t *testing.T, config string, wanted map[string]string) {
	t.Helper()
	for labels, want := range wanted {
		args := append([]string{"config", "routes", "test", "--config.file=" + config}, strings.Fields(labels)...)
		if got := strings.TrimSpace(amtool(t, args...)); got != want {
			t.Errorf("%s goes to %s, want %s", labels, got, want)
		}
	}
}

// After a merge into another configuration, our part takes our alerts, and all other alerts keep their receivers.
func TestMergedRoutes(t *testing.T) {
	part := rules.NewAlertmanagerPart(rules.Alerts(rules.Groups(rules.Options{})), rules.Style{})
	whole := rules.Alertmanager{
		Route: rules.Route{Receiver: "team", Routes: append(part.Routes, rules.Route{
			Receiver: "pager",
			Matchers: []string{`severity="critical"`},
		})},
		Inhibit:   part.Inhibit,
		Receivers: append([]rules.Receiver{{"team"}, {"pager"}}, part.Receivers...),
		Templates: []string{},
	}
	content, err := rules.Encode(whole)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "alertmanager.yaml")
	writeFile(t, config, content)
	routes(t, config, map[string]string{
		"alertname=LLMModelDown severity=critical":   "llm-critical",
		"alertname=KubeNodeDown severity=critical":   "pager",
		"alertname=KubeNodeFull severity=warning":    "team",
		"alertname=LLM severity=critical":            "pager", // the alert of another team
		"alertname=NotLLMModelDown severity=warning": "team",
	})
}

func TestNotificationReadsWell(t *testing.T) {
	_, template := writeAlertmanager(t)
	out := amtool(t, "template", "render", "--template.glob="+template,
		`--template.text={{ template "llm.title" . }}|{{ template "llm.text" . }}`)
	if strings.Contains(out, "<no value>") || !strings.Contains(out, "|") {
		t.Errorf("rendered %q", out)
	}
}

// A notification describes the firing alerts of its group. Its title is not the title of a resolved alert, and its text
// names cluster and node.
func TestNotificationOfAGroup(t *testing.T) {
	_, template := writeAlertmanager(t)
	data := filepath.Join(t.TempDir(), "data.json")
	writeFile(t, data, []byte(`{"status": "firing", "alerts": [
		{"status": "resolved", "labels": {"alertname": "a"}, "annotations": {"summary": "this is over"}, "startsAt": "2026-01-01T10:00:00Z", "endsAt": "2026-01-01T11:00:00Z"},
		{"status": "firing", "labels": {"alertname": "b", "cluster": "west"}, "annotations": {"summary": "this fires, too"}, "startsAt": "2026-01-01T11:00:00Z"},
		{"status": "firing", "labels": {"alertname": "c", "cluster": "west", "namespace": "prod", "instance": "gpu-7:9844"}, "annotations": {"summary": "this burns", "split": "Look first at: memory.\nDo first, at once: cap it.\n"}, "startsAt": "2026-01-01T11:00:00Z"}]}`))
	render := func(name string) string {
		return strings.TrimSpace(amtool(t, "template", "render", "--template.glob="+template, "--template.data="+data,
			`--template.text={{ template "`+name+`" . }}`))
	}
	if got := render("llm.title"); got != "west/prod: this burns, since 11:00 UTC" {
		t.Errorf("the title is %q", got)
	}
	if got := render("llm.text"); !strings.Contains(got, "Resolved 11:00 UTC: a.") ||
		!strings.HasPrefix(got, "Look first at: memory.\n") || !strings.Contains(got, "\nAlso: b.\n") {
		t.Errorf("the text is %q", got)
	}
}

// TestResolvedTitleIsThatOfThePage checks that a burn after a standstill does not take the standstill's name, that the title has
// no share, which is 0% by then, and that a resolved message links to the dashboard.
func TestResolvedTitleIsThatOfThePage(t *testing.T) {
	_, template := writeAlertmanager(t)
	data := filepath.Join(t.TempDir(), "data.json")
	ended := func(name, summary, split, began, since string) string {
		return fmt.Sprintf(`{"status": "resolved", "labels": {"alertname": %q, "namespace": "prod"}, "annotations": {"summary": %q, "split": %q,
			"since": %q, "dashboard_url": "https://grafana.example/d/llm-incident?from=1&var-namespace=prod"},
			"startsAt": "2026-01-01T%s:00Z", "endsAt": "2026-01-01T11:00:00Z"}`, name, summary, split, since, began)
	}
	burn := ended("b", "prod/m: 0% of requests fail (promise 0.1%)", "Look first at: memory.\n", "10:05", "09:55 UTC")
	for other, want := range map[string]string{
		ended("c", "requests hang", "", "10:00", ""): "prod: requests hang|Resolved 11:00 UTC: b.\nResolved 11:00 UTC: c.\n" +
			"Dashboard: https://grafana.example/d/llm-incident?from=1767259800000&var-namespace=prod&to=1767267000000", // half an hour before
		ended("c", "requests hang", "", "10:10", ""): "prod/m: requests fail|Resolved 11:00 UTC: b.\nResolved 11:00 UTC: c.\n" +
			"Dashboard: https://grafana.example/d/llm-incident?from=1&var-namespace=prod&to=1767267000000", // where the burn began
	} {
		writeFile(t, data, []byte(`{"status": "resolved", "alerts": [`+burn+`, `+other+`]}`))
		if got := strings.TrimSpace(amtool(t, "template", "render", "--template.glob="+template, "--template.data="+data,
			`--template.text={{ template "llm.title" . }}|{{ template "llm.text" . }}`)); got != "Resolved: "+want {
			t.Errorf("the message is %q, want %q", got, want)
		}
	}
}

var (
	matcher = regexp.MustCompile(`^(\w+)(=~|!=|=)"(.*)"$`)
	// mayBeAbsent lists labels that a whole installation may lack. If both alerts lack a label, it counts as equal.
	mayBeAbsent = []string{metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelPod, metrics.LabelInstance}
)

// Every inhibition names the muted alerts, requires the compared labels on both sides, and never reaches another
// model. A symptom mutes only its own slower form.
func TestInhibition(t *testing.T) {
	am, alerts := alertmanager(t)
	byName := map[string]*rules.Alert{}
	for _, a := range alerts {
		byName[a.Name] = a
	}
	mutesPage := 0
	for _, r := range am.Inhibit {
		source := byName[named(t, r.Source)]
		if source == nil {
			t.Errorf("%v names no alert of ours", r.Source)
			continue
		}
		for _, l := range r.Equal {
			if slices.Contains(mayBeAbsent, l) {
				continue
			}
			demand := l + `!=""`
			if !slices.Contains(r.Source, demand) || !slices.Contains(r.Target, demand) {
				t.Errorf("%s compares %s without demanding it on both sides", source.Name, l)
			}
		}
		for name := range strings.SplitSeq(named(t, r.Target), "|") {
			target := byName[name]
			if target == nil {
				t.Errorf("%s mutes %s, which does not exist", source.Name, name)
				continue
			}
			if source == target {
				t.Errorf("%s mutes itself", name)
			}
			if source.Branch == rules.Symptom && target.Branch != rules.Symptom {
				t.Errorf("the symptom %s mutes the cause %s", source.Name, name)
			}
			if slices.Contains(target.Scope, metrics.LabelModel) && source.Name != rules.ExporterFleetDown.Name &&
				!slices.Contains(r.Equal, metrics.LabelModel) && !slices.Contains(r.Equal, metrics.LabelGPUUUID) {
				t.Errorf("%s mutes %s of other models: equal %v", source.Name, name, r.Equal)
			}
			if target.Severity == slo.Page {
				mutesPage++
				if source.Severity != slo.Page && source != byName[rules.ModelOnFailedGPU.Name] { // fires only while a paging alert does
					t.Errorf("%s does not page and mutes the page %s", source.Name, name)
				}
			}
		}
	}
	if mutesPage == 0 {
		t.Error("nothing mutes a page; one incident would be several")
	}
}

func named(t *testing.T, matchers []string) string {
	t.Helper()
	for _, m := range matchers {
		if p := matcher.FindStringSubmatch(m); p != nil && p[1] == "alertname" {
			return p[3]
		}
	}
	t.Errorf("%v: no alertname", matchers)
	return ""
}

// A cause that lasts until hardware is replaced must not mute burns, because it would hide them for weeks.
func TestLastingCausesMuteNoBurn(t *testing.T) {
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
		if a.Replaces && slices.Contains([]string{rules.GPUFailed.Name, rules.GPUUnread.Name}, a.Name) {
			t.Errorf("%s replaces the page of a burn", a.Name)
		}
		if a.Replaces && a.Severity != slo.Page && a.Name != rules.ModelOnFailedGPU.Name {
			t.Errorf("%s replaces a page and does not page", a.Name)
		}
	}
}
