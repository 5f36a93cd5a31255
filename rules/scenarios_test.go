package rules_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// The traffic of these scenarios is a separate model: requests that end on engines that start and stop, and exact
// counting of their ends. It shares only the names of the series with the rules.

// sent is a request, or one token of it, at the time at which an engine counts it.
type sent struct {
	at  time.Duration
	bad bool
}

// server is one engine that one or more exporters read.
type server struct {
	model, pod, role, namespace string
	at                          string // address; default: an address that all nodes reach
	slo                         string
	nodes                       []string // exporters that read it
	from, until                 time.Duration
	found                       time.Duration    // when the exporters found the engine; 0 means at its start
	away                        [2]time.Duration // when no exporter answers
	counts                      []sent           // sorted
	requests                    []sent           // if counts are tokens: their requests, at their end
}

// promise is an objective as exporters report it.
type promise struct {
	slo, signal string
	target      float64
	days        int
	nodes       []string
}

// scenario describes events, and the times at which they must page.
type scenario struct {
	name     string
	every    time.Duration // between scrapes
	lasts    time.Duration
	onset    time.Duration
	promises []promise
	servers  []server
	// maintenance is a declared interval.
	maintenance [2]time.Duration
	// pages is how many pages start, for all models together.
	pages int
	// within is the latest time of a page, regardless of theory. 0: no limit.
	within time.Duration
	// late is how much later than theory a page may come. Default: a scrape and an evaluation.
	late time.Duration
}

// evenly returns requests at a rate per second. bad selects the bad requests.
func evenly(from, until time.Duration, perSecond float64, bad func(n int, at time.Duration) bool) []sent {
	var all []sent
	step := time.Duration(float64(time.Second) / perSecond)
	for at, n := from+step/2, 0; at < until; at, n = at+step, n+1 {
		all = append(all, sent{at, bad(n, at)})
	}
	return all
}

func never(int, time.Duration) bool { return false }

// from makes every nth request bad from a time on.
func from(onset time.Duration, nth int) func(int, time.Duration) bool {
	return func(n int, at time.Duration) bool { return at >= onset && n%nth == 0 }
}

const inProd = "node-1"

func days30(slo, signal string, target float64, nodes ...string) promise {
	if len(nodes) == 0 {
		nodes = []string{inProd}
	}
	return promise{slo, signal, target, 30, nodes}
}

// exact returns, by counting, the time at which the condition of one of the two paging pairs is first met.
func (s scenario) exact() (time.Duration, bool) {
	var all []sent
	for _, e := range s.servers {
		all = append(all, e.counts...)
	}
	slices.SortFunc(all, func(a, b sent) int { return cmp.Compare(a.at, b.at) })
	p := s.promises[0]
	budget := 1 - p.target
	for at := time.Duration(0); at < s.lasts; at += time.Second {
		for _, pair := range []struct {
			long, short time.Duration
			spend       float64
		}{{time.Hour, 5 * time.Minute, 0.02}, {6 * time.Hour, 30 * time.Minute, 0.05}} {
			limit := pair.spend * float64(p.days) * 24 * float64(time.Hour) / float64(pair.long) * budget
			limit = min(max(limit, budget), 0.5)
			over := func(ago, window time.Duration) (float64, int) {
				var n, bad int
				for _, r := range all {
					if r.at > at-ago-window && r.at <= at-ago {
						n++
						if r.bad {
							bad++
						}
					}
				}
				return float64(bad) / math.Max(1, float64(n)), bad
			}
			if at < s.onset {
				continue
			}
			long, bad := over(0, pair.long)
			short, recent := over(0, pair.short)
			_, old := over(3*time.Minute, pair.short)
			_, fresh := over(0, 2*time.Minute)
			sustained := pair.long == time.Hour && budget < 0.002 && short >= 3*limit && 10*min(old, fresh) >= recent
			if (long >= limit || sustained) && short >= limit && bad >= 5 {
				return at - s.onset, true
			}
		}
	}
	return 0, false
}

