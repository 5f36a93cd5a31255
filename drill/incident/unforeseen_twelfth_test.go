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

// This file holds fourteen incidents that a twelfth tester took from public threads, without having read the rules. The
// right answers were committed before the first play.

// TestUnforeseenTwelfth plays the incidents of the twelfth tester.
func TestUnforeseenTwelfth(t *testing.T) { checkUnforeseen(t, unforeseenTwelfth()) }

// unforeseenTwelfth are from a twelfth tester.
func unforeseenTwelfth() []unforeseen {
	return slices.Concat(twelfthPhotos(), twelfthContexts(), twelfthConnectors(), twelfthGrammars(), twelfthFabric(), twelfthCanary(),
		twelfthPoison(), twelfthPackets(), twelfthBundles(), twelfthAttention(), twelfthHarmlessLoads(), twelfthHarmlessHosts())
}

// twelfthPhotos are photos that an app no longer scales down.
func twelfthPhotos() []unforeseen {
	claims := profile("qwen3-vl-8b-claims", 5)
	claims.PromptTokens, claims.CacheHits, claims.OutputTokens = 1200, 0.05, 150
	longer := func(at time.Duration, tokens float64) incident.Fault {
		return then(at, func(w *world.World) { w.Traffic.PromptTokens = tokens })
	}
	photos := unforeseen{
		name: "photos-are-no-longer-scaled-down",
		source: "sgl-project/sglang 20025 (a photo of 2048 × 1536 pixels is no longer scaled down, since 12.8 million pixels are allowed in " +
			"place of the model's 1.3 million: many more tokens); ml-explore/mlx-swift-lm 243 (12 times the 1,280 tokens that the model's card " +
			"recommends); ggml-org/llama.cpp 13478 (more than 20,000 tokens for one photo)",
		story: "customers of an insurance send photos of damage; their app scaled them down to about 1,200 tokens, its new version sends them " +
			"as they are, 2048 × 1536 pixels, 4,000 tokens; a third of the customers have it at 0, two thirds at five minutes, all at ten; two " +
			"SGLangs and two TensorRT-LLMs get 5 requests a second each as ever, of the 12 that they can do with the old photos; a photo takes " +
			"four in place of one or two steps of 1,024 tokens, 36 ms each, and the next one waits for it: 5%, 24% and 80% of the first tokens " +
			"are late, those at the end by 2 to 10 s, and 16% of all tokens; photos are not in the prefix cache, before or after; replica 3 was " +
			"restarted, drained, at -15 minutes, the exporter restarts at 7 minutes; at 40 minutes the old app is back",
		right: "page between 8 and 30 minutes; prefill: prompts are about three times as long, on all four, at as many requests. Right too: " +
			"behaviour, if it says so. Not «more requests» or «too few replicas», not fewer cache hits, not slow engines or hardware (a step " +
			"takes what its tokens need), not decode, not a full KV cache, not release, not the restart of replica 3. Triage at 6 minutes: " +
			"prefill, HEALTHY or no verdict; at 15 minutes: prefill. After 46 minutes nobody is late: no new page",
		page: `(prefill|behaviou?r)\. .*(?i:prompts?|longer|comput|tokens per request)`,
		fleet: world.Fleet{
			Profile: claims, Replicas: 4, Runtimes: []metrics.Runtime{metrics.SGLang, metrics.TensorRTLLM}, Shares: even(4),
		},
		history: 2 * time.Hour, lasts: 50 * minute,
		faults: slices.Concat(drained(3, -15*minute, 80*time.Second), exporterOut(7*minute, 40*time.Second),
			[]incident.Fault{longer(0, 2100), longer(5*minute, 3000), longer(10*minute, 4000), longer(40*minute, 1200)}),
	}
	return []unforeseen{photos}
}

