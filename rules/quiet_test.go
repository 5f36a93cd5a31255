package rules_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

func (w *world) add(o slo.Objective, s service) {
	o.Name = fmt.Sprintf("slo-%d", len(w.objectives))
	s.slo, s.model = o.Name, "m"
	if s.pod == "" {
		s.pod = "p"
	}
	if s.threshold == "" {
		s.threshold = "0.5"
	}
	w.objectives, w.services = append(w.objectives, o), append(w.services, &s)
}

// A service that meets its objective in every minute never alerts, whatever the target, the period and the traffic.
func TestBelowBudgetNeverAlerts(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(*seed, 2))
	w := &world{}
	for range *draws {
		o := objective(t, []string{"90%", "95%", "99%", "99.9%", "99.99%"}[rng.IntN(5)], slo.Periods()[rng.IntN(len(slo.Periods()))])
		perSecond := math.Exp(rng.Float64()*math.Log(10_000*3600)) / 3600
		budget := o.Budget().Float()
		w.add(o, service{perSecond: constant(perSecond), badShare: func(time.Duration) float64 { return budget * rng.Float64() }})
	}
	fired, _ := w.run(t, 8*hour, burning(t, rules.Options{})...)
	for s := range fired {
		t.Errorf("%s fired for %v, which is within budget", s.alert, s)
	}
}

// One bad request never alerts, neither with one request an hour nor with a hundred, nor as a request of a thousand slow
// tokens.
func TestOneBadRequestNeverAlerts(t *testing.T) {
	t.Parallel()
	w := &world{}
	for _, target := range []string{"90%", "99%", "99.99%"} {
		for _, perHour := range []float64{1, 4, 100} {
			at := 90 * time.Minute
			w.add(objective(t, target, slo.DefaultPeriod), service{
				perSecond: constant(perHour / 3600),
				badShare:  during(at, at+scrapeEvery, 1/(perHour/60), 0),
			})
		}
	}
	itl := objective(t, "99%", slo.DefaultPeriod)
	itl.Signal = slo.ITL
	// A thousand tokens a request, two requests an hour; one request is slow from end to end.
	w.add(itl, service{perSecond: during(hour, hour+2*time.Minute, 1000./120, 0), badShare: constant(1)})
	// One probe a minute represents the times between tokens of an engine with ten requests a second. One request is
	// slow.
	probed := objective(t, "99.9%", slo.DefaultPeriod)
	probed.Signal = slo.ITL
	w.add(probed, service{perSecond: constant(1. / 60), badShare: during(7*hour, 7*hour+scrapeEvery, 1, 0)})
	w.services[len(w.services)-1].model = "probed"
	requests, many := 0., 0.
	w.extra = func(at time.Duration, emit rulesim.Emit) {
		if at >= hour && at < hour+scrapeEvery {
			requests++
		}
		many += 10 * scrapeEvery.Seconds()
		emit(series(metrics.TimeToFirstToken.Name+"_bucket", "le", "+Inf", metrics.LabelModel, "m", metrics.LabelNamespace, "prod",
			metrics.LabelPod, "p"), requests)
		emit(series(metrics.TimeToFirstToken.Name+"_bucket", "le", "+Inf", metrics.LabelModel, "probed", metrics.LabelNamespace, "prod",
			metrics.LabelPod, "p"), many)
	}
	fired, _ := w.run(t, 8*hour, burning(t, rules.Options{})...)
	for s, at := range fired {
		t.Errorf("%v fired at %s because of one bad request", s, at[0])
	}
	if w.services[0].bad < 0.9 {
		t.Fatal("no bad request was simulated")
	}
}

// Many requests with slow tokens do page. The guard that counts requests does not hide an incident of tokens.
func TestManySlowRequestsOfTokensPage(t *testing.T) {
	itl := objective(t, "99%", slo.DefaultPeriod)
	itl.Signal = slo.ITL
	w := &world{}
	w.add(itl, service{perSecond: constant(100), badShare: during(2*hour, 9*hour, 1, 0)})
	requests := 0.
	w.extra = func(_ time.Duration, emit rulesim.Emit) {
		requests += 6 // a thousand tokens each
		emit(series(metrics.TimeToFirstToken.Name+"_bucket", "le", "+Inf", metrics.LabelModel, "m", metrics.LabelNamespace, "prod",
			metrics.LabelPod, "p"), requests)
	}
	fired, _ := w.run(t, 3*hour, only(t, rules.Options{}, fastBurn)...)
	if len(fired.of(fastBurn)) != 1 {
		t.Errorf("fired %v, want one page", fired)
	}
}

