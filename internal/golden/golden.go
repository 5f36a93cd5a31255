// Package golden stores the output of collectors in files, so that people review each change before a commit.
// TestEveryFamilyIsEmitted in package metrics requires that each declared family is in one of these files.
package golden

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

var update = flag.Bool("update", false, "write the goldens anew; reading the diff is the review")

// Compare fails the test unless the file contains exactly this text.
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
		t.Fatalf("%v: run go test with -update and review the new golden file", err)
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
	t.Errorf("%s: the page has changed; if the change is right, run go test with -update and review the diff", file)
}

var tables sync.Mutex

// Row fails the test unless a table in a file has this value for a key. The first column of the table has the keys.
// With -update, Row writes only this row, so that slow rows can be updated one by one.
func Row(t testing.TB, file, key, value string) {
	t.Helper()
	tables.Lock()
	defer tables.Unlock()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows := slices.Collect(strings.Lines(string(content)))
	row := key + "\t" + value + "\n"
	at, found := slices.BinarySearchFunc(rows, key, func(r, key string) int {
		first, _, _ := strings.Cut(r, "\t")
		return strings.Compare(first, key)
	})
	switch {
	case found && rows[at] == row:
	case !*update:
		t.Errorf("%s: the row of %s differs from the new row; if the change is right, run only this test with -update", file, key)
	case found:
		rows[at] = row
	default:
		rows = slices.Insert(rows, at, row)
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(rows, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Missing collects the metrics that engines and exporters lack, according to their golden files. It becomes one table
// beside these files. A new metric is missing from most pages, but changes only this table. Tests may call the methods
// concurrently.
type Missing struct {
	mu    sync.Mutex
	pages map[string][]string // by metric and reason
	cut   int
}

// missingLine matches a line about a metric without a source.
var missingLine = regexp.MustCompile(`^llm_(?:engine|gpu)_metric_source_info\{.*\bmetric="([^"]*)".*\bquality="missing".*\breason="((?:[^"\\]|\\.)*)"`)

// Cut returns a metrics page without the series about missing metrics. It adds these series to the table.
func (m *Missing) Cut(name, page string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut++
	var kept strings.Builder
	for line := range strings.Lines(page) {
		found := missingLine.FindStringSubmatch(line)
		if found == nil {
			kept.WriteString(line)
			continue
		}
		key := found[1] + "\t" + found[2]
		if m.pages == nil {
			m.pages = map[string][]string{}
		}
		if !slices.Contains(m.pages[key], name) {
			m.pages[key] = append(m.pages[key], name)
		}
	}
	return kept.String()
}

// Compare fails the test unless the file has this table. pages is the number of metrics pages that Cut must have seen.
// If the numbers differ, because -run skipped tests, Compare checks nothing.
func (m *Missing) Compare(t testing.TB, file string, pages int) {
	t.Helper()
	if m.cut != pages {
		return
	}
	var rows strings.Builder
	rows.WriteString("# What each page lacks, and why: metric, reason, pages. Generated: go test with -update.\n")
	for _, key := range slices.Sorted(maps.Keys(m.pages)) {
		slices.Sort(m.pages[key])
		rows.WriteString(key + "\t" + strings.Join(m.pages[key], " ") + "\n")
	}
	Compare(t, file, rows.String())
}

// Recordings returns the files that match a pattern in the folder RECORDINGS, an environment variable. The folder has
// metrics pages of real engines. Without the variable, there are none.
func Recordings(t testing.TB, pattern string) []string {
	t.Helper()
	folder := os.Getenv("RECORDINGS")
	if folder == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// All fails the test if more files match a pattern than tests compare. A file that no test writes any more would
// wrongly show that its series still exist.
func All(t testing.TB, pattern string, compared int) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) > compared { // Compare reports missing files
		t.Errorf("there are %d files %s, but tests compare %d: delete the files that no test writes", len(files), pattern, compared)
	}
}

// Page returns the metrics page of a collector.
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

// Still replaces the values of some series by 0, because these values differ from run to run. The regular expression
// must match the whole name of a series.
func Still(page, series string) string {
	return regexp.MustCompile(`(?m)^((?:`+series+`)(?:\{.*\})?) \S+$`).ReplaceAllString(page, "$1 0")
}
