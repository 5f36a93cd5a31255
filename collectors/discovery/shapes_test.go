package discovery

import (
	"context"
	"encoding/csv"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"k8s.io/client-go/rest"
)

type shape struct {
	name, title string
	serve       func(n node)
	read        string // pod/container:port, role and GPUs of each target
	left        string // ports of the places that are not read, and why, as far as it matters
}

// shapes are pods as the usual operators and charts make them. Engines answer on addresses of the
// loopback, one per pod, on the ports that they have in a cluster; proxies forward to them.
var shapes = []shape{
	{"plain-vllm", "vLLM", func(n node) {
		n.listen(8000, n.engine("vllm/v0.11.2"))
	}, "vllm-6d9f/vllm:8000, 1 GPU", ""},
	{"llm-d-decode", "llm-d, decode: routing proxy before vLLM", func(n node) {
		n.listen(8200, n.engine("vllm/v0.11.2"))
		n.listen(8000, n.proxy(8200))
	}, "ms-decode-0/vllm:8200, decode, 4 GPUs", "8000 its engine is read at"},
	{"llm-d-prefill", "llm-d, prefill", func(n node) {
		n.listen(8000, n.engine("vllm/v0.11.2"))
	}, "ms-prefill-0/vllm:8000, prefill, 2 GPUs", "5557 unreachable"},
	{
		"kserve", "KServe: queue-proxy, joined page", func(n node) {
			e := n.engine("vllm/v0.11.2")
			n.listen(8080, e)
			n.listen(8012, n.proxy(8080))
			n.listen(9088, page(func() string {
				return enginePage("kserve/queue-proxy-otel") + revised(e.page())
			}))
			n.listen(9091, page(func() string { return enginePage("kserve/queue-proxy-otel") }))
		}, "summariser-predictor-00004/kserve-container:8080, 1 GPU",
		"8012 its engine is read at, 9088 its engine is read at, 9091 this is knative",
	},
	{"kserve-transformer", "KServe: transformer beside predictor", func(n node) {
		n.listen(8080, n.engine("kserve/huggingface-vllm"))
		n.listen(8082, page(func() string { return enginePage("kserve/python-server") }))
	}, "embed-predictor-7b/kserve-container:8080, 1 GPU", "8082 KServe's Python server"},
	{"istio", "Istio: native sidecar, joined page; vLLM declares no port", func(n node) {
		e := n.engine("vllm/v0.11.2")
		n.listen(8000, e)
		n.listen(15020, page(func() string { return "# TYPE istio_requests_total counter\nistio_requests_total 3\n" + e.page() }))
	}, "vllm-mesh/vllm:8000, 1 GPU", "15020 its engine is read at"},
	{"opentelemetry", "OpenTelemetry: collector that repeats the page; vLLM declares no port", func(n node) {
		e := n.engine("vllm/v0.11.2")
		old := e.page()
		e.reads.Add(1000)
		n.listen(8000, e)
		n.listen(8888, page(func() string { return "# TYPE otelcol_process_uptime counter\notelcol_process_uptime 7\n" }))
		n.listen(8889, page(func() string { return old }))
	}, "vllm-otel/vllm:8000, 1 GPU", "8888 unknown_engine, 8889 its engine is read at"},
	{"nginx", "nginx before vLLM, which is told its port", func(n node) {
		n.listen(9001, n.engine("vllm/v0.11.2"))
		n.listen(8080, n.proxy(9001))
	}, "vllm-nginx/vllm:9001, 1 GPU", "8080 its engine is read at"},
	{"nginx-llamacpp", "nginx before llama.cpp, idle", func(n node) {
		e := n.engine("llamacpp/b5500")
		e.idle = true
		n.listen(9002, e)
		n.listen(8000, n.proxy(9002))
	}, "gguf/llama:9002, 1 GPU", "8000 its container has no GPU"},
	{"two-engines", "two vLLM servers in one container, started at once", func(n node) {
		n.listen(8000, n.engine("vllm/v0.11.2"))
		n.listen(8001, n.engine("vllm/v0.11.2"))
	}, "vllm-dp/vllm:8000, 2 GPUs; vllm-dp/vllm:8001, 2 GPUs", ""},
	{"two-idle-llamacpp", "two llama.cpp servers in one pod, idle", func(n node) {
		for _, port := range []int{8080, 8081} {
			e := n.engine("llamacpp/b5500")
			e.idle = true
			n.listen(port, e)
		}
	}, "gguf-two/one:8080, 1 GPU; gguf-two/two:8081, 1 GPU", ""},
	{"prefill-decode", "prefill, decode and a proxy in one pod", func(n node) {
		n.listen(8100, n.engine("vllm/v0.24.0-mooncake-prefill"))
		n.listen(8200, n.engine("vllm/v0.14.1-nixl-decode"))
		n.listen(8000, n.proxy(8200))
	}, "pd/decode:8200, 1 GPU; pd/prefill:8100, 1 GPU", "8000 its engine is read at"},
	{"leaderworkerset", "LeaderWorkerSet: leader and worker", func(n node) {
		n.listen(8080, n.engine("vllm/v0.11.2"))
	}, "vllm-0/vllm-leader:8080, 8 GPUs", "8000 unreachable"},
	{"ray", "Ray Serve: two replicas behind Ray's agent", func(n node) {
		n.listen(8080, n.engine("vllm/ray-v0.12"))
	}, "ray-gpu-worker/ray-worker:8080, 2 GPUs", "8000 unreachable"},
	{"dynamo", "Dynamo: frontend and worker", func(n node) {
		n.listen(8000, n.engine("dynamo/frontend"))
		n.next().listen(9090, n.engine("dynamo/worker-vllm"))
	}, "agg-vllm-worker/main:9090, 1 GPU", ""},
	{"nim", "NIM: another port than it declares, /v1/metrics", func(n node) {
		e := n.engine("nim/1.x")
		e.path = "/v1/metrics"
		n.listen(8001, e)
	}, "nim-llm-0/nim-llm:8001, 1 GPU", "8000 unreachable"},
	{"host-network", "the node's network: vLLM and a training job", func(n node) {
		n.listen(8000, n.engine("vllm/v0.11.2"))
	}, "vllm-host/vllm:8000, 1 GPU", " its pod is on the node's network and names no port"},
}

