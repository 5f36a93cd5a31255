package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

func render(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := run(append([]string{"--out", dir}, args...)); err != nil {
		t.Fatal(err)
	}
	if err := run(append([]string{"--out", dir, "--check"}, args...)); err != nil {
		t.Errorf("a second rendering differs: %v", err)
	}
	return dir
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// groupsIn reads the groups of a rule file through Prometheus' own loader.
func groupsIn(t *testing.T, groups any) []rulefmt.RuleGroup {
	t.Helper()
	content, err := rules.Encode(map[string]any{"groups": groups})
	if err != nil {
		t.Fatal(err)
	}
	file, errs := rulefmt.Parse(content, false, model.LegacyValidation, parser.NewParser(parser.Options{}), nil)
	if errs != nil {
		t.Fatal(errs)
	}
	return file.Groups
}

// otherInMetricsQL finds calls with a different result in VictoriaMetrics than in Prometheus.
var otherInMetricsQL = regexp.MustCompile(`\b(rate|increase|delta|changes)\(`)

// Each format wraps the same groups in the form of its reader.
func TestFormats(t *testing.T) {
	var plain struct{ Groups []any }
	if err := yaml.Unmarshal(read(t, render(t, "--format", "prometheus"), "rules.yaml"), &plain); err != nil {
		t.Fatal(err)
	}
	want := len(groupsIn(t, plain.Groups))

	content := read(t, render(t, "--format", "operator", "--meta-label", "release=prometheus"), "prometheusrule.yaml")
	if got := ruleObjects(t, string(content), "monitoring.coreos.com/v1", "PrometheusRule", "release", "prometheus"); len(groupsIn(t,
		got)) != want {
		t.Errorf("PrometheusRules with %d groups, want %d", len(got), want)
	}
	content = read(t, render(t, "--format", "victoriametrics", "--meta-label", "team=infra"), "vmrule.yaml")
	victoria := ruleObjects(t, string(content), "operator.victoriametrics.com/v1beta1", "VMRule", "team", "infra")
	inOrder(t, victoria, rulesIn(plain.Groups))
	// VictoriaMetrics refuses longer queries (-search.maxQueryLen).
	for _, g := range victoria {
		for _, r := range g.(map[string]any)["rules"].([]any) {
			if expr := r.(map[string]any)["expr"].(string); len(expr) > 16384 {
				t.Errorf("VMRule has a query of %d bytes: %.80s", len(expr), expr)
			}
		}
	}
	// Expressions and queries of annotations alike.
	if other := otherInMetricsQL.Find(content); other != nil {
		t.Errorf("VMRule has %s...), which means something else there", other)
	}

	var mimir struct {
		Namespace string
		Groups    []any
	}
	if err := yaml.Unmarshal(read(t, render(t, "--format", "mimir", "--name", "gpu"), "namespace.yaml"), &mimir); err != nil {
		t.Fatal(err)
	}
	if mimir.Namespace != "gpu" || len(groupsIn(t, mimir.Groups)) != want {
		t.Errorf("namespace %q with %d groups, want gpu with %d", mimir.Namespace, len(mimir.Groups), want)
	}
}

// rulesIn counts the rules of groups.
func rulesIn(groups []any) (n int) {
	for _, g := range groups {
		n += len(g.(map[string]any)["rules"].([]any))
	}
	return n
}

// inOrder requires vmalert's groups to have a given number of rules. A rule is evaluated five seconds or more after the
// rules whose records it reads, within its interval. Records of a later group are from the evaluation before, as in
// Prometheus.
func inOrder(t *testing.T, groups []any, want int) {
	t.Helper()
	offset := func(g any) time.Duration {
		d, err := time.ParseDuration(g.(map[string]any)["eval_offset"].(string))
		if interval, _ := model.ParseDuration(g.(map[string]any)["interval"].(string)); err != nil || d > time.Duration(interval)-5*time.Second {
			t.Errorf("%v has an offset of %s: %v", g.(map[string]any)["name"], d, err)
		}
		return d
	}
	recorded := map[string]time.Duration{}
	for _, g := range groups {
		for _, r := range g.(map[string]any)["rules"].([]any) {
			if name, ok := r.(map[string]any)["record"].(string); ok {
				recorded[name] = max(recorded[name], offset(g))
			}
		}
	}
	late := 0
	for _, g := range groups {
		for _, r := range g.(map[string]any)["rules"].([]any) {
			for name, at := range recorded {
				if reads(r.(map[string]any)["expr"].(string), name) && name != r.(map[string]any)["record"] && offset(g) < at+5*time.Second {
					late++
				}
			}
		}
	}
	if n := rulesIn(groups); n != want || late > 20 || len(recorded) < 100 {
		t.Errorf("%d of %d rules, %d of which read records of an evaluation before", n, want, late)
	}
}

// reads reports whether a query selects the present values of a series: an old record is not late.
func reads(expr, name string) bool {
	for _, m := range regexp.MustCompile(`(?:^|[^\w:])`+name+`(?:\{[^}]*\})?(?:\[[^\]]*\])?($|[^\w:].{0,7})`).FindAllStringSubmatch(expr, -1) {
		if !strings.HasPrefix(m[1], " offset") {
			return true
		}
	}
	return false
}

// ruleObjects returns the groups of an operator's objects. Each object is small enough for the annotation in which
// kubectl apply keeps a copy, 262,144 bytes, and no query is longer than VictoriaMetrics' limit
// (-search.maxQueryLen).
func ruleObjects(t *testing.T, text, version, kind, label, value string) (groups []any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	for _, subject := range rules.Subjects {
		var o struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   metadata
			Spec       struct{ Groups []any }
		}
		if err := d.Decode(&o); err != nil || o.APIVersion != version || o.Kind != kind || o.Metadata.Name != "llm-node-exporter-"+subject ||
			o.Metadata.Labels[label] != value {
			t.Fatalf("%s: %s %s %q with labels %v: %v", subject, o.APIVersion, o.Kind, o.Metadata.Name, o.Metadata.Labels, err)
		}
		as, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %s: %d bytes", kind, subject, len(as))
		if len(as) > 250_000 { // with room for labels and annotations
			t.Errorf("%s %s has %d bytes as JSON", kind, subject, len(as))
		}
		for _, g := range o.Spec.Groups {
			for _, r := range g.(map[string]any)["rules"].([]any) {
				if expr := r.(map[string]any)["expr"].(string); len(expr) > 16384 && kind == "VMRule" {
					t.Errorf("%s has a query of %d bytes: %.80s", subject, len(expr), expr)
				}
			}
		}
		groups = append(groups, o.Spec.Groups...)
	}
	return groups
}

