package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Hardware that shows warning signs before it fails. None of it pages: nobody suffers yet.
var (
	GPUCorrectedECC = &Alert{
		Name:   "LLMGPUCorrectedECC",
		Branch: Hardware,
		Expr: above(promql.Sum(gpuLabels, promql.Rate(promql.Vector(metrics.GPUECCErrors,
			promql.Eq(metrics.LabelSeverity, "corrected"), promql.Eq(metrics.LabelLifetime, "volatile")), 10*minute)), 1),
		Severity:    slo.Ticket,
		For:         10 * minute,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPURowRemapFailure, GPUMemoryUnrepairable, GPUSRAMThreshold, GPUUncorrectableECC, GPULost),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPU {{ $labels.gpu_uuid }} corrects {{ $value | humanize }} memory errors a second",
		Description: "A healthy GPU corrects a few in several weeks. At thousands a second the driver answers slowly or not at all, and an error that cannot be corrected is near. That the rate falls without load proves nothing: drain at leisure, run field diagnostics, replace the board.",
		Split:       []Evidence{modelsOnIt},
		Dashboard:   GPUDashboard,
	}
	GPULinkRecovers = &Alert{
		Name:   "LLMGPULinkRecovers",
		Branch: Hardware,
		Expr: above(promql.Sum(append([]string{metrics.LabelLink}, gpuLabels...), promql.Increase(promql.Vector(metrics.GPUNVLinkErrors,
			promql.Either(metrics.LabelType, "recovery|link_recovery_succeeded|link_recovery_failed")), day)), 2.5),
		Severity:    slo.Ticket,
		Scope:       []string{metrics.LabelGPUUUID, metrics.LabelLink},
		DependsOn:   underGPU(GPULinkDegraded, GPUCriticalXID, GPULost),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "NVLink {{ $labels.link }} of GPU {{ $labels.gpu_uuid }} recovered {{ $value | humanize }} times within a day",
		Description: "Healthy links never need to recover. One that does so several times a day fails within days and takes all models of its NVLink domain down with it: keep models with tensor parallelism off this GPU, and have cable, bridge or board looked at.",
		Split: []Evidence{modelsOnIt, {"Recoveries within a day of its other links", promql.CountBy([]string{metrics.LabelLink},
			above(promql.Increase(promql.Vector(metrics.GPUNVLinkErrors, append(same(metrics.LabelGPUUUID),
				promql.Either(metrics.LabelType, "recovery|link_recovery_succeeded|link_recovery_failed"))...), day), 0)), LabelledBy("", metrics.LabelLink)}},
		Dashboard: GPUDashboard,
	}
	GPULinkWears = &Alert{
		Name:     "LLMGPULinkWears",
		Branch:   Hardware,
		Expr:     wears(),
		Severity: slo.Ticket,
		Scope:    []string{metrics.LabelGPUUUID, metrics.LabelLink},
		DependsOn: append(underGPU(GPULinkDegraded, GPUCriticalXID, GPULost),
			Quiet{GPULinkRecovers, []string{metrics.LabelCluster, metrics.LabelGPUUUID, metrics.LabelLink}}),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "NVLink {{ $labels.link }} of GPU {{ $labels.gpu_uuid }} has {{ $value | humanize }} errors an hour, three times as many as in the days before",
		Description: "The link resends what arrives damaged, and nobody suffers yet. Healthy links have no errors, or as few as ever; one whose errors grow from day to day fails within days: keep models with tensor parallelism off this GPU, and have cable, bridge or board looked at.",
		Split: []Evidence{modelsOnIt,
			{"Errors within a day of its other links", promql.Sum([]string{metrics.LabelLink}, above(aDay(
				promql.Vector(metrics.RecordedLinkErrors, same(metrics.LabelGPUUUID)...)), 0)), LabelledBy(Number, metrics.LabelLink)}},
		Dashboard: GPUDashboard,
	}
	GPURepairPending = &Alert{
		Name:   "LLMGPURepairPending",
		Branch: Hardware,
		Expr: promql.Equal(promql.Max(append([]string{metrics.LabelType}, gpuLabels...),
			promql.Vector(metrics.GPURepairPending)), promql.Num(1)),
		Severity:    slo.Ticket,
		For:         5 * minute,
		Scope:       []string{metrics.LabelGPUUUID, metrics.LabelType},
		DependsOn:   underGPU(GPURowRemapFailure, GPUMemoryUnrepairable, GPUSRAMThreshold, GPULost),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPU {{ $labels.gpu_uuid }} waits for a reset to repair a {{ $labels.type }}",
		Description: "The driver has put a faulty memory channel or TPC on the list of what the next reset repairs. Drain the node and reset the GPU at the next window.",
		Split:       []Evidence{modelsOnIt},
		Dashboard:   GPUDashboard,
	}
	GPUPersistenceOff = &Alert{
		Name:   "LLMGPUPersistenceOff",
		Branch: Hardware,
		Expr: promql.And(promql.Equal(promql.Max(gpuLabels, promql.Vector(metrics.GPUPersistenceMode)), promql.Num(0)),
			above(promql.Max(gpuLabels, promql.Over("resets", promql.Vector(metrics.GPUEnergy), day)), 1)),
		Severity:    slo.Ticket,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPULost),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPU {{ $labels.gpu_uuid }} on {{ $labels.instance }} was reinitialised several times within a day: persistence mode is off",
		Description: "Without a client the driver releases the GPU and loses its error counters, power limit and clock settings. The next engine waits for seconds until the GPU is initialised again. Switch persistence mode on for the node.",
		Split:       []Evidence{modelsOnIt},
		Dashboard:   GPUDashboard,
	}
	GPUFabricUnhealthy = &Alert{
		Name:   "LLMGPUFabricUnhealthy",
		Branch: Hardware,
		Expr: promql.Or(
			promql.Equal(promql.Max(gpuLabels, promql.Or(promql.Vector(metrics.GPUFabricHealth),
				promql.Vector(metrics.GPUFabricState, promql.Ne(metrics.LabelState, "completed")))), promql.Num(1)),
			managerGone()),
		Severity:    slo.Ticket,
		For:         10 * minute,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPULost, GPULinkDegraded),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "{{ with $labels.gpu_uuid }}The NVSwitch fabric of GPU {{ . }}{{ else }}The fabric manager of the GPUs{{ end }} on {{ $labels.instance }} {{ if $labels.gpu_uuid }}is unhealthy{{ else }}does not run{{ end }}",
		Description: "The GPU is not registered with the fabric, a check of the fabric fails, or nothing manages it, while temperature, power and XIDs look normal. An engine over several GPUs that starts now fails or hangs. If all GPUs of a node have it at once, suspect the fabric manager.",
		Split: []Evidence{modelsOnIt,
			{"Checks that fail", promql.Equal(promql.Max([]string{metrics.LabelCheck}, promql.Vector(metrics.GPUFabricHealth, same(metrics.LabelGPUUUID)...)), promql.Num(1)), LabelledBy("", metrics.LabelCheck)},
			{"Registration", promql.CountBy([]string{metrics.LabelState}, promql.Vector(metrics.GPUFabricState, same(metrics.LabelGPUUUID)...)), LabelledBy("", metrics.LabelState)}},
		Dashboard: GPUDashboard,
	}
	GPUSwitchFailed = &Alert{
		Name:        "LLMGPUSwitchFailed",
		Branch:      Hardware,
		Expr:        fatalSXIDs(),
		Severity:    slo.Ticket,
		Scope:       []string{metrics.LabelInstance, metrics.LabelPCIBusID},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "NVSwitch {{ $labels.pci_bus_id }} on {{ $labels.instance }} reported the fatal error {{ $labels.sxid }}",
		Description: "The kernel log has an SXid that the driver calls fatal. Engines over several GPUs of the node die or hang, and those that start now fail, until the GPUs and switches are reset together. Engines over one GPU go on.",
		Split: []Evidence{
			{"XIDs of the node's GPUs within the hour", promql.Sum([]string{metrics.LabelGPU, metrics.LabelXID}, above(promql.Increase(promql.Vector(metrics.GPUXIDErrors, same(metrics.LabelCluster, metrics.LabelInstance)...), hour), 0)),
				LabelledBy(Number, metrics.LabelGPU, metrics.LabelXID)},
		},
		Dashboard: GPUDashboard,
	}
	GPUTicketXID = &Alert{
		Name:        "LLMGPUTicketXID",
		Branch:      Hardware,
		Expr:        ticketXIDs(),
		Severity:    slo.Ticket,
		Scope:       []string{metrics.LabelGPUUUID, metrics.LabelXID},
		DependsOn:   underGPU(GPULost, GPUCriticalXID, GPURowRemapFailure, GPUMemoryUnrepairable, GPUSRAMThreshold),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "XID {{ $labels.xid }} on GPU {{ $labels.gpu_uuid }} needs somebody to act, not at once",
		Description: "The driver reported an error that the catalogue answers with an inspection, a replacement or an update, or one that the catalogue does not list.",
		Split: []Evidence{
			modelsOnIt,
			{"Meaning", promql.CountBy([]string{metrics.LabelMeaning, metrics.LabelAction}, promql.Vector(metrics.GPUXIDInfo, same(metrics.LabelXID)...)), LabelledBy("", metrics.LabelMeaning, metrics.LabelAction)},
		},
		Dashboard: GPUDashboard,
	}
	GPURecoveryAsked = &Alert{
		Name:        "LLMGPURecoveryAsked",
		Branch:      Hardware,
		Expr:        above(promql.Max(gpuLabels, promql.Vector(metrics.GPURecoveryAction)), 0),
		Severity:    slo.Ticket,
		For:         5 * minute,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPULost, GPUCriticalXID, GPURowRemapFailure, GPUMemoryUnrepairable, GPUSRAMThreshold, GPURowRemapPending, GPURepairPending),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "The driver asks for a recovery of GPU {{ $labels.gpu_uuid }} on {{ $labels.instance }}",
		Description: "The driver says what brings the GPU back: a reset of the GPU, its bus or the node, or a drain first. Until then, work on the GPU may fail.",
		Split: []Evidence{modelsOnIt, {"It asks for", promql.CountBy([]string{metrics.LabelAction},
			promql.Vector(metrics.GPURecoveryActionInfo, same(metrics.LabelGPUUUID)...)), LabelledBy("", metrics.LabelAction)}},
		Dashboard: GPUDashboard,
	}
)

