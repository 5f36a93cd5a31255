// Package doctor finds out why a series or a value is missing. It examines one reading of an exporter, and what
// Prometheus reports about itself. For each fault, it names the remedy.
//
//	finding     a fault, and how much it matters         doctor.go
//	page        one reading of an exporter               page.go
//	rules       which alerts need which metrics          rules.go
//	exporter    checks of a reading                      exporter.go, engines.go
//	prometheus  Prometheus' answers, and their checks    prometheus.go, scraping.go, evaluation.go
//
// A check is a function from a Picture to findings. It sends no requests and changes nothing.
package doctor

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Severity is how much a finding matters.
type Severity string

// These are the severities. The worst comes first.
const (
	Broken  Severity = "broken"  // alerts do not fire
	Unseen  Severity = "unseen"  // a check was not possible
	Missing Severity = "missing" // something is not measured; everything else works
)

var severities = []Severity{Broken, Unseen, Missing}

// Finding describes one fault.
type Finding struct {
	Severity Severity `json:"severity"`
	// Subject names the faulty object: an engine, a GPU, an objective, a rule, or a scrape target.
	Subject string `json:"subject"`
	// Problem describes the fault, and its cause.
	Problem string `json:"problem"`
	// Alerts lists the alerts that cannot fire because of the problem.
	Alerts []string `json:"alerts,omitempty"`
	// Remedy describes what to do, as a command, a flag or a setting.
	Remedy string `json:"remedy"`
	// Docs names the document with more details.
	Docs string `json:"docs,omitempty"`
}

// Report holds all results.
type Report struct {
	// Findings lists the problems. The worst comes first.
	Findings []Finding `json:"findings"`
	// Fine has one line for each check without a problem. It also lists metrics that an engine can never report.
	Fine []string `json:"fine"`
}

// Status returns the exit status: 0 if nothing is wrong, 1 if something is missing, 2 if alerts do not fire, 3 if a
// check was not possible.
func (r Report) Status() int {
	switch {
	case len(r.Findings) == 0:
		return 0
	case r.Findings[0].Severity == Broken:
		return 2
	case r.Findings[0].Severity == Unseen:
		return 3
	}
	return 1
}

// Picture has all data about an installation.
type Picture struct {
	// Exporter is the reading of one exporter, or nil.
	Exporter *Reading
	// Prometheus is nil if the command line names none.
	Prometheus *Prometheus
	// Rules holds the rules that Prometheus should evaluate.
	Rules Rules
	// Version is the release of this program.
	Version string
}

// Diagnose runs all checks. The report also has the findings in gathered, which describe problems with reading the
// data.
func Diagnose(p Picture, gathered ...Finding) Report {
	r := Report{Findings: append([]Finding{}, gathered...), Fine: []string{}}
	if p.Exporter != nil {
		for _, check := range []func(Picture, *Report){
			checkSelf, checkDiscovery, checkEngines, checkObjectives, checkGPUs, checkHealth,
			checkOwnership, checkProbes,
		} {
			check(p, &r)
		}
	}
	if p.Prometheus != nil {
		for _, check := range []func(Picture, *Report){
			checkTargets, checkLabels, checkCopies, checkGateways, checkVersions, checkRules,
			checkEvaluation, checkAlertmanager,
		} {
			check(p, &r)
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity))
	})
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Subject, f.Problem, f.Remedy = printable(f.Subject), printable(f.Problem), printable(f.Remedy)
	}
	for i := range r.Fine {
		r.Fine[i] = printable(r.Fine[i])
	}
	return r
}

func (r *Report) add(f Finding)    { r.Findings = append(r.Findings, f) }
func (r *Report) fine(line string) { r.Fine = append(r.Fine, line) }

// longest limits the length of text from other programs in the report.
const longest = 600

// printable returns a text on one line without control characters. Parts of the text come from metrics pages and other
// servers, and a terminal would execute control characters.
func printable(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?") {
		if b.Len() > longest {
			b.WriteString("…")
			break
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

// some joins names. If there are many, it joins the first few, and counts the others.
func some(names []string) string {
	const few = 4
	if len(names) > few+1 {
		return strings.Join(names[:few], ", ") + " and " + strconv.Itoa(len(names)-few) + " more"
	}
	return strings.Join(names, ", ")
}

// distinct returns the names sorted, and each name once.
func distinct(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

// count formats a number with its noun, in the singular or the plural.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

func short(d time.Duration) string { return d.Round(10 * time.Millisecond).String() }
