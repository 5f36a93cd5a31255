package incident_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestNobodyIsServed checks that a model whose only engine hangs with idle gauges pages within ten minutes. The page
// names the engine, because its gateway still counts requests, or its clients give up. A quarter of an hour without
// requests does not page.
func TestNobodyIsServed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		runtime, gateway metrics.Runtime
		perSecond        float64
	}{
		{metrics.TensorRTLLM, metrics.LiteLLM, 1},
		{metrics.TensorRTLLM, metrics.SMG, 1},
		{metrics.SGLang, "", 0.3},
		{metrics.SGLang, "", 0.05},
	} {
		for _, hangs := range []bool{true, false} {
			t.Run(fmt.Sprint(c.runtime, " ", c.gateway, " ", hangs), func(t *testing.T) {
				t.Parallel()
				p := drill.NewProfile("m")
				p.Arrivals = c.perSecond
				fleet := world.Fleet{Profile: p, Replicas: 1, Runtimes: []metrics.Runtime{c.runtime}, ReadsGateway: c.gateway != "", Gateway: c.gateway}
				faults := []incident.Fault{
					{Do: func(w *world.World) { w.Idle = true }},
					{At: 15 * time.Minute, Do: func(w *world.World) { w.Idle = false }},
				}
				if hangs {
					faults = []incident.Fault{{Do: func(w *world.World) { w.Replicas[0].Engine.Wedged, w.Replicas[0].Engine.ShowsIdle = true, true }}}
				}
				played, err := play.Run(incident.Incident{
					Name: "unserved", Fleet: fleet, History: time.Hour, Lasts: 20 * time.Minute,
					Faults: faults,
				}, play.Options{Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				defer played.Close()
				if !hangs {
					for _, n := range played.Sent {
						t.Errorf("nobody asks: %s", n.Message())
					}
					return
				}
				if len(played.Sent) == 0 {
					t.Fatal("nothing was sent")
				}
				first := played.Sent[0]
				after := first.At.Sub(played.World.At(played.Onset))
				if first.Alerts[0] != rules.ModelStalled.Name || after > 10*time.Minute || !strings.Contains(first.Text, "Look first at: engine.") {
					t.Errorf("after %s: %v: %s", after, first.Alerts, first.Message())
				}
			})
		}
	}
}

// TestARoleIsLost checks a model with one prefill and one decode engine. Without either of them no user is served, and
// the page reports this, although the other still answers. A lost pod of a decode engine counts as well as a closed
// port.
func TestARoleIsLost(t *testing.T) {
	t.Parallel()
	closed := func(r *world.Replica) { r.Restart(24 * time.Hour) }
	for name, c := range map[string]struct {
		replica int
		lost    func(*world.Replica)
	}{
		"prefill, port closed": {0, closed},
		"decode, port closed":  {1, closed},
		"decode, pod gone":     {1, func(r *world.Replica) { r.Down, r.Gone = true, true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := drill.NewProfile("m")
			p.Release, p.Prefilled, p.Fetching, p.Arrivals = "0.26.0", true, 25e9, 0.1
			played, err := play.Run(incident.Incident{
				Name:    "role-lost",
				Fleet:   world.Fleet{Profile: p, Replicas: 2, Prefills: 1, Runtimes: []metrics.Runtime{metrics.VLLM}},
				History: time.Hour, Lasts: 12 * time.Minute, Faults: []incident.Fault{{Do: func(w *world.World) { c.lost(w.Replicas[c.replica]) }}},
			}, play.Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer played.Close()
			for _, n := range played.Sent {
				after := n.At.Sub(played.World.At(played.Onset))
				if n.Receiver == "llm-critical" && after <= 10*time.Minute && n.Alerts[0] == rules.ModelDown.Name {
					return
				}
				if says := n.Message(); strings.Contains(says, "prod/m: prod/m") || strings.Contains(says, "at the decode:") {
					t.Error(says)
				}
				t.Logf("%s to %s: %s", after, n.Receiver, n.Message())
			}
			t.Error("no page of " + rules.ModelDown.Name)
		})
	}
}
