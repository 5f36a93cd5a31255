package incident

import (
	"net/http"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Incidents returns the drill's incidents. Traffic comes first, then engines, GPUs and the exporter. Incidents that
// must not page come last.
func Incidents() []Incident {
	return slices.Concat(demandGrows(), cachesFail(), loadMeetsLimits(), enginesHang(), gatewaysFail(), hostsStarve(),
		modelsDie(), replicasSlow(), memoryFails(), fabricWears(), exportersFail(), harmless())
}

// burst is six times the usual demand for twenty minutes.
func burst() []Fault {
	return []Fault{
		fault(0, func(w *world.World) { w.Traffic.Arrivals *= 6 }),
		fault(20*minute, func(w *world.World) { w.Traffic.Arrivals /= 6 }),
	}
}

// demandGrows are incidents in which requests become more numerous or different.
func demandGrows() []Incident {
	return []Incident{
		{
			Name: "traffic-burst", Story: "demand rises to six times its level, above what the replicas carry",
			Fleet: chat(), Lasts: 70 * minute, Faults: burst(),
			Page: rules.FastBurn, Clue: "arrivals_grew",
			Shows: `^Look first at: queueing\. ([\d.]+k? times as many requests arrive|More requests wait or)`,
		},
		{
			Name: "long-prompts", Story: "a client sends prompts ten times as long",
			Fleet: chat(), Lasts: 50 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.Traffic.PromptTokens *= 10 })},
			Page:   rules.FastBurn, Clue: "prompts_grew",
			Lever: Lever{
				"Stabilise",
				[]string{"Cap"},
				"prompts are cut at the gateway to the length that they had",
				fault(10*minute, func(w *world.World) { w.Traffic.PromptTokens /= 10 }),
			},
		},
		{
			Name: "prefix-collapse", Story: "a changed template makes the cached heads of long prompts unrecognisable",
			Fleet: with(chat(), func(f *world.Fleet) {
				f.Profile.Arrivals *= 0.65
				f.Profile.PromptTokens, f.Profile.CacheHits, f.Profile.Budget = 3000, 0.8, 768
			}), Lasts: 50 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.Traffic.CacheHits = 0 })},
			Page:   rules.FastBurn, Cause: rules.PrefixHitCollapse, Shows: `prefix cache hits [5-9]\d% → ([0-3]?\d(\.\d+)?|\d\.\d+e-\d+)%`,
			Lever: Lever{
				"LLMPrefixHitCollapse",
				[]string{"Levers"},
				"the gateway renders the old template again",
				fault(25*minute, func(w *world.World) { w.Traffic.CacheHits = 0.8 }),
			},
		},
		{
			Name: "prefill-interference", Story: "prompts three times as long in steps that were made large for throughput",
			Fleet: with(chat(), func(f *world.Fleet) { f.Profile.Budget = 8192 }), Lasts: 50 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.Traffic.PromptTokens *= 3 })},
			Page:   rules.FastBurn, Clue: "prompts_grew",
		},
		{
			Name: "batch-knee", Story: "a batch limit of 512 on a GPU of little bandwidth meets seven times the demand",
			Fleet: world.Fleet{Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM}, Profile: edge()}, Lasts: 40 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.Traffic.Arrivals *= 7 })},
			Page:   rules.FastBurn, Clue: "arrivals_grew",
		},
		{
			Name: "kv-thrash", Story: "outputs six times as long fill a KV cache that was configured small",
			Fleet: with(chat(), func(f *world.Fleet) { f.Profile.Blocks, f.Profile.OutputLimit = 6000, 4096 }), Lasts: 40 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.Traffic.OutputTokens *= 6 })},
			Page:   rules.FastBurn, Clue: "preemptions", Shows: `each request is preempted \d\.\d times`,
			Lever: Lever{
				"Stabilise",
				[]string{"Cap"},
				"the gateway caps output at 256 tokens",
				fault(10*minute, func(w *world.World) { w.Traffic.OutputLimit = 256 }),
			},
		},
	}
}

