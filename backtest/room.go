package backtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// room adds up, in steps of the rules' interval, how long a model's load exceeded its capacity, and how many replicas
// were idle.
type room struct {
	beyond                       int       // steps in which the load exceeded the capacity
	first                        time.Time // first of these steps
	replicas, idle, idleAtNights float64   // multiplied by steps
}

// rooms notes for how long the load of each model of a group exceeded its capacity, and how many of its replicas were
// idle. This requires the history of an exporter. Times without a known capacity are ignored.
func (h *history) rooms(ctx context.Context, g group) error {
	if !h.exporter {
		return nil
	}
	of := map[string]*room{}
	const day = 24 * time.Hour
	for from := h.begin; from.Before(h.end); from = from.Add(day) {
		to := from.Add(day)
		if to.After(h.end) {
			to = h.end
		}
		// A range excludes its start, so that no sample counts twice.
		if err := h.room(ctx, g, of, to, to.Sub(from)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if r := of[name]; r.replicas > 0 {
			hours := func(steps float64) float64 { return steps * rules.Interval.Hours() }
			h.note("%s: %s; %.1f of %.1f replica-hours were idle, %.1f of them from 22:00 to 06:00 UTC", name, r.exceeded(), hours(r.idle),
				hours(r.replicas), hours(r.idleAtNights))
		}
	}
	return nil
}

func (r *room) exceeded() string {
	if r.beyond == 0 {
		return "the load never exceeded the capacity"
	}
	return fmt.Sprintf("the load exceeded the capacity for %s, first at %s UTC", model.Duration(time.Duration(r.beyond)*rules.Interval),
		r.first.UTC().Format(minuteFormat))
}

// step has the recorded values of one step: the load as a share of the capacity, and the desired and present replicas.
type step struct{ used, desired, replicas float64 }

// room reads the records of the period d that ends at to.
func (h *history) room(ctx context.Context, g group, of map[string]*room, to time.Time, d time.Duration) error {
	type at struct {
		name string // of the model
		step int64
	}
	steps := map[at]step{}
	for selector, value := range map[string]func(s *step) *float64{
		metrics.RecordedUtilisation.Name + `{kind="expected",` + g.match + `}`: func(s *step) *float64 { return &s.used },
		metrics.RecordedDesired.Name + "{" + g.match + "}":                     func(s *step) *float64 { return &s.desired },
		metrics.RecordedReplicas.Name + "{" + g.match + "}":                    func(s *step) *float64 { return &s.replicas },
	} {
		streams, err := h.samples(ctx, selector, to, d)
		if err != nil {
			return err
		}
		for _, stream := range streams { // one stream for each objective
			for _, v := range stream.Values {
				key := at{named(stream.Metric), int64(v.Timestamp) / rules.Interval.Milliseconds()}
				s := steps[key]
				*value(&s) = max(*value(&s), float64(v.Value))
				steps[key] = s
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(steps), func(a, b at) int { return cmp.Compare(a.step, b.step) }) {
		s, began := steps[key], time.UnixMilli(key.step*rules.Interval.Milliseconds())
		if of[key.name] == nil {
			of[key.name] = &room{}
		}
		r := of[key.name]
		if s.used > 1 {
			if r.beyond++; r.beyond == 1 {
				r.first = began
			}
		}
		if s.desired == 0 {
			continue
		}
		idle := max(0, s.replicas-s.desired)
		r.replicas, r.idle = r.replicas+s.replicas, r.idle+idle
		if hour := began.UTC().Hour(); hour < 6 || hour >= 22 {
			r.idleAtNights += idle
		}
	}
	return nil
}

// named returns the name of a series' model, as in Row.name.
func named(m model.Metric) string {
	return Row{
		Cluster: string(m[metrics.LabelCluster]), Namespace: string(m[metrics.LabelNamespace]), Model: string(m[metrics.LabelModel]),
	}.name()
}
