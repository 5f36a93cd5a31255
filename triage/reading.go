package triage

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Reading is the metrics page of an exporter at one time.
type Reading struct {
	At     time.Time
	Series promql.Vector
}

// Parse reads an exporter's metrics page in Prometheus' text format.
func Parse(page []byte, at time.Time) (Reading, error) {
	r := Reading{At: at}
	parser := textparse.NewPromParser(page, labels.NewSymbolTable(), false)
	for {
		switch entry, err := parser.Next(); {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil:
			return r, fmt.Errorf("the answer is not metrics: %w", err)
		case entry == textparse.EntrySeries:
			_, _, value := parser.Series()
			var series labels.Labels
			parser.Labels(&series)
			r.Series = append(r.Series, promql.Sample{Metric: printable(series), F: value})
		}
	}
}

// dated returns the first of two readings as if the XIDs of the last hour had occurred after it. The rules look for
// XIDs in windows of an hour, but the readings are only a short time apart. The metrics have the time of the last XID
// of each kind.
func dated(before, after Reading) Reading {
	id := func(s promql.Sample) [2]string {
		return [2]string{s.Metric.Get(metrics.LabelGPUUUID), s.Metric.Get(metrics.LabelXID)}
	}
	recent := map[[2]string]bool{}
	for _, s := range after.Series {
		if s.Metric.Get(model.MetricNameLabel) == metrics.GPUXIDLastTimestamp.Name {
			at := time.UnixMilli(int64(1000 * s.F))
			recent[id(s)] = at.After(after.At.Add(-time.Hour)) && !at.After(before.At)
		}
	}
	before.Series = slices.Clone(before.Series)
	for i, s := range before.Series {
		if s.Metric.Get(model.MetricNameLabel) == metrics.GPUXIDErrors.Name && recent[id(s)] {
			before.Series[i].F--
		}
	}
	return before
}

// remembered completes two readings as if a Prometheus had recorded the node. If a metrics endpoint is gone but the
// exporter read it within the hour, remembered adds the served model to the first reading, and the series that the
// rules would have recorded to the second reading. An endpoint that timed out only in the second reading does not count
// as gone. It is in the result late.
func remembered(before, after Reading) (_, _ Reading, late promql.Vector) {
	as := func(f *metrics.Family, l labels.Labels, keep ...string) promql.Sample {
		b := labels.NewBuilder(l)
		if keep != nil {
			b.Keep(keep...)
		}
		return promql.Sample{Metric: b.Set(model.MetricNameLabel, f.Name).Labels(), F: 1}
	}
	named := func(s promql.Sample, f *metrics.Family) bool { return s.Metric.Get(model.MetricNameLabel) == f.Name }
	there, read, down := map[uint64]bool{}, map[string]bool{}, map[string]bool{}
	for _, s := range before.Series {
		switch {
		case named(s, metrics.EngineInfo):
			there[s.Metric.Hash()] = true
		case named(s, metrics.EngineUp) && s.F == 1:
			read[page(s.Metric)] = true
		}
	}
	before.Series, after.Series = slices.Clone(before.Series), slices.Clone(after.Series)
	for i, s := range after.Series {
		if named(s, metrics.EngineUp) && s.F == 0 {
			if s.Metric.Get(metrics.LabelReason) == "timeout" && read[page(s.Metric)] {
				late = append(late, s)
				after.Series[i] = promql.Sample{Metric: labels.NewBuilder(s.Metric).Del(metrics.LabelReason).Labels(), F: 1}
			} else {
				down[page(s.Metric)] = true
			}
		}
		if !named(s, metrics.EngineLastServed) || time.UnixMilli(int64(1000*s.F)).Before(after.At.Add(-time.Hour)) {
			continue
		}
		if info := as(metrics.EngineInfo, s.Metric); !there[info.Metric.Hash()] {
			before.Series = append(before.Series, info)
		}
	}
	gateways := map[string]bool{} // one series for each metrics endpoint, whatever models it served
	for _, s := range before.Series {
		switch p := page(s.Metric); {
		case !named(s, metrics.EngineInfo):
		case slices.ContainsFunc(late, func(l promql.Sample) bool { return page(l.Metric) == p }):
			after.Series = append(after.Series, s)
		case !down[p]:
		case s.Metric.Get(metrics.LabelRole) != metrics.GatewayRole:
			after.Series = append(after.Series, as(metrics.RecordedServed, s.Metric, metrics.ReplicaLabels...))
		case !gateways[p]:
			gateways[p] = true
			after.Series = append(after.Series, as(metrics.RecordedGateway, s.Metric, append([]string{metrics.LabelRole}, metrics.PageLabels...)...))
		}
	}
	return before, after, late
}

// printable replaces unprintable characters in label values. The values come from engines, and a terminal would
// interpret control characters.
func printable(series labels.Labels) labels.Labels {
	odd := func(r rune) bool { return !unicode.IsGraphic(r) || r == unicode.ReplacementChar } // PromQL refuses the replacement character
	b := labels.NewBuilder(series)
	series.Range(func(l labels.Label) {
		if strings.ContainsFunc(l.Value, odd) {
			b.Set(l.Name, strings.Map(func(r rune) rune {
				if odd(r) {
					return '?'
				}
				return r
			}, l.Value))
		}
	})
	return b.Labels()
}
