package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Hardware that gives warning before it fails. None of it pages: nobody suffers yet.
var (
	GPUCorrectedECC = &Alert{
		Name:   "LLMGPUCorrectedECC",
		Branch: Hardware,
		Expr: above(promql.Sum(gpuLabels, promql.Rate(promql.Vector(metrics.GPUECCErrors,
			promql.Eq(metrics.LabelSeverity, "corrected"), promql.Eq(metrics.LabelLifetime, "volatile")), 10*minute)), 1),
		Severity:    slo.Ticket,
		For:         10 * minute,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPURowRemapFailure, GPUSRAMThreshold, GPUUncorrectableECC, GPULost),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "GPU {{ $labels.gpu_uuid }} corrects {{ $value | humanize }} memory errors a second",
		Description: "A healthy GPU corrects a few in weeks. At thousands a second the driver answers slowly or not at all, and an error that cannot be corrected is near. A rate that stops without load says nothing: drain at leisure, run field diagnostics, replace the board.",
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
		Description: "Healthy links recover never. One that does several times a day fails within days and takes all models of its NVLink domain along: keep models with tensor parallelism off this GPU, and have cable, bridge or board looked at.",
		Split: []Evidence{modelsOnIt, {"Recoveries within a day of its other links", promql.CountBy([]string{metrics.LabelLink},
			above(promql.Increase(promql.Vector(metrics.GPUNVLinkErrors, append(same(metrics.LabelGPUUUID),
				promql.Either(metrics.LabelType, "recovery|link_recovery_succeeded|link_recovery_failed"))...), day), 0)), LabelledBy("", metrics.LabelLink)}},
		Dashboard: GPUDashboard,
	}
	GPUFabricUnhealthy = &Alert{
		Name:   "LLMGPUFabricUnhealthy",
		Branch: Hardware,
		Expr: promql.Equal(promql.Max(gpuLabels, promql.Or(promql.Vector(metrics.GPUFabricHealth),
			promql.Vector(metrics.GPUFabricState, promql.Ne(metrics.LabelState, "completed")))), promql.Num(1), nil),
		Severity:    slo.Ticket,
		For:         10 * minute,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPULost, GPULinkDegraded),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "The NVSwitch fabric of GPU {{ $labels.gpu_uuid }} on {{ $labels.instance }} is unhealthy",
		Description: "The GPU is not registered with the fabric, or a check of the fabric fails, while temperature, power and XIDs look normal. An engine over several GPUs that starts now fails or hangs. On all GPUs of a node at once: the fabric manager.",
		Split: []Evidence{modelsOnIt,
			{"Checks that fail", promql.Equal(promql.Max([]string{metrics.LabelCheck}, promql.Vector(metrics.GPUFabricHealth, same(metrics.LabelGPUUUID)...)), promql.Num(1), nil), LabelledBy("", metrics.LabelCheck)},
			{"Registration", promql.CountBy([]string{metrics.LabelState}, promql.Vector(metrics.GPUFabricState, same(metrics.LabelGPUUUID)...)), LabelledBy("", metrics.LabelState)}},
		Dashboard: GPUDashboard,
	}
	GPURecoveryAsked = &Alert{
		Name:        "LLMGPURecoveryAsked",
		Branch:      Hardware,
		Expr:        above(promql.Max(gpuLabels, promql.Vector(metrics.GPURecoveryAction)), 0),
		Severity:    slo.Ticket,
		For:         5 * minute,
		Scope:       []string{metrics.LabelGPUUUID},
		DependsOn:   underGPU(GPULost, GPUCriticalXID, GPURowRemapFailure, GPUSRAMThreshold, GPURowRemapPending),
		Explains:    []*Alert{FastBurn, SlowBurn},
		Summary:     "The driver asks for a recovery of GPU {{ $labels.gpu_uuid }} on {{ $labels.instance }}",
		Description: "The driver says what brings the GPU back: a reset of the GPU, its bus or the node, or a drain first. Until then work on it may fail.",
		Split: []Evidence{modelsOnIt, {"It asks for", promql.CountBy([]string{metrics.LabelAction},
			promql.Vector(metrics.GPURecoveryActionInfo, same(metrics.LabelGPUUUID)...)), LabelledBy("", metrics.LabelAction)}},
		Dashboard: GPUDashboard,
	}
)
