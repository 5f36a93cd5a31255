package probe

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// BenchmarkAccuracy compares the probe's measurements with the server's, in microseconds: the delay with which the
// probe dates the first token and the end. The server notes when it got the request and when it wrote.
func BenchmarkAccuracy(b *testing.B) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		b.Run(protocol, func(b *testing.B) {
			var token, end time.Duration
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Proto != protocol {
					b.Errorf("%s instead of %s", r.Proto, protocol)
				}
				_, _ = io.Copy(io.Discard, r.Body)
				began := time.Now()
				w.Header().Set("Content-Type", "text/event-stream")
				send := func(message string) time.Duration {
					at := time.Since(began)
					_, _ = io.WriteString(w, message)
					w.(http.Flusher).Flush()
					return at
				}
				send(role)
				time.Sleep(20 * time.Millisecond)
				token = send(word("one"))
				for range 7 {
					time.Sleep(5 * time.Millisecond)
					send(word("more"))
				}
				send(finish)
				end = send(done)
			}))
			s.EnableHTTP2 = protocol == "HTTP/2.0"
			s.StartTLS()
			defer s.Close()
			p := probing(b, s.URL, func(c *Config) { c.HTTP.TLSConfig.InsecureSkipVerify, c.HTTP.EnableHTTP2 = true, s.EnableHTTP2 })
			var late, last []float64
			for b.Loop() {
				r, err := p.ask(b.Context(), time.Now())
				if r.outcome != metrics.ProbeOK {
					b.Fatal(protocol, r.outcome, err)
				}
				late = append(late, float64(r.token-r.connected-token)/1e3)
				last = append(last, float64(r.end-r.connected-end)/1e3)
			}
			for name, values := range map[string][]float64{"token": late, "end": last} {
				slices.Sort(values)
				b.ReportMetric(values[len(values)/2], name+"-p50-µs")
				b.ReportMetric(values[len(values)*99/100], name+"-p99-µs")
				b.ReportMetric(values[len(values)-1], name+"-max-µs")
			}
		})
	}
}
