package play

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/release"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// TestBadRelease checks that the page of a bad release and a triage on its node name the release and its new setting, and
// that the comparison with the time before rates it as worse.
func TestBadRelease(t *testing.T) {
	in, err := incident.Find(incident.Incidents(), "bad-release")
	if err != nil {
		t.Fatal(err)
	}
	in.History, in.Lasts = 65*time.Minute, 13*time.Minute
	p, err := Run(in, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	i := slices.IndexFunc(p.Sent, func(n Notification) bool { return slices.Contains(n.Alerts, rules.FastBurn.Name) })
	if i < 0 {
		t.Fatal("no page")
	}
	page := p.Sent[i]
	for _, want := range []string{"Version 0.17.0 was deployed in the last hour", "Changed in 6h: kv_cache_dtype auto → fp8 on 4"} {
		if !strings.Contains(page.Message(), want) {
			t.Errorf("the page lacks %q:\n%s", want, page.Message())
		}
	}

	at := page.At.Truncate(ScrapeInterval)
	before, err := p.Reading(at.Add(-ScrapeInterval))
	if err != nil {
		t.Fatal(err)
	}
	after, err := p.Reading(at)
	if err != nil {
		t.Fatal(err)
	}
	verdicts, err := triage.Judge(context.Background(), before, after, nil)
	if err != nil || len(verdicts) != 1 {
		t.Fatalf("%d verdicts, %v", len(verdicts), err)
	}
	var text strings.Builder
	if err := (triage.Text{}).Write(&text, verdicts); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(strings.Fields(text.String()), " ")
	changed := p.World.At(p.Onset + time.Minute).UTC().Format(time.RFC3339) // the engines have loaded
	for _, want := range []string{
		"Look first at: release. Version 0.17.0 was deployed in the last hour.",
		"Setting kv_cache_dtype changed from auto to fp8 in the last hour.",
		"version 0.16.0 -> 0.17.0 at " + changed + " on 4 of 4 replicas", "kv_cache_dtype auto -> fp8 at " + changed + " on 4 of 4 replicas",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the triage lacks %q:\n%s", want, text.String())
		}
	}

	now := p.World.At(p.Onset + in.Lasts)
	changes, err := release.Compare(context.Background(), p.Past, release.Options{
		Now: now, Since: 24 * time.Hour,
		Window: 30 * time.Minute, Settle: 5 * time.Minute,
	})
	if err != nil || len(changes) != 1 || changes[0].Verdict != release.Worse || changes[0].Changed != 4 || changes[0].Before == nil ||
		!changes[0].Before.To.Before(p.World.At(p.Onset)) {
		t.Fatalf("%v: %+v", err, changes)
	}
	if why := strings.Join(changes[0].Why, "; "); !strings.Contains(why, "TTFT, mean") || !strings.Contains(why, "Time between tokens, mean") {
		t.Errorf("worse because of %s", why)
	}
	if s := changes[0].Settings; len(s) != 2 || s[0].New != "0.17.0" || s[1].New != "fp8" {
		t.Errorf("%+v", s)
	}
}
