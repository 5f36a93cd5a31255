package engine

import (
	"strings"
	"testing"
)

// TestOneBlockMore checks the backend of TensorRT-LLM, which may count one block more as used or free than exist.
// Values under the wrong labels are still recognised, because they differ by more than a block, or by the fraction
// that newer backends add.
func TestOneBlockMore(t *testing.T) {
	s := page(t, "triton/trtllm-v0.7-one-block-more.prom")
	s.want(t, `llm_engine_kv_cache_usage_ratio`, 1./6239)
	s.want(t, `llm_engine_kv_cache_capacity_tokens`, 6239*64)
	const used = `nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",`
	body := readPage(t, "triton/trtllm-v0.7-one-block-more.prom")
	shifted := strings.Replace(body, used, strings.Replace(used, "used", "fraction", 1)+`model="tensorrt_llm",version="1"} 0.4875`+"\n"+
		used, 1)
	parse(t, mapped(t, shifted)).want(t, `llm_engine_kv_cache_usage_ratio`)
	page(t, "triton/trtllm-v0.18-shifted.prom").want(t, `llm_engine_kv_cache_usage_ratio`)
}

// TestFirstPageOfSGLang checks 0.3.5, which had the model in the label name, and other names for requests.
func TestFirstPageOfSGLang(t *testing.T) {
	s := page(t, "sglang/v0.3.5-name.prom")
	s.want(t, `llm_engine_requests_running{model_name="google/gemma-2-9b-it"}`, 31)
	s.want(t, `llm_engine_requests_waiting{model_name="google/gemma-2-9b-it"}`, 6)
	s.want(t, `llm_engine_generation_tokens_total{model_name="google/gemma-2-9b-it"}`, 424549)
}

// TestFullestPoolOfSGLang checks releases before 0.5.11: their gauge of the KV cache left out Mamba's states,
// although these may be the full part.
func TestFullestPoolOfSGLang(t *testing.T) {
	page(t, "sglang/v0.5.8-mamba.prom").want(t, `llm_engine_kv_cache_usage_ratio`, 0.96)
	newer := strings.Replace(readPage(t, "sglang/v0.5.23-loaded.prom"), "sglang:mamba_usage{", "sglang:mamba_usage{x=\"1\",", 1)
	parse(t, mapped(t, newer)).
		want(t, `llm_engine_metric_source_info{metric="llm_engine_kv_cache_usage_ratio",quality="native",source="sglang:token_usage"}`, 1)
}

// TestTimePerTokenOfSGLang checks releases from 0.5.22 on, which count the time per output token of each request.
func TestTimePerTokenOfSGLang(t *testing.T) {
	// without the warm-up, which is no stream
	page(t, "sglang/v0.5.23-loaded.prom").want(t, `llm_engine_time_per_output_token_seconds_count`, 28)
}

// TestRenamedTiersOfVLLM checks 0.32, which counts lookups in chunks, and reports where cached tokens came from.
func TestRenamedTiersOfVLLM(t *testing.T) {
	s := page(t, "vllm/v0.32.0-offload.prom")
	s.want(t, `llm_engine_kv_tier_lookups_total{tier="disk"}`, 8100)
	s.want(t, `llm_engine_kv_tier_hits_total{tier="disk"}`, 2900)
	for tier, tokens := range map[string]float64{"host": 41000, "remote": 700, "disk": 5200, "storage": 90} {
		s.want(t, `llm_engine_kv_tier_hit_tokens_total{tier="`+tier+`"}`, tokens)
	}
	s.want(t, `llm_engine_kv_tier_refused_total{tier="disk"}`, 6)
	s.want(t, `llm_engine_kv_tier_refused_total{tier="host"}`, 31)
	s.want(t, `llm_engine_kv_tier_pinned_ratio{tier="host"}`, 0.375)
	s.want(t, `llm_engine_kv_tier_transfer_bytes_total{tier="host",operation="fetch"}`, 7.5e9)
	page(t, "vllm/v0.32.0-healthy.prom").want(t, `llm_engine_kv_tier_hit_tokens_total`) // all are 0 where there is no tier
}

