// Package world simulates a node in virtual time. It has the engines and GPUs of a fleet, their users, and the metrics
// of both. Faults change the world. The world's truth records when users suffer, independently of the metrics.
package world

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/probe"
	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// slice is the time step in which faults, GPUs and engines act one after the other.
const slice = 5 * time.Second

// Fleet describes a model and its replicas. Each replica is on a GPU of one node.
type Fleet struct {
	Profile  drill.Profile
	Replicas int
	// Fresh means that the engines start with the world. Otherwise, they are a day old, but their counters are at zero.
	Fresh bool
	// Runtimes lists the kinds of engine. The replicas use them in turn.
	Runtimes []metrics.Runtime
	// Each changes the profile of one replica before the world starts. nil leaves all replicas the same.
	Each func(replica int, p *drill.Profile)
	// Objectives are the objectives of the exporter's configuration. Default: slo.Defaults.
	Objectives []slo.Objective
	// LeastLoaded makes the router send a request to the replica with the fewest requests, instead of the next replica.
	LeastLoaded bool
	// Shares are the relative shares of requests that the router sends to each replica. They may have any sum. nil means
	// equal shares.
	Shares []float64
	// Ranks makes the replicas data-parallel ranks of one vLLM. They share its pod and its metrics page, and cannot
	// restart alone.
	Ranks bool
	// Prefills is the number of replicas that are prefill engines, which compute prompts for the other replicas. They come
	// first. Discovery sets the label for the role.
	Prefills int
	// SeesProcesses lets the exporter see the host's processes. Such a host also has four NVSwitches.
	SeesProcesses bool
	// Probes makes the exporter probe each replica. ProbesGateway makes the exporter probe the users' address.
	Probes, ProbesGateway bool
	// ReadsGateway makes the exporter read the metrics endpoint of the gateway at the users' address, and makes this
	// gateway send the users' requests. Gateway is the runtime of this gateway. Default: LiteLLM.
	ReadsGateway bool
	Gateway      metrics.Runtime
}

// Configured returns the objectives that the exporter counts.
func (f Fleet) Configured() []slo.Objective {
	if f.Objectives == nil {
		return slo.Defaults()
	}
	declared := slices.Clone(f.Objectives)
	for i := range declared {
		declared[i].Default = false // objectives of a fleet count as declared by the user
	}
	return declared
}

// World is a fleet in virtual time. Faults change it.
type World struct {
	Fleet    Fleet
	Replicas []*Replica
	Traffic  *drill.Traffic // for all replicas together
	// ExporterDown stops the exporter from answering. When it is unset, the exporter restarts.
	ExporterDown bool
	// NodeDown also stops the node's other targets of Prometheus.
	NodeDown bool
	// Favours limits the router to this number of replicas. 0 means all replicas.
	Favours int
	// ManagerDead means that the fabric manager's process has ended. The GPUs keep the last state.
	ManagerDead bool
	// Idle leaves the fleet without clients.
	Idle bool
	// Hold makes the gateway keep requests while no engine is up, like the activator of a platform that scales to zero.
	Hold bool
	// GatewayDead makes the gateway lose the requests of users and probes. GatewayBuffers makes the gateway buffer each
	// answer, which only probes notice.
	GatewayDead, GatewayBuffers bool
	// GatewayFails is the share of requests that the gateway answers with 502, or with GatewayStatus, without
	// forwarding them to an engine.
	GatewayFails  float64
	GatewayStatus int
	// GatewayRefuses is the share of requests that the gateway refuses with 429, as a gateway does that has reached its
	// limit of open requests.
	GatewayRefuses float64
	// GatewayLag is how long the gateway works on each request before it forwards the request.
	GatewayLag time.Duration
	// GatewaySwallows is the longest prompt, in tokens, that the gateway can forward to an engine. Requests with longer
	// prompts get no answer, as on a path that drops large packets. The simulation skips the wait until the gateway's
	// timeout. 0 means no limit.
	GatewaySwallows float64
	// PassesPrefill makes the router send each request to a decode engine at once, past the prefill engines.
	PassesPrefill bool
	// FavoursDecode limits the router to this number of decode engines when it forwards a request after the prefill. 0
	// means all decode engines.
	FavoursDecode int
	// Mismatched means that the driver's library is newer than the loaded kernel module, so loading NVML fails.
	Mismatched bool
	// ProbesFail means that the exporter can read metrics, but its probes fail.
	ProbesFail bool
	// Seen is when Prometheus first read the metrics, since the epoch. Failures before that make no page due.
	Seen time.Duration

	held    []*drill.Request
	lagging []lagging        // requests that the gateway works on
	passing []*drill.Request // requests that prefill engines have answered
	truth   *truth
	gateway drill.Gateway
	epoch   time.Time // time at which now was zero
	now     time.Duration
	random  *rand.Rand // for probes, and for failures of the gateway
	prober  *probe.Collector
	probes  []*probing
	decodes int // decode engine of the last request
	next    int // replica for the next request; among equals, the first to consider (round robin, as in a Service)
}

