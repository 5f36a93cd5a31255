package rules

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Evidence is one line of the split: a query that is answered when the alert is evaluated. Without an
// answer the line is left out: absent is not zero.
type Evidence struct {
	// Text is what stands before the answer.
	Text string
	// Query may match labels on the alert's own with same.
	Query promql.Expr
	// Show formats one result.
	Show Format
}

// Format is the Prometheus template of one query result, the dot.
type Format string

// The formats.
const (
	Number   Format = `{{ .Value | humanize }}`
	Times    Format = `{{ .Value | humanize }}x`
	Percent  Format = `{{ .Value | humanizePercentage }}`
	Duration Format = `{{ .Value | humanizeDuration }}`
)

// LabelledBy shows labels of a result, then its value unless value is empty.
func LabelledBy(value Format, labels ...string) Format {
	var parts []string
	for _, l := range labels {
		parts = append(parts, "{{ .Labels."+l+" }}")
	}
	if value != "" {
		parts = append(parts, string(value))
	}
	return Format(strings.Join(parts, " "))
}

// same matches series with the same labels as the firing alert: "$label" stands for the alert's value. A label the alert lacks matches
// series that lack it too.
func same(labels ...string) []*promql.Matcher {
	m := make([]*promql.Matcher, len(labels))
	for i, l := range labels {
		m[i] = promql.Eq(l, "$"+l)
	}
	return m
}

// sameModel matches the series of the model that an alert is about.
func sameModel(more ...*promql.Matcher) []*promql.Matcher {
	return append(same(modelLabels...), more...)
}

var ownValue = regexp.MustCompile(`"\$(\w+)"`)

// queryTemplate is the query as a Prometheus template pipeline: label values are quoted at run time.
func queryTemplate(e promql.Expr) string {
	var args strings.Builder
	query := ownValue.ReplaceAllStringFunc(e.String(), func(m string) string {
		args.WriteString(" $labels." + ownValue.FindStringSubmatch(m)[1])
		return "%q"
	})
	if args.Len() == 0 {
		return "query `" + query + "`"
	}
	return "printf `" + query + "`" + args.String() + " | query"
}

// line renders one line of evidence.
func (e Evidence) line() string {
	return fmt.Sprintf("{{ with %s }}%s: {{ range $i, $r := . }}{{ if $i }}, {{ end }}{{ with $r }}%s{{ end }}{{ end }}.\n{{ end }}",
		queryTemplate(e.Query), e.Text, e.Show)
}

// now is the window of causes: long enough for a rate, short enough to show the present. recent is that of a
// page, whose short window may have seen no more.
const (
	now    = 10 * minute
	recent = 5 * minute
)

