package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// fleet returns the dashboard for planning: weeks, all models, recorded series only.
func fleet() Board {
	s := scope{byCluster, byNamespace, byModel}
	one := func(e promql.Expr) Query { return Query{e, modelLegend} }
	tokens, gpuCount := s.of(metrics.RecordedGenerationTokens), s.of(metrics.RecordedModelGPUs)
	running, waiting, count := s.of(metrics.RecordedRunning), s.of(metrics.RecordedWaiting), s.of(metrics.RecordedReplicas)
	all := []string{}
	return Board{
		UID: FleetDashboard, Since: "now-7d", Refresh: "5m", Variables: s, Price: true,
		Description: "How much the fleet serves, how much more it could, and what it costs.",
		Rows: []Row{
			{Title: "Now: how large, how busy?", Panels: []Panel{
				single("Generated tokens per second", tokenRate, About{
					"All models together.",
					"The output of the fleet in one number.",
					"Half of yesterday's with the same demand: open the incident dashboard."},
					Query{promql.Sum(all, tokens), ""}).size(6, 5).runbook("LLMModelDown").next(rules.SLODashboard).
					movesIn("traffic-burst"),
				single("GPUs that serve", number, About{
					"GPUs counted once for each model they run.",
					"What the fleet costs.",
					"Fell: nodes or GPUs went away."},
					Query{promql.Sum(all, gpuCount), ""}).size(6, 5).empty("No GPU is known to serve a model.").runbook("LLMGPUUnread").next(rules.GPUDashboard).
					notDrilled(stays).steady(),
				single("Requests waiting", number, About{
					"Requests in the queues of all models.",
					"Demand that capacity does not meet now.",
					"Not zero for long: look at the signals to scale on."},
					Query{promql.Sum(all, waiting), ""}).bad(10, 100).size(6, 5).runbook("BranchQueueing").next(rules.IncidentDashboard).
					movesIn("traffic-burst"),
				single("Fullest KV cache", share, About{
					"Share of the KV cache in use on the fullest replica of any model.",
					"It fills before anything else does.",
					"Above 90%: that model is out of room."},
					Query{promql.Max(all, s.of(metrics.RecordedKVCacheUsage)), ""}).bad(0.8, 0.9).size(6, 5).runbook("BranchKVPressure").next(rules.IncidentDashboard).
					movesIn("traffic-burst", "kv-thrash"),
			}},
			{Title: "Efficiency: what does a GPU deliver?", Panels: []Panel{
				lines("Tokens per second per GPU", tokenRate, 8, About{
					"Generated tokens per second divided by the GPUs of the model.",
					"The number to compare engines, releases and boards with.",
					"Down with the same load: a release, a smaller batch, or throttling."},
					one(promql.Div(tokens, gpuCount))).empty("No GPU is known to serve a model.").runbook("LLMReleaseRegression").next(rules.EngineDashboard).
					movesIn("traffic-burst", "thermal-throttle"),
				lines("Generated tokens", tokenRate, 8, About{
					"Generated tokens per second by model.",
					"It is the demand that was met.",
					"Its daily shape is what autoscaling has to follow."},
					one(tokens)).stacked().runbook("BranchQueueing").next(rules.EngineDashboard).
					movesIn("traffic-burst"),
				lines("Cost of 1,000,000 tokens", dollars, 8, About{
					"The price of the model's GPUs divided by the tokens that it generates. Set the price of a GPU hour above.",
					"Nights are expensive: replicas that wait cost what replicas that work cost.",
					"Compare models before buying hardware."},
					one(promql.Div(promql.Mul(promql.Num(1e6/3600), promql.Mul(promql.Num(priceOfGPU), gpuCount)), promql.Gt(tokens, promql.Num(0))))).
					empty("No tokens, or no GPU is known to serve a model.").runbook("BranchLargeBatch").next(rules.EngineDashboard).
					movesIn("traffic-burst", "thermal-throttle"),
			}},
			{Title: "Headroom: how much more can it take?", Panels: []Panel{
				lines("KV cache headroom", share, 8, About{
					"Share of the KV cache that is free on the fullest replica of each model.",
					"Requests queue when it is gone, whatever the GPUs do.",
					"Below 10% at the daily peak: add a replica, or cap context."},
					one(promql.Sub(promql.Num(1), s.of(metrics.RecordedKVCacheUsage)))).low(0.1, 0.2).max(1).runbook("BranchKVPressure").next(rules.EngineDashboard).
					movesIn("traffic-burst", "kv-thrash"),
				lines("Batch per replica", number, 8, About{
					"Running requests per replica.",
					"Its ceiling is the batch limit; throughput stops growing there.",
					"Flat at the top every day: the model needs a replica more."},
					one(promql.Div(running, count))).runbook("BranchLargeBatch").next(rules.EngineDashboard).
					movesIn("traffic-burst"),
				lines("Replicas", number, 8, About{
					"Replicas of each model that report a batch.",
					"What autoscaling did.",
					"Fell without a decision: look for engines that are down."},
					one(count)).runbook("LLMModelDown").next(rules.ExporterDashboard).
					movesIn("crash-loop", "xid-79"),
			}},
			{Title: "Autoscaling: what to scale on", Panels: []Panel{
				lines("Waiting per replica", number, 8, About{
					"Requests waiting, per replica: the signal for an HPA, KEDA or KServe. GPU utilisation is no such signal: it is high whenever the engine runs.",
					"It rises before latency does.",
					"Use model:llm_engine_requests_waiting:sum as the metric, with a target of a few per replica."},
					one(promql.Div(waiting, count))).bad(2, 8).runbook("BranchQueueing").next(rules.IncidentDashboard).
					movesIn("traffic-burst", "rejections"),
				lines("Waiting over running", number, 8, About{
					"Requests that wait for each one that runs.",
					"Above 1 the queue is longer than the batch: a request waits for a whole one before it.",
					"Above 1 for minutes: scale, or shed load."},
					one(promql.Div(waiting, promql.Gt(running, promql.Num(0))))).bad(0.5, 1).empty("Nothing runs.").runbook("BranchQueueing").next(rules.IncidentDashboard).
					movesIn("traffic-burst"),
				lines("Burn rate, 1 hour", multiple, 8, About{
					"Burn of the error budgets: the objective itself as a signal.",
					"Scaling on it buys exactly what was promised, but reacts later than a queue does.",
					"Above 1 with no queue: more replicas will not help."},
					Query{s.of(metrics.Window(metrics.RecordedBurn, "1h")), "{{slo}} " + modelLegend}).bad(1, 6).runbook("LLMErrorBudgetSlowBurn").next(rules.SLODashboard).
					movesIn("traffic-burst"),
			}},
			{Title: "Demand: what is asked for?", Collapsed: true, Panels: []Panel{
				lines("Prompt tokens", tokenRate, 8, About{
					"Prompt tokens per second by model, those from a cache included.",
					"It loads prefill.",
					"Growing faster than generated tokens: prompts get longer."},
					one(s.of(metrics.RecordedPromptTokens))).stacked().runbook("BranchLongPrompts").next(rules.EngineDashboard).
					movesIn("traffic-burst", "long-prompts"),
				lines("Requests by outcome", requests, 8, About{
					"Requests per second by how they ended.",
					"Rejected is demand that was turned away.",
					"Rejected at the peak: that is the size of the gap."},
					Query{promql.Sum([]string{metrics.LabelOutcome}, s.of(metrics.RecordedRequests)), "{{outcome}}"}).stacked().runbook("LLMErrorBudgetFastBurn").next(rules.SLODashboard).
					movesIn("rejections"),
				lines("Time to first token, p95", wait, 8, About{
					"The 95th percentile per model from recorded buckets.",
					"It is what the load costs users.",
					"It follows the load: capacity is short. It does not: look at releases and hardware."},
					one(s.recordedQuantile(0.95, metrics.RecordedTimeToFirstToken))).
					runbook("BranchQueueing").next(rules.EngineDashboard).
					movesIn("traffic-burst"),
			}},
		},
	}
}
