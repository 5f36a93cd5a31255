//go:build linux && cgo

package gpu

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

var (
	eccSeverities = []struct {
		kind nvml.MemoryErrorType
		name string
	}{{nvml.MEMORY_ERROR_TYPE_CORRECTED, "corrected"}, {nvml.MEMORY_ERROR_TYPE_UNCORRECTED, "uncorrected"}}

	eccLifetimes = []struct {
		counter nvml.EccCounterType
		name    string
	}{{nvml.VOLATILE_ECC, "volatile"}, {nvml.AGGREGATE_ECC, "aggregate"}}

	// eccTotals are the fields of the totals, by severity and lifetime.
	eccTotals = [2][2]uint32{
		{nvml.FI_DEV_ECC_SBE_VOL_TOTAL, nvml.FI_DEV_ECC_SBE_AGG_TOTAL},
		{nvml.FI_DEV_ECC_DBE_VOL_TOTAL, nvml.FI_DEV_ECC_DBE_AGG_TOTAL},
	}
)

type eccLocation struct {
	location nvml.MemoryLocation
	name     string
}

// eccLocations are the two ways in which GPUs split ECC errors by location: Ampere and newer into
// DRAM and SRAM, older ones by unit. A GPU is asked for the first, and for the second if it has no
// SRAM counters, so that locations never overlap.
var eccLocations = [2][]eccLocation{
	{{nvml.MEMORY_LOCATION_SRAM, "sram"}, {nvml.MEMORY_LOCATION_DRAM, "dram"}},
	{
		{nvml.MEMORY_LOCATION_DRAM, "dram"}, {nvml.MEMORY_LOCATION_L1_CACHE, "l1"}, {nvml.MEMORY_LOCATION_L2_CACHE, "l2"},
		{nvml.MEMORY_LOCATION_REGISTER_FILE, "register_file"}, {nvml.MEMORY_LOCATION_TEXTURE_MEMORY, "texture"},
		{nvml.MEMORY_LOCATION_TEXTURE_SHM, "shared"}, {nvml.MEMORY_LOCATION_CBU, "cbu"},
	},
}

// readECC exports ECC errors by the finest location that the GPU reports.
func readECC(d *nvmlDevice, s *sheet) error {
	for _, locations := range eccLocations {
		var out anyOf
		for _, l := range locations {
			if !out.add(d.readECCAt(s, l)) && l.name == "sram" {
				break
			}
		}
		if out.ok || d.fatal != nil {
			return out.err()
		}
	}
	var err error = &callError{"nvmlDeviceGetFieldValues, ECC totals", codeNotSupported}
	for i, severity := range eccSeverities {
		for j, lifetime := range eccLifetimes {
			if count, ok := d.field(eccTotals[i][j]); ok {
				s.addSlow(metrics.GPUECCErrors, count, severity.name, "all", lifetime.name)
				err = nil
			}
		}
	}
	return err
}

func (d *nvmlDevice) readECCAt(s *sheet, l eccLocation) error {
	var out anyOf
	for _, severity := range eccSeverities {
		for _, lifetime := range eccLifetimes {
			count, err := ask(d, "nvmlDeviceGetMemoryErrorCounter", func() (uint64, nvml.Return) {
				return d.handle.GetMemoryErrorCounter(severity.kind, lifetime.counter, l.location)
			})
			if out.add(err) {
				s.addSlow(metrics.GPUECCErrors, float64(count), severity.name, l.name, lifetime.name)
			}
		}
	}
	return out.err()
}

func readSRAM(d *nvmlDevice, s *sheet) error {
	status, err := ask(d, "nvmlDeviceGetSramEccErrorStatus", d.handle.GetSramEccErrorStatus)
	if err == nil {
		s.addSlow(metrics.GPUSRAMThreshold, truth(status.BThresholdExceeded != 0))
	}
	return err
}

