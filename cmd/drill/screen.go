package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/live"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// between is the time between two status lines.
const between = 5 * time.Second

// screen prints the state in Prometheus and the notifications of Alertmanager.
type screen struct {
	out    io.Writer
	node   *live.Node
	server *live.Prometheus
	onset  time.Time
	shown  time.Time
	story  *story
}

// update prints the changes since the last call. It is called every second.
func (s *screen) update(ctx context.Context, now time.Time) error {
	firing, pending, err := s.server.Alerts()
	if err != nil {
		return err
	}
	sent, err := s.node.Notify(now, firing)
	if err != nil {
		return err
	}
	for _, n := range sent {
		if n.Receiver == "llm-null" {
			continue
		}
		s.notify(n)
		if err := s.story.told(n); err != nil {
			return err
		}
	}
	if now.Sub(s.shown) < between {
		return nil
	}
	s.shown = now
	if s.node.Incident.Faults == nil {
		return s.table(ctx, now)
	}
	return s.line(ctx, now, firing, pending)
}

// notify prints a notification as its receiver reads it.
func (s *screen) notify(n play.Notification) {
	what := strings.ToUpper(strings.TrimPrefix(n.Receiver, "llm-"))
	if n.Update {
		what += ", update of the one before"
	}
	fmt.Fprintf(s.out, "\n=== %s to %s: %s, %s\n", n.At.Format(time.TimeOnly), n.Receiver, what, s.since(n.At))
	for line := range strings.Lines(n.Message()) {
		fmt.Fprintf(s.out, "    %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Fprintln(s.out)
}

// since formats a time relative to the onset.
func (s *screen) since(t time.Time) string {
	d := t.Sub(s.onset).Round(time.Second)
	if d < 0 {
		return fmt.Sprintf("%s before the onset", -d)
	}
	return fmt.Sprintf("%s after the onset", d)
}

// figures lists the queries for the numbers in the status line.
var figures = []struct{ query, format string }{
	{"sum(" + metrics.RequestsRunning.Name + ")", "running %.0f"},
	{"sum(" + metrics.RequestsWaiting.Name + ")", "waiting %.0f"},
	{"100 * max(" + metrics.KVCacheUsage.Name + ")", "KV %.0f%%"},
	{
		"max(histogram_quantile(0.95, sum by (le, " + metrics.LabelRuntime + ") (rate(" + metrics.TimeToFirstToken.Name + "_bucket[1m]))))",
		"TTFT p95 %.2g s",
	},
}

// line prints the state in one line.
func (s *screen) line(ctx context.Context, now time.Time, firing []rulesim.Alert, pending []string) error {
	parts := []string{now.Format(time.TimeOnly) + " " + s.since(now)}
	for _, q := range figures {
		v, err := s.server.Query(ctx, q.query)
		if err != nil {
			return err
		}
		if len(v) > 0 && !math.IsNaN(v[0].F) {
			parts = append(parts, fmt.Sprintf(q.format, v[0].F))
		}
	}
	burn, err := s.burn(ctx)
	if err != nil {
		return err
	}
	parts = append(parts, burn)
	if len(pending) > 0 {
		parts = append(parts, "pending "+strings.Join(pending, ", "))
	}
	if len(firing) > 0 {
		parts = append(parts, "firing "+strings.Join(names(firing), ", "))
	}
	fmt.Fprintln(s.out, strings.Join(parts, " | "))
	return nil
}

func names(alerts []rulesim.Alert) (ns []string) {
	for _, a := range alerts {
		if len(ns) == 0 || ns[len(ns)-1] != a.Name {
			ns = append(ns, a.Name)
		}
	}
	return ns
}

// burn describes the objective that is closest to a page, and how close it is.
func (s *screen) burn(ctx context.Context) (string, error) {
	closest, text := -1.0, "no burn rate yet"
	for _, o := range s.node.Objectives() {
		for _, p := range slo.DefaultWindowPairs() {
			if p.Severity != slo.Page {
				continue
			}
			var rates [2]float64
			for i, window := range []slo.Duration{p.Long, p.Short} {
				v, err := s.server.Query(ctx, fmt.Sprintf("max(%s{%s=%q})", metrics.Window(metrics.RecordedBurn, window.String()).Name,
					metrics.LabelSLO, o.Name))
				if err != nil {
					return "", err
				}
				if len(v) > 0 {
					rates[i] = v[0].F
				}
			}
			factor, _ := p.Factor(o).Float64()
			if near := min(rates[0], rates[1]) / factor; near > closest {
				closest = near
				text = fmt.Sprintf("%s burns %.1fx over %s, %.1fx over %s, pages at %.4gx", o.Name, rates[0], p.Long, rates[1], p.Short, factor)
			}
		}
	}
	return text, nil
}

// columns lists the columns of the table, with their queries.
var columns = []struct{ title, query, format string }{
	{"running", "sum by (pod, runtime) (" + metrics.RequestsRunning.Name + ")", "%.0f"},
	{"waiting", "sum by (pod, runtime) (" + metrics.RequestsWaiting.Name + ")", "%.0f"},
	{"KV", "100 * max by (pod, runtime) (" + metrics.KVCacheUsage.Name + ")", "%.0f%%"},
	{"bandwidth", "100 * max by (pod, runtime) (" + metrics.EngineGPUInfo.Name + " * on (gpu_uuid) group_left () " +
		metrics.GPUMemoryBandwidthUtilization.Name + ")", "%.0f%%"},
	{"TTFT", mean(metrics.TimeToFirstToken), "%.0f ms"},
	{"TPOT", mean(metrics.TimePerOutputToken), "%.1f ms"},
	{"queue", mean(metrics.QueueTime), "%.0f ms"},
	{"tokens/s", "sum by (pod, runtime) (rate(" + metrics.GenerationTokens.Name + "[1m]))", "%.0f"},
	{"requests/s", "sum by (pod, runtime) (rate(" + metrics.Requests.Name + "[1m]))", "%.1f"},
}

func mean(f *metrics.Family) string {
	return "1000 * sum by (pod, runtime) (rate(" + f.Name + "_sum[1m])) / sum by (pod, runtime) (rate(" + f.Name + "_count[1m]))"
}

// table prints the state of each engine, with "-" for values that the engine does not report.
func (s *screen) table(ctx context.Context, now time.Time) error {
	engines, err := s.server.Query(ctx, "max by (pod, runtime) ("+metrics.EngineUp.Name+")")
	if err != nil {
		return err
	}
	fmt.Fprintln(s.out, now.Format(time.TimeOnly))
	t := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "pod\truntime")
	cells := make([]map[string]float64, len(columns))
	for i, c := range columns {
		fmt.Fprint(t, "\t", c.title)
		v, err := s.server.Query(ctx, c.query)
		if err != nil {
			return err
		}
		cells[i] = map[string]float64{}
		for _, sample := range v {
			cells[i][sample.Metric.Get(metrics.LabelPod)] = sample.F
		}
	}
	fmt.Fprintln(t)
	for _, e := range engines {
		pod := e.Metric.Get(metrics.LabelPod)
		fmt.Fprintf(t, "%s\t%s", pod, e.Metric.Get(metrics.LabelRuntime))
		for i, c := range columns {
			if v, ok := cells[i][pod]; ok && !math.IsNaN(v) {
				fmt.Fprintf(t, "\t"+c.format, v)
			} else {
				fmt.Fprint(t, "\t-")
			}
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
