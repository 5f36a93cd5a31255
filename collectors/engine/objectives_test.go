package engine

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// objective builds an objective from a user's values.
func objective(t testing.TB, name string, signal slo.Signal, threshold, target string) slo.Objective {
	o := slo.Objective{Name: name, Signal: signal}
	var err error
	if threshold != "" {
		if o.Threshold, err = slo.ParseDuration(threshold); err != nil {
			t.Fatal(err)
		}
	}
	if o.Target, err = slo.ParseRatio(target); err != nil {
		t.Fatal(err)
	}
	return o.WithDefaults()
}

func counted(t testing.TB, objectives []slo.Objective, pages ...string) samples {
	var targets []TargetConfig
	for _, p := range pages {
		targets = append(targets, TargetConfig{URL: serve(t, readPage(t, p)).URL})
	}
	return parse(t, exposition(t, collectorWith(t, Config{Targets: targets, Objectives: objectives})))
}

func TestLatencyIsCountedAtTheEnginesOwnBound(t *testing.T) {
	objectives := []slo.Objective{objective(t, "ttft", slo.TTFT, "500ms", "99%")}
	s := counted(t, objectives, "vllm/v0.19.0-dp2-spec.prom", "sglang/v0.5.17-streaming.prom", "tgi/v3.3.7-loaded.prom")
	whole := s.get(t, `llm_engine_time_to_first_token_seconds_count{runtime="vllm",dp_rank="1"}`)[0]
	good := s.get(t, `llm_engine_time_to_first_token_seconds_bucket{runtime="vllm",dp_rank="1",le="0.5"}`)[0]
	s.want(t, `llm_slo_events_total{slo="ttft",runtime="vllm",dp_rank="1",threshold="0.5"}`, whole)
	s.want(t, `llm_slo_bad_events_total{slo="ttft",runtime="vllm",dp_rank="1",threshold="0.5"}`, whole-good)
	if good == 0 || whole == good {
		t.Fatalf("the page cannot show a difference: %v of %v are good", good, whole)
	}
	// SGLang has no bound at 0.5: the stricter 0.4 is used, and both are published.
	good = s.get(t, `llm_engine_time_to_first_token_seconds_bucket{runtime="sglang",le="0.4"}`)[0]
	s.want(t, `llm_slo_bad_events_total{runtime="sglang",threshold="0.4"}`, 1658-good)
	s.want(t, `llm_slo_threshold_seconds{runtime="sglang",kind="requested"}`, 0.5)
	s.want(t, `llm_slo_threshold_seconds{runtime="sglang",kind="effective"}`, 0.4)
	s.want(t, `llm_slo_threshold_seconds{runtime="vllm",kind="effective"}`, 0.5)
	// TGI never reports first tokens, so the wait in its queue replaces them, and llm_slo_counted shows this.
	s.want(t, `llm_slo_events_total{runtime="tgi"}`, 899)
	s.want(t, `llm_slo_bad_events_total{runtime="tgi"}`, 899-882)
	s.want(t, `llm_slo_counted{runtime="tgi",slo="ttft",reason="queue_time"}`, 1)
	// A server that generates nothing, and one that only passes requests on, have no first tokens.
	for _, page := range []string{"tei/embed-loaded.prom", "llmd_router/v0.9.0-loaded.prom"} {
		counted(t, objectives, page).want(t, `llm_slo_counted{reason="queue_time"}`)
	}
	s.want(t, `llm_slo_counted{runtime="vllm",slo="ttft"}`, 1, 1)
	// The objective itself is there once, whatever the number of engines.
	s.want(t, `llm_slo_objective_ratio{slo="ttft"}`, 0.99)
	s.want(t, `llm_slo_period_seconds{slo="ttft"}`, 30*24*3600)
	s.want(t, `llm_slo_info{slo="ttft",signal="ttft",period="30d"}`, 1)
	s.want(t, `llm_slo_may_be_absent{slo="ttft"}`, 0)
	objectives[0].MayBeAbsent = true
	counted(t, objectives, "vllm/v0.19.0-dp2-spec.prom").want(t, `llm_slo_may_be_absent{slo="ttft"}`, 1)
}

