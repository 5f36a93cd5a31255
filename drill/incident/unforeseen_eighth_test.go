package incident_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// This file holds fourteen incidents that an eighth tester took from public threads, without having read the rules. The
// right answers were committed before the first play.

// TestUnforeseenEighth plays the incidents of the eighth tester.
func TestUnforeseenEighth(t *testing.T) { checkUnforeseen(t, unforeseenEighth()) }

// unforeseenEighth are from an eighth tester.
func unforeseenEighth() []unforeseen {
	return slices.Concat(eighthClosedLoops(), eighthChunks(), eighthLostFlags(), eighthMoves(), eighthRouting(), eighthHosts(),
		eighthRoles(), eighthHarmlessMoves(), eighthHarmlessLoads())
}

// keeps tops up each replica every five seconds, so that it holds n requests: a client sends the next request when an
// answer has come. n depends on the time since the job began.
func keeps(
	from, to time.Duration, n func(since time.Duration) int, next func(random *rand.Rand) *drill.Request,
) (faults []incident.Fault) {
	const every = 5 * time.Second
	for at := from; at < to; at += every {
		random := rand.New(rand.NewPCG(uint64(at-from), 8))
		faults = append(faults, then(at, func(w *world.World) {
			for _, r := range w.Replicas {
				for r.Engine.Holds() < n(at-from) {
					q := next(random)
					q.Arrival = w.Now()
					r.Engine.Offer(q)
				}
			}
		}))
	}
	return faults
}

// steady returns the same number at any time.
func steady(n int) func(time.Duration) int { return func(time.Duration) int { return n } }

// eighthClosedLoops are two clients that always have as many requests open as they are allowed to.
func eighthClosedLoops() []unforeseen {
	// An evaluation asks the engines directly. The gateway sees nothing of it, but its users wait behind it.
	evaluation := unforeseen{
		name: "evaluation-past-the-gateway",
		source: "tenstorrent/tt-inference-server 350 (requests of an evaluation are ten minutes old and not yet computed, the server is up); " +
			"modelscope/evalscope 431 (512 in parallel, 256 of them run); mlflow/mlflow 24404 (an evaluation without a rate limit)",
		story: "a team evaluates a new prompt against the engines' own addresses, past LiteLLM: 300 questions are open at each of three " +
			"TensorRT-LLMs for 25 minutes; a question costs 26 ms of prefill and 4 ms of decode, so that each engine does 24 a second beside " +
			"5 a second of users; 200 questions wait, 8 s of work: all first tokens come 4 to 9 s late; tokens take 41 ms, within the promise; " +
			"LiteLLM counts 15 requests a second, as ever",
		right: "page within ten minutes; queueing: six times as many requests arrive at the engines as before. Not «too few replicas» or " +
			"«engines are slow» (a step takes what its tokens need), not routing (each engine gets a third, and the gateway's count is " +
			"unchanged because the new requests do not pass it), not prefill (prompts are 1.6 times as long, which is not what fills the " +
			"engines). Triage at 6 and 15 minutes: queueing. After 28 minutes nobody is late: no new page",
		page: `queueing\. `,
		fleet: world.Fleet{
			Profile: profile("llama-3.3-8b-helpdesk", 5), Replicas: 3, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}, ReadsGateway: true,
		},
		lived:   65 * minute,
		history: 50 * minute, lasts: 42 * minute,
		faults: keeps(0, 25*minute, steady(300), func(*rand.Rand) *drill.Request {
			return &drill.Request{Prompt: 1500, Cached: 700, Output: 40}
		}),
	}

	// A coding agent keeps the only Ollama busy. Nothing counts requests there, but probes wait, and the GPU works.
	home := profile("gemma-3-12b-family", 0.02)
	home.Release, home.MaxBatch, home.GPU, home.Weights, home.Patience = "0.12.6", 4, drill.L40S, drill.Llama8BFP8, 5*minute
	helpers := unforeseen{
		name: "helpers-fill-the-slots-of-the-only-ollama",
		source: "ollama/ollama 14578 (a request that needs 300 ms waits 50 s behind a long one), 11942 (two to four dialogues are answered " +
			"one by one), 358 (several agents on one server need a queue)",
		story: "seven helpers of a coding agent ask the only Ollama again and again for half an hour; it has four slots, an answer has 600 " +
			"tokens of 19 ms, so that a slot is free every 2.9 s and one to three helpers wait: whoever comes waits for 6 to 9 s, and then gets " +
			"tokens nearly as quickly as ever (19 in place of 14 ms); a family asks every 50 s; objectives are on the exporter's probes; the " +
			"model stays in GPU memory completely",
		right: "page within 20 minutes, since a probe is sent once a minute; queueing: requests wait for a slot (probes wait for seconds, " +
			"their tokens then come at the usual speed, the GPU is busy all the time in place of 6%, and seven connections more are open). Not " +
			"engine (it is neither slow nor stuck: a restart kills the agent's work and helps for seconds), not memory, not hardware (no other " +
			"process uses the GPU), not decode. Triage at 6 and 15 minutes: queueing; at 6 minutes no verdict is acceptable. After 33 minutes " +
			"nobody is late: no new page",
		page: `queueing\. `,
		fleet: world.Fleet{
			Profile: home, Replicas: 1, Runtimes: []metrics.Runtime{metrics.Ollama}, Probes: true, SeesProcesses: true, Objectives: onProbes(),
		},
		history: 2 * time.Hour, lasts: 45 * minute,
		faults: keeps(0, 30*minute, steady(7), func(random *rand.Rand) *drill.Request {
			return &drill.Request{Prompt: 6000, Cached: 5500, Output: float64(400 + random.IntN(400))}
		}),
	}
	return []unforeseen{evaluation, helpers}
}

