package rules

import (
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// The causes of these alerts are in the GPU. A slow GPU never pages, because the objectives show whether users suffer.
// Only a GPU that must be taken out of service pages.
var (
	// GPUFailed is about a GPU that must leave service.
	GPUFailed = &Alert{
		Name:        "LLMGPUFailed",
		Branch:      Hardware,
		Expr:        promql.Unless(failed(), promql.Vector(metrics.RecordedFreeGPU), promql.On(onGPULabels()...)),
		Severity:    slo.Page,
		Scope:       []string{metrics.LabelGPUUUID, metrics.LabelReason},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     theGPU + atNode + ` must leave service` + means,
		Description: `Requests on it are lost.` + remedy,
		Split:       []Evidence{modelsOnIt},
		Dashboard:   GPUDashboard,
	}
	// GPUNeedsService is about a GPU that needs a repair or a changed setting, but not at once.
	GPUNeedsService = &Alert{
		Name:   "LLMGPUNeedsService",
		Branch: Hardware,
		Expr: firstOf(judged(metrics.AnswerService), promql.And(judged(metrics.AnswerFailed), promql.Vector(metrics.RecordedFreeGPU),
			promql.On(onGPULabels()...)), persistenceOff()),
		Severity:  slo.Ticket,
		For:       5 * minute,
		Scope:     []string{metrics.LabelGPUUUID, metrics.LabelReason},
		DependsOn: underGPU(GPUFailed),
		Explains:  []*Alert{FastBurn, SlowBurn},
		Summary: theGPU + atNode +
			`{{ if eq $labels.reason "persistence_off" }} is initialised again and again: persistence mode is off` +
			`{{ else }} needs service` + means + `{{ end }}`,
		Description: `{{ if eq $labels.reason "persistence_off" }}While no program uses the GPU, the driver releases it and ` +
			`forgets its power limit and clocks. Switch persistence mode on for the node.` +
			`{{ else }}This is not urgent.` + remedy + `{{ end }}`,
		Split:     []Evidence{modelsOnIt},
		Dashboard: GPUDashboard,
	}
	// GPULinkFault is about the connections of a GPU: NVLinks, PCIe, and the fabric's switches and manager.
	GPULinkFault = &Alert{
		Name:      "LLMGPULinkFault",
		Branch:    Hardware,
		Expr:      linkFault(),
		Severity:  slo.Ticket,
		For:       10 * minute,
		Scope:     []string{metrics.LabelReason},
		DependsOn: underGPU(GPUFailed),
		Explains:  []*Alert{FastBurn, SlowBurn},
		Summary: `{{ if eq $labels.reason "recovers" }}NVLink{{ with $labels.link }} {{ . }}{{ end }} of ` + theGPU + atNode +
			` recovered {{ $value | humanize }} times within a day` +
			`{{ else if eq $labels.reason "wears" }}NVLink{{ with $labels.link }} {{ . }}{{ end }} of ` + theGPU + atNode +
			` has {{ $value | humanize }} errors per hour, three times the usual` +
			`{{ else }}{{ if $labels.gpu_uuid }}A link of ` + theGPU + `{{ else }}The fabric of the GPUs{{ end }}` + atNode + ` is at fault` +
			means + `{{ end }}`,
		Description: `{{ if match "^(recovers|wears)$" $labels.reason }}A healthy link has few errors. ` +
			`This one may fail within days: keep tensor parallelism off this GPU, and check cable, bridge and board.` +
			`{{ else }}It slows engines on several GPUs, and slows loading KV cache from host memory.` + remedy + `{{ end }}`,
		Split: []Evidence{
			modelsOnIt,
		},
		Dashboard: GPUDashboard,
	}
	// GPUSlowed is about a GPU that runs at lowered clocks, or that is busy but slow.
	GPUSlowed = &Alert{
		Name:        "LLMGPUSlowed",
		Branch:      Hardware,
		Expr:        judged(metrics.AnswerSlowed),
		Severity:    slo.Ticket,
		For:         5 * minute,
		Scope:       []string{metrics.LabelGPUUUID, metrics.LabelReason},
		DependsOn:   append(underGPU(GPUFailed), Quiet{EngineStalled, onNode}),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     theGPU + atNode + ` is slowed down` + means,
		Description: `Models on it answer more slowly.` + remedy,
		Split:       []Evidence{modelsOnIt},
		Dashboard:   GPUDashboard,
	}
	// GPUUnread is about GPUs that are in the machine but cannot be read.
	GPUUnread = &Alert{
		Name:      "LLMGPUUnread",
		Branch:    Hardware,
		Expr:      judged(metrics.AnswerUnread, metrics.LabelPCIBusID),
		Severity:  slo.Ticket,
		Scope:     []string{metrics.LabelInstance, metrics.LabelReason},
		DependsOn: []Quiet{{GPUFailed, onNode}, {ExporterFleetDown, []string{metrics.LabelCluster}}},
		Explains:  []*Alert{FastBurn, SlowBurn},
		Summary:   `{{ if $labels.pci_bus_id }}A GPU at {{ $labels.pci_bus_id }}{{ else }}The GPUs{{ end }}` + atNode + ` cannot be read` + means,
		Description: `{{ if $labels.pci_bus_id }}This GPU is known only by its PCI slot. If a model ran on this GPU, another alert pages.` +
			`{{ else }}The driver is not loaded, was upgraded while a process used it, or is not mounted into the exporter.{{ end }}` + remedy,
		Split: []Evidence{{"Reason", promql.CountBy([]string{metrics.LabelReason}, promql.Equal(
			promql.Or(promql.Vector(metrics.GPUNVMLUp, same(metrics.LabelInstance)...), promql.Vector(metrics.GPUSourceUp,
				same(metrics.LabelInstance)...)), promql.Num(0))), LabelledBy("", metrics.LabelReason)}},
		Dashboard: GPUDashboard,
	}
	// ModelOnFailedGPU gets its expression from hardwareAlerts. It mutes the burn alerts of a model on a failed GPU.
	// The page about the failure does not have the label of the model, so it cannot mute them itself.
	ModelOnFailedGPU = &Alert{
		Name:        "LLMModelOnFailedGPU",
		Branch:      Hardware,
		Severity:    slo.Info,
		Scope:       []string{metrics.LabelModel, metrics.LabelGPUUUID},
		Explains:    []*Alert{FastBurn, SlowBurn},
		Replaces:    true,
		Summary:     "The model runs, or ran in the last hour, on " + theGPU + ", which failed",
		Description: "The failure of the GPU has already paged. Until that page is resolved, the model's burn alerts are muted.",
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

// These templates print the meaning of a condition and the action, in the words of the verdict on the GPU.
const (
	means  = `{{ with $labels.meaning }}: {{ . }}{{ else }}{{ with $labels.reason }} ({{ . | reReplaceAll "_" " " }}){{ end }}{{ end }}`
	remedy = `{{ with $labels.action }} To do: {{ . }}.{{ end }}`
)

// told lists the labels in which an alert describes a condition.
var told = []string{metrics.LabelReason, metrics.LabelMeaning, metrics.LabelAction}

// judged returns for how many seconds each GPU or node has had a condition that belongs to the alert. Of several
// conditions, it returns the oldest, so that a fault remains a single alert.
func judged(alert string, more ...string) promql.Expr {
	since := promql.Call("label_replace", promql.Vector(metrics.GPUHealthCondition, promql.Eq(metrics.LabelAlert, alert)),
		promql.Str(metrics.LabelReason), promql.Str("$1"), promql.Str(metrics.LabelCondition), promql.Str("(.*)"))
	return promql.TopK(1, append([]string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelGPUUUID}, more...),
		promql.Sub(promql.Call("time"), promql.Max(slices.Concat(told, gpuLabels, more), since)))
}

// reason adds the label reason to the results of an expression.
func reason(why string, e promql.Expr) promql.Expr { return labelled(e, metrics.LabelReason, why) }

// firstOf returns the first reason that applies to each GPU.
func firstOf(reasons ...promql.Expr) promql.Expr {
	all := reasons[0]
	for _, e := range reasons[1:] {
		all = promql.OrOn(all, e, promql.On(onGPULabels()...))
	}
	return all
}

// failed returns each GPU that must leave service. A GPU whose alert fires also counts as failed while its model is
// down, because this alert mutes the page of the model.
func failed() promql.Expr {
	return firstOf(judged(metrics.AnswerFailed),
		promql.And(promql.Max(slices.Concat(told, gpuLabels), firing(metrics.AnswerFailed)),
			promql.And(firing("LLMModelOnFailedGPU"), firing(ModelDown.Name), promql.On(modelLabels...)), promql.On(onGPULabels()...)))
}

// freed returns each GPU that no engine uses any more: all engines that used the GPU within the hour have left the
// node. An engine that died has not left.
func freed() promql.Expr {
	used := promql.Over("last_over_time", promql.Vector(metrics.EngineGPUInfo), hour)
	left, onPage := promql.Vector(metrics.EngineLeft), promql.On(pageLabels...)
	return promql.Unless(promql.CountBy(onGPULabels(), promql.And(used, left, onPage)),
		promql.CountBy(onGPULabels(), promql.Unless(used, left, onPage)))
}

// persistenceOff returns each GPU that the driver released repeatedly within a day because persistence mode is off. The
// verdict on the GPU does not cover this, because a running exporter keeps the GPUs open.
func persistenceOff() promql.Expr {
	return reason("persistence_off", promql.And(promql.Equal(promql.Max(gpuLabels, promql.Vector(metrics.GPUPersistenceMode)), promql.Num(0)),
		above(promql.Max(gpuLabels, promql.Over("resets", promql.Vector(metrics.GPUEnergy), day)), 1)))
}

// recoveries matches the errors that made an NVLink recover.
var recoveries = promql.Either(metrics.LabelType, "recovery|link_recovery_succeeded|link_recovery_failed")

// linkFaults records each NVLink that recovers too often or wears out, by reason. The verdict on the GPU does not cover
// these faults, because it looks back only minutes.
func linkFaults() []Record {
	recovers := above(promql.Sum(append([]string{metrics.LabelLink}, gpuLabels...),
		promql.Increase(promql.Vector(metrics.GPUNVLinkErrors, recoveries), day)), 2.5)
	return []Record{
		{metrics.RecordedLinkFault, recovers, map[string]string{metrics.LabelReason: "recovers"}},
		{metrics.RecordedLinkFault, wears(), map[string]string{metrics.LabelReason: "wears"}},
	}
}

// linkFault returns the first fault of each GPU's links, or of the fabric that the GPUs of a node share.
func linkFault() promql.Expr {
	is := func(reason string) promql.Expr {
		return promql.Vector(metrics.RecordedLinkFault, promql.Eq(metrics.LabelReason, reason))
	}
	return firstOf(judged(metrics.AnswerLink), is("recovers"), is("wears"))
}

// gpuLabels identify a GPU and locate it.
var gpuLabels = []string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelGPUUUID, metrics.LabelGPU}

// uncorrectable returns the errors within the hour, in each GPU's memory, that ECC could not correct.
func uncorrectable(by []string) promql.Expr {
	return above(promql.Sum(by, promql.Increase(promql.Vector(metrics.GPUECCErrors,
		promql.Eq(metrics.LabelSeverity, "uncorrected"), promql.Eq(metrics.LabelLifetime, "volatile")), hour)), 0)
}

// slowed returns, by reason, the share of five minutes in which a GPU was slowed down without an operator's intention.
func slowed() promql.Expr {
	counted := promql.Rate(promql.Vector(metrics.GPUClockEventSeconds, promql.Either(metrics.LabelReason, HarmfulReasons)), pageWindow)
	return promql.Max(append([]string{metrics.LabelReason}, gpuLabels...), promql.Or(counted,
		reason("vgpu_unlicensed", promql.Sub(promql.Num(1), promql.Vector(metrics.GPUVGPULicensed))),
		clockFell(counted)))
}

// clockFell returns the share of five minutes in which a busy GPU ran below half of its highest clock within the hour.
// It has no result if a harmful reason is counted. Without counted reasons, a power limit or a setting can have lowered
// the clock, or dcgm-exporter is not configured to count reasons.
func clockFell(counted promql.Expr) promql.Expr {
	sm := promql.Vector(metrics.GPUClock, promql.Eq(metrics.LabelDomain, "sm"))
	works := above(promql.Max(onGPULabels(), promql.Vector(metrics.GPUUtilization)), 0.5) // an idle GPU also lowers its clock
	low := promql.And(promql.Lt(sm, times(0.5, promql.Over("max_over_time", sm, hour))), works, promql.On(onGPULabels()...))
	share := above(times(sampled.Seconds()/pageWindow.Seconds(), promql.Sampled("count_over_time", low, pageWindow, sampled)), 0.1)
	return reason("low_clock", promql.Unless(promql.Max(gpuLabels, share), above(counted, 0.05), promql.On(onGPULabels()...)))
}

// servedBy joins a value per GPU (e) with the models on the GPU. It keeps the labels of e that are in more.
func servedBy(e promql.Expr, more ...string) promql.Expr {
	one := promql.TopK(1, onGPULabels(), e)
	return promql.Mul(servedOn(modelLabels), one, promql.On(onGPULabels()...).
		ManyToOne(append([]string{metrics.LabelGPU, metrics.LabelInstance}, more...)...))
}

// servedOn returns each GPU with the models that run on it or ran there within the hour, because a model's engine may
// have died with the GPU. by lists the labels of the model or of its replica.
func servedOn(by []string) promql.Expr {
	return promql.Max(onGPU(by), promql.Over("last_over_time", promql.Vector(metrics.EngineGPUInfo), hour))
}

// firing returns the firing alerts with these names.
func firing(names string, m ...*promql.Matcher) promql.Expr {
	return promql.Vector(metrics.Alerts, append(m, promql.Either("alertname", names), promql.Eq("alertstate", "firing"))...)
}

func onGPU(labels []string) []string { return append([]string{metrics.LabelGPUUUID}, labels...) }

// wholeModel lists the labels in which an alert about a whole model must agree with ModelOnFailedGPU, to be muted. An
// alert about a whole model has no instance, and neither has ModelOnFailedGPU if the model has no replica on another
// GPU. Otherwise, ModelOnFailedGPU has an instance and mutes nothing here.
var wholeModel = append([]string{metrics.LabelInstance}, modelLabels...)

// onFailedGPU returns the replicas on GPUs whose failure pages. Engines that died with their GPU no longer report where
// they ran, so the firing alert is read to remember them while their model suffers. Failures with which a GPU goes on
// working are left out, because a board that waits for weeks to be replaced does not explain a burn.
func onFailedGPU(suffers promql.Expr) promql.Expr {
	perModel := promql.On(modelLabels...)
	remembered := promql.And(promql.Max(onGPU(replicaLabels), firing(ModelOnFailedGPU.Name, promql.Ne(metrics.LabelInstance, ""))),
		promql.OrOn(suffers, firing(ModelDown.Name), perModel), perModel)
	const gone = "lost|vanished|unresponsive|xid_.+"
	// This expression is evaluated as often as the alert.
	judged := promql.Vector(metrics.GPUHealthCondition, promql.Eq(metrics.LabelAlert, metrics.AnswerFailed),
		promql.Re(metrics.LabelCondition, gone))
	failed := promql.Or(promql.Max(onGPULabels(), judged), promql.Max(onGPULabels(),
		firing(GPUFailed.Name, promql.Re(metrics.LabelReason, gone))))
	return promql.And(promql.Or(servedOn(replicaLabels), remembered), failed, promql.On(onGPULabels()...))
}

// andWholeModels returns the replicas on failed GPUs and, without replica labels, the models that have no other
// replica.
func andWholeModels() promql.Expr {
	perModel, replicas := promql.On(modelLabels...), promql.Vector(metrics.RecordedOnFailedGPU)
	elsewhere := promql.Unless(promql.Over("last_over_time", promql.Vector(metrics.EngineInfo), hour), replicas, promql.On(replicaLabels...))
	return promql.Or(replicas, promql.Unless(promql.Max(onGPU(modelLabels), replicas), elsewhere, perModel))
}

// modelsOnIt lists the models on the alert's GPU. They are evidence and not labels, because labels would turn the same
// fault into another alert whenever a model starts or stops on the GPU.
var modelsOnIt = Evidence{
	"Models on it in the last hour",
	promql.CountBy([]string{metrics.LabelNamespace, metrics.LabelModel},
		promql.Over("last_over_time", promql.Vector(metrics.EngineGPUInfo, same(metrics.LabelGPUUUID)...), hour)),
	"{{ with .Labels.namespace }}{{ . }}/{{ end }}{{ .Labels.model_name }}",
}

func underGPU(alerts ...*Alert) []Quiet {
	q := make([]Quiet, 0, len(alerts))
	for _, a := range alerts {
		q = append(q, Quiet{a, []string{metrics.LabelCluster, metrics.LabelGPUUUID}})
	}
	return q
}

// allThrottled returns each model with more than one GPU, if the clocks of all its GPUs are lowered.
func allThrottled() promql.Expr {
	return promql.And(above(promql.Vector(metrics.RecordedModelGPUs), 1), promql.Ge(promql.Vector(metrics.RecordedThrottledGPUs),
		promql.Num(1)))
}

// crowded returns the share of time in which other processes compute on a GPU of each model. The share must be more
// than a quarter, and at least twice that of the day before.
func crowded() promql.Expr {
	return promql.Max(slices.Concat(modelLabels, gpuLabels[1:]), doubled(0.25, promql.Vector(metrics.EngineGPUOthers)))
}

// slowedByNode returns the number of a model's slowed GPUs, by node and reason.
func slowedByNode() promql.Expr {
	return promql.CountBy(append([]string{metrics.LabelInstance, metrics.LabelReason}, modelLabels...),
		servedBy(newlySlowed(), metrics.LabelReason))
}

// newlySlowed returns the share of five minutes in which each GPU is slowed down. It leaves out shares below a fifth
// that are less than twice that of the hour before, because they do not explain a new problem.
func newlySlowed() promql.Expr {
	share := promql.Vector(metrics.RecordedSlowedGPU)
	hourBefore := promql.Over("avg_over_time", promql.Offset(promql.Vector(metrics.RecordedSlowedGPU), pageWindow), hour)
	return promql.Unless(above(share, 0.05), below(promql.Lt(share, times(2, hourBefore)), 0.2))
}

// severalOfNode returns the number of a model's slowed GPUs on each node with more than one of them. The label gpu is
// the number of GPUs that the model has on that node.
func severalOfNode() promql.Expr {
	node := append([]string{metrics.LabelInstance}, modelLabels...)
	all := promql.CountValues(metrics.LabelGPU, node, promql.CountBy(node, servedOn(node)))
	return promql.Mul(above(slowedByNode(), 1), promql.Call("label_replace", all, promql.Str(metrics.LabelGPU), promql.Str("$1 GPUs"),
		promql.Str(metrics.LabelGPU), promql.Str("(.*)")), promql.On(node...).ManyToOne(metrics.LabelGPU))
}
