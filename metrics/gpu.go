package metrics

// These labels are on GPU series.
const (
	LabelGPUUUID         = "gpu_uuid"            // UUID of the GPU, the only identity that survives a reboot
	LabelGPU             = "gpu"                 // NVML index of the GPU
	LabelGPUInstance     = "gpu_instance_id"     // MIG GPU instance; empty for the whole GPU
	LabelComputeInstance = "compute_instance_id" // MIG compute instance
	LabelPCIBusID        = "pci_bus_id"          // domain:bus:device.function, as in sysfs
	LabelFeature         = "feature"             // a feature that a driver or a GPU model may lack
	LabelDomain          = "domain"              // clock domain: graphics, sm, memory or video
	LabelPipe            = "pipe"                // execution pipe of an SM
	LabelSeverity        = "severity"            // ECC: corrected or uncorrected; SXid: fatal or nonfatal; otherwise page, ticket, app or none
	LabelLocation        = "location"            // memory in which an ECC error was found
	LabelLifetime        = "lifetime"            // volatile (since driver load) or aggregate (life of the board)
	LabelCause           = "cause"               // corrected or uncorrected errors, for remapped rows and retired pages
	LabelAvailability    = "availability"        // spare rows left in a bank: max, high, partial, low or none
	LabelXID             = "xid"                 // number of an NVIDIA driver error
	LabelCall            = "call"                // function of NVML
	LabelSXID            = "sxid"                // number of an NVSwitch error
	LabelMeaning         = "meaning"             // short meaning of an XID, or of a condition
	LabelAction          = "action"              // remedy for an XID or a condition, or recovery action that the driver requests
	LabelSensor          = "sensor"              // gpu or memory
	LabelLimit           = "limit"               // a temperature limit: slowdown, shutdown, memory_max or gpu_max
	LabelScope           = "scope"               // power: gpu, memory, gpu_average, memory_average or module
	LabelLink            = "link"                // number of an NVLink or a C2C link
	LabelBin             = "bin"                 // bin of the FEC history, 0 to 15
	LabelFan             = "fan"                 // fan number
	LabelCheck           = "check"               // one of the fabric health checks
	LabelState           = "state"               // name of a state; or current, max or pending
	LabelType            = "type"                // kind of error
	// LabelContainerID is the container of a process, or empty. It is "unknown" if /proc does not show the process.
	LabelContainerID = "container_id"
	LabelCondition   = "condition" // condition of the verdict on a GPU, such as row_remap_failure or xid_79
	LabelVerdict     = "verdict"   // healthy, degraded, drain, reset or replace
	LabelAlert       = "alert"     // alert about a condition; empty if only a dashboard shows the condition
	LabelResource    = "resource"  // resource that a pod requested: an extended resource, or the driver of a resource claim

	LabelGPUName           = "name"               // product name of a GPU
	LabelMinorNumber       = "minor_number"       // N of /dev/nvidiaN
	LabelSerial            = "serial"             // serial number of the board
	LabelArchitecture      = "architecture"       // ampere, hopper, …
	LabelComputeCapability = "compute_capability" // CUDA compute capability
	LabelVBIOSVersion      = "vbios_version"      // firmware of the board
	LabelDriverVersion     = "driver_version"     // kernel driver
	LabelNVMLVersion       = "nvml_version"       // management library
	LabelCUDAVersion       = "cuda_version"       // CUDA level that the driver offers
	LabelMIGUUID           = "mig_uuid"           // UUID of a MIG device
	LabelProfile           = "profile"            // MIG profile such as 3g.40gb

	LabelGSPFirmwareVersion  = "gsp_firmware_version"  // firmware of the GPU's system processor
	LabelClusterUUID         = "cluster_uuid"          // UUID of the NVLink cluster
	LabelCliqueID            = "clique_id"             // clique: the GPUs of a cluster that reach each other over NVLink
	LabelChassisSerialNumber = "chassis_serial_number" // chassis that the GPU is in
	LabelSlotNumber          = "slot_number"           // slot in the chassis; slots of switches count
	LabelTrayIndex           = "tray_index"            // compute tray in the chassis; trays of switches do not count
	LabelHostID              = "host_id"               // node in the slot
	LabelPeerType            = "peer_type"             // kind of NVLink peer, as a number that NVIDIA does not explain
	LabelModuleID            = "module_id"             // index of the GPU in the node
)

