package live

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/internal/site"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

var (
	//go:embed board.html
	boardHTML string
	//go:embed board.css
	boardCSS template.CSS
	//go:embed board.js
	boardJS template.JS

	boardPage = template.Must(template.New("board").Parse(boardHTML))
)

// Boards is the path of the dashboards that need no Grafana, only a browser.
const Boards = "/boards/"

// ranges are the time ranges that readers can choose. The longest is a day, because the demo has a day of history.
var ranges = []string{"15m", "1h", "6h", "1d"}

// boards serves the dashboards as web pages. It draws them from the results of queries on the storage.
type boards struct {
	store *rulesim.Sim
	// style has the addresses of runbooks. node is the address of the node page.
	style rules.Style
	node  string
	all   []dashboards.Board
}

// ServeHTTP implements http.Handler.
func (s boards) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	uid := strings.TrimPrefix(r.URL.Path, Boards)
	i := slices.IndexFunc(s.all, func(b dashboards.Board) bool { return string(b.UID) == uid })
	if i < 0 {
		http.Error(w, "No such dashboard: "+Boards+string(s.all[0].UID)+" links to all dashboards.", http.StatusNotFound)
		return
	}
	chosen := cmp.Or(r.URL.Query().Get("range"), "1h")
	if !slices.Contains(ranges, chosen) {
		http.Error(w, fmt.Sprintf("range=%q: choose one of %s", chosen, strings.Join(ranges, ", ")), http.StatusBadRequest)
		return
	}
	back, err := model.ParseDuration(chosen)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var body bytes.Buffer
	if err := boardPage.Execute(&body, s.page(s.all[i], time.Duration(back), time.Now())); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// html/template has escaped the values from the storage. If Write fails, the reader has left.
	_ = site.Write(w, http.StatusOK, site.Page{
		Title: s.all[i].Title(), Root: s.node, Style: boardCSS, Body: template.HTML(body.String()),
		Script: boardJS,
	})
}

// page is the data of the template.
type page struct {
	dashboards.Board
	Boards     []dashboards.Board
	Ranges     []string
	Range, Now string
	Rows       []row
}

type row struct {
	dashboards.Row
	Panels []drawn
}

// drawn is a panel with its content, which depends on the panel's kind. Instead of the content, it may have an error,
// or a text that explains why there is no data.
type drawn struct {
	dashboards.Panel
	ID, Error, Empty, Runbook string
	Next                      *dashboards.Board
	Markdown                  template.HTML
	Stats                     []stat
	Plot                      *plot
	States                    []states
	Table                     *listing
}

type stat struct{ Class, Value, Name string }

// states is one row of a state timeline. Now is the state at the end of the time range.
type states struct {
	Name, Now string
	Cells     []cell
}

type listing struct {
	Heads []string
	Lines [][]entry
}

type entry struct{ Text, Link string }

func (s boards) page(b dashboards.Board, back time.Duration, now time.Time) page {
	step := max(5*time.Second, back/120)
	v := view{
		View: dashboards.View{Range: back, Step: step, Rate: max(4*play.ScrapeInterval, step+play.ScrapeInterval)},
		from: now.Add(-back), to: now,
	}
	p := page{Board: b, Boards: s.all, Ranges: ranges, Range: model.Duration(back).String(), Now: now.Format(time.TimeOnly)}
	for i, r := range b.Rows {
		shown := row{Row: r}
		for j, panel := range r.Panels {
			d := drawn{Panel: panel, ID: fmt.Sprintf("panel-%d-%d", i, j)}
			if err := s.draw(&d, b, v); err != nil {
				d.Error = err.Error()
			}
			if panel.Runbook != "" && !strings.HasPrefix(panel.Runbook, "$") {
				d.Runbook = s.style.Runbook(panel.Runbook)
			}
			if next := slices.IndexFunc(s.all, func(b dashboards.Board) bool { return b.UID == panel.Next }); next >= 0 {
				d.Next = &s.all[next]
			}
			shown.Panels = append(shown.Panels, d)
		}
		p.Rows = append(p.Rows, shown)
	}
	return p
}

// view is the time range that a dashboard shows.
type view struct {
	dashboards.View
	from, to time.Time
}

// x returns the position of a time in a drawing of 1000 units.
func (v view) x(at int64) float64 {
	return 1000 * float64(at-v.from.UnixMilli()) / float64(v.Range.Milliseconds())
}

// line has one series from the result of a query. The samples are from the whole time range, or only from its end.
type line struct {
	promql.Series
	query dashboards.Query
	value string // the name of the query's value in a table
	limit bool
}

func (l line) name() string  { return legend(l.query.Legend, l.Metric) }
func (l line) last() float64 { return l.Floats[len(l.Floats)-1].F }

// ask evaluates the queries of a panel.
func (s boards) ask(b dashboards.Board, p dashboards.Panel, v view) (all []line, err error) {
	for i, q := range slices.Concat(p.Queries, p.Limits) {
		text := b.PromQL(p, i, v.View)
		var m promql.Matrix
		if p.Kind == dashboards.Stat || p.Kind == dashboards.Table {
			var now promql.Vector
			now, err = s.store.Query(text, v.to)
			for _, sample := range now {
				m = append(m, promql.Series{Metric: sample.Metric, Floats: []promql.FPoint{{T: sample.T, F: sample.F}}})
			}
		} else {
			m, _, err = s.store.Range(text, v.from, v.to, v.Step)
		}
		if err != nil {
			return nil, err
		}
		for _, series := range m {
			series.Floats = slices.DeleteFunc(series.Floats, func(p promql.FPoint) bool { return math.IsNaN(p.F) || math.IsInf(p.F, 0) })
			if len(series.Floats) > 0 {
				value := "Value"
				if len(p.Queries) > 1 {
					value += " #" + string(rune('A'+i))
				}
				all = append(all, line{series, q, value, i >= len(p.Queries)})
			}
		}
	}
	return all, nil
}

