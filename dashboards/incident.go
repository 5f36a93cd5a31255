package dashboards

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// incident returns the dashboard that alerts open. Its rows are the questions of a diagnosis, in order.
func incident(w windows) Board {
	s := scope{byCluster, byNamespace, byModel, byNode, byServedGPU, bySLO}
	return Board{
		UID: rules.IncidentDashboard, Since: "now-1h", Refresh: "30s", Variables: s,
		Description: "Where is the time or the request lost: queue, prefill, decode, memory, the GPU underneath, or the release? Read from " +
			"top to bottom.",
		Rows: []Row{
			{Title: "Now: what burns, since when, and where to look first?", Panels: nowRow(s, w)},
			{Title: "Proof: which latency, which replica, which GPU, and what else fired?", Panels: splitRow(s, w)},
			{Title: "Phases and scope: queue, memory, prefix cache, replicas, nodes", Collapsed: true, Panels: phaseRow(s)},
			{Title: "GPU underneath: the GPUs that serve this model", Collapsed: true, Panels: gpuRow(s)},
			{Title: "Change: versions before and after", Collapsed: true, Panels: changeRow(s)},
			{Title: "Levers: what to do, by branch", Collapsed: true, Panels: leversRow()},
		},
	}
}

// burns lists the drill's incidents that burn an error budget.
var burns = []string{
	"traffic-burst", "long-prompts", "prefix-collapse", "kv-thrash", "kv-transfer-failures", "rejections",
	"bad-release", "thermal-throttle",
}

// nowRow returns the panels of the first screen. Firing alerts are beside burning objectives and recent changes. The
// table that names where to look first is the last panel that fits on the screen.
func nowRow(s scope, w windows) []Panel {
	tables := nowTables(s)
	return slices.Concat(burnStats(s, w), []Panel{tables[0], changes(s)[0], tables[1]})
}

func nowTables(s scope) []Panel {
	does := map[string]string{}
	for _, c := range rules.Clues() {
		does[c.Runbook] = firstLever(c.Runbook)
	}
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) { // for branches without a clear clue
		if does[a.Name] == "" {
			does[a.Name] = firstLever(a.Name)
		}
	}
	rows, since := s.burning()
	return []Panel{
		listing("Firing alerts", 12, About{
			"Every alert of this project that fires for the model, pages first. Each row shows when the condition first began, and where: at " +
				"which model, replica, GPU or node, and at how many more.",
			"Causes that fire beside the page are the first place to look.",
			"Click one for its runbook.",
		},
			Query{ranked(s.listed(), metrics.LabelSeverity, standsFor(slo.Page), standsFor(slo.Ticket)), ""}).
			smallest(metrics.LabelOrder).columns(Column{metrics.LabelSeverity, "severity", 80, "", nil},
			Column{"alertname", "alert", 200, "", nil}, Column{metrics.LabelReplica, "where", 0, "", nil},
			Column{"Value", "since", 135, sinceThen, nil}).
			wrapped("where").size(12, 10).tall().empty("No alert is recorded as firing in this selection.").runbook(listedAlert).
			next(rules.SLODashboard).
			movesIn("traffic-burst", "long-prompts", "prefix-collapse", "kv-thrash", "kv-transfer-failures", "offload-saturated",
				"speculation-collapse",
				"rejections", "bad-release", "crash-loop", "thermal-throttle", "xid-79", "row-remap-pending", "repair-pending"),
		listing("Where to look first", 24, About{
			"One row for each model that burns, or with an alert on the model or on a GPU that serves it; the fastest burn comes first. A row " +
				"shows: the objective that burns most; since when any objective has burnt; the evidence that comes first in a diagnosis or, without " +
				"evidence, an alert on a cause and its place; the lever that acts soonest.",
			"One cause can look like another, as when a throttled GPU looks like a queue. A page shows the same evidence after \"Look first " +
				"at\".",
			"Start with the first line. Click it for its runbook, which describes how to be sure, and what else to check.",
		},
			Query{rows, ""}, Query{since, ""}).
			columns(Column{metrics.LabelNamespace, "namespace", 88, "", nil}, Column{metrics.LabelModel, "model", 170, "", nil},
				Column{metrics.LabelBad, "what is bad", 130, "", nil},
				Column{"Value #A", "burn", 68, multiple, map[string]string{"-1": "no events", strconv.Itoa(later): "no events"}},
				Column{"Value #B", "since", 135, sinceThen, nil},
				Column{metrics.LabelBranch, "branch", 82, "", nil}, Column{metrics.LabelSays, "evidence", 0, "", nil},
				Column{metrics.LabelAction, "lever", 244, "", does}, Column{metrics.LabelRunbook, "runbook", 0, "", nil}).hide("runbook").
			largest("Value #A").wrapped("namespace", "model", "what is bad", "burn", "evidence", "lever").
			size(24, 6).empty("Nothing burns that is counted in this selection.").runbook(eachRunbook).next(rules.EngineDashboard).
			movesIn(burns...),
	}
}

