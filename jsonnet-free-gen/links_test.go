package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
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

// files returns the files that the patterns match.
func files(t *testing.T, patterns ...string) (all []string) {
	t.Helper()
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil || found == nil {
			t.Fatalf("%s matches nothing: %v", p, err)
		}
		all = append(all, found...)
	}
	return all
}

// A search command in a document finds something when typed in the root of the repository.
func TestSearches(t *testing.T) {
	for _, doc := range files(t, "../docs/*.md") {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, search := range regexp.MustCompile("(?m)^grep .* docs/.*$").FindAllString(string(text), -1) {
			command := exec.Command("sh", "-c", search)
			command.Dir = ".."
			if found, err := command.Output(); err != nil || len(found) == 0 {
				t.Errorf("%s: %s finds nothing: %v", doc, search, err)
			}
		}
	}
}

// A link of a document leads to a file of the repository and to a heading that it has.
func TestLinks(t *testing.T) {
	for _, doc := range files(t, "../docs/*.md", "../docs/coverage.csv", "../*.md", "../helm/*/README.md") {
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
			if fragment != "" && !slices.ContainsFunc(heading.FindAllStringSubmatch(prose(t, target), -1),
				func(h []string) bool { return anchor(h[1]) == fragment }) {
				t.Errorf("%s links to %s: no such heading", doc, l[1])
			}
		}
	}
}

// TestRecordsAreRead requires another rule, an alert's text, a dashboard, a document or an example to read each
// recorded series: a rule costs at every evaluation, and a record that nothing reads has no value.
func TestRecordsAreRead(t *testing.T) {
	var read strings.Builder
	for _, pattern := range []string{"../docs/*.md", "../runbooks/*.md", "../examples/*/*.yaml", "../helm/*/files/dashboards/*.json"} {
		for _, file := range files(t, pattern) {
			if filepath.Base(file) == "rules.yaml" {
				continue
			}
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			read.Write(content)
		}
	}
	groups := rules.NewFile(rules.Groups(rules.Options{}), rules.Style{DashboardURL: "https://grafana.example/d/{uid}"}).Groups
	for _, g := range groups {
		for _, r := range g.Rules {
			text := fmt.Sprint(r.Expr, r.Annotations)
			if r.Record != "" { // the previous value is useless by itself
				text = strings.ReplaceAll(text, r.Record, "")
			}
			read.WriteString(text + "\n")
		}
	}
	for _, g := range groups {
		for _, r := range g.Rules {
			if r.Record != "" && !regexp.MustCompile(regexp.QuoteMeta(r.Record)+`([^\w:]|$)`).MatchString(read.String()) {
				t.Errorf("nothing reads %s of %s: delete it", r.Record, g.Name)
			}
		}
	}
}

// Everything that docs/coverage.csv names exists: panels on the dashboard that it links to, metrics of the vocabulary.
// The number of requirements in docs/coverage.md is the number of its rows, and the document names the requirements
// that metrics cannot meet.
func TestCoverage(t *testing.T) {
	text := prose(t, "../docs/coverage.csv")
	panels := map[string]bool{}
	for _, board := range dashboards.All(nil) {
		for _, row := range board.Rows {
			for _, p := range row.Panels {
				panels[p.Title+" on "+anchor(boardName(board))] = true
			}
		}
	}
	for _, m := range regexp.MustCompile(`\*\[([^]]+)\]\(dashboards\.md#([^)]+)\)\*`).FindAllStringSubmatch(text, -1) {
		if panel := m[1] + " on " + m[2]; !panels[panel] {
			t.Errorf("docs/coverage.csv: no panel %s", panel)
		}
	}
	for _, m := range regexp.MustCompile("`((?:llm_|model:|model_period:)\\w+(?::\\w+)*)`").FindAllStringSubmatch(text, -1) {
		if promql.Lookup(m[1]) == nil && metrics.Lookup(m[1]) == nil { // the second names histograms without a suffix
			t.Errorf("docs/coverage.csv: no metric %s", m[1])
		}
	}
	wishes := rows(t, func() ([]byte, error) { return os.ReadFile("../docs/coverage.csv") })[1:]
	count := map[string]int{}
	for _, w := range wishes {
		count[w[2]]++
	}
	page := prose(t, "../docs/coverage.md")
	if want := fmt.Sprintf("Of %d requirements, %d are met, %d are met in part, and metrics cannot meet %d.", len(wishes), count["yes"],
		count["in part"], count["no"]); !strings.Contains(page, want) ||
		count["yes"]+count["in part"]+count["no"] != len(wishes) || strings.Count(page, "\n* *") != count["no"] {
		t.Errorf("docs/coverage.md lacks %q, or does not list the requirements that metrics cannot meet", want)
	}
}
