package rules_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// scrapeEvery is the scrape interval of simulations: the usual default, and the most difficult for rates over five
// minutes.
const scrapeEvery = time.Minute

// service is a stream of events of one engine for one objective. Rates may change over time. Events are whole and evenly
// spaced.
type service struct {
	model, pod, threshold, slo string
	role                       string
	perSecond                  func(at time.Duration) float64
	badShare                   func(at time.Duration) float64
	// from and until limit the series' life. 0 for until means forever.
	from, until time.Duration
	// lateBad hides the bad series until the first bad event.
	lateBad bool

	events, bad float64
}

func constant(v float64) func(time.Duration) float64 { return func(time.Duration) float64 { return v } }

// during returns value inside [from, to) and otherwise elsewhere.
func during(from, to time.Duration, value, elsewhere float64) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		if at >= from && at < to {
			return value
		}
		return elsewhere
	}
}

// advance adds the events of the interval that ends now.
func (s *service) advance(at, interval time.Duration) {
	n := s.perSecond(at-interval) * interval.Seconds()
	s.events += n
	s.bad += n * s.badShare(at-interval)
}

func (s *service) emit(emit rulesim.Emit) {
	l := func(f *metrics.Family) labels.Labels {
		return series(f.Name, metrics.LabelModel, s.model, metrics.LabelNamespace, "prod", metrics.LabelPod, s.pod,
			metrics.LabelSLO, s.slo, metrics.LabelThreshold, s.threshold, metrics.LabelRole, s.role)
	}
	// A little slack keeps sums like 59.99999 whole.
	emit(l(metrics.SLOEvents), math.Floor(s.events+1e-6))
	if bad := math.Floor(s.bad + 1e-6); bad > 0 || !s.lateBad {
		emit(l(metrics.SLOBadEvents), bad)
	}
}

func series(name string, pairs ...string) labels.Labels {
	return labels.FromStrings(append([]string{model.MetricNameLabel, name, "instance", "node-1"}, pairs...)...)
}

// world is objectives and services under the generated rules.
type world struct {
	objectives []slo.Objective
	services   []*service
	// exporterDown silences every exported series.
	exporterDown func(at time.Duration) bool
	// extra emits further series of the exporter.
	extra func(at time.Duration, emit rulesim.Emit)
}

func (w *world) scrape(at time.Time, emit rulesim.Emit) {
	t := at.Sub(rulesim.Epoch)
	for _, s := range w.services {
		s.advance(t, scrapeEvery)
	}
	if w.exporterDown != nil && w.exporterDown(t) {
		return
	}
	for _, o := range w.objectives {
		emit(series(metrics.SLOObjective.Name, metrics.LabelSLO, o.Name), o.Target.Float())
		emit(series(metrics.SLOThreshold.Name, metrics.LabelSLO, o.Name, metrics.LabelKind, "requested"), o.Threshold.Std().Seconds())
		emit(series(metrics.SLOPeriod.Name, metrics.LabelSLO, o.Name), o.Period.Std().Seconds())
		emit(series(metrics.SLOInfo.Name, metrics.LabelSLO, o.Name, metrics.LabelSignal, string(o.Signal), metrics.LabelBad, o.Miss(),
			metrics.LabelPeriod, o.Period.String()), 1)
	}
	for _, s := range w.services {
		if t >= s.from && (s.until == 0 || t < s.until) {
			s.emit(emit)
		}
	}
	if w.extra != nil {
		w.extra(t, emit)
	}
}

// subject is the alert, model and objective of a firing.
type subject struct{ alert, model, slo string }

// firings are the times since the start at which alerts were firing.
type firings map[subject][]time.Duration

// of lists the subjects of an alert.
func (f firings) of(alert string) []subject {
	var s []subject
	for k := range f {
		if k.alert == alert {
			s = append(s, k)
		}
	}
	return s
}

// run simulates the world for a while under the given groups.
func (w *world) run(t testing.TB, d time.Duration, groups ...rules.Group) (firings, *rulesim.Sim) {
	t.Helper()
	sim := newSim(t, groups...)
	fired := firings{}
	sim.OnAlert = func(at time.Time, a rulesim.Alert) {
		s := subject{a.Name, a.Labels.Get(metrics.LabelModel), a.Labels.Get(metrics.LabelSLO)}
		fired[s] = append(fired[s], at.Sub(rulesim.Epoch))
	}
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(d), scrapeEvery, w.scrape); err != nil {
		t.Fatal(err)
	}
	return fired, sim
}

// newSim starts a simulation of groups without their annotations, which cost a query each.
func newSim(t testing.TB, groups ...rules.Group) *rulesim.Sim {
	t.Helper()
	file, err := rules.Encode(rules.NewFile(bare(groups), rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := rulesim.New(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	return sim
}

func bare(groups []rules.Group) []rules.Group {
	var out []rules.Group
	for _, g := range groups {
		var alerts []*rules.Alert
		for _, a := range g.Alerts {
			b := *a
			b.Diagnosed, b.Split = false, nil
			alerts = append(alerts, &b)
		}
		g.Alerts = alerts
		out = append(out, g)
	}
	return out
}

// group finds a generated group.
func group(t testing.TB, opt rules.Options, name string) rules.Group {
	t.Helper()
	for _, g := range rules.Groups(opt) {
		if g.Name == name {
			return g
		}
	}
	t.Fatalf("no group %s", name)
	return rules.Group{}
}

// only returns one burn-rate alert and the rules that it reads.
func only(t testing.TB, opt rules.Options, alert string) []rules.Group {
	t.Helper()
	g := group(t, opt, "llm-slo-burn")
	if alert != rules.FastBurn.Name {
		g = group(t, opt, "llm-slo-later")
	}
	g.Alerts = slices.DeleteFunc(g.Alerts, func(a *rules.Alert) bool { return a.Name != alert })
	if len(g.Alerts) != 1 {
		t.Fatalf("%d alerts %s", len(g.Alerts), alert)
	}
	return reading(opt, g, g.Alerts[0].Expr)
}

// burning returns the groups that alert on burn rates, and others by name.
func burning(t testing.TB, opt rules.Options, more ...string) []rules.Group {
	var groups []rules.Group
	if opt.Tier == rules.Single {
		groups = append(groups, group(t, opt, "llm-slo-correction"))
	}
	for _, name := range append([]string{"llm-slo-objective", "llm-slo-text", "llm-slo-burn", "llm-slo-later"}, more...) {
		groups = append(groups, group(t, opt, name))
	}
	return groups
}

func objective(t testing.TB, target string, period slo.Duration) slo.Objective {
	t.Helper()
	r, err := slo.ParseRatio(target)
	if err != nil {
		t.Fatal(err)
	}
	return slo.Objective{Name: "ttft", Signal: slo.TTFT, Threshold: slo.Duration(500 * time.Millisecond), Target: r, Period: period}
}