// eighthChunks is a setting that was meant well and costs prefill half of its speed.
func eighthChunks() []unforeseen {
	moderation := profile("qwen3-8b-moderation", 28)
	moderation.PromptTokens, moderation.OutputTokens, moderation.CacheHits = 600, 20, 0
	chunks := unforeseen{
		name: "chunks-of-128-for-smooth-tokens",
		source: "0xSero/GLM-5.3-Flash-DGX-Spark 1 (chunks of 256 in place of 1024 tokens: a third of the prefill speed is lost); " +
			"vllm-project/vllm 8121 (smaller ones give smoother tokens), 7604 (as large as the tokens' promise allows); " +
			"tenstorrent/tt-inference-server 4326 (a small budget per step: first tokens rise in a staircase to 7 s)",
		story: "somebody wants smoother tokens and restarts four SGLangs, one every 150 s, drained, same version, with chunks of 128 in place " +
			"of 1024 tokens: a step reads all weights (6.4 + 1.5 ms) for 124 prompt tokens, 15,300 a second, and 28 texts a second of 600 " +
			"tokens are 16,800; until then the engines were busy for 61% of the time; queues grow by 2.5 texts a second on each engine; at ten " +
			"minutes demand grows by a twentieth, which the old setting carries; tokens take 8 ms throughout",
		right: "page within a quarter of an hour; release: the setting changed from 1024 to 128 (chunked_prefill_size) on all four, put it " +
			"back. Right too: prefill or queueing, if the small chunks are named. Not «more requests» (a twentieth), not «too few replicas», not " +
			"longer prompts or lost hits, not slow engines without a word about the setting, not routing. Triage at 6 minutes: release or no " +
			"verdict; at 15 minutes: release",
		page: `(release|prefill|queueing|engine)\. .*(?i:chunk|batch_tokens|1024 (to|→) 128)`,
		fleet: world.Fleet{
			Profile: moderation, Replicas: 4, Runtimes: []metrics.Runtime{metrics.SGLang}, Shares: even(4),
		},
		history: 2 * time.Hour, lasts: 40 * minute,
		faults: []incident.Fault{then(10*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.05 })},
	}
	for i := range 4 {
		at := time.Duration(i) * 150 * time.Second
		chunks.faults = append(chunks.faults, at1(at, i, func(r *world.Replica) { r.Profile.Budget = 128 }))
		chunks.faults = append(chunks.faults, drained(i, at, 75*time.Second)...)
	}
	return []unforeseen{chunks}
}

