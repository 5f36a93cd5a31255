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
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// This file holds fourteen incidents that a fourth tester took from public threads. The right answers were committed
// before the first play, in which the pages of seven of the ten faults were right, and the harmless incidents woke
// nobody.

// Hardware of the incidents below, from the vendors' data sheets, but for the GB10's arithmetic: its FLOPS are those that
// llama.cpp reaches in reports, not the peak.
var (
	h200BF16 = drill.Hardware{Name: "NVIDIA H200", Bandwidth: 4.8e12, FLOPS: 989e12, Memory: 141e9}
	h200FP8  = drill.Hardware{Name: "NVIDIA H200", Bandwidth: 4.8e12, FLOPS: 1979e12, Memory: 141e9}
	gb10     = drill.Hardware{Name: "NVIDIA GB10", Bandwidth: 273e9, FLOPS: 30e12, Memory: 128e9}
)

// unforeseenFourth are from a fourth tester.
func unforeseenFourth() []unforeseen {
	return slices.Concat(fourthOfRouting(), fourthOfCaches(), fourthOfReleases(), fourthHarmless())
}

// fourthOfRouting are faults behind gateways, of routers between roles, and of a Dynamo.
func fourthOfRouting() []unforeseen {
	dead := unforeseen{
		name: "dead-gpu-then-ghost-deployment",
		source: "NVIDIA/k8s-device-plugin 267, 243 (a GPU with an uncorrectable error passes as healthy, pods are placed on it again); NVIDIA/NVSentinel 714 " +
			"(XID 95: drain, reset or reboot); BerriAI/litellm 29064 (the deployment is corrected, half of the requests still fail until the proxy restarts)",
		story: "an uncontained memory error (XID 95) kills one of three TGI engines; LiteLLM lets it cool down for five seconds after three failures and tries it " +
			"again, so that a tenth of 1.5 requests a second fails; at 20 minutes the operator deletes the pod and resets the GPU, but LiteLLM keeps the " +
			"deployment: as many requests fail at an address where nobody listens, while both engines that are left are well",
		right: "page within three minutes; hardware: GPU 1, XID 95, reset it (its engine is down as a consequence). «engine stopped answering» alone is half " +
			"right, «routing» is wrong in the first phase. Triage at 6 and 15 minutes: hardware, GPU 1. After 22 minutes, by update, page or triage: routing, " +
			"the gateway fails requests for a replica that does not exist; not hardware any more",
		page: `hardware\. (.*GPU 1\b|Requests on it are lost)`,
		fleet: world.Fleet{
			Profile: profile("gemma-2-9b-tgi", 0.5), Replicas: 3, Runtimes: []metrics.Runtime{metrics.TGI}, ReadsGateway: true,
		},
		history: 65 * minute, lasts: 45 * minute,
		faults: []incident.Fault{
			at1(0, 1, func(r *world.Replica) {
				r.GPU.Report(95, 45)
				r.GPU.ECC, r.GPU.Drain = 1, true
				r.Restart(24 * time.Hour)
			}),
			at1(20*minute, 1, func(r *world.Replica) {
				r.Down, r.Gone = true, true
				r.GPU.ECC, r.GPU.Drain = 0, false
			}),
		},
	}

	short := profile("llama-3.2-3b-classify", 7.5)
	short.PromptTokens, short.OutputTokens = 300, 60
	idle := unforeseen{
		name: "idle-connections-reset",
		source: "llm-d/llm-d-benchmark 1675 (the proxy keeps idle connections for 90 s, vLLM closes them after 5 s: 502, without a retry); " +
			"duolahypercho/codex-router 165 (30.8% of the gaps between two requests are in the window; the server is healthy at each of 84 failures)",
		story: "a new release of the router keeps connections longer than the engines do: of 60 requests a second to eight vLLMs it answers 3% with 502, which " +
			"no engine got; everything else is as ever",
		right: "page after about a quarter of an hour (3% against 99.9%); routing: the router fails requests of its own, engines fail none (0.02%). Not engine: no " +
			"replica fails or is slow. Triage at 6 minutes: routing or no verdict; at 15 minutes: routing",
		page:    `routing\. .*[Gg]ateway`,
		fleet:   world.Fleet{Profile: short, Replicas: 8, Runtimes: []metrics.Runtime{metrics.VLLM}, ReadsGateway: true, Gateway: metrics.SMG},
		history: 65 * minute, lasts: 60 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) {
			w.GatewayFails, w.GatewayStatus = 0.03, http.StatusBadGateway
		})},
	}

	pd := profile("qwen3-14b-pd", 6)
	pd.Release, pd.Prefilled, pd.Fetching, pd.PromptTokens, pd.OutputTokens = "0.26.0", true, 25e9, 1200, 100
	one := unforeseen{
		name: "one-of-three-prefills",
		source: "ai-dynamo/dynamo 12864 (83, 78 and 5 requests wait at three prefill pods, none at the two others, which run none); 13197 (a router mode that " +
			"is advertised for the prefill hop is ignored)",
		story: "42 requests a second; after a restart the router knows one of three prefill engines, which gets three times its load: 1.3 times what it can compute; " +
			"the two others idle, the four decode engines are well; at 18 minutes the router is repaired; at 24 minutes decode engine 5 hangs",
		right: "page; routing: prefill replica 0 gets all prompts, 1 and 2 get none. Not prefill (as many prompts, of the same length, as many cached), not queueing " +
			"(«more requests», «too few replicas»), not slow engines. Triage at 6 and 15 minutes: routing. After 27 minutes somebody is told, by page or update: " +
			"engine, replica 5 makes no progress",
		page:    `routing\. .*qwen3-14b-pd`,
		fleet:   world.Fleet{Profile: pd, Replicas: 7, Prefills: 3, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Favours = 1 }),
			then(18*minute, func(w *world.World) { w.Favours = 0 }),
			at1(24*minute, 5, func(r *world.Replica) { r.Engine.Wedged = true }),
		},
	}

	thinker := profile("qwen3-30b-dynamo", 5)
	thinker.MaxBatch, thinker.OutputLimit = 128, 8192
	thinks := unforeseen{
		name: "thinking-switched-on",
		source: "langgenius/dify-official-plugins 2628 (the model thinks unless a request says otherwise, and the client no longer says it: slow answers); " +
			"entropy-exchange.synaptiq.ai/posts/controlling-qwen-thinking-mode (84 of 92 answers think, 32 run into the limit); theneuralbase.com (3 to 10 times the latency)",
		story: "a client's update leaves out the switch that turns thinking off: answers of 180 tokens become answers of 1,200; as many requests and prompts as ever; " +
			"both engines behind Dynamo's frontends fill their batches of 128, and requests wait; at 32 minutes the switch is back; no GPU metrics, and a " +
			"Prometheus of 45 minutes",
		right: "page; behaviour or decode: answers are six to seven times as long, at unchanged arrivals. Half right: queueing, if it says that outputs grew. Not " +
			"«more requests», not «too few replicas» alone, not longer prompts, not slow engines (a step takes what its batch needs). Triage at 6 and 15 minutes: " +
			"the same; only the answers that have ended show it in the first minutes",
		page:    `(behaviour|decode|queueing)\. .*(?i:output|answer|generat)`,
		fleet:   world.Fleet{Profile: thinker, Replicas: 2, Runtimes: []metrics.Runtime{metrics.Dynamo}},
		lived:   65 * minute,
		history: 45 * minute, lasts: 45 * minute, options: play.Options{WithoutGPUs: true},
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Traffic.OutputTokens = 1200 }),
			then(32*minute, func(w *world.World) { w.Traffic.OutputTokens = 180 }),
		},
	}
	return []unforeseen{dead, idle, one, thinks}
}

