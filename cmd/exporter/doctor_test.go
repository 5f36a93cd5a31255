package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/doctor"
	"github.com/llm-node-exporter/llm-node-exporter/examples"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

// diagnosed is the command's output for programs.
type diagnosed struct {
	Status int
	doctor.Report
}

// diagnose runs the command, and requires that it exits with the status that it prints.
func diagnose(t *testing.T, args ...string) (d diagnosed) {
	t.Helper()
	var out bytes.Buffer
	status, err := doctorCommand(t.Context(), append(args, "--output=json"), &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &d); err != nil || status != d.Status {
		t.Fatalf("status %d: %v\n%s", status, err, out.String())
	}
	return d
}

// says reports whether one finding contains all of these words.
func (d diagnosed) says(words ...string) bool {
	for _, f := range d.Findings {
		text := strings.Join(append(f.Alerts, string(f.Severity), f.Subject, f.Problem, f.Remedy), " ")
		all := true
		for _, w := range words {
			all = all && strings.Contains(text, w)
		}
		if all {
			return true
		}
	}
	return false
}

func (d diagnosed) want(t *testing.T, status int, words ...string) {
	t.Helper()
	if d.Status != status || !d.says(words...) {
		t.Errorf("status %d, want %d and %q:\n%+v", d.Status, status, words, d.Report)
	}
}

// servePage serves the metrics page of an engine.
func servePage(t *testing.T, path string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("../../collectors/engine/testdata/pages", path))
	if err != nil {
		t.Fatal(err)
	}
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" && r.URL.Path != "/prometheus/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(page)
	}))
	t.Cleanup(e.Close)
	return e.URL
}

