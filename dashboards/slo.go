package dashboards

import (
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// spends lists the incidents of the drill that spend a visible part of a month's budget.
var spends = []string{"traffic-burst", "bad-release", "thermal-throttle"}

// objectives returns the dashboard of the objectives over a month. It reads only recorded series.
func objectives(w windows) Board {
	s := scope{byCluster, byNamespace, byModel, bySLO}
	return Board{
		UID: rules.SLODashboard, Since: "now-30d", Refresh: "5m", Variables: s,
		Description: "Which models meet their objectives, how much error budget is left, and what spent it.",
		Rows: []Row{
			{Title: "Now: is anybody in trouble?", Panels: promiseRow(s, w)},
			{Title: "Budget: how much is left, and where did it go?", Panels: budgetRow(s)},
			{Title: "Burn: which windows, which models?", Panels: burnRow(s, w)},
			{Title: "Events: what is counted?", Panels: eventRow(s)},
			{Title: "Alert history: what fired, and when?", Panels: historyRow(s)},
		},
	}
}

// objectiveLegend names an objective of a model, and shows whether the gateway counts it.
const objectiveLegend = "{{slo}} " + modelLegend + " {{role}}"

// recorded returns the smallest recorded part of a period, if it is below 99%. The budget is for the whole period, so
// in that part the share of bad events may be larger than the objective allows.
func (s scope) recorded() promql.Expr {
	period := promql.Max(metrics.ModelSLOLabels, s.of(metrics.RecordedPeriod))
	part := promql.Div(s.of(metrics.RecordedHistory), period, promql.On(metrics.ModelSLOLabels...).ManyToOne())
	return promql.Lt(promql.Min([]string{}, part), promql.Num(0.99))
}

// promiseRow shows in a few numbers whether the fleet meets its objectives.
func promiseRow(s scope, w windows) []Panel {
	left := s.of(metrics.RecordedBudgetRemaining)
	whole, worst := []string{}, by(models, metrics.LabelSLO)
	const worstLegend = "{{slo}} " + modelLegend
	all := promql.CountBy(whole, left)
	has := promql.Ge(left, promql.Num(0)).(*parser.BinaryExpr)
	has.ReturnBool = true
	kept := promql.Sum(whole, has)
	return []Panel{
		single("Least budget left", share, About{
			"The smallest remaining share of an error budget among the selected objectives and models, with its objective and model.",
			"It is one number for the whole fleet.",
			"Below a quarter, look at this model in the burn-down.",
		},
			Query{promql.BottomK(1, nil, promql.Min(worst, left)), worstLegend}).low(0, 0.25).size(8, 5).runbook("LLMErrorBudgetSlowBurn").
			next(rules.IncidentDashboard).
			movesIn(spends...),
		single("Fastest burn, 1 hour", multiple, About{
			"The highest burn rate over an hour, with its objective and model.",
			"At 14.4 a 30-day budget is gone in two days.",
			"Open the incident dashboard of this model.",
		},
			Query{promql.TopK(1, nil, promql.Max(worst, s.of(metrics.Window(metrics.RecordedBurn, "1h")))), worstLegend}).
			bad(1, factor(w.fast)).size(8, 5).
			empty("No event of this selection was counted in an hour.").runbook("LLMErrorBudgetFastBurn").next(rules.IncidentDashboard).
			movesIn(spends...),
		single("Objectives with budget left", share, About{
			"How many of all objectives, counted per model, have budget left, and which part of their period is recorded if it is not the whole.",
			"A monthly report has the same number. While little is recorded, the budget is that of a whole period, so even a share of bad " +
				"events above the allowed one may leave some of it.",
			"If some have none left, the burn-down shows which ones.",
		},
			Query{promql.Or(
				promql.Call("label_join", promql.Mul(promql.Mul(promql.Div(kept, all), promql.CountValues("kept", whole, kept), promql.On().
					ManyToOne("kept")),
					promql.CountValues("all", whole, all), promql.On().ManyToOne("all")), promql.Str(metrics.LabelSays), promql.Str(" of "),
					promql.Str("kept"), promql.Str("all")),
				labelled(promql.Mul(promql.Num(unsaid), promql.Call("absent", left)), metrics.LabelSays, nothing)), "{{says}}"},
			Query{replaced(promql.CountValues(metrics.LabelSays, whole, promql.Call("round", promql.Mul(promql.Num(100), s.recorded()),
				promql.Num(0.1))), metrics.LabelSays, "$1% of the period is recorded", metrics.LabelSays, "(.*)"), "{{says}}"}).
			names().says(State{unsaid, nothing, grey}).low(0.9, 1).size(8, 5).runbook("LLMErrorBudgetSlowBurn").next(rules.IncidentDashboard).
			notDrilled("an hour does not spend a month's budget"),
	}
}

// budgetRow shows how much budget is left, and what spent it.
func budgetRow(s scope) []Panel {
	return []Panel{
		lines("Budget burn-down", share, 24, About{
			"Share of the period's error budget left, per model and objective. The period is rolling: once an incident is " +
				"older than the period, its budget is available again.",
			"A steady slope is a chronic fault, and a step is an incident. Below 0, the objective is missed.",
			"Click a line to open that model at that time.",
		},
			Query{s.of(metrics.RecordedBudgetRemaining), objectiveLegend}).
			low(0, 0.25).runbook("LLMErrorBudgetSlowBurn").next(rules.IncidentDashboard).
			movesIn(spends...),
	}
}

// burnRow shows the burn rates in the windows that page, and in those that open a ticket.
func burnRow(s scope, w windows) []Panel {
	burn := func(p slo.WindowPair) Query {
		return Query{s.of(metrics.Window(metrics.RecordedBurn, p.Long.String())), objectiveLegend}
	}
	return []Panel{
		lines("Burn rate, fast window", multiple, 12, About{
			"Burn over " + w.fast.Long.String() + " per model and objective, and the line at which it pages.",
			"This is the long window of the pair that pages first. What rose above the line paged.",
			"Repeated peaks at the same hour come from load, so look at capacity.",
		},
			burn(w.fast)).limits(s.firesAt(w.fast)).
			bad(1, factor(w.fast)).
			empty("No event of this selection was counted in the " + w.fast.Long.String() + " before any point of this graph.").
			runbook("LLMErrorBudgetFastBurn").next(rules.IncidentDashboard).
			movesIn(spends...),
		lines("Burn rate, slow window", multiple, 12, About{
			"Burn over " + w.slow.Long.String() + " per model and objective, and the line at which that opens a ticket, or pages.",
			"Above 1 for long, the objective will be missed without any single incident.",
			"Fix the cause, or agree on another objective.",
		},
			burn(w.slow)).limits(s.firesAt(w.slow)).
			bad(factor(w.slow), factor(w.fast)).runbook("LLMErrorBudgetSlowBurn").next(rules.IncidentDashboard).
			movesIn(spends...),
	}
}

// eventRow shows the counts behind the objectives.
func eventRow(s scope) []Panel {
	maintained := s.of(metrics.RecordedBadEventCorrection, promql.Eq(metrics.LabelReason, "maintenance"))
	return []Panel{
		lines("Events", perSecond, 24, About{
			"Events per second that count for each objective (tokens for latency between tokens, otherwise requests), the bad " +
				"events among them, and the bad events that declared maintenance leaves out.",
			"With few events, a burn rate means little.",
			"If it is zero while there is traffic, the objective protects nobody.",
		},
			Query{s.of(metrics.RecordedBadEventRate), "missed " + objectiveLegend},
			Query{promql.Mul(promql.Num(-1./60), maintained), "left out " + objectiveLegend},
			Query{s.of(metrics.RecordedEventRate), "all " + objectiveLegend}).
			ranked().runbook("LLMObjectiveWithoutEvents").next(rules.ExporterDashboard).
			movesIn(spends...).notDrilled("no incident happens in a declared interval"),
	}
}

// historyRow shows which alerts fired.
func historyRow(s scope) []Panel {
	return []Panel{
		timeline("Alerts", 24, About{
			"When each alert on a budget or on a cause fired.",
			"Remove the causes that come before every burn.",
			"If nobody acts on the pages, change the objective.",
		},
			s.fires(), Query{promql.Max([]string{"alertname", metrics.LabelModel}, between(s.alerts())), "{{model_name}} {{alertname}}"}).
			empty("Nothing is recorded here.").runbook(eachAlert).next(rules.IncidentDashboard).
			movesIn(spends...),
	}
}