// fourthOfCaches are faults of memory and of caches.
func fourthOfCaches() []unforeseen {
	documents := profile("mistral-small-docs", 4.3)
	documents.Release, documents.Host, documents.HostHits, documents.Fetching, documents.Storing = "0.26.0", 200e9, 0.8, 40e9, 40e9
	documents.PromptTokens, documents.OutputTokens, documents.CacheHits, documents.Budget = 4000, 150, 0.2, 512
	tier := unforeseen{
		name: "tier-finds-nothing",
		source: "vllm-project/vllm 53569 (external hits stay 0 while queries equal the prompts' tokens; another model on the same setup finds 99.56%); " +
			"LMCache/LMCache 1938 (broken pipe, then no adapter for the address of the remote cache: TTFT twice as long), 2136 (hashes differ between processes)",
		story: "the tier that keeps KV cache beside the GPUs answers «not found» for everything from now on: engines compute five times as many tokens per request " +
			"as before, at unchanged prompts, arrivals and hits on the GPU; four in ten first tokens are late",
		right: "page after a quarter of an hour or less; memory (the KV tier gives nothing any more) or prefill (tokens computed per request are five times as many, " +
			"since hits in the external cache fell from four fifths of what the GPU lacks to none). Not longer prompts, not more requests, not a full KV cache, not " +
			"slow engines. Triage at 6 and 15 minutes: the same",
		page:    `(memory|prefill)\. .*(?i:hit|tier|offload|external|comput)`,
		fleet:   world.Fleet{Profile: documents, Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 65 * minute, lasts: 45 * minute,
		faults: []incident.Fault{then(0, all4(func(r *world.Replica) { r.Engine.HostHits, r.Profile.HostHits = 0, 0 }))},
	}

	leak := unforeseen{
		name: "aborts-leak-then-both-restart", again: 1,
		source: "sgl-project/sglang 6778 (token usage 0.96 with 35 running, until the server hangs), 21652 (an abort during a transfer leaks its slots until " +
			"nothing is accepted); vllm-project/vllm 50425",
		story: "a new client cancels one answer in five, and one request in 25 does not give its KV cache back: nobody notices for twenty minutes, then both SGLang " +
			"engines are full, retract and queue; at 34 minutes somebody restarts both at once, 100 s without a model; then it leaks on, full again after 58 minutes",
		right: "page at about 25 minutes; memory: the KV cache of both replicas fills up although as few requests run as ever (restart them one by one). Not more " +
			"requests, not longer ones, not routing (clients cancel, but they did so for twenty minutes without harm). Triage at 6 minutes: HEALTHY or no verdict; at 15 " +
			"minutes: HEALTHY, or memory, filling up. After 35 minutes: engine, both restarted, by update or page; at 60 minutes memory again",
		page:    `(memory|engine)\. `,
		fleet:   world.Fleet{Profile: profile("llama-3.1-8b-voice", 9), Replicas: 2, Runtimes: []metrics.Runtime{metrics.SGLang}},
		history: 2 * time.Hour, lasts: 65 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) {
				w.Traffic.Leaves = 0.2
				all4(func(r *world.Replica) { r.Engine.Leak, r.Profile.Leak = 0.04, 0.04 })(w)
			}),
			then(34*minute, all4(func(r *world.Replica) { r.Restart(100 * time.Second) })),
		},
	}

	agent := profile("gpt-oss-120b-spark", 0.04)
	agent.GPU, agent.Weights = gb10, drill.Weights{Parameters: 5.1e9, Bytes: 0.55, KVBytesPerTok: 73728, Attention: 4 * 36 * 64 * 64}
	agent.PromptTokens, agent.OutputTokens, agent.CacheHits, agent.MaxBatch, agent.Patience = 20_000, 250, 0.997, 4, 10*minute
	header := unforeseen{
		name: "header-breaks-the-prompt-cache",
		source: "ggml-org/llama.cpp 20623, ollama/ollama 14918 (a line at the head of the system prompt changes with each request); waybarrios/vllm-mlx 277 (40 of " +
			"60,000 tokens match; 50 s per request in place of 3.65 s)",
		story: "a coding agent's update puts a changing line before its prompts of 20,000 tokens: llama.cpp computes each anew, half a minute in place of a second; " +
			"a request every 25 s is then more than the server can do, and requests wait for a slot; no GPU metrics, and a Prometheus of 50 minutes",
		right: "page; prefill: prompts are computed anew (all but 60 tokens from the cache before, nothing now), as many and as long as ever. Half right: queueing, if it names the " +
			"cache or the computed tokens. Not «the engine hangs» (it computes all the time), not more requests, not more slots. Triage at 6 and 15 minutes: prefill",
		page:    `(prefill|queueing)\. .*(?i:cache|comput|as many tokens)`,
		fleet:   world.Fleet{Profile: agent, Replicas: 1, Runtimes: []metrics.Runtime{metrics.LlamaCpp}, Probes: true},
		lived:   3 * time.Hour,
		history: 50 * minute, lasts: 45 * minute, options: play.Options{WithoutGPUs: true},
		faults: []incident.Fault{then(0, func(w *world.World) { w.Traffic.CacheHits = 0 })},
	}
	return []unforeseen{tier, leak, header}
}

