package incident_test

import (
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// This file holds fourteen incidents that a seventh tester took from public threads, without having read the rules. The
// right answers were committed before the first play.

// TestUnforeseenSeventh plays the incidents of the seventh tester.
func TestUnforeseenSeventh(t *testing.T) { checkUnforeseen(t, unforeseenSeventh()) }

// unforeseenSeventh are from a seventh tester.
func unforeseenSeventh() []unforeseen {
	return slices.Concat(seventhRushes(), seventhShares(), seventhReleases(), seventhEngines(), seventhCaches(), seventhPools(),
		seventhHarmlessRollouts(), seventhHarmlessLinks())
}

// seventhRushes are two rushes: one overloads the engines, the other only the gateway.
func seventhRushes() []unforeseen {
	// Demand exceeds the engines' capacity, and GPUs that are always busy reach their power cap. The cap costs an
	// eighth of the clock, but requests are 4.5 times as many as before.
	launch := unforeseen{
		name: "rush-hits-the-power-cap",
		source: "rammsguns/llm-rig 97 (at the power limit in 40% of the samples, deliberately not treated as a fault); Azure/azurehpc 595 (SW " +
			"Power Cap no longer counts as throttling); ashalliants/ninfer-3090 72 (the cap binds whenever the card is busy: 11% of the clock in " +
			"decode, 3% in prefill)",
		story: "a product is launched: 180 in place of 40 requests a second at four SGLangs, which carry some 110; their GPUs are busy all " +
			"the time now, and so run into their power cap, from 1980 to 1740 MHz (sw_power_cap); requests queue; at 28 minutes demand is as " +
			"before, and the caps no longer bind",
		right: "page within ten minutes; queueing: 4.5 times as many requests arrive. Not hardware («all GPUs are slowed down, " +
			"sw_power_cap»): 12% of the clock cannot explain an overload of 60%, and without the cap requests would wait as well; not slow " +
			"engines, not decode, not routing. Triage at 6 and 15 minutes: queueing. After 34 minutes nobody is late any more: no new page",
		page:    `queueing\. `,
		fleet:   world.Fleet{Profile: profile("qwen3-8b-launch", 10), Replicas: 4, Runtimes: []metrics.Runtime{metrics.SGLang}},
		history: 65 * minute, lasts: 42 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Traffic.Arrivals *= 4.5 }),
			then(minute, all4(func(r *world.Replica) { r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.88} })),
			then(28*minute, func(w *world.World) { w.Traffic.Arrivals /= 4.5 }),
			then(30*minute, all4(func(r *world.Replica) { r.GPU.Throttle = nil })),
		},
	}

	// Demand grows. It stays far below the engines' capacity, but exceeds that of the gateway's own database. The
	// gateway fails one request in eight by itself.
	pool := unforeseen{
		name: "key-database-has-seventeen-connections",
		source: "BerriAI/litellm 1714 (under high traffic «Timed out fetching a new connection from the connection pool», connection limit " +
			"17), 14325 (FATAL: sorry, too many clients already), 8498",
		story: "a client's campaign brings 50 in place of 20 requests a second: five vLLMs do them easily, a quarter of what they can; but " +
			"LiteLLM looks each key up in a database with a pool of 17 connections, and answers 12% with 500 before it asks any engine; no GPU " +
			"metrics, and a Prometheus of 40 minutes",
		right: "page within a quarter of an hour; routing: the gateway fails one request in eight by itself (500), no engine fails any. Not " +
			"queueing («2.5 times as many requests arrive»: nothing waits, nobody is late), not engine. Triage at 6 and 15 minutes: routing, the " +
			"gateway; no verdict is acceptable at 6 minutes",
		page: `routing\. .*[Gg]ateway`,
		fleet: world.Fleet{
			Profile: profile("mistral-small-campaign", 4), Replicas: 5, Runtimes: []metrics.Runtime{metrics.VLLM}, ReadsGateway: true,
		},
		lived:   65 * minute,
		history: 40 * minute, lasts: 45 * minute, options: play.Options{WithoutGPUs: true},
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Traffic.Arrivals *= 2.5 }),
			then(minute, func(w *world.World) { w.GatewayFails, w.GatewayStatus = 0.12, http.StatusInternalServerError }),
		},
	}
	return []unforeseen{launch, pool}
}

