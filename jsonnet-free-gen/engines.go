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

// maxEras is the maximum of era columns in an engine's table, beside names and reasons.
const maxEras = 6

func enginesPage() ([]byte, error) {
	dialects := engine.Known()
	first := slices.IndexFunc(dialects, isGateway) // after all engines
	var b bytes.Buffer
	b.WriteString("# Engines\n\n" + generated)
	b.WriteString("What the newest release of each engine reports, by quantity: **N** native, **D** derived by exact arithmetic, **A** approximate, **E** from a\n" +
		"metadata endpoint instead of the page, – not reported. Older releases, reasons and sources are below, per engine. On a running node,\n" +
		"`llm_engine_metric_source_info` shows the same. With which settings an engine runs, `llm_engine_config_info` says:\n" +
		"[settings.csv](settings.csv) has where each engine tells each one. Command lines are read where the exporter may read the process.\n\n")
	newest(&b, dialects[:first])
	b.WriteString("\n## Gateways\n\nThe same for servers in front of engines. A gateway is read where the configuration or an annotation names it as a target. It counts the\n" +
		"requests of its engines again, as a client sees them: its series have `role=\"gateway\"`, and sums over engines leave them out.\n" +
		"Its availability [alerts in place of the engines'](objectives.md#at-the-gateway). A frontend of Dynamo has `role=\"frontend\"`: it stands for workers that are not read.\n\n")
	newest(&b, dialects[first:])
	b.WriteString("\n## When a page cannot be used\n\n`llm_engine_up` is 0 and its `reason` says why. The exporter shows nothing else of that engine, because old numbers would lie.\n\n" +
		"| reason | meaning | what to do |\n| --- | --- | --- |\n")
	for _, r := range engine.Reasons {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Reason, cell(r.Meaning), cell(r.Remedy))
	}
	b.WriteString("\n## By release\n\nThe head of a column names the first release of an era, which ends before the release of the next column. Where little changed, several eras\n" +
		"share a column, and a cell says from and up to which release it holds. – means that these releases do not report it. The last column says why a\n" +
		"number is not native, and what else it takes for the number to be there.\n")
	for _, d := range dialects {
		coverage(&b, d)
	}
	return b.Bytes(), nil
}

// newest writes the table of what the newest releases of some dialects report.
func newest(b *bytes.Buffer, dialects []*engine.Dialect) {
	eras := make([]engine.Era, len(dialects))
	b.WriteString("| quantity |")
	for i, d := range dialects {
		fmt.Fprintf(b, " %s |", title(d))
		all := d.Eras()
		eras[i] = all[len(all)-1]
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(dialects)) + "\n")
	for _, f := range quantities() {
		if !slices.ContainsFunc(dialects, func(d *engine.Dialect) bool { return d.Concerns(f) && (!isGateway(d) || rowsOf(d, f) != nil) }) {
			continue
		}
		fmt.Fprintf(b, "| %s |", quantity(f))
		for i, d := range dialects {
			fmt.Fprintf(b, " %s |", letter(d, eras[i], f))
		}
		b.WriteByte('\n')
	}
}

func isGateway(d *engine.Dialect) bool { return d.Role == metrics.GatewayRole }

// held writes what the page shows of requests that the engine's own gauges may not, or why it shows nothing, and of which
// outcomes zero says nothing.
func held(b *bytes.Buffer, d *engine.Dialect) {
	if d.Server != nil {
		said := " are not shown: " + d.Server.Lacks
		for _, s := range []struct{ source, letter string }{{d.Server.Files.Name, "D"}, {d.Server.Active.Name, "N"}} {
			if s.source != "" {
				said = fmt.Sprintf(" are read from `%s` (%s) where the page is of one model", s.source, s.letter)
			}
		}
		fmt.Fprintf(b, "\nRequests that its server holds (`requests_in_flight`)%s.\n", cell(said))
	}
	for i := range d.Rows {
		for _, outcome := range slices.Sorted(maps.Keys(d.Rows[i].Uncounted)) {
			fmt.Fprintf(b, "\n`requests_total{outcome=\"%s\"}` is absent at 0 where %s.\n", outcome, cell(d.Rows[i].Uncounted[outcome]))
		}
	}
}

// coverage writes what one engine reports: by era, what in none, and where it is read.
func coverage(b *bytes.Buffer, d *engine.Dialect) {
	columns := columnsOf(d, maxEras)
	fmt.Fprintf(b, "\n### %s\n\nFrom %s.\n\n| quantity |", title(d), d.Source)
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.head(columns))
	}
	b.WriteString(" why, and when |\n| --- |" + strings.Repeat(" --- |", len(columns)+1) + "\n")
	var never []string              // reasons
	silent := map[string][]string{} // quantities by reason
	var sources bytes.Buffer
	for _, f := range quantities() {
		if !d.Concerns(f) {
			continue
		}
		rows := rowsOf(d, f)
		if len(rows) == 0 && d.Endpoints[f] == "" {
			why := d.Lacks(f)
			if silent[why] == nil {
				never = append(never, why)
			}
			silent[why] = append(silent[why], quantity(f))
			continue
		}
		fmt.Fprintf(b, "| %s |", quantity(f))
		for _, c := range columns {
			fmt.Fprintf(b, " %s |", c.says(d, f))
		}
		fmt.Fprintf(b, " %s |\n", cell(conditions(d, f, rows)))
		for _, r := range rows {
			fmt.Fprintf(&sources, "| %s | %s | %s | %s |\n", quantity(f)+set(r), sourceCell(r), versions(r), letterOf(r))
		}
	}
	held(b, d)
	if len(never) > 0 {
		// The table shows what is reported, so that the most common reason needs no list.
		slices.SortStableFunc(never, func(a, b string) int { return cmp.Compare(len(silent[a]), len(silent[b])) })
		b.WriteString("\nNot reported by any release:\n\n")
		for i, why := range never {
			names := strings.Join(silent[why], ", ")
			if i == len(never)-1 {
				names = "all that the table lacks"
			}
			fmt.Fprintf(b, "* %s: %s\n", why, names)
		}
	}
	fmt.Fprintf(b, "\nSources, in the order in which the exporter tries them:\n\n| quantity | source | releases | quality |\n| --- | --- | --- | --- |\n%s", sources.Bytes())
}

