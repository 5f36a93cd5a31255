package dashboards

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	markdown "github.com/grafana/grafana-foundation-sdk/go/text"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// draw returns a panel without queries, with the options of its kind.
func (w writer) draw(p Panel) dashboard.Panel {
	out := *dashboard.NewPanel()
	out.Type = string(p.Kind)
	out.FieldConfig = dashboard.NewFieldConfigSource()
	out.FieldConfig.Overrides = []dashboard.DashboardFieldConfigSourceOverrides{}
	out.Transformations = words(p)
	custom := &out.FieldConfig.Defaults.Custom
	switch p.Kind {
	case Lines:
		o := timeseries.NewOptions()
		o.Legend, o.Tooltip = legend(p), tooltip()
		out.Options = o
		*custom = lineStyle(p)
		if slices.ContainsFunc(p.Queries, func(q Query) bool { return strings.HasSuffix(q.Legend, replicaLegend) }) {
			out.Transformations = append(out.Transformations, podsOnly)
		}
		if slices.ContainsFunc(p.Queries, func(q Query) bool { return strings.HasSuffix(q.Legend, probeLegend) }) {
			out.Transformations = append(out.Transformations, addressOnly)
		}
	case Stat:
		o := stat.NewOptions()
		o.GraphMode, o.ColorMode, o.TextMode = common.BigValueGraphModeNone, common.BigValueColorModeValue, common.BigValueTextModeAuto
		o.Orientation = common.VizOrientationAuto
		if p.Named {
			o.TextMode = common.BigValueTextModeName
		}
		if p.Queries[0].Legend != "" { // if several values share the space, the worst value must not be the smallest on the screen
			o.Orientation = common.VizOrientationHorizontal
			if !p.Named { // a single value without this option would lose its name
				o.TextMode = common.BigValueTextModeValueAndName
			}
			o.Text = &common.VizTextDisplayOptions{TitleSize: new(13.0), ValueSize: new(16.0)}
		}
		o.ReduceOptions = common.ReduceDataOptions{Calcs: []string{"lastNotNull"}, Fields: new(""), Values: new(false)}
		out.Options = o
	case Timeline:
		drawTimeline(&out, p)
	case Heatmap:
		o := heatmap.NewOptions()
		o.Calculate = new(false)
		o.Color = heatmap.HeatmapColorOptions{
			Mode: new(heatmap.HeatmapColorModeScheme), Scheme: "Cividis", Fill: blue, Exponent: 0.5, Steps: 64,
			Scale: new(heatmap.HeatmapColorScaleExponential),
		}
		o.YAxis.Unit, o.CellValues = &p.Unit, &heatmap.CellValues{Unit: new(perSecond)}
		o.Tooltip = heatmap.HeatmapTooltip{Mode: common.TooltipDisplayModeSingle, YHistogram: new(true)}
		o.Legend = heatmap.HeatmapLegend{Show: true}
		o.Exemplars.Color = vermilion
		out.Options = o
	case Table:
		o := table.NewOptions()
		o.ShowHeader = true
		if slices.ContainsFunc(p.Columns, func(c Column) bool { return c.Texts != nil && slices.Contains(p.Wrapped, c.Title) }) {
			o.CellHeight = new(common.TableCellHeightLg) // room for two lines; for the height, Grafana ignores the texts that replace values
		}
		if p.SortBy == "" {
			o.SortBy = []common.TableSortByFieldState{{DisplayName: p.Columns[0].Title, Desc: new(false)}}
		}
		o.Footer.Reducer = []string{} // the SDK writes null, which its own schema rejects
		out.Options = o
		if len(p.Queries) > 1 {
			out.Transformations = append(out.Transformations, dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}})
		}
		if p.SortBy != "" { // before this field is dropped or renamed
			out.Transformations = append(out.Transformations, dashboard.DataTransformerConfig{
				Id:      "sortBy",
				Options: map[string]any{"sort": []any{map[string]any{"field": p.SortBy, "desc": p.Descending}}},
			})
		}
		out.Transformations = append(out.Transformations, w.organize(p))
	case Text: // see withText
	}
	return out
}

