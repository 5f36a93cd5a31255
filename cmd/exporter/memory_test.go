package main

import (
	"testing"

	"github.com/prometheus/procfs"
)

func TestUnmapBinary(t *testing.T) {
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
	if after := resident(); after > before*5/8 {
		t.Errorf("%d kB of files are resident, and %d kB were before: most of the binary is still there", after>>10, before>>10)
	}
}
