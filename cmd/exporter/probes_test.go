package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
)

// TestProbes checks that a synthetic request goes to the engine of a flag, and counts for an objective that the engine's
// metrics cannot count. No request goes to a sleeping engine that the exporter reads.
func TestProbes(t *testing.T) {
	var asked atomic.Int32
	serving := func(state string) *httptest.Server {
		mux := http.NewServeMux()
		mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0\n"+
				"# TYPE vllm:engine_sleep_state gauge\nvllm:engine_sleep_state{engine=\"0\",model_name=\"m\",sleep_state=\"discard_all\"} "+state+"\n")
		})
		mux.HandleFunc("/v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1); state == "1" {
				t.Error("a sleeping engine was asked")
			}
			if agent := r.UserAgent(); !strings.HasPrefix(agent, "llm-node-exporter/") || !strings.HasSuffix(agent, "probe)") {
				t.Errorf("user agent %q", agent)
			}
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"one\"},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n")
		})
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		return s
	}
	awake, asleep := serving("0"), serving("1")
	file := filepath.Join(t.TempDir(), "exporter.yml")
	if err := os.WriteFile(file, []byte("targets: [{url: "+asleep.URL+"}, {url: "+awake.URL+"}]\nprobes: [{url: "+asleep.URL+
		", model: m}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := start(t, "--config.file="+file, "--probe.target="+awake.URL, "--probe.model=m", "--probe.interval=10s", "--web.enable-lifecycle")
	host := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	e.await(t, `llm_probe_requests_total{model_name="m",outcome="ok",probe="chat",server="`+host(awake)+`"} 1`)
	e.await(t, `llm_slo_events_total{runtime="vllm",model_name="m",server="`+host(awake)+`",slo="ttft",threshold="0.5"} 1`)
	page := e.await(t, `llm_probe_skipped_total{model_name="m",probe="chat",reason="asleep",server="`+host(asleep)+`"} 1`)
	if !strings.Contains(page, "llm_probe_time_to_first_token_seconds_count") || asked.Load() == 0 {
		t.Errorf("%d requests:\n%s", asked.Load(), page)
	}
	if err := run(t.Context(), []string{"--probe.target=" + awake.URL, "--config.check"}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "--probe.model") {
		t.Errorf("a probe without a model: %v", err)
	}
	if page := start(t, "--engine.target="+awake.URL).get(t, "/metrics"); strings.Contains(page, "llm_probe_") {
		t.Error("an exporter without probes speaks of them")
	}
}

// TestProbesOfEngines checks that, with one flag, the engines that the exporter reads are probed as soon as their metrics
// have been read, and that no series has an empty label.
func TestProbesOfEngines(t *testing.T) {
	page := drill.NewVLLM(drill.NewProfile("llama"))
	mux := http.NewServeMux()
	mux.Handle("GET /", page)
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"choices\":[{\"text\":\"one\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n")
	})
	engine := httptest.NewServer(mux)
	t.Cleanup(engine.Close)
	file := filepath.Join(t.TempDir(), "exporter.yml")
	if err := os.WriteFile(file, []byte("targets: [{url: "+engine.URL+", labels: {namespace: prod, pod: llama-0}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(engine.URL, "http://")
	got := start(t, "--config.file="+file, "--probe.engines", "--probe.interval=10s").
		await(t, `outcome="ok",pod="llama-0",probe="engines",server="`+host+`"} 1`)
	if !strings.Contains(got, `llm_probe_engine_asked{model_name="llama",namespace="prod",pod="llama-0",probe="engines",server="`+host+
		`"} 1`) || strings.Contains(got, `=""`) {
		t.Error(got)
	}
	if err := run(t.Context(), []string{"--role=cluster", "--probe.engines", "--config.check"}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "concerns a node") {
		t.Errorf("engines of no node: %v", err)
	}
}