func drawTimeline(out *dashboard.Panel, p Panel) {
	o := statetimeline.NewOptions()
	// The rows have 12 pixels each, below the title and above the axis, the legend and the page buttons.
	o.ShowValue, o.MergeValues, o.RowHeight, o.PerPage = common.VisibilityModeAuto, new(true), 0.9, new(float64((38*p.Height-155)/12))
	o.Legend, o.Tooltip = common.VizLegendOptions{
		DisplayMode: common.LegendDisplayModeList, Placement: common.LegendPlacementBottom,
		Calcs: []string{},
	}, tooltip()
	out.Options = o
	out.FieldConfig.Defaults.Custom = &statetimeline.FieldConfig{LineWidth: new(uint32(0)), FillOpacity: new(uint32(80))}
	if slices.ContainsFunc(p.Queries, func(q Query) bool { return strings.HasPrefix(q.Legend, nodeOfRow) }) {
		out.Transformations = append(out.Transformations, shortRows...)
	}
}

// words replaces the names of default objectives in legends with words, such as "severe TTFT".
func words(p Panel) (all []dashboard.DataTransformerConfig) {
	var before []string
	for _, q := range slices.Concat(p.Queries, p.Limits) {
		if word, _, ok := strings.Cut(q.Legend, "{{"+metrics.LabelSLO+"}}"); ok {
			before = append(before, word)
		}
	}
	if before == nil {
		return nil
	}
	slices.Sort(before)
	for _, o := range slo.Defaults() {
		if slo.Words(o.Name) != o.Name {
			all = append(all, dashboard.DataTransformerConfig{Id: "renameByRegex", Options: map[string]any{
				"regex":         "/^(" + strings.Join(slices.Compact(before), "|") + ")" + o.Name + "([ ,]|$)/",
				"renamePattern": "$1" + slo.Words(o.Name) + "$2",
			}})
		}
	}
	return all
}

// podsOnly drops the namespace and cluster of a pod, because a legend has room only for its name. Engines outside
// Kubernetes have no pod, so their legend has two spaces before the address.
var podsOnly = dashboard.DataTransformerConfig{Id: "renameByRegex", Options: map[string]any{
	"regex":         `/(\S) \S+:\d+ \S+$/`,
	"renamePattern": "$1",
}}

// addressOnly drops the probing node from a legend, unless the address means another server on each node, such as
// 127.0.0.1.
var addressOnly = dashboard.DataTransformerConfig{Id: "renameByRegex", Options: map[string]any{
	"regex":         `/ ((?:\d\d?|1[013-9]\d|12[0-689]|2\d\d|[a-km-z][^ .:]*)[.:]\S+) \S+$/`,
	"renamePattern": " $1",
}}

// nodeOfRow is the beginning of the legends of rows that belong to a node.
const nodeOfRow = "{{instance}} "

// shortRows shortens the names of rows: it keeps only the first part of a host's name, and drops "_slowdown". Otherwise
// Grafana cuts off the beginning of the name, which gets two fifths of the panel's width.
var shortRows = []dashboard.DataTransformerConfig{
	{Id: "renameByRegex", Options: map[string]any{"regex": `/^([A-Za-z][^ .:]*)[.:]\S+/`, "renamePattern": "$1"}},
	{Id: "renameByRegex", Options: map[string]any{"regex": `/(_thermal|_brake)_slowdown$/`, "renamePattern": "$1"}},
}

// organize orders the columns of a table, and drops all other fields.
func (w writer) organize(p Panel) dashboard.DataTransformerConfig {
	names := w.names(p.Queries[0].Expr)
	hide, at, titles := map[string]bool{"Time": true, "Value": true}, map[string]int{}, map[string]string{}
	if p.SortBy != "" {
		hide[p.SortBy] = true
	}
	for _, l := range labelsOf(p.Queries[0].Expr) {
		hide[cmp.Or(names[l], l)] = true
	}
	for i, c := range p.Columns {
		field := cmp.Or(names[c.Field], c.Field)
		hide[field] = false
		at[field], titles[field] = i, c.Title
	}
	return dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
		"excludeByName": hide, "indexByName": at,
		"renameByName": titles,
	}}
}

// columnStyle sets the width, unit and texts of each column. A cell without a value stays empty: by default, Grafana
// would write the text for an empty table into the cell.
func columnStyle(p Panel) []dashboard.DashboardFieldConfigSourceOverrides {
	all := make([]dashboard.DashboardFieldConfigSourceOverrides, 0, len(p.Columns))
	for _, c := range p.Columns {
		set := []dashboard.DynamicConfigValue{{Id: "noValue", Value: ""}}
		if c.Width != 0 {
			set = append(set, dashboard.DynamicConfigValue{Id: "custom.width", Value: c.Width})
		}
		if slices.Contains(p.Hidden, c.Title) { // Grafana 11 and 12 look here
			set = append(set, dashboard.DynamicConfigValue{Id: "custom.hidden", Value: true},
				dashboard.DynamicConfigValue{Id: "custom.hideFrom", Value: map[string]any{"viz": true, "legend": false, "tooltip": false}})
		}
		if c.Unit != "" {
			set = append(set, dashboard.DynamicConfigValue{Id: "unit", Value: c.Unit})
		}
		if slices.Contains(p.Wrapped, c.Title) { // Grafana 11 and 12 look here
			set = append(set, dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]any{"type": "auto", "wrapText": true}},
				dashboard.DynamicConfigValue{Id: "custom.wrapText", Value: true})
		}
		if c.Texts != nil {
			set = append(set, dashboard.DynamicConfigValue{Id: "mappings", Value: []dashboard.ValueMapping{texts(c.Texts)}})
		}
		all = append(all, dashboard.DashboardFieldConfigSourceOverrides{
			Matcher:    dashboard.MatcherConfig{Id: "byName", Options: c.Title},
			Properties: set,
		})
	}
	return all
}

