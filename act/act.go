package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/health"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Options configure an Actor.
type Options struct {
	Log *slog.Logger
	// Config is the configuration of the client of the API server.
	Config *rest.Config
	// Namespace is the namespace of the exporters' pods, the lease and the events. Selector matches the labels of the
	// exporters' pods.
	Namespace, Selector string
	// Identity distinguishes this replica from other replicas.
	Identity string
	// Scheme and Port are parts of the exporters' addresses. Client connects to them.
	Scheme, Port string
	Client       *http.Client
	// DryRun logs the changes without writing them.
	DryRun bool
	// Most is the strongest allowed effect.
	Most Effect
	// Ceiling limits how many GPUs may be out of service at once.
	Ceiling Ceiling
	// PoolLabels lists labels of nodes. A node's pool is the value of the first of these labels that the node has.
	PoolLabels []string
	// Interval is the time between two rounds. Default: 10 s.
	Interval time.Duration
}

// forgets is how long an exporter must have watched before its verdict may lift a taint that is older than the watch.
const forgets = time.Hour

// Actor writes the verdicts to Kubernetes.
type Actor struct {
	Options
	cluster *cluster
	said    map[string]string // by unit: the last logged text
	untold  map[string]untold // by unit
	state   string            // of the last round; logged only when it changes
	unseen  map[string]time.Time
}

// New returns an actor that does nothing until Run runs.
func New(o Options) (*Actor, error) {
	if o.Interval == 0 {
		o.Interval = 10 * time.Second
	}
	c, err := newCluster(o.Config)
	return &Actor{Options: o, cluster: c, said: map[string]string{}, untold: map[string]untold{}, unseen: map[string]time.Time{}}, err
}

// Run acts until ctx ends. While the API server does not answer, nothing changes.
func (a *Actor) Run(ctx context.Context) {
	for {
		round, cancel := context.WithTimeout(ctx, 3*a.Interval)
		err := a.round(round)
		cancel()
		if ctx.Err() != nil {
			return
		}
		a.note(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(a.Interval):
		}
	}
}

// note logs the outcome of a round when it changes.
func (a *Actor) note(err error) {
	state := ""
	if err != nil {
		state = err.Error()
	}
	if (state == "") != (a.state == "") {
		if err != nil {
			a.Log.Error("cannot act on sick GPUs; GPUs that are out of service stay out", "err", err)
		} else {
			a.Log.Info("acting on sick GPUs", "dry_run", a.DryRun)
		}
	}
	a.state = state
}

