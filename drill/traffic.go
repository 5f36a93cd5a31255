// Package drill is the simulator: engines that speak their native dialects over HTTP about traffic
// that does not exist. It is the one place of this project where numbers are invented. Its pages
// are written from the engines' documentation, never from the exporter's tables.
package drill

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// Profile describes the load on one simulated engine and the engine's speed. The defaults of
// NewProfile resemble an 8-billion-parameter model on one data-centre GPU.
type Profile struct {
	Model        string
	Arrivals     float64       // requests per second, on average
	Swing        float64       // share by which arrivals swing around the average
	Period       time.Duration // of the swing
	MaxBatch     int           // requests that run at once
	PromptTokens float64       // mean, log-normally distributed
	OutputTokens float64       // mean, exponentially distributed
	PrefillRate  float64       // prompt tokens per second
	Chunk        float64       // prompt tokens that join one decode step (chunked prefill)
	Step         time.Duration // of a decode step with an empty batch
	StepPerSeq   time.Duration // added by each running request
	CacheHits    float64       // share of prompt tokens found in the prefix cache
	KVTokens     float64       // tokens that fit into the KV cache
	Failures     float64       // share of requests that fail
}

// NewProfile returns a profile with moderate load.
func NewProfile(model string) Profile {
	return Profile{
		Model: model, Arrivals: 6, Swing: 0.6, Period: 2 * time.Minute, MaxBatch: 48,
		PromptTokens: 900, OutputTokens: 180, PrefillRate: 16_000, Chunk: 256, Step: 9 * time.Millisecond, StepPerSeq: 180 * time.Microsecond,
		CacheHits: 0.35, KVTokens: 120_000, Failures: 0.002,
	}
}

// Request is one simulated request.
type Request struct {
	Arrival, Scheduled, FirstToken, Done time.Time
	Prompt, Cached, Output, Emitted      float64
	toPrefill                            float64
	Failed, Truncated                    bool
}

// Observer is told what happens. Calls come from one goroutine.
type Observer interface {
	FirstToken(r *Request)
	// Decoded reports one step: n requests got a token, took after the step before.
	Decoded(n int, took time.Duration)
	Finished(r *Request)
	// State reports the queue and the batch after each step.
	State(running, waiting int, kvUsed float64)
}

// outputLimit is where a request's output is cut.
const outputLimit = 1024

// Run generates traffic until ctx is done: requests arrive, wait, are prefilled and decoded in a
// continuously formed batch.
func (p Profile) Run(ctx context.Context, seed uint64, o Observer) {
	random := rand.New(rand.NewPCG(seed, 0))
	var waiting, running []*Request
	start := time.Now()
	nextArrival := start
	for ctx.Err() == nil {
		stepStart := time.Now()
		for !nextArrival.After(stepStart) {
			prompt := math.Max(8, p.PromptTokens*math.Exp(0.8*random.NormFloat64()-0.32))
			output := math.Ceil(p.OutputTokens * random.ExpFloat64())
			waiting = append(waiting, &Request{
				Arrival: nextArrival, Prompt: math.Round(prompt), Cached: math.Floor(prompt * p.CacheHits * 2 * random.Float64()),
				Output: math.Min(math.Max(1, output), outputLimit), Truncated: output > outputLimit, Failed: random.Float64() < p.Failures,
			})
			rate := p.Arrivals * (1 + p.Swing*math.Sin(2*math.Pi*stepStart.Sub(start).Seconds()/p.Period.Seconds()))
			nextArrival = nextArrival.Add(time.Duration(random.ExpFloat64() / math.Max(rate, 0.01) * float64(time.Second)))
		}
		for len(waiting) > 0 && len(running) < p.MaxBatch {
			r := waiting[0]
			waiting = waiting[1:]
			r.Scheduled, r.toPrefill = stepStart, math.Max(1, r.Prompt-r.Cached)
			running = append(running, r)
		}
		room := p.Chunk // first come, first prefilled
		for _, r := range running {
			part := math.Min(room, r.toPrefill)
			r.toPrefill -= part
			room -= part
		}
		sleep(ctx, p.Step+time.Duration(len(running))*p.StepPerSeq+time.Duration((p.Chunk-room)/p.PrefillRate*float64(time.Second)))
		now := time.Now()
		decoding, kv := 0, 0.0
		kept := running[:0]
		for _, r := range running {
			if r.toPrefill > 0 {
				kept = append(kept, r)
				kv += r.Prompt - r.toPrefill
				continue
			}
			if r.FirstToken.IsZero() {
				r.FirstToken = now
				o.FirstToken(r)
			} else {
				decoding++
			}
			r.Emitted++
			if r.Emitted >= r.Output {
				r.Done = now
				o.Finished(r)
				continue
			}
			kv += r.Prompt + r.Emitted
			kept = append(kept, r)
		}
		running = kept
		if decoding > 0 {
			o.Decoded(decoding, now.Sub(stepStart))
		}
		o.State(len(running), len(waiting), math.Min(1, kv/p.KVTokens))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
