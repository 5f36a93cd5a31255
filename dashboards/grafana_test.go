package dashboards_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// The tests read the written file, as Grafana does, not the values from which it was made.
type board struct {
	UID, Title, Description, Refresh string
	SchemaVersion, GraphTooltip      int
	Editable                         *bool
	Tags                             []string
	Time                             struct{ From, To string }
	Panels                           []panel
	Links                            []boardLink
	Templating                       struct{ List []variable }
	Annotations                      struct{ List []annotation }
	drills                           []dashboards.Drill // of the panels, in the order of flat
}

type boardLink struct {
	Title, Type, URL                  string
	AsDropdown, IncludeVars, KeepTime bool
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Collapsed                bool
	Panels                   []panel
	GridPos                  struct{ X, Y, W, H int }
	Datasource               *source
	Targets                  []target
	Transformations          []transformation
	Options                  struct {
		Content, GraphMode, ShowValue, Orientation, TextMode, CellHeight string
		Text                                                             struct{ TitleSize, ValueSize float64 }
		PerPage                                                          float64
		CellValues                                                       struct{ Unit string }
		Legend                                                           struct {
			ShowLegend, Show, SortDesc bool
			Placement, SortBy          string
			Calcs                      []string
		}
		Tooltip struct{ Mode string }
	}
	drill       dashboards.Drill
	FieldConfig struct {
		Overrides []any
		Defaults  struct {
			Unit, NoValue string
			Max, Decimals *float64
			Thresholds    struct {
				Steps []struct {
					Value *float64
					Color string
				}
			}
			Mappings []mapping
			Color    struct{ Mode, FixedColor string }
			Links    []struct{ Title, URL string }
			Custom   map[string]any
		}
	}
}

// mapping gives values a text and a colour.
type mapping struct {
	Type    string
	Options any
}

// values returns the values of a mapping that names single ones.
func (m mapping) values() map[string]any {
	if m.Type == "special" {
		return nil
	}
	return m.Options.(map[string]any)
}

// of returns the text and the colour of a value in a mapping.
func (m mapping) of(t *testing.T, value string) (says struct{ Text, Color string }) {
	t.Helper()
	options := m.Options.(map[string]any)
	raw, err := json.Marshal(options[value])
	if m.Type == "special" && options["match"] == value {
		raw, err = json.Marshal(options["result"])
	}
	if err == nil {
		err = json.Unmarshal(raw, &says)
	}
	if err != nil {
		t.Error(err)
	}
	return says
}

type target struct {
	RefID, Expr, LegendFormat, Format string
	Instant                           bool
	Datasource                        *source
}

type source struct{ Type, UID string }

type transformation struct {
	ID      string
	Options any
}

type variable struct {
	Type, Name, Label, Query, AllValue string
	Datasource                         *source
	Multi, IncludeAll                  bool
	Refresh, Hide                      int
}

type annotation struct {
	Name, Expr, IconColor, TitleFormat, TextFormat, Step string
	Datasource                                           source
	Enable, Hide                                         bool
}

func render(t testing.TB, b dashboards.Board, style rules.Style) []byte {
	t.Helper()
	content, err := dashboards.Render(b, style)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// boards returns all dashboards as Grafana reads them.
func boards(t testing.TB) []board { return boardsFor(t, nil) }

// boardsFor returns the dashboards for other burn-rate windows.
func boardsFor(t testing.TB, pairs []slo.WindowPair) []board {
	t.Helper()
	var all []board
	for _, b := range dashboards.All(pairs) {
		var read board
		if err := json.Unmarshal(render(t, b, rules.Style{}), &read); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.Rows {
			for _, p := range r.Panels {
				read.drills = append(read.drills, p.Drill)
			}
		}
		all = append(all, read)
	}
	return all
}

// file returns the file that declares a dashboard's panels.
func (b board) file() string {
	return "dashboards/" + strings.TrimPrefix(b.UID, "llm-") + ".go"
}

// flat returns all panels without rows, including panels in collapsed rows, with what their file states about the
// drill.
func (b board) flat() []panel {
	var all []panel
	for _, p := range b.Panels {
		if p.Type != "row" {
			all = append(all, p)
		}
		all = append(all, p.Panels...)
	}
	for i, d := range b.drills {
		all[i].drill = d
	}
	return all
}

// titled returns the panel with a title.
func (b board) titled(title string) panel {
	all := b.flat()
	return all[slices.IndexFunc(all, func(p panel) bool { return p.Title == title })]
}

// each calls f for every query of every panel.
func (b board) each(f func(p panel, q target)) {
	for _, p := range b.flat() {
		for _, q := range p.Targets {
			f(p, q)
		}
	}
}

var dollar = regexp.MustCompile(`\$([a-z_]\w*)`)

// substitute puts values in the place of variables, as Grafana does; a variable that the dashboard lacks fails the
// test.
func (b board) substitute(t testing.TB, expr string) string {
	t.Helper()
	return b.substituteOver(t, expr, time.Hour, time.Minute)
}

// substituteOver substitutes for a range whose points are a step apart.
func (b board) substituteOver(t testing.TB, expr string, window, step time.Duration) string {
	t.Helper()
	return b.substituteEvery(t, expr, window, step, 5*time.Minute)
}

// substituteEvery substitutes for rates over a separate window.
func (b board) substituteEvery(t testing.TB, expr string, window, step, rate time.Duration) string {
	t.Helper()
	values := map[string]string{
		"__rate_interval": model.Duration(rate).String(), "__range": model.Duration(max(window, step)).String(),
		"__interval": model.Duration(step).String(),
	}
	for _, v := range b.Templating.List {
		values[v.Name] = v.AllValue
		if v.Type == "textbox" {
			values[v.Name] = v.Query
		}
	}
	return dollar.ReplaceAllStringFunc(expr, func(name string) string {
		v, ok := values[name[1:]]
		if !ok {
			t.Errorf("%s: %s is no variable of this dashboard: %s", b.Title, name, expr)
		}
		return v
	})
}

// choose sets a variable, as a reader does.
func (b board) choose(t testing.TB, name, value string) {
	t.Helper()
	i := slices.IndexFunc(b.Templating.List, func(v variable) bool { return v.Name == name })
	if i < 0 {
		t.Fatalf("%s has no variable %s", b.Title, name)
	}
	b.Templating.List[i].AllValue = value
}
