package main

import (
	"bytes"
	"encoding/csv"
	"slices"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
)

// rows returns the lines of a generated table, the head first.
func rows(t *testing.T, render func() ([]byte, error)) [][]string {
	t.Helper()
	text, err := render()
	if err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// For each engine and quantity, engines.csv has every source in the order in which the exporter tries them, or the
// reason for the lack of a source.
func TestEnginesTable(t *testing.T) {
	sources := map[[2]string][]string{} // by engine and quantity
	for _, r := range rows(t, enginesTable)[1:] {
		if r[3] == "missing" && r[7] == "" {
			t.Errorf("%s %s is missing for no reason", r[0], r[1])
		}
		sources[[2]string{r[0], r[1]}] = append(sources[[2]string{r[0], r[1]}], r[3]+" "+r[6])
	}
	for _, d := range engine.Known() {
		for _, f := range quantities() {
			listed := sources[[2]string{title(d), f.Name}]
			if (len(listed) > 0) != d.Concerns(f) {
				t.Errorf("%s %s: concerned: %t, listed: %q", title(d), f.Name, d.Concerns(f), listed)
			}
			at := 0
			for _, r := range rowsOf(d, f) {
				i := slices.Index(listed[at:], quality(r)+" "+source(r))
				if i < 0 {
					t.Errorf("%s %s: %s is not listed, or before a source that is tried earlier", title(d), f.Name, source(r))
					continue
				}
				at += i + 1
			}
		}
	}
	for _, want := range [][]string{
		{
			"tgi", "llm_engine_request_duration_seconds", "", "native", "from 0.3.0", "yes", "tgi_request_duration",
			"absent: no request has finished yet",
		},
		{
			"tgi", "llm_engine_time_to_first_token_seconds", "", "missing", "", "no", "",
			"no histogram; queue time is per request and prefill time per batch, so they cannot be added",
		},
		{"vllm", "llm_engine_queue_time_seconds", "", "native", "0.6.4 to 0.9.0", "no", "vllm:time_in_queue_requests", "absent: V0 only"},
		{"vllm", "llm_engine_max_model_len_tokens", "", "endpoint", "", "yes", "/v1/models", "asked once per start of the engine"},
		{"llamacpp", "llm_engine_preemptions_total", "", "missing", "", "no", "", "llama.cpp does not preempt"},
	} {
		if !slices.ContainsFunc(rows(t, enginesTable), func(r []string) bool { return slices.Equal(r, want) }) {
			t.Errorf("docs/engines.csv lacks %q", want)
		}
	}
}
