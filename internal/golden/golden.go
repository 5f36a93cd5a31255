// Package golden keeps what collectors emit as files, so that a person reads each change before it is committed.
// TestEveryFamilyIsEmitted in package metrics requires every declared family to be in one of them.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

var update = flag.Bool("update", false, "write the goldens anew; reading the diff is the review")

// Compare fails the test unless a file has this text.
func Compare(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: run go test with -update and read the new golden", err)
	}
	if got == string(want) {
		return
	}
	gotLines, wantLines := slices.Collect(strings.Lines(got)), slices.Collect(strings.Lines(string(want)))
	for _, line := range wantLines {
		if !slices.Contains(gotLines, line) {
			t.Errorf("%s: - %s", file, line)
		}
	}
	for _, line := range gotLines {
		if !slices.Contains(wantLines, line) {
			t.Errorf("%s: + %s", file, line)
		}
	}
	t.Errorf("%s: the page has changed; if that is right, run go test with -update and read the diff", file)
}

// All fails the test unless tests compare every file of a pattern: a file that no test writes any more would claim
// that something is still emitted.
func All(t testing.TB, pattern string, compared int) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) > compared { // a missing one fails in Compare
		t.Errorf("%d files are %s, tests compare %d: delete those that nothing writes", len(files), pattern, compared)
	}
}

// Page returns what a collector exports.
func Page(t testing.TB, c prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// Still replaces with 0 the values of series that match from their name on: they differ from run to run.
func Still(page, series string) string {
	return regexp.MustCompile(`(?m)^((?:`+series+`)(?:\{.*\})?) \S+$`).ReplaceAllString(page, "$1 0")
}
