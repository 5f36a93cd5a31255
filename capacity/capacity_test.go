package capacity

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// page feeds an engine whose steps follow the model exactly, at a load that swings.
func page(l *Learner, minutes int, load func(minute float64) (requests, gaps, prompt float64), step func(gaps, prompt float64) float64) {
	pageWith(l, minutes, Reading{}, load, step)
}

// pageWith also reports gauges that do not change.
func pageWith(l *Learner, minutes int, r Reading, load func(minute float64) (requests, gaps, prompt float64),
	step func(gaps, prompt float64) float64,
) {
	r.At, r.First = time.Unix(0, 0), Histogram{Bounds: []float64{0.1, 1}, Counts: []float64{0, 0}}
	r.Gap = Histogram{Bounds: []float64{0.02, 0.05}, Counts: []float64{0, 0}}
	l.Learn(r)
	for i := range minutes * 4 {
		requests, gaps, prompt := load(float64(i) / 4)
		took := step(gaps, prompt)
		r.At = r.At.Add(15 * time.Second)
		r.FirstTokens, r.FirstSeconds = r.FirstTokens+15*requests, r.FirstSeconds+15*requests*0.05
		r.Gaps, r.GapSeconds, r.PromptTokens = r.Gaps+15*gaps, r.GapSeconds+15*gaps*took, r.PromptTokens+15*prompt
		r.GeneratedTokens, r.Running = r.GeneratedTokens+15*(gaps+requests), gaps*took
		r.First.Counts = []float64{r.First.Counts[0] + 15*requests, r.First.Counts[1] + 15*requests}
		r.Gap.Counts = []float64{r.Gap.Counts[0] + 15*gaps, r.Gap.Counts[1] + 15*gaps}
		l.Learn(r)
	}
}

func swinging(minute float64) (requests, gaps, prompt float64) {
	requests = 2 + math.Sin(minute/5)
	return requests, 100 * requests, (400 + 40*math.Cos(minute/3)) * requests
}

// TestLine checks that the fit recovers an exact line, and that the batch is full at the load that Little's law gives.
func TestLine(t *testing.T) {
	var l Learner
	page(&l, 60, swinging, func(gaps, prompt float64) float64 { return 1 / (100 - 0.05*gaps - 0.01*prompt) })
	fit, ok := l.line.solve()
	for i, want := range []float64{100, -0.05, -0.01, 0} {
		if !ok || math.Abs(fit.c[i]-want) > 1e-3*(1+math.Abs(want)) {
			t.Errorf("coefficient %d is %g, want %g", i, fit.c[i], want)
		}
	}
	all, why := l.Forecast(Bounds{Batch: 10}, []Objective{{Name: "ttft", Threshold: 10 * time.Second, Bad: 0.01}})
	if why != Known || len(all) != 1 || all[0].Limit != Batch {
		t.Fatalf("%+v, %s", all, why)
	}
	full := 100 / (100/10. + 0.05*100 + 0.01*400) // requests a second that run 10 at once: 100*r/(100-5r-4r) = 10
	if rate := all[0].Factor * l.Load().Requests; rate > full || rate < 0.85*full {
		t.Errorf("it breaks at %g requests per second, the batch is full at %g", rate, full)
	}
	if more := l.With(LargerBatch, Bounds{Batch: 10}, Objective{Threshold: 10 * time.Second, Bad: 0.01}); more < 1.2*all[0].Factor {
		t.Errorf("a batch twice as large brings %g times the load, with this one %g", more, all[0].Factor)
	}
}

// TestHost checks that the GPU does not count as the limit if it waits for the CPU most of the time, and that nothing
// is reported if this is unknown.
func TestHost(t *testing.T) {
	exact := func(gaps, prompt float64) float64 { return 1 / (100 - 0.05*gaps - 0.01*prompt) }
	gap := []Objective{{Name: "itl", Gaps: true, Threshold: 20 * time.Millisecond, Bad: 0.01}}
	idle, busy, garbage := 0.3, 0.9, 1e300
	for _, c := range []struct {
		computing *float64
		requests  float64
		want      Limit
	}{{&idle, 2, Host}, {&busy, 2, Decode}, {nil, 2, Decode}, {&garbage, 2, Decode}, {&idle, 0.2, Decode}} {
		var l Learner
		pageWith(&l, 60, Reading{Computing: c.computing}, func(minute float64) (requests, gaps, prompt float64) {
			requests, gaps, prompt = swinging(minute)
			return c.requests / 2 * requests, c.requests / 2 * gaps, c.requests / 2 * prompt
		}, exact)
		if all, why := l.Forecast(Bounds{}, gap); why != Known || all[0].Limit != c.want {
			t.Errorf("%v, %g requests per second: %+v, %s, want %s", c.computing, c.requests, all, why, c.want)
		}
	}
}

