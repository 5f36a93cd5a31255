package rules_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

var tiers = map[string]rules.Tier{"single": rules.Single, "shard": rules.Shard, "global": rules.Global}

// Prometheus' own loader accepts every rendering, and no group is larger than Mimir's limit.
func TestRulesLoad(t *testing.T) {
	for name, tier := range tiers {
		groups := rules.Groups(rules.Options{Tier: tier})
		content := encode(t, groups, rules.Style{DashboardURL: "https://grafana.example/d/{uid}"})
		loaded, errs := rulefmt.Parse(content, false, model.LegacyValidation, parser.NewParser(parser.Options{}), nil)
		for _, err := range errs {
			t.Errorf("%s: %v", name, err)
		}
		if len(errs) == 0 && len(loaded.Groups) != len(groups) {
			t.Errorf("%s: %d groups written, %d read", name, len(groups), len(loaded.Groups))
		}
		for _, g := range groups {
			if g.Rules() > rules.MaxRules {
				t.Errorf("%s: group %s has %d rules, more than %d", name, g.Name, g.Rules(), rules.MaxRules)
			}
		}
	}
}

// Every expression is short enough to be read, in its written form.
func TestExpressionsAreShort(t *testing.T) {
	for name, tier := range tiers {
		for _, g := range rules.NewFile(rules.Groups(rules.Options{Tier: tier}), rules.Style{}).Groups {
			for _, r := range g.Rules {
				if n := len(r.Expr); n > 2000 {
					t.Errorf("%s: the expression of %s%s %v has %d characters. Record what repeats in it.", name, r.Alert, r.Record, r.Labels, n)
				}
			}
		}
	}
}

// Old and new Prometheus versions, and pint, report nothing, if they are installed.
func TestRulesLint(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for name, tier := range tiers {
		path := filepath.Join(dir, name+".yaml")
		writeFile(t, path, encode(t, rules.Groups(rules.Options{Tier: tier}), rules.Style{DashboardURL: "https://grafana.example/d/{uid}"}))
		files = append(files, path)
	}
	for _, tool := range [][]string{{"promtool", "check", "rules", "--lint=all", "--lint-fatal"}, {
		"pint", "--no-color", "lint",
		"--min-severity=info", "--fail-on=info",
	}} {
		t.Run(tool[0], func(t *testing.T) {
			path, err := exec.LookPath(tool[0])
			if err != nil {
				t.Skip(tool[0] + " is not installed")
			}
			for _, f := range files { // separately, because a tier repeats rules of another
				cmd := exec.Command(path, append(tool[1:], f)...)
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "Warning:") {
					t.Errorf("%s: %v\n%s", f, err, out)
				}
			}
		})
	}
}

