package dashboards_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// persesBoard is a dashboard as Perses reads it.
type persesBoard struct {
	Kind     string
	Metadata struct{ Name, Project string }
	Spec     struct {
		Display         struct{ Name, Description string }
		Duration        string
		RefreshInterval string
		Links           []persesLink
		Variables       []struct {
			Kind string
			Spec struct {
				Name, DefaultValue, CustomAllValue, Value string
				Plugin                                    struct {
					Kind string
					Spec struct {
						LabelName string
						Matchers  []string
					}
				}
			}
		}
		Panels map[string]struct {
			Spec struct {
				Display struct{ Name, Description string }
				Links   []persesLink
				Plugin  struct {
					Kind string
					Spec struct {
						Text        string
						MetricLabel string
						Mappings    []struct{ Spec struct{ Value string } }
					}
				}
				Queries []struct {
					Spec struct {
						Plugin struct {
							Kind string
							Spec struct{ Query, SeriesNameFormat string }
						}
					}
				}
			}
		}
		Layouts []struct {
			Spec struct {
				Display struct {
					Title    string
					Collapse struct{ Open bool }
				}
				Items []struct {
					X, Y, Width, Height int
					Content             struct {
						Ref string `json:"$ref"`
					}
				}
			}
		}
	}
}

type persesLink struct {
	Name, URL       string
	RenderVariables bool
}

func renderPerses(t *testing.T, b dashboards.Board) []byte {
	t.Helper()
	content, err := dashboards.RenderPerses(b, rules.Style{}, "llm")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), ": null") { // Perses wants lists
		t.Errorf("%s holds null", b.Title())
	}
	return content
}

// Perses shows the rows, panels, queries, legends, filters and texts that Grafana shows, in the same places, and
// names its replacements for missing features.
func TestPersesSaysTheSame(t *testing.T) {
	kinds := map[string]string{
		"timeseries": "TimeSeriesChart", "stat": "StatChart", "state-timeline": "StatusHistoryChart",
		"heatmap": "TimeSeriesChart", "table": "Table", "text": "Markdown",
	}
	for i, want := range boards(t) {
		var got persesBoard
		decode(t, renderPerses(t, dashboards.All(nil)[i]), &got)
		s := got.Spec
		if got.Kind != "Dashboard" || got.Metadata.Name != want.UID || got.Metadata.Project != "llm" || s.Display.Name != want.Title ||
			s.Display.Description != want.Description ||
			"now-"+s.Duration != want.Time.From || s.RefreshInterval != want.Refresh || len(s.Links) != len(boards(t)) {
			t.Errorf("%s: %+v %s %s %v", want.Title, got.Metadata, s.Duration, s.RefreshInterval, s.Links)
		}
		var variables []string
		for _, v := range s.Variables {
			query := v.Spec.Value
			if v.Kind == "ListVariable" {
				query = "label_values(" + strings.Join(v.Spec.Plugin.Spec.Matchers, ", ") + ", " + v.Spec.Plugin.Spec.LabelName + ")"
				if v.Spec.DefaultValue != "$__all" || v.Spec.CustomAllValue != dashboards.AllValue {
					t.Errorf("%s: %s does not begin with everything", want.Title, v.Spec.Name)
				}
			}
			variables = append(variables, v.Spec.Name+" "+query)
		}
		var classic []string
		for _, v := range want.Templating.List[1:] { // the first is the data source
			classic = append(classic, v.Name+" "+v.Query)
		}
		same(t, want.Title+", variables", variables, classic)
		panels := want.flat()
		for _, row := range want.Panels {
			if row.Type != "row" {
				continue
			}
			layout := s.Layouts[0].Spec
			s.Layouts = s.Layouts[1:]
			if layout.Display.Title != row.Title || layout.Display.Collapse.Open == row.Collapsed {
				t.Errorf("%s: row %+v, want %s", want.Title, layout.Display, row.Title)
			}
			for _, at := range layout.Items {
				p := panels[0]
				panels = panels[1:]
				name := strings.TrimPrefix(at.Content.Ref, "#/spec/panels/")
				o := s.Panels[name].Spec
				delete(s.Panels, name)
				what := want.Title + ", " + p.Title
				if o.Display.Name != p.Title || !strings.HasPrefix(o.Display.Description, p.Description) || o.Plugin.Kind != kinds[p.Type] {
					t.Errorf("%s: %s %s: %s", what, o.Plugin.Kind, o.Display.Name, o.Display.Description)
				}
				if at.X != p.GridPos.X || at.Y != p.GridPos.Y-row.GridPos.Y-1 || at.Width != p.GridPos.W || at.Height != p.GridPos.H {
					t.Errorf("%s stands at %+v, want %+v", what, at, p.GridPos)
				}
				var queries, targets []string
				for _, q := range o.Queries {
					asks := inWords.ReplaceAllString(q.Spec.Plugin.Spec.Query, "$1")
					queries = append(queries, asks+" as "+q.Spec.Plugin.Spec.SeriesNameFormat)
				}
				for _, q := range p.Targets {
					targets = append(targets, q.Expr+" as "+q.LegendFormat)
				}
				if p.Type == "stat" { // of which limits come last
					targets = targets[:min(len(queries), len(targets))]
				}
				same(t, what, queries, targets)
				if p.Type == "text" {
					same(t, what, o.Plugin.Spec.Text, p.Options.Content)
					continue
				}
				if !strings.Contains(o.Display.Description, p.FieldConfig.Defaults.NoValue) || len(o.Links) != len(p.FieldConfig.Defaults.Links) {
					t.Errorf("%s: no word for the empty panel, or other links than %v: %v", what, p.FieldConfig.Defaults.Links, o.Links)
				}
				states := 0
				for _, m := range p.FieldConfig.Defaults.Mappings {
					states += len(m.values())
				}
				if len(o.Plugin.Spec.Mappings) != states && o.Plugin.Spec.MetricLabel == "" {
					t.Errorf("%s names %d values, want %d", what, len(o.Plugin.Spec.Mappings), states)
				}
			}
		}
		if len(panels) > 0 || len(s.Panels) > 0 {
			t.Errorf("%s: %d panels are missing, %d are nowhere", want.Title, len(panels), len(s.Panels))
		}
	}
}

