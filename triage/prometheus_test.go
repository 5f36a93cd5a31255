package triage_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// TestPrometheus checks that answers become series, that the readings get the labels of the scrape, and that errors name
// the server.
func TestPrometheus(t *testing.T) {
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/query" {
			http.NotFound(w, r)
			return
		}
		if asked = r.FormValue("query"); asked == "bad" {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"status":"error","error":"parse error"}`)
			return
		}
		io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"instance":"n1:9844","job":"x"},"value":[1,"1"]}]}}`)
	}))
	defer server.Close()
	past := triage.Prometheus(http.DefaultClient, server.URL+"/")
	reading, err := triage.Parse([]byte(calm().page()), t0)
	if err != nil {
		t.Fatal(err)
	}
	scraped, err := triage.ScrapeLabels(context.Background(), reading, past)
	if err != nil || !strings.Contains(asked, `pod="p-0"`) || scraped.Get("instance") != "n1:9844" {
		t.Fatalf("%s %v asked %s", scraped, err, asked)
	}
	for _, s := range reading.With(scraped).Series {
		if s.Metric.Get("instance") != "n1:9844" || s.Metric.Get("job") != "x" {
			t.Fatalf("%s", s.Metric)
		}
	}
	for address, want := range map[string]string{server.URL: "parse error", server.URL + "/wrong": "is it a Prometheus?"} {
		if _, err := triage.Prometheus(http.DefaultClient, address)(context.Background(), "bad", t0); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
