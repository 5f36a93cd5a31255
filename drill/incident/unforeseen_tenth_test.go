package incident_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// This file holds fourteen incidents that a tenth tester took from public threads, without having read the rules. The right
// answers were committed before the first play.

// TestUnforeseenTenth plays the incidents of the tenth tester.
func TestUnforeseenTenth(t *testing.T) { checkUnforeseen(t, unforeseenTenth()) }

// unforeseenTenth are from a tenth tester.
func unforeseenTenth() []unforeseen {
	return slices.Concat(tenthFlags(), tenthImages(), tenthVersions(), tenthServers(), tenthKills(), tenthDisks(), tenthGateways(),
		tenthModels(), tenthCables(), tenthLoops(), tenthHarmlessPauses(), tenthHarmlessLoads())
}

// tenthFlags is an option of a test that a rollout brings to all replicas.
func tenthFlags() []unforeseen {
	desk := profile("qwen3-8b-helpdesk", 6)
	desk.PromptTokens, desk.CacheHits, desk.OutputTokens, desk.Budget = 4000, 0.85, 150, 768
	uncached := unforeseen{
		name: "prefix-caching-left-off-after-a-test",
		source: "0xBakeer/qwen38-flash-next-spark 9 (p50 of the first token is 2.6 s with the cache and 5.9 s without it, all else equal); " +
			"inference-sim/inference-sim 286 (the larger the shared head, the shorter the first token, down to a twentieth); " +
			"weicj/vLLM-2080Ti-Definitive 149 (another option switches the prefix cache off without a word)",
		story: "somebody compared answers with --no-enable-prefix-caching and left it in the values: five vLLMs are rolled out, one every 150 " +
			"s, drained, same version; prompts of 4,000 tokens share 85% (instructions and history), so that a request costs 600 computed " +
			"tokens, 22 ms; now it costs all 4,000, 146 ms with their attention, in steps of 768 tokens and 35 ms: an engine does 5.2 requests " +
			"a second and gets 6 (7.5 while a peer is drained); its queue grows by one a second, and first tokens wait for ten seconds after a " +
			"minute; tokens take 35 in place of 12 ms; the exporter restarts at seven minutes; the engine no longer counts hits or queries",
		right: "page within a quarter of an hour; release: prefix_caching changed from on to off on all five with their restart, put it back. " +
			"Right too: prefill, if it says that nothing of the prompts comes from the prefix cache any more, or that several times as many " +
			"tokens are computed per request. Not longer prompts, not more requests, not «too few replicas», not cold caches («started minutes " +
			"ago»), not slow engines (a step takes what its tokens need). Triage at 6 minutes: release or no verdict; at 15 minutes: release or " +
			"prefill",
		page:    `release\. .*(?i:prefix|cach)|prefill\. .*(?i:cache|hit|comput)`,
		fleet:   world.Fleet{Profile: desk, Replicas: 5, Runtimes: []metrics.Runtime{metrics.VLLM}, Shares: even(5)},
		history: 3 * time.Hour, lasts: 42 * minute,
		faults: exporterOut(7*minute, 40*time.Second),
	}
	for i := range 5 {
		at := time.Duration(i) * 150 * time.Second
		uncached.faults = append(uncached.faults, at1(at+45*time.Second, i, func(r *world.Replica) { r.Profile.NoPrefixCache = true }))
		uncached.faults = append(uncached.faults, drained(i, at, 80*time.Second)...)
	}
	return []unforeseen{uncached}
}

