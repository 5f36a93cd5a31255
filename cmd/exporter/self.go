package main

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// self collects the exporter's own metrics.
type self struct {
	mu       sync.Mutex
	duration map[string]time.Duration
	success  map[string]bool
	loadOK   bool
	loadTime time.Time
}

func (s *self) ran(collector string, took time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.duration == nil {
		s.duration, s.success = map[string]time.Duration{}, map[string]bool{}
	}
	s.duration[collector], s.success[collector] = took, ok
}

func (s *self) loaded(ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loadOK = ok
	if ok {
		s.loadTime = time.Now()
	}
}

// Describe implements prometheus.Collector.
func (s *self) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range []*metrics.Family{metrics.CollectorDuration, metrics.CollectorSuccess, metrics.ConfigReloadSuccess, metrics.ConfigReloadTime} {
		ch <- f.Desc()
	}
}

// Collect implements prometheus.Collector.
func (s *self) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, d := range s.duration {
		ch <- metrics.CollectorDuration.Const(d.Seconds(), name)
		ch <- metrics.CollectorSuccess.Const(metrics.Bool(s.success[name]), name)
	}
	ch <- metrics.ConfigReloadSuccess.Const(metrics.Bool(s.loadOK))
	ch <- metrics.ConfigReloadTime.Const(float64(s.loadTime.UnixMilli()) / 1000)
}

// timed measures how long a collector takes.
type timed struct {
	name string
	prometheus.Collector
	self *self
}

// Collect implements prometheus.Collector.
func (t timed) Collect(ch chan<- prometheus.Metric) {
	start := time.Now()
	t.Collector.Collect(ch)
	t.self.ran(t.name, time.Since(start), true)
}
