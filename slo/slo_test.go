package slo_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

func ratio(t testing.TB, text string) slo.Ratio {
	t.Helper()
	r, err := slo.ParseRatio(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func duration(t testing.TB, text string) slo.Duration {
	t.Helper()
	d, err := slo.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Ratios as people write them come back exactly, in both forms.
func TestRatiosAreExact(t *testing.T) {
	for text, want := range map[string][2]string{
		"99.9%": {"0.999", "99.9%"}, "99.9": {"0.999", "99.9%"}, "0.999": {"0.999", "99.9%"},
		"99.99999%": {"0.9999999", "99.99999%"}, "95": {"0.95", "95%"}, "0.1%": {"0.001", "0.1%"}, "1%": {"0.01", "1%"},
	} {
		r := ratio(t, text)
		if r.String() != want[0] || r.Percent() != want[1] {
			t.Errorf("%s: %s, %s; want %v", text, r, r.Percent(), want)
		}
		if back := ratio(t, r.Percent()); back != r {
			t.Errorf("%s came back as %s", r.Percent(), back)
		}
	}
	for _, text := range []string{"", "x", "1/2", "9e1", "101%", "-1%", "99.99999999999%", "0x1p-2", "NaN"} {
		if r, err := slo.ParseRatio(text); err == nil {
			t.Errorf("%q was read as %s", text, r)
		}
	}
}

func TestDurationsPrintInDays(t *testing.T) {
	for text, want := range map[string]string{
		"4w": "28d", "30d": "30d", "90m": "1h30m", "500ms": "500ms", "1.5s": "1.5s", "50ms": "50ms",
		"1d2h": "1d2h", "0s": "0s",
	} {
		if got := duration(t, text).String(); got != want {
			t.Errorf("%s prints as %s, want %s", text, got, want)
		}
	}
}

// The factors of the SRE Workbook over 30 days, to the last digit.
func TestFactorsOfTheWorkbook(t *testing.T) {
	want := []string{"14.4", "6", "3", "1"}
	for i, p := range slo.DefaultWindowPairs() {
		if got := p.SpendFactor(30 * slo.Day); got.Cmp(rat(want[i])) != 0 {
			t.Errorf("%s/%s: %s, want %s", p.Long, p.Short, got, want[i])
		}
	}
}

func rat(text string) *big.Rat {
	r, _ := new(big.Rat).SetString(text)
	return r
}

// For any target and period: no pair fires inside the objective, and every pair can fire.
func TestEveryPairCanFireAndNoneTooEarly(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	half, one := big.NewRat(1, 2), big.NewRat(1, 1)
	for range 2000 {
		o := slo.Objective{Target: slo.One/2 + slo.Ratio(rng.Int64N(int64(slo.One/2))), Period: slo.Periods()[rng.IntN(6)]}
		for _, p := range slo.DefaultWindowPairs() {
			if p.Factor(o).Cmp(one) < 0 {
				t.Errorf("%s over %s: factor %s of %s below 1", o.Target, o.Period, p.Factor(o), p.Long)
			}
			if p.Threshold(o).Cmp(half) > 0 {
				t.Errorf("%s over %s: threshold %s of %s above half", o.Target, o.Period, p.Threshold(o), p.Long)
			}
			if _, fires := p.Detection(o, slo.Load{BadShare: 1, RequestsPerSecond: 1}); !fires {
				t.Errorf("%s over %s: %s never fires", o.Target, o.Period, p.Long)
			}
		}
	}
}

// Times from the literature: 52 s and 8.6 min for a total outage at 99.9% and 99%, 50 h to spend a 30-day budget at
// 14.4.
func TestTimesOfTheLiterature(t *testing.T) {
	fast := slo.DefaultWindowPairs()[0]
	busy := slo.Load{BadShare: 1, RequestsPerSecond: 1000}
	for target, want := range map[string]time.Duration{"99.9%": 51840 * time.Millisecond, "99%": 518400 * time.Millisecond} {
		got, fires := fast.Detection(slo.Objective{Target: ratio(t, target), Period: 30 * slo.Day}, busy)
		if !fires || got.Round(time.Millisecond) != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	if got := slo.Exhaustion(30*slo.Day, 1, 14.4); got.Round(time.Second) != 50*time.Hour {
		t.Errorf("exhausted after %s, want 50h", got)
	}
	if got := slo.Exhaustion(30*slo.Day, 1, 0); got != math.MaxInt64 {
		t.Errorf("a budget that does not burn lasts %s", got)
	}
	if _, fires := fast.Detection(slo.Objective{Target: ratio(t, "99%"), Period: 30 * slo.Day},
		slo.Load{BadShare: 0.14, RequestsPerSecond: 1000}); fires {
		t.Error("fires below its threshold")
	}
}

func TestSnapTakesTheStricterBound(t *testing.T) {
	grid := []float64{.1, .25, .5, 1}
	for threshold, want := range map[float64]float64{.5: .5, .6: .5, .49: .25, 7: 1, .1: .1} {
		if got, ok := slo.Snap(grid, threshold); !ok || got != want {
			t.Errorf("%g snaps to %g, %t; want %g", threshold, got, ok, want)
		}
	}
	if got, ok := slo.Snap(grid, .09); ok {
		t.Errorf(".09 snaps to %g", got)
	}
	if _, ok := slo.Snap(nil, 1); ok {
		t.Error("an empty grid has no bound")
	}
	if got, ok := slo.Snap([]float64{.1, .1 + .2, .5}, .3); !ok || got != .1+.2 {
		t.Errorf(".3 snaps to %v on a grid that prints 0.30000000000000004", got)
	}
}

func TestJudge(t *testing.T) {
	type verdict struct{ event, bad bool }
	for outcome, want := range map[metrics.Outcome]verdict{
		metrics.OutcomeStop: {true, false}, metrics.OutcomeLength: {true, false}, metrics.OutcomeSuccess: {true, false},
		metrics.OutcomeRepetition: {true, false},
		metrics.OutcomeError:      {true, true}, metrics.OutcomeRejected: {true, true},
		metrics.OutcomeAbort: {false, false}, metrics.OutcomeInvalid: {false, false}, metrics.OutcomeUnknown: {false, false},
		"none of these": {false, false},
	} {
		event, bad := slo.Judge(outcome)
		if (verdict{event, bad}) != want {
			t.Errorf("%s: event %t, bad %t", outcome, event, bad)
		}
		if regexp.MustCompile("^("+slo.FailedOutcomes+")$").MatchString(string(outcome)) != bad {
			t.Errorf("%s: queries and objectives differ on whether it is bad", outcome)
		}
		if outcome != "none of these" && regexp.MustCompile("^("+slo.UncountedOutcomes+")$").MatchString(string(outcome)) == event {
			t.Errorf("%s: queries and objectives differ on whether it counts", outcome)
		}
	}
}

// A client that gives up counts only for an objective with count_aborts.
func TestAbortsCountWhereAsked(t *testing.T) {
	for counted, want := range map[bool]bool{false: false, true: true} {
		o := slo.Objective{Signal: slo.Availability, CountAborts: counted}
		if event, bad := o.Judge(metrics.OutcomeAbort); event != want || bad != want {
			t.Errorf("count_aborts %t: event %t, bad %t", counted, event, bad)
		}
		if event, bad := o.Judge(metrics.OutcomeInvalid); event || bad {
			t.Errorf("count_aborts %t: a wrong request counts", counted)
		}
		if event, bad := o.Judge(metrics.OutcomeError); !event || !bad {
			t.Errorf("count_aborts %t: an error does not count", counted)
		}
	}
}

func TestSelectors(t *testing.T) {
	e := slo.Engine{Runtime: metrics.VLLM, Model: "meta-llama/Llama-3.3-70B", Namespace: "prod", Role: "decode"}
	for _, tt := range []struct {
		s    slo.Selector
		want bool
	}{
		{slo.Selector{}, true},
		{slo.Selector{Model: []string{"meta-llama/*"}}, true},
		{slo.Selector{Model: []string{"*Llama*", "x"}, Namespace: []string{"prod"}, Runtime: []metrics.Runtime{metrics.VLLM}}, true},
		{slo.Selector{Model: []string{"meta-llama"}}, false},
		{slo.Selector{Namespace: []string{"pro."}}, false},
		{slo.Selector{Runtime: []metrics.Runtime{metrics.TGI}}, false},
		{slo.Selector{Role: []string{"prefill"}}, false},
		{slo.Selector{Not: &slo.Selector{Model: []string{"meta-llama/*"}}}, false},
		{slo.Selector{Namespace: []string{"prod"}, Not: &slo.Selector{Model: []string{"*-long"}}}, true},
		{slo.Selector{Not: &slo.Selector{Model: []string{"meta-llama/*"}, Namespace: []string{"test"}}}, true},
	} {
		if tt.s.String() == "" {
			t.Errorf("%+v prints as nothing", tt.s)
		}
		if got := tt.s.Matches(e); got != tt.want {
			t.Errorf("%+v matches: %t, want %t", tt.s, got, tt.want)
		}
	}
}

const config = `
- name: ttft-chat
  signal: ttft
  threshold: 500ms
  target: 99.9
  period: 28d
  select: {model_name: [chat-*], runtime: [vllm]}
  labels: {team: search}
  severity: ticket
  runbook: https://wiki.example/ttft
  dashboard: https://grafana.example/d/chat
- name: speculation
  signal: events
  target: 60%
  total: {metric: llm_engine_spec_decode_draft_tokens_total}
  good: {metric: llm_engine_spec_decode_accepted_tokens_total}
- name: finished
  signal: events
  target: 0.95
  total: {metric: llm_engine_requests_total}
  bad: {metric: llm_engine_requests_total, match: {outcome: [length, error]}}
`

func parse(t *testing.T, text string) []slo.Objective {
	t.Helper()
	var objectives []slo.Objective
	if err := yaml.UnmarshalWithOptions([]byte(text), &objectives, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for i := range objectives {
		objectives[i] = objectives[i].WithDefaults()
	}
	return objectives
}

func TestConfiguration(t *testing.T) {
	objectives := parse(t, config)
	if err := slo.Fatal(slo.Check(objectives, slo.CheckOptions{})); err != nil {
		t.Error(err)
	}
	if o := objectives[0]; o.Target != ratio(t, "99.9%") || o.Threshold.Seconds() != "0.5" || o.Period != 28*slo.Day ||
		!slices.Equal(o.Select.Model, []string{"chat-*"}) {
		t.Errorf("read as %+v", o)
	}
	if o := objectives[0]; o.Labels["team"] != "search" || o.Severity != slo.Ticket || o.Runbook != "https://wiki.example/ttft" ||
		o.Dashboard != "https://grafana.example/d/chat" {
		t.Errorf("whose it is was read as %+v", o)
	}
	if objectives[1].Severity != slo.Page {
		t.Errorf("default severity %s", objectives[1].Severity)
	}
	if objectives[1].Period != slo.DefaultPeriod {
		t.Errorf("default period %s", objectives[1].Period)
	}
	label := func(v string) func(string) string { return func(string) string { return v } }
	if bad := objectives[2].Bad; !bad.Selects(metrics.Requests, label("error")) || bad.Selects(metrics.Requests, label("stop")) ||
		bad.Selects(metrics.Preemptions, label("error")) {
		t.Error("bad selects the wrong series")
	}
	out, err := yaml.Marshal(objectives)
	if err != nil {
		t.Fatal(err)
	}
	if again := parse(t, string(out)); again[0].Target != objectives[0].Target || again[0].Threshold != objectives[0].Threshold {
		t.Errorf("written and read again: %+v", again[0])
	}
}

func TestSeveritiesOfObjectives(t *testing.T) {
	for _, s := range []slo.Severity{slo.Page, slo.Ticket, slo.None} {
		if got, err := slo.ParseSeverity(s.String()); got != s || err != nil {
			t.Errorf("%s was read as %s: %v", s, got, err)
		}
	}
	for _, text := range []string{"critical", "info", ""} { // info is for causes
		if got, err := slo.ParseSeverity(text); err == nil || !strings.Contains(err.Error(), "write page, ticket or none") {
			t.Errorf("%q was read as %s: %v", text, got, err)
		}
	}
}

// The severe objectives catch the few very slow requests that one percent of slow requests hides.
func TestDefaultsSeeSevereLatency(t *testing.T) {
	for name, want := range map[string]slo.Objective{
		"ttft_severe": {Signal: slo.TTFT, Threshold: duration(t, "10s"), Target: ratio(t, "99.9%")},
		"itl_severe":  {Signal: slo.ITL, Threshold: duration(t, "500ms"), Target: ratio(t, "99.9%")},
	} {
		i := slices.IndexFunc(slo.Defaults(), func(o slo.Objective) bool { return o.Name == name })
		if i < 0 {
			t.Errorf("%s is no default", name)
			continue
		}
		if o := slo.Defaults()[i]; o.Signal != want.Signal || o.Threshold != want.Threshold || o.Target != want.Target {
			t.Errorf("%s is %+v", name, o)
		}
	}
}

func TestDefaultsAreValidAndExactOnVLLM(t *testing.T) {
	for _, f := range slo.Check(slo.Defaults(), slo.CheckOptions{Runtimes: []metrics.Runtime{metrics.VLLM}}) {
		t.Error(f)
	}
}

// Each finding names the place, the effect and the remedy.
func TestCheckExplains(t *testing.T) {
	for _, tt := range []struct {
		name, config string
		opt          slo.CheckOptions
		fatal        bool
		want         []string
	}{
		{
			"off the grid", "- {name: a, signal: ttft, threshold: 500ms, target: 99%}",
			slo.CheckOptions{Runtimes: []metrics.Runtime{metrics.SGLang}},
			false,
			[]string{`objective "a": threshold`, "sglang", "0.4 s is used there", "0.4 and 0.6 s"},
		},
		{
			"below the grid", "- {name: a, signal: request_duration, threshold: 100ms, target: 99%}",
			slo.CheckOptions{},
			false,
			[]string{"cannot answer 100ms", "0.3 s"},
		},
		{
			"below every grid", "- {name: a, signal: ttft, threshold: 10us, target: 99%}",
			slo.CheckOptions{},
			true,
			[]string{"is below the first bucket of every engine"},
		},
		{
			"below the grid of the only engine",
			"- {name: a, signal: request_duration, threshold: 100ms, target: 99%, select: {runtime: [vllm]}}",
			slo.CheckOptions{},
			true,
			[]string{"Use at least 0.3 s"},
		},
		{"above the grid", "- {name: a, signal: itl, threshold: 90s, target: 99%}", slo.CheckOptions{}, false, []string{"80 s, its last"}},
		{
			"below the grid of the only engine left",
			"- {name: a, signal: ttft, threshold: 50ms, target: 99%, select: {not: {runtime: [vllm, trtllm]}}}",
			slo.CheckOptions{},
			true,
			[]string{"Use at least 0.1 s"},
		},
		{
			"nothing is left", "- {name: a, signal: ttft, threshold: 1s, target: 99%, select: {not: {}}}",
			slo.CheckOptions{},
			true,
			[]string{"select.not", "excludes every engine"},
		},
		{"no budget", "- {name: a, signal: availability, target: 100%}", slo.CheckOptions{}, true, []string{"no error budget", "99.99%"}},
		{"mostly bad", "- {name: a, signal: availability, target: 40%}", slo.CheckOptions{}, true, []string{"more than half", "at least 50%"}},
		{"no target", "- {name: a, signal: availability}", slo.CheckOptions{}, true, []string{"target: is missing"}},
		{"target of nothing", "- {name: a, signal: availability, target: 0%}", slo.CheckOptions{}, true, []string{"0%, which promises nothing"}},
		{
			"never fires", "- {name: a, signal: availability, target: 90%}",
			slo.CheckOptions{},
			false,
			[]string{"14.4 (2% of the budget in 1h) needs 144%", "could never fire", "at 50% bad instead, when 0.694% of the budget"},
		},
		{
			"fires late", "- {name: a, signal: availability, target: 95%}",
			slo.CheckOptions{},
			false,
			[]string{"needs 72% of all events bad, which is late"},
		},
		{
			"inside the objective", "- {name: a, signal: availability, target: 99%, period: 7d}",
			slo.CheckOptions{},
			false,
			[]string{"burn rate of 0.7 over 7d", "fires at 1 instead", "14.286%"},
		},
		{
			"retention", "- {name: a, signal: availability, target: 99%}",
			slo.CheckOptions{Retention: 15 * slo.Day},
			false,
			[]string{"longer than Prometheus keeps samples (15d)"},
		},
		{
			"odd period", "- {name: a, signal: availability, target: 99%, period: 31d}",
			slo.CheckOptions{},
			true,
			[]string{"choose one of 7d, 14d, 28d, 30d, 60d, 90d"},
		},
		{"no threshold", "- {name: a, signal: ttft, target: 99%}", slo.CheckOptions{}, true, []string{"such as 500ms"}},
		{
			"useless threshold", "- {name: a, signal: availability, threshold: 1s, target: 99%}",
			slo.CheckOptions{},
			true,
			[]string{"has no threshold"},
		},
		{"unknown signal", "- {name: a, signal: speed, target: 99%}", slo.CheckOptions{}, true, []string{`"speed" is none of ttft, itl`}},
		{"bad name", "- {name: A b, signal: availability, target: 99%}", slo.CheckOptions{}, true, []string{"lower-case"}},
		{
			"same name twice", "- {name: a, signal: availability, target: 99%}\n- {name: a, signal: availability, target: 98%}",
			slo.CheckOptions{},
			true,
			[]string{"used twice"},
		},
		{
			"label of ours", "- {name: a, signal: ttft, threshold: 1s, target: 99%, labels: {model_name: x}}",
			slo.CheckOptions{},
			true,
			[]string{"labels.model_name", "is a label of the exporter's own series"},
		},
		{
			"label of Prometheus", "- {name: a, signal: ttft, threshold: 1s, target: 99%, labels: {alertname: x}}",
			slo.CheckOptions{},
			true,
			[]string{"labels.alertname"},
		},
		{
			"hidden label", "- {name: a, signal: ttft, threshold: 1s, target: 99%, labels: {__team: x}}",
			slo.CheckOptions{},
			true,
			[]string{"labels.__team", "such as team"},
		},
		{
			"no label", "- {name: a, signal: ttft, threshold: 1s, target: 99%, labels: {my-team: x}}",
			slo.CheckOptions{},
			true,
			[]string{"labels.my-team", "such as team"},
		},
		{
			"empty label", `- {name: a, signal: ttft, threshold: 1s, target: 99%, labels: {team: ""}}`,
			slo.CheckOptions{},
			true,
			[]string{"labels.team", "has no value"},
		},
		{
			"no address", "- {name: a, signal: ttft, threshold: 1s, target: 99%, runbook: wiki/ttft}",
			slo.CheckOptions{},
			true,
			[]string{"runbook", `"wiki/ttft" is no address`},
		},
		{
			"no address of a dashboard", "- {name: a, signal: ttft, threshold: 1s, target: 99%, dashboard: 'javascript:alert(1)'}",
			slo.CheckOptions{},
			true,
			[]string{"dashboard", "https://"},
		},
		{
			"aborts of a latency", "- {name: a, signal: ttft, threshold: 1s, target: 99%, count_aborts: true}",
			slo.CheckOptions{},
			true,
			[]string{"count_aborts", "belongs to availability"},
		},
		{
			"unknown metric", "- {name: a, signal: events, target: 99%, total: {metric: x}, good: {metric: llm_engine_requests_total}}",
			slo.CheckOptions{},
			true,
			[]string{`total: "x" is not a counter`},
		},
		{"unknown label", "- {name: a, signal: events, target: 99%, total: {metric: llm_engine_requests_total}, bad: {metric: " +
			"llm_engine_requests_total, match: {status: [x]}}}", slo.CheckOptions{}, true, []string{`no label "status"`}},
		{
			"good and bad", "- {name: a, signal: events, target: 99%, total: {metric: llm_engine_requests_total}}",
			slo.CheckOptions{},
			true,
			[]string{"either good or bad"},
		},
		{
			"every model may be absent", "- {name: a, signal: availability, target: 99%, may_be_absent: true}",
			slo.CheckOptions{},
			false,
			[]string{"may_be_absent: holds for every model", "select"},
		},
		{
			"counters on a latency", "- {name: a, signal: ttft, threshold: 1s, target: 99%, total: {metric: llm_engine_requests_total}}",
			slo.CheckOptions{},
			true,
			[]string{`belong to signal "events"`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			findings := slo.Check(parse(t, tt.config), tt.opt)
			var all strings.Builder
			for _, f := range findings {
				all.WriteString(f.String() + "\n")
			}
			if (slo.Fatal(findings) != nil) != tt.fatal {
				t.Errorf("fatal: %t, want %t\n%s", !tt.fatal, tt.fatal, &all)
			}
			for _, want := range tt.want {
				if !strings.Contains(all.String(), want) {
					t.Errorf("findings lack %q:\n%s", want, &all)
				}
			}
		})
	}
}

func TestShapes(t *testing.T) {
	bounds := []float64{.1, .25, .5, 1}
	for _, tt := range []struct {
		shape slo.Shape
		want  []float64
	}{
		{slo.Shape{}, bounds},
		{slo.Shape{Keep: slo.Whole}, bounds},
		{slo.Shape{Keep: slo.Drop}, nil},
		{slo.Shape{Keep: slo.Reduced}, []float64{.5}},
		{slo.Shape{Keep: slo.Reduced, Bounds: []float64{1, 7}}, []float64{.5, 1}},
	} {
		var got []float64
		for _, b := range bounds {
			if tt.shape.Keeps(b, []float64{.5}) {
				got = append(got, b)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%+v keeps %v, want %v", tt.shape, got, tt.want)
		}
	}
	for want, s := range map[string]slo.Shape{"is not whole": {Keep: "half"}, "need keep: reduced": {Bounds: []float64{1}}} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}
