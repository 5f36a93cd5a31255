package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced  = regexp.MustCompile("(?s)```.*?```")
	span    = regexp.MustCompile("`[^`\n]*`")
	noise   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchor returns the fragment by which GitHub addresses a heading.
func anchor(heading string) string {
	return strings.ReplaceAll(noise.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// prose returns a document without its code blocks.
func prose(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fenced.ReplaceAllString(string(text), "")
}

// A link of a document leads to a file of the repository and to a heading that it has.
func TestLinks(t *testing.T) {
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range append(docs, "../README.md", "../CONTRIBUTING.md") {
		for _, l := range link.FindAllStringSubmatch(span.ReplaceAllString(prose(t, doc), "`"), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			file, fragment, _ := strings.Cut(l[1], "#")
			target := filepath.Join(filepath.Dir(doc), file)
			if file == "" {
				target = doc
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", doc, l[1], err)
				continue
			}
			if fragment != "" && !slices.ContainsFunc(heading.FindAllStringSubmatch(prose(t, target), -1), func(h []string) bool { return anchor(h[1]) == fragment }) {
				t.Errorf("%s links to %s: no such heading", doc, l[1])
			}
		}
	}
}

// What docs/coverage.md names exists: panels on the dashboard that it links to, metrics of the vocabulary. Its count of
// wishes is that of its rows.
func TestCoverage(t *testing.T) {
	text := prose(t, "../docs/coverage.md")
	panels := map[string]bool{}
	for _, board := range dashboards.All(nil) {
		for _, row := range board.Rows {
			for _, p := range row.Panels {
				panels[p.Title+" on "+anchor(strings.TrimPrefix(board.Title(), "LLM / "))] = true
			}
		}
	}
	for _, m := range regexp.MustCompile(`\*\[([^]]+)\]\(dashboards\.md#([^)]+)\)\*`).FindAllStringSubmatch(text, -1) {
		if panel := m[1] + " on " + m[2]; !panels[panel] {
			t.Errorf("docs/coverage.md: no panel %s", panel)
		}
	}
	for _, m := range regexp.MustCompile("`((?:llm_|model:|model_period:)\\w+(?::\\w+)*)`").FindAllStringSubmatch(text, -1) {
		if promql.Lookup(m[1]) == nil && metrics.Lookup(m[1]) == nil { // the second knows histograms by their base
			t.Errorf("docs/coverage.md: no metric %s", m[1])
		}
	}
	rows := len(regexp.MustCompile(`(?m)^\| .* \|$`).FindAllString(text, -1)) - 2*strings.Count(text, "| --- |")
	part, never := strings.Count(text, "| **In part**: "), strings.Count(text, "| **Metrics cannot tell**: ")
	if want := fmt.Sprintf("%d wishes: %d answered, %d in part, %d that metrics cannot tell.", rows, rows-part-never, part, never); !strings.Contains(text, want) {
		t.Errorf("docs/coverage.md does not end with %q", want)
	}
}
