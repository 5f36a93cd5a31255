package dashboards

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// RenderPerses writes a dashboard as a resource of Perses 0.53 and newer, for a project. Queries go to the project's
// default Prometheus data source. docs/formats.md lists what Perses cannot show.
func RenderPerses(b Board, style rules.Style, project string) ([]byte, error) {
	return encode(object{
		Kind: "Dashboard", Metadata: objectMetadata{Name: string(b.UID), Project: project},
		Spec: writer{b, style.WithDefaults()}.perses(),
	})
}

// RenderPersesResource writes a dashboard as the custom resource of Perses' operator, with labels.
func RenderPersesResource(b Board, style rules.Style, labels map[string]string) ([]byte, error) {
	return encode(object{
		APIVersion: "perses.dev/v1alpha2", Kind: "PersesDashboard", Metadata: objectMetadata{
			Name:   string(b.UID),
			Labels: labels,
		},
		Spec: fields{"config": writer{b, style.WithDefaults()}.perses()},
	})
}

// These types are our own, because Perses' types would add the modules of its server to this program. The tests compare
// them with Perses and its operator.
type (
	persesSpec struct {
		Display         persesDisplay         `json:"display"`
		Variables       []persesKind          `json:"variables"`
		Panels          map[string]persesKind `json:"panels"`
		Layouts         []persesKind          `json:"layouts"`
		Duration        string                `json:"duration"`
		RefreshInterval string                `json:"refreshInterval"`
		Links           []persesLink          `json:"links"`
	}
	persesDisplay struct {
		Name        string `json:"name"`
		Description string `json:"description,omitempty"`
	}
	// persesKind is a plugin, a variable, a panel, a layout or a query. Each has a kind and a spec.
	persesKind struct {
		Kind string `json:"kind"`
		Spec any    `json:"spec"`
	}
	persesPanel struct {
		Display persesDisplay `json:"display"`
		Plugin  persesKind    `json:"plugin"`
		Queries []persesKind  `json:"queries,omitempty"`
		Links   []persesLink  `json:"links,omitempty"`
	}
	persesLink struct {
		Name            string `json:"name"`
		URL             string `json:"url"`
		RenderVariables bool   `json:"renderVariables"`
		TargetBlank     bool   `json:"targetBlank"`
	}
)

func (w writer) perses() persesSpec {
	s := persesSpec{
		Display: persesDisplay{w.Title(), w.Description}, Variables: w.variablesPerses(), Panels: map[string]persesKind{},
		Duration: strings.TrimPrefix(w.Since, "now-"), RefreshInterval: w.Refresh,
	}
	for uid := range titles {
		if uid != w.UID {
			s.Links = append(s.Links, w.onward(uid))
		}
	}
	slices.SortFunc(s.Links, func(a, b persesLink) int { return strings.Compare(a.Name, b.Name) })
	s.Links = append(s.Links, w.runbooks())
	for _, r := range w.Rows {
		at, _ := place(r.Panels, 0)
		var items []fields
		for i, p := range r.Panels {
			name := fmt.Sprintf("panel-%d", id(r.Title, p.Title))
			s.Panels[name] = persesKind{"Panel", w.panelPerses(p)}
			items = append(items, fields{
				"x": at[i].X, "y": at[i].Y, "width": at[i].W, "height": at[i].H,
				"content": map[string]string{"$ref": "#/spec/panels/" + name},
			})
		}
		s.Layouts = append(s.Layouts, persesKind{"Grid", fields{
			"items":   items,
			"display": fields{"title": r.Title, "collapse": fields{"open": !r.Collapsed}},
		}})
	}
	return s
}

// variablesPerses returns the filters. There is no variable for the data source, because queries go to the project's
// default data source.
func (w writer) variablesPerses() []persesKind {
	all := make([]persesKind, 0, len(w.Variables))
	for _, v := range w.Variables {
		all = append(all, persesKind{"ListVariable", fields{
			"name": v.name, "display": persesDisplay{Name: v.title}, "defaultValue": "$__all",
			"allowAllValue": true, "allowMultiple": true, "customAllValue": AllValue, "sort": "alphabetical-asc",
			"plugin": persesKind{"PrometheusLabelValuesVariable", fields{
				"labelName": w.style.Label(v.label),
				"matchers":  []string{w.offered(v).String()},
			}},
		}})
	}
	return all
}

