//go:build linux && cgo

package ownership

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// TestTimeSlicing checks a GPU that two pods share by turns: each has the part of the time that the driver reports
// for its processes, and none while it rests.
func TestTimeSlicing(t *testing.T) {
	lib, err := fakenvml.Build(t.TempDir())
	if errors.Is(err, fakenvml.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	state, err := fakenvml.NewState(lib, 1, fakenvml.H100)
	if err != nil {
		t.Fatal(err)
	}
	say := func(samples string) {
		if err := state.Set("0", "processes", "10:1024:-1 11:1024:-1", "process_utilization", samples); err != nil {
			t.Fatal(err)
		}
	}
	say("10:0:64:21 11:0:30:9")
	gpus := gpu.New(gpu.Options{
		LibraryPath: lib, Interval: 120 * time.Millisecond, SlowInterval: 200 * time.Millisecond,
		SysFS: t.TempDir(), Kmsg: "none", Logger: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() { _ = gpus.Run(ctx) })
	defer reading.Wait()
	defer stop()

	c := New(Options{Targets: func() []Target { return nil }, Processes: gpus.Processes, GPUs: gpus.GPUs})
	c.options.PodLogs, c.options.ProcFS = twoPods(t)
	await := func(chatSM, chatMemory, batchSM, batchMemory string) {
		t.Helper()
		e2e.Until(t, chatSM+" and "+batchSM+" of the GPU's time", func() bool {
			got := page(t, c)
			return ofPod(got, "llm_gpu_container_sm_utilization_ratio", "chat") == chatSM && ofPod(got, "llm_gpu_container_memory_busy_ratio",
				"chat") == chatMemory &&
				ofPod(got, "llm_gpu_container_sm_utilization_ratio", "batch") == batchSM && ofPod(got, "llm_gpu_container_memory_busy_ratio",
				"batch") == batchMemory
		})
	}
	await("0.64", "0.21", "0.3", "0.09")
	say("10:0:98:40")
	await("0.98", "0.4", "0", "0")
	say("!3")
	await("", "", "", "")
}
