package drill

import (
	"fmt"
	"net/http"
	"sync"
)

// LlamaCpp simulates a llama.cpp server of build 11669 (tools/server/server-context.cpp), started with --metrics. Its
// metrics have no labels, no histograms and no count of requests. Numbers have the six significant digits of a C++
// stream. Its throughputs cover the time since the last scrape. Its token counters increase when a request ends.
type LlamaCpp struct {
	*page
	mu                                                   sync.Mutex
	prompt, cached, promptSeconds, generated, genSeconds float64
	windowPrompt, windowPromptSeconds                    float64 // since the last scrape
	windowGenerated, windowGenSeconds                    float64
	decodes, busySlots, longest, drafted, accepted       float64
	drafts, processing, deferred                         float64
}

// NewLlamaCpp builds the engine's metrics and metadata.
func NewLlamaCpp(p Profile) *LlamaCpp {
	l := &LlamaCpp{page: &page{mux: http.NewServeMux()}}
	l.mux.HandleFunc("GET /metrics", l.metrics)
	l.document("/props", map[string]any{
		"default_generation_settings": map[string]any{"n_ctx": p.maxModelLen(), "params": map[string]any{
			"temperature": 0.8, "top_k": 40,
			"top_p": 0.95, "min_p": 0.05,
		}},
		"total_slots": p.MaxBatch, "model_path": p.path() + ".gguf", "model_ftype": "BF16", "chat_template": chatTemplate,
		"build_info": p.release("b11669-0123abc"),
	})
	l.document("/v1/models", map[string]any{"data": []any{map[string]any{"id": p.Model, "owned_by": "llamacpp"}}})
	return l
}

func (l *LlamaCpp) metrics(w http.ResponseWriter, _ *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for _, m := range []struct {
		name, kind string
		value      float64
	}{
		{"prompt_tokens_total", "counter", l.prompt},
		{"prompt_tokens_cached_total", "counter", l.cached},
		{"prompt_seconds_total", "counter", l.promptSeconds},
		{"tokens_predicted_total", "counter", l.generated},
		{"tokens_predicted_seconds_total", "counter", l.genSeconds},
		{"n_decode_total", "counter", l.decodes},
		{"n_tokens_max", "counter", l.longest},
		{"spec_decode_num_draft_tokens_total", "counter", l.drafted},
		{"spec_decode_num_accepted_tokens_total", "counter", l.accepted},
		{"spec_decode_num_drafts_total", "counter", l.drafts},
		{"prompt_tokens_seconds", "gauge", ratio(l.windowPrompt, l.windowPromptSeconds)},
		{"predicted_tokens_seconds", "gauge", ratio(l.windowGenerated, l.windowGenSeconds)},
		{"requests_processing", "gauge", l.processing},
		{"requests_deferred", "gauge", l.deferred},
		{"n_busy_slots_per_decode", "gauge", ratio(l.busySlots, l.decodes)},
	} {
		fmt.Fprintf(w, "# TYPE llamacpp:%s %s\nllamacpp:%s %.6g\n", m.name, m.kind, m.name, m.value)
	}
	l.windowPrompt, l.windowPromptSeconds, l.windowGenerated, l.windowGenSeconds = 0, 0, 0, 0
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// FirstToken implements Observer.
func (l *LlamaCpp) FirstToken(r *Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	computed, seconds := r.Prompt-r.Cached, (r.FirstToken - r.Scheduled).Seconds()
	l.prompt += computed
	l.cached += r.Cached
	l.promptSeconds += seconds
	l.windowPrompt += computed
	l.windowPromptSeconds += seconds
}

// Computed implements Observer. It counts one call of llama_decode, whatever the size of the batch.
func (l *LlamaCpp) Computed(Step) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decodes++
}

// Decoded implements Observer.
func (l *LlamaCpp) Decoded(d Decoded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busySlots += float64(d.Requests)
	if d.Drafted > 0 {
		l.drafted += float64(d.Drafted)
		l.accepted += float64(d.Accepted)
		l.drafts += float64(d.Requests)
	}
}

// Preempted implements Observer. Each slot has its own context, so no request is preempted.
func (l *LlamaCpp) Preempted() {}

// Finished implements Observer. Requests that never ran are not counted.
func (l *LlamaCpp) Finished(r *Request) {
	if r.Aborted || r.Rejected {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	seconds := (r.Done - r.FirstToken).Seconds()
	l.generated += r.Output
	l.genSeconds += seconds
	l.windowGenerated += r.Output
	l.windowGenSeconds += seconds
	l.longest = max(l.longest, r.Prompt+r.Output)
}

// State implements Observer.
func (l *LlamaCpp) State(running, waiting int, _ float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.processing, l.deferred = float64(running), float64(waiting)
}
