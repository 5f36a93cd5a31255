package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// whole names the incidents whose messages stand in full: one for each kind of answer.
var whole = []string{"traffic-burst", "long-prompts", "kv-thrash", "bad-release", "black-hole", "thermal-throttle", "xid-79", "wedged-engine", "dead-gateway", "model-down", "offload-saturated"}

// WritePages writes the first message of each incident, as its receiver reads it: its title and how long it is, and some in full.
func WritePages(out io.Writer, traces []Trace) error {
	var table, full strings.Builder
	table.WriteString("| incident | title | lines | characters |\n| --- | --- | --- | --- |\n")
	for _, t := range traces {
		if len(t.Sent) == 0 {
			continue
		}
		n := t.Sent[0]
		lines, characters := n.Length()
		fmt.Fprintf(&table, "| %s | %s | %d | %d |\n", t.Incident.Name, n.Title, lines, characters)
		if slices.Contains(whole, t.Incident.Name) {
			fmt.Fprintf(&full, "\n### %s\n\n```text\n%s\n```\n", t.Incident.Name, n.Message())
		}
	}
	_, err := fmt.Fprintf(out, "%s\n## In full\n%s", &table, &full)
	return err
}
