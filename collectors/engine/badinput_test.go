package engine

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
)

// TestBadInput scrapes a healthy engine beside each kind of broken one: the broken engine is down
// for a stated reason, the healthy one's series are complete, and memory stays bounded.
func TestBadInput(t *testing.T) {
	healthyPage := readPage(t, "vllm/v0.11.2.prom")
	healthy := parse(t, mapped(t, healthyPage))
	text := func(w http.ResponseWriter, page string) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		io.WriteString(w, page)
	}
	raw := func(w http.ResponseWriter, answer string) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(connection, answer)
		connection.Close()
	}
	reset := func(w http.ResponseWriter) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		connection.(*net.TCPConn).SetLinger(0)
		connection.Close()
	}
	const gauge = "# TYPE vllm:num_requests_running gauge\n"
	for _, c := range []struct {
		name, reason, logged string
		serve                http.HandlerFunc
	}{
		{"slow drip", "timeout", "", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				io.WriteString(w, "#")
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}},
		{"silence", "timeout", "", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"endless body", "limit_exceeded", "limits.body_size", func(w http.ResponseWriter, r *http.Request) {
			for chunk := strings.Repeat("vllm:x 1\n", 1<<16); r.Context().Err() == nil; {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		}},
		{"gzip bomb", "limit_exceeded", "limits.body_size", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			zeros := make([]byte, 1<<20)
			for range 12 {
				z.Write(zeros)
			}
			z.Close()
		}},
		{"gzip that is none", "parse_error", "gzip", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			text(w, healthyPage)
		}},
		{"HTML", "not_metrics", "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<!doctype html><title>Sign in</title>")
		}},
		{"llama.cpp without --metrics", "metrics_disabled", "--metrics", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotImplemented)
			io.WriteString(w, readPage(t, "llamacpp/not-enabled-501.json"))
		}},
		{"llama.cpp loading", "loading", "", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			io.WriteString(w, readPage(t, "llamacpp/loading-503.json"))
		}},
		{"no credentials", "unauthorized", "401", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }},
		{"server error", "http_500", "500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }},
		{"redirect elsewhere", "http_302", "another host", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/metrics", http.StatusFound)
		}},
		{"redirect loop", "http_302", "in a circle", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path,
				http.StatusFound)
		}},
		{"truncated line", "parse_error", "line 2", func(w http.ResponseWriter, _ *http.Request) {
			text(w, gauge+"vllm:num_requests_running{engine=\"0\",model_na")
		}},
		{"truncated number", "parse_error", "line 2", func(w http.ResponseWriter, _ *http.Request) {
			raw(w, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n"+gauge+"vllm:num_requests_running 12") // the cut number may have been 123
		}},
		{"connection closed", "connection_closed", "", func(w http.ResponseWriter, _ *http.Request) { raw(w, "") }},
		{"connection reset", "connection_closed", "", func(w http.ResponseWriter, _ *http.Request) { reset(w) }},
		{"reset within the page", "truncated", "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			text(w, gauge)
			w.(http.Flusher).Flush()
			time.Sleep(50 * time.Millisecond) // the metrics page's beginning arrives before the reset does
			reset(w)
		}},
		{"not HTTP", "not_http", "", func(w http.ResponseWriter, _ *http.Request) { raw(w, "SSH-2.0-OpenSSH_9.2\r\n") }},
		{"protobuf", "not_metrics", "protobuf", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited")
			io.WriteString(w, "\x0a\x0bvllm:thing_x")
		}},
		{"connection cut", "truncated", "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			text(w, gauge)
		}},
		{"unreadable line", "parse_error", "line 3", func(w http.ResponseWriter, _ *http.Request) {
			text(w, gauge+"vllm:num_requests_running{} 1\nvllm:num_requests_waiting oops\n")
		}},
		{"duplicate series", "duplicate_series", "vllm:num_requests_running", func(w http.ResponseWriter, _ *http.Request) {
			text(w, gauge+"vllm:num_requests_running{a=\"b\"} 1\nvllm:num_requests_running{a=\"b\"} 2\n")
		}},
		{"duplicate series in another order", "duplicate_series", "vllm:num_requests_running", func(w http.ResponseWriter, _ *http.Request) {
			text(w, gauge+"vllm:num_requests_running{a=\"b\",c=\"d\"} 1\nvllm:num_requests_running{c=\"d\",a=\"b\"} 2\n")
		}},
		{"1 MB label", "limit_exceeded", "bytes of labels", func(w http.ResponseWriter, _ *http.Request) {
			text(w, gauge+"vllm:num_requests_running{model_name=\""+strings.Repeat("a", 1<<20)+"\"} 1\n")
		}},
		{"2 kB model name", "limit_exceeded", "limits.label_value_length", func(w http.ResponseWriter, _ *http.Request) {
			text(w, gauge+"vllm:num_requests_running{model_name=\""+strings.Repeat("a", 2048)+"\"} 1\n")
		}},
		{"invalid UTF-8", "parse_error", "line 2", func(w http.ResponseWriter, _ *http.Request) {
			text(w, gauge+"vllm:num_requests_running{model_name=\"\xff\xfe\"} 1\n")
		}},
		{"a million series", "limit_exceeded", "limits.series", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, gauge)
			for i := 0; i < 1_000_000 && r.Context().Err() == nil; i += 1000 {
				var chunk bytes.Buffer
				for j := range 1000 {
					fmt.Fprintf(&chunk, "v%d 1\n", i+j)
				}
				if _, err := w.Write(chunk.Bytes()); err != nil {
					return
				}
			}
		}},
		{"empty page", "empty_page", "", func(w http.ResponseWriter, _ *http.Request) { text(w, "") }},
		{"another exporter", "not_an_engine", "node_exporter", func(w http.ResponseWriter,
			_ *http.Request,
		) {
			text(w, "# TYPE node_load1 gauge\nnode_load1 1\n")
		}},
		{"nobody known", "unknown_engine", "teapot_spouts", func(w http.ResponseWriter, _ *http.Request) {
			text(w, "# TYPE teapot_spouts gauge\nteapot_spouts 1\n")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/metrics" {
					http.NotFound(w, r)
					return
				}
				c.serve(w, r)
			}))
			defer broken.Close()
			var logged bytes.Buffer
			patience := time.Minute
			if c.reason == "timeout" {
				patience = time.Second
			}
			col, err := New(Config{
				Targets: []TargetConfig{{URL: broken.URL, Timeout: model.Duration(patience)}, {URL: serve(t, healthyPage).URL}},
				Limits:  scrape.Limits{BodyBytes: 10 << 20, Series: 5000, LabelValueBytes: 1024}, Log: slog.New(slog.NewTextHandler(&logged, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			s := parse(t, exposition(t, col))
			runtime.ReadMemStats(&after)

			server := strings.TrimPrefix(broken.URL, "http://")
			s.want(t, `llm_engine_up{server="`+server+`",reason="`+c.reason+`"}`, 0)
			if n := len(s.get(t, `{server="`+server+`"}`)); n != 2 { // up and scrape duration
				t.Errorf("the broken engine has %d series", n)
			}
			for _, name := range []string{
				"llm_engine_requests_running", "llm_engine_time_to_first_token_seconds_bucket",
				"llm_engine_requests_total",
			} {
				s.want(t, name, healthy.get(t, name)...)
			}
			if !strings.Contains(logged.String(), "reason="+c.reason) || !strings.Contains(logged.String(), c.logged) {
				t.Errorf("the log does not say %q and %q:\n%s", c.reason, c.logged, logged.String())
			}
			if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 100<<20 {
				t.Errorf("the heap grew by %d MB", grown>>20)
			}
		})
	}
}

func TestConnectionRefused(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: gone.URL}})))
	s.want(t, `llm_engine_up{reason="unreachable"}`, 0)
}

func TestEveryReasonIsDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, r := range Reasons {
		documented[r.Reason] = true
		if r.Meaning == "" || r.Remedy == "" {
			t.Errorf("%s lacks a meaning or a remedy", r.Reason)
		}
	}
	for _, reason := range []string{
		scrape.Unreachable, scrape.ConnectionClosed, scrape.NotHTTP, scrape.Timeout, scrape.TLSFailed,
		scrape.Unauthorized, scrape.Truncated, reasonLoading, reasonDisabled,
		scrape.NotMetrics, scrape.JSONMetrics, scrape.ParseError, reasonDuplicate, scrape.LimitExceeded, reasonEmpty, reasonRouter,
		reasonNotEngine, reasonUnknown, scrape.ExporterExhausted,
	} {
		if !documented[reason] {
			t.Errorf("%s is not documented", reason)
		}
	}
}
