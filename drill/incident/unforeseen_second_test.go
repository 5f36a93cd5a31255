package incident_test

import (
	"net/http"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// exporterOut ends the exporter for a time.
func exporterOut(at, long time.Duration) []incident.Fault {
	return []incident.Fault{
		then(at, func(w *world.World) { w.ExporterDown = true }),
		then(at+long, func(w *world.World) { w.ExporterDown = false }),
	}
}

// unforeseenSecond are from a second tester. At first, the pages of seven of the ten faults were right, and one was
// half right.
func unforeseenSecond() []unforeseen {
	vllm, sglang := []metrics.Runtime{metrics.VLLM}, []metrics.Runtime{metrics.SGLang}
	one := func(i int, do func(r *world.Replica)) func(*world.World) {
		return func(w *world.World) { do(w.Replicas[i]) }
	}

	storm := unforeseen{
		name: "retry-storm", source: "datarobot/datarobot-user-models 1954 (3 attempts in the client times 3 in the sidecar, timeout 120 s); llm-exe 797 (a timeout does not cancel the generation)",
		story:   "both engines pause for 45 s; then every client retries with a timeout of 8 s: five times the requests, for 25 minutes, although the engines are well",
		right:   "page; queueing: several times as many requests arrive. In the first three minutes «engine stood still» is right too; triage at 15 min must say queueing (clients give up is part of it), not slow engines",
		page:    `queueing\. `,
		fleet:   world.Fleet{Profile: profile("mistral-small-trt", 14), Replicas: 2, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}},
		history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{
			then(0, all4(func(r *world.Replica) { r.Engine.Wedged = true })),
			then(45*time.Second, func(w *world.World) {
				all4(func(r *world.Replica) { r.Engine.Wedged = false })(w)
				w.Traffic.Arrivals *= 5
				w.Traffic.Patience = 8 * time.Second
			}),
			then(25*minute, func(w *world.World) { w.Traffic.Arrivals /= 5; w.Traffic.Patience = minute }),
		},
	}
	itl := slo.Defaults()[1:2]
	clock := unforeseen{
		name: "memory-clock-idle", source: "tonyd2wild/DeepSeek-V4.1-Flash-vLLM-DGX-Spark 1 (a GPU flips into a slow state, 63 to 94 ms per step, nvidia-smi shows nothing); ROCm/legacy-rocm-build 6289",
		story: "the memory clock of one of four GPUs stays at its idle value: decoding reads a sixth of the bandwidth there, prefill computes as ever; a mixed fleet, dcgm-exporter's defaults, the only objective is on time between tokens",
		right: "page; engine (this one replica's steps are slow: drain it), hardware acceptable if it names GPU 1; not load, not routing without a replica's name",
		page:  `engine\. gpt-oss-mixed-1 `,
		fleet: world.Fleet{
			Profile: profile("gpt-oss-mixed", 8), Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM, metrics.SGLang}, Objectives: itl,
		},
		history: 65 * minute, lasts: 40 * minute, options: play.Options{DCGM: []string{}},
		faults: []incident.Fault{then(0, one(1, func(r *world.Replica) { r.Engine.GPU.Bandwidth /= 6.5 }))},
	}
	agents := profile("qwen3-coder-agents", 6.5)
	agents.PromptTokens, agents.CacheHits = 4000, 0.85
	cold := unforeseen{
		name: "cold-caches", source: "Tanguille/cluster 4593 (hit ratio 95% to 8% after a restart); llm-d precise prefix-cache guides",
		story: "a rolling restart of the same version, drained, over 20 minutes and with the exporter, empties the prefix caches of eight replicas; agents' histories of 4,000 tokens are computed anew, and hits come back over an hour",
		right: "page; prefill: prefix cache hits fell. Half right: «restarted» (release) if the hits are in the message. Not queueing, not too few replicas, not slow engines",
		page:  `(engine\. \S+ started minutes ago|prefill\. The prefix)`,
		fleet: world.Fleet{Profile: agents, Replicas: 8, Runtimes: vllm, Shares: even(8)}, history: 2 * time.Hour, lasts: 45 * minute,
		faults: append(exporterOut(6*minute, 40*time.Second), exporterOut(12*minute, 40*time.Second)...),
	}
	for i := range 8 {
		at := time.Duration(i) * 150 * time.Second
		cold.faults = append(cold.faults, drained(i, at, 90*time.Second)...)
		hits := 0.85 * (1 - 0.95*float64(i+1)/8)
		cold.faults = append(cold.faults, then(at+45*time.Second, func(w *world.World) { w.Traffic.CacheHits = hits }))
	}
	for i := range 8 {
		cold.faults = append(cold.faults, then(24*minute+time.Duration(i)*3*minute, func(w *world.World) { w.Traffic.CacheHits += 0.05 }))
	}
	pd := profile("deepseek-distill-pd", 1.75)
	pd.Release, pd.Prefilled, pd.Fetching = "0.26.0", true, 25e9
	short := unforeseen{
		name: "decode-short-of-kv", source: "ai-dynamo/dynamo 859 (few decode engines for most KV room), vllm-project/vllm 24256 (a preempted decode engine prefills itself, cascades)",
		story: "six prefill and two decode engines; contexts grow from 900 to 6,000 tokens: prefill carries them easily, the small KV caches of the decode engines do not",
		right: "page; memory: the KV cache of the decode engines is full (they preempt or hold requests back). Half right: prompts are longer (prefill/long prompts). Not: prefill engines slow or too few",
		page:  `(memory|prefill)\. `,
		fleet: world.Fleet{Profile: pd, Replicas: 8, Prefills: 6, Runtimes: vllm, Each: func(i int, p *drill.Profile) {
			if i >= 6 {
				p.Blocks = 5000
			}
		}}, history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{then(0, func(w *world.World) { w.Traffic.PromptTokens = 6000 })},
	}
	both := unforeseen{
		name: "queue-then-dead-worker", source: "ai-dynamo/dynamo 5269 (frontends and workers die ungracefully under load), 11178 (frontend Ready, 404s)",
		story:   "demand grows to a little more than three Dynamo engines carry; at 14 minutes the worker of one dies, and its frontend, which stays in rotation, fails its third of the requests",
		right:   "page before 14 min: queueing (more requests). After the death somebody is told (page or update) and triage at 20 min puts engine (the worker of replica 1 is gone) first, the queue second",
		page:    `queueing\. `,
		fleet:   world.Fleet{Profile: profile("llama-3.3-dynamo", 12), Replicas: 3, Runtimes: []metrics.Runtime{metrics.Dynamo}},
		history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.Traffic.Arrivals *= 4.6 }),
			then(14*minute, one(1, func(r *world.Replica) { r.LoseWorker() })),
		},
	}
	fraction := unforeseen{
		name: "router-uses-two-of-eight", source: "sgl-project/sglang 37554 (after a rollout the router routed to 40% of its workers for hours, every pod Ready)",
		story: "all eight engines restart one after another, same version; afterwards the router knows only two of them, which get four times their load; the other six idle; no GPU metrics",
		right: "page; routing: two replicas get all requests, six none. Not release/restarted, not «too few replicas», not demand",
		page:  `routing\. `,
		fleet: world.Fleet{Profile: profile("glm-4.6-router", 14), Replicas: 8, Runtimes: sglang}, history: 65 * minute, lasts: 40 * minute,
		options: play.Options{WithoutGPUs: true},
		faults:  []incident.Fault{then(3*minute, func(w *world.World) { w.Favours = 2 })},
	}
	for i := range 8 {
		fraction.faults = append(fraction.faults, then(time.Duration(i)*20*time.Second, one(i, func(r *world.Replica) { r.Restart(minute) })))
	}
	canary := unforeseen{
		name: "canary-small-kv", source: "sgl-project/sglang 6027 (memory needs change between versions), llm-d 1840 (mem-fraction-static leaves too small a pool)",
		story: "one of four SGLang engines gets release 0.5.17, whose start leaves a tiny KV pool: it retracts and queues; the three others are well",
		right: "page; release: version changed on 1 of 4 (this replica). Half right: memory of this replica (KV full). Not routing without the version, not demand",
		page:  `release\. Version 0\.5\.17`,
		fleet: world.Fleet{Profile: profile("qwen2.5-14b", 12), Replicas: 4, Runtimes: sglang}, history: 2 * time.Hour, lasts: 40 * minute,
		options: play.Options{Relabel: func(l labels.Labels) labels.Labels {
			return labels.NewBuilder(l).Set(metrics.LabelCluster, "us-2").Labels()
		}},
		faults: []incident.Fault{then(0, one(2, func(r *world.Replica) {
			r.Profile.Release, r.Profile.Blocks = "0.5.17", 700
			r.Restart(75 * time.Second)
		}))},
	}
	day := unforeseen{
		name: "morning-one-replica", source: "kserve/kserve 5527, Azure/AKS 5507 (desired count rises slower than load); llm-d-autoscaling 1118; clock steps after boot: NTP",
		story: "one replica at night; within eight minutes the load grows nearly twenty times; the autoscaler's three replicas answer after 14, 17 and 20 minutes. The night replica's clock was three hours fast when it started, so its start time lies in the future",
		right: "page; queueing: many times as many requests (more replicas). Not cold start of the night replica, not restarted. After 25 minutes nothing burns on",
		page:  `queueing\. `,
		fleet: world.Fleet{Profile: profile("gemma-3-12b", 1), Replicas: 4, Runtimes: vllm, Each: func(i int, p *drill.Profile) {
			if i == 0 {
				p.Started = p.Started.Add(29 * time.Hour) // a day, two hours of history and three more
			}
		}}, history: 2 * time.Hour, lasts: 45 * minute,
		faults: []incident.Fault{then(-2*time.Hour+time.Second, func(w *world.World) {
			for _, r := range w.Replicas[1:] {
				r.Down, r.Gone = true, true
			}
		})},
	}
	for i, to := range []float64{15, 30, 45, 60, 75} {
		day.faults = append(day.faults, then(time.Duration(i)*2*minute, func(w *world.World) { w.Traffic.Arrivals = to }))
	}
	for i := 1; i < 4; i++ {
		day.faults = append(day.faults, then(time.Duration(11+3*i)*minute-100*time.Second, one(i, func(r *world.Replica) {
			r.Restart(100 * time.Second)
		})))
	}
	tier := profile("llama-3.1-8b-docs", 2)
	tier.Release, tier.Host, tier.HostHits, tier.PromptTokens = "0.26.0", 200e9, 0.7, 8000
	tier.Fetching, tier.Storing = 40e9, 40e9
	link := unforeseen{
		name: "slow-link-under-kv-tier", source: "NVIDIA/open-gpu-kernel-modules 1010 (the link falls back and does not retrain), Tiiny-AI/PowerInfer 237 (4.0 to 2.0: 10-15 GB/s), local-inference-lab/rtx6kpro 88",
		story: "long documents come back from KV cache in host memory; the PCIe link of one of three GPUs retrains to generation 2 with four lanes: 1.3 GB/s in place of 40",
		right: "page; hardware: the PCIe link of GPU 1 (generation 2 of 5). Half right: memory: loads of KV cache on this replica take long. Not prefill, not load",
		page:  `(memory|hardware)\. .*(docs-1|GPU 1)`,
		fleet: world.Fleet{Profile: tier, Replicas: 3, Runtimes: vllm}, history: 65 * minute, lasts: 40 * minute,
		faults: []incident.Fault{then(0, one(1, func(r *world.Replica) {
			r.GPU.SlowLink, r.Engine.Fetching, r.Engine.Storing = true, 1.3e9, 1.3e9
		}))},
	}
	reload := unforeseen{
		name: "router-reloads", source: "kubernetes/ingress-nginx 9679 (503 while reloading), sgl-project/sglang 32322 (watches dropped every few minutes, 60-360 s to reconnect)",
		story:   "every three minutes the router loses its worker list for 20 s and answers 503; between, all is well; TGI engines behind SMG, no GPU metrics, a scrape each minute",
		right:   "page; routing: the gateway fails requests that no engine got. Not engines",
		page:    `routing\. Gateway`,
		fleet:   world.Fleet{Profile: profile("zephyr-7b", 5), Replicas: 3, Runtimes: []metrics.Runtime{metrics.TGI}, ReadsGateway: true, Gateway: metrics.SMG},
		history: 65 * minute, lasts: 40 * minute, options: play.Options{WithoutGPUs: true, Scrape: minute},
	}
	for i := range 13 {
		at := time.Duration(i) * 3 * minute
		reload.faults = append(reload.faults,
			then(at, func(w *world.World) { w.GatewayFails, w.GatewayStatus = 1, http.StatusServiceUnavailable }),
			then(at+20*time.Second, func(w *world.World) { w.GatewayFails, w.GatewayStatus = 0, 0 }))
	}
	batch := unforeseen{
		name: "batch-long-outputs", source: "llm-d-autoscaling 1572 (overnight labelling beside chat); within objectives",
		story: "for 40 minutes a batch tenant adds 3,000-token answers, one each second per replica: outputs five times as long, batches ten times as large, GPUs full; chat stays within its objectives",
		right: "nobody is woken, no ticket (it is not runaway generation: nothing meets its limit)",
		fleet: world.Fleet{Profile: profile("llama-3.1-8b-shared", 2), Replicas: 3, Runtimes: vllm}, history: 2 * time.Hour, lasts: 60 * minute,
	}
	for i := range 480 {
		batch.faults = append(batch.faults, then(time.Duration(i)*5*time.Second, func(w *world.World) {
			for n := range 15 {
				w.Replicas[n%3].Engine.Offer(&drill.Request{Arrival: w.Now(), Prompt: 500, Output: 3000})
			}
		}))
	}
	return []unforeseen{storm, clock, cold, short, both, fraction, canary, day, link, reload, batch}
}