// wearGroups returns the groups of these warnings. Those that look back over days read what is recorded once an hour:
// NVLinks are many, and a week of raw errors is millions of samples per node.
func wearGroups() []Group {
	errors := promql.Vector(metrics.GPUNVLinkErrors, promql.Either(metrics.LabelType, "replay|crc|receive|local_integrity|effective"))
	return []Group{
		{Name: "llm-nvlink-hours", Interval: hour, Records: []Record{{Name: metrics.RecordedLinkErrors,
			Expr: promql.Sum(append([]string{metrics.LabelLink}, gpuLabels...), promql.Increase(errors, hour))}}},
		{Name: "llm-cause-hardware-wear", Interval: Interval, Alerts: []*Alert{
			GPUCorrectedECC, GPULinkRecovers, GPULinkWears, GPURepairPending, GPUPersistenceOff, GPUFabricUnhealthy, GPUSwitchFailed, GPURecoveryAsked, GPUTicketXID}},
	}
}

// wears returns each NVLink with three times the errors of its six days before, averaged over all recorded hours:
// either a jump, or days that each add half. Days include nights, and a week its weekend. Fifty errors are the least
// that counts, two days the least to compare with. Nothing here depends on how often the errors are recorded.
func wears() promql.Expr {
	errors := promql.Vector(metrics.RecordedLinkErrors)
	days := promql.Offset(errors, day)
	return both(
		promql.Gt(promql.Over("avg_over_time", errors, day), times(3, promql.Over("avg_over_time", days, 6*day))),
		promql.Ge(aDay(errors), promql.Num(50)),
		promql.Over("last_over_time", promql.Offset(errors, 3*day), 2*hour))
}