// twelfthContexts are agents whose long contexts are all in the prefix cache, so that only decoding suffers.
func twelfthContexts() []unforeseen {
	repo := profile("qwen3-coder-8b-repo", 4)
	repo.Budget = 512
	agents := func(at time.Duration, tokens, hits float64) incident.Fault {
		return then(at, func(w *world.World) { w.Traffic.PromptTokens, w.Traffic.CacheHits = tokens, hits })
	}
	long := unforeseen{
		name: "long-cached-contexts-slow-every-token",
		source: "vllm-project/vllm 11286 (a batch of 90: 5,364 tokens a second with short prompts, 782 with 4,000 to 8,000 tokens, 273 with " +
			"more); tenstorrent/tt-xla 5370 (a batch of 32 is half as fast at a deep KV cache, a batch of one as fast as ever)",
		story: "coding agents take the place of chats in one team after the other: prompts grow from 900 to 6,000, 12,000 and 18,000 tokens " +
			"within eight minutes, at the same 12 requests a second to three SGLangs; all but 2% of such a prompt is in the prefix cache, so that " +
			"an engine computes 360 tokens per request in place of 585; but each step reads the whole context of each request, 18,000 tokens or " +
			"2.4 GB, 0.9 ms: a step took 8 ms with 6 running, and takes 54 ms with 39: more than half of all tokens miss 50 ms, 8% of the first " +
			"tokens 0.5 s; the memory of the shared contexts is a tenth of the cache; until then a sixth of what they can do was used; no GPU " +
			"metrics; the exporter restarts at 12 minutes; at 40 minutes the agents are switched off",
		right: "page between 12 and 35 minutes; decode: a token takes several times as long since contexts are 20 times as long. Right too: " +
			"behaviour or prefill, if it says that prompts are much longer (which is the cause). Not «the engine is slow at the same load» or a " +
			"restart, not fewer cache hits (there are more), not more requests, not queueing, not memory, not hardware, not release. Triage at 6 " +
			"minutes: HEALTHY, no verdict, or that prompts are longer; at 15 minutes: the same as the page. After 44 minutes nobody is late: no " +
			"new page",
		page: `decode\. |(behaviou?r|prefill|engine)\. .*(?i:prompts?|contexts?)\b.*(?i:longer|times|grew|grown|tokens)`,
		fleet: world.Fleet{
			Profile: repo, Replicas: 3, Runtimes: []metrics.Runtime{metrics.SGLang},
		},
		history: 2 * time.Hour, lasts: 50 * minute, options: play.Options{WithoutGPUs: true},
		faults: append(exporterOut(12*minute, 40*time.Second),
			agents(0, 6000, 0.94), agents(4*minute, 12_000, 0.97), agents(8*minute, 18_000, 0.98), agents(40*minute, 900, 0.35)),
	}
	return []unforeseen{long}
}

// twelfthConnectors is an option that costs four fifths of the KV cache.
func twelfthConnectors() []unforeseen {
	essays := profile("gemma-3-12b-essays", 2.5)
	essays.OutputTokens, essays.OutputLimit = 1200, 4096
	hybrid := unforeseen{
		name: "connector-switches-the-hybrid-cache-off",
		source: "gpustack/gpustack 4660 («turning off hybrid kv cache manager because --kv-transfer-config is set»); ai-dynamo/dynamo 3643 " +
			"(the same for another image: nothing outside of the sliding window is dropped any more); tenstorrent/tt-metal 49257 (then every " +
			"layer gets a buffer of full length)",
		story: "three vLLMs 0.16.0 serve a model five of whose six layers look at a short window only; somebody adds --kv-transfer-config for " +
			"a cache in host memory that comes later, in a rollout of the same version, drained, at 0, 3 and 6 minutes; it switches off the " +
			"manager that gives such layers few blocks: 5,050 in place of 25,243 blocks, 81,000 tokens in place of 404,000; at 2.5 essays of " +
			"1,200 tokens a second each 35 ran and used a quarter of the cache, half of what they can; now it is full within a minute or two, " +
			"engines preempt the newest and compute them again, six times a second: two thirds of the first tokens come late, many after half a " +
			"minute, whereas a token takes 13 ms as before; at 12 minutes demand grows by a twentieth; at 40 minutes the option is gone; GPU 1 " +
			"has been at its power cap all day (4%)",
		right: "page within 25 minutes; memory: the KV cache is full and requests are preempted, since it has a fifth of the blocks since the " +
			"restarts. Right too: release, the restarts brought a new option or a smaller cache: put it back. Not «more requests» or «too few " +
			"replicas», not longer answers, not prefill, not slow engines, not hardware (GPU 1), not a leak. Triage at 6 and 15 minutes: memory " +
			"or release. After 46 minutes nobody is late: no new page",
		page: `memory\. .*(?i:kv|cache|preempt|block|evict)|release\. .*(?i:kv|cache|block|setting|option|restart)`,
		fleet: world.Fleet{
			Profile: essays, Replicas: 3, Runtimes: []metrics.Runtime{metrics.VLLM}, Shares: even(3), SeesProcesses: true,
		},
		history: 2 * time.Hour, lasts: 52 * minute,
		faults: []incident.Fault{
			at1(-110*minute, 1, func(r *world.Replica) { r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.96} }),
			then(12*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.05 }),
		},
	}
	for i := range 3 {
		at := time.Duration(3*i) * minute
		hybrid.faults = append(hybrid.faults, at1(at, i, func(r *world.Replica) {
			r.Profile.Options = []string{"--kv-transfer-config", `{"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}`}
			r.Profile.Blocks = 5050
		}), at1(at+40*minute, i, func(r *world.Replica) { r.Profile.Options, r.Profile.Blocks = nil, 0 }))
		hybrid.faults = append(hybrid.faults, drained(i, at, 90*time.Second)...)
		hybrid.faults = append(hybrid.faults, drained(i, at+40*minute, 90*time.Second)...)
	}
	return []unforeseen{hybrid}
}

