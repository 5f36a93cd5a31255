package world

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Requests that arrive while TGI's batch hangs are in its queue, even if the shard hung while idle, because the
// server counts a request when it queues it (backends/v3/src/queue.rs).
func TestTGIHangsAtRest(t *testing.T) {
	f := fleet(metrics.TGI)
	f.Profile.Arrivals = 0.05
	w := New(f, time.Unix(0, 0), 1)
	w.Advance(time.Minute)
	w.Replicas[0].Engine.Wedged = true
	w.Advance(10 * time.Minute)
	answer := httptest.NewRecorder()
	w.Replicas[0].page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	page := answer.Body.String()
	if !strings.Contains(page, "\ntgi_queue_size ") || strings.Contains(page, "\ntgi_queue_size 0\n") {
		t.Errorf("nothing waits:\n%s", page)
	}
}
