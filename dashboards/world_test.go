package dashboards_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// A world emits the families that the drill does not produce, with every label value below, healthy first, and from
// incidentAt on makes everything worse at once. A world is neither an engine nor a GPU: it shows that panels select,
// join and move, not that they are right about a real incident.
const (
	incidentAt = 40 * time.Minute
	worldEnd   = 75 * time.Minute
)

// world is one node.
type world struct {
	// host leaves out the labels that only Kubernetes and a fleet have.
	host bool
	// emits holds the families that the world has.
	emits map[*metrics.Family]bool
}

// values lists the values that a label takes, one series for each.
var values = map[string][]string{
	metrics.LabelRuntime: {"vllm"}, metrics.LabelModel: {"llama"}, metrics.LabelNamespace: {"prod"}, metrics.LabelPod: {"llama-0"},
	metrics.LabelContainer: {"engine"}, metrics.LabelServer: {"10.0.0.1:8000"},
	metrics.LabelStage:  {metrics.StageFirstToken, metrics.StageNextToken, "queue", "prefill", "decode", "request", "prompt", "output"},
	metrics.LabelDPRank: {""}, metrics.LabelRole: {""}, metrics.LabelReplica: {""}, metrics.LabelGPUInstance: {"", "1"},
	metrics.LabelOutcome: {"stop", "error"}, metrics.LabelVersion: {"0.11.0"}, metrics.LabelCollector: {"engine", "gpu"},
	metrics.LabelMetric: {metrics.QueueTime.Name}, metrics.LabelSource: {"driver"}, metrics.LabelQuality: {"native", "missing"},
	metrics.LabelReason: {"why"}, metrics.LabelGPUUUID: {"GPU-1"}, metrics.LabelGPU: {"0"},
	metrics.LabelDomain: {"sm", "memory"}, metrics.LabelLimit: {"slowdown", "shutdown"}, metrics.LabelLifetime: {"volatile", "aggregate"},
	metrics.LabelScope: {"gpu", "module"}, metrics.LabelXID: {"48", "79"}, metrics.LabelState: {"current", "max"},
	metrics.LabelSLO: {"ttft", "itl", "tpot", "request_duration"}, metrics.LabelSignal: {"ttft", "itl", "tpot", "request_duration"},
	metrics.LabelTier: {"host", "remote"}, metrics.LabelOperation: {"store", "fetch"},
	metrics.LabelPeriod: {"30d"}, metrics.LabelLong: {"1h", "3d"}, metrics.LabelThreshold: {"0.5"},
}

// valuesOf returns a label's values on a family if the values depend on the family.
func valuesOf(f *metrics.Family, label string) []string {
	switch {
	case f == metrics.GPUClockEventActive && label == metrics.LabelReason, f == metrics.GPUClockEventSeconds && label == metrics.LabelReason:
		return []string{"hw_slowdown", "sw_power_cap"}
	case f == metrics.SLOThreshold && label == metrics.LabelKind:
		return []string{"requested", "effective"}
	case f == metrics.GPUSXIDLastTimestamp && label == metrics.LabelSeverity:
		return []string{"fatal"}
	case label == metrics.LabelKind:
		return []string{"enforced", "max"}
	}
	if v, ok := values[label]; ok {
		return v
	}
	return []string{label + "-1"}
}

// series returns the label sets of a family.
func (w world) series(f *metrics.Family) []labels.Labels {
	sets := [][]string{w.scraper()}
	if f.Owner == metrics.Rules {
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
			continue // an objective is named after its signal
		}
		if f == metrics.SLOMaintenance && l.Get(metrics.LabelSLO) != "itl" {
			continue // in a declared interval an objective counts nothing
		}
		all = append(all, l)
	}
	return all
}

var bounds = []float64{0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 100, 1000, 10000}

