package dashboards_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// These tests check what a person sees in Grafana, as far as the written file shows it. Each of these things once
// looked wrong although every query had a result.

// override is a panel's setting for some of its series.
type override struct {
	Matcher    struct{ ID, Options string }
	Properties []struct {
		ID    string
		Value any
	}
}

// allOverrides returns the overrides of a panel, as written.
func (p panel) allOverrides(t *testing.T) (all []override) {
	t.Helper()
	raw, err := json.Marshal(p.FieldConfig.Overrides)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// overrides returns the overrides of a query of a panel, by property.
func (p panel) overrides(t *testing.T, matcher, of string) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, o := range p.allOverrides(t) {
		if o.Matcher.ID == matcher && o.Matcher.Options == of {
			for _, p := range o.Properties {
				found[p.ID] = p.Value
			}
		}
	}
	return found
}

// A state timeline names its states, the healthy one muted. It shows the rows with a problem in the range, and one
// row for the whole, so that the panel is never empty: this panel type cannot explain why it is empty. With the
// colour mode thresholds, Grafana writes "-∞+" into every cell. Grafana cuts off the beginning of row names that
// need more than two fifths of the panel, and the end of words at 8.5 pixels per character. A panel full of rows
// has room for their names. An unknown state is less faint than a good one.
func TestTimelinesSayWhatIsWrong(t *testing.T) {
	found := 0
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			if p.Type != "state-timeline" {
				continue
			}
			found++
			if mode := p.FieldConfig.Defaults.Color.Mode; mode != "fixed" {
				t.Errorf("%s: %s has the colour mode %s", b.Title, p.Title, mode)
			}
			states := p.FieldConfig.Defaults.Mappings[0]
			if len(states.values()) != 3 || states.of(t, "-1").Text != p.FieldConfig.Defaults.NoValue {
				t.Errorf("%s: %s has the states %v", b.Title, p.Title, states)
			}
			loud := 0
			for _, value := range []string{"-1", "0", "1"} {
				s := states.of(t, value)
				if want := map[bool]string{true: "#8C8C8C40", false: "#8C8C8C1A"}[value == "-1"]; s.Color != want {
					loud++
				}
				if words := float64(52*p.GridPos.W-78) / 8.5; float64(len(s.Text)) > words {
					t.Errorf("%s: %s has room for %.0f characters: %q", b.Title, p.Title, words, s.Text)
				}
			}
			if loud != 1 {
				t.Errorf("%s: %s has %d loud states", b.Title, p.Title, loud)
			}
			if rows := float64(38*p.GridPos.H-8-48-29-30-40) / 12; p.Options.PerPage > rows {
				t.Errorf("%s: %s has %.0f rows on a page, with room for %.1f", b.Title, p.Title, p.Options.PerPage, rows)
			}
			last := len(p.Targets) - 1
			for i, q := range p.Targets {
				if wrong := strings.HasSuffix(q.Expr, " == 0") || strings.HasSuffix(q.Expr, " == 1"); wrong != (i < last) ||
					!strings.Contains(q.Expr, "max_over_time(") || strings.Contains(q.Expr, "$__range") {
					t.Errorf("%s: %s shows rows that were never wrong: %s", b.Title, p.Title, q.Expr)
				}
				for _, row := range longestRows(q.LegendFormat) {
					name := p.renamed(t, row)
					if needs, room := 6.4*float64(len(name)), 0.4*(52.3*float64(p.GridPos.W)-24)+4; needs > room ||
						strings.Contains(row, "ip-10-12-113-27.") && !strings.HasPrefix(name, "ip-10-12-113-27 gpu 7") {
						t.Errorf("%s: %s has room for %.0f pixels of %q, which needs %.0f", b.Title, p.Title, room, name, needs)
					}
				}
				if strings.HasSuffix(q.LegendFormat, "{{instance}}") && strings.Contains(q.LegendFormat, " ") || strings.HasSuffix(q.LegendFormat,
					"{{gpu_uuid}}") {
					t.Errorf("%s: %s has rows whose names end alike: %s", b.Title, p.Title, q.LegendFormat)
				}
			}
			if q := p.Targets[last]; q.LegendFormat != "all" || !strings.Contains(q.Expr, " or vector(") {
				t.Errorf("%s: %s may be empty: %s", b.Title, p.Title, q.Expr)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d timelines", found)
	}
}

// TestNothingIsKnownOfThePast checks that timelines of alerts claim nothing about the time before the rules recorded anything.
func TestNothingIsKnownOfThePast(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	installed := rulesim.Epoch.Add(10 * time.Minute)
	if err := sim.Append(installed, func(emit rulesim.Emit) {
		emit(labels.FromStrings("__name__", metrics.RecordedReplicas.Name, metrics.LabelModel, "llama"), 1)
	}); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			if p.Type != "state-timeline" || !strings.Contains(p.Targets[0].Expr, "ALERTS") {
				continue
			}
			found++
			for at, want := range map[time.Time]float64{installed.Add(-5 * time.Minute): -1, installed: 0} {
				v, err := sim.Query(b.substitute(t, p.Targets[len(p.Targets)-1].Expr), at)
				if err != nil || len(v) != 1 || v[0].F != want {
					t.Errorf("%s: %s at %s: %v, want %g (%v)", b.Title, p.Title, at.Sub(installed), v, want, err)
				}
			}
		}
	}
	if found < 2 {
		t.Errorf("%d timelines of alerts", found)
	}
}

// TestOnlyDeclaredObjectivesMustCount checks that no fault is shown if an engine lacks the signal of a built-in
// objective, because nobody declared that objective.
func TestOnlyDeclaredObjectivesMustCount(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		for slo, origin := range map[string]string{"itl": metrics.OriginDefault, "chat": ""} {
			node := labels.FromStrings(metrics.LabelInstance, "gpu-node-1:9844", metrics.LabelSLO, slo)
			emit(with(node, metrics.SLOInfo.Name, metrics.LabelOrigin, origin), 1)
			emit(with(node, metrics.SLOCounted.Name, metrics.LabelModel, "model of "+slo, metrics.LabelReason, "signal_missing"), 0)
		}
	}); err != nil {
		t.Fatal(err)
	}
	b := boards(t)[slices.IndexFunc(boards(t), func(b board) bool { return b.UID == string(rules.ExporterDashboard) })]
	p := b.titled("What is not ok")
	rows := screen{sim, rulesim.Epoch}.rows(t, b, p)
	if len(rows) != 1 || rows[0]["model"] != "model of chat" || rows[0]["what"] != "objective chat counts nothing: signal missing" {
		t.Errorf("what is not ok: %v", rows)
	}
}

// longestRows returns the longest names of rows with a legend: for a host of a cloud, for every harmful reason and
// for every alert.
func longestRows(legend string) (all []string) {
	reasons := strings.Split(rules.HarmfulReasons, "|")
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
		all = append(all, strings.NewReplacer("{{instance}}", "ip-10-12-113-27.eu-west-1.compute.internal:9844", "{{gpu}}", "7", "{{reason}}",
			reasons[len(all)%len(reasons)], "{{model_name}}", "meta-llama/Llama-3.1-8B-Instruct", "{{alertname}}", a.Name).Replace(legend))
	}
	return all
}

// Lines of a panel have colours of their own and are 2 px wide; Grafana 10 gives colours only by order, because it
// takes all names for "Value". Limits are dashed and not in the legend, and p50, p95 and p99 look alike on every
// dashboard.
func TestLinesCanBeToldApart(t *testing.T) {
	meant := map[string]any{}
	limits := 0
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			if p.Type != "timeseries" {
				continue
			}
			if mode, width := p.FieldConfig.Defaults.Color.Mode, p.FieldConfig.Defaults.Custom["lineWidth"]; mode != "palette-classic" ||
				width != 2.0 {
				t.Errorf("%s: %s: colour mode %s, %v px", b.Title, p.Title, mode, width)
			}
			for _, o := range p.allOverrides(t) { // from the sixth on, Grafana's shades of a colour are nearly black
				for _, set := range o.Properties {
					if c, ok := set.Value.(map[string]any); ok && set.ID == "color" && c["mode"] != "fixed" {
						t.Errorf("%s: %s: lines of %s cannot be seen: %v", b.Title, p.Title, o.Matcher.Options, c)
					}
				}
			}
			for _, q := range p.Targets {
				word, _, _ := strings.Cut(q.LegendFormat, " ")
				is := p.overrides(t, "byFrameRefID", q.RefID)
				if slices.Contains([]string{"p50", "p95", "p99", "limit", "pages", "ticket", "may"}, word) {
					if is["color"] == nil {
						t.Errorf("%s: %s: %s has no colour of its own", b.Title, p.Title, q.LegendFormat)
						continue
					}
					c := is["color"].(map[string]any)["fixedColor"]
					if meant[word] == nil {
						meant[word] = c
					}
					if c != meant[word] {
						t.Errorf("%s: %s: %s is %v, elsewhere %v", b.Title, p.Title, word, c, meant[word])
					}
				}
				if slices.Contains([]string{"limit", "pages", "ticket", "may"}, word) {
					limits++
					if hide, _ := is["custom.hideFrom"].(map[string]any); hide["legend"] != true || is["custom.lineStyle"] == nil {
						t.Errorf("%s: %s: %s fills the legend", b.Title, p.Title, q.LegendFormat)
					}
				}
			}
		}
	}
	if limits < 8 || meant["p95"] == meant["p99"] || meant["p50"] == meant["p95"] {
		t.Errorf("%d limits, %v", limits, meant)
	}
}

