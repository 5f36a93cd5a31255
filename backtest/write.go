package backtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/site"
)

// Write writes the report as text, html or json.
func (r *Report) Write(to io.Writer, format string) error {
	switch format {
	case "json":
		e := json.NewEncoder(to)
		e.SetIndent("", "  ")
		return e.Encode(r)
	case "html":
		return r.html(to)
	}
	return r.text(to)
}

// title describes the scope of the report.
func (r *Report) title() string {
	return fmt.Sprintf("What would have paged, %s to %s UTC", r.From.UTC().Format(minuteFormat), r.To.UTC().Format(minuteFormat))
}

// reads names the source of the report's numbers.
func (r *Report) reads() string {
	if r.Reads == Exporter {
		return "Source: the exporter's counts (llm_slo_events_total)."
	}
	return "Source: the engines' own series, which show only some causes."
}

// headings are the column headings of the table. cells returns the text of the columns.
var headings = []string{
	"model", "objective", "target", "within", "events", "bad", "budget spent", "pages", "tickets", "paged for",
	"look first at", "strictest target",
}

// name returns the model with its namespace and cluster.
func (row Row) name() string {
	name := cmp.Or(row.Model, "–")
	if row.Namespace != "" {
		name = row.Namespace + "/" + name
	}
	if row.Cluster != "" {
		name = row.Cluster + "/" + name
	}
	if row.Role != "" {
		name += " (" + row.Role + ")"
	}
	return name
}

func (row Row) cells() []string {
	name := row.name()
	within := "–"
	if row.Threshold != "" {
		within = row.Threshold + " s"
	}
	return []string{
		name, row.Objective, row.Target, within, whole(row.Events), whole(row.Bad), percent(row.Spent),
		strconv.Itoa(len(row.Pages)), strconv.Itoa(len(row.Tickets)),
		lasted(row.Pages), row.verdict(), cmp.Or(row.Best, "none"),
	}
}

// verdict returns the most frequent verdict of the row's pages.
func (row Row) verdict() string {
	if len(row.Pages) == 0 {
		return "–"
	}
	said := map[string]int{}
	best := "unknown"
	for _, p := range row.Pages {
		if p.Verdict != "" {
			if said[p.Verdict]++; best == "unknown" || said[p.Verdict] > said[best] {
				best = p.Verdict
			}
		}
	}
	return best
}

// lasted returns the total length of episodes. Each lasts until a minute after its last evaluation.
func lasted(all []Episode) string {
	var total time.Duration
	for _, e := range all {
		total += e.To.Sub(e.From) + time.Minute
	}
	return cmp.Or(strings.TrimSuffix(total.String(), "0s"), "–")
}

func whole(v float64) string { return strconv.FormatFloat(math.Round(v), 'f', -1, 64) }

func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e3)/10, 'f', -1, 64) + "%"
}

// choices lists the numbers of pages of other targets or thresholds. It joins adjacent ones with the same number, as in
// "0.25 s to 0.5 s: 12".
func choices(all []Choice, unit string) string {
	var parts []string
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1].Pages == all[i].Pages {
			j++
		}
		name := all[i].Value + unit
		if j > i {
			name += " to " + all[j].Value + unit
		}
		parts = append(parts, fmt.Sprintf("%s: %d", name, all[i].Pages))
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

func (r *Report) text(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n", r.title(), r.reads())
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "Note: %s.\n", n)
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(headings, "\t"))
	for _, row := range r.Rows {
		fmt.Fprintln(w, strings.Join(row.cells(), "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	b.WriteString("\nPages with other targets or thresholds:\n")
	for _, row := range r.Rows {
		cells := row.cells()
		fmt.Fprintf(&b, "  %s %s: %s\n", cells[0], cells[1], choices(row.Targets, ""))
		if len(row.Bounds) > 0 {
			fmt.Fprintf(&b, "    within %s\n", choices(row.Bounds, " s"))
		}
	}
	for _, row := range r.Rows {
		for _, p := range row.Pages {
			cells := row.cells()
			fmt.Fprintf(&b, "Page: %s %s, %s, for %s, %s\n", cells[0], cells[1], p.From.UTC().Format(minuteFormat), lasted([]Episode{p}),
				cmp.Or(p.Verdict, "cause unknown"))
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// body is the content of the report's web page.
var body = template.Must(template.New("backtest").Funcs(template.FuncMap{"plot": func(r *Report,
	row Row,
) template.HTML {
	return r.plot(row)
}, "choices": choices}).Parse(`<h1>{{ .Title }}</h1>
<p>{{ .Reads }}</p>
{{ range .Report.Notes }}<p class="look">{{ . }}.</p>
{{ end }}<div class="wide"><table><tr>{{ range .Headings }}<th>{{ . }}</th>{{ end }}</tr>
{{ range .Report.Rows }}<tr>{{ range .Cells }}<td>{{ . }}</td>{{ end }}</tr>
{{ end }}</table></div>
{{ $r := .Report }}{{ range .Report.Rows }}<h2>{{ .Model }} {{ .Objective }}</h2>
{{ plot $r . }}
<p>Pages by target: {{ choices .Targets "" }}.{{ with .Bounds }} By threshold: {{ choices . " s" }}.{{ end }}</p>
<ul>{{ range .Pages }}<li>{{ .From.UTC.Format "2006-01-02 15:04" }} to {{ .To.UTC.Format "15:04" }} UTC: {{ or .Verdict "cause unknown" }}</li>{{ end }}</ul>
{{ end }}<footer>Bars show the share of bad events, hour by hour; the red stretches are pages.</footer>`))

// Cells returns the row of the table.
func (row Row) Cells() []string { return row.cells() }

func (r *Report) html(to io.Writer) error {
	var b strings.Builder
	if err := body.Execute(&b, struct {
		Title, Reads string
		Headings     []string
		Report       *Report
	}{r.title(), r.reads(), headings, r}); err != nil {
		return err
	}
	return site.Page{Title: r.title(), Body: template.HTML(b.String())}.Document(to)
}

// plot draws the share of bad events by hour, and marks the times of pages.
func (r *Report) plot(row Row) template.HTML {
	const width, height = 1180, 90
	top := 1e-9
	for _, h := range row.hours {
		if h[0] > 0 {
			top = max(top, h[1]/h[0])
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="share of bad events, up to %s">`, width, height, percent(top))
	x := func(at time.Time) float64 { return width * at.Sub(r.From).Seconds() / r.To.Sub(r.From).Seconds() }
	for _, p := range row.Pages {
		from, to := x(p.From), x(p.To.Add(time.Minute))
		fmt.Fprintf(&b, `<rect fill="#a40e26" opacity=".35" x="%.1f" y="0" width="%.1f" height="%d"/>`, from, max(to-from, 1.5), height)
	}
	step := float64(width) / float64(max(len(row.hours), 1))
	for i, h := range row.hours {
		if h[1] > 0 {
			tall := (height - 4) * h[1] / h[0] / top
			fmt.Fprintf(&b, `<rect fill="#0b6b53" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, float64(i)*step, height-tall,
				max(step-.3, .5), tall)
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // the plot has only numbers
}