// These are label sets of GPU series.
var (
	// GPULabels identify one GPU.
	GPULabels = []string{LabelGPUUUID, LabelGPU}
	// GPUInstanceLabels identify one GPU, or one of its MIG GPU instances. The whole GPU includes its instances. Sum over
	// gpu_instance_id="" or over all other values, but never over both.
	GPUInstanceLabels = []string{LabelGPUUUID, LabelGPU, LabelGPUInstance}
)

// These families describe the driver library, and how it is read.
var (
	GPUNVMLUp = GPU.gauge(Never, "llm_gpu_nvml_up",
		"Whether the NVIDIA management library is loaded and initialised (1). When 0, reason is the name of the NVML error, starting, "+
			"detached or built_without_cgo.",
		with(LabelReason))
	GPUSourceUp = GPU.gauge(Never, "llm_gpu_source_up",
		"Whether the metrics page of another exporter, read in place of NVML, can be used (1). source is the exporter, dcgm or amd, and empty "+
			"while unknown. When 0, reason is a reason of llm_engine_up, no_gpu_page or no_gpu_uuid.",
		with(LabelSource, LabelServer, LabelReason)).experimental()
	GPUMetricSourceInfo = GPU.info("llm_gpu_metric_source_info",
		"Where a metric comes from while GPUs are read from the metrics page of another exporter, always 1. quality is native, derived, "+
			"approximate or missing; reason explains why it is not native.",
		with(LabelMetric, LabelSource, LabelQuality, LabelReason)).experimental()
	GPUReadingsDropped = GPU.counter("llm_gpu_readings_dropped_total",
		"Readings of a metric that were dropped: implausible (no GPU can have this value) or blank (the value that a driver or DCGM writes "+
			"for an unknown number). Absent before the first of them.",
		GPULabels, with(LabelMetric, LabelReason)).experimental()
	GPUDriverInfo = GPU.info("llm_gpu_driver_info",
		"Versions of the NVIDIA driver, of NVML and of the CUDA level that the driver offers, always 1.",
		with(LabelDriverVersion, LabelNVMLVersion, LabelCUDAVersion))
	GPUExpected = GPU.gauge(Sum, "llm_gpu_expected_gpus",
		"NVIDIA GPUs that are on the PCI bus, or were since the exporter started, except those passed through to a virtual machine. The count "+
			"comes from sysfs and does not depend on NVML.")
	GPUVisible = GPU.gauge(Sum, "llm_gpu_visible_gpus",
		"GPUs that NVML counts, lost ones included (nvmlDeviceGetCount), or GPUs on another exporter's metrics page.")
	GPUSwitches = GPU.gauge(Sum, "llm_gpu_nvswitches",
		"NVSwitches of the node that the driver lists in procfs. The driver does not list NVSwitches of NVLink 5 and of racks.").experimental()
	GPUFabricManagerUp = GPU.gauge(Max, "llm_gpu_fabric_manager_up",
		"Whether the process of NVIDIA's fabric manager runs on the node (1). Absent if the exporter does not see the host's processes. 0 "+
			"is normal on a node without NVSwitches.").experimental()
	GPUMissing = GPU.gauge(Max, "llm_gpu_missing",
		"Whether a GPU that is or was on the PCI bus does not answer through NVML (1). Absent while NVML is down.",
		with(LabelPCIBusID))
	GPUUp = GPU.gauge(Never, "llm_gpu_up",
		"Whether the GPU reported its clocks, or at least its identity, in the last cycle (1). When 0, reason is the name of the NVML error, "+
			"stuck, or not_on_page when the GPU is gone from the metrics page of another exporter.",
		GPULabels, with(LabelReason))
	GPUCollectStuck = GPU.gauge(Max, "llm_gpu_collect_stuck",
		"Whether a driver call for this GPU has been running for longer than the deadline (1). The GPU's other series are absent.",
		GPULabels)
	GPUSnapshotAge = GPU.gauge(Max, "llm_gpu_snapshot_age_seconds",
		"Age of the last values of this GPU. Grows while the GPU is stuck; absent while it fails.", GPULabels)
	GPUCollectDuration = GPU.gauge(Max, "llm_gpu_collect_duration_seconds",
		"Time that the last finished cycle of this GPU spent reading.", GPULabels)
	GPUReadInterval = GPU.gauge(Max, "llm_gpu_read_interval_seconds",
		"Time from one reading of this GPU to the next. kind is fast, slow (for values that rarely change or take the driver long) or rare "+
			"(for values that hardly ever change). Values may be as old as this interval. The interval grows while readings take more of the "+
			"driver's time than --gpu.driver-budget.", GPULabels, with(LabelKind)).experimental()
	GPUDriverCalls = GPU.counter("llm_gpu_driver_calls_total",
		"Calls of the exporter into the NVIDIA driver, by function of NVML.", with(LabelCall)).experimental()
	GPUDriverSeconds = GPU.counter("llm_gpu_driver_call_seconds_total",
		"Time that the exporter spent in calls into the NVIDIA driver, for all GPUs together.", with(LabelCall)).experimental()
	GPUFeatureSupported = GPU.gauge(Never, "llm_gpu_feature_supported",
		"Whether driver, GPU and permissions offer a feature (1). When 0, its series are absent and reason is the name of the NVML error, "+
			"or counter_wraps: the driver's counter has 32 bits and may wrap unnoticed at the speed of the link.",
		GPULabels, with(LabelFeature, LabelReason))
)

