package metrics

import "slices"

// Labels of recorded series, besides those of the exported families.
const (
	LabelCluster = "cluster" // set by the scraping Prometheus, usually as an external label; may be absent
	LabelPeriod  = "period"  // period of an objective, as "30d"
	LabelBranch  = "branch"  // branch of a diagnosis that an alert belongs to
	LabelLong    = "long"    // long window of a pair, as "6h"
	LabelClue    = "clue"    // what is suspicious
	LabelSuspect = "suspect" // branch that a page tells to look at first, or unknown
	LabelDelays  = "delays"  // what a suspect delays or fails, if not everything: any_request, any_token, first_token, next_token, gateway_first_token, failures
	LabelFact    = "fact"    // subject of a piece of evidence
	LabelChosen  = "chosen"  // on no series: by its absence a query tells whether a filter is set
	LabelOrder   = "order"   // position among suspects, or among facts
	LabelUnit    = "unit"    // unit of a suspect's strength or a fact's value: count, decimal, times, ratio, seconds, on, none
	LabelSays    = "says"    // a suspect or a fact in words
	LabelLever   = "lever"   // what helps soonest against a suspect, in words
)

// ModelSLOLabels identify one objective for one model: the level at which budgets burn and people are paged. cluster
// is kept if the scraper sets it, so that one ruler can serve many clusters. role is kept where engines have one: the
// workers do not make up for what a frontend fails.
var ModelSLOLabels = []string{LabelCluster, LabelNamespace, LabelModel, LabelRole, LabelSLO}

var modelSLOPeriod = slices.Concat(ModelSLOLabels, with(LabelPeriod))

