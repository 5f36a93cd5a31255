package rules_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// The traffic of this week is a separate model: requests with lengths arrive, wait, are computed and end on engines that
// start, scale and leave. It shares only the names of series with the rules. Times count from Monday, midnight.

// job is one request.
type job struct {
	arrived, first time.Duration // first is when its first token comes, 0 until it is scheduled
	prompt, output float64       // tokens
	cached         float64       // share of the prompt that the prefix cache has
	made           float64       // tokens so far
	outcome        metrics.Outcome
	long           bool // for the replica that a router reserves for long prompts
}

// kind is the set of metrics that an engine reports.
type kind uint8

const (
	saysAll  kind = iota // vLLM
	atEnd                // TGI: no time to first token, tokens are counted when their request ends
	countsNo             // an old llama.cpp: neither requests nor steps nor latencies, tokens at the end
	embeds               // TEI: no tokens
)

// deployment is one model, or one role of it, in a namespace with its own name.
type deployment struct {
	name, model, role, runtime string
	kind                       kind
	objectives                 []slo.Objective

	perSecond func(at time.Duration) float64 // requests that arrive
	kept      func(at time.Duration) int     // or number of requests that a batch job keeps in progress
	draw      func(w *week, at time.Duration) job
	want      func(f *deployment, at time.Duration) int // replicas
	after     *deployment                               // the decode engines of these prefill engines

	prefill, knee, capacity float64       // tokens per second; batch at which tokens take twice as long; tokens in the KV cache
	token                   time.Duration // time between tokens of a single request
	seqs                    int           // requests that run at once
	ranks                   int           // how many data-parallel ranks share a metrics endpoint
	loads                   time.Duration // from the start of an engine until it serves
	slowStart               int           // requests that must wait for kernels to compile

	version  string
	replicas []*engine
	born     int
	ended    int
	smooth   float64 // arrivals per second, as an autoscaler sees them
}

// engine is one replica on its own GPU and node, or one data-parallel rank of a replica on a GPU of the node.
type engine struct {
	*deployment
	pod, node, gpu, release string
	rank                    int
	started, ready          time.Duration
	leaves                  bool // gets no more requests and ends with its last request
	waiting, running        []*job
	computes                time.Duration // until when it computes prompts
	served                  int
	capped                  bool // its GPU is held at a power limit
	cancelled               bool // its last request, which vLLM shows as running until the next step
	usage                   float64
	counts                  map[string]float64
	series                  map[string]labels.Labels
	page, labels, gpuL      []string
	ranked                  []string // labels with the rank
}

// week holds all fleets.
type week struct {
	rng      *rand.Rand
	fleets   []*deployment
	rebooted map[string][2]time.Duration // nodes whose exporter does not answer
	noise    map[*deployment]float64
}

const tick = 5 * time.Second

func clock(at time.Duration) (weekday int, hourOfDay float64) {
	at += 7 * day
	return int(at/day) % 7, (at % day).Hours()
}

// office returns the traffic of people at work. It rises and falls over the day, is a third as high at weekends, and is
// low at night.
func office(peak float64) func(time.Duration) float64 {
	return func(at time.Duration) float64 {
		weekday, h := clock(at)
		share := 0.08 + 0.92*math.Exp(-math.Pow((h-14)/4.2, 4))
		if weekday >= 5 {
			share *= 0.35
		}
		if weekday == 0 {
			share *= 1.15
		}
		return peak * share
	}
}

func (w *week) poisson(mean float64) int {
	if mean > 30 {
		return max(0, int(math.Round(mean+math.Sqrt(mean)*w.rng.NormFloat64())))
	}
	n, p := 0, w.rng.Float64()
	for limit := math.Exp(-mean); p > limit; n++ {
		p *= w.rng.Float64()
	}
	return n
}

func (w *week) lognormal(median, sigma float64) float64 {
	return median * math.Exp(sigma*w.rng.NormFloat64())
}

// chat returns prompts and answers of people. Prompts repeat by day, when many share a system prompt, and repeat less
// at night.
func chat(prompt, answer, cached float64) func(w *week, at time.Duration) job {
	return func(w *week, at time.Duration) job {
		cached := cached
		if _, h := clock(at); h < 7 || h > 21 {
			cached *= 0.8
		}
		return job{
			prompt: min(w.lognormal(prompt, 0.8), 6000), output: 1 + min(w.lognormal(answer, 0.7), 2000),
			cached: min(cached*(0.8+0.4*w.rng.Float64()), 0.95),
		}
	}
}

