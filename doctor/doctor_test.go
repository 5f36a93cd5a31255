package doctor

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	engines "github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/examples"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

func written(t *testing.T) Rules {
	t.Helper()
	r, err := ReadRules(examples.Rules)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSilenced checks that an alert cannot fire without the series that it reads, directly or through recorded
// series, unless an alternative exists.
func TestSilenced(t *testing.T) {
	r := written(t)
	without := func(families ...*metrics.Family) []string {
		return r.silenced(func(f *metrics.Family) bool { return slices.Contains(families, f) })
	}
	if got := without(); len(got) > 0 {
		t.Errorf("nothing is absent, and these cannot fire: %q", got)
	}
	for _, c := range []struct {
		alert       string
		needs       []*metrics.Family
		enoughAlone *metrics.Family
	}{
		{"kv_full (clue)", []*metrics.Family{metrics.KVCacheUsage}, nil},
		{"preemptions (clue)", []*metrics.Family{metrics.Preemptions}, nil},
		{"LLMErrorBudgetFastBurn", []*metrics.Family{metrics.SLOEvents}, nil}, // three recorded series away
		{"LLMObjectiveWithoutEvents", []*metrics.Family{metrics.SLOCounted, metrics.SLOObjective}, metrics.SLOCounted},
	} {
		if got := without(c.needs...); !slices.Contains(got, c.alert) {
			t.Errorf("%s is not among %q", c.alert, got)
		}
		if c.enoughAlone == nil {
			continue
		}
		if got := without(slices.DeleteFunc(c.needs, func(f *metrics.Family) bool { return f == c.enoughAlone })...); slices.Contains(got,
			c.alert) {
			t.Errorf("%s can fire by %s alone", c.alert, c.enoughAlone.Name)
		}
	}
	parts, err := ReadRules([]byte("spec: {groups: [{name: a, rules: [{record: 'a:b', expr: up}]}]}\n---\nspec: {groups: [{name: c, " +
		"rules: [{alert: D, expr: up}]}]}\n"))
	if err != nil || len(parts) != 2 {
		t.Errorf("%d rules of two PrometheusRules: %v", len(parts), err)
	}
	if _, err := ReadRules([]byte("rules: []\n")); err == nil || !strings.Contains(err.Error(), "PrometheusRule") {
		t.Errorf("a file without rules: %v", err)
	}
}

// TestChecksOfAnswers requires findings for answers of Prometheus that take too long to bring about.
func TestChecksOfAnswers(t *testing.T) {
	now := time.Now()
	const job, instance = "llm-node-exporter", "node"
	healthy := func() *Prometheus {
		return &Prometheus{
			now: now, alertmanagers: 1,
			groups: []ruleGroup{{Name: "llm-slo-burn", Interval: 60, EvaluationTime: 1, LastEvaluation: now.Add(-time.Minute)}},
			targets: []target{{
				Labels: labelSet{"job": job, "instance": instance}, Health: "up", ScrapeInterval: "15s", ScrapeTimeout: "10s",
				LastScrapeDuration: 1,
			}},
			info: map[string][]labelSet{buildInfo: {{"job": job, "instance": instance, "version": "1.2.3"}}},
		}
	}
	for _, c := range []struct {
		name     string
		spoil    func(*Prometheus)
		severity Severity
		says     string
	}{
		{"nothing", func(*Prometheus) {}, "", ""},
		{
			"late", func(p *Prometheus) { p.groups[0].LastEvaluation = now.Add(-time.Hour) }, Broken,
			"was last evaluated 1h0m0s ago, but is due every 1m0s",
		},
		{"slow", func(p *Prometheus) { p.groups[0].EvaluationTime = 40 }, Missing, "takes 40s of the 1m0s"},
		{"loaded twice", func(p *Prometheus) { p.groups = append(p.groups, p.groups[0]) }, Broken, "loaded more than once"},
		{"slow scrape", func(p *Prometheus) { p.targets[0].LastScrapeDuration = 9 }, Missing, "takes 9s of the 10s"},
		{"not scraped yet", func(p *Prometheus) { p.targets[0].Health = "unknown" }, Missing, "not been scraped yet"},
		{"another server", func(p *Prometheus) { p.info = nil }, Broken, "another server"},
		{"another version", func(p *Prometheus) { p.info[buildInfo][0]["version"] = "1.1.0" }, Missing, "runs on node, but this is 1.2.3"},
		{"alerts are not taken", func(p *Prometheus) { p.undelivered = []string{"http://am/api/v2/alerts"} }, Broken, "refused alerts"},
	} {
		p := healthy()
		c.spoil(p)
		var found []Finding
		for _, f := range Diagnose(Picture{Prometheus: p, Rules: written(t), Version: "1.2.3"}).Findings {
			if f.Subject != "rules" || strings.Contains(f.Problem, "more than once") { // there is only one group, without its rules
				found = append(found, f)
			}
		}
		switch {
		case c.says == "" && len(found) == 0:
		case len(found) != 1 || found[0].Severity != c.severity || !strings.Contains(found[0].Problem, c.says) || found[0].Remedy == "":
			t.Errorf("%s: %+v", c.name, found)
		}
	}
}

// Histograms that Prometheus stores as native ones are lost only to rules that do not read native histograms.
func TestNativeHistograms(t *testing.T) {
	ttft := metrics.TimeToFirstToken.Name
	page := &Reading{page: map[string]*dto.MetricFamily{ttft: {Metric: []*dto.Metric{{Histogram: &dto.Histogram{}}}}}}
	for _, c := range []struct{ rule, stored, want string }{
		{"rate(" + ttft + "_count[5m])", ttft, "stored as native histograms"},
		{"histogram_count(rate(" + ttft + "[5m])) or rate(" + ttft + "_count[5m])", ttft, ""},
		{"rate(" + ttft + "_count[5m])", ttft + "_count", ""},
		{"rate(" + ttft + "_count[5m])", "llm_engine_up", "not in Prometheus: " + ttft},
	} {
		rules, err := ReadRules([]byte("groups: [{name: g, rules: [{alert: A, expr: '" + c.rule + " > 1'}]}]"))
		if err != nil {
			t.Fatal(err)
		}
		var r Report
		checkLabels(Picture{Exporter: page, Rules: rules, Prometheus: &Prometheus{loaded: rules, names: []string{c.stored}}}, &r)
		var said string
		for _, f := range r.Findings {
			said += f.Problem
		}
		if c.want == "" && said != "" || !strings.Contains(said, c.want) {
			t.Errorf("%s in Prometheus, rule %s: %q, want %q", c.stored, c.rule, said, c.want)
		}
	}
}

// TestChecksOfPages requires a finding for each state of an exporter that a test can bring about only with a
// cluster, or not at all.
func TestChecksOfPages(t *testing.T) {
	for _, c := range []struct {
		page string
		says []string
	}{
		{`llm_exporter_config_last_reload_successful 0`, []string{"configuration", "the previous one stays", "--config.check"}},
		{`llm_exporter_discovery_up{source="pods",reason="forbidden"} 0`, []string{"discovery by pods", "rbac.create=true"}},
		{`llm_exporter_discovery_up{source="pods",reason="unreachable"} 0`, []string{"discovery by pods", "network policy"}},
		{`llm_exporter_pod_resources_up{reason="socket_missing"} 0`, []string{"kubelet", "socket_missing", "mount the host's directory"}},
		{`llm_exporter_unreadable_processes 3`, []string{"processes", "3 on GPUs", "CAP_SYS_PTRACE"}},
		{`llm_gpu_nvml_up{reason="detached"} 0`, []string{"GPUs", "detached", "kill -USR2"}},
		{"llm_gpu_nvml_up{reason=\"\"} 1\nllm_gpu_visible_gpus 0", []string{"GPUs", "counts none", "/dev/nvidia*"}},
		{`llm_gpu_source_up{source="",server="localhost:9400",reason="unauthorized"} 0`, []string{
			"GPUs of localhost:9400",
			"--gpu.source-http-config",
		}},
		{
			"llm_gpu_nvml_up{reason=\"\"} 1\nllm_gpu_up{gpu=\"3\",gpu_uuid=\"GPU-1\",reason=\"gpu_is_lost\"} 0",
			[]string{"GPU 3", "gpu_is_lost", "drain the node"},
		},
		{"llm_gpu_nvml_up{reason=\"\"} 1\nllm_gpu_missing{pci_bus_id=\"0000:10:00.0\"} 1", []string{
			"GPU at 0000:10:00.0",
			"does not list it", "/dev/nvidia*",
		}},
		{
			"llm_gpu_nvml_up{reason=\"\"} 1\nllm_gpu_feature_supported{gpu=\"0\",feature=\"sram_ecc_threshold\",reason=\"no_permission\"} 0",
			[]string{"sram_ecc_threshold", "run the exporter as root"},
		},
		{
			`llm_engine_source_missing_total{server="h:1",metric="llm_engine_requests_running",source="old:name"} 2`,
			[]string{"engine h:1", "llm_engine_requests_running", "old:name", "update the exporter"},
		},
		{
			`llm_engine_unknown_outcome_info{server="h:1",source="vllm:request_success_total{finished_reason=\"brand_new\"}"} 1`,
			[]string{"engine h:1", `finished_reason="brand_new"`, "neither good nor bad", "update the exporter", "report it"},
		},
		{`llm_probe_requests_total{probe="chat",server="h:1",outcome="http_4xx"} 2`, []string{
			"probe chat of h:1", "http_4xx",
			"credentials_file",
		}},
		{`llm_probe_requests_total{probe="chat",server="h:1",outcome="refused"} 2`, []string{
			"probe chat of h:1", "refused",
			"file of its http_config",
		}},
	} {
		exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/engines" {
				_, _ = io.WriteString(w, `{"engines":[{"server":"h:1","state":"up"}]}`)
				return
			}
			page := []byte("# TYPE " + buildInfo + " gauge\n" + buildInfo + "{version=\"1\"} 1\n")
			for line := range strings.Lines(c.page + "\n") {
				page = append(metrics.AppendHeader(page, metrics.Lookup(line[:strings.IndexAny(line, "{ ")])), line...)
			}
			_, _ = w.Write(page)
		}))
		at, err := url.Parse(exporter.URL)
		if err != nil {
			t.Fatal(err)
		}
		reading, err := Read(t.Context(), exporter.Client(), at)
		exporter.Close()
		if err != nil {
			t.Fatal(err)
		}
		found := Diagnose(Picture{Exporter: reading, Rules: written(t)}).Findings
		if len(found) != 1 || found[0].Severity != Missing {
			t.Errorf("%s: %+v", c.page, found)
			continue
		}
		for _, words := range c.says {
			if f := found[0]; !strings.Contains(f.Subject+" "+f.Problem+" "+f.Remedy, words) {
				t.Errorf("%s: %q is not in %+v", c.page, words, f)
			}
		}
	}
}

