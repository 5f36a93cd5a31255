package engine

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// A hanging scheduler no longer writes its gauges, so they show the requests of its last step, or nothing. The HTTP
// server in front of the scheduler still counts. This file compiles what a metrics page shows about work and progress.
// stall.go keeps the readings.

// Server names the metrics that show the requests in the HTTP server in front of the engine, or in a worker's endpoint.
// The engine's own gauges may not show these requests. Metrics of the whole server count only if the server has a
// single model.
type Server struct {
	// Lacks explains why the metrics page reports nothing about its server. Otherwise it is empty.
	Lacks string
	// Active is a gauge of the requests that the server has not answered yet. The scheduler's gauge counts other requests.
	Active Source
	// Files is a gauge of the open files of the server's process. It rises by one with each connection.
	Files Source
	// Answered counts the good answers to requests for tokens. It also counts requests whose client gives up.
	Answered Source
}

// Source names series of a metrics page. If the metrics page has none, its name is empty.
type Source struct {
	Name  string
	Is    scrape.Type
	Where []*labels.Matcher
}

// generates matches the paths at which clients request tokens.
const generates = "/v1/completions|/v1/chat/completions|/v1/messages|/v1/responses|/generate|/inference/v1/generate"

// unit is a part of an engine that works independently: a data-parallel rank, or a model as a whole.
type unit struct {
	key      [outLabels]string
	moves    []line     // counters and gauges that change when the unit makes progress; only gauges may fall
	good     []line     // answers that ended well
	bad      []line     // answers that ended badly
	load     []line     // requests that run or wait, according to the scheduler
	waits    []line     // requests that wait among them
	requests []finished // ended requests, except those refused as invalid, which are not work
	firsts   []line     // requests with a first token
	prompts  prompts
	times    map[*metrics.Family]timing // durations of requests
	steps    bool                       // the engine counts steps
	perStep  bool                       // the engine counts tokens when it generates them
	tokens   bool                       // the engine counts tokens
	cache    bool                       // the engine shows its KV cache
	held     *held                      // what the server counts for this unit alone; nil if it is not on the metrics page
	progress string                     // series of llm_engine_last_progress_timestamp_seconds, which names the unit
	series   map[*metrics.Family]string // series that come from several readings
}

// timing holds the number of requests whose duration is known, and the sum of these durations.
type timing struct{ count, sum []line }

// prompts has the prompt tokens of an engine, and the cached part of them. Tokens may be cached in the prefix cache, in
// a KV connector, or in a tier of the KV cache.
type prompts struct {
	all, own, outside, tiered []line
	within                    bool // own includes the other caches
}

// finished counts requests that ended.
type finished struct {
	line   line
	served bool // ended well, or the client gave up
}

// held has the values that the metrics page shows about the server in front of a model.
type held struct {
	active, files, answered []int // series; nil if there are none
	connections             bool  // the kernel counts the server's connections, because neither requests nor files are on the metrics page
}

// fromKernel is the source of the number of a server's connections: see package proc.
const fromKernel = "/proc/PID/net/tcp"

// server returns the requests in the server for a model, and their source. If there are several models, only series
// with a model's name show this model's requests.
func (c *compiler) server(d *Dialect, of [outLabels]string, sole bool) (h *held, from Source) {
	switch s := d.Server; {
	case s == nil:
		return nil, Source{}
	case sole:
		h = &held{active: c.series(d, s.Active, nil), files: c.series(d, s.Files, nil), answered: c.series(d, s.Answered, nil)}
	default:
		h = &held{active: c.series(d, s.Active, &of)}
	}
	switch {
	case h.active != nil:
		return h, d.Server.Active
	case h.files != nil:
		return h, d.Server.Files
	case sole && d.API != "" && c.config.Connections != nil:
		h.connections = true
		return h, Source{Name: fromKernel}
	case h.answered != nil:
		return h, Source{}
	}
	return nil, Source{}
}

// works adds an output line to the unit that the line describes.
func (c *compiler) works(to *metrics.Family, out [outLabels]string, counted metrics.Counted, l line) {
	if role := out[outRole]; role == metrics.GatewayRole || role == metrics.KVCacheRole {
		return
	}
	key := unitOf(out)
	c.prompts(key, to, l)
	i := slices.IndexFunc(c.working, func(u unit) bool { return u.key == key })
	add := func() *unit {
		if i < 0 {
			i, c.working = len(c.working), append(c.working, unit{key: key})
		}
		return &c.working[i]
	}
	switch to {
	case metrics.RequestsRunning, metrics.RequestsWaiting:
		u := add()
		u.load = append(u.load, l)
		if to == metrics.RequestsWaiting {
			u.waits = append(u.waits, l)
		}
	case metrics.Requests:
		u := add()
		outcome := metrics.Outcome(out[outOutcome])
		event, bad := slo.Judge(outcome)
		if event && !bad {
			u.good, u.moves = append(u.good, l), append(u.moves, l)
		} else {
			u.bad = append(u.bad, l)
		}
		if outcome != metrics.OutcomeInvalid {
			u.requests = append(u.requests, finished{l, event && !bad || outcome == metrics.OutcomeAbort})
		}
	case metrics.EngineSteps, metrics.GenerationTokens, metrics.TimeToFirstToken, metrics.KVCacheUsage:
		u := add()
		u.moves = append(u.moves, l)
		if to == metrics.TimeToFirstToken {
			u.firsts = append(u.firsts, l)
		}
		u.steps = u.steps || to == metrics.EngineSteps
		u.tokens = u.tokens || to == metrics.GenerationTokens
		u.perStep = u.perStep || counted == metrics.CountedStep
		u.cache = u.cache || to == metrics.KVCacheUsage
	}
}

