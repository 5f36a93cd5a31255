package incident_test

import (
	"slices"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// This file holds fourteen incidents that an eleventh tester took from public threads, without having read the rules. The
// right answers were committed before the first play.

// TestUnforeseenEleventh plays the incidents of the eleventh tester.
func TestUnforeseenEleventh(t *testing.T) { checkUnforeseen(t, unforeseenEleventh()) }

// unforeseenEleventh are from an eleventh tester.
func unforeseenEleventh() []unforeseen {
	return slices.Concat(eleventhGraphs(), eleventhKernels(), eleventhSessions(), eleventhRegions(), eleventhReplicas(), eleventhSlices(),
		eleventhMemory(), eleventhLimits(), eleventhPromises(), eleventhPolicies(), eleventhHarmlessUpkeep(), eleventhHarmlessLoads())
}

// eleventhGraphs is a release that has CUDA graphs for small batches only, which nobody notices while it is quiet.
func eleventhGraphs() []unforeseen {
	campus := profile("qwen3-8b-campus", 11)
	campus.Graphs, campus.Eager = 160, 55*time.Millisecond
	graphs := unforeseen{
		name: "graphs-for-batches-up-to-24",
		source: "sgl-project/sglang 33900 (beyond the largest captured batch decoding is some four times as slow, which makes batches larger " +
			"still: a second stable state that no run left by itself, with an empty queue), 21005 (a large loss from the fallback); " +
			"vllm-project/vllm-ascend 16049 (7.5 times as slow in the largest batches only, and nothing says so)",
		story: "SGLang 0.5.16 to 0.5.17 on four replicas, one every four minutes, drained, 80 minutes before the lectures begin; the new " +
			"release captures graphs for 24 in place of 160 sequences; beyond that the CPU launches each kernel, 55 ms per step, while the GPU " +
			"idles; at 12 requests a second in all 5 or 6 run at each, and a token takes 10 ms; an hour earlier the old release did 44 a second " +
			"with 21 running, 11 ms per token, 40% of what it can; at 0 the same 44 a second come back: more than 24 run within seconds, a step " +
			"takes 65 and then 90 ms, 180 run, all tokens miss 50 ms, and a quarter of the first tokens 0.5 s; the prefill needs 70% of the " +
			"steps' room, so that nothing overflows; GPU 2 has been at its power cap all day (5%), and replica 1 was restarted, drained, for " +
			"its node's patch at -25 minutes",
		right: "page within 12 minutes, since nearly all tokens of the hour are of the last minutes; release: 0.5.16 to 0.5.17 on all four, " +
			"80 minutes ago, or its smaller cuda_graph_max_bs: put it back. Right too: engine or decode, if it says that a step or a token takes " +
			"several times as long as before. Not «more requests» or «too few replicas» (the old release did as many two hours ago), not a " +
			"queue, not prefill, not hardware (GPU 2, sw_power_cap), not the restart of replica 1 alone. Triage at 6 minutes: the same or no " +
			"verdict; at 15 minutes: release, engine or decode",
		page: `release\. .*(?i:0\.5\.17|graph)|(engine|decode)\. .*(?i:tokens? takes?|steps?\b|slower|times as long|per token|uses its GPU)`,
		fleet: world.Fleet{
			Profile: campus, Replicas: 4, Runtimes: []metrics.Runtime{metrics.SGLang}, Shares: even(4),
		},
		history: 3 * time.Hour, lasts: 38 * minute,
		faults: append(drained(1, -25*minute, 80*time.Second),
			at1(-170*minute, 2, func(r *world.Replica) { r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.95} }),
			then(-110*minute, func(w *world.World) { w.Traffic.Arrivals = 12 }),
			then(0, func(w *world.World) { w.Traffic.Arrivals = 44 })),
	}
	for i := range 4 {
		at := time.Duration(4*i-80) * minute
		graphs.faults = append(graphs.faults, at1(at+45*time.Second, i, func(r *world.Replica) {
			r.Profile.Release, r.Profile.Graphs = "0.5.17", 24
		}))
		graphs.faults = append(graphs.faults, drained(i, at, 80*time.Second)...)
	}
	return []unforeseen{graphs}
}

