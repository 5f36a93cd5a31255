package incident

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Incidents are the drill's incidents. Where the numbers of a fault come from is in its story; none is
// chosen by what the rules do with it.
func Incidents() []Incident {
	return []Incident{
		{
			Name: "traffic-burst", Story: "demand rises to six times its level, above what the replicas carry",
			Fleet: chat(), Lasts: 50 * minute, Page: rules.FastBurn, Cause: rules.QueueBuildUp,
			Faults: []Fault{
				fault(0, func(w *World) { w.Traffic.Arrivals *= 6 }),
				fault(25*minute, func(w *World) { w.Traffic.Arrivals /= 6 }),
			},
		},
		{
			Name: "quiet-night", Story: "one request in twenty, for hours",
			Fleet: chat(), Lasts: 3 * time.Hour, Quiet: true,
			Faults: []Fault{fault(0, func(w *World) { w.Traffic.Arrivals /= 20 })},
		},
	}
}
