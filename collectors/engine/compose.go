package engine

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
)

// Composer requests the parts of an engine's metrics page. Its requests have no side effects.
type Composer struct {
	// Model is the model that the target's address names, or empty.
	Model string
	// Last is the metrics page that was composed last, or nil.
	Last []byte
	// Document decodes a JSON answer about a model, or about the server if the model is empty.
	Document func(ctx context.Context, path, model string, into any) error
	// Page returns the metrics page of a model. The page is valid until the next call.
	Page func(ctx context.Context, model string) ([]byte, error)
}

// composer returns the Composer for the target's engine.
func (t *target) composer(d *Dialect) *Composer {
	about := func(model string) string {
		q, _ := url.ParseQuery(t.At.Query)
		if q.Del(modelParameter); model != "" {
			q.Set(modelParameter, model)
		}
		return harmless(q.Encode(), d.Harmless)
	}
	return &Composer{
		Model: t.asks, Last: t.composed,
		Document: func(ctx context.Context, path, model string, into any) error {
			return t.DocumentAt(ctx, path, about(model), into)
		},
		Page: func(ctx context.Context, model string) ([]byte, error) {
			body, _, err := t.PageAt(ctx, scrape.PlainPath, about(model))
			return body, err
		},
	}
}

// modelParameter is the parameter of an address's query that names a model.
const modelParameter = "model"

// harmless adds to a query the parameters that prevent side effects.
func harmless(query, more string) string {
	if query == "" || more == "" {
		return query + more
	}
	return query + "&" + more
}

// get returns a getter for the metadata endpoints of an engine with this dialect.
func (t *target) get(d *Dialect) Getter {
	return func(ctx context.Context, path string, into any) error {
		return t.DocumentAt(ctx, path, harmless(t.At.Query, d.Harmless), into)
	}
}

// fetch returns the metrics page at a path, or composes it.
func (t *target) fetch(ctx context.Context, path string) (body []byte, contentType string, err error) {
	d, err := t.composing(ctx, path)
	if err != nil {
		return nil, "", err
	}
	if d == nil {
		return t.Page(ctx, path)
	}
	body, err = d.Compose(ctx, t.composer(d))
	if err == nil {
		t.composed = body
	}
	return body, "text/plain", err
}

// composing returns the dialect that composes the metrics page at a path, or nil if the page is read unchanged. Before
// the first reading, composing requests the server's identity.
func (t *target) composing(ctx context.Context, path string) (*Dialect, error) {
	i := slices.IndexFunc(t.dialects, func(d *Dialect) bool { return d.Compose != nil })
	if path != scrape.PlainPath || i < 0 {
		return nil, nil
	}
	if err := t.owned(ctx); err != nil && t.asks != "" { // without the owner, reading the metrics page might load the model
		return nil, err
	}
	if d := t.dialects[i]; t.owner != "" && t.owner == d.Owner {
		return d, nil
	}
	return nil, nil
}

// owned reads the owner of the models from the engine's model list. Any other answer means that there is no owner. If a
// server does not answer, or loads its model (status 503), owned repeats the query later.
func (t *target) owned(ctx context.Context) error {
	if t.isOwned {
		return nil
	}
	var id Identity
	err := id.askModels(ctx, t.Document)
	var silent *url.Error
	var status *scrape.StatusError
	if t.owner = id.Owner; !errors.As(err, &silent) && !(errors.As(err, &status) && status.Code == http.StatusServiceUnavailable) {
		t.isOwned = true
		return nil
	}
	return err
}
