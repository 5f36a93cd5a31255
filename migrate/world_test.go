package migrate

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	gpupage "github.com/llm-node-exporter/llm-node-exporter/collectors/gpu/page"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// pages lists the metrics pages of the world, of engines and of dcgm-exporter, from the collectors' own tests.
var pages = []struct{ job, file, path string }{
	{"vllm", "vllm/v0.32.0-healthy.prom", "/metrics"},
	{"vllm-offload", "vllm/v0.32.0-offload.prom", "/metrics"},
	{"vllm-old", "vllm/v0.10.2.prom", "/metrics"},
	{"sglang", "sglang/v0.5.23-loaded.prom", "/metrics"},
	{"sglang-hicache", "sglang/v0.5.20-hicache.prom", "/metrics"},
	{"tgi", "tgi/v3.3.7-loaded.prom", "/metrics"},
	{"trtllm", "trtllm/v1.3.0-full.prom", "/prometheus/metrics"},
	{"nim", "nim/1.x.prom", "/v1/metrics"},
	{"llamacpp", "llamacpp/b10450-loaded.prom", "/metrics"},
	{"vllm-decode", "vllm/v0.14.1-nixl-decode.prom", "/metrics"},
	{"vllm-prefill", "vllm/v0.24.0-mooncake-prefill.prom", "/metrics"},
	{"lmcache", "lmcache/in-vllm-v0.24.0.prom", "/metrics"},
}

const gpuPage = "../collectors/gpu/page/testdata/pages/dcgm-4.8.4-extended.prom"

// world holds the same hour twice: the metrics pages as a Prometheus scrapes them, and the exporter's series from them.
type world struct{ sim *rulesim.Sim }

// The jobs of the series: jobs of the metrics pages, which no query of ours can find, and jobs of nodes that the
// exporter reads through NVML. The numbers that nvidia_gpu_exporter would have for these nodes are not known.
const (
	oldJob  = "old-"
	ourJob  = "llm-node-exporter"
	nvmlJob = "nvml-llm-node-exporter"
)

// asked returns rows for fields that dcgm-exporter reads only on request, if the metrics page has no other source for
// them.
func asked(page string) []byte {
	var out bytes.Buffer
	key := func(e gpupage.Equal) string { return fmt.Sprint(e.To.Name, e.Set) }
	has := map[string]bool{}
	for _, e := range gpupage.Equals() {
		has[key(e)] = has[key(e)] || strings.Contains(page, "\n"+e.Name+"{")
	}
	for i, e := range gpupage.Equals() {
		if e.Not != "" || e.Latest || has[key(e)] {
			continue
		}
		has[key(e)] = true
		kind := "gauge"
		if e.To.Kind == metrics.Counter && !e.Rate {
			kind = "counter"
		}
		fmt.Fprintf(&out, "# TYPE %s %s\n", e.Name, kind)
		for gpu := range 2 {
			fmt.Fprintf(&out, "%s{gpu=\"%d\",UUID=\"GPU-6c0e1f7a-2f0b-4d1c-9a55-0d7c3f1b2a0%d\",pci_bus_id=\"00000000:%s:00.0\",modelName=\"NVIDIA H100 80GB HBM3\",hostname=\"gpu-node-1\"} %g\n",
				e.Name, gpu, gpu+1, []string{"1B", "43"}[gpu], float64(1+gpu+i)/1000)
		}
	}
	return out.Bytes()
}

const steps = 20

