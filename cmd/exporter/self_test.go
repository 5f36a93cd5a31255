package main

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// sends is a collector that sends its elements. nil panics.
type sends []prometheus.Metric

func (s sends) Describe(chan<- *prometheus.Desc) {}

func (s sends) Collect(ch chan<- prometheus.Metric) {
	for _, m := range s {
		m.Desc()
		ch <- m
	}
}

// TestCollect breaks collectors. Valid samples are still served, once, and the others are reported.
func TestCollect(t *testing.T) {
	visible := metrics.GPUVisible.Const(2)
	var page engine.Exposition
	all := large{collectors: []prometheus.Collector{
		sends{visible, metrics.GPUExpected.Const(2, "a label too many"), nil},
		sends{
			visible, prometheus.MustNewConstMetric(prometheus.NewDesc("strange", "", nil, nil), prometheus.GaugeValue, 1),
			metrics.GPUMissing.Const(1, "0000:3b:\xff"), metrics.GPUMissing.Const(0, ""),
		},
	}}
	err := all.collect(&page)
	for _, want := range []string{
		"panicked", "llm_gpu_visible_gpus was collected twice", "llm_gpu_expected_gpus has 0 labels, not 1",
		"strange",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	var text strings.Builder
	if _, err := page.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	var samples []string
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			samples = append(samples, line)
		}
	}
	const want = "llm_gpu_visible_gpus 2\nllm_gpu_missing{pci_bus_id=\"0000:3b:\uFFFD\"} 1\nllm_gpu_missing 0\n"
	if got := strings.Join(samples, ""); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
