package incident_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// This file holds incidents that a tester took from public threads. The right answers were written down before the
// first play, in which the pages of eight of the fifteen faults were wrong. Since then these incidents are examples
// like the others.

type unforeseen struct {
	name, source, story string
	// right is the answer decided before the play. page matches the first line of the page that says where to look. It is empty
	// if nobody must be woken.
	right, page    string
	fleet          world.Fleet
	lived, history time.Duration
	lasts          time.Duration
	faults         []incident.Fault
	options        play.Options
	again          int // how many more times users are without answers, after a recovery
}

const minute = time.Minute

func then(at time.Duration, do func(w *world.World)) incident.Fault {
	return incident.Fault{At: at, Do: do}
}

func all4(do func(r *world.Replica)) func(*world.World) {
	return func(w *world.World) {
		for _, r := range w.Replicas {
			do(r)
		}
	}
}

func profile(model string, perReplica float64) drill.Profile {
	p := drill.NewProfile(model)
	p.Arrivals, p.Swing = perReplica, 0
	return p
}

func unforeseenFaults() []unforeseen {
	vllm, sglang := []metrics.Runtime{metrics.VLLM}, []metrics.Runtime{metrics.SGLang}

	capped := unforeseen{
		name: "one-gpu-capped", source: "l4rz/reverse-engineering-dell-idrac… 3 (one of four V100 capped to 150 of 300 W; A100 to 210-240 of 400 W; only SW Power Cap is set)",
		story:   "one of four GPUs is held far below its neighbours by a software power cap",
		right:   "page; hardware: this one GPU's clock (sw_power_cap), drain it",
		page:    `hardware. GPU 2 .*low_clock`,
		fleet:   world.Fleet{Profile: profile("llama-3.1-8b-chat", 10), Replicas: 4, Runtimes: vllm},
		history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) {
			w.Replicas[2].GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.15}
		})},
	}
	stuck := unforeseen{
		name: "clock-stuck-without-reason", source: "ROCm/legacy-rocm-build 6289 (GFXCLK stuck at idle during inference); fangq/mcx 18 (locked in P2, reason «Unknown»)",
		story: "after a benchmark the clock of the only GPU stays locked at 240 MHz; no throttle reason that the exporter knows is set",
		right: "page; hardware: the SM clock is an eighth of its maximum while the GPU is busy",
		page:  `hardware. GPU 0 .*low_clock`,
		fleet: world.Fleet{Profile: profile("Qwen/Qwen3-8B", 3), Replicas: 1, Runtimes: sglang}, history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{then(0, all4(func(r *world.Replica) {
			r.GPU.Throttle = &world.Throttle{Reason: "applications_clocks_setting", Clock: 0.12}
		}))},
	}
	heavy := profile("llama-3.1-8b-busy", 22)
	half := unforeseen{
		name: "half-loads-for-43-min", source: "modelplaneai/modelplane 204 (43 minutes to read the weights from EFS at each start); vllm 6319",
		story: "a rollout of the same version restarts half of the replicas at once; their weights come from a cold file system for 43 minutes; two replicas carry what four did",
		right: "page; engine: two of four replicas do not answer since the restart (the queue is the consequence)",
		page:  `engine. llama-3.1-8b-busy-[23] stopped answering`,
		fleet: world.Fleet{Profile: heavy, Replicas: 4, Runtimes: vllm}, history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{then(-minute, func(w *world.World) { w.Favours = 2 }), then(0, func(w *world.World) {
			w.Favours = 0
			w.Replicas[2].Restart(43 * minute)
			w.Replicas[3].Restart(43 * minute)
		})},
	}
	limit := unforeseen{
		name: "limit-typo", source: "sgl-project/sglang 4022 (running stays low while the queue grows), 33483 (limits derived at start); assumed: a typo in the values file",
		story:   "both replicas are rolled out with --max-running-requests 4 in place of 256; same version",
		right:   "page; release: the changed setting max_running_requests 256 → 4 (or queueing that names the limit)",
		page:    `release. Setting max_sequences changed from 256 to 4`,
		fleet:   world.Fleet{Profile: profile("meta-llama/Llama-3.1-8B-Instruct", 4), Replicas: 2, Runtimes: sglang},
		history: 2 * time.Hour, lasts: 40 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Replicas[0].Profile.MaxBatch = 4; w.Replicas[0].Restart(minute) }),
			then(2*minute, func(w *world.World) { w.Replicas[1].Profile.MaxBatch = 4; w.Replicas[1].Restart(minute) }),
		},
	}
	long := profile("Qwen/Qwen2.5-7B-Instruct-1M", 4)
	long.Budget, long.Patience = 2048, 0
	few := unforeseen{
		name: "a-few-130k-prompts", source: "vllm-project/vllm 10235 (130k tokens at a small token budget, decoding drops to nothing on several replicas), 21495",
		story: "one tenant sends one prompt of 130,000 tokens every 20 s beside eight short ones a second",
		right: "page; prefill: longer prompts (a few, very long)",
		page:  `prefill. (The engines compute .* as many tokens per request|Prompts are)`,
		fleet: world.Fleet{Profile: long, Replicas: 2, Runtimes: vllm}, history: 65 * minute, lasts: 40 * minute,
	}
	for i := range 120 {
		few.faults = append(few.faults, then(time.Duration(i)*20*time.Second, func(w *world.World) {
			w.Replicas[i%2].Engine.Offer(&drill.Request{Arrival: w.Now(), Prompt: 130_000, Output: 200})
		}))
	}
	slots := profile("qwen3-8b-q8", 0.05)
	slots.MaxBatch, slots.GPU, slots.Weights, slots.Patience = 4, drill.L40S, drill.Llama8BFP8, 2*minute
	slots.Weights.KVBytesPerTok = 16 << 10 // context shift keeps the cache from filling
	endless := unforeseen{
		name: "endless-answers", source: "ggml-org/llama.cpp 6638, 3612 (without n_predict and EOS the server never stops)",
		story:   "four requests without a limit never stop and hold all four slots; a request comes every 20 s; no GPU metrics",
		right:   "page; behaviour (endless outputs) or queueing (all slots are taken); not «the engine hangs»: it decodes at full speed",
		page:    `queueing. [0-9.k]+ requests wait`,
		fleet:   world.Fleet{Profile: slots, Replicas: 1, Runtimes: []metrics.Runtime{metrics.LlamaCpp}, Probes: true},
		history: 65 * minute, lasts: 40 * minute,
		options: play.Options{WithoutGPUs: true},
	}
	for i := range 4 {
		endless.faults = append(endless.faults, then(time.Duration(i)*30*time.Second, func(w *world.World) {
			w.Replicas[0].Engine.Offer(&drill.Request{Arrival: w.Now(), Prompt: 500, Output: 400_000})
		}))
	}
	pd := profile("qwen-8b-pd", 5)
	pd.Release, pd.Prefilled, pd.Fetching = "0.26.0", true, 25e9
	tcp := unforeseen{
		name: "kv-over-tcp", source: "ai-dynamo/dynamo 1314 (UCX picks TCP: 1803 ms in place of 3 ms for the KV cache of 5,000 tokens, 0.36 GB/s); LMCache 725",
		story: "a new image lacks the RDMA plugin: KV caches go from prefill to decode engines over TCP at 0.36 GB/s; none fails; Prometheus is ten minutes old",
		right: "page; memory: KV transfers to decode engines are slow (not prefill, not lack of engines)",
		page:  `memory. A transfer of KV cache takes`,
		fleet: world.Fleet{Profile: pd, Replicas: 4, Prefills: 2, Runtimes: vllm}, lived: 65 * minute,
		history: 10 * minute, lasts: 40 * minute,
		faults: []incident.Fault{then(0, all4(func(r *world.Replica) { r.Engine.Fetching = 0.36e9 }))},
	}
	pd1 := pd
	pd1.Arrivals = 4
	hot := unforeseen{
		name: "prefill-gpu-hot", source: "https://matt.sh/cloud-gpu-thermal-throttling (345-510 of 1755 MHz at 88 °C) on a prefill engine; llm-d P/D guides: 1 prefill, 2 decode",
		story: "the GPU of the only prefill engine overheats; the decode engines are well",
		right: "page; hardware: the GPU of the prefill engine (hw_thermal_slowdown)",
		page:  `hardware. GPU 0 .*hw_thermal_slowdown`,
		fleet: world.Fleet{Profile: pd1, Replicas: 3, Prefills: 1, Runtimes: vllm}, history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) {
			w.Replicas[0].GPU.Throttle = &world.Throttle{Reason: "hw_thermal_slowdown", Clock: 0.14}
		})},
	}
	herdP := profile("intfloat/classifier-7b", 2)
	herdP.PromptTokens, herdP.OutputTokens, herdP.Patience = 400, 20, 0
	herd := unforeseen{
		name: "cron-herd", source: "inference-sim 818 (bursts raise TTFT p99 5 times at equal throughput); llm-d/llm-d-router 1598 (batches at one instant)",
		story: "from now on a cron job of a tenant sends 400 requests in the same second of each minute; between, nothing waits; scrapes every 60 s see no queue",
		right: "page; queueing: requests come in bursts (not slow engines, not «too few replicas» alone)",
		page:  `queueing. .* as many requests arrive`,
		fleet: world.Fleet{Profile: herdP, Replicas: 3, Runtimes: vllm}, history: 65 * minute, lasts: 40 * minute,
		options: play.Options{Scrape: time.Minute},
	}
	for i := range 40 {
		herd.faults = append(herd.faults, then(time.Duration(i)*minute+10*time.Second, func(w *world.World) {
			for n := range 400 {
				w.Replicas[n%3].Engine.Offer(&drill.Request{Arrival: w.Now(), Prompt: 400, Output: 20})
			}
		}))
	}
	think := profile("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 1)
	think.OutputTokens, think.OutputLimit = 1500, 8192
	cut := unforeseen{
		name: "proxy-cuts-answers", source: "onyx-dot-app/onyx 10247; vllm-project/vllm 2484; basetenlabs/truss 670 (nginx closes after 60 s)",
		story: "a new ingress closes half of all streams before their end; the engines count aborts, everything else is as ever",
		right: "someone is told within half an hour (page or ticket): clients leave half of the answers; routing (the proxy in front), not engines",
		page:  `routing. Clients, or a proxy in between, cut off`,
		fleet: world.Fleet{Profile: think, Replicas: 2, Runtimes: vllm}, history: 65 * minute, lasts: 60 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) { w.Traffic.Leaves = 0.5 })},
	}
	drift := unforeseen{
		name: "slower-every-hour", source: "vllm-project/vllm 3520, 16050 (190 to 1 token per second in a long run), 16985",
		story:   "each step of the only engine takes 2% longer every two minutes, for hours; requests, lengths and version stay",
		right:   "page once steps are too slow; engine: its steps take longer at the same load; restart helps",
		page:    `engine. Each token takes`,
		fleet:   world.Fleet{Profile: profile("llama-3.1-8b-internal", 0.3), Replicas: 1, Runtimes: vllm},
		history: 2 * time.Hour, lasts: 5 * time.Hour,
	}
	for i := range 150 {
		drift.faults = append(drift.faults, then(time.Duration(i)*2*minute, all4(func(r *world.Replica) { r.Engine.Slow *= 1.02 })))
	}
	probs := unforeseen{
		name: "logprobs-neighbour", source: "vllm-project/vllm 37343, 37594 (n=8 with logprobs=20: 76 to 423 times the TTFT for all others)",
		story:   "a tenant asks for 20 logprobs of 8 answers: while one of its requests runs, 20 s of every minute, each step takes 25 times as long",
		right:   "page; engine (steps are slow at an unchanged load); the tenant cannot be seen; acceptable: behaviour",
		page:    `engine. Each token takes`,
		fleet:   world.Fleet{Profile: profile("Qwen/Qwen2.5-7B-Instruct", 5), Replicas: 2, Runtimes: vllm},
		history: 65 * minute, lasts: 40 * minute,
		options: play.Options{Scrape: 15 * time.Second},
	}
	for i := range 40 {
		at := time.Duration(i) * minute
		probs.faults = append(probs.faults, then(at, all4(func(r *world.Replica) { r.Engine.Slow = 25 })),
			then(at+20*time.Second, all4(func(r *world.Replica) { r.Engine.Slow = 1 })))
	}
	two := profile("Qwen/Qwen3-27B", 2)
	beside := unforeseen{
		name: "neighbour-takes-cpu", source: "Tanguille/cluster 4879 (2 CPUs: ITL 31 to 62 ms; 652 ms and TTFT 37 s while a transcoder ran)",
		story: "two models on one node; a batch through the second (four times its requests) starves the threads of the first: each step waits 600 ms for a CPU",
		right: "page about Qwen/Qwen3-27B only; engine: its host (threads wait for a CPU), not its load; nothing about BAAI/bge-m3",
		page:  `engine. qwen3-27b-[01] uses its GPU`,
		fleet: world.Fleet{
			Profile: two, Replicas: 4, Runtimes: vllm, Shares: []float64{1, 1, 1, 1},
			Each: func(i int, p *drill.Profile) {
				if i >= 2 {
					p.Model = "BAAI/bge-m3"
				}
			},
		}, history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{
			then(-66*minute, func(w *world.World) {
				for i, r := range w.Replicas {
					r.Pod = []string{"qwen3-27b", "qwen3-27b", "bge-m3", "bge-m3"}[i] + "-" + strconv.Itoa(i%2)
				}
			}),
			then(0, func(w *world.World) {
				w.Fleet.Shares = []float64{1, 1, 4, 4}
				w.Traffic.Arrivals *= 2.5
				w.Replicas[0].Engine.Starved, w.Replicas[1].Engine.Starved = 600*time.Millisecond, 600*time.Millisecond
			}),
		},
	}
	sticky := profile("glm-air", 10)
	sticky.Blocks = 2500
	hash := unforeseen{
		name: "sticky-sessions-thrash", source: "PrimeIntellect-ai/prime-rl 3255 (consistent hash locks one engine in KV thrash, the other three idle; hits 98% to 5%, 4 times slower)",
		story:   "the router begins to pin sessions: one of four engines gets 85% of the requests, preempts and recomputes; the others idle",
		right:   "page; routing: one replica gets most requests (memory of that replica is the consequence)",
		page:    `routing. glm-air-1 gets`,
		fleet:   world.Fleet{Profile: sticky, Replicas: 4, Runtimes: vllm, Shares: []float64{1, 1, 1, 1}},
		history: 65 * minute, lasts: 40 * minute,
		options: play.Options{Scrape: 15 * time.Second, Relabel: func(l labels.Labels) labels.Labels {
			return labels.NewBuilder(l).Set(metrics.LabelCluster, "eu-1").Labels()
		}},
		faults: []incident.Fault{then(0, func(w *world.World) { w.Fleet.Shares = []float64{1, 17, 1, 1} })},
	}
	hbm := profile("qwen3-8b-hbm", 1)
	dying := unforeseen{
		name: "dying-hbm", source: "wtdcode/vllm-backport 62 (XID 48/171, 63, 94, 154 Drain and Reset on one GPU; the engine hung in sample_tokens first; again after two minutes, after a reboot too)",
		story: "uncorrectable memory errors: the engine hangs, dies after 5 minutes, loads for 3, hangs again at 30 minutes",
		right: "page within minutes; hardware first (memory errors, drain and reset), not «restart the engine»",
		page:  `hardware. `,
		fleet: world.Fleet{Profile: hbm, Replicas: 1, Runtimes: vllm}, history: 65 * minute, lasts: 50 * minute,
		faults: []incident.Fault{
			then(0, all4(func(r *world.Replica) {
				r.Engine.Wedged = true
				r.GPU.Report(48, 171, 63, 94, 154)
				r.GPU.ECC, r.GPU.RemapPending, r.GPU.Drain = 1, true, true
			})),
			then(5*minute, all4(func(r *world.Replica) { r.Restart(3 * minute) })),
			then(30*minute, all4(func(r *world.Replica) {
				r.Engine.Wedged = true
				r.GPU.Report(48, 171, 63, 94)
				r.GPU.ECC = 2
			})),
			then(35*minute, all4(func(r *world.Replica) { r.Restart(3 * minute) })),
		},
	}
	return []unforeseen{capped, stuck, half, limit, few, endless, tcp, hot, herd, cut, drift, probs, beside, hash, dying}
}

