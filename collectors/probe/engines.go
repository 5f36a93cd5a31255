package probe

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/config"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/internal/httpclient"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// refusedFor is how long an engine that has refused all requests is not probed.
const refusedFor = time.Hour

// Offer sets the models of the node's engines, for probes of engines.
func (c *Collector) Offer(offers []engine.Offer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !reflect.DeepEqual(c.offers, offers) {
		c.offers = offers
		c.change()
	}
}

// expand returns the probes to run. These are the configured probes, and one probe for each offered model that no
// configured probe requests. If the metrics page of an engine was not read since a reload, its probe continues.
func (c *Collector) expand(before []running) (probes []*Probe) {
	c.mu.Lock()
	defer c.mu.Unlock()
	probes = slices.DeleteFunc(slices.Clone(c.wanted), func(p *Probe) bool { return p.cfg.Engines })
	configured := probes
	for _, each := range c.wanted {
		if !each.cfg.Engines {
			continue
		}
		others := len(probes)
		for _, o := range c.offers {
			switch {
			case o.Unread:
				for _, r := range before {
					if r.cfg.Engines && r.cfg.Name == each.cfg.Name && r.at.Server == o.Server {
						probes = append(probes, r.Probe)
					}
				}
				continue
			case slices.ContainsFunc(configured, func(p *Probe) bool { return p.asks(o) }):
				continue
			}
			p, err := each.of(o)
			if err != nil {
				c.log.Warn("engine cannot be probed", "server", o.Server, "err", err)
				continue
			}
			probes = append(probes, p)
		}
		each.share(len(slices.DeleteFunc(slices.Clone(probes[others:]), func(p *Probe) bool { return p.at.Declined != "" })))
	}
	return probes
}

// asks reports whether a configured probe requests the model of an offer.
func (p *Probe) asks(o engine.Offer) bool {
	return o.IsAt(p.base.Host) && (p.cfg.Model == o.Model || sameModel(p.cfg.Model, o.Name))
}

// of returns the probe for the model of an offer. It shares the budget of p.
func (p *Probe) of(o engine.Offer) (*Probe, error) {
	if o.Declined != "" {
		return &Probe{cfg: Config{Engines: true, Name: p.cfg.Name}, at: o}, nil
	}
	cfg := p.cfg
	switch to := cfg.CredentialsFor; {
	case !httpclient.HasCredentials(cfg.HTTP) || !reflect.DeepEqual(o.HTTP, config.HTTPClientConfig{}):
	case !to.selects(o):
		cfg.HTTP = httpclient.WithoutCredentials(cfg.HTTP)
	case !to.InClear && !strings.HasPrefix(o.URL, "https://"):
		o.Declined = engine.DeclinedClear
		return p.of(o)
	}
	one, err := compileAt(o.Server, cfg, o, p.interval, p.userAgent)
	if err == nil {
		one.budget = p.budget
	}
	return one, err
}

// pace returns the mean time between two requests. If many probes share a budget, the time is long enough for the
// budget. A tenth of the budget remains for requests that confirm a failure.
func (p *Probe) pace() time.Duration {
	if !p.cfg.Engines {
		return p.interval
	}
	hours := 1.1 * float64(p.shared()*p.cost()) / float64(p.cfg.TokensPerHour)
	return max(p.interval, time.Duration(hours*float64(time.Hour)))
}

// engine exports whether the model of a probe is probed. If it is not, the series has the reason.
func (c *Collector) engine(p *Probe, declined string) {
	c.engineAsked.DeletePartialMatch(p.identity())
	c.engineAsked.WithLabelValues(append(p.labels(), declined)...).Set(metrics.Bool(declined == ""))
	if declined != "" {
		c.log.Info("engine is not probed", "server", p.at.Server, "model", p.at.Model, "reason", declined)
	}
}

// judge pauses the probes of a discovered engine that has refused all requests. Such an engine generates no text, uses
// another name for the model, or requires a key.
func (c *Collector) judge(p *Probe, r *result) {
	p.answers = p.answers || r.whole()
	refused := p.cfg.Engines && !p.answers && (r.outcome == metrics.ProbeClientError || r.outcome == metrics.ProbeInvalid)
	if refused == p.refused {
		return
	}
	p.refused = refused
	declined := ""
	if refused {
		declined = string(r.outcome)
	}
	c.engine(p, declined)
}
