// Package discovery finds the engines of this node, so that users need not list them.
//
// A source names places where engines may be. These are the ports of this node's pods (apiserver.go, pods.go,
// sockets.go), or the listening ports of processes that use a GPU (processes.go). A place becomes a target when an
// engine answers there. It stays a target as long as its source names it, even if the engine no longer answers. If one
// engine answers at several places of a pod, only one of the places becomes a target (same.go). If a source fails, its
// last places remain.
package discovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

const (
	// maxPlaces limits the number of places of a node's pods that the exporter probes.
	maxPlaces = 512
	// probesAtOnce and probeTimeout limit the cost of probing, and the time that a new place waits behind silent places.
	probesAtOnce = 64
	probeTimeout = 3 * time.Second
	// retrySilent is the pause before a silent place is probed again, because an engine listens only after it has loaded
	// its model. retryOther is the pause for servers that answer but are not engines.
	retrySilent = 15 * time.Second
	retryOther  = 5 * time.Minute
)

// Place describes where an engine may answer.
type Place struct {
	Target engine.TargetConfig
	// Declared places become targets before an engine answers there, because the pod declares them as engines.
	Declared bool
	// LeaveAlone explains why the place is not probed. It is empty if the place is probed.
	LeaveAlone string

	rank rank
	uid  string // uid of the pod; empty on a host
}

// rank orders the places at which one engine answers. The place with the lowest rank is read.
type rank int

const (
	ofConfiguration rank = iota - 1 // already a target
	ofEngine                        // a port of a container that has a GPU, or of a process that uses a GPU
	ofAnnotation                    // the port that Prometheus' annotation names
	ofOther                         // a port of another container
)

// Source names the places to probe.
type Source interface {
	// Name is the value of the source label: pods or processes.
	Name() string
	// Run calls report until ctx ends. It reports all places when they change, or the reason why the places are unknown.
	Run(ctx context.Context, report func([]Place, error))
}

// departing is a Source that reports pods that are gone or terminating, and whether each was deleted on purpose.
type departing interface {
	Departed() map[kube.PodName]bool
}

// Options configure a Finder.
type Options struct {
	// Logger receives one record per change of state. Default: slog.Default().
	Logger *slog.Logger
	Source Source
	// Probe finds out which engine answers at a target, as (*engine.Collector).Probe does.
	Probe func(context.Context, engine.TargetConfig) (engine.Engine, error)
	// Configured returns the targets that are read in any case, as (*engine.Collector).Configured does. Default: none.
	Configured func() []engine.TargetConfig
	// Found is called with all targets whenever they change.
	Found func([]engine.TargetConfig)
}

// Finder turns the places of a source into targets, and serves its progress as a prometheus.Collector.
type Finder struct {
	options Options
	changed chan struct{}

	mu       sync.Mutex
	asked    bool // the source has answered
	places   []Place
	err      error
	verdicts map[string]verdict
	compared map[string]comparison // by pod
}

// State is the result of probing a place.
type State string

// These are the states of a place.
const (
	Read       State = "read"        // the place is a target
	Silent     State = "silent"      // nothing answers there
	NoEngine   State = "no_engine"   // a server answers that is not an engine
	SameEngine State = "same_engine" // an engine answers there that also answers at another place
	LeftAlone  State = "left_alone"  // the place is not probed
	unexamined State = "not_asked_yet"
)

type verdict struct {
	state State
	why   string
	retry time.Time // zero means never
}

// New returns a finder. It has no result until Run runs.
func New(o Options) *Finder {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return &Finder{options: o, changed: make(chan struct{}, 1), verdicts: map[string]verdict{}, compared: map[string]comparison{}}
}

// Run looks for engines until ctx ends.
func (f *Finder) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { f.options.Source.Run(ctx, f.report) })
	var targets []engine.TargetConfig
	for {
		next := f.ask(ctx)
		if now := f.targets(); !reflect.DeepEqual(now, targets) {
			targets = now
			f.options.Found(targets)
		}
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		case <-time.After(next):
		}
	}
}

