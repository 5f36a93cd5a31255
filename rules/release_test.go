package rules_test

import (
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// The runbook's query shows latencies and failures of a former version beside those of its replacement, whether the new
// engines have the addresses of the old engines or their own.
func TestReleasesAreCompared(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "runbooks", "LLMReleaseRegression.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, query, _ := strings.Cut(string(page), "each version of the last 6h")
	_, query, _ = strings.Cut(query, "```promql\n")
	query, _, _ = strings.Cut(query, "```")
	query = strings.ReplaceAll(query, "$MODEL", "m")
	for _, keeps := range []bool{true, false} {
		sim := newSim(t, group(t, rules.Options{}, "llm-model"), group(t, rules.Options{}, "llm-evidence-1"),
			group(t, rules.Options{}, "llm-evidence-2"))
		totals := map[string]float64{}
		err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(2*time.Hour), scrapeEvery, func(now time.Time, emit rulesim.Emit) {
			version, slow, failed, base := "1", 0.0, 0.01, "10.0.0.1"
			if now.Sub(rulesim.Epoch) >= time.Hour {
				version, slow, failed = "2", 0.2, 0.1
				if !keeps {
					base = "10.0.1.1"
				}
			}
			for _, n := range []string{"0", "1"} {
				engine := []string{
					metrics.LabelNamespace, "prod", metrics.LabelModel, "m", metrics.LabelPod, "p" + n, metrics.LabelServer,
					base + n + ":8000",
				}
				count := func(name string, by float64, more ...string) {
					l := series(name, append(more, engine...)...)
					totals[l.String()] += by
					emit(l, totals[l.String()])
				}
				emit(series(metrics.EngineInfo.Name, append(engine, metrics.LabelVersion, version)...), 1)
				for _, h := range []*metrics.Family{metrics.TimeToFirstToken, metrics.InterTokenLatency} {
					count(h.Name+"_bucket", 100*(1-slow), "le", "0.1") // none or a fifth of the observations are above the bound
					count(h.Name+"_bucket", 100, "le", "1")
					count(h.Name+"_bucket", 100, "le", "+Inf")
				}
				count(metrics.Requests.Name, 100*(1-failed), metrics.LabelOutcome, string(metrics.OutcomeSuccess))
				count(metrics.Requests.Name, 100*failed, metrics.LabelOutcome, string(metrics.OutcomeError))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		v, err := sim.Query(query, rulesim.Epoch.Add(2*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		got := map[[2]string]float64{}
		for _, s := range v {
			got[[2]string{s.Metric.Get(metrics.LabelFact), s.Metric.Get(metrics.LabelVersion)}] = s.F
		}
		for want, value := range map[[2]string]float64{
			{"ttft_p95", "1"}: 0.095, {"ttft_p95", "2"}: 0.775, {"itl_p95", "1"}: 0.095, {"itl_p95", "2"}: 0.775,
			{"failed", "1"}: 0.01, {"failed", "2"}: 0.1,
		} {
			if f, ok := got[want]; !ok || math.Abs(f-value) > 0.1*value {
				t.Errorf("addresses kept: %t: %v is %v, want %v", keeps, want, f, value)
			}
		}
		if len(got) != 6 {
			t.Errorf("addresses kept: %t: %v", keeps, got)
		}
	}
}

// TestRegressionNamesTheSetting checks that the ticket, as Alertmanager sends it, names the changed version and setting
// in the one line for them.
func TestRegressionNamesTheSetting(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(alertTests, rules.ReleaseRegression.Name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file promtoolFile
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	g := group(t, rules.Options{}, "llm-cause-release")
	var alert rules.FileRule
	for _, r := range rules.NewFile([]rules.Group{g}, rules.Style{}).Groups[0].Rules {
		if r.Alert == rules.ReleaseRegression.Name {
			alert = r
		}
	}
	want := map[string]string{
		"a new version, then twice as slow":               "Changed within 6h: roll back first: version another → 0.11.\n",
		"the same version restarted with another setting": "Changed within 6h: roll back first: quantization none → fp8.\n",
	}
	for _, test := range file.Tests {
		line, ours := want[test.Name]
		if !ours {
			continue
		}
		delete(want, test.Name)
		sim := loaded(t, needs(t, g, rules.ReleaseRegression))
		defer sim.Close()
		end := promtoolEpoch.Add(14 * time.Hour)
		if err := sim.Run(promtoolEpoch, end, time.Minute, replay(t, test.Series)); err != nil {
			t.Fatal(err)
		}
		_, text := notificationOf(t, alert, map[string]string{metrics.LabelModel: "m", metrics.LabelNamespace: "prod"}, 2,
			func(_ context.Context, query string, _ time.Time) (promql.Vector, error) {
				return sim.Query(query, end)
			})
		if !strings.Contains(text, line) {
			t.Errorf("%s: the ticket lacks %q:\n%s", test.Name, line, text)
		}
	}
	if len(want) > 0 {
		t.Errorf("no case %v", want)
	}
}

// TestChangesAreRemembered checks that the rules keep changes that a restarted exporter has forgotten. They also
// see, once each, that a new version replaces an old one that the exporter on another node did not see.
func TestChangesAreRemembered(t *testing.T) {
	sim := newSim(t, group(t, rules.Options{}, "llm-evidence-1"))
	restart, moved := 10*time.Minute, 30*time.Minute
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(time.Hour), scrapeEvery, func(now time.Time, emit rulesim.Emit) {
		place, version := []string{metrics.LabelModel, "m", metrics.LabelServer, "n0"}, "1"
		if now.Sub(rulesim.Epoch) >= moved {
			place[3], version = "n1", "2"
		}
		emit(series(metrics.EngineInfo.Name, append(place, metrics.LabelVersion, version)...), 1)
		if now.Sub(rulesim.Epoch) < restart {
			emit(series(metrics.EngineConfigChanged.Name, append(place, metrics.LabelSetting, "dtype", metrics.LabelOld, "a", metrics.LabelNew,
				"b")...), float64(rulesim.Epoch.Unix()))
		}
	}); err != nil {
		t.Fatal(err)
	}
	found, err := sim.Query(metrics.RecordedChanged.Name, rulesim.Epoch.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]time.Duration{}
	for _, s := range found {
		got[s.Metric.Get(metrics.LabelSetting)+" "+s.Metric.Get(metrics.LabelOld)+" "+s.Metric.Get(metrics.LabelNew)] = time.Unix(int64(s.F),
			0).Sub(rulesim.Epoch)
	}
	if want := map[string]time.Duration{"dtype a b": 0, "version another 2": moved}; !maps.Equal(got, want) {
		t.Errorf("changed: %v, want %v", got, want)
	}
}
