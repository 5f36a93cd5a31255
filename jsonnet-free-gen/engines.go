package main

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// These quantities are shown in docs/engines.md for every engine and gateway. Objectives, alerts and the first screen
// of the dashboards read these quantities. docs/engines.csv has all quantities.
var (
	shownOfEngines = []*metrics.Family{
		metrics.TimeToFirstToken, metrics.InterTokenLatency, metrics.RequestDuration, metrics.QueueTime,
		metrics.RequestsRunning, metrics.RequestsWaiting, metrics.KVCacheUsage, metrics.PromptTokens, metrics.GenerationTokens, metrics.Requests,
		metrics.Preemptions, metrics.PrefixCacheHitTokens,
	}
	shownOfGateways = []*metrics.Family{
		metrics.TimeToFirstToken, metrics.RequestDuration, metrics.QueueTime, metrics.RequestsRunning, metrics.RequestsWaiting, metrics.Requests,
		metrics.GatewayResponses, metrics.GatewayRetries, metrics.GatewayRejections, metrics.GatewayWorkers,
	}
)

const enginesIntroduction = `The table shows which quantities the newest release of each engine reports: **N** native, **D** derived by exact arithmetic, **A** approximate,
– not reported. Alerts and dashboards need these. [engines.csv](engines.csv) has every quantity of every release with its source or, if it is
missing, the reason:

` + "```sh" + `
grep '^vllm,llm_engine_queue_time_seconds' docs/engines.csv    # one quantity of one engine
grep '^tgi,.*,missing,' docs/engines.csv                       # what an engine does not report, and why
` + "```" + `

The file lists the sources of a quantity in the order in which the exporter tries them. The column ` + "`newest`" +
	` shows whether the newest release has
the source. On a running node, ` + "`llm_engine_metric_source_info`" + ` shows the source in use. ` + "`llm_engine_config_info`" +
	` has the settings of an engine;
[settings.csv](settings.csv) lists where each engine reports them.

`

const gatewaysIntroduction = `
## Gateways

Gateways are servers in front of engines. The exporter reads a gateway only if the configuration or an annotation names it as a target. A gateway
counts the engines' requests a second time, as a client sees them. Its series have ` + "`role=\"gateway\"`" +
	`, and sums over engines exclude them.
For availability, [only the gateway alerts](objectives.md#at-the-gateway), not its engines. A Dynamo frontend has ` +
	"`role=\"frontend\"`" + ` and represents
its workers, which the exporter does not read.

`

func enginesPage() ([]byte, error) {
	dialects := engine.Known()
	first := slices.IndexFunc(dialects, isGateway) // gateways follow all engines
	var b bytes.Buffer
	b.WriteString("# Engines\n\n" + generated + enginesIntroduction)
	newest(&b, dialects[:first], shownOfEngines)
	b.WriteString(gatewaysIntroduction)
	newest(&b, dialects[first:], shownOfGateways)
	b.WriteString("\n## When metrics cannot be read\n\n`llm_engine_up` is 0 and its label `reason` has the cause. The exporter serves no " +
		"other series of that engine, because old numbers would mislead.\n\n" +
		"| reason | meaning | what to do |\n|---|---|---|\n")
	for _, r := range engine.Reasons {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Reason, cell(r.Meaning), cell(r.Remedy))
	}
	return b.Bytes(), nil
}

// newest writes a table of the quantities that the newest releases of the engines with the given dialects report.
func newest(b *bytes.Buffer, dialects []*engine.Dialect, quantities []*metrics.Family) {
	b.WriteString("| |")
	for _, f := range quantities {
		fmt.Fprintf(b, " %s |", strings.ReplaceAll(short(f), "_", " "))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(quantities)) + "\n")
	var none []string
	for _, d := range dialects {
		eras, row, reports := d.Eras(), "", false
		for _, f := range quantities {
			l := letter(d, eras[len(eras)-1], f)
			row += l + "|"
			reports = reports || l != unreported
		}
		if !reports {
			none = append(none, title(d))
			continue
		}
		fmt.Fprintf(b, "| `%s` |%s\n", title(d), row)
	}
	if none != nil {
		fmt.Fprintf(b, "\n%s report other quantities.\n", code(none))
	}
}

// unreported marks a quantity that a release does not report.
const unreported = "–"

// short returns the name of a quantity in a column heading.
func short(f *metrics.Family) string {
	name := strings.TrimPrefix(strings.TrimPrefix(f.Name, "llm_engine_"), "llm_gateway_")
	for _, unit := range []string{"_seconds", "_total", "_ratio"} {
		name = strings.TrimSuffix(name, unit)
	}
	return name
}

// letter returns the initial of the quality of the source that the exporter tries first for a quantity.
func letter(d *engine.Dialect, e engine.Era, f *metrics.Family) string {
	switch rows := e.Rows[f]; {
	case len(rows) > 0:
		return strings.ToUpper(quality(rows[0])[:1])
	case d.Endpoints[f] != "":
		return "E"
	}
	return unreported
}

func isGateway(d *engine.Dialect) bool { return d.Role == metrics.GatewayRole }

