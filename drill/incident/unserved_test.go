package incident_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestGatewayWithoutAnswers: engines that hang with nothing in their gauges page, because the gateway before them goes on to count
// requests. Users who ask nothing for a quarter of an hour page nobody.
func TestGatewayWithoutAnswers(t *testing.T) {
	t.Parallel()
	for _, gateway := range []metrics.Runtime{metrics.LiteLLM, metrics.SMG} {
		for _, hangs := range []bool{true, false} {
			t.Run(fmt.Sprint(gateway, " ", hangs), func(t *testing.T) {
				t.Parallel()
				p := drill.NewProfile("m")
				p.Arrivals = 1
				fleet := world.Fleet{Profile: p, Replicas: 1, Runtimes: []metrics.Runtime{metrics.TensorRTLLM}, ReadsGateway: true, Gateway: gateway}
				at := func(after time.Duration, do func(w *world.World)) incident.Fault { return incident.Fault{At: after, Do: do} }
				faults := []incident.Fault{at(0, func(w *world.World) { w.Idle = true }), at(15*time.Minute, func(w *world.World) { w.Idle = false })}
				if hangs {
					faults = []incident.Fault{at(0, func(w *world.World) { w.Replicas[0].Engine.Wedged, w.Replicas[0].Engine.ShowsIdle = true, true })}
				}
				played, err := play.Run(incident.Incident{Name: "unserved", Fleet: fleet, History: time.Hour, Lasts: 20 * time.Minute, Faults: faults}, play.Options{Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				defer played.Close()
				var names []string
				for _, n := range played.Sent {
					names = append(names, fmt.Sprint(n.At.Sub(played.World.At(played.Onset)), " ", n.Message()))
				}
				first := ""
				if len(played.Sent) > 0 {
					first = played.Sent[0].Alerts[0]
					if after := played.Sent[0].At.Sub(played.World.At(played.Onset)); after > 10*time.Minute {
						t.Errorf("paged after %s", after)
					}
				}
				if want := map[bool]string{true: rules.ModelStalled.Name}[hangs]; first != want {
					t.Errorf("the first page is %q, want %q: %v", first, want, names)
				}
			})
		}
	}
}