// twelfthGrammars is a client that asks for JSON after a schema, for whose masks the CPU needs longer than the GPU for the tokens.
func twelfthGrammars() []unforeseen {
	masking := func(at, each time.Duration) incident.Fault {
		return at1(at, 0, func(r *world.Replica) { r.Engine.Masking = each })
	}
	schema := unforeseen{
		name: "json-schemas-keep-the-gpu-waiting",
		source: "vllm-project/vllm 10081 (several structured outputs at once: the GPU is used for almost nothing, 200 in place of 2,000 tokens " +
			"a second), 3567; dottxt-ai/outlines 1011 (batches are slower, the GPU idles, one process does all masks); " +
			"tenstorrent/tt-inference-server 3004 (126 µs per sequence and step, one after the other)",
		story: "the client of the only vLLM asks for its answers as JSON after a schema with many optional fields, all at once at 0; for each " +
			"running request and step the CPU computes a mask of allowed tokens, 0.7 ms, one request after the other, while the GPU waits; the " +
			"same 6 requests a second, as long as ever; 10 ran at 8.5 ms per step, a quarter of what it can; now steps take longer, more run, so " +
			"that steps take longer still: 80 run at 78 ms, 88% of all tokens miss 50 ms, and 4% of the first tokens 0.5 s; the GPU computes for " +
			"28% of the time, at full clock; no queue, a third of the KV cache in use; no thread waits for a CPU; the engine is probed; the " +
			"exporter restarts at 10 minutes; at 35 minutes the schema is simplified",
		right: "page within 20 minutes; engine: its steps take several times as long at as many requests, while the GPU idles for most of the " +
			"time (the CPU between the steps). Right too: decode, a token takes several times as long. Not «more requests» or «too few replicas», " +
			"not a queue, not prefill or longer prompts, not memory, not hardware (clocks are full, no error), not release, not the exporter. " +
			"Triage at 6 and 15 minutes: engine or decode. After 39 minutes nobody is late: no new page",
		page: `(engine|decode)\. .*(?i:tokens? takes?|steps?\b|per token|slower|times as long|its GPU|CPU)`,
		fleet: world.Fleet{
			Profile: profile("qwen3-8b-forms", 6), Replicas: 1, Runtimes: []metrics.Runtime{metrics.VLLM}, Probes: true,
		},
		history: 2 * time.Hour, lasts: 45 * minute,
		faults: append(exporterOut(10*minute, 40*time.Second), masking(0, 700*time.Microsecond), masking(35*minute, 0)),
	}
	return []unforeseen{schema}
}

// twelfthFabric is a fabric manager that ends unnoticed, until engines restart.
func twelfthFabric() []unforeseen {
	fabric := unforeseen{
		name: "fabric-manager-is-missed-at-the-next-rollout",
		source: "dstackai/dstack 2348 (the fabric manager's version differs from the driver's: it ends, and CUDA fails with error 802); " +
			"Azure/azhpc-images 86 (an update brings another version of it than of the driver); NVIDIA/gpu-operator 1043 (pods crash until it " +
			"runs); NVIDIA/gpu-driver-container 908 (nothing says so)",
		story: "on a node with four GPUs and NVSwitches an unattended update replaces the fabric manager at -12 minutes; it does not fit the " +
			"loaded driver and ends; the four engines, two SGLangs and two TensorRT-LLMs, compute as before; at 0 a secret is rotated, in a " +
			"rollout of the same version, which drains and ends two pods at once, 0 and 1; their GPUs register anew, wait for the manager for " +
			"ever, and CUDA fails with error 802: both pods crash again and again, before they open their port; the two that are left get 30 of " +
			"60 requests a second each in place of 15, and do 26: queues grow by four a second, nearly all first tokens are late after a minute, " +
			"and later wait for a minute; nothing is throttled, no XID; at 34 minutes the old fabric manager is started, both load for 90 s; the " +
			"exporter sees the host's processes",
		right: "page within 20 minutes; hardware: the fabric manager does not run, or GPUs 0 and 1 do not register with the fabric. Right too: " +
			"engine, replicas 0 and 1 do not answer since their restart. Not queueing «more requests» (as many as ever), not slow engines, not a " +
			"release (the same version), not routing, not the two that are left. Triage at 6 and 15 minutes: the same. After 40 minutes nobody is " +
			"late: no new page",
		page: `hardware\. .*(?i:fabric|nvswitch|regist|GPUs? [01]\b)|` +
			`engine\. .*(?i:wayfinder-[01]\b|stopped answering|do(es)? not answer|restart|are left)`,
		fleet: world.Fleet{
			Profile: profile("qwen3-8b-wayfinder", 15), Replicas: 4, Runtimes: []metrics.Runtime{metrics.SGLang, metrics.TensorRTLLM},
			Shares: even(4), SeesProcesses: true,
		},
		history: 2 * time.Hour, lasts: 48 * minute,
		faults: []incident.Fault{
			then(-12*minute, func(w *world.World) { w.ManagerDead = true }),
			then(0, func(w *world.World) { w.Fleet.Shares = []float64{0, 0, 1, 1} }),
			then(45*time.Second, func(w *world.World) {
				for _, r := range w.Replicas[:2] {
					r.Down, r.GPU.Unregistered = true, true
				}
			}),
			then(50*time.Second, func(w *world.World) { w.Fleet.Shares = even(4) }),
			then(34*minute, func(w *world.World) {
				w.ManagerDead = false
				for _, r := range w.Replicas[:2] {
					r.GPU.Unregistered = false
					r.Restart(90 * time.Second)
				}
			}),
		},
	}
	return []unforeseen{fabric}
}