// TestGarbage checks that impossible values are ignored.
func TestGarbage(t *testing.T) {
	var l Learner
	exact := func(gaps, prompt float64) float64 { return 1 / (100 - 0.05*gaps - 0.01*prompt) }
	page(&l, 60, swinging, exact)
	objectives := []Objective{
		{Name: "ttft", Threshold: time.Second, Bad: 0.01},
		{Name: "itl", Gaps: true, Threshold: 50 * time.Millisecond, Bad: 0.01},
	}
	before, _ := l.Forecast(Bounds{Batch: 10}, objectives)
	good := l.last
	for _, v := range []float64{math.NaN(), math.Inf(1), -1, 1e300} {
		for _, spoil := range []func(r *Reading){
			func(r *Reading) { r.FirstSeconds = v }, func(r *Reading) { r.Gaps = v }, func(r *Reading) { r.GapSeconds = v },
			func(r *Reading) { r.PromptTokens = v },
			func(r *Reading) { r.KVUsage = v }, func(r *Reading) { r.Waiting = v }, func(r *Reading) { r.First.Counts = []float64{v, v} },
			func(r *Reading) { r.Gap.Counts = nil },
		} {
			r := good
			r.At = l.last.At.Add(30 * time.Second)
			spoil(&r)
			l.Learn(r)
			good.At = r.At.Add(30 * time.Second)
			l.Learn(good)
		}
	}
	after, why := l.Forecast(Bounds{Batch: 10}, objectives)
	if why != Known {
		t.Fatal(why)
	}
	for i := range after {
		for _, v := range []float64{after[i].Factor * l.Load().Requests, after[i].Low, after[i].High} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%+v", after[i])
			}
		}
		if fit, _ := l.line.solve(); math.Abs(fit.c[0]-100) > 1 {
			t.Errorf("steps at rest are %g, before they were 100: %+v, %+v", fit.c[0], before, after)
		}
	}
}

// TestSlowdown checks that a doubled step time at the same load is detected at once, and that more load does not count
// as a slowdown.
func TestSlowdown(t *testing.T) {
	var l Learner
	exact := func(gaps, prompt float64) float64 { return 1 / (100 - 0.05*gaps - 0.01*prompt) }
	for _, c := range []struct {
		minutes int
		load    float64 // multiple of the load
		prompts float64 // multiple of the length
		slow    float64 // multiple of the step time
		want    float64 // 0: unknown
	}{
		{5, 1, 1, 1, 0},
		{40, 1, 1, 1, 1},
		{1, 1, 1, 2, 2},
		{1, 1, 1, 1, 1},
		{1, 1.25, 1, 1, 1},
		{1, 3, 1, 1, 0},
		{1, 1, 4, 3, 0},
		{1, 0.002, 1, 100, 100},
	} {
		l.Learn(Reading{}) // counters start again
		page(&l, c.minutes, func(minute float64) (requests, gaps, prompt float64) {
			requests, gaps, prompt = swinging(minute)
			return c.load * requests, c.load * gaps, c.load * c.prompts * prompt
		}, func(gaps, prompt float64) float64 { return c.slow * exact(gaps, prompt) })
		if c.minutes == 1 && c.slow == 2 { // the capacity of the healthy engine is not forgotten
			before, _ := l.Forecast(Bounds{Batch: 10}, []Objective{{Name: "ttft", Threshold: time.Second, Bad: 0.01}})
			page(&l, 20, swinging, func(gaps, prompt float64) float64 { return 3 * exact(gaps, prompt) })
			after, _ := l.Forecast(Bounds{Batch: 10}, []Objective{{Name: "ttft", Threshold: time.Second, Bad: 0.01}})
			if now := after[0].Factor * l.Load().Gaps; math.Abs(now/(before[0].Factor*200)-1) > 0.3 {
				t.Errorf("it was forecast to break at %g gaps per second, and is at %g while it is sick", before[0].Factor*200, now)
			}
			page(&l, 1, swinging, func(gaps, prompt float64) float64 { return 2 * exact(gaps, prompt) })
		}
		if got, ok := l.Slowdown(); ok != (c.want > 0) || math.Abs(got-c.want) > 0.05*c.want {
			t.Errorf("%+v: it says %g", c, got)
		}
	}
}

