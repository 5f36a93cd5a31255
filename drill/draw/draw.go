// Package draw draws random worlds: the fault and its size, the fleet, and the exporter's view. The drawn cause
// determines the correct answer. No rule does.
package draw

import (
	"cmp"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Draw is a world drawn from a seed.
type Draw struct {
	Seed  uint64
	Class string
	// Want lists the branches that are correct as the first suspect. It is empty for a world that needs no alert.
	Want []rules.Branch
	// Unserved means that the fault leaves clients without answers, and that no objective counts their requests.
	Unserved bool
	Incident incident.Incident
	Options  play.Options
}

// Quiet reports whether the world needs no alert.
func (d Draw) Quiet() bool { return len(d.Want) == 0 }

// lasts limits the length of a play, so that a hundred plays take minutes.
const lasts = 30 * time.Minute

// lived is the age of the engines when Prometheus first reads their metrics. By then, their counters show the usual
// behaviour, and the engines do not count as newly started.
const lived = 65 * time.Minute

// New draws the world of a seed.
func New(seed uint64) Draw {
	r := rand.New(rand.NewPCG(seed, 34))
	f, speed := fleet(r)
	c := pick(r, causes()...)
	d := Draw{Seed: seed, Class: c.class, Want: c.want, Unserved: c.unserved, Options: play.Options{Seed: seed, Relabel: relabelling(r)}}
	switch r.IntN(4) {
	case 0:
		d.Options.WithoutGPUs = true
	case 1:
		d.Options.DCGM = []string{}
	}
	split(r, &f, c.class)
	faults := c.draw(r, &f)
	f.Profile.Arrivals = max(0.02, f.Profile.Arrivals*speed*float64(entries(f))/float64(f.Replicas))
	d.Unserved = d.Unserved && (c.class != "crash-loop" || f.Replicas == 1) // otherwise the other gateway serves
	if r.IntN(3) == 0 {
		faults = append(faults, beside(r, f)...)
	}
	history := pick(r, 20*time.Minute, time.Hour, time.Hour, 2*time.Hour, 2*time.Hour)
	if r.IntN(30) == 0 {
		history = 26 * time.Hour // takes a minute to play
	}
	f.Fresh = true
	d.Options.Scrape = pick(r, 15*time.Second, 30*time.Second, 30*time.Second, 60*time.Second)
	if f.Runtimes[0] == metrics.VLLM {
		ofVLLM(r, &f, c.class)
	}
	if r.IntN(4) == 0 { // another fault, which is mild and older
		faults = append(faults, mild(r, f.Replicas))
	}
	f.SeesProcesses = !d.Options.WithoutGPUs && d.Options.DCGM == nil && r.IntN(2) == 0 // as root on a host, or through hostPID
	if c.hidden(f, d.Options) {
		d.Want = append(slices.Clone(d.Want), rules.Engine)
	}
	mix(r, &f.Profile.Load)
	d.Incident = incident.Incident{Name: c.class, Fleet: f, Lived: lived, History: history, Lasts: lasts, Faults: faults}
	return d
}

// fleet draws healthy engines with their hardware, model and traffic. It also returns the ratio of their speed to the
// speed that the causes assume.
func fleet(r *rand.Rand) (f world.Fleet, speed float64) {
	p := drill.NewProfile("drawn")
	// These are arrivals of each replica, per second. The usual hardware serves about 50 requests of the usual length.
	p.Arrivals, p.Swing = between(r, 0.02, 15), 0.6*r.Float64()
	p.Period = pick(r, 2*time.Minute, 2*time.Minute, 15*time.Minute, 4*time.Hour)
	p.PromptTokens, p.OutputTokens, p.CacheHits = between(r, 300, 1500), between(r, 60, 250), 0.8*r.Float64()
	if r.IntN(12) == 0 { // a classifier has many short requests
		p.Arrivals, p.PromptTokens, p.OutputTokens = between(r, 15, 50), between(r, 80, 250), between(r, 4, 20)
	}
	f = world.Fleet{
		Replicas: 1 + r.IntN(4), LeastLoaded: r.IntN(2) == 0, Probes: r.IntN(3) == 0,
		Runtimes: []metrics.Runtime{pick(r, metrics.VLLM, metrics.VLLM, metrics.VLLM, metrics.SGLang, metrics.SGLang, metrics.TGI,
			metrics.TensorRTLLM, metrics.Dynamo, metrics.LlamaCpp)},
	}
	speed = 1
	switch r.IntN(4) {
	case 0:
		p.GPU, p.Weights, speed = drill.L40S, drill.Llama8BFP8, 0.5
	case 1: // a model of 27 billion parameters in four bits
		p.Weights, speed = drill.Weights{Parameters: 27e9, Bytes: 0.55, KVBytesPerTok: 64 << 10, Attention: 4 * 16 * 24 * 256}, 0.2
	}
	if f.Runtimes[0] == metrics.LlamaCpp { // it has eight slots and counts no requests, so its documentation recommends probes
		p.MaxBatch, f.Probes, speed = 8, true, 0.1*speed
	}
	if r.IntN(4) == 0 {
		f.ReadsGateway, f.Gateway = true, pick(r, metrics.LiteLLM, metrics.SMG)
	}
	f.Profile = p
	return f, speed
}

// ofVLLM draws whether the replicas of a vLLM are ranks, serve adapters, or have prefill engines elsewhere.
func ofVLLM(r *rand.Rand, f *world.Fleet, class string) {
	together := []string{"load", "long-prompts", "cache-broken", "small-kv", "slow-steps", "quiet-burst"}
	if slices.Contains(together, class) && r.IntN(4) == 0 && !f.Probes && f.Prefills == 0 {
		f.Ranks = true
	}
	if f.Profile.Adapters == 0 && !f.Ranks && r.IntN(8) == 0 { // all adapters fit
		n := 1 + r.IntN(4)
		f.Profile.Adapters, f.Profile.Named = n, n
	}
	if !f.Ranks && f.Prefills == 0 && r.IntN(6) == 0 { // the exporter does not read the prefill engines
		f.Profile.Release, f.Profile.Prefilled, f.Profile.Fetching = "0.26.0", true, 25e9
	}
}

// split draws whether some replicas of a vLLM are prefill engines and the others decode engines.
func split(r *rand.Rand, f *world.Fleet, class string) {
	if f.Runtimes[0] != metrics.VLLM || f.Replicas == 1 || r.IntN(4) > 0 || !slices.Contains([]string{
		"load", "long-prompts", "small-kv", "slow-steps", "slow-host", "throttled-gpu", "crowded-gpu", "hung", "dead", "all-fail",
		"evicted", "node-lost", "bad-release", "cold-start", "pauses",
		"quiet-burst", "quiet-night", "quiet-cancels", "quiet-pause", "quiet-cap", "quiet-xid",
	}, class) {
		return
	}
	byRole(r, f)
}

// byRole makes some replicas prefill engines.
func byRole(r *rand.Rand, f *world.Fleet) {
	f.Runtimes, f.Prefills, f.ReadsGateway = []metrics.Runtime{metrics.VLLM}, 1+r.IntN(f.Replicas-1), false
	f.Profile.Release, f.Profile.Prefilled, f.Profile.Fetching = "0.26.0", true, 25e9
}

// entries returns the number of replicas that get the users' requests first. If there are prefill engines, only they
// do.
func entries(f world.Fleet) int { return cmp.Or(f.Prefills, f.Replicas) }

// mix draws whether different kinds of users share the engines. For example, a classifier runs beside chat, or agents
// request several answers at once.
func mix(r *rand.Rand, l *drill.Load) {
	if r.IntN(4) == 0 {
		l.Brief = between(r, 0.2, 0.8)
	}
	if r.IntN(6) == 0 {
		l.Together = between(r, 2, 8)
	}
}

// relabelling draws how Prometheus changes labels. It may change nothing, add a cluster's name, or remove the labels
// for pods and namespaces.
func relabelling(r *rand.Rand) func(labels.Labels) labels.Labels {
	return pick(r, nil, nil, nil,
		func(l labels.Labels) labels.Labels {
			return labels.NewBuilder(l).Set(metrics.LabelCluster, "eu-1").Labels()
		},
		func(l labels.Labels) labels.Labels {
			return labels.NewBuilder(l).Del(metrics.LabelPod, metrics.LabelNamespace).Labels()
		})
}

// beside draws a harmless event that happens near the time of the fault.
func beside(r *rand.Rand, f world.Fleet) []incident.Fault {
	replicas := f.Replicas
	switch r.IntN(6) {
	case 4: // a deployment of the same version
		return []incident.Fault{{At: -6 * time.Minute, Do: func(w *world.World) {
			if replicas-f.Prefills > 1 {
				again := w.Replicas[replicas-1:]
				if w.Fleet.Ranks { // all ranks belong to one server
					again = w.Replicas
				}
				for _, e := range again {
					e.Restart(time.Minute)
				}
			}
		}}}
	case 5: // a batch
		return []incident.Fault{
			{At: -15 * time.Minute, Do: func(w *world.World) {
				w.Traffic.OutputTokens, w.Traffic.Arrivals = w.Traffic.OutputTokens*1.3, w.Traffic.Arrivals*1.2
			}},
			{At: 10 * time.Minute, Do: func(w *world.World) {
				w.Traffic.OutputTokens, w.Traffic.Arrivals = w.Traffic.OutputTokens/1.3, w.Traffic.Arrivals/1.2
			}},
		}
	case 0:
		return []incident.Fault{{At: 2 * time.Minute, Do: func(w *world.World) { w.Traffic.OutputTokens *= 1.1 }}}
	case 1:
		return at(each(func(e *world.Replica) {
			if e.GPU.Throttle == nil {
				e.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.95}
			}
		}))
	case 2:
		return []incident.Fault{
			{At: -8 * time.Minute, Do: func(w *world.World) { w.ExporterDown = true }},
			{At: -7 * time.Minute, Do: func(w *world.World) { w.ExporterDown = false }},
		}
	default:
		n := r.IntN(replicas)
		return []incident.Fault{{At: 3 * time.Minute, Do: func(w *world.World) { w.Replicas[n].GPU.Corrected = 0.5 }}}
	}
}

