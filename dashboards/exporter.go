package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// exporter returns the dashboard about the measurement itself, because a fault that is not measured cannot page.
func exporter() Board {
	s := scope{byExporterCluster, byExporterNode, byNamespace, byModel, bySLO}
	return Board{
		UID: rules.ExporterDashboard, Since: "now-6h", Refresh: "1m", Variables: s,
		Description: "Is everything measured? Engines that cannot be read, numbers that are missing, GPUs that hang, " +
			"objectives that count nothing.",
		Rows: []Row{
			{Title: "Now: what is not measured?", Panels: []Panel{
				listing("What is not ok", 24, About{
					"Exporters that Prometheus cannot reach; engines' metrics pages that are not read; failing libraries, discovery, XID " +
						"sources and parts of the exporter; objectives that count nothing; sources missing from a metrics page; " +
						"hanging driver calls; GPUs that the driver does not count; refused configurations.",
					"What is not measured cannot page.",
					"The reason names the remedy; docs/engines.md has more for engines.",
				},
					Query{notOK(s), ""}).
					columns(Column{metrics.LabelInstance, "node", 200, "", nil}, Column{metrics.LabelState, "what", 420, "", nil},
						Column{metrics.LabelModel, "model", 200, "", nil}, Column{metrics.LabelServer, "engine", 0, "", nil}).
					size(24, 9).empty("Nothing is reported to be wrong, or nothing is reported at all.").runbook("LLMExporterDown").
					next(rules.EngineDashboard).
					movesIn("crash-loop", "xid-79"),
			}},
			{Title: "Coverage: which numbers are there?", Panels: []Panel{
				listing("Missing numbers", 16, About{
					"Quantities that an engine does not report, with the cause.",
					"Panels that need them stay empty for that engine.",
					"If the reason names a flag, set the flag. If it names a version, upgrade the engine.",
				},
					Query{promql.CountBy([]string{metrics.LabelRuntime, metrics.LabelMetric, metrics.LabelReason},
						s.of(metrics.MetricSourceInfo, promql.Eq(metrics.LabelQuality, string(metrics.Missing)))), ""}).
					columns(Column{metrics.LabelRuntime, "runtime", 90, "", nil}, Column{metrics.LabelMetric, "metric", 0, "", nil},
						Column{metrics.LabelReason, "reason", 0, "", nil}).
					wrapped("reason").empty("No engine reports that a number is missing.").runbook("LLMSourceMetricMissing").next(rules.EngineDashboard).
					movesIn("crash-loop"),
				listing("What GPUs do not offer", 8, About{
					"Features that driver, board or permissions do not offer, with the driver's error.",
					"Panels that need them stay empty.",
					"For NO_PERMISSION, give the exporter the permissions in docs/operations.md.",
				},
					Query{promql.CountBy([]string{metrics.LabelFeature, metrics.LabelReason}, promql.Equal(s.of(metrics.GPUFeatureSupported),
						promql.Num(0))), ""}).
					columns(Column{metrics.LabelFeature, "feature", 0, "", nil}, Column{metrics.LabelReason, "reason", 0, "", nil},
						Column{"Value", "GPUs", 60, "", nil}).
					empty("No GPU reports that a feature is missing.").runbook("LLMGPUUnread").next(rules.GPUDashboard).
					notDrilled(noGPU),
			}},
			{Title: "Cost, discovery, configuration", Collapsed: true, Panels: upkeepRow(s)},
		},
	}
}

