package metrics

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
)

// TestLabelsAreDeclaredOnce checks exported and recorded families.
func TestLabelsAreDeclaredOnce(t *testing.T) {
	for _, f := range append(slices.Clone(All()), Recorded()...) {
		if sorted := slices.Sorted(slices.Values(f.Labels)); len(slices.Compact(slices.Clone(sorted))) < len(sorted) {
			t.Errorf("%s: %v", f.Name, sorted)
		}
	}
}

// TestConventions checks every declared family against the rules of docs/metrics.md and of Prometheus.
func TestConventions(t *testing.T) {
	name := regexp.MustCompile(`^llm_(engine|gateway|gpu|slo|probe|exporter)_[a-z0-9]+(_[a-z0-9]+)*$`)
	base := []string{"_milliseconds", "_ms", "_percent", "_perc", "_kib", "_mb", "_mhz", "_milliwatts", "_celsius_total"}
	for _, f := range All() {
		if !name.MatchString(f.Name) {
			t.Errorf("%s is not llm_<subject>_<words>", f.Name)
		}
		if strings.HasSuffix(f.Name, "_total") != (f.Kind == Counter) {
			t.Errorf("%s: counters end in _total, nothing else does", f.Name)
		}
		if strings.HasSuffix(f.Name, "_info") != (f.Kind == Info) {
			t.Errorf("%s: infos end in _info, nothing else does", f.Name)
		}
		for _, unit := range base {
			if strings.HasSuffix(strings.TrimSuffix(f.Name, "_total"), unit) {
				t.Errorf("%s is not in a base unit", f.Name)
			}
		}
		if f.Help == "" || !strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s: the help is a sentence", f.Name)
		}
		if slices.ContainsFunc([]string{"engine", "engine_type", "le", "quantile"}, f.has) {
			t.Errorf("%s has a label whose name means something else elsewhere: %v", f.Name, f.Labels)
		}
		if (f.Kind == Counter || f.Kind == Histogram) && f.Aggregate != Sum {
			t.Errorf("%s: counters and histograms are summed", f.Name)
		}
		if f.Kind == Gauge && strings.HasSuffix(f.Name, "_ratio") && f.Aggregate == Sum {
			t.Errorf("%s: ratios are never summed", f.Name)
		}
		if f.Owner == Engine && !slices.Equal(f.Labels[:min(len(EngineLabels), len(f.Labels))], EngineLabels) {
			t.Errorf("%s: what an engine reports is labelled with EngineLabels first", f.Name)
		}
		if Lookup(f.Name) != f || All()[f.Index] != f {
			t.Errorf("%s is not where it says", f.Name)
		}
	}
}

func (f *Family) has(label string) bool { return slices.Contains(f.Labels, label) }

// everything emits one sample of each counter and gauge.
type everything struct{}

func (everything) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range All() {
		ch <- f.Desc()
	}
}

func (everything) Collect(ch chan<- prometheus.Metric) {
	for _, f := range All() {
		if f.Kind != Histogram {
			ch <- f.Const(1, make([]string, len(f.Labels))...)
		}
	}
}

// TestDescriptors registers the whole vocabulary with client_golang and lints the result. TestStable checks that
// families that others build on stay unchanged. A stable family keeps its name, type and labels within a major
// version.
func TestStable(t *testing.T) {
	var page strings.Builder
	for _, f := range All() {
		if f.Exported() && !f.Experimental {
			fmt.Fprintf(&page, "%s %s %s\n", f.Name, f.Kind, strings.Join(f.Labels, ","))
		}
	}
	golden.Compare(t, "testdata/stable.txt", page.String())
	if t.Failed() {
		t.Error("a stable family has changed: keep it, and add another beside it (docs/metrics.md#stability). A new one begins with " +
			"experimental()")
	}
}

func TestDescriptors(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(everything{})
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestConstReportsWrongLabels(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector(func(ch chan<- prometheus.Metric) { ch <- CollectorSuccess.Const(1) }))
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), CollectorSuccess.Name) {
		t.Errorf("got %v, want an error that names the metric", err)
	}
}

type collector func(chan<- prometheus.Metric)

func (collector) Describe(chan<- *prometheus.Desc)      {}
func (c collector) Collect(ch chan<- prometheus.Metric) { c(ch) }

func TestText(t *testing.T) {
	for _, c := range []struct {
		got, want string
	}{
		{string(AppendSeries(nil, "m")), `m`},
		{string(AppendSeries(nil, "m", Label{"a", ""}, Label{"b", "x"}, Label{"c", "q\"\\\n"})), `m{b="x",c="q\"\\\n"}`},
		{string(AppendValue(nil, 0)), " 0\n"},
		{string(AppendValue(nil, 1e15)), " 1e+15\n"},
		{string(AppendValue(nil, 123456789012)), " 123456789012\n"},
		{string(AppendValue(nil, -0.30000000000000004)), " -0.30000000000000004\n"},
		{FormatBound(1), "1"},
		{FormatBound(0.00015), "0.00015"},
		{FormatBound(1 / zero), "+Inf"},
		{
			string(AppendHeader(nil, CollectorSuccess)),
			"# HELP llm_exporter_collector_success Whether the last run of a collector worked (1).\n# TYPE llm_exporter_collector_success gauge\n",
		},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

var zero float64
