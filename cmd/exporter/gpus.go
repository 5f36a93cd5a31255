package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu/page"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/health"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/ownership"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/internal/httpclient"
	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
)

// gpuOptions holds the flags for reading GPUs, and for finding their owners.
type gpuOptions struct {
	enabled, ownership    bool
	podResources, podLogs string
	source, sourceHTTP    string
	gpu.Options
}

func (o *gpuOptions) addFlags(app nodeFlags) {
	app.Flag("collector.gpu", "Collect metrics of the GPUs of this node.").Default("true").BoolVar(&o.enabled)
	app.Flag("collector.ownership", "Determine which engine runs on which GPU.").Default("true").BoolVar(&o.ownership)
	app.Flag("gpu.source", "Source of GPU metrics: nvml; the URL of dcgm-exporter or AMD's device-metrics-exporter, such as "+
		"http://localhost:9400; or auto (NVML or, while NVML is unusable, one of these exporters on this node).").
		Default("nvml").PlaceHolder("nvml|URL|auto").StringVar(&o.source)
	app.Flag("gpu.source-http-config", "File with TLS settings and credentials for the URL in --gpu.source, in the format of "+
		"Prometheus' http_config.").
		PlaceHolder("FILE").StringVar(&o.sourceHTTP)
	app.Flag("gpu.interval", "How often to read clocks, power and bandwidth. Ratios are averages over this time.").Default("1s").
		DurationVar(&o.Interval)
	app.Flag("gpu.driver-budget",
		"Largest share of time that reading one GPU may spend in the driver, because other programs wait for the driver meanwhile. Slow "+
			"readings happen less often: clocks and power at least every 30 seconds, other values at least every ten minutes. 1 means no limit.").
		Default("0.001").Float64Var(&o.Budget)
	app.Flag("gpu.deadline", "How long one round of readings may take before the GPU is reported as stuck.").Default("10s").
		DurationVar(&o.Deadline)
	app.Flag("gpu.restart-after",
		"Exit if NVML has been unusable for this long and only a new process can use it, as after a driver upgrade. A negative value means never.").
		Default("5m").DurationVar(&o.RestartAfter)
	app.Flag("gpu.nvml-library", "Path of the NVML library, if the dynamic loader does not find it.").PlaceHolder("FILE").
		StringVar(&o.LibraryPath)
	app.Flag("gpu.kmsg", "Kernel log to read XIDs and SXids from; none disables it.").Default("/dev/kmsg").StringVar(&o.Kmsg)
	app.Flag("ownership.pod-resources",
		"Socket of the kubelet's pod-resources API. Outside Kubernetes, the socket need not exist. If the flag is empty, the kubelet is not "+
			"used.").
		Default("/var/lib/kubelet/pod-resources/kubelet.sock").StringVar(&o.podResources)
	app.Flag("path.pod-logs", "Directory of the kubelet's pod logs. The names of its subdirectories show the pods of processes.").
		Default("/var/log/pods").StringVar(&o.podLogs)
	app.Flag("path.procfs", "Mount point of procfs.").Default("/proc").StringVar(&o.ProcFS)
	app.Flag("path.sysfs", "Mount point of sysfs.").Default("/sys").StringVar(&o.SysFS)
}

// detachTime is how long SIGUSR1 releases NVML.
const detachTime = 10 * time.Minute

// gpuSource reads the GPUs.
type gpuSource interface {
	prometheus.Collector
	GPUs() []gpu.Identity
}

// either combines NVML with another exporter's metrics. While NVML cannot be used, either reports the other exporter's
// metrics instead. Thus no GPU is reported twice.
type either struct {
	nvml *gpu.Collector
	page *page.Collector
}

// last returns the GPUs that the other exporter last reported, and whether the other exporter replaces NVML now.
func (e either) last() (said page.Snapshot, stands bool) {
	said, up := e.page.Last()
	stands = up && e.nvml.Down()
	if up && !stands { // NVML works again, so the other exporter's metrics are obsolete
		said = page.Snapshot{}
	}
	return said, stands
}

func (e either) GPUs() []gpu.Identity {
	if _, stands := e.last(); stands {
		return e.page.GPUs()
	}
	return e.nvml.GPUs()
}

// Describe implements prometheus.Collector.
func (e either) Describe(ch chan<- *prometheus.Desc) { gpu.Describe(ch) }

// Collect implements prometheus.Collector. The collector for NVML also follows the kernel log. Therefore, XIDs are
// known even while the other exporter replaces NVML.
func (e either) Collect(ch chan<- prometheus.Metric) {
	said, stands := e.last()
	said.Collect(ch)
	if !stands {
		e.nvml.Collect(ch)
	}
}

// pages lists the addresses that --gpu.source=auto tries: the defaults of dcgm-exporter and of AMD's
// device-metrics-exporter.
var pages = []string{"http://localhost:9400", "http://localhost:5000"}

// newPage builds the collector of another exporter's metrics. The collector reads these metrics only while needed
// returns true. It takes XIDs from the kernel log that log returns.
func (o gpuOptions) newPage(limits scrape.Limits, needed func() bool, log func() *gpu.KernelLog, urls ...string) (*page.Collector, error) {
	if len(urls) > 1 && o.sourceHTTP != "" {
		return nil, errors.New("--gpu.source-http-config needs --gpu.source=URL: with auto, any program on the port would get the credentials")
	}
	http, err := httpclient.Load("gpu.source-http-config", o.sourceHTTP)
	if err != nil {
		return nil, err
	}
	var targets []page.Target
	for _, url := range urls {
		targets = append(targets, page.Target{URL: url, HTTP: http})
	}
	return page.New(page.Options{Logger: o.Logger, Targets: targets, Limits: limits, UserAgent: userAgent(), Needed: needed, KernelLog: log})
}

