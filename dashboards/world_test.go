package dashboards_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// A world emits every family of the vocabulary with every label value below, healthy first, and from
// incidentAt on with everything worse at once. It is no engine and no GPU: it shows that panels select,
// join and move, not that they are right about a real incident.
const (
	incidentAt = 100 * time.Minute
	worldEnd   = 170 * time.Minute
)

// world is one node.
type world struct {
	// host leaves out the labels that only Kubernetes and a fleet have.
	host bool
	// only are the families that the incident makes worse; all when empty.
	only []*metrics.Family
}

// hit reports whether the incident reaches a family.
func (w world) hit(f *metrics.Family) bool { return w.only == nil || slices.Contains(w.only, f) }

// values are those that a label takes, one series for each.
var values = map[string][]string{
	metrics.LabelRuntime: {"vllm"}, metrics.LabelModel: {"llama"}, metrics.LabelNamespace: {"prod"}, metrics.LabelPod: {"llama-0"},
	metrics.LabelContainer: {"engine"}, metrics.LabelServer: {"10.0.0.1:8000"},
	metrics.LabelDPRank: {""}, metrics.LabelRole: {""}, metrics.LabelReplica: {""}, metrics.LabelGPUInstance: {"", "1"},
	metrics.LabelOutcome: {"stop", "error"}, metrics.LabelVersion: {"0.11.0"}, metrics.LabelCollector: {"engine", "gpu"},
	metrics.LabelMetric: {metrics.QueueTime.Name}, metrics.LabelSource: {"driver"}, metrics.LabelQuality: {"native", "missing"},
	metrics.LabelReason: {"why"}, metrics.LabelGPUUUID: {"GPU-1"}, metrics.LabelGPU: {"0"},
	metrics.LabelDomain: {"sm", "memory"}, metrics.LabelLimit: {"slowdown", "shutdown"}, metrics.LabelLifetime: {"volatile", "aggregate"},
	metrics.LabelScope: {"gpu", "module"}, metrics.LabelXID: {"48", "79"}, metrics.LabelState: {"current", "max"},
	metrics.LabelSLO: {"ttft", "itl", "tpot", "request_duration"}, metrics.LabelSignal: {"ttft", "itl", "tpot", "request_duration"},
	metrics.LabelPeriod: {"30d"}, metrics.LabelLong: {"1h", "3d"}, metrics.LabelThreshold: {"0.5"},
}

// valuesOf are a label's values on a family where they depend on it.
func valuesOf(f *metrics.Family, label string) []string {
	switch {
	case f == metrics.GPUClockEventActive && label == metrics.LabelReason, f == metrics.GPUClockEventSeconds && label == metrics.LabelReason:
		return []string{"hw_slowdown", "sw_power_cap"}
	case f == metrics.SLOThreshold && label == metrics.LabelKind:
		return []string{"requested", "effective"}
	case label == metrics.LabelKind:
		return []string{"enforced", "max"}
	}
	if v, ok := values[label]; ok {
		return v
	}
	return []string{label + "-1"}
}

// series are the label sets of a family.
func (w world) series(f *metrics.Family) []labels.Labels {
	sets := [][]string{w.scraper()}
	if f.Group == "recorded" {
		sets = [][]string{{metrics.LabelCluster, "eu"}}
	}
	for _, l := range f.Labels {
		if l == metrics.LabelCluster || l == "le" {
			continue
		}
		if w.host && slices.Contains([]string{metrics.LabelNamespace, metrics.LabelPod, metrics.LabelContainer}, l) {
			continue
		}
		var next [][]string
		for _, s := range sets {
			for _, v := range valuesOf(f, l) {
				next = append(next, append(slices.Clone(s), l, v))
			}
		}
		sets = next
	}
	var all []labels.Labels
	for _, s := range sets {
		l := labels.FromStrings(s...)
		if f == metrics.SLOInfo && l.Get(metrics.LabelSLO) != l.Get(metrics.LabelSignal) {
			continue
		}
		all = append(all, l)
	}
	return all
}

var bounds = []float64{0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 100, 1000, 10000}