// eleventhKernels is a release that compiles its kernels while users wait.
func eleventhKernels() []unforeseen {
	compiles := unforeseen{
		name: "kernels-are-compiled-while-users-wait",
		source: "NVIDIA/TensorRT-LLM 18588 (45 to 48 s at the first request of each new shape, eight such stalls within half an hour, kept " +
			"per process); vllm-project/vllm 56684 (3.4 s for each new size of a chunk, in the middle of serving), 49905 (most of these kernels " +
			"are never warmed)",
		story: "TensorRT-LLM 1.3.0 to 1.3.1 on three replicas, one every three minutes, drained; the new release compiles a kernel at the " +
			"first prompt of each of 18 sizes, and stands still for 46 s each time: every 100 s for half an hour after its start, the three at " +
			"different moments; nine requests a second wait meanwhile, 138 at an engine, and are done six seconds later; half of all first " +
			"tokens come late, a third after ten seconds, nothing fails (clients wait for a minute); in between a token takes 9 ms; a quarter of " +
			"what they can do is used; the exporter restarts at nine minutes; by itself all is well after 38 minutes",
		right: "page within half an hour; release: 1.3.0 to 1.3.1 on all three, whose engines stand still again and again since: roll it " +
			"back, or warm it up. Right too: engine, if it says that they stand still or answer late since their restart. Not queueing «more " +
			"requests» or «too few replicas», not prefill or longer prompts, not decode, not hardware, not the router, not one replica only. " +
			"Triage at 6 minutes: release or engine (hangs), or no verdict; at 15 minutes: release or engine. After 42 minutes nobody is late: " +
			"no new page",
		page: `release\. .*1\.3\.1|engine\. .*(?i:stand|stood|still|stall|hang|hung|stop|pause|restart|since|answer|step)`,
		fleet: world.Fleet{
			Profile: profile("qwen3-14b-notary", 3), Replicas: 3, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}, Shares: even(3),
		},
		history: 65 * minute, lasts: 55 * minute,
		faults: exporterOut(9*minute, 40*time.Second),
	}
	for i := range 3 {
		at := time.Duration(3*i) * minute
		compiles.faults = append(compiles.faults, at1(at, i, func(r *world.Replica) { r.Profile.Release = "1.3.1" }))
		compiles.faults = append(compiles.faults, drained(i, at, 90*time.Second)...)
		for n := range 18 {
			stall := at + 145*time.Second + time.Duration(100*n+35*i)*time.Second
			compiles.faults = append(compiles.faults, at1(stall, i, func(r *world.Replica) { r.Engine.Wedged = true }),
				at1(stall+46*time.Second, i, func(r *world.Replica) { r.Engine.Wedged = false }))
		}
	}
	return []unforeseen{compiles}
}

// eleventhSessions are more conversations every hour than the prefix cache can keep.
func eleventhSessions() []unforeseen {
	desk := profile("glm-4-9b-concierge", 10.5)
	desk.PromptTokens, desk.CacheHits, desk.OutputTokens = 3000, 0.8, 100
	sessions := unforeseen{
		name: "more-conversations-than-the-cache-keeps",
		source: "sgl-project/sglang 29173 (under pressure the prefixes of live sessions are evicted, and their next turns computed again); " +
			"MiaAI-Lab/DeepSeek-v4.1-Flash-DGX-Sparks 27 (a second long session drives out the first, every visit computes the whole context); " +
			"waybarrios/vllm-mlx 541 (with one prefix more than there is room for, the cache helps nobody)",
		story: "an assistant is opened to one hotel after another: within 150 minutes twelve times as many conversations are open, each with a " +
			"turn less often, so that 31.5 requests a second stay as many; their 3,000 tokens are evicted before the next turn: hits fall evenly " +
			"from 80% to 10% at all three vLLMs; a request costs 25 ms of prefill at first, 62 at half, 82 at 30%, 102 at 10%, 10.5 times a " +
			"second each: 26% of their time, 65%, 86% after 107 minutes, too much after 140; a seventh of the first tokens is late at 73%, a " +
			"third at 83%, so that the hour's late share passes 14.4% at about 112 minutes; prompts, answers and versions are as ever; replica 1 " +
			"was restarted, drained, at -20 minutes, and the exporter restarts at 40 minutes",
		right: "page between 85 and 135 minutes; prefill: fewer and fewer tokens come from the prefix cache, over two hours, on all three. " +
			"Right too: prefill, more tokens are computed per request at the same prompts; memory, prefixes are evicted. Not longer prompts, not " +
			"«more requests» (as many), not slow engines or hardware (a step takes what its tokens need), not cold caches after a restart " +
			"(replica 1 restarted hours ago), not decode, not release. Triage at 6 and 15 minutes: HEALTHY",
		page:    `prefill\. .*(?i:cache|hit|comput)|memory\. .*(?i:prefix|hit|evict)`,
		fleet:   world.Fleet{Profile: desk, Replicas: 3, Runtimes: []metrics.Runtime{metrics.VLLM}, Shares: even(3)},
		history: 2 * time.Hour, lasts: 145 * minute,
		faults: append(drained(1, -20*minute, 80*time.Second), exporterOut(40*minute, 40*time.Second)...),
	}
	for i := range 30 {
		sessions.faults = append(sessions.faults, then(time.Duration(5*i)*minute, func(w *world.World) {
			w.Traffic.CacheHits = 0.8 - 0.7*float64(i+1)/30
		}))
	}
	return []unforeseen{sessions}
}

