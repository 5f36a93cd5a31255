package rules_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// replica is the last minute in an engine's metrics: a number of requests, with these means and levels.
type replica struct {
	version                       string
	down, evicted, unread         bool
	minutes                       int           // for how many minutes the replica is gone
	age                           int           // minutes since the test began
	started, began                time.Duration // now, and at the last reading
	restarts                      float64
	crashes                       int // repeatedly after so many minutes
	requests, itl, output         float64
	ttft, queue, prefill, prompt  float64
	running, waiting, kv          float64
	grows, left                   float64 // of the queue, per minute; share of requests whose clients leave after the first token
	hits, accepted, cut, preempts float64 // shares of tokens and of requests
	throttled, ecc, busy          float64 // of its GPU
	others                        float64 // share of its GPU's time that other processes use
	cpuWait                       float64 // threads that wait for a CPU
	warm                          bool
	inside                        float64 // requests that ran or waited at the last reading
	burst                         float64 // requests that arrive together
	unscheduled                   float64 // seconds to the first token outside the scheduler
	unserved                      float64 // requests per minute on which clients give up before the first token
	condition                     string  // of its GPU, for which it must leave service
	lost, pinned                  float64 // KV transfers, of requests; host memory
	held, loads                   float64 // requests that wait for a grammar; seconds per request of loads from host memory
	adapters                      float64 // adapters that requests need, of which four fit
	mute                          float64 // number of probes in a row that it does not answer
	unreached, fails              float64 // shares of requests that the gateway in front of it fails, and that it fails itself
	failedThere                   float64 // share of requests that engines fail, as the gateway counts
	silent                        bool    // the engine counts no requests itself
	frontend                      bool    // the engine does not report how many requests wait
	gatewayDown, quantized        bool
	shrunk                        bool // a new setting takes most of the KV cache
	refuses                       bool // the gateway refuses all requests
	gatewayTTFT                   float64
	gatewayModel                  *string // the gateway's name for the model; nil means the engines' name
	totals                        map[string]float64
}

// well returns a healthy replica.
func well() *replica {
	return &replica{
		version: "1", started: -day, requests: 600, itl: 0.02, output: 10, ttft: 0.3, queue: 0.03, prefill: 0.06, prompt: 900,
		running: 6, kv: 0.2, busy: 0.95,
		hits: 0.6, accepted: 0.7, cut: 0.05, inside: 6, burst: 1, totals: map[string]float64{},
	}
}

// emit emits the series of the model m, and of a probe.
func (r *replica) emit(pod string, emit rulesim.Emit) {
	r.emitAs("m", pod, emit)
	probe := []string{metrics.LabelModel, "m", metrics.LabelServer, pod + ":8000"}
	emit(series(metrics.ProbeFailures.Name, probe...), r.mute)
	emit(series(metrics.ProbeRequests.Name, append(probe, metrics.LabelOutcome, string(metrics.ProbeOK))...), 1)
	if pod == "p1" && !r.unread {
		r.gateway(emit)
	}
}

// gateway emits the series of the gateway in front of the replicas.
func (r *replica) gateway(emit rulesim.Emit) {
	page := []string{metrics.LabelNamespace, "prod", metrics.LabelPod, "g1", metrics.LabelServer, "g1:4000"}
	emit(series(metrics.EngineUp.Name, page...), metrics.Bool(!r.gatewayDown))
	if r.gatewayDown {
		return
	}
	name := "m"
	if r.gatewayModel != nil {
		name = *r.gatewayModel
	}
	page = append(page, metrics.LabelModel, name, metrics.LabelRole, metrics.GatewayRole)
	if name != "" {
		emit(series(metrics.EngineInfo.Name, page...), 1)
	}
	if r.gatewayTTFT > 0 {
		for f, n := range map[*metrics.Family]float64{metrics.StageTime: 1800 * r.gatewayTTFT, metrics.Stages: 1800} {
			l := series(f.Name, append([]string{metrics.LabelStage, metrics.StageFirstToken}, page...)...)
			r.totals[l.String()] += n
			emit(l, r.totals[l.String()])
		}
	}
	counter := func(f *metrics.Family, n float64, more ...string) {
		l := series(f.Name, append(more, page...)...)
		r.totals[l.String()] += n
		emit(l, r.totals[l.String()])
	}
	counter(metrics.Requests, 1800*(1-r.unreached), metrics.LabelOutcome, string(metrics.OutcomeSuccess))
	counter(metrics.Requests, 1800*r.unreached, metrics.LabelOutcome, string(metrics.OutcomeError))
	counter(metrics.GatewayEngineFailures, 1800*r.failedThere)
	emit(series(metrics.EngineRefuses.Name, page...), metrics.Bool(r.refuses))
}

