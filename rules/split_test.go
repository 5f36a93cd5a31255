package rules_test

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// A page shows where the time goes, which other alerts fire, what changed and the state of the GPUs, from queries that
// Prometheus answers when it evaluates the alert. Missing values are left out.
func TestPageCarriesTheSplit(t *testing.T) {
	t.Parallel()
	groups := rules.Groups(rules.Options{})
	sim := loaded(t, groups)
	defer sim.Close()

	const model = "meta-llama/Llama \"3\"" // needs quoting in queries and in addresses
	o := objective(t, "99%", slo.DefaultPeriod)
	w := &world{objectives: []slo.Objective{o}, services: []*service{{
		model: model, pod: "p1", slo: o.Name, threshold: "0.5",
		perSecond: constant(10), badShare: during(hour, 9*hour, 1, 0),
	}}}
	page := []string{metrics.LabelNamespace, "prod", metrics.LabelPod, "p1", metrics.LabelServer, "10.0.0.1:8000"}
	engine := append([]string{metrics.LabelModel, model}, page...)
	gpu := []string{metrics.LabelGPUUUID, "GPU-1", metrics.LabelGPU, "0"}
	w.extra = func(at time.Duration, emit rulesim.Emit) {
		show := func(f *metrics.Family, part string, v float64, pairs ...[]string) {
			var all []string
			for _, p := range pairs {
				all = append(all, p...)
			}
			emit(series(f.Name+part, all...), v)
		}
		n := at.Seconds() * 10
		show(metrics.StageTime, "", n*2, engine, []string{metrics.LabelStage, metrics.StageFirstToken})
		show(metrics.Stages, "", n, engine, []string{metrics.LabelStage, metrics.StageFirstToken})
		show(metrics.TimeToFirstToken, "_bucket", n*0.95, engine, []string{"le", "1"})
		show(metrics.TimeToFirstToken, "_bucket", n, engine, []string{"le", "+Inf"})
		show(metrics.StageTime, "", n*1.6, engine, []string{metrics.LabelStage, "queue"})
		show(metrics.Stages, "", n, engine, []string{metrics.LabelStage, "queue"})
		show(metrics.RequestsWaiting, "", 42, engine)
		show(metrics.RequestsRunning, "", 16, engine)
		show(metrics.KVCacheUsage, "", 0.97, engine)
		version := "0.10"
		if at > 30*time.Minute {
			version = "0.11"
		}
		show(metrics.EngineInfo, "", 1, engine, []string{metrics.LabelVersion, version})
		show(metrics.EngineGPUInfo, "", 1, engine, gpu)
		show(metrics.GPUClockEventSeconds, "", at.Seconds()/4, gpu, []string{metrics.LabelReason, "hw_thermal_slowdown"})
		show(metrics.GPUClockEventSeconds, "", at.Seconds(), gpu, []string{metrics.LabelReason, "sw_power_cap"})
		show(metrics.GPUXIDErrors, "", max(0, float64(int(at.Minutes())-70)), gpu, []string{metrics.LabelXID, "94"})
	}
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(hour+20*time.Minute), scrapeEvery, w.scrape); err != nil {
		t.Fatal(err)
	}
	for _, a := range sim.Firing() {
		if a.Name != fastBurn {
			continue
		}
		split := a.Annotations.Get("split")
		if want := "Look first at: hardware. GPU 0 on node-1 is slowed down 25% of the time (hw_thermal_slowdown).\nDo first, at once: drain " +
			"the replica if others have room.\nChanged in 6h: version another → 0.11.\nBudget of 30d: 97% left, gone in 6h 56m.\n"; split != want {
			t.Errorf("split is not %q:\n%s", want, split)
		}
		if title := a.Annotations.Get("summary"); title != "prod/"+model+": 100% of first tokens take longer than 500ms (mean 2s, promise 1%)" {
			t.Errorf("title %s", title)
		}
		if url := a.Annotations.Get("runbook_url"); !strings.Contains(url,
			"/runbooks/BranchThrottledGPU?model_name=meta-llama%2FLlama+%223%22&namespace=prod&gpu_uuid=GPU-1") {
			t.Errorf("runbook link %s", url)
		}
		began := rulesim.Epoch.Add(31 * time.Minute) // half an hour before the burn, whenever it is opened
		if url, want := a.Annotations.Get("dashboard_url"),
			fmt.Sprintf("https://grafana.example/d/llm-incident?from=%d&var-namespace=prod&var-model_name=meta-llama%%2FLlama+%%223%%22",
				began.UnixMilli()); url != want {
			t.Errorf("dashboard link %s, want %s", url, want)
		}
		return
	}
	t.Error("no page")
}