// eleventhRegions is another region whose clients come here.
func eleventhRegions() []unforeseen {
	region := unforeseen{
		name: "the-other-region-fails-over",
		source: "mspnp/aks-baseline 178 (after a failover one region gets everything, and its quotas must allow for twice as much); " +
			"wso2/api-manager 5153 (a saturated region's requests go to the next one); agentgateway/website 437 (traffic spills over as soon as " +
			"no endpoint of the own region is left)",
		story: "the other region loses its network; as their DNS answers expire, its clients come to five Dynamo frontends behind LiteLLM: 60, " +
			"105, 130 and then 150 requests a second within four minutes, of the same lengths, a few fewer hits (35% to 25%); an engine does 24 " +
			"to 27 a second (768 tokens of prefill beside a batch of 256 in steps of 48 ms) and gets 30 in place of 12: its queue grows by six a " +
			"second, first tokens wait for ten seconds within a minute, then for a minute, when clients leave; tokens take up to 50 ms; " +
			"until then 45% were used; LiteLLM was rolled out at -30 minutes (closed for five seconds), all five GPUs, busy all the time now, " +
			"run into their power cap, 4%; at 32 minutes the other region is back",
		right: "page within ten minutes; queueing: 2.5 times as many requests arrive as ever, at all five: shed some, or add replicas. Not a " +
			"release or LiteLLM (it answers as before), not hardware (sw_power_cap follows from the load), not slow engines (a step takes what " +
			"its tokens need), not prefill «fewer hits» as the first thing, not one replica, not routing (even shares). Triage at 6 and 15 " +
			"minutes: queueing. After 38 minutes nobody is late: no new page",
		page: `queueing\. `,
		fleet: world.Fleet{
			Profile: profile("llama-3.1-8b-travel", 12), Replicas: 5, Runtimes: []metrics.Runtime{metrics.Dynamo}, ReadsGateway: true,
		},
		history: 65 * minute, lasts: 46 * minute,
		faults: []incident.Fault{
			then(-30*minute, func(w *world.World) { w.GatewayDead = true }),
			then(-30*minute+5*time.Second, func(w *world.World) { w.GatewayDead = false }),
			then(0, func(w *world.World) { w.Traffic.Arrivals, w.Traffic.CacheHits = 105, 0.29 }),
			then(2*minute, func(w *world.World) { w.Traffic.Arrivals, w.Traffic.CacheHits = 130, 0.26 }),
			then(4*minute, func(w *world.World) { w.Traffic.Arrivals, w.Traffic.CacheHits = 150, 0.25 }),
			then(4*minute, all4(func(r *world.Replica) { r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.96} })),
			then(32*minute, func(w *world.World) { w.Traffic.Arrivals, w.Traffic.CacheHits = 60, 0.35 }),
			then(35*minute, all4(func(r *world.Replica) { r.GPU.Throttle = nil })),
		},
	}
	return []unforeseen{region}
}

