package helm

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e/kube"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// TestOperator goes the whole way, from helm install to a page and its runbook. API server, operator, Prometheus,
// Alertmanager and exporter are real. Nothing runs pods: the test starts their programs, with the files that the
// operator and the chart have made for them.
func TestOperator(t *testing.T) {
	program, prometheus := os.Getenv("PROMETHEUS_OPERATOR"), os.Getenv("PROMETHEUS") // Debian's lacks Kubernetes' discovery
	if program == "" || prometheus == "" {
		t.Skip("PROMETHEUS_OPERATOR and PROMETHEUS do not name programs")
	}
	alertmanager := e2e.Program(t, "prometheus-alertmanager", "prometheus-alertmanager")
	library, err := fakenvml.Build(t.TempDir())
	if errors.Is(err, fakenvml.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := fakenvml.NewState(library, 1, fakenvml.H100)
	if err != nil {
		t.Fatal(err)
	}
	const group, node, exporterIP, engineIP = "monitoring.coreos.com", "node-7", "127.0.0.9", "127.0.0.10"
	c := installation{kube.Start(t, "monitoring:gpu-llm-node-exporter")}
	pager := &pager{}
	webhook := httptest.NewServer(pager)
	t.Cleanup(webhook.Close)

	for _, kind := range []string{
		"alertmanagerconfigs", "alertmanagers", "podmonitors", "probes", "prometheusagents", "prometheuses",
		"prometheusrules", "scrapeconfigs", "servicemonitors", "thanosrulers",
	} {
		c.create(t, "apiextensions.k8s.io", "customresourcedefinitions",
			string(moduleFile(t, operator, "example/prometheus-operator-crd/"+group+"_"+kind+".yaml")))
	}
	for _, name := range []string{"monitoring", "llm"} {
		c.create(t, "", "namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}")
	}
	t.Setenv("KUBECONFIG", c.kubeconfig(t))
	_, port, _ := net.SplitHostPort(e2e.Address(t))
	values := writeFiles(t, map[string]string{"values.yaml": fmt.Sprintf(`
port: %s
podMonitor: {interval: 1s, scrapeTimeout: 1s}
gpu: {driver: host, host: {path: '%s', library: '%s'}}
ownership: {podResources: false}
alertmanager: {config: {enabled: true, labels: {alertmanager: main}, receivers: {llm-critical: {webhookConfigs: [{url: '%s'}]}}}}
`, port, filepath.Dir(library), filepath.Base(library), webhook.URL)}) + "/values.yaml"
	var out []byte
	for range 20 { // definitions are served some time after they are created
		if out, err = exec.Command("helm", "upgrade", "--install", "gpu", chart, "--namespace", "monitoring", "--values", values).
			CombinedOutput(); err == nil {
			break
		}
		time.Sleep(time.Second)
	}
	if err != nil {
		t.Fatalf("helm: %v\n%s", err, out)
	}

	prometheusAt, alertmanagerAt := e2e.Address(t), e2e.Address(t)
	c.create(t, "", "secrets",
		`{apiVersion: v1, kind: Secret, metadata: {name: alertmanagers, namespace: monitoring}, stringData: {list: "[{static_configs: [{targets: ['`+alertmanagerAt+`']}]}]"}}`)
	c.create(t, group, "prometheuses",
		fmt.Sprintf(`{apiVersion: monitoring.coreos.com/v1, kind: Prometheus, metadata: {name: main, namespace: monitoring},
spec: {version: %s, podMonitorSelector: {}, ruleSelector: {}, additionalAlertManagerConfigs: {name: alertmanagers, key: list},
  apiserverConfig: {host: '%s', bearerToken: %s, tlsConfig: {caFile: '%s'}}}}`, version(t, prometheus), c.URL, kube.Admin, c.CA))
	c.create(t, group, "alertmanagers",
		fmt.Sprintf(`{apiVersion: monitoring.coreos.com/v1, kind: Alertmanager, metadata: {name: main, namespace: monitoring},
spec: {version: %s, alertmanagerConfigSelector: {matchLabels: {alertmanager: main}}, alertmanagerConfigMatcherStrategy: {type: None}}}`, version(t, alertmanager)))
	e2e.Start(t, program, "--web.listen-address="+e2e.Address(t))

	engine, enginePort := serveEngine(t, engineIP)
	c.create(t, "", "pods", fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: vllm-0, namespace: llm}, status: {phase: Running, podIP: %s},
spec: {nodeName: %s, containers: [{name: vllm, image: vllm, ports: [{containerPort: %s}], resources: {limits: {nvidia.com/gpu: '1'}}}]}}`, engineIP, node, enginePort))
	c.runDaemon(t, node, exporterIP)

	routes := writeFiles(t, c.files(t, "secrets", "alertmanager-main-generated", webhook.URL))
	e2e.Start(t, alertmanager, "--config.file="+routes+"/alertmanager.yaml", "--storage.path="+t.TempDir(), "--web.listen-address="+
		alertmanagerAt, "--cluster.listen-address=")
	const rulesAt = "prometheus-main-rulefiles-0"
	config := c.files(t, "secrets", "prometheus-main", "podMonitor/monitoring/gpu-llm-node-exporter")
	config["prometheus.yaml"] = strings.NewReplacer("/etc/prometheus/rules/"+rulesAt,
		writeFiles(t, c.files(t, "configmaps", rulesAt, "LLMErrorBudgetFastBurn", "LLMModelDown", "LLMGPUFailed", "llm-model")), "$(SHARD)",
		"0", "$(POD_NAME)", "prometheus-main-0").Replace(config["prometheus.yaml"])
	e2e.Start(t, prometheus, "--config.file="+writeFiles(t, config)+"/prometheus.yaml", "--storage.tsdb.path="+t.TempDir(),
		"--web.listen-address="+prometheusAt)

	for _, series := range []string{
		`up{job="llm-node-exporter",instance="node-7",node="node-7"} == 1`,
		`llm_gpu_up{instance="node-7"} == 1`, `replica:llm_engine_info:last{instance="node-7",namespace="llm",pod="vllm-0"}`,
	} {
		e2e.Until(t, "Prometheus has "+series, func() bool {
			var answer struct{ Result []any }
			return ask(t, prometheusAt, "query?query="+url.QueryEscape(series), &answer) && len(answer.Result) == 1
		})
	}
	if err := gpus.XID(0, 79); err != nil {
		t.Fatal(err)
	}
	engine.Close()
	since := time.Now()
	for name, labels := range map[string]map[string]string{
		"LLMGPUFailed": {"instance": node, "reason": "xid_79"}, // without a namespace
		"LLMModelDown": {"namespace": "llm"},
	} {
		var sent alert
		e2e.Until(t, name+" pages", func() (ok bool) { sent, ok = pager.sent(name); return ok })
		t.Logf("%s after %s: %v", name, time.Since(since).Round(time.Second), sent.Labels)
		for label, want := range labels {
			if sent.Labels[label] != want {
				t.Errorf("%s: %v, want %s of %s", name, sent.Labels, label, want)
			}
		}
		// The Service's name resolves to the exporter, as in the cluster.
		service := "http://gpu-llm-node-exporter.monitoring.svc:" + port
		link, ok := strings.CutPrefix(sent.Annotations["runbook_url"], service)
		if !ok {
			t.Errorf("%s: the runbook is at %s, want it at %s", name, sent.Annotations["runbook_url"], service)
			continue
		}
		resp, err := http.Get("http://" + net.JoinHostPort(exporterIP, port) + link)
		if err != nil {
			t.Fatal(err)
		}
		page, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !bytes.Contains(page, []byte(name)) {
			t.Errorf("%s: %s: %s", name, link, resp.Status)
		}
	}
	var loaded struct {
		Groups []struct {
			Name  string
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if !ask(t, prometheusAt, "rules", &loaded) || len(loaded.Groups) != len(generated(t, "rules.yaml")["groups"].([]any)) {
		t.Errorf("%d groups are loaded", len(loaded.Groups))
	}
	for _, g := range loaded.Groups {
		for _, r := range g.Rules {
			if r.Health == "err" {
				t.Errorf("%s, %s: %s", g.Name, r.Name, r.LastError)
			}
		}
	}
}

// installation is a cluster into which the chart is installed.
type installation struct{ *kube.Cluster }

func (c installation) create(t *testing.T, group, resource, text string) {
	t.Helper()
	var o object
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	c.Create(t, group, resource, o)
}

// files waits until a Secret or ConfigMap has a text, and returns its files, unpacked.
func (c installation) files(t *testing.T, resource, name string, texts ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	e2e.Until(t, fmt.Sprintf("%s %s has %q", resource, name, texts), func() bool {
		o, err := c.Objects("", resource, "monitoring").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		for file, content := range o.Object["data"].(object) {
			content := []byte(content.(string))
			if resource == "secrets" {
				content, err = base64.StdEncoding.DecodeString(string(content))
			}
			name, packed := strings.CutSuffix(file, ".gz")
			if packed {
				var r io.Reader
				if r, err = gzip.NewReader(bytes.NewReader(content)); err == nil {
					content, err = io.ReadAll(r)
				}
			}
			if err != nil {
				t.Fatalf("%s: %s: %v", o.GetName(), file, err)
			}
			files[name] = string(content)
		}
		all := fmt.Sprint(files)
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(all, text) })
	})
	return files
}

// runDaemon does the work of the DaemonSet's controller and of a node's kubelet: it makes the pod, and runs the
// exporter with the pod's arguments, environment, volumes and service account.
func (c installation) runDaemon(t *testing.T, node, ip string) {
	t.Helper()
	daemonSet, err := c.Objects("apps", "daemonsets", "monitoring").Get(t.Context(), "gpu-llm-node-exporter", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := at(t, daemonSet.Object, "spec", "template").(object)
	pod["apiVersion"], pod["kind"], pod["status"] = "v1", "Pod", object{"phase": "Running", "podIP": ip}
	meta, spec := pod["metadata"].(object), pod["spec"].(object)
	meta["name"], meta["namespace"], spec["nodeName"] = "gpu-llm-node-exporter-x7k2p", "monitoring", node
	c.Create(t, "", "pods", pod)

	folders := map[any]string{}
	for _, v := range spec["volumes"].([]any) {
		switch v := v.(object); {
		case v["hostPath"] != nil:
			folders[v["name"]] = at(t, v, "hostPath", "path").(string)
		case v["configMap"] != nil:
			folders[v["name"]] = writeFiles(t, c.files(t, "configmaps", at(t, v, "configMap", "name").(string), ""))
		}
	}
	container := spec["containers"].([]any)[0].(object)
	here := []string{"--web.listen-address=:", "--web.listen-address=" + ip + ":"} // one machine has all addresses
	for _, m := range container["volumeMounts"].([]any) {
		m := m.(object)
		here = append(here, m["mountPath"].(string), folders[m["name"]])
	}
	// A mount namespace of its own has the service account's files where a client of the cluster looks for them.
	u, _ := url.Parse(c.URL)
	command := []string{
		"--map-root-user", "--mount", "sh", "-ec", `d=/var/run/secrets/kubernetes.io/serviceaccount
mount -t tmpfs none /run; mkdir -p $d; cp "$1" $d/ca.crt; echo "$2" >$d/token; shift 2; exec env "$@"`, "sh", c.CA, kube.ServiceAccount,
		"KUBERNETES_SERVICE_HOST=" + u.Hostname(), "KUBERNETES_SERVICE_PORT=" + u.Port(),
	}
	for _, e := range container["env"].([]any) {
		e := e.(object)
		value, ok := e["value"].(string)
		if !ok && at(t, e, "valueFrom", "fieldRef", "fieldPath") == "spec.nodeName" {
			value = node
		}
		command = append(command, e["name"].(string)+"="+value)
	}
	t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -ldflags=-extldflags=-Wl,-z,lazy") // NVML's symbols come with the library
	command = append(command, e2e.Build(t, "../cmd/exporter"))
	for _, a := range container["args"].([]any) {
		command = append(command, strings.NewReplacer(here...).Replace(a.(string)))
	}
	e2e.Start(t, "unshare", command...)
}

// writeFiles writes files into a folder of their own and returns it.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// version returns the version for which the operator writes configurations.
func version(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.Command(program, "--version").CombinedOutput()
	v := regexp.MustCompile(`version (\d+\.\d+\.\d+)`).FindSubmatch(out)
	if err != nil || v == nil {
		t.Fatalf("%s --version: %v\n%s", program, err, out)
	}
	return string(v[1])
}

// serveEngine serves the metrics page of a vLLM on an address until it is closed, and returns its port.
func serveEngine(t *testing.T, ip string) (*http.Server, string) {
	t.Helper()
	page, err := os.ReadFile("../collectors/engine/testdata/pages/vllm/v0.11.2.prom")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		w.Write(page)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return server, port
}

// ask reads the data of an answer of Prometheus' API.
func ask(t *testing.T, address, path string, data any) bool {
	t.Helper()
	resp, err := http.Get("http://" + address + "/api/v1/" + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	answer := struct{ Data any }{data}
	return json.NewDecoder(resp.Body).Decode(&answer) == nil && resp.StatusCode == http.StatusOK
}

// pager keeps the messages of Alertmanager to a webhook.
type pager struct {
	mu     sync.Mutex
	alerts []alert
}

type alert struct{ Labels, Annotations map[string]string }

func (p *pager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var message struct{ Alerts []alert }
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alerts = append(p.alerts, message.Alerts...)
}

// sent returns the first alert of a name.
func (p *pager) sent(name string) (alert, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.alerts {
		if a.Labels["alertname"] == name {
			return a, true
		}
	}
	return alert{}, false
}
