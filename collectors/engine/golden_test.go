package engine

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

var update = flag.Bool("update", false, "rewrite testdata/golden; read the diff before committing it")

// pages lists the recorded-style pages below testdata/pages.
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

// statusInName is the HTTP status that a page was sent with, as in loading-503.json.
var statusInName = regexp.MustCompile(`-([45]\d\d)\.json$`)

// condense writes an exposition so that a person can review it: one line per series or histogram,
// labels that every series has once on top, sources as a table.
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
			default:
				fmt.Fprintf(&out, " = %v", m.Gauge.GetValue())
			}
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// TestGoldenPages maps every page and compares everything that comes out with its golden.
func TestGoldenPages(t *testing.T) {
	for _, name := range pages(t) {
		t.Run(name, func(t *testing.T) {
			engine := serve(t, readPage(t, name))
			if m := statusInName.FindStringSubmatch(name); m != nil {
				engine.status, _ = strconv.Atoi(m[1])
				engine.contentType = "application/json"
			}
			page := exposition(t, collectorFor(t, []TargetConfig{{URL: engine.URL}}))
			got := condense(t, page)
			golden := filepath.Join("testdata/golden", strings.TrimSuffix(name, filepath.Ext(name))+".txt")
			if *update {
				if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("exposition differs from %s:\n%s", golden, firstDifference(got, string(want)))
			}
			problems, err := promlint.New(strings.NewReader(page)).Lint()
			if err != nil {
				t.Errorf("promlint cannot read the exposition: %v", err)
			}
			for _, p := range problems {
				t.Errorf("promlint: %s: %s", p.Metric, p.Text)
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "got  " + g[i] + "\nwant " + w[i]
		}
	}
	return "one is a prefix of the other"
}
