package main

import (
	"testing"

	"github.com/prometheus/procfs"
)

func TestUnmapCode(t *testing.T) {
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
	if err := unmapCode(); err != nil {
		t.Fatal(err)
	}
	if after := resident(); before < after+2<<20 {
		t.Errorf("%d kB of files are resident, and %d kB were before: less than 2 MiB of code is gone", after>>10, before>>10)
	}
}
