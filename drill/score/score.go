// Package score judges a played incident. It compares the messages to the person on call with the theory, which
// predicts when a page is due. It lists the problems.
package score

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Score is the outcome of an incident. Times count from the incident's onset.
type Score struct {
	Incident string   `json:"incident"`
	Seed     uint64   `json:"seed"`
	PagedBy  []string `json:"paged_by"`          // alerts in the first page
	Delay    Span     `json:"delay_seconds"`     // time until the first page
	Due      Span     `json:"due_seconds"`       // time at which theory pages, from the events of the users
	Burning  string   `json:"burning,omitempty"` // objective that was due first
	Cause    string   `json:"cause,omitempty"`   // alert that named the cause
	CauseAt  Span     `json:"cause_at_seconds"`
	InPage   bool     `json:"in_page"`         // the first page is that alert, or leads to its branch
	Pages    int      `json:"pages"`           // number of pages opened
	Updates  int      `json:"updates"`         // further messages about an open page
	Tickets  int      `json:"tickets"`         // number of tickets
	Also     []string `json:"also"`            // other alerts that fired
	Cleared  Span     `json:"cleared_seconds"` // when the alerts that paged had stopped
	Split    string   `json:"split,omitempty"` // split of the first page
	Problems []string `json:"problems"`

	Sign   Span     `json:"sign_seconds,omitempty"` // time at which a public incident shows in any engine's metrics; zero if never
	Told   Span     `json:"told_seconds"`           // time until the first message, page or ticket
	ToldOf []string `json:"told_of,omitempty"`      // alerts of that message
}

// Span is a duration. In JSON, it is in seconds.
type Span time.Duration

// MarshalJSON implements json.Marshaler.
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// String returns minutes and seconds.
func (s Span) String() string {
	if s < 0 {
		return "-" + (-s).String()
	}
	return fmt.Sprintf("%d:%02d", int(s)/int(time.Minute), int(s)%int(time.Minute)/int(time.Second))
}

// OK reports whether there are no problems.
func (s Score) OK() bool { return len(s.Problems) == 0 }

// wrong adds a problem.
func (s *Score) wrong(format string, args ...any) {
	s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
}

// New judges the outcome of an incident.
func New(p *play.Play) Score {
	in, firing := p.Incident, p.Firing()
	s := Score{Incident: in.Name, Seed: p.Seed}
	s.judgeCalm(firing)
	pages := to(p, "llm-critical")
	s.judgeMessages(p, pages)
	due, objective, burns := p.World.Due(p.Onset)
	if burns {
		s.Due, s.Burning = Span(due), objective
	}
	if len(pages) > 0 {
		s.PagedBy, s.Split = pages[0].Alerts, pages[0].Split
		s.Delay = Span(pages[0].At.Sub(p.World.At(p.Onset)))
		s.Cleared = cleared(in, firing, pages[len(pages)-1].Alerts)
	}
	instead := in.Or != nil && slices.Contains(s.PagedBy, in.Or.Name) && !slices.Contains(s.PagedBy, in.Page.Name)
	if instead {
		in.Page, in.Shows = in.Or, ""
	}
	s.judgePage(in, burns)
	if in.Report != nil {
		s.judgeReport(p)
	}
	s.judgeCause(p, in, pages, instead)
	if in.Quiet && s.Tickets > 0 {
		s.wrong("%d tickets for nothing", s.Tickets)
	}
	for _, name := range slices.Sorted(maps.Keys(firing)) {
		if !slices.Contains(s.PagedBy, name) && name != s.Cause {
			s.Also = append(s.Also, name)
		}
	}
	return s
}

// judgeCalm adds a problem for each alert that fired before any fault. At the start of the simulation, windows of days
// are minutes old, and a few bad events fill these windows. Therefore, only the hour before the onset counts.
func (s *Score) judgeCalm(firing map[string][]time.Duration) {
	for _, name := range slices.Sorted(maps.Keys(firing)) {
		if i := slices.IndexFunc(firing[name], func(t time.Duration) bool { return t >= -time.Hour }); i >= 0 && firing[name][i] < 0 {
			s.wrong("%s fired %s before anything happened", name, -firing[name][i])
		}
	}
}

// late matches the threshold and the mean in the title of a message, such as "longer than 10s (mean 12s".
var late = regexp.MustCompile(`(?:longer than|exceed) (\S+) \(mean ([^,]+),`)

// contradicts reports whether a title contradicts itself: it claims that events miss a threshold, but shows a mean
// below this threshold.
func contradicts(title string) bool {
	m := late.FindStringSubmatch(title)
	if m == nil {
		return false
	}
	threshold, err := time.ParseDuration(m[1])
	mean, failed := time.ParseDuration(strings.ReplaceAll(m[2], " ", ""))
	return err != nil || failed != nil || mean < threshold
}

// judgeMessages counts the messages. It adds a problem for each message that is too long for a phone, or that
// contradicts itself.
func (s *Score) judgeMessages(p *play.Play, pages []play.Notification) {
	for _, n := range pages {
		if n.Update {
			s.Updates++
		} else {
			s.Pages++
		}
	}
	s.Tickets = len(to(p, "llm-warning"))
	for _, n := range p.Sent {
		if lines, characters := n.Length(); n.Receiver != "llm-null" && (lines > 8 || characters > 600) {
			s.wrong("a message of %d lines and %d characters: %s", lines, characters, n.Message())
		}
		if title, _, _ := strings.Cut(n.Message(), "\n"); contradicts(title) {
			s.wrong("a mean below the threshold: %s", title)
		}
	}
}

