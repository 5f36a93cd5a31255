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

// Triage holds which branch was told at the time of an incident's first page. An empty branch means none.
type Triage struct {
	Incident string
	Seed     uint64
	Want     rules.Branch // of the cause
	Alone    rules.Branch // from two readings
	WithPast rules.Branch // from two readings and a Prometheus
	Paged    rules.Branch // on the page
}

// Triaged judges the node as it was when an incident paged. It returns false for an incident that must page nobody or
// that has no cause to name.
func Triaged(p *play.Play) (t Triage, ok bool, err error) {
	in, pages := p.Incident, to(p, "llm-critical")
	if in.Page == nil || in.Cause == nil || len(pages) == 0 {
		return t, false, nil
	}
	t = Triage{Incident: in.Name, Seed: p.Seed, Want: in.Cause.Branch, Paged: told(pages[0])}
	at := pages[0].At.Truncate(play.ScrapeInterval)
	before, err := p.Reading(at.Add(-Apart))
	if err != nil {
		return t, false, err
	}
	after, err := p.Reading(at)
	if err != nil {
		return t, false, err
	}
	judge := func(past triage.Past) (branch rules.Branch) {
		verdicts, failed := triage.Judge(context.Background(), before, after, past)
		if err = cmp.Or(err, failed); len(verdicts) > 0 {
			branch = verdicts[0].Branch
		}
		return branch
	}
	t.Alone, t.WithPast = judge(nil), judge(p.Past)
	return t, err == nil, err
}

// told returns the branch that a page says to look at first, or else that of an alert in it that names a cause.
func told(page play.Notification) rules.Branch {
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
