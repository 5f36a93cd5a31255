package probe

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestRealEngine compares a client's measurements with the metrics page of a real llama.cpp: LLAMA_SERVER names the
// program, LLAMA_MODEL any file of weights. One request runs at a time, so the engine's counters before and after
// belong to it.
func TestRealEngine(t *testing.T) {
	program, weights := os.Getenv("LLAMA_SERVER"), os.Getenv("LLAMA_MODEL")
	if program == "" || weights == "" {
		t.Skip("LLAMA_SERVER and LLAMA_MODEL are not set")
	}
	const requests, tokens = 20, 32
	host, port, err := net.SplitHostPort(e2e.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + net.JoinHostPort(host, port)
	e2e.Start(t, program, "--model", weights, "--host", host, "--port", port, "--metrics", "--parallel", "1")
	e2e.Answers(t, url+"/health")

	p := probing(t, url, func(c *Config) {
		c.PromptWords, c.Nonce, c.MaxTokens, c.Body = 200, true, tokens, map[string]any{"ignore_eos": true}
	})
	var prefill, decode []float64
	for range requests {
		before, err := counters(url)
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.ask(t.Context(), time.Now())
		if r.outcome != metrics.ProbeOK {
			t.Fatal(r.outcome, err)
		}
		after, err := counters(url)
		if err != nil {
			t.Fatal(err)
		}
		grown := func(name string) float64 { return after[name] - before[name] }
		if got := grown("tokens_predicted_total"); got != float64(r.completion) || r.completion != tokens {
			t.Errorf("the engine made %v tokens, the answer had %d, %d were asked for", got, r.completion, tokens)
		}
		if got := grown("prompt_tokens_total") + grown("prompt_tokens_cached_total"); got != float64(r.prompt) {
			t.Errorf("the engine read %v tokens, the usage says %d", got, r.prompt)
		}
		prefill = append(prefill, (r.token-r.connected).Seconds()/grown("prompt_seconds_total"))
		decode = append(decode, (r.end-r.token).Seconds()/grown("tokens_predicted_seconds_total"))
	}
	for _, c := range []struct {
		what   string
		ratios []float64
	}{{"time to first token over the engine's prompt time", prefill}, {
		"time after the first token over the engine's generation time",
		decode,
	}} {
		slices.Sort(c.ratios)
		low, middle, high := c.ratios[0], c.ratios[requests/2], c.ratios[requests-1]
		t.Logf("%s: %.3f to %.3f, median %.3f", c.what, low, high, middle)
		if middle < 0.9 || middle > 1.1 {
			t.Errorf("%s: the median is %.3f", c.what, middle)
		}
	}
}

// counters reads llama.cpp's metrics page, by name without the prefix.
func counters(base string) (map[string]float64, error) {
	resp, err := http.Get(base + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^llamacpp:(\w+) (\S+)$`).FindAllStringSubmatch(string(body), -1) {
		if values[m[1]], err = strconv.ParseFloat(m[2], 64); err != nil {
			return nil, err
		}
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("%s: no counters yet: %s", base, resp.Status)
	}
	return values, nil
}
