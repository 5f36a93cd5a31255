package rules_test

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
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

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
)

// crowd answers every query like a fleet in which everything fails at once: a hundred engines, and twelve series of a
// hundred facts for each record of a model.
func crowd(value float64, unit rules.Unit) promtemplate.QueryFunc {
	return func(context.Context, string, time.Time) (promql.Vector, error) { return everything(value, unit), nil }
}

// beside returns another alert of the same group.
func beside(name string) *amalert.Alert {
	return &amalert.Alert{Alert: model.Alert{StartsAt: time.Now(), Labels: model.LabelSet{model.AlertNameLabel: model.LabelValue(name)}}}
}

// longNamed is a crowd with names of the maximum length in Kubernetes, and with a lever of many words.
func longNamed(context.Context, string, time.Time) (v promql.Vector, err error) {
	for _, s := range everything(0.5, rules.Share) {
		b := labels.NewBuilder(s.Metric)
		b.Set(metrics.LabelPod, strings.Repeat("x", 60)+s.Metric.Get(metrics.LabelPod)[:3])
		b.Set(metrics.LabelLever, "at once: "+strings.Repeat("cool the room in which it stands and ", 4)+"wait")
		v = append(v, promql.Sample{F: s.F, Metric: b.Labels()})
	}
	return v, nil
}

