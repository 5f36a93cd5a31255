package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	gpupage "github.com/llm-node-exporter/llm-node-exporter/collectors/gpu/page"
	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Findings refer to these documents.
const (
	operations = "docs/operations.md"
	scraping   = operations + "#scraping"
	loading    = operations + "#rules-and-notifications"
	needs      = operations + "#what-it-needs"
)

// checkSelf checks the configuration that the exporter uses.
func checkSelf(p Picture, r *Report) {
	if is(p.Exporter.of(metrics.ConfigReloadSuccess), 0) {
		r.add(Finding{
			Severity: Missing, Subject: "configuration", Problem: "the file is wrong, so the previous one stays in use",
			Remedy: "exporter --config.check --config.file=FILE names the line",
		})
	}
	r.fine(p.Exporter.Exporter + ": an exporter, version " + cmp.Or(versionOf(p.Exporter), "unknown"))
}

func versionOf(r *Reading) string {
	for _, s := range r.named(buildInfo) {
		return s.labels[metrics.LabelVersion]
	}
	return ""
}

// checkDiscovery checks the sources that list engines.
func checkDiscovery(p Picture, r *Report) {
	for _, s := range p.Exporter.of(metrics.DiscoveryUp) {
		if s.value == 1 {
			r.fine("discovery by " + s.labels[metrics.LabelSource] + ": works")
			continue
		}
		remedy := "read the exporter's log: grep discovery"
		switch s.labels[metrics.LabelReason] {
		case "forbidden":
			remedy = "let it list and watch pods: helm upgrade with rbac.create=true; check with kubectl auth can-i list pods -A --as " +
				"system:serviceaccount:NS:NAME"
		case "unreachable":
			remedy = "let its pod reach the API server: check the network policy, and curl -sk https://kubernetes.default.svc/livez in the pod"
		}
		r.add(Finding{
			Severity: Missing, Subject: "discovery by " + s.labels[metrics.LabelSource],
			Problem: "cannot find new engines: " + cmp.Or(p.Exporter.engines.Problem, s.labels[metrics.LabelReason]), Remedy: remedy,
			Docs: "runbooks/LLMDiscoveryFailed.md",
		})
	}
}

// checkGPUs checks the driver's library, the GPUs and the kernel log.
func checkGPUs(p Picture, r *Report) {
	e := p.Exporter
	nvml, source := e.of(metrics.GPUNVMLUp), e.of(metrics.GPUSourceUp)
	if len(nvml) == 0 && len(source) == 0 {
		r.fine("GPUs: not read, because its flags disable it")
		return
	}
	checkGPUSources(p, r)
	checkEachGPU(e, r)
	for _, s := range e.of(metrics.GPUXIDSourceUp, metrics.LabelSource, "kmsg") {
		if reason := s.labels[metrics.LabelReason]; s.value == 0 && reason != "switched_off" && reason != "starting" {
			r.add(Finding{
				Severity: Missing, Subject: "kernel log", Docs: needs, Remedy: gpu.KmsgRemedy,
				Problem: "not readable (" + reason + "), so SXids are absent, and only XIDs from NVML are counted",
			})
		}
	}
	var forbidden []string
	for _, s := range e.of(metrics.GPUFeatureSupported, metrics.LabelReason, "no_permission") {
		forbidden = append(forbidden, s.labels[metrics.LabelFeature])
	}
	if len(forbidden) > 0 {
		r.add(Finding{
			Severity: Missing, Subject: "GPUs", Docs: needs, Remedy: gpu.Remedy("no_permission"),
			Problem: "the driver refuses to let the exporter read " + some(distinct(forbidden)),
		})
	}
}

