package rules

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// suspectGroups returns the groups that record the clues. They run twice a minute, because the clues in a page must not
// be nearly two minutes old.
func suspectGroups(opt Options) []Group {
	var units [][]Record
	for i, c := range Clues() {
		labels := map[string]string{
			metrics.LabelBranch: string(c.Branch), metrics.LabelClue: c.Name, metrics.LabelRunbook: c.Runbook,
			metrics.LabelOrder: order(i),
			metrics.LabelUnit:  string(c.Unit), metrics.LabelSays: c.Says, metrics.LabelLever: runbooks.FirstLever(c.Runbook),
		}
		if c.Delays != "" {
			labels[metrics.LabelDelays] = string(c.Delays)
		}
		units = append(units, append(slices.Clone(c.Needs), Record{metrics.RecordedSuspect, c.Query, labels}))
	}
	shown := []Record{{Name: metrics.RecordedShown, Expr: strongest()}}
	if opt.Tier == Shard { // a shard has no group of burn rates
		shown = append(shown, Record{Name: metrics.RecordedSentence, Expr: sentences(promql.Vector(metrics.RecordedShown))})
	}
	return chunked("llm-suspects", Interval/2, append(units, shown))
}

// strongest returns the strongest series of each suspect, and in the label more the number of its other series. The
// value and the label unit are as in inUnit. The suspects about stranded caches are all returned, because each such
// engine has its own page.
func strongest() promql.Expr {
	perClue := append([]string{metrics.LabelClue}, modelLabels...)
	others := promql.Ne(metrics.LabelClue, strandedCacheClue)
	of := func(m *promql.Matcher) promql.Expr { return promql.Vector(metrics.RecordedSuspect, m, others) }
	all := promql.Or(inUnit(Share, of(promql.Eq(metrics.LabelUnit, string(Share)))),
		inUnit(Seconds, of(promql.Eq(metrics.LabelUnit, string(Seconds)))),
		of(promql.NotRe(metrics.LabelUnit, string(Share+"|"+Seconds))))
	more := promql.CountValues(metrics.LabelMore, perClue, promql.Sub(promql.CountBy(perClue, promql.Vector(metrics.RecordedSuspect, others)),
		promql.Num(1)))
	return promql.Or(promql.Mul(promql.TopK(1, perClue, all), more, promql.On(perClue...).ManyToOne(metrics.LabelMore)),
		inUnit(Share, promql.Vector(metrics.RecordedSuspect, promql.Eq(metrics.LabelClue, strandedCacheClue))))
}

// inUnit converts the strength of a suspect to the number in its text. If a text follows the number, inUnit writes it into the
// label unit.
func inUnit(u Unit, e promql.Expr) promql.Expr {
	unit := func(name string, e promql.Expr) promql.Expr { return labelled(e, metrics.LabelUnit, name) }
	switch u {
	case Share:
		return unit("%", times(100, promql.Call("clamp_max", e, promql.Num(1))))
	case Seconds:
		return promql.Or(unit("ms", below(times(1000, e), 1000)), promql.Ge(e, promql.Num(1)))
	case Count, Decimal, On, Bare:
	}
	return e
}

// Worded returns the results of a clue's expression with words in the label "says". This includes results that are not
// clear enough for a suspect. "1 times as long" becomes "as long". labels are the labels of the rule that records the
// clue.
func Worded(e promql.Expr, labels map[string]string) promql.Expr {
	for _, l := range []string{metrics.LabelUnit, metrics.LabelSays} {
		e = labelled(e, l, labels[l])
	}
	says := promql.Str(metrics.LabelSays)
	return promql.Call("label_replace", sentences(inUnit(Unit(labels[metrics.LabelUnit]), e)), says, promql.Str("$1$3"), says,
		promql.Str(`(.* )?1([.]0)? times (as .*)`))
}

