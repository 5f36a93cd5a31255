package main

import (
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestColumns: a table is never wider than it may be, and eras that share a column still say from and to when.
func TestColumns(t *testing.T) {
	for _, d := range engine.Known() {
		eras, columns := 0, columnsOf(d, maxEras)
		for _, c := range columns {
			eras += len(c.eras)
		}
		if len(columns) > maxEras || eras != len(d.Eras()) {
			t.Errorf("%s: %d columns of %d eras, want all %d in at most %d", title(d), len(columns), eras, len(d.Eras()), maxEras)
		}
	}
	d := &engine.Dialect{Rows: []engine.Row{
		{To: metrics.RequestsRunning, Since: "1.0"},
		{To: metrics.RequestsWaiting, Since: "1.0", Until: "1.2.x"},
		{To: metrics.QueueTime, Since: "1.1", Until: "1.2.x", Quality: metrics.Approximate},
		{To: metrics.QueueTime, Since: "1.3"},
		{To: metrics.DecodeTime, Since: "1.1", Until: "1.1.4"},
	}}
	for _, c := range []struct {
		most     int
		quantity *metrics.Family
		want     []string
	}{
		{4, metrics.QueueTime, []string{"–", "A", "A", "N"}},
		{4, metrics.DecodeTime, []string{"–", "N", "–", "–"}},
		{3, metrics.QueueTime, []string{"–", "A", "N"}},
		{3, metrics.DecodeTime, []string{"–", "N before 1.1.5", "–"}},
		{1, metrics.RequestsRunning, []string{"N"}},
		{1, metrics.RequestsWaiting, []string{"N before 1.3.0"}},
		{1, metrics.QueueTime, []string{"A from 1.1, N from 1.3.0"}},
		{1, metrics.DecodeTime, []string{"N from 1.1 before 1.1.5"}},
		{1, metrics.KVCacheUsage, []string{"–"}},
	} {
		columns := columnsOf(d, c.most)
		if len(columns) != len(c.want) {
			t.Errorf("%d columns, want %d", len(columns), len(c.want))
			continue
		}
		for i, want := range c.want {
			if got := columns[i].says(d, c.quantity); got != want {
				t.Errorf("%s, column %d of %d: %q, want %q", c.quantity.Name, i, len(columns), got, want)
			}
		}
	}
}
