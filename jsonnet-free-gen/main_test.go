package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGenerateAndCheck(t *testing.T) {
	dir := t.TempDir()
	if err := generate(dir, true, docs()); err == nil || !strings.Contains(err.Error(), "docs/metrics.md") ||
		!strings.Contains(err.Error(), "make generate") {
		t.Errorf("an empty folder has no drift: %v", err)
	}
	if err := generate(dir, false, docs()); err != nil {
		t.Fatal(err)
	}
	if err := generate(dir, true, docs()); err != nil {
		t.Errorf("what was just written differs: %v", err)
	}
	page := filepath.Join(dir, "docs", "engines.md")
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| `tgi` |–|A|", "metrics_disabled", "`mooncake`"} {
		if !strings.Contains(string(content), want) {
			t.Errorf("docs/engines.md lacks %q", want)
		}
	}
	if err := os.WriteFile(page, append(content, "edited by hand\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := generate(dir, true, docs()); err == nil || !strings.Contains(err.Error(), "docs/engines.md") {
		t.Errorf("an edited page is no drift: %v", err)
	}
}

// TestElsewhere checks that, outside a checkout, a forgotten flag does not write this project's own files.
func TestElsewhere(t *testing.T) {
	dir := t.TempDir()
	if err := run([]string{"--out", dir}); err == nil || !strings.Contains(err.Error(), "--format prometheus") {
		t.Errorf("%v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v %v", files, err)
	}
}
