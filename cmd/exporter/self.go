package main

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// self collects the exporter's own metrics.
type self struct {
	mu       sync.Mutex
	duration map[string]time.Duration
	success  map[string]bool
	loadOK   bool
	loadTime time.Time
	engines  func() []engine.Engine // the engines that are read
	prices   map[string]float64     // price of a GPU hour, by product
}

func (s *self) ran(collector string, took time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.duration == nil {
		s.duration, s.success = map[string]time.Duration{}, map[string]bool{}
	}
	s.duration[collector], s.success[collector] = took, ok
}

func (s *self) loaded(c configuration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loadOK = ok
	if ok {
		s.loadTime, s.prices = time.Now(), c.prices
	}
}

// Describe implements prometheus.Collector.
func (s *self) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range []*metrics.Family{
		metrics.CollectorDuration, metrics.CollectorSuccess, metrics.ConfigReloadSuccess,
		metrics.ConfigReloadTime, metrics.ConfiguredTarget, metrics.GPUHourPrice,
	} {
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
	for name, price := range s.prices {
		ch <- metrics.GPUHourPrice.Const(price, name)
	}
	for _, e := range s.engines() {
		if e.Configured {
			ch <- metrics.ConfiguredTarget.Const(1, e.Namespace, e.Pod, e.Server)
		}
	}
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

// large holds the collectors with many samples. They are not in the registry, because its copies of these samples would
// cost too much.
type large struct {
	collectors []prometheus.Collector
	samples    atomic.Int64 // number in the last collection, which predicts the next number
}

// collect adds the collectors' samples to an exposition. Like a registry, it leaves out invalid and duplicate samples,
// and continues after a collector that panics. Then it returns an error.
func (l *large) collect(page *engine.Exposition) (err error) {
	sent := make(chan prometheus.Metric, 64)
	var panics []error
	go func() {
		defer close(sent)
		for _, c := range l.collectors {
			if err := attempt(func() { c.Collect(sent) }); err != nil {
				panics = append(panics, err)
			}
		}
	}()
	expected := int(l.samples.Load())
	seen := make(map[string]bool, expected)
	page.Grow(expected)
	for m := range sent {
		switch s, ok := m.(*metrics.Sample); {
		case !ok:
			err = errors.Join(err, cmp.Or(m.Write(&dto.Metric{}), fmt.Errorf("%s is not a sample of the vocabulary", m.Desc())))
		case seen[s.Text]:
			err = errors.Join(err, fmt.Errorf("%s was collected twice", s.Text))
		default:
			seen[s.Text] = true
			page.Add(s)
		}
	}
	l.samples.Store(int64(len(seen)))
	return errors.Join(append(panics, err)...)
}

// attempt runs a function, and returns an error if it panics.
func attempt(something func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a collector panicked, please report this bug: %v\n%s", p, debug.Stack())
		}
	}()
	something()
	return nil
}
