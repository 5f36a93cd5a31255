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

// This file holds fourteen incidents that a ninth tester took from public threads, without having read the rules. The
// right answers were committed before the first play.

// TestUnforeseenNinth plays the incidents of the ninth tester.
func TestUnforeseenNinth(t *testing.T) { checkUnforeseen(t, unforeseenNinth()) }

// unforeseenNinth are from a ninth tester.
func unforeseenNinth() []unforeseen {
	return slices.Concat(ninthDemand(), ninthMemory(), ninthTurns(), ninthWorkers(), ninthHardware(), ninthReleases(), ninthCircuits(),
		ninthCancels(), ninthDecoders(), ninthHarmlessAnswers(), ninthHarmlessRoutes())
}

// ninthDemand are a backlog that comes at once and prompts that grow for hours.
func ninthDemand() []unforeseen {
	tickets := profile("granite-3-8b-tickets", 4)
	tickets.PromptTokens, tickets.OutputTokens, tickets.CacheHits, tickets.Patience = 1400, 60, 0, 0
	backlog := unforeseen{
		name: "backlog-replayed-after-a-pause",
		source: "langwatch/tasks 511 (a backlog of a million jobs after a period of high inflow); alexei-led/ccgram 205 (a restart replays " +
			"the whole backlog, ahead of live messages); getsentry/snuba 4774 (consumers pause and resume)",
		story: "a consumer that classifies tickets, 12.8 of 16 requests a second at four TGIs, is paused for 35 minutes; then it replays its " +
			"26,900 tickets at 80 a second for 336 s beside 16 new ones: 24 a second at each engine, which does about 17 (1,400 + 60 tokens, of " +
			"1,024 per step of 36 ms, every other step of which admits nothing); queues grow by 7 a second each, to 2,350 requests and more " +
			"than two minutes of work; they are empty after three minutes more; before, the engines were busy for a quarter of the time",
		right: "page within five minutes, since nearly every first token is late for more than eight minutes; queueing: six times as many " +
			"requests arrive as usual (thirty times as many as in the lull). Not «too few replicas» for ever, not engine (a step takes what its " +
			"tokens need), not prefill (prompts are as long as ever), not routing (all four alike). Triage at 6 minutes: queueing; at 15 " +
			"minutes: HEALTHY, or queueing as something that has passed. After 12 minutes nobody is late: no new page. The lull itself must not " +
			"page",
		page:    `queueing\. `,
		fleet:   world.Fleet{Profile: tickets, Replicas: 4, Runtimes: []metrics.Runtime{metrics.TGI}},
		history: 2 * time.Hour, lasts: 32 * minute,
		faults: []incident.Fault{
			then(-35*minute, func(w *world.World) { w.Traffic.Arrivals = 3.2 }),
			then(0, func(w *world.World) { w.Traffic.Arrivals = 96 }),
			then(336*time.Second, func(w *world.World) { w.Traffic.Arrivals = 16 }),
		},
	}

	// A chat client keeps each conversation whole, so that prompts are longer with every turn of the morning.
	copilot := profile("mistral-7b-copilot", 4)
	copilot.Budget, copilot.MaxModelLen = 768, 131072
	grow := unforeseen{
		name: "histories-that-nobody-trims",
		source: "Rustam-Z/hamroh 54 (the context fills up over time and slows responses); seangalliher/ProbOS 1098 (each step pays again for " +
			"every step before it); open-webui/computer 277 (compaction never happens for the longest conversation)",
		story: "a client's new version no longer shortens its conversations: prompts at two TensorRT-LLMs behind LiteLLM grow from 900 to " +
			"7,500 tokens within 100 minutes, evenly; eight requests a second, answers and the share of hits (35%) stay; a prompt costs 21 ms " +
			"of prefill at first, 0.13 s at 4,500 tokens, 0.19 s at 6,000 and 0.26 s at 7,500, with what the batch beside it reads, while each " +
			"engine gets four a second: 8% of its time, 52%, 77%, too much; every sixth first token is late from about an hour on, more than " +
			"half after 80 minutes; tokens take 45 ms beside a prompt; at 102 minutes the client is put back",
		right: "page between 55 and 100 minutes; prefill: prompts are several times as long as they were hours ago, at as many requests. Not " +
			"lost hits (the ratio is unchanged), not «more requests» or «too few replicas» alone, not slow engines or hardware (a step takes " +
			"what its tokens need), not decode, not a full KV cache (below a half), not the gateway. Triage at 6 and 15 minutes: HEALTHY",
		page:    `prefill\. .*(?i:prompt|tokens per request|long)`,
		fleet:   world.Fleet{Profile: copilot, Replicas: 2, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}, ReadsGateway: true},
		history: 2 * time.Hour, lasts: 112 * minute,
		faults: []incident.Fault{then(102*minute, func(w *world.World) { w.Traffic.PromptTokens = 900 })},
	}
	for i := range 51 {
		grow.faults = append(grow.faults, then(time.Duration(2*i)*minute, func(w *world.World) {
			w.Traffic.PromptTokens = 900 + 132*float64(i)
		}))
	}
	return []unforeseen{backlog, grow}
}

