package dashboards

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Grafana's own variables are not PromQL, so expressions contain these durations instead. No expression uses these
// durations otherwise. When an expression is printed, Grafana's variables replace them.
const (
	rateInterval = 7919 * time.Millisecond
	wholeRange   = 7907 * time.Millisecond
)

// standsFor returns a placeholder for the label value of a severity, because each installation may choose this value.
func standsFor(s slo.Severity) string { return "the severity " + s.String() }

// named replaces the placeholders of severities with their values, as regular expressions.
func named(query string, severities map[slo.Severity]string) string {
	for s, value := range severities {
		query = strings.ReplaceAll(query, strconv.Quote(standsFor(s)), strconv.Quote(regexp.QuoteMeta(value)))
	}
	return query
}

// forGrafana writes an expression as Grafana expects it.
func forGrafana(e promql.Expr) string {
	return strings.NewReplacer("[7s919ms]", "[$__rate_interval]", "offset 7s919ms", "offset $__rate_interval", "[7s907ms:1m]",
		"[$__range:1m]").Replace(e.String())
}

// View has values for Grafana's own variables, for queries outside Grafana.
type View struct {
	// Range is the time range of the lines. Step is the time between two of their points. Rate is the window of rates.
	Range, Step, Rate time.Duration
}

// PromQL returns the i-th expression of a panel (first its queries, then its limits) for Prometheus, with the
// dashboard's variables at their defaults.
func (b Board) PromQL(p Panel, i int, v View) string {
	values := []string{"$__rate_interval", model.Duration(v.Rate).String(), "$__range", model.Duration(v.Range).String()}
	for _, filter := range b.Variables {
		values = append(values, "$"+filter.name, AllValue)
	}
	return strings.NewReplacer(values...).Replace(named(forGrafana(promql.AnyHistograms(p.drawn(i))), rules.Style{}.WithDefaults().Severities))
}

// These are the label sets by which results are grouped, and their legends. If a label is missing, its place in the
// legend is empty.
var (
	// whole lists the labels of results about a whole model.
	whole = []string{
		metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelModel, metrics.LabelSLO, metrics.LabelRole,
		metrics.LabelPeriod,
	}
	models   = []string{metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelModel}
	replicas = metrics.ReplicaLabels
	pages    = metrics.PageLabels
	nodes    = []string{metrics.LabelCluster, metrics.LabelInstance}
	gpus     = []string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelGPU, metrics.LabelGPUUUID}
	onGPU    = []string{metrics.LabelCluster, metrics.LabelGPUUUID}
)

const (
	modelLegend   = "{{model_name}} {{namespace}} {{cluster}}"
	replicaLegend = "{{pod}} {{server}} {{instance}}"
	nodeLegend    = "{{instance}} {{cluster}}"
	probeLegend   = "{{model_name}} {{server}} {{instance}}"
)

// by adds labels to a set.
func by(set []string, more ...string) []string {
	return append(slices.Clip(set), more...)
}

// over returns a / b. If b is 0, there is no result, because a share of nothing is not 0.
func over(a, b promql.Expr) promql.Expr {
	return promql.Div(a, promql.Gt(b, promql.Num(0)))
}

// shareOf returns a / b, capped at 1, because a and b may be counted at different times.
func shareOf(a, b promql.Expr) promql.Expr {
	return promql.Call("clamp_max", over(a, b), promql.Num(1))
}

// inPeriod keeps times to exhaustion within the budget's period, because longer times do not matter.
func (s scope) inPeriod(e promql.Expr) promql.Expr {
	return promql.Le(e, promql.Max(metrics.ModelSLOLabels, s.of(metrics.RecordedPeriod)), promql.On(metrics.ModelSLOLabels...).ManyToOne())
}

// subquery returns an expression at each minute of a range that is as long as the dashboard's time range and ends at
// each point.
func subquery(e promql.Expr) *parser.SubqueryExpr {
	return &parser.SubqueryExpr{Expr: &parser.ParenExpr{Expr: e}, Range: wholeRange, Step: minute}
}

// seen returns when series first ("min") or last ("max") existed within the dashboard's time range, in milliseconds.
func seen(which string, labels []string, e promql.Expr) promql.Expr {
	fold := map[string]func([]string, promql.Expr) promql.Expr{"min": promql.Min, "max": promql.Max}[which]
	return promql.Mul(promql.Num(1000), fold(labels, promql.Call(which+"_over_time", subquery(promql.Call("timestamp", e)))))
}

// sinceDay returns when a series that exists now began, in milliseconds. It looks back a day, whatever the dashboard's
// time range. before is e a minute ago, so the series began when it last existed without before. If it existed all day,
// the result is the start of that day.
func sinceDay(labels []string, e, before promql.Expr) promql.Expr {
	at := func(which string, e promql.Expr) promql.Expr {
		return promql.Call(which+"_over_time", &parser.SubqueryExpr{
			Expr:  &parser.ParenExpr{Expr: promql.Call("timestamp", e)},
			Range: 24 * hour, Step: minute,
		})
	}
	return promql.Mul(promql.Num(1000), promql.OrOn(at("max", promql.Unless(e, before)), at("min", e), promql.On(labels...)))
}

// between returns the highest value of a series since the previous point of a graph, so that a long range does not hide
// peaks.
func between(e promql.Expr) promql.Expr { return promql.Over("max_over_time", e, rateInterval) }

