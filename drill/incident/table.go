package incident

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable prints scores, one line each, and what is wrong below its line.
func WriteTable(out io.Writer, scores []Score) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "incident\tseed\tpaged by\tafter\ttheory\tcause\tafter\tin page\tpages\ttickets\tcleared\talso fired")
	for _, s := range scores {
		paged := len(s.PagedBy) > 0
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", s.Incident, s.Seed, short(s.PagedBy...), when(paged, s.Delay), when(s.Burning != "", s.Due),
			short(s.Cause), when(s.Cause != "", s.CauseAt), yes(s.InPage), s.Pages, s.Tickets, when(s.Cleared > 0, s.Cleared), short(s.Also...))
		for _, p := range s.Problems {
			fmt.Fprintf(t, "  WRONG: %s\n", p)
		}
	}
	return t.Flush()
}

func short(alerts ...string) string {
	if text := strings.ReplaceAll(strings.Join(alerts, " "), "LLM", ""); text != "" {
		return text
	}
	return "-"
}

func when(known bool, d time.Duration) string {
	if !known {
		return "-"
	}
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}