// ninthMemory are prefill engines that keep KV cache which nobody will fetch.
func ninthMemory() []unforeseen {
	claims := profile("gemma-3-8b-claims-pd", 3)
	claims.Release, claims.Prefilled, claims.Fetching, claims.PromptTokens, claims.OutputTokens = "0.26.0", true, 25e9, 1800, 150
	claims.CacheHits = 0.1
	stranded := unforeseen{
		name: "stranded-caches-fill-the-prefill-engines",
		source: "llm-d/llm-d 1138 (a request that is cancelled inside the routing proxy strands its blocks on the prefill engine until a " +
			"timeout); vllm-project/vllm 36958 (a wrong id in the notification: prefill engines never free), 46283 (blocks accumulate until no " +
			"request is admitted)",
		story: "two prefill and two decode vLLMs, 12 requests a second, prompts of 1,800 tokens; somebody raised the timeout for unfetched " +
			"KV caches to a day, and one request in 40 is cancelled inside the router after its prefill: its 1,620 tokens stay; 243 tokens a " +
			"second on each prefill engine, of 404,000, so that they are full after 27 minutes, with one or two requests running; then prompts " +
			"longer than what is free are preempted again and again, block all behind them until their clients leave after a minute, and first " +
			"tokens take tens of seconds; until then prefill was busy for a third of the time and decode for less; at 44 and 46 minutes both " +
			"prefill engines are restarted",
		right: "page between 22 and 36 minutes; memory: the KV cache of the prefill engines 0 and 1 is full although as few requests run as " +
			"ever (it rose by 3.5% a minute): restart them one by one. Not longer prompts, not more requests, not too few prefill engines, not " +
			"failed or slow transfers, not the decode engines (their caches are nearly empty). Triage at 6 minutes: HEALTHY; at 15 minutes: " +
			"HEALTHY or memory with low confidence. After 50 minutes nobody is late: no new page",
		page:    `memory\. .*(?i:kv|cache|preempt)`,
		fleet:   world.Fleet{Profile: claims, Replicas: 4, Prefills: 2, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 2 * time.Hour, lasts: 60 * minute, again: 2, // the replicas recover one after the other
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Replicas[0].Engine.Leak, w.Replicas[1].Engine.Leak = 0.025, 0.025 }),
			at1(44*minute, 0, func(r *world.Replica) { r.Restart(75 * time.Second) }),
			at1(46*minute, 1, func(r *world.Replica) { r.Restart(75 * time.Second) }),
		},
	}
	return []unforeseen{stranded}
}