func unforeseenHarmless() []unforeseen {
	scaler := unforeseen{
		name: "scaler-flaps", source: "apache/airflow 24103, volcano-sh/kthena 868, llm-d-autoscaling 1118 (pods start in 100 s, 2 to 4 replicas)",
		story:   "an autoscaler takes two of four replicas away every eight minutes, drained, and brings them back; two carry the load",
		right:   "nobody is woken; at most one ticket",
		fleet:   world.Fleet{Profile: profile("openai/gpt-oss-20b", 4), Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM, metrics.SGLang}},
		history: 65 * minute, lasts: 70 * minute,
	}
	for i := range 8 {
		at := time.Duration(i) * 8 * minute
		gone := func(is bool) func(*world.World) {
			return func(w *world.World) {
				for _, r := range w.Replicas[2:] {
					if is {
						r.Down, r.Gone = true, true
					} else {
						r.Restart(100 * time.Second)
					}
				}
			}
		}
		scaler.faults = append(scaler.faults, then(at, func(w *world.World) { w.Favours = 2 }), then(at+90*time.Second, gone(true)),
			then(at+4*minute, gone(false)), then(at+4*minute+105*time.Second, func(w *world.World) { w.Favours = 0 }))
	}
	ramp := profile("classifier-3b", 1)
	ramp.PromptTokens, ramp.OutputTokens = 150, 8
	morning := unforeseen{
		name: "morning-ramp", source: "invented after Azure's traces (day and night differ by 20 times); within capacity",
		story:   "TensorRT-LLM: from 4 to 100 requests a second within half an hour, short ones; latencies stay",
		right:   "nobody is woken, no ticket",
		fleet:   world.Fleet{Profile: ramp, Replicas: 4, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}},
		history: 65 * minute, lasts: 60 * minute,
	}
	for i := range 10 {
		morning.faults = append(morning.faults, then(time.Duration(i)*3*minute, func(w *world.World) {
			w.Traffic.Arrivals = 4 + 9.6*float64(i+1)
		}))
	}
	nightP := profile("mistralai/Mistral-7B-Instruct-v0.3", 6)
	nightP.CacheHits = 0.7
	night := unforeseen{
		name: "night-batch", source: "invented after llm-d batch guides and vllm 34146 (80% chat, 20% long documents)",
		story:   "at night chat falls to a tenth, and documents four times as long come whose heads nobody cached; within objectives",
		right:   "nobody is woken; no ticket about the cache, since nobody is late",
		fleet:   world.Fleet{Profile: nightP, Replicas: 2, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 3 * time.Hour, lasts: 90 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) {
			w.Traffic.Arrivals /= 10
			w.Traffic.PromptTokens, w.Traffic.CacheHits = 3600, 0.05
		})},
	}
	code := profile("deepseek-ai/deepseek-coder-6.7b-base", 1)
	code.PromptTokens, code.OutputTokens, code.Leaves = 1500, 60, 0.6
	typing := unforeseen{
		name: "typing-cancels", source: "continuedev/continue 2935, TabbyML/tabby 751 (each keystroke cancels the request before it)",
		story:   "code completion: six requests in ten are cancelled, as always; at nine o'clock three times as many come",
		right:   "nobody is woken, no ticket",
		fleet:   world.Fleet{Profile: code, Replicas: 2, Runtimes: []metrics.Runtime{metrics.VLLM}, ReadsGateway: true},
		history: 65 * minute, lasts: 60 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) { w.Traffic.Arrivals *= 3 })},
	}
	return []unforeseen{scaler, morning, night, typing}
}

