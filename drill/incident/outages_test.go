package incident_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// outage is a constant share of bad requests for hours, at a model with two objectives.
type outage struct {
	rate, share   float64 // requests per second; share of bad requests
	begins, lasts time.Duration
	model         string
	random        *rand.Rand
	counters      []counter
}

// counter counts the events of one objective.
type counter struct {
	events, bad float64
}

// between adds the requests of an interval, at random times.
func (o *outage) between(from, to time.Duration) {
	hit := max(0, min(to, o.begins+o.lasts)-max(from, o.begins))
	for i := range o.counters {
		failing := poisson(o.random, o.rate*hit.Seconds())
		c := &o.counters[i]
		c.events += failing + poisson(o.random, o.rate*(to-from-hit).Seconds())
		c.bad += binomial(o.random, failing, o.share)
	}
}

func poisson(r *rand.Rand, mean float64) float64 {
	if mean > 500 {
		return math.Max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64()))
	}
	n := 0.
	for p := r.ExpFloat64(); p < mean; p += r.ExpFloat64() {
		n++
	}
	return n
}

func binomial(r *rand.Rand, n, share float64) (k float64) {
	if n*share*(1-share) > 100 {
		return math.Round(n*share + math.Sqrt(n*share*(1-share))*r.NormFloat64())
	}
	for range int(n) {
		if r.Float64() < share {
			k++
		}
	}
	return k
}

// objectives lists the objectives of every model here.
var objectives = []struct {
	slo.Signal
	target float64
}{{slo.Availability, 0.999}, {slo.TTFT, 0.99}}

func (o *outage) emit(emit rulesim.Emit) {
	for i, c := range o.counters {
		series := func(f *metrics.Family, v float64, more ...string) {
			emit(labels.FromStrings(append([]string{
				model.MetricNameLabel, f.Name, metrics.LabelSLO, string(objectives[i].Signal), "instance",
				"node-1",
			}, more...)...), v)
		}
		of := []string{
			metrics.LabelModel, o.model, metrics.LabelNamespace, "prod", metrics.LabelPod, "p", metrics.LabelServer, "p:8000",
			metrics.LabelThreshold, "0.5",
		}
		series(metrics.SLOObjective, objectives[i].target)
		series(metrics.SLOPeriod, slo.DefaultPeriod.Std().Seconds())
		series(metrics.SLOInfo, 1, metrics.LabelSignal, string(objectives[i].Signal), metrics.LabelPeriod, slo.DefaultPeriod.String())
		series(metrics.SLOEvents, c.events, of...)
		series(metrics.SLOBadEvents, c.bad, of...)
	}
}

// TestOneOutageOnePage checks that an outage is one page and at most two updates until it ends, with any number of
// requests and any start between two scrapes. The page ends in half an hour, unless fewer than twenty requests were bad.
func TestOneOutageOnePage(t *testing.T) {
	t.Parallel()
	for lasts, shares := range map[time.Duration][]float64{2 * time.Hour: {1, 0.5, 0.2}, 6 * time.Hour: {0.02}} {
		t.Run(lasts.String(), func(t *testing.T) {
			t.Parallel()
			playOutages(t, lasts, shares)
		})
	}
}

// playOutages plays outages of equal length side by side, each at a model of its own.
func playOutages(t *testing.T, lasts time.Duration, shares []float64) {
	phases := 1
	if *all {
		phases = 10
	}
	const history, after = 2 * time.Hour, time.Hour
	var outages []*outage
	for _, rate := range []float64{1. / 60, 1, 50} {
		for _, share := range shares {
			for phase := range phases {
				outages = append(outages, &outage{
					rate: rate, share: share, begins: history + time.Duration(phase)*6*time.Second, lasts: lasts,
					model: fmt.Sprintf("%.3g requests/s, %g bad, %d", rate, share, phase), random: rand.New(rand.NewPCG(uint64(len(outages)), 9)),
					counters: make([]counter, len(objectives)),
				})
			}
		}
	}
	var groups []rules.Group
	for _, g := range play.Rules() {
		if strings.HasPrefix(g.Name, "llm-slo-") {
			for i, a := range g.Alerts {
				b := *a
				b.Diagnosed, b.Split = false, nil // texts need queries
				g.Alerts[i] = &b
			}
			groups = append(groups, g)
		}
	}
	file, err := rules.Encode(rules.NewFile(groups, rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := rulesim.New(file)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	am, err := play.NewAlertmanager(rules.Alerts(play.Rules()), rules.Style{})
	if err != nil {
		t.Fatal(err)
	}
	end := history + lasts + after
	firing := map[time.Duration][]rulesim.Alert{}
	sim.OnAlert = func(at time.Time, a rulesim.Alert) {
		firing[at.Sub(rulesim.Epoch)] = append(firing[at.Sub(rulesim.Epoch)], a)
	}
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(end), time.Minute, func(now time.Time, emit rulesim.Emit) {
		for _, o := range outages {
			at := now.Sub(rulesim.Epoch)
			o.between(at-time.Minute, at)
			o.emit(emit)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for at := history - time.Hour; at < end; at += time.Minute {
		if err := am.Receive(rulesim.Epoch.Add(at), firing[at]); err != nil {
			t.Fatal(err)
		}
	}
	if err := am.Run(rulesim.Epoch.Add(end)); err != nil {
		t.Fatal(err)
	}
	sent := am.Take()
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "outage\tpages\tupdates\tfirst after\tends after it")
	for _, o := range outages {
		pages, updates := 0, 0
		var first, last time.Duration
		for _, n := range sent {
			if n.Receiver != "llm-critical" || !slices.Contains(strings.Split(n.Group, "\xff"), o.model) {
				continue
			}
			switch since := n.At.Sub(rulesim.Epoch) - o.begins; {
			case n.Resolved:
				last = since - o.lasts
			case since >= o.lasts:
			case n.Update:
				updates++
			default:
				pages++
				first = cmp.Or(first, since)
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", o.model, pages, updates, first, last)
		many := o.rate*o.share*o.lasts.Seconds() > 50 // otherwise chance decides whether it pages
		switch {
		case pages > 1 || updates > 2 || pages == 0 && many:
			t.Errorf("%s: %d pages and %d updates until it ends", o.model, pages, updates)
		case many && (last <= 0 || last > 35*time.Minute):
			t.Errorf("%s: the page ends %s after it", o.model, last)
		}
	}
	_ = w.Flush()
	t.Log("\n" + table.String())
}
