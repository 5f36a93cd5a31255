package capacity

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

var all = flag.Bool("all", false, "scale a model for two weeks, not for a day")

// small is Llama-3.1-8B on an L4 (NVIDIA L4 datasheet: 300 GB/s, 24 GB, 121 TFLOPS dense with BF16). Its steps are long,
// so weeks are simulated in a minute.
func small() drill.Profile {
	p := drill.NewProfile("m")
	p.GPU = drill.Hardware{Name: "NVIDIA L4", Bandwidth: 300e9, FLOPS: 121e12, Memory: 24e9}
	p.MaxBatch, p.Budget, p.Leaves, p.Failures, p.Swing = 16, 384, 0, 0, 0
	return p
}

// promised are the objectives of this model, for 99% of first tokens and of times between tokens.
var promised = thresholds{2.5, 0.15}

const (
	loads     = 4 * time.Minute // from the creation of a replica to its first request
	polled    = 30 * time.Second
	busiest   = 4.6 // usual demand at the peak of a weekday, in replicas at the knee
	flap      = 30 * time.Minute
	foresight = 10 * time.Minute // of the oracle
)

// bursts add demand, counted in replicas at the knee; some are at night.
var bursts = []struct{ from, lasts, more float64 }{ // hours since Monday, 00:00
	{11, 0.33, 1.5},
	{24 + 10.5, 0.33, 2},
	{3*24 + 15, 0.67, 2},
	{5*24 + 20, 0.25, 2.5},
	{7*24 + 9, 2, 1.5},
	{9*24 + 3, 0.5, 2.5},
	{11*24 + 12, 0.33, 2},
}

// demand returns the arrivals at a time, in replicas at the knee: from 7 to 21 o'clock, and half as many at weekends.
func demand(at time.Duration) float64 {
	hours := at.Hours()
	day, hour := int(hours/24)%7, math.Mod(hours, 24)
	busy := math.Max(0, math.Sin(math.Pi*(hour-7)/14))
	if day >= 5 {
		busy *= 0.4
	}
	d := busiest * (0.12 + 0.88*busy)
	for _, b := range bursts {
		if hours >= b.from && hours < b.from+b.lasts {
			d += b.more
		}
	}
	return d
}

// score holds the results of users, and the replicas that served them.
type score struct {
	first, late, gaps, slow float64
	minutes, kept           float64
	hours                   float64 // of replicas
	flaps                   int     // changes of direction within half an hour
}

// member is a replica.
type member struct {
	*counts
	engine           *drill.Engine
	learner          Learner
	name             string
	born             time.Duration
	ended, impatient float64 // requests
	came             float64 // those that ended, run or wait
	leaves           bool
}

func (m *member) Finished(q *drill.Request) {
	if q.Aborted && q.FirstToken == 0 {
		m.impatient++
		return
	}
	m.ended++
}

func (m *member) up(now time.Duration) bool { return now >= m.born+loads }

// fleet is a model under load whose replicas an autoscaler sets.
type fleet struct {
	members []*member
	past    score // of members that are gone
	made    int
	turn    int
	seed    uint64
	now     time.Duration
	sim     *rulesim.Sim
}

func (f *fleet) add(born time.Duration) {
	m := &member{counts: newCounts(promised), name: fmt.Sprint(f.made), born: born}
	m.engine = drill.NewEngine(small().Serving, f.seed+uint64(f.made), m)
	m.engine.Advance(max(0, born+loads))
	f.members = append(f.members, m)
	f.made++
}

// set changes the number of replicas. The youngest replicas leave first, after they have answered their requests.
func (f *fleet) set(n int) {
	for range n - f.size() {
		f.add(f.now)
	}
	for i := len(f.members) - 1; i >= 0 && f.size() > n; i-- {
		f.members[i].leaves = true
	}
}

func (f *fleet) size() (n int) {
	for _, m := range f.members {
		if !m.leaves {
			n++
		}
	}
	return n
}

