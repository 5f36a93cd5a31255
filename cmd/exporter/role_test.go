package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// With --role=cluster the exporter reads the targets and sends the probes of its configuration, and its metrics contain
// no data of a node.
func TestRoleCluster(t *testing.T) {
	t.Setenv("NODE_NAME", "node-1") // as in a pod of the node's exporter
	engine := vllm(t, "7")
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			io.WriteString(w, "# TYPE litellm_in_flight_requests gauge\nlitellm_in_flight_requests 1\n# TYPE "+
				"litellm_proxy_total_requests_metric_total counter\n"+
				"litellm_proxy_total_requests_metric_total{requested_model=\"m\",status_code=\"200\"} 5\n")
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"one\"},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(gateway.Close)
	e := launch(t, "--role=cluster", "--engine.target="+engine.URL, "--engine.target="+gateway.URL, "--probe.target="+gateway.URL,
		"--probe.model=m", "--probe.interval=10s")
	page := e.await(t, `llm_probe_requests_total{model_name="m",outcome="ok"`)
	for _, want := range []string{
		"llm_engine_requests_running{", `llm_gateway_responses_total{runtime="litellm",model_name="m"`,
		"llm_exporter_config_last_reload_successful 1",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, ofNode := range []string{
		"llm_gpu_", "llm_engine_gpu_info", "llm_exporter_discovery_", "llm_exporter_pod_resources_",
		"llm_exporter_unreadable_", `collector="gpu"`, `collector="ownership"`,
	} {
		if strings.Contains(page, ofNode) {
			t.Errorf("the page has %s of a node", ofNode)
		}
	}
	if page := e.get(t, "/engines"); !strings.Contains(page, "<td>up</td><td>vllm</td>") ||
		!strings.Contains(page, "<td>up</td><td>litellm</td>") {
		t.Errorf("/engines:\n%s", page)
	}
}

// The objectives of a cluster's exporter come from its configuration. Built-in objectives would have the names of
// objectives in the configuration of the nodes.
func TestRoleClusterHasNoObjectivesOfItsOwn(t *testing.T) {
	if page := launch(t, "--role=cluster", "--engine.target="+vllm(t, "1").URL).get(t, "/metrics"); strings.Contains(page, "llm_slo_") {
		t.Errorf("objectives that nobody declared:\n%s", page)
	}
	file := filepath.Join(t.TempDir(), "exporter.yml")
	if err := os.WriteFile(file, []byte("objectives: [{name: gateway, signal: availability, target: 99%}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if page := launch(t, "--role=cluster", "--config.file="+file).get(t, "/metrics"); !strings.Contains(page,
		`llm_slo_objective_ratio{slo="gateway"} 0.99`) {
		t.Errorf("a declared objective is missing:\n%s", page)
	}
}

// A flag about a node is refused with --role=cluster. The error names the flag and the remedy.
func TestRoleClusterRefusesFlagsOfANode(t *testing.T) {
	for _, flag := range []string{
		"--collector.gpu", "--no-collector.ownership", "--gpu.source=auto", "--gpu.kmsg=none",
		"--ownership.pod-resources=", "--path.procfs=/host/proc",
		"--discovery=pods", "--discovery.node=a", "--discovery.namespace=llm",
	} {
		name, _, _ := strings.Cut(strings.Replace(flag, "--no-", "--", 1), "=")
		err := run(t.Context(), []string{flag, "--role=cluster", "--config.check"}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), name+" ") || !strings.Contains(err.Error(), "omit this flag") {
			t.Errorf("%s: %v", flag, err)
		}
		if err := run(t.Context(), []string{flag, "--role=node", "--config.check"}, io.Discard); err != nil {
			t.Errorf("%s with --role=node: %v", flag, err)
		}
	}
	if err := run(t.Context(), []string{"--role=gateway"}, io.Discard); err == nil || !strings.Contains(err.Error(), "node,cluster") {
		t.Errorf("an unknown role: %v", err)
	}
}