func encode(t *testing.T, groups []rules.Group, style rules.Style) []byte {
	t.Helper()
	content, err := rules.Encode(rules.NewFile(groups, style))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Every selector of every rule and every line of evidence names a series of the vocabulary and labels
// that it has, and every recorded series that is read is also recorded, by this tier or by the shards.
func TestRulesUseTheVocabulary(t *testing.T) {
	for name, tier := range tiers {
		groups := rules.Groups(rules.Options{Tier: tier, ObjectiveLabels: []string{}}) // these names are not ours
		recorded := map[string]bool{}
		for _, g := range groups {
			for _, r := range g.Records {
				recorded[r.Name.Name] = true
			}
		}
		if tier == rules.Global {
			for _, g := range rules.Groups(rules.Options{Tier: rules.Shard}) {
				for _, r := range g.Records {
					recorded[r.Name.Name] = true
				}
			}
		}
		check := func(what string, e promql.Expr) {
			if err := promql.Verify(e.String()); err != nil {
				t.Errorf("%s: %s: %v", name, what, err)
			}
			for _, sel := range parser.ExtractSelectors(e) {
				for _, m := range sel {
					if m.Name == "__name__" && strings.Contains(m.Value, ":") && !recorded[m.Value] {
						t.Errorf("%s: %s reads %s, which no rule records", name, what, m.Value)
					}
				}
			}
		}
		for _, g := range groups {
			for _, r := range g.Records {
				check(r.Name.Name, r.Expr)
				if promql.Lookup(r.Name.Name) == nil {
					t.Errorf("%s: %s is not declared", name, r.Name.Name)
				}
			}
			for _, a := range g.Alerts {
				check(a.Name, a.Condition())
				for _, e := range a.Asks() {
					check(a.Name+" asks", e)
				}
				for _, e := range a.Split {
					check(a.Name+" split: "+e.Text, e.Query)
				}
			}
		}
	}
}

// Every recorded series that is declared is written by a rule of some tier.
func TestEveryRecordedSeriesIsWritten(t *testing.T) {
	written := map[*metrics.Family]bool{}
	for _, tier := range tiers {
		for _, g := range rules.Groups(rules.Options{Tier: tier}) {
			for _, r := range g.Records {
				written[promql.Lookup(r.Name.Name)] = true
			}
		}
	}
	for _, f := range metrics.Recorded() {
		if !written[f] {
			t.Errorf("%s is declared, and no rule writes it", f.Name)
		}
	}
}

// TestEveryAlertIsListed reads the source. An alert that its file declares but does not list would be in no group,
// without any other sign.
func TestEveryAlertIsListed(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\s+Name: +"(LLM\w+)"`)
	listed, found := alertNames(), 0
	for _, f := range files {
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			if found++; !slices.Contains(listed, m[1]) {
				t.Errorf("%s is in no group: list it in rules/%s, where its branch is listed", m[1], f)
			}
		}
	}
	if found != len(listed) {
		t.Errorf("found %d alerts in the source, and groups have %d", found, len(listed))
	}
}

// Throttling alone opens at most a ticket. Symptoms wait only for their windows. A paging alert is either a symptom or
// has a reason why the symptom would not be visible.
func TestSeverities(t *testing.T) {
	pages := map[string]string{
		"LLMErrorBudgetFastBurn": "the symptom",
		"LLMSecondFault":         "the page that fires would hide it",
		"LLMModelDown":           "nothing is left that could count a bad event",
		"LLMModelStalled":        "what never ends is never counted",
		"LLMEngineStalled":       "what never ends is never counted",
		"LLMClientsGiveUp":       "who gives up is never counted",
		"LLMModelUnreached":      "what never arrives is never counted",
		"LLMProbeFailing":        "what hangs unnoticed is never counted",
		"LLMExporterFleetDown":   "nothing is measured",
		"LLMGPUFailed":           "the board returns wrong answers, or the next engine on it fails, too",
	}
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
		if pages, reason := a.Severity == slo.Page, pages[a.Name]; pages != (reason != "") {
			t.Errorf("%s pages: %t; rules/structure_test.go lists what pages, with the reason, and has %q", a.Name, pages, reason)
		}
		if a.Branch == rules.Symptom && (a.For != 0 || a.Keep > 3*time.Minute) {
			t.Errorf("%s waits %s and stays %s; its windows are the wait", a.Name, a.For, a.Keep)
		}
		if a.Branch != rules.Symptom && a.Branch != rules.Exporter && len(a.Explains) == 0 {
			t.Errorf("%s is a cause of nothing: name the symptoms in Explains", a.Name)
		}
		if a.Summary == "" || a.Description == "" || a.Dashboard == "" {
			t.Errorf("%s lacks summary, description or dashboard", a.Name)
		}
	}
}

// TestFormerAlerts checks that each former alert is gone, and that its replacement exists.
func TestFormerAlerts(t *testing.T) {
	clues := map[string]bool{}
	for _, c := range rules.Clues() {
		clues[c.Name] = true
	}
	names := alertNames()
	for _, f := range rules.FormerAlerts() {
		if slices.Contains(names, f.Name) || f.Now != "" && !clues[f.Now] && !slices.Contains(names, f.Now) {
			t.Errorf("%s is now %q", f.Name, f.Now)
		}
	}
}

// The number of rules depends only on the windows.
func TestRuleCountIsConstant(t *testing.T) {
	n := 0
	for _, g := range rules.Groups(rules.Options{}) {
		if strings.HasPrefix(g.Name, "llm-slo") {
			n += g.Rules()
		}
	}
	if n != 71 {
		t.Errorf("%d rules for all objectives, not 71", n)
	}
}

// Renamed labels reach expressions, matching, annotations and the labels of alerts.
func TestRenamedLabels(t *testing.T) {
	style := rules.Style{
		Labels:       map[string]string{metrics.LabelCluster: "k8s_cluster", "instance": "node_ip", "severity": "level"},
		Severities:   map[slo.Severity]string{slo.Page: "page"},
		DashboardURL: "https://grafana.example/d/{uid}",
	}
	text := string(encode(t, rules.Groups(rules.Options{}), style))
	for _, gone := range []string{"by (cluster", "{cluster=%q", "$labels.cluster", "$labels.instance", "severity: critical", "(instance"} {
		if strings.Contains(text, gone) {
			t.Errorf("still says %q", gone)
		}
	}
	for _, want := range []string{
		"by (k8s_cluster,slo)", "k8s_cluster=%q", "level: page", "$labels.node_ip",
		`llm_gpu_ecc_errors_total{lifetime="volatile",severity="uncorrected"}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("does not say %q", want)
		}
	}
	if _, errs := rulefmt.Parse([]byte(text), false, model.LegacyValidation, parser.NewParser(parser.Options{}), nil); errs != nil {
		t.Error(errs)
	}
}

// Debian's older promtool also reads all rules: see TestRulesLint. This test only checks the environment, so that a CI
// machine without tools cannot pass unnoticed.
func TestToolsAreThereInCI(t *testing.T) {
	if os.Getenv("CI") == "" {
		t.Skip("not in continuous integration")
	}
	for _, tool := range []string{"promtool", "amtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Error(err)
		}
	}
}
