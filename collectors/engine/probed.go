package engine

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Probed adds up the results of one probe's requests, for objectives to count.
type Probed struct {
	// Server and Model name the probed server and model, as in the probe's own series.
	Server, Model string

	mu        sync.Mutex
	all, up   probes                   // probes sent while the engine's metrics endpoint answered
	latencies map[slo.Signal][]float64 // requests by bucket of the grid; the last bucket has no bound
	waited    map[slo.Signal][]float64 // requests that were given up, by the first bucket that may contain their latency
}

// probes holds the synthetic requests that count for availability.
type probes struct{ events, bad float64 }

func (p *probes) add(bad bool) {
	p.events++
	p.bad += metrics.Bool(bad)
}

// Ended counts a request by its outcome. If the exporter reads the engine's metrics endpoint, up reports whether this
// endpoint answered when the request was sent.
func (p *Probed) Ended(outcome metrics.ProbeOutcome, up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	event, bad := slo.JudgeProbe(outcome)
	if !event {
		return
	}
	p.all.add(bad)
	if up {
		p.up.add(bad)
	}
}

// Took counts a request by a latency in seconds that its client measured.
func (p *Probed) Took(signal slo.Signal, seconds float64) {
	p.observe(&p.latencies, signal, seconds)
}

// Waited counts a request that its client gave up after some seconds. For each objective with a threshold up to that
// time, the request is late. For all other objectives, the result is unknown.
func (p *Probed) Waited(signal slo.Signal, seconds float64) {
	p.observe(&p.waited, signal, math.Nextafter(seconds, math.Inf(1)))
}

func (p *Probed) observe(in *map[slo.Signal][]float64, signal slo.Signal, seconds float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bounds := slo.Grids()[slo.Probes][signal]
	if *in == nil {
		*in = map[slo.Signal][]float64{}
	}
	if (*in)[signal] == nil {
		(*in)[signal] = make([]float64, len(bounds)+1)
	}
	i, _ := slices.BinarySearch(bounds, seconds)
	(*in)[signal][i]++
}

// count returns the events of an objective, and the bound that separates good latencies from bad latencies. For
// availability, the bound is 0. ok is false if the threshold is below all bucket bounds.
func (p *Probed) count(o slo.Objective) (sum probes, bound float64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	signal := o.Signal.ByProbe()
	switch {
	case signal == slo.ProbeAvailability && o.Signal.OfProbes():
		return p.all, 0, true
	case signal == slo.ProbeAvailability: // while an engine is down, it counts nothing, and other engines take its load
		return p.up, 0, true
	}
	bounds := slo.Grids()[slo.Probes][signal]
	bound, ok = slo.Snap(bounds, o.Threshold.Std().Seconds())
	late := slices.Index(bounds, bound) + 1
	add := func(buckets []float64) (all float64) {
		for _, n := range buckets {
			all += n
		}
		return all
	}
	if all := p.latencies[signal]; all != nil {
		sum = probes{add(all), add(all[late:])}
	}
	if unknown := p.waited[signal]; unknown != nil {
		n := add(unknown[late:])
		sum.events, sum.bad = sum.events+n, sum.bad+n
	}
	return sum, bound, ok
}

// uncounted describes an objective that selects an engine but finds nothing to count on its metrics page.
type uncounted struct {
	slo.Objective
	out    [outLabels]string
	probed string // series of llm_slo_counted while a probe counts instead
}

// probesOf returns the probes that count in place of the engine. These are the probes of the engine's own address or,
// if there are none, the probes of its model. Requests to the engine's own address do not pass through a gateway.
func (t *target) probesOf(u uncounted) (all []*Probed, own bool) {
	for _, p := range t.config.Probed() {
		switch at := t.isAt(p); {
		case at && !own:
			all, own = []*Probed{p}, true
		case at || !own && p.Model == u.out[outModel] && !(u.out[outRole] == metrics.GatewayRole && t.besides(p)):
			all = append(all, p)
		}
	}
	return all, own
}

// isProbed reports whether probes count in place of the engine.
func (t *target) isProbed(u uncounted) bool {
	all, _ := t.probesOf(u)
	return len(all) > 0
}