// Replica is one engine, with its metrics and its GPU.
type Replica struct {
	Engine *drill.Engine
	GPU    *GPU
	// Down means that the engine's port is closed.
	Down bool
	// Gone means that the pod does not exist, so the exporter has no such target.
	Gone bool
	// Unreachable means that the gateway cannot connect to the engine's port, although the exporter can, as with a network
	// policy.
	Unreachable bool
	// Misses makes reads of the engine's metrics time out: with Misses = 4, in every fourth interval of 30 seconds. 0
	// means never.
	Misses int
	// Profile configures the engine when it starts.
	Profile drill.Profile
	Runtime metrics.Runtime
	Pod     string
	// Host is the address of the engine's port.
	Host string

	world *World
	page  drill.Dialect
}

// Namespace is the namespace of all pods.
const Namespace = "prod"

// New starts a fleet at an epoch. The seed determines the arrivals and the engines.
func New(f Fleet, epoch time.Time, seed uint64) *World {
	load := f.Profile.Load
	load.Arrivals *= float64(f.Replicas)
	w := &World{
		Fleet: f, Traffic: drill.NewTraffic(load, seed), truth: newTruth(f.Configured()), epoch: epoch,
		random: rand.New(rand.NewPCG(seed, 2)),
	}
	hosts := make([]string, f.Replicas)
	for i := range hosts {
		hosts[i] = host(i)
	}
	w.gateway = drill.NewGateway(f.Gateway, f.Profile.Model, hosts)
	for i := range f.Replicas {
		n := strconv.Itoa(i)
		r := &Replica{
			world: w, Runtime: f.Runtimes[i%len(f.Runtimes)], Profile: f.Profile, Pod: f.Profile.Model + "-" + n, Host: host(i),
			GPU: newGPU(i),
		}
		r.Profile.Descriptors = 31 + int((seed+uint64(i))%8)
		r.Profile.Started = epoch
		if !f.Fresh {
			r.Profile.Started = epoch.Add(-24 * time.Hour)
		}
		r.Profile.Prefilled = f.Profile.Prefilled && i >= f.Prefills
		if f.Each != nil {
			f.Each(i, &r.Profile)
		}
		if f.Ranks && i > 0 {
			r.Profile.Rank, r.Pod, r.Host = i, w.Replicas[0].Pod, w.Replicas[0].Host
		}
		if r.Runtime == metrics.TGI { // backends/v3/src/queue.rs and backend.rs
			r.Profile.ShowsQueue, r.Profile.Alternates = true, true
		}
		page := drill.NewDialect(r.Runtime, r.Profile)
		r.page = page
		r.Engine = drill.NewEngine(r.Profile.Serving, seed+uint64(i), w.observe(r, page))
		w.Replicas = append(w.Replicas, r)
		if r.Profile.Rank > 0 {
			w.Replicas[0].page.(*drill.VLLM).Join(page.(*drill.VLLM))
		}
	}
	return w
}

// host returns the address of a replica's engine.
func host(i int) string { return "10.0.0.1" + strconv.Itoa(i) + ":8000" }

// observe returns the observer of an engine. It passes the engine's events to the gateway in front of the engine, to
// the truth, and to the engine's metrics.
func (w *World) observe(r *Replica, page drill.Observer) drill.Observer {
	if w.prefills(r) {
		return &prefilling{page, w}
	}
	return w.gateway.Before(w.truth.watch(page, r.identity()), r.Host)
}