// eighthLostFlags are two rollouts that lose an option of the engine, without a change of its version.
func eighthLostFlags() []unforeseen {
	// Without drafts each answer takes 2.7 times as many steps, and 48 slots are too few.
	tutor := profile("deepseek-r1-8b-tutor", 10)
	tutor.MaxBatch, tutor.Draft, tutor.Acceptance = 48, 3, 0.75
	tutor.PromptTokens, tutor.OutputTokens, tutor.OutputLimit = 300, 600, 4096
	drafts := unforeseen{
		name: "speculation-lost-in-a-merge",
		source: "linagora/openrag 633 (Helm replaces a whole list: whoever changes one entry wipes out the others); kserve/kserve 5049 (the " +
			"patch replaces the arguments and wipes out the defaults); SafeAILab/EAGLE 173 (156 tokens per second without, 297 with EAGLE)",
		story: "a new values file replaces the list of arguments, and three SGLangs come back without EAGLE, one every 150 s, same version; " +
			"with drafts a step of 9.6 ms gave each answer 2.7 tokens, and 21 of 48 slots were taken; now a step of 10.2 ms gives one token, 48 " +
			"slots end 7.8 answers of 600 tokens a second, and ten a second arrive: within a minute first tokens wait for more than ten " +
			"seconds; at ten minutes demand grows by a tenth, which speculation would carry",
		right: "page within twelve minutes; release: speculation was switched off (3 draft tokens to none) on all three with their restart, " +
			"put it back. Right too: decode, since each answer takes 2.7 times as many steps without proposed tokens. Not «more requests» or " +
			"«too few replicas» (a tenth more), not «restarted minutes ago», not slow engines (a step takes as long as before, and nothing is " +
			"wrong with any of them), not longer answers. Triage at 6 minutes: release or no verdict; at 15 minutes: release or decode, with " +
			"the drafts",
		page:    `(release|decode|engine|queueing)\. .*(?i:specul|draft|eagle|propos|accept)`,
		fleet:   world.Fleet{Profile: tutor, Replicas: 3, Runtimes: []metrics.Runtime{metrics.SGLang}},
		history: 2 * time.Hour, lasts: 40 * minute,
		faults: []incident.Fault{then(10*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.1 })},
	}
	for i := range 3 {
		drafts.faults = append(drafts.faults, at1(time.Duration(i)*150*time.Second, i, func(r *world.Replica) {
			r.Profile.Draft, r.Profile.Acceptance = 0, 0
			r.Restart(75 * time.Second)
		}))
	}

	// The KV cache takes two bytes per number in place of one: half as many tokens fit, and each step reads twice as much.
	notes := profile("mistral-nemo-notes", 2.5)
	notes.PromptTokens, notes.OutputTokens, notes.OutputLimit, notes.CacheHits, notes.KVCacheDtype = 1500, 2000, 8192, 0.1, "fp8"
	sixteen := unforeseen{
		name: "kv-cache-back-to-sixteen-bits",
		source: "rwlove/home-ops 13384 (--kv-cache-dtype fp8 is dropped); FlashML-org/FreeToken 126 (54,284 tokens in fp8, 27,142 in bf16); " +
			"tenstorrent/tt-xla 5864, 5874 (the cache is at 100%, requests wait and are preempted)",
		story: "four vLLMs are rolled out within ten minutes, drained, same version, without --kv-cache-dtype fp8, which somebody thought " +
			"useless: 404,000 in place of 807,000 tokens fit; before, 70 answers of 2,000 tokens ran with 14 ms per token and took 28% of the " +
			"cache; now a step also reads twice as much, so that 180 or more would have to run: 124 fit, and end 1.9 requests a second of 2.5; " +
			"the cache is full four minutes after each restart, engines preempt, and first tokens wait for tens of seconds; meanwhile the " +
			"exporter restarts, and GPU 3 is slowed by its heat for 5 s of each minute, as all morning, without effect",
		right: "page within 16 minutes; release: kv_cache_dtype fp8 to auto on all four, put it back. Right too: memory, the KV cache is full " +
			"and requests are preempted (at unchanged requests), best with the setting. Not more requests, not longer prompts or answers, not " +
			"hardware (GPU 3: sw_thermal_slowdown), not «restarted», not slow engines. Triage at 6 minutes: release, memory of the first " +
			"replicas, or no verdict; at 15 minutes: release or memory",
		page:    `(release\. .*(?i:kv|fp8|cache)|memory\. .*(?i:cache|preempt|kv))`,
		fleet:   world.Fleet{Profile: notes, Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM}, Shares: even(4)},
		history: 2 * time.Hour, lasts: 45 * minute,
		faults: append(exporterOut(6*minute, 45*time.Second), at1(-90*minute, 3, func(r *world.Replica) {
			r.GPU.Throttle = &world.Throttle{Reason: "sw_thermal_slowdown", Clock: 0.8, Part: 5 * time.Second, Period: minute}
		})),
	}
	for i := range 4 {
		at := time.Duration(i) * 150 * time.Second
		sixteen.faults = append(sixteen.faults, at1(at, i, func(r *world.Replica) { r.Profile.KVCacheDtype = "" }))
		sixteen.faults = append(sixteen.faults, drained(i, at, 90*time.Second)...)
	}
	return []unforeseen{drafts, sixteen}
}