func (w writer) panelPerses(p Panel) persesPanel {
	out := persesPanel{Display: persesDisplay{p.Title, p.describe()}, Plugin: w.pluginPerses(p)}
	if p.Kind == Text {
		return out
	}
	out.Display.Description += "\n\n**Empty:** " + p.withoutData() // Perses has no text for empty panels
	all := slices.Concat(p.Queries, p.Limits)
	if p.Kind == Stat { // queries of a stat have no colours, so a limit would look like a good or a bad value
		all = p.Queries
	}
	for i, q := range all {
		query := fields{"query": w.expr(worded(p.drawn(i), q)), "seriesNameFormat": w.legend(p, q)}
		out.Queries = append(out.Queries, persesKind{"TimeSeriesQuery", fields{"plugin": persesKind{"PrometheusTimeSeriesQuery", query}}})
	}
	switch p.Runbook {
	case "":
	case eachAlert, listedAlert, eachRunbook: // Perses' links cannot refer to the clicked value
		out.Links = append(out.Links, w.runbooks())
	default:
		out.Links = append(out.Links, persesLink{Name: p.runbookTitle(), URL: w.style.Runbook(p.Runbook), TargetBlank: true})
	}
	if p.Next != "" {
		out.Links = append(out.Links, w.onward(p.Next))
	}
	return out
}

// worded replaces the names of default objectives with words if the legend names the objective, because Perses cannot
// rename series.
func worded(e promql.Expr, q Query) promql.Expr {
	if !strings.Contains(q.Legend, "{{"+metrics.LabelSLO+"}}") {
		return e
	}
	for _, o := range slo.Defaults() {
		if slo.Words(o.Name) != o.Name {
			e = replaced(e, metrics.LabelSLO, slo.Words(o.Name), metrics.LabelSLO, o.Name)
		}
	}
	return e
}

// onward returns a link to another dashboard of the project, with the same time range and filters.
func (w writer) onward(to rules.Dashboard) persesLink {
	var url strings.Builder
	url.WriteString(string(to) + "?start=$__from&end=$__to")
	for _, v := range w.Variables {
		url.WriteString("&var-" + v.name + "=${" + v.name + ":percentencode}")
	}
	return persesLink{Name: titles[to], URL: url.String(), RenderVariables: true}
}

// runbooks returns a link to all runbooks.
func (w writer) runbooks() persesLink {
	return persesLink{Name: "Runbooks", URL: runbookIndex(w.style), TargetBlank: true}
}

// pluginPerses returns Perses' closest visualisation for a panel.
func (w writer) pluginPerses(p Panel) persesKind {
	switch p.Kind {
	case Text:
		return persesKind{"Markdown", fields{"text": p.Markdown(w.style)}}
	case Stat:
		spec := fields{"calculation": "last-number", "format": formatPerses(p.Unit), "thresholds": thresholdsPerses(p.Steps)}
		if p.Named { // all legends consist of the same label
			spec["metricLabel"] = strings.Trim(p.Queries[0].Legend, "{}")
		} else if p.States != nil {
			spec["mappings"] = mappingsPerses(p)
		}
		return persesKind{"StatChart", spec}
	case Timeline:
		return persesKind{"StatusHistoryChart", fields{"mappings": mappingsPerses(p)}}
	case Table:
		return persesKind{"Table", w.columnsPerses(p)}
	case Lines, Heatmap:
	}
	unit := p.Unit
	if p.Kind == Heatmap { // Perses draws heatmaps only from native histograms, so each bucket is a line
		unit = perSecond
	}
	axis := fields{"format": formatPerses(unit)}
	if p.Max != 0 {
		axis["min"], axis["max"] = 0, p.Max
	}
	visual := fields{"display": "line", "connectNulls": false}
	if p.Stacked {
		visual["stack"], visual["areaOpacity"] = "all", 0.3
	}
	spec := fields{"yAxis": axis, "visual": visual, "legend": fields{
		"position": "bottom", "mode": "table",
		"values": []string{"last-number", "max"},
	}}
	if len(p.Steps) > 1 {
		spec["thresholds"] = thresholdsPerses(p.Steps)
	}
	var queries []fields
	for i, q := range slices.Concat(p.Queries, p.Limits) {
		if c := q.Colour(); c != "" {
			set := fields{"queryIndex": i, "colorMode": "fixed", "colorValue": c}
			if i >= len(p.Queries) {
				set["lineStyle"] = "dashed"
			}
			queries = append(queries, set)
		}
	}
	if queries != nil {
		spec["querySettings"] = queries
	}
	return persesKind{"TimeSeriesChart", spec}
}

