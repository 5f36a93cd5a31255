package dashboards

import (
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// gpuNode returns the dashboard about the GPUs of a node, whatever programs use them.
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
			{Title: "Who uses it: engines, containers", Collapsed: true, Panels: usersRow(s)},
		},
	}
}

// onePerGPU returns a query with one result per GPU, or per part of a GPU that the legend names.
func onePerGPU(e promql.Expr, parts string) Query {
	return Query{e, strings.TrimSpace("gpu {{gpu}} "+parts) + " {{instance}}"}
}

// ofNode returns a limit that hardly changes, as one line per node. fold combines the values of the node's GPUs.
func ofNode(fold func([]string, promql.Expr) promql.Expr, e promql.Expr, what string) Query {
	return Query{fold(nodes, e), "limit, " + what + " " + nodeLegend}
}

// stateOfGPU returns a query for the rows of GPUs in a timeline.
func stateOfGPU(e promql.Expr, what string) Query {
	return Query{e, strings.TrimSpace(nodeOfRow + "gpu {{gpu}} " + what)}
}

func healthRow(s scope) []Panel {
	conditions := spaced(promql.Max(slices.Concat(nodes, []string{
		metrics.LabelGPU, metrics.LabelPCIBusID, metrics.LabelVerdict, metrics.LabelCondition, metrics.LabelMeaning, metrics.LabelAction,
	}), s.of(metrics.GPUHealthCondition)), metrics.LabelCondition, key)
	xid := by(gpus, metrics.LabelXID)
	xids := promql.Mul(promql.Gt(promql.Sum(xid, s.of(metrics.GPUXIDErrors)), promql.Num(0)),
		promql.TopK(1, []string{metrics.LabelXID}, promql.Max([]string{
			metrics.LabelXID, metrics.LabelSeverity, metrics.LabelMeaning, metrics.LabelAction,
		}, s.of(metrics.GPUXIDInfo))), promql.On(metrics.LabelXID).ManyToOne(metrics.LabelSeverity, metrics.LabelMeaning, metrics.LabelAction))
	return []Panel{
		listing("Needs a person", 24, About{
			"The conditions that make a GPU, or what the GPUs of a node share, unhealthy, the worst first, and what to do. " +
				"docs/health.md describes when each begins and ends.",
			"Some of them only appear as slow models.",
			"From drain on, start nothing new on the GPU. From reset on, also move what runs there.",
		},
			Query{ranked(conditions, metrics.LabelVerdict, metrics.Replace.String(), metrics.Reset.String(), metrics.Drain.String()), ""}).
			columns(Column{metrics.LabelInstance, "node", 170, "", nil}, Column{metrics.LabelGPU, "GPU", 50, "", nil},
				Column{metrics.LabelVerdict, "verdict", 90, "", nil},
				Column{metrics.LabelCondition, "condition", 200, "", nil}, Column{metrics.LabelMeaning, "what", 0, "", nil},
				Column{metrics.LabelAction, "what to do", 0, "", nil}).
			smallest(metrics.LabelOrder).wrapped("node", "what", "what to do").size(24, 6).
			empty("No GPU has a condition, or none is read.").runbook("LLMGPUFailed").next(rules.IncidentDashboard).
			movesIn("xid-79", "row-remap-pending", "repair-pending"),
		listing("What the XIDs mean", 24, About{
			"The XIDs of each GPU since the exporter started, the most urgent first, with their meaning and what to do. 13, 31, 43 and 45 come " +
				"from the application, and most others from the hardware.",
			"An XID's number alone does not show what to do.",
			"If the severity is page, take the GPU out of service now.",
		},
			Query{ranked(xids, metrics.LabelSeverity, string(metrics.XIDPage), string(metrics.XIDTicket), string(metrics.XIDApp)), ""}).
			columns(Column{metrics.LabelXID, "XID", 60, "", nil}, Column{metrics.LabelInstance, "node", 150, "", nil},
				Column{metrics.LabelGPU, "GPU", 50, "", nil}, Column{"Value", "times", 70, "", nil},
				Column{metrics.LabelSeverity, "severity", 90, "", nil}, Column{metrics.LabelMeaning, "meaning", 0, "", nil},
				Column{metrics.LabelAction, "what to do", 0, "", nil}).
			smallest(metrics.LabelOrder).wrapped("node", "meaning", "what to do").size(24, 6).
			empty("No XID was seen, or XIDs are not read.").runbook("LLMGPUFailed").next(rules.IncidentDashboard).
			movesIn("xid-79"),
	}
}

