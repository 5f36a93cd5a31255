package incident

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// harmless lists incidents that must not page.
func harmless() []Incident {
	return []Incident{
		{
			Name: "innocent-throttle", Story: "the power cap at work half of the time, and a little heat: nobody suffers",
			Fleet: chat(), Lasts: 2 * time.Hour, Quiet: true,
			Faults: []Fault{
				fault(0, every(func(r *world.Replica) {
					r.GPU.Throttle = &world.Throttle{Reason: "sw_power_cap", Clock: 0.9, Part: 30 * time.Second, Period: minute}
				})),
				fault(0, one(1, func(r *world.Replica) {
					r.GPU.Throttle = &world.Throttle{Reason: "sw_thermal_slowdown", Clock: 0.8, Part: 5 * time.Second, Period: minute}
				})),
			},
		},
		{
			Name: "harmless-wear", Story: "a few memory errors are corrected; an NVLink replays four times as much as ever for an hour; GPUs " +
				"register with the fabric within minutes, and a repair with its reset is as quick; an engine, then the exporter restart without " +
				"persistence mode",
			Fleet: chat(), Lasts: 65 * minute, Quiet: true, Replays: []float64{3, 2, 3, 4, 3, 3},
			Faults: []Fault{
				fault(-2*time.Hour, every(func(r *world.Replica) { r.GPU.Forgets, r.GPU.Replays = true, 3 })),
				fault(0, every(func(r *world.Replica) { r.GPU.Replays, r.GPU.Recoveries, r.GPU.Corrected = 12, 1, 0.5 })),
				fault(5*minute, every(func(r *world.Replica) { r.GPU.Unregistered = true })),
				fault(8*minute, every(func(r *world.Replica) { r.GPU.Unregistered = false })),
				fault(10*minute, one(1, func(r *world.Replica) { r.GPU.RepairPending, r.GPU.Drain = true, true })),
				fault(13*minute, one(1, func(r *world.Replica) { r.GPU.RepairPending, r.GPU.Drain = false, false })),
				fault(20*minute, one(2, func(r *world.Replica) { r.Restart(time.Minute) })),
				fault(30*minute, one(2, func(r *world.Replica) { r.Restart(time.Minute) })),
				fault(40*minute, func(w *world.World) { w.ExporterDown = true }),
				fault(41*minute, func(w *world.World) { w.ExporterDown = false }),
				fault(50*minute, func(w *world.World) { w.ExporterDown = true }),
				fault(51*minute, func(w *world.World) { w.ExporterDown = false }),
			},
		},
		{
			Name: "harmless-burst", Story: "demand doubles for ten minutes, within capacity",
			Fleet: chat(), Lasts: 90 * minute, Quiet: true,
			Faults: []Fault{
				fault(0, func(w *world.World) { w.Traffic.Arrivals *= 2 }),
				fault(10*minute, func(w *world.World) { w.Traffic.Arrivals /= 2 }),
			},
		},
		{
			Name: "quiet-night", Story: "one request in twenty, for hours",
			Fleet: chat(), Lasts: 3 * time.Hour, Quiet: true,
			Faults: []Fault{fault(0, func(w *world.World) { w.Traffic.Arrivals /= 20 })},
		},
	}
}

// Healthy returns a node without an incident: one model on three runtimes.
func Healthy() Incident {
	f := chat()
	f.Replicas, f.Runtimes = 3, []metrics.Runtime{metrics.VLLM, metrics.TensorRTLLM, metrics.TGI}
	f.Objectives = countedOn(map[slo.Signal][]metrics.Runtime{slo.TTFT: f.Runtimes[:2], slo.ITL: f.Runtimes[:1]}) // TGI reports neither
	return Incident{Name: "healthy", Story: "nothing happens", Fleet: f}
}
