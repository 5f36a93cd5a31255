package act

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/health"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// gpus returns units with one device each and these verdicts, on nodes of eight devices.
func gpus(verdicts ...metrics.Verdict) (all []*unit) {
	for i, v := range verdicts {
		name := fmt.Sprintf("gpu-%02d", i)
		all = append(all, &unit{
			node: fmt.Sprintf("node-%d", i/8), pool: "a", device: &device{
				"gpu.nvidia.com", fmt.Sprintf("node-%d", i/8),
				name,
			}, known: true, watching: true,
			gpus: []health.GPU{{UUID: name, Verdict: v, Since: time.Unix(int64(1000+i), 0)}},
		})
	}
	return all
}

func all(n int, v metrics.Verdict) []metrics.Verdict {
	verdicts := make([]metrics.Verdict, n)
	for i := range verdicts {
		verdicts[i] = v
	}
	return verdicts
}

// now applies the steps and returns the new state of each unit, such as "NoExecute reset".
func now(units []*unit, c Ceiling, most Effect) string {
	var text []string
	for _, s := range decide(units, c, most) {
		s.unit.now = s.want
		text = append(text, strings.TrimSpace(string(s.want.effect)+" "+s.want.verdict))
	}
	return strings.Join(text, ", ")
}

func outOf(units []*unit) (n int) {
	for _, u := range units {
		if u.now.effect.out() {
			n += len(u.gpus)
		}
	}
	return n
}

var free = Ceiling{1, 1, 1}

func TestVerdictsBecomeEffects(t *testing.T) {
	verdicts := []metrics.Verdict{metrics.Healthy, metrics.Degraded, metrics.Drain, metrics.Reset, metrics.Replace}
	if got, want := now(gpus(verdicts...), free, NoExecute),
		", None degraded, NoSchedule drain, NoExecute reset, NoExecute replace"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if got, want := now(gpus(verdicts...), free, NoSchedule),
		", None degraded, NoSchedule drain, NoSchedule reset, NoSchedule replace"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	node := &unit{node: "n", known: true, watching: true, gpus: []health.GPU{{Verdict: metrics.Degraded}, {Verdict: metrics.Healthy}}}
	if got := now([]*unit{node}, free, NoExecute); got != "" {
		t.Errorf("a node with a degraded GPU is %s", got)
	}
}

// When all GPUs fail at once, the ceiling holds in any order, and the worst and oldest go first.
func TestCeiling(t *testing.T) {
	units := gpus(all(40, metrics.Reset)...)
	units[7].gpus[0].Verdict = metrics.Replace
	for range 5 {
		now(units, Ceiling{0.1, 0.25, 0.5}, NoExecute)
		if n := outOf(units); n != 4 {
			t.Fatalf("%d of 40 GPUs are out", n)
		}
	}
	for i, u := range units {
		if out := i == 7 || i < 3; u.now.effect.out() != out {
			t.Errorf("GPU %d: %v", i, u.now)
		} else if !out && u.now.effect != None {
			t.Errorf("GPU %d is held back and has %v", i, u.now)
		}
	}
	// One GPU is healthy again, so the next GPU may leave service.
	units[0].gpus[0].Verdict = metrics.Healthy
	now(units, Ceiling{0.1, 0.25, 0.5}, NoExecute)
	if outOf(units) != 4 || units[0].now.effect.out() || !units[3].now.effect.out() {
		t.Errorf("%d are out, %v, %v", outOf(units), units[0].now, units[3].now)
	}
}