// TestPartOfAMetric checks that requests with one outcome may be missing while others are there, without silencing
// an alert on requests.
func TestPartOfAMetric(t *testing.T) {
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/engines" {
			_, _ = io.WriteString(w, `{"engines":[{"server":"h:1","state":"up"}]}`)
			return
		}
		page := metrics.AppendHeader(nil, metrics.EngineInfo)
		page = append(page, `llm_engine_info{server="h:1",runtime="vllm",model_name="m",version="0.32.0"} 1`+"\n"...)
		page = metrics.AppendHeader(page, metrics.MetricSourceInfo)
		for _, is := range []string{
			`source="vllm:request_success_total{finished_reason=\"abort\"}",quality="missing",reason="nobody counts them"`,
			`source="vllm:request_success_total",quality="native"`,
		} {
			page = append(page, `llm_engine_metric_source_info{server="h:1",runtime="vllm",metric="llm_engine_requests_total",`+is+"} 1\n"...)
		}
		_, _ = w.Write(append(page, "# TYPE "+buildInfo+" gauge\n"+buildInfo+"{version=\"1\"} 1\n"...))
	}))
	defer exporter.Close()
	at, err := url.Parse(exporter.URL)
	if err != nil {
		t.Fatal(err)
	}
	reading, err := Read(t.Context(), exporter.Client(), at)
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	checkSources(Picture{Exporter: reading, Rules: written(t)}, map[string]string{
		metrics.LabelServer:  "h:1",
		metrics.LabelRuntime: "vllm", metrics.LabelVersion: "0.32.0",
	}, &report)
	said := strings.Join(report.Fine, "\n")
	if !strings.Contains(said, "of llm_engine_requests_total: nobody counts them") {
		t.Errorf("%q, %+v", said, report.Findings)
	}
	silenced := written(t).silenced(func(f *metrics.Family) bool {
		return f == metrics.Requests || f == metrics.SLOEvents || f == metrics.SLOBadEvents
	})
	without := written(t).silenced(func(f *metrics.Family) bool { return f == metrics.SLOEvents || f == metrics.SLOBadEvents })
	if silenced = slices.DeleteFunc(silenced, func(a string) bool { return slices.Contains(without, a) }); len(silenced) == 0 {
		t.Error("no alert reads requests")
	}
	for _, alert := range silenced {
		if strings.Contains(said, alert) {
			t.Errorf("%s can fire: %q", alert, said)
		}
	}
}

