package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Known bugs of other mappings of engine metrics, each as a test of this mapping.

func TestB1_OnlyOneDataParallelRankKept(t *testing.T) {
	s := page(t, "vllm/v0.28.0-dp8-lora.prom")
	s.want(t, `llm_engine_requests_running`, 42, 35, 28, 21, 51, 44, 37, 30)
	s.want(t, `llm_engine_requests_waiting{dp_rank="3"}`, 21)
	s.want(t, `llm_engine_time_to_first_token_seconds_count{dp_rank="7"}`, 18890)
	s = page(t, "sglang/v0.4.9-dp2.prom")
	s.want(t, `llm_engine_requests_running{dp_rank="0"}`, 18)
	s.want(t, `llm_engine_requests_running{dp_rank="1"}`, 50) // reported by tensor-parallel rank 4
}

func TestB2_UsageSummedOverRanks(t *testing.T) {
	page(t, "vllm/v0.19.0-dp2-spec.prom").want(t, `llm_engine_kv_cache_usage_ratio`, 0.509, 0.708)
	// One engine, two API servers, one of them dead: the same number twice and a stale zero.
	page(t, "vllm/v0.9.2-two-api-servers.prom").want(t, `llm_engine_kv_cache_usage_ratio`, 0.369)
	for _, name := range pages(t) {
		for _, v := range page(t, name).get(t, `llm_engine_kv_cache_usage_ratio`) {
			if v < 0 || v > 1 {
				t.Errorf("%s: usage %v is no ratio", name, v)
			}
		}
	}
}

func TestB3_CounterReadAsGauge(t *testing.T) {
	// nv_inference_exec_count is a counter, and Triton's core does not report running requests.
	page(t, "triton/core-only.prom").want(t, `llm_engine_requests_running`)
	// A source with another type than in the table is refused, and the refusal is reported.
	s := parse(t, mapped(t, "# TYPE vllm:num_requests_running counter\nvllm:num_requests_running{model_name=\"m\",engine=\"0\"} 7\n"+
		"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"m\",engine=\"0\"} 3\n"))
	s.want(t, `llm_engine_requests_running`)
	s.want(t, `llm_engine_requests_waiting`, 3)
	s.want(t, `llm_engine_metric_source_info{metric="llm_engine_requests_running",quality="missing",reason="source is a counter, not a gauge"}`, 1)
	s.want(t, `llm_engine_source_missing_total{metric="llm_engine_requests_running"}`, 1)
}

// TestB4_SourceThatDoesNotExist requires each source on a metrics page; TestCatalogue requires it among the facts.
func TestB4_SourceThatDoesNotExist(t *testing.T) {
	used := sourcesOnPages(t)
	for _, d := range builtin {
		for i := range d.Rows {
			if from := d.Rows[i].From; !used[scrape.FamilyKey(from)] {
				t.Errorf("testdata/pages/%s: no page has %s: write one that does", d.Runtime, from)
			}
		}
	}
}

func TestB5_DeadNames(t *testing.T) {
	// Each name that an engine dropped has a last version, so that its absence from newer metrics pages is not a fault.
	for from, until := range map[string]string{
		"vllm:gpu_cache_usage_perc":            "0.11.x",
		"vllm:time_per_output_token_seconds":   "0.14.x",
		"sglang:time_per_output_token_seconds": "0.4.4.post3",
		"llamacpp:kv_cache_usage_ratio":        "b5440",
	} {
		for _, d := range builtin {
			for _, r := range d.Rows {
				if r.From == from && d.Runtime != metrics.TritonVLLM && r.Until != until {
					t.Errorf("%s: %s ends with %q, want %q", d.Runtime, from, r.Until, until)
				}
			}
		}
	}
	s := page(t, "llamacpp/b5500.prom")
	s.want(t, `llm_engine_kv_cache_usage_ratio`)
	s.want(t, `llm_engine_source_missing_total`)
	s.want(t, `llm_engine_metric_source_info{metric="llm_engine_kv_cache_usage_ratio",quality="missing",reason="only in versions >=b2258 <=b5440"}`, 1)
	page(t, "vllm/v0.4.3-v0.prom").want(t, `llm_engine_kv_cache_usage_ratio`, 0.391)
}

