package incident

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Report describes the publication about a real incident that the drill replays.
type Report struct {
	// Source is the place of publication. It is an address, or a text that begins with a repository on GitHub.
	Source string
	// Said has the numbers from the report. Assumed lists what the play adds or simplifies.
	Said, Assumed string
	// Noticed is how long after the onset people noticed the incident. It is zero if the source does not state this.
	Noticed time.Duration
	// Sign is a query. It returns series as soon as a scrape shows the incident.
	Sign string
	// Missed explains why no alert reports the incident.
	Missed string
}

// Several incidents share these signs.
const (
	noStep = "llm_engine_steps_total == llm_engine_steps_total offset 30s"
	noEnd  = `sum by (pod) (llm_engine_requests_total) == sum by (pod) (llm_engine_requests_total offset 30s)`
)

// Public returns incidents that others published. Incidents that must page or open a ticket come first, followed by
// incidents that must not page.
func Public() []Incident {
	incidents := slices.Concat(publicHangs(), publicStalls(), publicLinks(), publicFabrics(), publicDrivers(), publicGateways(),
		publicEngines(),
		publicLoads(), publicRest())
	for i := range incidents {
		incidents[i].History = cmp.Or(incidents[i].History, 65*minute) // the rules for these incidents cover an hour
	}
	return incidents
}

// hang returns a fault that stops one engine, and that applies a further change to this engine.
func hang(do func(e *drill.Engine)) []Fault {
	return []Fault{fault(0, one(1, func(r *world.Replica) {
		r.Engine.Wedged = true
		do(r.Engine)
	}))}
}

// A hung engine shows its last values, or a growing queue.
func last(*drill.Engine)       {}
func queueing(e *drill.Engine) { e.ShowsQueue = true }

// publicHangs are incidents of engines that stop.
func publicHangs() []Incident {
	return []Incident{
		{
			Name: "admission-stall", Story: "after a restart nearly every prompt comes from the KV tier on disk, half a minute each; requests " +
				"wait beside a cache with room",
			Fleet: diskTier(), History: 6 * time.Hour, Lasts: 100 * minute,
			Faults: []Fault{fault(-6*time.Hour, one(0, func(r *world.Replica) { r.Engine.Slow = 3 })), fault(0, func(w *world.World) {
				w.Traffic.CacheHits = 0.08
				w.Replicas[0].Profile.Fetching = 300e6
				w.Replicas[0].Restart(90 * time.Second)
			}), fault(30*minute, one(0, func(r *world.Replica) { r.Engine.Fetching = 28e6 }))},
			Page: rules.FastBurn, Clue: "kv_tier_slow", Shows: `spends \d+s per request on loading KV cache from a tier`,
			Report: &Report{
				Source: "Tanguille/cluster 4593, 4636; defilantech/LLMKube 1624",
				Said: "hit ratio 95% to 8%; running 1, waiting 5, KV 63.5%, prompt 0.0 tok/s; mean queue 41 s after 2 h 35 min, 338 s at the " +
					"end; a tier hit costs 28 s; the gateway's alert after 3 h 03 min, a person after 5 h 50 min",
				Assumed: "restart at 16:00; 0.04 requests per second, prompts of 12,000 tokens; the first 100 of 350 minutes; loads follow one " +
					"another and hold no blocks, so that the cache shows emptier; the engine is back after 90 s; loads take 3 s for half an hour, " +
					"then 28 s",
				Noticed: 3*time.Hour + 3*minute,
				Sign:    "sum(rate(llm_engine_queue_time_seconds_sum[5m])) / sum(rate(llm_engine_queue_time_seconds_count[5m])) > 3",
			},
		},
		{
			Name: "kernel-hang", Story: "a prefill kernel never returns; the core hangs before it updates its gauges, which say that nothing runs",
			Fleet: three(metrics.VLLM), Lasts: 30 * minute, Faults: hang(func(e *drill.Engine) { e.ShowsIdle = true }),
			Page: rules.EngineStalled, Within: 150 * time.Second, Cause: rules.EngineStalled,
			Report: &Report{
				Source:  "vllm-project/vllm 46811; flashinfer-ai/flashinfer 3565, 3698",
				Said:    "running 0, /health 200, GPU busy; replicas out for hours",
				Assumed: "GPU at idle power, as in similar reports",
				Sign:    noStep,
			},
		},
		{
			Name: "frozen-scheduler", Story: "a worker deadlocks on a shared-memory collective, and one read of the page in three times out",
			Fleet: three(metrics.VLLM), Lasts: 30 * minute,
			Faults: []Fault{fault(0, one(1, func(r *world.Replica) { r.Engine.Wedged, r.Misses = true, 3 }))},
			Page:   rules.EngineStalled, Within: 150 * time.Second, Cause: rules.EngineStalled,
			Report: &Report{
				Source:  "gonka-ai/gonka 1421, 1531, 1533",
				Said:    "scheduler frozen, /health 200; noticed after 5 to 22 minutes; a deadline of 2 s is too short for a loaded engine",
				Assumed: "which reads of the page time out",
				Noticed: 5 * minute,
				Sign:    noStep,
			},
		},
		{
			Name: "frozen-engine", Story: "constrained decoding deadlocks the core; the proxy's check is answered from configuration, so " +
				"traffic goes on",
			Fleet: three(metrics.VLLM), Lasts: 95 * minute,
			Faults: append(hang(last), fault(84*minute+47*time.Second, one(1, func(r *world.Replica) { r.Restart(3 * minute) }))),
			Page:   rules.EngineStalled, Within: 2 * minute, Cause: rules.EngineStalled,
			Report: &Report{
				Source:  "azrtydxb/Fastllm-proxy 19",
				Said:    "07:37:07 frozen at running 2, 0.0 tok/s; 09:01:54 an operator restarts it; every request burned 120 s",
				Assumed: "three replicas; clients give up after 60 s",
				Noticed: 84*minute + 47*time.Second,
				Sign:    noStep,
			},
		},
	}
}