// mild returns a fault that users do not notice. It began at most half an hour before the incident.
func mild(r *rand.Rand, replicas int) incident.Fault {
	n := r.IntN(replicas)
	return incident.Fault{At: -time.Duration(between(r, 2, 30)) * time.Minute, Do: pick(r,
		func(w *world.World) { w.Replicas[n].Engine.Slow *= 1.2 },
		func(w *world.World) { w.Traffic.Arrivals *= 1.2 },
		func(w *world.World) { w.Traffic.PromptTokens *= 1.3 },
		func(w *world.World) { w.Traffic.CacheHits *= 0.7 },
		func(w *world.World) { w.Replicas[n].GPU.Report(31) },
	)}
}

// cause is a possible cause of an incident. All causes are drawn with the same probability. draw returns the faults,
// and may change the fleet.
type cause struct {
	class    string
	want     []rules.Branch
	unserved bool
	draw     func(r *rand.Rand, f *world.Fleet) []incident.Fault
}

// hidden reports whether the exporter cannot see the cause itself, but only a slow or a dead engine.
func (c cause) hidden(f world.Fleet, o play.Options) bool {
	switch c.class {
	case "unlicensed": // dcgm-exporter does not read this field by default
		return o.WithoutGPUs || o.DCGM != nil
	case "bad-release": // Dynamo's metrics page has no engine version
		return f.Runtimes[0] == metrics.Dynamo
	case "crowded-gpu":
		return !f.SeesProcesses
	}
	return o.WithoutGPUs && slices.Contains(c.want, rules.Hardware)
}

