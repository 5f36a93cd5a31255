// Package helm tests the chart: the real helm renders it, and the programs that read it in a cluster read it here.
package helm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

const chart = "llm-node-exporter"

// helm runs helm against a current Kubernetes and returns its output on either stream.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("helm"); err != nil {
		t.Skip("helm is not installed: go install helm.sh/helm/v3/cmd/helm@v3.22.0")
	}
	out, err := exec.Command("helm", append(args, "--kube-version", "1.34.0")...).CombinedOutput()
	return string(out), err
}

type object = map[string]any

// render returns the objects of the chart by kind, ConfigMaps by the end of their name. Other objects of the
// cluster's exporter have the prefix "cluster "; test pods are left out.
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
			if name := at(t, o, "metadata", "name").(string); kind == "ConfigMap" {
				kind = strings.TrimPrefix(name, "gpu-llm-node-exporter")
			} else if strings.HasSuffix(name, "-cluster") {
				kind = "cluster " + kind
			}
			if spec, _ := o["spec"].(object); (kind == "PrometheusRule" || kind == "VMRule") && objects[kind] != nil { // one per subject
				all := objects[kind]["spec"].(object)
				all["groups"] = append(all["groups"].([]any), spec["groups"].([]any)...)
				continue
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
	"host driver": {`gpu.driver="host"`, `gpu.compatDCGM=true`},
	"GPU page":    {`gpu.source="http://$(HOST_IP):9400"`},
	"no GPU":      {`gpu.driver="none"`, `hostNetwork=true`},
	"processes":   {`ownership={"podResources":false,"processes":true}`, `gpu.kmsg=true`},
	"least":       {`discovery.enabled=false`, `ownership.podResources=false`},
	"own role":    {`rbac.create=false`, `serviceAccount={"create":false,"name":"mine"}`},
	"protected": {
		`webConfig={"existingSecret":"web","scheme":"https"}`, `secrets=["engine-token"]`, `networkPolicy={"enabled":true}`,
		`podMonitor.tlsConfig={"insecureSkipVerify":true}`,
		`podMonitor.sampleLimit=20000`, `podMonitor.relabelings=[{"targetLabel":"team","replacement":"infra"}]`,
		`podMonitor.metricRelabelings=[{"action":"drop","sourceLabels":["__name__"],"regex":"go_.*"}]`,
	},
	"victoria": {
		`victoriaMetrics.enabled=true`, `podMonitor.sampleLimit=20000`,
		`podMonitor.metricRelabelings=[{"action":"drop","sourceLabels":["__name__"],"regex":"go_.*"}]`,
	},
	"receivers": {`alertmanager.config={"enabled":true,"labels":{"alertmanager":"main"},"receivers":{"llm-critical":{"webhookConfigs":[{"url":"https://pager.example"}]}}}`},
	"no operator": {
		`podMonitor.enabled=false`, `prometheusRule.enabled=false`, `dashboards.enabled=false`,
		`alertmanager.enabled=false`, `serviceAccount={"create":false}`,
	},
	"other names": {`nameOverride="llm"`, `image={"digest":"sha256:` + strings.Repeat("0", 64) + `"}`, `commonLabels={"team":"infra"}`},
	"one engine":  {`config={"targets":[{"url":"http://127.0.0.1:8000"}]}`},
	"some alerts": {
		`prometheusRule.alerts={"LLMKVTransferFailures":{"enabled":false}}`,
		`prometheusRule.grafanaURL="https://grafana.example"`, `prometheusRule.runbookURL="https://wiki.example/{alert}"`,
	},
	"no probes": {`probes="none"`, `priorityClassName="system-node-critical"`},
	"only some": {`networkPolicy={"enabled":true,"from":[{"podSelector":{"matchLabels":{"app":"prometheus"}}}]}`},
	"mirror": {
		`global.imageRegistry="mirror.example"`,
		`dashboards={"labels":{"grafana":"yes"},"annotations":{"grafana_folder":"LLM"}}`,
	},
	"default runtime":  {`gpu.driver="defaultRuntime"`},
	"runtime unnamed":  {`gpu.runtimeClassName=""`},
	"NRI":              {`gpu.driver="cdi"`},
	"Bottlerocket":     {`gpu.driver="volumeMounts"`},
	"driver container": {`gpu={"driver":"host","host":{"path":"/run/nvidia/driver","library":"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"}}`},
	"Talos":            {`gpu.runtimeClassName="nvidia"`, `podSecurityContext={"fsGroup":65532}`},
	"k0s":              {`ownership.kubeletDir="/var/lib/k0s/kubelet"`, `gpu.driver="defaultRuntime"`},
	"user workloads":   {`namespaceLabel="exported_namespace"`, `podMonitor.kind="ServiceMonitor"`, `alertmanager.config={"enabled":true}`},
	"OpenShift": {
		`securityContextConstraints.create=true`, `gpu.kmsg=true`,
		`podSecurityContext={"seLinuxOptions":{"type":"spc_t"}}`, `dashboards.labels={"console.openshift.io/dashboard":"true"}`,
	},
	"AppArmor": {`securityContext={"appArmorProfile":{"type":"Unconfined"}}`},
	"tenant":   {`discovery.namespaces=["llm","batch"]`, `ownership.podResources=false`},
	"ingress": {
		`cluster.enabled=true`,
		`ingress={"host":"llm.example","className":"nginx","tlsSecret":"llm-tls","annotations":{"a":"b"}}`,
	},
	"gateway": {
		`cluster.enabled=true`,
		`ingress={"host":"llm.example","parentRefs":[{"name":"web","namespace":"gateways","sectionName":"https"}]}`,
	},
	"two namespaces": {`discovery.namespaces=["llm","batch"]`},
	"password": {
		`probes="tcp"`, `webConfig={"existingSecret":"web"}`, `livenessProbe={"initialDelaySeconds":10}`,
		`readinessProbe={"periodSeconds":5,"failureThreshold":1}`,
	},
	"ServiceMonitor": {
		`podMonitor.kind="ServiceMonitor"`,
		`service={"labels":{"a":"b"},"annotations":{"a":"b"},"type":"ClusterIP","clusterIP":"None"}`,
	},
	"ScrapeConfig": {
		`podMonitor.kind="ScrapeConfig"`, `webConfig.scheme="https"`, `podMonitor.sampleLimit=20000`,
		`podMonitor.basicAuth={"username":{"name":"a","key":"u"},"password":{"name":"a","key":"p"}}`,
	},
	"no Service": {`service.enabled=false`},
	"everywhere": {
		`affinity={}`, `nodeSelector={"pool":"gpu"}`,
		`tolerations=[{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"}]`,
	},
	"own affinity": {`affinity={"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"gpu","operator":"Exists"}]}]}}}`},
	"umbrella": {
		`enabled=true`,
		`global={"imageRegistry":"mirror.example","imagePullSecrets":[{"name":"all"}],"storageClass":"fast"}`, `namespaceOverride="gpu"`,
	},
	"beside it": {
		`initContainers=[{"name":"wait","image":"busybox"}]`,
		`sidecars=[{"name":"proxy","image":"proxy","ports":[{"containerPort":8443}]}]`,
		`extraManifests=[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"more"}},"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-text'}"]`,
	},
	"cluster": {
		`cluster={"enabled":true,"config":{"targets":[{"url":"http://gateway:8080"}],"probes":[{"url":"http://gateway:8080","model":"chat"}]},"secrets":["gateway"],"nodeSelector":{"pool":"cpu"},"affinity":{"podAffinity":{}},"tolerations":[{"operator":"Exists"}],"priorityClassName":"high","extraArgs":["--log.level=debug"],"extraEnv":[{"name":"TZ","value":"UTC"}]}`,
		`networkPolicy.enabled=true`, `podMonitor.kind="ServiceMonitor"`, `webConfig.existingSecret="web"`,
		`serviceAccount.annotations={"a":"b"}`,
	},
	"cluster beside all privileges": {
		`cluster.enabled=true`, `ownership={"podResources":true,"processes":true}`,
		`gpu={"driver":"host","kmsg":true}`, `hostNetwork=true`, `priorityClassName="system-node-critical"`,
		`securityContext={"privileged":true,"readOnlyRootFilesystem":false}`,
		`podSecurityContext={"runAsUser":0,"seccompProfile":{"type":"Unconfined"}}`, `secrets=["engine-token"]`,
		`extraArgs=["--gpu.interval=2s"]`,
		`extraVolumes=[{"name":"x","hostPath":{"path":"/x"}}]`, `extraVolumeMounts=[{"name":"x","mountPath":"/x"}]`,
		`initContainers=[{"name":"a","image":"a","securityContext":{"privileged":true}}]`, `sidecars=[{"name":"b","image":"b"}]`,
	},
	"cluster for VictoriaMetrics": {
		`cluster.enabled=true`, `victoriaMetrics.enabled=true`,
		`serviceAccount={"create":false,"name":"mine"}`, `securityContextConstraints.create=true`,
	},
	"cluster acts on GPUs":    {`cluster.enabled=true`, `cluster.act.gpus="on"`, `cluster.act.effect="NoExecute"`},
	"cluster by ScrapeConfig": {`cluster.enabled=true`, `podMonitor.kind="ScrapeConfig"`},
	"grafana-operator":        {`dashboards.grafanaOperator={"enabled":true,"instanceSelector":{"matchLabels":{"grafana":"main"}}}`},
	"private registry":        {`image={"registry":"registry.example:5000","repository":"team/llm-node-exporter","tag":"v1","pullPolicy":"Always"}`, `imagePullSecrets=[{"name":"pull"}]`, `secrets=["token"]`},
	"Argo CD": {
		`commonLabels={"argocd.argoproj.io/instance":"llm"}`, `podAnnotations={"a":"b"}`,
		`podLabels={"a":"b"}`, `daemonsetAnnotations={"argocd.argoproj.io/sync-wave":"1"}`, `revisionHistoryLimit=2`,
	},
	"extra things": {
		`extraVolumes=[{"name":"x","emptyDir":{}}]`, `extraVolumeMounts=[{"name":"x","mountPath":"/x"}]`,
		`extraArgs=["--log.level=debug"]`, `extraEnv=[{"name":"TZ","value":"UTC"}]`, `imagePullSecrets=[{"name":"pull"}]`,
	},
}

