package rules

import (
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// settled is the age at which a page is no longer news to its reader. Faults that begin later are new.
const settled = 15 * minute

// newsEvents is the smallest number of bad events that is news. With rare requests, ten times as many as before may
// fail in five minutes by chance.
const newsEvents = 10

// SecondFault pages for faults that begin while a model already has a page. Without it, nobody would be notified: no
// further alert fires, or a further alert only joins a group that a person has acknowledged.
var SecondFault = &Alert{
	Name:     "LLMSecondFault",
	Branch:   Symptom,
	Severity: slo.Page,
	Keep:     3 * minute,
	Scope:    []string{metrics.LabelNamespace, metrics.LabelModel},
	Summary:  `{{ if eq $labels.clue "burn" }}Far more requests fail or wait than when the model was paged{{ else }}Another fault, while an older one is still paged{{ end }}`,
	Description: "The new fault began more than 15 minutes after the page. An action against the first fault may have " +
		"caused the new fault, and may not help now.",
	Suspects: promql.OrOn(promql.Vector(metrics.RecordedSentence, sameModel(same(metrics.LabelClue)...)...),
		promql.OrOn(newSuspects(), notPaged(), promql.On(modelLabels...)),
		promql.On(modelLabels...)),
	Dashboard: IncidentDashboard,
}

// newSuspects returns the suspects of the alert's model that are at most five minutes old and were absent in the hour
// before.
func newSuspects() promql.Expr {
	now := promql.Vector(metrics.RecordedSentence, sameModel()...)
	return promql.Unless(now, promql.Over("last_over_time", promql.Offset(now, RateWindow.Std()), hour), promql.On(metrics.LabelClue))
}

// notPaged returns the suspects of the alert's model that are not in the branch that the model's page names.
func notPaged() promql.Expr {
	return promql.Unless(promql.Vector(metrics.RecordedSentence, sameModel()...), toldBranch(FastBurn),
		promql.On(append([]string{metrics.LabelBranch}, modelLabels...)...))
}

// toldBranch returns the firing alerts that firesForModel returns. Their label branch is replaced by the branch where
// they told people to look first.
func toldBranch(a *Alert) promql.Expr {
	return promql.Call("label_replace", firesForModel(a), promql.Str(metrics.LabelBranch), promql.Str("$1"),
		promql.Str(metrics.LabelSuspect), promql.Str("(.+)"))
}

// firesForModel returns the firing alerts with the name of a, about the model of the alert whose text is rendered.
func firesForModel(a *Alert, is ...*promql.Matcher) promql.Expr {
	return promql.Vector(metrics.Alerts, append(sameModel(promql.Eq("alertname", a.Name), promql.Eq("alertstate", "firing")), is...)...)
}

// secondFault returns the faults of a model with a page that began within five minutes: a total outage, a fault of
// hardware, of a replica or of a gateway, or ten times the odds of a bad event. If few events were bad, this is ten
// times the burn rate. If most events were bad already, the odds hardly rise. Once SecondFault fires for a fault, the
// fault is returned while a page of the model fires.
func secondFault() promql.Expr {
	firing := func(alerts ...*Alert) promql.Expr {
		names := make([]string, 0, len(alerts))
		for _, a := range alerts {
			names = append(names, a.Name)
		}
		return promql.Vector(metrics.Alerts, promql.Either("alertname", strings.Join(names, "|")), promql.Eq("alertstate", "firing"))
	}
	ofModels := promql.On(modelLabels...)
	paged := firing(FastBurn, ModelDown, ModelStalled, EngineStalled, ModelUnreached, ProbeFailing, ClientsGiveUp)
	named := append([]string{metrics.LabelClue}, modelLabels...)
	begun := func(e promql.Expr, label string) promql.Expr {
		return promql.Unless(e, promql.Over("last_over_time", promql.Offset(e, RateWindow.Std()), hour),
			promql.On(append([]string{label}, modelLabels...)...))
	}
	broke := begun(promql.Vector(metrics.RecordedSuspect, promql.Re(metrics.LabelClue, "(some_)?gpu.+|gateway.+|failing_replica"),
		promql.Re(metrics.LabelDelays, "|"+string(Failures))), metrics.LabelClue)
	outage := promql.Call("label_replace", begun(firing(ModelDown, ModelStalled, EngineStalled), "alertname"),
		promql.Str(metrics.LabelClue), promql.Str("$1"), promql.Str("alertname"), promql.Str("(.+)"))
	news := promql.Max(named, promql.Or(broke, outage, labelled(promql.Vector(metrics.RecordedMoreOdds), metrics.LabelClue, "burn")))
	told := promql.Max(named, firing(SecondFault))
	return promql.Or(promql.And(news, promql.Offset(paged, settled), ofModels), promql.And(told, paged, ofModels))
}

// moreOdds returns the burn rates that page, if the odds of a bad event are at least this multiple of the worst odds
// within the hour before.
func moreOdds(multiple float64) promql.Expr {
	odds := func(burnRate promql.Expr) promql.Expr {
		bad := promql.Mul(burnRate, promql.Vector(metrics.RecordedErrorBudget))
		return promql.Div(bad, promql.Call("clamp_min", promql.Sub(promql.Num(1), bad), promql.Num(0.1)))
	}
	now := promql.Vector(burn(RateWindow))
	before := promql.Over("max_over_time", promql.Offset(now, RateWindow.Std()), hour)
	pages := promql.Max(modelSLO, promql.Vector(metrics.RecordedBurnThreshold, promql.Eq(metrics.LabelSeverity, slo.Page.String())))
	bad := times(RateWindow.Std().Seconds(), promql.Vector(metrics.RecordedBadEventRate))
	enough := promql.Ge(promql.Or(promql.Mul(bad, promql.Vector(metrics.RecordedRequestsPerEvent)), bad), promql.Num(newsEvents-0.5))
	return promql.And(promql.Gt(odds(promql.Gt(now, pages)), times(multiple, odds(before))), enough)
}