// causes lists the causes that are drawn.
func causes() []cause { return slices.Concat(ofTraffic(), ofEngines(), ofFleets(), quiet()) }

// ofTraffic lists causes in the behaviour of clients, and in the systems in front of the engines.
func ofTraffic() []cause {
	return []cause{
		{"load", []rules.Branch{rules.Queueing}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			to := between(r, 60, 150) * float64(entries(*f))
			return at(func(w *world.World) { w.Traffic.Arrivals = to })
		}},
		{"long-prompts", []rules.Branch{rules.Prefill}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Profile.Arrivals = between(r, 2, 15)
			by := between(r, 6, 20)
			return at(func(w *world.World) { w.Traffic.PromptTokens *= by })
		}},
		{"cache-broken", []rules.Branch{rules.Prefill}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Profile.Arrivals, f.Profile.PromptTokens, f.Profile.CacheHits = between(r, 6, 12), between(r, 2500, 5000), between(r, 0.7, 0.9)
			return at(func(w *world.World) { w.Traffic.CacheHits = 0 })
		}},
		{"small-kv", []rules.Branch{rules.Memory, rules.Behaviour}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Profile.Arrivals, f.Profile.Blocks, f.Profile.OutputLimit = between(r, 6, 12), int(between(r, 3000, 6000)), 4096
			by := between(r, 4, 10)
			return at(func(w *world.World) { w.Traffic.OutputTokens *= by })
		}},
		{"runaway", []rules.Branch{rules.Behaviour, rules.Memory}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Profile.Arrivals = between(r, 4, 12)
			to := between(r, 3000, 6000)
			return at(func(w *world.World) { w.Traffic.OutputTokens = to })
		}},
		{"speculation", []rules.Branch{rules.Decode}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Runtimes = []metrics.Runtime{pick(r, metrics.VLLM, metrics.SGLang)}
			f.Profile.Arrivals, f.Profile.Draft, f.Profile.Acceptance = between(r, 6, 15), 3, between(r, 0.6, 0.85)
			return at(each(func(e *world.Replica) { e.Engine.Acceptance = 0.02 }))
		}},
		{"gateway-dead", []rules.Branch{rules.Routing}, true, func(_ *rand.Rand, f *world.Fleet) []incident.Fault {
			f.ReadsGateway = true
			return at(func(w *world.World) { w.GatewayDead = true })
		}},
		{"gateway-fails", []rules.Branch{rules.Routing}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.ReadsGateway, f.Probes = true, false
			share := between(r, 0.1, 1)
			return at(func(w *world.World) { w.GatewayFails = share })
		}},
		{"all-refused", []rules.Branch{rules.Routing}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.ReadsGateway, f.Probes = true, false
			status := pick(r, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
			return at(func(w *world.World) { w.GatewayFails, w.GatewayStatus = 1, status })
		}},
		{"queue-full", []rules.Branch{rules.Queueing}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Runtimes, f.Probes = []metrics.Runtime{pick(r, metrics.VLLM, metrics.TGI)}, false
			f.Profile.MaxBatch, f.Profile.MaxQueue = 64, int(between(r, 16, 128))
			if f.Runtimes[0] == metrics.VLLM {
				f.Profile.Release = "0.32.0"
			}
			to := between(r, 60, 150) * float64(f.Replicas)
			return at(func(w *world.World) { w.Traffic.Arrivals = to })
		}},
		{"adapters", []rules.Branch{rules.Memory}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			slots := 1 + r.IntN(4)
			f.Runtimes, f.Profile.Arrivals = []metrics.Runtime{metrics.VLLM}, between(r, 10, 25)
			f.Profile.Adapters, f.Profile.Named = slots, slots
			named := int(between(r, 2, 6) * float64(slots))
			return at(func(w *world.World) { w.Traffic.Named = named })
		}},
	}
}

