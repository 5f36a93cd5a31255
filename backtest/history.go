package backtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promapi"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// chunk is the longest time range of one request. Chunks are days in UTC, so that the next backtest can also use the
// cache.
const chunk = 24 * time.Hour

// targetLabels identify a target whose metrics are stored.
var targetLabels = []string{
	metrics.LabelCluster, "job", metrics.LabelInstance, metrics.LabelNamespace, metrics.LabelPod,
	metrics.LabelContainer,
}

// page has the series that Prometheus stored from one target in one chunk, as if they were the target's metrics page.
type page struct {
	engine.Stored
	target    labels.Labels
	place     map[model.Fingerprint]int // index in Series
	lines     []pair
	uncounted map[string]slo.Reason // by objective and model
}

// piece has the stored samples of a group's targets between from and until.
type piece struct {
	from, until time.Time
	pages       []*page
	streams     model.Matrix
}

// history reads the series that a Prometheus has stored.
type history struct {
	*Backtest
	begin, end time.Time     // whole minutes
	exporter   bool          // the exporter ran, so its own events are read
	interval   time.Duration // time between two scrapes
	judging    []rules.Group // see rules
}

// names returns regular expressions that match the names of the series to read.
func (h *history) names() []string {
	if h.exporter {
		return []string{
			metrics.SLOEvents.Name, metrics.SLOBadEvents.Name, metrics.SLOMaintenance.Name, metrics.EngineStartTime.Name,
			metrics.TimeToFirstToken.Name + "_(bucket|count)", metrics.InterTokenLatency.Name + "_(bucket|count)",
			metrics.TimePerOutputToken.Name + "_(bucket|count)", metrics.RequestDuration.Name + "_(bucket|count)",
			metrics.QueueTime.Name + "_(bucket|count)", metrics.Requests.Name,
		}
	}
	// A step counts once for each running request, so the running requests are also read.
	families := []*metrics.Family{metrics.TimeToFirstToken, metrics.Requests, metrics.RequestsRunning}
	for _, o := range h.Objectives {
		if f := o.Signal.Family(); f != nil {
			families = append(families, f)
		}
		if f, _ := o.Signal.Substitute(); f != nil {
			families = append(families, f)
		}
		for _, c := range []*slo.Counters{o.Total, o.Good, o.Bad} {
			if c != nil {
				families = append(families, metrics.Lookup(c.Metric))
			}
		}
	}
	return append(engine.Sources(families...), "process_start_time_seconds")
}

// converted notes which histograms are stored as native histograms. They cannot be replayed, because an answer leaves
// out empty buckets, and with them perhaps the bounds of the objectives. The exporter's own counters are not affected.
func (h *history) converted(ctx context.Context) error {
	var bases []string
	for _, name := range h.names() {
		if base, ok := strings.CutSuffix(name, "_(bucket|count)"); ok {
			bases = append(bases, base)
		}
	}
	series, err := h.series(ctx, h.begin, h.end, "{"+h.named(bases)+"}")
	if err != nil || len(series) == 0 {
		return err
	}
	h.note("part of the history of %s is a native histogram, which cannot be replayed: for that time, the latencies of engines without "+
		"an exporter and the results for other thresholds are missing", series[0][model.MetricNameLabel])
	return nil
}

// group is a set of targets. No target outside the group serves one of its models.
type group struct {
	match string // matchers of the group's series, as in {…}
	about string // matchers of the series about the engines' processes, which name no model
	model string // one of the group's models, for progress messages
	name  string // name of one of the series
}

