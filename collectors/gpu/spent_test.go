package gpu

import (
	"testing"
	"time"
)

var paced = Options{Budget: 0.001, Interval: time.Second, SlowInterval: 10 * time.Second}

// Readings that take more of the driver's time than their part of the budget are made less often, up to a limit, and as often as
// before once they take less.
func TestPace(t *testing.T) {
	for _, c := range []struct{ cost, want time.Duration }{
		{200 * time.Microsecond, time.Second},
		{500 * time.Microsecond, time.Second},
		{5 * time.Millisecond, 10 * time.Second},
		{5 * time.Second, 30 * time.Second},
	} {
		p := paced.newPace()
		for range 3 {
			p.took(fast, c.cost)
		}
		if got := p.every(fast); got != c.want {
			t.Errorf("cycles of %s: every %s, want %s", c.cost, got, c.want)
		}
		for range 60 {
			p.took(fast, 100*time.Microsecond)
		}
		if got := p.every(fast); got != time.Second {
			t.Errorf("after cycles of %s: every %s", c.cost, got)
		}
	}
	p := paced.newPace()
	for _, cost := range []time.Duration{100 * time.Microsecond, 10 * time.Second, 100 * time.Microsecond} {
		p.took(fast, cost)
	}
	if got := p.every(fast); got > 10*time.Second {
		t.Errorf("one call that hung: every %s", got)
	}
}

// All tiers together keep the budget, and slow tiers get the rest of it.
func TestBudgetIsShared(t *testing.T) {
	p := paced.newPace()
	took := func(t tier, d time.Duration) { // the first answer takes long
		for _, d := range []time.Duration{time.Minute, d, d} {
			p.took(t, d)
		}
	}
	took(slow, 7*time.Millisecond)
	if got := p.every(slow); got != 10*time.Second {
		t.Errorf("slow readings alone: every %s", got)
	}
	took(fast, 600*time.Microsecond)
	took(rare, 20*time.Millisecond)
	spent := 0.0
	for tier := range tiers {
		spent += p.cost[tier].Seconds() / p.every(tier).Seconds()
	}
	if spent > 0.001001 || p.every(fast) != 1200*time.Millisecond || p.every(rare) != 2*time.Minute || p.every(slow) < 20*time.Second {
		t.Errorf("fast every %s, slow every %s, rare every %s: %.6f of the time", p.every(fast), p.every(slow), p.every(rare), spent)
	}
}

// A fast reading becomes slow if it takes long each time, not because of its first answer.
func TestDearReadings(t *testing.T) {
	unlimited := paced
	unlimited.Budget = 1
	for _, c := range []struct {
		what    string
		row     row
		options *Options
		took    []time.Duration
		want    tier
	}{
		{"always dear", mayBeSlow, &paced, []time.Duration{300, 300}, slow},
		{"dear at first", mayBeSlow, &paced, []time.Duration{3000, 20, 20}, fast},
		{"dear for a while", mayBeSlow, &paced, []time.Duration{300, 300, 300, 40, 40}, fast},
		{"needed in each cycle", at(fast), &paced, []time.Duration{300, 300}, fast},
		{"without a budget", mayBeSlow, &unlimited, []time.Duration{300, 300}, fast},
		{"rare anyhow", at(rare), &paced, []time.Duration{3, 3}, rare},
	} {
		for _, d := range c.took {
			c.row.took(d * time.Microsecond)
			c.row.settle(c.options)
		}
		if c.row.tier != c.want {
			t.Errorf("%s: read as %s, want %s", c.what, tierNames[c.row.tier], tierNames[c.want])
		}
	}
}
