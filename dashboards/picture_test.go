package dashboards_test

import (
	"bytes"
	"flag"
	"fmt"
	"html"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

var update = flag.Bool("update", false, "write docs/incident.svg")

// pictured are the panels of the incident dashboard in docs/incident.svg.
var pictured = []string{"Burn rate by window", "Inter-token latency, p95", "Queue share of TTFT", "Time throttled"}

// The picture in the docs is what the queries of the incident dashboard say while a GPU is throttled in the
// simulated world: drawn here, not by Grafana, and it says so.
func TestPicture(t *testing.T) {
	sim := world{only: []*metrics.Family{metrics.SLOBadEvents, metrics.InterTokenLatency,
		metrics.GPUClockEventActive, metrics.GPUClockEventSeconds, metrics.GPUClock}}.run(t)
	var svg bytes.Buffer
	const w, h = 460, 190
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12"><rect width="100%%" height="100%%" fill="#fff"/>`+"\n", 2*w, 2*h+24)
	drawn := 0
	b := boards(t)[0]
	for _, p := range b.flat() {
		for i, title := range pictured {
			if p.Title == title {
				drawn++
				fmt.Fprintf(&svg, `<g transform="translate(%d %d)">`+"\n", i%2*w, i/2*h)
				plot(t, &svg, sim, b, p, w, h)
				svg.WriteString("</g>\n")
			}
		}
	}
	fmt.Fprintf(&svg, `<text x="12" y="%d" fill="#555">A GPU is throttled from minute 100 on. Simulated data; the dashboard's own queries in Prometheus' engine, drawn by a test and not by Grafana.</text>`+"\n</svg>\n", 2*h+14)
	if drawn != len(pictured) {
		t.Fatalf("%d panels of %d", drawn, len(pictured))
	}
	const path = "../docs/incident.svg"
	if *update {
		if err := os.WriteFile(path, svg.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if old, err := os.ReadFile(path); err != nil || !bytes.Equal(old, svg.Bytes()) {
		t.Errorf("%s is not what the queries say: go test ./dashboards -run Picture -update, and look at it (%v)", path, err)
	}
}

// plot draws one panel: title, lines in the panel's colours, the highest value and a legend.
func plot(t *testing.T, svg *bytes.Buffer, sim *rulesim.Sim, b board, p panel, w, h float64) {
	hues := []string{"#0072B2", "#E69F00", "#CC79A7", "#56B4E9"}
	type line struct {
		colour, legend string
		points         []promql.FPoint
	}
	var all []line
	from, to, top := rulesim.Epoch.Add(incidentAt-40*time.Minute), rulesim.Epoch.Add(worldEnd-time.Minute), 0.0
	for i, q := range p.Targets {
		m, _, err := sim.Range(b.substitute(t, q.Expr), from, to, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range m {
			if slo := s.Metric.Get(metrics.LabelSLO); slo != "" && slo != "itl" {
				continue // one objective is enough for a picture
			}
			legend := q.LegendFormat
			for _, l := range []string{"slo", "model_name", "namespace", "cluster", "instance", "gpu", "reason"} {
				legend = strings.ReplaceAll(legend, "{{"+l+"}}", s.Metric.Get(l))
			}
			all = append(all, line{hues[i], legend, s.Floats})
			for _, f := range s.Floats {
				top = max(top, f.F)
			}
		}
	}
	fmt.Fprintf(svg, `<text x="12" y="18" font-weight="bold">%s</text><text x="%g" y="18" text-anchor="end" fill="#555">highest %.3g, %s</text>`+"\n", html.EscapeString(p.Title), w-12, top, p.FieldConfig.Defaults.Unit)
	fmt.Fprintf(svg, `<path d="M12 26V%g H%g" fill="none" stroke="#bbb"/>`+"\n", h-34, w-12)
	x := 12.0
	for _, l := range all {
		fmt.Fprintf(svg, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, l.colour)
		for _, f := range l.points {
			fmt.Fprintf(svg, "%.0f,%.0f ", 12+(w-24)*float64(f.T-from.UnixMilli())/float64(to.Sub(from).Milliseconds()), h-34-(h-64)*f.F/max(top, 1e-9))
		}
		fmt.Fprintf(svg, `"/><text x="%.0f" y="%g" fill="%s">%s</text>`+"\n", x, h-16, l.colour, html.EscapeString(l.legend))
		x += 12 + 6.2*float64(len(l.legend))
	}
}
