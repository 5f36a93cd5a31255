package ownership

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// fakeKubelet serves the pod-resources API with the types and the server that the kubelet uses.
type fakeKubelet struct {
	v1.UnimplementedPodResourcesListerServer
	socket      string
	connections atomic.Int32
	questions   atomic.Int32

	mu   sync.Mutex
	pods []*v1.PodResources
	err  error
	hang chan struct{} // answers wait until it is closed
}

func (f *fakeKubelet) List(ctx context.Context, _ *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	f.questions.Add(1)
	f.mu.Lock()
	pods, err, hang := f.pods, f.err, f.hang
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done(): // no answer after all
			return nil, ctx.Err()
		}
	}
	return &v1.ListPodResourcesResponse{PodResources: pods}, err
}

func (f *fakeKubelet) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// start creates the socket again, as a kubelet does.
func (f *fakeKubelet) start(t *testing.T) (stop func()) {
	t.Helper()
	_ = os.Remove(f.socket)
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	v1.RegisterPodResourcesListerServer(server, f)
	go func() { _ = server.Serve(&counting{listener, &f.connections}) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

type counting struct {
	net.Listener
	n *atomic.Int32
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

func newFakeKubelet(t *testing.T, pods ...*v1.PodResources) *fakeKubelet {
	return &fakeKubelet{socket: filepath.Join(t.TempDir(), "kubelet.sock"), pods: pods}
}

// pod is a pod in namespace prod with one container, c.
func pod(name string, devices ...*v1.ContainerDevices) *v1.PodResources {
	return &v1.PodResources{Name: name, Namespace: "prod", Containers: []*v1.ContainerResources{{Name: "c", Devices: devices}}}
}

func device(resource string, ids ...string) *v1.ContainerDevices {
	return &v1.ContainerDevices{
		ResourceName: resource, DeviceIds: ids,
		Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: 1}}},
	}
}

func claim(driver, name string) *v1.DynamicResource {
	return &v1.DynamicResource{ClaimName: "gpus", ClaimNamespace: "prod", ClaimResources: []*v1.ClaimResource{{
		CdiDevices: []*v1.CDIDevice{{Name: "k8s.gpu.nvidia.com/device=" + name}}, DriverName: driver, PoolName: "node-1", DeviceName: name,
	}}}
}

const uuid0, uuid1 = "GPU-00000000-0000-4000-8000-000000000000", "GPU-00000000-0000-4000-8000-000000000001"

// The second GPU is /dev/nvidia3 and split into two MIG instances.
var (
	whole = gpu.Identity{UUID: uuid0, Index: "0", Minor: "0"}
	split = gpu.Identity{UUID: uuid1, Index: "1", Minor: "3"}
	parts = []gpu.Instance{
		{GPU: split, ID: "1", UUID: "MIG-00000000-0000-5000-8000-000000000001"},
		{GPU: split, ID: "2", UUID: "MIG-00000000-0000-5000-8000-000000000002"},
	}
)

// node is a collector beside a kubelet.
func node(t *testing.T, f *fakeKubelet, log *bytes.Buffer, targets ...Target) *Collector {
	return New(Options{
		Logger:       slog.New(slog.NewTextHandler(log, nil)),
		Targets:      func() []Target { return targets },
		Processes:    func() []gpu.Process { return nil },
		GPUs:         func() []gpu.Identity { return []gpu.Identity{whole, split} },
		Instances:    func() []gpu.Instance { return parts },
		PodResources: f.socket,
		ProcFS:       newHost(t),
		Interval:     time.Nanosecond, // each scan queries the kubelet
	})
}

// lines returns the lines of a metrics page that start with a name, sorted, without the name.
func lines(page, name string) (found []string) {
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			found = append(found, strings.TrimSpace(rest))
		}
	}
	slices.Sort(found)
	return found
}

func allocated(place gpu.Identity, instance, pod, resource string) string {
	return fmt.Sprintf(`{container="c",gpu=%q,gpu_instance_id=%q,gpu_uuid=%q,namespace="prod",pod=%q,resource=%q} 1`,
		place.Index, instance, place.UUID, pod, resource)
}

