package rules

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Clue names evidence that is clear enough to say where to look first. It is recorded per model, so that pages,
// dashboards and later readers all see the same.
type Clue struct {
	// Branch says where to look.
	Branch Branch
	// Name holds the value of the label clue; Runbook names the alert whose runbook says what to do.
	Name, Runbook string
	// Delays limits the clue to late first tokens, or to late further ones.
	Delays Delays
	// Unit says how the value is printed.
	Unit Unit
	// Says puts the evidence into words: {value}, {engine}, and {LABEL} for a label of the result.
	Says string
	// Query returns a value per model while the evidence is clear.
	Query promql.Expr
}

// Delays names what a clue makes late.
type Delays string

// What may be late. An empty value explains everything.
const (
	FirstToken Delays = "first_token"
	NextToken  Delays = "next_token"
)

// Clues returns the clues in the order of a diagnosis. They use the thresholds of the cause alerts, but do not wait
// as those must: users already suffer, so clues judge the last minutes. A cause comes before those that it imitates:
// a throttled GPU looks like a queue. Hardware comes first, then changes in the engines, then changes in the
// requests, which by chance make one replica worse than another; clues about lost room or time alone come last.
func Clues() []Clue {
	yesterday := func(now promql.Expr, fact string) promql.Expr { return promql.Div(now, dayBefore(fact)) }
	worst := func(e promql.Expr) promql.Expr { return promql.Max(modelLabels, e) }
	one := func(e promql.Expr) promql.Expr { return promql.TopK(1, modelLabels, e) }
	waiting := promql.Sum(modelLabels, promql.Vector(metrics.RequestsWaiting))
	running := promql.Sum(modelLabels, promql.Vector(metrics.RequestsRunning))
	return []Clue{
		{Hardware, "gpu_throttled", "LLMGPUThrottledUnderBurn", "", Share, "GPU {gpu_uuid} is slowed down {value} of the time ({reason})",
			one(servedBy(promql.Max(append(onGPULabels(), metrics.LabelReason), throttled(HarmfulReasons, 0.05)), metrics.LabelReason))},
		{Hardware, "gpu_xid", "LLMGPUCriticalXID", "", Count, "GPU {gpu_uuid} reported XID {xid}",
			one(servedBy(promql.Max(append(onGPULabels(), metrics.LabelXID), criticalXIDs(hour)), metrics.LabelXID))},
		{Hardware, "gpu_no_spare_row", "LLMGPURowRemapFailure", "", Bare, "GPU {gpu_uuid} has no spare memory row left for a fault",
			one(servedBy(promql.Max(onGPULabels(), state(metrics.GPURowRemapFailure))))},
		{Hardware, "gpu_memory_errors", "LLMGPUUncorrectableECC", "", Count, "GPU {gpu_uuid} had uncorrectable memory errors within the hour",
			one(servedBy(uncorrectable(onGPULabels())))},
		{Release, "version_deployed", "LLMReleaseRegression", "", Count, "Version {version} was deployed within the hour",
			promql.Over("last_over_time", promql.Vector(metrics.RecordedDeployed), hour)},
		{Engine, "engine_down", "LLMEngineDown", "", Count, "{engine} stopped answering within the hour",
			stopped()},
		{Routing, "failing_replica", "LLMReplicaFailsRequests", "", Share, "{engine} fails {value} of its requests, and the other replicas do not", one(failsAlone(pageWindow))},
		{Routing, "gateway_down", "LLMGatewayDown", "", Count, "Gateway {engine} stopped answering within the hour", stopped(gatewayRole())},
		{Routing, "gateway_fails", "LLMGatewayFailsRequests", "", Share, "Gateway {engine} fails {value} of its requests, and the engines fail far fewer", one(gatewayFailsAlone(pageWindow))},
		{Queueing, "admission", "LLMAdmissionStalled", FirstToken, Count, "{value} requests wait at {engine} although its KV cache has room", one(heldBack(2 * minute))},
		{Engine, "cold_start", "LLMColdStart", "", Count, "{engine} started less than 15 minutes ago, and requests waited", startedCold()},
		{Memory, "left_gpu", "LLMModelLeftGPU", "", Share, "Only {value} of the model is in GPU memory at {engine}", one(leftGPU())},
		{Memory, "kv_transfers_lost", "LLMKVTransferFailures", "", Decimal, "{value} KV transfers per request are lost", lostTransfers(modelLabels)},
		{Prefill, "prefix_hits_fell", "LLMPrefixHitCollapse", "", Share, "The prefix cache hits {value} of what it did the day before",
			below(promql.Div(hitRatio(modelLabels, pageWindow, 0), above(dayBefore("prefix_hits_before"), 0.2)), 0.5)},
		{Prefill, "prompts_grew", "LLMLongPromptShift", "", Count, "Prompts are {value} times as long as the day before",
			above(yesterday(mean(metrics.RequestPromptTokens, modelLabels, pageWindow), "prompt_tokens_before"), 2)},
		{Decode, "drafts_refused", "LLMSpeculationCollapse", "", Share, "Draft tokens are accepted {value} as often as the day before",
			below(promql.Div(accepted(modelLabels, pageWindow, 0), above(dayBefore("draft_tokens_before"), 0.2)), 0.5)},
		{Behaviour, "output_limit", "LLMRunawayGeneration", "", Share, "{value} of requests run into the output limit", runsOn(modelLabels, pageWindow)},
		{Engine, "host_bound", "LLMEngineHostBound", "", Share, "{engine} uses its GPU only {value} of the time while requests run", one(hostBound(2 * minute))},
		{Routing, "slow_replica", "LLMReplicaSkew", "", Seconds, "{engine} alone is slow: first tokens after {value}", lonelyReplica(metrics.TimeToFirstToken)},
		{Routing, "slow_decoder", "LLMReplicaSkew", "", Seconds, "{engine} alone is slow: {value} between tokens", lonelyReplica(metrics.InterTokenLatency)},
		{Routing, "rank_queue", "LLMReplicaSkew", FirstToken, Count, "{value} requests wait for rank {dp_rank} of {engine} while another rank has none", one(rankQueue(pageWindow))},
		{Memory, "preemptions", "LLMPreemptionThrash", "", Decimal, "Each request is preempted {value} times", worst(preempting())},
		{Memory, "kv_full", "LLMKVPressure", "", Share, "The KV cache is {value} full and requests wait for room", worst(fullCache())},
		{Memory, "kv_tier_full", "LLMKVOffloadSaturated", "", Share, "The {tier} tier of {engine} takes no more KV cache", one(saturatedTier())},
		{Queueing, "queue_share", "LLMQueueBuildUp", FirstToken, Share, "{value} of the time to the first token is waiting", above(partOfTTFT(metrics.QueueTime, modelLabels, pageWindow), 0.5)},
		{Queueing, "queue_long", "LLMQueueBuildUp", FirstToken, Count, "{value} requests wait, more than run", promql.Gt(waiting, running)},
		{Prefill, "prefill_share", "LLMLongPromptShift", FirstToken, Share, "{value} of the time to the first token is prefill",
			above(partOfTTFT(metrics.PrefillTime, modelLabels, pageWindow), 0.5)},
		{Decode, "batch_grew", "LLMBatchKnee", NextToken, Count, "{value} times as many requests run at once as the day before",
			above(yesterday(batch(modelLabels, pageWindow, 0), "running_before"), 1.5)},
		{Engine, "probe_unanswered", "LLMProbeFailing", "", Count, "No synthetic request to {engine} is answered", withNamespace(promql.Vector(metrics.RecordedUnanswered))},
	}
}

