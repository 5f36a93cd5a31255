package dashboards_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Ids are unique, panels lie side by side without overlap or gaps, and none is too narrow for a small
// screen.
func TestLayout(t *testing.T) {
	narrowest := map[string]int{"stat": 4, "text": 6, "timeseries": 6, "state-timeline": 6, "heatmap": 12, "table": 8}
	for _, b := range boards(t) {
		ids := map[int]string{}
		var grid [][24]string
		place := func(p panel) {
			if other, taken := ids[p.ID]; taken || p.ID <= 0 {
				t.Errorf("%s: %q and %q have id %d", b.Title, p.Title, other, p.ID)
			}
			ids[p.ID] = p.Title
			g := p.GridPos
			if g.X < 0 || g.X+g.W > 24 || g.W < narrowest[p.Type] {
				t.Errorf("%s: %q is at column %d and %d wide", b.Title, p.Title, g.X, g.W)
				return
			}
			for y := g.Y; y < g.Y+g.H; y++ {
				for len(grid) <= y {
					grid = append(grid, [24]string{})
				}
				for x := g.X; x < g.X+g.W; x++ {
					if other := grid[y][x]; other != "" {
						t.Errorf("%s: %q lies on %q", b.Title, p.Title, other)
						return
					}
					grid[y][x] = p.Title
				}
			}
		}
		full := func() {
			for y, line := range grid {
				for x, title := range line {
					if title == "" {
						t.Errorf("board %s, column %d, line %d: no panel. The panels of a row of dashboards/*.go fill 24 columns: make one of those "+
							"that end there wider, or add one", b.Title, x, y)
						return
					}
				}
			}
		}
		for _, p := range b.Panels {
			place(p)
		}
		full()
		for _, p := range b.Panels {
			grid = make([][24]string, p.GridPos.Y+1)
			if p.Collapsed { // when opened, its panels push down the following rows
				for _, inner := range p.Panels {
					place(inner)
				}
				grid = grid[p.GridPos.Y+1:]
				full()
			}
		}
	}
}

// Every panel explains its content, its importance and the next step. It has a unit, thresholds and words for "no
// data", and leads to a runbook and to another dashboard with time and filters.
func TestPanelsHelp(t *testing.T) {
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			what, rest, ok1 := strings.Cut(p.Description, "\n\n**Why:** ")
			why, next, ok2 := strings.Cut(rest, "\n\n**Next:** ")
			if p.Title == "" || !ok1 || !ok2 || what == "" || why == "" || next == "" {
				t.Errorf("%s: %q is not described: %q", b.Title, p.Title, p.Description)
			}
			if p.Type == "text" {
				if len(p.Options.Content) < 100 || strings.Contains(p.Options.Content, ".md)") && !strings.Contains(p.Options.Content, "https://") {
					t.Errorf("%s: %q has no text, or links without an address: %s", b.Title, p.Title, p.Options.Content)
				}
				continue
			}
			f := p.FieldConfig.Defaults
			if f.Unit == "" || f.NoValue == "" || len(f.Thresholds.Steps) == 0 || f.Thresholds.Steps[0].Value != nil {
				t.Errorf("%s: %q lacks unit, empty state or thresholds", b.Title, p.Title)
			}
			for i, s := range f.Thresholds.Steps[1:] {
				if s.Value == nil || i > 0 && *s.Value < *f.Thresholds.Steps[i].Value {
					t.Errorf("%s: %q has thresholds out of order", b.Title, p.Title)
				}
			}
			runbook, onward := false, false
			for _, l := range f.Links {
				runbook = runbook || strings.Contains(l.URL, "/runbooks/")
				if strings.HasPrefix(l.URL, "/d/") {
					onward = strings.Contains(l.URL, "${__url_time_range}") && strings.Contains(l.URL, "${datasource:queryparam}")
					if strings.HasPrefix(l.URL, "/d/"+b.UID+"?") {
						t.Errorf("%s: %q leads to itself", b.Title, p.Title)
					}
					for _, v := range b.Templating.List {
						if v.Type == "query" && !strings.Contains(l.URL, "${"+v.Name+":queryparam}") &&
							!strings.Contains(l.URL, "var-"+v.Name+"=${__field.labels.") {
							t.Errorf("%s: %q forgets %s on the way to %s", b.Title, p.Title, v.Name, l.URL)
						}
					}
				}
			}
			for _, l := range f.Links {
				if p.Type == "table" && strings.Contains(l.URL, "__field.labels") {
					t.Errorf("%s: %q is a table, whose values have no labels: %s", b.Title, p.Title, l.URL)
				}
			}
			if !runbook || !onward {
				t.Errorf("%s: %q leads nowhere: %v", b.Title, p.Title, f.Links)
			}
			for i, q := range p.Targets {
				if q.RefID != string(rune('A'+i)) || q.LegendFormat == "" || q.Datasource == nil || q.Datasource.UID != "$datasource" {
					t.Errorf("%s: %q query %d lacks refId, legend or data source", b.Title, p.Title, i)
				}
			}
			if p.Type == "timeseries" && (!p.Options.Legend.ShowLegend || p.Options.Tooltip.Mode != "multi") {
				t.Errorf("%s: %q lacks legend or tooltip", b.Title, p.Title)
			}
		}
	}
}

