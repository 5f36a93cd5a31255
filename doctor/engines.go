package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	engines "github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// subject returns the name of an engine, as the subject of a finding.
func subject(labels map[string]string) string {
	s := "engine " + labels[metrics.LabelServer]
	if pod := labels[metrics.LabelPod]; pod != "" {
		s += " (" + labels[metrics.LabelNamespace] + "/" + pod + ")"
	}
	return s
}

// checkEngines checks the metrics pages of the engines. It looks for missing metrics.
func checkEngines(p Picture, r *Report) {
	e := p.Exporter
	for _, place := range e.engines.Engines {
		of := subject(map[string]string{metrics.LabelServer: place.Server, metrics.LabelNamespace: place.Namespace, metrics.LabelPod: place.Pod})
		problem := "its metrics page cannot be used: " + place.State
		switch place.State {
		case "up":
			continue
		case engines.NotLoaded:
			r.fine(of + ": no model is loaded; the next request loads one (" + place.State + ")")
			continue
		case engines.NoWorker:
			problem = "its metrics page is read, but the engine is down: " + place.State
		}
		r.add(Finding{
			Severity: Missing, Subject: of,
			Problem: problem, Remedy: strings.ReplaceAll(place.Todo, "URL", "http://"+place.Server+"/metrics"),
			Docs: "docs/engines.md#when-metrics-cannot-be-read",
		})
	}
	if len(e.engines.Engines) == 0 && len(e.of(metrics.ProbeBudget)) == 0 {
		remedy := "name one: --engine.target=http://127.0.0.1:8000, or targets in --config.file"
		if n := len(e.engines.Places); n > 0 {
			remedy += fmt.Sprintf("; the exporter looked at %s, and /engines explains why it reads none", count(n, "address"))
		}
		r.add(Finding{Severity: Missing, Subject: "engines", Problem: "none is read", Remedy: remedy, Docs: operations +
			"#an-engine-is-not-found"})
	}
	for _, s := range e.of(metrics.EngineLastServed) {
		// Otherwise the finding about its metrics page covers it.
		if is(e.of(metrics.EngineUp, metrics.LabelServer, s.labels[metrics.LabelServer], metrics.LabelPod, s.labels[metrics.LabelPod]), 1) {
			r.add(Finding{
				Severity: Missing, Subject: subject(s.labels), Problem: "no worker serves " + s.labels[metrics.LabelModel] +
					": every request for it fails",
				Remedy: engines.Remedy(engines.NoWorker), Docs: "runbooks/LLMModelDown.md",
			})
		}
	}
	checkWorkers(p, r)
	for _, s := range e.of(metrics.SourceMissing) {
		if s.value > 0 {
			r.add(Finding{
				Severity: Missing, Subject: subject(s.labels),
				Problem: s.labels[metrics.LabelMetric] + " is absent, although its version should have " + s.labels[metrics.LabelSource],
				Remedy:  "compare the engine's flags with those of an engine that has it; if it was renamed, update the exporter",
				Docs:    "runbooks/LLMSourceMetricMissing.md",
			})
		}
	}
	for _, s := range e.of(metrics.UnknownOutcome) {
		r.add(Finding{
			Severity: Missing, Subject: subject(s.labels),
			Problem: "reports an outcome of requests that this exporter does not know: " + s.labels[metrics.LabelSource] +
				"; for availability, they are neither good nor bad",
			Remedy: "update the exporter; if its newest release does not know the value either, report it with the engine's version",
			Docs:   "docs/metrics.md",
		})
	}
	for _, engine := range e.pages() {
		checkSources(p, engine, r)
	}
	checkEnds(p, r)
}

// checkEnds finds gateways that do not report how requests ended.
func checkEnds(p Picture, r *Report) {
	e, said := p.Exporter, map[string]bool{}
	for _, gateway := range e.of(metrics.EngineInfo, metrics.LabelRole, metrics.GatewayRole) {
		of := subject(gateway.labels)
		if said[of] {
			continue
		}
		said[of] = true
		var why []string
		for _, s := range e.of(metrics.MetricSourceInfo, metrics.LabelServer, gateway.labels[metrics.LabelServer], metrics.LabelPod,
			gateway.labels[metrics.LabelPod],
			metrics.LabelMetric, metrics.Requests.Name, metrics.LabelQuality, string(metrics.Approximate)) {
			why = append(why, s.labels[metrics.LabelReason])
		}
		line := fmt.Sprintf("%s: %s is read", of, gateway.labels[metrics.LabelRuntime])
		if len(why) > 0 {
			line += "; the outcome of its requests is approximate: " + strings.Join(distinct(why), "; ")
		}
		r.fine(line)
	}
}

