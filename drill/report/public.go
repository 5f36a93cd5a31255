package report

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// WritePublic writes what the drill would have told of public incidents beside when people noticed them, and where each was
// published.
func WritePublic(out io.Writer, traces []Trace) error {
	var b strings.Builder
	b.WriteString("| incident | people noticed after | first sign | first told | of | page | page is about, or says to look at, the cause | named cause, and what to do |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, t := range traces {
		s, r := t.Score, t.Incident.Report
		noticed, todo := "not said", "-"
		if r.Noticed > 0 {
			noticed = slo.Duration(r.Noticed.Round(time.Minute)).String()
		}
		switch {
		case t.Incident.Quiet && s.OK():
			todo = "nothing: wakes nobody"
		case r.Missed != "":
			todo = "missed: " + r.Missed
		case s.Cause != "":
			todo = fmt.Sprintf("[%s](../runbooks/%s.md) after %s", short(s.Cause), runbook(s.Cause), s.CauseAt)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", s.Incident, noticed, when(s.Sign > 0, s.Sign), when(len(s.ToldOf) > 0, s.Told), short(s.ToldOf...),
			when(len(s.PagedBy) > 0, s.Delay), yes(s.InPage), todo)
	}
	b.WriteString("\n")
	for _, t := range traces {
		r := t.Incident.Report
		fmt.Fprintf(&b, "* **%s**: %s. Reported: %s. Assumed: %s. Source: %s.\n", t.Incident.Name, t.Incident.Story, r.Said, r.Assumed, linked(r.Source))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// runbook returns the page about an alert or a clue.
func runbook(cause string) string {
	for _, c := range rules.Clues() {
		if c.Name == cause {
			return c.Runbook
		}
	}
	return cause
}

// thread matches the name of a repository and the numbers of its threads.
var thread = regexp.MustCompile(`([\w.-]+/[\w.-]+) (\d+)`)

// linked returns a source whose first thread of each repository is a link.
func linked(source string) string {
	return thread.ReplaceAllString(source, "[$1 $2](https://github.com/$1/issues/$2)")
}
