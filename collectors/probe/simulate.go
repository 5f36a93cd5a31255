package probe

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Answer is a simulated client's view of one request. Times count from the opening of the connection.
type Answer struct {
	Outcome          metrics.ProbeOutcome
	FirstToken, Took time.Duration // time until the first token, if there was one, and until the end of the request
	Tokens           int
	Held             bool // all tokens arrived at once
	PageUp           bool // the engine's metrics endpoint answered when the request was sent
}

// Simulate uses probes without sending requests. Requests are simulated in virtual time, and Answered takes their results.
func (c *Collector) Simulate(probes []*Probe) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inUse = probes
	for _, p := range probes {
		c.announce(p)
	}
}

// Timeout returns the time limit of a request.
func (p *Probe) Timeout() time.Duration { return p.timeout }

// Answered exports the result of a simulated request. It returns the pause until the next request, for a random number below 1. It also
// returns the probes that must send a request at once, as witnesses. A simulated request costs no tokens.
func (c *Collector) Answered(p *Probe, a Answer, now time.Time, random float64) (pause time.Duration, witnesses []*Probe) {
	const connected = time.Millisecond
	r := result{outcome: a.Outcome, connected: connected, held: a.Held, completion: a.Tokens}
	if a.FirstToken > 0 {
		r.token = connected + a.FirstToken
		r.firstByte, r.visible = r.token, r.token
	}
	if a.Outcome == metrics.ProbeOK {
		r.end = connected + a.Took
		for i := range a.Tokens {
			r.arrivals = append(r.arrivals, arrival{at: r.token + time.Duration(i)*(r.end-r.token)/time.Duration(max(1, a.Tokens-1)), messages: 1})
		}
	}
	c.compare(p, &r, "")
	c.observe(p, &r, a.PageUp, !a.PageUp, now)
	return p.pause(a.Took, random), c.witnesses(p, now)
}
