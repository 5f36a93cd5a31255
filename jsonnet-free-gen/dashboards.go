package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
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

const dashboardsIntro = `Six dashboards for Grafana 10 and newer, in the classic schema that Grafana loads from files. An alert opens one of them, filtered to
what it is about; each links to the others with the same time and filters.

![Burn rates, what is left of the budget and for how long, firing alerts, evidence with its lever and runbook, what changed](incident-grafana.png)

The first screen of the incident dashboard in Grafana 10.1, five minutes after the cooling of a node failed.

Write them beside the rules, with your labels and the address of your runbooks, or take those of the chart from
helm/llm-node-exporter/files/dashboards:

` + "```" + `sh
go run ./jsonnet-free-gen --format prometheus --out observability    # writes observability/dashboards
` + "```" + `

` + "`--dashboards v2`" + ` writes schema v2, which only Grafana 13 and newer loads from files; other values are for Perses and for operators
([formats](formats.md)). Let Grafana load the folder:

` + "```" + `yaml
# /etc/grafana/provisioning/dashboards/llm.yaml
apiVersion: 1
providers:
  - {name: llm, type: file, options: {path: /var/lib/grafana/dashboards/llm}}
` + "```" + `

[panels.csv](panels.csv) says what each panel shows, and which incidents of [the drill](drill.md) move it:

` + "```sh" + `
grep '^Incident,' docs/panels.csv      # all panels of a dashboard
grep -i 'queue' docs/panels.csv        # by what they show
` + "```" + `

* They need the [recording rules](../examples/prometheus/rules.yaml): panels over weeks read what is recorded per model.
* Filters match everything until you choose. "All" is ` + "`.*`" + `, which also keeps series without the label: hosts outside Kubernetes have no
  namespace. Recorded series have no node and no runtime: once you choose one, the engine dashboard reads what
  replicas report instead. Goodput and everything about objectives stay those of whole models.
* An empty panel says why it may be empty, and no more than its query knows. It never means zero.
* What is said of now is the same over every range. Marks and timelines show what fell between two points of a long range, too.
* Of many lines, a panel draws at each moment the 20 largest, or the smallest where low values are bad. The range chooses none of them.
* Blue means well, orange warns, vermilion means bad: a palette for any colour vision.
* Marks across all panels show pages that begin and end, deploys (a version that was not there before), settings that change (once for a
  model, however many replicas get it) and restarts.
* With two tiers, "Objectives and error budget" works on the global one; the others read what only shards have, unless your queries reach
  raw series (Thanos).
* In Mimir or Thanos with several scrape intervals, set the interval of the data source: ` + "`$__rate_interval`" + ` is four times as long.

All six were looked at in Grafana 10.1: in this incident, with nothing wrong, and with 45 engines of 12 models. Grafana 12.2 loaded all six,
before panels were merged. Nobody has looked at the merged panels there, nor at schema v2.
`

// size is what a dashboard asks of a reader and of Prometheus: its panels, the rows of the grid that are open, the queries of all panels and their bytes.
type size struct{ panels, rows, queries, bytes int }

// formerly holds the sizes before panels were merged.
var formerly = map[rules.Dashboard]size{
	rules.IncidentDashboard: {38, 103, 40, 38737}, rules.SLODashboard: {17, 53, 26, 11637}, rules.EngineDashboard: {44, 74, 77, 87971},
	rules.GPUDashboard: {36, 90, 64, 33907}, dashboards.FleetDashboard: {16, 34, 16, 7992}, rules.ExporterDashboard: {22, 83, 32, 11183},
}

// sizeOf measures the file that Grafana reads.
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
	var s size
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

// screenRows is how many rows of the grid a screen of 1280 by 800 pixels shows.
const screenRows = 17

func writeSizes(b *bytes.Buffer) error {
	b.WriteString("\n| dashboard | panels | screens of 1280 by 800, closed rows closed | queries | kB of PromQL |\n| --- | --- | --- | --- | --- |\n")
	line := func(title string, was, is size) {
		fmt.Fprintf(b, "| %s | %d, was %d | %.1f, was %.1f | %d, was %d | %.1f, was %.1f |\n", title, is.panels, was.panels, float64(is.rows)/screenRows, float64(was.rows)/screenRows,
			is.queries, was.queries, float64(is.bytes)/1000, float64(was.bytes)/1000)
	}
	var was, is size
	for _, board := range dashboards.All(nil) {
		s, err := sizeOf(board)
		if err != nil {
			return err
		}
		f := formerly[board.UID]
		line(strings.TrimPrefix(board.Title(), "LLM / "), f, s)
		was = size{was.panels + f.panels, was.rows + f.rows, was.queries + f.queries, was.bytes + f.bytes}
		is = size{is.panels + s.panels, is.rows + s.rows, is.queries + s.queries, is.bytes + s.bytes}
	}
	line("all", was, is)
	return nil
}

// dashboardsPage says what each dashboard is for. panels.csv has its panels.
func dashboardsPage() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Dashboards\n\n" + generated + dashboardsIntro)
	if err := writeSizes(&b); err != nil {
		return nil, err
	}
	for _, board := range dashboards.All(nil) {
		fmt.Fprintf(&b, "\n## %s\n\n`%s`, opens with the last %s. %s\n\n", boardName(board), board.UID, strings.TrimPrefix(board.Since, "now-"), board.Description)
		for _, row := range board.Rows {
			b.WriteString("* " + row.Title + "\n")
		}
	}
	return b.Bytes(), nil
}

// panelsTable lists the panels of all dashboards, what each shows, and the incidents of the drill that move it.
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