// Colours are from a palette that people with any colour vision can distinguish.
func TestColours(t *testing.T) {
	palette := map[string]bool{
		"#0072B2": true, "#56B4E9": true, "#009E73": true, "#F0E442": true, "#E69F00": true, "#D55E00": true,
		"#CC79A7": true, "#8C8C8C": true, "#8C8C8C40": true, "#8C8C8C1A": true, "dash": true,
	}
	colour := regexp.MustCompile(`"(?:color|fixedColor|iconColor|fill)": "([^"]*)"`)
	for _, b := range dashboards.All(nil) {
		found := colour.FindAllStringSubmatch(string(render(t, b, rules.Style{})), -1)
		if len(found) == 0 {
			t.Errorf("%s has no colours", b.Title())
		}
		for _, m := range found {
			if !palette[m[1]] {
				t.Errorf("%s uses %s", b.Title(), m[1])
			}
		}
	}
}

// The same values are written the same way every time, whatever the order of maps.
func TestRenderIsStable(t *testing.T) {
	style := rules.Style{Labels: map[string]string{"cluster": "k8s_cluster", "instance": "node_ip"}}
	for i, b := range dashboards.All(nil) {
		first := render(t, b, style)
		for range 5 {
			if !bytes.Equal(first, render(t, dashboards.All(nil)[i], style)) {
				t.Fatalf("%s differs from one time to the next", b.Title())
			}
		}
	}
}

// Other names for labels reach queries, variables, legends and links; the names of variables stay, because alerts
// link with them.
func TestRenamedLabels(t *testing.T) {
	style := rules.Style{
		Labels:     map[string]string{"cluster": "k8s_cluster", "instance": "node_ip"},
		RunbookURL: "https://wiki.example/{alert}",
	}
	for _, b := range dashboards.All(nil) {
		text := string(render(t, b, style))
		for _, gone := range []string{
			`{cluster=`, `(cluster,`, `{{cluster}}`, `instance=`, `{{instance}}`, `labels.instance`,
			`"cluster": true`, "github.com",
		} {
			if strings.Contains(text, gone) {
				t.Errorf("%s still says %s", b.Title(), gone)
			}
		}
		for _, want := range []string{`k8s_cluster=~\"$cluster`, `, k8s_cluster)"`, "https://wiki.example/LLM"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %s", b.Title(), want)
			}
		}
	}
}

// Alerts have the severity that the rules were written with, by its name and value; the severity of ECC errors and
// XIDs is another label.
func TestRenamedSeverity(t *testing.T) {
	style := rules.Style{Labels: map[string]string{"severity": "prio"}, Severities: map[slo.Severity]string{slo.Page: "p1"}}
	text := ""
	for _, b := range dashboards.All(nil) {
		text += string(render(t, b, style))
	}
	for _, want := range []string{
		`prio=\"p1\"`, `alertname, prio, branch`, `"prio": false`, `severity, location`,
		`{{severity}} {{location}}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no dashboard says %s", want)
		}
	}
	for _, gone := range []string{`severity=\"critical`, `prio, location`, `{{prio}} {{location}}`} {
		if strings.Contains(text, gone) {
			t.Errorf("a dashboard says %s", gone)
		}
	}
}