// fourthOfReleases are changes of releases and of settings, and heat.
func fourthOfReleases() []unforeseen {
	dense := profile("qwen2.5-32b-mixed", 2.85)
	dense.GPU, dense.Weights = h200BF16, drill.Weights{Parameters: 32.8e9, Bytes: 2, KVBytesPerTok: 262144, Attention: 4 * 64 * 40 * 128}
	dense.PromptTokens, dense.OutputTokens, dense.CacheHits, dense.Budget = 1800, 150, 0.1, 192
	chunks := unforeseen{
		name: "chunks-of-16384",
		source: "vllm-project/vllm 8121 (a smaller --max-num-batched-tokens gives better times between tokens); ROCm/MAD 235 (the default is 16384 now); " +
			"FlashML-org/FreeToken 483 (59.4 to 7.7 tokens per second while another prompt is computed)",
		story: "two vLLMs and two SGLangs are rolled out, one every two minutes, same versions, with chunks of 16,384 tokens in place of 192: whole prompts are computed " +
			"in one step of a third of a second, in which all others wait; a tenth of all tokens come too late, every thirtieth after half a second; no objective for first tokens",
		right: "page after a quarter of an hour or more (about 25 minutes); release: the setting changed from 192 to 16384 (max_batch_tokens on vLLM, chunked_prefill on " +
			"SGLang). Half right: prefill delays decoding, with the setting. Not more requests, not longer prompts, not slow engines, not memory. Triage at 6 minutes: release " +
			"or no verdict; at 15 minutes: release",
		page: `(release|prefill|decode)\. .*(16384|16\.4k|chunked_prefill|max_batch_tokens)`,
		fleet: world.Fleet{
			Profile: dense, Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM, metrics.SGLang}, SeesProcesses: true,
			Objectives: slices.DeleteFunc(slo.Defaults(), func(o slo.Objective) bool { return o.Signal == slo.TTFT }),
		},
		history: 2 * time.Hour, lasts: 65 * minute,
	}
	for i := range 4 {
		chunks.faults = append(chunks.faults, at1(time.Duration(i)*2*minute, i, func(r *world.Replica) {
			r.Profile.Budget = 16384
			r.Restart(minute)
		}))
	}

	large := profile("qwen3-235b-v2", 1.5)
	large.Release, large.GPU, large.Budget, large.PromptTokens = "0.10.2", h200FP8, 192, 600
	large.Weights = drill.Weights{Parameters: 80e9, Bytes: 1, KVBytesPerTok: 327680, Attention: 4 * 80 * 64 * 128}
	canary := unforeseen{
		name:   "canary-at-half-speed",
		source: "vllm-project/vllm 31030 (60 tokens per second before, 28 after the upgrade from 0.10.2 to 0.12.0, on H200, reverted); 35048, 51663",
		story: "one of six vLLMs gets release 0.12.0, which needs 52 ms per token where 0.10.2 needs 24: a sixth of all tokens miss the 50 ms, by little; the five others " +
			"are well; a Prometheus of half an hour",
		right: "page after half an hour or so (a ticket before is welcome); release: version 0.10.2 to 0.12.0 on one, replica 3, roll it back. Right too: engine, this replica's steps " +
			"take twice as long, with the version. Not routing, not more load (a sixth of the requests goes there, as before), not hardware. Triage at 6 and 15 minutes: the same, or no verdict",
		page:    `(release|engine)\. .*0\.12\.0`,
		fleet:   world.Fleet{Profile: large, Replicas: 6, Runtimes: []metrics.Runtime{metrics.VLLM}},
		lived:   2 * time.Hour,
		history: 30 * minute, lasts: 65 * minute,
		faults: []incident.Fault{at1(0, 3, func(r *world.Replica) {
			r.Profile.Release, r.Engine.Slow = "0.12.0", 2.14
			r.Restart(90 * time.Second)
		})},
	}

	warm := profile("nemotron-nano-9b-trt", 7)
	warm.PromptTokens, warm.OutputTokens = 1000, 120
	heat := unforeseen{
		name: "heat-in-the-busy-hour",
		source: "rammsguns/llm-rig 97 (1875 to 1155 MHz, 92 °C after 105 s under load, the fan stays at 70%); matt.sh/cloud-gpu-thermal-throttling (510 of 1755 MHz); " +
			"ollama/ollama 13552 (903 ms of SW Thermal Slowdown at 81 °C)",
		story: "demand grows by half, from 28 to 42 requests a second, half of what four TensorRT-LLM engines carry; eight minutes later their GPUs get too hot and run at " +
			"a quarter of their clock for 35 s of every minute: half of all first tokens come late",
		right: "page; hardware: sw_thermal_slowdown on all four GPUs (a quarter of the clock, half of the time). Not queueing «1.5 times as many requests»: these came eight minutes " +
			"before, and nobody was late; not slow engines; not a rollout. Triage at 6 and 15 minutes: hardware, whether or not a GPU is slowed at that instant",
		page:    `hardware\. .*sw_thermal_slowdown`,
		fleet:   world.Fleet{Profile: warm, Replicas: 4, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}},
		history: 65 * minute, lasts: 45 * minute,
		faults: []incident.Fault{
			then(-8*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.5 }),
			then(0, all4(func(r *world.Replica) {
				r.GPU.Throttle = &world.Throttle{Reason: "sw_thermal_slowdown", Clock: 0.25, Part: 35 * time.Second, Period: minute}
			})),
		},
	}
	return []unforeseen{chunks, canary, heat}
}

