package report

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
)

// TestHTML checks that a report is complete, loads nothing, and escapes its texts.
func TestHTML(t *testing.T) {
	trace := Trace{
		Incident: incident.Incident{Name: "test", Story: "a <b>story</b>", Lasts: 30 * time.Minute},
		Score:    score.Score{Incident: "test", PagedBy: []string{"LLMModelDown"}, Problems: []string{"too late"}, Split: "Reason: <script>"},
		Plots:    []*Plot{{Title: "waiting & running", Lines: map[string][]Point{`pod"<`: {{0, 1}, {time.Minute, 3}}}}},
		Bars:     firings("LLMModelDown", []time.Duration{time.Minute, 2 * time.Minute, 9 * time.Minute}, time.Minute),
	}
	if want := []Bar{{"LLMModelDown", time.Minute, 3 * time.Minute}, {
		"LLMModelDown", 9 * time.Minute,
		10 * time.Minute,
	}}; !slices.Equal(trace.Bars, want) {
		t.Errorf("bars %v, want %v", trace.Bars, want)
	}
	var out strings.Builder
	if err := WriteHTML(&out, []Trace{trace}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script", "src=", "http", "<b>story"} {
		if strings.Contains(out.String(), bad) {
			t.Errorf("the report has %q", bad)
		}
	}
	for _, want := range []string{"ModelDown", "too late", "<polyline", "a &lt;b&gt;story"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	for _, part := range strings.SplitAfter(out.String(), "</svg>") {
		if i := strings.Index(part, "<svg"); i >= 0 {
			for d := xml.NewDecoder(strings.NewReader(part[i:])); ; {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%v in %s", err, part[i:])
				}
			}
		}
	}
}

// TestSVG checks that a picture is well formed, and escapes its texts.
func TestSVG(t *testing.T) {
	trace := Trace{
		Incident: incident.Incident{Name: "test", Story: `a "<b>story</b>`, Lasts: 30 * time.Minute},
		Score:    score.Score{PagedBy: []string{"LLMModelDown"}},
		Plots:    []*Plot{{Title: "waiting & running", Lines: map[string][]Point{`pod"<`: {{0, 1}, {time.Minute, 3}}}}},
		Bars:     firings("LLMModelDown", []time.Duration{time.Minute}, time.Minute),
	}
	var out strings.Builder
	if err := WriteSVG(&out, trace); err != nil {
		t.Fatal(err)
	}
	var elements []string
	for d := xml.NewDecoder(strings.NewReader(out.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, out.String())
		}
		if e, ok := token.(xml.StartElement); ok {
			elements = append(elements, e.Name.Local)
		}
	}
	for _, want := range []string{"polyline", "rect", "tspan"} {
		if !slices.Contains(elements, want) {
			t.Errorf("no %s in %v", want, elements)
		}
	}
	if slices.Contains(elements, "b") {
		t.Errorf("the story became markup: %s", out.String())
	}
}

// TestLevelLines checks that a point is left out only if it lies between two points of the same height.
func TestLevelLines(t *testing.T) {
	var points []Point
	for i, value := range []float64{1, 1, 1, 1, 3, 3, 3, 1} {
		points = append(points, Point{time.Duration(i) * time.Minute, value})
	}
	trace := Trace{Incident: incident.Incident{Lasts: 30 * time.Minute}}
	html := string(figure(trace, &Plot{Lines: map[string][]Point{"a": points}}))
	_, line, _ := strings.Cut(html, `points="`)
	line, _, _ = strings.Cut(line, `"`)
	if drawn := strings.Fields(line); len(drawn) != 5 {
		t.Errorf("drawn: %q, want the first and last of both levels and the end", drawn)
	}
}

// TestGaps checks that a line ends at missing values, and does not cross them.
func TestGaps(t *testing.T) {
	points := []Point{{0, 1}, {time.Minute, 2}, {20 * time.Minute, 0}, {21 * time.Minute, 1}}
	trace := Trace{Incident: incident.Incident{Lasts: 30 * time.Minute}}
	html := string(figure(trace, &Plot{Lines: map[string][]Point{"a": points}}))
	if n := strings.Count(html, `<polyline class="l0"`); n != 2 {
		t.Errorf("%d lines, want one on either side of the gap: %s", n, html)
	}
}