// clockFast lets the clocks of a fleet's nodes run three hours fast.
func clockFast(_ int, p *drill.Profile) { p.Started = p.Started.Add(29 * time.Hour) }

// drained takes a replica out of the router, restarts it 45 s later and brings it back.
func drained(i int, at, loading time.Duration) []incident.Fault {
	return []incident.Fault{
		then(at, func(w *world.World) { w.Fleet.Shares[i] = 0 }),
		then(at+45*time.Second, func(w *world.World) { w.Replicas[i].Restart(loading) }),
		then(at+55*time.Second+loading, func(w *world.World) { w.Fleet.Shares[i] = 1 }),
	}
}

// unforeseenClocks are from a second tester: exporters that restart, and clocks that are fast.
func unforeseenClocks() []unforeseen {
	both := []metrics.Runtime{metrics.VLLM, metrics.TGI}
	upkeep := unforeseen{
		name: "upkeep", source: "gonka-ai/gonka 1421; NVIDIA/dcgm-exporter 425",
		story: "the exporter is killed every seven minutes and back after 40 s, every third page is read late, two engines restart drained",
		right: "nobody is woken",
		fleet: world.Fleet{
			Profile: profile("mixtral-upkeep", 4), Replicas: 4, Runtimes: both, Shares: []float64{1, 1, 1, 1}, Each: clockFast,
		},
		history: 2 * time.Hour, lasts: 60 * minute,
		faults: []incident.Fault{then(0, all4(func(r *world.Replica) { r.Misses = 3 }))},
	}
	for i := range 7 {
		at := time.Duration(i)*7*minute + 2*minute
		upkeep.faults = append(upkeep.faults, then(at, func(w *world.World) { w.ExporterDown = true }),
			then(at+40*time.Second, func(w *world.World) { w.ExporterDown = false }))
	}
	upkeep.faults = append(upkeep.faults, drained(1, 10*minute, 90*time.Second)...)
	upkeep.faults = append(upkeep.faults, drained(3, 15*minute, 90*time.Second)...)
	long := profile("skewed-prefix", 6.5)
	long.PromptTokens, long.CacheHits, long.Budget = 3000, 0.8, 768
	skewed := unforeseen{
		name: "skewed-prefix", source: "a variant of the one above",
		story: "cache hits fall to nothing on engines whose clocks were three hours fast when they started",
		right: "page; prefill: fewer hits",
		page:  `prefill. The prefix cache hit ratio is`,
		fleet: world.Fleet{Profile: long, Replicas: 4, Runtimes: both[:1], Each: clockFast}, history: 2 * time.Hour, lasts: 30 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) { w.Traffic.CacheHits = 0 })},
	}
	return []unforeseen{upkeep, skewed}
}

