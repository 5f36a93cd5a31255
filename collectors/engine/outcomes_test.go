package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// ending is a line of testdata/outcomes.tsv: a value by which an engine reports how a request ended.
type ending struct{ engine, family, label, value string }

func readEndings(t testing.TB) (all []ending) {
	body, err := os.ReadFile("testdata/outcomes.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		c := strings.Split(strings.TrimSpace(line), "\t")
		if strings.HasPrefix(line, "#") || c[0] == "engine" {
			continue
		}
		if len(c) != 5 {
			t.Fatalf("outcomes.tsv: %d columns in %q", len(c), line)
		}
		all = append(all, ending{c[0], c[1], c[2], c[3]})
	}
	return all
}

// TestOutcomesAreComplete checks that each value of the sources' enumerations has an outcome, and no other value
// has one.
func TestOutcomesAreComplete(t *testing.T) {
	endings, known := readEndings(t), map[string]bool{}
	for _, e := range endings {
		listed := false
		for _, d := range builtin {
			for _, r := range d.Rows {
				for _, c := range r.Carry {
					if string(d.Runtime) != e.engine || r.From != e.family || c.From != e.label || c.Outcomes == nil {
						continue
					}
					listed = listed || c.Apply(e.value) != ""
					value := e.value
					if c.Map != nil {
						value = c.Map(value)
					}
					known[value] = true
				}
			}
		}
		if !listed {
			t.Errorf("%s: no outcome for %s{%s=%q}", e.engine, e.family, e.label, e.value)
		}
	}
	for _, d := range builtin {
		for _, r := range d.Rows {
			for _, c := range r.Carry {
				for value := range c.Outcomes {
					if !known[value] {
						t.Errorf("%s: %s{%s=%q} is in no source: testdata/outcomes.tsv", d.Runtime, r.From, c.From, value)
					}
				}
				if c.Outcomes != nil && !slices.ContainsFunc(endings, func(e ending) bool {
					return e.engine == string(d.Runtime) &&
						e.family == r.From && e.label == c.From
				}) &&
					c.From != "finish_reason" { // of imitations and of early builds
					t.Errorf("%s: testdata/outcomes.tsv has no values of %s{%s}", d.Runtime, r.From, c.From)
				}
			}
		}
	}
}

// TestUnlistedOutcomesAreUnknown checks that a value in none of our sources is neither good nor bad, in each
// engine, and that the log and a series name it.
func TestUnlistedOutcomesAreUnknown(t *testing.T) {
	const fresh = "brand_new"
	tried := 0
	for _, d := range builtin {
		for _, r := range d.Rows {
			if r.To != metrics.Requests || r.Tally != nil || r.On != nil {
				continue
			}
			for _, c := range r.Carry {
				if c.To != metrics.LabelOutcome || !matchesValue(r, c.From, fresh) {
					continue
				}
				tried++
				source := fmt.Sprintf("%s{%s=%q}", r.From, c.From, fresh)
				name, kind := r.From, string(r.Is)
				if r.Part != "" {
					name += "_" + string(r.Part)
				}
				page := fmt.Sprintf("# TYPE %s %s\n%s{%s=%q} 40\n", r.From, kind, name, c.From, fresh)
				var log bytes.Buffer
				e := serve(t, page)
				if d.Paths != nil {
					e.path = d.Paths[0]
				}
				col := collectorWith(t, Config{
					Targets:    []TargetConfig{{URL: e.URL, Engine: string(d.Runtime)}},
					Objectives: []slo.Objective{objective(t, "availability", slo.Availability, "", "99%")}, Log: slog.New(slog.NewTextHandler(&log, nil)),
				})
				s := parse(t, exposition(t, col))
				for _, o := range []metrics.Outcome{
					metrics.OutcomeStop, metrics.OutcomeSuccess, metrics.OutcomeLength, metrics.OutcomeError,
					metrics.OutcomeRejected,
				} {
					if of := `llm_engine_requests_total{outcome="` + string(o) + `"}`; slices.Max(append(s.get(t, of), 0)) > 0 {
						t.Errorf("%s: %v", of, s.get(t, of))
					}
				}
				if d.Models == nil { // others leave out a model that their backend's families do not name
					s.want(t, `llm_engine_requests_total{outcome="unknown"}`, 40)
				}
				s.want(t, `llm_slo_events_total`)
				if len(s.get(t, fmt.Sprintf(`llm_engine_unknown_outcome_info{source=%q}`, source))) != 1 {
					t.Errorf("%s: nothing says that %s is unknown", d.Runtime, source)
				}
				exposition(t, col)
				if n := strings.Count(log.String(), fresh); n != 1 {
					t.Errorf("%s: the log names %s %d times", d.Runtime, source, n)
				}
			}
		}
	}
	if tried < 12 {
		t.Errorf("only %d rows tell outcomes by a label", tried)
	}
}

// matchesValue reports whether a row reads series whose only label has this value.
func matchesValue(r Row, label, value string) bool {
	for _, m := range r.Where {
		v := ""
		if m.Name == label {
			v = value
		}
		if !m.Matches(v) {
			return false
		}
	}
	return true
}

// TestUnlistedOutcomesAreFew checks that a metrics page cannot fill the exposition with made-up values.
func TestUnlistedOutcomesAreFew(t *testing.T) {
	page := "# TYPE vllm:request_success_total counter\n"
	for i := range 100 {
		page += fmt.Sprintf("vllm:request_success_total{model_name=\"m\",finished_reason=\"r%d\"} 1\n", i)
	}
	s := parse(t, mapped(t, page))
	s.want(t, `llm_engine_requests_total{outcome="unknown"}`, 100)
	if n := len(s.get(t, `llm_engine_unknown_outcome_info`)); n != mostUnlisted {
		t.Errorf("%d series of unknown outcomes, want %d", n, mostUnlisted)
	}
}
