package engine

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestEveryEngineIsFoundByHostAndPort serves a metrics page of each engine where the engine serves it, with a 404 or with a friendly "OK"
// everywhere else.
func TestEveryEngineIsFoundByHostAndPort(t *testing.T) {
	for _, c := range []struct{ page, path, runtime string }{
		{"vllm/v0.28.0-dp8-lora.prom", "/metrics", "vllm"},
		{"tgi/v3.3.7-loaded.prom", "/metrics", "tgi"},
		{"trtllm/v1.3.0-full.prom", "/prometheus/metrics", "trtllm"},
		{"triton/trtllm-v0.18-ensemble.prom", "/metrics", "triton_trtllm"},
		{"triton/vllm-backend.prom", "/metrics", "triton_vllm"},
		{"triton/core-only.prom", "/metrics", "triton"},
		{"sglang/v0.5.17-streaming.prom", "/metrics", "sglang"},
		{"llamacpp/b10450-loaded.prom", "/metrics", "llamacpp"},
		{"lmdeploy/v0.14.0.prom", "/metrics/", "lmdeploy"},
		{"nim/1.x.prom", "/v1/metrics", "nim"},
		{"nim/1.x.prom", "/metrics", "nim"}, // before 1.0
		{"lightllm/5d59e49-loaded.prom", "/metrics", "lightllm"},
		{"tei/embed-loaded.prom", "/metrics", "tei"},
		{"xinference/worker-2026.prom", "/metrics", "xinference"},
		{"kserve/huggingface-vllm.prom", "/metrics", "vllm"},
		{"kserve/qpext-vllm.prom", "/metrics", "vllm"},
		{"dynamo/frontend.prom", "/metrics", "dynamo"},
		{"dynamo/worker-vllm.prom", "/metrics", "vllm"},
		{"vllm/ray-v0.12.prom", "/metrics", "vllm"},
		{"lmcache/server.prom", "/metrics", "lmcache"},
		{"mooncake/master-v0.3.12.prom", "/metrics", "mooncake"},
		{"nixl/agent-main-mp.prom", "/metrics", "nixl"},
		{"dynamo/kvbm.prom", "/metrics", "kvbm"},
	} {
		for what, elsewhere := range map[string]http.HandlerFunc{
			"404":       http.NotFound,
			"catch-all": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "OK") },
			"a line":    func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "OK 200\n") },
			"JSON": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"status": "ok"}`)
			},
			"405": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
			"401": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
			"web page": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				io.WriteString(w, "<!doctype html><title>Chat</title>")
			},
			"empty": func(http.ResponseWriter, *http.Request) {},
		} {
			engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case c.path:
					io.WriteString(w, readPage(t, c.page))
				case strings.TrimSuffix(c.path, "/"): // a mounted application adds the slash
					http.Redirect(w, r, c.path, http.StatusTemporaryRedirect)
				default:
					elsewhere(w, r)
				}
			}))
			s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: engine.URL}})))
			if got := s.get(t, `llm_engine_up{runtime="`+c.runtime+`"}`); len(got) != 1 || got[0] != 1 {
				t.Errorf("%s at %s, %s elsewhere: up is %v", c.page, c.path, what, s.get(t, `llm_engine_up`))
			}
			engine.Close()
		}
	}
}

// TestIdleTRTLLMIsUp checks that an engine whose metrics page is empty until the first request is up.
func TestIdleTRTLLMIsUp(t *testing.T) {
	e := serve(t, "")
	e.path = "/prometheus/metrics"
	e.documents["/v1/models"] = identity(t, "trtllm-models.json")
	e.documents["/metrics"] = readPage(t, "trtllm/json-array.json")
	parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}}))).want(t, `llm_engine_up{runtime="trtllm"}`, 1)
	if n := e.asked("/metrics"); n != 0 {
		t.Errorf("/metrics was read %d times", n)
	}
}

// TestEnginesBehindOnePort has two engines below different paths of one host, and two engines that a query
// distinguishes.
func TestEnginesBehindOnePort(t *testing.T) {
	var atRoot atomic.Int32
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/team-a/metrics":
			io.WriteString(w, readPage(t, "vllm/v0.11.2.prom"))
		case "/team-a/version":
			io.WriteString(w, `{"version": "0.11.2"}`)
		case "/version":
			atRoot.Add(1)
			http.NotFound(w, r)
		case "/team-b/v1/metrics":
			io.WriteString(w, readPage(t, "nim/1.x.prom"))
		case "/metrics", "/props":
			if r.URL.Query().Get("model") != "gemma" {
				http.Error(w, "which model?", http.StatusBadRequest)
			} else if r.URL.Path == "/metrics" {
				io.WriteString(w, strings.ReplaceAll(readPage(t, "llamacpp/b5500.prom"), "\nllamacpp:requests_processing ",
					"\nllamacpp:requests_processing{model=\"gemma\"} "))
			} else {
				io.WriteString(w, identity(t, "llamacpp-props.json"))
			}
		default:
			http.NotFound(w, r)
		}
	}))
	defer gateway.Close()
	c, err := New(Config{Log: discard, Targets: []TargetConfig{
		{URL: gateway.URL + "/team-a/metrics"},
		{URL: gateway.URL + "/team-b/v1/metrics"},
		{URL: gateway.URL + "/metrics?model=gemma"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := parse(t, exposition(t, c))
	host := strings.TrimPrefix(gateway.URL, "http://")
	s.want(t, `llm_engine_up{server="`+host+`/team-a",runtime="vllm"}`, 1)
	s.want(t, `llm_engine_info{server="`+host+`/team-a",version="0.11.2"}`, 1)
	s.want(t, `llm_engine_up{server="`+host+`/team-b",runtime="nim"}`, 1)
	s.want(t, `llm_engine_up{server="`+host+`?model=gemma",runtime="llamacpp"}`, 1)
	if got := s.get(t, `llm_engine_requests_running{runtime="llamacpp",model_name="gemma"}`); len(got) != 1 {
		t.Errorf("the router's model has %v", got)
	}
	s.want(t, `llm_engine_max_model_len_tokens{runtime="llamacpp"}`, 8192)
	if n := atRoot.Load(); n != 0 {
		t.Errorf("/version of the host's root was asked %d times for engines below paths", n)
	}
}

// TestOneServerUnderTwoNames checks that two addresses of one engine are refused, whichever name of the loopback they
// use.
func TestOneServerUnderTwoNames(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"http://127.0.0.1:8000", "http://localhost:8000", true},
		{"http://127.0.0.1:8000", "http://[::1]:8000/metrics", true},
		{"http://h:8000/v1/metrics", "http://h:8000/metrics", true},
		{"http://127.0.0.1:8000", "http://127.0.0.1:8001", false},
		{"http://h:8000/team-a/metrics", "http://h:8000/team-b/metrics", false},
		{"http://h:8000/metrics?model=a", "http://h:8000/metrics?model=b", false},
		{"http://localhost:8000/metrics?model=a", "http://127.0.0.1:8000/metrics?model=a", true},
	} {
		_, err := New(Config{Log: discard, Targets: []TargetConfig{{URL: c.a}, {URL: c.b}}})
		if (err != nil) != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, err)
		}
	}
}