// publicStalls are incidents of engines that stop but look unchanged.
func publicStalls() []Incident {
	return []Incident{
		{
			Name:  "wedge-at-idle-power",
			Story: "after a day of good service the kernel of a large prefill hangs: nothing on the page moves, GPU 96% busy at 13 W",
			Fleet: three(metrics.VLLM), Lasts: 30 * minute, Faults: hang(last),
			Page: rules.EngineStalled, Within: 2 * minute, Cause: rules.EngineStalled,
			Report: &Report{
				Source: "vllm-project/vllm 41834, 43885; AEON-7/Qwen3.6-27B-AEON 10; eugr/spark-vllm-docker 260",
				Said: "06:51:43 wedged at running 1, KV 68%; a sibling held 3 requests for more than 7 h at 96% and 13 W, healthy 36 to 45 W; " +
					"a watchdog written for this hang saw it after 18 s",
				Assumed: "noticed as in the sibling",
				Noticed: 7 * time.Hour,
				Sign:    noStep,
			},
		},
		{
			Name: "trtllm-freezes", Story: "TensorRT-LLM stops under load; what arrives waits, GPU 100% busy",
			Fleet: three(metrics.TensorRTLLM), Lasts: 40 * minute, Faults: hang(queueing),
			Page: rules.EngineStalled, Within: 4 * minute, Cause: rules.EngineStalled,
			Report: &Report{
				Source: "triton-inference-server/tensorrtllm_backend 574, 114; triton-inference-server/server 7649",
				Said: "active requests 16, context requests 0, free KV blocks 785; utilisation 100%, pending requests grow until a restart or " +
					"until memory is full",
				Assumed: "the page of trtllm-serve in place of Triton's; host memory is not played",
				Sign:    noEnd,
			},
		},
		{
			Name: "tgi-queue-grows", Story: "TGI takes requests and answers none: its queue only grows",
			Fleet: with(three(metrics.TGI), func(f *world.Fleet) { f.Objectives = available() }), Lasts: 40 * minute, Faults: hang(queueing),
			Page: rules.EngineStalled, Within: 2 * minute, Cause: rules.EngineStalled,
			Report: &Report{
				Source:  "huggingface/text-generation-inference 2192",
				Said:    "after a few hundred requests tgi_queue_size only rises; clients get empty packets; GPU L40S",
				Assumed: "H100, three replicas",
				Sign:    noEnd,
			},
		},
	}
}

