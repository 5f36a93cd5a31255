package main

import (
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/transcript"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// story follows an incident from its page to its end, and lets a person act on it.
type story struct {
	out      io.Writer
	incident incident.Incident
	onset    time.Time
	// lever and heal change the running world; ask queries the Prometheus that monitors this world.
	lever, heal func()
	ask         func(query string, at time.Time) (promql.Vector, error)

	page    *play.Notification // the open page
	runbook string             // runbook that the page links to
	known   url.Values         // labels of the runbook's alert
	record  []string           // events so far
	sent    int                // number of messages
}

// leads matches the link to the runbook in a message. The link also has the labels for the runbook's queries.
var leads = regexp.MustCompile(`(?m)^Runbook: .*?(\S+/runbooks/(\w+)\S*)$`)

// note adds a line to the record.
func (s *story) note(at time.Time, what, says string) {
	s.record = append(s.record, fmt.Sprintf("%-8s %s, %s after the onset: %s", what, at.Format(time.TimeOnly), at.Sub(s.onset).
		Round(time.Second), says))
}

// told handles a notification. When the page is resolved, told ends the story.
func (s *story) told(n play.Notification) error {
	s.sent++
	if n.Receiver != "llm-critical" {
		return nil
	}
	switch {
	case s.page == nil && !n.Resolved:
		s.page = &n
		if m := leads.FindStringSubmatch(n.Text); m != nil {
			if link, err := url.Parse(m[1]); err == nil {
				s.runbook, s.known = m[2], link.Query()
			}
		}
		first, _, _ := strings.Cut(n.Text, "\n")
		s.note(n.At, "paged", n.Title+" "+first)
		if s.incident.Lever.Do != nil {
			fmt.Fprintf(s.out, "Type and Enter:\n  lever 1  %s (%s, %s)\n  healthy  undoes all that is wrong\n\n", s.incident.Lever.Says,
				s.incident.Lever.Page, strings.Join(s.incident.Lever.Parts, ", "))
		} else if s.incident.Faults != nil {
			fmt.Fprint(s.out, "Type healthy and Enter to undo all that is wrong.\n\n")
		}
	case s.page != nil && n.Resolved && n.Group == s.page.Group:
		s.note(n.At, "over", n.Title)
		return s.end(n.At)
	}
	return nil
}

// pull applies the incident's lever to the world.
func (s *story) pull(now time.Time) {
	lever := s.incident.Lever
	if lever.Do == nil {
		fmt.Fprintf(s.out, "%s has no lever in the drill: healthy undoes all that is wrong, and list names the incidents.\n", s.incident.Name)
		return
	}
	s.lever()
	s.note(now, "lever", lever.Says)
	fmt.Fprintf(s.out, "The lever of %s (%s) is pulled: %s. The page is resolved when its windows have forgotten the incident: in "+
		"minutes or, after a long one, half an hour.\n", lever.Page, strings.Join(lever.Parts, ", "), lever.Says)
}

// recover removes the faults.
func (s *story) recover(now time.Time) {
	if s.incident.Faults == nil {
		fmt.Fprintln(s.out, "Nothing is wrong here: list names what may happen.")
		return
	}
	s.heal()
	s.note(now, "healthy", "all that was wrong is undone")
	fmt.Fprintln(s.out, "All that was wrong is undone, in the same world: what is recorded of it stays. The page is resolved when its "+
		"windows have forgotten the incident: in minutes or, after a long one, half an hour.")
}

// loading is how long a restarted engine loads its model.
const loading = 30 * time.Second

// undo heals a world.
func undo(w *world.World) { w.Heal(loading) }

// end runs the queries with which the runbooks check that an incident is over. It writes the results, and the record of
// the incident.
func (s *story) end(now time.Time) error {
	fmt.Fprintln(s.out, "\n=== Is it over? The runbooks ask, and Prometheus answers:")
	ask := func(page string, parts ...string) error {
		return transcript.Follow(s.out, s.ask, s.onset, now, s.known, page, parts...)
	}
	if s.runbook != "" {
		if err := ask(s.runbook, "Verify"); err != nil {
			return err
		}
	}
	if err := ask("Verify", "The objective", "What users wait for", "Goodput"); err != nil {
		return err
	}
	if name := s.known.Get(metrics.LabelSLO); name != "" {
		left, err := s.ask(fmt.Sprintf("min(%s{%s=%q,%s=%q})", metrics.RecordedBudgetRemaining.Name, metrics.LabelSLO, name,
			metrics.LabelModel, s.known.Get(metrics.LabelModel)), now)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			s.record = append(s.record, fmt.Sprintf("%-8s %.0f%% left of %s", "budget", 100*left[0].F, name))
		}
	}
	fmt.Fprintf(s.out, "\n=== For the record\n%-8s %s: %s\n%-8s %s\n%s\n%-8s %d messages\n\n", "incident", s.incident.Name, s.incident.Story,
		"began", s.onset.Format(time.TimeOnly), strings.Join(s.record, "\n"), "sent", s.sent)
	s.page, s.record = nil, nil
	return nil
}
