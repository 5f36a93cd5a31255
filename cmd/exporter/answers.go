package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/internal/httpclient"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// PrometheusConfig names the Prometheus that answers the runbooks' queries. The verdict also queries this Prometheus
// about the past.
type PrometheusConfig struct {
	// URL is the address of the Prometheus, without /api/v1. It may have a path.
	URL string `yaml:"url"`
	// HTTP is Prometheus' own client configuration: TLS, credentials from files, proxy.
	HTTP config.HTTPClientConfig `yaml:"http_config"`
}

// These constants limit how much load runbooks cause on a Prometheus. Readers can choose only among the queries of the
// runbooks.
const (
	answerWithin = 5 * time.Second
	answerBytes  = 1 << 20
	askedAtOnce  = 4
)

// asker returns the client for the runbooks' queries. If no Prometheus is configured, it returns nil.
func (c *PrometheusConfig) asker() (runbooks.Asker, error) {
	if c == nil {
		return nil, nil
	}
	client, address, err := c.client()
	if err != nil {
		return nil, err
	}
	connected, err := api.NewClient(api.Config{Address: address.String(), Client: client})
	if err != nil {
		return nil, err
	}
	asks, slots := prometheus.NewAPI(connected), make(chan struct{}, askedAtOnce)
	return func(ctx context.Context, query string, most int) ([]runbooks.Series, error) {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return nil, fmt.Errorf("%d queries are running, and none ended within %s: reload the runbook later", askedAtOnce, answerWithin)
		}
		ask := func(query string) ([]runbooks.Series, error) {
			found, _, _, err := asks.Query(ctx, query, time.Now(), prometheus.WithTimeout(answerWithin), prometheus.WithLimit(uint64(most)))
			return series(found), err
		}
		found, err := ask(query)
		if either, ok := promql.WithNative(query); ok && err == nil && len(found) == 0 {
			found, _ = ask(either)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("the Prometheus in the exporter's configuration took longer than %s", answerWithin)
		}
		if err != nil {
			return nil, fmt.Errorf("see prometheus in the exporter's configuration: %w", err)
		}
		return found, nil
	}, nil
}

// client returns the address of the Prometheus, and a client that reads only a limited part of each answer.
func (c *PrometheusConfig) client() (*http.Client, *url.URL, error) {
	client, address, err := httpclient.To("prometheus", c.URL, c.HTTP, nil)
	if err == nil {
		client.Transport = bounded{client.Transport}
	}
	return client, address, err
}

// past returns the source of past values, with which the verdict compares the present. If no Prometheus is configured,
// it returns nil.
func (c *PrometheusConfig) past() (triage.Past, error) {
	if c == nil {
		return nil, nil
	}
	client, address, err := c.client()
	if err != nil {
		return nil, err
	}
	return triage.Prometheus(client, address.String()), nil
}

// series converts the result of an instant query to series for runbooks.
func series(v model.Value) (all []runbooks.Series) {
	switch v := v.(type) {
	case model.Vector:
		for _, s := range v {
			labels := map[string]string{}
			for name, value := range s.Metric {
				labels[string(name)] = string(value)
			}
			all = append(all, runbooks.Series{Labels: labels, Value: float64(s.Value)})
		}
	case *model.Scalar:
		all = append(all, runbooks.Series{Value: float64(v.Value)})
	}
	return all
}

// bounded limits how many bytes of an answer can be read.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, answerBytes)
	}
	return response, err
}