// checkGPUSources checks that the exporter reads GPUs from the driver's library, or from the metrics page of another
// exporter. One of the two is sufficient.
func checkGPUSources(p Picture, r *Report) {
	nvml, source := p.Exporter.of(metrics.GPUNVMLUp), p.Exporter.of(metrics.GPUSourceUp)
	without := withoutGPUs(p)
	for _, s := range nvml {
		reason := s.labels[metrics.LabelReason]
		switch {
		case s.value == 1 && is(p.Exporter.of(metrics.GPUVisible), 0):
			r.add(Finding{
				Severity: Missing, Subject: "GPUs", Problem: "NVML works, but counts none", Alerts: without, Docs: needs,
				Remedy: "mount /dev/nvidia* into the container (gpu.driver in the chart); on a node without GPUs, set --no-collector.gpu",
			})
		case s.value == 1 || is(source, 1) || reason == "starting":
		default:
			r.add(Finding{
				Severity: Missing, Subject: "GPUs", Problem: "NVML cannot be used: " + reason, Alerts: without, Docs: needs,
				Remedy: cmp.Or(nvmlRemedy(reason), "read the exporter's log: grep NVML"),
			})
		}
	}
	for _, s := range source {
		if s.value == 0 && !is(nvml, 1) {
			reason := s.labels[metrics.LabelReason]
			r.add(Finding{
				Severity: Missing, Subject: "GPUs of " + s.labels[metrics.LabelServer], Problem: "its metrics page cannot be used: " +
					reason,
				Alerts: without, Remedy: cmp.Or(gpupage.Remedy(reason), "read the exporter's log"),
				Docs: operations + "#gpus-from-another-exporter",
			})
		}
	}
}

// withoutGPUs lists the alerts that cannot fire because no GPUs are read. Without a source, metrics of the GPUs cannot
// appear. Even with a source, some metrics appear only after an event.
func withoutGPUs(p Picture) []string {
	without := p.Rules.silenced(func(f *metrics.Family) bool {
		if f.Owner == metrics.Judgement { // a condition has series only while it applies
			f = metrics.GPUHealth
		}
		return (f.Owner == metrics.GPU || f == metrics.GPUHealth) && len(p.Exporter.of(f)) == 0
	})
	return slices.DeleteFunc(without, func(alert string) bool { return alert == metrics.AnswerUnread }) // this alert itself reports the fault
}

// nvmlRemedy returns the remedy if the driver's library cannot be used for a reason. It returns an empty string for
// reasons without a remedy.
func nvmlRemedy(reason string) string {
	switch reason {
	case "library_not_found":
		return gpu.Remedy(reason) + " (--gpu.nvml-library=FILE); on a node without GPUs, set --no-collector.gpu"
	case "detached":
		return "kill -USR2 PID makes the exporter use NVML again"
	}
	return gpu.Remedy(reason)
}

// checkEachGPU looks for GPUs that do not report, and for GPUs that the driver does not list.
func checkEachGPU(e *Reading, r *Report) {
	up := 0
	for _, s := range e.of(metrics.GPUUp) {
		if s.value == 1 {
			up++
			continue
		}
		reason := s.labels[metrics.LabelReason]
		r.add(Finding{
			Severity: Missing, Subject: "GPU " + s.labels[metrics.LabelGPU], Problem: "does not report: " + reason,
			Remedy: cmp.Or(gpu.Remedy(reason), "read nvidia-smi -q -i "+s.labels[metrics.LabelGPU]+" and the kernel log"), Docs: operations +
				"#a-gpu-hangs",
		})
	}
	for _, s := range e.of(metrics.GPUMissing) {
		if s.value == 1 {
			r.add(Finding{
				Severity: Missing, Subject: "GPU at " + s.labels[metrics.LabelPCIBusID],
				Problem: "is on the bus, but NVML does not list it",
				Remedy:  "give the container all /dev/nvidia* nodes; otherwise read dmesg | grep NVRM", Docs: "runbooks/LLMGPUUnread.md",
			})
		}
	}
	if up > 0 {
		r.fine(count(up, "GPU") + ": read")
	}
}