// eighthMoves is a pod that comes back on a GPU of another kind.
func eighthMoves() []unforeseen {
	smaller := unforeseen{
		name: "evicted-to-a-smaller-gpu",
		source: "skypilot-org/skypilot 6147 (replicas on different GPUs need shares by kind); aws/karpenter-provider-aws 4289 (nodes are " +
			"replaced by cheaper ones, and pods move); aws-solutions-library-samples/global-capacity-orchestrator-on-aws 129 (one pool of many " +
			"kinds of GPU); jina-ai/serve 184 (a slow replica gets as many requests as the others)",
		story: "an upgrade of the nodes evicts two of three TensorRT-LLMs, one after the other: replica 0 comes back on an H100, replica 2, " +
			"whose node selector allows any GPU, on an L40S; there a request costs 104 ms, 9 a second at the very most, with 184,000 in place " +
			"of 404,000 tokens of KV cache, and 10.5 a second arrive, as at the others, which carry 27; tokens take 60 to 145 ms in place of " +
			"11, and first tokens wait for tens of seconds; no GPU metrics, but the engine's page names its kind of GPU",
		right: "page within 35 minutes; hardware or release: replica 2 runs on an L40S since its restart, its peers on H100s; move it. Right " +
			"too: engine, replica 2 takes many times as long for a token since its restart, alone of three. Not replica 0 (it restarted as well, " +
			"and is as quick as ever), not «started minutes ago» (it does not get better), not routing (each gets a third), not queueing, «more " +
			"requests» or «too few replicas». Triage at 6 and 15 minutes: the same; no verdict is acceptable at 6 minutes",
		page: `(hardware\. .*(L40S|granite-4-8b-branch-2\b)|release\. .*(?i:L40S|gpu|granite-4-8b-branch-2\b)|` +
			`engine\. (.*granite-4-8b-branch-2\b.*(?i:slow|longer|takes|times)|.*(?i:slow|longer|takes|times).*granite-4-8b-branch-2\b))`,
		fleet:   world.Fleet{Profile: profile("granite-4-8b-branch", 10.5), Replicas: 3, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}},
		history: 2 * time.Hour, lasts: 50 * minute, options: play.Options{WithoutGPUs: true},
		faults: []incident.Fault{
			at1(0, 0, func(r *world.Replica) { r.Restart(100 * time.Second) }),
			at1(150*time.Second, 2, func(r *world.Replica) {
				r.Profile.GPU = l40sBF16
				r.Restart(100 * time.Second)
			}),
		},
	}
	return []unforeseen{smaller}
}

