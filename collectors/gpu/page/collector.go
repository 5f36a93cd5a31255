// Package page reads the GPUs of a node from the metrics page of another exporter, if NVML is not used. It serves the
// same llm_gpu_ metrics, if that metrics page has their values.
//
//	collector  fetches a metrics page regularly                 collector.go
//	reading    assigns its rows to GPUs, and counts             read.go
//	source     maps a metrics page                              source.go, and one file per exporter
//
// If the metrics page lacks a metric, the metric has no series, and llm_gpu_metric_source_info has the cause. While the
// kernel log can be read, XIDs come from the log.
package page

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/config"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/internal/httpclient"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// sources lists the exporters whose metrics pages this package understands.
var sources = []*Source{&dcgm, &amd}

// These are values of the reason label, in addition to those of package scrape.
const (
	reasonNoGPUs = "no_gpu_page"
	reasonNoUUID = "no_gpu_uuid"
	reasonGone   = "not_on_page" // a GPU of an earlier metrics page that is no longer on the page

	reasonUnhealthy = "unhealthy" // the other exporter reports the GPU as unhealthy
)

// Options configure a Collector.
type Options struct {
	// Logger receives one record per change of state. Default: slog.Default().
	Logger *slog.Logger
	// Targets are the metrics pages in the order of the attempts. The first usable metrics page is read.
	Targets []Target
	// Limits limit the size of a metrics page. Default: scrape.DefaultLimits.
	Limits scrape.Limits
	// UserAgent is the user agent sent to the exporter.
	UserAgent string
	// Interval is how often the metrics page is read. Default: 15 s, half the collection interval of dcgm-exporter.
	Interval time.Duration
	// Needed reports whether the metrics page is currently needed. Default: always.
	Needed func() bool
	// KernelLog returns the follower of the node's kernel log. It is called after the first metrics page with NVIDIA's
	// GPUs, because AMD's GPUs have no XIDs. By default, the kernel log is not read.
	KernelLog func() *gpu.KernelLog
}

// A Target is a server whose metrics page is to be read.
type Target struct {
	// URL has scheme, host and port. It needs a path only if the path is not /metrics.
	URL string
	// Timeout limits the time of one reading. Default: 5 s.
	Timeout time.Duration
	// HTTP has Prometheus' own client configuration.
	HTTP config.HTTPClientConfig
	// Transport, if set, replaces the network, so that simulated exporters can answer in virtual time.
	Transport http.RoundTripper
}

// Collector reads a metrics page while Run runs, and serves its contents as a prometheus.Collector.
type Collector struct {
	options Options

	// Only Read uses these fields:
	readers []*scrape.Reader // the last target used comes first
	memory  *memory
	parsed  map[*scrape.Reader]*parsed // last usable metrics page
	said    string                     // the last logged state

	mu     sync.Mutex
	up     bool
	last   Snapshot
	logged Snapshot // series of the kernel log for the GPUs of the last usable metrics page
	gpus   []gpu.Identity
	owners []gpu.Owner
}

// Snapshot is the result of reading the other exporter. It also has the source of the GPUs' XIDs.
type Snapshot struct {
	series []prometheus.Metric // series about the kernel log itself
	unread []prometheus.Metric // only while the kernel log is not read
	read   []prometheus.Metric // only while the kernel log is read
	log    *gpu.KernelLog      // nil if nothing follows the kernel log
	counts bool                // whether the kernel log counts the XIDs
}

// Collect serves the snapshot and, while the kernel log is read, its XIDs and SXids.
func (s Snapshot) Collect(ch chan<- prometheus.Metric) {
	parts := [][]prometheus.Metric{s.series, s.unread}
	if s.log != nil && s.log.Up() {
		parts[1] = s.read
		s.log.Collect(ch, s.counts)
	}
	for _, part := range parts {
		for _, m := range part {
			ch <- m
		}
	}
}

// New builds a collector. Its errors are configfile.Errors.
func New(o Options) (*Collector, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Limits = cmp.Or(o.Limits, scrape.DefaultLimits)
	o.Interval = cmp.Or(o.Interval, 15*time.Second)
	if o.Needed == nil {
		o.Needed = func() bool { return true }
	}
	c := &Collector{options: o, memory: newMemory(), parsed: map[*scrape.Reader]*parsed{}, said: "new"}
	for _, t := range o.Targets {
		client, at, err := httpclient.To("gpu.source", t.URL, t.HTTP, t.Transport)
		if err != nil {
			return nil, err
		}
		c.readers = append(c.readers, scrape.NewReader(client, at, cmp.Or(t.Timeout, 5*time.Second), o.Limits, o.UserAgent))
	}
	return c, nil
}

