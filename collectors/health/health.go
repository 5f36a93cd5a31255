// Package health gives a verdict on each GPU and on its node: how fit it is for use, the reason, and the start of the verdict.
//
//	conditions  the conditions of verdicts, as data        conditions.go
//	view        the readings of one GPU                    view.go
//	xids        the XIDs of a GPU, as conditions           xids.go
//	judge       hysteresis, and the series of verdicts     health.go
//
// The package reads the samples of the GPU collectors, whatever their source, and makes no driver calls. A missing value changes nothing,
// so a GPU that does not answer keeps its conditions.
package health

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Interval is how often the samples are judged.
const Interval = 5 * time.Second

// Finding is a condition that currently counts.
type Finding struct {
	// Condition is the name of the condition: one of Conditions, or xid_ and a code.
	Condition string `json:"condition"`
	// Verdict is the condition's own verdict.
	Verdict metrics.Verdict `json:"verdict"`
	// Alert names the alert about the condition. It is empty if there is none.
	Alert string `json:"alert,omitempty"`
	// Since is when the condition was first seen.
	Since time.Time `json:"since"`
	// Meaning and Action describe the fault and the remedy.
	Meaning string `json:"meaning"`
	Action  string `json:"action"`
	// Source lists the metrics that show the condition.
	Source []string `json:"source"`
}

// Workload is an engine or a pod that runs on a GPU.
type Workload struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Model     string `json:"model,omitempty"`  // empty for a pod that is not an engine
	Server    string `json:"server,omitempty"` // host:port of the engine's metrics endpoint
}

// GPU is the verdict on one GPU.
type GPU struct {
	UUID    string          `json:"gpu_uuid,omitempty"` // empty for a GPU that has never answered
	Index   string          `json:"gpu,omitempty"`
	PCI     string          `json:"pci_bus_id,omitempty"`
	Verdict metrics.Verdict `json:"verdict"`
	// Since is the time of the last change of the verdict. It is zero if the GPU was healthy at all times.
	Since    time.Time  `json:"since,omitzero"`
	Findings []Finding  `json:"conditions"`
	Runs     []Workload `json:"runs"`
}

// Node is the verdict on a node and its GPUs.
type Node struct {
	// Verdict is the worst verdict on the GPUs and on the parts that they share.
	Verdict  metrics.Verdict `json:"verdict"`
	Findings []Finding       `json:"conditions"` // findings on shared parts
	GPUs     []GPU           `json:"gpus"`
	// At is the time of the judgement. Watching is the time when the exporter began to watch the GPUs. Earlier events are
	// known only from the driver and the kernel log.
	At       time.Time `json:"at"`
	Watching time.Time `json:"watching_since"`
	// Boot identifies the current boot of the node.
	Boot string `json:"boot_id,omitempty"`
}

// Options configure a Judge.
type Options struct {
	// Read collects the samples of the GPUs and of their workloads.
	Read func(chan<- prometheus.Metric)
	// Stopped reports whether the engine of a workload has stopped, so that nothing answers at its metrics endpoint. Nil
	// means that no engines are read.
	Stopped func(Workload) bool
	// ProcFS is where procfs is mounted.
	ProcFS string
}

// Judge gives verdicts while Run runs, and serves them as a prometheus.Collector.
type Judge struct {
	read    func(chan<- prometheus.Metric)
	stopped func(Workload) bool
	boot    string

	mu    sync.Mutex
	gpus  map[string]*subject // by UUID, or by PCI address while only the address is known
	node  *subject
	start time.Time // of the first judgement
	last  time.Time
}

// New returns a judge without any readings yet.
func New(o Options) *Judge {
	boot, _ := os.ReadFile(cmp.Or(o.ProcFS, "/proc") + "/sys/kernel/random/boot_id") // without it, restarts of the node are not detected
	return &Judge{read: o.Read, stopped: o.Stopped, boot: strings.TrimSpace(string(boot)), gpus: map[string]*subject{}, node: newSubject()}
}

// Run judges until ctx ends.
func (j *Judge) Run(ctx context.Context) {
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-tick.C:
			j.Look(at)
		}
	}
}

// subject is what a verdict is about: a GPU, or the parts that the GPUs of a node share.
type subject struct {
	uuid, index, pci string
	states           map[string]*state // by condition
	xids             xids
	energy           float64
	since            time.Time
	verdict          metrics.Verdict
	runs             []Workload
	ran              map[Workload]time.Time // engines, with the time when each last used the GPU
}

func newSubject() *subject {
	return &subject{states: map[string]*state{}, xids: newXIDs(), ran: map[Workload]time.Time{}}
}

// state is the state of a condition.
type state struct {
	from  time.Time // seen without a break since then; zero if not seen
	seen  time.Time // time of the last sighting
	since time.Time // counts since then; zero if the condition does not count
	best  float64
	grown []point
}

// point is the value of a counter at a time.
type point struct {
	at    time.Time
	value float64
}

