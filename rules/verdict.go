package rules

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// SuspectGroups begins the names of the groups that record the clues.
const SuspectGroups = "llm-suspects"

// suspectGroups returns the groups that record the clues, twice a minute: a page must not rest on clues that are
// nearly two minutes old.
func suspectGroups() []Group {
	records := []Record{{Name: metrics.RecordedColdStart, Expr: startedCold()}, {Name: metrics.RecordedLeftGPU, Expr: leftGPU()}, {Name: metrics.RecordedFullTier, Expr: saturatedTier()},
		{Name: metrics.RecordedYoung, Expr: freshlyStarted()}, {Name: metrics.RecordedFullCache, Expr: promql.Max(modelLabels, fullCache())}}
	for i, c := range Clues() {
		labels := map[string]string{metrics.LabelBranch: string(c.Branch), metrics.LabelClue: c.Name, metrics.LabelRunbook: c.Runbook, metrics.LabelOrder: order(i),
			metrics.LabelUnit: string(c.Unit), metrics.LabelSays: c.Says, metrics.LabelLever: runbooks.FirstLever(c.Runbook)}
		if c.Delays != "" {
			labels[metrics.LabelDelays] = string(c.Delays)
		}
		records = append(records, Record{metrics.RecordedSuspect, c.Query, labels})
	}
	return chunked(SuspectGroups, Interval/2, records)
}

// explained returns what a suspect must delay or fail in order to explain the burn of an objective. If a gateway's
// objective burns and the engines' does not, nothing late or refused in the engines explains it. A delay on the way to a
// gateway shows only at gateways and in probes. Clues are about minutes: if nothing has burned for five minutes, none
// explains a burn that only a longer window still contains.
func explained() []Record {
	info := func(m ...*promql.Matcher) promql.Expr { // also of an engine that is gone
		return promql.Over("last_over_time", promql.Vector(metrics.RecordedInfo, m...), infoLookback)
	}
	late := func(d Delays, m ...*promql.Matcher) promql.Expr {
		var signals []string
		for _, s := range slo.Signals() {
			if d.Explain(s) {
				signals = append(signals, string(s))
			}
		}
		if len(signals) < len(slo.Signals()) {
			m = append(m, promql.Re(metrics.LabelSignal, strings.Join(signals, "|")))
		}
		return info(m...)
	}
	explains := func(d Delays) promql.Expr { return labelled(late(d), metrics.LabelDelays, string(d)) }
	burning := func(e promql.Expr, by ...string) promql.Expr {
		return promql.Max(append(by, modelSLO...), promql.Unless(e, promql.Le(promql.Vector(burn(RateWindow)), promql.Num(1)), promql.On(modelSLO...)))
	}
	enginesDoWell := below(promql.Vector(burn(RateWindow), promql.Ne(metrics.LabelRole, metrics.GatewayRole)), 1)
	elsewhere := promql.And(promql.Vector(metrics.RecordedInfo, gatewayRole()), enginesDoWell, promql.On(ofModel...))
	inEngines := promql.Unless(promql.Or(explains(AnyRequest), explains(AnyToken), explains(FirstToken), explains(NextToken)), elsewhere, promql.On(modelSLO...))
	onTheWay := promql.Or(late(AtGateway, gatewayRole()), info(promql.Eq(metrics.LabelSignal, string(slo.ProbeTTFT))))
	return []Record{
		{Name: metrics.RecordedExplained, Expr: burning(promql.Or(info(), inEngines, labelled(onTheWay, metrics.LabelDelays, string(AtGateway))), metrics.LabelDelays)},
		{metrics.RecordedExplained, burning(late(Failures)), map[string]string{metrics.LabelDelays: string(Failures)}},
	}
}

// verdictQuery returns the suspects of the alert's model that explain that its objective burns.
func verdictQuery() promql.Expr {
	return explaining(promql.Vector(metrics.RecordedSuspect, sameModel()...))
}

// explaining keeps the suspects that explain why the objective of the alert burns.
func explaining(suspects promql.Expr) promql.Expr {
	return promql.And(suspects, promql.Vector(metrics.RecordedExplained, same(modelSLO...)...), promql.On(metrics.LabelDelays))
}