// round reads, decides and writes once.
func (a *Actor) round(ctx context.Context) error {
	if !a.DryRun {
		if leads, err := a.cluster.lead(ctx, a.Namespace, a.Identity); err != nil || !leads {
			return err
		}
	}
	f, err := a.read(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, s := range decide(f.units, a.Ceiling, a.Most) {
		news := a.log(s)
		if a.DryRun {
			continue
		}
		if err := a.do(ctx, f, s, news); err != nil && !again(err) {
			failed = append(failed, fmt.Errorf("%s: %w", s.unit.name(), err))
		}
	}
	if !a.DryRun {
		failed = append(failed, a.conditions(ctx, f)...)
	}
	return errors.Join(failed...)
}

// fleet holds the data that a round reads.
type fleet struct {
	units []*unit
	nodes map[string]*unstructured.Unstructured
	rules map[device]*unstructured.Unstructured
	says  map[string]*health.Node // by node; nil if the exporter does not answer
}

// read queries the API server and the exporters.
func (a *Actor) read(ctx context.Context) (f fleet, err error) {
	var devices map[string]device
	var exporters []exporter
	if exporters, err = a.cluster.exporters(ctx, a.Namespace, a.Selector); err == nil {
		f.nodes, err = a.cluster.nodes(ctx)
	}
	if err == nil {
		devices, err = a.cluster.devices(ctx)
	}
	if err == nil {
		f.rules, err = a.cluster.rules(ctx)
	}
	if err != nil {
		return f, err
	}
	offers := map[string]bool{} // nodes with devices
	for key := range devices {
		node, _, _ := strings.Cut(key, "/")
		offers[node] = true
	}
	f.says = a.ask(ctx, exporters)
	seen := map[device]bool{}
	for name, says := range f.says {
		node := f.nodes[name]
		if node == nil {
			continue
		}
		rest := &unit{node: name, pool: pool(node, a.PoolLabels), known: says != nil}
		_, rest.now = nodeTaints(node)
		since, boot := noted(node)
		if says != nil {
			rest.boot, rest.watching = says.Boot, watching(says, since, boot)
			for _, g := range says.GPUs {
				d, ok := devices[name+"/"+g.UUID]
				switch {
				case a.cluster.taintRules.Empty() || !offers[name]:
					rest.gpus = append(rest.gpus, g)
					continue
				case !ok: // the node offers devices but not this GPU, so the other GPUs stay in service
					continue
				}
				u := &unit{node: name, pool: rest.pool, device: &d, gpus: []health.GPU{g}, boot: says.Boot, known: true, watching: true}
				seen[d] = true
				if rule := f.rules[d]; rule != nil {
					u.now = ruleTaint(rule)
					since, boot := noted(rule)
					u.watching = watching(says, since, boot)
				}
				f.units = append(f.units, u)
			}
		}
		if len(rest.gpus) > 0 || rest.now.effect != NoTaint {
			f.units = append(f.units, rest)
		}
	}
	// A device stays out of service, and counts for the ceiling, even if no exporter reports it.
	for d, rule := range f.rules {
		if !seen[d] {
			d := d
			f.units = append(f.units, &unit{node: d.pool, device: &d, gpus: []health.GPU{{UUID: d.name}}, now: ruleTaint(rule)})
		}
	}
	return f, nil
}

// watching reports whether an exporter's verdict may lift a taint of a given time. It may if the exporter has watched
// or the node has restarted since then, or if the exporter has watched long enough to see a fault.
func watching(says *health.Node, since time.Time, boot string) bool {
	return !says.Watching.After(since) || boot != "" && says.Boot != boot || says.At.Sub(says.Watching) >= forgets
}

// ask queries all exporters, a few at a time.
func (a *Actor) ask(ctx context.Context, exporters []exporter) map[string]*health.Node {
	const atOnce = 16
	var mu sync.Mutex
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	says := map[string]*health.Node{}
	for _, e := range exporters {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			n, err := a.askOne(ctx, e.address)
			if err != nil {
				a.Log.Debug("an exporter does not answer", "node", e.node, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if n != nil || says[e.node] == nil { // during an update, a node has two pods, and only one answers
				says[e.node] = n
			}
		})
	}
	group.Wait()
	return says
}

// answerLimit limits the size of an answer. Sixteen GPUs and their workloads need a few hundred KiB.
const answerLimit = 4 << 20

// patience is how long an exporter may take to answer, because it keeps the answer ready.
const patience = 5 * time.Second

func (a *Actor) askOne(ctx context.Context, address string) (*health.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(address, a.Port)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.Scheme+"://"+address+"/verdict/gpus", nil)
	if err != nil {
		return nil, err
	}
	resp, err := a.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	n := &health.Node{}
	return n, json.NewDecoder(io.LimitReader(resp.Body, answerLimit)).Decode(n)
}

// log logs each action on a unit once, including actions of a dry run. It reports whether the action is new.
func (a *Actor) log(s step) (news bool) {
	text := string(s.want.effect) + " " + s.want.verdict + " " + s.held
	before, known := a.said[s.unit.name()]
	if text == before || !known && !s.changes() && s.held == "" {
		return false
	}
	a.said[s.unit.name()] = text
	what := "taint set"
	switch {
	case s.held != "":
		what = "held back by the ceiling"
	case s.want.effect == NoTaint:
		what = "taint lifted"
	}
	a.Log.Warn("sick GPU: "+what, "what", s.unit.name(), "verdict", s.want.verdict, "effect", s.want.effect, "why", s.unit.why(),
		"ceiling", s.held, "dry_run", a.DryRun)
	return true
}

