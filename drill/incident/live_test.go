package incident

import (
	"strings"
	"testing"
	"time"
)

// TestLiveScalesFromZero: what an incident does before its onset is part of the history, and the exporter's
// configuration follows pods that come and go.
func TestLiveScalesFromZero(t *testing.T) {
	t.Parallel()
	in, err := Find(Incidents(), "scale-from-zero")
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLive(in, Options{Seed: 1, Engines: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	targets := func() int {
		config, err := l.Config()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(config), "url:")
	}
	if targets() != 1 {
		t.Fatalf("%d targets at first", targets())
	}
	if err := l.History(t.Context(), func(float64) {}); err != nil {
		t.Fatal(err)
	}
	if targets() != 0 || l.Engine(0) != nil {
		t.Errorf("%d targets after the model has scaled to zero", targets())
	}
	onset := time.Now()
	l.Begin(onset)
	for _, at := range []struct {
		after time.Duration
		up    bool
	}{{time.Second, false}, {2 * time.Minute, true}} {
		if err := l.Advance(onset.Add(at.after)); err != nil {
			t.Fatal(err)
		}
		if targets() != 1 || l.Engine(0) != nil != at.up {
			t.Errorf("%s after the onset: %d targets, up %v", at.after, targets(), l.Engine(0) != nil)
		}
	}
}