// Helm accepts every documented combination.
func TestCombinations(t *testing.T) {
	for name, set := range combinations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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

// Values that cannot work are refused, and the error names them.
func TestRefused(t *testing.T) {
	for set, want := range map[string]string{
		`gpu.driver="nvidia"`: "gpu/driver",
		`gpu.source="auto"`:   "gpu/source",
		`prots=9844`:          "prots",
		`gpu.cdiDevice="all"`: "cdiDevice",
		`podMonitor={"kind":"ServiceMonitor"}` + "\n" + `service.enabled=false`:  "service.enabled",
		`podMonitor.kind="ScrapeConfig"` + "\n" + `victoriaMetrics.enabled=true`: "podMonitor.kind",
		`prometheusRule.alerts={"LLMNoSuchAlert":{"enabled":false}}`:             "prometheusRule.alerts.LLMNoSuchAlert",
		`alertmanager.config={"enabled":true,"receivers":{"llm-page":{}}}`:       "alertmanager.config.receivers.llm-page",
		`config.target=[]`:                                           "config",
		`cluster.config.target=[]`:                                   "cluster/config",
		`cluster.hostNetwork=true`:                                   "cluster",
		`prometheusRule.grafanaURL="grafana.example"`:                "grafanaURL",
		`prometheusRule.queryURL="https://prometheus.example/graph"`: "queryURL",
		`prometheusRule.runbookURL="https://wiki.example"`:           "runbookURL",
		`prometheusRule.runbookURL="https://wiki.example/\"{alert}"`: "runbookURL",
		`ingress.host="llm.example"`:                                 "set cluster.enabled and service.enabled",
		`ingress.host="https://llm.example/x"`:                       "/ingress/host",
	} {
		args := []string{"template", "gpu", chart}
		for s := range strings.SplitSeq(set, "\n") {
			args = append(args, "--set-json", s)
		}
		out, err := helm(t, args...)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, want an error that names %s:\n%.600s", set, err, want, out)
		}
	}
}

// ownRunbooks sets the address of runbooks that generated files have.
const ownRunbooks = `prometheusRule.runbookURL="` + rules.DefaultRunbookURL + `"`

// byName returns groups of rules by their names: an object per subject has no order of groups.
func byName(file any) map[string]any {
	groups := map[string]any{}
	for _, g := range file.(object)["groups"].([]any) {
		groups[g.(object)["name"].(string)] = g
	}
	return groups
}

// ruleObjects reads the rules that the generator writes for an operator, as one object.
func ruleObjects(t *testing.T, path string) (all object) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(strings.NewReader(string(content))); ; {
		var o object
		if d.Decode(&o) != nil {
			return all
		}
		if all == nil {
			all = o
			continue
		}
		spec := all["spec"].(object)
		spec["groups"] = append(spec["groups"].([]any), o["spec"].(object)["groups"].([]any)...)
	}
}

