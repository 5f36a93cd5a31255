package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/llm-node-exporter/llm-node-exporter/act"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/health"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e/kube"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// stage is a real API server with two nodes. One node has eight GPUs that are devices, read by a real exporter
// through the fake library. The other node has two GPUs that are not devices, and a test imitates its exporter.
type stage struct {
	*kube.Cluster
	*gpuNode
	t     *testing.T
	other atomic.Pointer[health.Node]
	since time.Time
	asked atomic.Int64 // requests of the actors to the API server
}

// asking counts requests.
type asking struct {
	http.RoundTripper
	n *atomic.Int64
}

func (a asking) RoundTrip(r *http.Request) (*http.Response, error) {
	a.n.Add(1)
	return a.RoundTripper.RoundTrip(r)
}

var taintRules = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1beta2", Resource: "devicetaintrules"}

func newStage(t *testing.T) *stage {
	c := kube.Start(t, "monitoring:gpu-llm-node-exporter-cluster", "--feature-gates=DRADeviceTaintRules=true",
		"--runtime-config=resource.k8s.io/v1beta2=true")
	s := &stage{Cluster: c, t: t}
	s.gpuNode = startOnGPUs(t, 8, nil)
	role, err := exec.Command("helm", "template", "gpu", "../../helm/llm-node-exporter", "--namespace", "monitoring", "--kube-version",
		"1.36.0", "-s", "templates/acting.yaml",
		"--set", "cluster.enabled=true", "--set-string", "cluster.act.gpus=on").Output()
	if err != nil {
		t.Fatal(err)
	}
	s.create("", "namespaces", "apiVersion: v1\nkind: Namespace\nmetadata: {name: monitoring}\n")
	documents := strings.Split(string(role), "\n---\n")
	for i, kind := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		s.create("rbac.authorization.k8s.io", kind, documents[i])
	}
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	l, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Fatal(err)
	}
	imitation := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).
			Encode(s.other.Load())
	}), ReadHeaderTimeout: time.Second}
	go func() { _ = imitation.Serve(l) }()
	t.Cleanup(func() { _ = imitation.Close() })
	s.imitate(metrics.Healthy)
	for i, node := range []string{"dra", "plain"} {
		s.create("", "nodes", fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %[1]s, labels: {node.kubernetes.io/instance-type: "+
			"%[1]s}}\nspec: {taints: [{key: mine, value: a, effect: NoSchedule}]}\n"+
			"status: {addresses: [{type: InternalIP, address: 127.0.0.%[2]d}]}\n", node, i+1))
		s.create("", "pods", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: exporter-%[1]s, namespace: monitoring, labels: {app: "+
			"exporter}}\nspec: {nodeName: %[1]s, hostNetwork: true, containers: [{name: a, image: a}]}\n"+
			"status: {podIP: 127.0.0.%[2]d, podIPs: [{ip: 127.0.0.%[2]d}]}\n", node, i+1))
	}
	devices := ""
	for i := range 8 {
		devices += fmt.Sprintf("  - {name: gpu-%d, attributes: {uuid: {string: GPU-00000000-0000-4000-8000-00000000000%d}}}\n", i, i)
	}
	s.create("resource.k8s.io", "resourceslices",
		"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: dra-gpu}\nspec:\n  driver: gpu.nvidia.com\n  nodeName: dra\n"+
			"  pool: {name: dra, generation: 1, resourceSliceCount: 1}\n  devices:\n"+devices)
	s.live()
	return s
}

// live gives the nodes and pods simulated kubelets, if KWOK is the command of kwok with its stages. Without it,
// only the actors write to a node's status.
func (s *stage) live() {
	kwok := strings.Fields(os.Getenv("KWOK"))
	if len(kwok) == 0 {
		return
	}
	file := filepath.Join(s.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q, certificate-authority: %q}}]\nusers: "+
		"[{name: a, user: {token: %s}}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n", s.URL, s.CA, kube.Admin)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	e2e.Start(s.t, kwok[0], append(kwok[1:], "--kubeconfig="+file, "--manage-all-nodes=true")...)
	e2e.Until(s.t, "kwok runs both nodes and both pods", func() bool { return s.ready("dra") && s.ready("plain") })
}

// ready reports whether a node is ready and the exporter's pod runs there.
func (s *stage) ready(node string) bool {
	pod, err := s.Objects("", "pods", "monitoring").Get(s.t.Context(), "exporter-"+node, metav1.GetOptions{})
	if err != nil {
		return false
	}
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	_, condition := s.condition(node, "Ready")
	return phase == "Running" && strings.HasPrefix(condition, "True ")
}