// A page that names 500ms but counts from 400 ms would wake a person for other requests.
func TestWordsNameTheThresholdThatCounts(t *testing.T) {
	objectives := []slo.Objective{objective(t, "ttft", slo.TTFT, "500ms", "99%")}
	info := func(bad string) string {
		return `llm_slo_info{slo="ttft",bad="first tokens take longer than ` + bad + `"}`
	}
	counted(t, objectives, "sglang/v0.5.17-streaming.prom").want(t, info("400ms"), 1)
	counted(t, objectives, "vllm/v0.19.0-dp2-spec.prom").want(t, info("500ms"), 1)
	counted(t, objectives, "vllm/v0.19.0-dp2-spec.prom", "sglang/v0.5.17-streaming.prom").want(t, info("500ms"), 1) // one series for both
}

// TestDecodeObjectiveWithoutTimesBetweenTokens checks TensorRT-LLM, which reports only a mean per request.
func TestDecodeObjectiveWithoutTimesBetweenTokens(t *testing.T) {
	s := counted(t, []slo.Objective{objective(t, "itl", slo.ITL, "50ms", "99%")}, "trtllm/v1.3.0-full.prom", "vllm/v0.11.2.prom",
		"triton/core-only.prom")
	whole := s.get(t, `llm_engine_time_per_output_token_seconds_count{runtime="trtllm"}`)[0]
	good := s.get(t, `llm_engine_time_per_output_token_seconds_bucket{runtime="trtllm",le="0.05"}`)[0]
	s.want(t, `llm_slo_events_total{slo="itl",runtime="trtllm",threshold="0.05"}`, whole)
	s.want(t, `llm_slo_bad_events_total{slo="itl",runtime="trtllm",threshold="0.05"}`, whole-good)
	s.want(t, `llm_slo_counted{runtime="trtllm",reason="mean_per_request"}`, 1)
	if good == 0 || whole == good {
		t.Fatalf("the page cannot show a difference: %v of %v are good", good, whole)
	}
	// vLLM has both: its mean per request does not count beside its times between tokens.
	s.want(t, `llm_slo_events_total{runtime="vllm"}`, s.get(t, `llm_engine_inter_token_latency_seconds_count{runtime="vllm"}`)...)
	s.want(t, `llm_slo_counted{runtime="triton",reason="signal_missing"}`, 0)
}

func TestThresholdBelowTheGrid(t *testing.T) {
	s := counted(t, []slo.Objective{objective(t, "strict", slo.TTFT, "50ms", "99%")}, "sglang/v0.5.17-streaming.prom") // first bound 0.1
	s.want(t, `llm_slo_events_total`)
	s.want(t, `llm_slo_counted{slo="strict",reason="below_grid"}`, 0)
}