// publicLinks are incidents of links and of the driver's messages.
func publicLinks() []Incident {
	return []Incident{
		{
			Name: "nvlink-pair", Story: "an uncorrectable NVLink error kills the engine over two GPUs; its process leaves XID 45 on both",
			Fleet: three(metrics.VLLM), Lasts: 30 * minute,
			Faults: []Fault{fault(0, broken(0, 145)), fault(0, broken(1, 145))},
			Page:   rules.GPUFailed, Within: 2 * rules.Interval, Cause: rules.GPUFailed,
			Report: &Report{
				Source:  "NVIDIA/open-gpu-kernel-modules 1355, 1150; NVIDIA/nccl 2241",
				Said:    "XID 145 on 66:00.0 and 76:00.0 at once, then XID 45 several times on each; collectives hang until the node reboots",
				Assumed: "one engine per GPU in place of one over two",
				Sign:    `llm_gpu_xid_errors_total{xid="145"} > 0`,
			},
		},
		{
			Name: "nvlink-recovers", Story: "link 14 of one GPU recovers three times in 21 minutes, all other links never",
			Fleet: three(metrics.VLLM), Lasts: 90 * minute,
			Faults: []Fault{
				fault(0, one(0, func(r *world.Replica) { r.GPU.Recoveries++ })),
				fault(10*minute, one(0, func(r *world.Replica) { r.GPU.Recoveries++ })),
				fault(21*minute, one(0, func(r *world.Replica) { r.GPU.Recoveries++ })),
				fault(80*minute, one(0, func(r *world.Replica) { r.GPU.Recoveries++ })),
			},
			Cause: rules.GPULinkFault,
			Report: &Report{
				Source:  "marin-community/marin 8934, 9086",
				Said:    "505 recoveries in all, 3 of them in 21 minutes, one later that day; the link failed five days later and took 64 GPUs with it",
				Assumed: "link 0 for 14, counted from 0; the four days after it are left out",
				Noticed: 5 * 24 * time.Hour,
				Sign:    `increase(llm_gpu_nvlink_errors_total{type="recovery"}[5m]) > 0`,
			},
		},
		{
			Name: "nvlink-fails", Story: "the same link five days later: XID 149 on its GPU, 145 on all others of the rack",
			Fleet: three(metrics.VLLM), Lasts: 30 * minute,
			Faults: []Fault{fault(0, broken(0, 149)), fault(0, broken(1, 145)), fault(0, broken(2, 145))},
			Page:   rules.GPUFailed, Within: 2 * rules.Interval, Cause: rules.GPUFailed,
			Report: &Report{
				Source:  "marin-community/marin 9086",
				Said:    "08:08:46 XID 149, link down, Fatal; 1 GPU with 149 and 63 with 145; 08:09:21 the provider reboots the node",
				Assumed: "two GPUs with 145 in place of 63; the node does not come back",
				Sign:    `llm_gpu_xid_errors_total{xid="149"} > 0`,
			},
		},
		{
			Name: "gsp-error-called-healthy", Story: "XID 120, and the driver asks for a reset; a health check says that all is well",
			Fleet: three(metrics.VLLM), Lasts: 20 * minute,
			Faults: []Fault{fault(0, one(1, func(r *world.Replica) {
				r.GPU.Report(120)
				r.GPU.Drain, r.Down = true, true
			}))},
			Page: rules.GPUFailed, Within: 2 * rules.Interval, Cause: rules.GPUFailed,
			Report: &Report{
				Source:  "NVIDIA/DCGM 263",
				Said:    "GPU 1: XID 120, recovery action Reset, unusable, health Healthy",
				Assumed: "drain and reset in place of reset; its engine dies",
				Sign:    `llm_gpu_xid_errors_total{xid="120"} > 0`,
			},
		},
	}
}

