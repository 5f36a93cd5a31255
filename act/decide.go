// Package act takes sick GPUs out of service in a Kubernetes cluster, and returns them to service. It writes the
// exporters' verdicts to Kubernetes, up to a ceiling.
//
//	decide   what should be out of service, and what the ceiling prevents      decide.go
//	cluster  reads and writes nodes, devices, taints and events                cluster.go
//	act      the loop that reads verdicts, decides and writes                  act.go
package act

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/health"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Effect is the effect of a taint, with Kubernetes' names.
type Effect string

// These are the effects. The weakest comes first. The effect None marks a device as degraded, and keeps no pod away.
const (
	NoTaint    Effect = ""
	None       Effect = "None"
	NoSchedule Effect = "NoSchedule"
	NoExecute  Effect = "NoExecute"
)

var effects = []Effect{NoTaint, None, NoSchedule, NoExecute}

func (e Effect) less(than Effect) bool { return slices.Index(effects, e) < slices.Index(effects, than) }

// out reports whether the effect takes a unit out of service.
func (e Effect) out() bool { return e == NoSchedule || e == NoExecute }

// effectOf returns the effect for a verdict, limited to the strongest allowed effect.
func effectOf(v metrics.Verdict, most Effect) Effect {
	e := map[metrics.Verdict]Effect{metrics.Degraded: None, metrics.Drain: NoSchedule, metrics.Reset: NoExecute, metrics.Replace: NoExecute}[v]
	if most.less(e) {
		return most
	}
	return e
}

// Ceiling is the share of GPUs that may be out of service at once, in the cluster, in a node pool, and for a model. One
// GPU is always allowed. If a node has no devices of its own, the whole node is allowed.
type Ceiling struct{ Cluster, Pool, Model float64 }

// unit is the smallest part that can be taken out of service. It is a GPU with its own device, or all GPUs of a node.
type unit struct {
	node, pool string
	device     *device // nil stands for the node
	gpus       []health.GPU
	boot       string
	watching   bool // the exporter has watched since the unit was taken out, or long enough to see a fault
	known      bool // the unit's exporter answered
	now        taint
}

// taint is the taint of this program on a unit.
type taint struct {
	effect  Effect
	verdict string
}

// name describes a unit, for logs and events.
func (u *unit) name() string {
	if u.device == nil {
		return "node " + u.node
	}
	return "GPU " + u.gpus[0].UUID + " of node " + u.node
}

// verdict returns the worst verdict of the unit's GPUs.
func (u *unit) verdict() (worst metrics.Verdict) {
	for _, g := range u.gpus {
		worst = max(worst, g.Verdict)
	}
	return worst
}

// since returns the time since which the worst verdict has applied.
func (u *unit) since() (first time.Time) {
	for _, g := range u.gpus {
		if g.Verdict == u.verdict() && (first.IsZero() || g.Since.Before(first)) {
			first = g.Since
		}
	}
	return first
}

// why lists the conditions and the workloads.
func (u *unit) why() string {
	var why, runs []string
	for _, g := range u.gpus {
		for _, f := range g.Findings {
			why = append(why, "GPU "+cmp.Or(g.Index, g.PCI)+": "+f.Condition+" ("+f.Meaning+"; "+f.Action+")")
		}
		for _, r := range g.Runs {
			if name := strings.Trim(r.Namespace+"/"+cmp.Or(r.Model, r.Pod), "/"); name != "" && !slices.Contains(runs, name) {
				runs = append(runs, name)
			}
		}
	}
	text := strings.Join(why, ", ")
	if len(runs) > 0 {
		text += ". Workloads: " + strings.Join(runs, ", ")
	}
	return text
}

// step is the change of one unit.
type step struct {
	unit *unit
	want taint
	held string // the ceiling that keeps the unit in service, or empty
}

// changes reports whether the step changes the unit.
func (s step) changes() bool { return s.want != s.unit.now }

// decide returns a step for each unit. Units that are out of service and still sick stay out, and count first. The
// other units follow. The worst verdict comes first, and among equal verdicts the oldest. No taint is lifted while the
// exporter does not answer, or while its verdict may not lift the taint (see watching).
func decide(units []*unit, ceiling Ceiling, most Effect) []step {
	count := newCount(units, ceiling)
	steps := make([]step, len(units))
	order := make([]int, len(units))
	for i, u := range units {
		order[i] = i
		steps[i] = step{unit: u, want: u.now}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := units[a], units[b]
		return cmp.Or(cmp.Compare(metrics.Bool(y.now.effect.out()), metrics.Bool(x.now.effect.out())), cmp.Compare(y.verdict(), x.verdict()),
			x.since().Compare(y.since()), strings.Compare(x.name(), y.name()))
	})
	for _, i := range order {
		u, s := units[i], &steps[i]
		want := taint{effectOf(u.verdict(), most), u.verdict().String()}
		if u.device == nil && want.effect == None { // a node gets no taint for the verdict degraded
			want = taint{}
		}
		if want.effect == NoTaint {
			want = taint{}
		}
		switch {
		case !u.known, want.effect.less(u.now.effect) && !u.watching:
			want = u.now
		case want.effect.out() && !u.now.effect.out():
			if s.held = count.full(u); s.held != "" {
				want = taint{None, want.verdict}
				if u.device == nil {
					want = taint{}
				}
			}
		}
		if want.effect.out() {
			count.take(u)
		}
		s.want = want
	}
	return steps
}

// count holds the numbers of GPUs that are out of service, by cluster, pool and model.
type count struct{ all, out, most map[string]int }

func newCount(units []*unit, c Ceiling) count {
	n := count{map[string]int{}, map[string]int{}, map[string]int{}}
	for _, u := range units {
		for key, gpus := range u.keys() {
			n.all[key] += gpus
		}
	}
	for key, all := range n.all {
		share := map[byte]float64{'c': c.Cluster, 'p': c.Pool, 'm': c.Model}[key[0]]
		n.most[key] = int(share * float64(all))
	}
	return n
}

// keys returns the cluster, pool and models for which a unit's GPUs count, and the number of these GPUs.
func (u *unit) keys() map[string]int {
	gpus := max(1, len(u.gpus)) // the number is unknown for a node whose exporter is silent
	keys := map[string]int{"cluster": gpus, "pool " + u.pool: gpus}
	for _, g := range u.gpus {
		models := map[string]bool{}
		for _, r := range g.Runs {
			if r.Model != "" {
				models["model "+r.Namespace+"/"+r.Model] = true
			}
		}
		for m := range models {
			keys[m]++
		}
	}
	return keys
}

// full names the ceiling that a unit would exceed, or is empty. If no unit is out of service yet, one unit may be taken
// out.
func (n count) full(u *unit) string {
	keys := u.keys()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if n.out[key] > 0 && n.out[key]+keys[key] > n.most[key] {
			return fmt.Sprintf("%s: %d of %d GPUs are out of service, and at most %d may be", key, n.out[key], n.all[key],
				max(n.most[key], n.out[key]))
		}
	}
	return ""
}

func (n count) take(u *unit) {
	for key, gpus := range u.keys() {
		n.out[key] += gpus
	}
}
