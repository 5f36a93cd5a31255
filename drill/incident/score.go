package incident

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Score holds the outcome of an incident. Times count from its onset.
type Score struct {
	Incident string   `json:"incident"`
	Seed     uint64   `json:"seed"`
	PagedBy  []string `json:"paged_by"`          // alerts in the first page
	Delay    span     `json:"delay_seconds"`     // until the first page
	Due      span     `json:"due_seconds"`       // when theory pages, given what happened to the users
	Burning  string   `json:"burning,omitempty"` // the objective that was due first
	Cause    string   `json:"cause,omitempty"`   // alert that named the cause
	CauseAt  span     `json:"cause_at_seconds"`
	InPage   bool     `json:"in_page"`         // the first page is about it, or says to look where it is
	Pages    int      `json:"pages"`           // number of pages opened
	Updates  int      `json:"updates"`         // further messages about an open page
	Tickets  int      `json:"tickets"`         // messages
	Also     []string `json:"also"`            // other alerts that fired
	Cleared  span     `json:"cleared_seconds"` // when the alerts that paged had stopped
	Split    string   `json:"split,omitempty"` // of the first page
	Problems []string `json:"problems"`
}

// span is a duration that JSON holds in seconds.
type span time.Duration

// MarshalJSON implements json.Marshaler.
func (s span) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

func (s span) String() string {
	if s < 0 {
		return "-" + (-s).String()
	}
	return fmt.Sprintf("%d:%02d", int(s)/int(time.Minute), int(s)%int(time.Minute)/int(time.Second))
}

// OK reports whether nothing is wrong.
func (s Score) OK() bool { return len(s.Problems) == 0 }

// score judges the outcome of the incident.
func (p *play) score(seed uint64) Score {
	in := p.incident
	s := Score{Incident: in.Name, Seed: seed}
	wrong := func(format string, args ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, args...)) }

	for _, name := range slices.Sorted(maps.Keys(p.firing)) {
		// At the start of the simulation, windows of days are minutes old, and a handful of bad events fills them. So
		// only the hour before the onset counts.
		if i := slices.IndexFunc(p.firing[name], func(t time.Duration) bool { return t >= -time.Hour }); i >= 0 && p.firing[name][i] < 0 {
			wrong("%s fired %s before anything happened", name, -p.firing[name][i])
		}
	}
	pages := p.am.pages()
	for _, n := range pages {
		if n.Update {
			s.Updates++
		} else {
			s.Pages++
		}
	}
	s.Tickets = len(p.am.to("llm-warning"))
	due, objective, burns := p.world.truth.burn(p.onset)
	if burns {
		s.Due, s.Burning = span(due), objective
	}
	if len(pages) > 0 {
		s.PagedBy, s.Split = pages[0].Alerts, pages[0].Split
		s.Delay = span(pages[0].At.Sub(at(p.onset)))
		s.Cleared = p.cleared(pages[len(pages)-1].Alerts)
	}
	p.judgePage(&s, burns, wrong)
	if in.Cause != nil {
		if len(pages) > 0 && !regexp.MustCompile(in.Shows).MatchString(s.Split) {
			wrong("the page does not show %q", in.Shows)
		}
		if fired := p.firing[in.Cause.Name]; fired == nil {
			wrong("the cause is not named: no %s", in.Cause.Name)
		} else {
			s.Cause, s.CauseAt = in.Cause.Name, span(fired[0])
		}
		s.InPage = slices.Contains(s.PagedBy, in.Cause.Name) || len(pages) > 0 && pages[0].leads(in.Cause.Branch)
		if len(pages) > 0 && !s.InPage {
			wrong("the page does not say to look first at %s", in.Cause.Branch)
		}
	}
	if in.Quiet && s.Tickets > 0 {
		wrong("%d tickets for nothing", s.Tickets)
	}
	for _, name := range slices.Sorted(maps.Keys(p.firing)) {
		if !slices.Contains(s.PagedBy, name) && name != s.Cause {
			s.Also = append(s.Also, name)
		}
	}
	return s
}

func (p *play) judgePage(s *Score, burns bool, wrong func(string, ...any)) {
	in := p.incident
	if in.Page == nil {
		if s.Pages > 0 {
			wrong("paged for nothing: %s", strings.Join(s.PagedBy, ", "))
		}
		if burns {
			wrong("the simulated users did suffer: %s was due at %s", s.Burning, s.Due)
		}
		return
	}
	limit := span(in.Within)
	if in.Page == rules.FastBurn {
		if !burns {
			wrong("the simulated users did not suffer enough for a page")
		}
		limit = s.Due + span(2*rules.Interval)
	}
	switch {
	case s.Pages == 0:
		wrong("no page")
	case !slices.Contains(s.PagedBy, in.Page.Name):
		wrong("paged by %s, not by %s", strings.Join(s.PagedBy, ", "), in.Page.Name)
	case s.Delay > limit:
		wrong("the page came at %s, %s was the limit", s.Delay, limit)
	}
	if s.Pages > 1 {
		wrong("%d pages for one incident", s.Pages)
	}
}

// cleared returns when the last of the alerts stopped; zero while one fires.
func (p *play) cleared(alerts []string) span {
	var end time.Duration
	for _, name := range alerts {
		end = max(end, p.firing[name][len(p.firing[name])-1]+rules.Interval)
	}
	if end > p.incident.Lasts {
		return 0
	}
	return span(end)
}
