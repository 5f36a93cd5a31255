package engine

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// FuzzPage feeds arbitrary text to the reader of metrics pages. The text becomes either a metrics page within the
// limits, or an error that names a reason and, if the text is at fault, a line. A metrics page that was accepted
// reads the same from its template, and its exposition can be parsed.
func FuzzPage(f *testing.F) {
	err := filepath.WalkDir("testdata/pages", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		page, err := os.ReadFile(path)
		if len(page) > 8<<10 { // the end of long metrics pages teaches the fuzzer nothing new
			page = page[:bytes.LastIndexByte(page[:8<<10], '\n')+1]
		}
		f.Add(page)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	limits := scrape.Limits{BodyBytes: 1 << 20, Series: 1000, LabelValueBytes: 100}
	f.Fuzz(func(t *testing.T, in []byte) {
		body, err := engineFormat.Sanitise(bytes.Clone(in), scrape.PlainPath, "text/plain")
		var page *scrape.Page
		if err == nil {
			page, err = engineFormat.Parse(body, "text/plain", limits)
		}
		if err != nil {
			if reason := scrape.ReasonOf(err); !slices.Contains([]string{
				scrape.ParseError, scrape.LimitExceeded, scrape.NotMetrics,
				scrape.JSONMetrics,
			}, reason) {
				t.Fatalf("reason %q for %v", reason, err)
			}
			if scrape.ReasonOf(err) == scrape.ParseError && !strings.Contains(err.Error(), "line ") && in[0] != '"' {
				t.Fatalf("no line in %v", err)
			}
			return
		}
		if len(page.Values) > limits.Series {
			t.Fatalf("%d series", len(page.Values))
		}
		if template := scrape.NewTemplate(body, page); template != nil {
			again := make([]float64, len(page.Values))
			if template.Read(body, func(i int, v float64) { again[i] = v }) {
				for i, v := range page.Values {
					if v != again[i] && !(math.IsNaN(v) && math.IsNaN(again[i])) {
						t.Fatalf("series %d is %v, from the template %v", i, v, again[i])
					}
				}
			}
		}
		for _, d := range builtin {
			if !d.Recognise(page) {
				continue
			}
			plan, err := compile(page, []*Dialect{d}, &labelling{server: "e:1"}, func(*Dialect) Identity { return Identity{} },
				&settings{Config: Config{Limits: limits, Objectives: slo.Defaults()}})
			if err != nil {
				continue
			}
			target := &target{
				labelling: labelling{server: "e:1"}, plan: plan, values: page.Values, log: discard,
				config: &settings{Config: Config{Now: time.Now}},
			}
			parse(t, text(t, &Exposition{snapshots: []*snapshot{target.up(len(body), 0)}}))
		}
	})
}
