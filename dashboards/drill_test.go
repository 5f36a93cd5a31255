package dashboards_test

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	drill "github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// shown is the range of a played incident that panels show: from well before its onset to its end.
type shown struct {
	sim             *rulesim.Sim
	from, onset, to time.Time
	says            []string // titles of pages, and the branches that they name
}

// named finds an incident of the drill.
func named(t *testing.T, name string) incident.Incident {
	t.Helper()
	in, err := incident.Find(incident.Incidents(), name)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// brief is the shortest history with which panels move.
const brief = 45 * time.Minute

// play plays an incident as short as panels need it.
func play(t *testing.T, in incident.Incident, history time.Duration, relabel func(labels.Labels) labels.Labels) shown {
	t.Helper()
	in.History, in.Lasts = history, min(in.Lasts, 30*time.Minute)
	p, err := drill.Run(in, drill.Options{Seed: 1, Groups: bareGroups(), Relabel: relabel})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	onset := p.World.At(p.Onset)
	return shown{p.Prometheus, onset.Add(-35 * time.Minute), onset, onset.Add(in.Lasts), nil}
}

// These functions relabel the drill's series as a scrape does: as a node of a fleet on Kubernetes, for which
// Prometheus adds the cluster, or as a lone host without a namespace.
func inCluster(l labels.Labels) labels.Labels {
	return labels.NewBuilder(l).Set(metrics.LabelCluster, "eu").Labels()
}

func onHost(l labels.Labels) labels.Labels {
	return labels.NewBuilder(l).Del(metrics.LabelNamespace, metrics.LabelPod).Labels()
}

// Every panel returns data while the drill runs an incident that should move it, and then moves. A panel that points to
// another cause stays unchanged. Each run plays every other incident, and -all plays all incidents.
func TestDrill(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	answered := map[string]bool{} // queries that returned data
	t.Run("incidents", func(t *testing.T) {
		for i, in := range drilled(t) {
			if i%2 == 1 && !*all && in.Name != picturedIncident {
				continue
			}
			t.Run(in.Name, func(t *testing.T) {
				t.Parallel()
				history, relabel := brief, inCluster
				if i%4 > 1 {
					relabel = onHost
				}
				if in.Name == picturedIncident {
					history, relabel = 2*time.Hour, inCluster // as drill run does
				}
				s := play(t, in, history, relabel)
				moving := false
				for _, b := range boards(t) {
					var moved []string
					for _, p := range b.flat() {
						moves := false
						for _, q := range p.Targets {
							lines := s.ask(t, b, q.Expr)
							if len(lines) > 0 {
								mu.Lock()
								answered[q.Expr] = true
								mu.Unlock()
							}
							if most := p.FieldConfig.Defaults.Max; most != nil {
								for _, l := range lines {
									if _, high := band(l.Floats, func(int64) bool { return true }); high > *most {
										t.Errorf("%s: %s reaches %v: %s", b.Title, p.Title, high, l.Metric)
									}
								}
							}
							moves = moves || slices.ContainsFunc(lines, s.moves)
						}
						if moves {
							moved = append(moved, p.Title)
						}
						must := slices.Contains(p.drill.Moves, in.Name)
						if must && !moves {
							t.Errorf("%s: %s does not move: see its movesIn in %s", b.Title, p.Title, b.file())
						}
						if p.drill.Still && !must && !slices.Contains(p.drill.May, in.Name) && moves {
							t.Errorf("%s: %s moves: see its stillElsewhere in %s", b.Title, p.Title, b.file())
						}
					}
					t.Logf("%s: moved: %q", b.Title, moved)
					s.marks(t, b, in)
					moving = moving || len(moved) > 0
				}
				if !moving {
					t.Error("no panel moves")
				}
				s.atThree(t, in)
				for _, b := range boards(t) {
					for _, p := range b.flat() {
						now := screen{s.sim, s.to}
						now.empty(t, b, p)
						if p.Type == "table" {
							now.whole(t, b, p)
						}
					}
				}
				s.overEveryRange(t)
				if in.Name == picturedIncident {
					s.picture(t)
				}
			})
		}
	})
	t.Run("coverage", func(t *testing.T) {
		for _, b := range boards(t) {
			for _, p := range b.flat() {
				if p.Type == "text" {
					continue
				}
				if !*all { // only all incidents fill all queries
					if p.drill.Moves == nil && p.drill.Excuse == "" {
						t.Errorf("%s: no incident moves %s: add movesIn or notDrilled in %s", b.Title, p.Title, b.file())
					}
					continue
				}
				filled := !slices.ContainsFunc(p.Targets, func(q target) bool { return !answered[q.Expr] })
				covered := filled && p.drill.Moves != nil
				if !covered && p.drill.Excuse == "" {
					t.Errorf("%s: no incident moves %s, or none fills all its queries: add movesIn or notDrilled in %s", b.Title, p.Title, b.file())
				}
				if covered && p.drill.Excuse != "" {
					t.Errorf("%s: %s is drilled: remove notDrilled(%q) in %s", b.Title, p.Title, p.drill.Excuse, b.file())
				}
			}
		}
	})
}

// drilled returns the incidents that panels name.
func drilled(t *testing.T) []incident.Incident {
	t.Helper()
	said := map[string]board{}
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			for _, name := range slices.Concat(p.drill.Moves, p.drill.May) {
				said[name] = b
			}
		}
	}
	var all []incident.Incident
	for _, in := range incident.Incidents() {
		if _, ok := said[in.Name]; ok {
			all = append(all, in)
		}
		delete(said, in.Name)
	}
	for name, b := range said {
		t.Errorf("%s names %s, which the drill does not have", b.file(), name)
	}
	return all
}

