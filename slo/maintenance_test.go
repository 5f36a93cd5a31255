package slo_test

import (
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// now is in the middle of the declared intervals.
var now = time.Date(2026, 10, 1, 23, 0, 0, 0, time.UTC)

func maintenance(t *testing.T, text string) []slo.Maintenance {
	t.Helper()
	var m []slo.Maintenance
	if err := yaml.UnmarshalWithOptions([]byte(text), &m, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMaintenanceHasAnEnd(t *testing.T) {
	m := maintenance(t, "- {from: 2026-10-02T00:00:00+02:00, to: 2026-10-02T00:00:00Z, reason: new racks, objectives: [ttft]}")[0]
	for hour, want := range map[int]string{21: "coming", 22: "on", 23: "on", 24: "over", 25: "over"} {
		at := time.Date(2026, 10, 1, hour, 0, 0, 0, time.UTC)
		if got := m.State(at); got != want || m.On(at) != (want == "on") {
			t.Errorf("at %d h: %s, on %t; want %s", hour, got, m.On(at), want)
		}
	}
	if !m.Covers(slo.Objective{Name: "ttft"}) || m.Covers(slo.Objective{Name: "itl"}) || !(slo.Maintenance{}).
		Covers(slo.Objective{Name: "itl"}) {
		t.Error("covers the wrong objectives")
	}
	written, err := yaml.Marshal([]slo.Maintenance{m})
	if err != nil {
		t.Fatal(err)
	}
	if again := maintenance(t, string(written))[0]; !again.From.Equal(m.From.Time) || !again.To.Equal(m.To.Time) || again.Reason != m.Reason {
		t.Errorf("written and read again: %+v", again)
	}
}

func TestCheckOfMaintenance(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		fatal      bool
		want       string // empty if there is no finding
	}{
		{
			"fine", "- {from: 2026-10-01T22:00:00Z, to: 2026-10-08T22:00:00Z, reason: r, objectives: [ttft], select: {model_name: [chat-*]}}",
			false, "",
		},
		{"no end", "- {from: 2026-10-01T22:00:00Z, reason: r}", true, "maintenance[0]: needs from and to"},
		{"backwards", "- {from: 2026-10-01T22:00:00Z, to: 2026-10-01T22:00:00Z, reason: r}", true, "maintenance[0].to: is not after from"},
		{
			"too long", "- {from: 2026-10-01T22:00:00Z, to: 2026-10-08T22:00:01Z, reason: r}", true,
			"maintenance[0].to: is more than 7d after from",
		},
		{"no reason", "- {from: 2026-10-01T22:00:00Z, to: 2026-10-02T22:00:00Z, reason: ' '}", true, "maintenance[0].reason: is missing"},
		{
			"no such objective", "- {from: 2026-10-01T22:00:00Z, to: 2026-10-02T22:00:00Z, reason: r, objectives: [tfft]}", true,
			`maintenance[0].objectives: there is no objective "tfft"`,
		},
		{
			"nothing left", "- {from: 2026-10-01T22:00:00Z, to: 2026-10-02T22:00:00Z, reason: r, select: {not: {}}}", true,
			"maintenance[0].select.not: is empty",
		},
		{"over", "- {from: 2026-09-01T22:00:00Z, to: 2026-09-02T22:00:00Z, reason: r}", false, "maintenance[0].to: is over"},
	} {
		findings := slo.CheckMaintenance(maintenance(t, tt.text), slo.Defaults(), now)
		var all strings.Builder
		for _, f := range findings {
			all.WriteString(f.String() + "\n")
		}
		if (slo.Fatal(findings) != nil) != tt.fatal || !strings.HasPrefix(all.String(), tt.want) || tt.want == "" && findings != nil {
			t.Errorf("%s: fatal %t, want %t and %q:\n%s", tt.name, slo.Fatal(findings) != nil, tt.fatal, tt.want, &all)
		}
	}
	var m []slo.Maintenance
	err := yaml.Unmarshal([]byte("- {from: 2026-10-01, to: 2026-10-02, reason: r}"), &m)
	if err == nil || !strings.Contains(err.Error(), "with its zone") {
		t.Errorf("a day without a zone: %v", err)
	}
}