// twelfthCanary is a canary that is given up, with all requests sent at once to the few old pods that are left.
func twelfthCanary() []unforeseen {
	shares := func(at time.Duration, of []float64) incident.Fault {
		return then(at, func(w *world.World) { w.Fleet.Shares = of })
	}
	back := unforeseen{
		name: "given-up-canary-falls-back-on-two-pods",
		source: "argoproj/argo-rollouts 3372 (a further release in the middle of a rollout: all traffic goes to the old pods at once, before " +
			"they are scaled up again; an outage), 3077 (the same overwhelms the old pods), 3888 (after an abort nothing shifts gradually)",
		story: "TensorRT-LLM 1.3.0 to 1.3.1 as a canary: over 40 minutes four of six pods get the new release, one after the other, drained, " +
			"and old ones are given up; both run equally well with a sixth of 60 requests a second each, two fifths of what they can; 40 minutes " +
			"later somebody pushes a third version: the controller gives up the canary, and sends everything to the old pods, replicas 0 and 1; " +
			"it would start four more, but the canary's pods still have the GPUs, idle; 0 and 1 get 30 a second each and do 26: queues grow by " +
			"four a second, first tokens wait for ten seconds within a minute, then for a minute, when clients leave; GPUs 0 and 1 run into their " +
			"power cap (4%); at 28 minutes the canary is promoted, and all six serve",
		right: "page within 15 minutes; routing: replicas 0 and 1 get all requests, four others, which are well, get none. Right too: " +
			"queueing, if it names replicas 0 and 1. Not «more requests arrive» for the model (60 a second as ever) or «too few replicas», not " +
			"release 1.3.1 (its pods idle), not hardware (sw_power_cap), not slow engines, not engines that died. Triage at 6 and 15 minutes: " +
			"routing. After 34 minutes nobody is late: no new page",
		page: `routing\. |queueing\. .*timetable-[01]\b`,
		fleet: world.Fleet{
			Profile: profile("llama-3.1-8b-timetable", 10), Replicas: 6, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}, Shares: even(6),
		},
		history: 2 * time.Hour, lasts: 42 * minute,
		faults: []incident.Fault{
			shares(0, []float64{1, 1, 0, 0, 0, 0}),
			then(2*minute, func(w *world.World) {
				for _, r := range w.Replicas[:2] {
					r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.96}
				}
			}),
			shares(28*minute, even(6)),
			then(31*minute, all4(func(r *world.Replica) { r.GPU.Throttle = nil })),
		},
	}
	for i := 2; i < 6; i++ {
		at := time.Duration(10*i-90) * minute
		back.faults = append(back.faults, at1(at, i, func(r *world.Replica) { r.Profile.Release = "1.3.1" }))
		back.faults = append(back.faults, drained(i, at, 90*time.Second)...)
	}
	return []unforeseen{back}
}

