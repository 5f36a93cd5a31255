package probe

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

var errNotLoaded = errors.New("the model is not loaded")

// loaded queries how long Ollama keeps the model. The query changes nothing, but a request for tokens would load a
// model or keep the model longer. If a server does not answer like Ollama, it counts as a server without a model.
func (p *Probe) loaded(ctx context.Context) (expires string, err error) {
	resp, err := p.get(ctx, "/api/ps")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var ps struct {
		Models []struct {
			Name    string `json:"name"`
			Expires string `json:"expires_at"`
		} `json:"models"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswerBytes)).Decode(&ps); err != nil || resp.StatusCode != http.StatusOK {
		return "", errNotLoaded
	}
	for _, m := range ps.Models {
		if sameModel(m.Name, p.cfg.Model) {
			return m.Expires, nil
		}
	}
	return "", errNotLoaded
}