func (r *replica) emitAs(model, pod string, emit rulesim.Emit) {
	page := []string{metrics.LabelNamespace, "prod", metrics.LabelPod, pod, metrics.LabelServer, pod + ":8000"}
	engine := append([]string{metrics.LabelModel, model}, page...)
	gpu := []string{metrics.LabelGPUUUID, "GPU-" + pod, metrics.LabelGPU, "0"}
	gauge := func(f *metrics.Family, v float64, who []string, more ...string) {
		emit(series(f.Name, append(append([]string{}, who...), more...)...), v)
	}
	counter := func(f *metrics.Family, part string, perMinute float64, who []string, more ...string) {
		l := series(f.Name+part, append(append([]string{}, who...), more...)...)
		r.totals[l.String()] += perMinute
		emit(l, r.totals[l.String()])
	}
	histogram := func(f *metrics.Family, mean float64) {
		stage, sum := f.Stage()
		counter(sum, "", r.requests*mean, engine, metrics.LabelStage, stage)
		counter(metrics.Stages, "", r.requests, engine, metrics.LabelStage, stage)
	}
	counter(metrics.GPUClockEventSeconds, "", 60*r.throttled, gpu, metrics.LabelReason, "hw_thermal_slowdown")
	counter(metrics.GPUECCErrors, "", r.ecc, gpu, metrics.LabelSeverity, "uncorrected", metrics.LabelLocation, "dram",
		metrics.LabelLifetime, "volatile")
	if r.condition != "" {
		gauge(metrics.GPUHealthCondition, float64(rulesim.Epoch.Unix()), gpu, metrics.LabelCondition, r.condition, metrics.LabelAlert,
			metrics.AnswerFailed)
	}
	gauge(metrics.GPUUtilization, r.busy, gpu)
	gauge(metrics.EngineGPUInfo, 1, engine, gpu...)
	gauge(metrics.EngineGPUOthers, r.others, engine, gpu...)
	counter(metrics.EngineCPUWait, "", 60*r.cpuWait, engine)
	cold := time.Duration(r.age)*time.Minute-r.started <= 15*time.Minute
	gauge(metrics.EngineCold, metrics.Bool(cold && r.waiting > 0 && !r.warm), engine)
	if r.evicted || r.unread {
		return
	}
	if r.minutes--; r.down || r.minutes >= 0 {
		gauge(metrics.EngineUp, 0, page, metrics.LabelReason, "unreachable")
		gauge(metrics.EngineRestarts, r.restarts, page)
		return
	}
	gauge(metrics.EngineUp, 1, page)
	gauge(metrics.EngineInfo, 1, engine, metrics.LabelVersion, r.version)
	if r.quantized {
		gauge(metrics.EngineConfigChanged, float64(rulesim.Epoch.Add(r.started).Unix()), engine, metrics.LabelSetting, "quantization",
			metrics.LabelOld, "none", metrics.LabelNew, "fp8")
	}
	if r.shrunk {
		for _, change := range [][]string{{"kv_cache_tokens", "65536", "768"}, {"max_model_len", "4096", "640"}} {
			gauge(metrics.EngineConfigChanged, float64(rulesim.Epoch.Add(r.started).Unix()), engine, metrics.LabelSetting, change[0],
				metrics.LabelOld, change[1], metrics.LabelNew, change[2])
		}
	}
	if r.age++; r.crashes > 0 && r.age%r.crashes == 0 {
		r.started += time.Duration(r.crashes) * time.Minute
	}
	if r.began != 0 && r.began != r.started {
		r.restarts++
	}
	r.began = r.started
	gauge(metrics.EngineRestarts, r.restarts, page)
	gauge(metrics.EngineStartTime, float64(rulesim.Epoch.Add(r.started).Unix()), page)
	gauge(metrics.RequestsRunning, r.running, engine)
	r.waiting += r.grows
	if !r.frontend {
		gauge(metrics.RequestsWaiting, r.waiting, engine)
	}
	inside := r.running
	if !r.frontend {
		inside += r.waiting
	}
	counter(metrics.RequestsWithoutToken, "", r.unserved, engine)
	gauge(metrics.EngineUnscheduled, r.unscheduled, engine)
	gauge(metrics.RequestBurst, r.burst, engine)
	counter(metrics.RequestsArrived, "", max(0, r.requests+r.unserved+inside-r.inside), engine)
	r.inside = inside
	gauge(metrics.KVCacheUsage, r.kv, engine)
	if r.adapters > 0 {
		gauge(metrics.LoraSlots, 4, engine)
		gauge(metrics.LorasRunning, 4, engine)
		gauge(metrics.LorasContended, r.adapters, engine)
		gauge(metrics.LoraRequested, float64(60*r.age), engine, metrics.LabelLora, "sql")
		gauge(metrics.LoraRequested, 0, engine, metrics.LabelLora, "chat") // once
	}
	histogram(metrics.TimeToFirstToken, r.ttft)
	histogram(metrics.QueueTime, r.queue)
	histogram(metrics.PrefillTime, r.prefill)
	counter(metrics.PromptTokens, "", r.requests*r.prompt, engine)
	histogram(metrics.InterTokenLatency, r.itl)
	counter(metrics.GenerationTokens, "", r.requests*r.output, engine)
	counter(metrics.PrefixCacheQueryTokens, "", r.requests*r.prompt, engine)
	counter(metrics.PrefixCacheHitTokens, "", r.requests*r.prompt*r.hits, engine)
	counter(metrics.PrefillComputedTokens, "", r.requests*r.prompt*(1-r.hits), engine)
	counter(metrics.SpecDecodeDraftTokens, "", 1000, engine)
	counter(metrics.SpecDecodeAcceptedTokens, "", 1000*r.accepted, engine)
	counter(metrics.Preemptions, "", r.requests*r.preempts, engine)
	counter(metrics.KVTransferFailures, "", r.requests*r.lost, engine)
	gauge(metrics.RequestsWaitingByReason, r.held, engine, metrics.LabelReason, "grammar")
	counter(metrics.KVTierTransferTime, "", r.requests*r.loads, engine, metrics.LabelTier, string(metrics.TierHost),
		metrics.LabelOperation, string(metrics.Fetch))
	gauge(metrics.KVTierPinned, r.pinned, engine, metrics.LabelTier, string(metrics.TierHost))
	counter(metrics.Requests, "", r.requests*r.cut, engine, metrics.LabelOutcome, string(metrics.OutcomeLength))
	counter(metrics.Requests, "", r.requests*(1-r.cut-r.left)*(1-r.fails), engine, metrics.LabelOutcome, string(metrics.OutcomeSuccess))
	if !r.silent {
		counter(metrics.Requests, "", r.requests*r.fails, engine, metrics.LabelOutcome, string(metrics.OutcomeError))
	}
	counter(metrics.Requests, "", r.requests*r.left+r.unserved, engine, metrics.LabelOutcome, string(metrics.OutcomeAbort))
}