// cachesFail are incidents of caches, of memory and of draft tokens.
func cachesFail() []Incident {
	return []Incident{
		{
			Name:  "kv-transfer-failures",
			Story: "three of five KV transfers from prefill engines fail; the decode engines, sized without prefill, compute the prompts themselves",
			Fleet: decoding(), Lasts: 40 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) { r.Engine.Lost = 0.6 }))},
			Page:   rules.FastBurn, Cause: rules.KVTransferFailures, Shows: `\d\.\d+ KV transfers per request fail`,
		},
		{
			Name:  "offload-saturated",
			Story: "copies to host memory slow down to 100 MB/s, a quarter of what is to be stored there; what was stored comes back as before",
			Fleet: offloading(), Lasts: 60 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) { r.Engine.Storing = 1e8 }))},
			Cause:  rules.KVOffloadSaturated,
		},
		{
			Name: "model-left-gpu", Story: "Ollama loads its model again after its container lost the GPU: the CPU computes, twenty times " +
				"slower, and nothing fails",
			Fleet: onDemand(), Lasts: 30 * minute,
			Faults: []Fault{fault(0, one(0, func(r *world.Replica) { r.LeaveGPU(1, 20) }))},
			Cause:  rules.EngineMemoryLost,
		},
		{
			Name: "kv-leak", Story: "one of four engines does not free the KV cache of one request in 200; after three hours its cache is full",
			Fleet: chat(), Lasts: 165 * minute,
			Faults: []Fault{fault(0, one(0, func(r *world.Replica) { r.Engine.Leak = 1. / 200 }))},
			Cause:  rules.EngineMemoryLost,
		},
		{
			Name: "runaway-generation", Story: "the model no longer stops: most outputs run into the limit",
			Fleet: chat(), Lasts: 50 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.Traffic.OutputTokens = 5000 })},
			Page:   rules.FastBurn, Cause: rules.RunawayGeneration,
		},
		{
			Name: "speculation-collapse", Story: "the target model changes and accepts one proposed token in ten",
			Fleet: with(chat(), func(f *world.Fleet) { f.Profile.Draft, f.Profile.Acceptance = 3, 0.7 }), Lasts: 50 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) { r.Engine.Acceptance = 0.1 }))},
			Cause:  rules.SpeculationCollapse,
		},
		{
			Name: "drafts-refused", Story: "an SGLang accepts one proposed token in ten; it counts no draft tokens and shows a gauge",
			Fleet: with(chat(), func(f *world.Fleet) {
				f.Runtimes, f.Profile.Draft, f.Profile.Acceptance = []metrics.Runtime{metrics.SGLang}, 3, 0.7
			}), Lasts: 50 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) { r.Engine.Acceptance = 0.1 }))},
			Cause:  rules.SpeculationCollapse,
		},
	}
}

// loadMeetsLimits are incidents in which engines reach their limits, incidents of several engines, and bad releases.
func loadMeetsLimits() []Incident {
	return []Incident{
		{
			Name: "rejections", Story: "demand above capacity on an engine that refuses what its queue cannot hold",
			Fleet: with(chat(), func(f *world.Fleet) {
				f.Runtimes, f.Profile.MaxBatch, f.Profile.MaxQueue, f.Profile.Patience = []metrics.Runtime{metrics.TGI}, 64, 96, 0
				// TGI reports neither TTFT nor ITL.
				f.Objectives = slices.DeleteFunc(slo.Defaults(), func(o slo.Objective) bool { return o.Signal.Latency() })
			}), Lasts: 40 * minute, Faults: burst(),
			Page: rules.FastBurn, Clue: "queue_long",
		},
		{
			Name: "mixed-fleet", Story: "the same burst on a model that every runtime with a page serves side by side",
			Fleet: mixed(), Lasts: 40 * minute, Faults: burst(),
			Page: rules.FastBurn, Clue: "queue_long",
		},

		{
			Name: "bad-release", Story: "a rollout to a release with the KV cache in FP8, whose steps take five times as long",
			Fleet: chat(), History: 7*time.Hour + 30*minute, Lasts: 60 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) {
				r.Profile.Release, r.Profile.KVCacheDtype, r.Engine.Slow = "0.17.0", "fp8", 5
				r.Restart(time.Minute)
			}))},
			Page: rules.FastBurn, Cause: rules.ReleaseRegression,
			Shows: `Changed in 6h: kv_cache_dtype auto → fp8 on 4, version 0\.16\.0 → 0\.17\.0 on 4`,
			Lever: Lever{
				"Rollback",
				[]string{"What changed?", "Nothing else controls the deployment"},
				"the rollout is undone",
				fault(15*minute, every(func(r *world.Replica) {
					r.Profile.Release, r.Profile.KVCacheDtype, r.Engine.Slow = drill.NewProfile("").Release, "", 1
					r.Restart(time.Minute)
				})),
			},
		},
		{
			Name: "bad-canary", Story: "one replica in four gets a release whose steps take five times as long, before the others",
			Fleet: chat(), History: 7*time.Hour + 30*minute, Lasts: 40 * minute,
			Faults: []Fault{fault(0, one(1, func(r *world.Replica) {
				r.Profile.Release, r.Engine.Slow = "0.17.0", 5
				r.Restart(time.Minute)
			}))},
			Page: rules.FastBurn, Cause: rules.ReleaseRegression, Shows: `version 0\.16\.0 → 0\.17\.0 on 1`,
		},
	}
}

