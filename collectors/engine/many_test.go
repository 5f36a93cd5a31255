package engine

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestSeveralModelsAtOneAddress checks each way to have several models. Whatever /v1/models lists first, a number
// has the name of its model, or none if it is about all models. The second model's first request changes no name.
func TestSeveralModelsAtOneAddress(t *testing.T) {
	const tokens, running, requests = "llm_engine_generation_tokens_total", "llm_engine_requests_running", "llm_engine_requests_total"
	for _, c := range []struct {
		way, page string
		second    []string // replacements that turn the first model's series into the second's; nil if there are two models, or always one
		shown     string   // prefix of the families that name a model before the first request for it
		lists     []string // at /v1/models; parent<adapter
		names     []string // models in the series: one, and a second if the metrics page has it
		of        string   // a quantity, with its sums over the series of the two models
		is        [2]float64
		other     string // a name that clients may use, too
	}{
		{
			way: "LiteLLM", page: "litellm/main-loaded.prom", lists: []string{"qwen3-32b", "gpt-oss-120b"},
			names: []string{"qwen3-32b", "gpt-oss-120b"}, of: tokens, is: [2]float64{10215569, 1017639},
		},
		{
			way: "LiteLLM, one deployment asked", page: "litellm/v1.106.2-load.prom", second: []string{
				`"solo"`, `"duo"`, `"up"`, `"down"`,
				`"dep-s"`, `"dep-d"`,
			},
			lists: []string{"solo", "duo"}, names: []string{"solo", "duo"}, of: tokens, is: [2]float64{180, 360},
		},
		{
			way: "production-stack", page: "production_stack/a6c01db-loaded.prom", lists: []string{"qwen3-8b", "gpt-oss-20b"},
			names: []string{"qwen3-8b", "gpt-oss-20b"}, of: tokens, is: [2]float64{1600065, 240007},
		},
		{
			way: "endpoint picker", page: "epp/v1.5.0-loaded.prom", lists: []string{"qwen3-32b", "qwen3-32b<qwen3-32b-lora"},
			names: []string{"qwen3-32b", "qwen3-32b-lora"}, other: "chat", of: tokens, is: [2]float64{3352118.5, 258098},
		},
		{
			way: "llm-d's router", page: "llmd_router/v0.9.0-loaded.prom", lists: []string{"qwen3-32b", "qwen3-32b-lora"},
			names: []string{"qwen3-32b", "qwen3-32b-lora"}, other: "chat", of: tokens, is: [2]float64{3352118.5, 258098},
		},
		{
			way: "Envoy AI Gateway", page: "envoy_ai/v1.1.0-loaded.prom", second: []string{
				`"chat"`, `"code"`, "wen3-32B", "wen3-Coder",
				"wen3-32b", "wen3-coder",
			},
			lists: []string{"chat", "code"}, names: []string{"Qwen/Qwen3-32B", "Qwen/Qwen3-Coder"}, of: tokens, is: [2]float64{1932918, 3865836},
		},
		{
			way: "Higress", page: "envoy/higress-2.2.1.prom", second: []string{"qwen-turbo", "qwen-plus"},
			lists: []string{"qwen-turbo", "qwen-plus"}, names: []string{"qwen-turbo", "qwen-plus"}, of: tokens, is: [2]float64{50700, 101400},
		},
		{
			way: "SMG", page: "smg/v1.9.0-loaded.prom", second: []string{"qwen3-8b", "gemma-3-27b"}, shown: "smg_worker_pool_size",
			lists: []string{"qwen3-8b", "gemma-3-27b"}, names: []string{"qwen3-8b", "gemma-3-27b"}, of: tokens, is: [2]float64{1803210, 3606420},
		},
		{
			way: "SGLang's router", page: "smg/sglang-router-v0.3.2-load.prom", second: []string{`model="up"`, `model="down"`},
			shown: "smg_worker_pool_size", lists: []string{"up", "down"}, names: []string{"up", "down"},
		},
		{
			way: "Dynamo's frontend", page: "dynamo/frontend-v1.6.0-migration.prom", second: []string{"Tiny/Mock", "Other/Mock"},
			shown: "dynamo_frontend_model_",
			lists: []string{"Tiny/Mock", "Other/Mock"}, names: []string{"Tiny/Mock", "Other/Mock"}, of: tokens, is: [2]float64{11400, 22800},
		},
		{
			way: "LMCache's server", page: "lmcache/server.prom", second: []string{"llama-5-70b", "llama-5-8b"}, lists: []string{
				"llama-5-70b",
				"llama-5-8b",
			},
			names: []string{"llama-5-70b", "llama-5-8b"}, of: "llm_engine_kv_tier_query_tokens_total", is: [2]float64{800000, 1600000},
		},
		{
			way: "Ray Serve LLM", page: "vllm/ray-v0.12.prom", second: []string{
				"ray-llama", "ray-qwen", "Kx7mQ2pw", "Ab3cD4ef", "Zr4tV9ns",
				"Gh5iJ6kl", "a41f0cde90b14c3a", "c52a1bdf81e05d4b", "b93d7e55aa02f61e", "d04e8f66bb13a72f",
			},
			lists: []string{"ray-llama", "ray-qwen"}, names: []string{"ray-llama", "ray-qwen"}, of: tokens, is: [2]float64{9842666, 19685332},
		},
		{
			way: "Ray Serve", page: "ray_serve/2.50-loaded.prom", second: []string{
				"llm_app", "embed_app", `"a1"`, `"a3"`, `"a2"`, `"a4"`,
				`"h1"`, `"h3"`, `"h2"`, `"h4"`,
			},
			lists: []string{"llm_app", "embed_app"}, names: []string{"llm_app", "embed_app"}, of: requests, is: [2]float64{3356, 6712},
		},
		{
			way: "Triton", page: "triton/core-only.prom", second: []string{"ranker_py", "embed_py"}, lists: []string{"ranker_py", "embed_py"},
			names: []string{"ranker_py", "embed_py"}, of: requests, is: [2]float64{40146, 80292},
		},
		{
			way: "Triton, TensorRT-LLM", page: "triton/trtllm-v0.18-ensemble.prom", second: []string{`"tensorrt_llm"`, `"tensorrt_llm_2"`},
			lists: []string{"tensorrt_llm", "tensorrt_llm_2"},
			names: []string{"tensorrt_llm", "tensorrt_llm_2"}, of: tokens, is: [2]float64{324115, 648230},
		},
		{
			way: "Triton, vLLM", page: "triton/vllm-backend.prom", second: []string{"vllm_model", "vllm_model_2"},
			lists: []string{"vllm_model", "vllm_model_2"},
			names: []string{"vllm_model", "vllm_model_2"}, of: tokens, is: [2]float64{161084, 322168},
		},
		{
			way: "Xinference", page: "xinference/worker-2026.prom", lists: []string{"qwen3", "bge-m3"}, names: []string{"qwen3", "bge-m3"},
			of: running, is: [2]float64{18, 1},
		},
		{
			way: "Ollama", page: "ollama/0.12.6-two-on-cpu.json", lists: []string{"gemma3:27b", "nomic-embed-text:latest", "llama3.2:3b"},
			names: []string{"gemma3:27b", "nomic-embed-text:latest"},
			of:    "llm_engine_model_memory_bytes", is: [2]float64{26843545600, 849346560},
		},
		{
			way: "KServe's page beside vLLM's", page: "kserve/huggingface-vllm.prom", lists: []string{"granite-4-small", "summariser"},
			names: []string{"granite-4-small"}, of: tokens, is: [2]float64{3210715},
		},
		{
			way: "vLLM with adapters", page: "vllm/v0.32.0-dp2-lora.prom", lists: []string{"tiny", "tiny<ad1", "tiny<ad2", "tiny<ad3"},
			names: []string{"tiny"}, of: tokens, is: [2]float64{999},
		},
		{
			way: "vLLM with two served names", page: "vllm/v0.32.0-healthy.prom", lists: []string{"tiny", "alias"}, names: []string{"tiny"},
			of: tokens, is: [2]float64{192484},
		},
		{
			way: "SGLang with adapters", page: "sglang/v0.5.8-lora.prom", lists: []string{"qwen3-4b", "qwen3-4b<fr"},
			names: []string{"qwen3-4b"}, of: running, is: [2]float64{6},
		},
		{
			way: "LMDeploy with adapters", page: "lmdeploy/v0.14.0.prom", lists: []string{"internlm3-70b", "fr"},
			names: []string{"internlm3-70b"}, of: tokens, is: [2]float64{215978},
		},
		{
			way: "NIM with adapters", page: "nim/1.x.prom", lists: []string{"meta/llama-3.1-8b-instruct", "fr"},
			names: []string{"meta/llama-3.1-8b-instruct"}, of: tokens, is: [2]float64{110723},
		},
		{way: "llama.cpp with an alias", page: "llamacpp/b10450-loaded.prom", lists: []string{"a", "b"}},
		{way: "LightLLM", page: "lightllm/5d59e49-loaded.prom", lists: []string{"a", "b"}},
		{way: "TGI", page: "tgi/v3.3.7-loaded.prom", lists: []string{"a", "b"}},
		{way: "vLLM's router", page: "vllm_router/v0.1.17-load.prom", lists: []string{"a", "b"}},
	} {
		t.Run(c.way, func(t *testing.T) {
			whole, first := twoModels(readPage(t, c.page), c.second, c.shown)
			read := func(page string, lists []string) samples {
				e := serve(t, page)
				if strings.HasSuffix(c.page, ".json") {
					e.path = "/api/ps"
				}
				e.documents["/v1/models"] = modelsDocument(lists)
				return parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))
			}
			backwards := slices.Clone(c.lists)
			slices.Reverse(backwards)
			both := read(whole, c.lists)
			if other := read(whole, backwards); !slices.Equal(seriesOf(both), seriesOf(other)) {
				t.Error("the order of /v1/models changes the series")
			}
			for _, s := range both {
				if name := s.labels.Get(metrics.LabelModel); name != "" && name != otherValue && name != c.other && !slices.Contains(c.names, name) {
					t.Errorf("whose is %s?", s.labels)
				}
			}
			for i, name := range c.names {
				got := 0.0
				for _, v := range both.get(t, `{__name__="`+c.of+`",model_name="`+name+`"}`) {
					got += v
				}
				if got != c.is[i] {
					t.Errorf("%s: %s %v, want %v", name, c.of, got, c.is[i])
				}
			}
			there := seriesOf(both)
			for _, s := range seriesOf(read(first, c.lists)) {
				if strings.Contains(s, metrics.LabelModel+`="`) && !slices.Contains(there, s) {
					t.Errorf("its name goes as soon as a second model is asked: %s", s)
				}
			}
		})
	}
}

