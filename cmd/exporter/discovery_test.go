package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// TestEngineAtTwoAddresses checks that an engine and the proxy in front of it count as one engine, and that this is
// reported. The exporter reads the configured address.
func TestEngineAtTwoAddresses(t *testing.T) {
	for name, flags := range map[string]func(proxy string) []string{
		"found":      func(string) []string { return nil },
		"configured": func(proxy string) []string { return []string{"--engine.target=http://" + proxy} },
	} {
		t.Run(name, func(t *testing.T) { engineAtTwoAddresses(t, flags) })
	}
}

func engineAtTwoAddresses(t *testing.T, flags func(proxy string) []string) {
	var tokens atomic.Int64
	engine, proxy := e2e.Address(t), e2e.Address(t)
	for address, handler := range map[string]http.Handler{
		engine: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				http.NotFound(w, r)
				return
			}
			fmt.Fprintf(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 5\n"+
				"# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{model_name=\"m\"} %d\n", tokens.Add(100))
		}),
		proxy: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: engine}),
	} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: handler}
		t.Cleanup(func() { server.Close() })
		go server.Serve(l)
	}
	n := startOnGPUs(t, 1, func(s *fakenvml.State) {
		if err := s.Set("0", "processes", fmt.Sprintf("%d:1073741824:-1", os.Getpid())); err != nil {
			t.Fatal(err)
		}
	}, flags(proxy)...)
	n.until(t, `llm_exporter_discovery_places{source="processes",state="same_engine"} 1`)
	if page := n.until(t, `llm_engine_requests_running{`); strings.Count(page, "\nllm_engine_requests_running{") != 1 {
		t.Errorf("the engine is read twice:\n%s", page)
	}
	if page := n.get(t, "/engines"); !strings.Contains(page, "its engine is read at http://127.0.0.1:") {
		t.Errorf("/engines does not say it:\n%s", page)
	}
}

// TestEngineOfGPUProcess checks discovery without configuration. NVML names this process on a GPU, and the engine is the
// server with which it listens, on a port below the ephemeral ones.
func TestEngineOfGPUProcess(t *testing.T) {
	engine := vllm(t, "5")
	server := &http.Server{Handler: engine.Config.Handler}
	t.Cleanup(func() { server.Close() })
	address := e2e.Address(t)
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	n := startOnGPUs(t, 2, func(s *fakenvml.State) {
		if err := s.Set("1", "processes", fmt.Sprintf("%d:1073741824:-1", os.Getpid())); err != nil {
			t.Fatal(err)
		}
	}, "--web.enable-lifecycle")
	n.until(t, `llm_engine_requests_running{runtime="vllm",model_name="m",server="`+address+`",dp_rank="0"} 5`)
	page := n.until(t, `llm_engine_gpu_info{`)
	if !strings.Contains(page, `llm_exporter_discovery_places{source="processes",state="read"} 1`) || !strings.Contains(page, `gpu="1"`) {
		t.Errorf("discovery does not say that it found one:\n%s", page)
	}
	if strings.Contains(page, "llm_exporter_configured_target_info") {
		t.Error("what discovery found is said to be configured")
	}
	if status, _, _ := n.request(t, http.MethodPost, "/-/reload"); status != http.StatusOK {
		t.Errorf("reload: %d", status)
	}
	if page := n.get(t, "/metrics"); !strings.Contains(page, `server="`+address+`"`) {
		t.Error("a reload lost what was found")
	}
}