// arrive gives a request to an engine: to the less busy of two engines, or to the engine for long prompts.
func (w *week) arrive(f *deployment, r job) {
	var open []*engine
	for _, e := range f.replicas {
		if !e.leaves && e.ready <= r.arrived {
			open = append(open, e)
		}
	}
	if len(open) == 0 {
		return // the request waits, or fails, at a gateway
	}
	a, b := open[w.rng.IntN(len(open))], open[w.rng.IntN(len(open))]
	switch {
	case r.long:
		a = open[0]
	case len(b.waiting)+len(b.running) < len(a.waiting)+len(a.running):
		a = b
	}
	switch chance := w.rng.Float64(); {
	case chance < 0.0002:
		r.outcome, r.output = metrics.OutcomeError, 1
	case chance < 0.015:
		r.outcome, r.output = metrics.OutcomeAbort, max(1, r.output*w.rng.Float64())
	case r.outcome == "":
		r.outcome = metrics.OutcomeStop
	}
	a.waiting = append(a.waiting, &r)
	a.add("arrived", 1)
}

// step advances the week by the tick that ends at to.
func (w *week) step(to time.Duration) {
	from := to - tick
	for _, f := range w.fleets {
		w.scale(f, to)
		if f.perSecond != nil {
			rate := f.perSecond(from) * w.noise[f]
			f.smooth += (rate - f.smooth) * tick.Seconds() / 300
			at := make([]time.Duration, w.poisson(rate*tick.Seconds()))
			for i := range at {
				at[i] = from + time.Duration(w.rng.Int64N(int64(tick)))
			}
			slices.Sort(at)
			for _, at := range at {
				r := f.draw(w, at)
				r.arrived = at
				w.arrive(f, r)
			}
		}
		if f.kept != nil {
			under := 0
			for _, e := range f.replicas {
				under += len(e.waiting) + len(e.running)
			}
			for ; under < f.kept(from); under++ {
				r := f.draw(w, from)
				r.arrived = from
				w.arrive(f, r)
			}
		}
		for _, e := range f.replicas {
			e.work(w, from, to)
		}
		f.replicas = slices.DeleteFunc(f.replicas, func(e *engine) bool { return e.leaves && len(e.waiting)+len(e.running) == 0 })
	}
}

func (w *week) scale(f *deployment, at time.Duration) {
	var stay []*engine
	for _, e := range f.replicas {
		if !e.leaves {
			stay = append(stay, e)
		}
	}
	want := f.want(f, at)
	for n := len(stay); n < want; n++ {
		w.start(f, at, fmt.Sprintf("%s-n%d", f.name, f.born))
	}
	for n := len(stay); n > want; n-- {
		stay[n-1].leaves = true
	}
}

// start starts an engine on a node.
func (w *week) start(f *deployment, at time.Duration, node string) *engine {
	n, rank := f.born/f.ranks, f.born%f.ranks
	if rank > 0 {
		node = f.replicas[len(f.replicas)-1].node
	}
	pod := fmt.Sprintf("%s%s-%d", f.model, f.role, n)
	e := &engine{
		deployment: f, pod: pod, rank: rank, node: node, gpu: fmt.Sprintf("GPU-%s%s-%d", node, f.role, rank), release: f.version,
		started: at, ready: at + f.loads, computes: at,
		counts: map[string]float64{}, series: map[string]labels.Labels{},
	}
	e.page = []string{
		metrics.LabelRuntime, f.runtime, metrics.LabelNamespace, f.name, metrics.LabelPod, pod, metrics.LabelServer,
		fmt.Sprintf("10.0.%d.%d:8000", n/250, n%250),
	}
	e.labels = append([]string{metrics.LabelModel, f.model, metrics.LabelRole, f.role}, e.page...)
	e.ranked = append([]string{metrics.LabelDPRank, strconv.Itoa(rank)}, e.labels...)
	e.gpuL = []string{metrics.LabelGPUUUID, e.gpu, metrics.LabelGPU, strconv.Itoa(rank)}
	f.born++
	f.replicas = append(f.replicas, e)
	return e
}

