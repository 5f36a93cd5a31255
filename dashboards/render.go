package dashboards

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Render writes a dashboard in the classic schema, as Grafana 10 and newer load it from a file. Render adds the parts
// that Grafana's SDK leaves out: ids of panels and rows, positions that wrap, refIds, the data sources of panels and
// queries, tooltips and legends, and the annotation that Grafana itself adds when a person saves a dashboard.
func Render(b Board, style rules.Style) ([]byte, error) {
	return encode(writer{b, style.WithDefaults()}.board())
}

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return out.Bytes(), err
}

// writer converts one dashboard to the SDK's types.
type writer struct {
	Board
	style rules.Style
}

func (w writer) board() dashboard.Dashboard {
	d := *dashboard.NewDashboard()
	d.Uid, d.Title, d.Description = new(string(w.UID)), new(w.Title()), &w.Description
	d.Tags = []string{tag}
	d.Timezone, d.Editable = new("browser"), new(false)
	d.GraphTooltip = new(dashboard.DashboardCursorSyncCrosshair)
	d.Time = &dashboard.DashboardDashboardTime{From: w.Since, To: "now"}
	d.Refresh = &w.Refresh
	d.Version = new(uint32(1))
	d.Links = boardLinks(w.style)
	d.Templating.List = w.variables()
	d.Annotations.List = w.annotations()
	y := uint32(0)
	for _, r := range w.Rows {
		row := dashboard.RowPanel{
			Type: "row", Id: id("", r.Title), Title: new(r.Title), Collapsed: r.Collapsed,
			GridPos: &dashboard.GridPos{Y: y, W: columns, H: 1}, Panels: []dashboard.Panel{},
		}
		at, end := place(r.Panels, y+1)
		var panels []dashboard.Panel
		for i, p := range r.Panels {
			panels = append(panels, w.panel(r, p, at[i]))
		}
		if r.Collapsed { // panels are nested in the row, and take no space until a reader opens the row
			row.Panels, end = panels, y+1
		}
		d.Panels = append(d.Panels, dashboard.PanelOrRowPanel{RowPanel: &row})
		if !r.Collapsed {
			for i := range panels {
				d.Panels = append(d.Panels, dashboard.PanelOrRowPanel{Panel: &panels[i]})
			}
		}
		y = end
	}
	return d
}

// dataSource returns the data source that the reader chose.
func dataSource() *common.DataSourceRef {
	return &common.DataSourceRef{Type: new("prometheus"), Uid: new("$datasource")}
}

func (w writer) panel(r Row, p Panel, at dashboard.GridPos) dashboard.Panel {
	out := w.draw(p)
	out.Id, out.Title, out.GridPos = new(id(r.Title, p.Title)), &p.Title, &at
	out.Description = new(p.describe())
	if p.Kind == Text {
		return withText(out, p.Markdown(w.style))
	}
	out.Datasource = dataSource()
	for i, q := range slices.Concat(p.Queries, p.Limits) {
		out.Targets = append(out.Targets, w.target(p, i, q))
	}
	f := &out.FieldConfig.Defaults
	f.Unit, f.NoValue = &p.Unit, new(p.withoutData())
	f.Links = dataLinks(w.Board, p, w.style)
	f.Thresholds = &dashboard.ThresholdsConfig{Mode: dashboard.ThresholdsModeAbsolute, Steps: steps(p.Steps)}
	f.Mappings = mappings(p)
	if p.Max != 0 {
		f.Min, f.Max = new(0.0), &p.Max
	}
	colour(p, out.FieldConfig)
	out.FieldConfig.Overrides = append(out.FieldConfig.Overrides, columnStyle(p)...)
	return out
}

func (w writer) target(p Panel, i int, q Query) prometheus.Dataquery {
	t := *prometheus.NewDataquery()
	t.RefId = new(refID(i))
	t.Datasource = dataSource()
	t.Expr = w.expr(p.drawn(i))
	t.LegendFormat = new(w.legend(p, q))
	instant := p.Kind == Table || p.Kind == Stat
	t.Instant, t.Range = new(instant), new(!instant)
	format := prometheus.PromQueryFormatTimeSeries
	switch p.Kind {
	case Table:
		format = prometheus.PromQueryFormatTable
	case Heatmap:
		format = prometheus.PromQueryFormatHeatmap
	case Lines, Stat, Timeline, Text:
	}
	t.Format = &format
	t.EditorMode = new(prometheus.QueryEditorModeCode)
	return t
}

// refID returns the letter of a panel's query: A, B, C.
func refID(i int) string { return string(rune('A' + i)) }