// answering serves one answer at every path.
func answering(t *testing.T, status int, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// locked serves the metrics of an engine that requires a key for everything else.
func locked(t *testing.T, path string) string {
	t.Helper()
	page := servePage(t, path)
	to, err := url.Parse(page)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(e.Close)
	return e.URL
}

const healthyPage = "vllm/v0.30.0-offload.prom"

// TestDoctorOfExporters breaks the inputs of an exporter, one at a time.
func TestDoctorOfExporters(t *testing.T) {
	declared := func(objective string) string {
		file := filepath.Join(t.TempDir(), "exporter.yml")
		text := "targets: [{url: " + servePage(t, "llamacpp/b10450-loaded.prom") + "}]\nobjectives:\n- " + objective + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, c := range []struct {
		name string
		args []string
		says []string
	}{
		{
			"no NVML library",
			[]string{"--gpu.nvml-library=/does/not/exist.so", "--gpu.kmsg=none", "--engine.target=" + servePage(t, healthyPage)},
			[]string{"NVML cannot be used: library_not_found", "LLMGPUFailed", "--gpu.nvml-library", "libnvidia-ml.so.1"},
		},
		{
			"metrics are off",
			[]string{"--no-collector.gpu", "--engine.target=" + answering(t, http.StatusNotImplemented,
				`{"error":{"code":501,"message":"This server does not support metrics endpoint. Start it with `+"`--metrics`"+
					`","type":"not_supported_error"}}`)},
			[]string{"metrics_disabled", "--metrics"},
		},
		{
			"metrics are off and nobody says so",
			[]string{"--no-collector.gpu", "--engine.target=" + answering(t, http.StatusNotFound,
				`{"detail":"Not Found"}`)},
			[]string{"http_404", "--enable-metrics"},
		},
		{
			"a flag hides all metrics",
			[]string{"--no-collector.gpu", "--engine.target=" + answering(t, http.StatusOK,
				"python_gc_objects_collected_total{generation=\"0\"} 1\nhttp_requests_total{handler=\"/v1/models\"} 3\n")},
			[]string{"unknown_engine", "--disable-log-stats"},
		},
		{
			"a flag hides metrics",
			[]string{"--no-collector.gpu", "--engine.target=" + servePage(t, "trtllm/v1.4-no-iteration-stats.prom")},
			[]string{"does not report", "llm_engine_kv_cache_usage_ratio", "kv_full (clue)", "enable_iter_perf_stats: true"},
		},
		{
			"a key hides what an endpoint says",
			[]string{"--no-collector.gpu", "--engine.target=" + locked(t, healthyPage)},
			[]string{"/v1/models requires a key", "llm_engine_max_model_len_tokens", "credentials_file"},
		},
		{
			"a frontend lost its workers",
			[]string{"--no-collector.gpu", "--engine.target=" +
				servePage(t, "dynamo/frontend-v1.6.0-allkilled.prom")},
			[]string{"its metrics page is read, but the engine is down: no_worker", "Check the workers"},
		},
		{
			"no worker has come yet",
			[]string{"--no-collector.gpu", "--engine.target=" + servePage(t, "dynamo/frontend-v1.6.0-noworker.prom")},
			[]string{"its metrics page is read, but the engine is down: no_worker", "Check the workers"},
		},
		{
			"an endpoint picker without endpoints",
			[]string{"--no-collector.gpu", "--engine.target=" + servePage(t, "epp/v1.5.0-no-pods.prom")},
			[]string{"its metrics page is read, but the engine is down: no_worker", "Check the workers"},
		},
		{
			"a frontend lost the workers of one model",
			[]string{"--no-collector.gpu", "--engine.target=" +
				servePage(t, "dynamo/frontend-v1.6.0-two-lost.prom")},
			[]string{"no worker serves ", "every request for it fails", "Check the workers"},
		},
		{
			"a router may use no worker",
			[]string{"--no-collector.gpu", "--engine.target=" + servePage(t, "vllm_router/v0.1.17-all500.prom")},
			[]string{"may send requests to none of its workers: circuit_open 2", "send a request to each worker"},
		},
		{
			"a gateway's deployments cool down",
			[]string{"--no-collector.gpu", "--engine.target=" + servePage(t, "litellm/v1.106.2-solo-500.prom")},
			[]string{"may send requests to none of its workers: cooldown 1"},
		},
		{"wrong port", []string{"--no-collector.gpu", "--engine.target=http://127.0.0.1:1"}, []string{
			"engine 127.0.0.1:1", "unreachable",
			"curl -sv http://127.0.0.1:1/metrics",
		}},
		{"no engine", []string{"--no-collector.gpu"}, []string{"engines", "none is read", "--engine.target"}},
		{
			"an objective that selects nothing",
			[]string{"--no-collector.gpu", "--config.file=" +
				declared("{name: gold, signal: ttft, threshold: 1s, target: 99%, select: {model_name: [nobody]}}")},
			[]string{"objective gold", "selects no engine", "LLMErrorBudgetFastBurn", "llm_engine_info"},
		},
		{
			"an objective on what the engine does not report",
			[]string{"--no-collector.gpu", "--config.file=" +
				declared("{name: gold, signal: ttft, threshold: 1s, target: 99%}")},
			[]string{"objective gold", "signal_missing", "LLMErrorBudgetFastBurn", "another signal"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := launch(t, c.args...)
			said := diagnose(t, "--exporter="+e.url)
			said.want(t, 1, c.says...)
			for _, f := range said.Findings {
				if slices.Contains(f.Alerts, "LLMGPUUnread") {
					t.Errorf("it fires because of this: %+v", f)
				}
			}
		})
	}
}

// TestDoctorOfStreamsThatBreak checks that doctor reports a router that counts an answer at its beginning, and so misses
// streams that break later.
func TestDoctorOfStreamsThatBreak(t *testing.T) {
	for _, page := range []string{"vllm_router/v0.1.17-load.prom", "smg/sglang-router-v0.3.2-load.prom"} {
		e := launch(t, "--no-collector.gpu", "--engine.target="+servePage(t, page))
		if fine := strings.Join(diagnose(t, "--exporter="+e.url).Fine, "\n"); !strings.Contains(fine, "streams that break later") {
			t.Errorf("%s: %s", page, fine)
		}
	}
}

// TestDoctorWithoutAnExporter runs doctor where there is no exporter.
func TestDoctorWithoutAnExporter(t *testing.T) {
	diagnose(t, "--exporter=http://127.0.0.1:1").want(t, 3, "connection refused", "--exporter=http://HOST:9844")
	diagnose(t, "--exporter="+servePage(t, healthyPage)).want(t, 3, "is not llm-node-exporter")
	diagnose(t, "--exporter="+start(t).url, "--prometheus=http://127.0.0.1:1").want(t, 3, "Prometheus", "--prometheus-http-config")
	for _, args := range [][]string{
		{"--nonsense"},
		{"--exporter=http://127.0.0.1:1", "--no-collector.gpu"},
		{"--exporter=http://u:p@h:1"},
		{"--prometheus=prometheus:9090", "--no-collector.gpu"},
		{"--rules=/does/not/exist"},
	} {
		if status, err := doctorCommand(t.Context(), args, io.Discard, io.Discard); status != 3 || err == nil {
			t.Errorf("%q: status %d, %v", args, status, err)
		}
	}
}

// TestDoctorLooksByItself runs doctor with the server's flags instead of an exporter.
func TestDoctorLooksByItself(t *testing.T) {
	file := filepath.Join(t.TempDir(), "exporter.yml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	asked := false
	engine := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = asked ||
			r.Method == http.MethodPost
	}))
	defer engine.Close()
	write("targets: [{url: " + servePage(t, healthyPage) + "}]\nprobes:\n- {url: " + engine.URL +
		", model: m, http_config: {authorization: {credentials_file: /does/not/exist}}}\n")
	d := diagnose(t, "--no-collector.gpu", "--discovery=none", "--config.file="+file)
	d.want(t, 1, "probes[0].http_config.authorization.credentials_file", "no such file", "mount the secret")
	if len(d.Findings) != 1 || asked {
		t.Errorf("probed: %v; found\n%+v", asked, d)
	}
	write("targets:\n- url: localhost\n")
	diagnose(t, "--no-collector.gpu", "--config.file="+file).want(t, 2, "configuration", "exporter.yml:2", "http://host:port")
}

