//go:build !(linux && cgo)

package gpu

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestBuildWithoutCgo checks that a build that cannot load NVML still runs, and reports that.
func TestBuildWithoutCgo(t *testing.T) {
	c := New(Options{Kmsg: "none", SysFS: busWith(t, 2)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var up, expected string
		for _, f := range families {
			switch f.GetName() {
			case metrics.GPUNVMLUp.Name:
				up = f.Metric[0].String()
			case metrics.GPUExpected.Name:
				expected = f.Metric[0].String()
			}
		}
		if strings.Contains(up, "built_without_cgo") && strings.Contains(expected, "value:2") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("want built_without_cgo and two GPUs on the bus, got %s and %s", up, expected)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
