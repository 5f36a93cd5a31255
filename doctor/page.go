package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Reading holds one exporter's metrics at one time.
type Reading struct {
	// Exporter is the exporter's address, for people.
	Exporter string
	page     map[string]*dto.MetricFamily
	engines  struct {
		Engines, Places []place
		Problem         string
	}
}

// place is an engine, or an address that could have an engine, from the list at /engines.
type place struct {
	Server, Namespace, Pod, State, Todo string
}

// series is a series of a metrics page.
type series struct {
	labels map[string]string
	value  float64
}

// These limit the size of an answer, and the time to wait for it.
const (
	bodyLimit = 256 << 20
	patience  = 30 * time.Second
)

// buildInfo is a family that only exporters of this project have.
const buildInfo = "llm_exporter_build_info"

// Read reads an exporter. Without a path in its address, its metrics are at /metrics.
func Read(ctx context.Context, client *http.Client, at *url.URL) (*Reading, error) {
	page := *at
	if page.Path == "" || page.Path == "/" {
		page.Path = "/metrics"
	}
	body, err := get(ctx, client, page.String(), "")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	r := &Reading{Exporter: at.Host}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if r.page, err = parser.TextToMetricFamilies(body); err != nil || r.page[buildInfo] == nil {
		return nil, fmt.Errorf("%s answers, but is not llm-node-exporter: it has no %s", page.String(), buildInfo)
	}
	page.Path = "/engines"
	list, err := get(ctx, client, page.String(), "application/json")
	if err != nil {
		return nil, err
	}
	defer list.Close()
	return r, json.NewDecoder(list).Decode(&r.engines)
}

// get requests a document. The caller closes it.
func get(ctx context.Context, client *http.Client, address, accept string) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req) //nolint:bodyclose // the caller closes it
	if err != nil {
		cancel()
		return nil, err
	}
	body := bounded{io.LimitReader(resp.Body, bodyLimit), resp.Body, cancel}
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		_ = body.Close()
		return nil, fmt.Errorf("%s: %s: %w", address, resp.Status, errCredentials)
	}
	if resp.StatusCode != http.StatusOK {
		_ = body.Close()
		return nil, fmt.Errorf("%s: %s", address, resp.Status)
	}
	return body, nil
}

// errCredentials reports that a server requires credentials.
var errCredentials = errors.New("it requires credentials")

// bounded is a body that ends its request when it is closed.
type bounded struct {
	io.Reader
	body   io.Closer
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b bounded) Close() error {
	defer b.cancel()
	return b.body.Close()
}

// of returns the series of a family with these label values, given as alternating names and values. The value of a
// histogram is its count.
func (r *Reading) of(f *metrics.Family, where ...string) []series {
	return r.named(f.Name, where...)
}

func (r *Reading) named(name string, where ...string) []series {
	var all []series
	for _, m := range r.page[name].GetMetric() {
		s := series{labels: map[string]string{}}
		for _, l := range m.Label {
			s.labels[l.GetName()] = l.GetValue()
		}
		switch {
		case m.Gauge != nil:
			s.value = m.Gauge.GetValue()
		case m.Counter != nil:
			s.value = m.Counter.GetValue()
		case m.Histogram != nil:
			s.value = float64(m.Histogram.GetSampleCount())
		}
		match := true
		for pair := range slices.Chunk(where, 2) {
			match = match && s.labels[pair[0]] == pair[1]
		}
		if match {
			all = append(all, s)
		}
	}
	return all
}

// is reports whether any of the series has this value.
func is(all []series, value float64) bool {
	return slices.ContainsFunc(all, func(s series) bool { return s.value == value })
}
