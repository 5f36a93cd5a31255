package triage

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// width is the number of columns of the text, which fits a terminal and a ticket.
const width = 80

// Text writes verdicts for people, with these options.
type Text struct {
	// Root is the address of an exporter that serves the runbooks. It is empty if no such exporter is known.
	Root string
	// Color marks the health of the models, for terminals.
	Color bool
}

// colors has the terminal's escape sequence for each state.
var colors = map[Health]string{Healthy: "\x1b[32m", Degraded: "\x1b[33m", Failing: "\x1b[31m", Unknown: "\x1b[36m"}

// Write writes verdicts as text.
func (t Text) Write(out io.Writer, verdicts []Verdict) error {
	var b strings.Builder
	if len(verdicts) == 0 {
		b.WriteString("No engine was read, so there is nothing to judge. The exporter's /engines lists\nthe engines that it found.\n")
	}
	for i, v := range verdicts {
		if i > 0 {
			b.WriteString("\n" + strings.Repeat("-", width) + "\n\n")
		}
		t.verdict(&b, v)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (t Text) verdict(b *strings.Builder, v Verdict) {
	state := strings.ToUpper(string(v.Health))
	if t.Color {
		state = colors[v.Health] + state + "\x1b[0m"
	}
	fmt.Fprintf(b, "%s: %s\n", v.Record.Model, state)
	if v.Branch != "" {
		fill(b, "", fmt.Sprintf("Look first at: %s. %s. (%s confidence)", v.Branch, v.Says, v.Confidence))
		if v.Lever != "" { // one more line then shows the first action
			fill(b, "", "Do first, "+v.Lever+".")
		}
		if v.Or != "" {
			fill(b, "  ", v.Or+".")
		}
	} else if v.Health != Healthy || len(v.Also) == 0 {
		fill(b, "", "No evidence points at a branch.")
	}
	for _, s := range v.Symptoms {
		fill(b, "  ", s)
	}
	also := "Also"
	if v.Health == Healthy {
		also = "Changed, although no objective burns"
	}
	for _, s := range v.Also {
		fill(b, "  ", fmt.Sprintf("%s: %s. %s.", also, s.Branch, s.Says))
	}
	t.evidence(b, v.Evidence, v.recalls)
	branches(b, "Ruled out", v.RuledOut)
	branches(b, "Not seen", v.NotSeen)
	if !v.recalls && slices.ContainsFunc(v.Evidence, func(e Evidence) bool { return e.Before != "" }) {
		fill(b, "  ", "\"Before\" is the time since the engines started; with --prometheus=URL, the day before.")
	}
	if len(v.Levers) > 0 {
		b.WriteString("\nWhat to do\n")
		for _, l := range v.Levers {
			if strings.HasPrefix(l, "$ ") { // a command stays on one line, so that people can copy it
				b.WriteString("  " + l + "\n")
			} else {
				fill(b, "  ", "* "+l)
			}
		}
		at := t.Root
		if at == "" {
			at = "any exporter's /"
		}
		fmt.Fprintf(b, "Runbook: %s%s\n", at, v.Runbook)
	}
	if v.Clue != NoAnswer { // not for an exporter that does not answer
		t.record(b, v.Record)
	}
}

// branches writes a list of branches and the reasons, grouped by reason.
func branches(b *strings.Builder, title string, all []RuledOut) {
	var whys []string
	of := map[string][]string{}
	for _, r := range all {
		if of[r.Why] == nil {
			whys = append(whys, r.Why)
		}
		of[r.Why] = append(of[r.Why], string(r.Branch))
	}
	if whys != nil {
		b.WriteString("\n" + title + "\n")
	}
	for _, why := range whys {
		fill(b, "  ", strings.Join(of[why], ", ")+": "+why)
	}
}

// evidence writes the facts as a table.
func (t Text) evidence(b *strings.Builder, all []Evidence, recalls bool) {
	if len(all) == 0 {
		return
	}
	before := "before"
	if recalls {
		before = "the day before"
	}
	row := func(says, now, before string) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-46s %-14s %s", says, now, before), " ") + "\n")
	}
	b.WriteString("\nEvidence\n")
	row("", "now", before)
	for _, e := range all {
		says := e.Says
		if e.Of != "" {
			says += ", " + e.Of
		}
		if utf8.RuneCountInString(says) > 46 { // keeps the value in its column
			fill(b, "  ", says)
			says = ""
		}
		row(says, e.Shown, e.Before)
	}
}

// record writes the values that people should note before a restart erases them.
func (t Text) record(b *strings.Builder, r Record) {
	b.WriteString("\nRecord this before a restart erases it\n")
	for _, line := range [][2]string{
		{"model", r.Model},
		{"runtime", strings.Join(r.Runtimes, ", ")},
		{"version", strings.Join(r.Versions, ", ")},
		{"engines", strings.Join(r.Engines, ", ")},
		{"started", strings.Join(r.Started, ", ")},
		{"changed", strings.Join(r.Changed, ", ")},
		{"settings", strings.Join(r.Settings, ", ")},
		{"GPUs", strings.Join(r.GPUs, ", ")},
		{"driver", strings.Join(r.Drivers, ", ")},
		{"route", r.Route},
		{"read", r.From + " to " + r.To},
		{"first tokens", fmt.Sprintf("%.0f between the readings", r.FirstTokens)},
	} {
		if line[1] != "" {
			fill(b, "  ", fmt.Sprintf("%s: %s", line[0], line[1]))
		}
	}
}

// fill writes words in lines that fit, and indents all lines after the first. A word that is longer than a line stays
// whole, so that people can copy commands.
func fill(b *strings.Builder, indent, text string) {
	at := 0
	for i, word := range slices.Collect(strings.FieldsSeq(text)) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
			b.WriteString(indent)
			at = len(indent)
		case at+1+n > width:
			b.WriteString("\n" + indent + "  ")
			at = len(indent) + 2
		default:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += n
	}
	b.WriteString("\n")
}
