package genai

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
)

// served returns the exporter's answer for a metrics page of an engine, with the convention's names.
func served(t *testing.T, page string) string {
	t.Helper()
	body, err := os.ReadFile("../engine/testdata/pages/" + page)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	c, err := engine.New(engine.Config{Targets: []engine.TargetConfig{{URL: s.URL}}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := (Page{c.Scrape(t.Context())}).WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// required lists the families and labels of docs/gen-ai/gen-ai-metrics.md that an engine's metrics page can supply.
// gen_ai.operation.name is required there, too; no engine reports it.
var required = map[string][]string{
	"gen_ai_server_time_to_first_token_seconds":   {"gen_ai_provider_name", "gen_ai_request_model", "server_address", "server_port"},
	"gen_ai_server_time_per_output_token_seconds": {"gen_ai_provider_name", "gen_ai_request_model", "server_address", "server_port"},
	"gen_ai_server_request_duration_seconds":      {"gen_ai_provider_name", "gen_ai_request_model", "server_address", "server_port"},
}

// TestConventions checks that an engine's times appear under both names with the same numbers, and with the
// convention's labels.
func TestConventions(t *testing.T) {
	for _, page := range []string{"vllm/v0.19.0-dp2-spec.prom", "trtllm/v1.3.0-full.prom"} {
		text := served(t, page)
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		for _, f := range []struct{ name, of string }{
			{"gen_ai_server_time_to_first_token_seconds", "llm_engine_time_to_first_token_seconds"},
			{"gen_ai_server_time_per_output_token_seconds", "llm_engine_time_per_output_token_seconds"},
			{"gen_ai_server_request_duration_seconds", "llm_engine_request_duration_seconds"},
		} {
			got, of := families[f.name], families[f.of]
			if of == nil {
				t.Fatalf("%s has no %s: choose another page", page, f.of)
			}
			if len(got.GetMetric()) != len(of.Metric) || got.GetType() != of.GetType() {
				t.Fatalf("%s: %s has %d series, %s has %d", page, f.name, len(got.GetMetric()), f.of, len(of.Metric))
			}
			for i, m := range got.Metric {
				if m.Histogram.String() != of.Metric[i].Histogram.String() {
					t.Errorf("%s: %s differs from %s", page, m.Histogram, of.Metric[i].Histogram)
				}
				var labels []string
				for _, l := range m.Label {
					labels = append(labels, l.GetName())
				}
				for _, l := range required[f.name] {
					if !slices.Contains(labels, l) {
						t.Errorf("%s: %s has the labels %q, not %s", page, f.name, labels, l)
					}
				}
			}
		}
	}
}

// TestNoHopTwice checks that a frontend's measurements are not repeated beside its engines' measurements.
func TestNoHopTwice(t *testing.T) {
	text := served(t, "dynamo/frontend.prom")
	if !strings.Contains(text, `llm_engine_time_to_first_token_seconds_count{`) {
		t.Fatal("the page has no time to first token: choose another")
	}
	if strings.Contains(text, "gen_ai_") {
		t.Errorf("a frontend's times are repeated:\n%s", regexp.MustCompile(`(?m)^gen_ai.*`).FindString(text))
	}
}

// TestWritesOnce checks that the metrics page itself passes unchanged, and that an error of the writer comes back.
func TestWritesOnce(t *testing.T) {
	page := "# TYPE llm_engine_up gauge\nllm_engine_up 1\n"
	var out bytes.Buffer
	if _, err := (Page{strings.NewReader(page)}).WriteTo(&out); err != nil || out.String() != page {
		t.Errorf("%v %q", err, out.String())
	}
	r, w := io.Pipe()
	r.Close()
	if _, err := (Page{strings.NewReader(page)}).WriteTo(w); err == nil {
		t.Error("a broken connection is no error")
	}
}
