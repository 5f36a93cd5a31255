package release_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/release"
)

const minute = time.Minute

// replica holds an engine's counts per second, in a span of time.
type replica struct {
	requests, failed, ttft, itl, hits, accepted float64
	version, quantization                       string
}

func well(requests float64) replica {
	return replica{requests: requests, ttft: 0.2, itl: 0.02, hits: 0.5, accepted: 0.7, version: "1", quantization: "none"}
}

func (r replica) with(change func(*replica)) replica {
	change(&r)
	return r
}

func (r replica) to(version string) replica { return r.with(func(r *replica) { r.version = version }) }

// event is a change that the exporter reports from a time on.
type event struct {
	at                time.Duration
	setting, old, new string
}

// recorded plays four replicas for three hours, each with its own behaviour at each time, and returns a function
// that answers queries about them.
func recorded(t *testing.T, at func(pod int, now time.Duration) (replica, []event)) release.Ask {
	t.Helper()
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Close() })
	totals := map[string]float64{}
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(3*time.Hour), minute, func(now time.Time, emit rulesim.Emit) {
		for pod := range 4 {
			r, events := at(pod, now.Sub(rulesim.Epoch))
			engine := []string{
				metrics.LabelRuntime, "vllm", metrics.LabelNamespace, "prod", metrics.LabelModel, "m", metrics.LabelPod,
				fmt.Sprintf("p-%d", pod),
				metrics.LabelServer, fmt.Sprintf("10.0.0.%d:8000", pod), "instance", "n1", "job", "llm-node-exporter",
			}
			show := func(name string, v float64, more ...string) {
				emit(labels.FromStrings(append(append(more, engine...), "__name__", name)...), v)
			}
			count := func(name string, perSecond float64, more ...string) {
				l := labels.FromStrings(append(append(more, engine...), "__name__", name)...)
				totals[l.String()] += 60 * perSecond
				emit(l, totals[l.String()])
			}
			show(metrics.EngineInfo.Name, 1, metrics.LabelVersion, r.version)
			for _, e := range events {
				show(metrics.EngineConfigChanged.Name, float64(rulesim.Epoch.Add(e.at).Unix()), metrics.LabelSetting, e.setting, metrics.LabelOld,
					e.old, metrics.LabelNew, e.new)
			}
			count(metrics.Requests.Name, r.requests*(1-r.failed), metrics.LabelOutcome, "stop")
			count(metrics.Requests.Name, r.requests*r.failed, metrics.LabelOutcome, "error")
			for of, mean := range map[*metrics.Family]float64{metrics.TimeToFirstToken: r.ttft, metrics.InterTokenLatency: r.itl} {
				stage, sum := of.Stage()
				count(sum.Name, r.requests*mean, metrics.LabelStage, stage)
				count(metrics.Stages.Name, r.requests, metrics.LabelStage, stage)
				count(of.Name+"_bucket", 0.9*r.requests, "le", "0.1")
				count(of.Name+"_bucket", r.requests, "le", "+Inf")
			}
			count(metrics.GenerationTokens.Name, 100*r.requests)
			count(metrics.PrefixCacheQueryTokens.Name, 1000*r.requests)
			count(metrics.PrefixCacheHitTokens.Name, 1000*r.hits*r.requests)
			count(metrics.SpecDecodeDraftTokens.Name, 100*r.requests)
			count(metrics.SpecDecodeAcceptedTokens.Name, 100*r.accepted*r.requests)
			count(metrics.Preemptions.Name, 0)
			show(metrics.RequestsRunning.Name, 2)
			show(metrics.KVCacheUsage.Name, 0.1)
			show(metrics.KVCacheCapacity.Name, 40_000)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return func(_ context.Context, query string, at time.Time) (promql.Vector, error) {
		return sim.Query(query, at)
	}
}

// TestCompare checks the verdict on a change, by the events around it. The change is two hours after the
// beginning, and it is judged an hour later.
func TestCompare(t *testing.T) {
	const change = 2 * time.Hour
	upgraded := []event{{change, "version", "1", "2"}}
	requantized := []event{{change, "version", "1", "2"}, {change, "quantization", "none", "fp8"}, {
		change, "kv_cache_tokens", "40000",
		"80000",
	}}
	all := func(before, after replica, events []event) func(int, time.Duration) (replica, []event) {
		return func(_ int, now time.Duration) (replica, []event) {
			if now < change {
				return before, nil
			}
			return after, events
		}
	}
	for _, c := range []struct {
		name    string
		at      func(pod int, now time.Duration) (replica, []event)
		now     time.Duration // 0: after an hour
		verdict release.Verdict
		says    []string
	}{
		{"the same", all(well(1), well(1).to("2"), upgraded), 0, release.NoWorse, []string{
			"version 1 -> 2, replicas: 4",
			", 4 of 4 replicas", "Compared with before the change", "TTFT, mean 200ms 200ms", "KV cache tokens per running request 2000 2000",
		}},
		{
			"later first tokens", all(well(1), well(1).with(func(r *replica) { r.ttft = 0.3 }), requantized), 0, release.Worse,
			[]string{"version 1 -> 2, replicas: 4 quantization none -> fp8, replicas: 4", "TTFT, mean 200ms -> 300ms"},
		},
		{"a tenth later", all(well(1), well(1).with(func(r *replica) { r.ttft = 0.22 }), upgraded), 0, release.NoWorse, nil},
		{
			"slower tokens", all(well(1), well(1).with(func(r *replica) { r.itl = 0.03 }), upgraded), 0, release.Worse,
			[]string{"Time between tokens, mean 20ms -> 30ms"},
		},
		{
			"failures", all(well(1), well(1).with(func(r *replica) { r.failed = 0.03 }), upgraded), 0, release.Worse,
			[]string{"Requests failed 0% -> 3%"},
		},
		{"a few failures", all(well(1), well(1).with(func(r *replica) { r.failed = 0.005 }), upgraded), 0, release.NoWorse, nil},
		{
			"fewer prefix hits", all(well(1), well(1).with(func(r *replica) { r.hits = 0.2 }), upgraded), 0, release.Worse,
			[]string{"Prefix cache hits 50% -> 20%"},
		},
		{
			"fewer drafts accepted", all(well(1), well(1).with(func(r *replica) { r.accepted = 0.3 }), upgraded), 0, release.Worse,
			[]string{"Draft tokens accepted 70% -> 30%"},
		},
		{
			"later with more load", all(well(1), well(2).with(func(r *replica) { r.ttft = 0.3 }), upgraded), 0, release.Unknown,
			[]string{"the load differs by +100%: 1 requests per second and replica before, 2 after"},
		},
		{"as fast with more load", all(well(1), well(2), upgraded), 0, release.NoWorse, []string{
			"the load differs by +100%",
			"and nothing is worse",
		}},
		{"as fast with less load", all(well(1), well(0.5), upgraded), 0, release.Unknown, []string{"the load differs by -50%"}},
		{
			"later with less load", all(well(1), well(0.5).with(func(r *replica) { r.ttft = 0.3 }), upgraded), 0, release.Worse,
			[]string{"TTFT, mean 200ms -> 300ms", "the load differs by -50%"},
		},
		{"an hour before, the load was the same", func(_ int, now time.Duration) (replica, []event) {
			switch {
			case now < time.Hour:
				return well(2), nil
			case now < change:
				return well(1), nil
			}
			return well(2).with(func(r *replica) { r.ttft = 0.3 }), upgraded
		}, 0, release.Worse, []string{"00:29:00-00:59:00", "TTFT, mean 200ms -> 300ms"}},
		{
			"too early", all(well(1), well(1), upgraded), change + 8*minute, release.Unknown,
			[]string{"only 8m0s have passed since the last replica changed; the comparison waits 5m0s and then needs at least 5m0s"},
		},
		{
			"too few requests", all(well(0.01), well(0.01), upgraded), 0, release.Unknown,
			[]string{"requests from 02:05:00 to 02:35:00; at least 100 are needed"},
		},
		{"a canary beside the others", func(pod int, now time.Duration) (replica, []event) {
			if slow := well(1).with(func(r *replica) { r.ttft = 0.4 }); now >= change && pod == 3 {
				return slow, upgraded
			}
			return well(1), nil
		}, 0, release.Worse, []string{
			"1 of 4 replicas", "Compared with the replicas that did not change, at the same time",
			"TTFT, mean 200ms -> 400ms",
		}},
		{"a rollout of one after the other", func(pod int, now time.Duration) (replica, []event) {
			if own := change + time.Duration(pod)*5*minute; now >= own {
				return well(1), []event{{own, "version", "1", "2"}}
			}
			return well(1), nil
		}, 0, release.NoWorse, []string{"version 1 -> 2, replicas: 4 2026-01-05 02:00:00 to 02:15:00, 4 of 4 replicas", "02:20:00-02:50:00"}},
		{
			"no change", func(int, time.Duration) (replica, []event) { return well(1), nil }, 0, release.Unknown,
			[]string{"no change of a version or a setting within 24h"},
		},
		{
			"it is the model that measures another cache", all(well(1), well(1), []event{{change, "kv_cache_tokens", "40000", "50000"}}), 0,
			release.Unknown,
			[]string{"no change of a version or a setting"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.now == 0 {
				c.now = 3 * time.Hour
			}
			o := release.Options{Now: rulesim.Epoch.Add(c.now), Since: 24 * time.Hour, Window: 30 * minute, Settle: 5 * minute}
			changes, err := release.Compare(context.Background(), recorded(t, c.at), o)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := release.Write(&text, changes, o); err != nil {
				t.Fatal(err)
			}
			if got := release.Status(changes); got != c.verdict {
				t.Errorf("%s, want %s:\n%s", got, c.verdict, &text)
			}
			said := strings.Join(strings.Fields(text.String()), " ")
			for _, want := range c.says {
				if !strings.Contains(said, want) {
					t.Errorf("it lacks %q:\n%s", want, &text)
				}
			}
		})
	}
}

// TestChangesInARow checks two changes of one setting with too little time between them for a comparison.
func TestChangesInARow(t *testing.T) {
	ask := recorded(t, func(_ int, now time.Duration) (replica, []event) {
		switch {
		case now < time.Hour:
			return well(1), nil
		case now < time.Hour+5*minute:
			return well(1), []event{{time.Hour, "version", "1", "2"}}
		}
		return well(1), []event{{time.Hour + 5*minute, "version", "2", "1"}}
	})
	changes, err := release.Compare(context.Background(), ask, release.Options{
		Now:   rulesim.Epoch.Add(3 * time.Hour),
		Since: 24 * time.Hour, Window: 30 * minute, Settle: 5 * minute,
	})
	if err != nil || len(changes) != 2 || changes[0].Verdict != release.Unknown || changes[1].Verdict != release.Unknown ||
		!strings.Contains(changes[0].Why[0], "less than 5m0s passed between this change and the previous one") ||
		!strings.HasPrefix(changes[1].Why[0], "only 5m0s have passed") {
		t.Errorf("%v: %+v", err, changes)
	}
}

// TestRollback checks that a bad release and its rollback are two changes, and that the last change counts.
func TestRollback(t *testing.T) {
	ask := recorded(t, func(_ int, now time.Duration) (replica, []event) {
		switch {
		case now < time.Hour:
			return well(1), nil
		case now < 80*minute: // closer to the rollback than changes of one rollout may be
			return well(1).with(func(r *replica) { r.version, r.itl = "2", 0.1 }), []event{{time.Hour, "version", "1", "2"}}
		}
		return well(1), []event{{80 * minute, "version", "2", "1"}}
	})
	changes, err := release.Compare(context.Background(), ask, release.Options{
		Now:   rulesim.Epoch.Add(3 * time.Hour),
		Since: 24 * time.Hour, Window: 30 * minute, Settle: 5 * minute,
	})
	if err != nil || len(changes) != 2 {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	if back, bad := changes[0], changes[1]; !back.Back || back.Verdict != release.NoWorse || bad.Back || bad.Verdict != release.Worse ||
		release.Status(changes) != release.NoWorse {
		t.Errorf("back %t %s, bad %t %s %q", back.Back, back.Verdict, bad.Back, bad.Verdict, bad.Why)
	}
}