func busyRow(s scope) []Panel {
	used := promql.Mul(s.perGPU(metrics.GPUMemoryBandwidthUtilization), s.perGPU(metrics.GPUMemoryBandwidthPeak))
	return []Panel{
		lines("SM, tensor and kernel activity", share, 8, About{
			"Share of busy SMs, of the GPU and of each of its MIG slices; share of time in tensor operations; share of time with any kernel at " +
				"all.",
			"nvidia-smi calls the last one utilisation. At 100%, the GPU may be almost idle with one small kernel.",
			"High SM activity with low tensor activity means decode or a bad kernel. If both are low, the GPU waits for work.",
		},
			onePerGPU(promql.Max(by(gpus, metrics.LabelGPUInstance), s.of(metrics.GPUSMActive)), "SM {{gpu_instance_id}}"),
			onePerGPU(s.perGPU(metrics.GPUTensorActive), "tensor"), onePerGPU(s.perGPU(metrics.GPUUtilization), "kernel")).
			max(1).ranked().runbook("BranchLargeBatch").next(rules.EngineDashboard).
			movesIn("bad-release", "crash-loop").notDrilled(noGPU),
		lines("Memory bandwidth against peak", bandwidth, 8, About{
			"Bytes per second to and from device memory, and the peak of the node's best board.",
			"The peak limits decode.",
			"Near the peak, a larger batch only adds latency.",
		},
			onePerGPU(used, "used")).limits(ofNode(promql.Max, s.of(metrics.GPUMemoryBandwidthPeak), "peak")).
			empty("No GPU reports this. It needs Hopper or newer.").runbook("BranchLargeBatch").next(rules.EngineDashboard).
			notDrilled(noGPU),
		lines("Device memory", octets, 8, About{
			"Memory allocated by clients and reserved by the driver, and the total of the node's largest GPU.",
			"Engines reserve most of it at start, so full memory is normal and no sign of pressure.",
			"Look at the KV cache of the engine instead.",
		},
			onePerGPU(s.perGPU(metrics.GPUMemoryUsed), "used"), onePerGPU(s.perGPU(metrics.GPUMemoryReserved), "reserved")).
			limits(ofNode(promql.Max, s.of(metrics.GPUMemoryTotal, promql.Eq(metrics.LabelGPUInstance, "")), "in all")).
			runbook("BranchKVPressure").next(rules.EngineDashboard).
			notDrilled(noGPU),
	}
}

func powerRow(s scope) []Panel {
	limit := s.perGPU(metrics.GPUPowerLimit, promql.Eq(metrics.LabelKind, "enforced"))
	return []Panel{
		lines("Temperature", celsius, 8, About{
			"Temperature of the chip and of its memory.",
			"On most boards memory gets too hot before the chip does.",
			"If one GPU is hotter than its neighbours, check airflow and paste. If all are hot, check the room.",
		},
			onePerGPU(promql.Max(by(gpus, metrics.LabelSensor), s.of(metrics.GPUTemperature)), "{{sensor}}")).bad(80, 90).
			runbook("LLMGPUSlowed").next(rules.IncidentDashboard).
			movesIn("crash-loop", "thermal-throttle"),
		lines("Degrees left", celsius, 8, About{
			"Degrees below each limit: slowdown, shutdown, memory and chip maximum.",
			"Limits differ between boards, but the margin is comparable.",
			"Below 5, the GPU will throttle next, so move load away.",
		},
			onePerGPU(promql.Min(by(gpus, metrics.LabelLimit), s.of(metrics.GPUTemperatureMargin)), "{{limit}}")).low(2, 5).
			runbook("LLMGPUSlowed").next(rules.IncidentDashboard).
			movesIn("thermal-throttle"),
		lines("Power against limit", share, 8, About{
			"Power drawn as a share of the limit in force, now and as the mean from the energy counter.",
			"At 1, the software cap lowers clocks. This is normal under prefill, but expensive under decode.",
			"If it is always at 1, raise the limit, or accept the clocks.",
		},
			onePerGPU(promql.Div(s.perGPU(metrics.GPUPower, promql.Eq(metrics.LabelScope, "gpu")), limit), "now"),
			onePerGPU(promql.Div(s.gpuRate(metrics.GPUEnergy), limit), "mean")).
			bad(0.95, 1).runbook("LLMGPUSlowed").next(rules.IncidentDashboard).
			notDrilled(noGPU),
		timeline("Clock events", 12, About{
			"When the driver lowered the clocks, by reason. Idle and a power cap by software are left out: they are normal.",
			"Throttling appears as slow models, not as errors.",
			"For an hw_ reason, look at temperature and power.",
		},
			bad("active"), stateOfGPU(promql.Max(by(gpus, metrics.LabelReason), between(
				s.of(metrics.GPUClockEventActive, promql.Re(metrics.LabelReason, rules.HarmfulReasons)))), "{{reason}}")).
			runbook("LLMGPUSlowed").next(rules.IncidentDashboard).
			size(12, 10).movesIn("thermal-throttle"),
		lines("Clocks", hertz, 12, About{
			"Current clock of each domain, the lowest first, and the lowest memory clock of each node.",
			"Prefill follows the SM clock, decode the memory clock.",
			"A GPU below its neighbours under the same load is throttled.",
		},
			onePerGPU(promql.Max(by(gpus, metrics.LabelDomain), s.of(metrics.GPUClock, promql.Ne(metrics.LabelDomain, "memory"))), "{{domain}}")).
			limits(ofNode(promql.Min, s.of(metrics.GPUClock, promql.Eq(metrics.LabelDomain, "memory")), "memory")).lowest().
			runbook("LLMGPUSlowed").next(rules.IncidentDashboard).
			movesIn("thermal-throttle").notDrilled(noGPU),
	}
}