// scrape is one scrape of the whole vocabulary.
func (w world) scrape(at time.Time, emit rulesim.Emit) {
	t := at.Sub(rulesim.Epoch)
	ill := max(0, (t - incidentAt).Seconds())
	emit(with(labels.EmptyLabels(), metrics.Up.Name, w.scraper()...), state(ill == 0 || !w.hit(metrics.Up) || int(ill/60)%2 == 1))
	for _, f := range metrics.All() {
		good, bad := t.Seconds(), 0.0
		if w.hit(f) {
			good, bad = t.Seconds()-ill, ill
		}
		for i, l := range w.series(f) {
			switch f.Kind {
			case metrics.Histogram:
				w.histogram(f, l, good, bad, emit)
			case metrics.Counter:
				emit(with(l, f.Name), counter(f, l, good, bad))
			default:
				if f == metrics.EngineInfo && bad > 0 {
					l = with(l, f.Name, metrics.LabelVersion, "0.12.0")
				}
				emit(with(l, f.Name), gauge(f, bad > 0, i))
			}
		}
	}
}

func (w world) scraper() []string {
	s := []string{"instance", "node-1", "job", rules.DefaultJob}
	if !w.host {
		s = append(s, metrics.LabelCluster, "eu")
	}
	return s
}

// histogram observes 10 values a second: around 0.2 while healthy, around 3 in the incident, in units that
// every bound of the vocabulary covers.
func (w world) histogram(f *metrics.Family, l labels.Labels, good, bad float64, emit rulesim.Emit) {
	center, worse := 0.2, 3.0
	if f == metrics.QueueTime || f == metrics.PrefillTime {
		center, worse = 0.05, 2
	}
	if f == metrics.DecodeTime {
		center, worse = 0.1, 1
	}
	for _, b := range append(bounds, math.Inf(1)) {
		n := 0.0
		for i := range 10 { // spread from half to one and a half of the centre
			spread := 0.5 + float64(i)/10
			if center*spread <= b {
				n += good
			}
			if worse*spread <= b {
				n += bad
			}
		}
		emit(with(l, f.Name+"_bucket", "le", metrics.FormatBound(b)), n)
	}
	emit(with(l, f.Name+"_count"), 10*(good+bad))
	emit(with(l, f.Name+"_sum"), 10*(good*center+bad*worse))
}

// onlyBad are counters that stand still while all is well.
var onlyBad = []*metrics.Family{metrics.SLOBadEvents, metrics.GPUXIDErrors, metrics.GPUECCErrors, metrics.GPUClockEventSeconds,
	metrics.Preemptions, metrics.SourceMissing, metrics.KVTransferFailures, metrics.GPUPCIeReplays, metrics.GPUPCIeErrors, metrics.GPUNVLinkErrors}

func counter(f *metrics.Family, l labels.Labels, good, bad float64) float64 {
	switch {
	case f == metrics.GPUClockEventSeconds:
		return 0.3 * bad
	case f == metrics.SLOBadEvents:
		return 4 * bad
	case slices.Contains(onlyBad, f):
		return bad
	case f == metrics.PrefixCacheHitTokens || f == metrics.ExternalPrefixCacheHitTokens || f == metrics.SpecDecodeAcceptedTokens:
		return 6*good + 2*bad
	case f == metrics.GPUEnergy:
		return 300*good + 600*bad
	case l.Get(metrics.LabelOutcome) == "error":
		return 4 * bad
	}
	return 10*good + 8*bad
}

// flags are states that are 0 while all is well.
var flags = []*metrics.Family{metrics.GPUMissing, metrics.GPUCollectStuck, metrics.GPUSRAMThreshold, metrics.GPURowRemapPending, metrics.GPURowRemapFailure,
	metrics.GPURetiredPagesPending, metrics.GPURepairPending, metrics.GPUMemoryUnrepairable, metrics.GPUFabricHealth, metrics.GPUClockEventActive, metrics.Sleeping}

