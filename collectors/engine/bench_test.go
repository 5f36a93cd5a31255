package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// vllmPage is a vLLM metrics page (41 KB, 359 series) with a number of data-parallel ranks.
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

// BenchmarkPage compares this package's path from the bytes of a metrics page to the bytes of the exposition with
// expfmt's decode and encode of the same metrics page, and with two lower bounds: Prometheus' parser naming every
// series, and the encoding alone.
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
		if err := t.read(b.Context(), scrape.PlainPath, page, "text/plain"); err != nil {
			b.Fatal(err)
		}
		encode := func() error {
			e := Exposition{snapshots: []*snapshot{t.up(len(page), 0)}}
			_, err := e.WriteTo(io.Discard)
			return err
		}
		run("read-map-encode", func() error {
			if err := t.read(b.Context(), scrape.PlainPath, page, "text/plain"); err != nil {
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

// BenchmarkSettings measures a scrape of a current vLLM metrics page with and without its settings.
func BenchmarkSettings(b *testing.B) {
	page := readPage(b, "vllm/v0.32.0-healthy.prom")
	for _, with := range []bool{true, false} {
		b.Run(fmt.Sprintf("settings=%t", with), func(b *testing.B) {
			b.ReportAllocs()
			t := collectorFor(b, []TargetConfig{{URL: "http://engine"}}).targets[0]
			t.identities = map[metrics.Runtime]identified{vllm.Runtime: {}} // asked already
			if err := t.read(b.Context(), scrape.PlainPath, []byte(page), "text/plain"); err != nil {
				b.Fatal(err)
			}
			if !with {
				t.plan.runs = nil
			}
			size, started, n := 0, cpu(b), 0
			for b.Loop() {
				n++
				if err := t.read(b.Context(), scrape.PlainPath, []byte(page), "text/plain"); err != nil {
					b.Fatal(err)
				}
				e := Exposition{snapshots: []*snapshot{t.up(len(page), 0)}}
				written, err := e.WriteTo(io.Discard)
				if err != nil {
					b.Fatal(err)
				}
				size = int(written)
			}
			b.ReportMetric(float64(cpu(b)-started)/float64(n), "cpu-ns/op")
			b.ReportMetric(float64(size), "B/scrape")
		})
	}
}

// cpu returns the processor time of the process: on a machine with other work, wall time means little.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestSettingsCost checks that a metrics endpoint of one model has one series per setting, in fewer bytes than
// docs/release.md states.
func TestSettingsCost(t *testing.T) {
	for _, page := range []string{
		"vllm/v0.32.0-healthy.prom", "sglang/v0.5.9-priority.prom", "tgi/v3.3.7-loaded.prom",
		"trtllm/v1.3.0-full.prom", "llamacpp/b10450-loaded.prom",
		"ollama/0.12.6-one.json", "nim/1.x.prom", "lmdeploy/v0.14.0.prom", "tei/embed-loaded.prom",
	} {
		engine := serve(t, readPage(t, page))
		if strings.HasPrefix(page, "ollama/") {
			engine.path = "/api/ps"
		}
		for path, file := range map[string]string{
			"/version": "vllm-version.json", "/v1/models": "vllm-models.json",
			"/info": "tgi-info.json", "/server_info": "sglang-server-info-full.json",
			"/props": "llamacpp-props-full.json", "/api/show": "ollama-show.json", "/api/version": "ollama-version.json",
		} {
			engine.documents[path] = document(t, file)
		}
		series, size, whole := 0, 0, 0
		for line := range strings.Lines(exposition(t, collectorFor(t, []TargetConfig{{URL: engine.URL}}))) {
			whole += len(line)
			if strings.HasPrefix(line, metrics.EngineConfig.Name+"{") {
				series, size = series+1, size+len(line)
			}
		}
		t.Logf("%s: %d series, %d bytes of %d", page, series, size, whole)
		if series != len(metrics.Settings) || size > 6<<10 {
			t.Errorf("%s: %d series, %d bytes", page, series, size)
		}
	}
}
