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

	// eccTotals holds the fields of the totals, by severity and lifetime.
	eccTotals = [2][2]uint32{
		{nvml.FI_DEV_ECC_SBE_VOL_TOTAL, nvml.FI_DEV_ECC_SBE_AGG_TOTAL},
		{nvml.FI_DEV_ECC_DBE_VOL_TOTAL, nvml.FI_DEV_ECC_DBE_AGG_TOTAL},
	}
)

type eccLocation struct {
	location nvml.MemoryLocation
	name     string
}

// eccLocations lists the two ways in which GPUs split ECC errors by location. Ampere and newer GPUs split them into DRAM and SRAM, and
// older GPUs split them by unit. The split by unit is read only without SRAM counters, so locations never overlap.
var eccLocations = [2][]eccLocation{
	{{nvml.MEMORY_LOCATION_SRAM, "sram"}, {nvml.MEMORY_LOCATION_DRAM, "dram"}},
	{
		{nvml.MEMORY_LOCATION_DRAM, "dram"},
		{nvml.MEMORY_LOCATION_L1_CACHE, "l1"},
		{nvml.MEMORY_LOCATION_L2_CACHE, "l2"},
		{nvml.MEMORY_LOCATION_REGISTER_FILE, "register_file"},
		{nvml.MEMORY_LOCATION_TEXTURE_MEMORY, "texture"},
		{nvml.MEMORY_LOCATION_TEXTURE_SHM, "shared"},
		{nvml.MEMORY_LOCATION_CBU, "cbu"},
	},
}

// readECC exports ECC errors by the finest location that the GPU reports.
func readECC(d *nvmlDevice, s *sheet) error {
	by := func(locations []eccLocation) func() (string, error) {
		return func() (string, error) {
			var out anyOf
			for _, l := range locations {
				if !out.add(d.readECCAt(s, l)) && l.name == "sram" {
					break
				}
			}
			return "", out.err()
		}
	}
	_, err := either(d, "ecc", by(eccLocations[0]), func() (string, error) {
		return either(d, "ecc_units", by(eccLocations[1]), func() (string, error) { return "", d.readECCTotals(s) })
	})
	return err
}

func (d *nvmlDevice) readECCTotals(s *sheet) error {
	var err error = &callError{"nvmlDeviceGetFieldValues, ECC totals", codeNotSupported}
	for i, severity := range eccSeverities {
		for j, lifetime := range eccLifetimes {
			if count, ok := d.field(eccTotals[i][j]); ok {
				s.add(metrics.GPUECCErrors, count, severity.name, "all", lifetime.name)
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
				s.add(metrics.GPUECCErrors, float64(count), severity.name, l.name, lifetime.name)
			}
		}
	}
	return out.err()
}

// readSRAM exports uncorrectable SRAM errors, and whether they are too many. readECC exports corrected errors.
func readSRAM(d *nvmlDevice, s *sheet) error {
	status, err := ask(d, "nvmlDeviceGetSramEccErrorStatus", d.handle.GetSramEccErrorStatus)
	if err != nil {
		return err
	}
	s.add(metrics.GPUSRAMThreshold, metrics.Bool(status.BThresholdExceeded != 0))
	s.add(metrics.GPUSRAMUncorrected, float64(status.VolatileUncParity), "parity", "volatile")
	s.add(metrics.GPUSRAMUncorrected, float64(status.VolatileUncSecDed), "sec_ded", "volatile")
	s.add(metrics.GPUSRAMUncorrected, float64(status.AggregateUncParity), "parity", "aggregate")
	s.add(metrics.GPUSRAMUncorrected, float64(status.AggregateUncSecDed), "sec_ded", "aggregate")
	s.add(metrics.GPUSRAMUnitUncorrected, float64(status.AggregateUncBucketL2), "l2")
	s.add(metrics.GPUSRAMUnitUncorrected, float64(status.AggregateUncBucketSm), "sm")
	s.add(metrics.GPUSRAMUnitUncorrected, float64(status.AggregateUncBucketPcie), "pcie")
	s.add(metrics.GPUSRAMUnitUncorrected, float64(status.AggregateUncBucketMcu), "microcontroller")
	s.add(metrics.GPUSRAMUnitUncorrected, float64(status.AggregateUncBucketOther), "other")
	return nil
}

func readRowRemapBanks(d *nvmlDevice, s *sheet) error {
	banks, err := ask(d, "nvmlDeviceGetRowRemapperHistogram", d.handle.GetRowRemapperHistogram)
	if err == nil {
		s.add(metrics.GPURowRemapBanks, float64(banks.Max), "max")
		s.add(metrics.GPURowRemapBanks, float64(banks.High), "high")
		s.add(metrics.GPURowRemapBanks, float64(banks.Partial), "partial")
		s.add(metrics.GPURowRemapBanks, float64(banks.Low), "low")
		s.add(metrics.GPURowRemapBanks, float64(banks.None), "none")
	}
	return err
}

func readRepair(d *nvmlDevice, s *sheet) error {
	status, err := ask(d, "nvmlDeviceGetRepairStatus", d.handle.GetRepairStatus)
	if err == nil {
		s.add(metrics.GPURepairPending, metrics.Bool(status.BChannelRepairPending != 0), "channel")
		s.add(metrics.GPURepairPending, metrics.Bool(status.BTpcRepairPending != 0), "tpc")
	}
	return err
}

func readUnrepairable(d *nvmlDevice, s *sheet) error {
	status, err := ask(d, "nvmlDeviceGetUnrepairableMemoryFlag_v1", d.handle.GetUnrepairableMemoryFlag_v1)
	if err == nil {
		s.add(metrics.GPUMemoryUnrepairable, metrics.Bool(status.BUnrepairableMemory != 0))
	}
	return err
}