// begins keeps the first minute of a mark, because Prometheus returns a mark for five minutes.
func begins(mark promql.Expr) promql.Expr { return promql.Unless(mark, promql.Offset(mark, minute)) }

// serving keeps the values of GPUs that run a selected model, or ran one within the hour.
func (s scope) serving(e promql.Expr) promql.Expr {
	return promql.And(e, promql.Max(onGPU, s.of(metrics.RecordedServedGPU)), promql.On(onGPU...))
}

// perGPU returns the maximum of a family per GPU. It leaves out MIG instances, because the value of the whole GPU
// includes them.
func (s scope) perGPU(f *metrics.Family, more ...*promql.Matcher) promql.Expr {
	if f.HasLabel(metrics.LabelGPUInstance) {
		more = append(more, promql.Eq(metrics.LabelGPUInstance, ""))
	}
	return promql.Max(gpus, s.of(f, more...))
}

// gpuRate returns the rate of a counter per GPU.
func (s scope) gpuRate(f *metrics.Family, more ...string) promql.Expr {
	return s.rate(by(gpus, more...), f)
}

// lastHour returns the increase of a counter within an hour. If the counter began or was reset within the hour, it
// returns the whole value. For each point it reads four samples of a series, while increase() reads all samples of the
// hour.
func (s scope) lastHour(labels []string, f *metrics.Family, more ...*promql.Matcher) promql.Expr {
	now := promql.Sum(labels, s.of(f, more...))
	before := promql.Sum(labels, promql.Offset(s.of(f, more...), hour))
	return promql.Sub(now, promql.Or(promql.Le(before, now), promql.Mul(promql.Num(0), now)))
}

// alerts selects the firing alerts of this project.
func (s scope) alerts(more ...*promql.Matcher) promql.Expr {
	return s.of(metrics.Alerts, append(more, promql.Eq("alertstate", "firing"), promql.Ne(metrics.LabelBranch, ""))...)
}

// firing returns 1 for each set of label values with a firing alert of this project.
func (s scope) firing(labels []string, more ...*promql.Matcher) promql.Expr {
	return promql.Max(labels, s.alerts(more...))
}

// labelled adds a label to all results of e.
func labelled(e promql.Expr, label, value string) promql.Expr {
	return promql.Call("label_replace", e, promql.Str(label), promql.Str(value), promql.Str(""), promql.Str(""))
}

// key and keyAtEnd match the text before and after an underscore of a key such as low_clock. For key, the whole text is
// a key. For keyAtEnd, the text ends with a key in parentheses. NVML's own names, which are in capitals, are not keys.
const (
	key      = "(.*[a-z0-9])_([a-z0-9].*)"
	keyAtEnd = "(.*[(].*)_(.*[)])"
)

// spaced replaces the underscores of a key in a label with spaces.
func spaced(e promql.Expr, label, pattern string) promql.Expr {
	for range 3 { // underscores of the longest key
		e = replaced(e, label, "$1 $2", label, pattern)
	}
	return e
}

// ranked adds the position of a label's value in the list as the label order, because tables would sort the values
// alphabetically. Values that are not listed come last.
func ranked(e promql.Expr, label string, values ...string) promql.Expr {
	e = labelled(e, metrics.LabelOrder, strconv.Itoa(1+len(values)))
	for i, value := range values {
		e = replaced(e, metrics.LabelOrder, strconv.Itoa(1+i), label, value)
	}
	return e
}

// limitOf returns the thresholds of the objectives on a signal, as lines with which people compare latencies.
func (s scope) limitOf(signal string) Query {
	info := promql.Vector(metrics.SLOInfo, append(s.where(metrics.SLOInfo), promql.Eq(metrics.LabelSignal, signal))...)
	of := []string{metrics.LabelCluster, metrics.LabelSLO}
	return Query{promql.And(
		promql.Max(of, s.of(metrics.SLOThreshold, promql.Eq(metrics.LabelKind, "effective"))),
		promql.Max(of, info), promql.On(of...)), "limit of {{slo}}"}
}

// labelsOf returns the labels that all results of an expression certainly have. A link can use their values in the
// clicked series.
func labelsOf(e promql.Expr) []string {
	switch e := e.(type) {
	case *parser.AggregateExpr:
		if e.Op == parser.TOPK {
			return labelsOf(e.Expr)
		}
		return e.Grouping
	case *parser.BinaryExpr:
		if e.LHS.Type() == parser.ValueTypeScalar {
			return labelsOf(e.RHS)
		}
		return labelsOf(e.LHS)
	case *parser.ParenExpr:
		return labelsOf(e.Expr)
	case *parser.Call:
		if e.Func.Name == "histogram_quantile" {
			return slices.DeleteFunc(slices.Clone(labelsOf(e.Args[1])), func(l string) bool { return l == "le" })
		}
		for _, arg := range e.Args {
			if labels := labelsOf(arg); labels != nil {
				return labels
			}
		}
	case *parser.MatrixSelector:
		return labelsOf(e.VectorSelector)
	case *parser.VectorSelector:
		if f := promql.Lookup(e.Name); f != nil {
			return f.Labels
		}
	}
	return nil
}

const (
	minute = time.Minute
	hour   = time.Hour
)