// enginesHang are incidents of engines that make no progress.
func enginesHang() []Incident {
	return []Incident{
		{
			Name: "wedged-engine", Story: "the core of one engine hangs; its health endpoint and its page go on answering",
			Fleet: chat(), Lasts: 40 * minute,
			Faults: []Fault{fault(0, one(1, func(r *world.Replica) { r.Engine.Wedged = true }))},
			Page:   rules.EngineStalled, Within: 2 * minute, Cause: rules.EngineStalled,
			Lever: newPod("LLMEngineStalled"),
		},
		{
			Name: "wedged-rank", Story: "one of four data-parallel ranks hangs; the others serve, and the page that they share moves on",
			Fleet: with(chat(), func(f *world.Fleet) { f.Ranks, f.LeastLoaded = true, true }), Lasts: 30 * minute,
			Faults: []Fault{fault(0, one(2, func(r *world.Replica) { r.Engine.Wedged = true }))},
			Page:   rules.EngineStalled, Within: 2 * minute, Cause: rules.EngineStalled,
		},
		{
			Name: "wedged-model", Story: "one request hangs the core of every engine that it is retried on: first two of four, then a third",
			Fleet: chat(), Lasts: 40 * minute,
			Faults: []Fault{
				fault(0, one(0, func(r *world.Replica) { r.Engine.Wedged = true })),
				fault(0, one(1, func(r *world.Replica) { r.Engine.Wedged = true })),
				fault(10*minute, one(2, func(r *world.Replica) { r.Engine.Wedged = true })),
			},
			Page: rules.ModelStalled, Within: 2 * minute, Cause: rules.ModelStalled,
		},
		{
			Name: "wedged-at-rest", Story: "the core of the only engine hangs while nobody asks; what comes then is in none of its gauges, " +
				"which say that nothing runs or waits",
			Fleet: with(chat(), func(f *world.Fleet) { f.Replicas = 1 }), Lasts: 30 * minute,
			Faults: []Fault{
				fault(-10*minute, func(w *world.World) { w.Idle = true }),
				fault(-2*minute, one(0, func(r *world.Replica) { r.Engine.Wedged = true })),
				fault(0, func(w *world.World) { w.Idle = false }),
			},
			Page: rules.ModelStalled, Within: 4 * minute, Cause: rules.ModelStalled,
		},
		{
			Name: "wedged-unseen", Story: "the core of one engine hangs that counts no steps; its page shows the last numbers for ever, and " +
				"only a probe asks for more",
			Fleet: with(chat(), func(f *world.Fleet) { f.Runtimes, f.Probes = []metrics.Runtime{metrics.TensorRTLLM}, true }), Lasts: 40 * minute,
			Faults: []Fault{fault(0, one(1, func(r *world.Replica) { r.Engine.Wedged = true }))},
			Page:   rules.ProbeFailing, Or: rules.EngineStalled, Within: 150 * time.Second, Cause: rules.ProbeFailing,
			Lever: newPod("LLMProbeFailing"),
		},
	}
}

