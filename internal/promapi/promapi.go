// Package promapi queries a Prometheus, and explains why a query failed.
package promapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/llm-node-exporter/llm-node-exporter/internal/httpclient"
)

// Connect returns a client for the API of the Prometheus at an address. httpConfig is empty, or names a file with
// Prometheus' HTTP client configuration. If wrap is not nil, it wraps the client's HTTP transport.
func Connect(address, httpConfig string, wrap func(http.RoundTripper) http.RoundTripper) (prometheus.API, error) {
	if _, err := httpclient.Address("prometheus", address, "http-config"); err != nil {
		return nil, err
	}
	settings, err := httpclient.Load("http-config", httpConfig)
	if err != nil {
		return nil, err
	}
	client, err := httpclient.New("", settings)
	if err != nil {
		return nil, fmt.Errorf("--http-config: %w", err)
	}
	transport := client.Transport
	if wrap != nil {
		transport = wrap(transport)
	}
	c, err := api.NewClient(api.Config{Address: address, RoundTripper: transport})
	if err != nil {
		return nil, fmt.Errorf("--prometheus %s: %w", address, err)
	}
	return prometheus.NewAPI(c), nil
}

// Explain returns an error with the remedy for a failed query, or nil if the query did not fail.
func Explain(address, expr string, err error) error {
	var failed *prometheus.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed) && strings.HasSuffix(failed.Msg, strconv.Itoa(http.StatusUnauthorized)),
		errors.As(err, &failed) && strings.HasSuffix(failed.Msg, strconv.Itoa(http.StatusForbidden)):
		return fmt.Errorf("%s requires credentials (%s): write them into a file of Prometheus' HTTP client configuration, "+
			"such as basic_auth: {username: u, password_file: f}, and give --http-config=FILE", address, failed.Msg)
	case errors.As(err, &failed) && failed.Type != prometheus.ErrBadResponse && failed.Type != prometheus.ErrClient:
		return fmt.Errorf("%s refuses %s: %w", address, expr, err)
	case errors.As(err, &failed):
		return fmt.Errorf("%s does not answer like a Prometheus (%w): give the address before /api/v1, with its path", address, err)
	}
	return fmt.Errorf("cannot reach %s: %w", address, err)
}