// publicFabrics are incidents of memory and of the fabric manager.
func publicFabrics() []Incident {
	return []Incident{
		{
			Name:  "ecc-storm-blocks-reads",
			Story: "one GPU corrects thousands of errors a second; under load the driver does not return from reading it",
			Fleet: three(metrics.VLLM), Lasts: 60 * minute,
			Faults: []Fault{
				fault(0, one(2, func(r *world.Replica) { r.GPU.Corrected = 4647 })),
				fault(25*minute, one(2, func(r *world.Replica) { r.GPU.Corrected, r.GPU.Stuck = 17657, true })),
				fault(50*minute, one(2, func(r *world.Replica) { r.GPU.Corrected, r.GPU.Stuck = 0, false })),
			},
			Page: rules.GPUFailed, Within: 25*minute + 2*minute + 2*rules.Interval, Cause: rules.GPUFailed,
			Report: &Report{
				Source: "NVIDIA/DCGM 313; NVIDIA/NVSentinel 1748",
				Said: "4,647 corrected errors per second, then 17,657; peers 0; calls block for more than 45 s under load; the agent restarts " +
					"every 96 minutes; after the job left, rate 0",
				Assumed: "25 minutes in place of days at the first rate, 25 at the second",
				Noticed: 96 * minute,
				Sign:    `rate(llm_gpu_ecc_errors_total{severity="corrected"}[5m]) > 1`,
			},
		},
		{
			Name: "fabric-manager-dead", Story: "the fabric manager does not start after maintenance; GPUs stay In Progress for twenty days",
			Fleet: three(metrics.VLLM), Lasts: 20 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) { r.GPU.Unregistered = true }))},
			Cause:  rules.GPULinkFault,
			Report: &Report{
				Source:  "NVIDIA/NVSentinel 883, 889, 891; leptonai/gpud 1151",
				Said:    "temperature, power and XIDs normal; down for 20 days at one customer",
				Assumed: "the first 20 minutes; engines over one GPU each go on",
				Noticed: 20 * 24 * time.Hour,
				Sign:    `llm_gpu_fabric_state{state!="completed"}`,
			},
		},
		{
			Name: "fabric-manager-latched", Story: "the same, but the driver keeps the state Completed from before",
			Fleet: three(metrics.VLLM), Lasts: 20 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.ManagerDead = true })},
			Report: &Report{
				Source: "NVIDIA/NVSentinel, design ADR-050",
				Said:   "fabric state keeps its last value; only the unit's state and its journal show it; 2.5 weeks",
				Assumed: "no engine over several GPUs starts meanwhile; one that does fails, and its model is down or its engine restarts again " +
					"and again",
				Noticed: 17 * 24 * time.Hour,
				Missed:  "NVML says Completed, and by default the exporter does not see the processes of the host",
			},
		},
		{
			Name: "fabric-manager-seen", Story: "the same, under an exporter that may see the processes of the host",
			Fleet: with(three(metrics.VLLM), func(f *world.Fleet) { f.SeesProcesses = true }), Lasts: 20 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.ManagerDead = true })},
			Cause:  rules.GPULinkFault,
			Report: &Report{
				Source:  "NVIDIA/NVSentinel 883, design ADR-050",
				Said:    "fabric state keeps its last value; 2.5 weeks",
				Assumed: "ownership.processes is on; four NVSwitches",
				Noticed: 17 * 24 * time.Hour,
				Sign:    "llm_gpu_fabric_manager_up == 0",
			},
		},
	}
}

// publicDrivers are incidents of drivers and of clocks.
func publicDrivers() []Incident {
	return []Incident{
		{
			Name: "driver-mismatch", Story: "an automatic upgrade replaces the driver's library under its module; what runs goes on, what " +
				"starts fails",
			Fleet: three(metrics.VLLM), Lasts: 90 * minute,
			Faults: []Fault{
				fault(0, func(w *world.World) { w.Mismatched = true }),
				fault(30*minute, func(w *world.World) { w.ExporterDown = true }),
				fault(31*minute, func(w *world.World) { w.ExporterDown = false }),
				fault(60*minute, one(1, func(r *world.Replica) { r.Restart(24 * time.Hour) })),
			},
			Cause: rules.GPUUnread,
			Report: &Report{
				Source:  "lyulyul/shine-cluster 30; pando85/homelab 4110; badbread/crumbvms 395",
				Said:    "upgrade 460.56 to 460.73.01, found three days later; a job that had started before ran on",
				Assumed: "the exporter restarts after 30 minutes, an engine after 60; an exporter that runs on sees nothing",
				Noticed: 3 * 24 * time.Hour,
				Sign:    "llm_gpu_nvml_up == 0",
			},
		},
		{
			Name: "quarter-clock", Story: "insufficient cooling: from 1755 to 510 MHz at 88 °C within seconds, utilisation 100%",
			Fleet: three(metrics.VLLM), Lasts: 40 * minute,
			Faults: []Fault{fault(0, one(0, func(r *world.Replica) {
				r.GPU.Throttle = &world.Throttle{Reason: "hw_thermal_slowdown", Clock: 510. / 1755}
			}))},
			Cause: rules.GPUSlowed,
			Report: &Report{
				Source:  "https://matt.sh/cloud-gpu-thermal-throttling",
				Said:    "510 of 1755 MHz at 88 °C, half the power; steps 1.7 to 2 times as long within an hour; found by chance",
				Assumed: "serving in place of training; power follows the load, not the clock",
				Sign:    `llm_gpu_clock_event_active{reason="hw_thermal_slowdown"} == 1`,
			},
		},
	}
}