func everything(value float64, unit rules.Unit) (v promql.Vector) {
	for line := range 12 {
		for i := range 100 {
			v = append(v, promql.Sample{F: value, Metric: labels.FromStrings(
				metrics.LabelPod, fmt.Sprintf("pod-%d", i), metrics.LabelServer, fmt.Sprintf("10.0.0.%d:8000", i), metrics.LabelGPUUUID,
				fmt.Sprintf("GPU-%d", i),
				metrics.LabelBranch, "hardware", metrics.LabelModel, "llama", metrics.LabelSays, "GPU {gpu_uuid} is slow {value}",
				metrics.LabelVersion, fmt.Sprintf("0.%d.0", i), metrics.LabelFact, fmt.Sprintf("fact-%d", line),
				metrics.LabelLever, "at once: cool it", metrics.LabelOrder, fmt.Sprintf("%02d", line), metrics.LabelUnit, string(unit),
				metrics.LabelPeriod, "30d")})
		}
	}
	return v
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
func notification(t *testing.T, a rules.FileRule, served string) (title, text string) {
	t.Helper()
	return notificationOf(t, a, map[string]string{metrics.LabelModel: served, metrics.LabelNamespace: "prod"}, 1, crowd(0.5, rules.Share))
}

// notificationOf renders an alert with these labels and this value, whose text queries a Prometheus, before others of its group.
func notificationOf(t *testing.T, a rules.FileRule, labels map[string]string, value float64, ask promtemplate.QueryFunc,
	others ...*amalert.Alert,
) (title, text string) {
	t.Helper()
	render := func(text string) model.LabelValue {
		if text == "" {
			return ""
		}
		defs := "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
		data := promtemplate.AlertTemplateData(labels, nil, "", promql.Sample{F: value})
		out, err := promtemplate.NewTemplateExpander(t.Context(), defs+text, a.Alert, data, 0, ask, nil, nil).Expand()
		if err != nil {
			t.Fatalf("%s: %v", a.Alert, err)
		}
		return model.LabelValue(out)
	}
	tmpl := templates(t)
	alert := &amalert.Alert{Alert: model.Alert{
		StartsAt: time.Now(),
		Labels:   model.LabelSet{model.AlertNameLabel: model.LabelValue(a.Alert)}, Annotations: model.LabelSet{
			"summary": render(a.Annotations.Summary), "description": render(a.Annotations.Description), "split": render(a.Annotations.Split),
			"dashboard_url": render(a.Annotations.DashboardURL), "runbook_url": render(a.Annotations.RunbookURL),
		},
	}}
	for name, value := range labels {
		alert.Labels[model.LabelName(name)] = model.LabelValue(value)
	}
	part := func(name string) string {
		out, err := tmpl.ExecuteTextString(`{{ template "`+name+`" . }}`, tmpl.Data("llm-critical", nil, nil, "",
			append([]*amalert.Alert{alert}, others...)...))
		if err != nil {
			t.Fatalf("%s: %v", a.Alert, err)
		}
		return out
	}
	return part("llm.title"), part("llm.text")
}

// A telephone shows a title and at most eight lines, 600 characters together, even if a hundred engines fail at once:
// where to look first or the meaning, the evidence, and both links. Long names cost evidence. A line that is too long ends
// between two facts; where to look and what to do are never cut.
func TestNotificationsAreShort(t *testing.T) {
	for _, at := range []string{"https://llm.example", "http://llm-node-exporter-cluster.monitoring.svc:9844"} {
		t.Run(at, func(t *testing.T) { areShort(t, at) })
	}
}

// areShort checks messages whose runbooks are served at an address.
func areShort(t *testing.T, at string) {
	t.Helper()
	file := rules.NewFile(rules.Groups(rules.Options{}), rules.Style{
		DashboardURL: "https://grafana.example/d/{uid}",
		RunbookURL:   at + "/runbooks/{alert}{labels}",
	})
	diagnosed := 0
	for _, g := range file.Groups {
		for _, a := range g.Rules {
			if a.Alert == "" {
				continue
			}
			if strings.Contains(a.Annotations.Split, "Look first at: "+string(rules.Symptom)) {
				t.Errorf("%s: a symptom is no place to look", a.Alert)
			}
			of := map[string]string{metrics.LabelModel: "llama-3.1-8b-chat", metrics.LabelNamespace: "prod"}
			_, long := notificationOf(t, a, of, 1, longNamed)
			title, text := notificationOf(t, a, of, 1, crowd(0.5, rules.Share))
			published := map[string]string{
				metrics.LabelModel: "meta-llama/Llama-3.1-8B-Instruct", metrics.LabelNamespace: "prod", metrics.LabelCluster: "eu-west-1",
			}
			longTitle, longText := notificationOf(t, a, published, 1, crowd(0.5, rules.Share), beside(a.Alert), beside("LLMReplicaSkew"))
			if n := utf8.RuneCountInString(longTitle + longText); n > 600 {
				t.Errorf("%s: %d characters with the names of a published model:\n%s\n%s", a.Alert, n, longTitle, longText)
			}
			lines := strings.Split(strings.TrimSpace(text), "\n")
			_, together := notificationOf(t, a, of, 1, crowd(0.5, rules.Share), beside(a.Alert), beside("LLMReplicaSkew"))
			for _, text := range []string{text, together} {
				if n, lines := utf8.RuneCountInString(title+text), 2+strings.Count(strings.TrimSpace(text), "\n"); lines > 8 || n > 600 ||
					strings.Contains(title, "\n") {
					t.Errorf("%s: %d lines and %d characters:\n%s\n%s", a.Alert, lines, n, title, text)
				}
			}
			if strings.Contains(title, ", since ") == strings.Contains(title, "(in 6h, ") ||
				!strings.Contains(text, "\nDashboard: https://grafana.example/d/") ||
				!strings.Contains(text, "\nRunbook: ") || !strings.Contains(text, "/runbooks/") {
				t.Errorf("%s: no time, no dashboard or no runbook:\n%s\n%s", a.Alert, title, text)
			}
			if strings.HasPrefix(lines[0], "Look first at: ") && strings.HasPrefix(lines[1], "Do first, ") {
				diagnosed++
			} else if a.Labels[rules.SeverityLabel] == "critical" && runbooks.FirstLever(a.Alert) != "" {
				t.Errorf("%s pages, and says neither where to look nor what to do:\n%s", a.Alert, text)
			}
			for _, l := range append(lines, strings.Split(long, "\n")...) {
				if strings.HasSuffix(l, "…") && (!strings.HasSuffix(l, " …") || len(l) < 70 || strings.HasPrefix(l, "Look first") ||
					strings.HasPrefix(l, "Do first")) {
					t.Errorf("%s: a fact is cut: %s", a.Alert, l)
				}
			}
		}
	}
	if diagnosed != 10 {
		t.Errorf("%d alerts say where to look first", diagnosed)
	}

	// A third digit changes no decision.
	for unit, value := range map[rules.Unit]float64{rules.Share: 0.90284, rules.Decimal: 1.2468, rules.Seconds: 4647.21, rules.Count: 123456} {
		for _, g := range file.Groups {
			for _, a := range g.Rules {
				if a.Alert == "" {
					continue
				}
				title, text := notificationOf(t, a, map[string]string{metrics.LabelModel: "m", metrics.LabelNamespace: "prod"}, value,
					crowd(value, unit))
				for _, m := range amount.FindAllStringSubmatch(address.ReplaceAllString(title+"\n"+text, ""), -1) {
					if digits := strings.Trim(strings.ReplaceAll(m[1], ".", ""), "0"); len(digits) > 2 {
						t.Errorf("%s of %g as %s: %q has more than two digits that count:\n%s\n%s", a.Alert, value, unit, m[0], title, text)
					}
				}
			}
		}
	}
}

// TestLongMessagesKeepWhatIsNeeded checks that a message loses a line that a reader can do without only if it would have more
// than 600 characters, whatever makes it long: names, a description, addresses or alerts that ended.
func TestLongMessagesKeepWhatIsNeeded(t *testing.T) {
	needed := []string{"Look first at: memory. The KV cache is full.", "Do first, at once: shed load."}
	tmpl := templates(t)
	for _, optional := range []string{
		"Changed: output tokens 180 → 1.1k.", "Changed in 6h: version 1 → 2 on 4.",
		"Load: 130% of the load that meets the objectives.", "Your dashboard: https://a.example",
	} {
		for ended := range 4 {
			kept, lost := 0, 0
			for long := ended; long < 500; long += 4 { // over all four numbers of ended alerts, each length once
				group := []*amalert.Alert{beside("LLMErrorBudgetFastBurn")}
				group[0].Labels[metrics.LabelNamespace], group[0].Labels[metrics.LabelModel] = "prod", "llama"
				group[0].Annotations = model.LabelSet{
					"summary": model.LabelValue(strings.Repeat("x", long)), "split": model.LabelValue(strings.Join(append(needed, optional, ""), "\n")),
					"runbook_url": "http://llm.monitoring.svc:9844/runbooks/a", "dashboard_url": "https://grafana.example/d/llm-incident?from=1",
				}
				for range ended {
					over := beside("LLMEngineStalled")
					over.EndsAt = time.Now().Add(-time.Minute)
					group = append(group, over)
				}
				render := func(name string) string {
					out, err := tmpl.ExecuteTextString(`{{ template "`+name+`" . }}`, tmpl.Data("llm-critical", nil, nil, "", group...))
					if err != nil {
						t.Fatal(err)
					}
					return out
				}
				text := render("llm.text")
				length := utf8.RuneCountInString(render("llm.title") + text)
				if strings.Contains(text, optional) {
					kept++
				} else if lost++; length+utf8.RuneCountInString(optional+"\n") <= 600 {
					t.Fatalf("%q is lost from %d characters:\n%s", optional, length, text)
				}
				if length > 600 && strings.Contains(text, optional) || !strings.Contains(text, strings.Join(needed, "\n")) ||
					strings.Count(text, "\nResolved ") != ended {
					t.Fatalf("%d characters:\n%s", length, text)
				}
			}
			if kept == 0 || lost == 0 {
				t.Errorf("%q is kept in %d messages and lost from %d", optional, kept, lost)
			}
		}
	}
}

// TestAPageNamesTheCauseThatLedLongest checks that a page after the cause has ended names the cause of most minutes, not one that
// led for a moment, although its sentence changed with each value.
func TestAPageNamesTheCauseThatLedLongest(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	of := map[string]string{metrics.LabelModel: "llama", metrics.LabelNamespace: "prod", metrics.LabelSLO: "ttft"}
	for minute := range 30 {
		at := rulesim.Epoch.Add(time.Duration(minute) * time.Minute)
		if err := sim.Append(at, func(emit rulesim.Emit) {
			order, clue, says := 40.0, "queue_long", fmt.Sprintf("%d wait", minute)
			switch {
			case minute >= 25:
				return
			case minute == 12:
				order, clue, says = 10, "engine_down", "llama-1 stopped answering in the last hour"
			}
			emit(series(metrics.RecordedVerdict.Name, metrics.LabelModel, "llama", metrics.LabelNamespace, "prod", metrics.LabelSLO, "ttft",
				metrics.LabelClue, clue, metrics.LabelSays, says, metrics.LabelBranch, "queueing"), order)
		}); err != nil {
			t.Fatal(err)
		}
	}
	now := rulesim.Epoch.Add(30 * time.Minute)
	ask := func(_ context.Context, q string, _ time.Time) (promql.Vector, error) { return sim.Query(q, now) }
	if _, text := notificationOf(t, alertOf(t, "LLMErrorBudgetFastBurn"), of, 1, ask); !strings.Contains(text, ". Earlier: ") ||
		!strings.Contains(text, " wait.") {
		t.Error(text)
	}
}

// TestEvidenceOutlivesExplanations checks that a message that is too long loses a sentence of explanation before it loses
// which replica is meant.
func TestEvidenceOutlivesExplanations(t *testing.T) {
	tmpl := templates(t)
	page := beside("LLMModelStalled")
	page.Labels[metrics.LabelNamespace], page.Labels[metrics.LabelModel] = "prod", "llama"
	page.Annotations = model.LabelSet{
		"summary": model.LabelValue(strings.Repeat("x", 300)),
		"split": "Look first at: engine. These replicas compute nothing. They may share a request, a release, storage or the network.\n" +
			"Do first, at once: stop retries.\nStalled: llama-0.\n",
		"runbook_url": "https://llm.example/runbooks/LLMModelStalled", "dashboard_url": "https://grafana.example/d/llm-incident?from=1",
	}
	text, err := tmpl.ExecuteTextString(`{{ template "llm.text" . }}`, tmpl.Data("llm-critical", nil, nil, "", page))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "\nStalled: llama-0.\n") || strings.Contains(text, "They may share") ||
		!strings.Contains(text, "compute nothing.") {
		t.Errorf("the message has %d characters:\n%s", utf8.RuneCountInString(text), text)
	}
}