// Disturbances of series neither page nor hide an outage. Each disturbance runs once in a healthy service, and once
// under a total outage from the third hour on.
func TestDisturbances(t *testing.T) {
	t.Parallel()
	const start = 3 * hour
	outageDetected := start + 9*time.Minute + 2*time.Minute // 99%: 14.4% of an hour, plus scrape and evaluation
	disturbances := map[string]func(w *world, bad func(time.Duration) float64){
		"none": func(w *world, bad func(time.Duration) float64) {
			w.add(objective(t, "99%", slo.DefaultPeriod), service{perSecond: constant(10), badShare: bad})
		},
		"quiet hour without any request": func(w *world, bad func(time.Duration) float64) {
			w.add(objective(t, "99%", slo.DefaultPeriod), service{perSecond: during(hour, 2*hour, 0, 10), badShare: bad})
		},
		"bad series appears with the first bad event": func(w *world, bad func(time.Duration) float64) {
			w.add(objective(t, "99%", slo.DefaultPeriod), service{perSecond: constant(10), badShare: bad, lateBad: true})
		},
		"a rank disappears with its counters": func(w *world, bad func(time.Duration) float64) {
			o := objective(t, "99%", slo.DefaultPeriod)
			w.add(o, service{perSecond: constant(5), badShare: bad})
			gone := service{
				perSecond: constant(5), badShare: during(0, hour, 0.02, 0), pod: "gone", until: 2 * hour,
				slo: w.objectives[len(w.objectives)-1].Name, model: "m", threshold: "0.5",
			}
			w.services = append(w.services, &gone)
		},
		"the threshold changes": func(w *world, bad func(time.Duration) float64) {
			o := objective(t, "99%", slo.DefaultPeriod)
			w.add(o, service{perSecond: constant(10), badShare: constant(0.005), until: 2*hour + scrapeEvery})
			tighter := *w.services[len(w.services)-1]
			// The new bound exposes the engine's whole past at once, half of it bad.
			tighter.threshold, tighter.from, tighter.until, tighter.badShare = "0.25", 2*hour, 0, bad
			tighter.events, tighter.bad = 1e6, 5e5
			w.services = append(w.services, &tighter)
		},
		"two runtimes with different bounds": func(w *world, bad func(time.Duration) float64) {
			w.add(objective(t, "99%", slo.DefaultPeriod), service{perSecond: constant(5), badShare: bad})
			other := *w.services[len(w.services)-1]
			other.pod, other.threshold = "sglang", "0.4"
			w.services = append(w.services, &other)
		},
	}
	for _, hit := range []bool{false, true} {
		bad := constant(0.002)
		if hit {
			bad = during(start, 99*hour, 1, 0.002)
		}
		w := &world{}
		names := map[string]string{}
		for name, disturb := range disturbances {
			before := len(w.services)
			disturb(w, bad)
			own := w.objectives[len(w.objectives)-1].Name
			for _, s := range w.services[before:] {
				s.model = own // a page is about one objective of its model
			}
			names[own] = name
		}
		fired, _ := w.run(t, start+30*time.Minute, only(t, rules.Options{}, fastBurn)...)
		for sloName, name := range names {
			at := fired[subject{fastBurn, sloName, sloName}]
			switch {
			case !hit && len(at) > 0:
				t.Errorf("%s: false page at %s", name, at[0])
			case hit && len(at) == 0:
				t.Errorf("%s: the outage did not page", name)
			case hit && at[0] > outageDetected:
				t.Errorf("%s: paged at %s, want by %s", name, at[0], outageDetected)
			case hit && at[0] < start:
				t.Errorf("%s: paged at %s, before the outage", name, at[0])
			}
		}
	}
}

// Counters start again from zero when an engine restarts.
func TestCounterResetNeitherPagesNorHides(t *testing.T) {
	t.Parallel()
	for _, hit := range []bool{false, true} {
		w := &world{}
		bad := constant(0.002)
		if hit {
			bad = during(3*hour, 99*hour, 1, 0.002)
		}
		w.add(objective(t, "99%", slo.DefaultPeriod), service{perSecond: constant(10), badShare: bad})
		w.extra = func(at time.Duration, _ rulesim.Emit) {
			if at == 2*hour+30*time.Minute || at == 3*hour+5*time.Minute {
				w.services[0].events, w.services[0].bad = 0, 0
			}
		}
		fired, _ := w.run(t, 4*hour, only(t, rules.Options{}, fastBurn)...)
		if got := len(fired.of(fastBurn)); (got == 1) != hit {
			t.Errorf("outage %t: pages %v", hit, fired)
		}
	}
}