// sentences fills in the placeholders in the texts of suspects. Numbers below ten have two digits, and other numbers
// are whole. PromQL can insert one label into another only if both are parts of one text, so the rules join all labels
// first. If a place has no value, the place and the word before it are left out.
func sentences(shown promql.Expr) promql.Expr {
	const value = "v"
	parts := []string{
		metrics.LabelSays, value, metrics.LabelUnit, metrics.LabelPod, metrics.LabelServer, metrics.LabelInstance,
		metrics.LabelGPU, metrics.LabelReason,
		metrics.LabelTier, metrics.LabelDPRank, metrics.LabelSetting, metrics.LabelOld, metrics.LabelNew, metrics.LabelMore,
	}
	rounded := promql.Or(promql.Ge(promql.Call("round", shown), promql.Num(10)), promql.Call("round", shown, promql.Num(0.01)))
	args := []promql.Expr{promql.WithValue(value, rounded), promql.Str(metrics.LabelSays), promql.Str("|")}
	for _, l := range parts {
		args = append(args, promql.Str(l))
	}
	e := promql.Call("label_join", args...)
	replace := func(pattern, with string) {
		e = promql.Call("label_replace", e, promql.Str(metrics.LabelSays), promql.Str(with), promql.Str(metrics.LabelSays), promql.Str(pattern))
	}
	fill := func(placeholder, from, with string) {
		replace(fmt.Sprintf("(.*){%s}(([^|]*[|]){%d}([^|]+).*)", placeholder, slices.Index(parts, from)), "$1"+with+"$2")
	}
	// This matches the second part, with two digits, and the beginning of the third part.
	replace("(.*){value}([^|]*[|]([1-9][.]\\d|[^|]*)\\d*[|](%|m?s)?.*)", "$1$3$4$2")
	fill("engine", metrics.LabelPod, "$4")
	fill("engine", metrics.LabelServer, "$4 on {instance}")
	replace("(.*){engine}(.*)", "${1}one engine$2")
	for _, l := range parts[slices.Index(parts, metrics.LabelInstance) : len(parts)-1] {
		fill(l, l, "$4")
	}
	replace(`([^|]*)([|].*[|]([1-9]\d*))`, "$1 (and $3 more)$2")
	replace(`([^|]*?)((( on)? ?{\w+})+([^|]*))?[|].*`, "$1$5") // the first part, without empty places
	return promql.Drop([]string{metrics.LabelUnit, metrics.LabelMore, value}, e)
}

// firstSuspects returns the first suspect that explains the burn of each objective. An objective is joined with
// suspects by the label delays. It may match several values of this label, so the first suspect with each value is
// selected before the join. The position of a suspect is also a label. PromQL can read a label as a number only if it
// is the bound of a bucket, so histogram_quantile reads the position.
func firstSuspects() promql.Expr {
	all := promql.Vector(metrics.RecordedSentence)
	place := promql.Call("histogram_quantile", promql.Num(1), promql.Or(
		promql.Call("label_replace", all, promql.Str("le"), promql.Str("$1"), promql.Str(metrics.LabelOrder), promql.Str("(.*)")),
		labelled(all, "le", "+Inf")))
	perDelay := append([]string{metrics.LabelDelays}, modelLabels...)
	return promql.BottomK(1, modelSLO, promql.Mul(promql.Vector(metrics.RecordedExplained), promql.BottomK(1, perDelay, place),
		promql.On(perDelay...).ManyToOne(metrics.LabelBranch, metrics.LabelClue, metrics.LabelSays, metrics.LabelLever, metrics.LabelRunbook,
			metrics.LabelPod, metrics.LabelServer, metrics.LabelInstance, metrics.LabelGPU, metrics.LabelGPUUUID)))
}

// explained returns, for each objective that burns, the values of the label delays with which a suspect explains the
// burn. If a gateway's objective burns but the engines' objective does not, no delay or refusal in the engines explains
// the burn. A delay on the way to a gateway shows only at gateways and in probes. Clues are about the last minutes, so
// they do not explain a burn that ended more than five minutes ago and that only a longer window still shows.
func explained() promql.Expr {
	info := func(m ...*promql.Matcher) promql.Expr { // also after the engine is gone
		return promql.Over("last_over_time", promql.Vector(metrics.RecordedInfo, m...), infoLookback)
	}
	late := func(d Delays, wait bool, m ...*promql.Matcher) promql.Expr {
		var signals []string
		for _, s := range slo.Signals() {
			if d.Explain(s, wait) {
				signals = append(signals, string(s))
			}
		}
		if len(signals) < len(slo.Signals()) {
			m = append(m, promql.Re(metrics.LabelSignal, strings.Join(signals, "|")))
		}
		return info(m...)
	}
	explains := func(d Delays) promql.Expr { return labelled(late(d, false), metrics.LabelDelays, string(d)) }
	waits := promql.Vector(metrics.RecordedSentence, promql.Eq(metrics.LabelClue, QueueLong))
	behind := func(d Delays) promql.Expr {
		return labelled(promql.And(late(d, true), waits, promql.On(modelLabels...)), metrics.LabelDelays, string(d))
	}
	enginesDoWell := below(promql.Vector(burn(RateWindow), promql.Ne(metrics.LabelRole, metrics.GatewayRole)), 1)
	elsewhere := promql.And(promql.Vector(metrics.RecordedInfo, gatewayRole()), enginesDoWell, promql.On(ofModel...))
	inEngines := promql.Unless(promql.Or(explains(AnyRequest), explains(AnyToken), explains(FirstToken), explains(NextToken),
		behind(AnyToken), behind(FirstToken)), elsewhere,
		promql.On(modelSLO...))
	onTheWay := promql.Or(late(AtGateway, false, gatewayRole()), info(promql.Eq(metrics.LabelSignal, string(slo.ProbeTTFT))))
	all := promql.Or(info(), inEngines, labelled(onTheWay, metrics.LabelDelays, string(AtGateway)), explains(Failures))
	return promql.Max(append([]string{metrics.LabelDelays}, modelSLO...), promql.Unless(all, promql.Le(promql.Vector(burn(RateWindow)),
		promql.Num(1)), promql.On(modelSLO...)))
}

