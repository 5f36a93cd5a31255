package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/drill/live"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
)

// TestBacktestFlags checks that wrong flags are reported before any query.
func TestBacktestFlags(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.yml")
	if err := os.WriteFile(empty, []byte("targets: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, flags := range map[string][]string{
		"--since":                            {"--since=soon"},
		"give at least 1h":                   {"--since=5m"},
		"is in the future":                   {"--at=2999-01-01T00:00:00Z"},
		"write it as 1h/5m=2%:page":          {"--window=1h"},
		"must be at least 1000":              {"--max-samples=3"},
		"has no objectives":                  {"--config=" + empty},
		"credentials do not belong in a URL": {"--prometheus=http://user:secret@127.0.0.1:1"},
	} {
		args := append([]string{"--prometheus=http://127.0.0.1:1"}, flags...)
		if strings.HasPrefix(flags[0], "--prometheus") {
			args = flags
		}
		if err := backtestObjectives(args, new(bytes.Buffer), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", flags, err, want)
		}
	}
}

// TestBacktestOfAFile replays the objective of a configuration over an engine whose requests all fail.
func TestBacktestOfAFile(t *testing.T) {
	store, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for n := range 241 {
		if err := store.Append(rulesim.Epoch.Add(time.Duration(n)*30*time.Second), func(emit rulesim.Emit) {
			for i, name := range []string{"tgi_request_success", "tgi_request_failure"} {
				emit(labels.FromStrings("__name__", name, "err", strings.Repeat("generation", i), "job", "chat", "instance", "i"), float64(10*n*i+n))
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(live.Serve(store))
	defer server.Close()
	config := filepath.Join(t.TempDir(), "exporter.yml")
	if err := os.WriteFile(config,
		[]byte("targets: []\nobjectives:\n- {name: answered, signal: availability, target: 95%, period: 7d}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, progress bytes.Buffer
	at := rulesim.Epoch.Add(2 * time.Hour).Format(time.RFC3339)
	if err := backtestObjectives([]string{
		"--prometheus=" + server.URL, "--config=" + config, "--since=2h", "--at=" + at,
		"--format=json",
	}, &out, &progress); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Reads      string
		Objectives []struct {
			Model  string `json:"model_name"`
			SLO    string
			Target string
			Pages  []struct{ From time.Time }
		}
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if o := got.Objectives; got.Reads != "engines" || len(o) != 1 || o[0].Model != "chat" || o[0].SLO != "answered" ||
		o[0].Target != "95%" || len(o[0].Pages) != 1 {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(progress.String(), "1 of 1: chat") {
		t.Errorf("progress: %s", progress.String())
	}
}

// TestBacktestOfARealPrometheus reads a day of good events, one per second. The test leaves out events of two hours
// of maintenance, and of the six further minutes in which rates still see it.
func TestBacktestOfARealPrometheus(t *testing.T) {
	var out bytes.Buffer
	if err := backtestObjectives([]string{
		"--prometheus=" + recorded(t), "--since=1d", "--at=2025-10-27T00:00:00Z",
		"--cache=" + t.TempDir(),
	}, &out, new(bytes.Buffer)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "the exporter's counts") || !strings.Contains(out.String(),
		"prod/fine  ttft       99%     0.5 s   78840   0 ") {
		t.Error(out.String())
	}
}
