package triage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Prometheus returns a Past that queries the Prometheus server at an address.
func Prometheus(client *http.Client, address string) Past {
	return func(ctx context.Context, query string, at time.Time) (engine.Vector, error) {
		form := url.Values{"query": {query}, "time": {strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)}}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(address, "/")+"/api/v1/query",
			strings.NewReader(form.Encode()))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		var answer struct {
			Error string `json:"error"`
			Data  struct {
				Result model.Vector `json:"result"`
			} `json:"data"`
		}
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("%s answered %s: %s", address, response.Status, cmp.Or(answer.Error, "is it a Prometheus?"))
		}
		var v engine.Vector
		for _, s := range answer.Data.Result {
			b := labels.NewBuilder(labels.EmptyLabels())
			for name, value := range s.Metric {
				b.Set(string(name), string(value))
			}
			v = append(v, engine.Sample{Metric: b.Labels(), T: at.UnixMilli(), F: float64(s.Value)})
		}
		return v, nil
	}
}

// ScrapeLabels returns the labels that a Prometheus adds when it scrapes the series of a reading. Without these labels,
// the series of an engine in Prometheus cannot be matched to the readings. ScrapeLabels looks up an engine of the
// reading. If Prometheus finds no such engine, or several, ScrapeLabels returns no labels.
func ScrapeLabels(ctx context.Context, r Reading, past Past) (labels.Labels, error) {
	for _, s := range r.Series {
		if s.Metric.Get(model.MetricNameLabel) != metrics.EngineInfo.Name {
			continue
		}
		var same []*promql.Matcher
		for _, name := range []string{metrics.LabelNamespace, metrics.LabelPod, metrics.LabelServer, metrics.LabelModel} {
			same = append(same, promql.Eq(name, s.Metric.Get(name)))
		}
		scraped, err := past(ctx, promql.Max([]string{metrics.LabelCluster, "job", metrics.LabelInstance},
			promql.Over("last_over_time", promql.Vector(metrics.EngineInfo, same...), time.Hour)).String(), r.At)
		if err != nil || len(scraped) != 1 {
			return labels.EmptyLabels(), err
		}
		return scraped[0].Metric, nil
	}
	return labels.EmptyLabels(), nil
}

// With returns a copy of the reading in which each series has more labels.
func (r Reading) With(more labels.Labels) Reading {
	series := make(engine.Vector, len(r.Series))
	for i, s := range r.Series {
		b := labels.NewBuilder(s.Metric)
		more.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
		series[i] = engine.Sample{Metric: b.Labels(), F: s.F}
	}
	return Reading{At: r.At, Series: series}
}