// Series that recording rules write, named level:metric:operations. The burn-rate group names its series per window
// with Window; the identifiers here are the stems, and the names without a window.
var (
	RecordedInfo = recorded(Never, "model:llm_slo_info:max",
		"An objective on a model, as the exporters that count its events have it, with the labels from its configuration that the rules know. Always 1.",
		ModelSLOLabels, with(LabelSignal, LabelBad, LabelPeriod, LabelSeverity, LabelRunbook, LabelDashboard))
	RecordedObjective = recorded(Max, "model:llm_slo_objective:ratio",
		"Share of events that must be good, as the exporters that count them have it.", ModelSLOLabels)
	RecordedPeriod = recorded(Max, "model:llm_slo_period:seconds",
		"Period over which the objective must hold, as the exporters that count its events have it.", ModelSLOLabels)
	RecordedErrorBudget = recorded(Max, "model:llm_slo_error_budget:ratio",
		"Share of events that may be bad: one minus the objective. Remembered for two hours after the last engine.", ModelSLOLabels)
	RecordedPairBurn = recorded(Max, "model:llm_slo_pair_burn:rate",
		"The burn rate of an objective's long window, while the window pair asks for an alert: both windows burn faster than its threshold, enough requests were bad, and the loss matters to the budget; and that of the short window while what asked for a page burns at half of the slowest pair's threshold.",
		ModelSLOLabels, with(LabelLong))
	RecordedMoreOdds = recorded(Never, "model:llm_slo_odds:last5m",
		"Odds of a bad event within five minutes, while they page, rest on ten bad requests and are ten times the worst of the hour before. Absent otherwise.", ModelSLOLabels)
	RecordedStays = recorded(Max, "model:llm_slo_still_burning:rate",
		"The burn rate of an objective for which a pair asked for a page within three minutes, while it is above half of the slowest pair's threshold: the page stays. Absent otherwise.", ModelSLOLabels)
	RecordedPageBegan = recorded(Never, "model:llm_page:start_time_seconds",
		"When the page about the objectives of a model that fires now began, unix time, whatever it told to look at first. Absent while none fires.",
		with(LabelCluster, LabelNamespace, LabelModel))
	RecordedBurnThreshold = recorded(Max, "model:llm_slo_burn_threshold:rate",
		"Burn rate above which the window pair named by long alerts as severity says, page or ticket, for this objective's target and period.",
		ModelSLOLabels, with(LabelLong, LabelSeverity))
	RecordedMaintenance = recorded(Never, "model:llm_slo_maintenance:last6m",
		"An objective that is, or was within six minutes, in a declared maintenance. Absent otherwise.", ModelSLOLabels)
	RecordedBurnLimit = recorded(Max, "model:llm_slo_burn_limit:rate",
		"Burn rate at which half of all events are bad: no window pair asks for more. Absent where nothing alerts: under maintenance, and behind a gateway that counts the same.", ModelSLOLabels)
	RecordedOwner = recorded(Never, "model:llm_slo_owner:info",
		"An objective that alerts or did within two hours, with the labels that its configuration gives it. Always 1.", ModelSLOLabels)
	RecordedBehindGateway = recorded(Never, "model:llm_slo_behind_gateway:last5m",
		"An availability objective of engines whose gateway counts the same requests, always 1 and absent otherwise: the gateway's budget alerts in its place.", ModelSLOLabels)
	RecordedEventCorrection = recorded(Sum, "model:llm_slo_events:correction",
		"Events of a minute to add to an increase, by reason: first is what new engines had counted before their first scrape; maintenance, below zero, is what a declared interval leaves out; probe, below zero, are synthetic requests that were answered, which are no events of availability; lost is what users would have asked, at the usual rate, while no engine of the model answered or, for the role gateway, no gateway of it.",
		ModelSLOLabels, with(LabelReason))
	RecordedBadEventCorrection = recorded(Sum, "model:llm_slo_bad_events:correction",
		"Bad events of a minute to add to an increase, by reason: see model:llm_slo_events:correction.", ModelSLOLabels, with(LabelReason))

	RecordedEventRate = recorded(Sum, "model:llm_slo_events:rate5m",
		"Events per second over five minutes: the denominator.", ModelSLOLabels)
	RecordedBadEventRate = recorded(Sum, "model:llm_slo_bad_events:rate5m",
		"Bad events per second over five minutes: the numerator, 0 where only good events are known.", ModelSLOLabels)
	RecordedEvents = recorded(Sum, "model:llm_slo_events:increase",
		"Events in the window.", ModelSLOLabels)
	RecordedBadEvents = recorded(Sum, "model:llm_slo_bad_events:increase",
		"Bad events in the window.", ModelSLOLabels)
	RecordedBurn = recorded(Max, "model:llm_slo_burn:rate",
		"Burn rate over the window: share of bad events divided by the error budget. Absent without events.", ModelSLOLabels)
	RecordedBadNow = recorded(Sum, "model:llm_slo_bad_events:rate_now",
		"Bad events per second now: of the last minute or, where that holds too few or no two scrapes, of two or five.", ModelSLOLabels)
	RecordedRequestsPerEvent = recorded(Never, "model:llm_slo_requests_per_event:ratio_rate6h",
		"Requests behind one event, where events are tokens: what turns bad tokens into bad requests for the low-traffic guard.", ModelSLOLabels)

	RecordedPeriodEvents5m = recorded(Sum, "model_period:llm_slo_events:increase5m",
		"Events of the last five minutes, carrying the objective's period.", modelSLOPeriod)
	RecordedPeriodBadEvents5m = recorded(Sum, "model_period:llm_slo_bad_events:increase5m",
		"Bad events of the last five minutes, carrying the objective's period.", modelSLOPeriod)
	RecordedPeriodEvents = recorded(Sum, "model_period:llm_slo_events:increase_period",
		"Events of the objective's whole period, as far as they are recorded.", modelSLOPeriod)
	RecordedPeriodBadEvents = recorded(Sum, "model_period:llm_slo_bad_events:increase_period",
		"Bad events of the objective's whole period, as far as they are recorded.", modelSLOPeriod)
	RecordedPeriodSince = recorded(Never, "model_period:llm_slo_events:recorded_timestamp_seconds",
		"The time, once an hour while events are recorded: the oldest says how much of the period is known.", modelSLOPeriod)
	RecordedHistory = recorded(Never, "model_period:llm_slo_history:seconds",
		"How much of the objective's period is recorded.", modelSLOPeriod)
	RecordedUsualRate = recorded(Never, "model_period:llm_slo_events:rate_period",
		"Events per second in the objective's period, as far as it is recorded: also while the model sleeps.", modelSLOPeriod)
	RecordedExpectedRate = recorded(Never, "model:llm_slo_events:rate_expected",
		"Events per second that an objective has by what is known: those of its period or, of one that is new within the hour, those since its first event.", ModelSLOLabels)
	RecordedBudgetRemaining = recorded(Never, "model_period:llm_slo_budget_remaining:ratio",
		"Share of the period's error budget that is left: 1 is untouched, 0 is spent, below 0 is overspent. Where less than the period is recorded, the budget is that of a period of such traffic.", modelSLOPeriod)
	RecordedExhaustion = recorded(Never, "model_period:llm_slo_budget_exhaustion:seconds",
		"Time until what is left of the error budget is spent if what burns now goes on. Absent while nothing burns.", modelSLOPeriod)
)

