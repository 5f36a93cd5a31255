package incident_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// This file holds fourteen incidents that a fifth tester took from public threads. The right answers were committed
// before the first play, in which the pages of eight of the ten faults were right, and the harmless incidents woke
// nobody.

// l40sBF16 is an L40S with weights in BF16 (NVIDIA L40S datasheet).
var l40sBF16 = drill.Hardware{Name: "NVIDIA L40S", Bandwidth: 864e9, FLOPS: 362e12, Memory: 48e9}

// unforeseenFifth are from a fifth tester.
func unforeseenFifth() []unforeseen {
	return slices.Concat(fifthSmall(), fifthHardware(), fifthTraffic(), fifthReleases(), fifthHarmless())
}

// fifthSmall are faults of servers that count no requests: Ollama and llama.cpp.
func fifthSmall() []unforeseen {
	probed := func(s slo.Signal, like slo.Objective) slo.Objective {
		return slo.Objective{Name: string(s), Signal: s, Threshold: like.Threshold, Target: like.Target}.WithDefaults()
	}
	defaults := slo.Defaults()
	home := profile("qwen3-8b-ollama", 0.02)
	home.Release, home.MaxBatch, home.GPU, home.Weights, home.Patience = "0.12.6", 4, drill.L40S, drill.Llama8BFP8, 5*minute
	half := unforeseen{
		name: "ollama-half-on-the-cpu",
		source: "ollama/ollama 11812 (18 of 37 layers go to the GPUs; whatever is loaded next uses the CPU only), 10848 (5 of 37 layers: 511 MiB on the GPU, 3,565 MiB " +
			"on the CPU); stavsap/comfyui-ollama 112 (an image model takes the room, the language model is offloaded without a word)",
		story: "an image model takes half of the GPU's memory while Ollama reloads its model: 45% of it stays on the GPU, and a token takes 110 ms in place of 14; a request " +
			"comes every 50 s, and the objectives are on the exporter's probes; at 24 minutes the model is loaded anew, completely; at 36 minutes its container loses the GPU",
		right: "page after nine minutes or more, since a probe is sent once a minute; memory: more than half of the model has left GPU memory (engine is right too if it says " +
			"so). Not decode or «slow steps» alone, not queueing (nothing waits), not hardware (no fault of the GPU). Triage at 6 and 15 minutes: memory, the model is in " +
			"GPU memory to 45%. At 30 minutes nothing is wrong any more; after 45 minutes, by page or update, memory again: nothing of it is on the GPU",
		page: `(memory\. |engine\. .*(?i:gpu memory|left the gpu|on the gpu|in gpu|cpu|host memory))`,
		fleet: world.Fleet{
			Profile: home, Replicas: 1, Runtimes: []metrics.Runtime{metrics.Ollama}, Probes: true,
			Objectives: []slo.Objective{
				probed(slo.ProbeTTFT, defaults[0]), probed(slo.ProbeITL, defaults[1]), probed(slo.ProbeAvailability, defaults[2]),
			},
		},
		lived:   3 * time.Hour,
		history: 40 * minute, lasts: 60 * minute,
		faults: []incident.Fault{
			at1(0, 0, func(r *world.Replica) { r.LeaveGPU(0.55, 8) }),
			at1(24*minute, 0, func(r *world.Replica) { r.LeaveGPU(0, 1) }),
			at1(36*minute, 0, func(r *world.Replica) { r.LeaveGPU(1, 20) }),
		},
	}

	coder := profile("qwen2.5-coder-gguf", 0.5)
	coder.MaxBatch, coder.GPU, coder.Weights, coder.Patience = 8, drill.L40S, drill.Llama8BFP8, 2*minute
	typo := unforeseen{
		name: "one-slot-in-place-of-eight",
		source: "autonomous-ai/autonomous-grid 102 (each llama.cpp gets one slot whatever --max-concurrency says, the master sends it N requests, all but one wait); " +
			"ggml-org/llama.cpp 5018 (a request without a slot is deferred, in a queue without a limit), 17300",
		story: "one of three llama.cpp servers is restarted with -np 1 in place of 8: at a request every two seconds, 2.6 s each, its queue only grows, and clients leave after " +
			"two minutes; the two others hold one or two of eight; no GPU metrics",
		right: "page within ten minutes; release: the setting max_sequences (slots) changed from 8 to 1 on replica 1. Right too: queueing, if it says that requests wait at " +
			"replica 1 alone, or that all its slots (1) are taken. Not more requests, not too few replicas, not a replica that is slow or hangs (it generates as fast as its " +
			"peers, one at a time), not routing. Triage at 6 and 15 minutes: release with the setting, or requests that wait at replica 1",
		page: `(release\. .*\b8 (to|→) 1\b|queueing\. .*(qwen2\.5-coder-gguf-1\b|(?i:slot)))`,
		fleet: world.Fleet{
			Profile: coder, Replicas: 3, Runtimes: []metrics.Runtime{metrics.LlamaCpp}, Probes: true, SeesProcesses: true,
		},
		history: 2 * time.Hour, lasts: 45 * minute, options: play.Options{WithoutGPUs: true},
		faults: []incident.Fault{at1(0, 1, func(r *world.Replica) {
			r.Profile.MaxBatch = 1
			r.Restart(40 * time.Second)
		})},
	}
	return []unforeseen{half, typo}
}

