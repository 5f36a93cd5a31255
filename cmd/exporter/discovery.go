package main

import (
	"context"
	"log/slog"

	"github.com/alecthomas/kingpin/v2"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/discovery"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
)

// discoveryOptions holds the flags of discovery.
type discoveryOptions struct {
	source, node string
	namespaces   []string
}

func (o *discoveryOptions) addFlags(app *kingpin.Application) {
	app.Flag("discovery", "Where to look for engines besides the configured ones: processes (ports of those that hold a GPU), pods (of this node) or none.").
		Default("processes").EnumVar(&o.source, "processes", "pods", "none")
	app.Flag("discovery.node", "This node's name, for --discovery=pods.").Envar("NODE_NAME").StringVar(&o.node)
	app.Flag("discovery.namespace", "A namespace to look in, for --discovery=pods. Repeatable. Default: all.").StringsVar(&o.namespaces)
}

// cluster returns the API server when discovery asks it, otherwise nil.
func (o discoveryOptions) cluster(log *slog.Logger) (*kube.Cluster, error) {
	if o.source != "pods" {
		return nil, nil
	}
	return kube.InCluster(o.node, log.With("collector", "discovery"))
}

// startDiscovery starts looking for engines. On a bare host it does nothing without GPUs, whose processes it would
// look at.
func (s *server) startDiscovery(ctx context.Context, o discoveryOptions, cluster *kube.Cluster, procfs string, gpus *gpu.Collector) {
	var source discovery.Source
	switch {
	case cluster != nil:
		source = discovery.NewPods(cluster, o.namespaces...)
	case o.source == "processes" && gpus != nil:
		source = discovery.NewProcesses(procfs, gpus.Processes)
	default:
		return
	}
	s.finder = discovery.New(discovery.Options{
		Logger: s.log.With("collector", "discovery"), Source: source, Found: s.discovered,
		Configured: func() []engine.TargetConfig { return s.engines.Load().Configured() },
		Probe: func(ctx context.Context, target engine.TargetConfig) (engine.Engine, error) {
			return s.engines.Load().Probe(ctx, target)
		},
	})
	go s.finder.Run(ctx)
	s.registry.MustRegister(s.finder)
}