// aDay returns the errors of a day, of which each recorded value counts those of an hour.
func aDay(errors promql.Expr) promql.Expr {
	return times(24, promql.Over("avg_over_time", errors, day))
}

// fatalSXIDs returns how many seconds ago each NVSwitch reported a fatal error within the last day. The time of an error
// outlasts the exporter, and its counter begins with it.
func fatalSXIDs() promql.Expr {
	last := promql.Max([]string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelPCIBusID, metrics.LabelSXID},
		promql.Vector(metrics.GPUSXIDLastTimestamp, promql.Eq(metrics.LabelSeverity, "fatal")))
	return below(promql.Sub(promql.Call("time"), last), day.Seconds())
}

// ticketXIDs returns the XIDs of the last hours that neither page nor are the application's own affair, those that the
// catalogue does not list among them: their counters begin with the first event, which no increase shows.
func ticketXIDs() promql.Expr {
	of, window := append([]string{metrics.LabelXID}, gpuLabels...), 6*hour
	counted := promql.Vector(metrics.GPUXIDErrors)
	return promql.Unless(
		above(promql.Or(promql.Unless(promql.Sum(of, counted), promql.Sum(of, promql.Offset(counted, window))), promql.Sum(of, promql.Increase(counted, window))), 0),
		promql.Vector(metrics.GPUXIDInfo, promql.Ne(metrics.LabelSeverity, string(metrics.XIDTicket))), promql.On(metrics.LabelXID))
}

// managerGone returns each node whose fabric manager does not run, though NVSwitches need one or it ran within the week.
func managerGone() promql.Expr {
	node := []string{metrics.LabelCluster, metrics.LabelInstance}
	up := promql.Vector(metrics.GPUFabricManagerUp)
	needed := promql.Or(above(promql.Max(node, promql.Vector(metrics.GPUSwitches)), 0), above(promql.Max(node, promql.Over("max_over_time", up, 7*day)), 0))
	return promql.And(promql.Equal(promql.Max(node, up), promql.Num(0)), needed)
}
