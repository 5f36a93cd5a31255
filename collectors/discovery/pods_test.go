package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

func parsePod(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// running returns a pod in the form in which the API server sends it.
func running(name, spec string, more ...string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\n  namespace: llm\n" + strings.Join(more, "") +
		"spec:\n  nodeName: n1\n" + spec + "status: {phase: Running, podIP: 10.0.0.5, hostIP: 192.0.2.7, podIPs: [{ip: 10.0.0.5}]}\n"
}

const gpuContainer = "  containers:\n  - {name: server, image: vllm, ports: [{containerPort: 8000, protocol: TCP}], resources: " +
	"{limits: {nvidia.com/gpu: '2', cpu: 4}}}\n"

func annotated(pairs ...string) string { return "  annotations: {" + strings.Join(pairs, ", ") + "}\n" }
func labelled(pairs ...string) string  { return "  labels: {" + strings.Join(pairs, ", ") + "}\n" }

// TestPlacesOfPods checks the probed ports of pods. + marks a declared place, - a place that is left alone.
func TestPlacesOfPods(t *testing.T) {
	cpu := strings.Replace(gpuContainer, "nvidia.com/gpu: '2', ", "", 1)
	for _, c := range []struct {
		name, pod string
		want      []string
	}{
		{"a pod with a GPU", running("a", gpuContainer), []string{"http://10.0.0.5:8000 server"}},
		{"a pod without one", running("a", cpu), nil},
		{
			"MIG", running("a", strings.Replace(gpuContainer, "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", 1)),
			[]string{"http://10.0.0.5:8000 server"},
		},
		{"DRA", running("a", strings.Replace(cpu, "limits: {cpu: 4}", "claims: [{name: gpu}]", 1)), []string{"http://10.0.0.5:8000 server"}},
		{"the host's network", running("a", "  hostNetwork: true\n"+gpuContainer), []string{"http://192.0.2.7:8000 server"}},
		{"IPv6", strings.Replace(running("a", gpuContainer), "podIP: 10.0.0.5", "podIP: 'fd00::5'", 1), []string{"http://[fd00::5]:8000 server"}},
		{"another node", strings.Replace(running("a", gpuContainer), "nodeName: n1", "nodeName: n2", 1), nil},
		{"not yet running", strings.Replace(running("a", gpuContainer), "phase: Running", "phase: Pending", 1), nil},
		{"completed", strings.Replace(running("a", gpuContainer), "phase: Running", "phase: Succeeded", 1), nil},
		{"no address yet", strings.Replace(running("a", gpuContainer), "podIP: 10.0.0.5, ", "", 1), nil},
		{"several engines and a sidecar in one pod", running("a", `  initContainers:
  - {name: proxy, restartPolicy: Always, ports: [{containerPort: 9000}]}
  - {name: download, ports: [{containerPort: 1}]}
  containers:
  - {name: one, ports: [{containerPort: 8000}, {containerPort: 5557, protocol: UDP}], resources: {limits: {nvidia.com/gpu: 1}}}
  - {name: two, ports: [{containerPort: 8001}]}
`), []string{"http://10.0.0.5:8000 one", "http://10.0.0.5:8001 two", "http://10.0.0.5:9000 proxy"}},
		{
			"no port declared", running("a", "  containers:\n  - {name: server, resources: {limits: {nvidia.com/gpu: 1}}}\n"),
			[]string{
				"http://10.0.0.5:8000 server", "http://10.0.0.5:8080 server", "http://10.0.0.5:30000 server", "http://10.0.0.5:80 server",
				"http://10.0.0.5:3000 server", "http://10.0.0.5:8002 server", "http://10.0.0.5:23333 server", "http://10.0.0.5:11434 server",
			},
		},
		{
			"Prometheus' annotation is asked first", running("a", gpuContainer, annotated("prometheus.io/port: '9090'")),
			[]string{"http://10.0.0.5:9090 server", "http://10.0.0.5:8000 server"},
		},
		{
			"its path and scheme are about that port", running("a", gpuContainer, annotated("prometheus.io/port: '9090'",
				"prometheus.io/path: /v1/metrics", "prometheus.io/scheme: https")),
			[]string{"https://10.0.0.5:9090/v1/metrics server", "http://10.0.0.5:8000 server"},
		},
		{
			"without a port about the engine's", running("a", strings.Replace(gpuContainer, "  containers:\n",
				"  containers:\n  - {name: nginx, ports: [{containerPort: 80}]}\n", 1), annotated("prometheus.io/path: /v1/metrics")),
			[]string{"http://10.0.0.5:8000/v1/metrics server", "http://10.0.0.5:80 nginx"},
		},
		{
			"ours win", running("a", gpuContainer, annotated("prometheus.io/path: /v1/metrics", "prometheus.io/scheme: https",
				"llm-node-exporter/path: /m", "llm-node-exporter/scheme: http")),
			[]string{"http://10.0.0.5:8000/m server"},
		},
		{"a path and a scheme that are none", running("a", gpuContainer, annotated("prometheus.io/path: '@evil.example/'",
			"prometheus.io/scheme: file")), []string{"http://10.0.0.5:8000 server"}},
		{
			"told its port", running("a", strings.Replace(gpuContainer, "image: vllm",
				"args: [--model, m, --port, '8200', --data-parallel-rpc-port, '13345']", 1)),
			[]string{"http://10.0.0.5:8200 server", "http://10.0.0.5:8000 server"},
		},
		{
			"in a line for a shell, by a variable",
			running("a", "  containers:\n  - {name: server, command: [sh, -c, 'exec vllm serve m --port=\"${API}\" --host ::'], env: [{name: "+
				"API, value: '9001'}], resources: {limits: {nvidia.com/gpu: 1}}}\n"),
			[]string{"http://10.0.0.5:9001 server"},
		},
		{
			"by an engine's own variable",
			running("a", "  containers:\n  - {name: server, env: [{name: NIM_SERVER_PORT, value: '9002'}], resources: {limits: "+
				"{nvidia.com/gpu: 1}}}\n"),
			[]string{"http://10.0.0.5:9002 server"},
		},
		{
			"by one that holds an address",
			running("a", "  containers:\n  - {name: server, env: [{name: OLLAMA_HOST, value: '0.0.0.0:9003'}], resources: {limits: "+
				"{nvidia.com/gpu: 1}}}\n"),
			[]string{"http://10.0.0.5:9003 server"},
		},
		{"by what is no port", running("a", strings.Replace(gpuContainer, "image: vllm",
			"args: [--port, '$(SECRET)', --port, '99999', --port]", 1)), []string{"http://10.0.0.5:8000 server"}},
		{
			"Ray's port is no engine's",
			running("a", "  containers:\n  - {name: server, command: [sh, -c, 'ray start --head --port=6379 && vllm serve m --port 8200'], "+
				"resources: {limits: {nvidia.com/gpu: 1}}}\n"),
			[]string{"http://10.0.0.5:8200 server"},
		},
		{
			"a sidecar that declares a port does not speak for the engine",
			running("a", "  initContainers:\n  - {name: istio-proxy, restartPolicy: Always, ports: [{containerPort: 15090}]}\n  containers:\n  "+
				"- {name: server, resources: {limits: {nvidia.com/gpu: 1}}}\n"),
			[]string{
				"http://10.0.0.5:8000 server", "http://10.0.0.5:8080 server", "http://10.0.0.5:30000 server", "http://10.0.0.5:80 server",
				"http://10.0.0.5:3000 server", "http://10.0.0.5:8002 server", "http://10.0.0.5:23333 server", "http://10.0.0.5:11434 server",
				"http://10.0.0.5:15090 istio-proxy",
			},
		},
		{
			"the only port of an engine type is a sidecar's", running("a",
				"  containers:\n  - {name: server, args: [--port, '8200'], resources: {limits: {nvidia.com/gpu: 1}}}\n  - {name: proxy, ports: "+
					"[{containerPort: 8000}]}\n", labelled("llm-d.ai/engine-type: vllm")),
			[]string{"http://10.0.0.5:8200 server", "http://10.0.0.5:8000 proxy"},
		},
		{
			"the host's network, no port named",
			running("a", "  hostNetwork: true\n  containers:\n  - {name: server, resources: {limits: {nvidia.com/gpu: 1}}}\n  - {name: agent, "+
				"ports: [{containerPort: 9100}]}\n"),
			[]string{"-http://192.0.2.7 server", "http://192.0.2.7:9100 agent"},
		},
		{
			"the host's network, annotated",
			running("a", "  hostNetwork: true\n  containers:\n  - {name: server, resources: {limits: {nvidia.com/gpu: 1}}}\n",
				annotated("prometheus.io/port: '8000'")),
			[]string{"http://192.0.2.7:8000 server"},
		},
		{
			"the host's network, told its port",
			running("a", "  hostNetwork: true\n  containers:\n  - {name: server, args: [--port=8000], resources: {limits: {nvidia.com/gpu: 1}}}\n"),
			[]string{"http://192.0.2.7:8000 server"},
		},
		{
			"llm-d's label on a pod without a GPU", running("a", cpu, labelled("llm-d.ai/engine-type: sglang", "llm-d.ai/role: decode")),
			[]string{"+http://10.0.0.5:8000 server sglang decode"},
		},
		{
			"the older label", running("a", cpu, labelled("inference.networking.k8s.io/engine-type: trtllm-serve")),
			[]string{"+http://10.0.0.5:8000 server trtllm"},
		},
		{"a label that says nothing", running("a", cpu, labelled("llm-d.ai/engine-type: something")), nil},
		{
			"our annotations", running("a", cpu, annotated("llm-node-exporter/port: '8000, 7000'", "llm-node-exporter/engine: vllm",
				"llm-node-exporter/scheme: https", "llm-node-exporter/path: /m")),
			[]string{"+https://10.0.0.5:8000/m server vllm", "+https://10.0.0.5:7000/m  vllm"},
		},
		{"keep away", running("a", gpuContainer, annotated("llm-node-exporter/scrape: 'false'")), nil},
		{"not a port", running("a", gpuContainer, annotated("llm-node-exporter/port: '99999'")), nil},
		{"not a scheme", running("a", gpuContainer, annotated("llm-node-exporter/scheme: 'file'")), nil},
		{"llama.cpp that sleeps", running("a", strings.Replace(gpuContainer, "image: vllm", "args: [-m, x.gguf, --sleep-idle-seconds, '60']",
			1)), []string{"-http://10.0.0.5:8000 server"}},
		{"by its environment", running("a", strings.Replace(gpuContainer, "image: vllm",
			"env: [{name: LLAMA_ARG_SLEEP_IDLE_SECONDS, value: '60'}]", 1)), []string{"-http://10.0.0.5:8000 server"}},
		{
			"that sleeps, declared", running("a", strings.Replace(gpuContainer, "image: vllm",
				"command: [sh, -c, 'llama-server --sleep-idle-seconds 60']", 1), annotated("llm-node-exporter/port: '8000'")),
			[]string{"+http://10.0.0.5:8000 server"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := kube.Decode[pod](parsePod(t, c.pod))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, at := range places([]*pod{p}, "n1", slog.New(slog.DiscardHandler), &sockets{}) {
				if at.Target.Labels["namespace"] != "llm" || at.Target.Labels["pod"] != "a" {
					t.Errorf("labels %v", at.Target.Labels)
				}
				sign := map[bool]string{true: "+"}[at.Declared] + map[bool]string{true: "-"}[at.LeaveAlone != ""]
				got = append(got, strings.TrimRight(fmt.Sprintf("%s%s %s %s %s", sign, at.Target.URL, at.Target.Labels["container"],
					at.Target.Engine, at.Target.Labels["role"]), " "))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// TestArguments checks the words that a pod gives on the command line, with its variables, whether or not a shell
// runs it.
func TestArguments(t *testing.T) {
	for name, c := range map[string]struct {
		pod  string
		want []string
	}{
		"the image's entrypoint": {
			`{"args": ["serve", "m", "--dtype=half", "--speculative-config", "{\"method\": \"mtp\"}"]}`,
			[]string{"serve", "m", "--dtype=half", "--speculative-config", `{"method": "mtp"}`},
		},
		"variables": {
			`{"command": ["vllm"], "args": ["--model=$(MODEL)", "--seed=$(NONE)"], "env": [{"name": "MODEL", "value": "org/m"}]}`,
			[]string{"vllm", "--model=org/m", "--seed="},
		},
		"a shell": {
			`{"command": ["/bin/bash", "-ec"], "args": ["export A=1\nexec vllm serve \"$MODEL\" \\\n  --dtype half --speculative-config '{\"method\": \"mtp\"}'; echo"], "env": [{"name": "MODEL", "value": "org/m"}]}`,
			[]string{
				"/bin/bash", "-ec", "export", "A=1", "exec", "vllm", "serve", "org/m", "--dtype", "half", "--speculative-config",
				`{"method": "mtp"}`, "echo",
			},
		},
		"a script of the image": {`{"command": ["/start.sh"], "args": ["-c", "a b"]}`, []string{"/start.sh", "-c", "a b"}},
	} {
		var one container
		if err := json.Unmarshal([]byte(c.pod), &one); err != nil {
			t.Fatal(name, err)
		}
		if got := one.arguments(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestContestedPort checks that pods of the node's network that name one port are not read under each other's names.
func TestContestedPort(t *testing.T) {
	shared := func(name string, more ...string) string {
		return running(name, "  hostNetwork: true\n"+gpuContainer, more...)
	}
	for _, c := range []struct {
		pods []string
		want []string
	}{
		{[]string{shared("a"), shared("b")}, []string{"left a", "left b"}},
		{[]string{shared("a"), shared("b", annotated("llm-node-exporter/port: '8000'"))}, []string{"left a", "read b"}},
		{
			[]string{shared("a", annotated("llm-node-exporter/port: '8000'")), shared("b", annotated("llm-node-exporter/port: '8000'"))},
			[]string{"left a", "left b"},
		},
		{[]string{shared("a"), running("b", gpuContainer)}, []string{"read a", "read b"}},
	} {
		var pods []*pod
		for _, text := range c.pods {
			p, err := kube.Decode[pod](parsePod(t, text))
			if err != nil {
				t.Fatal(err)
			}
			pods = append(pods, p)
		}
		var got []string
		for _, at := range places(pods, "n1", slog.New(slog.DiscardHandler), &sockets{}) {
			state := "read "
			if at.LeaveAlone != "" {
				state = "left "
			}
			got = append(got, state+at.Target.Labels["pod"])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestListenerOfContestedPort checks two pods that name one port of the node: only the pod whose process has the
// socket open is read. The socket is real; only the cgroup, which names the pod, is not.
func TestListenerOfContestedPort(t *testing.T) {
	address, pid := listener(t)
	host, port, _ := strings.Cut(address, ":")
	id := func(name string) string { return "0a1b2c3d-0000-4000-8000-00000000000" + name }
	procfs := t.TempDir()
	c, log := newCluster(t), &lines{}
	for _, name := range []string{"a", "b", "c"} {
		c.put(t, strings.NewReplacer("192.0.2.7", host, "containerPort: 8000", "containerPort: "+port).
			Replace(running(name, "  hostNetwork: true\n"+gpuContainer, "  uid: "+id(name)+"\n")))
	}
	source := pods(t, c.config(), log)
	source.sockets.procfs, source.interval = procfs, 50*time.Millisecond
	e := find(t, source, log)
	left := func(want int) []Seen {
		t.Helper()
		var seen []Seen
		eventually(t, func() bool { seen, _ = e.Places(); return len(seen) == want }, func() any { return seen })
		return seen
	}
	left(3)

	dir := filepath.Join(procfs, strconv.Itoa(pid)) // the process has started
	err := errors.Join(os.Mkdir(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "cgroup"), []byte("0::/kubepods/burstable/pod"+id("b")+"/"+strings.Repeat("ab", 32)+"\n"), 0o600))
	for _, name := range []string{"fd", "ns", "net", "stat"} {
		err = errors.Join(err, os.Symlink(fmt.Sprintf("/proc/%d/%s", pid, name), filepath.Join(dir, name)))
	}
	if err != nil {
		t.Fatal(err)
	}
	e.until(t, "llm/b/server "+address)
	seen := left(2)
	for _, s := range seen {
		if s.State != LeftAlone || !strings.Contains(s.Why, "llm/b listens") {
			t.Errorf("for a person: %+v", s)
		}
	}

	if err := os.RemoveAll(dir); err != nil { // the process has ended, and stays a target of its pod
		t.Fatal(err)
	}
	c.remove("llm/c")
	left(1)
	e.until(t, "llm/b/server "+address)
}

// TestHostilePod checks that a pod can make the exporter probe only a few ports, and only its own.
func TestHostilePod(t *testing.T) {
	var listed []string
	for port := range 1000 {
		listed = append(listed, fmt.Sprintf("{containerPort: %d}", port+1))
	}
	many := "  containers:\n  - {name: x, resources: {limits: {nvidia.com/gpu: 1}}, ports: [" + strings.Join(listed, ",") + "]}\n"
	for path, want := range map[string]int{"/m": maxPorts, "@evil.example/": 0, "9": 0, "//evil.example/m": maxPorts} {
		p, err := kube.Decode[pod](parsePod(t, running("a", many, annotated("llm-node-exporter/path: '"+path+"'"))))
		if err != nil {
			t.Fatal(err)
		}
		all := places([]*pod{p}, "n1", slog.New(slog.DiscardHandler), &sockets{})
		if len(all) != want {
			t.Errorf("%s: %d places", path, len(all))
		}
		for _, at := range all {
			if u, err := url.Parse(at.Target.URL); err != nil || u.Hostname() != "10.0.0.5" {
				t.Errorf("%s leads to %s", path, at.Target.URL)
			}
		}
	}
}

// TestRuntimesOfLabels checks the values of llm-d's label (its engine types) and their runtimes.
func TestRuntimesOfLabels(t *testing.T) {
	for value, want := range map[string]metrics.Runtime{
		"vllm": metrics.VLLM, "sglang": metrics.SGLang, "trtllm-serve": metrics.TensorRTLLM,
		"triton-tensorrt-llm": metrics.TritonTRTLLM, "triton": metrics.Triton, "another": "",
	} {
		var p pod
		p.Metadata.Labels = map[string]string{engineTypes[0]: value}
		if got := p.engineType(); got != want {
			t.Errorf("%s is %q, want %q", value, got, want)
		}
	}
}
