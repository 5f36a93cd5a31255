package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/internal/httpclient"
)

// On some servers, models call each other, and one request counts under each model that works on it. The metrics page
// does not show which models a model calls. Therefore, the exporter queries each model's configuration.

// mostChained is the largest number of models whose configuration the exporter queries. If a server has more models,
// the exporter queries none of them.
const mostChained = 100

// chainsTimeout limits the requests to another port, because that port may not answer.
const chainsTimeout = time.Second

// unchained reports whether the metrics page has a model about which it is unknown which models it calls.
func (d *Dialect) unchained(page *scrape.Page, known map[string]Chain) bool {
	if d.Chains == nil {
		return false
	}
	for model := range page.LabelValues(d.Chained, modelParameter) {
		if _, ok := known[model]; !ok {
			return true
		}
	}
	return false
}

// chains queries, for each model of the metrics page, which models this model calls. If one answer is missing, chains
// fails, because a request would count twice.
func (t *target) chains(ctx context.Context, d *Dialect, page *scrape.Page) (map[string]Chain, error) {
	models := slices.Sorted(maps.Keys(page.LabelValues(d.Chained, modelParameter)))
	if len(models) > mostChained {
		return nil, fmt.Errorf("%d models are too many to query the configuration of each", len(models))
	}
	chains, err := d.Chains(ctx, t.get(d), models)
	port := d.APIPorts[t.At.Base.Port()]
	if none := (*scrape.StatusError)(nil); port == "" || !errors.As(err, &none) || none.Code != http.StatusNotFound {
		return chains, err
	}
	there := t.from
	there.URL = (&url.URL{Scheme: t.At.Base.Scheme, Host: net.JoinHostPort(t.At.Base.Hostname(), port)}).String()
	there.HTTP = httpclient.WithoutCredentials(there.HTTP) // the configured parameters are only for the port of the metrics endpoint
	other, _, err := fetcherFor("", there, t.config.Limits, t.UserAgent)
	if err != nil {
		return nil, err
	}
	defer other.Client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, chainsTimeout)
	defer cancel()
	return d.Chains(ctx, other.Document, models)
}