// Identity and configuration.
var (
	GPUInfo = GPU.info("llm_gpu_info",
		"Identity of a GPU, always 1. The series remains while the GPU does not answer.",
		GPULabels, with(LabelGPUName, LabelPCIBusID, LabelMinorNumber, LabelSerial, LabelArchitecture, LabelComputeCapability, LabelVBIOSVersion))
	GPUPlatformInfo = GPU.info("llm_gpu_platform_info",
		"Position of a GPU in its rack, always 1 (nvmlDeviceGetPlatformInfo, Blackwell and newer). The series remains while the GPU does not "+
			"answer.",
		GPULabels, with(LabelChassisSerialNumber, LabelSlotNumber, LabelTrayIndex, LabelHostID, LabelPeerType, LabelModuleID)).experimental()
	GPUGSPFirmwareInfo = GPU.info("llm_gpu_gsp_firmware_info",
		"Firmware of the GPU's system processor (GSP), always 1 (nvmlDeviceGetGspFirmwareVersion).", GPULabels,
		with(LabelGSPFirmwareVersion)).experimental()
	GPUGSPFirmwareMode = GPU.gauge(Never, "llm_gpu_gsp_firmware_mode",
		"Whether the GPU's system processor runs its firmware (1); state is current, or default for the driver's setting for this GPU unless "+
			"configured (nvmlDeviceGetGspFirmwareMode).", GPULabels, with(LabelState)).experimental()
	GPUPersistenceMode = GPU.gauge(Never, "llm_gpu_persistence_mode",
		"Whether the driver keeps the GPU initialised without clients (1). When 0, reading the GPU may take seconds.", GPULabels)
	GPUVGPULicensed = GPU.gauge(Never, "llm_gpu_vgpu_licensed",
		"Whether a virtual GPU has a licence (1). Without a licence, the driver lowers the GPU's performance in steps, and finally disables "+
			"CUDA (nvmlDeviceGetGridLicensableFeatures). A physical GPU has no series.", GPULabels).experimental()
	GPUPerformanceState = GPU.gauge(Max, "llm_gpu_performance_state",
		"Performance state, 0 (P0, fastest) to 15.", GPULabels)
	GPUMIGMode = GPU.gauge(Never, "llm_gpu_mig_mode",
		"Whether MIG is on (1); state is current or pending (after the next reset).", GPULabels, with(LabelState))
	GPUMIGInfo = GPU.info("llm_gpu_mig_info",
		"A MIG device, always 1.", GPUInstanceLabels, with(LabelComputeInstance, LabelMIGUUID, LabelProfile))
)