// TestDeviceIDs checks that the names that device plugins and DRA drivers give a GPU lead to it, whatever the resource
// is called. A device that is not a GPU is counted, and has no other effect.
func TestDeviceIDs(t *testing.T) {
	const gpus, shared = "nvidia.com/gpu", "nvidia.com/gpu.shared"
	for _, c := range []struct {
		name, resource string
		ids            []string
		want           []string // allocations of pod p
		unknown        int
	}{
		{"A UUID.", gpus, []string{uuid0}, []string{allocated(whole, "", "p", gpus)}, 0},
		{"A renamed resource.", "example.com/big-gpu", []string{uuid0}, []string{allocated(whole, "", "p", "example.com/big-gpu")}, 0},
		{"Turns on one GPU are one allocation.", shared, []string{uuid0 + "::0", uuid0 + "::7"}, []string{allocated(whole, "", "p", shared)}, 0},
		{"A MIG device.", "nvidia.com/mig-3g.40gb", []string{parts[1].UUID}, []string{allocated(split, "2", "p", "nvidia.com/mig-3g.40gb")}, 0},
		{
			"Turns on a MIG device.", "nvidia.com/mig-3g.40gb.shared",
			[]string{parts[0].UUID + "::1"},
			[]string{allocated(split, "1", "p", "nvidia.com/mig-3g.40gb.shared")},
			0,
		},
		{"A MIG device of an old driver.", gpus, []string{"MIG-" + uuid1 + "/2/0"}, []string{allocated(split, "2", "p", gpus)}, 0},
		{"GKE counts by minor number.", gpus, []string{"nvidia3"}, []string{allocated(split, "", "p", gpus)}, 0},
		{
			"A MIG device on GKE, and a turn on it.", gpus,
			[]string{"nvidia3/gi1", "nvidia3/gi2/vgpu4"},
			[]string{allocated(split, "1", "p", gpus), allocated(split, "2", "p", gpus)},
			0,
		},
		{"A turn on GKE.", gpus, []string{"nvidia0/vgpu1"}, []string{allocated(whole, "", "p", gpus)}, 0},
		{"An index.", gpus, []string{"1"}, []string{allocated(split, "", "p", gpus)}, 0},
		{"The number of other hardware.", "rdma/hca", []string{"0", "1"}, nil, 2},
		{
			"What is malformed, or of another node.", gpus,
			[]string{
				"", "::", "::0", "/", "-1", "2", "00", "nvidia", "nvidia1", "nvidia0/",
				"nvidia0/gi", "nvidia0/vg0",
				"nvidia0gi1", "GPU-", "gpu-0", "MIG-", "MIG-GPU-//", "MIG-" + uuid1 + "/x/0", "MIG-" + uuid1, uuid0 + "/0", " " + uuid0,
				strings.Repeat("GPU-", 1<<16), "ÿ\x00\n", uuid1,
			},
			[]string{allocated(split, "", "p", gpus)},
			23,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeKubelet(t, pod("p", device(c.resource, c.ids...)))
			f.start(t)
			var log bytes.Buffer
			collector := node(t, f, &log)
			page(t, collector)
			got := page(t, collector)
			if l := lines(got, "llm_gpu_allocation_info"); !slices.Equal(l, c.want) {
				t.Errorf("got %s\nwant %s", strings.Join(l, "\n"), strings.Join(c.want, "\n"))
			}
			var unknown []string
			if c.unknown > 0 {
				unknown = []string{fmt.Sprintf(`{resource=%q} %d`, c.resource, c.unknown)}
			}
			if l := lines(got, "llm_exporter_pod_resources_unknown_devices"); !slices.Equal(l, unknown) {
				t.Errorf("unknown: got %q, want %q", l, unknown)
			}
			if n := strings.Count(log.String(), "no GPU of this node"); n != min(c.unknown, 1) {
				t.Errorf("unknown devices are logged %d times:\n%.2000s", n, log.String())
			}
		})
	}
}