// tenthImages is a rebuilt image whose matrix products are slow.
func tenthImages() []unforeseen {
	contracts := profile("phi-4-contracts", 7)
	contracts.Image, contracts.Budget, contracts.PromptTokens = "registry.example/trtllm:1.3.0-r7", 384, 1500
	contracts.CacheHits, contracts.OutputTokens = 0.1, 120
	rebuilt := unforeseen{
		name: "rebuilt-image-slows-prompts-only",
		source: "NVIDIA/TensorRT-LLM 16623 (a new base container brings another cuBLAS: first tokens take 352 in place of 247 ms, prefill's " +
			"matrix products only); kyuz0/amd-strix-halo-toolboxes 58 (prefill 75 in place of 250 tokens per second, generation unchanged); " +
			"sgl-project/sglang 13178 (a fallback kernel, nearly half as fast)",
		story: "the image of four TensorRT-LLMs is rebuilt on a newer base, same version of the engine, r7 to r8, and rolled out, one every " +
			"three minutes, drained; its matrix products reach a third of the old speed: 97 in place of 33 µs per token, whereas a step without " +
			"prompts is bound by the memory and takes 8 to 10 ms as ever; an engine did 15 requests a second of 1,350 + 120 tokens (17 ms per " +
			"step of 384), does 6.1 now (43 ms) and gets 7, 9 while a peer is drained; first tokens wait for ten seconds after one or two " +
			"minutes; at eight minutes demand grows by a twentieth",
		right: "page within a quarter of an hour; release: the image r7 to r8 on all four with their restart, roll it back. Right too: prefill " +
			"or engine, if it says that the same tokens take longer to compute since the restart. Not «more requests» (a twentieth), not «too " +
			"few replicas», not longer prompts, not lost hits (10%, as ever), not hardware (full clock on all four), not decode. Triage at 6 " +
			"minutes: release or no verdict; at 15 minutes: release, or slow engines since their restart",
		page: `release\. .*(?i:image|r8)|(prefill|engine)\. .*(?i:tokens? takes?|slower|times as long|as fast|speed|per token|r8)`,
		fleet: world.Fleet{
			Profile: contracts, Replicas: 4, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}, Shares: even(4),
		},
		history: 2 * time.Hour, lasts: 40 * minute,
		faults: []incident.Fault{then(8*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.05 })},
	}
	for i := range 4 {
		at := time.Duration(3*i) * minute
		rebuilt.faults = append(rebuilt.faults, at1(at+45*time.Second, i, func(r *world.Replica) {
			r.Profile.Image = "registry.example/trtllm:1.3.0-r8"
			r.Profile.GPU.FLOPS /= 3 // the simulated kernels have no speed of their own
		}))
		rebuilt.faults = append(rebuilt.faults, drained(i, at, 90*time.Second)...)
	}
	return []unforeseen{rebuilt}
}

// tenthVersions is an upgrade of prefill engines whose KV caches the older decode engines do not take.
func tenthVersions() []unforeseen {
	pd := profile("qwen3-14b-intake-pd", 4.8)
	pd.Release, pd.Prefilled, pd.Fetching, pd.PromptTokens, pd.OutputTokens, pd.CacheHits = "0.26.0", true, 25e9, 1500, 400, 0.1
	pd.MaxBatch, pd.OutputLimit = 128, 2048
	lost := func(i int, share float64) func(w *world.World) {
		return func(w *world.World) {
			for _, r := range w.Replicas[i:] {
				r.Engine.Lost = share
			}
		}
	}
	upgrade := func(at time.Duration, i int) incident.Fault {
		return at1(at, i, func(r *world.Replica) {
			r.Profile.Release = "0.27.0"
			r.Restart(80 * time.Second)
		})
	}
	mixed := unforeseen{
		name: "prefill-upgraded-before-decode",
		source: "vllm-project/vllm 29503 (the handshake compares version and configuration of both sides, and fails if they differ); " +
			"llm-d/llm-d 499 (during a rolling update the router pairs prefill and decode engines of different versions); ai-dynamo/dynamo 10027 " +
			"(a mismatch of the hash with everything else equal)",
		story: "vLLM 0.26.0 to 0.27.0 on the three prefill engines, one every five minutes; the decode engines' turn comes after half an " +
			"hour; the decode engines refuse KV caches of the other version, and compute these prompts themselves: a third of 24 requests a " +
			"second from 85 s on, two thirds, all from eleven and a half minutes on: 46 ms of prefill beside 48 ms of decode, twelve times a " +
			"second each, 1.13 times what one can do; with 128 running a step takes 31 in place of 14 ms and 10.3 a second end; first tokens wait " +
			"for ten seconds after a minute; at 30 and 34 minutes the decode engines are upgraded as well, which cuts some hundred answers; in " +
			"reality the handshake fails, here the transfer",
		right: "page between 8 and 22 minutes; release: 0.26.0 to 0.27.0 on the prefill engines only, the two sides do not fit. Right too: " +
			"memory, KV transfers to the decode engines fail (all, from 12 minutes on). Not prefill engines that are slow or too few (a third " +
			"busy), not more requests, not longer prompts, not a full KV cache (a half), not slow decode engines, not the network. Triage at 6 " +
			"minutes: release, failed transfers, HEALTHY or no verdict; at 15 minutes: release or failed transfers. After 40 minutes nobody is " +
			"late: no new page",
		page:    `release\. .*0\.27\.0|(memory|prefill|engine)\. .*(?i:transfers?\b|fetch)`,
		fleet:   world.Fleet{Profile: pd, Replicas: 5, Prefills: 3, Runtimes: []metrics.Runtime{metrics.VLLM}},
		history: 2 * time.Hour, lasts: 50 * minute, again: 1, // while the decode engines restart
		faults: []incident.Fault{
			upgrade(0, 0), then(85*time.Second, lost(3, 1./3)),
			upgrade(5*minute, 1), then(5*minute+85*time.Second, lost(3, 2./3)),
			upgrade(10*minute, 2), then(10*minute+85*time.Second, lost(3, 1)),
			upgrade(30*minute, 3), upgrade(34*minute, 4),
		},
	}
	return []unforeseen{mixed}
}

