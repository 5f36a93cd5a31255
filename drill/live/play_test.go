package live

import (
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
)

// TestScaleFromZero checks that events before the onset are part of the history, and that the exporter's configuration
// follows pods that come and go.
func TestScaleFromZero(t *testing.T) {
	t.Parallel()
	in, err := incident.Find(incident.Incidents(), "scale-from-zero")
	if err != nil {
		t.Fatal(err)
	}
	in.History = 95 * time.Minute // the first fault comes 90 minutes before the onset
	p, err := newPlay(in, 1, surroundings{engines: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	targets := func() int {
		config, err := p.Config()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(config), "url:")
	}
	if targets() != 1 {
		t.Fatalf("%d targets at first", targets())
	}
	if err := p.History(t.Context(), func(float64) {}); err != nil {
		t.Fatal(err)
	}
	if targets() != 0 || p.Engine(0) != nil {
		t.Errorf("%d targets after the model has scaled to zero", targets())
	}
	onset := time.Now()
	p.Begin(onset)
	for _, at := range []struct {
		after time.Duration
		up    bool
	}{{time.Second, false}, {2 * time.Minute, true}} {
		if err := p.Advance(onset.Add(at.after)); err != nil {
			t.Fatal(err)
		}
		if targets() != 1 || p.Engine(0) != nil != at.up {
			t.Errorf("%s after the onset: %d targets, up %v", at.after, targets(), p.Engine(0) != nil)
		}
	}
}
