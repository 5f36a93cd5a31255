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

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu/page"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/ownership"
	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
)

// gpuOptions holds the flags of the GPU side.
type gpuOptions struct {
	enabled, ownership    bool
	podResources, podLogs string
	source, sourceHTTP    string
	gpu.Options
}

func (o *gpuOptions) addFlags(app *kingpin.Application) {
	app.Flag("collector.gpu", "Read the GPUs of this node through NVML.").Default("true").BoolVar(&o.enabled)
	app.Flag("collector.ownership", "Find out which engine runs on which GPU.").Default("true").BoolVar(&o.ownership)
	app.Flag("gpu.source", "Where to read GPUs: nvml, the URL of a page of dcgm-exporter or AMD's device-metrics-exporter, such as http://localhost:9400, or auto: NVML, and a page of this node while NVML cannot be used.").
		Default("nvml").PlaceHolder("nvml|URL|auto").StringVar(&o.source)
	app.Flag("gpu.source-http-config", "How to reach that page: a file in the form of Prometheus' http_config (TLS, credentials from files).").PlaceHolder("FILE").StringVar(&o.sourceHTTP)
	app.Flag("gpu.interval", "How often to read clocks, power and bandwidth; also the window of the ratios.").Default("1s").DurationVar(&o.Interval)
	app.Flag("gpu.deadline", "How long one round of readings may take before the GPU counts as stuck.").Default("10s").DurationVar(&o.Deadline)
	app.Flag("gpu.restart-after", "Exit when NVML has been unusable for this long and only a new process can use it (after a driver upgrade). Negative: never.").
		Default("5m").DurationVar(&o.RestartAfter)
	app.Flag("gpu.nvml-library", "Path of the NVML library, if the loader does not find it.").PlaceHolder("FILE").StringVar(&o.LibraryPath)
	app.Flag("gpu.kmsg", "The kernel log to read XIDs and SXids from; none switches it off.").Default("/dev/kmsg").StringVar(&o.Kmsg)
	app.Flag("ownership.pod-resources", "Socket of the kubelet's pod-resources API; without the socket there is no Kubernetes. Empty: do not look.").
		Default("/var/lib/kubelet/pod-resources/kubelet.sock").StringVar(&o.podResources)
	app.Flag("path.pod-logs", "Where the kubelet keeps pod logs; the directory names tell which pod owns a process.").
		Default("/var/log/pods").StringVar(&o.podLogs)
	app.Flag("path.procfs", "Where procfs is mounted.").Default("/proc").StringVar(&o.ProcFS)
	app.Flag("path.sysfs", "Where sysfs is mounted.").Default("/sys").StringVar(&o.SysFS)
}

// detachTime is how long SIGUSR1 releases NVML.
const detachTime = 10 * time.Minute

// gpuSource reads the GPUs.
type gpuSource interface {
	prometheus.Collector
	GPUs() []gpu.Identity
}

// either reads NVML, or a page while only the page can be used: each GPU comes from one source.
type either struct {
	nvml *gpu.Collector
	page *page.Collector
}

// last returns what the page last reported, and whether that stands for the GPUs.
func (e either) last() (series []prometheus.Metric, stands bool) {
	series, up := e.page.Last()
	stands = up && e.nvml.Down()
	if up && !stands { // NVML works again: drop the page
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

// pages lists the addresses that auto tries: those of dcgm-exporter and AMD's device-metrics-exporter.
var pages = []string{"http://localhost:9400", "http://localhost:5000"}

// newPage builds the collector of a page. The page is read only while needed.
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

// startGPUs starts the GPU side and registers it; the collector is nil if NVML is not used. The cluster resolves the
// names of claimed devices; nil if there is none. The channel receives an error when only a new process can see the
// GPUs again.
func (s *server) startGPUs(ctx context.Context, o gpuOptions, cluster *kube.Cluster, userAgent string) (*gpu.Collector, <-chan error, error) {
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

// timed measures how long a collector takes.
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
