package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// identityRetry is the pause before the metadata endpoints of an engine that did not answer are queried again.
const identityRetry = time.Minute

// target holds one engine's metrics page and what is known about the engine. After a restart, the exporter learns all
// of this from the engine again.
type target struct {
	scrape.Fetcher
	labelling
	url      string        // for logs; never holds credentials
	timeout  time.Duration // for one scrape
	config   *settings
	from     TargetConfig
	dialects []*Dialect // all known dialects, or the configured one
	pinned   bool       // the configuration names the dialect
	log      *slog.Logger

	mu       sync.Mutex
	flight   *flight
	reason   string     // last reported, so that only changes are logged
	detail   string     // the error behind it
	known    Engine     // from the last metrics page that was understood
	declared []declared // maintenance, from the same metrics page
	command  []stated   // settings on the command line of the engine's process; replaced, never changed
	image    string     // of its container
	changed  []string   // series of llm_engine_config_changed_timestamp_seconds
	changes  []Change   // the same, for people
	changeAt []float64
	// The models that it served, and when each was last seen: series of llm_engine_last_served_timestamp_seconds.
	served map[string]time.Time
	// From the same metrics page, for probes: the objectives that it does not count, and the labels of its engine.
	uncounted []uncounted
	whole     [outLabels]string
	offers    []Offer // nil until a metrics page has been understood

	run        chan struct{} // contains a token while a scrape runs; guards the fields below
	abandoned  int           // consecutive scrapes that nobody waited for to the end
	path       string
	owner      string // owner of the models that the engine lists, once the list has been read
	isOwned    bool
	composed   []byte // the metrics page that was composed last
	drains     bool   // /metrics turned out to be a list that reading empties
	plan       *plan
	template   *scrape.Template
	values     []float64 // by index of the series on the metrics page
	identities map[metrics.Runtime]identified
	doubted    time.Time // when the identities were last requested again
	missed     map[absent]float64
	offGrid    []offGrid           // objectives that have been logged as off the grid
	unlisted   []string            // outcomes that have been logged as unknown
	pasts      map[string]*past    // of the units, by their series
	gone       bool                // the engine did not answer
	back       time.Time           // when the engine was read again or, if it does not report its start, first read
	planned    time.Time           // when the plan was made
	pooled     map[string]pooled   // by series
	recorded   *recorded           // with what the engines of the metrics page run
	learners   map[string]*learner // of the units, by a series
}

type identified struct {
	Identity
	retry time.Time // zero once all endpoints have answered
	asked time.Time
}

// flight holds one scrape, shared by all scrapers that arrive while it runs.
type flight struct {
	done    chan struct{}
	result  *snapshot
	waiting int
	cancel  context.CancelFunc
}

// scrape returns a fresh snapshot of the engine and shares a scrape that is already running. A caller who leaves
// early does not cancel the scrape for other callers, and does not leave it running if nobody waits for it.
func (t *target) scrape(ctx context.Context) *snapshot {
	t.mu.Lock()
	f := t.flight
	if f == nil {
		run, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.timeout)
		f = &flight{done: make(chan struct{}), cancel: cancel}
		t.flight = f
		go func() {
			defer cancel()
			f.result = t.collect(run)
			t.mu.Lock()
			if t.flight == f {
				t.flight = nil
			}
			t.mu.Unlock()
			close(f.done)
		}()
	}
	f.waiting++
	t.mu.Unlock()

	select {
	case <-f.done:
		return f.result
	case <-ctx.Done():
	}
	t.mu.Lock()
	f.waiting--
	if f.waiting == 0 {
		f.cancel()
		if t.flight == f {
			t.flight = nil
		}
	}
	t.mu.Unlock()
	return t.silence(scrape.Timeout, 0) // the leaving scraper's timeout; the scrape itself reports the state of the engine
}

