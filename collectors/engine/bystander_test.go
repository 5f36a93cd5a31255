package engine

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
)

// TestWhosePageItIs distinguishes engines from servers in front of them, beside them, or on their machine, and
// requires the names of these servers.
func TestWhosePageItIs(t *testing.T) {
	const vllm = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 3\n"
	one := func(names ...string) string {
		var page strings.Builder
		for _, n := range names {
			page.WriteString(n + " 1\n")
		}
		return page.String()
	}
	for _, c := range []struct{ what, page, runtime, reason, named string }{
		{"vLLM", vllm, "vllm", "", ""},
		{"KServe with vLLM", readPage(t, "kserve/huggingface-vllm.prom"), "vllm", "", ""},
		{"qpext with vLLM", readPage(t, "kserve/qpext-vllm.prom"), "vllm", "", ""},
		{"a mesh with vLLM", readPage(t, "other/vllm-in-mesh.prom"), "vllm", "", ""},
		{"vLLM with LMCache", vllm + one("lmcache:num_retrieve_requests_total"), "vllm", "", ""},
		{"vLLM on Ray", one("ray_vllm_num_requests_running", "ray_serve_num_ongoing_http_requests", "ray_node_cpu_utilization"), "vllm", "", ""},
		{"Xinference with vLLM", vllm + one(`xinference:input_tokens_total_counter{model="m"}`), "vllm", "", ""},
		{"Xinference", readPage(t, "xinference/worker-80d09b9.prom"), "xinference", "", ""},

		{"KServe alone", readPage(t, "kserve/python-server.prom"), "", "not_an_engine", "KServe's Python server"},
		{"queue-proxy for the autoscaler", readPage(t, "kserve/queue-proxy-autoscaling.prom"), "", "not_an_engine", "Knative's queue-proxy"},
		{"activator", one("activator_request_count"), "", "router", "Knative's activator"},
		{"Xinference's supervisor", readPage(t, "xinference/supervisor.prom"), "", "router", "the supervisor of Xinference"},

		{"production stack", readPage(t, "vllm/production-stack-router.prom"), "production_stack", "", ""},
		{"production stack, newer", readPage(t, "production_stack/a6c01db-loaded.prom") + vllm, "production_stack", "", ""},
		{"SMG with its workers' pages", readPage(t, "sglang/gateway.prom"), "smg", "", ""},
		{"SGLang's router", readPage(t, "sglang_router/v0.2-loaded.prom") + vllm, "sglang_router", "", ""},
		{"endpoint picker", readPage(t, "epp/v1.5.0-loaded.prom") + vllm, "epp", "", ""},
		{"endpoint picker without requests", readPage(t, "epp/v1.5.0-idle.prom"), "epp", "", ""},
		{"llm-d's router, which repeats its old names", readPage(t, "llmd_router/v0.9.0-loaded.prom") + vllm, "llmd_router", "", ""},
		{"LiteLLM with a copy", readPage(t, "other/litellm.prom") + vllm, "litellm", "", ""},
		{"Envoy AI Gateway", readPage(t, "envoy_ai/v1.1.0-loaded.prom") + vllm, "envoy_ai", "", ""},
		{
			"Envoy AI Gateway on an Envoy's page", readPage(t, "envoy_ai/v1.1.0-loaded.prom") + readPage(t, "envoy/gateway-loaded.prom"),
			"envoy_ai", "", "",
		},
		{"Ray Serve", readPage(t, "ray_serve/2.50-loaded.prom"), "ray_serve", "", ""},
		{"Ray Serve with vLLM", readPage(t, "ray_serve/2.50-loaded.prom") + vllm, "vllm", "", ""},
		{"queue-proxy, OpenCensus", readPage(t, "kserve/queue-proxy-opencensus.prom"), "knative", "", ""},
		{"queue-proxy, OpenTelemetry", readPage(t, "kserve/queue-proxy-otel.prom"), "knative", "", ""},
		{"qpext without an engine", readPage(t, "kserve/queue-proxy-otel.prom") + readPage(t, "kserve/python-server.prom"), "knative", "", ""},
		{"Istio", readPage(t, "istio/gateway-loaded.prom"), "istio", "", ""},
		{"Istio beside LightLLM", readPage(t, "istio/gateway-loaded.prom") + readPage(t, "lightllm/008f5e9-loaded.prom"), "lightllm", "", ""},
		{"Envoy", readPage(t, "envoy/gateway-loaded.prom"), "envoy", "", ""},
		{"Envoy beside vLLM", vllm + readPage(t, "envoy/gateway-loaded.prom"), "vllm", "", ""},
		{"Ray Serve without its proxies", one("ray_serve_deployment_replica_healthy", "ray_node_cpu_utilization"), "", "router", "Ray Serve"},
		{"Istio without its requests", one("istio_agent_pilot_xds"), "", "not_an_engine", "Istio's proxy, a sidecar"},
		{"Envoy without its clusters", one("envoy_server_live"), "", "not_an_engine", "Envoy, a proxy"},
		{"queue-proxy in a mesh", one("istio_requests_total", "revision_request_count"), "knative", "", ""},

		{"agentgateway", one("agentgateway_requests_total"), "", "router", "agentgateway"},
		{"another with GenAI metrics", one("gen_ai_client_token_usage_total"), "", "router", "OpenTelemetry's GenAI"},
		{"AIBrix", one("gateway_request_model_success_total", "go_goroutines"), "", "router", "AIBrix"},
		{"Kong", one("kong_ai_llm_requests_total"), "", "router", "Kong"},
		{"Ray", one("ray_node_cpu_utilization"), "", "not_an_engine", "Ray's metrics agent"},
		{
			"Pushgateway with LightLLM", one("push_time_seconds{job=\"lightllm\"}", "lightllm_queue_size{job=\"lightllm\"}"), "",
			"not_an_engine", "a Pushgateway",
		},
		{"dcgm-exporter", one("DCGM_FI_DEV_GPU_UTIL"), "", "not_an_engine", "dcgm-exporter"},
		{"node_exporter", readPage(t, "other/node-exporter.prom"), "", "not_an_engine", "node_exporter"},
		{"an exporter for Ollama", one("ollama_requests_total"), "", "not_an_engine", "mappings"},
		{"NIXL", readPage(t, "other/nixl-agent.prom"), "nixl", "", ""},
		{"LMCache", one("lmcache_mp_l1_usage_ratio"), "lmcache", "", ""},
		{"this exporter", mapped(t, vllm), "", "not_an_engine", "llm-node-exporter"},
		{"nobody known", one("teapot_spouts"), "", "unknown_engine", "teapot_spouts"},
	} {
		var logged bytes.Buffer
		col := collectorWith(t, Config{Targets: []TargetConfig{{URL: serve(t, c.page).URL}}, Log: slog.New(slog.NewTextHandler(&logged, nil))})
		s := parse(t, exposition(t, col))
		if c.reason == "" {
			s.want(t, `llm_engine_up{runtime="`+c.runtime+`"}`, 1)
		} else {
			s.want(t, `llm_engine_up{reason="`+c.reason+`"}`, 0)
		}
		if len(s.get(t, `llm_engine_up`)) != 1 || t.Failed() {
			t.Fatalf("%s: up is wrong", c.what)
		}
		e := col.Engines()[0]
		if !strings.Contains(e.Detail, c.named) || !strings.Contains(logged.String(), c.named) || e.Reason != c.reason {
			t.Errorf("%s: reason %q, said %q, logged %q: want %q", c.what, e.Reason, e.Detail, logged.String(), c.named)
		}
	}
}