// seventhShares is a router that forgets what each replica can do.
func seventhShares() []unforeseen {
	// Six replicas get equal shares, which is wrong, since three of them have a quarter of the others' speed.
	unequal := profile("granite-4-8b-two-kinds", 10)
	equal := unforeseen{
		name: "equal-shares-for-unequal-gpus",
		source: "vllm-project/aibrix 435 (L40 beside A800 for one model needs shares by capacity), 642 (each pattern has a rate that a GPU " +
			"can do; one more, and pending requests accumulate); NVIDIA/aicr 1374, 1399 (round robin against least loaded)",
		story: "three SGLangs on L40S and three vLLMs on H100 serve one model behind a router with weights 1 and 4; it restarts without its " +
			"weights, and each replica gets a sixth of 60 requests a second: 10 in place of 4 at an L40S, which can do eight, 10 in place of 16 " +
			"at an H100; half of all first tokens wait, ever longer; at 30 minutes the weights are back",
		right: "page within half an hour; routing: replicas 0 to 2 get 2.5 times as many requests as before, of the same total, while 3 to 5 " +
			"idle. Right too: queueing, if it says that requests wait at 0 to 2 only. The number that separates: the model gets as many requests " +
			"as ever, and half of its engines have fewer. Not «more requests», not «too few replicas», not slow engines (their steps take what " +
			"the batch needs), not decode, not hardware. Triage at 6 and 15 minutes: the same. After 37 minutes nobody is late",
		page: `(routing|queueing)\. .*granite-4-8b-two-kinds-[012]\b`,
		fleet: world.Fleet{
			Profile: unequal, Replicas: 6, Shares: []float64{1, 1, 1, 4, 4, 4},
			Runtimes: []metrics.Runtime{
				metrics.SGLang, metrics.SGLang, metrics.SGLang, metrics.VLLM, metrics.VLLM, metrics.VLLM,
			},
			Each: func(i int, p *drill.Profile) {
				if i < 3 {
					p.GPU, p.Budget = l40sBF16, 256
				}
			},
		},
		history: 2 * time.Hour, lasts: 45 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Fleet.Shares = even(6) }),
			then(30*minute, func(w *world.World) { w.Fleet.Shares = []float64{1, 1, 1, 4, 4, 4} }),
		},
	}
	return []unforeseen{equal}
}