// TestVerdict breaks one thing in three replicas, or in one, and burns a budget. The page's first line must name the
// broken thing. If nothing is broken, the line must be empty.
func TestVerdict(t *testing.T) {
	t.Parallel()
	cases := []struct {
		want   string
		signal slo.Signal
		one    bool
		breaks func(r *replica)
	}{
		{"nothing stands out yet.", slo.TTFT, false, func(*replica) {}},
		{"hardware. GPU 0 on node-1 is slowed down 100% of the time (hw_thermal_slowdown).", slo.TTFT, true, func(r *replica) {
			r.throttled,
				r.queue = 1, 0.2
		}},
		{
			"hardware. All GPUs of the model are slowed down, 3 of them on node-1 (hw_thermal_slowdown).", slo.TTFT, false,
			func(r *replica) { r.throttled, r.queue = 1, 0.2 },
		},
		{"hardware. Other processes use 80% of GPU 0 on node-1.", slo.ITL, true, func(r *replica) {
			r.others, r.itl, r.running = 0.8, 0.08, 24
		}},
		{"engine. On average, 1.7 threads of p1 wait for a CPU.", slo.ITL, true, func(r *replica) {
			r.cpuWait, r.itl, r.running = 1.7, 0.08, 24
		}},
		{"hardware. GPU 0 on node-1 must leave service (xid_79).", slo.TTFT, true, func(r *replica) { r.condition = "xid_79" }},
		{"hardware. GPU 0 on node-1 must leave service (row_remap_failure).", slo.TTFT, true, func(r *replica) {
			r.condition, r.ecc,
				r.queue = "row_remap_failure", 1, 0.2
		}},
		{"hardware. GPU 0 on node-1 had uncorrectable memory errors in the last hour.", slo.TTFT, true, func(r *replica) {
			r.ecc, r.version,
				r.queue = 1, "2", 0.2
		}},
		{"release. Version 2 was deployed in the last hour.", slo.TTFT, false, func(r *replica) { r.version, r.queue = "2", 0.2 }},
		{"engine. p1 stopped answering in the last hour.", slo.TTFT, true, func(r *replica) { r.down = true }},
		{"hardware. GPU 0 on node-1 must leave service (vanished).", slo.TTFT, true, func(r *replica) { r.down, r.condition = true, "vanished" }},
		{"routing. Gateway g1 stopped answering in the last hour.", slo.Availability, true, func(r *replica) { r.gatewayDown = true }},
		{
			"routing. Gateway g1 fails far more requests than the engines.", slo.Availability, true,
			func(r *replica) { r.unreached, r.queue = 0.5, 0.2 },
		},
		{"engine. p1 uses its GPU 40% of the time while requests run.", slo.ITL, true, func(r *replica) {
			r.busy, r.itl, r.running, r.queue = 0.4, 0.06, 30, 0.24
		}},
		// however long prompts and answers are
		{"engine. p1 uses its GPU 40% of the time while requests run.", slo.ITL, true, func(r *replica) {
			r.busy, r.itl, r.running, r.prompt, r.output, r.queue = 0.4, 0.06, 30, 3600, 60, 0.24
		}},
		// tokens are not late: its GPU has little to do
		{"nothing stands out yet.", slo.ITL, true, func(r *replica) { r.busy, r.running, r.queue = 0.4, 30, 0.24 }},
		{"engine. p1 started minutes ago, and requests waited.", slo.TTFT, true, func(r *replica) { r.started, r.waiting = onset, 3 }},
		{"queueing. 30 requests wait or are refused, more than run.", slo.TTFT, true, func(r *replica) {
			r.started, r.waiting, r.warm, r.queue = onset, 30, true, 0.2
		}},
		{"engine. 50% of requests at p1 get no token.", slo.TTFT, true, func(r *replica) { r.unserved = 600 }},
		{"engine. Requests spend 1.5s in the API server of p1, outside queue and prefill.", slo.TTFT, true, func(r *replica) {
			r.ttft, r.unscheduled = 1.8, 1.5
		}},
		{"engine. p1 restarted 3 times within six hours.", slo.TTFT, true, func(r *replica) {
			r.started, r.crashes, r.waiting,
				r.queue = onset, 5, 30, 0.24
		}},
		{"engine. p1 alone is slow: first tokens after 2s.", slo.TTFT, true, func(r *replica) { r.ttft = 2 }},
		{"memory. 0.3 KV transfers per request fail, so prompts are computed twice or requests fail.", slo.TTFT, false, func(r *replica) { r.lost, r.hits, r.queue = 0.3, 0.2, 0.2 }},
		{"prefill. The prefix cache hit ratio is 10% of its usual value.", slo.TTFT, false, func(r *replica) { r.hits, r.queue = 0.06, 0.2 }},
		{"prefill. Prompts are 4 times as long as usual.", slo.ITL, false, func(r *replica) { r.prompt = 3600 }},
		{"prefill. The engines compute 2.4 times as many tokens per request as usual.", slo.TTFT, false, // some of these are long
			func(r *replica) { r.prompt, r.hits, r.ttft = 1350, 0.35, 0.9 }},
		{"prefill. Prompts are 4 times as long as usual.", slo.TTFT, false, // so that they preempt others
			func(r *replica) { r.prompt, r.hits, r.preempts, r.queue = 3600, 0.1, 0.5, 0.2 }},
		{"memory. The KV cache is too full: each request is preempted 0.5 times.", slo.TTFT, false, // this evicts cached prefixes
			func(r *replica) { r.hits, r.preempts, r.queue = 0.1, 0.5, 0.2 }},
		{
			"decode. The acceptance ratio of draft tokens is 10% of its usual value.", slo.ITL, false,
			func(r *replica) { r.accepted, r.running = 0.07, 30 },
		},
		{"behaviour. 80% of requests reach the output limit.", slo.TTFT, false, func(r *replica) { r.cut, r.kv, r.waiting = 0.8, 0.99, 9 }},
		{"memory. The KV cache is too full: each request is preempted 0.5 times.", slo.TTFT, false, func(r *replica) { r.preempts, r.queue = 0.5, 0.2 }},
		{"memory. The KV cache is 97% full and requests wait for room.", slo.TTFT, false, func(r *replica) {
			r.kv, r.waiting, r.queue = 0.97,
				3, 0.2
		}},
		{"memory. The host tier of p1 stores no more KV cache.", slo.TTFT, true, func(r *replica) { r.pinned, r.queue = 0.97, 0.24 }},
		{"queueing. 60 requests wait or are refused, more than run.", slo.Availability, false, func(r *replica) { r.waiting = 20 }},
		{"decode. 3 times as many requests as usual run at once.", slo.ITL, false, func(r *replica) { r.running, r.itl, r.queue = 18, 0.026, 0.24 }},
		{"queueing. 60 requests wait or are refused, more than run.", slo.ITL, false, func(r *replica) { r.running, r.waiting = 18, 20 }},
		{"queueing. 3 times as many requests arrive as usual.", slo.TTFT, false, func(r *replica) {
			r.requests, r.itl, r.running, r.waiting,
				r.queue = 1800, 0.05, 18, 40, 0.24
		}},
		{
			"engine. Each token takes 4 times as long as the load explains.", slo.TTFT, false,
			func(r *replica) { r.itl, r.running, r.waiting, r.queue = 0.08, 24, 40, 0.24 },
		},
		{
			"queueing. Requests arrive in bursts of about 90 and wait.", slo.TTFT, false, // larger batches for seconds
			func(r *replica) {
				r.burst, r.itl, r.running, r.waiting, r.queue = 90, 0.08, 24, 40, 0.24
			},
		},
		{"engine. Each token takes 4 times as long as the load explains.", slo.TTFT, false, // clients leave
			func(r *replica) { r.itl, r.running, r.waiting, r.queue, r.left = 0.08, 24, 40, 0.24, 0.9 }},
		{"engine. Each token takes 4 times as long as the load explains.", slo.Availability, false, // and the queue fails some
			func(r *replica) { r.itl, r.running, r.waiting, r.queue, r.fails = 0.08, 24, 40, 0.24, 0.3 }},
		{
			"memory. Requests at p1 need 6 adapters, and not all fit; most ask for sql.", slo.Availability, true,
			func(r *replica) { r.requests, r.running, r.waiting, r.queue, r.adapters = 200, 1, 30, 0.24, 6 },
		},
		{"queueing. 120 requests wait or are refused, more than run.", slo.TTFT, false, // each step computes more prompt tokens
			func(r *replica) { r.hits, r.itl, r.waiting, r.queue = 0.33, 0.08, 40, 0.24 }},
		{"prefill. Prompts are 5 times as long as usual.", slo.TTFT, false, // one of them fills a step
			func(r *replica) { r.prompt, r.running, r.waiting, r.queue = 4500, 1, 9, 0.24 }},
		{
			"queueing. Requests at p1 wait 2.7s until their grammar is compiled.", slo.TTFT, true,
			func(r *replica) { r.requests, r.running, r.waiting, r.queue, r.held = 200, 1, 9, 0.24, 9 },
		},
		{
			"memory. p1 spends 800ms per request on loading KV cache from a tier.", slo.TTFT, true,
			func(r *replica) { r.requests, r.ttft, r.loads = 200, 1, 0.8 },
		},
		{"release. 100% of the engines restarted in the last hour, without more requests than before.", slo.TTFT, false, // and fall behind
			func(r *replica) { r.started, r.requests, r.running, r.grows, r.queue = onset, 500, 6, 33, 0.24 }},
		{"release. 100% of the engines restarted in the last hour, without more requests than before.", slo.TTFT, false, // without a prefix cache
			func(r *replica) { r.started, r.hits, r.waiting, r.queue = onset, 0, 3, 0.24 }},
		{"release. Setting quantization changed from none to fp8 in the last hour.", slo.TTFT, false, // whatever fills again
			func(r *replica) {
				r.started, r.hits, r.itl, r.waiting, r.queue, r.quantized = onset, 0.3, 0.08, 3, 0.24, true
			}},
		{"memory. The KV cache of p1 changed from 65536 to 768 tokens in the last hour (and 2 more).", slo.TTFT, false, // whatever else changed
			func(r *replica) { r.started, r.waiting, r.queue, r.shrunk = onset, 3, 0.24, true }},
		{"behaviour. Answers are 6 times as long as usual.", slo.TTFT, false, func(r *replica) {
			r.output, r.running, r.waiting,
				r.queue = 60, 24, 40, 0.24
		}},
		{
			"release. 100% of the engines restarted in the last hour, without more requests than before.", slo.ITL, false,
			func(r *replica) { r.started, r.itl, r.running = 71*time.Minute, 0.04, 12 },
		},
		{"memory. The KV cache is 97% full and requests wait for room.", slo.TTFT, true, // regardless of engines that have just started
			func(r *replica) { r.started, r.kv, r.waiting, r.queue = onset, 0.97, 30, 0.2 }},
		{
			"queueing. 3 times as many requests arrive as usual.", slo.TTFT, false,
			func(r *replica) { r.started, r.requests, r.waiting, r.queue = onset, 1800, 40, 0.24 },
		},
		{
			"memory. Requests at p1 need 6 adapters, and not all fit; most ask for sql.", slo.TTFT, true,
			func(r *replica) { r.started, r.ttft, r.waiting, r.adapters = onset, 0.8, 12, 6 },
		},
		{"memory. Requests at p1 need 6 adapters, and not all fit; most ask for sql.", slo.TTFT, true, // this holds the requests back
			func(r *replica) { r.requests, r.running, r.waiting, r.queue, r.adapters = 200, 1, 9, 0.24, 6 }},
		{"prefill. The prefix cache hit ratio is 10% of its usual value.", slo.TTFT, false, // a failing gateway does not make requests late
			func(r *replica) { r.hits, r.unreached, r.queue = 0.06, 0.3, 0.2 }},
		// shares are as high on a healthy engine
		{"nothing stands out yet.", slo.TTFT, false, func(r *replica) { r.prefill, r.queue = 0.27, 0.25 }},
		// a cause of late tokens does not fail requests
		{"nothing stands out yet.", slo.Availability, false, func(r *replica) { r.hits, r.itl, r.output = 0.06, 0.08, 60 }},
		{
			"engine. The engines themselves fail 58% of requests.", slo.Availability, false,
			func(r *replica) { r.fails = 0.6 },
		},
		{"queueing. 60 requests wait or are refused, more than run.", slo.Availability, false, // so that some requests fail
			func(r *replica) { r.waiting, r.fails = 20, 0.6 }},
		{
			"memory. 0.16 KV transfers per request fail, so prompts are computed twice or requests fail.",
			slo.TTFT, true, // this holds requests back
			func(r *replica) { r.requests, r.running, r.waiting, r.queue, r.lost = 200, 1, 9, 0.24, 1.1 },
		},
		{"engine. No synthetic request to p1:8000 on node-1 is answered.", slo.Availability, true, func(r *replica) { r.mute = 2 }},
	}
	all := map[string]trouble{}
	for i, c := range cases {
		all[fmt.Sprint(i)] = trouble{signal: c.signal, target: "99%", replicas: 3, one: c.one, breaks: c.breaks, after: 14 * time.Minute}
	}
	said := firstLines(t, burnRules(t), all)
	for i, c := range cases {
		if said[fmt.Sprint(i)] != c.want {
			t.Errorf("the page of %q begins with %q", c.want, said[fmt.Sprint(i)])
		}
	}
}

