package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// vllmPage is a vLLM page (41 KB, 359 series) with a number of data-parallel ranks.
func vllmPage(t testing.TB, ranks int) []byte {
	var page bytes.Buffer
	for line := range strings.Lines(readPage(t, "vllm/v0.8.5-v1.prom")) {
		page.WriteString(line)
		for rank := 1; rank < ranks && strings.Contains(line, `engine="0"`); rank++ {
			page.WriteString(strings.Replace(line, `engine="0"`, fmt.Sprintf(`engine="%d"`, rank), 1))
		}
	}
	return page.Bytes()
}

// BenchmarkPage compares this package's path from the bytes of a page to the bytes of the
// exposition with expfmt's decode and encode of the same page, and with its own two lower bounds:
// Prometheus' parser naming every series, and the encoding alone.
func BenchmarkPage(b *testing.B) {
	for _, ranks := range []int{1, 8, 16} {
		page := vllmPage(b, ranks)
		run := func(name string, f func() error) {
			b.Run(fmt.Sprintf("ranks=%d/%s", ranks, name), func(b *testing.B) {
				b.SetBytes(int64(len(page)))
				b.ReportAllocs()
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		t := collectorFor(b, []TargetConfig{{URL: "http://engine"}}).targets[0]
		t.identities = map[metrics.Runtime]identified{vllm.Runtime: {}} // asked already
		if err := t.read(b.Context(), plainPath, page, "text/plain"); err != nil {
			b.Fatal(err)
		}
		encode := func() error {
			e := Exposition{snapshots: []*snapshot{t.up(len(page), 0)}}
			_, err := e.WriteTo(io.Discard)
			return err
		}
		run("read-map-encode", func() error {
			if err := t.read(b.Context(), plainPath, page, "text/plain"); err != nil {
				return err
			}
			return encode()
		})
		run("encode", encode)
		run("textparse-names", func() error {
			parser := textparse.NewPromParser(page, labels.NewSymbolTable(), false)
			for {
				entry, err := parser.Next()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				if entry == textparse.EntrySeries {
					parser.Series()
				}
			}
		})
		run("expfmt-decode-encode", func() error {
			parser := expfmt.NewTextParser(model.LegacyValidation)
			families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
			if err != nil {
				return err
			}
			encoder := expfmt.NewEncoder(io.Discard, expfmt.NewFormat(expfmt.TypeTextPlain))
			for _, f := range families {
				if err := encoder.Encode(f); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
