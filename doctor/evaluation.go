package doctor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
)

// has reports whether there is a rule of that name.
func (r Rules) has(name string) bool {
	return slices.ContainsFunc(r, func(rule rule) bool { return rule.name == name })
}

// parsed returns those rules of groups that can be parsed.
func parsed(groups []ruleGroup) Rules {
	var all Rules
	for _, g := range groups {
		for _, given := range g.Rules {
			if e, err := promql.Parser.ParseExpr(given.Query); err == nil {
				all = append(all, rule{
					group: g.Name, name: given.Name, alert: given.Type == "alerting", expr: e,
					hold: time.Duration(given.Duration * float64(time.Second)),
				})
			}
		}
	}
	return all
}

// ours returns Prometheus' rule groups with the same names as groups of this exporter's rules.
func (p Picture) ours() []ruleGroup {
	return slices.DeleteFunc(slices.Clone(p.Prometheus.groups), func(g ruleGroup) bool {
		return !slices.ContainsFunc(p.Rules, func(r rule) bool { return r.group == g.Name })
	})
}

// checkRules checks that Prometheus has each rule exactly once, and as this version generates it.
func checkRules(p Picture, r *Report) {
	files := map[string][]string{}
	for _, g := range p.ours() {
		files[g.Name] = append(files[g.Name], g.File)
	}
	if len(files) == 0 {
		r.add(Finding{
			Severity: Broken, Subject: "rules", Problem: "are not loaded, so nothing can fire", Docs: loading,
			Remedy: "set rule_files: [rules.yaml] in prometheus.yml, run promtool check config prometheus.yml, and reload; " +
				"prometheusRule.labels in the chart must match ruleSelector",
		})
		return
	}
	var copies []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if len(files[name]) > 1 {
			copies = append(copies, files[name]...)
		}
	}
	if len(copies) > 0 {
		r.add(Finding{
			Severity: Broken, Subject: "rules",
			Problem: "are loaded more than once, and one copy's series are refused as duplicates: " + some(distinct(copies)),
			Remedy:  "keep one of the files or PrometheusRules", Docs: loading,
		})
	}
	meaning := func(r rule) string { return fmt.Sprintln(r.name, r.hold, r.expr) }
	loaded := map[string]bool{}
	for _, got := range p.Prometheus.loaded {
		loaded[meaning(got)] = true
	}
	var alerts, records, changed []string
	for _, want := range p.Rules {
		switch {
		case loaded[meaning(want)]:
		case p.Prometheus.loaded.has(want.name):
			changed = append(changed, want.name)
		case want.alert:
			alerts = append(alerts, want.name)
		default:
			records = append(records, want.name)
		}
	}
	const render = "load examples/prometheus/rules.yaml of this version, or upgrade the chart"
	if len(records) > 0 {
		r.add(Finding{Severity: Broken, Subject: "rules", Problem: fmt.Sprintf("lack %s that others read: %s",
			count(len(distinct(records)), "recording rule"), some(distinct(records))), Remedy: render, Docs: loading})
	}
	if len(alerts) > 0 {
		r.add(Finding{Severity: Missing, Subject: "rules", Problem: "lack alerts", Alerts: alerts, Remedy: render +
			"; check whether one of them is off in prometheusRule.alerts", Docs: loading})
	}
	if len(changed) > 0 {
		r.add(Finding{
			Severity: Missing, Subject: "rules",
			Problem: fmt.Sprintf("are of another version, or have other options: %s, such as %s", count(len(distinct(changed)), "difference"),
				some(distinct(changed))),
			Remedy: render + "; if yours have options, compare with your file: --rules=FILE", Docs: loading,
		})
	}
	if len(records)+len(alerts)+len(changed) == 0 {
		r.fine(count(len(p.Rules), "rule") + ": loaded, as this version writes them")
	}
}

// checkEvaluation checks that the groups are evaluated in time and without errors.
func checkEvaluation(p Picture, r *Report) {
	slowest, late := 0.0, 0
	groups := p.ours()
	for _, g := range groups {
		subject := "rule group " + g.Name
		for _, rule := range g.Rules {
			if rule.Health == "err" {
				r.add(Finding{
					Severity: Broken, Subject: "rule " + rule.Name, Problem: "fails: " + rule.LastError, Docs: loading,
					Remedy: "if two series have the same labels, check whether an exporter is scraped twice or a label is dropped; otherwise load " +
						"the rules of this version",
				})
			}
		}
		interval := time.Duration(g.Interval * float64(time.Second))
		age := p.Prometheus.now.Sub(g.LastEvaluation)
		slowest = max(slowest, g.EvaluationTime)
		switch took := time.Duration(g.EvaluationTime * float64(time.Second)); {
		case took > interval:
			r.add(Finding{
				Severity: Broken, Subject: subject, Problem: fmt.Sprintf("takes %s, but is due every %s, so evaluations are skipped",
					short(took), interval), Docs: "docs/scale.md",
				Remedy: "give Prometheus more CPU, or split the fleet: llm-rules --fleet; prometheus_rule_group_iterations_missed_total counts " +
					"skipped evaluations",
			})
		case took > interval/2:
			r.add(Finding{
				Severity: Missing, Subject: subject, Problem: fmt.Sprintf("takes %s of the %s between two evaluations", short(took),
					interval), Docs: "docs/scale.md",
				Remedy: "give Prometheus more CPU before it is too late, or split the fleet: llm-rules --fleet",
			})
		}
		switch {
		case g.LastEvaluation.IsZero(): // Prometheus has just started or just loaded the group
			r.fine(fmt.Sprintf("%s: not evaluated yet, due every %s", subject, interval))
		case age > 2*interval+time.Minute:
			late++
			r.add(Finding{
				Severity: Broken, Subject: subject, Problem: fmt.Sprintf("was last evaluated %s ago, but is due every %s",
					age.Round(time.Second), interval), Docs: loading,
				Remedy: "read Prometheus' log: grep -i rule; check whether it is out of CPU or disk",
			})
		}
	}
	if late == 0 && len(groups) > 0 {
		r.fine(fmt.Sprintf("%s: evaluated in time, the slowest in %s", count(len(groups), "rule group"),
			short(time.Duration(slowest*float64(time.Second)))))
	}
}

// checkAlertmanager checks that alerts reach an Alertmanager.
func checkAlertmanager(p Picture, r *Report) {
	if p.Prometheus.alertmanagers == 0 {
		r.add(Finding{
			Severity: Broken, Subject: "Alertmanager", Problem: "Prometheus has none, so alerts fire but are not sent",
			Docs:   loading,
			Remedy: "alerting: {alertmanagers: [{static_configs: [{targets: [HOST:9093]}]}]} in prometheus.yml",
		})
		return
	}
	for _, a := range p.Prometheus.undelivered {
		r.add(Finding{
			Severity: Broken, Subject: "Alertmanager " + a,
			Problem: "has refused alerts, or has not answered, in the last 15 minutes", Docs: loading,
			Remedy: "check whether Prometheus can reach it: curl -s " + a + "; read the error in Prometheus' log: grep notifier",
		})
	}
	if len(p.Prometheus.undelivered) == 0 {
		r.fine(count(p.Prometheus.alertmanagers, "Alertmanager") + ": configured in Prometheus")
	}
}
