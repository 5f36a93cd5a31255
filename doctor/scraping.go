package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// checkTargets checks that Prometheus scrapes exporters often enough, and with a job that the rules cover.
func checkTargets(p Picture, r *Report) {
	targets := p.exporters()
	if len(targets) == 0 {
		r.add(Finding{
			Severity: Broken, Subject: "scraping", Problem: "Prometheus has no target that is an exporter", Docs: scraping,
			Remedy: "add the job llm-node-exporter to scrape_configs, or set podMonitor.enabled in the chart; check with promtool check config " +
				"prometheus.yml",
		})
		return
	}
	up := 0
	for _, t := range targets {
		subject := "target " + t.ScrapeURL
		interval := duration(t.ScrapeInterval)
		if window, alerts := p.Rules.window(2 * interval); window < 2*interval {
			r.add(Finding{
				Severity: Broken, Subject: subject,
				Problem: fmt.Sprintf("is scraped every %s, so rates over %s have fewer than two samples", interval, window), Alerts: alerts,
				Docs:   scraping,
				Remedy: "set scrape_interval: 15s, at most 1m",
			})
		}
		switch {
		case t.Health == "unknown":
			r.add(Finding{
				Severity: Missing, Subject: subject, Problem: "has not been scraped yet",
				Remedy: "run doctor again after one scrape interval", Docs: scraping,
			})
			continue
		case t.Health != "up":
			r.add(Finding{
				Severity: Broken, Subject: subject, Problem: "cannot be scraped: " + t.LastError, Docs: "runbooks/LLMExporterDown.md",
				Remedy: "check whether the exporter runs on this port (9844 unless --web.listen-address is set): curl -sv " + t.ScrapeURL,
			})
			continue
		case !p.Prometheus.isExporter(t):
			r.add(Finding{
				Severity: Broken, Subject: subject, Problem: "answers, but Prometheus has no " + buildInfo +
					" of it; it is another server, or the series is dropped", Docs: scraping,
				Remedy: "correct its port (9844), its path (/metrics) and metric_relabel_configs",
			})
			continue
		}
		up++
		if !p.watches(t.Labels["job"]) {
			r.add(Finding{
				Severity: Broken, Subject: subject, Problem: fmt.Sprintf("has the job %q, which the rules do not watch",
					t.Labels["job"]), Alerts: []string{exporterDown, "LLMExporterFleetDown"}, Docs: scraping,
				Remedy: "name the job llm-node-exporter (look for relabel_configs with target_label: job), or render the rules with --job='" +
					t.Labels["job"] + "'",
			})
		}
		timeout := duration(t.ScrapeTimeout)
		if took := time.Duration(t.LastScrapeDuration * float64(time.Second)); timeout > 0 && took > timeout*4/5 {
			r.add(Finding{
				Severity: Missing, Subject: subject,
				Problem: fmt.Sprintf("takes %s of the %s that a scrape may take, so slow engines are cut off", short(took), timeout), Docs: scraping,
				Remedy: "raise scrape_timeout above the slowest engine: max by (server) (llm_engine_scrape_duration_seconds)",
			})
		}
	}
	if up > 0 {
		r.fine(count(up, "exporter") + ": scraped")
	}
}

func duration(text string) time.Duration {
	d, _ := model.ParseDuration(text) // 0 for older releases without this value
	return time.Duration(d)
}

// exported is the prefix that Prometheus adds to a metrics page's label if the scrape configuration sets a label of the
// same name.
const exported = "exported_"

// checkLabels checks that the exporters' series arrive unchanged.
func checkLabels(p Picture, r *Report) {
	known := p.Prometheus.loaded
	if len(known) == 0 {
		known = p.Rules
	}
	checkMoved(p, known, r)
	if p.Exporter == nil || len(p.Prometheus.names) == 0 {
		return
	}
	checkDropped(p, r)
	checkArrived(p, known, r)
}