// gatewaysFail are incidents of gateways, which are between clients and engines.
func gatewaysFail() []Incident {
	return []Incident{
		{
			Name: "failing-gateway", Story: "the gateway answers a third of all requests with 502 and passes on the others; the engines fail none",
			Fleet: with(chat(), func(f *world.Fleet) { f.ProbesGateway, f.ReadsGateway = true, true }), Lasts: 40 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.GatewayFails = 1. / 3 })},
			Page:   rules.FastBurn, Or: rules.ProbeFailing, Within: 150 * time.Second, Clue: "gateway_fails",
			Shows: `^Look first at: routing\. Gateway gateway:80 on .* fails far more requests`,
		},
		{
			Name: "dead-gateway", Story: "the gateway takes no more connections; the engines behind it are idle, and their " +
				"metrics say that all is well",
			Fleet: with(chat(), func(f *world.Fleet) { f.ProbesGateway, f.ReadsGateway = true, true }), Lasts: 30 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.GatewayDead = true })},
			Page:   rules.FastBurn, Within: 150 * time.Second, Cause: rules.GatewayDown, Shows: `^Look first at: routing\. Gateway gateway:80 `,
		},
		{
			Name: "router-without-workers",
			Story: "the circuits of the router open on clients' bad requests and stay open: it answers every request with 503, and counts each " +
				"as it comes; the engines are idle and well",
			Fleet: with(chat(), func(f *world.Fleet) { f.ReadsGateway, f.Gateway = true, metrics.SMG }), Lasts: 40 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.GatewayFails, w.GatewayStatus = 1, http.StatusServiceUnavailable })},
			Page:   rules.FastBurn, Clue: "gateway_fails",
		},
		{
			Name: "gateway-cools-down",
			Story: "all engines of a model die behind a gateway, which lets each cool down after a few failures and answers 429 meanwhile, " +
				"without a code on its page",
			Fleet: with(chat(), func(f *world.Fleet) { f.ReadsGateway = true }), Lasts: 40 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) { r.Restart(24 * time.Hour) }))},
			Page:   rules.FastBurn, Cause: rules.ModelDown,
		},
		{
			Name: "last-worker-dies",
			Story: "the last worker behind each frontend of Dynamo dies; the frontends answer 503 for five seconds and 404 from then on, which " +
				"they count nowhere, and their pages stay up",
			Fleet: with(chat(), func(f *world.Fleet) { f.Runtimes = []metrics.Runtime{metrics.Dynamo} }), Lasts: 40 * minute,
			Faults: []Fault{
				fault(-30*minute, one(0, func(r *world.Replica) { r.Mistype(3) })),
				fault(0, every(func(r *world.Replica) { r.LoseWorker() })),
			},
			Page: rules.ModelDown, Or: rules.FastBurn, Within: rules.ModelDown.For + 2*rules.Interval, Cause: rules.ModelDown,
		},
		{
			Name: "buffering-proxy", Story: "a proxy collects each answer before it passes it on",
			Fleet: with(chat(), func(f *world.Fleet) { f.ProbesGateway = true }), Lasts: 60 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.GatewayBuffers = true })},
			Cause:  rules.ProbeDisagrees,
		},
	}
}

// hostsStarve are incidents of hosts with too little CPU time, and of an engine that is busy with one long step.
func hostsStarve() []Incident {
	return []Incident{
		{
			Name: "long-prefill", Story: "one prompt of 300,000 tokens has a slow engine to itself for minutes: no token, and no step that the " +
				"engine counts",
			Fleet: with(chat(), func(f *world.Fleet) { f.Replicas = 1 }), Lasts: 30 * minute, Quiet: true,
			Faults: []Fault{
				fault(-3*minute, func(w *world.World) { w.Idle = true }),
				fault(0, func(w *world.World) {
					w.Replicas[0].Engine.Slow = 20
					w.Replicas[0].Engine.Offer(&drill.Request{Arrival: w.Now(), Prompt: 300_000, Output: 100})
				}),
			},
		},
		{
			Name: "cpu-starved", Story: "a neighbour takes the CPU of one pod: each step waits 60 ms for it, and its GPU idles",
			Fleet: chat(), Lasts: 40 * minute,
			Faults: []Fault{fault(0, one(1, func(r *world.Replica) { r.Engine.Starved = 60 * time.Millisecond }))},
			Page:   rules.FastBurn, Clue: "host_bound", Shows: `uses its GPU \d\d% of the time`,
		},
	}
}

