// Package probe sends synthetic requests to inference engines, and measures the answers from the client's side. It sends no requests unless
// a probe is configured.
//
//	config    the requests, their interval and their budget            config.go
//	api       how an API is called, and what its messages mean         api.go
//	request   one request, and when the parts of its answer arrived    request.go, stream.go
//	probe     when to send a request and when not, and the series      probe.go, budget.go, ollama.go
//	engines   probes of discovered engines                             engines.go
package probe

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// These are the reasons why a request is not sent.
const (
	skipAsleep    = "asleep"
	skipNotLoaded = "not_loaded"
	skipUnused    = "unused"
	skipDown      = "down"
	skipBudget    = "budget"
	skipExhausted = "exporter_exhausted"
)

// maxReleases limits the number of releases whose answers are kept.
const maxReleases = 16

// state holds the state of a probe. One goroutine uses it at a time.
type state struct {
	assumed int // tokens of a prompt from the last answer; an estimate before the first answer
	*budget
	first   map[string][sha256.Size]byte // first answer of each release
	expires string                       // when Ollama will unload the model, after the last probe
	last    metrics.ProbeOutcome         // logged only when it changes
	failed  int                          // number of consecutive failures
	confirm bool                         // the last request failed, and the request before it did not
	seen    *engine.Probed
	answers bool // at least one answer was complete
	waits
	refused bool // an engine that was found has refused all requests
}

// cost returns the largest cost of one request, in tokens.
func (p *Probe) cost() int { return p.assumed + p.cfg.MaxTokens }

// Collector sends the requests of probes and exports their results.
type Collector struct {
	look    func(ctx context.Context, at engine.Offer) (engine.Engine, bool)
	log     *slog.Logger
	changed chan struct{} // signals a change of wanted or offers

	firstByte, firstToken, firstVisible, interToken, duration, connection *prometheus.HistogramVec
	requests, skipped, buffered, tokens                                   *prometheus.CounterVec
	budget, matches, failures, health, engineAsked, queueing, recent      *prometheus.GaugeVec

	mu     sync.Mutex
	wanted []*Probe       // configured probes
	offers []engine.Offer // models of the node's engines
	inUse  []*Probe
	asked  time.Time // time when a failure last triggered the other probes
}

// New makes a collector. look returns the engine at an address, if the exporter reads that engine.
func New(look func(ctx context.Context, at engine.Offer) (engine.Engine, bool), log *slog.Logger) *Collector {
	grid := slo.Grids()[metrics.VLLM]
	histogram := func(f *metrics.Family, bounds []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: bounds}, f.Labels)
	}
	counter := func(f *metrics.Family) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
	}
	gauge := func(f *metrics.Family) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.Labels)
	}
	return &Collector{
		look: look, log: log, changed: make(chan struct{}, 1),
		firstByte: histogram(metrics.ProbeTimeToFirstByte, grid[slo.TTFT]), firstToken: histogram(metrics.ProbeTimeToFirstToken, grid[slo.TTFT]),
		firstVisible: histogram(metrics.ProbeTimeToFirstVisibleToken, grid[slo.TTFT]), interToken: histogram(metrics.ProbeInterTokenLatency,
			grid[slo.ITL]),
		duration: histogram(metrics.ProbeRequestDuration, grid[slo.RequestDuration]), connection: histogram(metrics.ProbeConnection,
			grid[slo.TTFT]),
		requests: counter(metrics.ProbeRequests), skipped: counter(metrics.ProbeSkipped), buffered: counter(metrics.ProbeBuffered),
		tokens: counter(metrics.ProbeTokens),
		budget: gauge(metrics.ProbeBudget), matches: gauge(metrics.ProbeAnswerMatches), failures: gauge(metrics.ProbeFailures),
		health: gauge(metrics.ProbeHealth), engineAsked: gauge(metrics.ProbeEngineAsked), queueing: gauge(metrics.ProbeQueueing),
		recent: gauge(metrics.ProbeRecentFirstToken),
	}
}

// vec has the methods that all families share.
type vec interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

