package score_test

import (
	"context"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

var everyIncident = flag.Bool("all", false, "compare triage and recorded suspects in every incident, not in a few")

// apart is as long as the longest window of a clue.
const apart = 10 * time.Minute

// TestTriageAgrees checks that two readings, and a Prometheus' records, name the same first suspect as the rules,
// minute by minute. After a restart between the readings, counters show fewer events than the scrapes showed. So in all
// incidents, one minute in twenty may differ.
func TestTriageAgrees(t *testing.T) {
	incidents := []incident.Incident{small(t, "thermal-throttle"), small(t, "prefix-collapse")}
	if *everyIncident {
		incidents = incident.Incidents()
	}
	compared, differ, minutes := 0, 0, 0
	for _, in := range incidents {
		in.History = max(in.History, 75*time.Minute) // data of the day before leave out the last hour
		in.Lasts = 16 * time.Minute
		p, err := play.Run(in, play.Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		// A counter that appears with the fault has no value in an earlier reading, so begin when the counter appears.
		for since := apart + 2*time.Minute; since <= p.Incident.Lasts; since += time.Minute {
			at := p.World.At(p.Onset + since)
			want := recorded(t, p, at)
			got := judged(t, p, at)
			minutes++
			if got != want {
				differ++
				t.Logf("%s, %s after the onset: triage names %q, the rules record %q", in.Name, since, got, want)
			}
			if want != "" {
				compared++
			}
		}
		p.Close()
	}
	t.Logf("%d of %d minutes agree; the rules record a suspect in %d", minutes-differ, minutes, compared)
	if compared == 0 || 20*differ > minutes {
		t.Errorf("%d of %d minutes differ; %d had a suspect", differ, minutes, compared)
	}
}

// recorded returns the first recorded suspect that explains every delay.
func recorded(t *testing.T, p *play.Play, at time.Time) string {
	t.Helper()
	all, err := p.Prometheus.Query(metrics.RecordedSuspect.Name+`{delays=""}`, at)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		return ""
	}
	first := slices.MinFunc(all, func(a, b promql.Sample) int {
		return strings.Compare(a.Metric.Get(metrics.LabelOrder), b.Metric.Get(metrics.LabelOrder))
	})
	return named(first.Metric.Get(metrics.LabelBranch), first.Metric.Get(metrics.LabelClue), first.Metric.Get(metrics.LabelRunbook))
}

// named returns the name of a suspect. Triage lists an engine that makes no progress once, whichever alert, clue or
// reading shows it.
func named(branch, clue, runbook string) string {
	if runbook == rules.EngineStalled.Name || runbook == rules.ModelStalled.Name {
		clue = "stalled"
	}
	return branch + " " + clue
}

// judged returns the first suspect of a triage, which also names alerts.
func judged(t *testing.T, p *play.Play, at time.Time) string {
	t.Helper()
	before, err := p.Reading(at.Add(-apart))
	if err != nil {
		t.Fatal(err)
	}
	after, err := p.Reading(at)
	if err != nil {
		t.Fatal(err)
	}
	verdicts, err := triage.Judge(context.Background(), before, after, p.Past)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts {
		runbook, _, _ := strings.Cut(strings.TrimPrefix(v.Runbook, "runbooks/"), "?")
		for _, s := range append([]triage.Suspect{{Branch: v.Branch, Clue: v.Clue, Runbook: runbook, Delays: v.Delays}}, v.Also...) {
			name := named(string(s.Branch), s.Clue, s.Runbook)
			if s.Delays == "" && s.Clue != "" && !strings.HasPrefix(name, string(s.Branch)+" LLM") {
				return name
			}
		}
	}
	return ""
}

// TestTriageAtThePage checks that half a minute before the page suffices to name the branch, without a Prometheus.
func TestTriageAtThePage(t *testing.T) {
	p, err := play.Run(small(t, "thermal-throttle"), play.Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got, ok, err := score.Triaged(p)
	if err != nil || !ok || got.Want != rules.Hardware || got.Alone != got.Want || got.WithPast != got.Want || got.Paged != got.Want {
		t.Errorf("%+v, %t, %v", got, ok, err)
	}
}
