package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// schemas maps the values of --dashboards to renderers.
var schemas = map[string]func(installation, dashboards.Board) ([]byte, error){
	classic: func(i installation, b dashboards.Board) ([]byte, error) { return dashboards.Render(b, i.style) },
	"v2":    func(i installation, b dashboards.Board) ([]byte, error) { return dashboards.RenderV2(b, i.style) },
	"grafana-operator": func(i installation, b dashboards.Board) ([]byte, error) {
		return dashboards.RenderGrafanaResource(b, i.style, i.name, i.metaLabels, i.grafanaLabels)
	},
	"perses": func(i installation, b dashboards.Board) ([]byte, error) {
		return dashboards.RenderPerses(b, i.style, i.name)
	},
	"perses-operator": func(i installation, b dashboards.Board) ([]byte, error) {
		return dashboards.RenderPersesResource(b, i.style, i.metaLabels)
	},
}

const classic = "classic"

// dashboards returns one file per dashboard.
func (i installation) dashboards(folder string) []artifact {
	var all []artifact
	render := schemas[cmp.Or(i.schema, classic)]
	for _, b := range dashboards.All(i.options.WindowPairs) {
		all = append(all, artifact{folder + string(b.UID) + ".json", func() ([]byte, error) { return render(i, b) }})
	}
	return all
}

const dashboardsIntro = `Seven dashboards for Grafana 10 and newer have the classic schema, which Grafana loads from files. An alert opens one of them with a filter.
Each dashboard links to the others with the same time range and filters.

![Burn rates, what is left of the budget and for how long, firing alerts, evidence with its lever and runbook, what changed](incident-grafana.png)

The first screen of the incident dashboard of 2026-11-28, six minutes after the cooling of a node failed. Today's tables have fewer columns.

The chart has the dashboards in helm/llm-node-exporter/files/dashboards. To write them with your labels and addresses:

` + "```" + `sh
llm-rules --format prometheus --out observability    # writes observability/dashboards
` + "```" + `

[Other values of ` + "`--dashboards`" +
	`](formats.md) write dashboards for Perses, resources for operators, or schema v2, which only Grafana 13 and newer
loads from files. Let Grafana load the folder:

` + "```" + `yaml
# /etc/grafana/provisioning/dashboards/llm.yaml
apiVersion: 1
providers:
  - {name: llm, type: file, options: {path: /var/lib/grafana/dashboards/llm}}
` + "```" + `

[boards.csv](boards.csv) has the size of each dashboard, and how many samples it reads. [panels.csv](panels.csv) lists what each panel shows, and which incidents of [the drill](drill.md)
move it:

` + "```sh" + `
grep '^Incident,' docs/panels.csv      # the rows and panels of a dashboard
` + "```" + `

* The dashboards need the [recording rules](../examples/prometheus/rules.yaml): panels over weeks read series recorded per model.
* Filters match everything until you choose a value. "All" is ` + "`.*`" +
	`, which also matches series without the label, such as hosts outside Kubernetes.
  Recorded series have no node and no runtime. If you choose a node or runtime, the engine dashboard reads the
  replicas' series; goodput and objectives still cover whole models.
* An empty panel names possible reasons. Empty never means zero.
* Panels that show the present state do not depend on the time range. Marks and timelines show events that fall
  between two points of a long range.
* A panel draws at most 20 lines: at each moment the largest values, or the smallest if low values are bad.
* Blue is good, orange is a warning, vermilion is bad, for any colour vision.
* Parts that only some installations have are on a separate dashboard.
* Marks across all panels show pages, new versions, changed settings and restarts.
* If you have [shards and a global tier](scale.md), "Objectives and error budget" needs only the global tier. The others need the
  series of the shards, unless your queries reach raw series (Thanos).
* In Mimir or Thanos with several scrape intervals, set the interval of the data source: ` + "`$__rate_interval`" + ` is four times as long.

To check them, all dashboards of that day were drawn with the components of Grafana 12.2 (@grafana/ui), and timelines and heatmaps
by code that follows its source. The dashboard of optional parts was drawn during incidents in those parts; the others during the cooling
failure above, after a bad release, without any fault, and on installation day with 45 engines of 12 models. An
earlier version was checked in Grafana 10.1. No Grafana has loaded schema v2.
`