// laterWindow is the short window of the second pair that pages.
const laterWindow = slo.Duration(30 * minute)

// title says what users feel of an alert's objective, compared with the promise, and how long they wait on average. It is
// empty for an alert without an objective.
func (s Style) title(a *Alert) string {
	if !a.Diagnosed {
		return ""
	}
	own := same(modelSLO...)
	rate := promql.Or(above(promql.Vector(burn(RateWindow), own...), 1), promql.Vector(burn(laterWindow), own...)) // what is over has no share now
	if a.Severity != slo.Page {
		rate = promql.Vector(burn(RawWindow), own...)
	}
	with := func(e promql.Expr, shown string) string {
		return "{{ with " + queryTemplate(s.query(e)) + ` }}` + shown + `{{ end }}`
	}
	percent := func(e promql.Expr) string { return with(e, `{{ (first .).Value | humanizePercentage }}`) }
	mean := func(stage, signals string) promql.Expr {
		return promql.And(promql.Vector(meanIn(RateWindow.Std()), append(sameModel(), ofStage(stage))...),
			promql.Vector(metrics.RecordedInfo, append(own, promql.Eq(metrics.LabelRole, ""), promql.Either(metrics.LabelSignal, signals))...), promql.On())
	}
	allowed := promql.Vector(metrics.RecordedErrorBudget, own...)
	bad := promql.Over("last_over_time", promql.Vector(metrics.RecordedInfo, append(own, promql.Ne(metrics.LabelBad, ""))...), infoLookback)
	return `{{ with $labels.cluster }}{{ . }}/{{ end }}{{ with $labels.namespace }}{{ . }}/{{ end }}` + theModel + `{{ if $labels.role }} at the {{ $labels.role }}{{ end }}: ` +
		percent(promql.Mul(rate, allowed)) + ` of ` +
		with(bad, `{{ (first .).Labels.bad }}{{ else }}events of {{ or $labels.slo "an objective" }} are bad`) + ` (` +
		with(promql.Or(mean(metrics.StageFirstToken, string(slo.TTFT)), mean(metrics.StageNextToken, string(slo.ITL+"|"+slo.TPOT))), `mean {{ (first .).Value | humanizeDuration }}, `) +
		`promise ` + percent(allowed) + `)`
}

// serves names a model that runs on the alert's GPU or engine, and whether others do, if the title has room for that.
func (s Style) serves(a *Alert) string {
	has := promql.Labels(a.Expr)
	var on promql.Expr
	switch {
	case slices.Contains(has, metrics.LabelModel):
		return ""
	case slices.Contains(has, metrics.LabelGPUUUID):
		on = promql.Vector(metrics.RecordedServedGPU, same(metrics.LabelGPUUUID)...)
	case slices.Contains(a.Scope, metrics.LabelServer):
		on = promql.Vector(metrics.RecordedSeen, same(pageLabels...)...)
	default:
		return ""
	}
	models := promql.Max(modelLabels, on)
	return `{{ with ` + queryTemplate(s.query(models)) + ` }}{{ $n := len . }}{{ with first . }}{{ if match "^.{1,48}$" .Labels.model_name }}` +
		`{{ with .Labels.cluster }}{{ . }}/{{ end }}{{ with .Labels.namespace }}{{ . }}/{{ end }}{{ .Labels.model_name }}{{ if gt $n 1 }} and others{{ end }}: {{ end }}{{ end }}{{ end }}`
}

// reasons returns the end of an alert's summary: what is wrong with a replica, unless it is one setting.
func (s Style) reasons(a *Alert) string {
	if a.Reasons == nil {
		return ""
	}
	return `{{ if not $labels.setting }}{{ range $i, $r := ` + queryTemplate(s.query(a.Reasons)) +
		` }}{{ if lt $i 3 }}{{ with .Labels.reason }}{{ if $i }},{{ else }}:{{ end }} {{ reReplaceAll "_" " " . }}{{ end }}{{ end }}{{ end }}{{ end }}`
}