// collect runs one scrape.
func (t *target) collect(ctx context.Context) *snapshot {
	start := time.Now()
	select {
	case t.run <- struct{}{}:
		defer func() { <-t.run }()
	case <-ctx.Done(): // queued behind a scrape that does not end, whose report remains valid
		return t.silence(scrape.Timeout, time.Since(start))
	}
	size, err := t.refresh(ctx)
	if errors.Is(err, context.Canceled) {
		if t.abandoned++; t.abandoned == 1 { // one impatient scraper proves nothing about the engine
			return t.silence(scrape.Timeout, time.Since(start))
		}
	} else {
		t.abandoned = 0
	}
	if err != nil {
		if reason := scrape.ReasonOf(err); reason != scrape.Timeout && reason != scrape.Truncated && reason != scrape.ConnectionClosed {
			t.owner, t.isOwned, t.composed = "", false, nil
			t.plan, t.template, t.identities, t.path = nil, nil, nil, "" // the next answer may come from another engine
			t.gone, t.recorded = true, nil
			t.mu.Lock()
			t.command = nil // the next process may have another identity
			t.mu.Unlock()
			t.config.pages.drop(t)
			t.Forget()
		}
		return t.down(err, time.Since(start))
	}
	t.note("", nil)
	return t.up(size, time.Since(start))
}

// refresh reads the metrics page, and first locates it if the engine is new.
func (t *target) refresh(ctx context.Context) (size int, err error) {
	switch {
	case t.path != "":
		return t.use(ctx, t.path)
	case t.At.Page != "":
		t.path = t.At.Page
		return t.use(ctx, t.path)
	}
	return t.locate(ctx)
}

// use reads the metrics page at a path.
func (t *target) use(ctx context.Context, path string) (size int, err error) {
	body, contentType, err := t.fetch(ctx, path)
	if err == nil {
		err = t.read(ctx, path, body, contentType)
	}
	var page *scrape.Error
	if path == scrape.PlainPath && errors.As(err, &page) && page.Reason == scrape.JSONMetrics {
		t.drains = true
	}
	return len(body), err
}

// locate finds the first path that serves an engine's metrics page. Other answers 200, such as the "OK" of a
// catch-all, do not end the search. /metrics is tried last, and never if the engine identifies itself as an engine
// that Drains describes.
func (t *target) locate(ctx context.Context) (size int, err error) {
	paths := t.candidates()
	// the most informative error so far
	var said error = &scrape.StatusError{Code: http.StatusNotFound, Message: "no page at " + strings.Join(paths, ", ")}
	for _, path := range paths {
		if path == scrape.PlainPath && !t.pinned {
			if drains := t.drained(ctx); drains != nil {
				if none := (*scrape.StatusError)(nil); errors.As(said, &none) {
					said = scrape.Errorf(reasonDisabled, "%s (the exporter does not read its %s, because reading would empty it)", drains.Instead,
						scrape.PlainPath)
				}
				break
			}
		}
		size, err := t.use(ctx, path)
		var status *scrape.StatusError
		var page *scrape.Error
		switch {
		case err == nil:
			t.path = path
			return size, nil
		case !errors.As(err, &page) && !errors.As(err, &status):
			return 0, err // unreachable
		case page != nil || status.Code != http.StatusNotFound:
			said = err
		}
	}
	return 0, said
}

// candidates returns the paths at which the metrics page may be.
func (t *target) candidates() []string {
	switch {
	case !t.pinned:
		return pagePaths
	case t.dialects[0].Paths != nil:
		return t.dialects[0].Paths
	}
	return []string{scrape.PlainPath}
}

// drained describes the engine if reading /metrics would take its data away from other readers.
func (t *target) drained(ctx context.Context) *Drains {
	err := t.owned(ctx)
	for _, d := range t.dialects {
		if d.Drains != nil && (t.drains || err == nil && t.owner == d.Drains.Owner) {
			return d.Drains
		}
	}
	return nil
}

