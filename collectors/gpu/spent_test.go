package gpu

import (
	"testing"
	"time"
)

// TestSlowDriverIsAskedLessOften: a call of milliseconds makes the pause longer, up to the slow interval; usual ones do not.
func TestSlowDriverIsAskedLessOften(t *testing.T) {
	for _, c := range []struct{ slowest, want time.Duration }{
		{200 * time.Microsecond, time.Second}, {4 * time.Millisecond, time.Second}, {6 * time.Millisecond, time.Second},
		{30 * time.Millisecond, 3 * time.Second}, {5 * time.Second, 10 * time.Second},
	} {
		if got := rest(time.Second, c.slowest, 10*time.Second); got != c.want {
			t.Errorf("after a call of %s: %s, want %s", c.slowest, got, c.want)
		}
	}
}