// tick serves the arrivals up to a time. The router sends requests to the replicas in turn.
func (f *fleet) tick(to time.Duration, arrived []*drill.Request) {
	var ready []*member
	for _, m := range f.members {
		if !m.leaves && m.up(f.now) {
			ready = append(ready, m)
		}
	}
	for _, r := range arrived {
		ready[f.turn%len(ready)].engine.Offer(r)
		f.turn++
	}
	f.past.hours += float64(len(f.members)) * (to - f.now).Hours()
	f.now = to
	f.members = slices.DeleteFunc(f.members, func(m *member) bool {
		if m.up(to) {
			m.engine.Advance(to)
		}
		gone := m.leaves && (!m.up(to) || m.engine.Holds() == 0)
		if gone {
			f.past.add(m)
		}
		return gone
	})
}

func (s *score) add(m *member) {
	s.first += m.FirstTokens + m.impatient
	s.late += m.late + m.impatient
	s.gaps += m.Gaps
	s.slow += m.slow
}

func (f *fleet) score() score {
	s := f.past
	for _, m := range f.members {
		s.add(m)
	}
	return s
}

// learn gives the exporters a reading of each engine.
func (f *fleet) learn() {
	for _, m := range f.members {
		if m.up(f.now) {
			m.learner.Learn(m.shown(f.now))
		}
	}
}

// scrape emits the exporters' series that the rule for replicas reads.
func (f *fleet) scrape(_ time.Time, emit rulesim.Emit) {
	for _, m := range f.members {
		if !m.up(f.now) {
			continue
		}
		series := func(of *metrics.Family, v float64, more ...string) {
			emit(labels.FromStrings(append(more, "__name__", of.Name, metrics.LabelModel, "m", metrics.LabelNamespace, "llm", metrics.LabelPod,
				m.name, metrics.LabelServer, m.name+":8000", metrics.LabelRuntime, "vllm", "job", rules.DefaultJob, "instance", "n")...), v)
		}
		series(metrics.RequestsRunning, m.Running)
		series(metrics.RequestsWaiting, m.Waiting)
		series(metrics.Requests, m.ended, metrics.LabelOutcome, string(metrics.OutcomeStop))
		series(metrics.Requests, m.impatient, metrics.LabelOutcome, string(metrics.OutcomeAbort))
		m.came = max(m.came, m.ended+m.impatient+m.Running+m.Waiting)
		series(metrics.RequestsArrived, m.came)
		series(metrics.Stages, m.FirstTokens, metrics.LabelStage, "first_token")
		p := small()
		known, _ := m.learner.Forecast(Bounds{Batch: float64(p.MaxBatch), StepTokens: float64(p.Budget)}, []Objective{
			{Name: "ttft", Threshold: time.Duration(promised.first * float64(time.Second)), Bad: 0.01},
			{Name: "itl", Gaps: true, Threshold: time.Duration(promised.gap * float64(time.Second)), Bad: 0.01},
		})
		for _, c := range known {
			for kind, factor := range map[string]float64{"expected": c.Factor, "low": c.Low, "high": c.High} {
				series(metrics.EngineCapacity, factor*m.learner.Load().Requests, metrics.LabelSLO, c.Objective, metrics.LabelKind, kind)
			}
		}
	}
}