// read stores the metrics page's numbers, and compiles a new plan if more than the numbers has changed.
func (t *target) read(ctx context.Context, path string, body []byte, contentType string) error {
	if t.replay(body) && !t.identityDue() && !(t.plan.unproven && time.Since(t.planned) > identityRetry) {
		return nil
	}
	if err := t.config.pages.take(t, body); err != nil {
		return err
	}
	page, err := t.Format.Parse(body, contentType, t.config.Limits)
	if err != nil {
		return err
	}
	dialects, err := t.recognise(ctx, path, page)
	if err != nil {
		return err
	}
	written := scrape.NewTemplate(body, page)
	t.doubt(written)
	for _, d := range dialects {
		t.identify(ctx, d, page)
	}
	identity := func(d *Dialect) Identity { return t.identities[d.Runtime].Identity }
	t.plan, err = compile(page, dialects, &t.labelling, identity, t.config)
	if err != nil {
		return err
	}
	for _, source := range t.plan.unlisted {
		if !slices.Contains(t.unlisted, source) && len(t.unlisted) < mostUnlisted {
			t.unlisted = append(t.unlisted, source)
			t.log.Warn("engine reports outcomes that this exporter does not recognise: such requests count as unknown, neither good nor bad; "+
				"update the exporter", "source", source)
		}
	}
	for _, o := range t.plan.offGrid {
		if !slices.Contains(t.offGrid, o) && len(t.offGrid) < mostUnlisted {
			t.offGrid = append(t.offGrid, o)
			t.log.Warn("objective is not counted: the engine's buckets have no bound near its threshold", "slo", o.slo, "threshold_seconds",
				o.threshold,
				"nearest_bound_below", o.bound, "remedy", dialects[0].buckets())
		}
	}
	t.template, t.planned = written, time.Now()
	t.values = page.Values
	return nil
}

// doubt requests the identity again if an engine's metrics page has lost counters, because another engine may write the
// metrics page now. If a metrics page keeps losing counters, doubt repeats the request only once in identityRetry.
func (t *target) doubt(now *scrape.Template) {
	if t.identities == nil || t.plan == nil || !t.template.Loses(now, t.plan.counter) {
		return
	}
	if time.Since(t.doubted) >= identityRetry {
		t.identities, t.doubted = nil, time.Now()
		return
	}
	for runtime, id := range t.identities {
		if id.retry.IsZero() {
			id.retry = t.doubted.Add(identityRetry)
			t.identities[runtime] = id
		}
	}
}

// replay reads a metrics page that differs from the last one only in its numbers. It returns false for any other metrics page.
func (t *target) replay(body []byte) bool {
	if t.plan == nil || t.template == nil {
		return false
	}
	restarted := false
	same := t.template.Read(body, func(i int, value float64) {
		restarted = restarted || t.plan.counter[i] && value < t.values[i] || value != t.values[i] && slices.Contains(t.plan.start, i)
		t.values[i] = value
	})
	if restarted { // a new process may run a new version, so request its identity again
		t.identities = nil
	}
	return same
}

// recognise finds the dialects that the metrics page speaks.
func (t *target) recognise(ctx context.Context, path string, page *scrape.Page) ([]*Dialect, error) {
	if t.pinned {
		return t.dialects, nil
	}
	if b := bystanderOf(page, true); b != nil {
		return nil, b.err()
	}
	for _, p := range []*scrape.Page{page, page.Promised()} { // before the first request, the page may have no engine series
		var found []*Dialect
		for _, d := range t.dialects {
			if d.speaks(p) {
				found = append(found, d)
			}
		}
		if found = ownPage(found); len(found) > 0 {
			return t.supplemented(found), nil
		}
	}
	if len(page.Values) == 0 {
		for _, d := range t.dialects {
			if d.Silent != nil && d.Silent(t.identify(ctx, d, page)) {
				return []*Dialect{d}, nil
			}
		}
		return nil, scrape.Errorf(reasonEmpty,
			"%s%s has no series: name the engine in the configuration if it has no series until its first request", t.server, path)
	}
	if b := bystanderOf(page, false); b != nil {
		return nil, b.err()
	}
	return nil, scrape.Errorf(reasonUnknown,
		"no known engine has these metrics (%s): name the engine in the configuration, or describe it under mappings",
		page.Names())
}

// supplemented merges a dialect that only accompanies an engine's own dialect into the latter.
func (t *target) supplemented(found []*Dialect) []*Dialect {
	engines := slices.DeleteFunc(slices.Clone(found), func(d *Dialect) bool { return d.Supplement })
	if len(engines) == 0 || len(engines) == len(found) {
		return found
	}
	first := *engines[0]
	for _, d := range found {
		if d.Supplement {
			first.Rows = slices.Concat(first.Rows, d.Rows)
			first.Labels = slices.Concat(first.Labels, d.Labels)
			if d.Server != nil { // requests reach the engine through it
				first.Server = d.Server
			}
		}
	}
	engines[0] = &first
	return engines
}