// checkMoved looks for labels of the metrics page that labels of the scrape have replaced.
func checkMoved(p Picture, known Rules, r *Report) {
	moved := map[string]bool{}
	for _, series := range p.Prometheus.info {
		for _, l := range series {
			for name := range l {
				if was, ok := strings.CutPrefix(name, exported); ok && metrics.IsLabel(was) {
					moved[was] = true
				}
			}
		}
	}
	for _, label := range slices.Sorted(maps.Keys(moved)) {
		if known.groupsBy(exported + label) {
			continue
		}
		remedy := "set honor_labels: true in the scrape job"
		if label == metrics.LabelNamespace {
			remedy += "; if it sets namespace itself, set namespaceLabel: exported_namespace in the chart, or --label " +
				"namespace=exported_namespace for the generator"
		}
		r.add(Finding{
			Severity: Broken, Subject: "label " + label, Problem: "arrives as " + exported + label +
				", which the rules do not read; they use the scrape's own label instead",
			Remedy: remedy, Docs: scraping,
		})
	}
}

// checkDropped looks for labels that are on none of the series in Prometheus.
func checkDropped(p Picture, r *Report) {
	for _, name := range asked {
		arrived := p.Prometheus.info[name]
		if len(arrived) == 0 {
			continue // the whole family is lost: see checkArrived
		}
		for _, label := range labelsOf(p.Exporter.named(name)) {
			if !slices.ContainsFunc(arrived, func(l labelSet) bool { return l[label] != "" || l[exported+label] != "" }) {
				r.add(Finding{
					Severity: Broken, Subject: "label " + label, Problem: "is on " + name + " of the exporter, but on none in Prometheus",
					Remedy: "remove what drops it: labeldrop, labelkeep or replace in metric_relabel_configs of the job", Docs: scraping,
				})
			}
		}
	}
}

// checkArrived looks for metrics that do not arrive, or that arrive in another form than the rules read.
func checkArrived(p Picture, known Rules, r *Report) {
	var lost, blind []string
	for name := range p.Exporter.page {
		f := metrics.Lookup(name)
		if f == nil || len(p.Exporter.named(f.Name)) == 0 {
			continue
		}
		has := func(name string) bool { return slices.Contains(p.Prometheus.names, name) }
		switch {
		case f.Kind == metrics.Histogram && has(name+"_count"):
		case f.Kind == metrics.Histogram && has(name): // as a native histogram
			if known.selects(name+"_count") && !known.selects(name) {
				blind = append(blind, name)
			}
		case !has(name):
			lost = append(lost, name)
		}
	}
	if len(blind) > 0 {
		r.add(Finding{
			Severity: Broken, Subject: "histograms",
			Problem: "are stored as native histograms, which the loaded rules do not read: " + some(distinct(blind)),
			Alerts:  p.Rules.silenced(func(f *metrics.Family) bool { return slices.Contains(blind, f.Name) }),
			Remedy:  "load the rules of this version in the format for Prometheus, or set convert_classic_histograms_to_nhcb: false in the job",
			Docs:    scraping,
		})
	}
	alerts := p.Rules.silenced(func(f *metrics.Family) bool { return slices.Contains(lost, f.Name) })
	if len(alerts) > 0 {
		r.add(Finding{
			Severity: Broken, Subject: "metrics", Problem: "are on the exporter's metrics page but not in Prometheus: " +
				some(distinct(lost)), Alerts: alerts,
			Remedy: "remove what drops them: drop or keep in metric_relabel_configs of the job", Docs: scraping,
		})
	}
}

// labelsOf returns the labels that have a value on any of the series.
func labelsOf(all []series) []string {
	var names []string
	for _, s := range all {
		for name, value := range s.labels {
			if value != "" && metrics.IsLabel(name) {
				names = append(names, name)
			}
		}
	}
	return distinct(names)
}