// TestDoctorOfGPUs checks nodes with GPUs: one that lacks the kernel log and the place of its engine, and a healthy one,
// at first with a single exporter.
func TestDoctorOfGPUs(t *testing.T) {
	engine := servePage(t, healthyPage)
	n := startOnGPUs(t, 2, nil, "--gpu.kmsg=/does/not/exist", "--engine.target="+engine)
	n.until(t, `llm_gpu_xid_source_up{reason="not_found",source="kmsg"} 0`)
	n.until(t, `llm_gpu_up{gpu="1"`)
	d := diagnose(t, "--exporter="+n.url)
	d.want(t, 1, "kernel log", "not_found", "mount /dev/kmsg")
	d.want(t, 1, "it is unknown on which GPU it runs", "hostPID", "gpus: in targets")
	if len(d.Findings) != 2 {
		t.Errorf("%+v", d)
	}

	dir := t.TempDir()
	for name, text := range map[string]string{"rules.yaml": everyTwoSeconds(), "exporter.yml": "targets: [{url: " + engine +
		", gpus: ['0']}]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n = startOnGPUs(t, 2, nil, "--config.file="+filepath.Join(dir, "exporter.yml"))
	n.until(t, `llm_engine_gpu_info{`)
	scraped := func(addresses ...string) *prometheusServer {
		return runPrometheus(t, "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"+alertmanager+"rule_files: ["+filepath.Join(dir,
			"rules.yaml")+"]\nscrape_configs:\n"+
			"- {job_name: llm-node-exporter, honor_labels: true, static_configs: [{targets: ["+strings.Join(addresses, ", ")+"]}]}\n")
	}
	one := strings.TrimPrefix(n.url, "http://")
	alone, twice := scraped(one), scraped(one, strings.Replace(one, "127.0.0.1", "localhost", 1))
	e2e.Until(t, "nothing is wrong with a healthy installation", func() bool {
		d = diagnose(t, "--exporter="+n.url, "--prometheus="+alone.url)
		return d.Status == 0 && len(d.Findings) == 0
	})
	e2e.Until(t, "GPUs that two exporters read are named", func() bool {
		return diagnose(t, "--exporter="+n.url, "--prometheus="+twice.url).says("broken", "GPU GPU-", "is read by several exporters",
			"run one per node")
	})
}

// TestDoctorOfGateways checks a gateway that counts a model in another namespace than the engines. The gateway then
// alerts in addition to the engines.
func TestDoctorOfGateways(t *testing.T) {
	engine := vllm(t, "7").URL
	gateway := answering(t, http.StatusOK,
		"# TYPE litellm_in_flight_requests gauge\nlitellm_in_flight_requests 1\n# TYPE litellm_proxy_total_requests_metric_total counter\n"+
			"litellm_proxy_total_requests_metric_total{requested_model=\"m\",status_code=\"200\"} 5\n")
	const says = "counts m in namespace"
	for namespace, wrong := range map[string]bool{"edge": true, "prod": false} {
		t.Run(namespace, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "exporter.yml")
			if err := os.WriteFile(file, []byte("targets:\n- {url: "+engine+", labels: {namespace: prod}}\n- {url: "+gateway+
				"/metrics, labels: {namespace: "+namespace+"}}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			e := start(t, "--config.file="+file)
			prometheus := runPrometheus(t, "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n"+
				"- {job_name: llm-node-exporter, honor_labels: true, static_configs: [{targets: ['"+strings.TrimPrefix(e.url, "http://")+"']}]}\n")
			e2e.Until(t, "both are there", func() bool {
				return len(prometheus.query(t, `llm_engine_info{model_name="m"}`, "")) == 2
			})
			d := diagnose(t, "--exporter="+e.url, "--prometheus="+prometheus.url)
			if d.says(says, "in prod", "labels: {namespace: prod}") != wrong {
				t.Errorf("%+v", d)
			}
		})
	}
}

// everyTwoSeconds returns the rules of this version, evaluated often, so that no test waits for a minute.
func everyTwoSeconds() string {
	return interval.ReplaceAllString(string(examples.Rules), "interval: 2s")
}

var interval = regexp.MustCompile(`interval: .*`)

// alertmanager names an Alertmanager that need not be reachable while no alert fires.
const alertmanager = "alerting: {alertmanagers: [{static_configs: [{targets: ['127.0.0.1:9']}]}]}\n"

// TestDoctorOfPrometheus sets up a real Prometheus in wrong ways, and once correctly.
func TestDoctorOfPrometheus(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "exporter.yml")
	if err := os.WriteFile(file, []byte("targets: [{url: "+servePage(t, healthyPage)+", labels: {namespace: prod}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(start(t, "--config.file="+file).url, "http://")
	rules := everyTwoSeconds()
	job := func(name, more string) string {
		return "- {job_name: " + name + ", honor_labels: true, static_configs: [{targets: ['" + address + "']}]" + more + "}\n"
	}
	healthy := job("llm-node-exporter", "")
	for _, c := range []struct {
		name, global, jobs, rules string
		status                    int
		says                      []string
	}{
		{"healthy", alertmanager, healthy, rules, 0, nil},
		{"no rules", alertmanager, healthy, "", 2, []string{"rules", "not loaded", "rule_files"}},
		{"no Alertmanager", "", healthy, rules, 2, []string{"Alertmanager", "are not sent", "alerting:"}},
		{
			"rules of another version", alertmanager, healthy, strings.Replace(rules, "[1h]", "[61m]", 1), 1,
			[]string{"another version, or have other options: 1 difference", "--rules=FILE"},
		},
		{
			"a rule is gone", alertmanager, healthy, strings.Replace(rules, "record: model:llm_slo_error_budget:ratio", "record: model:other", 1), 2,
			[]string{"lack 1 recording rule", "model:llm_slo_error_budget:ratio", "examples/prometheus/rules.yaml"},
		},
		{
			"an alert is gone", alertmanager, healthy, strings.Replace(rules, "alert: LLMEngineDown", "alert: Other", 1), 1,
			[]string{"lack alerts", "LLMEngineDown"},
		},
		{
			"evaluation takes longer than its interval", alertmanager, healthy, interval.ReplaceAllString(string(examples.Rules),
				"interval: 1ms"), 2,
			[]string{"rule group", "is due every 1ms", "--fleet"},
		},
		{
			"scraped too seldom", alertmanager, job("llm-node-exporter", ", scrape_interval: 2m"), rules, 2,
			[]string{"every 2m0s", "fewer than two samples", "LLMClientsGiveUp", "scrape_interval: 15s"},
		},
		{
			"another port", alertmanager, strings.ReplaceAll(healthy, address, "127.0.0.1:1"), rules, 2,
			[]string{"target http://127.0.0.1:1/metrics", "connection refused", "9844"},
		},
		{
			"another job", alertmanager, job("llm-node-exporter", ", relabel_configs: [{target_label: job, replacement: node}]"), rules, 2,
			[]string{`job "node"`, "LLMExporterDown", "target_label: job", "--job='node'"},
		},
		{
			"one instance for all", alertmanager, strings.Replace(healthy, "targets: ['"+address+"']", "targets: ['"+address+
				"', '127.0.0.1:1'], labels: {instance: node}", 1), rules, 2,
			[]string{"instance node", "overwrite each other", "target_label: instance"},
		},
		{
			"labels of the scrape win", alertmanager, strings.Replace(strings.Replace(healthy, "honor_labels: true", "honor_labels: false", 1),
				"]}]", "], labels: {namespace: monitoring}}]", 1), rules, 2,
			[]string{"arrives as exported_namespace", "honor_labels: true", "namespaceLabel"},
		},
		{"scraped twice", alertmanager, healthy + job("copy", ""), rules, 2, []string{
			"exporter http://" + address + "/metrics",
			"more than once", "copy/" + address,
		}},
		{
			"a label is dropped", alertmanager, job("llm-node-exporter", ", metric_relabel_configs: [{action: labeldrop, regex: model_name}]"),
			rules, 2,
			[]string{"label model_name", "on none in Prometheus", "labeldrop"},
		},
		{
			"metrics are dropped", alertmanager, job("llm-node-exporter",
				", metric_relabel_configs: [{action: drop, source_labels: [__name__], regex: llm_slo_.*}]"), rules, 2,
			[]string{"llm_slo_events_total", "LLMErrorBudgetFastBurn", "metric_relabel_configs"},
		},
		{
			"nobody scrapes", alertmanager, "- {job_name: other, static_configs: [{targets: ['127.0.0.1:1']}]}\n", rules, 2,
			[]string{"no target that is an exporter", "scrape_configs"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			config := "global: {scrape_interval: 1s, scrape_timeout: 1s}\n" + c.global
			if c.rules != "" {
				file := filepath.Join(t.TempDir(), "rules.yaml")
				if err := os.WriteFile(file, []byte(c.rules), 0o600); err != nil {
					t.Fatal(err)
				}
				config += "rule_files: ['" + file + "']\n"
			}
			prometheus := runPrometheus(t, config+"scrape_configs:\n"+c.jobs)
			var d diagnosed
			defer func() {
				if t.Failed() {
					t.Logf("%+v", d)
				}
			}()
			e2e.Until(t, c.name, func() bool {
				d = diagnose(t, "--exporter=http://"+address, "--prometheus="+prometheus.url)
				return d.Status == c.status && (c.says == nil || d.says(c.says...))
			})
		})
	}
}

// TestDoctorKnowsItsPassword queries a Prometheus that requires a password, which comes from a file.
func TestDoctorKnowsItsPassword(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"web.yml": passwords, "password": "secret",
		"http.yml": "basic_auth: {username: prometheus, password_file: " + filepath.Join(dir, "password") + "}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	prometheus, exporter := runPrometheus(t, "", "--web.config.file="+filepath.Join(dir, "web.yml")), start(t)
	diagnose(t, "--exporter="+exporter.url, "--prometheus="+prometheus.url).want(t, 3, "it requires credentials", "--prometheus-http-config")
	diagnose(t, "--exporter="+exporter.url, "--prometheus="+prometheus.url, "--prometheus-http-config="+filepath.Join(dir, "http.yml")).
		want(t, 2, "rules", "not loaded")
}

// TestDoctorOnATerminal requires 80 columns, and no control characters from a metrics page.
func TestDoctorOnATerminal(t *testing.T) {
	hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTeapot)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": "\x1b]0;owned\x07\u009b31m" +
			strings.Repeat(" words", 300)}})
	}))
	defer hostile.Close()
	e := start(t, "--engine.target="+hostile.URL)
	var out bytes.Buffer
	if status, err := doctorCommand(t.Context(), []string{"--exporter=" + e.url}, &out, io.Discard); status != 1 || err != nil {
		t.Fatal(status, err)
	}
	if !strings.Contains(out.String(), "owned") {
		t.Fatalf("the page's words are not shown, so this test shows nothing:\n%s", out.String())
	}
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		if len([]rune(line)) > 80 || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
			t.Errorf("%d columns: %q", len([]rune(line)), line)
		}
	}
}
