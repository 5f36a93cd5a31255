package rulesim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Rules that read one another in each direction, themselves, and alerts; over long intervals, with ties.
const entangled = `
groups:
- name: a-first
  interval: 30s
  rules:
  - {record: first, expr: 'sum by (m) (rate(requests[3m]))'}
  - {record: of_later, expr: 'count_over_time(later[3m]) + on (m) first - on (m) later'}
  - {record: itself, expr: 'max by (m) (last_over_time(itself[10m]) or first)'}
  - {record: highest, expr: 'topk by (m) (1, round(load, 5))'}
  - {record: kinds, expr: 'load > 12', labels: {kind: high}}
  - {record: kinds, expr: 'load < 8 or kinds{kind="high"} > 15', labels: {kind: low}}
- name: b-slow
  interval: 5m
  rules:
  - {record: slow, expr: 'avg_over_time(first[5m]) + on (m) group_left later'}
- name: c-later
  interval: 1m
  rules:
  - {record: later, expr: 'first * 2 + on (m) count by (m) (highest)'}
  - {record: unheard, expr: 'ALERTS{alertname="Pages"} * 3'}
- name: d-alerts
  interval: 1m
  rules:
  - alert: Tickets
    expr: kinds{kind="high"} and on (m) highest
    for: 2m
    annotations: {text: '{{ range query "last + first + slow or last" }}{{ .Labels.m }} {{ .Value }}{{ end }}'}
  - {record: last, expr: 'later + 1'}
  - alert: Pages
    expr: kinds > 14 unless on (m) ALERTS{alertname="Tickets",alertstate="pending"}
    keep_firing_for: 2m
`

// TestEvalAllIsEval compares evaluations of many steps at once with evaluations of each step: all series, stale samples and alerts.
func TestEvalAllIsEval(t *testing.T) {
	const minutes = 150
	dump := func(atOnce int) (string, string) {
		sim, err := New([]byte(entangled))
		if err != nil {
			t.Fatal(err)
		}
		defer sim.Close()
		fired := ""
		sim.OnAlert = func(at time.Time, a Alert) { fired += fmt.Sprintln(at.Sub(Epoch), a) }
		rng := rand.New(rand.NewPCG(1, 2))
		total := map[string]float64{}
		var ticks []time.Time
		for i := range 2 * minutes {
			at := Epoch.Add(time.Duration(i) * 30 * time.Second)
			if err := sim.Scrape(at, func(_ time.Time, emit Emit) {
				for _, p := range []string{"p3", "p1", "p2"} {
					load := 20 * rng.Float64()
					if total[p] += load; load < 19 {
						emit(labels.FromStrings("__name__", "requests", "m", "m"+p[1:], "pod", p), total[p])
						emit(labels.FromStrings("__name__", "load", "m", "m", "pod", p), load)
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			ticks = append(ticks, at)
			if len(ticks) < atOnce && i < 2*minutes-1 {
				continue
			}
			if atOnce == 1 {
				err = sim.Eval(at)
			} else {
				err = sim.EvalAll(ticks)
			}
			if err != nil {
				t.Fatal(err)
			}
			ticks = nil
		}
		q, err := sim.DB().Querier(0, Epoch.Add(time.Hour*24).UnixMilli())
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		var all []string
		set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchNotEqual, "__name__", ""))
		for set.Next() {
			text := set.At().Labels().String()
			it := set.At().Iterator(nil)
			for it.Next() == chunkenc.ValFloat {
				at, v := it.At()
				if value.IsStaleNaN(v) {
					text += fmt.Sprintf(" %d:stale", at)
				} else {
					text += fmt.Sprintf(" %d:%.9g", at, v)
				}
			}
			all = append(all, text)
		}
		slices.Sort(all)
		return fmt.Sprintln(all), fired
	}
	series, fired := dump(1)
	for _, atOnce := range []int{2, 7, 120, 1000} {
		seriesAtOnce, firedAtOnce := dump(atOnce)
		if fired == "" || firedAtOnce != fired {
			t.Errorf("%d at once: the alerts differ", atOnce)
		}
		if seriesAtOnce != series {
			t.Errorf("%d at once: the series differ", atOnce)
			at := 0
			for at < min(len(series), len(seriesAtOnce)) && series[at] == seriesAtOnce[at] {
				at++
			}
			t.Logf("\n%s\n%s", series[max(0, at-300):at+200], seriesAtOnce[max(0, at-300):at+200])
		}
	}
}