// On a screen of 1280 pixels, a legend beside the lines of a narrow panel leaves the lines a quarter of the width
// and loses its own numbers. Below the lines the legend has a third of the height, so panels with a line for each
// part of a model are higher. The worst line comes first.
func TestLegendsHaveRoom(t *testing.T) {
	ofOne := []string{"cluster", "namespace", "model_name", "slo", "role", "period"}
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			if p.Type != "timeseries" {
				continue
			}
			legend := p.Options.Legend
			if beside := legend.Placement == "right"; beside != (p.GridPos.W >= 14) {
				t.Errorf("%s: %s is %d columns wide and has its legend at the %s", b.Title, p.Title, p.GridPos.W, legend.Placement)
			}
			low := p.FieldConfig.Defaults.Thresholds.Steps[0].Color == "#D55E00" || slices.Contains([]string{"Clocks", "Goodput"}, p.Title)
			kind, ranked := map[string]string{ // panels of kinds whose values do not compare
				"ECC errors per hour": "uncorrected", "SM, tensor and kernel activity": "SM",
				"NaN, sleep, adapters, models": "NaN", "Events": "missed", "KV tiers": "pinned", "Replicas and GPUs": "replicas",
			}[p.Title]
			if ranked && (legend.SortBy != "" || !strings.Contains(p.Targets[0].LegendFormat+p.Targets[0].Expr, kind)) {
				t.Errorf("%s: the legend of %s does not begin with %s", b.Title, p.Title, kind)
			}
			if !ranked && (legend.SortBy != "Last *" || legend.SortDesc == low) {
				t.Errorf("%s: %s does not begin with its worst line", b.Title, p.Title)
			}
			if none, ok := p.overrides(t, "byType", "number")["noValue"]; !ok || none != "" { // of an idle model
				t.Errorf("%s: %s says %q in its legend, and leaves no room for numbers", b.Title, p.Title, p.FieldConfig.Defaults.NoValue)
			}
			const name = "p95 meta-llama/Llama-3.1-8B-Instruct prod" // Grafana does not break names; a name that is too long is cut off at the edge
			if needs, room := 46+6.4*float64(len(name))+75*float64(len(legend.Calcs)), float64(52*p.GridPos.W-24); needs > room && p.GridPos.W >= 8 {
				t.Errorf("%s: %s cuts off numbers of its legend, which needs %.0f pixels of %.0f", b.Title, p.Title, needs, room)
			}
			for _, q := range p.Targets {
				e, err := promql.Parser.ParseExpr(b.substitute(t, q.Expr))
				if err != nil {
					t.Fatal(err)
				}
				a, ok := e.(*parser.AggregateExpr)
				if ok && a.Param != nil { // the lines that are drawn of many
					a, ok = a.Expr.(*parser.AggregateExpr)
				}
				if ok && slices.ContainsFunc(a.Grouping, func(l string) bool { return !slices.Contains(ofOne, l) }) && p.GridPos.W < 14 &&
					p.GridPos.H < 10 {
					t.Errorf("%s: %s has no room for its legend: %v", b.Title, p.Title, a.Grouping)
				}
				if p.GridPos.W < 8 && (strings.Contains(q.LegendFormat, "{{model_name}}") || strings.Contains(q.LegendFormat, "{{pod}}")) {
					t.Errorf("%s: %s has no room for names: %s", b.Title, p.Title, q.LegendFormat)
				}
				if len(p.Transformations) == 0 && strings.Contains(q.LegendFormat, "{{pod}} {{server}} {{instance}}") {
					t.Errorf("%s: %s says where a pod is: %s", b.Title, p.Title, q.LegendFormat)
				}
				if probed := strings.Contains(q.Expr, "llm_probe_"); probed { // without a pod, whose name contains the model
					name := strings.NewReplacer("{{outcome}}", "wrong_answer", "{{phase}}", "connect", "{{reason}}", "no_endpoint", "{{model_name}}",
						"meta-llama/Llama-3.1-8B-Instruct", "{{server}}", "10.0.12.34:8000", "{{instance}}", "node-1:9844").Replace(q.LegendFormat)
					needs, room := 46+6.4*float64(len(p.renamed(t, name)))+75*float64(len(legend.Calcs)), float64(52*p.GridPos.W-24)
					if !strings.Contains(q.LegendFormat, "{{model_name}}") || needs > room {
						t.Errorf("%s: %s names no model, or has no room for numbers: %s needs %.0f pixels", b.Title, p.Title, q.LegendFormat, needs)
					}
					for address, want := range map[string]string{
						"10.0.12.34:8000": "", "127.0.0.1:8000": " node-1:9844", "localhost:8000": " node-1:9844", "chat.prod.svc:80": "",
					} {
						name := strings.NewReplacer("{{model_name}}", "llama-3.1", "{{server}}", address, "{{instance}}", "node-1:9844").
							Replace(q.LegendFormat)
						if is := p.renamed(t, name); !strings.HasSuffix(is, " llama-3.1 "+address+want) {
							t.Errorf("%s: %s names a line %q", b.Title, p.Title, is)
						}
					}
				} else if strings.Contains(q.LegendFormat, "{{server}}") && strings.Contains(q.LegendFormat, "{{model_name}}") {
					t.Errorf("%s: %s repeats names: %s", b.Title, p.Title, q.LegendFormat)
				}
				if strings.HasPrefix(q.LegendFormat, "{{instance}} ") && strings.Contains(q.LegendFormat, "{{gpu}}") {
					t.Errorf("%s: %s loses the number of the GPU where names are cut off: %s", b.Title, p.Title, q.LegendFormat)
				}
			}
		}
	}
}

// Titles fit on a screen of 1280 pixels, whose columns have 52, beside the (i) and the menu.
func TestTitlesFit(t *testing.T) {
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			if room := float64(52*p.GridPos.W - 88); 7.2*float64(len(p.Title)) > room {
				t.Errorf("%s: %q needs more than %.0f pixels", b.Title, p.Title, room)
			}
		}
	}
}

// The filters and links of a dashboard that a page opened for a model take two lines on a screen of 1280 pixels, of
// which the time picker leaves 822. A filter has its label and 135 pixels for "All", as Grafana 12.2 draws them.
func TestControlsTakeTwoLines(t *testing.T) {
	for _, b := range boards(t) {
		width, lines := 0.0, 1
		put := func(pixels float64) {
			if width += pixels + 8; width-8 > 822 {
				width, lines = pixels+8, lines+1
			}
		}
		for _, v := range b.Templating.List {
			label, room := 7.5*float64(len(v.Label)), 135.0
			if v.Hide == 1 {
				label = -16
			}
			if v.Name == metrics.LabelModel { // a name is longer than All
				room += 7.5 * float64(len("llama-3.1-8b-chat")-len("All"))
			}
			put(label + room)
		}
		for _, l := range b.Links {
			put(35 + 7.5*float64(len(l.Title)))
		}
		if lines > 2 || len(b.Templating.List) < 4 {
			t.Errorf("%s: its %d filters and %d links take %d lines", b.Title, len(b.Templating.List), len(b.Links), lines)
		}
	}
}

// Tables show all their columns on a screen of 1280 pixels: names have 150 pixels, times 135. A missing value leaves a
// cell empty. Otherwise Grafana would explain there why the whole table is empty.
func TestTablesShowEveryColumn(t *testing.T) {
	found := 0
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			if p.Type != "table" {
				continue
			}
			titles, _ := p.Transformations[len(p.Transformations)-1].Options.(map[string]any)["renameByName"].(map[string]any)
			if len(titles) == 0 {
				t.Errorf("%s: %s shows labels as they come", b.Title, p.Title)
			}
			needs := 18.0
			for _, title := range titles {
				found++
				is := p.overrides(t, "byName", title.(string))
				if is["custom.hidden"] == true {
					continue
				}
				width, ok := is["custom.width"].(float64)
				if !ok {
					width = 150
				}
				needs += width
				if is["unit"] == "dateTimeFromNow" && width < 135 {
					t.Errorf("%s: %s cuts off %s", b.Title, p.Title, title)
				}
				if is["noValue"] != "" {
					t.Errorf("%s: %s says %v in a cell of %s without a value", b.Title, p.Title, is["noValue"], title)
				}
			}
			if room := float64(52*p.GridPos.W - 8); needs > room {
				t.Errorf("%s: %s needs %.0f pixels of %.0f", b.Title, p.Title, needs, room)
			}
		}
	}
	if found < 15 {
		t.Errorf("%d columns", found)
	}
}

// Lines and values name the default objectives, whose names are keys, in words, and other objectives under the user's
// names. A model's name is not changed.
func TestObjectivesAreNamedInWords(t *testing.T) {
	found := 0
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			for _, q := range p.Targets {
				if !strings.Contains(q.LegendFormat, "{{slo}}") {
					continue
				}
				found++
				for slo, want := range map[string]string{
					"ttft": "TTFT", "itl": "ITL", "ttft_severe": "severe TTFT", "itl_severe": "severe ITL",
					"availability": "availability", "chat_ttft": "chat_ttft", "ttft_of_chat": "ttft_of_chat",
				} {
					name := func(of string) string {
						return strings.NewReplacer("{{slo}}", of, "{{model_name}}", "ttft",
							"{{instance}}", "itl").Replace(q.LegendFormat)
					}
					if is := p.renamed(t, name(slo)); is != name(want) {
						t.Errorf("%s: %s names a line %q, want %q", b.Title, p.Title, is, name(want))
					}
				}
			}
		}
	}
	if found < 15 {
		t.Errorf("%d queries", found)
	}
}

// renamed returns the name of a line as the panel shows it, without the address of a pod.
func (p panel) renamed(t *testing.T, name string) string {
	t.Helper()
	for _, tr := range p.Transformations {
		if tr.ID == "renameByRegex" {
			o := tr.Options.(map[string]any)
			pattern, err := regexp.Compile(strings.Trim(o["regex"].(string), "/"))
			if err != nil {
				t.Fatal(err)
			}
			name = pattern.ReplaceAllString(name, group.ReplaceAllString(o["renamePattern"].(string), "$${$1}"))
		}
	}
	return name
}