func (c *Collector) vecs() []vec {
	return []vec{
		c.firstByte, c.firstToken, c.firstVisible, c.interToken, c.duration, c.connection, c.requests, c.skipped, c.buffered,
		c.tokens, c.budget, c.matches, c.failures, c.health, c.engineAsked, c.queueing, c.recent,
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range c.vecs() {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, v := range c.vecs() {
		v.Collect(ch)
	}
}

// Use replaces the probes in use. A probe with an unchanged configuration continues.
func (c *Collector) Use(probes []*Probe) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range probes {
		if i := slices.IndexFunc(c.wanted, func(before *Probe) bool {
			return before.cfg.Engines &&
				slices.Equal(before.labels(), p.labels())
		}); i >= 0 {
			p.budget = c.wanted[i].budget
		}
	}
	c.wanted = probes
	c.change()
}

// change makes Run compare the configured probes and the offered models with the running probes.
func (c *Collector) change() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// running is a probe that runs.
type running struct {
	*Probe
	stop func() // stops the probe, and waits for its end
}

// Run sends requests until ctx is done.
func (c *Collector) Run(ctx context.Context) {
	var all []running
	for {
		select {
		case <-ctx.Done():
			for _, r := range all {
				r.stop()
			}
			return
		case <-c.changed:
			all = c.replace(ctx, all, c.expand(all))
		}
	}
}

// replace stops probes that are gone, keeps probes with the same configuration, and starts all others. If a probe's
// labels stay the same, its series and spent budget continue.
func (c *Collector) replace(ctx context.Context, before []running, probes []*Probe) (after []running) {
	for _, p := range probes {
		if i := slices.IndexFunc(before, func(r running) bool { return r.same(p) }); i >= 0 {
			after = append(after, before[i])
		}
	}
	for _, r := range before {
		if slices.ContainsFunc(after, func(a running) bool { return a.Probe == r.Probe }) {
			continue
		}
		r.stop()
		i := slices.IndexFunc(probes, func(p *Probe) bool { return slices.Equal(p.labels(), r.labels()) })
		if i >= 0 {
			probes[i].seen = r.seen
			if !r.cfg.Engines { // the probes of engines share a budget
				probes[i].budget = r.budget
			}
			continue
		}
		for _, v := range c.vecs() {
			v.DeletePartialMatch(r.identity())
		}
	}
	for _, p := range probes {
		if !slices.ContainsFunc(after, func(a running) bool { return a.same(p) }) {
			after = append(after, running{p, c.start(ctx, p)})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inUse = nil
	for _, a := range after {
		if a.at.Declined == "" {
			c.inUse = append(c.inUse, a.Probe)
			c.budget.WithLabelValues(a.labels()...).Set(float64(a.cfg.TokensPerHour) / float64(a.shared()))
		}
	}
	return after
}

// same reports whether another probe sends the same request in the same way.
func (p *Probe) same(other *Probe) bool {
	return reflect.DeepEqual(p.cfg, other.cfg) && p.interval == other.interval && reflect.DeepEqual(p.at, other.at)
}

// start runs a probe on its own goroutine.
func (c *Collector) start(ctx context.Context, p *Probe) (stop func()) {
	if p.cfg.Engines {
		c.engine(p, p.at.Declined)
	}
	if p.at.Declined != "" {
		return func() {}
	}
	c.announce(p)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		wait := time.Duration(rand.Int64N(int64(p.interval))) // spreads the first requests after a restart
		for {
			hurry := p.hurry
			if p.refused {
				hurry = nil
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			case <-hurry:
			}
			start := time.Now()
			c.once(ctx, p, start)
			wait = p.pause(time.Since(start), rand.Float64())
			for _, other := range c.witnesses(p, time.Now()) {
				select {
				case other.hurry <- struct{}{}:
				default:
				}
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// witnesses returns the other probes, which send a request at once after a first failure. If their requests fail in the same way before the
// failure is confirmed, the exporter's own network is at fault. Witnesses are used at most once a minute.
func (c *Collector) witnesses(p *Probe, now time.Time) []*Probe {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.confirm || now.Sub(c.asked) < DefaultInterval {
		return nil
	}
	c.asked = now
	return slices.DeleteFunc(slices.Clone(c.inUse), func(other *Probe) bool { return other == p })
}

// pause returns the time until the next request. One more request confirms a failure. It is sent confirmAfter after the
// failed request began, and shortly after the requests of the witnesses. So a hanging model is detected after interval
// + 10% + two timeouts: see rules.ProbeFailing.
func (p *Probe) pause(took time.Duration, random float64) time.Duration {
	if p.confirm {
		return max(time.Second, confirmAfter-took)
	}
	if p.refused {
		return refusedFor
	}
	return time.Duration(float64(p.pace()) * (0.9 + 0.2*random))
}

// Probed returns the results of the probes in use, for objectives.
func (c *Collector) Probed() []*engine.Probed {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make([]*engine.Probed, 0, len(c.inUse))
	for _, p := range c.inUse {
		seen = append(seen, p.seen)
	}
	return seen
}

// announce creates the series, so that they count from zero.
func (c *Collector) announce(p *Probe) {
	l := p.labels()
	for _, o := range metrics.ProbeOutcomes {
		c.requests.WithLabelValues(append(l, string(o))...)
	}
	for _, reason := range []string{skipAsleep, skipNotLoaded, skipUnused, skipDown, skipBudget} {
		if reason == skipDown && !p.cfg.Engines {
			continue
		}
		c.skipped.WithLabelValues(append(l, reason)...)
	}
	c.buffered.WithLabelValues(l...)
	c.budget.WithLabelValues(l...).Set(float64(p.cfg.TokensPerHour))
	c.failures.WithLabelValues(l...).Set(0)
}

// once sends one request, unless there is a reason not to send it. start is the time when the request began.
func (c *Collector) once(ctx context.Context, p *Probe, start time.Time) {
	known, reserved, reason := c.reserve(ctx, p)
	p.confirm = false
	if reason != "" {
		if reason != skipBudget {
			c.fails(p, false)
		}
		c.skipped.WithLabelValues(append(p.labels(), reason)...).Inc()
		return
	}
	if p.cfg.Health != "" {
		c.health.WithLabelValues(p.labels()...).Set(metrics.Bool(p.healthy(ctx)))
	}
	r, err := p.ask(ctx, start)
	p.settle(reserved, c.charge(p, &r))
	if ctx.Err() != nil {
		return // the exporter itself ended the request
	}
	if p.cfg.API == "ollama" {
		p.expires, _ = p.loaded(ctx)
	}
	if scrape.Exhausted(err) { // this process is at fault, not the engine
		c.skipped.WithLabelValues(append(p.labels(), skipExhausted)...).Inc()
		c.log.Error("probe not sent: the exporter has run out of file descriptors, ports or memory", "server", p.labels()[2], "err", err)
		return
	}
	c.compare(p, &r, known.Version)
	c.observe(p, &r, known.Reason == "", known.Gone(), time.Now())
	c.judge(p, &r)
	if p.last != r.outcome {
		p.last = r.outcome
		level := slog.LevelWarn
		if r.outcome == metrics.ProbeOK {
			level = slog.LevelInfo
		}
		c.log.Log(ctx, level, "probe", "outcome", r.outcome, "server", p.labels()[2], "model", p.cfg.Model, "err", err)
	}
}

// reserve takes the largest cost of a request from the budget. If no request may be sent now, it returns the reason.
func (c *Collector) reserve(ctx context.Context, p *Probe) (known engine.Engine, reserved *charge, reason string) {
	if reserved = p.take(p.cost(), p.cfg.TokensPerHour); reserved == nil {
		return known, nil, skipBudget
	}
	if known, reason = c.reason(ctx, p); reason != "" {
		p.settle(reserved, 0)
	}
	return known, reserved, reason
}

// reason returns why no request may be sent now, or an empty string.
func (c *Collector) reason(ctx context.Context, p *Probe) (known engine.Engine, reason string) {
	ctx, cancel := context.WithTimeout(ctx, engine.DefaultTimeout)
	defer cancel()
	known, read := c.look(ctx, p.at)
	switch {
	case read && known.Sleeping:
		return known, skipAsleep
	case p.cfg.Engines && (!read || known.Reason != ""): // the engine may be scaled to zero, or its address may belong to another engine now
		return known, skipDown
	}
	if p.cfg.API == "ollama" {
		switch expires, err := p.loaded(ctx); {
		case errors.Is(err, errNotLoaded):
			return known, skipNotLoaded
		case err == nil && expires == p.expires && !forever(expires):
			return known, skipUnused
		}
	}
	return known, ""
}

// charge returns the cost of a request, and exports it.
func (c *Collector) charge(p *Probe, r *result) int {
	prompt, completion, assumed := r.prompt, r.completion, 0
	switch {
	case r.connected == 0 || r.outcome == metrics.ProbeClientError || r.outcome == metrics.ProbeRateLimited: // no token was generated
		return 0
	case prompt == 0:
		assumed = p.assumed
	default:
		p.assumed = min(prompt, p.cfg.TokensPerHour-p.cfg.MaxTokens) // limited, so that a wrong number blocks the probe for at most an hour
	}
	if completion == 0 {
		assumed += p.cfg.MaxTokens
	}
	for kind, n := range map[string]int{"prompt": prompt, "completion": completion, "assumed": assumed} {
		c.tokens.WithLabelValues(append(p.labels(), kind)...).Add(float64(n))
	}
	return prompt + completion + assumed
}

// compare records whether a complete answer equals the first answer from this release.
func (c *Collector) compare(p *Probe, r *result, release string) {
	if r.outcome != metrics.ProbeOK || p.cfg.Nonce {
		return
	}
	first, seen := p.first[release]
	switch {
	case !seen && len(p.first) == maxReleases, p.first == nil:
		p.first = map[string][sha256.Size]byte{}
		fallthrough
	case !seen:
		p.first[release], first = r.answer, r.answer
	}
	matches := 1.0
	if first != r.answer {
		matches, r.outcome = 0, metrics.ProbeWrongAnswer
	}
	c.matches.DeletePartialMatch(p.identity()) // this series is about another release's answer
	c.matches.WithLabelValues(append(p.labels(), release)...).Set(matches)
}

// fails counts consecutive failures.
func (c *Collector) fails(p *Probe, failed bool) {
	p.failed++
	if !failed {
		p.failed = 0
	}
	p.confirm = p.failed == 1
	c.failures.WithLabelValues(p.labels()...).Set(float64(p.failed))
}

// observe exports the result that a client saw. up reports whether the engine's metrics endpoint answered, if one is
// read. gone means that the engine has disappeared, so its failures do not count as a hang.
func (c *Collector) observe(p *Probe, r *result, up, gone bool, now time.Time) {
	l := p.labels()
	c.requests.WithLabelValues(append(l, string(r.outcome))...).Inc()
	_, bad := slo.JudgeProbe(r.outcome)
	c.fails(p, bad && !gone)
	p.seen.Ended(r.outcome, up)
	for phase, took := range r.phases {
		c.connection.WithLabelValues(append(l, phase)...).Observe(took.Seconds())
	}
	since := func(v *prometheus.HistogramVec, instant time.Duration) {
		if instant > 0 && r.connected > 0 {
			v.WithLabelValues(l...).Observe((instant - r.connected).Seconds())
		}
	}
	if r.whole() || r.messages > 0 { // a refusal takes too short a time to count
		since(c.firstByte, r.firstByte)
	}
	if r.whole() {
		since(c.duration, r.end)
	}
	if r.held {
		if r.whole() {
			c.buffered.WithLabelValues(l...).Inc()
		}
		return // the time of the first token is unknown
	}
	since(c.firstToken, r.token)
	since(c.firstVisible, r.visible)
	if r.outcome == metrics.ProbeTimeout && r.connected > 0 && r.token == 0 {
		p.seen.Waited(slo.ProbeTTFT, p.timeout.Seconds())
	}
	if r.token > 0 {
		p.seen.Took(slo.ProbeTTFT, (r.token - r.connected).Seconds())
	}
	gaps := r.gaps()
	if !r.whole() || len(gaps) == 0 {
		return
	}
	sum := 0.
	for _, gap := range gaps {
		c.interToken.WithLabelValues(l...).Observe(gap)
		sum += gap
	}
	gap := sum / float64(len(gaps))
	p.seen.Took(slo.ProbeITL, gap) // a request is one event, however many tokens it has
	first, waited, known := p.waited(now, (r.token - r.connected).Seconds(), gap)
	c.recent.WithLabelValues(l...).Set(first)
	if known {
		c.queueing.WithLabelValues(l...).Set(waited)
	}
}

// healthy reports whether the health endpoint answers that the engine is healthy.
func (p *Probe) healthy(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, engine.DefaultTimeout)
	defer cancel()
	resp, err := p.get(ctx, p.cfg.Health)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode/100 == 2
}

// get sends a GET on its own connection.
func (p *Probe) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address(path), nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	req.Header.Set("User-Agent", p.userAgent)
	return p.client.Do(req)
}

// forever reports whether Ollama keeps a model permanently. Ollama then reports an end in another century.
func forever(expires string) bool { return expires != "" && !strings.HasPrefix(expires, "20") }
