package main

import (
	"encoding/csv"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// The table distinguishes three ways: one names a wrong branch beside another possible branch, one names no branch,
// and one is wrong.
func TestTriageTable(t *testing.T) {
	all := []score.Triage{
		{Incident: "a", Want: rules.Memory, Alone: rules.Memory, AloneDoubts: true, WithPast: rules.Memory, Paged: rules.Memory},
		{Incident: "a", Want: rules.Memory, Alone: rules.Decode, AloneDoubts: true, WithPast: rules.Memory, Paged: rules.Decode},
		{Incident: "b", Want: rules.Release, WithPast: rules.Release, Paged: rules.Release},
		{Incident: "b", Want: rules.Release, Alone: rules.Engine, WithPast: rules.Release},
	}
	summary := triageSummary(all)
	for _, want := range []string{
		"| source of the answer | right | unsure | no branch | wrong |",
		"| two readings | 1 of 4 (25.0%) | 1 of 4 (25.0%) | 1 of 4 (25.0%) | 1 of 4 (25.0%) |",
		"| with a Prometheus | 4 of 4 (100.0%) | 0 of 4 (0.0%) | 0 of 4 (0.0%) | 0 of 4 (0.0%) |",
		"| the page | 2 of 4 (50.0%) | 0 of 4 (0.0%) | 1 of 4 (25.0%) | 1 of 4 (25.0%) |",
	} {
		if !strings.Contains(summary, want+"\n") {
			t.Errorf("no line %q in\n%s", want, summary)
		}
	}
	want := [][]string{
		{"incident", "right", "two readings", "with a Prometheus", "the page"},
		{"a", "memory", "!decode? 1, memory? 1", "memory", "!decode 1, memory 1"},
		{"b", "release", "!engine 1, nothing 1", "release", "nothing 1, release 1"},
	}
	if rows := triageRows(all, 2); !slices.EqualFunc(rows, want, slices.Equal[[]string]) {
		t.Errorf("got %q\nwant %q", rows, want)
	}
}

// The table of the documentation counts the rows of the CSV beside it.
func TestTriageTableCountsItsRows(t *testing.T) {
	file, err := os.Open("../../docs/triage-scores.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var all []score.Triage
	for _, row := range rows[1:] {
		one := score.Triage{Incident: row[0], Want: rules.Branch(row[1])}
		read := func(cell string) (rules.Branch, bool) {
			name, doubts := strings.CutSuffix(strings.TrimPrefix(cell, "!"), "?")
			if strings.ContainsAny(name, " ,") {
				t.Fatalf("%s has more than one seed: count each", row[0])
			}
			if name == "nothing" {
				name = ""
			}
			return rules.Branch(name), doubts
		}
		one.Alone, one.AloneDoubts = read(row[2])
		one.WithPast, one.PastDoubts = read(row[3])
		one.Paged, _ = read(row[4])
		all = append(all, one)
	}
	if again := triageRows(all, 1); !slices.EqualFunc(again, rows, slices.Equal[[]string]) {
		t.Errorf("the CSV is written otherwise now: %q", again)
	}
	page, err := os.ReadFile("../../docs/drill-scores.md")
	if err != nil {
		t.Fatal(err)
	}
	if table := triageSummary(all); !strings.Contains(string(page), table) {
		t.Errorf("docs/drill-scores.md lacks:\n%s", table)
	}
}