// ofEngines lists faults of engines and of their hosts.
func ofEngines() []cause {
	slow := func(low, high float64) func(r *rand.Rand, f *world.Fleet) []incident.Fault {
		return func(r *rand.Rand, _ *world.Fleet) []incident.Fault {
			by := between(r, low, high)
			return at(each(func(e *world.Replica) { e.Engine.Slow = by }))
		}
	}
	return []cause{
		{"slow-steps", []rules.Branch{rules.Engine}, false, slow(5, 30)},
		{"slow-host", []rules.Branch{rules.Engine}, false, func(r *rand.Rand, _ *world.Fleet) []incident.Fault {
			wait := time.Duration(between(r, 60, 400)) * time.Millisecond
			return at(some(r, func(e *world.Replica) { e.Engine.Starved = wait }))
		}},
		{"throttled-gpu", []rules.Branch{rules.Hardware}, false, func(r *rand.Rand, _ *world.Fleet) []incident.Fault {
			t := &world.Throttle{Reason: pick(r, "hw_thermal_slowdown", "hw_power_brake_slowdown"), Clock: between(r, 0.08, 0.25)}
			return at(some(r, func(e *world.Replica) { e.GPU.Throttle = t }))
		}},
		{"crowded-gpu", []rules.Branch{rules.Hardware}, false, func(r *rand.Rand, _ *world.Fleet) []incident.Fault {
			by := between(r, 4, 10)
			return at(some(r, func(e *world.Replica) { e.GPU.Others, e.Engine.Slow = 1-1/by, by }))
		}},
		{"crash-loop", []rules.Branch{rules.Engine}, true, func(r *rand.Rand, f *world.Fleet) (all []incident.Fault) {
			f.Replicas = 1 + r.IntN(2)
			every, loading := time.Duration(between(r, 200, 400))*time.Second, time.Duration(between(r, 45, 120))*time.Second
			for t := time.Duration(0); t < lasts; t += every {
				all = append(all, incident.Fault{At: t, Do: func(w *world.World) { w.Replicas[0].Restart(loading) }})
			}
			return all
		}},
		{"cold-start", []rules.Branch{rules.Engine}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Profile.Arrivals = between(r, 4, 15)
			by, loading := between(r, 4, 10), time.Duration(between(r, 45, 120))*time.Second
			return append(at(each(func(e *world.Replica) {
				e.Engine.Slow = by
				e.Restart(loading)
			})), incident.Fault{At: 6 * time.Minute, Do: each(func(e *world.Replica) { e.Engine.Slow = 1 })})
		}},
		{"xid", []rules.Branch{rules.Hardware}, true, func(_ *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Replicas = 1
			return at(func(w *world.World) {
				e := w.Replicas[0]
				e.GPU.Report(79)
				e.GPU.Lost, e.Down = true, true
			})
		}},
		{"hung", []rules.Branch{rules.Engine}, true, func(_ *rand.Rand, _ *world.Fleet) []incident.Fault {
			return at(func(w *world.World) { w.Replicas[0].Engine.Wedged = true })
		}},
		{"pauses", []rules.Branch{rules.Engine}, false, func(r *rand.Rand, _ *world.Fleet) (all []incident.Fault) {
			every, pause := time.Duration(between(r, 400, 900))*time.Second, time.Duration(between(r, 80, 300))*time.Second
			wedge := func(is bool) func(*world.World) { return each(func(e *world.Replica) { e.Engine.Wedged = is }) }
			for t := time.Duration(0); t < lasts; t += every {
				all = append(all, incident.Fault{At: t, Do: wedge(true)}, incident.Fault{At: t + pause, Do: wedge(false)})
			}
			return all
		}},
		{"dead", []rules.Branch{rules.Engine}, true, func(_ *rand.Rand, _ *world.Fleet) []incident.Fault {
			return at(each(func(e *world.Replica) { e.Restart(24 * time.Hour) }))
		}},
	}
}

