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
	GPUHardwareThrottle = &Alert{
		Name:        "LLMGPUHardwareThrottle",
		Branch:      Hardware,
		Expr:        throttled("hw_slowdown|hw_thermal_slowdown|sw_thermal_slowdown", 0.1),
		Severity:    slo.Ticket,
		For:         10 * minute,
		Keep:        5 * minute,
		Scope:       []string{metrics.LabelGPUUUID},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPU {{ $labels.gpu_uuid }} is slowed down: {{ $labels.reason }}",
		Description: "The clocks were lowered {{ $value | humanizePercentage }} of the time. If it is heat, look at fans, airflow, inlet temperature and neighbouring GPUs. Nobody suffers yet, or a burn alert would say so.",
		Split: []Evidence{modelsOnIt, {"Degrees left", promql.Min([]string{metrics.LabelLimit}, promql.Vector(metrics.GPUTemperatureMargin,
			same(metrics.LabelGPUUUID)...)), LabelledBy(Number, metrics.LabelLimit)}},
		Dashboard: GPUDashboard,
	}
	GPUPowerBrake = &Alert{
		Name:        "LLMGPUPowerBrake",
		Branch:      Hardware,
		Expr:        throttled("hw_power_brake_slowdown", 0.01),
		Severity:    slo.Ticket,
		For:         5 * minute,
		Keep:        5 * minute,
		Scope:       []string{metrics.LabelGPUUUID},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "Power brake on GPU {{ $labels.gpu_uuid }}",
		Description: "Something outside the GPU, a power supply or the rack, asked it to slow down. It usually hits all GPUs of a chassis: call facilities, not the model team.",
		Split:       []Evidence{modelsOnIt},
		Dashboard:   GPUDashboard,
	}
	GPUHeldBack = &Alert{
		Name:        "LLMGPUHeldBack",
		Branch:      Hardware,
		Expr:        heldBackGPU(),
		Severity:    slo.Ticket,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   append(underGPU(GPULost, GPUHardwareThrottle, GPUPowerBrake), Quiet{EngineStalled, onNode}),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPU {{ $labels.gpu_uuid }} is busy at {{ $value | humanizePercentage }} of its clock or power limit",
		Description: "For a quarter of an hour it was never idle, and still it kept idle clocks or drew idle power. Either a clamp from before a reboot, or from the firmware, holds it back, or its kernels compute nothing. Utilisation alone shows neither.",
		Split: []Evidence{modelsOnIt,
			{"Watts", promql.Max(nil, promql.Vector(metrics.GPUPower, append(same(metrics.LabelGPUUUID), promql.Eq(metrics.LabelScope, "gpu"))...)), Number},
			{"Clocks lowered for", promql.Equal(promql.Max([]string{metrics.LabelReason}, promql.Vector(metrics.GPUClockEventActive, same(metrics.LabelGPUUUID)...)), promql.Num(1)), LabelledBy("", metrics.LabelReason)}},
		Dashboard: GPUDashboard,
	}
	GPUUncorrectableECC = &Alert{
		Name:        "LLMGPUUncorrectableECC",
		Branch:      Hardware,
		Expr:        uncorrectable(gpuLabels),
		Severity:    slo.Ticket,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPURowRemapFailure, GPUMemoryUnrepairable, GPUSRAMThreshold, GPUCriticalXID, GPULost),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "Uncorrectable memory error on GPU {{ $labels.gpu_uuid }}",
		Description: "The process that used the memory page was killed, and the driver retires the page. Once is bad luck: drain at leisure and reset. Again within days: replace the board.",
		Split:       []Evidence{modelsOnIt},
		Dashboard:   GPUDashboard,
	}
	GPURowRemapFailure = &Alert{
		Name:        "LLMGPURowRemapFailure",
		Branch:      Hardware,
		Expr:        state(metrics.GPURowRemapFailure),
		Severity:    slo.Page,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPULost),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPU {{ $labels.gpu_uuid }} has no spare memory row left for a fault",
		Description: "Further errors will hit live data. Cordon the node, move the model, open a return with the vendor.",
		Split:       []Evidence{modelsOnIt},
		Dashboard:   GPUDashboard,
	}
	GPURowRemapPending = &Alert{
		Name:        "LLMGPURowRemapPending",
		Branch:      Hardware,
		Expr:        promql.Or(state(metrics.GPURowRemapPending), state(metrics.GPURetiredPagesPending)),
		Severity:    slo.Ticket,
		For:         5 * minute,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPURowRemapFailure, GPUMemoryUnrepairable, GPULost),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPU {{ $labels.gpu_uuid }} waits for a reset to repair its memory",
		Description: "The faulty row is already out of use; on GPUs before Ampere, which retire pages instead, the page is not. Drain the node and reset the GPU at the next window.",
		Split:       []Evidence{modelsOnIt},
		Dashboard:   GPUDashboard,
	}
	GPUMemoryUnrepairable = &Alert{
		Name:        "LLMGPUMemoryUnrepairable",
		Branch:      Hardware,
		Expr:        state(metrics.GPUMemoryUnrepairable),
		Severity:    slo.Page,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPURowRemapFailure, GPULost),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPU {{ $labels.gpu_uuid }} has a memory fault that cannot be repaired",
		Description: "Neither spare rows nor a repaired channel help: further errors will hit live data. Cordon the node, move the model, open a return with the vendor.",
		Split:       []Evidence{modelsOnIt},
		Dashboard:   GPUDashboard,
	}
	GPUSRAMThreshold = &Alert{
		Name:        "LLMGPUSRAMThreshold",
		Branch:      Hardware,
		Expr:        state(metrics.GPUSRAMThreshold),
		Severity:    slo.Page,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPULost),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPU {{ $labels.gpu_uuid }} has more uncorrectable SRAM errors than the vendor accepts",
		Description: "There is no remapping for SRAM. Cordon the node, move the model, open a return with the vendor.",
		Split:       []Evidence{modelsOnIt},
		Dashboard:   GPUDashboard,
	}
	// GPUCriticalXID gets its expression from hardwareAlerts.
	GPUCriticalXID = &Alert{
		Name:        "LLMGPUCriticalXID",
		Branch:      Hardware,
		Severity:    slo.Page,
		Keep:        15 * minute,
		Scope:       []string{metrics.LabelGPUUUID, metrics.LabelXID},
		DependsOn:   underGPU(GPULost, GPURowRemapFailure, GPUMemoryUnrepairable, GPUSRAMThreshold),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "XID {{ $labels.xid }} on GPU {{ $labels.gpu_uuid }}",
		Description: "The driver reports a fault that no application can cause and no restart of the engine can fix.",
		Split: []Evidence{
			modelsOnIt,
			{"Meaning", promql.CountBy([]string{metrics.LabelMeaning, metrics.LabelAction}, promql.Vector(metrics.GPUXIDInfo, same(metrics.LabelXID)...)), LabelledBy("", metrics.LabelMeaning, metrics.LabelAction)},
			{"The driver asks for", promql.CountBy([]string{metrics.LabelAction}, promql.Vector(metrics.GPURecoveryActionInfo, same(metrics.LabelGPUUUID)...)), LabelledBy("", metrics.LabelAction)},
		},
		Dashboard: GPUDashboard,
	}
	GPULost = &Alert{
		Name:        "LLMGPULost",
		Branch:      Hardware,
		Expr:        promql.Equal(promql.Max(gpuLabels, promql.Vector(metrics.GPUUp)), promql.Num(0)),
		Severity:    slo.Page,
		For:         2 * minute,
		Scope:       []string{metrics.LabelInstance, metrics.LabelGPUUUID},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPU {{ $labels.gpu_uuid }} on {{ $labels.instance }} does not answer",
		Description: "It fell off the bus or a driver call for it hangs. Whatever ran on it is dead or will be soon. Cordon the node; a reset, a reboot or a power cycle brings the GPU back, in this order.",
		Split: []Evidence{modelsOnIt, {"Reason", promql.CountBy([]string{metrics.LabelReason},
			promql.Vector(metrics.GPUUp, same(metrics.LabelGPUUUID)...)), LabelledBy("", metrics.LabelReason)}},
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
		Summary:     "{{ $labels.model_name }} runs, or ran within the hour, on GPU {{ $labels.gpu_uuid }}, which failed",
		Description: "The failure of the GPU has paged already. That page covers the model's burn alerts, which stay quiet meanwhile.",
		Dashboard:   GPUDashboard,
	}
	GPUMissing = &Alert{
		Name:   "LLMGPUMissing",
		Branch: Hardware,
		Expr: promql.Equal(promql.Max([]string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelPCIBusID},
			promql.Vector(metrics.GPUMissing)), promql.Num(1)),
		Severity:    slo.Ticket,
		For:         5 * minute,
		Scope:       []string{metrics.LabelInstance, metrics.LabelPCIBusID},
		DependsOn:   []Quiet{{GPULost, []string{metrics.LabelCluster, metrics.LabelInstance}}},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPU at {{ $labels.pci_bus_id }} on {{ $labels.instance }} is on the bus but not in the driver",
		Description: "NVML no longer counts a GPU that the machine has. If a model ran on it, another alert pages; this one says which slot to look at.",
		Dashboard:   GPUDashboard,
	}
	GPUDriverDown = &Alert{
		Name:   "LLMGPUDriverDown",
		Branch: Hardware,
		Expr: promql.Or(promql.And(
			promql.Equal(promql.Max(onNode, promql.Vector(metrics.GPUNVMLUp, promql.NotRe(metrics.LabelReason, "detached|built_without_cgo"))), promql.Num(0)),
			above(promql.Max(onNode, promql.Vector(metrics.GPUExpected)), 0)),
			// Where NVML is read too, it tells whether GPUs are missing.
			promql.Unless(promql.Equal(promql.Max(onNode, promql.Vector(metrics.GPUSourceUp)), promql.Num(0)),
				promql.Max(onNode, promql.Vector(metrics.GPUNVMLUp)))),
		Severity:    slo.Ticket,
		For:         5 * minute,
		Scope:       []string{metrics.LabelInstance},
		DependsOn:   []Quiet{{ExporterFleetDown, []string{metrics.LabelCluster}}},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPUs of {{ $labels.instance }} cannot be read: no NVIDIA driver, or no page in its place",
		Description: "The PCI bus has GPUs but the management library does not answer: driver not loaded, upgraded under a running process, or not mounted into the exporter. Or the page of another exporter, read in its place, cannot be used. GPU causes on this node stay unseen.",
		Split: []Evidence{{"Reason", promql.CountBy([]string{metrics.LabelReason},
			promql.Or(promql.Vector(metrics.GPUNVMLUp, same(metrics.LabelInstance)...), promql.Vector(metrics.GPUSourceUp, same(metrics.LabelInstance)...))), LabelledBy("", metrics.LabelReason)}},
		Dashboard: GPUDashboard,
	}
	GPULinkDegraded = &Alert{
		Name:        "LLMGPULinkDegraded",
		Branch:      Hardware,
		Expr:        linkDegraded(),
		Severity:    slo.Ticket,
		For:         5 * minute,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPULost),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "NVLink or PCIe of GPU {{ $labels.gpu_uuid }} is degraded",
		Description: "A link is down, replays errors, or runs narrower or slower than it can while the GPU is busy. Tensor parallelism waits for the slowest link: every token of the model pays.",
		Split: []Evidence{
			modelsOnIt,
			{"NVLinks down", promql.Equal(promql.Max([]string{metrics.LabelLink}, promql.Vector(metrics.GPUNVLinkUp, same(metrics.LabelGPUUUID)...)), promql.Num(0)), LabelledBy("", metrics.LabelLink)},
			{"PCIe lanes", promql.Max([]string{metrics.LabelState}, promql.Vector(metrics.GPUPCIeLinkWidth, same(metrics.LabelGPUUUID)...)), LabelledBy(Number, metrics.LabelState)},
			{"PCIe generation", promql.Max([]string{metrics.LabelState}, promql.Vector(metrics.GPUPCIeLinkGeneration, same(metrics.LabelGPUUUID)...)), LabelledBy(Number, metrics.LabelState)},
		},
		Dashboard: GPUDashboard,
	}
)

