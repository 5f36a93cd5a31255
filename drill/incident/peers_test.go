package incident_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestSlowAmongPeers draws fleets whose router gives each replica a different share of the traffic. In half of
// these fleets one replica takes 1.3 times as long for each step, from the start or from a later time. The alert
// must name only this replica, within a quarter of an hour.
func TestSlowAmongPeers(t *testing.T) {
	const within = 15 * time.Minute
	first, draws := *from, uint64(2)
	if *all {
		draws = 60
	}
	pace := slices.DeleteFunc(play.Rules(), func(g rules.Group) bool { return g.Name != "llm-replica-pace" })
	var slow, found, named int
	for seed := first; seed < first+draws; seed++ {
		r := rand.New(rand.NewPCG(seed, 33))
		fleet := incident.Incidents()[0].Fleet
		fleet.Replicas = 2 + r.IntN(5)
		fleet.Profile.Arrivals *= float64(fleet.Replicas) / 2 * (0.4 + r.Float64())
		fleet.Shares = make([]float64, fleet.Replicas)
		for i := range fleet.Shares {
			fleet.Shares[i] = 0.6 + 0.8*r.Float64()
		}
		which, born := r.IntN(fleet.Replicas), r.IntN(2) == 0
		if seed%2 == 0 {
			which = -1
		}
		slows := func(w *world.World) {
			if which >= 0 {
				w.Replicas[which].Engine.Slow = 1.3
			}
		}
		in := incident.Incident{Name: fmt.Sprint("draw ", seed), Fleet: fleet, Faults: []incident.Fault{{At: 0, Do: slows}}, Lasts: within}
		if born {
			in.Faults[0].At = -in.Onset()
		}
		p, err := play.Run(in, play.Options{Seed: seed, Groups: pace})
		if err != nil {
			t.Fatal(err)
		}
		said := map[string]float64{} // the largest reported value of each pod
		for at := time.Duration(0); at <= within; at += time.Minute {
			v, err := p.Prometheus.Query(metrics.RecordedSkew.Name+`{reason="step_time"}`, p.World.At(p.Onset+at))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range v {
				pod := s.Metric.Get(metrics.LabelPod)
				said[pod] = max(said[pod], s.F)
			}
		}
		if which >= 0 {
			slow++
			if said[p.World.Replicas[which].Pod] > 0 {
				found++
			} else {
				t.Logf("%s: %d replicas, slow from birth %t: not found among shares %.2f at %.1f requests a second", in.Name, fleet.Replicas, born,
					fleet.Shares, fleet.Profile.Arrivals)
			}
			delete(said, p.World.Replicas[which].Pod)
		}
		named += len(said)
		if len(said) > 0 {
			t.Logf("%s: %d replicas, slow %d: %.3v of shares %.2f at %.1f requests a second", in.Name, fleet.Replicas, which, said,
				fleet.Shares, fleet.Profile.Arrivals)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d fleets, %d slow replicas: %d found, %d others named", draws, slow, found, named)
	if float64(found) < 0.9*float64(slow) || float64(found) < 0.9*float64(found+named) {
		t.Errorf("%d of %d slow replicas found, %d others named: nine in ten are wanted, of those that are slow and of those that are named",
			found, slow, named)
	}
}