// fifthHardware are faults of GPUs and links from which other parts suffer.
func fifthHardware() []unforeseen {
	experts := profile("qwen3-moe-ep8", 1)
	experts.GPU, experts.Weights = h200BF16, drill.Weights{Parameters: 32.8e9, Bytes: 2, KVBytesPerTok: 262144, Attention: 4 * 64 * 40 * 128}
	experts.PromptTokens, experts.OutputTokens, experts.Budget = 500, 200, 192
	lockstep := unforeseen{
		name: "one-hot-gpu-slows-eight-ranks",
		source: "pegainfer-project/pegainfer 542 (8 ranks on 8 H200, 25.3 ms per step, of which about 6 ms are waits for the slowest rank); " +
			"matt.sh/cloud-gpu-thermal-throttling (345 to 510 of 1755 MHz at 88 °C)",
		story: "GPU 5 of eight overheats and runs at a sixth of its clock; the eight ranks of one vLLM exchange experts in every layer, so that all wait for it: each token takes " +
			"54 to 60 ms in place of 20 on all of them; eight requests a second, as ever",
		right: "page within ten minutes; hardware: GPU 5 is slowed by hw_thermal_slowdown, alone of eight; the others are slow because they wait for it. Not engine («each " +
			"token takes 2.7 times as long»), not decode, not queueing, and no other GPU. Triage at 6 and 15 minutes: hardware, GPU 5",
		page:    `hardware\. .*GPU 5\b`,
		fleet:   world.Fleet{Profile: experts, Replicas: 8, Runtimes: []metrics.Runtime{metrics.VLLM}, Ranks: true},
		history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) {
			for i, r := range w.Replicas {
				if i == 5 {
					r.GPU.Throttle = &world.Throttle{Reason: "hw_thermal_slowdown", Clock: 345. / 1980}
				} else {
					r.Engine.Slow = 2.73
				}
			}
		})},
	}

	flaps := unforeseen{
		name: "nvlink-flaps-then-breaks",
		source: "marin-community/marin 8934, 9086 (one link recovers 3 times in 21 minutes, 505 times in all; steps stall without a word; then XID 149 on this GPU, NETIR_LINK_DOWN); " +
			"leptonai/gpud 1174 (XID 145, RLW_RXPIPE Nonfatal); NVIDIA/open-gpu-kernel-modules 1150 (XID 45 after 149)",
		story: "an NVLink of GPU 2 is lost and recovers every 75 s; its TensorRT-LLM, one of four, stands still for 30 s each time, so that a tenth of all first tokens are late, by " +
			"up to half a minute; nothing fails; at 26 minutes the link stays down (XID 149), and the engine dies with it",
		right: "page within a quarter of an hour; hardware: the NVLink of GPU 2 recovers again and again (with XID 145, nonfatal), drain it. «Engine: replica 2 stands still» is " +
			"half right and misleads, since a restart does not help; not queueing, not routing. Triage at 6 and 15 minutes: hardware, GPU 2, at whatever instant of the 75 s. After " +
			"27 minutes, by page or update: hardware, XID 149 on GPU 2, its engine is down",
		page:    `hardware\. (.*GPU 2\b|Requests on it are lost)`,
		fleet:   world.Fleet{Profile: profile("nemotron-super-trt", 4), Replicas: 4, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}},
		history: 65 * minute, lasts: 45 * minute,
	}
	for i := range 20 {
		at := time.Duration(i) * 75 * time.Second
		flaps.faults = append(flaps.faults,
			at1(at, 2, func(r *world.Replica) {
				r.Engine.Wedged = true
				r.GPU.ReportNonfatal(145)
			}),
			at1(at+30*time.Second, 2, func(r *world.Replica) {
				r.Engine.Wedged = false
				r.GPU.Recoveries++
			}))
	}
	flaps.faults = append(flaps.faults, at1(26*minute, 2, func(r *world.Replica) {
		r.GPU.Report(149, 45)
		r.Down = true
	}))
	return []unforeseen{lockstep, flaps}
}