func TestAvailabilityNeedsAnEngineThatShowsFailures(t *testing.T) {
	objectives := []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")}
	for _, c := range []struct {
		page        string
		events, bad []float64 // nil: not counted
	}{
		{"vllm/v0.19.0-dp2-spec.prom", []float64{8877 + 4553 + 5 + 3, 9254 + 4756 + 4 + 4}, []float64{5, 4}}, // clients cause aborts
		{"vllm/v0.9.1.prom", nil, nil},                                      // before v0.13 failed requests are not counted
		{"vllm/v0.10.2.prom", []float64{7310 + 2}, []float64{2}},            // but the HTTP server counts them if it runs in the same process
		{"tgi/v1.0-early.prom", []float64{833 + 19 + 8}, []float64{19 + 8}}, // clients cause invalid requests
		{"trtllm/v1.3.0-full.prom", []float64{320 + 57 + 4}, []float64{4}},
		{"trtllm/v1.1.0-unprefixed.prom", nil, nil},
		{"nim/1.x.prom", []float64{540 + 58 + 13}, []float64{13}},
		{"sglang/v0.4.9-dp2.prom", nil, nil},
		{"sglang/v0.5.9-priority.prom", []float64{1569 - (15 - 14) + 5}, []float64{5}}, // at most 14 of the aborted never ran
		{"lmdeploy/v0.9.2.prom", []float64{508 + 2}, []float64{2}},
		{"triton/trtllm-v0.18-ensemble.prom", []float64{1204 + 6 + 2 + 1}, []float64{6 + 2 + 1}},
		{"dynamo/frontend.prom", []float64{813 + 90 + 21 + 3}, []float64{21 + 3}},
		{"envoy_ai/v0.3-loaded.prom", []float64{7301 + 41}, []float64{41}}, // the failed ones lack the engine's name
		{"envoy_ai/v1.1.0-loaded.prom", []float64{7301 + 41}, []float64{41}},
		{"kserve/queue-proxy-otel.prom", []float64{1769}, []float64{0}},
	} {
		s := counted(t, objectives, c.page)
		s.want(t, `llm_slo_events_total{slo="availability"}`, c.events...)
		s.want(t, `llm_slo_bad_events_total{slo="availability"}`, c.bad...)
		if c.events == nil {
			s.want(t, `llm_slo_counted{reason="failures_missing"}`, 0)
		}
	}
	// A request that failed with an engine's answer and a request that failed without one count as two.
	const requests = "gen_ai_server_request_duration_seconds"
	answered := func(model, more string, n int) string {
		return fmt.Sprintf("%s_count{gen_ai_request_model=\"chat\",gen_ai_response_model=%q,otel_scope_name=\"envoyproxy/ai-gateway\"%s} %d\n", requests, model, more, n)
	}
	s := parse(t, exposition(t, collectorWith(t, Config{
		Objectives: objectives,
		Targets: []TargetConfig{{URL: serve(t, "# TYPE "+requests+" histogram\n"+
			answered("qwen", "", 90)+answered("qwen", `,error_type="_OTHER"`, 3)+answered("unknown", `,error_type="_OTHER"`, 4)).URL}},
	})))
	s.want(t, `llm_slo_events_total{model_name="qwen"}`, 97)
	s.want(t, `llm_slo_bad_events_total{model_name="qwen"}`, 7)
	// An objective may count clients that give up as failures.
	objectives[0].CountAborts = true
	s = counted(t, objectives, "vllm/v0.19.0-dp2-spec.prom")
	aborted := s.get(t, `llm_engine_requests_total{outcome="abort"}`)
	if len(aborted) != 2 || aborted[0] == 0 {
		t.Fatalf("the page cannot show a difference: %v were given up", aborted)
	}
	s.want(t, `llm_slo_events_total{slo="availability"}`, 8877+4553+5+3+aborted[0], 9254+4756+4+4+aborted[1])
	s.want(t, `llm_slo_bad_events_total{slo="availability"}`, 5+aborted[0], 4+aborted[1])
	objectives[0].CountAborts = false
	// An engine that would show failures but has none is fully available, not unknown.
	s = parse(t, exposition(t, collectorWith(t, Config{
		Objectives: objectives,
		Targets:    []TargetConfig{{URL: serve(t, "# TYPE tgi_request_success counter\ntgi_request_success 5\n").URL}},
	})))
	s.want(t, `llm_slo_events_total`, 5)
	s.want(t, `llm_slo_bad_events_total`, 0)
}

