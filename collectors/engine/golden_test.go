package engine

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// pages lists the recorded-style metrics pages below testdata/pages.
func pages(t testing.TB) []string {
	var names []string
	err := filepath.WalkDir("testdata/pages", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel("testdata/pages", path)
			names = append(names, rel)
		}
		return err
	})
	if err != nil || len(names) == 0 {
		t.Fatal("no pages", err)
	}
	return names
}

func readPage(t testing.TB, name string) string {
	b, err := os.ReadFile(filepath.Join("testdata/pages", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// statusInName is the HTTP status that a metrics page was sent with, as in loading-503.json.
var statusInName = regexp.MustCompile(`-([45]\d\d)\.json$`)

// unreported matches the source of a quantity that a metrics page lacks.
var unreported = regexp.MustCompile(`^llm_engine_metric_source_info\{runtime="([^"]*)".*\bmetric="([^"]*)".*\bquality="missing"`)

// reported leaves out quantities that no release of the engine reports: docs/engines.md lists them.
func reported(page string) string {
	var kept strings.Builder
	for line := range strings.Lines(page) {
		if m := unreported.FindStringSubmatch(line); m == nil || slices.ContainsFunc(builtin, func(d *Dialect) bool {
			return string(d.Runtime) == m[1] && (d.Endpoints[metrics.Lookup(m[2])] != "" ||
				slices.ContainsFunc(d.Rows, func(r Row) bool { return r.To.Name == m[2] }))
		}) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// condense writes an exposition so that a person can review it: one line per series or histogram, sources as a table.
func condense(t testing.TB, page string) string {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatalf("the exposition cannot be parsed: %v", err)
	}
	var out strings.Builder
	for _, f := range metrics.All() {
		got := families[f.Name]
		if got == nil || f == metrics.EngineScrapeDuration {
			continue
		}
		if got.GetType().String() != strings.ToUpper(f.Kind.String()) {
			t.Errorf("%s is a %s in the exposition, declared as %s", f.Name, got.GetType(), f.Kind)
		}
		for _, m := range got.Metric {
			label := func(name string) string {
				i := slices.IndexFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == name })
				if i < 0 {
					return "-"
				}
				return m.Label[i].GetValue()
			}
			if f == metrics.MetricSourceInfo {
				fmt.Fprintf(&out, "source %-52s %-12s %s", label("metric"), label("quality"), label("source"))
				if why := label("reason"); why != "-" {
					fmt.Fprintf(&out, "  (%s)", why)
				}
				out.WriteByte('\n')
				continue
			}
			if f == metrics.EngineConfig {
				if label("quality") != string(metrics.Missing) {
					fmt.Fprintf(&out, "%s %s %s=%s  (%s)\n", f.Name, label("model_name"), label("setting"), label("value"), label("source"))
				}
				continue
			}
			out.WriteString(f.Name)
			for _, l := range m.Label {
				if l.GetName() != "server" {
					fmt.Fprintf(&out, " %s=%q", l.GetName(), l.GetValue())
				}
			}
			switch {
			case m.Histogram != nil:
				fmt.Fprintf(&out, "\n  count %d sum %v buckets", m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum())
				for _, b := range m.Histogram.Bucket {
					fmt.Fprintf(&out, " %v:%d", b.GetUpperBound(), b.GetCumulativeCount())
				}
			case m.Counter != nil:
				fmt.Fprintf(&out, " = %v", m.Counter.GetValue())
			case f == metrics.EngineLastServed: // the golden of the test
			default:
				fmt.Fprintf(&out, " = %v", m.Gauge.GetValue())
			}
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// TestGoldenPages maps every metrics page and compares the whole output with its golden.
func TestGoldenPages(t *testing.T) {
	golden.All(t, "testdata/golden/*/*.txt", len(pages(t)))
	var missing golden.Missing
	for _, name := range pages(t) {
		t.Run(name, func(t *testing.T) {
			engine := serve(t, readPage(t, name))
			if m := statusInName.FindStringSubmatch(name); m != nil {
				engine.status, _ = strconv.Atoi(m[1])
				engine.contentType = "application/json"
			}
			page := exposition(t, collectorFor(t, []TargetConfig{{URL: engine.URL}}))
			golden.Compare(t, filepath.Join("testdata/golden", strings.TrimSuffix(name, filepath.Ext(name))+".txt"),
				condense(t, missing.Cut(name, reported(page))))
			problems, err := promlint.New(strings.NewReader(page)).Lint()
			if err != nil {
				t.Errorf("promlint cannot read the exposition: %v", err)
			}
			for _, p := range problems {
				t.Errorf("promlint: %s: %s", p.Metric, p.Text)
			}
		})
	}
	missing.Compare(t, "testdata/missing.tsv", len(pages(t)))
}

// TestGoldenObjectives checks the series that objectives add to a metrics page, and the families that condense
// writes differently or not at all.
func TestGoldenObjectives(t *testing.T) {
	const engine = "# TYPE vllm:time_to_first_token_seconds histogram\n" +
		"vllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.5\"} 90\n" +
		"vllm:time_to_first_token_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 100\n" +
		"vllm:time_to_first_token_seconds_sum{model_name=\"m\"} 40\nvllm:time_to_first_token_seconds_count{model_name=\"m\"} 100\n" +
		"# TYPE vllm:request_success_total counter\nvllm:request_success_total{model_name=\"m\",finished_reason=\"brand_new\"} 1\n"
	owned := objective(t, "ttft", slo.TTFT, "600ms", "99%")
	owned.Labels = map[string]string{"team": "search", "product": "chat"}
	owned.Severity, owned.Runbook, owned.Dashboard = slo.Ticket, "https://wiki.example/ttft", "https://grafana.example/d/chat"
	page := exposition(t, collectorWith(t, Config{Targets: []TargetConfig{{URL: serve(t, engine).URL}}, Objectives: []slo.Objective{
		owned, objective(t, "availability", slo.Availability, "", "99.9%"),
	}, Maintenance: []slo.Maintenance{{To: slo.Moment{Time: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)}, Reason: "new racks"}}}))
	var kept strings.Builder
	for line := range strings.Lines(page) {
		if !strings.Contains(line, `quality="missing"`) && !strings.Contains(line, metrics.SourceMissing.Name) { // lacking here
			kept.WriteString(line)
		}
	}
	golden.Compare(t, "testdata/objectives.prom", golden.Still(kept.String(), metrics.EngineScrapeDuration.Name))
}
