package main

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// TestProcess compares the process metrics with client_golang's: same names, types and help, and nearly the same
// values.
func TestProcess(t *testing.T) {
	own, err := newProcess()
	if err != nil {
		t.Fatal(err)
	}
	type metric struct {
		kind, help string
		value      float64
	}
	gather := func(c prometheus.Collector) map[string]metric {
		r := prometheus.NewPedanticRegistry()
		r.MustRegister(c)
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]metric{}
		for _, f := range families {
			m := f.Metric[0]
			all[f.GetName()] = metric{f.GetType().String(), f.GetHelp(), m.GetGauge().GetValue() + m.GetCounter().GetValue()}
		}
		return all
	}
	want := gather(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	got := gather(own)
	if len(got) != 6 {
		t.Errorf("%d metrics: %v", len(got), got)
	}
	for name, m := range got {
		w := want[name]
		if m.kind != w.kind || m.help != w.help || math.Abs(m.value-w.value) > 0.2*w.value+0.1 {
			t.Errorf("%s is %v, client_golang has %v", name, m, w)
		}
	}
}