// listed returns when each firing alert of a model began. The label replica names the first place at which the alert
// fires, and the number of further places.
func (s scope) listed() promql.Expr {
	alert := by(models, "alertname", metrics.LabelSeverity, metrics.LabelBranch)
	all := by(alert, places...)
	began := promql.Mul(promql.Num(1000), promql.And(promql.Min(all, s.of(metrics.AlertsForState, promql.Ne(metrics.LabelBranch, ""))),
		s.firing(all)))
	more := promql.WithValue(metrics.LabelOrder, promql.Sub(promql.CountBy(alert, s.firing(all)), promql.Num(1)))
	first := promql.Mul(promql.BottomK(1, alert, began), more, promql.On(alert...).ManyToOne(metrics.LabelOrder))
	return promql.Min(by(alert, metrics.LabelReplica),
		andMore(located(first, metrics.LabelReplica, metrics.LabelModel, [3]string{"$1", "$1: $2", "$1"}), metrics.LabelReplica))
}

// andMore appends the number of further places at which an alert fires to the text in a label. The number comes from
// the label order.
func andMore(e promql.Expr, label string) promql.Expr {
	e = promql.Call("label_join", e, promql.Str(label), promql.Str("|"), promql.Str(label), promql.Str(metrics.LabelOrder))
	return replaced(replaced(e, label, "$1", label, "(.*)[|]0?"), label, "$1 and $2 more", label, "(.*)[|](.+)")
}

// places lists the labels of an alert that show its place within a model or the fleet.
var places = []string{metrics.LabelPod, metrics.LabelServer, metrics.LabelInstance, metrics.LabelGPU, metrics.LabelGPUUUID}

// located writes a text and the place of an alert into the label that to names. The text comes from the label that what
// names, and may be empty. says has three patterns: for a place without a text ($1), for a text ($1) with a place ($2),
// and for a text without a place. The place is a GPU and its node, a replica or, without these, a node.
func located(e promql.Expr, to, what string, says [3]string) promql.Expr {
	args := []promql.Expr{e, promql.Str(to), promql.Str("|"), promql.Str(what)}
	for _, l := range places {
		args = append(args, promql.Str(l))
	}
	e = replaced(promql.Call("label_join", args...), to, "$1|GPU $3 on $2|", to, "([^|]*)[|].*[|].*[|](.*)[|](.+)[|].+")
	for i, pattern := range []string{"[|]+([^|]+)[|].*", "([^|]+)[|]+([^|]+)[|].*", "([^|]*)[|]+"} {
		e = replaced(e, to, says[i], to, pattern)
	}
	return e
}

// burning returns a row for each model that burns or has a firing alert, and since when this is so. The value is the
// fastest burn. If no burn rate is recorded, the value is -1 or, while a page fires, a value that sorts first. Labels
// describe a bad event, if there is one, and the suspect or, without a suspect, an alert on a cause. All other models
// have no row, because a healthy model may also have suspects.
func (s scope) burning() (rows, since promql.Expr) {
	burn := s.of(metrics.Window(metrics.RecordedBurn, "5m"))
	burns := promql.Max(models, promql.Gt(burn, promql.Num(1)))
	fires := s.firing(models, promql.Ne(metrics.LabelModel, ""))
	objectives := by(models, metrics.LabelSLO)
	most := promql.TopK(1, models, promql.Max(objectives, burn))
	words := promql.TopK(1, objectives, promql.Max(by(objectives, metrics.LabelBad),
		promql.Over("last_over_time", s.of(metrics.RecordedInfo), time.Hour)))
	suffers := promql.OrOn(burns, fires, promql.On(models...))
	on := promql.On(models...)
	one := func(e promql.Expr) promql.Expr {
		return promql.Call("clamp_max", promql.Call("clamp_min", e, promql.Num(1)), promql.Num(1))
	}
	suspect := spaced(s.firstSuspect(most), metrics.LabelSays, keyAtEnd)
	told := one(promql.TopK(1, models, promql.Or(promql.And(suspect, suffers, on), s.causes(),
		labelled(labelled(labelled(promql.Mul(promql.Num(0.1), one(suffers)), metrics.LabelSays, "Nothing stands out yet"),
			metrics.LabelAction, rules.FastBurn.Name), metrics.LabelRunbook, rules.FastBurn.Name))))
	fastest := promql.Mul(promql.Gt(most, promql.Num(0)), words, promql.On(objectives...).ManyToOne(metrics.LabelBad))
	for _, otherwise := range []promql.Expr{
		labelled(promql.Equal(most, promql.Num(0)), metrics.LabelBad, "no event in 5 minutes"), most,
		promql.Mul(promql.Num(later), s.firing(models, promql.Ne(metrics.LabelModel, ""), promql.Eq(metrics.LabelSeverity, standsFor(slo.Page)))),
		promql.Mul(promql.Num(-1), fires),
	} {
		fastest = promql.OrOn(fastest, otherwise, on)
	}
	rows = promql.Mul(fastest, told, promql.On(models...).ManyToOne(metrics.LabelBranch, metrics.LabelSays, metrics.LabelAction,
		metrics.LabelRunbook))
	began := promql.Mul(promql.Num(1000), promql.And(promql.Min(models, s.of(metrics.AlertsForState, promql.Ne(metrics.LabelBranch, ""),
		promql.Ne(metrics.LabelModel, ""))), fires, on))
	return promql.Call("sort_desc", rows),
		promql.OrOn(promql.And(sinceDay(models, burns, promql.Max(models, promql.Gt(promql.Offset(burn, minute), promql.Num(1)))), burns,
			on), began, on)
}