// TestMeanOfTheShare checks the title of a page about few requests, some of which are late every fourth minute: its
// mean covers the same minutes as its share. If a share of requests takes ten seconds, the mean is at least that share
// of ten seconds.
func TestMeanOfTheShare(t *testing.T) {
	t.Parallel()
	sim := loaded(t, rules.Groups(rules.Options{}))
	defer sim.Close()
	const late, short, each = 10.0, 0.02, 7.5 // seconds, requests per scrape
	bad, total, took := 0.0, 0.0, 0.0
	page := []string{metrics.LabelModel, "m", metrics.LabelNamespace, "prod", metrics.LabelPod, "p1", metrics.LabelServer, "10.0.0.1:8000"}
	first := append([]string{metrics.LabelStage, metrics.StageFirstToken}, page...)
	o := objective(t, "99%", slo.DefaultPeriod)
	w := &world{objectives: []slo.Objective{o}, extra: func(at time.Duration, emit rulesim.Emit) {
		n := 0.0
		if at > hour && at%(4*time.Minute) < 45*time.Second {
			n = 6
		}
		bad, total, took = bad+n, total+each, took+n*late+(each-n)*short
		for f, v := range map[*metrics.Family]float64{metrics.StageTime: took, metrics.Stages: total} {
			emit(series(f.Name, first...), v)
		}
		emit(series(metrics.EngineInfo.Name, page...), 1)
		of := append([]string{metrics.LabelSLO, o.Name, metrics.LabelThreshold, "0.5"}, page...)
		emit(series(metrics.SLOEvents.Name, of...), total)
		emit(series(metrics.SLOBadEvents.Name, of...), bad)
	}}
	titles := map[string]bool{}
	sim.OnAlert = func(at time.Time, a rulesim.Alert) {
		title := a.Annotations.Get("summary")
		m := regexp.MustCompile(`: ([\d.]+)% of .* longer than 500ms \((?:mean (\S+), )?`).FindStringSubmatch(title)
		if a.Name != fastBurn || m == nil || m[2] == "" {
			return
		}
		titles[title] = true
		share, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if mean, err := time.ParseDuration(m[2]); err != nil || mean.Seconds() < 0.9*share/100*late {
			t.Errorf("%s at %s", title, at)
		}
	}
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(2*hour), 15*time.Second, w.scrape); err != nil {
		t.Fatal(err)
	}
	if len(titles) == 0 {
		t.Error("no page has a mean")
	}
}

// TestChangesInOrder checks the order of changes in a page: Prometheus answers in the order of a map.
func TestChangesInOrder(t *testing.T) {
	split := ""
	for _, g := range rules.NewFile(rules.Groups(rules.Options{}), rules.Style{}).Groups {
		for _, r := range g.Rules {
			if r.Alert == fastBurn {
				split = r.Annotations.Split
			}
		}
	}
	answer := func(context.Context, string, time.Time) (v promql.Vector, err error) {
		for i, setting := range []string{"version", "dtype", "image"} {
			v = append(v, promql.Sample{F: float64(i), Metric: labels.FromStrings("fact", "changes", "says", "Changed in 6h", "unit", "on",
				metrics.LabelOrder, "30", metrics.LabelSetting, setting, metrics.LabelOld, "a", metrics.LabelNew, "b")})
		}
		return v, nil
	}
	got, err := template.NewTemplateExpander(t.Context(), "{{ $labels := .Labels }}{{ $value := .Value }}"+split, "split",
		template.AlertTemplateData(nil, nil, "", promql.Sample{}), 0, answer, nil, nil).Expand()
	if want := "Changed in 6h: dtype a → b on 1, image a → b on 2, version a → b.\n"; err != nil || !strings.Contains(got, want) {
		t.Errorf("%v: %q does not say %q", err, got, want)
	}
}