// tenthServers is an HTTP server that prepares one request at a time.
func tenthServers() []unforeseen {
	scans := profile("qwen2.5-vl-7b-scans", 9)
	scans.PromptTokens, scans.OutputTokens, scans.CacheHits = 1200, 80, 0.1
	pages := unforeseen{
		name: "scanned-pages-wait-for-one-thread",
		source: "vllm-project/vllm 49317 (images are prepared one after another on the thread of the event loop, before the scheduler knows " +
			"them; the GPU hardly works), 58266 (one worker: 14 pages a second, and more threads make it worse), 33337",
		story: "a client sends its pages as scans in place of text, about as many tokens; the server of each of three vLLMs decodes and scales " +
			"them on a single thread, 130 ms each, 7.7 a second, and nine arrive: 1.3 a second more wait before the core knows of them, for ten " +
			"seconds after a minute, for most of a minute later, until clients leave; the core's queue is empty, a request costs it 36 ms of " +
			"prefill, tokens take 10 ms, the GPUs are busy for less than half of the time; connections and descriptors pile up; at 12 minutes an " +
			"operator restarts replica 1, drained, in vain; at 26 minutes the client sends text again; here every request takes the same time, " +
			"and the metrics page does not slow down",
		right: "page within ten minutes; engine: its server (one thread of Python, the host's CPU) holds requests back before the core gets " +
			"them: nothing waits in the core's queue, and the GPUs have time. Right too: queueing, if it says that requests wait in the server, " +
			"before the core. Not «more requests» (as many as ever), not «too few GPUs», not prefill or longer prompts (the computation takes as " +
			"long as before), not decode, not a hang, not the gateway, not replica 1. Triage at 6 and 15 minutes: the same. After 30 minutes " +
			"nobody is late: no new page",
		page:    `(engine|queueing)\. .*(?i:server|front|before|CPU|host|thread|connections)`,
		fleet:   world.Fleet{Profile: scans, Replicas: 3, Runtimes: []metrics.Runtime{metrics.VLLM}, Shares: even(3)},
		history: 65 * minute, lasts: 42 * minute, options: play.Options{Scrape: 15 * time.Second},
		faults: append(drained(1, 12*minute, 75*time.Second),
			then(0, all4(func(r *world.Replica) { r.Engine.Preparing = 130 * time.Millisecond })),
			then(26*minute, all4(func(r *world.Replica) { r.Engine.Preparing = 0 }))),
	}
	return []unforeseen{pages}
}

// tenthProbed lets Kubernetes restart each engine that holds more than a number of requests in three checks in a row, ten
// seconds apart. The replicas read their weights from one disk, each slower than the one before.
func tenthProbed(from, to time.Duration, most int) (faults []incident.Fault) {
	var failed []int
	for at := from; at <= to; at += 10 * time.Second {
		faults = append(faults, then(at, func(w *world.World) {
			if at == from {
				failed = make([]int, len(w.Replicas))
			}
			for i, r := range w.Replicas {
				if r.Down || r.Engine.Holds() <= most {
					failed[i] = 0
					continue
				}
				if failed[i]++; failed[i] == 3 {
					failed[i] = 0
					r.Restart(70*time.Second + time.Duration(i)*30*time.Second)
				}
			}
		}))
	}
	return faults
}

