package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// ways lists the sources of advice on where to look first.
var ways = []struct {
	name string
	told func(score.Triage) (branch rules.Branch, doubts bool)
}{
	{"two readings", func(t score.Triage) (rules.Branch, bool) { return t.Alone, t.AloneDoubts }},
	{"with a Prometheus", func(t score.Triage) (rules.Branch, bool) { return t.WithPast, t.PastDoubts }},
	{"the page", func(t score.Triage) (rules.Branch, bool) { return t.Paged, false }},
}

// triageSummary counts how often each source was right, was undecided, named nothing, or was wrong.
func triageSummary(all []score.Triage) string {
	var b strings.Builder
	b.WriteString("| source of the answer | right | unsure | no branch | wrong |\n| --- | --- | --- | --- | --- |\n")
	for _, w := range ways {
		right, unsure, silent := 0, 0, 0
		for _, t := range all {
			switch told, doubts := w.told(t); {
			case told == t.Want:
				right++
			case doubts:
				unsure++
			case told == "":
				silent++
			}
		}
		of := func(n int) string {
			return fmt.Sprintf("%d of %d (%.1f%%)", n, len(all), 100*float64(n)/float64(len(all)))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", w.name, of(right), of(unsure), of(silent), of(len(all)-right-unsure-silent))
	}
	return b.String()
}

// triageRows returns a table with the answer of each source in each incident. An exclamation mark precedes a wrong
// branch.
func triageRows(all []score.Triage, seeds uint64) [][]string {
	rows := [][]string{{"incident", "right"}}
	for _, w := range ways {
		rows[0] = append(rows[0], w.name)
	}
	for some := range slices.Chunk(all, int(seeds)) {
		row := []string{some[0].Incident, string(some[0].Want)}
		for _, w := range ways {
			told := map[string]int{}
			for _, t := range some {
				branch, doubts := w.told(t)
				answer := cmp.Or(string(branch), "nothing")
				if doubts {
					answer += "?"
				}
				if branch != t.Want && branch != "" {
					answer = "!" + answer
				}
				told[answer]++
			}
			cells := slices.Sorted(maps.Keys(told))
			for i, cell := range cells {
				if n := told[cell]; n < len(some) {
					cells[i] = fmt.Sprintf("%s %d", cell, n)
				}
			}
			row = append(row, strings.Join(cells, ", "))
		}
		rows = append(rows, row)
	}
	return rows
}