// draw fills in the content of a panel.
func (s boards) draw(d *drawn, b dashboards.Board, v view) (err error) {
	if d.Kind == dashboards.Text {
		d.Markdown, err = runbooks.HTML([]byte(d.Panel.Markdown(s.style)))
		return err
	}
	all, err := s.ask(b, d.Panel, v)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(l line) bool { return !l.limit }) {
		d.Empty = d.Panel.Empty
		return nil
	}
	switch d.Kind {
	case dashboards.Stat:
		for _, l := range all {
			st := stat{class(d.Panel, l.last()), said(d.Panel, l.last()), l.name()}
			if d.Named {
				st.Value, st.Name = st.Name, ""
			}
			d.Stats = append(d.Stats, st)
		}
	case dashboards.Table:
		d.Table = s.table(d.Panel, all, v.to)
	case dashboards.Timeline:
		d.States = timeline(d.Panel, all, v)
	case dashboards.Heatmap:
		d.Plot = heatmap(d.Panel, all, v)
	case dashboards.Lines:
		d.Plot = lines(d.Panel, all, v)
	default:
		return errors.New("the demo cannot draw " + string(d.Kind))
	}
	return nil
}

// said formats a value of a panel: as the name of a state, or as a quantity.
func said(p dashboards.Panel, v float64) string {
	for _, s := range p.States {
		if float64(s.Value) == v {
			return s.Name
		}
	}
	return write(v, p.Unit)
}

// class returns the CSS class for a value. It depends on the highest step of the panel that the value has reached. The
// last colours of a panel are the urgent colours.
func class(p dashboards.Panel, v float64) string {
	reached := p.Steps[0]
	for _, s := range p.Steps[1:] {
		if v >= s.At {
			reached = s
		}
	}
	if slices.ContainsFunc(p.States, func(s dashboards.State) bool { return float64(s.Value) == v }) {
		return ""
	}
	return map[string]string{dashboards.Vermilion: "bad", dashboards.Orange: "look"}[reached.Colour]
}

// table returns the table of a panel. Its columns are those that the panel names, or all labels if the panel names
// none.
func (s boards) table(p dashboards.Panel, all []line, now time.Time) *listing {
	columns := p.Columns
	if columns == nil {
		names := map[string]bool{}
		for _, l := range all {
			l.Metric.Range(func(l labels.Label) { names[l.Name] = true })
		}
		delete(names, model.MetricNameLabel)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			columns = append(columns, dashboards.Column{Field: name, Title: name})
		}
	}
	t := &listing{}
	for _, c := range columns {
		t.Heads = append(t.Heads, c.Title)
	}
	rows := map[string]map[string]float64{} // values of series with the same labels, or with the same common labels
	var order []labels.Labels
	for _, l := range all {
		key := l.Metric.String()
		joined := false
		for _, of := range order {
			if row := rows[of.String()]; l.value != "Value" && narrows(of, l.Metric) {
				row[l.value], joined = l.last(), true
			}
		}
		if joined {
			continue
		}
		if rows[key] == nil {
			rows[key] = map[string]float64{}
			order = append(order, l.Metric)
		}
		rows[key][l.value] = l.last()
	}
	slices.SortFunc(order, func(a, b labels.Labels) int { // the largest values first, then names from A to Z, as in Grafana
		first := cmp.Or(p.SortBy, columns[0].Field)
		return cmp.Or(cmp.Compare(rows[b.String()][first], rows[a.String()][first]), cmp.Compare(a.Get(first), b.Get(first)),
			labels.Compare(a, b))
	})
	for _, of := range order {
		cells := make([]entry, 0, len(columns))
		for _, c := range columns {
			text := of.Get(c.Field)
			e := entry{Text: cmp.Or(c.Texts[text], text)}
			if v, ok := rows[of.String()][c.Field]; ok && c.Unit == "dateTimeFromNow" {
				e.Text = write(now.Sub(time.UnixMilli(int64(v))).Seconds(), "s") + " ago"
			} else if ok {
				e.Text = cmp.Or(c.Texts[strconv.FormatFloat(v, 'f', -1, 64)], write(v, cmp.Or(c.Unit, p.Unit)))
			} else if text != "" && (c.Field == metrics.LabelRunbook || c.Field == "alertname") {
				e.Link = s.style.Runbook(text)
			}
			cells = append(cells, e)
		}
		t.Lines = append(t.Lines, cells)
	}
	return t
}

// narrows reports whether a row has all labels of a series, and perhaps more.
func narrows(row, series labels.Labels) bool {
	all := true
	series.Range(func(l labels.Label) { all = all && row.Get(l.Name) == l.Value })
	return all
}

// legend returns the name of a line: it replaces the placeholders in a format by the labels of the series. Missing
// labels are left out.
func legend(format string, of labels.Labels) string {
	return strings.Join(strings.Fields(place.ReplaceAllStringFunc(format, func(p string) string {
		name := strings.Trim(p, "{}")
		if name == metrics.LabelSLO {
			return slo.Words(of.Get(name))
		}
		return of.Get(name)
	})), " ")
}

var place = regexp.MustCompile(`{{\w+}}`)
