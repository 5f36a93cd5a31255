package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// fleet returns the dashboard for planning. It covers weeks and all models, and reads only recorded series.
func fleet() Board {
	s := scope{byCluster, byNamespace, byModel}
	return Board{
		UID: FleetDashboard, Since: "now-7d", Refresh: "5m", Variables: s,
		Description: "How much the fleet serves, how much more it could serve, and what it costs.",
		Rows: []Row{
			{Title: "Efficiency: what does a GPU deliver?", Panels: efficiencyRow(s)},
			{Title: "Headroom: how much more can it take?", Panels: headroomRow(s)},
		},
	}
}

// onePerModel returns a query with one result per model.
func onePerModel(e promql.Expr) Query { return Query{e, modelLegend} }

// efficiencyRow shows how many tokens a GPU generates, and how much money and energy they cost.
func efficiencyRow(s scope) []Panel {
	tokens, gpuCount := s.of(metrics.RecordedGenerationTokens), s.of(metrics.RecordedModelGPUs)
	cost := promql.Max(models, s.of(metrics.RecordedCostPerMillion, promql.Eq(metrics.LabelCostBasis, "allocation"),
		promql.Eq(metrics.LabelPhase, "generation")))
	return []Panel{
		lines("Tokens per second per GPU", tokenRate, 8, About{
			"Generated tokens per second divided by the GPUs of the model.",
			"Use it to compare engines, releases and boards.",
			"At the same load, a fall means a release, a smaller batch, or throttling.",
		},
			onePerModel(promql.Div(tokens, gpuCount))).
			empty("No tokens at any point of this graph, or no GPU is known to serve a model.").runbook("LLMReleaseRegression").
			next(rules.EngineDashboard).
			movesIn("traffic-burst", "thermal-throttle"),
		lines("Cost of 1,000,000 tokens", number, 8, About{
			"What a million generated tokens cost: the part of the price of the model's GPUs that goes into decode. A second line counts only " +
				"tokens of requests that met every latency objective.",
			"Nights are expensive, because idle replicas cost as much as busy ones. Tokens that come too late raise the cost of those in time.",
			"Compare models before buying hardware.",
		},
			onePerModel(cost), Query{
				promql.Mul(cost, promql.Div(tokens, promql.Gt(s.of(metrics.RecordedGoodTokens), promql.Num(0)))),
				"of those in time " + modelLegend,
			}).
			empty("No exporter has the price of a GPU hour (gpu_hour_price in its configuration), or there were no tokens.").
			runbook("BranchLargeBatch").next(rules.EngineDashboard).
			movesIn("traffic-burst", "thermal-throttle"),
		lines("Energy per 1,000 tokens", joules, 8, About{
			"Energy of the model's GPUs per thousand generated tokens.",
			"An idle GPU draws power, too, so the number falls as the batch grows.",
			"At the same load, a rise means a release, or a slower GPU.",
		},
			onePerModel(promql.Mul(promql.Num(1000), s.of(metrics.RecordedEnergyPerToken)))).
			empty("No tokens at any point of this graph, or no GPU reports its energy.").runbook("BranchLargeBatch").next(rules.GPUDashboard).
			movesIn("traffic-burst"),
	}
}

// headroomRow shows how far each model is from its limits, and how many replicas it has.
func headroomRow(s scope) []Panel {
	running, waiting, count := s.of(metrics.RecordedRunning), s.of(metrics.RecordedWaiting), s.of(metrics.RecordedReplicas)
	return []Panel{
		lines("Load against capacity", share, 8, About{
			"Requests that arrive, as a share of the load at which the model misses its first latency objective. Exporters learn this from the " +
				"day's load.",
			"It shows how much more load a model can take, with its present prompts and answers, before anybody waits.",
			"Above 80% at the daily peak, add a replica. llm_engine_capacity_limit_info names what will limit it.",
		},
			onePerModel(promql.Max(models, s.of(metrics.RecordedUtilisation, promql.Eq(metrics.LabelKind, "expected"))))).bad(0.8, 1).
			empty("No engine's capacity is known at any point of this graph. llm_engine_capacity_known has the cause.").
			runbook("BranchQueueing").next(rules.EngineDashboard).
			movesIn("traffic-burst"),
		lines("KV cache headroom", share, 8, About{
			"Share of the KV cache that is free on the fullest replica of each model.",
			"Requests queue when no KV cache is free, even if the GPUs are not busy.",
			"Below 10% at the daily peak, add a replica, or cap context.",
		},
			onePerModel(promql.Sub(promql.Num(1), s.of(metrics.RecordedKVCacheUsage)))).
			low(0.1, 0.2).max(1).runbook("BranchKVPressure").next(rules.EngineDashboard).
			movesIn("traffic-burst", "kv-thrash"),
		lines("Generated tokens", tokenRate, 8, About{
			"Generated tokens per second by model.",
			"It is the demand that was met.",
			"Autoscaling has to follow its daily shape.",
		},
			onePerModel(s.of(metrics.RecordedGenerationTokens))).stacked().runbook("BranchQueueing").next(rules.EngineDashboard).
			movesIn("traffic-burst"),
		lines("Batch per replica", number, 8, About{
			"Running requests per replica.",
			"Its ceiling is the batch limit; throughput stops growing there.",
			"If it is flat at the top every day, the model needs another replica.",
		},
			onePerModel(promql.Div(running, count))).runbook("BranchLargeBatch").next(rules.EngineDashboard).
			movesIn("traffic-burst"),
		lines("Waiting per replica", number, 8, About{
			"Requests waiting, per replica.",
			"It rises before latency does.",
			"To scale, use model:llm_desired_replicas:count, which rises before anybody waits. Do not use GPU utilisation, which is high " +
				"whenever the engine runs.",
		},
			onePerModel(promql.Div(waiting, count))).bad(2, 8).runbook("BranchQueueing").next(rules.IncidentDashboard).
			movesIn("traffic-burst", "rejections"),
		lines("Replicas and GPUs", number, 8, About{
			"Replicas of each model that report a batch, replicas that it needs to meet its latency objectives, and GPUs that serve it.",
			"It shows what autoscaling did.",
			"If the number of replicas fell although nobody scaled down, look for engines that are down.",
		},
			Query{count, "replicas " + modelLegend}, Query{promql.Max(models, s.of(metrics.RecordedDesired)), "needed " + modelLegend},
			Query{s.of(metrics.RecordedModelGPUs), "GPUs " + modelLegend}).ranked().runbook("LLMModelDown").next(rules.ExporterDashboard).
			movesIn("crash-loop", "xid-79").drifts("what is needed follows what arrives"),
	}
}
