package rules_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// alertTests is the folder of promtool's test files, one per alert.
const alertTests = "testdata/alerts"

// lasting finds a test file with a case of two hours or more.
var lasting = regexp.MustCompile(`eval_time: (\d+h|\d+d|\d{3,}m|[7-9]\dm)`)

// Every alert has a test file with cases in which it fires and cases in which it does not. promtool runs the file
// where it is installed. promtool is slow: without -long only TestAlerts runs the cases of hours.
func TestAlertsWithPromtool(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed; TestAlerts runs the same files in process")
	}
	var tests []string
	for _, g := range rules.Groups(rules.Options{}) {
		for _, a := range g.Alerts {
			if a.Name == rules.ModelOnFailedGPU.Name {
				continue // the alert reads ALERTS, which promtool does not write; only TestAlerts covers it
			}
			dir := t.TempDir()
			content, err := os.ReadFile(filepath.Join(alertTests, a.Name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if !*long && lasting.Match(content) {
				continue
			}
			test := filepath.Join(dir, a.Name+".yaml")
			needed := needs(t, g, a)
			order := "group_eval_order:\n" // promtool's own order is the random order of a map
			for _, n := range needed {
				order += "- " + n.Name + "\n"
			}
			writeFile(t, test, append([]byte(order), content...))
			writeFile(t, filepath.Join(dir, "rules.yaml"), bareRules(t, needed, rules.Style{}))
			tests = append(tests, test)
		}
	}
	for some := range slices.Chunk(tests, 8) {
		t.Run(strings.TrimSuffix(filepath.Base(some[0]), ".yaml"), func(t *testing.T) { // includes the later cases
			t.Parallel()
			if out, err := exec.Command(promtool, append([]string{"test", "rules"}, some...)...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// needs returns the groups that an alert's tests evaluate: its own group, and the records of other groups that it
// reads.
func needs(t *testing.T, g rules.Group, a *rules.Alert) []rules.Group {
	t.Helper()
	if a.Name != rules.ModelOnFailedGPU.Name { // the rule reads the alerts before it
		g.Alerts = []*rules.Alert{a}
	}
	var exprs []promql.Expr
	for _, a := range g.Alerts {
		exprs = append(exprs, a.Condition())
	}
	return reading(rules.Options{}, g, exprs...)
}

// reading returns a group and the records of other groups that expressions read.
func reading(opt rules.Options, g rules.Group, exprs ...promql.Expr) []rules.Group {
	all := rules.Groups(opt)
	read := map[string]bool{}
	var reads func(e parser.Expr)
	reads = func(e parser.Expr) {
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
			v, ok := n.(*parser.VectorSelector)
			if !ok || read[v.Name] {
				return nil
			}
			read[v.Name] = true
			for _, other := range all {
				for _, r := range other.Records {
					if r.Name.Name == v.Name {
						reads(r.Expr)
					}
				}
			}
			return nil
		})
	}
	for _, e := range exprs {
		reads(e)
	}
	var groups []rules.Group
	for _, other := range all {
		records := slices.DeleteFunc(slices.Clone(other.Records), func(r rules.Record) bool { return !read[r.Name.Name] })
		switch {
		case other.Name == g.Name:
			g.Records = records
		case len(records) > 0:
			other.Records, other.Alerts = records, nil
			groups = append(groups, other)
		}
	}
	return append(groups, g)
}

// bareRules returns rules without annotations, so that promtool's tests do not depend on wording.
func bareRules(t *testing.T, groups []rules.Group, style rules.Style) []byte {
	t.Helper()
	file := rules.NewFile(groups, style)
	for g := range file.Groups {
		for r := range file.Groups[g].Rules {
			file.Groups[g].Rules[r].Annotations = nil
		}
	}
	content, err := rules.Encode(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func alertNames() []string {
	var names []string
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
		names = append(names, a.Name)
	}
	return names
}

// promtoolEpoch is the start of promtool's clock; some rules read it.
var promtoolEpoch = time.Unix(0, 0).UTC()

// promtoolFile is the part of promtool's test format that the files use.
type promtoolFile struct {
	Tests []promtoolTest `yaml:"tests"`
}

type promtoolTest struct {
	Name   string `yaml:"name"`
	Series []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	Checks []promtoolCheck `yaml:"alert_rule_test"`
}

type promtoolCheck struct {
	At     string `yaml:"eval_time"`
	Alert  string `yaml:"alertname"`
	Expect []struct {
		Labels map[string]string `yaml:"exp_labels"`
	} `yaml:"exp_alerts"`

	test string    // that has it
	end  time.Time // share of the minute at whose beginning the rule is evaluated
}

// promtoolRun is one simulation: of one test or, with clusters, of all tests of a file side by side, each in a cluster with its name.
type promtoolRun struct {
	clusters bool
	checks   []promtoolCheck // by time
	scrape   func(time.Time, rulesim.Emit)
}

// runs returns the simulations of a file. Tests that have clusters themselves run alone.
func (f promtoolFile) runs(t *testing.T) []promtoolRun {
	t.Helper()
	together := promtoolRun{clusters: true, scrape: func(time.Time, rulesim.Emit) {}}
	var all []promtoolRun
	for _, test := range f.Tests {
		scrape, alone := replay(t, test.Series), false
		for _, s := range test.Series {
			alone = alone || strings.Contains(s.Series, metrics.LabelCluster+"=")
		}
		for i, c := range test.Checks {
			d, err := model.ParseDuration(c.At)
			if err != nil {
				t.Fatal(err)
			}
			test.Checks[i].test, test.Checks[i].end = test.Name, promtoolEpoch.Add(time.Duration(d)+time.Minute)
		}
		if alone {
			all = append(all, promtoolRun{checks: test.Checks, scrape: scrape})
			continue
		}
		others := together.scrape
		together.checks = append(together.checks, test.Checks...)
		together.scrape = func(at time.Time, emit rulesim.Emit) {
			others(at, emit)
			scrape(at, func(l labels.Labels, v float64) {
				emit(labels.NewBuilder(l).Set(metrics.LabelCluster, test.Name).Labels(), v)
			})
		}
	}
	slices.SortStableFunc(together.checks, func(a, b promtoolCheck) int { return a.end.Compare(b.end) })
	return append(all, together)
}

// TestAlerts runs the same files in this module's own engine, annotations included. The annotations are evaluated
// while an alert fires, and a template that fails would show in the text.
func TestAlerts(t *testing.T) {
	groups := rules.Groups(rules.Options{})
	for _, g := range groups {
		for _, a := range g.Alerts {
			t.Run(a.Name, func(t *testing.T) {
				t.Parallel()
				var file promtoolFile
				content, err := os.ReadFile(filepath.Join(alertTests, a.Name+".yaml"))
				if err != nil {
					t.Fatalf("write its cases, rules/%s/%s.yaml: %v", alertTests, a.Name, err)
				}
				if err := yaml.Unmarshal(content, &file); err != nil {
					t.Fatal(err)
				}
				fires, silent := false, false
				for _, run := range file.runs(t) {
					sim := loaded(t, needs(t, g, a))
					defer sim.Close()
					at := promtoolEpoch
					for _, c := range run.checks {
						if err := sim.Run(at, c.end, time.Minute, run.scrape); err != nil {
							t.Fatal(err)
						}
						at = c.end
						var want, got []map[string]string
						for _, e := range c.Expect {
							e.Labels["alertname"] = c.Alert
							want = append(want, e.Labels)
						}
						for _, f := range sim.Firing() {
							l := f.Labels.Map()
							if f.Name != c.Alert || run.clusters && l[metrics.LabelCluster] != c.test {
								continue
							}
							if run.clusters {
								delete(l, metrics.LabelCluster)
							}
							got = append(got, l)
							f.Annotations.Range(func(l labels.Label) {
								if strings.Contains(l.Value, "error") && strings.Contains(l.Value, "template") || strings.Contains(l.Value, "<no value>") {
									t.Errorf("annotation %s: %s", l.Name, l.Value)
								}
							})
						}
						fires, silent = fires || len(want) > 0, silent || len(want) == 0
						if !reflect.DeepEqual(want, got) {
							t.Errorf("%s at %s: firing %v, want %v", c.test, c.At, got, want)
						}
					}
				}
				if !fires || !silent {
					t.Errorf("cases in which it fires: %t, in which it does not: %t; want both", fires, silent)
				}
			})
		}
	}
}

// A rollback is advised for a changed version or setting. Engines that restarted without a change get different advice.
func TestRollBackOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(alertTests, rules.ReleaseRegression.Name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file promtoolFile
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	advised := map[string]bool{
		"a new version, then twice as slow": true, "the same version restarted with another setting": true,
		"the same version restarted with other flags": false,
	}
	for _, test := range file.Tests {
		want, ours := advised[test.Name]
		if !ours {
			continue
		}
		delete(advised, test.Name)
		sim := loaded(t, needs(t, group(t, rules.Options{}, "llm-cause-release"), rules.ReleaseRegression))
		defer sim.Close()
		if err := sim.Run(promtoolEpoch, promtoolEpoch.Add(14*time.Hour), time.Minute, replay(t, test.Series)); err != nil {
			t.Fatal(err)
		}
		fired := sim.Firing()
		if len(fired) != 1 {
			t.Fatalf("%s: %d alerts", test.Name, len(fired))
		}
		fired[0].Annotations.Range(func(l labels.Label) {
			if advice := strings.Contains(strings.ToLower(l.Value), "roll"); advice != (want && l.Name == "split") {
				t.Errorf("%s: advice to roll back is %t in the %s: %s", test.Name, advice, l.Name, l.Value)
			}
		})
	}
	if len(advised) > 0 {
		t.Errorf("no case %v", advised)
	}
}

func loaded(t *testing.T, groups []rules.Group) *rulesim.Sim {
	t.Helper()
	content, err := rules.Encode(rules.NewFile(groups, rules.Style{DashboardURL: "https://grafana.example/d/{uid}"}))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := rulesim.New(content)
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

// replay emits the series of a promtool test, as scraped at the given time.
func replay[S ~[]E, E ~struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}](t *testing.T, input S) func(time.Time, rulesim.Emit) {
	t.Helper()
	type desc struct {
		labels labels.Labels
		values []parser.SequenceValue
	}
	var all []desc
	p := parser.NewParser(parser.Options{})
	for _, in := range input {
		s := struct {
			Series string `yaml:"series"`
			Values string `yaml:"values"`
		}(in)
		l, v, err := p.ParseSeriesDesc(s.Series + " " + s.Values)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, desc{l, v})
	}
	return func(at time.Time, emit rulesim.Emit) {
		i := int(at.Sub(promtoolEpoch) / time.Minute)
		for _, d := range all {
			if i < len(d.values) && !d.values[i].Omitted && !value.IsStaleNaN(d.values[i].Value) {
				emit(d.labels, d.values[i].Value)
			}
		}
	}
}

// No test file is left over from an alert that no longer exists.
func TestAlertTestsBelongToAlerts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(alertTests, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".yaml"); !slices.Contains(alertNames(), name) {
			t.Errorf("%s: no such alert", f)
		}
	}
}