func (e *engine) add(name string, v float64) { e.counts[name] += v }

// work simulates the engine's work in a tick: it decodes running requests, makes room, admits waiting requests and
// computes their prompts.
func (e *engine) work(w *week, from, to time.Duration) {
	s := tick.Seconds()
	itl := e.token.Seconds() * (1 + float64(len(e.running))/e.knee)
	if e.capped {
		itl *= 1.1
	}
	if len(e.running) > 0 {
		e.add("steps", s/itl)
		e.add("busy", s)
		if e.capped {
			e.add("capped", s*0.6)
		}
	} else {
		e.add("idle", s)
	}
	held, decoding, keep := 0., 0., e.running[:0]
	for _, r := range e.running {
		if since := to - max(r.first, from); since > 0 {
			made := min(since.Seconds()/itl, r.output-r.made)
			r.made += made
			e.add("tokens", made)
			e.add("gaps", made)
			e.add("gaps_sum", made*itl)
			decoding += made * itl / s
			if itl > 0.05 {
				e.add("gaps_slow", made)
			}
		}
		if r.made >= r.output && r.first <= to {
			e.end(r)
			if e.after != nil {
				next := *r
				next.arrived, next.first, next.made, next.cached, next.output = to, 0, 0, 1, r.prompt/4+1
				w.arrive(e.after, next)
			}
			continue
		}
		held += r.prompt + r.made
		keep = append(keep, r)
	}
	e.running = keep
	for held > e.capacity && len(e.running) > 1 {
		last := e.running[len(e.running)-1]
		e.running = e.running[:len(e.running)-1]
		held -= last.prompt + last.made
		e.waiting = slices.Insert(e.waiting, 0, last)
		e.add("preempted", 1)
	}
	for len(e.waiting) > 0 && len(e.running) < e.seqs {
		r := e.waiting[0]
		if held+r.prompt+r.made > e.capacity*0.99 {
			break
		}
		e.waiting = e.waiting[1:]
		at := max(r.arrived, e.computes)
		if len(e.running) > 0 && r.arrived < from {
			at = max(at, from)
		}
		cached := r.cached * min(1, max(0, (to-e.ready).Minutes()/20))
		takes := 0.01 + (r.prompt*(1-cached)+r.made)/e.prefill
		if chunk := min(takes, 0.1); itl+chunk > 0.05 {
			e.add("gaps_slow", decoding*math.Ceil(takes/0.1))
		}
		if e.served++; e.served <= e.slowStart {
			takes += 0.5 + w.rng.Float64()
		}
		e.computes = at + time.Duration(takes*float64(time.Second))
		if r.first == 0 {
			first := (e.computes - r.arrived).Seconds()
			r.made = 1
			e.add("tokens", 1)
			e.add("first", 1)
			e.add("first_sum", first)
			e.add("queue_sum", (at - r.arrived).Seconds())
			e.add("prefill_sum", takes)
			e.add("prompt_sum", r.prompt)
			e.add("cached", r.prompt*cached)
			if first > 0.5 {
				e.add("first_slow", 1)
			}
			if first > 10 {
				e.add("first_severe", 1)
			}
		}
		r.first = e.computes
		held += r.prompt + r.made
		e.running = append(e.running, r)
	}
	e.usage = held / e.capacity
}

func (e *engine) end(r *job) {
	e.add("ended/"+string(r.outcome), 1)
	e.add("ended", 1)
	e.ended++
	e.add("ended_tokens", r.made)
	if r.outcome == metrics.OutcomeError {
		e.add("failed", 1)
	}
	e.cancelled = r.outcome == metrics.OutcomeAbort && e.kind == saysAll
	if r.outcome != metrics.OutcomeAbort {
		e.add("judged", 1)
	}
}

