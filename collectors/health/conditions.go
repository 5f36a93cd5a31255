package health

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Condition is one fault that can worsen the verdict on a GPU or on its node.
type Condition struct {
	// Name is the value of the condition label.
	Name string
	// Verdict is the verdict on the GPU while the condition applies.
	Verdict metrics.Verdict
	// Meaning describes the fault, and Action describes the remedy.
	Meaning, Action string
	// Alert names the alert about the condition. It is empty if only a dashboard shows the condition.
	Alert string
	// Reads lists the metrics that the condition reads.
	Reads []*metrics.Family
	// Hold is how long the condition must be seen without a break before it counts. Short faults that end by themselves do
	// not count.
	Hold time.Duration
	// WithEngine means that the condition counts at once if an engine that ran on the GPU has also stopped. A stopped
	// engine does not recover by itself.
	WithEngine bool
	// Quiet is how long the condition must be unseen before it ends.
	Quiet time.Duration
	// UntilReset means that a reset of the GPU ends the condition at once, unless the condition is still seen.
	UntilReset bool
	// Node means that the condition concerns a part that the GPUs of the node share.
	Node bool
	// Blind means that the state of the GPUs is unknown while the condition applies.
	Blind bool
	// Elsewhere describes how NVIDIA's tools and Amazon's node monitoring agent treat the condition.
	Elsewhere string

	test test
}

// test decides whether a condition is seen. If a value is absent, the condition does not change.
type test struct {
	value  func(*view) (float64, bool)
	window time.Duration // time over which the growth of a counter counts; 0 if the value itself is compared
	least  float64
	falls  bool // the value is below the highest value seen
	mean   bool // the mean within the window is compared; a value below zero restarts the window
}

// at reports whether the value of any of the series is at least the given value.
func at(least float64, f *metrics.Family, where ...string) test {
	return test{value: func(v *view) (float64, bool) { return v.most(f, where...) }, least: least}
}

// grows reports whether the sum of counters grew by at least the given value within a window.
func grows(least float64, window time.Duration, f *metrics.Family, where ...string) test {
	return test{value: func(v *view) (float64, bool) { return v.sum(f, where...) }, least: least, window: window}
}

// level is how long a state of the driver must be gone before its condition ends. It covers two slow readings.
const level = 20 * time.Second

// boot is longer than a driver, a fabric manager or a container takes to start.
const boot = 3 * time.Minute

