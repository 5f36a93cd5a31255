package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Causes in the GPU. A slow GPU never pages: the objective says whether anybody suffers. Only a GPU that must be
// taken out of service does.
var (
	// GPUFailed is about a GPU that must leave service, for the first reason that holds.
	GPUFailed = &Alert{
		Name:     "LLMGPUFailed",
		Branch:   Hardware,
		Expr:     failed(),
		Severity: slo.Page,
		Scope:    []string{metrics.LabelGPUUUID, metrics.LabelReason},
		Explains: []*Alert{FastBurn, SlowBurn},
		Summary: theGPU + atNode + ` {{ if eq $labels.reason "lost" }}does not answer` +
			`{{ else if eq $labels.reason "no_spare_row" }}has no spare memory row left for a fault` +
			`{{ else if eq $labels.reason "memory_unrepairable" }}has a memory fault that cannot be repaired` +
			`{{ else if eq $labels.reason "sram_threshold" }}has more uncorrectable SRAM errors than the vendor accepts` +
			`{{ else }}reported {{ with $labels.xid }}XID {{ . }}{{ else }}an XID{{ end }}{{ end }}`,
		Description: `{{ if eq $labels.reason "lost" }}It fell off the bus, or a driver call for it hangs. Cordon the node, then try a reset, a reboot and a power cycle, in this order.` +
			`{{ else if eq $labels.reason "xid" }}No application can cause this fault, and no restart of the engine clears it. Cordon the node and move the model.` +
			`{{ else }}Further errors will hit live data. Cordon the node, move the model, open a return with the vendor.{{ end }}`,
		Split: []Evidence{
			modelsOnIt,
			xidMeans,
			asksFor,
		},
		Dashboard: GPUDashboard,
	}
	// GPUNeedsService is about a GPU that somebody has to repair or set up, not at once.
	GPUNeedsService = &Alert{
		Name:      "LLMGPUNeedsService",
		Branch:    Hardware,
		Expr:      needsService(),
		Severity:  slo.Ticket,
		For:       5 * minute,
		Scope:     []string{metrics.LabelGPUUUID, metrics.LabelReason},
		DependsOn: underGPU(GPUFailed),
		Explains:  []*Alert{FastBurn, SlowBurn},
		Summary: theGPU + atNode + ` {{ if eq $labels.reason "uncorrectable_errors" }}had a memory error that cannot be corrected` +
			`{{ else if eq $labels.reason "corrected_errors" }}corrects {{ $value | humanize }} memory errors a second` +
			`{{ else if eq $labels.reason "repair" }}waits for a reset to repair its memory or a TPC` +
			`{{ else if eq $labels.reason "recovery" }}needs the recovery that its driver asks for` +
			`{{ else if eq $labels.reason "persistence_off" }}was initialised again several times within a day: persistence mode is off` +
			`{{ else }}reported {{ with $labels.xid }}XID {{ . }}{{ else }}an XID{{ end }}, which needs somebody, not at once{{ end }}`,
		Description: `{{ if eq $labels.reason "uncorrectable_errors" }}The process that used the memory was killed. Drain at leisure and reset. If it happens again within days, replace the board.` +
			`{{ else if eq $labels.reason "corrected_errors" }}A healthy GPU corrects a few in weeks. At thousands a second the driver hardly answers. Drain at leisure, run field diagnostics, replace the board.` +
			`{{ else if eq $labels.reason "persistence_off" }}Without a client the driver releases the GPU and forgets its power limit and clocks. Switch persistence mode on for the node.` +
			`{{ else if eq $labels.reason "xid" }}The catalogue answers this error with an inspection, a replacement or an update, or does not list it.` +
			`{{ else }}Drain the node and reset the GPU at the next window. Until then, work on it may fail.{{ end }}`,
		Split:     []Evidence{modelsOnIt, xidMeans, asksFor},
		Dashboard: GPUDashboard,
	}
	// GPULinkFault is about what connects a GPU: NVLinks, PCIe, and the switches and the manager of their fabric.
	GPULinkFault = &Alert{
		Name:      "LLMGPULinkFault",
		Branch:    Hardware,
		Expr:      linkFault(),
		Severity:  slo.Ticket,
		For:       10 * minute,
		Scope:     []string{metrics.LabelReason},
		DependsOn: underGPU(GPUFailed),
		Explains:  []*Alert{FastBurn, SlowBurn},
		Summary: `{{ if eq $labels.reason "degraded" }}NVLink or PCIe of ` + theGPU + atNode + ` is degraded` +
			`{{ else if eq $labels.reason "recovers" }}NVLink{{ with $labels.link }} {{ . }}{{ end }} of ` + theGPU + ` recovered {{ $value | humanize }} times within a day` +
			`{{ else if eq $labels.reason "wears" }}NVLink{{ with $labels.link }} {{ . }}{{ end }} of ` + theGPU + ` has {{ $value | humanize }} errors an hour, three times as many as in the days before` +
			`{{ else if eq $labels.reason "switch" }}NVSwitch{{ with $labels.pci_bus_id }} {{ . }}{{ end }}` + atNode + ` reported {{ with $labels.sxid }}the fatal error {{ . }}{{ else }}a fatal error{{ end }}` +
			`{{ else if $labels.gpu_uuid }}The NVSwitch fabric of ` + theGPU + atNode + ` is unhealthy` +
			`{{ else }}The fabric manager of the GPUs` + atNode + ` does not run{{ end }}`,
		Description: `{{ if eq $labels.reason "degraded" }}A link is down, replays errors, or is narrower or slower than it can be. With tensor parallelism every token waits for it.` +
			`{{ else if eq $labels.reason "switch" }}Engines over several GPUs of the node die or hang until GPUs and switches are reset together. Engines over one GPU go on.` +
			`{{ else if eq $labels.reason "fabric" }}An engine over several GPUs that starts now fails or hangs, while temperature, power and XIDs look normal. Look at the fabric manager's log.` +
			`{{ else }}A healthy link never recovers and has few errors. This one fails within days: keep tensor parallelism off this GPU, and have cable, bridge and board checked.{{ end }}`,
		Split: []Evidence{
			modelsOnIt,
			{"NVLinks down", promql.Equal(promql.Max([]string{metrics.LabelLink}, promql.Vector(metrics.GPUNVLinkUp, same(metrics.LabelGPUUUID)...)), promql.Num(0)), LabelledBy("", metrics.LabelLink)},
		},
		Dashboard: GPUDashboard,
	}
	// GPUSlowed is about a GPU whose clocks are lowered, or that is busy and does nothing.
	GPUSlowed = &Alert{
		Name:      "LLMGPUSlowed",
		Branch:    Hardware,
		Expr:      slowed(),
		Severity:  slo.Ticket,
		For:       5 * minute,
		Keep:      5 * minute,
		Scope:     []string{metrics.LabelGPUUUID, metrics.LabelReason},
		DependsOn: append(underGPU(GPUFailed), Quiet{EngineStalled, onNode}),
		Explains:  []*Alert{FastBurn, SlowBurn},
		Summary: theGPU + atNode + ` {{ if eq $labels.reason "held_back" }}is busy at {{ $value | humanizePercentage }} of its clock or power limit` +
			`{{ else }}is slowed down {{ $value | humanizePercentage }} of the time{{ with $labels.reason }}: {{ . }}{{ end }}{{ end }}`,
		Description: `{{ if eq $labels.reason "held_back" }}It has been busy for a quarter of an hour at idle clocks or idle power: a power cap or a clock lock holds it back, or its kernels compute nothing.` +
			`{{ else if eq $labels.reason "hw_power_brake_slowdown" }}A power supply or the rack asked it to slow down, usually with all GPUs of the chassis. Call facilities, not the model team.` +
			`{{ else }}If it is heat, look at fans, airflow, inlet temperature and neighbouring GPUs.{{ end }}`,
		Split: []Evidence{modelsOnIt,
			{"Degrees left", promql.Min([]string{metrics.LabelLimit}, promql.Vector(metrics.GPUTemperatureMargin, same(metrics.LabelGPUUUID)...)), LabelledBy(Number, metrics.LabelLimit)},
		},
		Dashboard: GPUDashboard,
	}
	// GPUUnread is about GPUs that the machine has and nobody can read.
	GPUUnread = &Alert{
		Name:      "LLMGPUUnread",
		Branch:    Hardware,
		Expr:      unreadGPUs(),
		Severity:  slo.Ticket,
		For:       5 * minute,
		Scope:     []string{metrics.LabelInstance, metrics.LabelReason},
		DependsOn: []Quiet{{GPUFailed, onNode}, {ExporterFleetDown, []string{metrics.LabelCluster}}},
		Explains:  []*Alert{FastBurn, SlowBurn},
		Summary: `{{ if eq $labels.reason "missing" }}GPU{{ with $labels.pci_bus_id }} at {{ . }}{{ end }}` + atNode + ` is on the bus but not in the driver` +
			`{{ else }}GPUs{{ with $labels.instance }} of {{ . }}{{ end }} cannot be read: no NVIDIA driver, or no page in its place{{ end }}`,
		Description: `{{ if eq $labels.reason "missing" }}NVML no longer counts a GPU that the machine has. If a model ran on it, another alert pages; this one names the slot.` +
			`{{ else }}The driver is not loaded, was upgraded under a running process, or is not mounted into the exporter; or the page read in its place cannot be used.{{ end }}`,
		Split: []Evidence{{"Reason", promql.CountBy([]string{metrics.LabelReason}, promql.Equal(
			promql.Or(promql.Vector(metrics.GPUNVMLUp, same(metrics.LabelInstance)...), promql.Vector(metrics.GPUSourceUp, same(metrics.LabelInstance)...)), promql.Num(0))), LabelledBy("", metrics.LabelReason)}},
		Dashboard: GPUDashboard,
	}
	// ModelOnFailedGPU gets its expression from hardwareAlerts too. It fires only while one of the paging alerts that
	// it reads does: those are about a GPU; this one names the model for which they replace a burn.
	ModelOnFailedGPU = &Alert{
		Name:        "LLMModelOnFailedGPU",
		Branch:      Hardware,
		Severity:    slo.Info,
		Scope:       []string{metrics.LabelModel, metrics.LabelGPUUUID},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Replaces:    true,
		Summary:     aModel + " runs, or ran within the hour, on " + theGPU + ", which failed",
		Description: "The failure of the GPU has paged already. That page covers the model's burn alerts, which stay quiet meanwhile.",
		Dashboard:   GPUDashboard,
	}
)

