package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

// The doctor runs nvidia-smi beside the exporter. Both programs read the same values from the fake library. Differences
// are named, even those in a bundle.
func TestDoctorAgainstSMI(t *testing.T) {
	n := startOnGPUs(t, 2, nil)
	dir := t.TempDir()
	prints := func(document string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "printed.xml"), []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\n[ \"$*\" = '-q -x' ] && exec cat " + dir + "/printed.xml\n"
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	bundle := filepath.Join(dir, "bundle.tar.gz")
	ask := func(args ...string) (int, string) {
		t.Helper()
		var out strings.Builder
		status, err := doctorCommand(t.Context(), append([]string{"--exporter=" + n.url}, args...), &out, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return status, out.String()
	}
	n.until(t, `llm_gpu_row_remap_pending{gpu="1"`)
	prints(n.SMI())
	var said string
	e2e.Until(t, "both read the same", func() bool {
		var status int
		status, said = ask("--against=nvidia-smi", "--bundle="+bundle)
		return status == 0
	})
	for _, want := range []string{
		"node: 3 values: 3 right", "GPU 0 NVIDIA H100 80GB HBM3: ", "GPU 1 NVIDIA H100 80GB HBM3: ",
		" 0 wrong, 0 missing",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	if err := n.Set("1", "field.188", "u32 650000"); err != nil { // the highest power limit, read once in ten seconds
		t.Fatal(err)
	}
	n.until(t, `kind="max"} 650`)
	wrong := `wrong    GPU 1: nvidia-smi reports gpu_power_readings/max_power_limit = 700.00 W, the exporter reports llm_gpu_power_limit_watts{kind="max"} = 650`
	if status, said := ask("--against=nvidia-smi"); status != 2 || !strings.Contains(said, wrong) {
		t.Errorf("status %d:\n%s", status, said)
	}
	if status, said := ask("--against=" + filepath.Join(dir, "printed.xml")); status != 2 || !strings.Contains(said, wrong) {
		t.Errorf("of a file, status %d:\n%s", status, said)
	}
	if status, said := ask("--against=" + bundle); status != 0 || !strings.Contains(said, " 0 wrong, 0 missing") {
		t.Errorf("of a bundle, status %d:\n%s", status, said)
	}
	prints("Unable to determine the device handle for GPU0: 0000:10:00.0: Unknown Error\n")
	status, err := doctorCommand(t.Context(), []string{"--exporter=" + n.url, "--against=nvidia-smi"}, io.Discard, io.Discard)
	if status != 3 || err == nil || !strings.Contains(err.Error(), "not what nvidia-smi -q -x prints") {
		t.Errorf("%d %v", status, err)
	}
}

// The command refuses a meaningless command line and a missing program.
func TestDoctorAgainstNothing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for args, want := range map[string]string{
		"--bundle=x": "needs --against",
		"--against=nvidia-smi --prometheus=http://x":         "without Prometheus",
		"--against=/nowhere":                                 "no such file",
		"--against=nvidia-smi --exporter=http://127.0.0.1:1": "the exporter cannot be read",
	} {
		status, err := doctorCommand(t.Context(), strings.Fields(args), io.Discard, io.Discard)
		if status != 3 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d %v", args, status, err)
		}
	}
	e := launch(t, "--role=cluster")
	if status, err := doctorCommand(t.Context(), []string{"--exporter=" + e.url, "--against=nvidia-smi"}, io.Discard,
		io.Discard); status != 3 || err == nil || !strings.Contains(err.Error(), "where it is installed") {
		t.Errorf("without the program: %d %v", status, err)
	}
}