// upkeepRow shows what the measurement costs, and how old the configuration is.
func upkeepRow(s scope) []Panel {
	pageLegend := "{{runtime}} {{pod}} {{server}}"
	page := by(metrics.PageLabels, metrics.LabelRuntime)
	onNode := func(e promql.Expr, more string) Query { return Query{e, nodeLegend + " " + more} }
	return []Panel{
		lines("Time to read", seconds, 12, About{
			"Time to fetch and map each engine's metrics page, and duration of the last run of each part of the exporter and " +
				"of the last finished cycle of each GPU.",
			"It grows before scrapes time out.",
			"Above a second, the metrics page is huge, or the engine is too busy to answer.",
		},
			Query{promql.Max(page, s.of(metrics.EngineScrapeDuration)), pageLegend},
			onNode(promql.Max(by(nodes, metrics.LabelCollector), s.of(metrics.CollectorDuration)), "{{collector}}"),
			onePerGPU(promql.Max(gpus, s.of(metrics.GPUCollectDuration)), "")).bad(1, 5).runbook("LLMEngineDown").next(rules.EngineDashboard).
			notDrilled(noClock),
		lines("Size of metrics pages", octets, 12, About{
			"Size of each engine's metrics page after decompression.",
			"It grows with labels such as adapters, ranks and tenants.",
			"If it never stops growing, a label is unbounded.",
		},
			Query{promql.Max(page, s.of(metrics.EngineScrapeSize)), pageLegend}).bad(5e6, 20e6).runbook("LLMEngineDown").
			next(rules.EngineDashboard).
			notDrilled(stays),
		lines("Places where an engine may be", number, 12, About{
			"Addresses that discovery found, by state: read, silent, no engine, or left alone.",
			"An engine at a silent address is not measured.",
			"An engine that stays silent loads a model or listens elsewhere.",
		},
			Query{
				promql.Sum(by(nodes, metrics.LabelSource, metrics.LabelState), s.of(metrics.DiscoveryPlaces)),
				nodeLegend + " {{source}} {{state}}",
			}).
			empty("No source of engines here reports a place.").runbook("LLMDiscoveryFailed").next(rules.EngineDashboard).
			notDrilled(noProcess),
		lines("Configuration age", seconds, 12, About{
			"Time since each exporter loaded its configuration.",
			"Nodes that loaded at different times may have different objectives.",
			"If a configuration is older than the last rollout, its node did not get the rollout.",
		},
			onNode(promql.Sub(promql.Call("time"), promql.Max(nodes, s.of(metrics.ConfigReloadTime))), "")).
			runbook("LLMObjectiveWithoutEvents").next(rules.SLODashboard).
			notDrilled(noProcess),
	}
}

// notOK returns a row for each fault of the measurement.
func notOK(s scope) promql.Expr {
	is := func(e promql.Expr, what, from string) promql.Expr {
		return replaced(e, metrics.LabelState, what, from, "(.*)")
	}
	no := func(f *metrics.Family, what, from string) promql.Expr {
		return is(promql.Equal(s.of(f), promql.Num(0)), what, from)
	}
	because := func(f *metrics.Family, what string) promql.Expr {
		return is(spaced(promql.Equal(s.of(f), promql.Num(0)), metrics.LabelReason, key), what+": $1", metrics.LabelReason)
	}
	reached := promql.And(s.of(metrics.Up), promql.Max([]string{"job"}, promql.Over("last_over_time", s.of(metrics.ConfigReloadSuccess),
		hour)), promql.On("job"))
	// The built-in objectives are left out, because nobody declared them.
	uncounted := promql.Unless(promql.Equal(s.of(metrics.SLOCounted), promql.Num(0)),
		s.of(metrics.SLOInfo, promql.Eq(metrics.LabelOrigin, metrics.OriginDefault)), promql.On(metrics.LabelCluster, metrics.LabelSLO))
	uncounted = promql.Call("label_join", spaced(uncounted, metrics.LabelReason, key), promql.Str(metrics.LabelReason),
		promql.Str(" counts nothing: "), promql.Str(metrics.LabelSLO), promql.Str(metrics.LabelReason))
	unseen := promql.Gt(promql.Sub(promql.Max(nodes, s.of(metrics.GPUExpected)), promql.Max(nodes, s.of(metrics.GPUVisible))), promql.Num(0))
	return promql.Max(by(nodes, metrics.LabelState, metrics.LabelModel, metrics.LabelServer),
		promql.Or(is(promql.Equal(reached, promql.Num(0)), "exporter is not reached", metrics.LabelInstance),
			because(metrics.EngineUp, "engine is not read"), because(metrics.GPUNVMLUp, "NVML is not read"),
			because(metrics.GPUSourceUp, "metrics page about GPUs is not read"), because(metrics.DiscoveryUp, "discovery fails"),
			is(uncounted, "objective $1", metrics.LabelReason), no(metrics.CollectorSuccess, "$1 failed", metrics.LabelCollector),
			is(promql.Gt(s.of(metrics.GPUCollectStuck), promql.Num(0)), "driver call hangs on GPU $1", metrics.LabelGPU),
			is(unseen, "driver counts fewer GPUs than the bus", metrics.LabelInstance), because(metrics.GPUXIDSourceUp, "XIDs are not read"),
			is(promql.Gt(s.of(metrics.SourceMissing), promql.Offset(s.of(metrics.SourceMissing), 5*minute)), "source is missing: $1",
				metrics.LabelSource),
			no(metrics.ConfigReloadSuccess, "configuration is refused", metrics.LabelInstance)))
}