// TestNoEngineIsTakenForABystander compares the table with every metrics page of an engine.
func TestNoEngineIsTakenForABystander(t *testing.T) {
	for _, name := range pages(t) {
		body, err := engineFormat.Sanitise([]byte(readPage(t, name)), name, "text/plain")
		if err != nil {
			continue
		}
		p, err := engineFormat.Parse(body, "text/plain", scrape.DefaultLimits)
		if err != nil {
			continue
		}
		for _, d := range builtin {
			if b := bystanderOf(p, true); d.Recognise(p) && b != nil {
				t.Errorf("%s: %s is taken for %s", name, d.Runtime, b.name)
			}
		}
	}
}

// TestStartOfTheContainer checks a metrics page on which KServe joins two processes: only one of them is the engine.
func TestStartOfTheContainer(t *testing.T) {
	joined := readPage(t, "kserve/qpext-vllm.prom")
	const container = `process_start_time_seconds{service_name="summariser-predictor"`
	if !strings.Contains(joined, container) || !strings.Contains(joined, "\nprocess_start_time_seconds 1.7865301e+09\n") {
		t.Fatal("the page lacks a process")
	}
	parse(t, mapped(t, joined)).want(t, `llm_engine_start_time_seconds`, 1787317410.75)
	var without strings.Builder // a vLLM with several processes does not report when it started
	for line := range strings.Lines(joined) {
		if !strings.HasPrefix(line, container) {
			without.WriteString(line)
		}
	}
	parse(t, mapped(t, without.String())).want(t, `llm_engine_start_time_seconds`)
}

// TestIdleTEIIsUp checks Hugging Face's two servers, which have no series before the first request but answer /info.
func TestIdleTEIIsUp(t *testing.T) {
	for info, runtime := range map[string]string{"tei-info.json": "tei", "tgi-info.json": "tgi"} {
		e := serve(t, "")
		e.documents["/info"] = identity(t, info)
		s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))
		s.want(t, `llm_engine_up{runtime="`+runtime+`"}`, 1)
		if runtime == "tei" {
			s.want(t, `llm_engine_max_model_len_tokens{model_name="BAAI/bge-m3"}`, 8192)
			s.want(t, `llm_engine_info{model_name="BAAI/bge-m3",version="1.7.2"}`, 1)
		}
	}
}

// TestLightLLMNamesItsModel checks that LightLLM names its model in a separate answer.
func TestLightLLMNamesItsModel(t *testing.T) {
	e := serve(t, readPage(t, "lightllm/008f5e9-loaded.prom"))
	e.documents["/get_model_name"] = `{"model_name": "deepseek-v3"}`
	parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}}))).want(t, `llm_engine_requests_running{model_name="deepseek-v3"}`, 14)
}
