package main

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// exporter is the whole program, running in this process on a port of its own. It does not use the GPUs of this machine,
// because a process has one NVML, and may contain several exporters.
type exporter struct {
	url string
	log *e2e.Buffer
	end chan error
}

func start(t *testing.T, args ...string) *exporter {
	t.Helper()
	return launch(t, append(args, "--no-collector.gpu")...)
}

// launch is start with GPUs.
func launch(t *testing.T, args ...string) *exporter {
	t.Helper()
	address := e2e.Address(t)
	e := &exporter{url: "http://" + address, log: &e2e.Buffer{}, end: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { e.end <- run(ctx, append(args, "--web.listen-address="+address), e.log) }()
	t.Cleanup(func() {
		cancel()
		if err := <-e.end; err != nil {
			t.Errorf("the exporter ended with %v", err)
		}
	})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return e
		}
		if time.Now().After(deadline) {
			t.Fatalf("the exporter does not listen:\n%s", e.log)
		}
	}
}

func (e *exporter) request(t *testing.T, method, path string, header ...string) (status int, body string, got http.Header) {
	t.Helper()
	req, err := http.NewRequest(method, e.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func (e *exporter) get(t *testing.T, path string, header ...string) string {
	t.Helper()
	status, body, _ := e.request(t, http.MethodGet, path, header...)
	if status != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, status, body)
	}
	return body
}

// vllm is an engine whose number of running requests a test can set.
func vllm(t *testing.T, running string) *httptest.Server {
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} "+running+"\n")
	}))
	t.Cleanup(e.Close)
	return e
}

func TestOneEngineNeedsNoFile(t *testing.T) {
	one, two := vllm(t, "7"), vllm(t, "8")
	page := start(t, "--engine.target="+one.URL, "--engine.target="+two.URL).get(t, "/metrics")
	for _, want := range []string{
		`llm_engine_requests_running{runtime="vllm",model_name="m",server="` + strings.TrimPrefix(one.URL, "http://") + `",dp_rank="0"} 7`,
		`llm_engine_requests_running{runtime="vllm",model_name="m",server="` + strings.TrimPrefix(two.URL, "http://") + `",dp_rank="0"} 8`,
		`llm_exporter_collector_success{collector="engine"} 1`,
		`llm_exporter_config_last_reload_successful 1`,
		"llm_exporter_build_info{", "process_resident_memory_bytes ", "go_goroutines ",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("promlint: %s: %s", p.Metric, p.Text)
	}
}

// TestGenAI checks that OpenTelemetry's names are served only on request.
func TestGenAI(t *testing.T) {
	page, err := os.ReadFile("../../collectors/engine/testdata/pages/vllm/v0.30.0-offload.prom")
	if err != nil {
		t.Fatal(err)
	}
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
	t.Cleanup(e.Close)
	const name = "\ngen_ai_server_time_to_first_token_seconds_count{"
	if page := start(t, "--engine.target="+e.URL).get(t, "/metrics"); strings.Contains(page, name) {
		t.Error("the names are served though nobody asked")
	}
	if page := start(t, "--engine.target="+e.URL, "--compat.gen-ai").get(t, "/metrics"); !strings.Contains(page, name) {
		t.Error("the page lacks" + name)
	}
}

