package engine

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"reflect"
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// With returns a collector that reads others beside the configured targets. A target that was read
// before goes on without a gap: it keeps what it knows, and a scrape that is under way ends as it
// would have. The configuration wins where both name one server. The error names what cannot be a
// target; the rest is.
func (c *Collector) With(found []TargetConfig) (*Collector, error) {
	next := &Collector{configured: c.configured, targets: slices.Clone(c.configured), dialects: c.dialects, config: c.config}
	var failed []error
	for _, cfg := range found {
		if next.reads(cfg.URL) {
			continue
		}
		i := slices.IndexFunc(c.targets, func(t *target) bool { return reflect.DeepEqual(t.from, cfg) })
		if i >= 0 {
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
	c.config.pages.keep(next.targets)
	return next, errors.Join(failed...)
}

// Configured lists the targets of the configuration.
func (c *Collector) Configured() []TargetConfig {
	var all []TargetConfig
	for _, t := range c.configured {
		all = append(all, t.from)
	}
	return all
}

// reads reports whether a target is there already.
func (c *Collector) reads(address string) bool {
	u, err := url.Parse(address)
	return err == nil && slices.ContainsFunc(c.targets, func(t *target) bool { return sameServer(t.at.base.Host, u.Host) })
}

// Probe asks once who answers at a target, without making it one.
func (c *Collector) Probe(ctx context.Context, cfg TargetConfig) (Engine, error) {
	silent := *c.config
	silent.Log = slog.New(slog.DiscardHandler)
	t, err := newTarget(cfg.URL, cfg, c.dialects, &silent)
	if err != nil {
		return Engine{}, err
	}
	defer t.client.CloseIdleConnections()
	defer silent.pages.drop(t)
	t.scrape(ctx)
	e := t.engine()
	e.trace = t.trace()
	return e, nil
}

// Look reads the pages of the targets at the host and port of an address now, and says what is known of the first engine. It sleeps when one
// of them does. Look reports false where no target is there.
func (c *Collector) Look(ctx context.Context, address string) (e Engine, known bool) {
	u, err := url.Parse(address)
	if err != nil {
		return e, false
	}
	for _, t := range c.targets {
		if !sameServer(t.at.base.Host, u.Host) {
			continue
		}
		t.scrape(ctx)
		next := t.engine()
		if next.Runtime == metrics.LlamaCpp { // its page does not say it
			var props struct {
				IsSleeping bool `json:"is_sleeping"`
			}
			next.Sleeping = t.document(ctx, "/props", &props) == nil && props.IsSleeping
		}
		if !known {
			e, known = next, true
		}
		e.Sleeping = e.Sleeping || next.Sleeping
	}
	return e, known
}

// IsEngine reports whether what answered a probe is an engine, even one that cannot be read yet.
func (e Engine) IsEngine() bool {
	return slices.Contains([]string{"", reasonLoading, reasonDisabled, reasonJSON}, e.Reason)
}

// Answers reports whether something answered for itself. A proxy that misses what is behind it did not.
func (e Engine) Answers() bool {
	return !slices.Contains([]string{reasonUnreachable, reasonTimeout, reasonStatus + "502", reasonStatus + "503", reasonStatus + "504"}, e.Reason)
}

// Why says why an answer is no engine's: whose it is, where that is known, else one of Reasons.
func (e Engine) Why() string {
	if e.Reason == reasonRouter || e.Reason == reasonNotEngine {
		return e.Detail
	}
	return e.Reason
}
