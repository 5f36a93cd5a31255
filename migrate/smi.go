package migrate

import (
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu/page"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// smi lists the numbers of nvidia_gpu_exporter that the vocabulary has. That exporter names its numbers after the
// fields of nvidia-smi --query-gpu, in base units. Source: utkuozdemir/nvidia_gpu_exporter e656cd8 docs/METRICS.md.
func smi() []page.Equal {
	var t smiTable
	t.state()
	t.power()
	t.memoryErrors()
	t.modes()
	t.links()
	t.instances()
	return t
}

// smiTable is the list that smi returns. Each of its methods adds one group of numbers.
type smiTable []page.Equal

// add adds a number. In the family, its series have the labels in set.
func (t *smiTable) add(name string, to *metrics.Family, set ...metrics.Label) {
	*t = append(*t, page.Equal{Name: "nvidia_smi_" + name, To: to, Set: set})
}

func label(name, value string) metrics.Label { return metrics.Label{Name: name, Value: value} }

// state adds the identity, temperature, load, memory use and XIDs of a GPU.
func (t *smiTable) state() {
	t.add("gpu_info", metrics.GPUInfo)
	t.add("temperature_gpu", metrics.GPUTemperature, label(metrics.LabelSensor, "gpu"))
	t.add("temperature_memory", metrics.GPUTemperature, label(metrics.LabelSensor, "memory"))
	t.add("temperature_gpu_tlimit", metrics.GPUTemperatureMargin, label(metrics.LabelLimit, "slowdown"))
	t.add("utilization_gpu_ratio", metrics.GPUUtilization)
	t.add("utilization_memory_ratio", metrics.GPUMemoryBusy)
	for _, kind := range []string{"encoder", "decoder", "jpeg", "ofa"} {
		t.add("utilization_"+kind+"_ratio", metrics.GPUMediaUtilization, label(metrics.LabelKind, kind))
	}
	t.add("memory_total_bytes", metrics.GPUMemoryTotal)
	t.add("memory_used_bytes", metrics.GPUMemoryUsed)
	t.add("memory_free_bytes", metrics.GPUMemoryFree)
	t.add("memory_reserved_bytes", metrics.GPUMemoryReserved)
	t.add("fan_speed_ratio", metrics.GPUFanSpeed, label(metrics.LabelFan, "0"))
	t.add("pstate", metrics.GPUPerformanceState)
	t.add("persistence_mode", metrics.GPUPersistenceMode)
	t.add("gpu_recovery_action", metrics.GPURecoveryAction)
	t.add("xid_errors_total", metrics.GPUXIDErrors)
	t.add("xid_last_timestamp_seconds", metrics.GPUXIDLastTimestamp)
}

// power adds power, clocks and the reasons for lower clocks.
func (t *smiTable) power() {
	t.add("power_draw_watts", metrics.GPUPower, label(metrics.LabelScope, "gpu_average"))
	t.add("power_draw_average_watts", metrics.GPUPower, label(metrics.LabelScope, "gpu_average"))
	t.add("power_draw_instant_watts", metrics.GPUPower, label(metrics.LabelScope, "gpu"))
	t.add("module_power_draw_instant_watts", metrics.GPUPower, label(metrics.LabelScope, "module"))
	for field, kind := range map[string]string{
		"enforced_power_limit": "enforced", "power_limit": "requested",
		"power_default_limit": "default",
		"power_min_limit":     "min", "power_max_limit": "max",
	} {
		t.add(field+"_watts", metrics.GPUPowerLimit, label(metrics.LabelKind, kind))
	}
	t.add("energy_joules_total", metrics.GPUEnergy)
	for field, domain := range map[string]string{"graphics": "graphics", "sm": "sm", "memory": "memory", "video": "video"} {
		t.add("clocks_current_"+field+"_clock_hz", metrics.GPUClock, label(metrics.LabelDomain, domain))
		t.add("clocks_max_"+field+"_clock_hz", metrics.GPUClockMax, label(metrics.LabelDomain, domain))
	}
	for _, reason := range []string{
		"gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "hw_thermal_slowdown",
		"hw_power_brake_slowdown", "sw_thermal_slowdown", "sync_boost",
	} {
		t.add("clocks_event_reasons_"+reason, metrics.GPUClockEventActive, label(metrics.LabelReason, reason))
		// These are the names of drivers before 535.
		t.add("clocks_throttle_reasons_"+reason, metrics.GPUClockEventActive, label(metrics.LabelReason, reason))
	}
	for _, reason := range []string{"sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"} {
		t.add("clocks_event_reasons_counters_"+reason+"_seconds", metrics.GPUClockEventSeconds,
			label(metrics.LabelReason, reason), label(metrics.LabelSource, "driver"))
	}
}

// memoryErrors adds errors of the memory, and their repair.
func (t *smiTable) memoryErrors() {
	for _, severity := range []string{"corrected", "uncorrected"} {
		for _, lifetime := range []string{"volatile", "aggregate"} {
			of := []metrics.Label{label(metrics.LabelSeverity, severity), label(metrics.LabelLifetime, lifetime)}
			t.add("ecc_errors_"+severity+"_"+lifetime+"_total", metrics.GPUECCErrors, of...)
			for _, location := range []string{"dram", "sram"} {
				t.add("ecc_errors_"+severity+"_"+lifetime+"_"+location, metrics.GPUECCErrors,
					append(of[:2:2], label(metrics.LabelLocation, location))...)
			}
		}
	}
	t.add("ecc_errors_uncorrected_aggregate_sram_threshold_exceeded", metrics.GPUSRAMThreshold)
	t.add("remapped_rows_pending", metrics.GPURowRemapPending)
	t.add("remapped_rows_failure", metrics.GPURowRemapFailure)
	t.add("remapped_rows_correctable", metrics.GPURemappedRows, label(metrics.LabelCause, "corrected"))
	t.add("remapped_rows_uncorrectable", metrics.GPURemappedRows, label(metrics.LabelCause, "uncorrected"))
	for _, left := range []string{"max", "high", "partial", "low", "none"} {
		t.add("remapped_rows_histogram_"+left, metrics.GPURowRemapBanks, label(metrics.LabelAvailability, left))
	}
	t.add("retired_pages_single_bit_ecc_count", metrics.GPURetiredPages, label(metrics.LabelCause, "corrected"))
	t.add("retired_pages_double_bit_count", metrics.GPURetiredPages, label(metrics.LabelCause, "uncorrected"))
	t.add("retired_pages_pending", metrics.GPURetiredPagesPending)
}

// modes adds the modes that an operator sets.
func (t *smiTable) modes() {
	for _, state := range []string{"current", "pending"} {
		t.add("ecc_mode_"+state, metrics.GPUECCMode, label(metrics.LabelState, state))
		t.add("mig_mode_"+state, metrics.GPUMIGMode, label(metrics.LabelState, state))
	}
	for _, state := range []string{"current", "default"} {
		t.add("gsp_mode_"+state, metrics.GPUGSPFirmwareMode, label(metrics.LabelState, state))
	}
}

// links adds the links of a GPU.
func (t *smiTable) links() {
	for _, state := range []string{"current", "max"} {
		t.add("pcie_link_gen_"+state, metrics.GPUPCIeLinkGeneration, label(metrics.LabelState, state))
		t.add("pcie_link_width_"+state, metrics.GPUPCIeLinkWidth, label(metrics.LabelState, state))
	}
	*t = append(*t, page.Equal{Name: "nvidia_smi_pcie_throughput_tx_bytes_per_second", To: metrics.GPUPCIeTransmit, Rate: true},
		page.Equal{Name: "nvidia_smi_pcie_throughput_rx_bytes_per_second", To: metrics.GPUPCIeReceive, Rate: true})
	t.add("c2c_mode", metrics.GPUC2CMode)
}

// instances adds the numbers of MIG devices.
func (t *smiTable) instances() {
	t.add("mig_info", metrics.GPUMIGInfo)
	for _, part := range []struct {
		name string
		to   *metrics.Family
	}{
		{"memory_total_bytes", metrics.GPUMemoryTotal},
		{"memory_used_bytes", metrics.GPUMemoryUsed},
		{"memory_free_bytes", metrics.GPUMemoryFree},
		{"memory_reserved_bytes", metrics.GPUMemoryReserved},
		{"graphics_activity_ratio", metrics.GPUGraphicsActive},
		{"sm_activity_ratio", metrics.GPUSMActive},
		{"sm_occupancy_ratio", metrics.GPUSMOccupancy},
		{"tensor_activity_ratio", metrics.GPUTensorActive},
	} {
		t.add("mig_"+part.name, part.to, label(metrics.LabelGPUInstance, anyValue))
	}
}

// smiNot explains why numbers of nvidia_gpu_exporter have no equal. The keys are prefixes of their names.
var smiNot = []struct{ prefix, why string }{
	{"nvidia_smi_compute_app", "processes are summed per container: see llm_gpu_container_memory_bytes"},
	{"nvidia_smi_fabric_state", "llm_gpu_fabric_state has the state as a label, not as a number"},
	{"nvidia_smi_mig_pcie", "the bytes of PCIe are counted for the whole GPU"},
	{"nvidia_smi_last_collect", "this describes that exporter: see llm_gpu_nvml_up and llm_gpu_snapshot_age_seconds"},
	{"nvidia_smi_failed_scrapes", "this describes that exporter: see llm_gpu_nvml_up"},
	{"nvidia_smi_command_exit_code", "this describes that exporter: see llm_gpu_nvml_up"},
}

// smiLabels maps the labels of nvidia_gpu_exporter to labels of the vocabulary.
var smiLabels = map[string]string{
	"uuid": metrics.LabelGPUUUID, "index": metrics.LabelGPU, "name": metrics.LabelGPUName, "pci_bus_id": metrics.LabelPCIBusID,
	"serial":        metrics.LabelSerial,
	"vbios_version": metrics.LabelVBIOSVersion, "compute_cap": metrics.LabelComputeCapability, "xid": metrics.LabelXID,
	"mig_uuid":        metrics.LabelMIGUUID,
	"gpu_instance_id": metrics.LabelGPUInstance, "compute_instance_id": metrics.LabelComputeInstance, "profile": metrics.LabelProfile,
}
