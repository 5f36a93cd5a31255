package world

import (
	"os"
	"strings"
	"testing"
)

// TestFieldsToAskFor checks that the documentation names the drill's additional fields of dcgm-exporter.
func TestFieldsToAskFor(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range ThrottleFields {
		if !strings.Contains(string(page), "\n"+f+",") {
			t.Errorf("docs/operations.md does not name %s", f)
		}
	}
}