// group matches a group of a match, whose number JavaScript does not need to enclose.
var group = regexp.MustCompile(`\$(\d)`)

// TestStatsNameTheModel checks that a stat about the worst of many models names that model.
func TestStatsNameTheModel(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		for i, model := range []string{"calm", "burning"} {
			l := labels.FromStrings(metrics.LabelNamespace, "prod", metrics.LabelModel, model, metrics.LabelSLO, "ttft")
			emit(with(l, metrics.RecordedBudgetRemaining.Name, metrics.LabelPeriod, "30d"), 0.9-float64(i))
			emit(with(l, metrics.Window(metrics.RecordedBurn, "1h").Name), float64(1+20*i))
		}
	}); err != nil {
		t.Fatal(err)
	}
	b := boards(t)[1]
	for title, want := range map[string]string{
		"Least budget left": "TTFT burning prod : -0.1", "Fastest burn, 1 hour": "TTFT burning prod : 21",
	} {
		p := b.titled(title)
		shown := b.shown(t, sim, p, func(value float64) string { return fmt.Sprintf(": %.3g", value) })
		if len(shown) != 1 || p.renamed(t, shown[0]) != want || p.Options.TextMode != "value_and_name" {
			t.Errorf("%s shows %q as %s, want %q", title, shown, p.Options.TextMode, want)
		}
	}
}

// Several values of a stat have one size, the worst first, and one per objective. Names leave room for values in
// the same line: below a name, a value would overlap the next name. Values to compare with come last, in grey.
func TestStatsShowTheWorstFirst(t *testing.T) {
	several := 0
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			if p.Type != "stat" || !strings.Contains(p.Targets[0].LegendFormat, "{{") || p.Options.TextMode == "name" ||
				strings.Contains(p.Targets[0].Expr, "topk(1, ") || strings.Contains(p.Targets[0].Expr, "bottomk(1, ") { // one value
				continue
			}
			several++
			size := p.Options.Text // of Inter, whose letters are about half as wide as high
			if needs := 0.55*size.TitleSize*float64(len("severe TTFT")) + 8 + 0.5*size.ValueSize*float64(len("12.6 hours")); needs > float64(
				52*p.GridPos.W-8-32) {
				t.Errorf("%s: %s breaks a line of %.0f pixels", b.Title, p.Title, needs)
			}
			low := p.FieldConfig.Defaults.Thresholds.Steps[0].Color == "#D55E00"
			for i, q := range p.Targets {
				colour, _ := p.overrides(t, "byFrameRefID", q.RefID)["color"].(map[string]any)
				if i > 0 && i == len(p.Targets)-1 && colour["fixedColor"] == "#8C8C8C" {
					if needs := 0.55*size.TitleSize*float64(len(q.LegendFormat)) + 8 + 0.5*size.ValueSize*float64(len("3.33%")); needs > float64(
						52*p.GridPos.W-8-32) || strings.Contains(q.LegendFormat, "{{") {
						t.Errorf("%s: %s breaks a line of %.0f pixels: %s", b.Title, p.Title, needs, q.LegendFormat)
					}
					continue
				}
				if strings.HasPrefix(q.Expr, "sort(") != low || !strings.HasPrefix(q.Expr, "sort") ||
					q.LegendFormat != "{{slo}}" || p.Options.TextMode != "value_and_name" ||
					p.Options.Orientation != "horizontal" || p.Options.Text.ValueSize == 0 {
					t.Errorf("%s: %s: %s, %s, %+v", b.Title, p.Title, q.Expr, q.LegendFormat, p.Options)
				}
			}
		}
	}
	if several < 3 {
		t.Errorf("%d stats with several values", several)
	}
}

// A stat without a value is neither bad nor good: Grafana draws it in the colour of the lowest values, unless no
// value has a colour of its own.
func TestNothingIsNotBad(t *testing.T) {
	found := 0
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			if p.Type != "stat" {
				continue
			}
			found++
			said := false
			for _, m := range p.FieldConfig.Defaults.Mappings {
				none := m.of(t, "null")
				said = said || none.Color == "#8C8C8C" && none.Text == p.FieldConfig.Defaults.NoValue
			}
			if !said {
				t.Errorf("%s: %s draws %q in %s", b.Title, p.Title, p.FieldConfig.Defaults.NoValue, p.FieldConfig.Defaults.Thresholds.Steps[0].Color)
			}
		}
	}
	if found < 6 {
		t.Errorf("%d stats", found)
	}
}

var all = flag.Bool("all", false, "play every incident")

var largeFleet = flag.Bool("large", false, "50 models of 8 replicas on 100 nodes in TestFleetsFitIntoPanels")

// A burn rate has the colour of its own objective's limit, not of a month's limit: over a week, a lower rate pages.
func TestBurnsAreColouredByTheirOwnLine(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		for _, o := range []struct {
			slo        string
			burn, line float64
		}{{"calm", 0.5, 6}, {"burning", 5, 6}, {"week", 5, 1.4}, {"month", 7, 6}, {"half", 7, 20}} {
			l := labels.FromStrings("model_name", "llama", "slo", o.slo)
			emit(with(l, metrics.Window(metrics.RecordedBurn, "5m").Name), o.burn)
			emit(with(l, metrics.RecordedBurnThreshold.Name, "long", "6h", "severity", "page"), o.line)
		}
	}); err != nil {
		t.Fatal(err)
	}
	b := boards(t)[0]
	p := b.titled("Burn rate now")
	var shown []string
	for _, q := range p.Targets {
		v, err := sim.Query(b.substitute(t, q.Expr), rulesim.Epoch)
		if err != nil {
			t.Fatal(err)
		}
		colour, _ := p.overrides(t, "byFrameRefID", q.RefID)["color"].(map[string]any)
		for _, s := range v {
			shown = append(shown, fmt.Sprint(s.Metric.Get("slo"), " ", colour["fixedColor"]))
		}
	}
	if want := []string{"month #D55E00", "week #D55E00", "half #E69F00", "burning #E69F00", "calm #0072B2"}; !slices.Equal(shown, want) {
		t.Errorf("shown: %q, want %q", shown, want)
	}
}

// In a large fleet a panel has no more lines than a person can distinguish, at any time of its range, and names the
// lines that it leaves out.
func TestFleetsFitIntoPanels(t *testing.T) {
	const window = 20 * time.Minute
	models, replicas := 24, 2 // more than 20 of each: models, replicas, GPUs
	if *largeFleet {
		models, replicas = 50, 8
	}
	r := newReader()
	for _, b := range boards(t) {
		b.each(func(_ panel, q target) {
			for _, name := range names(t, b.substitute(t, q.Expr)) {
				r.families[promql.Lookup(name)] = true
			}
		})
	}
	sim := fleetOf(t, models, replicas, window, func(f *metrics.Family) bool { return r.families[f] })
	end := rulesim.Epoch.Add(window)
	full := 0
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			lines, at := 0, map[int64]int{}
			for _, q := range p.Targets {
				if p.Type != "timeseries" || p.overrides(t, "byFrameRefID", q.RefID)["custom.hideFrom"] != nil { // a limit
					continue
				}
				m, _, err := sim.Range(b.substituteOver(t, q.Expr, window/2, time.Minute), end.Add(-window/2), end, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range m {
					for _, point := range l.Floats {
						at[point.T]++
						lines = max(lines, at[point.T])
					}
				}
			}
			if lines > 20 || lines > 10 && !strings.Contains(p.Description, "are drawn. Filter to see the rest.") {
				t.Errorf("%s: %s has %d lines: %s", b.Title, p.Title, lines, p.Description)
			}
			if lines > 15 {
				full++
			}
		}
	}
	if full < 15 {
		t.Errorf("only %d panels are full: the fleet is too small", full)
	}
}

// Marks are moments: a mark that lasts would lie over the plots as a block.
func TestMarksAreThin(t *testing.T) {
	for _, b := range boards(t) {
		for _, a := range b.Annotations.List[1:] {
			if !strings.Contains(a.Expr, "unless") || !strings.Contains(a.Expr, "offset $__rate_interval") || !a.Hide {
				t.Errorf("%s: %s lasts, or takes a switch: %s", b.Title, a.Name, a.Expr)
			}
		}
	}
}

// TestObjectivesAreCounted checks that the number of objectives with budget left covers all objectives. If only a
// part of their period is recorded, the panel names that part, because a bad share above the allowed one may stand
// beside it.
func TestObjectivesAreCounted(t *testing.T) {
	const day = 24 * 3600
	b := boards(t)[1]
	i := slices.IndexFunc(b.flat(), func(p panel) bool { return p.Title == "Objectives with budget left" })
	if i < 0 {
		t.Fatal("no panel counts objectives")
	}
	p := b.flat()[i]
	for _, c := range []struct {
		recorded, left float64
		want           []string
	}{{day, 0.5, []string{"5 of 5 #0072B2", "3.3% of the period is recorded #0072B2"}}, {30*day - 300, -0.5, []string{"4 of 5 #D55E00"}}} {
		sim, err := rulesim.New()
		if err != nil {
			t.Fatal(err)
		}
		defer sim.Close()
		if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
			for i, left := range []float64{1, 0.9, 0.3, 0, c.left} {
				l := labels.FromStrings(metrics.LabelModel, "llama", metrics.LabelSLO, fmt.Sprint("slo-", i))
				emit(with(l, metrics.RecordedBudgetRemaining.Name, metrics.LabelPeriod, "30d"), left)
				emit(with(l, metrics.RecordedHistory.Name, metrics.LabelPeriod, "30d"), c.recorded+float64(i))
				emit(with(l, metrics.RecordedPeriod.Name), 30*day)
			}
		}); err != nil {
			t.Fatal(err)
		}
		shown := b.shown(t, sim, p, func(value float64) (colour string) {
			for _, step := range p.FieldConfig.Defaults.Thresholds.Steps {
				if step.Value == nil || value >= *step.Value {
					colour = " " + step.Color
				}
			}
			return colour
		})
		if !slices.Equal(shown, c.want) || p.Options.TextMode != "name" || p.overrides(t, "byFrameRefID", "A")["color"] != nil {
			t.Errorf("shown as %s: %q, want %q", p.Options.TextMode, shown, c.want)
		}
	}
}

