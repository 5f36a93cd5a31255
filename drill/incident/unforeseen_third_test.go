package incident_test

import (
	"net/http"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// This file holds fourteen incidents that a third tester took from public threads. The right answers were committed
// before the first play, in which the pages of seven of the eleven faults were right, and the harmless incidents woke
// nobody.

// at1 applies a change to one replica.
func at1(at time.Duration, i int, do func(r *world.Replica)) incident.Fault {
	return then(at, func(w *world.World) { do(w.Replicas[i]) })
}

// even returns equal shares for n replicas.
func even(n int) []float64 { return slices.Repeat([]float64{1}, n) }

// unforeseenThird are from a third tester.
func unforeseenThird() []unforeseen {
	return slices.Concat(thirdOfEngines(), thirdOfGateways(), thirdHarmless())
}

// thirdOfEngines are faults of engines, of memory, of releases and of hardware.
func thirdOfEngines() []unforeseen {
	vllm, sglang := []metrics.Runtime{metrics.VLLM}, []metrics.Runtime{metrics.SGLang}

	tenants := profile("llama-3.1-8b-lora", 6)
	tenants.Release, tenants.Adapters, tenants.Named, tenants.OutputTokens, tenants.OutputLimit = "0.26.0", 8, 8, 600, 2048
	slots := unforeseen{
		name: "sixteen-adapters-in-eight-slots", source: "sgl-project/sglang 13349 (8 adapters in 8 slots: median TTFT 39.65 ms; 16 adapters: 6278 ms); vllm-project/vllm 5830",
		story: "eight further tenants get an adapter of their own: sixteen adapters share eight slots; as many requests as ever, of the same lengths; " +
			"requests wait for a slot beside a KV cache that is nearly empty",
		right: "page; queueing (or memory): requests wait for a LoRA adapter's slot (max-loras 8), although the KV cache has room. Not more demand " +
			"(arrivals are unchanged), not slow engines, not a full KV cache. Triage at 6 and at 15 minutes: the same, with the adapters named",
		page:    `(queueing|memory)\. .*([Aa]dapter|LoRA)`,
		fleet:   world.Fleet{Profile: tenants, Replicas: 2, Runtimes: vllm},
		history: 65 * minute, lasts: 40 * minute, options: play.Options{WithoutGPUs: true},
		faults: []incident.Fault{then(0, func(w *world.World) { w.Traffic.Named = 16 })},
	}

	drafts := profile("gpt-oss-120b-eagle", 20)
	drafts.PromptTokens, drafts.OutputTokens, drafts.Draft, drafts.Acceptance = 200, 400, 3, 0.7
	accepts := unforeseen{
		name: "acceptance-erodes", source: "vllm-project/vllm 41838 (the acceptance length falls smoothly, 3.07 to 2.8 for one model, at 10 to 20 requests a second; only a restart helps); 26191",
		story: "within eight minutes all three busy engines accept ever fewer proposed tokens, from 2.5 tokens per step to 1.1: at the same 60 requests a second " +
			"each answer needs twice as many steps, batches fill, and requests queue",
		right: "page; decode: proposed tokens are refused (70% to 10%). A queue is the consequence: «more requests arrive» and «too few replicas» are wrong, since " +
			"arrivals and lengths are unchanged. Triage at 15 minutes: decode, with the acceptance; at 6 minutes decode or no verdict yet",
		page:    `(decode|engine)\. .*(?i:draft|accept|specul|proposed)`,
		fleet:   world.Fleet{Profile: drafts, Replicas: 3, Runtimes: vllm},
		history: 65 * minute, lasts: 45 * minute,
	}
	for i, share := range []float64{0.45, 0.3, 0.2, 0.12, 0.05} {
		accepts.faults = append(accepts.faults, then(time.Duration(i)*2*minute, all4(func(r *world.Replica) { r.Engine.Acceptance = share })))
	}

	fp8 := profile("qwen2.5-7b-l40s", 9)
	fp8.GPU, fp8.Weights, fp8.Budget = drill.L40S, drill.Llama8BFP8, 512
	unquantised := unforeseen{
		name: "fp8-flag-dropped", source: "sgl-project/sglang 8337 (13.73 GB with BF16, 19.99 GB with --quantization fp8, so that the flag looks like a waste); 11045 (7.5 and 8.4 ms per token)",
		story: "a rollout of the same version without --quantization fp8, one of three SGLang engines after the other: weights are twice as large, each step takes " +
			"twice as long at the same load, and gaps between tokens exceed 50 ms",
		right: "page; release: the setting quantization changed from fp8 to none on all three. Half right: engine (steps are slower at an unchanged load) without the " +
			"setting. Not demand, not prefill. Triage at 15 minutes: release, with a Prometheus; engine or decode at best from two readings",
		page:    `release\. .*quantization`,
		fleet:   world.Fleet{Profile: fp8, Replicas: 3, Runtimes: sglang},
		history: 2 * time.Hour, lasts: 60 * minute,
	}
	for i := range 3 {
		unquantised.faults = append(unquantised.faults, at1(time.Duration(i)*150*time.Second, i, func(r *world.Replica) {
			r.Profile.Weights = drill.Llama8B
			r.Profile.GPU.FLOPS /= 2
			r.Restart(75 * time.Second)
		}))
	}

	eos := unforeseen{
		name: "stop-token-lost-in-upgrade", source: "NVIDIA/TensorRT-LLM 280, 2120 (answers go on to the limit); huggingface/lighteval 1279 (7168 tokens, the cap, in place of 2654; 145 s in place of 55 s)",
		story: "TensorRT-LLM 1.3.0 to 1.3.1 on three engines within four minutes; the new image ignores the end of a turn, and most answers run to their limit of " +
			"1024 tokens; batches fill, and first tokens wait",
		right: "page; release (version 1.3.0 to 1.3.1 on 3) or behaviour (outputs run to their limit), best both. Not «more requests», not slow engines: steps take as " +
			"long as their batches need. Triage at 15 minutes: release or behaviour; with two readings behaviour, or queueing with low confidence",
		page:    `(release\. .*1\.3\.1|behaviour\. )`,
		fleet:   world.Fleet{Profile: profile("gemma-4-12b-trt", 15), Replicas: 3, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}},
		history: 2 * time.Hour, lasts: 40 * minute,
	}
	for i, tokens := range []float64{1000, 3000, 5000} {
		at := time.Duration(i) * 90 * time.Second
		eos.faults = append(eos.faults, at1(at, i, func(r *world.Replica) {
			r.Profile.Release = "1.3.1"
			r.Restart(minute)
		}), then(at+minute, func(w *world.World) { w.Traffic.OutputTokens = tokens }))
	}

	pool := unforeseen{
		name: "restart-beside-a-dead-process", source: "ai-dynamo/dynamo 2894, vllm-project/vllm 42017 (a crashed engine's memory is not freed); NVIDIA/TensorRT-LLM 2398 (0.11 GiB available: a pool of 18 blocks), 16827 (a pool below the working set: TPOT p99 122 to 1111 ms)",
		story: "one of three TensorRT-LLM engines crashes and is back after two minutes, but its dead predecessor still holds GPU memory: 90% of what is left is a " +
			"KV pool of 12,800 tokens in place of 404,000; it holds half of the requests it gets, the others wait there; its two peers are well",
		right: "page; memory: the KV cache of replica 1 is full (its pool is a thirtieth of its peers'). Right too: release, if it says that replica 1's KV blocks changed " +
			"with its restart. Not routing (each replica gets a third), not demand. In the first three minutes «replica 1 stopped answering» is right. Triage at 6 " +
			"and 15 minutes: memory of replica 1",
		page:    `(memory\. .*gemma-3-12b-trt-1|release\. .*(?i:block|KV))`,
		fleet:   world.Fleet{Profile: profile("gemma-3-12b-trt", 14), Replicas: 3, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}},
		history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{at1(0, 1, func(r *world.Replica) {
			r.Profile.Blocks = 800
			r.Restart(2 * minute)
		})},
	}

	brake := unforeseen{
		name: "power-brake-on-two", source: "NVIDIA/NVSentinel 1666 (after a power event the brake stays on two GPUs of each of 9 nodes, 100% of the time for 36 hours; the health watch does not see it)",
		story: "a power event leaves the hardware power brake on two of four GPUs, at a fifth of their clock; vLLM and SGLang in turn, so that one engine of each kind " +
			"is slow; read through dcgm-exporter",
		right: "page; hardware: GPUs 2 and 3 are slowed by hw_power_brake_slowdown, drain them. Not engine (the slow replicas are the consequence), not queueing, not " +
			"routing. Triage at 6 and 15 minutes: hardware",
		page:    `hardware\. .*hw_power_brake_slowdown`,
		fleet:   world.Fleet{Profile: profile("mistral-nemo-mixed", 9), Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM, metrics.SGLang}},
		history: 65 * minute, lasts: 40 * minute, options: play.Options{DCGM: world.ThrottleFields},
		faults: []incident.Fault{then(0, func(w *world.World) {
			for _, r := range w.Replicas[2:] {
				r.GPU.Throttle = &world.Throttle{Reason: "hw_power_brake_slowdown", Clock: 0.2}
			}
		})},
	}

	gsp := unforeseen{
		name: "gsp-stops-answering", source: "NVIDIA/open-gpu-kernel-modules 446 (XID 119 every 45 s; nvidia-smi hangs); NVIDIA/nvidia-docker 1648",
		story: "the GSP of one of two GPUs no longer answers: XID 119, and calls of the driver do not return; its engine serves on for three minutes and then hangs; " +
			"at 20 minutes somebody deletes the pod, whose successor never gets ready; little traffic",
		right: "page within five minutes; hardware: GPU 1, XID 119, reset or power-cycle it. Restarting the engine does not help, so «engine» first is wrong until it " +
			"hangs and half right afterwards. Triage at 6 and 15 minutes: hardware (GPU 1), the hung engine second",
		page:    `hardware\. (.*GPU 1\b|Requests on it are lost)`,
		fleet:   world.Fleet{Profile: profile("deepseek-r1-distill-14b", 0.5), Replicas: 2, Runtimes: sglang},
		history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{
			at1(0, 1, func(r *world.Replica) { r.GPU.Report(119); r.GPU.Stuck = true }),
			at1(45*time.Second, 1, func(r *world.Replica) { r.GPU.Report(119) }),
			at1(90*time.Second, 1, func(r *world.Replica) { r.GPU.Report(119) }),
			at1(3*minute, 1, func(r *world.Replica) { r.GPU.Report(119); r.Engine.Wedged = true }),
			at1(20*minute, 1, func(r *world.Replica) { r.GPU.Report(119); r.Restart(24 * time.Hour) }),
		},
	}
	return []unforeseen{slots, accepts, unquantised, eos, pool, brake, gsp}
}