// seventhReleases are a release that fails requests on a part of the fleet, and one that is harmless.
func seventhReleases() []unforeseen {
	// A third of the fleet gets a release that answers some requests with an error. The older replicas fail none.
	parser := unforeseen{
		name: "tool-parser-fails-on-a-third",
		source: "vllm-project/vllm 7290 (500 Internal Server Error after the upgrade to 0.5.4), 25253 (500 with a reasoning parser and " +
			"tool_choice=required, none without), 38911; FoundationAgents/OpenManus 827 (on the new version, whereas the last one was fine)",
		story: "vLLM 0.16.0 to 0.17.0 on three of nine replicas, one every two minutes, then a pause to look; the new parser of tool calls " +
			"fails on an agent's requests, which come in waves: 15% of all requests at these three end with 500, 5% of the fleet's; speed, " +
			"queues and the other six are as ever; demand grows by a seventh at ten minutes",
		right: "page within half an hour; release: version 0.16.0 to 0.17.0 on three of nine, roll it back. Right too: engine, if it says " +
			"that replicas 3 to 5 fail requests. Not engine «requests fail» for the whole model, not «restarted minutes ago», not queueing " +
			"(nobody waits), not routing. Triage at 6 minutes: HEALTHY or release; at 15 minutes: release, or engine with these three",
		page:    `(release\. .*0\.17\.0|engine\. .*(0\.17\.0|qwen3-coder-tools-[345]\b))`,
		fleet:   world.Fleet{Profile: profile("qwen3-coder-tools", 4), Replicas: 9, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 2 * time.Hour, lasts: 50 * minute,
		faults: []incident.Fault{then(10*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.14 })},
	}
	for i := range 3 {
		parser.faults = append(parser.faults, at1(time.Duration(2*i)*minute, 3+i, func(r *world.Replica) {
			r.Profile.Release = "0.17.0"
			r.Restart(80 * time.Second)
		}))
	}
	breaks := func(at time.Duration, is bool) incident.Fault {
		return then(at, func(w *world.World) {
			for _, r := range w.Replicas[3:6] {
				r.Engine.Broken = is
			}
		})
	}
	for i := range 126 {
		at := 7*minute + time.Duration(i)*20*time.Second
		parser.faults = append(parser.faults, breaks(at, true), breaks(at+3*time.Second, false))
	}

	// A GPU is too hot. Somebody restarts its engine with the new release, which does not help.
	upgrade := unforeseen{
		name: "upgrade-does-not-cool",
		source: "tensorflow/tensorflow 40042 (ever slower, and in the end it was the heat); rammsguns/llm-rig 97 (92 °C after 105 " +
			"s, 1155 of 1875 MHz, the fan stays at 70%); matt.sh/cloud-gpu-thermal-throttling (345 to 510 of 1755 MHz at 88 °C)",
		story: "a fan fails, and GPU 1 of three runs at a quarter of its clock; its TensorRT-LLM can barely do its 8.5 requests a second, but " +
			"most first tokens there wait; at five minutes, before any page, the operator moves this replica from 1.3.0 to 1.3.1, which was due " +
			"anyway, and it comes back as slow as it was",
		right: "page within 45 minutes; hardware: GPU 1 is slowed by hw_thermal_slowdown, drain it. Not release («version 1.3.0 to 1.3.1 on " +
			"replica 1»: it was as slow for five minutes before), not «started minutes ago», not queueing, not routing. «Engine, replica 1 is " +
			"slow» is the consequence. Triage at 6 and 15 minutes: hardware, GPU 1",
		page:    `hardware\. .*GPU 1\b`,
		fleet:   world.Fleet{Profile: profile("nemotron-nano-9b-desk", 8.5), Replicas: 3, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}},
		history: 2 * time.Hour, lasts: 50 * minute,
		faults: []incident.Fault{
			at1(0, 1, func(r *world.Replica) {
				r.GPU.Throttle = &world.Throttle{Reason: "hw_thermal_slowdown", Clock: 0.25}
			}),
			at1(5*minute, 1, func(r *world.Replica) {
				r.Profile.Release = "1.3.1"
				r.Restart(75 * time.Second)
			}),
		},
	}
	return []unforeseen{parser, upgrade}
}