// needed returns the rule for replicas and the rules that it reads.
func needed(t *testing.T) []byte {
	groups := rules.Groups(rules.Options{})
	wanted := []*parser.VectorSelector{{Name: metrics.RecordedDesired.Name}}
	reads := func(r rules.Record) bool {
		return slices.ContainsFunc(wanted, func(v *parser.VectorSelector) bool {
			return v.Name == r.Name.Name && !slices.ContainsFunc(v.LabelMatchers, func(m *labels.Matcher) bool {
				return r.Labels[m.Name] != "" && !m.Matches(r.Labels[m.Name])
			})
		})
	}
	for i := 0; i < len(wanted); {
		i = len(wanted)
		for _, g := range groups {
			for _, r := range g.Records {
				if !reads(r) {
					continue
				}
				parser.Inspect(r.Expr, func(n parser.Node, _ []parser.Node) error {
					v, ok := n.(*parser.VectorSelector)
					if ok && !slices.ContainsFunc(wanted, func(w *parser.VectorSelector) bool { return w.String() == v.String() }) {
						wanted = append(wanted, v)
					}
					return nil
				})
			}
		}
	}
	var kept []rules.Group
	for _, g := range groups {
		g.Alerts = nil
		g.Records = slices.DeleteFunc(slices.Clone(g.Records), func(r rules.Record) bool { return !reads(r) })
		if len(g.Records) > 0 {
			kept = append(kept, g)
		}
	}
	content, err := rules.Encode(rules.NewFile(kept, rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// autoscaler returns the number of replicas that a signal requires. ok is false if the signal is absent.
type autoscaler func(f *fleet) (replicas float64, ok bool)

// desired returns the result of the rule.
func desired(t testing.TB) autoscaler {
	return func(f *fleet) (float64, bool) {
		v, err := f.sim.Query("max("+metrics.RecordedDesired.Name+")", rulesim.Epoch.Add(f.now))
		if err != nil {
			t.Fatal(err)
		}
		if len(v) == 0 {
			return 0, false
		}
		return v[0].F, true
	}
}

// queue requires one replica for every five waiting requests, as the tutorial of vLLM's production stack does.
func queue(f *fleet) (float64, bool) {
	waiting := 0.0
	for _, m := range f.members {
		if m.up(f.now) {
			waiting += m.Waiting
		}
	}
	return waiting / 5, true
}

// oracle knows the knee, and the arrivals of the next minutes.
func oracle(f *fleet) (float64, bool) {
	most := 0.0
	for in := time.Duration(0); in <= foresight; in += time.Minute {
		most = math.Max(most, demand(f.now+in))
	}
	return math.Ceil(most), true
}

// hpa decides like Kubernetes' controller for a metric with a target of type AverageValue, and with the behaviour of
// examples/autoscaling/hpa.yaml.
type hpa struct {
	Spec struct {
		MinReplicas int `yaml:"minReplicas"`
		MaxReplicas int `yaml:"maxReplicas"`
		Behavior    struct {
			ScaleUp   direction `yaml:"scaleUp"`
			ScaleDown direction `yaml:"scaleDown"`
		}
	}
	asked, made []change
}

type direction struct {
	Stabilization int `yaml:"stabilizationWindowSeconds"`
	Policies      []struct {
		Value         int
		PeriodSeconds int `yaml:"periodSeconds"`
	}
}

// change is a number of replicas at a time, or a difference.
type change struct {
	at time.Duration
	n  int
}

func newHPA(t *testing.T) *hpa {
	content, err := os.ReadFile("../examples/autoscaling/hpa.yaml")
	if err != nil {
		t.Fatal(err)
	}
	h := &hpa{}
	if err := yaml.Unmarshal(content, h); err != nil || h.Spec.MaxReplicas == 0 || len(h.Spec.Behavior.ScaleUp.Policies) != 1 {
		t.Fatalf("%+v, %v", h, err)
	}
	return h
}

// next returns the replicas after a decision.
func (h *hpa) next(now time.Duration, replicas int, wanted float64) int {
	asked := replicas
	if math.Abs(wanted/float64(replicas)-1) > 0.1 {
		asked = int(math.Ceil(wanted))
	}
	h.asked = append(h.asked, change{now, asked})
	up, down := h.Spec.Behavior.ScaleUp, h.Spec.Behavior.ScaleDown
	least, most := asked, asked
	for _, c := range h.asked {
		if c.at > now-time.Duration(up.Stabilization)*time.Second {
			least = min(least, c.n)
		}
		if c.at > now-time.Duration(down.Stabilization)*time.Second {
			most = max(most, c.n)
		}
	}
	n := min(max(replicas, least), most)
	n = min(n, max(replicas, replicas-h.changed(now, up)+up.Policies[0].Value), h.Spec.MaxReplicas)
	n = max(n, min(replicas, replicas-h.changed(now, down)-down.Policies[0].Value), h.Spec.MinReplicas)
	if n != replicas {
		h.made = append(h.made, change{now, n - replicas})
	}
	h.asked = slices.DeleteFunc(h.asked, func(c change) bool { return now-c.at > time.Hour })
	return n
}

// changed returns by how much the replicas changed within the period of a policy.
func (h *hpa) changed(now time.Duration, d direction) (n int) {
	for _, c := range h.made {
		if now-c.at < time.Duration(d.Policies[0].PeriodSeconds)*time.Second {
			n += c.n
		}
	}
	return n
}

// flaps counts the changes of direction within half an hour.
func (h *hpa) flaps() (n int) {
	for i := 1; i < len(h.made); i++ {
		if h.made[i].at-h.made[i-1].at <= flap && (h.made[i].n > 0) != (h.made[i-1].n > 0) {
			n++
		}
	}
	return n
}

// run serves a model whose replicas an autoscaler sets.
func run(t *testing.T, by autoscaler, knee float64, lasts time.Duration) score {
	sim, err := rulesim.New(needed(t))
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	f, h := &fleet{seed: 1000, sim: sim}, newHPA(t)
	for range h.Spec.MinReplicas {
		f.add(-loads)
	}
	traffic := drill.NewTraffic(small().Load, 1)
	const tick = 5 * time.Second
	var before score
	for now := tick; now <= lasts; now += tick {
		traffic.Arrivals = knee * demand(now)
		f.tick(now, traffic.Until(now))
		if now%(15*time.Second) == 0 {
			f.learn()
		}
		if now%polled != 0 {
			continue
		}
		at := rulesim.Epoch.Add(now)
		if err := sim.Scrape(at, f.scrape); err != nil {
			t.Fatal(err)
		}
		if err := sim.Eval(at); err != nil {
			t.Fatal(err)
		}
		if wanted, ok := by(f); ok {
			f.set(h.next(now, f.size(), wanted))
		}
		if now%time.Minute == 0 {
			s := f.score()
			f.past.minutes++
			if s.late-before.late <= 0.01*(s.first-before.first) && s.slow-before.slow <= 0.01*(s.gaps-before.gaps) {
				f.past.kept++
			}
			before = s
		}
	}
	s := f.score()
	s.flaps = h.flaps()
	return s
}

// TestDesiredReplicas compares the rule for replicas with an autoscaler that knows the future and with one that counts
// waiting requests. With -args -all it takes two weeks, otherwise a day.
func TestDesiredReplicas(t *testing.T) {
	if testing.Short() {
		t.Skip("a day of a fleet")
	}
	lasts := 24 * time.Hour
	if *all {
		lasts = 14 * 24 * time.Hour
	}
	truth, of := knee(small(), promised, 1)
	t.Logf("a replica serves %.2f requests per second (%s)", truth, of)
	got := map[string]score{}
	var m sync.Mutex
	t.Run("by", func(t *testing.T) {
		for name, by := range map[string]autoscaler{"rule": desired(t), "queue": queue, "oracle": oracle} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := run(t, by, truth, lasts)
				t.Logf("| %s | %.2f%% | %.2f%% | %.1f%% | %.0f | %d |", name, 100*(1-s.late/s.first), 100*(1-s.slow/s.gaps), 100*s.kept/s.minutes,
					s.hours, s.flaps)
				m.Lock()
				defer m.Unlock()
				got[name] = s
			})
		}
	})
	rule, best, worst := got["rule"], got["oracle"], got["queue"]
	if rule.late > 0.01*rule.first || rule.slow > 0.01*rule.gaps {
		t.Errorf("the objectives are missed: %+v", rule)
	}
	if rule.hours > 1.25*best.hours {
		t.Errorf("%.0f hours of replicas, %.0f would do", rule.hours, best.hours)
	}
	if worst.kept >= rule.kept {
		t.Errorf("waiting requests keep the objectives as well: %+v", worst)
	}
}
