package ownership

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

var (
	gpu0 = gpu.Identity{UUID: "GPU-a", Index: "0", PCI: "0000:10:00.0"}
	gpu1 = gpu.Identity{UUID: "GPU-b", Index: "1", PCI: "0000:11:00.0"}
)

// process runs on a host. A socket is "address port", the address as in /proc/net/tcp.
type process struct {
	pid, ppid int
	name      string
	network   string // namespace; empty: that of the exporter
	listens   []string
	cgroup    string
	command   []string
	closed    bool // to the exporter, the links of the process' open files are not readable
}

const (
	any4      = "00000000"
	loopback4 = "0100007F"
)

// trie lists the addresses of the network namespaces.
var trie = map[string]string{
	"host": "  |-- 127.0.0.1\n     /32 host LOCAL\n  |-- 192.0.2.7\n     /32 host LOCAL\n  |-- 192.0.2.255\n     /32 link BROADCAST\n",
	"pod1": "  |-- 10.0.0.5\n     /32 host LOCAL\n",
	"pod2": "  |-- 10.0.0.6\n     /32 host LOCAL\n",
}

func newHost(t *testing.T, procs ...process) string {
	root := t.TempDir()
	write := func(pid any, file, content string) {
		path := filepath.Join(root, fmt.Sprint(pid), file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(pid any, file, target string) {
		path := filepath.Join(root, fmt.Sprint(pid), file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	link("self", "ns/net", "net:[host]")
	const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	sockets := make(map[string]string)
	line := func(local string, state string, inode int) string {
		return fmt.Sprintf("   0: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000     0        0 %d 1 0 100 0 0 10 0\n", local,
			state, inode)
	}
	for i, p := range procs {
		if p.network == "" {
			p.network = "host"
		}
		write(p.pid, "stat", fmt.Sprintf("%d (%s) S %d %d 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 "+
			"0 0 0 0 0 0 0 0 0 0\n", p.pid, p.name, p.ppid, p.pid))
		write(p.pid, "cgroup", "0::"+p.cgroup+"\n")
		write(p.pid, fmt.Sprintf("task/%d/schedstat", p.pid), "1000000 0 1\n")
		link(p.pid, "ns/net", "net:["+p.network+"]")
		write(p.pid, "cmdline", strings.Join(append(p.command, ""), "\x00"))
		if p.closed {
			write(p.pid, "fd/0", "")
			continue
		}
		link(p.pid, "fd/0", "/dev/null")
		for j, at := range p.listens {
			address, port, _ := strings.Cut(at, " ")
			n, _ := strconv.Atoi(port)
			inode := 1000*(i+1) + j
			link(p.pid, fmt.Sprint("fd/", 3+j), fmt.Sprintf("socket:[%d]", inode))
			sockets[p.network] += line(fmt.Sprintf("%s:%04X", address, n), "0A", inode)
			sockets[p.network] += line(fmt.Sprintf("%s:%04X", address, n+1), "01", inode+500) // a connection
		}
	}
	for _, p := range procs {
		if p.network == "" {
			p.network = "host"
		}
		write(p.pid, "net/tcp", header+sockets[p.network])
		write(p.pid, "net/tcp6", header)
		write(p.pid, "net/fib_trie", trie[p.network])
	}
	return root
}

// page returns the text of a collector's metrics page after one scan.
func page(t *testing.T, c *Collector) string {
	t.Helper()
	c.refresh(context.Background())
	return scrape(t, c)
}

// scrape returns the text of a collector's present metrics page.
func scrape(t *testing.T, c *Collector) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(golden.Page(t, c)) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func on(pid int, id gpu.Identity, memory uint64) gpu.Process {
	return gpu.Process{PID: pid, GPU: id, Memory: memory, MemoryKnown: true}
}

func engine(server string, gpus ...string) Target {
	return Target{Runtime: metrics.VLLM, Server: server, ModelName: "m", GPUs: gpus}
}

// TestWhoseGPU checks the pairs of metrics page and GPU that are found on a host.
func TestWhoseGPU(t *testing.T) {
	for _, c := range []struct {
		name    string
		procs   []process
		running []gpu.Process
		targets []Target
		want    []string // "server gpu source"
	}{
		{
			"vLLM: the server is the parent of the workers.",
			[]process{
				{pid: 10, ppid: 1, name: "vllm", listens: []string{any4 + " 8000"}},
				{pid: 11, ppid: 10, name: "VLLM::EngineCor"},
				{pid: 12, ppid: 11, name: "VLLM::Worker_TP"},
			},
			[]gpu.Process{on(11, gpu0, 1), on(12, gpu1, 1)},
			[]Target{engine("127.0.0.1:8000")},
			[]string{"127.0.0.1:8000 0 process", "127.0.0.1:8000 1 process"},
		},
		{
			"TGI: server and worker have a launcher in common.",
			[]process{
				{pid: 10, ppid: 1, name: "text-generation"},
				{pid: 11, ppid: 10, name: "router", listens: []string{any4 + " 8080"}},
				{pid: 12, ppid: 10, name: "python3"},
			},
			[]gpu.Process{on(12, gpu0, 1)},
			[]Target{engine("localhost:8080")},
			[]string{"localhost:8080 0 process"},
		},
		{
			"Ollama: the server starts a runner for each model, which listens, too.",
			[]process{{pid: 10, ppid: 1, name: "ollama", listens: []string{loopback4 + " 11434"}}, {
				pid: 11, ppid: 10, name: "ollama",
				listens: []string{loopback4 + " 40001"},
			}, {pid: 12, ppid: 10, name: "ollama", listens: []string{loopback4 + " 40002"}}},
			[]gpu.Process{on(11, gpu0, 1), on(12, gpu1, 1)},
			[]Target{engine("127.0.0.1:11434")},
			[]string{"127.0.0.1:11434 0 process", "127.0.0.1:11434 1 process"},
		},
		{
			"One process does it all, on an address of the host.",
			[]process{{pid: 10, ppid: 1, name: "tritonserver", listens: []string{any4 + " 8000", any4 + " 8002"}}},
			[]gpu.Process{on(10, gpu0, 1)},
			[]Target{engine("192.0.2.7:8002")},
			[]string{"192.0.2.7:8002 0 process"},
		},
		{
			"Two engines of one launcher are told apart.",
			[]process{
				{pid: 9, ppid: 1, name: "python3"},
				{pid: 10, ppid: 9, name: "vllm", listens: []string{any4 + " 8000"}},
				{pid: 11, ppid: 10, name: "worker"},
				{pid: 20, ppid: 9, name: "vllm", listens: []string{any4 + " 8001"}},
				{pid: 21, ppid: 20, name: "worker"},
			},
			[]gpu.Process{on(11, gpu0, 1), on(21, gpu1, 1)},
			[]Target{engine("127.0.0.1:8000"), engine("127.0.0.1:8001")},
			[]string{"127.0.0.1:8000 0 process", "127.0.0.1:8001 1 process"},
		},
		{
			"Two servers that are equally close leave it open.",
			[]process{
				{pid: 9, ppid: 1, name: "python3"},
				{pid: 10, ppid: 9, name: "a", listens: []string{any4 + " 8000"}},
				{pid: 20, ppid: 9, name: "b", listens: []string{any4 + " 8001"}},
				{pid: 21, ppid: 9, name: "worker"},
			},
			[]gpu.Process{on(21, gpu1, 1)},
			[]Target{engine("127.0.0.1:8000"), engine("127.0.0.1:8001")},
			nil,
		},
		{
			"A training job in the same shell is not part of the engine.",
			[]process{
				{pid: 9, ppid: 1, name: "bash"},
				{pid: 10, ppid: 9, name: "vllm", listens: []string{any4 + " 8000"}},
				{pid: 11, ppid: 9, name: "train"},
			},
			[]gpu.Process{on(10, gpu0, 1), on(11, gpu1, 1)},
			[]Target{engine("127.0.0.1:8000")},
			[]string{"127.0.0.1:8000 0 process"},
		},
		{
			"Two pods listen on the same port; the address decides.",
			[]process{{pid: 10, ppid: 1, name: "vllm", network: "pod1", listens: []string{any4 + " 8000"}}, {
				pid: 20, ppid: 1, name: "vllm",
				network: "pod2", listens: []string{any4 + " 8000"},
			}},
			[]gpu.Process{on(10, gpu0, 1), on(20, gpu1, 1)},
			[]Target{engine("10.0.0.6:8000")},
			[]string{"10.0.0.6:8000 1 process"},
		},
		{
			"Localhost is not that of a pod.",
			[]process{{pid: 10, ppid: 1, name: "vllm", network: "pod1", listens: []string{loopback4 + " 8000"}}},
			[]gpu.Process{on(10, gpu0, 1)},
			[]Target{engine("127.0.0.1:8000")},
			nil,
		},
		{
			"Bound to another address.",
			[]process{{pid: 10, ppid: 1, name: "vllm", listens: []string{loopback4 + " 8000"}}},
			[]gpu.Process{on(10, gpu0, 1)},
			[]Target{engine("192.0.2.7:8000")},
			nil,
		},
		{
			"A connection to the port is not the server.",
			[]process{{pid: 10, ppid: 1, name: "vllm", listens: []string{any4 + " 7999"}}},
			[]gpu.Process{on(10, gpu0, 1)},
			[]Target{engine("127.0.0.1:8000")},
			nil,
		},
		{
			"A process that has ended belongs to nobody.", nil,
			[]gpu.Process{on(10, gpu0, 1)},
			[]Target{engine("127.0.0.1:8000")},
			nil,
		},
		{
			"The configuration says it, by index and by UUID.", nil, nil,
			[]Target{engine("a:1", "1"), engine("b:1", "GPU-a", "0"), engine("c:1", "7")},
			[]string{"b:1 0 config", "a:1 1 config"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := page(t, New(Options{
				Targets:   func() []Target { return c.targets },
				Processes: func() []gpu.Process { return c.running },
				GPUs:      func() []gpu.Identity { return []gpu.Identity{gpu0, gpu1} },
				ProcFS:    newHost(t, c.procs...),
			}))
			var want strings.Builder
			for _, w := range c.want {
				f := strings.Fields(w)
				uuid := map[string]string{"0": gpu0.UUID, "1": gpu1.UUID}[f[1]]
				fmt.Fprintf(&want, "llm_engine_gpu_info{container=\"\",gpu=%q,gpu_instance_id=\"\",gpu_uuid=%q,model_name=\"m\",namespace=\"\",pod=\"\",runtime=\"vllm\",server=%q,source=%q} 1\n", f[1], uuid, f[0], f[2])
			}
			var infos string
			for line := range strings.Lines(got) {
				if strings.HasPrefix(line, "llm_engine_gpu_info") {
					infos += line
				}
			}
			if infos != want.String() {
				t.Errorf("got\n%swant\n%s", infos, want.String())
			}
		})
	}
}

// TestMemory checks that memory adds up per engine and per container, and is absent if any part is unknown. The memory
// of a process that /proc lacks belongs to an unknown owner, not to the host.
func TestMemory(t *testing.T) {
	id := strings.Repeat("ab", 32)
	cgroup := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_0000_4000_8000_000000000001.slice/cri-containerd-" + id + ".scope"
	logs := t.TempDir()
	for _, dir := range []string{
		"prod_vllm-0_0a1b2c3d-0000-4000-8000-000000000001", "prod_other_0a1b2c3d-0000-4000-8000-000000000002",
		"lost+found",
	} {
		if err := os.Mkdir(filepath.Join(logs, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	unknown := on(30, gpu1, 0)
	unknown.MemoryKnown = false
	c := New(Options{
		Targets: func() []Target { return []Target{engine("127.0.0.1:8000")} },
		Processes: func() []gpu.Process {
			return []gpu.Process{on(10, gpu0, 100), on(11, gpu0, 20), on(20, gpu0, 3), on(99, gpu0, 7), unknown, on(31, gpu1, 5)}
		},
		GPUs:    func() []gpu.Identity { return []gpu.Identity{gpu0, gpu1} },
		PodLogs: logs,
		ProcFS: newHost(t,
			process{pid: 10, ppid: 1, name: "vllm", listens: []string{any4 + " 8000"}, cgroup: cgroup},
			process{pid: 11, ppid: 10, name: "worker", cgroup: cgroup},
			process{pid: 20, ppid: 1, name: "train", cgroup: "/user.slice"},
			process{pid: 30, ppid: 1, name: "train", cgroup: "/user.slice"},
			process{pid: 31, ppid: 1, name: "train", cgroup: "/user.slice"}),
	})
	got := page(t, c)
	for _, want := range []string{
		`llm_engine_gpu_memory_bytes{container="",gpu="0",gpu_instance_id="",gpu_uuid="GPU-a",namespace="",pod="",runtime="vllm",server="127.0.0.1:8000"} 120`,
		`llm_gpu_container_memory_bytes{container_id="` + id + `",gpu="0",gpu_instance_id="",gpu_uuid="GPU-a",namespace="prod",pod="vllm-0"} 120`,
		`llm_gpu_container_memory_bytes{container_id="",gpu="0",gpu_instance_id="",gpu_uuid="GPU-a",namespace="",pod=""} 3`,
		`llm_gpu_container_memory_bytes{container_id="unknown",gpu="0",gpu_instance_id="",gpu_uuid="GPU-a",namespace="",pod=""} 7`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("want %s on\n%s", want, got)
		}
	}
	if strings.Contains(got, `memory_bytes{container_id="",gpu="1"`) {
		t.Errorf("a sum over a part of the processes is on\n%s", got)
	}
}

// twoPods is a host with two processes each of the pods chat (10 and 20) and batch (11 and 21).
func twoPods(t *testing.T) (podLogs, procFS string) {
	podLogs = t.TempDir()
	var procs []process
	for i, name := range []string{"chat", "batch"} {
		uid := fmt.Sprintf("0a1b2c3d-0000-4000-8000-00000000000%d", i)
		if err := os.Mkdir(filepath.Join(podLogs, "prod_"+name+"_"+uid), 0o755); err != nil {
			t.Fatal(err)
		}
		cgroup := "/kubepods/burstable/pod" + uid + "/" + strings.Repeat(strconv.Itoa(i), 64)
		procs = append(procs, process{pid: 10 + i, ppid: 1, name: "vllm", cgroup: cgroup}, process{
			pid: 20 + i, ppid: 1, name: "worker",
			cgroup: cgroup,
		})
	}
	return podLogs, newHost(t, procs...)
}

// ofPod returns the value of a family of a pod; empty when there is none.
func ofPod(page, family, pod string) string {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, family+"{") && strings.Contains(line, fmt.Sprintf("namespace=%q,pod=%q}", "prod", pod)) {
			return strings.TrimSpace(line[strings.LastIndex(line, " "):])
		}
	}
	return ""
}

// TestShareOfTime checks that each pod on a GPU has its share of the time. A pod's share is absent if the share of one
// of its processes is unknown.
func TestShareOfTime(t *testing.T) {
	busy := func(pid int, sm, memory float64) gpu.Process {
		p := on(pid, gpu0, 100)
		p.SM, p.MemoryBusy, p.UtilizationKnown = sm, memory, true
		return p
	}
	running := []gpu.Process{busy(10, 0.5, 0.25), busy(20, 0.125, 0), busy(11, 0.25, 0.0625)}
	c := New(Options{
		Targets:   func() []Target { return nil },
		Processes: func() []gpu.Process { return running },
		GPUs:      func() []gpu.Identity { return []gpu.Identity{gpu0} },
	})
	c.options.PodLogs, c.options.ProcFS = twoPods(t)
	check := func(family, pod, want string) {
		t.Helper()
		if got := ofPod(page(t, c), family, pod); got != want {
			t.Errorf("%s of %s: got %q, want %q", family, pod, got, want)
		}
	}
	check("llm_gpu_container_sm_utilization_ratio", "chat", "0.625")
	check("llm_gpu_container_memory_busy_ratio", "chat", "0.25")
	check("llm_gpu_container_sm_utilization_ratio", "batch", "0.25")
	check("llm_gpu_container_memory_busy_ratio", "batch", "0.0625")
	running = append(running, on(21, gpu0, 100))
	check("llm_gpu_container_sm_utilization_ratio", "chat", "0.625")
	check("llm_gpu_container_sm_utilization_ratio", "batch", "")
	check("llm_gpu_container_memory_bytes", "batch", "200")
}

// TestOthers checks that the work of other processes on an engine's GPU is known if the owner of each process there
// is known. Another engine is a neighbour, too.
func TestOthers(t *testing.T) {
	busy := func(pid int, g gpu.Identity, sm float64) gpu.Process {
		p := on(pid, g, 100)
		p.SM, p.UtilizationKnown = sm, true
		return p
	}
	at := func(port string) []string { return []string{loopback4 + " " + port} }
	procFS := newHost(t,
		process{pid: 10, ppid: 1, name: "vllm", listens: at("8000")}, process{pid: 11, ppid: 10, name: "worker"},
		process{pid: 12, ppid: 10, name: "worker"},
		process{pid: 20, ppid: 1, name: "vllm", listens: at("9000")}, process{pid: 21, ppid: 20, name: "worker"},
		process{pid: 30, ppid: 1, name: "train"},
		process{pid: 40, ppid: 1, name: "launcher"}, process{pid: 41, ppid: 40, name: "vllm", listens: at("7000")},
		process{pid: 42, ppid: 40, name: "vllm", listens: at("7001")}, process{pid: 43, ppid: 40, name: "worker"})
	engines := []Target{engine("127.0.0.1:8000"), engine("127.0.0.1:9000"), engine("127.0.0.1:7000"), engine("127.0.0.1:7001")}
	for _, test := range []struct {
		name    string
		running []gpu.Process
		want    string // of 8000 and 9000 on gpu0
	}{
		{"alone", []gpu.Process{busy(11, gpu0, 0.5)}, "0 "},
		{"a training job", []gpu.Process{busy(11, gpu0, 0.25), busy(30, gpu0, 0.625), busy(12, gpu1, 0.5)}, "0.625 "},
		{"two engines", []gpu.Process{busy(11, gpu0, 0.25), busy(21, gpu0, 0.5)}, "0.5 0.25"},
		{"a third one", []gpu.Process{busy(11, gpu0, 0.25), busy(21, gpu0, 0.5), busy(30, gpu0, 0.125)}, "0.625 0.375"},
		{"engine at rest", []gpu.Process{busy(11, gpu0, 0)}, "0 "},
		{"engine not seen to compute", []gpu.Process{busy(11, gpu0, 0), busy(30, gpu0, 0.5)}, " "}, // it may be a Ray worker
		{"time unknown", []gpu.Process{busy(11, gpu0, 0.25), on(30, gpu0, 1)}, " "},
		{"engine's time unknown", []gpu.Process{on(11, gpu0, 1), busy(30, gpu0, 0.5)}, "0.5 "},
		{"hidden process", []gpu.Process{busy(11, gpu0, 0.25), busy(99, gpu0, 0.5)}, " "},
		{"one of two engines'", []gpu.Process{busy(11, gpu0, 0.25), busy(43, gpu0, 0.5)}, " "},
		{"on another GPU", []gpu.Process{busy(11, gpu0, 0.25), busy(30, gpu1, 0.5)}, "0 "},
	} {
		c := New(Options{
			Targets:   func() []Target { return engines },
			Processes: func() []gpu.Process { return test.running },
			GPUs:      func() []gpu.Identity { return []gpu.Identity{gpu0, gpu1} },
			ProcFS:    procFS,
		})
		got := page(t, c)
		of := func(server string) string {
			for line := range strings.Lines(got) {
				if strings.HasPrefix(line, metrics.EngineGPUOthers.Name+"{") && strings.Contains(line, `gpu_uuid="GPU-a"`) &&
					strings.Contains(line, `server="`+server+`"`) {
					return strings.TrimSpace(line[strings.LastIndex(line, " "):])
				}
			}
			return ""
		}
		if got := of("127.0.0.1:8000") + " " + of("127.0.0.1:9000"); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// TestUnreadable checks that processes whose sockets cannot be seen are counted, each once, and only relevant ones.
func TestUnreadable(t *testing.T) {
	c := New(Options{
		Targets: func() []Target { return []Target{engine("127.0.0.1:8000"), engine("127.0.0.1:9000")} },
		Processes: func() []gpu.Process {
			return []gpu.Process{on(10, gpu0, 1), on(11, gpu1, 1)}
		},
		GPUs: func() []gpu.Identity { return []gpu.Identity{gpu0, gpu1} },
		ProcFS: newHost(t, process{pid: 9, ppid: 1, name: "vllm", closed: true}, process{pid: 10, ppid: 9, name: "worker", closed: true},
			process{pid: 11, ppid: 9, name: "worker"},
			process{pid: 20, ppid: 1, name: "postgres", closed: true}),
	})
	if got := page(t, c); !strings.Contains(got, "llm_exporter_unreadable_processes 2\n") {
		t.Errorf("got\n%s", got)
	}
}

// TestThisHost checks, on a real procfs, that a child of a listening process belongs to that process.
func TestThisHost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	c := New(Options{
		Targets:   func() []Target { return []Target{engine(listener.Addr().String()), engine("127.0.0.1:1")} },
		Processes: func() []gpu.Process { return []gpu.Process{on(child.Process.Pid, gpu0, 1)} },
		GPUs:      func() []gpu.Identity { return []gpu.Identity{gpu0} },
	})
	got := page(t, c)
	for clients := range 3 { // both ends of a connection are in the same network namespace
		if n, known := c.Connections(listener.Addr().String()); n != clients || !known {
			t.Errorf("%d connections, known %t, want %d", n, known, clients)
		}
		client, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
	}
	if n, known := c.Connections("127.0.0.1:1"); known {
		t.Errorf("%d connections of a server that is not there", n)
	}
	if !strings.Contains(got, `server="`+listener.Addr().String()+`",source="process"} 1`) || strings.Contains(got, `server="127.0.0.1:1"`) {
		t.Errorf("got\n%s", got)
	}
}