// seventhEngines are engines that stand still for longer and longer, and one whose GPU other programs use.
func seventhEngines() []unforeseen {
	// The engines of one kind stop for a while in every minute, each time a little longer. The engines of the other kind do not.
	pauses := unforeseen{
		name: "pauses-of-the-collector-grow",
		source: "sgl-project/sglang 28067 (the garbage collector stops the scheduler for 7 s after an hour, 23 s after 3.5 hours, 46 s after " +
			"6.5 hours, and its peers spin at 100% meanwhile), 30596 (a fifth of the time), 9241 (/freeze_gc)",
		story: "three SGLangs and three vLLMs serve one model; in the SGLangs objects accumulate, and once a minute the scheduler of each " +
			"stands still for its garbage collector, for 5 s at first and 25 s after 50 minutes, one after another; in between they are as quick " +
			"as ever; the vLLMs are well; nothing fails",
		right: "page within 50 minutes (a ticket before is welcome); engine: the SGLangs, replicas 0, 2 and 4, stand still again and again at " +
			"an unchanged load; restart them. Not queueing («more requests wait» in each pause: the consequence), not routing, not hardware " +
			"(GPUs report nothing), not prefill. Triage at 6 and 15 minutes, at whatever instant of the minute: HEALTHY, no verdict or engine",
		page: `engine\. `,
		fleet: world.Fleet{
			Profile: profile("deepseek-v3-mini-mixed", 6), Replicas: 6, Runtimes: []metrics.Runtime{metrics.SGLang, metrics.VLLM},
		},
		history: 2 * time.Hour, lasts: 60 * minute,
	}
	for i := range 59 {
		long := 5*time.Second + time.Duration(i)*400*time.Millisecond
		for n, replica := range []int{0, 2, 4} {
			at := time.Duration(i)*minute + time.Duration(n)*20*time.Second
			pauses.faults = append(pauses.faults, at1(at, replica, func(r *world.Replica) { r.Engine.Wedged = true }),
				at1(at+long, replica, func(r *world.Replica) { r.Engine.Wedged = false }))
		}
	}

	// Another program takes most of the only GPU, leaves it, and comes back. The model never leaves the GPU's memory.
	home := profile("gemma-3-12b-kitchen", 0.02)
	home.Release, home.MaxBatch, home.GPU, home.Weights, home.Patience = "0.12.6", 4, drill.L40S, drill.Llama8BFP8, 5*minute
	transcoder := unforeseen{
		name: "transcoder-shares-the-home-gpu",
		source: "ollama/ollama 11676 (a home server's GPU also detects, embeds and transcodes, constantly); SYSTRAN/faster-whisper 441 (two " +
			"jobs on one GPU take twice as long each, with room in memory); Tanguille/cluster 4879 (while a transcoder ran)",
		story: "a transcription of old recordings takes four fifths of the only GPU of an Ollama, whose tokens take 84 ms in place of 14; the " +
			"model stays in GPU memory, completely; a request comes every 50 s, and objectives are on the exporter's probes; at 26 minutes the " +
			"job ends, at 38 minutes the next one begins; the exporter sees the processes of the host",
		right: "page within a quarter of an hour; hardware: other processes use GPU 0 for 80% of the time (engine is right too if it says " +
			"so). Not memory (nothing has left the GPU), not queueing (nothing waits), not decode, not «slow engine» alone: a restart does not " +
			"help. Triage at 6 and 15 minutes: the same. At 33 minutes nothing is wrong any more; after 50 minutes, by page or update, the same " +
			"again",
		page: `(hardware|engine)\. .*(?i:other process|others)`,
		fleet: world.Fleet{
			Profile: home, Replicas: 1, Runtimes: []metrics.Runtime{metrics.Ollama}, Probes: true, SeesProcesses: true,
			Objectives: onProbes(),
		},
		history: 65 * minute, lasts: 60 * minute,
	}
	for at, slow := range map[time.Duration]float64{0: 6, 26 * minute: 1, 38 * minute: 6} {
		transcoder.faults = append(transcoder.faults, at1(at, 0, func(r *world.Replica) {
			r.Engine.Slow, r.GPU.Others = slow, 0.16*(slow-1)
		}))
	}
	return []unforeseen{pauses, transcoder}
}

