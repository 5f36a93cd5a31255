// Package engine reads the metrics pages of LLM inference engines and maps them to the vocabulary.
//
// A scrape of the exporter fetches all metrics pages at once, each with its own deadline. Prometheus' own parser parses
// each metrics page. The page's dialect recognises the page and maps its series:
//
//	target   fetches one metrics page and decides how to read it       target.go, package scrape
//	page     parses the metrics page; a template reads it again        package scrape
//	dialect  maps the metrics page to the vocabulary                   dialect.go, dialect_*.go
//	plan     compiles metrics page and dialect into output lines       compile.go, answers.go, lines.go, plan.go
//	slo      counts objectives on output lines or on probes            objectives.go, probed.go
//	snapshot holds the values of one scrape, even without an answer    snapshot.go
//
// CONTRIBUTING.md lists what a new engine needs.
package engine

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Collector scrapes a fixed set of targets. A changed configuration needs a new collector. The method With returns a
// collector that reads discovered engines, too.
type Collector struct {
	configured []*target
	targets    []*target // all targets that are read
	left       map[string]departure
	dialects   []*Dialect
	config     *settings
}

// New builds a collector. Its errors are ConfigErrors, which name the place and the remedy.
func New(cfg Config) (*Collector, error) {
	dialects, err := withMappings(cfg.Mappings)
	if err != nil {
		return nil, err
	}
	cfg.Limits = cmp.Or(cfg.Limits, scrape.DefaultLimits)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Ledger == nil {
		cfg.Ledger = NewLedger(cfg.Now())
	}
	c := &Collector{dialects: dialects, config: &settings{
		Config: cfg, shapes: map[*metrics.Family]slo.Shape{},
		pages: newBudget(cfg.Limits.Memory), read: &atomic.Pointer[[]*target]{},
	}}
	for name, shape := range cfg.Histograms {
		f := metrics.Lookup(name)
		if f == nil || f.Kind != metrics.Histogram || !IsQuantity(f) {
			return nil, configErrorf("histograms."+name, "%s is not a histogram of the exporter: docs/metrics.md lists them", name)
		}
		if err := shape.Check(); err != nil {
			return nil, configErrorf("histograms."+name, "%w", err)
		}
		c.config.shapes[f] = shape
	}
	for i, given := range cfg.Targets {
		path := fmt.Sprintf("targets[%d]", i)
		t, err := newTarget(path, given, dialects, c.config)
		if err != nil {
			return nil, err
		}
		if first := slices.IndexFunc(c.configured, func(other *target) bool { return scrape.SameServer(other.server, t.server) }); first >= 0 {
			return nil, configErrorf(path+".url", "%s is already targets[%d]: its series would appear twice", t.server, first)
		}
		c.configured = append(c.configured, t)
	}
	c.targets = c.configured
	c.config.read.Store(&c.targets)
	return c, nil
}

// Engine describes the engine behind a target.
type Engine struct {
	Runtime metrics.Runtime // empty until a metrics page has been understood
	Model   string
	Version string
	Server  string   // host:port of the metrics endpoint
	Reason  string   // why the metrics page cannot be used, one of Reasons; empty if the page is usable
	Lacks   string   // what the engine lacks although its metrics page is usable, one of Reasons; empty if nothing
	Detail  string   // last error, for people
	GPUs    []string // GPUs that the engine runs on, by UUID or index, if the configuration names the GPUs
	// Configured reports whether the configuration names the target. Otherwise, discovery found the target.
	Configured bool
	Sleeping   bool // whether a request would wake the engine, as of the last usable metrics page
	// Changes lists the last change of each setting since the exporter started.
	Changes []Change
	// Namespace, Pod and Container come from configuration or discovery.
	Namespace, Pod, Container string

	role  string // of a server that is not an engine
	trace *trace // set by a probe
}