// always lists the incidents that every run plays.
var always = []string{
	"kv-over-tcp", "planner-scales-to-one", "equal-shares-for-unequal-gpus", "kv-cache-back-to-sixteen-bits", "prefill-pool-passed-by",
	"helpers-fill-the-slots-of-the-only-ollama", "stranded-caches-fill-the-prefill-engines", "two-models-take-turns-on-one-ollama",
	"eager-mode-left-in-the-values", "clients-cap-their-answers", "full-disk-on-one-of-six", "callback-blocks-the-proxys-loop",
	"scanned-pages-wait-for-one-thread", "manifest-says-three-replicas", "new-firmware-for-one-gpu-at-a-time",
	"given-up-canary-falls-back-on-two-pods",
}

// TestUnforeseen checks where the first page of each incident looks first, that no page has more than two updates, and that
// harmless situations wake nobody.
func TestUnforeseen(t *testing.T) {
	checkUnforeseen(t, slices.Concat(unforeseenFaults(), unforeseenHarmless(), unforeseenClocks(), unforeseenSecond(), unforeseenThird(),
		unforeseenFourth(), unforeseenFifth()))
}

// checkUnforeseen plays incidents, only those of the list above unless all are asked for.
func checkUnforeseen(t *testing.T, list []unforeseen) {
	for _, u := range list {
		if !*all && !slices.Contains(always, u.name) {
			continue
		}
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			p := u.play(t)
			defer p.Close()
			i := slices.IndexFunc(p.Sent, func(n play.Notification) bool {
				return n.Receiver == "llm-critical" && n.At.After(p.World.At(p.Onset))
			})
			switch {
			case i < 0 && u.page != "":
				t.Errorf("%s: nobody is woken; %s", u.story, u.right)
			case i >= 0 && u.page == "":
				t.Errorf("%s: wakes somebody:\n%s", u.story, p.Sent[i].Message())
			case i >= 0 && !regexp.MustCompile("Look first at: ("+u.page+")").MatchString(p.Sent[i].Message()):
				t.Errorf("%s; %s:\n%s", u.story, u.right, p.Sent[i].Message())
			}
			updates := map[string]int{}
			for _, n := range p.Sent {
				if n.Receiver == "llm-critical" && n.Update && !n.Resolved {
					updates[n.Group]++
				}
			}
			for group, n := range updates {
				if n > 2*(1+u.again) {
					t.Errorf("%s: the page of %q has %d updates", u.story, group, n)
				}
			}
			checkPresent(t, p)
		})
	}
}