// twelfthPoison is a request that ends every engine that it reaches, and a client that sends it again.
func twelfthPoison() []unforeseen {
	stories := profile("mistral-nemo-stories", 2.5)
	stories.OutputTokens, stories.OutputLimit = 700, 4096
	poison := unforeseen{
		name: "one-request-ends-each-engine-in-turn",
		source: "vllm-project/vllm 16529 (a token outside the vocabulary in logit_bias ends the engine), 55164 (too many allowed tokens: an " +
			"error within the core is fatal, the whole server shuts down); facebookresearch/matrix 43 (with prompt_logprobs a replica dies after " +
			"its first answer)",
		story: "a nightly script sends one request whose logit_bias names a token outside the vocabulary; the vLLM that gets it ends, with all " +
			"its open answers; the script sends it again 45 s later, and LiteLLM passes it to the next of four: each is ended every three minutes " +
			"and loads for 110 s, so that one or two of four are up; 10 requests a second with answers of 700 tokens, 9 s each, 17 open at each, " +
			"a quarter of what they can; then 50 at those that are up, which are cut off with their engine: an eighth of all fail, and a few " +
			"more, as LiteLLM tries a closed port, which cools down for five seconds; those who get answers wait hardly longer; no XID, no error " +
			"of a GPU, no full memory, the same version; the exporter restarts at 11 minutes; at 28 minutes the script gives up",
		right: "page within 12 minutes; engine: the engines end and restart again and again, one after the other, all four of them (look at " +
			"the log of the last one: the request before its end). Not hardware or one GPU, not one replica only, not release, not LiteLLM or the " +
			"way to the engines, not queueing or more requests, not memory. Triage at 6 and 15 minutes: engine. After 32 minutes nothing fails: " +
			"no new page",
		page: `engine\. .*(?i:restart|stopped|crash|do(es)? not answer|died|ended|down\b|again)`,
		fleet: world.Fleet{
			Profile: stories, Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM}, ReadsGateway: true,
		},
		history: 2 * time.Hour, lasts: 42 * minute,
		faults: exporterOut(11*minute, 40*time.Second),
	}
	for n := range 38 {
		poison.faults = append(poison.faults, then(time.Duration(45*n)*time.Second, func(w *world.World) {
			for i := range w.Replicas {
				if r := w.Replicas[(n+i)%len(w.Replicas)]; !r.Down {
					r.Restart(110 * time.Second)
					return
				}
			}
		}))
	}
	return []unforeseen{poison}
}

// twelfthPackets is a network that loses every packet above a size, on the way from the gateway to the engines.
func twelfthPackets() []unforeseen {
	short := profile("phi-4-mini-hotline", 0.6)
	short.PromptTokens, short.OutputTokens = 250, 120
	swallows := func(at time.Duration, tokens float64) incident.Fault {
		return then(at, func(w *world.World) { w.GatewaySwallows = tokens })
	}
	mtu := unforeseen{
		name: "large-packets-never-reach-the-engines",
		source: "SREGym/SREGym 921 (the overlay's MTU is too large: handshakes and small requests succeed, large ones hang until their " +
			"timeout); tailscale/tailscale 9894 (below some 1,000 bytes a request succeeds, beyond it hangs for ever); kubeovn/kube-ovn 4254 " +
			"(after a change to jumbo frames only some of the nodes time out)",
		story: "the node of LiteLLM gets jumbo frames, the switch before it does not: its packets of more than 1,500 bytes are lost without a " +
			"word, on the way to three TGIs on another node; a request of up to some 350 tokens fits into one packet, a sixth of all are longer: " +
			"their connection is opened, and no answer comes; LiteLLM counts a timeout (408), and lets the deployment cool down for five seconds, " +
			"which at times are all three, so that another sixth gets 429: a third of 1.8 requests a second fail; the engines never see them: " +
			"they get fewer and shorter ones, answer all, in 20 ms and 8 ms per token; the exporter runs on the node of the engines, and reads " +
			"all pages as ever; no GPU metrics; at 9 minutes demand grows by a fifth; at 30 minutes the frames are as before; here a timeout " +
			"counts at once",
		right: "page within ten minutes; routing: LiteLLM gets no answer (408) from all three deployments, which are well and fail nothing: " +
			"look at the way from the gateway to the engines. Not engines that hang, fail or are down, not queueing or more requests (fewer reach " +
			"them), not one replica, not a client's limit, not hardware, not release. Triage at 6 and 15 minutes: routing. After 34 minutes " +
			"nothing fails: no new page",
		page: `routing\. .*(?i:gateway|litellm|deployment|10\.0\.0\.1|408|429|timeouts?|timed out|proxy|reach|refus|fail)`,
		fleet: world.Fleet{
			Profile: short, Replicas: 3, Runtimes: []metrics.Runtime{metrics.TGI}, ReadsGateway: true,
		},
		history: 3 * time.Hour, lasts: 44 * minute, options: play.Options{WithoutGPUs: true},
		faults: []incident.Fault{
			swallows(0, 350), then(9*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.2 }), swallows(30*minute, 0),
		},
	}
	return []unforeseen{mtu}
}

