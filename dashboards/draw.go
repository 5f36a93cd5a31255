//lint:file-ignore SA1019 see render.go.

package dashboards

import (
	"strconv"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	markdown "github.com/grafana/grafana-foundation-sdk/go/text"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// draw is an empty panel of a kind with the options that only this kind has.
func draw(p Panel) dashboard.Panel {
	out := *dashboard.NewPanel()
	out.Type = string(p.Kind)
	out.FieldConfig = dashboard.NewFieldConfigSource()
	out.FieldConfig.Overrides = []dashboard.DashboardFieldConfigSourceOverrides{}
	custom := &out.FieldConfig.Defaults.Custom
	switch p.Kind {
	case Lines:
		o := timeseries.NewOptions()
		o.Legend, o.Tooltip = legend(p), tooltip()
		out.Options = o
		*custom = lineStyle(p)
	case Stat:
		o := stat.NewOptions()
		o.GraphMode, o.ColorMode, o.TextMode = common.BigValueGraphModeNone, common.BigValueColorModeValue, common.BigValueTextModeAuto
		o.Orientation = common.VizOrientationAuto
		o.ReduceOptions = common.ReduceDataOptions{Calcs: []string{"lastNotNull"}, Fields: new(""), Values: new(false)}
		out.Options = o
	case Timeline:
		o := statetimeline.NewOptions()
		o.ShowValue, o.MergeValues, o.RowHeight = common.VisibilityModeAuto, new(true), 0.9
		o.Legend, o.Tooltip = common.VizLegendOptions{DisplayMode: common.LegendDisplayModeList, Placement: common.LegendPlacementBottom, Calcs: []string{}}, tooltip()
		out.Options = o
		*custom = &statetimeline.FieldConfig{LineWidth: new(uint32(0)), FillOpacity: new(uint32(80))}
	case Heatmap:
		o := heatmap.NewOptions()
		o.Calculate = new(false)
		o.Color = heatmap.HeatmapColorOptions{Mode: new(heatmap.HeatmapColorModeScheme), Scheme: "Cividis", Fill: blue, Exponent: 0.5, Steps: 64,
			Scale: new(heatmap.HeatmapColorScaleExponential)}
		o.YAxis.Unit = &p.Unit
		o.Tooltip = heatmap.HeatmapTooltip{Mode: common.TooltipDisplayModeSingle, YHistogram: new(true)}
		o.Legend = heatmap.HeatmapLegend{Show: true}
		o.Exemplars.Color = vermilion
		out.Options = o
	case Table:
		o := table.NewOptions()
		o.ShowHeader = true
		o.Footer.Reducer = []string{} // the SDK writes null, which its own schema refuses
		out.Options = o
		out.Transformations = []dashboard.DataTransformerConfig{{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]bool{"Time": true, "Value": true}}}}
	}
	return out
}

func withText(out dashboard.Panel, content string) dashboard.Panel {
	o := markdown.NewOptions()
	o.Mode, o.Content = markdown.TextModeMarkdown, content
	out.Options = o
	return out
}

// legend is a table: the last and the largest value are read more often than the line. It stands beside
// the lines where there is room, and below where there is none.
func legend(p Panel) common.VizLegendOptions {
	l := common.VizLegendOptions{ShowLegend: true, DisplayMode: common.LegendDisplayModeTable, Placement: common.LegendPlacementBottom,
		Calcs: []string{"lastNotNull", "max"}, SortBy: new("Last *"), SortDesc: new(true)}
	if p.Width > 12 {
		l.Placement = common.LegendPlacementRight
	}
	return l
}

func tooltip() common.VizTooltipOptions {
	return common.VizTooltipOptions{Mode: common.TooltipDisplayModeMulti, Sort: common.SortOrderDescending}
}

func lineStyle(p Panel) *timeseries.FieldConfig {
	c := timeseries.NewFieldConfig()
	c.DrawStyle, c.LineWidth, c.FillOpacity = new(common.GraphDrawStyleLine), new(1.0), new(0.0)
	c.ShowPoints = new(common.VisibilityModeAuto) // a lone value between gaps is a point, not nothing
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
	out := []dashboard.Threshold{{Color: all[0].Colour}} // the first has no lower bound
	for _, s := range all[1:] {
		out = append(out, dashboard.Threshold{Value: new(s.At), Color: s.Colour})
	}
	return out
}

func mappings(states []State) []dashboard.ValueMapping {
	if states == nil {
		return nil
	}
	m := dashboard.NewValueMap()
	m.Options = map[string]dashboard.ValueMappingResult{}
	for i, s := range states {
		m.Options[strconv.Itoa(s.Value)] = dashboard.ValueMappingResult{Text: &s.Name, Color: &s.Colour, Index: new(int32(i))}
	}
	return []dashboard.ValueMapping{{ValueMap: m}}
}

// colour gives each query of a panel a hue of its own, and each of its lines a shade of it. Single values
// and states have the colour of their threshold.
func colour(p Panel, f *dashboard.FieldConfigSource) {
	if p.Kind != Lines {
		f.Defaults.Color = &dashboard.FieldColor{Mode: dashboard.FieldColorModeIdThresholds}
		return
	}
	f.Defaults.Color = &dashboard.FieldColor{Mode: dashboard.FieldColorModeIdShades, FixedColor: new(hues[0])}
	for i := range p.Queries[1:] {
		f.Overrides = append(f.Overrides, dashboard.DashboardFieldConfigSourceOverrides{
			Matcher: dashboard.MatcherConfig{Id: "byFrameRefID", Options: refID(i + 1)},
			Properties: []dashboard.DynamicConfigValue{{Id: "color", Value: dashboard.FieldColor{
				Mode: dashboard.FieldColorModeIdShades, FixedColor: new(hues[i+1])}}},
		})
	}
}
