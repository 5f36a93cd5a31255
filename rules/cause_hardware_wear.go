package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// linkHours records the errors of NVLinks once an hour. For a week of raw counters, Prometheus would have to read
// millions of samples per node.
func linkHours() Group {
	errors := promql.Vector(metrics.GPUNVLinkErrors, promql.Either(metrics.LabelType, "replay|crc|receive|local_integrity|effective"))
	return Group{Name: "llm-nvlink-hours", Interval: hour, Records: []Record{{
		Name: metrics.RecordedLinkErrors,
		Expr: promql.Sum(append([]string{metrics.LabelLink}, gpuLabels...), promql.Increase(errors, hour)),
	}}}
}

// wears returns each NVLink with more than three times as many errors per hour in the last day as in the six days
// before. This is a sudden increase, or an increase by half each day. The windows are whole days, so that nights and a
// weekend count. An NVLink needs at least fifty errors in the last day, and two days of history before.
func wears() promql.Expr {
	errors := promql.Vector(metrics.RecordedLinkErrors)
	days := promql.Offset(errors, day)
	return both(
		promql.Gt(promql.Over("avg_over_time", errors, day), times(3, promql.Over("avg_over_time", days, 6*day))),
		promql.Ge(aDay(errors), promql.Num(50)),
		promql.Over("last_over_time", promql.Offset(errors, 3*day), 2*hour))
}

// aDay returns the errors of the last day. It multiplies the mean by 24, because each recorded value is the number of
// errors in one hour.
func aDay(errors promql.Expr) promql.Expr {
	return times(24, promql.Over("avg_over_time", errors, day))
}
