package drill

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	dto "github.com/prometheus/client_model/go"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// ledger counts what happens to the requests, beside the engine.
type ledger struct {
	Observer
	mu                                 sync.Mutex
	firstTokens, finished, failed      float64
	prompt, generated, ttft, queue, e2 float64
}

func (l *ledger) FirstToken(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.firstTokens++
	l.ttft += (r.FirstToken - r.Arrival).Seconds()
	l.Observer.FirstToken(r)
}

func (l *ledger) Finished(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished++
	l.prompt += r.Prompt
	l.generated += r.Output
	l.queue += (r.Scheduled - r.Arrival).Seconds()
	l.e2 += (r.Done - r.Arrival).Seconds()
	if r.Failed {
		l.failed++
	}
	l.Observer.Finished(r)
}

// TestRoundTrip runs traffic through each simulated engine: what happened to the requests is what
// the exporter makes of the engine's page.
func TestRoundTrip(t *testing.T) {
	profile := NewProfile("test-model")
	profile.Patience = 0 // none gives up
	profile.Arrivals, profile.OutputTokens, profile.Failures = 60, 6, 0.1
	type handler interface {
		Observer
		http.Handler
	}
	for name, e := range map[metrics.Runtime]handler{metrics.VLLM: NewVLLM(profile), metrics.TGI: NewTGI(profile), metrics.TensorRTLLM: NewTRTLLM(profile)} {
		t.Run(string(name), func(t *testing.T) {
			l := &ledger{Observer: e}
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			profile.Run(ctx, 7, l)
			server := httptest.NewServer(e)
			defer server.Close()
			collector, err := engine.New(engine.Config{Targets: []engine.TargetConfig{{URL: server.URL}}, Limits: engine.DefaultLimits, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			scrape := collector.Scrape(t.Context())
			var page bytes.Buffer
			if _, err := scrape.WriteTo(&page); err != nil || !scrape.Complete() {
				t.Fatalf("the page was not used: %v\n%s", err, page.String())
			}
			parser := expfmt.NewTextParser(model.LegacyValidation)
			families, err := parser.TextToMetricFamilies(&page)
			if err != nil {
				t.Fatal(err)
			}
			want := func(f *metrics.Family, value float64, of func(*dto.Metric) float64) {
				t.Helper()
				if families[f.Name] == nil {
					return // not every engine says everything
				}
				total := 0.0
				for _, m := range families[f.Name].Metric {
					total += of(m)
				}
				if diff := total - value; diff > 1e-6*value || -diff > 1e-6*value {
					t.Errorf("%s: the exporter says %v, it was %v", f.Name, total, value)
				}
			}
			counter := func(m *dto.Metric) float64 { return m.GetCounter().GetValue() }
			sum := func(m *dto.Metric) float64 { return m.GetHistogram().GetSampleSum() }
			count := func(m *dto.Metric) float64 { return float64(m.GetHistogram().GetSampleCount()) }
			if l.finished < 20 {
				t.Fatalf("only %v requests finished", l.finished)
			}
			good := l.finished
			if name == metrics.TGI { // counts the durations of successes only
				good -= l.failed
			} else {
				want(metrics.QueueTime, l.queue, sum)
				want(metrics.RequestDuration, l.e2, sum)
			}
			want(metrics.Requests, l.finished, counter)
			want(metrics.TimeToFirstToken, l.firstTokens, count)
			want(metrics.TimeToFirstToken, l.ttft, sum)
			want(metrics.QueueTime, good, count)
			want(metrics.RequestDuration, good, count)
			want(metrics.RequestGenerationTokens, good, count)
			if name == metrics.TensorRTLLM {
				want(metrics.PromptTokens, l.prompt, counter)
				want(metrics.GenerationTokens, l.generated, counter)
			}
			if name != metrics.TGI && families[metrics.TimeToFirstToken.Name] == nil {
				t.Error("no TTFT")
			}
			if name == metrics.TGI && families[metrics.TimeToFirstToken.Name] != nil {
				t.Error("a TTFT that TGI does not report")
			}
		})
	}
}