// byTeam gives each of two models a namespace of its own.
func byTeam(l labels.Labels) labels.Labels {
	if l.Get(metrics.LabelNamespace) == "" {
		return l
	}
	team := "assistant"
	if strings.HasPrefix(l.Get(metrics.LabelPod), "qwen3-embedding") || l.Get(metrics.LabelModel) == embeddingModel {
		team = "search"
	}
	return labels.NewBuilder(l).Set(metrics.LabelNamespace, team).Labels()
}

const embeddingModel = "Qwen/Qwen3-Embedding-8B"

// embeds offers texts to the replicas 2 and 3 at a rate per second and replica. Each answer has one token.
func embeds(from, to time.Duration, rate float64) (faults []incident.Fault) {
	const every = 5 * time.Second
	random := rand.New(rand.NewPCG(uint64(from), uint64(to)))
	for at := from; at < to; at += every {
		faults = append(faults, then(at, func(w *world.World) {
			for _, r := range w.Replicas[2:] {
				for after := random.ExpFloat64() / rate; after < every.Seconds(); after += random.ExpFloat64() / rate {
					arrival := w.Now() + time.Duration(after*float64(time.Second))
					tokens := math.Round(1000 * math.Exp(0.6*random.NormFloat64()-0.18))
					r.Engine.Offer((&drill.Request{Arrival: arrival, Prompt: max(8, tokens), Output: 1}).For(minute))
				}
			}
		}))
	}
	return faults
}

