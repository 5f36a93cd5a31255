package engine

import (
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
)

// TestBudget checks that metrics pages that do not fit into memory together are refused before they are parsed, and
// read once there is room.
func TestBudget(t *testing.T) {
	body := readPage(t, "vllm/v0.19.0-dp2-spec.prom")
	var targets []TargetConfig
	for _, pod := range []string{"a", "b", "c"} {
		targets = append(targets, TargetConfig{URL: serve(t, body).URL, Labels: map[string]string{"pod": pod}})
	}
	one := int64(len(body) + seriesBytes*strings.Count(body, "\n"))
	limits := scrape.DefaultLimits
	limits.Memory = 2*one + one/2
	c, err := New(Config{Limits: limits, UserAgent: "test", Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	read := func(targets []TargetConfig, up int) {
		t.Helper()
		var err error
		if c, err = c.With(targets); err != nil {
			t.Fatal(err)
		}
		if e, err := c.Probe(t.Context(), targets[0]); err != nil || e.Reason != "" && e.Reason != scrape.LimitExceeded {
			t.Errorf("a probe: %v, %v", e, err)
		}
		exposition(t, c)
		page := parse(t, exposition(t, c)) // reading again costs nothing more
		got := 0
		for _, value := range page.get(t, "llm_engine_up") {
			got += int(value)
		}
		if refused := len(page.get(t, `llm_engine_up{reason="limit_exceeded"}`)); got != up || refused != len(targets)-up {
			t.Errorf("%d of %d pages are read and %d refused, want %d read", got, len(targets), refused, up)
		}
	}
	read(targets, 2)
	for _, e := range c.Engines() {
		if e.Reason == scrape.LimitExceeded && !strings.Contains(e.Detail, "limits.memory") {
			t.Errorf("no remedy: %s", e.Detail)
		}
	}
	read(targets[1:], 2)
	read(targets[:1], 1)
}
