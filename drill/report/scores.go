package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
)

// WriteScores writes scores as CSV, with one row for each incident. If a time differs between the seeds of an incident,
// the row has the range. Scores of one incident must be adjacent.
func WriteScores(out io.Writer, scores []score.Score) error {
	rows := [][]string{{
		"incident", "paged by", "after", "later than theory", "cause", "after", "in page", "pages", "updates", "tickets",
		"cleared", "wrong",
	}}
	for len(scores) > 0 {
		n := slices.IndexFunc(scores, func(s score.Score) bool { return s.Incident != scores[0].Incident })
		if n < 0 {
			n = len(scores)
		}
		rows = append(rows, row(scores[:n]))
		scores = scores[n:]
	}
	return csv.NewWriter(out).WriteAll(rows)
}

// row returns the CSV row of one incident.
func row(scores []score.Score) []string {
	paged := func(s score.Score) bool { return len(s.PagedBy) > 0 }
	return []string{
		scores[0].Incident,
		each(scores, func(s score.Score) string { return short(s.PagedBy...) }),
		between(scores, paged, func(s score.Score) score.Span { return s.Delay }),
		between(scores, func(s score.Score) bool { return paged(s) && s.Burning != "" },
			func(s score.Score) score.Span { return s.Delay - s.Due }),
		each(scores, func(s score.Score) string { return short(s.Cause) }),
		between(scores, func(s score.Score) bool { return s.Cause != "" }, func(s score.Score) score.Span { return s.CauseAt }),
		each(scores, func(s score.Score) string { return yes(s.InPage) }),
		each(scores, func(s score.Score) string { return fmt.Sprint(s.Pages) }),
		each(scores, func(s score.Score) string { return fmt.Sprint(s.Updates) }),
		each(scores, func(s score.Score) string { return fmt.Sprint(s.Tickets) }),
		between(scores, func(s score.Score) bool { return s.Cleared > 0 }, func(s score.Score) score.Span { return s.Cleared }),
		each(scores, func(s score.Score) string { return short(s.Problems...) }),
	}
}

// each returns the distinct values that a function has over the scores.
func each(scores []score.Score, of func(score.Score) string) string {
	var values []string
	for _, s := range scores {
		if v := of(s); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return strings.Join(values, ", ")
}

// between returns the range of a time over all scores that have this time.
func between(scores []score.Score, has func(score.Score) bool, of func(score.Score) score.Span) string {
	var times []score.Span
	for _, s := range scores {
		if has(s) {
			times = append(times, of(s))
		}
	}
	if times == nil {
		return "-"
	}
	least, most := slices.Min(times), slices.Max(times)
	if least == most {
		return least.String()
	}
	return least.String() + " to " + most.String()
}
