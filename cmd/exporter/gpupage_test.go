package main

import (
	"context"
	"fmt"
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

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

const gpuPages = "../../collectors/gpu/page/testdata/pages/"

// gpuPage serves a metrics page of testdata. It requires a password if one is given.
func gpuPage(t *testing.T, name, password string) http.Handler {
	t.Helper()
	body, err := os.ReadFile(gpuPages + name)
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, given, _ := r.BasicAuth(); given != password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write(body)
	})
}

// await requests the metrics page until it contains a text.
func (e *exporter) await(t *testing.T, text string) (page string) {
	t.Helper()
	e2e.Until(t, text, func() bool {
		page = e.get(t, "/metrics")
		return strings.Contains(page, text)
	})
	return page
}

// TestGPUsOfAPage checks the GPUs of another exporter's metrics page: same families, engines by its pods, and no NVML.
func TestGPUsOfAPage(t *testing.T) {
	dcgm := httptest.NewServer(gpuPage(t, "dcgm-4.8.4.prom", ""))
	t.Cleanup(dcgm.Close)
	engine := vllm(t, "5")
	config := filepath.Join(t.TempDir(), "config.yml")
	if err := os.WriteFile(config, []byte("targets:\n- {url: "+engine.URL+", labels: {namespace: prod, pod: chat-1}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := launch(t, "--gpu.source="+dcgm.URL, "--config.file="+config, "--discovery=none", "--ownership.pod-resources=")
	page := e.await(t, "llm_engine_gpu_info{")
	for _, want := range []string{
		`llm_gpu_source_up{server="` + strings.TrimPrefix(dcgm.URL, "http://") + `",source="dcgm"} 1`,
		`llm_gpu_clock_hertz{domain="sm",gpu="1",`, `llm_gpu_metric_source_info{metric="llm_gpu_nvlink_up",quality="missing"`,
		`llm_gpu_allocation_info{container="vllm",gpu="0"`, `pod="chat-1"`, `source="page"} 1`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, "\nllm_gpu_nvml_up{") {
		t.Error("NVML was asked")
	}
}

// TestGPUPageOutOfOrder checks that an answer that is not a metrics page loses only the GPUs.
func TestGPUPageOutOfOrder(t *testing.T) {
	dcgm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "failed to collect", http.StatusInternalServerError)
	}))
	t.Cleanup(dcgm.Close)
	e := launch(t, "--gpu.source="+dcgm.URL, "--engine.target="+vllm(t, "5").URL, "--discovery=none")
	page := e.await(t, `llm_gpu_source_up{reason="http_500",server="`+strings.TrimPrefix(dcgm.URL, "http://")+`"} 0`)
	if !strings.Contains(page, "\nllm_engine_requests_running{") || strings.Contains(page, "\nllm_gpu_up{") {
		t.Errorf("more or less than the GPUs is lost on\n%s", page)
	}
}