// Clocks, and the reasons why they are low.
var (
	GPUClock = GPU.gauge(Max, "llm_gpu_clock_hertz",
		"Current clock of a domain.", GPULabels, with(LabelDomain))
	GPUClockMax = GPU.gauge(Max, "llm_gpu_clock_max_hertz",
		"Highest clock of a domain.", GPULabels, with(LabelDomain))
	GPUClockEventActive = GPU.gauge(Max, "llm_gpu_clock_event_active",
		"Whether the driver lowers the clocks for this reason now (1). The GPU has a series for each reason that it supports; bits that "+
			"NVML does not name are unknown_0x…. AMD's reasons are sw_power_cap, socket_thermal, vr_thermal, hbm_thermal and processor_hot.",
		GPULabels, with(LabelReason))
	GPUClockEventSeconds = GPU.counter("llm_gpu_clock_event_seconds_total",
		"Time during which the clocks were lowered for this reason. source is driver (counted by the driver since it was loaded) or sampled "+
			"(integrated by the exporter from one sample per cycle).",
		GPULabels, with(LabelReason, LabelSource))
)

// Memory: capacity, bandwidth and health.
var (
	GPUMemoryTotal = GPU.gauge(Sum, "llm_gpu_memory_total_bytes",
		"Device memory, reserved memory included.", GPUInstanceLabels)
	GPUMemoryUsed = GPU.gauge(Sum, "llm_gpu_memory_used_bytes",
		"Device memory allocated by clients. Engines reserve most of the memory at start, so a high value is no sign of pressure.",
		GPUInstanceLabels)
	GPUMemoryFree = GPU.gauge(Sum, "llm_gpu_memory_free_bytes",
		"Device memory not allocated.", GPUInstanceLabels)
	GPUMemoryReserved = GPU.gauge(Sum, "llm_gpu_memory_reserved_bytes",
		"Device memory that driver and firmware keep for themselves.", GPUInstanceLabels)
	GPUMemoryBandwidthUtilization = GPU.gauge(Max, "llm_gpu_memory_bandwidth_utilization_ratio",
		"Share of the theoretical device memory bandwidth in use, 0 to 1 (GPM, Hopper and newer).", GPUInstanceLabels)
	GPUMemoryBandwidthPeak = GPU.gauge(Sum, "llm_gpu_memory_bandwidth_peak_bytes_per_second",
		"Theoretical device memory bandwidth: 2 transfers per cycle of the highest memory clock times the bus width.", GPULabels)
	GPUMemoryBusy = GPU.gauge(Max, "llm_gpu_memory_busy_ratio",
		"Share of time in which device memory was read or written at all (NVML utilization.memory). Not bandwidth.", GPULabels)
	GPUCacheHit = GPU.gauge(Never, "llm_gpu_cache_hit_ratio",
		"Share of the accesses to a memory that the GPU's cache answered, 0 to 1; kind is dram (the GPU's own memory), host or peer (GPM).",
		GPUInstanceLabels, with(LabelKind)).experimental()
	GPUBAR1Total = GPU.gauge(Sum, "llm_gpu_bar1_total_bytes",
		"Size of the window through which CPU and PCIe devices reach device memory (nvmlDeviceGetBAR1MemoryInfo).", GPULabels).experimental()
	GPUBAR1Used = GPU.gauge(Sum, "llm_gpu_bar1_used_bytes",
		"Used part of the BAR1 window (nvmlDeviceGetBAR1MemoryInfo). Once the window is full, GPUDirect and peers cannot map more memory.",
		GPULabels).experimental()
	GPUECCMode = GPU.gauge(Never, "llm_gpu_ecc_mode",
		"Whether ECC is on (1); state is current or pending (after the next reset).", GPULabels, with(LabelState))
	GPUECCErrors = GPU.counter("llm_gpu_ecc_errors_total",
		"Memory errors found by ECC. location is the most precise that the GPU reports, or all if it reports only totals; locations never "+
			"overlap.",
		GPULabels, with(LabelSeverity, LabelLocation, LabelLifetime))
	GPUSRAMUncorrected = GPU.counter("llm_gpu_sram_uncorrected_errors_total",
		"Uncorrectable SRAM errors by the check that found them: type is parity or sec_ded (nvmlDeviceGetSramEccErrorStatus, needs root).",
		GPULabels,
		with(LabelType, LabelLifetime))
	GPUSRAMUnitUncorrected = GPU.counter("llm_gpu_sram_unit_uncorrected_errors_total",
		"Uncorrectable SRAM errors over the life of the board, by unit: location is l2, sm, pcie, microcontroller or other "+
			"(nvmlDeviceGetSramEccErrorStatus, needs root).", GPULabels, with(LabelLocation)).experimental()
	GPUSRAMThreshold = GPU.gauge(Max, "llm_gpu_sram_ecc_threshold_exceeded",
		"Whether uncorrectable SRAM errors exceed the replacement threshold (1).", GPULabels)
	GPURowRemapPending = GPU.gauge(Max, "llm_gpu_row_remap_pending",
		"Whether a memory row waits for a GPU reset to be remapped (1).", GPULabels)
	GPURowRemapFailure = GPU.gauge(Max, "llm_gpu_row_remap_failure",
		"Whether a memory row could not be remapped (1): the board has to be replaced.", GPULabels)
	GPURemappedRows = GPU.gauge(Sum, "llm_gpu_remapped_rows",
		"Memory rows remapped because of corrected or uncorrected errors.", GPULabels, with(LabelCause))
	GPURowRemapBanks = GPU.gauge(Sum, "llm_gpu_row_remap_banks",
		"Memory banks by the spare rows they have left: max, high, partial, low or none.", GPULabels, with(LabelAvailability))
	GPURetiredPages = GPU.gauge(Sum, "llm_gpu_retired_pages",
		"Memory pages retired because of corrected or uncorrected errors (GPUs before Ampere).", GPULabels, with(LabelCause))
	GPURetiredPagesPending = GPU.gauge(Max, "llm_gpu_retired_pages_pending",
		"Whether a memory page waits for a reboot to be retired (1).", GPULabels)
	GPURepairPending = GPU.gauge(Max, "llm_gpu_repair_pending",
		"Whether a repair waits for a GPU reset (1); type is channel or tpc.", GPULabels, with(LabelType)).experimental()
	GPUMemoryUnrepairable = GPU.gauge(Max, "llm_gpu_memory_unrepairable",
		"Whether the device memory has a fault that cannot be repaired (1).", GPULabels).experimental()
)