// causes returns the alerts on causes that fire for a model or for a GPU that serves it. They have the labels of
// suspects. The evidence is the alert's name, the first place, and the number of further places or GPUs of the model at
// which it fires. Pages come before suspects, which have the value 1, and tickets come after suspects. The page of a
// broken GPU comes first, because the GPU may be why a model is down. Waiting requests are an effect of causes, so they
// also come after suspects.
func (s scope) causes() promql.Expr {
	var symptoms []string
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
		if a.Diagnosed {
			symptoms = append(symptoms, a.Name)
		}
	}
	rest := func(labels []string, m ...*promql.Matcher) promql.Expr {
		return promql.Mul(promql.Num(0.5), s.firing(labels, m...))
	}
	paged := func(rank float64, labels []string, m ...*promql.Matcher) promql.Expr {
		m = append(m, promql.Eq(metrics.LabelSeverity, standsFor(slo.Page)))
		return promql.Mul(promql.Num(rank), s.firing(labels, m...))
	}
	ofModel := by(models, "alertname")
	counted := func(first, all promql.Expr) promql.Expr {
		more := promql.WithValue(metrics.LabelOrder, promql.Sub(promql.CountBy(ofModel, all), promql.Num(1)))
		return promql.Mul(first, more, promql.On(ofModel...).ManyToOne(metrics.LabelOrder))
	}
	// Alerts on a GPU, on an engine or on the GPUs of a node do not name the model. No alert on an engine pages.
	noModel, hardware := promql.Eq(metrics.LabelModel, ""), promql.Eq(metrics.LabelBranch, string(rules.Hardware))
	serving := func(info *metrics.Family, key []string) promql.Expr {
		return promql.Max(slices.Compact(slices.Sorted(slices.Values(slices.Concat(models, key)))), s.of(info))
	}
	through := func(info *metrics.Family, key, carries []string, of ...promql.Expr) promql.Expr {
		return promql.TopK(1, models, promql.Mul(serving(info, key), promql.TopK(1, key, promql.Or(of[0], of[1:]...)),
			promql.On(key...).ManyToOne(carries...)))
	}
	alert := []string{"alertname", metrics.LabelBranch}
	gpu, onCard := by(alert, metrics.LabelInstance, metrics.LabelGPU), promql.Ne(metrics.LabelGPUUUID, "")
	ofGPU := through(metrics.RecordedServedGPU, onGPU, gpu, paged(3, by(onGPU, gpu...), onCard, noModel),
		rest(by(onGPU, gpu...), onCard, noModel))
	alike := promql.And(promql.Mul(serving(metrics.RecordedServedGPU, onGPU), ofGPU, promql.On(models...).ManyToOne("alertname")),
		s.alerts(onCard), promql.On(by(onGPU, "alertname")...))
	onNode := []*promql.Matcher{noModel, promql.Eq(metrics.LabelGPUUUID, ""), promql.Eq(metrics.LabelServer, ""), hardware}
	own := []*promql.Matcher{promql.Ne(metrics.LabelModel, ""), promql.NotRe("alertname", strings.Join(symptoms, "|"))}
	at := slices.Concat(ofModel, places, []string{metrics.LabelBranch})
	all := promql.Or(counted(promql.TopK(1, models, promql.Or(
		paged(2, at, append(slices.Clip(own), promql.Ne(metrics.LabelBranch, string(rules.Queueing)))...), rest(at, own...))),
		s.firing(slices.Concat(ofModel, places), own[0])),
		counted(ofGPU, alike),
		through(metrics.RecordedSeen, pages, alert, rest(by(pages, alert...), noModel, promql.Ne(metrics.LabelServer, ""))),
		through(metrics.RecordedSeen, nodes, alert, paged(3, by(nodes, alert...), onNode...), rest(by(nodes, alert...), onNode...)))
	all = replaced(replaced(all, metrics.LabelAction, "$1", "alertname", "(.*)"), metrics.LabelRunbook, "$1", "alertname", "(.*)")
	return andMore(located(all, metrics.LabelSays, "alertname", [3]string{"", "$1 fires for $2", "$1 fires"}), metrics.LabelSays)
}

