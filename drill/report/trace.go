// Package report writes what happened in incidents, with their scores, as a table, as Markdown, and as a web page with
// plots.
package report

import (
	"maps"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Plot is one quantity of an incident over time, as recorded by Prometheus.
type Plot struct {
	Title string
	Lines map[string][]Point // by the label that distinguishes them
}

// Point holds a value and its time since the onset.
type Point struct {
	At    time.Duration
	Value float64
}

// Bar is a time range in which an alert fired.
type Bar struct {
	Alert    string
	From, To time.Duration
}

// Trace has what a report shows of a played incident.
type Trace struct {
	Incident incident.Incident
	Score    score.Score
	Plots    []*Plot
	Bars     []Bar
	Sent     []play.Notification
}

// signals lists the plots of every incident: the burn, the share of bad events, and the causes.
var signals = []struct{ title, query, by string }{
	{"burn rate over 5 minutes", metrics.Window(metrics.RecordedBurn, slo.Duration(5*time.Minute).String()).Name, metrics.LabelSLO},
	{"bad events over 5 minutes, %", "100 * sum by (slo) (" + metrics.RecordedBadEventRate.Name + ") / sum by (slo) (" +
		metrics.RecordedEventRate.Name + " > 0)", metrics.LabelSLO},
	{"requests waiting", metrics.RequestsWaiting.Name, metrics.LabelPod},
	{"requests running", metrics.RequestsRunning.Name, metrics.LabelPod},
	{"KV cache in use, %", "100 * " + metrics.KVCacheUsage.Name, metrics.LabelPod},
	{"engine steps per second", "rate(" + metrics.EngineSteps.Name + "[1m])", metrics.LabelPod},
	{"SM clock, MHz", metrics.GPUClock.Name + " / 1e6", metrics.LabelGPU},
	{"GPU power, W", metrics.GPUPower.Name + `{scope="gpu"}`, metrics.LabelGPU},
	{"corrected memory errors per second", "sum by (gpu) (rate(" + metrics.GPUECCErrors.Name +
		`{severity="corrected",lifetime="volatile"}[1m]))`, metrics.LabelGPU},
}

// before is the part of a plot before the onset.
const before = 15 * time.Minute

// New scores a played incident, and reads its plots from the samples that Prometheus stored. Plots without a change are
// left out.
func New(p *play.Play) (Trace, error) {
	t := Trace{Incident: p.Incident, Score: score.New(p), Sent: p.Sent}
	for _, s := range signals {
		plot := &Plot{Title: s.title, Lines: map[string][]Point{}}
		for at := -before; at <= p.Incident.Lasts; at += rules.Interval {
			values, err := p.Prometheus.Query(s.query, p.World.At(p.Onset+at))
			if err != nil {
				return Trace{}, err
			}
			for _, v := range values {
				name := v.Metric.Get(s.by)
				plot.Lines[name] = append(plot.Lines[name], Point{at, v.F})
			}
		}
		if plot.moves() {
			t.Plots = append(t.Plots, plot)
		}
	}
	firing := p.Firing()
	for _, name := range slices.Sorted(maps.Keys(firing)) {
		t.Bars = append(t.Bars, firings(name, firing[name], rules.Interval)...)
	}
	return t, nil
}

// moves reports whether any line of a plot changes.
func (p *Plot) moves() bool {
	for _, line := range p.Lines {
		if slices.ContainsFunc(line, func(q Point) bool { return q.Value != line[0].Value }) {
			return true
		}
	}
	return false
}

// firings joins successive evaluations at which an alert fired into one bar.
func firings(name string, firing []time.Duration, step time.Duration) (bs []Bar) {
	for _, t := range firing {
		if n := len(bs); n > 0 && t <= bs[n-1].To {
			bs[n-1].To = max(bs[n-1].To, t+step)
			continue
		}
		bs = append(bs, Bar{name, t, t + step})
	}
	return bs
}
