// Package backtest finds out when objectives would have paged, from the history in a Prometheus. It reads the
// exporter's events or, if no exporter ran, the engines' own histograms and counters, which the tables of package
// engine map to events. It evaluates the generated rules for every minute.
package backtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promapi"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Backtest has the objectives, the source and the time range of a backtest, and limits for the load on the server.
type Backtest struct {
	// URL is the address of the Prometheus, for error messages. API sends the queries to this Prometheus.
	URL string
	API prometheus.API
	// Objectives must be complete, as returned by slo.Objective.WithDefaults.
	Objectives []slo.Objective
	// Pairs lists the window pairs of the alerts.
	Pairs []slo.WindowPair
	// From and To limit the time range.
	From, To time.Time
	// Source names the series to read. Auto prefers Exporter.
	Source Source
	// MaxSamples limits the samples that one query returns.
	MaxSamples int
	// Neighbours is how many bucket bounds on each side of a threshold are tried as other thresholds.
	Neighbours int
	// PagesPerMonth is the acceptable number of pages per objective and model in 30 days.
	PagesPerMonth float64
	// Progress receives a line per model.
	Progress io.Writer

	notes []string
}

// Source names the series that a backtest reads.
type Source string

// These are the sources.
const (
	Auto     Source = "auto"
	Exporter Source = "exporter" // llm_slo_events_total
	Engines  Source = "engines"  // the engines' own series
)

// Report is the result of a backtest.
type Report struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Reads Source    `json:"reads"`
	Notes []string  `json:"notes,omitempty"`
	Rows  []Row     `json:"objectives"`
}

// Row is the result of one objective for one model.
type Row struct {
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Model     string `json:"model_name"`
	Role      string `json:"role,omitempty"`
	Objective string `json:"slo"`
	Target    string `json:"target"`
	// Threshold is the bucket bound, in seconds, at which the engines count. It is empty if there is none.
	Threshold string  `json:"threshold_seconds,omitempty"`
	Events    float64 `json:"events"`
	Bad       float64 `json:"bad_events"`
	// Spent is the share of the period's budget that was spent. The budget is computed from the traffic of the
	// backtest.
	Spent   float64   `json:"budget_spent_ratio"`
	Pages   []Episode `json:"pages"`
	Tickets []Episode `json:"tickets"`
	// Targets and Bounds have the results for other targets and thresholds. Best is the strictest target with an
	// acceptable number of pages, or empty.
	Targets []Choice `json:"targets,omitempty"`
	Bounds  []Choice `json:"thresholds,omitempty"`
	Best    string   `json:"recommended_target,omitempty"`

	hours [][2]float64 // events and bad events by hour
}

// Episode is a period in which an alert fired. Pauses of less than five minutes do not end it.
type Episode struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Verdict string    `json:"verdict,omitempty"`
}

// Choice is another target or threshold, with the number of pages that it would have caused.
type Choice struct {
	Value string `json:"value"`
	Pages int    `json:"pages"`
}

// Targets lists the targets that a backtest tries in addition to the objective's own target.
var Targets = []string{"50%", "80%", "90%", "95%", "97%", "98%", "99%", "99.5%", "99.8%", "99.9%", "99.95%", "99.99%"}

// Run reads the history and evaluates it.
func (b *Backtest) Run(ctx context.Context) (*Report, error) {
	h := &history{
		Backtest: b, begin: b.From.Truncate(tileMinutes * time.Minute), end: b.To.Truncate(time.Minute),
		exporter: b.Source == Exporter, interval: 15 * time.Second,
	}
	if b.Source == Auto {
		stored, err := h.series(ctx, h.begin, h.end, metrics.SLOEvents.Name)
		if err != nil {
			return nil, err
		}
		h.exporter = len(stored) > 0
	}
	groups, err := h.groups(ctx)
	if err != nil {
		return nil, err
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("%s has none of these series between %s and %s: %s", b.URL,
			h.begin.UTC().Format(minuteFormat), h.end.UTC().Format(minuteFormat), strings.Join(h.names(), ", "))
	}
	if err := errors.Join(h.scraped(ctx, groups[0]), h.converted(ctx)); err != nil {
		return nil, err
	}
	r := &Report{From: h.begin, To: h.end, Reads: Engines}
	if h.exporter {
		r.Reads = Exporter
	}
	first := h.minutes()
	for i, g := range groups {
		began := time.Now()
		c := newCounting(h)
		if err := h.read(ctx, g, c); err != nil {
			return nil, err
		}
		rows, known, err := c.rows()
		if err != nil {
			return nil, err
		}
		if err := errors.Join(h.verdicts(ctx, g, rows), h.rooms(ctx, g)); err != nil {
			return nil, err
		}
		first = min(first, known)
		r.Rows = append(r.Rows, rows...)
		fmt.Fprintf(b.Progress, "%d of %d: %s, %.1f s\n", i+1, len(groups), cmp.Or(g.model, "models without a name"), time.Since(began).Seconds())
	}
	if r.Rows == nil {
		return nil, fmt.Errorf("%s has engines that no objective counts: %s", b.URL,
			strings.Join(append(b.notes, "pass their objectives with --config"), "; "))
	}
	if late := time.Duration(first) * time.Minute; late > time.Hour {
		h.note("the history begins at %s UTC; there is no data for the time from %s until then", h.begin.Add(late).UTC().
			Format(minuteFormat), h.begin.UTC().Format(minuteFormat))
	}
	slices.SortStableFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(len(b.Pages), len(a.Pages)), cmp.Compare(b.Spent, a.Spent), cmp.Compare(a.Model, b.Model),
			cmp.Compare(a.Objective, b.Objective))
	})
	r.Notes = b.notes
	return r, nil
}