// report stores what the source reports.
func (f *Finder) report(places []Place, err error) {
	f.mu.Lock()
	first := !f.asked
	was := f.err
	f.asked, f.err = true, err
	if err == nil {
		if n := len(places); n > maxPlaces {
			if len(f.places) < maxPlaces {
				f.options.Logger.Warn("too many addresses to search for engines; the rest are skipped", "discovery", f.options.Source.Name(), "places",
					n, "limit", maxPlaces)
			}
			places = places[:maxPlaces]
		}
		f.places = places
	}
	f.mu.Unlock()
	switch name := f.options.Source.Name(); {
	case err != nil && (was == nil || was.Error() != err.Error()):
		f.options.Logger.Error("cannot search for engines; engines found before are still read", "discovery", name, "err", err)
	case err == nil && (was != nil || first):
		f.options.Logger.Info("looking for engines", "discovery", name)
	}
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// ask probes one round of the places that are due, and returns the time until the next place is due.
func (f *Finder) ask(ctx context.Context) time.Duration {
	now := time.Now()
	var wg sync.WaitGroup
	for _, p := range f.due(now) {
		wg.Go(func() {
			v := f.probe(ctx, p)
			f.mu.Lock()
			f.settle(p, v)
			f.mu.Unlock()
		})
	}
	wg.Wait()
	f.tellApart(ctx)

	f.mu.Lock()
	defer f.mu.Unlock()
	next := now.Add(retryOther)
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	for _, p := range f.places {
		earlier(f.verdicts[p.key()].retry)
		if _, asked := f.verdicts[p.key()]; !asked {
			earlier(now)
		}
	}
	for _, c := range f.compared {
		earlier(c.again)
	}
	return time.Until(next)
}

// due decides about places that need no probe, and returns the places to probe now. New places come first, followed by the places that have
// waited longest. There are at most probesAtOnce places, plus the remaining places of the last place's pod. Therefore, an engine in a new
// pod waits for at most one round of other places, even if many places are silent.
func (f *Finder) due(now time.Time) (due []Place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	named := map[string]bool{}
	for _, p := range f.places {
		named[p.key()] = true
		v, known := f.verdicts[p.key()]
		switch {
		case p.LeaveAlone != "":
			f.settle(p, verdict{state: LeftAlone, why: p.LeaveAlone})
		case p.Declared:
			f.settle(p, verdict{state: Read})
		case !known || v.state == LeftAlone || !v.retry.IsZero() && !now.Before(v.retry):
			due = append(due, p)
		}
	}
	for key := range f.verdicts {
		if !named[key] {
			delete(f.verdicts, key)
		}
	}
	slices.SortStableFunc(due, func(a, b Place) int { return f.verdicts[a.key()].retry.Compare(f.verdicts[b.key()].retry) })
	for n := probesAtOnce; n < len(due); n++ {
		if due[n].pod() != due[n-1].pod() {
			return due[:n]
		}
	}
	return due
}

// settle stores a verdict. The caller holds the lock.
func (f *Finder) settle(p Place, v verdict) {
	if old := f.verdicts[p.key()]; old.state != v.state {
		level, message := slog.LevelDebug, "no engine here"
		switch v.state {
		case Read:
			level, message = slog.LevelInfo, "engine found"
		case LeftAlone:
			level, message = slog.LevelInfo, "engine left alone"
		case SameEngine:
			level, message = slog.LevelInfo, "engine found before, at another address"
		case NoEngine, Silent, unexamined:
		}
		f.options.Logger.Log(context.Background(), level, message, "target", p.Target.URL, "why", v.why, "labels", p.Target.Labels)
	}
	f.verdicts[p.key()] = v
}

// probe finds out which engine answers at a place.
func (f *Finder) probe(ctx context.Context, p Place) verdict {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	e, err := f.options.Probe(ctx, p.Target)
	switch {
	case err != nil: // the reported place cannot be a target
		return verdict{NoEngine, err.Error(), time.Now().Add(retryOther)}
	case e.IsEngine():
		return verdict{state: Read}
	case e.Answers():
		return verdict{NoEngine, e.Why(), time.Now().Add(retryOther)}
	}
	return verdict{Silent, e.Reason, time.Now().Add(retrySilent)}
}

// targets returns the places that are read, ordered by address.
func (f *Finder) targets() []engine.TargetConfig {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []engine.TargetConfig
	for _, p := range f.places {
		if f.verdicts[p.key()].state == Read {
			all = append(all, p.Target)
		}
	}
	slices.SortFunc(all, func(a, b engine.TargetConfig) int { return cmp.Compare(a.URL, b.URL) })
	return all
}

// key identifies a place by its address and its pod, because another pod may later get the address.
func (p Place) key() string {
	return p.Target.URL + "\xff" + p.pod() + "\xff" + p.Target.Labels[metrics.LabelContainer]
}

// pod identifies the pod of a place. All places on a host count as one pod.
func (p Place) pod() string {
	return p.Target.Labels[metrics.LabelNamespace] + "\xff" + p.Target.Labels[metrics.LabelPod]
}

// Seen describes a place and its state for people.
type Seen struct {
	URL, Namespace, Pod, Container string
	State                          State
	Why                            string // empty, a reason of engine.Reasons, or a sentence
}

// Places lists the places that are not read, and the reasons.
func (f *Finder) Places() (places []Seen, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.places {
		v, ok := f.verdicts[p.key()]
		if v.state == Read {
			continue
		}
		if !ok {
			v.state = unexamined
		}
		l := p.Target.Labels
		places = append(places, Seen{p.Target.URL, l[metrics.LabelNamespace], l[metrics.LabelPod], l[metrics.LabelContainer], v.state, v.why})
	}
	return places, f.err
}

// Describe implements prometheus.Collector.
func (f *Finder) Describe(ch chan<- *prometheus.Desc) {
	for _, family := range []*metrics.Family{metrics.DiscoveryUp, metrics.DiscoveryPlaces, metrics.PodDeletedOnPurpose} {
		ch <- family.Desc()
	}
}

// Collect implements prometheus.Collector.
func (f *Finder) Collect(ch chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.asked {
		return
	}
	name := f.options.Source.Name()
	reason := ""
	if f.err != nil {
		reason = "error"
		var why interface{ Reason() string }
		if errors.As(f.err, &why) {
			reason = why.Reason()
		}
	}
	ch <- metrics.DiscoveryUp.Const(metrics.Bool(f.err == nil), name, reason)
	count := map[State]int{Read: 0, Silent: 0, NoEngine: 0, SameEngine: 0, LeftAlone: 0}
	for _, v := range f.verdicts {
		count[v.state]++
	}
	for state, n := range count {
		ch <- metrics.DiscoveryPlaces.Const(float64(n), name, string(state))
	}
	if s, ok := f.options.Source.(departing); ok {
		for pod, onPurpose := range s.Departed() {
			ch <- metrics.PodDeletedOnPurpose.Const(metrics.Bool(onPurpose), pod.Namespace, pod.Name)
		}
	}
}