// verdictQuery returns the first suspect that explains why the alert's objective burns.
func verdictQuery() promql.Expr { return promql.Vector(metrics.RecordedVerdict, same(modelSLO...)...) }

const (
	laterWindow  = slo.Duration(30 * minute) // short window of the second pair that pages
	ticketWindow = slo.Duration(6 * hour)    // short window of the last pair, which opens tickets
)

// title describes what users notice when an alert's objective burns, compared with the objective. For a page, it adds
// the mean wait if the wait is longer than promised. A ticket may be about bursts, so its title describes the last six
// hours. If an alert has no objective, the title is empty.
func (s Style) title(a *Alert) string {
	if !a.Diagnosed {
		return ""
	}
	own := same(modelSLO...)
	allowed := promql.Vector(metrics.RecordedErrorBudget, own...)
	with := func(e promql.Expr, shown string) string {
		return "{{ with " + queryTemplate(s.query(e)) + ` }}` + shown + `{{ end }}`
	}
	percent := func(e promql.Expr) string { return with(e, `{{ (first .).Value | humanizePercentage }}`) }
	share, detail := promql.Mul(promql.Vector(burn(ticketWindow), own...), allowed), "in "+ticketWindow.String()+", "
	if a.Severity == slo.Page { // a burn that has ended has no present share
		shareNow, burnsNow := promql.Vector(metrics.RecordedBadShareNow, own...), above(promql.Vector(burn(RateWindow), own...), 1)
		share = promql.Or(shareNow, promql.Mul(promql.Or(burnsNow, promql.Vector(burn(laterWindow), own...)), allowed))
		detail = with(meanWait(own, shareNow, burnsNow), `mean {{ (first .).Value | humanizeDuration`+rounded+` }}, `)
	}
	bad := promql.Over("last_over_time", promql.Vector(metrics.RecordedInfo, append(own, promql.Ne(metrics.LabelBad, ""))...), infoLookback)
	return `{{ with $labels.cluster }}{{ . }}/{{ end }}{{ with $labels.namespace }}{{ . }}/{{ end }}` + theModel +
		`{{ with $labels.role }} at the {{ . }}{{ if match "prefill|decode" . }} engines{{ end }}{{ end }}: ` +
		percent(share) + ` of ` +
		with(bad, `{{ (first .).Labels.bad }}{{ else }}events of {{ or $labels.slo "an objective" }} are bad`) + ` (` + detail +
		`promise ` + percent(allowed) + `)`
}

// meanWait returns the mean wait, if it is longer than promised, over the same minutes as the share of bad events in a
// page. The mean covers only tokens that have arrived, while overdue tokens already count as bad events. Therefore, the
// mean may be below the threshold during a burn.
func meanWait(own []*promql.Matcher, shareNow, burnsNow promql.Expr) promql.Expr {
	threshold := promql.Max(nil, promql.Vector(metrics.SLOThreshold,
		append(same(metrics.LabelCluster, metrics.LabelSLO), promql.Eq(metrics.LabelKind, "requested"))...))
	mean := func(stage, signals string) promql.Expr {
		in := func(window time.Duration) promql.Expr {
			return promql.Vector(meanIn(window), append(sameModel(), ofStage(stage))...)
		}
		earlier := promql.And(in(RateWindow.Std()), promql.Unless(burnsNow, shareNow, promql.On()), promql.On())
		return promql.And(promql.Or(promql.And(in(minute), shareNow, promql.On()), earlier), promql.Vector(metrics.RecordedInfo,
			append(own, promql.Eq(metrics.LabelRole, ""), promql.Either(metrics.LabelSignal, signals))...), promql.On())
	}
	return promql.Gt(promql.Or(mean(metrics.StageFirstToken, string(slo.TTFT)), mean(metrics.StageNextToken, string(slo.ITL+"|"+slo.TPOT))),
		threshold, promql.On())
}