// eleventhReplicas is a deployment whose number of replicas is not what the autoscaler had chosen.
func eleventhReplicas() []unforeseen {
	gone := func(from, to int) func(w *world.World) {
		return func(w *world.World) {
			for _, r := range w.Replicas[from:to] {
				r.Down, r.Gone = true, true
			}
		}
	}
	loads := func(from, to int) func(w *world.World) {
		return func(w *world.World) {
			for _, r := range w.Replicas[from:to] {
				r.Restart(100 * time.Second)
			}
		}
	}
	resets := unforeseen{
		name: "manifest-says-three-replicas",
		source: "helm/helm 12486 (an upgrade sets 15 replicas to one, all others are ended, although an autoscaler owns the number); " +
			"argoproj/argo-cd 22633 (the number in the manifest is enforced again and again: new pods come and are deleted); curityio/idsvr-helm " +
			"69 (a count in the manifest fights the autoscaler)",
		story: "a label of the deployment is changed; its manifest says three replicas, where the autoscaler had chosen nine by noon: six " +
			"pods, vLLMs and SGLangs, are drained for 30 s and deleted; the three that are left get 30 of 90 requests a second each in place of " +
			"10 and do 27: queues grow by three or four a second, and first tokens wait for ten seconds after a minute or two, later for a " +
			"minute; at eight minutes the autoscaler starts three pods, which are deleted again after a minute, before they are ready; version " +
			"and options are as ever; replica 7 was restarted, drained, for its node's patch at -10 minutes; at 30 minutes all nine are back",
		right: "page within 20 minutes; engine: six of nine replicas are gone, at once, and requests are as many as ever. Right too: queueing, " +
			"each engine that is left gets three times as much, too few replicas. Not «more requests arrive» for the model (90 a second as " +
			"ever), not slow engines, not a release (the same version), not hardware, not the patch of replica 7, not one engine that died. " +
			"Triage at 6 and 15 minutes: the same. After 36 minutes nobody is late: no new page",
		page: `(engine|queueing)\. `,
		fleet: world.Fleet{
			Profile: profile("ministral-8b-noon", 10), Replicas: 9, Runtimes: []metrics.Runtime{metrics.VLLM, metrics.SGLang}, Shares: even(9),
		},
		history: 65 * minute, lasts: 45 * minute,
		faults: append(drained(7, -10*minute, 90*time.Second),
			then(0, func(w *world.World) { w.Fleet.Shares = []float64{1, 1, 1, 0, 0, 0, 0, 0, 0} }),
			then(30*time.Second, gone(3, 9)),
			then(8*minute, loads(3, 6)), then(9*minute, gone(3, 6)),
			then(30*minute, loads(3, 9)), then(32*minute, func(w *world.World) { w.Fleet.Shares = even(9) })),
	}
	return []unforeseen{resets}
}

// eleventhSlices are GPUs that Kubernetes gives to several pods at once.
func eleventhSlices() []unforeseen {
	shared := func(at time.Duration, slow, others float64) incident.Fault {
		return then(at, func(w *world.World) {
			for _, r := range w.Replicas[4:7] {
				r.Engine.Slow, r.GPU.Others = slow, others
			}
		})
	}
	batch := unforeseen{
		name: "time-slices-for-a-batch-on-three-gpus",
		source: "bottlerocket-os/bottlerocket 4240 (each process gets an equal share of the time, without isolation); " +
			"kai-scheduler/KAI-Scheduler 45 (nothing enforces which process computes when); NVIDIA/k8s-device-plugin 461 (four real GPUs are " +
			"offered as sixteen, and any pod may get one)",
		story: "a new configuration of the device plugin, meant for another node, offers each GPU four times; three pods of a batch, each with " +
			"a GPU of its own as they believe, land on each of GPUs 4, 5 and 6, where three of eight vLLMs serve; the driver gives each process " +
			"a quarter of the time: a step with 1,024 tokens takes 140 in place of 35 ms, a token 36 to 140 ms, and an engine does 6.7 of its " +
			"ten requests a second, where it did 27; its queue grows by three a second, first tokens wait for ten seconds after half a minute, " +
			"then for a minute: 37% of all are late; clocks are full, power is high, nothing is throttled; the exporter sees the host's " +
			"processes; at four minutes replica 1 is restarted, drained, at ten minutes demand grows by a twentieth; at 38 minutes the batch ends",
		right: "page within half an hour; hardware or engine: GPUs 4, 5 and 6 also compute for other programs, and the replicas there are " +
			"several times as slow as their peers at an equal share. Not queueing «more requests» or «too few replicas», not routing (each gets " +
			"an eighth), not a throttled clock, not the restart of replica 1, not release, not all eight. Triage at 6 and 15 minutes: the same. " +
			"After 42 minutes nobody is late: no new page",
		page: `(hardware|engine)\. .*(?i:GPUs? [456]\b|phi-4-receipts-[456]\b|other (programs?|process)|share)`,
		fleet: world.Fleet{
			Profile: profile("phi-4-receipts", 10), Replicas: 8, Runtimes: []metrics.Runtime{metrics.VLLM}, Shares: even(8),
			SeesProcesses: true,
		},
		history: 65 * minute, lasts: 50 * minute,
		faults: append(drained(1, 4*minute, 80*time.Second),
			shared(0, 4, 0.75),
			then(10*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.05 }),
			shared(38*minute, 1, 0)),
	}
	return []unforeseen{batch}
}