// identify requests the engine's identity, once per start, and the settings of models that are new on the metrics page.
func (t *target) identify(ctx context.Context, d *Dialect, page *scrape.Page) Identity {
	known, asked := t.identities[d.Runtime]
	again := asked && (known.retry.IsZero() || time.Now().Before(known.retry)) && !t.outdated(known)
	if d.Identify == nil && d.Chains == nil || again && !(known.retry.IsZero() && (d.unchained(page, known.Chains) ||
		d.unshown(page, known.shown))) {
		return known.Identity
	}
	if deadline, ok := ctx.Deadline(); ok { // leave time for the metrics page itself
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	var id Identity
	var err error
	get := remembering(t.get(d))
	if d.Identify != nil {
		id, err = d.Identify(ctx, get)
	}
	id.shown = d.models(page)
	err = errors.Join(err, id.askSettings(ctx, d, get, t.show))
	if err != nil && t.outdated(known) { // as far as is known, its earlier answers are still valid
		known.asked = time.Now()
		t.identities[d.Runtime] = known
		return known.Identity
	}
	if d.Chains != nil {
		id.Chains = known.Chains
		if chains, failed := t.chains(ctx, d, page); failed == nil {
			id.Chains = chains
		} else {
			err = errors.Join(err, failed)
		}
	}
	for _, name := range []*string{&id.Model, &id.Owner, &id.Version} {
		if *name = printable(*name); len(*name) > t.config.Limits.LabelValueBytes {
			*name = ""
		}
	}
	id.Locked = locked(err)
	answer := identified{Identity: id, asked: time.Now()}
	if err != nil {
		answer.retry = time.Now().Add(identityRetry)
		t.log.Debug("engine did not answer all of its metadata endpoints", "err", err)
	}
	if t.identities == nil {
		t.identities = map[metrics.Runtime]identified{}
	}
	t.identities[d.Runtime] = answer
	return id
}

// locked reports whether one of several queried endpoints requires a key.
func locked(err error) bool {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		return slices.ContainsFunc(several.Unwrap(), locked)
	}
	var one *scrape.StatusError
	return errors.As(err, &one) && (one.Code == http.StatusUnauthorized || one.Code == http.StatusForbidden)
}

// identityDue reports whether an endpoint should be queried before this metrics page is mapped.
func (t *target) identityDue() bool {
	if t.identities == nil {
		return t.plan.identifiable
	}
	for _, id := range t.identities {
		if !id.retry.IsZero() && time.Now().After(id.retry) || t.outdated(id) {
			return true
		}
	}
	return false
}

// snapshot holds one scrape's contribution to the exposition: blocks of lines, one block per family.
type snapshot struct {
	lines  []valued
	blocks []block
	failed bool

	effective  []effective // thresholds of objectives
	maintained float64     // when the maintenance of all its engines ends, in unix time; 0 if any engine is not in maintenance
}

// valued is a line of the exposition that is not yet written, because the text of all engines would take megabytes per scrape.
type valued struct {
	series, le string // see line
	value      float64
}

type block struct {
	family     *metrics.Family
	start, end int // of lines
}

// append adds a line and opens a new block when the family changes.
func (s *snapshot) append(f *metrics.Family, series string, value float64) {
	if n := len(s.blocks); n == 0 || s.blocks[n-1].family != f {
		s.blocks = append(s.blocks, block{family: f, start: len(s.lines)})
	}
	s.lines = append(s.lines, valued{series: series, value: value})
	s.blocks[len(s.blocks)-1].end = len(s.lines)
}

