package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// The table tells who says that it cannot tell from who is wrong: no branch at all, or the wrong one, and another that it may be.
func TestTriageTable(t *testing.T) {
	all := []score.Triage{
		{Incident: "a", Want: rules.Memory, Alone: rules.Memory, AloneDoubts: true, WithPast: rules.Memory, Paged: rules.Memory},
		{Incident: "a", Want: rules.Memory, Alone: rules.Decode, AloneDoubts: true, WithPast: rules.Memory, Paged: rules.Decode},
		{Incident: "b", Want: rules.Release, WithPast: rules.Release, Paged: rules.Release},
		{Incident: "b", Want: rules.Release, Alone: rules.Engine, WithPast: rules.Release},
	}
	summary := triageSummary(all)
	for _, want := range []string{
		"| who answers | right | cannot tell | wrong |",
		"| two readings | 1 of 4 (25.0%) | 2 of 4 (50.0%) | 1 of 4 (25.0%) |",
		"| with a Prometheus | 4 of 4 (100.0%) | 0 of 4 (0.0%) | 0 of 4 (0.0%) |",
		"| the page | 2 of 4 (50.0%) | 1 of 4 (25.0%) | 1 of 4 (25.0%) |",
	} {
		if !strings.Contains(summary, want+"\n") {
			t.Errorf("no line %q in\n%s", want, summary)
		}
	}
	want := [][]string{
		{"incident", "right", "two readings", "with a Prometheus", "the page"},
		{"a", "memory", "!decode? 1, memory? 1", "memory", "!decode 1, memory 1"},
		{"b", "release", "!engine 1, !nothing 1", "release", "!nothing 1, release 1"},
	}
	if rows := triageRows(all, 2); !slices.EqualFunc(rows, want, slices.Equal[[]string]) {
		t.Errorf("got %q\nwant %q", rows, want)
	}
}