// ofFleets lists faults of ranks, transfers, nodes, releases and single replicas.
func ofFleets() []cause {
	return []cause{
		{"rank-hung", []rules.Branch{rules.Engine}, true, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Runtimes, f.Ranks, f.Probes, f.Replicas = []metrics.Runtime{metrics.VLLM}, true, false, 2+r.IntN(3)
			return at(func(w *world.World) { w.Replicas[1].Engine.Wedged = true })
		}},
		{"role-dead", []rules.Branch{rules.Engine}, true, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Replicas = 2 + r.IntN(3)
			byRole(r, f)
			prefill := r.IntN(2) == 0
			return at(func(w *world.World) {
				for i, e := range w.Replicas {
					if i < w.Fleet.Prefills == prefill {
						e.Restart(24 * time.Hour)
					}
				}
			})
		}},
		{"all-fail", []rules.Branch{rules.Engine}, false, func(_ *rand.Rand, _ *world.Fleet) []incident.Fault {
			return at(each(func(e *world.Replica) { e.Engine.Broken = true }))
		}},
		{"kv-transfers", []rules.Branch{rules.Memory}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Runtimes = []metrics.Runtime{metrics.VLLM}
			f.Profile.Release, f.Profile.Prefilled, f.Profile.Fetching, f.Profile.Arrivals = "0.26.0", true, 25e9, between(r, 20, 40)
			share := between(r, 0.3, 0.9)
			return at(each(func(e *world.Replica) { e.Engine.Lost = share }))
		}},
		{"evicted", []rules.Branch{rules.Engine}, true, func(_ *rand.Rand, _ *world.Fleet) []incident.Fault {
			return at(each(func(e *world.Replica) { e.Down, e.Gone = true, true }))
		}},
		{"node-lost", []rules.Branch{rules.Engine, rules.Hardware}, true, func(_ *rand.Rand, _ *world.Fleet) []incident.Fault {
			return at(func(w *world.World) {
				w.ExporterDown, w.NodeDown = true, true
				each(func(e *world.Replica) { e.Down, e.Gone = true, true })(w)
			})
		}},
		{"unlicensed", []rules.Branch{rules.Hardware}, false, func(r *rand.Rand, _ *world.Fleet) []incident.Fault {
			by := between(r, 4, 12)
			return append([]incident.Fault{{At: -18 * time.Minute, Do: each(func(e *world.Replica) { e.GPU.Virtual = true })}},
				at(each(func(e *world.Replica) { e.GPU.Unlicensed, e.Engine.Slow = true, by }))...)
		}},
		{"bad-release", []rules.Branch{rules.Release}, false, func(r *rand.Rand, _ *world.Fleet) []incident.Fault {
			by := between(r, 5, 20)
			return at(each(func(e *world.Replica) {
				e.Profile.Release, e.Engine.Slow = "0.17.0", by
				e.Restart(time.Minute)
			}))
		}},
		{"slow-replica", []rules.Branch{rules.Engine}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Replicas = 3 + r.IntN(2)
			by := between(r, 6, 20)
			return at(func(w *world.World) { w.Replicas[1].Engine.Slow = by })
		}},
		{"failing-replica", []rules.Branch{rules.Engine}, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Replicas = 2 + r.IntN(3)
			return at(func(w *world.World) { w.Replicas[1].Engine.Broken = true })
		}},
	}
}