// emit emits the exporters' series.
func (w *week) emit(at time.Duration, emit rulesim.Emit) {
	nodes := map[string]bool{}
	plain := func(name, node string, v float64, more ...string) {
		emit(labels.FromStrings(append([]string{model.MetricNameLabel, name, "job", "llm-node-exporter", metrics.LabelInstance, node},
			more...)...), v)
	}
	for _, f := range w.fleets {
		for _, e := range f.replicas {
			if down, ok := w.rebooted[e.node]; ok && at >= down[0] && at < down[1] {
				if !nodes[e.node] {
					plain(metrics.Up.Name, e.node, 0)
				}
				nodes[e.node] = true
				continue
			}
			if !nodes[e.node] {
				nodes[e.node] = true
				plain(metrics.Up.Name, e.node, 1)
				plain(metrics.GPUNVMLUp.Name, e.node, 1)
				plain(metrics.GPUExpected.Name, e.node, float64(f.ranks))
				for xid, severity := range map[string]string{"13": "app", "79": "page"} {
					plain(metrics.GPUXIDInfo.Name, e.node, 1, metrics.LabelXID, xid, metrics.LabelSeverity, severity)
				}
				for _, o := range f.objectives {
					origin := ""
					if o.Default {
						origin = metrics.OriginDefault
					}
					absent := 0.
					if o.MayBeAbsent {
						absent = 1
					}
					plain(metrics.SLOObjective.Name, e.node, o.Target.Float(), metrics.LabelSLO, o.Name)
					plain(metrics.SLOPeriod.Name, e.node, o.Period.Std().Seconds(), metrics.LabelSLO, o.Name)
					plain(metrics.SLOMayBeAbsent.Name, e.node, absent, metrics.LabelSLO, o.Name)
					plain(metrics.SLOInfo.Name, e.node, 1, metrics.LabelSLO, o.Name, metrics.LabelSignal, string(o.Signal),
						metrics.LabelPeriod, o.Period.String(), metrics.LabelSeverity, "page", metrics.LabelOrigin, origin)
				}
			}
			e.emit(at, emit)
		}
	}
}

