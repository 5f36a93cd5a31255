package rules

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

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

// verdictQuery returns the suspects of the alert's model that explain what its objective measures, where it measures it:
// while a gateway's objective burns and the engines' does not, nothing that makes tokens late in the engines.
func verdictQuery() promql.Expr {
	own := func(m ...*promql.Matcher) promql.Expr {
		return promql.Vector(metrics.RecordedInfo, append(same(modelSLO...), m...)...)
	}
	all := []promql.Expr{promql.Vector(metrics.RecordedSuspect, sameModel(promql.Eq(metrics.LabelDelays, ""))...)}
	for _, d := range []Delays{AnyToken, FirstToken, NextToken} {
		var explained []string
		for _, s := range slo.Signals() {
			if d.Explain(s) {
				explained = append(explained, string(s))
			}
		}
		all = append(all, promql.And(promql.Vector(metrics.RecordedSuspect, sameModel(promql.Eq(metrics.LabelDelays, string(d)))...),
			own(promql.Re(metrics.LabelSignal, strings.Join(explained, "|"))), promql.On()))
	}
	enginesDoWell := below(promql.Vector(burn(RateWindow), append(same(ofModel...), promql.Ne(metrics.LabelRole, metrics.GatewayRole))...), 1)
	return promql.Unless(promql.Or(all[0], all[1:]...),
		promql.And(promql.Vector(metrics.RecordedSuspect, sameModel(promql.Ne(metrics.LabelDelays, ""), promql.NotRe(metrics.LabelClue, "gateway_.+"))...),
			promql.And(own(gatewayRole()), enginesDoWell, promql.On()), promql.On()))
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
	return `{{ $e := or .Labels.server "one engine" }}{{ with .Labels.pod }}{{ $e = printf "%s %s" . $e }}{{ else }}{{ with .Labels.instance }}{{ $e = printf "%s on %s" $e . }}{{ end }}{{ end }}` +
		formatted + `{{ .Labels.says` + labels.String() + ` | reReplaceAll "{engine}" $e | reReplaceAll "{value}" $v }}`
}

// order returns a position that sorts as text.
func order(i int) string { return strconv.Itoa(10 + i) }