func thresholdsPerses(all []Step) fields {
	above := make([]fields, 0, len(all)-1)
	for _, s := range all[1:] {
		above = append(above, fields{"value": s.At, "color": s.Colour})
	}
	return fields{"mode": "absolute", "defaultColor": all[0].Colour, "steps": above}
}

func mappingsPerses(p Panel) []persesKind {
	all := make([]persesKind, 0, len(p.states()))
	for _, s := range p.states() {
		all = append(all, persesKind{"Value", fields{"value": strconv.Itoa(s.Value), "result": fields{
			"value": s.Name,
			"color": s.Colour[:len(grey)],
		}}})
	}
	return all
}

// columnsPerses returns the settings of a table that shows only the panel's columns. With several queries, results with
// the same labels share a row.
func (w writer) columnsPerses(p Panel) fields {
	spec := fields{"density": "compact", "defaultColumnHidden": true}
	if len(p.Queries) > 1 {
		spec["transforms"] = []persesKind{{"MergeSeries", fields{}}}
	}
	names := w.names(p.Queries[0].Expr)
	all := make([]fields, 0, len(p.Columns))
	for i, c := range p.Columns {
		name := cmp.Or(names[c.Field], c.Field)
		if letter, ok := strings.CutPrefix(name, "Value #"); ok {
			name = "value #" + strconv.Itoa(int(letter[0]-'A')+1)
		} else if name == "Value" {
			name = "value"
		}
		set := fields{"name": name, "header": c.Title, "hide": slices.Contains(p.Hidden, c.Title)}
		if c.Width != 0 {
			set["width"] = c.Width
		}
		if c.Unit != "" {
			set["format"] = formatPerses(c.Unit)
		}
		switch {
		case p.SortBy == c.Field && p.Descending:
			set["sort"] = "desc"
		case p.SortBy == "" && i == 0 || p.SortBy == c.Field:
			set["sort"] = "asc"
		}
		if c.Texts != nil {
			set["cellSettings"] = textsPerses(c.Texts)
		}
		all = append(all, set)
	}
	spec["columnSettings"] = all
	return spec
}

func textsPerses(of map[string]string) []fields {
	all := make([]fields, 0, len(of))
	for _, value := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fields{"condition": persesKind{"Value", fields{"value": value}}, "text": of[value]})
	}
	return all
}

// formatPerses returns Perses' closest unit, because Perses has no custom units.
func formatPerses(unit string) fields {
	switch unit {
	case seconds, wait:
		return fields{"unit": "seconds"}
	case share:
		return fields{"unit": "percent-decimal"}
	case perSecond, tokenRate:
		return fields{"unit": "counts/sec", "shortValues": true}
	case requests:
		return fields{"unit": "requests/sec", "shortValues": true}
	case octets:
		return fields{"unit": "bytes", "shortValues": true}
	case bandwidth:
		return fields{"unit": "bytes/sec", "shortValues": true}
	case celsius:
		return fields{"unit": "celsius"}
	case sinceThen:
		return fields{"unit": "relative-time"}
	}
	return fields{"unit": "decimal", "shortValues": true}
}
