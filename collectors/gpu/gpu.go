// Package gpu reads NVIDIA GPUs through NVML and serves the readings as llm_gpu_ metrics.
//
// Nothing on the scrape path calls the driver. Each GPU has one goroutine, which reads the GPU at a fixed interval and
// stores a snapshot. A scrape reads the snapshots. If a driver call hangs, only the series of its own GPU are affected,
// and llm_gpu_collect_stuck is set for this GPU. The call is not repeated before it returns.
//
// An absent value is better than a wrong value. If the driver, the GPU or the permissions do not offer a value, the
// value has no series, and llm_gpu_feature_supported has the reason.
package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Options configure a Collector. The zero value is ready for a GPU node.
type Options struct {
	// Logger receives one record per change of state. Default: slog.Default().
	Logger *slog.Logger
	// Interval sets how often the exporter reads clocks, power, bandwidth and similar values. GPM ratios are averages over
	// this interval. It must be at least 100 ms. Default: 1 s.
	Interval time.Duration
	// SlowInterval sets how often the exporter reads values that rarely change: ECC, row remapping, links, MIG devices,
	// processes. Default: 10 s.
	SlowInterval time.Duration
	// Budget is the share of time that readings of one GPU may spend in the driver, because other callers wait meanwhile.
	// To stay within it, the exporter makes slow readings less often. Default: 0.001.
	Budget float64
	// Deadline limits how long one cycle of one GPU may take before the GPU counts as stuck. The first
	// cycle after a driver load may take seconds. Default: 10 s.
	Deadline time.Duration
	// RestartAfter is how long Run waits before it returns an error if only a new process could use the library. This
	// happens if the library's version differs from the kernel module's, or if the container has lost its device nodes. A
	// negative value means never. Default: 5 min.
	RestartAfter time.Duration
	// LibraryPath names the NVML library to load. By default, the loader finds libnvidia-ml.so.1.
	LibraryPath string
	// SysFS and ProcFS are the mount points of the kernel's file systems. Default: /sys and /proc.
	SysFS, ProcFS string
	// Kmsg names the kernel log to read XIDs and SXids from. Default: /dev/kmsg. "none" switches it off.
	Kmsg string

	spent *spent // time in the driver
}

func (o Options) withDefaults() Options {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Interval = cmp.Or(o.Interval, time.Second)
	o.SlowInterval = cmp.Or(o.SlowInterval, 10*time.Second)
	o.Budget = cmp.Or(o.Budget, 0.001)
	o.Deadline = cmp.Or(o.Deadline, 10*time.Second)
	o.RestartAfter = cmp.Or(o.RestartAfter, 5*time.Minute)
	o.SysFS = cmp.Or(o.SysFS, "/sys")
	o.ProcFS = cmp.Or(o.ProcFS, "/proc")
	o.Kmsg = cmp.Or(o.Kmsg, "/dev/kmsg")
	o.spent = &spent{}
	return o
}

// Collector reads the GPUs of a node while Run runs, and serves the last snapshot as a prometheus.Collector. Any
// goroutine may call its methods.
type Collector struct {
	options Options
	log     *KernelLog
	detach  *detachment

	mu       sync.Mutex
	err      error // why the library is not up
	versions versions
	workers  []*worker
	known    map[int]Identity // the GPUs by index, as of their last answer
	bus      []string         // PCI addresses of the expected GPUs; nil if they are unknown
	manager  fabricManager

	// Only Run uses these fields:
	hopelessSince time.Time // since when only a new process can use NVML; zero while this process can
}

// New returns a collector that serves llm_gpu_nvml_up 0 until Run has loaded the library.
func New(o Options) *Collector {
	o = o.withDefaults()
	return &Collector{
		options: o,
		log:     newKernelLog(o),
		detach:  newDetachment(),
		err:     errStarting,
		known:   make(map[int]Identity),
	}
}

var errStarting = errors.New("starting")