// Conditions lists the conditions of the verdicts, in addition to the XIDs of metrics.XIDs.
var Conditions = []Condition{
	{
		Name: "lost", Verdict: metrics.Reset, Alert: metrics.AnswerFailed,
		Meaning: "the driver says that the GPU is lost, or that it must be reset", Action: "reset it; restart the machine if that does not help",
		Reads: []*metrics.Family{metrics.GPUUp}, Hold: 10 * time.Second, Quiet: level,
		test:      test{value: down("gpu_is_lost", "reset_required", "gpu_not_found", "insufficient_power"), least: 1},
		Elsewhere: "DCGM and EKS see XID 79",
	},
	{
		Name: "vanished", Verdict: metrics.Reset, Alert: metrics.AnswerFailed, Meaning: "the other exporter's page no longer lists the GPU",
		Action: "look at the kernel log; restart the machine if the GPU is lost",
		// A starting exporter lists no GPU for 30 s.
		Reads: []*metrics.Family{metrics.GPUUp}, Hold: time.Minute, WithEngine: true, Quiet: level,
		test:      test{value: down("not_on_page"), least: 1},
		Elsewhere: "no check: DCGM stops reporting it",
	},
	{
		Name: "unresponsive", Verdict: metrics.Reset, Alert: metrics.AnswerFailed,
		Meaning: "the GPU does not answer, or another exporter calls it unhealthy", Action: "look at the kernel log; reset the GPU",
		// A driver may need a minute to free the memory of a dead engine.
		Reads: []*metrics.Family{metrics.GPUUp}, Hold: 150 * time.Second, Quiet: level,
		test:      test{value: downOtherwise, least: 1},
		Elsewhere: "no check: DCGM hangs with it",
	},
	{
		Name: "missing", Verdict: metrics.Reset, Alert: metrics.AnswerUnread,
		Meaning: "the GPU is on the bus, and the driver does not list it", Action: "restart the machine; look at slot, power and the kernel log",
		Reads: []*metrics.Family{metrics.GPUMissing}, Hold: boot, Quiet: level,
		test:      at(1, metrics.GPUMissing),
		Elsewhere: "NVIDIA: GPU count; EKS: count of device nodes",
	},
	{
		Name: "recovery_reset", Verdict: metrics.Reset, Alert: metrics.AnswerService,
		Meaning: "the driver asks for a reset of the GPU, its bus or the machine", Action: "do what llm_gpu_recovery_action_info says",
		Reads: []*metrics.Family{metrics.GPURecoveryAction}, Hold: 5 * time.Second, Quiet: level,
		test:      test{value: asks(1, 2, 6, 7), least: 1},
		Elsewhere: "NVIDIA: XID 154; DRA driver: taint",
	},
	{
		Name: "recovery_drain", Verdict: metrics.Drain, Alert: metrics.AnswerService,
		Meaning: "the driver asks to drain the GPU, or to recover its NVLink domain", Action: "do what llm_gpu_recovery_action_info says",
		Reads: []*metrics.Family{metrics.GPURecoveryAction}, Hold: 5 * time.Second, Quiet: level,
		test:      test{value: asks(3, 4, 5), least: 1},
		Elsewhere: "NVIDIA: XID 154; DRA driver: taint",
	},
	{
		Name: "row_remap_failure", Verdict: metrics.Replace, Alert: metrics.AnswerFailed,
		Meaning: "no spare memory row was left for a fault", Action: "replace the board",
		Reads: []*metrics.Family{metrics.GPURowRemapFailure}, Quiet: level,
		test:      at(1, metrics.GPURowRemapFailure),
		Elsewhere: "DCGM: fail; EKS: XID 64",
	},
	{
		Name: "memory_unrepairable", Verdict: metrics.Replace, Alert: metrics.AnswerFailed,
		Meaning: "its memory cannot be repaired", Action: "replace the board",
		Reads: []*metrics.Family{metrics.GPUMemoryUnrepairable}, Quiet: level,
		test:      at(1, metrics.GPUMemoryUnrepairable),
		Elsewhere: "DCGM: field, no check",
	},
	{
		Name: "sram_threshold", Verdict: metrics.Replace, Alert: metrics.AnswerFailed,
		Meaning: "more uncorrectable SRAM errors than NVIDIA accepts", Action: "replace the board",
		Reads: []*metrics.Family{metrics.GPUSRAMThreshold}, Quiet: level,
		test:      at(1, metrics.GPUSRAMThreshold),
		Elsewhere: "DCGM: fail",
	},
	{
		Name: "uncorrected_errors", Verdict: metrics.Drain, Alert: metrics.AnswerService,
		Meaning: "uncorrectable ECC errors within ten minutes",
		Action:  "drain, then reset; replace the board when they return within days",
		Reads:   []*metrics.Family{metrics.GPUECCErrors}, Quiet: time.Hour, UntilReset: true,
		test:      grows(1, 10*time.Minute, metrics.GPUECCErrors, metrics.LabelSeverity, "uncorrected", metrics.LabelLifetime, "volatile"),
		Elsewhere: "DCGM: fail; EKS: XID 48",
	},
	{
		Name: "uncorrected_errors_before", Verdict: metrics.Degraded,
		Meaning: "uncorrectable ECC errors since the driver was loaded", Action: "reset the GPU at the next opportunity",
		Reads: []*metrics.Family{metrics.GPUECCErrors}, Quiet: level,
		test: test{value: func(v *view) (float64, bool) {
			return v.sum(metrics.GPUECCErrors, "severity", "uncorrected", "lifetime", "volatile")
		}, least: 1},
		Elsewhere: "DCGM: fail until the reset",
	},
	{
		Name: "corrected_errors", Verdict: metrics.Drain, Alert: metrics.AnswerService, Meaning: "ECC corrects more than one error a second",
		Action: "drain, run field diagnostics, replace the board",
		Reads:  []*metrics.Family{metrics.GPUECCErrors}, Quiet: time.Hour, UntilReset: true,
		test:      grows(600, 10*time.Minute, metrics.GPUECCErrors, metrics.LabelSeverity, "corrected", metrics.LabelLifetime, "volatile"),
		Elsewhere: "NVIDIA: XID 92, ignored",
	},
	{
		Name: "row_remap_pending", Verdict: metrics.Degraded, Alert: metrics.AnswerService,
		Meaning: "a memory row waits for a reset to be remapped", Action: "reset the GPU at the next opportunity",
		Reads: []*metrics.Family{metrics.GPURowRemapPending}, Quiet: level,
		test:      at(1, metrics.GPURowRemapPending),
		Elsewhere: "DCGM: warning; EKS: XID 63 is fatal",
	},
	{
		Name: "retired_pages_pending", Verdict: metrics.Degraded, Alert: metrics.AnswerService,
		Meaning: "a memory page waits for a restart to be retired", Action: "reset the GPU at the next opportunity",
		Reads: []*metrics.Family{metrics.GPURetiredPagesPending}, Quiet: level,
		test:      at(1, metrics.GPURetiredPagesPending),
		Elsewhere: "DCGM: warning",
	},
	{
		Name: "repair_pending", Verdict: metrics.Degraded, Alert: metrics.AnswerService,
		Meaning: "a reset must repair a memory channel or a TPC", Action: "reset the GPU at the next opportunity",
		Reads: []*metrics.Family{metrics.GPURepairPending}, Quiet: level,
		test:      at(1, metrics.GPURepairPending),
		Elsewhere: "no check",
	},
	{
		Name: "no_spare_rows", Verdict: metrics.Degraded, Meaning: "a memory bank has no spare rows left", Action: "plan a replacement",
		Reads: []*metrics.Family{metrics.GPURowRemapBanks}, Quiet: level,
		test:      at(1, metrics.GPURowRemapBanks, metrics.LabelAvailability, "none"),
		Elsewhere: "no check",
	},
	{
		Name: "pcie_fatal", Verdict: metrics.Drain, Alert: metrics.AnswerLink, Meaning: "PCIe had a fatal error within ten minutes",
		Action: "check slot, riser and cabling; reset the GPU",
		Reads:  []*metrics.Family{metrics.GPUPCIeErrors}, Quiet: time.Hour, UntilReset: true,
		test:      grows(1, 10*time.Minute, metrics.GPUPCIeErrors, metrics.LabelType, "fatal"),
		Elsewhere: "no check",
	},
	{
		Name: "pcie_narrow", Verdict: metrics.Degraded, Alert: metrics.AnswerLink,
		Meaning: "PCIe is slower or narrower than it can be, while the GPU is busy", Action: "check slot, riser and cabling",
		Reads: []*metrics.Family{metrics.GPUPCIeLinkWidth, metrics.GPUPCIeLinkGeneration, metrics.GPUUtilization}, Hold: 5 * time.Minute,
		Quiet:     5 * time.Minute,
		test:      test{value: narrow, least: 0.5, window: time.Minute, mean: true},
		Elsewhere: "DCGM: replay rate",
	},
	{
		Name: "nvlink_down", Verdict: metrics.Degraded, Alert: metrics.AnswerLink, Meaning: "an NVLink is down that was up",
		Action: "keep tensor parallelism off this GPU; reset it, check bridge, cable and board",
		Reads:  []*metrics.Family{metrics.GPUNVLinkUp}, Hold: 30 * time.Second, Quiet: time.Minute,
		test:      test{value: func(v *view) (float64, bool) { return v.sum(metrics.GPUNVLinkUp) }, falls: true},
		Elsewhere: "DCGM: fail; EKS: XID 74 is fatal",
	},
	{
		Name: "nvlink_fewer", Verdict: metrics.Degraded, Alert: metrics.AnswerLink,
		Meaning: "fewer NVLinks are up than on another GPU of the node",
		Action:  "keep tensor parallelism off this GPU; check bridge, cable and board",
		Reads:   []*metrics.Family{metrics.GPUNVLinkUp}, Hold: boot, Quiet: time.Minute,
		test:      test{value: fewerLinks, least: 1},
		Elsewhere: "DCGM: fail",
	},
	{
		Name: "nvlink_errors", Verdict: metrics.Degraded, Alert: metrics.AnswerLink,
		Meaning: "NVLinks have more than one error in ten seconds", Action: "keep tensor parallelism off this GPU; check bridge, cable and board",
		Reads: []*metrics.Family{metrics.GPUNVLinkErrors}, Quiet: 15 * time.Minute, UntilReset: true,
		test: test{
			value: func(v *view) (float64, bool) {
				return v.sumUnless(metrics.GPUNVLinkErrors, metrics.LabelType, "symbol")
			},
			least: 30, window: 5 * time.Minute,
		},
		Elsewhere: "DCGM: warning; NVIDIA: NVLink checks",
	},
	{
		Name: "fabric_bandwidth", Verdict: metrics.Degraded, Alert: metrics.AnswerLink,
		Meaning: "the NVSwitch fabric has less bandwidth for the GPU", Action: "look at the fabric manager's log",
		Reads: []*metrics.Family{metrics.GPUFabricHealth}, Hold: 30 * time.Second, Quiet: time.Minute,
		test:      at(1, metrics.GPUFabricHealth, metrics.LabelCheck, "degraded_bandwidth"),
		Elsewhere: "NVIDIA: fabric check",
	},
	{
		Name: "fabric_unhealthy", Verdict: metrics.Drain, Alert: metrics.AnswerLink,
		Meaning: "a route of the NVSwitch fabric to the GPU is broken, or its fabric is set up wrongly",
		Action:  "look at the fabric manager's log",
		Reads:   []*metrics.Family{metrics.GPUFabricHealth}, Hold: 30 * time.Second, Quiet: time.Minute,
		test:      test{value: unroutable, least: 1},
		Elsewhere: "NVIDIA: fabric check",
	},
	{
		Name: "fabric_unregistered", Verdict: metrics.Drain, Alert: metrics.AnswerLink,
		Meaning: "the GPU is not in the NVSwitch fabric", Action: "look at the fabric manager and its log",
		Reads: []*metrics.Family{metrics.GPUFabricState}, Hold: boot, Quiet: level,
		test:      test{value: unregistered, least: 1},
		Elsewhere: "NVIDIA: fabric check; EKS: fabric manager",
	},
	{
		Name: "thermal_slowdown", Verdict: metrics.Degraded, Alert: metrics.AnswerSlowed,
		Meaning: "heat lowers its clocks a tenth of the time",
		Action:  "look at fans, airflow, inlet temperature and neighbouring GPUs",
		Reads:   []*metrics.Family{metrics.GPUClockEventSeconds}, Quiet: 10 * time.Minute,
		test: test{value: func(v *view) (float64, bool) {
			return v.greatest(metrics.GPUClockEventSeconds, metrics.LabelReason, "hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown")
		}, least: 30, window: 5 * time.Minute},
		Elsewhere: "DCGM: warning at the first violation; EKS: none; NVSentinel: suppressed",
	},
	{
		Name: "power_brake", Verdict: metrics.Degraded, Alert: metrics.AnswerSlowed,
		Meaning: "the rack or a power supply asked the GPU to slow down", Action: "call the data centre, not the model team",
		Reads: []*metrics.Family{metrics.GPUClockEventSeconds}, Quiet: 10 * time.Minute,
		test:      grows(3, 5*time.Minute, metrics.GPUClockEventSeconds, metrics.LabelReason, "hw_power_brake_slowdown"),
		Elsewhere: "DCGM: warning at the first violation; EKS: none; NVSentinel: suppressed",
	},
	{
		Name: "held_back", Verdict: metrics.Degraded, Alert: metrics.AnswerSlowed,
		Meaning: "it has been busy for 15 minutes at idle clocks or idle power",
		Action:  "look for a power cap, locked clocks or a kernel that hangs",
		Reads:   []*metrics.Family{metrics.GPUUtilization, metrics.GPUClock, metrics.GPUClockMax, metrics.GPUPower, metrics.GPUPowerLimit},
		Hold:    15 * time.Minute, Quiet: 5 * time.Minute,
		test:      test{value: heldBack, least: 1},
		Elsewhere: "no check",
	},
	{
		Name: "vgpu_unlicensed", Verdict: metrics.Degraded, Alert: metrics.AnswerSlowed,
		Meaning: "the virtual GPU has no licence, so the driver restricts it",
		Action:  "look at the licence server and at journalctl -u nvidia-gridd",
		Reads:   []*metrics.Family{metrics.GPUVGPULicensed}, Hold: boot, Quiet: level,
		test: test{value: func(v *view) (float64, bool) {
			licensed, ok := v.most(metrics.GPUVGPULicensed)
			return 1 - licensed, ok
		}, least: 1},
		Elsewhere: "DCGM: field, no check",
	},
	{
		Name: "driver_unusable", Verdict: metrics.Degraded, Alert: metrics.AnswerUnread,
		Meaning: "neither the driver nor another exporter can be used", Action: "look up the reason in the runbook", Node: true, Blind: true,
		Reads: []*metrics.Family{metrics.GPUNVMLUp, metrics.GPUSourceUp, metrics.GPUExpected}, Hold: 2 * boot, Quiet: level,
		test:      test{value: driverless, least: 1},
		Elsewhere: "EKS: DCGM does not answer",
	},
	{
		Name: "fabric_manager_gone", Verdict: metrics.Drain, Alert: metrics.AnswerLink,
		Meaning: "the node has NVSwitches, and no fabric manager runs", Action: "systemctl start nvidia-fabricmanager",
		Node:  true,
		Reads: []*metrics.Family{metrics.GPUFabricManagerUp, metrics.GPUSwitches}, Hold: boot, Quiet: level,
		test:      test{value: manager, falls: true},
		Elsewhere: "EKS: fabric manager is fatal",
	},
	{
		Name: "switch_error", Verdict: metrics.Reset, Alert: metrics.AnswerLink, Meaning: "an NVSwitch reported a fatal error within a day",
		Action: "reset all GPUs and switches of the node together", Node: true,
		Reads: []*metrics.Family{metrics.GPUSXIDLastTimestamp}, Quiet: level,
		test:      test{value: switchFailed, least: 1},
		Elsewhere: "DCGM: fail; EKS: fatal",
	},
}

