package engine

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestCompare checks whether the metrics page of a second address, read between two readings of the first address, is
// from the same process, from another process, or undecided. On these metrics pages, only tokens and CPU time grow.
func TestCompare(t *testing.T) {
	page := func(start, cpu string, tokens, model string) string {
		s := fmt.Sprintf("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=%q} 1\n"+
			"# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{model_name=%q} %s\n", model, model, tokens)
		if start != "" {
			s += "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds " + start + "\n"
		}
		if cpu != "" {
			s += "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total " + cpu + "\n"
		}
		return s
	}
	at := func(start, cpu, tokens string) string { return page(start, cpu, tokens, "m") }
	more := "# TYPE vllm:request_success_total counter\nvllm:request_success_total{model_name=\"m\",finished_reason=\"stop\"} 1\n"
	for _, c := range []struct {
		name                 string
		before, other, after string
		mayLag               bool
		want                 Sameness
	}{
		{"a proxy", at("7", "1", "100"), at("7", "1", "100"), at("7", "1", "100"), false, Same},
		{"while it works", at("7", "1", "100"), at("7", "1.5", "110"), at("7", "2", "120"), false, Same},
		{"without start and CPU time", at("", "", "100"), at("", "", "110"), at("", "", "120"), false, Same},
		{"an outcome that is new", at("7", "1", "100"), at("7", "1", "100") + more, at("7", "1", "100") + more, false, Same},
		{"idle, by its CPU time", at("7", "1.1", "0"), at("7", "1.1", "0"), at("7", "1.2", "0"), false, Same},
		{"a proxy that hides the process", at("7", "1", "100"), at("", "", "100"), at("7", "1", "100"), false, Same},
		{"another start", at("7", "1", "100"), at("7.01", "1", "100"), at("7", "1", "100"), false, Different},
		{"started in the same moment, ahead", at("7", "1", "100"), at("7", "1", "121"), at("7", "1", "120"), false, Different},
		{"behind", at("7", "1", "100"), at("7", "1", "99"), at("7", "1", "120"), false, Different},
		{"idle both, other CPU time", at("7", "1.1", "0"), at("7", "1.4", "0"), at("7", "1.2", "0"), false, Different},
		{"another model", at("7", "1", "100"), page("7", "1", "100", "other"), at("7", "1", "100"), false, Different},
		{"an outcome that the first never had", at("7", "1", "100"), at("7", "1", "100") + more, at("7", "1", "100"), false, Different},
		{"an outcome that the other lacks", at("7", "1", "100") + more, at("7", "1", "100"), at("7", "1", "100") + more, false, Different},
		{"a collector that repeats it", at("7", "1", "100"), at("7", "0.5", "40"), at("7", "1", "100"), true, Same},
		{"a collector that is ahead", at("7", "1", "100"), at("7", "1", "121"), at("7", "1", "120"), true, Different},
		{"a collector that repeats it, without a start", at("", "", "100"), at("", "", "40"), at("", "", "100"), true, Same},
		{"a collector of another engine", at("7", "1", "100"), at("6", "0.5", "40"), at("7", "1", "100"), true, Different},
		{"idle, and no more is said", at("", "", "0"), at("", "", "0"), at("", "", "0"), false, Undecided},
		{"it starts anew in between", at("7", "9", "100"), at("8", "0", "3"), at("8", "0", "3"), false, Undecided},
		{"unseen, after it was asked", at("", "", "100"), at("", "", "2"), at("", "", "3"), false, Undecided},
		{"unseen, before the other was asked", at("", "", "100"), at("", "", "110"), at("", "", "3"), false, Undecided},
		{"a page that cannot be used", at("7", "1", "100"), "", at("7", "1", "100"), false, Undecided},
		{
			"another engine", at("7", "1", "100"), "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 1\n",
			at("7", "1", "100"), false, Different,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var read [3]Engine
			for i, page := range []string{c.before, c.other, c.after} {
				e, err := collectorFor(t, nil).Probe(t.Context(), TargetConfig{URL: serve(t, page).URL})
				if err != nil {
					t.Fatal(err)
				}
				read[i] = e
			}
			if got := Compare(read[0], read[1], read[2], c.mayLag); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// TestCompareWithoutModels checks that a proxy that forwards only the metrics page hides the model of an engine
// whose metrics page does not name it.
func TestCompareWithoutModels(t *testing.T) {
	page := readPage(t, "llamacpp/b5500.prom")
	own, proxy, other := serve(t, page), serve(t, page), serve(t, page)
	own.documents["/v1/models"] = `{"data": [{"id": "gemma"}]}`
	other.documents["/v1/models"] = `{"data": [{"id": "qwen"}]}`
	read := func(at *fakeEngine) Engine {
		e, err := collectorFor(t, nil).Probe(t.Context(), TargetConfig{URL: at.URL})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for name, c := range map[string]struct {
		at   *fakeEngine
		want Sameness
	}{"a proxy": {proxy, Same}, "another engine": {other, Different}} {
		if got := Compare(read(own), read(c.at), read(own), false); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// TestComparePages checks, for every engine's metrics page, that a later state is from the same process between two
// others, but not after both. Metrics pages without counts prove nothing.
func TestComparePages(t *testing.T) {
	kind, series := regexp.MustCompile(`^# TYPE (\S+) (counter|histogram)`), regexp.MustCompile(`^([^ {]+(?:\{.*\})?) (\S+)$`)
	later := func(page string, by float64) string {
		var b strings.Builder
		counts := ""
		for line := range strings.Lines(page) {
			if m := kind.FindStringSubmatch(line); m != nil {
				counts = m[1]
			} else if strings.HasPrefix(line, "# TYPE") {
				counts = ""
			}
			if m := series.FindStringSubmatch(strings.TrimSpace(line)); m != nil && counts != "" && strings.HasPrefix(m[1], counts) {
				if v, err := strconv.ParseFloat(m[2], 64); err == nil {
					line = m[1] + " " + strconv.FormatFloat(v+by, 'g', -1, 64) + "\n"
				}
			}
			b.WriteString(line)
		}
		return b.String()
	}
	files, err := filepath.Glob("testdata/pages/*/*.prom")
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for _, file := range files {
		page := readPage(t, strings.TrimPrefix(file, "testdata/pages/"))
		read := func(by float64) Engine {
			e, err := collectorFor(t, nil).Probe(t.Context(), TargetConfig{URL: serve(t, later(page, by)).URL})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		now := read(0)
		if now.Reason != "" {
			continue
		}
		between, after := Compare(now, read(1), read(2), false), Compare(now, read(2), read(1), false)
		switch {
		case between == Same && after == Different:
			same++
		case between != Undecided || after != Undecided:
			t.Errorf("%s: between %d, after both %d", file, between, after)
		default:
			t.Logf("%s counts nothing", file)
		}
	}
	if same < 60 {
		t.Errorf("%d pages are told apart", same)
	}
}