// The longest names and addresses leave each object small enough, and each query short enough.
func TestLongestRendering(t *testing.T) {
	long := strings.Repeat("long-name.", 12) + "example"
	args := []string{"--runbook-url", "https://" + long + "/wiki/{alert}{labels}", "--dashboard-url", "https://" + long +
		"/grafana/d/{uid}", "--meta-label", "release=" + strings.Repeat("r", 63)}
	for _, label := range rules.Renamable() {
		args = append(args, "--label", label+"="+strings.Repeat("exported_", 5)+label)
	}
	for format, as := range map[string][2]string{
		"operator":        {"monitoring.coreos.com/v1", "PrometheusRule"},
		"victoriametrics": {"operator.victoriametrics.com/v1beta1", "VMRule"},
	} {
		text := string(read(t, render(t, append([]string{"--format", format}, args...)...), ruleFiles[format]))
		ruleObjects(t, text, as[0], as[1], "release", strings.Repeat("r", 63))
	}
}

// A fleet has shards that alert on causes and a global tier that alerts on symptoms.
func TestFleet(t *testing.T) {
	dir := render(t, "--format", "mimir", "--fleet")
	shard, global := string(read(t, dir, "shard", "namespace.yaml")), string(read(t, dir, "global", "namespace.yaml"))
	if strings.Contains(shard, "alert: LLMErrorBudget") || !strings.Contains(shard, "alert: LLMEngineStalled") ||
		!strings.Contains(shard, "record: shard:llm_slo_events:increase1h") {
		t.Error("a shard must record sums and alert on causes only")
	}
	if !strings.Contains(global, "alert: LLMErrorBudgetFastBurn") || strings.Contains(global, "alert: LLMEngineStalled") ||
		strings.Contains(global, "increase(llm_slo_events_total") {
		t.Error("the global tier must alert on symptoms over what shards forward")
	}
	if !strings.Contains(string(read(t, dir, "shard", "remote_write.yaml")),
		"shard:.+|model:llm_suspect:strength|model:llm_suspect:sentence|model:llm_evidence:value|ALERTS") {
		t.Error("nothing tells the shards what to forward")
	}
	if page := string(read(t, dir, "alerts.md")); !strings.Contains(page, "LLMErrorBudgetFastBurn") ||
		!strings.Contains(page, "LLMEngineStalled") {
		t.Error("the index must list the alerts of both tiers")
	}
}

