package rules_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	amalert "github.com/prometheus/alertmanager/alert"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	promtemplate "github.com/prometheus/prometheus/template"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// crowd answers every query as a fleet would in which everything goes wrong at once: a hundred engines, and of what is
// recorded about a model twelve lines of a hundred facts.
func crowd(context.Context, string, time.Time) (promql.Vector, error) {
	var v promql.Vector
	for line := range 12 {
		for i := range 100 {
			v = append(v, promql.Sample{F: 0.5, Metric: labels.FromStrings(
				metrics.LabelPod, fmt.Sprintf("pod-%d", i), metrics.LabelServer, fmt.Sprintf("10.0.0.%d:8000", i), metrics.LabelGPUUUID, fmt.Sprintf("GPU-%d", i),
				metrics.LabelBranch, "hardware", metrics.LabelSays, "GPU {gpu_uuid} is slow", metrics.LabelFact, fmt.Sprintf("fact-%d", line),
				metrics.LabelLever, "at once: cool it", metrics.LabelLine, fmt.Sprint(line), metrics.LabelOrder, fmt.Sprintf("%02d", line), metrics.LabelUnit, string(rules.Share))})
		}
	}
	return v, nil
}

// templates loads the template of notifications into Alertmanager's own.
func templates(t *testing.T) *template.Template {
	t.Helper()
	tmpl, err := template.New()
	if err != nil {
		t.Fatal(err)
	}
	tmpl.ExternalURL = &url.URL{}
	if err := tmpl.Parse(strings.NewReader(rules.Style{}.NotificationTemplate())); err != nil {
		t.Fatal(err)
	}
	return tmpl
}

// notification renders an alert of a model as Prometheus writes it and Alertmanager sends it.
func notification(t *testing.T, a rules.FileRule, served string) string {
	t.Helper()
	render := func(text string) model.LabelValue {
		if text == "" {
			return ""
		}
		defs := "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
		data := promtemplate.AlertTemplateData(map[string]string{metrics.LabelModel: served, metrics.LabelNamespace: "prod"}, nil, "", promql.Sample{F: 1})
		out, err := promtemplate.NewTemplateExpander(t.Context(), defs+text, a.Alert, data, 0, crowd, nil, nil).Expand()
		if err != nil {
			t.Fatalf("%s: %v", a.Alert, err)
		}
		return model.LabelValue(out)
	}
	tmpl := templates(t)
	alert := &amalert.Alert{Alert: model.Alert{StartsAt: time.Now(), Labels: model.LabelSet{model.AlertNameLabel: model.LabelValue(a.Alert)}, Annotations: model.LabelSet{
		"summary": render(a.Annotations.Summary), "description": render(a.Annotations.Description), "split": render(a.Annotations.Split),
		"dashboard_url": render(a.Annotations.DashboardURL), "runbook_url": render(a.Annotations.RunbookURL)}}}
	text, err := tmpl.ExecuteTextString(`{{ template "llm.text" . }}`, tmpl.Data("llm-critical", nil, nil, "", alert))
	if err != nil {
		t.Fatalf("%s: %v", a.Alert, err)
	}
	return text
}

// A telephone shows what is wrong, what it means, where to look first and what to do; then six lines at most, none longer
// than it can be read, since when, and links to the whole. A line that is too long ends between two facts.
func TestNotificationsAreShort(t *testing.T) {
	file := rules.NewFile(rules.Groups(rules.Options{}), rules.Style{DashboardURL: "https://grafana.example/d/{uid}"})
	diagnosed := 0
	for _, g := range file.Groups {
		for _, a := range g.Rules {
			if a.Alert == "" {
				continue
			}
			text := notification(t, a, "m")
			before, rest, ok := strings.Cut(text, "\nSince ")
			if !ok || !strings.Contains(rest, "\nLook: https://grafana.example/d/") || !strings.Contains(rest, "\nDo: ") {
				t.Errorf("%s: no time, no dashboard or no runbook:\n%s", a.Alert, text)
			}
			lines := strings.Split(strings.TrimSpace(before), "\n")
			evidence := lines[2:] // after summary and description
			if strings.TrimSpace(a.Annotations.Split) == "" {
				if len(evidence) != 0 {
					t.Errorf("%s: %d lines without a split", a.Alert, len(lines))
				}
				continue
			}
			if strings.HasPrefix(evidence[0], "Look first at: hardware.") && strings.HasPrefix(evidence[1], "Do first, ") {
				diagnosed++
			}
			if len(evidence) == 0 || len(evidence) > 6 {
				t.Errorf("%s: %d lines of evidence", a.Alert, len(evidence))
			}
			for _, l := range evidence {
				if utf8.RuneCountInString(l) > 302 || strings.HasSuffix(l, "…") && !strings.HasSuffix(l, " …") {
					t.Errorf("%s: a line of %d characters: %s", a.Alert, utf8.RuneCountInString(l), l)
				}
			}
		}
	}
	if diagnosed != 2 {
		t.Errorf("%d alerts say where to look first", diagnosed)
	}
}

// A model's name is whatever its engine says. It calls nobody in a chat, and hides no address behind a word.
func TestNotificationsTakeNamesAsText(t *testing.T) {
	for _, g := range rules.NewFile(rules.Groups(rules.Options{}), rules.Style{}).Groups {
		for _, a := range g.Rules {
			if a.Alert == "" {
				continue
			}
			text := notification(t, a, `m<!channel>[click](http://evil.example)<http://evil.example|click>{{ .Labels }}$1`)
			if strings.ContainsAny(text, "<>") || strings.Contains(text, "](") {
				t.Errorf("%s: %s", a.Alert, text)
			}
		}
	}
}

// A page whose first line was corrected is not resolved, and began when it did.
func TestCorrectedPageGoesOn(t *testing.T) {
	tmpl := templates(t)
	now := time.Now().Add(-time.Second)
	page := func(suspect, summary string, began, ended time.Time) *amalert.Alert {
		return &amalert.Alert{Alert: model.Alert{
			StartsAt: began, EndsAt: ended, Labels: model.LabelSet{model.AlertNameLabel: "LLMErrorBudgetFastBurn", metrics.LabelSuspect: model.LabelValue(suspect)},
			Annotations: model.LabelSet{"summary": model.LabelValue(summary), "split": "Look first at: " + model.LabelValue(suspect) + ". It is.\n", "since": "22:11 UTC"},
		}}
	}
	was, is := page("queueing", "30% fail", now.Add(-3*time.Minute), now), page("memory", "40% fail", now, time.Time{})
	for _, name := range []string{"llm.text", "llm.title"} {
		text, err := tmpl.ExecuteTextString(`{{ template "`+name+`" . }}`, tmpl.Data("llm-critical", nil, nil, "", was, is))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "Resolved") || strings.Contains(text, "30%") || !strings.Contains(text, "ince 22:11 UTC") || strings.Count(text, "40%") != 1 {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	is.EndsAt = now
	text, err := tmpl.ExecuteTextString(`{{ template "llm.text" . }}`, tmpl.Data("llm-critical", nil, nil, "", is))
	if err != nil || !strings.Contains(text, "Resolved "+now.Format("15:04 MST")+": 40% fail") {
		t.Errorf("%v:\n%s", err, text)
	}
}
