// Package rulesim runs rule files in Prometheus' own storage and query engine over simulated time. Days of an incident
// take seconds. Staleness, "for", annotations and ALERTS series are those of a real Prometheus.
package rulesim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace/noop"
)

// The query engine reports each query and each selector to a tracer, but simulations need no traces.
func init() { otel.SetTracerProvider(noop.NewTracerProvider()) }

// Epoch is the usual start of simulations.
var Epoch = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// Emit passes one sample of the current scrape to the simulation.
type Emit func(series labels.Labels, value float64)

// Sim runs a Prometheus server with a simulated clock.
type Sim struct {
	db     *tsdb.DB
	reader reader
	dir    string
	engine *promql.Engine
	all    []*rule   // in the order of their evaluation
	parts  [][]*rule // see inParts
	last   map[uint64]labels.Labels
	refs   map[uint64]storage.SeriesRef
	stored map[string]bool   // names of existing series that rules have requested
	rules  map[string]needed // by the rule's expression
	ctx    context.Context
	// OnAlert, when set, receives every alert that fires after an evaluation.
	OnAlert func(at time.Time, alert Alert)
	// Samples counts the samples that rule evaluations have read.
	Samples int64
	// Whole evaluates complete rules, as Prometheus does, including parts that cannot have a result. The results are the
	// same, but take as much time as in Prometheus.
	Whole bool
	// Native, when set, reports whether Prometheus converts the histograms of a scrape to native histograms.
	Native func(at time.Time) bool
}

// Alert describes a firing alert.
type Alert struct {
	Name        string
	Labels      labels.Labels
	Annotations labels.Labels
	Value       float64
}

// New starts a simulation of rule files, given by content. The caller must close it.
func New(files ...[]byte) (*Sim, error) {
	dir, err := os.MkdirTemp("", "rulesim")
	if err != nil {
		return nil, err
	}
	s := &Sim{
		dir: dir, ctx: context.Background(), last: map[uint64]labels.Labels{}, refs: map[uint64]storage.SeriesRef{},
		stored: map[string]bool{}, rules: map[string]needed{},
	}
	opts := tsdb.DefaultOptions()
	opts.WALSegmentSize = -1 // the data need not survive
	opts.StripeSize = 512    // the default is for a million series
	opts.IsolationDisabled = true
	opts.MinBlockDuration = (400 * 24 * time.Hour).Milliseconds()
	opts.MaxBlockDuration = opts.MinBlockDuration
	opts.RetentionDuration = 0
	if s.db, err = tsdb.Open(filepath.Join(dir, "data"), nil, nil, opts, tsdb.NewDBStats()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.db.DisableCompactions()
	p := reader{parser.NewParser(parser.Options{})}
	s.engine = promql.NewEngine(promql.EngineOpts{
		EnableAtModifier: true, MaxSamples: 200_000_000, Timeout: 10 * time.Minute,
		LookbackDelta: 5 * time.Minute, Parser: p, EnablePerStepStats: false,
	})
	s.reader = p
	if err := s.load(p, files); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Sim) load(p reader, files [][]byte) error {
	m := rules.NewManager(&rules.ManagerOptions{
		Context: s.ctx, Appendable: s.db, Queryable: s.db,
		Logger: slog.New(slog.DiscardHandler), Parser: p, GroupLoader: loader{p, files}, RuleDependencyController: inOrder{},
	})
	numbers := make([]string, len(files))
	for i := range files {
		numbers[i] = strconv.Itoa(i)
	}
	groups, errs := m.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, numbers...)
	if errs != nil {
		return errors.Join(errs...)
	}
	// Groups of recording rules come first within each minute.
	sorted := slices.SortedFunc(maps.Values(groups), func(a, b *rules.Group) int {
		return cmp.Or(cmp.Compare(alertsIn(a), alertsIn(b)), cmp.Compare(a.Name(), b.Name()))
	})
	for _, g := range sorted {
		for _, r := range g.Rules() {
			if ar, ok := r.(*rules.AlertingRule); ok {
				ar.SetRestored(true) // there is nothing to restore, but without this call, ALERTS is not written
			}
			s.all = append(s.all, newRule(g, r))
		}
	}
	s.parts = inParts(s.all)
	return nil
}

// inOrder evaluates the rules of a group one after the other, without an analysis of their dependencies.
type inOrder struct{}

// AnalyseRules implements rules.RuleDependencyController.
func (inOrder) AnalyseRules([]rules.Rule) {}

func alertsIn(g *rules.Group) int {
	n := 0
	for _, r := range g.Rules() {
		if _, ok := r.(*rules.AlertingRule); ok {
			n++
		}
	}
	return n
}

// Close removes the simulation's storage.
func (s *Sim) Close() error { return errors.Join(s.db.Close(), os.RemoveAll(s.dir)) }

// DB returns the storage of the simulation, for a server that continues with it. The storage is gone after Close.
func (s *Sim) DB() *tsdb.DB { return s.db }

// Engine returns the query engine of the simulation.
func (s *Sim) Engine() *promql.Engine { return s.engine }