// fifthTraffic are faults of clients, of balancers and of the content of requests.
func fifthTraffic() []unforeseen {
	reindex := unforeseen{
		name: "reindex-then-chat-hangs",
		source: "tale-project/tale 3402 (an index job keeps three batches of 64 texts in flight for each worker; a request behind them waits two minutes, is given up after 60 s and " +
			"sent again; other work on the same GPUs starves); itlackey/akm 954 (15 texts a minute alone, 240 with eight in flight)",
		story: "two vLLMs with a chat model and two with an embedding model on one node, each pair in its own namespace; a new index is built: 56 texts a second in place of " +
			"8, half as many again as the embedding engines compute, for 20 minutes, and searches wait for a minute; chat is well; at 28 minutes chat replica 1 hangs",
		right: "page within ten minutes about " + embeddingModel + " only; queueing: seven times as many requests arrive, of the same length. Not prefill («longer prompts»), not slow " +
			"engines, nothing about the chat model. Triage at 6 and 15 minutes: the same, chat HEALTHY. After 31 minutes, by page or update: engine, gemma-3-4b-assistant-1 makes " +
			"no progress",
		page: `queueing\. `,
		fleet: world.Fleet{
			Profile: profile("gemma-3-4b-assistant", 1), Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM}, Shares: []float64{1, 1, 0, 0},
			Each: func(i int, p *drill.Profile) {
				if i >= 2 {
					p.Model, p.GPU, p.Weights, p.Budget = embeddingModel, drill.L40S, drill.Llama8BFP8, 2048
				}
			},
		},
		history: 60 * minute, lasts: 42 * minute, options: play.Options{Relabel: byTeam},
		faults: slices.Concat(
			[]incident.Fault{then(-61*minute, func(w *world.World) {
				for i, r := range w.Replicas {
					r.Pod = []string{"gemma-3-4b-assistant-0", "gemma-3-4b-assistant-1", "qwen3-embedding-8b-0", "qwen3-embedding-8b-1"}[i]
				}
			})},
			embeds(-60*minute, 0, 4), embeds(0, 20*minute, 28), embeds(20*minute, 42*minute, 4),
			[]incident.Fault{at1(28*minute, 1, func(r *world.Replica) { r.Engine.Wedged = true })},
		),
	}

	tenants := profile("llama-3.1-8b-tenants", 6)
	tenants.Release, tenants.Adapters, tenants.Named, tenants.OutputTokens = "0.26.0", 8, 8, 60
	adapter := unforeseen{
		name: "one-adapter-fails-a-quarter",
		source: "vllm-project/vllm 5105 (many adapters, 3 to 30 requests a second: loading one of them fails with «no such file», now and then, after ten seconds or half an hour, and " +
			"its requests fail), 30690 (No adapter found), 11702 (500)",
		story: "the files of one of eight LoRA adapters are gone from the shared disk: whenever it has to be loaded anew, its requests fail, a quarter of them, that is 3% of 60 to 72 " +
			"requests a second, on all ten vLLMs alike; at the same time demand grows by a fifth, far below capacity; nobody waits",
		right: "page after a quarter to half an hour (3.1% against 99.9%); engine: requests fail in the engines, 3% where it was 0.02%, on every " +
			"replica alike. Not queueing («1.2 times as many requests»: nothing waits), not routing, not hardware, not one replica. Triage at 6 minutes: no verdict, or engine; at 15 " +
			"minutes: engine, requests fail, or no verdict",
		page:    `engine\. .*(?i:fail|error)`,
		fleet:   world.Fleet{Profile: tenants, Replicas: 10, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 65 * minute, lasts: 60 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) {
			w.Traffic.Arrivals *= 1.2
			w.Traffic.Failures = 0.031
		})},
	}

	readers := profile("glm-4.7-flash-readers", 4)
	readers.MaxModelLen = 131072
	document := unforeseen{
		name: "one-long-document-for-everybody",
		source: "noonghunna/club-3090 585 (each token reads the whole KV cache of its context: slower with depth, the same on any engine); penta2himajin/qwisp 168 (96.4 tokens per second " +
			"at a context of 52 tokens, 36.1 at 35,890); tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark 14 (31 to 13.4 tokens per second with two contexts of 114,000)",
		story: "a report of 89,500 tokens is published, and its readers ask about it, not quite one question a second beside eight chat requests: the document is in the prefix cache " +
			"of both SGLangs, so that a question costs little to compute, but each of its tokens reads the context: a step takes 60 ms in place of 9, for all",
		right: "page within a quarter of an hour; decode or prefill, if it says that contexts (prompts) are ten times as long. The number that separates: requests grew by a tenth, prompts " +
			"tenfold, computed tokens by a tenth. Not engine («each token takes seven times as long at the same load»): there is nothing wrong with them; not more requests; not a lost " +
			"prefix cache (hits rise to 99%). A queue at the end is the consequence. Triage at 6 and 15 minutes: the same",
		page:    `(decode|prefill)\. .*(?i:prompt|context|long)`,
		fleet:   world.Fleet{Profile: readers, Replicas: 2, Runtimes: []metrics.Runtime{metrics.SGLang}},
		history: 2 * time.Hour, lasts: 40 * minute,
	}
	const gap = 1175 * time.Millisecond
	for i := range int(40 * minute / gap) {
		document.faults = append(document.faults, then(time.Duration(i)*gap, func(w *world.World) {
			w.Replicas[i%2].Engine.Offer((&drill.Request{Arrival: w.Now(), Prompt: 90_000, Cached: 89_500, Output: 400}).For(minute))
		}))
	}

	sticky := profile("hermes-3-8b-tgi", 9)
	sticky.PromptTokens = 1200
	pinned := unforeseen{
		name: "keepalive-pins-one-pod",
		source: "triton-inference-server/server 6177 (one client's connection: all requests go to the same pod); defilantech/LLMKube 1812 (a client's pool of connections keeps one pod " +
			"hot while the replicas idle); comet-ml/opik 7480 (a few pods get nearly everything, a hundredfold skew, so that the mean stays too low for the autoscaler)",
		story: "a new client keeps a few connections open for ever, and the Service binds each to a pod: 75% of 36 requests a second reach one of four TGIs, which can do 21; the other " +
			"three idle; at 24 minutes the client opens its connections anew, and all is even",
		right: "page within ten minutes; routing: replica 2 gets three quarters of all requests (three times its share). The number that separates it from «queueing: too few replicas» or " +
			"«more requests»: as many requests as ever in all, and three replicas that idle; not engine: replica 2 is no slower than its load makes it. Triage at 6 and 15 minutes: the " +
			"same. After 30 minutes nobody is late any more: no new page",
		page:    `routing\. .*hermes-3-8b-tgi-2\b`,
		fleet:   world.Fleet{Profile: sticky, Replicas: 4, Runtimes: []metrics.Runtime{metrics.TGI}, Shares: even(4)},
		lived:   2 * time.Hour,
		history: 30 * minute, lasts: 40 * minute,
		options: play.Options{Relabel: func(l labels.Labels) labels.Labels {
			return labels.NewBuilder(l).Set(metrics.LabelCluster, "eu-2").Labels()
		}},
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Fleet.Shares = []float64{1, 1, 9, 1} }),
			then(24*minute, func(w *world.World) { w.Fleet.Shares = even(4) }),
		},
	}

	hedged := profile("mistral-small-dynamo", 13)
	hedged.PromptTokens = 1200
	hedges := unforeseen{
		name: "hedges-double-the-load",
		source: "llm-d/llm-d-router 646 (a hedge goes to several endpoints at once, the slower ones are cancelled: up to twice the load, worse when saturated); " +
			"apache/incubator-pegasus 251 (naive hedging adds unacceptable load; The Tail at Scale)",
		story: "a client's release sends each request twice and cancels the answer that is behind: 52 in place of 26 requests a second at two Dynamo frontends, more than their " +
			"engines carry, and half of the answers are left in the middle; at 26 minutes it is rolled back; no GPU metrics, and a Prometheus of 20 minutes",
		right: "page within ten minutes; queueing: twice as many requests arrive. That clients leave half of the answers belongs to it, and is no fault of a proxy: «routing: clients, or a " +
			"proxy in between, cut answers off» as the first place to look misleads, since the queue comes from the doubled arrivals. Not slow engines, not longer prompts. Triage at 6 and " +
			"15 minutes: queueing, more requests. After 32 minutes nobody is late any more: no new page",
		page:    `queueing\. `,
		fleet:   world.Fleet{Profile: hedged, Replicas: 2, Runtimes: []metrics.Runtime{metrics.Dynamo}},
		lived:   65 * minute,
		history: 20 * minute, lasts: 40 * minute, options: play.Options{WithoutGPUs: true},
		faults: []incident.Fault{
			then(0, func(w *world.World) {
				w.Traffic.Arrivals *= 2
				w.Traffic.Leaves = 0.5
			}),
			then(26*minute, func(w *world.World) {
				w.Traffic.Arrivals /= 2
				w.Traffic.Leaves = 0.01
			}),
		},
	}
	return []unforeseen{reindex, adapter, document, pinned, hedges}
}

