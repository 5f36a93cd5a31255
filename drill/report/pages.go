package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"
)

// whole names the incidents whose messages are in pages.md. It has one incident for each kind of answer that a message
// gives.
var whole = []string{
	"traffic-burst", "batch-knee", "kv-thrash", "runaway-generation", "bad-release", "wedged-engine", "dead-gateway", "model-down",
	"thermal-throttle", "nvlink-wear",
}

// WritePages writes the first message of each incident in whole, as the receiver gets it.
func WritePages(out io.Writer, traces []Trace) error {
	var b strings.Builder
	for _, t := range traces {
		if len(t.Sent) > 0 && slices.Contains(whole, t.Incident.Name) {
			fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n", t.Incident.Name, t.Sent[0].Message())
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// WriteMessages writes the first message of each incident, as the receiver gets it.
func WriteMessages(out io.Writer, traces []Trace) error {
	for _, t := range traces {
		if len(t.Sent) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(out, "== %s\n%s\n\n", t.Incident.Name, t.Sent[0].Message()); err != nil {
			return err
		}
	}
	return nil
}

// WriteTitles writes the title of the first message of each incident, and the length of the message, as CSV.
func WriteTitles(out io.Writer, traces []Trace) error {
	rows := [][]string{{"incident", "title", "lines", "characters"}}
	for _, t := range traces {
		if len(t.Sent) == 0 {
			continue
		}
		n := t.Sent[0]
		lines, characters := n.Length()
		rows = append(rows, []string{t.Incident.Name, n.Title, fmt.Sprint(lines), fmt.Sprint(characters)})
	}
	return csv.NewWriter(out).WriteAll(rows)
}