// isAt reports whether a probe sends its requests to the target, or to its host and port.
func (t *target) isAt(p *Probed) bool {
	host, _, _ := strings.Cut(p.Server, "/")
	return p.Server == t.server || scrape.SameServer(t.At.Base.Host, host)
}

// besides reports whether a probe sends its requests to another target.
func (t *target) besides(p *Probed) bool {
	return slices.ContainsFunc(*t.config.read.Load(), func(other *target) bool { return other != t && other.isAt(p) })
}

// counting holds one series of events and the probes behind it.
type counting struct {
	slo.Objective
	labelling
	out    [outLabels]string
	probes []*Probed
}

// probed counts two kinds of objectives: objectives on signals of probes, and default objectives that an engine cannot
// count. It counts them even while the engines' metrics endpoints do not answer.
func (c *Collector) probed() *snapshot {
	s := &snapshot{}
	if c.config.Probed == nil {
		return s
	}
	var all []counting
	count := func(o slo.Objective, l labelling, out [outLabels]string, p *Probed) {
		i := slices.IndexFunc(all, func(c counting) bool { return c.Name == o.Name && c.out == out })
		if i < 0 {
			i, all = len(all), append(all, counting{o, l, out, nil})
		}
		if !slices.Contains(all[i].probes, p) {
			all[i].probes = append(all[i].probes, p)
		}
	}
	for _, t := range c.targets {
		t.mu.Lock()
		lacks := t.uncounted
		t.mu.Unlock()
		for _, u := range lacks {
			probes, own := t.probesOf(u)
			for _, p := range probes {
				l, out := t.labelling, u.out
				if !own { // one probe stands for all replicas
					l, out[outServer], out[outPod], out[outContainer] = labelling{}, p.Server, "", ""
				}
				count(u.Objective, l, out, p)
			}
		}
	}
	for _, p := range c.config.Probed() {
		l, out := c.behind(p)
		for _, o := range c.config.Objectives {
			if o.Signal.OfProbes() && selects(o, out) {
				count(o, l, out, p)
			}
		}
	}
	for _, counted := range all {
		counted.write(s, slices.ContainsFunc(c.config.Maintenance, func(m slo.Maintenance) bool {
			return m.Covers(counted.Objective) && m.Select.Matches(selected(counted.out)) && m.On(c.config.Now())
		}))
	}
	return s
}

// behind returns the labels of a probe's target. These are the labels of the engine at the target's address. If that
// engine is unknown, they are the probe's own labels.
func (c *Collector) behind(p *Probed) (l labelling, out [outLabels]string) {
	out[outServer] = p.Server
	for _, t := range c.targets {
		t.mu.Lock()
		whole := t.whole
		t.mu.Unlock()
		if t.isAt(p) && whole[outRuntime] != "" {
			l, out = t.labelling, whole
			break
		}
	}
	out[outModel] = cmp.Or(out[outModel], p.Model)
	return l, out
}

// write adds the series of one objective on the targets of its probes.
func (c *counting) write(s *snapshot, maintenance bool) {
	var events, bad float64
	var more []metrics.Label
	reason := slo.Counted
	for _, p := range c.probes {
		sum, bound, ok := p.count(c.Objective)
		events, bad = events+sum.events, bad+sum.bad
		switch {
		case !ok:
			reason = slo.BelowGrid
		case bound > 0:
			more = []metrics.Label{{Name: metrics.LabelThreshold, Value: slo.FormatBound(bound)}}
			s.effective = append(s.effective, effective{c.Name, metrics.Runtime(c.out[outRuntime]), bound})
		}
	}
	text := func(f *metrics.Family, more ...metrics.Label) string {
		return c.series(f.Name, c.out, append([]metrics.Label{{Name: metrics.LabelSLO, Value: c.Name}}, more...)...)
	}
	if reason.Counts() {
		s.append(metrics.SLOEvents, text(metrics.SLOEvents, more...), events)
		s.append(metrics.SLOBadEvents, text(metrics.SLOBadEvents, more...), bad)
	}
	if c.Signal.OfProbes() { // other objectives are reported with their engine
		s.append(metrics.SLOCounted, text(metrics.SLOCounted, metrics.Label{Name: metrics.LabelReason, Value: string(reason)}),
			metrics.Bool(reason.Counts()))
		if maintenance {
			s.append(metrics.SLOMaintenance, text(metrics.SLOMaintenance), 1)
		}
	}
}