// enginesTable lists, for each engine and quantity, every source in the order in which the exporter tries them, or the
// reason why there is none.
func enginesTable() ([]byte, error) {
	rows := [][]string{{"engine", "quantity", "labels", "quality", "releases", "newest", "source", "why, and when"}}
	for _, d := range engine.Known() {
		eras := d.Eras()
		last := eras[len(eras)-1]
		add := func(f *metrics.Family, labels, quality, releases string, newest bool, source, why string) {
			rows = append(rows, []string{title(d), f.Name, labels, quality, releases, yes(newest), source, why})
		}
		rows = append(rows, []string{title(d), "", "", "", "", "", "", "names of the sources are from " + d.Source})
		for _, f := range quantities() {
			if !d.Concerns(f) {
				continue
			}
			sources := rowsOf(d, f)
			for _, r := range sources {
				add(f, set(r), quality(r), versions(r), slices.Contains(last.Rows[f], r), source(r), conditions(r))
				for _, outcome := range slices.Sorted(maps.Keys(r.Uncounted)) {
					add(f, "outcome="+string(outcome), "missing", versions(r), false, source(r), "absent at 0: "+r.Uncounted[outcome])
				}
			}
			if path := d.Endpoints[f]; path != "" {
				add(f, "", "endpoint", "", true, path, "asked once per start of the engine")
			}
			if len(sources) == 0 && d.Endpoints[f] == "" {
				add(f, "", "missing", "", false, "", d.Lacks(f))
			}
		}
		if d.Server == nil {
			continue
		}
		for _, s := range []struct{ source, quality string }{{d.Server.Active.Name, "native"}, {d.Server.Files.Name, "derived"}} {
			if s.source != "" {
				add(metrics.RequestsInFlight, "", s.quality, "", true, s.source, "where the page is of one model")
			}
		}
		if d.Server.Files.Name == "" && d.Server.Active.Name == "" {
			add(metrics.RequestsInFlight, "", "missing", "", false, "", d.Server.Lacks)
		}
	}
	return table(rows)
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func quality(r *engine.Row) string { return string(cmp.Or(r.Quality, metrics.Native)) }

// conditions explains why the engine does not report a quantity directly, and when an engine of the right release may
// lack it.
func conditions(r *engine.Row) string {
	if r.Absent == "" {
		return r.Why
	}
	return strings.TrimPrefix(r.Why+"; absent: "+r.Absent, "; ")
}

// settingsTable lists, for each engine and setting, where the engine reports the setting, or the reason why it does
// not.
func settingsTable() ([]byte, error) {
	rows := [][]string{{"engine", "setting", "page or endpoint", "command line", "missing because"}}
	for _, d := range engine.Known() {
		if len(d.Settings) == 0 && len(d.Flags) == 0 {
			continue
		}
		for _, s := range metrics.Settings {
			var told, flags []string
			for _, t := range d.Settings {
				if t.To == s {
					told = append(told, t.From+" "+t.At)
				}
			}
			for _, f := range d.Flags {
				if f.To == s {
					flags = append(flags, "--"+strings.Fields(f.Names)[0])
				}
			}
			if f := engine.SizeOf(s); f != nil && (d.Endpoints[f] != "" || rowsOf(d, f) != nil) {
				told = append(told, f.Name)
			}
			if s == metrics.SettingVersion && d.Identify != nil && len(told) == 0 {
				told = append(told, "the endpoint of its release")
			}
			why := ""
			if len(told)+len(flags) == 0 {
				why = d.Untells(s)
			}
			rows = append(rows, []string{title(d), string(s), strings.Join(told, ", "), strings.Join(flags, ", "), why})
		}
	}
	return table(rows)
}

// table writes rows as CSV.
func table(rows [][]string) ([]byte, error) {
	var b bytes.Buffer
	err := csv.NewWriter(&b).WriteAll(rows)
	return b.Bytes(), err
}

func quantities() (all []*metrics.Family) {
	for _, f := range metrics.All() {
		if engine.IsQuantity(f) {
			all = append(all, f)
		}
	}
	return all
}

func rowsOf(d *engine.Dialect, f *metrics.Family) (rows []*engine.Row) {
	for i := range d.Rows {
		if d.Rows[i].To == f {
			rows = append(rows, &d.Rows[i])
		}
	}
	return rows
}

func title(d *engine.Dialect) string {
	switch {
	case d.Supplement:
		return string(d.Runtime) + " beside an engine"
	case d.Role == metrics.FrontendRole:
		return string(d.Runtime) + " " + d.Role
	}
	return string(d.Runtime)
}

func versions(r *engine.Row) string {
	switch {
	case r.Since != "" && r.Since == r.Until:
		return "only " + r.Since
	case r.Since != "" && r.Until != "":
		return r.Since + " to " + r.Until
	case r.Since != "":
		return "from " + r.Since
	case r.Until != "":
		return "to " + r.Until
	}
	return ""
}

// set returns the labels that all series of a row get.
func set(r *engine.Row) string {
	var labels []string
	for _, l := range r.Set {
		if l.Value != "" {
			labels = append(labels, l.Name+"="+l.Value)
		}
	}
	return strings.Join(labels, " ")
}

func source(r *engine.Row) string {
	if len(r.Where) == 0 {
		return r.From
	}
	var conditions []string
	for _, m := range r.Where {
		conditions = append(conditions, m.String())
	}
	return r.From + "{" + strings.Join(conditions, ",") + "}"
}