// serves names a model on the alert's GPU or engine, and mentions whether there are others. It leaves out long names,
// because the title has no room for them.
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
	return `{{ with ` + queryTemplate(s.query(models)) +
		` }}{{ $n := len . }}{{ with first . }}{{ if match "^.{1,48}$" .Labels.model_name }}` +
		`{{ with .Labels.cluster }}{{ . }}/{{ end }}{{ with .Labels.namespace }}{{ . }}/{{ end }}{{ .Labels.model_name }}{{ if gt $n 1 }} and others{{ end }}: {{ end }}{{ end }}{{ end }}`
}

// reasons returns the end of an alert's summary: up to three reasons, unless the alert is about a single setting, which
// the summary names itself.
func (s Style) reasons(a *Alert) string {
	if a.Reasons == nil {
		return ""
	}
	return `{{ if not $labels.setting }}{{ range $i, $r := ` + queryTemplate(s.query(a.Reasons)) +
		` }}{{ if lt $i 3 }}{{ with .Labels.reason }}{{ if $i }},{{ else }}:{{ end }} {{ reReplaceAll "_" " " . }}{{ end }}{{ end }}{{ end }}{{ end }}`
}

// promise returns the end of a summary about failed requests: the share that may fail at most.
func (s Style) promise(a *Alert) string {
	if !a.Promised {
		return ""
	}
	allowed := promql.Min(nil, promql.And(promql.Vector(metrics.RecordedErrorBudget, sameModel()...), promql.Vector(metrics.RecordedInfo,
		sameModel(promql.Eq(metrics.LabelSignal, string(slo.Availability)))...), promql.On(modelSLO...)))
	return `{{ with ` + queryTemplate(s.query(allowed)) + ` }} (at most {{ (first .).Value | humanizePercentage }} may fail){{ end }}`
}

// runbook returns the address of an alert's runbook. For a diagnosed alert, it is the runbook of the first suspect, if
// there is one, with labels of the suspect as parameters.
func (s Style) runbook(a *Alert) string {
	if !a.Diagnosed {
		return s.Runbook(a.Name, runbookQuery(a)...)
	}
	var place strings.Builder
	for _, l := range []string{metrics.LabelPod, metrics.LabelServer, metrics.LabelInstance, metrics.LabelGPUUUID} {
		add := fmt.Sprintf(`{{ with .Labels.%s }}{{ $place = print $place "&%s=" (urlquery .) }}{{ end }}`, l, l)
		ask, others := asking(l)
		switch {
		case l == metrics.LabelPod || len(others) == 0: // runbooks of a page's causes also need the pod
		case len(others) < len(ask):
			add = fmt.Sprintf(`{{ if not (match "^(%s)$" $page) }}%s{{ end }}`, strings.Join(others, "|"), add)
		default:
			add = fmt.Sprintf(`{{ if match "^(%s)$" $page }}%s{{ end }}`, strings.Join(ask, "|"), add)
		}
		place.WriteString(add)
	}
	const slo = "slo={{$labels.slo|urlquery}}" // runbooks of suspects do not need the objective
	query := slices.DeleteFunc(runbookQuery(a), func(q string) bool { return q == slo })
	query[len(query)-1] += "{{$place}}"
	return fmt.Sprintf(`{{ $page := %q }}{{ $place := "" }}{{ with %s }}{{ with first . }}{{ $page = .Labels.runbook }}%s{{ end }}{{ else }}{{ $place = print "&slo=" (urlquery $labels.slo) }}{{ end }}`,
		a.Name, queryTemplate(s.query(verdictQuery())), place.String()) + s.Runbook("{{$page}}", query...)
}

// asking returns the runbooks of the clues whose results have a label. The runbooks in ask have a placeholder for the
// label, and those in others have none.
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

// verdict renders where to look first: the first suspect that the query returns, and its first action. Without a
// suspect, it renders the text none.
func verdict(query promql.Expr, s Style, none string) string {
	first := "first ."
	if slices.Contains(promql.Labels(query), metrics.LabelOrder) {
		first = fmt.Sprintf("first (sortByLabel %q .)", metrics.LabelOrder)
	}
	return fmt.Sprintf("{{ with %s }}{{ with %s }}Look first at: {{ .Labels.branch }}. {{ .Labels.says }}.\nDo first, {{ .Labels.lever "+
		"}}.\n{{ end }}%s{{ end }}",
		queryTemplate(s.query(query)), first, none)
}

// order formats a position so that positions sort alphabetically.
func order(i int) string { return strconv.Itoa(10 + i) }