// eleventhMemory is a GPU whose memory is too hot, which slows down decoding only.
func eleventhMemory() []unforeseen {
	pd := profile("gemma-3-12b-dispatch-pd", 3)
	pd.Release, pd.Prefilled, pd.Fetching, pd.OutputTokens, pd.OutputLimit = "0.26.0", true, 25e9, 300, 2048
	hot := unforeseen{
		name: "hot-memory-of-one-decoder",
		source: "ROCm/legacy-rocm-build 1468 (the memory reaches its limit, the driver warns of slower work, and the edge of the chip is at " +
			"53 °C); bradrlaw/ai-server 15 (the memory is 33 degrees hotter than the core while tokens are generated, seven below its limit)",
		story: "two prefill and two decode vLLMs, 12 requests a second; the thermal pad of GPU 3, a decode engine's, has come loose: its " +
			"memory gets too hot and runs at a fifth of its speed, with sw_thermal_slowdown all the time, whereas the SM clock is at 90%; each " +
			"step reads the weights for 32 in place of 6.4 ms and the caches for five times as long: of 6 requests a second 137 run there in " +
			"place of 17, a token takes 76 in place of 10 ms, so that half of all tokens miss 50 ms; a first token waits for a step longer, 0.15 " +
			"s; its peer is well, KV caches arrive within 5 ms, prefill is busy for a tenth of the time; GPU 0, a prefill engine's, has been at " +
			"its power cap all day (5%), and prefill engine 1 was restarted at -12 minutes; at 34 minutes the pad is replaced",
		right: "page within 25 minutes; hardware: GPU 3 is slowed down by its heat (sw_thermal_slowdown), its peers are not: drain decode " +
			"engine 3. Right too: engine or decode, tokens take several times as long at decode engine 3 than at its peer, at an equal share. Not " +
			"prefill, not transfers of KV cache, not a full KV cache (two fifths), not too few decode engines or more requests, not GPU 0, not " +
			"the restart of prefill engine 1. Triage at 6 and 15 minutes: the same. After 38 minutes no token is late: no new page",
		page:    `hardware\. .*GPU 3\b|(engine|decode)\. .*gemma-3-12b-dispatch-pd-3\b`,
		fleet:   world.Fleet{Profile: pd, Replicas: 4, Prefills: 2, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 2 * time.Hour, lasts: 48 * minute,
		faults: []incident.Fault{
			at1(-100*minute, 0, func(r *world.Replica) { r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.95} }),
			at1(-12*minute, 1, func(r *world.Replica) { r.Restart(80 * time.Second) }),
			at1(0, 3, func(r *world.Replica) {
				r.GPU.Throttle = &world.Throttle{Reason: "sw_thermal_slowdown", Clock: 0.9}
				r.Engine.GPU.Bandwidth /= 5
			}),
			at1(34*minute, 3, func(r *world.Replica) {
				r.GPU.Throttle = nil
				r.Engine.GPU.Bandwidth *= 5
			}),
		},
	}
	return []unforeseen{hot}
}

// eleventhLimits is a router that allows 256 requests at once.
func eleventhLimits() []unforeseen {
	longer := func(at time.Duration, tokens, refused float64) incident.Fault {
		return then(at, func(w *world.World) { w.Traffic.OutputTokens, w.GatewayRefuses = tokens, refused })
	}
	limit := unforeseen{
		name: "router-allows-256-at-once",
		source: "sgl-project/sglang 11435 (the router's limit of concurrent requests was 256 unless set, and is now off); " +
			"vllm-project/router 24 (a larger default for the same limit); decolua/9router 2240 (a request beyond the limit never reaches the " +
			"upstream)",
		story: "a client asks for reasons with each answer, at one of its sites after the other: answers of 180 tokens become 230, 280 and 330 " +
			"within eight minutes, at the same 90 requests a second to six SGLangs behind SMG, which was never told another limit than its 256 " +
			"requests at once; 190 were open, 240, 290 and 350 would be: after Erlang 2%, 14% and 28% are refused with 429 by the router itself; " +
			"the engines get fewer requests than before, 43 run at each of 256, none waits, a token takes 12 ms; 55% of what they can do was " +
			"used; replicas 4 and 5 were restarted for their node's patch at -20 and -15 minutes, which cut sixty answers; at 32 minutes the " +
			"client is put back; here the router draws whom it refuses",
		right: "page within 12 minutes; routing: the router refuses requests itself (429), no engine does: raise its limit. Right too: " +
			"behaviour or decode, if it says that answers are nearly twice as long, which is why so many are open. Not engines that fail or are " +
			"down, not a full queue at an engine, not «more requests», not «too few replicas» (half is free), not a client's fault, not release, " +
			"not the restarts. Triage at 6 and 15 minutes: routing. After 36 minutes nothing is refused: no new page",
		page: `routing\. .*(?i:router|gateway|smg|429|refus|reject|limit|fail)|(behaviou?r|decode)\. .*(?i:longer|output|answers)`,
		fleet: world.Fleet{
			Profile: profile("qwen3-8b-reasons", 15), Replicas: 6, Runtimes: []metrics.Runtime{metrics.SGLang}, ReadsGateway: true,
			Gateway: metrics.SMG,
		},
		history: 2 * time.Hour, lasts: 45 * minute,
		faults: []incident.Fault{
			at1(-20*minute, 4, func(r *world.Replica) { r.Restart(80 * time.Second) }),
			at1(-15*minute, 5, func(r *world.Replica) { r.Restart(80 * time.Second) }),
			longer(0, 230, 0.02), longer(4*minute, 280, 0.14), longer(8*minute, 330, 0.28), longer(32*minute, 180, 0),
		},
	}
	return []unforeseen{limit}
}