// checkCopies looks for double counting. It finds exporters that are scraped twice, exporters with the same name, and
// GPUs that two exporters read.
func checkCopies(p Picture, r *Report) {
	by := func(key func(target) string) map[string][]string {
		all := map[string][]string{}
		for _, t := range p.exporters() {
			all[key(t)] = append(all[key(t)], strings.Join([]string{t.Labels["job"], t.Labels[metrics.LabelInstance]}, "/"))
		}
		return all
	}
	twice := func(all map[string][]string, problem, remedy string) {
		for _, what := range slices.Sorted(maps.Keys(all)) {
			if len(all[what]) > 1 {
				r.add(Finding{Severity: Broken, Subject: what, Problem: problem + some(distinct(all[what])), Remedy: remedy, Docs: scraping})
			}
		}
	}
	twice(by(func(t target) string { return "exporter " + t.ScrapeURL }), "is scraped more than once, so its events count twice: ",
		"keep one job for it: grep -n job_name prometheus.yml")
	twice(by(func(t target) string {
		return "instance " + t.Labels[metrics.LabelInstance] + " of job " + t.Labels["job"]
	}),
		"is the name of several targets, whose series overwrite each other: ",
		"give each node its own: relabel_configs with target_label: instance from __meta_kubernetes_pod_node_name")
	gpus := map[string][]string{}
	for _, l := range p.Prometheus.info[metrics.GPUInfo.Name] {
		if uuid := l[metrics.LabelGPUUUID]; uuid != "" {
			gpus["GPU "+uuid] = append(gpus["GPU "+uuid], l["job"]+"/"+l[metrics.LabelInstance])
		}
	}
	for gpu, readers := range gpus {
		gpus[gpu] = distinct(readers)
	}
	twice(gpus, "is read by several exporters: ", "run one per node: kubectl get pods -A -o wide -l app.kubernetes.io/name=llm-node-exporter")
}

// checkGateways looks for gateways in other namespaces than their engines, because rules match the two by namespace.
func checkGateways(p Picture, r *Report) {
	served := func(l labelSet) [2]string { return [2]string{l[metrics.LabelCluster], l[metrics.LabelModel]} }
	isGateway := func(l labelSet) bool { return l[metrics.LabelRole] == metrics.GatewayRole }
	namespaces := map[[2]string][]string{} // of engines
	for _, l := range p.Prometheus.info[metrics.EngineInfo.Name] {
		if !isGateway(l) && l[metrics.LabelModel] != "" && l[metrics.LabelNamespace] != "" {
			namespaces[served(l)] = append(namespaces[served(l)], l[metrics.LabelNamespace])
		}
	}
	for _, l := range p.Prometheus.info[metrics.EngineInfo.Name] {
		if of := distinct(namespaces[served(l)]); isGateway(l) && len(of) > 0 && !slices.Contains(of, l[metrics.LabelNamespace]) {
			r.add(Finding{
				Severity: Missing, Subject: "gateway " + l[metrics.LabelServer],
				Problem: fmt.Sprintf("counts %s in namespace %q, but engines serve it in %s, so their failures page twice", l[metrics.LabelModel],
					l[metrics.LabelNamespace], some(of)),
				Remedy: "set labels: {namespace: " + of[0] + "} at the gateway's target, with one target for each namespace",
				Docs:   "docs/objectives.md#at-the-gateway",
			})
		}
	}
}

// checkVersions looks for exporters of another release than this program.
func checkVersions(p Picture, r *Report) {
	others := map[string][]string{}
	for _, l := range p.Prometheus.info[buildInfo] {
		if v := l[metrics.LabelVersion]; v != p.Version {
			others[v] = append(others[v], l[metrics.LabelInstance])
		}
	}
	for _, v := range slices.Sorted(maps.Keys(others)) {
		r.add(Finding{
			Severity: Missing, Subject: "version " + cmp.Or(v, "unknown"), Problem: fmt.Sprintf("runs on %s, but this is %s",
				some(distinct(others[v])), cmp.Or(p.Version, "a build without a version")),
			Remedy: "finish the rollout, or run doctor with the exporter's own binary", Docs: "CHANGELOG.md",
		})
	}
}
