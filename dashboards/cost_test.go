package dashboards_test

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

var (
	fleetModels   = flag.Int("models", 50, "models of the fleet whose dashboards are measured")
	fleetReplicas = flag.Int("replicas", 8, "replicas of each model, one GPU each")
	fleetHours    = flag.Int("hours", 24, "hours that a dashboard shows")
)

// A load of a dashboard over a day of 400 replicas, with no filter set, reads at most fifty times as much as for
// one model of eight replicas, which a Prometheus can bear. Six hours have as many points as a day.
func TestFleetsCanBeRead(t *testing.T) {
	const models, window = 50, 6 * time.Hour
	sim := fleetOf(t, 1, 8, window, func(*metrics.Family) bool { return true })
	for _, b := range boards(t) {
		open, _ := b.parts()
		total := int64(0)
		for _, p := range open {
			for _, q := range p.Targets {
				from := rulesim.Epoch
				if q.Instant {
					from = from.Add(window)
				}
				n := read(t, sim, b.substituteOver(t, q.Expr, window, time.Minute), from, rulesim.Epoch.Add(window), time.Minute) * models
				if n > mostPerQuery {
					t.Errorf("%s: %s %s reads %d samples: %s", b.Title, p.Title, q.RefID, n, q.Expr)
				}
				total += n
			}
		}
		if total > 4*mostPerQuery {
			t.Errorf("%s reads %d samples", b.Title, total)
		}
	}
}