func readRowRemapBanks(d *nvmlDevice, s *sheet) error {
	banks, err := ask(d, "nvmlDeviceGetRowRemapperHistogram", d.handle.GetRowRemapperHistogram)
	if err == nil {
		s.addSlow(metrics.GPURowRemapBanks, float64(banks.Max), "max")
		s.addSlow(metrics.GPURowRemapBanks, float64(banks.High), "high")
		s.addSlow(metrics.GPURowRemapBanks, float64(banks.Partial), "partial")
		s.addSlow(metrics.GPURowRemapBanks, float64(banks.Low), "low")
		s.addSlow(metrics.GPURowRemapBanks, float64(banks.None), "none")
	}
	return err
}

func readRepair(d *nvmlDevice, s *sheet) error {
	status, err := ask(d, "nvmlDeviceGetRepairStatus", d.handle.GetRepairStatus)
	if err == nil {
		s.addSlow(metrics.GPURepairPending, truth(status.BChannelRepairPending != 0), "channel")
		s.addSlow(metrics.GPURepairPending, truth(status.BTpcRepairPending != 0), "tpc")
	}
	return err
}

func readUnrepairable(d *nvmlDevice, s *sheet) error {
	status, err := ask(d, "nvmlDeviceGetUnrepairableMemoryFlag_v1", d.handle.GetUnrepairableMemoryFlag_v1)
	if err == nil {
		s.addSlow(metrics.GPUMemoryUnrepairable, truth(status.BUnrepairableMemory != 0))
	}
	return err
}

// fabricChecks are the bit fields of the fabric health mask. 0 means that the check is not supported,
// bad that it fails.
var fabricChecks = []struct {
	name         string
	shift, width uint32
	bad          func(uint32) bool
}{
	{"degraded_bandwidth", nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_DEGRADED_BW, isOne},
	{"route_recovery", nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_RECOVERY, isOne},
	{"route_unhealthy", nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_UNHEALTHY, isOne},
	{"access_timeout_recovery", nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ACCESS_TIMEOUT_RECOVERY, isOne},
	{"incorrect_configuration", nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_INCORRECT_CONFIGURATION, isMoreThanOne},
	{"manager_disconnected", nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_GFM_STATE, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_GFM_STATE, isMoreThanOne},
}

func isOne(v uint32) bool         { return v == 1 }
func isMoreThanOne(v uint32) bool { return v > 1 }

var fabricStates = []string{
	nvml.GPU_FABRIC_STATE_NOT_STARTED: "not_started",
	nvml.GPU_FABRIC_STATE_IN_PROGRESS: "in_progress",
	nvml.GPU_FABRIC_STATE_COMPLETED:   "completed",
}

// readFabric exports the registration with the NVSwitch fabric and its health. Version 3 of the call
// adds a summary; drivers of before 13.0 have version 2 only.
func readFabric(d *nvmlDevice, s *sheet) error {
	const name = "nvmlDeviceGetGpuFabricInfoV"
	info, err := ask(d, name, func() (nvml.GpuFabricInfo_v3, nvml.Return) { return d.handle.GetGpuFabricInfoV().V3() })
	if reachOf(err) == forGood {
		var old nvml.GpuFabricInfo_v2
		if old, err = ask(d, name, func() (nvml.GpuFabricInfo_v2, nvml.Return) { return d.handle.GetGpuFabricInfoV().V2() }); err == nil {
			info.State, info.HealthMask = old.State, old.HealthMask
		}
	}
	if err == nil && (info.State == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED || int(info.State) >= len(fabricStates)) {
		err = &callError{name, codeNotSupported}
	}
	if err != nil {
		return err
	}
	s.addSlow(metrics.GPUFabricState, 1, fabricStates[info.State])
	for _, c := range fabricChecks {
		if v := info.HealthMask >> c.shift & c.width; v != 0 {
			s.addSlow(metrics.GPUFabricHealth, truth(c.bad(v)), c.name)
		}
	}
	switch info.HealthSummary {
	case nvml.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY:
		s.addSlow(metrics.GPUFabricHealth, 0, "summary")
	case nvml.GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY, nvml.GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY:
		s.addSlow(metrics.GPUFabricHealth, 1, "summary")
	}
	return nil
}