// burnSplit is the evidence under every burn-rate alert, in the order of a diagnosis: how bad, what
// else fires, where the time goes, what changed, is the hardware well.
func burnSplit() []Evidence {
	own := same(modelSLO...)
	total := func(e promql.Expr) promql.Expr { return promql.Sum(nil, e) }
	share := func(part *metrics.Family) promql.Expr {
		return promql.Div(total(promql.Rate(promql.SumOf(part, sameModel()...), recent)),
			promql.Gt(total(promql.Rate(promql.SumOf(metrics.TimeToFirstToken, sameModel()...), recent)), promql.Num(0), nil), nil)
	}
	positive := func(e promql.Expr) promql.Expr { return promql.Gt(e, promql.Num(0), nil) }
	gpus := promql.Max([]string{metrics.LabelCluster, metrics.LabelGPUUUID},
		promql.Over("last_over_time", promql.Vector(metrics.EngineGPUInfo, sameModel()...), hour))
	onGPU := promql.On(metrics.LabelCluster, metrics.LabelGPUUUID)
	return []Evidence{
		{"Burn rate over 5m", promql.Vector(burn(base), own...), Times},
		{"Burn rate over 1h", promql.Vector(burn(fresh), own...), Times},
		{"Budget left", promql.Vector(metrics.RecordedBudgetRemaining, own...), Percent},
		{"Budget gone in", promql.Vector(metrics.RecordedExhaustion, own...), Duration},
		{"Also firing for this model", promql.CountBy([]string{"alertname"}, promql.Vector(metrics.Alerts,
			sameModel(promql.Eq("alertstate", "firing"), promql.Ne(metrics.LabelBranch, string(Symptom)))...)), LabelledBy("", "alertname")},
		{"Queue share of TTFT", share(metrics.QueueTime), Percent},
		{"Prefill share of TTFT", share(metrics.PrefillTime), Percent},
		{"Requests waiting", total(promql.Vector(metrics.RequestsWaiting, sameModel()...)), Number},
		{"Requests running per replica", promql.Avg(nil, promql.Sum(replicaLabels, promql.Vector(metrics.RequestsRunning, sameModel()...))), Number},
		{"Requests running per replica the day before", batch(nil, day, hour, sameModel()...), Number},
		{"KV cache in use, fullest replica", promql.Max(nil, promql.Vector(metrics.KVCacheUsage, sameModel()...)), Percent},
		{"Preemptions per minute", positive(promql.Mul(total(promql.Rate(promql.Vector(metrics.Preemptions, sameModel()...), recent)), promql.Num(60), nil)), Number},
		{"KV transfers failed per minute", positive(promql.Mul(total(promql.Rate(promql.Vector(metrics.KVTransferFailures, sameModel()...), recent)), promql.Num(60), nil)), Number},
		{"Prefix cache hits", hitRatio(nil, recent, 0, sameModel()...), Percent},
		{"Prefix cache hits of the day before", hitRatio(nil, day, hour, sameModel()...), Percent},
		{"Prompt tokens per request", mean(metrics.RequestPromptTokens, nil, recent, sameModel()...), Number},
		{"Prompt tokens per request of the day before", meanBefore(metrics.RequestPromptTokens, nil, day, hour, sameModel()...), Number},
		{"Output tokens per request", mean(metrics.RequestGenerationTokens, nil, recent, sameModel()...), Number},
		{"Output tokens per request of the day before", meanBefore(metrics.RequestGenerationTokens, nil, day, hour, sameModel()...), Number},
		{"Draft tokens accepted", accepted(nil, recent, 0, sameModel()...), Percent},
		{"Draft tokens accepted the day before", accepted(nil, day, hour, sameModel()...), Percent},
		{"Slowest replica, mean TTFT", promql.TopK(1, nil, mean(metrics.TimeToFirstToken, replicaLabels, recent, sameModel()...)),
			LabelledBy(Duration, metrics.LabelPod, metrics.LabelServer, metrics.LabelInstance)},
		{"Engine versions in the last 6h", promql.CountBy([]string{metrics.LabelVersion},
			promql.Over("last_over_time", promql.Vector(metrics.EngineInfo, sameModel()...), 6*hour)), LabelledBy(`on {{ .Value | humanize }}`, metrics.LabelVersion)},
		{"Restarts in the last 6h", positive(total(promql.And(
			promql.Over("changes", promql.Vector(metrics.EngineStartTime, same(metrics.LabelCluster, metrics.LabelNamespace)...), 6*hour),
			promql.Over("last_over_time", promql.Vector(metrics.EngineInfo, sameModel()...), 6*hour), promql.On(pageLabels...)))), Number},
		{"Throttled GPUs (share of time)", promql.And(promql.Max(append(onGPULabels(), metrics.LabelReason),
			promql.Gt(promql.Rate(promql.Vector(metrics.GPUClockEventSeconds, promql.Re(metrics.LabelReason, HarmfulReasons)), recent), promql.Num(0.01), nil)),
			gpus, onGPU), LabelledBy(Percent, metrics.LabelGPUUUID, metrics.LabelReason)},
		{"XIDs in the last hour", promql.And(promql.Sum(append(onGPULabels(), metrics.LabelXID),
			positive(promql.Increase(promql.Vector(metrics.GPUXIDErrors), hour))), gpus, onGPU), LabelledBy("", metrics.LabelGPUUUID, metrics.LabelXID)},
	}
}