func newWorld(t *testing.T) world {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Close() })
	var served [][]byte
	var config []engine.TargetConfig
	var bases [][]byte
	var hosts []string
	for i, p := range pages {
		body, err := os.ReadFile(filepath.Join("../collectors/engine/testdata/pages", p.file))
		if err != nil {
			t.Fatal(err)
		}
		bases, served = append(bases, body), append(served, body)
		host := p.job + "-0:8000"
		hosts = append(hosts, host)
		config = append(config, engine.TargetConfig{
			URL: "http://" + host + p.path, Labels: pod(p.job), Timeout: model.Duration(time.Hour),
			Transport: inProcess(func(r *http.Request) []byte {
				if r.URL.Path == p.path {
					return served[i]
				}
				return nil
			}),
		})
	}
	now := rulesim.Epoch
	engines, err := engine.New(engine.Config{
		Targets: config, UserAgent: "test", Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	gpuBase, err := os.ReadFile(gpuPage)
	if err != nil {
		t.Fatal(err)
	}
	gpuBase = append(gpuBase, asked(string(gpuBase))...)
	gpuNow := gpuBase
	gpus, err := gpupage.New(gpupage.Options{Logger: slog.New(slog.DiscardHandler), Interval: 15 * time.Second, Targets: []gpupage.Target{{
		URL: "http://dcgm:9400", Timeout: time.Hour, Transport: inProcess(func(*http.Request) []byte { return gpuNow }),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var nvml [][]byte
	for _, name := range []string{"hopper", "mig"} {
		body, err := os.ReadFile("../collectors/gpu/testdata/" + name + ".prom")
		if err != nil {
			t.Fatal(err)
		}
		nvml = append(nvml, bytes.ReplaceAll(body, []byte("GPU-00000000"), []byte("GPU-"+name))) // both metrics pages describe the same fake GPUs
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(gpus)
	for step := range steps {
		now = rulesim.Epoch.Add(time.Duration(step) * 15 * time.Second)
		err := sim.Scrape(now, func(_ time.Time, emit rulesim.Emit) {
			for i, p := range pages {
				served[i] = later(t, bases[i], step)
				l := pod(p.job)
				l["instance"], l["job"], l["service"] = hosts[i], oldJob+p.job, p.job+"-0"
				put(t, served[i], l, emit)
			}
			gpuNow = later(t, gpuBase, step)
			put(t, gpuNow, map[string]string{"instance": "node-1", "job": oldJob + "dcgm"}, emit)

			ours := map[string]string{"instance": "node-1", "job": ourJob}
			var text bytes.Buffer
			if _, err := engines.Scrape(t.Context()).WriteTo(&text); err != nil {
				t.Fatal(err)
			}
			put(t, text.Bytes(), ours, emit)
			gpus.Read(t.Context(), now)
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			put(t, encode(t, families), ours, emit)
			for i, golden := range nvml {
				put(t, golden, map[string]string{"instance": fmt.Sprint("node-", i+2), "job": nvmlJob}, emit)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range engines.Engines() {
		if e.State() != "up" {
			t.Fatalf("%s is not read: %s %s", e.Server, e.Reason, e.Detail)
		}
	}
	return world{sim}
}

// inProcess answers requests without a network; nil is not found. However slow the machine is, no answer is late.
type inProcess func(*http.Request) []byte

// RoundTrip implements http.RoundTripper.
func (f inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	if body := f(r); body != nil {
		answer.Header().Set("Content-Type", "text/plain; version=0.0.4")
		answer.Write(body)
	} else {
		http.NotFound(answer, r)
	}
	return answer.Result(), nil
}

func pod(of string) map[string]string {
	return map[string]string{"namespace": "prod", "pod": of + "-0", "container": of}
}

// later returns a metrics page after some steps: counters have grown, and gauges have changed.
func later(t *testing.T, body []byte, step int) []byte {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	var all []*dto.MetricFamily
	for _, f := range families {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	for _, f := range all {
		for _, m := range f.Metric {
			times := uint64(40 + step)
			switch {
			case m.Counter != nil:
				*m.Counter.Value *= float64(times)
			case m.Histogram != nil:
				*m.Histogram.SampleCount *= times
				*m.Histogram.SampleSum *= float64(times)
				for _, b := range m.Histogram.Bucket {
					*b.CumulativeCount *= times
				}
			case m.Gauge != nil && f.GetName() != "process_start_time_seconds" && *m.Gauge.Value < 1e9 && !strings.HasSuffix(f.GetName(),
				"_created") && !strings.Contains(f.GetName(), "XID"):
				*m.Gauge.Value *= 1 - 0.02*float64(step%3)
			}
		}
	}
	return encode(t, all)
}

func encode(t *testing.T, families []*dto.MetricFamily) []byte {
	var out bytes.Buffer
	e := expfmt.NewEncoder(&out, expfmt.NewFormat(expfmt.TypeTextPlain).WithEscapingScheme(model.NoEscaping))
	for _, f := range families {
		if err := e.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// put stores a metrics page with the labels of its scrape; the page's own labels win, as with honor_labels.
func put(t *testing.T, body []byte, scrape map[string]string, emit rulesim.Emit) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range families {
		for _, m := range f.Metric {
			b := labels.NewBuilder(labels.EmptyLabels())
			for k, v := range scrape {
				b.Set(k, v)
			}
			for _, l := range m.Label {
				b.Set(l.GetName(), l.GetValue())
			}
			one := func(suffix, le string, v float64) {
				b.Set(model.MetricNameLabel, name+suffix)
				if le != "" {
					b.Set("le", le)
				}
				emit(b.Labels(), v)
			}
			switch {
			case m.Counter != nil:
				one("", "", m.Counter.GetValue())
			case m.Gauge != nil:
				one("", "", m.Gauge.GetValue())
			case m.Untyped != nil:
				one("", "", m.Untyped.GetValue())
			case m.Summary != nil:
				one("_sum", "", m.Summary.GetSampleSum())
				one("_count", "", float64(m.Summary.GetSampleCount()))
			case m.Histogram != nil:
				one("_sum", "", m.Histogram.GetSampleSum())
				one("_count", "", float64(m.Histogram.GetSampleCount()))
				infinite := false
				for _, bucket := range m.Histogram.Bucket {
					infinite = infinite || math.IsInf(bucket.GetUpperBound(), 1)
					one("_bucket", fmt.Sprint(bucket.GetUpperBound()), float64(bucket.GetCumulativeCount()))
				}
				if !infinite {
					one("_bucket", "+Inf", float64(m.Histogram.GetSampleCount()))
				}
			}
		}
	}
}

// ask evaluates an expression at the end of the hour, with every variable at All, over the old series or ours.
func (w world) ask(text, job string) (values []float64, err error) {
	plain, _ := withoutVariables(text)
	e, err := promql.Parser.ParseExpr(plain)
	if err != nil {
		return nil, err
	}
	e = shownBy(e)
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.MatrixSelector:
			n.Range = known(n.Range)
		case *parser.SubqueryExpr:
			n.Range, n.Step = known(n.Range), known(n.Step)
		case *parser.VectorSelector:
			for i, m := range n.LabelMatchers {
				switch {
				case !variable.MatchString(m.Value):
				case m.Type == labels.MatchEqual || m.Type == labels.MatchRegexp:
					n.LabelMatchers[i] = labels.MustNewMatcher(labels.MatchRegexp, m.Name, ".*")
				default:
					n.LabelMatchers[i] = labels.MustNewMatcher(labels.MatchNotEqual, m.Name, "a value of the variable")
				}
			}
			n.LabelMatchers = append(n.LabelMatchers, labels.MustNewMatcher(labels.MatchRegexp, "job", job))
		}
		return nil
	})
	v, err := w.sim.Query(e.String(), rulesim.Epoch.Add((steps-1)*15*time.Second))
	for _, s := range v {
		values = append(values, s.F)
	}
	slices.Sort(values)
	return values, err
}

// shownBy returns the value that an alert compares with a number, because an alert that does not fire has no other value.
func shownBy(e parser.Expr) parser.Expr {
	for {
		switch outer := e.(type) {
		case *parser.ParenExpr:
			e = outer.Expr
			continue
		case *parser.BinaryExpr:
			if _, number := outer.RHS.(*parser.NumberLiteral); number && outer.Op.IsComparisonOperator() {
				e = outer.LHS
				continue
			}
		}
		return e
	}
}

func known(d time.Duration) time.Duration {
	if d >= strangeDuration && d <= rateInterval {
		return 3 * time.Minute
	}
	return d
}

// same compares values without their labels.
func same(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool {
		return x == y || math.IsNaN(x) && math.IsNaN(y) || math.Abs(x-y) <= 1e-6*math.Max(math.Abs(x), math.Abs(y))
	})
}

// verdict is the result of rewriting an expression, from best to worst.
type verdict int

const (
	foreign  verdict = iota // of other software
	right                   // our expression has the old result
	renewed                 // the metrics pages no longer have the old name, and our expression has a result
	differs                 // our result differs, and a note explains the difference
	noSeries                // the metrics pages lack the metric, and our expression has no result, either
	left                    // stays unchanged, with a reason
	silent                  // the old expression has a result, our expression has none
	wrong                   // our result differs without a note
)

// judge compares an expression before and after.
func (w world) judge(t *testing.T, f Finding) verdict {
	switch {
	case f.Left != "":
		return left
	case f.From == f.To:
		return foreign
	}
	before, err := w.ask(f.From, oldJob+".*")
	if err != nil {
		t.Errorf("%s: %s: %v", f.Place, f.From, err)
		return wrong
	}
	job := ourJob
	if strings.Contains(f.From, "nvidia_smi_") {
		job = nvmlJob
	}
	after, err := w.ask(f.To, job)
	if err != nil {
		t.Errorf("%s: %s: %v", f.Place, f.To, err)
		return wrong
	}
	// The family starts at zero, but engines' own counters start at the first event.
	refused := strings.Contains(f.To, `llm_engine_requests_total{outcome="rejected"`)
	if more := len(after) - len(before); refused && len(before) > 0 && more > 0 {
		before = slices.Sorted(slices.Values(append(before, make([]float64, more)...)))
	}
	switch {
	case same(before, after) && len(before) > 0:
		return right
	case len(before) == 0 && len(after) == 0:
		return noSeries
	case len(before) == 0:
		return renewed
	case len(after) == 0 && (len(f.Notes) == 0 || slices.ContainsFunc(before, func(v float64) bool { return v != 0 })):
		return silent
	case len(f.Notes) > 0:
		return differs
	}
	t.Logf("%s: %s = %v\n  %s = %v", f.Place, f.From, before, f.To, after)
	return wrong
}
