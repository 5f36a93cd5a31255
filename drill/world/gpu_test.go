package world

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestGPUSeries reads H100s behind an NVML library with the real collector. The collector must serve each series
// that the drill writes about a GPU, with the same labels and the same value, whether the GPU is healthy, sick or
// lost.
func TestGPUSeries(t *testing.T) {
	library, err := fakenvml.Build(t.TempDir())
	if errors.Is(err, fakenvml.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	state, err := NewNVML(library, 2)
	if err != nil {
		t.Fatal(err)
	}
	kmsg := filepath.Join(t.TempDir(), "kmsg")
	if err := syscall.Mkfifo(kmsg, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(kmsg, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	ill, lost := newGPU(0), newGPU(1)
	ill.Virtual = true // which the collector reads once
	if _, err := ill.Tell(state); err != nil {
		t.Fatal(err)
	}
	collector := gpu.New(gpu.Options{
		Logger: slog.New(slog.DiscardHandler), LibraryPath: library, Interval: 100 * time.Millisecond,
		SlowInterval: 100 * time.Millisecond,
		SysFS:        t.TempDir(), Kmsg: kmsg, Deadline: time.Second,
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- collector.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}()

	same(t, registry, state, ill, lost)
	ill.ECC, ill.RemapPending, ill.RemapFailed, ill.RepairPending, ill.Unrepairable = 3, true, true, true, true
	ill.Unregistered, ill.Drain, ill.Forgets, ill.SlowLink, ill.Unlicensed = true, true, true, true, true
	ill.corrected, ill.replayed, ill.Recoveries, ill.joules = 4647, 12, 2, 500
	same(t, registry, state, ill, lost)
	ill.Stuck = true
	same(t, registry, state, ill, lost)
	ill.Stuck, lost.Lost = false, true
	same(t, registry, state, ill, lost)
}

// same copies the GPUs to the library, and waits until all their series are served with their values.
func same(t *testing.T, served prometheus.Gatherer, library *fakenvml.State, gpus ...*GPU) {
	t.Helper()
	wanted := map[string]float64{}
	for _, g := range gpus {
		if _, err := g.Tell(library); err != nil {
			t.Fatal(err)
		}
		g.Emit(func(f *metrics.Family, value float64, values ...string) { wanted[series(f, values)] = value })
	}
	var missing []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		families, err := served.Gather()
		if err != nil {
			t.Fatal(err)
		}
		present := map[string]float64{}
		for _, family := range families {
			f := metrics.Lookup(family.GetName())
			for _, m := range family.Metric {
				values := make([]string, len(f.Labels))
				for _, p := range m.Label {
					values[slices.Index(f.Labels, p.GetName())] = p.GetValue()
				}
				present[series(f, values)] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		missing = slices.DeleteFunc(slices.Sorted(maps.Keys(wanted)), func(s string) bool {
			v, there := present[s]
			return there &&
				v == wanted[s]
		})
		if len(missing) == 0 {
			return
		}
	}
	t.Fatalf("the collector does not serve\n%s", strings.Join(missing, "\n"))
}

// TestTrafficOfTheHistory checks that, in the history, the bytes over PCIe grow at the library's rate, so that a
// panel shows no step where the history ends.
func TestTrafficOfTheHistory(t *testing.T) {
	library := filepath.Join(t.TempDir(), "library")
	state, err := NewNVML(library, 1)
	if err != nil {
		t.Fatal(err)
	}
	missing := map[*metrics.Family]bool{metrics.GPUPCIeTransmit: true, metrics.GPUPCIeReceive: true}
	g := newGPU(0)
	g.advance(10*time.Second, 5*time.Second, drill.NewEngine(drill.NewProfile("m").Serving, 1, nil))
	if _, err := g.Tell(state); err != nil {
		t.Fatal(err)
	}
	told, err := os.ReadFile(filepath.Join(filepath.Dir(library), "state"))
	if err != nil {
		t.Fatal(err)
	}
	g.EmitLoad(func(f *metrics.Family, value float64, _ ...string) {
		key := map[*metrics.Family]string{metrics.GPUPCIeTransmit: "gpm.20", metrics.GPUPCIeReceive: "gpm.21"}[f]
		if line := fmt.Sprintf("\n0 %s %v\n", key, value/(1<<20)/10); key != "" && !strings.Contains(string(told), line) {
			t.Errorf("%s is %v after ten seconds, but the library does not report%s", f.Name, value, line)
		}
		delete(missing, f)
	})
	for f := range missing {
		t.Errorf("%s is not in the history", f.Name)
	}
}

// series names a series without the labels that differ between nodes.
func series(f *metrics.Family, values []string) string {
	name := f.Name
	for i, v := range values {
		if l := f.Labels[i]; v != "" && l != metrics.LabelGPUUUID && l != metrics.LabelPCIBusID {
			name += " " + l + "=" + v
		}
	}
	return name
}