// scrape emits the exporters' series at a time.
func (s scenario) scrape(at time.Time, emit rulesim.Emit) {
	now := at.Sub(rulesim.Epoch)
	show := func(value float64, name string, pairs ...string) {
		emit(labels.FromStrings(append([]string{model.MetricNameLabel, name, metrics.LabelCluster, s.name, "job", "llm"}, pairs...)...), value)
	}
	count := func(of []sent, bad bool) (n float64) {
		for _, r := range of {
			if r.at <= now && (r.bad || !bad) {
				n++
			}
		}
		return n
	}
	for _, p := range s.promises {
		for _, node := range p.nodes {
			show(p.target, "llm_slo_objective_ratio", "instance", node, "slo", p.slo)
			show(float64(p.days)*86400, "llm_slo_period_seconds", "instance", node, "slo", p.slo)
			show(1, "llm_slo_info", "instance", node, "slo", p.slo, "signal", p.signal, "period", fmt.Sprintf("%dd", p.days), "severity", "page")
		}
	}
	for _, e := range s.servers {
		if now < max(e.from, e.found) || e.until != 0 && now >= e.until || now >= e.away[0] && now < e.away[1] {
			continue
		}
		for _, node := range e.nodes {
			if e.found > 0 {
				show(float64(rulesim.Epoch.Add(e.found).Unix()), "llm_exporter_config_last_reload_success_timestamp_seconds", "instance", node)
			}
			who := []string{"instance", node, "namespace", e.namespace, "pod", e.pod, "server", cmp.Or(e.at, "10.0.0.9:8000")}
			show(float64(rulesim.Epoch.Add(e.from).Unix()), "llm_engine_start_time_seconds", append(slices.Clone(who), "runtime", "vllm")...)
			show(1, "llm_engine_up", append(slices.Clone(who), "runtime", "vllm")...)
			who = append(who, "model_name", e.model, "role", e.role, "runtime", "vllm")
			if now >= s.maintenance[0] && now < s.maintenance[1] {
				show(1, "llm_slo_maintenance", append(slices.Clone(who), "slo", e.slo)...)
			}
			show(count(e.counts, false), "llm_slo_events_total", append(slices.Clone(who), "slo", e.slo, "threshold", "0.5")...)
			show(count(e.counts, true), "llm_slo_bad_events_total", append(slices.Clone(who), "slo", e.slo, "threshold", "0.5")...)
			if e.requests != nil {
				show(count(e.requests, false), "llm_engine_requests_total", append(slices.Clone(who), "outcome", "success")...)
			}
		}
	}
}

// churn is a model whose pods live for ten minutes each.
func churn(lasts time.Duration, perSecond float64, bad func(age, at time.Duration) bool) []server {
	var pods []server
	for born := time.Duration(0); born < lasts; born += 10 * time.Minute {
		pods = append(pods, server{
			model: "m", pod: fmt.Sprintf("p-%d", born/time.Minute), namespace: "prod", slo: "ttft",
			nodes: []string{inProd}, from: born, until: born + 10*time.Minute,
			counts: evenly(born, born+10*time.Minute, perSecond, func(_ int, at time.Duration) bool { return bad(at-born, at) }),
		})
	}
	return pods
}

