package score

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// Apart is the time between the readings of a triage.
const Apart = 30 * time.Second

// Triage has the branches that the page and triage named at the time of an incident's first page. An empty branch means
// that none was named.
type Triage struct {
	Incident string
	Seed     uint64
	Want     rules.Branch // branch of the cause
	Alone    rules.Branch // from two readings
	WithPast rules.Branch // from two readings and a Prometheus
	Paged    rules.Branch // in the first page
	// AloneDoubts and PastDoubts mean that a triage named its branch with low confidence, and also named an alternative.
	AloneDoubts, PastDoubts bool
}

// Triaged runs triage on the node at the time of an incident's first page. It returns false for an incident that must
// not page, or that has no cause to name.
func Triaged(p *play.Play) (t Triage, ok bool, err error) {
	in, pages := p.Incident, to(p, "llm-critical")
	name, branch := in.Names()
	if in.Page == nil || name == "" {
		return t, false, nil
	}
	t = Triage{Incident: in.Name, Seed: p.Seed, Want: branch}
	if len(pages) == 0 {
		return t, true, nil
	}
	t.Paged = told(pages[0], t.Want)
	at := pages[0].At.Truncate(play.ScrapeInterval)
	before, err := p.Reading(at.Add(-Apart))
	if err != nil {
		return t, false, err
	}
	after, err := p.Reading(at)
	if err != nil {
		return t, false, err
	}
	judge := func(past triage.Past) (told rules.Branch, doubts bool) {
		verdicts, failed := triage.Judge(context.Background(), before, after, past)
		err = cmp.Or(err, failed)
		return first(verdicts, t.Want), len(verdicts) > 0 && verdicts[0].Confidence == "low" && verdicts[0].Or != ""
	}
	t.Alone, t.AloneDoubts = judge(nil)
	t.WithPast, t.PastDoubts = judge(p.Past)
	return t, err == nil, err
}

// first returns the branch that a triage names first, for the model with the worst health. Triage names a separate
// first suspect for late tokens. If only that suspect is the wanted one, first returns it.
func first(verdicts []triage.Verdict, want rules.Branch) rules.Branch {
	if len(verdicts) == 0 {
		return ""
	}
	v := verdicts[0]
	late := slices.IndexFunc(v.Also, func(s triage.Suspect) bool { return s.Delays != rules.FirstToken })
	if late >= 0 && v.Delays == rules.FirstToken && v.Also[late].Delays == rules.NextToken && v.Also[late].Branch == want {
		return want
	}
	return v.Branch
}

// told returns the branch that a page names as the first place to look. If one of the page's objectives leads to the
// wanted branch, it returns the wanted branch. If the page names no branch, it returns the branch of one of the page's
// alerts that names a cause.
func told(page play.Notification, want rules.Branch) rules.Branch {
	if leads(page, want) {
		return want
	}
	for _, a := range rules.Alerts(play.Rules()) {
		if leads(page, a.Branch) {
			return a.Branch
		}
	}
	for _, a := range rules.Alerts(play.Rules()) {
		if a.Branch != rules.Symptom && slices.Contains(page.Alerts, a.Name) {
			return a.Branch
		}
	}
	return ""
}