// TestBudgetLeftSaysWhatIsRecorded checks that the recorded part of a period stands below the budgets that are left,
// unless it is the whole period: a larger share of a part may be bad than the objective allows.
func TestBudgetLeftSaysWhatIsRecorded(t *testing.T) {
	const day = 24 * 3600
	b := boards(t)[0]
	p := b.titled("Budget left")
	for _, c := range []struct {
		days []float64 // recorded of each budget
		want []string
	}{
		{[]float64{3, 1.5, 30}, []string{"availability: -0.2", "ttft: 0.5", "itl: 0.9", "period recorded: 0.05"}},
		{[]float64{30, 30, 0.04}, []string{"availability: -0.2", "ttft: 0.5", "itl: 0.9", "period recorded: 0.001"}}, // 0.1%, and not 0.133%
		{[]float64{30, 30, 30}, []string{"availability: -0.2", "ttft: 0.5", "itl: 0.9"}},
		{nil, []string{"availability: -0.2", "ttft: 0.5", "itl: 0.9"}},
	} {
		sim, err := rulesim.New()
		if err != nil {
			t.Fatal(err)
		}
		defer sim.Close()
		if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
			for i, o := range []struct{ model, slo string }{{"llama", "ttft"}, {"qwen", "ttft"}, {"llama", "itl"}, {"llama", "availability"}} {
				l := labels.FromStrings(metrics.LabelModel, o.model, metrics.LabelSLO, o.slo)
				emit(with(l, metrics.RecordedBudgetRemaining.Name, metrics.LabelPeriod, "30d"), []float64{1, 0.5, 0.9, -0.2}[i])
				if i < len(c.days) {
					emit(with(l, metrics.RecordedHistory.Name, metrics.LabelPeriod, "30d"), c.days[i]*day)
				}
				emit(with(l, metrics.RecordedPeriod.Name), 30*day)
			}
		}); err != nil {
			t.Fatal(err)
		}
		shown := b.shown(t, sim, p, func(value float64) string { return fmt.Sprintf(": %g", value) })
		if !slices.Equal(shown, c.want) {
			t.Errorf("%q, want %q", shown, c.want)
		}
	}
}

// shown returns the names of a panel's lines, each with the text of its value.
func (b board) shown(t *testing.T, sim *rulesim.Sim, p panel, of func(value float64) string) (all []string) {
	t.Helper()
	for _, q := range p.Targets {
		v, err := sim.Query(b.substitute(t, q.Expr), rulesim.Epoch)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range v {
			all = append(all, regexp.MustCompile(`{{(\w+)}}`).ReplaceAllStringFunc(q.LegendFormat,
				func(l string) string { return s.Metric.Get(strings.Trim(l, "{}")) })+of(s.F))
		}
	}
	return all
}

// TestConstantsAreLimits checks that constants stay out of legends, which begin with the largest value: a constant
// would hide a fall.
func TestConstantsAreLimits(t *testing.T) {
	b := boards(t)[slices.IndexFunc(boards(t), func(b board) bool { return b.UID == string(rules.GPUDashboard) })]
	sim := fleetOf(t, 1, 8, 10*time.Minute, func(f *metrics.Family) bool {
		return slices.Contains([]*metrics.Family{
			metrics.GPUMemoryUsed, metrics.GPUMemoryReserved, metrics.GPUMemoryTotal,
			metrics.GPUMemoryBandwidthPeak, metrics.GPUMemoryBandwidthUtilization, metrics.GPUClock,
		}, f)
	})
	for title, constants := range map[string]string{
		"Device memory":                 metrics.GPUMemoryTotal.Name,
		"Memory bandwidth against peak": metrics.GPUMemoryBandwidthPeak.Name, "Clocks": `domain="memory"`,
	} {
		p := b.titled(title)
		lines, limits := 0, 0
		for _, q := range p.Targets {
			v, err := sim.Query(b.substitute(t, q.Expr), rulesim.Epoch.Add(10*time.Minute))
			if err != nil || len(v) == 0 {
				t.Fatalf("%s: %d lines of %s: %v", title, len(v), q.Expr, err)
			}
			hide, _ := p.overrides(t, "byFrameRefID", q.RefID)["custom.hideFrom"].(map[string]any)
			if hide["legend"] == true {
				limits += len(v)
			} else {
				lines += len(v)
			}
			alone := !slices.ContainsFunc(names(t, b.substitute(t, q.Expr)), func(n string) bool {
				return n != constants &&
					n != metrics.GPUClock.Name
			})
			if has := strings.Contains(q.Expr, constants) && alone; has != (hide["legend"] == true) {
				t.Errorf("%s: %s is a constant: %t, hidden in the legend: %v", title, q.Expr, has, hide["legend"])
			}
		}
		if lines < 8 || limits < 1 || limits > 2 {
			t.Errorf("%s: %d lines and %d limits for 8 GPUs of 2 nodes", title, lines, limits)
		}
	}
	clocks := b.titled("Clocks")
	if clocks.Options.Legend.SortDesc || !strings.HasPrefix(clocks.Targets[0].Expr, "bottomk(") {
		t.Errorf("the clock that fell is not the first line: %s", clocks.Targets[0].Expr)
	}
}

// TestLegendsBeginWithWhatIsAsked checks that the first line of a legend answers the question in the title, not about a
// much larger value.
func TestLegendsBeginWithWhatIsAsked(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	gpu := func(n string) labels.Labels {
		return labels.FromStrings(metrics.LabelGPU, n, metrics.LabelGPUUUID, "GPU-"+n, metrics.LabelInstance, "node-1")
	}
	model := labels.FromStrings(metrics.LabelModel, "llama")
	tier := with(model, metrics.KVTierTransferTokens.Name, metrics.LabelTier, "host", metrics.LabelOperation, string(metrics.Store))
	end := rulesim.Epoch.Add(10 * time.Minute)
	for at := rulesim.Epoch; !at.After(end); at = at.Add(time.Minute) {
		if err := sim.Append(at, func(emit rulesim.Emit) {
			now := at.Sub(rulesim.Epoch).Seconds()
			for _, n := range []string{"0", "1"} {
				emit(with(gpu(n), metrics.GPUPCIeLinkWidth.Name, metrics.LabelState, "max"), 16)
				emit(with(gpu(n), metrics.GPUPCIeLinkWidth.Name, metrics.LabelState, "current"), map[string]float64{"0": 16, "1": 8}[n])
				for _, state := range []string{"max", "current"} {
					emit(with(gpu(n), metrics.GPUPCIeLinkGeneration.Name, metrics.LabelState, state), 5)
				}
			}
			emit(tier, 10_000*now)
			emit(with(tier, metrics.KVTierUsage.Name), 1) // as always: a tier is a cache
			emit(with(tier, metrics.KVTierPinned.Name), 0.1)
			emit(with(model, metrics.RecordedEventRate.Name, metrics.LabelSLO, "ttft"), 10)
			emit(with(model, metrics.RecordedBadEventRate.Name, metrics.LabelSLO, "ttft"), 1)
			emit(with(model, metrics.KVTransferFailures.Name, metrics.LabelServer, "10.0.0.1:8000"), 2*now)
			emit(with(model, metrics.RecordedGoodTokens.Name), 100)
			emit(with(model, metrics.RecordedGenerationTokens.Name), 4000)
			emit(with(model, metrics.RecordedReplicas.Name), 2)
			emit(with(model, metrics.RecordedModelGPUs.Name), 16)
		}); err != nil {
			t.Fatal(err)
		}
	}
	for title, want := range map[string]string{
		"PCIe lanes and generation": "gpu {{gpu}} lanes {{instance}} 1", "KV moves failed": "failed {{pod}} {{server}} {{instance}} ",
		"Goodput":           "good, at least {{model_name}} {{namespace}} {{cluster}} ",
		"KV tiers":          "pinned {{tier}} {{model_name}} {{namespace}} {{cluster}} ",
		"Events":            "missed {{slo}} {{model_name}} {{namespace}} {{cluster}} {{role}} ",
		"Replicas and GPUs": "replicas {{model_name}} {{namespace}} {{cluster}} ",
	} {
		for _, b := range boards(t) {
			for _, p := range b.flat() {
				if p.Title != title {
					continue
				}
				first, least := "", math.Inf(1)
				for _, q := range p.Targets {
					v, err := sim.Query(b.substitute(t, q.Expr), end)
					if err != nil {
						t.Fatal(err)
					}
					for _, s := range v {
						if p.Options.Legend.SortDesc {
							s.F = -s.F
						}
						if p.Options.Legend.SortBy == "" && first != "" {
							continue // the legend has the order of the queries
						}
						if s.F < least {
							first, least = q.LegendFormat+" "+s.Metric.Get(metrics.LabelGPU), s.F
						}
					}
				}
				if first != want {
					t.Errorf("%s: %s begins with %q, want %q", b.Title, p.Title, first, want)
				}
			}
		}
	}
}

// waits matches the time for which a client waits, for a first token or a whole answer, which may take minutes.
var waits = regexp.MustCompile(`(time_to_first_token|request_duration)_seconds`)

