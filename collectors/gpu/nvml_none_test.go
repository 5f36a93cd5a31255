//go:build !(linux && cgo)

package gpu

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestBuildWithoutCgo: a build that cannot load NVML still runs, and says so.
func TestBuildWithoutCgo(t *testing.T) {
	c := New(Options{Kmsg: "none", SysFS: busWith(t, 2)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	want := strings.NewReader(`# HELP llm_gpu_nvml_up Whether the NVIDIA management library is loaded and initialised (1). When 0, reason is why: the name of the NVML error, starting, detached or built_without_cgo.
# TYPE llm_gpu_nvml_up gauge
llm_gpu_nvml_up{reason="built_without_cgo"} 0
`)
	var err error
	for range 1000 {
		if err = testutil.GatherAndCompare(registry, want, "llm_gpu_nvml_up"); err == nil {
			break
		}
		want.Seek(0, 0)
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
