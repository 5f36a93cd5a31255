package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promapi"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// report has the options of a report on how much of the error budgets is spent. The report reads the series that the
// rules record.
type report struct {
	url    string
	api    prometheus.API
	title  string
	end    time.Time
	days   int // days of the month; 0 means each objective's own period
	freeze slo.Ratio
	slow   slo.Ratio
	page   string // value of the severity label of alerts that page
	style  rules.Style
}

// budgetRow is the row of one objective of one model.
type budgetRow struct {
	labels         model.Metric // identify the row
	days, recorded int          // days of the period, and days since the first recorded day
	events, bad    float64
	target, left   float64 // NaN if not recorded
	worst          time.Time
	worstBad       float64
	worstEvents    float64
	pages          float64
	excluded       float64
}

// reportBudgets runs the command "report".
func reportBudgets(args []string, to io.Writer) error {
	app := kingpin.New("llm-rules report",
		"Reports on the error budgets of a month, or of each objective's period, from the series that the rules record.")
	app.HelpFlag.Short('h')
	address := app.Flag("prometheus", "Address of the Prometheus that has the recorded series, such as http://host:9090.").Required().String()
	httpConfig := app.Flag("http-config",
		"File with credentials and TLS settings, in the format of Prometheus' HTTP client configuration.").PlaceHolder("FILE").ExistingFile()
	month := app.Flag("month", "The month in UTC, such as 2026-10.").PlaceHolder("YYYY-MM").String()
	at := app.Flag("at", "The end of the periods, such as 2026-10-20T00:00:00Z. Default: now.").PlaceHolder("TIME").String()
	format := app.Flag("format", "md (Markdown) or html (a self-contained file).").Default("md").Enum("md", "html")
	freeze := app.Flag("freeze-below", "Advise to freeze releases if at most this share of the budget is left.").Default("0%").String()
	slow := app.Flag("slow-below", "Advise to slow down releases if at most this share of the budget is left.").Default("25%").String()
	page := app.Flag("severity", "Value of the severity label of alerts that page.").Default(rules.Style{}.WithDefaults().
		Severities[slo.Page]).String()
	r := report{style: rules.Style{Labels: map[string]string{}}}
	app.Flag("label", "New name of a label that was renamed in the rules, such as cluster=k8s_cluster. Repeatable.").
		PlaceHolder("NAME=NAME").StringMapVar(&r.style.Labels)
	if _, err := app.Parse(args); err != nil {
		return err
	}
	if *page == "" {
		return errors.New("--severity needs a value: the severity label of alerts that page")
	}
	if err := checkLabels(r.style.Labels); err != nil {
		return err
	}
	r.url, r.page = *address, *page
	var err error
	if r.freeze, err = slo.ParseRatio(*freeze); err != nil {
		return fmt.Errorf("--freeze-below: %w", err)
	}
	if r.slow, err = slo.ParseRatio(*slow); err != nil {
		return fmt.Errorf("--slow-below: %w", err)
	}
	if err := r.span(*month, *at, time.Now()); err != nil {
		return err
	}
	if r.api, err = promapi.Connect(r.url, *httpConfig, nil); err != nil {
		return err
	}
	rows, err := r.rows(context.Background())
	if err != nil {
		return err
	}
	content := r.markdown(rows)
	if *format == "html" {
		if content, err = r.html(content); err != nil {
			return err
		}
	}
	_, err = to.Write(content)
	return err
}

// span parses the time range of the report.
func (r *report) span(month, at string, now time.Time) error {
	r.end, r.title = now, "until "+now.UTC().Format("2006-01-02 15:04")+" UTC"
	switch {
	case month != "" && at != "":
		return errors.New("give either --month or --at")
	case month != "":
		begin, err := time.Parse("2006-01", month)
		if err != nil {
			return fmt.Errorf("--month %s: write it as 2026-10", month)
		}
		if begin.After(now) {
			return fmt.Errorf("--month %s has not begun", month)
		}
		r.end, r.title = begin.AddDate(0, 1, 0), begin.Format("January 2006")
		if r.end.After(now) {
			r.end, r.title = now.UTC().Truncate(day).Add(day), r.title+" so far"
		}
		r.days = int(r.end.Sub(begin) / day)
	case at != "":
		m, err := slo.ParseMoment(at)
		if err != nil {
			return fmt.Errorf("--at: %w", err)
		}
		if m.After(now) {
			return fmt.Errorf("--at %s is in the future", at)
		}
		r.end, r.title = m.Time, "until "+m.UTC().Format("2006-01-02 15:04")+" UTC"
	}
	return nil
}

const day = 24 * time.Hour