// tenthKills is a check that takes busy engines for dead ones.
func tenthKills() []unforeseen {
	notes := profile("mistral-nemo-notes", 20)
	notes.MaxBatch = 96
	kills := unforeseen{
		name: "liveness-probe-kills-what-is-busy",
		source: "gpustack/gpustack 3189 (the check shares the queue with the users, and what is merely busy is created anew at the busiest " +
			"time); modelplaneai/modelplane 206 (the default timeout of a second has no margin); llm-d/llm-d-benchmark 1734 (three misses in 15 " +
			"s); sapcc/helm-charts 975 (under load Kubernetes restarts the pod again and again)",
		story: "the liveness probe of three SGLangs asks for a token and waits for a second; a newsletter brings 120 in place of 60 requests a " +
			"second for two minutes; with 96 slots an engine ends 27 a second, 30 more wait after ten seconds, longer than the probe does, and " +
			"Kubernetes kills all three within 40 s; they load for 70, 100 and 130 s from one disk, come back one at a time, and each is flooded " +
			"by what belongs to three, 60 or 30 a second, and killed again within a minute; so it goes on long after the newsletter, until " +
			"the probe is taken out at 22 minutes; three engines that run carry 60 at 74%; here the process ends at the third miss, without a " +
			"grace period",
		right: "page within six minutes; engine: all three restart again and again, within minutes of each start (something kills them: look " +
			"at the events of the pods, and relax the probe). Not «1.8 times as many requests» or «too few replicas» (that was over after two " +
			"minutes), not one replica, not the router, not hardware, not «started minutes ago» as if it would pass. Triage at 6 and 15 " +
			"minutes: the same. After 28 minutes nobody is late: no new page",
		page: `engine\. .*(?i:start|crash|stopp|died|dies|down|answer|no engine served)`,
		fleet: world.Fleet{
			Profile: notes, Replicas: 3, Runtimes: []metrics.Runtime{metrics.SGLang},
		},
		history: 3 * time.Hour, lasts: 38 * minute, again: 3,
		faults: append(tenthProbed(0, 22*minute, 126),
			then(0, func(w *world.World) { w.Traffic.Arrivals = 120 }),
			then(2*minute, func(w *world.World) { w.Traffic.Arrivals = 60 })),
	}
	return []unforeseen{kills}
}

// tenthDisks is a disk that is full on one node.
func tenthDisks() []unforeseen {
	full := unforeseen{
		name: "full-disk-on-one-of-six",
		source: "remsky/Kokoro-FastAPI 90 (no space left under /tmp, request after request fails, a container was up for long); " +
			"sam-dumont/immich-video-memory-generator 902 (nothing writable for temporary files: every such request fails until the pod is " +
			"replaced, and the service says nothing); grantjenks/python-diskcache 112 (the cache's write fails, and so does its caller)",
		story: "the scratch disk of the pod of replica 3 is full: requests with a grammar, which write a compiled automaton there, are " +
			"answered with 500; a form is filled in with such requests every 20 s or so, so that replica 3, one of six TGIs, fails 30% of its " +
			"requests, 5% of the 24 a second of all; whatever it accepts is as quick as ever; at five minutes replica 1 is restarted, drained, " +
			"for its node's upgrade; at 12 minutes demand grows by a fifth, far below what six carry; at 36 minutes the pod is replaced",
		right: "page within half an hour (5% against 99.9%); engine: replica 3 fails three requests in ten, its peers none: replace it. Not " +
			"«requests fail» for the whole model without a name, not release (nothing changed), not the restart of replica 1, not queueing " +
			"(nobody waits), not routing (each gets a sixth), not hardware. Triage at 6 minutes: the same, HEALTHY or no verdict; at 15 minutes: " +
			"engine, replica 3. After 38 minutes nothing fails: no new page",
		page: `engine\. .*granite-3-8b-forms-3\b`,
		fleet: world.Fleet{
			Profile: profile("granite-3-8b-forms", 4), Replicas: 6, Runtimes: []metrics.Runtime{metrics.TGI}, Shares: even(6),
		},
		history: 2 * time.Hour, lasts: 48 * minute, options: play.Options{WithoutGPUs: true},
		faults: append(drained(1, 5*minute, 90*time.Second),
			then(12*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.2 }),
			at1(36*minute, 3, func(r *world.Replica) { r.Restart(minute) })),
	}
	for at := 2 * time.Second; at < 35*minute+50*time.Second; at += 20 * time.Second {
		full.faults = append(full.faults, at1(at, 3, func(r *world.Replica) { r.Engine.Broken = true }),
			at1(at+6*time.Second, 3, func(r *world.Replica) { r.Engine.Broken = false }))
	}
	return []unforeseen{full}
}

