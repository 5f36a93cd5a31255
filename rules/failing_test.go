package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestFewRequestsFail checks that a replica with a request every minute or two, all of which fail, is named after five
// failures within ten minutes, and not after three. A gateway that fails a request every four minutes is named after five
// failures, until five minutes after the last.
func TestFewRequestsFail(t *testing.T) {
	sim := newSim(t, suspects()...)
	const onset = 20 * time.Minute
	counts := map[string]float64{}
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(time.Hour), scrapeEvery, func(now time.Time, emit rulesim.Emit) {
		for _, pod := range []string{"p0", "p1"} {
			outcome := metrics.OutcomeStop
			if pod == "p1" && now.Sub(rulesim.Epoch) >= onset {
				outcome = metrics.OutcomeError
			}
			if now.Minute()%3 != 0 { // two of three minutes
				counts[pod+string(outcome)]++
			}
			for _, o := range []metrics.Outcome{metrics.OutcomeStop, metrics.OutcomeError} {
				emit(series(metrics.Requests.Name, metrics.LabelModel, "m", metrics.LabelPod, pod, metrics.LabelServer, pod, metrics.LabelOutcome,
					string(o)), counts[pod+string(o)])
			}
		}
		if since := now.Sub(rulesim.Epoch) - onset; since > 0 && since < 25*time.Minute && since%(4*time.Minute) == 0 {
			counts["gateway"]++
		}
		emit(series(metrics.Requests.Name, metrics.LabelModel, "m", metrics.LabelServer, "g", metrics.LabelRole, metrics.GatewayRole,
			metrics.LabelOutcome, string(metrics.OutcomeError)), counts["gateway"])
	}); err != nil {
		t.Fatal(err)
	}
	for role, found := range map[string]map[time.Duration]int{
		"":                  {onset - time.Minute: 0, onset + 4*time.Minute: 0, onset + 10*time.Minute: 1},
		metrics.GatewayRole: {onset + 18*time.Minute: 0, onset + 21*time.Minute: 1, onset + 27*time.Minute: 1, onset + 31*time.Minute: 0},
	} {
		for at, want := range found {
			found, err := sim.Query(fmt.Sprintf("%s{role=%q} > 0.5", metrics.RecordedFailing.Name, role), rulesim.Epoch.Add(at))
			if err != nil || len(found) != want || want > 0 && role == "" && found[0].Metric.Get(metrics.LabelPod) != "p1" {
				t.Errorf("role %q, after %s: %v (%v), want %d", role, at, found, err, want)
			}
		}
	}
}

// suspects returns the groups that record the clues.
func suspects() []rules.Group {
	return slices.DeleteFunc(rules.Groups(rules.Options{}), func(g rules.Group) bool { return !strings.HasPrefix(g.Name, "llm-suspects") })
}

// TestCluesReadFreshRecords checks that each record that a clue needs is evaluated before the clue, in the same group. A page
// about a real gateway named no cause, because the gateway's share of failures was one evaluation old.
func TestCluesReadFreshRecords(t *testing.T) {
	needs := map[string][]rules.Record{}
	for _, c := range rules.Clues() {
		needs[c.Name] = c.Needs
	}
	checked := 0
	for _, g := range suspects() {
		var before []string
		for _, r := range g.Records {
			for _, need := range needs[r.Labels[metrics.LabelClue]] {
				if checked++; !slices.Contains(before, need.Name.Name) {
					t.Errorf("%s: %s is not evaluated before %s", g.Name, need.Name.Name, r.Labels[metrics.LabelClue])
				}
			}
			before = append(before, r.Name.Name)
		}
	}
	if checked < 9 || len(needs["gateway_fails"]) == 0 {
		t.Errorf("only %d records were checked", checked)
	}
}

// TestAReplicaThatFailsAlone checks that a replica is named for a share of failures that its peers do not have, whatever the share,
// unless it is too small to explain an incident.
func TestAReplicaThatFailsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		own, peers float64 // share of failures
		named      int
	}{
		"a quarter":             {0.25, 0, 1},
		"all, peers a few":      {1, 0.02, 1},
		"a quarter, peers less": {0.25, 0.1, 0},
		"three in a thousand":   {0.003, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			sim, ended := newSim(t, suspects()...), map[string]float64{}
			if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(20*time.Minute), scrapeEvery, func(_ time.Time, emit rulesim.Emit) {
				for _, pod := range []string{"p0", "p1", "p2", "p3"} {
					failing := c.peers
					if pod == "p1" {
						failing = c.own
					}
					for outcome, share := range map[metrics.Outcome]float64{metrics.OutcomeStop: 1 - failing, metrics.OutcomeError: failing} {
						ended[pod+string(outcome)] += 1200 * share
						emit(series(metrics.Requests.Name, metrics.LabelModel, "m", metrics.LabelPod, pod, metrics.LabelServer, pod, metrics.LabelOutcome,
							string(outcome)), ended[pod+string(outcome)])
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			found, err := sim.Query(metrics.RecordedSuspect.Name+`{clue="failing_replica",pod="p1"}`, rulesim.Epoch.Add(20*time.Minute))
			if err != nil || len(found) != c.named {
				t.Errorf("%v (%v), want %d", found, err, c.named)
			}
		})
	}
}