// TestClaims checks devices of resource claims. A name that would mean different devices for two drivers is left alone.
func TestClaims(t *testing.T) {
	p := pod("p")
	p.Containers[0].DynamicResources = []*v1.DynamicResource{
		claim("gpu.nvidia.com", "gpu-0"), claim("gpu.nvidia.com", "gpu-1"), claim("gpu.nvidia.com", "gpu-3"),
		claim("gpu.nvidia.com", "gpu-1-mig-9-4-4"),
		claim("gpu.example.com", strings.ToLower(uuid1)), claim("gpu.example.com", "gpu-0"), claim("compute-domain.nvidia.com", "channel-0"),
	}
	f := newFakeKubelet(t, p)
	f.start(t)
	got := page(t, node(t, f, new(bytes.Buffer)))
	want := []string{allocated(whole, "", "p", "gpu.nvidia.com"), allocated(split, "", "p", "gpu.example.com")}
	if l := lines(got, "llm_gpu_allocation_info"); !slices.Equal(l, want) {
		t.Errorf("got %s\nwant %s", strings.Join(l, "\n"), strings.Join(want, "\n"))
	}
	unknown := []string{`{resource="compute-domain.nvidia.com"} 1`, `{resource="gpu.example.com"} 1`, `{resource="gpu.nvidia.com"} 3`}
	if l := lines(got, "llm_exporter_pod_resources_unknown_devices"); !slices.Equal(l, unknown) {
		t.Errorf("unknown: got %q, want %q", l, unknown)
	}
}

// TestClaimsWithSlices checks that the driver's ResourceSlices, if they are known, define its names, whatever these
// look like.
func TestClaimsWithSlices(t *testing.T) {
	p := pod("p")
	p.Containers[0].DynamicResources = []*v1.DynamicResource{
		claim("gpu.nvidia.com", "gpu-3"), claim("gpu.nvidia.com", "gpu-3-mig-9-4-4"),
		claim("gpu.nvidia.com", "gpu-7"),
	}
	f := newFakeKubelet(t, p)
	f.start(t)
	c := node(t, f, new(bytes.Buffer))
	c.options.ClaimedUUID = func(driver, pool, device string) string {
		return map[string]string{"gpu.nvidia.com node-1 gpu-3": uuid0, "gpu.nvidia.com node-1 gpu-3-mig-9-4-4": parts[1].UUID}[driver+" "+
			pool+" "+device]
	}
	got := page(t, c)
	want := []string{allocated(whole, "", "p", "gpu.nvidia.com"), allocated(split, parts[1].ID, "p", "gpu.nvidia.com")}
	if l := lines(got, "llm_gpu_allocation_info"); !slices.Equal(l, want) {
		t.Errorf("got %s\nwant %s", strings.Join(l, "\n"), strings.Join(want, "\n"))
	}
	if l := lines(got, "llm_exporter_pod_resources_unknown_devices"); !slices.Equal(l, []string{`{resource="gpu.nvidia.com"} 1`}) {
		t.Errorf("unknown: %q", l)
	}
}

// TestDenseNode checks that an answer with 5,000 devices, which is above gRPC's usual limit, is read, over one
// connection however often it is requested.
func TestDenseNode(t *testing.T) {
	var pods []*v1.PodResources
	for i := range 250 {
		p := pod(fmt.Sprint("pod-", i))
		for j := range 20 {
			p.Containers[0].Devices = append(p.Containers[0].Devices, device("nvidia.com/gpu.shared", fmt.Sprintf("%s::%d", uuid0, 20*i+j)))
		}
		for cpu := range int64(8192) { // of no interest here
			p.CpuIds = append(p.CpuIds, cpu)
		}
		pods = append(pods, p)
	}
	if size := proto.Size(&v1.ListPodResourcesResponse{PodResources: pods}); size < 4<<20 {
		t.Fatalf("the answer has only %d bytes", size)
	}
	f := newFakeKubelet(t, pods...)
	f.start(t)
	c := node(t, f, new(bytes.Buffer))
	c.kubelet.Deadline = time.Minute
	for range 3 {
		got := page(t, c)
		if n := len(lines(got, "llm_gpu_allocation_info")); n != len(pods) {
			t.Fatalf("%d allocations, want %d; state %s", n, len(pods), c.kubelet.State())
		}
	}
	if q, n := f.questions.Load(), f.connections.Load(); q != 3 || n != 1 {
		t.Errorf("%d questions over %d connections, want 3 over 1", q, n)
	}
}