// firstSuspect returns where to look first for each model: the suspect of the objective that burns fastest or, if there
// is none, the suspect of another burning objective.
func (s scope) firstSuspect(most promql.Expr) promql.Expr {
	verdict := s.of(metrics.RecordedVerdict)
	first := promql.OrOn(promql.And(verdict, most, promql.On(by(models, metrics.LabelSLO)...)), verdict, promql.On(models...))
	return replaced(promql.BottomK(1, models, first), metrics.LabelAction, "$1", metrics.LabelRunbook, "(.*)")
}

// replaced sets a label to the text with, if the label that from names matches the pattern. The text may contain the
// pattern's groups.
func replaced(e promql.Expr, label, with, from, pattern string) promql.Expr {
	return promql.Call("label_replace", e, promql.Str(label), promql.Str(with), promql.Str(from), promql.Str(pattern))
}

func burnStats(s scope, w windows) []Panel {
	burn := s.of(metrics.Window(metrics.RecordedBurn, "5m"))
	objective := []string{metrics.LabelSLO}
	left := promql.Min(objective, s.of(metrics.RecordedExhaustion))
	worst := promql.Max(objective, burn)
	pages := promql.Max(objective, promql.Ge(burn, promql.Max(metrics.ModelSLOLabels,
		s.of(metrics.RecordedBurnThreshold, promql.Eq(metrics.LabelLong, w.patient.Long.String()))), promql.On(metrics.ModelSLOLabels...).
		ManyToOne()))
	rest := promql.Unless(worst, pages)
	sorted := func(e promql.Expr) Query { return Query{promql.Call("sort_desc", e), "{{slo}}"} }
	return []Panel{
		single("Burn rate now", multiple, About{
			"How fast the budget burns over 5 minutes, as a multiple of what the objective allows, for the model that burns fastest.",
			"At 1, the budget lasts exactly its period. At 14.4, a 30-day budget lasts 50 hours.",
			"It is vermilion above the line at which this objective pages. Above 1, go down the rows. Below 1, the incident may be over, so " +
				"check the last hour.",
		},
			sorted(pages), sorted(promql.Ge(rest, promql.Num(1))), sorted(promql.Lt(rest, promql.Num(1)))).bad(1, factor(w.patient)).
			empty("No event of this selection was counted in 5 minutes.").size(4, 5).runbook("LLMErrorBudgetFastBurn").
			next(rules.SLODashboard).
			movesIn(burns...),
		single("Budget left", share, About{
			"Share of the period's error budget that is left, for the model with the least, and which part of the period is recorded if it is not " +
				"the whole.",
			"It shows how much risk you can still take. Below 0, this period's objective is already missed. While little is recorded, the " +
				"budget is that of a whole period.",
			"If it is low, stop releases, and use the fastest lever rather than the best one.",
		},
			Query{promql.Call("sort", promql.Min(objective, s.of(metrics.RecordedBudgetRemaining))), "{{slo}}"}).low(0, 0.25).size(4, 5).
			limits(Query{promql.Call("round", s.recorded(), promql.Num(0.001)), "period recorded"}).
			runbook("LLMErrorBudgetSlowBurn").next(rules.SLODashboard).
			movesIn("traffic-burst").drifts("more is recorded"),
		single("Budget gone in", seconds, About{
			"Time until the budget is gone at the present burn rate. \"Later\" means after the end of its period.",
			"It shows how much time is left to think.",
			"Under a few hours, mitigate first and understand later.",
		},
			Query{promql.Call("sort", promql.Or(promql.Min(objective, s.inPeriod(s.of(metrics.RecordedExhaustion))),
				promql.Add(promql.Mul(promql.Num(0), left), promql.Num(later)))), "{{slo}}"}).
			low(6*3600, 3*24*3600).says(State{later, "later", blue}).
			empty("Nothing burns that is counted in this selection.").size(4, 5).runbook("LLMErrorBudgetFastBurn").next(rules.SLODashboard).
			movesIn("traffic-burst"),
	}
}

// later is a number of seconds that is longer than every period.
const later = 1e9

