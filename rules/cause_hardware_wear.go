package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// linkHours records the errors of NVLinks once an hour. There are many NVLinks, and a week of raw errors would be
// millions of samples per node.
func linkHours() Group {
	errors := promql.Vector(metrics.GPUNVLinkErrors, promql.Either(metrics.LabelType, "replay|crc|receive|local_integrity|effective"))
	return Group{Name: "llm-nvlink-hours", Interval: hour, Records: []Record{{
		Name: metrics.RecordedLinkErrors,
		Expr: promql.Sum(append([]string{metrics.LabelLink}, gpuLabels...), promql.Increase(errors, hour)),
	}}}
}

// wears returns each NVLink whose errors are three times those of its previous six days, on average over all recorded
// hours. This is a jump, or a rise by half each day. Days include nights, and a week includes its weekend. An NVLink
// needs at least fifty errors, and two earlier days. The result does not depend on how often the errors are recorded.
func wears() promql.Expr {
	errors := promql.Vector(metrics.RecordedLinkErrors)
	days := promql.Offset(errors, day)
	return both(
		promql.Gt(promql.Over("avg_over_time", errors, day), times(3, promql.Over("avg_over_time", days, 6*day))),
		promql.Ge(aDay(errors), promql.Num(50)),
		promql.Over("last_over_time", promql.Offset(errors, 3*day), 2*hour))
}

// aDay returns the errors of a day. Each recorded value counts the errors of one hour.
func aDay(errors promql.Expr) promql.Expr {
	return times(24, promql.Over("avg_over_time", errors, day))
}
