package world

import (
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// For a constant incident the truth's detection is the arithmetic of package slo.
func TestTruthIsDetection(t *testing.T) {
	objectives := slo.Defaults()[:1]
	for _, share := range []float64{0.1, 0.2, 0.5, 1} {
		tr := newTruth(objectives)
		const perSlice, history = 50, 7 * time.Hour
		for at := time.Duration(0); at < history+5*time.Hour; at += slice {
			tr.now[0].events = perSlice
			if at >= history {
				tr.now[0].bad = perSlice * share
			}
			tr.tick()
		}
		want, _ := slo.Detection(slo.DefaultWindowPairs(), slo.Page, objectives[0], slo.Load{BadShare: share, RequestsPerSecond: perSlice / slice.Seconds()})
		got, name, due := tr.burn(history)
		if !due || name != "ttft" || got < want-slice || got > want+2*slice {
			t.Errorf("%v bad: due %v after %s, slo says %s", share, due, got, want)
		}
	}
	quiet := newTruth(objectives)
	for range 1000 {
		quiet.now[0] = count{events: 50, bad: 0.4}
		quiet.tick()
	}
	if _, _, due := quiet.burn(0); due {
		t.Error("a page is due within the objective")
	}
}