// checkHealth checks the verdicts on GPUs. It adds a finding for each GPU that should be taken out of service, although
// no metric is missing.
func checkHealth(p Picture, r *Report) {
	e := p.Exporter
	for _, s := range e.of(metrics.GPUHealth) {
		if s.value < float64(metrics.Drain) || s.value > float64(metrics.Replace) {
			continue
		}
		var why []string
		for _, c := range e.of(metrics.GPUHealthCondition, metrics.LabelGPUUUID, s.labels[metrics.LabelGPUUUID], metrics.LabelPCIBusID,
			s.labels[metrics.LabelPCIBusID]) {
			why = append(why, c.labels[metrics.LabelCondition])
		}
		r.add(Finding{
			Severity: Missing, Subject: "GPU " + cmp.Or(s.labels[metrics.LabelGPU], "at "+s.labels[metrics.LabelPCIBusID]),
			Problem: "its verdict is " + metrics.Verdict(s.value).String() + ": " + some(distinct(why)),
			Remedy:  "curl -s http://HOST:9844/verdict/gpus reports what to do, and what runs on it", Docs: "docs/health.md",
		})
	}
}

// checkOwnership checks the sources that show which engine runs on which GPU.
func checkOwnership(p Picture, r *Report) {
	e := p.Exporter
	const docs = operations + "#which-engine-runs-on-which-gpu"
	for _, s := range e.of(metrics.PodResourcesUp) {
		if reason := s.labels[metrics.LabelReason]; s.value == 0 {
			r.add(Finding{
				Severity: Missing, Subject: "kubelet", Problem: "does not report which pod has which GPU: " + reason,
				Remedy: cmp.Or(kube.Remedy(reason), "read the exporter's log: grep kubelet"), Docs: docs,
			})
		}
	}
	for _, s := range e.of(metrics.UnreadableProcesses) {
		if s.value > 0 {
			r.add(Finding{
				Severity: Missing, Subject: "processes",
				Problem: fmt.Sprintf("%.0f on GPUs have sockets that the exporter may not read", s.value),
				Remedy:  "run it as root or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (ownership.processes=true in the chart)", Docs: docs,
			})
		}
	}
	if !is(e.of(metrics.GPUUp), 1) {
		return
	}
	for _, engine := range e.pages() {
		if len(e.of(metrics.EngineGPUInfo, metrics.LabelServer, engine[metrics.LabelServer], metrics.LabelPod, engine[metrics.LabelPod])) > 0 {
			continue
		}
		r.add(Finding{
			Severity: Missing, Subject: subject(engine),
			Problem: "it is unknown on which GPU it runs, so no alert on a GPU names its model",
			Remedy:  "show the exporter the host's processes (hostPID: true; --path.procfs) or the kubelet's socket, or name its gpus: in targets", Docs: docs,
		})
	}
}

// checkProbes checks that the synthetic requests succeed.
func checkProbes(p Picture, r *Report) {
	type at struct{ probe, server string }
	outcomes := map[at][]string{}
	answered := map[at]bool{}
	var order []at
	for _, s := range p.Exporter.of(metrics.ProbeRequests) {
		probe := at{s.labels[metrics.LabelProbe], s.labels[metrics.LabelServer]}
		if outcomes[probe] == nil && !answered[probe] {
			order = append(order, probe)
		}
		switch outcome := s.labels[metrics.LabelOutcome]; {
		case s.value == 0:
		case outcome == string(metrics.ProbeOK):
			answered[probe] = true
		default:
			outcomes[probe] = append(outcomes[probe], outcome)
		}
	}
	for _, probe := range slices.Compact(order) {
		subject := "probe " + probe.probe + " of " + probe.server
		if answered[probe] {
			r.fine(subject + ": answered")
			continue
		}
		if len(outcomes[probe]) == 0 {
			continue
		}
		remedy := "read the error in the exporter's log: grep probe"
		switch {
		case slices.Contains(outcomes[probe], string(metrics.ProbeClientError)):
			remedy = "check its model, and its key: credentials_file in the probe's http_config"
		case slices.Contains(outcomes[probe], string(metrics.ProbeRefused)):
			remedy = "check its address, TLS, and whether each file of its http_config exists; the log has the error"
		}
		r.add(Finding{
			Severity: Missing, Subject: subject, Problem: "has had no answer: " + strings.Join(distinct(outcomes[probe]), ", "),
			Remedy: remedy, Docs: "runbooks/LLMProbeBroken.md",
		})
	}
}
