package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
)

// WriteTable prints scores, one per line, followed by the problems.
func WriteTable(out io.Writer, scores []score.Score) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "incident\tseed\tpaged by\tafter\ttheory\tcause\tafter\tin page\tpages\tupdates\ttickets\tcleared\talso fired")
	for _, s := range scores {
		paged := len(s.PagedBy) > 0
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", s.Incident, s.Seed, short(s.PagedBy...), when(paged, s.Delay),
			when(s.Burning != "", s.Due),
			short(s.Cause), when(s.Cause != "", s.CauseAt), yes(s.InPage), s.Pages, s.Updates, s.Tickets, when(s.Cleared > 0, s.Cleared),
			short(s.Also...))
	}
	err := t.Flush()
	for _, s := range scores {
		for _, p := range s.Problems {
			fmt.Fprintf(out, "WRONG: %s, seed %d: %s\n", s.Incident, s.Seed, p)
		}
	}
	return err
}

// short joins the names of alerts, without the prefix LLM. It returns "-" if there are no names.
func short(alerts ...string) string {
	if text := strings.ReplaceAll(strings.Join(alerts, " "), "LLM", ""); text != "" {
		return text
	}
	return "-"
}

// when formats a known time. It returns "-" for an unknown time.
func when(known bool, s score.Span) string {
	if !known {
		return "-"
	}
	return s.String()
}

// yes returns "yes" or "-".
func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}