// A finding that asks for a change of an engine's flag names its cost for the engine. A finding that asks for a
// newer release names no price.
func TestFlagsNameTheirCost(t *testing.T) {
	r, asked := written(t), 0
	for _, d := range engines.Known() {
		by := map[string][]string{}
		for _, row := range d.Rows {
			if strings.HasPrefix(row.Absent, flag) && !strings.HasPrefix(row.Absent, "needs Triton ") {
				by[row.Absent] = append(by[row.Absent], row.To.Name)
			}
		}
		for reason, back := range by {
			if len(r.regained(func(f *metrics.Family) bool { return slices.Contains(back, f.Name) }, back)) == 0 {
				continue
			}
			asked++
			if engines.Cost(d.Runtime, reason) == "" {
				t.Errorf("%s: %q brings alerts back: say in Costs what it costs", d.Runtime, reason)
			}
		}
	}
	if asked < 3 {
		t.Errorf("%d flags", asked)
	}
	var report Report
	page := fmt.Sprintf("%s{server=\"h:1\",runtime=\"vllm\",metric=%q,source=\"vllm:corrupted_requests_total\",quality=\"missing\",reason=\"needs VLLM_COMPUTE_NANS_IN_LOGITS=1\"} 1\n",
		metrics.MetricSourceInfo.Name, metrics.CorruptedRequests.Name)
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/engines" {
			_, _ = io.WriteString(w, `{"engines":[{"server":"h:1","state":"up"}]}`)
			return
		}
		head := metrics.AppendHeader(nil, metrics.MetricSourceInfo)
		_, _ = w.Write([]byte(string(head) + page + "# TYPE " + buildInfo + " gauge\n" + buildInfo + "{version=\"1\"} 1\n"))
	}))
	defer exporter.Close()
	at, err := url.Parse(exporter.URL)
	if err != nil {
		t.Fatal(err)
	}
	reading, err := Read(t.Context(), exporter.Client(), at)
	if err != nil {
		t.Fatal(err)
	}
	checkSources(Picture{Exporter: reading, Rules: r}, map[string]string{
		metrics.LabelServer: "h:1", metrics.LabelRuntime: "vllm",
		metrics.LabelVersion: "0.32.0",
	}, &report)
	if len(report.Findings) != 1 || !strings.Contains(report.Findings[0].Remedy, "VLLM_COMPUTE_NANS_IN_LOGITS=1 (optional: ") {
		t.Errorf("%+v", report.Findings)
	}
}
