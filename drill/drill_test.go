package drill

import (
	"bytes"
	"log/slog"
	"math"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// total holds sums over all requests up to a point.
type total struct{ requests, prompt, cached, output, ttft, queue, prefill, e2e float64 }

func (t *total) add(r *Request) {
	t.requests++
	t.prompt += r.Prompt
	t.cached += r.Cached
	t.output += r.Output
	t.ttft += (r.FirstToken - r.Arrival).Seconds()
	t.queue += (r.Scheduled - r.Arrival).Seconds()
	t.prefill += (r.FirstToken - r.Scheduled).Seconds()
	t.e2e += (r.Done - r.Arrival).Seconds()
}

// ledger counts the events of the requests, independently of the engine.
type ledger struct {
	Observer
	started, finished, good            total // requests with a first token; with the last; without a failure
	failed, rejected, aborted          float64
	left                               total   // aborted with a first token
	leftAfter                          float64 // tokens that they had received
	open, abortedE2E                   float64
	tokens, steps, waited              float64 // tokens after the first: number, times at which a request got some, seconds
	batches                            float64 // requests that got tokens together
	drafted, accepted, preemptions     float64
	running, waiting, kv, longestQueue float64
	computed, gave                     float64 // steps of the engine: all, and those in which some request got a token
	mixed, mixedTime, alone, aloneTime float64 // steps with new requests, and other steps; seconds
	gives                              bool    // the present step admits new requests
}

func (l *ledger) FirstToken(r *Request) {
	l.started.add(r)
	l.gives = true
	l.Observer.FirstToken(r)
}

func (l *ledger) Decoded(d Decoded) {
	l.gives = true
	l.tokens += float64(d.Tokens)
	l.steps += float64(d.Requests)
	l.batches++
	l.waited += d.Took.Seconds() * float64(d.Requests)
	l.drafted += float64(d.Drafted)
	l.accepted += float64(d.Accepted)
	l.Observer.Decoded(d)
}

func (l *ledger) Preempted() {
	l.preemptions++
	l.Observer.Preempted()
}

func (l *ledger) Finished(r *Request) {
	switch {
	case r.Rejected:
		l.rejected++
	case r.Aborted:
		l.aborted++
		l.abortedE2E += (r.Done - r.Arrival).Seconds()
		if r.FirstToken > 0 {
			l.left.add(r)
			l.leftAfter += r.Emitted
		}
	default:
		l.finished.add(r)
		if r.Failed {
			l.failed++
		} else {
			l.good.add(r)
		}
	}
	l.Observer.Finished(r)
}

func (l *ledger) Open(requests int, now time.Duration) {
	l.open = float64(requests)
	l.Observer.Open(requests, now)
}

func (l *ledger) Computed(s Step) {
	l.computed++
	if s.Begun > 0 {
		l.mixed++
		l.mixedTime += s.Took.Seconds()
	} else {
		l.alone++
		l.aloneTime += s.Took.Seconds()
	}
	l.Observer.Computed(s)
}

func (l *ledger) State(running, waiting int, kv float64) {
	if l.gives {
		l.gave++
		l.gives = false
	}
	l.running, l.waiting, l.kv = float64(running), float64(waiting), kv
	l.longestQueue = max(l.longestQueue, l.waiting)
	l.Observer.State(running, waiting, kv)
}

// told holds the values that one engine must report for a ledger, according to its documentation, under the exporter's
// names: a histogram by its count and sum, a counter or a gauge by its value.
type told map[*metrics.Family][]float64

// dialects lists the simulated engines and the values that they report. An engine does not report other values.
var dialects = map[metrics.Runtime]func(*ledger) told{
	metrics.VLLM: func(l *ledger) told {
		return told{
			metrics.TimeToFirstToken: {l.started.requests, l.started.ttft}, metrics.InterTokenLatency: {l.steps, l.waited},
			metrics.QueueTime: {l.finished.requests, l.finished.queue}, metrics.PrefillTime: {l.finished.requests, l.finished.prefill},
			metrics.RequestDuration:     {l.finished.requests, l.finished.e2e},
			metrics.RequestPromptTokens: {l.finished.requests, l.finished.prompt}, metrics.RequestGenerationTokens: {
				l.finished.requests,
				l.finished.output,
			},
			metrics.PromptTokens: {l.started.prompt}, metrics.GenerationTokens: {l.started.requests + l.tokens},
			metrics.PrefixCacheQueryTokens: {l.started.prompt}, metrics.PrefixCacheHitTokens: {l.started.cached},
			metrics.SpecDecodeDraftTokens: {l.drafted}, metrics.SpecDecodeAcceptedTokens: {l.accepted}, metrics.Preemptions: {l.preemptions},
			metrics.RequestsRunning: {l.running}, metrics.RequestsWaiting: {l.waiting}, metrics.KVCacheUsage: {l.kv}, metrics.EngineSteps: {l.gave},
			// A refusal is counted once, whatever the server answered.
			metrics.Requests: {l.finished.requests + l.rejected + l.aborted},
		}
	},
	metrics.SGLang: func(l *ledger) told {
		return told{
			metrics.TimeToFirstToken: {l.started.requests, l.started.ttft}, metrics.InterTokenLatency: {l.tokens, l.waited},
			metrics.QueueTime: {l.started.requests, l.started.queue}, metrics.PrefillTime: {l.started.requests, l.started.prefill},
			metrics.RequestDuration:         {l.finished.requests + l.left.requests, l.finished.e2e + l.left.e2e},
			metrics.RequestPromptTokens:     {l.finished.requests + l.left.requests, l.finished.prompt + l.left.prompt},
			metrics.RequestGenerationTokens: {l.finished.requests + l.left.requests, l.finished.output + l.leftAfter},
			metrics.PromptTokens:            {l.finished.prompt + l.left.prompt}, metrics.GenerationTokens: {l.finished.output + l.leftAfter},
			metrics.PrefixCacheQueryTokens: {l.finished.prompt + l.left.prompt}, metrics.PrefixCacheHitTokens: {l.finished.cached +
				l.left.cached}, metrics.Preemptions: {l.preemptions},
			metrics.RequestsRunning: {l.running}, metrics.RequestsWaiting: {l.waiting}, metrics.KVCacheUsage: {l.kv},
			metrics.EngineSteps: {l.batches},
			// the last two by HTTP status; failed requests also count as finished
			metrics.Requests: {l.finished.requests + l.aborted + l.rejected + l.failed},
		}
	},
	metrics.TGI: func(l *ledger) told {
		return told{
			metrics.InterTokenLatency: {l.alone, l.aloneTime}, metrics.PrefillTime: {l.mixed, l.mixedTime},
			metrics.QueueTime: {l.good.requests, l.good.queue}, metrics.RequestDuration: {l.good.requests, l.good.e2e},
			metrics.RequestPromptTokens: {l.started.requests, l.started.prompt}, metrics.RequestGenerationTokens: {l.good.requests, l.good.output},
			metrics.PromptTokens: {l.started.prompt}, metrics.GenerationTokens: {l.good.output},
			metrics.RequestsRunning: {l.running}, metrics.RequestsWaiting: {l.waiting}, metrics.EngineSteps: {l.computed},
			metrics.Requests: {l.finished.requests + l.rejected},
		}
	},
	metrics.TensorRTLLM: func(l *ledger) told {
		return told{
			metrics.TimeToFirstToken: {l.started.requests, l.started.ttft}, metrics.QueueTime: {l.finished.requests, l.finished.queue},
			metrics.PrefillTime: {l.finished.requests, l.finished.prefill}, metrics.RequestDuration: {l.finished.requests, l.finished.e2e},
			metrics.PromptTokens: {l.finished.prompt}, metrics.GenerationTokens: {l.finished.output},
			metrics.PrefixCacheQueryTokens: {l.finished.prompt}, metrics.PrefixCacheHitTokens: {l.finished.cached},
			metrics.SpecDecodeDraftTokens: {l.drafted}, metrics.SpecDecodeAcceptedTokens: {l.accepted},
			metrics.RequestsRunning: {l.running}, metrics.RequestsWaiting: {l.waiting}, metrics.KVCacheUsage: {l.kv},
			metrics.Requests: {l.finished.requests + l.aborted + l.rejected},
		}
	},
	metrics.LlamaCpp: func(l *ledger) told {
		return told{
			metrics.PromptTokens: {l.started.prompt}, metrics.GenerationTokens: {l.finished.output},
			metrics.PrefixCacheQueryTokens: {l.started.prompt}, metrics.PrefixCacheHitTokens: {l.started.cached},
			metrics.SpecDecodeDraftTokens: {l.drafted}, metrics.SpecDecodeAcceptedTokens: {l.accepted},
			metrics.RequestsRunning: {l.running}, metrics.RequestsWaiting: {l.waiting}, metrics.EngineSteps: {l.computed},
		}
	},
	metrics.Dynamo: func(l *ledger) told {
		return told{
			metrics.TimeToFirstToken: {l.started.requests, l.started.ttft}, metrics.InterTokenLatency: {l.tokens, l.waited},
			metrics.RequestDuration:         {l.finished.requests + l.aborted + l.rejected, l.finished.e2e + l.abortedE2E},
			metrics.RequestPromptTokens:     {l.started.requests, l.started.prompt},
			metrics.RequestGenerationTokens: {l.good.requests, l.good.output},
			metrics.PromptTokens:            {l.started.prompt}, metrics.GenerationTokens: {l.started.requests + l.tokens},
			metrics.PrefixCacheQueryTokens: {l.started.prompt}, metrics.PrefixCacheHitTokens: {l.started.cached},
			metrics.RequestsRunning: {l.open}, // the frontend does not distinguish them
			metrics.Requests:        {l.finished.requests + l.aborted + l.rejected},
		}
	},
}

// quantities lists the families that a dialect reports, or that the exporter must not export for it.
var quantities = []*metrics.Family{
	metrics.TimeToFirstToken, metrics.InterTokenLatency, metrics.QueueTime, metrics.PrefillTime, metrics.RequestDuration,
	metrics.RequestPromptTokens, metrics.RequestGenerationTokens, metrics.PromptTokens, metrics.GenerationTokens,
	metrics.PrefixCacheQueryTokens, metrics.PrefixCacheHitTokens, metrics.SpecDecodeDraftTokens, metrics.SpecDecodeAcceptedTokens,
	metrics.Preemptions, metrics.RequestsRunning, metrics.RequestsWaiting, metrics.KVCacheUsage, metrics.Requests,
	metrics.EngineSteps,
}

// TestRoundTrip overloads each simulated engine. The exporter's values of the engine must match the events of the
// requests, as far as the engine reports them.
func TestRoundTrip(t *testing.T) {
	profile := NewProfile("test-model")
	profile.Arrivals, profile.Swing, profile.OutputTokens, profile.OutputLimit, profile.Failures, profile.Patience = 60, 0, 400, 4096,
		0.1, 5*time.Second
	profile.Blocks, profile.Draft, profile.Acceptance, profile.MaxQueue = 2000, 3, 0.6, 300
	for runtime, dialect := range dialects {
		t.Run(string(runtime), func(t *testing.T) {
			page := NewDialect(runtime, profile)
			l := &ledger{Observer: page}
			e, traffic := NewEngine(profile.Serving, 7, l), NewTraffic(profile.Load, 7)
			read := reader(t, page)
			read() // before the first request
			for now := time.Second; now <= 90*time.Second; now += time.Second {
				for _, r := range traffic.Until(now) {
					e.Offer(r)
				}
				e.Advance(now)
			}
			if l.failed == 0 || l.rejected == 0 || l.aborted == 0 || l.preemptions == 0 || l.accepted == 0 || l.running == 0 ||
				l.waiting == 0 || l.finished.cached == 0 {
				t.Fatalf("the load does not show everything: %+v", l)
			}
			families := read()
			if got := label(families[metrics.RequestsRunning.Name], metrics.LabelRuntime); got != string(runtime) {
				t.Errorf("the exporter takes it for %q", got)
			}
			if got := label(families[metrics.RequestsRunning.Name], metrics.LabelModel); got != profile.Model {
				t.Errorf("the exporter takes its model for %q", got)
			}
			told := dialect(l)
			for _, f := range quantities {
				want, told := told[f]
				got := families[f.Name]
				switch {
				case told && got == nil:
					t.Errorf("%s: the engine says it, the exporter does not", f.Name)
				case !told && got != nil:
					t.Errorf("%s: the exporter says it, the engine does not", f.Name)
				case told:
					for i, v := range values(got) {
						if math.Abs(v-want[i]) > precision(runtime)*want[i] {
							t.Errorf("%s: the exporter says %v, it was %v", f.Name, v, want[i])
						}
					}
				}
			}
		})
	}
}

// TestClientsThatLeave checks that an answer whose client left while it ran is not a good answer. SGLang counts it twice.
func TestClientsThatLeave(t *testing.T) {
	profile := NewProfile("test-model")
	profile.Arrivals, profile.Swing, profile.Failures, profile.Leaves = 10, 0, 0, 0.2
	for _, runtime := range []metrics.Runtime{metrics.VLLM, metrics.SGLang, metrics.TensorRTLLM} {
		page := NewDialect(runtime, profile)
		l := &ledger{Observer: page}
		e, traffic, read := NewEngine(profile.Serving, 7, l), NewTraffic(profile.Load, 7), reader(t, page)
		var good float64
		for now := time.Second; now <= 90*time.Second; now += time.Second {
			for _, r := range traffic.Until(now) {
				e.Offer(r)
			}
			if e.Advance(now); now%(15*time.Second) > 0 {
				continue
			}
			good = 0
			for _, m := range read()[metrics.Requests.Name].Metric {
				if slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool {
					return slices.Contains([]string{"success", "stop", "length"}, l.GetValue())
				}) {
					good += m.GetCounter().GetValue()
				}
			}
		}
		if l.aborted == 0 || good != l.finished.requests {
			t.Errorf("%s: %g good answers, want %g; %g clients left", runtime, good, l.finished.requests, l.aborted)
		}
	}
}