// down reports whether llm_gpu_up is 0 for one of these reasons.
func down(reasons ...string) func(*view) (float64, bool) {
	return func(v *view) (float64, bool) {
		for _, s := range v.of(metrics.GPUUp) {
			return metrics.Bool(s.Value == 0 && slices.Contains(reasons, label(s, metrics.LabelReason))), true
		}
		return 0, false
	}
}

// downOtherwise reports whether llm_gpu_up is 0 for a reason other than the loss, the disappearance or the detachment
// of the GPU.
func downOtherwise(v *view) (float64, bool) {
	for _, s := range v.of(metrics.GPUUp) {
		lost, _ := down("gpu_is_lost", "reset_required", "gpu_not_found", "insufficient_power", "not_on_page", "detached")(v)
		return metrics.Bool(s.Value == 0 && lost == 0), true
	}
	return 0, false
}

// asks reports whether the driver requests one of these recovery actions. The actions are numbered as in
// metrics.RecoveryAction.
func asks(actions ...float64) func(*view) (float64, bool) {
	return func(v *view) (float64, bool) {
		action, ok := v.most(metrics.GPURecoveryAction)
		return metrics.Bool(slices.Contains(actions, action)), ok
	}
}

// narrow returns the utilization of a GPU whose PCIe link is narrower or slower than possible. Only a busy GPU counts,
// because an idle GPU saves power on its link. If the link is at its best, narrow returns a negative number.
func narrow(v *view) (float64, bool) {
	busy, ok := v.most(metrics.GPUUtilization)
	for _, f := range []*metrics.Family{metrics.GPUPCIeLinkWidth, metrics.GPUPCIeLinkGeneration} {
		current, known := v.most(f, metrics.LabelState, "current")
		if best, _ := v.most(f, metrics.LabelState, "max"); known && current < best {
			return busy, ok
		}
	}
	return -1, ok
}