// eleventhPromises are requests that claim far more of the KV cache than they use.
func eleventhPromises() []unforeseen {
	letters := profile("mistral-nemo-letters", 12)
	letters.OutputTokens = 250
	claims := func(at time.Duration, tokens int) incident.Fault {
		return then(at, all4(func(r *world.Replica) { r.Profile.Reserve, r.Engine.Reserve = tokens, tokens }))
	}
	promised := unforeseen{
		name: "max-tokens-claim-the-cache",
		source: "NVIDIA/TensorRT-LLM 2866 (one request with a large max_tokens, and parallel ones are blocked), 1012 (without eviction a " +
			"request is scheduled only if its longest possible answer has room); ai-dynamo/dynamo 10093 (it reserves for the worst case, also " +
			"when answers turn out shorter)",
		story: "a client's library sets max_tokens to 16,384 in place of 1,024; answers stay at 250 tokens; four TensorRT-LLMs never evict, " +
			"and so keep room for the longest answer that a request may get: of 404,000 tokens each claims 17,300 in place of 1,900, so that 23 " +
			"run in place of up to 210; 34 ran on average at 12 requests a second each, 57% of what they can; 23 end 8.5 a second: queues grow by " +
			"3.5 a second, first tokens wait for ten seconds within half a minute, then for a minute, when clients leave; the cache is in use by " +
			"6%, a token takes 11 ms as ever, GPUs have time; at three minutes replica 0 is restarted, drained, for its node's patch; at 30 " +
			"minutes the library is put back",
		right: "page within ten minutes; memory or queueing: requests wait although the cache is nearly empty, and no more than some 23 run at " +
			"each (something keeps the rest out: a limit, claims on the cache). Right too: behaviour. Not «more requests» (as many as ever), not " +
			"«too few replicas», not a full KV cache, not slow engines (steps are shorter than before), not prefill, not hardware, not the " +
			"restart of replica 0, not routing. Triage at 6 and 15 minutes: the same. After 34 minutes nobody is late: no new page",
		page:    `(memory|queueing|behaviou?r)\. .*(?i:wait|running|runs?\b|slot|batch|limit|admit|room)|engine\. .*(?i:limit|admit|room)`,
		fleet:   world.Fleet{Profile: letters, Replicas: 4, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}, Shares: even(4)},
		history: 65 * minute, lasts: 42 * minute,
		faults: append(drained(0, 3*minute, 90*time.Second), claims(-66*minute, 1024), claims(0, 16384), claims(30*minute, 1024)),
	}
	return []unforeseen{promised}
}

// eleventhPolicies is a network policy that shuts out the gateway from a part of the engines.
func eleventhPolicies() []unforeseen {
	shut := func(at time.Duration, is bool) incident.Fault {
		return then(at, func(w *world.World) { w.Replicas[3].Unreachable, w.Replicas[4].Unreachable = is, is })
	}
	policy := unforeseen{
		name: "network-policy-shuts-out-the-gateway",
		source: "projectcalico/calico 2314 (a policy takes effect on certain nodes only: timeouts there, none elsewhere), 2971 (works only " +
			"while both sides are on one node); SREGym/SREGym 803 (pods are ready, endpoints look healthy, and traffic is dropped by where the " +
			"caller runs)",
		story: "a new network policy allows connections to pods with a label that two of five replicas lack: LiteLLM no longer reaches 3 and " +
			"4, while the exporter, on their node, reads both as ever; LiteLLM lets each cool down for five seconds after a failure and " +
			"tries it again, every 6.5 s: 0.3 failures a second, of 1.5 requests a second, a fifth, with 500; both engines are healthy and get " +
			"nothing, the other three (TGI and vLLM in turn) get five thirds, a twentieth of what they can do; at five minutes demand grows by a " +
			"third, at eight minutes the exporter restarts; at 28 minutes the policy is gone; no GPU metrics; here a connection fails at once",
		right: "page within ten minutes; routing: LiteLLM fails at two of its five deployments, 10.0.0.13 and 10.0.0.14 (replicas 3 and 4), " +
			"whose engines answer and fail nothing: look at the way there. Not «replicas 3 and 4 are down or hang» (they answer the exporter), " +
			"not engines that fail, not «more requests» or queueing, not the model as a whole, not the exporter. Triage at 6 and 15 minutes: " +
			"routing. After 32 minutes nothing fails: no new page",
		page: `routing\. .*(?i:gateway|litellm|deployment|10\.0\.0\.1[34]\b|granite-4-8b-couriers-[34]\b)`,
		fleet: world.Fleet{
			Profile: profile("granite-4-8b-couriers", 0.3), Replicas: 5, Runtimes: []metrics.Runtime{metrics.TGI, metrics.VLLM},
			ReadsGateway: true,
		},
		history: 4 * time.Hour, lasts: 42 * minute, options: play.Options{WithoutGPUs: true},
		faults: append(exporterOut(8*minute, 40*time.Second),
			shut(0, true), then(5*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.33 }), shut(28*minute, false)),
	}
	return []unforeseen{policy}
}

