// Package helm tests the chart: rendered by the real helm and read by what reads it in a cluster.
package helm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const chart = "llm-node-exporter"

// helm runs helm against a current Kubernetes and returns what it prints on either stream.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("helm"); err != nil {
		t.Skip("helm is not installed: go install helm.sh/helm/v3/cmd/helm@v3.22.0")
	}
	out, err := exec.Command("helm", append(args, "--kube-version", "1.34.0")...).CombinedOutput()
	return string(out), err
}

type object = map[string]any

// render returns the objects of the chart by kind, ConfigMaps by the end of their name; test pods are left
// out.
func render(t *testing.T, set ...string) map[string]object {
	t.Helper()
	args := []string{"template", "gpu", chart, "--namespace", "monitoring", "--skip-tests"}
	for _, s := range set {
		args = append(args, "--set-json", s)
	}
	out, err := helm(t, args...)
	if err != nil {
		t.Fatal(out)
	}
	objects := map[string]object{}
	d := yaml.NewDecoder(strings.NewReader(out))
	for {
		var o object
		if d.Decode(&o) != nil {
			return objects
		}
		if kind, ok := o["kind"].(string); ok {
			if kind == "ConfigMap" {
				kind = strings.TrimPrefix(at(t, o, "metadata", "name").(string), "gpu-llm-node-exporter")
			}
			objects[kind] = o
		}
	}
}

// at walks into nested maps and lists; lists are entered at their first element.
func at(t *testing.T, o any, path ...string) any {
	t.Helper()
	for _, p := range path {
		if list, ok := o.([]any); ok && len(list) > 0 {
			o = list[0]
		}
		m, ok := o.(object)
		if !ok {
			t.Fatalf("nothing at %s of %s", p, strings.Join(path, "."))
		}
		o = m[p]
	}
	return o
}

var combinations = map[string][]string{
	"defaults":    nil,
	"host driver": {`gpu.driver="host"`},
	"GPU page":    {`gpu.source="http://$(HOST_IP):9400"`},
	"no GPU":      {`gpu.driver="none"`, `hostNetwork=true`},
	"processes":   {`ownership={"podResources":false,"processes":true}`, `gpu.kmsg=true`},
	"least":       {`discovery.enabled=false`, `ownership.podResources=false`},
	"own role":    {`rbac.create=false`, `serviceAccount={"create":false,"name":"mine"}`},
	"protected": {`webConfig={"existingSecret":"web","scheme":"https"}`, `secrets=["engine-token"]`, `networkPolicy={"enabled":true}`, `podMonitor.tlsConfig={"insecureSkipVerify":true}`,
		`podMonitor.sampleLimit=20000`, `podMonitor.relabelings=[{"targetLabel":"team","replacement":"infra"}]`, `podMonitor.metricRelabelings=[{"action":"drop","sourceLabels":["__name__"],"regex":"go_.*"}]`},
	"victoria":     {`victoriaMetrics.enabled=true`, `podMonitor.sampleLimit=20000`, `podMonitor.metricRelabelings=[{"action":"drop","sourceLabels":["__name__"],"regex":"go_.*"}]`},
	"receivers":    {`alertmanager.config={"enabled":true,"labels":{"alertmanager":"main"},"receivers":{"llm-critical":{"webhookConfigs":[{"url":"https://pager.example"}]}}}`},
	"no operator":  {`podMonitor.enabled=false`, `prometheusRule.enabled=false`, `dashboards.enabled=false`, `alertmanager.enabled=false`, `serviceAccount={"create":false}`},
	"other names":  {`nameOverride="llm"`, `image={"digest":"sha256:` + strings.Repeat("0", 64) + `"}`, `commonLabels={"team":"infra"}`},
	"one engine":   {`config={"targets":[{"url":"http://127.0.0.1:8000"}]}`},
	"some alerts":  {`prometheusRule.alerts={"LLMColdStart":{"enabled":false}}`, `prometheusRule.grafanaURL="https://grafana.example"`, `prometheusRule.runbookURL="https://wiki.example/{alert}"`},
	"no probes":    {`probes=false`, `priorityClassName="system-node-critical"`},
	"only some":    {`networkPolicy={"enabled":true,"from":[{"podSelector":{"matchLabels":{"app":"prometheus"}}}]}`},
	"mirror":       {`global.imageRegistry="mirror.example"`, `dashboards={"labels":{"grafana":"yes"},"annotations":{"grafana_folder":"LLM"}}`},
	"extra things": {`extraVolumes=[{"name":"x","emptyDir":{}}]`, `extraVolumeMounts=[{"name":"x","mountPath":"/x"}]`, `extraArgs=["--log.level=debug"]`, `extraEnv=[{"name":"TZ","value":"UTC"}]`, `imagePullSecrets=[{"name":"pull"}]`},
}

