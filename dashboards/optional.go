package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// optional returns the dashboard of parts that only some installations have. These rows have a dashboard of their own,
// because Grafana also draws rows without data.
func optional() Board {
	s := scope{byCluster, byNamespace, byModel, byRuntime, byNode}
	return Board{
		UID: rules.OptionalDashboard, Since: "now-6h", Refresh: "1m", Variables: s,
		Description: "Parts that only some installations have: gateways, probes, speculation, adapters, models on demand, " +
			"KV cache elsewhere.",
		Rows: []Row{
			{Title: "Gateways: what fails before the engines?", Panels: gatewayRow(s)},
			{Title: "Probes: what does a client see?", Panels: probeRow(s)},
			{Title: "Speculation, adapters and models on demand: do they work?", Panels: featureRow(s)},
			{Title: "KV cache elsewhere, from every replica's transfers and tiers: choose a model first", Collapsed: true, Panels: elsewhereRow(s)},
		},
	}
}

func gatewayRow(s scope) []Panel {
	failed := promql.Re(metrics.LabelOutcome, "error|rejected")
	judged := promql.NotRe(metrics.LabelOutcome, slo.UncountedOutcomes)
	gateway := promql.Eq(metrics.LabelRole, metrics.GatewayRole)
	failing := func(by []string, of ...*promql.Matcher) promql.Expr {
		return shareOf(s.rate(by, metrics.Requests, append(of, failed)...), s.rate(by, metrics.Requests, append(of, judged)...))
	}
	return []Panel{
		lines("Failed requests, gateway and engines", share, 12, About{
			"Share of requests that end in an error or a refusal, at each gateway and in the engines of each model.",
			"Only the gateway's share is what users get. Engines do not count requests that never reach them.",
			"If the gateway's is far above the engines', the fault is in the gateway or on the way.",
		},
			Query{failing(replicas, gateway), "gateway " + replicaLegend}, Query{failing(models), "engines " + modelLegend}).max(1).
			empty(noGateway).runbook("BranchFailingGateway").next(rules.IncidentDashboard).
			movesIn("failing-gateway"),
		lines("Refused and repeated by gateways", requests, 12, About{
			"Requests that a gateway refused without sending them to an engine, by reason, and its repeated attempts.",
			"Refusals protect the engines; repeats are load that no client sent.",
			"If repeats rise with failures, limit them before they overload the engines.",
		},
			Query{s.rate(by(pages, metrics.LabelReason), metrics.GatewayRejections), "{{reason}} " + replicaLegend},
			Query{s.rate(pages, metrics.GatewayRetries), "retries " + replicaLegend}).
			empty(noGateway).runbook("BranchRetries").next(rules.IncidentDashboard).
			notDrilled("the drill's gateway refuses and repeats nothing"),
	}
}

func probeRow(s scope) []Panel {
	address := []string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelModel, metrics.LabelServer}
	untrue := func(f *metrics.Family) promql.Expr { return promql.Equal(s.of(f), promql.Num(0)) }
	return []Panel{
		lines("First token, client and engine", wait, 12, About{
			"Mean TTFT that the exporter's probes see at each address, beside the engines' own, and the phases of the connection before it.",
			"The difference is the network, a gateway or a buffer, which no engine reports.",
			"If the client's is far higher, probe the engine without the gateway. If the client's is missing, answers are held back.",
		},
			Query{s.mean(address, metrics.ProbeTimeToFirstToken), "client " + probeLegend}, Query{
				s.mean(models, metrics.TimeToFirstToken),
				"engine " + modelLegend,
			},
			Query{s.mean(by(address, metrics.LabelPhase), metrics.ProbeConnection), "{{phase}} " + probeLegend}).
			runbook("LLMProbeDisagrees").next(rules.IncidentDashboard).
			notDrilled("the drill's clients need no connection"),
		lines("Synthetic requests by outcome", requests, 12, About{
			"Requests of the exporter's probes per second by outcome, and answers that were held back and came in one piece.",
			"ok and wrong_answer are answers. rate_limited, http_4xx and invalid mean that the probe is at fault, the others that the model is.",
			"If one address has timeouts, its engine hangs. If all fail at once, look at the exporter's network first.",
		},
			Query{s.rate(by(address, metrics.LabelOutcome), metrics.ProbeRequests), "{{outcome}} " + probeLegend},
			Query{s.rate(address, metrics.ProbeBuffered), "held back " + probeLegend}).
			empty(noProbe).runbook("LLMProbeBroken").next(rules.IncidentDashboard).
			movesIn("wedged-unseen", "buffering-proxy"),
		lines("Failures in a row", number, 24, About{
			"Synthetic requests that failed one after the other at each address; probes whose last answer differs from the first of its " +
				"release; engines that are not probed, with the reason.",
			"Two in a row page, unless the engine's metrics endpoint is down or all requests of the exporter fail.",
			"Send the engine itself a request with a deadline; save its stacks before a restart.",
		},
			Query{promql.Max(address, s.of(metrics.ProbeFailures)), "failed " + probeLegend},
			Query{promql.CountBy(address, untrue(metrics.ProbeAnswerMatches)), "other answer " + probeLegend},
			Query{promql.CountBy(by(address, metrics.LabelReason), untrue(metrics.ProbeEngineAsked)), "not asked, {{reason}} " + probeLegend}).
			size(24, 6).empty(noProbe).runbook("LLMProbeFailing").next(rules.IncidentDashboard).
			movesIn("wedged-unseen", "dead-gateway").notDrilled("the drill asks every engine, and answers stay the same"),
	}
}

