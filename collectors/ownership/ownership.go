// Package ownership determines which engine runs on which GPU, and which container has which GPU. It exports the join
// series llm_engine_gpu_info and llm_gpu_allocation_info. Series of devices never have the labels of an engine or a
// pod.
//
// If the configuration names a target's GPUs, these GPUs are used without a check. On Kubernetes, a target with a known
// pod has the devices that the kubelet gave to the target's container. Another exporter's metrics page may also report
// these devices. Engines in one container are distinguished by their processes. In all other cases, processes decide.
// The collector takes the processes that NVML lists on a GPU and their relatives in /proc, and compares their listening
// sockets with the addresses of the targets.
//
// If an owner cannot be found, its series is absent. NVML leaves out processes in pid namespaces that the exporter is
// not in. So a container needs the host's pid namespace (hostPID), a procfs of that namespace, and the capabilities
// that package proc names. llm_exporter_unreadable_processes counts the unreadable processes. In two cases, the
// configuration must name the GPUs: if the engine is reached through a port mapping, or if its workers and server have
// no common ancestor except a shell, a supervisor or a Ray daemon.
package ownership

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
	"github.com/llm-node-exporter/llm-node-exporter/internal/proc"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Target describes an engine's metrics endpoint.
type Target struct {
	Runtime   metrics.Runtime
	Server    string // host:port of the metrics endpoint
	Namespace string
	Pod       string
	Container string
	ModelName string   // empty if unknown
	GPUs      []string // UUIDs or indices; if empty, the collector finds the GPUs
}

// labels returns the values of metrics.TargetLabels.
func (t Target) labels() []string {
	return []string{string(t.Runtime), t.Namespace, t.Pod, t.Container, t.Server}
}

// Options configure a Collector.
type Options struct {
	// Logger receives one record per change of state. Default: slog.Default().
	Logger *slog.Logger
	// Targets returns the engines whose GPUs are to be found.
	Targets func() []Target
	// Processes returns the processes on the GPUs, as (*gpu.Collector).Processes does.
	Processes func() []gpu.Process
	// GPUs returns the GPUs of the node, as (*gpu.Collector).GPUs does.
	GPUs func() []gpu.Identity
	// Instances returns the MIG devices of the node, as (*gpu.Collector).Instances does.
	Instances func() []gpu.Instance
	// Owners returns which container has which GPU according to another exporter's metrics page, as
	// (*page.Collector).Owners does. This applies to pods about which the kubelet reports nothing. By default, there is no
	// such metrics page.
	Owners func() []gpu.Owner
	// Commands is called at each scan with the command lines of the process that serves a target's metrics and of its
	// parents. The process comes first. Nil means that command lines are not read.
	Commands func(server string, lines [][]string)
	// PodResources is the socket of the kubelet's pod-resources API. By default, there is no socket, and the kubelet is not queried.
	PodResources string
	// ClaimedUUID returns the UUID of a device that a driver of resource claims offers, as (*kube.Slices).UUID does. It is
	// empty if the UUID is unknown. By default, all UUIDs are unknown.
	ClaimedUUID func(driver, pool, device string) string
	// PodLogs is the kubelet's directory of pod logs, with a directory for each pod. Default: /var/log/pods.
	PodLogs string
	// ProcFS is the mount point of the proc file system. Default: /proc.
	ProcFS string
	// Interval is how often the kubelet is queried and the processes are scanned. Default: 15 s.
	Interval time.Duration
}

// Collector exports the owners of GPUs as a prometheus.Collector. Run keeps them up to date.
type Collector struct {
	options Options
	kubelet *kube.Kubelet   // only Run's goroutine uses this field and the next three
	unknown map[string]bool // configured GPUs that the node does not have
	gpus    int             // number of GPUs at the last scan
	strange map[string]bool // resources with devices that are not GPUs of the node

	mu      sync.Mutex
	series  []prometheus.Metric
	owned   []owned
	serving map[string]int      // process that serves a target's metrics, by its server
	waits   map[string]*cpuWait // by server
}

// owned links a GPU to the engine on it. The engine's labels are added only when the metrics are served, because the
// engine behind a target is often unknown before its first scrape.
type owned struct {
	server string
	place  place
	source string
	memory *usage // usage of the engine's processes; nil if no process was seen
	others *usage // usage of all other processes on the GPU; nil if they compute but the engine is not seen to compute
}

// These are the values of the source label.
const (
	fromConfig       = "config"
	fromPodResources = "pod_resources"
	fromProcess      = "process"
	fromPage         = "page"
)