// judgePage adds a problem for each wrong, late or missing page. burns means that a page was due.
func (s *Score) judgePage(in incident.Incident, burns bool) {
	if in.Page == nil {
		if s.Pages > 0 {
			s.wrong("paged for nothing: %s", strings.Join(s.PagedBy, ", "))
		}
		if burns {
			s.wrong("the simulated users did suffer: %s was due at %s", s.Burning, s.Due)
		}
		return
	}
	limit := Span(in.Within)
	if in.Page == rules.FastBurn && (burns || in.Within == 0) {
		if !burns {
			s.wrong("the simulated users did not suffer enough for a page")
		}
		limit = s.Due + Span(2*rules.Interval)
	}
	switch {
	case s.Pages == 0:
		s.wrong("no page")
	case !slices.Contains(s.PagedBy, in.Page.Name):
		s.wrong("paged by %s, not by %s", strings.Join(s.PagedBy, ", "), in.Page.Name)
	case s.Delay > limit:
		s.wrong("the page came at %s, %s was the limit", s.Delay, limit)
	}
	if s.Pages > 1 {
		s.wrong("%d pages for one incident", s.Pages)
	}
}

// judgeReport compares the times of the messages with the time when people noticed the published incident.
func (s *Score) judgeReport(p *play.Play) {
	r := p.Incident.Report
	for at := time.Duration(0); r.Sign != "" && s.Sign == 0; at += play.ScrapeInterval {
		seen, err := p.Prometheus.Query(r.Sign, p.World.At(p.Onset+at))
		if err != nil || at > p.Incident.Lasts {
			s.wrong("no page shows the first sign: %v", cmp.Or(err, errors.New(r.Sign)))
			break
		}
		if len(seen) > 0 && at > 0 {
			s.Sign = Span(at)
		}
	}
	for _, n := range p.Sent {
		if after := n.At.Sub(p.World.At(p.Onset)); !n.Resolved && (n.Receiver == "llm-critical" || n.Receiver == "llm-warning") && after >= 0 {
			s.Told, s.ToldOf = Span(after), n.Alerts
			break
		}
	}
	named, _ := p.Incident.Names()
	quiet := p.Incident.Page == nil && named == ""
	if late := r.Noticed > 0 && s.Told > Span(r.Noticed); !quiet && (s.ToldOf == nil || late) {
		s.wrong("nobody was told before people noticed")
	}
	if quiet && r.Missed == "" && !p.Incident.Quiet {
		s.wrong("nobody is told, and nothing says why")
	}
}

// judgeCause adds a problem if no alert or clue names the cause, or if the first page names a wrong branch. instead
// means that an unexpected alert paged, and leads to another branch.
func (s *Score) judgeCause(p *play.Play, in incident.Incident, pages []play.Notification, instead bool) {
	name, branch := in.Names()
	if name == "" {
		return
	}
	if len(pages) > 0 && !regexp.MustCompile(in.Shows).MatchString(s.Split) {
		s.wrong("the page does not show %q", in.Shows)
	}
	fired := p.Firing()[name]
	if in.Clue != "" {
		fired = recorded(p, name)
	}
	if len(fired) == 0 {
		s.wrong("the cause is not named: no %s", name)
	} else {
		s.Cause, s.CauseAt = name, Span(fired[0])
	}
	s.InPage = slices.Contains(s.PagedBy, name) || len(pages) > 0 && leads(pages[0], branch)
	if len(pages) > 0 && !s.InPage && !instead {
		s.wrong("the page does not say to look first at %s", branch)
	}
	named := false
	for _, n := range pages {
		if named && !leads(n, branch) && slices.Contains(n.Alerts, rules.FastBurn.Name) {
			look, _, _ := strings.Cut(n.Split, "\n")
			s.wrong("the page was right, and was corrected %s after the onset: %s", n.At.Sub(p.World.At(p.Onset)), look)
		}
		named = named || leads(n, branch)
	}
}

// recorded returns when a clue about a model whose budget burns was first recorded after the onset. If there was no
// such clue, the list is empty.
func recorded(p *play.Play, clue string) []time.Duration {
	for at := time.Duration(0); at <= p.Incident.Lasts; at += rules.Interval {
		found, err := p.Prometheus.Query(fmt.Sprintf("%s{%s=%q} and on (%s) (%s > 1)", metrics.RecordedSuspect.Name, metrics.LabelClue, clue,
			strings.Join([]string{metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelModel}, ", "), metrics.Window(metrics.RecordedBurn,
				"5m").Name), p.World.At(p.Onset+at))
		if err == nil && len(found) > 0 {
			return []time.Duration{at}
		}
	}
	return nil
}

// to returns the notifications to a receiver, without those that only report resolved alerts.
func to(p *play.Play, receiver string) []play.Notification {
	return slices.DeleteFunc(slices.Clone(p.Sent), func(n play.Notification) bool { return n.Receiver != receiver || n.Resolved })
}

// leads reports whether a page names a branch as the first place to look.
func leads(page play.Notification, b rules.Branch) bool {
	return strings.Contains(page.Split, "Look first at: "+string(b)+".")
}

// cleared returns the time when the last of the alerts stopped firing, or zero if an alert fires until the end.
func cleared(in incident.Incident, firing map[string][]time.Duration, alerts []string) Span {
	var end time.Duration
	for _, name := range alerts {
		end = max(end, firing[name][len(firing[name])-1]+rules.Interval)
	}
	if end > in.Lasts {
		return 0
	}
	return Span(end)
}