// fourthHarmless must wake nobody.
func fourthHarmless() []unforeseen {
	wrong := unforeseen{
		name:   "client-test-with-a-wrong-model",
		source: "ai-dynamo/dynamo 14364 (a name that is not registered counts as unknown_model), 11178 (404 model_not_found)",
		story: "a client's test asks three Dynamo frontends for a model that does not exist, four times a second for 20 minutes, beside 12 good requests a second; at 12 " +
			"minutes its load test doubles the good ones for six minutes, within capacity; no GPU metrics, and a Prometheus of 40 minutes",
		right:   "nobody is woken, at most one ticket: the client gets 404 for its own mistake, and no user is late or fails. Triage at 6 and 15 minutes: HEALTHY or no verdict",
		fleet:   world.Fleet{Profile: profile("llama-3.3-70b-frontend", 4), Replicas: 3, Runtimes: []metrics.Runtime{metrics.Dynamo}},
		history: 40 * minute, lasts: 50 * minute, options: play.Options{WithoutGPUs: true},
		faults: []incident.Fault{
			then(12*minute, func(w *world.World) { w.Traffic.Arrivals *= 2 }),
			then(18*minute, func(w *world.World) { w.Traffic.Arrivals /= 2 }),
		},
	}
	for i := range 240 {
		wrong.faults = append(wrong.faults, at1(time.Duration(i)*5*time.Second, i%3, func(r *world.Replica) { r.Mistype(20) }))
	}

	absent := slo.Defaults()
	for i := range absent {
		absent[i].MayBeAbsent = true
	}
	weekend := unforeseen{
		name: "weekend-shutdown",
		source: "kedacore/keda 2160 (workloads are scaled to zero outside working hours); mortennordbye/homelab 245 (07:00 to 23:00); kserve/kserve 5996; " +
			"prometheus-operator/prometheus-operator 486 (the exporter's pod is evicted with the node's, and its series vanish)",
		story: "Friday evening: clients have gone, three SGLang pods are taken away one after another, and their node is drained with its exporter; 24 minutes later node and " +
			"exporter are back, the pods load, and a third of the usual requests come; the objectives say that the model may be absent",
		right: "nobody is woken; at most one ticket, about the exporter that does not answer. Triage at 6 minutes: HEALTHY or no requests; at 15 minutes: no engine, or no verdict",
		fleet: world.Fleet{
			Profile: profile("phi-4-office", 2), Replicas: 3, Runtimes: []metrics.Runtime{metrics.SGLang}, Objectives: absent,
		},
		history: 2 * time.Hour, lasts: 75 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Idle = true }),
			at1(10*minute, 2, func(r *world.Replica) { r.Down, r.Gone = true, true }),
			at1(12*minute, 1, func(r *world.Replica) { r.Down, r.Gone = true, true }),
			at1(14*minute, 0, func(r *world.Replica) { r.Down, r.Gone = true, true }),
			then(16*minute, func(w *world.World) { w.ExporterDown, w.NodeDown = true, true }),
			then(40*minute, func(w *world.World) { w.ExporterDown, w.NodeDown = false, false }),
			then(42*minute, all4(func(r *world.Replica) { r.Restart(2 * minute) })),
			then(46*minute, func(w *world.World) {
				w.Idle = false
				w.Traffic.Arrivals /= 3
			}),
		},
	}

	lunch := profile("qwen3-8b-agents", 5)
	lunch.OutputTokens = 100
	peak := unforeseen{
		name: "noon-peak-of-agents",
		source: "anomalyco/opencode 27110 (an agent starts all its helpers in parallel); pass-agent/loomkin 99 (bursts at the fan-out); " +
			"taresh18/orpheus-streaming 5 (12 at once: first byte 0.13 to 0.67 s on one H100)",
		story: "three vLLMs and three TensorRT-LLMs: within half an hour demand doubles to 60 requests a second, and from now on requests come eight at an instant, from " +
			"agents that start helpers; a quarter of an hour later it falls again; first tokens stay below half a second throughout",
		right: "nobody is woken, no ticket: the day's peak, within capacity. Triage at 6 and 15 minutes: HEALTHY",
		fleet: world.Fleet{
			Profile: lunch, Replicas: 6, Runtimes: []metrics.Runtime{metrics.VLLM, metrics.TensorRTLLM},
		},
		history: 65 * minute, lasts: 70 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) { w.Traffic.Together = 8 })},
	}
	for i := range 6 {
		peak.faults = append(peak.faults, then(time.Duration(i)*5*minute, func(w *world.World) { w.Traffic.Arrivals = 35 + 5*float64(i) }),
			then(45*minute+time.Duration(i)*3*minute, func(w *world.World) { w.Traffic.Arrivals = 55 - 5*float64(i) }))
	}

	night := unforeseen{
		name:   "night-and-a-notebook",
		source: "mortennordbye/homelab 245 (three replicas by day, one at night); marin-community/marin 7344 (XID 13 and 43 are an application's faults); leptonai/gpud 1174 (XID 31)",
		story: "demand falls to a quarter; the autoscaler drains and removes three of six replicas, three vLLMs and three TGIs by day; a researcher takes a GPU that is free " +
			"now, and the notebook's kernels crash: XID 13, 43, 31 and 45, and the power cap at work; the three replicas that are left do not notice",
		right: "nobody is woken; at most one ticket. The GPU with the XIDs serves nobody, and these are faults of a program. Triage at 6 and 15 minutes: HEALTHY",
		fleet: world.Fleet{
			Profile: profile("mistral-7b-night", 4), Replicas: 6, Runtimes: []metrics.Runtime{metrics.VLLM, metrics.TGI}, SeesProcesses: true,
		},
		history: 2 * time.Hour, lasts: 70 * minute,
		faults: []incident.Fault{
			at1(24*minute, 5, func(r *world.Replica) {
				r.GPU.Others = 0.9
				r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.9}
			}),
			at1(26*minute, 5, func(r *world.Replica) { r.GPU.Report(13, 43) }),
			at1(31*minute, 5, func(r *world.Replica) { r.GPU.Report(31, 45) }),
			at1(37*minute, 5, func(r *world.Replica) { r.GPU.Report(13, 43, 45) }),
			at1(45*minute, 5, func(r *world.Replica) { r.GPU.Others, r.GPU.Throttle = 0, nil }),
		},
	}
	for i := range 3 {
		at, last := time.Duration(i)*6*minute, 5-i
		night.faults = append(night.faults,
			then(at, func(w *world.World) { w.Traffic.Arrivals = 18 - 6*float64(i) }),
			then(at+3*minute, func(w *world.World) { w.Favours = last }),
			at1(at+270*time.Second, last, func(r *world.Replica) { r.Down, r.Gone = true, true }))
	}
	return []unforeseen{wrong, weekend, peak, night}
}