// settingsTable writes, for each engine and setting, where the engine says it, or why it does not.
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

// column holds consecutive eras of an engine.
type column struct {
	eras []engine.Era
	next string // first release of the next column; empty for the last
}

// columnsOf joins the eras of an engine that differ in sources only, then those that differ in the fewest quantities,
// until the columns fit beside each other.
func columnsOf(d *engine.Dialect, most int) []column {
	var columns []column
	for _, e := range d.Eras() {
		columns = append(columns, column{eras: []engine.Era{e}})
	}
	changes := func(i int) (n int) { // between a column and the next
		last := columns[i].eras[len(columns[i].eras)-1]
		for _, f := range quantities() {
			if letter(d, last, f) != letter(d, columns[i+1].eras[0], f) {
				n++
			}
		}
		return n
	}
	for len(columns) > 1 {
		least := 0
		for i := range len(columns) - 1 {
			if changes(i) < changes(least) {
				least = i
			}
		}
		if len(columns) <= most && changes(least) > 0 {
			break
		}
		columns[least].eras = slices.Concat(columns[least].eras, columns[least+1].eras)
		columns = slices.Delete(columns, least+1, least+2)
	}
	for i := range len(columns) - 1 {
		columns[i].next = columns[i+1].eras[0].Since
	}
	return columns
}

func (c column) head(all []column) string {
	switch since := c.eras[0].Since; {
	case since != "":
		return since
	case len(all) == 1:
		return "all releases"
	default:
		return "before " + c.next
	}
}

// says returns the cell of a quantity: its letter, or several with the releases for which they hold.
func (c column) says(d *engine.Dialect, f *metrics.Family) string {
	var runs []engine.Era // the first of each run of equal eras
	for _, e := range c.eras {
		if len(runs) == 0 || letter(d, runs[len(runs)-1], f) != letter(d, e, f) {
			runs = append(runs, e)
		}
	}
	var parts []string
	for i, e := range runs {
		l := letter(d, e, f)
		if l == unsaid && len(runs) > 1 {
			continue
		}
		if i > 0 {
			l += " from " + e.Since
		}
		if i+1 < len(runs) && letter(d, runs[i+1], f) == unsaid {
			l += " before " + runs[i+1].Since
		}
		parts = append(parts, l)
	}
	return strings.Join(parts, ", ")
}

// unsaid marks a quantity that an engine does not report.
const unsaid = "–"

// letter returns the quality of the source that is tried first for a quantity.
func letter(d *engine.Dialect, e engine.Era, f *metrics.Family) string {
	switch rows := e.Rows[f]; {
	case len(rows) > 0:
		return letterOf(rows[0])
	case d.Endpoints[f] != "":
		return "E"
	}
	return unsaid
}

func letterOf(r *engine.Row) string {
	return strings.ToUpper(string(cmp.Or(r.Quality, metrics.Native)[:1]))
}

// conditions explains why a number is not native, and why a page of the right release may lack it.
func conditions(d *engine.Dialect, f *metrics.Family, rows []*engine.Row) string {
	var notes []string
	said := map[string]bool{}
	for _, r := range rows {
		var of []string
		if r.Why != "" {
			of = append(of, letterOf(r)+": "+r.Why)
		}
		if r.Absent != "" {
			of = append(of, "absent: "+r.Absent)
		}
		note := strings.Join(of, "; ")
		if note == "" || said[note] {
			continue
		}
		said[note] = true
		if r.Until != "" {
			note = versions(r) + " " + note
		}
		notes = append(notes, note)
	}
	if path := d.Endpoints[f]; path != "" {
		notes = append(notes, "E: `"+path+"`, asked once per start of the engine")
	}
	return strings.Join(notes, ". ")
}

func quantities() (all []*metrics.Family) {
	for _, f := range metrics.All() {
		if engine.IsQuantity(f) {
			all = append(all, f)
		}
	}
	return all
}

func quantity(f *metrics.Family) string {
	return "`" + strings.TrimPrefix(f.Name, "llm_engine_") + "`"
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

// set returns the labels that all series of a row get.
func set(r *engine.Row) string {
	if len(r.Set) == 0 {
		return ""
	}
	return "`" + string(metrics.AppendSeries(nil, "", r.Set...)) + "`"
}

func sourceCell(r *engine.Row) string {
	s := r.From
	if len(r.Where) > 0 {
		var conditions []string
		for _, m := range r.Where {
			conditions = append(conditions, m.String())
		}
		s += "{" + strings.Join(conditions, ",") + "}"
	}
	return "`" + cell(s) + "`"
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