// publicGateways are incidents of gateways, and of servers in front of decode engines.
func publicGateways() []Incident {
	return []Incident{
		{
			Name: "gateway-stuck", Story: "after a burst the gateway answers every request with 408; the engines behind it are idle and well",
			Fleet: with(three(metrics.VLLM), func(f *world.Fleet) { f.ReadsGateway = true }), Lasts: 30 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.GatewayFails, w.GatewayStatus = 1, http.StatusRequestTimeout })},
			Page:   rules.FastBurn, Clue: "gateway_fails", Shows: `^Look first at: routing\. Gateway `,
			Report: &Report{
				Source: "BerriAI/litellm 30192",
				Said: "about 1,200 requests per second, then 408 Connection Timeout for every request, without end; the engine idle, direct " +
					"requests answered at once; only a restart of the proxy helps",
				Assumed: "the burst is left out; three replicas",
				Sign:    `rate(llm_gateway_responses_total{code="408"}[2m]) > 0`,
			},
		},
		{
			Name: "gateway-killed", Story: "the gateway is killed within seconds of each start; nobody reaches the engines, and no probe asks",
			Fleet: with(three(metrics.VLLM), func(f *world.Fleet) { f.ReadsGateway = true }), Lasts: 30 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.GatewayDead = true })},
			Page:   rules.FastBurn, Within: 3 * minute, Cause: rules.ModelUnreached,
			Report: &Report{
				Source:  "mitchross/talos-argocd-proxmox 1766; BerriAI/litellm 25219",
				Said:    "OOMKilled 11 s after each start, limit 512 MiB; elsewhere after an upgrade to 1.82.0",
				Assumed: "it worked before; its port stays closed",
				Sign:    `llm_engine_up{reason="unreachable"} == 0`,
			},
		},
		{
			Name:  "prefill-sends-nothing",
			Story: "decode engines wait for KV caches that most prefill engines never send; clients give up, and whoever is served is served well",
			Fleet: with(decoding(), func(f *world.Fleet) { f.Replicas, f.Profile.Arrivals = 3, 2 }), Lasts: 40 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) { r.Engine.Unsent = 0.89 }))},
			Page:   rules.ClientsGiveUp, Within: 6 * minute, Cause: rules.ClientsGiveUp,
			Report: &Report{
				Source: "vllm-project/vllm 50719, 55870; sgl-project/sglang 28651",
				Said: "requests deferred until a timeout of 480 s, 300 s in SGLang; 89% of requests fail at the peak, throughput falls to a " +
					"fifteenth, more than an hour to recover",
				Assumed: "clients give up after 60 s; prefill engines are not played",
				Sign:    `sum(rate(llm_engine_requests_total{outcome="abort"}[2m])) > 1`,
			},
		},
	}
}