// begun adds to a unit the first tokens of answers that are not streamed. No user waited for these tokens, but their
// requests must not count as ended without a token.
func (c *compiler) begun(d *Dialect, r *Row, out [outLabels]string) {
	i := slices.IndexFunc(c.working, func(u unit) bool { return u.key == unitOf(out) })
	rest := line{family: r.To, text: c.text(r.To.Name+"_count", out) + " not streamed", recipe: plain}
	for _, s := range c.page.Find(r.From, r.Is).Samples {
		if s.Suffix != "count" || matches(s.Labels, r.Where) {
			continue
		}
		if e, err := c.entry(d, &Row{From: r.From}, s, nil); err == nil && sameReplica(e.out, out) {
			rest.terms = append(rest.terms, term{s.Index})
			c.use(term{s.Index}, metrics.Counter)
		}
	}
	if i >= 0 && rest.terms != nil {
		c.working[i].firsts = append(c.working[i].firsts, rest)
	}
}

// prompts adds an output line to the prompts of its unit.
func (c *compiler) prompts(key [outLabels]string, to *metrics.Family, l line) {
	if c.prompted == nil {
		c.prompted = map[[outLabels]string]prompts{}
	}
	p := c.prompted[key]
	switch to {
	case metrics.PromptTokens:
		p.all = append(p.all, l)
	case metrics.PrefixCacheHitTokens:
		p.own = append(p.own, l)
	case metrics.ExternalPrefixCacheHitTokens:
		p.outside = append(p.outside, l)
	case metrics.KVTierHitTokens:
		p.tiered = append(p.tiered, l)
	default:
		return
	}
	c.prompted[key] = p
}

// held returns how many prompt tokens were in caches. Tokens from a tier may also be counted for the KV connector, so
// only the larger of these two numbers counts.
func (p *prompts) held(sum func([]line) float64) float64 {
	own, others := sum(p.own), max(sum(p.outside), sum(p.tiered))
	if p.within {
		return max(own, others)
	}
	return own + others
}

// unitOf returns the labels that identify the unit to which a series belongs.
func unitOf(out [outLabels]string) [outLabels]string {
	for _, name := range metrics.DetailLabels {
		out[outIndex(name)] = ""
	}
	return out
}

// lasts records a duration of a unit's requests.
func (c *compiler) lasts(of *metrics.Family, out [outLabels]string, count, sum line) {
	t := map[*metrics.Family]timing{of: {[]line{count}, []line{sum}}}
	c.durations = append(c.durations, unit{key: unitOf(out), times: t})
}

// took adds durations to a unit's durations.
func (u *unit) took(more map[*metrics.Family]timing) {
	if u.times == nil {
		u.times = map[*metrics.Family]timing{}
	}
	for of, t := range more {
		has := u.times[of]
		u.times[of] = timing{slices.Concat(has.count, t.count), slices.Concat(has.sum, t.sum)}
	}
}

// units completes the units of a dialect. An engine with several ranks also has a unit for all ranks together.
func (c *compiler) units(d *Dialect) []unit {
	for of, p := range c.prompted {
		p.within = d.TiersInHits
		c.prompted[of] = p
	}
	engines := map[[outLabels]string][]unit{}
	var order [][outLabels]string
	for _, d := range c.durations {
		for i := range c.working {
			if u := &c.working[i]; u.key == d.key {
				u.took(d.times)
			}
		}
	}
	for _, u := range c.working {
		key := u.key
		if key[outDPRank] = ""; engines[key] == nil {
			order = append(order, key)
		}
		engines[key] = append(engines[key], u)
	}
	var all []unit
	for _, key := range order {
		parts := engines[key]
		if len(parts) > 1 {
			parts = append(slices.DeleteFunc(slices.Clone(parts), func(u unit) bool { return u.key == key }), together(key, parts))
		}
		for i := range parts {
			c.name(&parts[i], len(parts) > 1 && i == len(parts)-1)
		}
		whole := &parts[len(parts)-1]
		c.nameWhole(whole, key)
		same := func(other [outLabels]string) bool { return other != key && sameReplica(other, key) }
		if sole := len(order) == 1 && c.servesOne(); sole || !slices.ContainsFunc(order, same) {
			h, from := c.server(d, key, sole)
			switch whole.held = h; {
			case from.Name == "":
			case h.active != nil:
				c.plan.inFlight = c.info(d, metrics.RequestsInFlight, from.Name, metrics.Native, "")
			default:
				c.plan.inFlight = c.info(d, metrics.RequestsInFlight, from.Name, metrics.Derived, atLeast)
			}
		}
		all = append(all, parts...)
	}
	return all
}