// groups finds the targets and their models, and divides the targets into groups.
func (h *history) groups(ctx context.Context) ([]group, error) {
	first := "{" + h.named(h.names()[:len(h.names())-1]) + `,le=~"|\\+Inf"}`
	if h.exporter {
		series, err := h.series(ctx, h.begin, h.end, metrics.SLOEvents.Name)
		models := map[string]group{}
		for _, s := range series {
			m, ns := string(s[metrics.LabelModel]), string(s[metrics.LabelNamespace])
			models[ns+"\xff"+m] = group{fmt.Sprintf(`model_name=%q,namespace=%q`, m, ns), fmt.Sprintf(`namespace=%q`, ns), m, metrics.SLOEvents.Name}
		}
		return sorted(models), err
	}
	series, err := h.series(ctx, h.begin, h.end, first)
	if err != nil {
		return nil, err
	}
	// Targets with the same model belong together, because objectives are about models.
	with := map[string]string{} // by model: the model that stands for its group
	of := map[*page]string{}
	var targets []*page
	for _, p := range pages(series) {
		lines, err := p.Lines(h.Objectives)
		if err != nil {
			h.note("%s is left out: %s", p.target, err)
			continue
		}
		for _, l := range lines {
			if l.Series.Get(model.MetricNameLabel) != metrics.EngineInfo.Name {
				continue
			}
			m := l.Series.Get(metrics.LabelModel)
			to := cmp.Or(with[of[p]], with[m], m)
			for _, joined := range []string{with[of[p]], with[m]} {
				for name, first := range with {
					if first == joined && joined != "" {
						with[name] = to
					}
				}
			}
			with[m], of[p] = to, m
		}
		if of[p] != "" {
			targets = append(targets, p)
		}
	}
	names := map[string]string{}
	jobs, instances := map[string]map[string]bool{}, map[string]map[string]bool{}
	for _, p := range targets {
		to := with[of[p]]
		if jobs[to] == nil {
			jobs[to], instances[to] = map[string]bool{}, map[string]bool{}
		}
		names[to] = p.Series[0].Get(model.MetricNameLabel)
		jobs[to][p.target.Get("job")], instances[to][p.target.Get(metrics.LabelInstance)] = true, true
	}
	all := map[string]group{}
	for m := range jobs {
		match := fmt.Sprintf(`job=~%q,instance=~%q`, anyOf(jobs[m]), anyOf(instances[m]))
		all[m] = group{match, match, m, names[m]}
	}
	return sorted(all), nil
}

func sorted(all map[string]group) (groups []group) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		groups = append(groups, all[name])
	}
	return groups
}

// named returns a matcher for metric names.
func (h *history) named(names []string) string {
	return fmt.Sprintf(`__name__=~%q`, strings.Join(names, "|"))
}

func anyOf(values map[string]bool) string {
	quoted := slices.Sorted(maps.Keys(values))
	for i, v := range quoted {
		quoted[i] = regexp.QuoteMeta(v)
	}
	return strings.Join(quoted, "|")
}

// series lists the series that selectors find in a time range.
func (h *history) series(ctx context.Context, from, to time.Time, selectors ...string) ([]model.LabelSet, error) {
	all, warnings, _, err := h.API.Series(ctx, selectors, from, to)
	expr := strings.Join(selectors, " and ")
	if err := promapi.Explain(h.URL, expr, err); err != nil {
		return nil, err
	}
	return all, truncated(expr, warnings)
}

// samples returns the stored samples of the series that a selector finds, for the period d that ends at to.
func (h *history) samples(ctx context.Context, selector string, to time.Time, d time.Duration) (model.Matrix, error) {
	expr := fmt.Sprintf("%s[%ds]", selector, int(d.Seconds()))
	value, warnings, _, err := h.API.Query(ctx, expr, to)
	if err := promapi.Explain(h.URL, expr, err); err != nil {
		return nil, err
	}
	return value.(model.Matrix), truncated(expr, warnings)
}

// truncated returns an error if warnings show that an answer may be incomplete, because a backtest on some of the
// samples would be unreliable.
func truncated(expr string, warnings prometheus.Warnings) error {
	if len(warnings) == 0 {
		return nil
	}
	return fmt.Errorf("the answer to %.200s may be incomplete (%s): query the stores behind this address one by one, or lower --max-samples",
		expr,
		strings.Join(warnings, "; "))
}

// pages groups series by their target.
func pages(series []model.LabelSet) []*page {
	byTarget := map[string]*page{}
	for _, s := range series {
		target, b := labels.NewScratchBuilder(len(targetLabels)), labels.NewScratchBuilder(len(s))
		for name, value := range s {
			switch {
			case name == "job" || name == metrics.LabelInstance || name == metrics.LabelCluster:
				target.Add(string(name), string(value))
				continue // the scrape adds this series; the metrics page does not have it
			case slices.Contains(targetLabels, string(name)):
				target.Add(string(name), string(value))
			}
			b.Add(string(name), string(value))
		}
		target.Sort()
		b.Sort()
		t := target.Labels()
		p := byTarget[t.String()]
		if p == nil {
			p = &page{target: t, place: map[model.Fingerprint]int{}, uncounted: map[string]slo.Reason{}}
			p.Server, p.Model = t.Get(metrics.LabelInstance), t.Get("job")
			p.Fixed = map[string]string{}
			for _, name := range []string{metrics.LabelNamespace, metrics.LabelPod, metrics.LabelContainer} {
				if v := t.Get(name); v != "" {
					p.Fixed[name] = v
				}
			}
			byTarget[t.String()] = p
		}
		p.place[s.Fingerprint()] = len(p.Series)
		p.Series = append(p.Series, b.Labels())
	}
	all := make([]*page, 0, len(byTarget))
	for _, name := range slices.Sorted(maps.Keys(byTarget)) {
		all = append(all, byTarget[name])
	}
	return all
}