func state(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

// gauge is a value that fits a family's name, and another one in the incident.
func gauge(f *metrics.Family, incident bool, i int) float64 {
	worse := func(healthy, bad float64) float64 {
		if incident {
			return bad
		}
		return healthy
	}
	switch {
	case f == metrics.SLOObjective:
		return 0.99
	case f == metrics.SLOPeriod:
		return (30 * 24 * time.Hour).Seconds()
	case f == metrics.SLOThreshold:
		return 0.5
	case f == metrics.EngineStartTime || f == metrics.ConfigReloadTime || f == metrics.GPUXIDLastTimestamp:
		return float64(rulesim.Epoch.Unix()) + worse(0, incidentAt.Seconds())
	case strings.HasSuffix(f.Name, "_info"):
		return 1
	case f == metrics.EngineUp || f == metrics.GPUUp || f == metrics.GPUNVMLUp || f == metrics.GPUXIDSourceUp || f == metrics.SLOCounted ||
		f == metrics.ProbeSuccess || f == metrics.CollectorSuccess || f == metrics.ConfigReloadSuccess || f == metrics.GPUNVLinkUp || f == metrics.GPUFeatureSupported:
		return worse(1, 0)
	case strings.HasSuffix(f.Name, "_ratio"):
		return worse(0.4, 0.95)
	case f == metrics.GPUClockMax:
		return 2e9
	case f == metrics.GPUPowerLimit:
		return 700
	case f == metrics.GPUClock:
		return worse(1.9e9, 0.9e9)
	case f == metrics.GPUVisible:
		return worse(2, 1)
	case f == metrics.RequestsWaiting:
		return worse(0, 40)
	case slices.Contains(flags, f):
		return worse(0, 1)
	}
	return worse(float64(1+i%2), float64(5+i%2))
}

// run plays the world under the real rules.
func (w world) run(t *testing.T) *rulesim.Sim {
	t.Helper()
	groups := rules.Groups(rules.Options{})
	for i, g := range groups {
		var alerts []*rules.Alert
		for _, a := range g.Alerts {
			bare := *a
			bare.Verdict, bare.Split = nil, nil // a query each, and nothing here reads the text
			alerts = append(alerts, &bare)
		}
		groups[i].Alerts = alerts
	}
	file, err := rules.Encode(rules.NewFile(groups, rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := rulesim.New(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(worldEnd), time.Minute, w.scrape); err != nil {
		t.Fatal(err)
	}
	return sim
}

// answer is the result of a query as text, to be compared.
func answer(t *testing.T, sim *rulesim.Sim, query string, at time.Duration) string {
	t.Helper()
	v, err := sim.Query(query, rulesim.Epoch.Add(at))
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return ""
	}
	var lines []string
	for _, s := range v {
		if !math.IsNaN(s.F) {
			lines = append(lines, fmt.Sprintf("%s %.6g", s.Metric, s.F))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// still are the panels that a world gone bad does not move, and why.
var still = map[string]string{
	"Numbers by quality":    "what an engine shows does not change in an incident",
	"Missing numbers":       "as above",
	"Engines on these GPUs": "identity",
	"Boards":                "identity",
	"MIG devices":           "identity",
	"GPUs that serve":       "no GPU goes away in this world",
	"Replicas":              "no replica goes away in this world",
}

// Every query of every panel returns data while everything is wrong, in a fleet on Kubernetes and on a
// lone host without namespace and cluster; and every panel then shows something else than before.
func TestEveryPanelMoves(t *testing.T) {
	for name, w := range map[string]world{"kubernetes": {}, "host": {host: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := w.run(t)
			healthy, incident := incidentAt-time.Minute, worldEnd-2*time.Minute
			moved, panels := 0, 0
			for _, b := range boards(t) {
				for _, p := range b.flat() {
					if p.Type == "text" {
						continue
					}
					panels++
					moves := false
					for _, q := range p.Targets {
						query := b.substitute(t, q.Expr)
						during := answer(t, sim, query, incident)
						if during == "" {
							t.Errorf("%s: %s %s is empty: %s", b.Title, p.Title, q.RefID, query)
						}
						moves = moves || during != answer(t, sim, query, healthy)
					}
					if _, quiet := still[p.Title]; moves == quiet {
						t.Errorf("%s: %s moves: %t", b.Title, p.Title, moves)
					}
					if moves {
						moved++
						t.Logf("moved: %s / %s", b.Title, p.Title)
					}
				}
			}
			t.Logf("%d of %d panels moved", moved, panels)
		})
	}
}

// The incident dashboard tells causes apart: each kind of incident moves the panels that name it, and
// leaves those of the other kinds alone. Its other panels may do either.
func TestIncidentTellsCausesApart(t *testing.T) {
	burn := []*metrics.Family{metrics.SLOBadEvents}
	for name, c := range map[string]struct {
		worse        []*metrics.Family
		moves, still []string
	}{
		"queueing": {
			[]*metrics.Family{metrics.QueueTime, metrics.TimeToFirstToken, metrics.RequestsWaiting},
			[]string{"Time to first token, p95", "Queue share of TTFT", "TTFT p95 by replica", "Waiting by replica"},
			[]string{"Inter-token latency, p95", "KV cache in use, fullest replica", "Preemptions", "Prefix cache hits", "Time throttled", "XIDs in the last hour", "Replicas by version"},
		},
		"prefill": {
			[]*metrics.Family{metrics.PrefillTime, metrics.TimeToFirstToken, metrics.PrefixCacheHitTokens},
			[]string{"Time to first token, p95", "Prefill share of TTFT", "Prefix cache hits"},
			[]string{"Inter-token latency, p95", "Waiting by replica", "KV cache in use, fullest replica", "Preemptions", "Time throttled", "Replicas by version"},
		},
		"memory": {
			[]*metrics.Family{metrics.KVCacheUsage, metrics.Preemptions, metrics.InterTokenLatency, metrics.RequestsWaiting},
			[]string{"Inter-token latency, p95", "KV cache in use, fullest replica", "Preemptions", "Waiting by replica"},
			[]string{"Prefill share of TTFT", "Prefix cache hits", "Time throttled", "SM clock against its maximum", "Replicas by version"},
		},
		"throttled GPU": {
			[]*metrics.Family{metrics.GPUClockEventActive, metrics.GPUClockEventSeconds, metrics.GPUClock, metrics.InterTokenLatency},
			[]string{"Inter-token latency, p95", "Throttling now", "Time throttled", "SM clock against its maximum"},
			[]string{"Time to first token, p95", "Queue share of TTFT", "Prefill share of TTFT", "KV cache in use, fullest replica", "Preemptions", "Replicas by version", "XIDs in the last hour"},
		},
		"release": {
			[]*metrics.Family{metrics.EngineInfo, metrics.EngineStartTime, metrics.TimeToFirstToken, metrics.InterTokenLatency},
			[]string{"Time to first token, p95", "Inter-token latency, p95", "Replicas by version", "Time since start"},
			[]string{"Waiting by replica", "KV cache in use, fullest replica", "Preemptions", "Prefix cache hits", "Time throttled", "XIDs in the last hour"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim := world{only: append(c.worse, burn...)}.run(t)
			healthy, incident := incidentAt-time.Minute, worldEnd-2*time.Minute
			b := boards(t)[0]
			moves := map[string]bool{}
			for _, p := range b.flat() {
				for _, q := range p.Targets {
					query := b.substitute(t, q.Expr)
					moves[p.Title] = moves[p.Title] || answer(t, sim, query, incident) != answer(t, sim, query, healthy)
				}
			}
			for _, title := range append(c.moves, "Burn rate, 5 minutes", "Budget left", "Bad events", "Bad events by node", "Firing alerts") {
				if !moves[title] {
					t.Errorf("%s does not move", title)
				}
			}
			for _, title := range c.still {
				if moved, ok := moves[title]; moved || !ok {
					t.Errorf("%s moves: %t, is there: %t", title, moved, ok)
				}
			}
		})
	}
}

// Marks appear when something happened, not before, and with the value 1, the only one that Grafana draws.
func TestMarks(t *testing.T) {
	sim := world{}.run(t)
	from := rulesim.Epoch
	for _, b := range boards(t) {
		for _, a := range b.Annotations.List[1:] {
			// A dashboard without a filter by model cannot narrow deploys, but shows them.
			m, _, err := sim.Range(b.substitute(t, a.Expr), from.Add(30*time.Minute), from.Add(worldEnd), time.Minute)
			if err != nil {
				t.Errorf("%s: %s: %v", b.Title, a.Name, err)
				continue
			}
			if len(m) == 0 {
				t.Errorf("%s: %s marks nothing", b.Title, a.Name)
			}
			for _, s := range m {
				for _, f := range s.Floats {
					at := time.UnixMilli(f.T).Sub(from)
					if f.F != 1 || at < incidentAt {
						t.Errorf("%s: %s marks %s at %s with %v", b.Title, a.Name, s.Metric, at, f.F)
						break
					}
				}
			}
		}
		if len(b.Annotations.List) < 4 {
			t.Errorf("%s marks only %d kinds of events", b.Title, len(b.Annotations.List))
		}
	}
}