// seventhCaches are a link between roles that comes and goes, and a tier that stores nothing any more.
func seventhCaches() []unforeseen {
	// The network of two of three decode engines is slow for three minutes of every eight.
	pd := profile("ministral-8b-drafts-pd", 3)
	pd.Release, pd.Prefilled, pd.Fetching, pd.PromptTokens = "0.26.0", true, 25e9, 1600
	flaps := unforeseen{
		name: "port-of-two-decoders-flaps",
		source: "kvcache-ai/Mooncake 3596 (a port flaps; after it has come back, transfers are five times as slow as during the outage, for " +
			"25 minutes and more); sgl-project/sglang 29127 (all failures of three runs are at one of eight network cards, whatever the peer)",
		story: "two prefill and three decode engines, 15 requests a second; the port that decode engines 3 and 4 share flaps: for three " +
			"minutes of every eight their KV caches come at 0.68 in place of 25 GB/s, as much as they need at most, so that first tokens there " +
			"wait for seconds; between, and on replica 2, all is well; no transfer fails",
		right: "page within 40 minutes; memory: KV transfers to decode engines (3 and 4) take a hundred times as long. Not prefill (as many " +
			"prompts, of the same length, computed as quickly as ever), not queueing (decode engines have room), not slow engines (tokens come " +
			"as quickly as ever), not routing. Triage at 6 and 15 minutes, between two flaps: HEALTHY, or memory",
		page:    `memory\. .*(?i:transfer|fetch)`,
		fleet:   world.Fleet{Profile: pd, Replicas: 5, Prefills: 2, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 65 * minute, lasts: 50 * minute,
	}
	fetches := func(at time.Duration, speed float64) incident.Fault {
		return then(at, func(w *world.World) { w.Replicas[3].Engine.Fetching, w.Replicas[4].Engine.Fetching = speed, speed })
	}
	for i := range 6 {
		at := time.Duration(8*i) * minute
		flaps.faults = append(flaps.faults, fetches(at, 0.68e9), fetches(at+3*minute, 25e9))
	}

	// Two of four engines can hardly store KV cache in host memory any more. What they stored before is replaced within a
	// quarter of an hour, and from then on they compute nearly everything themselves.
	papers := profile("command-r7b-papers", 6.4)
	papers.Release, papers.Host, papers.HostHits, papers.Fetching, papers.Storing = "0.26.0", 32e9, 0.8, 40e9, 40e9
	papers.PromptTokens, papers.OutputTokens, papers.CacheHits, papers.Budget = 4000, 150, 0.2, 512
	tier := unforeseen{
		name: "tier-takes-nothing-on-two",
		source: "LMCache/LMCache 1781 (the pinned pool ignores NUMA, and copies cross slow links), 106 (`store` is slow on the CPU), 4626 " +
			"(stores and loads differ in speed: measure both); pytorch/pytorch 160420 (pinned memory of another node is used again)",
		story: "four vLLMs keep KV cache in host memory, from where four fifths of what their GPUs lack come back; after a job of the host's " +
			"the staging buffers of replicas 1 and 3 lie on the far node, and copies to the tier run at 50 MB/s, of 500 offered: the tier is " +
			"full of waiting copies within two minutes and refuses the rest, loads stay quick, but ever less is there to load: after a quarter " +
			"of an hour these two compute four times as many tokens per request, and their first tokens wait",
		right: "page between 15 and 50 minutes; memory: the KV tier of replicas 1 and 3 takes no more (stores refused, the tier is full of " +
			"copies in flight). Half right: prefill, if it says that hits in the tier fell, or that these two compute more per request. Not " +
			"longer prompts, not more requests, not slow engines, not routing (each gets a quarter). Triage at 6 minutes: HEALTHY or memory; at " +
			"15 minutes: memory",
		page:    `(memory\. .*(?i:tier|offload|stor|host)|prefill\. .*(?i:tier|offload|external|host))`,
		fleet:   world.Fleet{Profile: papers, Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 2 * time.Hour, lasts: 60 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) {
			w.Replicas[1].Engine.Storing, w.Replicas[3].Engine.Storing = 0.05e9, 0.05e9
		})},
	}
	return []unforeseen{flaps, tier}
}

// seventhPools is an autoscaler that takes engines away and brings them back.
func seventhPools() []unforeseen {
	// Two of three prefill engines are missing for five minutes of every nine, and one cannot do the work of three.
	pd := profile("qwen3-14b-tickets-pd", 6)
	pd.Release, pd.Prefilled, pd.Fetching, pd.PromptTokens, pd.OutputTokens = "0.26.0", true, 25e9, 1200, 100
	thrash := unforeseen{
		name: "planner-thrashes-the-prefill-pool",
		source: "ai-dynamo/dynamo 9294 (it takes an engine away whenever each is below 80% of its target, and the one that is left misses it " +
			"at once: 2 to 1 to 2 under constant load), 12430 (cold engines spoil its estimate, and it overshoots)",
		story: "three prefill and four decode engines, 42 requests a second, as ever; the planner finds that prefill has room and takes " +
			"engines 1 and 2 away, drained; the one that is left can do 35 and queues, so that the planner brings both back, which takes 80 s; " +
			"four minutes later it finds that prefill has room; and so on, every nine minutes; the decode engines idle throughout",
		right: "page within ten minutes; queueing (or prefill, or engine), if it says that prefill engines are missing: one of three is left, " +
			"replicas 1 and 2 come and go; fix the planner's minimum. Not «more requests arrive», not longer prompts, not lost hits, not routing " +
			"(«replica 0 gets all prompts»: there is no other), not slow engines, not memory. Triage at 6 and 15 minutes: the same; between two " +
			"dips: HEALTHY, or restarts with low confidence",
		page: `(queueing|prefill|engine)\. .*((?i:usual|fewer|gone|missing|left|away|stopp|not answer)|qwen3-14b-tickets-pd-[12]\b)`,
		fleet: world.Fleet{
			Profile: pd, Replicas: 7, Prefills: 3, Runtimes: []metrics.Runtime{metrics.VLLM},
		},
		history: 65 * minute, lasts: 45 * minute,
	}
	for i := range 5 {
		at := time.Duration(9*i) * minute
		thrash.faults = append(thrash.faults,
			then(at, func(w *world.World) { w.Favours = 1 }),
			then(at+30*time.Second, func(w *world.World) {
				for _, r := range w.Replicas[1:3] {
					r.Down, r.Gone = true, true
				}
			}),
			then(at+4*minute, func(w *world.World) {
				for _, r := range w.Replicas[1:3] {
					r.Restart(80 * time.Second)
				}
			}),
			then(at+4*minute+90*time.Second, func(w *world.World) { w.Favours = 0 }))
	}
	return []unforeseen{thrash}
}