// scrape is one scrape of the node.
func (w world) scrape(at time.Time, emit rulesim.Emit) {
	t := at.Sub(rulesim.Epoch)
	bad := max(0, (t - incidentAt).Seconds())
	good := t.Seconds() - bad
	emit(with(labels.EmptyLabels(), metrics.Up.Name, w.scraper()...), metrics.Bool(bad == 0 || int(bad/60)%2 == 1))
	for _, f := range metrics.All() {
		if !w.emits[f] {
			continue
		}
		for i, l := range w.series(f) {
			switch f.Kind {
			case metrics.Histogram:
				histogram(f, l, good, bad, emit)
			case metrics.Counter:
				emit(with(l, f.Name), counter(f, good, bad))
			default:
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
func histogram(f *metrics.Family, l labels.Labels, good, bad float64, emit rulesim.Emit) {
	const center, worse = 0.2, 3.0
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

func counter(f *metrics.Family, good, bad float64) float64 {
	switch f {
	case metrics.SourceMissing, metrics.KVTransferFailures, metrics.KVTierRefused, metrics.KVTierFailures, metrics.GPUPCIeReplays,
		metrics.GPUPCIeErrors, metrics.GPUNVLinkErrors:
		return bad // constant while the world is healthy
	case metrics.PrefixCacheHitTokens, metrics.ExternalPrefixCacheHitTokens, metrics.KVTierHitTokens:
		return 6*good + 2*bad
	}
	return 10*good + 8*bad
}

// gauge returns a value that fits a family's name, and another value during the incident.
func gauge(f *metrics.Family, incident bool, i int) float64 {
	healthy, bad := float64(1+i%2), float64(5+i%2)
	switch f {
	case metrics.ConfigReloadTime:
		healthy = float64(rulesim.Epoch.Unix())
		bad = healthy + incidentAt.Seconds()
	case metrics.GPUSXIDLastTimestamp:
		bad = float64(rulesim.Epoch.Add(incidentAt).Unix())
		healthy = bad - 30*3600 // too long ago to be shown
	case metrics.DiscoveryUp, metrics.GPUNVMLUp, metrics.GPUXIDSourceUp, metrics.SLOCounted, metrics.CollectorSuccess,
		metrics.ConfigReloadSuccess,
		metrics.GPUNVLinkUp, metrics.GPUFeatureSupported, metrics.GPUFabricManagerUp, metrics.ProbeEngineAsked, metrics.ProbeAnswerMatches:
		healthy, bad = 1, 0
	case metrics.GPUMissing, metrics.GPUCollectStuck, metrics.GPUSRAMThreshold, metrics.GPURowRemapPending, metrics.GPURowRemapFailure,
		metrics.GPURetiredPagesPending,
		metrics.GPURepairPending, metrics.GPUMemoryUnrepairable, metrics.GPUFabricHealth, metrics.Sleeping:
		healthy, bad = 0, 1
	case metrics.SLOPeriod: // the label shows this, too
		healthy, bad = 30*24*3600, 30*24*3600
	case metrics.GPUPowerLimit, metrics.GPUMemoryTotal:
		healthy, bad = 700, 700
	default:
		if strings.HasSuffix(f.Name, "_ratio") {
			healthy, bad = 0.4, 0.95
		}
		if f.Kind == metrics.Info {
			healthy, bad = 1, 1
		}
	}
	if incident {
		return bad
	}
	return healthy
}

// run plays the world under the real rules.
func (w world) run(t *testing.T) *rulesim.Sim {
	t.Helper()
	groups := bareGroups()
	file, err := rules.Encode(rules.NewFile(groups, rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := rulesim.New(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	for at := -25 * time.Hour; at < -22*time.Hour; at += time.Minute { // series with which panels compare
		if err := sim.Append(rulesim.Epoch.Add(at), func(emit rulesim.Emit) {
			for _, l := range w.series(metrics.RecordedGoodTokens) {
				emit(with(l, metrics.RecordedGoodTokens.Name), 10)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(worldEnd), time.Minute, w.scrape); err != nil {
		t.Fatal(err)
	}
	return sim
}

// The panels outside the drill return data for all their queries while everything is wrong, in a fleet on
// Kubernetes and on a lone host without namespace and cluster, and change then.
func TestUndrilledPanelsMove(t *testing.T) {
	for name, w := range map[string]world{"kubernetes": {emits: undrilledFamilies(t)}, "host": {host: true, emits: undrilledFamilies(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := w.run(t)
			s := shown{
				sim, rulesim.Epoch.Add(incidentAt - 10*time.Minute), rulesim.Epoch.Add(incidentAt),
				rulesim.Epoch.Add(worldEnd - time.Minute), nil,
			}
			for _, b := range boards(t) {
				for _, p := range b.flat() {
					if p.drill.Excuse == "" {
						continue
					}
					moves := false
					for _, q := range p.Targets {
						lines := s.ask(t, b, q.Expr)
						if len(lines) == 0 {
							t.Errorf("%s: %s %s is empty", b.Title, p.Title, q.RefID)
						}
						moves = moves || slices.ContainsFunc(lines, s.moves)
					}
					if moves == p.drill.Steady {
						t.Errorf("%s: %s moves: %t, steady in %s: %t", b.Title, p.Title, moves, b.file(), p.drill.Steady)
					}
				}
			}
		})
	}
}

// bareGroups returns the rules without the texts of alerts, which cost a query each and have no reader here. The
// rules are evaluated no more often than panels are queried.
func bareGroups() []rules.Group {
	groups := rules.Groups(rules.Options{})
	for i, g := range groups {
		var alerts []*rules.Alert
		for _, a := range g.Alerts {
			bare := *a
			bare.Diagnosed, bare.Split = false, nil
			alerts = append(alerts, &bare)
		}
		groups[i].Alerts, groups[i].Interval = alerts, max(g.Interval, step)
	}
	return groups
}

// undrilledFamilies returns the families that the panels outside the drill read.
func undrilledFamilies(t *testing.T) map[*metrics.Family]bool {
	t.Helper()
	r := newReader()
	for _, b := range boards(t) {
		b.each(func(p panel, q target) {
			if p.drill.Excuse != "" {
				r.add(t, b.substitute(t, q.Expr))
			}
		})
	}
	return r.families
}

// TestYoungSeriesAreDrawn checks that, for any range, a series is drawn at each moment of its existence, up to the
// number of lines that a panel has. A query chooses among lines at each moment, and reads the range only to find
// when something began.
func TestYoungSeriesAreDrawn(t *testing.T) {
	t.Parallel()
	sim := world{emits: undrilledFamilies(t)}.run(t)
	end, chosen := rulesim.Epoch.Add(worldEnd-time.Minute), 0
	count := func(query string) int {
		found, err := sim.Query(query, end)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	for _, b := range boards(t) {
		b.each(func(p panel, q target) {
			if ranged := strings.Contains(q.Expr, "$__range:") || strings.Contains(q.Expr, "$__range]"); ranged && p.Type != "table" {
				t.Errorf("%s: %s shows what it shows by the range: %s", b.Title, p.Title, q.Expr)
			}
			if strings.Contains(q.Expr, "$__interval") || strings.Contains(q.Expr, "@ end()") {
				t.Errorf("%s: %s looks between points that depend on the range: %s", b.Title, p.Title, q.Expr)
			}
			query := b.substitute(t, q.Expr)
			e, err := promql.Parser.ParseExpr(query)
			if err != nil {
				t.Fatal(err)
			}
			most, ok := e.(*parser.AggregateExpr)
			if !ok || most.Op != parser.TOPK && most.Op != parser.BOTTOMK || p.Type != "timeseries" {
				return
			}
			all, drawn := count(most.Expr.String()), count(query)
			if all > 0 {
				chosen++
			}
			if drawn < min(all, 20/len(p.Targets)) {
				t.Errorf("%s: %s draws %d of %d lines", b.Title, p.Title, drawn, all)
			}
		})
	}
	if chosen < 30 {
		t.Errorf("%d queries", chosen)
	}
}
