package metrics

import (
	"math"
	"strings"
)

// bounds holds the least and the greatest value that a quantity can have, in the unit of its family.
type bounds struct{ least, most float64 }

// plausible has the bounds of the families whose names do not imply bounds. The bounds are wide. A value outside is a
// fault of the source, such as a code for an unknown number.
var plausible = map[*Family]bounds{
	GPUTemperature: {-60, 250}, GPUTemperatureMargin: {-250, 250},
	GPUPower: {0, 50e3}, GPUPowerLimit: {0, 50e3}, GPUFanSpeed: {0, 2}, // a fan may turn faster than its nominal maximum
	GPUClock: {0, 20e9}, GPUClockMax: {0, 20e9}, GPUPerformanceState: {0, 15},
	GPUPCIeLinkGeneration: {1, 15}, GPUPCIeLinkWidth: {0, 64},
	GPURecoveryAction: {0, 63}, GPURowRemapPending: {0, 1}, GPURowRemapFailure: {0, 1}, GPURetiredPagesPending: {0, 1},
	GPUMemoryUnrepairable: {0, 1}, GPUSRAMThreshold: {0, 1}, GPUPersistenceMode: {0, 1}, GPUVGPULicensed: {0, 1}, GPUECCMode: {0, 1},
	GPURemappedRows: {0, 1e6}, GPURetiredPages: {0, 1e6}, GPURowRemapBanks: {0, 1e6},
}

// Plausible reports whether the family can have this value at all. NaN and infinity are never plausible. Collectors of
// engines, of gateways, of NVML and of other exporters' metrics pages drop and count implausible values.
func (f *Family) Plausible(v float64) bool {
	b, own := plausible[f]
	switch {
	case own:
	case f.Kind != Gauge:
		b.most = 1e21 // the maximum of a 64-bit count of kibibytes
	case f.Owner == GPU && strings.HasSuffix(f.Name, "_ratio"):
		b.most = 1.1 // the value is rounded, and comes from two readings
	case f.Owner == GPU && strings.HasSuffix(f.Name, "_bytes"):
		b.most = 1 << 50
	default:
		b.most = math.MaxFloat64
	}
	return b.least <= v && v <= b.most
}
