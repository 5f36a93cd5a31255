package world

import (
	"os"
	"strings"
	"testing"
)

// TestFieldsToAskFor checks that the counters file for dcgm-exporter, which the documentation links to, names the drill's additional
// fields.
func TestFieldsToAskFor(t *testing.T) {
	const file = "examples/dcgm-exporter/counters.csv"
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "](../"+file+")") {
		t.Errorf("docs/operations.md does not link to %s", file)
	}
	counters, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range ThrottleFields {
		if !strings.Contains("\n"+string(counters), "\n"+f+",") {
			t.Errorf("%s does not name %s", file, f)
		}
	}
}