// Restart restarts the engine's process, with all its ranks. Its port stays closed until the model is loaded.
func (r *Replica) Restart(loading time.Duration) {
	if !r.world.Fleet.Ranks {
		r.restart(loading)
		return
	}
	for _, rank := range r.world.Replicas {
		rank.restart(loading)
		if rank.Profile.Rank > 0 {
			r.world.Replicas[0].page.(*drill.VLLM).Join(rank.page.(*drill.VLLM))
		}
	}
}

func (r *Replica) restart(loading time.Duration) {
	r.Profile.Started = r.world.At(r.world.now)
	page := drill.NewDialect(r.Runtime, r.Profile)
	r.page = page
	r.Engine.Serving = r.Profile.Serving
	r.Engine.Restart(r.world.now+loading, r.world.observe(r, page))
	r.Down, r.Gone = loading > 0, false
	r.GPU.readyAt = r.world.now + loading
}

// LoseWorker kills the worker of a Dynamo. The frontend stays, and fails all requests.
func (r *Replica) LoseWorker() {
	r.Engine.Kill(r.world.now)
	r.Engine.Broken = true
	r.page.(*drill.Dynamo).LoseWorker(r.world.now)
}

// Mistype makes clients of a Dynamo request a model that does not exist.
func (r *Replica) Mistype(requests int) { r.page.(*drill.Dynamo).Mistype(requests) }

// LeaveGPU moves a share of an Ollama's weights from GPU memory to host memory. A factor slows the engine down.
func (r *Replica) LeaveGPU(share, factor float64) {
	r.page.(*drill.Ollama).OnGPU = 1 - share
	r.Engine.Slow = factor
}

// Unload removes the model from Ollama's list of loaded models, or adds it again. It does not change how long requests
// wait for the model: the engine's settings determine this.
func (r *Replica) Unload(away bool) { r.page.(*drill.Ollama).Away = away }

// Labels returns the labels that discovery sets for the replica.
func (r *Replica) Labels() map[string]string {
	all := map[string]string{metrics.LabelNamespace: Namespace, metrics.LabelPod: r.Pod}
	if w := r.world; w.Fleet.Prefills > 0 {
		all[metrics.LabelRole] = "decode"
		if w.prefills(r) {
			all[metrics.LabelRole] = "prefill"
		}
	}
	return all
}

// Command returns the command line of the engine's process, if the exporter may see it.
func (r *Replica) Command() []string {
	if !r.world.Fleet.SeesProcesses || r.Down || r.Gone {
		return nil
	}
	return r.Profile.Command(r.Runtime)
}

// Connections returns the number of connections at the engine's port, if the exporter may see the process behind it.
func (r *Replica) Connections() (n int, known bool) {
	if !r.world.Fleet.SeesProcesses || r.Down || r.Gone {
		return 0, false
	}
	return r.page.Connections(), true
}

// Target reports whether the exporter reads a metrics endpoint of the replica.
func (r *Replica) Target() bool { return !r.Gone && r.Profile.Rank == 0 }

// Page returns the handler of the engine's HTTP server, or nil while the engine's port is closed.
func (r *Replica) Page() http.Handler {
	if r.Down || r.Gone {
		return nil
	}
	return r.page
}

// RoundTrip implements http.RoundTripper. The engine answers without a network.
func (r *Replica) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.Misses > 0 && int(r.world.now/(30*time.Second))%r.Misses == 0 {
		return nil, fmt.Errorf("read tcp %s: %w", r.Host, context.DeadlineExceeded)
	}
	return roundTrip(r.Host, r.Page(), req)
}

// roundTrip sends a request to a handler, which is nil if nothing listens.
func roundTrip(host string, page http.Handler, req *http.Request) (*http.Response, error) {
	if page == nil {
		return nil, fmt.Errorf("dial tcp %s: %w", host, syscall.ECONNREFUSED)
	}
	a := &answer{header: http.Header{}, status: http.StatusOK}
	page.ServeHTTP(a, req)
	return &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(&a.body), Request: req}, nil
}

// answer implements http.ResponseWriter and keeps the written data.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// identity returns the labels that selectors of objectives match.
func (r *Replica) identity() slo.Engine {
	return slo.Engine{Runtime: r.Runtime, Model: r.Profile.Model, Namespace: Namespace}
}

// Now returns the present as the time since the epoch.
func (w *World) Now() time.Duration { return w.now }

