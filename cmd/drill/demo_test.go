package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/live"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestDemo runs the demo as make demo does: first nothing happens, then an incident is typed, and its page is shown.
// Meanwhile a client queries the Prometheus, as Grafana would. Ctrl-C leaves nothing behind.
func TestDemo(t *testing.T) {
	t.Parallel()
	e2e.Program(t, "gcc", "gcc") // for the fake NVML library
	exporter, prometheus, temporary := e2e.Address(t), e2e.Address(t), t.TempDir()
	demo := exec.Command(e2e.Build(t, "."), "demo", "--exporter="+e2e.Build(t, "../exporter"), "--listen="+exporter, "--prometheus="+
		prometheus, "--onset=3s")
	demo.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // for a test that is killed
	shown := &e2e.Buffer{}
	demo.Stdout, demo.Stderr, demo.Env = shown, shown, append(os.Environ(), "TMPDIR="+temporary)
	typed, err := demo.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- demo.Wait() }()
	t.Cleanup(func() { // a killed demo would leave its exporter behind
		if demo.Process.Signal(os.Interrupt) == nil {
			<-done
		}
	})
	see := func(all ...string) {
		t.Helper()
		e2e.Until(t, "the demo shows "+strings.Join(all, ", "), func() bool {
			select {
			case err := <-done:
				t.Fatalf("the demo ended: %v\n%s", err, shown)
			default:
			}
			return !slices.ContainsFunc(all, func(want string) bool { return !strings.Contains(shown.String(), want) })
		})
	}
	see("http://"+prometheus+"/ shows the incident", "invented", "vllm     ", "trtllm   ", "tgi      ",
		"http://"+prometheus+"/ is a data source")

	for _, path := range []string{
		"/", "/-/ready", "/api/v1/status/buildinfo", "/api/v1/targets", "/api/v1/rules", "/api/v1/alerts",
		"/api/v1/metadata", "/api/v1/labels", "/api/v1/series?match[]=up",
	} {
		e2e.Answers(t, "http://"+prometheus+path)
	}
	// The running exporter must have all series of the history under the same labels, otherwise graphs and windows
	// would break where the history ends. Only values that an exporter has learnt may end with it.
	const named = `label_replace(last_over_time({__name__=~"llm_.+",__name__!~"llm_engine_(capacity_.+|slowdown_ratio|step_seconds|unscheduled_seconds)"}[%s), "family", "$1", "__name__", "(.+)")`
	before, now := fmt.Sprintf(named, "1m] offset 30m"), fmt.Sprintf(named, "12s]")
	if n := len(query(t, prometheus, before)); n < 500 {
		t.Errorf("the history has %d series", n)
	}
	e2e.Until(t, "the exporter is scraped", func() bool { return len(query(t, prometheus, "llm_exporter_build_info")) > 0 })
	time.Sleep(12 * time.Second)                                      // by then the window no longer contains the history
	e2e.Until(t, "every series of the history goes on", func() bool { // which engine runs where takes some seconds
		return len(query(t, prometheus, before+" unless "+now)) == 0
	})

	// Conversely, the GPU dashboard has the engines' history. The owner of a new process is known after the next scan.
	var fresh []json.RawMessage
	t.Cleanup(func() {
		if len(fresh) > 0 {
			t.Logf("%d GPU series began with the demo, such as %s", len(fresh), fresh[0])
		}
	})
	e2e.Until(t, "no GPU series begins with the demo", func() bool {
		fresh = query(t, prometheus, `label_replace({__name__=~"llm_gpu_.+"}, "family", "$1", "__name__", "(.+)") unless `+before)
		return len(fresh) == 0
	})

	enter := func(line string) {
		if _, err := io.WriteString(typed, line+"\n"); err != nil {
			t.Error(err)
		}
	}
	enter("nonsense")
	see(`no incident "nonsense"`)
	enter("row-remap-failure")
	board := "http://" + prometheus + live.Boards + string(rules.GPUDashboard) + "?from="
	see("before the onset |", "=== ", "to llm-critical: CRITICAL", "Runbook: http://"+exporter+"/runbooks/LLMGPUFailed",
		"Dashboard: "+board)
	_, link, _ := strings.Cut(shown.String(), "Dashboard: ")
	e2e.Answers(t, strings.Fields(link)[0])
	e2e.Answers(t, "http://"+exporter+"/runbooks/LLMGPUFailed")

	// What will happen is computed after the first screen.
	see("In virtual time it paged")
	_, later, _ := strings.Cut(shown.String(), "row-remap-failure: ")
	if screen := strings.Index(later, "before the onset |"); screen < 0 || screen > strings.Index(later, "In virtual time") {
		t.Errorf("the first screen waits for what will happen:\n%s", later)
	}
	// The person on call may act, and a query of a runbook opens with one click.
	enter("lever 1")
	see("row-remap-failure has no lever in the drill")
	enter("healthy")
	see("All that was wrong is undone, in the same world")
	if page := body(t, "http://"+exporter+"/runbooks/LLMGPUFailed"); !strings.Contains(page, "http://"+prometheus+live.QueryPath+"?g0.expr=") {
		t.Error("no query of the runbook opens in the demo")
	}
	if page := body(t, "http://"+prometheus+"/"); !strings.Contains(page, `href="`+live.QueryPath+`"`) {
		t.Error("/ does not lead to queries")
	}
	if page := body(t, "http://"+prometheus+live.QueryPath+"?g0.expr="+url.QueryEscape("sum by (job) (up)")); !strings.Contains(page,
		" series at ") || !strings.Contains(page, "llm-node-exporter&#34;}") {
		t.Errorf("up has no answer:\n%s", page)
	}
	if len(query(t, prometheus, `up{job="llm-node-exporter"} offset 30m`)) == 0 {
		t.Error("the history has no up, by which alerts know that the exporter ran")
	}
	if page := body(t, "http://"+prometheus+live.QueryPath+"?g0.expr="+url.QueryEscape("sum(<b>")); !strings.Contains(page,
		"parse error") || strings.Contains(page, "<b>") {
		t.Errorf("a mistake is not explained:\n%s", page)
	}

	if err := demo.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%v\n%s", err, shown)
		}
	case <-e2e.TooLate(t):
		t.Fatal("Ctrl-C does not end the demo")
	}
	for _, address := range []string{exporter, prometheus} {
		if _, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			t.Errorf("%s outlives the demo", address)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("the demo leaves %v (%v)", left, err)
	}
}

// body returns the body of an answer.
func body(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// query returns the series of a query's result.
func query(t *testing.T, address, expr string) (series []json.RawMessage) {
	t.Helper()
	var answer struct {
		Data  struct{ Result []json.RawMessage }
		Error string
	}
	get(t, "http://"+address+"/api/v1/query?query="+url.QueryEscape(expr), &answer)
	if answer.Error != "" {
		t.Fatalf("%s: %s", expr, answer.Error)
	}
	return answer.Data.Result
}

// A port in use is named, with the flag that chooses another.
func TestDemoPorts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	busy, free := taken.Addr().String(), e2e.Address(t)
	for flag, d := range map[string]demo{"--listen": {listen: busy, prometheus: free}, "--prometheus": {listen: free, prometheus: busy}} {
		if err := d.run(t.Context(), incident.Healthy().Name, nil); err == nil || !strings.Contains(err.Error(), flag) ||
			!strings.Contains(err.Error(), busy) {
			t.Errorf("%s in use: %v", busy, err)
		}
	}
}