// twelfthBundles is a client that sends as many requests as ever, but a hundred at a time.
func twelfthBundles() []unforeseen {
	minutes := profile("llama-3.1-8b-minutes", 8)
	minutes.PromptTokens, minutes.OutputTokens = 600, 80
	bundles := unforeseen{
		name: "all-parts-of-a-document-at-once",
		source: "Tiendil/feeds.fun 539 (all parts of a text are requested at once, without a limit, 64 in the test); NVIDIA-NeMo/Skills 899 " +
			"(the limit counted documents, not requests: more than 5,000 arrived at a time); kekzl/imp 1762 (of 32 at once the last ones begin 4 " +
			"to 7 s late); i-dot-ai/redbox 656 (the parts of a summary, one after the other so far, become parallel)",
		story: "a service that summarises documents asks for one part after the other, 16 a second over all documents; a new version of it " +
			"asks for all parts of a document at once: 120 on average, every 7.5 s on average; it is the same number of requests, of the same " +
			"lengths, to two Dynamo frontends in turn, 60 each, a fifth of what they can do; between two documents the engines are idle for a " +
			"part of the time, but of such a bundle one request after the other is computed, 1,024 tokens per step of 36 ms: half of all first " +
			"tokens come after 0.6 s, some after 3 s, whereas a token takes 10 ms; 58% of the first tokens are late; frontends show no queue, " +
			"only open requests; at 38 minutes a limit of eight at once is set",
		right: "page within 25 minutes; queueing: requests come in bursts, as many as ever on average: a limit for the client, or smooth them. " +
			"Right too: behaviour, if it says so. Not «more requests» or «too few replicas» for good, not slow engines (a step takes what its " +
			"tokens need), not longer prompts or fewer cache hits, not decode, not hardware, not routing (each gets half), not release. Triage at " +
			"6 and 15 minutes: queueing, behaviour, or no verdict between two bundles. After 42 minutes nobody is late: no new page",
		page:    `(queueing|behaviou?r)\. .*(?i:burst|at once|together|bundle|peak|same moment|uneven|wait|open)`,
		fleet:   world.Fleet{Profile: minutes, Replicas: 2, Runtimes: []metrics.Runtime{metrics.Dynamo}},
		history: 2 * time.Hour, lasts: 48 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Traffic.Together = 120 }),
			then(38*minute, func(w *world.World) { w.Traffic.Together = 8 }),
		},
	}
	return []unforeseen{bundles}
}

// twelfthAttention is a release whose attention is slow for long contexts only.
func twelfthAttention() []unforeseen {
	tickets := profile("granite-4-8b-tickets", 4)
	tickets.PromptTokens, tickets.CacheHits, tickets.OutputTokens, tickets.OutputLimit = 3000, 0.8, 300, 2048
	slow := unforeseen{
		name: "new-release-attends-with-another-kernel",
		source: "vllm-project/vllm 39965 (a release no longer selects the fast attention by default and falls back to a slower one, without a " +
			"warning), 48076 (from a batch of 12 on another kernel reads the cache, tokens take twice as long), 11912 (15.7 to 25.7 ms per token " +
			"with prompts of 8,000 tokens); sgl-project/sglang 2271 (that kernel is slow for long contexts)",
		story: "vLLM 0.16.0 to 0.17.0 on three replicas, drained, at 0, 3 and 6 minutes; the new release takes another kernel for attention, " +
			"which reads the KV cache at a quarter of the speed; short prompts in its test were as fast as ever; here a request has 3,000 tokens, " +
			"of which 80% are cached, and writes 300: 13 ran at 10 ms per step, a quarter of what they can; now 0.6 in place of 0.16 ms per step " +
			"and request, so that more run and steps take longer still: 105 at 94 ms; at 12 requests a second as ever 85% of all tokens miss 50 " +
			"ms, 11% of the first tokens 0.5 s; the cache is as large as before and half full, nothing is preempted; GPUs are busy at full clock; " +
			"replica 2 gets the release last; at 40 minutes all is rolled back, drained; GPU 0 has been at its power cap all day (5%)",
		right: "page within 25 minutes; release: 0.16.0 to 0.17.0 on all three: roll back. Right too: engine or decode, if it says that a step " +
			"or a token takes several times as long at the same load (since the restarts). Not more requests, not longer prompts or answers, not " +
			"fewer cache hits, not a full KV cache, not a queue, not hardware (GPU 0). Triage at 6 minutes: release, engine or decode, or no " +
			"verdict; at 15 minutes: release, engine or decode. After 50 minutes nobody is late: no new page",
		page: `release\. .*0\.17\.0|(engine|decode)\. .*(?i:tokens? takes?|steps?\b|per token|slower|times as long)`,
		fleet: world.Fleet{
			Profile: tickets, Replicas: 3, Runtimes: []metrics.Runtime{metrics.VLLM}, Shares: even(3),
		},
		history: 2 * time.Hour, lasts: 55 * minute,
		faults: []incident.Fault{at1(-110*minute, 0, func(r *world.Replica) {
			r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.95}
		})},
	}
	for i := range 3 {
		at := time.Duration(3*i) * minute
		slow.faults = append(slow.faults, at1(at, i, func(r *world.Replica) {
			r.Profile.Blocks = r.Profile.KVBlocks() // the cache keeps its size
			r.Profile.Weights.KVBytesPerTok *= 4
			r.Profile.Release = "0.17.0"
		}), at1(at+40*minute, i, func(r *world.Replica) {
			r.Profile.Weights.KVBytesPerTok /= 4
			r.Profile.Blocks, r.Profile.Release = 0, "0.16.0"
		}))
		slow.faults = append(slow.faults, drained(i, at, 90*time.Second)...)
		slow.faults = append(slow.faults, drained(i, at+40*minute, 90*time.Second)...)
	}
	return []unforeseen{slow}
}

