package dashboards

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// spends lists the incidents of the drill that spend enough budget to be seen beside a month of it.
var spends = []string{"traffic-burst", "bad-release", "thermal-throttle"}

// objectives returns the dashboard of a month: who keeps their promises. It reads recorded series only.
func objectives(w windows) Board {
	s := scope{byCluster, byNamespace, byModel, bySLO}
	legend := "{{slo}} " + modelLegend + " {{role}}"
	one := func(e promql.Expr) Query { return Query{e, legend} }
	burn := func(p slo.WindowPair) Query { return one(s.of(metrics.Window(metrics.RecordedBurn, p.Long.String()))) }
	left := s.of(metrics.RecordedBudgetRemaining)
	whole := []string{}
	all := promql.CountBy(whole, left)
	kept := promql.Or(promql.CountBy(whole, promql.Ge(left, promql.Num(0))), promql.Mul(promql.Num(0), all))
	recorded := promql.Min(whole, promql.Div(s.of(metrics.RecordedHistory), promql.Max(metrics.ModelSLOLabels, s.of(metrics.RecordedPeriod)), promql.On(metrics.ModelSLOLabels...).ManyToOne()))
	symptom := promql.Eq(metrics.LabelBranch, string(rules.Symptom))
	alert := []string{"alertname", metrics.LabelNamespace, metrics.LabelModel, metrics.LabelGPUUUID}
	return Board{
		UID: rules.SLODashboard, Since: "now-30d", Refresh: "5m", Variables: s,
		Description: "Which models keep their objectives, how much error budget is left, and where it went.",
		Rows: []Row{
			{Title: "Now: is anybody in trouble?", Panels: []Panel{
				single("Least budget left", share, About{
					"The smallest share of error budget left, of all selected objectives and models.",
					"It is the one number for the whole fleet.",
					"Below a quarter: find the model in the burn-down."},
					Query{promql.Min(whole, left), ""}).low(0, 0.25).size(6, 5).runbook("LLMErrorBudgetSlowBurn").next(rules.IncidentDashboard).
					movesIn(spends...),
				single("Fastest burn, 1 hour", multiple, About{
					"The highest burn rate over an hour.",
					"At 14.4 a 30-day budget is gone in two days.",
					"Open the incident dashboard for the model that leads."},
					Query{promql.Max(whole, s.of(metrics.Window(metrics.RecordedBurn, "1h"))), ""}).bad(1, factor(w.fast)).size(6, 5).
					empty("No events in an hour: nothing can burn.").runbook("LLMErrorBudgetFastBurn").next(rules.IncidentDashboard).
					movesIn(spends...),
				single("Objectives with budget left", share, About{
					"How many of all objectives, counted per model, have budget left, and which part of their period is recorded where it is not all of it.",
					"It is what a monthly report says. While little is recorded, the budget is that of a whole period: a bad share above the allowed one need not have spent it.",
					"Not all: the burn-down says which ones."},
					Query{promql.Mul(promql.Mul(promql.Div(kept, all), promql.CountValues("kept", whole, kept), promql.On().ManyToOne("kept")),
						promql.CountValues("all", whole, all), promql.On().ManyToOne("all")), "{{kept}} of {{all}}"},
					Query{promql.CountValues("part", whole, promql.Call("round", promql.Mul(promql.Num(100), promql.Lt(recorded, promql.Num(0.99))), promql.Num(0.1))),
						"{{part}}% of the period is recorded"}).
					names().low(0.9, 1).size(6, 5).runbook("LLMErrorBudgetSlowBurn").next(rules.IncidentDashboard).
					notDrilled("an hour does not spend a month's budget"),
				single("Budget alerts firing", number, About{
					"Budget alerts that fire now, pages and tickets.",
					"One of them is somebody's problem already.",
					"Their names are in the alert history below."},
					Query{promql.Sum(whole, s.firing(alert, symptom)), ""}).bad(1, 2).size(6, 5).
					empty("No budget alert fires.").runbook("LLMErrorBudgetFastBurn").next(rules.IncidentDashboard).
					movesIn(spends...),
			}},
			{Title: "Budget: how much is left, and for how long?", Panels: []Panel{
				lines("Budget burn-down", share, 16, About{
					"Share of the period's error budget left, per model and objective. The period is rolling: an incident that leaves it gives its budget back.",
					"A steady slope is a chronic fault, a step is an incident. Below 0 the objective is missed.",
					"Click a line to open that model at that time."},
					one(left)).low(0, 0.25).runbook("LLMErrorBudgetSlowBurn").next(rules.IncidentDashboard).
					movesIn(spends...),
				lines("Budget gone in", duration, 8, About{
					"Time until the budget is gone if what burns now goes on, where that is within the period.",
					"As long as days are left, a slow burn is a ticket.",
					"Under three days: plan the fix now."},
					one(s.inPeriod(s.of(metrics.RecordedExhaustion)))).low(6*3600, 3*24*3600).empty("At what burns now, no budget ends within its period.").runbook("LLMErrorBudgetSlowBurn").next(rules.IncidentDashboard).
					movesIn("traffic-burst"),
			}},
			{Title: "Burn: which windows, which models?", Panels: []Panel{
				lines("Burn rate, fast window", multiple, 12, About{
					"Burn over " + w.fast.Long.String() + " per model and objective, and the line at which it pages.",
					"This is the long window of the pair that pages first: whatever rose above the line paged.",
					"Repeated peaks at the same hour are load: look at capacity."},
					burn(w.fast)).limits(s.firesAt(w.fast)).
					bad(1, factor(w.fast)).empty("No events in " + w.fast.Long.String() + ": nothing can burn.").runbook("LLMErrorBudgetFastBurn").next(rules.IncidentDashboard).
					movesIn(spends...),
				lines("Burn rate, slow window", multiple, 12, About{
					"Burn over " + w.slow.Long.String() + " per model and objective, and the line at which that opens a ticket, or pages.",
					"Above 1 for long, the objective will be missed without any single incident.",
					"Fix the cause, or agree on another objective."},
					burn(w.slow)).limits(s.firesAt(w.slow)).
					bad(factor(w.slow), factor(w.fast)).runbook("LLMErrorBudgetSlowBurn").next(rules.IncidentDashboard).
					movesIn(spends...),
			}},
			{Title: "Events: what is counted?", Panels: []Panel{
				lines("Events", perSecond, 12, About{
					"Events per second that count for each objective: requests, or tokens for latency between tokens.",
					"With few events a burn rate says little.",
					"Zero where there should be traffic: the objective protects nobody."},
					one(s.of(metrics.RecordedEventRate))).runbook("LLMObjectiveWithoutEvents").next(rules.ExporterDashboard).
					movesIn("traffic-burst"),
				lines("Bad events", perSecond, 12, About{
					"Events per second that missed their objective.",
					"Users feel the absolute number, whatever its share.",
					"A step up with flat traffic is a change: look at the deploy marks."},
					one(s.of(metrics.RecordedBadEventRate))).runbook("LLMErrorBudgetFastBurn").next(rules.IncidentDashboard).
					movesIn(spends...),
				lines("Left out for maintenance", perSecond, 12, About{
					"Bad events per second in declared intervals of maintenance: they spend no budget.",
					"What is left out is shown, so that nobody has to guess why a bad hour cost nothing.",
					"Something here that nobody announced: look at `maintenance` in the exporters' configuration."},
					one(promql.Mul(promql.Num(-1./60), s.of(metrics.RecordedBadEventCorrection, promql.Eq(metrics.LabelReason, "maintenance"))))).
					empty("No maintenance in this time.").runbook("LLMErrorBudgetSlowBurn").next(rules.ExporterDashboard).
					notDrilled("no incident happens in a declared interval"),
				lines("Bad share over the period", share, 12, About{
					"Bad events as a share of all events in the objective's period, as far as it is recorded, beside the share that may be bad in a whole one.",
					"It is the report at the end of the month, so far.",
					"Above the limit: the budget is gone if the period is recorded as a whole; \"Objectives with budget left\" says how much of it is."},
					one(promql.Div(s.of(metrics.RecordedPeriodBadEvents), promql.Gt(s.of(metrics.RecordedPeriodEvents), promql.Num(0))))).
					limits(Query{promql.Max([]string{metrics.LabelSLO}, s.of(metrics.RecordedErrorBudget)), "may be bad {{slo}}"}).runbook("LLMErrorBudgetSlowBurn").next(rules.IncidentDashboard).
					movesIn(spends...).drifts("exact, so it drifts while little is recorded"),
			}},
			{Title: "Latency: what did users get?", Collapsed: true, Panels: []Panel{
				longLatency(s, "Time to first token, p95", wait, metrics.RecordedTimeToFirstToken, slo.TTFT).
					movesIn("traffic-burst"),
				longLatency(s, "Inter-token latency, p95", seconds, metrics.RecordedInterTokenLatency, slo.ITL).
					movesIn("bad-release"),
				longLatency(s, "Request duration, p95", seconds, metrics.RecordedRequestDuration, slo.RequestDuration).
					movesIn("traffic-burst").notDrilled(noneOfThem),
			}},
			{Title: "Alert history: what fired, and when?", Panels: []Panel{
				timeline("Budget alerts", 12, About{
					"When each budget alert fired.",
					"The number of pages per month is the health of the objective, not only of the service.",
					"Pages that nobody acted on: change the objective."},
					fires, Query{s.firing([]string{"alertname", metrics.LabelModel}, symptom), "{{model_name}} {{alertname}}"}).empty("No budget alert fired.").runbook(eachAlert).next(rules.IncidentDashboard).
					movesIn(spends...),
				timeline("Causes", 12, About{
					"When each cause alert fired.",
					"Causes that come before every burn are what to engineer away.",
					"Click one for its runbook."},
					fires, Query{s.firing([]string{"alertname"}, promql.Ne(metrics.LabelBranch, string(rules.Symptom))), "{{alertname}}"}).
					empty("No cause fired.").runbook(eachAlert).next(rules.IncidentDashboard).
					movesIn("offload-saturated", "speculation-collapse", "thermal-throttle"),
			}},
		},
	}
}

// longLatency shows quantiles over weeks, from recorded buckets.
func longLatency(s scope, title, unit string, buckets *metrics.Family, signal slo.Signal) Panel {
	return lines(title, unit, 8, About{
		"The 95th percentile per model from recorded buckets, and the limits of objectives on it.",
		"A slow drift is invisible in burn rates until it crosses the limit.",
		"Drifting: compare with prompt lengths, versions and load."},
		Query{s.recordedQuantile(0.95, buckets), modelLegend}).limits(s.limitOf(string(signal))).runbook("LLMReleaseRegression").next(rules.EngineDashboard)
}
