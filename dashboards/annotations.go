package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// mark is an event that is drawn across all panels. Grafana's Prometheus data source marks the times at
// which a series is exactly 1.
type mark struct {
	name, colour, title, text string
	expr                      promql.Expr
}

// marks are the events that explain a change of any line. They are recorded, and exist only while there is
// something to mark: a month of them costs next to nothing.
func (s scope) marks() []mark {
	return []mark{
		{"Alerts", vermilion, "{{alertname}}", "{{model_name}} {{gpu_uuid}}",
			s.firing([]string{"alertname", metrics.LabelNamespace, metrics.LabelModel, metrics.LabelGPUUUID})},
		{"Deploys", purple, "{{model_name}} now runs {{version}}", "{{namespace}} {{cluster}}", s.of(metrics.RecordedDeployed)},
		{"Restarts", sky, "{{pod}} {{server}} started", "{{model_name}} {{namespace}} {{cluster}}", s.of(metrics.RecordedStarted)},
	}
}