// TestDrawingReadsWhatTheTableSays checks docs/boards.csv. The test lists how many samples the queries of each
// dashboard read when all its rows are drawn, over the range with which it opens, for a model of eight replicas.
func TestDrawingReadsWhatTheTableSays(t *testing.T) {
	file, err := os.Open("../docs/boards.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	table, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := slices.Index(table[0], "samples read")
	for i, b := range boards(t) {
		says, err := strconv.ParseFloat(table[1+i][column], 64)
		if err != nil || "LLM / "+table[1+i][0] != b.Title {
			t.Fatal(table[1+i], err)
		}
		opens, err := model.ParseDuration(strings.TrimPrefix(b.Time.From, "now-"))
		if err != nil {
			t.Fatal(err)
		}
		reads := map[*metrics.Family]bool{}
		b.each(func(_ panel, q target) {
			for _, name := range names(t, b.substitute(t, q.Expr)) {
				reads[promql.Lookup(name)] = true
			}
		})
		window := time.Duration(opens)
		begun := max(window, 25*time.Hour) // some queries look back for a day
		end, step, total := rulesim.Epoch.Add(begun), max(window/360, time.Minute), int64(0)
		sim := fleetOf(t, 1, 8, begun, func(f *metrics.Family) bool { return reads[f] })
		b.each(func(_ panel, q target) {
			from := end.Add(-window)
			if q.Instant {
				from = end
			}
			total += read(t, sim, b.substituteEvery(t, q.Expr, window, step, max(4*time.Minute, step+time.Minute)), from, end, step)
		})
		if math.Abs(float64(total)-says) > says/20 { // one label more or less does not require a new count
			t.Errorf("%s reads %d samples, and %s says %.0f: see samples in jsonnet-free-gen/dashboards.go", b.Title, total, file.Name(), says)
		}
	}
}

// fleetOf is a fleet in steady state.
func fleetOf(t testing.TB, models, replicas int, window time.Duration, keep func(*metrics.Family) bool, files ...[]byte) *rulesim.Sim {
	t.Helper()
	defer func(m, r int) { *fleetModels, *fleetReplicas = m, r }(*fleetModels, *fleetReplicas)
	*fleetModels, *fleetReplicas = models, replicas
	sim, err := rulesim.New(files...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	fill(t, sim, window, keep)
	return sim
}

// BenchmarkLoad measures the cost of opening each dashboard with no filter set: the samples that all queries of its
// open rows and its annotations touch, and the time they take one after the other. Prometheus scrapes every minute
// and graphs have 360 points. The closed rows are reported separately.
func BenchmarkLoad(b *testing.B) {
	window := time.Duration(*fleetHours) * time.Hour
	sim := fleetOf(b, *fleetModels, *fleetReplicas, window, func(*metrics.Family) bool { return true })
	for _, board := range boards(b) {
		load(b, sim, board, window)
	}
}

// BenchmarkMonth measures the cost of the dashboard of a month over 30 days. Only the series that it reads are
// stored, one sample a minute as the rules record them.
func BenchmarkMonth(b *testing.B) {
	const window = 30 * 24 * time.Hour
	all := boards(b)
	month := all[slices.IndexFunc(all, func(d board) bool { return d.UID == string(rules.SLODashboard) })]
	read := map[*metrics.Family]bool{}
	month.each(func(_ panel, q target) {
		for _, name := range names(b, month.substitute(b, q.Expr)) {
			read[promql.Lookup(name)] = true
		}
	})
	load(b, fleetOf(b, *fleetModels, *fleetReplicas, window, func(f *metrics.Family) bool { return read[f] }), month, window)
}

// load opens a dashboard and reports the cost.
func load(b *testing.B, sim *rulesim.Sim, board board, window time.Duration) {
	open, closed := board.parts()
	end := rulesim.Epoch.Add(window)
	b.Run(board.UID, func(b *testing.B) {
		for b.Loop() {
			start := time.Now()
			samples := touched(b, sim, board, open, end, window) + marked(b, sim, board, end, window)
			b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/load")
			b.ReportMetric(samples/1e6, "Msamples/load")
			b.ReportMetric(touched(b, sim, board, closed, end, window)/1e6, "Msamples/closed-rows")
		}
		b.ReportMetric(0, "ns/op")
	})
}

// parts returns the panels that a load shows, and the panels in collapsed rows.
func (b board) parts() (open, closed []panel) {
	for _, p := range b.Panels {
		if p.Type != "row" {
			open = append(open, p)
		}
		closed = append(closed, p.Panels...)
	}
	return open, closed
}

func touched(t testing.TB, sim *rulesim.Sim, b board, panels []panel, end time.Time, window time.Duration) float64 {
	total := int64(0)
	step := max(window/360, time.Minute)
	for _, p := range panels {
		for _, q := range p.Targets {
			from := end.Add(-window)
			if q.Instant {
				from = end
			}
			n := read(t, sim, b.substituteOver(t, q.Expr, end.Sub(from), step), from, end, step)
			if n > mostPerQuery {
				t.Logf("%s: %s %s reads %d samples: %s", b.UID, p.Title, q.RefID, n, q.Expr)
			}
			total += n
		}
	}
	return float64(total)
}

// mostPerQuery is how many samples a query in an open row may read over a day of 50 models.
const mostPerQuery = 5_000_000

// read returns how many samples a query reads. For a subquery, Prometheus counts the results and not their inputs.
// It counts the results of a subquery that ends with the range for each point, although it evaluates them once.
func read(t testing.TB, sim *rulesim.Sim, query string, from, end time.Time, step time.Duration) int64 {
	t.Helper()
	count := func(query string, from, end time.Time, step time.Duration) int64 {
		_, n, err := sim.Range(query, from, end, step)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := count(query, from, end, step)
	e, err := promql.Parser.ParseExpr(query)
	if err != nil {
		t.Fatal(err)
	}
	parser.Inspect(e, func(node parser.Node, path []parser.Node) error {
		if sub, ok := node.(*parser.SubqueryExpr); ok {
			start := from
			if sub.StartOrEnd == parser.END {
				start = end
				n -= count(path[len(path)-1].String(), end, end, step) * int64(end.Sub(from)/step)
			}
			n += count(sub.Expr.String(), start.Add(-sub.Range), end, sub.Step)
		}
		return nil
	})
	return n
}

// marked is the cost of the annotations, which Grafana asks for every minute of the range, or at most 11,000
// times.
func marked(t testing.TB, sim *rulesim.Sim, b board, end time.Time, window time.Duration) float64 {
	total := int64(0)
	for _, a := range b.Annotations.List[1:] {
		_, n, err := sim.Range(b.substitute(t, a.Expr), end.Add(-window), end, max(window/11000, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return float64(total)
}

// fill stores a fleet in steady state: the families of the vocabulary and of the rules that keep selects.
// The recorded series are written as they would be recorded; evaluating a day of rules would only take
// longer.
func fill(t testing.TB, sim *rulesim.Sim, window time.Duration, keep func(*metrics.Family) bool) {
	type stored struct {
		labels    labels.Labels
		perMinute float64
	}
	var all []stored
	seen := map[uint64]bool{}
	add := func(l labels.Labels, perMinute float64) {
		if !seen[l.Hash()] { // a series for all models comes once
			seen[l.Hash()] = true
			all = append(all, stored{l, perMinute})
		}
	}
	for m := range *fleetModels {
		for r := range *fleetReplicas {
			for _, f := range metrics.All() {
				if !keep(f) {
					continue
				}
				for _, l := range (world{}).series(f) {
					l = relabel(l, m, r)
					switch f.Kind {
					case metrics.Histogram:
						for _, le := range bounds {
							add(with(l, f.Name+"_bucket", "le", metrics.FormatBound(le)), 60)
						}
						add(with(l, f.Name+"_count"), 60)
						add(with(l, f.Name+"_sum"), 60)
					case metrics.Counter:
						add(with(l, f.Name), 60)
					default:
						add(with(l, f.Name), 0)
					}
				}
			}
		}
		for _, g := range rules.Groups(rules.Options{}) {
			for _, rec := range g.Records {
				if rec.Name == metrics.RecordedChanged || rec.Name == metrics.RecordedStarted || !keep(promql.Lookup(rec.Name.Name)) {
					continue // the first two are absent in steady state
				}
				for _, l := range (world{}).series(rec.Name) {
					for r := range *fleetReplicas {
						l = relabel(l, m, r)
						for _, le := range bounds {
							if !rec.Name.HasLabel("le") {
								add(with(l, rec.Name.Name), 0)
								break
							}
							add(with(l, rec.Name.Name, "le", metrics.FormatBound(le)), 0)
						}
					}
				}
			}
		}
	}
	t.Logf("%d series", len(all))
	for at := time.Duration(0); at <= window; at += time.Minute {
		if err := sim.Append(rulesim.Epoch.Add(at), func(emit rulesim.Emit) {
			for i, s := range all { // each of them is sometimes the largest
				wave := (int(at.Minutes()) + i) % 5
				emit(s.labels, 1+s.perMinute*at.Minutes()+(1+s.perMinute/6)*float64(wave))
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// relabel makes the series of one replica of one model.
func relabel(l labels.Labels, m, r int) labels.Labels {
	b := labels.NewBuilder(l)
	for name, value := range map[string]string{
		metrics.LabelModel: fmt.Sprintf("model-%d", m), metrics.LabelPod: fmt.Sprintf("model-%d-%d", m, r),
		metrics.LabelServer:  fmt.Sprintf("10.0.%d.%d:8000", m, r),
		metrics.LabelGPUUUID: fmt.Sprintf("GPU-%d-%d", m, r), "instance": fmt.Sprintf("node-%d", (m*(*fleetReplicas)+r)/4),
		metrics.LabelGPU: fmt.Sprint(r % 8),
	} {
		if l.Has(name) {
			b.Set(name, value)
		}
	}
	return b.Labels()
}

func with(l labels.Labels, name string, pairs ...string) labels.Labels {
	b := labels.NewBuilder(l).Set(model.MetricNameLabel, name)
	for i := 0; i < len(pairs); i += 2 {
		b.Set(pairs[i], pairs[i+1])
	}
	return b.Labels()
}