// TestReadLate checks that an engine whose metrics are read too late only once has not stopped.
func TestReadLate(t *testing.T) {
	t.Parallel()
	clues := rules.Clues()
	clue := clues[slices.IndexFunc(clues, func(c rules.Clue) bool { return c.Name == "engine_down" })]
	sim := newSim(t, reading(rules.Options{}, group(t, rules.Options{}, "llm-cause-stall"), clue.Query)...)
	begins := 10 * time.Minute
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(begins+5*time.Minute), scrapeEvery, func(now time.Time, emit rulesim.Emit) {
		of := []string{metrics.LabelPod, "p"}
		if now.Sub(rulesim.Epoch) >= begins {
			emit(series(metrics.EngineUp.Name, append(of, metrics.LabelReason, "timeout")...), 0)
			return
		}
		emit(series(metrics.EngineUp.Name, of...), 1)
		emit(series(metrics.EngineInfo.Name, append(of, metrics.LabelModel, "m")...), 1)
	}); err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]int{0: 0, 3 * time.Minute: 1} {
		if v, err := sim.Query(clue.Query.String(), rulesim.Epoch.Add(begins+after)); err != nil || len(v) != want {
			t.Errorf("%s after the last reading: %d engines stopped, want %d (%v)", after, len(v), want, err)
		}
	}
}