// Utilization of the GPU.
var (
	GPUUtilization = GPU.gauge(Max, "llm_gpu_utilization_ratio",
		"Share of time in which at least one kernel ran, however little of the GPU it used.", GPULabels)
	GPUGraphicsActive = GPU.gauge(Max, "llm_gpu_graphics_active_ratio",
		"Share of time in which any compute or graphics engine was active (GPM).", GPUInstanceLabels)
	GPUSMActive = GPU.gauge(Max, "llm_gpu_sm_active_ratio",
		"Share of SMs that were busy, averaged over time (GPM).", GPUInstanceLabels)
	GPUSMOccupancy = GPU.gauge(Max, "llm_gpu_sm_occupancy_ratio",
		"Resident warps, as a share of the warps that fit on the SMs (GPM).", GPUInstanceLabels)
	GPUTensorActive = GPU.gauge(Max, "llm_gpu_tensor_active_ratio",
		"Share of time in which the SMs did tensor operations of any kind (GPM).", GPUInstanceLabels)
	GPUPipeActive = GPU.gauge(Max, "llm_gpu_pipe_active_ratio",
		"Share of time in which the SMs used a pipe: integer, fp64, fp32, fp16, tensor_dfma, tensor_hmma, tensor_dmma or tensor_imma (GPM).",
		GPUInstanceLabels, with(LabelPipe))
)

// These families count the work of the SMs since the node booted, for ratios over any window. GPM counts this work if
// the driver is new enough.
var (
	GPUSMCycles = GPU.counter("llm_gpu_sm_cycles_total",
		"Cycles of the SMs, busy or not (GPM).", GPUInstanceLabels).experimental()
	GPUSMActiveCycles = GPU.counter("llm_gpu_sm_active_cycles_total",
		"Cycles in which the SMs were busy (GPM).", GPUInstanceLabels).experimental()
	GPUTensorActiveCycles = GPU.counter("llm_gpu_tensor_active_cycles_total",
		"Cycles in which the SMs did tensor operations of any kind (GPM).", GPUInstanceLabels).experimental()
	GPUPipeActiveCycles = GPU.counter("llm_gpu_pipe_active_cycles_total",
		"Cycles in which the SMs used a pipe: integer, fp64, fp32, fp16, tensor_dfma, tensor_hmma, tensor_dmma or tensor_imma (GPM).",
		GPUInstanceLabels,
		with(LabelPipe)).experimental()
)