// note adds a remark to the report, unless the report already has it.
func (b *Backtest) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(b.notes, text) {
		b.notes = append(b.notes, text)
	}
}

// minutes returns the number of minutes for which rules are evaluated.
func (h *history) minutes() int { return int(h.end.Sub(h.begin)/time.Minute) + 1 }

// scraped finds out how often targets are scraped, because the number of samples in an answer depends on it.
func (h *history) scraped(ctx context.Context, g group) error {
	expr := fmt.Sprintf("max(count_over_time({__name__=%q,%s}[1h]))", g.name, g.match)
	value, _, _, err := h.API.QueryRange(ctx, expr, prometheus.Range{Start: h.end.Add(-day), End: h.end, Step: time.Hour})
	if err := promapi.Explain(h.URL, expr, err); err != nil {
		return err
	}
	var most float64
	for _, s := range value.(model.Matrix) {
		for _, v := range s.Values {
			most = max(most, float64(v.Value))
		}
	}
	if most > 0 {
		h.interval = time.Hour / time.Duration(most)
	}
	if h.interval > 90*time.Second {
		h.note("the scrape interval is %s, so five-minute windows have few samples, and pages may be late by one interval",
			h.interval.Round(time.Second))
	}
	return nil
}

const day = 24 * time.Hour

// objective returns the objective with a name.
func (b *Backtest) objective(name string) (slo.Objective, bool) {
	i := slices.IndexFunc(b.Objectives, func(o slo.Objective) bool { return o.Name == name })
	if i < 0 {
		return slo.Objective{}, false
	}
	return b.Objectives[i], true
}

// rows evaluates the rules over the counted events. known is the first minute with an event.
func (c *counting) rows() (rows []Row, known int, err error) {
	known = c.h.minutes()
	others := map[key][]Choice{}
	var bases []*subject
	for k, s := range c.subjects {
		if m := c.models[key{k.Cluster, k.Namespace, k.Model, k.Role, ""}]; m != nil {
			s.requests, s.requestsEnded = m.requests, m.ended
		} else {
			s.requests, s.requestsEnded = nothing(c.h.minutes()), nothing(c.h.minutes())
		}
		s.corrected()
		name, bound, other := strings.Cut(k.SLO, alternative)
		o, ok := c.h.objective(name)
		switch {
		case !ok:
			c.h.note("the exporter also counts %q; add it to the file of --config to replay it", name)
		case other:
			base := k
			base.SLO = name
			firing, err := c.h.judge(s, o).fires(slo.Page)
			if err != nil {
				return nil, 0, err
			}
			others[base] = append(others[base], Choice{bound, len(episodes(firing, c.h.begin))})
		default:
			bases = append(bases, s)
		}
	}
	for _, s := range bases {
		o, _ := c.h.objective(s.SLO)
		for i := 0; i < known; i++ {
			if s.counted[i] {
				known = i
			}
		}
		row, err := c.h.row(s, o)
		if err != nil {
			return nil, 0, err
		}
		row.Bounds = others[s.key]
		slices.SortFunc(row.Bounds, func(a, b Choice) int { return cmp.Compare(seconds(a.Value), seconds(b.Value)) })
		rows = append(rows, row)
	}
	for where, reason := range c.uncounted {
		name, of, _ := strings.Cut(where, alternative)
		if !slices.ContainsFunc(bases, func(s *subject) bool { return s.SLO == name && s.Model == of }) {
			c.h.note("%s of %s is not counted: %s", name, cmp.Or(of, "a model without a name"), reason)
		}
	}
	return rows, known, nil
}

