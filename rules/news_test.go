package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// TestSecondFaultNamesWhatIsNew pages for a burst. When the prefix cache misses forty minutes later, LLMSecondFault
// names the cache and not the burst, and the first page then also names the cache.
func TestSecondFaultNamesWhatIsNew(t *testing.T) {
	t.Parallel()
	if said := secondFault(t, 0.03, 0.9); !strings.Contains(said, "prefill. The prefix cache hit ratio") {
		t.Errorf("the second fault is %q", said)
	}
}

// TestSecondFaultIsNoGrowth pages when half of the requests are late. It is no news if nearly all requests are late
// afterwards.
func TestSecondFaultIsNoGrowth(t *testing.T) {
	t.Parallel()
	if said := secondFault(t, 0.5, 0.99); said != "" {
		t.Errorf("the second fault is %q", said)
	}
}

// secondFault returns the text of LLMSecondFault when the share of late requests, and the prefix cache, change within a
// burst.
func secondFault(t *testing.T, before, after float64) (said string) {
	t.Helper()
	sim := loaded(t, rules.Groups(rules.Options{}))
	defer sim.Close()
	const later = onset + 40*time.Minute
	o := objective(t, "99.9%", slo.DefaultPeriod)
	o.Signal = slo.TTFT
	w := &world{objectives: []slo.Objective{o}, services: []*service{{
		model: "m", pod: "p1", slo: o.Name, threshold: "0.5", perSecond: constant(10),
		badShare: func(at time.Duration) float64 {
			if at >= later {
				return after
			}
			return during(onset, later, before, 0)(at)
		},
	}}}
	r := well()
	w.extra = func(at time.Duration, emit rulesim.Emit) {
		switch at {
		case onset:
			r.requests, r.itl, r.running, r.waiting, r.queue = 1800, 0.05, 18, 40, 0.24
		case later:
			r.hits = 0.06
		}
		r.emit("p1", emit)
	}
	sim.OnAlert = func(_ time.Time, a rulesim.Alert) {
		if a.Name == rules.SecondFault.Name && said == "" {
			said = a.Annotations.Get("split")
		}
	}
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(later+5*time.Minute), scrapeEvery, w.scrape); err != nil {
		t.Fatal(err)
	}
	return said
}