// publicEngines are incidents of engines that get slow or leak memory.
func publicEngines() []Incident {
	return []Incident{
		{
			Name: "leaking-engine", Story: "the memory of one engine grows until its container's limit; the kernel kills it, and it begins anew",
			Fleet: three(metrics.VLLM), Lasts: 4 * time.Hour, Faults: crashes(1, 65*minute, 3*minute, 4),
			Cause: rules.EngineCrashLoop,
			Report: &Report{
				Source:  "vllm-project/vllm 50150",
				Said:    "memory grows under load to the limit of 64 GiB, the pod is restarted after OOM; releases 0.24.0 to 0.27.1",
				Assumed: "killed every 65 minutes; loads for three; the memory itself is not played",
				Sign:    "changes(llm_engine_start_time_seconds[5m]) > 0",
			},
		},
		{
			Name: "grammars-take-the-cpu",
			Story: "requests for structured output compile their grammars on more threads than the container has CPUs: every step waits, the " +
				"GPUs idle",
			Fleet: with(three(metrics.VLLM), func(f *world.Fleet) { f.SeesProcesses = true }), Lasts: 30 * minute,
			Faults: []Fault{fault(0, every(func(r *world.Replica) { r.Engine.Starved = 70 * time.Millisecond }))},
			Page:   rules.FastBurn, Clue: "cpu_wait", Shows: `threads? of .* waits? for a CPU`,
			Report: &Report{
				Source: "vllm-project/vllm 49460, 49461; sgl-project/sglang 32084",
				Said: "time between tokens from 7 to 9 ms to 68 to 93 ms, GPU 7 to 12% active, throttled by its CPU limit all the time for " +
					"minutes, 86 threads on 6 CPUs; requests ran into the ingress deadline",
				Assumed: "three replicas with an 8B model on H100, half an hour of it; the waits, not the grammars, are played",
				Sign:    `sum(rate(llm_engine_inter_token_latency_seconds_sum[1m])) / sum(rate(llm_engine_inter_token_latency_seconds_count[1m])) > 0.03`,
			},
		},
		{
			Name: "uneven-ranks", Story: "the engine's own balancer sends nearly everything to two of eight data-parallel ranks",
			Fleet:  with(chat(), func(f *world.Fleet) { f.Replicas, f.Ranks, f.LeastLoaded, f.Profile.MaxBatch = 8, true, true, 64 }),
			Lasts:  60 * minute,
			Faults: []Fault{fault(0, func(w *world.World) { w.Favours = 2 })},
			Page:   rules.FastBurn, Cause: rules.ReplicaSkew,
			Report: &Report{
				Source: "vllm-project/vllm 36748, 40279, 48808",
				Said: "8 ranks on 8 B200, --max-num-seqs 64, 512 clients: two ranks with 117 and 108 requests waiting and KV at 100%, the " +
					"others far less; elsewhere after 48 to 72 hours, with GPUs idle",
				Assumed: "H100, an 8B model; two ranks get all new requests; it lasts an hour",
				Sign:    "max by (pod) (llm_engine_requests_waiting) > 4",
			},
		},
		{
			Name: "ollama-on-cpu", Story: "after hours of good service Ollama loads its model again without its GPU and answers from the CPU",
			Fleet: onDemand(), Lasts: 40 * minute,
			Faults: []Fault{fault(0, one(0, func(r *world.Replica) { r.LeaveGPU(1, 20) }))},
			Cause:  rules.EngineMemoryLost,
			Report: &Report{
				Source: "ollama/ollama 10300, 8594, 5035, 3930, 7765, 10257",
				Said: "6 to 40 hours after a start requests use the CPU only, with room in GPU memory; nvidia-smi on the host is fine; a " +
					"restart of the container helps",
				Assumed: "one model, which stays loaded; twenty times slower",
				Sign:    "llm_engine_model_gpu_memory_bytes / llm_engine_model_memory_bytes < 0.95",
			},
		},
		{
			Name: "slow-pcie-link", Story: "the PCIe link of one GPU stays at generation 2 under load; nothing logs an error",
			Fleet: three(metrics.VLLM), Lasts: 30 * minute,
			Faults: []Fault{fault(0, one(1, func(r *world.Replica) { r.GPU.SlowLink, r.Engine.Slow = true, 1.4 }))},
			Cause:  rules.GPULinkFault,
			Report: &Report{
				Source:  "local-inference-lab/rtx6kpro 88",
				Said:    "generation 2 with 16 lanes for three and a half hours, about 8 GB/s in place of 64, utilisation 100%; the link may not retrain",
				Assumed: "serving in place of training; one GPU per engine, steps 1.4 times as long",
				Noticed: 3*time.Hour + 30*minute,
				Sign:    `llm_gpu_pcie_link_generation{state="current"} < ignoring (state) llm_gpu_pcie_link_generation{state="max"}`,
			},
		},
	}
}