func (w writer) expr(e promql.Expr) string {
	return named(forGrafana(w.style.Histograms(promql.Rename(e, w.names(e)))), w.style.Severities)
}

// names returns the style's new names of labels for an expression. The label severity is renamed only in expressions
// about alerts, because ECC errors and XIDs have another label of that name.
func (w writer) names(e promql.Expr) map[string]string {
	names := maps.Clone(w.style.Labels)
	if !slices.ContainsFunc(parser.ExtractSelectors(e), func(s []*promql.Matcher) bool {
		return slices.ContainsFunc(s, func(m *promql.Matcher) bool { return strings.HasPrefix(m.Value, metrics.Alerts.Name) })
	}) {
		delete(names, rules.SeverityLabel)
	}
	return names
}

// legend returns the legend of a query, or the panel's title if the query has none.
func (w writer) legend(p Panel, q Query) string { return w.renamed(q.Expr, cmp.Or(q.Legend, p.Title)) }

// renamed renames the labels in the legend of an expression.
func (w writer) renamed(e promql.Expr, text string) string {
	for from, to := range w.names(e) {
		text = strings.ReplaceAll(text, "{{"+from+"}}", "{{"+to+"}}")
	}
	return text
}

// runbookLink matches a link from one runbook to another, by file name.
var runbookLink = regexp.MustCompile(`\]\((\w+)\.md\)`)

// Markdown returns the text of the panel, with the style's addresses in links to runbooks.
func (p Panel) Markdown(style rules.Style) string {
	return runbookLink.ReplaceAllStringFunc(p.Text, func(link string) string {
		return "](" + style.Runbook(runbookLink.FindStringSubmatch(link)[1]) + ")"
	})
}

func (w writer) variables() []dashboard.VariableModel {
	list := []dashboard.VariableModel{{
		Type: dashboard.VariableTypeDatasource, Name: "datasource", Label: new("Data source"),
		Query: text("prometheus"), Current: &dashboard.VariableOption{Text: one("default"), Value: one("default")},
		Refresh: new(dashboard.VariableRefreshOnDashboardLoad), Hide: new(dashboard.VariableHideHideLabel),
	}}
	for _, v := range w.Variables {
		query := w.valuesOf(v)
		list = append(list, dashboard.VariableModel{
			Type: dashboard.VariableTypeQuery, Name: v.name, Label: &v.title,
			Datasource: dataSource(), Query: text(query), Definition: &query,
			Multi: new(true), IncludeAll: new(true), AllValue: new(AllValue),
			Current: &dashboard.VariableOption{Selected: new(true), Text: many("All"), Value: many("$__all")},
			Refresh: new(dashboard.VariableRefreshOnTimeRangeChanged),
			Sort:    new(dashboard.VariableSortNaturalAsc),
		})
	}
	return list
}

// valuesOf returns the query for the values of a variable that remain after the preceding filters.
func (w writer) valuesOf(v variable) string {
	return "label_values(" + w.offered(v).String() + ", " + w.style.Label(v.label) + ")"
}

// offered selects the series with the values of a variable that remain after the preceding filters.
func (w writer) offered(v variable) promql.Expr {
	return promql.Rename(promql.Vector(v.from, w.Variables.until(v.from, v.name)...), w.style.Labels)
}

func (w writer) annotations() []dashboard.AnnotationQuery {
	list := []dashboard.AnnotationQuery{{
		Name: "Annotations & Alerts", Datasource: &common.DataSourceRef{Type: new("grafana"), Uid: new("-- Grafana --")},
		Enable: true, Hide: new(true), IconColor: sky, Type: new("dashboard"), BuiltIn: new(1.0),
	}}
	for _, m := range w.Variables.marks(w.style.Severities[slo.Page]) {
		list = append(list, dashboard.AnnotationQuery{
			Name: m.name, Datasource: dataSource(), Enable: true, Hide: new(true), IconColor: m.colour,
			Expr: new(w.expr(m.expr)), TitleFormat: new(w.renamed(m.expr, m.title)), TextFormat: new(w.renamed(m.expr, m.text)), Step: new("60s"),
		})
	}
	return list
}

func text(s string) *dashboard.StringOrMap { return &dashboard.StringOrMap{String: &s} }
func one(s string) dashboard.StringOrArrayOfString {
	return dashboard.StringOrArrayOfString{String: &s}
}

func many(s string) dashboard.StringOrArrayOfString {
	return dashboard.StringOrArrayOfString{ArrayOfString: []string{s}}
}