// rows returns the rows of the report. The objective with the smallest remaining budget comes first.
func (r *report) rows(ctx context.Context) ([]*budgetRow, error) {
	var rows []*budgetRow
	for _, p := range slo.Periods() {
		days := cmp.Or(r.days, int(p/slo.Day))
		matcher := fmt.Sprintf(`{%s=%q}`, metrics.LabelPeriod, p)
		events, err := r.daily(ctx, "sum_over_time("+metrics.RecordedPeriodEvents5m.Name+matcher+"["+wholeDay+"])", days)
		if err != nil {
			return nil, err
		}
		bad, err := r.daily(ctx, "sum_over_time("+metrics.RecordedPeriodBadEvents5m.Name+matcher+"["+wholeDay+"])", days)
		if err != nil {
			return nil, err
		}
		for _, series := range events {
			row := &budgetRow{labels: series.Metric, days: days, target: math.NaN(), left: math.NaN()}
			row.recorded = int(r.end.Sub(series.Values[0].Timestamp.Time())/day) + 1
			badOn := map[model.Time]float64{}
			for _, b := range r.of(bad, metrics.RecordedPeriodBadEvents5m.Labels, row.labels) {
				for _, v := range b.Values {
					badOn[v.Timestamp] += float64(v.Value)
				}
			}
			for _, v := range series.Values {
				row.events += float64(v.Value)
				row.bad += badOn[v.Timestamp]
				if badOn[v.Timestamp] > row.worstBad {
					row.worst, row.worstBad, row.worstEvents = v.Timestamp.Time().Add(-day), badOn[v.Timestamp], float64(v.Value)
				}
			}
			rows = append(rows, row)
		}
	}
	if rows == nil {
		return nil, fmt.Errorf("%s has no %s in that time: load the rules (llm-rules --format prometheus), let this Prometheus scrape an "+
			"exporter, and give a time that its history covers",
			r.url, metrics.RecordedPeriodEvents5m.Name)
	}
	if err := r.complete(ctx, rows); err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b *budgetRow) int {
		return cmp.Or(cmp.Compare(a.left, b.left), cmp.Compare(a.labels.String(), b.labels.String()))
	})
	return rows, nil
}

// wholeDay is the window of queries that are evaluated at the end of each day. It is a second shorter than a day, so
// that no sample counts twice in Prometheus before version 3, where windows include their start.
const wholeDay = "23h59m59s"

// complete adds the remaining columns to the rows, from further queries.
func (r *report) complete(ctx context.Context, rows []*budgetRow) error {
	days := 0
	for _, row := range rows {
		days = max(days, row.days)
	}
	left, err := r.daily(ctx, "last_over_time("+metrics.RecordedBudgetRemaining.Name+"["+wholeDay+"])", 1)
	if err != nil {
		return err
	}
	budgets, err := r.daily(ctx, "last_over_time("+metrics.RecordedErrorBudget.Name+"["+wholeDay+"])", days)
	if err != nil {
		return err
	}
	// An alert that fired within the last five minutes is still firing.
	firing := fmt.Sprintf(`%s{alertname=%q, alertstate="firing", %s=%q}`, metrics.Alerts.Name, rules.FastBurn.Name,
		r.style.Label(rules.SeverityLabel), r.page)
	pages, err := r.daily(ctx, fmt.Sprintf("count_over_time((%s unless last_over_time(%s[5m] offset 1m))[%s:1m])", firing, firing,
		wholeDay), days)
	if err != nil {
		return err
	}
	excluded, err := r.excluded(ctx, days)
	if err != nil {
		return err
	}
	for _, row := range rows {
		for _, s := range r.of(left, metrics.RecordedBudgetRemaining.Labels, row.labels) {
			row.left = last(s)
		}
		for _, s := range r.of(budgets, metrics.RecordedErrorBudget.Labels, row.labels) {
			row.target = 1 - last(s)
		}
		row.pages, row.excluded = r.sum(pages, row), r.sum(excluded, row)
	}
	return nil
}

// excluded returns the events during maintenance. It runs the expensive query for these events only if there was
// maintenance.
func (r *report) excluded(ctx context.Context, days int) (model.Matrix, error) {
	labels := make([]string, 0, len(metrics.ModelSLOLabels))
	for _, name := range metrics.ModelSLOLabels {
		labels = append(labels, r.style.Label(name))
	}
	by := strings.Join(labels, ", ")
	under, err := r.daily(ctx, fmt.Sprintf("max by (%s) (max_over_time(%s[%s]))", by, metrics.SLOMaintenance.Name, wholeDay), days)
	if err != nil || len(under) == 0 {
		return nil, err
	}
	return r.daily(ctx, fmt.Sprintf("sum_over_time((sum by (%s) (increase(%s[5m])) and max by (%s) (%s))[%s:5m])",
		by, metrics.SLOEvents.Name, by, metrics.SLOMaintenance.Name, wholeDay), days)
}

// sum adds up a daily value over the days of a row.
func (r *report) sum(of model.Matrix, row *budgetRow) (total float64) {
	begin := r.end.Add(-time.Duration(row.days) * day)
	for _, s := range r.of(of, metrics.ModelSLOLabels, row.labels) {
		for _, v := range s.Values {
			if v.Timestamp.Time().After(begin) {
				total += float64(v.Value)
			}
		}
	}
	return total
}

