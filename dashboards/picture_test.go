package dashboards_test

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

var update = flag.Bool("update", false, "write docs/incident.svg")

// pictured lists the panels of the incident dashboard in docs/incident.svg, two in a line.
var pictured = []string{
	"Burn rate by window", "Alerts over time",
	"Time to first token, p95", "Inter-token latency, p95",
	"Queue share of TTFT", "Time throttled",
}

// picturedIncident is the incident in docs/incident.svg.
const picturedIncident = "thermal-throttle"

// picture checks that the picture in the docs shows the results of the incident dashboard's queries while the drill
// lets the cooling of a node fail, filtered to one objective and one GPU. The test draws the picture, not Grafana,
// and the picture states that.
func (s shown) picture(t *testing.T) {
	t.Helper()
	s.from = s.onset.Add(-15 * time.Minute)
	b := boards(t)[0]
	b.choose(t, metrics.LabelSLO, "itl")
	b.choose(t, metrics.LabelGPUUUID, "GPU-00000000-0000-4000-8000-000000000000")
	var svg bytes.Buffer
	lines := (len(pictured) + 1) / 2
	fmt.Fprintf(&svg, head, frameWidth*2+gap, lines*(frameHeight+gap)+58)
	fmt.Fprintf(&svg, `<text x="2" y="16" class="title">The cooling of a node fails at 0: inter-token latency burns its budget, and the GPUs say why</text>`+"\n")
	for i, title := range pictured {
		at := slices.IndexFunc(b.flat(), func(p panel) bool { return p.Title == title })
		if at < 0 {
			t.Fatalf("no panel %s", title)
		}
		fmt.Fprintf(&svg, `<g transform="translate(%d %d)">`+"\n", i%2*(frameWidth+gap), 28+i/2*(frameHeight+gap))
		s.plot(t, &svg, b, b.flat()[at])
		svg.WriteString("</g>\n")
	}
	y := 28 + lines*(frameHeight+gap)
	fmt.Fprintf(&svg, `<text x="2" y="%d" class="note">The Incident dashboard's own queries, filtered to one objective and one GPU, over the drill's simulated engines and GPUs (--incident thermal-throttle).</text>`+"\n", y+8)
	fmt.Fprintf(&svg, `<text x="2" y="%d" class="note">Plotted by a test, not a screenshot of Grafana. Lines that stay at 0 are left out.</text>`+"\n</svg>\n", y+24)
	const path = "../docs/incident.svg"
	if *update {
		if err := os.WriteFile(path, svg.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if old, err := os.ReadFile(path); err != nil || !bytes.Equal(old, svg.Bytes()) {
		t.Errorf("%s is not what the queries say: go test ./dashboards -run Drill/incidents/thermal-throttle -update, and look at it (%v)",
			path, err)
	}
	for d := xml.NewDecoder(&svg); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// Sizes in pixels: a frame is one panel, the area inside it has the lines.
const (
	frameWidth, frameHeight, gap = 472, 176, 12
	left, right, top, bottom     = 52, 446, 34, 130
)

// head opens the picture. The colours are the dashboards' colours, lighter on a dark background.
const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="11" role="img" aria-label="Burn rate and latency rise, the queue follows, the GPUs show throttling">
<style>
.frame{fill:#fff;stroke:#d0d7de} .grid{stroke:#e4e8ec} .onset{stroke:#57606a;stroke-dasharray:2 3} text{fill:#1f2328} .title{font-weight:600;font-size:13px} .note{fill:#57606a}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round} .limit{stroke-width:1;stroke-dasharray:5 4}
.a{stroke:#0072b2} .b{stroke:#e69f00} .c{stroke:#b0568a} .d{stroke:#d55e00} .bar{fill:#d55e00}
@media (prefers-color-scheme:dark){.frame{fill:#161b22;stroke:#30363d} .grid{stroke:#262c34} .onset{stroke:#8d96a0} text{fill:#e6edf3} .note{fill:#9aa4af} .a{stroke:#56b4e9} .c{stroke:#cc79a7} .d{stroke:#f0803c} .bar{fill:#c0550a}}
</style>
`

// drawn is one line of a panel.
type drawn struct {
	class, legend string
	points        []promql.FPoint
}

// plot draws one panel.
func (s shown) plot(t *testing.T, svg io.Writer, b board, p panel) {
	fmt.Fprintf(svg, `<rect x=".5" y=".5" width="%d" height="%d" rx="6" class="frame"/><text x="12" y="20" class="title">%s</text>`+"\n",
		frameWidth-1, frameHeight-1, html.EscapeString(p.Title))
	var all []drawn
	highest := 0.0
	for i, q := range p.Targets {
		for _, l := range s.ask(t, b, q.Expr) {
			_, most := band(l.Floats, func(int64) bool { return true })
			if most > 0 {
				all = append(all, drawn{string(rune('a' + i)), p.renamed(t, legend(q.LegendFormat, l.Metric)), l.Floats})
			}
			highest = max(highest, most)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s is empty", p.Title)
	}
	for m := -10; m <= 30; m += 10 {
		at := s.onset.Add(time.Duration(m) * time.Minute)
		fmt.Fprintf(svg, `<text x="%.0f" y="%d" text-anchor="middle" class="note">%d min</text>`, s.x(at.UnixMilli()), bottom+14, m)
	}
	x := s.x(s.onset.UnixMilli())
	fmt.Fprintf(svg, `<path d="M%.1f %dV%d" class="onset"/>`+"\n", x, top-6, bottom)
	if p.Type == "state-timeline" {
		s.bars(svg, all)
		return
	}
	ceiling := nice(highest)
	if m := p.FieldConfig.Defaults.Max; m != nil {
		ceiling = *m
	}
	y := func(v float64) float64 { return bottom - (bottom-top)*min(v, ceiling)/ceiling }
	for i := range 3 {
		v := ceiling * float64(i) / 2
		fmt.Fprintf(svg, `<path d="M%d %.1fH%d" class="grid"/><text x="%d" y="%.1f" text-anchor="end" class="note">%s</text>`+"\n", left,
			y(v), right, left-6, y(v)+4, value(v, p.FieldConfig.Defaults.Unit))
	}
	x = left
	for _, l := range all {
		class := "line " + l.class
		if strings.HasPrefix(l.legend, "limit") || strings.HasPrefix(l.legend, "pages") {
			class += " limit"
		}
		var points strings.Builder
		for _, f := range l.points {
			fmt.Fprintf(&points, "%.1f,%.1f ", s.x(f.T), y(f.F))
		}
		fmt.Fprintf(svg, `<polyline class="%s" points="%s"/>`+"\n", class, strings.TrimSpace(points.String()))
		fmt.Fprintf(svg, `<path d="M%.0f %dh16" class="%s"/><text x="%.0f" y="%d">%s</text>`+"\n", x, bottom+30, class, x+21, bottom+34,
			html.EscapeString(l.legend))
		x += 36 + 6*float64(len(l.legend))
	}
}

// bars draws when each state was set.
func (s shown) bars(svg io.Writer, all []drawn) {
	all = slices.DeleteFunc(all, func(l drawn) bool { return l.legend == "all" }) // shows only whether there is another row
	slices.SortFunc(all, func(a, b drawn) int { return int(a.points[0].T - b.points[0].T) })
	for i, l := range all {
		y := top + 13*i
		for _, f := range l.points {
			fmt.Fprintf(svg, `<rect x="%.1f" y="%d" width="%.1f" height="11" class="bar"/>`, s.x(f.T), y, min(s.x(f.T+60_000), right)-s.x(f.T)+0.3)
		}
		fmt.Fprintf(svg, `<text x="%.1f" y="%d" text-anchor="end">%s</text>`+"\n", s.x(l.points[0].T)-5, y+9, html.EscapeString(l.legend))
	}
}

// x returns the place of a time in a frame.
func (s shown) x(at int64) float64 {
	return left + (right-left)*float64(at-s.from.UnixMilli())/float64(s.to.Sub(s.from).Milliseconds())
}

// legend fills in labels. Model and GPU are the same for all lines of the picture, so a line names them only if it
// has no other label; the cluster is never named.
func legend(format string, of labels.Labels) string {
	format = strings.ReplaceAll(format, "{{cluster}}", "")
	fill := func(format string) string {
		of.Range(func(l labels.Label) { format = strings.ReplaceAll(format, "{{"+l.Name+"}}", l.Value) })
		return strings.Join(strings.Fields(absent.ReplaceAllString(format, "")), " ")
	}
	short := strings.NewReplacer("{{model_name}}", "", "{{namespace}}", "", "{{instance}}", "", "{{gpu_uuid}}", "").Replace(format)
	return cmp.Or(fill(short), fill(format))
}

// absent matches a label that a line does not have.
var absent = regexp.MustCompile(`{{\w+}}`)

// nice returns the next of 1, 2 or 5 times a power of ten.
func nice(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(max(v, 1e-9))))
	for _, n := range []float64{1, 2, 5} {
		if v <= n*unit {
			return n * unit
		}
	}
	return 10 * unit
}

// value writes a number in a panel's unit.
func value(v float64, unit string) string {
	switch unit {
	case "s":
		return fmt.Sprintf("%.3g s", v)
	case "percentunit":
		return fmt.Sprintf("%.3g%%", 100*v)
	}
	return fmt.Sprintf("%.3g", v)
}
