package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/prometheus/procfs"
)

// unpacked returns a copy of a binary in the form in which an image contains it. Linux 6.18 maps a file in the pieces
// in which it was written. Images are unpacked in pieces of 32 kB, linkers write megabytes.
func unpacked(t *testing.T, binary string) string {
	t.Helper()
	unpacked := filepath.Join(t.TempDir(), "exporter")
	if out, err := exec.Command("dd", "bs=32k", "if="+binary, "of="+unpacked).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Chmod(unpacked, 0o700); err != nil {
		t.Fatal(err)
	}
	return unpacked
}

// TestUnmapBinary measures a copy of itself.
func TestUnmapBinary(t *testing.T) {
	const copied = "UNMAP_BINARY_COPIED"
	if os.Getenv(copied) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		again := exec.Command(unpacked(t, self), "-test.run=^TestUnmapBinary$")
		again.Env = append(os.Environ(), copied+"=1")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	resident := func() uint64 {
		self, err := procfs.Self()
		if err != nil {
			t.Fatal(err)
		}
		status, err := self.NewStatus()
		if err != nil {
			t.Fatal(err)
		}
		return status.RssFile
	}
	before := resident()
	if err := unmapBinary(); err != nil {
		t.Fatal(err)
	}
	if after := resident(); after > before/3 {
		t.Errorf("%d kB of files are resident, and %d kB were before: most of the binary is still there", after>>10, before>>10)
	}
}
