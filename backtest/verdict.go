package backtest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promapi"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// These constants are about replays, which compute verdicts if no exporter ran. replays limits the replayed pages per
// group. replayed is how long before a page the samples begin. The rules are evaluated only in the last part of that
// time, of length evaluating.
const (
	replays    = 2
	replayed   = 75 * time.Minute
	evaluating = 5 * time.Minute
)

// verdicts adds to each page where to look first. This comes from the recorded suspects or, if no exporter ran, from a
// replay of the engines' own series.
func (h *history) verdicts(ctx context.Context, g group, rows []Row) error {
	var times []time.Time
	for _, row := range rows {
		for _, page := range row.Pages {
			times = append(times, page.From)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	times = slices.Compact(times)
	if !h.exporter {
		times = times[:min(replays, len(times))]
	}
	known := map[time.Time][]labels.Labels{}
	for _, at := range times {
		suspects, err := h.suspects(ctx, g, at)
		if err != nil {
			return err
		}
		known[at] = suspects
	}
	for _, row := range rows {
		o, _ := h.objective(row.Objective)
		for j, page := range row.Pages {
			row.Pages[j].Verdict = verdict(known[page.From], row, o.Signal)
		}
	}
	return nil
}

// suspects returns the suspects of a group's models at a time.
func (h *history) suspects(ctx context.Context, g group, at time.Time) (all []labels.Labels, err error) {
	if !h.exporter {
		return h.replay(ctx, g, at)
	}
	expr := fmt.Sprintf("%s{%s}", metrics.RecordedSuspect.Name, g.match)
	value, warnings, _, err := h.API.Query(ctx, expr, at)
	if err := promapi.Explain(h.URL, expr, err); err != nil {
		return nil, err
	}
	for _, s := range value.(model.Vector) {
		b := labels.NewScratchBuilder(len(s.Metric))
		for name, v := range s.Metric {
			b.Add(string(name), string(v))
		}
		b.Sort()
		all = append(all, b.Labels())
	}
	return all, truncated(expr, warnings)
}

// replay evaluates the rules that record suspects over the metrics that the exporter would have served before a time.
func (h *history) replay(ctx context.Context, g group, at time.Time) ([]labels.Labels, error) {
	sim, err := h.recorder()
	if err != nil {
		return nil, err
	}
	defer sim.Close()
	series, err := h.series(ctx, at.Add(-replayed), at, "{"+g.match+"}")
	if err != nil {
		return nil, err
	}
	step := replayed
	for len(series)*int(step/h.interval) > h.MaxSamples && step > 5*time.Minute {
		step /= 2
	}
	targets := pages(series)
	for _, p := range targets {
		all, err := p.Lines(h.Objectives)
		if err != nil {
			continue // the counting of the page has reported this already
		}
		for _, l := range all {
			p.keep(l, nil)
		}
	}
	evaluated := at.Add(-evaluating)
	for from := at.Add(-replayed); from.Before(at); from = from.Add(step) {
		streams, err := h.samples(ctx, "{"+g.match+"}", from.Add(step), step)
		if err != nil {
			return nil, err
		}
		if err := h.serve(sim, targets, scraped(streams, targets), &evaluated); err != nil {
			return nil, err
		}
	}
	if err := evaluate(sim, &evaluated, at.Add(time.Millisecond)); err != nil {
		return nil, err
	}
	found, err := sim.Query(metrics.RecordedSuspect.Name, at)
	if err != nil {
		return nil, err
	}
	var all []labels.Labels
	for _, s := range found {
		all = append(all, s.Metric)
	}
	return all, nil
}

// recorder returns a simulation of the recording rules, without alerts.
func (h *history) recorder() (*rulesim.Sim, error) {
	groups := rules.Groups(rules.Options{WindowPairs: h.Pairs})
	for i := range groups {
		groups[i].Alerts = nil
	}
	file, err := rules.Encode(rules.NewFile(groups, rules.Style{}))
	if err != nil {
		return nil, err
	}
	return rulesim.New(file)
}

// scraped groups samples by scrape. Each group has the values of one metrics page at one time.
func scraped(streams []*model.SampleStream, targets []*page) map[int64]map[*page][]float64 {
	scrapes := map[int64]map[*page][]float64{}
	for _, s := range streams {
		for _, p := range targets {
			place, ok := p.place[model.LabelSet(s.Metric).Fingerprint()]
			if !ok {
				continue
			}
			for _, v := range s.Values {
				t := int64(v.Timestamp)
				if scrapes[t] == nil {
					scrapes[t] = map[*page][]float64{}
				}
				if scrapes[t][p] == nil {
					scrapes[t][p] = nothing(len(p.Series))
				}
				scrapes[t][p][place] = float64(v.Value)
			}
		}
	}
	return scrapes
}

// serve stores the metrics that the exporter would have served at each scrape. It evaluates the rules that are due
// before the last scrape.
func (h *history) serve(sim *rulesim.Sim, targets []*page, scrapes map[int64]map[*page][]float64, evaluated *time.Time) error {
	var last int64
	for _, t := range slices.Sorted(maps.Keys(scrapes)) {
		last = t
		if err := sim.Append(time.UnixMilli(t), func(emit rulesim.Emit) {
			for _, p := range targets {
				values := scrapes[t][p]
				if values == nil {
					continue
				}
				for _, l := range p.lines {
					if v := l.Value(values); !math.IsNaN(v) {
						emit(l.series, v)
					}
				}
			}
		}); err != nil {
			return err
		}
	}
	return evaluate(sim, evaluated, time.UnixMilli(last))
}

// evaluate evaluates the rules that are due before a time.
func evaluate(sim *rulesim.Sim, due *time.Time, before time.Time) error {
	var ticks []time.Time
	for ; due.Before(before); *due = due.Add(rules.Interval / 2) {
		ticks = append(ticks, *due)
	}
	return sim.EvalAll(ticks)
}

// verdict returns the branch and the clue of the first suspect that explains the signal of a row, or "".
func verdict(suspects []labels.Labels, row Row, of slo.Signal) string {
	first := ""
	said := ""
	wait := slices.ContainsFunc(suspects, func(s labels.Labels) bool {
		return s.Get(metrics.LabelClue) == rules.QueueLong && s.Get(metrics.LabelModel) == row.Model &&
			s.Get(metrics.LabelNamespace) == row.Namespace
	})
	for _, s := range suspects {
		d := rules.Delays(s.Get(metrics.LabelDelays))
		order := s.Get(metrics.LabelOrder)
		if s.Get(metrics.LabelModel) == row.Model && s.Get(metrics.LabelNamespace) == row.Namespace && d.Explain(of, wait) &&
			(first == "" || order < first) {
			first, said = order, s.Get(metrics.LabelBranch)+": "+s.Get(metrics.LabelClue)
		}
	}
	return said
}
