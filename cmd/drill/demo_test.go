package main

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestDemo runs the demo as make demo does, for as long as its first table takes.
func TestDemo(t *testing.T) {
	exporter := filepath.Join(t.TempDir(), "exporter")
	if out, err := exec.Command("go", "build", "-o", exporter, "../exporter").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	var out strings.Builder
	if err := runDemo(t.Context(), exporter, address, &out); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("a port in use: %v", err)
	}
	l.Close()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	shown := &until{cancel: cancel, all: []string{"vllm     llama-3.1-8b-chat", "tgi      mistral-small", "trtllm   qwen3-coder", "curl -s http://" + address + "/metrics", "invented"}}
	if err := runDemo(ctx, exporter, address, shown); err != nil {
		t.Fatal(err)
	}
	for _, want := range shown.all {
		if !strings.Contains(shown.text.String(), want) {
			t.Errorf("the demo does not show %q:\n%s", want, shown.text.String())
		}
	}
	if _, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		t.Error("the exporter outlives the demo")
	}
}

// until keeps what is written, and ends the demo once all of it has been seen.
type until struct {
	mu     sync.Mutex
	text   strings.Builder
	all    []string
	cancel context.CancelFunc
}

func (u *until) Write(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.text.Write(b)
	if !slices.ContainsFunc(u.all, func(want string) bool { return !strings.Contains(u.text.String(), want) }) {
		u.cancel()
	}
	return len(b), nil
}
