package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// exporter shows the health of the measurement itself: what is not seen cannot page.
func exporter() Board {
	s := scope{byExporterCluster, byExporterNode, byNamespace, byModel, byRuntime, bySLO}
	page := by(metrics.PageLabels, metrics.LabelRuntime)
	pageLegend := "{{runtime}} {{pod}} {{server}}"
	onNode := func(e promql.Expr, more string) Query { return Query{e, nodeLegend + " " + more} }
	return Board{
		UID: rules.ExporterDashboard, Since: "now-6h", Refresh: "1m", Variables: s,
		Description: "Is everything measured? Engines that cannot be read, numbers that are missing, GPUs that hang, objectives that count nothing.",
		Rows: []Row{
			{Title: "Reach: is everything there?", Panels: []Panel{
				timeline("Scrapes of the exporters", 8, About{
					"Whether Prometheus reached each exporter.",
					"Without it nothing of the node is measured and nothing of it can page.",
					"One: look at the node. Most: look at the network policy and the last rollout."},
					good("down"), onNode(promql.Max(nodes, promql.And(s.of(metrics.Up),
						promql.Max([]string{"job"}, promql.Over("last_over_time", s.of(metrics.ConfigReloadSuccess), hour)), promql.On("job"))), "")).
					runbook("LLMExporterDown").next(rules.GPUDashboard).
					notDrilled(noProcess),
				timeline("Engines", 8, About{
					"Whether each engine's page was read, and why not.",
					"An engine that is down serves nobody; one that cannot be read hides.",
					"The reason says which; docs/engines.md has the remedy for each."},
					good("down"), Query{promql.Max(by(page, metrics.LabelReason), s.of(metrics.EngineUp)), pageLegend + " {{reason}}"}).
					empty("No engine is configured or found here.").runbook("LLMEngineDown").next(rules.EngineDashboard).
					movesIn("crash-loop", "xid-79"),
				timeline("NVML", 8, About{
					"Whether each node has loaded the NVIDIA library, or reads the page that takes its place, and if not, why.",
					"Without it nothing is known about the node's GPUs.",
					"Look at the driver, or at that page, before the exporter."},
					good("down"), onNode(promql.Or(promql.Max(by(nodes, metrics.LabelReason), s.of(metrics.GPUNVMLUp)), promql.Max(by(nodes, metrics.LabelReason), s.of(metrics.GPUSourceUp))), "{{reason}}")).
					empty("No node with GPUs.").runbook("LLMGPUUnread").next(rules.GPUDashboard).
					notDrilled(noGPU),
				timeline("Discovery", 12, About{
					"Whether each source of engines answers, and why not.",
					"While it does not, engines that start are neither measured nor able to page.",
					"forbidden: the role is gone. unreachable: the API server or a network policy."},
					good("down"), onNode(promql.Max(by(nodes, metrics.LabelSource, metrics.LabelReason), s.of(metrics.DiscoveryUp)), "{{source}} {{reason}}")).
					empty("Engines are configured, not discovered.").runbook("LLMDiscoveryFailed").next(rules.EngineDashboard).
					notDrilled(noProcess),
				lines("Places where an engine may be", number, 12, About{
					"Addresses that discovery found, by what became of them: read, silent, no engine, or left alone.",
					"An engine among the silent ones is one that nobody measures.",
					"Silent for long: it loads a model, or listens elsewhere."},
					Query{promql.Sum(by(nodes, metrics.LabelSource, metrics.LabelState), s.of(metrics.DiscoveryPlaces)), nodeLegend + " {{source}} {{state}}"}).
					empty("Engines are configured, not discovered.").runbook("LLMDiscoveryFailed").next(rules.EngineDashboard).
					notDrilled(noProcess),
			}},
			{Title: "Coverage: which numbers are there, and how good?", Panels: []Panel{
				lines("Numbers by quality", number, 8, About{
					"How many quantities each kind of engine reports: native, derived, approximate or missing.",
					"What is missing cannot be alerted on; docs/engines.md says what each release has.",
					"Native fell after a release: it renamed something."},
					Query{promql.CountBy([]string{metrics.LabelRuntime, metrics.LabelQuality},
						promql.CountBy([]string{metrics.LabelRuntime, metrics.LabelQuality, metrics.LabelMetric}, s.of(metrics.MetricSourceInfo))), "{{runtime}} {{quality}}"}).
					stacked().runbook("LLMSourceMetricMissing").next(rules.EngineDashboard).
					notDrilled(stays).steady(),
				listing("Missing numbers", 16, About{
					"Quantities that an engine does not report, and why.",
					"Panels that need them are rightly empty for that engine.",
					"A flag is named: set it. A version is named: upgrade."},
					Query{promql.CountBy([]string{metrics.LabelRuntime, metrics.LabelMetric, metrics.LabelReason},
						s.of(metrics.MetricSourceInfo, promql.Eq(metrics.LabelQuality, string(metrics.Missing)))), ""}).
					columns(Column{metrics.LabelRuntime, "runtime", 90, "", nil}, Column{metrics.LabelMetric, "metric", 0, "", nil}, Column{metrics.LabelReason, "reason", 0, "", nil}).
					empty("Every engine reports every number.").runbook("LLMSourceMetricMissing").next(rules.EngineDashboard).
					movesIn("crash-loop"),
				lines("Sources that went missing", perSecond, 8, About{
					"Scrapes per second on which a source was not on the page although this version should have it.",
					"It is the first sign of a renamed metric.",
					"Not zero: the exporter needs to learn the new name."},
					Query{s.rate([]string{metrics.LabelRuntime, metrics.LabelMetric, metrics.LabelSource}, metrics.SourceMissing), "{{runtime}} {{source}}"}).
					bad(0.001, 0.01).empty("Every source that should be there is.").runbook("LLMSourceMetricMissing").next(rules.EngineDashboard).
					notDrilled(noEngine),
				timeline("Objectives that count", 16, About{
					"Whether events of each model count for the objectives that select it, and why not.",
					"An objective that counts nothing cannot burn: it protects nobody.",
					"The reason names the missing signal: choose another or enable it in the engine."},
					good("counts nothing"),
					Query{promql.Max(by(models, metrics.LabelSLO, metrics.LabelReason), s.of(metrics.SLOCounted)), "{{slo}} {{model_name}} {{reason}}"}).
					empty("No objective is configured.").runbook("LLMObjectiveWithoutEvents").next(rules.SLODashboard).
					notDrilled(stays),
			}},
			{Title: "Cost: what does measuring take?", Panels: []Panel{
				lines("Time to read an engine", seconds, 8, About{
					"Time to fetch and map each engine's page.",
					"It grows before scrapes time out.",
					"Above a second: the page is huge, or the engine is too busy to answer."},
					Query{promql.Max(page, s.of(metrics.EngineScrapeDuration)), pageLegend}).bad(1, 5).runbook("LLMEngineDown").next(rules.EngineDashboard).
					notDrilled(noClock),
				lines("Size of pages", octets, 8, About{
					"Size of each engine's page after decompression.",
					"Pages grow with labels: adapters, ranks, tenants.",
					"Growing without end: a label is unbounded."},
					Query{promql.Max(page, s.of(metrics.EngineScrapeSize)), pageLegend}).bad(5e6, 20e6).runbook("LLMEngineDown").next(rules.EngineDashboard).
					notDrilled(stays),
				lines("Series on pages", number, 8, About{
					"Series on each engine's page, mapped or not.",
					"What reading costs the exporter; Prometheus pays only for what is mapped.",
					"Growing without end: a label is unbounded."},
					Query{promql.Max(page, s.of(metrics.EngineScrapeSeries)), pageLegend}).bad(20000, 100000).runbook("LLMEngineDown").next(rules.EngineDashboard).
					notDrilled(stays),
				lines("Collector time", seconds, 12, About{
					"Time the last run of each part of the exporter took.",
					"The slowest part decides the scrape timeout.",
					"One part far above the others: its source hangs."},
					onNode(promql.Max(by(nodes, metrics.LabelCollector), s.of(metrics.CollectorDuration)), "{{collector}}")).bad(1, 5).runbook("LLMExporterDown").next(rules.GPUDashboard).
					notDrilled(noProcess),
				timeline("Collectors", 12, About{
					"Whether the last run of each part of the exporter worked.",
					"A part that fails leaves out only its own series.",
					"Failing: the exporter's log has one line with the remedy."},
					good("failed"),
					onNode(promql.Max(by(nodes, metrics.LabelCollector), s.of(metrics.CollectorSuccess)), "{{collector}}")).runbook("LLMExporterDown").next(rules.GPUDashboard).
					notDrilled(noProcess),
			}},
			{Title: "GPUs: does the driver answer?", Panels: []Panel{
				timeline("Stuck GPUs", 8, About{
					"GPUs for which a driver call hangs.",
					"Their series are withheld: old numbers would lie.",
					"Stuck for minutes: the driver is wedged; drain the node."},
					bad("stuck"), stateOfGPU(promql.Max(gpus, s.of(metrics.GPUCollectStuck)), "")).empty("No GPUs here.").runbook("LLMGPUFailed").next(rules.GPUDashboard).
					notDrilled(noGPU),
				lines("Age of GPU values", seconds, 8, About{
					"Age of the last values of each GPU.",
					"It grows while a GPU is stuck.",
					"Above a minute: what panels show of this GPU is out of date."},
					onePerGPU(promql.Max(gpus, s.of(metrics.GPUSnapshotAge)), "")).bad(30, 60).empty("No GPUs here.").runbook("LLMGPUFailed").next(rules.GPUDashboard).
					notDrilled(noGPU),
				lines("Time to read a GPU", seconds, 8, About{
					"Time of the last finished cycle of each GPU.",
					"A failing GPU answers slowly before it stops.",
					"One slower than its neighbours: look at its XIDs."},
					onePerGPU(promql.Max(gpus, s.of(metrics.GPUCollectDuration)), "")).bad(1, 5).empty("No GPUs here.").runbook("LLMGPUFailed").next(rules.GPUDashboard).
					notDrilled(noGPU),
				lines("GPUs expected and visible", number, 8, About{
					"GPUs that the PCI bus has, and GPUs that the driver counts.",
					"A difference is a GPU that nobody else misses.",
					"Different: restart the machine, then look at power and slot."},
					onNode(promql.Max(nodes, s.of(metrics.GPUExpected)), "on the bus"), onNode(promql.Max(nodes, s.of(metrics.GPUVisible)), "visible")).
					runbook("LLMGPUUnread").next(rules.GPUDashboard).
					notDrilled(stays),
				timeline("XID sources", 8, About{
					"Whether driver errors are read from NVML and from the kernel log.",
					"Without both, some XIDs are never seen.",
					"Down: the reason names the permission that is missing."},
					good("down"), onNode(promql.Max(by(nodes, metrics.LabelSource, metrics.LabelReason), s.of(metrics.GPUXIDSourceUp)), "{{source}} {{reason}}")).
					runbook("LLMGPUFailed").next(rules.GPUDashboard).
					notDrilled(noGPU),
				listing("What GPUs do not offer", 8, About{
					"Features that driver, board or permissions do not offer, and the driver's word for why.",
					"Panels that need them are rightly empty.",
					"NO_PERMISSION: give the exporter what its manual lists."},
					Query{promql.CountBy([]string{metrics.LabelFeature, metrics.LabelReason}, promql.Equal(s.of(metrics.GPUFeatureSupported), promql.Num(0))), ""}).
					columns(Column{metrics.LabelFeature, "feature", 0, "", nil}, Column{metrics.LabelReason, "reason", 0, "", nil}, Column{"Value", "GPUs", 60, "", nil}).
					empty("Every feature is offered.").runbook("LLMGPUUnread").next(rules.GPUDashboard).
					notDrilled(noGPU),
			}},
			{Title: "Configuration", Collapsed: true, Panels: []Panel{
				timeline("Configuration loaded", 12, About{
					"Whether the last attempt to load the configuration worked.",
					"When it did not, the previous one is in use: a new objective does not count.",
					"Failed: the exporter's log names the line."},
					good("refused"), onNode(promql.Max(nodes, s.of(metrics.ConfigReloadSuccess)), "")).
					runbook("LLMObjectiveWithoutEvents").next(rules.SLODashboard).
					notDrilled(noProcess),
				lines("Configuration age", duration, 12, About{
					"Time since each exporter loaded its configuration.",
					"Nodes that loaded at different times may have different objectives.",
					"Older than the last rollout: that node did not get it."},
					onNode(promql.Sub(promql.Call("time"), promql.Max(nodes, s.of(metrics.ConfigReloadTime))), "")).runbook("LLMObjectiveWithoutEvents").next(rules.SLODashboard).
					notDrilled(noProcess),
			}},
		},
	}
}