// Look judges once, for callers that have their own clock. at must not be earlier than in the last call.
func (j *Judge) Look(at time.Time) {
	samples := make(chan prometheus.Metric, 64)
	go func() {
		defer close(samples)
		j.read(samples)
	}()
	var all []*metrics.Sample
	for m := range samples {
		if s, ok := m.(*metrics.Sample); ok {
			all = append(all, s)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.start.IsZero() {
		j.start = at
	}
	j.last = at
	shared, views := j.sort(all, at)
	links := 0.0
	for _, v := range views {
		up, _ := v.sum(metrics.GPUNVLinkUp)
		links = max(links, up)
	}
	j.node.judge(shared, at, true)
	for key, v := range views {
		g := j.gpus[key]
		v.links = links
		g.reset(v)
		g.runs = workloads(v)
		v.died = g.died(j.stopped, at)
		g.judge(v, at, false)
		g.xids.judge(v, at, at.Equal(j.start))
		g.settle(at)
	}
	j.node.settle(at)
}

// sort assigns the samples to GPUs. It returns as shared the samples that belong to no GPU. A sample may name a GPU by
// its UUID, by its address, or by both. The caller holds j.mu.
func (j *Judge) sort(all []*metrics.Sample, at time.Time) (shared *view, views map[string]*view) {
	address := map[string]string{} // of a GPU
	for _, s := range all {
		if uuid, pci := label(s, metrics.LabelGPUUUID), label(s, metrics.LabelPCIBusID); uuid != "" && pci != "" {
			address[pci] = uuid
		}
	}
	for _, g := range j.gpus {
		if g.uuid != "" && address[g.pci] == "" {
			address[g.pci] = g.uuid
		}
	}
	for pci, uuid := range address { // the same GPU, named by its address in samples before the UUID was known
		if g := j.gpus[pci]; g != nil {
			delete(j.gpus, pci)
			j.gpus[uuid] = cmp.Or(j.gpus[uuid], g)
		}
	}
	shared, views = newView(at), map[string]*view{}
	for _, s := range all {
		uuid, pci := label(s, metrics.LabelGPUUUID), label(s, metrics.LabelPCIBusID)
		if s.Family == metrics.GPUSXIDErrors || s.Family == metrics.GPUSXIDLastTimestamp || uuid == "" && pci == "" {
			shared.add(s)
			continue
		}
		uuid = cmp.Or(uuid, address[pci])
		key := cmp.Or(uuid, pci)
		g := j.gpus[key]
		if g == nil {
			g = newSubject()
			j.gpus[key] = g
		}
		g.uuid, g.pci, g.index = uuid, cmp.Or(pci, g.pci), cmp.Or(label(s, metrics.LabelGPU), g.index)
		if views[key] == nil {
			views[key] = newView(at)
		}
		views[key].add(s)
	}
	return shared, views
}

// reset ends the conditions that a reset repairs, if the driver's energy counter shows a reset.
func (g *subject) reset(v *view) {
	energy, ok := v.sum(metrics.GPUEnergy)
	if !ok {
		return
	}
	if energy < g.energy {
		for _, c := range Conditions {
			if s := g.states[c.Name]; s != nil && c.UntilReset {
				*s = state{}
			}
		}
		g.xids.reset()
	}
	g.energy = energy
}

// judge checks the conditions.
func (g *subject) judge(v *view, at time.Time, node bool) {
	for i := range Conditions {
		c := &Conditions[i]
		if c.Node != node {
			continue
		}
		s := g.states[c.Name]
		if s == nil {
			s = &state{}
			g.states[c.Name] = s
		}
		if value, ok := c.test.value(v); ok {
			s.take(c, s.holds(c.test, value, at), v.died, at)
		}
	}
}

// holds reports whether a value passes a test.
func (s *state) holds(t test, value float64, at time.Time) bool {
	switch {
	case t.falls:
		s.best = max(s.best, value)
		return value < s.best
	case t.mean && value < 0:
		s.grown = nil
		return false
	case t.window == 0:
		return value >= t.least
	}
	s.grown = append(s.grown, point{at, value})
	for len(s.grown) > 1 && at.Sub(s.grown[1].at) >= t.window {
		s.grown = s.grown[1:]
	}
	if t.mean {
		sum := 0.0
		for _, p := range s.grown {
			sum += p.value
		}
		return sum/float64(len(s.grown)) >= t.least
	}
	grown := 0.0
	for i, p := range s.grown[1:] {
		grown += max(0, p.value-s.grown[i].value) // a counter that falls was reset
	}
	return grown >= t.least
}

// died reports whether an engine that ran on the GPU within the last minutes has stopped. The workloads of a lost GPU
// are unknown.
func (g *subject) died(stopped func(Workload) bool, at time.Time) (died bool) {
	for _, w := range g.runs {
		if w.Server != "" {
			g.ran[w] = at
		}
	}
	for w, seen := range g.ran {
		if at.Sub(seen) > boot {
			delete(g.ran, w)
		} else if stopped != nil && stopped(w) {
			died = true
		}
	}
	return died
}

// take records whether a condition is seen, and whether an engine has stopped with the GPU.
func (s *state) take(c *Condition, seen, died bool, at time.Time) {
	if !seen {
		s.from = time.Time{}
		if !s.since.IsZero() && at.Sub(s.seen) >= c.Quiet {
			s.since = time.Time{}
		}
		return
	}
	if s.from.IsZero() {
		s.from = at
	}
	s.seen = at
	if s.since.IsZero() && (at.Sub(s.from) >= c.Hold || c.WithEngine && died) {
		s.since = s.from
	}
}

// findings lists the conditions that count. The worst comes first.
func (g *subject) findings() []Finding {
	found := []Finding{}
	for _, c := range Conditions {
		if s := g.states[c.Name]; s != nil && !s.since.IsZero() {
			f := Finding{Condition: c.Name, Verdict: c.Verdict, Alert: c.Alert, Since: s.since, Meaning: c.Meaning, Action: c.Action}
			for _, r := range c.Reads {
				f.Source = append(f.Source, r.Name)
			}
			found = append(found, f)
		}
	}
	found = append(found, g.xids.findings()...)
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(b.Verdict, a.Verdict) })
	return found
}

