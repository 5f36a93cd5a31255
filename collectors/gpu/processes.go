//go:build linux && cgo

package gpu

import (
	"errors"
	"math"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

const (
	processesUnknownMemory = math.MaxUint64
	noInstance             = math.MaxUint32
)

// utilization holds the load of each process on a GPU in the last sampling period, by process id.
type utilization struct {
	byPID map[uint32]nvml.ProcessUtilizationSample
	since uint64 // time stamp of the newest sample, in microseconds
	began bool   // false until the first reading, whose samples are ignored
}

// readProcessUtilization reads the samples since the last reading. The driver has no sample for an idle process, and
// answers "not found" if all processes were idle.
func readProcessUtilization(d *nvmlDevice, _ *sheet) error {
	u := &d.utilization
	if u.since > uint64(d.now.UnixMicro()) { // the clock was set back, and would hide samples for a long time
		*u = utilization{}
	}
	u.byPID = nil
	samples, err := ask(d, "nvmlDeviceGetProcessUtilization", func() ([]nvml.ProcessUtilizationSample, nvml.Return) {
		return processUtilization(d.handle, u.since)
	})
	var failed *callError
	if err != nil && (!errors.As(err, &failed) || failed.code != codeNotFound) {
		return err
	}
	byPID := make(map[uint32]nvml.ProcessUtilizationSample, len(samples))
	for _, sample := range samples {
		if sample.TimeStamp > u.since && sample.TimeStamp >= byPID[sample.Pid].TimeStamp {
			byPID[sample.Pid] = sample
		}
	}
	for _, sample := range byPID {
		u.since = max(u.since, sample.TimeStamp)
	}
	if u.began {
		u.byPID = byPID
	}
	u.began = true
	return nil
}

// processUtilization reads the samples. go-nvml first requests their number. If a process starts and the number grows,
// go-nvml panics.
func processUtilization(h nvml.Device, since uint64) (samples []nvml.ProcessUtilizationSample, ret nvml.Return) {
	defer func() {
		if recover() != nil {
			samples, ret = nil, nvml.ERROR_INSUFFICIENT_SIZE
		}
	}()
	return h.GetProcessUtilization(since)
}

// readProcesses lists compute processes, including processes of MPS clients.
func readProcesses(d *nvmlDevice, s *sheet) error {
	listed, err := ask(d, callProcesses, d.handle.GetComputeRunningProcesses)
	if err != nil {
		return err
	}
	own := len(listed)
	if clients, err := ask(d, callMPS, d.handle.GetMPSComputeRunningProcesses); err == nil {
		listed = append(listed, clients...)
	}
	type who struct{ pid, instance uint32 }
	seen := make(map[who]bool, len(listed))
	counts := map[string]int{}
	if len(d.mig) == 0 {
		counts[""] = 0
	}
	for i, p := range listed {
		if p.Pid == 0 || seen[who{p.Pid, p.GpuInstanceId}] {
			continue // some drivers return the list in a shifted layout
		}
		seen[who{p.Pid, p.GpuInstanceId}] = true
		process := Process{PID: int(p.Pid), GPU: s.identity, Memory: p.UsedGpuMemory, MemoryKnown: p.UsedGpuMemory != processesUnknownMemory}
		if p.GpuInstanceId != noInstance {
			process.InstanceID = strconv.Itoa(int(p.GpuInstanceId))
		}
		if !process.MemoryKnown {
			process.Memory = 0
		}
		// MPS clients work through the MPS server, so the utilization of a process without its own sample is unknown.
		sample, sampled := d.utilization.byPID[p.Pid]
		process.UtilizationKnown = (sampled || d.utilization.byPID != nil && i < own) && sample.SmUtil <= 100 && sample.MemUtil <= 100
		process.SM, process.MemoryBusy = float64(sample.SmUtil)/100, float64(sample.MemUtil)/100
		counts[process.InstanceID]++
		s.processes = append(s.processes, process)
	}
	for instance, n := range counts {
		s.add(metrics.GPUProcesses, float64(n), instance)
	}
	return nil
}