// quiet lists events that need neither a page nor a ticket.
func quiet() []cause {
	return []cause{
		{"quiet-burst", nil, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Profile.Arrivals = min(f.Profile.Arrivals, 6)
			by := between(r, 1.5, 3)
			return at(func(w *world.World) { w.Traffic.Arrivals *= by })
		}},
		{"quiet-night", nil, false, func(_ *rand.Rand, _ *world.Fleet) []incident.Fault {
			return at(func(w *world.World) { w.Traffic.Arrivals /= 10 })
		}},
		{"quiet-cancels", nil, false, func(_ *rand.Rand, _ *world.Fleet) []incident.Fault {
			return at(each(func(e *world.Replica) { e.Engine.Cancel() }))
		}},
		{"quiet-pause", nil, false, func(r *rand.Rand, _ *world.Fleet) []incident.Fault {
			ends := time.Duration(between(r, 120, 1200)) * time.Second
			return append(at(func(w *world.World) { w.Idle = true }), incident.Fault{At: ends, Do: func(w *world.World) { w.Idle = false }})
		}},
		{"quiet-cap", nil, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Profile.Arrivals = min(f.Profile.Arrivals, 6)
			t := &world.Throttle{Reason: "sw_power_cap", Clock: between(r, 0.85, 0.98)}
			return at(each(func(e *world.Replica) { e.GPU.Throttle = t }))
		}},
		{"quiet-release", nil, false, func(_ *rand.Rand, f *world.Fleet) (all []incident.Fault) {
			f.Replicas = 3
			for i := range f.Replicas {
				all = append(all, incident.Fault{At: time.Duration(3*i) * time.Minute, Do: func(w *world.World) {
					w.Replicas[i].Profile.Release = "0.17.0"
					w.Replicas[i].Restart(time.Minute)
				}})
			}
			return all
		}},
		{"quiet-xid", nil, false, func(r *rand.Rand, _ *world.Fleet) []incident.Fault {
			xid := pick(r, 13, 31, 43)
			return at(func(w *world.World) { w.Replicas[0].GPU.Report(xid) })
		}},
		{"quiet-misses", nil, false, func(r *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Replicas = 2 + r.IntN(3)
			return at(func(w *world.World) { w.Replicas[1].Misses = 4 })
		}},
		{"quiet-restart", nil, false, func(_ *rand.Rand, f *world.Fleet) []incident.Fault {
			f.Replicas = 3
			return at(func(w *world.World) { w.Replicas[0].Restart(time.Minute) })
		}},
	}
}

// at returns a fault that changes the world at the onset.
func at(do func(*world.World)) []incident.Fault { return []incident.Fault{{Do: do}} }

// each returns a change of the world that applies a change to every replica.
func each(do func(*world.Replica)) func(*world.World) {
	return func(w *world.World) {
		for _, r := range w.Replicas {
			do(r)
		}
	}
}

// some returns a change of the world that applies a change to every replica or, with the same probability, only to the
// first.
func some(r *rand.Rand, do func(*world.Replica)) func(*world.World) {
	if r.IntN(2) == 0 {
		return each(do)
	}
	return func(w *world.World) { do(w.Replicas[0]) }
}

// between draws a number from an interval, uniformly on a logarithmic scale.
func between(r *rand.Rand, low, high float64) float64 {
	return low * math.Pow(high/low, r.Float64())
}

// pick draws one of several values.
func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }
