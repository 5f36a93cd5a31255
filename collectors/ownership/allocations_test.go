package ownership

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// uid is the uid of the nth pod.
func uid(n int) string { return fmt.Sprintf("0a1b2c3d-0000-4000-8000-%012d", n) }

// inPod is a process that serves metrics pages in a container of the nth pod.
func inPod(n, pid int, listens ...string) process {
	return process{
		pid: pid, ppid: 1, name: "vllm", network: "pod1", listens: listens,
		cgroup: fmt.Sprintf("/../../kubepods-pod%s.slice/crio-%s.scope", strings.ReplaceAll(uid(n), "-", "_"), strings.Repeat("ab", 32)),
	}
}

// podLogs is the directory that the kubelet keeps for the pods p1, p2 and so on.
func podLogs(t *testing.T, pods int) string {
	dir := t.TempDir()
	for n := range pods {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("prod_p%d_%s", n+1, uid(n+1))), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestEnginesOfPods checks that an engine has the devices of its container. The configuration takes precedence, and
// processes decide where the kubelet cannot.
func TestEnginesOfPods(t *testing.T) {
	inContainer := func(name string, d ...*v1.ContainerDevices) *v1.ContainerResources {
		return &v1.ContainerResources{Name: name, Devices: d}
	}
	f := newFakeKubelet(t,
		&v1.PodResources{Name: "p1", Namespace: "prod", Containers: []*v1.ContainerResources{
			inContainer("prefill", device("nvidia.com/gpu", uuid0)), inContainer("decode", device("nvidia.com/gpu", uuid1)), inContainer("proxy"),
		}},
		&v1.PodResources{Name: "p1", Namespace: "dev", Containers: []*v1.ContainerResources{inContainer("c", device("nvidia.com/gpu.shared",
			uuid1+"::1"))}},
		&v1.PodResources{Name: "opaque", Namespace: "prod", Containers: []*v1.ContainerResources{inContainer("c",
			device("nvidia.com/vgpu", "hami-7"))}},
	)
	f.start(t)
	target := func(server, namespace, pod, container string, gpus ...string) Target {
		return Target{Runtime: metrics.VLLM, Server: server, Namespace: namespace, Pod: pod, Container: container, GPUs: gpus}
	}
	targets := []Target{
		target("a:1", "prod", "p1", "prefill"), target("b:1", "prod", "p1", "decode"), target("c:1", "prod", "p1", "proxy"),
		target("d:1", "prod", "p1", ""), target("e:1", "dev", "p1", ""), target("f:1", "prod", "p1", "prefill", "1"),
		target("10.0.0.5:8000", "prod", "opaque", "c"), target("g:1", "prod", "p2", ""), target("h:1", "", "", ""),
	}
	c := New(Options{
		Targets:      func() []Target { return targets },
		Processes:    func() []gpu.Process { return []gpu.Process{on(10, whole, 42)} },
		GPUs:         func() []gpu.Identity { return []gpu.Identity{whole, split} },
		Instances:    func() []gpu.Instance { return nil },
		PodResources: f.socket,
		ProcFS:       newHost(t, inPod(1, 10, any4+" 8000")),
	})
	var got []string
	for _, line := range lines(page(t, c), "llm_engine_gpu_info") {
		field := func(name string) string {
			_, rest, _ := strings.Cut(line, ","+name+`="`)
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		got = append(got, field("server")+" "+field("gpu")+" "+field("source"))
	}
	slices.Sort(got)
	want := []string{
		"10.0.0.5:8000 0 process", "a:1 0 pod_resources", "b:1 1 pod_resources", "d:1 0 pod_resources",
		"d:1 1 pod_resources", "e:1 1 pod_resources", "f:1 1 config",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestOwnersOfAPage checks that another exporter's metrics page leads from GPUs to engines if the kubelet reports
// nothing about a pod. Two pods that share a GPU both have it, and a pod that the kubelet knows has the devices
// that the kubelet reports.
func TestOwnersOfAPage(t *testing.T) {
	owner := func(id gpu.Identity, instance, pod string) gpu.Owner {
		return gpu.Owner{GPU: id, InstanceID: instance, Namespace: "prod", Pod: pod, Container: "c"}
	}
	of := func(socket string) *Collector {
		return New(Options{
			Targets: func() (targets []Target) {
				for _, pod := range []string{"p1", "p2", "p3"} {
					targets = append(targets, Target{Runtime: metrics.VLLM, Server: pod + ":8000", Namespace: "prod", Pod: pod})
				}
				return targets
			},
			Processes: func() []gpu.Process { return nil },
			GPUs:      func() []gpu.Identity { return []gpu.Identity{whole, split} },
			Instances: func() []gpu.Instance { return nil },
			Owners: func() []gpu.Owner {
				return []gpu.Owner{owner(whole, "", "p1"), owner(whole, "", "p2"), owner(split, "2", "p3")}
			},
			PodResources: socket, ProcFS: newHost(t),
		})
	}
	engines := func(page string) (got []string) {
		found := regexp.MustCompile(`gpu="(\d)",gpu_instance_id="(\d?)",.*server="(\w+).*source="(\w+)"`)
		for _, line := range lines(page, "llm_engine_gpu_info") {
			m := found.FindStringSubmatch(line)
			got = append(got, strings.Join([]string{m[3], m[1], m[2], m[4]}, " "))
		}
		slices.Sort(got)
		return got
	}
	alone := page(t, of(""))
	if got, want := engines(alone), []string{"p1 0  page", "p2 0  page", "p3 1 2 page"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if l := lines(alone, "llm_gpu_allocation_info"); len(l) != 3 || !strings.Contains(l[0], `container="c"`) ||
		!strings.Contains(l[0], `resource=""`) {
		t.Errorf("got %q", l)
	}
	f := newFakeKubelet(t, pod("p1", device("nvidia.com/gpu", uuid1)))
	f.start(t)
	if got, want := engines(page(t, of(f.socket))), []string{"p1 1  pod_resources", "p2 0  page", "p3 1 2 page"}; !slices.Equal(got, want) {
		t.Errorf("with a kubelet: got %q, want %q", got, want)
	}
}

// TestEnginesOfOneContainer checks which of its container's GPUs an engine has: the GPUs on which the process
// behind its real socket runs, and the GPUs on which no process is seen. Until the engine runs on a GPU, it has all
// GPUs of the container.
func TestEnginesOfOneContainer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	listening := func() (address string, pid int) {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		socket, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		child := exec.Command("sleep", "60")
		child.ExtraFiles = []*os.File{socket}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
		return l.Addr().String(), child.Process.Pid
	}
	one, onePID := listening()
	two, twoPID := listening()
	f := newFakeKubelet(t, pod("p", device("nvidia.com/gpu", uuid0, uuid1)))
	f.start(t)
	for _, c := range []struct {
		name     string
		running  []gpu.Process
		one, two string // the GPUs of the engines
	}{
		{"Each runs on one.", []gpu.Process{on(onePID, whole, 1), on(twoPID, split, 1)}, "0", "1"},
		{"They share one.", []gpu.Process{on(onePID, whole, 1), on(twoPID, whole, 1)}, "01", "01"},
		{"One is loading.", []gpu.Process{on(onePID, whole, 1)}, "01", "01"},
	} {
		t.Run(c.name, func(t *testing.T) {
			collector := node(t, f, new(bytes.Buffer), Target{Server: one, Namespace: "prod", Pod: "p", Container: "c"},
				Target{Server: two, Namespace: "prod", Pod: "p", Container: "c"})
			collector.options.Processes = func() []gpu.Process { return c.running }
			collector.options.ProcFS = "/proc"
			got := map[string]string{}
			for _, line := range lines(page(t, collector), "llm_engine_gpu_info") {
				m := regexp.MustCompile(`gpu="(\d)".*server="(.*)",source="pod_resources"`).FindStringSubmatch(line)
				if m == nil {
					t.Fatal(line)
				}
				got[m[2]] += m[1]
			}
			if want := map[string]string{one: c.one, two: c.two}; !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestMemoryOfPods checks that the memory of an engine that the kubelet knows comes from its processes.
func TestMemoryOfPods(t *testing.T) {
	f := newFakeKubelet(t, pod("p1", device("nvidia.com/gpu", uuid0, uuid1)))
	f.start(t)
	c := New(Options{
		Targets: func() []Target {
			return []Target{{Runtime: metrics.VLLM, Server: "10.0.0.5:8000", Namespace: "prod", Pod: "p1"}}
		},
		Processes:    func() []gpu.Process { return []gpu.Process{on(10, whole, 42)} },
		GPUs:         func() []gpu.Identity { return []gpu.Identity{whole, split} },
		Instances:    func() []gpu.Instance { return nil },
		PodResources: f.socket,
		ProcFS:       newHost(t, inPod(1, 10, any4+" 8000")),
	})
	got := page(t, c)
	if l := lines(got, "llm_engine_gpu_info"); len(l) != 2 || !strings.Contains(got, "pod_resources") {
		t.Errorf("got %q", l)
	}
	if l := lines(got, "llm_engine_gpu_memory_bytes"); len(l) != 1 || !strings.HasSuffix(l[0], " 42") {
		t.Errorf("got %q", l)
	}
}

// TestEndedPods checks two pods that are listed with the same device: the pod that runs on the device has it. If
// neither pod is seen to run, or a claim is shared, both stay.
func TestEndedPods(t *testing.T) {
	claimant := pod("p4")
	claimant.Containers[0].DynamicResources = []*v1.DynamicResource{claim("gpu.example.com", strings.ToLower(uuid1))}
	second := proto.CloneOf(claimant)
	second.Name = "p5"
	pods := []*v1.PodResources{
		pod("p1", device("nvidia.com/gpu", uuid0)), pod("p2", device("nvidia.com/gpu", uuid0)),
		pod("p3", device("nvidia.com/gpu.shared", uuid1+"::0")), pod("p6", device("nvidia.com/gpu.shared", uuid1+"::1")), claimant, second,
	}
	f := newFakeKubelet(t, pods...)
	f.start(t)
	for _, c := range []struct {
		name    string
		running []gpu.Process
		want    string
	}{
		{"Nobody is seen.", nil, "p1 p2 p3 p4 p5 p6"},
		{"The second runs.", []gpu.Process{on(20, whole, 1), on(60, split, 1), on(40, split, 1)}, "p2 p3 p4 p5 p6"},
		{"Both run, as while one ends.", []gpu.Process{on(10, whole, 1), on(20, whole, 1)}, "p1 p2 p3 p4 p5 p6"},
		{"A third runs.", []gpu.Process{on(60, whole, 1)}, "p1 p2 p3 p4 p5 p6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			collector := node(t, f, new(bytes.Buffer))
			collector.options.Processes = func() []gpu.Process { return c.running }
			collector.options.PodLogs = podLogs(t, 6)
			collector.options.ProcFS = newHost(t, inPod(1, 10), inPod(2, 20), inPod(4, 40), inPod(6, 60))
			var got []string
			for _, l := range lines(page(t, collector), "llm_gpu_allocation_info") {
				_, name, _ := strings.Cut(l, `pod="`)
				got = append(got, name[:2])
			}
			slices.Sort(got)
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %s", got, c.want)
			}
		})
	}
}