// checkWorkers looks for gateways that have workers but may send requests to no worker.
func checkWorkers(p Picture, r *Report) {
	e := p.Exporter
	for _, s := range e.of(metrics.GatewayWorkers, metrics.LabelReason, "") {
		where := []string{metrics.LabelServer, s.labels[metrics.LabelServer], metrics.LabelPod, s.labels[metrics.LabelPod]}
		if s.value > 0 || is(e.of(metrics.EngineUp, append(where, metrics.LabelReason, engines.NoWorker)...), 0) {
			continue
		}
		var why []string
		for _, w := range e.of(metrics.GatewayWorkers, append(where, metrics.LabelRoute, s.labels[metrics.LabelRoute])...) {
			if w.value > 0 {
				why = append(why, fmt.Sprintf("%s %.0f", w.labels[metrics.LabelReason], w.value))
			}
		}
		problem := "may send requests to none of its workers"
		if route := s.labels[metrics.LabelRoute]; route != "" {
			problem += " on the route " + route
		}
		if why != nil {
			problem += ": " + strings.Join(why, ", ")
		}
		r.add(Finding{
			Severity: Missing, Subject: subject(s.labels), Problem: problem, Docs: "docs/engines.md",
			Remedy: "send a request to each worker; if it answers, the gateway uses it again after its next attempt; otherwise read the " +
				"worker's log",
		})
	}
}

// pages returns the labels of each engine's metrics page. Each page occurs once, even if the engine has several models.
func (r *Reading) pages() []map[string]string {
	var all []map[string]string
	for _, s := range r.of(metrics.EngineInfo, metrics.LabelRole, "") {
		if !slices.ContainsFunc(all, func(seen map[string]string) bool { return subject(seen) == subject(s.labels) }) {
			all = append(all, s.labels)
		}
	}
	return all
}

// flag is the beginning of the reason for a missing metric that needs a flag of the engine, as in "needs
// --enable-metrics".
const flag = "needs "

// checkSources checks the metrics that an engine does not report. If a flag of the engine would add a metric, the
// metric is a finding. All other metrics are listed as ones that the engine cannot report.
func checkSources(p Picture, engine map[string]string, r *Report) {
	e := p.Exporter
	where := []string{metrics.LabelServer, engine[metrics.LabelServer], metrics.LabelPod, engine[metrics.LabelPod]}
	shown, parts := map[string]bool{}, []string(nil)
	of := func(s series) string { return s.labels[metrics.LabelRuntime] + " " + s.labels[metrics.LabelMetric] }
	for _, s := range e.of(metrics.MetricSourceInfo, where...) {
		shown[of(s)] = shown[of(s)] || s.labels[metrics.LabelQuality] != string(metrics.Missing)
	}
	missing := map[string]string{} // reasons, by metric
	flags := map[string][]string{} // metrics, by reason
	for _, s := range e.of(metrics.MetricSourceInfo, append(where, metrics.LabelQuality, string(metrics.Missing))...) {
		metric, reason := s.labels[metrics.LabelMetric], s.labels[metrics.LabelReason]
		if shown[of(s)] { // the metric is absent only for one outcome
			parts = append(parts, metric+": "+reason)
			continue
		}
		missing[metric] = reason
		if strings.HasPrefix(reason, flag) {
			flags[reason] = append(flags[reason], metric)
		}
	}
	counted := is(e.of(metrics.SLOCounted, where...), 1)
	absent := func(f *metrics.Family) bool {
		return missing[f.Name] != "" || !counted && (f == metrics.SLOEvents || f == metrics.SLOBadEvents)
	}
	wanted := 0
	for _, reason := range slices.Sorted(maps.Keys(flags)) {
		alerts := p.Rules.regained(absent, flags[reason])
		if path, locked := strings.CutPrefix(reason, engines.NeedsKey); locked {
			wanted++
			r.add(Finding{
				Severity: Missing, Subject: subject(engine), Problem: path + " requires a key, so " + some(distinct(flags[reason])) +
					" is not read", Alerts: alerts,
				Remedy: "give the target the key with http_config: {authorization: {credentials_file: FILE}}", Docs: "docs/operations.md",
			})
			continue
		}
		if len(alerts) == 0 {
			continue
		}
		wanted++
		remedy := "start the engine with " + strings.TrimPrefix(reason, flag)
		if cost := engines.Cost(metrics.Runtime(engine[metrics.LabelRuntime]), reason); cost != "" {
			remedy += " (" + cost + ")"
		}
		r.add(Finding{
			Severity: Missing, Subject: subject(engine), Problem: "does not report " + some(distinct(flags[reason])), Alerts: alerts,
			Remedy: remedy, Docs: "docs/engines.md",
		})
	}
	var line strings.Builder
	fmt.Fprintf(&line, "%s: %s %s is read", subject(engine), engine[metrics.LabelRuntime], engine[metrics.LabelVersion])
	if silent := p.Rules.silenced(absent); wanted == 0 && len(silent) > 0 {
		line.WriteString("; it lacks metrics for " + some(silent) + ", which cannot fire for it")
	}
	for _, part := range parts {
		line.WriteString("; of " + part)
	}
	r.fine(line.String())
}

