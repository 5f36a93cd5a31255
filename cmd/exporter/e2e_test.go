package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// whatArrives names, per engine, the family under which each of its families must arrive in Prometheus with unchanged
// values. The list is written from the engines' documentation, beside the dialects.
var whatArrives = map[string]map[string]string{
	"vllm": {
		"vllm:num_requests_running":                  "llm_engine_requests_running",
		"vllm:num_requests_waiting":                  "llm_engine_requests_waiting",
		"vllm:kv_cache_usage_perc":                   "llm_engine_kv_cache_usage_ratio",
		"vllm:prefix_cache_queries_total":            "llm_engine_prefix_cache_query_tokens_total",
		"vllm:prefix_cache_hits_total":               "llm_engine_prefix_cache_hit_tokens_total",
		"vllm:prefix_cache_queries":                  "llm_engine_prefix_cache_query_tokens_total",
		"vllm:prefix_cache_hits":                     "llm_engine_prefix_cache_hit_tokens_total",
		"vllm:external_prefix_cache_queries_total":   "llm_engine_external_prefix_cache_query_tokens_total",
		"vllm:external_prefix_cache_hits_total":      "llm_engine_external_prefix_cache_hit_tokens_total",
		"vllm:num_preemptions_total":                 "llm_engine_preemptions_total",
		"vllm:prompt_tokens_total":                   "llm_engine_prompt_tokens_total",
		"vllm:generation_tokens_total":               "llm_engine_generation_tokens_total",
		"vllm:request_success_total":                 "llm_engine_requests_total",
		"vllm:request_prompt_tokens":                 "llm_engine_request_prompt_tokens",
		"vllm:request_generation_tokens":             "llm_engine_request_generation_tokens",
		"vllm:time_to_first_token_seconds":           "llm_engine_time_to_first_token_seconds",
		"vllm:inter_token_latency_seconds":           "llm_engine_inter_token_latency_seconds",
		"vllm:request_time_per_output_token_seconds": "llm_engine_time_per_output_token_seconds",
		"vllm:e2e_request_latency_seconds":           "llm_engine_request_duration_seconds",
		"vllm:request_queue_time_seconds":            "llm_engine_queue_time_seconds",
		"vllm:request_prefill_time_seconds":          "llm_engine_prefill_time_seconds",
		"vllm:request_decode_time_seconds":           "llm_engine_decode_time_seconds",
		"process_start_time_seconds":                 "llm_engine_start_time_seconds",
		"vllm:spec_decode_num_draft_tokens_total":    "llm_engine_spec_decode_draft_tokens_total",
		"vllm:spec_decode_num_accepted_tokens_total": "llm_engine_spec_decode_accepted_tokens_total",
	},
	"sglang": {
		"sglang:num_running_reqs":            "llm_engine_requests_running",
		"sglang:num_queue_reqs":              "llm_engine_requests_waiting",
		"sglang:token_usage":                 "llm_engine_kv_cache_usage_ratio",
		"sglang:max_total_num_tokens":        "llm_engine_kv_cache_capacity_tokens",
		"sglang:context_len":                 "llm_engine_max_model_len_tokens",
		"sglang:engine_startup_time":         "llm_engine_load_time_seconds",
		"sglang:time_to_first_token_seconds": "llm_engine_time_to_first_token_seconds",
		"sglang:inter_token_latency_seconds": "llm_engine_inter_token_latency_seconds",
		"sglang:e2e_request_latency_seconds": "llm_engine_request_duration_seconds",
		"sglang:prompt_tokens_histogram":     "llm_engine_request_prompt_tokens",
		"sglang:generation_tokens_histogram": "llm_engine_request_generation_tokens",
		"sglang:prompt_tokens_total":         "llm_engine_prompt_tokens_total",
		"sglang:generation_tokens_total":     "llm_engine_generation_tokens_total",
		"sglang:cached_tokens_total":         "llm_engine_prefix_cache_hit_tokens_total",
		"sglang:queue_time_seconds":          "llm_engine_queue_time_seconds",
	},
	"llamacpp": {
		"llamacpp:requests_processing":                   "llm_engine_requests_running",
		"llamacpp:requests_deferred":                     "llm_engine_requests_waiting",
		"llamacpp:tokens_predicted_total":                "llm_engine_generation_tokens_total",
		"llamacpp:prompt_tokens_cached_total":            "llm_engine_prefix_cache_hit_tokens_total",
		"llamacpp:spec_decode_num_draft_tokens_total":    "llm_engine_spec_decode_draft_tokens_total",
		"llamacpp:spec_decode_num_accepted_tokens_total": "llm_engine_spec_decode_accepted_tokens_total",
	},
}