// seventhHarmlessRollouts must wake nobody: new engines beside the old ones, and a gateway that is rolled out.
func seventhHarmlessRollouts() []unforeseen {
	// A new release is started beside the old one, gets all traffic at once with empty caches, and serves it easily.
	switched := unforeseen{
		name: "blue-green-in-one-switch",
		source: "lablup/backend.ai 4978 (blue and green for model services, without downtime); katanemo/plano 319; deployah-dev/deployah 33 " +
			"(a complete new version beside the live one, smoke-tested, then the traffic is flipped)",
		story: "four new pods with vLLM 0.17.0 and 512 in place of 256 sequences start beside the four of 0.16.0; at five minutes all of 24 " +
			"requests a second go to the new ones, whose prefix caches are empty: hits fall from a third to nothing and come back within a " +
			"quarter of an hour; at 20 minutes the old pods are deleted; every first token comes in time",
		right: "nobody is woken, no ticket: old pods that are idle, then gone, new pods, a new version, a new setting and lost hits harm " +
			"nobody. Triage at 6 and 15 minutes: HEALTHY, or a release with low confidence",
		fleet: world.Fleet{
			Profile: profile("llama-3.1-8b-portal", 3), Replicas: 8, Runtimes: []metrics.Runtime{metrics.VLLM},
			Shares: []float64{1, 1, 1, 1, 0, 0, 0, 0},
		},
		history: 2 * time.Hour, lasts: 65 * minute,
		faults: []incident.Fault{
			then(-121*minute, func(w *world.World) {
				for i, r := range w.Replicas {
					colour := []string{"blue", "green"}[i/4]
					r.Pod, r.Gone = "llama-3.1-8b-portal-"+colour+"-"+strconv.Itoa(i%4), i >= 4
					r.Down = r.Gone
				}
			}),
			then(0, func(w *world.World) {
				for _, r := range w.Replicas[4:] {
					r.Profile.Release, r.Profile.MaxBatch = "0.17.0", 512
					r.Restart(100 * time.Second)
				}
			}),
			then(5*minute, func(w *world.World) { w.Fleet.Shares, w.Traffic.CacheHits = []float64{0, 0, 0, 0, 1, 1, 1, 1}, 0.02 }),
			then(20*minute, func(w *world.World) {
				for _, r := range w.Replicas[:4] {
					r.Down, r.Gone = true, true
				}
			}),
		},
	}
	for i := range 5 {
		switched.faults = append(switched.faults, then(time.Duration(8+3*i)*minute, func(w *world.World) { w.Traffic.CacheHits += 0.066 }))
	}

	// A gateway is rolled out three times, and each time it accepts no connections for five seconds.
	rolls := unforeseen{
		name: "gateway-rolls-three-times",
		source: "BerriAI/litellm 14334 (a rollout cuts what runs: no graceful shutdown); mnfst/llm-gateway 2326 (the old replica closes its " +
			"socket while the edge still sends to it); BerriAI/litellm 28714 (drain)",
		story: "three releases of LiteLLM within half an hour: each time its port is closed for five seconds, in which 20 requests a second " +
			"are refused, 300 in all, of 72,000 in an hour; its counters begin anew; four TGIs behind it notice a short gap",
		right: "nobody is woken: 0.4% of an hour's requests, in three blinks, each over before anybody could act; at most one ticket about " +
			"the gateway. Triage at 6 and 15 minutes: HEALTHY",
		fleet: world.Fleet{
			Profile: profile("zephyr-7b-forum", 5), Replicas: 4, Runtimes: []metrics.Runtime{metrics.TGI}, ReadsGateway: true,
			ProbesGateway: true,
		},
		history: 2 * time.Hour, lasts: 60 * minute,
	}
	for i := range 3 {
		at := time.Duration(5+15*i) * minute
		rolls.faults = append(rolls.faults, then(at, func(w *world.World) { w.GatewayDead = true }),
			then(at+5*time.Second, func(w *world.World) { w.GatewayDead = false }))
	}
	return []unforeseen{switched, rolls}
}

