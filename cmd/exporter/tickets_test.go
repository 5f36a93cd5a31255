package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestNoTicketForWhatNobodyDeclared reads metrics pages of many engines, without a configuration. No ticket ever
// opens only because an engine cannot count an undeclared objective, or lacks metrics that it never had.
func TestNoTicketForWhatNobodyDeclared(t *testing.T) {
	pages := golden.Recordings(t, "*/*.prom")
	// An imitation of vLLM lacks metrics that every vLLM has, so its ticket is correct. Metrics pages of incidents are
	// chosen below.
	pages = slices.DeleteFunc(pages, func(page string) bool {
		dir := filepath.Base(filepath.Dir(page))
		return strings.HasSuffix(dir, "-simulator") || dir == "real"
	})
	for _, own := range []string{
		"vllm/v0.19.0-dp2-spec", "vllm/v0.32.0-[^o]*", "vllm/v0.32.0-overload", "vllm_router/*", "sglang/v0.5.20-hicache", "sglang/v0.5.23-*",
		"smg/sglang-router-*", "litellm/v1.106.2-*", "llamacpp/b10450-loaded", "tgi/*-loaded",
		"trtllm/*", "triton/*", "lmdeploy/v0.9.2", "lightllm/008f5e9-loaded", "dynamo/frontend", "dynamo/frontend-v1.6.0-migration",
		"tei/embed-loaded", "xinference/worker*",
	} {
		found, err := filepath.Glob(filepath.Join("../../collectors/engine/testdata/pages", own+".prom"))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d pages, %v", own, len(found), err)
		}
		pages = append(pages, found...)
	}
	pages = append(pages, "../../collectors/engine/testdata/pages/ollama/0.12.6-idle.json",
		"../../collectors/engine/testdata/pages/ollama/0.12.6-one.json")
	var targets []string
	for _, page := range pages {
		body, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			at := "/metrics"
			if filepath.Ext(page) == ".json" { // Ollama's list of models
				at = "/api/ps"
			}
			if r.URL.Path != at {
				http.NotFound(w, r)
				return
			}
			w.Write(body)
		}))
		t.Cleanup(server.Close)
		targets = append(targets, "--engine.target="+server.URL)
	}
	exporter := start(t, targets...)

	groups := rules.Groups(rules.Options{})
	for g := range groups {
		var kept []*rules.Alert
		for _, a := range groups[g].Alerts {
			if a.Name == rules.ObjectiveWithoutEvents.Name || a.Name == rules.SourceMissing.Name {
				kept = append(kept, a)
			}
		}
		groups[g].Records, groups[g].Alerts = nil, kept
	}
	content, err := rules.Encode(rules.NewFile(groups, rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := rulesim.New(content)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	p := parser.NewParser(parser.Options{})
	known := map[string]labels.Labels{}
	err = sim.Run(rulesim.Epoch, rulesim.Epoch.Add(90*time.Minute), time.Minute, func(_ time.Time, emit rulesim.Emit) {
		status, body, _ := exporter.request(t, http.MethodGet, "/metrics")
		if status != http.StatusOK {
			t.Fatal(status)
		}
		for line := range strings.Lines(body) {
			if strings.HasPrefix(line, "llm_engine_up{") && strings.HasSuffix(line, " 0\n") {
				t.Fatal(line)
			}
			if !strings.HasPrefix(line, "llm_slo_") && !strings.HasPrefix(line, "llm_engine_source_") {
				continue
			}
			series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			l, ok := known[series]
			if !ok {
				if l, err = p.ParseMetric(series + "}"); err != nil {
					t.Fatal(line, err)
				}
				known[series] = l
			}
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(line, err)
			}
			emit(l, v)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(known) == 0 {
		t.Fatal("the exporter says nothing of objectives")
	}
	for _, a := range sim.Firing() {
		t.Errorf("a ticket for nothing: %s %s", a.Annotations.Get("summary"), a.Labels)
	}
}