// modelsDie are incidents of models that no engine serves.
func modelsDie() []Incident {
	return []Incident{
		{
			Name: "model-down", Story: "a rollout that never becomes ready",
			Fleet: chat(), Lasts: 30 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) { r.Restart(24 * time.Hour) }))},
			Page:   rules.FastBurn, Within: rules.ModelDown.For + rules.Interval, Cause: rules.ModelDown,
		},
		{
			Name: "pods-evicted", Story: "the pods of a model are evicted, and there is no room for their successors",
			Fleet: chat(), Lasts: 30 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) { r.Down, r.Gone = true, true }))},
			Page:   rules.FastBurn, Within: 3*minute + rules.ModelDown.For + rules.Interval, Cause: rules.ModelDown,
		},
		{
			Name: "power-loss", Story: "the only node loses power: engines, GPUs and the exporter are gone at once",
			Fleet: chat(), Lasts: 30 * minute,
			Faults: []Fault{fault(0, func(w *world.World) {
				w.ExporterDown, w.NodeDown = true, true
				every(func(r *world.Replica) { r.Down, r.Gone = true, true })(w)
			})},
			Page: rules.FastBurn, Within: 3*minute + rules.ModelDown.For + rules.Interval, Cause: rules.ModelDown,
		},
		{
			Name: "crash-loop", Story: "one engine dies every six minutes and takes 90 s to load",
			Fleet: chat(), Lasts: 50 * minute, Faults: crashes(2, 6*minute, 90*time.Second, 8),
			Cause: rules.EngineCrashLoop,
		},
		{
			Name:  "only-replica-crashes",
			Story: "the only engine of a model dies every five minutes and takes 75 s to load: each time too short for LLMModelDown",
			Fleet: with(chat(), func(f *world.Fleet) { f.Replicas, f.Profile.Arrivals = 1, f.Profile.Arrivals/4 }), Lasts: 50 * minute,
			Faults: crashes(0, 5*minute, 75*time.Second, 10),
			Page:   rules.FastBurn, Within: 4 * minute, Clue: "was_down",
		},
		{
			Name: "cold-start", Story: "all replicas start anew, and are six times as slow until their kernels are compiled",
			Fleet: chat(), Lasts: 40 * minute,
			Faults: []Fault{
				fault(0, every(func(r *world.Replica) {
					r.Engine.Slow = 6
					r.Restart(90 * time.Second)
				})),
				fault(6*minute, every(func(r *world.Replica) { r.Engine.Slow = 1 })),
			},
			Page: rules.FastBurn, Clue: "cold_start",
		},
		{
			Name: "scale-from-zero", Story: "requests for a model without a replica; they are held until one has loaded",
			Fleet: with(chat(), func(f *world.Fleet) { f.Replicas, f.Objectives = 1, mayBeAbsent(slo.Defaults()) }), History: 3 * time.Hour,
			Lasts: 40 * minute,
			Faults: []Fault{
				fault(-90*minute, func(w *world.World) { w.Idle, w.Hold = true, true }),
				fault(-75*minute, one(0, func(r *world.Replica) { r.Down, r.Gone = true, true })),
				fault(0, func(w *world.World) {
					w.Idle = false
					w.Replicas[0].Restart(90 * time.Second)
				}),
			},
			Page: rules.FastBurn, Clue: "cold_start",
		},
	}
}