func changes(s scope) []Panel {
	copied := func(e promql.Expr, to, text, from string) promql.Expr { return replaced(e, to, text, from, "(.+)") } // if there is a value
	changed := promql.Call("label_join", promql.Mul(promql.Num(1000), promql.Call("max_over_time", subquery(s.rollouts(minute)))),
		promql.Str(metrics.LabelAction), promql.Str("|"), promql.Str(metrics.LabelSetting), promql.Str(metrics.LabelOld),
		promql.Str(metrics.LabelNew))
	started := seen("max", by(models, metrics.LabelPod, metrics.LabelServer), begins(s.of(metrics.RecordedStarted)))
	together := promql.Gt(promql.CountBy(models, started), promql.Num(1))
	many := promql.Mul(promql.CountValues(metrics.LabelAction, models, together), promql.Max(models, started), promql.On(models...).
		ManyToOne())
	starts := promql.Or(
		copied(labelled(promql.Unless(started, together, promql.On(models...)), metrics.LabelAction, "started"), metrics.LabelReplica, "$1",
			metrics.LabelServer),
		copied(replaced(many, metrics.LabelAction, "$1 replicas started", metrics.LabelAction, "(.*)"), metrics.LabelReplica, "$1",
			metrics.LabelModel))
	return []Panel{
		listing("What changed", 12, About{
			"The last changes of engines' versions and settings, and starts of engines, within the range. A rollout is one row for each " +
				"setting, at the time of its first engine. Several starts of a model's engines are one row, at the time of the last.",
			"A deploy, a changed setting or a restart at the start of a burn is its likely cause.",
			"Compare with \"since\" above. Roll back first; an analysis takes longer.",
		},
			Query{promql.Call("sort_desc", promql.Max([]string{metrics.LabelAction, metrics.LabelReplica}, promql.Or(
				copied(replaced(changed, metrics.LabelAction, "$1 from $2 to $3", metrics.LabelAction, "(.*)[|](.*)[|](.*)"), metrics.LabelReplica,
					"$1", metrics.LabelModel),
				copied(starts, metrics.LabelReplica, "$1", metrics.LabelPod)))), ""}).
			columns(Column{metrics.LabelAction, "what", 280, "", nil}, Column{"Value", "when", 135, sinceThen, nil},
				Column{metrics.LabelReplica, "where", 0, "", nil}).
			largest("Value").wrapped("what").size(12, 5).empty("No deploy, changed setting or restart is recorded in this range.").
			runbook("LLMReleaseRegression").next(rules.EngineDashboard).
			movesIn("bad-release"),
	}
}

func splitRow(s scope, w windows) []Panel {
	byWindow := make([]Query, 0, len(w.paging()))
	for _, window := range w.paging() {
		byWindow = append(byWindow, Query{s.of(metrics.Window(metrics.RecordedBurn, window)), window + " {{slo}} {{model_name}}"})
	}
	return []Panel{
		lines("Burn rate by window", multiple, 8, About{
			"Burn over 5 minutes, an hour and longer, and the line at which the fastest window pair pages.",
			"The burn is starting if the short window is above the long one, and ending if it is below.",
			"The page ends by itself when the short window falls below the line.",
		},
			byWindow...).limits(s.firesAt(w.fast)).size(8, 6).
			bad(1, factor(w.fast)).runbook("LLMErrorBudgetFastBurn").next(rules.SLODashboard).
			movesIn(burns...),
		lines("Time to first token, p95", wait, 8, About{
			"The 95th percentile of TTFT per model, and the limits of the objectives on it.",
			"TTFT up with ITL flat means queue or prefill.",
			"Open \"Phases and scope\" below, and look at the queue share first.",
		},
			Query{s.recordedQuantile(0.95, metrics.RecordedTimeToFirstToken), modelLegend}).limits(s.limitOf(string(slo.TTFT))).size(8, 6).
			runbook("BranchQueueing").next(rules.EngineDashboard).
			movesIn("traffic-burst", "long-prompts", "prefix-collapse", "kv-transfer-failures", "bad-release"),
		lines("Inter-token latency, p95", seconds, 8, About{
			"The 95th percentile of the gap between tokens per model, and the limits of the objectives on it.",
			"ITL up with TTFT flat means decode: batch, memory bandwidth, speculation or a throttled GPU.",
			"Look at the batch on the engine dashboard, then at the GPUs underneath.",
		},
			Query{s.recordedQuantile(0.95, metrics.RecordedInterTokenLatency), modelLegend}).limits(s.limitOf(string(slo.ITL))).size(8, 6).
			runbook("BranchLargeBatch").next(rules.EngineDashboard).
			movesIn("kv-thrash", "bad-release", "thermal-throttle"),
		lines("Mean TTFT by replica", wait, 8, About{
			"The mean time to first token of every replica.",
			"One line above the others is a bad replica. If all rise together, look at the model, the traffic or the release.",
			"Take a bad replica out of rotation, then look at its GPU.",
		},
			Query{s.mean(replicas, metrics.TimeToFirstToken), replicaLegend}).size(8, 6).runbook("LLMReplicaSkew").next(rules.EngineDashboard).
			movesIn("traffic-burst", "prefix-collapse"),
		timeline("Throttling", 8, About{
			"When the driver lowered the clocks of a GPU that serves the model. A software power cap is left out: it is normal under prefill.",
			"A throttled GPU makes every request of its replica slow, or of the whole model with tensor parallelism.",
			"While the budget burns, read the reason under Time throttled. Move traffic only if other GPUs of the model are not throttled.",
		},
			bad("throttled"), stateOfGPU(s.serving(promql.Max(gpus,
				between(s.of(metrics.GPUClockEventActive, promql.Re(metrics.LabelReason, rules.HarmfulReasons))))), "")).
			empty("No GPU of this model reports it.").size(8, 6).runbook("BranchThrottledGPU").next(rules.GPUDashboard).
			movesIn("thermal-throttle").stillElsewhere(),
		timeline("Alerts over time", 8, About{
			"When each alert of this project fired for the model.",
			"Causes that fire beside the page are the first place to look.",
			"Click one for its runbook.",
		},
			s.fires(), Query{promql.Max([]string{"alertname"}, between(s.alerts())), "{{alertname}}"}).
			empty("Nothing is recorded here.").size(8, 6).runbook(eachAlert).next(rules.SLODashboard).
			movesIn(burns...),
	}
}

