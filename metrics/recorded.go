package metrics

import "slices"

// These labels are on recorded series. No exported family has them.
const (
	LabelCluster = "cluster" // set by the scraping Prometheus, usually as an external label; may be absent
	LabelPeriod  = "period"  // period of an objective, as "30d"
	LabelBranch  = "branch"  // branch of a diagnosis that an alert belongs to
	LabelLong    = "long"    // long window of a pair, as "6h"
	LabelClue    = "clue"    // name of a clue
	LabelSuspect = "suspect" // branch that a page names to look at first, or unknown
	// LabelDelays is what a suspect delays or makes fail, unless it affects everything: any_request, any_token,
	// first_token, next_token, gateway_first_token, failures.
	LabelDelays = "delays"
	LabelFact   = "fact"   // subject of a piece of evidence
	LabelChosen = "chosen" // on no series, so a matcher on it shows whether a filter is set
	LabelOrder  = "order"  // position among suspects, or among facts
	LabelMore   = "more"   // number of other engines or GPUs of which the same is true
	LabelUnit   = "unit"   // unit of a suspect's strength or a fact's value: count, decimal, times, ratio, seconds, on, none
	LabelSays   = "says"   // text of a suspect or a fact
	LabelLever  = "lever"  // fastest action against a suspect, in words

	// These labels are on OpenCost's series (pkg/inferencecost/exporter.go). phase is prompt or generation, or absent for
	// both. allocation is the cost of the GPUs, busy or not. usage is the cost of the share of time in which they worked.
	LabelCostBasis = "cost_basis"
	// LabelAllocationMethod is how the phases share a cost: compute_time (by the seconds of prefill and decode) or multiplier (a
	// generated token counts as 2.5 tokens).
	LabelAllocationMethod = "allocation_method"
)

// ModelSLOLabels identify one objective for one model. Error budgets and pages are per such objective. cluster is kept
// if the scraper sets it, so that one ruler can serve many clusters. role is kept if engines have one, because good
// workers must not hide a failing frontend.
var ModelSLOLabels = []string{LabelCluster, LabelNamespace, LabelModel, LabelRole, LabelSLO}

var modelSLOPeriod = slices.Concat(ModelSLOLabels, with(LabelPeriod))

