package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

var soak = flag.Duration("soak", 0, "how long TestSoak runs; 0 skips it")

// TestSoak runs the built exporter with eight GPUs and eight vLLM engines under one scrape per second and watches its
// memory: go test ./cmd/exporter -run Soak -soak 10m -timeout 15m -v.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("a long run: pass -soak 10m")
	}
	const limit = 30 << 20
	dir := t.TempDir()
	library, err := fakenvml.Build(dir)
	if err != nil {
		t.Skip(err)
	}
	if _, err := fakenvml.NewState(library, 8, fakenvml.H100); err != nil {
		t.Fatal(err)
	}
	args := []string{"--gpu.nvml-library=" + library, "--gpu.kmsg=none", "--log.level=error"}
	body, err := os.ReadFile("../../collectors/engine/testdata/pages/vllm/v0.8.5-v1.prom")
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		page := strings.Split(string(body), "\n")
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				http.NotFound(w, r)
				return
			}
			requests++
			for _, line := range page { // counters must grow: a counter that falls means a restarted engine
				if !strings.HasPrefix(line, "#") && strings.HasSuffix(line, ".0") {
					line = line[:len(line)-2] + fmt.Sprintf("%04d.0", requests)
				}
				io.WriteString(w, line+"\n")
			}
		}))
		t.Cleanup(server.Close)
		args = append(args, "--engine.target="+server.URL)
	}
	built := filepath.Join(dir, "built")
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags", `-s -w -extldflags "-Wl,-z,lazy"`, "-o", built, ".").
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	address := e2e.Address(t)
	process := exec.Command(unpacked(t, built), append(args, "--web.listen-address="+address)...)
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	e2e.Answers(t, "http://"+address+"/-/ready")

	var most, anonymous, early, late int64
	var slowest time.Duration
	size := 0
	start := time.Now()
	for tick := time.NewTicker(time.Second); time.Since(start) < *soak; <-tick.C {
		began := time.Now()
		resp, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		slowest, size = max(slowest, time.Since(began)), len(page)
		rss, shared := resident(t, process.Process.Pid)
		most, anonymous = max(most, rss), max(anonymous, rss-shared)
		if time.Since(start) < *soak/2 {
			early = max(early, rss)
		} else {
			late = max(late, rss)
		}
	}
	t.Logf("page %d kB, slowest scrape %s, resident memory at most %.1f MiB (first half %.1f, second half %.1f), anonymous %.1f MiB",
		size>>10, slowest.Round(time.Millisecond), mib(most), mib(early), mib(late), mib(anonymous))
	if most > limit {
		t.Errorf("more than %d MiB", limit>>20)
	}
	if late > early+early/10 {
		t.Error("memory grows")
	}
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// resident returns the resident memory of a process, and the file-backed part.
func resident(t *testing.T, pid int) (all, shared int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(b), new(int64), &all, &shared); err != nil {
		t.Fatal(err)
	}
	size := int64(os.Getpagesize())
	return all * size, shared * size
}