func TestB6_MeanPerRequestTakenForInterTokenLatency(t *testing.T) {
	s := page(t, "trtllm/v1.3.0-full.prom")
	s.want(t, `llm_engine_time_per_output_token_seconds_count`, 364)
	s.want(t, `llm_engine_inter_token_latency_seconds_count`)
	// vLLM's old "per output token" is the time between steps; the mean per request came later.
	s = page(t, "vllm/v0.10.2.prom")
	s.want(t, `llm_engine_inter_token_latency_seconds_count`, 2373243)
	s.want(t, `llm_engine_time_per_output_token_seconds_count`)
	s = page(t, "vllm/v0.14.1-nixl-decode.prom")
	s.want(t, `llm_engine_inter_token_latency_seconds_count`, 4345934)
	s.want(t, `llm_engine_time_per_output_token_seconds_count`, 11402)
	s = page(t, "sglang/v0.4.4.prom")
	s.want(t, `llm_engine_inter_token_latency_seconds_count`, 164971)
	s.want(t, `llm_engine_time_per_output_token_seconds_count`, 877)
}

func TestB7_TotalDroppedOrAdded(t *testing.T) {
	s := page(t, "vllm/simulator-style.prom") // vllm:prefix_cache_hits
	s.want(t, `llm_engine_prefix_cache_query_tokens_total`, 88321)
	s.want(t, `llm_engine_prefix_cache_hit_tokens_total`, 31744)
	page(t, "vllm/v0.11.2.prom").want(t, `llm_engine_prefix_cache_hit_tokens_total`, 4611792) // vllm:prefix_cache_hits_total
}

func TestB8_LabelsOfAnotherEngine(t *testing.T) {
	// Two engines of different kinds on one exporter, in both orders: each series carries the labels
	// of its own engine and only those.
	for _, order := range [][]string{{"vllm/v0.19.0-dp2-spec.prom", "sglang/v0.5.12-prefill.prom"}, {
		"sglang/v0.5.12-prefill.prom",
		"vllm/v0.19.0-dp2-spec.prom",
	}} {
		var targets []TargetConfig
		for _, name := range order {
			targets = append(targets, TargetConfig{URL: serve(t, readPage(t, name)).URL})
		}
		s := parse(t, exposition(t, collectorFor(t, targets)))
		for _, sample := range s {
			if sample.labels.Get("runtime") == "sglang" && sample.labels.Has("dp_rank") || sample.labels.Get("runtime") == "vllm" &&
				sample.labels.Has("role") {
				t.Errorf("labels mixed up: %s", sample.labels)
			}
		}
		s.want(t, `llm_engine_requests_running{runtime="vllm",model_name="qwen3-235b"}`, 11, 41)
		s.want(t, `llm_engine_requests_running{runtime="sglang",model_name="deepseek-v3-pd",role="prefill"}`, 21)
	}
}

func TestB9_SumOverSum(t *testing.T) {
	// The mean that a user computes from sum and count is the engine's mean, not 1.
	s := page(t, "vllm/v0.11.2.prom")
	mean := s.get(t, `llm_engine_time_per_output_token_seconds_sum`)[0] / s.get(t, `llm_engine_time_per_output_token_seconds_count`)[0]
	if want := 422.728948908161 / 8698; mean != want {
		t.Errorf("mean TPOT %v, want %v", mean, want)
	}
}

func TestB10_RouterThatRepeatsEngineMetrics(t *testing.T) {
	for _, name := range []string{"vllm/production-stack-router.prom", "sglang/gateway.prom", "other/llm-d-epp.prom"} {
		s := page(t, name)
		s.want(t, `llm_engine_up`, 1)
		s.want(t, `{__name__=~"llm_engine_(requests|time_to|kv|prompt).*",role!="gateway"}`)
		s.want(t, `{__name__=~"llm_engine_kv.*"}`) // copies
	}
}

func TestB11_HitRateGaugeOverwrittenPerBatch(t *testing.T) {
	s := page(t, "sglang/v0.5.9-priority.prom")
	s.want(t, `llm_engine_prefix_cache_query_tokens_total`, 1089677)
	s.want(t, `llm_engine_prefix_cache_hit_tokens_total`, 289924+54360+18121) // device, host, storage
	for _, d := range builtin {
		for _, r := range d.Rows {
			if strings.Contains(r.From, "hit_rate") {
				t.Errorf("%s: %s is a rate somebody else computed", d.Runtime, r.From)
			}
		}
	}
}