// TestFirstErrors checks that the first errors of a model's engines are a clue at once.
func TestFirstErrors(t *testing.T) {
	t.Parallel()
	clues := rules.Clues()
	clue := clues[slices.IndexFunc(clues, func(c rules.Clue) bool { return c.Name == "engines_fail" })]
	sim := newSim(t, reading(rules.Options{}, group(t, rules.Options{}, "llm-cause-stall"), clue.Query)...)
	begins := 10 * time.Minute
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(begins+scrapeEvery), scrapeEvery, func(now time.Time, emit rulesim.Emit) {
		at := now.Sub(rulesim.Epoch)
		of := []string{metrics.LabelModel, "m", metrics.LabelPod, "p"}
		emit(series(metrics.Requests.Name, append(of, metrics.LabelOutcome, string(metrics.OutcomeSuccess))...), at.Seconds())
		errors := scrapeEvery.Seconds() * metrics.Bool(at >= begins) // from zero on: TestFailedAnswersCount
		emit(series(metrics.Requests.Name, append(of, metrics.LabelOutcome, string(metrics.OutcomeError))...), errors)
	}); err != nil {
		t.Fatal(err)
	}
	if share := one(t, sim, clue.Query.String(), rulesim.Epoch.Add(begins)); math.Abs(share-1./6) > 0.001 { // 60 of 360 within five minutes
		t.Errorf("%g of the requests fail in the engines, want a sixth", share)
	}
}

