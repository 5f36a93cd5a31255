package rules

import (
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// These alerts are about the measurement itself, because an outage that is not measured cannot page. The expressions of
// the first two alerts depend on the scrape job: see exporterAlerts.
var (
	ExporterDown = &Alert{
		Name:      "LLMExporterDown",
		Branch:    Exporter,
		Severity:  slo.Ticket,
		For:       10 * minute,
		Scope:     []string{metrics.LabelInstance},
		DependsOn: []Quiet{{ExporterFleetDown, []string{metrics.LabelCluster}}},
		Summary: "The exporter" + atNode +
			" {{ if $labels.reason }}has run out of file descriptors, ports or memory and cannot read engines{{ else }}cannot be scraped{{ end }}",
		Description: "The engines and GPUs of its node, or its targets, are not measured. The engines themselves may be fine.",
		Dashboard:   ExporterDashboard,
	}
	ExporterFleetDown = &Alert{
		Name:     "LLMExporterFleetDown",
		Branch:   Exporter,
		Severity: slo.Page,
		For:      3 * minute, // so that this alert fires before LLMModelDown fires for the first model
		Scope:    nil,
		Summary:  "Most exporters{{ with $labels.cluster }} of {{ . }}{{ end }} cannot be scraped: objectives are not measured",
		Description: "No burn alert can fire for their engines. Look at what the exporters share: a rollout, a network policy, " +
			"the scrape configuration.",
		Dashboard: ExporterDashboard,
	}
	SourceMissing = &Alert{
		Name:   "LLMSourceMetricMissing",
		Branch: Exporter,
		Expr: above(promql.Sum([]string{metrics.LabelCluster, metrics.LabelRuntime, metrics.LabelMetric, metrics.LabelSource},
			promql.Increase(promql.Vector(metrics.SourceMissing), 15*minute)), 0),
		Severity: slo.Ticket,
		For:      15 * minute,
		Scope:    []string{metrics.LabelRuntime, metrics.LabelMetric},
		Summary:  `{{ or $labels.runtime "An engine" }} no longer reports {{ or $labels.source "a metric" }}`,
		Description: `An engine release probably renamed this metric. Until the exporter knows the new name, ` +
			`{{ or $labels.metric "the metric derived from it" }} is absent, and alerts that read it cannot fire.`,
		Dashboard: ExporterDashboard,
	}
	DiscoveryFailed = &Alert{
		Name:   "LLMDiscoveryFailed",
		Branch: Exporter,
		Expr: promql.Equal(promql.Max([]string{metrics.LabelCluster, metrics.LabelInstance, metrics.LabelSource, metrics.LabelReason},
			promql.Vector(metrics.DiscoveryUp)), promql.Num(0)),
		Severity: slo.Ticket,
		For:      15 * minute,
		Scope:    []string{metrics.LabelInstance},
		Summary:  "The exporter" + atNode + " cannot discover engines{{ with $labels.reason }}: {{ . }}{{ end }}",
		Description: "Engines that started after discovery failed are not measured and do not count toward objectives. Engines found earlier " +
			"are still read.",
		Dashboard: ExporterDashboard,
	}
	ObjectiveWithoutEvents = &Alert{
		Name:   "LLMObjectiveWithoutEvents",
		Branch: Exporter,
		Expr: promql.Unless(
			promql.Or(
				// Some engines report a signal only after their first request.
				promql.Unless(uncounted(promql.Ne(metrics.LabelRole, metrics.GatewayRole)), promql.Equal(promql.Over("max_over_time",
					promql.Vector(metrics.RecordedGenerationTokens), hour), promql.Num(0)), promql.On(modelLabels...)),
				// The engines behind a gateway count the events that the gateway does not count.
				promql.Unless(uncounted(gatewayRole()), promql.Vector(metrics.SLOCounted, promql.Ne(metrics.LabelRole, metrics.GatewayRole)),
					promql.On(ofModel...)),
				// A selector that matched an engine within the day is correct, because engines come and go. The rule
				// looks only every 15 minutes, because reading the whole day would cost too much.
				promql.Unless(promql.Max(sloLabels, promql.Vector(metrics.SLOObjective)),
					promql.Sampled("last_over_time", promql.Max(sloLabels, promql.Vector(metrics.SLOCounted)), day, 15*minute))),
			// The built-in objectives are left out, because nobody declared them.
			promql.Max(sloLabels, promql.Vector(metrics.SLOInfo, promql.Eq(metrics.LabelOrigin, metrics.OriginDefault))), promql.On(sloLabels...)),
		Severity:  slo.Ticket,
		For:       hour,
		Scope:     []string{metrics.LabelSLO},
		DependsOn: []Quiet{{ExporterFleetDown, []string{metrics.LabelCluster}}},
		Summary: "{{ with $labels.slo }}Objective {{ . }}{{ else }}An objective{{ end }} counts nothing{{ with $labels.model_name }} " +
			"for {{ . }}{{ end }}{{ with $labels.reason }}: {{ . }}{{ end }}",
		Description: "The objective is configured, but counts no requests, so it cannot alert. Either no engine matches its selectors, or " +
			"the engine does not report the signal.",
		Dashboard: ExporterDashboard,
	}
	ObjectiveConflict = &Alert{
		Name:     "LLMObjectiveConflict",
		Branch:   Exporter,
		Expr:     disputed(),
		Severity: slo.Ticket,
		For:      hour,
		Scope:    []string{metrics.LabelSLO, metrics.LabelModel},
		Summary:  "Exporters disagree about {{ with $labels.slo }}objective {{ . }}{{ else }}an objective{{ end }}",
		Description: "Until the exporters agree, the strictest target and the longest period apply, and events against different " +
			"thresholds are mixed.",
		Split: []Evidence{
			{
				"Targets", promql.Max(exporterLabels, promql.Vector(metrics.SLOObjective, same(metrics.LabelCluster, metrics.LabelSLO)...)),
				LabelledBy(Percent, "job", metrics.LabelInstance),
			},
		},
		Dashboard: ExporterDashboard,
	}
)

// disputed returns the models whose exporters disagree about one objective for longer than a rollout takes.
func disputed() promql.Expr {
	words := []string{metrics.LabelSignal, metrics.LabelBad, metrics.LabelPeriod}
	info := promql.Call("label_replace", promql.Vector(metrics.SLOInfo), promql.Str(metrics.LabelBad), promql.Str("$1"),
		promql.Str(metrics.LabelBad), promql.Str("([^0-9]*).*")) // the effective threshold depends on the engine
	promises := promql.CountBy(modelSLO, promql.CountBy(slices.Concat(words, modelSLO), saidBy(exporterSLO, info, words...)))
	differ := func(e promql.Expr) promql.Expr { return above(promql.Stddev(modelSLO, saidBy(exporterSLO, e)), 0) }
	return promql.Or(differ(promql.Vector(metrics.SLOObjective)), differ(promql.Vector(metrics.SLOThreshold,
		promql.Eq(metrics.LabelKind, "requested"))), above(promises, 1))
}

// exporterAlerts returns the alerts about the measurement.
func exporterAlerts(opt Options) []*Alert {
	up := promql.Vector(metrics.Up, promql.Either("job", opt.Job))
	one := *ExporterDown
	asked := []string{metrics.LabelCluster, "job", metrics.LabelInstance}
	one.Expr = promql.Equal(promql.Or(promql.Equal(promql.Max(asked, up), promql.Num(0)),
		promql.Max(append(asked, metrics.LabelReason), promql.Vector(metrics.EngineUp, promql.Eq(metrics.LabelReason,
			"exporter_exhausted")))), promql.Num(0))
	most := *ExporterFleetDown
	most.Expr = fleetDown(up, promql.Vector(metrics.ConfigReloadSuccess, promql.NotRe("job", opt.Job)))
	return []*Alert{&one, &most, SourceMissing, DiscoveryFailed, ObjectiveWithoutEvents, ObjectiveConflict, ProbeBroken}
}

// byNode sets the label node of each target. If the scrape has not set this label, it is the host in the target's
// address.
func byNode(targets promql.Expr) promql.Expr {
	both := promql.Call("label_join", targets, promql.Str("node"), promql.Str(";"), promql.Str("node"), promql.Str(metrics.LabelInstance))
	return promql.Call("label_replace", both, promql.Str("node"), promql.Str("$1$2"), promql.Str("node"), promql.Str(`(.+);.*|;(.*?)(:\d+)?`))
}

// exporterGone returns each exporter that answered within the hour but does not answer now. The value is 0 if another
// target on its node answers, and 1 if the node has no other target. An exporter whose node is gone, because none of
// the node's other targets answers any more, is left out.
func exporterGone(opt Options) promql.Expr {
	up := promql.Vector(metrics.Up, promql.Either("job", opt.Job))
	gone := byNode(above(promql.Unless(promql.Over("max_over_time", up, hour), promql.Equal(up, promql.Num(1)), promql.On(asker...)), 0))
	others, onNode := promql.Vector(metrics.RecordedNodeUp), promql.On(metrics.LabelCluster, "node")
	return promql.Max(asker, promql.Or(
		times(0, promql.And(gone, above(others, 0), onNode)),
		promql.Unless(gone, above(promql.Over("max_over_time", others, hour), 0), onNode)))
}

// uncounted returns the objectives of a model for which some matching engine or gateway counts nothing, with the
// reason.
func uncounted(m *promql.Matcher) promql.Expr {
	return promql.Equal(promql.Max(append([]string{metrics.LabelRuntime, metrics.LabelReason}, ofModel...),
		promql.Vector(metrics.SLOCounted, m)), promql.Num(0))
}

// fleetDown returns each fleet that had at least two exporters within the hour, if most of its exporters do not answer.
// It also returns a fleet whose targets have all vanished, if users last sent requests. Without requests, the nodes may
// have been removed on purpose. renamed selects exporters under another job: if there are any, the exporters have not
// vanished.
func fleetDown(up, renamed promql.Expr) promql.Expr {
	job := []string{metrics.LabelCluster, "job"}
	fleet := promql.Ge(promql.CountBy(job, promql.Over("count_over_time", up, hour)), promql.Num(2))
	last := func(f *metrics.Family) promql.Expr { return promql.Over("last_over_time", promql.Vector(f), hour) }
	cluster := []string{metrics.LabelCluster}
	asked := promql.Max(cluster, promql.Sum(modelLabels, promql.Or(last(metrics.RecordedRequests), times(-1, last(metrics.RecordedProbes)))))
	busy := promql.Or(above(asked, 0.01), promql.Unless(above(promql.Max(cluster, last(metrics.RecordedGenerationTokens)), 0), asked))
	return promql.Or(
		promql.And(below(promql.Avg(job, up), 0.5), fleet),
		promql.And(promql.Unless(promql.Unless(fleet, promql.CountBy(job, up)), renamed, promql.On(metrics.LabelCluster)),
			busy, promql.On(cluster...)))
}