// seriesOf writes the series about models, sorted.
func seriesOf(all samples) (text []string) {
	for _, s := range all {
		if name := s.labels.Get(model.MetricNameLabel); strings.HasPrefix(name, "llm_engine_scrape_") ||
			name == metrics.MetricSourceInfo.Name || !strings.HasPrefix(name, "llm_") {
			continue
		}
		text = append(text, fmt.Sprint(s.labels, " ", s.value))
	}
	slices.Sort(text)
	return text
}

// twoModels adds a second model's series to a metrics page, with twice the first model's values for counters and
// gauges above 1. twoModels also returns the metrics page from the time before requests for the second model.
func twoModels(page string, second []string, shown string) (whole, first string) {
	var w, f, added strings.Builder
	flush := func() {
		w.WriteString(added.String())
		added.Reset()
	}
	rename := strings.NewReplacer(second...)
	for line := range strings.Lines(page) {
		if line = strings.TrimRight(line, "\n") + "\n"; line[0] == '#' || line == "\n" {
			flush()
		} else if other := rename.Replace(line); other != line {
			at := strings.LastIndexByte(other, ' ')
			var v float64
			if _, err := fmt.Sscan(other[at+1:], &v); err == nil && v > 1 {
				other = fmt.Sprintf("%s %v\n", other[:at], 2*v)
			}
			added.WriteString(other)
			if shown != "" && strings.HasPrefix(line, shown) {
				f.WriteString(other)
			}
		}
		w.WriteString(line)
		f.WriteString(line)
	}
	flush()
	return w.String(), f.String()
}