// ninthTakesTurns lets another model use the memory of the only Ollama every 40 to 70 s. The other model is loaded for 5 s
// and answers for 4 s. The next request for our model waits for that, and for 5 s more.
func ninthTakesTurns(from, to time.Duration) (faults []incident.Fault) {
	const loading, answering = 5 * time.Second, 4 * time.Second
	var random *rand.Rand
	var away bool
	var free, back, next, busy time.Duration
	for at := from; at <= to; at += 5 * time.Second {
		faults = append(faults, then(at, func(w *world.World) {
			r, now := w.Replicas[0], w.Now()
			if at == from {
				random, away, free, back, next = rand.New(rand.NewPCG(9, 9)), false, 0, 0, 0
			}
			switch {
			case away && r.Engine.Busy() > busy: // somebody asked for our model
				away, back, r.Engine.Lag = false, now+r.Engine.Lag, 0
			case !away && now >= back && now >= next && r.Engine.Holds() == 0 && at < to:
				away, busy, free = true, r.Engine.Busy(), now+loading+answering
				next = now + time.Duration(40+random.IntN(30))*time.Second
			}
			if at == to {
				away, back, r.Engine.Lag = false, 0, 0
			}
			if away {
				r.Engine.Lag = max(0, free-now) + loading
			}
			r.Unload(away || now < back)
		}))
	}
	return faults
}

// ninthTurns are two models that drive each other out of the memory of one GPU.
func ninthTurns() []unforeseen {
	notes := profile("gemma-3-14b-notes", 0.02)
	notes.Release, notes.MaxBatch, notes.Patience = "0.12.6", 4, 5*minute
	notes.GPU = drill.Hardware{Name: "NVIDIA GeForce RTX 4090", Bandwidth: 1008e9, FLOPS: 660e12, Memory: 24e9}
	notes.Weights = drill.Weights{Parameters: 14e9, Bytes: 1, KVBytesPerTok: 131072, Attention: 4 * 48 * 32 * 128}
	turns := unforeseen{
		name: "two-models-take-turns-on-one-ollama",
		source: "ollama/ollama 4681 (without space for the second model the first is unloaded), 7114 (back at the first model, several " +
			"seconds of loading again), 10948 («model thrashing» although OLLAMA_KEEP_ALIVE=-1 is set)",
		story: "a coding assistant begins to use a second model of 14 GB on the only Ollama, whose GPU of 24 GB holds one of them: every 40 " +
			"to 70 s it drives out the model that everybody else uses, is loaded for 5 s and answers for 4 s; whoever then asks for the first " +
			"model waits for that and for 5 s of loading, 5 to 14 s in all, and so do those behind; 2.2 requests a minute, probes included, so " +
			"that every second one is late; tokens come as quickly as ever (20 ms); /api/ps does not list the model for half of the time; no " +
			"GPU metrics, objectives on the probes; at 40 minutes the assistant uses the first model",
		right: "page within 25 minutes, since a probe is sent once a minute; engine or memory: the model is not loaded when it is asked for, " +
			"and is loaded anew each time (a second model drives it out). Not queueing «requests wait for a slot» (more slots do not help), not " +
			"a slow engine or decode (tokens take 20 ms), not a hang, not «partly on the CPU». Triage at 15 minutes: the same; at 6 minutes no " +
			"verdict is acceptable. After 43 minutes nobody waits: no new page",
		page: `(engine|memory)\. .*(?i:load|evict|driv|GPU memory|in memory)`,
		fleet: world.Fleet{
			Profile: notes, Replicas: 1, Runtimes: []metrics.Runtime{metrics.Ollama}, Probes: true, Objectives: onProbes(),
		},
		history: 2 * time.Hour, lasts: 55 * minute, options: play.Options{WithoutGPUs: true},
		faults: ninthTakesTurns(0, 40*minute),
	}
	return []unforeseen{turns}
}

