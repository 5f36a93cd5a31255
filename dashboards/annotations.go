package dashboards

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// mark is an event that is drawn across all panels. Grafana's Prometheus data source marks the times at
// which a series is exactly 1.
type mark struct {
	name, colour, title, text string
	expr                      promql.Expr
}

// marks are the events that explain a change of any line.
func (s scope) marks() []mark {
	version, model := by(models, metrics.LabelVersion), models
	info := func(window, ago time.Duration) promql.Expr {
		return promql.Over("last_over_time", promql.Offset(s.of(metrics.EngineInfo), ago), window)
	}
	deployed := promql.And(
		promql.Unless(promql.Max(version, s.of(metrics.EngineInfo)), promql.Max(version, info(15*time.Minute, 5*time.Minute)), nil),
		promql.Max(model, info(15*time.Minute, 5*time.Minute)), promql.On(model...))
	// An engine shows its page, and with it its start, only once it is loaded: what counts is that the start
	// is another one than before, not how long ago it was.
	start := s.of(metrics.EngineStartTime)
	now, before := promql.Max(pages, start), promql.Max(pages, promql.Over("last_over_time", promql.Offset(start, 5*time.Minute), 15*time.Minute))
	started := promql.And(promql.Unless(now, promql.Equal(now, before, nil), nil), promql.Max(pages, s.of(metrics.EngineInfo)), promql.On(pages...))
	return []mark{
		{"Alerts", vermilion, "{{alertname}}", "{{model_name}} {{gpu_uuid}}",
			s.firing([]string{"alertname", metrics.LabelNamespace, metrics.LabelModel, metrics.LabelGPUUUID})},
		{"Deploys", purple, "{{model_name}} now runs {{version}}", "{{namespace}} {{cluster}}", deployed},
		{"Restarts", sky, "{{pod}} {{server}} started", "{{namespace}} {{cluster}}", promql.Call("sgn", started)},
	}
}