// TestFirstSuspect checks that a page without an objective begins with the first suspect in order and its first action,
// and not with the largest value.
func TestFirstSuspect(t *testing.T) {
	answer := func(context.Context, string, time.Time) (v promql.Vector, err error) {
		for _, s := range [][]string{
			{"44", "queueing", "19 requests wait or are refused, more than run", "shed load"},
			{"31", "prefill", "Prompts are 19 times as long as usual", "cap the prompt"},
		} {
			v = append(v, promql.Sample{F: 19, Metric: labels.FromStrings(metrics.LabelOrder, s[0], metrics.LabelBranch, s[1],
				metrics.LabelSays, s[2], metrics.LabelLever, s[3])})
		}
		return v, nil
	}
	asked := 0
	for _, g := range rules.NewFile(rules.Groups(rules.Options{}), rules.Style{}).Groups {
		for _, r := range g.Rules {
			if r.Alert != rules.ClientsGiveUp.Name && r.Alert != rules.ProbeFailing.Name {
				continue
			}
			asked++
			got, err := template.NewTemplateExpander(t.Context(), "{{ $labels := .Labels }}{{ $value := .Value }}"+r.Annotations.Split, "split",
				template.AlertTemplateData(nil, nil, "", promql.Sample{}), 0, answer, nil, nil).Expand()
			if want := "Look first at: prefill. Prompts are 19 times as long as usual.\nDo first, cap the prompt.\n"; err != nil ||
				!strings.HasPrefix(got, want) {
				t.Errorf("%s: %v: %q", r.Alert, err, got)
			}
		}
	}
	if asked != 2 {
		t.Errorf("%d alerts", asked)
	}
}

// The page shows how long the budget lasts at the present burn. In the minutes after an onset the number follows
// the effect on users, for any five minutes before, and for any time of the last record of the budget.
func TestExhaustionFollowsTheBurn(t *testing.T) {
	t.Parallel()
	const onset = hour + time.Minute
	for perSecond, most := range map[float64]float64{10: 0.02, 1. / 20: 0.25} { // increase extrapolates few events by a quarter
		w := &world{}
		w.add(objective(t, "99%", slo.DefaultPeriod), service{perSecond: constant(perSecond), badShare: during(onset, 99*hour, 1, 0.001)})
		_, sim := w.run(t, onset+5*time.Minute, burning(t, rules.Options{}, "llm-slo-budget")...)
		for after := 2 * time.Minute; after <= 4*time.Minute; after += time.Minute {
			value := func(f *metrics.Family) float64 {
				v, err := sim.Query("last_over_time("+f.Name+"[5m])", rulesim.Epoch.Add(onset+after))
				if err != nil || len(v) != 1 {
					t.Fatalf("%s: %v %v", f.Name, v, err)
				}
				return v[0].F
			}
			const burn = 100 // of a budget of 1%, where every request is bad
			want := slo.Exhaustion(slo.DefaultPeriod, value(metrics.RecordedBudgetRemaining), burn).Seconds()
			if got := value(metrics.RecordedExhaustion); math.Abs(got-want) > most*want {
				t.Errorf("%s after everything began to fail, at %v requests per second, the budget is said to last %.0f s, it lasts %.0f", after,
					perSecond, got, want)
			}
		}
	}
}

// TestSinceTheOnset checks that a page names the minute in which users began to suffer, however late the page is, and does so
// until it resolves.
func TestSinceTheOnset(t *testing.T) {
	t.Parallel()
	const onset = 90 * time.Minute
	for name, c := range map[string]struct{ perSecond, badShare float64 }{
		"outage":       {10, 1},
		"a fifth":      {10, 0.2},
		"few requests": {1. / 15, 0.4},
	} {
		w := &world{}
		w.add(objective(t, "99%", slo.DefaultPeriod), service{perSecond: constant(c.perSecond), badShare: during(onset, onset+40*time.Minute, c.badShare, 0)})
		sim := loaded(t, rules.Groups(rules.Options{}))
		defer sim.Close()
		var since string
		sim.OnAlert = func(at time.Time, a rulesim.Alert) {
			if a.Name != fastBurn {
				return
			}
			if since == "" {
				since = a.Annotations.Get("since")
			}
			if now := a.Annotations.Get("since"); now != since {
				t.Errorf("%s: at %s it began at %q, in the first page at %s", name, at.Format(time.TimeOnly), now, since)
			}
		}
		if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(onset+2*hour), scrapeEvery, w.scrape); err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse("15:04 MST", since)
		late := time.Duration(at.Hour())*hour + time.Duration(at.Minute())*time.Minute - onset
		if err != nil || late < 0 || late > 5*time.Minute {
			t.Errorf("%s: the first page says that it began at %s, %s after the onset", name, since, late)
		}
	}
}