// heldBack reports whether a busy GPU has less than a third of its clock, or uses less than a fifth of its power limit.
// Idle GPUs use a sixth of both.
func heldBack(v *view) (float64, bool) {
	busy, ok := v.most(metrics.GPUUtilization)
	clock, clocked := v.most(metrics.GPUClock, metrics.LabelDomain, "sm")
	clockMax, _ := v.most(metrics.GPUClockMax, metrics.LabelDomain, "sm")
	power, drawn := v.most(metrics.GPUPower, metrics.LabelScope, "gpu")
	limit, _ := v.most(metrics.GPUPowerLimit, metrics.LabelKind, "enforced")
	return metrics.Bool(busy > 0.9 && (clocked && clock < clockMax/3 || drawn && power < limit/5)), ok
}

// fewerLinks reports whether some links of a GPU are down and some are up, while another GPU has more links up. A card
// without a bridge has no link that is up, and a link without a bridge is always down.
func fewerLinks(v *view) (float64, bool) {
	up, ok := v.sum(metrics.GPUNVLinkUp)
	return metrics.Bool(0 < up && up < v.links && up < float64(len(v.of(metrics.GPUNVLinkUp)))), ok
}

// unroutable reports whether the summary fails, and also a fabric check other than the bandwidth check. The summary
// includes the bandwidth.
func unroutable(v *view) (float64, bool) {
	bad, known := 0.0, false
	for _, s := range v.of(metrics.GPUFabricHealth) {
		if check := label(s, metrics.LabelCheck); check != "degraded_bandwidth" && check != "summary" {
			bad, known = max(bad, s.Value), true
		}
	}
	return bad, known
}

