package play

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// Reading returns what the simulated Prometheus scraped last at a time: what somebody would have read on the node.
func (p *Play) Reading(at time.Time) (triage.Reading, error) {
	all, err := p.Prometheus.Query(`{__name__=~"llm_.+"}`, at)
	return triage.Reading{At: at, Series: all}, err
}

// Past answers as the simulated Prometheus.
func (p *Play) Past(_ context.Context, query string, at time.Time) (promql.Vector, error) {
	return p.Prometheus.Query(query, at)
}
