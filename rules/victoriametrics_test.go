package rules_test

import (
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

// wrongCheck finds the check that vmalert-tool says is wrong: its case and its time.
var wrongCheck = regexp.MustCompile(`testGroupName: (.*),\n +groupname: , alertname: \w+, time: (\w+),`)

// The cases of promtool in VictoriaMetrics' own rule engine. It writes what it records after a group is done, so that
// who reads a record is one evaluation behind: each check may come true so much later.
func TestAlertsInVictoriaMetrics(t *testing.T) {
	tool := vmalertTool(t)
	held, late := 0, 0
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
				again := map[check]check{}
				for _, one := range file["tests"].([]any) {
					one := one.(map[string]any)
					checks := one["alert_rule_test"].([]any)
					var times []time.Duration
					for _, c := range checks {
						d, err := model.ParseDuration(c.(map[string]any)["eval_time"].(string))
						if err != nil {
							t.Fatal(err)
						}
						times = append(times, time.Duration(d))
					}
					for i, at := range times {
						first := check{one["name"].(string), at.String()}
						again[first] = first
						if next := at + time.Minute; !slices.Contains(times, next) {
							again[first] = check{first.name, next.String()}
							one["alert_rule_test"] = append(one["alert_rule_test"].([]any),
								map[string]any{"eval_time": next.String(), "alertname": a.Name, "exp_alerts": checks[i].(map[string]any)["exp_alerts"]})
						}
					}
				}
				if content, err = rules.Encode(file); err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				test := filepath.Join(dir, a.Name+".yaml")
				writeFile(t, test, content)
				writeFile(t, filepath.Join(dir, "rules.yaml"), bareRules(t, needs(t, g, a), rules.Style{MetricsQL: true}))
				out, err := exec.Command(tool, "unittest", "--disableAlertgroupLabel", "--files="+test).CombinedOutput()
				wrong := map[check]bool{}
				for _, m := range wrongCheck.FindAllStringSubmatch(string(out), -1) {
					wrong[check{m[1], m[2]}] = true
				}
				if err != nil && len(wrong) == 0 {
					t.Fatalf("%v\n%s", err, out)
				}
				for first, later := range again {
					switch {
					case !wrong[first]:
						held++
					case !wrong[later]:
						late++
						t.Logf("%s at %s: one evaluation late", first.name, first.at)
					default:
						t.Errorf("%s at %s:\n%s", first.name, first.at, out)
					}
				}
			})
		}
	}
	t.Logf("%d checks held, %d one evaluation late", held, late)
}