// tenthGateways is a proxy that takes seconds for each request.
func tenthGateways() []unforeseen {
	office := profile("qwen3-8b-q8-office", 0.15)
	office.MaxBatch, office.GPU, office.Weights, office.Patience = 4, drill.L40S, drill.Llama8BFP8, 2*minute
	slow := unforeseen{
		name: "callback-blocks-the-proxys-loop",
		source: "BerriAI/litellm 13546 (1.5 s at the engine itself, ten seconds and more through the proxy, at a few requests a second), 9491 " +
			"(36 s through the proxy, 13 s without it), 17954 (20 s through it after a pause, below one directly)",
		story: "LiteLLM gets a callback that writes each request to a database in its only event loop, from 0 on for 2 s, from ten minutes on " +
			"for 3.5 s, before the request goes out; two llama.cpp servers behind it get 18 requests a minute as ever, have free slots, and " +
			"answer the exporter's own probes within 0.1 s; each first token through the proxy is late, none fails; objectives on the probes, of " +
			"which one in three goes through the proxy, so that 14.4% of an hour's are late after 26 minutes; no GPU metrics, a history of half " +
			"a day; at 40 minutes the callback is taken out",
		right: "page within 35 minutes; routing: requests through the gateway take seconds longer than those that go to the engines directly: " +
			"look at LiteLLM. Not an engine (both answer directly within 0.1 s), not queueing (no request waits for a slot), not «more requests», " +
			"not prefill, not the model's loading, not an outage of the gateway (it answers all). Triage at 15 minutes: the same; at 6 minutes no " +
			"verdict is acceptable. After 44 minutes nobody is late: no new page",
		page: `routing\. .*(?i:gateway|litellm|proxy|probe)`,
		fleet: world.Fleet{
			Profile: office, Replicas: 2, Runtimes: []metrics.Runtime{metrics.LlamaCpp}, Probes: true, ProbesGateway: true, ReadsGateway: true,
			Objectives: onProbes(),
		},
		history: 12 * time.Hour, lasts: 55 * minute, options: play.Options{WithoutGPUs: true},
		faults: []incident.Fault{
			then(0, func(w *world.World) { w.GatewayLag = 2 * time.Second }),
			then(10*minute, func(w *world.World) { w.GatewayLag = 3500 * time.Millisecond }),
			then(40*minute, func(w *world.World) { w.GatewayLag = 0 }),
		},
	}
	return []unforeseen{slow}
}

// tenthModels is a small model that gets the requests of a larger one.
func tenthModels() []unforeseen {
	support := profile("mistral-small-main", 14.5)
	support.OutputTokens = 60
	flood := unforeseen{
		name: "fallbacks-flood-the-small-model",
		source: "voidmind-io/voidllm 45, 65 (when all deployments of a model are gone, the next model in the chain gets its requests); " +
			"bagofwords1/bagofwords 768 (a switch of the model is kept for the whole run); etalab-ia/OpenGateLLM 363",
		story: "two SGLangs with the main model get 24 requests a second each, two vLLMs on L40S with a small one 5 each; the main model's " +
			"pods are evicted within 20 s, and their weights cannot be read for 33 minutes; the gateway falls back to the small model, whose " +
			"engines get 29 a second each and do 24 (585 + 60 tokens, 640 per step of 41 ms): their queues grow by nearly five a second, and " +
			"first tokens wait for ten seconds within a minute; users of the main model are answered, late, by the other one; dcgm-exporter with " +
			"its default list",
		right: "page within ten minutes; engine about mistral-small-main (none of its engines answers, the cause), or queueing about " +
			"ministral-8b-fallback (six times as many requests arrive as ever: those of the other model). Best both. Not «the small model's " +
			"engines are slow», not prefill, not decode, not memory, not hardware (idle GPUs are the consequence), not «no requests for the main " +
			"model» as the first thing. Triage at 6 and 15 minutes: the same. After 38 minutes nobody is late: no new page",
		page: `engine\. .*no engine served|queueing\. `, // the title names the model
		fleet: world.Fleet{
			Profile: support, Replicas: 4, Shares: []float64{24, 24, 5, 5},
			Runtimes: []metrics.Runtime{metrics.SGLang, metrics.SGLang, metrics.VLLM, metrics.VLLM},
			Each: func(i int, p *drill.Profile) {
				if i >= 2 {
					p.Model, p.GPU, p.Weights, p.Budget = "ministral-8b-fallback", drill.L40S, drill.Llama8BFP8, 640
				}
			},
		},
		history: 2 * time.Hour, lasts: 48 * minute, options: play.Options{DCGM: []string{}},
		faults: []incident.Fault{
			then(-121*minute, func(w *world.World) {
				w.Replicas[2].Pod, w.Replicas[3].Pod = "ministral-8b-fallback-0", "ministral-8b-fallback-1"
			}),
			at1(0, 0, func(r *world.Replica) { r.Restart(33 * minute) }),
			at1(20*time.Second, 1, func(r *world.Replica) { r.Restart(33 * minute) }),
		},
	}
	return []unforeseen{flood}
}

