package probe

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

var errNotLoaded = errors.New("the model is not loaded")

// loaded asks Ollama how long it keeps the model. This query changes nothing, whereas a request for tokens loads a
// model and postpones its end. A server that does not answer like Ollama counts as a server without a model.
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
