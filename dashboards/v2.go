package dashboards

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/dashboardv2"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/resource"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// RenderV2 writes a dashboard as a resource of Grafana's API in the v2 schema, which Grafana 13 loads from files. It
// converts the classic panels: their options and field configuration are the same in both schemas, but at different
// places.
func RenderV2(b Board, style rules.Style) ([]byte, error) {
	w := writer{b, style.WithDefaults()}
	d, err := w.v2()
	if err != nil {
		return nil, fmt.Errorf("%s in schema v2: %w", b.Title(), err)
	}
	return encode(resource.Manifest{
		ApiVersion: "dashboard.grafana.app/v2", Kind: resource.DashboardKind,
		Metadata: resource.Metadata{Name: string(b.UID)}, Spec: d,
	})
}

func (w writer) v2() (dashboardv2.Dashboard, error) {
	d := *dashboardv2.NewDashboard()
	d.Title, d.Description, d.Tags, d.Editable = w.Title(), &w.Description, []string{tag}, new(false)
	d.CursorSync = dashboardv2.DashboardCursorSyncCrosshair
	d.TimeSettings.From, d.TimeSettings.AutoRefresh = w.Since, w.Refresh
	d.Variables = w.variablesV2()
	d.Annotations = w.annotationsV2()
	if err := recode(boardLinks(w.style), &d.Links); err != nil {
		return d, err
	}
	rows := dashboardv2.NewRowsLayoutKind()
	for _, r := range w.Rows {
		grid := dashboardv2.NewGridLayoutKind()
		at, _ := place(r.Panels, 0)
		for i, p := range r.Panels {
			classic := w.panel(r, p, at[i])
			panel, err := panelV2(classic)
			if err != nil {
				return d, fmt.Errorf("%s: %w", p.Title, err)
			}
			name := fmt.Sprintf("panel-%d", *classic.Id)
			d.Elements[name] = dashboardv2.Element{PanelKind: panel}
			item := dashboardv2.NewGridLayoutItemKind()
			item.Spec.X, item.Spec.Y = int64(at[i].X), int64(at[i].Y)
			item.Spec.Width, item.Spec.Height = int64(at[i].W), int64(at[i].H)
			item.Spec.Element.Name = name
			grid.Spec.Items = append(grid.Spec.Items, *item)
		}
		row := dashboardv2.NewRowsLayoutRowKind()
		row.Spec.Title, row.Spec.Collapse = new(r.Title), new(r.Collapsed)
		row.Spec.Layout.GridLayoutKind = grid
		rows.Spec.Rows = append(rows.Spec.Rows, *row)
	}
	d.Layout.RowsLayoutKind = rows
	return d, nil
}

func panelV2(classic dashboard.Panel) (*dashboardv2.PanelKind, error) {
	out := dashboardv2.NewPanelKind()
	out.Spec.Id, out.Spec.Title, out.Spec.Description = float64(*classic.Id), *classic.Title, *classic.Description
	for _, target := range classic.Targets {
		t := target.(prometheus.Dataquery)
		query := dashboardv2.NewPanelQueryKind()
		query.Spec.RefId = *t.RefId
		t.RefId, t.Datasource = nil, nil // v2 has them beside the query
		query.Spec.Query = queryV2(t)
		out.Spec.Data.Spec.Queries = append(out.Spec.Data.Spec.Queries, *query)
	}
	for _, tr := range classic.Transformations {
		kind := dashboardv2.NewTransformationKind()
		kind.Group, kind.Spec.Options = tr.Id, tr.Options
		out.Spec.Data.Spec.Transformations = append(out.Spec.Data.Spec.Transformations, *kind)
	}
	viz := &out.Spec.VizConfig
	viz.Group, viz.Spec.Options = classic.Type, classic.Options
	return out, recode(classic.FieldConfig, &viz.Spec.FieldConfig)
}

// queryV2 directs a query to the data source that the reader chose.
func queryV2(spec any) dashboardv2.DataQueryKind {
	q := *dashboardv2.NewDataQueryKind()
	q.Group, q.Spec = "prometheus", spec
	q.Datasource = &dashboardv2.Dashboardv2DataQueryKindDatasource{Name: new("$datasource")}
	return q
}

func (w writer) variablesV2() []dashboardv2.VariableKind {
	source := dashboardv2.NewDatasourceVariableKind()
	source.Spec.Name, source.Spec.Label, source.Spec.PluginId = "datasource", new("Data source"), "prometheus"
	source.Spec.Current, source.Spec.Hide = optionV2("default"), dashboardv2.VariableHideHideLabel
	source.Spec.Refresh = dashboardv2.VariableRefreshOnDashboardLoad
	all := []dashboardv2.VariableKind{{DatasourceVariableKind: source}}
	for _, v := range w.Variables {
		k := w.variableV2(v)
		k.Spec.AllValue = new(AllValue)
		all = append(all, dashboardv2.VariableKind{QueryVariableKind: k})
	}
	return all
}

// variableV2 returns a variable that has all its values until a reader chooses some.
func (w writer) variableV2(v variable) *dashboardv2.QueryVariableKind {
	query := w.valuesOf(v)
	k := dashboardv2.NewQueryVariableKind()
	k.Spec.Name, k.Spec.Label, k.Spec.Definition = v.name, &v.title, &query
	k.Spec.Query = queryV2(map[string]string{"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"})
	k.Spec.Multi, k.Spec.IncludeAll = true, true
	k.Spec.Current = dashboardv2.VariableOption{
		Selected: new(true),
		Text:     dashboardv2.StringOrArrayOfString{ArrayOfString: []string{"All"}},
		Value:    dashboardv2.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
	}
	k.Spec.Refresh, k.Spec.Sort = dashboardv2.VariableRefreshOnTimeRangeChanged, dashboardv2.VariableSortNaturalAsc
	return k
}

func optionV2(s string) dashboardv2.VariableOption {
	return dashboardv2.VariableOption{
		Text:  dashboardv2.StringOrArrayOfString{String: &s},
		Value: dashboardv2.StringOrArrayOfString{String: &s},
	}
}

func (w writer) annotationsV2() []dashboardv2.AnnotationQueryKind {
	own := dashboardv2.NewAnnotationQueryKind()
	own.Spec.Name, own.Spec.BuiltIn, own.Spec.Enable, own.Spec.Hide, own.Spec.IconColor = "Annotations & Alerts", new(true), true, true, sky
	own.Spec.Query.Group, own.Spec.Query.Spec = "grafana", map[string]string{}
	own.Spec.Query.Datasource = &dashboardv2.Dashboardv2DataQueryKindDatasource{Name: new("-- Grafana --")}
	all := []dashboardv2.AnnotationQueryKind{*own}
	for _, a := range w.annotations()[1:] {
		k := dashboardv2.NewAnnotationQueryKind()
		k.Spec.Name, k.Spec.BuiltIn, k.Spec.Enable, k.Spec.Hide, k.Spec.IconColor = a.Name, nil, true, true, a.IconColor
		k.Spec.Query = queryV2(prometheus.Dataquery{Expr: *a.Expr, RefId: new("Anno")})
		k.Spec.LegacyOptions = map[string]any{"expr": *a.Expr, "titleFormat": *a.TitleFormat, "textFormat": *a.TextFormat, "step": *a.Step}
		all = append(all, *k)
	}
	return all
}

// recode converts a value of the classic schema to the corresponding type of v2, which has the same fields.
func recode(from, to any) error {
	content, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, to)
}