// Without a fault no panel moves, so the incidents cause the moves of other tests.
func TestCalm(t *testing.T) {
	t.Parallel()
	calm := named(t, "thermal-throttle")
	calm.Faults = nil
	s := play(t, calm, brief, inCluster)
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			if p.drill.Excuse != "" || p.drill.Drifts != "" {
				continue
			}
			for _, q := range p.Targets {
				for _, l := range s.ask(t, b, q.Expr) {
					if s.moves(l) {
						t.Errorf("%s: %s moves: %s: if it should, say why by drifts in %s", b.Title, p.Title, l.Metric, b.file())
					}
				}
			}
		}
	}
}

// step is the time between two queries of a panel.
const step = time.Minute

// ask evaluates a query as a graph over the whole range.
func (s shown) ask(t *testing.T, b board, expr string) promql.Matrix {
	t.Helper()
	query := b.substitute(t, expr)
	m, _, err := s.sim.Range(query, s.from, s.to, step)
	if err != nil {
		t.Errorf("%s: %v", query, err)
	}
	return m
}

// moves reports whether a line changes after the onset. A moving line leaves its former band by more than that
// band's height and a tenth of its bound, falls to less than a tenth of a positive value, or appears or ends.
func (s shown) moves(line promql.Series) bool {
	lo, hi := band(line.Floats, func(at int64) bool { return at < s.onset.UnixMilli() })
	low, high := band(line.Floats, func(at int64) bool { return at >= s.onset.UnixMilli() })
	if lo > hi || low > high {
		return (lo > hi) != (low > high)
	}
	height := hi - lo
	return high > hi+max(height, math.Abs(hi)/10) || low < lo-max(height, math.Abs(lo)/10) || lo > 0 && low < lo/10
}

// band returns the lowest and the highest value at the times that count; lo > hi when there is none.
func band(points []promql.FPoint, counts func(at int64) bool) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, p := range points {
		if counts(p.T) && !math.IsNaN(p.F) {
			lo, hi = min(lo, p.F), max(hi, p.F)
		}
	}
	return lo, hi
}

// changes lists the kinds of marks that an incident must show, besides its page.
var changes = map[string][]string{"bad-release": {"Changes", "Restarts"}, "crash-loop": {"Restarts"}}

// marks checks that there is a mark for each event, not before it, and with the value 1, the only one that Grafana
// draws.
func (s shown) marks(t *testing.T, b board, in incident.Incident) {
	t.Helper()
	must := slices.Clone(changes[in.Name])
	if in.Page != nil && in.Page.Severity == slo.Page {
		must = append(must, "Pages")
	}
	for _, a := range b.Annotations.List[1:] {
		after := 0
		for _, line := range s.ask(t, b, a.Expr) {
			for _, p := range line.Floats {
				if p.F != 1 {
					t.Errorf("%s: %s marks %s with %v", b.Title, a.Name, line.Metric, p.F)
				}
				if p.T >= s.onset.UnixMilli() {
					after++
				} else {
					t.Errorf("%s: %s marks %s before the onset", b.Title, a.Name, line.Metric)
				}
			}
		}
		i := slices.Index(must, a.Name)
		if i >= 0 && after == 0 {
			t.Errorf("%s: %s marks nothing", b.Title, a.Name)
		}
		if i >= 0 {
			must = slices.Delete(must, i, i+1)
		}
	}
	if len(must) > 0 {
		t.Errorf("%s has no marks named %q", b.Title, must)
	}
}