// ninthWorkers is a registry that forgets all workers for a few minutes.
func ninthWorkers() []unforeseen {
	agents := profile("qwen3-8b-agents", 6)
	lease := unforeseen{
		name: "etcd-loses-all-leases",
		source: "ai-dynamo/dynamo 3493 (seconds of interruption at etcd, all leases are lost, all services restart), 918 (leases of " +
			"workers); NillionNetwork/nilAI 39 (the renewal of a lease fails, and the frontend no longer knows its models)",
		story: "etcd is interrupted for seconds, all leases expire, and three Dynamo frontends at once have no worker: each of 18 requests a " +
			"second is answered with 503 for a few seconds, then with 404; LiteLLM in front of them lets all three cool down again and again " +
			"and answers most requests itself; after five minutes the frontends end and start anew, within 130 s, by themselves; from then on " +
			"all is well",
		right: "page within five minutes: all requests fail for more than six minutes, a seventh of a month's budget; engine: no frontend " +
			"has a worker, the model is not ready on all three. Right too: routing, if it says that the frontends have no worker. Not «the " +
			"gateway refuses» alone (its cooldowns are the consequence), not «fewer requests arrive», not queueing, not hardware (idle GPUs are " +
			"the consequence). Triage at 6 minutes: the same; at 15 minutes: HEALTHY, or engines that restarted. After 10 minutes: no new page",
		page: `(engine|routing)\. .*(?i:worker|ready|model|qwen3-8b-agents)`,
		fleet: world.Fleet{
			Profile: agents, Replicas: 3, Runtimes: []metrics.Runtime{metrics.Dynamo}, ReadsGateway: true,
		},
		history: 2 * time.Hour, lasts: 30 * minute,
		faults: []incident.Fault{then(0, all4(func(r *world.Replica) { r.LoseWorker() }))},
	}
	for i := range 3 {
		lease.faults = append(lease.faults, at1(5*minute+time.Duration(20*i)*time.Second, i, func(r *world.Replica) {
			r.Restart(90 * time.Second)
		}))
	}
	return []unforeseen{lease}
}

// ninthHardware is one hot GPU of six, while its neighbours are rolled out.
func ninthHardware() []unforeseen {
	hot := unforeseen{
		name: "one-fan-of-six-stops-during-a-rollout",
		source: "NVIDIA/DCGM 270 (a thermal violation of one GPU: «the fan might not be installed»); canonical/hardware-observer-operator " +
			"307 (alerts on dcgm-exporter's throttle reasons, which its default list lacks)",
		story: "three vLLMs and three SGLangs serve 48 requests a second; the fan of GPU 3 stops, and its clock falls to 340 of 1,980 MHz at " +
			"88 °C; a step with 1,024 tokens takes 0.22 in place of 0.04 s, so that the engine does 5.6 of its 8 requests a second, where it " +
			"did 27: its clients wait for ten seconds within a minute and for a minute later; meanwhile replicas 1 and 2 are restarted, " +
			"drained, same version; the exporter reads a dcgm-exporter with the default list: SM clock, temperature, power, utilisation, no " +
			"reasons; at 30 minutes the fan turns again",
		right: "page within a quarter of an hour; hardware: GPU 3 is hot, at a sixth of the clock of its neighbours: drain it. Right too: " +
			"engine, replica 3 is many times as slow as its peers at the same load. Not a rollout or a restart (replicas 1 and 2 are well, 3 " +
			"did not restart), not queueing, «more requests» or «too few replicas», not the router (equal shares), not SGLang as such (1 and 5 " +
			"are well). Triage at 6 and 15 minutes: the same. After 35 minutes nobody is late: no new page",
		page: `hardware\. .*GPU 3\b|engine\. .*qwen3-8b-briefs-3\b`,
		fleet: world.Fleet{
			Profile: profile("qwen3-8b-briefs", 8), Replicas: 6, Runtimes: []metrics.Runtime{metrics.VLLM, metrics.SGLang}, Shares: even(6),
		},
		history: 65 * minute, lasts: 42 * minute, options: play.Options{DCGM: []string{}},
		faults: slices.Concat(drained(1, -2*minute, 90*time.Second), drained(2, 2*minute, 90*time.Second), []incident.Fault{
			at1(0, 3, func(r *world.Replica) {
				r.GPU.Throttle = &world.Throttle{Reason: "hw_thermal_slowdown", Clock: 0.17}
			}),
			at1(30*minute, 3, func(r *world.Replica) { r.GPU.Throttle = nil }),
		}),
	}
	return []unforeseen{hot}
}