// onNode lists the labels of a node.
var onNode = []string{metrics.LabelCluster, metrics.LabelInstance}

func hardwareAlerts() []*Alert {
	muted := *ModelOnFailedGPU
	muted.Expr = andWholeModels()
	return []*Alert{GPUFailed, &muted, GPUNeedsService, GPULinkFault, GPUSlowed, GPUUnread}
}

// Evidence that several of these alerts show.
var (
	xidMeans = Evidence{"Meaning of the XID", promql.CountBy([]string{metrics.LabelMeaning, metrics.LabelAction}, promql.Vector(metrics.GPUXIDInfo, same(metrics.LabelXID)...)), LabelledBy("", metrics.LabelMeaning, metrics.LabelAction)}
	asksFor  = Evidence{"The driver asks for", promql.CountBy([]string{metrics.LabelAction}, promql.Vector(metrics.GPURecoveryActionInfo, same(metrics.LabelGPUUUID)...)), LabelledBy("", metrics.LabelAction)}
)

// reason says why a GPU is in an alert's expression.
func reason(why string, e promql.Expr) promql.Expr { return labelled(e, metrics.LabelReason, why) }

// firstOf returns of each GPU the first reason that holds.
func firstOf(reasons ...promql.Expr) promql.Expr {
	all := reasons[0]
	for _, e := range reasons[1:] {
		all = promql.OrOn(all, e, promql.On(onGPULabels()...))
	}
	return all
}

