package engine

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// exporterPage reads the exporter's own metrics page. There, every quantity already has its name and labels.
var exporterPage = func() *Dialect {
	d := &Dialect{Recognise: func(p *scrape.Page) bool { return p.HasPrefix("llm_") }}
	for _, l := range outNames {
		d.Labels = append(d.Labels, metrics.Carry{From: l, To: l})
	}
	for _, f := range metrics.All() {
		if d.Concerns(f) {
			d.Rows = append(d.Rows, Row{To: f, From: f.Name, Is: scrape.Type(f.Kind.String()), Failures: SinceFailure})
		}
	}
	return d
}()

// Stored is a metrics page whose series come from a Prometheus. The types of the families are therefore unknown.
type Stored struct {
	// Series lists name and labels of the metrics page's series.
	Series []labels.Labels
	// Model names the model of series without a model's name.
	Model string
	// Server and Fixed hold the labels that the scrape added: the address, and namespace, pod and container.
	Server string
	Fixed  map[string]string
}

// Line is a series that the exporter would serve from a stored metrics page.
type Line struct {
	// Series holds name and labels.
	Series labels.Labels
	line   line

	plan    *plan
	tallied map[string]*tallied // belongs to this line alone, because each line is computed over all readings before the next line
}

// Lines returns the series that the exporter would serve from the metrics page, including the objectives' events. If no
// dialect recognises the metrics page, Lines returns none.
func (s Stored) Lines(objectives []slo.Objective) ([]Line, error) {
	var text []byte
	for _, series := range s.Series {
		var ls []metrics.Label
		series.Range(func(l labels.Label) {
			if l.Name != model.MetricNameLabel {
				ls = append(ls, metrics.Label{Name: l.Name, Value: l.Value})
			}
		})
		text = append(metrics.AppendSeries(text, series.Get(model.MetricNameLabel), ls...), " 0\n"...)
	}
	page, err := engineFormat.Parse(text, "", scrape.DefaultLimits)
	if err != nil {
		return nil, err
	}
	dialects := []*Dialect{exporterPage}
	if !exporterPage.Recognise(page) {
		if !slices.ContainsFunc(builtin, func(d *Dialect) bool { return d.Recognise(page) }) {
			return nil, nil
		}
		if dialects, err = (&target{dialects: builtin, log: slog.New(slog.DiscardHandler)}).recognise(context.Background(), "",
			page); err != nil {
			return nil, err
		}
	}
	config := &settings{Config: Config{Objectives: objectives, Limits: scrape.DefaultLimits}}
	p, err := compile(page, dialects, &labelling{server: s.Server, fixed: s.Fixed},
		func(*Dialect) Identity { return Identity{Model: s.Model} }, config)
	if err != nil {
		return nil, err
	}
	promql := parser.NewParser(parser.Options{})
	var lines []Line
	for _, l := range p.lines {
		series, err := promql.ParseMetric(l.series())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.series(), err)
		}
		lines = append(lines, Line{series, l, p, map[string]*tallied{}})
	}
	return lines, nil
}

// StoredLine returns a line that repeats the series at an index of Stored.Series.
func StoredLine(series labels.Labels, place int) Line {
	return Line{Series: series, line: line{terms: []term{{place}}, recipe: plain}, plan: &plan{series: place + 1}}
}

// Adds lists the series that a line adds up, by their index in Stored.Series.
func (l Line) Adds() []int { return l.places(l.line.terms) }

// Reads lists all series of a line, including those that are subtracted.
func (l Line) Reads() []int { return append(l.Adds(), l.places(l.line.minus)...) }

// places lists the series of terms, including series of tallies.
func (l Line) places(terms []term) (all []int) {
	for _, i := range slices.Concat(terms...) {
		if i < l.plan.series {
			all = append(all, i)
			continue
		}
		tally := &l.plan.tallies[i-l.plan.series]
		for _, of := range slices.Concat(tally.counts...) {
			all = append(all, l.places([]term{of.term})...)
		}
		for _, w := range tally.weight {
			all = append(all, l.places(w.terms)...)
		}
	}
	return all
}

// Value computes the line from the values of Stored.Series. Later results depend on earlier values, so call it in order
// of time.
func (l Line) Value(values []float64) float64 {
	if l.plan.readsTallies(&l.line) {
		values = l.plan.tally(time.Time{}, slices.Clone(values), l.tallied)
	}
	return l.line.eval(values)
}

// Sources returns regular expressions for the names that the engines' series of the given quantities have in
// Prometheus. For histograms, they match the counts. They also match the names that Ray and OpenTelemetry use.
func Sources(of ...*metrics.Family) []string {
	var names []string
	for _, d := range builtin {
		for _, r := range d.Rows {
			if d.Role != "" || !slices.Contains(of, r.To) {
				continue
			}
			names = append(names, stored(r.From, r.Is))
			if r.Tally != nil {
				for _, other := range r.Tally.Of {
					names = append(names, stored(other.From, other.Is))
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// stored returns a regular expression for the names of a family's series.
func stored(family string, is scrape.Type) string {
	name := regexp.QuoteMeta(scrape.FamilyKey(family))
	if bare, after, ok := strings.Cut(name, ":"); ok {
		name = "(ray_)?" + bare + "[:_]" + after
	}
	if is == scrape.Histogram {
		return name + "_(bucket|count)"
	}
	return name + "(_total)?"
}
