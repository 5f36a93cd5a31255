package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	common "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// past is the length of a play's history. It is more than a day, because rules compare the present with the day before.
const past = 26 * time.Hour

// page is a metrics page. The keys of values and counters are series as they are written on the page.
type page struct {
	values   map[string]float64
	counters map[string]bool
	lines    []string
}

// parsePage reads a metrics page in Prometheus' text format.
func parsePage(text string) page {
	p := page{values: map[string]float64{}, counters: map[string]bool{}}
	counts := map[string]bool{} // names of samples that only grow
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		p.lines = append(p.lines, line)
		if typed, found := strings.CutPrefix(line, "# TYPE "); found {
			name, kind, _ := strings.Cut(typed, " ")
			counts[name] = kind == "counter"
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				counts[name+suffix] = kind == "histogram" || kind == "summary"
			}
			continue
		}
		key, value, ok := sample(line)
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(key, "{")
		p.values[key], p.counters[key] = value, counts[name]
	}
	return p
}

// sample splits a line of a metrics page into the series and the value.
func sample(line string) (key string, value float64, ok bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 || strings.HasPrefix(line, "#") {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(line[i+1:], 64)
	return line[:i], value, err == nil
}

// fetch reads a metrics page.
func fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(text), err
}

// Past makes engines and an exporter that started minutes ago look as if they had run for a day. It adds a day's
// increase to the counters, at the rates of the healthy minutes. Past serves the exporter's metrics with these values,
// and fills a Prometheus with the history.
type Past struct {
	exporter string // URL of the metrics page
	from     time.Time
	healthy  page
	rates    map[string]float64 // per second
	means    map[string]float64 // of gauges
	recorded []constant         // series that the rules record
	seconds  float64            // time between the beginning and the healthy metrics page

	mu    sync.Mutex
	last  map[string]float64
	reset map[string]bool // counters that have restarted since then, and start times that have changed
}

// NewPast returns a past that ends now, with the values of a healthy metrics page at its end.
func NewPast(exporter string, healthy page, now time.Time) *Past {
	return &Past{
		exporter: exporter, from: now.Add(-past), healthy: healthy, rates: map[string]float64{}, means: map[string]float64{},
		seconds: past.Seconds(), last: maps.Clone(healthy.values), reset: map[string]bool{},
	}
}

// Learn computes the rates of the counters from the first metrics page and the page at the end of the past, and the
// means of the gauges from all pages. took is the time from the first page to the end.
func (h *Past) Learn(pages []page, took time.Duration) {
	for key := range h.healthy.counters {
		before, known := pages[0].values[key]
		if !known || strings.Contains(key, "timestamp_seconds") || isStart(key) {
			continue
		}
		if !h.healthy.counters[key] {
			h.means[key] = h.healthy.values[key] / float64(len(pages)+1)
			for _, p := range pages {
				h.means[key] += p.values[key] / float64(len(pages)+1)
			}
		} else if h.healthy.values[key] >= before {
			h.rates[key] = (h.healthy.values[key] - before) / took.Seconds()
		}
	}
}

// As copies the rates, the means and the results of rules from the past of an earlier play with the same load.
func (h *Past) As(other *Past) {
	h.rates, h.means, h.recorded = other.rates, other.means, other.recorded
}

// at returns the value of a series, some seconds after the beginning of the past.
func (h *Past) at(key string, seconds float64) float64 {
	if rate, counts := h.rates[key]; counts {
		return rate * seconds
	}
	if isStart(key) {
		return h.healthy.values[key] - h.seconds
	}
	if mean, known := h.means[key]; known {
		return mean
	}
	return h.healthy.values[key]
}

// isStart reports whether a series is the start time of a process.
func isStart(key string) bool {
	name, _, _ := strings.Cut(key, "{")
	return strings.HasSuffix(name, "start_time_seconds")
}

// Since adds a day's increase to the counters of a current metrics page.
func (h *Past) Since(text string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out strings.Builder
	now := parsePage(text)
	started := false
	for key, value := range now.values {
		started = started || isStart(key) && h.healthy.values[key] > 0 && value != h.healthy.values[key]
	}
	for _, line := range now.lines {
		key, value, ok := sample(line)
		if ok && !started && strings.HasPrefix(key, metrics.EngineCold.Name+"{") { // the engine's age equals the length of the past
			fmt.Fprintln(&out, key, 0)
			continue
		}
		if _, counts := h.rates[key]; !ok || !counts && !(isStart(key) && h.healthy.values[key] > 0) {
			fmt.Fprintln(&out, line)
			continue
		} else if counts {
			h.reset[key] = h.reset[key] || value < h.last[key]
		} else {
			h.reset[key] = h.reset[key] || value != h.healthy.values[key]
		}
		h.last[key] = value
		if !h.reset[key] {
			value += h.at(key, h.seconds) - h.healthy.values[key]
		}
		fmt.Fprintln(&out, key, strconv.FormatFloat(value, 'g', -1, 64))
	}
	return out.String()
}