// ninthReleases is an option for debugging that comes with a rollout.
func ninthReleases() []unforeseen {
	brief := profile("llama-3.3-70b-brief", 1.2)
	brief.GPU, brief.Budget, brief.PromptTokens = h200FP8, 192, 700
	brief.Weights = drill.Weights{Parameters: 70.6e9, Bytes: 1, KVBytesPerTok: 327680, Attention: 4 * 80 * 64 * 128}
	eager := unforeseen{
		name: "eager-mode-left-in-the-values",
		source: "ai-dynamo/dynamo 2109 (the flag is for development, deployments should not have it); scaleapi/llm-engine 851 (every " +
			"endpoint was started with it, which massively slows down decode); Project-MONAI/VLM-Surgical-Agent-Framework 5 (11.2 in place of " +
			"45.9 tokens per second)",
		story: "somebody debugged a crash and left --enforce-eager in the values: three vLLMs with a 70B model on H200 are rolled out, one " +
			"every four minutes, drained, same version and image; without CUDA graphs the CPU launches each kernel of 80 layers, which adds 38 " +
			"ms to each step: a token takes 60 to 68 in place of 22 to 29 ms, all tokens miss 50 ms; GPUs idle for more than half of each step, " +
			"no thread waits for a CPU; demand falls by a fifth at six minutes, as every evening, and GPU 1 corrects a memory error every five " +
			"seconds",
		right: "page within 25 minutes; release: the option --enforce-eager is new on all three since their restart (their command lines " +
			"show it): take it out. Right too: engine, if it says that steps take 2.5 times as long since the restart. Not the host's CPUs (no " +
			"thread waits), not «started minutes ago» as if it would pass, not queueing or decode (batches are smaller than before), not " +
			"hardware. Triage at 6 minutes: release or engine of replica 0, or no verdict; at 15 minutes: release",
		page: `release\. .*(?i:eager|option|command|argument|setting)|engine\. .*(?i:eager|restart|since)`,
		fleet: world.Fleet{
			Profile: brief, Replicas: 3, Runtimes: []metrics.Runtime{metrics.VLLM}, Shares: even(3), SeesProcesses: true,
		},
		history: 2 * time.Hour, lasts: 40 * minute,
		faults: []incident.Fault{
			then(6*minute, func(w *world.World) { w.Traffic.Arrivals *= 0.8 }),
			at1(-30*minute, 1, func(r *world.Replica) { r.GPU.Corrected = 0.2 }),
		},
	}
	for i := range 3 {
		at := time.Duration(4*i) * minute
		eager.faults = append(eager.faults, at1(at+45*time.Second, i, func(r *world.Replica) {
			r.Profile.Options = append(slices.Clone(r.Profile.Options), "--enforce-eager")
			r.Engine.Lag = 38 * time.Millisecond
		}))
		eager.faults = append(eager.faults, drained(i, at, 150*time.Second)...)
	}
	return []unforeseen{eager}
}

// ninthCircuits is a router that punishes five seconds with a minute.
func ninthCircuits() []unforeseen {
	search := profile("qwen3-8b-search", 16)
	search.Budget = 896
	blips := unforeseen{
		name: "a-blip-of-five-seconds-keeps-the-circuit-open",
		source: "sgl-project/sglang 39464 (the breaker keeps shedding after the engine is well, because nothing is sent to notice it), 31206 " +
			"(a circuit that never closes again), 25811; istio/istio 18428 (sidecars run out of memory and are restarted)",
		story: "the sidecar of the first of two SGLangs runs out of memory twice a minute: its port is closed for five seconds, then open " +
			"for 25; the router (SMG) opens that circuit for a minute at the first refusal, and again at the first request after it, which " +
			"meets the next gap: replica 0 gets nothing any more, although it is up five sixths of the time; replica 1 gets all 32 requests a " +
			"second and does 26 (765 tokens each, 896 per step of 44 ms), so that it queues six more each second; until then each was busy at " +
			"60% of that; scrapes never meet a closed port; GPU 1, busy all the time, now runs into its power cap, which costs 5% of its clock; " +
			"at 26 minutes the sidecar gets more memory",
		right: "page within ten minutes; routing: the circuit of replica 0 is open, it gets nothing, and replica 1 gets all. Right too: " +
			"engine, if it names replica 0, whose port closes. Not replica 1 (as slow as its load makes it), not «twice as many requests» or " +
			"«too few replicas» alone (as many arrive at the router as ever), not prefill, not decode, not hardware (GPU 1: sw_power_cap). " +
			"Triage at 6 and 15 minutes: the same. After 32 minutes nobody is late: no new page",
		page: `routing\. .*(?i:circuit|worker|qwen3-8b-search-[01]|10\.0\.0\.10)|engine\. .*qwen3-8b-search-0\b`,
		fleet: world.Fleet{
			Profile: search, Replicas: 2, Runtimes: []metrics.Runtime{metrics.SGLang}, ReadsGateway: true, Gateway: metrics.SMG,
		},
		history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{
			at1(minute, 1, func(r *world.Replica) { r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.95} }),
			at1(28*minute, 1, func(r *world.Replica) { r.GPU.Throttle = nil }),
		},
	}
	for at := 10 * time.Second; at < 26*minute; at += 30 * time.Second {
		blips.faults = append(blips.faults, at1(at, 0, func(r *world.Replica) { r.Down = true }),
			at1(at+5*time.Second, 0, func(r *world.Replica) { r.Down = false }))
	}
	return []unforeseen{blips}
}

