package gpu

import (
	"testing"
	"time"
)

// Readings that take more of the driver's time than half of the budget are made less often, up to a limit, and as often as before
// once they take less.
func TestPace(t *testing.T) {
	for _, c := range []struct{ cost, want time.Duration }{
		{200 * time.Microsecond, time.Second}, {500 * time.Microsecond, time.Second}, {5 * time.Millisecond, 10 * time.Second}, {5 * time.Second, 30 * time.Second},
	} {
		p := Options{Budget: 0.001}.newPace(time.Second, rarestFast)
		for range 3 {
			p.took(c.cost)
		}
		if got := p.every(); got != c.want {
			t.Errorf("cycles of %s: every %s, want %s", c.cost, got, c.want)
		}
		for range 60 {
			p.took(100 * time.Microsecond)
		}
		if got := p.every(); got != time.Second {
			t.Errorf("after cycles of %s: every %s", c.cost, got)
		}
	}
	p := Options{Budget: 0.001}.newPace(time.Second, rarestFast)
	for _, cost := range []time.Duration{100 * time.Microsecond, 10 * time.Second, 100 * time.Microsecond} {
		p.took(cost)
	}
	if got := p.every(); got > 10*time.Second {
		t.Errorf("one call that hung: every %s", got)
	}
}
