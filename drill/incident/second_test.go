package incident_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestSecondFault plays a fault that begins half an hour after the page of an older fault, while every firing alert
// keeps firing. A new page reports the second fault within five minutes, and there is no earlier page.
func TestSecondFault(t *testing.T) {
	const later = 37 * time.Minute
	for name, second := range map[string]struct {
		do   func(*world.World)
		says string
	}{
		"refuses": {
			func(w *world.World) { w.GatewayFails, w.GatewayStatus = 1, http.StatusTooManyRequests },
			"Look first at: routing. Gateway gateway:80 on gpu-node-1:9844 fails",
		},
		"dies": {
			func(w *world.World) { w.GatewayDead = true },
			"Look first at: routing. Gateway gateway:80 on gpu-node-1:9844 stopped answering",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, err := incident.Find(incident.Incidents(), "crash-loop")
			if err != nil {
				t.Fatal(err)
			}
			in.Fleet.ReadsGateway, in.Fleet.Replicas, in.Fleet.Profile.Arrivals = true, 1, 3
			in.History, in.Lasts, in.Faults = 40*time.Minute, later+10*time.Minute, nil
			for at := time.Duration(0); at < in.Lasts; at += 6 * time.Minute {
				in.Faults = append(in.Faults, incident.Fault{At: at, Do: func(w *world.World) { w.Replicas[0].Restart(90 * time.Second) }})
			}
			in.Faults = append(in.Faults, incident.Fault{At: later, Do: second.do})
			p, err := play.Run(in, play.Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			var heard bool
			groups := map[string]bool{}
			for _, n := range p.Sent {
				if n.Receiver != "llm-critical" {
					continue
				}
				at := n.At.Sub(p.World.At(p.Onset))
				news := slices.Contains(n.Alerts, rules.SecondFault.Name)
				if news && at < later {
					t.Errorf("news at %v, before there was any", at)
				}
				if news && !n.Update && !groups[n.Group] && at < later+5*time.Minute && strings.Contains(n.Split, second.says) {
					heard = true
				}
				groups[n.Group] = true
			}
			if !heard {
				t.Errorf("nobody heard of it within five minutes: %+v", p.Sent)
			}
		})
	}
}