// ninthCancels are clients that leave without the engines' knowledge.
func ninthCancels() []unforeseen {
	editor := profile("qwen3-coder-8b-editor", 8.5)
	editor.MaxBatch, editor.PromptTokens, editor.OutputTokens, editor.OutputLimit, editor.Leaves = 48, 500, 600, 4096, 0.9
	cancels := unforeseen{
		name: "cancels-no-longer-reach-the-engines",
		source: "vllm-project/production-stack 634 (cancellations do not go through the router: answers of clients that have left run to " +
			"their end), 867 (the engine logs 200 in place of an abort); vllm-project/vllm 54947; PrimeIntellect-ai/prime-rl 2408",
		story: "an editor takes the first lines of a suggestion and drops the rest: nine answers in ten are cancelled on average after half " +
			"of their 600 tokens, as always; a new proxy in front keeps its connections to two SGLangs open when a client has left, so that " +
			"every answer runs to its end: 600 in place of 330 tokens each at 8.5 requests a second per engine, 10.5 ms per step; 29 of 48 " +
			"slots were taken, 54 would be needed, 7.3 a second end, and first tokens wait for ten seconds after a minute; the engines count " +
			"90% aborts before and hardly any after; at eight minutes replica 0 is restarted, in vain; at 28 minutes the old proxy is back",
		right: "page within ten minutes; behaviour or routing: clients' cancellations no longer arrive (aborts fell from nine in ten to " +
			"none), the proxy in front. Right too: decode or queueing, if it says that answers have 1.8 times as many tokens. Not «more " +
			"requests» or «too few replicas» (as many arrive as ever), not slow engines (a step takes as long as before), not a model that does " +
			"not stop (few answers reach a limit), not replica 0. Triage at 6 and 15 minutes: the same. After 34 minutes nobody is late: no new " +
			"page",
		page:    `(behaviou?r|routing)\. |(decode|queueing|engine)\. .*(?i:longer|output|abort|cancel|answers|tokens per request)`,
		fleet:   world.Fleet{Profile: editor, Replicas: 2, Runtimes: []metrics.Runtime{metrics.SGLang}},
		history: 2 * time.Hour, lasts: 42 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Traffic.Leaves = 0 }),
			at1(8*minute, 0, func(r *world.Replica) { r.Restart(minute) }),
			then(28*minute, func(w *world.World) { w.Traffic.Leaves = 0.9 }),
		},
	}
	return []unforeseen{cancels}
}