// At converts a time since the epoch to the time of day on the world's clock.
func (w *World) At(t time.Duration) time.Time { return w.epoch.Add(t) }

// Due returns when a page was first due after the time from, according to the users' requests, and for which objective.
// from counts since the epoch, and after counts since from. due is false if no page was due.
func (w *World) Due(from time.Duration) (after time.Duration, objective string, due bool) {
	return w.truth.burn(from, w.Seen)
}

// Heal undoes all faults, so that traffic, engines, GPUs and gateway are again as the fleet describes them. It restarts
// engines that hang, are gone or have another configuration. Their ports stay closed for the time loading. Counters and
// the users' results are kept.
func (w *World) Heal(loading time.Duration) {
	well := New(w.Fleet, w.epoch, 0)
	w.Traffic.Load = well.Traffic.Load
	w.ExporterDown, w.NodeDown, w.ManagerDead, w.Idle, w.Hold, w.GatewayDead, w.GatewayBuffers, w.Mismatched, w.ProbesFail = false, false,
		false, false, false, false, false, false, false
	w.Favours, w.FavoursDecode, w.GatewayFails, w.GatewayStatus, w.GatewayLag, w.PassesPrefill = 0, 0, 0, 0, 0, false
	w.GatewayRefuses, w.GatewaySwallows = 0, 0
	for i, r := range w.Replicas {
		of := well.Replicas[i]
		anew := r.Down || r.Gone || r.GPU.Lost || r.GPU.Stuck || r.Engine.Wedged || r.Engine.Broken ||
			r.Profile.Release != of.Profile.Release || r.Profile.KVCacheDtype != of.Profile.KVCacheDtype || r.Pod != of.Pod ||
			r.Profile.NoPrefixCache != of.Profile.NoPrefixCache ||
			r.Engine.Slow != 1 && r.Runtime == metrics.Ollama || r.Engine.Leak > 0
		of.Profile.Started, of.Profile.Descriptors = r.Profile.Started, r.Profile.Descriptors
		r.Profile, r.Pod, r.Misses, r.Unreachable = of.Profile, of.Pod, 0, false
		r.Engine.Serving, r.Engine.Slow, r.Engine.Starved, r.Engine.Lag, r.Engine.ShowsIdle = of.Profile.Serving, 1, 0, 0, false
		r.Engine.Masking, r.Engine.Preparing = 0, 0
		g := r.GPU
		g.Throttle, g.Lost, g.Stuck, g.RemapPending, g.RemapFailed, g.RepairPending, g.Unrepairable = nil, false, false, false, false,
			false, false
		g.Corrected, g.Replays, g.Unregistered, g.SlowLink, g.Drain, g.Forgets, g.Virtual, g.Unlicensed, g.Others = 0, 0, false, false, false,
			false, false, false, 0
		if anew {
			r.Restart(loading)
		}
	}
}

// Suffered returns the number of an objective's events between two times since the epoch, and the number of bad events
// among them. A request without an answer is a bad event.
func (w *World) Suffered(objective string, from, to time.Duration) (events, bad float64) {
	c := w.truth.between(objective, from, to)
	return c.events, c.bad
}

// Advance advances the world to a time since the epoch.
func (w *World) Advance(to time.Duration) {
	for w.now < to {
		until := min(w.now+slice, to)
		for _, r := range w.Replicas {
			if r.GPU.readyAt != 0 && until >= r.GPU.readyAt && !r.GPU.Lost {
				r.Down, r.GPU.readyAt = false, 0
			}
		}
		w.ask()
		w.send(w.Traffic.Until(until))
		w.deliver(until)
		for i, r := range w.Replicas {
			if i == w.Fleet.Prefills {
				w.passOn(until)
			}
			r.GPU.throttle(w.now)
			r.Engine.Clock = r.GPU.clock
			if !r.Down {
				before := r.Engine.Busy()
				r.Engine.Advance(until)
				r.GPU.advance(until-w.now, r.Engine.Busy()-before, r.Engine)
			} else {
				r.Engine.Kill(w.now)
				r.GPU.advance(until-w.now, 0, r.Engine)
				if w.ExporterDown { // no other client is left
					r.GPU.letGo()
				}
			}
		}
		w.now = until
		w.await()
		w.truth.tick()
	}
}