func TestFlags(t *testing.T) {
	dir := render(t, "--format", "prometheus", "--window", "2h/10m=3%:page", "--window", "2d/4h=10%:ticket",
		"--severity", "page=p1", "--label", "cluster=k8s_cluster", "--runbook-url", "https://runbooks.example/{alert}", "--dashboard-url",
		"https://grafana.example/d/{uid}", "--job", "exp.*")
	text := string(read(t, dir, "rules.yaml"))
	for _, want := range []string{
		"model:llm_slo_burn:rate2h", "model:llm_slo_burn:rate10m", `long="2d"`, "severity: p1", "by (k8s_cluster",
		"https://runbooks.example/LLMGPUFailed", "https://grafana.example/d/llm-gpu?", `job=~"exp.*"`, "var-cluster={{urlquery .}}",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("rules.yaml lacks %s", want)
		}
	}
	if strings.Contains(text, "rate6h") && strings.Contains(text, `long="6h"`) {
		t.Error("the default pairs are still there")
	}
	for _, name := range []string{"alertmanager.yaml", "alertmanager-route.yaml"} {
		if !strings.Contains(string(read(t, dir, name)), `severity="p1"`) {
			t.Errorf("%s does not route p1", name)
		}
	}
}

// A renamed label has its new name wherever a person or a program reads it: expressions, texts, routes.
func TestRenamedLabels(t *testing.T) {
	dir := render(t, "--format", "prometheus", "--label", "namespace=exported_namespace", "--label", "instance=node_ip", "--label",
		"cluster=k8s_cluster")
	old := regexp.MustCompile(`(\$labels|\.Labels)\.(namespace|instance|cluster)\b|(by|on|ignoring|group_left|group_right) \([^)]*\b(namespace|instance|cluster)\b|[{,](namespace|instance|cluster)(=|!)`)
	for _, name := range []string{"rules.yaml", "alertmanager.yaml", "alertmanager-route.yaml", rules.TemplateFile} {
		for line := range strings.Lines(string(read(t, dir, name))) {
			if found := old.FindString(line); found != "" {
				t.Errorf("%s has %q in %.200s", name, found, line)
				break
			}
		}
	}
	for name, want := range map[string]string{
		"alertmanager.yaml": "- exported_namespace", "rules.yaml": "{{with .Labels.exported_namespace}}",
		rules.TemplateFile: ".Labels.exported_namespace", "dashboards/llm-incident.json": `exported_namespace=~\"$namespace\"`,
	} {
		if !strings.Contains(string(read(t, dir, name)), want) {
			t.Errorf("%s lacks %s", name, want)
		}
	}
}