// thirdOfGateways are faults behind gateways, behind Dynamo's frontends and between roles.
func thirdOfGateways() []unforeseen {
	bad := unforeseen{
		name: "litellm-keeps-a-bad-deployment", source: "BerriAI/litellm 34836 (25 failures with 500 in a row, and the deployment stays in rotation; a cooldown that ends lets the next requests fail)",
		story: "one of four engines answers each request with an error, at once; LiteLLM lets it cool down for five seconds after each failure and tries it again; " +
			"one request a second, a seventh of which fail",
		right: "page; engine: replica 2 fails every request that it gets, the other three none. Not routing: the gateway fails nothing of its own, and all its failures " +
			"carry that one deployment. Triage at 6 and 15 minutes: engine, replica 2",
		page: `engine\. .*codestral-22b-2`,
		fleet: world.Fleet{
			Profile: profile("codestral-22b", 0.25), Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM}, ReadsGateway: true,
		},
		history: 65 * minute, lasts: 45 * minute,
		faults: []incident.Fault{at1(0, 2, func(r *world.Replica) { r.Engine.Broken = true })},
	}

	capped := profile("zephyr-7b-tgi", 10./3)
	capped.MaxBatch, capped.MaxQueue = 32, 48
	limiter := unforeseen{
		name: "limiter-leaks-then-flood", source: "BerriAI/litellm 20256 (the counter of parallel requests is never decremented after timeouts; 429 although nothing runs, until Redis restarts), 28160",
		story: "the gateway's counter of parallel requests leaks: over twelve minutes it answers a growing share of requests with 429, up to 70%, while the three TGI " +
			"engines idle; at 20 minutes the operator turns the limiter off, and everybody retries: six times the requests, which TGI's queues refuse; no GPU metrics",
		right: "page; routing: the gateway fails requests that no engine got (429), engines are well; less traffic at the engines is the consequence. Triage at 6 and " +
			"15 minutes: routing. After 22 minutes: queueing (six times as many requests, engines refuse what their queues cannot hold), by an update or a page",
		page: `routing\. Gateway`,
		fleet: world.Fleet{
			Profile: capped, Replicas: 3, Runtimes: []metrics.Runtime{metrics.TGI}, ReadsGateway: true,
		},
		history: 65 * minute, lasts: 40 * minute, options: play.Options{WithoutGPUs: true},
		faults: []incident.Fault{then(20*minute, func(w *world.World) {
			w.GatewayFails, w.GatewayStatus = 0, 0
			w.Traffic.Arrivals *= 6
		})},
	}
	for at, share := range map[time.Duration]float64{0: 0.03, 2 * minute: 0.1, 5 * minute: 0.25, 8 * minute: 0.45, 12 * minute: 0.7} {
		limiter.faults = append(limiter.faults, then(at, func(w *world.World) {
			w.GatewayFails, w.GatewayStatus = share, http.StatusTooManyRequests
		}))
	}

	pd := profile("ministral-8b-pd", 5.8)
	pd.Release, pd.Prefilled, pd.Fetching, pd.PromptTokens = "0.26.0", true, 25e9, 1500
	lost := unforeseen{
		name: "one-decoder-waits-for-kv", source: "vllm-project/vllm 50754 (the decode engine counts towards notifications that never come and holds the request until its lease ends), 26171 (stuck in WAITING_FOR_REMOTE_KV)",
		story: "nine of ten KV caches for one of three decode engines never arrive: its requests wait until their clients give up; at 16 minutes it is restarted and " +
			"well again; at 20 minutes one of the two prefill engines dies and loads for 20 minutes, and the other computes all prompts at its limit",
		right: "page within ten minutes; memory: KV transfers to decode engine 3 do not arrive (half right: engine, if it names replica 3, where requests wait and none end). " +
			"Not a proxy that cuts answers, not prefill, not demand. Triage at 6 and 15 minutes: memory, replica 3. After 21 minutes: engine (prefill engine 0 is " +
			"down); its queue at replica 1 is the consequence",
		page:    `(memory|engine)\. .*ministral-8b-pd-3`,
		fleet:   world.Fleet{Profile: pd, Replicas: 5, Prefills: 2, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 65 * minute, lasts: 45 * minute,
		faults: []incident.Fault{
			at1(0, 3, func(r *world.Replica) { r.Engine.Unsent = 0.9 }),
			at1(16*minute, 3, func(r *world.Replica) { r.Restart(100 * time.Second) }),
			at1(20*minute, 0, func(r *world.Replica) { r.Restart(20 * minute) }),
		},
	}

	planner := unforeseen{
		name: "planner-scales-to-one", again: 1, source: "ai-dynamo/dynamo 12430 (the planner overshoots and then takes workers away for many ticks), 13675 (a worker that freezes in the middle of an answer passes every check), 13088 (24 of 1536 requests hang for more than 5.5 minutes)",
		story: "the planner takes three of four Dynamo frontends and their workers away at an unchanged 40 requests a second; the last one is overloaded; at 12 minutes the " +
			"three come back, and at 16 minutes the worker of replica 2 freezes while its frontend stays ready; Prometheus is 20 minutes old",
		right: "page; queueing (one replica carries what four did: bring them back) or engine (three of four are gone). Not «four times as many requests arrive» for the model, " +
			"not longer prompts, not slow engines. Triage at 6 minutes: the same. Triage at 15 minutes: nothing wrong any more, or the end of the queue. After 19 " +
			"minutes somebody is told, by page or update: engine, replica 2 makes no progress",
		page:  `queueing\. 25% of the usual replicas`,
		fleet: world.Fleet{Profile: profile("llama-3.3-nemotron", 10), Replicas: 4, Runtimes: []metrics.Runtime{metrics.Dynamo}},
		lived: 65 * minute, history: 20 * minute, lasts: 35 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) {
				for _, r := range w.Replicas[1:] {
					r.Down, r.Gone = true, true
				}
			}),
			then(12*minute, func(w *world.World) {
				for _, r := range w.Replicas[1:] {
					r.Restart(100 * time.Second)
				}
			}),
			at1(16*minute, 2, func(r *world.Replica) { r.Engine.Wedged = true }),
		},
	}
	return []unforeseen{bad, limiter, lost, planner}
}