// TestAphroditeIsVLLM checks that Aphrodite's metrics page is vLLM's under another prefix.
func TestAphroditeIsVLLM(t *testing.T) {
	s, same := page(t, "vllm/aphrodite-v0.20.prom"), page(t, "vllm/v0.11.2.prom")
	for _, name := range []string{
		`llm_engine_up{runtime="vllm"}`, `llm_engine_requests_total`, `llm_engine_kv_cache_usage_ratio`,
		`llm_engine_time_to_first_token_seconds_count`, `llm_engine_generation_tokens_total`,
	} {
		s.want(t, name, same.get(t, name)...)
	}
}

// TestModularMAX reads milliseconds, and gives each series the model of the only pipeline.
func TestModularMAX(t *testing.T) {
	s := page(t, "modular_max/04c9bae-loaded.prom")
	const model = `{model_name="meta-llama/Llama-3.1-8B-Instruct"}`
	s.want(t, `llm_engine_requests_waiting`+model, 7)
	s.want(t, `llm_engine_kv_cache_usage_ratio`+model, 0.25)
	s.want(t, `llm_engine_time_to_first_token_seconds_sum`+model, 98)
	s.want(t, `llm_engine_model_load_seconds`)
	s.want(t, `llm_engine_requests_total{outcome="success"}`, 400)
	s.want(t, `llm_engine_requests_total{outcome="error"}`, 3)
	s.want(t, `llm_engine_requests_total{outcome="abort"}`, 7)
	s.want(t, `llm_engine_prefix_cache_query_tokens_total`, 210000)
	two := readPage(t, "modular_max/04c9bae-loaded.prom") + "maxserve_pipeline_load_total{model=\"another\"} 1\n"
	parse(t, mapped(t, two)).want(t, `llm_engine_requests_waiting`+model)
}

// TestHigressCountsTokens checks Higress, which counts tokens by model, while its Envoy or its sidecar counts by route. No
// quantile follows from sums.
func TestHigressCountsTokens(t *testing.T) {
	for _, name := range []string{"envoy", "istio"} {
		s := page(t, name+"/higress-2.2.1.prom")
		s.want(t, `llm_engine_prompt_tokens_total{model_name="qwen-turbo",role="gateway"}`, 2410)
		s.want(t, `llm_engine_generation_tokens_total{model_name="qwen-turbo",role="gateway"}`, 50700)
		if len(s.get(t, `llm_engine_metric_source_info{metric="llm_engine_time_to_first_token_seconds",quality="missing",reason=~".*no quantile.*"}`)) != 1 {
			t.Errorf("%s: nothing says why the first token is missing", name)
		}
	}
}

// TestPickerWithoutEndpoints checks that a picker without endpoints is an outage. Endpoints with stale numbers are
// not an outage: requests still reach them.
func TestPickerWithoutEndpoints(t *testing.T) {
	for _, name := range []string{"llmd_router/v0.10.0-no-endpoints.prom", "epp/v1.5.0-no-pods.prom"} {
		s := page(t, name)
		s.want(t, `llm_engine_up{reason="no_worker"}`, 0)
		body := strings.NewReplacer(`ready_endpoints{name="qwen3-pool"} 0`, `ready_endpoints{name="qwen3-pool"} 2`,
			`ready_pods{name="qwen3-pool"} 0`, `ready_pods{name="qwen3-pool"} 2`).Replace(readPage(t, name))
		up := parse(t, mapped(t, body))
		up.want(t, `llm_engine_up`, 1)
		up.want(t, `llm_engine_prefix_cache_hit_tokens_total{model_name="qwen3-32b"}`, 410000)
		up.want(t, `llm_engine_prefix_cache_query_tokens_total{model_name="qwen3-32b"}`, 720000)
		up.want(t, `llm_gateway_rejections_total{model_name="qwen3-32b",reason="no_endpoint"}`, 14)
	}
	page(t, "llmd_router/v0.10.0-stale.prom").want(t, `llm_engine_up`, 1)
	page(t, "epp/v1.5.0-idle.prom").want(t, `llm_engine_up`, 1)
}

