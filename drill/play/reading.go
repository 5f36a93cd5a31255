package play

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// Reading returns the last scrape of the simulated Prometheus before a time. A person would have seen these metrics on
// the node's metrics page.
func (p *Play) Reading(at time.Time) (triage.Reading, error) {
	all, err := p.Prometheus.Query(`{__name__=~"llm_.+",job!=""}`, at)
	return triage.Reading{At: at, Series: all}, err
}

// Past answers a query about the past from the samples of the simulated Prometheus.
func (p *Play) Past(_ context.Context, query string, at time.Time) (promql.Vector, error) {
	return p.Prometheus.Query(query, at)
}
