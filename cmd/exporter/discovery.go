package main

import (
	"context"
	"log/slog"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/discovery"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
)

// discoveryOptions holds the flags of discovery.
type discoveryOptions struct {
	source, node string
	namespaces   []string
}

func (o *discoveryOptions) addFlags(app nodeFlags) {
	app.Flag("discovery", "Where to look for engines that are not configured: processes (ports of processes that use a GPU), pods (of "+
		"this node) or none.").
		Default("processes").EnumVar(&o.source, "processes", "pods", "none")
	app.Flag("discovery.node", "Name of this node, for --discovery=pods.").PlaceHolder("NAME").Envar("NODE_NAME").StringVar(&o.node)
	app.Flag("discovery.namespace", "Namespace to look in, for --discovery=pods. Repeatable. Default: all.").PlaceHolder("NAME").
		StringsVar(&o.namespaces)
}

// cluster returns the client for the cluster if discovery reads pods, and nil otherwise.
func (o discoveryOptions) cluster(log *slog.Logger) (*kube.Cluster, error) {
	if o.source != "pods" {
		return nil, nil
	}
	return kube.InCluster(o.node, log.With("collector", "discovery"))
}

// startDiscovery starts to look for engines. --discovery=processes needs NVML, which lists the processes.
func (n *node) startDiscovery(ctx context.Context, o discoveryOptions, cluster *kube.Cluster, procfs string) {
	var source discovery.Source
	switch {
	case cluster != nil:
		source = discovery.NewPods(cluster, procfs, o.namespaces...)
	case o.source == "processes" && n.gpus != nil:
		source = discovery.NewProcesses(procfs, n.gpus.Processes)
	default:
		return
	}
	n.finder = discovery.New(discovery.Options{
		Logger: n.log.With("collector", "discovery"), Source: source, Found: n.discovered,
		Configured: func() []engine.TargetConfig { return n.engines.Load().Configured() },
		Probe: func(ctx context.Context, target engine.TargetConfig) (engine.Engine, error) {
			return n.engines.Load().Probe(ctx, target)
		},
	})
	go n.finder.Run(ctx)
	n.registry.MustRegister(n.finder)
}