// failed returns each GPU that must leave service. It fails for as long as a model on it is down since: the model's own page
// stays quiet for this one.
func failed() promql.Expr {
	const alert = "LLMGPUFailed"
	return firstOf(
		reason("lost", promql.Equal(promql.Max(gpuLabels, promql.Over("max_over_time", promql.Vector(metrics.GPUUp), 3*minute)), promql.Num(0))),
		reason("no_spare_row", state(metrics.GPURowRemapFailure)),
		reason("memory_unrepairable", state(metrics.GPUMemoryUnrepairable)),
		reason("sram_threshold", state(metrics.GPUSRAMThreshold)),
		reason("xid", criticalXIDs(30*minute)),
		promql.And(promql.Max(append([]string{metrics.LabelReason}, xidLabels...), firing(alert)),
			promql.And(firing("LLMModelOnFailedGPU"), firing(ModelDown.Name), promql.On(modelLabels...)), promql.On(onGPULabels()...)))
}

// needsService returns each GPU that has to be reset, repaired or set up, by reason.
func needsService() promql.Expr {
	return promql.Or(
		firstOf(
			reason("uncorrectable_errors", uncorrectable(gpuLabels)),
			reason("repair", promql.Or(state(metrics.GPURowRemapPending), state(metrics.GPURetiredPagesPending), state(metrics.GPURepairPending))),
			reason("recovery", above(promql.Max(gpuLabels, promql.Vector(metrics.GPURecoveryAction)), 0)),
			reason("corrected_errors", above(promql.Sum(gpuLabels, promql.Rate(promql.Vector(metrics.GPUECCErrors,
				promql.Eq(metrics.LabelSeverity, "corrected"), promql.Eq(metrics.LabelLifetime, "volatile")), 10*minute)), 1))),
		reason("xid", ticketXIDs()),
		reason("persistence_off", promql.And(promql.Equal(promql.Max(gpuLabels, promql.Vector(metrics.GPUPersistenceMode)), promql.Num(0)),
			above(promql.Max(gpuLabels, promql.Over("resets", promql.Vector(metrics.GPUEnergy), day)), 1))))
}