// TestBurstsAreNoSlowdown checks bursts that last six seconds of each minute. The steps in a burst are those of its load,
// which is higher than the mean load of the half minute.
func TestBurstsAreNoSlowdown(t *testing.T) {
	var l Learner
	exact := func(gaps, prompt float64) float64 { return 1 / (100 - 0.1*gaps - 0.01*prompt) }
	page(&l, 60, swinging, exact)
	for minutes := range 10 {
		l.Learn(Reading{})
		page(&l, 1+minutes, func(minute float64) (requests, gaps, prompt float64) {
			requests = 0.5
			if int(4*minute)%4 == 3 {
				requests = 0.6*0.5 + 0.4*5
			}
			return requests, 100 * requests, 400 * requests
		}, func(gaps, _ float64) float64 {
			if gaps == 50 {
				return exact(50, 200)
			}
			return (0.6*50*exact(50, 200) + 0.4*500*exact(500, 2000)) / gaps
		})
		if got, ok := l.Slowdown(); ok && got > 1.2 {
			t.Errorf("minute %d: it says %g", minutes, got)
		}
	}
}

// TestSlowForAThirdOfTheTime checks steps that are 25 times as long for 20 seconds of each minute, at unchanged load: the
// exporter reports them, and does not take them for the engine's capacity.
func TestSlowForAThirdOfTheTime(t *testing.T) {
	var l Learner
	exact := func(gaps, prompt float64) float64 { return 1 / (100 - 0.05*gaps - 0.01*prompt) }
	page(&l, 60, swinging, exact)
	objective := []Objective{{Name: "itl", Gaps: true, Threshold: 50 * time.Millisecond, Bad: 0.01}}
	before, _ := l.Forecast(Bounds{Batch: 10}, objective)
	healthy := before[0].Factor * l.Load().Gaps
	l.Learn(Reading{})
	var highest float64
	i := 0
	page(&l, 30, swinging, func(gaps, prompt float64) float64 {
		if times, ok := l.Slowdown(); ok {
			highest = math.Max(highest, times)
		}
		if i++; i%4 == 0 {
			return 25 * exact(gaps, prompt)
		}
		return exact(gaps, prompt)
	})
	if highest < 5 {
		t.Errorf("at most %g times as long", highest)
	}
	after, _ := l.Forecast(Bounds{Batch: 10}, objective)
	if now := after[0].Factor * l.Load().Gaps; now < 0.7*healthy {
		t.Errorf("the engine could take %g gaps per second, and now %g", healthy, now)
	}
}

