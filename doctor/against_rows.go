package doctor

import (
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// smiRow maps an element of nvidia-smi's output to the exporter's series with the same value.
type smiRow struct {
	paths  []string // below <gpu>, newest release first; the first path with a value counts
	minus  string   // path of a value that is subtracted, for distances to a limit
	needs  string   // path of a value that must exist, because this value has no meaning without it
	to     *metrics.Family
	labels []string // labels of the series besides those of the GPU, as names and values in turn
	text   string   // label with the value, for texts; empty for numbers
	slack  smiSlack
	read   func(text string) string // translates a text, or the words for a number; nil leaves the text unchanged
	offers bool                     // the series shows whether the GPU has the feature of an element

	counted *metrics.Family // counts the seconds in this state, because the state may begin and end between the readings
}

// smiSlack is how much two values may differ, because of rounding, or because they were not read at the same moment.
type smiSlack struct {
	absolute, relative float64
	moving             bool // changes from moment to moment, so an old file proves nothing
}

// These are the tolerances. nvidia-smi rounds to MiB, to MHz, or to hundredths of a watt.
var (
	same    = smiSlack{relative: 1e-9}
	mib     = smiSlack{absolute: 1 << 20}
	watts   = smiSlack{absolute: 0.006}
	counted = smiSlack{relative: 1e-9, moving: true}
	memory  = smiSlack{absolute: 64 << 20, moving: true}
	clocks  = smiSlack{absolute: 45e6, relative: 0.05, moving: true}
	degrees = smiSlack{absolute: 3, moving: true}
	power   = smiSlack{absolute: 15, relative: 0.15, moving: true}
	share   = smiSlack{absolute: 0.15, moving: true}
	states  = smiSlack{moving: true}
	micros  = smiSlack{absolute: 2, relative: 1e-6, moving: true} // seconds: the time between the two readings
)

func smiPath(under string, f *metrics.Family, slack smiSlack, pathsAndLabels ...[]string) []smiRow {
	rows := make([]smiRow, 0, len(pathsAndLabels))
	for _, p := range pathsAndLabels {
		rows = append(rows, smiRow{paths: []string{under + p[0]}, to: f, labels: p[1:], slack: slack})
	}
	return rows
}

func smiInfo(path string, f *metrics.Family, label string, read func(string) string) smiRow {
	return smiRow{paths: []string{path}, to: f, text: label, slack: same, read: read}
}

// pciAddress converts a PCI address to the form in sysfs, which has a domain of four digits, and lower-case letters.
func pciAddress(text string) string {
	if domain, rest, ok := strings.Cut(text, ":"); ok && len(domain) == 8 {
		text = strings.TrimPrefix(domain, "0000") + ":" + rest
	}
	return strings.ToLower(text)
}

// architecture converts the name of an architecture to the exporter's form.
func architecture(text string) string {
	first, _, _ := strings.Cut(strings.ToLower(text), " ")
	return first
}

func snake(text string) string { return strings.ReplaceAll(strings.ToLower(text), " ", "_") }

// smiRows lists the values of a GPU that both nvidia-smi -q -x and the exporter have.
var smiRows = joinRows(
	[]smiRow{
		smiInfo("product_name", metrics.GPUInfo, metrics.LabelGPUName, nil),
		smiInfo("product_architecture", metrics.GPUInfo, metrics.LabelArchitecture, architecture),
		smiInfo("serial", metrics.GPUInfo, metrics.LabelSerial, nil),
		smiInfo("uuid", metrics.GPUInfo, metrics.LabelGPUUUID, nil),
		smiInfo("minor_number", metrics.GPUInfo, metrics.LabelMinorNumber, nil),
		smiInfo("vbios_version", metrics.GPUInfo, metrics.LabelVBIOSVersion, nil),
		smiInfo("pci/pci_bus_id", metrics.GPUInfo, metrics.LabelPCIBusID, pciAddress),
		smiInfo("gsp_firmware_version", metrics.GPUGSPFirmwareInfo, metrics.LabelGSPFirmwareVersion, nil),
		smiInfo("platformInfo/chassis_serial_number", metrics.GPUPlatformInfo, metrics.LabelChassisSerialNumber, nil),
		smiInfo("platformInfo/slot_number", metrics.GPUPlatformInfo, metrics.LabelSlotNumber, nil),
		smiInfo("platformInfo/tray_index", metrics.GPUPlatformInfo, metrics.LabelTrayIndex, nil),
		smiInfo("platformInfo/host_id", metrics.GPUPlatformInfo, metrics.LabelHostID, nil),
		{paths: []string{"persistence_mode"}, to: metrics.GPUPersistenceMode},
		{paths: []string{"c2c_mode"}, to: metrics.GPUC2CMode},
		{paths: []string{"gpu_recovery_action"}, to: metrics.GPURecoveryAction, slack: states},
		{
			paths: []string{"gpu_recovery_action"}, to: metrics.GPURecoveryActionInfo, text: metrics.LabelAction, slack: states,
			read: func(text string) string { return metrics.RecoveryAction(int(smiWords[text])) },
		},
		{paths: []string{"pci/replay_counter"}, to: metrics.GPUPCIeReplays, slack: counted},
		{paths: []string{"fan_speed"}, to: metrics.GPUFanSpeed, labels: []string{metrics.LabelFan, "0"}, slack: share},
		{paths: []string{"performance_state"}, to: metrics.GPUPerformanceState, slack: states},
		{paths: []string{"utilization/gpu_util"}, to: metrics.GPUUtilization, slack: share},
		{paths: []string{"utilization/memory_util"}, to: metrics.GPUMemoryBusy, slack: share},
		{paths: []string{"ecc_errors/aggregate/sram_threshold_exceeded"}, to: metrics.GPUSRAMThreshold},
		{paths: []string{"ecc_errors/unrepairable_memory"}, to: metrics.GPUMemoryUnrepairable},
		{paths: []string{"retired_pages/pending_retirement", "retired_pages/pending_blacklist"}, to: metrics.GPURetiredPagesPending},
		{paths: []string{"remapped_rows/remapped_row_pending"}, to: metrics.GPURowRemapPending},
		{paths: []string{"remapped_rows/remapped_row_failure"}, to: metrics.GPURowRemapFailure},
		smiInfo("fabric/state", metrics.GPUFabricState, metrics.LabelState, snake),
		// If a GPU reaches only GPUs of its node, the UUID is zero on every node, and the exporter leaves it out.
		{paths: []string{"fabric/cliqueId"}, needs: "fabric/clusterUuid", to: metrics.GPUFabricInfo, text: metrics.LabelCliqueID},
		smiInfo("fabric/clusterUuid", metrics.GPUFabricInfo, metrics.LabelClusterUUID, strings.ToLower),
	},
	smiPath("mig_mode/", metrics.GPUMIGMode, same, []string{"current_mig", metrics.LabelState, "current"},
		[]string{"pending_mig", metrics.LabelState, "pending"}),
	smiPath("pci/pci_gpu_link_info/pcie_gen/", metrics.GPUPCIeLinkGeneration, states, []string{
		"current_link_gen", metrics.LabelState,
		"current",
	}, []string{"max_link_gen", metrics.LabelState, "max"}),
	smiPath("pci/pci_gpu_link_info/link_widths/", metrics.GPUPCIeLinkWidth, states, []string{
		"current_link_width", metrics.LabelState,
		"current",
	}, []string{"max_link_width", metrics.LabelState, "max"}),
	smiPath("fb_memory_usage/total", metrics.GPUMemoryTotal, mib, []string{""}),
	smiPath("fb_memory_usage/reserved", metrics.GPUMemoryReserved, mib, []string{""}),
	smiPath("fb_memory_usage/used", metrics.GPUMemoryUsed, memory, []string{""}),
	smiPath("fb_memory_usage/free", metrics.GPUMemoryFree, memory, []string{""}),
	smiPath("bar1_memory_usage/total", metrics.GPUBAR1Total, mib, []string{""}),
	smiPath("bar1_memory_usage/used", metrics.GPUBAR1Used, memory, []string{""}),
	smiPath("utilization/", metrics.GPUMediaUtilization, share, []string{"encoder_util", metrics.LabelKind, "encoder"},
		[]string{"decoder_util", metrics.LabelKind, "decoder"},
		[]string{"jpeg_util", metrics.LabelKind, "jpeg"}, []string{"ofa_util", metrics.LabelKind, "ofa"}),
	smiPath("ecc_mode/", metrics.GPUECCMode, same, []string{"current_ecc", metrics.LabelState, "current"},
		[]string{"pending_ecc", metrics.LabelState, "pending"}),
	eccRows("volatile"), eccRows("aggregate"),
	smiPath("ecc_errors/aggregate_uncorrectable_sram_sources/sram_", metrics.GPUSRAMUnitUncorrected, counted,
		[]string{"l2", metrics.LabelLocation, "l2"}, []string{"sm", metrics.LabelLocation, "sm"},
		[]string{"microcontroller", metrics.LabelLocation, "microcontroller"}, []string{"pcie", metrics.LabelLocation, "pcie"},
		[]string{"other", metrics.LabelLocation, "other"}),
	smiPath("ecc_errors/", metrics.GPURepairPending, same, []string{"channel_repair_pending", metrics.LabelType, "channel"},
		[]string{"tpc_repair_pending", metrics.LabelType, "tpc"}),
	smiPath("retired_pages/", metrics.GPURetiredPages, counted, []string{
		"multiple_single_bit_retirement/retired_count",
		metrics.LabelCause, "corrected",
	}, []string{"double_bit_retirement/retired_count", metrics.LabelCause, "uncorrected"}),
	smiPath("remapped_rows/remapped_row_", metrics.GPURemappedRows, counted, []string{"corr", metrics.LabelCause, "corrected"},
		[]string{"unc", metrics.LabelCause, "uncorrected"}),
	labelled("remapped_rows/row_remapper_histogram/row_remapper_histogram_", "", metrics.GPURowRemapBanks, metrics.LabelAvailability,
		counted, "max", "high", "partial", "low", "none"),
	temperatureRows(), powerRows(),
	labelled("clocks/", "_clock", metrics.GPUClock, metrics.LabelDomain, clocks, "graphics", "sm", "mem", "video"),
	labelled("max_clocks/", "_clock", metrics.GPUClockMax, metrics.LabelDomain, same, "graphics", "sm", "mem", "video"),
	clockEventRows(),
	smiPath("fabric/health/", metrics.GPUFabricHealth, states, []string{"summary", metrics.LabelCheck, "summary"},
		[]string{"bandwidth", metrics.LabelCheck, "degraded_bandwidth"},
		[]string{"route_recovery_in_progress", metrics.LabelCheck, "route_recovery"}, []string{
			"route_unhealthy", metrics.LabelCheck,
			"route_unhealthy",
		},
		[]string{"access_timeout_recovery", metrics.LabelCheck, "access_timeout_recovery"}, []string{
			"incorrect_configuration",
			metrics.LabelCheck, "incorrect_configuration",
		}),
	featureRows(),
)

// featureRows returns the rows of llm_gpu_feature_supported. nvidia-smi shows a value only for features that a GPU
// supports.
func featureRows() (rows []smiRow) {
	for feature, elements := range map[string][]string{
		"bar1": {"bar1_memory_usage/total"}, "c2c_mode": {"c2c_mode"}, "clock": {
			"clocks/graphics_clock", "clocks/sm_clock",
			"clocks/mem_clock",
		}, "clock_max": {"max_clocks/graphics_clock", "max_clocks/sm_clock"},
		"clock_events":        {"clocks_event_reasons/clocks_event_reason_gpu_idle", "clocks_throttle_reasons/clocks_throttle_reason_gpu_idle"},
		"clock_event_seconds": {"clocks_event_reasons_counters/clocks_event_reasons_counters_sw_power_cap"},
		"encoder_utilization": {"utilization/encoder_util"}, "decoder_utilization": {"utilization/decoder_util"},
		"jpeg_utilization": {"utilization/jpeg_util"}, "ofa_utilization": {"utilization/ofa_util"},
		"utilization": {"utilization/gpu_util"}, "memory": {"fb_memory_usage/total"}, "fan_speed": {"fan_speed"},
		"performance_state": {"performance_state"}, "persistence_mode": {"persistence_mode"},
		"ecc_mode": {"ecc_mode/current_ecc"}, "ecc_errors": {
			"ecc_errors/volatile/dram_correctable",
			"ecc_errors/volatile/single_bit/device_memory",
		}, "sram_ecc_threshold": {"ecc_errors/aggregate/sram_threshold_exceeded"},
		"repair_pending": {"ecc_errors/channel_repair_pending"}, "memory_unrepairable": {"ecc_errors/unrepairable_memory"},
		"retired_pages":   {"retired_pages/double_bit_retirement/retired_count"},
		"row_remap":       {"remapped_rows/remapped_row_unc"},
		"row_remap_banks": {"remapped_rows/row_remapper_histogram/row_remapper_histogram_max"}, "recovery_action": {"gpu_recovery_action"},
		"temperature": {"temperature/gpu_temp"}, "memory_temperature": {"temperature/memory_temp"},
		"temperature_margin": {"temperature/gpu_temp_tlimit", "temperature/gpu_temp_slow_threshold"},
		"power":              {"gpu_power_readings/instant_power_draw", "gpu_power_readings/power_draw", "power_readings/power_draw"},
		"power_average":      {"gpu_power_readings/average_power_draw"},
		"power_limit":        {"gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit"},
		"power_memory":       {"gpu_memory_power_readings/instant_power_draw", "gpu_memory_power_readings/average_power_draw"},
		"power_module":       {"module_power_readings/instant_power_draw"}, "pcie_link": {"pci/pci_gpu_link_info/pcie_gen/current_link_gen"},
		"pcie_replays": {"pci/replay_counter"},
		"mig":          {"mig_mode/current_mig"}, "fabric": {"fabric/state"}, "gsp_firmware": {"gsp_firmware_version"},
	} {
		rows = append(rows, smiRow{
			paths: elements, to: metrics.GPUFeatureSupported, labels: []string{metrics.LabelFeature, feature},
			offers: true, read: func(string) string { return "Yes" },
		})
	}
	return rows
}

func joinRows(all ...[]smiRow) (rows []smiRow) {
	for _, some := range all {
		rows = append(rows, some...)
	}
	return rows
}

// labelled returns one row for each value of a label. The name of nvidia-smi's element contains this value, between
// before and after.
func labelled(before, after string, f *metrics.Family, label string, slack smiSlack, values ...string) (rows []smiRow) {
	for _, v := range values {
		of := v
		if v == "mem" {
			of = "memory"
		}
		rows = append(rows, smiRow{paths: []string{before + v + after}, to: f, labels: []string{label, of}, slack: slack})
	}
	return rows
}

// eccRows returns the rows for ECC errors, either since the driver was loaded, or over the life of the board. Drivers
// before 550 do not split uncorrectable errors of SRAM. GPUs before Ampere count errors by hardware unit.
func eccRows(lifetime string) (rows []smiRow) {
	at := "ecc_errors/" + lifetime + "/"
	errors := func(path, severity, location string) {
		rows = append(rows, smiRow{
			paths: []string{at + path}, to: metrics.GPUECCErrors, slack: counted,
			labels: []string{metrics.LabelSeverity, severity, metrics.LabelLocation, location, metrics.LabelLifetime, lifetime},
		})
	}
	errors("sram_correctable", "corrected", "sram")
	errors("sram_uncorrectable", "uncorrected", "sram")
	errors("dram_correctable", "corrected", "dram")
	errors("dram_uncorrectable", "uncorrected", "dram")
	for path, location := range map[string]string{
		"device_memory": "dram", "register_file": "register_file", "l1_cache": "l1",
		"l2_cache": "l2", "texture_memory": "texture", "texture_shm": "shared", "cbu": "cbu",
	} {
		errors("single_bit/"+path, "corrected", location)
		errors("double_bit/"+path, "uncorrected", location)
	}
	for path, kind := range map[string]string{"sram_uncorrectable_parity": "parity", "sram_uncorrectable_secded": "sec_ded"} {
		rows = append(rows, smiRow{
			paths: []string{at + path}, to: metrics.GPUSRAMUncorrected, slack: counted,
			labels: []string{metrics.LabelType, kind, metrics.LabelLifetime, lifetime},
		})
	}
	return rows
}

// temperatureRows returns the rows for temperatures, and for their distances to limits. nvidia-smi shows these
// distances as T.Limit, or shows the limits in degrees.
func temperatureRows() []smiRow {
	const at = "temperature/"
	margin := func(limit, tlimit, threshold, sensor string) []smiRow {
		to := []string{metrics.LabelLimit, limit}
		rows := []smiRow{{paths: []string{at + threshold}, minus: at + sensor, to: metrics.GPUTemperatureMargin, labels: to, slack: degrees}}
		if tlimit != "" {
			rows = append(rows, smiRow{
				paths: []string{at + "gpu_temp_tlimit"}, minus: at + tlimit, to: metrics.GPUTemperatureMargin,
				labels: to, slack: degrees,
			})
		}
		return rows
	}
	return joinRows(
		smiPath(at, metrics.GPUTemperature, degrees, []string{"gpu_temp", metrics.LabelSensor, "gpu"},
			[]string{"memory_temp", metrics.LabelSensor, "memory"}),
		margin("slowdown", "gpu_temp_slow_tlimit_threshold", "gpu_temp_slow_threshold", "gpu_temp"),
		margin("shutdown", "gpu_temp_max_tlimit_threshold", "gpu_temp_max_threshold", "gpu_temp"),
		margin("gpu_max", "gpu_temp_max_gpu_tlimit_threshold", "gpu_temp_max_gpu_threshold", "gpu_temp"),
		margin("memory_max", "", "gpu_temp_max_mem_threshold", "memory_temp"),
	)
}

// powerRows returns the rows for power and its limits. Driver 530 renamed the elements, and driver 550 split them.
func powerRows() []smiRow {
	row := func(f *metrics.Family, label, value string, slack smiSlack, paths ...string) smiRow {
		return smiRow{paths: paths, to: f, labels: []string{label, value}, slack: slack}
	}
	const now, before = "gpu_power_readings/", "power_readings/"
	return []smiRow{
		row(metrics.GPUPower, metrics.LabelScope, "gpu", power, now+"instant_power_draw", now+"power_draw", before+"power_draw"),
		row(metrics.GPUPower, metrics.LabelScope, "gpu_average", power, now+"average_power_draw"),
		row(metrics.GPUPower, metrics.LabelScope, "memory", power, "gpu_memory_power_readings/instant_power_draw"),
		row(metrics.GPUPower, metrics.LabelScope, "memory_average", power, "gpu_memory_power_readings/average_power_draw"),
		row(metrics.GPUPower, metrics.LabelScope, "module", power, "module_power_readings/instant_power_draw",
			"module_power_readings/power_draw"),
		row(metrics.GPUPowerLimit, metrics.LabelKind, "enforced", watts, now+"current_power_limit", before+"enforced_power_limit"),
		row(metrics.GPUPowerLimit, metrics.LabelKind, "requested", watts, now+"requested_power_limit", before+"power_limit"),
		row(metrics.GPUPowerLimit, metrics.LabelKind, "default", watts, now+"default_power_limit", before+"default_power_limit"),
		row(metrics.GPUPowerLimit, metrics.LabelKind, "min", watts, now+"min_power_limit", before+"min_power_limit"),
		row(metrics.GPUPowerLimit, metrics.LabelKind, "max", watts, now+"max_power_limit", before+"max_power_limit"),
	}
}

// clockEventRows returns the rows for the reasons for lower clocks, and for how long each reason applied. Until driver
// 535, the elements were named after throttle reasons.
func clockEventRows() (rows []smiRow) {
	for reason, name := range map[string]string{
		"gpu_idle": "gpu_idle", "applications_clocks_setting": "applications_clocks_setting",
		"sw_power_cap": "sw_power_cap", "hw_slowdown": "hw_slowdown",
		"hw_thermal_slowdown": "hw_thermal_slowdown", "hw_power_brake_slowdown": "hw_power_brake_slowdown", "sync_boost": "sync_boost",
		"sw_thermal_slowdown":   "sw_thermal_slowdown",
		"display_clock_setting": "display_clocks_setting",
	} {
		rows = append(rows, smiRow{
			paths: []string{
				"clocks_event_reasons/clocks_event_reason_" + name,
				"clocks_throttle_reasons/clocks_throttle_reason_" + name,
			},
			to: metrics.GPUClockEventActive, labels: []string{metrics.LabelReason, reason}, slack: states, counted: metrics.GPUClockEventSeconds,
		})
	}
	for reason, name := range map[string]string{
		"sw_power_cap": "sw_power_cap", "sync_boost": "sync_boost",
		"sw_thermal_slowdown": "sw_therm_slowdown", "hw_thermal_slowdown": "hw_therm_slowdown",
		"hw_power_brake_slowdown": "hw_power_brake",
	} {
		rows = append(rows, smiRow{
			paths: []string{"clocks_event_reasons_counters/clocks_event_reasons_counters_" + name},
			to:    metrics.GPUClockEventSeconds, labels: []string{metrics.LabelReason, reason, metrics.LabelSource, "driver"}, slack: micros,
		})
	}
	return rows
}