func (e *engine) emit(at time.Duration, emit rulesim.Emit) {
	show := func(f *metrics.Family, part string, v float64, who []string, more ...string) {
		key := f.Name + part + strings.Join(more, ",")
		l, ok := e.series[key]
		if !ok {
			l = labels.FromStrings(slices.Concat([]string{
				model.MetricNameLabel, f.Name + part, "job", "llm-node-exporter",
				metrics.LabelInstance, e.node,
			}, who, more)...)
			e.series[key] = l
		}
		emit(l, v)
	}
	once := func(f *metrics.Family, v float64, who []string, more ...string) { // per metrics endpoint, not per rank
		if e.rank == 0 {
			show(f, "", v, who, more...)
		}
	}
	c := e.counts
	show(metrics.GPUUp, "", 1, e.gpuL)
	show(metrics.GPUMissing, "", 0, nil, metrics.LabelPCIBusID, fmt.Sprintf("0000:0%d:00.0", 1+e.rank))
	show(metrics.GPURowRemapPending, "", 0, e.gpuL)
	show(metrics.GPURowRemapFailure, "", 0, e.gpuL)
	show(metrics.GPUSRAMThreshold, "", 0, e.gpuL)
	show(metrics.GPUUtilization, "", min(1, float64(len(e.running))), e.gpuL)
	watts, hertz := 80+420*min(1, float64(len(e.running))/e.knee), 345e6 // an idle GPU clocks down
	if len(e.running) > 0 {
		watts, hertz = watts+120, 1980e6
	}
	show(metrics.GPUPower, "", watts, e.gpuL, metrics.LabelScope, "gpu")
	show(metrics.GPUPowerLimit, "", 700, e.gpuL, metrics.LabelKind, "enforced")
	show(metrics.GPUClock, "", hertz, e.gpuL, metrics.LabelDomain, "sm")
	show(metrics.GPUClockMax, "", 1980e6, e.gpuL, metrics.LabelDomain, "sm")
	show(metrics.GPUFabricState, "", 1, e.gpuL, metrics.LabelState, "completed")
	show(metrics.GPUECCErrors, "", math.Floor((at-e.started).Hours()/50), e.gpuL, metrics.LabelSeverity, "corrected",
		metrics.LabelLocation, "dram", metrics.LabelLifetime, "volatile")
	show(metrics.GPUNVLinkErrors, "", math.Floor((at-e.started).Hours()/30), e.gpuL, metrics.LabelLink, "0", metrics.LabelType, "recovery")
	for reason, seconds := range map[string]float64{
		"gpu_idle": c["idle"], "sw_power_cap": c["capped"], "hw_thermal_slowdown": 0,
		"hw_power_brake_slowdown": 0,
	} {
		show(metrics.GPUClockEventSeconds, "", seconds, e.gpuL, metrics.LabelReason, reason, metrics.LabelSource, "driver")
	}
	if c["xid13"] > 0 {
		show(metrics.GPUXIDErrors, "", c["xid13"], e.gpuL, metrics.LabelXID, "13")
	}
	show(metrics.GPUPCIeLinkWidth, "", 16, e.gpuL, metrics.LabelState, "current")
	show(metrics.GPUPCIeLinkWidth, "", 16, e.gpuL, metrics.LabelState, "max")
	if at < e.ready {
		if e.kind == countsNo || e.kind == atEnd {
			once(metrics.EngineUp, 0, e.page, metrics.LabelReason, "loading")
		}
		return
	}
	once(metrics.EngineUp, 1, e.page)
	once(metrics.EngineRestarts, 0, e.page)
	once(metrics.EngineInfo, 1, e.labels, metrics.LabelVersion, e.release)
	show(metrics.EngineGPUInfo, "", 1, e.labels, e.gpuL...)
	waiting := 0.
	for _, r := range e.waiting {
		if r.arrived <= at {
			waiting++
		}
	}
	show(metrics.RequestsWaiting, "", waiting, e.ranked)
	if e.kind != embeds {
		running := len(e.running)
		if running == 0 && waiting == 0 && e.cancelled {
			running = 1
		}
		show(metrics.RequestsRunning, "", float64(running), e.ranked)
		made, counted := c["tokens"], metrics.CountedStep
		if e.kind != saysAll {
			made, counted = c["ended_tokens"], metrics.CountedEnd
		}
		show(metrics.GenerationTokens, "", math.Floor(made), e.ranked)
		once(metrics.MetricSourceInfo, 1, e.page, metrics.LabelMetric, metrics.GenerationTokens.Name, metrics.LabelQuality, "native",
			metrics.LabelCounted, string(counted))
	}
	show(metrics.PromptTokens, "", math.Floor(c["prompt_sum"]), e.ranked)
	computed := c["prompt_sum"]
	if e.kind == saysAll {
		computed -= c["cached"]
	}
	show(metrics.PrefillComputedTokens, "", math.Floor(computed), e.ranked)
	histogram := func(f *metrics.Family, count, sum float64) {
		stage, of := f.Stage()
		show(metrics.Stages, "", math.Floor(count), e.ranked, metrics.LabelStage, stage)
		show(of, "", sum, e.ranked, metrics.LabelStage, stage)
	}
	if e.kind != countsNo {
		show(metrics.RequestsArrived, "", c["arrived"], e.ranked)
		for _, o := range []metrics.Outcome{metrics.OutcomeStop, metrics.OutcomeLength, metrics.OutcomeAbort, metrics.OutcomeError} {
			show(metrics.Requests, "", c["ended/"+string(o)], e.ranked, metrics.LabelOutcome, string(o))
		}
		histogram(metrics.QueueTime, c["first"], c["queue_sum"])
		histogram(metrics.RequestPromptTokens, c["first"], c["prompt_sum"])
	}
	if e.kind == saysAll || e.kind == atEnd {
		show(metrics.EngineSteps, "", math.Floor(c["steps"]), e.ranked)
		histogram(metrics.InterTokenLatency, c["gaps"], c["gaps_sum"])
		histogram(metrics.RequestGenerationTokens, c["ended"], c["ended_tokens"])
	}
	if e.kind == saysAll {
		once(metrics.EngineStartTime, float64(rulesim.Epoch.Add(e.started).Unix()), e.page)
		show(metrics.KVCacheUsage, "", e.usage, e.ranked)
		histogram(metrics.TimeToFirstToken, c["first"], c["first_sum"])
		show(metrics.TimeToFirstToken, "_bucket", math.Floor(c["first"]), e.ranked, "le", "+Inf")
		histogram(metrics.PrefillTime, c["first"], c["prefill_sum"])
		show(metrics.Preemptions, "", c["preempted"], e.ranked)
		show(metrics.PrefixCacheQueryTokens, "", c["prompt_sum"], e.ranked)
		show(metrics.PrefixCacheHitTokens, "", c["cached"], e.ranked)
		show(metrics.SpecDecodeDraftTokens, "", math.Floor(c["tokens"]), e.ranked)
		show(metrics.SpecDecodeAcceptedTokens, "", math.Floor(0.7*c["tokens"]), e.ranked)
	}
	for _, o := range e.objectives {
		var events, bad float64
		known := e.kind == saysAll
		switch o.Signal {
		case slo.TTFT:
			events, bad = c["first"], c["first_slow"]
			if o.Threshold > slo.Duration(time.Second) {
				bad = c["first_severe"]
			}
		case slo.ITL:
			events, bad, known = math.Floor(c["gaps"]), math.Floor(c["gaps_slow"]), known || e.kind == atEnd
			if o.Threshold > slo.Duration(100*time.Millisecond) {
				bad = 0
			}
		case slo.Availability:
			events, bad, known = c["judged"], c["failed"], e.kind != countsNo
		default:
			panic("the week has no events of " + o.Signal)
		}
		if !known {
			show(metrics.SLOCounted, "", 0, e.ranked, metrics.LabelSLO, o.Name, metrics.LabelReason, "signal_missing")
			continue
		}
		show(metrics.SLOCounted, "", 1, e.ranked, metrics.LabelSLO, o.Name)
		show(metrics.SLOEvents, "", events, e.ranked, metrics.LabelSLO, o.Name, metrics.LabelThreshold, "0.5")
		show(metrics.SLOBadEvents, "", bad, e.ranked, metrics.LabelSLO, o.Name, metrics.LabelThreshold, "0.5")
	}
}