// recoveries matches the errors of an NVLink that made it recover.
var recoveries = promql.Either(metrics.LabelType, "recovery|link_recovery_succeeded|link_recovery_failed")

// linkFaults record each GPU with a link or a fabric that is broken or wears, and each broken switch, by reason.
func linkFaults() (all []Record) {
	for _, f := range []struct {
		reason string
		expr   promql.Expr
	}{
		{"degraded", linkDegraded()},
		{"fabric", promql.Or(
			promql.Equal(promql.Max(gpuLabels, promql.Or(promql.Vector(metrics.GPUFabricHealth),
				promql.Vector(metrics.GPUFabricState, promql.Ne(metrics.LabelState, "completed")))), promql.Num(1)),
			managerGone())},
		{"recovers", above(promql.Sum(append([]string{metrics.LabelLink}, gpuLabels...), promql.Increase(promql.Vector(metrics.GPUNVLinkErrors, recoveries), day)), 2.5)},
		{"wears", wears()},
		{"switch", fatalSXIDs()},
	} {
		all = append(all, Record{metrics.RecordedLinkFault, f.expr, map[string]string{metrics.LabelReason: f.reason}})
	}
	return all
}

// linkFault returns the first of the reasons on a GPU, and each broken switch.
func linkFault() promql.Expr {
	is := func(reason string) promql.Expr {
		return promql.Vector(metrics.RecordedLinkFault, promql.Eq(metrics.LabelReason, reason))
	}
	return promql.Or(firstOf(is("degraded"), is("fabric"), is("recovers"), is("wears")), is("switch"))
}

// slowed returns each GPU that is slower than it could be, by the reason that the driver gives, or none.
func slowed() promql.Expr {
	return firstOf(
		promql.Or(throttled("hw_slowdown|hw_thermal_slowdown|sw_thermal_slowdown", 0.1), throttled("hw_power_brake_slowdown", 0.01)),
		reason("held_back", heldBackGPU()))
}

// unreadGPUs returns each GPU on the bus that NVML does not count, and each node whose GPUs nobody can read.
func unreadGPUs() promql.Expr {
	return promql.Or(
		reason("missing", promql.Equal(promql.Max([]string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelPCIBusID}, promql.Vector(metrics.GPUMissing)), promql.Num(1))),
		reason("driver", promql.Or(promql.And(
			promql.Equal(promql.Max(onNode, promql.Vector(metrics.GPUNVMLUp, promql.NotRe(metrics.LabelReason, "detached|built_without_cgo"))), promql.Num(0)),
			above(promql.Max(onNode, promql.Vector(metrics.GPUExpected)), 0)),
			// Where NVML is read too, it tells whether GPUs are missing.
			promql.Unless(promql.Equal(promql.Max(onNode, promql.Vector(metrics.GPUSourceUp)), promql.Num(0)),
				promql.Max(onNode, promql.Vector(metrics.GPUNVMLUp))))))
}