// A pool and a model have their own ceilings; one GPU may always leave service.
func TestCeilingsOfPoolsAndModels(t *testing.T) {
	units := gpus(all(16, metrics.Drain)...)
	for _, u := range units[8:] {
		u.pool = "b"
	}
	now(units, Ceiling{1, 0.25, 1}, NoExecute)
	if n := outOf(units[:8]); n != 2 {
		t.Errorf("%d of a pool of 8 are out", n)
	}
	if n := outOf(units[8:]); n != 2 {
		t.Errorf("%d of another pool of 8 are out", n)
	}
	units = gpus(all(8, metrics.Drain)...)
	for _, u := range units[:4] {
		u.gpus[0].Runs = []health.Workload{{Namespace: "prod", Model: "chat"}}
	}
	now(units, Ceiling{1, 1, 0.5}, NoExecute)
	if n := outOf(units[:4]); n != 2 || outOf(units) != 6 {
		t.Errorf("%d of 4 GPUs of a model are out, %d in all", n, outOf(units))
	}
	units = gpus(metrics.Reset, metrics.Reset)
	if got := now(units, Ceiling{}, NoSchedule); got != "NoSchedule reset, None reset" {
		t.Errorf("with a ceiling of nothing: %s", got)
	}
	// A node without devices leaves service as a whole, so all of its eight GPUs count.
	nodes := []*unit{
		{node: "x", known: true, watching: true, gpus: gpus(all(8, metrics.Reset)...)[0].gpus},
		{node: "y", known: true, watching: true},
	}
	for i := range nodes {
		nodes[i].gpus = nil
		for _, u := range gpus(all(8, metrics.Reset)...) {
			nodes[i].gpus = append(nodes[i].gpus, u.gpus[0])
		}
	}
	if now(nodes, Ceiling{0.6, 1, 1}, NoSchedule); outOf(nodes) != 8 {
		t.Errorf("%d GPUs of two nodes are out", outOf(nodes))
	}
}

// An exporter that does not answer, or has lost a taint's cause, lifts no taint. The actor still accepts its reports of
// new faults.
func TestNothingIsLiftedBlindly(t *testing.T) {
	u := gpus(metrics.Reset)
	now(u, free, NoSchedule)
	u[0].known = false
	u[0].gpus[0].Verdict = metrics.Healthy
	if got := now(u, free, NoSchedule); got != "NoSchedule reset" {
		t.Errorf("without an answer: %s", got)
	}
	u[0].known, u[0].watching = true, false
	if got := now(u, free, NoSchedule); got != "NoSchedule reset" {
		t.Errorf("after a restart of the exporter: %s", got)
	}
	u[0].gpus[0].Verdict = metrics.Replace
	if got := now(u, free, NoExecute); got != "NoExecute replace" {
		t.Errorf("worse: %s", got)
	}
	u[0].gpus[0].Verdict, u[0].watching = metrics.Healthy, true
	if got := now(u, free, NoSchedule); got != "" {
		t.Errorf("healthy: %s", got)
	}
	since := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		says *health.Node
		want bool
	}{
		"it watched since before":    {&health.Node{Watching: since.Add(-time.Hour), At: since.Add(time.Minute), Boot: "a"}, true},
		"it began after that":        {&health.Node{Watching: since.Add(time.Minute), At: since.Add(2 * time.Minute), Boot: "a"}, false},
		"the node was started since": {&health.Node{Watching: since.Add(time.Minute), At: since.Add(2 * time.Minute), Boot: "b"}, true},
		"it has watched for an hour": {&health.Node{Watching: since.Add(time.Minute), At: since.Add(2 * time.Hour), Boot: "a"}, true},
	} {
		if got := watching(c.says, since, "a"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestConditionOfANode checks that a node with an unusable driver is neither healthy nor sick.
func TestConditionOfANode(t *testing.T) {
	found := func(name string, v metrics.Verdict) []health.Finding {
		return []health.Finding{{Condition: name, Verdict: v}}
	}
	for status, says := range map[string]*health.Node{
		"True":    {Verdict: metrics.Degraded, Findings: found("thermal_slowdown", metrics.Degraded)},
		"False":   {Verdict: metrics.Drain, Findings: found("fabric_manager_gone", metrics.Drain)},
		"Unknown": {Verdict: metrics.Degraded, Findings: found("driver_unusable", metrics.Degraded)},
	} {
		if c := conditionOf(says); c.status != status {
			t.Errorf("%+v: %+v", says, c)
		}
	}
}