// eighthRouting are a gateway that multiplies failures, and an autoscaler that does not know about zones.
func eighthRouting() []unforeseen {
	// Three failures within a minute put a deployment out for five seconds. At high rates a few failures suffice.
	cooldowns := unforeseen{
		name: "cooldowns-multiply-a-few-errors",
		source: "BerriAI/litellm 3646 (all deployments cool down, and the request fails), 40718 (429 without a deployment), 20867 («No " +
			"deployments available for selected model»); Continuum-AI-Corp/OrcaRouter-Lite 121 (after five minutes all are in cooldown at once)",
		story: "a client's update sends tool schemas that the engines answer with 500: 2% of 22 requests a second at two Dynamo frontends " +
			"behind LiteLLM, which lets a deployment cool down for five seconds after each failure, once it has failed three times within a " +
			"minute: each fails every four or five seconds, so that both are out at once for a sixth of the time, in which LiteLLM answers 429 " +
			"by itself; users lose a sixth of their requests, most of them before any engine; at the same time demand grows by a tenth; nobody " +
			"waits",
		right: "page within ten minutes; routing: the gateway refuses one request in six by itself, because it lets both deployments " +
			"cool down, while the engines fail 2%: raise allowed_fails or switch the cooldowns off, then find the client. Right too: engine, " +
			"requests fail in the engines on both alike, which is the trigger. Not one replica, not an engine that is down, not queueing " +
			"(«1.1 times as many requests»), not «fewer requests arrive at the engines». Triage at 6 and 15 minutes: the same",
		page: `(routing\. .*[Gg]ateway|engine\. .*(?i:fail|error))`,
		fleet: world.Fleet{
			Profile: profile("codestral-22b-ide", 10), Replicas: 2, Runtimes: []metrics.Runtime{metrics.Dynamo}, ReadsGateway: true,
		},
		history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) {
			w.Traffic.Failures = 0.02
			w.Traffic.Arrivals *= 1.1
		})},
	}

	// Requests stay in their zone. The autoscaler looks at the mean, and adds both new replicas to the same zone.
	zones := profile("hermes-3-8b-zones", 3)
	zones.PromptTokens = 1200
	other := unforeseen{
		name: "new-replicas-in-the-other-zone",
		source: "kubernetes/kubernetes 139434 (the autoscaler sees one mean, the routing keeps to zones: a zone is overloaded while others " +
			"idle), 122437, 121516; kubernetes/enhancements 2005 (endpoints of one zone may be overloaded while others get little traffic)",
		story: "two TGIs, one in each of two zones, and clients that are served in their own zone, half of them in each; in the morning demand " +
			"grows from 12 to 24, 36 and 48 requests a second within ten minutes, and the autoscaler adds two replicas, both in the zone of " +
			"replica 0: these three get a sixth each, 8 a second, replica 1 alone gets half, 24 a second of the 21 that it can do; from 11 " +
			"minutes on half of all requests wait, ever longer; at 32 minutes the clients are spread over all four, 12 each",
		right: "page between 11 and 25 minutes; routing: replica 1 gets half of all requests, three times as many as each of its peers, which " +
			"idle at 38%. Right too: queueing, if it says that requests wait at replica 1 only. Not «four times as many requests arrive» alone " +
			"or «too few replicas» (four carry 84 a second, and another replica in the same zone helps nobody), not engine (replica 1 is no " +
			"slower than its load makes it), not a rollout (replicas 2 and 3 are new and well). Triage at 6 minutes: HEALTHY or no verdict; at 15 " +
			"minutes: routing, replica 1. After 37 minutes nobody is late: no new page",
		page:    `(routing|queueing)\. .*hermes-3-8b-zones-1\b`,
		fleet:   world.Fleet{Profile: zones, Replicas: 4, Runtimes: []metrics.Runtime{metrics.TGI}, Shares: []float64{1, 1, 0, 0}},
		history: 2 * time.Hour, lasts: 45 * minute,
		faults: []incident.Fault{
			then(-121*minute, func(w *world.World) {
				for _, r := range w.Replicas[2:] {
					r.Down, r.Gone = true, true
				}
			}),
			then(0, func(w *world.World) { w.Traffic.Arrivals = 24 }),
			then(3*minute, func(w *world.World) {
				for _, r := range w.Replicas[2:] {
					r.Restart(90 * time.Second)
				}
			}),
			then(4*minute+35*time.Second, func(w *world.World) { w.Fleet.Shares = []float64{1, 3, 1, 1} }),
			then(5*minute, func(w *world.World) { w.Traffic.Arrivals = 36 }),
			then(10*minute, func(w *world.World) { w.Traffic.Arrivals = 48 }),
			then(32*minute, func(w *world.World) { w.Fleet.Shares = even(4) }),
		},
	}
	return []unforeseen{cooldowns, other}
}