// An exporter that restarts in the middle of an incident, and is away for three minutes, neither ends
// the page nor starts one.
func TestExporterRestartNeitherPagesNorEndsThePage(t *testing.T) {
	t.Parallel()
	for _, hit := range []bool{false, true} {
		w := &world{}
		bad := constant(0.005)
		if hit {
			bad = during(2*hour, 99*hour, 1, 0.005)
		}
		w.add(objective(t, "99%", slo.DefaultPeriod), service{perSecond: constant(10), badShare: bad})
		w.exporterDown = func(at time.Duration) bool { return at >= 150*time.Minute && at < 153*time.Minute }
		fired, _ := w.run(t, 3*hour, only(t, rules.Options{}, fastBurn)...)
		at := fired[subject{fastBurn, "m", "slo-0"}]
		if !hit && len(at) > 0 {
			t.Errorf("false page at %s", at[0])
		}
		for i := 1; i < len(at); i++ {
			if at[i]-at[i-1] > time.Minute {
				t.Errorf("the page ended at %s and came back at %s", at[i-1], at[i])
			}
		}
		if hit && (len(at) == 0 || at[len(at)-1] < 179*time.Minute) {
			t.Errorf("the outage is not paged to the end: %v", at)
		}
	}
}

// After an incident the page ends within the longest short window of the pairs that page.
func TestPageEndsSoonAfterTheIncident(t *testing.T) {
	t.Parallel()
	w := &world{}
	w.add(objective(t, "99%", slo.DefaultPeriod), service{perSecond: constant(10), badShare: during(2*hour, 150*time.Minute, 1, 0.001)})
	fired, _ := w.run(t, 5*hour, only(t, rules.Options{}, fastBurn)...)
	at := fired[subject{fastBurn, "m", "slo-0"}]
	if len(at) == 0 {
		t.Fatal("no page")
	}
	if end := at[len(at)-1]; end > 180*time.Minute+2*scrapeEvery {
		t.Errorf("still paging at %s, 30m after the short window is clean", end)
	}
}

// A page of one model does not affect others, and clusters do not mix.
func TestOnlyTheModelThatBurnsPages(t *testing.T) {
	o := objective(t, "99%", slo.DefaultPeriod)
	w := &world{objectives: []slo.Objective{o}}
	for _, s := range []service{
		{model: "burning", badShare: during(hour, 9*hour, 1, 0)},
		{model: "healthy", badShare: constant(0.005)},
	} {
		s.pod, s.slo, s.threshold, s.perSecond = s.model, o.Name, "0.5", constant(10)
		w.services = append(w.services, &s)
	}
	fired, _ := w.run(t, 2*hour, only(t, rules.Options{}, fastBurn)...)
	if pages := fired.of(fastBurn); len(pages) != 1 || pages[0].model != "burning" {
		t.Errorf("pages %v, want one for burning", pages)
	}
}

// With traffic and no bad series a burn rate is 0; without traffic it is absent, not NaN.
func TestZeroAndAbsentAreNotTheSame(t *testing.T) {
	t.Parallel()
	w := &world{}
	w.add(objective(t, "99%", slo.DefaultPeriod), service{perSecond: during(0, 2*hour, 10, 0), badShare: constant(0), lateBad: true})
	_, sim := w.run(t, 9*hour, burning(t, rules.Options{})...)
	for _, window := range []string{"5m", "30m", "1h", "2h", "6h"} {
		burn := metrics.Window(metrics.RecordedBurn, window).Name
		if got := one(t, sim, burn, rulesim.Epoch.Add(90*time.Minute)); got != 0 {
			t.Errorf("%s with traffic and no error is %g, want 0", burn, got)
		}
		v, err := sim.Query(burn, rulesim.Epoch.Add(9*hour-time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if len(v) != 0 {
			t.Errorf("%s without traffic is %v, want nothing", burn, v)
		}
	}
}

// TestProbesAreNoEvents checks that answered synthetic requests do not delay a page. A fifth of the users' requests fail,
// and as many probes are answered.
func TestProbesAreNoEvents(t *testing.T) {
	o := objective(t, "99%", slo.DefaultPeriod)
	o.Name, o.Signal = "availability", slo.Availability
	w := &world{objectives: []slo.Objective{o}, services: []*service{{
		model: "m", pod: "p", slo: o.Name,
		perSecond: constant(0.4), badShare: during(2*hour, math.MaxInt64, 0.1, 0),
	}}}
	probes := 0.
	w.extra = func(_ time.Duration, emit rulesim.Emit) {
		page := []string{metrics.LabelModel, "m", metrics.LabelNamespace, "prod", metrics.LabelPod, "p", metrics.LabelServer, "p:8000"}
		emit(series(metrics.EngineInfo.Name, page...), 1)
		emit(series(metrics.ProbeFailures.Name, metrics.LabelModel, "m", metrics.LabelServer, "p:8000"), 0)
		emit(series(metrics.ProbeRequests.Name, metrics.LabelModel, "m", metrics.LabelServer, "p:8000", metrics.LabelOutcome,
			string(metrics.ProbeOK)), probes)
		probes += 12
	}
	fired, _ := w.run(t, 3*hour+10*time.Minute, only(t, rules.Options{}, fastBurn)...)
	if len(fired.of(fastBurn)) != 1 {
		t.Errorf("the page fired for %v", fired)
	}
}