func TestObjectiveOverCounters(t *testing.T) {
	o := objective(t, "speculation", slo.Events, "", "60%")
	o.Total = &slo.Counters{Metric: metrics.SpecDecodeDraftTokens.Name}
	o.Good = &slo.Counters{Metric: metrics.SpecDecodeAcceptedTokens.Name}
	s := counted(t, []slo.Objective{o}, "vllm/v0.19.0-dp2-spec.prom", "vllm/v0.11.2.prom")
	s.want(t, `llm_slo_events_total{slo="speculation",dp_rank="0"}`, 15441)
	s.want(t, `llm_slo_bad_events_total{slo="speculation",dp_rank="0"}`, 15441-8800)
	s.want(t, `llm_slo_counted{slo="speculation",reason="signal_missing"}`, 0) // the engine without speculation

	cut := objective(t, "not-cut", slo.Events, "", "90%")
	cut.Total = &slo.Counters{Metric: metrics.Requests.Name}
	cut.Bad = &slo.Counters{Metric: metrics.Requests.Name, Match: map[string][]string{"outcome": {"length"}}}
	s = counted(t, []slo.Objective{cut}, "vllm/v0.11.2.prom")
	s.want(t, `llm_slo_events_total`, 5783+2887+28)
	s.want(t, `llm_slo_bad_events_total`, 2887)
}

func TestObjectiveSelectsEngines(t *testing.T) {
	o := objective(t, "chat", slo.TTFT, "500ms", "99%")
	o.Select.Runtime = []metrics.Runtime{metrics.VLLM}
	o.Select.Model = []string{"qwen3-*"}
	s := counted(t, []slo.Objective{o}, "vllm/v0.19.0-dp2-spec.prom", "vllm/v0.11.2.prom", "sglang/v0.5.17-streaming.prom")
	if got := s.get(t, `llm_slo_events_total`); len(got) != 2 {
		t.Errorf("%d engines are counted, want the two ranks of qwen3-235b", len(got))
	}
	s.want(t, `llm_slo_counted{model_name!~"qwen3-.*"}`) // an objective ignores engines that it does not select
}

