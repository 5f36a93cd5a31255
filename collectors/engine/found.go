package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// With returns a collector that reads the found targets as well as the configured targets. A target that was already
// read keeps its state, and its scrape in progress ends normally. A found target at the server of a configured target
// is left out. The error names invalid targets. All other targets are read.
func (c *Collector) With(found []TargetConfig) (*Collector, error) {
	next := &Collector{configured: c.configured, targets: slices.Clone(c.configured), dialects: c.dialects, config: c.config}
	var failed []error
	for _, cfg := range found {
		if next.reads(cfg.URL) {
			continue
		}
		i := slices.IndexFunc(c.targets, func(t *target) bool { return sameTarget(t.from, cfg) })
		if i >= 0 {
			c.targets[i].runsImage(cfg.Image)
			next.targets = append(next.targets, c.targets[i])
			continue
		}
		t, err := newTarget(cfg.URL, cfg, c.dialects, c.config)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		next.targets = append(next.targets, t)
	}
	next.left = c.leave(next)
	c.config.pages.keep(next.targets)
	c.config.read.Store(&next.targets)
	return next, errors.Join(failed...)
}

// departure is a model that an engine served when it was last read. It also names the engine.
type departure struct {
	server string
	at     time.Time
}

// These limits apply to the data about engines that are no longer found.
const (
	leftFor  = time.Hour
	mostLeft = 256
)

// leave returns the departures of the last hour when next replaces c. The keys are series. Servers that are back are left out.
func (c *Collector) leave(next *Collector) map[string]departure {
	all := maps.Clone(c.left)
	for _, t := range c.targets {
		t.mu.Lock()
		served, role := t.served, t.known.role
		t.mu.Unlock()
		if slices.Contains(next.targets, t) || role != "" {
			continue
		}
		for last, at := range served {
			if all == nil {
				all = map[string]departure{}
			}
			all[strings.Replace(last, metrics.EngineLastServed.Name, metrics.EngineLeft.Name, 1)] = departure{t.server, at}
		}
	}
	maps.DeleteFunc(all, func(_ string, d departure) bool {
		return c.config.Now().Sub(d.at) > leftFor || slices.ContainsFunc(next.targets, func(t *target) bool { return t.server == d.server })
	})
	for len(all) > mostLeft {
		delete(all, slices.MinFunc(slices.Sorted(maps.Keys(all)), func(a, b string) int { return all[a].at.Compare(all[b].at) }))
	}
	return all
}

// departed returns the series about engines that are no longer found.
func (c *Collector) departed() *snapshot {
	s := &snapshot{}
	for _, series := range slices.Sorted(maps.Keys(c.left)) {
		if at := c.left[series].at; c.config.Now().Sub(at) <= leftFor {
			s.append(metrics.EngineLeft, series, float64(at.UnixMilli())/1000)
		}
	}
	return s
}

// sameTarget reports whether two descriptions are of the same target. They may differ in the image's digest, because
// the digest appears only once the container runs.
func sameTarget(a, b TargetConfig) bool {
	a.Image, b.Image = "", ""
	return reflect.DeepEqual(a, b)
}

// Configured lists the targets of the configuration.
func (c *Collector) Configured() []TargetConfig {
	all := make([]TargetConfig, 0, len(c.configured))
	for _, t := range c.configured {
		all = append(all, t.from)
	}
	return all
}

// reads reports whether the collector already has a target at the address.
func (c *Collector) reads(address string) bool {
	u, err := url.Parse(address)
	return err == nil && slices.ContainsFunc(c.targets, func(t *target) bool { return scrape.SameServer(t.At.Base.Host, u.Host) })
}

// Probe finds out which engine answers at a target. The target is not read again. A gateway does not count as an engine.
func (c *Collector) Probe(ctx context.Context, cfg TargetConfig) (Engine, error) {
	silent := *c.config
	silent.Log, silent.Ledger = slog.New(slog.DiscardHandler), NewLedger(c.config.Now())
	t, err := newTarget(cfg.URL, cfg, c.dialects, &silent)
	if err != nil {
		return Engine{}, err
	}
	defer t.Client.CloseIdleConnections()
	defer silent.pages.drop(t)
	t.scrape(ctx)
	e := t.engine()
	if e.role == metrics.GatewayRole {
		e.Reason, e.Detail = reasonRouter, "this is "+string(e.Runtime)+", a gateway: name it as a target to have it read"
	}
	e.trace = t.trace()
	return e, nil
}

// Look reads the metrics page of an offer's target now, and returns the engine's state. If the offer names no server,
// Look reads all targets at the offer's host and port, and returns the first. This engine counts as asleep if any of
// them sleeps. If there is no target, known is false.
func (c *Collector) Look(ctx context.Context, at Offer) (e Engine, known bool) {
	for _, t := range c.targets {
		if at.Server == "" && !at.IsAt(t.At.Base.Host) || at.Server != "" && at.Server != t.server {
			continue
		}
		t.scrape(ctx)
		next := t.engine()
		if i := slices.IndexFunc(t.dialects, func(d *Dialect) bool { return d.Runtime == next.Runtime && d.Asleep != nil }); i >= 0 {
			next.Sleeping = t.dialects[i].Asleep(ctx, t.get(t.dialects[i]))
		}
		if !known {
			e, known = next, true
		}
		e.Sleeping = e.Sleeping || next.Sleeping
	}
	return e, known
}

// IsEngine reports whether an engine answered a probe, even an engine that cannot be read yet.
func (e Engine) IsEngine() bool {
	return slices.Contains([]string{"", reasonLoading, reasonDisabled, scrape.JSONMetrics}, e.Reason)
}

// Gone reports whether an engine that is read no longer answers. For a gateway, Gone is false. Users reach no engine
// without the gateway, so its loss is an outage.
func (e Engine) Gone() bool { return e.role != metrics.GatewayRole && !e.Answers() }

// Answers reports whether the server itself answered. If a proxy answered in place of its server, Answers is false.
func (e Engine) Answers() bool {
	return !slices.Contains([]string{
		scrape.Unreachable, scrape.Timeout, scrape.HTTPStatus + "502", scrape.HTTPStatus + "503",
		scrape.HTTPStatus + "504",
	}, e.Reason)
}

// Why explains why the answer does not come from an engine. It names the server if the server is known, and otherwise
// one of Reasons.
func (e Engine) Why() string {
	if e.Reason == reasonRouter || e.Reason == reasonNotEngine {
		return e.Detail
	}
	return e.Reason
}