// TestIdleKeepsCapacity checks that the capacity of an engine is the same after hours without requests, and at the first
// requests after them. These requests are like the earlier ones, so the capacity in requests per second is known.
func TestIdleKeepsCapacity(t *testing.T) {
	objectives := []Objective{
		{Name: "ttft", Threshold: time.Second, Bad: 0.01},
		{Name: "itl", Gaps: true, Threshold: 20 * time.Millisecond, Bad: 0.01},
	}
	exact := func(gaps, prompt float64) float64 { return 1 / (100 - 0.05*gaps - 0.01*prompt) }
	for _, hours := range []int{1, 3, 12, 48} {
		var l Learner
		page(&l, 120, swinging, exact)
		rates := func() (all [2]float64) {
			known, why := l.Forecast(Bounds{Batch: 10}, objectives)
			if why != Known {
				t.Fatalf("after %d hours: %s", hours, why)
			}
			for i, f := range known {
				all[i] = f.Factor * l.Load().Requests
			}
			return all
		}
		before := rates()
		for _, c := range []struct {
			when               string
			minutes            int
			each, off, mostUse float64
		}{
			{"idle", 60 * hours, 0, 0.01, 0.01},
			{"first request", 1, 1. / 60, 0.05, 0.05},
			{"few requests", 20, 1. / 30, 0.12, 0.05}, // two buckets of gaps hardly show how much a step grew
			{"busy again", 20, 2, 0.05, 0.99},
		} {
			page(&l, c.minutes, func(float64) (requests, gaps, prompt float64) { return c.each, 100 * c.each, 400 * c.each }, exact)
			for i, rate := range rates() {
				if off := rate/before[i] - 1; math.Abs(off) > c.off {
					t.Errorf("%d hours, %s: %s breaks at %.3g requests per second, was %.3g", hours, c.when, objectives[i].Name, rate, before[i])
				}
			}
			if known, _ := l.Forecast(Bounds{Batch: 10}, objectives); known[0].Used > c.mostUse {
				t.Errorf("%d hours, %s: %.0f%% of the capacity is used", hours, c.when, 100*known[0].Used)
			}
		}
	}
}

// TestInterval checks the interval of an engine that has only run a few percent of its capacity: it is finite and not
// empty, and the replicas that serve the present load suffice at its low end.
func TestInterval(t *testing.T) {
	const full = 100 / (100/10. + 0.05*100 + 0.01*400) // requests per second that run 10 at once, as in TestLine
	for _, share := range []float64{0.001, 0.01, 0.05, 0.08, 0.3} {
		var l Learner
		page(&l, 120, func(minute float64) (requests, gaps, prompt float64) {
			requests, gaps, prompt = swinging(minute)
			part := share * full / 2
			return part * requests, part * gaps, part * prompt
		}, func(gaps, prompt float64) float64 { return 1 / (100 - 0.05*gaps - 0.01*prompt) })
		all, why := l.Forecast(Bounds{Batch: 10}, []Objective{{Name: "ttft", Threshold: 10 * time.Second, Bad: 0.01}})
		if why != Known {
			t.Errorf("at %g of the capacity: %s", share, why)
			continue
		}
		f := all[0]
		if needed := math.Ceil(3 / f.Low); !(f.Low > 0) || needed > 3 {
			t.Errorf("at %g of the capacity %g replicas are needed, 3 are there: %+v", share, needed, f)
		}
		if !(f.Low < f.Factor && f.Factor < f.High) || math.IsInf(f.High, 0) {
			t.Errorf("at %g of the capacity: %+v", share, f)
		}
	}
}