// Run advances the clock from one time to another, and stops before the second. Once per scrape interval, it calls
// scrape, which must emit all samples. A series that is not emitted again becomes stale. Run evaluates every group at
// the group's own interval, but only after many scrapes at once. If a rule fails, the run ends.
func (s *Sim) Run(from, to time.Time, interval time.Duration, scrape func(at time.Time, emit Emit)) error {
	var ticks []time.Time
	for at := from; at.Before(to); at = at.Add(interval) {
		if err := s.Scrape(at, scrape); err != nil {
			return err
		}
		// Before the next scrape, groups are evaluated at the multiples of their interval.
		for tick := at.Truncate(time.Minute); tick.Before(at.Add(interval)); tick = tick.Add(time.Minute) {
			if !tick.Before(at) {
				ticks = append(ticks, tick)
			}
		}
		if len(ticks) >= atOnce || !at.Add(interval).Before(to) {
			if err := s.EvalAll(ticks); err != nil {
				return err
			}
			ticks = nil
		}
	}
	return nil
}

// atOnce is the number of ticks that Run evaluates at once.
const atOnce = 120

// Scrape stores one scrape.
func (s *Sim) Scrape(at time.Time, scrape func(at time.Time, emit Emit)) error {
	seen := make(map[uint64]labels.Labels, len(s.last))
	err := s.append(at, func(a appender) {
		see := func(l labels.Labels) { seen[l.Hash()] = l }
		emit := func(l labels.Labels, v float64) {
			see(l)
			a.float(l, v)
		}
		if s.Native != nil && s.Native(at) {
			native(func(all Emit) { scrape(at, all) }, emit, func(l labels.Labels, h *histogram.Histogram, f *histogram.FloatHistogram) {
				see(l)
				a.histogram(l, h, f)
			})
		} else {
			scrape(at, emit)
		}
		for h, l := range s.last {
			if _, ok := seen[h]; !ok {
				a.float(l, staleNaN)
			}
		}
	})
	s.last = seen
	return err
}

// Append stores samples unchanged. Missing series do not become stale.
func (s *Sim) Append(at time.Time, samples func(emit Emit)) error {
	return s.append(at, func(a appender) { samples(a.float) })
}

func (s *Sim) append(at time.Time, samples func(a appender)) error {
	app := s.db.Appender(s.ctx)
	var failed error
	samples(appender{s, app, at, &failed})
	return errors.Join(failed, app.Commit())
}

// appender stores the samples of one time, and the first error.
type appender struct {
	*Sim
	app    storage.Appender
	at     time.Time
	failed *error
}

func (a appender) float(l labels.Labels, v float64) {
	a.keep(l, func(ref storage.SeriesRef, ms int64) (storage.SeriesRef, error) { return a.app.Append(ref, l, ms, v) })
}

func (a appender) histogram(l labels.Labels, h *histogram.Histogram, f *histogram.FloatHistogram) {
	a.keep(l, func(ref storage.SeriesRef, ms int64) (storage.SeriesRef, error) {
		return a.app.AppendHistogram(ref, l, ms, h, f)
	})
}

func (a appender) keep(l labels.Labels, store func(ref storage.SeriesRef, ms int64) (storage.SeriesRef, error)) {
	h := l.Hash()
	ref, err := store(a.refs[h], a.at.UnixMilli())
	if err != nil && *a.failed == nil {
		*a.failed = fmt.Errorf("%s at %s: %w", l, a.at.Format(time.RFC3339), err)
	}
	a.refs[h] = ref
}

// Eval evaluates the groups that are due at a time.
func (s *Sim) Eval(at time.Time) error {
	for _, r := range s.all {
		if when, due := r.when(at); due {
			if err := s.evaluate(r, when, false); err != nil {
				return err
			}
		}
	}
	if s.OnAlert != nil {
		for _, a := range s.Firing() {
			s.OnAlert(at, a)
		}
	}
	return nil
}

// Firing lists the alerts that fire after the last evaluation, by name and labels.
func (s *Sim) Firing() []Alert {
	var firing []Alert
	for _, r := range s.all {
		firing = append(firing, r.firing()...)
	}
	slices.SortFunc(firing, byLabels)
	return firing
}

func byLabels(a, b Alert) int { return labels.Compare(a.Labels, b.Labels) }

// Query evaluates an expression at a time.
func (s *Sim) Query(expr string, at time.Time) (promql.Vector, error) {
	v, _, err := s.query(s.ctx, expr, at)
	return v, err
}

func (s *Sim) query(ctx context.Context, expr string, at time.Time) (promql.Vector, int64, error) {
	q, err := s.engine.NewInstantQuery(ctx, s.db, nil, expr, at)
	if err != nil {
		return nil, 0, err
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return nil, 0, res.Err
	}
	samples := q.Stats().Samples.TotalSamples
	switch v := res.Value.(type) {
	case promql.Vector:
		return slices.Clone(v), samples, nil
	case promql.Scalar:
		return promql.Vector{{T: v.T, F: v.V}}, samples, nil
	default:
		return nil, samples, fmt.Errorf("%s: neither vector nor scalar", expr)
	}
}

var staleNaN = math.Float64frombits(value.StaleNaN)