// thirdHarmless must wake nobody.
func thirdHarmless() []unforeseen {
	const eight = 8
	rollout := unforeseen{
		name: "drained-upgrade-of-eight", source: "kubernetes-sigs/gateway-api-inference-extension 549, 550 (hitless updates); kserve/website 726 (15 s until the router stops, up to 45 s to drain)",
		story:   "SGLang 0.5.16 to 0.5.17 on eight replicas at 60 requests a second, one after another: drained for 45 s, loaded for 100 s; the new release is as fast as the old",
		right:   "nobody is woken; no ticket, or at most one. Triage at 6 and 15 minutes: HEALTHY, or a restart with low confidence",
		fleet:   world.Fleet{Profile: profile("qwen3-30b-a3b", 7.5), Replicas: eight, Runtimes: []metrics.Runtime{metrics.SGLang}, Shares: even(eight)},
		history: 65 * minute, lasts: 50 * minute,
	}
	for i := range eight {
		at := time.Duration(i) * 3 * minute
		rollout.faults = append(rollout.faults, at1(at, i, func(r *world.Replica) { r.Profile.Release = "0.5.17" }))
		rollout.faults = append(rollout.faults, drained(i, at, 100*time.Second)...)
	}

	moves := unforeseen{
		name: "traffic-moves-to-the-new-model", source: "kserve/kserve 5725 (progressive shifts by weights, the old one kept for a rollback)",
		story: "six replicas, three of an old and three of a new model; over 27 minutes the clients move, a tenth at a time: the old model loses all of its traffic, " +
			"the new one gets twenty times as much as before, within its capacity",
		right: "nobody is woken, no ticket: neither the silence of the old model nor the growth of the new one harms anybody. Triage at 6 and 15 minutes: HEALTHY",
		fleet: world.Fleet{
			Profile: profile("llama-3.1-8b-old", 3), Replicas: 6, Runtimes: []metrics.Runtime{metrics.VLLM}, Shares: []float64{19, 19, 19, 1, 1, 1},
			Each: func(i int, p *drill.Profile) {
				if i >= 3 {
					p.Model = "qwen3-8b-new"
				}
			},
		},
		history: 2 * time.Hour, lasts: 60 * minute,
		faults: []incident.Fault{then(-121*minute, func(w *world.World) {
			for i, r := range w.Replicas {
				r.Pod = []string{"llama-old-0", "llama-old-1", "llama-old-2", "qwen-new-0", "qwen-new-1", "qwen-new-2"}[i]
			}
		})},
	}
	for i := range 10 {
		moves.faults = append(moves.faults, then(time.Duration(i)*3*minute, func(w *world.World) {
			old := 18 - 2*float64(i)
			w.Fleet.Shares = []float64{old, old, old, 20 - old, 20 - old, 20 - old}
		}))
	}

	home := profile("qwen3-8b-q8-home", 0.05)
	home.MaxBatch, home.GPU, home.Weights, home.Patience = 4, drill.L40S, drill.Llama8BFP8, 2*minute
	test := unforeseen{
		name: "load-test-on-four-slots", source: "ggml-org/llama.cpp 5827 (k6 against a server whose slots cap what runs), 5941 (64 users for five minutes)",
		story: "a developer runs a load test of four minutes against a llama.cpp server that gets a request every 20 s: all four slots are busy, a few requests " +
			"wait for some seconds; then it is quiet again; no GPU metrics",
		right:   "nobody is woken; no ticket, or at most one. Triage at 6 and 15 minutes, after the test: HEALTHY or no verdict",
		fleet:   world.Fleet{Profile: home, Replicas: 1, Runtimes: []metrics.Runtime{metrics.LlamaCpp}, Probes: true},
		history: 65 * minute, lasts: 40 * minute, options: play.Options{WithoutGPUs: true},
	}
	for i := range 80 {
		test.faults = append(test.faults, then(time.Duration(i)*3*time.Second, func(w *world.World) {
			n := 4
			if i == 0 {
				n = 8
			}
			for range n {
				w.Replicas[0].Engine.Offer(&drill.Request{Arrival: w.Now(), Prompt: 500, Output: 150})
			}
		}))
	}
	return []unforeseen{rollout, moves, test}
}