// TestUpgrade lets exporters begin to count stages while requests are served. Clients leave most of these requests
// after the first token. No alert may fire.
func TestUpgrade(t *testing.T) {
	sim := newSim(t, rules.Groups(rules.Options{})...)
	replicas := map[string]*replica{"p1": well(), "p2": well(), "p3": well()}
	w := &world{extra: func(at time.Duration, emit rulesim.Emit) {
		for _, pod := range slices.Sorted(maps.Keys(replicas)) {
			r := replicas[pod]
			r.left = 0.7
			r.emit(pod, func(l labels.Labels, v float64) {
				if at >= onset || l.Get(metrics.LabelStage) == "" {
					emit(l, v)
				}
			})
		}
	}}
	sim.OnAlert = func(at time.Time, a rulesim.Alert) { t.Errorf("%s: %s fires", at, a.Name) }
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(onset+30*time.Minute), scrapeEvery, w.scrape); err != nil {
		t.Fatal(err)
	}
}

// TestVerdictEarly reads the page as soon as it comes, for two replicas, the commonest fleet, and for a gateway if only
// its objective burns.
func TestVerdictEarly(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		want string
		trouble
	}{
		"one of two replicas": {
			"engine. p1 alone is slow: first tokens after 2s.",
			trouble{signal: slo.TTFT, replicas: 2, one: true, breaks: func(r *replica) { r.ttft = 2 }},
		},
		"its GPU and CPU are shared as ever": {
			"engine. Each token takes 4 times as long as the load explains.",
			trouble{
				signal: slo.ITL, replicas: 2, before: func(r *replica) { r.others, r.cpuWait = 0.5, 1.2 },
				breaks: func(r *replica) { r.others, r.cpuWait, r.itl, r.running = 0.6, 1.4, 0.08, 24 },
			},
		},
		"the cache misses": {
			"prefill. The prefix cache hit ratio is 10% of its usual value.",
			trouble{signal: slo.TTFT, replicas: 2, breaks: func(r *replica) { r.hits, r.queue, r.waiting = 0.06, 0.25, 40 }},
		},
		"the engines do well": {
			"nothing stands out yet.",
			trouble{signal: slo.TTFT, replicas: 2, role: metrics.GatewayRole, breaks: func(r *replica) { r.hits = 0.06 }},
		},
		"and fail no request": {"nothing stands out yet.", // a queue and the path to the engines do not, either
			trouble{signal: slo.Availability, replicas: 2, role: metrics.GatewayRole, one: true, breaks: func(r *replica) {
				r.waiting,
					r.gatewayTTFT = 40, 1.2
			}}},
		"but one of them started again": {
			"engine. p1 was gone or restarted in the last five minutes.",
			trouble{signal: slo.Availability, replicas: 2, role: metrics.GatewayRole, one: true, breaks: func(r *replica) {
				r.started,
					r.waiting = onset, 40
			}},
		},
		"one of two has the longer queue of a burst": {
			"queueing. 3 times as many requests arrive as usual.",
			trouble{signal: slo.TTFT, replicas: 2, each: func(pod string, r *replica) {
				if r.requests, r.itl, r.running, r.waiting, r.queue, r.ttft = 1800, 0.05, 18, 40, 0.24, 0.6; pod == "p1" {
					r.ttft = 2
				}
			}},
		},
		"three of four GPUs of a node are hot": {
			"hardware. 3 of 4 GPUs on node-1 are slowed down (hw_thermal_slowdown).",
			trouble{signal: slo.TTFT, replicas: 4, each: func(pod string, r *replica) {
				if pod != "p4" {
					r.throttled, r.queue = 1, 0.2
				}
			}},
		},
		"a roll-out has come to its last replica": {
			"release. 100% of the engines restarted in the last hour, without more requests than before.",
			trouble{signal: slo.ITL, replicas: 4, each: func(pod string, r *replica) {
				if r.started, r.itl, r.running = onset, 0.06, 12; pod == "p4" {
					r.down = true
				}
			}},
		},
		"a burst, most of which still waits": {
			"queueing. 1.8 times as many requests arrive as usual.",
			trouble{signal: slo.TTFT, replicas: 2, after: 2 * time.Minute, breaks: func(r *replica) {
				r.requests, r.itl, r.running, r.waiting, r.grows, r.queue = 720, 0.055, 28, 400, 400, 0.24
			}},
		},
		"one of two starts again, and its prefix cache fills": {
			"engine. p1 started minutes ago, and requests waited.",
			trouble{signal: slo.TTFT, replicas: 2, one: true, breaks: func(r *replica) {
				r.started, r.hits, r.itl, r.waiting, r.queue = onset, 0.3, 0.08, 9, 0.24
			}},
		},
		"a gateway that names no model": {
			"routing. Gateway g1 fails far more requests than the engines.",
			trouble{
				signal: slo.Availability, replicas: 2, role: metrics.GatewayRole, gateway: new(""),
				breaks: func(r *replica) { r.unreached = 1 },
			},
		},
		"or names it otherwise": {
			"routing. Gateway g1 fails far more requests than the engines.",
			trouble{
				signal: slo.Availability, replicas: 2, role: metrics.GatewayRole, gateway: new("unknown"),
				breaks: func(r *replica) { r.unreached = 1 },
			},
		},
		"and lets nothing through": {
			"routing. Gateway g1 fails far more requests than the engines.",
			trouble{signal: slo.Availability, replicas: 2, role: metrics.GatewayRole, gateway: new(""), breaks: func(r *replica) {
				r.unreached,
					r.requests = 1, 0
			}},
		},
		"and counts the failures of engines that count none themselves": {
			"engine. The engines themselves fail 100% of requests.",
			trouble{
				signal: slo.Availability, replicas: 2, role: metrics.GatewayRole, before: func(r *replica) { r.silent = true },
				breaks: func(r *replica) { r.unreached, r.failedThere, r.requests = 1, 1, 0 },
			},
		},
		"or at its own wrong address, of engines that do": {
			"routing. Gateway g1 fails far more requests than the engines.",
			trouble{signal: slo.Availability, replicas: 2, role: metrics.GatewayRole, breaks: func(r *replica) {
				r.unreached, r.failedThere, r.requests = 1, 1, 0
			}},
		},
		"and fails for an engine that was gone": {
			"engine. p1 was gone or restarted in the last five minutes.",
			trouble{signal: slo.Availability, replicas: 2, role: metrics.GatewayRole, one: true, breaks: func(r *replica) {
				r.unreached,
					r.minutes = 0.2, 2
			}},
		},
		"and refuses all when its engine is back": {
			"release. g1 refuses all requests as invalid; check key, model name and length.",
			trouble{signal: slo.Availability, replicas: 2, role: metrics.GatewayRole, breaks: func(r *replica) {
				r.unreached, r.refuses, r.minutes, r.requests = 1, true, 1, 0
			}},
		},
		"more requests, as chance has it, at engines that hardly work": {
			"engine. Each token takes 8 times as long as the load explains.",
			trouble{
				signal: slo.ITL, replicas: 2, before: func(r *replica) { r.requests, r.running = 30, 0.2 },
				breaks: func(r *replica) { r.requests, r.itl, r.running = 45, 0.16, 4 },
			},
		},
		"a few more, and far slower steps": {
			"engine. Each token takes 12 times as long as the load explains.",
			trouble{
				signal: slo.ITL, replicas: 2, before: func(r *replica) { r.requests, r.running = 300, 0.9 },
				breaks: func(r *replica) { r.requests, r.itl, r.running = 420, 0.24, 12 },
			},
		},
		"longer answers, as chance has it, at engines that hardly work": {
			"engine. Each token takes 8 times as long as the load explains.",
			trouble{
				signal: slo.ITL, replicas: 2, before: func(r *replica) { r.requests, r.running = 30, 0.2 },
				breaks: func(r *replica) { r.output, r.itl, r.running = 40, 0.16, 4 },
			},
		},
		"tokens are counted when a request ends, and few end": {
			"queueing. 80 requests wait or are refused, more than run.",
			trouble{signal: slo.TTFT, replicas: 2, breaks: func(r *replica) {
				r.requests, r.running, r.waiting, r.queue = 100, 24, 40, 0.24
			}},
		},
		"more requests, at a frontend that does not report how many wait": {
			"queueing. 3 times as many requests arrive as usual.",
			trouble{
				signal: slo.TTFT, replicas: 2, before: func(r *replica) { r.frontend = true },
				breaks: func(r *replica) { r.requests, r.itl, r.running = 1800, 0.05, 600 },
			},
		},
		"the cache misses, at a replica that has just started, too": {
			"prefill. The prefix cache hit ratio is 0% of its usual value.",
			trouble{signal: slo.TTFT, replicas: 2, each: func(pod string, r *replica) {
				if r.hits, r.queue, r.waiting = 0, 0.25, 40; pod == "p1" {
					r.started = onset
				}
			}},
		},
		"far more": {
			"decode. 60 times as many requests as usual run at once.",
			trouble{
				signal: slo.ITL, replicas: 2, before: func(r *replica) { r.requests, r.running = 30, 0.2 },
				breaks: func(r *replica) { r.requests, r.itl, r.running = 180, 0.16, 12 },
			},
		},
		"one of two fails, for two minutes of five": {
			"engine. p1 fails 95% of its requests, and the other replicas do not.",
			trouble{signal: slo.Availability, replicas: 2, one: true, after: 2 * time.Minute, breaks: func(r *replica) { r.fails = 1 }},
		},
		"both fail, and one of them gets the requests": {
			"engine. The engines themselves fail 28% of requests.",
			trouble{signal: slo.Availability, replicas: 2, after: 2 * time.Minute, each: func(pod string, r *replica) {
				if r.fails = 1; pod != "p1" {
					r.requests = 0
				}
			}},
		},
		"and its engines fail, too": {
			"nothing stands out yet.",
			trouble{signal: slo.Availability, replicas: 2, role: metrics.GatewayRole, gateway: new(""), breaks: func(r *replica) {
				r.unreached,
					r.fails = 1, 1
			}},
		},
		"and its engines are gone with their pods": {
			"engine. p1 was gone or restarted in the last five minutes.",
			trouble{signal: slo.Availability, replicas: 1, role: metrics.GatewayRole, after: 2 * time.Minute, breaks: func(r *replica) {
				r.unreached,
					r.evicted = 1, true
			}},
		},
		"and their exporter is gone": {
			"nothing stands out yet.",
			trouble{signal: slo.Availability, replicas: 1, role: metrics.GatewayRole, after: 2 * time.Minute, breaks: func(r *replica) {
				r.unreached,
					r.unread = 1, true
			}},
		},
		"the way to them does not": {
			"routing. First tokens are 900ms later at the gateway than at the engines.",
			trouble{signal: slo.TTFT, replicas: 2, role: metrics.GatewayRole, breaks: func(r *replica) { r.hits, r.gatewayTTFT = 0.06, 1.2 }},
		},
	}
	all := map[string]trouble{}
	for name, c := range cases {
		c.target, c.after = "99.9%", cmp.Or(c.after, 4*time.Minute)
		all[name] = c.trouble
	}
	said := firstLines(t, burnRules(t), all)
	for name, c := range cases {
		if said[name] != c.want {
			t.Errorf("%s: the page begins with %q, not %q", name, said[name], c.want)
		}
	}
}