// gpuLabels identify a GPU and locate it.
var gpuLabels = []string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelGPUUUID, metrics.LabelGPU}

// state returns each GPU whose 0/1 state is 1.
func state(f *metrics.Family) promql.Expr {
	return promql.Equal(promql.Max(gpuLabels, promql.Vector(f)), promql.Num(1))
}

// uncorrectable returns the errors of each GPU's memory within the hour that ECC could not correct.
func uncorrectable(by []string) promql.Expr {
	return above(promql.Sum(by, promql.Increase(promql.Vector(metrics.GPUECCErrors,
		promql.Eq(metrics.LabelSeverity, "uncorrected"), promql.Eq(metrics.LabelLifetime, "volatile")), hour)), 0)
}

// throttled returns the share of time for which a GPU's clocks were lowered for these reasons, where it exceeds
// atLeast.
func throttled(reasons string, atLeast float64) promql.Expr {
	return above(promql.Max(append([]string{metrics.LabelReason}, gpuLabels...),
		promql.Rate(promql.Vector(metrics.GPUClockEventSeconds, promql.Either(metrics.LabelReason, reasons)), 5*minute)), atLeast)
}

// heldBackGPU returns the share of its clock or power limit that a busy GPU used at most, where it is below a third of
// the clock or a fifth of the limit: idle GPUs use a sixth of each.
func heldBackGPU() promql.Expr {
	most := func(f *metrics.Family, label, value string) promql.Expr {
		return promql.Max(gpuLabels, promql.Over("max_over_time", promql.Vector(f, promql.Eq(label, value)), 15*minute))
	}
	share := promql.Or(
		below(promql.Div(most(metrics.GPUClock, metrics.LabelDomain, "sm"), most(metrics.GPUClockMax, metrics.LabelDomain, "sm")), 1./3),
		below(promql.Div(most(metrics.GPUPower, metrics.LabelScope, "gpu"), most(metrics.GPUPowerLimit, metrics.LabelKind, "enforced")), 0.2))
	return promql.And(share, busy(15*minute), promql.On(onGPULabels()...))
}

// xidLabels identify a GPU's XIDs of one code.
var xidLabels = append([]string{metrics.LabelXID}, gpuLabels...)

// criticalXIDs returns the XIDs that take a GPU out of service. An XID that the catalogue rates a page, but the
// kernel log calls nonfatal, has the severity of a ticket.
func criticalXIDs(window time.Duration) promql.Expr {
	return promql.And(
		above(promql.Sum(xidLabels, promql.Increase(promql.Vector(metrics.GPUXIDErrors, promql.Ne(metrics.LabelSeverity, string(metrics.XIDTicket))), window)), 0),
		promql.Vector(metrics.GPUXIDInfo, promql.Eq(metrics.LabelSeverity, "page")), promql.On(metrics.LabelXID))
}

// linkDegraded returns each GPU with an NVLink that is lost or reports errors, or with fewer PCIe lanes or a lower PCIe
// generation than possible while it works. Idle links save power legitimately, even between two requests, and forward
// error correction repairs symbols.
func linkDegraded() promql.Expr {
	less := func(f *metrics.Family) promql.Expr {
		most := func(state string) promql.Expr {
			return promql.Max(gpuLabels, promql.Over("max_over_time", promql.Vector(f, promql.Eq(metrics.LabelState, state)), 5*minute))
		}
		return promql.Lt(most("current"), most("max"))
	}
	return promql.Or(
		lostLinks(),
		above(promql.Sum(gpuLabels, promql.Rate(promql.Vector(metrics.GPUNVLinkErrors, promql.Ne(metrics.LabelType, "symbol")), 5*minute)), 0.1),
		promql.And(promql.Or(less(metrics.GPUPCIeLinkWidth), less(metrics.GPUPCIeLinkGeneration)),
			above(promql.Max(gpuLabels, promql.Over("avg_over_time", promql.Vector(metrics.GPUUtilization), 5*minute)), 0.5)))
}