// tenthCables is a GPU whose power supply breaks in for most of each minute.
func tenthCables() []unforeseen {
	cable := unforeseen{
		name: "loose-cable-on-one-of-twelve",
		source: "leptonai/gpud 330, 331 (hardware slowdowns that come back come from a failing power supply or from heat, inspect the " +
			"machine); docs.nvidia.com/deploy/nvml-api (HW Slowdown: the clock is at most a half, from heat, the power supply's brake, or a fast " +
			"power trigger); seerge/g-helper 2547 (below 500 MHz at 100% load, cool)",
		story: "six vLLMs and six TensorRT-LLMs, ten requests a second each; since a technician's visit a power cable of GPU 7 has bad " +
			"contact: for 45 s of each minute the GPU runs at 218 of 1,980 MHz (hw_slowdown, no counter of the driver), at 60 °C; there a step of " +
			"1,024 tokens takes 0.36 s, 3.7 requests a second get their first token of ten, and 280 wait; in the 15 s between it catches up at 27 " +
			"a second; two thirds of its first tokens come after ten seconds, 5 to 6% of all, so that 1.4% of an hour's are spent after a quarter " +
			"of an hour; replicas 2 and 9 are restarted, drained, same version, at 3 and 8 minutes; GPU 4 has been at its power cap all day (5%); " +
			"at 38 minutes replica 7 is taken out",
		right: "page within half an hour; hardware: GPU 7 is slowed down again and again (hw_slowdown, a ninth of the clock), its peers are " +
			"not: drain it and look at its power. Right too: engine, replica 7 alone is slow or stands still again and again, at an equal share. " +
			"Not the restarts (2 and 9 are well), not GPU 4 (sw_power_cap), not queueing «more requests» or «too few replicas», not routing, not " +
			"TensorRT-LLM as such. Triage at 6 and 15 minutes: the same, HEALTHY or no verdict at 6 minutes. After 42 minutes nobody is late: no " +
			"new page",
		page: `hardware\. .*GPU 7\b|engine\. .*gemma-3-12b-search-7\b`,
		fleet: world.Fleet{
			Profile: profile("gemma-3-12b-search", 10), Replicas: 12, Runtimes: []metrics.Runtime{metrics.VLLM, metrics.TensorRTLLM},
			Shares: even(12),
		},
		history: 65 * minute, lasts: 50 * minute,
		faults: slices.Concat(drained(2, 3*minute, 90*time.Second), drained(9, 8*minute, 90*time.Second), []incident.Fault{
			at1(-64*minute, 4, func(r *world.Replica) { r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.95} }),
			at1(0, 7, func(r *world.Replica) {
				r.GPU.Throttle = &world.Throttle{Reason: "hw_slowdown", Clock: 0.11, Part: 45 * time.Second, Period: minute}
			}),
			then(38*minute, func(w *world.World) {
				without := even(12)
				without[7] = 0
				w.Fleet.Shares = without
			}),
		}),
	}
	return []unforeseen{cable}
}

// tenthAgents keeps a number of agents at work. Each has one request open and sends the next when its answer has come; one
// agent more begins every 2.5 s. Agents do not give up.
func tenthAgents(from, to time.Duration, agents int) (faults []incident.Fault) {
	const every = 5 * time.Second
	var open []*drill.Request
	var random *rand.Rand
	for at := from; at < to; at += every {
		faults = append(faults, then(at, func(w *world.World) {
			if at == from {
				open, random = make([]*drill.Request, agents), rand.New(rand.NewPCG(10, 10))
			}
			for i := range min(agents, 2*int((at-from)/every)+2) {
				if open[i] != nil && open[i].Done == 0 {
					continue
				}
				prompt := float64(15000 + random.IntN(6000))
				open[i] = &drill.Request{Arrival: w.Now(), Prompt: prompt, Cached: prompt / 5, Output: float64(1500 + random.IntN(1000))}
				w.Replicas[i%len(w.Replicas)].Engine.Offer(open[i])
			}
		}))
	}
	return faults
}

