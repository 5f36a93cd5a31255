package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
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

const dashboardsIntro = `Six dashboards for Grafana 10 and newer, in the classic schema that Grafana loads from files. An alert opens one of them filtered to
what it is about; from there every other one is a click away with the same time and filters.

![Burn rates, what is left of the budget and for how long, firing alerts, evidence with its lever and runbook, what changed](incident-grafana.png)

The first screen of the incident dashboard in Grafana 10.1, at 1280 by 800 pixels, five minutes after the cooling of a node failed. All six were looked at
there: in this incident, with nothing wrong, and with 45 engines of 12 models; this one also after a bad release and with a KV cache that is too small. No query
failed, and the links of alerts, evidence and lines lead to their runbooks. Grafana 12.2 loaded all six, and that picture was taken, before panels were merged. Nobody has looked at the merged ones there, nor at schema v2.

![Burn rate, firing alerts, TTFT, inter-token latency, queue share and throttling while the cooling of a simulated node fails](incident.svg)

This picture plots the queries of the incident dashboard over what [the drill](drill.md) left in Prometheus' storage; it is no screenshot.
` + "`go test ./dashboards -run Drill/incidents/thermal-throttle -update`" + ` redraws it.

` + "```" + `sh
go run ./jsonnet-free-gen --format prometheus --out observability    # dashboards/ beside the rules, with --label and --runbook-url applied
` + "```" + `

` + "`--dashboards v2`" + ` writes them as resources with schema v2, which only Grafana 13 and newer loads from files. Others are for Perses and for operators ([formats](formats.md)).

Let Grafana load the folder, or import the files of helm/llm-node-exporter/files/dashboards by hand:

` + "```" + `yaml
# /etc/grafana/provisioning/dashboards/llm.yaml
apiVersion: 1
providers:
  - {name: llm, type: file, options: {path: /var/lib/grafana/dashboards/llm}}
` + "```" + `

* They need the [recording rules](../examples/prometheus/rules.yaml): panels over weeks read what is recorded per model.
* Filters match everything until you choose. "All" is ` + "`.*`" + `, which also keeps series without the label: hosts outside Kubernetes have no
  namespace. Recorded series have no node and no runtime: once you choose one, the engine dashboard reads what
  replicas report instead. Goodput and everything about objectives stay those of whole models.
* An empty panel says why it may be empty. It never means zero.
* Of many lines, a panel draws at each moment the 20 largest, or the smallest where low values are bad. The range chooses none of them.
* Blue means well, orange warns, vermilion means bad: a palette for any colour vision.
* Marks across all panels show pages that begin and end, deploys (a version that was not there before), settings that change (once for each setting of a model, however many
  replicas get it) and restarts.
* With two tiers, "Objectives and error budget" works on the global one; the others read what only shards have, unless your queries reach
  raw series (Thanos).
* *Moves in* names incidents of [the drill](drill.md): a test plays them and checks that the panel has data and changes.
* In Mimir or Thanos with several scrape intervals, set the interval of the data source: ` + "`$__rate_interval`" + ` is four times as long.
`

// dashboardsPage lists the panels of all dashboards and the purpose of each.
func dashboardsPage() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Dashboards\n\n" + generated + dashboardsIntro)
	for _, board := range dashboards.All(nil) {
		fmt.Fprintf(&b, "\n## %s\n\n`%s`, opens with the last %s. %s\n", strings.TrimPrefix(board.Title(), "LLM / "), board.UID, strings.TrimPrefix(board.Since, "now-"), board.Description)
		for _, row := range board.Rows {
			fmt.Fprintf(&b, "\n**%s**\n\n", row.Title)
			for _, p := range row.Panels {
				fmt.Fprintf(&b, "* %s: %s%s\n", p.Title, p.About.What, drilled(p.Drill))
			}
		}
	}
	return b.Bytes(), nil
}

// drilled names the incidents of the drill that move a panel, or why none does.
func drilled(d dashboards.Drill) string {
	if d.Moves != nil {
		return " *Moves in " + strings.Join(d.Moves, ", ") + ".*"
	}
	if d.Excuse != "" {
		return " *Not drilled: " + d.Excuse + ".*"
	}
	return ""
}