// fifthReleases is a rollout that stops half way.
func fifthReleases() []unforeseen {
	small := profile("mistral-small-24b-trt", 1.2)
	small.Release, small.GPU, small.Budget, small.PromptTokens = "1.2.0rc1", drill.L40S, 256, 450
	small.Weights = drill.Weights{Parameters: 24e9, Bytes: 1, KVBytesPerTok: 163840, Attention: 4 * 40 * 32 * 128}
	third := unforeseen{
		name: "half-a-rollout-a-third-slower",
		source: "tenstorrent/tt-metal 38173 (30% between two builds: 14.7 to 19.6 ms per token); vllm-project/vllm 4852 (39.5 to 47.2 ms), 53472 (+21% from 0.23 to 0.26); " +
			"NVIDIA/TensorRT-LLM 9373 (1.2.0rc2 against 1.2.0rc1)",
		story: "1.2.0rc1 to 1.2.0rc2 on six TensorRT-LLMs, every two minutes one, stopped after three: these take 53 ms per token where the others take 40, so that half of all answers miss " +
			"50 ms, by little; at 8 minutes demand grows by a fifth, without effect; at 12 minutes the exporter restarts; a Prometheus of 40 minutes",
		right: "page after about 20 minutes (a ticket before is welcome); release: version 1.2.0rc1 to 1.2.0rc2 on three of six, roll it back. Right too: engine, these three are slower, if the " +
			"version is named. Not queueing («1.2 times as many requests»: nothing waits, and the old release meets its 50 ms under the same load), not routing, not hardware. Triage at " +
			"6 minutes: release or no verdict; at 15 minutes: release",
		page:    `(release|engine)\. .*1\.2\.0rc2`,
		fleet:   world.Fleet{Profile: small, Replicas: 6, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}},
		lived:   2 * time.Hour,
		history: 40 * minute, lasts: 60 * minute,
		faults: append(exporterOut(12*minute, 75*time.Second), then(8*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.2 })),
	}
	for i := range 3 {
		third.faults = append(third.faults, at1(time.Duration(i)*2*minute, i, func(r *world.Replica) {
			r.Profile.Release, r.Engine.Slow = "1.2.0rc2", 1.3
			r.Restart(80 * time.Second)
		}))
	}
	return []unforeseen{third}
}

