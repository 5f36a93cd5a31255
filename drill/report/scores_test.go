package report

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
)

// Each incident is one row. Times are ranges over the seeds that have such a time. Different values are listed side by
// side.
func TestScores(t *testing.T) {
	paged := []string{"LLMModelDown"}
	var out strings.Builder
	err := WriteScores(&out, []score.Score{
		{
			Incident: "a", Seed: 1, PagedBy: paged, Delay: score.Span(70 * time.Second), Burning: "ttft", Due: score.Span(80 * time.Second),
			Pages: 1, Cause: "LLMModelDown",
		},
		{
			Incident: "a", Seed: 2, PagedBy: paged, Delay: score.Span(130 * time.Second), Burning: "ttft", Due: score.Span(60 * time.Second),
			Pages: 1, InPage: true,
		},
		{Incident: "b", Seed: 1, Problems: []string{"no page"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")[1:]
	want := []string{
		`a,ModelDown,1:10 to 2:10,-0:10 to 1:10,"-, ModelDown",0:00,"-, yes",1,0,0,-,-`,
		"b,-,-,-,-,-,-,0,0,0,-,no page",
	}
	if strings.Join(rows, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}

// Regeneration keeps the first score.
func TestFirstScoreIsKept(t *testing.T) {
	scores, err := os.ReadFile("../../docs/drill-scores.md")
	if err != nil || !strings.HasSuffix(string(scores), "\n\n"+FirstScore) {
		t.Errorf("%v: docs/drill-scores.md does not end with the first score: run make drill-report", err)
	}
}