// looksAt matches the sentence that a message gives as the reason for where to look first.
var looksAt = regexp.MustCompile(`(?m)^Look first at: \w+\. (.+)\.$`)

// checkPresent checks that what a page states about the present was so within the last five minutes.
func checkPresent(t *testing.T, p *play.Play) {
	t.Helper()
	for _, n := range p.Sent {
		m := looksAt.FindStringSubmatch(n.Message())
		if m == nil || n.Receiver != "llm-critical" || n.Resolved || strings.HasPrefix(m[1], "Earlier: ") {
			continue
		}
		within := func(window string) bool {
			found, err := p.Past(t.Context(), fmt.Sprintf("count_over_time(%s{says=%q}[%s])", metrics.RecordedSentence.Name, m[1], window), n.At)
			if err != nil {
				t.Fatal(err)
			}
			return len(found) > 0
		}
		if within("1h") && !within("5m") {
			t.Errorf("at %s, this was no longer true:\n%s", n.At.Sub(p.World.At(p.Onset)), n.Message())
		}
	}
}

// play plays an incident to its end.
func (u unforeseen) play(t *testing.T) *play.Play {
	t.Helper()
	o := u.options
	o.Seed = 1
	p, err := play.Run(incident.Incident{
		Name: u.name, Story: u.story, Fleet: u.fleet, Lived: u.lived, History: u.history, Lasts: u.lasts, Faults: u.faults, Quiet: u.page == "",
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