// name decides which series a unit gets: those for which the metrics page has enough data. The unit may be a rank, or
// the sum of all ranks.
func (c *compiler) name(u *unit, sum bool) {
	u.progress, u.series, u.prompts = c.text(metrics.EngineLastProgress.Name, u.key), map[*metrics.Family]string{}, c.prompted[u.key]
	give := func(has bool, of ...*metrics.Family) {
		for _, f := range of {
			if has {
				u.series[f] = c.text(f.Name, u.key)
			}
		}
	}
	give(true, metrics.RequestsInFlight)
	give(!sum && !c.behind && len(u.load) > len(u.waits), metrics.RequestsLost)
	give(len(u.moves) > 0, metrics.EngineLastProgress)
	give(u.patience() > 0, metrics.EngineStalled, metrics.EngineWithoutProgress, metrics.EngineStandstill)
	give(len(u.waits) > 0 && len(u.good) > 0, metrics.EngineCold)
}

// nameWhole decides in the same way which series a unit gets that all ranks of an engine share.
func (c *compiler) nameWhole(u *unit, key [outLabels]string) {
	timed := func(f *metrics.Family) bool { return len(u.times[f].sum) > 0 }
	u.prompts = prompts{}
	for of, p := range c.prompted {
		if of[outDPRank] = ""; of == key {
			u.prompts = prompts{
				slices.Concat(u.prompts.all, p.all), slices.Concat(u.prompts.own, p.own), slices.Concat(u.prompts.outside, p.outside),
				slices.Concat(u.prompts.tiered, p.tiered), p.within,
			}
		}
	}
	for f, has := range map[*metrics.Family]bool{
		metrics.RequestsArrived:       len(u.requests)+len(u.firsts) > 0,
		metrics.RequestBurst:          len(u.requests)+len(u.firsts) > 0,
		metrics.RequestsWithoutToken:  len(u.requests) > 0 && len(u.firsts) > 0,
		metrics.EngineUnscheduled:     timed(metrics.TimeToFirstToken) && timed(metrics.QueueTime) && timed(metrics.PrefillTime),
		metrics.PrefillComputedTokens: len(u.prompts.all) > 0,
	} {
		if has {
			u.series[f] = c.text(f.Name, key)
		}
	}
}

// atLeast explains a number of requests in flight that comes from connections.
const atLeast = "a lower bound: requests that run or wait or, if more, connections beyond those that were open while the engine made progress"

// together sums up the units of one engine.
func together(key [outLabels]string, parts []unit) unit {
	all := unit{key: key}
	for _, u := range parts {
		all.moves, all.load, all.waits = append(all.moves, u.moves...), append(all.load, u.load...), append(all.waits, u.waits...)
		all.good, all.bad = append(all.good, u.good...), append(all.bad, u.bad...)
		all.requests, all.firsts = append(all.requests, u.requests...), append(all.firsts, u.firsts...)
		all.took(u.times)
		all.steps, all.tokens = all.steps || u.steps, all.tokens || u.tokens
		all.perStep, all.cache = all.perStep || u.perStep, all.cache || u.cache
	}
	return all
}

// sameReplica reports whether two series are about the same replica of a model.
func sameReplica(a, b [outLabels]string) bool {
	return a[outModel] == b[outModel] && a[outReplica] == b[outReplica]
}

// series returns the places of a source's series on the metrics page, or only those about one replica. If some of the
// series belong to another server, it returns none.
func (c *compiler) series(d *Dialect, s Source, of *[outLabels]string) (places []int) {
	f := c.page.Find(s.Name, s.Is)
	if s.Name == "" || f == nil {
		return nil
	}
	for _, sample := range containers(c.page, f.Samples) {
		if !matches(sample.Labels, s.Where) {
			continue
		}
		if e, err := c.entry(d, &Row{From: s.Name}, sample, nil); of == nil || err == nil && sameReplica(e.out, *of) {
			places = append(places, sample.Index)
		}
	}
	if s.Where == nil && len(places) != 1 {
		return nil
	}
	return places
}

// addUp adds up series of a metrics page. NaN means that there are none.
func addUp(of []int, values []float64) float64 {
	if len(of) == 0 {
		return math.NaN()
	}
	v := 0.0
	for _, i := range of {
		v += values[i]
	}
	return v
}
