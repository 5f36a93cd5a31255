package probe

import (
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestRequestsWaitForTheirTurn checks that a request whose first token is late waited only if later tokens are on time, and
// only compared with answers that are known.
func TestRequestsWaitForTheirTurn(t *testing.T) {
	answers := func(tokens int, first, gap time.Duration) Answer {
		return Answer{
			Outcome: metrics.ProbeOK, FirstToken: first, Took: first + time.Duration(tokens-1)*gap, Tokens: tokens, PageUp: true,
		}
	}
	const ms = time.Millisecond
	usual := answers(5, 200*ms, 20*ms)
	for name, c := range map[string]struct {
		before, now Answer
		want        string
	}{
		"waits":        {usual, answers(5, 4000*ms, 20*ms), "} 4\n"},
		"slow":         {usual, answers(5, 4000*ms, 60*ms), "} 0\n"},
		"on time":      {usual, usual, "} 0\n"},
		"always late":  {answers(5, 4000*ms, 20*ms), answers(5, 4000*ms, 20*ms), "} 0\n"},
		"just started": {Answer{}, answers(5, 4000*ms, 20*ms), ""},
	} {
		t.Run(name, func(t *testing.T) {
			col, p := collecting(), probing(t, "http://engine:8000")
			now := time.Unix(0, 0)
			if c.before.Tokens > 0 {
				for range 120 {
					now = now.Add(30 * time.Second)
					col.Answered(p, c.before, now, 0)
				}
			}
			for range 10 {
				now = now.Add(30 * time.Second)
				col.Answered(p, c.now, now, 0)
			}
			shown := ""
			for line := range strings.Lines(series(t, col)) {
				if strings.HasPrefix(line, metrics.ProbeQueueing.Name+"{") {
					shown = line
				}
			}
			if c.want == "" && shown != "" || !strings.HasSuffix(shown, c.want) {
				t.Errorf("%q, want it to end with %q", shown, c.want)
			}
		})
	}
}
