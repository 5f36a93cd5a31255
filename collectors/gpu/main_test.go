//go:build linux && cgo

package gpu

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// NVML is bound once per process, permanently, and the tested code can end the process. So the tests run the collector
// in a process of its own: this binary, started again with a configuration in its environment.
const childEnv = "GPU_TEST_CHILD"

type childConfig struct {
	Library, SysFS, ProcFS, Kmsg               string
	Interval, Slow, Deadline, RestartAfterTime time.Duration
	Budget                                     float64 // zero: all of the time
}

func TestMain(m *testing.M) {
	if config := os.Getenv(childEnv); config != "" {
		if err := child(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		return
	}
	e2e.Short("HalfAreOutOfOrder|DeadGPU|DriverBudget|OneOfEightHangs|CountHangs")
	code := m.Run()
	if libraries.dir != "" {
		os.RemoveAll(libraries.dir)
	}
	os.Exit(code)
}

// child serves /metrics and /-/detach until it is stopped.
func child(config string) error {
	var c childConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	collector := New(Options{
		Logger:       slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Interval:     c.Interval,
		SlowInterval: c.Slow,
		Deadline:     c.Deadline,
		Budget:       cmp.Or(c.Budget, 1),
		RestartAfter: c.RestartAfterTime,
		LibraryPath:  c.Library,
		SysFS:        c.SysFS,
		ProcFS:       c.ProcFS,
		Kmsg:         c.Kmsg,
	})
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(collector); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/-/detach", collector.DetachHandler())
	mux.HandleFunc("/attach", func(http.ResponseWriter, *http.Request) { collector.Attach() })
	mux.HandleFunc("/processes", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(collector.Processes()) })
	mux.HandleFunc("/goroutines", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(runtime.NumGoroutine()) })
	mux.HandleFunc("/instances", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(collector.Instances()) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(listener, mux) }()
	fmt.Println(listener.Addr())
	return collector.Run(ctx)
}

// libraries holds the fake libraries that were built, by the functions that they lack.
var libraries struct {
	sync.Mutex
	dir   string
	built map[string]string
}

// fakeLibrary returns a directory with a fake library of its own.
func fakeLibrary(t testing.TB, without ...string) (path string) {
	t.Helper()
	libraries.Lock()
	defer libraries.Unlock()
	var err error
	if libraries.dir == "" {
		libraries.built = make(map[string]string)
		if libraries.dir, err = os.MkdirTemp("", "fakenvml"); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(without)
	key := strings.Join(without, " ")
	if libraries.built[key] == "" {
		dir := filepath.Join(libraries.dir, fmt.Sprint(len(libraries.built)))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		lib, err := fakenvml.Build(dir, without...)
		if errors.Is(err, fakenvml.ErrNoCompiler) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		libraries.built[key] = lib
	}
	content, err := os.ReadFile(libraries.built[key])
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// node is a collector in a process of its own, and the GPUs it sees.
type node struct {
	*fakenvml.State
	t      testing.TB
	cmd    *exec.Cmd
	url    string
	stderr *lockedBuffer
	config childConfig
	done   chan error
}

// hostProcs returns a procfs with the processes of a host: kthreadd, and processes with these names.
func hostProcs(t testing.TB, commands ...string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Symlink("/proc/uptime", filepath.Join(root, "uptime")); err != nil {
		t.Fatal(err)
	}
	for i, command := range append([]string{"kthreadd"}, commands...) {
		put(t, filepath.Join(root, strconv.Itoa(2+i), "comm"), command+"\n")
	}
	return root
}

// put writes a file and the directories above it.
func put(t testing.TB, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// newNode describes a node; start starts its collector. Scenarios with a GPU that hangs shorten the
// deadline.
func newNode(t testing.TB, gpus int, lib string, descriptions ...string) *node {
	t.Helper()
	state, err := fakenvml.NewState(lib, gpus, descriptions...)
	if err != nil {
		t.Fatal(err)
	}
	return &node{State: state, t: t, config: childConfig{
		Library:          lib,
		SysFS:            busWith(t, gpus),
		ProcFS:           hostProcs(t),
		Kmsg:             "none",
		Interval:         120 * time.Millisecond,
		Slow:             200 * time.Millisecond,
		Deadline:         20 * time.Second,
		RestartAfterTime: -1,
	}}
}

func (n *node) start() *node {
	n.t.Helper()
	config, err := json.Marshal(n.config)
	if err != nil {
		n.t.Fatal(err)
	}
	n.cmd = exec.Command(os.Args[0])
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // if the test is killed
	n.cmd.Env = append(os.Environ(), childEnv+"="+string(config))
	n.stderr = new(lockedBuffer)
	n.cmd.Stderr = n.stderr
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	n.done = make(chan error, 1)
	go func() { n.done <- n.cmd.Wait() }()
	n.t.Cleanup(func() { _ = n.cmd.Process.Kill() })
	if err != nil {
		n.t.Fatalf("the collector did not start: %v\n%s", <-n.done, n.stderr)
	}
	n.url = "http://" + strings.TrimSpace(line)
	return n
}

// stop ends the collector as its supervisor would, and requires that it ends well: exit status 127 would mean that
// a driver function was called that the library lacks.
func (n *node) stop() {
	n.t.Helper()
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-n.done:
		if err != nil {
			n.t.Errorf("the collector ended with %v\n%s", err, n.stderr)
		}
	case <-e2e.TooLate(n.t):
		n.t.Errorf("the collector did not end\n%s", n.stderr)
	}
}

// page fetches the metrics page.
func (n *node) page() string {
	n.t.Helper()
	response, err := http.Get(n.url + "/metrics")
	if err != nil {
		var exit error
		select {
		case exit = <-n.done:
		case <-time.After(time.Second):
		}
		n.t.Fatalf("no page: %v; the collector ended with %v\n%s", err, exit, n.stderr)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		n.t.Fatalf("page: %s %v\n%s", response.Status, err, body)
	}
	return string(body)
}

// await fetches metrics pages until one has all wanted lines.
func (n *node) await(lines ...string) string {
	n.t.Helper()
	return n.awaitThat(strings.Join(lines, "\n"), func(page string) bool {
		for _, line := range lines {
			if !strings.Contains(page, line) {
				return false
			}
		}
		return true
	})
}

// patience is how long a test waits for the metrics page to reach the wanted state.
const patience = time.Minute

func (n *node) awaitThat(what string, good func(page string) bool) string {
	n.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		page := n.page()
		if good(page) {
			return page
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("waited in vain for\n%s\non\n%s\n%s", what, page, n.stderr)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// kmsg writes lines into the kernel log.
func (n *node) kmsg(lines ...string) {
	n.t.Helper()
	f, err := os.OpenFile(n.config.Kmsg, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	n.must(err)
	defer f.Close()
	_, err = fmt.Fprintln(f, strings.Join(lines, "\n"))
	n.must(err)
}

// get reads the collector's answer at a path.
func get[T any](n *node, path string) (v T) {
	n.t.Helper()
	response, err := http.Get(n.url + path)
	n.must(err)
	defer response.Body.Close()
	n.must(json.NewDecoder(response.Body).Decode(&v))
	return v
}

// must ends the test when a change of the state fails.
func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
