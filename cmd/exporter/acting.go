package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"github.com/alecthomas/kingpin/v2"
	"k8s.io/client-go/rest"

	"github.com/llm-node-exporter/llm-node-exporter/act"
	"github.com/llm-node-exporter/llm-node-exporter/internal/httpclient"
)

// actOptions holds the flags for taking sick GPUs out of service.
type actOptions struct {
	gpus, pods, namespace, scheme, httpConfig, most string
	port                                            uint16
	ceiling                                         act.Ceiling
	pools                                           []string
}

// The values of --act.gpus.
const (
	actOff    = "off"
	actDryRun = "dry-run"
	actOn     = "on"
)

func (o *actOptions) addFlags(app *kingpin.Application) {
	app.Flag("act.gpus", "With --role=cluster: take sick GPUs out of service, and back in, according to the exporters' /verdict/gpus. "+
		"off, dry-run (only log the actions) or on. See docs/acting.md.").
		Default(actOff).EnumVar(&o.gpus, actOff, actDryRun, actOn)
	app.Flag("act.effect", "Strongest effect of a taint: NoSchedule keeps new pods away; NoExecute also evicts running pods, for the "+
		"verdicts reset and replace.").
		Default(string(act.NoSchedule)).EnumVar(&o.most, string(act.NoSchedule), string(act.NoExecute))
	app.Flag("act.ceiling.cluster", "Share of the cluster's GPUs that may be out of service at once, 0 to 1. One GPU may always be out of "+
		"service.").
		Default("0.1").Float64Var(&o.ceiling.Cluster)
	app.Flag("act.ceiling.pool", "Share of a node pool's GPUs that may be out of service at "+
		"once.").Default("0.25").Float64Var(&o.ceiling.Pool)
	app.Flag("act.ceiling.model", "Share of a model's GPUs that may be out of service at "+
		"once.").Default("0.5").Float64Var(&o.ceiling.Model)
	app.Flag("act.pool-label", "Node label that names the node's pool. Repeatable; the first of these labels on a node wins.").
		Default("karpenter.sh/nodepool", "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool",
			"node.kubernetes.io/instance-type").StringsVar(&o.pools)
	app.Flag("act.pods", "Labels of the exporters' pods on the nodes.").PlaceHolder("SELECTOR").StringVar(&o.pods)
	app.Flag("act.namespace", "Namespace of the exporters' pods, the lease and the events.").PlaceHolder("NAME").Envar("POD_NAMESPACE").
		StringVar(&o.namespace)
	app.Flag("act.port", "Port of the exporters.").Default("9844").Uint16Var(&o.port)
	app.Flag("act.scheme", "Scheme of the exporters' addresses.").Default("http").EnumVar(&o.scheme, "http", "https")
	app.Flag("act.http-config", "File with TLS settings and credentials for the exporters, in the format of Prometheus' http_config.").
		PlaceHolder("FILE").StringVar(&o.httpConfig)
}

// check refuses invalid settings.
func (o actOptions) check(role string) error {
	switch {
	case o.gpus == actOff:
		return nil
	case role != roleCluster:
		return errors.New("--act.gpus acts on all nodes, so it needs --role=cluster")
	case o.pods == "":
		return errors.New("--act.pods: give the labels of the exporters' pods, such as app.kubernetes.io/name=llm-node-exporter")
	case o.namespace == "":
		return errors.New("--act.namespace: give the namespace of the exporters' pods, or set POD_NAMESPACE from metadata.namespace")
	}
	for name, share := range map[string]float64{"cluster": o.ceiling.Cluster, "pool": o.ceiling.Pool, "model": o.ceiling.Model} {
		if !(share >= 0 && share <= 1) {
			return fmt.Errorf("--act.ceiling.%s: write a share from 0 to 1", name)
		}
	}
	return nil
}

// startActing starts to take sick GPUs out of service, if the flags request it.
func startActing(ctx context.Context, o actOptions, log *slog.Logger) error {
	if o.gpus != actDryRun && o.gpus != actOn {
		return nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("--act.gpus needs a pod with a service account token: %w", err)
	}
	actor, err := o.actor(config, log)
	if err != nil {
		return err
	}
	go actor.Run(ctx)
	return nil
}

// actor returns the actor for the cluster that a client configuration describes.
func (o actOptions) actor(config *rest.Config, log *slog.Logger) (*act.Actor, error) {
	settings, err := httpclient.Load("act.http-config", o.httpConfig)
	if err != nil {
		return nil, err
	}
	client, err := httpclient.New("act.http-config", settings)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname() // the name of the pod
	if err != nil {
		return nil, err
	}
	return act.New(act.Options{
		Log: log.With("collector", "act"), Config: config, Namespace: o.namespace, Selector: o.pods,
		Identity: host + "-" + strconv.Itoa(os.Getpid()),
		Scheme:   o.scheme, Port: strconv.Itoa(int(o.port)), Client: client, DryRun: o.gpus == actDryRun, Most: act.Effect(o.most),
		Ceiling: o.ceiling, PoolLabels: o.pools,
	})
}