func replicas(n int) func(*deployment, time.Duration) int {
	return func(*deployment, time.Duration) int { return n }
}

// ordinary returns eight fleets without any fault.
func ordinary() *week {
	w := &week{rng: rand.New(rand.NewPCG(*seed, 7)), rebooted: map[string][2]time.Duration{}, noise: map[*deployment]float64{}}
	add := func(f deployment) *deployment {
		f.runtime, f.version = cmp.Or(f.runtime, "vllm"), cmp.Or(f.version, "0.30.0")
		f.model = cmp.Or(f.model, f.name)
		f.token, f.knee, f.seqs, f.ranks = cmp.Or(f.token, 15*time.Millisecond), cmp.Or(f.knee, 60), cmp.Or(f.seqs, 128), cmp.Or(f.ranks, 1)
		f.prefill, f.capacity, f.loads = cmp.Or(f.prefill, 40000), cmp.Or(f.capacity, 400_000), cmp.Or(f.loads, 4*time.Minute)
		if f.objectives == nil {
			f.objectives = slo.Defaults()
		}
		w.fleets = append(w.fleets, &f)
		return &f
	}
	named := func(suffix string, absent bool, signals ...slo.Signal) []slo.Objective {
		var of []slo.Objective
		for _, o := range slo.Defaults() {
			if slices.Contains(signals, o.Signal) {
				o.Name, o.MayBeAbsent, o.Default = o.Name+"_"+suffix, absent, false
				of = append(of, o)
			}
		}
		return of
	}

	add(deployment{name: "chat", perSecond: office(5), draw: chat(500, 200, 0.6), want: replicas(4)})
	add(deployment{name: "scaled", perSecond: office(8), draw: chat(600, 200, 0.6), want: func(f *deployment, _ time.Duration) int {
		up, down := int(math.Ceil(f.smooth/1.1)), int(math.Ceil(f.smooth/0.8))
		return min(8, max(2, up, min(down, f.running())))
	}})

	computes := add(deployment{
		name: "split", role: "prefill", perSecond: office(4), want: replicas(3),
		draw: func(w *week, at time.Duration) job {
			r := chat(500, 200, 0.3)(w, at)
			if w.rng.Float64() < 0.15 {
				r.prompt, r.cached, r.long = min(w.lognormal(6000, 0.3), 9000), 0.7, true
			}
			r.output, r.outcome = 1, metrics.OutcomeLength
			return r
		},
	})
	computes.after = add(deployment{name: "split", role: "decode", want: replicas(3)})

	add(deployment{
		name: "batch", want: replicas(2), ranks: 2, token: 25 * time.Millisecond, objectives: named("batch", false,
			slo.Availability),
		draw: func(w *week, _ time.Duration) job {
			return job{prompt: w.lognormal(1500, 0.5), output: 1 + min(w.lognormal(3500, 0.5), 12000)}
		},
		kept: func(at time.Duration) int {
			if _, h := clock(at); h >= 1 && h < 5 {
				return 500
			}
			return 0
		},
	})

	tuesday := day + 9*hour
	since := func(n int) func(*deployment, time.Duration) int {
		return func(_ *deployment, at time.Duration) int {
			if at < tuesday {
				return 0
			}
			return n
		}
	}
	add(deployment{
		name: "small", model: "embed", runtime: "tei", kind: embeds, perSecond: office(20), want: since(2), loads: time.Minute,
		prefill: 200_000,
		draw:    func(w *week, _ time.Duration) job { return job{prompt: w.lognormal(200, 0.6), output: 1} },
	})
	add(deployment{
		name: "small", model: "complete", perSecond: office(6), want: since(2), token: 6 * time.Millisecond, loads: 2 * time.Minute,
		draw: func(w *week, at time.Duration) job {
			r := chat(1500, 40, 0.8)(w, at)
			if r.output > 30 {
				r.output, r.outcome = 30, metrics.OutcomeLength
			}
			return r
		},
	})

	patient := func(w *week, _ time.Duration) job {
		return job{prompt: w.lognormal(3000, 0.5), output: min(w.lognormal(8000, 0.6), 28000)}
	}
	thrice := func(time.Duration) float64 { return 3. / 3600 }
	add(deployment{
		name: "rare", model: "tgi", runtime: "tgi", kind: atEnd, perSecond: thrice, draw: patient, want: replicas(1),
		token: 25 * time.Millisecond,
	})
	add(deployment{
		name: "rare", model: "llama", runtime: "llamacpp", kind: countsNo, perSecond: thrice, draw: patient, want: replicas(1),
		token: 25 * time.Millisecond,
	})

	awake := func(at time.Duration) bool { // four sittings a day, each at a different minute
		weekday, h := clock(at)
		for i, from := range []float64{8.5, 11.5, 15, 20} {
			from += 0.3 * math.Sin(float64(7*weekday+i))
			if h >= from && h < from+0.7+0.4*math.Sin(float64(5*weekday+3*i)) {
				return true
			}
		}
		return false
	}
	add(deployment{
		name: "serverless", slowStart: 2, loads: 90 * time.Second, objectives: named("serverless", true, slo.TTFT, slo.ITL,
			slo.Availability), draw: chat(500, 200, 0.5),
		perSecond: func(at time.Duration) float64 {
			if awake(at) {
				return 0.5
			}
			return 0
		},
		want: func(_ *deployment, at time.Duration) int {
			if awake(at) || awake(at-10*time.Minute) {
				return 1
			}
			return 0
		},
	})

	add(deployment{name: "moving", perSecond: office(5), draw: chat(500, 200, 0.6), want: replicas(4)})
	return w
}

