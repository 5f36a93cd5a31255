package main

import (
	"bytes"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// gpuNode is the built exporter on a simulated node. NVML symbols are global to a process, so it runs as a separate
// process.
type gpuNode struct {
	*exporter
	*fakenvml.State
	process *exec.Cmd
	done    chan error
}

func startOnGPUs(t *testing.T, gpus int, prepare func(*fakenvml.State), args ...string) *gpuNode {
	t.Helper()
	dir := t.TempDir()
	library, err := fakenvml.Build(dir)
	if errors.Is(err, fakenvml.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := &gpuNode{exporter: &exporter{log: &e2e.Buffer{}}, done: make(chan error, 1)}
	if n.State, err = fakenvml.NewState(library, gpus, fakenvml.H100); err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare(n.State)
	}
	binary := filepath.Join(dir, "exporter")
	if out, err := exec.Command("go", "build", "-ldflags", `-extldflags "-Wl,-z,lazy"`, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	address := e2e.Address(t)
	n.url = "http://" + address
	args = append(args, "--web.listen-address="+address, "--gpu.nvml-library="+library, "--gpu.driver-budget=1", "--path.sysfs="+dir)
	if !strings.Contains(strings.Join(args, " "), "--gpu.kmsg=") {
		args = append(args, "--gpu.kmsg=none")
	}
	n.process = exec.Command(binary, args...)
	n.process.Stdout, n.process.Stderr = n.log, n.log
	n.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // if the test is killed
	if err := n.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { n.done <- n.process.Wait() }()
	t.Cleanup(func() {
		_ = n.process.Process.Kill()
		if t.Failed() {
			t.Log(n.log)
		}
	})
	return n
}

// until scrapes until the metrics page contains a text.
func (n *gpuNode) until(t *testing.T, text string) string {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get(n.url + "/metrics")
		if err == nil {
			var b bytes.Buffer
			_, _ = b.ReadFrom(resp.Body)
			resp.Body.Close()
			if strings.Contains(b.String(), text) {
				return b.String()
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the page never has %s:\n%s", text, n.log)
		}
	}
}

func TestGPUsAndEnginesOnOnePage(t *testing.T) {
	engine := vllm(t, "5")
	server := strings.TrimPrefix(engine.URL, "http://")
	n := startOnGPUs(t, 8, nil, "--engine.target="+engine.URL)
	page := n.until(t, `llm_gpu_sm_active_ratio{gpu="7"`)
	for _, want := range []string{
		`llm_engine_requests_running{runtime="vllm",model_name="m",server="` + server + `",dp_rank="0"} 5`,
		`llm_gpu_nvml_up 1`,
		`llm_slo_objective_ratio{slo="ttft"} 0.99`,
		`llm_exporter_collector_success{collector="gpu"} 1`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}

	// One GPU hangs: the metrics page comes at once, with the other seven.
	if err := n.Hang(3, time.Minute); err != nil {
		t.Fatal(err)
	}
	n.until(t, `llm_gpu_up{gpu="3"`) // a metrics page while the call hangs
	// Each metrics page comes in time unless the machine is busy.
	e2e.Until(t, "a page within a second while a GPU hangs", func() bool {
		start := time.Now()
		page = n.get(t, "/metrics")
		return time.Since(start) < time.Second
	})
	for _, gpu := range []string{"0", "1", "2", "4", "5", "6", "7"} {
		if !strings.Contains(page, `llm_gpu_memory_bandwidth_utilization_ratio{gpu="`+gpu+`"`) {
			t.Errorf("GPU %s is missing while another hangs", gpu)
		}
	}
	if err := n.Unhang(3); err != nil {
		t.Fatal(err)
	}
}

func TestDetachAndSignals(t *testing.T) {
	n := startOnGPUs(t, 1, nil, "--web.enable-lifecycle")
	n.until(t, `llm_gpu_nvml_up 1`)
	if status, body, _ := n.request(t, http.MethodPost, "/-/detach?ttl=1h"); status != http.StatusOK || !strings.Contains(body, "released") {
		t.Fatalf("detach: %d %s", status, body)
	}
	n.until(t, `llm_gpu_nvml_up{reason="detached"} 0`)
	if err := n.process.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	n.until(t, `llm_gpu_nvml_up 1`)
	if err := n.process.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	n.until(t, `llm_gpu_nvml_up{reason="detached"} 0`)
}

// TestDriverUpgradeEndsTheProcess checks that the process ends, because only a new one can load the new library.
func TestDriverUpgradeEndsTheProcess(t *testing.T) {
	n := startOnGPUs(t, 1, func(s *fakenvml.State) {
		if err := s.Set(fakenvml.System, "init", "!18"); err != nil {
			t.Fatal(err)
		}
	}, "--gpu.restart-after=2s")
	select {
	case err := <-n.done:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(n.log.String(), "lib_rm_version_mismatch") ||
			!strings.Contains(n.log.String(), "new process") {
			t.Errorf("ended with %v:\n%s", err, n.log)
		}
	case <-e2e.TooLate(t):
		t.Error("the process goes on with a library that no longer fits the driver")
	}
}
