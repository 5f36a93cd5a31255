package play

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

var all = flag.Bool("all", false, "play every incident that pages for a burn")

// spends lists the incidents that every run plays: requests that fail at once, and first
// tokens that wait longer and longer.
var spends = []string{"traffic-burst", "failing-gateway"}

// TestBudgetGoneIn compares the first page with the truth. The page's share of bad events must match the users' share
// in the minute before, and its time until the budget is spent must match the users' remaining budget at the burn
// around the page.
func TestBudgetGoneIn(t *testing.T) {
	for _, in := range incident.All() {
		if in.Page != rules.FastBurn || !*all && !slices.Contains(spends, in.Name) {
			continue
		}
		t.Run(in.Name, func(t *testing.T) {
			t.Parallel()
			in.History = cmp.Or(in.History, 65*time.Minute) // longer than the longest window of a fast pair
			p, err := New(in, Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if err := p.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(p.Sent, func(n Notification) bool { return slices.Contains(n.Alerts, rules.FastBurn.Name) })
			if i < 0 {
				t.Fatal("no page of a burn")
			}
			page := p.Sent[i]
			objective, evaluated := string(page.Labels[model.LabelName(metrics.LabelSLO)]), page.At.Truncate(rules.Interval)
			said, err := p.Prometheus.Query(fmt.Sprintf("max(%s{slo=%q,role=%q})", metrics.RecordedExhaustion.Name, objective,
				page.Labels[model.LabelName(metrics.LabelRole)]), evaluated)
			if err != nil || len(said) != 1 {
				t.Fatalf("%v: %v", said, err)
			}
			left, around := trueTimeLeft(p, objective, evaluated.Sub(p.World.At(0)))
			t.Logf("%s, %s after the onset: says %s, is %s (within %s of it): %.2f", objective, evaluated.Sub(p.World.At(p.Onset)),
				time.Duration(said[0].F*1e9).Round(time.Minute), left.Round(time.Minute), around, said[0].F/left.Seconds())
			if events, bad := p.World.Suffered(objective, evaluated.Sub(p.World.At(0))-time.Minute, evaluated.Sub(p.World.At(0))); bad >= 20 {
				shown, err := strconv.ParseFloat(strings.Join(feltBy.FindStringSubmatch(page.Message())[1:], ""), 64)
				t.Logf("says that %g%% are bad, %.0f of %.0f are", shown, bad, events)
				if off := shown / 100 / (bad / events); err != nil || off > 1.4 || off < 1/1.4 {
					t.Errorf("says that %g%% are bad, %.0f of %.0f are: %v\n%s", shown, bad, events, err, page.Message())
				}
			}
			if printed := goneIn.FindString(page.Message()); printed == "" || math.Abs(seconds(t, printed)/said[0].F-1) > 0.1 {
				t.Errorf("the page says %q, the board %.0f s:\n%s", printed, said[0].F, page.Message())
			}
			if off := said[0].F / left.Seconds(); off > 1.5 || off < 1/1.5 {
				t.Errorf("says %.2f times the truth:\n%s", off, page.Message())
			}
		})
	}
}

// feltBy finds the share of bad events in a page's title.
var feltBy = regexp.MustCompile(`: ([0-9.]+)% of`)

// goneIn finds, in a page, the time until the budget is spent.
var goneIn = regexp.MustCompile(`gone in [0-9dhms ]+`)

// seconds reads a time such as "gone in 1d 2h".
func seconds(t *testing.T, printed string) (sum float64) {
	t.Helper()
	for part := range strings.FieldsSeq(strings.TrimPrefix(printed, "gone in ")) {
		d, err := model.ParseDuration(part)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(d).Seconds()
	}
	return sum
}

// trueTimeLeft returns how long the users' budget lasts at the burn of a moment. The burn comes from the bad events of
// the minute before and the minute after it. If these are fewer than ten, it comes from as many minutes before and
// after as contain ten. A few events may be chance, and a growing burn differs from the burn of the minute before and
// of the minute after.
func trueTimeLeft(p *Play, objective string, at time.Duration) (left, around time.Duration) {
	for _, o := range p.Incident.Fleet.Configured() {
		if o.Name == objective {
			events, bad := p.World.Suffered(objective, 0, at)
			budget := (1 - o.Target.Float()) * events / at.Seconds() * o.Period.Std().Seconds()
			for around = time.Minute; around < 15*time.Minute; around += time.Minute {
				p.World.Advance(at + around)
				if _, now := p.World.Suffered(objective, at-around, at+around); now >= 10 {
					return time.Duration((budget - bad) / now * float64(2*around)), around
				}
			}
		}
	}
	return 0, around
}
