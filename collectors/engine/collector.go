// Package engine reads the metrics pages of LLM inference engines and maps them to the vocabulary.
//
// A scrape of the exporter fetches all pages at once, each with its own deadline. A page is parsed
// with Prometheus' own parser, recognised, and mapped through the table of its dialect:
//
//	target   fetches one page            fetch.go, target.go
//	page     parses it                   page.go
//	dialect  says what it means          dialect.go, and one file per engine
//	plan     compiles both into lines    plan.go
//
// To add an engine, add its file and its line in dialects.go.
package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Collector scrapes a fixed set of targets. A changed configuration makes a new collector.
type Collector struct {
	targets []*target
}

// New builds a collector. The error names the target and the remedy.
func New(targets []TargetConfig, mappings []Mapping, limits Limits, userAgent string, log *slog.Logger) (*Collector, error) {
	dialects, err := withMappings(mappings)
	if err != nil {
		return nil, err
	}
	c := &Collector{}
	servers := map[string]int{}
	for i, cfg := range targets {
		path := fmt.Sprintf("targets[%d]", i)
		t, err := newTarget(path, cfg, dialects, limits, userAgent, log)
		if err != nil {
			return nil, err
		}
		if first, twice := servers[t.server]; twice {
			return nil, configErrorf(path+".url", "%s is a target already, targets[%d]: its series would be there twice", t.server, first)
		}
		servers[t.server] = i
		c.targets = append(c.targets, t)
	}
	return c, nil
}

// Engine is what is known about the engine behind a target.
type Engine struct {
	Runtime metrics.Runtime // empty until a page was understood
	Model   string
	Server  string   // host:port of the page
	GPUs    []string // on which it runs, by UUID or index, where the configuration says so
	// Namespace, Pod and Container are set by configuration or discovery.
	Namespace, Pod, Container string
}

// Engines lists the engines behind the targets, as of their last scrape.
func (c *Collector) Engines() []Engine {
	var engines []Engine
	for _, t := range c.targets {
		t.mu.Lock()
		e := t.known
		t.mu.Unlock()
		e.Server, e.GPUs = t.server, t.gpus
		e.Namespace, e.Pod, e.Container = t.fixed[metrics.LabelNamespace], t.fixed[metrics.LabelPod], t.fixed[metrics.LabelContainer]
		engines = append(engines, e)
	}
	return engines
}

// Append scrapes all targets until the context's deadline and appends the exposition of their
// metrics to b. A target that fails costs its own series only; ok reports whether none did.
func (c *Collector) Append(ctx context.Context, b []byte) (page []byte, ok bool) {
	snapshots := make([]*snapshot, len(c.targets))
	var wg sync.WaitGroup
	for i, t := range c.targets {
		wg.Go(func() { snapshots[i] = t.scrape(ctx) })
	}
	wg.Wait()
	ok = !slices.ContainsFunc(snapshots, func(s *snapshot) bool { return s.failed })
	return appendSnapshots(b, snapshots), ok
}

// appendSnapshots writes the blocks of all snapshots, each family once.
func appendSnapshots(b []byte, snapshots []*snapshot) []byte {
	type part struct {
		family *metrics.Family
		text   []byte
	}
	var parts []part
	size := len(b)
	for _, s := range snapshots {
		for _, bl := range s.blocks {
			parts = append(parts, part{bl.family, s.text[bl.start:bl.end]})
		}
		size += len(s.text)
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(a.family.Index, b.family.Index) })
	b = slices.Grow(b, size+64*200)
	var last *metrics.Family
	for _, p := range parts {
		if p.family != last {
			b = metrics.AppendHeader(b, p.family)
			last = p.family
		}
		b = append(b, p.text...)
	}
	return b
}