var (
	address = regexp.MustCompile(`(?m)\S+://\S+|^.*all\.$|port-forward \S+ \d+`)
	amount  = regexp.MustCompile(`(?:^|[\s(])(\d+(?:\.\d+)?)(?:[kMGT]?%|[kMGT]?x?|[KMGT]i?B|[dhms]|ms)(?:[\s,.;)]|$)`)
)

// A message about a GPU or an engine begins with the model that runs there, and names the GPU as its node does.
func TestAlertsNameTheModel(t *testing.T) {
	const onNode, uuid = "gpu-node-1", "GPU-3f2a91bc-0000-4000-8000-000000000001"
	failed := map[string]string{
		metrics.LabelGPU: "3", metrics.LabelGPUUUID: uuid, metrics.LabelInstance: onNode,
		metrics.LabelReason: "xid_79", metrics.LabelMeaning: "GPU has fallen off the bus (XID 79)",
	}
	unlisted := map[string]string{metrics.LabelGPUUUID: uuid, metrics.LabelInstance: onNode}
	engine := map[string]string{
		metrics.LabelNamespace: "prod", metrics.LabelPod: "llama-0", metrics.LabelServer: "10.0.0.1:8000",
		metrics.LabelInstance: onNode,
	}
	for _, c := range []struct {
		alert, served string
		labels        map[string]string
		want          string
	}{
		{"LLMGPUFailed", "llama-70b", failed, "prod/llama-70b: GPU 3 on gpu-node-1 "},
		{"LLMGPUSlowed", "llama-70b", failed, "prod/llama-70b: GPU 3 on gpu-node-1 "},
		{"LLMGPUSlowed", strings.Repeat("long", 13), failed, "GPU 3 on gpu-node-1 "},
		{"LLMGPUFailed", "llama-70b", unlisted, "prod/llama-70b: GPU 3f2a91bc on gpu-node-1 "},
		{"LLMEngineCrashLoop", "llama-70b", engine, "prod/llama-70b: Engine llama-0 restarted "},
	} {
		runs := func(context.Context, string, time.Time) (promql.Vector, error) {
			return promql.Vector{{F: 1, Metric: labels.FromStrings(metrics.LabelModel, c.served, metrics.LabelNamespace, "prod")}}, nil
		}
		title, _ := notificationOf(t, alertOf(t, c.alert), c.labels, 3, runs)
		if !strings.HasPrefix(title, c.want) {
			t.Errorf("%s: %q, want it to begin with %q", c.alert, title, c.want)
		}
	}
}

