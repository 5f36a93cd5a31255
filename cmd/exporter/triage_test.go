package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

// full is an engine whose KV cache is full and whose requests wait.
func full(t *testing.T) (url string) {
	page, url := serving(t)
	page.Store(busy("m", 3, 7, 0.95, 100, 50))
	return url
}

func TestTriage(t *testing.T) {
	t.Parallel()
	e := start(t, "--engine.target="+full(t))
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, 1, "m: DEGRADED\nLook first at: memory. The KV cache is 95% full and requests wait for room. (low\n  confidence)"},
		{nil, 1, "\nRunbook: " + e.url + "/runbooks/BranchKVPressure?model_name=m&server="},
		{[]string{"--model=another"}, 3, "nothing to judge"},
	} {
		var out, progress bytes.Buffer
		status, err := triageCommand(context.Background(), append(c.args, "--exporter="+e.url, "--for=5s"), &out, &progress)
		if err != nil || status != c.status || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: status %d, %v:\n%s", c.args, status, err, &out)
		}
		if strings.Contains(out.String()+progress.String(), "\x1b") || !strings.Contains(progress.String(), "reading again in 5s") {
			t.Errorf("no terminal: %q %q", &progress, &out)
		}
	}
}

// TestTriageJSON checks that the command and GET /verdict give the same answer.
func TestTriageJSON(t *testing.T) {
	t.Parallel()
	e := start(t, "--engine.target="+full(t))
	var out bytes.Buffer
	if _, err := triageCommand(context.Background(), []string{"--exporter=" + e.url + "/", "--for=5s", "--output=json"}, &out,
		io.Discard); err != nil {
		t.Fatal(err)
	}
	schema := verdictSchema(t)
	for _, answer := range []string{out.String(), e.get(t, "/verdict")} {
		schema.check(t, answer)
		var got struct {
			Health   string
			Verdicts []map[string]any
		}
		if err := json.Unmarshal([]byte(answer), &got); err != nil || got.Health != "degraded" || len(got.Verdicts) != 1 {
			t.Fatalf("%v: %s", err, answer)
		}
		for _, key := range []string{
			"model", "health", "symptoms", "branch", "confidence", "also", "evidence", "ruled_out", "not_seen",
			"levers", "runbook", "record",
		} {
			if got.Verdicts[0][key] == nil {
				t.Errorf("no %s in %s", key, answer)
			}
		}
		if got.Verdicts[0]["branch"] != "memory" {
			t.Errorf("branch %s", got.Verdicts[0]["branch"])
		}
	}
}

// TestTriageReadsEngines checks that, without an exporter, the command reads engines itself.
func TestTriageReadsEngines(t *testing.T) {
	t.Parallel()
	command := exec.Command(e2e.Build(t, "."), "triage", "--engine="+full(t), "--for=5s")
	out, err := command.Output()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 1 || !strings.Contains(string(out), "Look first at: memory.") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestTriageErrors(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }))
	defer other.Close()
	for want, args := range map[string][]string{
		"no exporter answers":        {"--exporter=http://" + e2e.Address(t)},
		"the answer is not metrics":  {"--exporter=" + other.URL},
		"is not an address":          {"--exporter=localhost"},
		"--for=1s is too short":      {"--for=1s"},
		"unknown long flag":          {"--modell=m"},
		"--exporter.http-config: ":   {"--exporter.http-config=/none"},
		"--engine=":                  {"--exporter=http://" + e2e.Address(t)}, // the remedy
		"see exporter triage --help": {"--output=xml"},
	} {
		status, err := triageCommand(context.Background(), args, io.Discard, io.Discard)
		if status != 3 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: status %d, %v, want %s", args, status, err, want)
		}
	}
}

// TestTriageOfALostNode checks that an exporter that does not answer leads to its node, besides the error, and to a runbook
// that another exporter serves.
func TestTriageOfALostNode(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	status, err := triageCommand(t.Context(), []string{"--exporter=http://" + e2e.Address(t)}, &out, io.Discard)
	if status != 3 || err == nil {
		t.Errorf("status %d, %v", status, err)
	}
	for _, want := range []string{
		"Look first at: hardware. No metrics come from the exporter", "connection refused", "$ kubectl get nodes\n",
		"Runbook: any exporter's /runbooks/LLMExporterDown?instance=",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, &out)
		}
	}
}

// TestTriageOfAnUnknownCertificate checks that a server that answers with an unknown certificate does not count as a
// lost node.
func TestTriageOfAnUnknownCertificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	var out strings.Builder
	if status, err := triageCommand(t.Context(), []string{"--exporter=" + server.URL}, &out, io.Discard); status != 3 || err == nil ||
		!strings.Contains(err.Error(), "certificate") || out.Len() > 0 {
		t.Errorf("status %d, %v:\n%s", status, err, &out)
	}
}

// TestTriageWithoutItsPrometheus checks that a Prometheus that does not answer is named in a sentence, with the remedy,
// whether or not an engine is read.
func TestTriageWithoutItsPrometheus(t *testing.T) {
	t.Parallel()
	dead := "http://" + e2e.Address(t)
	for _, engine := range []string{full(t), "http://" + e2e.Address(t)} {
		e := start(t, "--engine.target="+engine)
		status, err := triageCommand(context.Background(), []string{"--exporter=" + e.url, "--for=5s", "--prometheus=" + dead}, io.Discard,
			io.Discard)
		if status != 3 || err == nil || !strings.HasPrefix(err.Error(), "--prometheus: Post ") || !strings.HasSuffix(err.Error(),
			"omit this flag to compare without the day before") ||
			strings.Contains(err.Error(), "map[") || strings.Contains(err.Error(), "llm_") {
			t.Errorf("status %d: %v", status, err)
		}
	}
}

// TestVerdictIsShared checks that simultaneous requests together cost the engines only two readings.
func TestVerdictIsShared(t *testing.T) {
	t.Parallel()
	var read atomic.Int32
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		read.Add(1)
		io.WriteString(w, *busy("m", 1, 0, 0, 1, 0))
	}))
	defer engine.Close()
	e := start(t, "--engine.target="+engine.URL)
	e.get(t, "/metrics")
	before := read.Load()
	var wg sync.WaitGroup
	answers := make([]string, 5)
	for i := range answers {
		wg.Go(func() { answers[i] = e.get(t, "/verdict") })
	}
	wg.Wait()
	for _, a := range answers {
		if a != answers[0] {
			t.Errorf("different answers:\n%s\n%s", a, answers[0])
		}
	}
	if n := read.Load() - before; n != 2 {
		t.Errorf("read %d times, want 2", n)
	}
}
