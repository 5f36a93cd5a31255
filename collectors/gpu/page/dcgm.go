package page

import (
	"fmt"
	"math/bits"
	"regexp"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

const (
	dev       = "DCGM_FI_DEV_"
	profiling = "DCGM_FI_PROF_"
)

// dcgm reads dcgm-exporter. Users change the list of fields, so the fields on a metrics page do not reveal the release.
// Only the new names of 4.9 do.
var dcgm = Source{
	Name: "dcgm",
	Reference: "NVIDIA/dcgm-exporter d5e5f51 (4.8.4) etc/default-counters.csv, internal/pkg/rendermetrics; NVIDIA/go-dcgm b7fa315 " +
		"pkg/dcgm/dcgm_fields.h, " +
		"legacy_fields.csv (4.9); NVIDIA/DCGM 4.6.0 dcgmlib/dcgm_fields.h",
	Recognise: func(s series) (string, bool) {
		for name := range s {
			if strings.HasPrefix(name, "DCGM_FI_") {
				return "", true
			}
		}
		return "", false
	},
	Redefines: dcgmRedefines,
	UUID:      func(l labels.Labels) string { return first(l, "UUID", "uuid") },
	Labels: map[string][]string{
		metrics.LabelGPU: {"gpu"}, metrics.LabelGPUInstance: {"GPU_I_ID"}, metrics.LabelProfile: {"GPU_I_PROFILE"},
		metrics.LabelPCIBusID: {"pci_bus_id"},
		metrics.LabelGPUName:  {"modelName"}, metrics.LabelSerial: {"DCGM_FI_DEV_SERIAL"},
		metrics.LabelVBIOSVersion:  {"DCGM_FI_DEV_VBIOS_VERSION"},
		metrics.LabelDriverVersion: {"DCGM_FI_SYSTEM_DRIVER_VERSION", "DCGM_FI_DRIVER_VERSION"},
		metrics.LabelNVMLVersion:   {"DCGM_FI_NVML_VERSION"},
		metrics.LabelMIGUUID:       {"dra_mig_device_uuid"},
	},
	Rows: []Row{
		{To: metrics.GPUClock, Set: set(metrics.LabelDomain, "sm"), From: redefined(dev+"SM_CLOCK", mega, dev+"SM_CLOCK_HERTZ")},
		{To: metrics.GPUClock, Set: set(metrics.LabelDomain, "memory"), From: redefined(dev+"MEM_CLOCK", mega, dev+"MEMORY_CLOCK_HERTZ")},
		{To: metrics.GPUClock, Set: set(metrics.LabelDomain, "video"), From: redefined(dev+"VIDEO_CLOCK", mega, dev+"VIDEO_CLOCK_HERTZ")},
		{To: metrics.GPUClockMax, Set: set(metrics.LabelDomain, "sm"), From: redefined(dev+"MAX_SM_CLOCK", mega, dev+"SM_MAX_CLOCK_HERTZ")},
		{To: metrics.GPUClockMax, Set: set(metrics.LabelDomain, "memory"), From: redefined(dev+"MAX_MEM_CLOCK", mega,
			dev+"MEMORY_MAX_CLOCK_HERTZ")},
		{To: metrics.GPUClockMax, Set: set(metrics.LabelDomain, "video"), From: redefined(dev+"MAX_VIDEO_CLOCK", mega,
			dev+"VIDEO_MAX_CLOCK_HERTZ")},

		clockEventTime("sw_power_cap", "SW_POWER_CAP"), clockEventTime("sync_boost", "SYNC_BOOST"), clockEventTime("sw_thermal_slowdown",
			"SW_THERM_SLOWDOWN"),
		clockEventTime("hw_thermal_slowdown", "HW_THERM_SLOWDOWN"), clockEventTime("hw_power_brake_slowdown", "HW_POWER_BRAKE_SLOWDOWN"),
		violation("sw_power_cap", redefined(dev+"POWER_VIOLATION", nano, dev+"GPU_POWER_THROTTLE_SECONDS_TOTAL")),
		violation("sw_thermal_slowdown", redefined(dev+"THERMAL_VIOLATION", nano, dev+"GPU_THERMAL_THROTTLE_SECONDS_TOTAL")),
		violation("sync_boost", named(dev+"SYNC_BOOST_VIOLATION", nano)),
		violation("board_limit", named(dev+"BOARD_LIMIT_VIOLATION", nano)),
		violation("reliability", named(dev+"RELIABILITY_VIOLATION", nano)),
		{
			To: metrics.GPUClockEventSeconds, Set: set(metrics.LabelSource, "sampled"), From: clockEvents, Split: clockEventBits,
			By: metrics.LabelReason, Is: rate,
			Quality: metrics.Approximate, Why: "summed up from one sample per reading of the page",
		},
		{
			To: metrics.GPUClockEventActive, From: clockEvents, Split: clockEventBits, By: metrics.LabelReason,
			Quality: metrics.Derived, Why: "bits of a mask, which does not show the reasons that the GPU supports",
		},
		{
			To: metrics.GPUClockEventActive, From: named("DCGM_EXP_CLOCK_EVENTS_COUNT", plain), Carry: metrics.Carry{
				From: "clock_event",
				To:   metrics.LabelReason, Map: clockEventName,
			}, Fold: some,
			Quality: metrics.Approximate, Why: "within the exporter's window of several minutes, not at this moment",
		},

		{To: metrics.GPUMemoryTotal, From: redefined(dev+"FB_TOTAL", mebi, dev+"FB_CAPACITY_BYTES")},
		{
			To: metrics.GPUMemoryTotal, From: memoryFree, With: []field{memoryUsed, memoryReserved}, Fold: total,
			Quality: metrics.Derived, Why: "free, used and reserved memory together, each rounded to MiB by older releases",
		},
		{To: metrics.GPUMemoryUsed, From: memoryUsed},
		{To: metrics.GPUMemoryFree, From: memoryFree},
		{To: metrics.GPUMemoryReserved, From: memoryReserved},
		{To: metrics.GPUBAR1Total, From: redefined(dev+"BAR1_TOTAL", mebi, dev+"BAR1_CAPACITY_BYTES")},
		{To: metrics.GPUBAR1Used, From: redefined(dev+"BAR1_USED", mebi, dev+"BAR1_USED_BYTES")},
		{
			To: metrics.GPUMemoryBandwidthUtilization, From: renamed(profiling+"DRAM_ACTIVE", profiling+"DRAM_UTIL_RATIO", plain),
			Absent: noProfiling,
		},
		{To: metrics.GPUMemoryBusy, From: redefined(dev+"MEM_COPY_UTIL", percent, dev+"MEMORY_UTIL_RATIO")},
		{To: metrics.GPUECCMode, Set: set(metrics.LabelState, "current"), From: renamed(dev+"ECC_CURRENT", dev+"ECC_MODE", plain)},
		ecc("corrected", "volatile", "SBE_VOL"), ecc("uncorrected", "volatile", "DBE_VOL"), ecc("corrected", "aggregate", "SBE_AGG"),
		ecc("uncorrected", "aggregate", "DBE_AGG"),
		{To: metrics.GPUSRAMThreshold, From: renamed(dev+"THRESHOLD_SRM", dev+"SRAM_EXCEEDED", plain)},
		{To: metrics.GPURowRemapPending, From: named(dev+"ROW_REMAP_PENDING", plain)},
		{To: metrics.GPURowRemapFailure, From: renamed(dev+"ROW_REMAP_FAILURE", dev+"ROW_REMAP_FAILED", plain)},
		{To: metrics.GPURemappedRows, Set: set(metrics.LabelCause, "corrected"), From: renamed(dev+"CORRECTABLE_REMAPPED_ROWS",
			dev+"ROW_REMAP_CORRECTABLE_TOTAL", plain)},
		{To: metrics.GPURemappedRows, Set: set(metrics.LabelCause, "uncorrected"), From: renamed(dev+"UNCORRECTABLE_REMAPPED_ROWS",
			dev+"ROW_REMAP_UNCORRECTABLE_TOTAL", plain)},
		remapBanks("max"), remapBanks("high"), remapBanks("partial"), remapBanks("low"), remapBanks("none"),
		{To: metrics.GPURetiredPages, Set: set(metrics.LabelCause, "corrected"), From: renamed(dev+"RETIRED_SBE",
			dev+"PAGE_RETIRED_SBE_TOTAL", plain)},
		{To: metrics.GPURetiredPages, Set: set(metrics.LabelCause, "uncorrected"), From: renamed(dev+"RETIRED_DBE",
			dev+"PAGE_RETIRED_DBE_TOTAL", plain)},
		{To: metrics.GPURetiredPagesPending, From: renamed(dev+"RETIRED_PENDING", dev+"PAGE_RETIRED_PENDING", plain), Fold: some},
		{To: metrics.GPUMemoryUnrepairable, From: renamed(dev+"MEMORY_UNREPAIRABLE_FLAG", dev+"MEMORY_UNREPAIRABLE", plain)},

		{To: metrics.GPUUtilization, From: redefined(dev+"GPU_UTIL", percent, dev+"GPU_UTIL_RATIO")},
		{To: metrics.GPUMediaUtilization, Set: set(metrics.LabelKind, "encoder"), From: redefined(dev+"ENC_UTIL", percent, dev+"ENC_UTIL_RATIO")},
		{To: metrics.GPUMediaUtilization, Set: set(metrics.LabelKind, "decoder"), From: redefined(dev+"DEC_UTIL", percent, dev+"DEC_UTIL_RATIO")},
		{
			To: metrics.GPUGraphicsActive, From: renamed(profiling+"GR_ENGINE_ACTIVE", profiling+"GR_ENGINE_UTIL_RATIO", plain),
			Absent: noProfiling,
		},
		{To: metrics.GPUSMActive, From: renamed(profiling+"SM_ACTIVE", profiling+"SM_UTIL_RATIO", plain), Absent: noProfiling},
		{To: metrics.GPUSMOccupancy, From: renamed(profiling+"SM_OCCUPANCY", profiling+"SM_OCCUPANCY_RATIO", plain), Absent: noProfiling},
		{To: metrics.GPUTensorActive, From: renamed(profiling+"PIPE_TENSOR_ACTIVE", profiling+"TENSOR_UTIL_RATIO", plain), Absent: noProfiling},
		pipe("fp64", "FP64"), pipe("fp32", "FP32"), pipe("fp16", "FP16"),

		{To: metrics.GPUTemperature, Set: set(metrics.LabelSensor, "gpu"), From: renamed(dev+"GPU_TEMP", dev+"GPU_TEMP_CELSIUS", plain)},
		{To: metrics.GPUTemperature, Set: set(metrics.LabelSensor, "memory"), From: renamed(dev+"MEMORY_TEMP", dev+"MEMORY_TEMP_CELSIUS",
			plain), Fold: positive},
		{To: metrics.GPUTemperatureMargin, Set: set(metrics.LabelLimit, "slowdown"), From: renamed(dev+"GPU_TEMP_LIMIT",
			dev+"GPU_TEMP_MARGIN_CELSIUS", plain)},
		margin("slowdown", renamed(dev+"SLOWDOWN_TEMP", dev+"GPU_TEMP_SLOWDOWN_CELSIUS", plain)),
		margin("shutdown", renamed(dev+"SHUTDOWN_TEMP", dev+"GPU_TEMP_SHUTDOWN_CELSIUS", plain)),
		{
			To: metrics.GPUPower, Set: set(metrics.LabelScope, "gpu_average"), From: renamed(dev+"POWER_USAGE", dev+"BOARD_POWER_WATTS", plain),
			Quality: metrics.Approximate, Why: "the mean of a second on Ampere and newer, the power of the moment before",
		},
		{To: metrics.GPUPower, Set: set(metrics.LabelScope, "gpu"), From: renamed(dev+"POWER_USAGE_INSTANT", dev+"BOARD_POWER_RAW_WATTS", plain)},
		{To: metrics.GPUPower, Set: set(metrics.LabelScope, "module"), From: renamed(dev+"MODULE_POWER_UTIL_CURRENT",
			dev+"MODULE_POWER_WATTS", plain), Fold: positive},
		{To: metrics.GPUPowerLimit, Set: set(metrics.LabelKind, "enforced"), From: renamed(dev+"ENFORCED_POWER_LIMIT",
			dev+"BOARD_POWER_LIMIT_ENFORCED_WATTS", plain)},
		{To: metrics.GPUPowerLimit, Set: set(metrics.LabelKind, "requested"), From: renamed(dev+"POWER_MGMT_LIMIT",
			dev+"BOARD_POWER_LIMIT_REQUESTED_WATTS", plain)},
		{To: metrics.GPUPowerLimit, Set: set(metrics.LabelKind, "default"), From: renamed(dev+"POWER_MGMT_LIMIT_DEF",
			dev+"BOARD_POWER_LIMIT_DEFAULT_WATTS", plain)},
		{To: metrics.GPUPowerLimit, Set: set(metrics.LabelKind, "min"), From: renamed(dev+"POWER_MGMT_LIMIT_MIN",
			dev+"BOARD_POWER_LIMIT_MIN_WATTS", plain)},
		{To: metrics.GPUPowerLimit, Set: set(metrics.LabelKind, "max"), From: renamed(dev+"POWER_MGMT_LIMIT_MAX",
			dev+"BOARD_POWER_LIMIT_MAX_WATTS", plain)},
		{To: metrics.GPUEnergy, From: redefined(dev+"TOTAL_ENERGY_CONSUMPTION", milli, dev+"GPU_ENERGY_JOULES_TOTAL")},
		{
			To: metrics.GPUFanSpeed, Set: set(metrics.LabelFan, "0"), From: redefined(dev+"FAN_SPEED", percent, dev+"FAN_SPEED_RATIO"),
			Absent: "the GPU has no fan, or the counters file of the exporter does not ask for DCGM_FI_DEV_FAN_SPEED",
		},
		{To: metrics.GPUPerformanceState, From: renamed(dev+"PSTATE", dev+"GPU_PSTATE", plain)},
		{
			To: metrics.GPUVGPULicensed, From: named(dev+"VGPU_LICENSE_STATUS", plain), Only: isVGPU,
			Absent: "the GPU is physical, or the counters file of the exporter does not ask for DCGM_FI_DEV_VGPU_LICENSE_STATUS",
		},
		{To: metrics.GPUPersistenceMode, From: renamed(dev+"PERSISTENCE_MODE", dev+"GPU_PERSISTENCE_MODE", plain)},

		{To: metrics.GPUPCIeTransmit, From: named(profiling+"PCIE_TX_BYTES_TOTAL", plain)},
		{
			To: metrics.GPUPCIeTransmit, From: named(profiling+"PCIE_TX_BYTES", plain), Is: rate, Absent: noProfiling,
			Quality: metrics.Approximate, Why: integrated,
		},
		{To: metrics.GPUPCIeReceive, From: named(profiling+"PCIE_RX_BYTES_TOTAL", plain)},
		{
			To: metrics.GPUPCIeReceive, From: named(profiling+"PCIE_RX_BYTES", plain), Is: rate, Absent: noProfiling,
			Quality: metrics.Approximate, Why: integrated,
		},
		{To: metrics.GPUPCIeReplays, From: renamed(dev+"PCIE_REPLAY_COUNTER", dev+"PCIE_REPLAY_TOTAL", plain)},
		{To: metrics.GPUPCIeErrors, Set: set(metrics.LabelType, "correctable"), From: renamed(dev+"PCIE_COUNT_CORRECTABLE_ERRORS",
			dev+"PCIE_CORRECTABLE_ERROR_TOTAL", plain)},
		{To: metrics.GPUPCIeLinkGeneration, Set: set(metrics.LabelState, "current"), From: named(dev+"PCIE_LINK_GEN", plain)},
		{To: metrics.GPUPCIeLinkGeneration, Set: set(metrics.LabelState, "max"), From: named(dev+"PCIE_MAX_LINK_GEN", plain)},
		{To: metrics.GPUPCIeLinkWidth, Set: set(metrics.LabelState, "current"), From: named(dev+"PCIE_LINK_WIDTH", plain)},
		{To: metrics.GPUPCIeLinkWidth, Set: set(metrics.LabelState, "max"), From: named(dev+"PCIE_MAX_LINK_WIDTH", plain)},
		{To: metrics.GPUNVLinkTransmit, From: renamed(dev+"NVLINK_COUNT_TX_BYTES", dev+"NVLINK_TX_BYTES_TOTAL", plain)},
		{
			To: metrics.GPUNVLinkTransmit, From: named(profiling+"NVLINK_TX_BYTES", plain), Is: rate, Absent: noProfiling,
			Quality: metrics.Approximate, Why: integrated,
		},
		{To: metrics.GPUNVLinkReceive, From: renamed(dev+"NVLINK_COUNT_RX_BYTES", dev+"NVLINK_RX_BYTES_TOTAL", plain)},
		{
			To: metrics.GPUNVLinkReceive, From: named(profiling+"NVLINK_RX_BYTES", plain), Is: rate, Absent: noProfiling,
			Quality: metrics.Approximate, Why: integrated,
		},
		nvlinkErrors("crc_flit", dev+"NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"), nvlinkErrors("crc_data", dev+"NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"),
		nvlinkErrors("replay", dev+"NVLINK_REPLAY_ERROR_COUNT_TOTAL"), nvlinkErrors("replay", dev+"NVLINK_REPLAY_TOTAL"),
		nvlinkErrors("recovery", dev+"NVLINK_RECOVERY_ERROR_COUNT_TOTAL"), nvlinkErrors("recovery", dev+"NVLINK_RECOVERY_TOTAL"),
		nvlinkErrors("crc", dev+"NVLINK_CRC_ERROR_TOTAL"),
		{
			To: metrics.GPUFabricHealth, Set: set(metrics.LabelCheck, "summary"), From: named(dev+"FABRIC_HEALTH_SUMMARY", plain),
			Fold: fabricSummary,
		},

		{To: metrics.GPURecoveryAction, From: renamed(dev+"GET_GPU_RECOVERY_ACTION", dev+"GPU_RECOVERY_ACTION", plain)},
		{
			To: metrics.GPURecoveryActionInfo, From: renamed(dev+"GET_GPU_RECOVERY_ACTION", dev+"GPU_RECOVERY_ACTION", plain),
			Split: recoveryAction, By: metrics.LabelAction,
		},
		{
			To: metrics.GPUXIDErrors, From: named("DCGM_EXP_XID_ERRORS_TOTAL", plain), Carry: metrics.Carry{From: "xid", To: metrics.LabelXID},
			Whole: true,
			Absent: "no series shows whether XIDs are read: DCGM_FI_DEV_XID_ERRORS has none before the first XID, and " +
				"DCGM_EXP_XID_ERRORS_COUNT counts within a window",
		},
		{
			To: metrics.GPUXIDErrors, From: renamed(dev+"XID_ERRORS", dev+"XID_ERROR", plain), By: metrics.LabelXID, Is: latest, Whole: true,
			Quality: metrics.Approximate,
			Why:     "changes of the latest XID: the same XID twice in a row counts once; of several XIDs between two readings only the last counts",
		},
	},
	Says: map[*metrics.Family]string{
		metrics.GPUUp: "rows of the GPU; not_on_page when it had some before", metrics.GPUInfo: "labels",
		metrics.GPUVisible: "GPUs with rows", metrics.GPUDriverInfo: "label of the driver's version",
		metrics.GPUMIGInfo: "labels GPU_I_ID and GPU_I_PROFILE", metrics.GPUAllocationInfo: "labels pod, namespace and container",
		metrics.GPUXIDInfo: "the catalogue of this exporter",
	},
	Missing: missing(map[string][]*metrics.Family{
		"this source is not NVML": {metrics.GPUNVMLUp, metrics.GPUCollectStuck, metrics.GPUCollectDuration},
		"the page lists GPUs that answer, not those on the bus: a GPU that disappears has llm_gpu_up 0": {
			metrics.GPUExpected,
			metrics.GPUMissing,
		},
		"the page does not say when it was sampled, every 30 seconds by default": {
			metrics.GPUSnapshotAge,
			metrics.GPUReadInterval,
		},
		"a number that is absent from the page is not supported, failed, or was not requested": {metrics.GPUFeatureSupported},
		"the page lists only instances for which it has numbers":                               {metrics.GPUMIGMode},
		"the width of the memory bus is no field of DCGM":                                      {metrics.GPUMemoryBandwidthPeak},
		"the page has no lines of the kernel log": {
			metrics.GPUSXIDErrors,
			metrics.GPUSXIDLastTimestamp,
		},
		"a mask whose layout is not established":      {metrics.GPUNVLinkUp},
		"a number whose meanings are not established": {metrics.GPUFabricState},
		"the page does not say which processes manage the fabric of the node": {
			metrics.GPUSwitches,
			metrics.GPUFabricManagerUp,
		},
		"the page has no processes": {
			metrics.GPUProcesses,
			metrics.GPUContainerMemory, metrics.GPUContainerSMUtilization, metrics.GPUContainerMemoryBusy,
		},
		"the page does not say when an XID came":             {metrics.GPUXIDLastTimestamp},
		"XIDs are on the page itself: see llm_gpu_source_up": {metrics.GPUXIDSourceUp},
	}),
	Otherwise: "no field of DCGM that is established",
}

const (
	integrated  = "a rate, despite its name; summed up from one reading of the page to the next"
	noProfiling = "the counters file does not ask for it, DCGM's profiling module is not loaded, has no permission (SYS_ADMIN) or does " +
		"not support this GPU, or another profiler holds the counters"
)

var (
	memoryFree     = redefined(dev+"FB_FREE", mebi, dev+"FB_FREE_BYTES")
	memoryUsed     = redefined(dev+"FB_USED", mebi, dev+"FB_USED_BYTES")
	memoryReserved = redefined(dev+"FB_RESERVED", mebi, dev+"FB_RESERVED_BYTES")
	clockEvents    = renamed(dev+"CLOCK_THROTTLE_REASONS", dev+"CLOCKS_EVENT_REASONS", plain)
)

// vGPUName matches the name of a virtual GPU. The name has the board, its share of memory, and a series (H100-20C, A100-1-5CME).
var vGPUName = regexp.MustCompile(`-[0-9]+[ABCQ](ME|NOME|GFX)?$`)

// isVGPU reports whether a row is about a virtual GPU, because the licence of a physical GPU is also 0.
func isVGPU(l labels.Labels) bool { return vGPUName.MatchString(l.Get("modelName")) }

// dcgmRedefines reports whether a metrics page is from DCGM 4.7 or newer. Before 4.7, some of its names were aliases
// with another unit. For example, GPU_UTIL_RATIO was 0 to 100. The release is recognised by the names introduced with
// 4.7 or by the name of the driver's label, and never by values.
func dcgmRedefines(s series) bool {
	for name, samples := range s {
		if strings.HasPrefix(name, dev) && (strings.HasSuffix(name, "_HERTZ") || strings.HasPrefix(name, dev+"FB_") &&
			strings.HasSuffix(name, "_BYTES")) {
			return true
		}
		for _, m := range samples {
			if m.labels.Has("DCGM_FI_SYSTEM_DRIVER_VERSION") {
				return true
			}
		}
	}
	return false
}

// driverTime returns a Set for the time in which a reason lowered the clocks, as measured by the driver itself.
func driverTime(reason string) []metrics.Label {
	return []metrics.Label{{Name: metrics.LabelReason, Value: reason}, {Name: metrics.LabelSource, Value: "driver"}}
}

func clockEventTime(reason, name string) Row {
	return Row{To: metrics.GPUClockEventSeconds, Set: driverTime(reason), From: named(dev+"CLOCKS_EVENT_REASON_"+name+"_NS", nano)}
}

// violation reads the driver's older counter for a reason. Its unit is nanoseconds, although the help text states another unit.
func violation(reason string, from field) Row {
	return Row{
		To: metrics.GPUClockEventSeconds, Set: driverTime(reason), From: from,
		Quality: metrics.Derived, Why: "the driver's older counter, which does not distinguish software from hardware",
	}
}

func ecc(severity, lifetime, name string) Row {
	return Row{
		To: metrics.GPUECCErrors, From: named(dev+"ECC_"+name+"_TOTAL", plain),
		Set: []metrics.Label{
			{Name: metrics.LabelSeverity, Value: severity},
			{Name: metrics.LabelLocation, Value: "all"},
			{Name: metrics.LabelLifetime, Value: lifetime},
		},
	}
}

func remapBanks(left string) Row {
	name := strings.ToUpper(left)
	return Row{
		To: metrics.GPURowRemapBanks, Set: set(metrics.LabelAvailability, left),
		From: renamed(dev+"BANKS_REMAP_ROWS_AVAIL_"+name, dev+"BANK_REMAP_AVAIL_"+name, plain),
	}
}

func pipe(label, name string) Row {
	return Row{
		To: metrics.GPUPipeActive, Set: set(metrics.LabelPipe, label), Absent: noProfiling,
		From: renamed(profiling+"PIPE_"+name+"_ACTIVE", profiling+name+"_UTIL_RATIO", plain),
	}
}

func margin(limit string, at field) Row {
	return Row{
		To: metrics.GPUTemperatureMargin, Set: set(metrics.LabelLimit, limit), From: at,
		With: []field{renamed(dev+"GPU_TEMP", dev+"GPU_TEMP_CELSIUS", plain)}, Fold: less,
		Quality: metrics.Derived, Why: "the limit less the temperature",
	}
}

func nvlinkErrors(kind, name string) Row {
	return Row{
		To: metrics.GPUNVLinkErrors, Set: set(metrics.LabelType, kind), From: named(name, plain),
		Quality: metrics.Derived, Why: "all links together, so without a link",
	}
}

// clockEventNames names the bits of DCGM_FI_DEV_CLOCK_THROTTLE_REASONS, beginning with the lowest bit. It also has the
// names of these reasons in DCGM_EXP_CLOCK_EVENTS_COUNT.
var clockEventNames = []struct{ reason, counted string }{
	{"gpu_idle", "gpu_idle"},
	{"applications_clocks_setting", "clocks_setting"},
	{"sw_power_cap", "power_cap"},
	{"hw_slowdown", "hw_slowdown"},
	{"sync_boost", "sync_boost"},
	{"sw_thermal_slowdown", "sw_thermal"},
	{"hw_thermal_slowdown", "hw_thermal"},
	{"hw_power_brake_slowdown", "hw_power_brake"},
	{"display_clock_setting", "display_clocks"},
	{"board_limit", ""},
	{"reliability", ""},
}

// clockEventBits returns whether each reason of recent GPUs applies. Other reasons are included only while they apply.
func clockEventBits(v float64) map[string]float64 {
	const common = 9
	mask, parts := uint64(max(v, 0)), map[string]float64{}
	for i, n := range clockEventNames[:common] {
		parts[n.reason] = float64(mask >> i & 1)
	}
	for rest := mask >> common << common; rest != 0; rest &= rest - 1 {
		name := fmt.Sprintf("unknown_0x%x", rest&-rest)
		if i := bits.TrailingZeros64(rest); i < len(clockEventNames) {
			name = clockEventNames[i].reason
		}
		parts[name] = 1
	}
	return parts
}

func clockEventName(counted string) string {
	for _, n := range clockEventNames {
		if n.counted == counted {
			return n.reason
		}
	}
	return "unknown_" + counted
}

// fabricSummary reads DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY. The value 0 means not applicable, and 1 means healthy.
func fabricSummary(v []float64) (float64, bool) { return metrics.Bool(v[0] > 1), v[0] > 0 }

// recoveryAction names a recovery action.
func recoveryAction(v float64) map[string]float64 {
	return map[string]float64{metrics.RecoveryAction(int(v)): 1}
}

// missing turns a map from reasons to families into a map from families to reasons.
func missing(why map[string][]*metrics.Family) map[*metrics.Family]string {
	m := map[*metrics.Family]string{}
	for reason, families := range why {
		for _, f := range families {
			m[f] = reason
		}
	}
	return m
}