// A declared interval is exported for its engines and objectives while it lasts, even while the engine is down
// because of it.
func TestMaintenance(t *testing.T) {
	at := func(text string) slo.Moment {
		m, err := slo.ParseMoment(text)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	from, to := at("2026-10-01T22:00:00Z"), at("2026-10-02T00:00:00Z")
	now := from.Add(-time.Second)
	page := serve(t, readPage(t, "vllm/v0.11.2.prom"))
	c := collectorWith(t, Config{
		Targets:    []TargetConfig{{URL: page.URL}, {URL: serve(t, readPage(t, "sglang/v0.5.17-streaming.prom")).URL}},
		Objectives: []slo.Objective{objective(t, "ttft", slo.TTFT, "500ms", "99%"), objective(t, "itl", slo.ITL, "50ms", "99%")},
		Maintenance: []slo.Maintenance{{
			From: from, To: to, Reason: "new racks", Objectives: []string{"ttft"},
			Select: slo.Selector{Runtime: []metrics.Runtime{metrics.VLLM}},
		}},
		Now: func() time.Time { return now },
	})
	states := []string{
		"before", "", "on", `llm_slo_maintenance{slo="ttft",runtime="vllm"}`, "down",
		`llm_slo_maintenance{slo="ttft",runtime="vllm"}`, "over", "",
	}
	for i := 0; i < len(states); i += 2 {
		switch states[i] {
		case "on":
			now = from.Time
		case "down":
			page.Close()
		case "over":
			now = to.Time
		}
		s := parse(t, exposition(t, c))
		if states[i+1] == "" {
			s.want(t, `llm_slo_maintenance`)
			continue
		}
		s.want(t, `llm_slo_maintenance`, 1)
		s.want(t, states[i+1], 1)
		s.want(t, `llm_engine_maintenance_end_timestamp_seconds`) // not all objectives
		if states[i] == "down" {
			s.want(t, `llm_engine_up{runtime="vllm"}`, 0)
		}
	}
}

// The end of a maintenance is shown for an engine if all its objectives are covered, and for the node if all its
// engines are covered.
func TestMaintenanceEnd(t *testing.T) {
	now := time.Date(2026, 10, 1, 22, 0, 0, 0, time.UTC)
	until := func(after time.Duration) slo.Moment { return slo.Moment{Time: now.Add(after)} }
	vllm, sglang := slo.Selector{Runtime: []metrics.Runtime{metrics.VLLM}}, slo.Selector{Runtime: []metrics.Runtime{metrics.SGLang}}
	page := serve(t, readPage(t, "vllm/v0.11.2.prom"))
	c := collectorWith(t, Config{
		Targets:    []TargetConfig{{URL: page.URL}, {URL: serve(t, readPage(t, "sglang/v0.5.17-streaming.prom")).URL}},
		Objectives: []slo.Objective{objective(t, "ttft", slo.TTFT, "500ms", "99%"), objective(t, "itl", slo.ITL, "50ms", "99%")},
		Maintenance: []slo.Maintenance{
			{From: until(0), To: until(3 * time.Hour), Select: vllm, Objectives: []string{"ttft"}},
			{From: until(0), To: until(2 * time.Hour), Select: vllm, Objectives: []string{"itl"}},
			{From: until(0), To: until(time.Hour), Select: vllm},
			{From: until(time.Hour), To: until(4 * time.Hour), Select: sglang},
		},
		Now: func() time.Time { return now },
	})
	const engine, node = `llm_engine_maintenance_end_timestamp_seconds`, `llm_exporter_maintenance_end_timestamp_seconds`
	end := float64(now.Add(2 * time.Hour).Unix())
	s := parse(t, exposition(t, c))
	s.want(t, engine, end)
	s.want(t, engine+`{runtime="vllm"}`, end)
	s.want(t, node)
	page.Close()
	now = now.Add(time.Hour)
	s = parse(t, exposition(t, c))
	s.want(t, engine+`{runtime="vllm"}`, end)
	s.want(t, node, end)
	now = now.Add(time.Hour)
	s = parse(t, exposition(t, c))
	s.want(t, engine+`{runtime="vllm"}`)
	s.want(t, node)
}

func TestHistogramShapes(t *testing.T) {
	const page = "vllm/v0.11.2.prom"
	ttft, queue, decode := metrics.TimeToFirstToken.Name, metrics.QueueTime.Name, metrics.DecodeTime.Name
	objectives := []slo.Objective{objective(t, "ttft", slo.TTFT, "600ms", "99%"), objective(t, "slow", slo.TTFT, "2.5s", "99.9%")}
	cfg := Config{Targets: []TargetConfig{{URL: serve(t, readPage(t, page)).URL}}, Objectives: objectives}
	whole := parse(t, exposition(t, collectorWith(t, cfg)))
	cfg.Histograms = map[string]slo.Shape{
		ttft: {Keep: slo.Reduced}, queue: {Keep: slo.Reduced, Bounds: []float64{1, 5, 7}},
		decode: {Keep: slo.Drop},
	}
	s := parse(t, exposition(t, collectorWith(t, cfg)))
	for _, le := range []string{"0.5", "2.5", "+Inf"} {
		s.want(t, ttft+`_bucket{le="`+le+`"}`, whole.get(t, ttft+`_bucket{le="`+le+`"}`)...)
	}
	if n := len(s.get(t, ttft+"_bucket")); n != 3 {
		t.Errorf("%d TTFT buckets are left", n)
	}
	if n := len(s.get(t, queue+"_bucket")); n != 3 { // vLLM has no bound at 7
		t.Errorf("%d queue time buckets are left", n)
	}
	s.want(t, queue+"_sum", whole.get(t, queue+"_sum")...)
	s.want(t, `{__name__=~"`+decode+`.*"}`)
	s.want(t, `llm_engine_metric_source_info{metric="`+decode+`",quality="missing",reason="dropped by the configuration"}`, 1)
	checkClaims(t, "with a histogram dropped", s)
	// Objectives do not change.
	for _, name := range []string{"llm_slo_events_total", "llm_slo_bad_events_total"} {
		s.want(t, name, whole.get(t, name)...)
	}
	if _, err := New(Config{Histograms: map[string]slo.Shape{"llm_engine_requests_running": {}}}); err == nil ||
		!strings.Contains(err.Error(), "is not a histogram") {
		t.Errorf("a shape for a gauge: %v", err)
	}
	if _, err := New(Config{Histograms: map[string]slo.Shape{ttft: {Keep: "half"}}}); err == nil || !strings.Contains(err.Error(),
		"whole, reduced or drop") {
		t.Errorf("half a histogram: %v", err)
	}
}

// TestThresholdThatTheGridCannotHold checks that an objective of 10 s is not counted at 0.6 s but reported as off
// the grid, and that the log names the engine's option. A bound of at least half of the threshold is used.
func TestThresholdThatTheGridCannotHold(t *testing.T) {
	const page = "# TYPE sglang:e2e_request_latency_seconds histogram\n" +
		"sglang:e2e_request_latency_seconds_bucket{model_name=\"m\",le=\"0.3\"} " +
		"50\nsglang:e2e_request_latency_seconds_bucket{model_name=\"m\",le=\"0.6\"} 60\n" +
		"sglang:e2e_request_latency_seconds_bucket{model_name=\"m\",le=\"12\"} " +
		"100\nsglang:e2e_request_latency_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 100\n" +
		"sglang:e2e_request_latency_seconds_sum{model_name=\"m\"} 400\nsglang:e2e_request_latency_seconds_count{model_name=\"m\"} 100\n"
	var log strings.Builder
	c := collectorWith(t, Config{
		Targets: []TargetConfig{{URL: serve(t, page).URL}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Objectives: []slo.Objective{
			objective(t, "ten", slo.RequestDuration, "10s", "99%"), objective(t, "one", slo.RequestDuration, "1s", "99%"),
		},
	})
	s := parse(t, exposition(t, c))
	s.want(t, `llm_slo_counted{slo="ten",reason="off_grid"}`, 0)
	s.want(t, `llm_slo_events_total{slo="ten"}`)
	s.want(t, `llm_slo_threshold_seconds{slo="ten"}`)
	s.want(t, `llm_slo_counted{slo="one",reason=""}`, 1)
	s.want(t, `llm_slo_bad_events_total{slo="one",threshold="0.6"}`, 40)
	exposition(t, c)
	if n := strings.Count(log.String(), "--bucket-e2e-request-latency"); n != 1 {
		t.Errorf("the log names the option %d times:\n%s", n, log.String())
	}
}

// TestSignalsOfServersThatUsersAsk checks that a server lacks a signal only if users' requests go uncounted there: real
// gateways without a model name, caches, prefill engines and embedding servers need not report the time between tokens.
func TestSignalsOfServersThatUsersAsk(t *testing.T) {
	for page, lacks := range map[string][]float64{
		"litellm/v1.106.2-load.prom": nil, "vllm_router/v0.1.17-load.prom": nil, "sglang/v0.5.12-prefill.prom": nil,
		"mooncake/master-v0.3.12.prom": nil, "lmcache/server.prom": nil, "nixl/agent-main-mp.prom": nil, "dynamo/kvbm.prom": nil,
		"tei/embed-loaded.prom": nil, "sglang/v0.5.23-idle.prom": {0}, "vllm/v0.32.0-offload.prom": {0},
	} {
		c := collectorWith(t, Config{
			Targets: []TargetConfig{{URL: serve(t, readPage(t, page)).URL}},
			Objectives: []slo.Objective{
				objective(t, "itl", slo.ITL, "1s", "99%"), objective(t, "availability", slo.Availability, "", "99.9%"),
			},
		})
		t.Log(page)
		s := parse(t, exposition(t, c))
		s.want(t, `llm_slo_counted{slo="itl"}`, lacks...)
		if strings.HasPrefix(page, "tei/") {
			s.want(t, `llm_slo_counted{slo="availability"}`, 1)
		}
	}
}
