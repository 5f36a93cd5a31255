package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// TestEngineOfGPUProcess: nobody configured anything. NVML names this process on a GPU, and the engine is
// the server that it listens with, on a port below the ephemeral ones.
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
	if status, _, _ := n.request(t, http.MethodPost, "/-/reload"); status != http.StatusOK {
		t.Errorf("reload: %d", status)
	}
	if page := n.get(t, "/metrics"); !strings.Contains(page, `server="`+address+`"`) {
		t.Error("a reload lost what was found")
	}
}
