package drill

import (
	"encoding/json"
	"net/http"
	"time"
)

// Ollama simulates Ollama of about release 0.12 (server/routes.go, api/types.go). It reports the loaded model, and how
// much of the model is in GPU memory, but no requests.
type Ollama struct {
	*page
	// OnGPU is the share of the model that is in GPU memory.
	OnGPU float64
	// Away means that the model is not loaded. The next request for it loads it again.
	Away bool
}

// NewOllama builds the documents that the engine serves. At first, the whole model is in GPU memory.
func NewOllama(p Profile) *Ollama {
	o := &Ollama{page: &page{mux: http.NewServeMux()}, OnGPU: 1}
	size := p.Weights.Parameters * p.Weights.Bytes
	o.document("/api/version", map[string]string{"version": p.Release})
	o.mux.HandleFunc("GET /api/ps", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if o.Away {
			_ = json.NewEncoder(w).Encode(map[string]any{"models": []any{}}) // the client has left
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"models": []any{map[string]any{ // the client has left
			"name": p.Model, "model": p.Model, "size": int64(size), "size_vram": int64(size * o.OnGPU), "digest": "365c0bd3c000",
			"context_length": 8192, "details": map[string]string{"format": "gguf", "family": "llama", "quantization_level": "F16"},
			"expires_at": p.Started.AddDate(292, 0, 0).UTC().Format(time.RFC3339Nano),
		}}})
	})
	o.mux.HandleFunc("POST /api/show", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"template": chatTemplate, "parameters": `stop "<|eot_id|>"`}) // the client has left
	})
	return o
}

// FirstToken implements Observer, like the other methods. Ollama counts nothing.
func (o *Ollama) FirstToken(*Request) {}

// Decoded implements Observer.
func (o *Ollama) Decoded(Decoded) {}

// Preempted implements Observer.
func (o *Ollama) Preempted() {}

// Finished implements Observer.
func (o *Ollama) Finished(*Request) {}

// State implements Observer.
func (o *Ollama) State(int, int, float64) {}