// State returns the reason label of the engine's llm_engine_up. If that label is empty, State returns up.
func (e Engine) State() string { return cmp.Or(e.Reason, e.Lacks, "up") }

// Engines lists the engines behind the targets, as of their last scrape.
func (c *Collector) Engines() []Engine {
	engines := make([]Engine, 0, len(c.targets))
	for _, t := range c.targets {
		e := t.engine()
		e.Configured = slices.Contains(c.configured, t)
		engines = append(engines, e)
	}
	return engines
}

// Limits returns the limits of the configuration.
func (c *Collector) Limits() scrape.Limits { return c.config.Limits }

// Maintenance lists the declared intervals of maintenance.
func (c *Collector) Maintenance() []slo.Maintenance { return c.config.Maintenance }

func (t *target) engine() Engine {
	t.mu.Lock()
	e := t.known
	e.Reason, e.Detail, e.Changes = t.reason, t.detail, t.changes
	t.mu.Unlock()
	if e.Reason != "" {
		e.Lacks = ""
	}
	e.Server, e.GPUs = t.server, t.from.GPUs
	e.Namespace, e.Pod, e.Container = t.fixed[metrics.LabelNamespace], t.fixed[metrics.LabelPod], t.fixed[metrics.LabelContainer]
	return e
}

// Scrape scrapes all targets until the context's deadline. If a target fails, only its own series are missing.
func (c *Collector) Scrape(ctx context.Context) *Exposition {
	e := &Exposition{snapshots: make([]*snapshot, len(c.targets))}
	var wg sync.WaitGroup
	for i, t := range c.targets {
		wg.Go(func() { e.snapshots[i] = t.scrape(ctx) })
	}
	wg.Wait()
	e.snapshots = append(e.snapshots, nodeMaintenance(e.snapshots), c.probed(), c.departed())
	e.snapshots = append(e.snapshots, objectiveLines(c.config.Objectives, e.snapshots))
	return e
}

// Exposition is one scrape of all engines, with the samples of other collectors.
type Exposition struct {
	snapshots []*snapshot
	others    snapshot
}

// Complete reports whether every engine's metrics page was used.
func (e *Exposition) Complete() bool {
	return !slices.ContainsFunc(e.snapshots, func(s *snapshot) bool { return s.failed })
}

// Grow makes room for samples of other collectors.
func (e *Exposition) Grow(samples int) {
	e.others.lines = slices.Grow(e.others.lines, samples)
	e.others.blocks = slices.Grow(e.others.blocks, samples) // the samples of GPUs alternate, so neighbouring samples rarely share a family
}

// Add puts a sample of another collector on the metrics page.
func (e *Exposition) Add(sample *metrics.Sample) {
	e.others.append(sample.Family, sample.Text, sample.Value)
}

// WriteTo writes the exposition in the Prometheus text format, each family once.
func (e *Exposition) WriteTo(w io.Writer) (written int64, err error) {
	type part struct {
		family *metrics.Family
		lines  []valued
	}
	all := slices.Concat(e.snapshots, []*snapshot{&e.others})
	blocks := 0
	for _, s := range all {
		blocks += len(s.blocks)
	}
	parts := make([]part, 0, blocks)
	for _, s := range all {
		for _, bl := range s.blocks {
			parts = append(parts, part{bl.family, s.lines[bl.start:bl.end]})
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.family.Index, b.family.Index) })
	write := func(b []byte) {
		if err == nil {
			var n int
			n, err = w.Write(b)
			written += int64(n)
		}
	}
	const chunk = 4 << 10
	text := make([]byte, 0, 2*chunk)
	for i, p := range parts {
		if i == 0 || p.family != parts[i-1].family {
			text = metrics.AppendHeader(text, p.family)
		}
		for _, l := range p.lines {
			if text = metrics.AppendValue(append(append(text, l.series...), l.le...), l.value); len(text) >= chunk {
				write(text)
				text = text[:0]
			}
		}
	}
	write(text)
	return written, err
}