// New returns a collector that serves nothing until the first scan of Run.
func New(o Options) *Collector {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.PodLogs = cmp.Or(o.PodLogs, "/var/log/pods")
	o.ProcFS = cmp.Or(o.ProcFS, "/proc")
	if o.Owners == nil {
		o.Owners = func() []gpu.Owner { return nil }
	}
	o.Interval = cmp.Or(o.Interval, 15*time.Second)
	return &Collector{
		options: o,
		kubelet: kube.NewKubelet(o.Logger, o.PodResources, o.Interval),
		unknown: make(map[string]bool),
		strange: make(map[string]bool),
	}
}

// Run queries the kubelet and scans the processes until ctx ends.
func (c *Collector) Run(ctx context.Context) error {
	for {
		wait := c.options.Interval
		if !c.refresh(ctx) { // more GPUs may answer soon
			wait = min(wait, time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range []*metrics.Family{
		metrics.EngineGPUInfo, metrics.EngineGPUMemory, metrics.EngineGPUOthers, metrics.EngineCPUWait,
		metrics.GPUContainerMemory, metrics.GPUContainerSMUtilization, metrics.GPUContainerMemoryBusy, metrics.GPUAllocationInfo,
		metrics.PodResourcesUp, metrics.PodResourcesTime, metrics.PodResourcesUnknown, metrics.UnreadableProcesses,
	} {
		ch <- f.Desc()
	}
}

// Collect implements prometheus.Collector. It never waits.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	series, found, waits := c.series, c.owned, c.waits
	c.mu.Unlock()
	for _, m := range series {
		ch <- m
	}
	targets := c.options.Targets()
	for _, t := range targets {
		if w := waits[t.Server]; w != nil {
			ch <- metrics.EngineCPUWait.Const(w.seconds, append(t.labels(), t.ModelName)...)
		}
	}
	for _, o := range found {
		i := slices.IndexFunc(targets, func(t Target) bool { return t.Server == o.server })
		if i < 0 { // the configuration has changed since the scan
			continue
		}
		t := targets[i]
		ch <- metrics.EngineGPUInfo.Const(1, slices.Concat(t.labels(), []string{t.ModelName}, o.place.labels(), []string{o.source})...)
		if o.memory != nil && !o.memory.unknown {
			ch <- metrics.EngineGPUMemory.Const(float64(o.memory.bytes), slices.Concat(t.labels(), o.place.labels())...)
		}
		if o.others != nil && !o.others.unknownTime {
			ch <- metrics.EngineGPUOthers.Const(o.others.sm, slices.Concat(t.labels(), []string{t.ModelName}, o.place.labels())...)
		}
	}
}

// Connections returns the number of established connections at a target's address, including connections of scrapers.
// It is unknown if the target's process is not seen.
func (c *Collector) Connections(server string) (n int, known bool) {
	c.mu.Lock()
	pid := c.serving[server]
	c.mu.Unlock()
	_, digits, _ := net.SplitHostPort(server)
	port, err := strconv.ParseUint(digits, 10, 16)
	if pid == 0 || err != nil {
		return 0, false
	}
	n, err = proc.Connections(c.options.ProcFS, pid, uint16(port))
	return n, err == nil
}

// Computing returns the share of time in which an engine's processes run kernels on the engine's busiest GPU. It is
// unknown if no such process is seen, or if the driver does not report the share.
func (c *Collector) Computing(server string) (share float64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.owned {
		if o.server == server && o.memory != nil && !o.memory.unknownTime {
			share, known = max(share, o.memory.sm), true
		}
	}
	return share, known
}

// place identifies a GPU, or one of its MIG instances.
type place struct {
	uuid, index, instance string
}

func placeOf(p gpu.Process) place { return place{p.GPU.UUID, p.GPU.Index, p.InstanceID} }

func (p place) labels() []string { return []string{p.uuid, p.index, p.instance} }

// usage adds up the memory and the activity of a group of processes. A sum is known only if the value of every process
// is known.
type usage struct {
	bytes   uint64
	unknown bool

	sm, memoryBusy float64 // shares of time
	unknownTime    bool
}

func (u *usage) add(p gpu.Process) {
	u.bytes += p.Memory
	u.unknown = u.unknown || !p.MemoryKnown
	u.sm += p.SM
	u.memoryBusy += p.MemoryBusy
	u.unknownTime = u.unknownTime || !p.UtilizationKnown
}

// computes reports whether kernels may have run.
func (u *usage) computes() bool { return u.sm > 0 || u.unknownTime }

// usageOf returns the usage at a key. If there is none, it creates the usage.
func usageOf[K comparable](m map[K]*usage, key K) *usage {
	if m[key] == nil {
		m[key] = new(usage)
	}
	return m[key]
}

// refresh scans again. It reports whether it found GPUs, and the same number of GPUs as in the last scan.
func (c *Collector) refresh(ctx context.Context) bool {
	c.kubelet.Refresh(ctx, time.Now())
	targets, gpus, running := c.options.Targets(), c.options.GPUs(), c.options.Processes()
	look := &look{podLogs: c.options.PodLogs}
	if len(running) > 0 { // without processes on GPUs, a scan of /proc is useless
		look.Scan = proc.New(c.options.ProcFS)
	}

	containers := make(map[tenant]*usage)
	for _, p := range running {
		usageOf(containers, tenant{placeOf(p), look.home(p.PID)}).add(p)
	}
	var series []prometheus.Metric
	for t, u := range containers {
		labels := append(t.place.labels(), t.pod.Namespace, t.pod.Name, t.container)
		if !u.unknown {
			series = append(series, metrics.GPUContainerMemory.Const(float64(u.bytes), labels...))
		}
		if !u.unknownTime {
			series = append(series, metrics.GPUContainerSMUtilization.Const(u.sm, labels...), metrics.GPUContainerMemoryBusy.Const(u.memoryBusy,
				labels...))
		}
	}
	settled := len(gpus) > 0 && len(gpus) == c.gpus
	c.gpus = len(gpus)
	given, podResources := c.allocations(gpus, containers, settled)
	series = append(series, podResources...)
	told := given.toldBy(c.options.Owners())
	series = append(series, told.series()...)

	used, others := usages(look.owners(ctx, targets, running), running, len(targets))
	serving := make(map[string]int, len(look.serving))
	for i, pid := range look.serving {
		serving[targets[i].Server] = pid
		if c.options.Commands != nil {
			c.options.Commands(targets[i].Server, look.commands(pid))
		}
	}
	var found []owned
	for i, t := range targets {
		places, source := maps.Keys(used[i]), fromProcess
		if allocated := given.to(t); len(allocated) > 0 {
			maps.DeleteFunc(allocated, func(p place, _ bool) bool { return neighbours(i, p, targets, used) })
			places, source = maps.Keys(allocated), fromPodResources
		} else if len(used[i]) == 0 {
			places, source = maps.Keys(told.to(t)), fromPage
		}
		if len(t.GPUs) > 0 {
			places, source = c.said(t, gpus), fromConfig
		}
		for p := range places {
			o := owned{server: t.Server, place: p, source: source, memory: used[i][p]}
			if own := o.memory; own != nil && (own.computes() || !others[i][p].computes()) { // else the others may be its workers
				o.others = others[i][p]
			}
			found = append(found, o)
		}
	}
	if len(running) > 0 {
		series = append(series, metrics.UnreadableProcesses.Const(float64(look.Unreadable())))
	}
	waits := look.cpuWaits(targets, c.waits) // only this goroutine writes these fields
	c.mu.Lock()
	c.series, c.owned, c.serving, c.waits = series, found, serving, waits
	c.mu.Unlock()
	return settled
}

// usages returns the usage of each GPU by each target, and by other processes on GPUs that have any process.
func usages(owners []owner, running []gpu.Process, targets int) (used, others []map[place]*usage) {
	used, others = make([]map[place]*usage, targets), make([]map[place]*usage, targets)
	for i := range used {
		used[i], others[i] = make(map[place]*usage), make(map[place]*usage)
		for j, p := range running {
			if slices.Contains(owners[j].targets, i) {
				usageOf(used[i], placeOf(p)).add(p)
				usageOf(others[i], placeOf(p)) // without another process, the usage is known to be zero
				continue
			}
			p.UtilizationKnown = p.UtilizationKnown && owners[j].known
			usageOf(others[i], placeOf(p)).add(p)
		}
	}
	return used, others
}

// neighbours reports whether a GPU of a target's container belongs to another engine in that container. Both engines
// are then seen on GPUs, but only the other engine is seen on this GPU.
func neighbours(i int, p place, targets []Target, used []map[place]*usage) bool {
	if len(used[i]) == 0 || used[i][p] != nil {
		return false
	}
	t := targets[i]
	for j, other := range targets {
		if used[j][p] != nil && other.Namespace == t.Namespace && other.Pod == t.Pod && other.Container == t.Container {
			return true
		}
	}
	return false
}

// said yields the GPUs that the configuration of a target names.
func (c *Collector) said(t Target, gpus []gpu.Identity) iter.Seq[place] {
	found := make(map[place]bool)
	for _, name := range t.GPUs {
		i := slices.IndexFunc(gpus, func(id gpu.Identity) bool { return name == id.UUID || name == id.Index })
		if key := t.Server + " " + name; i >= 0 {
			found[place{gpus[i].UUID, gpus[i].Index, ""}] = true
			delete(c.unknown, key)
		} else if len(gpus) > 0 && !c.unknown[key] {
			c.unknown[key] = true
			c.options.Logger.Warn("the configuration names a GPU that this node does not have",
				"server", t.Server, "gpu", name, "have", gpus)
		}
	}
	return maps.Keys(found)
}
