package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestReportMakesItsFolder checks that the folder exists before the plays, which take minutes.
func TestReportMakesItsFolder(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	dir := filepath.Join(t.TempDir(), "new")
	if err := writeReport(stopped, dir, 1, io.Discard); err == nil {
		t.Fatal("a report without plays")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
