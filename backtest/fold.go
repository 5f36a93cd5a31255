package backtest

import (
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

var loopback = regexp.MustCompile(`^(?:` + metrics.Loopback + `)$`)

// fold adds the events in a chunk's samples to the subjects. It then drops the samples that no later window needs.
func (c *counting) fold(from, until time.Time) {
	minute := func(at time.Time) int { return int(at.Sub(c.h.begin) / time.Minute) }
	s := span{begin: c.h.begin.UnixMilli(), from: max(minute(from)+1, 0), to: min(minute(until)+1, c.h.minutes())}
	if s.to <= s.from {
		return // this is before the beginning
	}
	started := map[string]*counter{} // by metrics endpoint
	engines := map[string][]*counter{}
	for _, count := range c.counters {
		if count.series.Get(model.MetricNameLabel) == metrics.EngineStartTime.Name {
			started[pageOf(count.series)] = count
			continue
		}
		engines[onceOf(count.series)] = append(engines[onceOf(count.series)], count)
	}
	for _, same := range engines {
		c.foldEngine(s, same, started[pageOf(same[0].series)])
	}
	keep := s.at(s.to) - (rules.RequestWindow.Std() + 2*lookback).Milliseconds()
	for id, count := range c.counters {
		if count.forget(keep); len(count.points) == 0 {
			delete(c.counters, id)
		}
	}
}

// pageOf identifies the metrics endpoint of a series.
func pageOf(l labels.Labels) string { return selected(l, metrics.PageLabels) }

// onceOf identifies the engine and quantity of a series. If the exporters of two nodes read an engine, the engine
// counts once. Loopback addresses do not identify an engine.
func onceOf(l labels.Labels) string {
	b := labels.NewBuilder(l)
	if !loopback.MatchString(l.Get(metrics.LabelServer)) {
		b.Del(metrics.LabelInstance)
	}
	return b.Labels().String()
}

func selected(l labels.Labels, names []string) string {
	b := labels.NewScratchBuilder(len(names))
	for _, n := range names {
		if v := l.Get(n); v != "" {
			b.Add(n, v)
		}
	}
	b.Sort()
	return b.Labels().String()
}

// foldEngine adds one counter of an engine to its subject. same has a counter for each exporter that exports it.
func (c *counting) foldEngine(s span, same []*counter, started *counter) {
	l := same[0].series
	of := key{
		l.Get(metrics.LabelCluster), l.Get(metrics.LabelNamespace), l.Get(metrics.LabelModel), l.Get(metrics.LabelRole),
		l.Get(metrics.LabelSLO),
	}
	largest := func(into []float64, value func(count *counter, yield func(minute int, v float64))) {
		all := nothing(s.to - s.from)
		for _, count := range same {
			value(count, func(minute int, v float64) {
				if i := minute - s.from; !(all[i] >= v) {
					all[i] = v
				}
			})
		}
		for i, v := range all {
			into[s.from+i] = plus(into[s.from+i], v)
		}
	}
	increases := func(window time.Duration) func(*counter, func(int, float64)) {
		return func(count *counter, yield func(int, float64)) {
			count.each(s, window, func(minute int, at int64, in []point) {
				if v := increase(in, at, window); !math.IsNaN(v) {
					yield(minute, v)
				}
			})
		}
	}
	switch l.Get(model.MetricNameLabel) {
	case metrics.TimeToFirstToken.Name + "_count":
		largest(c.model(of).requests, increases(rules.RequestWindow.Std()))
	case metrics.Requests.Name:
		largest(c.model(of).ended, func(count *counter, yield func(int, float64)) {
			increases(rules.RateWindow.Std())(count, func(minute int, v float64) { yield(minute, v/rules.RateWindow.Std().Seconds()) })
		})
	case metrics.SLOMaintenance.Name:
		subject := c.subject(of)
		same[0].each(s, time.Minute, func(minute int, _ int64, in []point) {
			subject.underWay[minute] = subject.underWay[minute] || len(in) > 0
		})
	case metrics.SLOEvents.Name:
		subject := c.subject(of)
		subject.threshold = l.Get(metrics.LabelThreshold)
		for w, into := range subject.events {
			largest(into, increases(w.Std()))
		}
		largest(subject.tiles, gained(s))
		largest(subject.first, c.unseen(s, started))
		for _, count := range same {
			count.each(s, lookback, func(minute int, at int64, in []point) {
				subject.counted[minute] = subject.counted[minute] || present(in, at)
			})
		}
	case metrics.SLOBadEvents.Name:
		subject := c.subject(of)
		for w, into := range subject.bad {
			largest(into, increases(w.Std()))
		}
		largest(subject.badTiles, gained(s))
		largest(subject.badFirst, c.unseen(s, started))
	}
}

func (c *counting) subject(k key) *subject {
	if c.subjects[k] == nil {
		c.subjects[k] = newSubject(k, c.h.minutes(), rules.RawWindows(c.h.Pairs))
	}
	return c.subjects[k]
}

func (c *counting) model(k key) *serving {
	k.SLO = ""
	if c.models[k] == nil {
		c.models[k] = &serving{nothing(c.h.minutes()), nothing(c.h.minutes())}
	}
	return c.models[k]
}

// gained returns a function that yields the exact increase of a counter since the previous tile, every five minutes.
func gained(s span) func(*counter, func(int, float64)) {
	const tile = tileMinutes * time.Minute
	return func(count *counter, yield func(int, float64)) {
		count.each(s, 3*tile, func(minute int, at int64, in []point) {
			if minute%tileMinutes != 0 {
				return
			}
			since := func(from int64) []point {
				i, _ := slices.BinarySearchFunc(in, from, func(p point, t int64) int {
					if p.t <= t {
						return -1
					}
					return 1
				})
				return in[i:]
			}
			recent, now := since(at-2*tile.Milliseconds()), since(at-tile.Milliseconds())
			if len(recent) == 0 {
				return
			}
			last := recent[len(recent)-1].v
			var before float64
			switch older := in[:len(in)-len(now)]; {
			case len(older) > 0:
				before = older[len(older)-1].v
			default:
				before = math.Inf(1)
				for _, p := range now {
					before = min(before, p.v)
				}
			}
			if last >= before {
				yield(minute, last-before)
			} else if v := increase(now, at, tile); !math.IsNaN(v) {
				yield(minute, v)
			}
		})
	}
}

// unseen returns a function that yields the events that an engine younger than ten minutes had counted before its first
// sample.
func (c *counting) unseen(s span, started *counter) func(*counter, func(int, float64)) {
	return func(count *counter, yield func(int, float64)) {
		if started == nil {
			return
		}
		starts := make(map[int]float64)
		started.each(s, lookback, func(minute int, at int64, in []point) {
			if present(in, at) {
				starts[minute] = in[len(in)-1].v
			}
		})
		count.each(s, lookback+time.Minute, func(minute int, at int64, in []point) {
			n := len(in)
			for n > 0 && in[n-1].t > at-time.Minute.Milliseconds() {
				n--
			}
			if now := in[n:]; len(now) > 0 && !present(in[:n], at-time.Minute.Milliseconds()) {
				if start, ok := starts[minute]; ok && float64(at)/1000-start < 600 {
					v := now[0].v
					for _, p := range now {
						v = min(v, p.v)
					}
					yield(minute, v)
				}
			}
		})
	}
}
