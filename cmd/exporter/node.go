package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/collectors/version"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/discovery"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/health"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/ownership"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/probe"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// node holds the collectors of this node, and the state that a reload or discovery changes while the collectors run.
type node struct {
	log      *slog.Logger
	registry *prometheus.Registry // gathers all metrics except those of large and of the engines
	large    large
	self     *self
	engines  atomic.Pointer[engine.Collector]
	probes   *probe.Collector
	ask      atomic.Pointer[runbooks.Asker]      // answers the queries of the runbooks
	past     atomic.Pointer[triage.Past]         // compares the verdict with the past
	gpus     *gpu.Collector                      // nil if NVML is not used
	health   *health.Judge                       // nil if no GPUs are read
	owners   atomic.Pointer[ownership.Collector] // nil until the node looks for the engines on the GPUs
	finder   *discovery.Finder                   // nil without discovery

	loading sync.Mutex
	load    func(seen) (configuration, error)
	found   []engine.TargetConfig // by discovery
}

// newNode returns the node with its configuration loaded. Nothing is started yet.
func newNode(load func(seen) (configuration, error), log *slog.Logger) (*node, error) {
	n := &node{log: log, registry: prometheus.NewRegistry(), self: &self{}, load: load}
	n.self.engines = func() []engine.Engine { return n.engines.Load().Engines() }
	n.probes = probe.New(func(ctx context.Context, at engine.Offer) (engine.Engine, bool) {
		return n.engines.Load().Look(ctx, at)
	}, log.With("collector", "probe"))
	n.registry.MustRegister(
		n.self,
		n.probes,
		version.NewCollector("llm_exporter"),
		collectors.NewGoCollector(),
	)
	if own, err := newProcess(); err == nil {
		n.registry.MustRegister(own)
	} else {
		log.Warn("process_ metrics are left out", "err", err)
	}
	return n, n.reload()
}

// start starts all collectors, which run until ctx ends. The returned channel receives an error when only a restart of
// the exporter can make the GPUs visible again.
func (n *node) start(ctx context.Context, o options) (<-chan error, error) {
	cluster, err := o.discovery.cluster(n.log)
	if err != nil {
		return nil, err
	}
	failed, err := n.startGPUs(ctx, o.gpus, cluster)
	if err != nil {
		return nil, err
	}
	go n.probes.Run(ctx)
	n.startDiscovery(ctx, o.discovery, cluster, o.gpus.ProcFS)
	onSignal(ctx, func(os.Signal) {
		_ = n.reload() // a failure is logged and exported
	}, syscall.SIGHUP)
	return failed, nil
}

// onSignal starts a goroutine that calls react for each of the given signals, until ctx ends.
func onSignal(ctx context.Context, react func(os.Signal), signals ...os.Signal) {
	received := make(chan os.Signal, 1)
	signal.Notify(received, signals...)
	go func() {
		defer signal.Stop(received)
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-received:
				react(s)
			}
		}
	}()
}

// reload loads the configuration. If the new configuration is invalid, the previous one stays active.
func (n *node) reload() error {
	n.loading.Lock()
	defer n.loading.Unlock()
	configured, err := n.load(seen{n.probes.Probed, n.connections, n.computing})
	n.self.loaded(configured, err == nil)
	if err != nil {
		n.log.Error("configuration not loaded", "err", err)
		return err
	}
	n.use(configured.engines)
	n.probes.Use(configured.probes)
	n.ask.Store(&configured.ask)
	n.past.Store(&configured.past)
	n.log.Info("configuration loaded")
	return nil
}

// discovered replaces the engines that discovery found before by targets.
func (n *node) discovered(targets []engine.TargetConfig) {
	n.loading.Lock()
	defer n.loading.Unlock()
	n.found = targets
	n.use(n.engines.Load())
}

// use installs a collector that reads the configured and the discovered engines. A scrape in progress keeps using the
// old collector.
func (n *node) use(configured *engine.Collector) {
	all, err := configured.With(n.found)
	if err != nil {
		n.log.Warn("some discovered engines cannot be targets and are skipped", "err", err)
	}
	n.engines.Store(all)
	n.probes.Offer(all.Offers())
}