// unknown is the text of empty panels about the GPUs of a model.
const unknown = "No GPU that is known to serve this model reports this. See Exporter health."

func phaseRow(s scope) []Panel {
	recordedShare := func(name string, exported promql.Expr) promql.Expr {
		recorded := promql.Max(models, s.of(metrics.RecordedEvidence, promql.Eq(metrics.LabelFact, name)))
		return s.perModel(promql.Call("clamp_max", recorded, promql.Num(1)), exported)
	}
	one := func(e promql.Expr) Query { return Query{e, modelLegend} }
	hits := recordedShare("prefix_hits", shareOf(s.rate(models, metrics.PrefixCacheHitTokens), s.rate(models, metrics.PrefixCacheQueryTokens)))
	return append([]Panel{
		lines("Queue share of TTFT", share, 12, About{
			"Share of the time to the first token that requests spend in the queue.",
			"Above half, the engine is full rather than slow.",
			"Did demand rise, or did capacity fall? Look at waiting and replicas before adding any.",
		},
			one(recordedShare("queue_share", shareOf(s.spent(models, metrics.QueueTime), s.spent(models, metrics.TimeToFirstToken))))).
			bad(0.3, 0.5).max(1).runbook("BranchQueueing").next(FleetDashboard).
			movesIn("traffic-burst", "kv-transfer-failures"),
		lines("KV cache in use, fullest replica", share, 12, About{
			"Share of the KV cache that unfinished requests use.",
			"Above 90% with requests waiting, tokens have no room, and preemption follows. GPU memory does not show it.",
			"Cap output and context. A lower batch limit needs a restart.",
		},
			one(s.perModel(s.of(metrics.RecordedKVCacheUsage), promql.Max(models, s.of(metrics.KVCacheUsage))))).bad(0.8, 0.9).max(1).
			runbook("BranchKVPressure").next(rules.EngineDashboard).
			movesIn("traffic-burst", "kv-thrash"),
		lines("Preemptions", perSecond, 12, About{
			"Running requests that lost their cache and are computed again.",
			"Each one pays its prefill twice and delays everybody in the batch.",
			"Above one in five requests, cap output now, then restart with a lower batch limit.",
		},
			one(s.rate(models, metrics.Preemptions))).bad(0.1, 1).runbook("BranchKVPressure").next(rules.EngineDashboard).
			movesIn("kv-thrash").stillElsewhere("rejections"),
		lines("Prefix cache hits", share, 12, About{
			"Share of prompt tokens that were found in the prefix cache.",
			"After a collapse, cached prompts need prefill again, and TTFT rises with the same traffic.",
			"Look for a changed template, a timestamp in the system prompt, a restart, or a router that lost affinity.",
		},
			one(hits)).max(1).runbook("LLMPrefixHitCollapse").next(rules.EngineDashboard).
			movesIn("prefix-collapse").stillElsewhere("rejections"),
	}, scopeRow(s)...)
}

func scopeRow(s scope) []Panel {
	return []Panel{
		lines("Waiting by replica", number, 12, About{
			"Waiting requests per replica.",
			"If one replica has a queue and another has none, the cause is routing, not capacity.",
			"If queues are uneven, look at the router; otherwise at demand.",
		},
			Query{promql.Sum(replicas, s.of(metrics.RequestsWaiting)), replicaLegend}).runbook("LLMReplicaSkew").next(rules.EngineDashboard).
			movesIn("traffic-burst", "kv-thrash", "rejections").drifts("a request may wait at the moment of a scrape"),
		lines("Bad events by node", perSecond, 12, About{
			"Events per second that missed each objective, per node.",
			"Bad events on one node point at its hardware or its network.",
			"If it is one node, open its GPU dashboard.",
		},
			Query{s.rate(by(nodes, metrics.LabelSLO), metrics.SLOBadEvents), "{{slo}} {{instance}}"}).empty("No event is counted here.").
			runbook("LLMReplicaSkew").next(rules.GPUDashboard).
			movesIn(burns...),
	}
}