// Recording rules write these series, named level:metric:operations. The burn-rate group names its series per window
// with Window. The identifiers here are the names without a window.
var (
	RecordedInfo = recorded(Never, "model:llm_slo_info:max",
		"An objective of a model, as configured in the exporters that count its events, with the configured labels that the rules use. Always 1.",
		ModelSLOLabels, with(LabelSignal, LabelBad, LabelPeriod, LabelSeverity, LabelRunbook, LabelDashboard))
	RecordedObjective = recorded(Max, "model:llm_slo_objective:ratio",
		"Share of events that must be good, as configured in the exporters that count the events.", ModelSLOLabels)
	RecordedPeriod = recorded(Max, "model:llm_slo_period:seconds",
		"Period over which the objective must hold, as configured in the exporters that count its events.", ModelSLOLabels)
	RecordedErrorBudget = recorded(Max, "model:llm_slo_error_budget:ratio",
		"Share of events that may be bad: one minus the objective. Kept for two hours after the last engine is gone.", ModelSLOLabels)
	RecordedPairBurn = recorded(Max, "model:llm_slo_pair_burn:rate",
		"Burn rate of an objective's long window, while the window pair requires an alert: both windows burn faster than the pair's "+
			"threshold, enough requests were bad, and the long window spent enough of the budget. After a page, the short window's burn rate is "+
			"also recorded, while it is above half of the slowest pair's threshold.",
		ModelSLOLabels, with(LabelLong))
	RecordedMoreOdds = recorded(Never, "model:llm_slo_odds:last5m",
		"Odds of a bad event over five minutes, if the burn rate pages, ten requests were bad, and the odds are ten times the worst odds of "+
			"the hour before. Absent otherwise.", ModelSLOLabels)
	RecordedBurnBegan = recorded(Never, "model:llm_slo_burn:start_time_seconds",
		"When an objective began to burn, unix time: when its burn rate over five minutes first exceeded half of the threshold of the "+
			"slowest pair that pages, while the rate over that pair's short window has stayed above it. Absent otherwise.", ModelSLOLabels)
	RecordedBurnThreshold = recorded(Max, "model:llm_slo_burn_threshold:rate",
		"Burn rate above which a window pair (label long) alerts with this severity, page or ticket, given the objective's "+
			"target and period.",
		ModelSLOLabels, with(LabelLong, LabelSeverity))
	RecordedSilenced = recorded(Never, "engine:llm_maintenance:end",
		"End of the declared maintenance that covers all objectives of this engine, unix time; kept for six minutes more. Until then, the "+
			"engine's alerts are silent. Absent otherwise.",
		slices.Concat(PageLabels, with(LabelModel)))
	RecordedSilencedNode = recorded(Never, "node:llm_maintenance:end",
		"Earliest end of declared maintenance, unix time, while maintenance covers all engines of an exporter; kept for six minutes more. "+
			"Until then, the alerts about the exporter and its GPUs are silent. Absent otherwise.",
		with(LabelCluster, LabelInstance))
	RecordedMaintenance = recorded(Never, "model:llm_slo_maintenance:last6m",
		"An objective under declared maintenance, now or within the last six minutes. The series remains until the declared end even if the "+
			"exporter is gone. Absent otherwise.", ModelSLOLabels)
	RecordedBurnLimit = recorded(Max, "model:llm_slo_burn_limit:rate",
		"Burn rate at which half of all events are bad. No window pair has a higher threshold. Absent if nothing alerts: in maintenance, "+
			"and behind a gateway that counts the same requests.", ModelSLOLabels)
	RecordedOwner = recorded(Never, "model:llm_slo_owner:info",
		"An objective on which the rules alert, now or within the last two hours, with the labels from its configuration. Always 1.",
		ModelSLOLabels)
	RecordedBehindGateway = recorded(Never, "model:llm_slo_behind_gateway:last5m",
		"An availability objective of engines whose gateway counts the same requests, always 1. Absent otherwise. The gateway's budget "+
			"alerts in its place.", ModelSLOLabels)
	RecordedEventCorrection = recorded(Sum, "model:llm_slo_events:correction",
		"Events of a minute to add to an increase, by reason: first (new engines had counted them before their first scrape), maintenance "+
			"(negative, in a declared interval), probe (negative, answered synthetic requests, which are not events of availability) or lost "+
			"(users' requests at the usual rate while no engine of the model or, for the role gateway, no gateway answered).",
		ModelSLOLabels, with(LabelReason))
	RecordedBadEventCorrection = recorded(Sum, "model:llm_slo_bad_events:correction",
		"Bad events of a minute to add to an increase, by the reasons of model:llm_slo_events:correction.", ModelSLOLabels, with(LabelReason))

	RecordedEventRate = recorded(Sum, "model:llm_slo_events:rate5m",
		"Events per second over five minutes, the denominator of the burn rate.", ModelSLOLabels)
	RecordedBadEventRate = recorded(Sum, "model:llm_slo_bad_events:rate5m",
		"Bad events per second over five minutes, the numerator of the burn rate. 0 if only good events are known.", ModelSLOLabels)
	RecordedEvents = recorded(Sum, "model:llm_slo_events:increase",
		"Events in the window.", ModelSLOLabels)
	RecordedBadEvents = recorded(Sum, "model:llm_slo_bad_events:increase",
		"Bad events in the window.", ModelSLOLabels)
	RecordedBurn = recorded(Max, "model:llm_slo_burn:rate",
		"Burn rate over the window: share of bad events divided by the error budget. Absent without events.", ModelSLOLabels)
	RecordedBadNow = recorded(Sum, "model:llm_slo_bad_events:rate_now",
		"Bad events per second in the last minute. If that minute has too few bad events, the rate covers two minutes, or the time since the "+
			"first bad event within five minutes.", ModelSLOLabels)
	RecordedBadShareNow = recorded(Max, "model:llm_slo_bad_events:ratio_now",
		"Share of bad events in the last minute. Absent with fewer than 10 bad requests.", ModelSLOLabels)
	RecordedRequestsPerEvent = recorded(Never, "model:llm_slo_requests_per_event:ratio_rate6h",
		"Requests per event, if events are tokens. The low-traffic guard uses this ratio to convert bad tokens to bad requests.", ModelSLOLabels)

	RecordedPeriodEvents5m = recorded(Sum, "model_period:llm_slo_events:increase5m",
		"Events of the last five minutes, with the objective's period as a label.", modelSLOPeriod)
	RecordedPeriodBadEvents5m = recorded(Sum, "model_period:llm_slo_bad_events:increase5m",
		"Bad events of the last five minutes, with the objective's period as a label.", modelSLOPeriod)
	RecordedPeriodEvents = recorded(Sum, "model_period:llm_slo_events:increase_period",
		"Events of the objective's whole period, as far as they are recorded.", modelSLOPeriod)
	RecordedPeriodBadEvents = recorded(Sum, "model_period:llm_slo_bad_events:increase_period",
		"Bad events of the objective's whole period, as far as they are recorded.", modelSLOPeriod)
	RecordedPeriodSince = recorded(Never, "model_period:llm_slo_events:recorded_timestamp_seconds",
		"The current time, once an hour while events are recorded. The oldest value shows how much of the period is recorded.", modelSLOPeriod)
	RecordedHistory = recorded(Never, "model_period:llm_slo_history:seconds",
		"How much of the objective's period is recorded.", modelSLOPeriod)
	RecordedUsualRate = recorded(Never, "model_period:llm_slo_events:rate_period",
		"Events per second in the recorded part of the objective's period, including the time in which the model sleeps.", modelSLOPeriod)
	RecordedExpectedRate = recorded(Never, "model:llm_slo_events:rate_expected",
		"Expected events per second of an objective: the rate over its period or, for an objective less than an hour old, since its first event.",
		ModelSLOLabels)
	RecordedBudgetRemaining = recorded(Never, "model_period:llm_slo_budget_remaining:ratio",
		"Share of the period's error budget that is left: 1 is untouched, 0 is spent, below 0 is overspent. If less than the period is "+
			"recorded, the budget is that of a period with the same traffic.", modelSLOPeriod)
	RecordedExhaustion = recorded(Never, "model_period:llm_slo_budget_exhaustion:seconds",
		"Time until the rest of the error budget is spent at the present burn rate. Absent while nothing burns.", modelSLOPeriod)
)