func texts(of map[string]string) dashboard.ValueMapping {
	m := dashboard.NewValueMap()
	m.Options = map[string]dashboard.ValueMappingResult{}
	for i, value := range slices.Sorted(maps.Keys(of)) {
		m.Options[value] = dashboard.ValueMappingResult{Text: new(of[value]), Index: new(int32(i))}
	}
	return dashboard.ValueMapping{ValueMap: m}
}

func withText(out dashboard.Panel, content string) dashboard.Panel {
	o := markdown.NewOptions()
	o.Mode, o.Content = markdown.TextModeMarkdown, content
	out.Options = o
	return out
}

// legend returns a legend in the form of a table, with the last and the largest value of each line. The worst line
// comes first, unless the panel is ranked. In a wide panel, the table is beside the lines. In a narrow panel, the table
// is below the lines, because beside them, it would leave only a quarter of the width. A narrow panel shows only one
// number beside the name of a model, because there is no room for a second number.
func legend(p Panel) common.VizLegendOptions {
	l := common.VizLegendOptions{
		ShowLegend: true, DisplayMode: common.LegendDisplayModeTable, Placement: common.LegendPlacementBottom,
		Calcs: []string{"lastNotNull", "max"}, SortBy: new("Last *"), SortDesc: new(!p.lowIsBad()),
	}
	if p.Ranked {
		l.SortBy, l.SortDesc = nil, nil
	}
	switch {
	case p.Width >= 14:
		l.Placement = common.LegendPlacementRight
	case p.Width < 12:
		l.Calcs = l.Calcs[:1]
	}
	return l
}

func tooltip() common.VizTooltipOptions {
	return common.VizTooltipOptions{Mode: common.TooltipDisplayModeMulti, Sort: common.SortOrderDescending}
}

func lineStyle(p Panel) *timeseries.FieldConfig {
	c := timeseries.NewFieldConfig()
	c.DrawStyle, c.LineWidth, c.FillOpacity = new(common.GraphDrawStyleLine), new(2.0), new(0.0)
	c.ShowPoints = new(common.VisibilityModeAuto) // a single value between gaps is drawn as a point
	c.SpanNulls = &common.BoolOrFloat64{Bool: new(false)}
	c.AxisSoftMin = new(0.0)
	c.ThresholdsStyle = &common.GraphThresholdsStyleConfig{Mode: common.GraphThresholdsStyleModeOff}
	if len(p.Steps) > 1 {
		c.ThresholdsStyle.Mode = common.GraphThresholdsStyleModeDashed
	}
	if p.Stacked {
		c.Stacking = &common.StackingConfig{Mode: new(common.StackingModeNormal), Group: new("A")}
		c.FillOpacity = new(30.0)
	}
	return c
}

func steps(all []Step) []dashboard.Threshold {
	out := make([]dashboard.Threshold, len(all))
	for i, s := range all {
		out[i] = dashboard.Threshold{Value: new(s.At), Color: s.Colour}
	}
	out[0].Value = nil // the first step has no lower bound
	return out
}

func mappings(p Panel) []dashboard.ValueMapping {
	var all []dashboard.ValueMapping
	if p.Kind == Stat { // otherwise Grafana would write the reason in the colour of the lowest values, which may be bad
		nothing := dashboard.NewSpecialValueMap()
		nothing.Options.Match, nothing.Options.Result = dashboard.SpecialValueMatchNull, dashboard.ValueMappingResult{
			Text:  &p.Empty,
			Color: new(grey), Index: new(int32(0)),
		}
		all = append(all, dashboard.ValueMapping{SpecialValueMap: nothing})
	}
	states := p.states()
	if states == nil {
		return all
	}
	m := dashboard.NewValueMap()
	m.Options = map[string]dashboard.ValueMappingResult{}
	for i, s := range states {
		m.Options[strconv.Itoa(s.Value)] = dashboard.ValueMappingResult{Text: &s.Name, Color: &s.Colour, Index: new(int32(i))}
	}
	return append(all, dashboard.ValueMapping{ValueMap: m})
}