func featureRow(s scope) []Panel {
	return []Panel{
		lines("Speculation accepted", share, 8, About{
			"Share of drafted tokens that the model accepted; for engines that report only a gauge, the share of the worst replica.",
			"Below about a third, speculation costs more than it saves.",
			"A step down means other traffic, other sampling, or a draft model that does not match.",
		},
			Query{promql.Or(shareOf(s.rate(models, metrics.SpecDecodeAcceptedTokens), s.rate(models, metrics.SpecDecodeDraftTokens)),
				promql.Min(models, s.of(metrics.SpecDecodeAcceptance))), modelLegend}).
			low(0.3, 0.5).max(1).runbook("LLMSpeculationCollapse").next(rules.IncidentDashboard).
			movesIn("speculation-collapse"),
		lines("NaN, sleep, adapters, models", number, 8, About{
			"Requests of the last hour whose logits had NaN (vLLM checks only with VLLM_COMPUTE_NANS_IN_LOGITS=1); engines asleep; adapters " +
				"that running requests use; and models in memory on engines that load models on demand.",
			"More adapters than slots, and models that are loaded and unloaded, look like queueing. An engine asleep serves nobody. Answers " +
				"with NaN are garbage.",
			"For NaN on one replica, look at its GPU; on all, at weights, a kernel or the release.",
		},
			Query{s.lastHour(replicas, metrics.CorruptedRequests), "NaN " + replicaLegend},
			Query{promql.Gt(promql.Max(replicas, s.of(metrics.Sleeping)), promql.Num(0)), "asleep " + replicaLegend},
			Query{promql.Sum(replicas, s.of(metrics.LorasRunning)), "adapters " + replicaLegend},
			Query{promql.Sum(models, s.of(metrics.ModelsLoaded)), "models " + modelLegend}).
			ranked().runbook("LLMAnswersCorrupted").next(rules.IncidentDashboard).
			notDrilled(noEngine),
		lines("In GPU memory", share, 8, About{
			"Share of each loaded model that is in GPU memory on the worst replica, for engines that load models on demand.",
			"The CPU computes the rest many times more slowly, and no request fails.",
			"After a step down, the engine lost the GPU, or another model took the room.",
		},
			Query{promql.Min(models, promql.Div(s.of(metrics.ModelGPUMemory), s.of(metrics.ModelMemory))), modelLegend}).
			low(0.5, 0.95).max(1).runbook("LLMEngineMemoryLost").next(rules.IncidentDashboard).
			movesIn("model-left-gpu"),
	}
}

func elsewhereRow(s scope) []Panel {
	tiers := by(models, metrics.LabelTier)
	ways := by(tiers, metrics.LabelOperation)
	tierLegend := "{{tier}} " + modelLegend
	tokens := shareOf(s.rate(tiers, metrics.KVTierHitTokens), s.rate(tiers, metrics.KVTierQueryTokens))
	refused := s.rate(tiers, metrics.KVTierRefused)
	stored := s.rate(tiers, metrics.KVTierTransferTokens, promql.Eq(metrics.LabelOperation, string(metrics.Store)))
	return []Panel{
		lines("KV moves failed", perSecond, 8, About{
			"Per second: failed transfers between engines, caches that a prefill engine held for a decode engine that never fetched them, " +
				"and stores to a tier and fetches from it that failed, in the engine's own unit.",
			"Each affected request is computed again or lost. A cache that expires has taken room from prefill.",
			"If it is above zero, look at the connector's log on both sides.",
		},
			Query{s.rate(replicas, metrics.KVTransferFailures), "failed " + replicaLegend}, Query{
				s.rate(replicas, metrics.KVTransfersExpired),
				"expired " + replicaLegend,
			},
			Query{
				s.rate(ways, metrics.KVTierFailures),
				"{{operation}} failed " + tierLegend,
			}).runbook("LLMKVTransferFailures").next(rules.IncidentDashboard).
			movesIn("kv-transfer-failures").notDrilled(noEngine),
		lines("KV cache moved", bandwidth, 8, About{
			"Bytes per second of KV cache moved between engines, stored to each tier below the GPU and fetched from it.",
			"Stores cost time; fetches save time.",
			"If much is stored and little fetched, store less. If both stay at a constant rate, the link is full.",
		},
			Query{s.spent(models, metrics.KVTransferSize), "between engines " + modelLegend}, Query{
				s.rate(ways, metrics.KVTierTransferBytes),
				"{{operation}} " + tierLegend,
			}).runbook("LLMKVOffloadSaturated").next(rules.GPUDashboard).
			movesIn("kv-transfer-failures", "offload-saturated"),
		lines("KV tiers", share, 8, About{
			"For each tier below the GPU, on the fullest replica: share of lookups that hit, share of tokens that the tier " +
				"refuses to store, share that transfers pin, and share in use.",
			"A tier full of cache is normal. A pinned tier accepts no more; a tier without hits only costs.",
			"Above 90% pinned, or 50% refused where no pins are reported, engines write faster than the link can transfer. After days without " +
				"hits, turn the tier off.",
		},
			Query{promql.Max(tiers, s.of(metrics.KVTierPinned)), "pinned " + tierLegend},
			Query{over(refused, promql.Add(refused, stored)), "refused " + tierLegend},
			Query{promql.Or(tokens, shareOf(s.rate(tiers, metrics.KVTierHits), s.rate(tiers, metrics.KVTierLookups))), "hits " + tierLegend},
			Query{promql.Max(tiers, s.of(metrics.KVTierUsage)), "holds " + tierLegend}).
			ranked().max(1).runbook("LLMKVOffloadSaturated").next(rules.IncidentDashboard).
			movesIn("offload-saturated").notDrilled(noEngine),
	}
}

// noGateway is the text of empty panels about gateways.
const noGateway = "No gateway here reports this."

// noProbe is the text of empty panels about synthetic requests.
const noProbe = "No synthetic request is recorded here. Probes are off by default."