// ninthDecoders is a router that sees only one of its decode engines.
func ninthDecoders() []unforeseen {
	pd := profile("llama-3.1-8b-support-pd", 5)
	pd.Release, pd.Prefilled, pd.Fetching, pd.PromptTokens, pd.OutputTokens, pd.CacheHits = "0.26.0", true, 25e9, 600, 400, 0.1
	pd.MaxBatch, pd.OutputLimit = 96, 2048
	pinned := unforeseen{
		name: "all-decode-on-one-of-three",
		source: "ai-dynamo/dynamo 7836 (three of five decode workers get everything, two get nothing and idle at 115 W), 12300 (traffic is " +
			"piled on workers that already decode), 589 (each router picks the same best worker)",
		story: "two prefill and three decode vLLMs, 30 requests a second; after a restart of the router its scores favour decode engine 2 " +
			"always: it gets 30 a second in place of 10, with 400 tokens each and a step of 12 ms it ends 20 with all 96 slots taken, where 40 " +
			"were taken before; first tokens wait for ten seconds after half a minute, for a minute later; prefill takes 30 ms as ever, KV " +
			"caches arrive within 3 ms, tokens take 12 ms; decode engines 3 and 4 idle; at eight minutes a planner adds decode engine 5, which " +
			"gets nothing either; at 26 minutes the router is repaired",
		right: "page within ten minutes; routing: decode engine 2 gets all requests, its peers none. Right too: queueing or decode, if it " +
			"says that requests wait at replica 2 only. Not too few decode engines (another one idles as well), not «more requests», not " +
			"prefill, not slow or failed transfers, not a slow engine 2 (its steps are as short as its batch allows), not engines 3 to 5 that " +
			"hang (nothing waits there). Triage at 6 and 15 minutes: the same. After 31 minutes nobody is late: no new page",
		page:    `(routing|queueing|decode)\. .*llama-3\.1-8b-support-pd-[2-5]\b`,
		fleet:   world.Fleet{Profile: pd, Replicas: 6, Prefills: 2, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 2 * time.Hour, lasts: 40 * minute,
		faults: []incident.Fault{
			at1(-121*minute, 5, func(r *world.Replica) { r.Down, r.Gone = true, true }),
			then(0, func(w *world.World) { w.FavoursDecode = 1 }),
			at1(8*minute, 5, func(r *world.Replica) { r.Restart(90 * time.Second) }),
			then(26*minute, func(w *world.World) { w.FavoursDecode = 0 }),
		},
	}
	return []unforeseen{pinned}
}

// ninthHarmlessAnswers must wake nobody: drafts that fit another language less well, and answers that clients keep short.
func ninthHarmlessAnswers() []unforeseen {
	translate := profile("qwen3-8b-q8-translate", 0.05)
	translate.MaxBatch, translate.GPU, translate.Weights, translate.Patience = 4, drill.L40S, drill.Llama8BFP8, 2*minute
	translate.Draft, translate.Acceptance = 3, 0.8
	language := unforeseen{
		name: "another-language-accepts-fewer-drafts",
		source: "lightseekorg/tokenspeed 1305 (74.6% of the drafts are accepted for one kind of text, 48.5% for another); SafeAILab/EAGLE " +
			"227; vllm-project/vllm 24343 (the accepted length depends on the data set)",
		story: "for an hour the only llama.cpp server translates into Finnish in place of English: its draft model, which proposes three " +
			"tokens, guesses 45% in place of 80% of them, so that a step of 16 ms gives 1.7 in place of 3 tokens; a token takes 9 in place of 5 " +
			"ms, the promise is 50; a request comes every 20 s, no slot is ever short; no GPU metrics, objectives on the probes",
		right: "nobody is woken, no ticket: speculation helps less, and nobody notices. Triage at 6 and 15 minutes: HEALTHY",
		fleet: world.Fleet{
			Profile: translate, Replicas: 1, Runtimes: []metrics.Runtime{metrics.LlamaCpp}, Probes: true, Objectives: onProbes(),
		},
		history: 3 * time.Hour, lasts: 75 * minute, options: play.Options{WithoutGPUs: true},
		faults: []incident.Fault{
			at1(0, 0, func(r *world.Replica) { r.Engine.Acceptance = 0.45 }),
			at1(60*minute, 0, func(r *world.Replica) { r.Engine.Acceptance = 0.8 }),
		},
	}

	short := unforeseen{
		name: "clients-cap-their-answers",
		source: "ra-jeev/write-assist-ai 32 (a low max_tokens, so that answers end with finish_reason length); llm-d/llm-d-inference-sim 29; " +
			"deeplethe/utopia 760 (the ceiling should be the client's own)",
		story: "a team moves its autocompletion to four vLLMs behind SMG: 50 in place of 20 requests a second, all with max_tokens 24; seven " +
			"answers in eight end at that limit, where three in a thousand ended at 1,024; answers have 22 in place of 180 tokens on average; " +
			"the engines are busy for 30% of what they can do, first tokens take 40 ms; after 50 minutes the team goes home",
		right: "nobody is woken, no ticket: clients cut their own answers short, which the length shows (an eighth, not the maximum). Not " +
			"«the model no longer stops», not «2.5 times as many requests». Triage at 6 and 15 minutes: HEALTHY",
		fleet: world.Fleet{
			Profile: profile("deepseek-coder-8b-complete", 5), Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM}, ReadsGateway: true,
			Gateway: metrics.SMG,
		},
		history: 2 * time.Hour, lasts: 65 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Traffic.Arrivals, w.Traffic.OutputLimit = 50, 24 }),
			then(50*minute, func(w *world.World) { w.Traffic.Arrivals, w.Traffic.OutputLimit = 20, 1024 }),
		},
	}
	return []unforeseen{language, short}
}