// dashboardsPage describes the purpose of each dashboard. panels.csv lists the panels.
func dashboardsPage() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Dashboards\n\n" + generated + dashboardsIntro)
	for _, board := range dashboards.All(nil) {
		fmt.Fprintf(&b, "\n## %s\n\n`%s` opens with the last %s. %s\n", boardName(board), board.UID, strings.TrimPrefix(board.Since,
			"now-"), board.Description)
	}
	return b.Bytes(), nil
}

// panelsTable lists the panels of all dashboards, what each panel shows, and in which of the drill's incidents the
// panel changes.
func panelsTable() ([]byte, error) {
	rows := [][]string{{"dashboard", "row", "panel", "shows", "moves in", "not drilled because"}}
	for _, board := range dashboards.All(nil) {
		for _, row := range board.Rows {
			for _, p := range row.Panels {
				rows = append(rows, []string{boardName(board), row.Title, p.Title, p.About.What, strings.Join(p.Drill.Moves, " "), p.Drill.Excuse})
			}
		}
	}
	return table(rows)
}

func boardName(b dashboards.Board) string { return strings.TrimPrefix(b.Title(), "LLM / ") }

// size is the cost of a dashboard for a reader and for Prometheus: the number of panels, the height of the open rows in
// units of the grid, the number and total length of all queries, and the samples that the queries read over the initial
// time range.
type size struct{ panels, rows, queries, bytes, samples int }

// aScreen is the number of grid rows on a screen of 1280 by 800 pixels, below Grafana's bars and the filters. A grid
// row has 30 pixels and a gap of 8.
const aScreen = (800 - 150) / 38

// formerly has the sizes at commit afb1b48, before panels were merged, as measured in Grafana 12.2. The engine
// dashboard then still had the optional panels.
var formerly = map[rules.Dashboard]size{
	rules.IncidentDashboard: {39, 97, 40, 27056, 270_022}, rules.SLODashboard: {17, 53, 25, 7711, 52_612},
	rules.EngineDashboard: {43, 74, 75, 53027, 2_868_485}, rules.GPUDashboard: {36, 90, 63, 25250, 3_378_032},
	dashboards.FleetDashboard: {16, 34, 16, 5205, 16_850}, rules.OptionalDashboard: {}, rules.ExporterDashboard: {22, 83, 32, 8882, 267_964},
}

// samples has the number of samples that the current dashboards read for a model of eight replicas.
// TestDrawingReadsWhatTheTableSays counts the samples.
var samples = map[rules.Dashboard]int{
	rules.IncidentDashboard: 48_635, rules.SLODashboard: 10_152, rules.EngineDashboard: 1_554_185, rules.GPUDashboard: 193_564,
	dashboards.FleetDashboard: 7581, rules.OptionalDashboard: 499_624, rules.ExporterDashboard: 12_498,
}

// sizeOf measures a dashboard in the file that Grafana reads.
func sizeOf(board dashboards.Board) (size, error) {
	type panel struct {
		Type    string
		GridPos struct{ Y, H int }
		Targets []struct{ Expr string }
	}
	var read struct {
		Panels []struct {
			panel
			Panels []panel
		}
	}
	content, err := dashboards.Render(board, rules.Style{})
	if err == nil {
		err = json.Unmarshal(content, &read)
	}
	s := size{samples: samples[board.UID]}
	for _, p := range read.Panels {
		s.rows = max(s.rows, p.GridPos.Y+p.GridPos.H)
		for _, p := range append(p.Panels, p.panel) {
			if p.Type == "row" {
				continue
			}
			s.panels++
			for _, q := range p.Targets {
				s.queries, s.bytes = s.queries+1, s.bytes+len(q.Expr)
			}
		}
	}
	return s, err
}

// boardsTable lists the current size of each dashboard, and its size before panels were merged.
func boardsTable() ([]byte, error) {
	rows := [][]string{{"dashboard"}}
	for _, when := range []string{"", " before"} {
		for _, what := range []string{"panels", "screens", "queries", "bytes of PromQL", "samples read"} {
			rows[0] = append(rows[0], what+when)
		}
	}
	for _, b := range dashboards.All(nil) {
		is, err := sizeOf(b)
		if err != nil {
			return nil, err
		}
		row := []string{boardName(b)}
		for _, s := range []size{is, formerly[b.UID]} {
			row = append(row, strconv.Itoa(s.panels), fmt.Sprintf("%.1f", float64(s.rows)/aScreen), strconv.Itoa(s.queries), strconv.Itoa(s.bytes),
				strconv.Itoa(s.samples))
		}
		rows = append(rows, row)
	}
	return table(rows)
}
