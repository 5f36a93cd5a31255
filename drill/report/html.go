package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

var (
	//go:embed report.html
	page string
	//go:embed plots.css
	style template.CSS
)

// These are sizes in pixels of a plot, of the row of bars, and of the time axis below both.
const width, height, barsWidth, barHeight, timesHeight = 390, 110, 1180, 17, 14

var report = template.Must(template.New("report").Funcs(template.FuncMap{
	"style": func() template.CSS { return style }, "short": short, "when": when, "yes": yes, "plot": figure, "bars": bars,
	"paged": func(s score.Score) bool { return len(s.PagedBy) > 0 },
}).Parse(page))

// WriteHTML writes the scores and the plots of the incidents as one self-contained file.
func WriteHTML(out io.Writer, traces []Trace) error { return report.Execute(out, traces) }

// figure renders a plot with its title and legend.
func figure(t Trace, p *Plot) template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<figure><figcaption>%s, up to %.4g`, template.HTMLEscapeString(p.Title), p.top())
	for i, name := range p.names() {
		fmt.Fprintf(&b, ` <span class="k%d">%s</span>`, i%8, template.HTMLEscapeString(name))
	}
	fmt.Fprintf(&b, `</figcaption><svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, width, height+timesHeight,
		template.HTMLEscapeString(p.Title))
	lines(&b, t, p)
	b.WriteString(`</svg></figure>`)
	return template.HTML(b.String()) // all texts in it are escaped above
}

// names returns the names of the lines in order.
func (p *Plot) names() []string { return slices.Sorted(maps.Keys(p.Lines)) }

// top returns the largest value, at least 1.
func (p *Plot) top() float64 {
	top := 1.0
	for _, points := range p.Lines {
		for _, q := range points {
			top = max(top, q.Value)
		}
	}
	return top
}

// lines draws the lines of a plot.
func lines(b *strings.Builder, t Trace, p *Plot) {
	from, to := t.span()
	times(b, from, to, width, height)
	top := p.top()
	for i, name := range p.names() {
		y := func(q Point) string { return fmt.Sprintf("%.1f", height-2-(height-6)*q.Value/top) }
		for _, line := range unbroken(p.Lines[name]) {
			fmt.Fprintf(b, `<polyline class="l%d" points="`, i%8)
			for i, q := range line {
				if i > 0 && i < len(line)-1 && y(line[i-1]) == y(q) && y(q) == y(line[i+1]) {
					continue // the line is level here
				}
				fmt.Fprintf(b, "%.1f,%s ", x(q.At, from, to, width), y(q))
			}
			b.WriteString(`"/>`)
		}
	}
}

// unbroken splits a line into parts at the places where values are missing.
func unbroken(line []Point) (parts [][]Point) {
	for i, q := range line {
		if i == 0 || q.At-line[i-1].At > rules.Interval {
			parts = append(parts, nil)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], q)
	}
	return parts
}

// times draws a line at the onset, and the labels of the time axis below the plot.
func times(b *strings.Builder, from, to time.Duration, width, height float64) {
	onset := x(0, from, to, width)
	fmt.Fprintf(b, `<line class="onset" x1="%.1f" x2="%.1f" y1="0" y2="%.0f"/>`, onset, onset, height)
	step := 10 * time.Minute
	for to > 8*step {
		step *= 3
	}
	for at := time.Duration(0); at < to; at += step {
		fmt.Fprintf(b, `<text x="%.1f" y="%.0f" text-anchor="middle">%.0f min</text>`, x(at, from, to, width), height+11, at.Minutes())
	}
}

// bars renders the bars that show when each alert fired.
func bars(t Trace) template.HTML {
	n := len(t.alerts())
	if n == 0 {
		return "<p>No alert fires.</p>"
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="alerts">`, barsWidth, barHeight*n+timesHeight)
	alertBars(&b, t)
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) // all texts in it are escaped above
}

// alerts returns the names of the alerts that fired, in the order of the bars.
func (t Trace) alerts() (names []string) {
	for _, bar := range t.Bars {
		if !slices.Contains(names, bar.Alert) {
			names = append(names, bar.Alert)
		}
	}
	return names
}

// alertBars draws a row for each alert that fired.
func alertBars(b *strings.Builder, t Trace) {
	from, to := t.span()
	names := t.alerts()
	for _, bar := range t.Bars {
		start, end, y := x(max(bar.From, from), from, to, barsWidth), x(min(bar.To, to), from, to, barsWidth),
			barHeight*slices.Index(names, bar.Alert)
		class := "alert"
		if slices.Contains(t.Score.PagedBy, bar.Alert) {
			class = "alert page"
		}
		fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`, class, start, y+1, end-start, barHeight-2)
	}
	times(b, from, to, barsWidth, float64(barHeight*len(names)))
	for i, alert := range names {
		fmt.Fprintf(b, `<text class="name" x="4" y="%d">%s</text>`, barHeight*i+barHeight-5, template.HTMLEscapeString(short(alert)))
	}
}

// span returns the time range of the plots.
func (t Trace) span() (from, to time.Duration) { return -before, t.Incident.Lasts }

// x returns the horizontal position of a time, in pixels.
func x(at, from, to time.Duration, width float64) float64 {
	return width * float64(at-from) / float64(to-from)
}
