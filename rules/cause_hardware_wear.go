package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// linkHours records the errors of NVLinks once an hour: they are many, and a week of raw errors is millions of samples per
// node.
func linkHours() Group {
	errors := promql.Vector(metrics.GPUNVLinkErrors, promql.Either(metrics.LabelType, "replay|crc|receive|local_integrity|effective"))
	return Group{Name: "llm-nvlink-hours", Interval: hour, Records: []Record{{Name: metrics.RecordedLinkErrors,
		Expr: promql.Sum(append([]string{metrics.LabelLink}, gpuLabels...), promql.Increase(errors, hour))}}}
}

// wears returns each NVLink with three times the errors of its six days before, averaged over all recorded hours:
// either a jump, or days that each add half. Days include nights, and a week its weekend. Fifty errors are the least
// that counts, two days the least to compare with. Nothing here depends on how often the errors are recorded.
func wears() promql.Expr {
	errors := promql.Vector(metrics.RecordedLinkErrors)
	days := promql.Offset(errors, day)
	return both(
		promql.Gt(promql.Over("avg_over_time", errors, day), times(3, promql.Over("avg_over_time", days, 6*day))),
		promql.Ge(aDay(errors), promql.Num(50)),
		promql.Over("last_over_time", promql.Offset(errors, 3*day), 2*hour))
}

// aDay returns the errors of a day, of which each recorded value counts those of an hour.
func aDay(errors promql.Expr) promql.Expr {
	return times(24, promql.Over("avg_over_time", errors, day))
}