// eighthHosts is a host whose CPUs sleep.
func eighthHosts() []unforeseen {
	desk := profile("llama-3.3-70b-desk", 1.2)
	desk.GPU, desk.Budget, desk.PromptTokens = h200FP8, 192, 700
	desk.Weights = drill.Weights{Parameters: 70.6e9, Bytes: 1, KVBytesPerTok: 327680, Attention: 4 * 80 * 64 * 128}
	sleep := unforeseen{
		name: "cpus-sleep-too-deep",
		source: "google/gvisor 14526 (to wake a core from C6 takes 150 to 230 µs, 400,000 times: 80 s of pure waiting, which no profiler " +
			"shows); NVIDIA/nodewright-packages 95, 96 (a profile of tuned: a third of the throughput, ten times the time to the first token); " +
			"LostRuins/koboldcpp 318 (cores at 1.4 of 3.6 GHz while tokens are generated)",
		story: "the configuration management gives the host another profile of tuned: cores sleep between the launches of kernels and wake " +
			"slowly, at a low clock, which adds 34 ms to each step of four vLLMs with a 70B model: a token takes 56 in place of 22 ms, all of " +
			"them miss 50 ms, by little; GPUs idle for 60% of each step; no thread waits for a CPU, since these are free; at three minutes " +
			"demand grows by a fifth; at five minutes an operator restarts replica 2, drained, which does not help; at 32 minutes the old " +
			"profile is back",
		right: "page within a quarter of an hour; engine: its host, since each step takes 2.6 times as long while the GPU idles for more than " +
			"half of it, on all replicas alike, at the load of before; look at the CPUs. Not «replica 2 started minutes ago» (all are slow, and " +
			"were before), not release, not queueing (nothing waits), not decode (batches have as few requests as ever), not hardware of the " +
			"GPUs (full clock, no throttle). Triage at 6 and 15 minutes: the same; after 40 minutes nobody is late: no new page",
		page: `engine\. .*(?i:uses its GPU|idle|host|CPU|tokens? takes?|steps?)`,
		fleet: world.Fleet{
			Profile: desk, Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM}, Shares: even(4), SeesProcesses: true,
		},
		history: 65 * minute, lasts: 48 * minute,
		faults: append(drained(2, 5*minute, 100*time.Second),
			then(0, all4(func(r *world.Replica) { r.Engine.Lag = 34 * time.Millisecond })),
			then(3*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.2 }),
			then(32*minute, all4(func(r *world.Replica) { r.Engine.Lag = 0 }))),
	}
	return []unforeseen{sleep}
}

// eighthRoles is a router that no longer knows about prefill engines.
func eighthRoles() []unforeseen {
	pd := profile("ministral-8b-tools-pd", 5.2)
	pd.Release, pd.Prefilled, pd.Fetching, pd.PromptTokens, pd.OutputTokens, pd.CacheHits = "0.26.0", true, 25e9, 1500, 400, 0.1
	passed := unforeseen{
		name: "prefill-pool-passed-by",
		source: "llm-d/llm-d-router 1461 (P/D silently runs decode-only: the prefiller gets nothing, no transfer happens, the answers are " +
			"right); modelplaneai/modelplane 175 (0 requests at the prefill engine, the decode engine serves everything); llm-d/llm-d 1189 (no " +
			"header, no external hits); vllm-project/vllm 42703",
		story: "three prefill and two decode engines, 26 requests a second; a new configuration of the router leaves out the header with the " +
			"prefill engine, so that each request goes to a decode engine at once, which computes the prompt as well: 45 ms of prefill and 47 " +
			"of decode, 13 times a second, 1.2 times what it can do; batches fill, a step takes 59 in place of 15 ms, and first tokens wait; " +
			"the prefill engines idle, no KV cache is transferred, none fails; at eight minutes demand grows by a twentieth, and GPU 4 " +
			"corrects a memory error every two seconds, which harms nobody; at 28 minutes the header is back",
		right: "page within twelve minutes; routing: the prefill engines (replicas 0 to 2) get nothing any more, and decode engines 3 and 4 " +
			"compute the prompts themselves. Right too: prefill or memory, if it says that decode engines compute prompts, or that no KV cache " +
			"comes to them. Not longer prompts, not lost hits of the prefix cache, not «more requests» or «too few replicas», not failed " +
			"transfers, not slow engines, not a full KV cache alone (the consequence), not hardware. Triage at 6 and 15 minutes: the same. " +
			"After 34 minutes nobody is late: no new page",
		page: `(routing\. .*(ministral-8b-tools-pd-[0-2]\b|(?i:prefill))|` +
			`(prefill|memory|engine|queueing)\. .*(?i:prefill engine|decode engine|transfer|external|compute))`,
		fleet:   world.Fleet{Profile: pd, Replicas: 5, Prefills: 3, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 65 * minute, lasts: 42 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.PassesPrefill = true }),
			then(8*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.05 }),
			at1(8*minute, 4, func(r *world.Replica) { r.GPU.Corrected = 0.5 }),
			then(28*minute, func(w *world.World) { w.PassesPrefill = false }),
		},
	}
	return []unforeseen{passed}
}

