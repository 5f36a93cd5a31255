package backtest_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/backtest"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestRoom checks when a model runs out of capacity and how many of its replicas are idle, over a day and a half. The
// model has four replicas, and needs one until 05:00 and five from 12:00 to 12:30. For the last twelve hours no
// capacity is known.
func TestRoom(t *testing.T) {
	store, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	const lasts = 36 * time.Hour
	for at := time.Duration(0); at <= lasts; at += time.Minute {
		if err := store.Append(rulesim.Epoch.Add(at), func(emit rulesim.Emit) {
			say := func(f *metrics.Family, v float64, more ...string) {
				emit(labels.FromStrings(append(more, "__name__", f.Name, metrics.LabelModel, "m", metrics.LabelNamespace, "prod")...), v)
			}
			say(metrics.SLOEvents, 60*at.Minutes(), metrics.LabelSLO, "ttft", metrics.LabelThreshold, "0.5", "instance", "i")
			say(metrics.RecordedReplicas, 4)
			needed := 4.
			switch {
			case at > 24*time.Hour:
				return
			case at <= 5*time.Hour:
				needed = 1
			case at >= 12*time.Hour && at < 12*time.Hour+30*time.Minute:
				needed = 5
			}
			for objective, part := range map[string]float64{"ttft": 1, "itl": 0.5} {
				say(metrics.RecordedUtilisation, part*needed/4, metrics.LabelSLO, objective, metrics.LabelKind, "expected")
				say(metrics.RecordedUtilisation, 2*part*needed/4, metrics.LabelSLO, objective, metrics.LabelKind, "low")
			}
			say(metrics.RecordedDesired, needed, metrics.LabelSLO, "ttft")
		}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := ask(t, store, func(b *backtest.Backtest) { b.From, b.To = rulesim.Epoch, rulesim.Epoch.Add(lasts) })
	if err != nil {
		t.Fatal(err)
	}
	const want = "prod/m: the load exceeded the capacity for 30m, first at 2026-01-05 12:00 UTC; 15.0 of 96.0 replica-hours were idle, " +
		"15.0 of them from 22:00 to 06:00 UTC"
	if !slices.Contains(r.Notes, want) {
		t.Errorf("it says %s, want %s", strings.Join(r.Notes, "; "), want)
	}
}
