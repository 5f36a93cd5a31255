package ownership

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/internal/proc"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// waits returns how long the threads of the engine on a metrics page waited for a CPU.
func waits(t *testing.T, page, server string) (seconds float64, known bool) {
	t.Helper()
	line := regexp.MustCompile(metrics.EngineCPUWait.Name + `\{[^}]*server="` + regexp.QuoteMeta(server) + `"[^}]*} (\S+)`).FindStringSubmatch(page)
	if line == nil {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(line[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return seconds, true
}

// TestCPUWait checks which threads' waiting counts: the threads of the server, its children and its processes on GPUs,
// from the first scan, and newer threads, from their start.
func TestCPUWait(t *testing.T) {
	procFS := newHost(t,
		process{pid: 10, ppid: 1, name: "vllm", listens: []string{loopback4 + " 8000"}}, process{pid: 11, ppid: 10, name: "core"},
		process{pid: 20, ppid: 1, name: "train"},
		process{pid: 30, ppid: 1, name: "vllm", listens: []string{loopback4 + " 9000"}})
	thread := func(pid, tid int, ran, waited time.Duration) {
		dir := filepath.Join(procFS, strconv.Itoa(pid), "task", strconv.Itoa(tid))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "schedstat"), fmt.Appendf(nil, "%d %d 7\n", ran, waited), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := New(Options{
		Targets:   func() []Target { return []Target{engine("127.0.0.1:8000"), engine("127.0.0.1:9000")} },
		Processes: func() []gpu.Process { return []gpu.Process{on(11, gpu0, 1), on(20, gpu0, 1), on(30, gpu1, 1)} },
		GPUs:      func() []gpu.Identity { return []gpu.Identity{gpu0, gpu1} },
		ProcFS:    procFS,
	})
	thread(10, 10, time.Hour, time.Minute)
	thread(11, 11, time.Hour, time.Hour)
	thread(20, 20, time.Hour, time.Hour)
	thread(30, 30, 0, 0) // the kernel does not count
	steps := []struct {
		change func()
		want   float64
	}{
		{func() {}, 0},
		{func() { thread(10, 10, time.Hour, time.Minute+time.Second) }, 1},
		{func() { thread(11, 11, time.Hour, time.Hour+2*time.Second); thread(20, 20, time.Hour, 2*time.Hour) }, 3},
		{func() { thread(11, 12, time.Second, 4*time.Second) }, 7},
		{func() { _ = os.RemoveAll(filepath.Join(procFS, "11", "task", "12")) }, 7},
		{func() { thread(11, 11, time.Second, time.Second) }, 7}, // the id of another thread
	}
	for i, step := range steps {
		step.change()
		got := page(t, c)
		if seconds, known := waits(t, got, "127.0.0.1:8000"); seconds != step.want || !known {
			t.Errorf("step %d: %g s, known %t, want %g", i, seconds, known, step.want)
		}
		if seconds, known := waits(t, got, "127.0.0.1:9000"); known {
			t.Errorf("step %d: %g s of an engine whose waiting is not counted", i, seconds)
		}
	}
}

// TestCPUTaken checks, on a real procfs, that a process waits while another has its CPU.
func TestCPUTaken(t *testing.T) {
	spin := func() int {
		child := exec.Command("taskset", "-c", "0", "sh", "-c", "while :; do :; done")
		if err := child.Start(); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
		return child.Process.Pid
	}
	look := &look{Scan: proc.New("/proc"), serving: map[int]int{0: spin()}}
	spin()
	spin()
	if len(look.Waited(look.serving[0])) == 0 {
		t.Skip("this kernel does not count how long threads wait")
	}
	time.Sleep(200 * time.Millisecond) // until all three run there
	targets := []Target{engine("127.0.0.1:8000")}
	first := look.cpuWaits(targets, nil)
	began := time.Now()
	time.Sleep(time.Second)
	second := look.cpuWaits(targets, first)
	elapsed := time.Since(began).Seconds()
	if got := second["127.0.0.1:8000"].seconds; got < 0.2*elapsed || got > 1.1*elapsed {
		t.Errorf("of three processes on one CPU, one waited for %g s in %g s", got, elapsed)
	}
}

// TestComputing checks how busy an engine's busiest GPU is with its own kernels, and that this is unknown if the driver
// does not report it.
func TestComputing(t *testing.T) {
	procFS := newHost(t, process{pid: 10, ppid: 1, name: "vllm", listens: []string{loopback4 + " 8000"}},
		process{pid: 11, ppid: 10, name: "worker"}, process{pid: 20, ppid: 1, name: "train"})
	busy := func(pid int, at gpu.Identity, share float64) gpu.Process {
		p := on(pid, at, 1)
		p.SM, p.UtilizationKnown = share, true
		return p
	}
	for want, running := range map[float64][]gpu.Process{
		0.75: {busy(10, gpu0, 0.25), busy(11, gpu1, 0.75), busy(20, gpu0, 1)},
		-1:   {on(10, gpu0, 1), busy(20, gpu0, 1)},
	} {
		c := New(Options{
			Targets:   func() []Target { return []Target{engine("127.0.0.1:8000")} },
			Processes: func() []gpu.Process { return running },
			GPUs:      func() []gpu.Identity { return []gpu.Identity{gpu0, gpu1} },
			ProcFS:    procFS,
		})
		page(t, c)
		if got, known := c.Computing("127.0.0.1:8000"); known != (want >= 0) || known && got != want {
			t.Errorf("%g, known %t, want %g", got, known, want)
		}
	}
}
