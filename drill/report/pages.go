package report

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// whole is how many messages stand in full.
const whole = 10

var leadsTo = regexp.MustCompile(`(?m)^Do: .*/runbooks/(\w+)`)

// WritePages writes the first message of each incident, as its receiver reads it: its title and how long it is, and in full the
// first ten that lead to different runbooks.
func WritePages(out io.Writer, traces []Trace) error {
	var table, full strings.Builder
	table.WriteString("| incident | title | lines | characters |\n| --- | --- | --- | --- |\n")
	shown := map[string]bool{}
	for _, t := range traces {
		if len(t.Sent) == 0 {
			continue
		}
		n := t.Sent[0]
		lines, characters := n.Length()
		fmt.Fprintf(&table, "| %s | %s | %d | %d |\n", t.Incident.Name, n.Title, lines, characters)
		if m := leadsTo.FindStringSubmatch(n.Text); m != nil && !shown[m[1]] && len(shown) < whole {
			shown[m[1]] = true
			fmt.Fprintf(&full, "\n### %s\n\n```text\n%s\n```\n", t.Incident.Name, n.Message())
		}
	}
	_, err := fmt.Fprintf(out, "%s\n## In full\n%s", &table, &full)
	return err
}
