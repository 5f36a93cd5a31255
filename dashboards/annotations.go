package dashboards

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// mark describes an event that is drawn across all panels, as a thin line of constant width. Grafana's Prometheus data
// source marks the times at which a series is exactly 1. For an alert, it would draw a block over every panel while the
// alert fires. Grafana requests one point per pixel (one per half hour for a month), so a mark stands for all events
// since the previous point.
type mark struct {
	name, colour, title, text string
	expr                      promql.Expr
}

// marks returns the events that may explain a change in any panel. page is the severity label of alerts that page. The
// events are recorded series that exist only during an event, so a month of events costs almost nothing.
func (s scope) marks(page string) []mark {
	alert := []string{"alertname", metrics.LabelNamespace, metrics.LabelModel, metrics.LabelGPUUUID}
	pages := s.alerts(promql.Eq(metrics.LabelSeverity, page))
	now, before := promql.Max(alert, between(pages)), promql.Max(alert, between(promql.Offset(pages, rateInterval)))
	return []mark{
		{
			"Pages", vermilion, "{{alertname}} {{state}}", "{{model_name}} {{gpu_uuid}}",
			promql.Or(labelled(promql.Unless(now, before), metrics.LabelState, "begins"), labelled(promql.Unless(before, now),
				metrics.LabelState, "ends")),
		},
		{
			"Changes", purple, "{{setting}} of {{model_name}} changes from {{old}} to {{new}}", "{{namespace}} {{cluster}}",
			promql.Call("clamp_max", s.rollouts(rateInterval), promql.Num(1)),
		},
		{"Restarts", sky, "Replicas of {{model_name}} start", "{{namespace}} {{cluster}}", once(models, s.of(metrics.RecordedStarted))},
	}
}

// rollouts returns when settings of models changed within the last hour, unless they had also changed in the half hour
// before: replicas that change one after the other are one rollout. The hour is longer than the time between two points
// of a month's graph.
func (s scope) rollouts(interval time.Duration) promql.Expr {
	changed := s.of(metrics.RecordedChanged)
	lately := promql.Gt(changed, promql.Sub(promql.Call("time"), promql.Num(hour.Seconds())))
	return promql.Unless(lately, promql.Lt(changed, promql.Add(promql.Offset(changed, interval), promql.Num((hour/2).Seconds()))))
}

// once marks the first point of a graph at or after an event. Further events with the same labels within half an hour,
// such as those of other replicas, get no mark.
func once(labels []string, marked promql.Expr) promql.Expr {
	return promql.Unless(promql.Max(labels, between(marked)), promql.Max(labels,
		promql.Over("last_over_time", promql.Offset(marked, rateInterval), hour/2)))
}
