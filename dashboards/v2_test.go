package dashboards_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboardv2"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// resourceV2 is a dashboard as Grafana reads it in schema v2.
type resourceV2 struct {
	APIVersion, Kind string
	Metadata         struct{ Name string }
	Spec             json.RawMessage
}

type boardV2 struct {
	Title, Description, CursorSync string
	Editable                       *bool
	Tags                           []string
	TimeSettings                   struct{ From, AutoRefresh string }
	Links                          []boardLink
	Annotations                    []struct {
		Spec struct {
			Name, IconColor string
			Enable, Hide    bool
			Query           queryV2
			LegacyOptions   struct{ TitleFormat, TextFormat, Step string }
		}
	}
	Variables []struct {
		Kind string
		Spec struct {
			Name, Label, PluginID, Refresh, AllValue, Hide string
			Multi, IncludeAll                              bool
			Query                                          json.RawMessage
		}
	}
	Layout struct {
		Spec struct {
			Rows []struct {
				Spec struct {
					Title    string
					Collapse bool
					Layout   struct {
						Kind string
						Spec struct {
							Items []struct {
								Spec struct {
									X, Y, Width, Height int
									Element             struct{ Name string }
								}
							}
						}
					}
				}
			}
		}
	}
	Elements map[string]struct {
		Spec struct {
			ID                 int
			Title, Description string
			Data               struct {
				Spec struct {
					Queries []struct {
						Spec struct {
							RefID string
							Query queryV2
						}
					}
					Transformations []struct {
						Group string
						Spec  struct{ Options any }
					}
				}
			}
			VizConfig struct {
				Group string
				Spec  json.RawMessage // options and fieldConfig, as in a classic panel
			}
		}
	}
}

type queryV2 struct {
	Group      string
	Datasource *struct{ Name string }
	Spec       target
}

// source is the data source as the classic schema names it.
func (q queryV2) source() *source {
	if q.Datasource == nil {
		return nil
	}
	return &source{q.Group, q.Datasource.Name}
}

// classic converts a dashboard to the terms of the classic schema. In the classic schema, rows are panels, and
// panels count lines from the top of the dashboard.
func (v boardV2) classic(t *testing.T, uid string) board {
	b := board{
		UID: uid, Title: v.Title, Description: v.Description, Refresh: v.TimeSettings.AutoRefresh, SchemaVersion: 42,
		Editable: v.Editable, Tags: v.Tags, Links: v.Links,
	}
	b.Time.From, b.Time.To = v.TimeSettings.From, "now"
	if v.CursorSync == "Crosshair" {
		b.GraphTooltip = 1
	}
	for _, a := range v.Annotations {
		s := a.Spec
		b.Annotations.List = append(b.Annotations.List, annotation{
			Name: s.Name, Expr: s.Query.Spec.Expr, IconColor: s.IconColor,
			Datasource: *s.Query.source(), Enable: s.Enable, Hide: s.Hide,
			TitleFormat: s.LegacyOptions.TitleFormat, TextFormat: s.LegacyOptions.TextFormat, Step: s.LegacyOptions.Step,
		})
	}
	for _, x := range v.Variables {
		s := x.Spec
		one := variable{
			Name: s.Name, Label: s.Label, AllValue: s.AllValue, Multi: s.Multi, IncludeAll: s.IncludeAll,
			Refresh: map[string]int{"": 0, "onDashboardLoad": 1, "onTimeRangeChanged": 2}[s.Refresh],
			Hide:    map[string]int{"dontHide": 0, "hideLabel": 1}[s.Hide],
		}
		switch x.Kind {
		case "DatasourceVariable":
			one.Type, one.Query = "datasource", s.PluginID
		case "TextVariable":
			one.Type = "textbox"
			decode(t, s.Query, &one.Query)
		case "QueryVariable":
			var query struct {
				queryV2
				Spec struct{ Query string }
			}
			decode(t, s.Query, &query)
			one.Type, one.Query, one.Datasource = "query", query.Spec.Query, query.source()
		}
		b.Templating.List = append(b.Templating.List, one)
	}
	y := 0
	for _, r := range v.Layout.Spec.Rows {
		row := panel{Type: "row", Title: r.Spec.Title, Collapsed: r.Spec.Collapse, Panels: []panel{}}
		row.GridPos.Y, row.GridPos.W, row.GridPos.H = y, 24, 1
		y++
		end := y
		var panels []panel
		for _, i := range r.Spec.Layout.Spec.Items {
			e, ok := v.Elements[i.Spec.Element.Name]
			if !ok {
				t.Errorf("%s: %s is laid out, but is no element", v.Title, i.Spec.Element.Name)
			}
			delete(v.Elements, i.Spec.Element.Name)
			p := panel{ID: e.Spec.ID, Type: e.Spec.VizConfig.Group, Title: e.Spec.Title, Description: e.Spec.Description}
			decode(t, e.Spec.VizConfig.Spec, &p)
			p.GridPos.X, p.GridPos.Y, p.GridPos.W, p.GridPos.H = i.Spec.X, y+i.Spec.Y, i.Spec.Width, i.Spec.Height
			end = max(end, p.GridPos.Y+p.GridPos.H)
			for _, q := range e.Spec.Data.Spec.Queries {
				one := q.Spec.Query.Spec
				one.RefID, one.Datasource = q.Spec.RefID, q.Spec.Query.source()
				p.Targets, p.Datasource = append(p.Targets, one), one.Datasource
			}
			for _, tr := range e.Spec.Data.Spec.Transformations {
				p.Transformations = append(p.Transformations, transformation{tr.Group, tr.Spec.Options})
			}
			panels = append(panels, p)
		}
		if row.Collapsed {
			row.Panels = panels
			b.Panels = append(b.Panels, row)
			continue
		}
		b.Panels, y = append(append(b.Panels, row), panels...), end
	}
	for name := range v.Elements {
		t.Errorf("%s: %s is laid out nowhere, or its name was taken twice", v.Title, name)
	}
	return b
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(content, into); err != nil {
		t.Errorf("%v in %s", err, content)
	}
}

