package drill

import (
	"math"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// A decode engine computes one token of a prompt if it gets the KV cache, otherwise the whole prompt.
func TestFetchedPrompt(t *testing.T) {
	ttft := func(lost float64) float64 {
		p := steady(1)
		p.Prefilled, p.Fetching, p.Lost = true, 25e9, lost
		c := &census{}
		e := NewEngine(p.Serving, 1, c)
		c.e = e
		r := &Request{Arrival: time.Second, Prompt: 1001, Output: 2}
		e.Offer(r)
		e.Advance(time.Minute)
		if len(c.moves) != 1 || c.moves[0].Failed != (lost == 1) || e.used != 0 {
			t.Errorf("moves %+v, %d blocks stay in use", c.moves, e.used)
		}
		return (r.FirstToken - r.Arrival).Seconds()
	}
	transfer := 1000 * Llama8B.KVBytesPerTok / 25e9
	read := 8.03e9 * 2 / (3.35e12 * bandwidthShare)
	cache := 1001 * Llama8B.KVBytesPerTok / (3.35e12 * bandwidthShare)
	if got, want := ttft(0), transfer+read+overhead+cache; math.Abs(got-want) > 0.01*want {
		t.Errorf("%.4f s to the first token, transfer and one step take %.4f", got, want)
	}
	if got, want := ttft(1), transfer+prefill(1001)+overhead+cache; math.Abs(got-want) > 0.01*want {
		t.Errorf("%.4f s without the transfer, the prompt takes %.4f", got, want)
	}
}

// A request that waits for a KV cache that does not arrive gives up, or gets a token after the transfer has timed
// out. A later request that gets a KV cache does not wait behind it.
func TestUnsentPrompt(t *testing.T) {
	p := steady(1)
	p.Prefilled, p.Fetching, p.Unsent = true, 25e9, 1
	c := &census{}
	e := NewEngine(p.Serving, 1, c)
	c.e = e
	impatient := &Request{Arrival: time.Second, Prompt: 1001, Output: 2, patience: time.Minute}
	patient := &Request{Arrival: time.Second, Prompt: 1001, Output: 2}
	e.Offer(impatient)
	e.Offer(patient)
	e.Advance(2 * time.Second)
	e.Unsent = 0
	served := &Request{Arrival: 2 * time.Second, Prompt: 1001, Output: 2}
	e.Offer(served)
	e.Advance(10 * time.Minute)
	if !impatient.Aborted || impatient.Done != impatient.Arrival+time.Minute {
		t.Errorf("aborted %t, done at %s", impatient.Aborted, impatient.Done)
	}
	if wait := patient.FirstToken - patient.Arrival; wait < giveUp || wait > giveUp+time.Second {
		t.Errorf("first token %s after it was asked for, want %s", wait, giveUp)
	}
	if wait := served.FirstToken - served.Arrival; wait > time.Second {
		t.Errorf("first token %s late, behind a KV cache that never comes", wait)
	}
}

// Stored tokens are found again in host memory. If the link to host memory is too slow, it fills with transfers in
// progress, refuses more, and finds fewer tokens.
func TestHostMemory(t *testing.T) {
	p := steady(10)
	p.Host, p.HostHits, p.Fetching, p.Storing = 8e9, 0.5, 50e9, 50e9
	found := func(moves []Move) (tokens, refused, pinned float64) {
		for _, m := range moves {
			switch {
			case !m.Store:
				tokens += m.Tokens
			case m.Failed:
				refused++
			}
			pinned = max(pinned, m.Pinned)
		}
		return tokens, refused, pinned
	}
	well := serve(p, 20*time.Minute)
	tokens, refused, pinned := found(well.moves)
	if share := tokens / float64(well.done) / (900 * 0.65); math.Abs(share-0.5) > 0.05 || refused > 0 || pinned > 0.2 {
		t.Errorf("found %.2f of what the GPU lacks, %v refused, %.2f pinned", share, refused, pinned)
	}
	p.Storing = 1e8
	slow := serve(p, 20*time.Minute)
	less, refused, pinned := found(slow.moves)
	if less > 0.8*tokens || refused == 0 || pinned < 0.9 || pinned > 1 {
		t.Errorf("found %v tokens after %v, %v refused, %.2f pinned", less, tokens, refused, pinned)
	}
}

// TestMovesRoundTrip compares the exporter's values with the transfers.
func TestMovesRoundTrip(t *testing.T) {
	profile := steady(10)
	profile.Model, profile.Release = "test-model", "0.26.0"
	profile.Fetching = 25e9
	for name, want := range map[string]func([]Move) told{
		"transfers": func(moves []Move) told {
			var n, took, size, failed float64
			for _, m := range moves {
				if m.Failed {
					failed++
					continue
				}
				n, took, size = n+1, took+m.Took.Seconds(), size+m.Bytes
			}
			return told{
				metrics.KVTransferTime: {n, took}, metrics.KVTransferSize: {n, size}, metrics.KVTransferFailures: {failed},
				metrics.KVTransfersExpired: {0},
			}
		},
		"tier": func(moves []Move) told {
			var bytes, took, pinned float64
			for _, m := range moves {
				if !m.Failed {
					bytes, took = bytes+m.Bytes, took+m.Took.Seconds()
				}
				pinned = m.Pinned
			}
			return told{metrics.KVTierTransferBytes: {bytes}, metrics.KVTierTransferTime: {took}, metrics.KVTierPinned: {pinned}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := profile
			if name == "tier" {
				p.Host, p.HostHits, p.Storing = 1e9, 0.5, 1e8
			} else {
				p.Prefilled, p.Lost = true, 0.3
			}
			page := NewVLLM(p)
			l := &movers{Observer: page}
			e, traffic := NewEngine(p.Serving, 7, l), NewTraffic(p.Load, 7)
			for now := time.Second; now <= 90*time.Second; now += time.Second {
				for _, r := range traffic.Until(now) {
					e.Offer(r)
				}
				e.Advance(now)
			}
			families := reader(t, page)()
			for f, want := range want(l.moves) {
				if families[f.Name] == nil {
					t.Errorf("%s: the engine says it, the exporter does not", f.Name)
					continue
				}
				for i, v := range values(families[f.Name]) {
					if math.Abs(v-want[i]) > 1e-9*want[i] {
						t.Errorf("%s: the exporter says %v, it was %v", f.Name, v, want[i])
					}
				}
			}
		})
	}
}

type movers struct {
	Observer
	moves []Move
}

func (l *movers) Moved(m Move) {
	l.moves = append(l.moves, m)
	l.Observer.Moved(m)
}