// row evaluates one objective on one model.
func (h *history) row(s *subject, o slo.Objective) (Row, error) {
	j := h.judge(s, o)
	var failed error
	fired := func(severity slo.Severity) []Episode {
		firing, err := j.fires(severity)
		failed = errors.Join(failed, err)
		return episodes(firing, h.begin)
	}
	r := Row{
		Cluster: s.Cluster, Namespace: s.Namespace, Model: s.Model, Role: s.Role, Objective: s.SLO, Target: o.Target.Percent(),
		Threshold: s.threshold,
		Pages:     fired(slo.Page), Tickets: fired(slo.Ticket),
	}
	began := -1
	for i := 0; i < len(s.tiles); i += tileMinutes {
		if i/60 >= len(r.hours) {
			r.hours = append(r.hours, [2]float64{})
		}
		if math.IsNaN(s.tiles[i]) {
			continue
		}
		if began < 0 {
			began = i
		}
		bad := plus(s.badTiles[i], 0)
		r.Events, r.Bad = r.Events+s.tiles[i], r.Bad+bad
		r.hours[i/60][0] += s.tiles[i]
		r.hours[i/60][1] += bad
	}
	if r.Events > 0 {
		history := time.Duration(len(s.tiles)-began) * time.Minute
		r.Spent = r.Bad / r.Events / o.Budget().Float() * min(history.Seconds()/o.Period.Std().Seconds(), 1)
	}
	acceptable := h.PagesPerMonth * h.end.Sub(h.begin).Hours() / (30 * 24)
	for _, text := range Targets {
		target, err := slo.ParseRatio(text)
		if err != nil {
			panic(err)
		}
		other := o
		other.Target = target
		j.aim(other)
		n := len(fired(slo.Page))
		r.Targets = append(r.Targets, Choice{text, n})
		if float64(n) <= acceptable {
			r.Best = text
		}
	}
	return r, failed
}

// episodes merges the minutes in which an alert fires, and short pauses, into episodes.
func episodes(firing []bool, begin time.Time) []Episode {
	all := []Episode{}
	last := -tileMinutes
	for i, f := range firing {
		if !f {
			continue
		}
		at := begin.Add(time.Duration(i) * time.Minute)
		if i-last > tileMinutes || len(all) == 0 {
			all = append(all, Episode{From: at})
		}
		all[len(all)-1].To = at
		last = i
	}
	return all
}

// alternatives returns copies of the objectives with other thresholds: the engine's bucket bounds next to the present
// threshold.
func (h *history) alternatives(lines []engine.Line) (all []slo.Objective) {
	bounds := map[string][]float64{} // by name of the bucket series
	for _, l := range lines {
		if le := l.Series.Get("le"); le != "" && le != "+Inf" {
			name := l.Series.Get(model.MetricNameLabel)
			bounds[name] = append(bounds[name], seconds(le))
		}
	}
	for _, o := range h.Objectives {
		if !o.Signal.Latency() || h.Neighbours == 0 {
			continue
		}
		have := bounds[o.Signal.Family().Name+"_bucket"]
		if other, _ := o.Signal.Substitute(); len(have) == 0 && other != nil {
			have = bounds[other.Name+"_bucket"]
		}
		slices.Sort(have)
		have = slices.Compact(have)
		snapped, ok := slo.Snap(have, o.Threshold.Std().Seconds())
		at := slices.Index(have, snapped)
		for i := max(0, at-h.Neighbours); ok && i <= min(len(have)-1, at+h.Neighbours); i++ {
			other := o
			other.Name += alternative + slo.FormatBound(have[i])
			other.Threshold = slo.Duration(math.Round(have[i] * float64(time.Second)))
			if i != at {
				all = append(all, other)
			}
		}
	}
	return all
}

// seconds parses a bucket bound in seconds.
func seconds(bound string) float64 {
	d, err := slo.ParseDuration(bound + "s")
	if err != nil {
		return math.Inf(1)
	}
	return d.Std().Seconds()
}

// Transport wraps the HTTP transport to the server. It pauses between requests, and waits as long as the server's
// Retry-After requires. If cache names a folder, it caches answers that can no longer change.
func Transport(pause time.Duration, cache string, progress io.Writer) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return cached{polite{next, pause, progress}, cache}
	}
}
