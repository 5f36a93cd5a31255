package metrics

// What the exporter says about itself, beside the standard process, Go and build-info metrics.
var (
	CollectorDuration = gauge(Max, "llm_exporter_collector_duration_seconds",
		"Time the last run of a collector took.", with(LabelCollector))
	CollectorSuccess = gauge(Never, "llm_exporter_collector_success",
		"Whether the last run of a collector worked (1).", with(LabelCollector))
	ConfigReloadSuccess = gauge(Never, "llm_exporter_config_last_reload_successful",
		"Whether the last attempt to load the configuration worked (1). When 0, the previous configuration is in use.")
	ConfigReloadTime = gauge(Never, "llm_exporter_config_last_reload_success_timestamp_seconds",
		"Time of the last successful configuration load, unix time.")
	DiscoveryUp = gauge(Never, "llm_exporter_discovery_up",
		"Whether the source of engines answers (1). When 0, those found before stay, and reason says what stands in the way: "+
			"forbidden, unreachable or error; the log says more.", with(LabelSource, LabelReason))
	DiscoveryPlaces = gauge(Sum, "llm_exporter_discovery_places",
		"Addresses where an engine may be, by what became of them: read, silent (nothing answers), no_engine, or left_alone.",
		with(LabelSource, LabelState))
)