// revised is an engine's metrics page as KServe joins it: with three more labels.
func revised(page string) string {
	const more = `service_name="s",configuration_name="s",revision_name="r"`
	page = regexp.MustCompile(`(?m)^([a-zA-Z_:]+) `).ReplaceAllString(page, "$1{"+more+"} ")
	return regexp.MustCompile(`(?m)^([a-zA-Z_:]+)\{([^s])`).ReplaceAllString(page, "$1{"+more+",$2")
}

// TestShapes runs discovery over the pods of each shape, through the API, and reads the found engines: every engine
// is read once, under its own container.
func TestShapes(t *testing.T) {
	for i, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			s.check(t, i, c.config(), c.put)
		})
	}
}

// check runs discovery over the pods of a shape, which put creates at the API.
func (s shape) check(t *testing.T, i int, api *rest.Config, put func(t *testing.T, pod string)) {
	n := node{t, &network{first: fmt.Sprintf("127.%d.%d.", 20+os.Getpid()%200, i+1)}, 1}
	s.serve(n)
	log := &lines{}
	gpus := map[string]int{}
	text, err := os.ReadFile("testdata/pods/" + s.name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	for i, pod := range strings.Split(strings.TrimSpace(string(text)), "\n---\n") {
		at := n.first + strconv.Itoa(i+1)
		if strings.Contains(pod, "hostNetwork: true") {
			at = n.first + "1"
		}
		pod += "\nstatus: {phase: Running, podIP: " + at + ", hostIP: " + at + "}\n"
		put(t, pod)
		addGPUs(t, pod, gpus)
	}
	e := find(t, pods(t, api, log), log)
	read := func() (all []string) {
		for _, target := range e.targets() {
			u, _ := url.Parse(target.URL)
			l := target.Labels
			container := l["pod"] + "/" + l["container"]
			role := strings.Trim(", "+l["role"], ", ")
			if role != "" {
				role = ", " + role
			}
			all = append(all, fmt.Sprintf("%s:%s%s, %d GPU%s", container, u.Port(), role, gpus[container],
				map[bool]string{true: "s"}[gpus[container] != 1]))
		}
		slices.Sort(all)
		return all
	}
	eventually(t, func() bool { return len(e.current().Engines()) > 0 && settled(e) }, func() any { return log })
	if got := strings.Join(read(), "; "); got != s.read {
		t.Errorf("read %s\nwant %s", got, s.read)
	}
	for want := range strings.SplitSeq(s.left, ", ") {
		port, why, _ := strings.Cut(want, " ")
		seen, _ := e.Places()
		if want != "" && !slices.ContainsFunc(seen, func(p Seen) bool {
			u, err := url.Parse(p.URL)
			return err == nil && u.Port() == port && strings.Contains(p.Why, why)
		}) {
			t.Errorf("/engines does not say of %s: %s\n%+v", port, why, seen)
		}
	}
	sent, counted := 0, sum(t, e, "llm_engine_requests_running")
	for _, p := range n.processes {
		if p.file != "dynamo/frontend" { // the worker runs the engine
			sent += p.running()
		}
	}
	if counted != sent {
		t.Errorf("%d requests run, %d are counted", sent, counted)
	}
	left := slices.DeleteFunc(strings.Split(s.left, ", "), func(l string) bool {
		return !strings.Contains(l, "its engine") &&
			!strings.Contains(l, "no GPU")
	})
	for i := range left {
		left[i], _, _ = strings.Cut(left[i], " ")
	}
	row := []string{s.title, s.read, strings.Join(left, ", "), fmt.Sprintf("%d of %d", counted/5, sent/5)}
	table, err := os.Open("../../docs/pods.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	rows, err := csv.NewReader(table).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(rows, func(r []string) bool { return slices.Equal(r, row) }) {
		t.Errorf("docs/pods.csv lacks the row\n%q", row)
	}
}

// settled reports whether every place has been probed.
func settled(e *exporter) bool {
	seen, err := e.Places()
	return err == nil && !slices.ContainsFunc(seen, func(p Seen) bool { return p.State == unexamined })
}

// addGPUs records the devices that the kubelet gives to the containers of a pod.
func addGPUs(t *testing.T, text string, to map[string]int) {
	var p struct {
		Metadata struct{ Name string }
		Spec     struct {
			Containers []struct {
				Name      string
				Resources struct{ Limits map[string]string }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Spec.Containers {
		to[p.Metadata.Name+"/"+c.Name], _ = strconv.Atoi(c.Resources.Limits["nvidia.com/gpu"])
	}
}

// sum adds up a family of the exporter's metrics.
func sum(t *testing.T, e *exporter, family string) (total int) {
	var b strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := e.current().Scrape(ctx).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^`+family+`\{.*\} (\d+)$`).FindAllStringSubmatch(b.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		total += n
	}
	return total
}

// node holds the addresses of the pods of a shape: the first pod has the first address.
type node struct {
	t *testing.T
	*network
	pod int
}

type network struct {
	first     string
	processes []*process
}

func (n node) next() node { return node{n.t, n.network, n.pod + 1} }

func (n node) listen(port int, h http.Handler) {
	n.t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("%s%d:%d", n.first, n.pod, port))
	if err != nil {
		n.t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go s.Serve(l)
	n.t.Cleanup(func() { s.Close() })
}

// proxy forwards everything to another port of the pod.
func (n node) proxy(port int) http.Handler {
	return httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: fmt.Sprintf("%s%d:%d", n.first, n.pod, port)})
}

// engine is a process that serves a metrics page of testdata. Its counters rise with each read, and start at values
// that no other engine has.
func (n node) engine(file string) *process {
	p := &process{file: file, path: "/metrics", id: len(n.processes)}
	n.network.processes = append(n.network.processes, p)
	return p
}

type process struct {
	file, path string
	id         int
	idle       bool // the engine has answered no request so far; its first requests run
	reads      atomic.Int64
}

func (p *process) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != p.path {
		http.NotFound(w, r)
		return
	}
	p.reads.Add(1)
	w.Write([]byte(p.page()))
}

var (
	runningNow = regexp.MustCompile(`(?m)^(\w*:?(?:num_requests_running|requests_processing)(?:\{.*\})?) \S+$`)
	typeLine   = regexp.MustCompile(`^# TYPE (\S+) (counter|histogram)`)
	series     = regexp.MustCompile(`^([^ {]+(?:\{.*\})?) (\S+)$`)
)

// running is how many requests run in the engine.
func (p *process) running() int { return 5 * len(runningNow.FindAllString(enginePage(p.file), -1)) }

func (p *process) page() string {
	var b strings.Builder
	rises := ""
	for line := range strings.Lines(enginePage(p.file)) {
		if m := typeLine.FindStringSubmatch(line); m != nil {
			rises = m[1]
		} else if strings.HasPrefix(line, "# TYPE") {
			rises = ""
		}
		if m := series.FindStringSubmatch(strings.TrimSpace(line)); m != nil && rises != "" && strings.HasPrefix(m[1], rises) {
			v, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				panic(err)
			}
			v += float64(p.reads.Load()) + 1e4*float64(p.id)
			if p.idle {
				v = 0
			}
			line = m[1] + " " + strconv.FormatFloat(v, 'g', -1, 64) + "\n"
		}
		b.WriteString(line)
	}
	return runningNow.ReplaceAllString(b.String(), "$1 5")
}

func enginePage(file string) string {
	text, err := os.ReadFile("../engine/testdata/pages/" + file + ".prom")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// page serves a text at /metrics, or at Istio's path.
type page func() string

func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/metrics" && r.URL.Path != "/stats/prometheus" {
		http.NotFound(w, r)
		return
	}
	w.Write([]byte(p()))
}
