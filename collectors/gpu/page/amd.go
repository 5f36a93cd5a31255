package page

import (
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// amd reads AMD's device-metrics-exporter. It reads only numbers with the same meaning as NVIDIA's. All families have
// the type gauge, and the metrics page lacks numbers that a GPU does not support.
var amd = Source{
	Name:      "amd",
	Reference: "ROCm/device-metrics-exporter v1.5.1 docs/configuration/metricslist.md, configmap.md",
	Recognise: func(s series) (string, bool) {
		for name, samples := range s {
			prefix, ok := strings.CutSuffix(name, "gpu_gfx_activity")
			if ok && first(samples[0].labels, "card_model", "gpu_compute_partition_type") != "" {
				return prefix, true
			}
		}
		return "", false
	},
	UUID:   amdUUID,
	Health: "gpu_health",
	Labels: map[string][]string{
		metrics.LabelGPU: {"gpu_id"}, metrics.LabelGPUName: {"card_model"}, metrics.LabelSerial: {"serial_number"},
		metrics.LabelVBIOSVersion: {"vbios_version"}, metrics.LabelDriverVersion: {"driver_version"},
	},
	Rows: []Row{
		{To: metrics.GPUUtilization, From: named("gpu_gfx_activity", percent)},
		{To: metrics.GPUClock, From: named("gpu_clock", mega), Carry: amdClocks},
		{To: metrics.GPUClockMax, From: named("gpu_max_clock", mega), Carry: amdClocks},
		{To: metrics.GPUMemoryBusy, From: named("gpu_umc_activity", percent)},
		{To: metrics.GPUMemoryTotal, From: named("gpu_total_vram", mebi), Quality: metrics.Approximate, Why: unclearMB},
		{To: metrics.GPUMemoryUsed, From: named("gpu_used_vram", mebi), Quality: metrics.Approximate, Why: unclearMB},
		{To: metrics.GPUMemoryFree, From: named("gpu_free_vram", mebi), Quality: metrics.Approximate, Why: unclearMB},
		{To: metrics.GPUMemoryBandwidthPeak, From: named("gpu_vram_max_bandwidth", giga)},
		{To: metrics.GPUPower, Set: set(metrics.LabelScope, "gpu"), From: named("gpu_package_power", plain)},
		{To: metrics.GPUPower, Set: set(metrics.LabelScope, "gpu"), From: named("gpu_power_usage", plain)},
		{To: metrics.GPUPower, Set: set(metrics.LabelScope, "gpu_average"), From: named("gpu_average_package_power", plain)},
		{To: metrics.GPUEnergy, From: named("gpu_energy_consumed", micro)},
		{To: metrics.GPUTemperature, Set: set(metrics.LabelSensor, "gpu"), From: named("gpu_junction_temperature", plain)},
		{To: metrics.GPUTemperature, Set: set(metrics.LabelSensor, "gpu"), From: named("gpu_edge_temperature", plain)},
		{To: metrics.GPUTemperature, Set: set(metrics.LabelSensor, "memory"), From: named("gpu_memory_temperature", plain)},
		{
			To: metrics.GPUPCIeLinkGeneration, Set: set(metrics.LabelState, "current"), From: named("pcie_speed", plain), Fold: generation,
			Quality: metrics.Derived, Why: "from GT/s",
		},
		{
			To: metrics.GPUPCIeLinkGeneration, Set: set(metrics.LabelState, "max"), From: named("pcie_max_speed", plain), Fold: generation,
			Quality: metrics.Derived, Why: "from GT/s",
		},
		{To: metrics.GPUPCIeReplays, From: named("pcie_replay_count", plain)},
		{To: metrics.GPUPCIeErrors, Set: set(metrics.LabelType, "naks_sent"), From: named("pcie_nack_sent_count", plain)},
		{To: metrics.GPUPCIeErrors, Set: set(metrics.LabelType, "naks_received"), From: named("pcie_nack_received_count", plain)},
		amdViolation("processor_hot", "processor_hot"), amdViolation("sw_power_cap", "ppt"), amdViolation("socket_thermal", "socket_thermal"),
		amdViolation("vr_thermal", "vr_thermal"), amdViolation("hbm_thermal", "hbm_thermal"),
		amdViolated("processor_hot", "processor_hot"), amdViolated("sw_power_cap", "ppt"), amdViolated("socket_thermal", "socket_thermal"),
		amdViolated("vr_thermal", "vr_thermal"), amdViolated("hbm_thermal", "hbm_thermal"),
		amdECC("corrected", "gpu_ecc_correct_total"), amdECC("uncorrected", "gpu_ecc_uncorrect_total"),
	},
	Says: map[*metrics.Family]string{
		metrics.GPUUp:   "rows of the GPU, and gpu_health; not_on_page when it had some before",
		metrics.GPUInfo: "labels; gpu_uuid is the serial number where there is one", metrics.GPUVisible: "GPUs with rows",
		metrics.GPUDriverInfo:     "label of the driver's version, which is off by default",
		metrics.GPUAllocationInfo: "labels pod, namespace and container",
	},
	Otherwise: "it has no twin on AMD's page, or none whose meaning is established",
}

const unclearMB = "whether its MB are 10^6 or 2^20 bytes is not established; 2^20 is assumed"

// amdUUID identifies a GPU by its serial number, which the GPU's partitions share. A guest has no serial number.
func amdUUID(l labels.Labels) string {
	if id := first(l, "serial_number", "gpu_uuid"); id != "" || l.Get("gpu_id") == "" {
		return id
	}
	return l.Get("hostname") + "/" + l.Get("gpu_id")
}

// amdClocks maps the type of a clock to a domain. Compute runs on the system clock. If there are several instances, the
// fastest counts.
var amdClocks = metrics.Carry{From: "clock_type", To: metrics.LabelDomain, Map: func(t string) string {
	return map[string]string{"GPU_CLOCK_TYPE_SYSTEM": "sm", "GPU_CLOCK_TYPE_MEMORY": "memory", "GPU_CLOCK_TYPE_VIDEO": "video"}[t]
}}

// amdViolation reads how long an MI3xx lowered its clocks for a reason. It uses the ticks of that reason and all ticks.
func amdViolation(reason, name string) Row {
	return Row{
		To: metrics.GPUClockEventSeconds, Set: []metrics.Label{
			{Name: metrics.LabelReason, Value: reason},
			{Name: metrics.LabelSource, Value: "sampled"},
		},
		From: named("gpu_violation_"+name+"_residency_accumulated", plain), With: []field{named("gpu_violation_current_accumulated_counter",
			plain)}, Is: share,
		Quality: metrics.Approximate, Why: "the share of ticks in which it held, times the time between two readings of the page",
	}
}

// amdViolated reports whether an MI3xx lowers its clocks for a reason now.
func amdViolated(reason, name string) Row {
	return Row{
		To: metrics.GPUClockEventActive, Set: set(metrics.LabelReason, reason),
		From: named("gpu_violation_"+name+"_residency_percentage", plain), Fold: some,
		Quality: metrics.Derived, Why: "whether it held for any part of the last sample",
	}
}

func amdECC(severity, name string) Row {
	r := ecc(severity, "volatile", "")
	r.From, r.Quality, r.Why = named(name, plain), metrics.Approximate, "since when it counts is not established"
	return r
}

// generation returns the PCIe generation for a rate in GT/s.
func generation(v []float64) (float64, bool) {
	for i, speed := range []float64{2.5, 5, 8, 16, 32, 64} {
		if v[0] == speed {
			return float64(i + 1), true
		}
	}
	return 0, false
}