// imitate makes the exporter of the plain node report this verdict on its first GPU.
func (s *stage) imitate(v metrics.Verdict) {
	n := &health.Node{
		Verdict: v, At: time.Now(), Watching: s.begin(), Boot: "boot",
		GPUs: []health.GPU{{UUID: "GPU-x", Index: "0", Verdict: v, Findings: []health.Finding{}}, {UUID: "GPU-y", Index: "1"}},
	}
	if v != metrics.Healthy {
		n.GPUs[0].Findings = []health.Finding{{Condition: "xid_79", Verdict: v, Meaning: "fell off the bus"}}
	}
	s.other.Store(n)
}

func (s *stage) begin() time.Time {
	if s.since.IsZero() {
		s.since = time.Now().Add(-time.Minute)
	}
	return s.since
}

func (s *stage) create(group, resource, text string) {
	s.t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		s.t.Fatal(err)
	}
	b, _ := json.Marshal(o)
	o = nil
	_ = json.Unmarshal(b, &o)
	s.Create(s.t, group, resource, o)
}

// actor starts a replica of the cluster's exporter that acts with the service account's token.
func (s *stage) actor(set func(*actOptions)) (stop func()) {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	n, _ := strconv.ParseUint(port, 10, 16)
	o := actOptions{
		gpus: actOn, pods: "app=exporter", namespace: "monitoring", scheme: "http", port: uint16(n), most: "NoExecute",
		ceiling: act.Ceiling{Cluster: 0.3, Pool: 0.5, Model: 1}, pools: []string{"node.kubernetes.io/instance-type"},
	}
	set(&o)
	config := s.Config(kube.ServiceAccount)
	config.Wrap(func(to http.RoundTripper) http.RoundTripper { return asking{to, &s.asked} })
	a, err := o.actor(config, promslog.New(&promslog.Config{Writer: s.gpuNode.log}))
	if err != nil {
		s.t.Fatal(err)
	}
	a.Identity += fmt.Sprint(time.Now().UnixNano())
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() { a.Run(ctx); close(done) }()
	return func() { cancel(); <-done }
}

// tainted lists the devices that have our taint, such as "gpu-1 NoExecute".
func (s *stage) tainted() (all []string) {
	list, err := s.Resource(taintRules).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	for _, r := range list.Items {
		device, _, _ := unstructured.NestedString(r.Object, "spec", "deviceSelector", "device")
		effect, _, _ := unstructured.NestedString(r.Object, "spec", "taint", "effect")
		all = append(all, device+" "+effect)
	}
	slices.Sort(all)
	return all
}

// node returns the taints of a node, and the status of our condition.
func (s *stage) node(name string) (taints []string, condition string) {
	return s.condition(name, act.ConditionType)
}

// condition returns the taints of a node, and the status of a condition.
func (s *stage) condition(name, kind string) (taints []string, condition string) {
	n, err := s.Objects("", "nodes", "").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return []string{err.Error()}, ""
	}
	all, _, _ := unstructured.NestedSlice(n.Object, "spec", "taints")
	for _, one := range all {
		fields := one.(map[string]any)
		taints = append(taints, fmt.Sprint(fields["key"], " ", fields["effect"]))
	}
	conditions, _, _ := unstructured.NestedSlice(n.Object, "status", "conditions")
	for _, one := range conditions {
		if fields := one.(map[string]any); fields["type"] == kind {
			condition = fmt.Sprint(fields["status"], " ", fields["reason"])
		}
	}
	slices.Sort(taints)
	return taints, condition
}

// within waits until a condition holds, and logs how long it took, for docs/acting.md.
func (s *stage) within(limit time.Duration, what string, holds func() bool) {
	s.t.Helper()
	start := time.Now()
	e2e.Until(s.t, what+fmt.Sprint(s.tainted()), holds)
	s.t.Logf("| %s | %s | %.0f s |", what, limit, time.Since(start).Seconds())
}

func (s *stage) recovery(gpu, action int) {
	s.t.Helper()
	if err := s.Set(strconv.Itoa(gpu), "field.230", fmt.Sprint("u32 ", action)); err != nil {
		s.t.Fatal(err)
	}
}

