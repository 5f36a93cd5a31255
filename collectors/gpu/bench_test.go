//go:build linux && cgo

package gpu

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// eightGPUs returns a collector over eight GPUs with NVLink that nobody runs yet. A process can load
// only one library, which is why only benchmarks load one into the test's own process.
func eightGPUs(b *testing.B) (*Collector, []*worker) {
	b.Helper()
	lib := fakeLibrary(b)
	if _, err := fakenvml.NewState(lib, 8, fakenvml.H100); err != nil {
		b.Fatal(err)
	}
	c := New(Options{LibraryPath: lib, Logger: slog.New(slog.DiscardHandler), SysFS: busWith(b, 8)})
	driver, err := openDriver(c.options)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = driver.Shutdown() })
	workers := make([]*worker, 8)
	for i := range workers {
		workers[i] = newWorker(c, i, driver.Device(i))
		b.Cleanup(workers[i].device.Close)
	}
	cycle(b, workers, slow)
	time.Sleep(gpmMinWindow)
	cycle(b, workers, slow)
	c.setState(workers, nil)
	return c, workers
}

func cycle(b *testing.B, workers []*worker, due tier) {
	b.Helper()
	for _, w := range workers {
		if snap := w.cycle(time.Now(), due); snap.err != nil {
			b.Fatal(snap.err)
		}
	}
}

// BenchmarkEightGPUs measures a full cycle over all GPUs, one after the other, and the scrape path.
// The fake library, not a driver, determines the times of a cycle.
func BenchmarkEightGPUs(b *testing.B) {
	c, workers := eightGPUs(b)
	b.Run("cycle/fast", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			cycle(b, workers, fast)
		}
	})
	b.Run("cycle/slow", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			cycle(b, workers, slow)
		}
	})
	// The driver refreshes GPM every 100 ms, so this benchmark waits: give it a count (-benchtime 50x).
	b.Run("cycle/slow_with_gpm", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			time.Sleep(gpmMinWindow)
			b.StartTimer()
			cycle(b, workers, slow)
		}
	})
	b.Run("collect", func(b *testing.B) {
		b.ReportAllocs()
		ch := make(chan prometheus.Metric, 8192)
		for b.Loop() {
			c.Collect(ch)
			for len(ch) > 0 {
				<-ch
			}
		}
	})
	b.Run("gather", func(b *testing.B) {
		registry := prometheus.NewRegistry()
		registry.MustRegister(c)
		b.ReportAllocs()
		series := 0
		for b.Loop() {
			families, err := registry.Gather()
			if err != nil {
				b.Fatal(err)
			}
			series = 0
			for _, f := range families {
				series += len(f.Metric)
			}
		}
		b.ReportMetric(float64(series), "series")
	})
}