// replicasSlow are incidents of single replicas, of heat and of a GPU that falls off the bus.
func replicasSlow() []Incident {
	return []Incident{
		{
			Name: "bad-replica", Story: "one replica of eight takes eight times as long for each step",
			Fleet: with(chat(), func(f *world.Fleet) { f.Replicas = 8 }), Lasts: 40 * minute,
			Faults: []Fault{fault(0, one(3, func(r *world.Replica) { r.Engine.Slow = 8 }))},
			Page:   rules.FastBurn, Clue: "slow_decoder",
		},
		{
			Name: "black-hole", Story: "one replica of ten answers each request with an error, at once; the router sends to the replica that " +
				"holds fewest",
			Fleet: with(chat(), func(f *world.Fleet) { f.Replicas, f.LeastLoaded = 10, true }), Lasts: 40 * minute,
			Faults: []Fault{fault(0, one(3, func(r *world.Replica) { r.Engine.Broken = true }))},
			Page:   rules.FastBurn, Clue: "failing_replica",
		},

		{
			Name: "thermal-throttle", Story: "the cooling of the node fails: hardware slowdown to 345 of 1980 MHz",
			Fleet: chat(), Lasts: 40 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) {
				r.GPU.Throttle = &world.Throttle{Reason: "hw_thermal_slowdown", Clock: 345. / 1980}
			}))},
			Page: rules.FastBurn, Clue: "gpu_throttled",
			Shows: `All GPUs of the model are slowed down, \d of them on gpu-node-1:9844 \(hw_thermal_slowdown\)`,
			Lever: Lever{
				"LLMGPUSlowed",
				[]string{"Levers"},
				"all GPUs of the node are throttled, so there is nothing to drain to; the data centre restores the cooling",
				fault(20*minute, every(func(r *world.Replica) { r.GPU.Throttle = nil })),
			},
		},
		{
			Name: "power-brake", Story: "a power supply fails: all GPUs of the node go down to a quarter of their clock",
			Fleet: chat(), Lasts: 40 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) {
				r.GPU.Throttle = &world.Throttle{Reason: "hw_power_brake_slowdown", Clock: 0.25}
			}))},
			Page: rules.FastBurn, Clue: "gpu_throttled",
			Shows: `All GPUs of the model are slowed down, \d of them on gpu-node-1:9844 \(hw_power_brake_slowdown\)`,
		},
		{
			Name: "vgpu-unlicensed", Story: "the licence server is gone: all virtual GPUs lose their licence, and the driver lets them do a " +
				"quarter of the work",
			Fleet: chat(), Lasts: 40 * minute,
			Faults: []Fault{
				fault(-2*time.Hour, every(func(r *world.Replica) { r.GPU.Virtual = true })),
				fault(0, every(func(r *world.Replica) { r.GPU.Unlicensed, r.Engine.Slow = true, 4 })),
			},
			Page: rules.FastBurn, Clue: "gpu_throttled",
			Shows: `All GPUs of the model are slowed down, \d of them on gpu-node-1:9844 \(vgpu_unlicensed\)`,
		},
		{
			Name: "noisy-neighbour", Story: "three jobs start to compute on the GPU of one replica: each step takes 6.5 times as long, as on an " +
				"H200 where the time between tokens grew from 5.8 to 38 ms",
			Fleet: with(chat(), func(f *world.Fleet) { f.SeesProcesses = true }), Lasts: 40 * minute,
			Faults: []Fault{fault(0, one(1, func(r *world.Replica) { r.GPU.Others, r.Engine.Slow = 0.85, 6.5 }))},
			Page:   rules.FastBurn, Clue: "gpu_crowded",
			Shows: `Other processes use 85% of GPU \d on gpu-node-1:9844`,
		},
		{
			Name: "xid-79", Story: "a GPU falls off the bus and takes its engine with it",
			Fleet: chat(), Lasts: 40 * minute,
			Faults: []Fault{fault(0, one(2, func(r *world.Replica) {
				r.GPU.Report(79)
				r.GPU.Lost, r.Down = true, true
			}))},
			Page: rules.GPUFailed, Within: 2 * rules.Interval, Cause: rules.GPUFailed,
		},
	}
}

