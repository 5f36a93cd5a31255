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

// Grafana's own variables are not PromQL, so expressions contain these stand-ins. The stand-ins cannot occur otherwise.
// When an expression is printed, the variables replace them.
const (
	rateInterval = 7919 * time.Millisecond
	wholeRange   = 7907 * time.Millisecond
)

// standsFor returns the stand-in for the value of a severity, because each installation may choose this value.
func standsFor(s slo.Severity) string { return "the severity " + s.String() }

// named replaces stand-ins by the values of severities, as patterns.
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

// View has the values of Grafana's own variables, for readers without Grafana.
type View struct {
	// Range is the length of the lines in time. Step is the time between two of their points. Rate is the window of rates.
	Range, Step, Rate time.Duration
}

// PromQL writes one query of a panel for Prometheus, with the dashboard's variables at their defaults. i counts the
// panel's queries first, then its limits.
func (b Board) PromQL(p Panel, i int, v View) string {
	values := []string{"$__rate_interval", model.Duration(v.Rate).String(), "$__range", model.Duration(v.Range).String()}
	for _, filter := range b.Variables {
		values = append(values, "$"+filter.name, AllValue)
	}
	return strings.NewReplacer(values...).Replace(named(forGrafana(promql.AnyHistograms(p.drawn(i))), rules.Style{}.WithDefaults().Severities))
}

// These are the label sets that group results, and their legends. A missing label leaves its place in a legend empty.
var (
	// These are label sets of a model.
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

// over returns a / b. It has no result if b is 0, because a share of nothing is not 0.
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

// subquery returns an expression at each minute of a range. The range is as long as the reader's range, and ends at
// each point. Marks last for five minutes.
func subquery(e promql.Expr) *parser.SubqueryExpr {
	return &parser.SubqueryExpr{Expr: &parser.ParenExpr{Expr: e}, Range: wholeRange, Step: minute}
}

// seen returns when series first ("min") or last ("max") existed within the range, in milliseconds.
func seen(which string, labels []string, e promql.Expr) promql.Expr {
	fold := map[string]func([]string, promql.Expr) promql.Expr{"min": promql.Min, "max": promql.Max}[which]
	return promql.Mul(promql.Num(1000), fold(labels, promql.Call(which+"_over_time", subquery(promql.Call("timestamp", e)))))
}

// sinceDay returns when a present series began, within a day, whatever the reader's range. The series began when it was
// last absent for a minute. If it existed all day, it began at or before the start of that day.
func sinceDay(labels []string, e, before promql.Expr) promql.Expr {
	at := func(which string, e promql.Expr) promql.Expr {
		return promql.Call(which+"_over_time", &parser.SubqueryExpr{
			Expr:  &parser.ParenExpr{Expr: promql.Call("timestamp", e)},
			Range: 24 * hour, Step: minute,
		})
	}
	return promql.Mul(promql.Num(1000), promql.OrOn(at("max", promql.Unless(e, before)), at("min", e), promql.On(labels...)))
}

// between returns the worst value of a series between two points of a graph, so that a long range does not hide peaks.
func between(e promql.Expr) promql.Expr { return promql.Over("max_over_time", e, rateInterval) }

// begins keeps the first point of a mark, because a mark lasts for five minutes.
func begins(mark promql.Expr) promql.Expr { return promql.Unless(mark, promql.Offset(mark, minute)) }

// serving keeps the GPUs that run a selected model, or ran one within the hour.
func (s scope) serving(e promql.Expr) promql.Expr {
	return promql.And(e, promql.Max(onGPU, s.of(metrics.RecordedServedGPU)), promql.On(onGPU...))
}

// perGPU folds a family per GPU. It leaves out MIG instances, because the whole GPU includes them.
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

// lastHour returns the growth of a counter within an hour. If the counter began within the hour, it returns the whole
// value. It reads four samples for each point, while increase reads all samples of the hour.
func (s scope) lastHour(labels []string, f *metrics.Family, more ...*promql.Matcher) promql.Expr {
	now := promql.Sum(labels, s.of(f, more...))
	before := promql.Sum(labels, promql.Offset(s.of(f, more...), hour))
	return promql.Sub(now, promql.Or(promql.Le(before, now), promql.Mul(promql.Num(0), now)))
}

// alerts selects the firing alerts of this project.
func (s scope) alerts(more ...*promql.Matcher) promql.Expr {
	return s.of(metrics.Alerts, append(more, promql.Eq("alertstate", "firing"), promql.Ne(metrics.LabelBranch, ""))...)
}

// firing returns the firing alerts of this project.
func (s scope) firing(labels []string, more ...*promql.Matcher) promql.Expr {
	return promql.Max(labels, s.alerts(more...))
}

// labelled gives all results of e a label.
func labelled(e promql.Expr, label, value string) promql.Expr {
	return promql.Call("label_replace", e, promql.Str(label), promql.Str(value), promql.Str(""), promql.Str(""))
}

// key and keyAtEnd match the parts of a text beside an underscore of a key. The text is a key, or ends with a key in
// parentheses. NVML's own names, which are in capitals, are not keys.
const (
	key      = "(.*[a-z0-9])_([a-z0-9].*)"
	keyAtEnd = "(.*[(].*)_(.*[)])"
)

// spaced writes the words of a key with spaces.
func spaced(e promql.Expr, label, pattern string) promql.Expr {
	for range 3 { // underscores of the longest key
		e = replaced(e, label, "$1 $2", label, pattern)
	}
	return e
}

// ranked adds the rank of a label's value, because the names of the values would sort alphabetically. Values that are
// not listed come last.
func ranked(e promql.Expr, label string, values ...string) promql.Expr {
	e = labelled(e, metrics.LabelOrder, strconv.Itoa(1+len(values)))
	for i, value := range values {
		e = replaced(e, metrics.LabelOrder, strconv.Itoa(1+i), label, value)
	}
	return e
}

// limitOf returns the threshold of the objectives on a signal, as a line to compare latencies with.
func (s scope) limitOf(signal string) Query {
	info := promql.Vector(metrics.SLOInfo, append(s.where(metrics.SLOInfo), promql.Eq(metrics.LabelSignal, signal))...)
	of := []string{metrics.LabelCluster, metrics.LabelSLO}
	return Query{promql.And(
		promql.Max(of, s.of(metrics.SLOThreshold, promql.Eq(metrics.LabelKind, "effective"))),
		promql.Max(of, info), promql.On(of...)), "limit of {{slo}}"}
}

// labelsOf returns the labels that all results of an expression certainly have. A link can take these labels from the
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
