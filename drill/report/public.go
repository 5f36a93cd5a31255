package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// WritePublic writes as CSV, for each public incident, the alerts of the drill, the time when people noticed, the
// reported and assumed facts, and the source.
func WritePublic(out io.Writer, traces []Trace) error {
	rows := [][]string{{
		"incident", "story", "people noticed after", "first sign", "first told", "of", "page",
		"page is about, or says to look at, the cause", "named cause", "runbook",
		"reported", "assumed", "source",
	}}
	for _, t := range traces {
		s, r := t.Score, t.Incident.Report
		noticed, named, todo := "not said", "-", ""
		if r.Noticed > 0 {
			noticed = slo.Duration(r.Noticed.Round(time.Minute)).String()
		}
		switch {
		case t.Incident.Quiet && s.OK():
			named = "nothing: wakes nobody"
		case r.Missed != "":
			named = "missed: " + r.Missed
		case s.Cause != "":
			named, todo = fmt.Sprintf("%s after %s", short(s.Cause), s.CauseAt), runbook(s.Cause)
		}
		rows = append(rows, []string{
			s.Incident, t.Incident.Story, noticed, when(s.Sign > 0, s.Sign), when(len(s.ToldOf) > 0, s.Told),
			short(s.ToldOf...),
			when(len(s.PagedBy) > 0, s.Delay), yes(s.InPage), named, todo, r.Said, r.Assumed, linked(r.Source),
		})
	}
	return csv.NewWriter(out).WriteAll(rows)
}

// runbook returns the name of the runbook for an alert or a clue.
func runbook(cause string) string {
	for _, c := range rules.Clues() {
		if c.Name == cause {
			return c.Runbook
		}
	}
	return cause
}

// thread matches the name of a repository, and the number of the thread that follows.
var thread = regexp.MustCompile(`([\w.-]+/[\w.-]+) (\d+)`)

// linked returns a source in which the address of a thread replaces each repository and its first thread number.
func linked(source string) string {
	return thread.ReplaceAllString(source, "https://github.com/$1/issues/$2")
}
