package dashboards

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// mark describes an event that is drawn across all panels, as a thin line of constant width. Grafana's Prometheus data
// source marks the times at which a series is exactly 1. For an alert, it would draw a block over every panel while the
// alert fires. It requests as many points as the screen has pixels (one per half hour for a month), so one mark covers
// all events since the previous point.
type mark struct {
	name, colour, title, text string
	expr                      promql.Expr
}

// marks returns the events that explain a change of any line. page is the severity of alerts that page. The events are
// recorded series that exist only during an event, so a month of events costs almost nothing.
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

// rollouts returns when settings of models changed, unless they had also changed within the half hour before. If replicas change one after
// the other, this is one rollout. The hour is longer than the time between two points in a month.
func (s scope) rollouts(interval time.Duration) promql.Expr {
	changed := s.of(metrics.RecordedChanged)
	lately := promql.Gt(changed, promql.Sub(promql.Call("time"), promql.Num(hour.Seconds())))
	return promql.Unless(lately, promql.Lt(changed, promql.Add(promql.Offset(changed, interval), promql.Num((hour/2).Seconds()))))
}

// once marks the first point of a graph at or after an event. Many replicas may share the event within half an hour.
func once(labels []string, marked promql.Expr) promql.Expr {
	return promql.Unless(promql.Max(labels, between(marked)), promql.Max(labels,
		promql.Over("last_over_time", promql.Offset(marked, rateInterval), hour/2)))
}
