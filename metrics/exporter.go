package metrics

// These are the exporter's reports about itself, besides the standard process, Go and build-info metrics.
var (
	CollectorDuration = Exporter.gauge(Max, "llm_exporter_collector_duration_seconds",
		"Duration of the last run of a collector.", with(LabelCollector))
	CollectorSuccess = Exporter.gauge(Never, "llm_exporter_collector_success",
		"Whether the last run of a collector worked (1).", with(LabelCollector))
	ConfigReloadSuccess = Exporter.gauge(Never, "llm_exporter_config_last_reload_successful",
		"Whether the last attempt to load the configuration worked (1). When 0, the previous configuration is in use.")
	ConfigReloadTime = Exporter.gauge(Never, "llm_exporter_config_last_reload_success_timestamp_seconds",
		"Time of the last successful configuration load, unix time.")
	ConfiguredTarget = Exporter.info("llm_exporter_configured_target_info",
		"A metrics endpoint that the configuration names, whether or not it answers, always 1. Endpoints without this "+
			"series were found by discovery. If an endpoint disappears while its exporter runs, this series shows whether it was "+
			"removed from the configuration or lost by discovery.",
		with(LabelNamespace, LabelPod, LabelServer)).experimental()
	GPUHourPrice = Exporter.gauge(Max, "llm_gpu_hour_price",
		"Price of a GPU hour in the configuration (gpu_hour_price), in the currency of the configuration. name is the product's name in "+
			"llm_gpu_info, or * for all others. Absent without a price.",
		with(LabelGPUName)).experimental()
	PodResourcesUp = Exporter.gauge(Never, "llm_exporter_pod_resources_up",
		"Whether the kubelet's last answer about the devices of pods could be used (1). When 0, reason names the cause. Absent outside "+
			"Kubernetes.", with(LabelReason))
	PodResourcesTime = Exporter.gauge(Never, "llm_exporter_pod_resources_last_success_timestamp_seconds",
		"Time of the kubelet's last answer that could be used, unix time. llm_gpu_allocation_info shows the state at that time.")
	PodResourcesUnknown = Exporter.gauge(Sum, "llm_exporter_pod_resources_unknown_devices",
		"Devices that are allocated to pods and match no GPU of this node: other hardware, or a GPU whose name the exporter cannot read.",
		with(LabelResource))
	UnreadableProcesses = Exporter.gauge(Sum, "llm_exporter_unreadable_processes",
		"Processes in the trees of GPU processes whose open files the exporter may not read, so it finds no engine by their sockets. The "+
			"exporter lacks CAP_SYS_PTRACE, or CAP_DAC_READ_SEARCH for processes of other users. Absent while nothing runs on a GPU.")
	DiscoveryUp = Exporter.gauge(Never, "llm_exporter_discovery_up",
		"Whether the source that lists engines answers (1). When 0, engines found before are kept, and reason is "+
			"forbidden, unreachable or error; the log has details.", with(LabelSource, LabelReason))
	DiscoveryPlaces = Exporter.gauge(Sum, "llm_exporter_discovery_places",
		"Addresses where an engine may be, by state: read, silent (nothing answers), no_engine, "+
			"same_engine (the exporter reads the engine at another address), or left_alone.",
		with(LabelSource, LabelState))
	PodDeletedOnPurpose = Exporter.gauge(Never, "llm_exporter_pod_deleted_on_purpose",
		"Whether a pod of this node that may have run an engine, and that is gone or terminating, was deleted on purpose (1): it was ready, "+
			"and a person or its controller deleted it, for example to scale down, or to replace or remove it. 0 for a pod that failed, was "+
			"evicted or preempted, lost its node, or was not ready; if a successor on this node is not ready within twenty minutes; and if a pod "+
			"of the same name is ready again. Kept for an hour. The value comes from the API server's deletionTimestamp, conditions and "+
			"container statuses. Absent for pods whose controller also replaces healthy pods, such as a LeaderWorkerSet's.",
		with(LabelNamespace, LabelPod)).experimental()
)