// GPUMediaUtilization covers units outside the SMs. Engines for images and video use these units.
var GPUMediaUtilization = GPU.gauge(Max, "llm_gpu_media_utilization_ratio",
	"Share of the last sampling period in which a media unit was busy; kind is encoder, decoder, jpeg or ofa "+
		"(nvmlDeviceGetEncoderUtilization and similar functions).", GPULabels, with(LabelKind)).experimental()

// Temperature, power and fans.
var (
	GPUTemperature = GPU.gauge(Max, "llm_gpu_temperature_celsius",
		"Temperature of a sensor: gpu or memory.", GPULabels, with(LabelSensor))
	GPUTemperatureMargin = GPU.gauge(Never, "llm_gpu_temperature_margin_celsius",
		"Degrees left until a limit takes effect: slowdown, shutdown, memory_max or gpu_max. The value is negative beyond the limit.",
		GPULabels, with(LabelLimit))
	GPUPower = GPU.gauge(Sum, "llm_gpu_power_watts",
		"Power drawn. scope is gpu or memory (now), gpu_average or memory_average (over one second), or module (GPU with its CPU and "+
			"memory, now). Scopes overlap.", GPULabels, with(LabelScope))
	GPUPowerLimit = GPU.gauge(Sum, "llm_gpu_power_limit_watts",
		"Power limit. kind is enforced (in force now), requested, default, min or max.", GPULabels, with(LabelKind))
	GPUEnergy = GPU.counter("llm_gpu_energy_joules_total",
		"Energy used since the driver was loaded.", GPULabels)
	GPUFanSpeed = GPU.gauge(Max, "llm_gpu_fan_speed_ratio",
		"Intended speed of a fan as a share of its maximum.", GPULabels, with(LabelFan))
)

// Links.
var (
	GPUPCIeTransmit = GPU.counter("llm_gpu_pcie_transmit_bytes_total",
		"Bytes that the GPU sent over PCIe, integrated from GPM, or counted by the driver on links too slow to wrap its 32-bit counter "+
			"between two readings. Absent otherwise.", GPULabels)
	GPUPCIeReceive = GPU.counter("llm_gpu_pcie_receive_bytes_total",
		"Bytes that the GPU received over PCIe, measured like llm_gpu_pcie_transmit_bytes_total.", GPULabels)
	GPUPCIeReplays = GPU.counter("llm_gpu_pcie_replays_total",
		"PCIe packets that were resent.", GPULabels)
	GPUPCIeErrors = GPU.counter("llm_gpu_pcie_errors_total",
		"PCIe errors by type.", GPULabels, with(LabelType))
	GPUPCIeLinkGeneration = GPU.gauge(Never, "llm_gpu_pcie_link_generation",
		"PCIe generation; state is current or max. An idle link drops to a lower generation.", GPULabels, with(LabelState))
	GPUPCIeLinkWidth = GPU.gauge(Never, "llm_gpu_pcie_link_width",
		"PCIe lanes; state is current or max.", GPULabels, with(LabelState))
	GPUNVLinkTransmit = GPU.counter("llm_gpu_nvlink_transmit_bytes_total",
		"Payload bytes that the GPU sent over NVLink, all links together.", GPULabels)
	GPUNVLinkReceive = GPU.counter("llm_gpu_nvlink_receive_bytes_total",
		"Payload bytes that the GPU received over NVLink, all links together.", GPULabels)
	GPUNVLinkUp = GPU.gauge(Never, "llm_gpu_nvlink_up",
		"Whether an NVLink is active or asleep (1) or down (0). Links that the GPU does not have, or that lead nowhere, are absent.",
		GPULabels, with(LabelLink))
	GPUNVLinkErrors = GPU.counter("llm_gpu_nvlink_errors_total",
		"NVLink errors of a link by type.", GPULabels, with(LabelLink, LabelType))
	GPUNVLinkBitErrors = GPU.gauge(Max, "llm_gpu_nvlink_bit_error_ratio",
		"Errors per bit of an NVLink; type is raw (on the wire), effective (what forward error correction leaves) or symbol (NVLink 5).",
		GPULabels, with(LabelLink, LabelType)).experimental()
	GPUNVLinkFEC = GPU.counter("llm_gpu_nvlink_fec_history_total",
		"Symbol errors that forward error correction repaired, by bin 0 to 15 of the driver's FEC history, all links together (NVLink 5). "+
			"NVIDIA does not document the limits of the bins.", GPULabels, with(LabelBin)).experimental()
	GPUC2CMode = GPU.gauge(Never, "llm_gpu_c2c_mode",
		"Whether GPU and CPU are connected chip to chip (1) (nvmlDeviceGetC2cModeInfoV).", GPULabels).experimental()
	GPUC2CLinks = GPU.gauge(Sum, "llm_gpu_c2c_links",
		"Chip-to-chip links to the CPU that the GPU has.", GPULabels).experimental()
	GPUC2CLinkUp = GPU.gauge(Never, "llm_gpu_c2c_link_up",
		"Whether a chip-to-chip link is active (1).", GPULabels, with(LabelLink)).experimental()
	GPUC2CLinkBandwidth = GPU.gauge(Sum, "llm_gpu_c2c_link_max_bandwidth_bytes_per_second",
		"Bandwidth of an active chip-to-chip link.", GPULabels, with(LabelLink)).experimental()
	GPUC2CErrors = GPU.counter("llm_gpu_c2c_errors_total",
		"Errors of a chip-to-chip link; type is crc, replay or replay_back_to_back.", GPULabels, with(LabelLink, LabelType)).experimental()
	GPUFabricInfo = GPU.info("llm_gpu_fabric_info",
		"Multi-node NVLink cluster and clique of a GPU, once it is registered with the fabric, always 1 (nvmlDeviceGetGpuFabricInfoV).",
		GPULabels, with(LabelClusterUUID, LabelCliqueID)).experimental()
	GPUFabricState = GPU.gauge(Never, "llm_gpu_fabric_state",
		"Registration of the GPU with the NVSwitch fabric, always 1; state is not_started, in_progress or completed.", GPULabels,
		with(LabelState)).experimental()
	GPUFabricHealth = GPU.gauge(Never, "llm_gpu_fabric_unhealthy",
		"Whether a fabric health check that the GPU supports fails (1).", GPULabels, with(LabelCheck)).experimental()
)