// outcomeColours maps outcomes to colours. Requests that ended well are green. All other requests have other colours.
var outcomeColours = []struct{ outcomes, colour string }{
	{"success|stop|length|repetition|ok", green},
	{"error|wrong_answer|empty|refused|timeout|http_5xx|in_stream_error|truncated", vermilion},
	{"rejected|rate_limited", orange},
	{"abort", purple},
	{"invalid|unknown|http_4xx", grey},
}

// colour sets the colours of a panel. A line whose meaning has a colour (see meanings) has this colour. Any other line
// has the colour of its position, and not of its name, because Grafana 10 treats the names of all lines as equal.
// Limits are dashed, and not in the legend. A single value has the colour of its step. In a stat with several queries,
// each query has the colour of one step. A state has the colour of its mapping.
func colour(p Panel, f *dashboard.FieldConfigSource) {
	set := func(i int, properties ...dashboard.DynamicConfigValue) {
		f.Overrides = append(f.Overrides, dashboard.DashboardFieldConfigSourceOverrides{
			Matcher: dashboard.MatcherConfig{Id: "byFrameRefID", Options: refID(i)}, Properties: properties,
		})
	}
	switch p.Kind {
	case Lines:
		f.Defaults.Color = &dashboard.FieldColor{Mode: dashboard.FieldColorModeIdPaletteClassic}
		// Without this, the legend would show the text of the empty panel in place of a missing value.
		f.Overrides = append(f.Overrides, dashboard.DashboardFieldConfigSourceOverrides{
			Matcher:    dashboard.MatcherConfig{Id: "byType", Options: "number"},
			Properties: []dashboard.DynamicConfigValue{{Id: "noValue", Value: ""}},
		})
	case Timeline: // with threshold colours, Grafana would write the threshold's range into every cell
		f.Defaults.Color = &dashboard.FieldColor{Mode: dashboard.FieldColorModeIdFixed, FixedColor: new(grey)}
		return
	default:
		f.Defaults.Color = &dashboard.FieldColor{Mode: dashboard.FieldColorModeIdThresholds}
		for i := range p.Queries {
			if p.Kind == Stat && len(p.Queries) > 1 && !p.Named {
				set(i, dashboard.DynamicConfigValue{Id: "color", Value: dashboard.FieldColor{
					Mode:       dashboard.FieldColorModeIdFixed,
					FixedColor: &p.Steps[len(p.Steps)-1-i].Colour,
				}})
			}
		}
		for i := range p.Limits {
			set(len(p.Queries)+i, dashboard.DynamicConfigValue{Id: "color", Value: dashboard.FieldColor{
				Mode: dashboard.FieldColorModeIdFixed, FixedColor: new(grey),
			}})
		}
		return
	}
	for i, q := range p.Queries {
		if strings.HasPrefix(q.Legend, "{{outcome}}") {
			for _, o := range outcomeColours {
				f.Overrides = append(f.Overrides, dashboard.DashboardFieldConfigSourceOverrides{
					Matcher: dashboard.MatcherConfig{Id: "byRegexp", Options: "/^(" + o.outcomes + ")( |$)/"},
					Properties: []dashboard.DynamicConfigValue{{Id: "color", Value: dashboard.FieldColor{
						Mode:       dashboard.FieldColorModeIdFixed,
						FixedColor: &o.colour,
					}}},
				})
			}
		}
		if c := q.Colour(); c != "" {
			set(i, dashboard.DynamicConfigValue{Id: "color", Value: dashboard.FieldColor{Mode: dashboard.FieldColorModeIdFixed, FixedColor: &c}})
		}
	}
	for i, q := range p.Limits {
		set(len(p.Queries)+i,
			dashboard.DynamicConfigValue{Id: "color", Value: dashboard.FieldColor{
				Mode:       dashboard.FieldColorModeIdFixed,
				FixedColor: new(q.Colour()),
			}},
			dashboard.DynamicConfigValue{Id: "custom.lineStyle", Value: common.LineStyle{
				Fill: new(common.LineStyleFillDash),
				Dash: []float64{6, 4},
			}},
			dashboard.DynamicConfigValue{Id: "custom.lineWidth", Value: 1},
			dashboard.DynamicConfigValue{Id: "custom.hideFrom", Value: common.HideSeriesConfig{Legend: true}})
	}
}