func gpuRow(s scope) []Panel {
	harmful := promql.Re(metrics.LabelReason, rules.HarmfulReasons)
	reasons := by(gpus, metrics.LabelReason)
	return []Panel{
		lines("Time throttled", share, 12, About{
			"Share of time in which clocks were lowered, by reason, from the driver's own counters.",
			"It also shows throttling that ends before the next scrape.",
			"Above 5% it explains a burn.",
		},
			onePerGPU(s.serving(promql.Call("clamp_max", promql.Max(reasons, promql.Rate(s.of(metrics.GPUClockEventSeconds, harmful),
				rateInterval)), promql.Num(1))), "{{reason}}")).
			bad(0.01, 0.05).max(1).empty(unknown).runbook("BranchThrottledGPU").next(rules.GPUDashboard).
			movesIn("thermal-throttle").stillElsewhere(),
		lines("Memory bandwidth in use", share, 12, About{
			"Share of the peak memory bandwidth. Only Hopper and newer report it.",
			"It limits decode. Near the ceiling, a larger batch means more latency.",
			"If ITL rises, a high value means that the batch is too large. If the value is low, look at the clocks.",
		},
			onePerGPU(s.serving(s.perGPU(metrics.GPUMemoryBandwidthUtilization)), "")).bad(0.8, 0.95).max(1).
			empty("No GPU that is known to serve this model reports this. It needs Hopper or newer.").runbook("BranchLargeBatch").
			next(rules.GPUDashboard).
			notDrilled(noGPU),
		lines("SM clock against its maximum", share, 12, About{
			"Current SM clock as a share of the highest.",
			"It limits prefill. A step down under load is throttling or a power cap.",
			"Compare the GPUs with each other before blaming one.",
		},
			onePerGPU(s.serving(promql.Div(s.perGPU(metrics.GPUClock, promql.Eq(metrics.LabelDomain, "sm")),
				s.perGPU(metrics.GPUClockMax, promql.Eq(metrics.LabelDomain, "sm")))), "")).low(0.5, 0.7).max(1).
			empty(unknown).runbook("LLMGPUSlowed").next(rules.GPUDashboard).
			movesIn("thermal-throttle").stillElsewhere("xid-79", "repair-pending"),
		lines("XIDs and memory errors, last hour", number, 12, About{
			"Driver errors of the GPUs that serve the model, by number, and memory errors that ECC detected and could not correct, by memory. " +
				"A GPU that has just appeared shows all errors since its driver was loaded.",
			"They come before engine crashes and explain them. An uncorrectable error kills the process that used the memory.",
			"Look up the number on the GPU dashboard. If memory errors return within days, replace the board.",
		},
			Query{promql.Max([]string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelGPUUUID, metrics.LabelXID},
				s.of(metrics.RecordedEvidence, promql.Eq(metrics.LabelFact, "xids"))), "XID {{xid}} {{instance}} {{gpu_uuid}}"},
			onePerGPU(s.serving(s.lastHour(by(gpus, metrics.LabelLocation), metrics.GPUECCErrors,
				promql.Eq(metrics.LabelSeverity, "uncorrected"), promql.Eq(metrics.LabelLifetime, "volatile"))), "ECC {{location}}")).
			bad(1, 1).empty("No XID is recorded, and no ECC is known for these GPUs.").runbook("LLMGPUFailed").next(rules.GPUDashboard).
			movesIn("xid-79", "repair-pending", "row-remap-pending").stillElsewhere(),
	}
}

func changeRow(s scope) []Panel {
	version := by(models, metrics.LabelVersion)
	fact := func(name string) Query {
		return Query{promql.Max(version, s.of(metrics.RecordedEvidence, promql.Eq(metrics.LabelFact, name))), "{{version}} " + modelLegend}
	}
	return []Panel{
		lines("Replicas by version", number, 12, About{
			"Metrics endpoints of engines per model and engine version.",
			"Two versions at once are a rollout. A rollout at the start of a burn is its likely cause.",
			"Roll back first; an analysis takes longer.",
		},
			Query{promql.CountBy(version, s.of(metrics.EngineInfo)), "{{version}} " + modelLegend}).stacked().runbook("LLMReleaseRegression").
			next(rules.EngineDashboard).
			movesIn("bad-release", "crash-loop", "xid-79").stillElsewhere("rejections"),
		lines("TTFT p95 by version", wait, 12, About{
			"The 95th percentile of TTFT of the replicas of each engine version.",
			"After a release has replaced all replicas, compare the end of one line with the start of the next.",
			"After a step up where the lines meet, roll back. If the old line also rose, the release is not the cause.",
		},
			fact("ttft_p95")).runbook("LLMReleaseRegression").next(rules.EngineDashboard).
			movesIn("bad-release"),
		lines("ITL p95 by version", seconds, 12, About{
			"The 95th percentile of the gap between tokens of the replicas of each engine version.",
			"A release that makes decode slower shows here first, because TTFT also includes the queue.",
			"After a step up where the lines meet, roll back.",
		},
			fact("itl_p95")).runbook("LLMReleaseRegression").next(rules.EngineDashboard).
			movesIn("bad-release"),
		lines("Failed requests by version", share, 12, About{
			"Share of requests that the replicas of each engine version failed or refused.",
			"A release may answer as fast as before, but fail more often.",
			"If only the new version is above 1%, roll back.",
		},
			fact("failed")).bad(0.01, 0.05).max(1).runbook("LLMReleaseRegression").next(rules.EngineDashboard).
			movesIn("rejections"),
		listing("Replicas unlike their peers", 24, About{
			"Replicas, and ranks of them, that do worse than the others of their model over ten minutes, or run with a setting that most " +
				"others do not have while no rollout is under way.",
			"The difference explains why one replica is slow, or answers differently.",
			"If a setting differs, finish the rollout, or roll it back. Otherwise take the replica out of rotation, then look at its GPU and " +
				"node.",
		},
			Query{promql.Max([]string{
				metrics.LabelInstance, metrics.LabelModel, metrics.LabelPod, metrics.LabelServer, metrics.LabelReason,
				metrics.LabelSetting, metrics.LabelNew,
			}, s.of(metrics.RecordedSkew)), ""}).
			columns(Column{metrics.LabelModel, "model", 150, "", nil}, Column{metrics.LabelPod, "pod", 150, "", nil},
				Column{metrics.LabelServer, "engine", 150, "", nil}, Column{metrics.LabelInstance, "node", 150, "", nil},
				Column{metrics.LabelReason, "differs in", 220, "", rules.Skews}, Column{metrics.LabelSetting, "setting", 0, "", nil},
				Column{metrics.LabelNew, "value", 0, "", nil}).
			wrapped("model", "pod", "engine", "node").size(24, 6).empty("No replica is known to differ.").runbook("LLMReplicaSkew").
			next(rules.EngineDashboard).
			movesIn("bad-replica"),
	}
}

