package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestStory plays an incident in virtual time, from the page through the lever to the resolved message, as a person
// at the demo does. TestStory then plays it again with the command that undoes all faults. Then the queries of
// the runbooks have answers, and a record exists.
func TestStory(t *testing.T) {
	for _, c := range []struct {
		incident, typed, says string
		within                time.Duration // from the onset to the record
	}{
		{"wedged-engine", "lever 1", "lever    01:0", 15 * time.Minute},
		{"kv-thrash", "lever", "lever    01:0", time.Hour}, // the incident leaves the slower windows of a burn within half an hour
		{"black-hole", "healthy", "healthy  01:0", time.Hour},
	} {
		t.Run(c.incident, func(t *testing.T) {
			t.Parallel()
			in, err := incident.Find(known(), c.incident)
			if err != nil {
				t.Fatal(err)
			}
			in.History = time.Hour
			p, err := play.New(in, play.Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			var out strings.Builder
			faults := in.Ordered()
			s := &story{out: &out, incident: in, onset: p.World.At(p.Onset), ask: func(query string, at time.Time) (promql.Vector,
				error,
			) {
				return p.Prometheus.Query(query, at)
			}}
			s.lever = func() { in.Lever.Do(p.World) }
			s.heal = func() { faults = nil; undo(p.World) }
			d := demo{out: &out}
			typed := false
			for at := time.Duration(0); at < p.Onset+c.within && !strings.Contains(out.String(), "For the record"); at += play.ScrapeInterval {
				for len(faults) > 0 && p.Onset+faults[0].At < at {
					p.World.Advance(p.Onset + faults[0].At)
					faults[0].Do(p.World)
					faults = faults[1:]
				}
				if err := p.Step(at); err != nil {
					t.Fatal(err)
				}
				if at%rules.Interval != 0 {
					continue
				}
				now := p.World.At(at)
				if err := p.Alertmanager.Receive(now, p.Prometheus.Firing()); err != nil {
					t.Fatal(err)
				}
				for _, n := range p.Alertmanager.Take() {
					if n.Receiver == "llm-null" {
						continue
					}
					if err := s.told(n); err != nil {
						t.Fatal(err)
					}
				}
				if !typed && s.page != nil && !now.Before(s.page.At.Add(2*time.Minute)) {
					typed = true
					if next := d.obey(c.typed, s, now); next != nil {
						t.Errorf("%s begins another incident", c.typed)
					}
				}
			}
			story := out.String()
			page, record, _ := strings.Cut(story, "=== Is it over?")
			for _, want := range []string{"Type ", "healthy", c.typed} {
				if !strings.Contains(page, want) {
					t.Errorf("after the page nothing says %q:\n%s", want, page)
				}
			}
			wants := []string{"```promql", " => ", "=== For the record", "incident " + c.incident, "paged    ", c.says, "over     ", "messages"}
			if in.Page.Diagnosed {
				wants = append(wants, "Look first at: ", "budget   ")
			}
			for _, want := range wants {
				if !strings.Contains(record, want) {
					t.Errorf("the end lacks %q:\n%s", want, story)
				}
			}
			if strings.Contains(record, "$MODEL") || strings.Contains(record, "$NAMESPACE") {
				t.Error("a query has a place that nobody filled in")
			}
		})
	}
}