// onset is late enough for data of the day before, which ends an hour before now.
const onset = 70 * time.Minute

// burnRules returns the rules that a page reads, and that page.
func burnRules(t *testing.T) []byte {
	t.Helper()
	burn := group(t, rules.Options{}, "llm-slo-burn")
	burn.Alerts = burn.Alerts[:1]
	content, err := rules.Encode(rules.NewFile(reading(rules.Options{}, burn, append(burn.Alerts[0].Asks(), burn.Alerts[0].Expr)...),
		rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// trouble breaks one or all of some replicas at the onset, and makes every event of an objective bad. The events
// are at the first replica or, with a role, at a server with that role while the replica is healthy.
type trouble struct {
	signal   slo.Signal
	target   string
	role     string
	gateway  *string // the gateway's name for the model; nil means the engines' name
	replicas int
	one      bool
	before   func(r *replica) // nil means the same as well()
	breaks   func(r *replica)
	each     func(pod string, r *replica) // in place of breaks
	after    time.Duration                // of the page that is read
}

// firstLines returns the line "Look first at" of each trouble's page, or nothing. All troubles happen side by side,
// each in a cluster of its own.
func firstLines(t *testing.T, content []byte, all map[string]trouble) map[string]string {
	t.Helper()
	sim, err := rulesim.New(content)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	var worlds []func(at time.Time, emit rulesim.Emit)
	var last time.Duration
	for cluster, of := range all {
		w := of.world(t)
		last = max(last, of.after)
		worlds = append(worlds, func(at time.Time, emit rulesim.Emit) {
			w.scrape(at, func(l labels.Labels, v float64) {
				emit(labels.NewBuilder(l).Set(metrics.LabelCluster, cluster).Labels(), v)
			})
		})
	}
	said := map[string]string{}
	sim.OnAlert = func(at time.Time, a rulesim.Alert) {
		cluster := a.Labels.Get(metrics.LabelCluster)
		if a.Name != fastBurn || at.Sub(rulesim.Epoch) != onset+all[cluster].after-scrapeEvery {
			return
		}
		first, _, _ := strings.Cut(a.Annotations.Get("split"), "\n")
		line, ok := strings.CutPrefix(first, "Look first at: ")
		if !ok {
			line = ""
		}
		said[cluster] = line
	}
	if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(onset+last), scrapeEvery, func(at time.Time, emit rulesim.Emit) {
		for _, scrape := range worlds {
			scrape(at, emit)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for cluster := range all {
		if _, ok := said[cluster]; !ok {
			t.Errorf("%s: no page", cluster)
		}
	}
	return said
}

func (of trouble) world(t *testing.T) *world {
	t.Helper()
	o := objective(t, of.target, slo.DefaultPeriod)
	o.Signal = of.signal
	replicas := map[string]*replica{}
	for n := range of.replicas {
		r := well()
		if of.before != nil {
			of.before(r)
		}
		replicas[fmt.Sprintf("p%d", n+1)] = r
	}
	name := "m"
	if of.gateway != nil {
		name = *of.gateway
		replicas["p1"].gatewayModel = of.gateway
	}
	w := &world{objectives: []slo.Objective{o}, services: []*service{{
		model: name, pod: "p1", role: of.role, slo: o.Name, threshold: "0.5",
		perSecond: constant(10), badShare: during(onset, 9*hour, 1, 0),
	}}}
	if of.role != "" {
		w.services = append(w.services, &service{
			model: "m", pod: "p1", slo: o.Name, threshold: "0.5", perSecond: constant(10),
			badShare: constant(0),
		})
	}
	w.extra = func(at time.Duration, emit rulesim.Emit) {
		for _, pod := range slices.Sorted(maps.Keys(replicas)) {
			r := replicas[pod]
			switch {
			case at != onset:
			case of.each != nil:
				of.each(pod, r)
			case !of.one || pod == "p1":
				of.breaks(r)
			}
			r.emit(pod, emit)
		}
	}
	return w
}