// alertOf returns a generated alert.
func alertOf(t *testing.T, name string) rules.FileRule {
	t.Helper()
	for _, g := range rules.NewFile(rules.Groups(rules.Options{}), rules.Style{}).Groups {
		for _, a := range g.Rules {
			if a.Alert == name {
				return a
			}
		}
	}
	t.Fatalf("no alert is named %s", name)
	return rules.FileRule{}
}

// TestTitlesHaveTheCluster checks that a title begins with the cluster, even if Prometheus adds the cluster as an external
// label, which the templates of rules do not see.
func TestTitlesHaveTheCluster(t *testing.T) {
	for summary, want := range map[string]string{
		"prod/llama: 5% of requests fail":           "eu-1/prod/llama: 5% of requests fail, since ",
		"eu-1/prod/llama: 5% of requests fail":      "eu-1/prod/llama: 5% of requests fail, since ",
		"prod/llama at the gateway: 5% fail":        "eu-1/prod/llama at the gateway: 5% fail, since ",
		"No request is answered: no engine is left": "eu-1/prod/llama: No request is answered: no engine is left, since ",
	} {
		a := beside("LLMModelDown")
		a.Annotations = model.LabelSet{"summary": model.LabelValue(summary)}
		maps.Copy(a.Labels, model.LabelSet{metrics.LabelCluster: "eu-1", metrics.LabelNamespace: "prod", metrics.LabelModel: "llama"})
		title, err := templates(t).ExecuteTextString(`{{ template "llm.title" . }}`, templates(t).Data("llm-critical", nil, nil, "", a))
		if err != nil || !strings.HasPrefix(title, want) {
			t.Errorf("%q: %q, want %q: %v", summary, title, want, err)
		}
	}
}