func TestBadFlags(t *testing.T) {
	tested := map[string]bool{
		"version": true, "help": true, "help-long": true, "help-man": true, "completion-bash": true,
		"completion-script-bash": true, "completion-script-zsh": true,
		"check": true, "fleet": true,
	} // have no value
	for want, args := range map[string][]string{
		"not a directory":                {"--out", "main.go"},
		"must be one of prometheus":      {"--format", "yaml"},
		"must be one of classic":         {"--dashboards", "v3"},
		"stands for the alert":           {"--runbook-url", "https://x/"},
		"stands for the dashboard":       {"--dashboard-url", "https://grafana.example/d/llm-incident"},
		"missing closing )":              {"--job", "exporter("},
		"a lowercase RFC 1123":           {"--name", "LLM rules"},
		"a valid label must be":          {"--meta-label", "release=a b"},
		"'no such file' does not exist":  {"--openslo", "no such file"},
		"is not a label name":            {"--label", "cluster=k8s-cluster"},
		"would collide":                  {"--label", "cluster=model_name"},
		"needs a value":                  {"--severity", "page="},
		"a part is missing":              {"--window", "1h/5m"},
		"are multiples of 5m":            {"--window", "100s/7s=2%:page"},
		"must be shorter than the long":  {"--window", "5m/1h=2%:page"},
		"a uid has up to 40":             {"--datasource", "my prometheus"},
		"--grafana-label dashboards=a b": {"--grafana-label", "dashboards=a b"},
		"no pair pages":                  {"--window", "1d/2h=10%:ticket"},
		"longer than the shortest":       {"--window", "8d/2h=10%:page"},
		"severities are page":            {"--severity", "urgent=x"},
		"is a label of the exporter's":   {"--objective-label", "model_name"},
		"can be renamed":                 {"--label", "model_name=model"},
	} {
		tested[strings.TrimPrefix(args[0], "--")] = true
		for flag, value := range map[string]string{"--out": t.TempDir(), "--format": "operator"} {
			if args[0] != flag {
				args = append(args, flag, value)
			}
		}
		err := run(args)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	for _, flag := range new(command).app().Model().Flags {
		if !tested[flag.Name] {
			t.Errorf("--%s: no bad value is tested", flag.Name)
		}
	}
}

// Objectives that can be imported are printed as configuration that loads again; the others fail with a reason.
func TestOpenSLO(t *testing.T) {
	const query = `{metricSource: {type: Prometheus, spec: {query: 'llm_engine_requests_total%s'}}}`
	document := func(name, method string) string {
		return fmt.Sprintf("apiVersion: openslo/v1\nkind: SLO\nmetadata: {name: %s}\nspec:\n  budgetingMethod: %s\n  timeWindow: "+
			"[{duration: 30d, isRolling: true}]\n"+
			"  objectives: [{target: 0.999}]\n  indicator: {spec: {ratioMetric: {counter: true, total: %s, bad: %s}}}\n",
			name, method, fmt.Sprintf(query, ""), fmt.Sprintf(query, `{outcome="error"}`))
	}
	path := filepath.Join(t.TempDir(), "slos.yaml")
	if err := os.WriteFile(path, []byte(document("errors", "Occurrences")+"---\n"+document("slices", "Timeslices")), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := importOpenSLO(path, &out); err == nil || !strings.Contains(err.Error(), `"slices"`) {
		t.Errorf("refused: %v, want slices", err)
	}
	var config struct{ Objectives []slo.Objective }
	if err := yaml.Unmarshal([]byte(out.String()), &config); err != nil || len(config.Objectives) != 1 ||
		config.Objectives[0].Target.Percent() != "99.9%" {
		t.Errorf("%v, printed:\n%s", err, &out)
	}
}

// The files in the repository equal the code's output.
func TestNoDrift(t *testing.T) {
	if err := run([]string{"--out", "..", "--check"}); err != nil {
		t.Error(err)
	}
}