func TestB12_PriorityRowsCountedBesideTheirTotal(t *testing.T) {
	s := page(t, "sglang/v0.5.9-priority.prom")
	s.want(t, `llm_engine_requests_running`, 25)
	s.want(t, `llm_engine_requests_waiting`, 3)
	// Without a total, the sum of the rows counts.
	s = parse(t, mapped(t, "# TYPE sglang:prompt_tokens_total counter\n"+
		"sglang:prompt_tokens_total{model_name=\"m\",priority=\"0\"} 30\nsglang:prompt_tokens_total{model_name=\"m\",priority=\"1\"} 12\n"))
	s.want(t, `llm_engine_prompt_tokens_total`, 42)
}

func TestB13_AllSchedulersReport(t *testing.T) {
	s := page(t, "sglang/v0.5.10-all-schedulers.prom") // four tensor-parallel ranks times two data-parallel ranks
	s.want(t, `llm_engine_requests_running{dp_rank="0"}`, 10)
	s.want(t, `llm_engine_requests_running{dp_rank="1"}`, 42)
	s.want(t, `llm_engine_requests_running`, 10, 42)
	s.want(t, `llm_engine_preemptions_total`, 6, 10)
	s.want(t, `llm_engine_queue_time_seconds_count`, 1141, 1234)
}

func TestB14_FirstTokenTimesOfAnswersThatAreNotStreamed(t *testing.T) {
	s := page(t, "sglang/v0.5.17-streaming.prom")
	s.want(t, `llm_engine_time_to_first_token_seconds_count`, 1658)
	s.want(t, `llm_engine_request_duration_seconds_count`, 1651+708)
	// If such answers cannot be distinguished, the quality is "approximate".
	page(t, "sglang/v0.5.10-all-schedulers.prom").
		want(t, `llm_engine_metric_source_info{metric="llm_engine_time_to_first_token_seconds",quality="approximate"}`, 1)
}

func TestB15_HitRatioUpsideDown(t *testing.T) {
	checked := 0
	for _, name := range pages(t) {
		s := page(t, name)
		for _, kind := range []string{"", "external_"} {
			hits, queries := s.get(t, `llm_engine_`+kind+`prefix_cache_hit_tokens_total`),
				s.get(t, `llm_engine_`+kind+`prefix_cache_query_tokens_total`)
			for i := range min(len(hits), len(queries)) {
				checked++
				if hits[i] > queries[i] {
					t.Errorf("%s: %v hits of %v queries", name, hits[i], queries[i])
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d pairs of hits and queries on all pages", checked)
	}
}

// TestLabelsStayWithTheirEngine checks the property behind B8: whatever metrics pages are scraped together, a
// series of one engine only has label values that its own metrics page or target gave it.
func TestLabelsStayWithTheirEngine(t *testing.T) {
	names := slices.DeleteFunc(pages(t), func(name string) bool { return !strings.HasSuffix(name, ".prom") })
	own := map[string]map[string]bool{} // series of a metrics page scraped alone, by server
	var targets []TargetConfig
	for _, name := range names {
		e := serve(t, readPage(t, name))
		targets = append(targets, TargetConfig{URL: e.URL, Labels: map[string]string{"page": name}})
		own[name] = map[string]bool{}
		for _, s := range parse(t, exposition(t, collectorFor(t, targets[len(targets)-1:]))) {
			own[name][withoutServer(s.labels)] = true
		}
	}
	c := collectorFor(t, targets)
	var wrong []string
	for range 5 { // a busy machine may answer the exporter too late
		together := map[string]map[string]bool{}
		for _, s := range parse(t, exposition(t, c)) {
			name := s.labels.Get("page")
			if together[name] == nil {
				together[name] = map[string]bool{}
			}
			together[name][withoutServer(s.labels)] = true
		}
		wrong = nil
		for _, name := range names {
			if !maps.Equal(own[name], together[name]) {
				wrong = append(wrong, fmt.Sprintf("%s has %d series alone and %d others beside other engines", name, len(own[name]),
					len(together[name])))
			}
		}
		if len(wrong) == 0 {
			return
		}
	}
	t.Error(strings.Join(wrong, "\n"))
}

func withoutServer(ls labels.Labels) string {
	return labels.NewBuilder(ls).Del("server").Labels().String()
}