// seventhHarmlessLinks must wake nobody: a slower link that nobody feels, and single requests of few.
func seventhHarmlessLinks() []unforeseen {
	// KV caches come at an eighth of their speed, which costs each request a fiftieth of a second.
	pd := profile("llama-3.1-8b-survey-pd", 5)
	pd.Release, pd.Prefilled, pd.Fetching = "0.26.0", true, 25e9
	slower := unforeseen{
		name: "kv-link-at-an-eighth",
		source: "vllm-project/vllm 34054 (without NVLink 1.8 GB/s, 174 ms per transfer of 313 MB); sgl-project/sglang 8210 (P/D without RDMA, " +
			"by copies through the CPU, is supported)",
		story: "maintenance of the RDMA fabric: for 40 minutes KV caches go from two prefill to three decode engines at 3 in place of 25 " +
			"GB/s, 26 ms each in place of 3; meanwhile demand grows by a fifth; first tokens take a tenth of a second, of the half that they may",
		right: "nobody is woken; a ticket about the transfers is acceptable. Triage at 6 and 15 minutes: HEALTHY, or slower transfers with " +
			"low confidence",
		fleet:   world.Fleet{Profile: pd, Replicas: 5, Prefills: 2, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 65 * minute, lasts: 60 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) {
				for _, r := range w.Replicas[2:] {
					r.Engine.Fetching = 3e9
				}
			}),
			then(8*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.2 }),
			then(40*minute, func(w *world.World) {
				for _, r := range w.Replicas[2:] {
					r.Engine.Fetching = 25e9
				}
			}),
		},
	}

	// A model gets a request every five minutes. One of them is long, and one is cut when the engine restarts.
	few := unforeseen{
		name: "eleven-requests-an-hour",
		source: "pyrra-dev/pyrra 1925 (at low traffic one error triggers the alert at once); getsentry/sentry 37248 (three of four events " +
			"failed: ask for a minimum of samples); autometrics-dev/autometrics-rs 58 (at least one call per minute)",
		story: "a model for the legal department gets eleven requests an hour; at five minutes one comes with a contract of 40,000 tokens, " +
			"whose first token takes two seconds; at 25 minutes the only vLLM is restarted for an update of its node, drained of nothing, and " +
			"cuts one answer in the middle; whoever asks before and after is served at once",
		right: "nobody is woken for one late token and one lost answer, although they are a tenth of the hour's requests; at most one ticket. " +
			"Triage at 6 and 15 minutes: HEALTHY or no verdict",
		fleet:   world.Fleet{Profile: profile("qwen3-8b-legal", 0.003), Replicas: 1, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 3 * time.Hour, lasts: 65 * minute,
		faults: []incident.Fault{
			at1(5*minute, 0, func(r *world.Replica) {
				r.Engine.Offer((&drill.Request{Arrival: 3*time.Hour + 5*minute, Prompt: 40_000, Output: 300}).For(minute))
			}),
			at1(25*minute-10*time.Second, 0, func(r *world.Replica) {
				r.Engine.Offer((&drill.Request{Arrival: 3*time.Hour + 25*minute - 10*time.Second, Prompt: 800, Output: 3000}).For(minute))
			}),
			at1(25*minute, 0, func(r *world.Replica) { r.Restart(80 * time.Second) }),
		},
	}
	return []unforeseen{slower, few}
}
