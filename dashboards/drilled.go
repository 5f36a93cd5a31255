package dashboards

import (
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Drill links an incident of the drill to the panels that it moves, by dashboard and title. TestDrill plays the
// incident and checks these lists against the queries.
type Drill struct {
	// Incident is the name of the incident.
	Incident string
	// Moves lists the panels that must change after the onset; others may.
	Moves Titles
	// Still lists the panels that point at other causes and must not move.
	Still Titles
}

// Titles lists panels by dashboard.
type Titles map[rules.Dashboard][]string

// The panels that every incident moves when it burns a budget.
var (
	burning = []string{"Burn rate, 5 minutes", "Burn rate by window", "Bad events", "Bad events by node", "Firing alerts", "Alerts over time", "Where to look first"}
	spent   = []string{"Least budget left", "Fastest burn, 1 hour", "Budget alerts firing", "Budget burn-down",
		"Burn rate, fast window", "Burn rate, slow window", "Bad events", "Bad share over the period", "Budget alerts", "Causes"}
)

// The branches of a diagnosis on the incident dashboard, for incidents that leave them alone.
var (
	memoryPanels  = []string{"Preemptions"}
	cachePanels   = []string{"Prefix cache hits"}
	gpuPanels     = []string{"Throttling now", "Time throttled", "SM clock against its maximum", "XIDs in the last hour"}
	releasePanels = []string{"Replicas by version", "Time since start"}
)

// Drilled lists the incidents that show that panels have data and move.
var Drilled = []Drill{
	{"traffic-burst",
		Titles{
			rules.IncidentDashboard: slices.Concat(burning, []string{"Budget left", "Budget gone in", "Time to first token, p95", "Queue share of TTFT", "KV cache in use, fullest replica",
				"TTFT p95 by replica", "Waiting by replica"}),
			rules.SLODashboard:    slices.Concat(spent, []string{"Budget gone in", "Events", "Time to first token, p95", "Request duration, p95"}),
			rules.EngineDashboard: {"TTFT distribution", "Time to first token", "Tokens", "Steps by replica", "Running and waiting", "Time in the queue, p95", "Batch by replica", "KV cache in use"},
			FleetDashboard: {"Generated tokens per second", "Requests waiting", "Fullest KV cache", "Tokens per second per GPU", "Generated tokens",
				"Cost of 1,000 generated tokens", "KV cache headroom", "Batch per replica", "Waiting per replica", "Waiting over running", "Burn rate, 1 hour",
				"Prompt tokens", "Time to first token, p95"},
		},
		Titles{rules.IncidentDashboard: slices.Concat(memoryPanels, cachePanels, gpuPanels, releasePanels)}},
	{"long-prompts",
		Titles{
			rules.IncidentDashboard: slices.Concat(burning, []string{"Time to first token, p95", "Decode share of a request"}),
			rules.EngineDashboard:   {"Prompt length", "Prefill time, p95", "Tokens", "Running and waiting"},
			FleetDashboard:          {"Prompt tokens"},
		},
		Titles{rules.IncidentDashboard: slices.Concat(memoryPanels, cachePanels, gpuPanels, releasePanels)}},
	{"prefix-collapse",
		Titles{
			rules.IncidentDashboard: slices.Concat(burning, []string{"Time to first token, p95", "Prefill share of TTFT", "Prefix cache hits", "TTFT p95 by replica"}),
			rules.EngineDashboard:   {"Prefix cache hits", "TTFT distribution", "Prefill time, p95"},
		},
		Titles{rules.IncidentDashboard: slices.Concat(memoryPanels, gpuPanels, releasePanels), rules.EngineDashboard: {"Prompt length"}}},
	{"kv-thrash",
		Titles{
			rules.IncidentDashboard: slices.Concat(burning, []string{"Inter-token latency, p95", "KV cache in use, fullest replica", "Preemptions", "Waiting by replica"}),
			rules.EngineDashboard:   {"KV cache in use", "Preemptions", "Output length", "Goodput", "Decode time, p95", "Request duration"},
			FleetDashboard:          {"Fullest KV cache", "KV cache headroom"},
		},
		Titles{rules.IncidentDashboard: slices.Concat(cachePanels, gpuPanels, releasePanels)}},
	{"kv-transfer-failures",
		Titles{
			rules.IncidentDashboard: slices.Concat(burning, []string{"Time to first token, p95", "Queue share of TTFT"}),
			rules.EngineDashboard:   {"KV transfers failed", "KV bytes moved", "Waiting by reason", "Running and waiting"},
		},
		Titles{rules.IncidentDashboard: slices.Concat(memoryPanels, cachePanels, gpuPanels, releasePanels), rules.EngineDashboard: {"Prompt length"}}},
	{"offload-saturated",
		Titles{
			rules.IncidentDashboard: {"Firing alerts"},
			rules.EngineDashboard:   {"KV tier traffic", "KV tier pinned", "Prefix cache hits"},
			rules.SLODashboard:      {"Causes"},
		},
		Titles{rules.IncidentDashboard: slices.Concat(memoryPanels, cachePanels, gpuPanels, releasePanels)}},
	{"speculation-collapse",
		Titles{rules.IncidentDashboard: {"Firing alerts"}, rules.EngineDashboard: {"Speculation accepted", "Inter-token latency"}, rules.SLODashboard: {"Causes"}},
		Titles{rules.IncidentDashboard: slices.Concat(memoryPanels, cachePanels, gpuPanels, releasePanels)}},
	{"rejections",
		Titles{
			rules.IncidentDashboard: slices.Concat(burning, []string{"Waiting by replica"}),
			rules.EngineDashboard:   {"Requests by outcome", "Running and waiting", "Cost of 1,000 generated tokens"},
			FleetDashboard:          {"Requests by outcome", "Waiting per replica"},
		},
		Titles{rules.IncidentDashboard: gpuPanels}},
	{"bad-release",
		Titles{
			rules.IncidentDashboard: slices.Concat(burning, []string{"Time to first token, p95", "Inter-token latency, p95"}, releasePanels),
			rules.SLODashboard:      slices.Concat(spent, []string{"Inter-token latency, p95"}),
			rules.EngineDashboard:   {"ITL distribution", "Inter-token latency", "Goodput", "Time per output token, p95"},
			rules.GPUDashboard:      {"SM, tensor and kernel activity"},
		},
		Titles{rules.IncidentDashboard: slices.Concat(memoryPanels, cachePanels, gpuPanels)}},
	{"crash-loop",
		Titles{
			rules.IncidentDashboard: {"Replicas by version", "Time since start", "Firing alerts"},
			rules.GPUDashboard:      {"SM, tensor and kernel activity", "Temperature"},
			FleetDashboard:          {"Replicas"},
			rules.ExporterDashboard: {"Engines", "Missing numbers"},
		},
		Titles{rules.IncidentDashboard: slices.Concat(memoryPanels, cachePanels, gpuPanels)}},
	{"thermal-throttle",
		Titles{
			rules.IncidentDashboard: slices.Concat(burning, []string{"Inter-token latency, p95", "Throttling now", "Time throttled", "SM clock against its maximum"}),
			rules.SLODashboard:      spent,
			rules.EngineDashboard:   {"ITL distribution", "Inter-token latency", "Goodput", "Time per output token, p95", "Decode time, p95"},
			rules.GPUDashboard:      {"Clock events", "Temperature", "Degrees left", "Clocks"},
			FleetDashboard:          {"Tokens per second per GPU", "Cost of 1,000 generated tokens"},
		},
		Titles{rules.IncidentDashboard: slices.Concat(memoryPanels, cachePanels, releasePanels, []string{"XIDs in the last hour"})}},
	{"xid-79",
		Titles{
			rules.IncidentDashboard: {"XIDs in the last hour", "Replicas by version", "Firing alerts"},
			rules.GPUDashboard:      {"GPU answers", "XIDs per hour", "What the XIDs mean"},
			FleetDashboard:          {"Replicas"},
			rules.ExporterDashboard: {"Engines"},
		},
		Titles{rules.IncidentDashboard: slices.Concat(memoryPanels, cachePanels, []string{"Throttling now", "Time throttled"})}},
	{"row-remap-pending",
		Titles{rules.IncidentDashboard: {"Firing alerts"}, rules.GPUDashboard: {"ECC errors per hour", "Repairs"}},
		Titles{rules.IncidentDashboard: slices.Concat(memoryPanels, cachePanels, gpuPanels, releasePanels)}},
	{"repair-pending",
		Titles{rules.IncidentDashboard: {"Firing alerts", "XIDs in the last hour"}, rules.GPUDashboard: {"Repairs", "Recovery action asked for"}},
		Titles{rules.IncidentDashboard: slices.Concat(memoryPanels, cachePanels, releasePanels, []string{"Throttling now", "Time throttled"})}},
}

// Why the drill leaves a panel, or one of its lines, without data or unchanged.
const (
	noGPU      = "the drill's GPUs say nothing of it"
	noEngine   = "the drill's engines do not do it"
	noProcess  = "it is about the exporter's process, which the drill does not run"
	noClock    = "it takes real time, which does not pass in the drill"
	identity   = "what is there stays there in the drill"
	noneOfThem = "the drill has no objective on it"
)

// Undrilled lists the panels that no incident of Drilled covers, or covers only in part, and why. Tests show them
// with invented series instead: see dashboards/world_test.go.
var Undrilled = map[rules.Dashboard]map[string]string{
	rules.IncidentDashboard: {"Memory bandwidth in use": noGPU},
	rules.SLODashboard: {"Request duration, p95": noneOfThem, "Objectives kept": "an hour does not spend a month's budget",
		"Left out for maintenance": "no incident happens in a declared interval"},
	rules.EngineDashboard: {
		"KV cache capacity": identity, "Time per output token, p95": noneOfThem,
		"LoRA adapters in use": noEngine, "Asleep": noEngine, "KV transfers, p95": noEngine,
		"KV tier hits": noEngine, "KV tier pinned": noEngine, "KV tier refusals and failures": noEngine,
		"Cold start": noEngine,
	},
	rules.GPUDashboard: {
		"Missing GPUs": noGPU, "SM, tensor and kernel activity": noGPU, "Memory bandwidth against peak": noGPU, "Memory busy": noGPU,
		"Device memory": noGPU, "Pipes": noGPU, "SM occupancy": noGPU, "Power against limit": noGPU, "Power": noGPU, "Fans": noGPU, "Repairs": noGPU,
		"Rows remapped, pages retired": noGPU, "Banks by spare rows left": noGPU, "PCIe traffic": noGPU, "PCIe lanes": noGPU,
		"PCIe errors and replays": noGPU, "NVLink traffic": noGPU, "NVLinks": noGPU, "NVLink errors": "links wear for an hour before a ticket", "Fabric": "no check fails in the drill",
		"Engines on these GPUs": identity, "Boards": noGPU, "Processes": noGPU, "Memory by container": noGPU, "MIG devices": noGPU,
		"SM activity by MIG slice": noGPU, "Memory by MIG slice": noGPU,
	},
	FleetDashboard: {"GPUs that serve": identity},
	rules.ExporterDashboard: {
		"Scrapes of the exporters": noProcess, "Discovery": noProcess, "Places where an engine may be": noProcess, "NVML": noGPU, "Numbers by quality": identity, "Sources that went missing": noEngine,
		"Objectives that count": identity, "Time to read an engine": noClock, "Size of pages": identity, "Series on pages": identity,
		"Collector time": noProcess, "Collectors": noProcess, "Stuck GPUs": noGPU, "Age of GPU values": noGPU, "Time to read a GPU": noGPU,
		"GPUs expected and visible": identity, "XID sources": noGPU, "What GPUs do not offer": noGPU,
		"Configuration loaded": noProcess, "Configuration age": noProcess,
	},
}

// MovedIn returns the incidents of the drill that must move a panel.
func MovedIn(board rules.Dashboard, title string) []string {
	var incidents []string
	for _, d := range Drilled {
		if slices.Contains(d.Moves[board], title) {
			incidents = append(incidents, d.Incident)
		}
	}
	return incidents
}
