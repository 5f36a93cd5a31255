package rules_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

var (
	draws = flag.Int("draws", 12, "incidents drawn by each property test")
	seed  = flag.Uint64("seed", 4, "seed of the property tests")
	long  = flag.Bool("long", false, "simulate the ticket windows at full length and the whole week, and run the cases of hours with promtool")
)

const (
	hour = time.Hour
	day  = 24 * time.Hour

	fastBurn = "LLMErrorBudgetFastBurn"
	slowBurn = "LLMErrorBudgetSlowBurn"
)

// incident is a constant share of bad events after a clean history with the same traffic.
type incident struct {
	objective slo.Objective
	load      slo.Load
}

func (i incident) String() string {
	return fmt.Sprintf("%s over %s, %.3g requests/s, %.4g bad", i.objective.Target.Percent(), i.objective.Period,
		i.load.RequestsPerSecond, i.load.BadShare)
}

// checkDetection runs incidents side by side, with one objective and model each, and compares the first firing of each
// with theory.
func checkDetection(t *testing.T, pairs []slo.WindowPair, severity slo.Severity, alert string, incidents []incident) {
	t.Helper()
	var history, wait time.Duration
	for _, p := range pairs {
		if p.Severity == severity {
			history = max(history, p.Long.Std()+10*time.Minute)
		}
	}
	w := &world{}
	type theory struct {
		incident
		detection, slack time.Duration
	}
	expect := map[subject]theory{}
	for n, i := range incidents {
		detection, fires := slo.Detection(pairs, severity, i.objective, i.load)
		if !fires || borderline(pairs, severity, i.objective, i.load) {
			continue
		}
		// The decisive event may come late by the time of one bad event, because events are whole.
		granule := time.Duration(float64(time.Second) / (i.load.RequestsPerSecond * i.load.BadShare))
		i.objective.Name = fmt.Sprintf("slo-%d", n)
		w.objectives = append(w.objectives, i.objective)
		served := "m-" + i.objective.Name // a page is about one objective of its model
		w.services = append(w.services, &service{
			model: served, pod: "p", slo: i.objective.Name, threshold: "0.5",
			perSecond: constant(i.load.RequestsPerSecond), badShare: during(history, math.MaxInt64, i.load.BadShare, 0),
		})
		th := theory{i, detection, scrapeEvery + rules.Interval + granule}
		expect[subject{alert, served, i.objective.Name}] = th
		wait = max(wait, th.detection+th.slack+5*time.Minute)
	}
	if len(expect) < len(incidents)/2 {
		t.Fatalf("only %d of %d incidents are worth simulating; draw others", len(expect), len(incidents))
	}
	fired, _ := w.run(t, history+wait, only(t, rules.Options{WindowPairs: pairs}, alert)...)
	for s, th := range expect {
		if len(fired[s]) == 0 {
			t.Errorf("%s: silent; theory says after %s", th, th.detection)
			continue
		}
		if got := fired[s][0] - history; got > th.detection+th.slack || got < th.detection-th.slack {
			t.Errorf("%s: fired after %s; theory says after %s, give or take %s", th, got, th.detection, th.slack)
		}
	}
}

// borderline reports whether a single bad event decides whether a pair fires. The result then depends on the times of
// whole events, not on the formula.
func borderline(pairs []slo.WindowPair, severity slo.Severity, o slo.Objective, l slo.Load) bool {
	for _, p := range pairs {
		if p.Severity != severity {
			continue
		}
		requests := l.RequestsPerSecond * p.Long.Std().Seconds()
		bad := l.BadShare * requests
		threshold, _ := p.Threshold(o).Float64()
		if math.Abs(bad-slo.MinBadEvents) < 1 || bad > slo.MinBadEvents && l.BadShare <= threshold && threshold*requests-bad < 2 {
			return true
		}
	}
	return false
}

func drawIncidents(t *testing.T, p slo.WindowPair, periods []slo.Duration) []incident {
	t.Helper()
	rng := rand.New(rand.NewPCG(*seed, uint64(p.Long)))
	var all []incident
	for range *draws {
		o := objective(t, []string{"90%", "95%", "98%", "99%", "99.5%", "99.9%", "99.99%"}[rng.IntN(7)], periods[rng.IntN(len(periods))])
		threshold, _ := p.Threshold(o).Float64()
		all = append(all, incident{o, slo.Load{
			BadShare:          threshold*1.2 + rng.Float64()*(1-threshold*1.2),
			RequestsPerSecond: math.Exp(rng.Float64()*math.Log(10_000*3600)) / 3600,
		}})
	}
	return all
}

// A page fires at the time that slo.Detection computes, give or take one scrape and one evaluation, for any target,
// period and traffic.
func TestPageFiresWhenTheFormulaSays(t *testing.T) {
	t.Parallel()
	incidents := drawIncidents(t, slo.DefaultWindowPairs()[1], slo.Periods())
	for _, target := range []string{"50%", "90%", "99%", "99.99%"} {
		for _, perSecond := range []float64{1. / 3600, 10_000} {
			incidents = append(incidents, incident{objective(t, target, slo.DefaultPeriod), slo.Load{BadShare: 1, RequestsPerSecond: perSecond}})
		}
	}
	checkDetection(t, slo.DefaultWindowPairs(), slo.Page, fastBurn, incidents)
}

// A ticket fires at the time that slo.Detection computes. Its windows are short enough for every run. With -long, the
// test uses the real windows.
func TestTicketFiresWhenTheFormulaSays(t *testing.T) {
	t.Parallel()
	pairs := []slo.WindowPair{
		{Long: slo.Duration(hour), Short: slo.Duration(5 * time.Minute), Spend: slo.One / 50, Severity: slo.Page},
		{Long: slo.Duration(4 * hour), Short: slo.Duration(20 * time.Minute), Spend: slo.One / 100, Severity: slo.Ticket},
		{Long: slo.Duration(8 * hour), Short: slo.Duration(2 * hour), Spend: slo.One / 90, Severity: slo.Ticket},
	}
	if *long {
		pairs = slo.DefaultWindowPairs()
	}
	checkDetection(t, pairs, slo.Ticket, slowBurn, drawIncidents(t, pairs[len(pairs)-1], []slo.Duration{30 * slo.Day, 90 * slo.Day}))
}

// A total outage pages within six hours at every target down to 50% and at one request per hour.
func TestTotalOutageIsBounded(t *testing.T) {
	for _, target := range []string{"50%", "80%", "90%", "95%", "99%", "99.9%", "99.99%"} {
		for _, period := range slo.Periods() {
			for _, perSecond := range []float64{1. / 3600, 0.1, 10_000} {
				d, fires := slo.Detection(slo.DefaultWindowPairs(), slo.Page, objective(t, target, period),
					slo.Load{BadShare: 1, RequestsPerSecond: perSecond})
				if !fires || d > 6*hour {
					t.Errorf("%s over %s at %g/s: detected after %s, %t", target, period, perSecond, d, fires)
				}
			}
		}
	}
}