func (f *deployment) running() int {
	n := 0
	for _, e := range f.replicas {
		if !e.leaves {
			n++
		}
	}
	return n
}

// events are the events of the moving fleet: each event comes once a week.
func (w *week) events(at time.Duration) {
	f := w.fleets[len(w.fleets)-1]
	switch at {
	case day + 6*hour, 3*day + 11*hour: // its exporter restarts
		w.rebooted[f.replicas[1].node] = [2]time.Duration{at, at + time.Minute}
	case 15 * hour, day + 7*hour, 5*day + 12*hour: // a spot node leaves
		f.replicas[3].leaves = true
	case day + 8*hour:
		f.replicas[0].add("xid13", 1)
	case day + 3*hour + 20*time.Minute: // a node reboots, and its engine with it
		e := f.replicas[2]
		w.rebooted[e.node] = [2]time.Duration{at, at + 6*time.Minute}
		e.leaves, e.waiting, e.running = true, nil, nil
		w.start(f, at, e.node).ready = at + 10*time.Minute
	case 2*day + 10*hour:
		f.version = "0.31.0"
	}
	if since := at - (2*day + 10*hour); since >= 0 && since%(8*time.Minute) == 0 {
		for _, e := range f.replicas {
			if e.release != f.version && !e.leaves {
				e.leaves = true
				break
			}
		}
	}
	for _, e := range f.replicas {
		e.capped = e.capped || e.pod == "moving-0"
	}
}

