//go:build linux && cgo

package gpu

import (
	"fmt"
	"math"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// TestBitErrors checks that bits 0 to 7 are the exponent, and bits 8 to 11 the mantissa.
func TestBitErrors(t *testing.T) {
	for encoded, want := range map[float64]float64{
		0: 0, 0x10c: 1e-12, 0x60e: 6e-14, 0xf0f: 15e-15, 0x100: 1, 0xffe: 15e-254,
		0x1_010c: 1e-12,
	} {
		if got, known := bitErrors(encoded); !known || math.Abs(got-want) > want/1e9 {
			t.Errorf("%#x: got %g %t, want %g", int(encoded), got, known, want)
		}
	}
	for _, none := range []float64{0xfff, 0x200} {
		if got, known := bitErrors(none); known {
			t.Errorf("%#x is no share, got %g", int(none), got)
		}
	}
}

// TestEveryRowIsAnswered checks that each field and each GPM metric that the exporter requests is answered by a GPU
// of one of the metrics pages in testdata. A row without such an answer may have another unit, type or scope than
// declared.
func TestEveryRowIsAnswered(t *testing.T) {
	for _, m := range gpmMetrics {
		if key := fmt.Sprintf("gpm.%d", m.id); !fakenvml.Describes(key) {
			t.Errorf("no GPU answers %s (%s): add it to internal/fakenvml/h100.state, or to the file of a GPU that has it", key, m.to.Name)
		}
	}
	for _, f := range newFields(2, 2) {
		key := fmt.Sprintf("field.%d", f.id)
		if f.scope != 0 {
			key += fmt.Sprintf(".%d", f.scope)
		}
		if !fakenvml.Describes(key) {
			t.Errorf("no GPU answers %s (%v): add it to internal/fakenvml/h100.state, or to the file of a GPU that has it", key, f.labels)
		}
	}
	if fakenvml.Describes(fmt.Sprintf("field.%d", math.MaxInt32)) {
		t.Error("a field that does not exist is answered")
	}
}