// Run reads the GPUs until ctx ends. Then it releases the library and returns nil. If only a new process can see the
// GPUs again, Run returns an error. The caller should then exit, so that the supervisor starts a process with the new
// library. Without a driver, Run keeps trying. A process has only one NVML, so call Run once, and for one collector at
// a time.
func (c *Collector) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { c.watchBus(ctx) })
	background.Go(func() { c.log.Run(ctx) })
	defer background.Wait()
	defer cancel()

	for failures := 0; ctx.Err() == nil; {
		if remaining, changed := c.detach.get(); remaining > 0 {
			c.setState(nil, errDetached)
			pause(ctx, changed, remaining)
			continue
		}
		began := time.Now()
		err := c.session(ctx)
		if err == nil || errors.Is(err, errDetached) || time.Since(began) > time.Minute {
			failures = 0
		}
		if err == nil || errors.Is(err, errDetached) {
			continue
		}
		c.setState(nil, err)
		if c.isHopeless(err) {
			return fmt.Errorf("NVML has been unusable for %s and only a new process can use it: %w", c.options.RestartAfter, err)
		}
		failures++
		_, changed := c.detach.get()
		pause(ctx, changed, backoff(time.Second, failures))
	}
	return nil
}

// isHopeless reports whether NVML has been unusable for too long, and only a new process can use it. err is the current
// error.
func (c *Collector) isHopeless(err error) bool {
	switch {
	case !restartHeals(err):
		c.hopelessSince = time.Time{}
	case c.hopelessSince.IsZero():
		c.hopelessSince = time.Now()
	}
	after := c.options.RestartAfter
	return !c.hopelessSince.IsZero() && after > 0 && time.Since(c.hopelessSince) >= after
}

// session loads the library and reads the GPUs until ctx ends, NVML must be released, or NVML fails. If there are no
// GPUs, session ends without an error.
func (c *Collector) session(ctx context.Context) error {
	release := c.detach.hold()
	l, err := c.load(ctx)
	if l.driver == nil {
		release()
		return err
	}
	c.mu.Lock()
	c.versions = l.versions
	c.mu.Unlock()

	reading, stop := context.WithCancel(ctx)
	defer stop()
	var workers []*worker
	var running sync.WaitGroup
	open := func(gpus int) int { // the driver may find GPUs one by one, so only new GPUs are opened
		for i := len(workers); i < gpus; i++ {
			w := newWorker(c, i, l.Device(i))
			workers = append(workers, w)
			running.Go(func() { w.run(reading) })
		}
		c.setState(workers, nil)
		return len(workers)
	}
	open(l.gpus)
	counted := make(chan int)
	running.Go(func() { c.count(reading, l.driver, counted) })
	failure := c.attend(ctx, counted, open)
	stop()
	// A stuck driver call must return before the library can be released. If the process ends first, the kernel cleans up.
	waiting := ctx
	switch after := c.options.RestartAfter; {
	case failure == nil:
	case errors.Is(failure, errDetached):
		c.setState(nil, failure)
	default:
		c.setState(workers, failure) // publishes the remaining GPUs while a GPU is stuck
		if c.isHopeless(failure); !c.hopelessSince.IsZero() && after > 0 {
			var cancel context.CancelFunc
			waiting, cancel = context.WithDeadline(ctx, c.hopelessSince.Add(after))
			defer cancel()
		}
	}
	if !finish(waiting, &running, c.options.Deadline) {
		return failure
	}
	if err := l.Shutdown(); err != nil && failure == nil {
		c.options.Logger.Warn("NVML was not released cleanly", "err", err)
	}
	release()
	return failure
}

// count reports the number of GPUs repeatedly until ctx ends. It runs on its own goroutine, so nothing else waits if
// the call hangs.
func (c *Collector) count(ctx context.Context, d driver, counted chan<- int) {
	for pause(ctx, nil, c.options.SlowInterval) {
		n, err := d.Count()
		if err != nil {
			continue // if the fault lasts, the GPUs report it
		}
		select {
		case counted <- n:
		case <-ctx.Done():
		}
	}
}