// runbook returns the address of an alert's runbook. If the model has suspects, it is the runbook of the first, with the
// suspect's place.
func (s Style) runbook(a *Alert) string {
	if !a.Diagnosed {
		return s.Runbook(a.Name, runbookQuery(a)...)
	}
	var place strings.Builder
	for _, l := range []string{metrics.LabelPod, metrics.LabelServer, metrics.LabelInstance, metrics.LabelGPUUUID} {
		add := fmt.Sprintf(`{{ with .Labels.%s }}{{ $place = print $place "&%s=" (urlquery .) }}{{ end }}`, l, l)
		ask, others := asking(l)
		switch {
		case l == metrics.LabelPod || len(others) == 0: // the runbooks of a page's causes also ask for the pod
		case len(others) < len(ask):
			add = fmt.Sprintf(`{{ if not (match "^(%s)$" $page) }}%s{{ end }}`, strings.Join(others, "|"), add)
		default:
			add = fmt.Sprintf(`{{ if match "^(%s)$" $page }}%s{{ end }}`, strings.Join(ask, "|"), add)
		}
		place.WriteString(add)
	}
	const slo = "slo={{$labels.slo|urlquery}}" // which runbooks of suspects do not ask for
	query := slices.DeleteFunc(runbookQuery(a), func(q string) bool { return q == slo })
	query[len(query)-1] += "{{$place}}"
	return fmt.Sprintf(`{{ $page := %q }}{{ $place := "" }}{{ with %s }}{{ with first (sortByLabel %q .) }}{{ $page = .Labels.runbook }}%s{{ end }}{{ else }}{{ $place = print "&slo=" (urlquery $labels.slo) }}{{ end }}`,
		a.Name, queryTemplate(s.query(verdictQuery())), metrics.LabelOrder, place.String()) + s.Runbook("{{$page}}", query...)
}

// asking divides the runbooks of clues that have a label into those that have a place for it and the others.
func asking(label string) (ask, others []string) {
	for _, c := range Clues() {
		if !slices.Contains(promql.Labels(c.Query), label) || slices.Contains(slices.Concat(ask, others), c.Runbook) {
			continue
		}
		page, err := runbooks.Page(c.Runbook)
		place := false
		for placeholder, l := range runbooks.Labels {
			place = place || err == nil && l == label && bytes.Contains(page, []byte("$"+placeholder))
		}
		if place {
			ask = append(ask, c.Runbook)
		} else {
			others = append(others, c.Runbook)
		}
	}
	return ask, others
}

// verdict renders where a page says to look first: the first suspect in order, with its first action, or none. The series
// carries the words. This keeps the template small, because Prometheus parses it for each alert and evaluation.
func verdict(query, none string) string {
	return fmt.Sprintf(`{{ with %s }}{{ with first (sortByLabel %q .) }}Look first at: {{ .Labels.branch }}. %s.`+"\nDo first, {{ .Labels.lever }}.\n{{ end }}%s{{ end }}",
		query, metrics.LabelOrder, suspectText(), none)
}

// NamedByClues lists the labels of a suspect whose values appear unchanged in its text.
var NamedByClues = []string{metrics.LabelGPU, metrics.LabelInstance, metrics.LabelReason, metrics.LabelXID, metrics.LabelVersion, metrics.LabelTier, metrics.LabelDPRank, metrics.LabelSetting, metrics.LabelOld, metrics.LabelNew}

// SuspectText returns the Prometheus template that puts a recorded suspect (the dot) into words.
func SuspectText() string { return Brief(suspectText()) }

func suspectText() string {
	return `{{ $e := or .Labels.server "one engine" }}{{ with .Labels.pod }}{{ $e = . }}{{ else }}{{ with .Labels.instance }}{{ $e = print $e " on " . }}{{ end }}{{ end }}` +
		formatted + `{{ $s := .Labels.says }}{{ range $k, $l := .Labels }}{{ $s = reReplaceAll (print "{" $k "}") $l $s }}{{ end }}` +
		`{{ $s | reReplaceAll "{engine}" $e | reReplaceAll "{value}" $v | reReplaceAll "( on)? ?{\\w+}" "" }}`
}

// order returns a position in a form that sorts as text.
func order(i int) string { return strconv.Itoa(10 + i) }