func last(s *model.SampleStream) float64 { return float64(s.Values[len(s.Values)-1].Value) }

// of returns the series whose labels have the same values as a row's labels, for the label names in by. The names in by
// are those before renaming.
func (r *report) of(all model.Matrix, by []string, labels model.Metric) model.Matrix {
	return slices.DeleteFunc(slices.Clone(all), func(s *model.SampleStream) bool {
		return slices.ContainsFunc(by, func(name string) bool {
			name = r.style.Label(name)
			return s.Metric[model.LabelName(name)] != labels[model.LabelName(name)]
		})
	})
}

// daily evaluates an expression at the end of each of the last days.
func (r *report) daily(ctx context.Context, expr string, days int) (model.Matrix, error) {
	span := prometheus.Range{Start: r.end.Add(-time.Duration(days-1) * day), End: r.end, Step: day}
	value, _, _, err := r.api.QueryRange(ctx, expr, span)
	if err != nil {
		return nil, promapi.Explain(r.url, expr, err)
	}
	return value.(model.Matrix), nil
}

// policy returns the advice on releases for a remaining budget.
func (r *report) policy(left float64) string {
	switch {
	case math.IsNaN(left):
		return "–"
	case left <= r.freeze.Float():
		return "**freeze**"
	case left <= r.slow.Float():
		return "slow down"
	}
	return "ship"
}

func (r *report) markdown(rows []*budgetRow) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Error budgets, %s\n\n", r.title)
	span := "The events are those of each objective's period"
	if r.days > 0 {
		span = "The events are those of the month in UTC; each budget is that of the objective's period that ends with the month"
	}
	fmt.Fprintf(&b, "%s. With no more than %s of the budget left: freeze; with no more than %s: slow down. Events under declared "+
		"maintenance are left out.\n\n",
		span, r.freeze.Percent(), r.slow.Percent())
	b.WriteString("| namespace | model | objective | target | good | events | bad | budget spent | left | so | worst day | pages | left " +
		"out | history |\n" +
		"| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- | ---: | ---: | --- |\n")
	for _, row := range rows {
		worst := "–"
		if row.worstBad > 0 {
			worst = fmt.Sprintf("%s: %s bad, %s", row.worst.UTC().Format("2006-01-02"), count(row.worstBad), percent(row.worstBad/row.worstEvents))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %d of %d days |\n",
			name(row.labels[metrics.LabelNamespace]), name(row.labels[metrics.LabelModel])+row.more(), name(row.labels[metrics.LabelSLO]),
			percent(row.target), percent(1-row.bad/row.events), count(row.events), count(row.bad), percent(1-row.left), percent(row.left),
			r.policy(row.left), worst, count(row.pages), count(row.excluded), min(row.recorded, row.days), row.days)
	}
	return b.Bytes()
}

// more returns the labels of a row that have no column of their own, such as the cluster.
func (row *budgetRow) more() string {
	var more []string
	for _, n := range slices.Sorted(maps.Keys(row.labels)) {
		switch n {
		case model.MetricNameLabel, metrics.LabelNamespace, metrics.LabelModel, metrics.LabelSLO, metrics.LabelPeriod:
		default:
			more = append(more, string(n)+" "+name(row.labels[n]))
		}
	}
	if more == nil {
		return ""
	}
	return " (" + strings.Join(more, ", ") + ")"
}

// name escapes a label's value, so that Markdown shows the value unchanged.
func name(v model.LabelValue) string {
	if v == "" {
		return "–"
	}
	return "`" + cell(strings.ReplaceAll(string(v), "`", "'")) + "`"
}

func count(v float64) string { return strconv.FormatFloat(math.Round(v), 'f', -1, 64) }

// percent prints a share with at most three decimals.
func percent(share float64) string {
	if math.IsNaN(share) {
		return "–"
	}
	return strconv.FormatFloat(math.Round(share*1e5)/1e3, 'f', -1, 64) + "%"
}

var reportPage = template.Must(template.New("report").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Error budgets, {{ .Title }}</title>
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; margin: 1rem }
table { border-collapse: collapse } td, th { border: 1px solid #8886; padding: .2rem .5rem; text-align: left }
</style></head><body>
{{ .Body }}</body></html>
`))

// html converts the Markdown to HTML.
func (r *report) html(markdown []byte) ([]byte, error) {
	var body, page bytes.Buffer
	if err := goldmark.New(goldmark.WithExtensions(extension.Table)).Convert(markdown, &body); err != nil {
		return nil, err
	}
	// goldmark omits raw HTML.
	err := reportPage.Execute(&page, map[string]any{"Title": r.title, "Body": template.HTML(body.String())})
	return page.Bytes(), err
}