// Helm accepts every documented combination.
func TestCombinations(t *testing.T) {
	for name, set := range combinations {
		t.Run(name, func(t *testing.T) {
			args := []string{"lint", "--strict", chart}
			for _, s := range set {
				args = append(args, "--set-json", s)
			}
			if out, err := helm(t, args...); err != nil {
				t.Error(out)
			}
			args[0], args[1], args[2] = "template", "gpu", chart
			if out, err := helm(t, args...); err != nil {
				t.Fatal(out)
			}
		})
	}
}

// What cannot work is refused where it is written.
func TestRefused(t *testing.T) {
	for set, want := range map[string]string{
		`gpu.driver="nvidia"`: "gpu/driver",
		`gpu.source="auto"`:   "gpu/source",
		`prots=9844`:          "prots",
		`prometheusRule.alerts={"LLMNoSuchAlert":{"enabled":false}}`:       "prometheusRule.alerts.LLMNoSuchAlert",
		`alertmanager.config={"enabled":true,"receivers":{"llm-page":{}}}`: "alertmanager.config.receivers.llm-page",
		`config.target=[]`: "config",
		`prometheusRule.grafanaURL="grafana.example"`: "grafanaURL",
	} {
		out, err := helm(t, "template", "gpu", chart, "--set-json", set)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, want an error that names %s:\n%.600s", set, err, want, out)
		}
	}
}

// The rules in the cluster are the generated ones, expression by expression.
func TestRulesAreTheGeneratedOnes(t *testing.T) {
	if got, want := at(t, render(t)["PrometheusRule"], "spec", "groups"), generated(t, "rules.yaml"); !reflect.DeepEqual(got, want["groups"]) {
		t.Error("the rendered groups differ from examples/prometheus/rules.yaml")
	}
	changed := render(t, `prometheusRule.alerts={"LLMColdStart":{"enabled":false},"LLMKVPressure":{"severity":"notice"}}`)
	severities := map[string]string{}
	for _, g := range at(t, changed["PrometheusRule"], "spec", "groups").([]any) {
		for _, r := range at(t, g, "rules").([]any) {
			if name, ok := at(t, r, "alert").(string); ok {
				severities[name] = at(t, r, "labels", "severity").(string)
			}
		}
	}
	if _, there := severities["LLMColdStart"]; there || severities["LLMKVPressure"] != "notice" || len(severities) < 30 {
		t.Errorf("alerts after the changes: %v", severities)
	}
}