// TestLeversKnown checks that no effect is forecast for what an engine does not report.
func TestLeversKnown(t *testing.T) {
	exact := func(gaps, prompt float64) float64 { return 1 / (100 - 0.05*gaps - 0.01*prompt) }
	for _, c := range []struct {
		kv, prompt float64
		bounds     Bounds
		want       []Lever
	}{
		{0, 1, Bounds{}, []Lever{ShorterPrompts}},
		{0.1, 0, Bounds{}, []Lever{MoreCache}},
		{0, 0, Bounds{Batch: 10}, []Lever{LargerBatch, SmallerBatch}},
		{0.1, 1, Bounds{Batch: 10}, Levers()},
	} {
		var l Learner
		pageWith(&l, 60, Reading{KVUsage: c.kv}, func(minute float64) (requests, gaps, prompt float64) {
			requests, gaps, prompt = swinging(minute)
			return requests, gaps, c.prompt * prompt
		}, exact)
		if got := l.Levers(c.bounds); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestUnknown checks that there is no forecast too early, for an engine without requests, or after a single load. A
// restart loses nothing.
func TestUnknown(t *testing.T) {
	objectives := []Objective{{Name: "ttft", Threshold: time.Second, Bad: 0.01}}
	constant := func(float64) (requests, gaps, prompt float64) { return 2, 200, 800 }
	exact := func(gaps, prompt float64) float64 { return 1 / (100 - 0.05*gaps - 0.01*prompt) }
	for _, c := range []struct {
		minutes int
		load    func(float64) (requests, gaps, prompt float64)
		want    Why
	}{
		{20, swinging, TooFew},
		{60, constant, Uniform},
		{60, func(float64) (requests, gaps, prompt float64) { return 0, 0, 0 }, TooFew},
		{60, swinging, Known},
	} {
		var l Learner
		if page(&l, c.minutes, c.load, exact); c.want == Known {
			l.Learn(Reading{At: l.last.At.Add(15 * time.Second)}) // counters start again
		}
		if _, why := l.Forecast(Bounds{}, objectives); why != c.want {
			t.Errorf("after %d minutes: %q, want %q", c.minutes, why, c.want)
		}
	}
}

// TestSteps compares the steps of two engines at the batches that both have run. They are equal at other loads, and
// take 1.3 times as long on the slow engine, from a few minutes after its change until hours later.
func TestSteps(t *testing.T) {
	exact := func(slow float64) func(gaps, prompt float64) float64 {
		return func(gaps, prompt float64) float64 { return slow * 0.01 / (1 - slow*(0.0005*gaps+0.0001*prompt)) }
	}
	more := func(minute float64) (requests, gaps, prompt float64) {
		requests, gaps, prompt = swinging(minute)
		return 1.5 * requests, 1.5 * gaps, 1.5 * prompt
	}
	for _, c := range []struct {
		minutes   int // of the slow engine, after an hour at full speed
		low, high float64
	}{{0, 0.98, 1.02}, {15, 1.24, 1.32}, {180, 1.27, 1.33}} {
		var peer, slow Learner
		page(&peer, 60, swinging, exact(1))
		page(&slow, 60, more, exact(1))
		page(&slow, c.minutes, more, exact(1.3))
		usual := map[float64]float64{}
		for _, s := range peer.Steps() {
			usual[s.Running] = s.Seconds
		}
		both := 0
		for _, s := range slow.Steps() {
			if usual[s.Running] == 0 {
				continue
			}
			both++
			if ratio := s.Seconds / usual[s.Running]; ratio < c.low || ratio > c.high {
				t.Errorf("slow for %d minutes: %.3g times as long with %.3g running requests, want %g to %g", c.minutes, ratio, s.Running, c.low,
					c.high)
			}
		}
		if both == 0 {
			t.Errorf("slow for %d minutes: no batch that both have run, of %v and %v", c.minutes, peer.Steps(), slow.Steps())
		}
	}
	var irregular Learner // scrapes are some milliseconds early or late
	r := Reading{At: time.Unix(0, 0)}
	for i := range 25 {
		r.At = r.At.Add(30*time.Second - 10*time.Millisecond)
		gaps := 3000 + 100*float64(i%5)
		r.Gaps, r.GapSeconds = r.Gaps+gaps, r.GapSeconds+0.01*gaps
		irregular.Learn(r)
	}
	if irregular.Steps() == nil {
		t.Error("unknown after twelve minutes of readings that are almost half a minute apart")
	}
	var fresh Learner
	page(&fresh, 5, swinging, exact(1))
	if s := fresh.Steps(); s != nil {
		t.Errorf("known after five minutes: %v", s)
	}
}

// TestStepsOfIdlers compares engines that idle most of the time, one of which is 1.5 times as slow. Their few requests
// differ, so the windows' means vary, and with them the number of running requests.
func TestStepsOfIdlers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	idler := func(step float64) map[float64]float64 {
		var l Learner
		r := Reading{At: time.Unix(0, 0)}
		for range 40 {
			r.At = r.At.Add(30 * time.Second)
			gaps := 30 * (9 + 2*random.Float64())
			r.Gaps, r.GapSeconds = r.Gaps+gaps, r.GapSeconds+gaps*step*(0.6+0.8*random.Float64())
			l.Learn(r)
		}
		all := map[float64]float64{}
		for _, s := range l.Steps() {
			all[s.Running] = s.Seconds
		}
		return all
	}
	sum, both := 0.0, 0.0
	for range 30 {
		usual, slow := idler(0.02), idler(0.03)
		for running, seconds := range slow {
			if usual[running] > 0 {
				sum, both = sum+seconds/usual[running], both+1
			}
		}
	}
	if ratio := sum / both; !(ratio > 1.4 && ratio < 1.6) {
		t.Errorf("%.3g times as long, compared at %g numbers of running requests, want 1.5", ratio, both)
	}
}