// settle records when the verdict changed.
func (g *subject) settle(at time.Time) {
	verdict := worst(g.findings())
	if verdict != g.verdict {
		g.verdict, g.since = verdict, at
	}
}

func worst(findings []Finding) (v metrics.Verdict) {
	for _, f := range findings {
		v = max(v, f.Verdict)
	}
	return v
}

// workloads lists the workloads of a GPU: engines, and pods without an engine.
func workloads(v *view) []Workload {
	runs := []Workload{}
	pods := map[[2]string]bool{}
	for _, s := range v.of(metrics.EngineGPUInfo) {
		w := Workload{label(s, metrics.LabelNamespace), label(s, metrics.LabelPod), label(s, metrics.LabelModel), label(s, metrics.LabelServer)}
		pods[[2]string{w.Namespace, w.Pod}] = true
		if !slices.Contains(runs, w) {
			runs = append(runs, w)
		}
	}
	for _, s := range v.of(metrics.GPUAllocationInfo) {
		pod := [2]string{label(s, metrics.LabelNamespace), label(s, metrics.LabelPod)}
		if !pods[pod] {
			pods[pod] = true
			runs = append(runs, Workload{Namespace: pod[0], Pod: pod[1]})
		}
	}
	return runs
}

// Blind reports whether the present state of the GPUs is unknown.
func (n *Node) Blind() bool {
	return slices.ContainsFunc(n.Findings, func(f Finding) bool {
		return slices.ContainsFunc(Conditions, func(c Condition) bool { return c.Blind && c.Name == f.Condition })
	})
}

// Node returns the verdicts of the last judgement. It returns false until a GPU has been read, or has been missing for
// a long time.
func (j *Judge) Node() (Node, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := Node{Findings: j.node.findings(), GPUs: []GPU{}, At: j.last, Watching: j.start, Boot: j.boot}
	n.Verdict = worst(n.Findings)
	for _, key := range slices.Sorted(maps.Keys(j.gpus)) {
		g := j.gpus[key]
		n.GPUs = append(n.GPUs, GPU{
			UUID: g.uuid, Index: g.index, PCI: g.pci, Verdict: g.verdict, Since: g.since, Findings: g.findings(),
			Runs: g.runs,
		})
		n.Verdict = max(n.Verdict, g.verdict)
	}
	slices.SortStableFunc(n.GPUs, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(len(a.Index), len(b.Index)), cmp.Compare(a.Index, b.Index))
	})
	return n, len(n.GPUs)+len(n.Findings) > 0
}

// Describe implements prometheus.Collector.
func (j *Judge) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range []*metrics.Family{metrics.GPUHealth, metrics.GPUNodeHealth, metrics.GPUHealthCondition} {
		ch <- f.Desc()
	}
}

// Collect implements prometheus.Collector.
func (j *Judge) Collect(ch chan<- prometheus.Metric) {
	n, ok := j.Node()
	if !ok {
		return
	}
	ch <- metrics.GPUNodeHealth.Const(float64(n.Verdict))
	condition := func(g GPU, f Finding) {
		ch <- metrics.GPUHealthCondition.Const(float64(f.Since.UnixMilli())/1e3, g.UUID, g.Index, g.PCI, f.Condition, f.Verdict.String(),
			f.Alert, f.Meaning, f.Action)
	}
	for _, g := range n.GPUs {
		ch <- metrics.GPUHealth.Const(float64(g.Verdict), g.UUID, g.Index, g.PCI)
		for _, f := range g.Findings {
			condition(g, f)
		}
	}
	for _, f := range n.Findings {
		condition(GPU{}, f)
	}
}
