package world

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestRanksRestartTogether restarts one rank of a server: the server's metrics page shows every rank again, each once.
func TestRanksRestartTogether(t *testing.T) {
	f := fleet(metrics.VLLM)
	f.Replicas, f.Ranks = 3, true
	w := New(f, time.Unix(0, 0), 1)
	w.Advance(time.Minute)
	for i, restarted := range []int{1, 0} {
		w.Replicas[restarted].Restart(time.Second)
		w.Advance(time.Duration(2+i) * time.Minute)
		answer := httptest.NewRecorder()
		w.Replicas[0].page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if n := strings.Count(answer.Body.String(), "\nvllm:num_requests_running{"); n != 3 {
			t.Errorf("after rank %d restarted, the page shows %d of 3 ranks", restarted, n)
		}
	}
}