// Kubernetes' client-side apply keeps a copy of an object in an annotation of at most 262,144 bytes: no object of
// rules is larger with the longest values. The objects have the names of --format operator.
func TestRulesFitIntoAnnotations(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long-name.", 12)
	for kind, set := range map[string]string{"PrometheusRule": `victoriaMetrics.enabled=false`, "VMRule": `victoriaMetrics.enabled=true`} {
		out, err := helm(t, "template", "gpu", chart, "--namespace", "monitoring", "--skip-tests", "--set-json", set, "--set-json",
			`namespaceLabel="exported_namespace"`,
			"--set-json", `prometheusRule={"runbookURL":"https://`+long+`example/wiki/{alert}{labels}","grafanaURL":"https://`+long+
				`example/grafana"}`)
		if err != nil {
			t.Fatal(out)
		}
		var names []string
		for d := yaml.NewDecoder(strings.NewReader(out)); ; {
			var o object
			if d.Decode(&o) != nil {
				break
			}
			if o["kind"] != kind {
				continue
			}
			names = append(names, strings.TrimPrefix(at(t, o, "metadata", "name").(string), "gpu-llm-node-exporter-"))
			as, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %s: %d bytes", kind, names[len(names)-1], len(as))
			if len(as) > 250_000 { // with room for labels and annotations
				t.Errorf("%s %s has %d bytes as JSON", kind, names[len(names)-1], len(as))
			}
		}
		slices.Sort(names)
		if want := slices.Sorted(slices.Values(rules.Subjects)); !slices.Equal(names, want) {
			t.Errorf("%s: objects %q, want %q", kind, names, want)
		}
	}
}

// The rules in the cluster equal the generated rules, expression by expression.
func TestRulesAreTheGeneratedOnes(t *testing.T) {
	if got, want := byName(render(t, ownRunbooks)["PrometheusRule"]["spec"]), byName(generated(t, "rules.yaml")); !reflect.DeepEqual(got,
		want) {
		t.Error("the rendered groups differ from examples/prometheus/rules.yaml")
	}
	changed := render(t, `prometheusRule.alerts={"LLMKVTransferFailures":{"enabled":false},"LLMReplicaSkew":{"severity":"notice"}}`)
	severities := map[string]string{}
	for _, g := range at(t, changed["PrometheusRule"], "spec", "groups").([]any) {
		for _, r := range at(t, g, "rules").([]any) {
			if name, ok := at(t, r, "alert").(string); ok {
				severities[name] = at(t, r, "labels", "severity").(string)
			}
		}
	}
	if _, there := severities["LLMKVTransferFailures"]; there || severities["LLMReplicaSkew"] != "notice" || len(severities) < 30 {
		t.Errorf("alerts after the changes: %v", severities)
	}
}

// VictoriaMetrics gets the objects of its operator, and the rules that --format victoriametrics writes.
func TestVictoriaMetrics(t *testing.T) {
	t.Parallel()
	objects := render(t, append(combinations["victoria"], ownRunbooks)...)
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
	want := ruleObjects(t, filepath.Join(dir, "vmrule.yaml"))
	// Parentheses on lines of their own leave spaces.
	groups := func(o object) string { return strings.Join(strings.Fields(fmt.Sprint(byName(o["spec"]))), "") }
	got := objects["VMRule"]
	if got["apiVersion"] != want["apiVersion"] || groups(got) != groups(want) {
		t.Error("the rendered groups differ from those of --format victoriametrics")
	}
	boards, err := filepath.Glob(filepath.Join(dir, "dashboards", "*.json"))
	if err != nil || len(boards) == 0 {
		t.Fatalf("%d dashboards: %v", len(boards), err)
	}
	for _, path := range boards {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		got := at(t, objects[strings.TrimSuffix(strings.TrimPrefix(name, "llm"), ".json")], "data").(object)[name].(string)
		if queries(t, got) != queries(t, string(want)) {
			t.Errorf("%s has other queries than with --format victoriametrics", name)
		}
	}
}

