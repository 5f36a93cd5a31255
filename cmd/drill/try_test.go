package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestTry runs drill try as its image does: an engine's metrics page becomes series, all rules are evaluated, and a
// browser gets a dashboard. Ctrl-C leaves nothing behind.
func TestTry(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../collectors/engine/testdata/pages/vllm/v0.32.0-healthy.prom")
	if err != nil {
		t.Fatal(err)
	}
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(page) }))
	t.Cleanup(engine.Close)
	port := func() string { address := e2e.Address(t); return address[strings.LastIndex(address, ":")+1:] }
	exporter, prometheus, temporary := port(), port(), t.TempDir()
	try := exec.Command(e2e.Build(t, "."), "try", "--exporter="+e2e.Build(t, "../exporter"), "--listen="+exporter, "--prometheus="+prometheus,
		"--", "--engine.target="+engine.URL, "--discovery=none")
	try.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // for a test that is killed
	shown := &e2e.Buffer{}
	try.Stdout, try.Stderr, try.Env = shown, shown, append(os.Environ(), "TMPDIR="+temporary)
	if err := try.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // if killed, the process would leave its exporter behind
		if try.Process.Signal(os.Interrupt) == nil {
			_ = try.Wait()
		}
	})
	get := func(path string) string {
		resp, err := http.Get("http://127.0.0.1:" + prometheus + path)
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		content, _ := io.ReadAll(resp.Body)
		return string(content)
	}
	e2e.Until(t, "Prometheus has the engine", func() bool {
		return strings.Contains(get("/api/v1/query?query=llm_engine_up==1"), `"runtime":"vllm"`)
	})
	var loaded struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, LastError string }
			}
		}
	}
	if err := json.Unmarshal([]byte(get("/api/v1/rules")), &loaded); err != nil {
		t.Fatal(err)
	}
	if want := len(rules.Groups(rules.Options{})); len(loaded.Data.Groups) != want {
		t.Errorf("%d groups of rules are loaded, want %d", len(loaded.Data.Groups), want)
	}
	for _, g := range loaded.Data.Groups {
		for _, r := range g.Rules {
			if r.LastError != "" {
				t.Errorf("%s: %s", r.Name, r.LastError)
			}
		}
	}
	if board := get("/"); !strings.Contains(board, "LLM / Incident") || !strings.Contains(board, "http://127.0.0.1:"+exporter+"/") {
		t.Errorf("the first page is no dashboard: %.500s", board)
	}
	if err := try.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := try.Wait(); err != nil {
		t.Errorf("%v\n%s", err, shown)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
