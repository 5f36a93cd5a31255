package rules_test

import (
	"math"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestTheDayBeforeOfAYoungModel checks that two hours of records count as two hours, not as a day that is otherwise
// empty.
func TestTheDayBeforeOfAYoungModel(t *testing.T) {
	sim := newSim(t, rules.Groups(rules.Options{})...)
	r := well()
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(2*time.Hour), time.Minute,
		func(_ time.Time, emit rulesim.Emit) { r.emit("p1", emit) }); err != nil {
		t.Fatal(err)
	}
	at := rulesim.Epoch.Add(2 * time.Hour)
	for _, fact := range []string{"arrivals", "computed"} {
		now, before := one(t, sim, metrics.RecordedEvidence.Name+`{fact="`+fact+`"}`, at),
			one(t, sim, metrics.RecordedEvidence.Name+`{fact="`+fact+rules.OfBefore+`"}`, at)
		if math.Abs(before/now-1) > 0.1 {
			t.Errorf("%s: %g a second now, and %g before", fact, now, before)
		}
	}
}

// TestProbesDoNotTurnAShareNegative checks the share of requests that ran into the output limit for a young model with
// probes, which request a few tokens. No user's request reached the limit.
func TestProbesDoNotTurnAShareNegative(t *testing.T) {
	sim := newSim(t, rules.Groups(rules.Options{})...)
	r := well()
	r.cut = 0
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(2*time.Hour), time.Minute, func(now time.Time, emit rulesim.Emit) {
		r.emitAs("m", "p1", emit)
		probe := []string{metrics.LabelNamespace, "prod", metrics.LabelModel, "m", metrics.LabelServer, "p1:8000"}
		emit(series(metrics.ProbeFailures.Name, probe...), 0)
		probe = append(probe, metrics.LabelOutcome, string(metrics.ProbeOK))
		emit(series(metrics.ProbeRequests.Name, probe...), now.Sub(rulesim.Epoch).Minutes())
	}); err != nil {
		t.Fatal(err)
	}
	for _, fact := range []string{"limited", "limited" + rules.OfBefore} {
		if share := one(t, sim, metrics.RecordedEvidence.Name+`{fact="`+fact+`"}`, rulesim.Epoch.Add(2*time.Hour)); share != 0 {
			t.Errorf("%s is %g, want 0", fact, share)
		}
	}
}

// TestUsual checks a model twenty minutes after its engine started: the model is compared with its values at that time,
// not with its first minutes, in which requests only begin to arrive. Half an hour later the model is compared with the
// three hours before.
func TestUsual(t *testing.T) {
	sim := newSim(t, group(t, rules.Options{}, "llm-usual"))
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(2*time.Hour), scrapeEvery, func(now time.Time, emit rulesim.Emit) {
		arrive, at := 1., now.Sub(rulesim.Epoch)
		switch {
		case at < 5*time.Minute:
			arrive = 0.1
		case at >= 21*time.Minute:
			arrive = 5
		}
		emit(series(metrics.RecordedEvidence.Name, metrics.LabelModel, "m", metrics.LabelFact, "arrivals"), arrive)
	}); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Duration]float64{22 * time.Minute: 1, 24 * time.Minute: 1, 40 * time.Minute: 1, 2 * time.Hour: 5} {
		if got := one(t, sim, metrics.RecordedUsual.Name+`{fact="arrivals"}`, rulesim.Epoch.Add(at)); math.Abs(got-want) > 0.01 {
			t.Errorf("after %s %g arrive usually, want %g", at, got, want)
		}
	}
}

// TestFewRequestsHaveNoMean checks that a handful of requests has no mean length: two long prompts in five minutes are not
// longer prompts. Engines that do not count first tokens keep their means, because nothing shows how few there are.
func TestFewRequestsHaveNoMean(t *testing.T) {
	for name, c := range map[string]struct {
		requests float64 // in five minutes
		first    bool    // first tokens are counted
		want     int
	}{"handful": {2, true, 0}, "many": {10, true, 1}, "uncounted": {2, false, 1}} {
		sim := newSim(t, rules.Groups(rules.Options{})...)
		if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(20*time.Minute), 30*time.Second, func(now time.Time, emit rulesim.Emit) {
			n := math.Floor(c.requests * now.Sub(rulesim.Epoch).Minutes() / 5)
			who := []string{metrics.LabelModel, "m", metrics.LabelNamespace, "prod", metrics.LabelServer, "p1:8000", metrics.LabelRole, ""}
			emit(series(metrics.Stages.Name, append(who, metrics.LabelStage, "prompt")...), n)
			if c.first {
				emit(series(metrics.Stages.Name, append(who, metrics.LabelStage, metrics.StageFirstToken)...), n)
			}
			emit(series(metrics.PromptTokens.Name, who...), 9000*n)
		}); err != nil {
			t.Fatal(err)
		}
		v, err := sim.Query(metrics.RecordedEvidence.Name+`{fact="prompt_tokens"}`, rulesim.Epoch.Add(20*time.Minute))
		if err != nil || len(v) != c.want {
			t.Errorf("%s: %d means, want %d: %v", name, len(v), c.want, err)
		}
	}
}