// leversRow returns the complete actions of the runbooks.
func leversRow() []Panel {
	return []Panel{
		levers("Queue, prefill, memory", "BranchQueueing", "BranchHeldBackQueue", "LLMPrefixHitCollapse", "BranchLongPrompts",
			"BranchKVPressure", "LLMKVTransferFailures",
			"LLMKVOffloadSaturated", "LLMEngineMemoryLost", "BranchModelsTakeTurns", "BranchAdapterLatency"),
		levers("One replica, decode", "LLMReplicaSkew", "BranchIdleGPUs", "BranchFailingReplica", "BranchLargeBatch", "LLMRunawayGeneration",
			"BranchLongerOutputs", "LLMSpeculationCollapse"),
		levers("GPU", "BranchThrottledGPU", "LLMGPUFailed", "LLMGPUNeedsService", "LLMGPUSlowed", "LLMGPULinkFault"),
		levers("Release, engine, gateway", "LLMReleaseRegression", "LLMEngineStalled", "LLMEngineCrashLoop", "LLMEngineDown", "LLMModelDown",
			"BranchColdStart", "BranchHostBound", "LLMProbeFailing",
			"LLMGatewayDown", "BranchFailingGateway", "BranchClientPath"),
	}
}

// levers returns a panel with the actions in the runbooks of alerts, so that the dashboard shows them beside the
// evidence.
func levers(title string, alerts ...string) Panel {
	var b strings.Builder
	for _, alert := range alerts {
		page, err := runbooks.Page(alert)
		if err != nil {
			panic(err) // cannot fail, because the file is embedded at build time
		}
		b.WriteString("**[" + alert + "](" + alert + ".md)** " + runbooks.Question(page) + "\n\n" + runbooks.LeversOf(page) + "\n\n")
	}
	return Panel{
		Kind: Text, Title: title, Width: 6, Height: 12, Text: b.String(),
		About: About{
			"What to do if this branch is at fault, from the runbooks.",
			"The levers are ordered by how fast and how safe they are.", "Change one at a time, and undo it if it makes things worse.",
		},
	}
}

// firstLever returns the first action in a runbook, in a few words or as a command.
func firstLever(alert string) string {
	page, err := runbooks.Page(alert)
	if err != nil {
		panic(err) // cannot fail, because the file is embedded at build time
	}
	text := sooner.ReplaceAllString(runbooks.LeversOf(page), "")
	if command, ok := strings.CutPrefix(text, "```sh\n"); ok {
		line, _, _ := strings.Cut(command, "\n")
		return line
	}
	text = strings.ReplaceAll(strings.Join(strings.Fields(text[:endOfLever.FindStringIndex(text)[0]]), " "), "`", "")
	return strings.ToUpper(text[:1]) + markdownLink.ReplaceAllString(text[1:], "$1")
}

// markdownLink matches a Markdown link, which a table's cell would show unrendered.
var markdownLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// sooner matches the words before the first lever of a list that state how soon it acts.
var sooner = regexp.MustCompile(`^(\* )?(\*\*[^*]+\*\*|At once)(,[^:]*)?: `)

// endOfLever matches the end of the first lever, or the start of its reason.
var endOfLever = regexp.MustCompile(`[.;:](\s|$)|, (because|to find out) `)
