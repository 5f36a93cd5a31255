package play

import (
	"slices"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
)

// An exporter that is down for twenty minutes pages nobody while its node runs. TestIncidents has the node that loses
// power.
func TestExporterDies(t *testing.T) {
	in, err := incident.Find(incident.Incidents(), "power-loss")
	if err != nil {
		t.Fatal(err)
	}
	in.Faults = []incident.Fault{
		{At: 0, Do: func(w *world.World) { w.ExporterDown = true }},
		{At: 20 * time.Minute, Do: func(w *world.World) { w.ExporterDown = false }},
	}
	p, err := Run(in, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var told []string
	for _, n := range p.Sent {
		if n.Receiver != "llm-null" {
			told = append(told, n.Alerts...)
		}
	}
	if slices.Sort(told); !slices.Equal(slices.Compact(told), []string{"LLMExporterDown"}) {
		t.Errorf("told %s, want a ticket about the exporter", told)
	}
}