// publicLoads are heavy loads that must not page.
func publicLoads() []Incident {
	return []Incident{
		{
			Name: "power-cap", Story: "a power cap set on purpose binds all the time; decode is a little slower, nothing is wrong",
			Fleet: three(metrics.VLLM), Lasts: 60 * minute, Quiet: true,
			Faults: []Fault{fault(0, every(func(r *world.Replica) { r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.89} }))},
			Report: &Report{
				Source: "ashalliants/ninfer-3090 72",
				Said: "sw_power_cap in 161 to 168 of 162 to 168 samples, 314 of 315 W, clock about 11% below its rating, memory clock " +
					"untouched, no thermal slowdown",
				Assumed: "H100",
			},
		},
		{
			Name: "saturated-hour", Story: "an engine at its batch limit for an hour, one read of its page in three times out",
			Fleet: with(three(metrics.VLLM), func(f *world.Fleet) {
				f.Profile.MaxBatch, f.Profile.Patience, f.Objectives = 8, 0, available()
			}), Lasts: 90 * minute, Quiet: true,
			Faults: []Fault{
				fault(0, func(w *world.World) {
					w.Traffic.Arrivals *= 6
					every(func(r *world.Replica) { r.Misses = 3 })(w)
				}),
				fault(60*minute, func(w *world.World) {
					w.Traffic.Arrivals /= 6
					every(func(r *world.Replica) { r.Misses = 0 })(w)
				}),
			},
			Report: &Report{
				Source:  "gonka-ai/gonka 1421",
				Said:    "an hour at max_num_seqs, /health slower than 2 s; healthy nodes restarted 8 times a day",
				Assumed: "only availability has an objective, and clients wait",
			},
		},
		{
			Name: "million-tokens", Story: "one prompt of a million tokens has the engine for eight minutes, others wait",
			Fleet: with(chat(), func(f *world.Fleet) { f.Replicas, f.Profile.Blocks, f.Profile.Budget = 1, 70_000, 4096 }), Lasts: 30 * minute,
			Quiet: true,
			Faults: []Fault{
				fault(-3*minute, func(w *world.World) { w.Idle = true }),
				fault(0, func(w *world.World) {
					for _, prompt := range []float64{900_000, 100, 100} {
						w.Replicas[0].Engine.Offer(&drill.Request{Arrival: w.Now(), Prompt: prompt, Output: 100})
					}
				}),
			},
			Report: &Report{
				Source:  "FujitsuPolycom/sparkring 231; MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks 6",
				Said:    "1,006,000 prompt tokens in 471 s; running 2, waiting 1, KV 18%, healthy",
				Assumed: "900,000 tokens on an H100 take as long",
			},
		},
	}
}