func unregistered(v *view) (float64, bool) {
	for _, s := range v.of(metrics.GPUFabricState) {
		return metrics.Bool(label(s, metrics.LabelState) != "completed"), true
	}
	return 0, false
}

// driverless reports whether no source reads the node's GPUs although a source should. If NVML is read, NVML decides,
// because a metrics page is only a fallback.
func driverless(v *view) (float64, bool) {
	if gpus, ok := v.most(metrics.GPUExpected); ok && gpus == 0 {
		return 0, true
	}
	for _, f := range []*metrics.Family{metrics.GPUNVMLUp, metrics.GPUSourceUp} {
		all := v.of(f)
		if used := slices.ContainsFunc(all, func(s *metrics.Sample) bool {
			return s.Value == 1 || slices.Contains([]string{"starting", "detached", "built_without_cgo"}, label(s, metrics.LabelReason))
		}); len(all) > 0 {
			return metrics.Bool(!used), true
		}
	}
	return 0, false
}

// manager returns whether the fabric manager runs. A value below zero means that it does not run although NVSwitches
// need it. If no switches are visible, it must run if it ever ran.
func manager(v *view) (float64, bool) {
	switches, _ := v.most(metrics.GPUSwitches)
	up, ok := v.most(metrics.GPUFabricManagerUp)
	if switches > 0 && up == 0 {
		return -1, ok
	}
	return up, ok
}

// switchFailed reports whether an NVSwitch reported a fatal error within a day. The error's time survives restarts of the exporter.
func switchFailed(v *view) (float64, bool) {
	last, _ := v.most(metrics.GPUSXIDLastTimestamp, metrics.LabelSeverity, "fatal")
	return metrics.Bool(float64(v.at.Unix())-last < (24 * time.Hour).Seconds()), true
}