// TestTitlesShowWhatBurns checks that the title of a page or a ticket about errors that come in bursts always shows
// more than is promised, even between two bursts.
func TestTitlesShowWhatBurns(t *testing.T) {
	t.Parallel()
	title := regexp.MustCompile(`: ([\d.]+)% of .* longer than 500ms`)
	for alert, c := range map[string]struct {
		every, lasts time.Duration
		share        float64
	}{
		slowBurn: {2 * hour, 10 * time.Minute, 0.5},
		fastBurn: {25 * time.Minute, 4 * time.Minute, 1},
	} {
		w := &world{}
		w.add(objective(t, "99%", slo.DefaultPeriod), service{perSecond: constant(1), badShare: func(at time.Duration) float64 {
			return during(0, c.lasts, c.share, 0)(at % c.every)
		}})
		sim := loaded(t, rules.Groups(rules.Options{}))
		defer sim.Close()
		fired := 0
		sim.OnAlert = func(at time.Time, a rulesim.Alert) {
			if a.Name != alert {
				return
			}
			fired++
			m := title.FindStringSubmatch(a.Annotations.Get("summary"))
			if m == nil {
				t.Fatal(a.Annotations.Get("summary"))
			}
			if share, err := strconv.ParseFloat(m[1], 64); err != nil || share < 1 {
				t.Errorf("%s after %s: %s", alert, at.Sub(rulesim.Epoch), a.Annotations.Get("summary"))
			}
		}
		if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(9*hour), time.Minute, w.scrape); err != nil {
			t.Fatal(err)
		}
		if fired == 0 {
			t.Errorf("%s does not fire", alert)
		}
	}
}

// TestOneBadRequestIsNoBurst checks that a bad request every twelve minutes counts over five minutes, not over the minute in
// which it came.
func TestOneBadRequestIsNoBurst(t *testing.T) {
	t.Parallel()
	w := &world{}
	w.add(objective(t, "99%", slo.DefaultPeriod), service{perSecond: constant(1. / 20), badShare: constant(1. / 36)})
	_, sim := w.run(t, 70*time.Minute, burning(t, rules.Options{}, "llm-slo-budget")...)
	v, err := sim.Query("max_over_time("+metrics.RecordedBadNow.Name+"[30m]) * 60", rulesim.Epoch.Add(70*time.Minute))
	if err != nil || len(v) != 1 || v[0].F < 0.1 || v[0].F > 0.3 {
		t.Errorf("a bad request every twelve minutes is said to be %v a minute (%v)", v, err)
	}
}

// TestSmallNumbers checks that a number below one is written out, and that numbers of a page have two or three digits.
// humanize would append m for a thousandth, which could mean minutes, milliseconds or millions.
func TestSmallNumbers(t *testing.T) {
	for text, unit := range map[string]rules.Unit{string(rules.Number): "", string(rules.Times): "", rules.FactText(): rules.Count} {
		for value, want := range map[float64]string{0.0833: "0.083", 0.00004: "4e-05", 0: "0", 1.5: "1.5", 2556: "2.556k"} {
			if unit != "" && value == 2556 { // more digits than a reader needs
				want = "2.6k"
			}
			sample := promql.Sample{F: value, Metric: labels.FromStrings(metrics.LabelUnit, string(unit))}
			got, err := template.NewTemplateExpander(t.Context(), text, "small",
				template.AlertTemplateData(map[string]string{metrics.LabelUnit: string(unit)}, nil, "", sample), 0, nil, nil, nil).Expand()
			if err != nil || strings.TrimRight(got, "x ") != want {
				t.Errorf("%q of unit %q with %g: %q, %v, not %q", text, unit, value, got, err, want)
			}
		}
	}
}

// TestDurations checks that a duration has no superfluous units.
func TestDurations(t *testing.T) {
	for value, want := range map[float64]string{
		0.012: "12ms", 45: "45s", 240: "4m", 280: "4m 40s", 2000: "33m", 2400: "40m",
		3600: "1h", 3960: "1h 6m", 72_012: "20h", 277_300: "3d 5h",
	} {
		sample := promql.Sample{F: value, Metric: labels.FromStrings(metrics.LabelUnit, string(rules.Seconds))}
		data := template.AlertTemplateData(map[string]string{metrics.LabelUnit: string(rules.Seconds)}, nil, "", sample)
		if got, err := template.NewTemplateExpander(t.Context(), rules.FactText(), "duration", data, 0, nil, nil, nil).
			Expand(); err != nil || got != want {
			t.Errorf("%g s: %q, %v, not %q", value, got, err, want)
		}
	}
}
