package score

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/draw"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// Answer is the branch that a page or a triage named, with the judgement whether it is right.
type Answer struct {
	Branch rules.Branch `json:"branch"`
	Right  bool         `json:"right"`
	Unsure bool         `json:"unsure"` // no branch is named, or a wrong branch is named with low confidence and an alternative
	High   bool         `json:"high"`   // the answer has high confidence
}

// Drawn holds the answers about a world drawn at random.
type Drawn struct {
	Seed           uint64         `json:"seed"`
	Class          string         `json:"class"`
	Want           []rules.Branch `json:"want"`
	Due            bool           `json:"due"`      // users suffered so much that an objective requires a page
	Incident       bool           `json:"incident"` // Due, and the cause is the drawn fault; or no request was served
	Pages, Tickets int
	Page           Answer `json:"page"`
	WithPast       Answer `json:"with_past"`
	Alone          Answer `json:"alone"`
}

// OfDrawn judges a drawn world that was played. It runs triage at the first page. If there was no page, it runs triage
// two minutes after a page was due. It writes triage's text to shown.
func OfDrawn(d draw.Draw, p *play.Play, shown io.Writer) (s Drawn, err error) {
	pages := since(p, "llm-critical")
	s = Drawn{Seed: d.Seed, Class: d.Class, Want: d.Want, Pages: len(pages), Tickets: len(since(p, "llm-warning"))}
	due, _, burns := p.World.Due(p.Onset)
	s.Due = burns && due > 0 // an earlier burn is another incident
	s.Incident = !d.Quiet() && (s.Due || d.Unserved)
	if !s.Incident {
		return s, nil
	}
	if !burns {
		due = 10 * time.Minute
	}
	at := p.World.At(min(p.Onset+due+2*time.Minute, p.Onset+p.Incident.Lasts)).Truncate(max(play.ScrapeInterval, d.Options.Scrape))
	s.Page.Unsure = true
	if len(pages) > 0 {
		at = pages[0].At.Truncate(max(play.ScrapeInterval, d.Options.Scrape))
		told := told(pages[0], d.Want[0])
		for _, want := range d.Want {
			if leads(pages[0], want) {
				told = want
			}
		}
		s.Page = Answer{Branch: told, Right: slices.Contains(d.Want, told), Unsure: told == ""}
	}
	before, err := p.Reading(at.Add(-max(Apart, d.Options.Scrape)))
	if err != nil {
		return s, err
	}
	after, err := p.Reading(at)
	if err != nil {
		return s, err
	}
	if s.Alone, err = answer(d.Want, before, after, nil, shown); err == nil {
		s.WithPast, err = answer(d.Want, before, after, p.Past, shown)
	}
	return s, err
}

// answer runs a triage, and judges the branch that it names.
func answer(want []rules.Branch, before, after triage.Reading, past triage.Past, shown io.Writer) (a Answer, err error) {
	verdicts, err := triage.Judge(context.Background(), before, after, past)
	if err != nil {
		return a, err
	}
	fmt.Fprintf(shown, "Triage with a Prometheus: %t, at %s\n", past != nil, after.At.Format(time.TimeOnly))
	if err := (triage.Text{}).Write(shown, verdicts); err != nil {
		return a, err
	}
	for _, w := range want {
		if !a.Right {
			a.Branch = first(verdicts, w)
			a.Right = a.Branch == w
		}
	}
	a.Unsure = a.Branch == ""
	if len(verdicts) > 0 {
		a.High = verdicts[0].Confidence == "high"
		a.Unsure = a.Unsure || !a.Right && verdicts[0].Confidence == "low" && verdicts[0].Or != ""
	}
	return a, nil
}

// since returns the notifications to a receiver after the onset, without updates of earlier notifications.
func since(p *play.Play, receiver string) []play.Notification {
	return slices.DeleteFunc(to(p, receiver), func(n play.Notification) bool { return n.Update || n.At.Before(p.World.At(p.Onset)) })
}