// TestValuesAreReadable checks that burn rates are multiples, that a wait above a minute stays in seconds, as
// promises are, that a time fits into a stat, and that the price of tokens is per million, as people know it.
func TestValuesAreReadable(t *testing.T) {
	counts := map[string]int{}
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			if rate := p.Options.CellValues.Unit == "count:/s"; rate != (p.Type == "heatmap") {
				t.Errorf("%s: the scale of %s has the unit %q", b.Title, p.Title, p.Options.CellValues.Unit)
			}
			f := p.FieldConfig.Defaults
			if strings.Contains(p.Title, "Cost of ") {
				counts["cost"]++
				if !strings.HasSuffix(p.Title, " 1,000,000 tokens") {
					t.Errorf("%s: %s", b.Title, p.Title)
				}
			}
			if f.Unit == "dtdurations" { // 12 hours, 56 minutes: a row of a stat has room for 12.9 hours
				t.Errorf("%s: %s writes times in two words", b.Title, p.Title)
			}
			if words, ok := strings.CutPrefix(f.Unit, "suffix:"); ok && strings.HasPrefix(words, " ") {
				t.Errorf("%s: %s has two spaces before its unit: Grafana writes one", b.Title, p.Title)
			}
			if p.Type == "table" || p.Type == "text" {
				continue
			}
			for _, q := range p.Targets {
				switch {
				case strings.Contains(q.Expr, metrics.RecordedBurn.Name) && !strings.Contains(q.Expr, metrics.RecordedBurnThreshold.Name+"{"):
					counts["burn"]++
					if f.Unit != "suffix:x" {
						t.Errorf("%s: %s has the unit %s", b.Title, p.Title, f.Unit)
					}
				case waits.MatchString(q.Expr) && f.Unit != "percentunit":
					counts["wait"]++
					if f.Unit != "suffix:s" {
						t.Errorf("%s: %s has the unit %s", b.Title, p.Title, f.Unit)
					}
				}
			}
		}
	}
	if counts["burn"] < 6 || counts["wait"] < 9 || counts["cost"] < 1 {
		t.Errorf("found %v", counts)
	}
	b := boards(t)[4]
	p := b.flat()[slices.IndexFunc(b.flat(), func(p panel) bool { return strings.HasPrefix(p.Title, "Cost of ") })]
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		of := labels.FromStrings(metrics.LabelModel, "llama")
		emit(with(of, metrics.RecordedGenerationTokens.Name), 2000)
		emit(with(of, metrics.RecordedGoodTokens.Name), 1600)
		for i, phase := range []string{"", "prompt", "generation"} {
			for j, basis := range []string{"allocation", "usage"} {
				emit(labels.NewBuilder(with(of, metrics.RecordedCostPerMillion.Name)).Set(metrics.LabelPhase, phase).Set(metrics.LabelCostBasis,
					basis).Labels(), float64(1+2*i+j))
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{5, 5 * 2000. / 1600} { // of all generated tokens, and of those in time
		v, err := sim.Query(b.substitute(t, p.Targets[i].Expr), rulesim.Epoch)
		if err != nil || len(v) != 1 || math.Abs(v[0].F-want) > 1e-9 {
			t.Errorf("%s, line %d: %v, want %g (%v)", p.Title, i, v, want, err)
		}
	}
}

// Firing alerts are sorted by severity, under any name, pages first, and eight alerts are visible: a row is 36 px
// high, and so is the heading.
func TestPagesAreTheFirstAlerts(t *testing.T) {
	for _, style := range []rules.Style{{}, {
		Severities: map[slo.Severity]string{slo.Page: "p1", slo.Ticket: "a-ticket"},
		Labels:     map[string]string{metrics.LabelSeverity: "prio"},
	}} {
		var b board
		if err := json.Unmarshal(render(t, dashboards.All(nil)[0], style), &b); err != nil {
			t.Fatal(err)
		}
		sim, err := rulesim.New()
		if err != nil {
			t.Fatal(err)
		}
		defer sim.Close()
		full := style.WithDefaults()
		of := map[string]slo.Severity{"LLMFirst": slo.Page, "LLMSecond": slo.Ticket, "LLMThird": slo.Info}
		if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
			for name, severity := range of {
				l := labels.FromStrings("alertname", name, full.Label(metrics.LabelSeverity), full.Severities[severity], metrics.LabelBranch,
					"queueing", metrics.LabelModel, "llama")
				emit(with(l, metrics.Alerts.Name, "alertstate", "firing"), 1)
				emit(with(l, metrics.AlertsForState.Name), float64(rulesim.Epoch.Unix()))
			}
		}); err != nil {
			t.Fatal(err)
		}
		p := b.titled("Firing alerts")
		v, err := sim.Query(b.substitute(t, p.Targets[0].Expr), rulesim.Epoch)
		if err != nil || len(v) != 3 {
			t.Fatal(v, err)
		}
		sort, _ := p.Transformations[0].Options.(map[string]any)["sort"].([]any)
		if p.Transformations[0].ID != "sortBy" || len(sort) != 1 {
			t.Fatalf("the alerts come in no order: %v", p.Transformations)
		}
		field := sort[0].(map[string]any)["field"].(string)
		slices.SortFunc(v, func(a, b engine.Sample) int { return strings.Compare(a.Metric.Get(field), b.Metric.Get(field)) })
		var names []string
		for _, row := range v {
			names = append(names, row.Metric.Get("alertname"))
		}
		if want := []string{"LLMFirst", "LLMSecond", "LLMThird"}; !slices.Equal(names, want) {
			t.Errorf("by %s: %v", field, names)
		}
		organized := p.Transformations[len(p.Transformations)-1].Options.(map[string]any)
		if organized["excludeByName"].(map[string]any)[field] != true {
			t.Errorf("%s is a column", field)
		}
	}
}

// TestAlertsAreSeen checks how many alerts a reader sees: eight with short names, and five with names that take two lines.
func TestAlertsAreSeen(t *testing.T) {
	severities := rules.Style{}.WithDefaults().Severities
	for model, want := range map[string]int{"llama": 8, "llama-3.1-8b-chat": 5} {
		sim, err := rulesim.New()
		if err != nil {
			t.Fatal(err)
		}
		defer sim.Close()
		if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
			for _, a := range rules.Alerts(rules.Groups(rules.Options{}))[:12] {
				for i := range 3 {
					l := labels.FromStrings("alertname", a.Name, metrics.LabelSeverity, severities[a.Severity], metrics.LabelBranch, string(a.Branch),
						metrics.LabelModel, model, metrics.LabelPod, fmt.Sprintf("%s-%d", model, i))
					emit(with(l, metrics.Alerts.Name, "alertstate", "firing"), 1)
					emit(with(l, metrics.AlertsForState.Name), float64(rulesim.Epoch.Unix()))
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		s, b := screen{sim, rulesim.Epoch}, boards(t)[0]
		if rows := s.rows(t, b, b.titled("Firing alerts")); len(rows) < want {
			t.Errorf("%d alerts of %s are seen, want %d: %v", len(rows), model, want, rows)
		}
		s.whole(t, b, b.titled("Firing alerts"))
	}
}

// TestTheWorstGPUsAreFirst checks that, of more conditions and XIDs than are visible, the reader sees the worst, and their
// names in words.
func TestTheWorstGPUsAreFirst(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	severities := []metrics.XIDSeverity{metrics.XIDInfo, metrics.XIDApp, metrics.XIDTicket, metrics.XIDPage}
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		for i := range 16 {
			verdict := metrics.Degraded
			if i > 11 {
				verdict = metrics.Verdict(i - 11) // on the last nodes
			}
			l := labels.FromStrings(metrics.LabelInstance, fmt.Sprintf("node-%02d", i), metrics.LabelGPU, "0", metrics.LabelGPUUUID, fmt.Sprint(i))
			emit(with(l, metrics.GPUHealthCondition.Name, metrics.LabelCondition, "row_remap_pending", metrics.LabelVerdict, verdict.String()), 1)
			xid := fmt.Sprint(10 + i)
			emit(with(l, metrics.GPUXIDErrors.Name, metrics.LabelXID, xid), 1)
			emit(labels.FromStrings("__name__", metrics.GPUXIDInfo.Name, metrics.LabelXID, xid, metrics.LabelSeverity,
				string(severities[max(0, i-12)])), 1)
		}
	}); err != nil {
		t.Fatal(err)
	}
	b := boards(t)[slices.IndexFunc(boards(t), func(b board) bool { return b.UID == string(rules.GPUDashboard) })]
	for title, of := range map[string]struct {
		column string
		want   []string
	}{
		"Needs a person":     {"verdict", []string{"replace", "reset", "drain"}},
		"What the XIDs mean": {"severity", []string{"page", "ticket", "app"}},
	} {
		var said []string
		for _, row := range (screen{sim, rulesim.Epoch}).rows(t, b, b.titled(title)) {
			if said = append(said, row[of.column]); strings.Contains(row["condition"], "_") {
				t.Errorf("%s: %v", title, row)
			}
		}
		if len(said) < 3 || len(said) == 16 || !slices.Equal(said[:3], of.want) {
			t.Errorf("%s begins with %q, want %q", title, said, of.want)
		}
	}
}

