package dashboards

import (
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// gpuNode shows what the GPUs of a node report, whoever uses them.
func gpuNode() Board {
	s := scope{byGPUCluster, byGPUNode, byGPU}
	return Board{
		UID: rules.GPUDashboard, Since: "now-6h", Refresh: "1m", Variables: s,
		Description: "The hardware under the models: is it throttled, failing, too hot, cut off, or simply busy?",
		Rows: []Row{
			{Title: "Health: does anything need a person?", Panels: healthRow(s)},
			{Title: "Work: how busy, and with what?", Panels: busyRow(s)},
			{Title: "Heat and power: what lowers the clocks?", Panels: powerRow(s)},
			{Title: "Memory errors: is the board failing?", Panels: eccRow(s)},
			{Title: "Links: PCIe and NVLink", Collapsed: true, Panels: linkRow(s)},
			{Title: "Who uses it: processes, engines, MIG", Collapsed: true, Panels: usersRow(s)},
		},
	}
}

// onePerGPU returns a query with one result per GPU, or per part of a GPU that the legend names.
func onePerGPU(e promql.Expr, parts string) Query {
	return Query{e, strings.TrimSpace("gpu {{gpu}} "+parts) + " {{instance}}"}
}

// ofNode returns what hardly changes and is alike on the GPUs of a node: a limit, which stays out of the legend.
func ofNode(fold func([]string, promql.Expr) promql.Expr, e promql.Expr, what string) Query {
	return Query{fold(nodes, e), "limit, " + what + " " + nodeLegend}
}

// stateOfGPU returns a query for a timeline. Grafana may cut off the beginning of a row's name, so the instance comes first.
func stateOfGPU(e promql.Expr, what string) Query {
	return Query{e, strings.TrimSpace("{{instance}} gpu {{gpu}} " + what)}
}

func healthRow(s scope) []Panel {
	withReason := by(gpus, metrics.LabelReason)
	recent := promql.Gt(s.lastHour(by(gpus, metrics.LabelXID), metrics.GPUXIDErrors), promql.Num(0))
	return []Panel{
		timeline("Clock events", 12, About{
			"When the driver lowered the clocks, by reason. Idle and a power cap by software are normal; the hw_ reasons and sw_thermal are not.",
			"Throttling shows as slow models, not as errors.",
			"A red hw_ reason: look at temperature and power below."},
			bad("active"), stateOfGPU(promql.Max(withReason, s.of(metrics.GPUClockEventActive)), "{{reason}}")).runbook("LLMGPUSlowed").next(rules.IncidentDashboard).
			movesIn("thermal-throttle"),
		timeline("GPU answers", 12, About{
			"Whether each GPU answered the driver, and why not.",
			"A GPU that stops answering has fallen off the bus, or the driver is wedged.",
			"Down: drain the node."},
			good("lost"), stateOfGPU(promql.Max(withReason, s.of(metrics.GPUUp)), "{{reason}}")).runbook("LLMGPUFailed").next(rules.ExporterDashboard).
			movesIn("xid-79"),
		timeline("Missing GPUs", 8, About{
			"GPUs that the PCI bus has or had and that NVML does not show, by their place on the bus.",
			"The driver no longer counts them, so no other panel shows them.",
			"Missing: drain the node and restart it, then look at power and slot."},
			bad("missing"), Query{promql.Max(by(nodes, metrics.LabelPCIBusID), s.of(metrics.GPUMissing)), nodeLegend + " {{pci_bus_id}}"}).
			runbook("LLMGPUUnread").next(rules.ExporterDashboard).
			notDrilled(noGPU),
		lines("XIDs per hour", number, 8, About{
			"Driver errors of the last hour by number.",
			"13, 31, 43 and 45 come from the application; most others from the hardware.",
			"The table below says what each asks for."},
			onePerGPU(recent, "XID {{xid}}")).bad(1, 1).empty("No XID in the last hour.").runbook("LLMGPUFailed").next(rules.IncidentDashboard).
			movesIn("xid-79"),
		lines("Recovery action asked for", none, 8, About{
			"What the driver asks for to bring a GPU back: 0 nothing, 1 reset the GPU, 2 reboot the node, 3 drain, 4 drain and reset, 6 reset the bus, 7 restart the system.",
			"It is the driver's own verdict.",
			"Above 0: drain first, then do what it says."},
			onePerGPU(s.perGPU(metrics.GPURecoveryAction), "")).bad(1, 2).runbook("LLMGPUFailed").next(rules.IncidentDashboard).
			movesIn("repair-pending"),
		listing("What the XIDs mean", 24, About{
			"The XIDs seen on these GPUs since the exporter started, with their meaning and what to do.",
			"The number alone helps nobody at night.",
			"Severity page: the GPU leaves service now."},
			Query{promql.Mul(promql.Gt(promql.Sum([]string{metrics.LabelXID}, s.of(metrics.GPUXIDErrors)), promql.Num(0)),
				promql.TopK(1, []string{metrics.LabelXID}, promql.Max([]string{metrics.LabelXID, metrics.LabelSeverity, metrics.LabelMeaning, metrics.LabelAction}, s.of(metrics.GPUXIDInfo))),
				promql.On(metrics.LabelXID).ManyToOne(metrics.LabelSeverity, metrics.LabelMeaning, metrics.LabelAction)), ""}).
			columns(Column{metrics.LabelXID, "XID", 60, "", nil}, Column{"Value", "times", 70, "", nil}, Column{metrics.LabelSeverity, "severity", 90, "", nil}, Column{metrics.LabelMeaning, "meaning", 0, "", nil}, Column{metrics.LabelAction, "what to do", 0, "", nil}).
			size(24, 6).empty("No XID was seen.").runbook("LLMGPUFailed").next(rules.IncidentDashboard).
			movesIn("xid-79"),
	}
}

func busyRow(s scope) []Panel {
	used := promql.Mul(s.perGPU(metrics.GPUMemoryBandwidthUtilization), s.perGPU(metrics.GPUMemoryBandwidthPeak))
	return []Panel{
		lines("SM, tensor and kernel activity", share, 8, About{
			"Share of SMs busy, share of time in tensor operations, and share of time with any kernel at all.",
			"The last is what nvidia-smi calls utilisation: 100% of it can be an idle GPU with one small kernel.",
			"High SM with low tensor activity is decode or a bad kernel; both low is starvation."},
			onePerGPU(s.perGPU(metrics.GPUSMActive), "SM"), onePerGPU(s.perGPU(metrics.GPUTensorActive), "tensor"), onePerGPU(s.perGPU(metrics.GPUUtilization), "kernel")).
			max(1).runbook("BranchLargeBatch").next(rules.EngineDashboard).
			movesIn("bad-release", "crash-loop").notDrilled(noGPU),
		lines("Memory bandwidth against peak", bandwidth, 8, About{
			"Bytes per second to and from device memory, below what the best board of the node can do.",
			"Decode runs at this ceiling.",
			"Near the peak: more batch is more latency."},
			onePerGPU(used, "used")).limits(ofNode(promql.Max, s.of(metrics.GPUMemoryBandwidthPeak), "peak")).
			empty("Not reported: needs Hopper or newer.").runbook("BranchLargeBatch").next(rules.EngineDashboard).
			notDrilled(noGPU),
		lines("Memory busy", share, 8, About{
			"Share of time in which device memory was read or written at all. It is not bandwidth.",
			"GPUs before Hopper report nothing better.",
			"Use it to compare GPUs, not as a measure of headroom."},
			onePerGPU(s.perGPU(metrics.GPUMemoryBusy), "")).max(1).runbook("BranchLargeBatch").next(rules.EngineDashboard).
			notDrilled(noGPU),
		lines("Device memory", octets, 8, About{
			"Memory allocated by clients and reserved by the driver, below what the largest GPU of the node has in all.",
			"Engines take most of it at start: full is normal and says nothing about pressure.",
			"Look at the KV cache of the engine instead."},
			onePerGPU(s.perGPU(metrics.GPUMemoryUsed), "used"), onePerGPU(s.perGPU(metrics.GPUMemoryReserved), "reserved")).
			limits(ofNode(promql.Max, s.of(metrics.GPUMemoryTotal, promql.Eq(metrics.LabelGPUInstance, "")), "in all")).runbook("BranchKVPressure").next(rules.EngineDashboard).
			notDrilled(noGPU),
		lines("Pipes", share, 8, About{
			"Share of time in which the SMs used each kind of unit.",
			"A model that should run in fp8 or fp16 tensor operations and does not is misconfigured.",
			"fp32 high: look at the engine's dtype."},
			onePerGPU(promql.Max(by(gpus, metrics.LabelPipe), s.of(metrics.GPUPipeActive, promql.Eq(metrics.LabelGPUInstance, ""))), "{{pipe}}")).max(1).
			empty("Not reported: needs Hopper or newer.").runbook("BranchLargeBatch").next(rules.EngineDashboard).
			notDrilled(noGPU),
		lines("SM occupancy", share, 8, About{
			"Resident warps as a share of those that fit on the SMs.",
			"Low occupancy with busy SMs is large kernels; with idle SMs it is starvation.",
			"Compare replicas of one model: they should look alike."},
			onePerGPU(s.perGPU(metrics.GPUSMOccupancy), ""), onePerGPU(s.perGPU(metrics.GPUGraphicsActive), "any engine active")).max(1).
			empty("Not reported: needs Hopper or newer.").runbook("LLMReplicaSkew").next(rules.EngineDashboard).
			notDrilled(noGPU),
	}
}

func powerRow(s scope) []Panel {
	return []Panel{
		lines("Temperature", celsius, 8, About{
			"Temperature of the chip and of its memory.",
			"On most boards memory gets too hot before the chip does.",
			"One GPU hotter than its neighbours: airflow or paste. All: the room."},
			onePerGPU(promql.Max(by(gpus, metrics.LabelSensor), s.of(metrics.GPUTemperature)), "{{sensor}}")).bad(80, 90).runbook("LLMGPUSlowed").next(rules.IncidentDashboard).
			movesIn("crash-loop", "thermal-throttle"),
		lines("Degrees left", celsius, 8, About{
			"Degrees until each limit acts: slowdown, shutdown, memory and chip maximum.",
			"Limits differ between boards; the margin is comparable.",
			"Below 5: it will throttle next. Move load away."},
			onePerGPU(promql.Min(by(gpus, metrics.LabelLimit), s.of(metrics.GPUTemperatureMargin)), "{{limit}}")).low(2, 5).runbook("LLMGPUSlowed").next(rules.IncidentDashboard).
			movesIn("thermal-throttle"),
		lines("Power against limit", share, 8, About{
			"Power drawn as a share of the limit in force.",
			"At 1 the software cap lowers clocks: normal under prefill, expensive under decode.",
			"At 1 all the time: raise the limit, or accept the clocks."},
			onePerGPU(promql.Div(s.perGPU(metrics.GPUPower, promql.Eq(metrics.LabelScope, "gpu")), s.perGPU(metrics.GPUPowerLimit, promql.Eq(metrics.LabelKind, "enforced"))), "")).
			bad(0.95, 1).max(1.1).runbook("LLMGPUSlowed").next(rules.IncidentDashboard).
			notDrilled(noGPU),
		lines("Power", watts, 8, About{
			"Power drawn now, and the mean from the energy counter.",
			"The mean is what the bill and the rack see.",
			"Far apart: load comes in bursts."},
			onePerGPU(s.perGPU(metrics.GPUPower, promql.Eq(metrics.LabelScope, "gpu")), "now"), onePerGPU(s.gpuRate(metrics.GPUEnergy), "mean")).
			runbook("LLMGPUSlowed").next(rules.IncidentDashboard).
			notDrilled(noGPU),
		lines("Clocks", hertz, 8, About{
			"Current clock of each domain, the lowest first, and the lowest memory clock of each node.",
			"Prefill follows the SM clock, decode the memory clock.",
			"Below its neighbours under the same load: throttled."},
			onePerGPU(promql.Max(by(gpus, metrics.LabelDomain), s.of(metrics.GPUClock, promql.Ne(metrics.LabelDomain, "memory"))), "{{domain}}")).
			limits(ofNode(promql.Min, s.of(metrics.GPUClock, promql.Eq(metrics.LabelDomain, "memory")), "memory")).lowest().runbook("LLMGPUSlowed").next(rules.IncidentDashboard).
			movesIn("thermal-throttle").notDrilled(noGPU),
		lines("Fans", share, 8, About{
			"Intended speed of each fan. Boards without fans are cooled by the chassis and report none.",
			"At full speed with rising temperature, cooling has nothing left.",
			"One fan at 0: replace it."},
			onePerGPU(promql.Max(by(gpus, metrics.LabelFan), s.of(metrics.GPUFanSpeed)), "fan {{fan}}")).max(1).
			empty("This board has no fans of its own.").runbook("LLMGPUSlowed").next(rules.IncidentDashboard).
			notDrilled(noGPU),
	}
}

func eccRow(s scope) []Panel {
	flag := func(f *metrics.Family, what string) Query { return stateOfGPU(promql.Max(gpus, s.of(f)), what) }
	return []Panel{
		lines("ECC errors per hour", number, 8, About{
			"Memory errors in the last hour, corrected and not, by where they were found. A GPU that is new here shows all since its driver loaded.",
			"Corrected errors are a warning; one that is not corrected ends the process that hit it.",
			"Uncorrected: reset at the next opportunity, and see whether it returns."},
			onePerGPU(s.lastHour(by(gpus, metrics.LabelSeverity, metrics.LabelLocation), metrics.GPUECCErrors, promql.Eq(metrics.LabelLifetime, "volatile")), "{{severity}} {{location}}")).
			bad(1, 10).empty("This board has no ECC, or it is off.").runbook("LLMGPUNeedsService").next(rules.IncidentDashboard).
			movesIn("row-remap-pending"),
		timeline("Repairs", 8, About{
			"Repairs that wait for a reset, and faults that no reset repairs.",
			"Pending is a ticket; failed is a new board.",
			"Failure, threshold or unrepairable: take it out of service."},
			bad("yes"), flag(metrics.GPURowRemapPending, "remap pending"), flag(metrics.GPURowRemapFailure, "remap failed"), flag(metrics.GPUSRAMThreshold, "SRAM threshold"),
			flag(metrics.GPURetiredPagesPending, "retirement pending"), flag(metrics.GPUMemoryUnrepairable, "unrepairable"),
			stateOfGPU(promql.Max(by(gpus, metrics.LabelType), s.of(metrics.GPURepairPending)), "{{type}} repair pending")).
			runbook("LLMGPUFailed").next(rules.IncidentDashboard).
			movesIn("row-remap-pending", "repair-pending").notDrilled(noGPU),
		lines("Rows remapped, pages retired", number, 8, About{
			"Memory rows that were replaced by spare ones, and pages retired on older boards, by cause.",
			"Growth is a board that ages.",
			"Compare with the spare rows below."},
			onePerGPU(promql.Sum(by(gpus, metrics.LabelCause), s.of(metrics.GPURemappedRows)), "rows {{cause}}"),
			onePerGPU(promql.Sum(by(gpus, metrics.LabelCause), s.of(metrics.GPURetiredPages)), "pages {{cause}}")).
			bad(1, 8).runbook("LLMGPUNeedsService").next(rules.IncidentDashboard).
			notDrilled(noGPU),
		lines("Banks by spare rows left", number, 24, About{
			"Memory banks by how many spare rows they have.",
			"A bank at none cannot be repaired again.",
			"Any bank at low or none: plan the replacement."},
			onePerGPU(promql.Sum(by(gpus, metrics.LabelAvailability), s.of(metrics.GPURowRemapBanks)), "{{availability}}")).stacked().runbook("LLMGPUFailed").next(rules.IncidentDashboard).
			notDrilled(noGPU),
	}
}

func linkRow(s scope) []Panel {
	manager := promql.Max(nodes, s.of(metrics.GPUFabricManagerUp))
	some := func(e promql.Expr) promql.Expr { return promql.Gt(promql.Max(nodes, e), promql.Num(0)) }
	managed := promql.Or(some(s.of(metrics.GPUSwitches)), some(promql.Over("max_over_time", s.of(metrics.GPUFabricManagerUp), 24*hour)))
	fatal := promql.CountBy(by(nodes, metrics.LabelPCIBusID, metrics.LabelSXID), promql.Lt(
		promql.Sub(promql.Call("time"), s.of(metrics.GPUSXIDLastTimestamp, promql.Eq(metrics.LabelSeverity, "fatal"))), promql.Num((24*hour).Seconds())))
	return []Panel{
		lines("PCIe traffic", bandwidth, 8, About{
			"Bytes per second over PCIe in both directions.",
			"A served model needs little of it; much is loading, offloading or swapping.",
			"Steady traffic in service: something does not fit."},
			onePerGPU(s.gpuRate(metrics.GPUPCIeTransmit), "sent"), onePerGPU(s.gpuRate(metrics.GPUPCIeReceive), "received")).runbook("LLMGPULinkFault").next(rules.EngineDashboard).
			notDrilled(noGPU),
		lines("PCIe lanes and generation", none, 8, About{
			"Lanes and generation in use, and those possible.",
			"Fewer lanes than possible is a bad slot, riser or cable. Generations drop on idle links; one that stays low under load cannot retrain.",
			"Narrow or slow under load: reseat it in the next window."},
			onePerGPU(promql.Max(by(gpus, metrics.LabelState), s.of(metrics.GPUPCIeLinkWidth)), "lanes, {{state}}"),
			onePerGPU(promql.Max(by(gpus, metrics.LabelState), s.of(metrics.GPUPCIeLinkGeneration)), "generation, {{state}}")).runbook("LLMGPULinkFault").next(rules.IncidentDashboard).
			notDrilled(noGPU),
		lines("PCIe errors and replays", perSecond, 8, About{
			"Packets sent again, and errors by type.",
			"Replays cost time, many of them announce a lost GPU.",
			"Not zero for long: reseat or replace."},
			onePerGPU(s.gpuRate(metrics.GPUPCIeReplays), "replays"), onePerGPU(s.gpuRate(metrics.GPUPCIeErrors, metrics.LabelType), "{{type}}")).bad(0.1, 1).runbook("LLMGPULinkFault").next(rules.IncidentDashboard).
			notDrilled(noGPU),
		lines("NVLink traffic", bandwidth, 8, About{
			"Payload per second over all NVLinks of a GPU.",
			"Tensor parallelism pays for every token here; all GPUs of a model should look alike.",
			"One GPU different from the rest: look at its links."},
			onePerGPU(s.gpuRate(metrics.GPUNVLinkTransmit), "sent"), onePerGPU(s.gpuRate(metrics.GPUNVLinkReceive), "received")).
			empty("This board has no NVLink.").runbook("LLMGPULinkFault").next(rules.EngineDashboard).
			notDrilled(noGPU),
		timeline("NVLinks", 8, About{
			"Whether each link is up; sleeping links count as up.",
			"Tensor parallelism waits for the slowest link.",
			"Down: drain, reset the GPU, then look at bridge and switch."},
			good("down"), stateOfGPU(promql.Max(by(gpus, metrics.LabelLink), s.of(metrics.GPUNVLinkUp)), "link {{link}}")).
			empty("This board has no NVLink.").runbook("LLMGPULinkFault").next(rules.IncidentDashboard).
			notDrilled(noGPU),
		lines("NVLink errors", perSecond, 8, About{
			"Errors of each link by type.",
			"Replayed and recovered errors still cost every token.",
			"Not zero for long: the link is going."},
			onePerGPU(s.gpuRate(metrics.GPUNVLinkErrors, metrics.LabelLink, metrics.LabelType), "link {{link}} {{type}}")).bad(0.01, 0.1).
			empty("This board has no NVLink.").runbook("LLMGPULinkFault").next(rules.IncidentDashboard).
			notDrilled("links wear for an hour before a ticket"),
		timeline("Fabric", 24, About{
			"Health checks of the NVSwitch fabric that fail, a registration that is not completed, fatal errors (SXids) of a switch within a day, and a fabric manager that does not run; the last two where the exporter may see them.",
			"A GPU outside the fabric cannot take part in tensor parallelism.",
			"Failing: look at the fabric manager before the GPU."},
			bad("unhealthy"), stateOfGPU(promql.Max(by(gpus, metrics.LabelCheck), s.of(metrics.GPUFabricHealth)), "{{check}}"),
			stateOfGPU(promql.Max(by(gpus, metrics.LabelState), s.of(metrics.GPUFabricState, promql.Ne(metrics.LabelState, "completed"))), "{{state}}"),
			Query{promql.And(promql.Sub(promql.Num(1), manager), managed), nodeLegend + " fabric manager"},
			Query{fatal, nodeLegend + " NVSwitch {{pci_bus_id}} SXid {{sxid}}"}).
			empty("This node has no NVSwitch fabric.").runbook("LLMGPULinkFault").next(rules.IncidentDashboard).
			notDrilled("no check fails in the drill"),
	}
}

func usersRow(s scope) []Panel {
	engine := by(gpus, metrics.LabelRuntime, metrics.LabelModel, metrics.LabelNamespace, metrics.LabelPod, metrics.LabelServer, metrics.LabelSource)
	identity := by(gpus, metrics.LabelGPUName, metrics.LabelPCIBusID, metrics.LabelSerial, metrics.LabelVBIOSVersion)
	mig := by(gpus, metrics.LabelGPUInstance, metrics.LabelComputeInstance, metrics.LabelMIGUUID, metrics.LabelProfile)
	slice := func(f *metrics.Family) promql.Expr {
		return promql.Max(by(gpus, metrics.LabelGPUInstance), s.of(f, promql.Ne(metrics.LabelGPUInstance, "")))
	}
	return []Panel{
		listing("Engines on these GPUs", 24, About{
			"Which engine runs on which GPU, and how that is known.",
			"It leads from a bad GPU to the model that suffers.",
			"An engine that should be here and is not: see Exporter health."},
			Query{promql.Max(engine, s.of(metrics.EngineGPUInfo)), ""}).
			columns(Column{metrics.LabelGPU, "GPU", 45, "", nil}, Column{metrics.LabelInstance, "node", 0, "", nil}, Column{metrics.LabelModel, "model", 0, "", nil}, Column{metrics.LabelPod, "pod", 0, "", nil}, Column{metrics.LabelServer, "server", 0, "", nil}, Column{metrics.LabelSource, "known by", 100, "", nil}).
			size(24, 6).empty("No engine is known to use these GPUs.").runbook("BranchThrottledGPU").next(rules.EngineDashboard).
			notDrilled(stays).steady(),
		listing("Boards", 24, About{
			"Name, address, serial number and firmware of each GPU.",
			"What a vendor asks for.",
			"Different firmware on one node: level it in the next window."},
			Query{promql.Max(identity, s.of(metrics.GPUInfo)), ""}).
			columns(Column{metrics.LabelGPU, "GPU", 45, "", nil}, Column{metrics.LabelInstance, "node", 0, "", nil}, Column{metrics.LabelGPUName, "name", 0, "", nil}, Column{metrics.LabelPCIBusID, "address", 0, "", nil}, Column{metrics.LabelSerial, "serial number", 0, "", nil}, Column{metrics.LabelVBIOSVersion, "firmware", 0, "", nil}).
			size(24, 6).runbook("LLMGPUFailed").next(rules.ExporterDashboard).
			notDrilled(noGPU).steady(),
		lines("Processes", number, 8, About{
			"Compute processes on each GPU, and whether the driver keeps it initialised without any (persistence mode).",
			"More than the engine's own is a neighbour, or a process that did not end. Without persistence mode, counters and settings are lost when the last one ends.",
			"Unexpected: find it by its container beside."},
			onePerGPU(promql.Sum(gpus, s.of(metrics.GPUProcesses)), ""), onePerGPU(s.perGPU(metrics.GPUPersistenceMode), "persistence")).runbook("LLMEngineCrashLoop").next(rules.EngineDashboard).
			notDrilled(noGPU),
		lines("Memory by container", octets, 8, About{
			"Device memory used by the processes of each container.",
			"It says whose the memory is.",
			"A container you do not know: look it up on the node."},
			onePerGPU(promql.Sum(by(gpus, metrics.LabelContainerID), s.of(metrics.GPUContainerMemory)), "{{container_id}}")).runbook("LLMEngineCrashLoop").next(rules.EngineDashboard).
			notDrilled(noGPU),
		listing("MIG devices", 8, About{
			"The slices of each GPU and their profiles.",
			"A model on a slice cannot have more bandwidth than the slice.",
			"Not the profile you expect: somebody reconfigured the node."},
			Query{promql.Max(mig, s.of(metrics.GPUMIGInfo)), ""}).
			columns(Column{metrics.LabelGPU, "GPU", 40, "", nil}, Column{metrics.LabelInstance, "node", 0, "", nil}, Column{metrics.LabelGPUInstance, "slice", 50, "", nil}, Column{metrics.LabelProfile, "profile", 0, "", nil}).
			empty("MIG is off on these GPUs.").runbook("BranchLargeBatch").next(rules.EngineDashboard).
			notDrilled(noGPU).steady(),
		lines("SM activity by MIG slice", share, 12, About{
			"Share of the SMs of each slice that were busy.",
			"A slice is full while its GPU looks idle.",
			"One slice at its limit: a larger profile, or another replica."},
			onePerGPU(slice(metrics.GPUSMActive), "slice {{gpu_instance_id}}")).max(1).empty("MIG is off, or the board is older than Hopper.").runbook("BranchLargeBatch").next(rules.EngineDashboard).
			notDrilled(noGPU),
		lines("Memory by MIG slice", share, 12, About{
			"Share of the memory of each slice that is allocated.",
			"Engines size their KV cache by it.",
			"Not what the engine should have reserved: it started with the wrong slice or share."},
			onePerGPU(promql.Div(slice(metrics.GPUMemoryUsed), slice(metrics.GPUMemoryTotal)), "slice {{gpu_instance_id}}")).max(1).empty("MIG is off on these GPUs.").
			runbook("BranchKVPressure").next(rules.EngineDashboard).
			notDrilled(noGPU),
	}
}
