package incident

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

//go:embed report.html
var page string

// Size of a plot, in pixels.
const width, height, barHeight = 560, 90, 14

var report = template.Must(template.New("report").Funcs(template.FuncMap{
	"short": short, "when": when, "yes": yes, "plot": svg, "bars": barsSVG,
	"paged": func(s Score) bool { return len(s.PagedBy) > 0 },
}).Parse(page))

// WriteHTML writes the scores and what the incidents looked like as one self-contained page.
func WriteHTML(out io.Writer, traces []Trace) error { return report.Execute(out, traces) }

// svg draws a plot.
func svg(t Trace, p *Plot) template.HTML {
	from, to := t.span()
	top := 1.0
	for _, points := range p.Lines {
		for _, q := range points {
			top = max(top, q.Value)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, width, height, template.HTMLEscapeString(p.Title))
	onset := x(0, from, to)
	fmt.Fprintf(&b, `<line class="onset" x1="%.1f" x2="%.1f" y1="0" y2="%d"/>`, onset, onset, height)
	for i, name := range slices.Sorted(maps.Keys(p.Lines)) {
		var points strings.Builder
		for _, q := range p.Lines[name] {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(q.At, from, to), height-2-(height-16)*q.Value/top)
		}
		fmt.Fprintf(&b, `<polyline class="l%d" points="%s"><title>%s</title></polyline>`, i%8, strings.TrimSpace(points.String()), template.HTMLEscapeString(name))
	}
	fmt.Fprintf(&b, `<text x="2" y="10">%s, up to %.4g</text></svg>`, template.HTMLEscapeString(p.Title), top)
	return template.HTML(b.String()) // every text in it was escaped above
}

// barsSVG draws when which alert fired.
func barsSVG(t Trace) template.HTML {
	from, to := t.span()
	row := map[string]int{}
	for _, bar := range t.Bars {
		if _, ok := row[bar.Alert]; !ok {
			row[bar.Alert] = len(row)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="alerts">`, width, barHeight*max(1, len(row)))
	for _, bar := range t.Bars {
		start, end, y := x(max(bar.From, from), from, to), x(min(bar.To, to), from, to), barHeight*row[bar.Alert]
		class := "alert"
		if slices.Contains(t.Score.PagedBy, bar.Alert) {
			class = "alert page"
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`, class, start, y+1, end-start, barHeight-2)
	}
	for _, alert := range slices.Sorted(maps.Keys(row)) {
		fmt.Fprintf(&b, `<text x="2" y="%d">%s</text>`, barHeight*row[alert]+barHeight-4, template.HTMLEscapeString(short(alert)))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) // every text in it was escaped above
}

// span is the time that the plots show.
func (t Trace) span() (from, to time.Duration) { return -15 * time.Minute, t.Incident.Lasts }

func x(at, from, to time.Duration) float64 {
	return width * float64(at-from) / float64(to-from)
}