// untold is an event that waits until its change is written and the API server accepts the event. The answer to a write
// may be lost, and the API server may fail between the two writes.
type untold struct {
	when  taint
	event *unstructured.Unstructured
}

// do writes one step and its event once. If a node stays in service because of a ceiling, only an event shows this. For
// a device, the device's own rule shows this.
func (a *Actor) do(ctx context.Context, f fleet, s step, news bool) error {
	u := s.unit
	err := a.tell(ctx, u, u.now)
	if !s.changes() && !(news && s.held != "" && u.device == nil) {
		return err
	}
	reason, note := "GPUTainted", u.name()+": "+s.want.verdict+", "+string(s.want.effect)+". "+u.why()
	switch {
	case s.held != "":
		reason, note = "GPUHeldBack", u.name()+" stays in service: "+s.held+". "+u.why()
	case s.want.effect == NoTaint:
		reason, note = "GPULifted", u.name()+" is "+u.verdict().String()+" again"
	}
	a.untold[u.name()] = untold{s.want, event(a.Namespace, u.node, reason, note)}
	switch {
	case !s.changes():
	case u.device != nil:
		err = a.cluster.setRule(ctx, *u.device, f.rules[*u.device], s.want, u.boot)
	default:
		err = a.cluster.setNodeTaint(ctx, f.nodes[u.node], s.want, u.boot)
	}
	if err == nil {
		err = a.tell(ctx, u, s.want)
	}
	return err
}

// tell writes the waiting event of a unit, if the unit now has the taint that the event is about. An event about
// another taint is dropped, because that taint was not set.
func (a *Actor) tell(ctx context.Context, u *unit, now taint) error {
	waits, ok := a.untold[u.name()]
	if ok && waits.when == now {
		if err := a.cluster.tell(ctx, waits.event); err != nil {
			return err
		}
	}
	delete(a.untold, u.name())
	return nil
}

// silence is how long an exporter may be silent before the condition of its node shows this.
const silence = time.Minute

// conditions writes the condition of each node that has an exporter.
func (a *Actor) conditions(ctx context.Context, f fleet) (failed []error) {
	for name, says := range f.says {
		node := f.nodes[name]
		if node == nil {
			continue
		}
		want := condition{"Unknown", "ExporterSilent", "the exporter of the node does not answer"}
		if says == nil {
			if a.unseen[name].IsZero() {
				a.unseen[name] = time.Now()
			}
			if time.Since(a.unseen[name]) < silence {
				continue
			}
		} else {
			delete(a.unseen, name)
			want = conditionOf(says)
		}
		if err := a.cluster.setCondition(ctx, node, want); err != nil && !again(err) {
			failed = append(failed, fmt.Errorf("condition of node %s: %w", name, err))
		}
	}
	return failed
}

// conditionOf returns the condition of a node for a verdict.
func conditionOf(says *health.Node) condition {
	c := condition{"True", "Healthy", "no GPU of the node has to leave service"}
	switch {
	case says.Blind():
		c.status = "Unknown"
	case says.Verdict > metrics.Degraded:
		c.status = "False"
	}
	if says.Verdict > metrics.Healthy {
		name := says.Verdict.String()
		all := &unit{gpus: says.GPUs}
		why := []string{}
		for _, found := range says.Findings {
			why = append(why, found.Condition+" ("+found.Meaning+"; "+found.Action+")")
		}
		if gpus := all.why(); gpus != "" {
			why = append(why, gpus)
		}
		c.reason, c.message = strings.ToUpper(name[:1])+name[1:], strings.Join(why, ", ")
	}
	return c
}
