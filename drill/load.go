package drill

import (
	"math"
	"math/rand/v2"
	"time"
)

// Load describes the traffic of a model.
type Load struct {
	Arrivals     float64       // requests per second, a Poisson process
	Swing        float64       // amplitude of the arrivals around the average, as a share
	Period       time.Duration // period of the swing
	Together     float64       // mean number of requests that arrive at the same moment, as from an agent; values up to 1 mean one request
	Brief        float64       // share of requests with a tenth of the mean lengths; all others are longer, so the means stay the same
	PromptTokens float64       // mean; log-normal, like the ShareGPT and Azure traces
	OutputTokens float64       // mean; exponential
	OutputLimit  float64       // maximum, in tokens
	CacheHits    float64       // mean share of a prompt that is in the prefix cache
	Failures     float64       // share of requests that fail in the engine
	Patience     time.Duration // how long a client waits for the first token, or for the next token while the core hangs; 0 means forever
	Leaves       float64       // share of clients that leave while they read an answer
	Named        int           // number of LoRA adapters that requests use, with equal probability; 0 means only the base model
}

// promptSpread is the standard deviation of the logarithm of prompt lengths. With this value, the mean is 1.4 times the
// median, and one prompt in a hundred has four times the mean.
const promptSpread = 0.8

// Request is one simulated request. Arrival, Scheduled, FirstToken and Done count from the start of the simulation.
// Held is how long a server in front of the engine delayed the request.
type Request struct {
	Held                                 time.Duration
	Arrival, Scheduled, FirstToken, Done time.Duration
	Queued                               time.Duration // when the core accepted the request; later than the arrival if the core hung
	Prompt, Cached, Output, Emitted      float64
	Failed, Truncated                    bool
	Rejected, Aborted                    bool // rejected at admission; aborted by the client
	Full                                 bool // rejected because too many requests wait
	Hung, Cut                            bool // aborted while the core hung; failed because the process ended
	Adapter                              int  // from 1; 0 means none
	// Then is the decode request that follows, if this request is a prefill.
	Then *Request
	// Local means that no prefill engine has computed the prompt, so a decode engine computes it.
	Local bool

	todo, held int           // tokens to compute before the next token comes out; tokens in the request's own blocks
	last       time.Duration // time of the last token
	patience   time.Duration
	leaves     float64 // tokens after which the client leaves; 0 means never
	now        int     // tokens computed in this step
	fetched    int     // tokens whose KV cache came from another engine or tier, but has no blocks yet
	unsent     bool    // the request for its KV cache gets no answer
	came       float64
	there      time.Duration // when that KV cache arrives
}

// Hold delays the request until a time. It reports whether the request's client still waits at that time.
func (r *Request) Hold(until time.Duration) bool {
	r.Held, r.Arrival = until-r.Arrival, until
	if r.patience == 0 {
		return true
	}
	r.patience -= r.Held
	return r.patience > 0
}

// For sets how long the client waits for the first token. It returns the same request.
func (r *Request) For(patience time.Duration) *Request {
	r.patience = patience
	return r
}

// Prefill returns the request that a prefill engine gets first. Its answer has one token. When it has ended, a decode
// engine gets r.
func (r *Request) Prefill() *Request {
	return &Request{
		Arrival: r.Arrival, Prompt: r.Prompt, Cached: r.Cached, Output: 1, Truncated: true, Adapter: r.Adapter, patience: r.patience, Then: r,
	}
}

// Traffic generates requests from a load, which may change between calls of Until.
type Traffic struct {
	Load
	random  *rand.Rand
	leaving *rand.Rand // separate, so that departures do not affect the arrivals
	next    time.Duration
}

// NewTraffic returns the traffic of a load. The seed determines the arrivals.
func NewTraffic(l Load, seed uint64) *Traffic {
	t := &Traffic{Load: l, random: rand.New(rand.NewPCG(seed, 0)), leaving: rand.New(rand.NewPCG(seed, 3))}
	t.next = t.gap()
	return t
}

// Until returns the requests that arrive before a time, in order.
func (t *Traffic) Until(to time.Duration) []*Request {
	var rs []*Request
	for t.next < to {
		rs = append(rs, t.request())
		t.next += t.gap()
	}
	return rs
}

// gap draws the time to the next arrival.
func (t *Traffic) gap() time.Duration {
	rate := t.Arrivals / math.Max(t.Together, 1)
	if t.Together > 1 && t.random.Float64() < 1-1/t.Together {
		return 0
	}
	if t.Swing != 0 {
		rate *= 1 + t.Swing*math.Sin(2*math.Pi*t.next.Seconds()/t.Period.Seconds())
	}
	return time.Duration(t.random.ExpFloat64() / math.Max(rate, 0.001) * float64(time.Second))
}

func (t *Traffic) request() *Request {
	size := 1.0
	if t.Brief > 0 {
		if size = (1 - 0.1*t.Brief) / (1 - t.Brief); t.random.Float64() < t.Brief {
			size = 0.1
		}
	}
	prompt := math.Round(math.Max(8, size*t.PromptTokens*math.Exp(promptSpread*t.random.NormFloat64()-promptSpread*promptSpread/2)))
	output := math.Ceil(size * t.OutputTokens * t.random.ExpFloat64())
	share := 2 * t.random.Float64() // mean 1; all shares between 0 and 1 are equally probable
	if t.CacheHits <= 0.5 {
		share *= t.CacheHits
	} else {
		share = 1 - share*(1-t.CacheHits)
	}
	cached := math.Min(math.Floor(prompt*share), prompt-1) // the last token of a prompt is always computed
	leaves := 0.0
	if t.leaving.Float64() < t.Leaves {
		leaves = math.Ceil(t.leaving.Float64() * output)
	}
	adapter := 0
	if t.Named > 0 {
		adapter = 1 + t.leaving.IntN(t.Named)
	}
	return &Request{
		Adapter: adapter, leaves: leaves, Arrival: t.next, Prompt: prompt, Cached: cached,
		Output: math.Min(math.Max(1, output), t.OutputLimit), Truncated: output > t.OutputLimit, Failed: t.random.Float64() < t.Failures,
		patience: t.Patience,
	}
}