// Each of many Prometheus servers records these series, for the global rules of a large fleet.
var (
	ShardEvents = recorded(Sum, "shard:llm_slo_events:increase",
		"Events in the window, of the engines that this shard scrapes.", ModelSLOLabels)
	ShardBadEvents = recorded(Sum, "shard:llm_slo_bad_events:increase",
		"Bad events in the window, of the engines that this shard scrapes.", ModelSLOLabels)
	ShardTile = recorded(Sum, "shard:llm_slo_events:gained5m",
		"Events of exactly the last five minutes, of the engines that this shard scrapes. Budgets add up these increases.", ModelSLOLabels)
	ShardBadTile = recorded(Sum, "shard:llm_slo_bad_events:gained5m",
		"Bad events of exactly the last five minutes, of the engines that this shard scrapes.", ModelSLOLabels)
	ShardRequests = recorded(Sum, "shard:llm_engine_requests:increase6h",
		"Requests that reached their first token within six hours, of the engines that this shard scrapes.",
		with(LabelCluster, LabelNamespace, LabelModel, LabelRole))
	ShardObjective = recorded(Max, "shard:llm_slo_objective_ratio:max",
		"Target of an objective, as configured in this shard's exporters.", ModelSLOLabels)
	ShardPeriod = recorded(Max, "shard:llm_slo_period_seconds:max",
		"Period of an objective, as configured in this shard's exporters.", ModelSLOLabels)
	ShardInfo = recorded(Never, "shard:llm_slo_info:max",
		"An objective of a model, as configured in this shard's exporters. Always 1.", ModelSLOLabels,
		with(LabelSignal, LabelBad, LabelPeriod, LabelSeverity, LabelRunbook, LabelDashboard))
)

var alertLabels = with("alertname", LabelSeverity, LabelBranch, LabelNamespace, LabelModel, LabelPod, LabelServer, LabelRole, LabelSLO,
	LabelGPU, LabelGPUUUID, LabelReason, LabelMeaning, LabelAction, LabelClue, LabelSuspect)

// Other programs produce these series, and our rules read them.
var (
	Up     = foreign("up", "Whether Prometheus reached a scrape target (1).", with("job", "instance"))
	Alerts = foreign("ALERTS", "An alert that is pending or firing in Prometheus.", slices.Concat(alertLabels, with("alertstate")))
	// AlertsForState holds seconds since the epoch.
	AlertsForState = foreign("ALERTS_FOR_STATE", "When an alert that is pending or firing in Prometheus began.", alertLabels)
)

var allRecorded, allForeign []*Family

// Foreign returns the families that others produce.
func Foreign() []*Family { return allForeign }

// Recorded returns every family that recording rules write, in order of declaration. Families with one series per
// window have names without a window: see Window.
func Recorded() []*Family { return allRecorded }

// Window names the series of a recorded family for one window: Window(RecordedBurn, "1h") is
// model:llm_slo_burn:rate1h.
func Window(f *Family, window string) *Family {
	w := *f
	w.Name += window
	return &w
}

func recorded(agg Aggregate, name, help string, labels ...[]string) *Family {
	f := &Family{Name: name, Help: help, Kind: Gauge, Labels: slices.Concat(labels...), Aggregate: agg, Owner: Rules, Index: -1}
	allRecorded = append(allRecorded, f)
	return f
}

func foreign(name, help string, labels []string) *Family {
	f := &Family{Name: name, Help: help, Kind: Gauge, Labels: labels, Owner: Others, Index: -1}
	allForeign = append(allForeign, f)
	return f
}