// eleventhHarmlessUpkeep must wake nobody: GPUs that get new firmware, and a new pod that never becomes ready.
func eleventhHarmlessUpkeep() []unforeseen {
	firmware := unforeseen{
		name: "new-firmware-for-one-gpu-at-a-time",
		source: "NVIDIA/NVSentinel 1692 (a reset needs a GPU that nobody holds), 768 (only the pods of that GPU are drained); microsoft/pai " +
			"5220 (an alert because a node has fewer GPUs than before)",
		story: "GPUs 1, 2 and 3 of six get new firmware, one every ten minutes: its replica is drained for 45 s and its pod deleted, the GPU " +
			"is away for three minutes, the pod comes back and loads for 90 s; five of three SGLangs and three TensorRT-LLMs carry 24 requests a " +
			"second, 4.8 each, a fifth of what they can; first tokens take 40 ms throughout; at 40 minutes the exporter restarts",
		right: "nobody is woken; up to two tickets: a GPU that is away while no pod uses it harms nobody. Triage at 6 and 15 minutes: " +
			"HEALTHY, or the GPU that is away with low confidence; not an engine that died",
		fleet: world.Fleet{
			Profile: profile("qwen3-8b-museum", 4), Replicas: 6, Runtimes: []metrics.Runtime{metrics.SGLang, metrics.TensorRTLLM},
			Shares: even(6),
		},
		history: 2 * time.Hour, lasts: 65 * minute, faults: exporterOut(40*minute, 40*time.Second),
	}
	for i := 1; i <= 3; i++ {
		at := time.Duration(10*(i-1)) * minute
		firmware.faults = append(firmware.faults,
			then(at, func(w *world.World) { w.Fleet.Shares[i] = 0 }),
			at1(at+45*time.Second, i, func(r *world.Replica) { r.Down, r.Gone = true, true }),
			at1(at+minute, i, func(r *world.Replica) { r.GPU.Lost = true }),
			at1(at+4*minute, i, func(r *world.Replica) { r.GPU.Lost = false }),
			at1(at+250*time.Second, i, func(r *world.Replica) { r.Restart(90 * time.Second) }),
			then(at+350*time.Second, func(w *world.World) { w.Fleet.Shares[i] = 1 }))
	}

	surge := unforeseen{
		name: "surge-pod-crash-loops-beside-four",
		source: "helm/helm 4811 (with one pod more during a rollout the new one crashes again and again, while the old ones serve); " +
			"grafana/rollout-operator 466 (a failed update leaves pods that restart for ever); defilantech/LLMKube 1250",
		story: "vLLM 0.16.0 to 0.17.0 with one pod more and none fewer during the rollout; an option of the values is gone in the new version: " +
			"the new pod, replica 4, loads for 70 s, opens its port and ends 15 s later, before it is ready for users, and starts again after 10, " +
			"20, 40 s and so on, up to five minutes; the four old ones serve 36 requests a second as ever, 45 from 20 minutes on, two fifths of " +
			"what they can; at 45 minutes the rollout is undone",
		right: "nobody is woken; one ticket about the pod that restarts again and again: users have as many engines as before. Triage at 6 and " +
			"15 minutes: HEALTHY, or the new pod with low confidence; not «engines crash»",
		fleet: world.Fleet{
			Profile: profile("llama-3.1-8b-ledger", 7.2), Replicas: 5, Runtimes: []metrics.Runtime{metrics.VLLM},
			Shares: []float64{1, 1, 1, 1, 0},
		},
		history: 2 * time.Hour, lasts: 65 * minute,
		faults: []incident.Fault{
			at1(-121*minute, 4, func(r *world.Replica) { r.Down, r.Gone = true, true }),
			at1(0, 4, func(r *world.Replica) { r.Profile.Release = "0.17.0" }),
			then(20*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.25 }),
			at1(45*minute, 4, func(r *world.Replica) { r.Down, r.Gone = true, true }),
		},
	}
	at := time.Duration(0)
	for _, pause := range []time.Duration{10, 20, 40, 80, 160, 300, 300, 300, 300, 300} {
		surge.faults = append(surge.faults, at1(at, 4, func(r *world.Replica) { r.Restart(70 * time.Second) }),
			at1(at+85*time.Second, 4, func(r *world.Replica) { r.Down = true }))
		at += 85*time.Second + pause*time.Second
	}
	return []unforeseen{firmware, surge}
}