// memoryFails are incidents of the memory of GPUs.
func memoryFails() []Incident {
	return []Incident{
		{
			Name: "row-remap-pending", Story: "an uncorrectable memory error; its row waits for a reset to be remapped",
			Fleet: chat(), Lasts: 30 * minute,
			Faults: []Fault{fault(0, one(2, func(r *world.Replica) { r.GPU.ECC, r.GPU.RemapPending = 1, true }))},
			Cause:  rules.GPUNeedsService,
		},
		{
			Name: "row-remap-failure", Story: "an uncorrectable memory error finds no spare row",
			Fleet: chat(), Lasts: 30 * minute,
			Faults: []Fault{fault(0, one(2, func(r *world.Replica) { r.GPU.ECC, r.GPU.RemapFailed = 1, true }))},
			Page:   rules.GPUFailed, Within: 2 * rules.Interval, Cause: rules.GPUFailed,
		},
		{
			Name: "unrepairable-memory", Story: "an uncorrectable memory error, for which there is neither a spare row nor a spare channel",
			Fleet: chat(), Lasts: 20 * minute,
			Faults: []Fault{fault(0, one(2, func(r *world.Replica) { r.GPU.ECC, r.GPU.Unrepairable = 1, true }))},
			Page:   rules.GPUFailed, Within: 2 * rules.Interval, Cause: rules.GPUFailed,
		},
		{
			Name: "repair-pending", Story: "a memory channel is to be retired: it waits for a reset, and the driver asks for one after a drain",
			Fleet: chat(), Lasts: 20 * minute,
			Faults: []Fault{fault(0, one(2, func(r *world.Replica) {
				r.GPU.Report(160)
				r.GPU.RepairPending, r.GPU.Drain = true, true
			}))},
			Cause: rules.GPUNeedsService,
		},
	}
}

// fabricWears are incidents of links and of drivers.
func fabricWears() []Incident {
	return []Incident{
		{
			Name: "ecc-storm", Story: "4,647 memory errors a second are corrected on one GPU, none on its neighbours",
			Fleet: chat(), Lasts: 30 * minute,
			Faults: []Fault{fault(0, one(2, func(r *world.Replica) { r.GPU.Corrected = 4647 }))},
			Cause:  rules.GPUNeedsService,
		},
		{
			Name: "nvlink-wear", Story: "an NVLink replays more every day, a hundredth of a packet per second today; then it recovers three times",
			Fleet: chat(), Lasts: 100 * minute, Replays: []float64{1, 1, 1, 1.5, 2, 3},
			Faults: []Fault{
				fault(-2*time.Hour, one(0, func(r *world.Replica) { r.GPU.Replays = 3 })),
				fault(0, one(0, func(r *world.Replica) { r.GPU.Replays = 40 })),
				fault(70*minute, one(0, func(r *world.Replica) { r.GPU.Recoveries++ })),
				fault(77*minute, one(0, func(r *world.Replica) { r.GPU.Recoveries++ })),
				fault(84*minute, one(0, func(r *world.Replica) { r.GPU.Recoveries++ })),
			},
			Cause: rules.GPULinkFault,
		},
		{
			Name: "fabric-manager", Story: "the fabric manager does not come back from maintenance: the GPUs never register; engines on one " +
				"GPU do not notice",
			Fleet: chat(), Lasts: 20 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) { r.GPU.Unregistered = true }))},
			Cause:  rules.GPULinkFault,
		},
		{
			Name: "persistence-off", Story: "an engine and the exporter are rolled out at once, twice, on a node without persistence mode: the " +
				"driver lets go of the GPU",
			Fleet: chat(), Lasts: 40 * minute,
			Faults: slices.Concat([]Fault{fault(-2*time.Hour, every(func(r *world.Replica) { r.GPU.Forgets = true }))},
				rollout(2, 0), rollout(2, 20*minute)),
			Cause: rules.GPUNeedsService,
		},
	}
}

// exportersFail are incidents of the exporter.
func exportersFail() []Incident {
	return []Incident{
		{
			Name: "exporter-restart", Story: "the cooling fails, and the exporter restarts before and after the page",
			Fleet: chat(), Lasts: 40 * minute,
			Faults: []Fault{
				fault(0, every(func(r *world.Replica) {
					r.GPU.Throttle = &world.Throttle{Reason: "hw_thermal_slowdown", Clock: 345. / 1980}
				})),
				fault(5*minute, func(w *world.World) { w.ExporterDown = true }),
				fault(8*minute, func(w *world.World) { w.ExporterDown = false }),
				fault(20*minute, func(w *world.World) { w.ExporterDown = true }),
				fault(21*minute, func(w *world.World) { w.ExporterDown = false }),
			},
			Page: rules.FastBurn, Clue: "gpu_throttled",
		},
		{
			Name: "blocked-probes", Story: "a new network policy lets the exporter read pages, and nothing else",
			Fleet: with(chat(), func(f *world.Fleet) { f.Probes, f.ProbesGateway = true, true }), Lasts: 40 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.ProbesFail = true })},
			Cause:  rules.ProbeBroken,
		},
	}
}