// objectiveRemedies maps a value of llm_slo_counted's reason label to the remedy.
var objectiveRemedies = map[slo.Reason]string{
	slo.SignalMissing: "choose another signal for this runtime, restrict select: to another, or let a probe measure it",
	slo.BelowGrid:     "raise its threshold to a bucket that the engine has; exporter --config.check names the nearest",
	slo.OffGrid: "choose a threshold near a bucket that the engine has, or give the engine one (SGLang: " +
		"--bucket-time-to-first-token and similar flags); the exporter's log names the nearest",
	slo.FailuresHidden: "measure availability at the gateway or with a probe, because the engine only reports successes",
}

// checkObjectives checks that each declared objective counts events. It leaves out built-in objectives, because nobody
// relies on them.
func checkObjectives(p Picture, r *Report) {
	e := p.Exporter
	alerts := p.Rules.silenced(func(f *metrics.Family) bool { return f == metrics.SLOEvents || f == metrics.SLOBadEvents })
	for _, info := range e.of(metrics.SLOInfo) {
		if info.labels[metrics.LabelOrigin] == metrics.OriginDefault {
			continue
		}
		name := info.labels[metrics.LabelSLO]
		subject := "objective " + name
		counted := e.of(metrics.SLOCounted, metrics.LabelSLO, name)
		servers := map[string][]string{} // by reason
		for _, s := range counted {
			if s.value == 0 {
				reason := s.labels[metrics.LabelReason]
				servers[reason] = append(servers[reason], s.labels[metrics.LabelServer])
			}
		}
		for _, reason := range slices.Sorted(maps.Keys(servers)) {
			r.add(Finding{
				Severity: Missing, Subject: subject, Problem: "counts nothing on " + some(distinct(servers[reason])) + ": " + reason,
				Alerts: alerts,
				Remedy: objectiveRemedies[slo.Reason(reason)], Docs: "runbooks/LLMObjectiveWithoutEvents.md",
			})
		}
		elsewhere := p.Prometheus != nil && slices.Contains(p.Prometheus.counted, name)
		switch {
		case len(servers) > 0:
		case len(counted) > 0 || len(e.of(metrics.SLOEvents, metrics.LabelSLO, name)) > 0:
			r.fine(subject + ": counts events")
		case elsewhere || is(e.of(metrics.SLOMayBeAbsent, metrics.LabelSLO, name), 1):
			r.fine(subject + ": selects no engine here")
		default:
			r.add(Finding{
				Severity: Missing, Subject: subject, Problem: "selects no engine of this exporter", Alerts: alerts,
				Remedy: "compare its select: with the engines' labels, in curl -s localhost:9844/metrics | grep ^llm_engine_info",
				Docs:   "runbooks/LLMObjectiveWithoutEvents.md",
			})
		}
	}
}
