package engine

import (
	"net/url"
	"slices"

	"github.com/prometheus/common/config"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Offer describes a model of a target, and how clients request it.
type Offer struct {
	// URL has scheme, host, port and prefix. HTTP has the other settings of the connection.
	URL  string
	HTTP config.HTTPClientConfig
	// API names the API to use, and Name is the model's name for clients.
	API, Name string
	// Declined explains why requests may not be sent to the target, as one of the Declined constants. It is empty if
	// requests may be sent.
	Declined string
	// Model, Server, Namespace, Pod and Container are labels of the engine's series.
	Model, Server, Namespace, Pod, Container string
	// Labels are the target's labels from the configuration or discovery, without labels of the metrics page.
	Labels map[string]string
	// Unread means that no scrape has succeeded yet. Then only Server is set.
	Unread bool
}

// These are the reasons why requests may not be sent to a target.
const (
	DeclinedGateway  = "gateway"     // the target forwards requests to engines that have their own offers
	DeclinedRole     = "role"        // the target does only a part of the work, such as prefill, and a router sends requests to it
	DeclinedEndpoint = "no_endpoint" // the port of its metrics endpoint accepts no text-generation requests
	DeclinedModel    = "no_model"    // the target names no model, because none is loaded or the server does not list its models
	DeclinedClear    = "clear"       // the target has a credential, which would be sent without encryption
)

// offer adds a model of the metrics page to the plan's offers. name is the model's name for clients.
func (c *compiler) offer(d *Dialect, model, name, role string) {
	o := Offer{API: d.API, Name: name, Model: model}
	switch {
	case d.Role == metrics.GatewayRole:
		o = Offer{Declined: DeclinedGateway}
	case d.API == "":
		o = Offer{Declined: DeclinedEndpoint}
	case role != "":
		o.Declined = DeclinedRole
	case name == "":
		o.Declined = DeclinedModel
	}
	// A supplement on an engine's metrics page offers nothing, and a model is offered only once.
	if len(c.plan.offers) == 0 || d.API != "" && !slices.ContainsFunc(c.plan.offers, func(other Offer) bool { return other.Model == model }) {
		c.plan.offers = append(c.plan.offers, o)
	}
}

// Offers lists the models of all targets, as of their last metrics pages.
func (c *Collector) Offers() (all []Offer) {
	for _, t := range c.targets {
		t.mu.Lock()
		offers := t.offers
		t.mu.Unlock()
		if offers == nil {
			offers = []Offer{{Unread: true}}
		}
		for _, o := range offers {
			o.URL, o.HTTP, o.Labels = t.At.Base.String(), t.from.HTTP, t.from.Labels
			o.Server, o.Namespace, o.Pod, o.Container = t.server, t.fixed[metrics.LabelNamespace], t.fixed[metrics.LabelPod],
				t.fixed[metrics.LabelContainer]
			all = append(all, o)
		}
	}
	return all
}

// IsAt reports whether the offer is at a host and port.
func (o Offer) IsAt(host string) bool {
	u, err := url.Parse(o.URL)
	return err == nil && scrape.SameServer(u.Host, host)
}