// read counts the events of a group, chunk by chunk. It begins before the backtest, because the windows of the first
// minutes do. It requests the next piece while it counts the current piece.
func (h *history) read(ctx context.Context, g group, to *counting) (err error) {
	pieces := make(chan piece)
	go func() {
		defer close(pieces)
		for from := h.begin.Add(-rules.RequestWindow.Std()); from.Before(h.end) && err == nil; {
			until := from.Truncate(chunk).Add(chunk)
			if until.After(h.end) {
				until = h.end
			}
			err = h.chunk(ctx, g, from, until, pieces)
			from = until
		}
	}()
	for p := range pieces {
		to.take(p)
		to.fold(p.from, p.until)
	}
	return err
}

// chunk requests the samples between from and until, in pieces of limited size.
func (h *history) chunk(ctx context.Context, g group, from, until time.Time, to chan<- piece) error {
	if until.Before(time.Now().Add(-chunk / 24)) {
		ctx = context.WithValue(ctx, settled{}, true)
	}
	series, err := h.series(ctx, from, until, "{"+h.named(h.names())+","+g.match+"}", "{"+h.named([]string{metrics.EngineStartTime.Name})+
		","+g.about+"}")
	if err != nil {
		return err
	}
	all := pages(series)
	wants := map[string]map[string]bool{} // bounds by name; "" for series without bounds
	n := 0
	for _, p := range all {
		if err := h.open(p); err != nil {
			h.note("%s is left out from %s to %s: %s", p.target, from.UTC().Format(minuteFormat), until.UTC().Format(minuteFormat), err)
			continue
		}
		for _, i := range p.reads() {
			name := p.Series[i].Get(model.MetricNameLabel)
			if wants[name] == nil {
				wants[name] = map[string]bool{}
			}
			wants[name][p.Series[i].Get(labels.BucketLabel)] = true
			n++
		}
	}
	if n == 0 {
		to <- piece{from: from, until: until}
		return nil
	}
	step := until.Sub(from)
	for n*int(step/h.interval) > h.MaxSamples && step > 5*time.Minute {
		step = (step / 2).Truncate(time.Minute)
	}
	var plain []string
	var selectors []string
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		if name == metrics.EngineStartTime.Name {
			selectors = append(selectors, "{"+h.named([]string{name})+","+g.about+"}")
		} else if wants[name][""] {
			plain = append(plain, name)
		} else {
			selectors = append(selectors, fmt.Sprintf(`{__name__=%q,le=~%q,%s}`, name, anyOf(wants[name]), g.match))
		}
	}
	if plain != nil {
		selectors = append(selectors, fmt.Sprintf(`{__name__=~%q,%s}`, strings.Join(plain, "|"), g.match))
	}
	for from.Before(until) {
		next := from.Add(step)
		if next.After(until) {
			next = until
		}
		var streams model.Matrix
		for _, s := range selectors {
			found, err := h.samples(ctx, s, next, next.Sub(from))
			if err != nil {
				return err
			}
			streams = append(streams, found...)
		}
		to <- piece{from, next, all, streams}
		from = next
	}
	return nil
}

const minuteFormat = "2006-01-02 15:04"

// counting adds the samples of a group to its subjects.
type counting struct {
	h         *history
	counters  map[string]*counter   // by series and target; kept across chunks
	subjects  map[key]*subject      // by model and objective
	models    map[key]*serving      // by model and role
	uncounted map[string]slo.Reason // by objective and model
}

// serving has the requests of a model, by minute.
type serving struct{ requests, ended []float64 }

// pair is a line that the exporter would have served for a metrics page, with the series that it becomes in Prometheus.
type pair struct {
	engine.Line
	id     string // series and target
	with   []int  // the line exists only if these series exist
	series labels.Labels
}

func newCounting(h *history) *counting {
	return &counting{
		h: h, counters: map[string]*counter{}, subjects: map[key]*subject{}, models: map[key]*serving{},
		uncounted: map[string]slo.Reason{},
	}
}

// alternative separates the name of an objective from the other threshold in the name of its copy.
const alternative = "@"

// open finds out which lines of a metrics page are counted.
func (h *history) open(p *page) error {
	lines, err := p.Lines(h.Objectives)
	if err != nil {
		return err
	}
	if others := h.alternatives(lines); others != nil {
		if lines, err = p.Lines(slices.Concat(h.Objectives, others)); err != nil {
			return err
		}
	}
	var counted map[string]bool
	if h.exporter {
		counted = p.keepStored()
	}
	with := map[string][]int{}
	for _, l := range lines {
		if l.Series.Get(model.MetricNameLabel) == metrics.SLOEvents.Name {
			with[unnamed(l.Series)] = l.Adds()
		}
	}
	for _, l := range lines {
		h.take(p, l, counted, with)
	}
	return nil
}