// Series that each of many Prometheus servers records for the global rules of a large fleet.
var (
	ShardEvents = recorded(Sum, "shard:llm_slo_events:increase",
		"Events in the window, of the engines this shard scrapes.", ModelSLOLabels)
	ShardBadEvents = recorded(Sum, "shard:llm_slo_bad_events:increase",
		"Bad events in the window, of the engines this shard scrapes.", ModelSLOLabels)
	ShardTile = recorded(Sum, "shard:llm_slo_events:gained5m",
		"Events since five minutes ago, exactly, of the engines this shard scrapes: what budgets add up.", ModelSLOLabels)
	ShardBadTile = recorded(Sum, "shard:llm_slo_bad_events:gained5m",
		"Bad events since five minutes ago, exactly, of the engines this shard scrapes.", ModelSLOLabels)
	ShardRequests = recorded(Sum, "shard:llm_engine_requests:increase6h",
		"Requests that reached their first token within six hours, of the engines this shard scrapes.",
		with(LabelCluster, LabelNamespace, LabelModel, LabelRole))
	ShardObjective = recorded(Max, "shard:llm_slo_objective_ratio:max",
		"Target of an objective, as this shard's exporters have it.", ModelSLOLabels)
	ShardPeriod = recorded(Max, "shard:llm_slo_period_seconds:max",
		"Period of an objective, as this shard's exporters have it.", ModelSLOLabels)
	ShardInfo = recorded(Never, "shard:llm_slo_info:max",
		"An objective on a model, as this shard's exporters have it. Always 1.", ModelSLOLabels, with(LabelSignal, LabelBad, LabelPeriod, LabelSeverity, LabelRunbook, LabelDashboard))
)

var alertLabels = with("alertname", LabelSeverity, LabelBranch, LabelNamespace, LabelModel, LabelPod, LabelServer, LabelRole, LabelSLO, LabelGPU, LabelGPUUUID, LabelReason, LabelMeaning, LabelAction, LabelClue, LabelSuspect)

// Series that others produce and our rules read.
var (
	Up     = foreign("up", "Whether Prometheus reached a scrape target (1).", with("job", "instance"))
	Alerts = foreign("ALERTS", "An alert that Prometheus holds pending or firing.", slices.Concat(alertLabels, with("alertstate")))
	// AlertsForState holds seconds since the epoch.
	AlertsForState = foreign("ALERTS_FOR_STATE", "When an alert that Prometheus holds pending or firing began.", alertLabels)
)

var allRecorded, allForeign []*Family

// Foreign returns the families that others produce.
func Foreign() []*Family { return allForeign }

// Recorded returns every family that recording rules write, in order of declaration. Families with one series per
// window are stems; see Window.
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