// TestRealPagesThroughRealPrometheus serves metrics pages of real engines over HTTP, has the built exporter read them and
// a real Prometheus scrape the exporter, and compares every value of the vocabulary: Prometheus must store the engine's
// values.
func TestRealPagesThroughRealPrometheus(t *testing.T) {
	pages := golden.Recordings(t, "*/*.prom")
	kind := func(page string) string { return strings.TrimSuffix(filepath.Base(filepath.Dir(page)), "-simulator") }
	if len(pages) == 0 { // the project's own metrics pages replace them
		for _, p := range []string{"vllm/v0.19.0-dp2-spec.prom", "sglang/v0.5.2.prom", "llamacpp/b10450-loaded.prom"} {
			pages = append(pages, filepath.Join("../../collectors/engine/testdata/pages", p))
		}
	}
	var args []string
	served := map[string]string{} // server label -> metrics page
	for _, page := range pages {
		body, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
			w.Write(body)
		}))
		t.Cleanup(server.Close)
		served[strings.TrimPrefix(server.URL, "http://")] = page
		args = append(args, "--engine.target="+server.URL)
	}
	exporter := startBinary(t, args...)
	prometheus := startPrometheus(t, exporter)
	checkMetrics(t, "http://"+exporter+"/metrics")
	compared := 0
	for server, page := range served {
		body, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for from, to := range whatArrives[kind(page)] {
			family := families[from]
			if family == nil {
				continue
			}
			want := map[string][]string{} // by suffix and bound
			add := func(suffix string, v float64) {
				want[suffix] = append(want[suffix], strconv.FormatFloat(v, 'g', -1, 64))
			}
			for _, m := range family.Metric {
				switch {
				case m.Histogram != nil:
					for _, b := range m.Histogram.Bucket {
						add(fmt.Sprintf("_bucket %v", b.GetUpperBound()), float64(b.GetCumulativeCount()))
					}
					add("_sum", m.Histogram.GetSampleSum())
					add("_count", float64(m.Histogram.GetSampleCount()))
				case m.Counter != nil:
					add("", m.Counter.GetValue())
				case m.Gauge != nil:
					add("", m.Gauge.GetValue())
				}
			}
			for key, values := range want {
				suffix, bound, _ := strings.Cut(key, " ")
				query := to + suffix + `{server="` + server + `"}`
				got := prometheus.query(t, query, bound)
				slices.Sort(values)
				if more := len(got) - len(values); to == metrics.Requests.Name && more > 0 && more <= 2 {
					// failed and refused requests count from zero; the engines' own counters begin with the first
					// request
					values = slices.Sorted(slices.Values(append(values, slices.Repeat([]string{"0"}, more)...)))
				}
				if !slices.Equal(got, values) {
					t.Errorf("%s %s: the page has %s = %v, Prometheus has %s = %v", filepath.Base(page), bound, from, values, query, got)
				}
				compared += len(values)
			}
		}
	}
	t.Logf("%d values of %d pages arrived unchanged in %s", compared, len(pages), prometheus.version)
	if compared < 200 {
		t.Errorf("only %d values were compared", compared)
	}
}

// startBinary builds the exporter and runs it as a process of its own; it returns its address.
func startBinary(t *testing.T, args ...string) string {
	t.Helper()
	address := e2e.Address(t)
	e2e.Start(t, e2e.Build(t, "."), append(args, "--web.listen-address="+address)...)
	e2e.Answers(t, "http://"+address+"/-/ready")
	return address
}

// checkMetrics checks the metrics page with promtool, as a user would.
func checkMetrics(t *testing.T, url string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	promtool := exec.Command("promtool", "check", "metrics")
	promtool.Stdin = resp.Body
	if out, err := promtool.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

type prometheusServer struct{ url, version string }

// startPrometheus runs the Prometheus on PATH (Debian's, in CI) with the exporter as its only target
// and waits for its first scrape.
func startPrometheus(t *testing.T, target string) *prometheusServer {
	t.Helper()
	p := runPrometheus(t, `
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: llm-node-exporter
    static_configs: [{targets: ["`+target+`"]}]
`)
	e2e.Until(t, "Prometheus has scraped an engine", func() bool { return len(p.query(t, `llm_engine_up == 1`, "")) > 0 })
	return p
}

// runPrometheus runs the Prometheus on PATH with a configuration until the test ends.
func runPrometheus(t *testing.T, config string, args ...string) *prometheusServer {
	t.Helper()
	binary := e2e.Program(t, "prometheus", "prometheus")
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := e2e.Address(t)
	e2e.Start(t, binary, append(args, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+
		address, "--log.level=error")...)
	p := &prometheusServer{url: "http://" + address}
	e2e.Until(t, "Prometheus answers", func() bool {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusUnauthorized
	})
	out, _ := exec.Command(binary, "--version").CombinedOutput()
	p.version, _, _ = strings.Cut(string(out), "\n")
	return p
}

// query returns the values of an instant query, sorted as text. With a bound, it returns only the values whose le
// label is the same number.
func (p *prometheusServer) query(t *testing.T, expression, bound string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/query?query="+url.QueryEscape(expression), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  [2]any            `json:"value"`
			} `json:"result"`
		} `json:"data"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Error != "" {
		t.Fatalf("%s: %v %s", expression, err, body)
	}
	var values []string
	for _, r := range answer.Data.Result {
		if bound != "" {
			le, _ := strconv.ParseFloat(r.Metric["le"], 64)
			if fmt.Sprint(le) != bound {
				continue
			}
		}
		v, err := strconv.ParseFloat(r.Value[1].(string), 64)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, strconv.FormatFloat(v, 'g', -1, 64))
	}
	slices.Sort(values)
	return values
}
