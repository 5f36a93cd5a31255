//go:build linux && cgo

package gpu

import (
	"math"
	"strconv"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

const (
	processesUnknownMemory = math.MaxUint64
	noInstance             = math.MaxUint32
)

// readProcesses lists compute processes, those of MPS clients too.
func readProcesses(d *nvmlDevice, s *sheet) error {
	listed, err := ask(d, callProcesses, d.handle.GetComputeRunningProcesses)
	if err != nil {
		return err
	}
	if clients, err := ask(d, callMPS, d.handle.GetMPSComputeRunningProcesses); err == nil {
		listed = append(listed, clients...)
	}
	type who struct{ pid, instance uint32 }
	seen := make(map[who]bool, len(listed))
	counts := map[string]int{}
	if len(d.mig) == 0 {
		counts[""] = 0
	}
	for _, p := range listed {
		if p.Pid == 0 || seen[who{p.Pid, p.GpuInstanceId}] {
			continue // some drivers fill the list with a shifted layout
		}
		seen[who{p.Pid, p.GpuInstanceId}] = true
		process := Process{PID: int(p.Pid), GPU: s.identity, Memory: p.UsedGpuMemory, MemoryKnown: p.UsedGpuMemory != processesUnknownMemory}
		if p.GpuInstanceId != noInstance {
			process.InstanceID = strconv.Itoa(int(p.GpuInstanceId))
		}
		if !process.MemoryKnown {
			process.Memory = 0
		}
		counts[process.InstanceID]++
		s.processes = append(s.processes, process)
	}
	for instance, n := range counts {
		s.addSlow(metrics.GPUProcesses, float64(n), instance)
	}
	return nil
}
