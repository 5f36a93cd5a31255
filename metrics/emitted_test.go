package metrics

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// goldens lists the metrics pages that the tests of the emitting packages compare with their output.
var goldens = []string{
	"../collectors/engine/testdata/golden/*/*.txt",
	"../collectors/*/testdata/*.prom",
	"../collectors/gpu/page/testdata/golden/*.prom",
	"../cmd/exporter/testdata/*.prom",
}

// TestEveryFamilyIsEmitted requires every declared family on a golden: a family that nothing emits means an empty
// panel and an alert that never fires.
func TestEveryFamilyIsEmitted(t *testing.T) {
	sample := regexp.MustCompile(`(?m)^(llm_\w+?)(?:_bucket)?[{ ]`)
	seen := map[string]bool{}
	for _, pattern := range goldens {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no goldens are %s: %v", pattern, err)
		}
		for _, file := range files {
			page, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range sample.FindAllSubmatch(page, -1) {
				seen[string(m[1])] = true
			}
		}
	}
	for _, f := range All() {
		if !seen[f.Name] {
			t.Errorf("%s is declared, and no golden has it: emit it, or delete it", f.Name)
		}
	}
}