// attend waits until a session must end, and returns the reason. The reason is nil if ctx has ended or there are no
// GPUs. In the meantime, attend opens newly found GPUs.
func (c *Collector) attend(ctx context.Context, counted <-chan int, open func(int) int) error {
	empty := time.NewTimer(time.Minute) // the driver may not have bound the GPUs yet
	defer empty.Stop()
	look := time.NewTicker(c.options.Interval)
	defer look.Stop()
	for {
		remaining, changed := c.detach.get()
		if remaining > 0 {
			return errDetached
		}
		select {
		case <-ctx.Done():
			return nil
		case <-empty.C:
			if open(0) == 0 {
				return nil
			}
		case n := <-counted:
			open(n)
		case <-look.C:
			up, err := survey(c.health(time.Now()))
			if up {
				c.hopelessSince = time.Time{}
			}
			if reach := reachOf(err); reach == wholeLibrary || reach == wholeProcess && c.isHopeless(err) {
				return err
			}
		case <-changed:
		}
	}
}

// survey reports whether a GPU is up. If none is up, it returns the error with the widest scope among the GPUs that are
// not stuck.
func survey(gpus []health) (up bool, err error) {
	for _, h := range gpus {
		switch {
		case h.stuck:
		case h.err == nil:
			return true, nil
		case err == nil || reachOf(h.err) > reachOf(err):
			err = h.err
		}
	}
	return false, err
}

// opened holds a library that was loaded and initialised, and its versions.
type opened struct {
	driver
	versions versions
	gpus     int
}

// load opens the library. If the call hangs, load does not repeat it, and llm_gpu_nvml_up has the reason stuck until
// the call returns. If ctx ends first, load returns no library.
func (c *Collector) load(ctx context.Context) (opened, error) {
	type result struct {
		opened
		err error
	}
	done := make(chan result, 1)
	go func() {
		lib, err := openDriver(c.options)
		if err != nil {
			done <- result{err: err}
			return
		}
		n, err := lib.Count()
		if err != nil {
			_ = lib.Shutdown()
			done <- result{err: err}
			return
		}
		done <- result{opened: opened{lib, lib.Versions(), n}}
	}()
	late := time.After(c.options.Deadline)
	for {
		select {
		case r := <-done:
			return r.opened, r.err
		case <-late:
			c.setState(nil, fmt.Errorf("initialising NVML: %w of %s", errLate, c.options.Deadline))
		case <-ctx.Done():
			return opened{}, nil
		}
	}
}

// finish waits for a group. Once ctx has ended, it waits at most for grace.
func finish(ctx context.Context, g *sync.WaitGroup, grace time.Duration) bool {
	done := make(chan struct{})
	go func() { g.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	case <-time.After(grace):
		return false
	}
}

// pause waits until the time has passed or changed is closed. It returns false if ctx has ended.
func pause(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// onIdentity records the identity of a recognised GPU.
func (c *Collector) onIdentity(index int, id Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(_ int, k Identity) bool { return k.UUID == id.UUID }) // the order may change
	c.known[index] = id
	c.log.xids.expect(id.PCI, xidNVML)
	c.log.Know(id)
}

// onXID records an XID that NVML reported. XIDs of NVLink 5 are counted from the kernel log if the log can be read,
// because only the kernel log shows whether they are fatal.
func (c *Collector) onXID(x xid) {
	if !c.log.Up() || !isNVLink5(x.code) {
		c.log.xids.tell(xidNVML, x, time.Now())
	}
}

// setState publishes whether the library works, and logs changes.
func (c *Collector) setState(workers []*worker, err error) {
	c.mu.Lock()
	changed := reasonFor(err) != reasonFor(c.err)
	c.workers, c.err = workers, err
	driver := c.versions.driver
	c.mu.Unlock()
	switch {
	case !changed:
	case err == nil:
		c.options.Logger.Info("NVML is up", "gpus", len(workers), "driver", driver)
	case errors.Is(err, errDetached):
		c.options.Logger.Info("NVML is released; GPU series are absent")
	default:
		c.options.Logger.Warn("NVML is down; GPU series are absent", "err", err)
	}
}

// identity returns the last known identity of the GPU at an index.
func (c *Collector) identity(index int) Identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.known[index]
	id.Index = strconv.Itoa(index)
	return id
}

// GPUs returns the identities of the GPUs that have answered at least once, by index.
func (c *Collector) GPUs() []Identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make([]Identity, 0, len(c.known))
	for _, index := range slices.Sorted(maps.Keys(c.known)) {
		ids = append(ids, c.known[index])
	}
	return ids
}

