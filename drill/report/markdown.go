package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
)

// WriteMarkdown writes the scores of incidents over several seeds, one row per incident; a time that depends on the
// seed becomes a range. Scores of one incident must be adjacent.
func WriteMarkdown(out io.Writer, scores []score.Score) error {
	var b strings.Builder
	b.WriteString("| incident | paged by | after | later than theory | cause | after | in page | pages | updates | tickets | cleared | wrong |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for len(scores) > 0 {
		n := slices.IndexFunc(scores, func(s score.Score) bool { return s.Incident != scores[0].Incident })
		if n < 0 {
			n = len(scores)
		}
		row(&b, scores[:n])
		scores = scores[n:]
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// row writes the scores of one incident.
func row(b *strings.Builder, scores []score.Score) {
	paged := func(s score.Score) bool { return len(s.PagedBy) > 0 }
	cells := []string{
		scores[0].Incident,
		each(scores, func(s score.Score) string { return short(s.PagedBy...) }),
		between(scores, paged, func(s score.Score) score.Span { return s.Delay }),
		between(scores, func(s score.Score) bool { return paged(s) && s.Burning != "" }, func(s score.Score) score.Span { return s.Delay - s.Due }),
		each(scores, func(s score.Score) string { return short(s.Cause) }),
		between(scores, func(s score.Score) bool { return s.Cause != "" }, func(s score.Score) score.Span { return s.CauseAt }),
		each(scores, func(s score.Score) string { return yes(s.InPage) }),
		each(scores, func(s score.Score) string { return fmt.Sprint(s.Pages) }),
		each(scores, func(s score.Score) string { return fmt.Sprint(s.Updates) }),
		each(scores, func(s score.Score) string { return fmt.Sprint(s.Tickets) }),
		between(scores, func(s score.Score) bool { return s.Cleared > 0 }, func(s score.Score) score.Span { return s.Cleared }),
		each(scores, func(s score.Score) string { return short(s.Problems...) }),
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

// each returns the distinct values of the scores.
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

// between returns the range of a time over the scores that have one.
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