// startGPUs starts the collectors of GPUs and of their owners. cluster resolves the names of devices in resource
// claims, and may be nil. The returned channel receives an error when only a restart of the exporter can make the GPUs
// visible again.
func (n *node) startGPUs(ctx context.Context, o gpuOptions, cluster *kube.Cluster) (<-chan error, error) {
	failed := make(chan error, 1)
	if !o.enabled {
		return failed, nil
	}
	if o.Budget <= 0 || o.Budget > 1 {
		return nil, fmt.Errorf("--gpu.driver-budget=%g is not a share of time: give a number above 0 and up to 1, such as 0.001", o.Budget)
	}
	o.Logger = n.log.With("collector", "gpu")
	var (
		source gpuSource
		seen   = ownership.Options{
			Processes: func() []gpu.Process { return nil },
			Instances: func() []gpu.Instance { return nil },
		}
	)
	if o.source == "nvml" || o.source == "auto" {
		n.gpus = gpu.New(o.Options)
		source, seen.Processes, seen.Instances = n.gpus, n.gpus.Processes, n.gpus.Instances
	}
	if o.source != "nvml" {
		needed, urls := func() bool { return true }, []string{o.source}
		log := sync.OnceValue(func() *gpu.KernelLog {
			k := gpu.NewKernelLog(o.Options)
			go k.Run(ctx)
			return k
		})
		if n.gpus != nil {
			needed, urls, log = n.gpus.Down, pages, n.gpus.KernelLog
		}
		other, err := o.newPage(n.engines.Load().Limits(), needed, log, urls...)
		if err != nil {
			return nil, err
		}
		source, seen.Owners = other, other.Owners
		if n.gpus != nil {
			source = either{n.gpus, other}
		}
		go other.Run(ctx)
	}
	if n.gpus != nil {
		go func() {
			if err := n.gpus.Run(ctx); err != nil {
				failed <- err
			}
		}()
		onSignal(ctx, n.detachOrAttach, syscall.SIGUSR1, syscall.SIGUSR2)
	}
	n.large.collectors = append(n.large.collectors, timed{"gpu", source, n.self})
	if o.ownership {
		seen.GPUs = source.GPUs
		n.startOwnership(ctx, o, cluster, seen)
	}
	n.startHealth(ctx, o)
	return failed, nil
}

// startHealth starts to judge the health of the GPUs. It uses the metrics of the collectors that have been started
// before.
func (n *node) startHealth(ctx context.Context, o gpuOptions) {
	judged := slices.Clone(n.large.collectors)
	n.health = health.New(health.Options{ProcFS: o.ProcFS, Stopped: n.stopped, Read: func(ch chan<- prometheus.Metric) {
		for _, c := range judged {
			c.(timed).Collector.Collect(ch)
		}
	}})
	go n.health.Run(ctx)
	n.large.collectors = append(n.large.collectors, n.health)
}

// stopped reports whether an engine that ran on a GPU no longer answers at its metrics endpoint.
func (n *node) stopped(w health.Workload) bool {
	return slices.ContainsFunc(n.engines.Load().Engines(), func(e engine.Engine) bool {
		return e.Server == w.Server && e.Pod == w.Pod && e.Namespace == w.Namespace && e.Gone()
	})
}

// startOwnership starts to look for the engines and pods that use the GPUs. seen has functions that report the node's
// GPUs.
func (n *node) startOwnership(ctx context.Context, o gpuOptions, cluster *kube.Cluster, seen ownership.Options) {
	if cluster != nil && o.podResources != "" {
		devices := cluster.Slices()
		go devices.Run(ctx)
		seen.ClaimedUUID = devices.UUID
	}
	seen.Logger = n.log.With("collector", "ownership")
	seen.Targets = func() []ownership.Target { return owned(n.engines.Load().Engines()) }
	seen.Commands = func(server string, lines [][]string) { n.engines.Load().Commanded(server, lines) }
	seen.PodResources, seen.PodLogs, seen.ProcFS = o.podResources, o.podLogs, o.ProcFS
	owners := ownership.New(seen)
	n.owners.Store(owners)
	go func() { _ = owners.Run(ctx) }() // ends with ctx
	n.large.collectors = append(n.large.collectors, timed{"ownership", owners, n.self})
}

// connections returns the number of connections at a server's address. known is false if the number is unknown.
func (n *node) connections(server string) (count int, known bool) {
	if owners := n.owners.Load(); owners != nil {
		return owners.Connections(server)
	}
	return 0, false
}

// computing returns the share of time in which the engine at an address computes on its busiest GPU. known is false if
// this is unknown.
func (n *node) computing(server string) (share float64, known bool) {
	if owners := n.owners.Load(); owners != nil {
		return owners.Computing(server)
	}
	return 0, false
}

// detachOrAttach releases NVML on SIGUSR1, as POST /-/detach does. On SIGUSR2, it uses NVML again.
func (n *node) detachOrAttach(got os.Signal) {
	if got == syscall.SIGUSR2 {
		n.gpus.Attach()
	} else if err := n.gpus.Detach(detachTime); err != nil {
		n.log.Error("NVML not released", "err", err)
	}
}

// owned converts engines to targets, whose GPUs package ownership looks for.
func owned(engines []engine.Engine) []ownership.Target {
	targets := make([]ownership.Target, 0, len(engines))
	for _, e := range engines {
		targets = append(targets, ownership.Target{
			Runtime: e.Runtime, Server: e.Server, ModelName: e.Model, GPUs: e.GPUs,
			Namespace: e.Namespace, Pod: e.Pod, Container: e.Container,
		})
	}
	return targets
}