// modelsDocument is an answer at /v1/models; parent<name is an adapter.
func modelsDocument(names []string) string {
	var all []string
	for _, n := range names {
		parent, name, adapter := strings.Cut(n, "<")
		if !adapter {
			parent, name = "", n
		}
		all = append(all, fmt.Sprintf(`{"id":%q,"object":"model","owned_by":"x","parent":%q}`, name, parent))
	}
	return `{"object":"list","data":[` + strings.Join(all, ",") + `]}`
}

// TestRouterOfTwoModels checks metrics pages that are each about one model, but do not name it.
func TestRouterOfTwoModels(t *testing.T) {
	page := map[string]string{"a": readPage(t, "llamacpp/b10450-loaded.prom")}
	page["b"] = strings.ReplaceAll(page["a"], "987654", "123456")
	for _, lists := range [][]string{{"a", "b"}, {"b", "a"}} {
		router := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch asked := r.URL.Query().Get("model"); {
			case r.URL.Path == "/v1/models":
				io.WriteString(w, strings.NewReplacer(`"owned_by":"x"`, `"owned_by":"llamacpp","status":{"value":"loaded"}`).
					Replace(modelsDocument(lists)))
			case r.URL.Path == "/metrics" && page[asked] != "":
				io.WriteString(w, page[asked])
			default:
				http.Error(w, `{"error":{"code":400,"message":"model name is missing from the request"}}`, http.StatusBadRequest)
			}
		}))
		defer router.Close()
		s := parse(t, exposition(t, collectorFor(t, []TargetConfig{
			{URL: router.URL},
			{URL: router.URL + "/metrics?model=a"},
			{URL: router.URL + "/metrics?model=b"},
		})))
		for _, model := range []string{"a", "b"} {
			other := map[string]string{"a": "1", "b": "2"}[model]
			want := map[string]float64{"a": 987654, "b": 123456}[model]
			s.want(t, `llm_engine_generation_tokens_total{server="engine-0:80",model_name="`+model+`"}`, want)
			s.want(t, `llm_engine_generation_tokens_total{server="engine-`+other+`:80"}`, want)
			s.want(t, `llm_engine_generation_tokens_total{server="engine-`+other+`:80",model_name="`+model+`"}`, want)
			s.want(t, `{server="engine-`+other+`:80",model_name!="",model_name!="`+model+`"}`)
		}
		s.want(t, `{model_name!="",model_name!="a",model_name!="b"}`)
	}
}