// tenthLoops are agents that hold the KV cache of two engines.
func tenthLoops() []unforeseen {
	office := profile("glm-4-9b-office", 3)
	office.Budget, office.MaxModelLen = 384, 65536
	loops := unforeseen{
		name: "looping-agents-hold-the-cache",
		source: "vllm-project/vllm 21793 (without room for a long context a request is begun, thrown out and begun again, which slows " +
			"down all others), 42827 (nobody sees which requests are thrown out, and how much is lost), 52113 (agents' contexts in the cache)",
		story: "a loop in a framework keeps 68 agents at work at two SGLangs, each always with one request of 15,000 to 21,000 tokens, a fifth " +
			"of them from the prefix cache, and an answer of 2,000; beside six chats a second; a request holds 15,400 tokens of KV cache, of " +
			"404,000, so that 26 fit and 34 want to run at each engine: full within five minutes; from then on the newest are retracted and " +
			"computed again, and chats, which need 1,000 tokens, wait behind them for tens of seconds; a step takes 33 to 44 ms (384 tokens, " +
			"480,000 of context), prefill would need two thirds of the time; the agents are half a request a second in all, a tenth of the " +
			"requests; at 30 minutes they are stopped; here the cached part of a prompt needs no room",
		right: "page within a quarter of an hour; memory: the KV cache of both is full, requests are retracted (since a few long contexts " +
			"came): stop the agents, limit their concurrency. Right too: prefill, if it says that prompts are several times as long. Not «more " +
			"requests» or «too few replicas» alone, not a leak, not slow engines, not release, not routing, not lost hits. Triage at 6 minutes: " +
			"the same, HEALTHY or no verdict; at 15 minutes: memory, or longer prompts. After 38 minutes nobody is late: no new page",
		page:    `memory\. .*(?i:kv|cache|retract|preempt)|prefill\. .*(?i:prompts?\b|long|tokens per request)`,
		fleet:   world.Fleet{Profile: office, Replicas: 2, Runtimes: []metrics.Runtime{metrics.SGLang}},
		history: 65 * minute, lasts: 45 * minute,
		options: play.Options{Relabel: func(l labels.Labels) labels.Labels {
			return labels.NewBuilder(l).Set(metrics.LabelCluster, "eu-2").Labels()
		}},
		faults: tenthAgents(0, 30*minute, 68),
	}
	return []unforeseen{loops}
}

// tenthHarmlessPauses must wake nobody: engines that pause for new weights, and bursts that are over at once.
func tenthHarmlessPauses() []unforeseen {
	const pause = 4 * time.Second
	pushed := unforeseen{
		name: "weights-pushed-every-ten-minutes",
		source: "sgl-project/sglang 7419 (generation is paused while new weights come), 10071 (requests in progress wait and go on); " +
			"vllm-project/vllm 31741 (a quick pause that drains nothing)",
		story: "an online training pushes new weights to all four SGLangs at once every ten minutes: no step for four seconds, then all goes " +
			"on, with an empty prefix cache for half a minute; of 20 requests a second those of three and a half seconds get their first token " +
			"late, 0.6% of all (the budget is 1%), 32 gaps between two million tokens are of four seconds, nothing fails; at 25 minutes demand " +
			"grows by a quarter",
		right: "nobody is woken; at most one ticket: neither pauses of four seconds nor lost hits harm anybody noticeably. Triage at 6 and 15 " +
			"minutes: HEALTHY or no verdict; not a hang",
		fleet: world.Fleet{
			Profile: profile("qwen3-8b-online", 5), Replicas: 4, Runtimes: []metrics.Runtime{metrics.SGLang},
		},
		history: 2 * time.Hour, lasts: 75 * minute,
		faults: []incident.Fault{then(25*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.25 })},
	}
	for i := range 7 {
		at := time.Duration(10*i)*minute + 7*time.Second
		pushed.faults = append(pushed.faults, then(at, all4(func(r *world.Replica) { r.Engine.Wedged = true })),
			then(at+pause, func(w *world.World) {
				all4(func(r *world.Replica) { r.Engine.Wedged = false })(w)
				w.Traffic.CacheHits = 0.05
			}),
			then(at+pause+30*time.Second, func(w *world.World) { w.Traffic.CacheHits = 0.35 }))
	}

	crowds := unforeseen{
		name: "two-flash-crowds-of-45-seconds",
		source: "alphagov/prometheus-aws-configuration-beta 477 (someone is paged for spikes that are over after minutes, with nothing to do); " +
			"elastic/integrations 18884 (a queue that is full in one sample and empty in the next); divviup/prio-server 926 (watch the least " +
			"queue over time)",
		story: "a television show has its viewers vote twice: for 45 s, at 0 and at 35 minutes, 140 in place of 60 requests a second reach " +
			"four Dynamo frontends, whose engines do 28 each of 35; batches fill their 256 places, then a hundred requests wait, for four seconds " +
			"at most, and a token takes up to 50 ms; both are over a few seconds later; 6% of the hour's first tokens are late, none by ten " +
			"seconds, nothing fails; a page needs 14.4%",
		right: "nobody is woken; at most one ticket: it is over before anybody can act. Triage at 6 and 15 minutes: HEALTHY",
		fleet: world.Fleet{
			Profile: profile("llama-3.1-8b-polls", 15), Replicas: 4, Runtimes: []metrics.Runtime{metrics.Dynamo},
		},
		history: 3 * time.Hour, lasts: 75 * minute,
	}
	for _, at := range []time.Duration{0, 35 * minute} {
		crowds.faults = append(crowds.faults, then(at, func(w *world.World) { w.Traffic.Arrivals = 140 }),
			then(at+45*time.Second, func(w *world.World) { w.Traffic.Arrivals = 60 }))
	}
	return []unforeseen{pushed, crowds}
}