func scenarios() []scenario {
	minute, hour := time.Minute, time.Hour
	one := func(counts []sent) []server {
		return []server{{model: "m", pod: "p", namespace: "prod", slo: "ttft", nodes: []string{inProd}, counts: counts}}
	}
	ttft := []promise{days30("ttft", "ttft", 0.99)}
	young := func(age, at time.Duration) bool { return at >= 2*hour && age < minute }
	always := func(_, at time.Duration) bool { return at >= 2*hour }
	staging := server{
		model: "s", pod: "s", namespace: "staging", slo: "ttft", nodes: []string{"node-2"},
		counts: evenly(0, 4*hour, 1, from(2*hour, 5)),
	}
	tokens := evenly(3*hour, 3*hour+50*time.Second, 20, func(int, time.Duration) bool { return true })
	return []scenario{
		{
			name: "an outage", every: 15 * time.Second, lasts: 3 * hour, onset: 2 * hour, promises: ttft, pages: 1,
			servers: one(evenly(0, 3*hour, 1, from(2*hour, 1))),
		},
		{
			name: "a third is slow", every: 15 * time.Second, lasts: 4 * hour, onset: 2 * hour, promises: ttft, pages: 1,
			servers: one(evenly(0, 4*hour, 1, from(2*hour, 3))),
		},
		{
			name: "an outage at a tenth of the usual traffic", every: 30 * time.Second, lasts: 9 * hour, onset: 8 * hour, promises: ttft, pages: 1,
			servers: one(append(evenly(0, 7*hour, 2, never), evenly(7*hour, 9*hour, 0.2, from(8*hour, 1))...)),
		},
		{
			name: "a fifth is slow, allowed in staging only", every: 15 * time.Second, lasts: 4 * hour, onset: 2 * hour, pages: 0,
			promises: []promise{days30("ttft", "ttft", 0.99), {"ttft", "ttft", 0.8, 30, []string{"node-2"}}},
			servers:  append(one(evenly(0, 4*hour, 1, never)), staging),
		},
		{
			name: "8% are slow over 7 d; another team promises 90 d", every: 15 * time.Second, lasts: 4 * hour, onset: 2 * hour, pages: 1,
			promises: []promise{{"ttft", "ttft", 0.99, 7, []string{inProd}}, {"ttft", "ttft", 0.99, 90, []string{"node-2"}}},
			servers: append(one(evenly(0, 4*hour, 1, from(2*hour, 12))),
				server{model: "s", pod: "s", namespace: "staging", slo: "ttft", nodes: []string{"node-2"}, counts: evenly(0, 4*hour, 1, never)}),
		},
		{
			name: "three bad requests, seen by two exporters", every: 15 * time.Second, lasts: 3 * hour, onset: 2 * hour, pages: 0,
			promises: []promise{days30("ttft", "ttft", 0.99, inProd, "node-2")},
			servers: []server{{
				model: "m", pod: "p", namespace: "prod", slo: "ttft", nodes: []string{inProd, "node-2"},
				counts: evenly(0, 3*hour, 0.02, func(_ int, at time.Duration) bool { return at >= 2*hour && at < 2*hour+150*time.Second }),
			}},
		},
		{
			name: "a pod every ten minutes, bad in its first minute", every: 30 * time.Second, lasts: 4 * hour, onset: 2 * hour,
			promises: []promise{days30("ttft", "ttft", 0.995)}, pages: 1, late: 3 * minute,
			servers: churn(4*hour, 0.5, young),
		},
		{
			name: "a pod every ten minutes, all bad, 30 requests an hour", every: 30 * time.Second, lasts: 4 * hour, onset: 2 * hour,
			promises: ttft, pages: 1, late: 3 * minute,
			servers: churn(4*hour, 30./3600, always),
		},
		{
			name: "a pod every ten minutes, all bad, 6 requests an hour", every: 30 * time.Second, lasts: 6 * hour, onset: 2 * hour,
			promises: ttft, pages: 1, late: 3 * minute,
			servers: churn(6*hour, 6./3600, always),
		},
		{
			name: "scaled from zero, the first 20 requests are slow", every: time.Minute, lasts: 30 * hour, onset: 28 * hour, promises: ttft,
			pages: 0,
			servers: []server{
				{model: "m", pod: "p-1", namespace: "prod", slo: "ttft", nodes: []string{inProd}, until: 26 * hour, counts: evenly(0, 26*hour, 0.5,
					never)},
				{
					model: "m", pod: "p-2", namespace: "prod", slo: "ttft", nodes: []string{inProd}, from: 28 * hour,
					counts: evenly(28*hour, 30*hour, 1, func(n int, _ time.Duration) bool { return n < 20 }),
				},
			},
		},
		{
			name: "woken after a night, the first 6 requests wait for kernels to compile", every: time.Minute, lasts: 30 * hour,
			onset: 28 * hour, promises: ttft, pages: 0,
			servers: []server{
				{
					model: "m", pod: "p-1", namespace: "prod", slo: "ttft", nodes: []string{inProd}, until: 20 * hour,
					counts: evenly(0, 20*hour, 0.07, never),
				},
				{
					model: "m", pod: "p-2", namespace: "prod", slo: "ttft", nodes: []string{inProd}, from: 28 * hour,
					counts: evenly(28*hour, 30*hour, 0.5, func(n int, _ time.Duration) bool { return n < 6 }),
				},
			},
		},
		{
			name: "woken after a night, and all requests are slow", every: time.Minute, lasts: 30 * hour, onset: 28 * hour, promises: ttft, pages: 1,
			servers: []server{
				{
					model: "m", pod: "p-1", namespace: "prod", slo: "ttft", nodes: []string{inProd}, until: 20 * hour,
					counts: evenly(0, 20*hour, 0.07, never),
				},
				{model: "m", pod: "p-2", namespace: "prod", slo: "ttft", nodes: []string{inProd}, from: 28 * hour, counts: evenly(28*hour, 30*hour,
					0.5, from(28*hour, 1))},
			},
		},
		{
			name: "an engine that failed its first 200 requests is then named to the exporter", every: 15 * time.Second, lasts: 4 * hour,
			onset: 2 * hour, promises: ttft, pages: 0,
			servers: append(one(evenly(0, 4*hour, 0.1, never)), server{
				model: "m", pod: "p-2", namespace: "prod", slo: "ttft",
				nodes: []string{"node-2"}, at: "127.0.0.1:8000",
				from: 2 * hour, found: 2*hour + 5*minute, counts: evenly(2*hour, 4*hour, 2, func(n int, _ time.Duration) bool { return n < 200 }),
			}),
		},
		{
			name: "a young engine failed 40 requests, and its exporter is away for two minutes", every: 15 * time.Second, lasts: 4 * hour,
			onset: 2 * hour, promises: ttft, pages: 0,
			servers: append(one(evenly(0, 4*hour, 0.1, never)), server{
				model: "m", pod: "p-2", namespace: "prod", slo: "ttft",
				nodes: []string{inProd},
				from:  2 * hour, away: [2]time.Duration{2*hour + 4*minute, 2*hour + 6*minute},
				counts: evenly(2*hour, 2*hour+40*time.Second, 1, func(int, time.Duration) bool { return true }),
			}),
		},
		{
			name: "one slow request of a thousand tokens, no TTFT", every: 15 * time.Second, lasts: 4 * hour, onset: 3 * hour, pages: 0,
			promises: []promise{days30("itl", "itl", 0.99)},
			servers: []server{{
				model: "m", pod: "p", namespace: "prod", slo: "itl", nodes: []string{inProd},
				counts:   append(evenly(0, 10*minute, 20, never), tokens...),
				requests: append(evenly(0, 10*minute, 0.02, never), sent{3*hour + 50*time.Second, true}),
			}},
		},
		{
			name: "one request an hour, all bad", every: time.Minute, lasts: 20 * hour, onset: 0, promises: ttft, pages: 1, late: 61 * minute,
			servers: one(evenly(0, 20*hour, 1./3600, func(int, time.Duration) bool { return true })),
		},
		{
			name: "an hour of maintenance in which everything fails", every: 15 * time.Second, lasts: 8 * hour, onset: 2 * hour, promises: ttft,
			pages:       0,
			maintenance: [2]time.Duration{2 * hour, 3 * hour},
			servers:     one(evenly(0, 8*hour, 1, func(_ int, at time.Duration) bool { return at > 2*hour && at < 3*hour })),
		},
		{
			name: "an outage that maintenance left behind", every: 15 * time.Second, lasts: 5 * hour, onset: 3 * hour, promises: ttft, pages: 1,
			maintenance: [2]time.Duration{2 * hour, 3 * hour}, late: 12 * minute, // nine minutes by theory, and rates include the end for five more
			servers: one(evenly(0, 5*hour, 1, from(2*hour, 1))),
		},
		{
			name: "every first token 78 s late, severe objective", every: 15 * time.Second, lasts: 4 * hour, onset: 3 * hour, pages: 1,
			promises: []promise{days30("ttft", "ttft", 0.999)},
			servers:  one(append(evenly(0, 3*hour, 1, never), evenly(3*hour+78*time.Second, 4*hour, 1, from(0, 1))...)),
		},
		{
			name: "5% wait for 10 s, severe objective", every: 30 * time.Second, lasts: 4 * hour, onset: 3 * hour, pages: 1, within: 7 * minute,
			promises: []promise{days30("ttft", "ttft", 0.999)}, servers: one(evenly(0, 4*hour, 2, from(3*hour, 20))),
		},
		{
			name: "8% wait for 10 s at a fifth of the traffic, severe objective", every: 15 * time.Second, lasts: 4 * hour, onset: 3 * hour,
			pages: 1, within: 7 * minute,
			late:     2 * minute, // slo.LeastSpend of the usual traffic must be lost
			promises: []promise{days30("ttft", "ttft", 0.999)},
			servers:  one(append(evenly(0, 3*hour, 5, never), evenly(3*hour, 4*hour, 1, from(3*hour, 12))...)),
		},
		{
			name: "a stall of 45 s that is over, severe objective", every: 15 * time.Second, lasts: 4 * hour, onset: 3 * hour, pages: 0,
			promises: []promise{days30("ttft", "ttft", 0.999)},
			servers:  one(evenly(0, 4*hour, 1, func(_ int, at time.Duration) bool { return at > 3*hour && at < 3*hour+45*time.Second })),
		},
		{
			name: "a frontend fails 10%, its workers nothing", every: 15 * time.Second, lasts: 4 * hour, onset: 2 * hour, pages: 1,
			promises: []promise{days30("ttft", "availability", 0.995)},
			servers: []server{
				{
					model: "m", pod: "f", role: "frontend", namespace: "prod", slo: "ttft", nodes: []string{inProd},
					counts: evenly(0, 4*hour, 1, from(2*hour, 10)),
				},
				{model: "m", pod: "w-1", role: "prefill", namespace: "prod", slo: "ttft", nodes: []string{inProd}, counts: evenly(0, 4*hour, 2, never)},
				{
					model: "m", pod: "w-2", role: "decode", namespace: "prod", slo: "ttft", nodes: []string{inProd},
					counts: evenly(0, 4*hour, 2, never),
				},
			},
		},
	}
}