// precision is the relative precision of an engine's numbers.
func precision(r metrics.Runtime) float64 {
	if r == metrics.LlamaCpp {
		return 1e-5 // six significant digits
	}
	return 1e-9
}

// reader returns a function that reads an engine through the exporter.
func reader(t *testing.T, page Dialect) (read func() map[string]*dto.MetricFamily) {
	t.Helper()
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	collector, err := engine.New(engine.Config{Targets: []engine.TargetConfig{{URL: server.URL}}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return func() map[string]*dto.MetricFamily {
		scrape := collector.Scrape(t.Context())
		var out bytes.Buffer
		if _, err := scrape.WriteTo(&out); err != nil || !scrape.Complete() {
			t.Fatalf("the page was not used: %v\n%s", err, out.String())
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(&out)
		if err != nil {
			t.Fatal(err)
		}
		return families
	}
}

// values returns a family's count and sum, or its value, over all its series.
func values(f *dto.MetricFamily) []float64 {
	sum := []float64{0}
	for _, m := range f.Metric {
		if h := m.GetHistogram(); h != nil {
			sum = append(sum, 0)[:2]
			sum[0] += float64(h.GetSampleCount())
			sum[1] += h.GetSampleSum()
		}
		sum[0] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

func label(f *dto.MetricFamily, name string) string {
	for _, m := range f.GetMetric() {
		for _, l := range m.Label {
			if l.GetName() == name {
				return l.GetValue()
			}
		}
	}
	return ""
}
