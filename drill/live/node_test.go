package live

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

// TestANodeOutsideTheRepositoryHasNoGPUs runs a demo outside this module, where the go command cannot find NVML's
// header. The demo then plays without GPUs, as it does without a compiler.
func TestANodeOutsideTheRepositoryHasNoGPUs(t *testing.T) {
	t.Chdir(t.TempDir())
	tools := t.TempDir() // a compiler, but no go
	if err := os.WriteFile(filepath.Join(tools, "gcc"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools)
	n, err := NewNode(Options{
		Incident: incident.Healthy(), Seed: 1, Listen: e2e.Address(t), Prometheus: e2e.Address(t), Dir: t.TempDir(),
		Log: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if n.WithoutGPUs == nil || !slices.Contains(n.args, "--no-collector.gpu") {
		t.Errorf("GPUs where no library can be built: %v", n.args)
	}
}
