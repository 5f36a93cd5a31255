package incident_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// converted lists the incident that every run plays with native histograms. Several such histograms show its cause.
var converted = []string{"kv-thrash"}

// A Prometheus that converts classic histograms to native ones, from the first scrape or from the first scrape of
// the incident, pages with the same words at the same time.
func TestNativeHistograms(t *testing.T) {
	for _, in := range slices.Concat(incident.Incidents(), incident.Public()) {
		if !*all && !slices.Contains(converted, in.Name) {
			continue
		}
		t.Run(in.Name, func(t *testing.T) {
			t.Parallel()
			if !*all {
				in.History = 65 * time.Minute
			}
			onset := rulesim.Epoch.Add(in.Onset())
			want := sent(t, in, nil)
			for mode, native := range map[string]func(time.Time) bool{
				"always":         func(time.Time) bool { return true },
				"from the onset": func(at time.Time) bool { return !at.Before(onset) },
			} {
				if !*all && mode == "always" { // the other Prometheus has both kinds
					continue
				}
				if got := sent(t, in, native); got != want {
					t.Errorf("converted %s:\n%s\nnot converted:\n%s", mode, got, want)
				}
			}
		})
	}
}

// sent returns the receivers, texts and times of an incident's messages, without numbers, because windows over the
// conversion count differently.
func sent(t *testing.T, in incident.Incident, native func(time.Time) bool) string {
	t.Helper()
	p, err := play.Run(in, play.Options{Seed: 1, Native: native})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var all strings.Builder
	for _, n := range p.Sent {
		fmt.Fprintln(&all, n.At.Sub(p.World.At(p.Onset)), n.Receiver, n.Alerts, n.Resolved, n.Labels[model.LabelName(metrics.LabelSuspect)])
	}
	return all.String()
}