// keepStored keeps the events that the exporter itself counted, and returns the names of their objectives.
func (p *page) keepStored() map[string]bool {
	counted := map[string]bool{}
	for i, s := range p.Series {
		switch s.Get(model.MetricNameLabel) {
		case metrics.SLOEvents.Name, metrics.SLOBadEvents.Name, metrics.SLOMaintenance.Name:
			counted[s.Get(metrics.LabelSLO)] = true
			p.keep(engine.StoredLine(s, i), []int{i})
		case metrics.EngineStartTime.Name:
			p.keep(engine.StoredLine(s, i), []int{i})
		}
	}
	return counted
}

// take keeps a line of an engine's metrics page if it counts events, unless the exporter itself counted them. with
// lists, by line, the series without which there are no events.
func (h *history) take(p *page, l engine.Line, counted map[string]bool, with map[string][]int) {
	switch objective := l.Series.Get(metrics.LabelSLO); l.Series.Get(model.MetricNameLabel) {
	case metrics.SLOEvents.Name, metrics.SLOBadEvents.Name:
		of, other, _ := strings.Cut(objective, alternative)
		if h.exporter && (counted[of] && other == "" || h.availability(of)) {
			return
		}
		p.keep(l, with[unnamed(l.Series)])
	case metrics.TimeToFirstToken.Name + "_count", metrics.Requests.Name:
		p.keep(l, l.Adds())
	case metrics.EngineStartTime.Name:
		if !h.exporter {
			p.keep(l, l.Adds())
		}
	case metrics.SLOCounted.Name:
		reason := slo.Reason(l.Series.Get(metrics.LabelReason))
		if !reason.Counts() && !h.exporter && !strings.Contains(objective, alternative) {
			p.uncounted[objective+alternative+l.Series.Get(metrics.LabelModel)] = reason
		}
	}
}

// availability reports whether an objective is about availability.
func (h *history) availability(name string) bool {
	o, _ := h.objective(name)
	return o.Signal == slo.Availability
}

// keep adds a line to the lines that are counted.
func (p *page) keep(l engine.Line, with []int) {
	b := labels.NewBuilder(l.Series)
	for _, name := range []string{metrics.LabelCluster, metrics.LabelInstance} {
		b.Set(name, p.target.Get(name))
	}
	series := b.Labels()
	id := series.String() + p.target.Get("job")
	p.lines = append(p.lines, pair{l, id, with, series})
}

func unnamed(l labels.Labels) string {
	return labels.NewBuilder(l).Del(model.MetricNameLabel).Labels().String()
}

// reads lists the indexes of the series from which the lines of a metrics page are computed.
func (p *page) reads() []int {
	var all []int
	for _, l := range p.lines {
		all = append(append(all, l.Reads()...), l.with...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// take counts the events in a piece.
func (c *counting) take(all piece) {
	for _, p := range all.pages {
		c.page(p, all.streams)
	}
}

// page computes the values of the lines of a metrics page, scrape by scrape.
func (c *counting) page(p *page, streams model.Matrix) {
	maps.Copy(c.uncounted, p.uncounted)
	samples := make([][]model.SamplePair, len(p.Series))
	for _, s := range streams {
		if i, ok := p.place[model.LabelSet(s.Metric).Fingerprint()]; ok {
			samples[i] = s.Values
		}
	}
	values := make([]float64, len(p.Series))
	for _, l := range p.lines {
		count := c.counters[l.id]
		if count == nil {
			count = &counter{series: l.series}
			c.counters[l.id] = count
		}
		reads := slices.Concat(l.Reads(), l.with)
		at := make([]int, len(p.Series)) // index of the next sample of each series
		for {
			next, found := model.Time(math.MaxInt64), false // time of the next scrape
			for _, i := range l.with {
				if n := at[i]; n < len(samples[i]) && samples[i][n].Timestamp < next {
					next, found = samples[i][n].Timestamp, true
				}
			}
			if !found {
				break
			}
			for _, i := range reads {
				for at[i] < len(samples[i]) && samples[i][at[i]].Timestamp < next {
					at[i]++
				}
				values[i] = 0
				if n := at[i]; n < len(samples[i]) && samples[i][n].Timestamp == next {
					values[i] = float64(samples[i][n].Value)
				}
			}
			count.add(int64(next), l.Value(values))
			for _, i := range l.with {
				if n := at[i]; n < len(samples[i]) && samples[i][n].Timestamp == next {
					at[i]++
				}
			}
		}
	}
}