// fifthHarmless must wake nobody.
func fifthHarmless() []unforeseen {
	licence := unforeseen{
		name: "vgpu-licence-within-grace",
		source: "NVIDIA/nvidia-docker 1787 (one of three nodes gets no licence); NVIDIA/cudf 10507 (an unlicensed vGPU is as fast as ever for the first 20 minutes); " +
			"docs.nvidia.com/vgpu/12.0/grid-licensing-user-guide",
		story: "the licence server is restarted: the virtual GPUs of two vLLMs and two SGLangs are without a licence for 14 minutes, within the 20 in which the driver does not slow them " +
			"down; at 40 minutes one of them once more, for five minutes; nobody notices",
		right: "nobody is woken; a ticket about the licence is welcome, since after 20 minutes it would hurt. Triage at 6 minutes: HEALTHY, or the licence as a warning; at 15 minutes: HEALTHY",
		fleet: world.Fleet{
			Profile: profile("llama-3.1-8b-vgpu", 3), Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM, metrics.SGLang},
		},
		history: 65 * minute, lasts: 60 * minute,
		faults: []incident.Fault{
			then(-66*minute, all4(func(r *world.Replica) { r.GPU.Virtual = true })),
			then(0, all4(func(r *world.Replica) { r.GPU.Unlicensed = true })),
			then(14*minute, all4(func(r *world.Replica) { r.GPU.Unlicensed = false })),
			at1(40*minute, 1, func(r *world.Replica) { r.GPU.Unlicensed = true }),
			at1(45*minute, 1, func(r *world.Replica) { r.GPU.Unlicensed = false }),
		},
	}

	absent := slo.Defaults()
	for i := range absent {
		absent[i].MayBeAbsent = true
	}
	zero := unforeseen{
		name: "scale-to-zero-hot-starts",
		source: "llm-d/llm-d 2492 (scaled to zero after a minute of silence, a hot start takes 4.0 s where a new pod takes 85.3 s, the request is held meanwhile); " +
			"vllm-project/vllm 47703 (asleep when idle, woken by the next request)",
		story: "a meeting bot asks for nine minutes, is silent for eleven, and so on: five minutes after its last request the only SGLang is taken away, and the next request, which is " +
			"held, brings it back within five seconds; so it was in the hour before; the objectives say that the model may be absent",
		right: "nobody is woken, no ticket: one or two requests of 160 wait for a few seconds at each start. Triage at 6 minutes: HEALTHY; at 15 minutes, without an engine: no engine, or no verdict",
		fleet: world.Fleet{
			Profile: profile("gpt-oss-20b-meetings", 0.3), Replicas: 1, Runtimes: []metrics.Runtime{metrics.SGLang}, Objectives: absent,
		},
		history: 60 * minute, lasts: 65 * minute,
		faults: []incident.Fault{then(-61*minute, func(w *world.World) { w.Hold = true })},
	}
	for i := range 6 {
		at := time.Duration(20*i-51) * minute
		zero.faults = append(zero.faults,
			then(at, func(w *world.World) { w.Idle = true }),
			at1(at+5*minute, 0, func(r *world.Replica) { r.Down, r.Gone = true, true }),
			then(at+11*minute, func(w *world.World) {
				w.Idle = false
				w.Replicas[0].Restart(4 * time.Second)
			}))
	}

	migrated := profile("command-r7b", 1.2)
	migrated.GPU, migrated.Weights = l40sBF16, drill.Llama8B
	migrated.Budget, migrated.PromptTokens = 256, 400
	migration := unforeseen{
		name: "tgi-becomes-vllm",
		source: "aws-solutions-library-samples/global-capacity-orchestrator-on-aws 387 (TGI is in maintenance mode since 2025-12-11, its repository archived since 2026-03-21); " +
			"ogx-ai/ogx 5333 (use vLLM)",
		story: "four TGIs become vLLMs under the same model, the same pods and addresses, one every four minutes, drained and loaded for 90 s: the old engine's series end, and first tokens and " +
			"gaps between tokens are counted for the first time; both meet the objectives, the gaps at 26 to 30 of 50 ms",
		right:   "nobody is woken; at most one ticket. Triage at 6 and 15 minutes: HEALTHY, or a restart or a release with low confidence",
		fleet:   world.Fleet{Profile: migrated, Replicas: 4, Runtimes: []metrics.Runtime{metrics.TGI}, Shares: even(4)},
		history: 2 * time.Hour, lasts: 70 * minute,
	}
	for i := range 4 {
		at := time.Duration(i) * 4 * minute
		migration.faults = append(migration.faults, at1(at+45*time.Second, i, func(r *world.Replica) {
			r.Runtime, r.Profile.ShowsQueue, r.Profile.Alternates = metrics.VLLM, false, false
		}))
		migration.faults = append(migration.faults, drained(i, at, 90*time.Second)...)
	}

	noise := unforeseen{
		name: "probes-blocked-exporter-dies",
		source: "devswha/patina 928 (the probe spends its own allowance within days; each later one is refused, while users are served); integr8ly/integreatly-operator 1445 (an alert fires " +
			"because the prober did not run, the service answered all the time); rwlove/home-ops 11859 (an alert without a reason, tuned from ten minutes to four hours)",
		story: "the key of the exporter's probes expires: all its probes fail for 38 minutes, of three SGLangs and of the LiteLLM before them; moreover it runs out of memory every seven " +
			"minutes and is back after 40 s, and each fourth page of one engine is read late; a request a second is served as ever",
		right: "nobody is woken: LiteLLM and the engines count users' requests, and none of them fails or is late; a ticket about the probes, and one about the exporter, are right. " +
			"Triage at 6 and 15 minutes: HEALTHY, or the probes are broken, with low confidence; not a gateway or an engine that is down",
		fleet: world.Fleet{
			Profile: profile("granite-4-8b-desk", 1./3), Replicas: 3, Runtimes: []metrics.Runtime{metrics.SGLang}, Probes: true, ProbesGateway: true,
			ReadsGateway: true,
		},
		history: 65 * minute, lasts: 60 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) {
				w.ProbesFail = true
				w.Replicas[1].Misses = 4
			}),
			then(38*minute, func(w *world.World) { w.ProbesFail = false }),
		},
	}
	for i := range 6 {
		noise.faults = append(noise.faults, exporterOut(time.Duration(4+7*i)*minute, 40*time.Second)...)
	}
	return []unforeseen{licence, zero, migration, noise}
}