// Run reads the metrics page until ctx ends. It checks every second whether the metrics page is needed.
func (c *Collector) Run(ctx context.Context) {
	look := time.NewTicker(min(time.Second, c.options.Interval))
	defer look.Stop()
	var last time.Time
	needed := false
	for {
		was, now := needed, time.Now()
		if needed = c.options.Needed(); needed != was || needed && now.Sub(last) >= c.options.Interval {
			last = now
			c.Read(ctx, now)
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// Read reads the metrics page once; now is the time by the caller's clock. If the metrics page is unusable, the series of
// earlier metrics pages disappear, because old numbers would be wrong.
func (c *Collector) Read(ctx context.Context, now time.Time) {
	if !c.options.Needed() {
		c.publish(false, Snapshot{}, nil, nil)
		return
	}
	var states []prometheus.Metric
	var reasons, details []string
	for i, r := range c.readers {
		p, err := c.try(ctx, r)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			c.readers[0], c.readers[i] = r, c.readers[0]
			c.note("", "GPUs are read from another exporter", "server", r.Server(), "source", p.Name, "gpus", len(p.gpus))
			last := c.memory.write(p, now, 4*c.options.Interval)
			last.series = append(last.series, metrics.GPUSourceUp.Const(1, p.Name, r.Server(), ""))
			if p.hasXIDs() && c.options.KernelLog != nil {
				last.log = c.options.KernelLog()
				last.log.Know(slices.Collect(maps.Values(p.gpus))...)
			}
			c.publish(true, last, slices.Collect(maps.Values(p.gpus)), slices.Collect(maps.Keys(p.owners)))
			return
		}
		reason := scrape.ReasonOf(err)
		states = append(states, metrics.GPUSourceUp.Const(0, "", r.Server(), reason))
		reasons = append(reasons, r.Server()+" "+reason)
		details = append(details, r.Server()+": "+err.Error()+": "+Remedy(reason))
	}
	c.note(strings.Join(reasons, ", "), "no other exporter's GPU metrics can be used", "reason", strings.Join(reasons, ", "), "err",
		strings.Join(details, "; "))
	c.publish(false, Snapshot{series: states}, nil, nil)
}

func (c *Collector) try(ctx context.Context, r *scrape.Reader) (*parsed, error) {
	p, err := r.Read(ctx)
	if err != nil {
		return nil, err
	}
	if last := c.parsed[r]; last != nil && len(p.Names()) == 0 { // if all GPUs are gone, the other exporter writes an empty metrics page
		return &parsed{Source: last.Source, prefix: last.prefix, series: series{}}, nil
	}
	last, err := parse(p, c.options.Limits)
	if err == nil {
		c.parsed[r] = last
	}
	return last, err
}

// Remedy returns what to do about a reason of llm_gpu_source_up.
func Remedy(reason string) string {
	switch {
	case reason == scrape.Unreachable:
		return "is the exporter running, and does it listen on the address of this node? curl -sv URL"
	case reason == scrape.Unauthorized || reason == scrape.TLSFailed:
		return "set --gpu.source-http-config"
	case reason == reasonNoGPUs:
		return "give the URL of dcgm-exporter (port 9400) or of AMD's device-metrics-exporter (port 5000)"
	case reason == reasonNoUUID:
		return "let that exporter keep the label that identifies a GPU (UUID of dcgm-exporter, serial_number or gpu_id of AMD's); a " +
			"relabelling before it may drop it"
	case strings.HasPrefix(reason, scrape.HTTPStatus):
		return "see the log of that exporter: if one field fails, dcgm-exporter serves no metrics"
	}
	return scrape.Remedy(scrape.Reasons, reason)
}

// note logs the state when it changes. An empty state means that the metrics page is used.
func (c *Collector) note(state, message string, args ...any) {
	if state == c.said {
		return
	}
	c.said = state
	if state == "" {
		c.options.Logger.Info(message, args...)
	} else {
		c.options.Logger.Warn(message, args...)
	}
}

func (c *Collector) publish(up bool, s Snapshot, gpus []gpu.Identity, owners []gpu.Owner) {
	slices.SortFunc(gpus, func(a, b gpu.Identity) int { return cmp.Compare(a.UUID, b.UUID) })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up, c.last, c.gpus, c.owners = up, s, gpus, owners
	if up {
		c.logged = Snapshot{read: s.read, log: s.log, counts: s.counts}
	}
}

// Last returns the last reading, and whether the metrics page was usable. If it was not, the reading has no XIDs.
func (c *Collector) Last() (s Snapshot, up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, c.up
}

// GPUs returns the GPUs of the last metrics page.
func (c *Collector) GPUs() []gpu.Identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gpus
}

// Owners returns the containers that have GPUs, according to the metrics page.
func (c *Collector) Owners() []gpu.Owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) { gpu.Describe(ch) }

// Collect serves the last metrics page without waiting. When the GPUs are known, it serves the kernel log's XIDs even
// without a metrics page.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	last, up, logged := c.last, c.up, c.logged
	c.mu.Unlock()
	last.Collect(ch)
	if !up {
		logged.Collect(ch)
	}
}
