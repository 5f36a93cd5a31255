package page

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
)

// TestVocabulary checks that the script reads only existing metrics and labels, and links to existing runbooks.
func TestVocabulary(t *testing.T) {
	names := regexp.MustCompile(`"(llm_\w+)"`).FindAllStringSubmatch(string(script), -1)
	labels := regexp.MustCompile(`\bl\.(\w+)`).FindAllStringSubmatch(string(script), -1)
	pages := regexp.MustCompile(`"(LLM\w+)"`).FindAllStringSubmatch(string(script), -1)
	if len(names) < 40 || len(labels) < 40 || len(pages) < 15 {
		t.Fatalf("%d metrics, %d labels, %d runbooks: not what this test expects", len(names), len(labels), len(pages))
	}
	for _, n := range names {
		if metrics.Lookup(strings.TrimSuffix(n[1], "_bucket")) == nil {
			t.Errorf("no metric %s", n[1])
		}
	}
	for _, l := range labels {
		if !metrics.IsLabel(l[1]) {
			t.Errorf("no label %s", l[1])
		}
	}
	for _, p := range pages {
		if !slices.Contains(runbooks.Names(), p[1]) {
			t.Errorf("no runbook %s", p[1])
		}
	}
}