// An engine chooses its model's name. The name must not mention anybody in a chat, or hide an address behind a word.
func TestNotificationsTakeNamesAsText(t *testing.T) {
	for _, g := range rules.NewFile(rules.Groups(rules.Options{}), rules.Style{}).Groups {
		for _, a := range g.Rules {
			if a.Alert == "" {
				continue
			}
			title, text := notification(t, a, `m<!channel>[click](http://evil.example)<http://evil.example|click>{{ .Labels }}$1`)
			if text = title + text; strings.ContainsAny(text, "<>") || strings.Contains(text, "](") {
				t.Errorf("%s: %s", a.Alert, text)
			}
		}
	}
}

// A page with a corrected first line is not resolved, and keeps its start.
func TestCorrectedPageGoesOn(t *testing.T) {
	tmpl := templates(t)
	now := time.Now().Add(-time.Second)
	page := func(suspect, summary string, began, ended time.Time) *amalert.Alert {
		return &amalert.Alert{Alert: model.Alert{
			StartsAt: began, EndsAt: ended, Labels: model.LabelSet{
				model.AlertNameLabel: "LLMErrorBudgetFastBurn",
				metrics.LabelSuspect: model.LabelValue(suspect),
			},
			Annotations: model.LabelSet{"summary": model.LabelValue(summary), "split": "Look first at: " + model.LabelValue(suspect) +
				". It is.\n", "since": "22:11 UTC"},
		}}
	}
	was, is := page("queueing", "30% fail", now.Add(-3*time.Minute), now), page("memory", "40% fail", now, time.Time{})
	for _, name := range []string{"llm.text", "llm.title"} {
		text, err := tmpl.ExecuteTextString(`{{ template "`+name+`" . }}`, tmpl.Data("llm-critical", nil, nil, "", was, is))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text, "Resolved") || strings.Contains(text, "30%") || name == "llm.title" &&
			!strings.HasSuffix(text, "since 22:11 UTC") || name == "llm.title" && strings.Count(text, "40%") != 1 {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	one, other := page("", "XID 79", now.Add(-time.Minute), now), page("", "lost", now, time.Time{})
	for _, a := range []*amalert.Alert{one, other} {
		delete(a.Labels, metrics.LabelSuspect)
		a.Labels[metrics.LabelGPUUUID] = "GPU-1"
	}
	if text, err := tmpl.ExecuteTextString(`{{ template "llm.text" . }}`, tmpl.Data("llm-critical", nil, nil, "", one,
		other)); err != nil || strings.Contains(text, "Resolved") {
		t.Errorf("%v:\n%s", err, text)
	}
	is.EndsAt = now
	text, err := tmpl.ExecuteTextString(`{{ template "llm.text" . }}`, tmpl.Data("llm-critical", nil, nil, "", is))
	if err != nil || !strings.Contains(text, "ended "+now.Format("15:04 MST")) {
		t.Errorf("%v:\n%s", err, text)
	}
}

// An address inside the cluster, or of the reader's own machine, cannot be opened elsewhere. So the message has the
// command that opens it.
func TestNotificationLinksOpen(t *testing.T) {
	const labels = "runbooks/LLMModelDown?instance=&model_name=m&namespace=prod\n"
	for address, want := range map[string]string{
		"https://llm.monitoring.svc.cluster.local:9844/runbooks/{alert}{labels}": "kubectl -n monitoring port-forward svc/llm 9844, then " +
			"https://localhost:9844/" + labels,
		"": "kubectl -n NAMESPACE port-forward ds/llm-node-exporter 9844, then http://localhost:9844/" + labels,
		"https://runbooks.example/runbooks/{alert}{labels}": "https://runbooks.example/" + labels,
	} {
		shown := 0
		for _, g := range rules.NewFile(rules.Groups(rules.Options{}), rules.Style{RunbookURL: address}).Groups {
			for _, a := range g.Rules {
				if a.Alert != "LLMModelDown" {
					continue
				}
				shown++
				if _, text := notification(t, a, "m"); !strings.Contains(text, "\nRunbook: "+want) {
					t.Error(text)
				}
			}
		}
		if shown == 0 {
			t.Error("no such alert")
		}
	}
}

// A message about a group of many alerts describes the first. It counts the other alerts, and names up to three.
func TestNotificationOfManyAlerts(t *testing.T) {
	var all []*amalert.Alert
	for i := range 32 {
		all = append(all, &amalert.Alert{Alert: model.Alert{
			StartsAt: time.Now(),
			Labels:   model.LabelSet{model.AlertNameLabel: "LLMReplicaSkew", metrics.LabelPod: model.LabelValue(fmt.Sprint("chat-", i))},
			Annotations: model.LabelSet{
				"summary":     model.LabelValue(fmt.Sprintf("chat-%d does worse than the other replicas of chat", i)),
				"description": "It is slow.", "split": "Mean TTFT by replica: chat-3 9s, chat-4 8s, chat-7 8s … 32 in all.\n",
				"runbook_url": "http://a",
			},
		}})
	}
	// Without a ranking in the text, the last line says where the others are.
	for _, c := range []struct {
		alerts []*amalert.Alert
		want   string
	}{
		{all[:2], "2 alerts of this kind: chat-0, chat-1.\n"},
		{all[:5], "5 alerts of this kind: chat-0, chat-1, chat-2 …\n"},
		// two settings of one replica
		{[]*amalert.Alert{all[1], all[1], all[10], all[1]}, "4 alerts of this kind: chat-1, chat-10.\n"},
	} {
		var group []*amalert.Alert
		for _, a := range c.alerts {
			one := *a
			one.Annotations = maps.Clone(a.Annotations)
			one.Annotations["split"] = "Pinned by transfers: 100%.\n"
			group = append(group, &one)
		}
		text, err := templates(t).ExecuteTextString(`{{ template "llm.text" . }}`, templates(t).Data("llm-warning", nil, nil, "", group...))
		if err != nil || !strings.HasSuffix(text, "\n"+c.want) {
			t.Errorf("%v: %q, want %q at its end", err, text, c.want)
		}
	}
	for names, want := range map[string]string{
		"": "32 alerts of this kind", "LLMB": "Also: LLMB, 33 alerts in all", "LLMB LLMC LLMD": "Also: LLMB, LLMC, LLMD, 35 alerts in all",
		"LLMB LLMC LLMD LLME": "Also: LLMB, LLMC, LLMD, … 36 alerts in all",
	} {
		group := slices.Clone(all)
		for name := range strings.FieldsSeq(names) {
			group = append(group, &amalert.Alert{Alert: model.Alert{
				StartsAt: time.Now(),
				Labels:   model.LabelSet{model.AlertNameLabel: model.LabelValue(name)},
			}})
		}
		text, err := templates(t).ExecuteTextString(`{{ template "llm.text" . }}`, templates(t).Data("llm-warning", nil, nil, "", group...))
		if want := "It is slow.\nMean TTFT by replica: chat-3 9s, chat-4 8s, chat-7 8s … 32 in all.\nRunbook: http://a\n" + want + ".\n"; err != nil || text != want {
			t.Errorf("%v: %q, want %q", err, text, want)
		}
	}
}
