package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Identity holds what an engine reports about itself outside its metrics page. The exporter reads it once per start of
// the engine, and not in every scrape.
type Identity struct {
	// Model is the served model, for engines whose metrics page does not name it.
	Model string
	// Owner is the owner that the engine states in its model list.
	Owner string
	// Version is the engine's release.
	Version string
	// Locked means that an endpoint requires a key that the exporter lacks.
	Locked bool
	// Chains has the chain of each model by name. It is nil if the server did not answer.
	Chains map[string]Chain
	// Numbers are quantities that only an endpoint reports.
	Numbers []Number

	settings   []stated
	unanswered map[string]bool // paths of settings that did not answer
	shown      []string        // models whose settings were requested one by one
}

// Number holds a quantity read from an endpoint.
type Number struct {
	To      *metrics.Family
	Value   float64
	Source  string // path and field
	Quality metrics.Quality
	Why     string
}

// Chain has the models that a model calls, from its configuration.
type Chain struct {
	Steps []string // models through which each request goes
	Calls []string // models that its own code may call
	Code  bool     // the model runs its own code, which may call models that no configuration names
}

// Getter fetches a JSON document from the engine and decodes it into a value. Paths are relative to the engine's
// root, which may be below a prefix.
type Getter func(ctx context.Context, path string, into any) error

// modelList holds the answer of /v1/models, the one endpoint that all OpenAI-compatible servers share.
type modelList struct {
	Data []listed `json:"data"`
}

type listed struct {
	ID          string  `json:"id"`
	OwnedBy     string  `json:"owned_by"`
	Parent      string  `json:"parent"`
	MaxModelLen float64 `json:"max_model_len"`
}

// number adds a quantity if the endpoint reported it.
func (id *Identity) number(to *metrics.Family, value float64, source string) {
	if value > 0 {
		id.Numbers = append(id.Numbers, Number{To: to, Value: value, Source: source, Quality: metrics.Native})
	}
}

// openAI queries the endpoints that vLLM and similar servers share.
func openAI(ctx context.Context, get Getter) (id Identity, err error) {
	return id, errors.Join(id.askVersion(ctx, get, "/version"), id.askModels(ctx, get))
}

// askVersion reads the version field of a JSON document.
func (id *Identity) askVersion(ctx context.Context, get Getter, path string) error {
	var answer struct {
		Version string `json:"version"`
	}
	err := get(ctx, path, &answer)
	id.Version = answer.Version
	return err
}

// askModels reads /v1/models. Adapters name the model that they belong to (parent). If the list has several models,
// askModels takes no model, because the list does not show which model writes the metrics page.
func (id *Identity) askModels(ctx context.Context, get Getter) error {
	var models modelList
	err := get(ctx, "/v1/models", &models)
	all := slices.DeleteFunc(models.Data, func(m listed) bool { return m.Parent != "" })
	if len(all) == 0 {
		return err
	}
	id.Owner = all[0].OwnedBy
	if len(all) == 1 {
		id.Model = all[0].ID
	}
	if !slices.ContainsFunc(all, func(m listed) bool { return m.MaxModelLen != all[0].MaxModelLen }) {
		id.number(metrics.MaxModelLen, all[0].MaxModelLen, "/v1/models max_model_len")
	}
	return err
}
