package metrics

// These labels are on series of objectives.
const (
	LabelSLO       = "slo"       // name of the objective
	LabelThreshold = "threshold" // bucket bound that separates good from bad, in seconds
	LabelKind      = "kind"      // which of several related values
	LabelSignal    = "signal"    // quantity of an objective, one of the signals of package slo
	LabelBad       = "bad"       // description of a bad event of an objective, in words
	LabelRunbook   = "runbook"   // address of an objective's own runbook
	LabelDashboard = "dashboard" // address of an objective's own dashboard
	LabelOrigin    = "origin"    // default for a built-in objective, absent for an objective from the configuration
)

// OriginDefault marks an objective that applies without a configuration.
const OriginDefault = "default"

// These are objectives, and the events counted for them. threshold is the bound in use. If an objective changes, a new
// series starts, and no counter seems to reset.
var (
	SLOEvents = SLO.counter("llm_slo_events_total",
		"Events that count for an objective.", EngineLabels, with(LabelSLO, LabelThreshold))
	SLOBadEvents = SLO.counter("llm_slo_bad_events_total",
		"Events that missed an objective.", EngineLabels, with(LabelSLO, LabelThreshold))
	SLOObjective = SLO.gauge(Never, "llm_slo_objective_ratio",
		"Share of events that must be good, 0 to 1.", with(LabelSLO))
	SLOThreshold = SLO.gauge(Never, "llm_slo_threshold_seconds",
		"Threshold of an objective. kind is requested (the configured threshold) or effective (the bucket bound of the runtime that is used).",
		with(LabelSLO, LabelRuntime, LabelKind))
	SLOPeriod = SLO.gauge(Never, "llm_slo_period_seconds",
		"Period over which an objective must hold.", with(LabelSLO))
	SLOInfo = SLO.info("llm_slo_info",
		"An objective, always 1. signal is what it measures, bad describes a bad event, period is the objective's period as written in "+
			"recorded series, severity is the highest severity of its alerts, origin is default if nobody declared the objective. The series "+
			"also has the labels from the objective's configuration.",
		with(LabelSLO, LabelSignal, LabelBad, LabelPeriod, LabelSeverity, LabelRunbook, LabelDashboard, LabelOrigin))
	SLOMayBeAbsent = SLO.gauge(Never, "llm_slo_may_be_absent",
		"Whether the models of an objective may be without an engine (1), for example because they scale to zero. If so, their absence does "+
			"not page.", with(LabelSLO))
	SLOCounted = SLO.gauge(Never, "llm_slo_counted",
		"Whether events of this engine count for the objective that selects it (1). When 0, reason names what is missing. With the reasons "+
			"mean_per_request and queue_time, a substitute for the signal is counted.",
		EngineLabels, with(LabelSLO, LabelReason))
	SLOMaintenance = SLO.gauge(Max, "llm_slo_maintenance",
		"A declared interval of maintenance is under way for this engine and objective, always 1. Absent otherwise, and until the exporter "+
			"has read the engine.",
		EngineLabels, with(LabelSLO))
	EngineMaintenanceEnd = SLO.gauge(Max, "llm_engine_maintenance_end_timestamp_seconds",
		"End of the declared maintenance that now covers all objectives of this engine, unix time. Absent otherwise.",
		EngineLabels).experimental()
	ExporterMaintenanceEnd = SLO.gauge(Never, "llm_exporter_maintenance_end_timestamp_seconds",
		"Earliest end of a declared maintenance, unix time, while maintenance covers all engines that this exporter reads. Absent otherwise.").
		experimental()
)