func eccRow(s scope) []Panel {
	errors := func(severity string) Query {
		return onePerGPU(s.lastHour(by(gpus, metrics.LabelSeverity, metrics.LabelLocation), metrics.GPUECCErrors, promql.Eq(metrics.LabelLifetime,
			"volatile"), promql.Eq(metrics.LabelSeverity, severity)), "{{severity}} {{location}}")
	}
	return []Panel{
		lines("ECC errors per hour", number, 12, About{
			"Corrected and uncorrected memory errors in the last hour, by where they were found. A GPU that has just appeared shows " +
				"all errors since its driver was loaded.",
			"Corrected errors are a warning. An uncorrected error ends the process that used the memory.",
			"After an uncorrected error, reset the GPU at the next opportunity, and see whether the error returns.",
		},
			errors("uncorrected"), errors("corrected")).
			bad(1, 10).ranked().empty("No GPU reports ECC. No board here has it, it is off, or the exporter reads no GPU.").
			runbook("LLMGPUNeedsService").next(rules.IncidentDashboard).
			movesIn("row-remap-pending"),
		lines("Rows remapped, pages retired", number, 12, About{
			"Memory rows that were replaced by spare rows, and memory pages retired on older boards, by cause.",
			"Growth means that the board ages.",
			"Compare with the spare rows below.",
		},
			onePerGPU(promql.Sum(by(gpus, metrics.LabelCause), s.of(metrics.GPURemappedRows)), "rows {{cause}}"),
			onePerGPU(promql.Sum(by(gpus, metrics.LabelCause), s.of(metrics.GPURetiredPages)), "pages {{cause}}")).
			bad(1, 8).runbook("LLMGPUNeedsService").next(rules.IncidentDashboard).
			notDrilled(noGPU),
	}
}