// KernelLog returns the collector's follower of the kernel log. It has the log's XIDs and SXids, and NVML's XIDs.
func (c *Collector) KernelLog() *KernelLog { return c.log }

// Process describes a compute process on a GPU, from NVML's list.
type Process struct {
	PID         int // in the exporter's pid namespace; NVML lists only processes that are visible there
	GPU         Identity
	InstanceID  string // MIG GPU instance; empty for the whole GPU
	Memory      uint64 // bytes of device memory
	MemoryKnown bool   // NVML does not always report the memory

	SM, MemoryBusy   float64 // shares of the last sampling period in which the process ran kernels and used device memory
	UtilizationKnown bool    // false with MIG, and for work of MPS for its clients
}

// Instance describes a MIG device, which is a part of a GPU that can be assigned to one container alone.
type Instance struct {
	GPU  Identity
	ID   string // of the GPU instance; compute instances of the same GPU instance share it
	UUID string // MIG-…
}

// Owner names a container that has a GPU, or one of its MIG instances, according to another exporter's metrics page.
type Owner struct {
	GPU                       Identity
	InstanceID                string // of the GPU instance; empty for the whole GPU
	Namespace, Pod, Container string
}

// Instances returns the MIG devices of all GPUs, from each GPU's last successful reading.
func (c *Collector) Instances() []Instance {
	var all []Instance
	for _, h := range c.health(time.Now()) {
		all = append(all, h.instances...)
	}
	return all
}

// Processes returns the compute processes of all GPUs that answer, from the last slow cycle.
func (c *Collector) Processes() []Process {
	var all []Process
	for _, h := range c.health(time.Now()) {
		if !h.stuck {
			all = append(all, h.processes...)
		}
	}
	return all
}

func (c *Collector) health(now time.Time) []health {
	c.mu.Lock()
	workers := c.workers
	c.mu.Unlock()
	all := make([]health, 0, len(workers))
	for _, w := range workers {
		if h, ok := w.health(now); ok {
			all = append(all, h)
		}
	}
	return all
}

// Down reports whether NVML has been tried and cannot be used.
func (c *Collector) Down() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil && !errors.Is(c.err, errStarting)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) { Describe(ch) }

// Describe sends the descriptors of all families with the owner GPU.
func Describe(ch chan<- *prometheus.Desc) {
	for _, f := range metrics.All() {
		if f.Owner == metrics.GPU {
			ch <- f.Desc()
		}
	}
}

// Collect serves the last snapshots. It never waits for the driver.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	emit := func(f *metrics.Family, value float64, labels ...string) { ch <- f.Const(value, labels...) }

	c.mu.Lock()
	err, v, bus, manager, n := c.err, c.versions, c.bus, c.manager, len(c.workers)
	c.mu.Unlock()
	emit(metrics.GPUNVMLUp, metrics.Bool(err == nil), reasonFor(err))
	if bus != nil {
		emit(metrics.GPUExpected, float64(len(bus)))
	}
	manager.emit(emit)
	emit(metrics.GPUXIDSourceUp, metrics.Bool(err == nil), xidNVML.source(), reasonFor(err))
	unread := c.log.state()
	emit(metrics.GPUXIDSourceUp, metrics.Bool(unread == nil), xidKmsg.source(), kmsgReason(unread))
	c.options.spent.emit(emit)
	c.log.Collect(ch, true)
	answers := make(map[string]bool, n)
	for _, h := range c.health(now) {
		h.emit(now, emit)
		up := h.reason() == ""
		answers[h.identity.PCI] = up
		for _, part := range h.samples {
			for i := range part {
				if up || lasts(part[i].Family) {
					ch <- &part[i]
				}
			}
		}
	}
	if err != nil {
		return
	}
	emit(metrics.GPUDriverInfo, 1, v.driver, v.nvml, v.cuda)
	emit(metrics.GPUVisible, float64(n))
	for _, address := range bus {
		emit(metrics.GPUMissing, metrics.Bool(!answers[address]), address)
	}
}