// ServeHTTP implements http.Handler.
func (h *Past) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := fetch(r.Context(), h.exporter)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = io.WriteString(w, h.Since(text))
}

// series returns the labels of every series of the healthy metrics page, as a Prometheus stores them.
func (h *Past) series(instance string) (map[string]labels.Labels, error) {
	all := map[string]labels.Labels{}
	p := parser.NewParser(parser.Options{})
	for key := range h.healthy.values {
		metric, err := p.ParseMetric(key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		b := labels.NewBuilder(metric)
		b.Set("instance", instance)
		b.Set("job", rules.DefaultJob)
		all[key] = b.Labels()
	}
	return all, nil
}

// Write stores the past in the data folder of a stopped Prometheus: the samples that it would have scraped, and the
// series that the rules would have recorded.
func (h *Past) Write(ctx context.Context, folder, instance string, ruleFile []byte) error {
	all, err := h.series(instance)
	if err != nil {
		return err
	}
	if h.recorded == nil {
		if err := h.evaluate(all, instance, ruleFile); err != nil {
			return err
		}
	}
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), folder, 2*past.Milliseconds())
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	for second := 0.0; second < h.seconds; second += 60 {
		app, at := w.Appender(ctx), h.from.Add(time.Duration(second*float64(time.Second))).UnixMilli()
		for key, l := range all {
			if !scraped(second) {
				break
			}
			if _, err := app.Append(0, l, at, h.at(key, second)); err != nil {
				return err
			}
		}
		for _, s := range h.recorded {
			if v, written := s.at(second, float64(at)/1000); written {
				if _, err := app.Append(0, s.labels, at, v); err != nil {
					return err
				}
			}
		}
		if err := app.Commit(); err != nil {
			return err
		}
	}
	_, err = w.Flush(ctx)
	return err
}

// constant is a recorded series that stays the same during a day of steady load.
type constant struct {
	labels labels.Labels
	value  float64
}

// scraped reports whether the past has a scrape at a time, in seconds since the beginning of the past. In the last two
// hours, there is one sample per minute. Before that, there is one per four minutes.
func scraped(second float64) bool {
	return past.Seconds()-second <= 7200 || int(second)%240 == 0
}

// at returns the result of a rule at a time, in seconds since the beginning of the past. written means that there is a
// result. The rules record the five-minute sums of a period every five minutes, and the beginning of the period every
// hour.
func (c constant) at(second, now float64) (value float64, written bool) {
	switch name := c.labels.Get(common.MetricNameLabel); {
	case name == metrics.RecordedPeriodSince.Name:
		return now, int(second)%3600 == 0
	case strings.HasPrefix(name, "model_period:"):
		return c.value, int(second)%300 == 0
	}
	return c.value, scraped(second)
}

// evaluate computes the results of the rules at the end of the past. Some rules read hours of records. Therefore,
// evaluate runs all rules a second time, with the first results as the records of those hours.
func (h *Past) evaluate(all map[string]labels.Labels, instance string, ruleFile []byte) (err error) {
	for range 2 {
		if h.recorded, err = h.record(all, instance, ruleFile); err != nil {
			return err
		}
	}
	return nil
}

// record evaluates the rules over the last minutes of the past.
func (h *Past) record(all map[string]labels.Labels, instance string, ruleFile []byte) (known []constant, err error) {
	sim, err := rulesim.New(ruleFile)
	if err != nil {
		return nil, err
	}
	defer sim.Close()
	up := labels.FromStrings(common.MetricNameLabel, "up", "instance", instance, "job", rules.DefaultJob)
	end := h.from.Add(past).Truncate(30 * time.Second)
	live := end.Add(-10 * time.Minute)
	var ticks []time.Time // of the last minutes
	for second := 60.0; second <= past.Seconds(); second += 30 {
		at := end.Add(time.Duration(second*float64(time.Second)) - past)
		if at.Before(live) && int(second)%60 != 0 {
			continue
		}
		err := sim.Append(at, func(emit rulesim.Emit) {
			if !scraped(second) {
				return
			}
			emit(up, 1)
			for _, key := range slices.Sorted(maps.Keys(all)) {
				emit(all[key], h.at(key, second))
			}
		})
		if err == nil && at.Before(live) {
			err = sim.Append(at, func(emit rulesim.Emit) {
				for _, k := range h.recorded {
					if v, written := k.at(second, float64(at.Unix())); written {
						emit(k.labels, v)
					}
				}
			})
		} else if err == nil {
			ticks = append(ticks, at)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := sim.EvalAll(ticks); err != nil {
		return nil, err
	}
	for _, query := range []string{`last_over_time({__name__=~".+:.+"}[5m])`, "last_over_time(" + metrics.RecordedPeriodSince.Name + "[2h])"} {
		result, err := sim.Query(query, end)
		if err != nil {
			return nil, err
		}
		for _, s := range result {
			known = append(known, constant{s.Metric, s.F})
		}
	}
	return known, nil
}
