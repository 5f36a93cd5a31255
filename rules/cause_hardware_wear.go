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

// fatalSXIDs returns how many seconds ago each NVSwitch reported a fatal error within the last day. The time of an error
// outlasts the exporter, and its counter begins with it.
func fatalSXIDs() promql.Expr {
	last := promql.Max([]string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelPCIBusID, metrics.LabelSXID},
		promql.Vector(metrics.GPUSXIDLastTimestamp, promql.Eq(metrics.LabelSeverity, "fatal")))
	return below(promql.Sub(promql.Call("time"), last), day.Seconds())
}

// ticketXIDs returns the XIDs of the last hours that neither page nor are the application's own affair, those that the
// catalogue does not list among them: their counters begin with the first event, which no increase shows.
func ticketXIDs() promql.Expr {
	of, window := append([]string{metrics.LabelXID}, gpuLabels...), 6*hour
	counted := promql.Vector(metrics.GPUXIDErrors)
	return promql.Unless(
		above(promql.Or(promql.Unless(promql.Sum(of, counted), promql.Sum(of, promql.Offset(counted, window))), promql.Sum(of, promql.Increase(counted, window))), 0),
		promql.Vector(metrics.GPUXIDInfo, promql.Ne(metrics.LabelSeverity, string(metrics.XIDTicket))), promql.On(metrics.LabelXID))
}

// managerGone returns each node whose fabric manager does not run, though NVSwitches need one or it ran within the week.
func managerGone() promql.Expr {
	node := []string{metrics.LabelCluster, metrics.LabelInstance}
	up := promql.Vector(metrics.GPUFabricManagerUp)
	needed := promql.Or(above(promql.Max(node, promql.Vector(metrics.GPUSwitches)), 0), above(promql.Max(node, promql.Over("max_over_time", up, 7*day)), 0))
	return promql.And(promql.Equal(promql.Max(node, up), promql.Num(0)), needed)
}