// Schema v2 has the same rows, panels, places, queries, units, thresholds, links, variables and marks as the
// classic one.
func TestV2SaysTheSame(t *testing.T) {
	classic := boards(t)
	for i, d := range dashboards.All(nil) {
		content, err := dashboards.RenderV2(d, rules.Style{})
		if err != nil {
			t.Fatal(err)
		}
		var r resourceV2
		decode(t, content, &r)
		if r.APIVersion != "dashboard.grafana.app/v2" || r.Kind != "Dashboard" {
			t.Errorf("%s is a %s of %s", d.Title(), r.Kind, r.APIVersion)
		}
		var v boardV2
		decode(t, r.Spec, &v)
		got, want := v.classic(t, r.Metadata.Name), classic[i]
		want.drills = nil // no schema has them
		for j := range want.Panels {
			if want.Panels[j].Type == "row" {
				want.Panels[j].ID = 0 // rows have none in v2
			}
		}
		for j := range min(len(got.Panels), len(want.Panels)) {
			same(t, fmt.Sprintf("%s, %s", d.Title(), want.Panels[j].Title), got.Panels[j], want.Panels[j])
		}
		same(t, d.Title(), got, want)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	g, _ := json.MarshalIndent(got, "", " ")
	w, _ := json.MarshalIndent(want, "", " ")
	t.Fatalf("%s in v2:\n%.3000s\nin the classic schema:\n%.3000s", what, g, w)
}

// The SDK reads the written file strictly: every field that the schema requires is there, and no other.
func TestV2IsOfTheSchema(t *testing.T) {
	plugins.RegisterDefaultPlugins() // the types of options and queries
	for _, d := range dashboards.All(nil) {
		content, err := dashboards.RenderV2(d, rules.Style{})
		if err != nil {
			t.Fatal(err)
		}
		var r resourceV2
		decode(t, content, &r)
		var spec dashboardv2.Dashboard
		var found cog.BuildErrors // an empty slice, not nil, if there is no error
		if err := spec.UnmarshalJSONStrict(r.Spec); err != nil && (!errors.As(err, &found) || len(found) > 0) {
			t.Errorf("%s: %v", d.Title(), err)
		}
		if err := spec.Validate(); err != nil {
			t.Errorf("%s: %v", d.Title(), err)
		}
	}
}

// No panel and no row depends on a condition: the operators of conditions differ between Grafana's versions, and
// 12.2 refuses a whole dashboard for one unknown operator. Each piece of evidence has its levers in the row that
// the classic schema has, too.
func TestV2HidesNothing(t *testing.T) {
	for _, b := range dashboards.All(nil) {
		content, err := dashboards.RenderV2(b, rules.Style{})
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"conditionalRendering", `"suspect"`, "AutoGridLayout"} {
			if strings.Contains(string(content), word) {
				t.Errorf("%s has %s", b.Title(), word)
			}
		}
	}
	levers := ""
	for _, p := range boards(t)[0].flat() {
		if p.Type == "text" {
			levers += p.Options.Content
		}
	}
	for _, c := range rules.Clues() {
		if strings.Count(levers, "**["+c.Runbook+"]") != 1 {
			t.Errorf("%s has its levers %d times", c.Runbook, strings.Count(levers, "**["+c.Runbook+"]"))
		}
	}
}