// TestOrdinaryWeek is a week without any page or ticket. With -long it is the whole week, otherwise Tuesday from a
// quarter to six until a quarter past nine: an exporter restarts, a spot node leaves, an XID of a user's code, a model
// that scaled to zero wakes.
func TestOrdinaryWeek(t *testing.T) {
	t.Parallel()
	from, until := day+5*hour+45*time.Minute, day+9*hour+15*time.Minute
	if *long {
		from, until = 0, 7*day
	}
	w := ordinary()
	sim := newSim(t, rules.Groups(rules.Options{})...)

	type key struct{ fleet, severity, alert string }
	starts := map[key]int{}
	firing, seen := map[string]bool{}, map[string]bool{}
	var last time.Time
	sim.OnAlert = func(at time.Time, a rulesim.Alert) {
		if !at.Equal(last) {
			if at.Sub(last) > time.Minute {
				seen = map[string]bool{}
			}
			firing, seen, last = seen, map[string]bool{}, at
		}
		id := a.Labels.String()
		if seen[id] = true; !firing[id] {
			fleet, _, _ := strings.Cut(cmp.Or(a.Labels.Get(metrics.LabelNamespace), a.Labels.Get(metrics.LabelInstance)), "-")
			k := key{fleet, a.Labels.Get("severity"), a.Name}
			if starts[k]++; k.severity != "info" {
				t.Errorf("%s %s", at.Format("Mon 15:04"), a.Labels)
			}
		}
	}
	var ticks []time.Time
	for at := from - day; at < until; at += time.Minute {
		for _, f := range w.fleets {
			w.noise[f] = w.lognormal(1, 0.12)
		}
		w.events(at)
		for s := tick; s <= time.Minute; s += tick {
			w.step(at - time.Minute + s)
		}
		now := rulesim.Epoch.Add(at)
		if err := sim.Scrape(now, func(_ time.Time, emit rulesim.Emit) { w.emit(at, emit) }); err != nil {
			t.Fatal(err)
		}
		if at >= from { // the rules were installed on this day
			ticks = append(ticks, now)
		}
		if len(ticks) == 120 || at == until-time.Minute {
			if err := sim.EvalAll(ticks); err != nil {
				t.Fatal(err)
			}
			ticks = nil
		}
	}

	var table strings.Builder
	fmt.Fprintln(&table, "| fleet | model | requests | pages | tickets | which |\n| --- | --- | --- | --- | --- | --- |")
	for _, f := range w.fleets {
		counts, which := map[string]int{}, []string{}
		for k, n := range starts {
			if k.fleet == f.name {
				counts[k.severity] += n
				which = append(which, fmt.Sprintf("%s (%s) %d", k.alert, k.severity, n))
			}
		}
		slices.Sort(which)
		fmt.Fprintf(&table, "| %s | %s | %d | %d | %d | %s |\n", f.name, f.model+f.role, f.ended, counts["critical"], counts["warning"],
			strings.Join(which, ", "))
		if f.ended == 0 {
			t.Errorf("%s: no request ended", f.model)
		}
	}
	t.Log("\n" + table.String())
	w.clues(t, sim, from, until)
}

// clues checks that each clue is true for at most one percent of the time of the models.
func (w *week) clues(t *testing.T, sim *rulesim.Sim, from, until time.Duration) {
	said := fmt.Sprintf(`sum by (clue) (count_over_time((count by (namespace,clue) (%s))[%ds:1m]))`, metrics.RecordedSentence.Name,
		int((until - from).Seconds()))
	v, err := sim.Query(said, rulesim.Epoch.Add(until))
	if err != nil {
		t.Fatal(err)
	}
	of := float64(len(w.fleets)) * (until - from).Minutes()
	for _, clue := range v {
		if share := clue.F / of; share > 0.01 {
			t.Errorf("%s is true for %.2g%% of the time", clue.Metric.Get(metrics.LabelClue), 100*share)
		}
	}
}