// publicRest are quiet times that must not page.
func publicRest() []Incident {
	return []Incident{
		{
			Name: "idle-not-wedged", Story: "the last request ends, no other comes: the same zero rates as a wedge, and healthy",
			Fleet: three(metrics.VLLM), Lasts: 40 * minute, Quiet: true,
			Faults: []Fault{
				fault(0, func(w *world.World) { w.Idle = true }),
				fault(30*minute, func(w *world.World) { w.Idle = false }),
			},
			Report: &Report{
				Source:  "vllm-project/vllm 41834",
				Said:    "06:47:13 0 tok/s, running 0, KV 68%; four minutes later it wedged",
				Assumed: "half an hour of it",
			},
		},
		{
			Name: "cancelled-not-wedged", Story: "the only client cancels what runs, and no other comes: the gauges show it as running for as long",
			Fleet: with(three(metrics.VLLM), func(f *world.Fleet) { f.Replicas, f.Profile.Arrivals = 1, 0.004 }), Lasts: 60 * minute, Quiet: true,
			Faults: []Fault{
				fault(0, func(w *world.World) {
					w.Idle = true
					w.Replicas[0].Engine.Offer(&drill.Request{Arrival: w.Now(), Prompt: 4000, Output: 4000})
				}),
				fault(20*time.Second, one(0, func(r *world.Replica) { r.Engine.Cancel() })),
			},
			Report: &Report{
				Source: "vllm-project/vllm 22545, 29928",
				Said: "all requests cancelled: running 106, waiting 15 and KV 90.4% stay, at 0 tokens per second, until the next step; a " +
					"router that reads them sends nothing more",
				Assumed: "one client in place of a load test; 14 requests an hour before it",
			},
		},
		{
			Name: "fabric-boot", Story: "GPUs register with the fabric within half a minute of a boot",
			Fleet: three(metrics.VLLM), Lasts: 30 * minute, Quiet: true,
			Faults: []Fault{
				fault(0, every(func(r *world.Replica) { r.GPU.Unregistered = true })),
				fault(33*time.Second, every(func(r *world.Replica) { r.GPU.Unregistered = false })),
			},
			Report: &Report{
				Source:  "kubernetes-sigs/dra-driver-nvidia-gpu 1264",
				Said:    "05:56:57 In Progress, 05:57:00 registered, 05:57:26 dependent pod healthy",
				Assumed: "33 s in all; the node does not reboot in the play",
			},
		},
		{
			Name: "nonfatal-xids", Story: "NVLink XIDs that the kernel log calls nonfatal, and one of an application whose gauge elsewhere " +
				"never cleared",
			Fleet: three(metrics.VLLM), Lasts: 60 * minute, Quiet: true,
			Faults: []Fault{
				fault(0, one(0, func(r *world.Replica) { r.GPU.ReportNonfatal(144) })),
				fault(10*minute, one(1, func(r *world.Replica) { r.GPU.ReportNonfatal(145) })),
				fault(20*minute, one(2, func(r *world.Replica) { r.GPU.Report(31) })),
			},
			Report: &Report{
				Source:  "leptonai/gpud 1160, 1174; NVIDIA/dcgm-exporter 500",
				Said:    "144, SAW_MVB Nonfatal, Link 0; 145, RLW_RXPIPE Nonfatal, Link 13; XID 31 kept by the gauge until the exporter restarted",
				Assumed: "ten minutes between them",
			},
		},
	}
}

// three returns three replicas under little load, on a runtime.
func three(r metrics.Runtime) world.Fleet {
	return with(chat(), func(f *world.Fleet) { f.Replicas, f.Profile.Arrivals, f.Runtimes = 3, 2, []metrics.Runtime{r} })
}

// available returns the default objectives without the latency objectives.
func available() []slo.Objective {
	return slices.DeleteFunc(slo.Defaults(), func(o slo.Objective) bool { return o.Signal.Latency() })
}

// broken returns a change that stops a replica, and that reports an XID of the replica's GPU. The GPU also reports XID
// 45 for each of its processes.
func broken(i, xid int) func(*world.World) {
	return one(i, func(r *world.Replica) {
		r.GPU.Report(xid, 45, 45, 45)
		r.Down = true
	})
}

// diskTier returns a 27B model on one AMD R9700 (640 GB/s, 191 TFLOPS FP16, 32 GB) with a KV tier on disk. Some numbers
// are assumptions: weights of 4 bits, 64 KiB of KV cache per token, the lengths and the rate. The objective for first
// tokens allows ten seconds.
func diskTier() world.Fleet {
	f := chat()
	f.Replicas = 1
	p := &f.Profile
	p.Model, p.Release = "qwen-27b", "0.26.0"
	p.GPU = drill.Hardware{Name: "AMD Radeon AI PRO R9700", Bandwidth: 640e9, FLOPS: 191e12, Memory: 32e9}
	p.Weights = drill.Weights{Parameters: 27e9, Bytes: 0.55, KVBytesPerTok: 64 << 10, Attention: 4 * 16 * 24 * 256}
	p.Arrivals, p.PromptTokens, p.OutputTokens, p.CacheHits, p.Patience = 0.04, 12_000, 600, 0.95, 10*minute
	p.Budget, p.Host, p.HostHits, p.Lasting = 2048, 280e9, 1, true
	p.Fetching, p.Storing = 5e9, 2e9
	for _, o := range slo.Defaults() {
		if o.Signal == slo.TTFT {
			o.Threshold = slo.Duration(10 * time.Second)
			f.Objectives = append(f.Objectives, o)
		}
	}
	return f
}
