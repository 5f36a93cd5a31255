package engine

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// serveOllama serves a list of loaded models as Ollama does.
func serveOllama(t *testing.T, page string) *fakeEngine {
	e := serve(t, page)
	e.path, e.contentType = "/api/ps", "application/json; charset=utf-8"
	e.documents["/api/version"] = `{"version":"0.12.6"}`
	return e
}

// TestOllama checks that Ollama is found by its list of models. After that, the exporter requests only the list,
// which loads no model and keeps none loaded.
func TestOllama(t *testing.T) {
	e := serveOllama(t, readPage(t, "ollama/0.12.6-one.json"))
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	s := parse(t, exposition(t, c))
	s.want(t, `llm_engine_up{runtime="ollama"}`, 1)
	s.want(t, `llm_engine_info{model_name="llama3.2:3b",version="0.12.6"}`, 1)
	s.want(t, `llm_engine_metric_source_info{metric="llm_engine_time_to_first_token_seconds",quality="missing",reason="Ollama does not measure it: a probe with `+"`api: ollama`"+` does"}`, 1)
	checkClaims(t, "one model", s)

	clear(e.requests)
	e.page = readPage(t, "ollama/0.12.6-two-on-cpu.json")
	s = parse(t, exposition(t, c))
	s.want(t, `llm_engine_models_loaded`, 1, 1)
	s.want(t, `llm_engine_model_unload_time_seconds{model_name="gemma3:27b"}`) // stays permanently
	s.want(t, `llm_engine_model_unload_time_seconds`, 1782995400)
	e.page = readPage(t, "ollama/0.12.6-idle.json")
	s = parse(t, exposition(t, c))
	s.want(t, `llm_engine_models_loaded`, 0)
	s.want(t, `llm_engine_model_memory_bytes`)
	s.want(t, `llm_engine_source_missing_total`)
	checkClaims(t, "idle", s)
	// Each model is asked once with what it runs: neither loads a model (server/routes.go: PsHandler, ShowHandler).
	if asked := slices.Sorted(maps.Keys(e.requests)); !slices.Equal(asked, []string{"/api/ps", "/api/show", "/api/version"}) ||
		e.asked("/api/ps") != 2 || e.asked("/api/show") != 2 {
		t.Errorf("requests: %v", e.requests)
	}
}

// TestNoOllama checks that an unreadable answer has a reason.
func TestNoOllama(t *testing.T) {
	for _, c := range []struct{ name, page, contentType, reason string }{
		{"an error", `{"error":"runner crashed"}`, "application/json", "not_metrics"},
		{"no list", `{"models":null}`, "application/json", "not_metrics"},
		{"another time", `{"models":[{"name":"m","expires_at":"soon"}]}`, "application/json", "not_metrics"},
		{"cut off", `{"models":[{"name":"m","si`, "application/json", "not_metrics"},
		{"a login page", "<html>", "text/html", "not_metrics"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := serveOllama(t, c.page)
			e.contentType = c.contentType
			parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}}))).want(t, `llm_engine_up{reason="`+c.reason+`"}`, 0)
		})
	}
	old := serveOllama(t, "404 page not found") // as before 0.1.38
	old.status = http.StatusNotFound
	for _, engine := range []string{"", "ollama"} {
		parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: old.URL, Engine: engine}}))).want(t, `llm_engine_up{reason="http_404"}`, 0)
	}
	if remedy := Remedy("http_404"); !strings.Contains(remedy, "0.1.38") {
		t.Error(remedy)
	}
}