func linkRow(s scope) []Panel {
	below := func(f *metrics.Family) promql.Expr {
		return promql.Max(gpus, promql.Lt(s.of(f, promql.Eq(metrics.LabelState, "current")), s.of(f, promql.Eq(metrics.LabelState, "max")),
			promql.Ignoring(metrics.LabelState)))
	}
	return []Panel{
		lines("Traffic of links", bandwidth, 8, About{
			"Bytes per second over PCIe in both directions, and payload over all NVLinks of a GPU.",
			"Serving needs little PCIe traffic. Tensor parallelism uses NVLink for every token, and all GPUs of a model should look alike there.",
			"Steady PCIe traffic in service means that something does not fit into GPU memory. If one GPU differs, look at its links.",
		},
			onePerGPU(s.gpuRate(metrics.GPUPCIeTransmit), "PCIe sent"), onePerGPU(s.gpuRate(metrics.GPUPCIeReceive), "PCIe received"),
			onePerGPU(s.gpuRate(metrics.GPUNVLinkTransmit), "NVLink sent"), onePerGPU(s.gpuRate(metrics.GPUNVLinkReceive), "NVLink received")).
			runbook("LLMGPULinkFault").next(rules.EngineDashboard).
			notDrilled(noGPU),
		lines("PCIe lanes and generation", none, 8, About{
			"GPUs that use fewer PCIe lanes, or a lower generation, than they could.",
			"Fewer lanes than possible mean a bad slot, riser or cable. The generation drops on idle links. If it stays low under load, the " +
				"link cannot retrain.",
			"If a link is narrow or slow under load, reseat the board in the next window.",
		},
			onePerGPU(below(metrics.GPUPCIeLinkWidth), "lanes"), onePerGPU(below(metrics.GPUPCIeLinkGeneration), "generation")).
			empty("No PCIe link is below what it can be, or none is read.").runbook("LLMGPULinkFault").next(rules.IncidentDashboard).
			notDrilled(noGPU),
		lines("Errors of links", perSecond, 8, About{
			"Packets that PCIe sent again, and errors of PCIe and of each NVLink by type.",
			"Replays cost time. Many replays often come before a GPU is lost.",
			"If it stays above zero, reseat or replace the board.",
		},
			onePerGPU(s.gpuRate(metrics.GPUPCIeReplays), "replays"), onePerGPU(s.gpuRate(metrics.GPUPCIeErrors, metrics.LabelType), "PCIe {{type}}"),
			onePerGPU(s.gpuRate(metrics.GPUNVLinkErrors, metrics.LabelLink, metrics.LabelType), "link {{link}} {{type}}")).bad(0.1, 1).
			runbook("LLMGPULinkFault").next(rules.IncidentDashboard).
			notDrilled(noGPU),
	}
}

func usersRow(s scope) []Panel {
	engine := by(gpus, metrics.LabelRuntime, metrics.LabelModel, metrics.LabelNamespace, metrics.LabelPod, metrics.LabelServer,
		metrics.LabelSource)
	identity := by(gpus, metrics.LabelGPUName, metrics.LabelPCIBusID, metrics.LabelSerial, metrics.LabelVBIOSVersion)
	return []Panel{
		listing("Engines on these GPUs", 24, About{
			"Which engine runs on which GPU, and how that is known.",
			"It shows which model a bad GPU affects.",
			"If an engine is missing here, see Exporter health.",
		},
			Query{promql.Max(engine, s.of(metrics.EngineGPUInfo)), ""}).
			columns(Column{metrics.LabelGPU, "GPU", 45, "", nil}, Column{metrics.LabelInstance, "node", 0, "", nil},
				Column{metrics.LabelModel, "model", 0, "", nil}, Column{metrics.LabelPod, "pod", 0, "", nil}, Column{
					metrics.LabelServer, "server",
					0, "", nil,
				}, Column{metrics.LabelSource, "known by", 100, "", nil}).
			size(24, 6).empty("No engine is known to use these GPUs.").runbook("BranchThrottledGPU").next(rules.EngineDashboard).
			notDrilled(stays).steady(),
		listing("Boards", 24, About{
			"Name, address, serial number and firmware of each GPU.",
			"The vendor asks for these data in a hardware case.",
			"If firmware differs within a node, update it in the next window.",
		},
			Query{promql.Max(identity, s.of(metrics.GPUInfo)), ""}).
			columns(Column{metrics.LabelGPU, "GPU", 45, "", nil}, Column{metrics.LabelInstance, "node", 0, "", nil},
				Column{metrics.LabelGPUName, "name", 0, "", nil}, Column{metrics.LabelPCIBusID, "address", 0, "", nil},
				Column{metrics.LabelSerial, "serial number", 0, "", nil}, Column{metrics.LabelVBIOSVersion, "firmware", 0, "", nil}).
			size(24, 6).runbook("LLMGPUFailed").next(rules.ExporterDashboard).
			notDrilled(noGPU).steady(),
		lines("Persistence mode", none, 12, About{
			"Whether the driver keeps each GPU initialised without any process (1).",
			"Without it, counters and settings are lost when the last process ends.",
			"0: start nvidia-persistenced.",
		},
			onePerGPU(s.perGPU(metrics.GPUPersistenceMode), "")).low(0.5, 1).max(1).runbook("LLMGPUNeedsService").next(rules.ExporterDashboard).
			notDrilled(noGPU),
		lines("Memory by container", octets, 12, About{
			"Device memory used by the processes of each container.",
			"It shows who uses the memory.",
			"Look up unknown containers on the node.",
		},
			onePerGPU(promql.Sum(by(gpus, metrics.LabelContainerID), s.of(metrics.GPUContainerMemory)), "{{container_id}}")).
			runbook("LLMEngineCrashLoop").next(rules.EngineDashboard).
			notDrilled(noGPU),
	}
}
