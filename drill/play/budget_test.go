package play

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

var all = flag.Bool("all", false, "play every incident that pages for a burn")

// spends lists the incidents that every run plays: requests that fail at once and gradually, tokens that stay late, first
// tokens that wait longer and longer, and more traffic than usual.
var spends = []string{"traffic-burst", "thermal-throttle", "power-brake", "failing-gateway", "black-hole"}

// TestBudgetGoneIn compares the time until the budget is spent, as in the first page, with the truth: the rest of the
// users' budget at the burn in the minute of the page.
func TestBudgetGoneIn(t *testing.T) {
	for _, in := range incident.All() {
		if in.Page != rules.FastBurn || !*all && !slices.Contains(spends, in.Name) {
			continue
		}
		t.Run(in.Name, func(t *testing.T) {
			t.Parallel()
			play := brief
			if *all {
				play = func(in incident.Incident) (*Play, error) {
					in.History = cmp.Or(in.History, 65*time.Minute)
					return Run(in, Options{Seed: 1})
				}
			}
			p, err := play(in)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			i := slices.IndexFunc(p.Sent, func(n Notification) bool { return slices.Contains(n.Alerts, rules.FastBurn.Name) })
			if i < 0 {
				t.Skip("no page of a burn")
			}
			page := p.Sent[i]
			objective, evaluated := string(page.Labels[model.LabelName(metrics.LabelSLO)]), page.At.Truncate(rules.Interval)
			said, err := p.Prometheus.Query(fmt.Sprintf("max(%s{slo=%q,role=%q})", metrics.RecordedExhaustion.Name, objective, page.Labels[model.LabelName(metrics.LabelRole)]), evaluated)
			if err != nil || len(said) != 1 {
				t.Fatalf("%v: %v", said, err)
			}
			left := trueTimeLeft(p, objective, evaluated.Sub(p.World.At(0)))
			t.Logf("%s, %s after the onset: says %s, is %s: %.2f", objective, evaluated.Sub(p.World.At(p.Onset)),
				time.Duration(said[0].F*1e9).Round(time.Minute), left.Round(time.Minute), said[0].F/left.Seconds())
			if off := said[0].F / left.Seconds(); off > 1.5 || off < 1/1.5 {
				t.Errorf("says %.2f times the truth:\n%s", off, page.Message())
			}
		})
	}
}

// brief plays an incident until a page is due, after a history as long as the longest window of a fast pair.
func brief(in incident.Incident) (*Play, error) {
	in.History, in.Lasts = 65*time.Minute, 5*time.Minute
	return Run(in, Options{Seed: 1})
}

// trueTimeLeft returns how long the users' budget lasts at the burn of the minute before.
func trueTimeLeft(p *Play, objective string, at time.Duration) time.Duration {
	for _, o := range p.Incident.Fleet.Configured() {
		if o.Name == objective {
			events, bad := p.World.Suffered(objective, 0, at)
			_, now := p.World.Suffered(objective, at-time.Minute, at)
			budget := (1 - o.Target.Float()) * events / at.Seconds() * o.Period.Std().Seconds()
			return time.Duration((budget - bad) / now * float64(time.Minute))
		}
	}
	return 0
}