// TestDCGMNames checks that dcgm-exporter's names are served beside the exporter's own, and only on request.
func TestDCGMNames(t *testing.T) {
	dcgm := httptest.NewServer(gpuPage(t, "dcgm-4.8.4.prom", ""))
	t.Cleanup(dcgm.Close)
	t.Setenv("NODE_NAME", "node-7")
	flags := []string{"--gpu.source=" + dcgm.URL, "--engine.target=http://127.0.0.1:1", "--discovery=none", "--ownership.pod-resources="}
	if page := launch(t, flags...).await(t, "\nllm_gpu_clock_hertz{"); strings.Contains(page, "\nDCGM_FI_") {
		t.Error("the names are served though nobody asked")
	}
	page := launch(t, append(flags, "--compat.dcgm")...).await(t, `pod="chat-1"} 345`) // once its owner is known
	for _, want := range []string{"\nllm_gpu_clock_hertz{", "\nDCGM_FI_DEV_SM_CLOCK{", `hostname="node-7"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

// TestGolden compares the exporter's metrics of itself.
func TestGolden(t *testing.T) {
	file := filepath.Join(t.TempDir(), "exporter.yml")
	if err := os.WriteFile(file, []byte("gpu_hour_price: {NVIDIA H100 80GB HBM3: 3.9, '*': 2.5}"), 0o600); err != nil {
		t.Fatal(err)
	}
	page := start(t, "--engine.target=http://127.0.0.1:1", "--config.file="+file).get(t, "/metrics")
	var self strings.Builder
	for line := range strings.Lines(page) {
		name, _, _ := strings.Cut(strings.Fields(line)[0], "{")
		if f := metrics.Lookup(name); f != nil && f.Owner == metrics.Exporter {
			self.WriteString(line)
		}
	}
	golden.Compare(t, "testdata/self.prom", golden.Still(self.String(), metrics.CollectorDuration.Name+"|"+metrics.ConfigReloadTime.Name))
}

func TestWithoutAnyEngine(t *testing.T) {
	e := start(t)
	if page := e.get(t, "/metrics"); !strings.Contains(page, "llm_exporter_build_info") || strings.Contains(page, "llm_engine_up") {
		t.Errorf("unexpected page:\n%s", page)
	}
	for path, want := range map[string]string{
		"/": "llm-node-exporter", "/-/healthy": "ok", "/-/ready": "ok",
		"/engines": "--engine.target", "/runbooks/": "LLMEngineDown", "/runbooks/LLMEngineDown": "llm_engine_up",
	} {
		if body := e.get(t, path); !strings.Contains(body, want) {
			t.Errorf("GET %s does not show %q", path, want)
		}
	}
	if status, _, _ := e.request(t, http.MethodGet, "/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("profiles are served without the flag: %d", status)
	}
	for _, path := range []string{"/-/reload", "/-/detach"} {
		if status, body, _ := e.request(t, http.MethodPost, path); status != http.StatusForbidden ||
			!strings.Contains(body, "--web.enable-lifecycle") {
			t.Errorf("POST %s without the flag: %d %s", path, status, body)
		}
	}
	if body := start(t, "--web.enable-pprof").get(t, "/debug/pprof/"); !strings.Contains(body, "goroutine") {
		t.Error("--web.enable-pprof serves no profiles")
	}
}

func TestEnginesPage(t *testing.T) {
	engine := vllm(t, "7")
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w,
			"kong_http_requests_total 1\n")
	}))
	defer gateway.Close()
	e := start(t, "--engine.target="+engine.URL, "--engine.target=http://127.0.0.1:1", "--engine.target="+gateway.URL)
	if page := e.get(t, "/engines"); strings.Count(page, "<td>pending</td>") != 3 {
		t.Errorf("before the first scrape:\n%s", page)
	}
	e.get(t, "/metrics")
	page := e.get(t, "/engines")
	for _, want := range []string{
		"<td>up</td><td>vllm</td>", "<td>m</td>", "<td>unreachable</td>", "Is the server running",
		"<td>router</td>", "this is Kong, a gateway",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
}

// TestStateOfEngines checks that the list of engines shows the state of the series, and that doctor accepts an engine
// that loads its model on the first request.
func TestStateOfEngines(t *testing.T) {
	idle := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		switch r.URL.Path {
		case "/api/version":
			io.WriteString(w, `{"version":"0.12.6"}`)
		case "/api/ps":
			io.WriteString(w, `{"models":[]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer idle.Close()
	e := start(t, "--engine.target="+idle.URL, "--engine.target="+servePage(t, "dynamo/frontend-v1.6.0-allkilled.prom"))
	series := e.get(t, "/metrics")
	page := e.get(t, "/engines")
	for _, state := range []string{"not_loaded", "no_worker"} {
		if !strings.Contains(series, `reason="`+state+`"`) || !strings.Contains(page, "<td>"+state+"</td>") ||
			!strings.Contains(page, engine.Remedy(state)[:40]) {
			t.Errorf("%s is not both on the metrics page and on /engines with its remedy:\n%s", state, page)
		}
	}
	if d := diagnose(t, "--exporter="+e.url); d.says("not_loaded") || !d.says("no_worker") {
		t.Errorf("doctor: %+v", d)
	}
}

func TestReload(t *testing.T) {
	one, two := vllm(t, "1"), vllm(t, "2")
	file := filepath.Join(t.TempDir(), "exporter.yml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("targets:\n  - url: " + one.URL + "\n    labels: {namespace: prod}\n")
	e := start(t, "--web.enable-lifecycle", "--config.file="+file)
	if status, _, _ := e.request(t, http.MethodGet, "/-/reload"); status != http.StatusMethodNotAllowed {
		t.Errorf("GET /-/reload: %d", status)
	}
	want := func(text string) {
		t.Helper()
		if page := e.get(t, "/metrics"); !strings.Contains(page, text) {
			t.Errorf("the page lacks %s", text)
		}
	}
	want(`namespace="prod",server="` + strings.TrimPrefix(one.URL, "http://") + `",dp_rank="0"} 1`)
	// A reload that takes a target out also removes the target's series, because the target was not lost.
	configured := `llm_exporter_configured_target_info{namespace="prod",server="` + strings.TrimPrefix(one.URL, "http://") + `"} 1`
	want(configured)

	write("targets:\n  - url: " + two.URL + "\n")
	if status, body, _ := e.request(t, http.MethodPost, "/-/reload"); status != http.StatusOK {
		t.Fatalf("reload: %d %s", status, body)
	}
	want(`server="` + strings.TrimPrefix(two.URL, "http://") + `",dp_rank="0"} 2`)
	if strings.Contains(e.get(t, "/metrics"), configured) {
		t.Error("a target that is no longer configured is said to be")
	}
	want(`llm_exporter_configured_target_info{server="` + strings.TrimPrefix(two.URL, "http://") + `"} 1`)

	write("targets:\n  - url: " + one.URL + "\n    tiemout: 3s\n")
	status, body, _ := e.request(t, http.MethodPost, "/-/reload")
	if status != http.StatusInternalServerError || !strings.Contains(body, "previous configuration stays") ||
		!strings.Contains(body, "tiemout") || !strings.Contains(body, ".yml:3: ") {
		t.Errorf("a wrong configuration answers %d %s", status, body)
	}
	want(`server="` + strings.TrimPrefix(two.URL, "http://") + `",dp_rank="0"} 2`)
	want("llm_exporter_config_last_reload_successful 0")

	write("targets:\n  - url: " + one.URL + "\n")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); !strings.Contains(e.get(t, "/metrics"),
		"llm_exporter_config_last_reload_successful 1"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("SIGHUP does not load the configuration:\n%s", e.log)
		}
	}
	want(`server="` + strings.TrimPrefix(one.URL, "http://") + `",dp_rank="0"} 1`)
}

// Declared maintenance is in the metrics and on /engines until it is removed.
func TestMaintenance(t *testing.T) {
	one := vllm(t, "1")
	file := filepath.Join(t.TempDir(), "exporter.yml")
	write := func(from, to time.Duration) {
		stamp := func(d time.Duration) string { return time.Now().Add(d).Format(time.RFC3339) }
		text := "targets: [{url: " + one.URL + "}]\nmaintenance:\n- {from: " + stamp(from) + ", to: " + stamp(to) +
			", reason: new <racks>, objectives: [ttft], select: {not: {model_name: [other]}}}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(-time.Hour, time.Hour)
	e := start(t, "--web.enable-lifecycle", "--config.file="+file)
	want := `llm_slo_maintenance{runtime="vllm",model_name="m",server="` + strings.TrimPrefix(one.URL, "http://") + `",slo="ttft"} 1`
	if page := e.get(t, "/metrics"); !strings.Contains(page, want) || strings.Count(page, "\nllm_slo_maintenance{") != 1 {
		t.Errorf("the page lacks %s alone", want)
	}
	for _, want := range []string{"<td>on</td>", "new &lt;racks&gt;", "not (model_name=other)", "<td>ttft </td>"} {
		if page := e.get(t, "/engines"); !strings.Contains(page, want) {
			t.Errorf("/engines lacks %s:\n%s", want, page)
		}
	}
	write(time.Hour, 2*time.Hour)
	if status, body, _ := e.request(t, http.MethodPost, "/-/reload"); status != http.StatusOK {
		t.Fatalf("reload: %d %s", status, body)
	}
	if page := e.get(t, "/metrics"); strings.Contains(page, "llm_slo_maintenance") {
		t.Error("the page has maintenance that is yet to come")
	}
	if page := e.get(t, "/engines"); !strings.Contains(page, "<td>coming</td>") {
		t.Errorf("/engines lacks what is coming:\n%s", page)
	}
	// The check of the configuration reports intervals without effect.
	write(-2*time.Hour, -time.Hour)
	var log e2e.Buffer
	if err := run(t.Context(), []string{"--config.file=" + file, "--config.check"}, &log); err != nil || !strings.Contains(log.String(),
		"is over and does nothing") {
		t.Errorf("%v\n%s", err, &log)
	}
}

// TestConfigurationErrors requires that each mistake is answered with the line and the remedy.
func TestConfigurationErrors(t *testing.T) {
	for _, c := range []struct {
		name, text string
		says       []string
	}{
		{"not YAML", "targets: [", []string{"exporter.yml:1", "not YAML"}},
		{"unknown section", "target:\n  - url: http://h:1\n", []string{"exporter.yml:1", "unknown field \"target\""}},
		{"wrong type", "limits:\n  series: many\n", []string{"exporter.yml:2", "must be a whole number"}},
		{
			"severity of a rule", "objectives:\n- {name: a, signal: ttft, threshold: 1s, target: 99%, severity: critical}\n",
			[]string{"exporter.yml:2", `"critical"`, "write page, ticket or none"},
		},
		{"bad price", "retention: 15d\ngpu_hour_price:\n  '*': -2\n", []string{"exporter.yml:3", "gpu_hour_price.*", "at least 0"}},
		{"bad size", "limits:\n  body_size: 16 apples\n", []string{"exporter.yml:2", "apples"}},
		{"no scheme", "targets:\n  - url: http://a:1\n  - url: localhost:8000\n", []string{
			"exporter.yml:3", "targets[1].url",
			"http://host:port",
		}},
		{"engine unknown", "targets:\n  - url: http://a:1\n    engine: vlllm\n", []string{"exporter.yml:3", "use one of vllm"}},
		{"password in a URL with a wrong port", "targets: [{url: 'http://u:s3cret@a:port'}]\n", []string{"exporter.yml:1", "http://host:port"}},
		{"password in a URL without a scheme", "targets: [{url: 'u:s3cret@a:8000'}]\n", []string{"exporter.yml:1", "http://host:port"}},
		{"password in a URL of another scheme", "targets: [{url: 'ftp://u:s3cret@a:8000'}]\n", []string{"exporter.yml:1", "password_file"}},
		{
			"secret in the file", "targets:\n  - url: http://a:1\n    http_config:\n      authorization:\n        credentials: s3cret\n",
			[]string{"exporter.yml:5", "credentials_file"},
		},
		{
			"header's secret", "targets:\n- url: http://a:1\n  http_config:\n    http_headers:\n      X-Api-Key: {secrets: [s3cret]}\n",
			[]string{"exporter.yml:5", "use files"},
		},
		{"probe's token URL", "probes:\n- url: http://a:1\n  model: m\n  http_config:\n    oauth2: {client_id: c, token_url: " +
			"'https://h/?client_secret=s3cret'}\n", []string{"exporter.yml:5", "client_secret_file"}},
		{"two ways to log in", "targets:\n- url: http://a:1\n  http_config:\n    basic_auth: {username: u, password: s3cret}\n    " +
			"authorization: {credentials: s3cret}\n", []string{"exporter.yml:3", "at most one"}},
		{
			"version of TLS", "targets:\n- url: http://a:1\n  http_config:\n    tls_config: {min_version: TLS9}\n",
			[]string{"exporter.yml:4", "TLS9"},
		},
		{
			"bad selector", "mappings:\n  - engine: mine\n    recognise: x\n    metrics:\n      - to: llm_engine_requests_running\n        " +
				"from: 'x{a='\n        type: gauge\n",
			[]string{"exporter.yml:6", "PromQL selector"},
		},
		{
			"endless maintenance", "maintenance:\n- {from: 2026-10-01T00:00:00Z, to: 2026-10-09T00:00:00Z, reason: r}\n",
			[]string{"exporter.yml:2", "maintenance[0].to", "more than 7d"},
		},
		{
			"maintenance without a zone", "maintenance:\n- {from: 2026-10-01 00:00, to: 2026-10-02T00:00:00Z, reason: r}\n",
			[]string{"exporter.yml:2", "with its zone", "2026-10-01T22:00:00Z"},
		},
		{
			"owner of ours", "objectives:\n- {name: a, signal: ttft, threshold: 1s, target: 99%, labels: {slo: b}}\n",
			[]string{"exporter.yml:2", "labels.slo", "label of the exporter's own series"},
		},
		{
			"probe without a model", "probes:\n- url: http://a:1\n  api: chat\n",
			[]string{"exporter.yml:2", "probes[0].model", "a name that clients use"},
		},
		{
			"probe's budget", "probes:\n- url: http://a:1\n  model: m\n  tokens_per_hour: 50\n",
			[]string{"exporter.yml:4", "raise this limit, or lower prompt_words"},
		},
		{"missing field", "mappings:\n  - engine: mine\n    metrics: []\n", []string{"exporter.yml:2", "recognise", "only mine has"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "exporter.yml")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			err := run(t.Context(), []string{"--config.file=" + file, "--config.check"}, io.Discard)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the error does not say %q:\n%v", s, err)
				}
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error shows the secret:\n%v", err)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "exporter.yml")
	if err := os.WriteFile(file, []byte("targets:\n- url: http://a:1\nprobes:\n- url: http://a:1\n  model: m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{ // the last objective is wrong, and is in no list of the file
		{"--engine.target=ftp://h"},
		{"--probe.model=m", "--probe.target=ftp://h"},
		{"--probe.engines", "--probe.interval=1s"},
		{"--probe.interval=0s"},
		{"--probe.target=http://h:1", "--probe.model=m", "--probe.target=http://h:1/v1"},
	} {
		wrong := flags[len(flags)-1]
		if strings.Contains(wrong, "/v1") {
			flags = flags[1:]
		}
		err := run(t.Context(), append([]string{"--config.check", "--config.file=" + file}, flags...), io.Discard)
		name, _, _ := strings.Cut(wrong, "=")
		if err == nil || !strings.Contains(err.Error(), name+": ") || strings.Contains(err.Error(), "exporter.yml") ||
			strings.Contains(err.Error(), "s[") {
			t.Errorf("%s: %v", flags, err)
		}
	}
	for _, wrong := range []string{
		"--role=x", "--discovery=x", "--gpu.interval=x", "--gpu.interval=0s", "--gpu.deadline=-1s",
		"--gpu.restart-after=-1s", "--web.max-requests=many",
		"--web.max-requests=-1", "--compat.dcgm --no-collector.gpu", "--web.runbook-query-url=https://p.example",
		"--web.telemetry-path=metrics", "--web.telemetry-path=/", "--web.telemetry-path=/engines", "--web.telemetry-path=/{x}",
	} {
		name := strings.FieldsFunc(wrong, func(r rune) bool { return r == '=' || r == ' ' })[0]
		if err := run(t.Context(), append([]string{"--config.check", "--log.level=info"}, strings.Fields(wrong)...),
			io.Discard); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if err := run(t.Context(), []string{"--config.check", "--gpu.interval", "soon"}, io.Discard); err == nil ||
		!strings.HasPrefix(err.Error(), "--gpu.interval: ") {
		t.Errorf("a flag and its value apart: %v", err)
	}
	if err := run(t.Context(), []string{"--config.check", "--config.file=/does/not/exist"}, io.Discard); err == nil {
		t.Error("a missing file is accepted")
	}
	if err := run(t.Context(), []string{"--nonsense"}, io.Discard); err == nil || !strings.Contains(err.Error(), "--help") {
		t.Errorf("an unknown flag: %v", err)
	}
}

func TestExampleConfiguration(t *testing.T) {
	example, err := os.ReadFile("../../docs/exporter.example.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() // the files in the example exist on no test machine
	text := strings.ReplaceAll(string(example), "/etc/llm-node-exporter", dir)
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, content := range map[string][]byte{"token": []byte("t"), "ca.pem": certificate, "exporter.yml": []byte(text)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(t.Context(), []string{"--config.file=" + filepath.Join(dir, "exporter.yml"), "--config.check"}, io.Discard); err != nil {
		t.Error(err)
	}
}

// passwords is the part of a web configuration that requires the user prometheus with the password secret.
const passwords = "basic_auth_users: {prometheus: $2a$04$v71QEamSLGDlkZltiXQo6ekzuqj4WnNfyvbfWRpHaIat.Aqb8SbVe}\n"

func TestTLSAndPasswords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yml")
	if err := os.WriteFile(file, []byte(passwords), 0o600); err != nil {
		t.Fatal(err)
	}
	e := start(t, "--web.config.file="+file)
	if status, _, _ := e.request(t, http.MethodGet, "/metrics"); status != http.StatusUnauthorized {
		t.Errorf("without a password: %d", status)
	}
}

func TestScrapeDeadlineComesFromTheScraper(t *testing.T) {
	release := make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer stuck.Close()
	defer close(release)
	healthy := vllm(t, "3")
	page := start(t, "--engine.target="+stuck.URL, "--engine.target="+healthy.URL).
		get(t, "/metrics", "X-Prometheus-Scrape-Timeout-Seconds", "0.5")
	for _, want := range []string{`reason="timeout"} 0`, `dp_rank="0"} 3`, `llm_exporter_collector_success{collector="engine"} 0`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

func TestCompression(t *testing.T) {
	engine := vllm(t, "3")
	e := start(t, "--engine.target="+engine.URL)
	_, _, header := e.request(t, http.MethodGet, "/metrics", "Accept-Encoding", "gzip")
	if header.Get("Content-Encoding") != "gzip" || !strings.HasPrefix(header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("headers %v", header)
	}
}

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "zstd, gzip;q=0.5": true, "*": true, "gzip;q=0": false, "gzip; q=0, br": false, "identity": false,
	} {
		if got := acceptsGzip(http.Header{"Accept-Encoding": {header}}); got != want {
			t.Errorf("Accept-Encoding %q: %v", header, got)
		}
	}
}

func TestTooManyScrapes(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 10)
	stuck := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release }))
	defer stuck.Close()
	e := start(t, "--web.max-requests=1", "--engine.target="+stuck.URL)
	done := make(chan struct{})
	go func() { defer close(done); e.get(t, "/metrics") }()
	<-arrived
	if status, body, _ := e.request(t, http.MethodGet, "/metrics"); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "--web.max-requests") {
		t.Errorf("the second scrape answers %d %s", status, body)
	}
	close(release)
	<-done
}