// TestActingOnARealAPIServer needs kube-apiserver, etcd and helm; KWOK is a command that simulates kubelets, and ACT_GONE
// is how long the API server is down, such as 1h.
func TestActingOnARealAPIServer(t *testing.T) {
	s := newStage(t)
	s.until(t, `llm_gpu_health{gpu="7"`)
	is := func(want ...string) func() bool { return func() bool { return slices.Equal(s.tainted(), want) } }
	stop := s.actor(func(o *actOptions) { o.gpus = actDryRun })
	s.recovery(1, 1)
	e2e.Until(t, "the dry run says what it would do", func() bool {
		return strings.Contains(s.gpuNode.log.String(), "dry_run=true") && strings.Contains(s.gpuNode.log.String(), "recovery_reset")
	})
	if _, condition := s.node("dra"); len(s.tainted()) > 0 || condition != "" {
		t.Errorf("a dry run wrote %v, %s", s.tainted(), condition)
	}
	stop()
	s.recovery(1, 0)
	e2e.Until(t, "healthy", func() bool { n, _ := s.verdicts(t); return n.Verdict == metrics.Healthy })
	stops := []func(){s.actor(func(*actOptions) {}), s.actor(func(*actOptions) {})} // two replicas
	s.within(time.Minute, "both nodes have the condition", func() bool {
		_, a := s.node("dra")
		_, b := s.node("plain")
		return a == "True Healthy" && b == "True Healthy"
	})
	for i, code := range []int{13, 31, 32, 43, 45, 68, 69, 70, 71, 72, 75, 76, 77, 8, 11, 25, 39, 40, 41, 96} {
		if err := s.XID(i%8, code); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(30 * time.Second)
	if len(s.tainted()) > 0 {
		t.Errorf("harmless XIDs: %v", s.tainted())
	}
	t.Log("| twenty XIDs of applications | 30 s | nothing |")
	s.recovery(1, 1)
	s.within(30*time.Second, "a fault on the fake library becomes a DeviceTaintRule", is("gpu-1 NoExecute"))
	s.within(30*time.Second, "and the node's condition", func() bool { _, c := s.node("dra"); return c == "False Reset" })
	versions := func() string {
		list, _ := s.Resource(taintRules).List(t.Context(), metav1.ListOptions{})
		return list.Items[0].GetResourceVersion()
	}
	before := versions()
	time.Sleep(40 * time.Second)
	if versions() != before {
		t.Error("two replicas write the same rule again and again")
	}
	t.Log("| two replicas, 40 s | no write | no write |")
	s.recovery(1, 0)
	s.within(time.Minute, "the rule is gone once the GPU is healthy", is())
	s.plain(t)
	s.allAtOnce(t, is)
	s.events(t)
	s.gone(t, is)
	if os.Getenv("KWOK") != "" && !(s.ready("dra") && s.ready("plain")) {
		t.Error("the kubelets' own conditions are lost")
	}
	for _, stop := range stops {
		stop()
	}
}

// notReady is the taint that the API server's own admission gives a node without a kubelet.
const notReady = "node.kubernetes.io/not-ready NoSchedule"

// plain checks that a node without devices gets a taint, and that a person's taints stay.
func (s *stage) plain(t *testing.T) {
	taints := func(want ...string) func() bool {
		return func() bool { got, _ := s.node("plain"); return slices.Equal(got, want) }
	}
	s.imitate(metrics.Replace)
	s.within(30*time.Second, "a node without DRA has a taint", taints(act.TaintKey+" NoExecute", "mine NoSchedule", notReady))
	patch := []byte(`{"metadata":{"labels":{"touched":"by-a-person"}}}`)
	if _, err := s.Objects("", "nodes", "").Patch(t.Context(), "plain", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.imitate(metrics.Healthy)
	s.within(time.Minute, "it is lifted, and what a person set stays", taints("mine NoSchedule", notReady))
}

// allAtOnce checks the ceiling: 0.3 of ten GPUs in the cluster are three.
func (s *stage) allAtOnce(t *testing.T, is func(...string) func() bool) {
	for gpu := range 8 {
		s.recovery(gpu, 1)
	}
	most, _ := s.most(time.Minute)
	t.Logf("| all eight GPUs fail at once | 3 may be out | %d at most |", most)
	if most != 3 || len(s.tainted()) != 8 {
		t.Errorf("%d were out: %v", most, s.tainted())
	}
	for gpu := range 8 {
		s.recovery(gpu, 0)
	}
	s.within(time.Minute, "all eight are lifted", is())
}

// most watches for a while, and returns the maximum number of GPUs out of service, and the number of requests that
// the actors sent within ten seconds.
func (s *stage) most(d time.Duration) (out int, requests int64) {
	s.t.Helper()
	asked := []int64{s.asked.Load()}
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		now := 0
		for _, one := range s.tainted() {
			if strings.HasSuffix(one, "NoExecute") {
				now++
			}
		}
		if out = max(out, now); out > 3 {
			s.t.Fatalf("above the ceiling: %v", s.tainted())
		}
		asked = append(asked, s.asked.Load())
		requests = max(requests, asked[len(asked)-1]-asked[max(0, len(asked)-50)])
	}
	return out, requests
}

// gone checks an outage of the API server. In the outage, one GPU recovers, five fail (two of them may go), and one
// fails and recovers.
func (s *stage) gone(t *testing.T, is func(...string) func() bool) {
	d, err := time.ParseDuration(os.Getenv("ACT_GONE"))
	if err != nil {
		d = time.Minute
	}
	s.recovery(2, 1)
	s.within(30*time.Second, "another GPU fails", is("gpu-2 NoExecute"))
	_, usual := s.most(30 * time.Second)
	_ = s.Server.Process.Kill()
	left, asked := time.Now(), s.asked.Load()
	s.recovery(2, 0)
	for _, gpu := range []int{5, 6, 7, 1, 4} {
		s.recovery(gpu, 1)
		time.Sleep(6 * time.Second) // more than health.Interval: the oldest go first
	}
	s.recovery(3, 1)
	third := func() metrics.Verdict { n, _ := s.verdicts(t); return n.GPUs[3].Verdict }
	e2e.Until(t, "a verdict that nobody writes", func() bool { return third() == metrics.Reset })
	s.recovery(3, 0)
	e2e.Until(t, "it is over", func() bool { return third() == metrics.Healthy })
	time.Sleep(d - time.Since(left))
	here := time.Now()
	perRound := float64(s.asked.Load()-asked) / here.Sub(left).Seconds() * 10
	s.Serve(t)
	e2e.Until(t, "the API server is back", func() bool {
		_, err := s.Objects("", "nodes", "").List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	most, storm := s.most(90 * time.Second)
	want := is("gpu-1 None", "gpu-4 None", "gpu-5 NoExecute", "gpu-6 NoExecute", "gpu-7 NoExecute")
	if !want() {
		t.Errorf("after %s: %v", d, s.tainted())
	}
	if _, c := s.node("dra"); c != "False Reset" {
		t.Errorf("the condition is %s", c)
	}
	told := s.told(t, here)
	for gpu, reason := range map[int]string{
		1: "GPUHeldBack", 2: "GPULifted", 3: "", 4: "GPUHeldBack", 5: "GPUTainted", 6: "GPUTainted",
		7: "GPUTainted",
	} {
		if got := strings.Join(told[gpu], ", "); got != reason {
			t.Errorf("GPU %d: %q was told, want %q once", gpu, got, reason)
		}
	}
	t.Logf("| the API server is gone for %s | 3 may be out | %d at most; requests within 10 s: %d before, %.1f meanwhile, %d at most "+
		"after it came back |", d, most, usual, perRound, storm)
	// Two rounds, with six rules, six events and two conditions; and each replica queries a restarting server once a
	// second.
	if perRound > 4 || storm > 2*usual+14+2*10 {
		t.Errorf("a storm of requests: %d within 10 s before, %.1f meanwhile, %d after", usual, perRound, storm)
	}
	for gpu := range 8 {
		s.recovery(gpu, 0)
	}
	s.within(time.Minute, "and all is lifted", is())
}

// told lists the reasons of the events since a time, by GPU.
func (s *stage) told(t *testing.T, since time.Time) map[int][]string {
	list, err := s.Objects("events.k8s.io", "events", "monitoring").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	told := map[int][]string{}
	for _, e := range list.Items {
		at, _, _ := unstructured.NestedString(e.Object, "eventTime")
		reason, _, _ := unstructured.NestedString(e.Object, "reason")
		note, _, _ := unstructured.NestedString(e.Object, "note")
		if when, err := time.Parse(time.RFC3339Nano, at); err != nil || when.Before(since) {
			continue
		}
		var gpu int
		if _, err := fmt.Sscanf(note, "GPU GPU-00000000-0000-4000-8000-%d", &gpu); err != nil {
			t.Errorf("%s: %v", note, err)
		}
		told[gpu] = append(told[gpu], reason)
	}
	return told
}

// events checks that each change is reported once.
func (s *stage) events(t *testing.T) {
	list, err := s.Objects("events.k8s.io", "events", "monitoring").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]int{}
	for _, e := range list.Items {
		reason, _, _ := unstructured.NestedString(e.Object, "reason")
		note, _, _ := unstructured.NestedString(e.Object, "note")
		if reasons[reason]++; reasons[reason] == 1 {
			t.Logf("%s: %s", reason, note)
		}
	}
	if reasons["GPUTainted"] < 4 || reasons["GPULifted"] < 4 || reasons["GPUHeldBack"] < 5 {
		t.Errorf("events: %v", reasons)
	}
}
