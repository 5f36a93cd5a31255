package engine

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// ollama reads Ollama, which has no metrics page. Repair writes a metrics page from the list of loaded models. Reading
// this list neither loads a model nor keeps a model loaded.
var ollama = Dialect{
	Runtime:   metrics.Ollama,
	Source:    "Ollama api/types.go, server/routes.go, server/sched.go, ollama#4327",
	API:       "ollama",
	Paths:     []string{"/api/ps"},
	Recognise: func(p *scrape.Page) bool { return p.HasPrefix("ollama:") },
	Repair:    loadedModels,
	Remedies:  map[string]string{scrape.HTTPAny: "Ollama answers 404 before 0.1.38, the first release with `/api/ps`."},
	Bystanders: []bystander{
		{
			"an exporter for Ollama", "an exporter", reasonNotEngine, prefix("ollama_"), false,
			"make Ollama's own port the target, or describe these metrics under mappings",
		},
	},
	Labels: []metrics.Carry{{From: "name", To: metrics.LabelModel}},
	Server: &Server{Lacks: "nothing about requests"},
	Rows: []Row{
		{To: metrics.ModelsLoaded, From: "ollama:models", Is: scrape.Gauge, Since: "0.1.38"},
		{To: metrics.ModelMemory, From: "ollama:size", Is: scrape.Gauge, Since: "0.1.38", Absent: noModel},
		{To: metrics.ModelGPUMemory, From: "ollama:size_vram", Is: scrape.Gauge, Since: "0.1.38", Absent: noModel},
		{
			To: metrics.ModelUnloadTime, From: "ollama:expires_at", Is: scrape.Gauge, Since: "0.1.38",
			Absent: "no model is loaded, or each stays loaded for good",
		},
		{
			To: metrics.MaxModelLen, From: "ollama:context_length", Is: scrape.Gauge, Since: "0.10.0",
			Absent: "not in early releases, or no model is loaded",
		},
	},
	// /api/ps has the digest and the details of each loaded model. /api/show has its template. Neither request loads a model.
	Settings: []Told{
		{To: metrics.SettingVersion, From: "/api/version", At: "version"},
		{To: metrics.SettingRevision, From: "ollama:models", At: "digest", Model: "name"},
		{To: metrics.SettingQuantization, From: "ollama:models", At: "quantization", Model: "name"},
		{To: metrics.SettingTemplate, From: "/api/show", At: "template", Model: "name", Hash: true},
		{To: metrics.SettingGeneration, From: "/api/show", At: "parameters", Model: "name", Hash: true},
	},
	Untold: map[metrics.Setting]string{metrics.SettingTokenizer: "only the model's file contains it; the file's digest is the revision"},
	Missing: reasons(
		lacks("Ollama does not measure it: a probe with `api: ollama` does", []*metrics.Family{
			metrics.TimeToFirstToken,
			metrics.InterTokenLatency, metrics.RequestDuration,
		}),
		lacks("Ollama reports nothing about requests", []*metrics.Family{
			metrics.Requests, metrics.RequestsRunning, metrics.RequestsWaiting,
			metrics.PromptTokens, metrics.GenerationTokens,
		}),
		lacks("Ollama has no separate prefill and decode engines", kvTransfers), lacks("Ollama has no tiers", kvTiers)),
	Identify: func(ctx context.Context, get Getter) (id Identity, err error) {
		return id, id.askVersion(ctx, get, "/api/version")
	},
}

const noModel = "no model is loaded"

// loadedModels writes a metrics page from Ollama's answer at /api/ps. Each field X becomes a family ollama:X. Any other
// body stays unchanged.
func loadedModels(body []byte) ([]byte, error) {
	var ps struct {
		Models []struct {
			Name          string    `json:"name"`
			Digest        string    `json:"digest"`
			Size          float64   `json:"size"`
			SizeVRAM      float64   `json:"size_vram"`
			ExpiresAt     time.Time `json:"expires_at"`
			ContextLength float64   `json:"context_length"`
			Details       struct {
				Quantization string `json:"quantization_level"`
			} `json:"details"`
		} `json:"models"`
	}
	if len(body) == 0 || body[0] != '{' || json.Unmarshal(body, &ps) != nil || ps.Models == nil {
		return body, nil
	}
	const never = 4102444800 // the year 2100; to keep a model permanently, Ollama adds the longest duration, 292 years
	var page []byte
	field := func(name string, value float64, of ...metrics.Label) {
		page = metrics.AppendValue(metrics.AppendSeries(page, "ollama:"+name, of...), value)
	}
	if len(ps.Models) == 0 {
		field("models", 0)
	}
	for _, m := range ps.Models {
		of := []metrics.Label{{Name: "name", Value: m.Name}, {Name: "digest", Value: m.Digest}} // a new pull changes the digest
		field("models", 1, append(slices.Clone(of), metrics.Label{Name: "quantization", Value: m.Details.Quantization})...)
		field("size", m.Size, of...)
		field("size_vram", m.SizeVRAM, of...)
		if at := m.ExpiresAt.Unix(); 0 < at && at < never {
			field("expires_at", float64(at), of...)
		}
		if m.ContextLength > 0 { // zero while the model loads, and in releases before 0.10
			field("context_length", m.ContextLength, of...)
		}
	}
	return page, nil
}
