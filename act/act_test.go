package act

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/health"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

var errGone = errors.New("connection refused")

// stage is an API server with a node whose GPU is a device, and the node's exporter.
type stage struct {
	*Actor
	*fake.FakeDynamicClient
	t    *testing.T
	says health.Node
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t}
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(s.says) }))
	t.Cleanup(exporter.Close)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(exporter.URL, "http://"))
	kinds := map[schema.GroupVersionResource]string{
		core("pods"): "PodList", core("nodes"): "NodeList",
		{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"}:   "ResourceSliceList",
		{Group: "resource.k8s.io", Version: "v1", Resource: "devicetaintrules"}: "DeviceTaintRuleList",
		{Group: "events.k8s.io", Version: "v1", Resource: "events"}:             "EventList",
	}
	object := func(version, kind, name, namespace string, more map[string]any) runtime.Object {
		o := map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{
			"name": name, "namespace": namespace,
			"labels": map[string]any{"app": "exporter"},
		}}
		maps.Copy(o, more)
		return &unstructured.Unstructured{Object: o}
	}
	s.FakeDynamicClient = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds,
		object("v1", "Node", "n", "", nil),
		object("v1", "Pod", "e", "here", map[string]any{"spec": map[string]any{"nodeName": "n"}, "status": map[string]any{"podIP": "127.0.0.1"}}),
		object("resource.k8s.io/v1", "ResourceSlice", "s", "", map[string]any{"spec": map[string]any{
			"driver": "d", "nodeName": "n",
			"pool":    map[string]any{"name": "n"},
			"devices": []any{map[string]any{"name": "gpu-0", "attributes": map[string]any{"uuid": map[string]any{"string": "GPU-a"}}}},
		}}))
	s.Actor = &Actor{
		Options: Options{
			Log: slog.New(slog.DiscardHandler), Namespace: "here", Selector: "app=exporter", Identity: "me",
			Scheme: "http", Port: port, Client: http.DefaultClient, Most: NoExecute, Ceiling: free,
		},
		cluster: &cluster{Interface: s}, said: map[string]string{}, untold: map[string]untold{}, unseen: map[string]time.Time{},
	}
	return s
}

// fails makes this many writes of a kind fail. done sets whether the API server carries out the failed writes
// nevertheless.
func (s *stage) fails(verb, resource string, times int, done bool) {
	s.PrependReactor(verb, resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		if times--; times < 0 {
			return false, nil, nil
		}
		if create, ok := a.(clienttesting.CreateAction); ok && done {
			_ = s.Tracker().Create(a.GetResource(), create.GetObject(), a.GetNamespace())
		}
		return true, nil, errGone
	})
}

// told runs this many rounds with a verdict on the GPU, and returns the reasons of all events.
func (s *stage) told(v metrics.Verdict, rounds int) string {
	s.t.Helper()
	s.says = health.Node{Verdict: v, At: time.Now(), GPUs: []health.GPU{{UUID: "GPU-a", Index: "0", Verdict: v, Findings: []health.Finding{}}}}
	for range rounds {
		_ = s.round(s.t.Context())
	}
	list, err := s.Resource(schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}).Namespace("here").
		List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var reasons []string
	for _, e := range list.Items {
		reason, _, _ := unstructured.NestedString(e.Object, "reason")
		reasons = append(reasons, reason)
	}
	return strings.Join(reasons, " ")
}

// If the API server goes away between the two writes, or before its answer arrives, no event is lost or repeated.
func TestEventsOutliveTheAPIServer(t *testing.T) {
	for name, fail := range map[string]func(*stage){
		"nothing fails":             func(*stage) {},
		"events fail twice":         func(s *stage) { s.fails("create", "events", 2, false) },
		"an event's answer is lost": func(s *stage) { s.fails("create", "events", 1, true) },
		"a rule fails":              func(s *stage) { s.fails("create", "devicetaintrules", 1, false) },
		"a rule's answer is lost":   func(s *stage) { s.fails("create", "devicetaintrules", 1, true) },
	} {
		s := newStage(t)
		fail(s)
		if got := s.told(metrics.Reset, 5); got != "GPUTainted" {
			t.Errorf("%s: %q", name, got)
		}
		if got := s.told(metrics.Healthy, 3); got != "GPUTainted GPULifted" && got != "GPULifted GPUTainted" {
			t.Errorf("%s, and healthy: %q", name, got)
		}
	}
}

// Events that are permanently refused do not keep a taint from being lifted.
func TestRefusedEventsHoldUpNothing(t *testing.T) {
	s := newStage(t)
	s.fails("create", "events", 1000, false)
	s.told(metrics.Reset, 2)
	s.told(metrics.Healthy, 2)
	if rules, err := s.cluster.rules(t.Context()); err != nil || len(rules) > 0 {
		t.Errorf("%d rules are left, %v", len(rules), err)
	}
}