// inWords matches a query that names the default objectives in words.
var inWords = regexp.MustCompile(`^(?:label_replace\(){4}(.*?)(?:, "slo", "[a-zA-Z ]+", "slo", "[a-z_]+"\)){4}$`)

// TestPersesSpeaksInWords checks dashboards for Perses, which cannot rename a series or map a value to the name of its
// series. They name objectives in words, show how many objectives have budget left instead of a share, and draw no
// limit as a good or a bad value.
func TestPersesSpeaksInWords(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		for _, o := range slo.Defaults() {
			l := labels.FromStrings(metrics.LabelModel, "llama", metrics.LabelSLO, o.Name)
			emit(with(l, metrics.RecordedBudgetRemaining.Name, metrics.LabelPeriod, "30d"), 0.5)
			emit(with(l, metrics.RecordedHistory.Name, metrics.LabelPeriod, "30d"), 24*3600)
			emit(with(l, metrics.RecordedPeriod.Name), 30*24*3600)
		}
	}); err != nil {
		t.Fatal(err)
	}
	said := map[string][]string{}
	for _, of := range []int{0, 1} { // the incident, and objectives
		var got persesBoard
		decode(t, renderPerses(t, dashboards.All(nil)[of]), &got)
		for _, p := range got.Spec.Panels {
			for _, q := range p.Spec.Queries {
				v, err := sim.Query(boards(t)[of].substitute(t, q.Spec.Plugin.Spec.Query), rulesim.Epoch)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range v {
					label := cmp.Or(p.Spec.Plugin.Spec.MetricLabel, metrics.LabelSLO)
					said[p.Spec.Display.Name] = append(said[p.Spec.Display.Name], s.Metric.Get(label))
				}
			}
		}
	}
	for panel, want := range map[string][]string{
		"Budget left":                 {"ITL", "TTFT", "availability", "severe ITL", "severe TTFT"},
		"Budget burn-down":            {"ITL", "TTFT", "availability", "severe ITL", "severe TTFT"},
		"Objectives with budget left": {"3.3% of the period is recorded", "5 of 5"},
	} {
		slices.Sort(said[panel])
		if !slices.Equal(said[panel], want) {
			t.Errorf("%s shows %q, want %q", panel, said[panel], want)
		}
	}
}

// Links between dashboards of Perses carry all filters of the dashboard that they leave.
func TestPersesLinksKeepFilters(t *testing.T) {
	for _, b := range dashboards.All(nil) {
		var got persesBoard
		decode(t, renderPerses(t, b), &got)
		links := got.Spec.Links
		for _, p := range got.Spec.Panels {
			links = append(links, p.Spec.Links...)
		}
		for _, l := range links {
			if !l.RenderVariables {
				continue
			}
			for _, v := range got.Spec.Variables {
				if v.Kind == "ListVariable" && !strings.Contains(l.URL, "&var-"+v.Spec.Name+"=${"+v.Spec.Name+":percentencode}") {
					t.Errorf("%s: %s forgets %s: %s", b.Title(), l.Name, v.Spec.Name, l.URL)
				}
			}
		}
	}
}

// Perses' own command accepts the dashboards. With PERSES_PLUGINS, a folder with the archives of its plugins, it also
// reads each query and panel.
func TestPersesLint(t *testing.T) {
	percli, err := exec.LookPath("percli")
	if err != nil {
		t.Skip("percli is not installed: go install github.com/perses/perses/cmd/percli@v0.53.0")
	}
	dir := t.TempDir()
	lint := func(content string) string {
		path := filepath.Join(dir, "board.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"lint", "--percliconfig", filepath.Join(dir, "none.json"), "-f", path}
		if plugins := os.Getenv("PERSES_PLUGINS"); plugins != "" {
			args = append(args, "--plugin.path", plugins)
		}
		out, err := exec.Command(percli, args...).CombinedOutput()
		if err == nil {
			return ""
		}
		return string(out)
	}
	for _, b := range dashboards.All(nil) {
		content := string(renderPerses(t, b))
		if said := lint(content); said != "" {
			t.Errorf("%s: %s", b.Title(), said)
		}
		if lint(strings.Replace(content, "#/spec/panels/", "#/spec/panel/", 1)) == "" {
			t.Errorf("%s: percli accepts a panel that is nowhere", b.Title())
		}
	}
}