// TestGolden compares the whole metrics page of a node where a pod's engine has a GPU.
func TestGolden(t *testing.T) {
	f := newFakeKubelet(t, pod("p", device("nvidia.com/gpu", uuid0), device("rdma/hca", "0")))
	f.start(t)
	c := node(t, f, new(bytes.Buffer), engine("127.0.0.1:8000"))
	c.options.ProcFS = newHost(t, process{pid: 10, ppid: 1, name: "vllm", listens: []string{any4 + " 8000"}})
	running := on(10, whole, 100)
	running.SM, running.MemoryBusy, running.UtilizationKnown = 0.75, 0.25, true
	c.options.Processes = func() []gpu.Process { return []gpu.Process{running} }
	page(t, c)
	golden.Compare(t, "testdata/pod.prom", golden.Still(golden.Page(t, c), metrics.PodResourcesTime.Name))
}

// TestSocketRecreated checks a kubelet that restarts and creates its socket again. Meanwhile its last answer stays.
func TestSocketRecreated(t *testing.T) {
	f := newFakeKubelet(t, pod("before", device("nvidia.com/gpu", uuid0)))
	stop := f.start(t)
	var log bytes.Buffer
	c := node(t, f, &log)
	before := page(t, c)
	stop() // which removes the socket
	down := page(t, c)
	for end := time.Now().Add(10 * time.Second); c.kubelet.State() != "socket_missing" && time.Now().Before(end); {
		down = page(t, c) // the end of the connection was seen halfway through
	}
	if l := lines(down, "llm_exporter_pod_resources_up"); !slices.Equal(l, []string{`{reason="socket_missing"} 0`}) {
		t.Errorf("while the kubelet restarts: %q", l)
	}
	for _, name := range []string{"llm_gpu_allocation_info", "llm_exporter_pod_resources_last_success_timestamp_seconds"} {
		if got, want := lines(down, name), lines(before, name); len(want) != 1 || !slices.Equal(got, want) {
			t.Errorf("%s: while the kubelet restarts %q, before %q", name, got, want)
		}
	}
	f.pods = []*v1.PodResources{pod("after", device("nvidia.com/gpu", uuid0))}
	f.start(t)
	up := page(t, c)
	if l := lines(up, "llm_exporter_pod_resources_up"); !slices.Equal(l, []string{`{reason=""} 1`}) {
		t.Errorf("after the restart: %q", l)
	}
	if l := lines(up, "llm_gpu_allocation_info"); !slices.Equal(l, []string{allocated(whole, "", "after", "nvidia.com/gpu")}) {
		t.Errorf("after the restart: %q", l)
	}
	if n := strings.Count(log.String(), "socket_missing"); n != 1 {
		t.Errorf("want one record per change of state:\n%s", log.String())
	}
}

// TestSlowKubelet checks that nothing waits for an answer that takes too long, least of all a scrape.
func TestSlowKubelet(t *testing.T) {
	f := newFakeKubelet(t, pod("p", device("nvidia.com/gpu", uuid0)))
	f.start(t)
	var log bytes.Buffer
	c := node(t, f, &log)
	before := page(t, c)
	hang := make(chan struct{})
	defer close(hang)
	f.set(func() { f.hang = hang })
	const deadline = 5 * time.Second
	c.kubelet.Deadline = deadline

	refreshed := make(chan time.Duration)
	start := time.Now()
	go func() {
		c.refresh(context.Background())
		refreshed <- time.Since(start)
	}()
	for f.questions.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	if during := scrape(t, c); during != before || time.Since(start) >= deadline {
		t.Errorf("a scrape took %s while the kubelet was asked and shows\n%s", time.Since(start), during)
	}
	if took := <-refreshed; took < deadline || took > 2*deadline {
		t.Errorf("an answer was waited for for %s, with a deadline of %s", took, deadline)
	}
	after := scrape(t, c)
	if want := strings.Replace(before, `up{reason=""} 1`, `up{reason="deadline_exceeded"} 0`, 1); after != want {
		t.Errorf("got\n%swant\n%s", after, want)
	}
	if !strings.Contains(log.String(), "overloaded") {
		t.Errorf("no remedy:\n%s", log.String())
	}

	// Another kubelet takes over the socket while this one still hangs.
	next := &fakeKubelet{socket: f.socket, pods: []*v1.PodResources{pod("next", device("nvidia.com/gpu", uuid0))}}
	next.start(t)
	if l := lines(page(t, c), "llm_gpu_allocation_info"); !slices.Equal(l, []string{allocated(whole, "", "next", "nvidia.com/gpu")}) {
		t.Errorf("after another kubelet took over: %q", l)
	}
}

