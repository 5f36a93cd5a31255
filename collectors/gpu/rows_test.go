//go:build linux && cgo

package gpu

import (
	"fmt"
	"math"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// TestEveryRowIsAnswered: each field that the exporter asks for is answered by a GPU of one of the pages in testdata. A row
// that no page has seen may be of another unit, type or scope than it says.
func TestEveryRowIsAnswered(t *testing.T) {
	for _, f := range newFields(2) {
		key := fmt.Sprintf("field.%d", f.id)
		if f.scope != 0 {
			key += fmt.Sprintf(".%d", f.scope)
		}
		if !fakenvml.Describes(key) {
			t.Errorf("no GPU of internal/fakenvml answers %s (%v): describe one that does, and give it a page", key, f.labels)
		}
	}
	if fakenvml.Describes(fmt.Sprintf("field.%d", math.MaxInt32)) {
		t.Error("a field that does not exist is answered")
	}
}