// send passes requests to the engines. Held requests come first. If no engine is up, the gateway holds or loses
// requests.
func (w *World) send(requests []*drill.Request) {
	if w.Idle {
		return
	}
	if len(w.held) > 0 && !w.GatewayDead && w.route() != nil {
		w.sendHeld()
	}
	gateway := slo.Engine{Runtime: w.Fleet.gateway(), Model: w.Fleet.Profile.Model, Namespace: Namespace, Role: metrics.GatewayRole}
	for _, q := range requests {
		switch {
		case w.GatewayDead:
			w.truth.lose(gateway)
		case w.Fleet.ReadsGateway || w.GatewayFails > 0:
			to, status := w.pass(q.Arrival)
			switch {
			case to != nil && w.GatewaySwallows > 0 && q.Prompt > w.GatewaySwallows:
				w.gateway.Unanswered(to.Host, q.Arrival)
				w.truth.unreached(gateway)
			case to != nil:
				w.forward(q, to)
			case status >= http.StatusBadRequest:
				w.truth.unreached(gateway)
			}
		default:
			if q.Local = w.PassesPrefill; w.Fleet.Prefills > 0 && !q.Local {
				q = q.Prefill()
			}
			if r := w.route(); r != nil {
				r.Engine.Offer(q)
			} else if w.Hold {
				w.held = append(w.held, q)
			} else {
				w.truth.lose(w.Replicas[0].identity())
			}
		}
	}
}

// sendHeld passes held requests to the engines. If a client has left in the meantime, its request is lost.
func (w *World) sendHeld() {
	for _, q := range w.held {
		if q.Hold(w.now) {
			w.route().Engine.Offer(q)
		} else {
			w.truth.lose(w.Replicas[0].identity())
		}
	}
	w.held = nil
}

// gateway returns the runtime of the fleet's gateway.
func (f Fleet) gateway() metrics.Runtime { return cmp.Or(f.Gateway, metrics.LiteLLM) }

// pass returns the replica to which the gateway sends a request. If the gateway itself answers, pass returns the
// status. The gateway notices a closed port only when it sends a request.
func (w *World) pass(now time.Duration) (to *Replica, status int) {
	if w.GatewayRefuses > 0 && w.random.Float64() < w.GatewayRefuses {
		w.gateway.Limited()
		return nil, http.StatusTooManyRequests
	}
	w.gateway.Arrived()
	if w.gatewayFails() {
		status = cmp.Or(w.GatewayStatus, http.StatusBadGateway)
		w.gateway.Answered(status)
		return nil, status
	}
	first := w.next
	for i := range w.Replicas {
		n := (first + 1 + i) % len(w.Replicas)
		r := w.Replicas[n]
		if !w.gateway.Tries(r.Host, now) {
			continue
		}
		w.next = n
		if !r.Down && !r.Unreachable {
			return r, http.StatusOK
		}
		if status = w.gateway.Refused(r.Host, now); status != 0 {
			return nil, status
		}
	}
	return nil, w.gateway.NoneLeft()
}

// route picks the next replica for a request of a user.
func (w *World) route() (to *Replica) {
	if w.Fleet.Shares != nil {
		return w.routeByShares()
	}
	if w.PassesPrefill {
		return w.among(w.Replicas[w.Fleet.Prefills:], &w.decodes)
	}
	return w.among(w.Replicas[:cmp.Or(w.Favours, w.Fleet.Prefills, len(w.Replicas))], &w.next)
}

// among picks the next of the given replicas whose port is open. Like a health check, it looks only at the port.
func (w *World) among(replicas []*Replica, next *int) (to *Replica) {
	first := *next
	for i := range replicas {
		n := (first + 1 + i) % len(replicas)
		r := replicas[n]
		if !r.Down && (to == nil || r.Engine.Holds() < to.Engine.Holds()) {
			to, *next = r, n
			if !w.Fleet.LeastLoaded {
				break
			}
		}
	}
	return to
}

// routeByShares draws the replica to send a request to, among the replicas that are up.
func (w *World) routeByShares() (to *Replica) {
	var up float64
	for i, r := range w.Replicas {
		if r.Down {
			continue
		}
		up += w.Fleet.Shares[i]
		if w.random.Float64()*up < w.Fleet.Shares[i] {
			to = r
		}
	}
	return to
}