// VictoriaMetrics gets the objects of its operator, and the rules that --format victoriametrics writes.
func TestVictoriaMetrics(t *testing.T) {
	objects := render(t, combinations["victoria"]...)
	if objects["PodMonitor"] != nil || objects["PrometheusRule"] != nil {
		t.Error("objects of Prometheus' operator are there too")
	}
	endpoint := at(t, objects["VMPodScrape"], "spec", "podMetricsEndpoints").([]any)[0].(object)
	if at(t, endpoint, "relabelConfigs", "targetLabel") != "job" || at(t, endpoint, "metricRelabelConfigs", "action") != "drop" {
		t.Errorf("relabelling of the VMPodScrape: %v", endpoint)
	}
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "../jsonnet-free-gen", "--format", "victoriametrics", "--out", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	content, err := os.ReadFile(filepath.Join(dir, "vmrule.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want object
	if err := yaml.Unmarshal(content, &want); err != nil {
		t.Fatal(err)
	}
	// Parentheses on lines of their own leave spaces.
	groups := func(o object) string { return strings.Join(strings.Fields(fmt.Sprint(at(t, o, "spec", "groups"))), "") }
	got := objects["VMRule"]
	if got["apiVersion"] != want["apiVersion"] || groups(got) != groups(want) {
		t.Error("the rendered groups differ from those of --format victoriametrics")
	}
}

// generated reads a generated file.
func generated(t *testing.T, name string) (o object) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "examples", "prometheus", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// Links lead where the values say, with what the alert is about.
func TestLinks(t *testing.T) {
	objects := render(t, `prometheusRule.grafanaURL="https://grafana.example/team"`, `prometheusRule.runbookURL="https://wiki.example/{alert}"`)
	alerts := 0
	for _, g := range at(t, objects["PrometheusRule"], "spec", "groups").([]any) {
		for _, r := range at(t, g, "rules").([]any) {
			name, ok := at(t, r, "alert").(string)
			if !ok {
				continue
			}
			alerts++
			notes := at(t, r, "annotations").(object)
			if dashboard := notes["dashboard_url"].(string); !strings.HasPrefix(dashboard, "https://grafana.example/team/d/llm-") || strings.Contains(dashboard, "invalid") {
				t.Errorf("%s: %s", name, dashboard)
			}
			if notes["runbook_url"] != "https://wiki.example/"+name {
				t.Errorf("%s: %s", name, notes["runbook_url"])
			}
		}
	}
	if alerts < 30 {
		t.Errorf("%d alerts", alerts)
	}
}

// Grafana's sidecar finds each dashboard, and Alertmanager's configuration is the generated one.
func TestDashboardsAndFragment(t *testing.T) {
	objects := render(t)
	files, err := filepath.Glob(filepath.Join(chart, "files", "dashboards", "*.json"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		o := objects[strings.TrimPrefix(name, "llm")]
		if got := at(t, o, "data", name+".json"); got != string(want) {
			t.Errorf("%s is not what was generated", name)
		}
		if at(t, o, "metadata", "labels", "grafana_dashboard") != "1" {
			t.Errorf("%s lacks the label of the sidecar", name)
		}
	}
	for _, name := range []string{"alertmanager.yaml", "alertmanager-route.yaml"} {
		var got object
		if err := yaml.Unmarshal([]byte(at(t, objects["-alertmanager"], "data", name).(string)), &got); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, generated(t, name)) {
			t.Errorf("%s is not the generated one", name)
		}
	}
}

// An AlertmanagerConfig only where it is asked for, with the receivers of the values.
func TestAlertmanagerConfig(t *testing.T) {
	if render(t)["AlertmanagerConfig"] != nil {
		t.Error("an AlertmanagerConfig that nobody asked for")
	}
	config := render(t, combinations["receivers"]...)["AlertmanagerConfig"]
	if at(t, config, "metadata", "labels", "alertmanager") != "main" || at(t, config, "spec", "route", "matchers", "value") != "LLM.+" {
		t.Errorf("labels %v, route %v", at(t, config, "metadata", "labels"), at(t, config, "spec", "route", "matchers"))
	}
	want := []any{object{"name": "llm-critical", "webhookConfigs": []any{object{"url": "https://pager.example"}}}, object{"name": "llm-warning"}, object{"name": "llm-null"}}
	if got := at(t, config, "spec", "receivers"); !reflect.DeepEqual(got, want) {
		t.Errorf("receivers %v, want %v", got, want)
	}
}

// The exporter itself accepts the rendered configuration and flags.
func TestExporterAcceptsTheConfiguration(t *testing.T) {
	objects := render(t, `config={"targets":[{"url":"http://127.0.0.1:8000","labels":{"model_name":"chat"}}],"objectives":[{"name":"ttft","signal":"ttft","threshold":"500ms","target":"99%"}],"limits":{"series":1000}}`, `gpu.driver="host"`)
	bin := filepath.Join(t.TempDir(), "exporter")
	build := exec.Command("go", "build", "-o", bin, "../cmd/exporter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(t.TempDir(), "exporter.yml")
	if err := os.WriteFile(file, []byte(at(t, objects[""], "data", "exporter.yml").(string)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config.check"}
	for _, a := range at(t, objects["DaemonSet"], "spec", "template", "spec", "containers", "args").([]any) {
		arg := a.(string)
		if strings.HasPrefix(arg, "--config.file=") {
			arg = "--config.file=" + file
		}
		args = append(args, arg)
	}
	if out, err := exec.Command(bin, args...).CombinedOutput(); err != nil {
		t.Errorf("exporter %v: %v\n%s", args, err, out)
	}
}

// Each privilege comes with the feature that needs it, and not before.
func TestPrivileges(t *testing.T) {
	security := func(set ...string) (pod, container object) {
		spec := at(t, render(t, set...)["DaemonSet"], "spec", "template", "spec").(object)
		return spec, at(t, spec, "containers", "securityContext").(object)
	}
	pod, c := security()
	if pod["hostPID"] != nil || pod["hostNetwork"] != nil || c["privileged"] != nil || at(t, c, "capabilities", "add") != nil ||
		!reflect.DeepEqual(at(t, c, "capabilities", "drop"), []any{"ALL"}) || c["readOnlyRootFilesystem"] != true || c["allowPrivilegeEscalation"] != false {
		t.Errorf("defaults: %v", c)
	}
	if c["runAsUser"] != uint64(0) || pod["automountServiceAccountToken"] != true { // the kubelet's socket; the API server
		t.Errorf("defaults: %v", c)
	}
	pod, c = security(`discovery.enabled=false`, `ownership.podResources=false`)
	if c["runAsNonRoot"] != true || pod["automountServiceAccountToken"] != false {
		t.Errorf("without discovery and ownership: %v", c)
	}
	if objects := render(t, `discovery.enabled=false`); objects["ClusterRole"] != nil || objects["ClusterRoleBinding"] != nil {
		t.Error("a role without discovery")
	}
	pod, c = security(`ownership.processes=true`)
	if pod["hostPID"] != true || !reflect.DeepEqual(at(t, c, "capabilities", "add"), []any{"SYS_PTRACE"}) {
		t.Errorf("processes: %v", c)
	}
	if _, c = security(`gpu.kmsg=true`); !reflect.DeepEqual(at(t, c, "capabilities", "add"), []any{"SYSLOG"}) {
		t.Errorf("kmsg: %v", c)
	}
	if pod, c = security(`gpu.driver="host"`); c["privileged"] != true || pod["runtimeClassName"] != nil {
		t.Errorf("host driver: %v", c)
	}
	pod, c = security(`gpu.source="http://$(HOST_IP):9400"`, `ownership.podResources=false`)
	if c["runAsNonRoot"] != true || pod["runtimeClassName"] != nil {
		t.Errorf("GPUs of a page: %v", c)
	}
}

// Two releases share no name, neither in one namespace nor across the cluster.
func TestTwoReleases(t *testing.T) {
	names := func(release, namespace string) map[string]bool {
		out, err := helm(t, "template", release, chart, "--skip-tests", "--namespace", namespace)
		if err != nil {
			t.Fatal(out)
		}
		all := map[string]bool{}
		d := yaml.NewDecoder(strings.NewReader(out))
		for {
			var o object
			if d.Decode(&o) != nil {
				return all
			}
			if o["kind"] != nil {
				where, _ := at(t, o, "metadata", "namespace").(string)
				all[o["kind"].(string)+" "+where+"/"+at(t, o, "metadata", "name").(string)] = true
			}
		}
	}
	first := names("a", "monitoring")
	for _, other := range []map[string]bool{names("b", "monitoring"), names("a", "elsewhere")} {
		if len(first) < 10 || len(other) != len(first) {
			t.Errorf("%d and %d objects", len(first), len(other))
		}
		for name := range other {
			if first[name] {
				t.Errorf("both releases have %s", name)
			}
		}
	}
}
