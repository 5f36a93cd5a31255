package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// TestRun plays the shortest incident from the command line.
func TestRun(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), "row-remap-failure", false, 3, "json", &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var scores []struct {
		Incident string   `json:"incident"`
		Seed     uint64   `json:"seed"`
		PagedBy  []string `json:"paged_by"`
		Delay    float64  `json:"delay_seconds"`
	}
	if err := json.Unmarshal([]byte(out.String()), &scores); err != nil {
		t.Fatal(err)
	}
	if len(scores) != 1 || scores[0].Seed != 3 || scores[0].Delay < 10 || scores[0].Delay > 130 || len(scores[0].PagedBy) != 1 {
		t.Errorf("%+v", scores)
	}
	if err := run(t.Context(), "nonsense", false, 1, "table", io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(),
		"traffic-burst") {
		t.Errorf("an unknown incident: %v", err)
	}
}

func TestList(t *testing.T) {
	var out strings.Builder
	if err := list(&out); err != nil || !strings.Contains(out.String(), "quiet-night") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
