package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/config"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/discovery"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu/page"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/ownership"
)

// gpuOptions are the flags of the GPU side.
type gpuOptions struct {
	enabled, ownership    bool
	podResources, podLogs string
	source, sourceHTTP    string
	gpu.Options
}

func (o *gpuOptions) addFlags(app *kingpin.Application) {
	app.Flag("collector.gpu", "Read the GPUs of this node through NVML.").Default("true").BoolVar(&o.enabled)
	app.Flag("collector.ownership", "Find out which engine runs on which GPU.").Default("true").BoolVar(&o.ownership)
	app.Flag("gpu.source", "Where GPUs are read: nvml, or the URL of a page of dcgm-exporter or AMD's device-metrics-exporter, such as http://localhost:9400; auto: NVML, and a page of this node while it cannot be used.").
		Default("nvml").PlaceHolder("nvml|URL|auto").StringVar(&o.source)
	app.Flag("gpu.source-http-config", "How to reach that page: a file in the form of Prometheus' http_config (TLS, credentials from files).").PlaceHolder("FILE").StringVar(&o.sourceHTTP)
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

// gpuSource is where GPUs are read.
type gpuSource interface {
	prometheus.Collector
	GPUs() []gpu.Identity
}

// either is the NVML of a node, or a page while NVML cannot be used and the page can: each GPU comes from one source.
type either struct {
	nvml *gpu.Collector
	page *page.Collector
}

// last is what the page said last, and whether that stands for the GPUs.
func (e either) last() (series []prometheus.Metric, stands bool) {
	series, up := e.page.Last()
	stands = up && e.nvml.Down()
	if up && !stands { // it is about to be let go
		series = nil
	}
	return series, stands
}

func (e either) GPUs() []gpu.Identity {
	if _, stands := e.last(); stands {
		return e.page.GPUs()
	}
	return e.nvml.GPUs()
}

// Describe implements prometheus.Collector.
func (e either) Describe(ch chan<- *prometheus.Desc) { gpu.Describe(ch) }

// Collect implements prometheus.Collector.
func (e either) Collect(ch chan<- prometheus.Metric) {
	series, stands := e.last()
	for _, m := range series {
		ch <- m
	}
	if !stands {
		e.nvml.Collect(ch)
	}
}

// pages are the addresses that auto tries: dcgm-exporter's and AMD's device-metrics-exporter's.
var pages = []string{"http://localhost:9400", "http://localhost:5000"}

// newPage makes the collector of a page. It is read while needed.
func (o gpuOptions) newPage(limits engine.Limits, userAgent string, needed func() bool, urls ...string) (*page.Collector, error) {
	var http config.HTTPClientConfig
	if o.sourceHTTP != "" {
		read, _, err := config.LoadHTTPConfigFile(o.sourceHTTP)
		if err != nil {
			return nil, fmt.Errorf("--gpu.source-http-config: %w", err)
		}
		http = *read
	}
	var targets []engine.TargetConfig
	for _, url := range urls {
		targets = append(targets, engine.TargetConfig{URL: url, HTTP: http})
	}
	return page.New(page.Options{Logger: o.Logger, Targets: targets, Limits: limits, UserAgent: userAgent, Needed: needed})
}

// startGPUs starts the GPU side and registers it; the collector is nil where NVML is not asked. A cluster
// tells what the names of claimed devices mean; nil where there is none. The channel gets an error when only a new process can see the GPUs again.
func (s *server) startGPUs(ctx context.Context, o gpuOptions, cluster *discovery.Cluster, userAgent string) (*gpu.Collector, <-chan error, error) {
	failed := make(chan error, 1)
	if !o.enabled {
		return nil, failed, nil
	}
	o.Logger = s.log.With("collector", "gpu")
	var (
		nvml   *gpu.Collector
		source gpuSource
		seen   = ownership.Options{
			Processes: func() []gpu.Process { return nil },
			Instances: func() []gpu.Instance { return nil },
		}
	)
	if o.source == "nvml" || o.source == "auto" {
		nvml = gpu.New(o.Options)
		source, seen.Processes, seen.Instances = nvml, nvml.Processes, nvml.Instances
	}
	if o.source != "nvml" {
		needed, urls := func() bool { return true }, []string{o.source}
		if nvml != nil {
			needed, urls = nvml.Down, pages
		}
		other, err := o.newPage(s.engines.Load().Limits(), userAgent, needed, urls...)
		if err != nil {
			return nil, nil, err
		}
		source, seen.Owners = other, other.Owners
		if nvml != nil {
			source = either{nvml, other}
		}
		go other.Run(ctx)
	}
	if nvml != nil {
		go func() {
			if err := nvml.Run(ctx); err != nil {
				failed <- err
			}
		}()
		s.detach = nvml.DetachHandler()
		go detachOnSignal(ctx, nvml, s)
	}
	s.registry.MustRegister(timed{"gpu", source, s.self})
	if o.ownership {
		if cluster != nil && o.podResources != "" {
			slices := cluster.Slices()
			go slices.Run(ctx)
			seen.ClaimedUUID = slices.UUID
		}
		seen.Logger = s.log.With("collector", "ownership")
		seen.Targets = func() []ownership.Target { return owned(s.engines.Load().Engines()) }
		seen.GPUs = source.GPUs
		seen.PodResources, seen.PodLogs, seen.ProcFS = o.podResources, o.podLogs, o.ProcFS
		owners := ownership.New(seen)
		go func() { _ = owners.Run(ctx) }() // ends with ctx
		s.registry.MustRegister(timed{"ownership", owners, s.self})
	}
	return nvml, failed, nil
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