// queries lists the queries of a dashboard.
func queries(t *testing.T, dashboard string) string {
	t.Helper()
	var all []string
	for _, m := range regexp.MustCompile(`"expr": ?"(?:[^"\\]|\\.)*"`).FindAllString(dashboard, -1) {
		all = append(all, strings.TrimSpace(m))
	}
	if len(all) == 0 {
		t.Error("a dashboard without queries")
	}
	return strings.Join(all, "\n")
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

// Links lead to the addresses in the values, with the labels of the alert.
func TestLinks(t *testing.T) {
	const opener = "https://prometheus.example/graph?g0.tab=1&g0.expr={query}"
	objects := render(t, `prometheusRule.grafanaURL="https://grafana.example/team"`,
		`prometheusRule.runbookURL="https://wiki.example/{alert}"`, `prometheusRule.queryURL="`+opener+`"`)
	if args := at(t, objects["DaemonSet"], "spec", "template", "spec", "containers", "args").([]any); !slices.Contains(args,
		any("--web.runbook-query-url="+opener)) {
		t.Errorf("a runbook's query opens nowhere: %v", args)
	}
	alerts := 0
	for _, g := range at(t, objects["PrometheusRule"], "spec", "groups").([]any) {
		for _, r := range at(t, g, "rules").([]any) {
			name, ok := at(t, r, "alert").(string)
			if !ok {
				continue
			}
			alerts++
			notes := at(t, r, "annotations").(object)
			if dashboard := notes["dashboard_url"].(string); !strings.HasPrefix(dashboard, "https://grafana.example/team/d/llm-") ||
				strings.Contains(dashboard, "invalid") {
				t.Errorf("%s: %s", name, dashboard)
			}
			// A page about an objective names its suspect's runbook when it is written.
			if url := notes["runbook_url"].(string); url != "https://wiki.example/"+name &&
				!strings.HasSuffix(url, "https://wiki.example/{{$page}}") {
				t.Errorf("%s: %s", name, notes["runbook_url"])
			}
		}
	}
	for set, want := range map[string]string{
		`service.enabled=true`:                                     "http://gpu-llm-node-exporter.monitoring.svc:9844/runbooks/LLMReplicaSkew",
		`webConfig.scheme="https"`:                                 "https://gpu-llm-node-exporter.monitoring.svc:9844/runbooks/LLMReplicaSkew",
		`service.enabled=false`:                                    "http://localhost:9844/runbooks/LLMReplicaSkew",
		`prometheusRule.runbookURL="https://wiki.example/{alert}"`: "https://wiki.example/LLMReplicaSkew",
	} {
		objects := render(t, set)
		for _, text := range []string{fmt.Sprint(objects["PrometheusRule"]), at(t, objects["-incident"], "data", "llm-incident.json").(string)} {
			if !strings.Contains(text, want) || strings.Contains(text, "github.com") {
				t.Errorf("%s: nothing leads to %s", set, want)
			}
		}
	}
	if alerts < 30 {
		t.Errorf("%d alerts", alerts)
	}
	for kind, name := range map[string]string{"Ingress": "ingress", "HTTPRoute": "gateway"} {
		objects := render(t, combinations[name]...)
		spec, service := fmt.Sprint(objects["cluster "+kind]["spec"]), at(t, objects["cluster Service"], "metadata", "name").(string)
		if !strings.Contains(spec, "llm.example") || !strings.Contains(spec, "name:"+service) ||
			!strings.Contains(fmt.Sprint(objects["PrometheusRule"]), "https://llm.example/runbooks/LLMReplicaSkew?") {
			t.Errorf("%s: %s, for %s, or alerts lead elsewhere", kind, spec, service)
		}
	}
	// A message whose link needs a command names this installation's own objects.
	if text := fmt.Sprint(render(t, `service.enabled=false`)["-alertmanager"]); !strings.Contains(text,
		"kubectl -n monitoring port-forward ds/gpu-llm-node-exporter ") || strings.Contains(text, "NAMESPACE") {
		t.Error("the template of messages names a namespace or an object that is not there")
	}
}

// If Prometheus sets namespace itself, everything reads the engine's namespace from the remaining label, as the
// generator writes it, with the same links.
func TestOtherNamespaceLabel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const runbooks = "https://wiki.example/{alert}.html"
	if out, err := exec.Command("go", "run", "../jsonnet-free-gen", "--format", "operator", "--label", "namespace=exported_namespace",
		"--runbook-url", runbooks,
		"--dashboard-url", "https://grafana.example/d/{uid}", "--out", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	parsed := func(text string) (o object) {
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	objects := render(t, `namespaceLabel="exported_namespace"`, `prometheusRule.runbookURL="`+runbooks+`"`,
		`prometheusRule.grafanaURL="https://grafana.example"`, `alertmanager.config={"enabled":true}`)
	// Matchers are sorted by name, and lines end where they are full: an expression of several lines may begin with a space.
	words := func(text string) []string {
		all := strings.FieldsFunc(strings.ReplaceAll(text, "expr:", "expr: "), func(r rune) bool { return strings.ContainsRune(" \n,{}()`", r) })
		slices.Sort(all)
		return all
	}
	if !slices.Equal(words(fmt.Sprint(byName(objects["PrometheusRule"]["spec"]))),
		words(fmt.Sprint(byName(ruleObjects(t, filepath.Join(dir, "prometheusrule.yaml"))["spec"])))) {
		t.Error("the rules are not those of --label namespace=exported_namespace")
	}
	if !reflect.DeepEqual(objects["AlertmanagerConfig"]["spec"], parsed(read("alertmanagerconfig.yaml"))["spec"]) {
		t.Error("the AlertmanagerConfig is not that of --label namespace=exported_namespace")
	}
	for _, name := range []string{"alertmanager.yaml", "alertmanager-route.yaml"} {
		if !reflect.DeepEqual(parsed(at(t, objects["-alertmanager"], "data", name).(string)), parsed(read(name))) {
			t.Errorf("%s is not that of --label namespace=exported_namespace", name)
		}
	}
	// The chart's messages show how to reach a web page that has no address of its own.
	template := strings.ReplaceAll(read(rules.TemplateFile), "-n NAMESPACE port-forward ds/llm-node-exporter ",
		"-n monitoring port-forward ds/gpu-llm-node-exporter ")
	if at(t, objects["-alertmanager"], "data", rules.TemplateFile) != template {
		t.Error("the template is not that of --label namespace=exported_namespace")
	}
	for _, board := range []string{"engine", "exporter", "fleet", "gpu", "incident", "slo"} {
		if name := "llm-" + board + ".json"; !slices.Equal(words(at(t, objects["-"+board], "data", name).(string)),
			words(read("dashboards/"+name))) {
			t.Errorf("%s is not that of --label namespace=exported_namespace", name)
		}
	}
	endpoint := at(t, objects["PodMonitor"], "spec", "podMetricsEndpoints").([]any)[0].(object)
	if endpoint["honorLabels"] != false || strings.Contains(fmt.Sprint(endpoint["relabelings"]), "namespace|pod") {
		t.Errorf("nothing is left for exported_namespace: %v", endpoint)
	}
}

// Grafana's sidecar finds each dashboard, and Alertmanager's configuration equals the generated configuration.
func TestDashboardsAndFragment(t *testing.T) {
	objects := render(t, ownRunbooks)
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

// The chart has an AlertmanagerConfig only on request, with the receivers of the values.
func TestAlertmanagerConfig(t *testing.T) {
	if render(t)["AlertmanagerConfig"] != nil {
		t.Error("an AlertmanagerConfig that nobody asked for")
	}
	config := render(t, combinations["receivers"]...)["AlertmanagerConfig"]
	if at(t, config, "metadata", "labels", "alertmanager") != "main" || at(t, config, "spec", "route", "matchers", "value") != "LLM.+" {
		t.Errorf("labels %v, route %v", at(t, config, "metadata", "labels"), at(t, config, "spec", "route", "matchers"))
	}
	want := []any{
		object{"name": "llm-critical", "webhookConfigs": []any{object{"url": "https://pager.example"}}},
		object{"name": "llm-warning"},
		object{"name": "llm-null"},
	}
	if got := at(t, config, "spec", "receivers"); !reflect.DeepEqual(got, want) {
		t.Errorf("receivers %v, want %v", got, want)
	}
}

// The exporter itself accepts the rendered configuration and flags.
func TestExporterAcceptsTheConfiguration(t *testing.T) {
	t.Parallel()
	objects := render(t, append(combinations["cluster"],
		`config={"targets":[{"url":"http://127.0.0.1:8000","labels":{"model_name":"chat"}}],"objectives":[{"name":"ttft","signal":"ttft","threshold":"500ms","target":"99%"}],"limits":{"series":1000}}`, `gpu.driver="host"`, `webConfig.existingSecret=""`)...)
	bin := filepath.Join(t.TempDir(), "exporter")
	build := exec.Command("go", "build", "-o", bin, "../cmd/exporter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for workload, configMap := range map[string]string{"DaemonSet": "", "cluster Deployment": "-cluster"} {
		file := filepath.Join(t.TempDir(), "exporter.yml")
		if err := os.WriteFile(file, []byte(at(t, objects[configMap], "data", "exporter.yml").(string)), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"--config.check"}
		for _, a := range at(t, objects[workload], "spec", "template", "spec", "containers", "args").([]any) {
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
}

// Each privilege comes with the feature that needs it, and not before.
func TestPrivileges(t *testing.T) {
	security := func(set ...string) (pod, container object) {
		spec := at(t, render(t, set...)["DaemonSet"], "spec", "template", "spec").(object)
		return spec, at(t, spec, "containers", "securityContext").(object)
	}
	pod, c := security()
	if pod["hostPID"] != nil || pod["hostNetwork"] != nil || c["privileged"] != nil || at(t, c, "capabilities", "add") != nil ||
		!reflect.DeepEqual(at(t, c, "capabilities", "drop"), []any{"ALL"}) || c["readOnlyRootFilesystem"] != true ||
		c["allowPrivilegeEscalation"] != false {
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
	// DAC_READ_SEARCH is needed because /proc/PID/fd belongs to the process' user, and an engine need not run as root.
	pod, c = security(`ownership.processes=true`)
	if pod["hostPID"] != true || !reflect.DeepEqual(at(t, c, "capabilities", "add"), []any{"SYS_PTRACE", "DAC_READ_SEARCH"}) {
		t.Errorf("processes: %v", c)
	}
	// The device cgroup opens /dev/kmsg to privileged containers only.
	if _, c = security(`gpu.kmsg=true`); c["privileged"] != true || c["allowPrivilegeEscalation"] != nil {
		t.Errorf("kmsg: %v", c)
	}
	if _, c = security(`securityContext={"seLinuxOptions":{"type":"spc_t"},"readOnlyRootFilesystem":false}`); at(t, c, "seLinuxOptions",
		"type") != "spc_t" ||
		c["readOnlyRootFilesystem"] != false || c["allowPrivilegeEscalation"] != false {
		t.Errorf("of the values: %v", c)
	}
	if pod, c = security(`gpu.driver="host"`); c["privileged"] != true || pod["runtimeClassName"] != nil {
		t.Errorf("host driver: %v", c)
	}
	pod, c = security(`gpu.source="http://$(HOST_IP):9400"`, `ownership.podResources=false`)
	if c["runAsNonRoot"] != true || pod["runtimeClassName"] != nil {
		t.Errorf("GPUs of a page: %v", c)
	}
}

// The cluster's exporter has no privilege, whatever the values give the nodes' exporters, which stay unchanged.
func TestClusterPrivileges(t *testing.T) {
	t.Parallel()
	set := combinations["cluster beside all privileges"]
	objects := render(t, set...)
	deployment := at(t, objects["cluster Deployment"], "spec").(object)
	pod := at(t, deployment, "template", "spec").(object)
	want := object{
		"serviceAccountName": "gpu-llm-node-exporter-cluster", "automountServiceAccountToken": false,
		"nodeSelector": object{"kubernetes.io/os": "linux"}, "affinity": object{}, "terminationGracePeriodSeconds": uint64(10),
		"securityContext": object{"seccompProfile": object{"type": "RuntimeDefault"}},
		"volumes":         []any{object{"name": "config", "configMap": object{"name": "gpu-llm-node-exporter-cluster"}}},
		"containers":      pod["containers"],
	}
	if !reflect.DeepEqual(pod, want) {
		t.Errorf("the pod is\n%v, want\n%v", pod, want)
	}
	c := pod["containers"].([]any)[0].(object)
	if got, want := c["securityContext"], (object{
		"readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
		"capabilities": object{"drop": []any{"ALL"}},
		"runAsNonRoot": true, "runAsUser": uint64(65532), "runAsGroup": uint64(65532),
	}); len(pod["containers"].([]any)) != 1 ||
		!reflect.DeepEqual(got, want) {
		t.Errorf("the container may %v, want %v", got, want)
	}
	if got, want := fmt.Sprint(c["args"]),
		"[--config.file=/etc/llm-node-exporter/config/exporter.yml --web.listen-address=:9844 --role=cluster]"; got != want {
		t.Errorf("args %s, want %s", got, want)
	}
	if deployment["replicas"] != uint64(1) || at(t, deployment, "strategy", "type") != "Recreate" {
		t.Errorf("two may run at once: %v", deployment)
	}
	if objects["cluster ServiceAccount"] == nil || objects["cluster ClusterRole"] != nil ||
		strings.Contains(fmt.Sprint(objects["ClusterRoleBinding"]["subjects"]), "-cluster") {
		t.Errorf("its account has rights: %v", objects["ClusterRoleBinding"])
	}
	for kind, o := range render(t, append(set, `cluster.enabled=false`)...) {
		if strings.Contains(kind, "cluster") || !reflect.DeepEqual(o, objects[kind]) {
			t.Errorf("%s is another with cluster.enabled", kind)
		}
	}
}

// Acting on sick GPUs is off by default; a dry run may write nothing, and acting may write only the objects that it
// needs.
func TestActing(t *testing.T) {
	t.Parallel()
	const enabled = `cluster.enabled=true`
	if objects := render(t, enabled); objects["cluster Role"] != nil || objects["cluster ClusterRole"] != nil {
		t.Error("the cluster's exporter has a role by default")
	}
	verbs := func(o object) string {
		var all []string
		for _, r := range o["rules"].([]any) {
			all = append(all, fmt.Sprint(at(t, r.(object), "resources"), at(t, r.(object), "verbs")))
		}
		return strings.Join(all, " ")
	}
	documented, err := os.ReadFile("../docs/acting.md")
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string]string{} // by row of the table and mode
	for mode, want := range map[string][2]string{
		"dry-run": {"[nodes] [list] [resourceslices] [list] [devicetaintrules] [list]", "[pods] [list]"},
		"on": {
			"[nodes] [list patch] [nodes/status] [patch] [resourceslices] [list] [devicetaintrules] [list create update delete]",
			"[pods] [list] [leases] [get create update] [events] [create]",
		},
	} {
		objects := render(t, enabled, `cluster.act.gpus="`+mode+`"`)
		if got := verbs(objects["cluster ClusterRole"]); got != want[0] {
			t.Errorf("%s: in the cluster %s, want %s", mode, got, want[0])
		}
		if got := verbs(objects["cluster Role"]); got != want[1] {
			t.Errorf("%s: in the namespace %s, want %s", mode, got, want[1])
		}
		for where, kind := range map[string]string{"cluster": "cluster ClusterRole", "namespace": "cluster Role"} {
			for _, r := range objects[kind]["rules"].([]any) {
				roles["| "+where+" | `"+strings.Trim(fmt.Sprint(at(t, r.(object), "resources")), "[]")+"` |"+
					mode] = strings.Trim(fmt.Sprint(at(t, r.(object), "verbs")), "[]")
			}
		}
		pod := at(t, objects["cluster Deployment"], "spec", "template", "spec").(object)
		if args := fmt.Sprint(at(t, pod, "containers", "args")); pod["automountServiceAccountToken"] != true ||
			!strings.Contains(args, "--act.gpus="+mode+" --act.effect=NoSchedule") ||
			!strings.Contains(args, "--act.pods=app.kubernetes.io/name=llm-node-exporter,app.kubernetes.io/instance=gpu ") {
			t.Errorf("%s: %s", mode, args)
		}
	}
	for row := range roles {
		if begin, ok := strings.CutSuffix(row, "on"); ok {
			if line := begin + " " + cmp.Or(roles[begin+"dry-run"], "-") + " | " + roles[row] + " |"; !strings.Contains(string(documented), line) {
				t.Errorf("docs/acting.md lacks the line %s", line)
			}
		}
	}
}

// The cluster's exporter follows its own values, and all selectors of pods distinguish it from the nodes' exporters.
func TestCluster(t *testing.T) {
	t.Parallel()
	objects := render(t, combinations["cluster"]...)
	pod := at(t, objects["cluster Deployment"], "spec", "template").(object)
	for _, want := range []string{
		"mountPath:/etc/llm-node-exporter/secrets/gateway", "secretName:gateway",
		"mountPath:/etc/llm-node-exporter/web", "pool:cpu", "podAffinity", "operator:Exists",
		"priorityClassName:high", "--log.level=debug", "name:TZ",
	} {
		if !strings.Contains(fmt.Sprint(pod), want) {
			t.Errorf("the pod lacks %s: %v", want, pod)
		}
	}
	if config := at(t, objects["-cluster"], "data", "exporter.yml").(string); !strings.Contains(config, "url: http://gateway:8080") ||
		!strings.Contains(config, "model: chat") {
		t.Errorf("its configuration is %s", config)
	}
	nodes := at(t, objects["DaemonSet"], "spec", "template", "metadata", "labels").(object)
	cluster := at(t, pod, "metadata", "labels").(object)
	selects := func(selector any, labels object) bool {
		for name, value := range selector.(object) {
			if labels[name] != value {
				return false
			}
		}
		return true
	}
	for kind, path := range map[string][]string{
		"Service": {"spec", "selector"}, "ServiceMonitor": {"spec", "selector", "matchLabels"},
		"NetworkPolicy": {"spec", "podSelector", "matchLabels"},
	} {
		ofNodes, ofCluster := at(t, objects[kind], path...), at(t, objects["cluster "+kind], path...)
		if !selects(ofNodes, nodes) || selects(ofNodes, cluster) || !selects(ofCluster, cluster) || selects(ofCluster, nodes) {
			t.Errorf("%s: %v and %v", kind, ofNodes, ofCluster)
		}
	}
	// The exporter has one series, wherever the pod runs, in a job that the rules match and that differs from the job
	// of the nodes.
	labels := at(t, at(t, objects["cluster ServiceMonitor"], "spec", "endpoints").([]any)[0], "relabelings").([]any)
	job := at(t, labels[0], "replacement").(string)
	if job == rules.DefaultJob || !regexp.MustCompile("^(?:"+rules.DefaultJobs+")$").MatchString(job) ||
		strings.Contains(fmt.Sprint(labels), "node_name") ||
		!reflect.DeepEqual(labels[1], object{"targetLabel": "instance", "replacement": "monitoring/gpu-llm-node-exporter-cluster"}) {
		t.Errorf("labels of its series: %v", labels)
	}
	if got := at(t, render(t, combinations["cluster by ScrapeConfig"]...)["cluster ScrapeConfig"], "spec", "kubernetesSDConfigs",
		"selectors", "label"); got != "app.kubernetes.io/name=llm-node-exporter-cluster,app.kubernetes.io/instance=gpu" {
		t.Errorf("pods of the ScrapeConfig: %v", got)
	}
	objects = render(t, combinations["cluster for VictoriaMetrics"]...)
	if account := at(t, objects["cluster Deployment"], "spec", "template", "spec", "serviceAccountName"); account != "default" {
		t.Errorf("it runs as %v, the account of the nodes' exporters", account)
	}
	if may := objects["cluster SecurityContextConstraints"]; at(t, may, "runAsUser", "type") != "MustRunAsNonRoot" ||
		at(t, may, "seLinuxContext", "type") != "MustRunAs" || may["allowHostDirVolumePlugin"] != false {
		t.Errorf("OpenShift lets its account %v", may)
	}
}

// Each way to NVML sets its own fields, and no field of another way.
func TestWaysToNVML(t *testing.T) {
	t.Parallel()
	for driver, want := range map[string][4]any{ // RuntimeClass, NVIDIA_VISIBLE_DEVICES, annotation, mount
		`"runtimeClass"`:   {"nvidia", "all", nil, false},
		`"defaultRuntime"`: {nil, "all", nil, false},
		`"cdi"`:            {nil, "void", "management.nvidia.com/gpu=all", false},
		`"volumeMounts"`:   {nil, "/var/run/nvidia-container-devices", nil, true},
		`"host"`:           {nil, "void", nil, false},
		`"none"`:           {nil, "void", nil, false},
	} {
		pod := at(t, render(t, `gpu.driver=`+driver)["DaemonSet"], "spec", "template").(object)
		mounted := false
		for _, m := range at(t, pod, "spec", "containers", "volumeMounts").([]any) {
			mounted = mounted || m.(object)["mountPath"] == "/var/run/nvidia-container-devices/all"
		}
		got := [4]any{
			at(t, pod, "spec", "runtimeClassName"), at(t, pod, "spec", "containers", "env", "value"),
			at(t, pod, "metadata", "annotations", "nvidia.cdi.k8s.io/container.exporter"), mounted,
		}
		if got != want {
			t.Errorf("%s: %v, want %v", driver, got, want)
		}
	}
	if pod := at(t, render(t, `gpu.runtimeClassName=""`)["DaemonSet"], "spec", "template", "spec").(object); pod["runtimeClassName"] != nil {
		t.Errorf("the default runtime: %v", pod["runtimeClassName"])
	}
}

// The user's affinity replaces the affinity to nodes with GPUs, even if it is empty.
func TestAffinity(t *testing.T) {
	affinity := func(set ...string) any {
		return at(t, render(t, set...)["DaemonSet"], "spec", "template", "spec", "affinity")
	}
	if got := affinity(`affinity={}`); !reflect.DeepEqual(got, object{}) {
		t.Errorf("everywhere: %v", got)
	}
	if got := affinity(`affinity={"podAffinity":{}}`); !reflect.DeepEqual(got, object{"podAffinity": object{}}) {
		t.Errorf("mine: %v", got)
	}
	required := []string{"nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"}
	if terms := at(t, affinity(), required...).([]any); len(terms) != 3 {
		t.Errorf("default: %v", terms)
	}
}

// With probeEngines, the nodes' exporters probe engines, and the cluster's exporter never does.
func TestProbeEngines(t *testing.T) {
	for set, want := range map[string]bool{`probeEngines=false`: false, `probeEngines=true`: true} {
		objects := render(t, set, `cluster.enabled=true`)
		args := func(kind string) bool {
			pod := at(t, objects[kind], "spec", "template", "spec", "containers").([]any)[0]
			return slices.Contains(at(t, pod, "args").([]any), any("--probe.engines"))
		}
		if args("DaemonSet") != want || args("cluster Deployment") {
			t.Errorf("%s: %t on nodes, %t in the cluster's", set, args("DaemonSet"), args("cluster Deployment"))
		}
	}
}

func TestProbesAndFolders(t *testing.T) {
	container := func(set ...string) object {
		return at(t, render(t, set...)["DaemonSet"], "spec", "template", "spec", "containers").([]any)[0].(object)
	}
	if c := container(`probes="tcp"`, `readinessProbe={"periodSeconds":5}`); !reflect.DeepEqual(c["readinessProbe"],
		object{"tcpSocket": object{"port": "metrics"}, "periodSeconds": uint64(5)}) {
		t.Errorf("tcp: %v", c["readinessProbe"])
	}
	if c := container(`probes="none"`); c["livenessProbe"] != nil || c["readinessProbe"] != nil {
		t.Errorf("none: %v", c)
	}
	for _, v := range at(t, render(t, combinations["processes"]...)["DaemonSet"], "spec", "template", "spec", "volumes").([]any) {
		if h, ok := v.(object)["hostPath"].(object); ok && strings.HasSuffix(h["type"].(string), "OrCreate") {
			t.Errorf("%v", v)
		}
	}
}

// The test pod starts where the exporter does, with the secrets that its configuration names.
func TestTestPod(t *testing.T) {
	out, err := helm(t, "template", "gpu", chart, "-s", "templates/tests/config.yaml", "--set-json", `imagePullSecrets=[{"name":"pull"}]`,
		"--set-json", `global.imagePullSecrets=[{"name":"all"}]`, "--set-json", `secrets=["token"]`, "--set-json", `nodeSelector.pool="gpu"`)
	if err != nil {
		t.Fatal(out)
	}
	var pod object
	if err := yaml.Unmarshal([]byte(out), &pod); err != nil {
		t.Fatal(err)
	}
	spec := at(t, pod, "spec").(object)
	if !reflect.DeepEqual(spec["imagePullSecrets"], []any{object{"name": "pull"}, object{"name": "all"}}) ||
		at(t, spec, "tolerations", "operator") != "Exists" ||
		at(t, spec, "nodeSelector", "pool") != "gpu" || !strings.Contains(out, "mountPath: /etc/llm-node-exporter/secrets/token") ||
		!strings.Contains(out, "secretName: token") {
		t.Error(out)
	}
}

// Whichever object configures the scrape, its labels are those that rules and dashboards expect.
func TestScraping(t *testing.T) {
	labels := func(object any) string { return fmt.Sprint(at(t, object, "relabelings")) }
	pods := at(t, render(t)["PodMonitor"], "spec", "podMetricsEndpoints").([]any)[0]
	services := render(t, `podMonitor.kind="ServiceMonitor"`)
	if services["PodMonitor"] != nil || labels(at(t, services["ServiceMonitor"], "spec", "endpoints").([]any)[0]) != labels(pods) {
		t.Errorf("ServiceMonitor: %v", services["ServiceMonitor"])
	}
	selected := at(t, services["ServiceMonitor"], "spec", "selector", "matchLabels").(object)
	for name, value := range selected {
		if at(t, services["Service"], "metadata", "labels", name) != value {
			t.Errorf("the Service lacks %s=%s", name, value)
		}
	}
	config := at(t, render(t, `podMonitor.kind="ScrapeConfig"`)["ScrapeConfig"], "spec").(object)
	if !strings.HasSuffix(labels(config), strings.TrimPrefix(labels(pods), "[")) || config["honorLabels"] != true {
		t.Errorf("ScrapeConfig: %v", config)
	}
	if got := at(t, config, "kubernetesSDConfigs", "selectors",
		"label"); got != "app.kubernetes.io/name=llm-node-exporter,app.kubernetes.io/instance=gpu" {
		t.Errorf("pods of the ScrapeConfig: %v", got)
	}
}

// Discovery in some namespaces needs a Role in each, and no access to the pods of the cluster.
func TestNamespacedDiscovery(t *testing.T) {
	objects := render(t, `discovery.namespaces=["llm"]`)
	if at(t, objects["Role"], "metadata", "namespace") != "llm" || at(t, objects["RoleBinding"], "subjects", "namespace") != "monitoring" ||
		!reflect.DeepEqual(at(t, objects["ClusterRole"], "rules", "resources"), []any{"resourceslices"}) {
		t.Errorf("%v\n%v", objects["Role"], objects["ClusterRole"])
	}
	if args := fmt.Sprint(at(t, objects["DaemonSet"], "spec", "template", "spec", "containers", "args")); !strings.Contains(args,
		"--discovery.namespace=llm") {
		t.Error(args)
	}
	if objects := render(t, combinations["tenant"]...); objects["ClusterRole"] != nil || objects["ClusterRoleBinding"] != nil {
		t.Error("a role of the whole cluster for one tenant")
	}
}

// OpenShift grants the service account the rights that the features need, and no more.
func TestSecurityContextConstraints(t *testing.T) {
	least := render(t, `securityContextConstraints.create=true`, `ownership.podResources=false`)["SecurityContextConstraints"]
	if least["allowHostDirVolumePlugin"] != false || least["allowPrivilegedContainer"] != false || least["allowHostPID"] != false ||
		!reflect.DeepEqual(least["users"], []any{"system:serviceaccount:monitoring:gpu-llm-node-exporter"}) {
		t.Errorf("least: %v", least)
	}
	most := render(t, `securityContextConstraints.create=true`, `ownership.processes=true`, `gpu.kmsg=true`)["SecurityContextConstraints"]
	if most["allowHostDirVolumePlugin"] != true || most["allowPrivilegedContainer"] != true || most["allowHostPID"] != true ||
		!reflect.DeepEqual(most["allowedCapabilities"], []any{"SYS_PTRACE", "DAC_READ_SEARCH"}) {
		t.Errorf("most: %v", most)
	}
}

// Objects beside the exporter are rendered unchanged, and everything is in the namespace of the values.
func TestBesideIt(t *testing.T) {
	objects := render(t, append(combinations["beside it"], `namespaceOverride="gpu"`, `enabled=true`)...)
	pod := at(t, objects["DaemonSet"], "spec", "template", "spec").(object)
	if at(t, pod, "initContainers", "name") != "wait" || at(t, pod, "containers").([]any)[1].(object)["name"] != "proxy" {
		t.Errorf("%v", pod)
	}
	if objects["more"] == nil || objects["gpu-text"] == nil {
		t.Error("extraManifests are not there")
	}
	for kind, o := range objects {
		if where := at(t, o, "metadata").(object)["namespace"]; where == "monitoring" {
			t.Errorf("%s is in the namespace of the release", kind)
		}
	}
	dashboard := render(t, combinations["grafana-operator"]...)["GrafanaDashboard"]
	if at(t, dashboard, "spec", "instanceSelector", "matchLabels", "grafana") != "main" || at(t, dashboard, "spec", "configMapRef",
		"name") != at(t, dashboard, "metadata", "name") {
		t.Errorf("%v", dashboard)
	}
}

// notes returns the notes of an installation, rendered through extraManifests of a copy of the chart.
func notes(t *testing.T, set ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), chart)
	if err := os.CopyFS(dir, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "templates", "NOTES.txt"), filepath.Join(dir, "notes")); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"template", "gpu", dir, "--namespace", "monitoring", "-s", "templates/extra.yaml", "--set-json",
		`extraManifests=["notes: {{ tpl (.Files.Get \"notes\") . | toJson }}"]`,
	}
	for _, s := range set {
		args = append(args, "--set-json", s)
	}
	out, err := helm(t, args...)
	var o object
	if err == nil {
		err = yaml.Unmarshal([]byte(out), &o)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return o["notes"].(string)
}

// The notes explain how to check which pods are wanted, and which parts are missing for which features.
func TestNotes(t *testing.T) {
	for _, c := range [][2]string{
		{`port=9844`, "get ds gpu-llm-node-exporter\n"},
		{`port=9845`, "DESIRED"},
		{`port=9846`, "set prometheusRule.grafanaURL"},
		{`port=9847`, "set prometheusRule.runbookURL"},
		{`gpu.kmsg=false`, "gpu.kmsg=true (privileged)"},
		{`fullnameOverride="` + strings.Repeat("l", 60) + `"`, "-alertmanager -o go-template"},
		{`cluster.enabled=true`, "deploy/gpu-llm-node-exporter-cluster"},
		{`cluster={"enabled":true,"config":{}}`, "cluster.config has neither targets nor probes"},
		{`alertmanager.config={"enabled":true}`, "other than OnNamespace"},
		{`alertmanager.config={"enabled":true,"receivers":{"llm-warning":{"webhookConfigs":[]}}}`, "set alertmanager.config.receivers.llm-critical"},
	} {
		set, want := c[0], c[1]
		if got := notes(t, set); !strings.Contains(got, want) {
			t.Errorf("%s: the notes lack %q:\n%s", set, want, got)
		}
	}
	// The notes explain how a message ends: with a link that opens, or with the command that opens it.
	for set, want := range map[string]string{
		`port=9845`: "Runbook: kubectl -n monitoring port-forward svc/gpu-llm-node-exporter 9845, then " +
			"http://localhost:9845/runbooks/LLMModelDown?model_name=chat\n\nThese parts are not active",
		`webConfig.scheme="https"`: "then https://localhost:9844/runbooks/LLMModelDown?",
		`service.enabled=false`: "Runbook: kubectl -n monitoring port-forward ds/gpu-llm-node-exporter 9844, then " +
			"http://localhost:9844/runbooks/LLMModelDown?model_name=chat\n",
		`prometheusRule={"runbookURL":"https://wiki.example/{alert}","grafanaURL":"https://g.example"}`: "Runbook: https://wiki.example/LLMModelDown\n  Dashboard: https://g.example/d/llm-incident?",
		`config={"prometheus":{"url":"http://p:9090"}}`:                                                 "",
		`cluster={"enabled":true,"config":{"prometheus":{"url":"http://p:9090"}}}`:                      "",
	} {
		got := notes(t, set)
		if !strings.Contains(got, want) || strings.Contains(got, "Query results in the runbooks") != (want != "") {
			t.Errorf("%s: the notes lack %q, or say of answers what is not so:\n%s", set, want, got)
		}
	}
	if got := notes(t, combinations["ingress"]...); !strings.Contains(got,
		"Runbook: https://llm.example/runbooks/LLMModelDown?model_name=chat\n") || strings.Contains(got, "open on a phone") {
		t.Errorf("the notes do not know the name that people reach:\n%s", got)
	}
	if got := notes(t, `prometheusRule.enabled=false`); strings.Contains(got, "Runbook: ") {
		t.Errorf("without alerts the notes have a message:\n%s", got)
	}
	// The notes ask for no manual step that the operator's object already covers, and name the configured receivers.
	for _, done := range []string{"to merge into", "set alertmanager.config.receivers", "neither targets nor probes"} {
		if got := notes(t, combinations["cluster"][0], combinations["receivers"][0],
			`alertmanager.config.receivers.llm-warning={"webhookConfigs":[{"url":"https://tickets.example"}]}`); strings.Contains(got, done) {
			t.Errorf("the notes have %q:\n%s", done, got)
		}
	}
}

// The container's limit is above the exporter's own limits, and Go reaches its limit before the kernel's.
func TestMemory(t *testing.T) {
	t.Parallel()
	soft := func(workload string, set ...string) any {
		for _, e := range at(t, render(t, set...)[workload], "spec", "template", "spec", "containers", "env").([]any) {
			if e.(object)["name"] == "GOMEMLIMIT" {
				return e.(object)["value"]
			}
		}
		return nil
	}
	for limit, want := range map[string]any{
		`"1Gi"`: "966367641", `"0.5Gi"`: "483183820", `"400M"`: "360000000", `500000000`: "450000000",
		`null`: nil,
	} {
		if got := soft("DaemonSet", `resources.limits.memory=`+limit); got != want {
			t.Errorf("%s: GOMEMLIMIT is %v, want %v", limit, got, want)
		}
	}
	const process = 50 << 20 // measured: docs/scale.md
	for _, workload := range []string{"DaemonSet", "cluster Deployment"} {
		bytes, err := strconv.ParseInt(fmt.Sprint(soft(workload, `cluster.enabled=true`)), 10, 64)
		if may := process + scrape.DefaultLimits.Memory + 8*scrape.DefaultLimits.BodyBytes; err != nil || bytes < may*9/10 {
			t.Errorf("%s: GOMEMLIMIT is %d, %v; the exporter may take %d", workload, bytes, err, may)
		}
	}
}

// Two releases share no name, either in one namespace or across the cluster.
func TestTwoReleases(t *testing.T) {
	t.Parallel()
	names := func(release, namespace string) map[string]bool {
		out, err := helm(t, "template", release, chart, "--namespace", namespace, "--set", "cluster.enabled=true")
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
				if name := at(t, o, "metadata", "name").(string); len(name) > 63 && o["kind"] != "ClusterRole" && o["kind"] != "ClusterRoleBinding" {
					t.Errorf("%s %s has %d characters", o["kind"], name, len(name))
				}
				where, _ := at(t, o, "metadata", "namespace").(string)
				all[o["kind"].(string)+" "+where+"/"+at(t, o, "metadata", "name").(string)] = true
			}
		}
	}
	long := strings.Repeat("l", 52)
	first := names("a", "monitoring")
	for _, pair := range [][2]map[string]bool{
		{first, names("b", "monitoring")},
		{first, names("a", "elsewhere")},
		{names("c", "a-b"), names("b-c", "a")},
		{names(long+"a", "monitoring"), names(long+"b", "monitoring")},
		{names(long+"a", "monitoring"), names(long+"a", "elsewhere")},
	} {
		if len(pair[0]) != len(first) || len(pair[1]) != len(first) {
			t.Errorf("%d and %d objects, want %d", len(pair[0]), len(pair[1]), len(first))
		}
		for name := range pair[1] {
			if pair[0][name] {
				t.Errorf("both releases have %s", name)
			}
		}
	}
}
