package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/discovery"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/ownership"
)

// gpuOptions are the flags of the GPU side.
type gpuOptions struct {
	enabled, ownership    bool
	podResources, podLogs string
	gpu.Options
}

func (o *gpuOptions) addFlags(app *kingpin.Application) {
	app.Flag("collector.gpu", "Read the GPUs of this node through NVML.").Default("true").BoolVar(&o.enabled)
	app.Flag("collector.ownership", "Find out which engine runs on which GPU.").Default("true").BoolVar(&o.ownership)
	app.Flag("gpu.interval", "How often clocks, power and bandwidth are read; the window of the ratios.").Default("1s").DurationVar(&o.Interval)
	app.Flag("gpu.deadline", "How long one round of one GPU may take before the GPU counts as stuck.").Default("10s").DurationVar(&o.Deadline)
	app.Flag("gpu.restart-after", "End the process when NVML has been unusable this long and only a new process can use it (a driver upgrade). Negative: never.").
		Default("5m").DurationVar(&o.RestartAfter)
	app.Flag("gpu.nvml-library", "The NVML library, where the loader does not find it.").PlaceHolder("FILE").StringVar(&o.LibraryPath)
	app.Flag("gpu.kmsg", "The kernel log to read XIDs and SXids from; none switches it off.").Default("/dev/kmsg").StringVar(&o.Kmsg)
	app.Flag("ownership.pod-resources", "Socket of the kubelet's pod-resources API; where it is missing there is no Kubernetes. Empty: do not look.").
		Default("/var/lib/kubelet/pod-resources/kubelet.sock").StringVar(&o.podResources)
	app.Flag("path.pod-logs", "Where the kubelet keeps the logs of pods; the names of its directories tell which pod a process is of.").
		Default("/var/log/pods").StringVar(&o.podLogs)
	app.Flag("path.procfs", "Where procfs is mounted.").Default("/proc").StringVar(&o.ProcFS)
	app.Flag("path.sysfs", "Where sysfs is mounted.").Default("/sys").StringVar(&o.SysFS)
}

// detachTime is how long SIGUSR1 releases NVML for.
const detachTime = 10 * time.Minute

// startGPUs starts the GPU side and registers it; the collector is nil when it is switched off. A cluster
// tells what the names of claimed devices mean; nil where there is none. The channel gets an error when only a new process can see the GPUs again.
func (s *server) startGPUs(ctx context.Context, o gpuOptions, cluster *discovery.Cluster) (*gpu.Collector, <-chan error) {
	failed := make(chan error, 1)
	if !o.enabled {
		return nil, failed
	}
	o.Logger = s.log.With("collector", "gpu")
	gpus := gpu.New(o.Options)
	go func() {
		if err := gpus.Run(ctx); err != nil {
			failed <- err
		}
	}()
	s.registry.MustRegister(timed{"gpu", gpus, s.self})
	s.detach = gpus.DetachHandler()
	go detachOnSignal(ctx, gpus, s)
	if o.ownership {
		var claimed func(driver, pool, device string) string
		if cluster != nil && o.podResources != "" {
			slices := cluster.Slices()
			go slices.Run(ctx)
			claimed = slices.UUID
		}
		owners := ownership.New(ownership.Options{
			Logger:       s.log.With("collector", "ownership"),
			Targets:      func() []ownership.Target { return owned(s.engines.Load().Engines()) },
			Processes:    gpus.Processes,
			GPUs:         gpus.GPUs,
			Instances:    gpus.Instances,
			PodResources: o.podResources,
			ClaimedUUID:  claimed,
			PodLogs:      o.podLogs,
			ProcFS:       o.ProcFS,
		})
		go func() { _ = owners.Run(ctx) }() // ends with ctx
		s.registry.MustRegister(timed{"ownership", owners, s.self})
	}
	return gpus, failed
}

// detachOnSignal releases NVML on SIGUSR1, as POST /-/detach does, and takes it back on SIGUSR2.
func detachOnSignal(ctx context.Context, gpus *gpu.Collector, s *server) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return
		case got := <-signals:
			if got == syscall.SIGUSR2 {
				gpus.Attach()
			} else if err := gpus.Detach(detachTime); err != nil {
				s.log.Error("NVML not released", "err", err)
			}
		}
	}
}

func owned(engines []engine.Engine) []ownership.Target {
	var targets []ownership.Target
	for _, e := range engines {
		targets = append(targets, ownership.Target{Runtime: e.Runtime, Server: e.Server, ModelName: e.Model, GPUs: e.GPUs,
			Namespace: e.Namespace, Pod: e.Pod, Container: e.Container})
	}
	return targets
}

// timed measures a collector.
type timed struct {
	name string
	prometheus.Collector
	self *self
}

// Collect implements prometheus.Collector.
func (t timed) Collect(ch chan<- prometheus.Metric) {
	start := time.Now()
	t.Collector.Collect(ch)
	t.self.ran(t.name, time.Since(start), true)
}