// stopped returns each engine that served a model within the hour and is down now.
func stopped(m ...*promql.Matcher) promql.Expr {
	return promql.Mul(promql.Max(replicaLabels, promql.Over("last_over_time", promql.Vector(metrics.EngineInfo, m...), hour)), down(), promql.On(pageLabels...).ManyToOne())
}

// suspectGroups returns the groups that record the clues, twice a minute: a page must not rest on clues that are
// nearly two minutes old.
func suspectGroups() []Group {
	var records []Record
	for i, c := range Clues() {
		labels := map[string]string{metrics.LabelBranch: string(c.Branch), metrics.LabelClue: c.Name, metrics.LabelRunbook: c.Runbook, metrics.LabelOrder: order(i),
			metrics.LabelUnit: string(c.Unit), metrics.LabelSays: c.Says}
		if c.Delays != "" {
			labels[metrics.LabelDelays] = string(c.Delays)
		}
		records = append(records, Record{metrics.RecordedSuspect, c.Query, labels})
	}
	return chunked("llm-suspects", Interval/2, records)
}

// verdictQuery returns the suspects of the alert's model that explain what its objective measures.
func verdictQuery() promql.Expr {
	suspect := func(d Delays) promql.Expr {
		return promql.Vector(metrics.RecordedSuspect, sameModel(promql.Eq(metrics.LabelDelays, string(d)))...)
	}
	ofTokens := promql.Vector(metrics.RecordedInfo, append(same(modelSLO...), promql.Re(metrics.LabelSignal, string(slo.ITL)+"|"+string(slo.ProbeITL)))...)
	return promql.Or(suspect(""),
		promql.Unless(suspect(FirstToken), ofTokens, promql.On()),
		promql.And(suspect(NextToken), ofTokens, promql.On()))
}

// verdict renders the first line of a page: the first suspect in order, or nothing. The series carries the words,
// which keeps the template small: Prometheus parses it for each alert and evaluation.
func verdict(query string) string {
	return fmt.Sprintf(`{{ with %s }}{{ with first (sortByLabel %q .) }}Look first at: {{ .Labels.branch }}. %s.`+"\n{{ end }}{{ end }}",
		query, metrics.LabelOrder, SuspectText())
}

// SuspectText returns the Prometheus template that puts a recorded suspect, the dot, into words.
func SuspectText() string {
	var labels strings.Builder
	for _, l := range []string{metrics.LabelGPUUUID, metrics.LabelReason, metrics.LabelXID, metrics.LabelVersion, metrics.LabelTier, metrics.LabelDPRank} {
		fmt.Fprintf(&labels, ` | reReplaceAll "{%s}" .Labels.%s`, l, l)
	}
	return `{{ $e := printf "%s %s" .Labels.pod .Labels.server }}{{ if not .Labels.pod }}{{ $e = printf "%s on %s" .Labels.server .Labels.instance }}{{ end }}` +
		formatted + `{{ .Labels.says` + labels.String() + ` | reReplaceAll "{engine}" $e | reReplaceAll "{value}" $v }}`
}

// order returns a position that sorts as text.
func order(i int) string { return strconv.Itoa(10 + i) }

// lonelyReplica returns the replica that is three times as slow as the best, while most are not.
func lonelyReplica(h *metrics.Family) promql.Expr {
	slow := slowest(h)
	return promql.And(promql.TopK(1, modelLabels, slow),
		promql.Lt(promql.CountBy(modelLabels, slow), times(0.5, promql.CountBy(modelLabels, mean(h, replicaLabels, causeWindow)))), promql.On(modelLabels...))
}
