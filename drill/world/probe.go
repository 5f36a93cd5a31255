package world

import (
	"net/http"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/probe"
	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Gateway is the address to which users send requests.
const Gateway = "gateway:80"

// RoundTrip implements http.RoundTripper for the metrics endpoint of the gateway.
func (w *World) RoundTrip(req *http.Request) (*http.Response, error) {
	var page http.Handler
	if !w.GatewayDead {
		page = w.gateway
	}
	return roundTrip(Gateway, page, req)
}

// gatewayFails draws whether the gateway fails one request.
func (w *World) gatewayFails() bool { return w.GatewayFails > 0 && w.random.Float64() < w.GatewayFails }

// probing is one of the exporter's probes. It sends its requests to a replica or, if replica is nil, through the
// gateway.
type probing struct {
	*probe.Probe
	replica *Replica
	next    time.Duration
	hurry   bool           // the next request is sent as soon as possible
	request *drill.Request // in progress
	up      bool           // the metrics endpoint answered when the request was sent
}

// Probe starts the probes of an exporter whose process has just started. The probes' requests are simulated, and the
// exporter's own collector counts the results.
func (w *World) Probe(to *probe.Collector) error {
	w.prober, w.probes = to, nil
	var addresses []string
	var replicas []*Replica
	if w.Fleet.Probes {
		for _, r := range w.Replicas {
			addresses, replicas = append(addresses, r.Host), append(replicas, r)
		}
	}
	if w.Fleet.ProbesGateway {
		addresses, replicas = append(addresses, Gateway), append(replicas, nil)
	}
	cfgs := make([]probe.Config, 0, len(addresses))
	for _, address := range addresses {
		cfgs = append(cfgs, probe.Config{URL: "http://" + address, Model: w.Fleet.Profile.Model})
	}
	probes, err := probe.Compile(cfgs, probe.DefaultInterval, "drill")
	if err != nil {
		return err
	}
	to.Simulate(probes)
	for i, p := range probes {
		w.probes = append(w.probes, &probing{
			Probe: p, replica: replicas[i],
			next: w.now + time.Duration(w.random.Float64()*float64(probe.DefaultInterval)),
		})
	}
	return nil
}

// ask sends the probes' requests that are due. It must run before the users' requests of the same slice are sent.
func (w *World) ask() {
	for _, p := range w.probes {
		if w.ExporterDown || p.request != nil || p.next > w.now && !p.hurry {
			continue
		}
		p.hurry = false
		to := p.replica
		p.up = to == nil || to.Page() != nil
		through := to == nil && (w.Fleet.ReadsGateway || w.GatewayFails > 0) && !w.GatewayDead && !w.ProbesFail
		if through {
			to, _ = w.pass(w.now)
		} else if to == nil {
			to = w.route()
		}
		if through && to == nil {
			w.answered(p, probe.Answer{Outcome: metrics.ProbeServerError})
			continue
		}
		if to == nil || to.Page() == nil || w.ProbesFail || p.replica == nil && w.GatewayDead {
			w.answered(p, probe.Answer{Outcome: metrics.ProbeRefused})
			continue
		}
		p.request = (&drill.Request{Arrival: w.now, Prompt: 42, Output: 8}).For(p.Timeout())
		w.offer(p.request, to, through)
	}
}

// offer passes a request to a replica, through the gateway or directly.
func (w *World) offer(q *drill.Request, to *Replica, through bool) {
	if through {
		w.forward(q, to)
		return
	}
	to.Engine.Offer(q)
}

// await handles the answers to probes that have arrived, and gives up on requests that take too long.
func (w *World) await() {
	for _, p := range w.probes {
		q := p.request
		if q == nil {
			continue
		}
		switch took := q.Held + q.Done - q.Arrival; {
		case q.Aborted:
			w.answered(p, probe.Answer{Outcome: metrics.ProbeTimeout, Took: took})
		case q.Rejected || q.Failed:
			w.answered(p, probe.Answer{Outcome: metrics.ProbeServerError})
		case q.Done > 0 && took <= p.Timeout():
			a := probe.Answer{Outcome: metrics.ProbeOK, FirstToken: q.Held + q.FirstToken - q.Arrival, Took: took, Tokens: int(q.Emitted)}
			if p.replica == nil && w.GatewayBuffers {
				a.FirstToken, a.Held = took, true
			}
			w.answered(p, a)
		case q.Held+w.now-q.Arrival >= p.Timeout():
			w.answered(p, probe.Answer{Outcome: metrics.ProbeTimeout, Took: q.Held + w.now - q.Arrival})
		}
	}
}

// answered reports the outcome of a probe's request, and schedules the next request.
func (w *World) answered(p *probing, a probe.Answer) {
	a.PageUp = p.up
	pause, witnesses := w.prober.Answered(p.Probe, a, w.epoch.Add(w.now), w.random.Float64())
	p.request, p.next = nil, w.now+pause
	for _, other := range w.probes {
		other.hurry = other.hurry || slices.Contains(witnesses, other.Probe)
	}
}