// up returns the snapshot of a successful scrape.
func (t *target) up(size int, took time.Duration) *snapshot {
	s := &snapshot{lines: make([]valued, 0, t.plan.size), blocks: make([]block, 0, 64), effective: t.plan.effective}
	t.values = t.config.Ledger.tally(t.url, t.config.Now(), t.plan, t.values)
	for i := range t.plan.sources {
		t.plan.sources[i].yields, t.plan.sources[i].absurd = false, false
	}
	restarts := t.text(metrics.EngineRestarts.Name, "")
	lost := t.config.Ledger.lost(restarts) // before this reading, so that the loss is a step between two readings of the next process
	for i := range t.plan.lines {
		l := &t.plan.lines[i]
		v := t.pool(l, l.eval(t.values))
		for _, series := range l.lost {
			v += lost[series]
		}
		absurd := !math.IsNaN(v) && !l.family.Plausible(v)
		for _, place := range l.from {
			source := &t.plan.sources[place]
			source.absurd = source.absurd || absurd
			source.yields = source.yields || !absurd && !math.IsNaN(v)
		}
		switch {
		case absurd || math.IsNaN(v):
		case l.unless != nil && t.isProbed(*l.unless):
			if l.instead != "" {
				s.append(l.family, l.instead, 1)
			}
		default:
			s.append(l.family, l.text, v)
			s.lines[len(s.lines)-1].le = l.le
		}
	}
	t.answer(s)
	t.observe(s)
	s.append(metrics.EngineRestarts, restarts,
		t.config.Ledger.lived(restarts, t.plan.start.value(t.values), t.counters, t.inside(), t.config.Now()))
	t.losses(s, restarts)
	t.serving(s)
	t.configure(s)
	t.forecast(s)
	runtime := t.plan.runtime
	reason, up := t.plan.lacks(t.values)
	s.append(metrics.EngineUp, t.text(metrics.EngineUp.Name, runtime, metrics.Label{Name: metrics.LabelReason, Value: reason}),
		metrics.Bool(up))
	s.append(metrics.EngineScrapeDuration, t.text(metrics.EngineScrapeDuration.Name, runtime), took.Seconds())
	s.append(metrics.EngineScrapeSize, t.text(metrics.EngineScrapeSize.Name, runtime), float64(size))
	s.append(metrics.EngineScrapeSeries, t.text(metrics.EngineScrapeSeries.Name, runtime), float64(t.plan.series))
	for _, a := range slices.SortedFunc(maps.Keys(t.missed), func(a, b absent) int {
		return strings.Compare(a.metric+a.source,
			b.metric+b.source)
	}) {
		s.append(metrics.SourceMissing, t.text(metrics.SourceMissing.Name, a.runtime,
			metrics.Label{Name: metrics.LabelMetric, Value: a.metric}, metrics.Label{Name: metrics.LabelSource, Value: a.source}), t.missed[a])
	}
	t.maintenance(s)
	t.plan.size = max(t.plan.size, len(s.lines))
	return s
}

// counters yields, by their series, the counters of the metrics page's units that fall only when a process restarts.
func (t *target) counters(yield func(string, float64) bool) {
	for i := range t.plan.units {
		for j := range t.plan.units[i].moves {
			l := &t.plan.units[i].moves[j]
			if v := l.eval(t.values); t.plan.accrues(l) && !math.IsNaN(v) && !yield(l.series(), v) {
				return
			}
		}
	}
}

// losses adds the requests that were lost with the processes of the metrics endpoint.
func (t *target) losses(s *snapshot, restarts string) {
	lost := t.config.Ledger.lost(restarts)
	for _, series := range slices.Sorted(maps.Keys(lost)) {
		s.append(metrics.RequestsLost, series, lost[series])
	}
}

// serving reports when the models on the metrics page that are not served now were last served.
func (t *target) serving(s *snapshot) {
	now, served := t.config.Now(), make(map[string]time.Time, len(t.plan.models))
	for i := range t.plan.models {
		m := &t.plan.models[i]
		if served[m.last] = now; m.now(t.values) {
			continue
		}
		if at, known := t.served[m.last]; known {
			served[m.last] = at
		}
		s.append(metrics.EngineLastServed, m.last, float64(served[m.last].UnixMilli())/1000)
	}
	t.mu.Lock()
	t.served = served
	t.mu.Unlock()
}

// pooled is the last value of a line about a pool of names, and the value of names that have left.
type pooled struct{ value, left float64 }