// These are the errors that the driver reports, and their remedies.
var (
	GPURecoveryAction = GPU.gauge(Max, "llm_gpu_recovery_action",
		"Action that the driver requests to recover the GPU: 0 none, 1 gpu_reset, 2 node_reboot, 3 drain_p2p, 4 drain_and_reset, 5 "+
			"recover_imex_domain, 6 bus_reset, 7 system_reboot. The value does not change while the GPU does not answer.", GPULabels)
	GPURecoveryActionInfo = GPU.info("llm_gpu_recovery_action_info",
		"The name of the recovery action in force, always 1. The value does not change while the GPU does not answer.",
		GPULabels, with(LabelAction))
	GPUXIDErrors = GPU.counter("llm_gpu_xid_errors_total",
		"NVIDIA driver errors (XID), each counted once, under the source that reported it first: nvml or kmsg, or dcgm if its metrics page "+
			"reports XIDs. severity comes from the catalogue, but is ticket for an XID that the kernel log calls nonfatal, and empty for codes "+
			"that are not listed. Counters of codes with severity page or ticket exist from the start, at zero.",
		GPULabels, with(LabelPCIBusID, LabelGPUInstance, LabelXID, LabelSeverity, LabelSource))
	GPUXIDLastTimestamp = GPU.gauge(Max, "llm_gpu_xid_last_timestamp_seconds",
		"When an XID was last seen, unix time. The time may be before the exporter started, as far back as the kernel log reaches.", GPULabels,
		with(LabelPCIBusID, LabelXID))
	GPUXIDInfo = GPU.info("llm_gpu_xid_info",
		"The XID catalogue, always 1: what a code means, whether it pages, opens a ticket or is the application's own fault, and what to do.",
		with(LabelXID, LabelSeverity, LabelMeaning, LabelAction))
	GPUSXIDErrors = GPU.counter("llm_gpu_nvswitch_sxid_errors_total",
		"Errors of an NVSwitch (SXid) in the kernel log, by PCI address of the switch; severity is fatal or nonfatal, as the driver reports. "+
			"Absent before the first of them.",
		with(LabelPCIBusID, LabelSXID, LabelSeverity)).experimental()
	GPUSXIDLastTimestamp = GPU.gauge(Max, "llm_gpu_nvswitch_sxid_last_timestamp_seconds",
		"When an SXid was last seen, unix time. The time may be before the exporter started, as far back as the kernel log reaches.",
		with(LabelPCIBusID, LabelSXID, LabelSeverity)).experimental()
	GPUXIDSourceUp = GPU.gauge(Never, "llm_gpu_xid_source_up",
		"Whether a source of XIDs is being read (1): nvml, or kmsg, which also reports SXids. When 0, reason names the cause.",
		with(LabelSource, LabelReason))
)