// TestAlertsSayWhere checks that each firing alert names its model, replica, GPU or node, and at how many more places
// it fires. If an alert is the evidence about a model, its place is also named in words, not as a list of labels.
func TestAlertsSayWhere(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	const host, card = "gpu-node-1:9844", "GPU-3f2a91bc-0000-4000-8000-00000000000"
	gpu := func(n string) []string {
		return []string{metrics.LabelInstance, host, metrics.LabelGPU, n, metrics.LabelGPUUUID, card + n}
	}
	replica := []string{
		metrics.LabelNamespace, "prod", metrics.LabelPod, "chat-0", metrics.LabelServer, "10.0.0.1:8000", metrics.LabelInstance, host,
	}
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		fires := func(name string, branch rules.Branch, more ...string) {
			l := labels.FromStrings(append(more, "alertname", name, metrics.LabelBranch, string(branch), metrics.LabelSeverity, "warning")...)
			emit(with(l, metrics.Alerts.Name, "alertstate", "firing"), 1)
			emit(with(l, metrics.AlertsForState.Name), float64(rulesim.Epoch.Unix()))
		}
		fires("LLMGPULinkFault", rules.Hardware, gpu("1")...)
		for _, n := range []string{"0", "1", "2"} {
			fires("LLMGPUSlowed", rules.Hardware, append(gpu(n), metrics.LabelReason, "thermal_slowdown")...)
			emit(labels.FromStrings("__name__", metrics.RecordedServedGPU.Name, metrics.LabelModel, "slowed", metrics.LabelGPUUUID, card+n), 1)
		}
		fires("LLMGPUSlowed", rules.Hardware, gpu("3")...) // which serves another model
		burns(emit, labels.FromStrings(metrics.LabelModel, "slowed"), "itl", 3)
		fires("LLMEngineStalled", rules.Engine, append(replica, metrics.LabelModel, "chat")...)
		for _, pod := range []string{"down-0", "down-1"} {
			fires("LLMEngineDown", rules.Engine, append(replica[:2:2], append([]string{metrics.LabelPod, pod}, replica[4:]...)...)...)
			fires("LLMReplicaSkew", rules.Routing, metrics.LabelModel, "uneven", metrics.LabelPod, pod)
		}
		fires("LLMModelLeftGPU", rules.Memory, metrics.LabelModel, "lone", metrics.LabelServer, "127.0.0.1:8000", metrics.LabelInstance, host)
		fires("LLMKVTransferFailures", rules.Memory, metrics.LabelModel, "moved")
		fires("LLMExporterDown", rules.Exporter, metrics.LabelInstance, "gpu-node-2:9844")
		fires("LLMExporterFleetDown", rules.Exporter)
	}); err != nil {
		t.Fatal(err)
	}
	s, b := screen{sim, rulesim.Epoch}, boards(t)[0]
	table := func(title, key, column string) map[string]string {
		said := map[string]string{}
		p := b.titled(title)
		p.GridPos.H = 20 // all rows are visible
		for _, row := range s.rows(t, b, p) {
			said[row[key]] = row[column]
		}
		return said
	}
	if said, want := table("Firing alerts", "alert", "where"), map[string]string{
		"LLMGPUSlowed": "GPU 0 on " + host + " and 3 more", "LLMEngineStalled": "chat: chat-0", "LLMModelLeftGPU": "lone: 127.0.0.1:8000",
		"LLMEngineDown": "down-0 and 1 more", "LLMKVTransferFailures": "moved", "LLMExporterDown": "gpu-node-2:9844", "LLMExporterFleetDown": "",
		"LLMGPULinkFault": "GPU 1 on " + host, "LLMReplicaSkew": "uneven: down-0 and 1 more",
	}; !maps.Equal(said, want) {
		t.Errorf("firing alerts: %q, want %q", said, want)
	}
	if said, want := table("Where to look first", "model", "evidence"), map[string]string{
		"slowed": "LLMGPUSlowed fires for GPU 0 on " + host + " and 2 more", "chat": "LLMEngineStalled fires for chat-0",
		"lone": "LLMModelLeftGPU fires for 127.0.0.1:8000", "moved": "LLMKVTransferFailures fires",
		"uneven": "LLMReplicaSkew fires for down-0 and 1 more",
	}; !maps.Equal(said, want) {
		t.Errorf("evidence: %q, want %q", said, want)
	}
}

// TestAlertsOnEnginesOpenTickets checks what the order of causes assumes: an alert that pages names its model, is about
// the hardware, or has no place.
func TestAlertsOnEnginesOpenTickets(t *testing.T) {
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
		if a.Severity == slo.Page && a.Branch != rules.Hardware && slices.Contains(a.Scope, metrics.LabelServer) &&
			!slices.Contains(a.Scope, metrics.LabelModel) {
			t.Errorf("%s pages for an engine", a.Name)
		}
	}
}

// The first screen of the incident dashboard, 1280 by 800 without scrolling, shows what fires, where to look and
// since when, what burns and how fast, and what changed.
func TestFirstScreen(t *testing.T) {
	const rows = (800 - 150) / 38 // what Grafana's bars and the filters leave, in rows of 30 px and gaps of 8
	b := boards(t)[0]
	for _, title := range []string{"Firing alerts", "Where to look first", "Burn rate now", "Budget left", "Budget gone in", "What changed"} {
		i := slices.IndexFunc(b.flat(), func(p panel) bool { return p.Title == title })
		if i < 0 {
			t.Errorf("no panel %s", title)
			continue
		}
		if g := b.flat()[i].GridPos; g.Y+g.H > rows {
			t.Errorf("%s ends at row %d, below the first %d", title, g.Y+g.H, rows)
		}
	}
	if b.Time.From != "now-1h" {
		t.Errorf("the board opens with %s, in which an incident is two pixels", b.Time.From)
	}
}