// pool keeps the line from falling when one of its names turns out to be a model, because Prometheus would interpret a
// fall as a restart.
func (t *target) pool(l *line, v float64) float64 {
	if !l.isPool || math.IsNaN(v) {
		return v
	}
	p := t.pooled[l.series()]
	if v += p.left; v < p.value {
		p.left += p.value - v
		v = p.value
	}
	if p.value = v; t.pooled == nil {
		t.pooled = map[string]pooled{}
	}
	t.pooled[l.series()] = p
	return v
}

// answer adds the series that report where each quantity comes from in this scrape, or why it has no source, and counts
// missing sources.
func (t *target) answer(s *snapshot) {
	serving := t.plan.serving(t.values)
	for i := range t.plan.answers {
		a := &t.plan.answers[i]
		yields, absurd := false, false
		for _, place := range a.sources {
			source := &t.plan.sources[place]
			absurd = absurd || source.absurd
			if source.yields {
				yields = true
				s.append(metrics.MetricSourceInfo, source.text, 1)
			}
		}
		for _, of := range a.silent {
			if !slices.ContainsFunc(of.terms, func(one term) bool { return one.value(t.values) != 0 }) {
				s.append(metrics.MetricSourceInfo, of.text, 1)
			}
		}
		switch {
		case absurd:
			t.lacks(a)
			if !yields {
				s.append(metrics.MetricSourceInfo, a.absurd, 1)
			}
		case yields:
		case a.idle != "" && !serving:
			s.append(metrics.MetricSourceInfo, a.idle, 1)
		default:
			s.append(metrics.MetricSourceInfo, a.missing, 1)
			if len(a.sources) == 0 && a.lacks != nil {
				t.lacks(a)
			}
		}
	}
}

// lacks counts a scrape without an expected source.
func (t *target) lacks(a *answer) {
	if t.missed == nil {
		t.missed = map[absent]float64{}
	}
	if t.missed[*a.lacks]++; t.missed[*a.lacks] == 1 {
		t.log.Warn("engine lacks a metric that its version should have", "metric", a.lacks.metric, "lacks", a.lacks.source, "why", a.why)
	}
}

// down renders a failed scrape. down reports nothing else about the engine, because old numbers would be wrong.
func (t *target) down(err error, took time.Duration) *snapshot {
	reason := scrape.ReasonOf(err)
	t.note(reason, err)
	return t.silence(reason, took)
}

// silence returns the snapshot of a scrape without a metrics page: the engine is gone, and its earlier models still
// have series.
func (t *target) silence(reason string, took time.Duration) *snapshot {
	t.mu.Lock()
	runtime, served := t.known.Runtime, t.served
	t.mu.Unlock()
	s := &snapshot{failed: true}
	s.append(metrics.EngineUp, t.text(metrics.EngineUp.Name, runtime, metrics.Label{Name: metrics.LabelReason, Value: reason}), 0)
	for _, last := range slices.Sorted(maps.Keys(served)) {
		s.append(metrics.EngineLastServed, last, float64(served[last].UnixMilli())/1000)
	}
	t.changesTo(s)
	restarts := t.text(metrics.EngineRestarts.Name, "")
	if n, known := t.config.Ledger.restarts(restarts, t.config.Now()); known {
		s.append(metrics.EngineRestarts, restarts, n)
	}
	t.losses(s, restarts)
	s.append(metrics.EngineScrapeDuration, t.text(metrics.EngineScrapeDuration.Name, runtime), took.Seconds())
	t.maintenance(s)
	return s
}

// note logs the state of the target when it changes.
func (t *target) note(reason string, err error) {
	t.mu.Lock()
	changed := t.reason != reason
	t.reason, t.detail = reason, ""
	if err != nil {
		t.detail = err.Error()
	} else {
		lacks, _ := t.plan.lacks(t.values)
		t.known = Engine{
			Runtime: t.plan.runtime, role: t.plan.role, Model: t.plan.model, Version: t.plan.version, Lacks: lacks,
			Sleeping: t.plan.sleeping(t.values),
		}
		t.declared, t.uncounted, t.whole, t.offers = t.plan.declared, t.plan.uncounted, t.plan.whole, t.plan.offers
	}
	t.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		t.log.Warn("engine's metrics cannot be used", "reason", reason, "err", err)
	default:
		t.log.Info("engine's metrics are used", "path", t.path, "runtime", t.plan.runtime, "lines", len(t.plan.lines))
	}
}