// Each scenario pages as often as it should, at the times of exact counting. Scenarios with the same scrape interval
// run side by side, each in its own cluster.
func TestScenarios(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	for _, every := range []time.Duration{15 * time.Second, 30 * time.Second, time.Minute} {
		t.Run(every.String(), func(t *testing.T) {
			var together []scenario
			var lasts time.Duration
			for _, s := range scenarios() {
				if s.every == every {
					together, lasts = append(together, s), max(lasts, s.lasts)
				}
			}
			starts := map[string][]time.Duration{}
			firing := map[string]time.Time{}
			sim := newSim(t, only(t, rules.Options{}, fastBurn)...)
			sim.OnAlert = func(at time.Time, a rulesim.Alert) {
				key, in := a.Labels.String(), a.Labels.Get(metrics.LabelCluster)
				if a.Name != fastBurn {
					return
				}
				if at.Sub(firing[key]) > time.Minute {
					starts[in] = append(starts[in], at.Sub(rulesim.Epoch))
				}
				firing[key] = at
			}
			if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(lasts), every, func(at time.Time, emit rulesim.Emit) {
				for _, s := range together {
					if at.Sub(rulesim.Epoch) < s.lasts {
						s.scrape(at, emit)
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			for _, s := range together {
				s.judge(t, starts[s.name], &table)
			}
		})
	}
	t.Log("\n" + table.String())
}

// judge compares the times at which pages started with the times of exact counting.
func (s scenario) judge(t *testing.T, starts []time.Duration, table *strings.Builder) {
	t.Helper()
	if len(starts) != s.pages {
		t.Errorf("%s: pages start at %v, want %d", s.name, starts, s.pages)
	}
	if s.pages == 0 {
		fmt.Fprintf(table, "| %s | - | %v |\n", s.name, starts)
		return
	}
	alone := s
	alone.servers = s.servers[:1]
	if len(s.servers) > 4 {
		alone = s
	}
	want, _ := alone.exact()
	if len(starts) == 0 {
		return
	}
	got := starts[0] - s.onset
	fmt.Fprintf(table, "| %s | %s | %s |\n", s.name, want, got)
	if late := cmp.Or(s.late, s.every+time.Minute); got > want+late || got < want-time.Minute {
		t.Errorf("%s: paged after %s, exact counting says %s", s.name, got, want)
	}
	if s.within > 0 && got > s.within {
		t.Errorf("%s: paged after %s, later than %s", s.name, got, s.within)
	}
}

// The budget counts a burst of bad requests, whatever its phase relative to scrapes and tiles. The docs give the bounds.
func TestBudgetCountsBursts(t *testing.T) {
	t.Parallel()
	const burst = 50
	for _, c := range []struct {
		every time.Duration
		off   float64 // of a burn rate over an hour
	}{{15 * time.Second, 0.005}, {30 * time.Second, 0.01}, {time.Minute, 0.02}} {
		t.Run(c.every.String(), func(t *testing.T) {
			s := scenario{every: c.every, promises: []promise{days30("ttft", "ttft", 0.99)}}
			for n := range 30 {
				at := time.Hour + time.Duration(n)*74*time.Second
				s.servers = append(s.servers, server{
					model: fmt.Sprintf("m%d", n), pod: "p", namespace: "prod", slo: "ttft", nodes: []string{inProd},
					counts: append(evenly(0, 2*time.Hour, 0.1, never), evenly(at, at+5*time.Second, burst/5,
						func(int, time.Duration) bool { return true })...),
				})
			}
			sim := newSim(t, burning(t, rules.Options{}, "llm-slo-budget")...)
			end := rulesim.Epoch.Add(2 * time.Hour)
			if err := sim.Run(rulesim.Epoch, end, s.every, s.scrape); err != nil {
				t.Fatal(err)
			}
			counted := func(f *metrics.Family, at time.Duration, off float64) {
				got, err := sim.Query(f.Name, rulesim.Epoch.Add(at))
				if err != nil || len(got) != len(s.servers) {
					t.Fatalf("%d models, %v", len(got), err)
				}
				low, high := math.Inf(1), 0.
				for _, v := range got {
					low, high = min(low, v.F/burst), max(high, v.F/burst)
				}
				t.Logf("%s: a burst counts %.3f to %.3f of itself", f.Name, low, high)
				if low < 1-off || high > 1+off {
					t.Error("out of bounds")
				}
			}
			counted(metrics.RecordedPeriodBadEvents, 115*time.Minute, 1e-6)
			counted(metrics.Window(metrics.RecordedBadEvents, "1h"), 100*time.Minute, c.off)
		})
	}
}
