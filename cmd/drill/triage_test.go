package main

import (
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// The table tells who says that it cannot tell from who is wrong: no branch at all, or the wrong one, and another that it may be.
func TestTriageTable(t *testing.T) {
	table := triageTable([]score.Triage{
		{Incident: "a", Want: rules.Memory, Alone: rules.Memory, AloneDoubts: true, WithPast: rules.Memory, Paged: rules.Memory},
		{Incident: "a", Want: rules.Memory, Alone: rules.Decode, AloneDoubts: true, WithPast: rules.Memory, Paged: rules.Decode},
		{Incident: "b", Want: rules.Release, WithPast: rules.Release, Paged: rules.Release},
		{Incident: "b", Want: rules.Release, Alone: rules.Engine, WithPast: rules.Release},
	}, 2)
	for _, want := range []string{
		"| told by | right | says that it cannot tell | wrong |",
		"| two readings | 1 of 4 (25.0%) | 2 of 4 (50.0%) | 1 of 4 (25.0%) |",
		"| with a Prometheus | 4 of 4 (100.0%) | 0 of 4 (0.0%) | 0 of 4 (0.0%) |",
		"| the page | 2 of 4 (50.0%) | 1 of 4 (25.0%) | 1 of 4 (25.0%) |",
		"| a | memory | **decode?** 1, memory? 1 | memory | **decode** 1, memory 1 |",
		"| b | release | **engine** 1, **nothing** 1 | release | **nothing** 1, release 1 |",
	} {
		if !strings.Contains(table, want+"\n") {
			t.Errorf("no line %q in\n%s", want, table)
		}
	}
}