// TestPasswordOfAGPUPage checks that the password comes from a file. A password in the configuration is refused.
func TestPasswordOfAGPUPage(t *testing.T) {
	dcgm := httptest.NewServer(gpuPage(t, "dcgm-4.9.0.prom", "secret"))
	t.Cleanup(dcgm.Close)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"password": "secret", "good": "basic_auth: {username: u, password_file: password}\n",
		"bad": "basic_auth: {username: u, password: secret}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := launch(t, "--gpu.source="+dcgm.URL)
	e.await(t, `llm_gpu_source_up{reason="unauthorized"`)
	if log := e.log.String(); !strings.Contains(log, "--gpu.source-http-config") {
		t.Errorf("the log has no remedy:\n%s", log)
	}
	e = launch(t, "--gpu.source="+dcgm.URL, "--gpu.source-http-config="+filepath.Join(dir, "good"))
	e.await(t, `source="dcgm"} 1`)
	if strings.Contains(e.log.String(), "secret") {
		t.Error("the secret is in the log")
	}
	for args, want := range map[string]string{
		"--gpu.source=" + dcgm.URL + " --gpu.source-http-config=" + filepath.Join(dir, "bad"): "use password_file",
		"--gpu.source=dcgm": "http://host:port",
	} {
		if err := run(context.Background(), strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// TestGPUsOfEither checks that a metrics page replaces NVML while NVML cannot be used, and that no GPU ever appears
// twice.
func TestGPUsOfEither(t *testing.T) {
	amd := httptest.NewServer(gpuPage(t, "amd-1.5.1.prom", ""))
	t.Cleanup(amd.Close)
	before := pages
	pages = []string{"http://127.0.0.1:1", amd.URL}
	defer func() { pages = before }()
	e := launch(t, "--gpu.source=auto", "--gpu.nvml-library="+filepath.Join(t.TempDir(), "none.so"), "--gpu.kmsg=none")
	page := e.await(t, `source="amd"} 1`)
	if strings.Contains(page, "\nllm_gpu_nvml_up{") || strings.Contains(page, `reason="unreachable"`) {
		t.Errorf("two sources on\n%s", page)
	}
}

// TestKernelLogBesideAPage checks that a metrics page as source, or in place of NVML, has the XIDs and SXids of the
// kernel log, with the GPUs' names. Without the log, the metrics page has its own XIDs.
func TestKernelLogBesideAPage(t *testing.T) {
	dcgm := httptest.NewServer(gpuPage(t, "dcgm-4.8.4-extended.prom", ""))
	t.Cleanup(dcgm.Close)
	before := pages
	pages = []string{"http://127.0.0.1:1", dcgm.URL}
	defer func() { pages = before }()
	nvml := "--gpu.nvml-library=" + filepath.Join(t.TempDir(), "none.so")
	for _, source := range []string{dcgm.URL, "auto"} {
		kmsg := filepath.Join(t.TempDir(), "kmsg")
		write := func(seq int, message string) {
			f, err := os.OpenFile(kmsg, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fmt.Fprintf(f, "3,%d,1000000,-;%s\n", seq, message)
		}
		write(1, "nvidia-nvswitch0: SXid (PCI:0000:c0:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
		e := launch(t, "--gpu.source="+source, nvml, "--gpu.kmsg="+kmsg, "--discovery=none")
		e.await(t, `llm_gpu_source_up{`)
		e.await(t, `llm_gpu_nvswitch_sxid_last_timestamp_seconds{pci_bus_id="0000:c0:00.0"`)
		xid := func(n string) string {
			return `llm_gpu_xid_errors_total{gpu="0",gpu_uuid="GPU-6c0e1f7a-2f0b-4d1c-9a55-0d7c3f1b2a01",pci_bus_id="0000:1b:00.0",severity="page",source="kmsg",xid="79"} ` + n
		}
		e.await(t, xid("0"))
		time.Sleep(time.Second / 2) // the end of the log was seen
		write(2, "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.")
		page := e.await(t, xid("1"))
		for text, want := range map[string]int{
			"\nllm_gpu_source_up{": 1, "\n" + `llm_gpu_xid_source_up{source="kmsg"} 1`: 1,
			`source="dcgm",xid=`: 0,
			"\n" + `llm_gpu_metric_source_info{metric="llm_gpu_nvswitch_sxid_errors_total",quality="native",source="kernel log"} 1`: 1,
		} {
			if n := strings.Count(page, text); n != want {
				t.Errorf("--gpu.source=%s: %d times %s, want %d", source, n, text, want)
			}
		}
		e = launch(t, "--gpu.source="+source, nvml, "--gpu.kmsg=none", "--discovery=none")
		if page := e.await(t, `source="dcgm",xid="79"} 2`); strings.Contains(page, "llm_gpu_xid_source_up{") {
			t.Errorf("--gpu.source=%s: without the kernel log, a source of XIDs is on\n%s", source, page)
		}
	}
}

// TestNVMLWinsOverAPage checks that NVML is read if a node has both, except while NVML is released.
func TestNVMLWinsOverAPage(t *testing.T) {
	listener, err := net.Listen("tcp", strings.TrimPrefix(pages[0], "http://"))
	if err != nil {
		t.Skip("somebody has the port of dcgm-exporter: ", err)
	}
	dcgm := &http.Server{Handler: gpuPage(t, "dcgm-4.8.4.prom", "")}
	go func() { _ = dcgm.Serve(listener) }()
	t.Cleanup(func() { _ = dcgm.Close() })
	n := startOnGPUs(t, 1, nil, "--gpu.source=auto")
	if page := n.until(t, `llm_gpu_nvml_up 1`); strings.Contains(page, "llm_gpu_source_up{") {
		t.Errorf("two sources on\n%s", page)
	}
	for _, step := range []struct {
		signal    syscall.Signal
		one, none string
	}{{syscall.SIGUSR1, `source="dcgm"} 1`, "llm_gpu_nvml_up "}, {syscall.SIGUSR2, `llm_gpu_nvml_up 1`, "llm_gpu_source_up{"}} {
		if err := n.process.Process.Signal(step.signal); err != nil {
			t.Fatal(err)
		}
		if page := n.until(t, step.one); strings.Contains(page, step.none) {
			t.Errorf("%s beside %s", step.none, step.one)
		}
	}
}