// eighthHarmlessMoves must wake nobody: a pod that moves and comes back, and pools that shrink in the evening.
func eighthHarmlessMoves() []unforeseen {
	moved := unforeseen{
		name: "moved-off-a-gpu-that-waits-for-its-reset",
		source: "NVIDIA/NVSentinel 126 (drain only the pods of the GPU that needs a reset), 683 (partial drain); kserve/modelmesh 142 (a node " +
			"is drained while the model is loaded elsewhere)",
		story: "GPU 2 has remapped a row (XID 63), which needs a reset at the next opportunity; as planned, a fifth SGLang is started on a " +
			"spare GPU, replica 2 is drained and deleted, its GPU is reset at 20 minutes, and everything goes back; four engines carry 20 " +
			"requests a second throughout, a fifth of what they can",
		right: "nobody is woken; a ticket about GPU 2 is right. A pod that leaves, one that is new, a remapped row and a reset harm nobody. " +
			"Triage at 6 minutes: HEALTHY, or GPU 2 with low confidence; at 15 minutes: HEALTHY, GPU 2, or a restart with low confidence",
		fleet: world.Fleet{
			Profile: profile("phi-4-claims", 4), Replicas: 5, Runtimes: []metrics.Runtime{metrics.SGLang}, Shares: []float64{1, 1, 1, 1, 0},
		},
		history: 2 * time.Hour, lasts: 60 * minute,
		faults: []incident.Fault{
			at1(-121*minute, 4, func(r *world.Replica) { r.Down, r.Gone = true, true }),
			at1(0, 2, func(r *world.Replica) {
				r.GPU.Report(63)
				r.GPU.RemapPending = true
			}),
			at1(8*minute, 4, func(r *world.Replica) { r.Restart(90 * time.Second) }),
			then(10*minute, func(w *world.World) { w.Fleet.Shares = []float64{1, 1, 0, 1, 1} }),
			at1(11*minute, 2, func(r *world.Replica) { r.Down, r.Gone = true, true }),
			at1(20*minute, 2, func(r *world.Replica) { r.GPU.RemapPending = false }),
			at1(24*minute, 2, func(r *world.Replica) { r.Restart(90 * time.Second) }),
			then(26*minute, func(w *world.World) { w.Fleet.Shares = []float64{1, 1, 1, 1, 0} }),
			at1(27*minute, 4, func(r *world.Replica) { r.Down, r.Gone = true, true }),
		},
	}

	pd := profile("llama-3.1-8b-forms-pd", 3)
	pd.Release, pd.Prefilled, pd.Fetching = "0.26.0", true, 25e9
	ebb := unforeseen{
		name: "evening-ebb-shrinks-both-pools",
		source: "ai-dynamo/dynamo 14251 (without requests the planner is to take decode engines away), 358 (it moves engines between the " +
			"roles, or scales each of them)",
		story: "demand ebbs from 15 to 4 requests a second within half an hour; the planner takes decode engine 4 away at 14 minutes, which " +
			"cuts a handful of answers, of 40,000 in an hour, and one of two prefill engines at 22 minutes; at 30 minutes the exporter " +
			"restarts; the engines that are left are busy for a tenth of the time, and first tokens take 30 ms",
		right: "nobody is woken; at most one ticket: fewer requests, fewer engines in both roles and an idle GPU are the evening's course. " +
			"Triage at 6 and 15 minutes: HEALTHY, or an engine that left with low confidence; not «prefill engines are missing»",
		fleet:   world.Fleet{Profile: pd, Replicas: 5, Prefills: 2, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 2 * time.Hour, lasts: 65 * minute,
		faults: append(exporterOut(30*minute, 40*time.Second),
			at1(14*minute, 4, func(r *world.Replica) { r.Down, r.Gone = true, true }),
			then(21*minute, func(w *world.World) { w.Favours = 1 }),
			at1(22*minute, 1, func(r *world.Replica) { r.Down, r.Gone = true, true })),
	}
	for i, to := range []float64{13, 11, 9, 7, 5.5, 4} {
		ebb.faults = append(ebb.faults, then(time.Duration(i)*5*minute, func(w *world.World) { w.Traffic.Arrivals = to }))
	}
	return []unforeseen{moved, ebb}
}

// eighthHarmlessLoads must wake nobody: a job that fills the cache, and a new build whose first minutes are slower.
func eighthHarmlessLoads() []unforeseen {
	minutes := profile("qwen3-8b-minutes", 3)
	minutes.Budget = 640
	night := unforeseen{
		name: "night-job-holds-the-cache",
		source: "doublewordai/control-layer 1337 (a background class that uses spare capacity, up to a threshold per model); " +
			"llm-d/llm-d.github.io 354 (a batch processor with a limit of what is in flight); TheManInTheBox/DirectAI 73",
		story: "for 45 minutes of the night a job keeps 73 summaries of 4,000 to 10,000 tokens running on each of two vLLMs: their KV cache " +
			"rises from 1% to 80-95% within four minutes and stays there, 88 in place of 6 requests run, GPUs are busy all the time, and a token " +
			"takes 26 ms, 40 beside a prompt (the promise is 50); chats, six a second, get their first tokens within 0.1 s; hardly any request " +
			"is preempted; outputs are ten times as long on average",
		right: "nobody is woken, no ticket: a cache that is nearly full is well used as long as nobody waits for it. Triage at 6 and 15 " +
			"minutes: HEALTHY",
		fleet:   world.Fleet{Profile: minutes, Replicas: 2, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 2 * time.Hour, lasts: 70 * minute,
		faults: keeps(0, 45*minute, func(since time.Duration) int {
			return min(15+int(since/(2500*time.Millisecond)), 88)
		}, func(random *rand.Rand) *drill.Request {
			return &drill.Request{Prompt: 800, Output: float64(4000 + random.IntN(6000))}
		}),
	}

	clinic := profile("qwen3-8b-q8-clinic", 0.05)
	clinic.MaxBatch, clinic.GPU, clinic.Weights, clinic.Patience = 4, drill.L40S, drill.Llama8BFP8, 2*minute
	build := unforeseen{
		name: "new-build-warms-up",
		source: "ggml-org/llama.cpp 9492 (the first answer after a start is slow, every further one is as usual); sgl-project/sglang 146 (the " +
			"first request after a start builds kernels); vllm-project/vllm 22897 (graphs are captured while requests run)",
		story: "the only llama.cpp server, which gets a request every 20 s, is replaced by a new build; it starts within 25 s, its cache of " +
			"prompts is empty, and for three minutes, until its graphs are captured, a token takes 35 in place of 14 ms, and a first token " +
			"0.1 s (the promises are 50 ms and 0.5 s); at 25 minutes the next build comes, the same again; one or two requests and a probe " +
			"are refused each time; no GPU metrics, objectives on the probes",
		right: "nobody is woken; at most one ticket about a new version or a restart. Triage at 6 minutes: HEALTHY, or the new build with low " +
			"confidence; at 15 minutes: HEALTHY",
		fleet: world.Fleet{
			Profile: clinic, Replicas: 1, Runtimes: []metrics.Runtime{metrics.LlamaCpp}, Probes: true, Objectives: onProbes(),
		},
		history: 3 * time.Hour, lasts: 60 * minute, options: play.Options{WithoutGPUs: true},
	}
	for i, release := range []string{"b11702-4c1d2e3", "b11705-9a8b7c6"} {
		at := time.Duration(25*i) * minute
		build.faults = append(build.faults,
			then(at, func(w *world.World) {
				r := w.Replicas[0]
				r.Profile.Release, r.Engine.Slow, w.Traffic.CacheHits = release, 2.5, 0.05
				r.Restart(25 * time.Second)
			}),
			then(at+3*minute+25*time.Second, func(w *world.World) { w.Replicas[0].Engine.Slow, w.Traffic.CacheHits = 1, 0.35 }))
	}
	return []unforeseen{night, build}
}