// eleventhHarmlessLoads must wake nobody: a few long prompts, and a GPU that is kept quiet at night.
func eleventhHarmlessLoads() []unforeseen {
	statutes := profile("qwen3-8b-statutes", 5)
	statutes.Budget = 896
	long := unforeseen{
		name: "one-first-token-in-a-hundred-is-late",
		source: "checkly/public-roadmap 224 (one slow request must not alert, and a percentile over what time?); slok/sloth 506 (share of " +
			"events beyond a bound, or a quantile); sigstore/scaffolding 408 (burn rates in several windows)",
		story: "for 70 minutes a paralegal's tool sends a statute of 12,000 tokens every six seconds, to four vLLMs in turn, beside 20 chats a " +
			"second; a statute is computed in 14 steps of 896 tokens, 38 ms on average and 44 at the end, so that its own first token comes " +
			"after 0.53 s, just late, and one or two chats that arrive at its beginning too: 1.1% of all first tokens are late, none by a " +
			"second, as much as the objective allows, whereas a page needs 14.4%; all tokens take less than 50 ms, a fifth of what the engines " +
			"can do is used",
		right: "nobody is woken, at most one ticket: the objective allows one late first token in a hundred. Triage at 6 and 15 minutes: " +
			"HEALTHY or no verdict; a 99th percentile above 0.5 s is no incident",
		fleet:   world.Fleet{Profile: statutes, Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 2 * time.Hour, lasts: 80 * minute,
	}
	for i := range 700 {
		long.faults = append(long.faults, at1(time.Duration(6*i)*time.Second, i%4, func(r *world.Replica) {
			r.Engine.Offer((&drill.Request{Arrival: 2*time.Hour + time.Duration(6*i)*time.Second, Prompt: 12_000, Output: 150}).For(minute))
		}))
	}

	den := profile("qwen3-14b-den", 0.05)
	den.Release, den.MaxBatch, den.GPU, den.Weights, den.Patience = "0.12.6", 4, drill.L40S, drill.Llama8BFP8, 5*minute
	quiet := unforeseen{
		name: "quiet-hours-cap-the-gpu-in-the-den",
		source: "ArthurVardevanyan/HomeLab 664 (a cap at 155 W costs a tenth of the tokens per second); ollama/ollama 16498 (a lower power " +
			"limit, set while it runs); NVIDIA/open-gpu-kernel-modules 483 (half of the power without a noticeable loss)",
		story: "at ten in the evening a timer lowers the power limit of the only GPU, so that its fans are quiet: sw_power_cap all the time, " +
			"890 of 1,980 MHz; Ollama gets a request every 20 s as ever: a prompt of 600 tokens takes 57 in place of 26 ms, a token 16 in place " +
			"of 14 ms (the promises are 0.5 s and 50 ms); the model stays in GPU memory; objectives on the probes, a history of a day; after 80 " +
			"minutes a film is over, and the timer lifts the limit",
		right: "nobody is woken, no ticket or at most one about the clock: nobody is late. Triage at 6 and 15 minutes: HEALTHY; not «GPU 0 is " +
			"throttled» as an incident",
		fleet: world.Fleet{
			Profile: den, Replicas: 1, Runtimes: []metrics.Runtime{metrics.Ollama}, Probes: true, Objectives: onProbes(),
		},
		history: 24 * time.Hour, lasts: 95 * minute,
		faults: []incident.Fault{
			at1(0, 0, func(r *world.Replica) { r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.45} }),
			at1(80*minute, 0, func(r *world.Replica) { r.GPU.Throttle = nil }),
		},
	}
	return []unforeseen{long, quiet}
}