// These families are about users of a GPU. They are only for joins and sums, because device series never have the labels of a pod.
var (
	GPUProcesses = GPU.gauge(Sum, "llm_gpu_processes",
		"Compute processes on the GPU that are visible from the exporter's pid namespace.", GPUInstanceLabels)
	GPUContainerMemory = Allocation.gauge(Sum, "llm_gpu_container_memory_bytes",
		"Device memory used by the processes of one container, or by all processes outside containers or, with container_id=\"unknown\", by "+
			"processes that /proc does not show. namespace and pod are empty outside Kubernetes.",
		GPUInstanceLabels, with(LabelNamespace, LabelPod, LabelContainerID)).experimental()
	GPUContainerSMUtilization = Allocation.gauge(Max, "llm_gpu_container_sm_utilization_ratio",
		"Share of the last sampling period in which kernels of the container's processes ran (nvmlDeviceGetProcessUtilization), which is "+
			"its part of a time-shared GPU. Labels as for llm_gpu_container_memory_bytes. Absent with MIG.",
		GPUInstanceLabels, with(LabelNamespace, LabelPod, LabelContainerID)).experimental()
	GPUContainerMemoryBusy = Allocation.gauge(Max, "llm_gpu_container_memory_busy_ratio",
		"Share of the last sampling period in which the container's processes read or wrote device memory at all "+
			"(nvmlDeviceGetProcessUtilization). Not bandwidth. Absent with MIG.",
		GPUInstanceLabels, with(LabelNamespace, LabelPod, LabelContainerID)).experimental()
	GPUAllocationInfo = Allocation.info("llm_gpu_allocation_info",
		"The kubelet gave a GPU, a part of it or a time slice of it to a container, always 1. resource is the extended resource, or the "+
			"driver of a resource claim; resource is empty if the allocation comes from another exporter's metrics page.",
		GPUInstanceLabels, with(LabelNamespace, LabelPod, LabelContainer, LabelResource))
	EngineGPUInfo = Target.info("llm_engine_gpu_info",
		"An engine runs on a GPU, always 1. source is config (named in the configuration), pod_resources (the kubelet gave the GPU to the "+
			"pod), process (found by the engine's processes and sockets) or page (another exporter's metrics page names the pod).",
		TargetLabels, with(LabelModel), GPUInstanceLabels, with(LabelSource))
	EngineGPUMemory = Target.gauge(Sum, "llm_engine_gpu_memory_bytes",
		"Device memory used by the processes of an engine.", TargetLabels, GPUInstanceLabels)
	EngineGPUOthers = Target.gauge(Max, "llm_engine_gpu_others_sm_utilization_ratio",
		"Share of the last sampling period in which kernels of other processes ran on the engine's GPU (nvmlDeviceGetProcessUtilization). "+
			"Meanwhile the engine waits. Absent with MIG, where it is unknown whose process is on the GPU, and while only other processes "+
			"compute.",
		TargetLabels, with(LabelModel), GPUInstanceLabels).experimental()
	EngineCPUWait = Target.counter("llm_engine_cpu_wait_seconds_total",
		"Time for which threads of an engine were ready to run and waited for a CPU, because other processes used it or a CPU limit "+
			"withheld it (/proc/PID/task/TID/schedstat). A rate of 1 means that one thread waits on average. Only for engines whose "+
			"processes the exporter sees on GPUs.", TargetLabels, with(LabelModel)).experimental().sinceRead()
)
