package helm

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e/kube"
)

var (
	autoscalers   = schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	scaledObjects = schema.GroupVersionResource{Group: "keda.sh", Version: "v1alpha1", Resource: "scaledobjects"}
)

// adapter answers like prometheus-adapter. A metric without a value has no items.
type adapter struct {
	sync.Mutex
	values map[string]string
}

func (a *adapter) set(name, value string) {
	a.Lock()
	defer a.Unlock()
	a.values[name] = value
}

func (a *adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const version = "external.metrics.k8s.io/v1beta1"
	w.Header().Set("Content-Type", "application/json")
	if !strings.Contains(r.URL.Path, "/namespaces/llm/") {
		_ = json.NewEncoder(w).Encode(object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": []object{
			{"name": "externalmetrics", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": []string{"get"}},
		}})
		return
	}
	a.Lock()
	defer a.Unlock()
	items, name := []object{}, path.Base(r.URL.Path)
	if v := a.values[name]; v != "" && r.FormValue("labelSelector") == "model_name=llama-3.1-8b-chat" {
		items = append(items, object{
			"metricName": name, "metricLabels": object{}, "timestamp": time.Now().UTC().Format(time.RFC3339), "value": v,
		})
	}
	_ = json.NewEncoder(w).Encode(object{"kind": "ExternalMetricValueList", "apiVersion": version, "metadata": object{}, "items": items})
}

// TestAutoscalingExamples gives the examples to a real API server, which refuses unknown fields, and lets
// Kubernetes' controllers scale a Deployment by hpa.yaml: up when the capacity requires it, not down while the
// capacity is unknown, and down when it is known again. It skips unless KUBE_CONTROLLER_MANAGER names the program.
func TestAutoscalingExamples(t *testing.T) {
	manager := os.Getenv("KUBE_CONTROLLER_MANAGER")
	if manager == "" {
		t.Skip("KUBE_CONTROLLER_MANAGER does not name a program")
	}
	c := installation{kube.Start(t, "llm:none")}
	c.create(t, "", "namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: llm}}")
	a := &adapter{values: map[string]string{"llm-capacity": "4", "llm-waiting": "0", "llm-kv-usage": "500m", "llm-burn": "1"}}
	c.serveMetrics(t, a)
	c.create(t, "apps", "deployments", `{apiVersion: apps/v1, kind: Deployment, metadata: {name: chat, namespace: llm}, spec: {replicas: 2,
selector: {matchLabels: {app: chat}}, template: {metadata: {labels: {app: chat}}, spec: {containers: [{name: a, image: a}]}}}}`)
	c.create(t, "apiextensions.k8s.io", "customresourcedefinitions",
		string(moduleFile(t, keda, "config/crd/bases/keda.sh_scaledobjects.yaml")))
	c.apply(t, scaledObjects, "keda.yaml")
	c.apply(t, autoscalers, "hpa.yaml")
	_, port, _ := net.SplitHostPort(e2e.Address(t))
	e2e.Start(t, manager, "--kubeconfig="+c.kubeconfig(t), "--leader-elect=false", "--secure-port="+port, "--cert-dir="+t.TempDir(),
		"--controllers=deployment-controller,replicaset-controller,horizontal-pod-autoscaler-controller",
		"--horizontal-pod-autoscaler-sync-period=1s")

	begun := time.Now()
	e2e.Until(t, "the Deployment has four replicas", func() bool { return c.replicas(t) == 4 })
	t.Logf("four replicas after %s", time.Since(begun).Round(time.Second))
	c.change(t, `{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}`)
	a.set("llm-capacity", "")
	time.Sleep(20 * time.Second)
	if n := c.replicas(t); n != 4 {
		t.Errorf("%d replicas while no capacity is known", n)
	}
	a.set("llm-capacity", "3")
	e2e.Until(t, "the Deployment has three replicas", func() bool { return c.replicas(t) == 3 })
}

// serveMetrics registers an API of external metrics.
func (c installation) serveMetrics(t *testing.T, of http.Handler) {
	t.Helper()
	s := httptest.NewTLSServer(of)
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	c.create(t, "", "services", `{apiVersion: v1, kind: Service, metadata: {name: adapter, namespace: llm}, spec: {type: ExternalName,
externalName: localhost}}`)
	c.create(t, "apiregistration.k8s.io", "apiservices", fmt.Sprintf(`{apiVersion: apiregistration.k8s.io/v1, kind: APIService,
metadata: {name: v1beta1.external.metrics.k8s.io}, spec: {group: external.metrics.k8s.io, version: v1beta1, groupPriorityMinimum: 100,
versionPriority: 100, insecureSkipTLSVerify: true, service: {name: adapter, namespace: llm, port: %s}}}`, port))
}

// apply creates the object of an example, after the API server has refused it with a misspelt field.
func (c installation) apply(t *testing.T, of schema.GroupVersionResource, file string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "examples", "autoscaling", file))
	if err != nil {
		t.Fatal(err)
	}
	create := func(text string) error {
		var o object
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		content, err := json.Marshal(o) // integers as the client wants them
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(content); err != nil {
			t.Fatal(err)
		}
		_, err = c.Resource(of).Namespace("llm").Create(t.Context(), u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		return err
	}
	misspelt := strings.Replace(string(content), "stabilizationWindowSeconds:", "stabilisationWindowSeconds:", 1)
	e2e.Until(t, file+" is refused with an unknown field", func() bool {
		err := create(misspelt)
		return err != nil && strings.Contains(err.Error(), `unknown field "spec.`)
	})
	if err := create(string(content)); err != nil {
		t.Fatal(err)
	}
}

func (c installation) change(t *testing.T, patch string) {
	t.Helper()
	if _, err := c.Resource(autoscalers).Namespace("llm").Patch(t.Context(), "chat", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// replicas returns the replicas that the Deployment has.
func (c installation) replicas(t *testing.T) int64 {
	t.Helper()
	d, err := c.Objects("apps", "deployments", "llm").Get(t.Context(), "chat", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n, _, _ := unstructured.NestedInt64(d.Object, "status", "replicas")
	return n
}

// kubeconfig writes a configuration for the administrator.
func (c installation) kubeconfig(t *testing.T) string {
	t.Helper()
	return writeFiles(t, map[string]string{"config": fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: test, contexts: [{name: test, context: {cluster: test, user: test}}],
clusters: [{name: test, cluster: {server: '%s', certificate-authority: '%s'}}], users: [{name: test, user: {token: %s}}]}`, c.URL, c.CA, kube.Admin)}) + "/config"
}