// ninthHarmlessRoutes must wake nobody: requests that pass idle prefill engines at night, and tenants whose hash is the same.
func ninthHarmlessRoutes() []unforeseen {
	pd := profile("ministral-8b-desk-pd", 4)
	pd.Release, pd.Prefilled, pd.Fetching, pd.CacheHits = "0.26.0", true, 25e9, 0.1
	local := unforeseen{
		name: "local-prefill-while-it-is-quiet",
		source: "ai-dynamo/dynamo 303 (conditional disaggregation: no remote prefill under a condition), 11723 (the router may decide that " +
			"local prefill is cheaper); NVIDIA/TensorRT-LLM 3974 (short prompts go to the generation server directly)",
		story: "two prefill and two decode vLLMs; in the evening demand falls from 16 to 3 requests a second, and the router, as configured, " +
			"lets decode engines compute the prompts themselves while it is quiet: 26 ms of prefill 1.5 times a second on each, 4% of its time; " +
			"first tokens take 40 ms, tokens 8 ms and 36 ms beside a prompt (the promise is 50); the prefill engines get nothing, no KV cache " +
			"is transferred; after 55 minutes everything goes back",
		right: "nobody is woken, no ticket: idle prefill engines harm nobody at this load. Triage at 6 and 15 minutes: HEALTHY, or prefill " +
			"engines without requests with low confidence",
		fleet:   world.Fleet{Profile: pd, Replicas: 4, Prefills: 2, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 2 * time.Hour, lasts: 70 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Traffic.Arrivals = 3 }),
			then(2*minute, func(w *world.World) { w.PassesPrefill = true }),
			then(55*minute, func(w *world.World) { w.PassesPrefill = false }),
			then(56*minute, func(w *world.World) { w.Traffic.Arrivals = 16 }),
		},
	}

	tenants := unforeseen{
		name: "the-night-shift-hashes-to-one-pod",
		source: "istio/istio 52871 (consistent hashing skews the load towards some pods, and some get nothing); upyun/lua-resty-checkups 9 " +
			"(89% of the requests go to one of two servers); zalando/skipper 1769 (a hot key goes to a single pod)",
		story: "six SGLangs behind a consistent hash of the tenant; at night two tenants are awake, both on replica 2: 3.6 in place of 36 " +
			"requests a second, three quarters of them there, 2.7 a second, half of what it gets by day and a tenth of what it can do; its " +
			"peers get one request every five seconds; first tokens take 40 ms; after an hour the others wake up; at 20 minutes idle replica 4 " +
			"is restarted",
		right: "nobody is woken, no ticket: an uneven share of little harms nobody. Triage at 6 and 15 minutes: HEALTHY, or the uneven " +
			"shares with low confidence",
		fleet: world.Fleet{
			Profile: profile("granite-4-8b-night", 6), Replicas: 6, Runtimes: []metrics.Runtime{metrics.SGLang}, Shares: even(6),
		},
		history: 2 * time.Hour, lasts: 72 * minute,
		faults: append(drained(4, 20*minute, 75*time.Second),
			then(0, func(w *world.World) { w.Traffic.Arrivals, w.Fleet.Shares = 3.6, []float64{1, 1, 14, 1, 1, 1} }),
			then(60*minute, func(w *world.World) { w.Traffic.Arrivals, w.Fleet.Shares = 36, even(6) })),
	}
	return []unforeseen{local, tenants}
}