// TestPatience checks that the longer the kubelet refuses, the less often it is queried, and that queries are as
// frequent as before once it answers.
func TestPatience(t *testing.T) {
	f := newFakeKubelet(t)
	f.start(t)
	f.err = status.Error(codes.ResourceExhausted, "rejected by rate limit")
	var log bytes.Buffer
	c := node(t, f, &log)
	c.kubelet.Interval = 15 * time.Second
	now := time.Now()
	during := func(d time.Duration) int32 {
		before := f.questions.Load()
		for end := now.Add(d); now.Before(end); now = now.Add(time.Second) {
			c.kubelet.Refresh(t.Context(), now)
		}
		return f.questions.Load() - before
	}
	if n := during(10 * time.Minute); n < 5 || n > 9 { // 0, 15, 45, 105, 225, 345, 465, 585
		t.Errorf("asked %d times in ten minutes", n)
	}
	if c.kubelet.State() != "resource_exhausted" || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "too often") {
		t.Errorf("state %s, said\n%s", c.kubelet.State(), log.String())
	}
	f.set(func() { f.err = nil })
	during(2 * time.Minute) // its longest pause
	if n := during(10 * time.Minute); n != 40 {
		t.Errorf("asked %d times in ten minutes by a kubelet that answers, want 40", n)
	}
}

// TestPermission checks that a socket that may not be used is distinguished from a missing one.
func TestPermission(t *testing.T) {
	f := newFakeKubelet(t, pod("p", device("nvidia.com/gpu", uuid0)))
	f.start(t)
	if err := os.Chmod(f.socket, 0); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := node(t, f, &log)
	if os.Geteuid() == 0 { // root may do everything, so the query runs as nobody
		if err := syscall.Seteuid(65534); err != nil {
			t.Skip(err)
		}
		defer func() {
			if err := syscall.Seteuid(0); err != nil {
				t.Fatal(err)
			}
		}()
	}
	c.refresh(t.Context())
	if l := lines(scrape(t, c), "llm_exporter_pod_resources_up"); !slices.Equal(l, []string{`{reason="permission_denied"} 0`}) {
		t.Errorf("got %q", l)
	}
	if !strings.Contains(log.String(), "as root or in the group") {
		t.Errorf("no remedy:\n%s", log.String())
	}
}

// TestWithoutKubernetes checks that a missing socket is an error only where there is Kubernetes.
func TestWithoutKubernetes(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	f := newFakeKubelet(t, pod("p", device("nvidia.com/gpu", uuid0)))
	var log bytes.Buffer
	c := node(t, f, &log)
	if got := page(t, c); strings.Contains(got, "pod_resources") || log.Len() > 0 {
		t.Errorf("without Kubernetes there is\n%sand is logged\n%s", got, log.String())
	}
	f.start(t)
	if l := lines(page(t, c), "llm_gpu_allocation_info"); len(l) != 1 {
		t.Errorf("a kubelet that has come is not asked: %q", l)
	}

	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	f = newFakeKubelet(t)
	log.Reset()
	c = node(t, f, &log)
	page(t, c)
	if l := lines(page(t, c), "llm_exporter_pod_resources_up"); !slices.Equal(l, []string{`{reason="socket_missing"} 0`}) {
		t.Errorf("in a pod without the socket: %q", l)
	}
	if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "mount the host's directory") {
		t.Errorf("want one record with the remedy:\n%s", log.String())
	}
}
