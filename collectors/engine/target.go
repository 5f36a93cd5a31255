package engine

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// identityRetry is the pause before the exporter repeats a query of metadata endpoints that did not answer.
const identityRetry = time.Minute

// target is one engine's metrics page, and the exporter's knowledge of the engine. After a restart, the exporter learns
// all of this from the engine again.
type target struct {
	scrape.Fetcher
	labelling
	url      string        // for logs; never contains credentials
	timeout  time.Duration // limit for one scrape
	config   *settings
	from     TargetConfig
	dialects []*Dialect // all known dialects, or only the configured dialect
	pinned   bool       // the configuration names the dialect
	log      *slog.Logger

	mu       sync.Mutex
	flight   *flight
	reason   string     // last logged reason, so that only changes are logged
	detail   string     // last error
	known    Engine     // from the last usable metrics page
	declared []declared // maintenance, from the same metrics page
	command  []stated   // settings on the command line of the engine's process; replaced, never changed
	image    string     // image of its container
	changed  []string   // series of llm_engine_config_changed_timestamp_seconds
	changes  []Change   // the same changes, for people
	changeAt []float64
	// served maps series of llm_engine_last_served_timestamp_seconds to the times when their models were last seen.
	served map[string]time.Time
	// These come from the same metrics page, for probes: the objectives that it does not count, and its engine's labels.
	uncounted []uncounted
	whole     [outLabels]string
	offers    []Offer // nil until the first usable metrics page

	run        chan struct{} // contains a token while a scrape runs; guards the fields below
	abandoned  int           // consecutive scrapes that no caller waited for to the end
	path       string
	owner      string // owner of the models in the engine's list, when the list has been read
	isOwned    bool
	composed   []byte // last composed metrics page
	drains     bool   // /metrics is a list that reading empties
	plan       *plan
	template   *scrape.Template
	values     []float64 // by index of the series on the metrics page
	identities map[metrics.Runtime]identified
	doubted    time.Time // time of the last repeated query of the identities
	missed     map[absent]float64
	offGrid    []offGrid           // objectives that have been logged as off the grid
	unlisted   []string            // outcomes that have been logged as unknown
	pasts      map[string]*past    // of the units, by their series
	gone       bool                // the engine did not answer
	back       time.Time           // when the engine was read again; if it does not report its start, when it was first read
	planned    time.Time           // when the plan was made
	pooled     map[string]pooled   // by series
	recorded   *recorded           // settings of the engines on the metrics page
	learners   map[string]*learner // of the units, by a series
}

type identified struct {
	Identity
	retry time.Time // zero when all endpoints have answered
	asked time.Time
}

// flight is one scrape. All scrapers that arrive while it runs share it.
type flight struct {
	done    chan struct{}
	result  *snapshot
	waiting int
	cancel  context.CancelFunc
}

// scrape returns a fresh snapshot of the engine. If a scrape is already running, callers share it. If a caller leaves
// early, the scrape continues for other callers. If no caller is left, the scrape ends.
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
	return t.silence(scrape.Timeout, 0) // timeout of the scraper that leaves; the scrape itself reports the state of the engine
}

// collect runs one scrape.
func (t *target) collect(ctx context.Context) *snapshot {
	start := time.Now()
	select {
	case t.run <- struct{}{}:
		defer func() { <-t.run }()
	case <-ctx.Done(): // it waited for a scrape that does not end; that scrape's report remains valid
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

// refresh reads the metrics page. If the engine is new, it locates the page first.
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

// locate finds the first path that serves an engine's metrics page. Other answers with status 200, such as the "OK" of
// a catch-all, do not end the search. /metrics comes last. It is never tried if the engine identifies itself as an
// engine that Drains describes.
func (t *target) locate(ctx context.Context) (size int, err error) {
	paths := t.candidates()
	// This is the most informative error so far.
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

// candidates returns the paths that may serve the metrics page.
func (t *target) candidates() []string {
	switch {
	case !t.pinned:
		return pagePaths
	case t.dialects[0].Paths != nil:
		return t.dialects[0].Paths
	}
	return []string{scrape.PlainPath}
}

// drained describes the engine, if reading /metrics would take data away from other readers.
func (t *target) drained(ctx context.Context) *Drains {
	err := t.owned(ctx)
	for _, d := range t.dialects {
		if d.Drains != nil && (t.drains || err == nil && t.owner == d.Drains.Owner) {
			return d.Drains
		}
	}
	return nil
}

// read stores the metrics page's numbers. If more than the numbers has changed, it compiles a new plan.
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

// recognise finds the dialects of a metrics page.
func (t *target) recognise(ctx context.Context, path string, page *scrape.Page) ([]*Dialect, error) {
	if t.pinned {
		return t.dialects, nil
	}
	if b := bystanderOf(page, true); b != nil {
		return nil, b.err()
	}
	for _, p := range []*scrape.Page{page, page.Promised()} { // before the first request, there may be no series of engines
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

// supplemented merges a supplement, which accompanies an engine's own dialect, into the dialect of the engine.
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
			if d.Server != nil { // requests reach the engine through this server
				first.Server = d.Server
			}
		}
	}
	engines[0] = &first
	return engines
}

// identify requests the engine's identity, once per start. It also requests the settings of new models on the metrics page.
func (t *target) identify(ctx context.Context, d *Dialect, page *scrape.Page) Identity {
	known, asked := t.identities[d.Runtime]
	again := asked && (known.retry.IsZero() || time.Now().Before(known.retry)) && !t.outdated(known)
	if d.Identify == nil && d.Chains == nil || again && !(known.retry.IsZero() && (d.unchained(page, known.Chains) ||
		d.unshown(page, known.shown))) {
		return known.Identity
	}
	if deadline, ok := ctx.Deadline(); ok { // leaves time for the metrics page itself
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
	if err != nil && t.outdated(known) { // the earlier answers are still valid, as far as is known
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
