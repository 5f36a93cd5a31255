package discovery

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
)

// vllm answers like an engine.
func vllm(t *testing.T) *httptest.Server {
	return answering(t, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 1\n")
}

func answering(t *testing.T, page string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, page)
	}))
	t.Cleanup(s.Close)
	return s
}

// exporter holds the engines that a finder has found, in the form that the node process reads.
type exporter struct {
	*Finder
	mu      sync.Mutex
	engines *engine.Collector
	log     *lines
}

func (e *exporter) current() *engine.Collector {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.engines
}

// find runs a finder over a source until the test ends.
func find(t *testing.T, source Source, log *lines) *exporter {
	t.Helper()
	c, err := engine.New(engine.Config{UserAgent: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	e := &exporter{engines: c, log: log}
	e.Finder = New(Options{
		Logger: slog.New(slog.NewTextHandler(log, nil)), Source: source,
		Probe: func(ctx context.Context, target engine.TargetConfig) (engine.Engine, error) {
			return e.current().Probe(ctx, target)
		},
		Found: func(targets []engine.TargetConfig) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.engines, err = e.engines.With(targets); err != nil {
				t.Error(err)
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return e
}

// servers returns the metrics pages that are read, with their pods.
func (e *exporter) servers() []string {
	var all []string
	for _, one := range e.current().Engines() {
		all = append(all, strings.Trim(one.Namespace+"/"+one.Pod+"/"+one.Container+" "+one.Server, "/ "))
	}
	slices.Sort(all)
	return all
}

// until waits for the engines that are read.
func (e *exporter) until(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() bool { return slices.Equal(e.servers(), want) }, func() any { return e.servers() })
}

func eventually(t *testing.T, ok func() bool, state func() any) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still %v", state())
		}
	}
}

// metric returns the value of a series of the finder, written with sorted labels, or -1 if there is none.
func metric(t *testing.T, c prometheus.Collector, series string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if f.GetName()+"{"+strings.Join(labels, ",")+"}" == series {
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// cluster imitates the API server that discovery uses: it lists pods by a field selector and sends changes. A
// test makes it refuse, or closes it.
type cluster struct {
	*httptest.Server
	mu       sync.Mutex
	version  int
	pods     map[string]map[string]any
	watchers map[chan map[string]any]string
	refuse   bool
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{pods: map[string]map[string]any{}, watchers: map[chan map[string]any]string{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(func() { c.CloseClientConnections(); c.Close() })
	return c
}

func (c *cluster) config() *rest.Config { return &rest.Config{Host: c.URL} }

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	node, ok := strings.CutPrefix(q.Get("fieldSelector"), "spec.nodeName=")
	fail := func(code int, reason, message string) {
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
			"message": message, "code": code,
		})
	}
	c.mu.Lock()
	refuse := c.refuse
	c.mu.Unlock()
	switch {
	case refuse:
		fail(403, "Forbidden", `pods is forbidden: User "system:serviceaccount:x:y" cannot list resource "pods" in API group "" at the cluster scope`)
	case !strings.HasSuffix(r.URL.Path, "/pods") || !ok:
		fail(404, "NotFound", r.URL.String())
	case q.Get("sendInitialEvents") != "":
		fail(422, "Invalid", "sendInitialEvents is forbidden: an older API server")
	case q.Get("watch") == "true":
		c.watch(w, r, node)
	default:
		namespace := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "namespaces/"), "pods")
		c.mu.Lock()
		defer c.mu.Unlock()
		items := []any{}
		for name, pod := range c.pods {
			if onNode(pod) == node && strings.HasPrefix(name, namespace) {
				items = append(items, pod)
			}
		}
		json.NewEncoder(w).Encode(map[string]any{
			"kind": "PodList", "apiVersion": "v1",
			"metadata": map[string]any{"resourceVersion": strconv.Itoa(c.version)}, "items": items,
		})
	}
}

func (c *cluster) watch(w http.ResponseWriter, r *http.Request, node string) {
	events := make(chan map[string]any, 64)
	c.mu.Lock()
	c.watchers[events] = node
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, events)
	}()
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-events:
			json.NewEncoder(w).Encode(event)
			w.(http.Flusher).Flush()
		}
	}
}

func onNode(pod map[string]any) string {
	spec, _ := pod["spec"].(map[string]any)
	node, _ := spec["nodeName"].(string)
	return node
}

// put creates or changes a pod.
func (c *cluster) put(t *testing.T, pod string) {
	t.Helper()
	object := parsePod(t, pod)
	meta := object["metadata"].(map[string]any)
	name := meta["namespace"].(string) + "/" + meta["name"].(string)
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := "ADDED"
	if _, ok := c.pods[name]; ok {
		kind = "MODIFIED"
	}
	c.version++
	meta["resourceVersion"] = strconv.Itoa(c.version)
	c.pods[name] = object
	c.send(kind, object)
}

func (c *cluster) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	object := c.pods[name]
	delete(c.pods, name)
	c.version++
	object["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(c.version)
	c.send("DELETED", object)
}

func (c *cluster) send(kind string, object map[string]any) {
	for events, node := range c.watchers {
		if onNode(object) == node {
			events <- map[string]any{"type": kind, "object": object}
		}
	}
}

// watching reports whether a client watches for changes.
func (c *cluster) watching() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.watchers) > 0
}
