package rules_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

func vmalertTool(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("VMALERT_TOOL"); path != "" {
		return path
	}
	path, err := exec.LookPath("vmalert-tool")
	if err != nil {
		t.Skip("vmalert-tool is not installed: it is in Debian's package victoria-metrics; VMALERT_TOOL names it elsewhere")
	}
	return path
}

// wrongCheck finds the check that vmalert-tool reports as wrong: its case and its time.
var wrongCheck = regexp.MustCompile(`testGroupName: (.*),\n +groupname: , alertname: \w+, time: (\w+),`)

// TestAlertsInVictoriaMetrics runs the cases of promtool in VictoriaMetrics' own rule engine. This engine writes
// records when a group is done, so a rule that reads a record is one evaluation late. A burn alert reads records of
// records. No check may be late by more than two evaluations.
func TestAlertsInVictoriaMetrics(t *testing.T) {
	tool := vmalertTool(t)
	const slowest = 2
	var after [slowest + 1]int // checks by the number of evaluations that they were late
	for _, g := range rules.Groups(rules.Options{}) {
		for _, a := range g.Alerts {
			t.Run(a.Name, func(t *testing.T) {
				content, err := os.ReadFile(filepath.Join(alertTests, a.Name+".yaml"))
				if err != nil {
					t.Fatal(err)
				}
				var file map[string]any
				if err := yaml.Unmarshal(content, &file); err != nil {
					t.Fatal(err)
				}
				type check struct{ name, at string }
				var tries [][]check // of each check, one per evaluation
				for _, one := range file["tests"].([]any) {
					one := one.(map[string]any)
					checks := one["alert_rule_test"].([]any)
					at := make([]time.Duration, len(checks))
					for i, c := range checks {
						d, err := model.ParseDuration(c.(map[string]any)["eval_time"].(string))
						if err != nil {
							t.Fatal(err)
						}
						at[i] = time.Duration(d)
					}
					for i, c := range checks {
						try := []check{{one["name"].(string), at[i].String()}}
						for len(try) <= slowest {
							next := at[i] + time.Duration(len(try))*rules.Interval
							if slices.Contains(at, next) {
								break
							}
							later := maps.Clone(c.(map[string]any))
							later["eval_time"] = next.String()
							one["alert_rule_test"] = append(one["alert_rule_test"].([]any), later)
							try = append(try, check{try[0].name, next.String()})
						}
						tries = append(tries, try)
					}
				}
				if content, err = rules.Encode(file); err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				test := filepath.Join(dir, a.Name+".yaml")
				writeFile(t, test, content)
				// vmalert-tool evaluates every group at the interval of the test: a budget's tiles would count five times.
				groups := slices.DeleteFunc(needs(t, g, a), func(g rules.Group) bool { return g.Name == "llm-slo-budget" })
				writeFile(t, filepath.Join(dir, "rules.yaml"), bareRules(t, groups, rules.Style{MetricsQL: true}))
				out, err := exec.Command(tool, "unittest", "--disableAlertgroupLabel", "--files="+test).CombinedOutput()
				wrong := map[check]bool{}
				for _, m := range wrongCheck.FindAllStringSubmatch(string(out), -1) {
					wrong[check{m[1], m[2]}] = true
				}
				if err != nil && len(wrong) == 0 {
					t.Fatalf("%v\n%s", err, out)
				}
				for _, try := range tries {
					late := slices.IndexFunc(try, func(c check) bool { return !wrong[c] })
					if late < 0 {
						t.Errorf("%s at %s:\n%s", try[0].name, try[0].at, out)
						continue
					}
					after[late]++
					if late > 0 {
						t.Logf("%s at %s: %d late", try[0].name, try[0].at, late)
					}
				}
			})
		}
	}
	t.Logf("checks by the evaluations they were late: %v", after)
}