// A change has the time of its last beginning, not of the end of its mark five minutes later, because the start of
// the burn stands beside it. The starts of a model's replicas are one row, because several rows would hide the
// change behind them.
func TestChangesHappenWhenTheyBegin(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	mark := func(pod string, minutes ...int) {
		for _, begin := range minutes {
			for minute := begin; minute < begin+5; minute++ {
				if err := sim.Append(rulesim.Epoch.Add(time.Duration(minute)*time.Minute), func(emit rulesim.Emit) {
					emit(with(labels.FromStrings(metrics.LabelModel, strings.Split(pod, "-")[0], metrics.LabelPod, pod), metrics.RecordedStarted.Name), 1)
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	mark("llama-0", 2, 20)
	mark("qwen-0", 10)
	mark("qwen-1", 12)
	mark("qwen-2", 14)
	b := boards(t)[0]
	p := b.titled("What changed")
	v, err := sim.Query(b.substitute(t, p.Targets[0].Expr), rulesim.Epoch.Add(40*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, s := range v {
		rows = append(rows, fmt.Sprint(s.Metric.Get(metrics.LabelAction), " ", s.Metric.Get(metrics.LabelReplica), " ",
			time.UnixMilli(int64(s.F)).Sub(rulesim.Epoch)))
	}
	if want := []string{"started llama-0 20m0s", "3 replicas started qwen 14m0s"}; !slices.Equal(rows, want) {
		t.Errorf("%q, want %q", rows, want)
	}
}

// TestARolloutIsOneChange checks a setting that replicas get one after the other: it is one row of changes and one
// mark, at the first replica's change. A change from before the rules were installed is not shown.
func TestARolloutIsOneChange(t *testing.T) {
	groups := bareGroups()
	file, err := rules.Encode(rules.NewFile(groups[slices.IndexFunc(groups,
		func(g rules.Group) bool { return g.Name == "llm-evidence-1" }):][:1], rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := rulesim.New(file)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	end := rulesim.Epoch.Add(50 * time.Minute)
	if err := sim.Run(rulesim.Epoch, end, time.Minute, func(at time.Time, emit rulesim.Emit) {
		for i := range 4 {
			l := labels.FromStrings(metrics.LabelModel, "llama", metrics.LabelPod, fmt.Sprint("llama-", i), "instance", fmt.Sprint("node-", i/2))
			emit(with(l, metrics.EngineInfo.Name, metrics.LabelVersion, "1"), 1)
			change := func(at time.Duration, setting, old, now string) {
				emit(with(l, metrics.EngineConfigChanged.Name, metrics.LabelSetting, setting, metrics.LabelOld, old, metrics.LabelNew, now),
					float64(rulesim.Epoch.Add(at).Unix()))
			}
			change(-time.Hour, "quantization", "none", "fp8")
			if turn := time.Duration(12+6*i) * time.Minute; at.Sub(rulesim.Epoch) >= turn {
				change(turn, "max_num_seqs", "256", "512")
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	begins := rulesim.Epoch.Add(12 * time.Minute)
	for i, b := range boards(t) {
		for _, a := range b.Annotations.List[1:] {
			if a.Name != "Changes" {
				continue
			}
			m, _, err := sim.Range(b.substitute(t, a.Expr), rulesim.Epoch, end, time.Minute)
			if err != nil || len(m) != 1 || len(m[0].Floats) > 5 || m[0].Floats[0].T != begins.UnixMilli() || m[0].Floats[0].F != 1 ||
				m[0].Metric.Get(metrics.LabelSetting) != "max_num_seqs" {
				t.Errorf("%s: marks %v (%v)", b.Title, m, err)
			}
		}
		if i > 0 {
			continue
		}
		p := b.titled("What changed")
		v, err := sim.Query(b.substitute(t, p.Targets[0].Expr), end)
		if err != nil || len(v) != 1 || int64(v[0].F) != begins.UnixMilli() ||
			v[0].Metric.Get(metrics.LabelAction) != "max_num_seqs from 256 to 512" || v[0].Metric.Get(metrics.LabelReplica) != "llama" {
			t.Errorf("what changed: %v (%v)", v, err)
		}
	}
}

// lookFirst returns the panel "Where to look first", and the answers to its queries.
func lookFirst(t *testing.T, sim *rulesim.Sim, at time.Time) (panel, [][]engine.Sample) {
	t.Helper()
	b := boards(t)[0]
	p := b.titled("Where to look first")
	if err := sim.Eval(at); err != nil {
		t.Fatal(err)
	}
	var answers [][]engine.Sample
	for _, q := range p.Targets {
		v, err := sim.Query(b.substitute(t, q.Expr), at)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, v)
	}
	return p, answers
}

// wording returns the rules that put suspects into words.
func wording(t *testing.T) []byte {
	t.Helper()
	words := []*metrics.Family{metrics.RecordedShown, metrics.RecordedSentence, metrics.RecordedVerdict}
	g := rules.Group{Name: "words", Interval: rules.Interval}
	for _, of := range rules.Groups(rules.Options{}) {
		g.Records = append(g.Records, of.Records...)
	}
	g.Records = slices.DeleteFunc(g.Records, func(r rules.Record) bool { return !slices.Contains(words, r.Name) })
	slices.SortFunc(g.Records, func(a, b rules.Record) int { return slices.Index(words, a.Name) - slices.Index(words, b.Name) })
	file, err := rules.Encode(rules.NewFile([]rules.Group{g}, rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// suspicious makes the series of a clue as the rules record it.
func suspicious(clue string, of labels.Labels) labels.Labels {
	i := slices.IndexFunc(rules.Clues(), func(c rules.Clue) bool { return c.Name == clue })
	c := rules.Clues()[i]
	return with(of, metrics.RecordedSuspect.Name, metrics.LabelBranch, string(c.Branch), metrics.LabelClue, c.Name, metrics.LabelOrder,
		fmt.Sprint(10+i), metrics.LabelRunbook, c.Runbook,
		metrics.LabelUnit, string(c.Unit), metrics.LabelSays, c.Says, metrics.LabelDelays, string(c.Delays))
}

// burns emits the burn of an objective that any suspect explains.
func burns(emit rulesim.Emit, of labels.Labels, slo string, rate float64) {
	emit(with(of, metrics.Window(metrics.RecordedBurn, "5m").Name, metrics.LabelSLO, slo), rate)
	for _, d := range []rules.Delays{
		"", rules.AnyRequest, rules.AnyToken, rules.FirstToken, rules.NextToken, rules.AtGateway,
		rules.Failures,
	} {
		if rate > 1 {
			emit(with(of, metrics.RecordedExplained.Name, metrics.LabelSLO, slo, metrics.LabelDelays, string(d)), 1)
		}
	}
}

// The table of suspects words each clue as a page does, with its names and its value, and shows the start of its
// model's burn. The table accuses no engine while nothing burns.
func TestSuspectsAreSentences(t *testing.T) {
	sim, err := rulesim.New(wording(t))
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	at := rulesim.Epoch.Add(7 * time.Minute)
	place := labels.FromStrings(metrics.LabelServer, "10.0.0.1:8000", metrics.LabelPod, "llama-0", metrics.LabelSetting, "version",
		metrics.LabelOld, "0.16.0", metrics.LabelNew, "0.17.0",
		metrics.LabelInstance, "gpu-node-1",
		metrics.LabelGPU, "3", metrics.LabelGPUUUID, "GPU-3f2a91bc-0000-4000-8000-000000000000", metrics.LabelReason, "hw_slowdown",
		metrics.LabelXID, "79", metrics.LabelTier, "cpu")
	of := func(c rules.Clue) labels.Labels {
		return labels.NewBuilder(place).Set(metrics.LabelModel, "model of "+c.Name).Labels()
	}
	for _, c := range rules.Clues() {
		if err := sim.Append(at, func(emit rulesim.Emit) { emit(suspicious(c.Name, of(c)), 0.39531) }); err != nil {
			t.Fatal(err)
		}
	}
	if _, v := lookFirst(t, sim, at); len(v[0]) > 0 {
		t.Errorf("%d suspects accused while nothing burns: %v", len(v[0]), v[0])
	}
	for _, c := range rules.Clues() {
		if err := sim.Append(at, func(emit rulesim.Emit) {
			burns(emit, labels.FromStrings(metrics.LabelModel, of(c).Get(metrics.LabelModel)), "ttft", 2)
		}); err != nil {
			t.Fatal(err)
		}
	}
	p, v := lookFirst(t, sim, at)
	if len(v) != 2 || len(v[0]) != len(rules.Clues()) || len(v[1]) != len(v[0]) {
		t.Fatalf("%d of %d suspects", len(v[0]), len(rules.Clues()))
	}
	said := map[string]string{}
	for _, row := range v[0] {
		clue := strings.TrimPrefix(row.Metric.Get(metrics.LabelModel), "model of ")
		if said[clue] = row.Metric.Get(metrics.LabelSays); strings.ContainsAny(said[clue], "{}|") || said[clue] == "" {
			t.Errorf("%s: %q", clue, said[clue])
		}
		if row.F != 2 || row.Metric.Get(metrics.LabelSLO) != "ttft" {
			t.Errorf("%s burns %g", row.Metric, row.F)
		}
	}
	for _, row := range v[1] {
		if since := time.UnixMilli(int64(row.F)); !since.Equal(at) {
			t.Errorf("%s since %s", row.Metric, since)
		}
	}
	for clue, want := range map[string]string{
		"gpu_throttled":    "GPU 3 on gpu-node-1 is slowed down 40% of the time (hw slowdown)",
		"version_deployed": "Version 0.17.0 was deployed in the last hour",
		"slow_replica":     "llama-0 alone is slow: first tokens after 395ms", "preemptions": "The KV cache is too full: each request is preempted 0.4 times",
		"gpu_failed": "GPU 3 on gpu-node-1 must leave service (hw slowdown)",
	} {
		if said[clue] != want {
			t.Errorf("%s: %q, want %q", clue, said[clue], want)
		}
	}
	if p.overrides(t, "byName", "since")["unit"] != "dateTimeFromNow" {
		t.Error("since is no time")
	}
}

// TestABurnBeginsAfterTheLastCalm checks that a burn that ended an hour ago is not the beginning of the present burn,
// however long the range.
func TestABurnBeginsAfterTheLastCalm(t *testing.T) {
	sim, err := rulesim.New(wording(t))
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	for minute := range 71 {
		rate := 0.1
		if minute < 5 || minute >= 61 {
			rate = 5
		}
		if err := sim.Append(rulesim.Epoch.Add(time.Duration(minute)*time.Minute), func(emit rulesim.Emit) {
			burns(emit, labels.FromStrings(metrics.LabelModel, "llama"), "ttft", rate)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, v := lookFirst(t, sim, rulesim.Epoch.Add(70*time.Minute)); len(v[1]) != 1 || time.UnixMilli(int64(v[1][0].F)).
		Sub(rulesim.Epoch) != 61*time.Minute {
		t.Errorf("it began at %v", v[1])
	}
}

// TestOnlyWhatBurnsIsAccused checks that the burn of one model proves nothing about the model of that name in
// another namespace or cluster.
func TestOnlyWhatBurnsIsAccused(t *testing.T) {
	sim, err := rulesim.New(wording(t))
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	place := func(cluster, namespace string) labels.Labels {
		return labels.FromStrings(metrics.LabelCluster, cluster, metrics.LabelNamespace, namespace, metrics.LabelModel, "llama")
	}
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		for _, l := range []labels.Labels{place("eu", "prod"), place("eu", "staging"), place("us", "prod")} {
			emit(suspicious("queue_long", l), 3)
		}
		burns(emit, place("eu", "prod"), "ttft", 20)
		burns(emit, place("eu", "staging"), "ttft", 0.2)
	}); err != nil {
		t.Fatal(err)
	}
	p, v := lookFirst(t, sim, rulesim.Epoch)
	if len(v[0]) != 1 || v[0][0].Metric.Get(metrics.LabelCluster) != "eu" || v[0][0].Metric.Get(metrics.LabelNamespace) != "prod" {
		t.Errorf("accused: %v", v[0])
	}
	if p.overrides(t, "byName", "namespace")["noValue"] == nil || !strings.HasPrefix(p.FieldConfig.Defaults.NoValue, "Nothing burns") {
		t.Errorf("no row says its namespace, or nothing is %q", p.FieldConfig.Defaults.NoValue)
	}
}

// TestTheWorstBurnIsTheFirstRow checks that, of 50 models that burn, the fastest has the first of 50 rows, with its
// objective and the suspect that comes first in a diagnosis. A model without any known cause has a row, too.
func TestTheWorstBurnIsTheFirstRow(t *testing.T) {
	name := metrics.Window(metrics.RecordedBurn, "5m").Name
	sim := fleetOf(t, 50, 1, 10*time.Minute, func(f *metrics.Family) bool {
		return strings.HasPrefix(name, f.Name) &&
			f.Owner == metrics.Rules
	}, wording(t))
	at := rulesim.Epoch.Add(11 * time.Minute)
	if err := sim.Append(at, func(emit rulesim.Emit) {
		for m := range 50 {
			l := labels.FromStrings(metrics.LabelCluster, "eu", metrics.LabelNamespace, "prod", metrics.LabelModel, fmt.Sprintf("model-%d", m))
			burns(emit, l, "ttft", 1.5+float64(m%7))
			if m == 12 {
				continue
			}
			emit(suspicious("queue_long", l), 100)
			if m == 37 {
				burns(emit, l, "itl", 34)
				emit(suspicious("drafts_refused", l), 0.25)
				emit(suspicious("batch_grew", l), 7)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	p, v := lookFirst(t, sim, at)
	if len(v[0]) != 50 {
		t.Fatalf("%d rows", len(v[0]))
	}
	first, says := v[0][0], map[string]string{}
	for _, row := range v[0] {
		says[row.Metric.Get(metrics.LabelModel)] = row.Metric.Get(metrics.LabelSays)
	}
	if l := first.Metric; first.F != 34 || l.Get(metrics.LabelModel) != "model-37" || l.Get(metrics.LabelSLO) != "itl" ||
		l.Get(metrics.LabelBranch) != string(rules.Decode) ||
		l.Get(metrics.LabelSays) != "The acceptance ratio of draft tokens is 25% of its usual value" {
		t.Errorf("first of all: %v", first)
	}
	if says["model-11"] != "100 requests wait or are refused, more than run" || says["model-12"] != "Nothing stands out yet" {
		t.Errorf("%q, %q", says["model-11"], says["model-12"])
	}
	if rows := (screen{sim, at}).rows(t, boards(t)[0], p); len(rows) == 0 || rows[0]["model"] != "model-37" {
		t.Errorf("a reader sees %v", rows)
	}
	if p.overrides(t, "byName", "burn")["unit"] != "suffix:x" {
		t.Error("burn has no unit")
	}
}

// TestTextsHoldUnderAFilter checks that no panel claims more than the reader chose: another objective burns and pages.
func TestTextsHoldUnderAFilter(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		of := labels.FromStrings(metrics.LabelModel, "llama", metrics.LabelSLO, "ttft")
		emit(with(of, metrics.Window(metrics.RecordedBurn, "1h").Name), 20)
		emit(with(of, metrics.Window(metrics.RecordedBurn, "5m").Name), 20)
		emit(with(of, metrics.Alerts.Name, "alertname", "LLMErrorBudgetFastBurn", "alertstate", "firing", metrics.LabelBranch, "symptom"), 1)
	}); err != nil {
		t.Fatal(err)
	}
	s, others := screen{sim, rulesim.Epoch}, 0
	for _, b := range boards(t)[:2] {
		b.choose(t, "slo", "itl")
		for _, p := range b.flat() {
			if p.Type == "text" || slices.ContainsFunc(p.Targets, func(q target) bool { return len(s.ask(t, b, q.Expr)) > 0 }) {
				continue
			}
			says := p.FieldConfig.Defaults.NoValue
			if without := trueWithout[says]; without == "" || len(s.ask(t, b, without)) == 0 {
				continue
			}
			if others++; !strings.Contains(says, "this selection") {
				t.Errorf("%s: %s says %q, which is false of other objectives", b.Title, p.Title, says)
			}
		}
	}
	if others < 5 {
		t.Errorf("%d panels are empty although another objective burns", others)
	}
}

// TestAModelThatAnswersNothingIsNoCalm checks that a model with a firing alert has a row even if nothing can burn
// because no request ends.
func TestAModelThatAnswersNothingIsNoCalm(t *testing.T) {
	sim, err := rulesim.New(wording(t))
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	of := labels.FromStrings(metrics.LabelNamespace, "prod", metrics.LabelModel, "llama")
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		emit(suspicious("engine_down", with(of, "x", metrics.LabelPod, "llama-0")), 1)
		emit(with(of, metrics.RecordedExplained.Name, metrics.LabelSLO, "availability"), 1)
		emit(with(of, metrics.Alerts.Name, "alertname", "LLMModelDown", "alertstate", "firing", metrics.LabelBranch, "engine"), 1)
	}); err != nil {
		t.Fatal(err)
	}
	p, v := lookFirst(t, sim, rulesim.Epoch)
	if len(v[0]) != 1 || v[0][0].Metric.Get(metrics.LabelSays) != "llama-0 stopped answering in the last hour" {
		t.Fatalf("rows: %v", v[0])
	}
	raw, _ := json.Marshal(p.overrides(t, "byName", "burn")["mappings"])
	if v[0][0].F != -1 || !strings.Contains(string(raw), `"-1":{"index":0,"text":"no events"}`) {
		t.Errorf("burn %g is written as %s", v[0][0].F, raw)
	}
}

// TestSlowedGPUsAreToldOnce checks that the row of a model names no single GPU if all are slowed down, that its lever then
// takes no replica out, and that no share is above 100%.
func TestSlowedGPUsAreToldOnce(t *testing.T) {
	sim, err := rulesim.New(wording(t))
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		for _, model := range []string{"all", "one"} {
			l := labels.FromStrings(metrics.LabelNamespace, "prod", metrics.LabelModel, model)
			burns(emit, l, "itl", 9)
			emit(suspicious("gpu_throttled", with(l, "x", metrics.LabelGPU, "0", metrics.LabelInstance, "gpu-node-2", metrics.LabelReason,
				"hw_thermal_slowdown")), 1.0034)
			if model == "all" {
				emit(suspicious("gpus_throttled", with(l, "x", metrics.LabelInstance, "gpu-node-1", metrics.LabelReason, "hw_thermal_slowdown")), 4)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	p, v := lookFirst(t, sim, rulesim.Epoch)
	var said []string
	for _, row := range v[0] {
		said = append(said, row.Metric.Get(metrics.LabelModel)+": "+row.Metric.Get(metrics.LabelSays))
	}
	slices.Sort(said)
	for _, row := range (screen{sim, rulesim.Epoch}).rows(t, boards(t)[0], p) {
		if out := strings.Contains(row["lever"], "replica"); row["lever"] == "" || out == (row["model"] == "all") {
			t.Errorf("the lever of %s is %q", row["model"], row["lever"])
		}
	}
	if want := []string{
		"all: All GPUs of the model are slowed down, 4 of them on gpu-node-1 (hw thermal slowdown)",
		"one: GPU 0 on gpu-node-2 is slowed down 100% of the time (hw thermal slowdown)",
	}; !slices.Equal(said, want) {
		t.Errorf("said: %q, want %q", said, want)
	}
}

// TestTwoModelsAreSeen checks that a model with the longest evidence leaves room for a second model on a screen of 1280
// pixels, and that the evidence takes the room of a wider screen.
func TestTwoModelsAreSeen(t *testing.T) {
	for _, longest := range []string{
		"llama-3.1-8b-chat", "HuggingFaceTB/SmolLM2-1.7B-Instruct", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
		"RedHatAI/Meta-Llama-3.1-405B-Instruct-FP8-dynamic", "mistralai/Mixtral-8x22B-Instruct-v0.1",
	} {
		t.Run(longest, func(t *testing.T) { twoModelsAreSeen(t, longest) })
	}
}

func twoModelsAreSeen(t *testing.T, longest string) {
	t.Helper()
	sim, err := rulesim.New(wording(t))
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		for i, model := range []string{longest, "qwen-27b-chat", "third"} {
			l := labels.FromStrings(metrics.LabelNamespace, "prod", metrics.LabelModel, model)
			burns(emit, l, "itl", float64(9-i))
			emit(with(l, metrics.RecordedInfo.Name, metrics.LabelSLO, "itl", metrics.LabelBad, "gaps between tokens exceed 50ms"), 1)
			if i > 0 {
				emit(suspicious("queue_long", l), 100)
				continue
			}
			emit(suspicious("gpus_throttled", with(l, "x", metrics.LabelInstance, "gpu-node-1:9844", metrics.LabelReason,
				"hw_thermal_slowdown")), 4)
		}
	}); err != nil {
		t.Fatal(err)
	}
	p, _ := lookFirst(t, sim, rulesim.Epoch)
	s := screen{sim, rulesim.Epoch}
	if rows := s.rows(t, boards(t)[0], p); len(rows) < 2 {
		t.Errorf("a reader sees %v", rows)
	}
	s.whole(t, boards(t)[0], p)
	if width, fixed := p.overrides(t, "byName", "evidence")["custom.width"]; fixed {
		t.Errorf("the evidence has %v pixels on every screen", width)
	}
}

// The table of suspects names the first action for each piece of evidence, in words that fit a column.
func TestSuspectsHaveLevers(t *testing.T) {
	b := boards(t)[0]
	i := slices.IndexFunc(b.flat(), func(p panel) bool { return p.Title == "Where to look first" })
	raw, err := json.Marshal(b.flat()[i].overrides(t, "byName", "lever")["mappings"])
	if err != nil {
		t.Fatal(err)
	}
	var mappings []struct {
		Options map[string]struct{ Text string }
	}
	if err := json.Unmarshal(raw, &mappings); err != nil {
		t.Fatal(err)
	}
	if len(rules.Clues()) < 15 {
		t.Errorf("%d clues", len(rules.Clues()))
	}
	pages := map[string]string{}
	for _, c := range rules.Clues() {
		pages[c.Runbook] = c.Name
	}
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
		pages[a.Name] = a.Name
	}
	for page, of := range pages {
		// a price is not a lever, nor is the announcement of some; two lines have room for 70 characters
		if text := mappings[0].Options[page].Text; len(text) < 10 || len(text) > 70 || strings.ContainsAny(text, "{`*[") ||
			strings.Contains(text, " are lost") || strings.HasSuffix(text, "in this order") {
			t.Errorf("lever of %s: %q", of, text)
		}
	}
}

// TestOutcomesLookAsTheyAre checks that, wherever requests are drawn by outcome, requests that ended well are green,
// failed requests are not, and each outcome has a colour of its kind.
func TestOutcomesLookAsTheyAre(t *testing.T) {
	kinds := map[string]string{string(metrics.ProbeOK): "#009E73"}
	for _, o := range metrics.ProbeOutcomes[1:] {
		kinds[string(o)] = ""
	}
	for _, o := range []metrics.Outcome{
		metrics.OutcomeStop, metrics.OutcomeLength, metrics.OutcomeRepetition, metrics.OutcomeSuccess,
		metrics.OutcomeAbort,
		metrics.OutcomeInvalid, metrics.OutcomeRejected, metrics.OutcomeError, metrics.OutcomeUnknown,
	} {
		kinds[string(o)] = ""
		if event, bad := slo.Judge(o); event && !bad {
			kinds[string(o)] = "#009E73"
		}
	}
	panels := 0
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			of := false
			for _, q := range p.Targets {
				of = of || strings.HasPrefix(q.LegendFormat, "{{outcome}}")
			}
			if p.Type != "timeseries" || !of {
				continue
			}
			panels++
			for outcome, want := range kinds {
				var colours []any
				for _, o := range p.allOverrides(t) {
					if o.Matcher.ID == "byRegexp" && regexp.MustCompile(strings.Trim(o.Matcher.Options, "/")).MatchString(outcome+" m") {
						colours = append(colours, o.Properties[0].Value.(map[string]any)["fixedColor"])
					}
				}
				if len(colours) != 1 || want != "" && colours[0] != want || want == "" && colours[0] == "#009E73" {
					t.Errorf("%s: %s: %s has the colours %v", b.Title, p.Title, outcome, colours)
				}
			}
		}
	}
	if panels < 2 {
		t.Errorf("%d panels draw outcomes", panels)
	}
}