// tenthHarmlessLoads must wake nobody: a new pod that loads for long beside the old ones, and long texts at a small server.
func tenthHarmlessLoads() []unforeseen {
	surge := unforeseen{
		name: "surge-pod-reads-for-forty-minutes",
		source: "kserve/kserve 4188 (old pods run until the new ones are ready: nothing is unavailable, and more run meanwhile); " +
			"kubeai-project/kubeai 173 (a start may take 30 minutes, on a slow line), 241 (pods that are ready stay during a rollout)",
		story: "vLLM 0.16.0 to 0.17.0 with one pod more during the rollout: the new one, replica 3, reads its weights over a slow line for 40 " +
			"minutes, with its port closed, while the three old ones serve 36 requests a second as ever, 45 from 15 minutes on, half of what they " +
			"can; then it gets its share, and replica 0 is drained and deleted",
		right: "nobody is woken; at most one ticket about the pod that is not ready yet: users have as many engines as before. Triage at 6 and " +
			"15 minutes: HEALTHY, or the new pod with low confidence; not «an engine stopped answering»",
		fleet: world.Fleet{
			Profile: profile("llama-3.1-8b-letters", 9), Replicas: 4, Runtimes: []metrics.Runtime{metrics.VLLM},
			Shares: []float64{1, 1, 1, 0},
		},
		history: 2 * time.Hour, lasts: 65 * minute,
		faults: []incident.Fault{
			at1(-121*minute, 3, func(r *world.Replica) { r.Down, r.Gone = true, true }),
			at1(0, 3, func(r *world.Replica) {
				r.Profile.Release = "0.17.0"
				r.Restart(40 * minute)
			}),
			then(15*minute, func(w *world.World) { w.Traffic.Arrivals *= 1.25 }),
			then(40*minute+20*time.Second, func(w *world.World) { w.Fleet.Shares = even(4) }),
			then(42*minute, func(w *world.World) { w.Fleet.Shares = []float64{0, 1, 1, 1} }),
			at1(43*minute, 0, func(r *world.Replica) { r.Down, r.Gone = true, true }),
		},
	}

	reader := profile("qwen3-8b-q8-library", 0.05)
	reader.MaxBatch, reader.GPU, reader.Weights, reader.Patience = 4, drill.L40S, drill.Llama8BFP8, 2*minute
	chapters := unforeseen{
		name: "four-chapters-every-twelve-minutes",
		source: "ggml-org/llama.cpp 6607 (a long prompt takes the whole batch, and other slots wait), 14343 (users with short prompts are " +
			"delayed); ggml-org/llama.cpp 4216 (expected, as long as batches are that large)",
		story: "a script sends four chapters of 24,000 tokens at an instant, every twelve minutes, to the only llama.cpp server, which gets a " +
			"request every 20 s beside: all four slots are taken for 20 s (7 s for the prompts, 94 steps of 75 ms; then 500 tokens of 25 ms " +
			"each), and whoever comes then waits; two or three probes of an hour's sixty meet that, a page needs nine; prompts are 2.5 times as " +
			"long on average; no GPU metrics, objectives on the probes, a history of a day",
		right: "nobody is woken, no ticket or at most one: a few requests an hour wait for seconds. Triage at 6 and 15 minutes: HEALTHY or no " +
			"verdict",
		fleet: world.Fleet{
			Profile: reader, Replicas: 1, Runtimes: []metrics.Runtime{metrics.LlamaCpp}, Probes: true, Objectives: onProbes(),
		},
		history: 24 * time.Hour, lasts: 80 * minute, options: play.Options{WithoutGPUs: true},
	}
	for i := range 6 {
		chapters.faults = append(chapters.faults, then(time.Duration(12*i)*minute, func(w *world.World) {
			for range 4 {
				w.Replicas[0].Engine.Offer(&drill.Request{Arrival: w.Now(), Prompt: 24000, Output: 500})
			}
		}))
	}
	return []unforeseen{surge, chapters}
}