// TestMigrationsAreRetries checks a request that moves to another worker and ends well, so only the retry shows the
// failed worker.
func TestMigrationsAreRetries(t *testing.T) {
	page(t, "dynamo/frontend-v1.6.0-migration.prom").want(t, `llm_gateway_retries_total{model_name="Tiny/Mock",role="frontend"}`, 8)
	page(t, "dynamo/worker-vllm.prom").want(t, `llm_engine_metric_source_info{metric="llm_gateway_retries_total"}`)
}

// TestQueueOfDynamoWorker checks that requests that wait for the worker's pool count as waiting if its engine does
// not report waiting requests.
func TestQueueOfDynamoWorker(t *testing.T) {
	body := strings.Replace(readPage(t, "dynamo/worker-v1.6.0-mocker.prom"), "dynamo_work_handler_queue_depth 0",
		"dynamo_work_handler_queue_depth 31", 1)
	parse(t, mapped(t, body)).want(t, `llm_engine_requests_waiting`, 31)
}

// TestFamiliesWithoutSeries checks Python's client, which declares a family with labels when it is made, and writes
// its first series with the first value. An engine that has served nothing is up nevertheless, and lacks nothing.
func TestFamiliesWithoutSeries(t *testing.T) {
	var declared strings.Builder
	for line := range strings.Lines(readPage(t, "vllm/v0.4.3-v0.prom")) {
		if strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "python_info") {
			declared.WriteString(line)
		}
	}
	e := serve(t, declared.String()+"# TYPE python_info gauge\npython_info{version=\"3.10\"} 1\n")
	e.documents["/v1/models"] = `{"data": [{"id": "qwen3-32b", "owned_by": "vllm"}]}`
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	s := parse(t, exposition(t, c))
	s.want(t, `llm_engine_up{runtime="vllm"}`, 1)
	s.want(t, `llm_engine_info{runtime="vllm",model_name="qwen3-32b"}`, 1)
	s.want(t, `llm_engine_source_missing_total`)
	s.want(t, `llm_engine_requests_running`)
	e.show(readPage(t, "vllm/v0.4.3-v0.prom"))
	parse(t, exposition(t, c)).want(t, `llm_engine_requests_running`, 25)
	if up := parse(t, mapped(t, "# TYPE node_load1 gauge\n")).get(t, `llm_engine_up`); len(up) != 1 || up[0] != 0 {
		t.Errorf("a page that declares no engine's family is up: %v", up)
	}
}

// TestQueueOfSMG checks requests that its scheduler of priorities holds back or refuses, which are on no engine's
// metrics page.
func TestQueueOfSMG(t *testing.T) {
	s := page(t, "smg/v1.9.0-48-scheduler.prom")
	s.want(t, `llm_engine_requests_waiting{role="gateway"}`, 15)
	s.want(t, `llm_engine_queue_time_seconds_count`) // a summary does not give a share of requests
	s.want(t, `llm_gateway_rejections_total{reason="capacity",priority="bulk"}`, 8)
	s.want(t, `llm_gateway_rejections_total{reason="timeout",priority="bulk"}`, 3)
}

// TestQueueOfLMDeploy checks that requests also wait in the API server, for a free handle.
func TestQueueOfLMDeploy(t *testing.T) {
	page(t, "lmdeploy/v0.14.0.prom").want(t, `llm_engine_requests_waiting{dp_rank="0"}`, 10)
	page(t, "lmdeploy/v0.14.0.prom").want(t, `llm_engine_requests_waiting{dp_rank="1"}`, 6)
	below := strings.Replace(readPage(t, "lmdeploy/v0.14.0.prom"),
		`lmdeploy:num_api_requests_waiting{engine="0",model_name="internlm3-70b"} 2.0`,
		`lmdeploy:num_api_requests_waiting{engine="0",model_name="internlm3-70b"} -1.0`, 1)
	parse(t, mapped(t, below)).want(t, `llm_engine_requests_waiting{dp_rank="0"}`, 8)
}
