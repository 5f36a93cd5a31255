package world

import (
	"os"
	"strings"
	"testing"
)

// TestFieldsToAskFor: the documentation names the fields that the drill's page was asked for.
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