// lostLinks returns the number of a GPU's NVLinks that are down but were up within a day, or the number that are up
// where others are down and another GPU of the node has more. A link without a bridge is always down and no fault.
func lostLinks() promql.Expr {
	node := []string{metrics.LabelCluster, metrics.LabelInstance}
	links := promql.Vector(metrics.GPUNVLinkUp)
	is := func(up float64, ago time.Duration) promql.Expr {
		return promql.Equal(promql.Max(append([]string{metrics.LabelLink}, gpuLabels...), promql.Offset(links, ago)), promql.Num(up))
	}
	fell := promql.And(is(0, 0), promql.Or(is(1, hour), is(1, 6*hour), is(1, day)))
	up := promql.Sum(gpuLabels, links)
	fewer := promql.Lt(above(up, 0), promql.Max(node, up), promql.On(node...).ManyToOne())
	return promql.Or(promql.CountBy(gpuLabels, fell),
		promql.And(fewer, promql.Equal(promql.Min(gpuLabels, links), promql.Num(0))))
}

// servedBy joins GPU series with the models on the GPU, and keeps the labels of e in more.
func servedBy(e promql.Expr, more ...string) promql.Expr {
	one := promql.TopK(1, onGPULabels(), e)
	return promql.Mul(servedOn(modelLabels), one, promql.On(onGPULabels()...).ManyToOne(append([]string{metrics.LabelGPU, metrics.LabelInstance}, more...)...))
}

// servedOn returns the models that run on a GPU, or did within the hour: so a model whose engine died with its GPU
// still has its GPU. by lists labels of the model or of its replica.
func servedOn(by []string) promql.Expr {
	return promql.Max(onGPU(by), promql.Over("last_over_time", promql.Vector(metrics.EngineGPUInfo), hour))
}

// firing returns the alerts of these names that fire.
func firing(names string, m ...*promql.Matcher) promql.Expr {
	return promql.Vector(metrics.Alerts, append(m, promql.Either("alertname", names), promql.Eq("alertstate", "firing"))...)
}

func onGPU(labels []string) []string { return append([]string{metrics.LabelGPUUUID}, labels...) }

// wholeModel lists the labels that an alert about a whole model shares with a ModelOnFailedGPU about that whole
// model: neither has an instance. Where a model has replicas elsewhere, each ModelOnFailedGPU has one.
var wholeModel = append([]string{metrics.LabelInstance}, modelLabels...)

// onFailedGPU returns the replicas on GPUs whose failure pages. Engines that died with their GPU no longer report where they ran; as long as their model suffers,
// they are remembered. A board that waits to be replaced still serves: it explains no burn for all those weeks.
func onFailedGPU(suffers promql.Expr) promql.Expr {
	perModel := promql.On(modelLabels...)
	remembered := promql.And(promql.Max(onGPU(replicaLabels), firing(ModelOnFailedGPU.Name, promql.Ne(metrics.LabelInstance, ""))),
		promql.OrOn(suffers, firing(ModelDown.Name), perModel), perModel)
	return promql.And(promql.Or(servedOn(replicaLabels), remembered),
		promql.Max(onGPULabels(), firing(GPUFailed.Name, promql.Re(metrics.LabelReason, "lost|xid"))), promql.On(onGPULabels()...))
}

// andWholeModels adds to replicas on failed GPUs, without replica labels, the models that have no other replica.
func andWholeModels() promql.Expr {
	perModel, replicas := promql.On(modelLabels...), promql.Vector(metrics.RecordedOnFailedGPU)
	elsewhere := promql.Unless(promql.Over("last_over_time", promql.Vector(metrics.EngineInfo), hour), replicas, promql.On(replicaLabels...))
	return promql.Or(replicas, promql.Unless(promql.Max(onGPU(modelLabels), replicas), elsewhere, perModel))
}

// modelsOnIt lists the models on the alert's GPU. They are text and not labels: one fault is one alert, whichever
// models run there and whenever they leave.
var modelsOnIt = Evidence{"Models on it within the hour",
	promql.CountBy([]string{metrics.LabelNamespace, metrics.LabelModel},
		promql.Over("last_over_time", promql.Vector(metrics.EngineGPUInfo, same(metrics.LabelGPUUUID)...), hour)),
	"{{ with .Labels.namespace }}{{ . }}/{{ end }}{{ .Labels.model_name }}"}

func underGPU(alerts ...*Alert) []Quiet {
	var q []Quiet
	for _, a := range alerts {
		q = append(q, Quiet{a, []string{metrics.LabelCluster, metrics.LabelGPUUUID}})
	}
	return q
}