// twelfthHarmlessLoads must wake nobody: long prompts that are cached, and a full but sufficient KV cache.
func twelfthHarmlessLoads() []unforeseen {
	tools := unforeseen{
		name: "tool-definitions-that-everybody-shares",
		source: "appstrate/appstrate 1250 (15,500 tokens of tools and instructions before each first turn, the same for all, and read from the " +
			"cache); waybarrios/vllm-mlx 46 (of 18,000 tokens all but a few hundred are cached, 0.3 in place of 30 s); " +
			"modelcontextprotocol/modelcontextprotocol 2808 (a thousand tokens per tool)",
		story: "an assistant gets five tools: from now on 5,100 tokens of their definitions stand before each prompt, the same for all; " +
			"prompts grow from 900 to 6,000 tokens, almost seven times, and 91% of them are in the prefix cache in place of 35%: four vLLMs " +
			"compute 540 tokens per request in place of 585, at 12 requests a second, an eighth of what they can; first tokens take 23 ms as " +
			"before, one in 200 is late, a token takes 10 in place of 8 ms; at 35 minutes replica 2 is restarted, drained, and the exporter at 50 " +
			"minutes",
		right: "nobody is woken, no ticket: prompts are seven times as long, and nobody is late. Triage at 6 and 15 minutes: HEALTHY; not " +
			"«prompts are longer» as an incident",
		fleet: world.Fleet{
			Profile: profile("hermes-4-8b-errands", 3), Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM}, Shares: even(4),
		},
		history: 2 * time.Hour, lasts: 75 * minute,
		faults: slices.Concat(drained(2, 35*minute, 80*time.Second), exporterOut(50*minute, 40*time.Second), []incident.Fault{
			then(0, func(w *world.World) { w.Traffic.PromptTokens, w.Traffic.CacheHits = 6000, 0.91 }),
		}),
	}

	chat := profile("qwen3-8b-almanac", 2)
	chat.Blocks, chat.Budget = 13_200, 640
	full := unforeseen{
		name: "cache-four-fifths-full-for-an-hour",
		source: "ur-grue/toptop 76 (a full cache harms only if requests are preempted, which is what must alert); vllm-project/vllm 9660 (what " +
			"its usage means: how much of the room is in use, no more); tenstorrent/vllm 55 (92 to 95% with 16 running and none waiting)",
		story: "beside 4 chats a second, a job writes articles of 5,500 tokens for 70 minutes: four begin every five seconds, at two SGLangs " +
			"in turn, and 41 of them run at each; the KV cache, 13,200 blocks, is in use by 81%, at times by 90%, in place of 2%; nothing is " +
			"retracted, nothing waits for longer than 0.2 s: a first token takes 43 ms, a token 17 in place of 8 ms (the promises are 0.5 s and " +
			"50 ms)",
		right: "nobody is woken, at most one ticket about the cache: nobody is late, nothing is retracted. Triage at 6 and 15 minutes: " +
			"HEALTHY; not «the KV cache is full» as an incident",
		fleet:   world.Fleet{Profile: chat, Replicas: 2, Runtimes: []metrics.Runtime{metrics.SGLang}},
		history: 2 * time.Hour, lasts: 85 * minute,
	}
	for i := range 840 {
		full.faults = append(full.faults, then(time.Duration(5*i)*time.Second, all4(func(r *world.Replica) {
			for range 2 {
				r.Engine.Offer((&drill.Request{Arrival: 2*time.Hour + time.Duration(5*i)*time.Second, Prompt: 1500, Output: 5500}).For(minute))
			}
		})))
	}
	return []unforeseen{tools, full}
}

