package live

import (
	"bytes"
	"cmp"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/internal/site"
)

// QueryPath is the path of the web page that shows the result of a query. The page's parameter has the same name as in
// Prometheus' own web page.
const QueryPath = "/graph"

// shownSeries limits the answer on the web page.
const shownSeries = 200

var queryPage = template.Must(template.New("query").Parse(`<h1>Query</h1>
<form action="` + QueryPath +
	`"><label for="expr">PromQL</label><br><textarea id="expr" name="g0.expr" rows="4" cols="100">{{ .Expr }}</textarea><br><button>Ask</button></form>
<p role="status">{{ with .Error }}<strong class="bad">{{ . }}</strong>{{ else }}{{ .Says }}{{ end }}</p>
{{ if .Lines }}<div class="wide" role="region" aria-label="Answer" tabindex="0"><table><thead><tr><th scope="col">series</th><th scope="col" class="number">now</th></tr></thead><tbody>
{{ range .Lines }}<tr><td><code>{{ .Series }}</code></td><td class="number">{{ .Value }}</td></tr>
{{ end }}</tbody></table></div>{{ end }}
<p><a href="/">The dashboards</a></p>
`))

// answered is the content of the query page: an expression, with its result or an error.
type answered struct {
	Expr, Says, Error string
	Lines             []struct{ Series, Value string }
}

// answer evaluates an expression. The largest value comes first.
func (p *Prometheus) answer(expr string) (a answered) {
	a.Expr = strings.TrimSpace(expr)
	if a.Expr == "" {
		a.Says = "A query of a runbook opens here with one click."
		return a
	}
	now := time.Now()
	series, err := p.store.Query(a.Expr, now)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	slices.SortFunc(series, func(x, y promql.Sample) int {
		return cmp.Or(cmp.Compare(y.F, x.F), strings.Compare(x.Metric.String(), y.Metric.String()))
	})
	a.Says = strconv.Itoa(len(series)) + " series at " + now.Format(time.TimeOnly) + "."
	for _, s := range series[:min(len(series), shownSeries)] {
		a.Lines = append(a.Lines, struct{ Series, Value string }{s.Metric.String(), strconv.FormatFloat(s.F, 'g', 5, 64)})
	}
	return a
}

// serveQuery serves the web page.
func (p *Prometheus) serveQuery(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	if err := queryPage.Execute(&body, p.answer(r.URL.Query().Get("g0.expr"))); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// html/template has escaped the values from the reader and from the storage. If Write fails, the reader has left.
	_ = site.Write(w, http.StatusOK, site.Page{Title: "Query", Root: p.boards.node, Style: boardCSS, Body: template.HTML(body.String())})
}
