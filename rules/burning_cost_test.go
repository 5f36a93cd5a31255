package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// burningFleet runs a fleet for 90 minutes. In the last twenty minutes, all objectives on all models burn, or none.
// It returns the cost of one evaluation of all rules, texts included, and how many pages it wrote.
func burningFleet(t testing.TB, models, objectives int, burns bool) (cost, int) {
	const lasts, onset = 90 * time.Minute, 70 * time.Minute
	content, err := rules.Encode(rules.NewFile(rules.Groups(rules.Options{}), rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := rulesim.New(content)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	bad := 0.001
	if burns {
		bad = 1
	}
	w := &world{}
	replicas := map[string]*replica{}
	for m := range models {
		for r := range benchReplicas {
			replicas[fmt.Sprintf("m%d/p%d-%d", m, m, r)] = well()
		}
	}
	for n := range objectives {
		o := objective(t, "99%", slo.DefaultPeriod)
		o.Name = fmt.Sprintf("slo-%d", n)
		w.objectives = append(w.objectives, o)
		for m := range models {
			w.services = append(w.services, &service{
				model: fmt.Sprintf("m%d", m), pod: fmt.Sprintf("p%d-0", m), slo: o.Name, threshold: "0.5",
				perSecond: constant(10), badShare: during(onset, 9*hour, bad, 0.001),
			})
		}
	}
	w.extra = func(at time.Duration, emit rulesim.Emit) {
		for name, r := range replicas {
			if burns && at == onset {
				r.waiting, r.kv, r.preempts, r.queue, r.ttft, r.throttled = 30, 0.97, 0.5, 2, 3, 0.5
			}
			model, pod, _ := strings.Cut(name, "/")
			r.emitAs(model, pod, emit)
		}
	}
	var last cost
	for at := time.Duration(0); at < lasts; at += time.Minute {
		now := rulesim.Epoch.Add(at)
		if err := sim.Scrape(now, w.scrape); err != nil {
			t.Fatal(err)
		}
		if at >= onset-5*time.Minute { // earlier evaluations belong to the history
			last = measure(t, sim, now)
		}
	}
	pages := 0
	for _, a := range sim.Firing() {
		if a.Name == fastBurn {
			pages++
		}
	}
	return last, pages
}

// Alerting must be on time even in the hour in which everything burns.
func BenchmarkFleetBurns(b *testing.B) {
	for _, burns := range []bool{false, true} {
		b.Run(fmt.Sprintf("burns=%t", burns), func(b *testing.B) {
			c, pages := burningFleet(b, 40, 3, burns)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(c.samples, "samples/eval")
			b.ReportMetric(float64(c.elapsed.Milliseconds()), "ms/eval")
			b.ReportMetric(float64(pages), "pages")
		})
	}
}

// Pages read recorded series. So an evaluation reads little more when everything burns than when nothing does.
func TestBurningCostsLittleMore(t *testing.T) {
	t.Parallel()
	quiet, none := burningFleet(t, 4, 2, false)
	burning, pages := burningFleet(t, 4, 2, true)
	t.Logf("samples: quiet %.0f, burning %.0f with %d pages", quiet.samples, burning.samples, pages)
	if none != 0 || pages != 4 {
		t.Fatalf("%d pages without fire, %d with, want 0 and one for each model", none, pages)
	}
	if burning.samples > 2*quiet.samples {
		t.Error("more than twice")
	}
}