// twelfthHarmlessHosts must wake nobody: memory errors that are corrected, and engines that wait for a CPU.
func twelfthHarmlessHosts() []unforeseen {
	corrected := unforeseen{
		name: "memory-errors-that-are-all-corrected",
		source: "IBM/autopilot 55 (a remapped row is no reason to evict a workload, a warning suffices); leptonai/gpud 987 (a pending " +
			"remapping is repaired by the next reset, no inspection), 108 (no GPU is unhealthy because the driver has recovered); " +
			"Azure/azhpc-diagnostics 75 (rows that wait for their retirement need a restart, no repair)",
		story: "the memory of GPU 2 of four corrects four single-bit errors a second, from now on; the driver says so (XID 92) at five " +
			"minutes, and at 12 minutes remaps a row (XID 63), which takes effect at the next reset; no error stays uncorrected, no process is " +
			"ended; four Dynamo frontends serve 24 requests a second as ever, 32 from 25 minutes on, a third of what they can; first tokens take " +
			"30 ms; at 60 minutes the maintenance of the evening resets the GPU, its replica drained",
		right: "nobody is woken; one ticket: reset GPU 2 when it suits, which has remapped a row. Triage at 6 and 15 minutes: HEALTHY, or GPU " +
			"2 as something for later; not hardware as an incident",
		fleet: world.Fleet{
			Profile: profile("llama-3.1-8b-harbour", 6), Replicas: 4, Runtimes: []metrics.Runtime{metrics.Dynamo}, Shares: even(4),
		},
		history: 2 * time.Hour, lasts: 75 * minute,
		faults: append(drained(2, 60*minute, 90*time.Second),
			at1(0, 2, func(r *world.Replica) { r.GPU.Corrected = 4 }),
			at1(5*minute, 2, func(r *world.Replica) { r.GPU.Report(92) }),
			at1(12*minute, 2, func(r *world.Replica) {
				r.GPU.Report(63)
				r.GPU.RemapPending = true
			}),
			then(25*minute, func(w *world.World) { w.Traffic.Arrivals *= 4.0 / 3 }),
			at1(60*minute+45*time.Second, 2, func(r *world.Replica) { r.GPU.Corrected, r.GPU.RemapPending = 0, false })),
	}

	shed := profile("qwen3-8b-q8-shed", 0.1)
	shed.MaxBatch, shed.GPU, shed.Weights, shed.Patience = 4, drill.L40S, drill.Llama8BFP8, 5*minute
	waits := func(at, each time.Duration) incident.Fault {
		return then(at, all4(func(r *world.Replica) { r.Engine.Starved = each }))
	}
	quota := unforeseen{
		name: "backup-takes-half-of-the-cpus",
		source: "kubernetes-sigs/kubernetes-mixin 108 (CPUThrottlingHigh fires without any harm); kubermatic/kubermatic 2367 (it fired 1,912 " +
			"times in a week, so that real alerts are missed); llmmanorg/llmman 322 (llama-server is slower with fewer CPUs than threads)",
		story: "a backup compresses the disks of the node for an hour and takes most of the CPU time that two llama.cpp servers had: each step " +
			"waits for a CPU for 12 ms; one request every ten seconds at each, with four slots; a token takes 26 in place of 14 ms, a first token " +
			"40 in place of 25 ms, in two in a thousand of the cases more than 0.5 s (all slots are taken); the promises, on the probes, are 50 " +
			"ms and 0.5 s; the GPUs are used for less of the time; the exporter sees the host's processes; the exporter restarts at 20 minutes",
		right: "nobody is woken, at most one ticket about threads that wait for a CPU: nobody is late. Triage at 6 and 15 minutes: HEALTHY; " +
			"not «the engine waits for a CPU» as an incident",
		fleet: world.Fleet{
			Profile: shed, Replicas: 2, Runtimes: []metrics.Runtime{metrics.LlamaCpp}, Probes: true, Objectives: onProbes(),
			SeesProcesses: true,
		},
		history: 6 * time.Hour, lasts: 75 * minute,
		faults: append(exporterOut(20*minute, 40*time.Second), waits(0, 12*time.Millisecond), waits(60*minute, 0)),
	}
	return []unforeseen{corrected, quota}
}