// onNode lists the labels of a node.
var onNode = []string{metrics.LabelCluster, metrics.LabelInstance}

func hardwareAlerts(opt Options) []*Alert {
	muted, critical := *ModelOnFailedGPU, *GPUCriticalXID
	muted.Expr = onFailedGPU(opt.source().burning(RawWindow))
	critical.Expr = promql.Or(criticalXIDs(15*minute), stillDown(GPUCriticalXID, xidLabels))
	return []*Alert{GPUHardwareThrottle, GPUPowerBrake, GPUHeldBack, GPUUncorrectableECC, GPURowRemapFailure,
		GPURowRemapPending, GPUMemoryUnrepairable, GPUSRAMThreshold, &critical, GPULost, &muted, GPUMissing, GPUDriverDown, GPULinkDegraded}
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

// stillDown returns the alerts about GPUs that have fired since a model on the GPU is down: what failed is not over, and
// the model's own page stays quiet for them.
func stillDown(a *Alert, by []string) promql.Expr {
	return promql.And(promql.Max(by, firing(a.Name)),
		promql.And(firing(ModelOnFailedGPU.Name), firing(ModelDown.Name), promql.On(modelLabels...)), promql.On(onGPULabels()...))
}

// firing returns the alerts of these names that fire.
func firing(names string, m ...*promql.Matcher) promql.Expr {
	return promql.Vector(metrics.Alerts, append(m, promql.Either("alertname", names), promql.Eq("alertstate", "firing"))...)
}

func onGPU(labels []string) []string { return append([]string{metrics.LabelGPUUUID}, labels...) }

// wholeModel lists the labels that an alert about a whole model shares with a ModelOnFailedGPU about that whole
// model: neither has an instance. Where a model has replicas elsewhere, each ModelOnFailedGPU has one.
var wholeModel = append([]string{metrics.LabelInstance}, modelLabels...)

// onFailedGPU returns the replicas on GPUs whose failure pages and, without replica labels, the models that have no
// other replica. Engines that died with their GPU no longer report where they ran; as long as their model suffers,
// they are remembered.
func onFailedGPU(suffers promql.Expr) promql.Expr {
	perModel := promql.On(modelLabels...)
	remembered := promql.And(promql.Max(onGPU(replicaLabels), firing(ModelOnFailedGPU.Name, promql.Ne(metrics.LabelInstance, ""))),
		promql.OrOn(suffers, firing(ModelDown.Name), perModel), perModel)
	replicas := promql.And(promql.Or(servedOn(replicaLabels), remembered),
		promql.Max(onGPULabels(), firing(GPULost.Name+"|"+GPUCriticalXID.Name)), promql.On(onGPULabels()...))
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
